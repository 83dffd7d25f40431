/* Writing to a paged KV cache, an element for each lane: where a token's keys and values go, and how they are rotated
 * and packed. cache_args.h defines all of it.
 *
 * Q8_0: each 32 elements become d = max |x| / 127 as f16 and round(x / d), with halves away from zero; the quotient
 * is by the unrounded d. */
#ifndef RF_KERNELS_CACHE_H
#define RF_KERNELS_CACHE_H

#include "kernels/rope.h"

enum kv_type { KV_F32 = RF_CACHE_F32, KV_F16 = RF_CACHE_F16, KV_Q8_0 = RF_CACHE_Q8_0 };

/* False if the token has no place in the caches. place: where its first element of head 0 goes. */
RF_DEVICE bool kv_place(int32_t position, uint32_t sequence, const uint32_t *table, struct rf_kv_append_args args,
                        uint64_t *place) {
    if (position < 0 || (table && sequence >= args.sequence_count)) return false;
    uint32_t turn = (uint32_t)position / args.page_rows, row = (uint32_t)position % args.page_rows;
    if (turn >= (table ? args.table_width : 1)) return false;
    uint32_t page = table ? table[sequence * args.table_width + turn] : sequence;
    if (page >= args.page_count) return false;
    *place = page * args.page + row * args.row;
    return true;
}

/* Element e of a row of keys, rotated. */
RF_DEVICE float kv_rotated(const float *from, uint32_t e, const uint64_t *steps, int32_t position,
                           struct rf_kv_append_args args) {
    bool halves = args.halves != 0;
    uint32_t rotated = args.rotated;
    if (e >= rotated) return from[e];
    bool second = halves ? e >= rotated / 2 : e % 2;
    uint32_t pair = !halves ? e / 2 : second ? e - rotated / 2 : e;
    struct rope_turn turn = rope_turn_at(steps, pair, position, args.magnitude);
    float a = from[rope_first(halves, pair)], b = from[rope_second(halves, pair, rotated)];
    return second ? rope_turned(b, a, turn.cosine, turn.sine) : rope_turned(a, b, turn.cosine, -turn.sine);
}

/* Each 32 lanes of the wave hold a block, an element each; all lanes of the wave make the call. */
RF_DEVICE void kv_store_q8_0(uint8_t *cache, uint64_t at, bool inside, float x) {
    float most = inside ? __builtin_fabsf(x) : 0.0f;
    RF_UNROLL
    for (uint32_t mask = 16; mask; mask /= 2) most = rf_max(most, rf_wave_xor_f32(most, mask));
    float d = most / 127.0f, inverse = d > 0.0f ? 1.0f / d : 0.0f;
    if (!inside) return;
    uint8_t *block = cache + at / 32 * 34;
    if (at % 32 == 0) *(uint16_t *)block = rf_f16_of_f32(d);
    /* Opaque, so that the product is not fused with the sum inside the rounding. q is out of range only if d is
     * subnormal and its inverse infinite, or if x is NaN. */
    float q = __builtin_roundf(rf_f32_of_bits(rf_opaque(rf_bits_of_f32(x * inverse))));
    block[2 + at % 32] = (uint8_t)(int8_t)(q >= -127.0f ? q <= 127.0f ? q : 127.0f : -127.0f);
}

#endif
