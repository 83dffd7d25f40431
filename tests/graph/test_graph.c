/* Building a graph: what it accepts, the order that it puts nodes in, what counts as an output, the dumps, and
 * everything that it must refuse, with the name and the reason. */
#include "graph_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rf_status try_tensor(struct rf_graph *graph, const struct rf_graph_tensor *tensor) {
    rf_tensor_id id = 77;
    rf_status status = rf_graph_add_tensor(graph, tensor, &id);
    if (status) RF_ASSERT_UINT(id, 77);
    return status;
}
static struct rf_graph_tensor plain(const char *name, uint64_t size) {
    RF_PARAMS(struct rf_graph_tensor, tensor);
    tensor.name = name;
    tensor.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {size}};
    return tensor;
}
#define EXPECT_REFUSED(call, name, reason)                                                                           \
    do {                                                                                                             \
        RF_ASSERT_STATUS((call), RF_E_INVALID);                                                                      \
        RF_ASSERT_CONTAINS(rf_error_text(), (name));                                                                 \
        RF_ASSERT_CONTAINS(rf_error_text(), (reason));                                                               \
    } while (0)

/* ---- building ---- */

RF_TEST(graph, two_nodes) {
    struct rf_graph *graph = graph_new("two");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4), y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 4);
    rf_tensor_id z = GRAPH_VALUE(graph, 4);
    GRAPH_NODE(graph, "double", "add", NONE, x, x, y);
    GRAPH_NODE(graph, NULL, "scale", F0(0.5), y, z);
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT_TEXT(rf_graph_name(graph), "two");
    RF_ASSERT_UINT(rf_graph_node_count(graph), 2);
    RF_ASSERT_UINT(rf_graph_tensor_count(graph), 3);
    RF_ASSERT_UINT(rf_graph_find(graph, "x"), x);
    RF_ASSERT_UINT(rf_graph_find(graph, "t3"), z);
    RF_ASSERT_UINT(rf_graph_find(graph, "none"), 0);
    RF_ASSERT_TEXT(graph->nodes[1].name, "scale_2");
    RF_ASSERT(!graph->tensors[y - 1].output && graph->tensors[z - 1].output);
    struct graph_memory memory = graph_evaluate(graph, 1);
    RF_ASSERT_BYTES(graph_data(&memory, "t3"), graph_data(&memory, "x"), 16);
    graph_memory_free(&memory);
    rf_graph_destroy(&graph);
    RF_ASSERT_NULL(graph);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, generated_names_avoid_given_ones) {
    struct rf_graph *graph = graph_new(NULL);
    rf_tensor_id a = GRAPH_TENSOR(graph, "t2", RF_ROLE_INPUT, 4), b = GRAPH_TENSOR(graph, NULL, RF_ROLE_INPUT, 4);
    RF_ASSERT(a != b);
    RF_ASSERT_UINT(rf_graph_find(graph, "t2"), a);
    RF_ASSERT_UINT(rf_graph_find(graph, "t2_"), b);
    rf_graph_destroy(&graph);
}

/* With thousands of names, the table of names grows. */
RF_TEST(graph, many_tensors_are_found) {
    struct rf_graph *graph = graph_new("many");
    for (int i = 0; i < 5000; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor.%d.weight", i);
        RF_ASSERT_UINT(GRAPH_TENSOR(graph, name, RF_ROLE_INPUT, 4), (unsigned)i + 1);
    }
    RF_ASSERT_UINT(rf_graph_find(graph, "tensor.0.weight"), 1);
    RF_ASSERT_UINT(rf_graph_find(graph, "tensor.4999.weight"), 5000);
    RF_ASSERT_UINT(rf_graph_find(graph, "tensor.5000.weight"), 0);
    rf_graph_destroy(&graph);
}

/* ---- order ---- */

static size_t position(const struct rf_graph *graph, const char *node) {
    for (size_t i = 0; i < graph->node_count; i++)
        if (!strcmp(graph->nodes[i].name, node)) return i;
    RF_NOTE("there is no node %s", node);
    RF_ASSERT(false);
    return 0;
}

