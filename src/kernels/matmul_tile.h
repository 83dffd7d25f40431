/* matmul_tile, matmul_wide: matmul (matmul.hip says what it computes) on the matrix units. matmul_wide_gate:
 * matmul_gate.
 *
 * The units take 16-bit operands: weights and x are f16 or bf16 here, both of one type. Other types are rounded or
 * decoded to that first (matmul_round, dequantize): once, instead of in every tile. Products are exact, sums are f32.
 * Rows of weights (dense) and of x are multiples of 8 elements and start at multiples of 16 bytes; k is below 2^31.
 * Devices without matrix units (RF_TILE_ABSENT) do not have these kernels.
 *
 * Launch: RF_MATMUL_THREADS threads; a grid of n / 128 (matmul_wide: n / 256) by m / 128 blocks, rounded up, fewer
 * than RF_MATMUL_TILE_BLOCKS_MAX. In z k is split (struct rf_matmul_split): each block takes `depth` of it. Where
 * partial is given, plane z of it, f32 [m, n], gets the sums of part z and nothing else is written: matmul_join adds
 * the planes in their order. Without it there is one part.
 * Shared memory: on NVIDIA `stages` times RF_MATMUL_TILE_ROWS + 128 or 256 rows of RF_MATMUL_TILE_LINE_BYTES come
 * with the launch; elsewhere it is the kernel's own and stages is not read.
 *
 * matmul_wide_gate is matmul_wide with half of a wave's columns from the weights and half from the gate: one pass
 * over x, and a wave has both sums of an output. It takes neither bias nor residual, its k has one part, and its grid
 * in x is n / 128.
 *
 * A block computes 128 by 128 or 256 outputs, a wave 64 rows of some of them. Where copies are asynchronous, some
 * stages of k are on their way while one is multiplied, and a wave loads its operands one turn ahead of their
 * product. The narrow tile then has its waves in two slices of k, since a wave needs 64 by 64 outputs to have more to
 * multiply than to load. Elsewhere the next stage passes through registers. */
#ifndef RF_KERNELS_MATMUL_TILE_H
#define RF_KERNELS_MATMUL_TILE_H

#include "kernels/tile.h"

#include "kernels/matmul_args.h"

#ifndef RF_TILE_ABSENT

#if RF_MATMUL_TILE_DEPTH % RF_LINE || (RF_COPY_ASYNC && RF_LINE_PITCH * 2 != RF_MATMUL_TILE_LINE_BYTES)
#error "the tiles of tile.h are not those of matmul_args.h"
#endif
#define TILE_WAVES (RF_MATMUL_THREADS / RF_WAVE)
#define TILE_LEFTS 4      /* 16 rows each: a wave's 64 */
#define TILE_RIGHTS_MAX 8 /* 16 columns each */
#define TILE_BAND 8       /* rows of blocks that run side by side and share a cache */

#define TILE_GROUPS (RF_LINE / 8)                    /* of a row */
#define TILE_SWEEP (RF_MATMUL_THREADS / TILE_GROUPS) /* rows that all threads bring at once */
#define TILE_ROUNDS(width) (((width) + RF_MATMUL_TILE_ROWS) / TILE_SWEEP)
#define TILE_STAGE(width) (((width) + RF_MATMUL_TILE_ROWS) * RF_LINE_PITCH)
#define TILE_PITCH(width) (tile_rights(width) * 16 + 8) /* of rows of sums in shared memory */

RF_DEVICE uint32_t tile_slices(uint32_t width) {
    return RF_COPY_ASYNC && width == RF_MATMUL_TILE_NARROW ? 2 : 1;
}
RF_DEVICE uint32_t tile_wave_columns(uint32_t width) {
    return TILE_WAVES / 2 / tile_slices(width);
}
RF_DEVICE uint32_t tile_rights(uint32_t width) {
    return width / tile_wave_columns(width) / 16;
}

