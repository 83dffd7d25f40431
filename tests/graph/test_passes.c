/* The passes: each alone on graphs made for it (fusion: test_pass_fuse.c), the nodes that each must leave alone, and
 * all of them on random graphs. A graph is evaluated by the references before and after; outputs, inputs and states
 * must agree. */
#include "pass_testing.h"

/* ---- dead ---- */

RF_TEST(pass_dead, takes_out_what_nobody_needs) {
    struct rf_graph *graph = graph_new("dead"), *out;
    rf_tensor_id x = INPUT(graph, "x", 4), a = VALUE(graph, "a", 4), b = VALUE(graph, "b", 4),
                 c = VALUE(graph, "c", 4);
    GRAPH_NODE(graph, "na", "scale", F0(2), x, a);
    GRAPH_NODE(graph, "nb", "scale", F0(3), a, b);
    GRAPH_NODE(graph, "nc", "scale", F0(4), x, c);
    RF_ASSERT_OK(rf_graph_finish(graph));
    /* In a graph built like this nothing is dead: a tensor that nobody reads is an output. A pass may leave an unread
     * tensor behind. */
    out = after(graph, RF_PASS_DEAD, 0, 3);
    rf_graph_destroy(&out);
    graph->tensors[b - 1].output = false;
    out = after(graph, RF_PASS_DEAD, 2, 1);
    RF_ASSERT_UINT(rf_graph_find(out, "a"), 0);
    RF_ASSERT_UINT(rf_graph_find(out, "b"), 0);
    RF_ASSERT(rf_graph_find(out, "x") && rf_graph_find(out, "c"));
    RF_ASSERT_UINT(out->bytes, 32);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* A change of a state is needed; a change of a tensor that nobody reads afterwards is not. */
RF_TEST(pass_dead, looks_at_updates) {
    struct rf_graph *graph = graph_new("updates"), *out;
    rf_tensor_id state = GRAPH_TENSOR(graph, "state", RF_ROLE_STATE, 1, 1, 2, 2), x = INPUT(graph, "x", 1, 1, 2, 2);
    rf_tensor_id v = VALUE(graph, "v", 1, 1, 2, 2), y = VALUE(graph, "y", 1, 1, 2, 2);
    GRAPH_NODE(graph, "mask_state", "causal_mask", NONE, state);
    GRAPH_NODE(graph, "make", "scale", F0(1), x, v);
    GRAPH_NODE(graph, "mask_value", "causal_mask", NONE, v);
    GRAPH_NODE(graph, "read", "scale", F0(1), v, y);
    GRAPH_NODE(graph, "mask_for_nobody", "causal_mask", I0(-1), v);
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT(graph->tensors[v - 1].output); /* its last use changes it, so it is an output */
    out = after(graph, RF_PASS_DEAD, 0, 5);
    rf_graph_destroy(&out);
    graph->tensors[v - 1].output = false;
    out = after(graph, RF_PASS_DEAD, 1, 4);
    RF_ASSERT_TEXT(out->nodes[2].name, "mask_value");
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

RF_TEST(pass_dead, keeps_unused_inputs_and_states) {
    struct rf_graph *graph = graph_new("kept"), *out;
    rf_tensor_id x = INPUT(graph, "x", 4);
    INPUT(graph, "unused", 4);
    GRAPH_TENSOR(graph, "memory", RF_ROLE_STATE, 4);
    GRAPH_CONSTANT(graph, "nothing", 1, 4);
    GRAPH_NODE(graph, NULL, "scale", F0(1), x, VALUE(graph, "y", 4));
    out = after(graph, RF_PASSES_ALL, 0, 1);
    RF_ASSERT(rf_graph_find(out, "unused") && rf_graph_find(out, "memory"));
    RF_ASSERT_UINT(rf_graph_find(out, "nothing"), 0);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* ---- constant ---- */

RF_TEST(pass_constant, computes_what_is_known) {
    struct rf_graph *graph = graph_new("constant"), *out, *again;
    rf_tensor_id a = GRAPH_CONSTANT(graph, "a", 1, 4), b = GRAPH_CONSTANT(graph, "b", 2, 8), x = INPUT(graph, "x", 4);
    rf_tensor_id part = GRAPH_VIEW(graph, "part", b, 16, 4), sum = VALUE(graph, "sum", 4),
                 ones = VALUE(graph, "ones", 4);
    rf_tensor_id half = VALUE(graph, "half", 4), y = VALUE(graph, "y", 4), z = VALUE(graph, "z", 4);
    GRAPH_NODE(graph, NULL, "add", NONE, a, part, sum);
    GRAPH_NODE(graph, NULL, "scale", F0(0.5), sum, half);
    GRAPH_NODE(graph, NULL, "fill", F0(1), ones);
    GRAPH_NODE(graph, NULL, "add", NONE, half, x, y);
    GRAPH_NODE(graph, NULL, "add", NONE, y, ones, z);
    out = after(graph, RF_PASS_CONSTANT, 3, 2);
    RF_ASSERT_INT(out->tensors[rf_graph_find(out, "half") - 1].role, RF_ROLE_CONSTANT);
    RF_ASSERT_UINT(rf_graph_find(out, "a"), 0); /* nobody needs it any more */
    RF_ASSERT_UINT(rf_graph_find(out, "sum"), 0);
    /* A graph made from this graph borrows the computed constants. */
    again = after(out, RF_PASS_CONSTANT, 0, 2);
    rf_graph_destroy(&again);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

RF_TEST(pass_constant, leaves_outputs_updates_and_what_is_large) {
    struct rf_graph *graph = graph_new("left");
    rf_tensor_id a = GRAPH_CONSTANT(graph, "a", 1, 1, 1, 4, 4), x = INPUT(graph, "x", 1, 1, 4, 4);
    rf_tensor_id updated = VALUE(graph, "updated", 1, 1, 4, 4), wanted = VALUE(graph, "wanted", 1, 1, 4, 4);
    rf_tensor_id large = VALUE(graph, "large", 1 << 19), in = INPUT(graph, "in", 1 << 19);
    GRAPH_NODE(graph, NULL, "scale", F0(2), a, updated);
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, updated);
    GRAPH_NODE(graph, NULL, "add", NONE, updated, x, VALUE(graph, "y", 1, 1, 4, 4));
    GRAPH_NODE(graph, NULL, "scale", F0(2), a, wanted);
    GRAPH_NODE(graph, NULL, "fill", F0(1), large);
    GRAPH_NODE(graph, NULL, "add", NONE, large, in, VALUE(graph, "z", 1 << 19));
    expect(graph, RF_PASS_CONSTANT, 0, 6);
}

/* ---- common ---- */

RF_TEST(pass_common, does_the_same_once) {
    struct rf_graph *graph = graph_new("common"), *out;
    rf_tensor_id x = INPUT(graph, "x", 2, 4), w = GRAPH_CONSTANT(graph, "w", 1, 4);
    rf_tensor_id n[3], m[3], v[2] = {GRAPH_VIEW(graph, "v0", x, 16, 4), GRAPH_VIEW(graph, "v1", x, 16, 4)}, s[3];
    for (int i = 0; i < 3; i++) n[i] = GRAPH_VALUE(graph, 2, 4), m[i] = GRAPH_VALUE(graph, 2, 4);
    for (int i = 0; i < 3; i++) s[i] = GRAPH_VALUE(graph, 4);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), x, w, n[0]);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), x, w, n[1]);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-3), x, w, n[2]); /* another attribute */
    GRAPH_NODE(graph, NULL, "scale", F0(2), n[0], m[0]);
    GRAPH_NODE(graph, NULL, "scale", F0(2), n[1], m[1]); /* the same node once its input is the same */
    GRAPH_NODE(graph, NULL, "scale", F0(2), n[2], m[2]);
    GRAPH_NODE(graph, NULL, "scale", F0(3), v[0], s[0]); /* two views of the same bytes */
    GRAPH_NODE(graph, NULL, "scale", F0(3), v[1], s[1]);
    GRAPH_NODE(graph, NULL, "scale", F0(3), GRAPH_VIEW(graph, "first", x, 0, 4), s[2]);
    rf_tensor_id view = GRAPH_VIEW(graph, "of_second", m[1], 16, 4), all = VALUE(graph, "all", 2, 4);
    rf_tensor_id t = VALUE(graph, "t", 4), u = VALUE(graph, "u", 4);
    GRAPH_NODE(graph, NULL, "add", NONE, m[0], m[2], all);
    GRAPH_NODE(graph, NULL, "add", NONE, s[0], s[1], t);
    GRAPH_NODE(graph, NULL, "add", NONE, view, s[2], u); /* a view of a tensor that is replaced */
    out = after(graph, RF_PASS_COMMON, 3, 9);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* A tensor that is read, changed and read again gives two different results. And an output is not merged with another
 * tensor. */
