/* The internals of the optimizer. A pass changes a clone (graph_impl.h) with its nodes in an order they can run in;
 * it leaves them in an order they can run in, and counts its changes. Passes are independent: any set of them, in any
 * order, keeps the results.
 *
 * A root (here: an input, a state or an output) keeps its name, its descriptor, its position in a node and a
 * storage of its own. */
#ifndef RF_GRAPH_PASS_H
#define RF_GRAPH_PASS_H

#include "graph/graph_impl.h"

rf_status rf_pass_dead(struct rf_graph *graph, size_t *changes);
rf_status rf_pass_constant(struct rf_graph *graph, size_t *changes);
rf_status rf_pass_common(struct rf_graph *graph, size_t *changes);
rf_status rf_pass_view(struct rf_graph *graph, size_t *changes);
rf_status rf_pass_fuse(struct rf_graph *graph, size_t *changes);
rf_status rf_pass_in_place(struct rf_graph *graph, size_t *changes);

/* How each storage is used, by the index of its root. A use of a view counts as a use of its root. */
struct rf_pass_use {
    uint32_t reads;    /* how many inputs of nodes it is, updates included */
    uint32_t reader;   /* the last node that has it as an input, or RF_NO_INDEX */
    bool updated;      /* some node changes it in place */
    bool through_view; /* some node has a view of it as an input */
};
/* The caller frees the result. NULL, with the error set: there is no memory. */
struct rf_pass_use *rf_pass_uses(const struct rf_graph *graph);
/* A flag for each node. The caller frees the result. NULL, with the error set: there is no memory. */
bool *rf_pass_flags(const struct rf_graph *graph);
/* Whether a node, as it stands, passes rf_op_check. Leaves the thread's error as it was. */
bool rf_pass_fits(const struct rf_graph *graph, const struct rf_node_row *node);

static inline int rf_node_tensors(const struct rf_node_row *node) {
    return node->op->inputs + node->op->outputs;
}
static inline uint32_t rf_node_out(const struct rf_node_row *node, int index) {
    return node->tensors[node->op->inputs + index];
}
/* The root of input 'index', or RF_NO_INDEX. */
static inline uint32_t rf_node_root(const struct rf_graph *graph, const struct rf_node_row *node, int index) {
    return node->tensors[index] == RF_NO_INDEX ? RF_NO_INDEX : graph->tensors[node->tensors[index]].root;
}
static inline bool rf_desc_same(const struct rf_tensor_desc *a, const struct rf_tensor_desc *b) {
    return a->dtype == b->dtype && a->byte_offset == b->byte_offset && rf_op_same_shape(a, b) &&
           !memcmp(a->strides, b->strides, (size_t)a->rank * sizeof a->strides[0]);
}

#endif
