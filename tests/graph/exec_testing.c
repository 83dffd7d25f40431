#include "exec_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/ref_cache.h"
#include "cpu/reference.h"

/* Keeps data that graphs borrow until the process ends. Only one thread builds graphs. */
static void *keep_data(void *data) {
    static void **all;
    static size_t used, room;
    RF_ASSERT(data != NULL);
    if (used == room) {
        room = room ? 2 * room : 1024;
        all = realloc(all, room * sizeof *all);
        RF_ASSERT(all != NULL);
    }
    return all[used++] = data;
}

/* ---- contents ---- */

static uint64_t hash(uint64_t seed, const char *name) {
    for (; *name; name++) seed = (seed ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return seed;
}

static void fill(const struct rf_tensor_row *value, void *data, uint64_t bytes, uint64_t seed) {
    uint64_t state = hash(seed, value->name);
    memset(data, 0, bytes);
    if (value->role != RF_ROLE_INPUT && value->role != RF_ROLE_STATE) return;
    if (value->desc.dtype == RF_I32)
        for (uint64_t i = 0; i < bytes / 4; i++) ((int32_t *)data)[i] = (int32_t)(i % 16);
    else if (rf_op_is_float(value->desc.dtype))
        for (uint64_t i = 0; i < bytes / rf_dtype_bytes(value->desc.dtype); i++)
            rf_element_set(value->desc.dtype, data, i, (float)(rf_op_random(&state) >> 40) / (float)(1 << 23) - 1);
}

static uint64_t span_of(const struct rf_tensor_row *value) {
    return value->bytes - value->desc.byte_offset;
}
static bool wanted(const struct rf_tensor_row *value) {
    return value->output || value->role == RF_ROLE_INPUT || value->role == RF_ROLE_STATE;
}

static struct exec_results new_results(const struct rf_graph *graph) {
    struct exec_results results = {graph, calloc(graph->tensor_count + 1, sizeof(void *))};
    RF_ASSERT(results.data != NULL);
    for (size_t v = 0; v < graph->tensor_count; v++)
        if (wanted(&graph->tensors[v])) {
            results.data[v] = calloc(1, span_of(&graph->tensors[v]) + 16);
            RF_ASSERT(results.data[v] != NULL);
        }
    return results;
}

void exec_results_free(struct exec_results *results) {
    for (size_t v = 0; results->data && v < results->graph->tensor_count; v++) free(results->data[v]);
    free(results->data);
    *results = (struct exec_results){0};
}

const char *exec_difference(const struct exec_results *a, const struct exec_results *b, double tolerance) {
    static _Thread_local char text[512];
    for (size_t v = 0; v < a->graph->tensor_count; v++) {
        const struct rf_tensor_row *value = &a->graph->tensors[v];
        uint64_t bytes = span_of(value);
        if (!a->data[v] || !memcmp(a->data[v], b->data[v], bytes)) continue;
        if (tolerance == 0 || !rf_op_is_float(value->desc.dtype)) {
            snprintf(text, sizeof text, "'%s' differs", value->name);
            return text;
        }
        uint64_t count = bytes / rf_dtype_bytes(value->desc.dtype);
        double largest = 0;
        for (uint64_t i = 0; i < count; i++) {
            double x = fabs((double)rf_element_get(value->desc.dtype, a->data[v], i));
            if (isfinite(x) && x > largest) largest = x;
        }
        for (uint64_t i = 0; i < count; i++) {
            double x = rf_element_get(value->desc.dtype, a->data[v], i),
                   y = rf_element_get(value->desc.dtype, b->data[v], i);
            if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * (1 + largest)) continue;
            snprintf(text, sizeof text, "'%s' [%llu] is %.9g and %.9g, the largest is %.9g", value->name,
                     (unsigned long long)i, x, y, largest);
            return text;
        }
    }
    return NULL;
}

/* ---- the reference run ---- */

