/* What engines and sessions refuse, and what they do with little memory: they place less on the GPU, never exceed the
 * budget, and never give another result. */
#include "infer_testing.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "graph/executor_impl.h"
#include "infer/engine_impl.h"

#define SMALL .layers = 3, .width = 96, .heads = 6, .kv_heads = 2, .feed_forward = 160, .vocabulary = 61
static const struct spec small = {"llama", "llama", SMALL};
/* Layers have a few MiB, so that a budget can end between two layers. */
static const struct spec thick = {"llama",       "llama",       .layers = 5,          .width = 384,
                                  .heads = 6,    .kv_heads = 3, .feed_forward = 1024, .vocabulary = 512,
                                  .tied = false, .seed = 9};
static const struct where cpu = {.label = "cpu"}, gpu = {.label = "gpu", .rfsim = ""};

static void fill_tokens(int32_t *tokens, uint32_t count, uint32_t vocabulary) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * i * 7 + i * 13 + 5) % vocabulary);
}

/* ---- refusals ---- */

static void expect_refused(const struct where *where, struct rf_engine_params params, rf_status status,
                           const char *part) {
    struct infer infer;
    RF_TRACE("%s", part);
    RF_EXPECT_STATUS(infer_try_open(&infer, where, &params), status);
    RF_EXPECT_CONTAINS(rf_error_text(), part);
    RF_EXPECT(infer.engine == NULL);
    rf_runtime_destroy(&infer.gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_device_bytes(), 0);
}

RF_TEST(engine, refuses_what_it_cannot_do, .gpu = true) {
    gpu_need_simulated("");
    const char *path = infer_model(&small, "small.gguf"), *text = scratch_path("text.gguf");
    write_bytes(text, "this is no model, but it is long enough to be looked at", 55);
    const struct rf_engine_params good = {.model = path, .context = 16};
    struct rf_engine_params bad = good;
    struct rf_engine *engine = NULL;

    RF_EXPECT_STATUS(rf_engine_open(&bad, &engine), RF_E_INVALID); /* no struct_size */
    RF_EXPECT_STATUS(rf_engine_open(NULL, &engine), RF_E_INVALID);
    RF_EXPECT_OK(rf_engine_close(&engine));
    RF_EXPECT_OK(rf_engine_close(NULL));

    bad.model = "/nonexistent/model.gguf";
    expect_refused(&cpu, bad, RF_E_NOT_FOUND, "/nonexistent/model.gguf");
    bad.model = text;
    expect_refused(&cpu, bad, RF_E_SYNTAX, "GGUF");
    bad = good;
    bad.kv = (enum rf_kv_type)7;
    expect_refused(&cpu, bad, RF_E_INVALID, "7");
    bad.kv = RF_KV_Q8_0; /* heads of 16 are half a block */
    expect_refused(&cpu, bad, RF_E_UNSUPPORTED, "q8_0");
    bad = good;
    bad.simd = "sse9";
    expect_refused(&cpu, bad, RF_E_INVALID, "sse9");
    bad = good;
    bad.sessions = 1 << 30;
    expect_refused(&cpu, bad, RF_E_INVALID, "sessions");
    bad.sessions = 4096;
    bad.context = 1 << 30;
    expect_refused(&cpu, bad, RF_E_INVALID, "4096 sessions of 1073741824 tokens");
    bad.sessions = 1; /* the most that is allowed, but memory is too small here */
    bad.context = (1u << 31) - 512;
    expect_refused(&cpu, bad, RF_E_NO_MEMORY, "context");
    bad = good;
    bad.device = "nonsense";
    expect_refused(&gpu, bad, RF_E_NO_DEVICE, "nonsense");
    bad.device = "7";
    expect_refused(&gpu, bad, RF_E_NO_DEVICE, "7");
    bad = good;
    bad.budget = "lots";
    expect_refused(&gpu, bad, RF_E_SYNTAX, "lots");
    bad.budget = "4MiB";
    bad.device_layers = 3; /* an explicit number must fit */
    expect_refused(&gpu, bad, RF_E_BUDGET, "4 MiB");
    RF_EXPECT_CONTAINS(rf_error_text(), "layers do not fit the GPU's budget of 4 MiB");
    RF_EXPECT_CONTAINS(rf_error_text(), ": refused "); /* what was asked for, and what is left */
}

