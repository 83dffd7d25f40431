/* Argmax and the sampler: properties of the definition, and the device's token compared with the reference's; they
 * must always be the same. */
#include "../gpu/gpu_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/ref_sampling.h"
#include "ops/gpu_sampling.h"

/* ---- the definition ---- */

/* The known answers that the generator's authors published. */
RF_TEST(sampling, random_words_are_philox) {
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < RF_COUNT(known); i++) {
        uint32_t got[4];
        rf_philox(known[i].key, known[i].counter, got);
        RF_ASSERT_BYTES(got, known[i].want, sizeof got);
    }
    RF_ASSERT_UINT(rf_sampling_random(0, 0), 0xe169c58d6627e8d5);
}

RF_TEST(sampling, weights_are_powers_of_two) {
    struct rf_random random = {rf_test_seed()};
    RF_ASSERT_UINT(rf_sampling_weight(0), UINT64_C(1) << 40);
    for (uint32_t octave = 0; octave <= 40; octave++)
        RF_ASSERT_UINT(rf_sampling_weight(octave << 24), UINT64_C(1) << (40 - octave));
    RF_ASSERT_UINT(rf_sampling_weight(RF_SAMPLING_Y_MAX), 0);
    for (int i = 0; i < 100000; i++) {
        uint32_t y = (uint32_t)rf_random_below(&random, 41u << 24);
        double want = 0x1p40 * exp2(-(double)y * 0x1p-24), got = (double)rf_sampling_weight(y);
        RF_ASSERT(fabs(got - want) <= 1 + 6e-9 * want);
        RF_ASSERT(rf_sampling_weight(y + 1) <= rf_sampling_weight(y));
    }
}

static struct rf_sample_args args_of(const struct rf_sampling *sampling) {
    struct rf_sample_args args = {0};
    const char *wrong = rf_sampling_resolve(sampling, &args);
    if (wrong) RF_FAIL("%s", wrong);
    return args;
}

enum { FEW = 8 };
#define DRAWS 100000

/* How often each of a few tokens is drawn over many counters; the seeds are fixed, so the result is always the
 * same. */
static void frequencies(const struct rf_sampling *sampling, const float *logits, const int32_t *window,
                        size_t window_count, double *share) {
    struct rf_sample_args args = args_of(sampling);
    args.rows = 1, args.columns = FEW, args.window_count = (uint32_t)window_count;
    uint64_t scratch[FEW];
    for (int i = 0; i < FEW; i++) share[i] = 0;
    for (uint64_t counter = 0; counter < DRAWS; counter++) {
        int32_t token;
        rf_ref_sample(&token, logits, (uint64_t[]){12345, counter}, window, &args, scratch);
        RF_ASSERT(token >= 0 && token < FEW);
        share[token] += 1.0 / DRAWS;
    }
}
static void expect_shares(const struct rf_sampling *sampling, const double *weights, const float *logits,
                          const int32_t *window, size_t window_count) {
    double share[FEW], sum = 0;
    frequencies(sampling, logits, window, window_count, share);
    for (int i = 0; i < FEW; i++) sum += weights[i];
    for (int i = 0; i < FEW; i++) {
        double p = weights[i] / sum;
        /* five standard deviations */
        RF_ASSERT(fabs(share[i] - p) <= 1e-9 + 5 * sqrt(p * (1 - p) / DRAWS));
    }
}