struct exec_results exec_reference(const struct rf_graph *graph, uint64_t seed, int runs) {
    void **storage = calloc(graph->tensor_count + 1, sizeof(void *));
    RF_ASSERT(storage != NULL && graph->finished);
    for (size_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_tensor_row *value = &graph->tensors[v];
        if (value->root != v || value->role == RF_ROLE_CONSTANT) continue;
        storage[v] = aligned_alloc(64, (value->bytes + 63) / 64 * 64);
        RF_ASSERT(storage[v] != NULL);
        fill(value, storage[v], value->bytes, seed);
    }
    for (int run = 0; run < runs; run++)
        for (size_t s = 0; s < graph->node_count; s++) {
            const struct rf_node_row *step = &graph->nodes[s];
            struct rf_op_call call;
            rf_graph_call(graph, step, &call);
            RF_ASSERT_OK(rf_op_check(&call));
            for (int i = 0; i < call.count; i++) {
                if (step->tensors[i] == RF_NO_INDEX) continue;
                const struct rf_tensor_row *root = &graph->tensors[graph->tensors[step->tensors[i]].root];
                call.tensors[i].host =
                    root->role == RF_ROLE_CONSTANT ? (void *)(uintptr_t)root->data : storage[root - graph->tensors];
            }
            step->op->reference(&call);
        }
    struct exec_results results = new_results(graph);
    for (size_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_tensor_row *value = &graph->tensors[v];
        if (results.data[v])
            memcpy(results.data[v], (char *)storage[value->root] + value->desc.byte_offset, span_of(value));
    }
    for (size_t v = 0; v < graph->tensor_count; v++) free(storage[v]);
    free(storage);
    return results;
}

/* ---- executors ---- */

rf_status exec_write(struct rf_executor *executor, const struct rf_graph *graph, uint64_t seed) {
    rf_status status = RF_OK;
    for (size_t v = 0; v < graph->tensor_count && !status; v++) {
        const struct rf_tensor_row *value = &graph->tensors[v];
        if (value->role != RF_ROLE_INPUT && value->role != RF_ROLE_STATE) continue;
        void *data = malloc(span_of(value));
        RF_ASSERT(data != NULL);
        fill(value, data, span_of(value), seed);
        status = rf_executor_write(executor, (rf_tensor_id)(v + 1), data, span_of(value));
        free(data);
    }
    return status;
}

rf_status exec_read(struct rf_executor *executor, const struct rf_graph *graph, struct exec_results *out) {
    struct exec_results results = new_results(graph);
    rf_status status = RF_OK;
    for (size_t v = 0; v < graph->tensor_count && !status; v++)
        if (results.data[v])
            status = rf_executor_read(executor, (rf_tensor_id)(v + 1), results.data[v], span_of(&graph->tensors[v]));
    if (status)
        exec_results_free(&results);
    else
        *out = results;
    return status;
}

rf_status exec_run(const struct rf_executor_params *params, uint64_t seed, int runs, struct exec_results *out) {
    struct rf_executor *executor = NULL;
    rf_status status = rf_executor_create(params, &executor);
    if (!status) status = exec_write(executor, params->graph, seed);
    for (int i = 0; i < runs && !status; i++) status = rf_executor_run(executor);
    if (!status) status = exec_read(executor, params->graph, out);
    char text[1024];
    snprintf(text, sizeof text, "%s", rf_error_text());
    rf_status ended = rf_executor_destroy(&executor);
    if (status) rf_fail(status, "%s", text);
    if (!status && ended) exec_results_free(out);
    return status ? status : ended;
}

int exec_split_place(void *user, const char *node) {
    const struct exec_split *split = user;
    uint64_t state = hash(split->seed, node);
    return (int)(rf_op_random(&state) % (uint64_t)(split->devices + 1)) - 1;
}

/* ---- random graphs ---- */

enum { COLUMNS = 64, MATRICES = 64, KINDS = 15 };

struct maker {
    struct rf_graph *graph;
    uint64_t state;
    rf_tensor_id matrices[MATRICES]; /* tensors and inputs: rows x COLUMNS, f32, dense */
    uint64_t rows[MATRICES];
    size_t count;
    rf_tensor_id caches[2], positions;
    int group;
};

