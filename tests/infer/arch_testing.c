/* Timelines: each run builds a graph, gives memory to each tensor with storage of its own, and runs the nodes in
 * order. */
#include "arch_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "graph/graph_impl.h"

void *allocate(size_t count, size_t each) {
    void *memory = calloc(count ? count : 1, each);
    RF_ASSERT(memory != NULL);
    return memory;
}

struct rf_cpu *cpu_of(enum rf_simd_level level) {
    struct rf_cpu *cpu = NULL;
    if (!rf_simd_table(level)) return NULL;
    RF_ASSERT_OK(rf_cpu_create(&(struct rf_cpu_params){.threads = 2, .level = level}, &cpu));
    return cpu;
}

double error_of(const float *a, const double *b, size_t count) {
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(a[i])) return INFINITY;
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0 ? error / size : error > 0 ? INFINITY : 0;
}
double error_of_floats(const float *a, const float *b, size_t count) {
    double *wide = allocate(count, sizeof *wide);
    for (size_t i = 0; i < count; i++) wide[i] = (double)b[i];
    double error = error_of(a, wide, count);
    free(wide);
    return error;
}

/* ---- life ---- */

/* What a timeline with `shared` keeps from run to run. */
struct kept {
    struct kept_executor {
        struct rf_graph_shape shape;
        struct rf_model_graph model;
        struct rf_executor *executor;
    } executors[24];
    size_t count;
    struct rf_buffer *buffers[64]; /* as the timeline's caches; NULL if the layer is on the CPU */
};

static void free_kept(struct timeline *timeline) {
    if (!timeline->kept) return;
    for (size_t i = 0; i < timeline->kept->count; i++) {
        RF_ASSERT_OK(rf_executor_destroy(&timeline->kept->executors[i].executor));
        rf_model_graph_finish(&timeline->kept->executors[i].model);
    }
    for (size_t i = 0; i < RF_COUNT(timeline->kept->buffers); i++)
        if (timeline->kept->buffers[i]) RF_ASSERT_OK(rf_buffer_destroy(&timeline->kept->buffers[i]));
    free(timeline->kept);
    timeline->kept = NULL;
}

void timeline_begin(struct timeline *timeline, const struct model *model, uint32_t longest) {
    const struct rf_hparams *h = &model->hparams;
    timeline->model = model;
    timeline->table_width = (longest + PAGE_ROWS - 1) / PAGE_ROWS;
    timeline->page_count = SEQUENCES * timeline->table_width + 3;
    timeline->table = allocate(SEQUENCES * timeline->table_width, sizeof *timeline->table);
    /* Every page is used once; they go from the last to the first in strides. */
    uint32_t pages = SEQUENCES * timeline->table_width;
    for (uint32_t i = 0; i < pages; i++) timeline->table[i] = (int32_t)(timeline->page_count - 1 - i);
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t other = (i * 7 + 3) % pages;
        int32_t page = timeline->table[i];
        timeline->table[i] = timeline->table[other];
        timeline->table[other] = page;
    }
    memset(timeline->lengths, 0, sizeof timeline->lengths);
    timeline->cache_bytes = (uint64_t)timeline->page_count * h->kv_heads * PAGE_ROWS * h->head_width /
                            rf_dtype_block(timeline->kv) * rf_dtype_block_bytes(timeline->kv);
    timeline->caches = allocate(2 * h->layers, sizeof *timeline->caches);
    for (uint32_t i = 0; i < 2 * h->layers; i++) timeline->caches[i] = allocate(timeline->cache_bytes, 1);
}

void timeline_end(struct timeline *timeline) {
    free_kept(timeline);
    for (uint32_t i = 0; i < 2 * timeline->model->hparams.layers; i++) free(timeline->caches[i]);
    free(timeline->caches);
    free(timeline->table);
    timeline->caches = NULL;
    timeline->table = NULL;
}

/* ---- a run ---- */

