/* How many tokens of a prompt run at a time: what the device's room, the time and the caller allow; and what becomes
 * of the memory of long chunks. Engines that read prompts here call 256 tokens long, and 32 short. */
#include "infer_testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "infer/engine_impl.h"

enum { LAYERS = 2, VOCABULARY = 64, SHORT = 32, LONG = 256, CONTEXT = 1024 };
/* A token takes about 20 KiB of scratch memory. */
static const struct spec wide = {"wide",     "llama",       .layers = LAYERS,     .width = 128,
                                 .heads = 2, .kv_heads = 1, .feed_forward = 2048, .vocabulary = VOCABULARY,
                                 .seed = 8};
static const struct where roomy = {.label = "roomy", .rfsim = "vram=256MiB,context=16MiB,granularity=64KiB"};
static const struct rf_engine_params usual = {
    .context = CONTEXT, .batch = SHORT, .kv = RF_KV_F32, .budget = "keep=32MiB", .watch_ns = 1};

/* However slow this machine is, the time of a run limits nothing. */
static void open_long(struct infer *infer, struct rf_engine_params params) {
    params.model = infer_model(&wide, "wide.gguf");
    infer_open(infer, &roomy, &params);
    infer->engine->longest = LONG;
    infer->engine->pace.run_ns = INT64_MAX;
    atomic_store(&infer->engine->pace.chunk, LONG);
}

static void fill_tokens(int32_t *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * i * 3 + i / 7 + 5) % VOCABULARY);
}

static uint64_t room_of(const struct infer *infer) {
    struct rf_pressure pressure;
    RF_ASSERT_OK(rf_device_pressure(infer->engine->device, &pressure));
    return pressure.room_bytes;
}

/* What the desktop can take before the engine has to give up something. */
static uint64_t left_for_others(const struct infer *infer) {
    struct rf_pressure pressure;
    RF_ASSERT_OK(rf_device_trim(infer->engine->device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_device_pressure(infer->engine->device, &pressure));
    return pressure.free_bytes - pressure.floor_bytes;
}

static uint32_t longest_held(const struct rf_session *session) {
    uint32_t tokens = 0;
    for (size_t i = 0; i < session->runner_count; i++) tokens = RF_MAX(tokens, session->runners[i].shape.tokens);
    return tokens;
}

/* The logits after a prompt in chunks of SHORT tokens. */
static void read_in_short_chunks(const int32_t *tokens, uint32_t count, float *row) {
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&wide, "wide.gguf");
    infer_open(&infer, &roomy, &params);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, row));
    RF_EXPECT_UINT(longest_held(session), SHORT);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- what decides ---- */

/* A chunk is long only where nobody said otherwise and nothing is lost by it. */
struct rule {
    const char *label;
    const char *device;
    uint32_t batch, device_layers, duty_percent;
    int32_t kernel_ms;
    uint32_t expected;
};
static const struct rule rules[] = {{"default", NULL, 0, 0, 0, 0, 4096},
                                    {"given", NULL, 700, 0, 0, 0, 700},
                                    {"given_small", NULL, 8, 0, 0, 0, 8},
                                    {"cpu", "cpu", 0, 0, 0, 0, 512},
                                    {"some_layers_on_the_cpu", NULL, 0, 1, 0, 0, 512},
                                    {"kernels_must_be_short", NULL, 0, 0, 0, 8, 64},
                                    {"device_rests", NULL, 0, 0, 50, 0, 512}};