/* A chain that is added backwards is ordered forwards; it is long enough to overflow the stack of a recursion. */
RF_TEST(graph, a_chain_added_backwards_is_ordered) {
    enum { LENGTH = 20000 };
    struct rf_graph *graph = graph_new("chain");
    rf_tensor_id first = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1), out = 0;
    for (int i = 0; i < LENGTH; i++) out = GRAPH_VALUE(graph, 1);
    for (int i = LENGTH; i-- > 0;)
        GRAPH_NODE(graph, NULL, "scale", F0(1), first + (rf_tensor_id)i, first + (rf_tensor_id)i + 1);
    RF_ASSERT_OK(rf_graph_finish(graph));
    for (size_t i = 0; i < LENGTH; i++) RF_ASSERT_UINT(graph->nodes[i].tensors[0], first - 1 + i);
    for (size_t i = 0; i < LENGTH; i++) RF_ASSERT_UINT(graph->tensors[first + i].producer, i);
    RF_ASSERT(graph->tensors[out - 1].output);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, what_is_in_order_stays) {
    struct rf_graph *graph = graph_new("stays");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4);
    const char *names[] = {"d", "a", "c", "b", "e"};
    for (int i = 0; i < 5; i++) GRAPH_NODE(graph, names[i], "scale", F0(i), x, GRAPH_VALUE(graph, 4));
    RF_ASSERT_OK(rf_graph_finish(graph));
    for (size_t i = 0; i < 5; i++) RF_ASSERT_UINT(position(graph, names[i]), i);
    rf_graph_destroy(&graph);
}

/* Reads before and after a change in place keep their side of it, whatever else is out of order. */
RF_TEST(graph, updates_keep_their_place) {
    struct rf_graph *graph = graph_new("updates");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1, 1, 4, 4),
                 s = GRAPH_TENSOR(graph, "s", RF_ROLE_RESULT, 1, 1, 4, 4);
    rf_tensor_id before = GRAPH_TENSOR(graph, "before", RF_ROLE_RESULT, 1, 1, 4, 4);
    rf_tensor_id after = GRAPH_TENSOR(graph, "after", RF_ROLE_RESULT, 1, 1, 4, 4);
    rf_tensor_id row = GRAPH_VIEW(graph, "row", s, 16, 4), of_row = GRAPH_TENSOR(graph, "of_row", RF_ROLE_RESULT, 4);
    rf_tensor_id late = GRAPH_VALUE(graph, 1, 1, 4, 4);
    GRAPH_NODE(graph, "read_before", "scale", F0(2), s, before);
    GRAPH_NODE(graph, "mask", "causal_mask", NONE, s);
    GRAPH_NODE(graph, "read_view", "scale", F0(2), row, of_row);
    GRAPH_NODE(graph, "mask_again", "causal_mask", I0(-1), s);
    GRAPH_NODE(graph, "read_after", "scale", F0(2), s, after);
    GRAPH_NODE(graph, "make", "scale", F0(1), late, s); /* added last, runs first, right after its inputs */
    GRAPH_NODE(graph, "make_late", "scale", F0(1), x, late);
    RF_ASSERT_OK(rf_graph_finish(graph));
    const char *order[] = {"make_late", "make", "read_before", "mask", "read_view", "mask_again", "read_after"};
    for (size_t i = 0; i < 7; i++) RF_ASSERT_UINT(position(graph, order[i]), i);
    rf_graph_destroy(&graph);
}

/* A node that is needed early pulls a change in place forward; the nodes that read before the change come along. */
RF_TEST(graph, an_update_that_is_pulled_forward) {
    struct rf_graph *graph = graph_new("pulled");
    rf_tensor_id s = GRAPH_TENSOR(graph, "s", RF_ROLE_STATE, 1, 1, 4, 4), z = GRAPH_VALUE(graph, 1, 1, 4, 4);
    GRAPH_NODE(graph, "first", "scale", F0(2), z, GRAPH_VALUE(graph, 1, 1, 4, 4));
    GRAPH_NODE(graph, "read_before", "scale", F0(2), s, GRAPH_VALUE(graph, 1, 1, 4, 4));
    GRAPH_NODE(graph, "mask", "causal_mask", NONE, s);
    GRAPH_NODE(graph, "read_after", "scale", F0(2), s, z);
    RF_ASSERT_OK(rf_graph_finish(graph));
    const char *order[] = {"read_before", "mask", "read_after", "first"};
    for (size_t i = 0; i < 4; i++) RF_ASSERT_UINT(position(graph, order[i]), i);
    rf_graph_destroy(&graph);
}

