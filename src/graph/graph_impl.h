/* A graph's inside: tables of tensors and nodes. Ids are indices + 1; the tables never shrink while a graph is built.
 *
 * Invariants of a finished graph (rf_graph_is_valid checks 1 to 4; 5 is checked where nodes are ordered, because a
 * finished graph no longer knows the order in which they were added):
 *   1. nodes stand in an order in which they can run
 *   2. a tensor has one producer, or is a view
 *   3. root is a tensor with storage of its own; a view's bytes lie within its root's
 *   4. every node passed rf_op_check with the descriptors in the table
 *   5. a node that updates an input comes after all that were added before it and use that storage, and before all
 *      that were added after it and do */
#ifndef RF_GRAPH_GRAPH_IMPL_H
#define RF_GRAPH_GRAPH_IMPL_H

#include <rocmforge/graph.h>

#include "ops/op.h"

struct rf_tensor_row {
    char *name;
    enum rf_tensor_role role;
    struct rf_tensor_desc desc; /* checked; byte_offset is from the start of the root's storage */
    uint64_t bytes;             /* the end of its span: byte_offset + what it spans */
    uint32_t root;              /* index of the tensor whose storage it has: itself, unless a view */
    uint32_t view_of;           /* index, or RF_NO_INDEX */
    uint32_t producer;          /* index of a node, or RF_NO_INDEX */
    rf_tensor_id origin;        /* of a clone: its id in the graph it was cloned from; 0: a pass made it */
    const void *data;
    void *owned_data; /* of a constant that a pass computed: the graph frees it; data points to it */
    int group;
    bool output;  /* wanted after a run: named, or read by no node when the graph was finished */
    bool updated; /* of a root: some node changes it in place */
};
#define RF_NO_INDEX UINT32_MAX

struct rf_node_row {
    char *name;
    const struct rf_op *op;
    struct rf_op_attributes attributes;
    uint32_t tensors[RF_OP_TENSORS_MAX]; /* inputs, then outputs: indices, RF_NO_INDEX where left out */
    int group;
    /* Set by RF_PASS_IN_PLACE: output o takes the storage of input in_place[o], of which that is the whole, perhaps
     * as a view; -1: not. */
    int8_t in_place[RF_OP_TENSORS_MAX];
};

struct rf_graph {
    char *name;
    struct rf_tensor_row *tensors;
    size_t tensor_count, tensor_capacity;
    struct rf_node_row *nodes;
    size_t node_count, node_capacity;
    uint32_t *names;   /* tensors by the hash of their name: index + 1, 0 where free; open addressing */
    size_t name_slots; /* a power of two, at least twice tensor_count */
    uint64_t bytes;    /* of all storage together; known not to overflow */
    bool finished;
    bool outputs_known; /* a clone: finishing makes no further outputs, and a tensor may be read by nobody */
};
#define RF_GRAPH_NAME_MAX 255 /* bytes of a name, its zero not counted */

/* The call of a node, with descriptors and no memory. */
void rf_graph_call(const struct rf_graph *graph, const struct rf_node_row *node, struct rf_op_call *call);
/* A copy, not finished, that owns its names and borrows constants; for passes. Its nodes keep their order. */
rf_status rf_graph_clone(const struct rf_graph *graph, struct rf_graph **out);
/* Whether [byte_offset, bytes) of two tensors with one root have a byte in common. */
bool rf_graph_overlap(const struct rf_graph *graph, uint32_t a, uint32_t b);
/* graph_valid.c, in builds with checks at level 2 only. *why: which invariant does not hold. A graph that is not
 * finished need not be in order, and may have results that no node makes yet. */
bool rf_graph_is_valid(const struct rf_graph *graph, const char **why);
/* graph_order.c: puts the nodes in an order they can run in, producers of tensors included. RF_E_INVALID for a cycle.
 */
rf_status rf_graph_order(struct rf_graph *graph);
/* Takes out nodes marked in 'gone' (NULL: none) and then every tensor that no node uses and that is no input, state,
 * output or what a view needs. The graph is not finished. */
rf_status rf_graph_compact(struct rf_graph *graph, const bool *gone);

/* Text in pieces; remembers that the reader stopped. */
struct rf_writer {
    bool (*write)(void *user, const char *text, size_t length);
    void *user;
    bool stopped;
};
void rf_writer_print(struct rf_writer *writer, const char *format, ...) RF_PRINTF(2, 3);

#endif
