/* Launching a kernel by its name; every launcher of this folder uses it.
 *
 * A kernel takes pointers and, as its last argument, the op's argument struct from a kernels/NAME_args.h:
 * rf_arg_struct passes it by value. */
#ifndef RF_OPS_LAUNCH_H
#define RF_OPS_LAUNCH_H

#include <rocmforge/gpu.h>

#include "base/base.h"

/* Blocks and threads of a launch; a 0 in y or z counts as 1. */
struct rf_grid {
    uint32_t blocks[3], threads[3];
    uint32_t shared_bytes; /* dynamic shared memory */
};
static inline struct rf_grid rf_grid_line(uint32_t blocks, uint32_t threads) {
    return (struct rf_grid){.blocks = {blocks}, .threads = {threads}};
}
static inline struct rf_grid rf_grid_plane(const uint32_t blocks[2], uint32_t threads, uint32_t shared_bytes) {
    return (struct rf_grid){.blocks = {blocks[0], blocks[1]}, .threads = {threads}, .shared_bytes = shared_bytes};
}
static inline struct rf_grid rf_grid_space(const uint32_t blocks[3], const uint32_t threads[3]) {
    return (struct rf_grid){.blocks = {blocks[0], blocks[1], blocks[2]},
                            .threads = {threads[0], threads[1], threads[2]}};
}

/* The most blocks that a launcher asks for; kernels loop over the rest of the work. HIP takes no grid with more than
 * 2^32 - 1 threads in x, and no block has more than 1024. */
#define RF_GRID_X_MAX (UINT32_MAX / 1024)
#define RF_GRID_YZ_MAX 65535u
/* Returns value, but at least 1 and at most `most`. */
static inline uint32_t rf_grid_clamp(uint64_t value, uint32_t most) {
    return (uint32_t)(value < 1 ? 1 : value > most ? most : value);
}

/* The wave size, 32 or 64, and the number of compute units, 1 to 1024, of the queue's device. */
static inline void rf_grid_device(struct rf_queue *queue, uint32_t *wave, uint32_t *units) {
    RF_PARAMS(struct rf_device_info, info);
    if (rf_device_get_info(rf_queue_device(queue), &info)) info.wave_size = info.compute_units = 0;
    *wave = info.wave_size == 64 ? 64 : 32;
    *units = rf_grid_clamp((uint64_t)(info.compute_units > 0 ? info.compute_units : 1), 1024);
}

/* RF_E_NOT_FOUND: the device has no such kernel. Nothing is launched if blocks[0] is 0. Otherwise as
 * rf_queue_launch. */
rf_status rf_op_launch(struct rf_queue *queue, const char *kernel, struct rf_grid grid, const struct rf_arg *args,
                       size_t count);

static inline struct rf_arg rf_arg_u64(uint64_t value) {
    return rf_arg_i64((int64_t)value);
}
static inline uint64_t rf_ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

#endif
