/* add_rms_norm: sum[r][c] = a[r][c] + b[r][c], rounded to the type, and
 * out[r][c] = sum[r][c] / sqrt(mean of squares of row r of sum + eps) * weight[c]: add and rms_norm in one
 * pass. Rows are dense and of one type; the weight is f32, or NULL for ones. sum may be a or b; out may be a or b
 * if sum is not the same one; there may be no other overlap. norm_args.h has the arguments and says how it is
 * launched. */
#include "kernels/rows.h"

/* a += b, element by element, in the words of a piece. */
RF_DEVICE void sum_words(enum rf_type type, bool vector, uint32_t *a, const uint32_t *b) {
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_words(vector); k++) {
        if (type == RF_TYPE_F32) {
            a[k] = rf_bits_of_f32(rf_f32_of_bits(a[k]) + rf_f32_of_bits(b[k]));
        } else if (vector) {
            /* Opaque, so that the halves are not kept apart, each in a register. */
            float low = rf_f32_of_16(type, (uint16_t)a[k]) + rf_f32_of_16(type, (uint16_t)b[k]);
            float high = rf_f32_of_16(type, (uint16_t)(a[k] >> 16)) + rf_f32_of_16(type, (uint16_t)(b[k] >> 16));
            a[k] = rf_opaque(rf_pack_16(type, low, high));
        } else { /* held as f32, rounded to the type */
            uint16_t rounded = rf_16_of_f32(type, rf_f32_of_bits(a[k]) + rf_f32_of_bits(b[k]));
            a[k] = rf_bits_of_f32(rf_f32_of_16(type, rounded));
        }
    }
}

RF_DEVICE void sum_store(enum rf_type type, bool vector, bool wave, void *piece, uint32_t left,
                         const uint32_t *words) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    void *to = rf_at_mutable(type, piece, first);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = rf_row_step(type, vector, slot);
        if (rf_row_inside(at, left, first)) {
            if (vector) {
                rf_u32x4 raw = {words[4 * slot], words[4 * slot + 1], words[4 * slot + 2], words[4 * slot + 3]};
                rf_store_16(rf_at_mutable(type, to, at), raw);
            } else {
                rf_store(type, to, at, rf_f32_of_bits(words[slot]));
            }
        }
    }
}

/* Loads a piece of a and b, stores their sum, leaves it in words and returns squares plus its squares. */
RF_DEVICE float sum_piece(enum rf_type type, bool vector, bool wave, void *sum, const void *a, const void *b,
                          uint32_t left, uint32_t *words, float squares) {
    uint32_t more[RF_ROW_WORDS];
    rf_row_load(type, vector, wave, a, left, 0, words);
    rf_row_load(type, vector, wave, b, left, 0, more);
    sum_words(type, vector, words, more);
    sum_store(type, vector, wave, sum, left, words);
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_held(type, vector); k++) {
        float x = rf_row_value(type, vector, words, k);
        squares = rf_fma(x, x, squares);
    }
    return squares;
}

RF_DEVICE void norm_weigh(bool vector, uint32_t group, const float *weight, uint32_t at, float *x) {
    float w[8];
    if (vector) rf_load_many(RF_TYPE_F32, group, weight, at, w);
    if (!vector) w[0] = weight[at];
    RF_UNROLL
    for (uint32_t k = 0; k < group; k++) x[k] *= w[k];
}

RF_DEVICE void norm_store(enum rf_type type, bool vector, bool wave, void *piece, const float *weight, uint32_t left,
                          float factor, const uint32_t *words) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    void *to = rf_at_mutable(type, piece, first);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = rf_row_step(type, vector, slot);
        if (rf_row_inside(at, left, first)) {
            float x[8];
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++) x[k] = rf_row_value(type, vector, words, slot * group + k) * factor;
            if (weight) norm_weigh(vector, group, weight + first, at, x);
            rf_row_store(type, vector, to, at, x);
        }
    }
}

/* Reads a whole piece of sum again, an access at a time: all of them and their weights would take too many
 * registers. */
