/* Engines and sessions: the oracle's logits in any chunks, on every SIMD level, on the GPU and on splits; timelines
 * that are rewound and reused; several sessions at once, interleaved by the caller, in batches and from threads.
 * test_infer_limits.c has refusals and budgets. */
#include "infer_testing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer/engine_impl.h"
#include "oracle_testing.h"

/* ---- the oracle ---- */

static const struct where on_cpu[] = {
    {.label = "scalar", .simd = "scalar"},
    {.label = "avx2", .simd = "avx2"},
    {.label = "avx512", .simd = "avx512"},
    {.label = "auto", .simd = "auto"},
};
static const struct where on_gpu[] = {
    {.label = "gpu", .rfsim = ""},
    {.label = "wave64", .rfsim = "wave=64"},
    {.label = "split", .rfsim = "", .device_layers = 1},
    {.label = "no_replay", .rfsim = "", .no_replay = true},
};

static const struct {
    const char *name;
    uint32_t sizes[4];
} chunkings[] = {{"one batch", {1000, 1000, 1000, 1000}}, {"one by one", {1, 1, 1, 1}}, {"odd chunks", {5, 1, 9, 3}}};

/* The best token of a row, and by how much it exceeds the second. */
static int32_t best_of(const float *row, uint32_t count, double *gap) {
    uint32_t best = 0;
    double second = -INFINITY;
    for (uint32_t i = 1; i < count; i++) {
        if (row[i] > row[best]) {
            second = (double)row[best];
            best = i;
        } else {
            second = RF_MAX(second, (double)row[i]);
        }
    }
    *gap = (double)row[best] - second;
    return (int32_t)best;
}

/* Evaluates the prompt in chunks, then each greedy step, and compares with the rows and the tokens of the oracle. */
static void follow(struct infer *infer, struct rf_session *session, const struct answers *answers,
                   const uint32_t *sizes, double bound, const char *what) {
    uint32_t vocabulary = answers->vocabulary, rows = answers->prompt + answers->steps - 1, done = 0;
    float *logits = infer_rows(infer, rows);
    const float **expected = allocate(rows, sizeof *expected);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    for (size_t i = 0; done < answers->prompt; i++) {
        uint32_t count = RF_MIN(sizes[i % 4], answers->prompt - done);
        RF_ASSERT_OK(
            rf_session_eval(session, answers->tokens + done, count, true, logits + (size_t)done * vocabulary));
        for (uint32_t r = 0; r < count; r++, done++) expected[done] = answers->logits + (size_t)done * vocabulary;
        RF_ASSERT_UINT(rf_session_length(session), done);
    }
    for (uint32_t step = 0; done < rows; step++, done++) {
        /* The token that the engine would choose itself, if the oracle was sure. */
        const float *ours = logits + (size_t)(done - 1) * vocabulary, *theirs = answers_step(answers, step);
        double gap, square = 0;
        int32_t sampled;
        for (uint32_t i = 0; i < vocabulary; i++) square += pow((double)ours[i] - (double)theirs[i], 2) / vocabulary;
        RF_ASSERT_OK(rf_session_sample(session, NULL, &sampled));
        RF_EXPECT_INT(sampled, best_of(ours, vocabulary, &gap));
        best_of(theirs, vocabulary, &gap);
        if (gap > 10 * sqrt(square)) RF_EXPECT_INT(sampled, answers_token(answers, step));
        RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){answers_token(answers, step)}, 1, false,
                                     logits + (size_t)done * vocabulary));
        expected[done] = answers_step(answers, step + 1);
    }
    answers_compare(answers, logits, expected, rows, bound, what);
    free(expected);
    free(logits);
}

/* steps is the most greedy steps; a simulated GPU is slow. */
static void follow_oracles(const struct where *where, uint32_t steps) {
    bool any = false;
    infer_need(where);
    for (size_t o = 0; o < RF_COUNT(oracles); o++) {
        struct infer infer;
        struct answers answers;
        char path[512];
        if (!oracle_find(&oracles[o], path, sizeof path)) continue;
        any = true;
        answers_open(path, &answers);
        answers.steps = RF_MIN(answers.steps, steps);
        RF_PARAMS(struct rf_engine_params, params);
        params.model = path;
        params.context = answers.prompt + answers.steps;
        params.kv = RF_KV_F32;
        infer_open(&infer, where, &params);
        RF_ASSERT_UINT(infer.vocabulary, answers.vocabulary);
        struct rf_session *session = infer_session(&infer);
        for (size_t i = 0; i < RF_COUNT(chunkings); i++) {
            char what[96];
            snprintf(what, sizeof what, "%s, %s", oracles[o].label, chunkings[i].name);
            follow(&infer, session, &answers, chunkings[i].sizes, oracles[o].bound, what);
        }
        rf_session_destroy(&session);
        infer_close(&infer);
        free(answers.file);
    }
    if (!any) RF_SKIP("no oracle: RF_TEST_DATA names no folder with oracle/");
}
RF_TEST_LABELLED_CASES(transformer_integration, engine_oracle, struct where, on_cpu, .timeout_ms = 1500000) {
    follow_oracles(c, 1000);
}
RF_TEST_LABELLED_CASES(transformer_integration, engine_oracle_on_gpu, struct where, on_gpu, .gpu = true,
                       .timeout_ms = 1800000, .tags = "heavy") {
    follow_oracles(c, gpu_simulated() ? 3 : 1000);
}

