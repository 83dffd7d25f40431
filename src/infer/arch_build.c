/* See arch_build.h. A graph says what is computed, in plain ops. The passes (graph/pass_fuse.c) decide what is fused,
 * and the planner decides where each group runs.
 *
 * Invariants:
 *   - what rf_arch_read accepted exists here with its name and shape; only the graph checks anything again
 *   - tensors have builder->rows rows: all tokens from the embedding to the last layer's attention, then only the
 *     wanted ones
 *   - a layer's keys are appended before its attention, so the graph keeps that order
 * Must not: read the data of a weight. */
#include "infer/arch_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "cpu/ref_sampling.h"
#include "cpu/reference.h"
#include "graph/executor.h"
#include "ops/gpu_matmul.h"

enum { NAME_BYTES = 96 };

static bool in_layer(const struct rf_builder *builder) {
    return builder->group >= RF_GROUP_LAYER && builder->group < rf_group_output(builder->hparams);
}
static bool last_layer(const struct rf_builder *builder) {
    return in_layer(builder) && builder->layer + 1 == builder->hparams->layers;
}

/* "blk.N.name" in a layer, otherwise the name itself. */
static const char *full_name(const struct rf_builder *builder, const char *name, const char *end,
                             char text[NAME_BYTES]) {
    if (in_layer(builder))
        snprintf(text, NAME_BYTES, "blk.%u%s%s%s", builder->layer, *name ? "." : "", name, end);
    else
        snprintf(text, NAME_BYTES, "%s%s", name, end);
    return text;
}

/* NULL: the file has no such tensor. */
static const struct rf_gguf_tensor *find(const struct rf_builder *builder, const char *name, const char *end) {
    char text[NAME_BYTES];
    return rf_gguf_find_tensor(builder->gguf, full_name(builder, name, end, text));
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

/* Records what a tensor stands for. */
static rf_tensor_id bind(struct rf_builder *builder, rf_tensor_id id, struct rf_bound_tensor what) {
    struct rf_model_graph *model = builder->model;
    if (!id) return 0;
    if (id >= model->bound_count) {
        size_t count = RF_MAX((size_t)id + 1, 2 * model->bound_count), row = sizeof *model->bound;
        builder->status = rf_account_resize(&model->account, (void **)&model->bound, model->bound_count * row,
                                            count * row, "the graph of a model");
        if (builder->status) return 0;
        memset(model->bound + model->bound_count, 0, (count - model->bound_count) * row);
        model->bound_count = count;
    }
    model->bound[id] = what;
    return id;
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

/* The last 'wanted' rows of [rows, columns]. */
static rf_tensor_id view_last(struct rf_builder *builder, rf_tensor_id x, uint64_t columns, uint64_t wanted) {
    struct rf_tensor_desc desc = matrix(RF_F32, wanted, columns);
    desc.byte_offset = (builder->rows - wanted) * columns * sizeof(float);
    return add_view(builder, x, desc);
}

/* The layout of queries and of attention's output: [sequences, heads, rows, head_width] in the memory of
 * [sequences * rows, heads * head_width]. */
static struct rf_tensor_desc describe_heads(const struct rf_builder *builder, enum rf_dtype dtype) {
    uint64_t sequences = builder->shape->sequences, rows = builder->rows / sequences;
    uint64_t heads = builder->hparams->heads, width = builder->hparams->head_width;
    struct rf_tensor_desc desc = describe(dtype, 4, (uint64_t[]){sequences, heads, rows, width});
    memcpy(desc.strides, (uint64_t[]){rows * heads * width, width, heads * width, 1}, 4 * sizeof *desc.strides);
    return desc;
}

/* A weight of the file; it is added when it is first used. rank 1: a vector. */
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
    id = add_tensor(
        builder,
        (struct rf_graph_tensor){
            .name = name, .role = RF_ROLE_CONSTANT, .desc = desc, .data = weight->data, .group = builder->group});
    return bind(builder, id, (struct rf_bound_tensor){.weight = weight});
}
/* Returns 0 without a failure if the file has no such bias. */
static rf_tensor_id add_bias(struct rf_builder *builder, const char *name) {
    char text[NAME_BYTES];
    full_name(builder, name, ".bias", text);
    return rf_gguf_find_tensor(builder->gguf, text) ? add_weight(builder, text, 1, NULL) : 0;
}

/* Adds a layer's cache of keys, or of values. */
static rf_tensor_id add_cache(struct rf_builder *builder, bool values) {
    const struct rf_graph_shape *shape = builder->shape;
    const struct rf_hparams *hparams = builder->hparams;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "cache_%c.%u", values ? 'v' : 'k', builder->layer);
    uint64_t dimensions[] = {shape->page_count, hparams->kv_heads, shape->page_rows, hparams->head_width};
    rf_tensor_id id = add_tensor(builder, (struct rf_graph_tensor){.name = name,
                                                                   .role = RF_ROLE_STATE,
                                                                   .desc = describe(shape->kv_dtype, 4, dimensions),
                                                                   .group = builder->group});
    return bind(builder, id, (struct rf_bound_tensor){.cache = true, .values = values, .layer = builder->layer});
}

