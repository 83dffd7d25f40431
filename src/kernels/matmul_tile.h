/* matmul_tile: matmul (matmul.hip says what it computes) on the matrix units.
 *
 * The units take 16-bit operands: weights and activations are rounded to bf16 where the weights are bf16, else
 * to f16; products are exact then, sums f32. Nothing is rounded where both are of that type already.
 * Layout as for matmul.hip, and: k and x_stride are multiples of 8, weights and x start at multiples of 16 bytes.
 * Not for devices without matrix units (RF_TILE_ABSENT): there the kernels do not exist.
 * Launch: 256 threads; a grid of n / 128 by m / 128 blocks, rounded up.
 *
 * A block computes 128 by 128 outputs, a wave 64 rows of 32 or 64 of them. The k goes by in steps of 32: while
 * the waves multiply one step's tiles, the next step's are on their way, into registers (where they
 * are decoded or rounded) or, of the right type already, into shared memory itself. */
#ifndef RF_KERNELS_MATMUL_TILE_H
#define RF_KERNELS_MATMUL_TILE_H

#include "kernels/quant.h"
#include "kernels/tile.h"

#ifndef RF_TILE_ABSENT

#define TILE_SIDE 128
#define TILE_STEP 32
#define TILE_PITCH (TILE_STEP + 8) /* in elements: rows at multiples of 16 bytes, eight of them on all banks */
#define TILE_WORDS (TILE_SIDE * TILE_PITCH)
#define TILE_THREADS 256
#define TILE_GROUPS (TILE_SIDE * TILE_STEP / 8 / TILE_THREADS) /* of 8 elements: a thread's share of a tile */
#define TILE_WAVES (TILE_THREADS / RF_WAVE)
#define TILE_LEFTS 4                                    /* 16 rows each: a wave's 64 */
#define TILE_RIGHTS (TILE_SIDE / (TILE_WAVES / 2) / 16) /* 16 columns each */

struct tile_op {
    const uint8_t *weights;
    const void *x;
    const float *bias;
    const void *residual;
    void *out;
    uint64_t m, n, k, x_stride, out_stride;
};
/* A thread's share of a tile, as 16-bit elements. */
struct tile_share {
    rf_u32x4 group[TILE_GROUPS];
};

RF_DEVICE rf_u32x4 tile_pack(enum rf_type unit, const float *values) {
    rf_u32x4 words = {rf_tile_pack(unit, values[0], values[1]), rf_tile_pack(unit, values[2], values[3]),
                      rf_tile_pack(unit, values[4], values[5]), rf_tile_pack(unit, values[6], values[7])};
    return words;
}
/* 8 elements of a float row. */
RF_DEVICE rf_u32x4 tile_floats(enum rf_type type, enum rf_type unit, const void *row, uint64_t at, uint64_t k) {
    rf_u32x4 zeros = {0, 0, 0, 0};
    if (at >= k) return zeros;
    if (type == unit) return rf_load_16(rf_at(type, row, at));
    float values[8];
    rf_load_many(type, 8, row, at, values);
    return tile_pack(unit, values);
}

/* Which group of a tile a thread's i-th is: four lanes take a row's 32 elements. */
RF_DEVICE uint32_t tile_row(uint32_t i) {
    return (rf_thread_x() + i * TILE_THREADS) / 4;
}
RF_DEVICE uint32_t tile_column(void) {
    return rf_thread_x() % 4 * 8;
}

RF_DEVICE const uint8_t *tile_weight_row(enum rf_weight weight, const struct tile_op *op, uint64_t c0, uint32_t i) {
    return op->weights + rf_min_u64(c0 + tile_row(i), op->n - 1) * rf_weight_row_bytes(weight, op->k);
}
RF_DEVICE const void *tile_x_row(enum rf_type type, const struct tile_op *op, uint64_t r0, uint32_t i) {
    return rf_at(type, op->x, rf_min_u64(r0 + tile_row(i), op->m - 1) * op->x_stride);
}

RF_DEVICE void tile_fetch(enum rf_weight weight, enum rf_type type, enum rf_type unit, const struct tile_op *op,
                          uint64_t c0, uint64_t r0, uint64_t step, struct tile_share *weights, struct tile_share *x) {
    uint64_t at = step + tile_column();
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_GROUPS; i++) {
        const uint8_t *row = tile_weight_row(weight, op, c0, i);
        if (rf_weight_float(weight)) {
            weights->group[i] = tile_floats(rf_weight_type(weight), unit, row, at, op->k);
        } else {
            float values[8];
            struct rf_part part = rf_read_part_at(weight, row, at); /* k is a multiple of the step */
            rf_part_values(weight, &part, values);
            weights->group[i] = tile_pack(unit, values);
        }
        x->group[i] = tile_floats(type, unit, tile_x_row(type, op, r0, i), at, op->k);
    }
}
RF_DEVICE void tile_put(uint16_t *tile, const struct tile_share *share) {
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_GROUPS; i++)
        rf_store_16(tile + tile_row(i) * TILE_PITCH + tile_column(), share->group[i]);
}
/* Straight to shared memory: operands of the units' type. */
RF_DEVICE void tile_copy(enum rf_weight weight, enum rf_type type, const struct tile_op *op, uint64_t c0, uint64_t r0,
                         uint64_t step, uint16_t *weight_tile, uint16_t *x_tile) {
    uint64_t at = step + tile_column();
    bool there = at < op->k;
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_GROUPS; i++) {
        uint32_t to = tile_row(i) * TILE_PITCH + tile_column();
        rf_copy_16(weight_tile + to, rf_at(type, tile_weight_row(weight, op, c0, i), there ? at : 0), there);
        rf_copy_16(x_tile + to, rf_at(type, tile_x_row(type, op, r0, i), there ? at : 0), there);
    }
    rf_copy_batch();
}

