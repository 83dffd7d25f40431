/* rope: rotary embedding of x[token][head][dim]; the pair i of the first 'rotated' elements of each head,
 * (a, b) at the token's position p, becomes m (a cos t - b sin t, a sin t + b cos t), t = p * step i (see
 * rope.h), m the magnitude; the elements from 'rotated' on are copied. halves = 0: pairs are neighbours;
 * 1: element i pairs with i + rotated / 2.
 *
 * dim and rotated are even, rotated <= dim; strides in elements, a head's elements dense; f32 arithmetic,
 * rounded once to the type of in and out, or with rope_f32_f16 to f16. positions: one i32 for each token. out may be
 * in with the same strides; no other overlap.
 *
 * Grid: x takes tokens, y takes heads; any sizes. Block: one-dimensional. Fast: a small block per token where
 * tokens are many, so that a sine serves several heads; more blocks in y where they are few. In vectors where all is
 * aligned and the rotated elements and the others (with halves: of each half) are whole vectors. */
#include "kernels/rope.h"

enum { ROPE_MAX = 8, ROPE_HEADS = 4 }; /* elements in a vector; heads that a thread has in flight */

RF_DEVICE bool rope_vectors(enum rf_type type, bool halves, const void *out, const void *in, uint32_t dim,
                            uint32_t rotated, uint64_t out_token, uint64_t out_head, uint64_t in_token,
                            uint64_t in_head) {
    uint32_t group = type == RF_TYPE_F32 ? 4 : 8;
    return (dim | (halves ? rotated / 2 : rotated)) % group == 0 && rotated / 2 <= ROPE_SHARED &&
           (out_token | out_head | in_token | in_head) % group == 0 && rf_aligned(out, 16) && rf_aligned(in, 16);
}

RF_DEVICE float rope_unpack(enum rf_type type, rf_u32x4 raw, uint32_t k) {
    if (type == RF_TYPE_F32) return rf_f32_of_bits(raw[k % 4]);
    return rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
}

/* The unit of a thread: a vector of the first half and its partner in the second; or a vector of pairs, or of
 * elements that are copied. pair: its first, where turned. */
struct rope_unit {
    bool turned, two;
    uint32_t pair, first, second;
};
RF_DEVICE struct rope_unit rope_unit_of(bool halves, uint32_t group, uint32_t unit, uint32_t rotated) {
    uint32_t turned_units = (halves ? rotated / 2 : rotated) / group;
    struct rope_unit it;
    it.turned = unit < turned_units;
    it.two = halves && it.turned;
    it.pair = halves ? unit * group : unit * (group / 2);
    it.first = it.turned ? unit * group : rotated + (unit - turned_units) * group;
    it.second = it.first + rotated / 2;
    return it;
}

/* One unit of one head, loaded. */
RF_DEVICE void rope_unit_turn(enum rf_type type, enum rf_type to_type, bool halves, struct rope_unit it,
                              const struct rope_turn *turns, void *to, const rf_u32x4 *raw) {
    uint32_t group = type == RF_TYPE_F32 ? 4 : 8;
    float a[ROPE_MAX], b[ROPE_MAX];
    RF_UNROLL
    for (uint32_t k = 0; k < group; k++) {
        a[k] = rope_unpack(type, raw[0], k);
        if (halves) b[k] = rope_unpack(type, raw[1], k);
    }
    if (it.turned) {
        RF_UNROLL
        for (uint32_t k = 0; k < (halves ? group : group / 2); k++)
            rope_turn_pair(turns[k], halves ? &a[k] : &a[2 * k], halves ? &b[k] : &a[2 * k + 1]);
    }
    rf_store_many(to_type, group, to, it.first, a);
    if (it.two) rf_store_many(to_type, group, to, it.second, b);
}

/* A unit of several heads, a step apart; instead of those beyond the last, the last. */
RF_DEVICE void rope_heads_load(enum rf_type type, bool halves, struct rope_unit it, const void *in, uint64_t in_head,
                               uint32_t head, uint32_t heads, uint32_t step, rf_u32x4 raw[ROPE_HEADS][2]) {
    RF_UNROLL
    for (uint32_t k = 0; k < ROPE_HEADS; k++) {
        uint32_t there = head + k * step < heads ? head + k * step : heads - 1;
        const void *from = rf_at(type, in, there * in_head);
        raw[k][0] = rf_load_16(rf_at(type, from, it.first));
        if (halves) raw[k][1] = rf_load_16(rf_at(type, from, it.two ? it.second : it.first));
    }
}

