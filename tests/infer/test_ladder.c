/* The ladder: engines on a GPU that runs short of memory while they run, and then has room again. Single steps,
 * faults in them, and engines that open with less room than they want. */
#include "ladder_testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "graph/executor.h"
#include "infer/engine_impl.h"

/* ---- single steps ---- */

/* Caches are moved first, one by one, then layers, one by one; they come back in the reverse order. The bits stay the
 * same as long as the GPU computes all layers. */
RF_TEST(ladder, goes_down_and_up, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 50 };
    struct infer infer;
    struct text text;
    float row[VOCABULARY];
    gpu_need_simulated(squeezed.rfsim);
    make_text(&squeezed, COUNT, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    infer_open(&infer, &squeezed, &params);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, text.tokens, PROMPT, false, row));
    compare_row(row, row_of(&text, 0), true);
    uint64_t desktop = 0;
    uint32_t at = 0, layers = LAYERS, kept = LAYERS;
    bool exact = true;
    /* The pool's idle memory and the scratch of the prompt's shape are freed first; they may be enough for half a
     * MiB. */
    RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + at, 1, false, row));
    compare_row(row, row_of(&text, ++at), true);
    desktop = free_above_floor(&infer) + MIB / 2;
    gpu_sim_set_desktop(desktop);
    RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + at, 1, false, row));
    compare_row(row, row_of(&text, ++at), true);
    kept = infer_info(&infer).device_kv_layers;
    RF_ASSERT(kept >= LAYERS - 1);
    for (int step = 0; layers; step++) {
        RF_TRACE("step %d down, %u layers, %u caches", step, layers, kept);
        RF_ASSERT(at < COUNT);
        desktop += free_above_floor(&infer) + MIB / 2; /* half a MiB more than there is */
        gpu_sim_set_desktop(desktop);
        RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + at, 1, false, row));
        struct rf_engine_info info = infer_info(&infer);
        if (kept)
            RF_EXPECT(info.device_layers == layers && info.device_kv_layers < kept);
        else
            RF_EXPECT(info.device_layers < layers);
        layers = info.device_layers;
        kept = info.device_kv_layers;
        exact = exact && layers == LAYERS;
        compare_row(row, row_of(&text, ++at), exact);
        if (layers) free_above_floor(&infer); /* free memory is above the floor again */
    }
    struct rf_engine_info info = infer_info(&infer);
    RF_EXPECT_UINT(info.device_weight_bytes + info.device_kv_bytes, 0);
    RF_EXPECT_UINT(info.pinned_kv_bytes, info.host_kv_bytes);
    RF_EXPECT_UINT(info.steps_down, 2 * LAYERS);
    RF_EXPECT(info.degraded);
    RF_EXPECT_CONTAINS(gpu_log(), "fell under the floor by");
    RF_EXPECT_CONTAINS(gpu_log(), "layer 0's cache moved to the host");
    RF_EXPECT_CONTAINS(gpu_log(), "layer 0 moved to the CPU");
    gpu_sim_set_desktop(0);
    while (info.device_kv_layers < LAYERS) {
        RF_ASSERT(at < COUNT);
        RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + at, 1, false, row));
        compare_row(row, row_of(&text, ++at), false);
        info = infer_info(&infer);
    }
    RF_EXPECT_UINT(info.device_layers, LAYERS);
    RF_EXPECT_UINT(info.steps_up, 2 * LAYERS);
    RF_EXPECT_UINT(info.host_kv_bytes + info.host_weight_bytes, 0);
    RF_EXPECT(!info.degraded);
    RF_EXPECT_CONTAINS(gpu_log(), "the GPU has room again: layers 0 to 2 moved back to the GPU");
    RF_EXPECT_CONTAINS(gpu_log(), "the caches of layers 0 to 2 moved back to the GPU");
    /* The engine is now equal to one that never moved anything. */
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, text.tokens, PROMPT, false, row));
    compare_row(row, row_of(&text, 0), true);
    rf_session_destroy(&session);
    infer_close(&infer);
    free_text(&text);
}

/* A ladder step between evaluating and sampling: the runner that had the logits is gone. Another session causes the
 * step. */
static struct {
    struct infer *infer;
    int lines;
} asked;