/* ---- nodes ---- */

/* An op with its attributes; in a layer, "blk.N." is put before the name. */
struct node {
    const char *op, *name;
    struct rf_attribute attributes[4];
    size_t attribute_count;
};

static void add_node(struct rf_builder *builder, struct node what, const rf_tensor_id *inputs, size_t count,
                     const rf_tensor_id *outputs, size_t output_count) {
    char name[NAME_BYTES];
    RF_PARAMS(struct rf_graph_node, node);
    if (builder->status) return;
    node.op = what.op;
    node.name = full_name(builder, what.name, "", name);
    node.attributes = what.attributes;
    node.attribute_count = what.attribute_count;
    node.inputs = inputs;
    node.input_count = count;
    node.outputs = outputs;
    node.output_count = output_count;
    node.group = builder->group;
    builder->status = rf_graph_add_node(builder->graph, &node, NULL);
}

/* Adds a node with one output, with the given descriptor and perhaps a name. */
static rf_tensor_id add_result(struct rf_builder *builder, struct node what, const rf_tensor_id *inputs, size_t count,
                               struct rf_tensor_desc desc, const char *result) {
    if (!inputs[0]) return 0; /* an earlier call failed, or its tensor was left out */
    rf_tensor_id out =
        add_tensor(builder, (struct rf_graph_tensor){.name = result, .layout = RF_LAYOUT_STRIDED, .desc = desc});
    add_node(builder, what, inputs, count, &out, 1);
    return builder->status ? 0 : out;
}

/* The type for rows that only these products read (names as for rf_build_product, ended by NULL): the 16 bits that
 * they round it to, or f32. */
static enum rf_dtype type_for(const struct rf_builder *builder, const char *const *products) {
    enum rf_dtype type = RF_F32;
    if (!builder->shape->units_from || builder->group < builder->shape->units_from || builder->rows <= RF_MATVEC_ROWS)
        return RF_F32;
    for (size_t i = 0; products[i]; i++) {
        const struct rf_gguf_tensor *weight = find(builder, products[i], ".weight");
        enum rf_dtype unit = weight ? rf_gpu_matmul_unit(weight->dtype) : RF_F32;
        if (unit == RF_F32 || weight->shape[weight->rank - 1] % 8 || (i && unit != type)) return RF_F32;
        type = unit;
    }
    return type;
}

static rf_tensor_id norm_rows(struct rf_builder *builder, rf_tensor_id x, const char *name, uint64_t rows,
                              enum rf_dtype type) {
    char text[NAME_BYTES];
    if (!x) return 0;
    rf_tensor_id weight = add_weight(builder, full_name(builder, name, ".weight", text), 1, NULL);
    if (!weight) return 0;
    uint64_t columns = rf_gguf_find_tensor(builder->gguf, text)->elements;
    struct node norm = {"rms_norm", name, {{"eps", .f = (double)builder->hparams->norm_epsilon}}, 1};
    return add_result(builder, norm, (rf_tensor_id[]){x, weight}, 2, matrix(type, rows, columns), NULL);
}
rf_tensor_id rf_build_norm(struct rf_builder *builder, rf_tensor_id x, const char *name) {
    return norm_rows(builder, x, name, builder->rows, RF_F32);
}

