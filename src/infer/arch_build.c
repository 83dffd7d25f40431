/* See arch_build.h. Graphs are built in the op table's fused forms: products take bias and residual, keys are
 * rotated as they are put into the cache, few tokens' queries with them, the feed-forward's two products and their
 * gate are one op for few rows.
 *
 * Invariants:
 *   - what rf_arch_check_weights passed is here by name and shape; nothing is checked twice but by the graph
 *   - values have builder->rows rows, from the embedding to the last layer's attention all tokens, then those wanted
 *   - a layer's keys are appended before its attention, so the graph keeps that order
 * Must not: read the data of a weight. */
#include "infer/arch_build.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "ops/gpu_matmul.h"
#include "infer/arch_impl.h"

enum { NAME_BYTES = 96 };
enum { APPEND_TOKENS = 16 }; /* of so few, queries are rotated with the keys; of many by themselves, in place */

static bool in_layer(const struct rf_builder *builder) {
    return builder->group >= RF_GROUP_LAYER && builder->group < rf_group_output(builder->hparams);
}
static bool last_layer(const struct rf_builder *builder) {
    return in_layer(builder) && builder->layer + 1 == builder->hparams->layers;
}

/* "blk.N.name" in a layer, else the name itself. */
static const char *full_name(const struct rf_builder *builder, const char *name, const char *end,
                             char text[NAME_BYTES]) {
    if (in_layer(builder))
        snprintf(text, NAME_BYTES, "blk.%u%s%s%s", builder->layer, *name ? "." : "", name, end);
    else
        snprintf(text, NAME_BYTES, "%s%s", name, end);
    return text;
}

/* ---- tensors ---- */

static struct rf_tensor_desc describe(enum rf_dtype dtype, int rank, const uint64_t *dimensions) {
    struct rf_tensor_desc desc = {.dtype = dtype, .rank = rank};
    memcpy(desc.shape, dimensions, (size_t)rank * sizeof *dimensions);
    return desc;
}
static struct rf_tensor_desc matrix(enum rf_dtype dtype, uint64_t rows, uint64_t columns) {
    return describe(dtype, 2, (uint64_t[]){rows, columns});
}

static rf_tensor_id add_tensor(struct rf_builder *builder, struct rf_graph_tensor tensor) {
    rf_tensor_id id = 0;
    tensor.struct_size = sizeof tensor;
    if (!builder->status) builder->status = rf_graph_add_tensor(builder->graph, &tensor, &id);
    return builder->status ? 0 : id;
}

static rf_tensor_id add_input(struct rf_builder *builder, const char *name, int rank, const uint64_t *dimensions) {
    return add_tensor(builder, (struct rf_graph_tensor){
                                   .name = name, .role = RF_ROLE_INPUT, .desc = describe(RF_I32, rank, dimensions)});
}

static rf_tensor_id add_view(struct rf_builder *builder, rf_tensor_id of, struct rf_tensor_desc desc) {
    if (!of) return 0;
    return add_tensor(builder, (struct rf_graph_tensor){.layout = RF_LAYOUT_STRIDED, .desc = desc, .view_of = of});
}

/* A [rows, heads * head_width] matrix as [rows, heads, head_width]. */
static rf_tensor_id view_heads(struct rf_builder *builder, rf_tensor_id x, uint32_t heads) {
    return add_view(builder, x,
                    describe(RF_F32, 3, (uint64_t[]){builder->rows, heads, builder->hparams->head_width}));
}

/* The last of [rows, columns], as many as are wanted. */
static rf_tensor_id view_last(struct rf_builder *builder, rf_tensor_id x, uint64_t columns, uint64_t wanted) {
    struct rf_tensor_desc desc = matrix(RF_F32, wanted, columns);
    desc.byte_offset = (builder->rows - wanted) * columns * sizeof(float);
    return add_view(builder, x, desc);
}

/* Queries and what attention makes of them: [sequences, heads, rows, head_width] in the memory of
 * [sequences * rows, heads * head_width]. */
static struct rf_tensor_desc describe_heads(const struct rf_builder *builder, enum rf_dtype dtype) {
    uint64_t sequences = builder->shape->sequences, rows = builder->rows / sequences;
    uint64_t heads = builder->hparams->heads, width = builder->hparams->head_width;
    struct rf_tensor_desc desc = describe(dtype, 4, (uint64_t[]){sequences, heads, rows, width});
    memcpy(desc.strides, (uint64_t[]){rows * heads * width, width, heads * width, 1}, 4 * sizeof *desc.strides);
    return desc;
}

