/* Architectures: graphs compared with a plain forward pass in double, layer by layer, and with logits of an
 * independent engine; in one batch, one by one, in odd chunks, in several sequences at once, on the references and on
 * the CPU at each SIMD level. test_arch_refusals.c has the files that are refused. */
#include "arch_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../gpu/gpu_testing.h"
#include "base/base.h"
#include "gguf_testing.h"
#include "graph/graph_impl.h"
#include "oracle_testing.h"

/* Runs with the references (level AUTO stands for them) and with each level that this machine has. */
#define EACH_HOW(level)                                                                                              \
    for (int level = RF_SIMD_AUTO; level < RF_SIMD_LEVELS; level++)                                                  \
        if (level == RF_SIMD_AUTO || rf_simd_table((enum rf_simd_level)level))
static const char *how_name(int level) {
    return level == RF_SIMD_AUTO ? "reference" : rf_simd_name((enum rf_simd_level)level);
}
static struct rf_cpu *how_cpu(int level) {
    return level == RF_SIMD_AUTO ? NULL : cpu_of((enum rf_simd_level)level);
}

static void fill_tokens(int32_t *tokens, uint32_t count, uint32_t vocabulary, uint64_t seed) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((seed * 31 + i * i * 7 + i * 13 + 5) % vocabulary);
}

/* ---- graphs are plain; the passes fuse nodes ---- */

static size_t count_nodes(const struct rf_graph *graph, const char *op) {
    size_t count = 0;
    for (size_t i = 0; i < graph->node_count; i++) count += !strcmp(graph->nodes[i].op->name, op);
    return count;
}

RF_TEST(arch, passes_fuse_what_a_token_needs) {
    static const struct spec spec = {"fused",        "llama",       .layers = 2,        .width = 64,
                                     .heads = 4,     .kv_heads = 2, .feed_forward = 64, .vocabulary = 40,
                                     .dtype = RF_F16};
    static const struct {
        uint32_t tokens;
        const char *op;
        size_t plain, fused; /* nodes of a graph of 2 layers */
    } expected[] = {
        /* The last layer computes attention and feed-forward for the last token only, however many tokens there
         * are. */
        {1, "rms_norm", 5, 1},
        {1, "norm_qkv", 0, 0},
        {1, "norm_gate", 0, 2},
        {1, "cast_matmul", 0, 2},
        {1, "matmul", 15, 3},
        {1, "rope_append", 0, 0},
        {1, "rope", 4, 0},
        {1, "add", 4, 0},
        {1, "copy", 2, 0},
        {1, "activation", 2, 0},
        {4, "matmul_gate", 0, 1},
        {4, "norm_gate", 0, 1},
        {4, "matmul", 15, 10},
        {4, "add", 4, 0},
        {4, "rope_append", 0, 1},
        {4, "kv_append", 2, 1},
        {40, "activation", 2, 1},
        {40, "multiply", 2, 0},
        {40, "matmul", 15, 12},
        {40, "rope", 4, 2},
        {40, "matmul_gate", 0, 0},
        {40, "add_norm", 0, 0},
        {1, "norm_qkv_append", 0, 2},
    };
    struct model model;
    model_make(&model, &spec);
    for (size_t i = 0; i < RF_COUNT(expected); i++) {
        struct rf_graph_shape shape = {.tokens = expected[i].tokens,
                                       .sequences = 1,
                                       .page_rows = 8,
                                       .page_count = 8,
                                       .table_width = 8,
                                       .longest = 64,
                                       .kv_dtype = RF_F16};
        struct rf_model_graph made;
        struct rf_graph *fused = NULL;
        RF_TRACE("%u tokens, %s", expected[i].tokens, expected[i].op);
        RF_ASSERT_OK(rf_arch_build(model.gguf, &model.hparams, &shape, NULL, &made));
        RF_ASSERT_OK(rf_graph_optimize(made.graph, RF_PASS_FUSE, &fused, NULL, NULL));
        RF_EXPECT_UINT(count_nodes(made.graph, expected[i].op), expected[i].plain);
        RF_EXPECT_UINT(count_nodes(fused, expected[i].op), expected[i].fused);
        rf_graph_destroy(&fused);
        rf_model_graph_finish(&made);
    }
    model_close(&model);
}

