#include "graph_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rf_graph *graph_new(const char *name) {
    struct rf_graph *graph = NULL;
    RF_ASSERT_OK(rf_graph_create(name, &graph));
    return graph;
}

static struct rf_tensor_desc desc_of(enum rf_dtype dtype, const uint64_t *sizes) {
    struct rf_tensor_desc desc = {.dtype = dtype};
    while (sizes[desc.rank]) desc.shape[desc.rank] = sizes[desc.rank], desc.rank++;
    return desc;
}

rf_tensor_id graph_tensor_of(struct rf_graph *graph, const char *name, enum rf_tensor_role role, enum rf_dtype dtype,
                             const void *data, const uint64_t *sizes) {
    RF_PARAMS(struct rf_graph_tensor, tensor);
    rf_tensor_id id = 0;
    tensor.name = name;
    tensor.role = role;
    tensor.desc = desc_of(dtype, sizes);
    tensor.data = data;
    RF_ASSERT_OK(rf_graph_add_tensor(graph, &tensor, &id));
    return id;
}

static float number(uint64_t *state) {
    return (float)(rf_op_random(state) >> 40) / (float)(1 << 23) - 1; /* [-1, 1) */
}

rf_tensor_id graph_constant_of(struct rf_graph *graph, const char *name, uint64_t seed, const uint64_t *sizes) {
    struct rf_tensor_desc desc = desc_of(RF_F32, sizes);
    uint64_t count = rf_op_elements(&desc);
    float *data = malloc(count * sizeof *data);
    RF_ASSERT(data != NULL);
    for (uint64_t i = 0; i < count; i++) data[i] = number(&seed);
    /* Keeps the data: graphs borrow it and outlive the function that made it. */
    static void *all[100000];
    static size_t used;
    RF_ASSERT(used < sizeof all / sizeof *all);
    all[used++] = data;
    return graph_tensor_of(graph, name, RF_ROLE_CONSTANT, RF_F32, data, sizes);
}

rf_tensor_id graph_view_of(struct rf_graph *graph, const char *name, rf_tensor_id of, uint64_t byte_offset,
                           const uint64_t *sizes) {
    RF_PARAMS(struct rf_graph_tensor, tensor);
    rf_tensor_id id = 0;
    tensor.name = name;
    tensor.desc = desc_of(RF_F32, sizes);
    tensor.desc.byte_offset = byte_offset;
    tensor.view_of = of;
    RF_ASSERT_OK(rf_graph_add_tensor(graph, &tensor, &id));
    return id;
}

rf_status graph_try_node(struct rf_graph *graph, const char *name, const char *op, struct graph_attributes attributes,
                         const rf_tensor_id *ids, size_t count) {
    const struct rf_op *row = rf_op_find(op);
    RF_PARAMS(struct rf_graph_node, node);
    node.op = op;
    node.name = name;
    node.f[0] = attributes.f0;
    node.i[0] = attributes.i0;
    node.i[1] = attributes.i1;
    node.output_count = row ? (size_t)row->outputs : 1;
    RF_ASSERT(count >= node.output_count);
    node.inputs = ids;
    node.input_count = count - node.output_count;
    node.outputs = ids + node.input_count;
    rf_node_id id = 0;
    return rf_graph_add_node(graph, &node, &id);
}

/* ---- the evaluator ---- */

static uint64_t seed_of(uint64_t seed, const char *name) {
    for (; *name; name++) seed = seed * 31 + (unsigned char)*name;
    return seed;
}

static void fill(const struct rf_tensor_row *value, void *storage, uint64_t seed) {
    uint64_t state = seed_of(seed, value->name);
    if (value->role == RF_ROLE_RESULT) {
        memset(storage, 0xff, value->bytes); /* NaN in every float type */
    } else if (value->desc.dtype == RF_I32) {
        for (uint64_t i = 0; i < value->bytes / 4; i++) ((int32_t *)storage)[i] = (int32_t)(rf_op_random(&state) % 4);
    } else {
        RF_ASSERT_INT(value->desc.dtype, RF_F32);
        for (uint64_t i = 0; i < value->bytes / 4; i++) ((float *)storage)[i] = number(&state);
    }
}