/* ---- timelines ---- */

#define SMALL .layers = 3, .width = 96, .heads = 6, .kv_heads = 2, .feed_forward = 160, .vocabulary = 61
static const struct spec small = {"llama", "llama", SMALL};
static const struct spec small_qwen = {"qwen3", "qwen3", SMALL, .head_width = 32, .tied = true, .seed = 5};

static const struct where places[] = {
    {.label = "cpu"},
    {.label = "gpu", .rfsim = ""},
    {.label = "split", .rfsim = "", .device_layers = 1},
};

static void fill_tokens(int32_t *tokens, uint32_t count, uint32_t vocabulary, uint64_t seed) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((seed * 31 + i * i * 7 + i * 13 + 5) % vocabulary);
}

/* The logits of the last of these tokens, from a session that holds nothing else. */
static void eval_alone(struct infer *infer, const int32_t *tokens, size_t count, float *row) {
    struct rf_session *session = infer_session(infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, row));
    rf_session_destroy(&session);
}

/* Recordings that fail, on a driver that keeps a failed capture on its stream (HIP before 7.14), and recordings that
 * are switched off, cost no bit of the logits. */
RF_TEST(session, logits_without_recordings_are_the_same, .timeout_ms = 600000) {
    enum { COUNT = 12, PROMPT = 5 };
    gpu_need_simulated("");
    static const struct where gpu = {.label = "gpu", .rfsim = "stale=1,fault=hipStreamEndCapture:1+:901"};
    int32_t tokens[COUNT];
    float *expected = NULL;
    uint64_t begun = 0;
    for (int way = 0; way < 3; way++) { /* not asked for; failing; switched off */
        struct infer infer;
        RF_PARAMS(struct rf_engine_params, params);
        params.model = infer_model(&small, "small.gguf");
        params.context = 64;
        params.no_replay = way == 0;
        if (way == 2) RF_ASSERT(setenv("RF_REPLAY", "off", 1) == 0);
        infer_open(&infer, &gpu, &params);
        struct rf_session *session = infer_session(&infer);
        fill_tokens(tokens, COUNT, infer.vocabulary, 3);
        float *rows = infer_rows(&infer, COUNT - PROMPT + 1);
        RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, rows));
        for (size_t i = PROMPT; i < COUNT; i++)
            RF_ASSERT_OK(rf_session_eval(session, &tokens[i], 1, false, rows + (i - PROMPT + 1) * infer.vocabulary));
        if (expected) RF_EXPECT(memcmp(rows, expected, (COUNT - PROMPT + 1) * infer.vocabulary * sizeof *rows) == 0);
        uint64_t captures = gpu_sim_entry_calls("hipStreamBeginCapture") - begun;
        RF_EXPECT(way == 1 ? captures > 0 : captures == 0);
        begun += captures;
        RF_EXPECT_UINT(gpu_sim_entry_calls("hipGraphLaunch"), 0);
        rf_session_destroy(&session);
        infer_close(&infer);
        if (expected)
            free(rows);
        else
            expected = rows;
    }
    free(expected);
}

