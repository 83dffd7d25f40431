/* What the tests of executors share: seeded contents of inputs, runs on given places, random graphs, a transformer's
 * layers. Results are compared with exec_reference, which runs the op references node by node in the graph's order,
 * on host memory, and knows nothing of plans. */
#ifndef EXEC_TESTING_H
#define EXEC_TESTING_H

#include "../gpu/gpu_testing.h"
#include "graph_testing.h"

/* The contents of all outputs, inputs and states of a graph after runs, by tensor; NULL for other tensors. */
struct exec_results {
    const struct rf_graph *graph;
    unsigned char **data;
};
void exec_results_free(struct exec_results *results);
/* Returns NULL, or a text that says what differs (it belongs to the thread). Each number may differ by tolerance * (1
 * + the largest number of its tensor); with tolerance 0 all bits must agree. */
const char *exec_difference(const struct exec_results *a, const struct exec_results *b, double tolerance);

/* Runs the references this many times; inputs and states begin with contents that follow from the seed. */
struct exec_results exec_reference(const struct rf_graph *graph, uint64_t seed, int runs);
/* exec_write writes those contents to an executor; exec_read reads the results of its runs. */
rf_status exec_write(struct rf_executor *executor, const struct rf_graph *graph, uint64_t seed);
rf_status exec_read(struct rf_executor *executor, const struct rf_graph *graph, struct exec_results *out);
/* Creates an executor, writes, runs it this many times, reads, and destroys it. */
rf_status exec_run(const struct rf_executor_params *params, uint64_t seed, int runs, struct exec_results *out);

/* A random graph from a seed: 5 to 30 nodes over small matrices, with views, states, groups and named outputs. */
struct rf_graph *exec_random_graph(uint64_t seed);

/* For params.place: a seeded choice among this many devices and the CPU. */
struct exec_split {
    uint64_t seed;
    int devices;
};
int exec_split_place(void *user, const char *node);

/* A transformer's layers over a KV cache, as a model's builder would make them. */
struct exec_block {
    unsigned layers, heads, kv_heads, head_dim, ffn, tokens, context, chunks;
    uint64_t vocabulary;   /* 0: no output layer */
    enum rf_dtype weights; /* RF_F32, RF_F16, RF_Q8_0, RF_Q4_0 */
    bool loose;            /* without groups */
    bool zero_weights;     /* all the same zeros: for plans, and for timing models too large to fill */
};
/* The smallest block that has everything. */
#define EXEC_SMALL_BLOCK                                                                                             \
    ((struct exec_block){.layers = 2,                                                                                \
                         .heads = 4,                                                                                 \
                         .kv_heads = 2,                                                                              \
                         .head_dim = 32,                                                                             \
                         .ffn = 256,                                                                                 \
                         .tokens = 3,                                                                                \
                         .context = 16,                                                                              \
                         .chunks = 1,                                                                                \
                         .weights = RF_F32})
/* A layer has 7 MiB of weights: several of the 2 MiB granules in which device memory is granted. */
#define EXEC_MEDIUM_BLOCK                                                                                            \
    ((struct exec_block){.layers = 2,                                                                                \
                         .heads = 8,                                                                                 \
                         .kv_heads = 4,                                                                              \
                         .head_dim = 32,                                                                             \
                         .ffn = 2048,                                                                                \
                         .tokens = 2,                                                                                \
                         .context = 16,                                                                              \
                         .chunks = 1,                                                                                \
                         .weights = RF_F32})
struct rf_graph *exec_block_graph(const struct exec_block *block);

/* Devices of one runtime. They are simulated, unless RF_DRIVER names a real driver and the test needs one device
 * without settings. */
struct exec_gpus {
    const char *modules; /* set before opening: see struct rf_device_params */
    struct rf_runtime *runtime;
    struct rf_device *devices[4];
    size_t count;
};
void exec_open(struct exec_gpus *gpus, size_t count, const char *rfsim, const char *budget,
               const char *const *options);
void exec_close(struct exec_gpus *gpus); /* asserts that nothing is held */
/* Uses one thread on the CPU; gpus may be NULL. */
struct rf_executor_params exec_params(const struct rf_graph *graph, const struct exec_gpus *gpus);
struct rf_memory_info exec_memory(struct rf_device *device);

#endif
