/* Products with weights: every weight type, by matvec and by tiles, with f32, f16, bf16 and 8-bit activations, bias,
 * residual and gate, compared with the scalar reference. */
#include "../gpu/gpu_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cpu/quant.h"
#include "cpu/ref_matmul.h"
#include "cpu/reference.h"
#include "gpu/device.h"
#include "kernels/matmul_group_args.h"
#include "ops/gpu_elementwise.h"
#include "ops/gpu_matmul.h"
#include "ops/gpu_norm.h"

struct shape {
    uint64_t m, n, k;
    uint64_t x_pad, out_pad; /* added to the strides */
};
struct kind {
    enum rf_dtype weight, type;
    bool q8;
};
enum { PLAIN, BIAS, RESIDUAL, BOTH, IN_PLACE, GATE };

static struct rf_buffer *upload(struct gpu *gpu, const void *host, uint64_t bytes) {
    struct rf_buffer *buffer = gpu_buffer(gpu, bytes);
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, buffer, 0, host, bytes));
    return buffer;
}

/* Finding good scales takes longer than everything else here: blocks behind the first ones are drawn from those. */
static void *random_weights(struct rf_random *random, enum rf_dtype dtype, uint64_t count, uint64_t *bytes) {
    enum { FITTED = 2048 };
    uint64_t block = rf_dtype_block(dtype), block_bytes = rf_dtype_block_bytes(dtype), fitted = RF_MIN(count, FITTED);
    float *values = malloc(fitted * sizeof *values);
    *bytes = count / block * block_bytes;
    char *weights = malloc(*bytes);
    rf_random_normals(random, values, fitted, 0, 1);
    rf_quantize_row(dtype, values, weights, fitted);
    for (uint64_t at = fitted / block; at < count / block; at++)
        memcpy(weights + at * block_bytes, weights + rf_random_below(random, fitted / block) * block_bytes,
               block_bytes);
    free(values);
    return weights;
}

/* Rounds to small integers times a power of two, with a 127 among each 32: 8 bits hold them exactly. */
static void round_to_q8(float *x, uint64_t k) {
    for (uint64_t at = 0; at < k; at += 32)
        for (uint64_t i = at; i < at + 32; i++)
            x[i] = i % 32 == at / 32 % 32 ? 127.0f / 32 : (float)fmax(-127, fmin(127, round(x[i] * 32))) / 32;
}

/* The matrix units take quantized weights rounded to f16, as the op states (gpu_matmul.h). So the expected result is
 * the product of the rounded weights; it differs from the exact weights' product by at most the sum of |weight -
 * rounded| |x|. What is left for each output is the rounding of sums, bounded from its own data:
 *
 * Products of two f16 are exact in f32. In a turn a unit adds 16 of them to a sum, and on the way rounds or truncates
 * at most 16 times by at most 2^-23 of the largest partial sum (a chain of 16 fma: by 2^-24; one sum of aligned
 * addends, as on NVIDIA: each of 17, by 2^-24, and the result), so by 2^-19 of |sum behind the turn| + 2 * its 16
 * magnitudes. The kernel decides which turns make up a sum: it splits k at multiples of 64 and may give the halves of
 * each 64 to two slices. No sum of either slice is larger behind a turn than the farthest that its exact prefix sums
 * have come from any earlier one, and no sum of both is larger than these two distances together. Slices, up to 8
 * parts, bias and residual add 11 more f32 additions, and the reference's result is rounded too. Some units treat
 * subnormal operands as zeros. */
enum { TURN = 16, SLICE = 32 };
#define LATER_ROUNDINGS 12
struct unit_case {
    const struct shape *shape;
    const float *weights, *x, *bias, *residual; /* the last two may be NULL */
};
static float *rounded_weights(enum rf_dtype dtype, const void *weights, uint64_t count) {
    uint16_t *halves = malloc(count * sizeof *halves);
    float *rounded = malloc(count * sizeof *rounded);
    rf_ref_dequantize(RF_F16, halves, dtype, weights, &(struct rf_dequantize_args){count});
    rf_dequantize_row(RF_F16, halves, rounded, count);
    free(halves);
    return rounded;
}
static double unit_bound(const struct unit_case *op, uint64_t row, uint64_t column) {
    const struct shape *shape = op->shape;
    const float *weights = op->weights + column * shape->k, *x = op->x + row * (shape->k + shape->x_pad);
    double prefix[2] = {0}, low[2] = {0}, high[2] = {0}, bound = 0, most = 0;
    for (uint64_t at = 0; at < shape->k; at += TURN) {
        uint64_t slice = at / SLICE % 2;
        double sizes = 0, far = 0;
        for (uint64_t i = at; i < at + TURN; i++) {
            double weight = (double)weights[i], product = weight * (double)x[i];
            prefix[slice] += product;
            sizes += fabs(product);
            if (fmin(fabs(weight), fabs((double)x[i])) < 0x1p-14) bound += fabs(product);
        }
        low[slice] = fmin(low[slice], prefix[slice]);
        high[slice] = fmax(high[slice], prefix[slice]);
        for (int s = 0; s < 2; s++) far += fmax(prefix[s] - low[s], high[s] - prefix[s]);
        bound += 0x1p-19 * (far + 2 * sizes);
    }
    for (int s = 0; s < 2; s++) most += high[s] - low[s];
    if (op->bias) most += fabs((double)op->bias[column]);
    if (op->residual) most += fabs((double)op->residual[row * (shape->n + shape->out_pad) + column]);
    return bound + LATER_ROUNDINGS * 0x1p-24 * most;
}