RF_TEST_LABELLED_CASES(session, rewind_and_reuse, struct where, places, .gpu = true, .timeout_ms = 600000) {
    infer_need(c);
    enum { COUNT = 20, KEPT = 11 };
    struct infer infer;
    int32_t first[COUNT], second[COUNT], token, again;
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&small, "small.gguf");
    params.context = 64;
    params.sessions = 2;
    infer_open(&infer, c, &params);
    size_t row_bytes = infer.vocabulary * sizeof(float);
    float *expected = infer_rows(&infer, 1), *row = infer_rows(&infer, 1);
    fill_tokens(first, COUNT, infer.vocabulary, 1);
    memcpy(second, first, sizeof second);
    for (int i = KEPT; i < COUNT; i++) second[i] = (first[i] + 1) % (int32_t)infer.vocabulary;

    struct rf_session *session = infer_session(&infer);
    RF_EXPECT_UINT(rf_session_length(session), 0);
    RF_EXPECT_UINT(rf_session_common(session, first, COUNT), 0);
    RF_EXPECT_STATUS(rf_session_sample(session, NULL, &token), RF_E_INVALID);
    RF_ASSERT_OK(rf_session_eval(session, first, COUNT, false, NULL));
    RF_EXPECT_UINT(rf_session_common(session, first, COUNT), COUNT);
    RF_EXPECT_UINT(rf_session_common(session, first, 5), 5);
    RF_EXPECT_UINT(rf_session_common(session, second, COUNT), KEPT);
    RF_EXPECT_STATUS(rf_session_rewind(session, COUNT + 1), RF_E_INVALID);
    RF_EXPECT_UINT(rf_session_length(session), COUNT);
    RF_ASSERT_OK(rf_session_rewind(session, COUNT)); /* nothing is rewound */
    RF_ASSERT_OK(rf_session_sample(session, NULL, &token));

    /* The common prefix is kept; the tokens after it are evaluated as if the others had never been there. */
    RF_ASSERT_OK(rf_session_rewind(session, KEPT));
    RF_EXPECT_STATUS(rf_session_sample(session, NULL, &again), RF_E_INVALID);
    RF_EXPECT_UINT(rf_session_length(session), KEPT);
    RF_ASSERT_OK(rf_session_eval(session, second + KEPT, COUNT - KEPT, false, row));
    struct rf_session *other = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(other, second, KEPT, false, NULL));
    RF_ASSERT_OK(rf_session_eval(other, second + KEPT, COUNT - KEPT, false, expected));
    rf_session_destroy(&other);
    RF_EXPECT(!memcmp(row, expected, row_bytes));
    eval_alone(&infer, second, COUNT, expected); /* in one piece: another shape */
    RF_EXPECT_DOUBLE(error_of_floats(row, expected, infer.vocabulary), 0, 1e-6);

    /* Rewound to nothing and evaluated again: the same bits as the first time. */
    eval_alone(&infer, first, COUNT, expected);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, first, COUNT, false, row));
    RF_EXPECT(!memcmp(row, expected, row_bytes));
    RF_ASSERT_OK(rf_session_sample(session, NULL, &again));
    RF_EXPECT_INT(again, token);
    rf_session_destroy(&session);
    free(expected);
    free(row);
    infer_close(&infer);
}

/* Prompts longer than a batch are evaluated in parts, with logits of all rows or of the last. */
RF_TEST_LABELLED_CASES(session, prompts_longer_than_a_batch, struct where, places, .gpu = true,
                       .timeout_ms = 600000) {
    infer_need(c);
    enum { COUNT = 23 };
    struct infer infer;
    int32_t tokens[COUNT], sampled;
    double gap;
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&small_qwen, "small.gguf");
    params.context = 40;
    params.batch = 7;
    params.kv = RF_KV_F32;
    infer_open(&infer, c, &params);
    fill_tokens(tokens, COUNT, infer.vocabulary, 3);
    float *rows = infer_rows(&infer, COUNT), *row = infer_rows(&infer, 1);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, true, rows));
    RF_ASSERT_OK(rf_session_sample(session, NULL, &sampled));
    const float *last = rows + (size_t)(COUNT - 1) * infer.vocabulary;
    RF_EXPECT_INT(sampled, best_of(last, infer.vocabulary, &gap));
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row));
    RF_EXPECT_DOUBLE(error_of_floats(row, last, infer.vocabulary), 0, 1e-9);
    struct model model;
    double *truth = allocate(COUNT * infer.vocabulary, sizeof *truth);
    model_open(&model, params.model);
    model_truth(&model, tokens, COUNT, truth, NULL);
    RF_EXPECT_DOUBLE(error_of(rows, truth, (size_t)COUNT * infer.vocabulary), 0, 1e-9);
    model_close(&model);
    rf_session_destroy(&session);
    free(truth);
    free(rows);
    free(row);
    infer_close(&infer);
}

/* What matrix units round anyway is written as 16 bits: no bit of the logits changes, whatever the types of the
 * weights and of the cache, and a run needs less memory. */
