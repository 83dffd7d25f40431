/* Checks whether a graph keeps the invariants of graph_impl.h; compiled only with checks at level 2.
 *
 * Visits everything once. Must not allocate with malloc: tests make allocations fail one by one, and those of a
 * check must not be among them. */
#include "graph/graph_impl.h"

static bool tensor_is_valid(const struct rf_graph *graph, uint32_t index, const char **why) {
    const struct rf_tensor_row *tensor = &graph->tensors[index];
    bool view = tensor->view_of != RF_NO_INDEX;
    RF_INVALID_UNLESS(tensor->name && rf_graph_find(graph, tensor->name) == index + 1,
                      "a tensor's name is not in the table of names");
    RF_INVALID_UNLESS(tensor->root < graph->tensor_count, "a tensor's root does not exist");
    const struct rf_tensor_row *root = &graph->tensors[tensor->root];
    RF_INVALID_UNLESS(root->root == tensor->root && root->view_of == RF_NO_INDEX, "a tensor's root is a view");
    RF_INVALID_UNLESS(view || tensor->root == index, "a tensor that is no view has another's storage");
    RF_INVALID_UNLESS(
        !view || (tensor->view_of < graph->tensor_count && graph->tensors[tensor->view_of].root == tensor->root),
        "a view's root is not that of what it is a view of");
    RF_INVALID_UNLESS(tensor->desc.byte_offset <= tensor->bytes && tensor->bytes <= root->bytes,
                      "a tensor's bytes do not lie within its root's");
    RF_INVALID_UNLESS(tensor->role != RF_ROLE_CONSTANT || view || tensor->data, "a constant has no data");
    RF_INVALID_UNLESS(!tensor->owned_data || tensor->data == tensor->owned_data,
                      "a tensor's data is not what the graph owns for it");
    RF_INVALID_UNLESS(!tensor->output || root->output || root->role != RF_ROLE_RESULT,
                      "a view is an output and its root is not");
    /* An unfinished graph may have tensors that nobody makes yet. */
    bool made = tensor->producer != RF_NO_INDEX;
    RF_INVALID_UNLESS(!made || (!view && tensor->role == RF_ROLE_RESULT),
                      "a view, an input, a constant or a state has a producer");
    RF_INVALID_UNLESS(made || view || tensor->role != RF_ROLE_RESULT || !graph->finished, "no node makes a result");
    if (!made) return true;
    RF_INVALID_UNLESS(tensor->producer < graph->node_count, "a tensor's producer does not exist");
    const struct rf_node_row *node = &graph->nodes[tensor->producer];
    bool among = false;
    for (int o = 0; o < node->op->outputs; o++) among |= node->tensors[node->op->inputs + o] == index;
    RF_INVALID_UNLESS(among, "a tensor is not among the outputs of its producer");
    return true;
}

/* Checks an output o that takes the storage of an input. */
static bool in_place_is_valid(const struct rf_graph *graph, const struct rf_node_row *node, int o, const char **why) {
    int input = node->in_place[o];
    if (input < 0) return true;
    RF_INVALID_UNLESS(input < node->op->inputs && node->tensors[input] != RF_NO_INDEX &&
                          (node->op->in_place >> input & 1),
                      "an output takes the storage of an input that the op does not allow");
    const struct rf_tensor_row *in = &graph->tensors[node->tensors[input]];
    const struct rf_tensor_row *out = &graph->tensors[node->tensors[node->op->inputs + o]];
    RF_INVALID_UNLESS(graph->tensors[in->root].role == RF_ROLE_RESULT && !graph->tensors[in->root].output,
                      "an output takes the storage of what is kept or wanted after a run");
    RF_INVALID_UNLESS(in->bytes == out->bytes, "an output takes a storage of another size");
    return true;
}

static bool node_is_valid(const struct rf_graph *graph, uint32_t index, const char **why) {
    const struct rf_node_row *node = &graph->nodes[index];
    int inputs = node->op->inputs, count = inputs + node->op->outputs;
    for (int i = 0; i < count; i++) {
        if (node->tensors[i] == RF_NO_INDEX) {
            RF_INVALID_UNLESS(i < inputs && (node->op->optional >> i & 1), "a node lacks a tensor that its op needs");
            continue;
        }
        RF_INVALID_UNLESS(node->tensors[i] < graph->tensor_count, "a node has a tensor that does not exist");
        const struct rf_tensor_row *tensor = &graph->tensors[node->tensors[i]];
        const struct rf_tensor_row *root = &graph->tensors[tensor->root];
        if (i >= inputs) {
            RF_INVALID_UNLESS(tensor->producer == index, "a node's output has another producer");
            if (!in_place_is_valid(graph, node, i - inputs, why)) return false;
            continue;
        }
        RF_INVALID_UNLESS(root->producer == RF_NO_INDEX || !graph->finished || root->producer < index,
                          "a node stands before one that makes what it reads");
        bool updates = node->op->updates >> i & 1;
        RF_INVALID_UNLESS(!updates || (root->updated && root->role != RF_ROLE_CONSTANT),
                          "a node updates a constant, or what is not marked as updated");
    }
    struct rf_op_call call;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_graph_call(graph, node, &call);
    bool passes = rf_op_check(&call) == RF_OK;
    rf_error_restore(&saved);
    RF_INVALID_UNLESS(passes, "a node does not pass rf_op_check");
    return true;
}

bool rf_graph_is_valid(const struct rf_graph *graph, const char **why) {
    size_t named = 0;
    uint64_t bytes = 0;
    RF_INVALID_UNLESS(graph->tensor_count <= graph->tensor_capacity && graph->node_count <= graph->node_capacity,
                      "a table holds more than it has room for");
    RF_INVALID_UNLESS(!(graph->name_slots & (graph->name_slots - 1)) && graph->name_slots >= 2 * graph->tensor_count,
                      "the table of names is more than half full, or its size no power of two");
    for (size_t i = 0; i < graph->node_count; i++)
        RF_INVALID_UNLESS(graph->nodes[i].name && graph->nodes[i].op, "a node has no name or no op");
    for (size_t i = 0; i < graph->name_slots; i++) {
        named += graph->names[i] != 0;
        RF_INVALID_UNLESS(graph->names[i] <= graph->tensor_count,
                          "the table of names has a tensor that does not exist");
    }
    RF_INVALID_UNLESS(named == graph->tensor_count, "the table of names has not each tensor once");
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        if (!tensor_is_valid(graph, i, why)) return false;
        if (graph->tensors[i].view_of == RF_NO_INDEX) bytes += graph->tensors[i].bytes;
    }
    RF_INVALID_UNLESS(graph->bytes == bytes, "bytes is not the sum of all storage");
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (!node_is_valid(graph, i, why)) return false;
    return true;
}
