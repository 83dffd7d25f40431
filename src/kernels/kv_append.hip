/* kv_append_<cache>: new keys and values, f32, written into a paged cache of F32, F16 or Q8_0.
 * rope_kv_append_<cache>: the same, the keys rotated first as rope.hip says; and where given, the tokens' queries too,
 * f32, into another array, of f32 or f16.
 *
 * k[token][head][dim] and v likewise, heads and elements dense, a stride between tokens. The token's row goes
 * to position p = positions[token] of sequence s = sequences[token] (NULL: 0): row p % page_rows of page
 * table[s * table_width + p / page_rows] (table NULL: page s alone), head by head. Element e of head h of row r
 * of page g is element g * page + h * head + r * row + e of the cache; both caches have these strides; for Q8_0
 * they and dim are multiples of 32. A token whose position is negative or lies beyond the table, whose sequence is
 * not below sequence_count or page not below page_count is left out; its queries are not. No two tokens may go to the
 * same place; no array may overlap another.
 *
 * Q8_0: per 32 elements d = max |x| / 127 as f16 and round(x / d), halves away from zero; the quotient by
 * the unrounded d.
 *
 * Grid: x takes tokens, y heads, z is 2: keys and values, or 3: queries too; any number in x and y is right. Block: 64,
 * 128 or 256 threads along x, of whole waves. Fast: blocks of 256 threads, one for each token (few tokens: y so many that a
 * block has 1024 elements), dim, strides and addresses in whole 16 bytes, f16 caches in whole 8. */
#include "kernels/rope.h"

enum kv_type { KV_F32, KV_F16, KV_Q8_0 };

/* 32 bytes, passed by value. */
struct kv_pages {
    uint64_t page, head, row; /* strides, in elements */
    uint32_t page_rows, page_count;
};

/* 32 bytes, passed by value: the rotation, and the queries, of which there may be none; their heads and elements are
 * dense. */
struct kv_rope {
    uint64_t q_token, q_out_token; /* strides, in elements */
    uint32_t q_heads, rotated;
    float magnitude;
    uint16_t halves, q_half; /* q_half: the queries go to f16 */
};

/* Whether the token has a place, and which: its first element of head 0. */
RF_DEVICE bool kv_place(int32_t position, uint32_t sequence, const uint32_t *table, uint64_t table_width,
                        uint64_t sequence_count, struct kv_pages pages, uint64_t *place) {
    if (position < 0 || sequence >= sequence_count) return false;
    uint32_t turn = (uint32_t)position / pages.page_rows, row = (uint32_t)position % pages.page_rows;
    if (turn >= (table ? table_width : 1)) return false;
    uint32_t page = table ? table[sequence * table_width + turn] : sequence;
    if (page >= pages.page_count) return false;
    *place = page * pages.page + row * pages.row;
    return true;
}

/* Element e of a row of keys, rotated. */
RF_DEVICE float kv_rotated(bool halves, const float *from, uint32_t e, uint32_t rotated, const uint64_t *steps,
                           int32_t position, float magnitude) {
    if (e >= rotated) return from[e];
    bool second = halves ? e >= rotated / 2 : e % 2;
    uint32_t pair = !halves ? e / 2 : second ? e - rotated / 2 : e;
    struct rope_turn turn = rope_turn_at(steps, pair, position, magnitude);
    float a = from[rope_first(halves, pair)], b = from[rope_second(halves, pair, rotated)];
    return second ? a * turn.sine + b * turn.cosine : a * turn.cosine - b * turn.sine;
}

/* The wave's lanes in groups of 32 hold a block each; all call. */
RF_DEVICE void kv_store_q8_0(uint8_t *cache, uint64_t at, bool inside, float x) {
    float most = inside ? __builtin_fabsf(x) : 0.0f;
    RF_UNROLL
    for (uint32_t mask = 16; mask; mask /= 2) most = rf_max(most, rf_wave_xor_f32(most, mask));
    float d = most / 127.0f, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    if (!inside) return;
    uint8_t *block = cache + at / 32 * 34;
    if (at % 32 == 0) *(uint16_t *)block = rf_f16_of_f32(d);
    /* Opaque, lest the product be fused with the sum inside the rounding. Out of range: only where d is subnormal
     * and its inverse infinite, or x is no number. */
    float q = __builtin_roundf(rf_f32_of_bits(rf_opaque(rf_bits_of_f32(x * inverse))));
    block[2 + at % 32] = (uint8_t)(int8_t)(q >= -127.0f ? q <= 127.0f ? q : 127.0f : -127.0f);
}

/* ---- four elements a thread --------------------------------------------------------------------------------- */