static uint64_t draw(struct maker *maker, uint64_t below) {
    return rf_op_random(&maker->state) % below;
}

static rf_tensor_id constant(struct maker *maker, enum rf_dtype dtype, uint64_t rows, uint64_t columns, double low,
                             double high) {
    struct rf_graph_tensor tensor = {.struct_size = sizeof tensor, .role = RF_ROLE_CONSTANT};
    uint64_t count = RF_MAX(rows, (uint64_t)1) * columns;
    void *data = keep_data(aligned_alloc(64, (count * 4 + 63) / 64 * 64));
    rf_tensor_id id = 0;
    for (uint64_t i = 0; i < count; i++)
        rf_element_set(dtype, data, i,
                       (float)(low + (high - low) * (double)(rf_op_random(&maker->state) >> 40) / (1 << 24)));
    tensor.desc = (struct rf_tensor_desc){.dtype = dtype, .rank = rows ? 2 : 1, .shape = {rows, columns}};
    if (!rows) tensor.desc.shape[0] = columns, tensor.desc.shape[1] = 0;
    tensor.data = data;
    RF_ASSERT_OK(rf_graph_add_tensor(maker->graph, &tensor, &id));
    return id;
}

static rf_tensor_id matrix(struct maker *maker, uint64_t rows) {
    return graph_tensor_of(maker->graph, NULL, RF_ROLE_RESULT, RF_F32, NULL, SIZES(rows, COLUMNS));
}
static void keep(struct maker *maker, rf_tensor_id id, uint64_t rows) {
    if (maker->count == MATRICES) return;
    maker->matrices[maker->count] = id;
    maker->rows[maker->count++] = rows;
}

static void node(struct maker *maker, const char *op, struct graph_attributes attributes, const rf_tensor_id *ids,
                 size_t inputs, size_t outputs) {
    struct rf_graph_node one = {.struct_size = sizeof one,
                                .op = op,
                                .inputs = ids,
                                .input_count = inputs,
                                .outputs = ids + inputs,
                                .output_count = outputs,
                                .f = {attributes.f0},
                                .i = {attributes.i0, attributes.i1},
                                .group = maker->group};
    rf_node_id id = 0;
    RF_ASSERT_OK(rf_graph_add_node(maker->graph, &one, &id));
}

static bool of_state(const struct maker *maker, rf_tensor_id id) {
    return maker->graph->tensors[maker->graph->tensors[id - 1].root].role == RF_ROLE_STATE;
}

