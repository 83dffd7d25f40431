/* The ladder: engines on a GPU that runs short of memory while they run, and then has room again. The simulated
 * desktop grows and shrinks between tokens; tokens are those of an undisturbed run, so logits can be compared at
 * every position. */
#include "infer_testing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "graph/executor.h"
#include "infer/engine_impl.h"

/* Each cache has more than a MiB, so it is an allocation of its own; layers are small and share allocations. */
enum { LAYERS = 3, VOCABULARY = 64, CONTEXT = 2304 };
static const struct spec tower = {"llama",    "llama",       .layers = LAYERS,   .width = 64,
                                  .heads = 2, .kv_heads = 2, .feed_forward = 96, .vocabulary = VOCABULARY,
                                  .seed = 21};
/* The engine needs little compared with this; the floor is 32 MiB. */
static const struct where squeezed = {.label = "squeezed", .rfsim = "vram=256MiB,context=16MiB,granularity=64KiB"};
static const struct rf_engine_params usual = {
    .context = CONTEXT, .batch = 32, .kv = RF_KV_F32, .budget = "keep=32MiB", .watch_ns = 1};

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static struct rf_engine_info info_of(const struct infer *infer) {
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer->engine, &info));
    return info;
}

/* ---- a generation to compare with ---- */

enum { PROMPT = 12 };
struct text {
    int32_t *tokens; /* the prompt, then the generated tokens */
    float *rows;     /* logits after each token from the prompt's last on */
    uint32_t count;  /* number of generated tokens */
};

static void fill_prompt(int32_t *tokens) {
    for (int i = 0; i < PROMPT; i++) tokens[i] = (i * i * 5 + 3) % VOCABULARY;
}

static const float *row_of(const struct text *text, uint32_t index) {
    return text->rows + (size_t)index * VOCABULARY;
}

/* There is a penalty, because otherwise the model repeats one token. */
static struct rf_sample_params sampling(void) {
    RF_PARAMS(struct rf_sample_params, params);
    params.penalty = 1.3f;
    params.penalty_window = 64;
    return params;
}

static void speak_undisturbed(struct infer *infer, uint32_t count, struct text *text) {
    struct rf_session *session = infer_session(infer);
    struct rf_sample_params params = sampling();
    *text = (struct text){.tokens = allocate(PROMPT + count, sizeof *text->tokens),
                          .rows = allocate((size_t)(count + 1) * VOCABULARY, sizeof *text->rows),
                          .count = count};
    fill_prompt(text->tokens);
    RF_ASSERT_OK(rf_session_eval(session, text->tokens, PROMPT, false, text->rows));
    for (uint32_t i = 0; i < count; i++) {
        int32_t *token = &text->tokens[PROMPT + i];
        RF_ASSERT_OK(rf_session_sample(session, &params, token));
        RF_ASSERT_OK(rf_session_eval(session, token, 1, false, text->rows + (size_t)(i + 1) * VOCABULARY));
    }
    rf_session_destroy(&session);
}

static void make_text(const struct where *where, uint32_t count, struct text *text) {
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    infer_open(&infer, where, &params);
    speak_undisturbed(&infer, count, text);
    struct rf_engine_info info = info_of(&infer);
    RF_EXPECT_UINT(info.steps_down + info.steps_up, 0);
    RF_EXPECT_UINT(info.device_layers, where->rfsim ? LAYERS : 0);
    infer_close(&infer);
}

static void free_text(struct text *text) {
    free(text->tokens);
    free(text->rows);
}

/* The best token must be the same if the best two are further apart than ten times the RMS difference. The gap is
 * taken before the penalty. */
static void expect_same_choice(const float *row, const float *expected) {
    double square = 0;
    int best = 0, second = -1, chosen = 0;
    for (int i = 0; i < VOCABULARY; i++) {
        double difference = (double)row[i] - (double)expected[i];
        square += difference * difference;
        if (row[i] > row[chosen]) chosen = i;
        if (i && (expected[i] > expected[best])) {
            second = best;
            best = i;
        } else if (i && (second < 0 || expected[i] > expected[second])) {
            second = i;
        }
    }
    double rms = sqrt(square / (double)VOCABULARY), gap = (double)expected[best] - (double)expected[second];
    if (gap > 10 * rms) RF_EXPECT_INT(chosen, best);
}