RF_TEST(sampling, frequencies_follow_the_settings) {
    static const float logits[FEW] = {1, 3, 2, -INFINITY, 3, 0, NAN, -1};
    double e[FEW] = {exp(1), exp(3), exp(2), 0, exp(3), 1, 0, exp(-1)};
    expect_shares(&(struct rf_sampling){.temperature = 1}, e, logits, NULL, 0);
    double half[FEW], k3[FEW] = {0, exp(3), exp(2), 0, exp(3), 0, 0, 0};
    for (int i = 0; i < FEW; i++) half[i] = e[i] * e[i];
    expect_shares(&(struct rf_sampling){.temperature = 0.5f}, half, logits, NULL, 0);
    expect_shares(&(struct rf_sampling){.temperature = 1, .top_k = 3}, k3, logits, NULL, 0);
    /* The two best have 40.2 of 51.6, 0.778: 0.77 keeps both, 0.79 the third too, 0.3 only the first of two
     * equals. */
    double p2[FEW] = {0, exp(3), 0, 0, exp(3), 0, 0, 0}, p1[FEW] = {0, 1, 0, 0, 0, 0, 0, 0};
    expect_shares(&(struct rf_sampling){.temperature = 1, .top_p = 0.77f}, p2, logits, NULL, 0);
    expect_shares(&(struct rf_sampling){.temperature = 1, .top_p = 0.79f}, k3, logits, NULL, 0);
    expect_shares(&(struct rf_sampling){.temperature = 1, .top_p = 0.3f}, p1, logits, NULL, 0);
    expect_shares(&(struct rf_sampling){.temperature = 1, .min_p = 0.3f}, k3, logits, NULL, 0);
    /* With the temperature after the choice, the same three are kept, but flatter; before it, more than these three
     * are kept. */
    double last[FEW] = {0, exp(0.75), exp(0.5), 0, exp(0.75), 0, 0, 0};
    expect_shares(&(struct rf_sampling){.temperature = 4, .min_p = 0.3f, .temperature_last = true}, last, logits,
                  NULL, 0);
    double first[FEW] = {exp(0.25), exp(0.75), exp(0.5), 0, exp(0.75), 1, 0, exp(-0.25)};
    expect_shares(&(struct rf_sampling){.temperature = 4, .min_p = 0.3f}, first, logits, NULL, 0);
    static const int32_t window[] = {1, 1, 7, 100, -4};
    double less[FEW] = {exp(1), exp(1.5), exp(2), 0, exp(3), 1, 0, exp(-2)};
    expect_shares(&(struct rf_sampling){.temperature = 1, .penalty = 2}, less, logits, window, RF_COUNT(window));
    /* Token 1 occurs twice in the window, token 7 once. */
    double present[FEW] = {exp(1), exp(2.5), exp(2), 0, exp(3), 1, 0, exp(-1.5)};
    expect_shares(&(struct rf_sampling){.temperature = 1, .presence = 0.5f}, present, logits, window,
                  RF_COUNT(window));
    double frequent[FEW] = {exp(1), exp(2), exp(2), 0, exp(3), 1, 0, exp(-1.5)};
    expect_shares(&(struct rf_sampling){.temperature = 1, .frequency = 0.5f}, frequent, logits, window,
                  RF_COUNT(window));
    double all[FEW] = {exp(1), exp(1.5 - 0.25 + 2 * 0.5), exp(2), 0, exp(3), 1, 0, exp(-2 - 0.25 + 0.5)};
    expect_shares(&(struct rf_sampling){.temperature = 1, .penalty = 2, .presence = 0.25f, .frequency = -0.5f}, all,
                  logits, window, RF_COUNT(window));
}

RF_TEST(sampling, biases_and_the_mask_change_the_choice) {
    static const float logits[FEW] = {1, 3, 2, -INFINITY, 3, 0, NAN, -1};
    static const struct rf_sample_bias biases[] = {{5, 3.5f}, {3, 100}, {-1, 100}, {FEW, 100}, {6, 100}};
    uint64_t scratch[FEW];
    struct rf_sample_args args = args_of(&(struct rf_sampling){.temperature = 0});
    args.rows = 1, args.columns = FEW;
    static const struct {
        uint32_t bias_count, allowed;
        int32_t token;
    } cases[] = {{0, 0xff, 1}, {5, 0xff, 5}, {0, 0xfd, 4},  {5, 0xdf, 1}, {0, 0xed, 2},
                 {0, 0x80, 7}, {0, 0x08, 3}, {0, 0x40, -1}, {5, 0x00, -1}};
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        int32_t token = -7;
        struct rf_sample_rows rows = {.logits = logits, .biases = biases, .allowed = &cases[i].allowed};
        RF_TRACE("case %zu", i);
        args.bias_count = cases[i].bias_count;
        rf_ref_sample_rows(&token, &rows, &args, scratch);
        RF_EXPECT_INT(token, cases[i].token);
    }
}

RF_TEST(sampling, senseless_settings_are_refused) {
    struct rf_sample_args args = {.rows = 3}, before = args;
    static const struct rf_sampling bad[] = {{.temperature = -1},
                                             {.temperature = NAN},
                                             {.temperature = 1e-45f},
                                             {.temperature = 1, .top_p = -0.5f},
                                             {.temperature = 1, .min_p = 2},
                                             {.temperature = 1, .penalty = INFINITY},
                                             {.temperature = 1, .presence = INFINITY},
                                             {.temperature = 1, .frequency = NAN}};
    for (size_t i = 0; i < RF_COUNT(bad); i++) RF_ASSERT(rf_sampling_resolve(&bad[i], &args) != NULL);
    RF_ASSERT_BYTES(&args, &before, sizeof args);
}