static void add_random_node(struct maker *maker) {
    size_t pick = maker->count - 1 - draw(maker, RF_MIN(maker->count, (size_t)6)), other = draw(maker, maker->count);
    rf_tensor_id a = maker->matrices[pick], out, ids[10] = {0};
    uint64_t rows = maker->rows[pick];
    for (size_t tries = 0; tries < maker->count && maker->rows[other] != rows; tries++)
        other = (other + 1) % maker->count;
    rf_tensor_id b = maker->rows[other] == rows ? maker->matrices[other] : a;
    switch (draw(maker, KINDS)) {
    case 0: /* a + b, halved so that sums do not grow */
    case 1:
        out = matrix(maker, rows);
        node(maker, "add", NONE, (rf_tensor_id[]){a, b, out}, 2, 1);
        keep(maker, out, rows);
        break;
    case 2:
        out = matrix(maker, rows);
        node(maker, "scale", F0(0.3 + 0.1 * (double)draw(maker, 10)), (rf_tensor_id[]){a, out}, 1, 1);
        keep(maker, out, rows);
        break;
    case 3:
        out = matrix(maker, rows);
        node(maker, "softmax", NONE, (rf_tensor_id[]){a, out}, 1, 1);
        keep(maker, out, rows);
        break;
    case 4:
        out = matrix(maker, rows);
        node(maker, "rms_norm", F0(1e-3), (rf_tensor_id[]){a, constant(maker, RF_F32, 0, COLUMNS, 0.5, 1.5), out}, 2,
             1);
        keep(maker, out, rows);
        break;
    case 5:
    case 6:
        out = matrix(maker, rows);
        node(maker, "matmul", NONE,
             (rf_tensor_id[]){a, constant(maker, draw(maker, 2) ? RF_F32 : RF_F16, COLUMNS, COLUMNS, -0.2, 0.2), out},
             2, 1);
        keep(maker, out, rows);
        break;
    case 7:
        out = matrix(maker, rows);
        node(maker, "multiply", NONE, (rf_tensor_id[]){a, b, out}, 2, 1);
        keep(maker, out, rows);
        break;
    case 8:
        out = matrix(maker, rows);
        node(maker, "activation", I0((int64_t)draw(maker, 2)), (rf_tensor_id[]){a, draw(maker, 2) ? b : 0, out}, 2,
             1);
        keep(maker, out, rows);
        break;
    case 9:
        out = matrix(maker, rows);
        node(maker, "layer_norm", F0(1e-2),
             (rf_tensor_id[]){a, constant(maker, RF_F32, 0, COLUMNS, 0.5, 1.5), 0, out}, 3, 1);
        keep(maker, out, rows);
        break;
    case 10: { /* two outputs, one of which may stay unread */
        rf_tensor_id sum = matrix(maker, rows);
        out = matrix(maker, rows);
        node(maker, "add_norm", F0(1e-3),
             (rf_tensor_id[]){a, b, constant(maker, RF_F32, 0, COLUMNS, 0.5, 1.5), sum, out}, 3, 2);
        keep(maker, out, rows);
        if (draw(maker, 2)) keep(maker, sum, rows);
        break;
    }
    case 11: /* rows of a view */
        if (rows < 2) break;
        out = graph_view_of(maker->graph, NULL, a, COLUMNS * 4, SIZES(rows - 1, COLUMNS));
        keep(maker, out, rows - 1);
        break;
    case 12:
        if (rows > 6) break;
        out = matrix(maker, rows + maker->rows[other]);
        node(maker, "concat", I0(0), (rf_tensor_id[]){a, maker->matrices[other], 0, 0, out}, 4, 1);
        keep(maker, out, rows + maker->rows[other]);
        break;
    case 13: { /* to f16 and back: the rounding is the same everywhere, but its input may differ */
        rf_tensor_id half = graph_tensor_of(maker->graph, NULL, RF_ROLE_RESULT, RF_F16, NULL, SIZES(rows, COLUMNS));
        out = matrix(maker, rows);
        node(maker, "copy", NONE, (rf_tensor_id[]){a, half}, 1, 1);
        node(maker, "copy", NONE, (rf_tensor_id[]){half, out}, 1, 1);
        keep(maker, out, rows);
        break;
    }
    default: /* appends to the caches, and reads all of one back */
        if (rows > 16 || of_state(maker, a) || of_state(maker, b)) break;
        if (!maker->caches[0])
            for (int i = 0; i < 2; i++)
                maker->caches[i] = graph_tensor_of(maker->graph, i ? "cache_v" : "cache_k", RF_ROLE_STATE, RF_F32,
                                                   NULL, SIZES(1, 2, 16, COLUMNS / 2));
        if (!maker->positions)
            maker->positions = graph_tensor_of(maker->graph, "positions", RF_ROLE_INPUT, RF_I32, NULL, SIZES(16));
        ids[0] = graph_view_of(maker->graph, NULL, a, 0, SIZES(rows, 2, COLUMNS / 2));
        ids[1] = graph_view_of(maker->graph, NULL, b, 0, SIZES(rows, 2, COLUMNS / 2));
        struct rf_graph_tensor view = {.struct_size = sizeof view, .view_of = maker->positions};
        view.desc = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 1, .shape = {rows}};
        RF_ASSERT_OK(rf_graph_add_tensor(maker->graph, &view, &ids[2]));
        ids[6] = maker->caches[0];
        ids[7] = maker->caches[1];
        node(maker, "kv_append", F0(1), ids, 8, 0);
        keep(maker, graph_view_of(maker->graph, NULL, maker->caches[draw(maker, 2)], 0, SIZES(16, COLUMNS)), 16);
        break;
    }
}

