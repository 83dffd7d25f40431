#include "ladder_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "infer/engine_impl.h"

const struct spec tower = {"llama",    "llama",       .layers = LAYERS,   .width = 64,
                           .heads = 2, .kv_heads = 2, .feed_forward = 96, .vocabulary = VOCABULARY,
                           .seed = 21};
const struct where squeezed = {.label = "squeezed", .rfsim = "vram=256MiB,context=16MiB,granularity=64KiB"};
const struct rf_engine_params usual = {
    .context = CONTEXT, .batch = 32, .kv = RF_KV_F32, .budget = "keep=32MiB", .watch_ns = 1};

/* ---- a generation to compare with ---- */

void fill_prompt(int32_t *tokens) {
    for (int i = 0; i < PROMPT; i++) tokens[i] = (i * i * 5 + 3) % VOCABULARY;
}

const float *row_of(const struct text *text, uint32_t index) {
    return text->rows + (size_t)index * VOCABULARY;
}

struct rf_sample_params sampling(void) {
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

void make_text(const struct where *where, uint32_t count, struct text *text) {
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    infer_open(&infer, where, &params);
    speak_undisturbed(&infer, count, text);
    struct rf_engine_info info = infer_info(&infer);
    RF_EXPECT_UINT(info.steps_down + info.steps_up, 0);
    RF_EXPECT_UINT(info.device_layers, where->rfsim ? LAYERS : 0);
    infer_close(&infer);
}

void free_text(struct text *text) {
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

void compare_row(const float *row, const float *expected, bool exact) {
    if (exact)
        RF_ASSERT(!memcmp(row, expected, VOCABULARY * sizeof *row));
    else
        RF_ASSERT(error_of_floats(row, expected, VOCABULARY) <= 1e-9);
    expect_same_choice(row, expected);
}

/* ---- room ---- */

uint64_t free_above_floor(const struct infer *infer) {
    struct rf_pressure pressure;
    RF_ASSERT_OK(rf_device_pressure(infer->engine->device, &pressure));
    RF_ASSERT(pressure.free_bytes >= pressure.floor_bytes);
    return pressure.free_bytes - pressure.floor_bytes;
}