struct tile_op {
    const uint16_t *weights, *x; /* of the block's first column and row, and of its part of k */
    const float *bias;
    const void *residual;
    void *out;
    uint64_t weight_stride, x_stride, out_stride;
    uint64_t r0, c0;        /* the block's first row and column */
    uint32_t depth;         /* of k */
    uint32_t rows, columns; /* of the block that exist */
    bool whole;             /* all of the block's outputs exist and four neighbours may be written at once */
    bool part;              /* out is f32 whatever the kernel's type */
    bool gated;             /* a constant */
    int64_t gate;           /* elements from the weights to the gate */
};
struct tile_wave {
    uint32_t row, column, slice; /* of the tile */
};
struct tile_operands {
    struct rf_left left[TILE_LEFTS];
    struct rf_right right[TILE_RIGHTS_MAX];
};

/* ---- memory to shared memory ---- */

/* With a gate the columns of a wave are TILE_HALF of the weights', then as many of the gate's. A thread brings the
 * row `thread` of each sweep, below TILE_SWEEP; sweep number `sweep`, a constant, is of the tile's weights. Whether
 * that row is one of the gate, and which: a part that depends on the thread, and a constant. */
#define TILE_HALF(width) (tile_rights(width) * 8)
RF_DEVICE bool tile_of_gate(uint32_t width, uint32_t thread, uint32_t sweep) {
    const uint32_t half = TILE_HALF(width);
    return TILE_SWEEP <= half ? sweep / (half / TILE_SWEEP) % 2 : thread / half % 2;
}
RF_DEVICE uint32_t tile_gated_row(uint32_t width, uint32_t thread) {
    const uint32_t half = TILE_HALF(width);
    return TILE_SWEEP <= half ? thread : thread / (2 * half) * half + thread % half;
}
RF_DEVICE uint32_t tile_gated_step(uint32_t width, uint32_t sweep) {
    const uint32_t half = TILE_HALF(width);
    if (TILE_SWEEP > half) return sweep * (TILE_SWEEP / 2);
    return sweep / (2 * half / TILE_SWEEP) * half + sweep % (half / TILE_SWEEP) * TILE_SWEEP;
}
#define TILE_X_SWEEPS (RF_MATMUL_TILE_ROWS / TILE_SWEEP)

/* A thread copies groups of 8 elements. Number i of them, a constant: whether it exists, where it lies in memory and
 * in its stage. In a stage the rows of x come first, then those of the weights. */
RF_DEVICE bool tile_there(const struct tile_op *op, uint32_t i, uint32_t k) {
    uint32_t row = rf_thread_x() / TILE_GROUPS + i * TILE_SWEEP;
    if (op->gated && i >= TILE_X_SWEEPS)
        return k < op->depth && tile_gated_row(RF_MATMUL_TILE_WIDE, rf_thread_x() / TILE_GROUPS) +
                                        tile_gated_step(RF_MATMUL_TILE_WIDE, i - TILE_X_SWEEPS) <
                                    op->columns;
    return k < op->depth && (i < TILE_X_SWEEPS ? row < op->rows : row - RF_MATMUL_TILE_ROWS < op->columns);
}
RF_DEVICE const uint16_t *tile_from(const struct tile_op *op, uint32_t i, uint32_t k) {
    uint32_t row = rf_thread_x() / TILE_GROUPS;
    if (i < TILE_X_SWEEPS) return op->x + (row * op->x_stride + k) + i * (TILE_SWEEP * op->x_stride);
    if (op->gated)
        return op->weights + (tile_gated_row(RF_MATMUL_TILE_WIDE, row) * op->weight_stride + k) +
               tile_gated_step(RF_MATMUL_TILE_WIDE, i - TILE_X_SWEEPS) * op->weight_stride +
               (tile_of_gate(RF_MATMUL_TILE_WIDE, row, i - TILE_X_SWEEPS) ? op->gate : 0);
    return op->weights + (row * op->weight_stride + k) + (i - TILE_X_SWEEPS) * (TILE_SWEEP * op->weight_stride);
}
RF_DEVICE uint32_t tile_to(uint32_t i) {
    return rf_line_at(rf_thread_x() / TILE_GROUPS, rf_thread_x() % TILE_GROUPS) + i * (TILE_SWEEP * RF_LINE_PITCH);
}
RF_DEVICE uint32_t tile_k(uint32_t step) {
    return step * RF_LINE + rf_thread_x() % TILE_GROUPS * 8;
}
/* Some of a thread's groups, from `first` on. */
RF_DEVICE void tile_copy(const struct tile_op *op, uint32_t step, uint16_t *stage, uint32_t first, uint32_t count) {
    uint32_t k = tile_k(step);
    RF_UNROLL
    for (uint32_t i = first; i < first + count; i++)
        rf_copy_16(stage + tile_to(i), tile_from(op, i, k), tile_there(op, i, k));
}