struct halves {
    const char *label;
    enum rf_dtype dtype, up_dtype;
    enum rf_kv_type kv;
    bool none; /* nothing is rounded */
};
static const struct halves halves[] = {{"f16", RF_F16, RF_F16, RF_KV_F16, false},
                                       {"q8_0", RF_Q8_0, RF_Q8_0, RF_KV_F16, false},
                                       {"f16_and_q8_0", RF_F16, RF_Q8_0, RF_KV_F32, false},
                                       {"q8_0_all", RF_Q8_0, RF_Q8_0, RF_KV_Q8_0, false},
                                       {"f32", RF_F32, RF_F32, RF_KV_F16, true}};
RF_TEST_LABELLED_CASES(session, rows_of_16_bits_keep_the_bits, struct halves, halves, .gpu = true,
                       .timeout_ms = 600000) {
    enum { COUNT = 40, VOCABULARY = 96, SHORT = 17 };
    static const struct where gpu = {.label = "gpu", .rfsim = ""};
    const struct spec spec = {"halves",
                              "llama",
                              .layers = 2,
                              .width = 128,
                              .heads = 4,
                              .kv_heads = 2,
                              .feed_forward = 192,
                              .vocabulary = VOCABULARY,
                              .tied = false,
                              .dtype = c->dtype,
                              .up_dtype = c->up_dtype,
                              .seed = 5};
    int32_t tokens[COUNT];
    float rows[2][COUNT * VOCABULARY], row[2][VOCABULARY];
    uint64_t bytes[2];
    infer_need(&gpu);
    fill_tokens(tokens, COUNT, VOCABULARY, 9);
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&spec, "halves.gguf");
    params.context = 64;
    params.kv = c->kv;
    for (int on = 0; on < 2; on++) {
        struct infer infer;
        infer_open(&infer, &gpu, &params);
        if (!infer.engine->has_units) RF_SKIP("no matrix units");
        infer.engine->has_units = on;
        struct rf_session *session = infer_session(&infer);
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, true, rows[on]));
        RF_PARAMS(struct rf_plan_info, plan);
        RF_ASSERT_OK(rf_executor_plan_info(session->runners[0].executor, &plan));
        bytes[on] = plan.peak_bytes;
        /* The last layer computes one row; then a chunk of which no logits are wanted. */
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row[on]));
        RF_EXPECT_DOUBLE(error_of_floats(row[on], rows[on] + (COUNT - 1) * VOCABULARY, VOCABULARY), 0, 2e-3);
        infer.engine->batch = infer.engine->longest = SHORT;
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row[on]));
        rf_session_destroy(&session);
        infer_close(&infer);
    }
    RF_EXPECT(!memcmp(rows[0], rows[1], sizeof rows[0]));
    RF_EXPECT(!memcmp(row[0], row[1], sizeof row[0]));
    RF_NOTE("%llu bytes of results instead of %llu", (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
    if (c->none)
        RF_EXPECT_UINT(bytes[1], bytes[0]);
    else
        RF_EXPECT(bytes[1] < bytes[0]);
}

/* Gate and up as one product on the matrix units, for models that are wide enough for it. */
struct gated {
    const char *label;
    enum rf_dtype dtype;
    double tolerance;
};
static const struct gated gated[] = {{"f16", RF_F16, 2e-6}, {"q8_0", RF_Q8_0, 2e-3}};
RF_TEST_LABELLED_CASES(session, gate_and_up_in_one_product, struct gated, gated, .gpu = true, .timeout_ms = 600000) {
    enum { COUNT = 12, VOCABULARY = 64 };
    static const struct where gpu = {.label = "gpu", .rfsim = ""};
    const struct spec spec = {"gated",    "llama",           .layers = 2,           .width = 64,
                              .heads = 2, .kv_heads = 1,     .feed_forward = 12288, .vocabulary = VOCABULARY,
                              .seed = 6,  .dtype = c->dtype, .up_dtype = c->dtype};
    int32_t tokens[COUNT];
    float row[2][VOCABULARY];
    uint64_t bytes[2];
    infer_need(&gpu);
    fill_tokens(tokens, COUNT, VOCABULARY, 9);
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&spec, "gated.gguf");
    params.context = 64;
    for (int on = 0; on < 2; on++) {
        struct infer infer;
        infer_open(&infer, &gpu, &params);
        if (!infer.engine->has_gates) RF_SKIP("no matrix units");
        infer.engine->has_gates = on;
        struct rf_session *session = infer_session(&infer);
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row[on]));
        RF_PARAMS(struct rf_plan_info, plan);
        RF_ASSERT_OK(rf_executor_plan_info(session->runners[0].executor, &plan));
        bytes[on] = plan.peak_bytes;
        rf_session_destroy(&session);
        infer_close(&infer);
    }
    RF_EXPECT_DOUBLE(error_of_floats(row[1], row[0], VOCABULARY), 0, c->tolerance);
    RF_NOTE("%llu bytes of results instead of %llu; %s", (unsigned long long)bytes[1], (unsigned long long)bytes[0],
            memcmp(row[0], row[1], sizeof row[0]) ? "other bits" : "the same bits");
    /* With so few rows, decoding both matrices at once takes more than that saves. */
    if (c->dtype == RF_F16) RF_EXPECT(bytes[1] < bytes[0]);
}

