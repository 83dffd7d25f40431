/* One query a sequence on matrix units: up to 8 query heads of a key-value head against 16-bit or packed keys.
 *
 * A block of 4 waves walks its keys in tiles of 64, each wave 16 of them; keys and values go through shared memory,
 * the next tile under way while one is used (NVIDIA; elsewhere one after the other). Each is read once for all heads.
 *
 * A left operand has 16 rows and there are 8 heads: row h + 8 holds what rounding to the operands' type took from
 * row h, of the queries and of the weights, so that f32 queries keep twice the type's bits. A head's queries are
 * first brought near 2^13 by a power of two, so that f16 holds them and what is left of them; weights are multiplied
 * likewise, by one that leaves room for what they are multiplied with (f16 values; packed: scales up to 500, values
 * of 65,000).
 *
 * Packed keys and values (Q8_0) arrive as they lie in memory; their elements become f16 in shared memory, exactly,
 * and the scale of a block of 32 multiplies what its keys have summed, and the weights of its values.
 *
 * The keys of a long sequence are split among blocks. Whichever of them comes last joins their results.
 *
 * Nothing here depends on timing: waves, and splits, are brought together in their order. */
#ifndef RF_KERNELS_ATTENTION_DECODE_H
#define RF_KERNELS_ATTENTION_DECODE_H

#include "kernels/atomic.h"
#include "kernels/attention.h"
#include "kernels/tile.h"

#if defined(RF_NVIDIA)
#define RF_DECODE_STAGES RF_DECODE_STAGES_OF(1)
#else
#define RF_DECODE_STAGES RF_DECODE_STAGES_OF(0)
#endif

/* Where the result of a block goes. A sequence whose keys are split among several blocks has a place for the results
 * of each head and split; the last of its blocks to come there joins them. */
struct rf_decode_out {
    bool direct;       /* there is one block: the result goes to out */
    enum rf_type type; /* of out */
    void *out;         /* of the first head */
    uint64_t head;     /* stride of out */
    float *sums;       /* of the first head's first split: dim of each */
    float *extents;    /* of the same: maximum and sum of each */
    uint32_t splits;   /* places of a head */
    uint32_t split;    /* this block's */
    uint32_t used;     /* splits that have keys: blocks that come */
    uint32_t *counter; /* of those blocks */
};
/* Stores element d of head g. */
RF_DEVICE void rf_decode_put(const struct rf_decode_out *to, uint32_t g, uint32_t d, uint32_t dim, float total,
                             float sum) {
    if (to->direct) {
        rf_store(to->type, to->out, g * to->head + d, total * rf_softmax_inverse(sum));
    } else {
        to->sums[((uint64_t)g * to->splits + to->split) * dim + d] = total;
    }
}
RF_DEVICE void rf_decode_put_extent(const struct rf_decode_out *to, uint32_t g, float max, float sum) {
    if (to->direct) return;
    float *extent = to->extents + ((uint64_t)g * to->splits + to->split) * 2;
    extent[0] = max;
    extent[1] = sum;
}

/* The splits are added up in parts, part p having the splits p, p + parts, and so on, and then the parts: an order
 * that depends on the sizes alone. */
RF_DEVICE uint32_t rf_decode_parts(uint32_t dim) {
    return dim <= 64 ? 16 : dim <= 128 ? 8 : 4;
}
/* Loads that are under way at once, if a kernel has the registers: the other blocks' results are far away. */
#define RF_DECODE_LOADS 8
#if defined(RF_NVIDIA)
#define RF_DECODE_MATRIX_LOADS 16
#else
#define RF_DECODE_MATRIX_LOADS 8
#endif

/* From a split to the one that is added after it. next: the first split of the next part. True: there it begins. */
RF_DEVICE bool rf_decode_next(uint32_t *split, uint32_t *next, uint32_t parts, uint32_t used) {
    bool ends = *split + parts >= used;
    *split = ends ? *next : *split + parts;
    *next += ends;
    return ends;
}