/* ---- the device ---- */

static const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};

static void on_device(const char *const *options, void (*body)(struct gpu *gpu, struct rf_random *random)) {
    struct gpu gpu = {0};
    struct rf_random random = {rf_test_seed() + 14};
    gpu_make_runtime(&gpu, options);
    gpu_open(&gpu, NULL);
    body(&gpu, &random);
    gpu_close(&gpu);
}

/* Logits as a model gives them, or ones that are difficult for a selection. */
enum kind { NORMAL, EQUAL, FEW_VALUES, CLOSE, MASKED, SPECIAL, EMPTY, KINDS };
static void make_logits(struct rf_random *random, enum kind kind, float *logits, uint64_t count) {
    rf_random_normals(random, logits, count, 0, 3);
    for (uint64_t i = 0; i < count; i++) {
        if (kind == EQUAL) logits[i] = -2.5f;
        if (kind == FEW_VALUES) logits[i] = floorf(logits[i]);
        if (kind == CLOSE) logits[i] = 1 + logits[i] * 1e-7f;
        if (kind == MASKED && rf_random_below(random, 3)) logits[i] = -INFINITY;
        if (kind == EMPTY) logits[i] = i % 2 ? -INFINITY : NAN;
    }
    if (kind == SPECIAL) rf_random_specials(random, logits, count, RF_SPECIAL_ALL & ~RF_SPECIAL_INFINITY, 5);
    if (kind == SPECIAL && count > 3) logits[3] = -INFINITY;
    if (kind == SPECIAL && count > 40) logits[37] = logits[11] = INFINITY;
    if (kind == NORMAL && count > 100) logits[count / 2] = 14, logits[count - 1] = 13; /* the best two tokens */
}

struct room {
    struct rf_buffer *logits, *out, *random, *window, *workspace;
    float *host;
    uint64_t *scratch, *seeds;
    int32_t *tokens, *got, *want;
    uint64_t rows, columns, stride, window_count;
};

static struct room make_room(struct gpu *gpu, uint64_t rows, uint64_t columns, uint64_t window_count) {
    struct room room = {
        .rows = rows, .columns = columns, .stride = columns + (rows > 1 ? 3 : 0), .window_count = window_count};
    uint64_t bytes, argmax_bytes;
    RF_ASSERT_OK(rf_gpu_sample_workspace(rows, columns, &bytes));
    RF_ASSERT_OK(rf_gpu_argmax_workspace(rows, columns, &argmax_bytes));
    RF_ASSERT(argmax_bytes <= bytes);
    room.logits = gpu_buffer(gpu, rows * room.stride * 4);
    room.out = gpu_buffer(gpu, rows * 4);
    room.random = gpu_buffer(gpu, rows * 16);
    room.window = gpu_buffer(gpu, rows * window_count * 4);
    room.workspace = gpu_buffer(gpu, bytes);
    room.host = malloc(rows * room.stride * 4);
    room.scratch = malloc(columns * 8);
    room.seeds = malloc(rows * 16);
    room.tokens = malloc(rows * window_count * 4);
    room.got = malloc(rows * 4);
    room.want = malloc(rows * 4);
    return room;
}
static void drop_room(struct room *room) {
    struct rf_buffer **all[] = {&room->logits, &room->out, &room->random, &room->window, &room->workspace};
    for (size_t i = 0; i < RF_COUNT(all); i++) RF_ASSERT_OK(rf_buffer_destroy(all[i]));
    void *memory[] = {room->host, room->scratch, room->seeds, room->tokens, room->got, room->want};
    for (size_t i = 0; i < RF_COUNT(memory); i++) free(memory[i]);
}

static void fill_room(struct gpu *gpu, struct rf_random *random, struct room *room, enum kind kind) {
    for (uint64_t r = 0; r < room->rows; r++) {
        make_logits(random, kind, room->host + r * room->stride, room->columns);
        for (uint64_t i = room->columns; i < room->stride; i++) room->host[r * room->stride + i] = 1e9f;
        room->seeds[2 * r] = rf_random_next(random);
        room->seeds[2 * r + 1] = rf_random_next(random);
        for (uint64_t i = 0; i < room->window_count; i++)
            room->tokens[r * room->window_count + i] = (int32_t)rf_random_below(random, room->columns + 2) - 1;
    }
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room->logits, 0, room->host, room->rows * room->stride * 4));
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room->random, 0, room->seeds, room->rows * 16));
    RF_ASSERT_OK(
        rf_copy_to_device_safe(gpu->queue, room->window, 0, room->tokens, room->rows * room->window_count * 4));
}