/* Errors are compared in units of their bounds; the bytes between rows must not have changed at all. */
static void check_units(struct gpu *gpu, const struct unit_case *op, struct rf_buffer *on_out,
                        const float *expected) {
    uint64_t stride = op->shape->n + op->shape->out_pad, count = op->shape->m * stride;
    float *actual = malloc(count * sizeof *actual), *zeros = calloc(count, sizeof *zeros);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, actual, on_out, 0, count * sizeof *actual));
    for (uint64_t i = 0; i < count; i++) {
        double difference = (double)actual[i] - (double)expected[i];
        double bound = i % stride < op->shape->n ? unit_bound(op, i / stride, i % stride) : 0;
        actual[i] = (float)(difference == 0 ? 0 : difference / bound);
    }
    const uint64_t shape[] = {op->shape->m, stride};
    RF_ASSERT_F32(actual, zeros, count, rf_shaped(rf_absolute(1), 2, shape));
    free(actual);
    free(zeros);
}

/* Kernels sum k products of magnitude 1 in f32; f16 and bf16 results are rounded. */
static struct rf_compare tolerance(enum rf_dtype type, uint64_t k) {
    double sum = 1e-6 * sqrt((double)k) + 1e-6;
    return rf_within(4 * sum, type == RF_F32 ? 1e-5 : type == RF_F16 ? 1e-3 : 8e-3);
}