/* ---- models made here, compared with the plain pass ---- */

#define SMALL .layers = 3, .width = 96, .heads = 6, .kv_heads = 2, .feed_forward = 160, .vocabulary = 61
static const struct spec specs[] = {
    {"llama", "llama", SMALL, .rotated = 16},
    {"llama_one_block", "llama", .layers = 1, .width = 64, .heads = 2, .kv_heads = 2, .feed_forward = 96,
     .vocabulary = 33},
    {"llama_mqa_tied", "llama", .layers = 2, .width = 64, .heads = 8, .kv_heads = 1, .feed_forward = 40,
     .vocabulary = 50, .tied = true, .seed = 1},
    {"llama_no_gqa_key_array", "llama", .layers = 4, .width = 64, .heads = 4, .kv_heads = 4, .feed_forward = 72,
     .vocabulary = 50, .kv_array = true, .seed = 2},
    {"llama_biases", "llama", SMALL, .biases = true, .seed = 3},
    {"llama_half_rotated", "llama", SMALL, .rotated = 8, .rope_base = 500, .seed = 4},
    {"llama_factors", "llama", SMALL, .factors = true, .rope_base = 500000, .seed = 5},
    {"llama_linear", "llama", SMALL, .factor = 4, .scaling = "linear", .seed = 6},
    {"llama_scaling_none", "llama", SMALL, .factor = 4, .scaling = "none", .seed = 7},
    {"llama_yarn", "llama", .layers = 2, .width = 128, .heads = 2, .kv_heads = 1, .feed_forward = 96,
     .vocabulary = 40, .factor = 8, .scaling = "yarn", .original_context = 64, .attention_factor = 1.25f, .seed = 8},
    {"llama_wide_heads", "llama", .layers = 2, .width = 64, .heads = 3, .kv_heads = 1, .head_width = 256,
     .feed_forward = 64, .vocabulary = 40, .seed = 9},
    {"llama_f16", "llama", SMALL, .dtype = RF_F16, .seed = 10},
    {"llama_mixed", "llama", SMALL, .dtype = RF_F16, .up_dtype = RF_Q8_0, .tied = true, .seed = 11},
    {"qwen2", "qwen2", SMALL, .rope_base = 1e6f, .seed = 12},
    {"qwen2_tied", "qwen2", SMALL, .tied = true, .seed = 13},
    {"qwen3", "qwen3", SMALL, .head_width = 40, .rope_base = 1e6f, .seed = 14},
    {"qwen3_tied_mqa", "qwen3", .layers = 2, .width = 64, .heads = 5, .kv_heads = 1, .head_width = 24,
     .feed_forward = 96, .vocabulary = 70, .tied = true, .seed = 15},
};

/* The widened f16 weights are exact, so only sums differ. With Q8_0 on the CPU, activations are rounded to 8 bits. */
static double bound_of(const struct spec *spec, int level) {
    return spec->up_dtype == RF_Q8_0 && level != RF_SIMD_AUTO ? 1e-4 : 1e-10;
}

RF_TEST_LABELLED_CASES(simple_model_parity, layer_by_layer, struct spec, specs) {
    enum { COUNT = 21 };
    struct model model;
    int32_t tokens[COUNT];
    model_make(&model, c);
    const struct rf_hparams *h = &model.hparams;
    fill_tokens(tokens, COUNT, h->vocabulary, c->seed);
    size_t layer_size = (size_t)COUNT * h->width;
    double *truth = allocate(COUNT * h->vocabulary, sizeof *truth);
    double *layers = allocate(h->layers * layer_size, sizeof *layers);
    float *logits = allocate(COUNT * h->vocabulary, sizeof *logits);
    model_truth(&model, tokens, COUNT, truth, layers);
    EACH_HOW(level) {
        RF_TRACE("%s", how_name(level));
        struct timeline timeline = {.cpu = how_cpu(level), .layers = allocate(h->layers * layer_size, sizeof(float))};
        timeline_begin(&timeline, &model, COUNT);
        timeline_append(&timeline, 0, tokens, COUNT, ALL, logits);
        for (uint32_t layer = 0; layer < h->layers; layer++) {
            RF_TRACE("layer %u", layer);
            RF_EXPECT_DOUBLE(error_of(timeline.layers + layer * layer_size, layers + layer * layer_size, layer_size),
                             0, bound_of(c, level));
        }
        double error = error_of(logits, truth, (size_t)COUNT * h->vocabulary);
        RF_NOTE("%s: %.2g", how_name(level), error);
        RF_EXPECT_DOUBLE(error, 0, bound_of(c, level));
        free(timeline.layers);
        timeline_end(&timeline);
        rf_cpu_destroy(&timeline.cpu);
    }
    free(truth);
    free(layers);
    free(logits);
    model_close(&model);
}