/* Rows must be identical to the bit as long as only caches moved. */
static void compare_row(const float *row, const float *expected, bool exact) {
    if (exact)
        RF_ASSERT(!memcmp(row, expected, VOCABULARY * sizeof *row));
    else
        RF_ASSERT(error_of_floats(row, expected, VOCABULARY) <= 1e-9);
    expect_same_choice(row, expected);
}

/* ---- single steps ---- */

static uint64_t free_above_floor(const struct infer *infer) {
    struct rf_pressure pressure;
    RF_ASSERT_OK(rf_device_pressure(infer->engine->device, &pressure));
    RF_ASSERT(pressure.free_bytes >= pressure.floor_bytes);
    return pressure.free_bytes - pressure.floor_bytes;
}

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
    kept = info_of(&infer).device_kv_layers;
    RF_ASSERT(kept >= LAYERS - 1);
    for (int step = 0; layers; step++) {
        RF_TRACE("step %d down, %u layers, %u caches", step, layers, kept);
        RF_ASSERT(at < COUNT);
        desktop += free_above_floor(&infer) + MIB / 2; /* half a MiB more than there is */
        gpu_sim_set_desktop(desktop);
        RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + at, 1, false, row));
        struct rf_engine_info info = info_of(&infer);
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
    struct rf_engine_info info = info_of(&infer);
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
        info = info_of(&infer);
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
    info_of(asked.infer);
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
        uint64_t before = info_of(&infer).steps_down;
        gpu_sim_set_desktop(free_above_floor(&infer) + (all ? 24 : 8) * MIB);
        RF_ASSERT_OK(rf_session_eval(second, tokens, 3, false, NULL));
        RF_EXPECT(info_of(&infer).steps_down > before);
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
    RF_EXPECT(info_of(&infer).steps_down >= LAYERS);
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
    RF_EXPECT_UINT(info_of(&infer).steps_down, 0);
    RF_EXPECT_UINT(info_of(&infer).device_layers, LAYERS);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- the squeeze ---- */

