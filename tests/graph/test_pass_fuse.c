/* Fusion: each pattern on a graph made for it, and what it must leave alone. */
#include "pass_testing.h"

#include "cpu/ref_sampling.h"

RF_TEST(pass_fuse, scales) {
    struct rf_graph *graph = graph_new("scales"), *out;
    rf_tensor_id q = INPUT(graph, "q", 1, 2, 3, 8), k = INPUT(graph, "k", 1, 2, 5, 8),
                 s = GRAPH_VALUE(graph, 1, 2, 3, 5);
    rf_tensor_id scaled = VALUE(graph, "scaled", 1, 2, 3, 5), x = INPUT(graph, "x", 1, 2, 3, 5),
                 a = GRAPH_VALUE(graph, 1, 2, 3, 5);
    rf_tensor_id b = GRAPH_VALUE(graph, 1, 2, 3, 5), mask = INPUT(graph, "mask", 1, 3, 5);
    GRAPH_NODE(graph, NULL, "qkt_matmul", F0(0.5), q, k, s);
    GRAPH_NODE(graph, NULL, "scale", F0(3), s, scaled);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, a);
    GRAPH_NODE(graph, NULL, "scale", F0(0.25), a, b);
    GRAPH_NODE(graph, NULL, "softmax_mask", F0(0.7), b, mask, VALUE(graph, "soft", 1, 2, 3, 5));
    out = after(graph, RF_PASS_FUSE, 3, 2);
    RF_ASSERT_TEXT(maker(out, "scaled"), "qkt_matmul");
    RF_ASSERT_DOUBLE(out->nodes[0].attributes.scale, 1.5, 1e-7);
    RF_ASSERT_DOUBLE(out->nodes[1].attributes.scale, 0.35, 1e-7);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
RF_TEST(pass_fuse, scales_that_have_no_product) {
    struct rf_graph *graph = graph_new("scales");
    rf_tensor_id x = INPUT(graph, "x", 4), a = GRAPH_VALUE(graph, 4), b = GRAPH_VALUE(graph, 4);
    GRAPH_NODE(graph, NULL, "scale", F0(1e-30), x, a);
    GRAPH_NODE(graph, NULL, "scale", F0(1e-30), a, VALUE(graph, "tiny", 4));
    GRAPH_NODE(graph, NULL, "scale", F0(1e30), x, b);
    GRAPH_NODE(graph, NULL, "scale", F0(1e30), b, VALUE(graph, "huge", 4));
    expect(graph, RF_PASS_FUSE, 0, 4);
}

RF_TEST(pass_fuse, residual) {
    struct rf_graph *graph = graph_new("residual"), *out;
    rf_tensor_id x = INPUT(graph, "x", 3, 8), r = INPUT(graph, "r", 3, 5), w = GRAPH_CONSTANT(graph, "w", 1, 5, 8);
    rf_tensor_id bias = GRAPH_CONSTANT(graph, "bias", 2, 5), a = GRAPH_VALUE(graph, 3, 5),
                 b = GRAPH_VALUE(graph, 3, 5);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, bias, a);
    GRAPH_NODE(graph, NULL, "add", NONE, a, r, VALUE(graph, "y", 3, 5));
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, 0, b);
    GRAPH_NODE(graph, NULL, "add", NONE, r, b, VALUE(graph, "z", 3, 5)); /* the operands in the other order */
    out = after(graph, RF_PASS_FUSE, 2, 2);
    RF_ASSERT_TEXT(maker(out, "y"), "matmul");
    RF_ASSERT_TEXT(maker(out, "z"), "matmul");
    RF_ASSERT_UINT(out->nodes[0].tensors[3], rf_graph_find(out, "r") - 1);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
