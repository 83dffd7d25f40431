/* The ops of a transformer besides products and attention, on the device, compared with the scalar references: odd
 * shapes, strides, misaligned starts, special values, positions and pages that must be left out, both wave sizes; and
 * what must be refused. */
#include "../gpu/gpu_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/reference.h"
#include "cpu/ref_cache.h"
#include "ops/gpu_cache.h"
#include "ops/gpu_elementwise.h"
#include "ops/gpu_move.h"
#include "ops/gpu_norm.h"

static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
enum { TYPES = 3 };

/* The error of rounding one result to a type, and what f32 arithmetic before it may add. */
static double step_of(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 2e-6 : dtype == RF_F16 ? 1e-3 : 8e-3;
}

/* ---- an array on both sides ---- */

struct array {
    struct rf_buffer *buffer;
    char *host;           /* the device's contents, or what they should be */
    uint64_t bytes, skip; /* the array begins skip bytes into both */
};

static struct array make_bytes(struct gpu *gpu, uint64_t bytes, uint64_t skip) {
    struct array array = {.bytes = bytes + skip, .skip = skip};
    array.buffer = gpu_buffer(gpu, array.bytes);
    array.host = malloc(array.bytes);
    memset(array.host, 0x5a, array.bytes);
    return array;
}
static void upload(struct gpu *gpu, struct array *array) {
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, array->buffer, 0, array->host, array->bytes));
}
static void *data(const struct array *array) {
    return array->host + array->skip;
}
static struct rf_operand operand(const struct array *array) {
    return (struct rf_operand){array->buffer, array->skip};
}
static void drop(struct array *array) {
    if (array->buffer) RF_ASSERT_OK(rf_buffer_destroy(&array->buffer));
    free(array->host);
}

/* An array of random numbers; skip, in elements, makes it misaligned. */
static struct array make(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t count,
                         uint64_t skip) {
    struct array array = make_bytes(gpu, count * rf_dtype_bytes(dtype), skip * rf_dtype_bytes(dtype));
    for (uint64_t i = 0; i < count; i++) rf_element_set(dtype, data(&array), i, rf_random_normal(random) * 2);
    upload(gpu, &array);
    return array;
}
/* An output with a pattern that must stay wherever nothing is written. */
static struct array make_out(struct gpu *gpu, enum rf_dtype dtype, uint64_t count, uint64_t skip) {
    struct array array = make_bytes(gpu, count * rf_dtype_bytes(dtype), skip * rf_dtype_bytes(dtype));
    upload(gpu, &array);
    return array;
}

/* Compares the whole array of the device with the host's, the bytes before its start too. */
static void check(struct gpu *gpu, const struct array *array, enum rf_dtype dtype, double absolute, double relative) {
    uint64_t count = (array->bytes - array->skip) / rf_dtype_bytes(dtype);
    char *raw = malloc(array->bytes);
    float *got = malloc(count * sizeof *got), *want = malloc(count * sizeof *want);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, raw, array->buffer, 0, array->bytes));
    RF_ASSERT_BYTES(raw, array->host, array->skip);
    for (uint64_t i = 0; i < count; i++) {
        got[i] = (float)rf_element_get(dtype, raw + array->skip, i);
        want[i] = (float)rf_element_get(dtype, data(array), i);
    }
    RF_ASSERT_FLOATS(got, want, count, absolute, relative);
    free(raw);
    free(got);
    free(want);
}
static void check_bytes(struct gpu *gpu, const struct array *array) {
    char *raw = malloc(array->bytes);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, raw, array->buffer, 0, array->bytes));
    RF_ASSERT_BYTES(raw, array->host, array->bytes);
    free(raw);
}

/* ---- norms and softmax ---- */

static const struct {
    uint64_t rows, columns;
} row_shapes[] = {{1, 1}, {3, 2}, {5, 7}, {9, 33}, {4, 512}, {3, 1021}, {2, 2560}, {2, 4096}, {1, 8200}, {1, 33003}};