RF_TEST(engine, unknown_architecture) {
    static const struct spec odd = {"odd", "mamba9", SMALL};
    expect_refused(&cpu, (struct rf_engine_params){.model = infer_model(&odd, "odd.gguf")}, RF_E_UNSUPPORTED,
                   "mamba9");
    RF_EXPECT_CONTAINS(rf_error_text(), "qwen3");
}

RF_TEST(engine, without_a_gpu, .gpu = true) {
    gpu_need_simulated("devices=0");
    struct infer infer;
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf"), .context = 16, .device = "gpu"};
    static const struct where none = {.label = "none", .rfsim = "devices=0"};
    expect_refused(&none, params, RF_E_NO_DEVICE, "");
    params.device = "auto";
    infer_open(&infer, &none, &params);
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer.engine, &info));
    RF_EXPECT_CONTAINS(info.device, "CPU");
    RF_EXPECT_UINT(info.device_layers, 0);
    RF_EXPECT(!info.degraded);
    infer_close(&infer);
}

RF_TEST(engine, says_what_it_is) {
    struct infer infer;
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf")};
    infer_open(&infer, &cpu, &params);
    struct rf_engine_info info = {0};
    RF_EXPECT_STATUS(rf_engine_get_info(infer.engine, &info), RF_E_INVALID);
    info.struct_size = sizeof info;
    RF_ASSERT_OK(rf_engine_get_info(infer.engine, &info));
    RF_EXPECT_TEXT(info.architecture, "llama");
    RF_EXPECT_TEXT(info.name, "made for a test");
    RF_EXPECT_UINT(info.layers, 3);
    RF_EXPECT_UINT(info.width, 96);
    RF_EXPECT_UINT(info.heads, 6);
    RF_EXPECT_UINT(info.kv_heads, 2);
    RF_EXPECT_UINT(info.head_width, 16);
    RF_EXPECT_UINT(info.feed_forward, 160);
    RF_EXPECT_UINT(info.vocabulary, 61);
    RF_EXPECT_UINT(info.context, 512); /* the model's own context */
    RF_EXPECT_UINT(info.trained_context, 512);
    RF_EXPECT_UINT(info.host_weight_bytes, info.weight_bytes);
    RF_EXPECT_UINT(info.host_kv_bytes, 3 * 2 * 512 * 2 * 16 * 2);
    RF_EXPECT_UINT(info.device_weight_bytes + info.device_kv_bytes, 0);
    /* The caches and the tables of the file; the weights stay in the mapped file. */
    RF_EXPECT(info.host_used_bytes > info.host_kv_bytes && info.host_used_bytes < info.host_kv_bytes + (64 << 10));
    RF_EXPECT_UINT(info.host_budget_bytes, infer.engine->runtime->host.limit_bytes);
    RF_EXPECT(info.chat_template == NULL);
    RF_EXPECT_TEXT(rf_engine_notice(infer.engine), "");
    RF_EXPECT(rf_engine_tokenizer(infer.engine) == NULL);
    RF_EXPECT_INT(rf_engine_chat_format(infer.engine), RF_CHAT_NONE);
    infer_close(&infer);
}

/* Loading reports its progress, up to all bytes, and can be stopped at any point. */
struct loading {
    uint64_t last, total;
    int calls, stop_at;
};
static bool watch_loading(void *user, uint64_t done, uint64_t total) {
    struct loading *loading = user;
    RF_EXPECT(done > loading->last && done <= total);
    loading->last = done;
    loading->total = total;
    return ++loading->calls != loading->stop_at;
}
RF_TEST(engine, loading_is_watched_and_stopped, .gpu = true) {
    static const struct spec tied = {"tied", "llama", SMALL, .tied = true};
    struct infer infer;
    struct loading loading = {0};
    gpu_need_simulated("");
    struct rf_engine_params params = {
        .model = infer_model(&tied, "tied.gguf"), .context = 16, .progress = watch_loading, .user = &loading};
    infer_open(&infer, &gpu, &params);
    RF_EXPECT_UINT(loading.last, loading.total);
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer.engine, &info));
    RF_EXPECT_UINT(loading.total, info.weight_bytes); /* the tied matrix counts once */
    RF_EXPECT_UINT(info.host_weight_bytes, 0);
    infer_close(&infer);
    int calls = loading.calls;
    for (int stop = 1; stop <= calls; stop += 5) {
        loading = (struct loading){.stop_at = stop};
        expect_refused(&gpu, params, RF_E_CANCELLED, "cancelled");
        RF_EXPECT_INT(loading.calls, stop);
    }
}