/* The product is read elsewhere, or is an output, or has a residual already. */
RF_TEST(pass_fuse, residual_that_does_not_fit) {
    struct rf_graph *graph = graph_new("residual");
    rf_tensor_id x = INPUT(graph, "x", 3, 8), r = INPUT(graph, "r", 3, 5), w = GRAPH_CONSTANT(graph, "w", 1, 5, 8);
    rf_tensor_id a = GRAPH_VALUE(graph, 3, 5), b = GRAPH_VALUE(graph, 3, 5), c = GRAPH_VALUE(graph, 3, 5);
    rf_tensor_id d = GRAPH_VALUE(graph, 3, 5), part = GRAPH_VIEW(graph, "part", d, 0, 5);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, a);
    GRAPH_NODE(graph, NULL, "add", NONE, a, r, VALUE(graph, "y", 3, 5));
    GRAPH_NODE(graph, NULL, "scale", F0(2), a, VALUE(graph, "again", 3, 5));
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, b);
    GRAPH_NODE(graph, NULL, "add", NONE, b, r, VALUE(graph, "z", 3, 5));
    RF_ASSERT_OK(rf_graph_add_output(graph, b));
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, 0, r, c);
    GRAPH_NODE(graph, NULL, "add", NONE, c, r, VALUE(graph, "u", 3, 5));
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, d);
    GRAPH_NODE(graph, NULL, "add", NONE, d, r, VALUE(graph, "v", 3, 5));
    GRAPH_NODE(graph, NULL, "scale", F0(2), part, VALUE(graph, "of_part", 5));
    expect(graph, RF_PASS_FUSE, 0, 10);
}
/* The sum would read x after x was changed. */
RF_TEST(pass_fuse, not_across_an_update) {
    struct rf_graph *graph = graph_new("update");
    rf_tensor_id s = GRAPH_TENSOR(graph, "s", RF_ROLE_STATE, 1, 1, 4, 4), x = GRAPH_VIEW(graph, "x", s, 0, 4, 4);
    rf_tensor_id w = GRAPH_CONSTANT(graph, "w", 1, 4, 4), a = GRAPH_VALUE(graph, 4, 4), r = INPUT(graph, "r", 4, 4);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, a);
    GRAPH_NODE(graph, NULL, "causal_mask", NONE, s);
    GRAPH_NODE(graph, NULL, "add", NONE, a, r, VALUE(graph, "y", 4, 4));
    expect(graph, RF_PASS_FUSE, 0, 3);
}

RF_TEST(pass_fuse, multiply_add) {
    struct rf_graph *graph = graph_new("fma"), *out;
    rf_tensor_id a = INPUT(graph, "a", 3, 4), b = INPUT(graph, "b", 3, 4), c = INPUT(graph, "c", 3, 4),
                 p = GRAPH_VALUE(graph, 3, 4);
    GRAPH_NODE(graph, NULL, "multiply", NONE, a, b, p);
    GRAPH_NODE(graph, NULL, "add", NONE, c, p, VALUE(graph, "y", 3, 4));
    out = after(graph, RF_PASS_FUSE, 1, 1);
    RF_ASSERT_TEXT(maker(out, "y"), "multiply");
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* silu(x w1^T) * (x w2^T) for one token and for many. */
static void gate(uint64_t rows, size_t changes, size_t nodes, const char *op) {
    struct rf_graph *graph = graph_new("gate"), *out;
    rf_tensor_id x = INPUT(graph, "x", rows, 8), w1 = GRAPH_CONSTANT(graph, "w1", 1, 6, 8),
                 w2 = GRAPH_CONSTANT(graph, "w2", 2, 6, 8);
    rf_tensor_id g = GRAPH_VALUE(graph, rows, 6), u = GRAPH_VALUE(graph, rows, 6), act = GRAPH_VALUE(graph, rows, 6);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w1, g);
    GRAPH_NODE(graph, NULL, "activation", I0(0), g, 0, act);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, w2, u);
    GRAPH_NODE(graph, NULL, "multiply", NONE, u, act, VALUE(graph, "y", rows, 6));
    out = after(graph, RF_PASS_FUSE, changes, nodes);
    RF_ASSERT_TEXT(maker(out, "y"), op);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
RF_TEST(pass_fuse, gate_of_one_token) {
    gate(1, 2, 1, "matmul_gate");
}
RF_TEST(pass_fuse, gate_of_many_tokens_stays_in_tiles) {
    gate(100, 1, 3, "activation");
}
RF_TEST(pass_fuse, gate_of_another_kind) {
    struct rf_graph *graph = graph_new("gelu");
    rf_tensor_id x = INPUT(graph, "x", 2, 8), y = INPUT(graph, "y", 2, 8), w1 = GRAPH_CONSTANT(graph, "w1", 1, 6, 8),
                 w2 = GRAPH_CONSTANT(graph, "w2", 2, 6, 8);
    for (int i = 0; i < 2; i++) { /* gelu; silu, but of two different inputs */
        rf_tensor_id g = GRAPH_VALUE(graph, 2, 6), u = GRAPH_VALUE(graph, 2, 6);
        GRAPH_NODE(graph, NULL, "matmul", NONE, x, w1, g);
        GRAPH_NODE(graph, NULL, "matmul", NONE, i ? y : x, w2, u);
        GRAPH_NODE(graph, NULL, "activation", I0(!i), g, u, GRAPH_VALUE(graph, 2, 6));
    }
    expect(graph, RF_PASS_FUSE, 0, 6);
}