static void norms(struct gpu *gpu, struct rf_random *random) {
    for (size_t i = 0; i < RF_COUNT(row_shapes); i++)
        for (int t = 0; t < TYPES; t++) {
            uint64_t rows = row_shapes[i].rows, columns = row_shapes[i].columns, count = rows * columns, skip = i % 3;
            enum rf_dtype dtype = types[t];
            bool plain = i % 4 == 3;
            struct array in = make(gpu, random, dtype, count, skip), b = make(gpu, random, dtype, count, 0);
            struct array weight = make(gpu, random, RF_F32, columns, 0), bias = make(gpu, random, RF_F32, columns, 0);
            struct array out = make_out(gpu, dtype, count, skip), sum = make_out(gpu, dtype, count, 0);
            /* Short rows get a spread: where a few numbers are nearly equal, their difference is rounding alone. */
            for (uint64_t k = 0; columns < 8 && k < count; k++)
                rf_element_set(dtype, data(&in), k,
                               rf_element_get(dtype, data(&in), k) + (k % columns % 2 ? -12 : 12));
            for (uint64_t k = 0; k < columns; k++) /* a row far from zero: the variance must not cancel */
                rf_element_set(dtype, data(&in), k, rf_element_get(dtype, data(&in), k) + 30);
            upload(gpu, &in);
            struct rf_norm_args args = {.rows = rows, .columns = columns, .eps = 1e-5f};
            struct rf_operand none = {0}, at_weight = plain ? none : operand(&weight),
                              at_bias = plain ? none : operand(&bias);
            const float *w = plain ? NULL : data(&weight), *c = plain ? NULL : data(&bias);
            RF_ASSERT_OK(
                rf_gpu_layer_norm(gpu->queue, dtype, operand(&out), operand(&in), at_weight, at_bias, &args));
            rf_ref_layer_norm(dtype, data(&out), data(&in), w, c, &args);
            check(gpu, &out, dtype, dtype == RF_F32 ? 3e-5 : step_of(dtype), step_of(dtype));
            RF_ASSERT_OK(rf_gpu_add_rms_norm(gpu->queue, dtype, operand(&sum), operand(&out), operand(&in),
                                             operand(&b), at_weight, &args));
            rf_ref_add_rms_norm(dtype, data(&sum), data(&out), data(&in), data(&b), w, &args);
            check_bytes(gpu, &sum);
            check(gpu, &out, dtype, 1e-6, 4 * step_of(dtype));
            /* In place: sum over a, and the norm over its input. */
            RF_ASSERT_OK(rf_gpu_add_rms_norm(gpu->queue, dtype, operand(&in), operand(&out), operand(&in),
                                             operand(&b), at_weight, &args));
            check(gpu, &out, dtype, 1e-6, 4 * step_of(dtype));
            memcpy(data(&in), data(&sum), count * rf_dtype_bytes(dtype));
            check_bytes(gpu, &in);
            RF_ASSERT_OK(
                rf_gpu_layer_norm(gpu->queue, dtype, operand(&sum), operand(&sum), at_weight, at_bias, &args));
            rf_ref_layer_norm(dtype, data(&sum), data(&sum), w, c, &args);
            check(gpu, &sum, dtype, dtype == RF_F32 ? 3e-5 : step_of(dtype), step_of(dtype));
            struct array *all[] = {&in, &b, &weight, &bias, &out, &sum};
            for (size_t k = 0; k < RF_COUNT(all); k++) drop(all[k]);
        }
}

static void softmax(struct gpu *gpu, struct rf_random *random) {
    static const struct {
        uint64_t batch, heads, rows, columns;
    } shapes[] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 2, 3, 64}, {2, 2, 2, 517}, {1, 1, 2, 4096}, {1, 2, 1, 20011}};
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (int kind = 0; kind < 3; kind++) { /* no mask, f32, f16 */
            enum rf_dtype mask_dtype = kind == 2 ? RF_F16 : RF_F32;
            uint64_t rows = shapes[i].batch * shapes[i].heads * shapes[i].rows, columns = shapes[i].columns;
            uint64_t mask_count = shapes[i].batch * shapes[i].rows * columns;
            struct array in = make(gpu, random, RF_F32, rows * columns, i % 2), out;
            struct array mask = make(gpu, random, mask_dtype, mask_count, 0);
            for (uint64_t k = 0; k < mask_count; k += 3) rf_element_set(mask_dtype, data(&mask), k, -INFINITY);
            if (i) /* a row that is fully masked */
                for (uint64_t k = 0; k < columns; k++) rf_element_set(mask_dtype, data(&mask), k, -INFINITY);
            upload(gpu, &mask);
            out = make_out(gpu, RF_F32, rows * columns, 0);
            struct rf_softmax_args args = {rows, columns, shapes[i].rows, shapes[i].heads, 0.37f, 0};
            struct rf_operand at_mask = kind ? operand(&mask) : (struct rf_operand){0};
            RF_ASSERT_OK(rf_gpu_softmax_mask(gpu->queue, operand(&out), operand(&in), mask_dtype, at_mask, &args));
            rf_ref_softmax_mask(data(&out), data(&in), mask_dtype, kind ? data(&mask) : NULL, &args);
            check(gpu, &out, RF_F32, 1e-7, 1e-5);
            /* in place */
            RF_ASSERT_OK(rf_gpu_softmax_mask(gpu->queue, operand(&in), operand(&in), mask_dtype, at_mask, &args));
            memcpy(data(&in), data(&out), rows * columns * 4);
            check(gpu, &in, RF_F32, 1e-7, 1e-5);
            drop(&in);
            drop(&out);
            drop(&mask);
        }
}

/* ---- activations and products ---- */

static const struct {
    uint64_t rows, columns, out_row, a_row, b_row;
} sheet_shapes[] = {{1, 1, 0, 0, 0},         {1, 4099, 0, 0, 0},  {7, 24, 0, 0, 0},           {5, 13, 13, 26, 26},
                    {3, 256, 256, 512, 512}, {4, 33, 40, 33, 64}, {2, 2050, 2050, 4100, 4100}};