/* A session keeps the runners of the shapes that it used last. */
RF_TEST(session, the_oldest_runner_makes_room) {
    struct infer infer;
    int32_t tokens[RF_RUNNERS_MAX + 1];
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf"), .context = 64};
    infer_open(&infer, &cpu, &params);
    fill_tokens(tokens, RF_RUNNERS_MAX + 1, infer.vocabulary);
    struct rf_session *session = infer_session(&infer);
    /* As many shapes as there is room for, then the first again, then one more. */
    for (size_t i = 1; i <= RF_RUNNERS_MAX + 2; i++) {
        size_t count = i <= RF_RUNNERS_MAX ? i : i == RF_RUNNERS_MAX + 1 ? 1 : RF_RUNNERS_MAX + 1;
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, NULL));
    }
    RF_ASSERT_UINT(session->runner_count, RF_RUNNERS_MAX);
    for (uint32_t count = 1; count <= RF_RUNNERS_MAX + 1; count++) {
        bool kept = false;
        RF_TRACE("%u tokens", count);
        for (size_t i = 0; i < session->runner_count; i++) kept |= session->runners[i].shape.tokens == count;
        RF_EXPECT_INT(kept, count != 2);
    }
    rf_session_destroy(&session);
    infer_close(&infer);
}

RF_TEST(session, refuses_what_is_not_there) {
    struct infer infer;
    int32_t tokens[20], token;
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf"), .context = 16};
    infer_open(&infer, &cpu, &params);
    fill_tokens(tokens, 20, infer.vocabulary);
    float *row = infer_rows(&infer, 1), *expected = infer_rows(&infer, 1);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, 10, false, row));
    RF_ASSERT_OK(rf_session_eval(session, tokens + 10, 1, false, expected));
    RF_ASSERT_OK(rf_session_rewind(session, 10));

    /* None of these calls changes what the session holds. */
    RF_EXPECT_STATUS(rf_session_eval(session, (int32_t[]){0, 61}, 2, false, NULL), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "token 61 at place 1: ids go from 0 to 60");
    RF_EXPECT_STATUS(rf_session_eval(session, (int32_t[]){-1}, 1, false, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_eval(session, tokens, 0, false, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_eval(session, NULL, 1, false, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_eval(session, tokens, 7, false, NULL), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "the context holds 16");
    RF_EXPECT_STATUS(rf_session_eval(session, tokens, SIZE_MAX / 8, false, NULL), RF_E_INVALID);
    RF_EXPECT_UINT(rf_session_length(session), 10);
    RF_ASSERT_OK(rf_session_eval(session, tokens + 10, 1, false, row));
    RF_EXPECT(!memcmp(row, expected, infer.vocabulary * sizeof *row));

    /* The context is filled to the last place, and not further. */
    RF_ASSERT_OK(rf_session_eval(session, tokens + 11, 5, false, row));
    RF_EXPECT_UINT(rf_session_length(session), 16);
    RF_EXPECT_STATUS(rf_session_eval(session, tokens, 1, false, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_sessions_eval(&session, tokens, 1, NULL), RF_E_INVALID);
    RF_EXPECT_OK(rf_session_sample(session, NULL, &token));
    RF_PARAMS(struct rf_sample_params, wrong);
    wrong.temperature = -1;
    RF_EXPECT_STATUS(rf_session_sample(session, &wrong, &token), RF_E_INVALID);
    static struct rf_token_bias many[1025];
    static const struct {
        struct rf_sample_params params;
        struct rf_token_bias biases[2];
        const char *why;
    } refused[] = {{{.presence = NAN}, {{0, 0}}, "must be numbers"},
                   {{.frequency = -INFINITY}, {{0, 0}}, "must be numbers"},
                   {{.bias_count = 1}, {{-1, 1}}, "bias 1 for token -1"},
                   {{.bias_count = 1}, {{INT32_MAX, 1}}, "for token 2147483647"},
                   {{.bias_count = 2}, {{1, 1}, {2, NAN}}, "for token 2"},
                   {{.bias_count = 2}, {{7, 1}, {7, 2}}, "two biases for token 7"},
                   {{.bias_count = 1025}, {{0, 0}}, "1025 biases: at most 1024"},
                   {{.bias_count = 3}, {{0, 0}}, "3 biases that are NULL"}};
    for (size_t i = 0; i < RF_COUNT(refused); i++) {
        struct rf_sample_params bad = refused[i].params;
        bad.struct_size = sizeof bad;
        bad.biases = bad.bias_count == 3 ? NULL : bad.bias_count > 2 ? many : refused[i].biases;
        RF_EXPECT_STATUS(rf_session_sample(session, &bad, &token), RF_E_INVALID);
        RF_EXPECT_CONTAINS(rf_error_text(), refused[i].why);
    }
    rf_session_destroy(&session);
    free(row);
    free(expected);
    infer_close(&infer);
}

/* ---- cancelled in the middle ---- */

/* Replaces a runner's own stop function: counts its calls and, at the nth, has another thread cancel a session
 * first. */
struct stopping {
    bool (*stop)(void *user);
    void *user;
    struct rf_session *cancels;
    int asked, at; /* at 0: never */
    sem_t now, done;
};
static bool count_and_ask(void *user) {
    struct stopping *stopping = user;
    if (++stopping->asked == stopping->at) {
        sem_post(&stopping->now);
        while (sem_wait(&stopping->done)) continue;
    }
    return stopping->stop(stopping->user);
}
static void *cancel_when_told(void *user) {
    struct stopping *stopping = user;
    while (sem_wait(&stopping->now)) continue;
    rf_session_cancel(stopping->cancels);
    sem_post(&stopping->done);
    return NULL;
}
static void stopping_begin(struct stopping *stopping, struct rf_session *session, struct rf_session *cancels,
                           uint32_t tokens) {
    *stopping = (struct stopping){.cancels = cancels};
    RF_ASSERT(!sem_init(&stopping->now, 0, 0) && !sem_init(&stopping->done, 0, 0));
    for (size_t i = 0; i < session->runner_count; i++) {
        struct rf_executor *executor = session->runners[i].executor;
        if (session->runners[i].shape.tokens != tokens) continue;
        RF_ASSERT_NULL(stopping->user);
        stopping->stop = executor->stop;
        stopping->user = executor->stop_user;
        executor->stop = count_and_ask;
        executor->stop_user = stopping;
    }
    RF_ASSERT(stopping->user == session && stopping->stop != NULL);
}

static const struct where stop_places[] = {{.label = "cpu"},
                                           {.label = "gpu", .rfsim = ""},
                                           {.label = "both", .rfsim = "", .device_layers = 2},
                                           {.label = "slow_gpu", .rfsim = "delay=3/100us", .device_layers = 2}};
static bool cancel_both(void *user) {
    struct rf_session *const *both = user;
    rf_session_cancel(both[0]);
    rf_session_cancel(both[1]);
    return true;
}

RF_TEST_LABELLED_CASES(session, cancelled_within_a_chunk, struct where, stop_places, .gpu = true) {
    enum { COUNT = 16 };
    struct infer infer;
    struct stopping stopping;
    int32_t tokens[COUNT], token;
    if (c->rfsim) gpu_need_simulated(c->rfsim);
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf"), .context = 64, .sessions = 2};
    infer_open(&infer, c, &params);
    fill_tokens(tokens, COUNT, infer.vocabulary);
    struct rf_session *session = infer_session(&infer), *other = infer_session(&infer);
    float *row = infer_rows(&infer, 1), *expected = infer_rows(&infer, 1);
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, expected));
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    stopping_begin(&stopping, session, session, COUNT);
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row));
    int all = stopping.asked;
    RF_NOTE("asked %d times in a run", all);
    RF_ASSERT(all >= 10);
    for (int at = 1; at <= all; at += at + 9 < all ? 8 : 1) {
        pthread_t thread;
        RF_TRACE("cancelled before action %d of %d", at, all);
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        stopping.asked = 0;
        stopping.at = at;
        RF_ASSERT_INT(pthread_create(&thread, NULL, cancel_when_told, &stopping), 0);
        RF_EXPECT_STATUS(rf_session_eval(session, tokens, COUNT, false, row), RF_E_CANCELLED);
        RF_EXPECT_TEXT(rf_error_text(), "cancelled after 0 tokens");
        RF_ASSERT_INT(pthread_join(thread, NULL), 0);
        RF_EXPECT_INT(stopping.asked, at); /* nothing ran after it */
        RF_EXPECT_UINT(rf_session_length(session), 0);
        RF_EXPECT_STATUS(rf_session_sample(session, NULL, &token), RF_E_INVALID);
        /* The cancel was consumed: the next evaluation runs, and gives the result that it would have given. */
        stopping.at = 0;
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row));
        RF_EXPECT(!memcmp(row, expected, infer.vocabulary * sizeof *row));
    }
    /* Any of several sessions that run together may be cancelled; the runner belongs to the first. */
    struct rf_session *both[] = {session, other};
    RF_ASSERT_OK(rf_session_eval(other, tokens, 3, false, NULL));
    RF_ASSERT_OK(rf_sessions_eval(both, tokens, 2, NULL));
    for (int which = 0; which < 2; which++) {
        struct stopping pair;
        pthread_t thread;
        RF_TRACE("session %d of two is cancelled", which);
        stopping_begin(&pair, session, both[which], 2);
        pair.at = 1;
        RF_ASSERT_INT(pthread_create(&thread, NULL, cancel_when_told, &pair), 0);
        RF_EXPECT_STATUS(rf_sessions_eval(both, tokens, 2, NULL), RF_E_CANCELLED);
        RF_ASSERT_INT(pthread_join(thread, NULL), 0);
        RF_EXPECT_INT(pair.asked, 1);
        RF_EXPECT_UINT(rf_session_length(session), COUNT + 1 + (unsigned)which);
        RF_EXPECT_UINT(rf_session_length(other), 4 + (unsigned)which);
        pair.at = 0;
        RF_ASSERT_OK(rf_sessions_eval(both, tokens, 2, NULL));
        for (size_t i = 0; i < session->runner_count; i++)
            if (session->runners[i].executor->stop_user == &pair) {
                session->runners[i].executor->stop = pair.stop;
                session->runners[i].executor->stop_user = pair.user;
            }
    }
    /* If both are cancelled within one evaluation, each cancel ends an evaluation of its own. */
    struct stopping pair;
    stopping_begin(&pair, session, session, 2);
    struct rf_executor *executor = NULL;
    for (size_t i = 0; i < session->runner_count; i++)
        if (session->runners[i].executor->stop_user == &pair) executor = session->runners[i].executor;
    executor->stop = cancel_both;
    executor->stop_user = both;
    RF_EXPECT_STATUS(rf_sessions_eval(both, tokens, 2, NULL), RF_E_CANCELLED);
    executor->stop = pair.stop;
    executor->stop_user = pair.user;
    RF_EXPECT_STATUS(rf_sessions_eval(both, tokens, 2, NULL), RF_E_CANCELLED);
    RF_EXPECT_OK(rf_sessions_eval(both, tokens, 2, NULL));
    rf_session_destroy(&session);
    rf_session_destroy(&other);
    free(row);
    free(expected);
    infer_close(&infer);
}