/* Four elements of head g, from d on. shift: of the head's maximum; inverse: of its sum. loads: a constant. */
RF_DEVICE void rf_decode_join_four(uint32_t loads, const struct rf_decode_out *to, uint32_t g, uint32_t d,
                                   uint32_t dim, float shift, float inverse) {
    uint32_t parts = rf_decode_parts(dim), used = to->used, split = 0, next = 1, added = 0, next_added = 1;
    const float *sums = to->sums + (uint64_t)g * to->splits * dim + d;
    const float *extents = to->extents + (uint64_t)g * to->splits * 2;
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f}, of_part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    RF_NO_UNROLL
    for (uint32_t first = 0; first < used; first += loads) {
        float values[RF_DECODE_MATRIX_LOADS][4], maximum[RF_DECODE_MATRIX_LOADS];
        RF_UNROLL
        for (uint32_t i = 0; i < loads; i++) {
            uint32_t from = first + i < used ? split : 0;
            rf_load_many(RF_TYPE_F32, 4, sums, (uint64_t)from * dim, values[i]);
            maximum[i] = extents[2 * from];
            rf_decode_next(&split, &next, parts, used);
        }
        RF_UNROLL
        for (uint32_t i = 0; i < loads; i++) {
            float shrink = rf_exp2(maximum[i] - shift);
            bool there = first + i < used, ends = rf_decode_next(&added, &next_added, parts, used);
            RF_UNROLL
            for (uint32_t k = 0; k < 4; k++) {
                of_part[k] = there ? rf_fma(values[i][k], shrink, of_part[k]) : of_part[k];
                total[k] = there && ends ? total[k] + of_part[k] : total[k];
                of_part[k] = ends ? 0.0f : of_part[k];
            }
        }
    }
    RF_UNROLL
    for (uint32_t k = 0; k < 4; k++) total[k] *= inverse;
    rf_store_many(to->type, 4, to->out, g * to->head + d, total);
}

/* Behind the last rf_decode_put: the last block of the splits writes out, the others are done. Every thread makes the
 * call; notes are RF_DECODE_JOIN_NOTES words of shared memory that nobody uses any more. */
#define RF_DECODE_JOIN_NOTES (1 + 2 * RF_DECODE_HEADS)
RF_DEVICE void rf_decode_join(uint32_t loads, const struct rf_decode_out *to, uint32_t heads, uint32_t dim,
                              float *notes) {
    if (to->direct) return;
    if (!rf_last_block(to->counter, to->used, (uint32_t *)notes)) return;
    RF_NO_UNROLL
    for (uint32_t g = rf_thread_x() / RF_WAVE; g < heads; g += rf_block_dim_x() / RF_WAVE) {
        const float *extents = to->extents + (uint64_t)g * to->splits * 2;
        float max = -RF_INFINITY, sum = 0.0f;
        RF_NO_UNROLL
        for (uint32_t s = rf_lane(); s < to->used; s += RF_WAVE) max = rf_max(max, extents[2 * s]);
        float shift = rf_softmax_shift(rf_wave_max(max));
        RF_NO_UNROLL
        for (uint32_t s = rf_lane(); s < to->used; s += RF_WAVE)
            sum = rf_fma(extents[2 * s + 1], rf_exp2(extents[2 * s] - shift), sum);
        float inverse = rf_softmax_inverse(rf_wave_sum(sum));
        if (rf_lane() == 0) {
            notes[1 + 2 * g] = shift;
            notes[2 + 2 * g] = inverse;
        }
    }
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t item = rf_thread_x(); item < heads * (dim / 4); item += rf_block_dim_x()) {
        uint32_t g = item / (dim / 4), d = item % (dim / 4) * 4;
        rf_decode_join_four(loads, to, g, d, dim, notes[1 + 2 * g], notes[2 + 2 * g]);
    }
}

#ifndef RF_TILE_ABSENT

/* A variant; both members are constants. It takes head sizes up to dim, a multiple of 16; packed takes dim itself. */
struct rf_decode_shape {
    uint32_t dim;
    bool packed;
};