static void product(struct gpu *gpu, struct rf_random *random, struct kind kind, struct shape shape,
                    enum rf_matmul_path path, int extra) {
    uint64_t element = rf_dtype_bytes(kind.type), weight_bytes, gate_bytes = 0;
    bool on_units = path == RF_MATMUL_MATRIX || path == RF_MATMUL_WIDE || path == RF_MATMUL_GROUP;
    uint64_t x_stride = shape.k + shape.x_pad, out_stride = shape.n + shape.out_pad;
    uint64_t x_count = shape.m * x_stride, out_count = shape.m * out_stride;
    void *weights = random_weights(random, kind.weight, shape.n * shape.k, &weight_bytes);
    void *gate = extra == GATE ? random_weights(random, kind.weight, shape.n * shape.k, &gate_bytes) : NULL;
    void *x = malloc(x_count * element), *out = malloc(out_count * element), *residual = malloc(out_count * element);
    float *bias = malloc(shape.n * sizeof *bias);
    struct rf_q8_block *q8 = malloc(shape.m * (shape.k / 32 + 1) * sizeof *q8);
    for (uint64_t i = 0; i < x_count; i++) {
        double value = rf_random_normal(random);
        /* The matrix units round activations to 16 bits: these activations do not change by it. */
        if (on_units) value = rf_f16_to_double(rf_f16_from_double(rf_bf16_to_double(rf_bf16_from_double(value))));
        rf_element_set(kind.type, x, i, value);
    }
    /* With few rows of x and quantized weights, x is rounded to 8 bits: it has been rounded here already. */
    bool dots = path == RF_MATMUL_DOTS || (path == RF_MATMUL_AUTO && rf_dtype_block(kind.weight) > 1);
    for (uint64_t r = 0; dots && !kind.q8 && r < shape.m; r++) round_to_q8((float *)x + r * x_stride, shape.k);
    for (uint64_t i = 0; i < out_count; i++) rf_element_set(kind.type, residual, i, rf_random_normal(random));
    rf_random_normals(random, bias, shape.n, 0, 1);
    if (kind.q8) rf_ref_quantize_q8(q8, kind.type, x, &(struct rf_quantize_q8_args){shape.m, shape.k, x_stride});

    struct rf_buffer *on_weights = upload(gpu, weights, weight_bytes),
                     *on_gate = gate ? upload(gpu, gate, gate_bytes) : NULL;
    struct rf_buffer *on_x =
        kind.q8 ? upload(gpu, q8, shape.m * (shape.k / 32) * sizeof *q8) : upload(gpu, x, x_count * element);
    bool with_bias = extra == BIAS || extra == BOTH,
         with_residual = extra == RESIDUAL || extra == BOTH || extra == IN_PLACE;
    struct rf_buffer *on_bias = with_bias ? upload(gpu, bias, shape.n * sizeof *bias) : NULL;
    struct rf_buffer *on_out = upload(gpu, residual, out_count * element); /* the padding must stay unchanged */
    struct rf_buffer *on_residual =
        with_residual && extra != IN_PLACE ? upload(gpu, residual, out_count * element) : NULL;
    memcpy(out, residual, out_count * element);

    struct rf_gpu_matmul call = {.args = {.m = shape.m,
                                          .n = shape.n,
                                          .k = shape.k,
                                          .x_stride = kind.q8 ? shape.k : x_stride,
                                          .out_stride = out_stride,
                                          .x_q8 = kind.q8},
                                 .weight_type = kind.weight,
                                 .type = kind.type,
                                 .path = path,
                                 .out.buffer = on_out,
                                 .weights.buffer = on_weights,
                                 .x.buffer = on_x,
                                 .gate.buffer = on_gate,
                                 .bias.buffer = on_bias};
    if (with_residual) call.residual.buffer = extra == IN_PLACE ? on_out : on_residual;
    uint64_t workspace_bytes;
    RF_ASSERT_OK(rf_gpu_matmul_workspace(&call, &workspace_bytes));
    if (workspace_bytes) call.workspace.buffer = gpu_buffer(gpu, workspace_bytes);
    RF_ASSERT_OK(rf_gpu_matmul(gpu->queue, &call));

    struct rf_ref_matmul reference = {.args = call.args,
                                      .weight_type = kind.weight,
                                      .weights = weights,
                                      .gate = gate,
                                      .type = kind.type,
                                      .x = kind.q8 ? (const void *)q8 : x,
                                      .out = out};
    if (with_bias) reference.bias = bias;
    if (with_residual) reference.residual = residual;
    float *rounded = NULL;
    if (on_units && rf_dtype_block(kind.weight) > 1) {
        rounded = rounded_weights(kind.weight, weights, shape.n * shape.k);
        reference.weight_type = RF_F32;
        reference.weights = rounded;
    }
    rf_ref_matmul(&reference);
    struct rf_compare how = tolerance(kind.type, shape.k);
    if (extra == GATE) { /* a product of two sums */
        how.absolute *= 4 * sqrt((double)shape.k);
        how.relative *= 2;
    }
    if (rounded) {
        struct unit_case units = {&shape, rounded, x, reference.bias, reference.residual};
        check_units(gpu, &units, on_out, out);
    } else {
        RF_ASSERT_BUFFER(gpu->queue, on_out, kind.type, out, out_count, how);
    }

    struct rf_buffer *buffers[] = {on_weights, on_gate, on_x, on_bias, on_residual, on_out, call.workspace.buffer};
    for (size_t i = 0; i < 7; i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    void *memory[] = {weights, gate, x, out, residual, bias, q8, rounded};
    for (size_t i = 0; i < 8; i++) free(memory[i]);
}

static const enum rf_dtype quantized[] = {RF_Q4_0, RF_Q4_1, RF_Q5_0, RF_Q5_1, RF_Q8_0,   RF_Q2_K,
                                          RF_Q3_K, RF_Q4_K, RF_Q5_K, RF_Q6_K, RF_IQ4_NL, RF_IQ4_XS};
static const enum rf_dtype floats[] = {RF_F32, RF_F16, RF_BF16};

/* Every kernel gets every kind of edge in both extents. In a short run, products of several tiles, which are the same
 * whatever type the weights were decoded from, are spread over the types, and k is no longer than an edge needs. */
enum extent { SHORT, FULL };

/* Quantized weights: k counts blocks. */
static void quantized_products(struct gpu *gpu, enum extent extent) {
    struct rf_random random = {rf_test_seed() + 1};
    for (size_t t = 0; t < 12; t++) {
        uint64_t block = rf_dtype_block(quantized[t]);
        struct kind kind = {quantized[t], RF_F32, false}, kind_q8 = {quantized[t], RF_F32, true};
        struct shape shapes[] = {{1, 1, block, 0, 0},     {1, 5, 3 * block, 4, 3}, {2, 3, block, 8, 1},
                                 {4, 7, 2 * block, 0, 0}, {7, 4, block, 12, 5},    {8, 2, 9 * 256, 0, 0}};
        for (size_t i = 0; i < 6; i++) {
            bool blocks = (i + t) % 2; /* x in 8 bits: the same kernel turns f32 activations into these */
            if (extent == FULL || !blocks) product(gpu, &random, kind, shapes[i], RF_MATMUL_AUTO, (int)i);
            if (extent == FULL || blocks) product(gpu, &random, kind_q8, shapes[i], RF_MATMUL_AUTO, (int)i);
            product(gpu, &random, kind, shapes[i], RF_MATMUL_MATVEC, (int)i);
        }
        /* Several slices a row, rows that begin anywhere, more rows than a block has waves. */
        product(gpu, &random, kind,
                (struct shape){1, extent == FULL ? 41 : 21, block == 32 ? 131 * 32 : 17 * 256, 0, 0}, RF_MATMUL_DOTS,
                BOTH);
        product(gpu, &random, kind, (struct shape){3, 5, block == 32 ? 67 * 32 : 9 * 256, 4, 1}, RF_MATMUL_DOTS,
                GATE);
        product(gpu, &random, kind_q8, (struct shape){11, 3, 256, 0, 0}, RF_MATMUL_AUTO, PLAIN); /* in two turns */
        product(gpu, &random, kind, (struct shape){9, 3, 256, 0, 0}, RF_MATMUL_AUTO, GATE);
        if (extent == FULL || t % 3 == 0)
            product(gpu, &random, kind, (struct shape){9, 67, 256, 4, 1}, RF_MATMUL_TILED, BOTH);
        product(gpu, &random, kind, (struct shape){65, 3, block, 0, 0}, RF_MATMUL_TILED, PLAIN);
        product(gpu, &random, kind, (struct shape){extent == FULL || t == 1 ? 130 : 3, 17, block, 0, 0},
                RF_MATMUL_MATRIX, PLAIN);
        if (extent == FULL || t == 0)
            product(gpu, &random, kind, (struct shape){3, 131, 256, 8, 1}, RF_MATMUL_MATRIX, BOTH);
        if (extent == FULL || t == 2)
            product(gpu, &random, kind, (struct shape){3, 259, extent == FULL ? 512 : 256, 0, 1}, RF_MATMUL_WIDE,
                    BOTH);
        if (extent == FULL || t == 4)
            product(gpu, &random, kind, (struct shape){9, 3, 1280, 8, 0}, RF_MATMUL_MATRIX,
                    IN_PLACE); /* k is split */
    }
}

/* Float weights: k has any size, so that vectors and single elements are both used. */
static void float_products(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 2};
    static const struct shape shapes[] = {{1, 1, 1, 0, 0},    {1, 3, 64, 0, 0},  {3, 5, 37, 1, 2},
                                          {4, 2, 1030, 0, 0}, {8, 7, 264, 8, 0}, {5, 3, 7, 0, 1}};
    static const struct shape tiled[] = {{64, 64, 32, 0, 0}, {67, 5, 41, 3, 1}, {10, 70, 72, 8, 0}, {1, 1, 1, 0, 0}};
    for (size_t w = 0; w < 3; w++)
        for (size_t t = 0; t < 3; t++) {
            struct kind kind = {floats[w], floats[t], false};
            for (size_t i = 0; i < 6; i++) product(gpu, &random, kind, shapes[i], RF_MATMUL_AUTO, (int)(i + w) % 6);
            for (size_t i = 0; i < 4; i++) product(gpu, &random, kind, tiled[i], RF_MATMUL_TILED, (int)(i + t) % 5);
        }
}

