/* Weights from a model's file to the device: parallel reads into pinned memory, each piece copied on while others are
 * still being read.
 *
 * Callable for any weights at any time, while sessions run too. It holds nothing of the device or the host between
 * calls, and no weights in host memory but the few pieces under way: the file is read, its map is not touched, so
 * what the kernel keeps of the file is its cache alone, which it may drop. */
#ifndef RF_INFER_LOAD_H
#define RF_INFER_LOAD_H

#include <rocmforge/gpu.h>

#include "gguf/gguf.h"

struct rf_weight_home; /* engine_impl.h: a tensor, a buffer on the device, and where in it */

struct rf_load {
    struct rf_device *device;
    const struct rf_gguf *gguf; /* whose tensors they are */
    /* With the bytes that have arrived, after each piece, by the thread that called; false cancels. NULL: none. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    /* Zero: as is usual. They are upper bounds: fewer and smaller where the pinned part of the host's budget is small
     * or there is little to load; at the very least one piece of ordinary memory. */
    unsigned readers;       /* threads; one per usable core, 8 at most */
    uint64_t piece_bytes;   /* 4 MiB */
    uint64_t staging_bytes; /* all pieces together; 48 MiB */
    /* Filled in: how it was done. */
    unsigned readers_used, pieces_used;
    uint64_t piece_bytes_used;
};

/* Returns when all of it is on the device. Blocks: for the file, and for the device by its deadline.
 * RF_E_CANCELLED: progress said so; takes effect within a piece. RF_E_IO, with the file and the place in it: it
 * cannot be read, ends early, or was changed meanwhile. RF_E_NO_MEMORY: the host's budget has no room for a single
 * piece. On failure the buffers hold anything; nothing runs and nothing is held any more. */
rf_status rf_load_weights(struct rf_load *load, const struct rf_weight_home *homes, size_t count);

#endif
