/* A graph as text for people and as a Graphviz file.
 *
 * The text has a line per tensor and per node, in the order of the tables; the same graph gives the same text. A
 * graph that is not finished can be dumped too. Must not: stop half-way unless the reader asks for it. */
#include "graph/graph_impl.h"

#include <stdio.h>

static const char *role_name(const struct rf_tensor_row *tensor) {
    static const char *const names[] = {"result", "input", "constant", "state"};
    return tensor->view_of != RF_NO_INDEX ? "view" : names[tensor->role];
}

/* "f32[2,3]", with strides where it is not row-major. */
static void print_shape(struct rf_writer *writer, const struct rf_tensor_desc *desc) {
    rf_writer_print(writer, "%s[", rf_dtype_name(desc->dtype));
    for (int i = 0; i < desc->rank; i++)
        rf_writer_print(writer, "%s%llu", i ? "," : "", (unsigned long long)desc->shape[i]);
    rf_writer_print(writer, "]");
    if (rf_op_contiguous(desc)) return;
    for (int i = 0; i < desc->rank; i++)
        rf_writer_print(writer, "%s%llu", i ? "," : " strides ", (unsigned long long)desc->strides[i]);
}

/* Prints the attributes that are not 0. */
static void print_attributes(struct rf_writer *writer, const struct rf_node_row *node) {
    struct rf_op_attributes attributes = node->attributes;
    for (const struct rf_op_attribute *row = node->op->attributes; row && row->name; row++) {
        double f = row->integer ? 0 : *rf_attribute_f(row, &attributes);
        int64_t i = row->integer ? *rf_attribute_i(row, &attributes) : 0;
        if (i) rf_writer_print(writer, " %s=%lld", row->name, (long long)i);
        if (f != 0) rf_writer_print(writer, " %s=%.9g", row->name, f);
    }
}

static const char *name_of(const struct rf_graph *graph, uint32_t index) {
    return index == RF_NO_INDEX ? "-" : graph->tensors[index].name;
}

static void dump_text(const struct rf_graph *graph, struct rf_writer *writer) {
    rf_writer_print(writer, "graph '%s': %zu nodes, %zu tensors, %llu bytes%s\n", graph->name, graph->node_count,
                    graph->tensor_count, (unsigned long long)graph->bytes, graph->finished ? "" : ", not finished");
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        rf_writer_print(writer, "  tensor %zu '%s': %s ", i + 1, tensor->name, role_name(tensor));
        print_shape(writer, &tensor->desc);
        if (tensor->view_of != RF_NO_INDEX)
            rf_writer_print(writer, " of '%s' at byte %llu", graph->tensors[tensor->root].name,
                            (unsigned long long)tensor->desc.byte_offset);
        if (tensor->group) rf_writer_print(writer, ", group %d", tensor->group);
        rf_writer_print(writer, "%s\n", tensor->output ? ", output" : "");
    }
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        rf_writer_print(writer, "  node %zu '%s': ", s + 1, node->name);
        for (int o = 0; o < node->op->outputs; o++)
            rf_writer_print(writer, "%s'%s'", o ? ", " : "", name_of(graph, node->tensors[node->op->inputs + o]));
        rf_writer_print(writer, "%s%s(", node->op->outputs ? " = " : "", node->op->name);
        for (int i = 0; i < node->op->inputs; i++)
            rf_writer_print(writer, node->tensors[i] == RF_NO_INDEX ? "%s%s" : "%s'%s'", i ? ", " : "",
                            name_of(graph, node->tensors[i]));
        rf_writer_print(writer, ")");
        print_attributes(writer, node);
        for (int i = 0; i < node->op->inputs; i++)
            if ((node->op->updates >> i & 1) && node->tensors[i] != RF_NO_INDEX)
                rf_writer_print(writer, ", changes '%s'", name_of(graph, node->tensors[i]));
        for (int o = 0; o < node->op->outputs; o++)
            if (node->in_place[o] >= 0)
                rf_writer_print(writer, ", '%s' in place of '%s'",
                                name_of(graph, node->tensors[node->op->inputs + o]),
                                name_of(graph, node->tensors[node->in_place[o]]));
        if (node->group) rf_writer_print(writer, ", group %d", node->group);
        rf_writer_print(writer, "\n");
    }
}