static void activations(struct gpu *gpu, struct rf_random *random) {
    static const float special[] = {0, -0.0f, 1e-30f, 30, -30, 90, -90, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < RF_COUNT(sheet_shapes); i++)
        for (int t = 0; t < TYPES; t++)
            for (int kind = 0; kind < RF_ACTIVATION_COUNT; kind++)
                for (int gated = 0; gated < 2; gated++) {
                    uint64_t rows = sheet_shapes[i].rows, columns = sheet_shapes[i].columns;
                    enum rf_dtype dtype = types[t];
                    uint64_t out_row = sheet_shapes[i].out_row, gate_row = sheet_shapes[i].a_row,
                             up_row = sheet_shapes[i].b_row, skip = i % 2;
                    uint64_t o = out_row ? out_row : columns, g = gate_row ? gate_row : columns,
                             u = up_row ? up_row : columns;
                    struct array gate = make(gpu, random, dtype, (rows - 1) * g + columns, skip);
                    struct array up = make(gpu, random, dtype, (rows - 1) * u + columns, skip);
                    struct array out = make_out(gpu, dtype, (rows - 1) * o + columns, skip);
                    for (size_t k = 0; k < RF_COUNT(special) && columns > 30; k++)
                        rf_element_set(dtype, data(&gate), 3 + k, (double)special[k]);
                    upload(gpu, &gate);
                    struct rf_activation_args args = {rows, columns, o, g, u, (uint32_t)kind, 0};
                    RF_ASSERT_OK(rf_gpu_activation(gpu->queue, dtype, operand(&out), operand(&gate),
                                                   gated ? operand(&up) : (struct rf_operand){0}, &args));
                    rf_ref_activation(dtype, data(&out), data(&gate), gated ? data(&up) : NULL, &args);
                    check(gpu, &out, dtype, 2e-6, 2 * step_of(dtype));
                    drop(&gate);
                    drop(&up);
                    drop(&out);
                }
}

static void products(struct gpu *gpu, struct rf_random *random) {
    for (size_t i = 0; i < RF_COUNT(sheet_shapes); i++)
        for (int t = 0; t < TYPES; t++)
            for (int add = 0; add < 2; add++) {
                uint64_t rows = sheet_shapes[i].rows, columns = sheet_shapes[i].columns, skip = i % 3;
                enum rf_dtype dtype = types[t];
                uint64_t o = sheet_shapes[i].out_row, a_row = sheet_shapes[i].a_row, b_row = sheet_shapes[i].b_row;
                bool strided = o != 0;
                uint64_t c_row = strided ? 0 : columns; /* strided: c is one row for all */
                if (!strided) o = a_row = b_row = columns;
                struct array a = make(gpu, random, dtype, (rows - 1) * a_row + columns, skip);
                struct array b = make(gpu, random, dtype, (rows - 1) * b_row + columns, 0);
                struct array c = make(gpu, random, dtype, (rows - 1) * c_row + columns, skip);
                struct array out = make_out(gpu, dtype, (rows - 1) * o + columns, skip);
                struct rf_multiply_args args = {rows, columns, o, a_row, b_row, c_row};
                RF_ASSERT_OK(rf_gpu_multiply(gpu->queue, dtype, operand(&out), operand(&a), operand(&b),
                                             add ? operand(&c) : (struct rf_operand){0}, &args));
                rf_ref_multiply(dtype, data(&out), data(&a), data(&b), add ? data(&c) : NULL, &args);
                check_bytes(gpu, &out);
                struct array *all[] = {&a, &b, &c, &out};
                for (size_t k = 0; k < RF_COUNT(all); k++) drop(all[k]);
            }
}

/* ---- moving ---- */

static void permutes(struct gpu *gpu, struct rf_random *random) {
    static const uint64_t sizes[][4] = {{1, 1, 1, 1},   {2, 3, 5, 7},  {1, 1, 40, 70},
                                        {3, 1, 33, 65}, {2, 4, 8, 32}, {1, 1, 1, 700}};
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
    for (size_t i = 0; i < RF_COUNT(sizes); i++)
        for (size_t k = 0; k < RF_COUNT(orders); k++)
            for (int pair = 0; pair < TYPES * TYPES; pair++) {
                enum rf_dtype from = types[pair / TYPES], to = types[pair % TYPES];
                struct rf_permute_args args = {0};
                /* The input is dense except for a gap of one element a row; the output is its permutation, with a
                 * gap. */
                uint64_t in_count = 1, out_count = 1;
                for (int d = 3; d >= 0; d--) {
                    args.size[d] = sizes[i][d];
                    args.in_stride[d] = in_count;
                    in_count *= sizes[i][d];
                    if (d == 3) in_count += k % 2;
                }
                for (int d = 3; d >= 0; d--) {
                    args.out_stride[orders[k][d]] = out_count;
                    out_count *= sizes[i][orders[k][d]];
                    if (d == 2) out_count += i % 2;
                }
                struct array in = make(gpu, random, from, in_count, k % 2), out = make_out(gpu, to, out_count, i % 3);
                RF_ASSERT_OK(rf_gpu_permute(gpu->queue, to, operand(&out), from, operand(&in), &args));
                rf_ref_permute(to, data(&out), from, data(&in), &args);
                check_bytes(gpu, &out);
                drop(&in);
                drop(&out);
            }
}