RF_TEST_LABELLED_CASES(chunk, rules, struct rule, rules, .gpu = true) {
    static const struct where large = {.label = "large", .rfsim = "vram=8GiB"};
    struct infer infer;
    struct rf_engine_params params = {.context = 8192,
                                      .batch = c->batch,
                                      .device = c->device,
                                      .device_layers = c->device_layers,
                                      .duty_percent = c->duty_percent,
                                      .kernel_ms = c->kernel_ms};
    gpu_need_simulated(large.rfsim);
    params.model = infer_model(&wide, "wide.gguf");
    infer_open(&infer, &large, &params);
    struct rf_engine *engine = infer.engine;
    RF_EXPECT_UINT(infer_info(&infer).batch, c->expected == 4096 ? 512 : c->expected); /* nothing was measured yet */
    for (int turn = 0; turn < 4; turn++) rf_chunk_learn(engine, 512, 1, -1);
    RF_EXPECT_UINT(infer_info(&infer).batch, c->expected);
    RF_EXPECT_UINT(rf_chunk_most(engine, 3, 0), 3);
    infer_close(&infer);
}

/* A run may take a tenth of the deadline. */
RF_TEST(chunk, follows_the_time, .gpu = true) {
    static const struct where large = {.label = "large", .rfsim = "vram=8GiB"};
    struct infer infer;
    struct rf_engine_params params = {.context = 3000};
    gpu_need_simulated(large.rfsim);
    params.model = infer_model(&wide, "wide.gguf");
    infer_open(&infer, &large, &params);
    struct rf_engine *engine = infer.engine;
    int64_t whole = engine->runtime->timeout_ns / 10;
    const struct {
        uint32_t count;
        int64_t run_ns;
        uint32_t expected;
    } steps[] = {{512, whole, 512},        {512, whole / 2, 1024},  {512, whole / 4 + whole / 100, 1024},
                 {1024, whole / 2, 2048},  {2048, whole / 4, 3000}, {3000, 3 * whole, 512},
                 {512, whole / 100, 3000}, {100, 10 * whole, 3000}, /* too few tokens to say anything */
                 {3000, 100 * whole, 512}};                         /* never shorter than that */
    for (size_t i = 0; i < RF_COUNT(steps); i++) {
        RF_TRACE("step %zu", i);
        rf_chunk_learn(engine, steps[i].count, steps[i].run_ns, -1);
        RF_EXPECT_UINT(infer_info(&infer).batch, steps[i].expected);
    }
    infer_close(&infer);
}

/* The longest of 4096, 2048, 1024 and 512 tokens that takes at most half of what is free. */
RF_TEST(chunk, follows_the_room, .gpu = true) {
    static const struct where large = {.label = "large", .rfsim = "vram=1GiB,context=16MiB,granularity=64KiB"};
    struct infer infer;
    uint32_t seen = 0, before = 4096;
    struct rf_engine_params params = {.context = 8192, .budget = "keep=32MiB"};
    gpu_need_simulated(large.rfsim);
    params.model = infer_model(&wide, "wide.gguf");
    infer_open(&infer, &large, &params);
    struct rf_engine *engine = infer.engine;
    rf_chunk_learn(engine, 512, 1, -1);
    for (uint64_t desktop = 0; room_of(&infer) > 12 * MIB; desktop += 6 * MIB) {
        gpu_sim_set_desktop(desktop);
        uint64_t room = room_of(&infer);
        uint32_t chunk = rf_chunk_most(engine, engine->longest, 0);
        RF_TRACE("%llu MiB of room", (unsigned long long)(room / MIB));
        RF_EXPECT(chunk <= before && chunk >= 512);
        if (chunk > 512) RF_EXPECT(rf_chunk_bytes(engine, chunk) <= room / 2);
        if (chunk < 4096) RF_EXPECT(rf_chunk_bytes(engine, 2 * chunk) > room / 2);
        /* What a long chunk of this session holds can be used again. */
        RF_EXPECT_UINT(rf_chunk_most(engine, engine->longest, 4096), 4096);
        RF_EXPECT_UINT(rf_chunk_most(engine, 512, 0), 512);
        seen |= chunk;
        before = chunk;
    }
    RF_EXPECT_UINT(seen, 4096 | 2048 | 1024 | 512);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    gpu_sim_set_desktop(0);
    infer_close(&infer);
}