RF_DEVICE void norm_again(enum rf_type type, bool vector, bool wave, void *piece, const void *sum,
                          const float *weight, float factor) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    RF_NO_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = first + rf_row_step(type, vector, slot);
        float x[8];
        if (vector) rf_load_many(type, group, sum, at, x);
        if (!vector) x[0] = rf_load(type, sum, at);
        RF_UNROLL
        for (uint32_t k = 0; k < group; k++) x[k] *= factor;
        if (weight) norm_weigh(vector, group, weight, at, x);
        rf_row_store(type, vector, piece, at, x);
    }
}

/* One row: held in registers; or longer, and then read again from sum, backwards, so that the last piece is
 * still held. A lane reads only what it wrote itself. */
RF_DEVICE void sum_row(enum rf_type type, bool wave, bool held, bool vector, void *sum, void *out, const void *a,
                       const void *b, const float *weight, uint64_t columns, float eps, float *scratch) {
    uint32_t piece = held ? (uint32_t)columns : rf_row_piece(type, vector, wave), words[RF_ROW_WORDS];
    float squares = 0.0f;
    RF_NO_UNROLL
    for (uint64_t start = 0; start < columns; start += piece)
        squares = sum_piece(type, vector, wave, rf_at_mutable(type, sum, start), rf_at(type, a, start),
                            rf_at(type, b, start), rf_row_left(piece, columns, start), words, squares);
    squares = wave ? rf_wave_sum(squares) : rf_block_sum(squares, scratch);
    float factor = rf_rsqrt(squares / (float)columns + eps);
    RF_UNROLL
    for (uint32_t k = 0; k < rf_row_words(vector); k++) words[k] = rf_opaque(words[k]);
    uint64_t start = held ? 0 : (columns - 1) / piece * piece;
    norm_store(type, vector, wave, rf_at_mutable(type, out, start), weight ? weight + start : weight,
               (uint32_t)(columns - start), factor, words);
    if (held) return;
    RF_NO_UNROLL
    while (start) {
        start -= piece;
        norm_again(type, vector, wave, rf_at_mutable(type, out, start), rf_at(type, sum, start),
                   weight ? weight + start : weight, factor);
    }
}

RF_DEVICE void sum_rows(enum rf_type type, bool wave, bool held, bool vector, void *sum, void *out, const void *a,
                        const void *b, const float *weight, struct rf_norm_args args, float *scratch) {
    uint32_t turn = 0;
    RF_NO_UNROLL
    for (uint64_t row = rf_team_first_row(wave); row < args.rows; row += rf_team_row_step(wave), turn ^= 1) {
        uint64_t at = row * args.columns;
        sum_row(type, wave, held, vector, rf_at_mutable(type, sum, at), rf_at_mutable(type, out, at),
                rf_at(type, a, at), rf_at(type, b, at), weight, args.columns, args.eps,
                scratch + turn * RF_BLOCK_SCRATCH);
    }
}

RF_DEVICE void sum_body(enum rf_type type, bool vector, void *sum, void *out, const void *a, const void *b,
                        const float *weight, struct rf_norm_args args, float *scratch) {
    if (args.columns <= rf_row_piece(type, true, true)) {
        sum_rows(type, true, vector, vector, sum, out, a, b, weight, args, scratch);
    } else if (vector && args.columns <= rf_row_piece(type, vector, false)) {
        sum_rows(type, false, true, vector, sum, out, a, b, weight, args, scratch);
    } else {
        sum_rows(type, false, false, vector, sum, out, a, b, weight, args, scratch);
    }
}

#define ADD_NORM(name, type, element)                                                                                \
    RF_KERNEL(add_rms_norm_##name, 1024, (element *, sum), (element *, out), (const element *, a),                   \
              (const element *, b), (const float *, weight), (struct rf_norm_args, args)) {                          \
        RF_SHARED(float, scratch, 2 * RF_BLOCK_SCRATCH);                                                             \
        if (rf_rows_vector(type, a, args.columns) && rf_aligned(b, 16) && rf_aligned(sum, 16) &&                     \
            rf_aligned(out, 16) && rf_aligned(weight, 16)) {                                                         \
            sum_body(type, true, sum, out, a, b, weight, args, scratch);                                             \
        } else {                                                                                                     \
            sum_body(type, false, sum, out, a, b, weight, args, scratch);                                            \
        }                                                                                                            \
    }

ADD_NORM(f32, RF_TYPE_F32, float)
ADD_NORM(f16, RF_TYPE_F16, rf_f16)
ADD_NORM(bf16, RF_TYPE_BF16, rf_bf16)
