/* Making a plan: first what follows from the graph alone (which nodes use which storage), then placement, order and
 * memory.
 *
 * The order of nodes may differ from the graph's, but never violates a dependency: a node comes after the nodes
 * that wrote what it reads, and a node that writes comes after all nodes that read the previous contents. */
#include "graph/plan.h"

#include <stdlib.h>

static rf_status read_graph(struct rf_plan *plan);

rf_status rf_plan_create(const struct rf_plan_params *params, struct rf_plan **out) {
    const struct rf_graph *graph = params->graph;
    size_t nodes = graph->node_count, tensors = graph->tensor_count, places = (size_t)params->place_count;
    struct rf_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", graph->name);
    plan->graph = graph;
    plan->place_count = params->place_count;
    plan->bind = params->bind;
    plan->optimized = params->optimized;
    plan->user = params->user;
    plan->guard_bytes = params->guard_bytes;
    memcpy(plan->places, params->places, places * sizeof *params->places);
    plan->use_start = calloc(tensors + 1, sizeof *plan->use_start);
    plan->root_output = calloc(tensors + 1, 1);
    plan->updated = calloc(tensors + 1, 1);
    plan->maker = calloc(tensors + 1, sizeof *plan->maker);
    plan->node_bytes = calloc(nodes + 1, sizeof *plan->node_bytes);
    plan->node_flops = calloc(nodes + 1, sizeof *plan->node_flops);
    plan->node_place = calloc(nodes + 1, sizeof *plan->node_place);
    plan->node_why = calloc(nodes + 1, sizeof *plan->node_why);
    plan->order = calloc(nodes + 1, sizeof *plan->order);
    plan->position = calloc(nodes + 1, sizeof *plan->position);
    plan->node_workspace = calloc(nodes + 1, sizeof *plan->node_workspace);
    plan->workspace_at = calloc(nodes + 1, sizeof *plan->workspace_at);
    plan->homes = calloc(tensors * places + 1, sizeof *plan->homes);
    rf_status status = RF_OK;
    if (!plan->use_start || !plan->root_output || !plan->updated || !plan->maker || !plan->node_bytes ||
        !plan->node_flops || !plan->node_place || !plan->node_why || !plan->order || !plan->position ||
        !plan->node_workspace || !plan->workspace_at || !plan->homes)
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", graph->name);
    if (!status) status = read_graph(plan);
    if (!status) status = rf_plan_place_nodes(plan, params);
    if (status) {
        rf_plan_destroy(&plan);
    } else {
        rf_assert_valid(rf_plan_is_valid, plan);
        *out = plan;
    }
    return status;
}

uint64_t rf_plan_host_bytes(const struct rf_plan *plan) {
    size_t nodes = plan->graph->node_count, tensors = plan->graph->tensor_count;
    uint64_t node = sizeof *plan->node_bytes + sizeof *plan->node_flops + sizeof *plan->node_place +
                    sizeof *plan->node_why + sizeof *plan->order + sizeof *plan->position +
                    sizeof *plan->node_workspace + sizeof *plan->workspace_at;
    uint64_t tensor = sizeof *plan->use_start + sizeof *plan->root_output + sizeof *plan->updated +
                      sizeof *plan->maker + (size_t)plan->place_count * sizeof *plan->homes;
    return sizeof *plan + nodes * node + tensors * tensor + plan->use_start[tensors] * sizeof *plan->uses +
           plan->copy_count * sizeof *plan->copies;
}

void rf_plan_destroy(struct rf_plan **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_plan *plan = *pointer;
    free(plan->use_start);
    free(plan->uses);
    free(plan->root_output);
    free(plan->updated);
    free(plan->maker);
    free(plan->node_bytes);
    free(plan->node_flops);
    free(plan->node_place);
    free(plan->node_why);
    free(plan->order);
    free(plan->position);
    free(plan->node_workspace);
    free(plan->workspace_at);
    free(plan->homes);
    free(plan->copies);
    free(plan);
    *pointer = NULL;
}

/* Whether a node writes its tensor i: an output, an input it updates, or an input of which an output takes the
 * storage. */
static bool writes(const struct rf_node_row *node, int i) {
    const struct rf_op *op = node->op;
    if (i >= op->inputs || (op->updates >> i & 1)) return true;
    for (int o = 0; o < op->outputs; o++)
        if (node->in_place[o] == i) return true;
    return false;
}

