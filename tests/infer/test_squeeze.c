/* The ladder under a desktop that grows and shrinks at random: between tokens, beside sessions on threads, and while
 * tokens are computed ahead. */
#include "ladder_testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "graph/executor.h"
#include "infer/engine_impl.h"

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
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
        struct rf_engine_info info = infer_info(&infer);
        exact = exact && info.device_layers == LAYERS;
        exact_rows += exact && info.device_kv_layers < LAYERS;
        seen_layers |= 1u << info.device_layers;
        compare_row(row, row_of(&text, i + 1), exact);
    }
    struct rf_engine_info info = infer_info(&infer);
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

enum { SPEAKERS = 3 };
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
    while (!atomic_load(&desktop->end) && !infer_info(desktop->infer).steps_down) rf_sleep_ns(RF_MS(1));
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
    struct rf_engine_info info = infer_info(&infer);
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

struct meeting { /* tellers wait in the middle of their text until all are there and something has happened */
    atomic_int there;
    atomic_bool over;
};
struct teller {
    struct infer *infer;
    struct meeting *meeting; /* NULL: it does not wait */
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
    rf_ladder_enter_quietly(teller->infer->engine);
    teller->ahead += teller->session->ahead.queued > 0;
    rf_ladder_leave(teller->infer->engine);
    teller->count++;
    if (teller->meeting && teller->count == 4) {
        atomic_fetch_add(&teller->meeting->there, 1);
        while (!atomic_load(&teller->meeting->over)) rf_sleep_ns(RF_MS(1));
    }
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
        struct rf_engine_info info = infer_info(&infer);
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
    struct teller *teller = user;
    tell_all(teller, SAID);
    if (teller->count < 4) atomic_fetch_add(&teller->meeting->there, 1); /* it failed: nobody waits for it */
    return NULL;
}
/* Several threads generate ahead while another session makes the engine move its caches: at first when all of them
 * have runs under way. */
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
    struct meeting meeting = {0};
    uint32_t ahead = 0;
    for (int i = 0; i < SPEAKERS; i++) {
        tellers[i] = (struct teller){.infer = &infer, .text = &text, .meeting = &meeting};
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, tell_alone, &tellers[i]), 0);
    }
    while (atomic_load(&meeting.there) < SPEAKERS) rf_sleep_ns(RF_MS(1));
    for (int i = 0; i < 20; i++) {
        struct rf_pressure pressure;
        RF_ASSERT_OK(rf_device_pressure(infer.engine->device, &pressure));
        uint64_t spare = rf_sub_saturate(pressure.free_bytes, pressure.floor_bytes);
        gpu_sim_set_desktop(i % 2 ? 0 : spare + MIB / 2);
        RF_ASSERT_OK(rf_session_eval(session, text.tokens, 3, false, NULL));
        atomic_store(&meeting.over, true);
    }
    gpu_sim_set_desktop(0);
    for (int i = 0; i < SPEAKERS; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    struct rf_engine_info info = infer_info(&infer);
    RF_NOTE("%llu steps down and %llu up", (unsigned long long)info.steps_down, (unsigned long long)info.steps_up);
    for (int i = 0; i < SPEAKERS; i++) {
        RF_TRACE("session %d, ahead of %u tokens", i, tellers[i].ahead);
        RF_EXPECT_OK(tellers[i].status);
        RF_EXPECT_UINT(tellers[i].count, SAID);
        /* The tokens can differ only where a layer moved. */
        if (!strstr(gpu_log(), "moved to the CPU")) RF_EXPECT_UINT(tellers[i].wrong, 0);
        ahead += tellers[i].ahead;
        rf_session_destroy(&tellers[i].session);
    }
    RF_EXPECT(info.steps_down > 0 && ahead >= SPEAKERS);
    rf_session_destroy(&session);
    infer_close(&infer);
    free_text(&text);
}