/* 16-bit weights on the matrix units: partial tiles in all three directions. */
static void matrix_products(struct gpu *gpu, enum extent extent) {
    struct rf_random random = {rf_test_seed() + 4};
    static const struct kind kinds[] = {
        {RF_F16, RF_F16, false}, {RF_F16, RF_F32, false}, {RF_BF16, RF_BF16, false}, {RF_BF16, RF_F32, false}};
    static const struct shape shapes[] = {
        {128, 128, 64, 0, 0}, {1, 1, 8, 0, 0}, {67, 131, 72, 8, 3}, {129, 33, 136, 0, 0}, {16, 16, 32, 8, 0}};
    static const struct shape wide[] = {{130, 257, 328, 0, 0}, {3, 300, 64, 8, 1}, {128, 256, 72, 0, 0}};
    static const struct shape deep[] = {{5, 130, 1032, 0, 0}, {131, 3, 1544, 8, 1}}; /* k in parts */
    static const struct shape short_wide[] = {{130, 257, 72, 0, 0}, {128, 256, 72, 0, 0}};
    /* The quantized types use the second type's kernel, so they test it. */
    static const struct shape short_deep[] = {{5, 130, 1032, 0, 0}, {0}, {131, 3, 1032, 8, 1}, {3, 5, 1032, 0, 0}};
    for (size_t t = 0; t < 4; t++) {
        for (size_t i = 0; i < 5; i++)
            if (extent == FULL || i != 3 || t % 2 == 0)
                product(gpu, &random, kinds[t], shapes[i], RF_MATMUL_MATRIX, (int)(i + t) % 5);
        for (size_t i = 0; i < 3 && extent == FULL; i++)
            product(gpu, &random, kinds[t], wide[i], RF_MATMUL_WIDE, (int)(i + t) % 5);
        for (size_t i = 0; i < 2 && extent == FULL; i++)
            product(gpu, &random, kinds[t], deep[i], RF_MATMUL_MATRIX, (int)(i + t) % 5);
        if (extent == FULL) continue;
        product(gpu, &random, kinds[t], wide[1], RF_MATMUL_WIDE, (int)(1 + t) % 5);
        product(gpu, &random, kinds[t], short_wide[t % 2], RF_MATMUL_WIDE, (int)t);
        if (short_deep[t].m) product(gpu, &random, kinds[t], short_deep[t], RF_MATMUL_MATRIX, (int)(1 + t));
    }
}

static void all_products(const char *const *options, enum extent extent) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, options);
    gpu_open(&gpu, NULL);
    float_products(&gpu);
    quantized_products(&gpu, extent);
    matrix_products(&gpu, extent);
    gpu_close(&gpu);
}

static const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};

RF_TEST(matmul, matches_the_reference, .gpu = true, .timeout_ms = 1500000) {
    all_products(NULL, FULL);
}
RF_TEST(matmul, stays_inside_guarded_memory, .gpu = true, .timeout_ms = 1500000) {
    all_products(guarded, SHORT);
}
RF_TEST(matmul, stays_inside_guarded_memory_long, .gpu = true, .timeout_ms = 1500000, .tags = "slow") {
    all_products(guarded, FULL);
}
RF_TEST(matmul, matches_at_wave_64, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx942");
    all_products(guarded, FULL);
}
RF_TEST(matmul, matches_with_lanes_in_any_order, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx1201,shuffle=7");
    all_products(NULL, SHORT);
}
RF_TEST(matmul, matches_with_lanes_in_any_order_long, .timeout_ms = 1500000, .tags = "slow") {
    gpu_need_simulated("arch=gfx1201,shuffle=7");
    all_products(NULL, FULL);
}

/* ---- by groups of waves: the simulated driver plays an sm_90, and the build has sm_90a ---- */

/* Edges in all directions, rows of out that the engine can write and that it cannot, more tiles than blocks,
 * everything that is added; drawn by the test's seed besides. */