/* Calls note once for each root that a node uses. */
static void visit_roots(const struct rf_plan *plan, uint32_t index,
                        void (*note)(void *user, uint32_t root, struct rf_plan_use use), void *user) {
    const struct rf_node_row *node = &plan->graph->nodes[index];
    int count = node->op->inputs + node->op->outputs;
    uint32_t roots[RF_OP_TENSORS_MAX];
    for (int i = 0; i < count; i++) {
        roots[i] = RF_NO_INDEX;
        if (node->tensors[i] == RF_NO_INDEX) continue;
        uint32_t root = plan->graph->tensors[node->tensors[i]].root;
        bool seen = false, write = writes(node, i);
        for (int k = 0; k < i; k++) seen |= roots[k] == root;
        if (seen) continue;
        roots[i] = root;
        for (int k = i + 1; k < count; k++)
            if (node->tensors[k] != RF_NO_INDEX && plan->graph->tensors[node->tensors[k]].root == root)
                write |= writes(node, k);
        note(user, root, (struct rf_plan_use){index, write});
    }
}

static void count_use(void *user, uint32_t root, struct rf_plan_use use) {
    struct rf_plan *plan = user;
    (void)use;
    plan->use_start[root + 1]++;
}
static void add_use(void *user, uint32_t root, struct rf_plan_use use) {
    struct rf_plan *plan = user;
    plan->uses[plan->use_start[root]++] = use; /* shifted back afterwards */
}

/* Whether the node changes contents that existed before: false if it makes them or only takes the storage of a
 * tensor that is no longer used. */
static bool changes(const struct rf_plan *plan, uint32_t index, uint32_t root) {
    const struct rf_node_row *node = &plan->graph->nodes[index];
    for (int i = 0; i < node->op->inputs; i++)
        if (node->tensors[i] != RF_NO_INDEX && (node->op->updates >> i & 1) &&
            plan->graph->tensors[node->tensors[i]].root == root)
            return true;
    return false;
}

static rf_status read_graph(struct rf_plan *plan) {
    const struct rf_graph *graph = plan->graph;
    size_t tensors = graph->tensor_count;
    for (uint32_t s = 0; s < graph->node_count; s++) visit_roots(plan, s, count_use, plan);
    for (size_t v = 0; v < tensors; v++) plan->use_start[v + 1] += plan->use_start[v];
    size_t total = plan->use_start[tensors];
    plan->uses = calloc(total + 1, sizeof *plan->uses);
    if (!plan->uses) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", graph->name);
    for (uint32_t s = 0; s < graph->node_count; s++) visit_roots(plan, s, add_use, plan);
    memmove(plan->use_start + 1, plan->use_start, tensors * sizeof *plan->use_start);
    plan->use_start[0] = 0;
    for (uint32_t v = 0; v < tensors; v++) {
        if (graph->tensors[v].output) plan->root_output[graph->tensors[v].root] = 1;
        plan->maker[v] = RF_NO_INDEX;
        size_t makers = 0;
        for (size_t u = plan->use_start[v]; u < plan->use_start[v + 1]; u++) {
            uint32_t node = plan->uses[u].node;
            if (!plan->uses[u].writes) continue;
            if (changes(plan, node, v)) plan->updated[v] = 1;
            if (plan->maker[v] == RF_NO_INDEX) plan->maker[v] = node;
            const struct rf_node_row *row = &graph->nodes[node];
            for (int o = 0; o < row->op->outputs; o++) {
                uint32_t made = row->tensors[row->op->inputs + o];
                if (made != RF_NO_INDEX && graph->tensors[made].root == v) makers++;
            }
        }
        if (makers > 1) plan->updated[v] = 1;
    }
    for (uint32_t s = 0; s < graph->node_count; s++) {
        struct rf_op_call call;
        rf_graph_call(graph, &graph->nodes[s], &call);
        if (call.op->cost) call.op->cost(&call, &plan->node_bytes[s], &plan->node_flops[s]);
    }
    return RF_OK;
}

/* ---- the order ---- */