/* The desktop takes another level every few tokens, from nothing to so much that the engine must leave the GPU. */
static void squeeze(const struct where *where, uint32_t count, uint64_t seed) {
    struct infer infer;
    struct text text;
    float row[VOCABULARY];
    gpu_need_simulated(where->rfsim);
    make_text(where, count, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    infer_open(&infer, where, &params);
    struct rf_session *session = infer_session(&infer);
    struct rf_sample_params draw = sampling();
    RF_ASSERT_OK(rf_session_eval(session, text.tokens, PROMPT, false, row));
    struct rf_pressure pressure = {0};
    uint64_t fits = 0;
    uint32_t exact_rows = 0, seen_layers = 0, agreed = 0;
    bool exact = true;
    for (uint32_t i = 0; i < count; i++) {
        RF_TRACE("token %u", i);
        int32_t token;
        if (i == 2) { /* everything that it uses is allocated now */
            RF_ASSERT_OK(rf_device_trim(infer.engine->device, RF_TIMEOUT_DEFAULT));
            RF_ASSERT_OK(rf_device_pressure(infer.engine->device, &pressure));
            fits = free_above_floor(&infer);
            gpu_sim_set_desktop(fits + 2 * MIB);
        } else if (i > 2 && next_random(&seed) % 10 == 0) {
            /* At first the excess is one that moving caches can free, then anything from what just fits to more than
             * the engine can give; now and then nothing. */
            uint64_t amount = next_random(&seed) * KIB;
            uint64_t level =
                i < count / 3 ? fits + MIB + amount % (3 * MIB / 2) : fits - 4 * MIB + amount % (28 * MIB);
            gpu_sim_set_desktop(next_random(&seed) % 2 ? level : 0);
        }
        RF_ASSERT_OK(rf_session_sample(session, &draw, &token));
        agreed += token == text.tokens[PROMPT + i];
        RF_ASSERT_OK(rf_session_eval(session, text.tokens + PROMPT + i, 1, false, row));
        struct rf_engine_info info = info_of(&infer);
        exact = exact && info.device_layers == LAYERS;
        exact_rows += exact && info.device_kv_layers < LAYERS;
        seen_layers |= 1u << info.device_layers;
        compare_row(row, row_of(&text, i + 1), exact);
    }
    struct rf_engine_info info = info_of(&infer);
    RF_NOTE("%u tokens, %llu steps down and %llu up, %u agreed", count, (unsigned long long)info.steps_down,
            (unsigned long long)info.steps_up, agreed);
    RF_EXPECT_UINT(rf_session_length(session), PROMPT + count);
    RF_EXPECT_UINT(rf_session_common(session, text.tokens, PROMPT + count), PROMPT + count);
    RF_EXPECT(info.steps_down >= 2 * LAYERS && info.steps_up >= LAYERS);
    RF_EXPECT(exact_rows > 0);
    RF_EXPECT(seen_layers & 1 && seen_layers & (1u << LAYERS));
    RF_EXPECT(agreed >= count - count / 50);
    RF_EXPECT(gpu_sim_least_free() >= pressure.floor_bytes);
    RF_NOTE("%u rows with moved caches are the same bits", exact_rows);
    rf_session_destroy(&session);
    infer_close(&infer);
    free_text(&text);
}
RF_TEST(ladder, squeeze, .gpu = true, .timeout_ms = 1500000, .tags = "heavy") {
    squeeze(&squeezed, 150, 11);
}
RF_TEST(ladder, squeeze_long, .gpu = true, .timeout_ms = 3600000, .tags = "slow") {
    squeeze(&squeezed, 2000, 12);
}

/* ---- sessions on threads ---- */

enum { SPEAKERS = 3, SAID = 24 };
struct speaker {
    struct infer *infer;
    const struct text *text;
    int turns;
    float *rows;
    rf_status status;
    char why[256];
    uint32_t length;
};
static void *speak(void *user) {
    struct speaker *speaker = user;
    struct rf_session *session = NULL;
    speaker->status = rf_session_create(speaker->infer->engine, &session);
    for (int turn = 0; turn < speaker->turns && !speaker->status; turn++) {
        speaker->status = rf_session_rewind(session, 0);
        if (!speaker->status)
            speaker->status = rf_session_eval(session, speaker->text->tokens, PROMPT, false, speaker->rows);
        for (uint32_t i = 0; i < SAID && !speaker->status; i++) {
            int32_t token;
            speaker->status = rf_session_sample(session, NULL, &token);
            if (!speaker->status)
                speaker->status = rf_session_eval(session, speaker->text->tokens + PROMPT + i, 1, false,
                                                  speaker->rows + (size_t)(i + 1) * VOCABULARY);
        }
    }
    snprintf(speaker->why, sizeof speaker->why, "%s", speaker->status ? rf_error_text() : "");
    speaker->length = rf_session_length(session);
    rf_session_destroy(&session);
    return NULL;
}
struct desktop {
    const struct infer *infer;
    atomic_bool end;
    uint64_t fits, seed;
};
static void *breathe(void *user) {
    struct desktop *desktop = user;
    /* The first level stays until the engine has noticed it. */
    while (!atomic_load(&desktop->end) && !info_of(desktop->infer).steps_down) rf_sleep_ns(RF_MS(1));
    while (!atomic_load(&desktop->end)) {
        rf_sleep_ns(RF_MS(1 + next_random(&desktop->seed) % 30));
        uint64_t level = desktop->fits - 4 * MIB + next_random(&desktop->seed) * KIB % (24 * MIB);
        gpu_sim_set_desktop(next_random(&desktop->seed) % 2 ? level : 0);
    }
    return NULL;
}

static void squeeze_threads(int turns) {
    struct infer infer;
    struct text text;
    struct speaker speakers[SPEAKERS];
    struct desktop desktop = {.infer = &infer, .seed = 5};
    pthread_t threads[SPEAKERS], breath;
    gpu_need_simulated(squeezed.rfsim);
    make_text(&squeezed, SAID, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.sessions = SPEAKERS;
    params.context = 512;
    infer_open(&infer, &squeezed, &params);
    desktop.fits = free_above_floor(&infer);
    gpu_sim_set_desktop(desktop.fits + 8 * MIB);
    RF_ASSERT_INT(pthread_create(&breath, NULL, breathe, &desktop), 0);
    for (int i = 0; i < SPEAKERS; i++) {
        speakers[i] =
            (struct speaker){.infer = &infer, .text = &text, .turns = turns, .rows = infer_rows(&infer, SAID + 1)};
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, speak, &speakers[i]), 0);
    }
    for (int i = 0; i < SPEAKERS; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    atomic_store(&desktop.end, true);
    RF_ASSERT_INT(pthread_join(breath, NULL), 0);
    struct rf_engine_info info = info_of(&infer);
    RF_NOTE("%llu steps down and %llu up", (unsigned long long)info.steps_down, (unsigned long long)info.steps_up);
    RF_EXPECT(info.steps_down > 0);
    for (int i = 0; i < SPEAKERS; i++) {
        RF_TRACE("session %d", i);
        RF_EXPECT_INT(speakers[i].status, RF_OK);
        RF_EXPECT_TEXT(speakers[i].why, "");
        RF_EXPECT_UINT(speakers[i].length, PROMPT + SAID);
        for (uint32_t k = 0; k <= SAID; k++)
            compare_row(speakers[i].rows + (size_t)k * VOCABULARY, row_of(&text, k), false);
        free(speakers[i].rows);
    }
    infer_close(&infer);
    free_text(&text);
}
RF_TEST(ladder, squeeze_threads, .gpu = true, .timeout_ms = 1500000) {
    squeeze_threads(1);
}
RF_TEST(ladder, squeeze_threads_long, .gpu = true, .timeout_ms = 3600000, .tags = "slow") {
    squeeze_threads(40);
}

/* ---- generations, whose tokens are computed ahead ---- */

struct teller {
    struct infer *infer;
    const struct text *text; /* NULL: the tokens are not compared */
    struct rf_session *session;
    uint32_t count, wrong, ahead; /* tokens; those that were others; those with a run under way behind them */
    uint64_t desktop;             /* grows from token to token, if it is not 0 */
    bool back;                    /* and ends at the 24th */
    rf_status status;
};
static bool tell(void *user, int32_t token) {
    struct teller *teller = user;
    if (teller->text && token != teller->text->tokens[PROMPT + teller->count]) teller->wrong++;
    teller->ahead += teller->session->ahead.queued > 0;
    teller->count++;
    if (teller->desktop && teller->count % 4 == 0 && teller->count < 24) {
        struct rf_pressure pressure;
        RF_ASSERT_OK(rf_device_pressure(teller->infer->engine->device, &pressure));
        teller->desktop += rf_sub_saturate(pressure.free_bytes, pressure.floor_bytes) + MIB / 2;
        gpu_sim_set_desktop(teller->desktop);
    }
    if (teller->back && teller->count == 24) gpu_sim_set_desktop(0);
    return true;
}
static void tell_all(struct teller *teller, uint32_t count) {
    int32_t tokens[PROMPT];
    struct rf_sample_params penalty = sampling();
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    fill_prompt(tokens);
    params.max_tokens = count;
    params.ignore_end = true;
    params.sampling = &penalty;
    params.token = tell;
    params.user = teller;
    teller->status = rf_session_create(teller->infer->engine, &teller->session);
    if (!teller->status) teller->status = rf_session_eval(teller->session, tokens, PROMPT, false, NULL);
    if (!teller->status) teller->status = rf_session_generate(teller->session, &params, &result);
}

/* Memory gets short while an answer is generated: KV caches move, and the tokens are the same; then layers move, and
 * it goes on one by one; then everything comes back, and it is ahead again. */
RF_TEST(ladder, generates_on, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 60, EXACT = 12 }; /* by then there is a step for each cache at most */
    struct infer infer;
    struct text text;
    gpu_need_simulated(squeezed.rfsim);
    make_text(&squeezed, COUNT, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    for (int whole = 0; whole < 2; whole++) {
        infer_open(&infer, &squeezed, &params);
        struct teller teller = {.infer = &infer, .text = whole ? NULL : &text, .desktop = 1, .back = true};
        tell_all(&teller, whole ? COUNT : EXACT);
        struct rf_engine_info info = info_of(&infer);
        RF_NOTE("%llu steps down and %llu up; ahead of %u of %u tokens", (unsigned long long)info.steps_down,
                (unsigned long long)info.steps_up, teller.ahead, teller.count);
        RF_EXPECT_OK(teller.status);
        RF_EXPECT_UINT(teller.wrong, 0);
        RF_EXPECT_UINT(teller.count, whole ? COUNT : EXACT);
        RF_EXPECT_UINT(rf_session_length(teller.session), PROMPT + teller.count - 1);
        RF_EXPECT(info.steps_down > 0);
        if (whole) {
            RF_EXPECT(info.steps_down > LAYERS && info.steps_up > 0 && info.device_layers == LAYERS);
            RF_EXPECT(teller.ahead > 12 && teller.ahead < COUNT - 8);
        } else {
            RF_EXPECT_UINT(info.device_layers, LAYERS);
            RF_EXPECT(teller.ahead >= EXACT - 4);
        }
        rf_session_destroy(&teller.session);
        gpu_sim_set_desktop(0);
        infer_close(&infer);
    }
    free_text(&text);
}

static void *tell_alone(void *user) {
    tell_all(user, SAID);
    return NULL;
}
/* Several threads generate ahead while another session makes the engine move its caches. */
RF_TEST(ladder, generates_on_in_threads, .gpu = true, .timeout_ms = 1500000) {
    struct infer infer;
    struct text text;
    struct teller tellers[SPEAKERS];
    pthread_t threads[SPEAKERS];
    gpu_need_simulated(squeezed.rfsim);
    make_text(&squeezed, SAID, &text);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.sessions = SPEAKERS + 1;
    params.context = 512;
    infer_open(&infer, &squeezed, &params);
    struct rf_session *session = infer_session(&infer);
    for (int i = 0; i < SPEAKERS; i++) {
        tellers[i] = (struct teller){.infer = &infer, .text = &text};
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, tell_alone, &tellers[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        struct rf_pressure pressure;
        RF_ASSERT_OK(rf_device_pressure(infer.engine->device, &pressure));
        uint64_t spare = rf_sub_saturate(pressure.free_bytes, pressure.floor_bytes);
        gpu_sim_set_desktop(i % 2 ? 0 : spare + MIB / 2);
        RF_ASSERT_OK(rf_session_eval(session, text.tokens, 3, false, NULL));
    }
    gpu_sim_set_desktop(0);
    for (int i = 0; i < SPEAKERS; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    struct rf_engine_info info = info_of(&infer);
    RF_NOTE("%llu steps down and %llu up", (unsigned long long)info.steps_down, (unsigned long long)info.steps_up);
    for (int i = 0; i < SPEAKERS; i++) {
        RF_TRACE("session %d, ahead of %u tokens", i, tellers[i].ahead);
        RF_EXPECT_OK(tellers[i].status);
        RF_EXPECT_UINT(tellers[i].count, SAID);
        /* The tokens can differ only where a layer moved. */
        if (info.steps_down <= LAYERS) RF_EXPECT_UINT(tellers[i].wrong, 0);
        rf_session_destroy(&tellers[i].session);
    }
    rf_session_destroy(&session);
    infer_close(&infer);
    free_text(&text);
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
                (unsigned long long)info_of(&infer).steps_down, (unsigned long long)info_of(&infer).steps_up,
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
        struct rf_engine_info info = info_of(&infer);
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

/* ---- a device with a display ---- */

/* The requested limit, and the limit that is expected. */
struct limit {
    const char *label;
    int display;
    int32_t kernel_ms;
    int64_t limit_ns; /* of one kernel; 0: no limit */
};
static const struct limit limits[] = {{"display", 1, 0, RF_MS(8)},
                                      {"display_off", 1, -1, 0},
                                      {"display_6ms", 1, 6, RF_MS(6)},
                                      {"no_display", 0, 0, 0},
                                      {"no_display_9ms", 0, 9, RF_MS(9)}};
enum { LONG = 200 };
RF_TEST_LABELLED_CASES(display, limits, struct limit, limits, .gpu = true) {
    char rfsim[500], tree[300];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.batch = LONG;
    params.kernel_ms = c->kernel_ms;
    snprintf(tree, sizeof tree, "%s/sys", gpu_folder());
    snprintf(rfsim, sizeof rfsim, "display=%d,sysfs=%s", c->display, tree);
    gpu_need_simulated(rfsim);
    RF_ASSERT_INT(setenv("RF_SYSFS", tree, 1), 0);
    const struct where where = {.label = "display", .rfsim = rfsim};
    infer_open(&infer, &where, &params);
    RF_EXPECT_INT(infer.engine->kernel_ns, c->limit_ns);
    RF_EXPECT_UINT(info_of(&infer).batch, c->limit_ns ? 64 : LONG);
    infer_close(&infer);
}

/* Evaluates a prompt twice in parts that begin with this size: the first time finds the right size, the second uses
 * it. Returns how long the longest kernel of its last part took. */
static int64_t read_long_prompt(int32_t kernel_ms, uint32_t first, uint32_t count, const float *expected,
                                uint32_t *chunk, uint32_t *least) {
    static const struct where paced = {.label = "paced", .rfsim = "pace=1000000"};
    int32_t tokens[LONG];
    float row[VOCABULARY];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.batch = LONG;
    params.kernel_ms = kernel_ms;
    infer_open(&infer, &paced, &params);
    if (first) atomic_store(&infer.engine->pace.chunk, first);
    for (uint32_t i = 0; i < LONG; i++) tokens[i] = (int32_t)((i * i + 7) % VOCABULARY);
    struct rf_session *session = infer_session(&infer);
    for (int turn = 0; turn < 2; turn++) {
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, row));
        if (expected) RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    }
    *chunk = info_of(&infer).batch;
    *least = atomic_load(&infer.engine->pace.least);
    /* The size of the last part is arbitrary: a part of the size that was found is measured. */
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, tokens, RF_MIN(*chunk, count), false, row));
    const struct rf_runner *newest = &session->runners[0];
    for (size_t i = 1; i < session->runner_count; i++)
        if (session->runners[i].used > newest->used) newest = &session->runners[i];
    int64_t longest = rf_executor_longest_ns(newest->executor);
    RF_NOTE("%d ms, from %u: %u tokens at a time, the longest kernel takes %.0f ms", kernel_ms, first, *chunk,
            (double)longest * 1e-6);
    rf_session_destroy(&session);
    infer_close(&infer);
    return longest;
}

