/* matmul: out[r][c] = sum over i of weights[c][i] * x[r][i] + bias[c] + residual[r][c], for many rows r
 * (struct rf_matmul_args).
 *
 * Products are exact (a weight's value and an activation, both f32); sums are in f32, in the order of k. Weights are
 * dense rows [n, k] of any type (quant.h's rules), x rows of x_stride elements, out and residual rows of out_stride;
 * with a quantized weight x starts at a multiple of 16 bytes and x_stride keeps every row at one. bias and residual
 * may be NULL; residual may be out; otherwise out overlaps nothing.
 * Launch: RF_MATMUL_THREADS threads; a grid of n / 64 by m / 64 blocks, rounded up.
 *
 * matmul_tile_…, matmul_wide_…: the same on the matrix units, where there are any, and matmul_wide_gate_…:
 *   out[r][c] = silu(weights[c] . x[r]) * (gate[c] . x[r]); see matmul_tile.h. With them
 *   matmul_round_<type>   out [m, k], dense, = x rounded to that type; k and x_stride are multiples of 8,
 *                         out and x at multiples of 16 bytes
 *   matmul_join_<type>    out = the sum of partial's planes, f32 [parts, m, n], in their order, + bias + residual
 * These two take any grid in x and y, x along the rows, and any block in x.
 * rf-matrix: matmul_tile_* matmul_wide_* matmul_round_* matmul_join_*
 *
 * A block computes 64 by 64 outputs, a thread 4 by 4 of them, from tiles of 32 elements of k. All threads bring a
 * tile into shared memory, transposed. */
#include "kernels/matmul_tile.h"
#include "kernels/quant.h"

#include "kernels/matmul_args.h"

#define MATMUL_STEP 32
#define MATMUL_PITCH (RF_MATMUL_SIDE + 4) /* rows of a tile at multiples of 16 bytes, off each other's banks */

struct matmul {
    void *out;
    const uint8_t *weights;
    const void *x;
    const float *bias;
    const void *residual;
    struct rf_matmul_args args;
    bool vector; /* float rows may be read 8 elements at a time */
};

/* 8 elements of a float row from element `at` on; zeros past the end. */
RF_DEVICE void matmul_floats(enum rf_type type, bool vector, const void *row, uint64_t at, uint64_t k,
                             float *values) {
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) values[i] = 0.0f;
    if (vector) {
        if (at < k) rf_load_many(type, 8, row, at, values);
    } else {
        RF_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (at + i < k) values[i] = rf_load(type, row, at + i);
    }
}

/* A thread's eight elements of the weights' tile and of the activations'. */
RF_DEVICE void matmul_weights(enum rf_weight weight, const struct matmul *op, uint64_t row, uint64_t at,
                              float *values) {
    const uint8_t *from = op->weights + row * rf_weight_row_bytes(weight, op->args.k);
    if (rf_weight_float(weight)) {
        matmul_floats(rf_weight_type(weight), op->vector, from, at, op->args.k, values);
    } else {
        struct rf_part part = rf_read_part_at(weight, from, at); /* k is a multiple of the block, so of the step */
        rf_part_values(weight, &part, values);
    }
}

RF_DEVICE void matmul_tile(float *tile, uint32_t row, uint32_t group, const float *values) {
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) tile[(group * 8 + i) * MATMUL_PITCH + row] = values[i];
}

RF_DEVICE void matmul_four(const float *tile, uint32_t k, uint32_t first, float *values) {
    rf_load_many(RF_TYPE_F32, 4, tile, k * MATMUL_PITCH + first, values);
}