static void check_sample(struct gpu *gpu, struct room *room, const struct rf_sampling *sampling, const char *what) {
    struct rf_gpu_sample sample = {.args = args_of(sampling),
                                   .out.buffer = room->out,
                                   .logits.buffer = room->logits,
                                   .random.buffer = room->random,
                                   .window.buffer = room->window,
                                   .workspace.buffer = room->workspace};
    sample.args.rows = room->rows, sample.args.columns = (uint32_t)room->columns;
    sample.args.row_stride = room->stride;
    sample.args.window_count = (uint32_t)room->window_count, sample.args.window_stride = room->window_count;
    rf_ref_sample(room->want, room->host, room->seeds, room->tokens, &sample.args, room->scratch);
    RF_ASSERT_OK(rf_gpu_sample(gpu->queue, &sample));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, room->got, room->out, 0, room->rows * 4));
    for (uint64_t r = 0; r < room->rows; r++)
        if (room->got[r] != room->want[r])
            RF_FAIL("%s: row %llu of %llu x %llu: token %d, should be %d", what, (unsigned long long)r,
                    (unsigned long long)room->rows, (unsigned long long)room->columns, room->got[r], room->want[r]);
}
static void check_argmax(struct gpu *gpu, struct room *room) {
    struct rf_argmax_args args = {.rows = room->rows, .columns = room->columns, .row_stride = room->stride};
    struct rf_operand out = {room->out, 0}, values = {room->logits, 0}, workspace = {room->workspace, 0};
    RF_ASSERT_OK(rf_gpu_argmax(gpu->queue, out, values, workspace, &args));
    rf_ref_argmax(room->want, room->host, &args);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, room->got, room->out, 0, room->rows * 4));
    for (uint64_t r = 0; r < room->rows; r++) RF_ASSERT_INT(room->got[r], room->want[r]);
}

static const struct rf_sampling settings[] = {
    {.temperature = 0},
    {.temperature = 0, .penalty = 1.7f},
    {.temperature = 1},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .penalty = 1.1f},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .temperature_last = true},
    {.temperature = 1.5f, .top_k = 1},
    {.temperature = 1.5f, .top_k = 7},
    {.temperature = 2, .top_k = 1000},
    {.temperature = 1, .top_k = UINT32_MAX, .top_p = 0.5f},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 0.3f, .top_p = 1e-6f},
    {.temperature = 30, .top_p = 0.999f, .penalty = 0.5f},
    {.temperature = 5, .min_p = 0.2f},
    {.temperature = 0.004f, .top_p = 0.9f, .temperature_last = true},
    {.temperature = 0, .presence = 2.5f},
    {.temperature = 0.9f, .top_k = 50, .penalty = 1.2f, .presence = -0.3f, .frequency = 0.7f},
};

/* Every setting with every kind of logits: with every small shape or, if sparse, with one of the shapes and none of
 * the longest rows. */
static void tokens_of(struct gpu *gpu, struct rf_random *random, bool sparse) {
    static const struct {
        uint64_t rows, columns, window;
    } shapes[] = {{3, 1, 1}, {2, 2, 3}, {3, 37, 5}, {1, 1000, 64}, {2, 1024, 300}, {2, 5003, 64}, {1, 32000, 64}};
    for (size_t i = 0; i < RF_COUNT(shapes) - sparse; i++) {
        struct room room = make_room(gpu, shapes[i].rows, shapes[i].columns, shapes[i].window);
        for (int kind = 0; kind < KINDS; kind++) {
            fill_room(gpu, random, &room, (enum kind)kind);
            check_argmax(gpu, &room);
            for (size_t s = 0; s < RF_COUNT(settings); s++) {
                if (sparse && (s + (size_t)kind + i) % (RF_COUNT(shapes) - 1)) continue;
                if (!sparse && shapes[i].columns > 1024 && (s + (size_t)kind) % 4)
                    continue; /* small shapes test the rest */
                char what[64];
                snprintf(what, sizeof what, "logits of kind %d, setting %zu", kind, s);
                check_sample(gpu, &room, &settings[s], what);
            }
        }
        drop_room(&room);
    }
}
static void tokens(struct gpu *gpu, struct rf_random *random) {
    tokens_of(gpu, random, false);
}
static void sparse_tokens(struct gpu *gpu, struct rf_random *random) {
    tokens_of(gpu, random, true);
}