/* A weight of the file; added when it is first used. rank 1: a vector. */
static rf_tensor_id add_weight(struct rf_builder *builder, const char *name, int rank, uint64_t *rows) {
    if (builder->status) return 0;
    const struct rf_gguf_tensor *weight = rf_gguf_find_tensor(builder->gguf, name);
    if (!weight) {
        builder->status = rf_fail(RF_E_NOT_FOUND, "%s: has no tensor \"%s\"", rf_gguf_path(builder->gguf), name);
        return 0;
    }
    uint64_t columns = weight->shape[weight->rank - 1];
    if (rows) *rows = weight->elements / columns;
    rf_tensor_id id = rf_graph_find(builder->graph, name);
    if (id) return id;
    struct rf_tensor_desc desc = rank == 1 ? describe(weight->dtype, 1, &weight->elements)
                                           : matrix(weight->dtype, weight->elements / columns, columns);
    return add_tensor(
        builder,
        (struct rf_graph_tensor){
            .name = name, .role = RF_ROLE_CONSTANT, .desc = desc, .data = weight->data, .group = builder->group});
}
/* 0 without a failure where the file has none. */
static rf_tensor_id add_bias(struct rf_builder *builder, const char *name) {
    char text[NAME_BYTES];
    full_name(builder, name, ".bias", text);
    return rf_gguf_find_tensor(builder->gguf, text) ? add_weight(builder, text, 1, NULL) : 0;
}

static rf_tensor_id add_cache(struct rf_builder *builder, const char *which) {
    const struct rf_graph_shape *shape = builder->shape;
    const struct rf_hparams *hparams = builder->hparams;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", which, builder->layer);
    uint64_t dimensions[] = {shape->page_count, hparams->kv_heads, shape->page_rows, hparams->head_width};
    return add_tensor(builder, (struct rf_graph_tensor){.name = name,
                                                        .role = RF_ROLE_STATE,
                                                        .desc = describe(shape->kv_dtype, 4, dimensions),
                                                        .group = builder->group});
}

/* ---- nodes ---- */

/* What a node needs besides its tensors. */
struct step {
    const char *op, *name; /* name: after "blk.N." in a layer */
    double f;              /* attribute f[0] */
    int64_t i, i2;         /* attributes i[0], i[2] */
};

static void add_node(struct rf_builder *builder, struct step step, const rf_tensor_id *inputs, size_t count,
                     const rf_tensor_id *outputs, size_t output_count) {
    char name[NAME_BYTES];
    RF_PARAMS(struct rf_graph_node, node);
    if (builder->status) return;
    node.op = step.op;
    node.name = full_name(builder, step.name, "", name);
    node.f[0] = step.f;
    node.i[0] = step.i;
    node.i[2] = step.i2;
    node.inputs = inputs;
    node.input_count = count;
    node.outputs = outputs;
    node.output_count = output_count;
    node.group = builder->group;
    builder->status = rf_graph_add_node(builder->graph, &node, NULL);
}

/* A node with one output, described and perhaps named. */
static rf_tensor_id add_value(struct rf_builder *builder, struct step step, const rf_tensor_id *inputs, size_t count,
                              struct rf_tensor_desc desc, const char *result) {
    rf_tensor_id out =
        add_tensor(builder, (struct rf_graph_tensor){.name = result, .layout = RF_LAYOUT_STRIDED, .desc = desc});
    add_node(builder, step, inputs, count, &out, 1);
    return builder->status ? 0 : out;
}

static rf_tensor_id norm_rows(struct rf_builder *builder, rf_tensor_id x, const char *name, uint64_t rows) {
    char text[NAME_BYTES];
    if (!x) return 0;
    rf_tensor_id weight = add_weight(builder, full_name(builder, name, ".weight", text), 1, NULL);
    if (!weight) return 0;
    uint64_t columns = rf_gguf_find_tensor(builder->gguf, text)->elements;
    return add_value(builder,
                     (struct step){.op = "rms_norm", .name = name, .f = (double)builder->hparams->norm_epsilon},
                     (rf_tensor_id[]){x, weight}, 2, matrix(RF_F32, rows, columns), NULL);
}
rf_tensor_id rf_build_norm(struct rf_builder *builder, rf_tensor_id x, const char *name) {
    return norm_rows(builder, x, name, builder->rows);
}

