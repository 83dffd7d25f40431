/* Vectors of 8 floats: AVX2, FMA, F16C. vec_scalar.h says what each function means. */
#ifndef RF_CPU_VEC_AVX2_H
#define RF_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_WIDTH 8
typedef __m256 vf;
typedef __m256i vi;

static inline __m256i first(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x);
}
static inline vf vf_load_n(const float *p, size_t n) {
    return _mm256_maskload_ps(p, first(n));
}
static inline void vf_store_n(float *p, vf x, size_t n) {
    _mm256_maskstore_ps(p, first(n), x);
}
static inline vf vf_keep_n(vf x, size_t n, float other) {
    return _mm256_blendv_ps(_mm256_set1_ps(other), x, _mm256_castsi256_ps(first(n)));
}

static inline vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return _mm256_fnmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
static inline float vf_sum(vf x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_greatest(vf x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline vf vf_round(vf x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_power_of_two(vf n) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

/* The first n of 8 halves; the others are 0. */
static inline __m128i load_halves(const uint16_t *p, size_t n) {
    uint16_t copy[8] = {0};
    memcpy(copy, p, n * sizeof *p);
    return _mm_loadu_si128((const __m128i *)(const void *)copy);
}
static inline void store_halves(uint16_t *p, __m128i halves, size_t n) {
    uint16_t copy[8];
    _mm_storeu_si128((__m128i *)(void *)copy, halves);
    memcpy(p, copy, n * sizeof *p);
}
static inline vf from_bf16(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
static inline vf vf_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vf vf_load_f16_n(const uint16_t *p, size_t n) {
    return _mm256_cvtph_ps(load_halves(p, n));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    return from_bf16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vf vf_load_bf16_n(const uint16_t *p, size_t n) {
    return from_bf16(load_halves(p, n));
}
static inline __m128i to_f16(vf x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline __m128i to_bf16(vf x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), unordered), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)(void *)p, to_f16(x));
}
static inline void vf_store_f16_n(uint16_t *p, vf x, size_t n) {
    store_halves(p, to_f16(x), n);
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)(void *)p, to_bf16(x));
}
static inline void vf_store_bf16_n(uint16_t *p, vf x, size_t n) {
    store_halves(p, to_bf16(x), n);
}

static inline void vf_deinterleave(const float *p, vf *even, vf *odd) {
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 evens = _mm256_shuffle_ps(a, b, 0x88), odds = _mm256_shuffle_ps(a, b, 0xdd);
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(evens), 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odds), 0xd8));
}
static inline void vf_interleave(float *p, vf even, vf odd) {
    __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/* ---- integers ---- */

static inline vi vi_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
static inline vi vi_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline vf vi_to_f32(vi x) {
    return _mm256_cvtepi32_ps(x);
}
#define VEC_SIGNED_OFFSET 0
static inline vi vi_dot(vi sum, vi unsigned_bytes, vi signed_bytes) {
    __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline vi vi_dot_wide(vi sum, vi bytes, vi signed_bytes) {
    return vi_dot(sum, _mm256_abs_epi8(bytes), _mm256_sign_epi8(signed_bytes, bytes));
}

#endif
