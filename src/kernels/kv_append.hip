/* kv_append_<cache>: new keys and values, f32, written into a paged cache of F32, F16 or Q8_0.
 * rope_kv_append_<cache>: the same, the keys rotated first as rope.hip says.
 *
 * k[token][head][dim] and v likewise, heads and elements dense, a stride between tokens. The token's row goes
 * to position p = positions[token] of sequence s = sequences[token] (NULL: 0): row p % page_rows of page
 * table[s * table_width + p / page_rows] (table NULL: page s alone), head by head. Element e of head h of row r
 * of page g is element g * page + h * head + r * row + e of the cache; both caches have these strides; for Q8_0
 * they and dim are multiples of 32. A token whose position is negative or lies beyond the table, whose sequence is
 * not below sequence_count or page not below page_count is left out. No two tokens may go to the same place; no
 * array may overlap another.
 *
 * Q8_0: per 32 elements d = max |x| / 127 as f16 and round(x / d), halves away from zero; the quotient by
 * the unrounded d.
 *
 * Grid: x takes tokens, y heads, z is 2: keys and values. Block: 64, 128 or 256 threads along x, of whole
 * waves. */
#include "kernels/rope.h"

enum kv_type { KV_F32, KV_F16, KV_Q8_0 };

/* 32 bytes, passed by value. */
struct kv_pages {
    uint64_t page, head, row; /* strides, in elements */
    uint32_t page_rows, page_count;
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

RF_DEVICE void kv_body(enum kv_type type, bool rope, void *k_cache, void *v_cache, const float *k, const float *v,
                       const int32_t *positions, const uint32_t *sequences, const uint32_t *table,
                       uint64_t table_width, uint64_t sequence_count, struct kv_pages pages, uint64_t tokens,
                       uint32_t heads, uint32_t dim, uint64_t k_token, uint64_t v_token, const uint64_t *steps,
                       uint32_t rotated, bool halves, float magnitude) {
    bool values = rf_block_z() == 1;
    void *cache = values ? v_cache : k_cache;
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < tokens; token += rf_grid_dim_x()) {
        const float *from = values ? v + token * v_token : k + token * k_token;
        int32_t position = positions[token];
        uint64_t place;
        if (!kv_place(position, sequences ? sequences[token] : 0, table, table_width, sequence_count, pages,
                      &place)) continue;
        RF_NO_UNROLL
        for (uint32_t head = rf_block_y(); head < heads; head += rf_grid_dim_y()) {
            const float *row = from + (uint64_t)head * dim;
            RF_NO_UNROLL
            for (uint32_t start = 0; start < dim; start += rf_block_dim_x()) {
                uint32_t e = start + rf_thread_x();
                uint64_t at = place + head * pages.head + e;
                bool inside = e < dim;
                float x = 0.0f;
                if (inside && rope && !values) {
                    x = kv_rotated(halves, row, e, rotated, steps, position, magnitude);
                } else if (inside) {
                    x = row[e];
                }
                if (type == KV_Q8_0) {
                    kv_store_q8_0((uint8_t *)cache, at, inside, x);
                } else if (inside) {
                    rf_store(type == KV_F32 ? RF_TYPE_F32 : RF_TYPE_F16, cache, at, x);
                }
            }
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
              (uint64_t, v_token), (const uint64_t *, steps), (uint32_t, rotated), (uint32_t, halves),               \
              (float, magnitude)) {                                                                                  \
        kv_body(type, true, k_cache, v_cache, k, v, positions, sequences, table, table_width, sequence_count, pages, \
                tokens, heads, dim, k_token, v_token, steps, rotated, halves != 0, magnitude);                       \
    }

KV_APPEND(f32, KV_F32)
KV_APPEND(f16, KV_F16)
KV_APPEND(q8_0, KV_Q8_0)