static void *ask_engine(void *unused) {
    infer_info(asked.infer);
    return unused;
}

static void ask_when_it_moves(const char *line) {
    pthread_t thread;
    if (!strstr(line, "moved to the")) return;
    asked.lines++;
    RF_ASSERT_INT(pthread_create(&thread, NULL, ask_engine, NULL), 0);
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
}

/* When a step is logged it is over: another thread may use the engine, and the log's callback may wait for it. */
RF_TEST(ladder, a_step_is_over_when_it_is_logged, .gpu = true, .timeout_ms = 300000) {
    struct infer infer;
    int32_t tokens[PROMPT];
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    infer_open(&infer, &squeezed, &params);
    fill_prompt(tokens);
    asked.infer = &infer;
    gpu_on_log = ask_when_it_moves;
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, NULL));
    uint64_t desktop = 0;
    for (int i = 0; i < 10 && !asked.lines; i++) {
        desktop += free_above_floor(&infer) + MIB / 2;
        gpu_sim_set_desktop(desktop);
        RF_ASSERT_OK(rf_session_eval(session, tokens, 1, false, NULL));
    }
    RF_EXPECT(asked.lines > 0);
    gpu_on_log = NULL;
    rf_session_destroy(&session);
    infer_close(&infer);
}

RF_TEST(ladder, keeps_logits, .gpu = true, .timeout_ms = 1500000) {
    struct infer infer;
    int32_t tokens[PROMPT], expected = -1, token = -2;
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.sessions = 2;
    infer_open(&infer, &squeezed, &params);
    fill_prompt(tokens);
    struct rf_session *first = infer_session(&infer), *second = infer_session(&infer);
    RF_PARAMS(struct rf_sample_params, warm);
    warm.temperature = 1.5f;
    warm.seed = 4;
    float *rows = infer_rows(&infer, PROMPT);
    for (int all = 0; all < 2; all++) {
        RF_TRACE("all logits: %d", all);
        gpu_sim_set_desktop(0);
        RF_ASSERT_OK(rf_session_rewind(first, 0));
        RF_ASSERT_OK(rf_session_eval(first, tokens, PROMPT, all, all ? rows : NULL));
        RF_ASSERT_OK(rf_session_sample(first, &warm, &expected));
        RF_ASSERT_OK(rf_session_rewind(first, 0));
        RF_ASSERT_OK(rf_session_eval(first, tokens, PROMPT, all, all ? rows : NULL));
        uint64_t before = infer_info(&infer).steps_down;
        gpu_sim_set_desktop(free_above_floor(&infer) + (all ? 24 : 8) * MIB);
        RF_ASSERT_OK(rf_session_eval(second, tokens, 3, false, NULL));
        RF_EXPECT(infer_info(&infer).steps_down > before);
        RF_EXPECT_UINT(rf_session_length(first), PROMPT);
        RF_ASSERT_OK(rf_session_sample(first, &warm, &token));
        RF_EXPECT_INT(token, expected);
        RF_ASSERT_OK(rf_session_rewind(second, 0));
    }
    rf_session_destroy(&first);
    rf_session_destroy(&second);
    free(rows);
    infer_close(&infer);
}