/* A vocabulary as large as models have, and the chunks of an even larger one. */
static void large(struct gpu *gpu, struct rf_random *random) {
    static const uint64_t columns[] = {128256, 300007};
    for (size_t i = 0; i < RF_COUNT(columns); i++) {
        struct room room = make_room(gpu, 1, columns[i], 256);
        for (int kind = 0; kind < 3; kind++) {
            fill_room(gpu, random, &room, (enum kind)kind);
            check_argmax(gpu, &room);
            check_sample(gpu, &room, &settings[3], "large, all settings");
            check_sample(gpu, &room, &settings[9], "large, top-p alone");
            check_sample(gpu, &room, &settings[7], "large, top-k alone");
        }
        drop_room(&room);
    }
}

/* The same logits with one counter after another. */
static void many(struct gpu *gpu, struct rf_random *random) {
    struct room room = make_room(gpu, 12, 61, 4);
    for (int round = 0; round < 3; round++) {
        fill_room(gpu, random, &room, round ? CLOSE : NORMAL);
        for (uint64_t r = 1; r < room.rows; r++) {
            memcpy(room.host + r * room.stride, room.host, room.columns * 4);
            room.seeds[2 * r] = room.seeds[0];
            room.seeds[2 * r + 1] = room.seeds[1] + r;
        }
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room.logits, 0, room.host, room.rows * room.stride * 4));
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room.random, 0, room.seeds, room.rows * 16));
        for (size_t s = 2; s < RF_COUNT(settings); s++) check_sample(gpu, &room, &settings[s], "many counters");
    }
    drop_room(&room);
}

RF_TEST(sampling, tokens_are_the_references, .gpu = true, .timeout_ms = 1500000) {
    on_device(guarded, tokens);
}
RF_TEST(sampling, tokens_are_the_references_at_wave_64, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx942,shuffle=7");
    on_device(guarded, sparse_tokens);
}
RF_TEST(sampling, tokens_are_the_references_at_wave_64_long, .timeout_ms = 1500000, .tags = "slow") {
    gpu_need_simulated("arch=gfx942,shuffle=7");
    on_device(guarded, tokens);
}
RF_TEST(sampling, large_vocabularies_are_the_references, .gpu = true, .timeout_ms = 1500000) {
    on_device(NULL, large);
}
RF_TEST(sampling, many_counters_are_the_references, .gpu = true, .timeout_ms = 1500000) {
    on_device(NULL, many);
}

/* ---- biases and masks ---- */