static void group_products(struct gpu *gpu, int drawn) {
    struct rf_random random = {rf_test_seed() + 5};
    static const struct kind kinds[] = {
        {RF_F16, RF_F16, false}, {RF_F16, RF_F32, false}, {RF_BF16, RF_BF16, false}, {RF_BF16, RF_F32, false}};
    static const struct shape shapes[] = {{128, 256, 64, 0, 0},  {1, 1, 8, 0, 0},     {130, 264, 328, 8, 0},
                                          {67, 131, 72, 8, 3},   {3, 520, 24, 0, 8},  {257, 8, 40, 0, 0},
                                          {65, 255, 136, 16, 1}, {2, 300, 640, 0, 4}, {600, 700, 16, 0, 4}};
    for (size_t t = 0; t < RF_COUNT(kinds); t++)
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            product(gpu, &random, kinds[t], shapes[i], RF_MATMUL_GROUP, (int)(i + t) % 5);
    for (int i = 0; i < drawn; i++) {
        struct shape shape = {1 + rf_random_below(&random, 300), 1 + rf_random_below(&random, 600),
                              8 * (1 + rf_random_below(&random, 60)), 8 * rf_random_below(&random, 3),
                              rf_random_below(&random, 17)};
        RF_NOTE("m %llu n %llu k %llu pads %llu %llu", (unsigned long long)shape.m, (unsigned long long)shape.n,
                (unsigned long long)shape.k, (unsigned long long)shape.x_pad, (unsigned long long)shape.out_pad);
        product(gpu, &random, kinds[i % 4], shape, RF_MATMUL_GROUP, (int)rf_random_below(&random, 5));
    }
    for (size_t t = 0; t < RF_COUNT(quantized); t++) {
        struct kind kind = {quantized[t], RF_F32, false};
        product(gpu, &random, kind, (struct shape){67 + t, 259, 256, 8, t % 3}, RF_MATMUL_GROUP, (int)t % 5);
    }
}
static const char *const traced[] = {"RF_LOG=debug", "RF_CHECK=guard,poison", NULL};
static int by_groups, by_others;
static void count_launch(const char *line) {
    by_groups += strstr(line, "launch matmul_group_") != NULL;
    by_others += strstr(line, "launch matmul_tile_") || strstr(line, "launch matmul_wide_");
}
static void all_group_products(int drawn) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, traced);
    gpu_open(&gpu, NULL);
    gpu_on_log = count_launch;
    group_products(&gpu, drawn);
    RF_EXPECT(by_groups >= 36 + drawn + 12);
    RF_EXPECT_INT(by_others, 0);
    gpu_close(&gpu);
}
RF_TEST(matmul, by_groups_matches_the_reference, .timeout_ms = 1500000) {
    gpu_need_groups("arch=sm_90,units=3");
    all_group_products(6);
}
RF_TEST(matmul, by_groups_with_lanes_in_any_order, .timeout_ms = 1500000) {
    gpu_need_groups("arch=sm_90,units=2,shuffle=11");
    all_group_products(2);
}
RF_TEST(matmul, by_groups_at_many_seeds, .timeout_ms = 3000000, .tags = "slow") {
    gpu_need_groups("arch=sm_90,units=5,shuffle=3");
    all_group_products(80);
}

/* Which products go that way by themselves. */
RF_TEST(matmul, chooses_groups_where_they_are_worth_it, .timeout_ms = 1500000) {
    static const struct {
        uint64_t m, n, k;
        bool groups;
    } cases[] = {{65, 64 * 256, 8, true},      {65, 63 * 256, 8, false},      {64, 64 * 256, 8, false},
                 {32 * 128, 2 * 256, 8, true}, {31 * 128, 2 * 256, 8, false}, {65, 64 * 256 - 255, 8, true}};
    gpu_need_groups("arch=sm_90,units=132");
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        struct gpu gpu = {0};
        gpu_make_runtime(&gpu, traced);
        gpu_open(&gpu, NULL);
        gpu_on_log = count_launch;
        by_groups = by_others = 0;
        uint64_t m = cases[i].m, n = cases[i].n, k = cases[i].k, workspace;
        struct rf_gpu_matmul call = {.args = {.m = m, .n = n, .k = k, .x_stride = k, .out_stride = n},
                                     .weight_type = RF_F16,
                                     .type = RF_F16,
                                     .out.buffer = gpu_buffer(&gpu, m * n * 2),
                                     .weights.buffer = gpu_buffer(&gpu, n * k * 2),
                                     .x.buffer = gpu_buffer(&gpu, m * k * 2)};
        RF_ASSERT_OK(rf_gpu_matmul_workspace(&call, &workspace));
        if (workspace) call.workspace.buffer = gpu_buffer(&gpu, workspace);
        rf_queue_rehearse(gpu.queue, true); /* which kernel, not its result */
        RF_ASSERT_OK(rf_gpu_matmul(gpu.queue, &call));
        rf_queue_rehearse(gpu.queue, false);
        RF_EXPECT_INT(by_groups, cases[i].groups);
        RF_EXPECT_INT(by_others, !cases[i].groups);
        struct rf_buffer *buffers[] = {call.out.buffer, call.weights.buffer, call.x.buffer, call.workspace.buffer};
        for (size_t b = 0; b < RF_COUNT(buffers); b++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[b]));
        gpu_close(&gpu);
    }
}

/* A stage whose bytes never come, since the map brings fewer than the kernel waits for; and no map at all. The launch
 * ends with an error. */