/* By the simulated clock a block takes a millisecond, whatever the host does. Parts of a prompt shrink until no
 * kernel takes longer than the limit, and grow if there is time to spare. */
RF_TEST(display, prompts_are_cut, .gpu = true, .timeout_ms = 1500000) {
    static const struct where cpu = {.label = "cpu"};
    enum { EVER = 100000000, FEW = 8 };
    float expected[VOCABULARY];
    uint32_t chunk = 0, least = 0;
    int32_t tokens[LONG];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    gpu_need_simulated("pace=1000000");
    infer_open(&infer, &cpu, &params);
    RF_EXPECT_INT(infer.engine->kernel_ns, 0); /* the CPU drives no display */
    for (uint32_t i = 0; i < LONG; i++) tokens[i] = (int32_t)((i * i + 7) % VOCABULARY);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, false, expected));
    rf_session_destroy(&session);
    infer_close(&infer);

    /* With a limit that never matters, the part grows to its largest size. */
    int64_t all_ns = read_long_prompt(EVER, 0, LONG, expected, &chunk, &least);
    RF_EXPECT_UINT(chunk, LONG);
    int64_t few_ns = read_long_prompt(EVER, FEW, FEW, NULL, &chunk, &least);
    RF_ASSERT(all_ns > few_ns + RF_MS(2));
    /* With a limit in between it shrinks, and the limit is kept. */
    int64_t limit_ns = few_ns + (all_ns - few_ns) / 2, longest;
    longest = read_long_prompt((int32_t)(limit_ns / RF_MS(1)), LONG, LONG, expected, &chunk, &least);
    RF_EXPECT(chunk < LONG && chunk >= FEW / 2);
    RF_EXPECT(longest > 0 && longest <= limit_ns);
    /* With a limit that no kernel can keep, it stops at the size below which parts take just as long. */
    longest = read_long_prompt(1, LONG, LONG, expected, &chunk, &least);
    RF_EXPECT(longest > RF_MS(1));
    RF_EXPECT_UINT(chunk, least);
}