/* A block's shared memory. */
struct rf_decode_room {
    float *factors;    /* of each head: what turns its scores into the exponents */
    uint32_t *present; /* of each stage: which keys exist */
    uint16_t *queries; /* 16 rows */
    uint16_t *tiles;   /* of each stage, or once where packed: keys, then values */
    uint32_t *raw;     /* where packed, of each stage: keys, then values */
};
RF_DEVICE uint32_t rf_decode_pitch(struct rf_decode_shape shape) {
    return shape.dim + RF_MATRIX_PAD;
}
RF_DEVICE uint32_t rf_decode_raw_words(struct rf_decode_shape shape) { /* of a row */
    return shape.dim / 32 * 34 / 4;
}
/* There are RF_DECODE_BYTES(dim, packed, stages). */
RF_DEVICE struct rf_decode_room rf_decode_divide(struct rf_decode_shape shape, uint16_t *shared) {
    struct rf_decode_room room;
    room.factors = (float *)shared;
    room.present = (uint32_t *)shared + RF_DECODE_HEADS;
    room.queries = shared + RF_DECODE_NOTES_BYTES / 2;
    room.tiles = room.queries + 16 * rf_decode_pitch(shape);
    room.raw = (uint32_t *)(room.tiles + 2 * RF_DECODE_KEYS * rf_decode_pitch(shape));
    return room;
}

struct rf_decode_state {
    float max, sum; /* of the lane's head; sum: of its columns */
    struct rf_sums result[8];
};

/* ---- keys and values into shared memory ------------------------------------------------------------------- */

/* Whether all keys of a tile lie in one page, or there are no pages. */
RF_DEVICE bool rf_decode_one_page(const struct rf_keys *keys) {
    return !keys->tabled || (1u << keys->shift) >= RF_DECODE_KEYS;
}

/* Copies 16 bytes of a row of keys and of one of values, from an element on; where packed 4 bytes of each, and column
 * counts words from the start of the row. */
RF_DEVICE void rf_decode_copy(bool packed, void *k_to, void *v_to, const struct rf_keys *keys,
                              struct rf_key_place place, uint32_t column, bool there) {
    if (packed) { /* 34 bytes for 32 elements; a row is a whole number of words */
        rf_copy_4((uint32_t *)k_to, (const uint32_t *)keys->k + (there ? place.k / 64 * 17 + column : 0), there);
        rf_copy_4((uint32_t *)v_to, (const uint32_t *)keys->v + (there ? place.v / 64 * 17 + column : 0), there);
    } else {
        rf_copy_16(k_to, (const uint16_t *)keys->k + (there ? place.k + column : 0), there);
        rf_copy_16(v_to, (const uint16_t *)keys->v + (there ? place.v + column : 0), there);
    }
}

/* Stages this thread's share of keys and values first to first + 63; those from end on do not exist. */
RF_DEVICE void rf_decode_stage(struct rf_decode_shape shape, uint16_t *tile, uint32_t *present,
                               const struct rf_keys *keys, uint32_t first, uint32_t end, uint32_t dim) {
    uint32_t pitch = rf_decode_pitch(shape), per_line = shape.dim / 8, lines = RF_DECODE_WAVES * RF_WAVE / per_line;
    uint32_t column = rf_thread_x() % per_line * 8, line = rf_thread_x() / per_line;
    uint16_t *k_tile = tile + line * pitch + column, *v_tile = k_tile + RF_DECODE_KEYS * pitch;
    bool inside = column < dim;
    if (rf_decode_one_page(keys)) {
        struct rf_key_place place = rf_key_find(true, keys, first);
        bool page = place.there;
        place.k += line * keys->k_row;
        place.v += line * keys->v_row;
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < RF_DECODE_KEYS / lines; i++) {
            place.there = page && first + line + i * lines < end;
            rf_decode_copy(false, k_tile + i * lines * pitch, v_tile + i * lines * pitch, keys, place, column,
                           place.there && inside);
            if (column == 0) present[line + i * lines] = place.there;
            place.k += lines * keys->k_row;
            place.v += lines * keys->v_row;
        }
        return;
    }
    RF_NO_UNROLL
    for (uint32_t i = 0; i < RF_DECODE_KEYS / lines; i++) {
        struct rf_key_place place = {0, 0, false};
        uint32_t key = first + line + i * lines;
        if (key < end) place = rf_key_find(true, keys, key);
        rf_decode_copy(false, k_tile + i * lines * pitch, v_tile + i * lines * pitch, keys, place, column,
                       place.there && inside);
        if (column == 0) present[line + i * lines] = place.there;
    }
}

/* The same for packed rows, which are copied as they are; rows are aligned to 4 bytes and have shape.dim elements.
 * Where all keys of the tile exist and lie one after the other, aligned to 16 bytes, they are copied as one piece. */