/* Asking for the last row only, evaluating a prompt's inner part without logits, and evaluating one token at a time
 * give the same rows as asking for all rows. */
RF_TEST_LABELLED_CASES(simple_model_parity, wanted_rows, struct spec, specs) {
    enum { COUNT = 19, INNER = 11 };
    struct model model;
    int32_t tokens[COUNT];
    model_make(&model, c);
    const struct rf_hparams *h = &model.hparams;
    fill_tokens(tokens, COUNT, h->vocabulary, c->seed + 3);
    double *truth = allocate(COUNT * h->vocabulary, sizeof *truth);
    float *row = allocate(h->vocabulary, sizeof *row);
    model_truth(&model, tokens, COUNT, truth, NULL);
    const double *last = truth + (size_t)(COUNT - 1) * h->vocabulary;
    EACH_HOW(level) {
        RF_TRACE("%s", how_name(level));
        struct timeline timeline = {.cpu = how_cpu(level)};
        timeline_begin(&timeline, &model, COUNT);
        timeline_append(&timeline, 0, tokens, COUNT, LAST, row);
        RF_EXPECT_DOUBLE(error_of(row, last, h->vocabulary), 0, bound_of(c, level));
        timeline_append(&timeline, 1, tokens, INNER, NONE, NULL);
        timeline_append(&timeline, 1, tokens + INNER, COUNT - INNER, LAST, row);
        RF_EXPECT_DOUBLE(error_of(row, last, h->vocabulary), 0, bound_of(c, level));
        for (uint32_t i = 0; i < COUNT; i++) {
            RF_TRACE("token %u alone", i);
            timeline_append(&timeline, 2, tokens + i, 1, LAST, row);
            RF_EXPECT_DOUBLE(error_of(row, truth + (size_t)i * h->vocabulary, h->vocabulary), 0, bound_of(c, level));
        }
        timeline_end(&timeline);
        rf_cpu_destroy(&timeline.cpu);
    }
    free(truth);
    free(row);
    model_close(&model);
}

/* Three sequences of different lengths and a filler get one token each in one graph, compared with each sequence
 * alone. */
RF_TEST_LABELLED_CASES(simple_model_parity, several_sequences, struct spec, specs) {
    enum { COUNT = 17, BATCH = 3, ROWS = 4 };
    struct model model;
    int32_t tokens[BATCH][COUNT];
    static const uint32_t begun[BATCH] = {0, 5, 9}, order[ROWS] = {2, FILLER, 0, 1};
    model_make(&model, c);
    const struct rf_hparams *h = &model.hparams;
    double *truth[BATCH];
    float *rows = allocate(ROWS * h->vocabulary, sizeof *rows);
    for (uint32_t s = 0; s < BATCH; s++) {
        truth[s] = allocate(COUNT * h->vocabulary, sizeof(double));
        fill_tokens(tokens[s], COUNT, h->vocabulary, c->seed + 10 * s + 1);
        model_truth(&model, tokens[s], COUNT, truth[s], NULL);
    }
    EACH_HOW(level) {
        RF_TRACE("%s", how_name(level));
        struct timeline timeline = {.cpu = how_cpu(level)};
        timeline_begin(&timeline, &model, COUNT);
        for (uint32_t s = 0; s < BATCH; s++)
            if (begun[s]) timeline_append(&timeline, s, tokens[s], begun[s], NONE, NULL);
        for (uint32_t step = 0; step < COUNT - begun[BATCH - 1]; step++) {
            int32_t next[ROWS] = {0};
            for (uint32_t i = 0; i < ROWS; i++)
                if (order[i] != FILLER) next[i] = tokens[order[i]][begun[order[i]] + step];
            timeline_batch(&timeline, order, next, ROWS, rows);
            for (uint32_t i = 0; i < ROWS; i++) {
                RF_TRACE("step %u, sequence %u", step, order[i]);
                if (order[i] == FILLER) continue;
                const double *expected = truth[order[i]] + (size_t)(begun[order[i]] + step) * h->vocabulary;
                RF_EXPECT_DOUBLE(error_of(rows + i * h->vocabulary, expected, h->vocabulary), 0, bound_of(c, level));
            }
        }
        timeline_end(&timeline);
        rf_cpu_destroy(&timeline.cpu);
    }
    for (uint32_t s = 0; s < BATCH; s++) free(truth[s]);
    free(rows);
    model_close(&model);
}