/* Whatever the order of adding, a node that produces a tensor comes before its readers. */
RF_TEST(graph, any_order_of_adding) {
    enum { NODES = 300 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rf_graph *graph = graph_new("shuffled");
        uint64_t state = seed;
        rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4);
        int order[NODES];
        for (int i = 0; i < NODES; i++) {
            GRAPH_VALUE(graph, 4); /* x + 1 + i, made of earlier tensors */
            int swap = (int)(rf_op_random(&state) % (uint64_t)(i + 1));
            order[i] = order[swap];
            order[swap] = i;
        }
        for (int i = 0; i < NODES; i++) {
            uint64_t mine = (uint64_t)order[i], of = seed; /* two earlier tensors, the same for every order */
            of += mine * 977;
            rf_tensor_id a = x + (rf_tensor_id)(rf_op_random(&of) % (mine + 1));
            rf_tensor_id b = x + (rf_tensor_id)(rf_op_random(&of) % (mine + 1));
            GRAPH_NODE(graph, NULL, "add", NONE, a, b, x + 1 + (rf_tensor_id)mine);
        }
        RF_ASSERT_OK(rf_graph_finish(graph));
        RF_ASSERT_UINT(graph->node_count, NODES);
        for (size_t s = 0; s < graph->node_count; s++) {
            RF_ASSERT_UINT(graph->tensors[graph->nodes[s].tensors[2]].producer, s);
            for (int i = 0; i < 2; i++) {
                uint32_t in = graph->nodes[s].tensors[i];
                RF_ASSERT(in == x - 1 || graph->tensors[in].producer < s);
            }
        }
        rf_graph_destroy(&graph);
    }
}

/* ---- outputs ---- */

RF_TEST(graph, outputs_are_what_nobody_reads_last) {
    struct rf_graph *graph = graph_new("outputs");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1, 1, 2, 2);
    rf_tensor_id masked = GRAPH_TENSOR(graph, "masked", RF_ROLE_RESULT, 1, 1, 2, 2);
    rf_tensor_id viewed = GRAPH_TENSOR(graph, "viewed", RF_ROLE_RESULT, 1, 1, 2, 2);
    rf_tensor_id view = GRAPH_VIEW(graph, "view", viewed, 0, 4), unread = GRAPH_VIEW(graph, "unread", viewed, 8, 2);
    rf_tensor_id inner = GRAPH_TENSOR(graph, "inner", RF_ROLE_RESULT, 4),
                 last = GRAPH_TENSOR(graph, "last", RF_ROLE_RESULT, 4);
    GRAPH_NODE(graph, NULL, "scale", F0(1), x, masked);
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, masked); /* its last use changes it */
    GRAPH_NODE(graph, NULL, "scale", F0(1), x, viewed);
    GRAPH_NODE(graph, NULL, "scale", F0(1), view, inner);
    GRAPH_NODE(graph, NULL, "scale", F0(1), inner, last);
    RF_ASSERT_OK(rf_graph_add_output(graph, inner));
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT(graph->tensors[masked - 1].output);
    RF_ASSERT(!graph->tensors[viewed - 1].output);
    RF_ASSERT(!graph->tensors[unread - 1].output);
    RF_ASSERT(graph->tensors[inner - 1].output);
    RF_ASSERT(graph->tensors[last - 1].output);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, a_wanted_view_keeps_its_storage) {
    struct rf_graph *graph = graph_new("view");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 8), y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 8);
    rf_tensor_id part = GRAPH_VIEW(graph, "part", y, 16, 4), of_part = GRAPH_VIEW(graph, "of_part", part, 8, 2);
    GRAPH_NODE(graph, NULL, "scale", F0(1), x, y);
    GRAPH_NODE(graph, NULL, "scale", F0(1), y, GRAPH_VALUE(graph, 8));
    RF_ASSERT_OK(rf_graph_add_output(graph, of_part));
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT(graph->tensors[y - 1].output);
    RF_ASSERT_UINT(graph->tensors[of_part - 1].desc.byte_offset, 24);
    RF_ASSERT_UINT(graph->tensors[of_part - 1].root, y - 1);
    rf_graph_destroy(&graph);
}

/* ---- dumps ---- */

