/* Items of `rocmforge selftest` that run the bundled model: on the GPU against the CPU, and on the CPU against its
 * scalar code. The logits must agree within the tolerance of quantized weights (docs/inference.md), and the most
 * likely token must be the same wherever the model is sure: where the best token leads by more than ten times the RMS
 * difference of the logits. */
#include "selftest.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The relative squared error of the logits. Activations are rounded to 8 bits, and where a rounding falls the other
 * way the error is some 1e-5 (7e-5 was measured between CPU and simulated GPU, 4e-5 between two CPU levels). An
 * attention scale that is wrong by half gives 1.3e-3 with this prompt; with one of five tokens it gave only 8e-5. */
#define TOLERANCE 5e-4
#define PROMPT "Once upon a time there was a young boy named Arthur. One day, Arthur was playing by the lake. There"
enum { CONTEXT = 128, STEPS_MAX = 24, QUICK_STEPS = 4 };

/* The model is installed in ../share/rocmforge/models beside the folder of the command; in a source tree it is in
 * ../models beside the build folder. */
static bool find_model(char path[PATH_MAX]) {
    static const char *const places[] = {"../share/rocmforge/models/stories.gguf", "../models/stories.gguf"};
    char command[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", command, sizeof command - 1);
    if (length <= 0) return false;
    command[length] = 0;
    char *slash = strrchr(command, '/');
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (snprintf(path, PATH_MAX, "%s/%s", command, places[i]) >= PATH_MAX) continue;
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

struct told {
    float *rows; /* the logits of each step */
    int32_t best[STEPS_MAX];
    uint32_t vocabulary;
    int64_t ns; /* for the steps after the first */
};

/* Continues the prompt with the most likely token each time, or with the tokens of 'like'. */
static rf_status tell_with(struct selftest *test, struct rf_engine *engine, int steps, const struct told *like,
                           struct told *told) {
    RF_PARAMS(struct rf_engine_info, info);
    struct rf_session *session = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    int64_t started = 0;
    rf_status status = rf_engine_get_info(engine, &info);
    told->vocabulary = info.vocabulary;
    if (!status && !(told->rows = calloc((size_t)steps * info.vocabulary, sizeof *told->rows)))
        status = RF_E_NO_MEMORY;
    if (!status)
        status = rf_tokenizer_encode(rf_engine_tokenizer(engine), PROMPT, strlen(PROMPT), NULL, &ids, &count);
    if (!status) status = rf_session_create(engine, &session);
    for (int step = 0; step < steps && !status; step++) {
        const int32_t *next = step ? &(like ? like : told)->best[step - 1] : ids;
        if (step == 1) started = selftest_now_ns();
        selftest_at(test, "token %d on the %s", step, info.device_layers ? "GPU" : "CPU");
        status = rf_session_eval(session, next, step ? 1 : count, false, told->rows + (size_t)step * info.vocabulary);
        if (!status) status = rf_session_sample(session, NULL, &told->best[step]);
    }
    told->ns = selftest_now_ns() - started;
    rf_token_ids_destroy(&ids);
    rf_session_destroy(&session);
    return status;
}

static rf_status tell(struct selftest *test, const struct rf_engine_params *params, bool on_gpu, int steps,
                      const struct told *like, struct told *told) {
    struct rf_engine *engine = NULL;
    RF_PARAMS(struct rf_engine_info, info);
    selftest_at(test, "opening the model for the %s", on_gpu ? "GPU" : "CPU");
    rf_status status = rf_engine_open(params, &engine);
    if (status) return status;
    status = rf_engine_get_info(engine, &info);
    if (!status && on_gpu && info.device_layers < info.layers) status = RF_E_BUDGET; /* the caller says it */
    if (!status) status = tell_with(test, engine, steps, like, told);
    rf_status closed = rf_engine_close(&engine);
    return status ? status : closed;
}

static double lead_of(const float *row, uint32_t vocabulary, int32_t best) {
    double second = -INFINITY;
    for (uint32_t i = 0; i < vocabulary; i++)
        if ((int32_t)i != best && (double)row[i] > second) second = (double)row[i];
    return (double)row[best] - second;
}

/* got against want. what: "the GPU" and so on. */
static enum selftest_mark compare(struct selftest *test, const struct told *want, const struct told *got, int steps,
                                  const char *what) {
    double off = 0, size = 0;
    int sure = 0;
    for (int step = 0; step < steps; step++) {
        const float *expected = want->rows + (size_t)step * want->vocabulary;
        const float *row = got->rows + (size_t)step * want->vocabulary;
        double square = 0;
        for (uint32_t i = 0; i < want->vocabulary; i++) {
            double difference = (double)row[i] - (double)expected[i];
            square += difference * difference;
            size += (double)expected[i] * (double)expected[i];
        }
        off += square;
        if (isfinite(square) &&
            lead_of(expected, want->vocabulary, want->best[step]) <= 10 * sqrt(square / want->vocabulary))
            continue;
        if (got->best[step] != want->best[step])
            return selftest_say(test, SELFTEST_FAILED, "step %d: the most likely token of %s is %d, expected %d",
                                step, what, got->best[step], want->best[step]);
        sure++;
    }
    double error = off / size;
    if (!(error <= TOLERANCE))
        return selftest_say(test, SELFTEST_FAILED,
                            "the logits of %s have a squared error of %.2e, more than the tolerance of %.0e", what,
                            error, TOLERANCE);
    return selftest_say(test, SELFTEST_OK,
                        "squared error of the logits %.2e (at most %.0e), %d of %d tokens compared, %.0f tokens/s",
                        error, TOLERANCE, sure, steps, (steps - 1) * 1e9 / (double)got->ns);
}

static struct rf_engine_params engine_params(struct selftest *test, const char *model) {
    RF_PARAMS(struct rf_engine_params, params);
    params.runtime = test->runtime;
    params.model = model;
    params.device = "cpu";
    params.context = CONTEXT;
    params.kv = RF_KV_F32;
    return params;
}

enum selftest_mark selftest_model(struct selftest *test) {
    char path[PATH_MAX], index[16];
    struct told cpu = {0}, gpu = {0}, plain = {0};
    int steps = test->quick ? QUICK_STEPS : STEPS_MAX;
    if (!find_model(path))
        return selftest_say(test, SELFTEST_SKIPPED, "the bundled model, stories.gguf, is not where it is installed");
    struct rf_engine_params params = engine_params(test, path);
    enum selftest_mark mark = SELFTEST_FAILED;
    rf_status status = tell(test, &params, false, steps, NULL, &cpu);
    if (status) {
        mark = selftest_fail(test, status, "on the CPU");
        goto done;
    }
    snprintf(index, sizeof index, "%d", test->info.index);
    params.device = index;
    status = tell(test, &params, true, steps, &cpu, &gpu);
    if (status == RF_E_BUDGET) {
        mark = selftest_say(test, SELFTEST_SKIPPED, "the budget has no room for the model");
        goto done;
    }
    if (status) {
        mark = selftest_fail(test, status, "on the GPU");
        goto done;
    }
    params.no_replay = true;
    status = tell(test, &params, true, QUICK_STEPS, &cpu, &plain);
    if (status) {
        mark = selftest_fail(test, status, "on the GPU, without recordings");
        goto done;
    }
    mark = compare(test, &cpu, &gpu, steps, "the GPU");
    if (mark == SELFTEST_OK && memcmp(gpu.rows, plain.rows, (size_t)QUICK_STEPS * gpu.vocabulary * sizeof *gpu.rows))
        mark = selftest_say(test, SELFTEST_FAILED, "with recordings the logits have other bits than without");
done:
    free(cpu.rows);
    free(gpu.rows);
    free(plain.rows);
    return mark;
}

enum selftest_mark selftest_cpu_model(struct selftest *test) {
    char path[PATH_MAX];
    struct told scalar = {0}, fast = {0};
    int steps = test->quick ? QUICK_STEPS : STEPS_MAX;
    if (!find_model(path))
        return selftest_say(test, SELFTEST_SKIPPED, "the bundled model, stories.gguf, is not where it is installed");
    struct rf_engine_params params = engine_params(test, path);
    params.simd = "scalar";
    rf_status status = tell(test, &params, false, steps, NULL, &scalar);
    params.simd = NULL;
    if (!status) status = tell(test, &params, false, steps, &scalar, &fast);
    enum selftest_mark mark = status ? selftest_fail(test, status, "on the CPU")
                                     : compare(test, &scalar, &fast, steps, "the fast CPU code");
    free(scalar.rows);
    free(fast.rows);
    return mark;
}