/* ---- little memory ---- */

/* Budgets from little more than kernels take to enough: more and more layers go to the GPU, the peak stays within the
 * budget, the logits stay the same. */
RF_TEST(engine, budgets_from_nothing_to_enough, .gpu = true, .timeout_ms = 1500000, .tags = "heavy") {
    enum { COUNT = 9 };
    static const char *const budgets[] = {"5MiB",  "6MiB",  "16MiB", "28MiB", "40MiB",
                                          "52MiB", "64MiB", "84MiB", "1GiB"};
    int32_t tokens[COUNT];
    uint32_t seen = 0, before = 0;
    struct model model;
    gpu_need_simulated("");
    struct rf_engine_params params = {
        .model = infer_model(&thick, "thick.gguf"), .context = 64, .batch = 16, .kv = RF_KV_F32};
    double *truth = allocate(COUNT * thick.vocabulary, sizeof *truth);
    fill_tokens(tokens, COUNT, thick.vocabulary);
    model_open(&model, params.model);
    model_truth(&model, tokens, COUNT, truth, NULL);
    model_close(&model);
    for (size_t b = 0; b < RF_COUNT(budgets); b++) {
        struct infer infer;
        RF_TRACE("a budget of %s", budgets[b]);
        params.budget = budgets[b];
        infer_open(&infer, &gpu, &params);
        RF_PARAMS(struct rf_engine_info, info);
        RF_PARAMS(struct rf_memory_info, memory);
        RF_ASSERT_OK(rf_engine_get_info(infer.engine, &info));
        float *rows = infer_rows(&infer, COUNT);
        struct rf_session *session = infer_session(&infer);
        int32_t token;
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT - 1, true, rows));
        RF_ASSERT_OK(rf_session_eval(session, tokens + COUNT - 1, 1, false, rows + (COUNT - 1) * infer.vocabulary));
        RF_ASSERT_OK(rf_session_sample(session, NULL, &token));
        RF_EXPECT_DOUBLE(error_of(rows, truth, (size_t)COUNT * infer.vocabulary), 0, 1e-9);
        if (infer.engine->device) {
            RF_ASSERT_OK(rf_device_memory_info(infer.engine->device, &memory));
            RF_NOTE("%s: %u layers, peak %llu of %llu bytes", budgets[b], info.device_layers,
                    (unsigned long long)memory.peak_bytes, (unsigned long long)memory.budget_bytes);
            RF_EXPECT(memory.peak_bytes <= memory.budget_bytes);
        }
        RF_EXPECT(info.device_layers >= before);
        RF_EXPECT_INT(info.degraded, info.device_layers < thick.layers);
        RF_EXPECT_INT(rf_engine_notice(infer.engine)[0] != 0, info.degraded);
        RF_EXPECT_UINT(info.device_weight_bytes == 0, info.device_layers == 0);
        before = info.device_layers;
        seen |= 1u << info.device_layers;
        rf_session_destroy(&session);
        free(rows);
        infer_close(&infer);
    }
    RF_EXPECT(seen & 1);
    RF_EXPECT(seen & (1u << thick.layers));
    RF_EXPECT(seen & ~(1u | 1u << thick.layers)); /* and some number of layers in between */
    free(truth);
}