/* The product with a weight, given by its full name. */
static rf_tensor_id multiply(struct rf_builder *builder, rf_tensor_id x, const char *weight_name, const char *name,
                             rf_tensor_id bias, const char *result) {
    uint64_t columns = 0;
    if (!x) return 0;
    rf_tensor_id weight = add_weight(builder, weight_name, 2, &columns);
    return add_result(builder, (struct node){.op = "matmul", .name = name}, (rf_tensor_id[]){x, weight, bias}, 3,
                      matrix(RF_F32, builder->rows, columns), result);
}
rf_tensor_id rf_build_product(struct rf_builder *builder, rf_tensor_id x, const char *name) {
    char weight[NAME_BYTES];
    if (!x) return 0;
    return multiply(builder, x, full_name(builder, name, ".weight", weight), name, add_bias(builder, name), NULL);
}

rf_tensor_id rf_build_sum(struct rf_builder *builder, rf_tensor_id a, rf_tensor_id b, const char *name,
                          const char *result) {
    char made[NAME_BYTES];
    return add_result(builder, (struct node){.op = "add", .name = name}, (rf_tensor_id[]){a, b}, 2,
                      matrix(RF_F32, builder->rows, builder->hparams->width), full_name(builder, result, "", made));
}

/* ---- attention ---- */

/* Normalizes each head of each row by itself. */
static rf_tensor_id norm_heads(struct rf_builder *builder, rf_tensor_id x, const char *name, uint32_t heads) {
    uint64_t width = builder->hparams->head_width, rows = (uint64_t)builder->rows * heads;
    if (!builder->hparams->qk_norm) return x;
    rf_tensor_id normed = norm_rows(builder, add_view(builder, x, matrix(RF_F32, rows, width)), name, rows, RF_F32);
    return add_view(builder, normed, matrix(RF_F32, builder->rows, heads * width));
}

/* Attention takes queries of the cache's type, except that they are f32 for a cache of 8-bit blocks. */
static enum rf_dtype attention_type(const struct rf_builder *builder) {
    return builder->shape->kv_dtype == RF_F16 ? RF_F16 : RF_F32;
}

/* The descriptor of rotated queries, as attention takes them. */
static struct rf_tensor_desc describe_queries(const struct rf_builder *builder) {
    const struct rf_hparams *hparams = builder->hparams;
    return describe(attention_type(builder), 3, (uint64_t[]){builder->rows, hparams->heads, hparams->head_width});
}

/* Rotates queries or keys by their tokens' positions. x has the builder's rows, which are the last ones of the
 * tokens. */
static rf_tensor_id rotate(struct rf_builder *builder, rf_tensor_id x, const char *name, struct rf_tensor_desc desc) {
    const struct rf_hparams *hparams = builder->hparams;
    uint64_t wanted = builder->rows, skipped = builder->shape->tokens - wanted;
    rf_tensor_id positions = builder->positions;
    if (skipped)
        positions =
            add_view(builder, positions,
                     (struct rf_tensor_desc){
                         .dtype = RF_I32, .rank = 1, .shape = {wanted}, .byte_offset = skipped * sizeof(int32_t)});
    struct node rope = {
        "rope",
        name,
        {{"magnitude", .f = (double)hparams->rope_magnitude}, {"halves", .i = hparams->rope_halves ? 1 : 0}},
        2};
    return add_result(builder, rope, (rf_tensor_id[]){x, positions, builder->steps}, 3, desc, NULL);
}

/* Appends the rotated keys and the values of all tokens to the layer's cache. */
static void append(struct rf_builder *builder, rf_tensor_id k, rf_tensor_id v, const rf_tensor_id caches[2]) {
    const struct rf_hparams *hparams = builder->hparams;
    k = view_heads(builder, norm_heads(builder, k, "attn_k_norm", hparams->kv_heads), hparams->kv_heads);
    v = view_heads(builder, v, hparams->kv_heads);
    k = rotate(builder, k, "rope_k",
               describe(RF_F32, 3, (uint64_t[]){builder->rows, hparams->kv_heads, hparams->head_width}));
    rf_tensor_id inputs[] = {k, v, builder->positions, builder->sequences, builder->table, 0, caches[0], caches[1]};
    add_node(builder, (struct node){.op = "kv_append", .name = "kv_append"}, inputs, RF_COUNT(inputs), NULL, 0);
}