/* The product with a weight by its whole name. */
static rf_tensor_id multiply(struct rf_builder *builder, rf_tensor_id x, const char *weight_name, const char *name,
                             rf_tensor_id bias, rf_tensor_id residual, const char *result) {
    uint64_t columns = 0;
    if (!x) return 0;
    rf_tensor_id weight = add_weight(builder, weight_name, 2, &columns);
    return add_value(builder, (struct step){.op = "matmul", .name = name},
                     (rf_tensor_id[]){x, weight, bias, residual}, 4, matrix(RF_F32, builder->rows, columns), result);
}
rf_tensor_id rf_build_product(struct rf_builder *builder, rf_tensor_id x, const char *name, rf_tensor_id residual,
                              const char *result) {
    char weight[NAME_BYTES], made[NAME_BYTES];
    if (!x) return 0;
    return multiply(builder, x, full_name(builder, name, ".weight", weight), name, add_bias(builder, name), residual,
                    result ? full_name(builder, result, "", made) : NULL);
}

static rf_tensor_id cast(struct rf_builder *builder, rf_tensor_id x, const char *name, enum rf_dtype dtype) {
    uint64_t columns = (uint64_t)builder->hparams->heads * builder->hparams->head_width;
    if (!x) return 0;
    return add_value(builder, (struct step){.op = "copy", .name = name}, &x, 1, matrix(dtype, builder->rows, columns),
                     NULL);
}

/* Whether weights of the layer are of one type and have no bias: what the ops that do several products at once take.
 * With one_row also whether there is one row and the type is not f32: then what comes before them is part of it. */
static bool alike(const struct rf_builder *builder, const char *const *names, size_t count, bool one_row) {
    enum rf_dtype dtype = RF_F32;
    for (size_t i = 0; i < count; i++) {
        char text[NAME_BYTES];
        const struct rf_gguf_tensor *weight =
            rf_gguf_find_tensor(builder->gguf, full_name(builder, names[i], ".weight", text));
        if (!weight || (i && weight->dtype != dtype)) return false;
        dtype = weight->dtype;
        if (rf_gguf_find_tensor(builder->gguf, full_name(builder, names[i], ".bias", text))) return false;
    }
    return !one_row || (builder->rows == 1 && dtype != RF_F32);
}
static rf_tensor_id layer_weight(struct rf_builder *builder, const char *name, int rank) {
    char text[NAME_BYTES];
    return add_weight(builder, full_name(builder, name, ".weight", text), rank, NULL);
}

/* One row, normalized by a weight and multiplied by others; results: what is normalized, then the products. */
static void norm_products(struct rf_builder *builder, const char *op, const char *norm, rf_tensor_id x,
                          const char *const *names, size_t count, rf_tensor_id *results, const uint64_t *columns,
                          size_t result_count) {
    rf_tensor_id inputs[5] = {x, layer_weight(builder, norm, 1)};
    for (size_t i = 0; i < count; i++) inputs[2 + i] = layer_weight(builder, names[i], 2);
    for (size_t i = 0; i < result_count; i++)
        results[i] = add_tensor(builder, (struct rf_graph_tensor){.layout = RF_LAYOUT_STRIDED,
                                                                  .desc = matrix(RF_F32, builder->rows, columns[i])});
    add_node(builder, (struct step){.op = op, .name = names[0], .f = (double)builder->hparams->norm_epsilon}, inputs,
             2 + count, results, result_count);
}

/* ---- attention ---- */

/* Each head of each row by itself. */
static rf_tensor_id norm_heads(struct rf_builder *builder, rf_tensor_id x, const char *name, uint32_t heads) {
    uint64_t width = builder->hparams->head_width, rows = (uint64_t)builder->rows * heads;
    if (!builder->hparams->qk_norm) return x;
    rf_tensor_id normed = norm_rows(builder, add_view(builder, x, matrix(RF_F32, rows, width)), name, rows);
    return add_view(builder, normed, matrix(RF_F32, builder->rows, heads * width));
}

/* Attention is over one type, or over blocks of 8 bits with f32. */
static enum rf_dtype attention_type(const struct rf_builder *builder) {
    return builder->shape->kv_dtype == RF_F16 ? RF_F16 : RF_F32;
}