static void concats(struct gpu *gpu, struct rf_random *random) {
    static const struct {
        uint64_t outer, width[RF_CONCAT_INPUTS];
    } shapes[] = {{1, {1}}, {3, {5, 8}}, {2, {64, 0, 4}}, {7, {1, 2, 3, 4}}, {1, {5000, 123}}};
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (int t = 0; t < TYPES; t++) {
            enum rf_dtype dtype = types[t];
            struct rf_concat_args args = {.outer = shapes[i].outer};
            struct array in[RF_CONCAT_INPUTS] = {{0}};
            struct rf_operand operands[RF_CONCAT_INPUTS] = {{0}};
            const void *from[RF_CONCAT_INPUTS] = {0};
            uint64_t width = 0;
            for (int k = 0; k < RF_CONCAT_INPUTS; k++) {
                args.width[k] = shapes[i].width[k];
                width += args.width[k];
                if (!args.width[k]) continue;
                in[k] = make(gpu, random, dtype, args.outer * args.width[k], i % 2);
                operands[k] = operand(&in[k]);
                from[k] = data(&in[k]);
            }
            struct array out = make_out(gpu, dtype, args.outer * width, i % 3);
            RF_ASSERT_OK(rf_gpu_concat(gpu->queue, dtype, operand(&out), operands, &args));
            rf_ref_concat(dtype, data(&out), from, &args);
            check_bytes(gpu, &out);
            for (int k = 0; k < RF_CONCAT_INPUTS; k++) drop(&in[k]);
            drop(&out);
        }
}

/* ---- rotation ---- */

static struct array make_positions(struct gpu *gpu, struct rf_random *random, uint64_t tokens) {
    struct array array = make_bytes(gpu, tokens * 4, 0);
    int32_t *positions = data(&array);
    for (uint64_t i = 0; i < tokens; i++) positions[i] = (int32_t)rf_random_below(random, 200000);
    positions[0] = tokens > 4 ? 0 : 131071;
    if (tokens > 4) positions[1] = -3, positions[2] = INT32_MAX;
    upload(gpu, &array);
    return array;
}
static struct array make_steps(struct gpu *gpu, const struct rf_rope_params *params, float *magnitude) {
    struct array array = make_bytes(gpu, params->rotated / 2 * 8, 0);
    RF_ASSERT(rf_rope_steps(params, data(&array), magnitude));
    upload(gpu, &array);
    return array;
}

static const struct {
    uint64_t tokens, heads, dim;
    uint32_t rotated;
    bool strided;
} rope_shapes[] = {{1, 1, 2, 2, false},    {5, 3, 64, 64, false},   {7, 2, 80, 32, true},
                   {2, 9, 128, 128, true}, {1, 4, 600, 520, false}, {9, 1, 6, 4, true}};

static void ropes(struct gpu *gpu, struct rf_random *random) {
    for (size_t i = 0; i < RF_COUNT(rope_shapes); i++)
        for (int t = 0; t < TYPES; t++)
            for (int halves = 0; halves < 2; halves++) {
                uint64_t tokens = rope_shapes[i].tokens, heads = rope_shapes[i].heads, dim = rope_shapes[i].dim;
                enum rf_dtype dtype = types[t];
                struct rf_rope_params params = {.rotated = rope_shapes[i].rotated, .base = 500000};
                uint64_t gap = rope_shapes[i].strided ? 3 : 0;
                uint64_t head = dim + gap, token = heads * head + gap;
                struct rf_gpu_rope rope = {.args = {.tokens = tokens,
                                                    .out_token = heads * dim,
                                                    .out_head = dim,
                                                    .in_token = token,
                                                    .in_head = head,
                                                    .heads = (uint32_t)heads,
                                                    .dim = (uint32_t)dim,
                                                    .rotated = params.rotated,
                                                    .halves = (uint32_t)halves},
                                           .dtype = dtype,
                                           .out_dtype = dtype};
                struct array positions = make_positions(gpu, random, tokens);
                struct array steps = make_steps(gpu, &params, &rope.args.magnitude);
                struct array in = make(gpu, random, dtype, tokens * token, i % 2);
                struct array out = make_out(gpu, dtype, tokens * heads * dim, 0);
                rope.positions = operand(&positions);
                rope.steps = operand(&steps);
                rope.in = operand(&in);
                rope.out = operand(&out);
                RF_ASSERT_OK(rf_gpu_rope(gpu->queue, &rope));
                rf_ref_rope(dtype, data(&out), dtype, data(&in), data(&positions), data(&steps), &rope.args);
                check(gpu, &out, dtype, 4e-6, step_of(dtype));
                rope.out = rope.in; /* in place; the gaps stay */
                rope.args.out_head = head;
                rope.args.out_token = token;
                RF_ASSERT_OK(rf_gpu_rope(gpu->queue, &rope));
                rf_ref_rope(dtype, data(&in), dtype, data(&in), data(&positions), data(&steps), &rope.args);
                check(gpu, &in, dtype, 4e-6, step_of(dtype));
                struct array *all[] = {&in, &out, &steps, &positions};
                for (size_t k = 0; k < RF_COUNT(all); k++) drop(all[k]);
            }
}