/* The first heads are on their way while the token's turns are made. */
RF_DEVICE void rope_wide(enum rf_type type, enum rf_type to_type, bool halves, void *out, const void *in,
                         const int32_t *positions, const uint64_t *steps, uint64_t tokens, uint32_t heads,
                         uint32_t dim, uint32_t rotated, uint64_t out_token, uint64_t out_head, uint64_t in_token,
                         uint64_t in_head, float magnitude) {
    RF_SHARED(struct rope_turn, slots, ROPE_SLOTS);
    uint32_t group = type == RF_TYPE_F32 ? 4 : 8, units = (halves ? dim - rotated / 2 : dim) / group;
    uint32_t wide = units < rf_block_dim_x() ? units : rf_block_dim_x();
    uint32_t teams = rf_block_dim_x() / wide, team = rf_thread_x() / wide, step = rf_grid_dim_y() * teams;
    uint32_t first_head = team < teams ? rf_block_y() * teams + team : heads;
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < tokens; token += rf_grid_dim_x()) {
        const void *from = rf_at(type, in, token * in_token);
        void *to = rf_at_mutable(to_type, out, token * out_token);
        uint32_t unit = rf_thread_x() % wide, head = first_head;
        struct rope_unit it = rope_unit_of(halves, group, unit, rotated);
        rf_u32x4 raw[ROPE_HEADS][2];
        rope_heads_load(type, halves, it, from, in_head, head, heads, step, raw);
        rope_turns_share(slots, steps, rotated / 2, positions[token], magnitude);
        rf_barrier();
        RF_NO_UNROLL
        while (head < heads) {
            struct rope_turn turns[ROPE_MAX];
            RF_UNROLL
            for (uint32_t k = 0; k < (halves ? group : group / 2); k += 2)
                rope_turns_two(slots, it.turned ? it.pair + k : 0, turns + k);
            RF_UNROLL
            for (uint32_t k = 0; k < ROPE_HEADS; k++)
                if (head + k * step < heads)
                    rope_unit_turn(type, to_type, halves, it, turns,
                                   rf_at_mutable(to_type, to, (head + k * step) * out_head), raw[k]);
            head += ROPE_HEADS * step;
            if (head >= heads) {
                unit += wide;
                if (unit >= units) break;
                head = first_head;
                it = rope_unit_of(halves, group, unit, rotated);
            }
            rope_heads_load(type, halves, it, from, in_head, head, heads, step, raw);
        }
        rf_barrier(); /* before the next token's turns */
    }
}

#define ROPE(name, type, to_type, element, to_element)                                                               \
    RF_KERNEL(rope_##name, 256, (to_element *, out), (const element *, in), (const int32_t *, positions),            \
              (const uint64_t *, steps), (uint64_t, tokens), (uint32_t, heads), (uint32_t, dim),                     \
              (uint32_t, rotated), (uint32_t, halves), (uint64_t, out_token), (uint64_t, out_head),                  \
              (uint64_t, in_token), (uint64_t, in_head), (float, magnitude)) {                                       \
        bool vectors =                                                                                               \
            rope_vectors(type, halves != 0, out, in, dim, rotated, out_token, out_head, in_token, in_head);          \
        if (vectors && halves) {                                                                                     \
            rope_wide(type, to_type, true, out, in, positions, steps, tokens, heads, dim, rotated, out_token,        \
                      out_head, in_token, in_head, magnitude);                                                       \
        } else if (vectors) {                                                                                        \
            rope_wide(type, to_type, false, out, in, positions, steps, tokens, heads, dim, rotated, out_token,       \
                      out_head, in_token, in_head, magnitude);                                                       \
        } else {                                                                                                     \
            rope_body(type, to_type, halves != 0, out, in, positions, steps, tokens, heads, dim, rotated, out_token, \
                      out_head, in_token, in_head, magnitude);                                                       \
        }                                                                                                            \
    }

ROPE(f32, RF_TYPE_F32, RF_TYPE_F32, float, float)
ROPE(f16, RF_TYPE_F16, RF_TYPE_F16, rf_f16, rf_f16)
ROPE(bf16, RF_TYPE_BF16, RF_TYPE_BF16, rf_bf16, rf_bf16)
ROPE(f32_f16, RF_TYPE_F32, RF_TYPE_F16, float, rf_f16)