/* Rotated, as attention takes them. */
static struct rf_tensor_desc describe_queries(const struct rf_builder *builder) {
    const struct rf_hparams *hparams = builder->hparams;
    return describe(attention_type(builder), 3, (uint64_t[]){builder->rows, hparams->heads, hparams->head_width});
}

/* The builder's rows, which are the last ones. */
static rf_tensor_id rotate(struct rf_builder *builder, rf_tensor_id q) {
    const struct rf_hparams *hparams = builder->hparams;
    uint64_t wanted = builder->rows, skipped = builder->shape->tokens - wanted;
    rf_tensor_id positions = builder->positions;
    if (skipped)
        positions =
            add_view(builder, positions,
                     (struct rf_tensor_desc){
                         .dtype = RF_I32, .rank = 1, .shape = {wanted}, .byte_offset = skipped * sizeof(int32_t)});
    return add_value(builder,
                     (struct step){"rope", "rope_q", (double)hparams->rope_magnitude, hparams->rope_halves, 0},
                     (rf_tensor_id[]){q, positions, builder->steps}, 3, describe_queries(builder), NULL);
}

/* The output's product of what attention gave, of its type, and the residual. */
static rf_tensor_id project(struct rf_builder *builder, rf_tensor_id attended, enum rf_dtype dtype, rf_tensor_id x) {
    static const char *const names[] = {"attn_output"};
    uint64_t width = builder->hparams->width;
    uint64_t columns = (uint64_t)builder->hparams->heads * builder->hparams->head_width;
    char name[NAME_BYTES];
    if (!attended) return 0;
    if (dtype == RF_F32) return rf_build_product(builder, attended, "attn_output", x, "attn");
    if (!alike(builder, names, 1, true))
        return rf_build_product(builder, cast(builder, attended, "attention_cast", RF_F32), "attn_output", x, "attn");
    rf_tensor_id results[] = {
        add_tensor(builder, (struct rf_graph_tensor){.layout = RF_LAYOUT_STRIDED,
                                                     .desc = matrix(RF_F32, builder->rows, columns)}),
        add_tensor(builder, (struct rf_graph_tensor){.name = full_name(builder, "attn", "", name),
                                                     .layout = RF_LAYOUT_STRIDED,
                                                     .desc = matrix(RF_F32, builder->rows, width)})};
    add_node(builder, (struct step){.op = "cast_matmul", .name = "attn_output"},
             (rf_tensor_id[]){attended, layer_weight(builder, "attn_output", 2), x}, 3, results, 2);
    return builder->status ? 0 : results[1];
}

/* From rotated queries to the output's product. */
static rf_tensor_id attend(struct rf_builder *builder, rf_tensor_id q, rf_tensor_id keys, rf_tensor_id values,
                           rf_tensor_id x) {
    const struct rf_hparams *hparams = builder->hparams;
    uint64_t columns = (uint64_t)hparams->heads * hparams->head_width;
    enum rf_dtype dtype = attention_type(builder);
    q = add_view(builder, q, describe_heads(builder, dtype));
    struct step step = {"paged_attention", "attention", 1 / sqrt(hparams->head_width), builder->shape->longest,
                        builder->shape->tokens};
    rf_tensor_id out = add_value(builder, step, (rf_tensor_id[]){q, keys, values, builder->table, builder->lengths},
                                 5, describe_heads(builder, dtype), NULL);
    return project(builder, add_view(builder, out, matrix(dtype, builder->rows, columns)), dtype, x);
}