/* ---- the cache ---- */

enum { PAGES = 9, PAGE_ROWS = 4, WIDTH = 3, SEQUENCES = 2 };

static void append(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t heads, uint64_t dim,
                   bool rope, bool paged, bool strided, bool halves) {
    enum { TOKENS = 9 };
    static const int32_t at[TOKENS] = {0, 5, 11, -1, 12, 3, 4, 11, 2};
    static const uint32_t of[TOKENS] = {0, 0, 0, 0, 1, 1, 1, 1, 2}; /* 12 is beyond the table, 2 names no sequence */
    static const uint32_t pages[SEQUENCES][WIDTH] = {{8, 2, 5}, {0, 7, PAGES}}; /* the last names no page */
    uint64_t k_token = heads * dim + (strided ? 5 : 0), row = strided ? dim + 32 : dim;
    uint64_t head = PAGE_ROWS * row, page = heads * head + (strided ? 64 : 0);
    uint64_t elements = PAGES * page, block = rf_dtype_block(dtype);
    struct array k = make(gpu, random, RF_F32, TOKENS * k_token, 0),
                 v = make(gpu, random, RF_F32, TOKENS * heads * dim, 1);
    struct array caches[2], positions = make_bytes(gpu, sizeof at, 0), sequences = make_bytes(gpu, sizeof of, 0),
                            table = make_bytes(gpu, sizeof pages, 0), steps = {0};
    memcpy(data(&positions), at, sizeof at);
    memcpy(data(&sequences), of, sizeof of);
    memcpy(data(&table), pages, sizeof pages);
    upload(gpu, &positions);
    upload(gpu, &sequences);
    upload(gpu, &table);
    for (int i = 0; i < 2; i++) {
        caches[i] = make_bytes(gpu, elements / block * rf_dtype_block_bytes(dtype), 0);
        upload(gpu, &caches[i]);
    }
    struct rf_rope_params params = {.rotated = (uint32_t)(dim > 64 ? dim / 4 * 2 : dim)};
    struct rf_kv_append_args args = {.tokens = TOKENS,
                                     .k_token = k_token,
                                     .v_token = heads * dim,
                                     .page = page,
                                     .head = head,
                                     .row = row,
                                     .table_width = WIDTH,
                                     .sequence_count = SEQUENCES,
                                     .heads = (uint32_t)heads,
                                     .dim = (uint32_t)dim,
                                     .page_rows = PAGE_ROWS,
                                     .page_count = PAGES,
                                     .halves = halves};
    if (rope) {
        steps = make_steps(gpu, &params, &args.magnitude);
        args.rotated = params.rotated;
    }
    struct rf_gpu_kv_append on_gpu = {.args = args,
                                      .dtype = dtype,
                                      .k_cache = operand(&caches[0]),
                                      .v_cache = operand(&caches[1]),
                                      .k = operand(&k),
                                      .v = operand(&v),
                                      .positions = operand(&positions),
                                      .sequences = operand(&sequences)};
    struct rf_ref_kv_append on_host = {.args = args,
                                       .dtype = dtype,
                                       .k_cache = data(&caches[0]),
                                       .v_cache = data(&caches[1]),
                                       .k = data(&k),
                                       .v = data(&v),
                                       .positions = data(&positions),
                                       .sequences = data(&sequences)};
    if (paged) on_gpu.table = operand(&table), on_host.table = data(&table);
    if (rope) on_gpu.steps = operand(&steps), on_host.steps = data(&steps);
    RF_ASSERT_OK(rf_gpu_kv_append(gpu->queue, &on_gpu));
    rf_ref_kv_append(&on_host);
    check_bytes(gpu, &caches[1]);
    if (!rope) {
        check_bytes(gpu, &caches[0]);
    } else if (dtype == RF_Q8_0) { /* a quotient near a half may be rounded to either side */
        uint64_t bytes = caches[0].bytes, off = 0;
        uint8_t *got = malloc(bytes), *want = data(&caches[0]);
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, got, caches[0].buffer, 0, bytes));
        for (uint64_t i = 0; i < bytes; i++) {
            if (i % 34 < 2) {
                if (i % 34) continue;
                float a = rf_f16_to_float((uint16_t)(got[i] | got[i + 1] << 8));
                float b = rf_f16_to_float((uint16_t)(want[i] | want[i + 1] << 8));
                RF_ASSERT(fabsf(a - b) <= 1e-3f * fabsf(b));
            } else {
                int difference = abs((int8_t)got[i] - (int8_t)want[i]);
                RF_ASSERT(difference <= 1);
                off += difference != 0;
            }
        }
        RF_ASSERT(off * 100 <= bytes);
        free(got);
    } else {
        check(gpu, &caches[0], dtype, 4e-6, step_of(dtype));
    }
    struct array *all[] = {&k, &v, &caches[0], &caches[1], &positions, &sequences, &table, &steps};
    for (size_t i = 0; i < RF_COUNT(all); i++) drop(all[i]);
}