/* Caches of 16 and 8 bits, compared with the plain pass: the error is that of rounding keys and values, and not
 * more. */
static const struct kind {
    const char *label;
    enum rf_kv_type kv;
    double least, most;
} kinds[] = {{"f32", RF_KV_F32, 0, 1e-9}, {"f16", RF_KV_F16, 1e-9, 5e-7}, {"q8_0", RF_KV_Q8_0, 1e-7, 1e-4}};
RF_TEST_LABELLED_CASES(session, cache_types, struct kind, kinds, .gpu = true, .timeout_ms = 600000) {
    enum { COUNT = 30 };
    static const struct spec spec = {"llama",    "llama",       .layers = 3,         .width = 128,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 160, .vocabulary = 61};
    const char *path = infer_model(&spec, "kinds.gguf");
    int32_t tokens[COUNT];
    struct model model;
    model_open(&model, path);
    double *truth = allocate(COUNT * 61, sizeof *truth);
    fill_tokens(tokens, COUNT, 61, 2);
    model_truth(&model, tokens, COUNT, truth, NULL);
    model_close(&model);
    for (size_t p = 0; p < RF_COUNT(places); p++) {
        struct infer infer;
        infer_need(&places[p]);
        RF_TRACE("%s", places[p].label);
        RF_PARAMS(struct rf_engine_params, params);
        params.model = path;
        params.context = COUNT;
        params.kv = c->kv;
        infer_open(&infer, &places[p], &params);
        float *rows = infer_rows(&infer, COUNT);
        struct rf_session *session = infer_session(&infer);
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT - 5, true, rows));
        for (int i = COUNT - 5; i < COUNT; i++)
            RF_ASSERT_OK(rf_session_eval(session, tokens + i, 1, true, rows + i * 61));
        double error = error_of(rows, truth, COUNT * 61);
        RF_NOTE("%s: %.2g", places[p].label, error);
        RF_EXPECT(error >= c->least && error <= c->most);
        rf_session_destroy(&session);
        free(rows);
        infer_close(&infer);
    }
    free(truth);
}

/* What a KV cache of 16 or 8 bits costs the models of the oracles: docs/inference.md names these bounds. Quantized
 * weights multiply activations that are rounded to 8 bits, and a slightly other key or value makes some of them round
 * the other way. */
static const struct {
    enum rf_kv_type kv;
    double plain, quantized; /* bounds for f32 and f16 weights, and for quantized ones */
} costs[] = {{RF_KV_F16, 2e-6, 6e-4}, {RF_KV_Q8_0, 2e-4, 1e-3}};
RF_TEST_LABELLED_CASES(session, cache_types_of_oracles, struct where, places, .gpu = true, .timeout_ms = 300000,
                       .tags = "heavy") {
    infer_need(c);
    for (size_t o = 0; o < RF_COUNT(oracles); o++) {
        struct answers answers;
        char path[512];
        float *rows[1 + RF_COUNT(costs)] = {NULL};
        size_t count = 0;
        if (!oracle_find(&oracles[o], path, sizeof path)) continue;
        answers_open(path, &answers);
        for (size_t k = 0; k < RF_COUNT(rows); k++) {
            struct infer infer;
            RF_PARAMS(struct rf_engine_params, params);
            params.model = path;
            params.context = answers.prompt;
            params.kv = k ? costs[k - 1].kv : RF_KV_F32;
            infer_open(&infer, c, &params);
            struct rf_session *session = infer_session(&infer);
            rows[k] = infer_rows(&infer, answers.prompt);
            count = (size_t)answers.prompt * infer.vocabulary;
            RF_ASSERT_OK(rf_session_eval(session, answers.tokens, answers.prompt, true, rows[k]));
            rf_session_destroy(&session);
            infer_close(&infer);
        }
        for (size_t k = 0; k < RF_COUNT(costs); k++) {
            double error = error_of_floats(rows[k + 1], rows[0], count);
            RF_NOTE("%s, %s: %.2g", oracles[o].label, costs[k].kv == RF_KV_F16 ? "f16" : "q8_0", error);
            RF_EXPECT(error > 0 && error < (oracles[o].bound > 1e-4 ? costs[k].quantized : costs[k].plain));
        }
        for (size_t k = 0; k < RF_COUNT(rows); k++) free(rows[k]);
        free(answers.file);
    }
}