RF_DEVICE void tile_multiply(enum rf_type unit, const uint16_t *weight_tile, const uint16_t *x_tile, uint32_t row,
                             uint32_t column, struct rf_sums (*sums)[TILE_RIGHTS]) {
    RF_TILE_UNROLL
    for (uint32_t k = 0; k < TILE_STEP; k += 16) {
        struct rf_left left[TILE_LEFTS];
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < TILE_LEFTS; i++)
            left[i] = rf_left_load(x_tile + (row + 16 * i) * TILE_PITCH + k, TILE_PITCH);
        RF_TILE_UNROLL
        for (uint32_t j = 0; j < TILE_RIGHTS; j++) {
            struct rf_right right = rf_right_load_lines(weight_tile + (column + 16 * j) * TILE_PITCH + k, TILE_PITCH);
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < TILE_LEFTS; i++) rf_tile_multiply(unit, &sums[i][j], &left[i], &right);
        }
    }
}

RF_DEVICE void tile_store(enum rf_type type, const struct tile_op *op, uint64_t row, uint64_t column,
                          const struct rf_sums *sums) {
    RF_UNROLL
    for (uint32_t r = 0; r < RF_SUM_ROWS; r++) RF_UNROLL
    for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
        uint64_t to_row = row + rf_sum_row(r), to_column = column + rf_sum_column(c);
        uint64_t at = to_row * op->out_stride + to_column;
        if (to_row < op->m && to_column < op->n) {
            float value = sums->value[rf_sum_index(r, c)];
            if (op->bias) value += op->bias[to_column];
            if (op->residual) value += rf_load(type, op->residual, at);
            rf_store(type, op->out, at, value);
        }
    }
}

RF_DEVICE void tile_body(enum rf_weight weight, enum rf_type type, const struct tile_op *op, uint16_t *tiles) {
    enum rf_type unit = weight == RF_WEIGHT_BF16 ? RF_TYPE_BF16 : RF_TYPE_F16;
    bool direct = rf_weight_float(weight) && rf_weight_type(weight) == unit && type == unit;
    uint64_t c0 = (uint64_t)rf_block_x() * TILE_SIDE, r0 = (uint64_t)rf_block_y() * TILE_SIDE;
    uint32_t wave = rf_thread_x() / RF_WAVE, row = wave % 2 * 64, column = wave / 2 * (TILE_RIGHTS * 16);
    struct rf_sums sums[TILE_LEFTS][TILE_RIGHTS];
    struct tile_share weights, x;
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_LEFTS; i++) RF_UNROLL
    for (uint32_t j = 0; j < TILE_RIGHTS; j++) RF_UNROLL
    for (uint32_t v = 0; v < RF_SUM_COUNT; v++) sums[i][j].value[v] = 0.0f;
    if (direct) {
        tile_copy(weight, type, op, c0, r0, 0, tiles, tiles + TILE_WORDS);
        rf_copied(0);
    } else if (op->k) {
        tile_fetch(weight, type, unit, op, c0, r0, 0, &weights, &x);
        tile_put(tiles, &weights);
        tile_put(tiles + TILE_WORDS, &x);
    }
    rf_barrier();
    uint32_t turn = 0;
    RF_NO_UNROLL
    for (uint64_t step = 0; step < op->k; step += TILE_STEP, turn ^= 1) {
        uint16_t *now = tiles + turn * 2 * TILE_WORDS, *next = tiles + (turn ^ 1) * 2 * TILE_WORDS;
        bool more = step + TILE_STEP < op->k;
        if (more && direct) tile_copy(weight, type, op, c0, r0, step + TILE_STEP, next, next + TILE_WORDS);
        if (more && !direct) tile_fetch(weight, type, unit, op, c0, r0, step + TILE_STEP, &weights, &x);
        tile_multiply(unit, now, now + TILE_WORDS, row, column, sums);
        if (more && !direct) {
            tile_put(next, &weights);
            tile_put(next + TILE_WORDS, &x);
        }
        if (direct) rf_copied(0);
        rf_barrier();
    }
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_LEFTS; i++) RF_UNROLL
    for (uint32_t j = 0; j < TILE_RIGHTS; j++)
        tile_store(type, op, r0 + row + 16 * i, c0 + column + 16 * j, &sums[i][j]);
}

#endif /* RF_TILE_ABSENT */
#endif