static void appends(struct gpu *gpu, struct rf_random *random) {
    static const enum rf_dtype kinds[] = {RF_F32, RF_F16, RF_Q8_0};
    for (size_t t = 0; t < RF_COUNT(kinds); t++)
        for (int mode = 0; mode < 16; mode++) {
            append(gpu, random, kinds[t], 2, 64, mode & 1, mode & 2, mode & 4, mode & 8);
            append(gpu, random, kinds[t], 3, kinds[t] == RF_Q8_0 ? 96 : 74, mode & 1, mode & 2, mode & 4, mode & 8);
            append(gpu, random, kinds[t], 1, 288, mode & 1, mode & 2, mode & 4, mode & 8);
        }
}

/* ---- all of it, on each kind of device ---- */

static void on_device(const char *const *options, void (*body)(struct gpu *gpu, struct rf_random *random)) {
    struct gpu gpu = {0};
    struct rf_random random = {rf_test_seed() + 4};
    gpu_make_runtime(&gpu, options);
    gpu_open(&gpu, NULL);
    body(&gpu, &random);
    gpu_close(&gpu);
}

static const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};

#define ON_ALL(name)                                                                                                 \
    RF_TEST(transformer, name##_match_the_reference, .gpu = true, .timeout_ms = 1500000) {                           \
        on_device(guarded, name);                                                                                    \
    }                                                                                                                \
    RF_TEST(transformer, name##_match_at_wave_64, .timeout_ms = 1500000) {                                           \
        gpu_need_simulated("arch=gfx942,shuffle=7");                                                                 \
        on_device(guarded, name);                                                                                    \
    }

ON_ALL(norms)
ON_ALL(softmax)
ON_ALL(activations)
ON_ALL(products)
ON_ALL(permutes)
ON_ALL(concats)
ON_ALL(ropes)
ON_ALL(appends)

/* ---- the table of a rotation ---- */

static double angle_of(uint64_t step) {
    return (double)step * 0x1p-64 * 2 * M_PI;
}

RF_TEST(transformer, rotation_tables_follow_the_formulas) {
    uint64_t steps[64], scaled[64], mixed[64];
    float magnitude, factors[64];
    struct rf_rope_params params = {.rotated = 128, .base = 500000};
    RF_ASSERT(rf_rope_steps(&params, steps, &magnitude));
    RF_ASSERT(magnitude == 1);
    for (int i = 0; i < 64; i++) {
        double frequency = pow(500000, -i / 64.0);
        RF_ASSERT(fabs(angle_of(steps[i]) - frequency) <= 1e-15);
        factors[i] = i < 20 ? 1 : 8;
    }
    params.scale = 0.25;
    params.factors = factors;
    RF_ASSERT(rf_rope_steps(&params, scaled, &magnitude));
    for (int i = 0; i < 64; i++)
        RF_ASSERT(fabs(angle_of(scaled[i]) - angle_of(steps[i]) / 4 / (double)factors[i]) <= 1e-15);
    params.factors = NULL;
    params.extension = 1;
    params.original_context = 8192;
    RF_ASSERT(rf_rope_steps(&params, mixed, &magnitude));
    RF_ASSERT(fabs((double)magnitude - (1 + 0.1 * log(4))) < 1e-6);
    /* 8192 / 2 pi = 1303.8 radians of position make a turn: pair i turns 1303.8 f_i times, which is 32 times at i =
     * 18.08 and once at i = 34.98. From 18 to 35 the mix is a straight line. */
    for (int i = 0; i < 64; i++) {
        double share = i <= 18 ? 0 : i >= 35 ? 1 : (i - 18) / 17.0, whole = angle_of(steps[i]);
        RF_ASSERT(fabs(angle_of(mixed[i]) - (whole / 4 * share + whole * (1 - share))) <= 1e-14);
    }
    params.original_context = 0;
    RF_ASSERT(!rf_rope_steps(&params, mixed, &magnitude));
    params = (struct rf_rope_params){.rotated = 7};
    RF_ASSERT(!rf_rope_steps(&params, mixed, &magnitude));
    factors[3] = 0;
    params = (struct rf_rope_params){.rotated = 128, .factors = factors};
    RF_ASSERT(!rf_rope_steps(&params, mixed, &magnitude));
    params = (struct rf_rope_params){.rotated = 2, .base = NAN};
    RF_ASSERT(!rf_rope_steps(&params, mixed, &magnitude));
}

