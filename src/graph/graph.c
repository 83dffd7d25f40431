/* Building a graph: tensors and nodes are checked as they are added, so that a refusal names the one at fault.
 *
 * Invariants: see graph_impl.h. Beyond those, while a graph is built:
 *   - a name is in the table of names exactly once
 *   - a node was checked by its op with the descriptors in the table, and descriptors never change
 *   - a failed call leaves the graph as it was (not checked at run time, because that would take a copy for every
 *     call; tests/graph/test_no_memory.c makes each call fail and repeats it)
 * rf_graph_is_valid checks the first two when the graph is cloned, compacted and finished; checking after each
 * addition would make building quadratic.
 * Must not: know about devices or the memory of tensors. graph_order.c decides the order of the nodes. */
#include "graph/graph_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/executor.h"

/* ---- names ---- */

static uint64_t hash_of(const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

/* The slot that holds the name, or the free one where it would go. */
static uint32_t *name_slot(const struct rf_graph *graph, const char *name) {
    size_t mask = graph->name_slots - 1;
    for (size_t i = (size_t)hash_of(name) & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &graph->names[i];
        if (!*slot || !strcmp(graph->tensors[*slot - 1].name, name)) return slot;
    }
}

static rf_status build_names(struct rf_graph *graph, size_t slots) {
    uint32_t *names;
    RF_TRY(rf_account_charge(&graph->account, slots * sizeof *names));
    names = calloc(slots, sizeof *names);
    if (!names) {
        rf_account_release(&graph->account, slots * sizeof *names);
        return rf_fail(RF_E_NO_MEMORY, "no host memory for %zu names", slots);
    }
    free(graph->names);
    rf_account_release(&graph->account, graph->name_slots * sizeof *names);
    graph->names = names;
    graph->name_slots = slots;
    for (size_t i = 0; i < graph->tensor_count; i++) *name_slot(graph, graph->tensors[i].name) = (uint32_t)i + 1;
    return RF_OK;
}

/* A valid name can be printed in a dump as it is, except for its quotes. */
static rf_status check_name(const char *what, const char *name) {
    size_t length = strlen(name);
    if (!length) return rf_fail(RF_E_INVALID, "%s: its name is empty", what);
    if (length > RF_GRAPH_NAME_MAX)
        return rf_fail(RF_E_INVALID, "%s '%.40s...': a name has at most %d bytes, this one has %zu", what, name,
                       RF_GRAPH_NAME_MAX, length);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return rf_fail(RF_E_INVALID, "%s '%s': its name has a control character (%d)", what, name, *c);
    return RF_OK;
}

static rf_status no_memory(const char *what, const char *name) {
    return rf_fail(RF_E_NO_MEMORY, "%s '%s': the host has no memory left for it", what, name);
}

/* Makes room for one more element in a table of the graph. */
static rf_status grow(struct rf_graph *graph, void **table, size_t count, size_t *capacity, size_t element) {
    if (count < *capacity) return RF_OK;
    size_t more = *capacity ? 2 * *capacity : 64;
    if (more >= RF_NO_INDEX || more > SIZE_MAX / element)
        return rf_fail(RF_E_NO_MEMORY, "a graph of more than %zu rows", *capacity);
    RF_TRY(rf_account_resize(&graph->account, table, *capacity * element, more * element, "its table"));
    *capacity = more;
    return RF_OK;
}

/* ---- tensors ---- */

static rf_status check_layout(const struct rf_tensor_desc *desc) {
    uint64_t dense = 1;
    for (int i = desc->rank; i-- > 0; dense *= RF_MAX(desc->shape[i], (uint64_t)1))
        if (desc->shape[i] > 1 && desc->strides[i] != dense)
            return rf_fail(RF_E_INVALID,
                           "dimension %d has a stride of %llu, row-major it is %llu: say "
                           "RF_LAYOUT_STRIDED",
                           i, (unsigned long long)desc->strides[i], (unsigned long long)dense);
    return RF_OK;
}

static rf_status check_roles(const struct rf_graph *graph, const struct rf_graph_tensor *tensor) {
    if ((int)tensor->role < RF_ROLE_RESULT || (int)tensor->role > RF_ROLE_STATE)
        return rf_fail(RF_E_INVALID, "%d is no role", (int)tensor->role);
    if ((int)tensor->layout < RF_LAYOUT_ROW_MAJOR || (int)tensor->layout > RF_LAYOUT_STRIDED)
        return rf_fail(RF_E_INVALID, "%d is no layout", (int)tensor->layout);
    if (tensor->role == RF_ROLE_CONSTANT && !tensor->data) return rf_fail(RF_E_INVALID, "a constant needs its data");
    if (tensor->role != RF_ROLE_CONSTANT && tensor->data)
        return rf_fail(RF_E_INVALID, "data is given, but it is no constant: write inputs and states to the executor");
    if (!tensor->view_of) return RF_OK;
    if (tensor->view_of > graph->tensor_count)
        return rf_fail(RF_E_INVALID, "it is a view of tensor %u, which does not exist", tensor->view_of);
    if (tensor->role != RF_ROLE_RESULT) return rf_fail(RF_E_INVALID, "a view has no role but RF_ROLE_RESULT");
    return RF_OK;
}

/* Checks the descriptor and fills in the row's role, storage, size and group. */
static rf_status describe(const struct rf_graph *graph, const struct rf_graph_tensor *tensor,
                          struct rf_tensor_row *row) {
    rf_status status = check_roles(graph, tensor);
    if (status) return status;
    struct rf_op_tensor checked = {.desc = tensor->desc};
    const struct rf_tensor_row *of = tensor->view_of ? &graph->tensors[tensor->view_of - 1] : NULL;
    if (of && rf_add_overflows(checked.desc.byte_offset, of->desc.byte_offset, &checked.desc.byte_offset))
        return rf_fail(RF_E_INVALID, "its byte offset overflows");
    status = rf_op_check_tensor(&checked, false);
    if (status) return status;
    if (tensor->layout == RF_LAYOUT_ROW_MAJOR) {
        status = check_layout(&checked.desc);
        if (status) return status;
    }
    row->role = tensor->role;
    row->desc = checked.desc;
    row->bytes = checked.bytes;
    row->view_of = of ? tensor->view_of - 1 : RF_NO_INDEX;
    row->root = of ? of->root : (uint32_t)graph->tensor_count;
    row->producer = RF_NO_INDEX;
    row->data = tensor->data;
    row->group = tensor->group;
    if (of && row->bytes > graph->tensors[of->root].bytes)
        return rf_fail(RF_E_INVALID, "it ends at byte %llu of '%s', whose storage has %llu",
                       (unsigned long long)row->bytes, graph->tensors[of->root].name,
                       (unsigned long long)graph->tensors[of->root].bytes);
    return RF_OK;
}

/* A copy of the name; without one "tN", followed by as many '_' as make it unique. */
static char *name_for(const struct rf_graph *graph, const char *given) {
    char text[64];
    if (given) return strdup(given);
    int length = snprintf(text, sizeof text, "t%zu", graph->tensor_count + 1);
    while (rf_graph_find(graph, text) && length < (int)sizeof text - 1) {
        text[length++] = '_';
        text[length] = 0;
    }
    return strdup(text);
}

rf_status rf_graph_add_tensor(struct rf_graph *graph, const struct rf_graph_tensor *tensor, rf_tensor_id *id) {
    struct rf_graph_tensor own;
    if (!graph || !id) return rf_fail(RF_E_INVALID, "rf_graph_add_tensor: graph or id is NULL");
    rf_status status = RF_PARAMS_READ(struct rf_graph_tensor, &own, tensor, "rf_graph_add_tensor");
    if (status) return status;
    tensor = &own;
    const char *shown = tensor->name ? tensor->name : "(no name)";
    if (graph->finished)
        return rf_fail(RF_E_INVALID, "tensor '%s': graph '%s' is finished, nothing can be added", shown, graph->name);
    struct rf_tensor_row row = {0};
    status = tensor->name ? check_name("tensor", tensor->name) : RF_OK;
    if (status) return status;
    if (tensor->name && rf_graph_find(graph, tensor->name))
        return rf_fail(RF_E_INVALID, "tensor '%s': the name is taken", shown);
    status = describe(graph, tensor, &row);
    if (status) return rf_fail_within(status, "tensor '%s'", shown);
    /* Addresses and their differences are at most INT64_MAX. */
    uint64_t sum;
    if (!tensor->view_of && (rf_add_overflows(graph->bytes, row.bytes, &sum) || sum > INT64_MAX))
        return rf_fail(RF_E_INVALID, "tensor '%s': with its %llu bytes the graph is larger than memory can be", shown,
                       (unsigned long long)row.bytes);
    if (2 * (graph->tensor_count + 1) > graph->name_slots) status = build_names(graph, 2 * graph->name_slots);
    if (!status)
        status = grow(graph, (void **)&graph->tensors, graph->tensor_count, &graph->tensor_capacity, sizeof row);
    if (status) return rf_fail_within(status, "tensor '%s'", shown);
    if (!(row.name = name_for(graph, tensor->name))) return no_memory("tensor", shown);
    graph->tensors[graph->tensor_count] = row;
    uint32_t *slot = name_slot(graph, row.name);
    graph->tensor_count++;
    *slot = (uint32_t)graph->tensor_count;
    if (!tensor->view_of) graph->bytes += row.bytes;
    *id = (rf_tensor_id)graph->tensor_count;
    return RF_OK;
}

/* ---- nodes ---- */

bool rf_graph_overlap(const struct rf_graph *graph, uint32_t a, uint32_t b) {
    const struct rf_tensor_row *x = &graph->tensors[a], *y = &graph->tensors[b];
    return x->root == y->root && x->desc.byte_offset < y->bytes && y->desc.byte_offset < x->bytes;
}

/* Fills the indices from the ids. */
static rf_status take_tensors(const struct rf_graph *graph, const struct rf_graph_node *node,
                              struct rf_node_row *row) {
    const struct rf_op *op = row->op;
    if (node->input_count > (size_t)op->inputs)
        return rf_fail(RF_E_INVALID, "%zu inputs are given, %s takes %d", node->input_count, op->name, op->inputs);
    if (node->output_count != (size_t)op->outputs)
        return rf_fail(RF_E_INVALID, "%zu outputs are given, %s makes %d", node->output_count, op->name, op->outputs);
    if ((node->input_count && !node->inputs) || (node->output_count && !node->outputs))
        return rf_fail(RF_E_INVALID, "inputs or outputs is NULL");
    for (int i = 0; i < op->inputs + op->outputs; i++) {
        bool output = i >= op->inputs;
        rf_tensor_id id = output                          ? node->outputs[i - op->inputs]
                          : (size_t)i < node->input_count ? node->inputs[i]
                                                          : 0;
        if (!id && !output && (op->optional >> i & 1)) continue;
        const char *what = output ? "output" : "input";
        int number = output ? i - op->inputs : i;
        if (!id) return rf_fail(RF_E_INVALID, "%s %d is left out, %s needs it", what, number, op->name);
        if (id > graph->tensor_count)
            return rf_fail(RF_E_INVALID, "%s %d is tensor %u, which does not exist", what, number, id);
        row->tensors[i] = id - 1;
    }
    return RF_OK;
}

static rf_status check_outputs(const struct rf_graph *graph, const struct rf_node_row *row) {
    int inputs = row->op->inputs;
    for (int o = inputs; o < inputs + row->op->outputs; o++) {
        const struct rf_tensor_row *out = &graph->tensors[row->tensors[o]];
        if (out->view_of != RF_NO_INDEX)
            return rf_fail(RF_E_INVALID, "output %d, '%s', is a view: it is made when '%s' is", o - inputs, out->name,
                           graph->tensors[out->root].name);
        if (out->role != RF_ROLE_RESULT)
            return rf_fail(RF_E_INVALID, "output %d, '%s', cannot be made by a node: its role is another", o - inputs,
                           out->name);
        if (out->producer != RF_NO_INDEX)
            return rf_fail(RF_E_INVALID, "output %d, '%s', is made by node '%s' already", o - inputs, out->name,
                           graph->nodes[out->producer].name);
        for (int i = 0; i < o; i++)
            if (row->tensors[i] != RF_NO_INDEX && graph->tensors[row->tensors[i]].root == row->tensors[o])
                return rf_fail(RF_E_INVALID, "output %d, '%s', shares its storage with %s %d, '%s'", o - inputs,
                               out->name, i < inputs ? "input" : "output", i < inputs ? i : i - inputs,
                               graph->tensors[row->tensors[i]].name);
    }
    return RF_OK;
}

/* A tensor that the node changes in place must not be constant, and must not overlap anything else the node reads. */
static rf_status check_updates(const struct rf_graph *graph, const struct rf_node_row *node) {
    for (int u = 0; u < node->op->inputs; u++) {
        if (!(node->op->updates >> u & 1) || node->tensors[u] == RF_NO_INDEX) continue;
        const struct rf_tensor_row *updated = &graph->tensors[node->tensors[u]];
        if (graph->tensors[updated->root].role == RF_ROLE_CONSTANT)
            return rf_fail(RF_E_INVALID, "it changes input %d, '%s', which is constant", u, updated->name);
        for (int i = 0; i < node->op->inputs; i++)
            if (i != u && node->tensors[i] != RF_NO_INDEX &&
                rf_graph_overlap(graph, node->tensors[i], node->tensors[u]))
                return rf_fail(RF_E_INVALID, "it changes input %d, '%s', in place, which overlaps input %d, '%s'", u,
                               updated->name, i, graph->tensors[node->tensors[i]].name);
    }
    return RF_OK;
}

void rf_graph_call(const struct rf_graph *graph, const struct rf_node_row *node, struct rf_op_call *call) {
    *call = (struct rf_op_call){
        .op = node->op, .attributes = node->attributes, .count = node->op->inputs + node->op->outputs};
    for (int i = 0; i < call->count; i++) {
        if (node->tensors[i] == RF_NO_INDEX) continue;
        call->tensors[i].desc = graph->tensors[node->tensors[i]].desc;
        call->tensors[i].bytes = graph->tensors[node->tensors[i]].bytes;
    }
}

/* Sets attributes by position first, then by name, so that a name overrides a position. */
static rf_status take_attributes(const struct rf_graph_node *node, struct rf_node_row *row) {
    static const struct rf_op_attribute none[] = {{NULL, 0, false, 0}};
    const struct rf_op_attribute *known = row->op->attributes ? row->op->attributes : none, *found;
    for (found = known; found->name; found++)
        if (found->integer)
            *rf_attribute_i(found, &row->attributes) = node->i[found->position];
        else
            *rf_attribute_f(found, &row->attributes) = node->f[found->position];
    if (node->attribute_count && !node->attributes)
        return rf_fail(RF_E_INVALID, "attributes is NULL, attribute_count is %zu", node->attribute_count);
    for (size_t a = 0; a < node->attribute_count; a++) {
        const struct rf_attribute *given = &node->attributes[a];
        for (found = known; found->name && (!given->name || strcmp(found->name, given->name)); found++) continue;
        if (!found->name)
            return rf_fail(RF_E_INVALID, "op '%s' has no attribute '%s'", row->op->name,
                           given->name ? given->name : "NULL");
        if (found->integer ? given->f != 0 : given->i != 0)
            return rf_fail(RF_E_INVALID, "attribute '%s' of op '%s' is %s: set .%c", found->name, row->op->name,
                           found->integer ? "an integer" : "a number", found->integer ? 'i' : 'f');
        if (found->integer)
            *rf_attribute_i(found, &row->attributes) = given->i;
        else
            *rf_attribute_f(found, &row->attributes) = given->f;
    }
    return RF_OK;
}

static rf_status check_node(const struct rf_graph *graph, const struct rf_graph_node *node, struct rf_node_row *row) {
    rf_status status = take_tensors(graph, node, row);
    if (!status) status = check_outputs(graph, row);
    if (!status) status = check_updates(graph, row);
    if (status) return status;
    struct rf_op_call call;
    rf_graph_call(graph, row, &call);
    return rf_op_check(&call);
}

rf_status rf_graph_add_node(struct rf_graph *graph, const struct rf_graph_node *node, rf_node_id *id) {
    struct rf_graph_node own;
    if (!graph) return rf_fail(RF_E_INVALID, "rf_graph_add_node: graph is NULL");
    rf_status status = RF_PARAMS_READ_SINCE(struct rf_graph_node, attributes, &own, node, "rf_graph_add_node");
    if (status) return status;
    node = &own;
    char generated[64];
    snprintf(generated, sizeof generated, "%.40s_%zu", node->op ? node->op : "node", graph->node_count + 1);
    const char *name = node->name ? node->name : generated;
    status = node->name ? check_name("node", name) : RF_OK;
    if (status) return status;
    if (graph->finished)
        return rf_fail(RF_E_INVALID, "node '%s': graph '%s' is finished, nothing can be added", name, graph->name);
    if (!node->op) return rf_fail(RF_E_INVALID, "node '%s': op is NULL", name);
    struct rf_node_row row = {.op = rf_op_find(node->op), .group = node->group};
    if (!row.op) return rf_fail(RF_E_INVALID, "node '%s': there is no op '%s'", name, node->op);
    status = take_attributes(node, &row);
    if (status) return rf_fail_within(status, "node '%s'", name);
    for (int i = 0; i < RF_OP_TENSORS_MAX; i++) row.tensors[i] = RF_NO_INDEX, row.in_place[i] = -1;
    status = check_node(graph, node, &row);
    if (status) /* no backend runs what the op itself does not support: here it is an invalid argument */
        return rf_fail_within(status == RF_E_UNSUPPORTED ? RF_E_INVALID : status, "node '%s'", name);
    status = grow(graph, (void **)&graph->nodes, graph->node_count, &graph->node_capacity, sizeof row);
    if (status) return rf_fail_within(status, "node '%s'", name);
    if (!(row.name = strdup(name))) return no_memory("node", name);
    for (int o = row.op->inputs; o < row.op->inputs + row.op->outputs; o++)
        graph->tensors[row.tensors[o]].producer = (uint32_t)graph->node_count;
    for (int i = 0; i < row.op->inputs; i++)
        if ((row.op->updates >> i & 1) && row.tensors[i] != RF_NO_INDEX)
            graph->tensors[graph->tensors[row.tensors[i]].root].updated = true;
    graph->nodes[graph->node_count++] = row;
    if (id) *id = (rf_node_id)graph->node_count;
    return RF_OK;
}

rf_status rf_graph_add_output(struct rf_graph *graph, rf_tensor_id id) {
    if (!graph) return rf_fail(RF_E_INVALID, "rf_graph_add_output: graph is NULL");
    if (graph->finished)
        return rf_fail(RF_E_INVALID, "rf_graph_add_output: graph '%s' is finished, nothing can be added",
                       graph->name);
    if (!id || id > graph->tensor_count) return rf_fail(RF_E_INVALID, "output: there is no tensor %u", id);
    struct rf_tensor_row *row = &graph->tensors[id - 1];
    if (row->role != RF_ROLE_RESULT)
        return rf_fail(RF_E_INVALID, "output '%s' is an input, a constant or a state: those are kept anyway",
                       row->name);
    row->output = true;
    /* A caller who wants a view also wants its storage. */
    if (graph->tensors[row->root].role == RF_ROLE_RESULT) graph->tensors[row->root].output = true;
    return RF_OK;
}

/* ---- life ---- */

rf_status rf_graph_create(const char *name, struct rf_graph **out) {
    return rf_graph_create_charged(name, NULL, out);
}

rf_status rf_graph_create_charged(const char *name, const struct rf_account *account, struct rf_graph **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_graph_create: out is NULL");
    if (!name) name = "graph";
    rf_status status = check_name("graph", name);
    if (status) return status;
    struct rf_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return no_memory("graph", name);
    graph->account = rf_account_open(account);
    graph->name = strdup(name);
    status = graph->name ? build_names(graph, 64) : rf_fail(RF_E_NO_MEMORY, "no host memory for its name");
    if (status) {
        rf_graph_destroy(&graph);
        return rf_fail_within(status, "graph '%s'", name);
    }
    *out = graph;
    return RF_OK;
}

/* Bytes that the C library takes for a text. */
static uint64_t text_bytes(const char *text) {
    return RF_MAX((strlen(text) + 1 + sizeof(size_t) + 15) / 16 * 16, (size_t)32);
}

uint64_t rf_graph_host_bytes(const struct rf_graph *graph) {
    uint64_t bytes = sizeof *graph + graph->tensor_capacity * sizeof *graph->tensors +
                     graph->node_capacity * sizeof *graph->nodes + graph->name_slots * sizeof *graph->names;
    for (size_t i = 0; i < graph->tensor_count; i++)
        bytes += text_bytes(graph->tensors[i].name) + (graph->tensors[i].owned_data ? graph->tensors[i].bytes : 0);
    for (size_t i = 0; i < graph->node_count; i++) bytes += text_bytes(graph->nodes[i].name);
    return bytes;
}

void rf_graph_destroy(struct rf_graph **graph) {
    if (!graph || !*graph) return;
    struct rf_graph *g = *graph;
    for (size_t i = 0; i < g->tensor_count; i++) {
        free(g->tensors[i].name);
        free(g->tensors[i].owned_data);
    }
    for (size_t i = 0; i < g->node_count; i++) free(g->nodes[i].name);
    free(g->tensors);
    free(g->nodes);
    free(g->names);
    free(g->name);
    rf_account_close(&g->account);
    free(g);
    *graph = NULL;
}

rf_status rf_graph_clone(const struct rf_graph *graph, struct rf_graph **out) {
    struct rf_graph *clone = NULL;
    rf_status status = rf_graph_create(graph->name, &clone);
    if (status) return status;
    clone->bytes = graph->bytes;
    clone->outputs_known = true;
    clone->tensors = malloc(RF_MAX(graph->tensor_count, (size_t)1) * sizeof *clone->tensors);
    clone->nodes = malloc(RF_MAX(graph->node_count, (size_t)1) * sizeof *clone->nodes);
    bool made = clone->tensors && clone->nodes;
    for (size_t i = 0; made && i < graph->tensor_count; i++) {
        clone->tensors[i] = graph->tensors[i];
        clone->tensors[i].owned_data = NULL;
        clone->tensors[i].origin = (rf_tensor_id)i + 1;
        made = (clone->tensors[i].name = strdup(graph->tensors[i].name)) != NULL;
        clone->tensor_count = clone->tensor_capacity = i + 1;
    }
    for (size_t i = 0; made && i < graph->node_count; i++) {
        clone->nodes[i] = graph->nodes[i];
        made = (clone->nodes[i].name = strdup(graph->nodes[i].name)) != NULL;
        clone->node_count = clone->node_capacity = i + 1;
    }
    if (!made || build_names(clone, graph->name_slots)) {
        rf_graph_destroy(&clone);
        return no_memory("graph", graph->name);
    }
    rf_assert_valid(rf_graph_is_valid, clone);
    *out = clone;
    return RF_OK;
}

/* ---- reading ---- */

const char *rf_graph_name(const struct rf_graph *graph) {
    return graph ? graph->name : "";
}
size_t rf_graph_node_count(const struct rf_graph *graph) {
    return graph ? graph->node_count : 0;
}
size_t rf_graph_tensor_count(const struct rf_graph *graph) {
    return graph ? graph->tensor_count : 0;
}
rf_tensor_id rf_graph_find(const struct rf_graph *graph, const char *tensor_name) {
    return graph && tensor_name ? *name_slot(graph, tensor_name) : 0;
}

/* Removes tensors that nobody uses; map receives the new index of each that is kept. */
static void drop_tensors(struct rf_graph *graph, const bool *used, uint32_t *map) {
    size_t kept = 0;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        struct rf_tensor_row *tensor = &graph->tensors[i];
        if (used[i]) {
            map[i] = (uint32_t)kept;
            graph->tensors[kept++] = *tensor;
            continue;
        }
        if (tensor->view_of == RF_NO_INDEX) graph->bytes -= tensor->bytes;
        free(tensor->name);
        free(tensor->owned_data);
    }
    graph->tensor_count = kept;
    for (size_t i = 0; i < kept; i++) {
        graph->tensors[i].root = map[graph->tensors[i].root];
        if (graph->tensors[i].view_of != RF_NO_INDEX) graph->tensors[i].view_of = map[graph->tensors[i].view_of];
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (int k = 0; k < RF_OP_TENSORS_MAX; k++)
            if (graph->nodes[i].tensors[k] != RF_NO_INDEX)
                graph->nodes[i].tensors[k] = map[graph->nodes[i].tensors[k]];
}

rf_status rf_graph_compact(struct rf_graph *graph, const bool *gone) {
    bool *used = calloc(graph->tensor_count + 1, sizeof *used);
    uint32_t *map = calloc(graph->tensor_count + 1, sizeof *map);
    if (!used || !map) {
        free(used);
        free(map);
        return no_memory("graph", graph->name);
    }
    size_t kept = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        if (gone && gone[i])
            free(graph->nodes[i].name);
        else
            graph->nodes[kept++] = graph->nodes[i];
    }
    graph->node_count = kept;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        graph->tensors[i].producer = RF_NO_INDEX;
        used[i] = graph->tensors[i].output || graph->tensors[i].role == RF_ROLE_INPUT ||
                  graph->tensors[i].role == RF_ROLE_STATE;
    }
    for (size_t i = 0; i < kept; i++) {
        const struct rf_node_row *node = &graph->nodes[i];
        for (int k = 0; k < node->op->inputs + node->op->outputs; k++) {
            if (node->tensors[k] == RF_NO_INDEX) continue;
            used[node->tensors[k]] = true;
            if (k >= node->op->inputs) graph->tensors[node->tensors[k]].producer = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < graph->tensor_count; i++)
        for (uint32_t v = (uint32_t)i; used[i] && graph->tensors[v].view_of != RF_NO_INDEX;)
            used[v = graph->tensors[v].view_of] = true;
    drop_tensors(graph, used, map);
    free(used);
    free(map);
    memset(graph->names, 0, graph->name_slots * sizeof *graph->names);
    for (size_t i = 0; i < graph->tensor_count; i++) *name_slot(graph, graph->tensors[i].name) = (uint32_t)i + 1;
    rf_assert_valid(rf_graph_is_valid, graph);
    return RF_OK;
}
