/* rms_norm: out[r][c] = in[r][c] / sqrt(mean of squares of row r + eps) * weight[c], over dense
 * rows; sums and products are in f32 and rounded once to the type of out. That is the type of in, and out may then be
 * in; rms_norm_f32_<type> has in of f32 and out of a type of 16 bits. The weight is f32, or NULL for ones.
 * norm_args.h has the arguments and says how it is launched. */
#include "kernels/rows.h"

RF_DEVICE float norm_squares(enum rf_type type, bool vector, const uint32_t *words, float sum) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(type, vector); k++) {
        float x = rf_row_value(type, vector, words, k);
        sum = rf_fma(x, x, sum);
    }
    return sum;
}

RF_DEVICE void norm_weigh(bool vector, uint32_t group, const float *weight, uint32_t at, float *x) {
    float w[8];
    if (vector) rf_load_many(RF_TYPE_F32, group, weight, at, w);
    if (!vector) w[0] = weight[at];
    RF_UNROLL
    for (uint32_t k = 0; k < group; k++) x[k] *= w[k];
}

/* Multiplies a piece by the row's factor and the weights, and stores it as elements of type `to_type`. */
RF_DEVICE void norm_store(enum rf_type type, enum rf_type to_type, bool vector, bool wave, void *piece,
                          const float *weight, uint32_t left, float factor, const uint32_t *words) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    void *to = rf_at_mutable(to_type, piece, first);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = rf_row_step(type, vector, slot);
        if (rf_row_inside(at, left, first)) {
            float x[8];
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++) x[k] = rf_row_value(type, vector, words, slot * group + k) * factor;
            if (weight) norm_weigh(vector, group, weight + first, at, x);
            if (vector) {
                rf_store_many(to_type, group, to, at, x);
            } else {
                rf_store(to_type, to, at, x[0]);
            }
        }
    }
}

/* One row. Where the team holds it, it is read once. A longer one is read twice, forwards and then backwards,
 * so that the last piece is still held and those before it are likeliest to be in a cache. */
RF_DEVICE void norm_row(enum rf_type type, enum rf_type to_type, bool wave, bool held, bool vector, void *out,
                        const void *in, const float *weight, uint64_t columns, float eps, float *scratch) {
    uint32_t piece = rf_row_piece(type, vector, wave), words[RF_ROW_WORDS];
    float sum = 0.0f;
    if (held) {
        rf_row_load(type, vector, wave, in, (uint32_t)columns, 0, words);
        sum = norm_squares(type, vector, words, 0.0f);
    } else {
        RF_NO_UNROLL
        for (uint64_t start = 0; start < columns; start += piece) {
            rf_row_load(type, vector, wave, rf_at(type, in, start), rf_row_left(piece, columns, start), 0, words);
            sum = norm_squares(type, vector, words, sum);
        }
    }
    sum = wave ? rf_wave_sum(sum) : rf_block_sum(sum, scratch);
    float factor = rf_rsqrt(sum / (float)columns + eps);
    uint64_t start = held ? 0 : (columns - 1) / piece * piece;
    /* Opaque, so that the elements do not stay in registers unpacked, too. */
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_words(vector); k++) words[k] = rf_opaque(words[k]);
    norm_store(type, to_type, vector, wave, rf_at_mutable(to_type, out, start), weight ? weight + start : weight,
               (uint32_t)(columns - start), factor, words);
    if (held) return;
    RF_NO_UNROLL
    while (start) {
        start -= piece;
        rf_row_load(type, vector, wave, rf_at(type, in, start), piece, 0, words);
        norm_store(type, to_type, vector, wave, rf_at_mutable(to_type, out, start), weight ? weight + start : weight,
                   piece, factor, words);
    }
}

RF_DEVICE void norm_rows(enum rf_type type, enum rf_type to_type, bool wave, bool held, bool vector, void *out,
                         const void *in, const float *weight, struct rf_norm_args args, float *scratch) {
    uint32_t turn = 0;
    RF_NO_UNROLL
    for (uint64_t row = rf_team_first_row(wave); row < args.rows; row += rf_team_row_step(wave), turn ^= 1)
        norm_row(type, to_type, wave, held, vector, rf_at_mutable(to_type, out, row * args.columns),
                 rf_at(type, in, row * args.columns), weight, args.columns, args.eps,
                 scratch + turn * RF_BLOCK_SCRATCH);
}

RF_DEVICE void norm_body(enum rf_type type, enum rf_type to_type, bool vector, void *out, const void *in,
                         const float *weight, struct rf_norm_args args, float *scratch) {
    if (args.columns <= rf_row_piece(type, true, true)) {
        norm_rows(type, to_type, true, vector, vector, out, in, weight, args, scratch);
    } else if (vector && args.columns <= rf_row_piece(type, vector, false)) {
        norm_rows(type, to_type, false, true, vector, out, in, weight, args, scratch);
    } else {
        norm_rows(type, to_type, false, false, vector, out, in, weight, args, scratch);
    }
}

#define RMS_NORM(name, type, element, to_type, to_element)                                                           \
    RF_KERNEL(rms_norm_##name, 1024, (to_element *, out), (const element *, in), (const float *, weight),            \
              (struct rf_norm_args, args)) {                                                                         \
        RF_SHARED(float, scratch, 2 * RF_BLOCK_SCRATCH);                                                             \
        if (rf_rows_vector(type, in, args.columns) && rf_aligned(out, 16) && rf_aligned(weight, 16)) {               \
            norm_body(type, to_type, true, out, in, weight, args, scratch);                                          \
        } else {                                                                                                     \
            norm_body(type, to_type, false, out, in, weight, args, scratch);                                         \
        }                                                                                                            \
    }

RMS_NORM(f32, RF_TYPE_F32, float, RF_TYPE_F32, float)
RMS_NORM(f16, RF_TYPE_F16, rf_f16, RF_TYPE_F16, rf_f16)
RMS_NORM(bf16, RF_TYPE_BF16, rf_bf16, RF_TYPE_BF16, rf_bf16)
RMS_NORM(f32_f16, RF_TYPE_F32, float, RF_TYPE_F16, rf_f16)
RMS_NORM(f32_bf16, RF_TYPE_F32, float, RF_TYPE_BF16, rf_bf16)