rf_tensor_id rf_build_attention(struct rf_builder *builder, rf_tensor_id x) {
    const struct rf_hparams *hparams = builder->hparams;
    const struct rf_graph_shape *shape = builder->shape;
    static const char *const names[] = {"attn_k", "attn_v", "attn_q"};
    rf_tensor_id normed = 0, k = 0, v = 0, q = 0;
    bool at_once = alike(builder, names, RF_COUNT(names), true) && !(last_layer(builder) && shape->no_logits);
    if (at_once) {
        uint64_t keys = (uint64_t)hparams->kv_heads * hparams->head_width;
        uint64_t columns[] = {hparams->width, keys, keys, (uint64_t)hparams->heads * hparams->head_width};
        rf_tensor_id results[4];
        norm_products(builder, "norm_qkv", "attn_norm", x, names, RF_COUNT(names), results, columns,
                      RF_COUNT(results));
        k = results[1], v = results[2], q = results[3];
    } else {
        normed = rf_build_norm(builder, x, "attn_norm");
        k = rf_build_product(builder, normed, "attn_k", 0, NULL);
        v = rf_build_product(builder, normed, "attn_v", 0, NULL);
    }
    k = view_heads(builder, norm_heads(builder, k, "attn_k_norm", hparams->kv_heads), hparams->kv_heads);
    v = view_heads(builder, v, hparams->kv_heads);
    rf_tensor_id keys = add_cache(builder, "cache_k"), values = add_cache(builder, "cache_v");
    rf_tensor_id append[] = {0,    k,     v, builder->positions, builder->sequences, builder->table, builder->steps,
                             keys, values};
    bool no_queries = last_layer(builder) && shape->no_logits, together = shape->tokens <= APPEND_TOKENS;
    bool fewer = !at_once && last_layer(builder) && !shape->all_logits && shape->sequences < builder->rows;
    struct step step = {"kv_append", "kv_append", (double)hparams->rope_magnitude, hparams->rope_halves, 0};
    together = together && !no_queries && !fewer;
    if (!together) add_node(builder, step, append + 1, RF_COUNT(append) - 1, NULL, 0);
    if (no_queries) return 0;
    if (fewer) {
        normed = view_last(builder, normed, hparams->width, shape->sequences);
        x = view_last(builder, x, hparams->width, shape->sequences);
        builder->rows = shape->sequences;
    }
    if (!at_once) q = rf_build_product(builder, normed, "attn_q", 0, NULL);
    q = view_heads(builder, norm_heads(builder, q, "attn_q_norm", hparams->heads), hparams->heads);
    if (together) {
        append[0] = q;
        step.op = "rope_append";
        q = add_value(builder, step, append, RF_COUNT(append), describe_queries(builder), NULL);
    } else {
        q = rotate(builder, q);
    }
    return attend(builder, q, keys, values, x);
}

/* ---- feed-forward ---- */

/* One op does gate and up together where both are alike. The GPU's goes over few rows at a time: many are better off
 * with two products. */
rf_tensor_id rf_build_feed_forward(struct rf_builder *builder, rf_tensor_id x) {
    static const char *const names[] = {"ffn_gate", "ffn_up"};
    struct rf_tensor_desc desc = matrix(RF_F32, builder->rows, builder->hparams->feed_forward);
    if (!x) return 0;
    if (alike(builder, names, RF_COUNT(names), true)) {
        uint64_t columns[] = {builder->hparams->width, builder->hparams->feed_forward};
        rf_tensor_id results[2];
        norm_products(builder, "norm_gate", "ffn_norm", x, names, RF_COUNT(names), results, columns,
                      RF_COUNT(results));
        return rf_build_product(builder, results[1], "ffn_down", x, "");
    }
    rf_tensor_id normed = rf_build_norm(builder, x, "ffn_norm"), hidden;
    if (!normed) return 0;
    if (builder->rows <= RF_MATVEC_ROWS && alike(builder, names, RF_COUNT(names), false)) {
        rf_tensor_id inputs[] = {normed, layer_weight(builder, "ffn_gate", 2), layer_weight(builder, "ffn_up", 2)};
        hidden = add_value(builder, (struct step){.op = "matmul_gate", .name = "ffn_gate"}, inputs, 3, desc, NULL);
    } else {
        rf_tensor_id inputs[] = {rf_build_product(builder, normed, "ffn_gate", 0, NULL),
                                 rf_build_product(builder, normed, "ffn_up", 0, NULL)};
        hidden = add_value(builder, (struct step){.op = "activation", .name = "ffn_act"}, inputs, 2, desc, NULL);
    }
    return rf_build_product(builder, hidden, "ffn_down", x, "");
}

rf_tensor_id rf_build_block(struct rf_builder *builder, rf_tensor_id x) {
    return rf_build_feed_forward(builder, rf_build_attention(builder, x));
}

/* ---- the whole ---- */

