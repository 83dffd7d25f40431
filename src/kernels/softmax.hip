/* softmax: out[r][c] = exp(in[r][c] - max_r) / sum_r, over dense rows of f32.
 *
 * A row of -inf alone gives zeros (a fully masked row attends to nothing); a +inf or a NaN makes
 * its row NaN. out may be in. norm_args.h says how it is launched.
 *
 * Each lane takes exp against its own maximum and the lanes' sums are then brought to the row's
 * maximum, so that a row costs one reduction and each element one exp2. */
#include "kernels/rows.h"

struct softmax_state {
    float max; /* -inf before the first finite element */
    float sum; /* the sum of exp(x - shift(max)) */
};

/* What is subtracted from x: never -inf, which would give NaN. */
RF_DEVICE float softmax_shift(float max) {
    return max == -RF_INFINITY ? 0.0f : max;
}
RF_DEVICE float softmax_exp(float x, float shift) {
    return rf_exp2((x - shift) * RF_LOG2_E);
}

/* The state of the whole wave, in every lane. */
RF_DEVICE struct softmax_state softmax_wave(struct softmax_state mine) {
    struct softmax_state all;
    all.max = rf_wave_max(mine.max);
    all.sum = rf_wave_sum(mine.sum * softmax_exp(mine.max, softmax_shift(all.max)));
    return all;
}
/* The state of the whole block. scratch: 2 * RF_BLOCK_SCRATCH floats; calls alternate between two of them. */
RF_DEVICE struct softmax_state softmax_block(struct softmax_state mine, float *scratch) {
    struct softmax_state wave = softmax_wave(mine), part = {-RF_INFINITY, 0.0f};
    uint32_t lane = rf_lane();
    if (lane == 0) {
        scratch[rf_thread_x() / RF_WAVE] = wave.max;
        scratch[RF_BLOCK_SCRATCH + rf_thread_x() / RF_WAVE] = wave.sum;
    }
    rf_barrier();
    if (lane < rf_block_dim_x() / RF_WAVE) {
        part.max = scratch[lane];
        part.sum = scratch[RF_BLOCK_SCRATCH + lane];
    }
    return softmax_wave(part);
}

RF_DEVICE float softmax_inverse(float sum) {
    return sum == 0.0f ? 0.0f : rf_rcp(sum);
}

/* Loads a piece of f32; elements past the end of the row are -inf. */
RF_DEVICE void softmax_load(bool vector, bool wave, const float *piece, uint32_t left, float *x) {
    uint32_t words[RF_ROW_WORDS];
    rf_row_load(RF_TYPE_F32, vector, wave, piece, left, rf_bits_of_f32(-RF_INFINITY), words);
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) x[k] = rf_f32_of_bits(words[k]);
}
RF_DEVICE void softmax_store(bool vector, bool wave, float *piece, uint32_t left, const float *x) {
    uint32_t group = rf_row_group(RF_TYPE_F32, vector), first = rf_row_column(RF_TYPE_F32, vector, wave);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(RF_TYPE_F32, vector) / group; slot++) {
        uint32_t at = rf_row_step(RF_TYPE_F32, vector, slot);
        if (rf_row_inside(at, left, first)) rf_row_store(RF_TYPE_F32, vector, piece + first, at, x + slot * group);
    }
}
RF_DEVICE float softmax_piece_max(bool vector, const float *x, float max) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) max = rf_max(max, x[k]);
    return max;
}
/* Replaces x by its exponentials and returns their sum. */
RF_DEVICE float softmax_piece_exp(bool vector, float *x, float shift) {
    float sum = 0.0f;
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) {
        x[k] = softmax_exp(x[k], shift);
        sum += x[k];
    }
    return sum;
}

/* A row that the team holds. */
RF_DEVICE void softmax_held(bool wave, bool vector, float *out, const float *in, uint64_t columns, float *scratch) {
    struct softmax_state mine, all;
    float x[RF_ROW_WORDS];
    softmax_load(vector, wave, in, (uint32_t)columns, x);
    mine.max = softmax_piece_max(vector, x, -RF_INFINITY);
    mine.sum = softmax_piece_exp(vector, x, softmax_shift(mine.max));
    all = wave ? softmax_wave(mine) : softmax_block(mine, scratch);
    float factor = softmax_inverse(all.sum) * softmax_exp(mine.max, softmax_shift(all.max));
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) x[k] *= factor;
    softmax_store(vector, wave, out, (uint32_t)columns, x);
}

/* A longer row, read twice by the block: forwards, then backwards, so that the last piece is still
 * held and those before it are likeliest to be in a cache. */
RF_DEVICE void softmax_long(bool vector, float *out, const float *in, uint64_t columns, float *scratch) {
    uint32_t piece = rf_row_piece(RF_TYPE_F32, vector, false);
    struct softmax_state mine = {-RF_INFINITY, 0.0f};
    float x[RF_ROW_WORDS];
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        softmax_load(vector, false, in + start, rf_row_left(piece, columns, start), x);
        float max = softmax_piece_max(vector, x, mine.max), shift = softmax_shift(max);
        mine.sum = mine.sum * softmax_exp(mine.max, shift) + softmax_piece_exp(vector, x, shift);
        mine.max = max;
    }
    struct softmax_state all = softmax_block(mine, scratch);
    float shift = softmax_shift(all.max), inverse = softmax_inverse(all.sum);
    float factor = inverse * softmax_exp(mine.max, shift);
    uint64_t start = (columns - 1) / piece * piece;
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) x[k] *= factor;
    softmax_store(vector, false, out + start, rf_row_left(piece, columns, start), x);
    RF_NO_UNROLL
    while (start) {
        start -= piece;
        softmax_load(vector, false, in + start, piece, x);
        RF_UNROLL
        for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) x[k] = softmax_exp(x[k], shift) * inverse;
        softmax_store(vector, false, out + start, piece, x);
    }
}

RF_DEVICE void softmax_rows(bool wave, bool held, bool vector, float *out, const float *in, uint64_t rows,
                            uint64_t columns, float *scratch) {
    uint32_t turn = 0;
    RF_NO_UNROLL
    for (uint64_t row = rf_team_first_row(wave); row < rows; row += rf_team_row_step(wave), turn ^= 1) {
        float *mine = scratch + turn * (2 * RF_BLOCK_SCRATCH);
        if (held) {
            softmax_held(wave, vector, out + row * columns, in + row * columns, columns, mine);
        } else {
            softmax_long(vector, out + row * columns, in + row * columns, columns, mine);
        }
    }
}

RF_DEVICE void softmax_body(bool vector, float *out, const float *in, uint64_t rows, uint64_t columns,
                            float *scratch) {
    if (columns <= rf_row_piece(RF_TYPE_F32, vector, true)) {
        softmax_rows(true, true, vector, out, in, rows, columns, scratch);
    } else if (columns <= rf_row_piece(RF_TYPE_F32, vector, false)) {
        softmax_rows(false, true, vector, out, in, rows, columns, scratch);
    } else {
        softmax_rows(false, false, vector, out, in, rows, columns, scratch);
    }
}

RF_KERNEL(softmax_f32, 1024, (float *, out), (const float *, in), (uint64_t, rows), (uint64_t, columns)) {
    RF_SHARED(float, scratch, 4 * RF_BLOCK_SCRATCH);
    if (rf_rows_vector(RF_TYPE_F32, in, columns) && rf_aligned(out, 16)) {
        softmax_body(true, out, in, rows, columns, scratch);
    } else {
        softmax_body(false, out, in, rows, columns, scratch);
    }
}
