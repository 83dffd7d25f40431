/* What a library of host-compiled kernels and the simulated driver say to each other.
 *
 * A kernel library is the same .hip sources compiled as C, once per wave size, in one shared
 * object that exports rfk_table. The driver runs a block's threads as fibers on one operating
 * system thread; a lane gives up control only inside the services below. */
#ifndef RFK_HOST_ABI_H
#define RFK_HOST_ABI_H

#include <stddef.h>
#include <stdint.h>

#define RFK_ABI 2

/* A tensor map of the simulated driver, where a GPU's has its own form: what bulk copies see of memory. The argument
 * of a kernel, by value. */
#define RFK_MAP_RANK 5
struct rfk_map {
    uint32_t magic; /* RFK_MAP_MAGIC; 0: a map of no buffer */
    uint16_t rank, element_bytes;
    uint32_t swizzle_bytes; /* within which groups of 16 bytes are exchanged from row to row; 0: they are not */
    uint32_t box[RFK_MAP_RANK];
    uint64_t base;
    uint64_t sizes[RFK_MAP_RANK];       /* in elements */
    uint64_t strides[RFK_MAP_RANK - 1]; /* in bytes, of the dimensions behind the first */
    uint64_t unused;
} __attribute__((aligned(64)));
#define RFK_MAP_MAGIC 0x524d4150u

struct rfk_dim {
    uint32_t x, y, z;
};

/* The running lane's place; the driver sets it before a lane runs or resumes. */
struct rfk_lane {
    struct rfk_dim thread, block, block_dim, grid_dim;
    uint32_t lane; /* within its wave */
};

/* Offered by the driver. All wave services act among the lanes of one wave that have not
 * returned; all of those must make the call, else the driver reports a divergence error. */
struct rfk_services {
    void (*barrier)(void);                                     /* the whole block */
    uint32_t (*shuffle)(uint32_t value, uint32_t source_lane); /* the value of that lane of the wave */
    uint64_t (*ballot)(int predicate);
    void *(*shared_static)(const void *site, size_t bytes,
                           size_t align); /* one per block and site; poisoned at block start */
    void *(*shared_dynamic)(void);
    uint64_t (*clock_ns)(void);
    void (*relax)(void);           /* inside a spin: lets other lanes, streams and shutdown proceed */
    void (*fail)(const char *why); /* ends the launch with an error; does not return */
};

struct rfk_kernel {
    const char *name;
    void (*run)(void **args); /* one lane's work */
    uint32_t arg_count;
    const uint32_t *arg_bytes;
    uint32_t max_threads;
};

struct rfk_table {
    int abi, wave;
    const struct rfk_kernel *kernels;
    uint32_t count;
    void (*bind)(const struct rfk_services *services); /* once after loading */
    void (*set_lane)(const struct rfk_lane *lane);     /* thread-local in the library */
};

/* Exported by every kernel library: wave is 32 or 64; NULL for another. */
typedef const struct rfk_table *(*rfk_table_fn)(int wave);

#endif