/* The contents of a graph's inputs. */
struct inputs {
    uint32_t tokens, sequences;
    int32_t *numbers[5]; /* tokens, positions, sequences, table, lengths */
};
static const char *const input_names[5] = {"tokens", "positions", "sequences", "table", "lengths"};

/* The index of one of the timeline's caches. */
static uint32_t cache_index(const struct timeline *timeline, const char *name) {
    unsigned layer;
    char which;
    RF_ASSERT(sscanf(name, "cache_%c.%u", &which, &layer) == 2 && layer < timeline->model->hparams.layers);
    return 2 * layer + (which == 'v');
}
static void *cache_of(const struct timeline *timeline, const char *name) {
    return timeline->caches[cache_index(timeline, name)];
}

/* The memory of a tensor with storage of its own; results are NaN until their node has run. */
static void *memory_of(const struct timeline *timeline, const struct rf_tensor_row *tensor,
                       const struct inputs *inputs) {
    switch (tensor->role) {
    case RF_ROLE_CONSTANT: return (void *)(uintptr_t)tensor->data;
    case RF_ROLE_STATE: RF_ASSERT_UINT(tensor->bytes, timeline->cache_bytes); return cache_of(timeline, tensor->name);
    case RF_ROLE_INPUT:
        for (int i = 0; i < 5; i++)
            if (!strcmp(tensor->name, input_names[i])) return inputs->numbers[i];
        RF_FAIL("an input '%s' that nobody knows", tensor->name);
        return NULL;
    case RF_ROLE_RESULT: break;
    }
    void *memory = aligned_alloc(64, (tensor->bytes + 63) / 64 * 64);
    RF_ASSERT(memory != NULL);
    memset(memory, 0xff, tensor->bytes);
    return memory;
}

static void copy_layers(const struct timeline *timeline, const struct rf_graph *graph, void *const *memory,
                        uint32_t tokens) {
    const struct rf_hparams *h = &timeline->model->hparams;
    for (uint32_t layer = 0; timeline->layers && layer < h->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%u", layer);
        rf_tensor_id id = rf_graph_find(graph, name);
        if (!id) continue;
        memcpy(timeline->layers + (size_t)layer * tokens * h->width, memory[id - 1], graph->tensors[id - 1].bytes);
    }
}

static void evaluate(const struct timeline *timeline, const struct rf_graph *graph, const struct inputs *inputs,
                     float *logits) {
    void **memory = allocate(graph->tensor_count, sizeof *memory);
    for (size_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i].root == i) memory[i] = memory_of(timeline, &graph->tensors[i], inputs);
    for (size_t s = 0; s < graph->node_count; s++) {
        const struct rf_node_row *node = &graph->nodes[s];
        struct rf_op_call call;
        rf_graph_call(graph, node, &call);
        for (int i = 0; i < call.count; i++)
            if (node->tensors[i] != RF_NO_INDEX) call.tensors[i].host = memory[graph->tensors[node->tensors[i]].root];
        RF_TRACE("node %zu, %s", s, node->name);
        RF_ASSERT_OK(rf_op_check(&call));
        if (timeline->cpu && call.op->cpu)
            RF_ASSERT_OK(call.op->cpu(timeline->cpu, &call));
        else
            call.op->reference(&call);
    }
    rf_tensor_id out = rf_graph_find(graph, "logits");
    RF_ASSERT((out != 0) == (logits != NULL));
    if (out) memcpy(logits, memory[out - 1], graph->tensors[out - 1].bytes);
    copy_layers(timeline, graph, memory, inputs->tokens);
    for (size_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i].root == i && graph->tensors[i].role == RF_ROLE_RESULT) free(memory[i]);
    free(memory);
}

/* ---- the same through an executor ---- */