RF_TEST(pass_common, minds_updates_and_roots) {
    struct rf_graph *graph = graph_new("minds");
    rf_tensor_id s = GRAPH_TENSOR(graph, "s", RF_ROLE_STATE, 1, 1, 2, 2), x = INPUT(graph, "x", 1, 1, 2, 2);
    rf_tensor_id a = VALUE(graph, "a", 1, 1, 2, 2), b = VALUE(graph, "b", 1, 1, 2, 2);
    rf_tensor_id c = VALUE(graph, "c", 1, 1, 2, 2), d = VALUE(graph, "d", 1, 1, 2, 2);
    rf_tensor_id e = VALUE(graph, "e", 1, 1, 2, 2), g = VALUE(graph, "g", 1, 1, 2, 2);
    GRAPH_NODE(graph, NULL, "scale", F0(1), s, a);
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, s);
    GRAPH_NODE(graph, NULL, "scale", F0(1), s, b);
    GRAPH_NODE(graph, NULL, "add", NONE, a, b, VALUE(graph, "y", 1, 1, 2, 2));
    GRAPH_NODE(graph, NULL, "scale", F0(5), x, c); /* two outputs */
    GRAPH_NODE(graph, NULL, "scale", F0(5), x, d);
    GRAPH_NODE(graph, NULL, "scale", F0(6), x, e); /* the same, but one of the two is changed later */
    GRAPH_NODE(graph, NULL, "scale", F0(6), x, g);
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, g);
    GRAPH_NODE(graph, NULL, "add", NONE, e, g, VALUE(graph, "z", 1, 1, 2, 2));
    expect(graph, RF_PASS_COMMON, 0, 10);
}

