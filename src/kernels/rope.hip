/* rope: rotary embedding of x[token][head][dim]; the pair i of the first 'rotated' elements of each head,
 * (a, b) at the token's position p, becomes m (a cos t - b sin t, a sin t + b cos t), t = p * step i (see
 * rope.h), m the magnitude; the elements from 'rotated' on are copied. halves = 0: pairs are neighbours;
 * 1: element i pairs with i + rotated / 2.
 *
 * dim and rotated are even, rotated <= dim; strides in elements, a head's elements dense; f32 arithmetic,
 * rounded once. positions: one i32 for each token. out may be in with the same strides; no other overlap.
 *
 * Grid: x takes tokens, y takes heads; any sizes. Block: one-dimensional. Fast: a block per token where
 * tokens are many, more blocks in y where they are few. */
#include "kernels/rope.h"

RF_DEVICE void rope_body(enum rf_type type, bool halves, void *out, const void *in, const int32_t *positions,
                         const uint64_t *steps, uint64_t tokens, uint32_t heads, uint32_t dim, uint32_t rotated,
                         uint64_t out_token, uint64_t out_head, uint64_t in_token, uint64_t in_head,
                         float magnitude) {
    /* Threads in teams: a team takes a head, a thread of it a pair, so that its sine serves all its heads. */
    uint32_t pairs = dim / 2, wide = pairs < rf_block_dim_x() ? pairs : rf_block_dim_x();
    uint32_t teams = rf_block_dim_x() / wide, team = rf_thread_x() / wide;
    if (team >= teams) return;
    RF_NO_UNROLL
    for (uint64_t token = rf_block_x(); token < tokens; token += rf_grid_dim_x()) {
        int32_t position = positions[token];
        RF_NO_UNROLL
        for (uint32_t pair = rf_thread_x() % wide; pair < pairs; pair += wide) {
            bool turned = pair < rotated / 2;
            uint32_t first = turned ? rope_first(halves, pair) : 2 * pair;
            uint32_t second = turned ? rope_second(halves, pair, rotated) : 2 * pair + 1;
            struct rope_turn turn = {1.0f, 0.0f};
            if (turned) turn = rope_turn_at(steps, pair, position, magnitude);
            RF_NO_UNROLL
            for (uint32_t head = rf_block_y() * teams + team; head < heads; head += rf_grid_dim_y() * teams) {
                uint64_t from = token * in_token + head * in_head, to = token * out_token + head * out_head;
                float a = rf_load(type, in, from + first), b = rf_load(type, in, from + second);
                if (turned) {
                    float c = a * turn.cosine - b * turn.sine;
                    b = a * turn.sine + b * turn.cosine;
                    a = c;
                }
                rf_store(type, out, to + first, a);
                rf_store(type, out, to + second, b);
            }
        }
    }
}

#define ROPE(name, type, element)                                                                                    \
    RF_KERNEL(rope_##name, 256, (element *, out), (const element *, in), (const int32_t *, positions),               \
              (const uint64_t *, steps), (uint64_t, tokens), (uint32_t, heads), (uint32_t, dim),                     \
              (uint32_t, rotated), (uint32_t, halves), (uint64_t, out_token), (uint64_t, out_head),                  \
              (uint64_t, in_token), (uint64_t, in_head), (float, magnitude)) {                                       \
        rope_body(type, halves != 0, out, in, positions, steps, tokens, heads, dim, rotated, out_token, out_head,    \
                  in_token, in_head, magnitude);                                                                     \
    }

ROPE(f32, RF_TYPE_F32, float)
ROPE(f16, RF_TYPE_F16, rf_f16)
ROPE(bf16, RF_TYPE_BF16, rf_bf16)