static void broken_map(uint32_t box_rows, const char *why) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *x = gpu_buffer(&gpu, 128 * 128), *weights = gpu_buffer(&gpu, 256 * 128),
                     *out = gpu_buffer(&gpu, 128 * 1024);
    struct rf_map map = {.dtype = RF_F16,
                         .rank = 2,
                         .sizes = {64, 128},
                         .strides = {0, 128},
                         .box = {64, box_rows},
                         .swizzle = RF_MAP_SWIZZLE_128};
    struct rf_matmul_args a = {.m = 128, .n = 256, .k = 64, .x_stride = 64, .out_stride = 256};
    struct rf_arg args[] = {box_rows ? rf_arg_map(x, 0, &map) : rf_arg_map(NULL, 0, NULL),
                            box_rows ? rf_arg_map(weights, 0, &map) : rf_arg_map(NULL, 0, NULL),
                            rf_arg_map(NULL, 0, NULL),
                            rf_arg_buffer(out),
                            rf_arg_buffer(NULL),
                            rf_arg_buffer(NULL),
                            rf_arg_struct(&a, sizeof a),
                            rf_arg_u32(0)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = gpu_kernel(&gpu, "matmul_group_f16_f32");
    launch.grid[0] = 1;
    launch.block[0] = RF_GROUP_THREADS;
    launch.shared_bytes = RF_GROUP_SHARED;
    launch.args = args;
    launch.arg_count = RF_COUNT(args);
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &launch));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_MS(250000)), RF_E_DEVICE_LOST);
    RF_EXPECT_CONTAINS(rf_error_text(), "matmul_group_f16_f32");
    RF_EXPECT_CONTAINS(gpu_sim_message(), why);
    rf_buffer_destroy(&x);
    rf_buffer_destroy(&weights);
    rf_buffer_destroy(&out);
    rf_queue_destroy(&gpu.queue);
    rf_device_close(&gpu.device);
    rf_runtime_destroy(&gpu.runtime);
}
RF_TEST(matmul, by_groups_waits_are_bounded, .timeout_ms = 300000) {
    gpu_need_groups("arch=sm_90");
    broken_map(64, "the kernel ended itself: a wait inside the block did not end");
}
RF_TEST(matmul, by_groups_without_a_map) {
    gpu_need_groups("arch=sm_90");
    broken_map(0, "the kernel ended itself: a bulk copy without a map of its rank");
}

/* Elsewhere nothing changes: the path is refused by name, and the others do not look for it. */
RF_TEST(matmul, refuses_groups_where_there_are_none) {
    gpu_need_simulated("arch=gfx1100");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_gpu_matmul call = {.args = {.m = 9, .n = 8, .k = 8, .x_stride = 8, .out_stride = 8},
                                 .weight_type = RF_F16,
                                 .type = RF_F16,
                                 .path = RF_MATMUL_GROUP,
                                 .out.buffer = gpu_buffer(&gpu, 512),
                                 .weights.buffer = gpu_buffer(&gpu, 512),
                                 .x.buffer = gpu_buffer(&gpu, 512)};
    RF_EXPECT_STATUS(rf_gpu_matmul(gpu.queue, &call), RF_E_UNSUPPORTED);
    RF_EXPECT_CONTAINS(rf_error_text(), "no kernels for groups of waves: this device");
    call.path = RF_MATMUL_AUTO;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &call));
    struct rf_buffer *buffers[] = {call.out.buffer, call.weights.buffer, call.x.buffer};
    for (size_t b = 0; b < RF_COUNT(buffers); b++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[b]));
    gpu_close(&gpu);
}

/* Activations that are not finite affect exactly the outputs of their row. */
RF_TEST(matmul, not_a_number_stays_in_its_row, .gpu = true) {
    enum { M = 3, N = 4, K = 256 };
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 3};
    uint64_t bytes;
    float x[M * K], out[M * N];
    void *weights = random_weights(&random, RF_Q4_K, N * K, &bytes);
    rf_random_normals(&random, x, M * K, 0, 1);
    x[K + 100] = INFINITY;
    x[K + 101] = NAN;
    struct rf_buffer *on_weights = upload(&gpu, weights, bytes), *on_x = upload(&gpu, x, sizeof x);
    struct rf_buffer *on_out = gpu_buffer(&gpu, sizeof out),
                     *on_q8 = gpu_buffer(&gpu, M * K / 32 * sizeof(struct rf_q8_block)),
                     *on_workspace = gpu_buffer(&gpu, 2 * (M + N) * K);
    RF_ASSERT_OK(rf_gpu_quantize_q8(gpu.queue, (struct rf_operand){on_q8, 0}, RF_F32, (struct rf_operand){on_x, 0},
                                    &(struct rf_quantize_q8_args){M, K, K}));
    for (int round = 0; round < 5; round++) {
        struct rf_gpu_matmul call = {
            .args = {.m = M, .n = N, .k = K, .x_stride = K, .out_stride = N, .x_q8 = round == 1},
            .weight_type = RF_Q4_K,
            .type = RF_F32,
            .path = round == 4   ? RF_MATMUL_DOTS
                    : round == 3 ? RF_MATMUL_MATRIX
                    : round == 2 ? RF_MATMUL_TILED
                                 : RF_MATMUL_MATVEC,
            .out.buffer = on_out,
            .weights.buffer = on_weights,
            .x.buffer = round == 1 ? on_q8 : on_x};
        if (round == 3) call.workspace.buffer = on_workspace;
        RF_ASSERT_OK(rf_gpu_matmul(gpu.queue, &call));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, out, on_out, 0, sizeof out));
        for (int i = 0; i < M * N; i++) RF_EXPECT((isnan(out[i]) != 0) == (i / N == 1));
    }
    struct rf_buffer *buffers[] = {on_weights, on_x, on_out, on_q8, on_workspace};
    for (size_t i = 0; i < 5; i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    free(weights);
    gpu_close(&gpu);
}