/* More sessions than the scratch memory fits: prompts are evaluated in smaller parts, or one line says why not; the
 * budget is never exceeded. */
RF_TEST(engine, sessions_that_share_a_small_budget, .gpu = true, .timeout_ms = 1500000) {
    enum { MANY = 6, COUNT = 48 };
    struct infer infer;
    struct rf_session *sessions[MANY];
    int32_t tokens[COUNT];
    gpu_need_simulated("");
    struct rf_engine_params params = {.model = infer_model(&thick, "thick.gguf"),
                                      .context = 64,
                                      .batch = COUNT,
                                      .sessions = MANY,
                                      .kv = RF_KV_F32,
                                      .budget = "64MiB"};
    infer_open(&infer, &gpu, &params);
    fill_tokens(tokens, COUNT, infer.vocabulary);
    float *rows = infer_rows(&infer, COUNT), *expected = infer_rows(&infer, COUNT);
    RF_PARAMS(struct rf_memory_info, memory);
    for (int i = 0; i < MANY; i++) {
        sessions[i] = infer_session(&infer);
        RF_TRACE("session %d", i);
        rf_status status = rf_session_eval(sessions[i], tokens, COUNT, true, i ? rows : expected);
        if (status && i) {
            RF_EXPECT_INT(status, RF_E_BUDGET);
            continue;
        }
        RF_ASSERT_OK(status);
        if (i) RF_EXPECT_DOUBLE(error_of_floats(rows, expected, (size_t)COUNT * infer.vocabulary), 0, 1e-9);
    }
    RF_ASSERT_OK(rf_device_memory_info(infer.engine->device, &memory));
    RF_EXPECT(memory.peak_bytes <= memory.budget_bytes);
    for (int i = 0; i < MANY; i++) rf_session_destroy(&sessions[i]);
    free(rows);
    free(expected);
    infer_close(&infer);
}