/* Compares a table's phases with the angle itself: 64 bits lose nothing that a double keeps. */
RF_TEST(transformer, rotation_keeps_its_angle_at_far_positions) {
    uint64_t step;
    float magnitude, out[2];
    const float in[2] = {1, 0};
    struct rf_rope_params params = {.rotated = 2}; /* one radian per position */
    RF_ASSERT(rf_rope_steps(&params, &step, &magnitude));
    static const int32_t positions[] = {0, 1, -1, 22, 710, 131071, -1000003, 103993};
    for (size_t i = 0; i < RF_COUNT(positions); i++) {
        struct rf_rope_args args = {.tokens = 1, .heads = 1, .dim = 2, .rotated = 2, .magnitude = 1};
        rf_ref_rope(RF_F32, out, RF_F32, in, &positions[i], &step, &args);
        RF_ASSERT(fabs((double)out[0] - cos(positions[i])) < 1e-7);
        RF_ASSERT(fabs((double)out[1] - sin(positions[i])) < 1e-7);
    }
}

/* ---- what is refused ---- */

#define REFUSED(call, status, part)                                                                                  \
    do {                                                                                                             \
        RF_ASSERT_STATUS(call, status);                                                                              \
        RF_ASSERT_CONTAINS(rf_error_text(), part);                                                                   \
    } while (0)

