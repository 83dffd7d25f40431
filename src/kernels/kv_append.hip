/* kv_append_<cache>: writes new keys and values, f32, into a paged KV cache of F32, F16 or Q8_0.
 * rope_kv_append_<cache>: rotates the keys first, and rotates the tokens' queries too where q_heads is not 0.
 *
 * cache_args.h defines both. sequences and table may be NULL. No array may overlap another.
 *
 * Grid: x takes tokens, y takes heads, z is 2 (keys and values) or 3 (queries too); any number in x and y is right.
 * Block: 64, 128 or 256 threads along x, of whole waves. It is fast with blocks of 256 threads, one for each token
 * (with few tokens: as many in y as give a block 1024 elements), if dim, strides and addresses are multiples of 16
 * bytes, and in f16 caches of 8. */
#include "kernels/cache.h"

/* ---- four elements a thread --------------------------------------------------------------------------------- */

/* Eight lanes hold a block, four elements each; all lanes of the wave make the call. It stores what kv_store_q8_0
 * stores. */
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
    to[rf_opaque(1)] = (uint16_t)(quants >> 16); /* opaque, so that the two do not become one unaligned store */
}

/* How a thread turns its four elements, the same for all heads of a token: x[i] * cosine + other[i] * sine. */
struct kv_turns {
    bool any; /* false: they stay as they are */
    float cosine[4], sine[4];
    uint32_t other; /* where the other elements of the pairs begin; if pairs are neighbours, at the four themselves */
};
RF_DEVICE struct kv_turns kv_turns_at(bool turned, const uint64_t *steps, uint32_t e, int32_t position,
                                      struct rf_kv_append_args args) {
    bool halves = args.halves != 0;
    uint32_t rotated = args.rotated;
    struct kv_turns turns = {turned && e < rotated, {1.0f, 1.0f, 1.0f, 1.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, e};
    if (!turns.any) return turns;
    uint32_t half = rotated / 2;
    if (halves) turns.other = e < half ? e + half : e - half;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        bool second = halves ? e >= half : i % 2;
        uint32_t pair = !halves ? (e + i) / 2 : second ? e + i - half : e + i;
        struct rope_turn turn = rope_turn_at(steps, pair, position, args.magnitude);
        turns.cosine[i] = turn.cosine;
        turns.sine[i] = second ? turn.sine : -turn.sine;
    }
    return turns;
}