/* Sessions in a batch are all at the same token, whatever moves. */
RF_TEST(ladder, moves_under_a_batch, .gpu = true, .timeout_ms = 1500000) {
    enum { TOGETHER = 3, COUNT = 12 };
    struct infer infer;
    struct text text;
    struct rf_session *sessions[TOGETHER];
    int32_t tokens[TOGETHER], drawn;
    float rows[TOGETHER * VOCABULARY];
    gpu_need_simulated(squeezed.rfsim);
    make_text(&squeezed, COUNT, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.sessions = TOGETHER;
    infer_open(&infer, &squeezed, &params);
    for (int i = 0; i < TOGETHER; i++) {
        sessions[i] = infer_session(&infer);
        RF_ASSERT_OK(rf_session_eval(sessions[i], text.tokens, PROMPT, false, NULL));
    }
    uint64_t fits = free_above_floor(&infer);
    for (uint32_t i = 0; i < COUNT; i++) {
        RF_TRACE("token %u", i);
        if (i % 3 == 1) gpu_sim_set_desktop(fits + (4 + 3 * i) * MIB);
        for (int k = 0; k < TOGETHER; k++) tokens[k] = text.tokens[PROMPT + i];
        RF_ASSERT_OK(rf_sessions_eval(sessions, tokens, TOGETHER, i % 2 ? rows : NULL));
        for (int k = 0; k < TOGETHER; k++) {
            RF_ASSERT_UINT(rf_session_length(sessions[k]), PROMPT + i + 1);
            RF_ASSERT_OK(rf_session_sample(sessions[k], NULL, &drawn));
            if (i % 2) compare_row(rows + k * VOCABULARY, row_of(&text, i + 1), false);
        }
    }
    RF_EXPECT(infer_info(&infer).steps_down >= LAYERS);
    for (int i = 0; i < TOGETHER; i++) rf_session_destroy(&sessions[i]);
    infer_close(&infer);
    free_text(&text);
}

/* An engine that is told not to move anything does not. */
RF_TEST(ladder, can_be_told_to_stay, .gpu = true) {
    struct infer infer;
    int32_t tokens[PROMPT];
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.watch_ns = -1;
    infer_open(&infer, &squeezed, &params);
    fill_prompt(tokens);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, NULL));
    RF_ASSERT_OK(rf_session_eval(session, tokens, 1, false, NULL)); /* its shape exists from now on */
    gpu_sim_set_desktop(free_above_floor(&infer) + 8 * MIB);
    RF_ASSERT_OK(rf_session_eval(session, tokens, 1, false, NULL));
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    RF_EXPECT_UINT(infer_info(&infer).device_layers, LAYERS);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- faults in a ladder step ---- */

/* Three steps down, then up again. If the driver refuses, nothing moves and the engine runs. A device that is lost in
 * a step is reported as lost. */