RF_DEVICE void matmul_body(enum rf_weight weight, enum rf_type type, const struct matmul *op, float *weight_tile,
                           float *x_tile) {
    uint32_t thread = rf_thread_x(), row = thread % RF_MATMUL_SIDE, group = thread / RF_MATMUL_SIDE;
    uint32_t c4 = thread % 16 * 4, r4 = thread / 16 * 4;
    uint64_t c0 = (uint64_t)rf_block_x() * RF_MATMUL_SIDE, r0 = (uint64_t)rf_block_y() * RF_MATMUL_SIDE;
    /* Rows past the end are the last one again: computed, not stored. */
    uint64_t weight_row = rf_min_u64(c0 + row, op->args.n - 1), x_row = rf_min_u64(r0 + row, op->args.m - 1);
    const void *x = rf_at(type, op->x, x_row * op->args.x_stride);
    float sums[4][4];
    RF_UNROLL
    for (uint32_t i = 0; i < 16; i++) sums[i / 4][i % 4] = 0.0f;
    RF_NO_UNROLL
    for (uint64_t step = 0; step < op->args.k; step += MATMUL_STEP) {
        float values[8];
        matmul_weights(weight, op, weight_row, step + group * 8, values);
        matmul_tile(weight_tile, row, group, values);
        matmul_floats(type, op->vector, x, step + group * 8, op->args.k, values);
        matmul_tile(x_tile, row, group, values);
        rf_barrier();
        RF_UNROLL
        for (uint32_t k = 0; k < MATMUL_STEP; k++) {
            float w[4], a[4];
            matmul_four(weight_tile, k, c4, w);
            matmul_four(x_tile, k, r4, a);
            RF_UNROLL
            for (uint32_t i = 0; i < 16; i++) sums[i / 4][i % 4] = rf_fma(a[i / 4], w[i % 4], sums[i / 4][i % 4]);
        }
        rf_barrier();
    }
    RF_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t r = r0 + r4 + i / 4, c = c0 + c4 + i % 4, at = r * op->args.out_stride + c;
        if (r < op->args.m && c < op->args.n) {
            float value = sums[i / 4][i % 4];
            if (op->bias) value += op->bias[c];
            if (op->residual) value += rf_load(type, op->residual, at);
            rf_store(type, op->out, at, value);
        }
    }
}

#define MATMUL(name, weight, type, element)                                                                          \
    RF_KERNEL(matmul_##name, RF_MATMUL_THREADS, (element *, out), (const void *, weights), (const element *, x),     \
              (const float *, bias), (const element *, residual), (struct rf_matmul_args, args)) {                   \
        RF_SHARED(float, weight_tile, MATMUL_STEP *MATMUL_PITCH);                                                    \
        RF_SHARED(float, x_tile, MATMUL_STEP *MATMUL_PITCH);                                                         \
        struct matmul op = {out, (const uint8_t *)weights, x, bias, residual, args, true};                           \
        if (rf_weight_float(weight))                                                                                 \
            op.vector = args.k % 8 == 0 && args.x_stride % 8 == 0 && rf_aligned(weights, 16) && rf_aligned(x, 16);   \
        matmul_body(weight, type, &op, weight_tile, x_tile);                                                         \
    }