/* Four of a block of 8 lanes; all lanes of the wave call. The numbers are those of kv_store_q8_0. */
RF_DEVICE void kv_store_four_q8_0(uint8_t *cache, uint64_t at, bool inside, const float x[4]) {
    float most = 0.0f;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) most = rf_max(most, inside ? __builtin_fabsf(x[i]) : 0.0f);
    RF_UNROLL
    for (uint32_t mask = 4; mask; mask /= 2) most = rf_max(most, rf_wave_xor_f32(most, mask));
    float d = most / 127.0f, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    if (!inside) return;
    uint16_t *block = (uint16_t *)(cache + at / 32 * 34), *to = block + 1 + at % 32 / 2;
    uint32_t quants = 0;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        float q = __builtin_roundf(rf_f32_of_bits(rf_opaque(rf_bits_of_f32(x[i] * inverse))));
        quants |= (uint32_t)(uint8_t)(int8_t)(q >= -127.0f ? q <= 127.0f ? q : 127.0f : -127.0f) << 8 * i;
    }
    if (at % 32 == 0) block[0] = rf_f16_of_f32(d);
    to[0] = (uint16_t)quants;
    to[rf_opaque(1)] = (uint16_t)(quants >> 16); /* opaque, lest both become one store that is not aligned */
}

/* How a thread's four elements are turned, the same for all heads of a token: x[i] * cosine + other[i] * sine. */
struct kv_turns {
    bool any; /* else they stay as they are */
    float cosine[4], sine[4];
    uint32_t other; /* where the other elements of the pairs begin; neighbours: the same */
};
RF_DEVICE struct kv_turns kv_turns_at(bool turned, bool halves, const uint64_t *steps, uint32_t e, uint32_t rotated,
                                      int32_t position, float magnitude) {
    struct kv_turns turns = {turned && e < rotated, {1.0f, 1.0f, 1.0f, 1.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, e};
    if (!turns.any) return turns;
    uint32_t half = rotated / 2;
    if (halves) turns.other = e < half ? e + half : e - half;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        bool second = halves ? e >= half : i % 2;
        uint32_t pair = !halves ? (e + i) / 2 : second ? e + i - half : e + i;
        struct rope_turn turn = rope_turn_at(steps, pair, position, magnitude);
        turns.cosine[i] = turn.cosine;
        turns.sine[i] = second ? turn.sine : -turn.sine;
    }
    return turns;
}

/* A team of dim / 4 threads takes a head, several heads at a time; as many as there are registers for. */
#if defined(RF_NVIDIA)
#define KV_HEADS 4
#else
#define KV_HEADS 2
#endif
RF_DEVICE void kv_heads(enum kv_type type, bool rope, void *cache, const float *from, uint64_t place,
                        uint64_t head_stride, uint32_t heads, uint32_t dim, const struct kv_turns *turns,
                        bool halves) {
    uint32_t team = dim / 4, teams = rf_block_dim_x() / team, e = rf_thread_x() % team * 4;
    uint32_t mine = rf_thread_x() / team, step = teams * rf_grid_dim_y();
    RF_NO_UNROLL
    for (uint64_t base = rf_block_y() * teams; base < heads; base += KV_HEADS * (uint64_t)step) {
        float x[KV_HEADS][4], other[KV_HEADS][4];
        bool inside[KV_HEADS];
        RF_UNROLL
        for (uint32_t i = 0; i < KV_HEADS; i++) {
            uint64_t head = base + i * (uint64_t)step + mine;
            inside[i] = mine < teams && head < heads;
            const float *row = from + (inside[i] ? head * dim : 0);
            rf_load_many(RF_TYPE_F32, 4, row, e, x[i]);
            if (rope)
                rf_load_many(RF_TYPE_F32, 4, row, turns->other, other[i]); /* x again where neighbours are pairs */
        }
        RF_UNROLL
        for (uint32_t i = 0; i < KV_HEADS; i++) {
            uint64_t at = place + (base + i * (uint64_t)step + mine) * head_stride + e;
            if (rope) {
                float turned[4];
                RF_UNROLL
                for (uint32_t k = 0; k < 4; k++)
                    turned[k] =
                        x[i][k] * turns->cosine[k] + (halves ? other[i][k] : other[i][k ^ 1]) * turns->sine[k];
                RF_UNROLL
                for (uint32_t k = 0; k < 4; k++) x[i][k] = turns->any ? turned[k] : x[i][k];
            }
            if (type == KV_Q8_0) {
                kv_store_four_q8_0((uint8_t *)cache, at, inside[i], x[i]);
            } else if (inside[i]) {
                rf_store_many(type == KV_F32 ? RF_TYPE_F32 : RF_TYPE_F16, 4, cache, at, x[i]);
            }
        }
    }
}

/* Whether rows can be taken by fours, whole rows by a block; turned halves by fours too. */
RF_DEVICE bool kv_by_fours(enum kv_type type, bool rope, const void *cache, const float *from, uint64_t token_stride,
                           struct kv_pages pages, uint32_t dim, uint32_t rotated) {
    uint64_t together = dim | token_stride | (rope ? rotated / 2 : 0);
    if (type != KV_Q8_0) together |= pages.page | pages.head | pages.row;
    return together % 4 == 0 && dim / 4 <= rf_block_dim_x() && rf_aligned(from, 16) &&
           rf_aligned(cache, type == KV_F32   ? 16
                             : type == KV_F16 ? 8
                                              : 2);
}

/* ---- the block ------------------------------------------------------------------------------------------------ */

