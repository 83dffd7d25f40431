/* Vectors of 16 floats: AVX-512 (F, BW, VL, DQ). vec_scalar.h says what each function means. */
#ifndef RF_CPU_VEC_AVX512_H
#define RF_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_WIDTH 16
typedef __m512 vf;
typedef __m512i vi;

static inline __mmask16 first(size_t n) {
    return (__mmask16)((1u << n) - 1);
}

static inline vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf x) {
    _mm512_storeu_ps(p, x);
}
static inline vf vf_load_n(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(first(n), p);
}
static inline void vf_store_n(float *p, vf x, size_t n) {
    _mm512_mask_storeu_ps(p, first(n), x);
}
static inline vf vf_keep_n(vf x, size_t n, float other) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(other), first(n), x);
}

static inline vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
static inline float vf_sum(vf x) {
    return _mm512_reduce_add_ps(x);
}
static inline float vf_greatest(vf x) {
    return _mm512_reduce_max_ps(x);
}
static inline vf vf_round(vf x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_power_of_two(vf n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

static inline vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vf vf_load_f16_n(const uint16_t *p, size_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vf vf_load_bf16_n(const uint16_t *p, size_t n) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void vf_store_f16_n(uint16_t *p, vf x, size_t n) {
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    vf_store_f16_n(p, x, VEC_WIDTH);
}
/* Done with integers, because the instruction for it treats subnormals as zero. */
static inline void vf_store_bf16_n(uint16_t *p, vf x, size_t n) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    vf_store_bf16_n(p, x, VEC_WIDTH);
}

static inline void vf_deinterleave(const float *p, vf *even, vf *odd) {
    __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, evens, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
}
static inline void vf_interleave(float *p, vf even, vf odd) {
    __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, low, odd));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd));
}

/* ---- integers ---- */

static inline vi vi_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline vi vi_load(const void *p) {
    return _mm512_loadu_si512(p);
}
static inline vf vi_to_f32(vi x) {
    return _mm512_cvtepi32_ps(x);
}
#define VEC_SIGNED_OFFSET 128
static inline vi vi_dot(vi sum, vi unsigned_bytes, vi signed_bytes) {
    return _mm512_dpbusd_epi32(sum, unsigned_bytes, signed_bytes);
}
/* The caller added VEC_SIGNED_OFFSET to the bytes, and makes up for it in the sum. */
static inline vi vi_dot_wide(vi sum, vi offset_bytes, vi signed_bytes) {
    return _mm512_dpbusd_epi32(sum, offset_bytes, signed_bytes);
}

#endif
