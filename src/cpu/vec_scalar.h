/* Vectors of one float, for machines without a SIMD level of their own. This header also defines what the functions
 * of every level mean.
 *
 * A level is a header like this one and a file that includes it and the function bodies (simd_*.h); one for NEON can
 * be written the same way. The names have no library prefix, because they are static and known in the level's file
 * alone.
 *
 * vf is VEC_WIDTH floats, vi the same number of 32-bit integers. A function whose name ends in _n works on the first
 * n
 * (<= VEC_WIDTH) elements. It neither reads nor writes the others in memory; a load sets them to 0. */
#ifndef RF_CPU_VEC_SCALAR_H
#define RF_CPU_VEC_SCALAR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_WIDTH 1
#define VEC_SCALAR 1
typedef float vf;
typedef int32_t vi;

static inline vf vf_set(float x) {
    return x;
}
static inline vf vf_load(const float *p) {
    return *p;
}
static inline void vf_store(float *p, vf x) {
    *p = x;
}
static inline vf vf_load_n(const float *p, size_t n) {
    return n ? *p : 0;
}
static inline void vf_store_n(float *p, vf x, size_t n) {
    if (n) *p = x;
}
/* The first n elements of x; the others are `other`. */
static inline vf vf_keep_n(vf x, size_t n, float other) {
    return n ? x : other;
}

static inline vf vf_add(vf a, vf b) {
    return a + b;
}
static inline vf vf_sub(vf a, vf b) {
    return a - b;
}
static inline vf vf_mul(vf a, vf b) {
    return a * b;
}
static inline vf vf_div(vf a, vf b) {
    return a / b;
}
/* a * b + c. A level with fused multiply-add rounds once. */
static inline vf vf_fma(vf a, vf b, vf c) {
    return a * b + c;
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return c - a * b;
}
/* b if either is NaN. */
static inline vf vf_max(vf a, vf b) {
    return a > b ? a : b;
}
static inline vf vf_min(vf a, vf b) {
    return a < b ? a : b;
}
/* The sum and the greatest of the lanes, in an order that is always the same. */
static inline float vf_sum(vf x) {
    return x;
}
static inline float vf_greatest(vf x) {
    return x;
}

/* 16-bit floats. Narrowing rounds to nearest, ties to even, and keeps subnormals. */
static inline float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline vf vf_load_f16(const uint16_t *p) {
    uint32_t sign = (uint32_t)(*p & 0x8000) << 16, rest = *p & 0x7fff;
    if (rest >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    /* The biases of the exponents differ by 112. The product is exact, also for subnormals. */
    float magnitude = bits_to_float(rest << 13) * 0x1p112f;
    return bits_to_float(sign | float_to_bits(magnitude));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    uint32_t bits = float_to_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t half;
    if (rest > 0x7f800000) {
        half = 0x7e00;
    } else if (rest >= 0x477ff000) { /* 65520 and above round beyond the range */
        half = 0x7c00;
    } else if (rest < 0x38800000) { /* subnormal: the last bit of the sum is worth 2^-24 */
        half = float_to_bits(bits_to_float(rest) + 0.5f) - float_to_bits(0.5f);
    } else {
        half = (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13;
    }
    *p = (uint16_t)(sign | half);
}
static inline vf vf_load_bf16(const uint16_t *p) {
    return bits_to_float((uint32_t)*p << 16);
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    uint32_t bits = float_to_bits(x);
    *p = x != x ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline vf vf_load_f16_n(const uint16_t *p, size_t n) {
    return n ? vf_load_f16(p) : 0;
}
static inline vf vf_load_bf16_n(const uint16_t *p, size_t n) {
    return n ? vf_load_bf16(p) : 0;
}
static inline void vf_store_f16_n(uint16_t *p, vf x, size_t n) {
    if (n) vf_store_f16(p, x);
}
static inline void vf_store_bf16_n(uint16_t *p, vf x, size_t n) {
    if (n) vf_store_bf16(p, x);
}

/* Read and write 2 * VEC_WIDTH floats as VEC_WIDTH pairs. */
static inline void vf_deinterleave(const float *p, vf *even, vf *odd) {
    *even = p[0];
    *odd = p[1];
}
static inline void vf_interleave(float *p, vf even, vf odd) {
    p[0] = even;
    p[1] = odd;
}

/* The error is at most two units in the last place. Subnormal results, infinities and NaN are those of exp. */
static inline vf vf_exp(vf x) {
    return expf(x);
}

/* ---- integers: VEC_WIDTH lanes of four bytes ---- */

static inline vi vi_set(int32_t x) {
    return x;
}
static inline vi vi_load(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline vf vi_to_f32(vi x) {
    return (float)x;
}
/* sum + the four products in each lane. The unsigned bytes are at most 63. */
static inline vi vi_dot(vi sum, vi unsigned_bytes, vi signed_bytes) {
    for (int i = 0; i < 32; i += 8)
        sum += (uint8_t)((uint32_t)unsigned_bytes >> i) * (int8_t)((uint32_t)signed_bytes >> i);
    return sum;
}
/* The same for signed bytes of the full range, to which the caller added VEC_SIGNED_OFFSET. */
#define VEC_SIGNED_OFFSET 0
static inline vi vi_dot_wide(vi sum, vi bytes, vi signed_bytes) {
    for (int i = 0; i < 32; i += 8) sum += (int8_t)((uint32_t)bytes >> i) * (int8_t)((uint32_t)signed_bytes >> i);
    return sum;
}

#endif
