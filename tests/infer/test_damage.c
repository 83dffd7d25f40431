/* Damaged model files: cut at any point, or with a byte flipped. Opening and running one gives a clean error or a
 * correct run: of the same model if the byte had no meaning, or of the other model that the file now describes,
 * compared with the plain forward pass. It never crashes and never takes more memory than the host's budget. */
#include "infer_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct subject {
    const char *label;
    bool scripted; /* a scripted model with a vocabulary; otherwise an oracle's model without one */
};
static const struct subject subjects[] = {{"oracle", false}, {"vocabulary", true}};
#define BOUND 2e-3 /* on the squared error, as for this model in oracle_testing.h */
enum { TOKENS = 2, STEP = 4096, ROW_MAX = 4096 };
static const int32_t tokens[TOKENS] = {1, 2};

struct damaged {
    unsigned char *bytes; /* the whole file */
    size_t size, header;  /* header: where the tensors' data begins */
    char path[512];       /* path of the damaged file */
    struct rf_runtime *runtime;
    struct gpu gpu;
    float whole[ROW_MAX]; /* the logits of the undamaged file */
    double noise;         /* of the undamaged file: see noise_of */
    uint32_t vocabulary;
    unsigned refused, same, other;
    /* Counts among `other`: the logits are not finite, a weight is huge, or rounding moves the result far. */
    unsigned none, huge, wild;
    long peak_kib;
};