RF_TEST(pass_fuse, add_norm) {
    struct rf_graph *graph = graph_new("norm"), *out;
    rf_tensor_id a = INPUT(graph, "a", 3, 8), b = INPUT(graph, "b", 3, 8), w = GRAPH_CONSTANT(graph, "w", 1, 8),
                 sum = VALUE(graph, "sum", 3, 8);
    GRAPH_NODE(graph, NULL, "add", NONE, a, b, sum);
    GRAPH_NODE(graph, NULL, "scale", F0(2), sum,
               VALUE(graph, "other", 3, 8)); /* the sum is read elsewhere: the fused node must produce it */
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), sum, w, VALUE(graph, "y", 3, 8));
    out = after(graph, RF_PASS_FUSE, 1, 2);
    RF_ASSERT_TEXT(maker(out, "y"), "add_norm");
    RF_ASSERT_TEXT(maker(out, "sum"), "add_norm");
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
/* The weight depends on the sum: one fused node would depend on itself. */
RF_TEST(pass_fuse, add_norm_by_itself) {
    struct rf_graph *graph = graph_new("norm");
    rf_tensor_id a = INPUT(graph, "a", 1, 8), b = INPUT(graph, "b", 1, 8), sum = VALUE(graph, "sum", 1, 8);
    rf_tensor_id w = VALUE(graph, "w", 8), flat = GRAPH_VIEW(graph, "flat", sum, 0, 8);
    GRAPH_NODE(graph, NULL, "add", NONE, a, b, sum);
    GRAPH_NODE(graph, NULL, "scale", F0(2), flat, w);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), sum, w, VALUE(graph, "y", 1, 8));
    expect(graph, RF_PASS_FUSE, 0, 3);
}

/* Attention in pieces, with or without a mask, over a view of the scores as rows. */
static struct rf_graph *attention(bool masked, bool wanted) {
    struct rf_graph *graph = graph_new("attention");
    rf_tensor_id q = INPUT(graph, "q", 2, 4, 5, 8), k = INPUT(graph, "k", 2, 2, 7, 8),
                 v = INPUT(graph, "v", 2, 2, 7, 8);
    rf_tensor_id s = VALUE(graph, "s", 2, 4, 5, 7), rows = GRAPH_VIEW(graph, "rows", s, 0, 40, 7);
    rf_tensor_id p = VALUE(graph, "p", 40, 7), weights = GRAPH_VIEW(graph, "weights", p, 0, 2, 4, 5, 7);
    GRAPH_NODE(graph, NULL, "qkt_matmul", F0(0.35), q, k, s);
    if (masked) GRAPH_NODE(graph, NULL, "causal_mask", I0(2), s);
    GRAPH_NODE(graph, NULL, "softmax", NONE, rows, p);
    GRAPH_NODE(graph, NULL, "weighted_matmul", NONE, weights, v, VALUE(graph, "y", 2, 4, 5, 8));
    if (wanted) RF_ASSERT_OK(rf_graph_add_output(graph, p));
    return graph;
}
RF_TEST(pass_fuse, attention) {
    for (int masked = 0; masked < 2; masked++) {
        struct rf_graph *graph = attention(masked, false), *out = after(graph, RF_PASS_FUSE, 1, 1);
        RF_ASSERT_TEXT(maker(out, "y"), "flash_attention");
        RF_ASSERT_INT(out->nodes[0].attributes.causal, masked);
        rf_graph_destroy(&out);
        rf_graph_destroy(&graph);
        expect(attention(masked, true), RF_PASS_FUSE, 0, masked ? 4 : 3); /* the weights are an output */
    }
}

