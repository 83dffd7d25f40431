/* Common subexpressions: a node that does the same as an earlier one is replaced by it.
 *
 * Two nodes are the same if they have the same op, the same attributes and the same bytes of the same storage as
 * inputs, and make tensors of the same descriptor. A node that reads or makes storage which any node changes in
 * place is left alone, because its contents depend on when it is read. */
#include "graph/pass.h"

#include <stdlib.h>

static uint64_t mix(uint64_t hash, uint64_t more) {
    hash = (hash ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}
static uint64_t hash_node(const struct rf_graph *graph, const struct rf_node_row *node) {
    uint64_t hash = (uint64_t)(uintptr_t)node->op, words[sizeof node->attributes / sizeof(uint64_t)];
    memcpy(words, &node->attributes, sizeof words);
    for (size_t i = 0; i < RF_COUNT(words); i++) hash = mix(hash, words[i]);
    for (int i = 0; i < node->op->inputs; i++) {
        uint32_t root = rf_node_root(graph, node, i);
        hash = mix(hash, root);
        if (root != RF_NO_INDEX) hash = mix(hash, graph->tensors[node->tensors[i]].desc.byte_offset);
    }
    return hash;
}

static bool same_node(const struct rf_graph *graph, const struct rf_node_row *a, const struct rf_node_row *b) {
    if (a->op != b->op || memcmp(&a->attributes, &b->attributes, sizeof a->attributes)) return false;
    for (int i = 0; i < rf_node_tensors(a); i++) {
        if ((a->tensors[i] == RF_NO_INDEX) != (b->tensors[i] == RF_NO_INDEX)) return false;
        if (a->tensors[i] == RF_NO_INDEX) continue;
        const struct rf_tensor_row *x = &graph->tensors[a->tensors[i]], *y = &graph->tensors[b->tensors[i]];
        if (!rf_desc_same(&x->desc, &y->desc) || (i < a->op->inputs && x->root != y->root)) return false;
    }
    return true;
}

/* Whether no node changes what this node reads and makes. */
static bool steady(const struct rf_graph *graph, const struct rf_node_row *node, const struct rf_pass_use *uses) {
    if (node->op->updates || !node->op->outputs) return false;
    for (int i = 0; i < rf_node_tensors(node); i++)
        if (node->tensors[i] != RF_NO_INDEX && uses[graph->tensors[node->tensors[i]].root].updated) return false;
    return true;
}
static bool makes_root(const struct rf_graph *graph, const struct rf_node_row *node) {
    for (int o = 0; o < node->op->outputs; o++)
        if (graph->tensors[rf_node_out(node, o)].output) return true;
    return false;
}

/* From node 'from' on, replaces uses of 'old' by 'new'; views of 'old' become views of 'new'. */
static void replace(struct rf_graph *graph, uint32_t old, uint32_t new, size_t from) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        if (graph->tensors[i].root == old && i != old) graph->tensors[i].root = new;
        if (graph->tensors[i].view_of == old) graph->tensors[i].view_of = new;
    }
    for (size_t s = from; s < graph->node_count; s++)
        for (int i = 0; i < graph->nodes[s].op->inputs; i++)
            if (graph->nodes[s].tensors[i] == old) graph->nodes[s].tensors[i] = new;
}

rf_status rf_pass_common(struct rf_graph *graph, size_t *changes) {
    size_t slots = 64;
    while (slots < 2 * graph->node_count) slots *= 2;
    struct rf_pass_use *uses = rf_pass_uses(graph);
    bool *gone = rf_pass_flags(graph);
    uint32_t *table = calloc(slots, sizeof *table); /* node + 1, or 0 in a free slot */
    rf_status status = RF_OK;
    if (!uses || !gone || !table) {
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to optimize it", graph->name);
        goto done;
    }
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        if (!steady(graph, node, uses)) continue;
        size_t slot = (size_t)hash_node(graph, node) & (slots - 1);
        while (table[slot] && !same_node(graph, &graph->nodes[table[slot] - 1], node))
            slot = (slot + 1) & (slots - 1);
        if (!table[slot]) {
            table[slot] = (uint32_t)s + 1;
            continue;
        }
        if (makes_root(graph, node)) continue;
        for (int o = 0; o < node->op->outputs; o++)
            replace(graph, rf_node_out(node, o), rf_node_out(&graph->nodes[table[slot] - 1], o), s + 1);
        gone[s] = true;
        ++*changes;
    }
    status = rf_graph_compact(graph, gone);
done:
    free(uses);
    free(gone);
    free(table);
    return status;
}