/* ---- faults of the GPU ---- */

/* The driver refuses the nth call of some kind, faults at it, or the work that it starts faults. Then less is placed
 * on the GPU, or one line says what happened; in any case nothing stays behind and computed results are right. The
 * driver reads its faults once in a process, so each is a case of its own. */
struct gpu_fault {
    const char *label, *entry;
    unsigned nth;
    const char *kind;
    rf_status status; /* status of the first call that fails; RF_OK: the engine goes on without it */
    bool onwards;     /* the later calls fail too */
};
static const struct gpu_fault gpu_faults[] = {
    {"first_memory", "hipMalloc", 1, "2", RF_OK, false},
    {"second_memory", "hipMalloc", 2, "2", RF_OK, false},
    {"third_memory", "hipMalloc", 3, "2", RF_OK, false},
    {"fourth_memory", "hipMalloc", 4, "2", RF_OK, false},
    {"fifth_memory", "hipMalloc", 5, "2", RF_OK, false},
    {"sixth_memory", "hipMalloc", 6, "2", RF_OK, false},
    {"seventh_memory", "hipMalloc", 7, "2", RF_OK, false},
    {"eighth_memory", "hipMalloc", 8, "2", RF_OK, false},
    {"no_memory", "hipMalloc", 1, "2", RF_OK, true},
    {"no_more_memory", "hipMalloc", 4, "2", RF_OK, true},
    {"first_launch", "hipModuleLaunchKernel", 1, "700", RF_E_DEVICE_LOST, false},
    {"later_launch", "hipModuleLaunchKernel", 12, "719", RF_E_DEVICE_LOST, false},
    /* The launches of the first graph are recorded when the engine is opened; those of the second belong to the
     * prompt. */
    {"recorded_launch", "hipModuleLaunchKernel", 12, "1", RF_OK, false},
    {"refused_launch", "hipModuleLaunchKernel", 55, "1", RF_E_DRIVER, false},
    {"running_launch", "hipModuleLaunchKernel", 55, "work/700", RF_E_DEVICE_LOST, false},
    {"replay", "hipGraphLaunch", 1, "719", RF_E_DEVICE_LOST, false},
    {"running_replay", "hipGraphLaunch", 1, "work/700", RF_E_DEVICE_LOST, false},
    {"capture", "hipStreamBeginCapture", 1, "1", RF_OK, false},
    {"instance", "hipGraphInstantiateWithFlags", 1, "2", RF_OK, false},
    {"first_upload", "hipMemcpyHtoDAsync", 1, "719", RF_E_DEVICE_LOST, false},
    {"later_upload", "hipMemcpyHtoDAsync", 40, "719", RF_E_DEVICE_LOST, false},
    {"running_download", "hipMemcpyDtoHAsync", 2, "work/719", RF_E_DEVICE_LOST, false},
    {"refused_download", "hipMemcpyDtoHAsync", 1, "1", RF_E_DRIVER, false},
    {"event", "hipEventRecord", 6, "719", RF_E_DEVICE_LOST, false},
    {"query", "hipEventQuery", 6, "700", RF_E_DEVICE_LOST, false}};