/* ---- shared memory to sums ---- */

RF_DEVICE void tile_load(uint32_t width, const uint16_t *stage, const struct tile_wave *wave, uint32_t k,
                         struct tile_operands *operands) {
    const uint16_t *weights = stage + RF_MATMUL_TILE_ROWS * RF_LINE_PITCH;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < TILE_LEFTS; i++) operands->left[i] = rf_left_lines(stage, wave->row + 16 * i, k);
    RF_TILE_UNROLL
    for (uint32_t j = 0; j < tile_rights(width); j++)
        operands->right[j] = rf_right_lines(weights, wave->column + 16 * j, k);
}
RF_DEVICE void tile_multiply(enum rf_type unit, uint32_t width, const struct tile_operands *operands,
                             struct rf_sums (*sums)[TILE_RIGHTS_MAX]) {
    RF_TILE_UNROLL
    for (uint32_t j = 0; j < tile_rights(width); j++) RF_TILE_UNROLL
    for (uint32_t i = 0; i < TILE_LEFTS; i++)
        rf_tile_multiply(unit, &sums[i][j], &operands->left[i], &operands->right[j]);
}

/* With asynchronous copies. A turn is 16 elements of k. At the last turn of a step all waves have loaded what they
 * need of its stage: behind that barrier it may be filled again, which the next step does. */
RF_DEVICE void tile_pipeline(enum rf_type unit, uint32_t width, const struct tile_op *op,
                             const struct tile_wave *wave, uint16_t *tiles, uint32_t stages,
                             struct rf_sums (*sums)[TILE_RIGHTS_MAX]) {
    const uint32_t turns = RF_LINE / 16 / tile_slices(width), each = TILE_ROUNDS(width) / (turns - 1);
    uint32_t steps = (op->depth + RF_LINE - 1) / RF_LINE, first = wave->slice * turns * 16;
    struct tile_operands operands[2];
    RF_NO_UNROLL
    for (uint32_t s = 0; s + 1 < stages; s++) {
        tile_copy(op, s, tiles + s * TILE_STAGE(width), 0, TILE_ROUNDS(width));
        rf_copy_batch();
    }
    rf_copied(stages - 2);
    rf_barrier();
    uint16_t *now = tiles, *fill = tiles + (stages - 1) * TILE_STAGE(width), *end = fill;
    tile_load(width, now, wave, first, &operands[0]);
    RF_NO_UNROLL
    for (uint32_t step = 0; step < steps; step++) {
        RF_UNROLL
        for (uint32_t turn = 0; turn < turns; turn++) {
            if (turn + 1 == turns) {
                rf_copy_batch();
                rf_copied(stages - 2);
                rf_barrier();
                fill = now;
                now = now == end ? tiles : now + TILE_STAGE(width);
            }
            /* Behind the last step this loads what is never used. */
            tile_load(width, now, wave, first + (turn + 1) % turns * 16, &operands[(turn + 1) % 2]);
            if (turn + 1 < turns) tile_copy(op, step + stages - 1, fill, turn * each, each);
            tile_multiply(unit, width, &operands[turn % 2], sums);
        }
    }
    rf_copied(0);
}