static void squeeze_with(const char *fault, const struct text *text, bool may_be_lost) {
    struct infer infer;
    char rfsim[256];
    float row[VOCABULARY];
    RF_TRACE("%s", fault);
    snprintf(rfsim, sizeof rfsim, "%s,%s", squeezed.rfsim, fault);
    const struct where where = {.label = "fault", .rfsim = rfsim};
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    rf_status status = infer_try_open(&infer, &where, &params);
    if (!status) {
        struct rf_session *session = infer_session(&infer);
        struct rf_pressure pressure;
        status = rf_session_eval(session, text->tokens, PROMPT, false, row);
        if (!status) compare_row(row, row_of(text, 0), false);
        uint64_t fits = rf_device_pressure(infer.engine->device, &pressure)
                            ? 0
                            : rf_sub_saturate(pressure.free_bytes, pressure.floor_bytes);
        for (uint32_t i = 0; i < SAID && !status; i++) {
            if (i % 2 == 0 && i < 6) gpu_sim_set_desktop(fits + (2 + 3 * i) * MIB);
            if (i == 6) gpu_sim_set_desktop(0);
            status = rf_session_eval(session, text->tokens + PROMPT + i, 1, false, row);
            if (!status) compare_row(row, row_of(text, i + 1), false);
        }
        RF_EXPECT(!status || (may_be_lost && status == RF_E_DEVICE_LOST));
        RF_NOTE("%llu down, %llu up, hipMalloc %llu, hipHostMalloc %llu, copies out %llu",
                (unsigned long long)infer_info(&infer).steps_down, (unsigned long long)infer_info(&infer).steps_up,
                (unsigned long long)gpu_sim_entry_calls("hipMalloc"),
                (unsigned long long)gpu_sim_entry_calls("hipHostMalloc"),
                (unsigned long long)gpu_sim_entry_calls("hipMemcpyDtoHAsync"));
        rf_session_destroy(&session);
    }
    if (status) RF_EXPECT(rf_error_text()[0] != 0);
    gpu_sim_set_desktop(0);
    rf_engine_close(&infer.engine);
    RF_EXPECT(infer.engine == NULL);
    rf_runtime_destroy(&infer.gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
}
struct fault {
    const char *label, *rfsim;
    bool fatal;
};
static const struct fault faults[] = {{.label = "none", .rfsim = "seed=1"},
                                      {.label = "pinned", .rfsim = "fault=hipHostMalloc:4+:2"},
                                      {.label = "pinned_later", .rfsim = "fault=hipHostMalloc:6+:2"},
                                      {.label = "memory", .rfsim = "fault=hipMalloc:14:2"},
                                      {.label = "memory_ever_after", .rfsim = "fault=hipMalloc:12+:2"},
                                      {.label = "copy", .rfsim = "fault=hipMemcpyDtoHAsync:9:719", .fatal = true}};
RF_TEST_LABELLED_CASES(ladder, faults_in_a_step, struct fault, faults, .gpu = true, .timeout_ms = 1500000) {
    static const struct where cpu = {.label = "cpu"};
    struct text text;
    gpu_need_simulated(squeezed.rfsim);
    make_text(&cpu, SAID, &text);
    squeeze_with(c->rfsim, &text, c->fatal);
    free_text(&text);
}

/* ---- budgets ---- */

/* Budgets from nothing to everything, in this many steps: the engine always opens and runs, and the peak stays within
 * the budget. */
static void sweep(const char *path, uint64_t everything, int steps, double tolerance) {
    enum { COUNT = 7 };
    int32_t tokens[COUNT];
    struct model model;
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = path;
    model_open(&model, path);
    uint32_t layers = model.hparams.layers, vocabulary = model.hparams.vocabulary, seen = 0;
    uint32_t trained = model.hparams.trained_context;
    double *truth = allocate((size_t)COUNT * vocabulary, sizeof *truth);
    for (uint32_t i = 0; i < COUNT; i++) tokens[i] = (int32_t)((i * 11 + 2) % vocabulary);
    model_truth(&model, tokens, COUNT, truth, NULL);
    model_close(&model);
    for (int step = 0; step < steps; step++) {
        struct infer infer;
        char budget[32];
        int32_t token;
        snprintf(budget, sizeof budget, "%lluB",
                 (unsigned long long)(everything * (unsigned)step / (unsigned)(steps - 1)));
        RF_TRACE("a budget of %s", budget);
        params.budget = budget;
        params.device = "auto";
        params.context = step % 2 ? 300 : 0;
        infer_open(&infer, &squeezed, &params);
        struct rf_session *session = infer_session(&infer);
        float *rows = infer_rows(&infer, COUNT);
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT - 2, true, rows));
        for (size_t i = COUNT - 2; i < COUNT; i++)
            RF_ASSERT_OK(rf_session_eval(session, tokens + i, 1, false, rows + i * vocabulary));
        RF_ASSERT_OK(rf_session_sample(session, NULL, &token));
        RF_EXPECT_DOUBLE(error_of(rows, truth, (size_t)COUNT * vocabulary), 0, tolerance);
        struct rf_engine_info info = infer_info(&infer);
        RF_EXPECT_UINT(info.context, step % 2 ? 300 : trained); /* the model's own, however small the budget */
        RF_EXPECT_INT(rf_engine_notice(infer.engine)[0] != 0, info.degraded);
        if (infer.engine->device) {
            RF_PARAMS(struct rf_memory_info, memory);
            RF_ASSERT_OK(rf_device_memory_info(infer.engine->device, &memory));
            RF_EXPECT(memory.peak_bytes <= memory.budget_bytes);
        }
        seen |= 1u << info.device_layers;
        rf_session_destroy(&session);
        free(rows);
        infer_close(&infer);
    }
    RF_EXPECT(seen & 1);
    RF_EXPECT(seen & (1u << layers));
    free(truth);
}
static const struct spec tied = {"tied",       "llama",       .layers = 6,         .width = 64,
                                 .heads = 2,   .kv_heads = 2, .feed_forward = 320, .vocabulary = VOCABULARY,
                                 .tied = true, .seed = 3};
RF_TEST(ladder, budget_sweep, .gpu = true, .timeout_ms = 1500000, .tags = "heavy") {
    sweep(infer_model(&tied, "tied.gguf"), 60 * MIB, 8, 1e-9);
}
RF_TEST(ladder, budget_sweep_long, .gpu = true, .timeout_ms = 3600000, .tags = "slow") {
    sweep(infer_model(&tied, "tied.gguf"), 60 * MIB, 100, 1e-9);
}
RF_TEST(ladder, budget_sweep_bundled, .gpu = true, .timeout_ms = 3600000, .tags = "slow") {
    sweep(BUNDLED_MODEL, 120 * MIB, 100, 2e-3);
}