RF_DEVICE void rf_decode_stage_raw(struct rf_decode_shape shape, uint32_t *raw, uint32_t *present,
                                   const struct rf_keys *keys, uint32_t first, uint32_t end) {
    uint32_t words = rf_decode_raw_words(shape), count = RF_DECODE_KEYS * words;
    bool one = rf_decode_one_page(keys);
    struct rf_key_place base = rf_key_find(true, keys, first);
    const uint32_t *k = (const uint32_t *)keys->k + base.k / 64 * 17,
                   *v = (const uint32_t *)keys->v + base.v / 64 * 17;
    if (one && base.there && first + RF_DECODE_KEYS <= end && keys->k_row == shape.dim && keys->v_row == shape.dim &&
        rf_aligned(k, 16) && rf_aligned(v, 16)) {
        RF_NO_UNROLL
        for (uint32_t item = rf_thread_x() * 4; item < count; item += RF_DECODE_WAVES * RF_WAVE * 4) {
            rf_copy_16_there(raw + item, k + item);
            rf_copy_16_there(raw + count + item, v + item);
        }
        if (rf_thread_x() < RF_DECODE_KEYS) present[rf_thread_x()] = true;
        return;
    }
    RF_NO_UNROLL
    for (uint32_t item = rf_thread_x(); item < count; item += RF_DECODE_WAVES * RF_WAVE) {
        uint32_t row = item / words, word = item % words;
        struct rf_key_place place = {base.k + row * keys->k_row, base.v + row * keys->v_row,
                                     base.there && first + row < end};
        if (!one) place.there = false;
        if (!one && first + row < end) place = rf_key_find(true, keys, first + row);
        rf_decode_copy(true, raw + item, raw + count + item, keys, place, word, place.there);
        if (word == 0) present[row] = place.there;
    }
}

/* Turns a word of four 8-bit elements into two words of f16. */
RF_DEVICE void rf_decode_widen(uint32_t four, uint32_t words[2]) {
#if defined(RF_HOST)
    for (uint32_t i = 0; i < 2; i++)
        words[i] = rf_pack_16(RF_TYPE_F16, (float)(int8_t)(four >> 16 * i), (float)(int8_t)(four >> (16 * i + 8)));
#else
    typedef _Float16 half2 __attribute__((ext_vector_type(2)));
    half2 middle = {(_Float16)1152.0f, (_Float16)1152.0f};
    uint32_t unsigned_four = four ^ 0x80808080u; /* 128 is added; as the last bits of 1024 the elements are exact */
    RF_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t two = unsigned_four >> 16 * i;
        uint32_t bits = 0x64006400u | (two & 0xff) | (two & 0xff00) << 8;
        half2 value;
        __builtin_memcpy(&value, &bits, 4);
        value = value - middle;
        __builtin_memcpy(&words[i], &value, 4);
    }
#endif
}

/* Widens this thread's share of a staged tile: whole blocks. */
RF_DEVICE void rf_decode_unpack(struct rf_decode_shape shape, uint16_t *tile, const uint32_t *raw) {
    uint32_t per_row = shape.dim / 32, count = 2 * RF_DECODE_KEYS * per_row, pitch = rf_decode_pitch(shape);
    RF_NO_UNROLL
    for (uint32_t block = rf_thread_x(); block < count; block += RF_DECODE_WAVES * RF_WAVE) {
        /* Two blocks are 17 words; the second begins in the middle of one. */
        const uint32_t *from = raw + block / 2 * 17 + block % 2 * 8;
        uint16_t *to = tile + block / per_row * pitch + block % per_row * 32;
        bool odd = block % 2;
        uint32_t word = from[0];
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            rf_u32x4 wide;
            RF_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                uint32_t next = from[2 * i + j + 1], words[2];
                rf_decode_widen(odd ? next : word >> 16 | next << 16, words);
                word = next;
                wide[2 * j] = words[0];
                wide[2 * j + 1] = words[1];
            }
            rf_store_16(to + 8 * i, wide);
        }
    }
}

/* ---- queries ------------------------------------------------------------------------------------------------ */

RF_DEVICE float rf_decode_rounded(enum rf_type type, float value) {
    return rf_f32_of_16(type, rf_16_of_f32(type, value));
}

