/* Loads weights from a model's file to the device: parallel reads into pinned memory; each piece is copied while
 * others are still being read.
 *
 * It can be called for any weights at any time, also while sessions run. It holds no memory of the device or the
 * host between calls, and no weights in host memory except the few pieces under way. The file is read and its map
 * is not touched, so the only part of the file in memory is the kernel's page cache, which the kernel may drop. */
#ifndef RF_INFER_LOAD_H
#define RF_INFER_LOAD_H

#include <rocmforge/gpu.h>

#include "gguf/gguf.h"

struct rf_weight_home; /* engine_impl.h: a tensor, a buffer on the device, and the offset in it */

struct rf_load {
    struct rf_device *device;
    const struct rf_gguf *gguf; /* the file of the tensors */
    /* Called after each piece, by the calling thread, with the bytes that have arrived; false cancels. NULL: not
     * called. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    /* Zero: the default. These are upper bounds: fewer and smaller pieces are used if the pinned part of the host
     * budget is small or there is little to load; at the very least one piece of ordinary memory. */
    unsigned readers;       /* threads; default: one per usable core, at most 8 */
    uint64_t piece_bytes;   /* default: 4 MiB */
    uint64_t staging_bytes; /* all pieces together; default: 48 MiB */
    /* Filled in: what was used. */
    unsigned readers_used, pieces_used;
    uint64_t piece_bytes_used;
};

/* Returns when all weights are on the device. Blocks for the file, and for the device until its deadline.
 * RF_E_CANCELLED: progress returned false; takes effect within a piece. RF_E_IO, with the file and the position in
 * it: the file cannot be read, ends early, or was changed meanwhile. RF_E_NO_MEMORY: the host budget has no room
 * for a single piece. On failure the contents of the buffers are undefined; nothing runs and nothing is held any
 * more. */
rf_status rf_load_weights(struct rf_load *load, const struct rf_weight_home *homes, size_t count);

#endif
