/* Arguments of rope, kv_append and rope_append, and of ops that do more, for kernel, launcher, reference and fast CPU
 * op alike: sizes, strides and scalars. Strides are in elements. Pointers and element types are passed beside them.
 *
 * A rotation turns pairs of elements of a head by an angle that grows with the token's position. The table `steps`,
 * u64 [rotated / 2], holds for each pair the turns per position as a fraction of 2^64 (rf_rope_steps makes it), so
 * the phase of position p is p * step modulo 2^64, without rounding, for any 32-bit position. Base frequency,
 * frequency factors and scaling are all in the table. */
#ifndef RF_KERNELS_CACHE_ARGS_H
#define RF_KERNELS_CACHE_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

enum { RF_ROPE_THREADS = 256, RF_KV_APPEND_THREADS = 256 }; /* the largest block of each kernel */

/* rope: in[token][head][dim] rotated by positions[token] (i32) into out. Pair i of the first `rotated` elements of
 * each head, (a, b) at position p, becomes m (a cos t - b sin t, a sin t + b cos t) with t = p * steps[i] and m the
 * magnitude. The elements from `rotated` on are copied. out may be in with the same strides and type; nothing else
 * overlaps. */
struct rf_rope_args {
    uint64_t tokens;
    uint64_t out_token, out_head, in_token, in_head; /* strides; a head's elements are dense */
    uint32_t heads, dim;                             /* dim is even */
    uint32_t rotated;                                /* elements of a head, even, from 2 to dim */
    uint32_t halves; /* 1: element i pairs with i + rotated / 2; 0: with its neighbour */
    float magnitude;
    uint32_t unused; /* the size is a multiple of 8 */
};

/* kv_append: k[token][head][dim] and v likewise, f32, into two paged caches. The token of sequence
 * s = sequences[token] (0 where there are none) and position p = positions[token] goes to row p % page_rows of page
 * table[s * table_width + p / page_rows]; without a table, sequence s has page s alone. Element e of head h of row r
 * of page g is element g * page + h * head + r * row + e of the cache.
 *
 * A token is left out if its position is negative or lies beyond the table, if its sequence is not below
 * sequence_count, or if its page is not below page_count. No two tokens may go to the same place.
 *
 * With `steps` the keys are rotated first, as rope says. rope_append also rotates the tokens' queries into an array
 * of their own: q[token][head][dim], f32, into q_out. It rotates them also for a token that the caches leave out. */
struct rf_kv_append_args {
    uint64_t tokens;
    uint64_t k_token, v_token;     /* strides; heads and elements of k, v, q and q_out are dense */
    uint64_t page, head, row;      /* strides of both caches; a row's elements are dense */
    uint64_t table_width;          /* pages of a sequence; with a table */
    uint64_t sequence_count;       /* rows of the table; with a table */
    uint64_t q_token, q_out_token; /* strides of the queries */
    uint32_t heads, dim;           /* a Q8_0 cache needs dim and its strides to be multiples of 32 */
    uint32_t page_rows, page_count;
    uint32_t rotated, halves; /* as in rf_rope_args; 0 without a rotation */
    float magnitude;
    uint32_t q_heads; /* 0: there are no queries */
    uint32_t q_half;  /* 1: q_out is f16; 0: f32 */
    uint32_t cache;   /* enum rf_cache_type: for the kernels that have no type in their name (matvec_qkv.hip) */
};
enum rf_cache_type { RF_CACHE_F32, RF_CACHE_F16, RF_CACHE_Q8_0 };

#endif