/* ---- prompts in long chunks ---- */

/* The same prompt as in short chunks, within rounding; a session keeps the memory of one long chunk, and no more than
 * was estimated. */
RF_TEST(chunk, long_prompts, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = LONG + 200 };
    int32_t tokens[COUNT];
    float row[VOCABULARY], expected[VOCABULARY];
    struct infer infer;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, COUNT);
    read_in_short_chunks(tokens, COUNT, expected);
    open_long(&infer, usual);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, 1, false, NULL));
    uint64_t room = room_of(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens + 1, LONG - 1, false, NULL));
    RF_EXPECT_UINT(infer.engine->long_tokens, LONG - 1);
    RF_EXPECT(room - room_of(&infer) <= rf_chunk_bytes(infer.engine, LONG));
    RF_EXPECT(room - room_of(&infer) > rf_chunk_bytes(infer.engine, LONG) / 4);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row));
    RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    RF_EXPECT_UINT(infer.engine->long_tokens, 200);
    RF_EXPECT_UINT(longest_held(session), 200);
    /* With the logits of all tokens chunks are short. */
    float *rows = infer_rows(&infer, LONG);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, true, rows));
    RF_EXPECT_UINT(infer.engine->long_tokens, 200);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    free(rows);
    rf_session_destroy(&session);
    RF_EXPECT_UINT(infer.engine->long_tokens, 0);
    infer_close(&infer);
}

/* The desktop needs memory: that of the long chunk is enough, so nothing else moves, and the last logits are kept. */
RF_TEST(chunk, is_given_back_before_anything_moves, .gpu = true, .timeout_ms = 1500000) {
    int32_t tokens[LONG], token = -1, expected = -2;
    struct infer infer;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, LONG);
    struct rf_engine_params params = usual;
    params.sessions = 2;
    open_long(&infer, params);
    struct rf_session *session = infer_session(&infer), *other = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(other, tokens, 1, false, NULL));
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, false, NULL));
    RF_ASSERT_OK(rf_session_sample(session, NULL, &expected));
    RF_EXPECT_UINT(infer.engine->long_tokens, LONG);
    gpu_sim_set_desktop(left_for_others(&infer) + MIB);
    RF_ASSERT_OK(rf_session_eval(other, tokens + 1, 1, false, NULL));
    RF_EXPECT_UINT(infer.engine->long_tokens, 0);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    RF_ASSERT_OK(rf_session_sample(session, NULL, &token));
    RF_EXPECT_INT(token, expected);
    gpu_sim_set_desktop(0);
    rf_session_destroy(&session);
    rf_session_destroy(&other);
    infer_close(&infer);
}

/* The desktop grows while a prompt is read. The rest is read in shorter chunks; nothing moves, and the result is the
 * same. */
RF_TEST(chunk, squeeze_in_a_prompt, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 2 * LONG };
    int32_t tokens[COUNT];
    float row[VOCABULARY], expected[VOCABULARY];
    struct infer infer;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, COUNT);
    read_in_short_chunks(tokens, COUNT, expected);
    open_long(&infer, usual);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, false, NULL));
    RF_EXPECT_UINT(infer.engine->long_tokens, LONG);
    gpu_sim_set_desktop(left_for_others(&infer) + MIB);
    RF_ASSERT_OK(rf_session_eval(session, tokens + LONG, LONG, false, row));
    RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    RF_EXPECT(longest_held(session) < LONG);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    struct rf_pressure pressure;
    RF_ASSERT_OK(rf_device_pressure(infer.engine->device, &pressure));
    RF_EXPECT(pressure.free_bytes >= pressure.floor_bytes);
    RF_EXPECT(gpu_sim_least_free() >= pressure.floor_bytes);
    gpu_sim_set_desktop(0);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* The same at any moment of a call, from another thread. */