/* Computes attention from rotated queries. The result has f32 rows, or those that its product takes. */
static rf_tensor_id attend(struct rf_builder *builder, rf_tensor_id q, const rf_tensor_id caches[2]) {
    const struct rf_hparams *hparams = builder->hparams;
    uint64_t columns = (uint64_t)hparams->heads * hparams->head_width;
    enum rf_dtype dtype = attention_type(builder);
    q = add_view(builder, q, describe_heads(builder, dtype));
    struct node attention = {"paged_attention",
                             "attention",
                             {{"scale", .f = 1 / sqrt(hparams->head_width)},
                              {"max_length", .i = builder->shape->longest},
                              {"fresh", .i = builder->shape->tokens}},
                             3};
    rf_tensor_id out =
        add_result(builder, attention, (rf_tensor_id[]){q, caches[0], caches[1], builder->table, builder->lengths}, 5,
                   describe_heads(builder, dtype), NULL);
    out = add_view(builder, out, matrix(dtype, builder->rows, columns));
    if (dtype == RF_F32 || dtype == type_for(builder, (const char *const[]){"attn_output", NULL})) return out;
    return add_result(builder, (struct node){.op = "copy", .name = "attention_cast"}, &out, 1,
                      matrix(RF_F32, builder->rows, columns), NULL);
}

rf_tensor_id rf_build_attention(struct rf_builder *builder, rf_tensor_id x) {
    const struct rf_hparams *hparams = builder->hparams;
    const struct rf_graph_shape *shape = builder->shape;
    bool last = last_layer(builder), fewer = last && !shape->all_logits && shape->sequences < builder->rows;
    /* In the last layer a single row may be multiplied too, which matrix units do not do. */
    enum rf_dtype type = fewer && !shape->no_logits
                             ? RF_F32
                             : type_for(builder, (const char *const[]){"attn_k", "attn_v", "attn_q", NULL});
    rf_tensor_id normed = norm_rows(builder, x, "attn_norm", builder->rows, type);
    rf_tensor_id k = rf_build_product(builder, normed, "attn_k"), v = rf_build_product(builder, normed, "attn_v");
    rf_tensor_id caches[] = {add_cache(builder, false), add_cache(builder, true)};
    append(builder, k, v, caches);
    if (last && shape->no_logits) return 0;
    if (fewer) {
        normed = view_last(builder, normed, hparams->width, shape->sequences);
        x = view_last(builder, x, hparams->width, shape->sequences);
        builder->rows = shape->sequences;
    }
    rf_tensor_id q = rf_build_product(builder, normed, "attn_q");
    q = view_heads(builder, norm_heads(builder, q, "attn_q_norm", hparams->heads), hparams->heads);
    q = rotate(builder, q, "rope_q", describe_queries(builder));
    rf_tensor_id out = rf_build_product(builder, attend(builder, q, caches), "attn_output");
    return rf_build_sum(builder, out, x, "attn_residual", "attn");
}

/* ---- feed-forward ---- */

/* Whether one product with a gate does for both products, with a result of this type. */
static bool gate_fits(const struct rf_builder *builder, enum rf_dtype type) {
    const struct rf_gguf_tensor *gate = find(builder, "ffn_gate", ".weight"),
                                *up = find(builder, "ffn_up", ".weight");
    return builder->shape->gates && type != RF_F32 && gate && up && gate->dtype == up->dtype &&
           !find(builder, "ffn_gate", ".bias") && !find(builder, "ffn_up", ".bias") &&
           rf_gpu_matmul_gate_pays(builder->rows, builder->hparams->feed_forward);
}