struct rf_graph *exec_random_graph(uint64_t seed) {
    char name[32];
    snprintf(name, sizeof name, "random %llu", (unsigned long long)seed);
    struct maker maker = {.graph = graph_new(name), .state = seed * 7919 + 1};
    uint64_t inputs = 1 + draw(&maker, 3), nodes = 5 + draw(&maker, 20);
    for (uint64_t i = 0; i < inputs; i++) {
        char input[16];
        uint64_t rows = 1 + draw(&maker, 5);
        snprintf(input, sizeof input, "in%llu", (unsigned long long)i);
        keep(&maker, graph_tensor_of(maker.graph, input, RF_ROLE_INPUT, RF_F32, NULL, SIZES(rows, COLUMNS)), rows);
    }
    for (uint64_t i = 0; i < nodes || !maker.graph->node_count; i++) {
        if (!draw(&maker, 4)) maker.group = (int)draw(&maker, 4);
        add_random_node(&maker);
        if (maker.graph->tensors[maker.graph->tensors[maker.matrices[maker.count - 1] - 1].root].role ==
                RF_ROLE_RESULT &&
            !draw(&maker, 8))
            RF_ASSERT_OK(rf_graph_add_output(maker.graph, maker.matrices[maker.count - 1]));
    }
    RF_ASSERT_OK(rf_graph_finish(maker.graph));
    return maker.graph;
}

/* ---- a transformer ---- */

struct layers {
    struct maker maker;
    const struct exec_block *block;
    rf_tensor_id steps;
    void *zeros;
};

static rf_tensor_id weight(struct layers *layers, const char *name, uint64_t rows, uint64_t columns) {
    enum rf_dtype dtype = rows ? layers->block->weights : RF_F32;
    struct rf_graph_tensor tensor = {.struct_size = sizeof tensor, .name = name, .role = RF_ROLE_CONSTANT};
    tensor.desc = (struct rf_tensor_desc){.dtype = dtype, .rank = rows ? 2 : 1, .shape = {rows, columns}};
    if (!rows) tensor.desc.shape[0] = columns, tensor.desc.shape[1] = 0;
    uint64_t blocks = RF_MAX(rows, (uint64_t)1) * columns / rf_dtype_block(dtype);
    uint64_t bytes = blocks * rf_dtype_block_bytes(dtype);
    rf_tensor_id id = 0;
    if (layers->block->zero_weights) {
        tensor.data = layers->zeros;
    } else {
        unsigned char *data = keep_data(aligned_alloc(64, (bytes + 63) / 64 * 64));
        double scale = rows ? 1.7 / sqrt((double)columns) : 1;
        if (rf_dtype_block(dtype) == 1) {
            for (uint64_t i = 0; i < blocks; i++)
                rf_element_set(
                    dtype, data, i,
                    (float)(rows ? scale * ((double)(rf_op_random(&layers->maker.state) >> 40) / (1 << 23) - 1)
                                 : 0.8 + 0.4 * (double)(rf_op_random(&layers->maker.state) >> 40) / (1 << 24)));
        } else {
            /* A scale, then random bits: blocks of both types begin with their scale. */
            for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)rf_op_random(&layers->maker.state);
            for (uint64_t i = 0; i < blocks; i++)
                rf_element_set(RF_F16, data + i * rf_dtype_block_bytes(dtype), 0,
                               (float)(scale / (dtype == RF_Q8_0 ? 128 : 8)));
        }
        tensor.data = data;
    }
    RF_ASSERT_OK(rf_graph_add_tensor(layers->maker.graph, &tensor, &id));
    return id;
}