/* How soon a node should be submitted: smaller is sooner. */
static uint32_t urgency(const struct rf_plan *plan, uint32_t node) {
    int place = plan->node_place[node];
    const struct rf_node_row *row = &plan->graph->nodes[node];
    if (plan->places[place].cpu) return 2;
    for (int i = 0; i < row->op->inputs; i++) {
        if (row->tensors[i] == RF_NO_INDEX) continue;
        uint32_t maker = plan->maker[plan->graph->tensors[row->tensors[i]].root];
        if (maker != RF_NO_INDEX && plan->node_place[maker] != place) return 1;
    }
    return 0;
}

struct heap {
    uint64_t *keys; /* urgency, then node */
    size_t count;
};

static void heap_push(struct heap *heap, uint64_t key) {
    size_t i = heap->count++;
    for (; i && heap->keys[(i - 1) / 2] > key; i = (i - 1) / 2) heap->keys[i] = heap->keys[(i - 1) / 2];
    heap->keys[i] = key;
}

static uint64_t heap_pop(struct heap *heap) {
    uint64_t top = heap->keys[0], key = heap->keys[--heap->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap->count; i = child) {
        if (child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child]) child++;
        if (heap->keys[child] >= key) break;
        heap->keys[i] = heap->keys[child];
    }
    heap->keys[i] = key;
    return top;
}

/* Edges from node to node; they are counted first (while 'to' is NULL), then filled in. */
struct edges {
    size_t *start;
    uint32_t *to;
};

static void add_edge(struct edges *edges, uint32_t from, uint32_t to) {
    if (edges->to)
        edges->to[edges->start[from]++] = to;
    else
        edges->start[from + 1]++;
}

static void add_edges(const struct rf_plan *plan, struct edges *edges) {
    for (size_t v = 0; v < plan->graph->tensor_count; v++) {
        size_t readers = plan->use_start[v];
        uint32_t writer = RF_NO_INDEX;
        for (size_t u = plan->use_start[v]; u < plan->use_start[v + 1]; u++) {
            if (writer != RF_NO_INDEX) add_edge(edges, writer, plan->uses[u].node);
            if (!plan->uses[u].writes) continue;
            for (; readers < u; readers++) add_edge(edges, plan->uses[readers].node, plan->uses[u].node);
            readers = u + 1;
            writer = plan->uses[u].node;
        }
    }
}

rf_status rf_plan_order(struct rf_plan *plan, bool eager) {
    size_t count = plan->graph->node_count, done = 0;
    bool several = false;
    for (size_t s = 1; s < count; s++) several |= plan->node_place[s] != plan->node_place[0];
    if (!eager || !several) {
        for (uint32_t s = 0; s < count; s++) plan->order[s] = plan->position[s] = s;
        return RF_OK;
    }
    struct edges edges = {.start = calloc(count + 1, sizeof *edges.start)};
    struct heap heap = {.keys = calloc(count + 1, sizeof *heap.keys)};
    uint32_t *pending = calloc(count + 1, sizeof *pending);
    rf_status status = RF_OK;
    if (edges.start && heap.keys && pending) {
        add_edges(plan, &edges);
        for (size_t s = 0; s < count; s++) edges.start[s + 1] += edges.start[s];
        edges.to = calloc(edges.start[count] + 1, sizeof *edges.to);
    }
    if (edges.to) {
        add_edges(plan, &edges);
        memmove(edges.start + 1, edges.start, count * sizeof *edges.start);
        edges.start[0] = 0;
        for (size_t e = 0; e < edges.start[count]; e++) pending[edges.to[e]]++;
        for (uint32_t s = 0; s < count; s++)
            if (!pending[s]) heap_push(&heap, (uint64_t)urgency(plan, s) << 32 | s);
        while (heap.count) {
            uint32_t node = (uint32_t)heap_pop(&heap);
            plan->position[node] = (uint32_t)done;
            plan->order[done++] = node;
            for (size_t e = edges.start[node]; e < edges.start[node + 1]; e++)
                if (!--pending[edges.to[e]])
                    heap_push(&heap, (uint64_t)urgency(plan, edges.to[e]) << 32 | edges.to[e]);
        }
        if (done < count) status = rf_fail(RF_E_INVALID, "graph '%s': its nodes have no order", plan->graph->name);
    } else {
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", plan->graph->name);
    }
    free(edges.start);
    free(edges.to);
    free(heap.keys);
    free(pending);
    return status;
}
