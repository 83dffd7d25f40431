/* What the tests of graphs share: functions that build a graph in one line each, and an evaluator that runs a graph's
 * nodes in order on host memory, each by its op's reference. Passes, plans and executors are compared with the
 * evaluator; it knows nothing of them except what a node says. */
#ifndef GRAPH_TESTING_H
#define GRAPH_TESTING_H

#include <rocmforge/graph.h>
#include <rocmforge/test.h>

#include "graph/graph_impl.h"

struct rf_graph *graph_new(const char *name);
/* Adds a row-major tensor; sizes end with 0. data is for constants only. */
rf_tensor_id graph_tensor_of(struct rf_graph *graph, const char *name, enum rf_tensor_role role, enum rf_dtype dtype,
                             const void *data, const uint64_t *sizes);
#define SIZES(...) ((const uint64_t[]){__VA_ARGS__, 0})
#define GRAPH_TENSOR(graph, name, role, ...)                                                                         \
    graph_tensor_of((graph), (name), (role), RF_F32, NULL, SIZES(__VA_ARGS__))
#define GRAPH_VALUE(graph, ...) GRAPH_TENSOR(graph, NULL, RF_ROLE_RESULT, __VA_ARGS__)
/* Adds a constant with f32 numbers that follow from the seed; they are kept until the process ends. */
rf_tensor_id graph_constant_of(struct rf_graph *graph, const char *name, uint64_t seed, const uint64_t *sizes);
#define GRAPH_CONSTANT(graph, name, seed, ...) graph_constant_of((graph), (name), (seed), SIZES(__VA_ARGS__))
/* Adds a dense view. */
rf_tensor_id graph_view_of(struct rf_graph *graph, const char *name, rf_tensor_id of, uint64_t byte_offset,
                           const uint64_t *sizes);
#define GRAPH_VIEW(graph, name, of, offset, ...) graph_view_of((graph), (name), (of), (offset), SIZES(__VA_ARGS__))

/* ids: the inputs (0 if left out), then the outputs. */
struct graph_attributes {
    double f0;
    int64_t i0, i1;
};
rf_status graph_try_node(struct rf_graph *graph, const char *name, const char *op, struct graph_attributes attributes,
                         const rf_tensor_id *ids, size_t count);
#define GRAPH_TRY(graph, name, op, attributes, ...)                                                                  \
    graph_try_node((graph), (name), (op), (attributes), (const rf_tensor_id[]){__VA_ARGS__},                         \
                   sizeof((const rf_tensor_id[]){__VA_ARGS__}) / sizeof(rf_tensor_id))
#define GRAPH_NODE(graph, name, op, attributes, ...) RF_ASSERT_OK(GRAPH_TRY(graph, name, op, attributes, __VA_ARGS__))
#define NONE ((struct graph_attributes){0, 0, 0})
#define F0(value) ((struct graph_attributes){(value), 0, 0})
#define I0(value) ((struct graph_attributes){0, (value), 0})

/* Inputs and states are filled from the seed and their names, i32 tensors with small numbers. Other tensors are
 * filled with NaN until their node has run. An output that is in place of an input has the input's memory. */
struct graph_memory {
    const struct rf_graph *graph;
    void **storage; /* by tensor; for roots only */
    bool *borrowed; /* the memory belongs to a constant, or to another tensor (in place) */
};
struct graph_memory graph_evaluate(const struct rf_graph *graph, uint64_t seed);
void graph_memory_free(struct graph_memory *memory);
/* Where a tensor's elements begin. */
void *graph_data(const struct graph_memory *memory, const char *name);

/* Checks that both graphs give the same outputs, inputs and states (some ops change those), by name. Each number may
 * differ by tolerance * (1 + the largest number of its tensor); with tolerance 0 not at all. Returns NULL, or a text
 * that says what differs (static, one for each thread). */
const char *graph_difference(const struct rf_graph *a, const struct rf_graph *b, uint64_t seed, double tolerance);

/* The dump as one text; the caller frees it. */
char *graph_text(const struct rf_graph *graph, enum rf_graph_format format);

#endif