static rf_tensor_id f32_of(struct layers *layers, uint64_t rows, uint64_t columns) {
    return graph_tensor_of(layers->maker.graph, NULL, RF_ROLE_RESULT, RF_F32, NULL, SIZES(rows, columns));
}

static rf_tensor_id product(struct layers *layers, const char *name, rf_tensor_id x, uint64_t rows, uint64_t columns,
                            uint64_t out_columns, rf_tensor_id shared) {
    rf_tensor_id out = f32_of(layers, rows, out_columns);
    node(&layers->maker, "matmul", NONE,
         (rf_tensor_id[]){x, shared ? shared : weight(layers, name, out_columns, columns), out}, 2, 1);
    return out;
}

/* A view [1, heads, rows, dim] of a tensor [rows, heads, dim]. */
static rf_tensor_id heads_view(struct layers *layers, rf_tensor_id of, uint64_t heads, uint64_t rows, uint64_t dim) {
    struct rf_graph_tensor view = {.struct_size = sizeof view, .view_of = of, .layout = RF_LAYOUT_STRIDED};
    rf_tensor_id id = 0;
    view.desc = (struct rf_tensor_desc){.dtype = RF_F32,
                                        .rank = 4,
                                        .shape = {1, heads, rows, dim},
                                        .strides = {rows * heads * dim, dim, heads * dim, 1}};
    RF_ASSERT_OK(rf_graph_add_tensor(layers->maker.graph, &view, &id));
    return id;
}

/* The tensors that all chunks of a layer share. */
struct layer {
    rf_tensor_id norm, q, k, v, o, norm2, gate, up, down, cache_k, cache_v;
};

static rf_tensor_id one_layer(struct layers *layers, const struct layer *layer, rf_tensor_id x,
                              rf_tensor_id positions, unsigned chunk) {
    const struct exec_block *b = layers->block;
    struct maker *maker = &layers->maker;
    uint64_t dim = (uint64_t)b->heads * b->head_dim, kv = (uint64_t)b->kv_heads * b->head_dim, t = b->tokens;
    rf_tensor_id h = f32_of(layers, t, dim);
    node(maker, "rms_norm", F0(1e-5), (rf_tensor_id[]){x, layer->norm, h}, 2, 1);
    rf_tensor_id q = product(layers, NULL, h, t, dim, dim, layer->q),
                 k = product(layers, NULL, h, t, dim, kv, layer->k);
    rf_tensor_id v = product(layers, NULL, h, t, dim, kv, layer->v);
    rf_tensor_id turned =
        graph_tensor_of(maker->graph, NULL, RF_ROLE_RESULT, RF_F32, NULL, SIZES(t, b->heads, b->head_dim));
    node(maker, "rope", F0(1),
         (rf_tensor_id[]){graph_view_of(maker->graph, NULL, q, 0, SIZES(t, b->heads, b->head_dim)), positions,
                          layers->steps, turned},
         3, 1);
    node(maker, "kv_append", F0(1),
         (rf_tensor_id[]){graph_view_of(maker->graph, NULL, k, 0, SIZES(t, b->kv_heads, b->head_dim)),
                          graph_view_of(maker->graph, NULL, v, 0, SIZES(t, b->kv_heads, b->head_dim)), positions, 0,
                          0, layers->steps, layer->cache_k, layer->cache_v},
         8, 0);
    rf_tensor_id attended = 0;
    struct rf_graph_tensor out = {.struct_size = sizeof out, .layout = RF_LAYOUT_STRIDED};
    out.desc = (struct rf_tensor_desc){.dtype = RF_F32,
                                       .rank = 4,
                                       .shape = {1, b->heads, t, b->head_dim},
                                       .strides = {t * dim, b->head_dim, dim, 1}};
    RF_ASSERT_OK(rf_graph_add_tensor(maker->graph, &out, &attended));
    node(maker, "flash_attention", (struct graph_attributes){1 / sqrt((double)b->head_dim), 1, (int64_t)(chunk * t)},
         (rf_tensor_id[]){heads_view(layers, turned, b->heads, t, b->head_dim), layer->cache_k, layer->cache_v, 0,
                          attended},
         4, 1);
    rf_tensor_id flat = graph_view_of(maker->graph, NULL, attended, 0, SIZES(t, dim));
    rf_tensor_id mixed = product(layers, NULL, flat, t, dim, dim, layer->o), sum = f32_of(layers, t, dim);
    node(maker, "add", NONE, (rf_tensor_id[]){x, mixed, sum}, 2, 1);
    rf_tensor_id h2 = f32_of(layers, t, dim), gated = f32_of(layers, t, b->ffn), last = f32_of(layers, t, dim);
    node(maker, "rms_norm", F0(1e-5), (rf_tensor_id[]){sum, layer->norm2, h2}, 2, 1);
    rf_tensor_id gate = product(layers, NULL, h2, t, dim, b->ffn, layer->gate);
    rf_tensor_id up = product(layers, NULL, h2, t, dim, b->ffn, layer->up);
    node(maker, "activation", I0(0), (rf_tensor_id[]){gate, up, gated}, 2, 1);
    rf_tensor_id down = product(layers, NULL, gated, t, b->ffn, dim, layer->down);
    node(maker, "add", NONE, (rf_tensor_id[]){sum, down, last}, 2, 1);
    return last;
}