/* Through registers, which hold the next stage's groups while this one's are multiplied. Rows past the end are the
 * last one again, whose sums are not stored; elements past the end of k become zeros when they leave the registers.
 */
RF_DEVICE void tile_fetch(uint32_t width, const struct tile_op *op, uint32_t step, rf_u32x4 *groups) {
    uint32_t k = tile_k(step);
    if (k >= op->depth) k = 0;
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_ROUNDS(width); i++) {
        uint32_t row = rf_thread_x() / TILE_GROUPS + i * TILE_SWEEP, last;
        if (i < TILE_X_SWEEPS) {
            last = op->rows - 1;
            groups[i] = rf_load_16(op->x + ((row < last ? row : last) * op->x_stride + k));
        } else if (op->gated) {
            uint32_t thread = rf_thread_x() / TILE_GROUPS, sweep = i - TILE_X_SWEEPS;
            const uint16_t *from = op->weights + (tile_of_gate(width, thread, sweep) ? op->gate : 0);
            row = tile_gated_row(width, thread) + tile_gated_step(width, sweep);
            last = op->columns - 1;
            groups[i] = rf_load_16(from + ((row < last ? row : last) * op->weight_stride + k));
        } else {
            row -= RF_MATMUL_TILE_ROWS;
            last = op->columns - 1;
            groups[i] = rf_load_16(op->weights + ((row < last ? row : last) * op->weight_stride + k));
        }
    }
}
RF_DEVICE void tile_put(uint32_t width, const struct tile_op *op, uint32_t step, uint16_t *stage,
                        const rf_u32x4 *groups) {
    bool there = tile_k(step) < op->depth;
    rf_u32x4 zeros = {0, 0, 0, 0};
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_ROUNDS(width); i++) rf_store_16(stage + tile_to(i), there ? groups[i] : zeros);
}
RF_DEVICE void tile_by_registers(enum rf_type unit, uint32_t width, const struct tile_op *op,
                                 const struct tile_wave *wave, uint16_t *tiles,
                                 struct rf_sums (*sums)[TILE_RIGHTS_MAX]) {
    uint32_t steps = (op->depth + RF_LINE - 1) / RF_LINE;
    rf_u32x4 groups[TILE_ROUNDS(RF_MATMUL_TILE_WIDE)];
    tile_fetch(width, op, 0, groups);
    tile_put(width, op, 0, tiles, groups);
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t step = 0; step < steps; step++) {
        const uint16_t *now = tiles + step % 2 * TILE_STAGE(width),
                       *weights = now + RF_MATMUL_TILE_ROWS * RF_LINE_PITCH;
        tile_fetch(width, op, step + 1,
                   groups); /* at the last step too, unused: a branch would let products sink below it */
        RF_TILE_UNROLL
        for (uint32_t k = 0; k < RF_LINE; k += 16) {
            struct rf_left left[TILE_LEFTS];
            rf_tile_fence();
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < TILE_LEFTS; i++) left[i] = rf_left_lines(now, wave->row + 16 * i, k);
            RF_TILE_UNROLL
            for (uint32_t j = 0; j < tile_rights(width); j++) {
                struct rf_right right = rf_right_lines(weights, wave->column + 16 * j, k);
                RF_TILE_UNROLL
                for (uint32_t i = 0; i < TILE_LEFTS; i++) rf_tile_multiply(unit, &sums[i][j], &left[i], &right);
            }
        }
        rf_tile_fence();
        tile_put(width, op, step + 1, tiles + (step + 1) % 2 * TILE_STAGE(width), groups);
        rf_barrier();
    }
}

/* ---- sums to memory ---- */

/* Rows of 16 of a wave pass through shared memory, so that a lane has four neighbours of a row and lanes beside it
 * the next ones; a lane's columns are the same in all rows. */