RF_TEST(graph, text_names_everything) {
    struct rf_graph *graph = graph_new("dumped");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 2, 3),
                 y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 2, 3);
    rf_tensor_id w = GRAPH_CONSTANT(graph, "w", 1, 3), v = GRAPH_VIEW(graph, "v", y, 12, 3);
    GRAPH_NODE(graph, "norm", "rms_norm", F0(0.25), x, w, y);
    GRAPH_NODE(graph, "twice", "add", NONE, v, v, GRAPH_TENSOR(graph, "z", RF_ROLE_RESULT, 3));
    char *text = graph_text(graph, RF_GRAPH_TEXT);
    RF_ASSERT_CONTAINS(text, "not finished");
    free(text);
    RF_ASSERT_OK(rf_graph_finish(graph));
    text = graph_text(graph, RF_GRAPH_TEXT);
    RF_ASSERT_TEXT(text, "graph 'dumped': 2 nodes, 5 tensors, 72 bytes\n"
                         "  tensor 1 'x': input f32[2,3]\n"
                         "  tensor 2 'y': result f32[2,3]\n"
                         "  tensor 3 'w': constant f32[3]\n"
                         "  tensor 4 'v': view f32[3] of 'y' at byte 12\n"
                         "  tensor 5 'z': result f32[3], output\n"
                         "  node 1 'norm': 'y' = rms_norm('x', 'w') eps=0.25\n"
                         "  node 2 'twice': 'z' = add('v', 'v')\n");
    free(text);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, dot_is_quoted) {
    struct rf_graph *graph = graph_new("a \"quoted\" \\ name");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x\"y", RF_ROLE_INPUT, 4);
    GRAPH_NODE(graph, "n", "scale", F0(1), x, GRAPH_TENSOR(graph, "out", RF_ROLE_RESULT, 4));
    rf_tensor_id w = GRAPH_CONSTANT(graph, "w", 1, 4);
    GRAPH_NODE(graph, "m", "scale", F0(2), w, GRAPH_TENSOR(graph, "scaled", RF_ROLE_RESULT, 4));
    RF_ASSERT_OK(rf_graph_finish(graph));
    char *text = graph_text(graph, RF_GRAPH_DOT);
    /* Inputs are solid, constants dashed, results bold. */
    RF_ASSERT_CONTAINS(text, "t1 [shape=box,style=solid,label=\"x");
    RF_ASSERT_CONTAINS(text, "t2 [shape=box,style=bold,label=\"out");
    RF_ASSERT_CONTAINS(text, "t3 [shape=box,style=dashed,label=\"w");
    RF_ASSERT_CONTAINS(text, "digraph \"a \\\"quoted\\\" \\\\ name\" {");
    RF_ASSERT_CONTAINS(text, "t1 -> n1 [label=\"x\\\"y\"];");
    RF_ASSERT_CONTAINS(text, "n1 -> t2;");
    RF_ASSERT(!strcmp(text + strlen(text) - 2, "}\n"));
    free(text);
    rf_graph_destroy(&graph);
}

static bool stop_at_once(void *user, const char *text, size_t length) {
    (void)text, (void)length;
    ++*(int *)user;
    return false;
}
RF_TEST(graph, a_reader_may_stop) {
    struct rf_graph *graph = graph_new("stop");
    int calls = 0;
    GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4);
    RF_ASSERT_OK(rf_graph_dump(graph, RF_GRAPH_TEXT, stop_at_once, &calls));
    RF_ASSERT_INT(calls, 1);
    RF_ASSERT_STATUS(rf_graph_dump(graph, (enum rf_graph_format)9, stop_at_once, &calls), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_graph_dump(NULL, RF_GRAPH_TEXT, stop_at_once, &calls), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_graph_dump(graph, RF_GRAPH_TEXT, NULL, NULL), RF_E_INVALID);
    rf_graph_destroy(&graph);
}

/* ---- refusals: tensors ---- */