/* Stages 16 rows of shape.dim, as the head of this file says; a wave takes every fourth head. */
RF_DEVICE void rf_decode_stage_queries(enum rf_type type, struct rf_decode_shape shape, uint16_t *tile,
                                       float *factors, enum rf_type q_type, const void *q, uint64_t q_head,
                                       uint32_t heads, uint32_t dim, float scale) {
    uint32_t pitch = rf_decode_pitch(shape);
    RF_NO_UNROLL
    for (uint32_t g = rf_thread_x() / RF_WAVE; g < RF_DECODE_HEADS; g += RF_DECODE_WAVES) {
        float values[4], most = 0.0f; /* dim is at most 128 */
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t d = rf_lane() + i * RF_WAVE;
            values[i] = 0.0f;
            if (g < heads && d < dim) values[i] = rf_load(q_type, q, g * q_head + d);
            most = rf_max(most, __builtin_fabsf(values[i]));
        }
        most = rf_wave_max(most);
        /* The power of two below the largest element, divided by 2^13; 1 where that is too small or no number. */
        uint32_t power = rf_bits_of_f32(most) & 0x7f800000;
        power = power < 0x10000000 || power > 0x77000000 ? 0x3f800000 : power - (13u << 23);
        float inverse = rf_f32_of_bits(0x7f000000 - power);
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t d = rf_lane() + i * RF_WAVE;
            float value = values[i] * inverse, high = rf_decode_rounded(type, value);
            if (d < shape.dim) {
                tile[g * pitch + d] = rf_16_of_f32(type, high);
                tile[(g + 8) * pitch + d] = rf_16_of_f32(type, value - high);
            }
        }
        if (rf_lane() == 0) factors[g] = rf_f32_of_bits(power) * scale * RF_LOG2_E;
    }
}

/* ---- a wave's 16 keys ---------------------------------------------------------------------------------------- */

/* Column c of the lane's head: the sum of both of its rows. All lanes call. */
RF_DEVICE float rf_decode_both(const struct rf_sums *sums, uint32_t c) {
    float value = sums->value[rf_sum_index(0, c)];
    return value + (RF_SUM_ROWS == 2 ? sums->value[rf_sum_index(RF_SUM_ROWS - 1, c)] : rf_wave_xor_f32(value, 8));
}

/* The factor on weights. */
RF_DEVICE float rf_decode_lift(enum rf_type type, struct rf_decode_shape shape) {
    return type == RF_TYPE_BF16 ? 1.0f : shape.packed ? 128.0f : 8192.0f;
}
/* Weights as a left operand: rounded ones, and what rounding took from them. */
RF_DEVICE struct rf_left rf_decode_weights(enum rf_type type, float lift, const float weight[RF_SUM_COLUMNS]) {
    struct rf_sums both;
    RF_TILE_UNROLL
    for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
        float lifted = weight[c] * lift, rest = lifted - rf_decode_rounded(type, lifted);
        both.value[rf_sum_index(0, c)] = rf_sum_row(0) < 8 ? lifted : rest;
        if (RF_SUM_ROWS == 2) both.value[rf_sum_index(RF_SUM_ROWS - 1, c)] = rest;
    }
    return rf_left_of_sums(type, &both);
}

/* The scale of a block of a packed row. */
RF_DEVICE float rf_decode_scale(struct rf_decode_shape shape, const uint32_t *raw, uint32_t row, uint32_t block) {
    return rf_f32_of_f16(((const uint16_t *)raw)[row * 2 * rf_decode_raw_words(shape) + block * 17]);
}