/* Of each row others, and other settings where they are in memory. */
static void changed(struct gpu *gpu, struct rf_random *random) {
    static const struct {
        uint64_t rows, columns, biases;
    } shapes[] = {{1, 1, 1}, {3, 31, 4}, {2, 33, 33}, {2, 1025, 300}, {3, 5003, 1000}};
    for (size_t i = 0; i < RF_COUNT(shapes); i++) {
        uint64_t n = shapes[i].rows, columns = shapes[i].columns, count = shapes[i].biases;
        uint64_t words = rf_ceil_div(columns, 32), bias_stride = count + 1, allowed_stride = words + 2;
        struct room room = make_room(gpu, n, columns, 12);
        struct rf_sample_bias *biases = malloc(n * bias_stride * sizeof *biases);
        uint32_t *allowed = malloc(n * allowed_stride * sizeof *allowed);
        struct rf_sample_settings *own = malloc(n * sizeof *own);
        struct rf_buffer *of_biases = gpu_buffer(gpu, n * bias_stride * sizeof *biases),
                         *of_allowed = gpu_buffer(gpu, n * allowed_stride * sizeof *allowed),
                         *of_settings = gpu_buffer(gpu, n * sizeof *own);
        for (int kind = 0; kind < KINDS; kind++) {
            fill_room(gpu, random, &room, (enum kind)kind);
            for (uint64_t r = 0; r < n; r++)
                for (uint64_t b = 0; b < bias_stride; b++) /* some behind the last token */
                    biases[r * bias_stride + b] = (struct rf_sample_bias){(int32_t)(b * (columns / count + 1)),
                                                                          (float)rf_random_normal(random) * 4};
            for (uint64_t w = 0; w < n * allowed_stride; w++)
                allowed[w] = (uint32_t)(rf_random_next(random) | (kind % 2 ? rf_random_next(random) : 0));
            for (size_t s = 0; s < RF_COUNT(settings); s++) {
                bool by_row = (s + i) % 2;
                struct rf_gpu_sample sample = {.args = args_of(&settings[s]),
                                               .out.buffer = room.out,
                                               .logits.buffer = room.logits,
                                               .random.buffer = room.random,
                                               .window.buffer = room.window,
                                               .biases.buffer = of_biases,
                                               .workspace.buffer = room.workspace};
                sample.args.rows = n, sample.args.columns = (uint32_t)columns, sample.args.row_stride = room.stride;
                sample.args.window_count = 12, sample.args.window_stride = 12;
                sample.args.bias_count = (uint32_t)count, sample.args.bias_stride = bias_stride;
                sample.args.allowed_stride = allowed_stride;
                sample.args.strict = s % 3 == 0;
                for (uint64_t r = 0; r < n; r++) {
                    struct rf_sample_args args = args_of(&settings[(s + r) % RF_COUNT(settings)]);
                    args.window_count = (uint32_t)rf_random_below(random, 14);
                    args.bias_count = (uint32_t)rf_random_below(random, count + 2);
                    own[r] = rf_sampling_settings(&args);
                }
                if ((s + (size_t)kind) % 4) sample.allowed.buffer = of_allowed;
                if (by_row) sample.settings.buffer = of_settings;
                RF_ASSERT_OK(
                    rf_copy_to_device_safe(gpu->queue, of_biases, 0, biases, n * bias_stride * sizeof *biases));
                RF_ASSERT_OK(
                    rf_copy_to_device_safe(gpu->queue, of_allowed, 0, allowed, n * allowed_stride * sizeof *allowed));
                RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, of_settings, 0, own, n * sizeof *own));
                struct rf_sample_rows rows = {.logits = room.host,
                                              .random = room.seeds,
                                              .window = room.tokens,
                                              .biases = biases,
                                              .allowed = sample.allowed.buffer ? allowed : NULL,
                                              .settings = by_row ? own : NULL};
                rf_ref_sample_rows(room.want, &rows, &sample.args, room.scratch);
                RF_ASSERT_OK(rf_gpu_sample(gpu->queue, &sample));
                RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, room.got, room.out, 0, n * 4));
                for (uint64_t r = 0; r < n; r++)
                    if (room.got[r] != room.want[r])
                        RF_FAIL("kind %d, setting %zu, row %llu of %llu x %llu: token %d, should be %d", kind, s,
                                (unsigned long long)r, (unsigned long long)n, (unsigned long long)columns,
                                room.got[r], room.want[r]);
            }
        }
        RF_ASSERT_OK(rf_buffer_destroy(&of_biases));
        RF_ASSERT_OK(rf_buffer_destroy(&of_allowed));
        RF_ASSERT_OK(rf_buffer_destroy(&of_settings));
        free(biases);
        free(allowed);
        free(own);
        drop_room(&room);
    }
}
RF_TEST(sampling, biases_and_masks_are_the_references, .gpu = true, .timeout_ms = 1500000) {
    on_device(guarded, changed);
}
RF_TEST(sampling, biases_and_masks_are_the_references_at_wave_64, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx942,shuffle=5");
    on_device(guarded, changed);
}

/* ---- settings in memory, logits that are no numbers ---- */

/* A token drawn with settings that the device reads is the one drawn with the same settings as arguments, for every
 * row's own settings in one launch. */