/* ---- view ---- */

RF_TEST(pass_view, folds_copies) {
    struct rf_graph *graph = graph_new("copies"), *out;
    rf_tensor_id x = INPUT(graph, "x", 2, 8), a = VALUE(graph, "a", 2, 8), b = VALUE(graph, "b", 2, 8);
    rf_tensor_id row = GRAPH_VIEW(graph, "row", a, 32, 8), copy = VALUE(graph, "copy", 8),
                 one = VALUE(graph, "one", 8);
    rf_tensor_id tail = GRAPH_VIEW(graph, "tail", copy, 16, 4);
    GRAPH_NODE(graph, NULL, "copy", NONE, x, a);
    GRAPH_NODE(graph, NULL, "transpose", NONE, a, b); /* the same strides: it moves nothing */
    GRAPH_NODE(graph, NULL, "concat", NONE, row, copy);
    GRAPH_NODE(graph, NULL, "scale", F0(2), copy, one);
    GRAPH_NODE(graph, NULL, "scale", F0(3), tail, VALUE(graph, "of_tail", 4));
    GRAPH_NODE(graph, NULL, "scale", F0(4), b, VALUE(graph, "of_b", 2, 8));
    out = after(graph, RF_PASS_VIEW, 3, 3);
    RF_ASSERT_UINT(out->tensors[rf_graph_find(out, "tail") - 1].desc.byte_offset, 48);
    RF_ASSERT_UINT(out->tensors[rf_graph_find(out, "tail") - 1].root, rf_graph_find(out, "x") - 1);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* A tensor that becomes a view while its own view comes before it in the table. */
RF_TEST(pass_view, any_order_of_tensors) {
    struct rf_graph *graph = graph_new("order");
    rf_tensor_id copy = VALUE(graph, "copy", 8), part = GRAPH_VIEW(graph, "part", copy, 16, 4);
    rf_tensor_id made = VALUE(graph, "made", 8), x = INPUT(graph, "x", 8);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, made);
    GRAPH_NODE(graph, NULL, "copy", NONE, made, copy);
    GRAPH_NODE(graph, NULL, "scale", F0(2), part, VALUE(graph, "y", 4));
    expect(graph, RF_PASS_VIEW, 1, 2);
}