#define MATMUL_FLOAT(name, NAME, parts)                                                                              \
    MATMUL(name##_f32, RF_WEIGHT_##NAME, RF_TYPE_F32, float)                                                         \
    MATMUL(name##_f16, RF_WEIGHT_##NAME, RF_TYPE_F16, rf_f16)                                                        \
    MATMUL(name##_bf16, RF_WEIGHT_##NAME, RF_TYPE_BF16, rf_bf16)
#define MATMUL_QUANT(name, NAME, parts) MATMUL(name##_f32, RF_WEIGHT_##NAME, RF_TYPE_F32, float)

RF_EACH_FLOAT_WEIGHT(MATMUL_FLOAT)
RF_EACH_QUANT_WEIGHT(MATMUL_QUANT)

#ifndef RF_TILE_ABSENT
#if RF_COPY_ASYNC
#define MATMUL_STAGES(width) RF_SHARED_DYNAMIC(uint16_t, tiles)
#else
#define MATMUL_STAGES(width) RF_SHARED(uint16_t, tiles, 2 * TILE_STAGE(width))
#endif
#define MATMUL_MATRIX(name, width, unit, type, element)                                                              \
    RF_KERNEL(matmul_##name, RF_MATMUL_THREADS, (element *, out), (const uint16_t *, weights),                       \
              (const uint16_t *, x), (const float *, bias), (const element *, residual), (float *, partial),         \
              (struct rf_matmul_args, args), (struct rf_matmul_split, split)) {                                      \
        MATMUL_STAGES(width);                                                                                        \
        struct tile_launch launch = {out, weights, (const uint16_t *)0, x, bias, residual, partial, args, split};    \
        tile_kernel(unit, type, width, false, &launch, tiles);                                                       \
    }
#define MATMUL_MATRIX_EACH(kind, width)                                                                              \
    MATMUL_MATRIX(kind##_f16_f16, width, RF_TYPE_F16, RF_TYPE_F16, rf_f16)                                           \
    MATMUL_MATRIX(kind##_f16_f32, width, RF_TYPE_F16, RF_TYPE_F32, float)                                            \
    MATMUL_MATRIX(kind##_bf16_bf16, width, RF_TYPE_BF16, RF_TYPE_BF16, rf_bf16)                                      \
    MATMUL_MATRIX(kind##_bf16_f32, width, RF_TYPE_BF16, RF_TYPE_F32, float)

MATMUL_MATRIX_EACH(tile, RF_MATMUL_TILE_NARROW)
MATMUL_MATRIX_EACH(wide, RF_MATMUL_TILE_WIDE)

#define MATMUL_GATED(name, unit, type, element)                                                                      \
    RF_KERNEL(matmul_wide_gate_##name, RF_MATMUL_THREADS, (element *, out), (const uint16_t *, weights),             \
              (const uint16_t *, gate), (const uint16_t *, x), (struct rf_matmul_args, args),                        \
              (struct rf_matmul_split, split)) {                                                                     \
        MATMUL_STAGES(RF_MATMUL_TILE_WIDE);                                                                          \
        struct tile_launch launch = {out,        weights, gate, x, (const float *)0, (const void *)0,                \
                                     (float *)0, args,    split};                                                    \
        tile_kernel(unit, type, RF_MATMUL_TILE_WIDE, true, &launch, tiles);                                          \
    }
MATMUL_GATED(f16_f16, RF_TYPE_F16, RF_TYPE_F16, rf_f16)
MATMUL_GATED(f16_f32, RF_TYPE_F16, RF_TYPE_F32, float)
MATMUL_GATED(bf16_bf16, RF_TYPE_BF16, RF_TYPE_BF16, rf_bf16)
MATMUL_GATED(bf16_f32, RF_TYPE_BF16, RF_TYPE_F32, float)

RF_DEVICE void matmul_round_body(enum rf_type type, uint16_t *out, const float *x, struct rf_matmul_args args) {
    uint64_t m = args.m, k = args.k, x_stride = args.x_stride;
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < m; row += rf_grid_dim_y()) RF_NO_UNROLL
    for (uint64_t at = rf_global_x() * 8; at < k; at += rf_global_count_x() * 8) {
        float values[8];
        rf_load_many(RF_TYPE_F32, 8, x, row * x_stride + at, values);
        rf_store_many(type, 8, out, row * k + at, values);
    }
}
#define MATMUL_ROUND(name, type)                                                                                     \
    RF_KERNEL(matmul_round_##name, RF_MATMUL_THREADS, (uint16_t *, out), (const float *, x),                         \
              (struct rf_matmul_args, args)) {                                                                       \
        matmul_round_body(type, out, x, args);                                                                       \
    }
MATMUL_ROUND(f16, RF_TYPE_F16)
MATMUL_ROUND(bf16, RF_TYPE_BF16)

RF_DEVICE void matmul_join_body(enum rf_type type, void *out, const float *partial, const float *bias,
                                const void *residual, struct rf_matmul_args args, uint32_t parts) {
    uint64_t m = args.m, n = args.n, out_stride = args.out_stride;
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < m; row += rf_grid_dim_y()) RF_NO_UNROLL
    for (uint64_t column = rf_global_x(); column < n; column += rf_global_count_x()) {
        float value = 0.0f;
        for (uint32_t part = 0; part < parts; part++) value += partial[(part * m + row) * n + column];
        if (bias) value += bias[column];
        if (residual) value += rf_load(type, residual, row * out_stride + column);
        rf_store(type, out, row * out_stride + column, value);
    }
}
#define MATMUL_JOIN(name, type, element)                                                                             \
    RF_KERNEL(matmul_join_##name, RF_MATMUL_THREADS, (element *, out), (const float *, partial),                     \
              (const float *, bias), (const element *, residual), (struct rf_matmul_args, args),                     \
              (struct rf_matmul_split, split)) {                                                                     \
        matmul_join_body(type, out, partial, bias, residual, args, split.parts);                                     \
    }
MATMUL_JOIN(f32, RF_TYPE_F32, float)
MATMUL_JOIN(f16, RF_TYPE_F16, rf_f16)
MATMUL_JOIN(bf16, RF_TYPE_BF16, rf_bf16)
#endif