static long peak_kib(void) {
    struct rusage usage;
    RF_ASSERT_INT(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Opens the file at the path and evaluates two tokens; row gets the logits of the last. */
static rf_status try_model(struct damaged *damaged, float *row, uint32_t *vocabulary) {
    RF_PARAMS(struct rf_engine_params, params);
    RF_PARAMS(struct rf_engine_info, info);
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    params.runtime = damaged->runtime;
    params.model = damaged->path;
    params.device = "cpu";
    params.threads = 1;
    rf_status status = rf_engine_open(&params, &engine);
    if (!status) {
        RF_ASSERT_OK(rf_engine_get_info(engine, &info));
        *vocabulary = info.vocabulary;
        status = rf_session_create(engine, &session);
    }
    if (!status && *vocabulary <= ROW_MAX) status = rf_session_eval(session, tokens, TOKENS, false, row);
    rf_session_destroy(&session);
    RF_ASSERT_OK(rf_engine_close(&engine));
    return status;
}

/* How far rounding to 8 bits moves the plain pass, on average. How it falls out is chance: the CPU's may be several
 * times this. For the undamaged model this is a tenth of the bound; a weight that became large magnifies it, some so
 * much that nothing can be compared. last: the logits without rounding. */
static double noise_of(struct model *model, const double *last, uint32_t vocabulary) {
    enum { PASSES = 8 };
    double moved[TOKENS * ROW_MAX], sum = 0;
    float row[ROW_MAX];
    uint64_t state = 1;
    model->noise = &state;
    for (int pass = 0; pass < PASSES; pass++) {
        model_truth(model, tokens, TOKENS, moved, NULL);
        for (uint32_t i = 0; i < vocabulary; i++) row[i] = (float)moved[(TOKENS - 1) * (size_t)vocabulary + i];
        double error = error_of(row, last, vocabulary);
        if (isfinite(error)) sum += error / (double)PASSES;
    }
    model->noise = NULL;
    return sum;
}

static void begin(struct damaged *damaged, const struct subject *subject) {
    static struct script script;
    static const char *const options[] = {"RF_HOST_BUDGET=128MiB", NULL};
    *damaged = (struct damaged){0};
    gpu_make_runtime(&damaged->gpu, options);
    damaged->runtime = damaged->gpu.runtime;
    snprintf(damaged->path, sizeof damaged->path, "%s", scratch_path("damaged.gguf"));
    if (subject->scripted) {
        script_begin(&script, true);
        script.merges[0] = "a b";
        script_write(&script, damaged->path);
    }
    damaged->bytes =
        read_bytes(subject->scripted ? damaged->path : TEST_DATA "/oracle/llama-q4_0.gguf", &damaged->size);
    write_bytes(damaged->path, damaged->bytes, damaged->size);
    struct rf_gguf *gguf = NULL;
    RF_ASSERT_OK(rf_gguf_open(damaged->path, &gguf));
    damaged->header = damaged->size;
    for (size_t i = 0; i < rf_gguf_tensor_count(gguf); i++)
        damaged->header = RF_MIN(damaged->header, (size_t)rf_gguf_tensor_at(gguf, i)->offset);
    rf_gguf_close(&gguf);
    RF_ASSERT_OK(try_model(damaged, damaged->whole, &damaged->vocabulary));
    RF_ASSERT(damaged->vocabulary <= ROW_MAX);
    struct model model;
    double truth[TOKENS * ROW_MAX];
    model_open(&model, damaged->path);
    model_truth(&model, tokens, TOKENS, truth, NULL);
    damaged->noise = noise_of(&model, truth + (size_t)(TOKENS - 1) * damaged->vocabulary, damaged->vocabulary);
    model_close(&model);
    damaged->peak_kib = peak_kib();
}

static void end(struct damaged *damaged) {
    RF_NOTE("%u refused, %u the same, %u other models, %u without numbers, %u with a huge weight, %u that rounding "
            "moves far; header of %zu bytes",
            damaged->refused, damaged->same, damaged->other, damaged->none, damaged->huge, damaged->wild,
            damaged->header);
    RF_EXPECT(damaged->wild <= 3 + damaged->other / 10);
    /* What the budget allows, and what a process takes by itself; a sanitizer keeps freed memory for a while. */
    RF_EXPECT(peak_kib() - damaged->peak_kib < 512 * 1024);
    rf_runtime_destroy(&damaged->gpu.runtime);
    free(damaged->bytes);
}

/* Whether a weight became so large that a sum of squares overflows in f32, though not in the plain pass's double. */
static bool has_huge_weight(const struct model *model) {
    for (size_t t = 0; t < rf_gguf_tensor_count(model->gguf); t++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(model->gguf, t);
        for (uint64_t i = 0; tensor->dtype == RF_F32 && i < tensor->elements; i++) {
            float weight;
            memcpy(&weight, (const char *)tensor->data + i * sizeof weight, sizeof weight);
            if (!(fabsf(weight) < 1e15f)) return true;
        }
    }
    return false;
}

static void look(struct damaged *damaged) {
    float row[ROW_MAX];
    uint32_t vocabulary = 0;
    rf_status status = try_model(damaged, row, &vocabulary);
    if (status) {
        damaged->refused++;
        RF_EXPECT(rf_error_text()[0] != 0 && !strchr(rf_error_text(), '\n'));
        return;
    }
    if (vocabulary == damaged->vocabulary && !memcmp(row, damaged->whole, vocabulary * sizeof *row)) {
        damaged->same++;
        return;
    }
    damaged->other++;
    if (vocabulary > ROW_MAX) return;
    /* A changed byte of a weight may give logits that are not finite: the plain pass then has them too. */
    struct model model;
    double truth[TOKENS * ROW_MAX], *last = truth + (size_t)(TOKENS - 1) * vocabulary;
    bool finite = true;
    model_open(&model, damaged->path);
    model_truth(&model, tokens, TOKENS, truth, NULL);
    for (uint32_t i = 0; i < vocabulary; i++) finite = finite && isfinite(last[i]);
    double error = error_of(row, last, vocabulary), noise;
    bool huge = has_huge_weight(&model);
    if (!finite)
        damaged->none++;
    else if (huge)
        damaged->huge++;
    else if ((noise = noise_of(&model, last, vocabulary)) <= BOUND / 2)
        RF_EXPECT_DOUBLE(error, 0, fmax(BOUND, 16 * (noise - damaged->noise)));
    else
        damaged->wild++;
    RF_EXPECT(!finite || huge || isfinite(error));
    model_close(&model);
}

RF_TEST_LABELLED_CASES(damage, cut_at_every_page, struct subject, subjects) {
    struct damaged damaged;
    begin(&damaged, c);
    unsigned cuts = 0;
    for (size_t size = 0; size < damaged.size; size += STEP, cuts++) {
        RF_TRACE("cut to %zu bytes", size);
        write_bytes(damaged.path, damaged.bytes, size);
        look(&damaged);
    }
    RF_EXPECT_UINT(damaged.refused, cuts);
    end(&damaged);
}

static void flip(struct damaged *damaged, size_t at, unsigned char with) {
    RF_TRACE("byte %zu, 0x%02x, with 0x%02x", at, damaged->bytes[at], with);
    damaged->bytes[at] ^= with;
    write_bytes(damaged->path, damaged->bytes, damaged->size);
    damaged->bytes[at] ^= with;
    look(damaged);
}

static const unsigned char patterns[] = {0xff, 0x01, 0x80};

/* A seeded sample of the header, of the first 4 KiB, and of the whole file. A flipped byte of the header must not
 * give a model with logits that are not finite. */
RF_TEST_LABELLED_CASES(damage, flipped_bytes, struct subject, subjects, .timeout_ms = 600000) {
    struct damaged damaged;
    begin(&damaged, c);
    struct rf_random random = {rf_test_seed()};
    for (int i = 0; i < 300; i++) flip(&damaged, (size_t)rf_random_below(&random, damaged.header), patterns[i % 3]);
    RF_EXPECT(damaged.refused > 0 && damaged.same > 0);
    RF_EXPECT_UINT(damaged.none, 0);
    for (int i = 0; i < 60; i++)
        flip(&damaged, (size_t)rf_random_below(&random, i % 2 ? STEP : damaged.size), patterns[i % 3]);
    end(&damaged);
}

RF_TEST_LABELLED_CASES(damage, every_byte_of_the_header, struct subject, subjects, .tags = "slow",
                       .timeout_ms = 1800000) {
    struct damaged damaged;
    begin(&damaged, c);
    for (size_t at = 0; at < RF_MAX(damaged.header, (size_t)STEP); at += at < STEP ? 1 : 3) {
        for (size_t i = 0; i < RF_COUNT(patterns); i++) flip(&damaged, at, patterns[i]);
        if (at < damaged.header) RF_ASSERT_UINT(damaged.none, 0);
    }
    end(&damaged);
}