RF_TEST(graph, tensors_that_make_no_sense) {
    struct rf_graph *graph = graph_new("bad");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4);
    struct rf_graph_tensor t = plain("x", 4);
    float data[4] = {0};
    EXPECT_REFUSED(try_tensor(graph, &t), "'x'", "taken");
    t = plain("", 4);
    EXPECT_REFUSED(try_tensor(graph, &t), "tensor", "empty");
    t = plain("a\nb", 4);
    EXPECT_REFUSED(try_tensor(graph, &t), "tensor", "control character");
    char longer[300];
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    t = plain(longer, 4);
    EXPECT_REFUSED(try_tensor(graph, &t), "nnn", "at most 255");
    longer[255] = 0;
    t = plain(longer, 4);
    RF_ASSERT_OK(try_tensor(graph, &t));
    t = plain("bad", 4);
    t.struct_size = 0;
    EXPECT_REFUSED(try_tensor(graph, &t), "rf_graph_add_tensor", "struct_size");
    t = plain("bad", 4);
    t.desc.dtype = (enum rf_dtype)999;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "no dtype");
    t = plain("bad", 4);
    t.desc.rank = 0;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "rank 0");
    t = plain("bad", 4);
    t.desc.rank = 99;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "rank");
    t = plain("bad", UINT64_MAX / 2);
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "overflows");
    t = plain("bad", 4);
    t.desc.byte_offset = 2;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "multiple of 4");
    t = plain("bad", 4);
    t.role = (enum rf_tensor_role)8;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "no role");
    t = plain("bad", 4);
    t.layout = (enum rf_layout)8;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "no layout");
    t = plain("bad", 4);
    t.desc.strides[0] = 3;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "RF_LAYOUT_STRIDED");
    t = plain("bad", 4);
    t.role = RF_ROLE_CONSTANT;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "needs its data");
    t.role = RF_ROLE_INPUT;
    t.data = data;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "no constant");
    t = plain("bad", 4);
    t.view_of = 99;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "does not exist");
    t = plain("bad", 5);
    t.view_of = x;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "ends at byte 20 of 'x'");
    t = plain("bad", 1);
    t.view_of = x;
    t.desc.byte_offset = 16;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "storage has 16");
    t.desc.byte_offset = UINT64_MAX - 3;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "overflows");
    t = plain("bad", 4);
    t.view_of = x;
    t.role = RF_ROLE_STATE;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "RF_ROLE_RESULT");
    /* The refused calls left no trace. */
    RF_ASSERT_UINT(rf_graph_tensor_count(graph), 2);
    RF_ASSERT_UINT(rf_graph_find(graph, "bad"), 0);
    rf_graph_destroy(&graph);
}

/* A view of a view is bounded by the storage; an offset cannot wrap around it. */
RF_TEST(graph, a_views_view_stays_within) {
    struct rf_graph *graph = graph_new("views");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 8), v = GRAPH_VIEW(graph, "v", x, 16, 4);
    struct rf_graph_tensor t = plain("w", 4);
    t.view_of = v;
    RF_ASSERT_OK(try_tensor(graph, &t));
    t = plain("bad", 4);
    t.view_of = v;
    t.desc.byte_offset = 4;
    EXPECT_REFUSED(try_tensor(graph, &t), "'bad'", "ends at byte 36 of 'x'");
    rf_graph_destroy(&graph);
}

RF_TEST(graph, larger_than_memory_can_be) {
    struct rf_graph *graph = graph_new("huge");
    struct rf_graph_tensor t = plain("half", (uint64_t)1 << 60);
    RF_ASSERT_OK(try_tensor(graph, &t));
    t = plain("other", (uint64_t)1 << 60);
    EXPECT_REFUSED(try_tensor(graph, &t), "'other'", "larger than memory can be");
    rf_graph_destroy(&graph);
}

/* ---- refusals: nodes ---- */