/* Caches of 16 and 8 bits, compared with f32: the error is that of rounding keys and values, and not more. */
static const struct cache {
    const char *label;
    enum rf_dtype dtype;
    double bound;
} caches[] = {{"f16", RF_F16, 5e-7}, {"q8_0", RF_Q8_0, 1e-4}};
RF_TEST_LABELLED_CASES(simple_model_parity, cache_types, struct cache, caches) {
    enum { COUNT = 30 };
    static const struct spec models[] = {
        {"llama", "llama", .layers = 3, .width = 128, .heads = 4, .kv_heads = 2, .feed_forward = 160,
         .vocabulary = 61},
        {"qwen3", "qwen3", .layers = 3, .width = 96, .heads = 4, .kv_heads = 1, .head_width = 64, .feed_forward = 160,
         .vocabulary = 61},
    };
    for (size_t m = 0; m < RF_COUNT(models); m++) {
        struct model model;
        int32_t tokens[COUNT];
        model_make(&model, &models[m]);
        uint32_t vocabulary = model.hparams.vocabulary;
        fill_tokens(tokens, COUNT, vocabulary, m);
        double *truth = allocate(COUNT * vocabulary, sizeof *truth);
        float *logits = allocate(COUNT * vocabulary, sizeof *logits);
        model_truth(&model, tokens, COUNT, truth, NULL);
        EACH_HOW(level) {
            RF_TRACE("%s, %s", models[m].label, how_name(level));
            struct timeline timeline = {.cpu = how_cpu(level), .kv = c->dtype};
            timeline_begin(&timeline, &model, COUNT);
            timeline_append(&timeline, 1, tokens, COUNT - 9, ALL, logits);
            for (uint32_t i = COUNT - 9; i < COUNT; i++)
                timeline_append(&timeline, 1, tokens + i, 1, LAST, logits + (size_t)i * vocabulary);
            double error = error_of(logits, truth, (size_t)COUNT * vocabulary);
            RF_NOTE("%s, %s: %.2g", models[m].label, how_name(level), error);
            RF_EXPECT_DOUBLE(error, 0, c->bound);
            RF_EXPECT(error > 1e-9); /* the cache really is rounded */
            timeline_end(&timeline);
            rf_cpu_destroy(&timeline.cpu);
        }
        free(truth);
        free(logits);
        model_close(&model);
    }
}

/* ---- models as tools/make_random_model.py writes them ---- */

/* The blocks of each type are valid and of ordinary magnitude: the plain pass over the widened weights gives the
 * same. */