static void by_row(struct gpu *gpu, struct rf_random *random) {
    enum { ROWS = 2 * RF_COUNT(settings), COLUMNS = 1500, WINDOW = 7 };
    struct room room = make_room(gpu, ROWS, COLUMNS, WINDOW);
    struct rf_sample_settings rows[ROWS];
    struct rf_buffer *buffer = gpu_buffer(gpu, sizeof rows);
    for (int greedy = 0; greedy < 2; greedy++) {
        fill_room(gpu, random, &room, NORMAL);
        struct rf_gpu_sample sample = {.args = {.rows = ROWS,
                                                .columns = COLUMNS,
                                                .row_stride = room.stride,
                                                .window_count = WINDOW,
                                                .window_stride = WINDOW,
                                                .top_k = 1, /* these two only say that there are such steps */
                                                .top_p = 1,
                                                .greedy = greedy != 0},
                                       .out.buffer = room.out,
                                       .logits.buffer = room.logits,
                                       .random.buffer = room.random,
                                       .window.buffer = room.window,
                                       .workspace.buffer = room.workspace,
                                       .settings.buffer = buffer};
        for (uint64_t r = 0; r < ROWS; r++) {
            struct rf_sample_args own = args_of(&settings[r % RF_COUNT(settings)]);
            own.window_count = own.penalty == 1 ? 0 : (uint32_t)(r % (WINDOW + 3)); /* more than there are, too */
            rows[r] = rf_sampling_settings(&own);
            own.rows = 1, own.columns = COLUMNS, own.greedy = greedy != 0;
            own.window_count = RF_MIN(own.window_count, (uint32_t)WINDOW);
            rf_ref_sample(&room.want[r], room.host + r * room.stride, room.seeds + 2 * r, room.tokens + r * WINDOW,
                          &own, room.scratch);
        }
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, buffer, 0, rows, sizeof rows));
        RF_ASSERT_OK(rf_gpu_sample(gpu->queue, &sample));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, room.got, room.out, 0, ROWS * 4));
        RF_ASSERT_BYTES(room.got, room.want, ROWS * 4);
    }
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    drop_room(&room);
}
RF_TEST(sampling, settings_of_each_row, .gpu = true, .timeout_ms = 600000) {
    on_device(guarded, by_row);
}
RF_TEST(sampling, settings_of_each_row_at_wave_64, .timeout_ms = 600000) {
    gpu_need_simulated("arch=gfx942,shuffle=3");
    on_device(guarded, by_row);
}

/* One NaN or +inf, wherever it is, and also where a penalty applies to it, gives -1 where that is asked for; -inf is
 * a token that is never drawn, unless there is nothing else. */
static void no_numbers(struct gpu *gpu, struct rf_random *random) {
    enum { COLUMNS = 2100 };
    static const struct rf_sampling how[] = {{.temperature = 0},
                                             {.temperature = 0, .penalty = 2},
                                             {.temperature = 1, .penalty = 2},
                                             {.temperature = 1, .top_k = 3, .top_p = 0.9f, .min_p = 0.1f}};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct room room = make_room(gpu, 1, COLUMNS, 3);
    for (size_t s = 0; s < RF_COUNT(how); s++)
        for (size_t b = 0; b < RF_COUNT(bad); b++)
            for (uint64_t at = 0; at < COLUMNS; at += 233) {
                fill_room(gpu, random, &room, NORMAL);
                room.host[at] = bad[b];
                room.tokens[0] = (int32_t)at;
                struct rf_gpu_sample sample = {.args = args_of(&how[s]),
                                               .out.buffer = room.out,
                                               .logits.buffer = room.logits,
                                               .random.buffer = room.random,
                                               .window.buffer = room.window,
                                               .workspace.buffer = room.workspace};
                sample.args.rows = 1, sample.args.columns = COLUMNS, sample.args.row_stride = COLUMNS;
                sample.args.window_count = 3, sample.args.window_stride = 3;
                for (int whole = 0; whole < 2; whole++) { /* one, then all */
                    for (uint64_t i = 0; whole && i < COLUMNS; i++) room.host[i] = bad[b];
                    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room.logits, 0, room.host, COLUMNS * 4));
                    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, room.window, 0, room.tokens, 12));
                    for (uint32_t strict = 0; strict < 2; strict++) {
                        sample.args.strict = strict;
                        rf_ref_sample(room.want, room.host, room.seeds, room.tokens, &sample.args, room.scratch);
                        if (strict && (whole || b < 2)) RF_ASSERT_INT(room.want[0], -1);
                        if (!whole && (!strict || b == 2)) RF_ASSERT(room.want[0] >= 0);
                        if (b == 2 && !whole) RF_ASSERT(room.want[0] != (int32_t)at);
                        RF_ASSERT_OK(rf_gpu_sample(gpu->queue, &sample));
                        RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, room.got, room.out, 0, 4));
                        RF_ASSERT_INT(room.got[0], room.want[0]);
                    }
                }
            }
    drop_room(&room);
}
RF_TEST(sampling, logits_that_are_no_numbers, .gpu = true, .timeout_ms = 600000) {
    on_device(NULL, no_numbers);
}

/* ---- the next token's inputs ---- */