RF_DEVICE void tile_four(enum rf_type type, const struct tile_op *op, uint64_t at, const float *bias, float *values) {
    float add[4];
    RF_UNROLL
    for (uint32_t e = 0; e < 4; e++) values[e] += bias[e];
    if (op->residual) {
        rf_load_many(type, 4, op->residual, at, add);
        RF_UNROLL
        for (uint32_t e = 0; e < 4; e++) values[e] += add[e];
    }
}
RF_DEVICE void tile_rows_whole(enum rf_type type, uint32_t width, const struct tile_op *op, const float *from,
                               uint32_t row, uint32_t column, const float *bias) {
    const uint32_t lanes = tile_rights(width) * 4, step = RF_WAVE / lanes, rounds = 16 / step;
    float values[8][4]; /* rounds, at most */
    uint64_t at = (op->r0 + row) * op->out_stride + op->c0 + column;
    RF_UNROLL
    for (uint32_t t = 0; t < rounds; t++) {
        rf_load_many(RF_TYPE_F32, 4, from, t * step * TILE_PITCH(width), values[t]);
        tile_four(type, op, at + t * step * op->out_stride, bias, values[t]);
    }
    RF_UNROLL
    for (uint32_t t = 0; t < rounds; t++) rf_store_many(type, 4, op->out, at + t * step * op->out_stride, values[t]);
}
RF_DEVICE void tile_rows_some(enum rf_type type, uint32_t width, const struct tile_op *op, const float *from,
                              uint32_t row, uint32_t column, const float *bias) {
    const uint32_t step = RF_WAVE / (tile_rights(width) * 4);
    RF_NO_UNROLL
    for (uint32_t t = 0; t < 16; t += step) {
        uint64_t at = (op->r0 + row + t) * op->out_stride + op->c0 + column;
        RF_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (row + t < op->rows && column + e < op->columns) {
                float value = from[t * TILE_PITCH(width) + e] + bias[e];
                if (op->residual) value += rf_load(type, op->residual, at + e);
                rf_store(type, op->out, at + e, value);
            }
    }
}
RF_DEVICE void tile_rows(enum rf_type type, uint32_t width, const struct tile_op *op, const float *from, uint32_t row,
                         uint32_t column, const float *bias) {
    if (op->whole)
        tile_rows_whole(type, width, op, from, row, column, bias);
    else
        tile_rows_some(type, width, op, from, row, column, bias);
}
/* As activation.hip computes it. */
RF_DEVICE float tile_silu(float x) {
    float y = x * rf_rcp(1.0f + rf_exp(-x));
    return x == -RF_INFINITY ? 0.0f : y;
}
/* With a gate: column is that of the output. */
RF_DEVICE void tile_rows_gated(enum rf_type type, uint32_t width, const struct tile_op *op, const float *from,
                               uint32_t row, uint32_t column) {
    const uint32_t step = RF_WAVE / (TILE_HALF(width) / 4);
    RF_UNROLL
    for (uint32_t t = 0; t < 16; t += step) {
        float values[4], gate[4];
        uint64_t at = (op->r0 + row + t) * op->out_stride + op->c0 + column;
        rf_load_many(RF_TYPE_F32, 4, from, t * TILE_PITCH(width), values);
        rf_load_many(RF_TYPE_F32, 4, from, t * TILE_PITCH(width) + TILE_HALF(width), gate);
        RF_UNROLL
        for (uint32_t e = 0; e < 4; e++) values[e] = tile_silu(values[e]) * gate[e];
        if (op->whole) {
            rf_store_many(type, 4, op->out, at, values);
        } else {
            RF_UNROLL
            for (uint32_t e = 0; e < 4; e++)
                if (row + t < op->rows && column + e < op->columns) rf_store(type, op->out, at + e, values[e]);
        }
    }
}
/* The first `count` of a wave's lefts, a constant. scratch: 16 rows for each wave. */
RF_DEVICE void tile_finish(enum rf_type type, uint32_t width, const struct tile_op *op, const struct tile_wave *wave,
                           const struct rf_sums (*sums)[TILE_RIGHTS_MAX], uint32_t count, float *scratch) {
    const uint32_t lanes = op->gated ? TILE_HALF(width) / 4 : tile_rights(width) * 4;
    uint32_t row = rf_lane() / lanes, column = rf_lane() % lanes * 4;
    float bias[4], *mine = scratch + rf_thread_x() / RF_WAVE * (16 * TILE_PITCH(width));
    RF_UNROLL
    for (uint32_t e = 0; e < 4; e++)
        bias[e] =
            op->bias && wave->column + column + e < op->columns ? op->bias[op->c0 + wave->column + column + e] : 0.0f;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < count; i++) {
        rf_barrier();
        RF_TILE_UNROLL
        for (uint32_t j = 0; j < tile_rights(width); j++) RF_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) RF_UNROLL
        for (uint32_t c = 0; c < RF_SUM_COLUMNS; c += 1 + RF_SUM_PAIRS) {
            float *to = mine + rf_sum_row(r) * TILE_PITCH(width) + 16 * j + rf_sum_column(c);
            const float *value = sums[i][j].value;
            if (RF_SUM_PAIRS) {
                rf_u32x2 two = {rf_bits_of_f32(value[rf_sum_index(r, c)]),
                                rf_bits_of_f32(value[rf_sum_index(r, c + RF_SUM_PAIRS)])};
                rf_store_8(to, two);
            } else {
                *to = value[rf_sum_index(r, c)];
            }
        }
        rf_barrier();
        const float *from = mine + row * TILE_PITCH(width) + column;
        if (op->gated)
            tile_rows_gated(type, width, op, from, wave->row + 16 * i + row, wave->column / 2 + column);
        else if (type != RF_TYPE_F32 && op->part)
            tile_rows(RF_TYPE_F32, width, op, from, wave->row + 16 * i + row, wave->column + column, bias);
        else
            tile_rows(type, width, op, from, wave->row + 16 * i + row, wave->column + column, bias);
    }
}
/* Two lefts of a wave, to the wave of the other slice or from it: a lane's sums lie RF_WAVE floats apart. */
RF_DEVICE void tile_exchange(uint32_t width, bool give, float *scratch, uint32_t wave, uint32_t first,
                             struct rf_sums (*sums)[TILE_RIGHTS_MAX]) {
    scratch += wave * (2 * tile_rights(width) * RF_SUM_COUNT * RF_WAVE) + rf_lane();
    RF_UNROLL
    for (uint32_t i = 0; i < 2; i++) RF_UNROLL
    for (uint32_t j = 0; j < tile_rights(width); j++) RF_UNROLL
    for (uint32_t v = 0; v < RF_SUM_COUNT; v++) {
        float *place = scratch + ((i * tile_rights(width) + j) * RF_SUM_COUNT + v) * RF_WAVE;
        float *sum = &sums[first + i][j].value[v];
        if (give) {
            *place = *sum;
        } else {
            *sum += *place;
        }
    }
}