RF_TEST(matmul, bad_calls_are_refused_by_name, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *w = gpu_buffer(&gpu, 4096), *x = gpu_buffer(&gpu, 4096), *out = gpu_buffer(&gpu, 4096);
    const struct rf_gpu_matmul good = {.args = {.m = 2, .n = 3, .k = 64, .x_stride = 64, .out_stride = 3},
                                       .weight_type = RF_Q8_0,
                                       .type = RF_F32,
                                       .out.buffer = out,
                                       .weights.buffer = w,
                                       .x.buffer = x};
    struct rf_gpu_matmul a = good;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &a));
#define REFUSED(status, text)                                                                                        \
    do {                                                                                                             \
        RF_EXPECT_STATUS(rf_gpu_matmul(gpu.queue, &a), status);                                                      \
        RF_EXPECT_CONTAINS(rf_error_text(), "matmul: ");                                                             \
        RF_EXPECT_CONTAINS(rf_error_text(), text);                                                                   \
        a = good;                                                                                                    \
    } while (0)
    uint64_t bytes = 14;
    a.weight_type = RF_I8;
    RF_EXPECT_STATUS(rf_gpu_matmul_workspace(&a, &bytes), RF_E_UNSUPPORTED);
    RF_EXPECT_CONTAINS(rf_error_text(), "matmul: weights of");
    RF_EXPECT_UINT(bytes, 14); /* untouched */
    a = good;
    a.args.k = 63;
    REFUSED(RF_E_INVALID, "multiple of 32");
    a.type = RF_F16;
    REFUSED(RF_E_UNSUPPORTED, "F32");
    a.weight_type = RF_I8;
    REFUSED(RF_E_UNSUPPORTED, "weights of");
    a.weight_type = RF_F16;
    a.args.x_q8 = 1;
    REFUSED(RF_E_UNSUPPORTED, "8-bit");
    a.args.x_q8 = 1;
    a.args.x_stride = 96;
    REFUSED(RF_E_UNSUPPORTED, "8-bit activations are dense");
    a.weights.offset_bytes = 34;
    REFUSED(RF_E_INVALID, "weights is at an address that is no multiple of 16");
    a.x.offset_bytes = 4;
    REFUSED(RF_E_INVALID, "x is at an address that is no multiple of 16");
    a.weight_type = RF_F16;
    a.path = RF_MATMUL_DOTS;
    REFUSED(RF_E_UNSUPPORTED, "products of bytes");
    a.args.x_stride = 65;
    REFUSED(RF_E_INVALID, "multiple of 4");
    a.args.x_stride = 60;
    REFUSED(RF_E_INVALID, "stride");
    a.args.out_stride = 2;
    REFUSED(RF_E_INVALID, "stride");
    a.args.n = a.args.out_stride = 1000;
    REFUSED(RF_E_INVALID, "weights takes");
    a.args.m = 20;
    REFUSED(RF_E_INVALID, "x takes");
    a.args.n = a.args.out_stride = UINT64_MAX / 2;
    REFUSED(RF_E_INVALID, "overflow");
    a.out.buffer = x;
    REFUSED(RF_E_INVALID, "out overlaps x");
    a.out.buffer = NULL;
    REFUSED(RF_E_INVALID, "no buffer for out");
    a.gate.buffer = w;
    a.bias.buffer = x;
    REFUSED(RF_E_UNSUPPORTED, "gate");
    a.gate.buffer = w;
    a.path = RF_MATMUL_TILED;
    REFUSED(RF_E_UNSUPPORTED, "tiles");
    a.path = RF_MATMUL_MATRIX;
    REFUSED(RF_E_INVALID, "workspace");
    a.path = RF_MATMUL_WIDE;
    a.workspace.buffer = x;
    REFUSED(RF_E_INVALID, "workspace overlaps x");
    /* A row of x that exceeds a block's shared memory uses another kernel, unless the caller asks for this one. */
    struct rf_buffer *long_row = gpu_buffer(&gpu, (uint64_t)4 << 18);
    a.args.m = a.args.n = 1;
    a.args.k = a.args.x_stride = 1 << 18;
    a.weights.buffer = a.x.buffer = long_row;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &a));
    a.path = RF_MATMUL_DOTS;
    REFUSED(RF_E_UNSUPPORTED, "shared memory");
    RF_ASSERT_OK(rf_buffer_destroy(&long_row));
    a.args.m = 0;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &a));
    a = good;
    a.args.n = 0;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &a));
    a = good;
    a.args.k = 0; /* empty sums */
    a.weights.buffer = NULL;
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &a));
    float zeros[6];
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, zeros, out, 0, sizeof zeros));
    for (int i = 0; i < 6; i++) RF_EXPECT(zeros[i] == 0);
    RF_ASSERT_OK(rf_buffer_destroy(&w));
    RF_ASSERT_OK(rf_buffer_destroy(&x));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* ---- x that was rounded before ---- */

/* Rows from a norm or an activation, written as f32 and rounded by the product, or written as the 16 bits that it
 * rounds to: the product has the same bits, for tiles of both widths and for k in parts. */