/* With softmax_mask, its scale and its mask are fused too; a mask of f16 cannot be. */
RF_TEST(pass_fuse, attention_with_a_mask) {
    for (int kind = 0; kind < 4; kind++) { /* no mask, one for all, one for each batch, f16 */
        struct rf_graph *graph = graph_new("attention"), *out;
        rf_tensor_id q = INPUT(graph, "q", 2, 4, 5, 8), k = INPUT(graph, "k", 2, 2, 7, 8);
        rf_tensor_id v = INPUT(graph, "v", 2, 2, 7, 8), s = VALUE(graph, "s", 2, 4, 5, 7);
        rf_tensor_id p = VALUE(graph, "p", 2, 4, 5, 7), m = 0;
        if (kind) m = GRAPH_TENSOR(graph, "m", RF_ROLE_INPUT, kind == 1 ? 1 : 2, 5, 7);
        if (kind == 3) {
            rf_tensor_id half = graph_tensor_of(graph, "half", RF_ROLE_RESULT, RF_F16, NULL, SIZES(2, 5, 7));
            GRAPH_NODE(graph, NULL, "copy", NONE, m, half);
            m = half;
        }
        GRAPH_NODE(graph, NULL, "qkt_matmul", F0(0.5), q, k, s);
        GRAPH_NODE(graph, NULL, "softmax_mask", F0(0.7), s, m, p);
        GRAPH_NODE(graph, NULL, "weighted_matmul", NONE, p, v, VALUE(graph, "y", 2, 4, 5, 8));
        out = after(graph, RF_PASS_FUSE, kind < 3, kind < 3 ? 1 : 4);
        RF_ASSERT_TEXT(maker(out, "y"), kind < 3 ? "flash_attention" : "weighted_matmul");
        rf_graph_destroy(&out);
        rf_graph_destroy(&graph);
    }
}

/* Moves positions on, as the graph of a token does at its end. */
static void advance(struct rf_graph *graph, rf_tensor_id positions, uint64_t tokens) {
    static const char *const names[] = {"drawn", "settings", "tokens", "", "lengths", "random", "window"};
    rf_tensor_id made[8] = {[3] = positions};
    for (int i = 0; i < 7; i++) {
        uint64_t columns = i == 1 ? sizeof(struct rf_sample_settings) / 4 : i == 5 ? 4 : 64;
        if (i != 3)
            made[i] = i == 1 || i > 4
                          ? graph_tensor_of(graph, names[i], RF_ROLE_INPUT, RF_I32, NULL, SIZES(tokens, columns))
                          : graph_tensor_of(graph, names[i], RF_ROLE_INPUT, RF_I32, NULL, SIZES(tokens));
    }
    made[7] = graph_tensor_of(graph, "ring", RF_ROLE_STATE, RF_I32, NULL, SIZES(tokens, 8, 2));
    GRAPH_NODE(graph, NULL, "advance", NONE, made[0], made[1], made[2], made[3], made[4], made[5], made[6], made[7]);
}

RF_TEST(pass_fuse, rope_into_the_cache) {
    static const uint64_t steps[4] = {UINT64_C(1) << 60, UINT64_C(1) << 57, 12345678901234567u, 42};
    struct rf_graph *graph = graph_new("rope"), *out;
    rf_tensor_id k = INPUT(graph, "k", 2, 2, 8), v = INPUT(graph, "v", 2, 2, 8), turned = GRAPH_VALUE(graph, 2, 2, 8);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(2));
    rf_tensor_id turns = graph_tensor_of(graph, "turns", RF_ROLE_CONSTANT, RF_I32, steps, SIZES(4, 2));
    rf_tensor_id kc = GRAPH_TENSOR(graph, "kc", RF_ROLE_STATE, 1, 2, 8, 8),
                 vc = GRAPH_TENSOR(graph, "vc", RF_ROLE_STATE, 1, 2, 8, 8);
    GRAPH_NODE(graph, NULL, "rope", ((struct graph_attributes){1, 1, 0}), k, at, turns, turned);
    GRAPH_NODE(graph, "append", "kv_append", F0(1), turned, v, at, 0, 0, 0, kc, vc);
    out = after(graph, RF_PASS_FUSE, 1, 1);
    RF_ASSERT_INT(out->nodes[0].attributes.halves, 1);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}