/* tiles: the stages; at least 64 KiB of them where there are slices. */
RF_DEVICE void tile_body(enum rf_type unit, enum rf_type type, uint32_t width, const struct tile_op *op,
                         uint16_t *tiles, uint32_t stages) {
    const uint32_t wave_columns = tile_wave_columns(width), slices = tile_slices(width);
    uint32_t number = rf_thread_x() / RF_WAVE;
    struct tile_wave wave = {number % 2 * 64, number / 2 % wave_columns * (tile_rights(width) * 16),
                             slices > 1 ? number / (2 * wave_columns) : 0};
    struct rf_sums sums[TILE_LEFTS][TILE_RIGHTS_MAX];
    RF_UNROLL
    for (uint32_t i = 0; i < TILE_LEFTS; i++) RF_UNROLL
    for (uint32_t j = 0; j < tile_rights(width); j++) RF_UNROLL
    for (uint32_t v = 0; v < RF_SUM_COUNT; v++) sums[i][j].value[v] = 0.0f;
    if (op->depth) {
        if (RF_COPY_ASYNC)
            tile_pipeline(unit, width, op, &wave, tiles, stages, sums);
        else
            tile_by_registers(unit, width, op, &wave, tiles, sums);
    }
    float *scratch = (float *)tiles;
    if (slices == 1) {
        tile_finish(type, width, op, &wave, sums, TILE_LEFTS, scratch);
        return;
    }
    /* Each slice finishes half of the rows. A sum of two does not depend on their order. */
    rf_barrier();
    if (wave.slice == 0) {
        tile_exchange(width, true, scratch, number, 2, sums);
    } else {
        tile_exchange(width, true, scratch, number, 0, sums);
        RF_UNROLL
        for (uint32_t i = 0; i < 2; i++) RF_UNROLL
        for (uint32_t j = 0; j < tile_rights(width); j++) sums[i][j] = sums[i + 2][j];
        wave.row += 32;
    }
    rf_barrier();
    tile_exchange(width, false, scratch, (number + TILE_WAVES / 2) % TILE_WAVES, 0, sums);
    tile_finish(type, width, op, &wave, sums, 2, scratch);
}