static void rounded_before(struct gpu *gpu, enum rf_dtype weight, uint64_t m, uint64_t n, uint64_t k, bool norm) {
    RF_TRACE("%s, %llu x %llu x %llu, %s", rf_dtype_name(weight), (unsigned long long)m, (unsigned long long)n,
             (unsigned long long)k, norm ? "norm" : "activation");
    struct rf_random random = {rf_test_seed() + m};
    enum rf_dtype unit = rf_gpu_matmul_unit(weight);
    uint64_t bytes, out_bytes = m * n * sizeof(float), wanted = 0;
    void *weights = random_weights(&random, weight, n * k, &bytes);
    float *in = malloc(2 * m * k * sizeof *in), *out[2] = {malloc(out_bytes), malloc(out_bytes)};
    rf_random_normals(&random, in, 2 * m * k, 0, 1);
    in[3] = 3e6f; /* f16 does not hold what becomes of it: infinite, both ways */
    struct rf_buffer *on_weights = upload(gpu, weights, bytes), *on_in = upload(gpu, in, 2 * m * k * sizeof *in);
    struct rf_buffer *on_x = gpu_buffer(gpu, m * k * sizeof(float)), *on_out = gpu_buffer(gpu, out_bytes);
    struct rf_operand x = {on_x, 0}, first = {on_in, 0}, second = {on_in, m * k * sizeof(float)};
    for (int narrow = 0; narrow < 2; narrow++) {
        struct rf_norm_args rows = {.rows = m, .columns = k, .eps = 1e-5f};
        struct rf_activation_args sheet = {.rows = m, .columns = k, .out_row = k, .gate_row = k, .up_row = k};
        struct rf_buffer *on_workspace = NULL;
        if (norm)
            RF_ASSERT_OK(narrow ? rf_gpu_rms_norm_to(gpu->queue, unit, x, first, second, &rows)
                                : rf_gpu_rms_norm(gpu->queue, RF_F32, x, first, second, &rows));
        else
            RF_ASSERT_OK(narrow ? rf_gpu_activation_to(gpu->queue, unit, x, first, second, &sheet)
                                : rf_gpu_activation(gpu->queue, RF_F32, x, first, second, &sheet));
        struct rf_gpu_matmul call = {.args = {.m = m, .n = n, .k = k, .x_stride = k, .out_stride = n},
                                     .weight_type = weight,
                                     .type = RF_F32,
                                     .x_type = narrow ? unit : RF_F32,
                                     .out.buffer = on_out,
                                     .weights.buffer = on_weights,
                                     .x = x};
        uint64_t before = wanted;
        RF_ASSERT_OK(rf_gpu_matmul_workspace(&call, &wanted));
        if (narrow) RF_EXPECT_UINT(before - wanted, (m * k * 2 + 255) / 256 * 256);
        if (wanted) call.workspace.buffer = on_workspace = gpu_buffer(gpu, wanted);
        RF_ASSERT_OK(rf_gpu_matmul(gpu->queue, &call));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, out[narrow], on_out, 0, out_bytes));
        RF_ASSERT_OK(rf_buffer_destroy(&on_workspace));
    }
    RF_EXPECT(!memcmp(out[0], out[1], out_bytes));
    struct rf_buffer *buffers[] = {on_weights, on_in, on_x, on_out};
    for (size_t i = 0; i < RF_COUNT(buffers); i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    free(weights);
    free(in);
    free(out[0]);
    free(out[1]);
}
static void all_rounded_before(const char *rfsim) {
    static const enum rf_dtype types[] = {RF_F16, RF_BF16, RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    struct gpu gpu = {0};
    if (rfsim) gpu_need_simulated(rfsim);
    gpu_open(&gpu, NULL);
    if (!rf_gpu_matmul_has_units(gpu.device)) RF_SKIP("no matrix units");
    for (size_t i = 0; i < RF_COUNT(types); i++)
        for (int norm = 0; norm < 2; norm++) {
            rounded_before(&gpu, types[i], 9 + i, 37, 512, norm);
            if (i < 3) rounded_before(&gpu, types[i], 20, 5, 1536, norm); /* k in parts */
        }
    gpu_close(&gpu);
}
RF_TEST(matmul, x_rounded_before_gives_the_same_bits, .gpu = true, .timeout_ms = 600000) {
    all_rounded_before(NULL);
}
RF_TEST(matmul, x_rounded_before_gives_the_same_bits_wave_64, .timeout_ms = 600000) {
    all_rounded_before("arch=gfx942,shuffle=3");
}

RF_TEST(matmul, x_of_16_bits_is_refused_where_nothing_rounds, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *w = gpu_buffer(&gpu, 4096), *x = gpu_buffer(&gpu, 4096), *out = gpu_buffer(&gpu, 4096);
    const struct rf_gpu_matmul good = {.args = {.m = 9, .n = 3, .k = 64, .x_stride = 64, .out_stride = 3},
                                       .weight_type = RF_F16,
                                       .type = RF_F32,
                                       .x_type = RF_F16,
                                       .out.buffer = out,
                                       .weights.buffer = w,
                                       .x.buffer = x};
    struct rf_gpu_matmul a = good;
    a.x_type = RF_BF16;
    REFUSED(RF_E_UNSUPPORTED, "x of");
    a.weight_type = RF_F32;
    REFUSED(RF_E_UNSUPPORTED, "x of");
    a.type = RF_F16;
    REFUSED(RF_E_UNSUPPORTED, "x of");
    a.args.m = 8;
    REFUSED(RF_E_UNSUPPORTED, "many rows");
    a.path = RF_MATMUL_TILED;
    REFUSED(RF_E_UNSUPPORTED, "many rows");
    a.x.offset_bytes = 2;
    REFUSED(RF_E_UNSUPPORTED, "alignments");
    RF_ASSERT_OK(rf_buffer_destroy(&w));
    RF_ASSERT_OK(rf_buffer_destroy(&x));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}
