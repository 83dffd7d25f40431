/* Finishing a graph: the order of its nodes, and the checks that need the whole graph.
 *
 * Order: a node waits for the nodes that make what it reads. Nothing moves across a change in place: a node that
 * updates storage waits for all nodes that use that storage and were added before it, and those added after it wait
 * for it. Nodes keep the order in which they were added wherever they can, so a graph that was built in order is left
 * as it is.
 * Must not: recurse (a chain may be a million nodes long). */
#include "graph/graph_impl.h"

#include <stdlib.h>

#include "graph/executor.h"

/* "to waits for from" */
struct edge {
    uint32_t from, to;
};
struct edges {
    struct edge *list;
    size_t count, capacity;
};

static bool add_edge(struct edges *edges, uint32_t from, uint32_t to) {
    if (from == to) return true; /* the node uses the same storage twice */
    if (edges->count == edges->capacity) {
        size_t capacity = edges->capacity ? 2 * edges->capacity : 256;
        if (capacity > SIZE_MAX / sizeof *edges->list) return false;
        struct edge *grown = realloc(edges->list, capacity * sizeof *grown);
        if (!grown) return false;
        edges->list = grown;
        edges->capacity = capacity;
    }
    edges->list[edges->count++] = (struct edge){from, to};
    return true;
}

/* What is known about a storage while the nodes are visited in the order they were added. */
struct storage {
    uint32_t updater; /* the last node that updated it, or RF_NO_INDEX */
    uint32_t reader;  /* the last link in the chain of reads since then, or RF_NO_INDEX */
};
struct use {
    uint32_t node, earlier; /* a link of that chain */
};

static size_t count_inputs(const struct rf_graph *graph) {
    size_t count = 0;
    for (size_t i = 0; i < graph->node_count; i++) count += (size_t)graph->nodes[i].op->inputs;
    return count;
}

/* Each input has at most three edges; their list may be twice as long as it needs to be. The tables of a pass are for
 * each tensor a use, a flag and an index, for each node two flags and up to four slots of a hash table. */
uint64_t rf_graph_work_bytes(const struct rf_graph *graph) {
    uint64_t nodes = graph->node_count + 2, tensors = graph->tensor_count + 1, inputs = count_inputs(graph) + 1;
    uint64_t node = sizeof(struct rf_node_row) + 2 * sizeof(size_t) + 2 * sizeof(uint32_t) + 1,
             input = sizeof(struct use) + 3 * (2 * sizeof(struct edge) + sizeof(uint32_t)),
             pass = 64 * sizeof(uint32_t) + nodes * (2 + 4 * sizeof(uint32_t)) + tensors * 32;
    return RF_MAX(nodes * node + tensors * sizeof(struct storage) + inputs * input + 256 * sizeof(struct edge), pass);
}

static bool collect_edges(const struct rf_graph *graph, struct edges *edges) {
    struct storage *storages = malloc((graph->tensor_count + 1) * sizeof *storages);
    struct use *uses = malloc((count_inputs(graph) + 1) * sizeof *uses);
    bool made = storages && uses;
    uint32_t use_count = 0;
    for (size_t i = 0; made && i < graph->tensor_count; i++) storages[i] = (struct storage){RF_NO_INDEX, RF_NO_INDEX};
    for (uint32_t s = 0; made && s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        for (int i = 0; made && i < node->op->inputs; i++) {
            if (node->tensors[i] == RF_NO_INDEX) continue;
            uint32_t root = graph->tensors[node->tensors[i]].root;
            struct storage *storage = &storages[root];
            if (graph->tensors[root].producer != RF_NO_INDEX)
                made = add_edge(edges, graph->tensors[root].producer, s);
            if (made && storage->updater != RF_NO_INDEX) made = add_edge(edges, storage->updater, s);
            if (node->op->updates >> i & 1) {
                for (uint32_t u = storage->reader; made && u != RF_NO_INDEX; u = uses[u].earlier)
                    made = add_edge(edges, uses[u].node, s);
                *storage = (struct storage){s, RF_NO_INDEX};
            } else {
                uses[use_count] = (struct use){s, storage->reader};
                storage->reader = use_count++;
            }
        }
    }
    free(storages);
    free(uses);
    return made;
}

static rf_status cycle_at(const struct rf_graph *graph, uint32_t a, uint32_t b) {
    return rf_fail(RF_E_INVALID, "graph '%s': node '%s' is in a cycle: it needs node '%s', which needs it",
                   graph->name, graph->nodes[a].name, graph->nodes[b].name);
}

/* needs[first[s]] to needs[first[s + 1] - 1] are the nodes that node s waits for. Fills order depth first,
 * visiting the nodes as they were added: first the nodes that a node waits for, then the node. */
static rf_status walk(const struct rf_graph *graph, const size_t *first, const uint32_t *needs, uint32_t *order,
                      uint32_t *stack, size_t *at, unsigned char *state) {
    size_t ordered = 0;
    for (uint32_t s = 0; s < graph->node_count; s++) {
        size_t depth = 0;
        if (state[s]) continue;
        stack[depth++] = s;
        state[s] = 1;
        at[s] = first[s];
        while (depth) {
            uint32_t top = stack[depth - 1];
            if (at[top] == first[top + 1]) {
                order[ordered++] = top;
                state[top] = 2;
                depth--;
                continue;
            }
            uint32_t need = needs[at[top]++];
            if (state[need] == 1) return cycle_at(graph, top, need);
            if (state[need]) continue;
            state[need] = 1;
            at[need] = first[need];
            stack[depth++] = need;
        }
    }
    return RF_OK;
}

