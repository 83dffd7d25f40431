/* In place: an output takes the storage of an input that is not used afterwards.
 *
 * The conditions: the op's row allows it (in_place); the input is the whole of a storage and has exactly the
 * descriptor of the output; no later node uses that storage; no other input of the node lies in it, unless the row
 * allows that one too; and neither is a root. The pass only marks the node; the plan gives the two tensors the
 * same offset. */
#include "graph/pass.h"

#include <stdlib.h>

static bool fits(const struct rf_graph *graph, const struct rf_node_row *node, size_t s, int input,
                 const struct rf_pass_use *uses) {
    uint32_t in = node->tensors[input];
    if (!(node->op->in_place >> input & 1) || in == RF_NO_INDEX) return false;
    const struct rf_tensor_row *from = &graph->tensors[in], *to = &graph->tensors[rf_node_out(node, 0)];
    const struct rf_tensor_row *root = &graph->tensors[from->root];
    if (root->role != RF_ROLE_RESULT || root->output || to->output || uses[from->root].reader != s) return false;
    if (from->bytes != root->bytes || from->bytes != to->bytes || !rf_desc_same(&from->desc, &to->desc)) return false;
    for (int i = 0; i < node->op->inputs; i++)
        if (i != input && rf_node_root(graph, node, i) == from->root &&
            (node->tensors[i] != in || !(node->op->in_place >> i & 1)))
            return false;
    return true;
}

rf_status rf_pass_in_place(struct rf_graph *graph, size_t *changes) {
    struct rf_pass_use *uses = rf_pass_uses(graph);
    if (!uses) return RF_E_NO_MEMORY;
    for (size_t s = 0; s < graph->node_count; s++) {
        struct rf_node_row *node = &graph->nodes[s];
        if (!node->op->outputs) continue;
        for (int i = 0; i < node->op->inputs; i++)
            if (fits(graph, node, s, i, uses)) {
                node->in_place[0] = (int8_t)i;
                ++*changes;
                break;
            }
    }
    free(uses);
    return RF_OK;
}