struct graph_memory graph_evaluate(const struct rf_graph *graph, uint64_t seed) {
    struct graph_memory memory = {graph, calloc(graph->tensor_count + 1, sizeof(void *)),
                                  calloc(graph->tensor_count + 1, sizeof(bool))};
    RF_ASSERT(memory.storage && memory.borrowed && graph->finished);
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *value = &graph->tensors[i];
        if (value->view_of != RF_NO_INDEX) continue;
        if (value->role == RF_ROLE_CONSTANT) {
            memory.storage[i] = (void *)(uintptr_t)value->data;
            memory.borrowed[i] = true;
            continue;
        }
        memory.storage[i] = aligned_alloc(64, (value->bytes + 63) / 64 * 64);
        RF_ASSERT(memory.storage[i] != NULL);
        fill(value, memory.storage[i], seed);
    }
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *step = &graph->nodes[s];
        struct rf_op_call call;
        rf_graph_call(graph, step, &call);
        for (int o = 0; o < step->op->outputs; o++) {
            if (step->in_place[o] < 0) continue;
            uint32_t out = step->tensors[step->op->inputs + o];
            RF_ASSERT(!memory.borrowed[out]);
            free(memory.storage[out]);
            memory.storage[out] = memory.storage[graph->tensors[step->tensors[step->in_place[o]]].root];
            memory.borrowed[out] = true;
        }
        for (int i = 0; i < call.count; i++)
            if (step->tensors[i] != RF_NO_INDEX)
                call.tensors[i].host = memory.storage[graph->tensors[step->tensors[i]].root];
        RF_ASSERT_OK(rf_op_check(&call));
        step->op->reference(&call);
    }
    return memory;
}

void graph_memory_free(struct graph_memory *memory) {
    for (size_t i = 0; i < memory->graph->tensor_count; i++)
        if (!memory->borrowed[i]) free(memory->storage[i]);
    free(memory->storage);
    free(memory->borrowed);
}

void *graph_data(const struct graph_memory *memory, const char *name) {
    rf_tensor_id id = rf_graph_find(memory->graph, name);
    RF_ASSERT(id != 0);
    const struct rf_tensor_row *value = &memory->graph->tensors[id - 1];
    return (char *)memory->storage[value->root] + value->desc.byte_offset;
}

/* Compares dense f32 tensors as numbers, and other tensors by their bits. */
static bool same_numbers(const float *a, const float *b, uint64_t count, double tolerance, uint64_t *where) {
    double largest = 0;
    for (uint64_t i = 0; i < count; i++)
        if (isfinite(a[i])) largest = fmax(largest, fabs((double)a[i]));
    for (*where = 0; *where < count; ++*where) {
        float x = a[*where], y = b[*where];
        if (x == y || (isnan(x) && isnan(y))) continue;
        if (!(fabs((double)x - (double)y) <= tolerance * (1 + largest))) return false;
    }
    return true;
}

const char *graph_difference(const struct rf_graph *a, const struct rf_graph *b, uint64_t seed, double tolerance) {
    static _Thread_local char text[512];
    struct graph_memory in_a = graph_evaluate(a, seed), in_b = graph_evaluate(b, seed);
    const char *result = NULL;
    size_t compared = 0;
    for (size_t i = 0; i < a->tensor_count && !result; i++) {
        const struct rf_tensor_row *value = &a->tensors[i];
        bool root = value->output || value->role == RF_ROLE_INPUT || value->role == RF_ROLE_STATE;
        if (!root || value->view_of != RF_NO_INDEX) continue;
        rf_tensor_id other = rf_graph_find(b, value->name);
        compared++;
        if (!other || b->tensors[other - 1].bytes != value->bytes) {
            snprintf(text, sizeof text, "'%s' is gone", value->name);
            result = text;
        } else if (value->desc.dtype != RF_F32) {
            if (!memcmp(in_a.storage[i], in_b.storage[other - 1], value->bytes)) continue;
            snprintf(text, sizeof text, "'%s' differs", value->name);
            result = text;
        } else {
            const float *x = graph_data(&in_a, value->name), *y = graph_data(&in_b, value->name);
            uint64_t where;
            if (same_numbers(x, y, (value->bytes - value->desc.byte_offset) / 4, tolerance, &where)) continue;
            snprintf(text, sizeof text, "'%s'[%llu] is %.9g, it should be %.9g", value->name,
                     (unsigned long long)where, (double)y[where], (double)x[where]);
            result = text;
        }
    }
    graph_memory_free(&in_a);
    graph_memory_free(&in_b);
    if (!compared) return "there is nothing to compare";
    return result;
}

struct text {
    char *data;
    size_t length;
};
static bool take(void *user, const char *piece, size_t length) {
    struct text *text = user;
    char *grown = realloc(text->data, text->length + length + 1);
    if (!grown) return false;
    memcpy(grown + text->length, piece, length);
    grown[text->length += length] = 0;
    text->data = grown;
    return true;
}
char *graph_text(const struct rf_graph *graph, enum rf_graph_format format) {
    struct text text = {NULL, 0};
    RF_ASSERT_OK(rf_graph_dump(graph, format, take, &text));
    RF_ASSERT(text.data != NULL);
    return text.data;
}