static int place(void *user, int group) {
    const struct timeline *timeline = user;
    const struct rf_hparams *hparams = &timeline->model->hparams;
    if (group < RF_GROUP_LAYER || group == rf_group_output(hparams)) return group < RF_GROUP_LAYER ? -1 : 0;
    return (uint32_t)(group - RF_GROUP_LAYER) + (uint32_t)timeline->device_layers >= hparams->layers ? 0 : -1;
}
static bool bind(void *user, rf_tensor_id id, const char *name, int at, struct rf_binding *binding) {
    struct timeline *timeline = user;
    (void)id;
    if (strncmp(name, "cache_", 6)) return false;
    uint32_t index = cache_index(timeline, name);
    if (at < 0) {
        binding->host = timeline->caches[index];
        return true;
    }
    RF_ASSERT(index < RF_COUNT(timeline->kept->buffers));
    if (!timeline->kept->buffers[index]) {
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = timeline->cache_bytes;
        RF_ASSERT_OK(rf_buffer_create_safe(timeline->device, &params, &timeline->kept->buffers[index]));
    }
    binding->buffer = timeline->kept->buffers[index];
    return true;
}

static struct rf_executor *create_executor(struct timeline *timeline, const struct rf_graph *graph) {
    struct rf_executor *executor = NULL;
    RF_PARAMS(struct rf_executor_params, params);
    params.graph = graph;
    params.devices = &timeline->device;
    params.device_count = timeline->device ? 1 : 0;
    params.no_cpu = timeline->device && timeline->device_layers < 0;
    params.cpu_threads = 2;
    params.check = !timeline->shared;
    params.replay = timeline->shared;
    params.passes = timeline->passes;
    if (timeline->shared) params.bind = bind;
    if (timeline->device && timeline->device_layers >= 0) params.place_group = place;
    params.user = timeline;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    return executor;
}

/* Caches that are not bound, or that are on a device, are written before a run (bound ones before the first run) and
 * read after it, so that all timelines work alike. */
static void execute(struct timeline *timeline, const struct rf_graph *graph, struct rf_executor *executor,
                    const struct inputs *inputs, bool first, float *logits) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        bool cache = tensor->role == RF_ROLE_STATE;
        if (cache && timeline->shared && (!first || !timeline->kept->buffers[cache_index(timeline, tensor->name)]))
            continue;
        if (cache || tensor->role == RF_ROLE_INPUT)
            RF_ASSERT_OK(
                rf_executor_write(executor, (rf_tensor_id)i + 1, memory_of(timeline, tensor, inputs), tensor->bytes));
    }
    RF_ASSERT_OK(rf_executor_run(executor));
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const struct rf_tensor_row *tensor = &graph->tensors[i];
        if (tensor->role != RF_ROLE_STATE) continue;
        if (timeline->shared && !timeline->kept->buffers[cache_index(timeline, tensor->name)]) continue;
        RF_ASSERT_OK(
            rf_executor_read(executor, (rf_tensor_id)i + 1, cache_of(timeline, tensor->name), tensor->bytes));
    }
    rf_tensor_id out = rf_graph_find(graph, "logits");
    if (out) RF_ASSERT_OK(rf_executor_read(executor, out, logits, graph->tensors[out - 1].bytes));
}

/* Runs through the executor of this shape, which is created if it does not exist yet. */
static void run_shared(struct timeline *timeline, const struct rf_graph_shape *shape, const struct inputs *inputs,
                       float *logits) {
    if (!timeline->kept) timeline->kept = allocate(1, sizeof *timeline->kept);
    struct kept *kept = timeline->kept;
    size_t i = 0;
    bool first = !kept->count;
    while (i < kept->count && memcmp(&kept->executors[i].shape, shape, sizeof *shape)) i++;
    struct kept_executor *one = &kept->executors[i];
    if (i == kept->count) {
        RF_ASSERT(i < RF_COUNT(kept->executors));
        RF_ASSERT_OK(rf_arch_build(timeline->model->gguf, &timeline->model->hparams, shape, NULL, &one->model));
        memcpy(&one->shape, shape, sizeof *shape);
        one->executor = create_executor(timeline, one->model.graph);
        kept->count++;
    }
    execute(timeline, one->model.graph, one->executor, inputs, first, logits);
}