/* What a kernel is given. */
struct tile_launch {
    void *out;
    const uint16_t *weights, *gate, *x; /* gate: NULL, but for a kernel with one */
    const float *bias;
    const void *residual;
    float *partial;
    struct rf_matmul_args args;
    struct rf_matmul_split split;
};

/* Blocks go down a band of TILE_BAND rows of them before they go on to the next columns: those that run together
 * share rows of x and of the weights. */
RF_DEVICE void tile_kernel(enum rf_type unit, enum rf_type type, uint32_t width, bool gated,
                           const struct tile_launch *launch, uint16_t *tiles) {
    const uint32_t wide = gated ? width / 2 : width; /* outputs of a block in a row */
    uint32_t across = rf_grid_dim_x(), down = rf_grid_dim_y(), block = rf_block_y() * across + rf_block_x();
    uint32_t top = block / (TILE_BAND * across) * TILE_BAND, within = block % (TILE_BAND * across);
    uint32_t band = down - top < TILE_BAND ? down - top : TILE_BAND;
    uint64_t first = rf_block_z() * launch->split.depth;
    struct tile_op op;
    op.r0 = (uint64_t)(top + within % band) * RF_MATMUL_TILE_ROWS;
    op.c0 = (uint64_t)(within / band) * wide;
    op.rows = (uint32_t)rf_min_u64(launch->args.m - op.r0, RF_MATMUL_TILE_ROWS);
    op.columns = (uint32_t)rf_min_u64(launch->args.n - op.c0, wide);
    op.depth = (uint32_t)(first < launch->args.k ? rf_min_u64(launch->args.k - first, launch->split.depth) : 0);
    op.weights = launch->weights;
    op.x = launch->x;
    op.weight_stride = launch->args.k;
    op.x_stride = launch->args.x_stride;
    if (op.depth) {
        op.weights += op.c0 * launch->args.k + first;
        op.x += op.r0 * launch->args.x_stride + first;
    }
    op.gated = gated;
    op.gate = gated ? launch->gate - launch->weights : 0;
    op.part = !gated && launch->partial != (float *)0;
    op.bias = op.part ? (const float *)0 : launch->bias;
    op.residual = op.part ? (const void *)0 : launch->residual;
    op.out = op.part ? (void *)(launch->partial + rf_block_z() * (launch->args.m * launch->args.n)) : launch->out;
    op.out_stride = op.part ? launch->args.n : launch->args.out_stride;
    uint32_t four = op.part ? 16 : 4 * rf_type_bytes(type);
    op.whole = op.rows == RF_MATMUL_TILE_ROWS && op.columns == wide && op.out_stride % 4 == 0 &&
               rf_aligned(op.out, four) && rf_aligned(op.residual, four);
    tile_body(unit, type, width, &op, tiles, launch->split.stages);
}

#endif /* RF_TILE_ABSENT */
#endif