/* A team of dim / 4 threads takes a head. It has KV_HEADS heads in flight: as many as registers allow. */
#if defined(RF_NVIDIA)
#define KV_HEADS 4
#else
#define KV_HEADS 2
#endif
RF_DEVICE void kv_heads(enum kv_type type, bool rope, void *cache, const float *from, uint64_t place,
                        const struct kv_turns *turns, struct rf_kv_append_args args) {
    bool halves = args.halves != 0;
    uint32_t heads = args.heads, dim = args.dim;
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
            if (rope) rf_load_many(RF_TYPE_F32, 4, row, turns->other, other[i]); /* x again if pairs are neighbours */
        }
        RF_UNROLL
        for (uint32_t i = 0; i < KV_HEADS; i++) {
            uint64_t at = place + (base + i * (uint64_t)step + mine) * args.head + e;
            if (rope) {
                float turned[4];
                RF_UNROLL
                for (uint32_t k = 0; k < 4; k++)
                    turned[k] = rope_turned(x[i][k], halves ? other[i][k] : other[i][k ^ 1], turns->cosine[k],
                                            turns->sine[k]);
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

/* Whether a thread can take four elements of a row, turned halves by fours too, and a block a whole row. */
RF_DEVICE bool kv_by_fours(enum kv_type type, bool rope, const void *cache, const float *from, uint64_t token_stride,
                           struct rf_kv_append_args args) {
    uint64_t together = args.dim | token_stride | (rope ? args.rotated / 2 : 0);
    if (type != KV_Q8_0) together |= args.page | args.head | args.row;
    return together % 4 == 0 && args.dim / 4 <= rf_block_dim_x() && rf_aligned(from, 16) &&
           rf_aligned(cache, type == KV_F32   ? 16
                             : type == KV_F16 ? 8
                                              : 2);
}

/* ---- the block ------------------------------------------------------------------------------------------------ */

/* The heads of a token, an element for each thread. */
RF_DEVICE void kv_heads_slowly(enum kv_type type, bool turned, void *cache, const float *from, uint64_t place,
                               const uint64_t *steps, int32_t position, struct rf_kv_append_args args) {
    uint32_t heads = args.heads, dim = args.dim;
    RF_NO_UNROLL
    for (uint32_t head = rf_block_y(); head < heads; head += rf_grid_dim_y()) {
        const float *row = from + (uint64_t)head * dim;
        RF_NO_UNROLL
        for (uint32_t start = 0; start < dim; start += rf_block_dim_x()) {
            uint32_t e = start + rf_thread_x();
            uint64_t at = place + head * args.head + e;
            bool inside = e < dim;
            float x = 0.0f;
            if (inside) x = turned ? kv_rotated(row, e, steps, position, args) : row[e];
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
                       const uint64_t *steps, struct rf_kv_append_args args) {
    bool values = rf_block_z() == 1;
    void *cache = values ? v_cache : k_cache;
    bool fours = values ? kv_by_fours(type, false, v_cache, v, args.v_token, args)
                        : kv_by_fours(type, rope, k_cache, k, args.k_token, args);
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < args.tokens; token += rf_grid_dim_x()) {
        const float *from = values ? v + token * args.v_token : k + token * args.k_token;
        int32_t position = positions[token];
        uint64_t place;
        args.dim = rf_anew_shared(args.dim);
        if (!kv_place(position, sequences ? sequences[token] : 0, table, args, &place)) continue;
        if (!fours) {
            kv_heads_slowly(type, rope && !values, cache, from, place, steps, position, args);
        } else {
            struct kv_turns turns =
                kv_turns_at(rope && !values, steps, rf_thread_x() % (args.dim / 4) * 4, position, args);
            kv_heads(type, rope, cache, from, place, &turns, args);
        }
    }
}

/* The queries' part of rope_append, as arguments of rope. */
RF_DEVICE struct rf_rope_args kv_queries(struct rf_kv_append_args args) {
    struct rf_rope_args rope;
    rope.tokens = args.tokens;
    rope.out_token = args.q_out_token;
    rope.in_token = args.q_token;
    rope.out_head = rope.in_head = args.dim;
    rope.heads = args.q_heads;
    rope.dim = args.dim;
    rope.rotated = args.rotated;
    rope.halves = args.halves;
    rope.magnitude = args.magnitude;
    rope.unused = 0;
    return rope;
}

#define KV_APPEND(name, type)                                                                                        \
    RF_KERNEL(kv_append_##name, RF_KV_APPEND_THREADS, (void *, k_cache), (void *, v_cache), (const float *, k),      \
              (const float *, v), (const int32_t *, positions), (const uint32_t *, sequences),                       \
              (const uint32_t *, table), (struct rf_kv_append_args, args)) {                                         \
        kv_body(type, false, k_cache, v_cache, k, v, positions, sequences, table, 0, args);                          \
    }                                                                                                                \
    RF_KERNEL(rope_kv_append_##name, RF_KV_APPEND_THREADS, (void *, k_cache), (void *, v_cache), (const float *, k), \
              (const float *, v), (const int32_t *, positions), (const uint32_t *, sequences),                       \
              (const uint32_t *, table), (const uint64_t *, steps), (void *, q_out), (const float *, q),             \
              (struct rf_kv_append_args, args)) {                                                                    \
        if (rf_block_z() < 2)                                                                                        \
            kv_body(type, true, k_cache, v_cache, k, v, positions, sequences, table, steps, args);                   \
        else if (args.q_half)                                                                                        \
            rope_body(RF_TYPE_F32, RF_TYPE_F16, q_out, q, positions, steps, kv_queries(args));                       \
        else                                                                                                         \
            rope_body(RF_TYPE_F32, RF_TYPE_F32, q_out, q, positions, steps, kv_queries(args));                       \
    }

KV_APPEND(f32, KV_F32)
KV_APPEND(f16, KV_F16)
KV_APPEND(q8_0, KV_Q8_0)