/* The device is left idle for its share of the time: three times as long as it was busy. */
RF_TEST(display, leaves_the_device_alone, .gpu = true, .timeout_ms = 1500000) {
    struct infer infer;
    int32_t tokens[PROMPT];
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.duty_percent = 101;
    RF_EXPECT_STATUS(infer_try_open(&infer, &squeezed, &params), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "101 percent");
    rf_runtime_destroy(&infer.gpu.runtime);
    params.duty_percent = 25;
    infer_open(&infer, &squeezed, &params);
    fill_prompt(tokens);
    struct rf_session *session = infer_session(&infer);
    int64_t began = rf_now_ns();
    RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, NULL));
    for (int i = 0; i < 3; i++) RF_ASSERT_OK(rf_session_eval(session, tokens + i, 1, false, NULL));
    int64_t took = rf_now_ns() - began, idle = info_of(&infer).idle_ns;
    RF_EXPECT(idle > 0);
    RF_EXPECT(took >= idle);
    RF_EXPECT(idle <= 3 * (took - idle)); /* the rest of the time is at least the busy time */
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- pinned memory as a buffer ---- */

RF_TEST(pinned_buffer, is_used_like_a_buffer, .gpu = true) {
    enum { COUNT = 1000 };
    float values[COUNT], got[COUNT];
    struct gpu gpu = {0};
    struct rf_pinned *pinned = NULL;
    struct rf_buffer *buffer = NULL, *again = NULL, *view = NULL;
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    for (int i = 0; i < COUNT; i++) values[i] = (float)i;
    uint64_t held = gpu_memory(&gpu).held_bytes;
    RF_ASSERT_OK(rf_pinned_create(gpu.device, sizeof values, &pinned));
    RF_EXPECT_STATUS(rf_pinned_buffer(NULL, &buffer), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_pinned_buffer(pinned, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_pinned_buffer(pinned, &buffer));
    RF_ASSERT_OK(rf_pinned_buffer(pinned, &again));
    RF_EXPECT_UINT(rf_buffer_bytes(buffer), sizeof values);
    RF_EXPECT_UINT(gpu_memory(&gpu).held_bytes, held); /* it is host memory */
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 0, values, sizeof values));
    RF_EXPECT(!memcmp(rf_pinned_data(pinned), values, sizeof values));

    /* A kernel reads and writes it in place, also when recorded. */
    struct rf_recording *recording = NULL;
    const struct rf_kernel *scale = gpu_kernel(&gpu, "scale_f32");
    RF_ASSERT_OK(rf_buffer_view(again, 0, sizeof values, &view));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "twice"));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, scale, COUNT, rf_arg_buffer(view), rf_arg_buffer(view), rf_arg_f32(2),
                            rf_arg_i64(COUNT)));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, buffer, 0, sizeof got)); /* waits for the kernel */
    for (int i = 0; i < COUNT; i++) RF_ASSERT(got[i] == 2 * values[i]);

    /* Operations that drivers do not agree on. */
    struct rf_buffer *other = gpu_buffer(&gpu, sizeof values);
    RF_EXPECT_STATUS(rf_fill(gpu.queue, buffer, 0, 4, 1), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_copy_on_device(gpu.queue, other, 0, buffer, 0, 4), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_copy_on_device(gpu.queue, buffer, 0, other, 0, 4), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_upload_async(gpu.queue, buffer, 0, pinned, 0, 4), RF_E_UNSUPPORTED);
    RF_ASSERT_OK(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT));

    /* The handles may be destroyed in any order; the last one frees the memory. */
    RF_ASSERT_OK(rf_pinned_destroy(&pinned));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&again));
    RF_ASSERT_OK(rf_buffer_destroy(&view));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_ASSERT_OK(rf_buffer_destroy(&other));
    gpu_close(&gpu);
}
