/* The internals of a graph: tables of tensors and nodes. Ids are indices + 1; the tables never shrink while a graph
 * is built.
 *
 * Invariants of a finished graph (rf_graph_is_valid checks 1 to 4; 5 is checked where nodes are ordered, because a
 * finished graph no longer knows the order in which they were added):
 *   1. nodes stand in an order in which they can run
 *   2. a tensor has one producer, or is a view
 *   3. root is a tensor with storage of its own; a view's bytes lie within its root's
 *   4. every node passed rf_op_check with the descriptors in the table
 *   5. a node that updates an input comes after all nodes that use the same storage and were added before it, and
 *      before all that use it and were added after it */
#ifndef RF_GRAPH_GRAPH_IMPL_H
#define RF_GRAPH_GRAPH_IMPL_H

#include <rocmforge/graph.h>

#include "ops/op.h"

struct rf_tensor_row {
    char *name;
    enum rf_tensor_role role;
    struct rf_tensor_desc desc; /* checked; byte_offset is from the start of the root's storage */
    uint64_t bytes;             /* the end of its span: byte_offset + the bytes it spans */
    uint32_t root;              /* index of the tensor that owns its storage: itself, unless it is a view */
    uint32_t view_of;           /* index, or RF_NO_INDEX */
    uint32_t producer;          /* index of a node, or RF_NO_INDEX */
    rf_tensor_id origin;        /* in a clone: its id in the graph that was cloned; 0: a pass made it */
    const void *data;
    void *owned_data; /* of a constant that a pass computed: data points to it, and the graph frees it */
    int group;
    bool output;  /* wanted after a run: named by the caller, or read by no node when the graph was finished */
    bool updated; /* of a root: a node changes it in place */
};
#define RF_NO_INDEX UINT32_MAX

struct rf_node_row {
    char *name;
    const struct rf_op *op;
    struct rf_op_attributes attributes;
    uint32_t tensors[RF_OP_TENSORS_MAX]; /* indices: inputs, then outputs; RF_NO_INDEX where one is left out */
    int group;
    /* Set by RF_PASS_IN_PLACE: output o takes the storage of input in_place[o]. That input covers the whole
     * storage, perhaps as a view. -1: the output has its own storage. */
    int8_t in_place[RF_OP_TENSORS_MAX];
};

struct rf_graph {
    char *name;
    struct rf_tensor_row *tensors;
    size_t tensor_count, tensor_capacity;
    struct rf_node_row *nodes;
    size_t node_count, node_capacity;
    uint32_t *names;   /* tensors by the hash of their name: index + 1, or 0 in a free slot; open addressing */
    size_t name_slots; /* a power of two, at least twice tensor_count */
    uint64_t bytes;    /* the sum of all storage; known not to overflow */
    struct rf_account account; /* for the graph's own host memory; charges nothing for a user's graph, or a clone */
    bool finished;
    bool outputs_known; /* of a clone: finishing adds no outputs, and a tensor may have no reader */
};
#define RF_GRAPH_NAME_MAX 255 /* bytes of a name, without the terminating zero */

/* Makes the call of a node, with descriptors and without memory. */
void rf_graph_call(const struct rf_graph *graph, const struct rf_node_row *node, struct rf_op_call *call);
/* Makes an unfinished copy for passes. It owns its names and borrows the constants' data. Its nodes keep their
 * order. */
rf_status rf_graph_clone(const struct rf_graph *graph, struct rf_graph **out);
/* Whether [byte_offset, bytes) of two tensors with one root have a byte in common. */
bool rf_graph_overlap(const struct rf_graph *graph, uint32_t a, uint32_t b);
/* graph_valid.c, only in builds with checks at level 2. *why: the invariant that does not hold. A graph that is
 * not finished need not be in order, and may have results that no node makes yet. */
bool rf_graph_is_valid(const struct rf_graph *graph, const char **why);
/* graph_order.c: an upper bound of the bytes that finishing the graph, or a pass over it, needs until it returns. */
uint64_t rf_graph_work_bytes(const struct rf_graph *graph);
/* graph_order.c: puts the nodes in an order in which they can run, and updates the producers of tensors.
 * RF_E_INVALID: there is a cycle. */
rf_status rf_graph_order(struct rf_graph *graph);
/* Removes the nodes marked in 'gone' (NULL: none), and then every tensor that no node uses, unless it is an input,
 * a state, an output, or a view needs it. The graph must not be finished. */
rf_status rf_graph_compact(struct rf_graph *graph, const bool *gone);

/* Writes text in pieces, and remembers that the reader stopped. */
struct rf_writer {
    bool (*write)(void *user, const char *text, size_t length);
    void *user;
    bool stopped;
};
void rf_writer_print(struct rf_writer *writer, const char *format, ...) RF_PRINTF(2, 3);

#endif
