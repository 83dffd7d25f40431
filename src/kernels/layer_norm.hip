/* layer_norm: out[r][c] = (in[r][c] - mean_r) / sqrt(variance_r + eps) * weight[c] + bias[c], over dense
 * rows; the variance is the mean of (x - mean)^2, taken from the differences themselves. The arithmetic is in f32
 * and rounded once to the type of in and out. weight and bias are f32, or NULL for ones and zeros. out may be in.
 * norm_args.h has the arguments and says how it is launched. */
#include "kernels/rows.h"

RF_DEVICE float layer_sum(enum rf_type type, bool vector, const uint32_t *words, float sum) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(type, vector); k++) sum += rf_row_value(type, vector, words, k);
    return sum;
}
/* Elements past the end of the row do not count. */
RF_DEVICE float layer_squares(enum rf_type type, bool vector, bool wave, const uint32_t *words, uint32_t left,
                              float mean, float sum) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++)
        if (rf_row_inside(rf_row_step(type, vector, slot), left, first)) {
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++) {
                float x = rf_row_value(type, vector, words, slot * group + k) - mean;
                sum = rf_fma(x, x, sum);
            }
        }
    return sum;
}

RF_DEVICE void layer_load_f32(bool vector, uint32_t group, const float *from, uint32_t at, float *x) {
    if (vector) rf_load_many(RF_TYPE_F32, group, from, at, x);
    if (!vector) x[0] = from[at];
}

RF_DEVICE void layer_store(enum rf_type type, bool vector, bool wave, void *piece, const float *weight,
                           const float *bias, uint32_t left, float mean, float factor, const uint32_t *words) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    void *to = rf_at_mutable(type, piece, first);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = rf_row_step(type, vector, slot);
        if (rf_row_inside(at, left, first)) {
            float x[8], y[8];
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++)
                x[k] = (rf_row_value(type, vector, words, slot * group + k) - mean) * factor;
            if (weight) {
                layer_load_f32(vector, group, weight + first, at, y);
                RF_UNROLL
                for (uint32_t k = 0; k < group; k++) x[k] *= y[k];
            }
            if (bias) {
                layer_load_f32(vector, group, bias + first, at, y);
                RF_UNROLL
                for (uint32_t k = 0; k < group; k++) x[k] += y[k];
            }
            rf_row_store(type, vector, to, at, x);
        }
    }
}

/* The opaque copies keep the unpacked elements from staying in registers between the steps. */
RF_DEVICE void layer_hide(bool vector, uint32_t *words) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_words(vector); k++) words[k] = rf_opaque(words[k]);
}

/* One row. Where the team holds it, it is read once; a longer one is read three times. scratch: two parts, one
 * for each sum, so that each is written again only after the other's barrier. */
RF_DEVICE void layer_row(enum rf_type type, bool wave, bool held, bool vector, void *out, const void *in,
                         const float *weight, const float *bias, uint64_t columns, float eps, float *scratch) {
    uint32_t piece = held ? (uint32_t)columns : rf_row_piece(type, vector, wave), words[RF_ROW_WORDS];
    float sum = 0.0f, squares = 0.0f;
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        rf_row_load(type, vector, wave, rf_at(type, in, start), rf_row_left(piece, columns, start), 0, words);
        sum = layer_sum(type, vector, words, sum);
    }
    float mean = (wave ? rf_wave_sum(sum) : rf_block_sum(sum, scratch)) / (float)columns;
    layer_hide(vector, words);
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        uint32_t left = rf_row_left(piece, columns, start);
        if (!held) rf_row_load(type, vector, wave, rf_at(type, in, start), left, 0, words);
        squares = layer_squares(type, vector, wave, words, left, mean, squares);
    }
    squares = wave ? rf_wave_sum(squares) : rf_block_sum(squares, scratch + RF_BLOCK_SCRATCH);
    float factor = rf_rsqrt(squares / (float)columns + eps);
    layer_hide(vector, words);
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece) {
        uint32_t left = rf_row_left(piece, columns, start);
        if (!held) rf_row_load(type, vector, wave, rf_at(type, in, start), left, 0, words);
        layer_store(type, vector, wave, rf_at_mutable(type, out, start), weight ? weight + start : weight,
                    bias ? bias + start : bias, left, mean, factor, words);
    }
}

RF_DEVICE void layer_rows(enum rf_type type, bool wave, bool held, bool vector, void *out, const void *in,
                          const float *weight, const float *bias, struct rf_norm_args args, float *scratch) {
    RF_NO_UNROLL
    for (uint64_t row = rf_team_first_row(wave); row < args.rows; row += rf_team_row_step(wave))
        layer_row(type, wave, held, vector, rf_at_mutable(type, out, row * args.columns),
                  rf_at(type, in, row * args.columns), weight, bias, args.columns, args.eps, scratch);
}

RF_DEVICE void layer_body(enum rf_type type, bool vector, void *out, const void *in, const float *weight,
                          const float *bias, struct rf_norm_args args, float *scratch) {
    if (vector && args.columns <= rf_row_piece(type, true, true)) {
        layer_rows(type, true, true, vector, out, in, weight, bias, args, scratch);
    } else if (vector && args.columns <= rf_row_piece(type, vector, false)) {
        layer_rows(type, false, true, vector, out, in, weight, bias, args, scratch);
    } else if (!vector && args.columns <= rf_row_piece(type, true, true)) {
        layer_rows(type, true, false, vector, out, in, weight, bias, args, scratch);
    } else {
        layer_rows(type, false, false, vector, out, in, weight, bias, args, scratch);
    }
}

#define LAYER_NORM(name, type, element)                                                                              \
    RF_KERNEL(layer_norm_##name, 1024, (element *, out), (const element *, in), (const float *, weight),             \
              (const float *, bias), (struct rf_norm_args, args)) {                                                  \
        RF_SHARED(float, scratch, 2 * RF_BLOCK_SCRATCH);                                                             \
        if (rf_rows_vector(type, in, args.columns) && rf_aligned(out, 16) && rf_aligned(weight, 16) &&               \
            rf_aligned(bias, 16)) {                                                                                  \
            layer_body(type, true, out, in, weight, bias, args, scratch);                                            \
        } else {                                                                                                     \
            layer_body(type, false, out, in, weight, bias, args, scratch);                                           \
        }                                                                                                            \
    }

LAYER_NORM(f32, RF_TYPE_F32, float)
LAYER_NORM(f16, RF_TYPE_F16, rf_f16)
LAYER_NORM(bf16, RF_TYPE_BF16, rf_bf16)