RF_TEST(pass_view, leaves_what_changes_something) {
    struct rf_graph *graph = graph_new("left");
    rf_tensor_id x = INPUT(graph, "x", 1, 1, 2, 2), y = VALUE(graph, "y", 1, 1, 2, 2);
    rf_tensor_id snapshot = VALUE(graph, "snapshot", 1, 1, 2, 2), own = VALUE(graph, "own", 1, 1, 2, 2);
    rf_tensor_id half = graph_tensor_of(graph, "half", RF_ROLE_RESULT, RF_F16, NULL, SIZES(4)),
                 z = VALUE(graph, "z", 4);
    rf_tensor_id flat = GRAPH_VIEW(graph, "flat", x, 0, 4), odd = GRAPH_VIEW(graph, "odd", x, 4, 3);
    rf_tensor_id shifted = VALUE(graph, "shifted", 3), plain = INPUT(graph, "plain", 1, 1, 2, 2);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, y);
    GRAPH_NODE(graph, NULL, "copy", NONE, y, snapshot); /* before y changes */
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, y);
    GRAPH_NODE(graph, NULL, "add", NONE, y, snapshot, VALUE(graph, "sum", 1, 1, 2, 2));
    GRAPH_NODE(graph, NULL, "copy", NONE, plain, own); /* the copy itself is changed */
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, own);
    GRAPH_NODE(graph, NULL, "scale", F0(2), own, VALUE(graph, "of_own", 1, 1, 2, 2));
    GRAPH_NODE(graph, NULL, "copy", NONE, flat, half); /* a cast to f16, and one back */
    GRAPH_NODE(graph, NULL, "copy", NONE, half, z);
    GRAPH_NODE(graph, NULL, "scale", F0(2), z, VALUE(graph, "of_z", 4));
    GRAPH_NODE(graph, NULL, "copy", NONE, plain, VALUE(graph, "wanted", 1, 1, 2, 2)); /* a root */
    GRAPH_NODE(graph, NULL, "copy", NONE, odd, shifted); /* 4 bytes off: kernels need the alignment */
    GRAPH_NODE(graph, NULL, "scale", F0(2), shifted, VALUE(graph, "of_shifted", 3));
    expect(graph, RF_PASS_VIEW, 0, 13);
}

/* ---- in place ---- */

RF_TEST(pass_in_place, takes_what_dies) {
    struct rf_graph *graph = graph_new("place"), *out;
    rf_tensor_id x = INPUT(graph, "x", 2, 4), w = GRAPH_CONSTANT(graph, "w", 1, 4), a = VALUE(graph, "a", 2, 4);
    rf_tensor_id b = VALUE(graph, "b", 2, 4), c = VALUE(graph, "c", 2, 4), d = VALUE(graph, "d", 2, 4);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, a);                       /* x is a root */
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), a, w, b);              /* a lives on */
    GRAPH_NODE(graph, NULL, "add", NONE, b, a, c);                       /* over b */
    GRAPH_NODE(graph, NULL, "scale", F0(2), c, d);                       /* over c, and so over b */
    GRAPH_NODE(graph, NULL, "scale", F0(2), d, VALUE(graph, "y", 2, 4)); /* y is a root */
    out = after(graph, RF_PASS_IN_PLACE, 2, 5);
    RF_ASSERT_INT(out->nodes[0].in_place[0], -1);
    RF_ASSERT_INT(out->nodes[1].in_place[0], -1);
    RF_ASSERT_INT(out->nodes[2].in_place[0], 0);
    RF_ASSERT_INT(out->nodes[3].in_place[0], 0);
    RF_ASSERT_INT(out->nodes[4].in_place[0], -1);
    char *text = graph_text(out, RF_GRAPH_TEXT);
    RF_ASSERT_CONTAINS(text, "'c' = add('b', 'a'), 'c' in place of 'b'");
    free(text);
    /* Without the pass, the next graph has nothing in place. */
    struct rf_graph *again = after(out, RF_PASS_DEAD, 0, 5);
    RF_ASSERT_INT(again->nodes[2].in_place[0], -1);
    rf_graph_destroy(&again);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