/* keys and values have 16 rows; k_raw and v_raw are the same rows as blocks, where packed. */
RF_DEVICE void rf_decode_attend(enum rf_type type, struct rf_decode_shape shape, const uint16_t *queries,
                                const uint16_t *keys, const uint16_t *values, const uint32_t *k_raw,
                                const uint32_t *v_raw, const uint32_t *present, float factor,
                                struct rf_decode_state *state) {
    uint32_t pitch = rf_decode_pitch(shape), at_once = shape.packed ? 32 : shape.dim;
    float weight[RF_SUM_COLUMNS], max = state->max, sum = 0.0f;
    RF_TILE_UNROLL
    for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) weight[c] = 0.0f;
    RF_TILE_UNROLL
    for (uint32_t first = 0; first < shape.dim; first += at_once) {
        struct rf_sums scores[2];
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < 2 * RF_SUM_COUNT; i++) scores[i % 2].value[i / 2] = 0.0f;
        RF_TILE_UNROLL
        for (uint32_t k = first / 16; k < (first + at_once) / 16; k++) {
            struct rf_right right = rf_right_load_lines(keys + k * 16, pitch);
            struct rf_left left = rf_left_load(queries + k * 16, pitch);
            rf_tile_multiply(type, &scores[k % 2], &left, &right);
            if (k % 4 == 3) rf_tile_fence();
        }
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < RF_SUM_COUNT; i++) scores[0].value[i] += scores[1].value[i];
        RF_TILE_UNROLL
        for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
            float part = rf_decode_both(&scores[0], c);
            if (shape.packed) part *= rf_decode_scale(shape, k_raw, rf_sum_column(c), first / 32);
            weight[c] += part;
        }
        rf_tile_fence();
    }
    RF_TILE_UNROLL
    for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
        weight[c] = present[rf_sum_column(c)] ? weight[c] * factor : -RF_INFINITY;
        max = rf_max(max, weight[c]);
    }
    max = rf_sum_row_max(max);
    float shift = rf_softmax_shift(max), shrink = rf_exp2(state->max - shift);
    state->max = max;
    RF_TILE_UNROLL
    for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
        weight[c] = rf_exp2(weight[c] - shift);
        sum += weight[c];
    }
    state->sum = state->sum * shrink + sum;
    if (rf_wave_ballot(shrink != 1.0f)) {
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < shape.dim / 16 * RF_SUM_COUNT; i++)
            state->result[i / RF_SUM_COUNT].value[i % RF_SUM_COUNT] *= shrink;
    }
    RF_TILE_UNROLL
    for (uint32_t first = 0; first < shape.dim; first += at_once) {
        float scaled[RF_SUM_COLUMNS];
        RF_TILE_UNROLL
        for (uint32_t c = 0; c < RF_SUM_COLUMNS; c++) {
            scaled[c] = weight[c];
            if (shape.packed) scaled[c] *= rf_decode_scale(shape, v_raw, rf_sum_column(c), first / 32);
        }
        struct rf_left left = rf_decode_weights(type, rf_decode_lift(type, shape), scaled);
        RF_TILE_UNROLL
        for (uint32_t n = first / 16; n < (first + at_once) / 16; n++) {
            struct rf_right right = rf_right_load(values + n * 16, pitch);
            rf_tile_multiply(type, &state->result[n], &left, &right);
            if (n % 4 == 3 || shape.packed) rf_tile_fence();
        }
    }
}

/* ---- the block ------------------------------------------------------------------------------------------------ */

/* Brings the waves together. merged has 4 * (8 * shape.dim + 16) floats. */
RF_DEVICE void rf_decode_merge(struct rf_decode_shape shape, float lift, float *merged, uint32_t heads, uint32_t dim,
                               struct rf_decode_state *state, const struct rf_decode_out *to) {
    uint32_t room = RF_DECODE_HEADS * (shape.dim + 2), head = rf_sum_row(0) % 8;
    float *mine = merged + rf_thread_x() / RF_WAVE * room;
    bool first = rf_sum_row(0) < 8;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < shape.dim / 16 * RF_SUM_COLUMNS; i++) {
        uint32_t column = i / RF_SUM_COLUMNS * 16 + rf_sum_column(i % RF_SUM_COLUMNS);
        float value = rf_decode_both(&state->result[i / RF_SUM_COLUMNS], i % RF_SUM_COLUMNS);
        if (first) mine[head * shape.dim + column] = value;
    }
    float total = rf_sum_row_total(state->sum), *extents = mine + RF_DECODE_HEADS * shape.dim + 2 * head;
    if (first && rf_sum_column(0) == 0) {
        extents[0] = state->max;
        extents[1] = total;
    }
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t item = rf_thread_x(); item < heads * dim; item += RF_DECODE_WAVES * RF_WAVE) {
        uint32_t g = item / dim, d = item % dim;
        const float *at = merged + RF_DECODE_HEADS * shape.dim + 2 * g;
        float max = -RF_INFINITY, sum = 0.0f, value = 0.0f;
        RF_UNROLL
        for (uint32_t w = 0; w < RF_DECODE_WAVES; w++) max = rf_max(max, at[w * room]);
        float shift = rf_softmax_shift(max);
        RF_UNROLL
        for (uint32_t w = 0; w < RF_DECODE_WAVES; w++) {
            float shrink = rf_exp2(at[w * room] - shift);
            sum = rf_fma(at[w * room + 1], shrink, sum);
            value = rf_fma(merged[w * room + g * shape.dim + d], shrink, value);
        }
        rf_decode_put(to, g, d, dim, value / lift, sum);
        if (d == 0) rf_decode_put_extent(to, g, max, sum);
    }
}