/* The heads of a token, element by element. */
RF_DEVICE void kv_heads_slowly(enum kv_type type, bool turned, void *cache, const float *from, uint64_t place,
                               uint64_t head_stride, uint32_t heads, uint32_t dim, const uint64_t *steps,
                               uint32_t rotated, bool halves, int32_t position, float magnitude) {
    RF_NO_UNROLL
    for (uint32_t head = rf_block_y(); head < heads; head += rf_grid_dim_y()) {
        const float *row = from + (uint64_t)head * dim;
        RF_NO_UNROLL
        for (uint32_t start = 0; start < dim; start += rf_block_dim_x()) {
            uint32_t e = start + rf_thread_x();
            uint64_t at = place + head * head_stride + e;
            bool inside = e < dim;
            float x = 0.0f;
            if (inside) x = turned ? kv_rotated(halves, row, e, rotated, steps, position, magnitude) : row[e];
            if (type == KV_Q8_0) {
                kv_store_q8_0((uint8_t *)cache, at, inside, x);
            } else if (inside) {
                rf_store(type == KV_F32 ? RF_TYPE_F32 : RF_TYPE_F16, cache, at, x);
            }
        }
    }
}

RF_DEVICE void kv_body(enum kv_type type, bool rope, void *k_cache, void *v_cache, const float *k, const float *v,
                       const int32_t *positions, const uint32_t *sequences, const uint32_t *table,
                       uint64_t table_width, uint64_t sequence_count, struct kv_pages pages, uint64_t tokens,
                       uint32_t heads, uint32_t dim, uint64_t k_token, uint64_t v_token, const uint64_t *steps,
                       uint32_t rotated, bool halves, float magnitude) {
    bool values = rf_block_z() == 1;
    void *cache = values ? v_cache : k_cache;
    bool fours = values ? kv_by_fours(type, false, v_cache, v, v_token, pages, dim, 0)
                        : kv_by_fours(type, rope, k_cache, k, k_token, pages, dim, rotated);
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < tokens; token += rf_grid_dim_x()) {
        const float *from = values ? v + token * v_token : k + token * k_token;
        int32_t position = positions[token];
        uint64_t place;
        if (!kv_place(position, sequences ? sequences[token] : 0, table, table_width, sequence_count, pages, &place))
            continue;
        if (!fours) {
            kv_heads_slowly(type, rope && !values, cache, from, place, pages.head, heads, dim, steps, rotated, halves,
                            position, magnitude);
        } else {
            struct kv_turns turns = kv_turns_at(rope && !values, halves, steps, rf_thread_x() % (dim / 4) * 4,
                                                rotated, position, magnitude);
            kv_heads(type, rope, cache, from, place, pages.head, heads, dim, &turns, halves);
        }
    }
}

#define KV_APPEND(name, type)                                                                                        \
    RF_KERNEL(kv_append_##name, 256, (void *, k_cache), (void *, v_cache), (const float *, k), (const float *, v),   \
              (const int32_t *, positions), (const uint32_t *, sequences), (const uint32_t *, table),                \
              (uint64_t, table_width), (uint64_t, sequence_count), (struct kv_pages, pages), (uint64_t, tokens),     \
              (uint32_t, heads), (uint32_t, dim), (uint64_t, k_token), (uint64_t, v_token)) {                        \
        kv_body(type, false, k_cache, v_cache, k, v, positions, sequences, table, table_width, sequence_count,       \
                pages, tokens, heads, dim, k_token, v_token, 0, 0, false, 1.0f);                                     \
    }                                                                                                                \
    RF_KERNEL(rope_kv_append_##name, 256, (void *, k_cache), (void *, v_cache), (const float *, k),                  \
              (const float *, v), (const int32_t *, positions), (const uint32_t *, sequences),                       \
              (const uint32_t *, table), (uint64_t, table_width), (uint64_t, sequence_count),                        \
              (struct kv_pages, pages), (uint64_t, tokens), (uint32_t, heads), (uint32_t, dim), (uint64_t, k_token), \
              (uint64_t, v_token), (const uint64_t *, steps), (struct kv_rope, rope), (void *, q_out),               \
              (const float *, q)) {                                                                                  \
        bool halves = rope.halves != 0;                                                                              \
        if (rf_block_z() < 2)                                                                                        \
            kv_body(type, true, k_cache, v_cache, k, v, positions, sequences, table, table_width, sequence_count,    \
                    pages, tokens, heads, dim, k_token, v_token, steps, rope.rotated, halves, rope.magnitude);       \
        else if (rope.q_half)                                                                                        \
            rope_body(RF_TYPE_F32, RF_TYPE_F16, halves, q_out, q, positions, steps, tokens, rope.q_heads, dim,       \
                      rope.rotated, rope.q_out_token, dim, rope.q_token, dim, rope.magnitude);                       \
        else                                                                                                         \
            rope_body(RF_TYPE_F32, RF_TYPE_F32, halves, q_out, q, positions, steps, tokens, rope.q_heads, dim,       \
                      rope.rotated, rope.q_out_token, dim, rope.q_token, dim, rope.magnitude);                       \
    }

KV_APPEND(f32, KV_F32)
KV_APPEND(f16, KV_F16)
KV_APPEND(q8_0, KV_Q8_0)