/* ---- several sessions at once ---- */

/* Three sessions of different lengths evaluate a token each together, compared with each session alone; then they go
 * on separately. */
RF_TEST_LABELLED_CASES(session, batched_decode, struct where, places, .gpu = true, .timeout_ms = 600000) {
    infer_need(c);
    enum { SESSIONS_HERE = 3, STEPS = 4, MAX_COUNT = 16 };
    static const uint32_t begun[SESSIONS_HERE] = {1, 7, 11};
    struct infer infer;
    struct rf_session *sessions[SESSIONS_HERE];
    int32_t tokens[SESSIONS_HERE][MAX_COUNT], next[SESSIONS_HERE], sampled;
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&small, "small.gguf");
    params.context = 32;
    params.sessions = SESSIONS_HERE + 1;
    params.kv = RF_KV_F32;
    infer_open(&infer, c, &params);
    uint32_t vocabulary = infer.vocabulary;
    float *rows = infer_rows(&infer, SESSIONS_HERE), *row = infer_rows(&infer, 1);
    for (uint32_t s = 0; s < SESSIONS_HERE; s++) {
        sessions[s] = infer_session(&infer);
        fill_tokens(tokens[s], MAX_COUNT, vocabulary, 10 + s);
        RF_ASSERT_OK(rf_session_eval(sessions[s], tokens[s], begun[s], false, NULL));
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t s = 0; s < SESSIONS_HERE; s++) next[s] = tokens[s][begun[s] + step];
        bool asked = step != 1; /* one step does not ask for the rows */
        RF_ASSERT_OK(rf_sessions_eval(sessions, next, SESSIONS_HERE, asked ? rows : NULL));
        for (uint32_t s = 0; s < SESSIONS_HERE; s++) {
            RF_TRACE("step %u, session %u", step, s);
            RF_EXPECT_UINT(rf_session_length(sessions[s]), begun[s] + step + 1);
            eval_alone(&infer, tokens[s], begun[s] + step + 1, row);
            if (asked) RF_EXPECT_DOUBLE(error_of_floats(rows + (size_t)s * vocabulary, row, vocabulary), 0, 1e-9);
            double gap;
            RF_ASSERT_OK(rf_session_sample(sessions[s], NULL, &sampled));
            RF_EXPECT_INT(sampled, best_of(row, vocabulary, &gap));
        }
    }
    for (uint32_t s = 0; s < SESSIONS_HERE; s++) {
        float *alone = infer_rows(&infer, 1);
        uint32_t held = begun[s] + STEPS;
        RF_ASSERT_OK(rf_session_eval(sessions[s], tokens[s] + held, 1, false, row));
        eval_alone(&infer, tokens[s], held + 1, alone);
        RF_EXPECT_DOUBLE(error_of_floats(row, alone, vocabulary), 0, 1e-9);
        free(alone);
    }
    /* A refused call changes nothing. */
    RF_EXPECT_STATUS(rf_sessions_eval((struct rf_session *[]){sessions[0], sessions[0]}, next, 2, NULL),
                     RF_E_INVALID);
    RF_EXPECT_STATUS(rf_sessions_eval((struct rf_session *[]){sessions[0], NULL}, next, 2, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_sessions_eval(sessions, (int32_t[]){0, -1, 0}, 3, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_sessions_eval(sessions, next, 0, NULL), RF_E_INVALID);
    rf_session_cancel(sessions[2]);
    RF_EXPECT_STATUS(rf_sessions_eval(sessions, next, SESSIONS_HERE, NULL), RF_E_CANCELLED);
    RF_EXPECT_UINT(rf_session_length(sessions[0]), begun[0] + STEPS + 1);
    for (uint32_t s = 0; s < SESSIONS_HERE; s++) rf_session_destroy(&sessions[s]);
    free(rows);
    free(row);
    infer_close(&infer);
}

RF_TEST(session, as_many_as_the_engine_has_caches_for) {
    struct infer infer;
    struct rf_session *sessions[3] = {NULL};
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&small, "small.gguf");
    params.context = 16;
    params.sessions = 2;
    infer_open(&infer, &places[0], &params);
    for (int i = 0; i < 2; i++) sessions[i] = infer_session(&infer);
    RF_EXPECT_STATUS(rf_session_create(infer.engine, &sessions[2]), RF_E_BUDGET);
    RF_EXPECT_CONTAINS(rf_error_text(), "all 2 sessions");
    RF_EXPECT(sessions[2] == NULL);
    RF_EXPECT_STATUS(rf_engine_close(&infer.engine), RF_E_BUSY);
    RF_ASSERT_NOT_NULL(infer.engine);
    rf_session_destroy(&sessions[0]);
    RF_EXPECT(sessions[0] == NULL);
    rf_session_destroy(&sessions[0]);
    sessions[2] = infer_session(&infer);
    RF_EXPECT_STATUS(rf_engine_close(&infer.engine), RF_E_BUSY);
    rf_session_destroy(&sessions[1]);
    rf_session_destroy(&sessions[2]);
    infer_close(&infer);
}