/* Queries of a few tokens are rotated together with their keys; `read`: a node between the two reads the cache. */
static void rope_append(uint64_t tokens, int group, bool other_positions, bool read, bool advances, size_t fused) {
    static const uint64_t steps[4] = {UINT64_C(1) << 60, UINT64_C(1) << 57, 12345678901234567u, 42};
    struct rf_graph *graph = graph_new("append"), *out;
    rf_tensor_id k = INPUT(graph, "k", tokens, 2, 8), v = INPUT(graph, "v", tokens, 2, 8);
    rf_tensor_id q = INPUT(graph, "q", tokens, 4, 8), turned = GRAPH_VALUE(graph, tokens, 4, 8);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(tokens));
    rf_tensor_id later = graph_tensor_of(graph, "later", RF_ROLE_INPUT, RF_I32, NULL, SIZES(tokens));
    rf_tensor_id turns = graph_tensor_of(graph, "turns", RF_ROLE_CONSTANT, RF_I32, steps, SIZES(4, 2));
    rf_tensor_id kc = GRAPH_TENSOR(graph, "kc", RF_ROLE_STATE, 1, 2, 32, 8),
                 vc = GRAPH_TENSOR(graph, "vc", RF_ROLE_STATE, 1, 2, 32, 8);
    GRAPH_NODE(graph, NULL, "kv_append", ((struct graph_attributes){1, 1, 0}), k, v, at, 0, 0, turns, kc, vc);
    if (read) GRAPH_NODE(graph, NULL, "scale", F0(2), vc, VALUE(graph, "seen", 1, 2, 32, 8));
    GRAPH_NODE(graph, NULL, "rope", ((struct graph_attributes){1, 1, 0}), q, other_positions ? later : at, turns,
               turned);
    graph->nodes[0].group = group;
    if (advances) advance(graph, at, tokens);
    out = after(graph, RF_PASS_FUSE, fused, (size_t)2 + read + advances - fused);
    if (fused) {
        RF_ASSERT_TEXT(out->nodes[0].op->name, "rope_append");
        RF_ASSERT_INT(out->nodes[0].attributes.halves, 1);
    }
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
RF_TEST(pass_fuse, queries_of_few_tokens_with_their_keys) {
    rope_append(2, 0, false, false, false, 1);
    rope_append(16, 0, false, false, false, 1);
    rope_append(17, 0, false, false, false, 0);
    rope_append(2, 0, true, false, false, 0);
    rope_append(2, 0, false, true, false, 0);
    rope_append(2, 7, false, false, false, 0); /* another group may be placed elsewhere */
    rope_append(2, 0, false, false, true, 1);  /* the positions change, but later */
}

/* What a layer begins with, up to its attention: keys and values first, then queries, as models are built. */
static void qkv_append(uint64_t tokens, int group, rf_tensor_id *(*reads)(rf_tensor_id *made), const char *first,
                       size_t nodes) {
    static const uint64_t steps[4] = {UINT64_C(1) << 60, UINT64_C(1) << 57, 12345678901234567u, 42};
    static uint16_t numbers[3][16 * 8];
    for (int i = 0; i < 3 * 16 * 8; i++)
        numbers[i / 128][i % 128] = (uint16_t)((i % 3 ? 0x3800 : 0xb400) + i * 7 % 0x300);
    struct rf_graph *graph = graph_new("qkv"), *out = NULL;
    rf_tensor_id x = INPUT(graph, "x", tokens, 8), norm = GRAPH_CONSTANT(graph, "norm", 1, 8);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(tokens));
    rf_tensor_id turns = graph_tensor_of(graph, "turns", RF_ROLE_CONSTANT, RF_I32, steps, SIZES(4, 2));
    rf_tensor_id kc = GRAPH_TENSOR(graph, "kc", RF_ROLE_STATE, 1, 1, 512, 8),
                 vc = GRAPH_TENSOR(graph, "vc", RF_ROLE_STATE, 1, 1, 512, 8);
    rf_tensor_id w[3], made[4] = {GRAPH_VALUE(graph, tokens, 8)}; /* normed, k, v, q */
    for (int i = 0; i < 3; i++) {
        w[i] = graph_tensor_of(graph,
                               i == 0   ? "wk"
                               : i == 1 ? "wv"
                                        : "wq",
                               RF_ROLE_CONSTANT, RF_F16, numbers[i], SIZES(i == 2 ? 16 : 8, 8));
        made[1 + i] = GRAPH_VALUE(graph, tokens, i == 2 ? 16 : 8);
    }
    rf_tensor_id k = GRAPH_VIEW(graph, "k", made[1], 0, tokens, 1, 8),
                 v = GRAPH_VIEW(graph, "v", made[2], 0, tokens, 1, 8);
    rf_tensor_id q = GRAPH_VIEW(graph, "q", made[3], 0, tokens, 2, 8), turned_k = GRAPH_VALUE(graph, tokens, 1, 8);
    rf_tensor_id turned = VALUE(graph, "turned", tokens, 2, 8);
    GRAPH_NODE(graph, NULL, "rms_norm", F0(1e-5), x, norm, made[0]);
    for (int i = 0; i < 2; i++) GRAPH_NODE(graph, NULL, "matmul", NONE, made[0], w[i], made[1 + i]);
    GRAPH_NODE(graph, NULL, "rope", ((struct graph_attributes){1, 1, 0}), k, at, turns, turned_k);
    GRAPH_NODE(graph, NULL, "kv_append", F0(1), turned_k, v, at, 0, 0, 0, kc, vc);
    GRAPH_NODE(graph, NULL, "matmul", NONE, made[0], w[2], made[3]);
    GRAPH_NODE(graph, NULL, "rope", ((struct graph_attributes){1, 1, 0}), q, at, turns, turned);
    if (group) graph->nodes[6].group = graph->nodes[4].group = graph->nodes[3].group = group;
    if (reads) GRAPH_NODE(graph, NULL, "scale", F0(2), *reads(made), VALUE(graph, "read", tokens, 8));
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT_OK(rf_graph_optimize(graph, RF_PASS_FUSE, &out, NULL, NULL));
    RF_EXPECT_UINT(out->node_count, nodes);
    RF_EXPECT_TEXT(out->nodes[0].op->name, first);
    if (!strcmp(first, "norm_qkv_append")) {
        RF_EXPECT_INT(out->nodes[0].attributes.halves, 1);
        RF_EXPECT_DOUBLE(out->nodes[0].attributes.eps, 1e-5, 1e-12);
    }
    const char *differs = graph_difference(graph, out, 3, 1e-5);
    if (differs) RF_NOTE("%s", differs);
    RF_EXPECT(!differs);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