RF_TEST_LABELLED_CASES(engine, survives_a_fault_of_the_gpu, struct gpu_fault, gpu_faults, .gpu = true) {
    enum { COUNT = 5 };
    struct infer infer;
    struct model model;
    int32_t tokens[COUNT + 1];
    double truth[(COUNT + 1) * 61];
    char rfsim[96];
    snprintf(rfsim, sizeof rfsim, "fault=%s:%u%s:%s", c->entry, c->nth, c->onwards ? "+" : "", c->kind);
    gpu_need_simulated(rfsim);
    const struct where place = {.label = "fault", .rfsim = rfsim};
    struct rf_engine_params params = {.model = infer_model(&small, "small.gguf"), .context = 16, .kv = RF_KV_F32};
    fill_tokens(tokens, COUNT + 1, 61);
    model_open(&model, params.model);
    model_truth(&model, tokens, COUNT + 1, truth, NULL);
    model_close(&model);
    rf_status status = infer_try_open(&infer, &place, &params);
    if (!status) {
        float *rows = infer_rows(&infer, COUNT + 1);
        struct rf_session *session = infer_session(&infer);
        int32_t token;
        status = rf_session_eval(session, tokens, COUNT, true, rows);
        if (!status) status = rf_session_eval(session, tokens + COUNT, 1, false, rows + COUNT * infer.vocabulary);
        if (!status) RF_EXPECT_DOUBLE(error_of(rows, truth, (COUNT + 1) * (size_t)infer.vocabulary), 0, 1e-9);
        if (!status) status = rf_session_sample(session, NULL, &token);
        rf_session_destroy(&session);
        free(rows);
    }
    RF_EXPECT_STATUS(status, c->status);
    if (status) RF_NOTE("%s", rf_error_text());
    if (status) RF_EXPECT(rf_error_text()[0] != 0 && !strchr(rf_error_text(), '\n'));
    uint64_t calls = gpu_sim_entry_calls(c->entry);
    RF_EXPECT(calls != UINT64_MAX && calls >= c->nth); /* the fault struck */
    rf_engine_close(&infer.engine);
    RF_EXPECT(infer.engine == NULL);
    rf_runtime_destroy(&infer.gpu.runtime);
    if (!status) RF_EXPECT_UINT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
}