/* silu(gate(x)) * up(x), as rows of this type. */
static rf_tensor_id gated_rows(struct rf_builder *builder, rf_tensor_id x, enum rf_dtype x_type, enum rf_dtype type) {
    struct rf_tensor_desc desc = matrix(type, builder->rows, builder->hparams->feed_forward);
    struct node silu = {"activation", "ffn_act", {{"kind", .i = RF_ACTIVATION_SILU}}, 1};
    if (type == x_type && gate_fits(builder, type)) {
        char text[2][NAME_BYTES];
        rf_tensor_id inputs[] = {x, add_weight(builder, full_name(builder, "ffn_gate", ".weight", text[0]), 2, NULL),
                                 add_weight(builder, full_name(builder, "ffn_up", ".weight", text[1]), 2, NULL)};
        return add_result(builder, (struct node){.op = "matmul_gate", .name = "ffn_gated"}, inputs, 3, desc, NULL);
    }
    rf_tensor_id gate = rf_build_product(builder, x, "ffn_gate"), up = rf_build_product(builder, x, "ffn_up");
    /* In one node if the result is rounded: its parts would be, too. */
    if (type != RF_F32) return add_result(builder, silu, (rf_tensor_id[]){gate, up}, 2, desc, NULL);
    rf_tensor_id hidden = add_result(builder, silu, &gate, 1, desc, NULL);
    return add_result(builder, (struct node){.op = "multiply", .name = "ffn_gated"}, (rf_tensor_id[]){hidden, up}, 2,
                      desc, NULL);
}

rf_tensor_id rf_build_feed_forward(struct rf_builder *builder, rf_tensor_id x) {
    enum rf_dtype type = type_for(builder, (const char *const[]){"ffn_gate", "ffn_up", NULL});
    rf_tensor_id normed = norm_rows(builder, x, "ffn_norm", builder->rows, type);
    rf_tensor_id hidden =
        gated_rows(builder, normed, type, type_for(builder, (const char *const[]){"ffn_down", NULL}));
    return rf_build_sum(builder, rf_build_product(builder, hidden, "ffn_down"), x, "ffn_residual", "");
}

rf_tensor_id rf_build_block(struct rf_builder *builder, rf_tensor_id x) {
    return rf_build_feed_forward(builder, rf_build_attention(builder, x));
}

/* ---- the whole graph ---- */

static rf_status check_shape(const struct rf_hparams *hparams, const struct rf_graph_shape *shape) {
    uint64_t room = (uint64_t)shape->page_rows * shape->table_width;
    if (!shape->tokens || shape->tokens > INT32_MAX)
        return rf_fail(RF_E_INVALID, "a graph of %u tokens: 1 to %d", shape->tokens, INT32_MAX);
    if (shape->sequences != 1 && shape->sequences != shape->tokens)
        return rf_fail(RF_E_INVALID, "a graph of %u tokens in %u sequences: one, or one token each", shape->tokens,
                       shape->sequences);
    if (shape->draws && (shape->sequences != shape->tokens || shape->no_logits))
        return rf_fail(RF_E_INVALID, "a graph that draws has one token for each sequence, and logits");
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
    struct rf_model_graph *model = builder->model;
    uint64_t tokens = shape->tokens, sequences = shape->sequences;
    model->tokens = add_input(builder, "tokens", 1, &tokens);
    model->positions = builder->positions = add_input(builder, "positions", 1, &tokens);
    model->sequences = builder->sequences = add_input(builder, "sequences", 1, &tokens);
    model->table = builder->table = add_input(builder, "table", 2, (uint64_t[]){sequences, shape->table_width});
    model->lengths = builder->lengths = add_input(builder, "lengths", 1, &sequences);
    builder->steps = add_tensor(builder, (struct rf_graph_tensor){.name = "rope_steps",
                                                                  .role = RF_ROLE_CONSTANT,
                                                                  .desc = matrix(RF_I32, hparams->rotated / 2, 2),
                                                                  .data = hparams->rope_steps});
}

static rf_tensor_id embed(struct rf_builder *builder) {
    builder->group = RF_GROUP_EMBEDDING;
    rf_tensor_id table = add_weight(builder, "token_embd.weight", 2, NULL);
    return add_result(builder, (struct node){.op = "embedding", .name = "token_embd"},
                      (rf_tensor_id[]){table, builder->model->tokens}, 2,
                      matrix(RF_F32, builder->rows, builder->hparams->width), NULL);
}