static const struct written {
    const char *label, *arguments;
    double bound;
} written[] = {
    {"f32", "--type f32 --arch llama", 1e-10},
    {"f16", "--type f16 --arch qwen2 --tied", 1e-10},
    {"bf16", "--type bf16 --arch qwen3 --head-width 80", 1e-10},
    {"q4_0", "--type q4_0 --arch llama --vocab-tokens none", 1e-3},
    {"q8_0", "--type q8_0 --arch qwen3", 1e-3},
    {"q4_k", "--type q4_k --output-type q6_k --arch llama", 1e-3},
    {"q6_k", "--type q6_k --arch qwen2 --rope-base 1e6", 1e-3},
};
RF_TEST_LABELLED_CASES(arch, random_models, struct written, written) {
    enum { COUNT = 12 };
    char command[1024];
    struct model model;
    int32_t tokens[COUNT];
    const char *path = scratch_path("random.gguf");
    if (system("python3 -c 1 2>/dev/null")) RF_SKIP("no python3");
    snprintf(command, sizeof command,
             "python3 '%s/make_random_model.py' --dim 256 --layers 2 --heads 4 --kv-heads 2 --ff 512 --vocab 300 %s "
             "--out '%s' >/dev/null",
             TOOLS, c->arguments, path);
    RF_ASSERT_INT(system(command), 0);
    model_open(&model, path);
    uint32_t vocabulary = model.hparams.vocabulary;
    RF_ASSERT_UINT(vocabulary, 300);
    fill_tokens(tokens, COUNT, vocabulary, 1);
    double *truth = allocate(COUNT * vocabulary, sizeof *truth), size = 0;
    float *logits = allocate(COUNT * vocabulary, sizeof *logits);
    model_truth(&model, tokens, COUNT, truth, NULL);
    for (uint32_t i = 0; i < COUNT * vocabulary; i++) size += truth[i] * truth[i] / (COUNT * vocabulary);
    RF_NOTE("logits of %.2g", sqrt(size));
    RF_EXPECT(size > 0.01 && size < 100);
    EACH_HOW(level) {
        RF_TRACE("%s", how_name(level));
        struct timeline timeline = {.cpu = how_cpu(level)};
        timeline_begin(&timeline, &model, COUNT);
        timeline_append(&timeline, 0, tokens, COUNT, ALL, logits);
        double error = error_of(logits, truth, (size_t)COUNT * vocabulary);
        RF_NOTE("%s: %.2g", how_name(level), error);
        RF_EXPECT_DOUBLE(error, 0, level == RF_SIMD_AUTO ? 1e-10 : c->bound);
        timeline_end(&timeline);
        rf_cpu_destroy(&timeline.cpu);
    }
    free(truth);
    free(logits);
    model_close(&model);
}

/* ---- the oracle ---- */

static void open_oracle(const struct oracle *oracle, struct model *model, struct answers *answers) {
    char path[512];
    if (!oracle_find(oracle, path, sizeof path))
        RF_SKIP("no %s.gguf: RF_TEST_DATA names no folder with it", oracle->label);
    model_open(model, path);
    answers_open(path, answers);
    RF_ASSERT_UINT(answers->vocabulary, model->hparams.vocabulary);
}

/* Evaluates the prompt in chunks, then each greedy step, and compares with the rows of the oracle. */
static void follow(struct timeline *timeline, const struct answers *answers, const uint32_t *chunks, double bound,
                   const char *what) {
    uint32_t vocabulary = answers->vocabulary, rows = answers->prompt + answers->steps - 1, done = 0;
    float *logits = allocate((size_t)rows * vocabulary, sizeof *logits);
    const float **expected = allocate(rows, sizeof *expected);
    for (size_t i = 0; done < answers->prompt; i++) {
        uint32_t count = RF_MIN(chunks[i % 4], answers->prompt - done);
        timeline_append(timeline, 0, answers->tokens + done, count, ALL, logits + (size_t)done * vocabulary);
        for (uint32_t r = 0; r < count; r++, done++) expected[done] = answers->logits + (size_t)done * vocabulary;
    }
    for (uint32_t step = 0; done < rows; step++, done++) {
        timeline_append(timeline, 0, (int32_t[]){answers_token(answers, step)}, 1, LAST,
                        logits + (size_t)done * vocabulary);
        expected[done] = answers_step(answers, step + 1);
    }
    answers_compare(answers, logits, expected, rows, bound, what);
    free(expected);
    free(logits);
}

static const struct {
    const char *name;
    uint32_t sizes[4];
} chunkings[] = {{"one batch", {1000, 1000, 1000, 1000}}, {"one by one", {1, 1, 1, 1}}, {"odd chunks", {5, 1, 9, 3}}};