static rf_tensor_id *normed_of(rf_tensor_id *made) {
    return &made[0];
}
static rf_tensor_id *values_of(rf_tensor_id *made) {
    return &made[2];
}
RF_TEST(pass_fuse, the_begin_of_a_layer) {
    qkv_append(1, 0, NULL, "norm_qkv_append", 1);
    qkv_append(2, 0, NULL, "rms_norm", 5); /* more than one token */
    /* Another node reads the normalized row, or a product. */
    qkv_append(1, 0, normed_of, "norm_qkv", 3);
    qkv_append(1, 0, values_of, "norm_qkv", 3);
    qkv_append(1, 7, NULL, "norm_qkv", 2); /* another group may be placed elsewhere */
}

/* A row that is widened to f32 only for a product. */
static void cast_matmul(uint64_t rows, enum rf_dtype weights, bool bias, bool twice, size_t fused) {
    static const uint16_t numbers[4 * 8];
    static const float wide[4 * 8];
    struct rf_graph *graph = graph_new("cast"), *out = NULL;
    rf_tensor_id x = graph_tensor_of(graph, "x", RF_ROLE_INPUT, RF_F16, NULL, SIZES(rows, 8));
    rf_tensor_id w = graph_tensor_of(graph, "w", RF_ROLE_CONSTANT, weights,
                                     weights == RF_F32 ? (const void *)wide : numbers, SIZES(4, 8));
    rf_tensor_id b = GRAPH_CONSTANT(graph, "b", 1, 4), cast = GRAPH_VALUE(graph, rows, 8);
    rf_tensor_id residual = INPUT(graph, "r", rows, 4), y = VALUE(graph, "y", rows, 4);
    GRAPH_NODE(graph, NULL, "copy", NONE, x, cast);
    GRAPH_NODE(graph, NULL, "matmul", NONE, cast, w, bias ? b : 0, residual, y);
    if (twice) GRAPH_NODE(graph, NULL, "scale", F0(2), cast, VALUE(graph, "again", rows, 8));
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT_OK(rf_graph_optimize(graph, RF_PASS_FUSE, &out, NULL, NULL));
    RF_ASSERT_UINT(out->node_count, 2 + twice - fused);
    if (fused) RF_ASSERT_TEXT(out->nodes[0].op->name, "cast_matmul");
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
RF_TEST(pass_fuse, cast_into_a_product) {
    cast_matmul(1, RF_F16, false, false, 1);
    cast_matmul(2, RF_F16, false, false, 0);
    cast_matmul(1, RF_F32, false, false, 0);
    cast_matmul(1, RF_F16, true, false, 0);
    cast_matmul(1, RF_F16, false, true, 0);
}
