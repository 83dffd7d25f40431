/* Runs host-compiled kernels, block by block, for the tests of the kernels themselves.
 *
 * Each thread of a block is a context of its own; a lane gives up control at a barrier or a wave
 * operation and goes on when all that must take part have arrived. Lanes run in an order drawn
 * from a seed. Independent of the simulated driver, so that the two check each other. */
#ifndef HOST_RUN_H
#define HOST_RUN_H

#include "kernels/host_abi.h"
#include <stdbool.h>

struct host_launch {
    struct rfk_dim grid, block;
    size_t shared_bytes; /* dynamic */
    uint64_t seed;       /* 0: lanes in order */
};

/* The table of a library for a wave size, its services bound; ends the test on failure. */
const struct rfk_table *host_library(const char *path, int wave);
const struct rfk_kernel *host_kernel(const struct rfk_table *table, const char *name);

/* NULL, or what went wrong: lanes of a wave or block that do not meet. */
const char *host_run(const struct rfk_table *table, const struct rfk_kernel *kernel, const struct host_launch *launch,
                     void **args);

#endif