static rf_status check_shape(const struct rf_hparams *hparams, const struct rf_graph_shape *shape) {
    uint64_t room = (uint64_t)shape->page_rows * shape->table_width;
    if (!shape->tokens || shape->tokens > INT32_MAX)
        return rf_fail(RF_E_INVALID, "a graph of %u tokens: 1 to %d", shape->tokens, INT32_MAX);
    if (shape->sequences != 1 && shape->sequences != shape->tokens)
        return rf_fail(RF_E_INVALID, "a graph of %u tokens in %u sequences: one, or one token each", shape->tokens,
                       shape->sequences);
    if (shape->all_logits && shape->no_logits)
        return rf_fail(RF_E_INVALID, "a graph with all logits and with none: choose one");
    if (!shape->page_rows || (shape->page_rows & (shape->page_rows - 1)) || !shape->page_count || !shape->table_width)
        return rf_fail(RF_E_INVALID,
                       "%u pages of %u tokens, %u of them a sequence: none may be 0, and the tokens are a power of 2",
                       shape->page_count, shape->page_rows, shape->table_width);
    if (shape->longest > room || room > INT32_MAX)
        return rf_fail(RF_E_INVALID, "sequences of %u tokens in %u pages of %u: at most %llu, and %d in all",
                       shape->longest, shape->table_width, shape->page_rows, (unsigned long long)room, INT32_MAX);
    if (shape->kv_dtype != RF_F32 && shape->kv_dtype != RF_F16 && shape->kv_dtype != RF_Q8_0)
        return rf_fail(RF_E_UNSUPPORTED, "a KV cache of %s: f32, f16 or q8_0", rf_dtype_name(shape->kv_dtype));
    if (hparams->head_width % rf_dtype_block(shape->kv_dtype))
        return rf_fail(RF_E_UNSUPPORTED,
                       "a KV cache of %s needs heads of a multiple of %zu, this model's have %u: "
                       "choose f16 or f32",
                       rf_dtype_name(shape->kv_dtype), rf_dtype_block(shape->kv_dtype), hparams->head_width);
    return RF_OK;
}

static void add_inputs(struct rf_builder *builder) {
    const struct rf_graph_shape *shape = builder->shape;
    const struct rf_hparams *hparams = builder->hparams;
    uint64_t tokens = shape->tokens, sequences = shape->sequences;
    builder->tokens = add_input(builder, "tokens", 1, &tokens);
    builder->positions = add_input(builder, "positions", 1, &tokens);
    builder->sequences = add_input(builder, "sequences", 1, &tokens);
    builder->table = add_input(builder, "table", 2, (uint64_t[]){sequences, shape->table_width});
    builder->lengths = add_input(builder, "lengths", 1, &sequences);
    builder->steps = add_tensor(builder, (struct rf_graph_tensor){.name = "rope_steps",
                                                                  .role = RF_ROLE_CONSTANT,
                                                                  .desc = matrix(RF_I32, hparams->rotated / 2, 2),
                                                                  .data = hparams->rope_steps});
}

static rf_tensor_id embed(struct rf_builder *builder) {
    builder->group = RF_GROUP_EMBEDDING;
    rf_tensor_id table = add_weight(builder, "token_embd.weight", 2, NULL);
    return add_value(builder, (struct step){.op = "embedding", .name = "token_embd"},
                     (rf_tensor_id[]){table, builder->tokens}, 2,
                     matrix(RF_F32, builder->rows, builder->hparams->width), NULL);
}

static void add_logits(struct rf_builder *builder, rf_tensor_id x) {
    builder->group = rf_group_output(builder->hparams);
    if (!x) return;
    const char *weight = builder->hparams->tied_output ? "token_embd.weight" : "output.weight";
    rf_tensor_id normed = rf_build_norm(builder, x, "output_norm");
    rf_tensor_id logits = multiply(builder, normed, weight, "output", add_bias(builder, "output"), 0, "logits");
    if (!builder->status) builder->status = rf_graph_add_output(builder->graph, logits);
}

rf_status rf_build_decoder(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                           const struct rf_graph_shape *shape, rf_build_block_fn block, struct rf_graph **out) {
    struct rf_builder builder = {.gguf = gguf, .hparams = hparams, .shape = shape, .rows = shape->tokens};
    rf_status status = check_shape(hparams, shape);
    if (!status) status = rf_graph_create(hparams->arch->name, &builder.graph);
    if (status) return status;
    add_inputs(&builder);
    rf_tensor_id x = embed(&builder);
    for (uint32_t layer = 0; layer < hparams->layers; layer++) {
        builder.layer = layer;
        builder.group = RF_GROUP_LAYER + (int)layer;
        x = block(&builder, x);
    }
    add_logits(&builder, x);
    if (!builder.status) builder.status = rf_graph_finish(builder.graph);
    if (builder.status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_graph_destroy(&builder.graph);
        rf_error_restore(&saved);
        return builder.status;
    }
    *out = builder.graph;
    return RF_OK;
}