/* Escapes text for a quoted string of Graphviz; names have no control characters. */
static void print_quoted(struct rf_writer *writer, const char *text) {
    char quoted[2 * RF_GRAPH_NAME_MAX + 1];
    size_t used = 0;
    for (; *text && used + 2 < sizeof quoted; text++) {
        if (*text == '"' || *text == '\\') quoted[used++] = '\\';
        quoted[used++] = *text;
    }
    quoted[used] = 0;
    rf_writer_print(writer, "%s", quoted);
}

/* Tensors that are kept are boxes and nodes are ellipses. An edge is a tensor and has its name. */
static void dump_dot(const struct rf_graph *graph, struct rf_writer *writer) {
    rf_writer_print(writer, "digraph \"");
    print_quoted(writer, graph->name);
    rf_writer_print(writer, "\" {\n  rankdir=TB;\n  node [fontsize=10];\n  edge [fontsize=9];\n");
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        if (tensor->role == RF_ROLE_RESULT && !tensor->output) continue;
        rf_writer_print(writer, "  t%zu [shape=box,style=%s,label=\"", i + 1,
                        tensor->role == RF_ROLE_CONSTANT ? "dashed"
                        : tensor->role == RF_ROLE_RESULT ? "bold"
                                                         : "solid");
        print_quoted(writer, tensor->name);
        rf_writer_print(writer, "\\n");
        print_shape(writer, &tensor->desc);
        rf_writer_print(writer, "\"];\n");
    }
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        rf_writer_print(writer, "  n%zu [label=\"", s + 1);
        print_quoted(writer, node->name);
        rf_writer_print(writer, "\\n%s\"];\n", node->op->name);
        for (int i = 0; i < node->op->inputs; i++) {
            if (node->tensors[i] == RF_NO_INDEX) continue;
            const struct rf_tensor_row *tensor = &graph->tensors[node->tensors[i]],
                                       *root = &graph->tensors[tensor->root];
            if (root->producer != RF_NO_INDEX)
                rf_writer_print(writer, "  n%u -> n%zu [label=\"", root->producer + 1, s + 1);
            else
                rf_writer_print(writer, "  t%u -> n%zu [label=\"", tensor->root + 1, s + 1);
            print_quoted(writer, tensor->name);
            bool changed = node->op->updates >> i & 1;
            rf_writer_print(writer, "\"%s];\n", changed ? ",dir=both" : "");
        }
        for (int o = node->op->inputs; o < node->op->inputs + node->op->outputs; o++)
            if (graph->tensors[node->tensors[o]].output)
                rf_writer_print(writer, "  n%zu -> t%u;\n", s + 1, node->tensors[o] + 1);
    }
    /* Views that are outputs are drawn as hanging from their storage. */
    for (size_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i].output && graph->tensors[i].view_of != RF_NO_INDEX)
            rf_writer_print(writer, "  t%u -> t%zu [style=dotted];\n", graph->tensors[i].root + 1, i + 1);
    rf_writer_print(writer, "}\n");
}

rf_status rf_graph_dump(const struct rf_graph *graph, enum rf_graph_format format,
                        bool (*write)(void *user, const char *text, size_t length), void *user) {
    if (!graph || !write) return rf_fail(RF_E_INVALID, "rf_graph_dump: graph or write is NULL");
    struct rf_writer writer = {.write = write, .user = user};
    switch (format) {
    case RF_GRAPH_TEXT: dump_text(graph, &writer); return RF_OK;
    case RF_GRAPH_DOT: dump_dot(graph, &writer); return RF_OK;
    }
    return rf_fail(RF_E_INVALID, "rf_graph_dump: %d is no format", (int)format);
}
