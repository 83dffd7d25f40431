/* Constant folding: a node with only constant inputs is computed now, by the op's reference, and its outputs become
 * constants.
 *
 * A constant stays in memory for good, where the storage of a computed tensor would be reused, and the reference
 * is slow. So only small nodes are folded, by the limits below. Must not: fold a root, or a tensor that a node
 * changes in place. */
#include "graph/pass.h"

#include <stdlib.h>

enum { BYTES_MAX = 1 << 20, FLOPS_MAX = 1 << 24 }; /* limits on a node's outputs and on its operations */

static bool foldable(const struct rf_graph *graph, const struct rf_node_row *node, const struct rf_pass_use *uses,
                     const struct rf_op_call *call) {
    uint64_t bytes = 0, moved = 0, flops = 0;
    if (node->op->updates) return false;
    for (int i = 0; i < node->op->inputs; i++)
        if (node->tensors[i] != RF_NO_INDEX && graph->tensors[rf_node_root(graph, node, i)].role != RF_ROLE_CONSTANT)
            return false;
    for (int o = 0; o < node->op->outputs; o++) {
        const struct rf_tensor_row *tensor = &graph->tensors[rf_node_out(node, o)];
        if (tensor->output || uses[rf_node_out(node, o)].updated || tensor->bytes > BYTES_MAX) return false;
        bytes += tensor->bytes;
    }
    if (node->op->cost) node->op->cost(call, &moved, &flops);
    return bytes <= BYTES_MAX && flops <= FLOPS_MAX;
}

/* If memory runs out, nothing is changed. */
static rf_status fold(struct rf_graph *graph, const struct rf_node_row *node, struct rf_op_call *call) {
    for (int i = 0; i < call->count; i++) {
        if (node->tensors[i] == RF_NO_INDEX) continue;
        const struct rf_tensor_row *root = &graph->tensors[graph->tensors[node->tensors[i]].root];
        if (i < node->op->inputs) {
            call->tensors[i].host = (void *)(uintptr_t)root->data; /* it is only read */
            continue;
        }
        uint64_t bytes;
        if (rf_round_up_overflows(root->bytes, 64, &bytes) ||
            !(call->tensors[i].host = aligned_alloc(64, (size_t)bytes))) {
            for (int o = node->op->inputs; o < i; o++) free(call->tensors[o].host);
            return rf_fail(RF_E_NO_MEMORY, "node '%s': the host has no memory left to compute it", node->name);
        }
        memset(call->tensors[i].host, 0, (size_t)bytes);
    }
    node->op->reference(call);
    for (int o = node->op->inputs; o < call->count; o++) {
        struct rf_tensor_row *tensor = &graph->tensors[node->tensors[o]];
        tensor->role = RF_ROLE_CONSTANT;
        tensor->data = tensor->owned_data = call->tensors[o].host;
        tensor->group = node->group;
    }
    return RF_OK;
}

rf_status rf_pass_constant(struct rf_graph *graph, size_t *changes) {
    struct rf_pass_use *uses = rf_pass_uses(graph);
    bool *gone = rf_pass_flags(graph);
    rf_status status = uses && gone ? RF_OK : RF_E_NO_MEMORY;
    for (size_t s = 0; !status && s < graph->node_count; s++) {
        struct rf_op_call call;
        rf_graph_call(graph, &graph->nodes[s], &call);
        if (!foldable(graph, &graph->nodes[s], uses, &call)) continue;
        status = fold(graph, &graph->nodes[s], &call);
        if (status) break;
        gone[s] = true;
        ++*changes;
    }
    if (!status) status = rf_graph_compact(graph, gone);
    free(uses);
    free(gone);
    return status;
}