static void run(struct timeline *timeline, const struct inputs *inputs, enum wanted wanted, float *logits) {
    const struct model *model = timeline->model;
    struct rf_model_graph made;
    struct rf_graph_shape shape;
    memset(&shape, 0, sizeof shape); /* shapes are compared whole */
    shape.tokens = inputs->tokens;
    shape.sequences = inputs->sequences;
    shape.all_logits = wanted == ALL;
    shape.no_logits = wanted == NONE;
    shape.page_rows = PAGE_ROWS;
    shape.page_count = timeline->page_count;
    shape.table_width = timeline->table_width;
    shape.longest = timeline->table_width * PAGE_ROWS;
    shape.kv_dtype = timeline->kv;
    if (timeline->shared) {
        run_shared(timeline, &shape, inputs, logits);
        return;
    }
    RF_ASSERT_OK(rf_arch_build(model->gguf, &model->hparams, &shape, NULL, &made));
    struct rf_graph *graph = made.graph;
    if (timeline->executor) {
        struct rf_executor *executor = create_executor(timeline, graph);
        execute(timeline, graph, executor, inputs, true, logits);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
    } else {
        evaluate(timeline, graph, inputs, logits);
    }
    rf_model_graph_finish(&made);
}

static struct inputs inputs_for(const struct timeline *timeline, uint32_t tokens, uint32_t sequences) {
    struct inputs inputs = {.tokens = tokens, .sequences = sequences};
    for (int i = 0; i < 5; i++) {
        size_t count = i < 3 ? tokens : i == 3 ? sequences * timeline->table_width : sequences;
        inputs.numbers[i] = allocate(count, sizeof(int32_t));
    }
    return inputs;
}
static void inputs_free(struct inputs *inputs) {
    for (int i = 0; i < 5; i++) free(inputs->numbers[i]);
}
static void set_row(const struct timeline *timeline, struct inputs *inputs, uint32_t row, uint32_t sequence) {
    memcpy(inputs->numbers[3] + row * timeline->table_width, timeline->table + sequence * timeline->table_width,
           timeline->table_width * sizeof(int32_t));
    inputs->numbers[4][row] = (int32_t)timeline->lengths[sequence];
}

void timeline_append(struct timeline *timeline, uint32_t sequence, const int32_t *tokens, uint32_t count,
                     enum wanted wanted, float *logits) {
    struct inputs inputs = inputs_for(timeline, count, 1);
    for (uint32_t i = 0; i < count; i++) {
        inputs.numbers[0][i] = tokens[i];
        inputs.numbers[1][i] = (int32_t)timeline->lengths[sequence]++;
    }
    RF_ASSERT(timeline->lengths[sequence] <= timeline->table_width * PAGE_ROWS);
    set_row(timeline, &inputs, 0, sequence);
    run(timeline, &inputs, wanted, logits);
    inputs_free(&inputs);
}

void timeline_batch(struct timeline *timeline, const uint32_t *sequences, const int32_t *tokens, uint32_t count,
                    float *logits) {
    struct inputs inputs = inputs_for(timeline, count, count);
    for (uint32_t i = 0; i < count; i++) {
        bool filler = sequences[i] >= SEQUENCES;
        inputs.numbers[0][i] = filler ? 0 : tokens[i];
        inputs.numbers[1][i] = filler ? -1 : (int32_t)timeline->lengths[sequences[i]]++;
        inputs.numbers[2][i] = filler ? -1 : (int32_t)i;
        set_row(timeline, &inputs, i, filler ? 0 : sequences[i]);
        if (filler) inputs.numbers[4][i] = 0;
        RF_ASSERT(filler || timeline->lengths[sequences[i]] <= timeline->table_width * PAGE_ROWS);
    }
    run(timeline, &inputs, LAST, logits);
    inputs_free(&inputs);
}