/* Attends from 1 to 8 heads, beginning at q, to keys first (a multiple of 64) to end. Keys before settled may be read
 * before the kernel's turn, which this function waits for. type is that of keys and values, F16 where packed; q is of
 * out's type. */
RF_DEVICE void rf_decode_block(enum rf_type type, struct rf_decode_shape shape, const void *q, uint64_t q_head,
                               uint32_t heads, const struct rf_keys *keys, uint32_t first, uint32_t end,
                               uint32_t settled, uint32_t dim, float scale, const struct rf_decode_out *to,
                               uint16_t *shared) {
    struct rf_decode_room room = rf_decode_divide(shape, shared);
    uint32_t tile = 2 * RF_DECODE_KEYS * rf_decode_pitch(shape),
             raw = 2 * RF_DECODE_KEYS * rf_decode_raw_words(shape);
    uint32_t wave_lines = rf_thread_x() / RF_WAVE * 16 * rf_decode_pitch(shape), turn = 0;
    struct rf_decode_state state;
    state.max = -RF_INFINITY;
    state.sum = 0.0f;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < 8 * RF_SUM_COUNT; i++) state.result[i / RF_SUM_COUNT].value[i % RF_SUM_COUNT] = 0.0f;
    if (first + RF_DECODE_KEYS > settled) rf_grid_wait();
    if (RF_DECODE_STAGES > 1 && first < end) {
        if (shape.packed) {
            rf_decode_stage_raw(shape, room.raw, room.present, keys, first, end);
        } else {
            rf_decode_stage(shape, room.tiles, room.present, keys, first, end, dim);
        }
        rf_copy_batch();
    }
    rf_grid_wait();
    rf_decode_stage_queries(type, shape, room.queries, room.factors, to->type, q, q_head, heads, dim, scale);
    rf_barrier();
    float factor = room.factors[rf_sum_row(0) % 8];

    RF_NO_UNROLL
    for (uint32_t key = first; key < end; key += RF_DECODE_KEYS) {
        uint32_t next = RF_DECODE_STAGES > 1 ? turn ^ 1 : 0, coming = key + (RF_DECODE_STAGES - 1) * RF_DECODE_KEYS;
        uint32_t *present = room.present + turn * RF_DECODE_KEYS, *later = room.present + next * RF_DECODE_KEYS;
        rf_copied(0);
        rf_barrier(); /* this tile has arrived, and nobody reads the one before it any more */
        if (coming < end) {
            if (shape.packed) {
                rf_decode_stage_raw(shape, room.raw + next * raw, later, keys, coming, end);
            } else {
                rf_decode_stage(shape, room.tiles + next * tile, later, keys, coming, end, dim);
            }
        }
        rf_copy_batch();
        if (RF_DECODE_STAGES == 1) rf_barrier();
        if (shape.packed) {
            rf_decode_unpack(shape, room.tiles, room.raw + turn * raw);
            rf_barrier();
        }
        /* The opaque offset keeps the addresses of all fragments from living in registers around the loop. */
        const uint16_t *mine = room.tiles + rf_opaque((shape.packed ? 0 : turn * tile) + wave_lines);
        const uint32_t *raw_mine = room.raw + turn * raw + rf_thread_x() / RF_WAVE * 16 * rf_decode_raw_words(shape);
        rf_decode_attend(type, shape, room.queries, mine, mine + RF_DECODE_KEYS * rf_decode_pitch(shape), raw_mine,
                         raw_mine + raw / 2, present + rf_thread_x() / RF_WAVE * 16, factor, &state);
        turn = next;
    }
    rf_copied(0);
    rf_barrier();
    rf_decode_merge(shape, rf_decode_lift(type, shape), (float *)room.tiles, heads, dim, &state, to);
    rf_decode_join(RF_DECODE_MATRIX_LOADS, to, heads, dim, (float *)room.present);
}
#endif /* RF_TILE_ABSENT */

#endif