struct rf_graph *exec_block_graph(const struct exec_block *block) {
    struct layers layers = {.maker = {.graph = graph_new("transformer"), .state = 42}, .block = block};
    struct maker *maker = &layers.maker;
    struct rf_graph *graph = maker->graph;
    uint64_t dim = (uint64_t)block->heads * block->head_dim, kv = (uint64_t)block->kv_heads * block->head_dim;
    uint64_t *steps = keep_data(malloc(block->head_dim / 2 * sizeof *steps));
    float magnitude;
    struct rf_rope_params rope = {.rotated = block->head_dim, .base = 10000};
    RF_ASSERT(rf_rope_steps(&rope, steps, &magnitude));
    if (block->zero_weights) {
        uint64_t elements =
            RF_MAX(RF_MAX(block->vocabulary, (uint64_t)block->ffn), dim) * RF_MAX(dim, (uint64_t)block->ffn);
        layers.zeros = keep_data(
            calloc(1, elements / rf_dtype_block(block->weights) * rf_dtype_block_bytes(block->weights) + dim * 4));
    }
    layers.steps = graph_tensor_of(graph, "steps", RF_ROLE_CONSTANT, RF_I32, steps, SIZES(block->head_dim / 2, 2));
    struct layer *rows = calloc(block->layers, sizeof *rows);
    RF_ASSERT(rows != NULL);
    for (unsigned l = 0; l < block->layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "cache_k%u", l);
        rf_tensor_id cache_k = graph_tensor_of(graph, name, RF_ROLE_STATE, RF_F32, NULL,
                                               SIZES(1, block->kv_heads, block->context, block->head_dim));
        snprintf(name, sizeof name, "cache_v%u", l);
        rf_tensor_id cache_v = graph_tensor_of(graph, name, RF_ROLE_STATE, RF_F32, NULL,
                                               SIZES(1, block->kv_heads, block->context, block->head_dim));
        rows[l] = (struct layer){weight(&layers, NULL, 0, dim),
                                 weight(&layers, NULL, dim, dim),
                                 weight(&layers, NULL, kv, dim),
                                 weight(&layers, NULL, kv, dim),
                                 weight(&layers, NULL, dim, dim),
                                 weight(&layers, NULL, 0, dim),
                                 weight(&layers, NULL, block->ffn, dim),
                                 weight(&layers, NULL, block->ffn, dim),
                                 weight(&layers, NULL, dim, block->ffn),
                                 cache_k,
                                 cache_v};
    }
    rf_tensor_id last_norm = block->vocabulary ? weight(&layers, NULL, 0, dim) : 0;
    rf_tensor_id head = block->vocabulary ? weight(&layers, NULL, block->vocabulary, dim) : 0;
    for (unsigned c = 0; c < block->chunks; c++) {
        char name[32];
        snprintf(name, sizeof name, "x%u", c);
        rf_tensor_id x = graph_tensor_of(graph, name, RF_ROLE_INPUT, RF_F32, NULL, SIZES(block->tokens, dim));
        int32_t *at = keep_data(malloc(block->tokens * sizeof *at));
        for (unsigned t = 0; t < block->tokens; t++) at[t] = (int32_t)(c * block->tokens + t);
        snprintf(name, sizeof name, "positions%u", c);
        rf_tensor_id positions = graph_tensor_of(graph, name, RF_ROLE_CONSTANT, RF_I32, at, SIZES(block->tokens));
        for (unsigned l = 0; l < block->layers; l++) {
            maker->group = block->loose ? 0 : (int)l + 1;
            x = one_layer(&layers, &rows[l], x, positions, c);
        }
        maker->group = block->loose ? 0 : (int)block->layers + 1;
        if (block->vocabulary) {
            rf_tensor_id h = f32_of(&layers, block->tokens, dim);
            node(maker, "rms_norm", F0(1e-5), (rf_tensor_id[]){x, last_norm, h}, 2, 1);
            x = product(&layers, NULL, h, block->tokens, dim, block->vocabulary, head);
        }
        RF_ASSERT_OK(rf_graph_add_output(graph, x));
    }
    free(rows);
    RF_ASSERT_OK(rf_graph_finish(graph));
    return graph;
}