static void apply(struct rf_graph *graph, const uint32_t *order, struct rf_node_row *nodes) {
    memcpy(nodes, graph->nodes, graph->node_count * sizeof *nodes);
    for (uint32_t s = 0; s < graph->node_count; s++) {
        graph->nodes[s] = nodes[order[s]];
        const struct rf_node_row *node = &graph->nodes[s];
        for (int o = node->op->inputs; o < node->op->inputs + node->op->outputs; o++)
            graph->tensors[node->tensors[o]].producer = s;
    }
}

struct ordered {
    const struct edges *edges;
    const uint32_t *order;
    uint32_t *position; /* [count] scratch memory for the check */
    size_t count;
};
#if RF_CHECKS >= 2
/* Each node is in the order once, after all nodes it waits for: invariants 1 and 5. */
static bool order_is_valid(const struct ordered *ordered, const char **why) {
    for (size_t i = 0; i < ordered->count; i++) ordered->position[i] = RF_NO_INDEX;
    for (uint32_t i = 0; i < ordered->count; i++) {
        RF_INVALID_UNLESS(ordered->order[i] < ordered->count && ordered->position[ordered->order[i]] == RF_NO_INDEX,
                          "a node is in the order twice, another not at all");
        ordered->position[ordered->order[i]] = i;
    }
    for (size_t i = 0; i < ordered->edges->count; i++)
        RF_INVALID_UNLESS(ordered->position[ordered->edges->list[i].from] <
                              ordered->position[ordered->edges->list[i].to],
                          "a node stands before one that it waits for");
    return true;
}
#endif

rf_status rf_graph_order(struct rf_graph *graph) {
    size_t count = graph->node_count;
    struct edges edges = {0};
    size_t *first = calloc(count + 2, sizeof *first), *at = calloc(count + 1, sizeof *at);
    uint32_t *order = calloc(count + 1, sizeof *order), *stack = calloc(count + 1, sizeof *stack), *needs = NULL;
    unsigned char *state = calloc(count + 1, 1);
    struct rf_node_row *nodes = malloc((count + 1) * sizeof *nodes);
    rf_status status = RF_OK;
    if (!first || !at || !order || !stack || !state || !nodes || !collect_edges(graph, &edges) ||
        !(needs = malloc((edges.count + 1) * sizeof *needs))) {
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to order it", graph->name);
        goto done;
    }
    /* Sorts the edges by 'to', in the order they were added. While they are filled in, first[t + 1] is where the
     * next edge of t goes; in the end it is where the edges of t end. */
    for (size_t i = 0; i < edges.count; i++) first[edges.list[i].to + 2]++;
    for (size_t i = 1; i < count + 2; i++) first[i] += first[i - 1];
    for (size_t i = 0; i < edges.count; i++) needs[first[edges.list[i].to + 1]++] = edges.list[i].from;
    status = walk(graph, first, needs, order, stack, at, state);
    struct ordered ordered = {&edges, order, stack, count};
    if (!status) rf_assert_valid(order_is_valid, &ordered);
    if (!status) apply(graph, order, nodes);
done:
    free(edges.list);
    free(first);
    free(at);
    free(order);
    free(stack);
    free(needs);
    free(state);
    free(nodes);
    return status;
}

static rf_status check_producers(const struct rf_graph *graph) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        if (tensor->role == RF_ROLE_RESULT && tensor->view_of == RF_NO_INDEX && tensor->producer == RF_NO_INDEX)
            return rf_fail(RF_E_INVALID, "graph '%s': no node makes tensor '%s'%s", graph->name, tensor->name,
                           tensor->output ? ", which is an output" : "");
    }
    return RF_OK;
}

/* A tensor becomes an output if nothing reads it, or if nothing reads it after its last change in place. */
static rf_status mark_outputs(struct rf_graph *graph) {
    bool *read = calloc(graph->tensor_count + 1, sizeof *read);
    if (!read) return rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to finish it", graph->name);
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        for (int updates = 0; updates < 2; updates++)
            for (int i = 0; i < node->op->inputs; i++)
                if (node->tensors[i] != RF_NO_INDEX && (int)(node->op->updates >> i & 1) == updates)
                    read[graph->tensors[node->tensors[i]].root] = !updates;
    }
    for (size_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i].role == RF_ROLE_RESULT && graph->tensors[i].view_of == RF_NO_INDEX && !read[i])
            graph->tensors[i].output = true;
    free(read);
    return RF_OK;
}

rf_status rf_graph_finish(struct rf_graph *graph) {
    if (!graph) return rf_fail(RF_E_INVALID, "rf_graph_finish: graph is NULL");
    if (graph->finished) return rf_fail(RF_E_INVALID, "graph '%s' is finished already", graph->name);
    if (!graph->node_count && !graph->outputs_known)
        return rf_fail(RF_E_INVALID, "graph '%s' has no node: there is nothing to run", graph->name);
    rf_status status = check_producers(graph);
    if (status) return status;
    uint64_t work = rf_graph_work_bytes(graph), whole = rf_graph_host_bytes(graph);
    /* The tables were charged as they grew; names are charged now. */
    if (whole > graph->account.bytes) status = rf_account_charge(&graph->account, whole - graph->account.bytes);
    if (!status) status = rf_account_charge(&graph->account, work);
    if (status) return rf_fail_within(status, "graph '%s'", graph->name);
    status = rf_graph_order(graph);
    if (!status && !graph->outputs_known) status = mark_outputs(graph);
    rf_account_release(&graph->account, work);
    if (status) return status;
    graph->finished = true;
    rf_assert_valid(rf_graph_is_valid, graph);
    return RF_OK;
}