RF_TEST(pass_in_place, only_where_it_is_safe) {
    struct rf_graph *graph = graph_new("unsafe");
    rf_tensor_id x = INPUT(graph, "x", 4, 4), w = GRAPH_CONSTANT(graph, "w", 1, 4, 4), v[6];
    for (int i = 0; i < 6; i++) v[i] = GRAPH_VALUE(graph, 4, 4);
    for (int i = 0; i < 6; i++) GRAPH_NODE(graph, NULL, "scale", F0(i + 2), x, v[i]);
    /* The product reads its own residual; a product cannot lie over its input; a view of the input is read later; the
     * input is only half of its storage; a later node reads the inputs. */
    GRAPH_NODE(graph, NULL, "matmul", NONE, v[0], w, 0, v[0], VALUE(graph, "p", 4, 4));
    GRAPH_NODE(graph, NULL, "matmul", NONE, v[1], w, VALUE(graph, "q", 4, 4));
    GRAPH_NODE(graph, NULL, "scale", F0(2), v[2], VALUE(graph, "r", 4, 4));
    GRAPH_NODE(graph, NULL, "scale", F0(2), GRAPH_VIEW(graph, "view", v[2], 16, 4), VALUE(graph, "of_view", 4));
    GRAPH_NODE(graph, NULL, "scale", F0(2), GRAPH_VIEW(graph, "half", v[3], 0, 2, 4), VALUE(graph, "s", 2, 4));
    GRAPH_NODE(graph, NULL, "multiply", NONE, v[4], v[5], VALUE(graph, "t", 4, 4));
    GRAPH_NODE(graph, NULL, "add", NONE, v[4], v[5], VALUE(graph, "u", 4, 4));
    const char *read[] = {"p", "q", "r", "s", "t", "u"};
    for (int i = 0; i < 6; i++) { /* none of them is a root */
        rf_tensor_id id = rf_graph_find(graph, read[i]);
        rf_tensor_id out = i == 3 ? GRAPH_VALUE(graph, 2, 4) : GRAPH_VALUE(graph, 4, 4);
        GRAPH_NODE(graph, NULL, "scale", F0(1), id, out);
    }
    /* Only "u" changes: v[4] and v[5] are last used there. */
    expect(graph, RF_PASS_IN_PLACE, 1, 19);
}

/* The input may be a whole storage in another shape, as heads are of rows. */
RF_TEST(pass_in_place, over_a_view_of_the_whole) {
    struct rf_graph *graph = graph_new("shapes"), *out;
    rf_tensor_id x = INPUT(graph, "x", 2, 8), rows = GRAPH_VALUE(graph, 2, 8), half = GRAPH_VALUE(graph, 2, 8);
    rf_tensor_id flat = GRAPH_VIEW(graph, "flat", rows, 0, 16), a = VALUE(graph, "a", 16), b = VALUE(graph, "b", 8);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, rows);
    GRAPH_NODE(graph, NULL, "scale", F0(3), flat, a);
    GRAPH_NODE(graph, NULL, "scale", F0(4), a, VALUE(graph, "y", 16));
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, half);
    GRAPH_NODE(graph, NULL, "scale", F0(3), GRAPH_VIEW(graph, "part", half, 32, 8), b); /* not the whole storage */
    GRAPH_NODE(graph, NULL, "scale", F0(4), b, VALUE(graph, "z", 8));
    out = after(graph, RF_PASS_IN_PLACE, 1, 6);
    RF_ASSERT_INT(out->nodes[1].in_place[0], 0);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

RF_TEST(pass_in_place, residual) {
    struct rf_graph *graph = graph_new("residual"), *out;
    rf_tensor_id x = INPUT(graph, "x", 2, 8), r = INPUT(graph, "r", 2, 4), w = GRAPH_CONSTANT(graph, "w", 1, 4, 8);
    rf_tensor_id a = GRAPH_VALUE(graph, 2, 4), y = VALUE(graph, "y", 2, 4);
    GRAPH_NODE(graph, NULL, "scale", F0(2), r, a);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, 0, a, y);
    GRAPH_NODE(graph, NULL, "softmax", NONE, y, VALUE(graph, "z", 2, 4));
    out = after(graph, RF_PASS_IN_PLACE, 1, 3);
    RF_ASSERT_INT(out->nodes[1].in_place[0], 3);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* ---- the optimizer ---- */