/* What a session sees over many tokens: the window always holds the last tokens, the ring the last draws, and the
 * rest counts. */
RF_TEST(advance, keeps_the_last_tokens) {
    enum { SLOTS = 4, COLUMNS = 6, COUNT = 5, STEPS = 40, FIRST = 3 };
    int32_t history[FIRST + STEPS] = {7, 8, 9}, window[COLUMNS], ring[SLOTS][2];
    int32_t token = 9, position = FIRST - 1, length = FIRST;
    uint64_t seed[2] = {77, FIRST};
    struct rf_sample_settings set = {.window_count = COUNT};
    struct rf_advance_args args = {.rows = 1, .window_stride = COLUMNS, .window_columns = COLUMNS, .slots = SLOTS};
    struct rf_random random = {rf_test_seed()};
    for (int i = 0; i < COLUMNS; i++) window[i] = -1;
    for (int i = 0; i < FIRST; i++) window[i % COUNT] = history[i];
    for (int step = 0; step < STEPS; step++) {
        int32_t drawn = (int32_t)rf_random_below(&random, 100000) + 100;
        struct rf_ref_advance on = {.tokens = &token,
                                    .positions = &position,
                                    .lengths = &length,
                                    .random = seed,
                                    .window = window,
                                    .ring = &ring[0][0],
                                    .drawn = &drawn,
                                    .settings = &set};
        rf_ref_advance(&on, &args);
        int held = FIRST + step + 1;
        history[held - 1] = drawn;
        RF_ASSERT(token == drawn && position == held - 1 && length == held);
        RF_ASSERT(seed[0] == 77 && seed[1] == (uint64_t)held);
        RF_ASSERT(ring[(held - 1) % SLOTS][0] == held - 1 && ring[(held - 1) % SLOTS][1] == drawn);
        for (int i = 0; i < COUNT && i < held; i++) {
            bool there = false;
            for (int k = 0; k < COUNT; k++) there |= window[k] == history[held - 1 - i];
            RF_ASSERT(there);
        }
        RF_ASSERT_INT(window[COUNT], -1);
    }
}

#define REFUSED(call, part)                                                                                          \
    do {                                                                                                             \
        RF_ASSERT_STATUS(call, RF_E_INVALID);                                                                        \
        RF_ASSERT_CONTAINS(rf_error_text(), part);                                                                   \
    } while (0)

static void refusals(struct gpu *gpu, struct rf_random *random) {
    struct room room = make_room(gpu, 1, 64, 1);
    fill_room(gpu, random, &room, NORMAL);
    struct rf_gpu_sample sample = {.args = args_of(&settings[3]),
                                   .out.buffer = room.out,
                                   .logits.buffer = room.logits,
                                   .workspace.buffer = room.workspace};
    struct rf_sample_args *args = &sample.args;
    args->rows = 1, args->columns = 64, args->row_stride = 64;
    REFUSED(rf_gpu_sample(gpu->queue, NULL), "sample");
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "sample: no buffer for random");
    sample.random.buffer = room.random;
    RF_ASSERT_OK(rf_gpu_sample(gpu->queue, &sample));
    args->window_count = 5, args->window_stride = 5;
    sample.window.buffer = room.window;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "sample: window takes 20 bytes");
    args->window_count = 0;
    args->rows = 2;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "sample: out takes 8 bytes");
    args->rows = 1, args->columns = RF_SAMPLING_COLUMNS_MAX + 1;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "4194305");
    args->columns = 64, sample.workspace.offset_bytes = 4;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "workspace is at an address");
    sample.workspace.offset_bytes = 8;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "workspace takes");
    sample.workspace.offset_bytes = 0, sample.out.buffer = room.logits;
    REFUSED(rf_gpu_sample(gpu->queue, &sample), "out overlaps logits");
    struct rf_operand none = {0};
    struct rf_argmax_args most = {.rows = 1, .columns = 0};
    REFUSED(rf_gpu_argmax(gpu->queue, none, none, none, &most), "argmax: 1 rows of 0");
    REFUSED(rf_gpu_argmax(gpu->queue, none, none, none, NULL), "argmax");
    most.columns = 64;
    REFUSED(rf_gpu_argmax(gpu->queue, none, none, none, &most), "argmax: no buffer for out");
    drop_room(&room);
}
RF_TEST(sampling, bad_arguments_are_refused_with_a_reason, .gpu = true) {
    on_device(NULL, refusals);
}