static void add_logits(struct rf_builder *builder, rf_tensor_id x) {
    builder->group = rf_group_output(builder->hparams);
    if (!x) return;
    const char *name = builder->hparams->tied_output ? "token_embd" : "output";
    char weight[NAME_BYTES];
    enum rf_dtype type = type_for(builder, (const char *const[]){name, NULL});
    rf_tensor_id normed = norm_rows(builder, x, "output_norm", builder->rows, type);
    snprintf(weight, sizeof weight, "%s.weight", name);
    rf_tensor_id logits = multiply(builder, normed, weight, "output", add_bias(builder, "output"), "logits");
    if (!builder->status) builder->status = rf_graph_add_output(builder->graph, logits);
    builder->model->logits = logits;
}

/* Draws a token from each row of logits and makes the graph's inputs into those of the next token. */
static void add_draw(struct rf_builder *builder) {
    struct rf_model_graph *model = builder->model;
    unsigned draws = builder->shape->draws;
    uint64_t rows = builder->shape->sequences;
    if (!draws || !model->logits) return;
    model->settings = add_input(builder, "settings", 2, (uint64_t[]){rows, sizeof(struct rf_sample_settings) / 4});
    model->random = add_input(builder, "random", 2, (uint64_t[]){rows, 4});
    model->window = add_input(builder, "window", 2, (uint64_t[]){rows, RF_WINDOW_MAX});
    struct rf_tensor_desc of_ring = describe(RF_I32, 3, (uint64_t[]){rows, RF_RING_SLOTS, 2});
    rf_tensor_id ring = add_tensor(
        builder,
        (struct rf_graph_tensor){.name = "ring", .role = RF_ROLE_STATE, .desc = of_ring, .group = builder->group});
    bind(builder, ring, (struct rf_bound_tensor){.ring = true});
    /* The settings say how: the attributes only say which steps there are. */
    struct node sample = {"sample",
                          "sample",
                          {{"temperature", .f = draws & RF_DRAWS_BEST ? 0 : 1},
                           {"top_k", .i = draws & RF_DRAWS_TOP_K ? 1 : 0},
                           {"top_p", .f = draws & RF_DRAWS_TOP_P ? 0.5 : 0},
                           {"strict", .i = 1}},
                          4};
    rf_tensor_id drawn = add_result(
        builder, sample, (rf_tensor_id[]){model->logits, model->random, model->window, model->settings, 0, 0}, 6,
        describe(RF_I32, 1, &rows), "drawn");
    add_node(builder, (struct node){.op = "advance", .name = "advance"},
             (rf_tensor_id[]){drawn, model->settings, model->tokens, model->positions, model->lengths, model->random,
                              model->window, ring},
             8, NULL, 0);
}

rf_status rf_arch_build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                        const struct rf_graph_shape *shape, const struct rf_account *account,
                        struct rf_model_graph *out) {
    if (!gguf || !hparams || !hparams->arch || !shape || !out)
        return rf_fail(RF_E_INVALID, "rf_arch_build: gguf, hparams, shape or out is NULL, or hparams was not read");
    struct rf_model_graph model = {.account = rf_account_open(account)};
    struct rf_builder builder = {
        .gguf = gguf, .hparams = hparams, .shape = shape, .model = &model, .rows = shape->tokens};
    RF_TRY(check_shape(hparams, shape));
    RF_TRY(rf_graph_create_charged(hparams->arch->name, account, &model.graph));
    builder.graph = model.graph;
    add_inputs(&builder);
    rf_tensor_id x = embed(&builder);
    for (uint32_t layer = 0; layer < hparams->layers; layer++) {
        builder.layer = layer;
        builder.group = RF_GROUP_LAYER + (int)layer;
        x = hparams->arch->block(&builder, x);
    }
    add_logits(&builder, x);
    add_draw(&builder);
    if (!builder.status) builder.status = rf_graph_finish(model.graph);
    if (builder.status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_model_graph_finish(&model);
        rf_error_restore(&saved);
        return builder.status;
    }
    *out = model;
    return RF_OK;
}

void rf_model_graph_finish(struct rf_model_graph *model) {
    rf_graph_destroy(&model->graph);
    free(model->bound);
    rf_account_close(&model->account);
    *model = (struct rf_model_graph){0};
}