RF_TEST(optimize, refuses_and_reports) {
    struct rf_graph *graph = graph_new("report"), *out = NULL;
    rf_tensor_id x = INPUT(graph, "x", 4);
    GRAPH_NODE(graph, NULL, "scale", F0(1), x, VALUE(graph, "y", 4));
    struct rf_pass_report report[6];
    size_t count = 9;
    RF_ASSERT_STATUS(rf_graph_optimize(graph, RF_PASSES_ALL, &out, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "not finished");
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT_STATUS(rf_graph_optimize(graph, 1 << 6, &out, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "0x40");
    RF_ASSERT_STATUS(rf_graph_optimize(NULL, 1, &out, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_graph_optimize(graph, 1, NULL, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_graph_optimize(graph, 1, &out, report, NULL), RF_E_INVALID);
    RF_ASSERT_NULL(out);
    RF_ASSERT_UINT(count, 9);
    RF_ASSERT_OK(rf_graph_optimize(graph, RF_PASSES_ALL, &out, report, &count));
    RF_ASSERT_UINT(count, 6);
    for (int i = 0; i < 6; i++) RF_ASSERT_INT(report[i].pass, 1 << i);
    RF_ASSERT_TEXT(rf_pass_name(RF_PASS_DEAD), "dead");
    RF_ASSERT_TEXT(rf_pass_name(RF_PASS_IN_PLACE), "in place");
    RF_ASSERT_TEXT(rf_pass_name((enum rf_pass)3), "?");
    rf_graph_destroy(&out);
    RF_ASSERT_OK(rf_graph_optimize(graph, 0, &out, report, &count));
    RF_ASSERT_UINT(count, 0);
    RF_ASSERT_UINT(rf_graph_node_count(out), 1);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* A layer written as models write it is fused. */
RF_TEST(optimize, a_transformer_layer) {
    struct rf_graph *graph = graph_new("layer"), *out;
    enum { WIDE = 16, HIDDEN = 32 };
    rf_tensor_id x = INPUT(graph, "x", 1, WIDE), norm1 = GRAPH_CONSTANT(graph, "norm1", 1, WIDE),
                 norm2 = GRAPH_CONSTANT(graph, "norm2", 2, WIDE);
    rf_tensor_id wo = GRAPH_CONSTANT(graph, "wo", 3, WIDE, WIDE), w1 = GRAPH_CONSTANT(graph, "w1", 4, HIDDEN, WIDE);
    rf_tensor_id w2 = GRAPH_CONSTANT(graph, "w2", 5, WIDE, HIDDEN), w3 = GRAPH_CONSTANT(graph, "w3", 6, HIDDEN, WIDE);
    rf_tensor_id n = GRAPH_VALUE(graph, 1, WIDE), o = GRAPH_VALUE(graph, 1, WIDE), h = VALUE(graph, "h", 1, WIDE),
                 m = GRAPH_VALUE(graph, 1, WIDE);
    rf_tensor_id g = GRAPH_VALUE(graph, 1, HIDDEN), act = GRAPH_VALUE(graph, 1, HIDDEN),
                 u = GRAPH_VALUE(graph, 1, HIDDEN);
    rf_tensor_id p = GRAPH_VALUE(graph, 1, HIDDEN), d = GRAPH_VALUE(graph, 1, WIDE);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), x, norm1, n);
    GRAPH_NODE(graph, NULL, "matmul", NONE, n, wo, o);
    GRAPH_NODE(graph, NULL, "add", NONE, x, o, h);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), h, norm2, m);
    GRAPH_NODE(graph, NULL, "matmul", NONE, m, w1, g);
    GRAPH_NODE(graph, NULL, "activation", I0(0), g, 0, act);
    GRAPH_NODE(graph, NULL, "matmul", NONE, m, w3, u);
    GRAPH_NODE(graph, NULL, "multiply", NONE, act, u, p);
    GRAPH_NODE(graph, NULL, "matmul", NONE, p, w2, d);
    GRAPH_NODE(graph, NULL, "add", NONE, h, d, VALUE(graph, "y", 1, WIDE));
    /* norm, matmul with residual, norm, gate, matmul with residual */
    out = after(graph, RF_PASS_FUSE, 4, 5);
    RF_ASSERT_TEXT(maker(out, "h"), "matmul");
    RF_ASSERT_TEXT(maker(out, "y"), "matmul");
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* ---- random graphs ---- */

struct pool {
    struct rf_graph *graph;
    uint64_t state;
    rf_tensor_id ids[128];
    uint64_t rows[128], columns[128];
    int count;
};
static uint64_t below(struct pool *pool, uint64_t n) {
    return rf_op_random(&pool->state) % n;
}
static rf_tensor_id keep(struct pool *pool, rf_tensor_id id, uint64_t rows, uint64_t columns) {
    RF_ASSERT(pool->count < 128);
    pool->ids[pool->count] = id;
    pool->rows[pool->count] = rows;
    pool->columns[pool->count++] = columns;
    return id;
}
/* A random tensor with the shape of 'like', perhaps 'like' itself. */
static int another(struct pool *pool, int like) {
    for (int tries = 0; tries < 8; tries++) {
        int i = (int)below(pool, (uint64_t)pool->count);
        if (pool->rows[i] == pool->rows[like] && pool->columns[i] == pool->columns[like]) return i;
    }
    return like;
}
static bool is_constant(struct pool *pool, int i) {
    const struct rf_tensor_row *value = &pool->graph->tensors[pool->ids[i] - 1];
    return pool->graph->tensors[value->root].role == RF_ROLE_CONSTANT;
}
static double factor(struct pool *pool) {
    static const double factors[] = {0.5, -0.25, 1, 1.5, 0.75};
    return factors[below(pool, 5)];
}

/* Writes rows of one matrix into two others, as if these were caches: a change in place. */
static void add_update(struct pool *pool, int from, int a, int b) {
    static const int32_t positions[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    struct rf_graph *graph = pool->graph;
    uint64_t columns = pool->columns[from], tokens = RF_MIN(pool->rows[from], (uint64_t)8);
    if (is_constant(pool, a) || is_constant(pool, b)) return;
    rf_tensor_id at = graph_tensor_of(graph, NULL, RF_ROLE_CONSTANT, RF_I32, positions, SIZES(tokens));
    rf_tensor_id k = GRAPH_VIEW(graph, NULL, pool->ids[from], 0, tokens, 1, columns);
    rf_tensor_id kc = GRAPH_VIEW(graph, NULL, pool->ids[a], 0, 1, 1, pool->rows[a], columns);
    rf_tensor_id vc = GRAPH_VIEW(graph, NULL, pool->ids[b], 0, 1, 1, pool->rows[b], columns);
    (void)GRAPH_TRY(graph, NULL, "kv_append", F0(1), k, k, at, 0, 0, 0, kc, vc); /* refused where they overlap */
}

static void add_random(struct pool *pool) {
    struct rf_graph *graph = pool->graph;
    int a = (int)below(pool, (uint64_t)pool->count), b = another(pool, a), c = another(pool, a);
    uint64_t rows = pool->rows[a], columns = pool->columns[a], kind = below(pool, 16), pick = below(pool, 3);
    bool more = below(pool, 2); /* drawn here: the compiler may evaluate arguments in any order */
    double by = factor(pool);
    if (kind == 0) {
        add_update(pool, a, b, c);
        return;
    }
    if (kind == 1) { /* a part of a matrix: a view */
        uint64_t first = below(pool, rows);
        keep(pool, GRAPH_VIEW(graph, NULL, pool->ids[a], first * columns * 4, rows - first, columns), rows - first,
             columns);
        return;
    }
    if (kind <= 3) {
        uint64_t n = more ? 8 : columns;
        rf_tensor_id w = GRAPH_CONSTANT(graph, NULL, pick, n, columns), out = GRAPH_VALUE(graph, rows, n);
        GRAPH_NODE(graph, NULL, "matmul", NONE, pool->ids[a], w, out);
        keep(pool, out, rows, n);
        return;
    }
    rf_tensor_id x = pool->ids[a], y = pool->ids[b], z = pool->ids[c], out = GRAPH_VALUE(graph, rows, columns);
    switch (kind) {
    case 4: GRAPH_NODE(graph, NULL, "scale", F0(by), x, out); break;
    case 5: GRAPH_NODE(graph, NULL, "multiply", NONE, x, y, more ? z : 0, out); break;
    case 6: GRAPH_NODE(graph, NULL, "activation", I0((int64_t)pick), x, more ? y : 0, out); break;
    case 7: GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-2), x, GRAPH_CONSTANT(graph, NULL, pick, columns), out); break;
    case 8: GRAPH_NODE(graph, NULL, "softmax", NONE, x, out); break;
    case 9: GRAPH_NODE(graph, NULL, "copy", NONE, x, out); break;
    case 10: GRAPH_NODE(graph, NULL, "transpose", NONE, x, out); break;
    case 11: GRAPH_NODE(graph, NULL, "fill", F0(by), out); break;
    case 12: GRAPH_NODE(graph, NULL, "layer_norm", F0(1e-1), x, 0, 0, out); break;
    default: GRAPH_NODE(graph, NULL, "add", NONE, x, y, out); break;
    }
    keep(pool, out, rows, columns);
}

static struct rf_graph *random_graph(uint64_t seed) {
    struct pool pool = {.graph = graph_new("random"), .state = seed};
    uint64_t rows = 1 + below(&pool, 4), columns = below(&pool, 2) ? 8 : 16;
    keep(&pool, GRAPH_TENSOR(pool.graph, "x", RF_ROLE_INPUT, rows, columns), rows, columns);
    keep(&pool, GRAPH_TENSOR(pool.graph, "state", RF_ROLE_STATE, rows, columns), rows, columns);
    keep(&pool, GRAPH_CONSTANT(pool.graph, "constant", seed, rows, columns), rows, columns);
    for (uint64_t n = 4 + below(&pool, 40); n-- > 0;) add_random(&pool);
    for (uint64_t n = below(&pool, 4); n-- > 0;) {
        rf_tensor_id id = pool.ids[below(&pool, (uint64_t)pool.count)];
        if (pool.graph->tensors[id - 1].role == RF_ROLE_RESULT) RF_ASSERT_OK(rf_graph_add_output(pool.graph, id));
    }
    return pool.graph;
}

/* Runs one pass after the other in a seeded order, each over the graph of the one before. */
RF_TEST(optimize, in_any_order) {
    for (uint64_t seed = 1001; seed <= 1150; seed++) {
        enum { ROUNDS = 8 };
        struct rf_graph *graphs[ROUNDS + 1] = {random_graph(seed)};
        uint64_t state = seed;
        if (!graphs[0]->node_count) {
            rf_graph_destroy(&graphs[0]);
            continue;
        }
        RF_ASSERT_OK(rf_graph_finish(graphs[0]));
        for (int i = 0; i < ROUNDS; i++) {
            unsigned pass = 1u << rf_op_random(&state) % 6;
            RF_ASSERT_OK(rf_graph_optimize(graphs[i], pass, &graphs[i + 1], NULL, NULL));
            const char *difference = graph_difference(graphs[0], graphs[i + 1], seed, 1e-4);
            if (difference) RF_NOTE("seed %llu, round %d: %s", (unsigned long long)seed, i, difference);
            RF_ASSERT_NULL(difference);
        }
        for (int i = ROUNDS; i >= 0; i--) rf_graph_destroy(&graphs[i]); /* each borrows from those before it */
    }
}

RF_TEST(optimize, random_graphs) {
    size_t changes[6] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rf_graph *graph = random_graph(seed);
        if (!graph->node_count) {
            rf_graph_destroy(&graph);
            continue;
        }
        RF_ASSERT_OK(rf_graph_finish(graph));
        for (int pass = 0; pass <= 7; pass++) {
            /* Each pass alone, all passes, and a random set. */
            uint64_t state = seed;
            unsigned passes = pass < 6    ? 1u << pass
                              : pass == 6 ? (unsigned)RF_PASSES_ALL
                                          : (unsigned)(rf_op_random(&state) % 64);
            struct rf_graph *out = NULL;
            struct rf_pass_report report[6];
            size_t count = 0;
            RF_ASSERT_OK(rf_graph_optimize(graph, passes, &out, report, &count));
            for (size_t i = 0; i < count; i++)
                for (int bit = 0; bit < 6; bit++)
                    if ((int)report[i].pass == 1 << bit) changes[bit] += report[i].changes;
            const char *difference = graph_difference(graph, out, seed, passes & RF_PASS_FUSE ? 1e-4 : 0);
            if (difference) {
                char *text = graph_text(graph, RF_GRAPH_TEXT), *text_out = graph_text(out, RF_GRAPH_TEXT);
                RF_NOTE("seed %llu, passes 0x%x: %s\n%s%s", (unsigned long long)seed, passes, difference, text,
                        text_out);
                free(text);
                free(text_out);
            }
            RF_ASSERT_NULL(difference);
            rf_graph_destroy(&out);
        }
        rf_graph_destroy(&graph);
    }
    /* The graphs give every pass something to do, except the pass for dead nodes, which other passes leave behind. */
    for (int bit = 0; bit < 6; bit++) RF_NOTE("%s: %zu", rf_pass_name((enum rf_pass)(1 << bit)), changes[bit]);
    for (int bit = 1; bit < 6; bit++) RF_ASSERT(changes[bit] > 50);
}