/* ---- threads ---- */

enum { THREADS = 8, ANSWER = 9 };

struct speaker {
    struct infer *infer;
    int number, generations;
    int32_t *said; /* [generations, ANSWER], the generated tokens */
    float *rows;   /* [generations, vocabulary]: the logits after each generation */
    rf_status status;
    char error[256];
};

static bool keep_token(void *user, int32_t token) {
    int32_t **to = user;
    *(*to)++ = token;
    return true;
}

/* A session that generates again and again: another prompt and another seed each time, some with a common prefix. */
static rf_status speak_once(struct speaker *speaker, struct rf_session *session, int generation) {
    int32_t prompt[24], *to = speaker->said + generation * ANSWER;
    uint32_t count = 3 + (uint32_t)(speaker->number * 5 + generation * 7) % 20;
    fill_tokens(prompt, count, speaker->infer->vocabulary, (uint64_t)(speaker->number * 100 + generation / 3));
    uint32_t same = rf_session_common(session, prompt, count);
    if (same == count) same--;
    if (generation % 2) same = 0;
    RF_PARAMS(struct rf_generate_result, result);
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_PARAMS(struct rf_generate_params, params);
    params.sampling = &sampling;
    sampling.temperature = generation % 4 ? 0.9f : 0;
    sampling.top_k = 20;
    sampling.top_p = 0.95f;
    sampling.penalty = 1.1f;
    sampling.penalty_window = 8;
    sampling.seed = (uint64_t)(speaker->number * 1000 + generation);
    params.max_tokens = ANSWER;
    params.token = keep_token;
    params.user = &to;
    rf_status status = rf_session_rewind(session, same);
    if (!status) status = rf_session_eval(session, prompt + same, count - same, false, NULL);
    if (!status) status = rf_session_generate(session, &params, &result);
    if (!status && result.tokens != ANSWER) status = RF_E_INVALID;
    if (!status)
        status = rf_session_eval(session, &to[-1], 1, false,
                                 speaker->rows + (size_t)generation * speaker->infer->vocabulary);
    return status;
}

static void *speak(void *user) {
    struct speaker *speaker = user;
    struct rf_session *session = NULL;
    speaker->status = rf_session_create(speaker->infer->engine, &session);
    for (int i = 0; i < speaker->generations && !speaker->status; i++)
        speaker->status = speak_once(speaker, session, i);
    if (speaker->status) snprintf(speaker->error, sizeof speaker->error, "%s", rf_error_text());
    rf_session_destroy(&session);
    return NULL;
}

static void speak_from_threads(const struct where *where, int generations) {
    static const struct spec tiny = {"tiny",     "llama",       .layers = 2,        .width = 32,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 32, .vocabulary = 40};
    struct infer infer;
    struct speaker alone[THREADS], together[THREADS];
    pthread_t threads[THREADS];
    infer_need(where);
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&tiny, "tiny.gguf");
    params.context = 48;
    params.sessions = THREADS;
    params.threads = 1;
    infer_open(&infer, where, &params);
    for (int i = 0; i < THREADS; i++) {
        alone[i] = (struct speaker){.infer = &infer,
                                    .number = i,
                                    .generations = generations,
                                    .said = allocate((size_t)generations * ANSWER, sizeof(int32_t)),
                                    .rows = infer_rows(&infer, (size_t)generations)};
        together[i] = alone[i];
        together[i].said = allocate((size_t)generations * ANSWER, sizeof(int32_t));
        together[i].rows = infer_rows(&infer, (size_t)generations);
    }
    for (int i = 0; i < THREADS; i++) RF_ASSERT_INT(pthread_create(&threads[i], NULL, speak, &together[i]), 0);
    for (int i = 0; i < THREADS; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        RF_TRACE("thread %d", i);
        speak(&alone[i]);
        if (alone[i].status) RF_FAIL("alone: %s", alone[i].error);
        if (together[i].status) RF_FAIL("in company: %s", together[i].error);
        RF_EXPECT(!memcmp(alone[i].said, together[i].said, (size_t)generations * ANSWER * sizeof(int32_t)));
        RF_EXPECT(!memcmp(alone[i].rows, together[i].rows, (size_t)generations * infer.vocabulary * sizeof(float)));
        free(alone[i].said);
        free(alone[i].rows);
        free(together[i].said);
        free(together[i].rows);
    }
    infer_close(&infer);
}

