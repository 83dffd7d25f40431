/* rope_<type>, rope_f32_f16: rotary embedding, as cache_args.h defines it. The arithmetic is in f32 and is rounded
 * once, to the type of in and out, or to f16 in rope_f32_f16.
 *
 * Grid: x takes tokens, y takes heads; any sizes are right. Block: one-dimensional. It is fast with a small block for
 * each token where there are many tokens, because a sine then serves several heads, and with more blocks in y where
 * there are few. The kernel works in vectors if all strides and addresses are aligned and if the rotated elements
 * (with halves: those of each half) and the copied ones are whole vectors. */
#include "kernels/rope.h"

enum { ROPE_MAX = 8, ROPE_HEADS = 4 }; /* most elements in a vector; heads that a thread has in flight */

RF_DEVICE bool rope_vectors(enum rf_type type, const void *out, const void *in, struct rf_rope_args args) {
    uint32_t group = type == RF_TYPE_F32 ? 4 : 8, turned = args.halves ? args.rotated / 2 : args.rotated;
    uint64_t strides = args.out_token | args.out_head | args.in_token | args.in_head;
    return (args.dim | turned) % group == 0 && args.rotated / 2 <= ROPE_SHARED && strides % group == 0 &&
           rf_aligned(out, 16) && rf_aligned(in, 16);
}

RF_DEVICE float rope_unpack(enum rf_type type, rf_u32x4 raw, uint32_t k) {
    if (type == RF_TYPE_F32) return rf_f32_of_bits(raw[k % 4]);
    return rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
}

/* What a thread does at a time: a vector of the first half with its partner in the second, a vector of pairs, or a
 * vector of elements that are copied. */
struct rope_unit {
    bool turned, two;       /* two: it has a vector in each half */
    uint32_t pair;          /* its first pair, if it is turned */
    uint32_t first, second; /* the first element of each vector */
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

/* Turns and stores one unit of one head, which is loaded in raw. */
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

/* Loads a unit of several heads that are a step apart; beyond the last head it loads the last again. */
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

/* rope in vectors. The first heads are being loaded while the token's turns are computed. halves is a constant that
 * equals args.halves. */
RF_DEVICE void rope_wide(enum rf_type type, enum rf_type to_type, bool halves, void *out, const void *in,
                         const int32_t *positions, const uint64_t *steps, struct rf_rope_args args) {
    RF_SHARED(struct rope_turn, slots, ROPE_SLOTS);
    uint32_t heads = args.heads, rotated = args.rotated;
    uint32_t group = type == RF_TYPE_F32 ? 4 : 8, units = (halves ? args.dim - rotated / 2 : args.dim) / group;
    uint32_t wide = units < rf_block_dim_x() ? units : rf_block_dim_x();
    uint32_t teams = rf_block_dim_x() / wide, team = rf_thread_x() / wide, step = rf_grid_dim_y() * teams;
    uint32_t first_head = team < teams ? rf_block_y() * teams + team : heads;
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < args.tokens; token += rf_grid_dim_x()) {
        const void *from = rf_at(type, in, token * args.in_token);
        void *to = rf_at_mutable(to_type, out, token * args.out_token);
        uint32_t unit = rf_thread_x() % wide, head = first_head;
        struct rope_unit it = rope_unit_of(halves, group, unit, rotated);
        rf_u32x4 raw[ROPE_HEADS][2];
        rope_heads_load(type, halves, it, from, args.in_head, head, heads, step, raw);
        rope_turns_share(slots, steps, rotated / 2, positions[token], args.magnitude);
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
                                   rf_at_mutable(to_type, to, (head + k * step) * args.out_head), raw[k]);
            head += ROPE_HEADS * step;
            if (head >= heads) {
                unit += wide;
                if (unit >= units) break;
                head = first_head;
                it = rope_unit_of(halves, group, unit, rotated);
            }
            rope_heads_load(type, halves, it, from, args.in_head, head, heads, step, raw);
        }
        rf_barrier(); /* before the next token's turns */
    }
}

#define ROPE(name, type, to_type, element, to_element)                                                               \
    RF_KERNEL(rope_##name, RF_ROPE_THREADS, (to_element *, out), (const element *, in),                              \
              (const int32_t *, positions), (const uint64_t *, steps), (struct rf_rope_args, args)) {                \
        bool vectors = rope_vectors(type, out, in, args);                                                            \
        if (vectors && args.halves)                                                                                  \
            rope_wide(type, to_type, true, out, in, positions, steps, args);                                         \
        else if (vectors)                                                                                            \
            rope_wide(type, to_type, false, out, in, positions, steps, args);                                        \
        else                                                                                                         \
            rope_body(type, to_type, out, in, positions, steps, args);                                               \
    }

ROPE(f32, RF_TYPE_F32, RF_TYPE_F32, float, float)
ROPE(f16, RF_TYPE_F16, RF_TYPE_F16, rf_f16, rf_f16)
ROPE(bf16, RF_TYPE_BF16, RF_TYPE_BF16, rf_bf16, rf_bf16)
ROPE(f32_f16, RF_TYPE_F32, RF_TYPE_F16, float, rf_f16)