RF_TEST_LABELLED_CASES(transformer_integration, oracle_logits, struct oracle, oracles) {
    struct model model;
    struct answers answers;
    open_oracle(c, &model, &answers);
    EACH_HOW(level) for (size_t i = 0; i < RF_COUNT(chunkings); i++) {
        char what[96];
        if (level == RF_SIMD_AUTO && i + 1 < RF_COUNT(chunkings)) continue; /* it is slow, and exact in any chunks */
        snprintf(what, sizeof what, "%s, %s", how_name(level), chunkings[i].name);
        struct timeline timeline = {.cpu = how_cpu(level)};
        timeline_begin(&timeline, &model, answers.prompt + answers.steps);
        follow(&timeline, &answers, chunkings[i].sizes, c->bound, what);
        timeline_end(&timeline);
        rf_cpu_destroy(&timeline.cpu);
    }
    free(answers.file);
    model_close(&model);
}

/* ---- through the executor ---- */

/* Where the layers are: how many of the last layers are on the device; -1: all, with embedding and output. */
struct where {
    const char *label;
    bool device;
    int device_layers;
    unsigned passes;
    bool shared; /* executors are kept and replay, caches are bound */
};
static const struct where on_cpu[] = {
    {.label = "cpu"},
    {.label = "passes", .passes = RF_PASSES_ALL},
    {.label = "shared", .shared = true},
};
static const struct where on_gpu[] = {
    {.label = "gpu", .device = true, .device_layers = -1},
    {.label = "split", .device = true, .device_layers = 1},
    {.label = "replay", .device = true, .device_layers = -1, .passes = RF_PASSES_ALL, .shared = true},
    {.label = "split_replay", .device = true, .device_layers = 1, .shared = true},
};

static void open_place(const struct where *where, struct gpu *gpu, struct timeline *timeline) {
    if (where->device) gpu_open(gpu, NULL);
    timeline->executor = true;
    timeline->device = gpu->device;
    timeline->device_layers = where->device_layers;
    timeline->passes = where->passes;
    timeline->shared = where->shared;
}

/* Models made here, compared with the plain pass; caches are compared too, so a difference shows in the layer that
 * causes it. */
static void execute_models(const struct where *c) {
    enum { COUNT = 13 };
    struct gpu gpu = {0};
    struct timeline timeline = {0};
    open_place(c, &gpu, &timeline);
    for (size_t m = 0; m < RF_COUNT(specs); m++) {
        RF_TRACE("%s", specs[m].label);
        struct model model;
        int32_t tokens[COUNT];
        struct timeline reference = {0};
        model_make(&model, &specs[m]);
        const struct rf_hparams *h = &model.hparams;
        fill_tokens(tokens, COUNT, h->vocabulary, m);
        double *truth = allocate(COUNT * h->vocabulary, sizeof *truth);
        float *logits = allocate(COUNT * h->vocabulary, sizeof *logits);
        model_truth(&model, tokens, COUNT, truth, NULL);
        timeline_begin(&timeline, &model, COUNT);
        timeline_begin(&reference, &model, COUNT);
        timeline_append(&timeline, 0, tokens, COUNT - 2, ALL, logits);
        for (uint32_t i = COUNT - 2; i < COUNT; i++)
            timeline_append(&timeline, 0, tokens + i, 1, LAST, logits + (size_t)i * h->vocabulary);
        timeline_append(&reference, 0, tokens, COUNT, NONE, NULL);
        /* Matrix units round activations to 16 bits; the CPU rounds them to 8 for Q8_0. */
        double bound = specs[m].up_dtype ? 1e-4 : specs[m].dtype == RF_F16 ? 2e-6 : 1e-9;
        for (uint32_t i = 0; i < 2 * h->layers; i++) {
            RF_TRACE("%s of layer %u", i % 2 ? "values" : "keys", i / 2);
            RF_EXPECT_DOUBLE(error_of_floats((const float *)timeline.caches[i], (const float *)reference.caches[i],
                                             timeline.cache_bytes / sizeof(float)),
                             0, bound);
        }
        double error = error_of(logits, truth, (size_t)COUNT * h->vocabulary);
        RF_NOTE("%s: %.2g", specs[m].label, error);
        RF_EXPECT_DOUBLE(error, 0, bound);
        timeline_end(&timeline);
        timeline_end(&reference);
        free(truth);
        free(logits);
        model_close(&model);
    }
    if (c->device) gpu_close(&gpu);
}