RF_TEST_LABELLED_CASES(session, eight_threads, struct where, places, .gpu = true, .timeout_ms = 1500000) {
    speak_from_threads(c, c->rfsim ? 3 : 10); /* a simulated GPU takes seconds for each; the slow test runs all */
}
RF_TEST_LABELLED_CASES(session, eight_threads_long, struct where, places, .gpu = true, .timeout_ms = 1800000,
                       .tags = "slow") {
    speak_from_threads(c, 100);
}

/* ---- cancelling ---- */

struct canceller {
    struct rf_session *session;
    atomic_int tokens;
};
static bool count_token(void *user, int32_t token) {
    struct canceller *canceller = user;
    (void)token;
    atomic_fetch_add(&canceller->tokens, 1);
    return true;
}
static void *cancel_after_some(void *user) {
    struct canceller *canceller = user;
    while (atomic_load(&canceller->tokens) < 3) sched_yield();
    rf_session_cancel(canceller->session);
    return NULL;
}

RF_TEST_LABELLED_CASES(session, cancelled_from_another_thread, struct where, places, .gpu = true,
                       .timeout_ms = 1500000) {
    infer_need(c);
    enum { COUNT = 40 };
    struct infer infer;
    int32_t tokens[COUNT];
    pthread_t thread;
    RF_PARAMS(struct rf_generate_result, result);
    RF_PARAMS(struct rf_engine_params, params);
    params.model = infer_model(&small, "small.gguf");
    params.context = 400;
    params.batch = 1;
    params.sessions = 2;
    infer_open(&infer, c, &params);
    fill_tokens(tokens, COUNT, infer.vocabulary, 4);
    struct canceller canceller = {.session = infer_session(&infer)};
    RF_ASSERT_OK(rf_session_eval(canceller.session, tokens, 5, false, NULL));
    RF_PARAMS(struct rf_generate_params, generate);
    generate.token = count_token;
    generate.user = &canceller;
    RF_ASSERT_INT(pthread_create(&thread, NULL, cancel_after_some, &canceller), 0);
    RF_EXPECT_STATUS(rf_session_generate(canceller.session, &generate, &result), RF_E_CANCELLED);
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
    RF_EXPECT_UINT(result.tokens, (unsigned)atomic_load(&canceller.tokens));
    RF_EXPECT(result.tokens >= 3 && result.tokens < 396);
    RF_EXPECT_UINT(rf_session_length(canceller.session), 5 + result.tokens - 1);

    /* A prompt that is cancelled somewhere holds a part of itself, and can be continued from there. */
    float *row = infer_rows(&infer, 1), *expected = infer_rows(&infer, 1);
    RF_ASSERT_OK(rf_session_rewind(canceller.session, 0));
    rf_session_cancel(canceller.session);
    RF_EXPECT_STATUS(rf_session_eval(canceller.session, tokens, COUNT, false, NULL), RF_E_CANCELLED);
    RF_EXPECT_UINT(rf_session_length(canceller.session), 0);
    atomic_store(&canceller.tokens, 3);
    RF_ASSERT_INT(pthread_create(&thread, NULL, cancel_after_some, &canceller), 0);
    rf_status status = rf_session_eval(canceller.session, tokens, COUNT, false, row);
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
    RF_EXPECT(status == RF_OK || status == RF_E_CANCELLED);
    uint32_t held = rf_session_length(canceller.session);
    RF_EXPECT((status == RF_OK) == (held == COUNT));
    RF_EXPECT_UINT(rf_session_common(canceller.session, tokens, COUNT), held);
    if (!status) /* it came too late, and stops the next call */
        RF_EXPECT_STATUS(rf_session_eval(canceller.session, tokens, 1, false, NULL), RF_E_CANCELLED);
    else
        RF_ASSERT_OK(rf_session_eval(canceller.session, tokens + held, COUNT - held, false, row));
    eval_alone(&infer, tokens, COUNT, expected);
    RF_EXPECT(!memcmp(row, expected, infer.vocabulary * sizeof *row));
    rf_session_destroy(&canceller.session);
    free(row);
    free(expected);
    infer_close(&infer);
}