struct desktop {
    struct infer *infer;
    uint64_t bytes;
};
static void *grow_later(void *user) {
    struct desktop *desktop = user;
    while (atomic_load(&desktop->infer->engine->ladder.runs) < 2) rf_sleep_ns(RF_MS(1));
    gpu_sim_set_desktop(desktop->bytes);
    return NULL;
}
RF_TEST(chunk, squeeze_from_a_thread, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 2 * LONG + 100 };
    int32_t tokens[COUNT];
    float row[VOCABULARY], expected[VOCABULARY];
    struct infer infer;
    pthread_t thread;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, COUNT);
    read_in_short_chunks(tokens, COUNT, expected);
    open_long(&infer, usual);
    infer.engine->longest = LONG / 2;
    struct rf_session *session = infer_session(&infer);
    struct desktop desktop = {&infer, left_for_others(&infer) - 2 * MIB};
    RF_ASSERT_INT(pthread_create(&thread, NULL, grow_later, &desktop), 0);
    RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT, false, row));
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
    RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    RF_ASSERT_OK(rf_session_eval(session, tokens, 1, false, row));
    RF_EXPECT_UINT(infer.engine->long_tokens, 0);
    gpu_sim_set_desktop(0);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* A refusal that the estimate did not foresee, because the session itself held the memory: the prompt is read in
 * chunks of half the length, or less if there is not room for twice that. Nobody looks at the floor here. */
RF_TEST(chunk, is_halved_when_refused, .gpu = true, .timeout_ms = 1500000) {
    enum { COUNT = 2 * LONG };
    int32_t tokens[COUNT];
    float row[VOCABULARY], expected[VOCABULARY];
    struct infer infer;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, COUNT);
    read_in_short_chunks(tokens, COUNT, expected);
    struct rf_engine_params params = usual;
    params.watch_ns = -1;
    open_long(&infer, params);
    struct rf_session *session = infer_session(&infer);
    uint64_t room = room_of(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, false, NULL));
    uint64_t need = room - room_of(&infer);
    gpu_sim_set_desktop(left_for_others(&infer) +
                        need / 3); /* the runner of the next chunk has another shape, and no room */
    RF_ASSERT_OK(rf_session_eval(session, tokens + LONG, LONG, false, row));
    RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    RF_EXPECT(longest_held(session) <= LONG / 2);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    gpu_sim_set_desktop(0);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* A session that finds no room for even a short chunk gets what another one's long chunk left. */
RF_TEST(chunk, makes_room_for_other_sessions, .gpu = true, .timeout_ms = 1500000) {
    int32_t tokens[LONG], token = -1, expected_token = -2;
    float row[VOCABULARY], expected[VOCABULARY];
    struct infer infer;
    gpu_need_simulated(roomy.rfsim);
    fill_tokens(tokens, LONG);
    read_in_short_chunks(tokens, SHORT, expected);
    struct rf_engine_params params = usual;
    params.watch_ns = -1;
    params.sessions = 2;
    open_long(&infer, params);
    struct rf_session *session = infer_session(&infer), *other = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(other, tokens, LONG, false, NULL));
    RF_ASSERT_OK(rf_session_sample(other, NULL, &expected_token));
    gpu_sim_set_desktop(left_for_others(&infer) - MIB / 4);
    RF_ASSERT_OK(rf_session_eval(session, tokens, SHORT, false, row));
    RF_EXPECT(!memcmp(row, expected, sizeof row));
    RF_EXPECT_UINT(longest_held(session), SHORT);
    RF_EXPECT_UINT(longest_held(other), 0);
    RF_ASSERT_OK(rf_session_sample(other, NULL, &token));
    RF_EXPECT_INT(token, expected_token);
    RF_EXPECT_UINT(infer_info(&infer).steps_down, 0);
    gpu_sim_set_desktop(0);
    rf_session_destroy(&session);
    rf_session_destroy(&other);
    infer_close(&infer);
}
