/* Rotary embedding: the angle of a pair of elements, exactly, and its sine and cosine. cache_args.h says what the
 * table of steps holds; phases are exact for negative positions too. */
#ifndef RF_KERNELS_ROPE_H
#define RF_KERNELS_ROPE_H

#include "kernels/kernel.h"

#include "kernels/cache_args.h"

struct rope_turn {
    float cosine, sine;
};

/* Cosine and sine of a phase in turns, a fraction of 2^64, times magnitude. The error is below 2e-7 of magnitude. */
RF_DEVICE struct rope_turn rope_turn_of(uint64_t phase, float magnitude) {
    /* x is the distance from the nearest quarter of a turn: at most an eighth, 29 bits and a sign. */
    uint32_t fine = (uint32_t)(phase >> 32), quarter = (fine + 0x20000000u) >> 30;
    float x = (float)(int32_t)(fine - (quarter << 30)) * 1.4629180792671596e-09f; /* 2 pi / 2^32 */
    float z = x * x;
    float s = rf_fma(z, -1.9515295891e-4f, 8.3321608736e-3f);
    s = rf_fma(rf_fma(s, z, -1.6666654611e-1f) * z, x, x);
    float c = rf_fma(z, 2.443315711809948e-5f, -1.388731625493765e-3f);
    c = rf_fma(rf_fma(rf_fma(c, z, 4.166664568298827e-2f), z, -0.5f), z, 1.0f);
    struct rope_turn turn;
    turn.cosine = (quarter & 1 ? s : c) * (quarter == 1 || quarter == 2 ? -magnitude : magnitude);
    turn.sine = (quarter & 1 ? c : s) * (quarter & 2 ? -magnitude : magnitude);
    return turn;
}

RF_DEVICE struct rope_turn rope_turn_at(const uint64_t *steps, uint32_t pair, int32_t position, float magnitude) {
    return rope_turn_of(steps[pair] * (uint64_t)(int64_t)position, magnitude);
}

/* Puts a token's turns into shared memory, where all its heads use them. slots is RF_SHARED(struct rope_turn, …,
 * ROPE_SLOTS) and holds up to ROPE_SHARED pairs. Every thread of the block makes the call, and the caller puts a
 * barrier behind it. A gap follows each eight turns, so that threads that read eight each meet different banks. */
#define ROPE_SHARED 256
#define ROPE_SLOTS (ROPE_SHARED / 8 * 10)
RF_DEVICE uint32_t rope_slot(uint32_t pair) {
    return pair + pair / 8 * 2;
}
RF_DEVICE void rope_turns_share(struct rope_turn *slots, const uint64_t *steps, uint32_t pairs, int32_t position,
                                float magnitude) {
    RF_NO_UNROLL
    for (uint32_t pair = rf_thread_x(); pair < pairs; pair += rf_block_dim_x())
        slots[rope_slot(pair)] = rope_turn_at(steps, pair, position, magnitude);
}
/* Reads the turns of a pair of even number and of the next. */
RF_DEVICE void rope_turns_two(const struct rope_turn *slots, uint32_t pair, struct rope_turn *turns) {
    rf_u32x4 raw = rf_load_16(slots + rope_slot(pair));
    RF_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        turns[k].cosine = rf_f32_of_bits(raw[2 * k]);
        turns[k].sine = rf_f32_of_bits(raw[2 * k + 1]);
    }
}
/* An element of a pair, turned; other is the other one. sine is that of the angle for the second element of the pair
 * and its negative for the first. Every kernel that rotates does it by this function, so that all give the same bits.
 */
RF_DEVICE float rope_turned(float x, float other, float cosine, float sine) {
    return rf_fma(x, cosine, other * sine);
}
RF_DEVICE void rope_turn_pair(struct rope_turn turn, float *a, float *b) {
    float first = rope_turned(*a, *b, turn.cosine, -turn.sine);
    *b = rope_turned(*b, *a, turn.cosine, turn.sine);
    *a = first;
}

/* The two elements of a pair: i and i + rotated / 2 with halves, else 2 i and 2 i + 1. */
RF_DEVICE uint32_t rope_first(bool halves, uint32_t pair) {
    return halves ? pair : 2 * pair;
}
RF_DEVICE uint32_t rope_second(bool halves, uint32_t pair, uint32_t rotated) {
    return halves ? pair + rotated / 2 : 2 * pair + 1;
}

/* rope, pair by pair, for any strides. */
RF_DEVICE void rope_body(enum rf_type type, enum rf_type to_type, void *out, const void *in, const int32_t *positions,
                         const uint64_t *steps, struct rf_rope_args args) {
    /* Threads work in teams: a team takes a head and a thread of it a pair, so its sine serves several heads. */
    bool halves = args.halves != 0;
    uint32_t rotated = args.rotated, pairs = args.dim / 2, wide = pairs < rf_block_dim_x() ? pairs : rf_block_dim_x();
    uint32_t teams = rf_block_dim_x() / wide, team = rf_thread_x() / wide;
    if (team >= teams) return;
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < args.tokens; token += rf_grid_dim_x()) {
        int32_t position = positions[token];
        RF_NO_UNROLL
        for (uint32_t pair = rf_thread_x() % wide; pair < pairs; pair += wide) {
            bool turned = pair < rotated / 2;
            uint32_t first = turned ? rope_first(halves, pair) : 2 * pair;
            uint32_t second = turned ? rope_second(halves, pair, rotated) : 2 * pair + 1;
            struct rope_turn turn = {1.0f, 0.0f};
            if (turned) turn = rope_turn_at(steps, pair, position, args.magnitude);
            RF_NO_UNROLL
            for (uint32_t head = rf_block_y() * teams + team; head < args.heads; head += rf_grid_dim_y() * teams) {
                uint64_t from = token * args.in_token + head * args.in_head;
                uint64_t to = token * args.out_token + head * args.out_head;
                float a = rf_load(type, in, from + first), b = rf_load(type, in, from + second);
                if (turned) rope_turn_pair(turn, &a, &b);
                rf_store(to_type, out, to + first, a);
                rf_store(to_type, out, to + second, b);
            }
        }
    }
}

#endif
