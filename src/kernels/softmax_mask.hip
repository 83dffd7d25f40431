/* softmax_mask_f32_<mask>: out[r][c] = exp(s[r][c] - max_r) / sum_r with s = in * scale + mask, over dense
 * rows of f32. The mask is f32 or f16, or NULL for none; struct rf_softmax_args (norm_args.h) says which of its rows
 * meets which row of in, and norm_args.h how the kernel is launched.
 *
 * A row of -inf alone gives zeros; a NaN, or +inf, makes its row NaN. out may be in. A row that is longer than its
 * team holds is read three times, another one once. */
#include "kernels/rows.h"

/* Loads a piece and computes s; elements past the end of the row are -inf. */
RF_DEVICE void scores_load(enum rf_type mask_type, bool vector, bool wave, const float *piece, const void *mask,
                           bool masked, uint32_t left, float scale, float *s) {
    uint32_t words[RF_ROW_WORDS], group = rf_row_group(RF_TYPE_F32, vector);
    uint32_t first = rf_row_column(RF_TYPE_F32, vector, wave);
    rf_row_load(RF_TYPE_F32, vector, wave, piece, left, 0, words);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(RF_TYPE_F32, vector) / group; slot++) {
        uint32_t at = rf_row_step(RF_TYPE_F32, vector, slot);
        bool inside = rf_row_inside(at, left, first);
        float more[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (masked && inside) {
            if (vector) {
                rf_load_many(mask_type, 4, mask, first + at, more);
            } else {
                more[0] = rf_load(mask_type, mask, first + at);
            }
        }
        RF_UNROLL
        for (uint32_t k = 0; k < group; k++) {
            float x = rf_fma(rf_f32_of_bits(words[slot * group + k]), scale, more[k]);
            s[slot * group + k] = inside ? x : -RF_INFINITY;
        }
    }
}

RF_DEVICE float scores_max(bool vector, const float *s, float max) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) max = rf_max(max, s[k]);
    return max;
}
/* Replaces s by its exponentials and returns their sum. */
RF_DEVICE float scores_exp(bool vector, float *s, float shift) {
    float sum = 0.0f;
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) {
        s[k] = rf_exp2((s[k] - shift) * RF_LOG2_E);
        sum += s[k];
    }
    return sum;
}
RF_DEVICE void scores_store(bool vector, bool wave, float *piece, uint32_t left, float factor, float *s) {
    uint32_t group = rf_row_group(RF_TYPE_F32, vector), first = rf_row_column(RF_TYPE_F32, vector, wave);
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(RF_TYPE_F32, vector); k++) s[k] *= factor;
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(RF_TYPE_F32, vector) / group; slot++) {
        uint32_t at = rf_row_step(RF_TYPE_F32, vector, slot);
        if (rf_row_inside(at, left, first)) rf_row_store(RF_TYPE_F32, vector, piece + first, at, s + slot * group);
    }
}

/* scratch: two parts, one for each reduction. */
RF_DEVICE void scores_row(enum rf_type mask_type, bool wave, bool held, bool vector, float *out, const float *in,
                          const void *mask, bool masked, uint64_t columns, float scale, float *scratch) {
    uint32_t piece = held ? (uint32_t)columns : rf_row_piece(RF_TYPE_F32, vector, wave);
    float s[RF_ROW_WORDS], max = -RF_INFINITY, sum = 0.0f;
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        scores_load(mask_type, vector, wave, in + start, rf_at(mask_type, mask, masked ? start : 0), masked,
                    rf_row_left(piece, columns, start), scale, s);
        max = scores_max(vector, s, max);
    }
    max = wave ? rf_wave_max(max) : rf_block_max(max, scratch);
    float shift = max == -RF_INFINITY ? 0.0f : max; /* never -inf - -inf */
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        if (!held)
            scores_load(mask_type, vector, wave, in + start, rf_at(mask_type, mask, masked ? start : 0), masked,
                        rf_row_left(piece, columns, start), scale, s);
        sum += scores_exp(vector, s, shift);
    }
    sum = wave ? rf_wave_sum(sum) : rf_block_sum(sum, scratch + RF_BLOCK_SCRATCH);
    float inverse = sum == 0.0f ? 0.0f : rf_rcp(sum);
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        uint32_t left = rf_row_left(piece, columns, start);
        if (!held) {
            scores_load(mask_type, vector, wave, in + start, rf_at(mask_type, mask, masked ? start : 0), masked, left,
                        scale, s);
            scores_exp(vector, s, shift);
        }
        scores_store(vector, wave, out + start, left, inverse, s);
    }
}

RF_DEVICE void scores_rows(enum rf_type mask_type, bool wave, bool held, bool vector, float *out, const float *in,
                           const void *mask, bool masked, struct rf_softmax_args args, float *scratch) {
    RF_NO_UNROLL
    for (uint64_t row = rf_team_first_row(wave); row < args.rows; row += rf_team_row_step(wave)) {
        /* A choice between offsets, not between pointers: with those the compiler would lose their address space. */
        uint64_t mask_row = row / (args.rows_each * args.heads) * args.rows_each + row % args.rows_each;
        const void *of_row = rf_at(mask_type, mask, masked ? mask_row * args.columns : 0);
        scores_row(mask_type, wave, held, vector, out + row * args.columns, in + row * args.columns, of_row, masked,
                   args.columns, args.scale, scratch);
    }
}

RF_DEVICE void scores_body(enum rf_type mask_type, bool vector, float *out, const float *in, const void *mask,
                           bool masked, struct rf_softmax_args args, float *scratch) {
    if (args.columns <= rf_row_piece(RF_TYPE_F32, vector, true)) {
        scores_rows(mask_type, true, true, vector, out, in, mask, masked, args, scratch);
    } else if (args.columns <= rf_row_piece(RF_TYPE_F32, vector, false)) {
        scores_rows(mask_type, false, true, vector, out, in, mask, masked, args, scratch);
    } else {
        scores_rows(mask_type, false, false, vector, out, in, mask, masked, args, scratch);
    }
}

#define SOFTMAX_MASK(name, type, element)                                                                            \
    RF_KERNEL(softmax_mask_f32_##name, 1024, (float *, out), (const float *, in), (const element *, mask),           \
              (struct rf_softmax_args, args)) {                                                                      \
        RF_SHARED(float, scratch, 2 * RF_BLOCK_SCRATCH);                                                             \
        const void *some = mask ? (const void *)mask : (const void *)in; /* not NULL: offsets are added */           \
        if (rf_rows_vector(RF_TYPE_F32, in, args.columns) && rf_aligned(out, 16) &&                                  \
            rf_aligned(mask, 4 * sizeof *mask)) {                                                                    \
            scores_body(type, true, out, in, some, mask != 0, args, scratch);                                        \
        } else {                                                                                                     \
            scores_body(type, false, out, in, some, mask != 0, args, scratch);                                       \
        }                                                                                                            \
    }

SOFTMAX_MASK(f32, RF_TYPE_F32, float)
SOFTMAX_MASK(f16, RF_TYPE_F16, rf_f16)