RF_TEST_LABELLED_CASES(simple_model_parity, executed, struct where, on_cpu, .timeout_ms = 1500000) {
    execute_models(c);
}
RF_TEST_LABELLED_CASES(simple_model_parity, executed_on_gpu, struct where, on_gpu, .gpu = true, .timeout_ms = 1500000,
                       .tags = "heavy") {
    execute_models(c);
}

/* Caches of 16 and 8 bits, and three sequences at once, on the device, compared with the plain pass. */
RF_TEST_LABELLED_CASES(simple_model_parity, caches_on_gpu, struct cache, caches, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 11, BATCH = 3, ROWS = 4, BEGUN = 9 };
    static const struct spec spec = {"llama",    "llama",       .layers = 2,         .width = 128,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 160, .vocabulary = 61};
    static const uint32_t sequences[ROWS] = {1, 2, FILLER, 0};
    struct gpu gpu = {0};
    struct model model;
    struct timeline timeline = {.kv = c->dtype};
    int32_t tokens[BATCH][COUNT], next[ROWS] = {0};
    open_place(&on_gpu[0], &gpu, &timeline);
    model_make(&model, &spec);
    uint32_t vocabulary = model.hparams.vocabulary;
    double *truth = allocate(COUNT * vocabulary, sizeof *truth);
    float *rows = allocate(2 * ROWS * vocabulary, sizeof *rows);
    timeline_begin(&timeline, &model, COUNT);
    for (uint32_t s = 0; s < BATCH; s++) {
        fill_tokens(tokens[s], COUNT, vocabulary, s);
        timeline_append(&timeline, s, tokens[s], BEGUN - s, NONE, NULL);
    }
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t i = 0; i < ROWS; i++)
            if (sequences[i] != FILLER) next[i] = tokens[sequences[i]][timeline.lengths[sequences[i]]];
        timeline_batch(&timeline, sequences, next, ROWS, rows + (size_t)step * ROWS * vocabulary);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t s = sequences[i];
        if (s == FILLER) continue;
        model_truth(&model, tokens[s], COUNT, truth, NULL);
        for (uint32_t step = 0; step < 2; step++) {
            RF_TRACE("sequence %u, step %u", s, step);
            double error = error_of(rows + (size_t)(step * ROWS + i) * vocabulary,
                                    truth + (size_t)(BEGUN - s + step) * vocabulary, vocabulary);
            RF_NOTE("%.2g", error);
            RF_EXPECT_DOUBLE(error, 0, 2 * c->bound); /* the bound of a single row */
        }
    }
    timeline_end(&timeline);
    free(truth);
    free(rows);
    gpu_close(&gpu);
    model_close(&model);
}

static void execute_oracles(const struct where *c) {
    struct gpu gpu = {0};
    struct timeline timeline = {0};
    bool any = false;
    open_place(c, &gpu, &timeline);
    for (size_t o = 0; o < RF_COUNT(oracles); o++) {
        struct model model;
        struct answers answers;
        char what[96], path[512];
        if (!oracle_find(&oracles[o], path, sizeof path)) continue;
        any = true;
        open_oracle(&oracles[o], &model, &answers);
        snprintf(what, sizeof what, "%s, %s", oracles[o].label, c->label);
        timeline_begin(&timeline, &model, answers.prompt + answers.steps);
        answers.steps = RF_MIN(answers.steps, 7u); /* more steps show nothing new */
        follow(&timeline, &answers, (uint32_t[]){13, 1, 7, 3}, oracles[o].bound, what);
        timeline_end(&timeline);
        free(answers.file);
        model_close(&model);
    }
    if (c->device) gpu_close(&gpu);
    if (!any) RF_SKIP("no oracle: RF_TEST_DATA names no folder with oracle/");
}
RF_TEST_LABELLED_CASES(transformer_integration, oracle_executed, struct where, on_cpu, .timeout_ms = 1800000) {
    execute_oracles(c);
}
RF_TEST_LABELLED_CASES(transformer_integration, oracle_executed_on_gpu, struct where, on_gpu, .gpu = true,
                       .timeout_ms = 1800000, .tags = "heavy") {
    execute_oracles(c);
}
