/* Dead nodes: a node stays if it makes a wanted tensor, changes a kept or wanted tensor in place, or makes a
 * tensor that a node which stays uses. The nodes are visited from the end, so that "wanted" only ever grows. */
#include "graph/pass.h"

#include <stdlib.h>

static bool needed(const struct rf_graph *graph, const struct rf_node_row *node, const bool *wanted) {
    for (int o = 0; o < node->op->outputs; o++)
        if (wanted[rf_node_out(node, o)]) return true;
    for (int i = 0; i < node->op->inputs; i++)
        if ((node->op->updates >> i & 1) && node->tensors[i] != RF_NO_INDEX && wanted[rf_node_root(graph, node, i)])
            return true;
    return false;
}

rf_status rf_pass_dead(struct rf_graph *graph, size_t *changes) {
    bool *gone = rf_pass_flags(graph), *wanted = calloc(graph->tensor_count + 1, sizeof *wanted);
    rf_status status = RF_OK;
    if (!gone || !wanted) {
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to optimize it", graph->name);
        goto done;
    }
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        if (tensor->output || tensor->role == RF_ROLE_INPUT || tensor->role == RF_ROLE_STATE)
            wanted[tensor->root] = true;
    }
    for (size_t s = graph->node_count; s-- > 0;) {
        const struct rf_node_row *node = &graph->nodes[s];
        if (!needed(graph, node, wanted)) {
            gone[s] = true;
            ++*changes;
            continue;
        }
        for (int i = 0; i < node->op->inputs; i++)
            if (node->tensors[i] != RF_NO_INDEX) wanted[rf_node_root(graph, node, i)] = true;
    }
    status = rf_graph_compact(graph, gone);
done:
    free(gone);
    free(wanted);
    return status;
}