/* ---- devices ---- */

void exec_open(struct exec_gpus *gpus, size_t count, const char *rfsim, const char *budget,
               const char *const *options) {
    struct gpu first;
    char text[256];
    *gpus = (struct exec_gpus){.modules = gpus->modules};
    snprintf(text, sizeof text, "devices=%zu%s%s", count, rfsim && *rfsim ? "," : "", rfsim ? rfsim : "");
    if (gpu_simulated() && (count > 1 || (rfsim && *rfsim)))
        gpu_need_simulated(text);
    else if (gpu_simulated())
        gpu_set_sim(text);
    else if (count > 1 || (rfsim && *rfsim))
        RF_SKIP("needs the simulated driver (unset RF_DRIVER)");
    if (count == 1 && !(rfsim && *rfsim)) gpu_demand_admission();
    gpu_make_runtime(&first, options);
    gpus->runtime = first.runtime;
    if (!gpu_simulated() && !rf_gpu_available(gpus->runtime)) RF_SKIP("no GPU: %s", rf_gpu_reason(gpus->runtime));
    for (size_t i = 0; i < count; i++) {
        RF_PARAMS(struct rf_device_params, params);
        params.index = (int)i;
        params.budget = budget;
        params.modules = gpus->modules;
        RF_ASSERT_OK(rf_device_open_checked(gpus->runtime, &params, &gpus->devices[i]));
        gpus->count++;
    }
}

struct rf_memory_info exec_memory(struct rf_device *device) {
    RF_PARAMS(struct rf_memory_info, info);
    RF_ASSERT_OK(rf_device_memory_info(device, &info));
    return info;
}

struct rf_executor_params exec_params(const struct rf_graph *graph, const struct exec_gpus *gpus) {
    RF_PARAMS(struct rf_executor_params, params);
    params.graph = graph;
    params.cpu_threads = 1;
    if (gpus) {
        params.devices = (struct rf_device *const *)gpus->devices;
        params.device_count = gpus->count;
    }
    return params;
}

void exec_close(struct exec_gpus *gpus) {
    for (size_t i = 0; i < gpus->count; i++) {
        struct rf_memory_info info = exec_memory(gpus->devices[i]);
        RF_EXPECT_INT(info.live_count, 0);
        RF_EXPECT_INT(info.used_bytes, 0);
        RF_ASSERT_OK(rf_device_close(&gpus->devices[i]));
    }
    rf_runtime_destroy(&gpus->runtime);
    RF_EXPECT_INT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_INT(gpu_sim_traps(), 0);
}