static void refusals(struct gpu *gpu, struct rf_random *random) {
    struct array a = make(gpu, random, RF_F32, 64, 0), b = make(gpu, random, RF_F32, 64, 0);
    struct rf_operand at_a = operand(&a), at_b = operand(&b), off = {a.buffer, 2}, late = {a.buffer, 32};
    struct rf_operand none = {0};
    struct rf_norm_args norm = {.rows = 4, .columns = 16, .eps = 1e-5f};
    RF_ASSERT_OK(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, &norm));
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, NULL), RF_E_INVALID, "layer_norm");
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_Q8_0, at_a, at_b, none, none, &norm), RF_E_UNSUPPORTED,
            "layer_norm: no kernel for type");
    norm.columns = 17;
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, &norm), RF_E_INVALID,
            "out takes 272 bytes");
    norm.columns = UINT64_MAX;
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, &norm), RF_E_INVALID, "64 bits");
    norm.rows = 1, norm.columns = UINT64_MAX / 2;
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, &norm), RF_E_INVALID, "64 bits");
    norm.rows = 0, norm.columns = 3;
    RF_ASSERT_OK(rf_gpu_layer_norm(gpu->queue, RF_F32, at_a, at_b, none, none, &norm));
    norm.rows = 1;
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, off, at_b, none, none, &norm), RF_E_INVALID, "no multiple of 4");
    norm.columns = 16;
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, late, at_a, none, none, &norm), RF_E_INVALID, "out overlaps in");
    REFUSED(rf_gpu_layer_norm(gpu->queue, RF_F32, late, none, none, none, &norm), RF_E_INVALID, "no buffer for in");
    REFUSED(rf_gpu_rms_norm(gpu->queue, RF_F32, at_a, at_b, at_a, &norm), RF_E_INVALID,
            "rms_norm: out overlaps weight");
    REFUSED(rf_gpu_add_rms_norm(gpu->queue, RF_F32, at_a, at_a, at_b, at_b, none, &norm), RF_E_INVALID,
            "sum overlaps out");

    struct rf_softmax_args soft = {3, 4, 2, 1, 1, 0};
    REFUSED(rf_gpu_softmax_mask(gpu->queue, at_a, at_a, RF_F32, at_b, &soft), RF_E_INVALID, "no multiple");
    soft.rows = 4;
    REFUSED(rf_gpu_softmax_mask(gpu->queue, at_a, at_a, RF_BF16, at_b, &soft), RF_E_UNSUPPORTED,
            "softmax_mask: the mask's type");
    RF_ASSERT_OK(rf_gpu_softmax_mask(gpu->queue, at_a, at_a, RF_BF16, none, &soft)); /* no mask has no type */
    REFUSED(rf_gpu_softmax(gpu->queue, at_a, late, &soft), RF_E_INVALID, "softmax: out overlaps in");

    struct rf_elementwise_args elements = {.count = 65};
    REFUSED(rf_gpu_fill(gpu->queue, RF_F32, at_a, &elements), RF_E_INVALID, "fill: out takes 260 bytes");
    REFUSED(rf_gpu_fill(gpu->queue, RF_F16, at_a, &elements), RF_E_UNSUPPORTED, "fill: no kernel for type f16");
    elements.count = 16;
    REFUSED(rf_gpu_copy(gpu->queue, RF_F16, at_a, RF_F32, at_a, &elements), RF_E_INVALID, "copy: out overlaps in");
    REFUSED(rf_gpu_add(gpu->queue, RF_F32, at_a, at_b, none, &elements), RF_E_INVALID, "add: no buffer for b");
    REFUSED(rf_gpu_scale(gpu->queue, RF_I32, at_a, at_b, &elements), RF_E_UNSUPPORTED, "scale: no kernel for type");
    struct rf_activation_args act = {2, 16, 8, 16, 16, RF_ACTIVATION_SILU, 0};
    REFUSED(rf_gpu_activation(gpu->queue, RF_F32, at_a, at_b, none, &act), RF_E_INVALID, "rows of out overlap");
    act.out_row = 16;
    REFUSED(rf_gpu_activation(gpu->queue, RF_I32, at_a, at_b, none, &act), RF_E_UNSUPPORTED,
            "silu_gate: no kernel for type i32");
    act.kind = RF_ACTIVATION_COUNT;
    REFUSED(rf_gpu_activation(gpu->queue, RF_F32, at_a, at_b, none, &act), RF_E_INVALID, "no kind");
    struct rf_multiply_args multiply = {2, 16, 16, 16, 16, 16};
    REFUSED(rf_gpu_multiply(gpu->queue, RF_F32, at_a, at_b, none, none, &multiply), RF_E_INVALID,
            "multiply: no buffer for b");
    REFUSED(rf_gpu_multiply(gpu->queue, RF_I32, at_a, at_b, at_b, none, &multiply), RF_E_UNSUPPORTED,
            "multiply: no kernel for type i32");

    struct rf_permute_args permute = {{4, 4, 1, 1}, {0, 1}, {4, 1}};
    REFUSED(rf_gpu_permute(gpu->queue, RF_F32, at_a, RF_F32, at_b, &permute), RF_E_INVALID, "in one place");
    permute.out_stride[0] = 3;
    REFUSED(rf_gpu_permute(gpu->queue, RF_F32, at_a, RF_F32, at_b, &permute), RF_E_INVALID, "in one place");
    permute.size[0] = UINT64_MAX;
    REFUSED(rf_gpu_permute(gpu->queue, RF_F32, at_a, RF_F32, at_b, &permute), RF_E_INVALID, "64 bits");
    struct rf_concat_args concat = {.outer = 1, .width = {4, 4}};
    struct rf_operand joined[RF_CONCAT_INPUTS] = {at_a, at_b};
    REFUSED(rf_gpu_concat(gpu->queue, RF_F32, at_a, joined, &concat), RF_E_INVALID, "out overlaps in[0]");
    concat.width[3] = UINT64_MAX;
    REFUSED(rf_gpu_concat(gpu->queue, RF_F32, at_a, joined, &concat), RF_E_INVALID, "64 bits");
    struct rf_gpu_rope rope = {.args = {.tokens = 1, .heads = 1, .dim = 8, .rotated = 10, .magnitude = 1},
                               .dtype = RF_F32,
                               .out_dtype = RF_F32,
                               .out = at_a,
                               .in = at_a,
                               .positions = at_b,
                               .steps = at_b};
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_INVALID, "rope: 10 of 8 elements");
    rope.args.rotated = 8, rope.steps.offset_bytes = 4;
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_INVALID, "steps");
    rope.steps.offset_bytes = 0, rope.out_dtype = RF_BF16;
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_UNSUPPORTED, "rope: from f32 to bf16");
    /* In place only where each element stays where it is. */
    rope.out_dtype = RF_F16;
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_INVALID, "rope: out overlaps in");
    rope.out_dtype = RF_F32, rope.args.tokens = rope.args.heads = 2;
    rope.args.in_token = rope.args.out_token = 16, rope.args.in_head = rope.args.out_head = 8;
    RF_ASSERT_OK(rf_gpu_rope(gpu->queue, &rope));
    rope.args.in_token = 24;
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_INVALID, "rope: out overlaps in");
    rope.args.in_token = rope.args.out_token = 24, rope.args.in_head = 12;
    REFUSED(rf_gpu_rope(gpu->queue, &rope), RF_E_INVALID, "rope: out overlaps in");
    struct rf_gpu_kv_append kv = {.args = {.tokens = 1, .heads = 1, .dim = 16, .page_rows = 1, .page_count = 1},
                                  .dtype = RF_Q8_0,
                                  .k_cache = at_a,
                                  .v_cache = at_b,
                                  .k = at_a,
                                  .v = at_b,
                                  .positions = at_b};
    REFUSED(rf_gpu_kv_append(gpu->queue, &kv), RF_E_INVALID, "multiples of 32");
    kv.dtype = RF_BF16;
    REFUSED(rf_gpu_kv_append(gpu->queue, &kv), RF_E_UNSUPPORTED, "kv_append: no kernel for a cache of");
    kv.dtype = RF_F32;
    REFUSED(rf_gpu_kv_append(gpu->queue, &kv), RF_E_INVALID, "k_cache overlaps k");
    kv.k = at_b, kv.v.offset_bytes = 4 * 56; /* the last 8 of 64 numbers, and a token has 16 */
    REFUSED(rf_gpu_kv_append(gpu->queue, &kv), RF_E_INVALID, "kv_append: v takes 64 bytes from offset 224");
    kv.args.page_count = 0;
    REFUSED(rf_gpu_kv_append(gpu->queue, &kv), RF_E_INVALID, "0 pages");
    drop(&a);
    drop(&b);
}
RF_TEST(transformer, bad_arguments_are_refused_with_a_reason, .gpu = true) {
    on_device(NULL, refusals);
}