/* By name, by position, and a name that wins over a position; what is no attribute of the op is refused. */
RF_TEST(graph, attributes_by_name) {
    struct rf_graph *graph = graph_new("named");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1, 1, 4, 4),
                 y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 4);
    rf_tensor_id a = GRAPH_TENSOR(graph, "a", RF_ROLE_INPUT, 4);
    RF_PARAMS(struct rf_graph_node, node);
    struct rf_attribute scale[] = {{"scale", .f = 2.5}}, offset[] = {{"offset", .i = -3}};
    node.op = "causal_mask";
    node.name = "mask";
    node.inputs = &x;
    node.input_count = 1;
    node.attributes = offset;
    node.attribute_count = 1;
    RF_ASSERT_OK(rf_graph_add_node(graph, &node, NULL));
    RF_ASSERT_INT(graph->nodes[0].attributes.offset, -3);
    node.op = "scale";
    node.name = "n";
    node.inputs = &a;
    node.outputs = &y;
    node.output_count = 1;
    node.f[0] = 7;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "op 'scale' has no attribute 'offset'");
    node.attributes = scale;
    scale[0].i = 1;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "'scale' of op 'scale' is a number: set .f");
    scale[0] = (struct rf_attribute){NULL, .f = 1};
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "no attribute 'NULL'");
    node.attributes = NULL;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "attributes is NULL, attribute_count is 1");
    node.op = "causal_mask";
    node.attributes = (struct rf_attribute[]){{"offset", .f = 1}};
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "is an integer: set .i");
    node.op = "scale";
    node.attributes = scale;
    scale[0] = (struct rf_attribute){"scale", .f = 2.5};
    RF_ASSERT_OK(rf_graph_add_node(graph, &node, NULL));
    RF_ASSERT_DOUBLE(graph->nodes[1].attributes.scale, 2.5, 0);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, nodes_that_make_no_sense) {
    struct rf_graph *graph = graph_new("bad");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4), y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 4);
    rf_tensor_id five = GRAPH_TENSOR(graph, "five", RF_ROLE_RESULT, 5),
                 z = GRAPH_TENSOR(graph, "z", RF_ROLE_RESULT, 4);
    rf_tensor_id v = GRAPH_VIEW(graph, "v", y, 0, 4), w = GRAPH_CONSTANT(graph, "w", 1, 1, 1, 2, 2);
    rf_tensor_id whole = graph_tensor_of(graph, "whole", RF_ROLE_RESULT, RF_I32, NULL, SIZES(4));
    GRAPH_NODE(graph, "first", "scale", F0(1), x, z);
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "no_such_op", NONE, x, y), "'n'", "no op 'no_such_op'");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, 99, y), "'n'", "input 1 is tensor 99");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, 99), "'n'", "output 0 is tensor 99");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, 0, y), "'n'", "input 1 is left out");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, y), "'n'", "input 1 is left out");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, 0), "'n'", "output 0 is left out");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, x, y), "'n'", "3 inputs are given, add takes 2");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, five), "'n'", "the shapes of out and a differ");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, whole), "'n'", "i32");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, z), "'n'", "made by node 'first' already");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, x), "'n'", "cannot be made by a node");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, x, v), "'n'", "'v', is a view");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, y, y), "'n'", "shares its storage with input 1");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add", NONE, x, v, y), "'n'", "shares its storage with input 1");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "causal_mask", NONE, w), "'n'", "'w', which is constant");
    EXPECT_REFUSED(GRAPH_TRY(graph, "a\tb", "add", NONE, x, x, y), "node", "control character");
    RF_PARAMS(struct rf_graph_node, node);
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "node", "op is NULL");
    node.op = "add";
    node.name = "n";
    node.input_count = 2;
    node.output_count = 1;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "inputs or outputs is NULL");
    node.output_count = 2;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "'n'", "2 outputs are given, add makes 1");
    node.struct_size = 1;
    EXPECT_REFUSED(rf_graph_add_node(graph, &node, NULL), "rf_graph_add_node", "struct_size");
    RF_ASSERT_UINT(rf_graph_node_count(graph), 1);
    /* After the refusals, the right calls succeed. */
    GRAPH_NODE(graph, "n", "add", NONE, x, x, y);
    rf_graph_destroy(&graph);
}

RF_TEST(graph, two_outputs_in_one_place) {
    struct rf_graph *graph = graph_new("bad");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 2, 4), y = GRAPH_VALUE(graph, 2, 4);
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "add_norm", NONE, x, x, 0, y, y), "'n'", "shares its storage with output 0");
    rf_graph_destroy(&graph);
}

/* kv_append changes two caches: they may be halves of one storage, but may not overlap. */
RF_TEST(graph, overlapping_updates) {
    struct rf_graph *graph = graph_new("caches");
    rf_tensor_id k = GRAPH_TENSOR(graph, "k", RF_ROLE_INPUT, 1, 1, 8),
                 v = GRAPH_TENSOR(graph, "v", RF_ROLE_INPUT, 1, 1, 8);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(1));
    rf_tensor_id cache = GRAPH_TENSOR(graph, "cache", RF_ROLE_STATE, 2, 1, 1, 4, 8);
    rf_tensor_id first = GRAPH_VIEW(graph, "first", cache, 0, 1, 1, 4, 8);
    rf_tensor_id second = GRAPH_VIEW(graph, "second", cache, 4 * 8 * 4, 1, 1, 4, 8);
    rf_tensor_id across = GRAPH_VIEW(graph, "across", cache, 2 * 8 * 4, 1, 1, 4, 8);
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "kv_append", F0(1), k, v, at, 0, 0, 0, first, across), "'n'",
                   "overlaps input");
    EXPECT_REFUSED(GRAPH_TRY(graph, "n", "kv_append", F0(1), k, v, at, 0, 0, 0, first, first), "'n'",
                   "overlaps input");
    GRAPH_NODE(graph, "n", "kv_append", F0(1), k, v, at, 0, 0, 0, first, second);
    RF_ASSERT_OK(rf_graph_finish(graph));
    rf_graph_destroy(&graph);
}

/* ---- refusals: the whole graph ---- */

