/* View folding: a copy that changes neither type nor layout becomes a view of what it copied.
 *
 * That is correct only where neither storage is changed in place by any node; otherwise the copy stays. Nodes that
 * read the copy see another byte offset. It changes by a multiple of 16, and no op asks for a larger alignment, so
 * they still pass their checks, which is asserted. Must not: turn a root into a view, because a root has a storage of
 * its own. */
#include "graph/pass.h"

#include <stdlib.h>

enum { SHIFT = 16 };

/* Whether the elements have the same order and the same distances. */
static bool same_layout(const struct rf_tensor_desc *a, const struct rf_tensor_desc *b) {
    if (a->dtype != b->dtype || !rf_op_same_shape(a, b)) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return false;
    return true;
}

static bool only_copies(const struct rf_graph *graph, const struct rf_node_row *node) {
    if (strcmp(node->op->name, "copy") && strcmp(node->op->name, "transpose") && strcmp(node->op->name, "concat"))
        return false;
    for (int i = 1; i < node->op->inputs; i++)
        if (node->tensors[i] != RF_NO_INDEX) return false; /* a concat that joins it with something else */
    return same_layout(&graph->tensors[node->tensors[0]].desc, &graph->tensors[rf_node_out(node, 0)].desc);
}

/* Moves a tensor and its views to another storage, 'shift' bytes further in. */
static void move(struct rf_graph *graph, uint32_t from, uint32_t to, uint64_t shift) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        struct rf_tensor_row *tensor = &graph->tensors[i];
        if (tensor->root != from) continue;
        tensor->root = to;
        tensor->desc.byte_offset += shift; /* unsigned: a negative shift wraps around */
        tensor->bytes += shift;
    }
}

/* Whether every node that has a tensor in this storage as an input still passes its check. */
RF_FOR_CHECKS bool readers_fit(const struct rf_graph *graph, uint32_t root, size_t from) {
    for (size_t s = from; s < graph->node_count; s++)
        for (int i = 0; i < graph->nodes[s].op->inputs; i++)
            if (rf_node_root(graph, &graph->nodes[s], i) == root) {
                if (!rf_pass_fits(graph, &graph->nodes[s])) return false;
                break;
            }
    return true;
}

static bool fold(struct rf_graph *graph, size_t s, const struct rf_pass_use *uses) {
    const struct rf_node_row *node = &graph->nodes[s];
    if (!only_copies(graph, node)) return false;
    uint32_t in = node->tensors[0], out = rf_node_out(node, 0), root = graph->tensors[in].root;
    if (graph->tensors[out].output || uses[out].updated || uses[root].updated) return false;
    uint64_t shift = graph->tensors[in].desc.byte_offset - graph->tensors[out].desc.byte_offset, end;
    /* Views of the copy's storage may reach before or behind the copy, where the source's storage may have
     * nothing. */
    if (graph->tensors[in].desc.byte_offset < graph->tensors[out].desc.byte_offset || shift % SHIFT ||
        rf_add_overflows(graph->tensors[out].bytes, shift, &end) || end > graph->tensors[root].bytes)
        return false;
    graph->bytes -= graph->tensors[out].bytes;
    move(graph, out, root, shift);
    graph->tensors[out].view_of = in;
    rf_assert(readers_fit(graph, root, s + 1));
    return true;
}

rf_status rf_pass_view(struct rf_graph *graph, size_t *changes) {
    struct rf_pass_use *uses = rf_pass_uses(graph);
    bool *gone = rf_pass_flags(graph);
    rf_status status = uses && gone ? RF_OK : RF_E_NO_MEMORY;
    for (size_t s = 0; !status && s < graph->node_count; s++)
        if (fold(graph, s, uses)) {
            gone[s] = true;
            ++*changes;
        }
    if (!status) status = rf_graph_compact(graph, gone);
    free(uses);
    free(gone);
    return status;
}