RF_TEST(graph, cycles) {
    struct rf_graph *graph = graph_new("round");
    rf_tensor_id a = GRAPH_VALUE(graph, 4), b = GRAPH_VALUE(graph, 4), c = GRAPH_VALUE(graph, 4);
    GRAPH_NODE(graph, "one", "scale", F0(1), a, b);
    GRAPH_NODE(graph, "two", "scale", F0(1), b, c);
    GRAPH_NODE(graph, "three", "scale", F0(1), c, a);
    EXPECT_REFUSED(rf_graph_finish(graph), "'round'", "cycle");
    RF_ASSERT_CONTAINS(rf_error_text(), "node 'two'");
    rf_graph_destroy(&graph);
}

/* A change in place must come after a read, and that read needs a result of the change. */
RF_TEST(graph, a_cycle_through_an_update) {
    struct rf_graph *graph = graph_new("round");
    rf_tensor_id s = GRAPH_TENSOR(graph, "s", RF_ROLE_STATE, 1, 1, 2, 2), y = GRAPH_VALUE(graph, 1, 1, 2, 2);
    rf_tensor_id z = GRAPH_VALUE(graph, 1, 1, 2, 2);
    GRAPH_NODE(graph, "before", "add", NONE, s, z, y); /* reads s before it changes, but needs z */
    GRAPH_NODE(graph, "change", "causal_mask", NONE, s);
    GRAPH_NODE(graph, "after", "scale", F0(1), s, z);
    EXPECT_REFUSED(rf_graph_finish(graph), "'round'", "cycle");
    rf_graph_destroy(&graph);
}

RF_TEST(graph, values_without_a_producer) {
    struct rf_graph *graph = graph_new("bare");
    EXPECT_REFUSED(rf_graph_finish(graph), "'bare'", "no node");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4),
                 lost = GRAPH_TENSOR(graph, "lost", RF_ROLE_RESULT, 4);
    GRAPH_NODE(graph, "n", "add", NONE, x, lost, GRAPH_VALUE(graph, 4));
    EXPECT_REFUSED(rf_graph_finish(graph), "'lost'", "no node makes");
    RF_ASSERT_OK(rf_graph_add_output(graph, lost));
    EXPECT_REFUSED(rf_graph_finish(graph), "'lost'", "which is an output");
    /* The missing node can still be added. */
    GRAPH_NODE(graph, "found", "scale", F0(1), x, lost);
    RF_ASSERT_OK(rf_graph_finish(graph));
    EXPECT_REFUSED(rf_graph_finish(graph), "'bare'", "finished already");
    struct rf_graph_tensor t = plain("late", 4);
    EXPECT_REFUSED(try_tensor(graph, &t), "'late'", "finished");
    EXPECT_REFUSED(GRAPH_TRY(graph, "late", "scale", F0(1), x, lost), "'late'", "finished");
    EXPECT_REFUSED(rf_graph_add_output(graph, lost), "'bare'", "finished");
    rf_graph_destroy(&graph);
}

RF_TEST(graph, outputs_that_are_none) {
    struct rf_graph *graph = graph_new("bad");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4);
    EXPECT_REFUSED(rf_graph_add_output(graph, x), "'x'", "kept anyway");
    EXPECT_REFUSED(rf_graph_add_output(graph, 0), "output", "no tensor 0");
    EXPECT_REFUSED(rf_graph_add_output(graph, 5), "output", "no tensor 5");
    rf_graph_destroy(&graph);
}

RF_TEST(graph, null_is_refused) {
    struct rf_graph *graph = NULL;
    struct rf_graph_tensor t = plain("x", 4);
    rf_tensor_id id;
    EXPECT_REFUSED(rf_graph_create("x", NULL), "rf_graph_create", "NULL");
    EXPECT_REFUSED(rf_graph_create("", &graph), "graph", "empty");
    EXPECT_REFUSED(rf_graph_add_tensor(NULL, &t, &id), "rf_graph_add_tensor", "NULL");
    EXPECT_REFUSED(rf_graph_add_node(NULL, NULL, NULL), "rf_graph_add_node", "NULL");
    EXPECT_REFUSED(rf_graph_add_output(NULL, 1), "rf_graph_add_output", "NULL");
    EXPECT_REFUSED(rf_graph_finish(NULL), "rf_graph_finish", "NULL");
    rf_graph_destroy(NULL);
    RF_ASSERT_UINT(rf_graph_node_count(NULL), 0);
    RF_ASSERT_UINT(rf_graph_find(NULL, "x"), 0);
    RF_ASSERT_NULL(graph);
}

/* ---- random input ---- */

static uint64_t pick(uint64_t *state, const uint64_t *from, size_t count) {
    return from[rf_op_random(state) % count];
}
/* Random descriptors, nodes and outputs: a graph that is accepted is consistent, and a refused call changes
 * nothing. */
RF_TEST(graph, garbage) {
    static const uint64_t sizes[] = {0, 1, 2, 4, 8, 32, 256, 65535, (uint64_t)1 << 32, (uint64_t)1 << 62, UINT64_MAX};
    static const uint64_t offsets[] = {0, 0, 0, 4, 16, 3, 4096, UINT64_MAX, UINT64_MAX - 63};
    size_t accepted = 0, nodes = 0, finished = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t state = seed;
        struct rf_graph *graph = graph_new("garbage"), *out = NULL;
        for (int i = 0; i < 60; i++) {
            RF_PARAMS(struct rf_graph_tensor, t);
            rf_tensor_id id = 0;
            bool sane = rf_op_random(&state) % 4 != 0;
            t.role = (enum rf_tensor_role)(rf_op_random(&state) % (sane ? 2 : 6));
            t.layout = (enum rf_layout)(rf_op_random(&state) % (sane ? 2 : 3));
            t.desc.dtype = sane ? RF_F32 : (enum rf_dtype)(rf_op_random(&state) % 40);
            t.desc.rank = sane ? 1 + (int)(rf_op_random(&state) % 4) : (int)(rf_op_random(&state) % 12) - 1;
            for (int d = 0; d < RF_MAX_RANK; d++) {
                t.desc.shape[d] = sane ? 1 + rf_op_random(&state) % 3 : pick(&state, sizes, 11);
                if (!sane && rf_op_random(&state) % 2) t.desc.strides[d] = pick(&state, sizes, 11);
            }
            if (!sane) t.desc.byte_offset = pick(&state, offsets, 9);
            if (rf_op_random(&state) % 4 == 0) t.view_of = (rf_tensor_id)(rf_op_random(&state) % 64), t.role = 0;
            size_t before = rf_graph_tensor_count(graph);
            rf_status status = rf_graph_add_tensor(graph, &t, &id);
            accepted += !status;
            RF_ASSERT_UINT(rf_graph_tensor_count(graph), before + !status);
        }
        for (int i = 0; i < 200; i++) {
            RF_PARAMS(struct rf_graph_node, n);
            rf_tensor_id ids[2 * RF_OP_TENSORS_MAX];
            const struct rf_op *op = rf_op_table[rf_op_random(&state) % rf_op_table_count];
            for (int k = 0; k < 2 * RF_OP_TENSORS_MAX; k++)
                ids[k] = (rf_tensor_id)(rf_op_random(&state) % (rf_graph_tensor_count(graph) + 2));
            bool sane = rf_op_random(&state) % 8 != 0;
            n.op = op->name;
            n.inputs = ids;
            n.input_count = sane ? (size_t)op->inputs : rf_op_random(&state) % 12;
            n.outputs = ids + RF_OP_TENSORS_MAX;
            n.output_count = sane ? (size_t)op->outputs : rf_op_random(&state) % 4;
            n.i[0] = (int64_t)(rf_op_random(&state) % 5) - 1;
            size_t before = rf_graph_node_count(graph);
            rf_status status = rf_graph_add_node(graph, &n, NULL);
            nodes += !status;
            RF_ASSERT_UINT(rf_graph_node_count(graph), before + !status);
        }
        /* Tensors that no node produces are produced by a fill if possible. */
        for (rf_tensor_id id = 1; id <= rf_graph_tensor_count(graph); id++) {
            struct graph_attributes none = NONE;
            if (graph->tensors[id - 1].producer == RF_NO_INDEX) (void)GRAPH_TRY(graph, NULL, "fill", none, id);
            if (rf_op_random(&state) % 16 == 0) (void)rf_graph_add_output(graph, id);
        }
        free(graph_text(graph, RF_GRAPH_TEXT));
        free(graph_text(graph, RF_GRAPH_DOT));
        if (!rf_graph_finish(graph)) {
            finished++;
            RF_ASSERT_OK(rf_graph_optimize(graph, RF_PASSES_ALL, &out, NULL, NULL));
            free(graph_text(out, RF_GRAPH_TEXT));
            rf_graph_destroy(&out);
        }
        rf_graph_destroy(&graph);
    }
    RF_NOTE("%zu tensors, %zu nodes, %zu graphs", accepted, nodes, finished);
    RF_ASSERT(accepted > 5000 && nodes > 1000 && finished > 10);
}
