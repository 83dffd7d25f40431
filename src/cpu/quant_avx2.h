/* Products of quantized rows with activations in 8 bits: AVX2. Included after simd_dots.h.
 *
 * Bytes are multiplied and added in pairs to 16 bits (maddubs). 16 bits hold 2 * 63 * 127 and, for signed weights
 * taken as magnitudes, 2 * 128 * 127. The pairs are then added to 32 bits. */
#ifndef RF_CPU_QUANT_AVX2_H
#define RF_CPU_QUANT_AVX2_H

static inline __m256i load_32(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline __m256i widen(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
/* a in the low four lanes, b in the high ones. */
static inline __m256 two(float a, float b) {
    return _mm256_set_m128(_mm_set1_ps(b), _mm_set1_ps(a));
}
/* Reads 16 bytes at a and at b. */
static inline __m256i load_two(const uint8_t *a, const uint8_t *b) {
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)a);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const __m128i *)(const void *)b), 1);
}

static inline void quantize_32(int8_t quants[32], float *scale, int32_t halves[2], const float *x) {
    const __m256i positive = _mm256_set1_epi32(0x7fffffff);
    __m256i whole[4], most = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; i++) most = _mm256_max_epu32(most, _mm256_and_si256(load_32(x + 8 * i), positive));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    float inverse;
    __m256i *to = (__m256i *)(void *)quants;
    if (!scale_of_32((uint32_t)_mm_cvtsi128_si32(four), scale, &inverse)) {
        _mm256_storeu_si256(to, _mm256_setzero_si256());
        halves[0] = halves[1] = 0;
        return;
    }
    const __m256 factor = _mm256_set1_ps(inverse), shift = _mm256_set1_ps(ROUND_TO_INTEGER);
    for (size_t i = 0; i < 4; i++) {
        __m256 shifted = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor), shift);
        whole[i] = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(shift));
    }
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(whole[0], whole[1]), _mm256_packs_epi32(whole[2], whole[3]));
    bytes = _mm256_permutevar8x32_epi32(
        bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* because the packs work on each half */
    _mm256_storeu_si256(to, bytes);
    /* Adds the bytes as unsigned ones, eight at a time. Each is 128 too large, which is subtracted below. */
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    sums = _mm256_add_epi64(sums, _mm256_unpackhi_epi64(sums, sums));
    halves[0] = _mm256_cvtsi256_si32(sums) - 16 * 128;
    halves[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 16 * 128;
}

/* 4 blocks of Q8_0 times one group in plain order. */
ALWAYS_INLINE __m256 step_q8_0(__m256 sum, const uint8_t *w, const struct rf_act_group *x) {
    for (size_t b = 0; b < 4; b++, w += 34) {
        __m256i dot = vi_dot_wide(_mm256_setzero_si256(), load_32(w + 2), load_32(x->quants + 32 * b));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(half_at(w) * x->scale[b]), sum);
    }
    return sum;
}

/* 4 blocks of Q4_0 times one group in split order. */
ALWAYS_INLINE __m256 step_q4_0(__m256 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (size_t b = 0; b < 4; b += 2, w += 36) {
        __m256i bytes = load_two(w + 2, w + 20);
        __m256i low = _mm256_and_si256(bytes, mask), high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
        __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, load_32(x->quants + 16 * b)),
                                         _mm256_maddubs_epi16(high, load_32(x->quants + 64 + 16 * b)));
        __m256i zero = _mm256_setr_epi32(8 * x->sum[b], 0, 0, 0, 8 * x->sum[b + 1], 0, 0, 0);
        __m256 dot = _mm256_cvtepi32_ps(_mm256_sub_epi32(widen(pairs), zero));
        sum = _mm256_fmadd_ps(dot, two(half_at(w) * x->scale[b], half_at(w + 18) * x->scale[b + 1]), sum);
    }
    return sum;
}

/* The 6-bit scales and minima of a Q4_K block as 8 floats each. */
static inline void k4_floats(const uint8_t *block, __m256 *scale, __m256 *minimum) {
    uint32_t words[3];
    memcpy(words, block + 4, sizeof words);
    uint32_t bytes[4] = {words[0] & 0x3f3f3f3f, (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030),
                         words[1] & 0x3f3f3f3f, (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030)};
    __m128i all = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    *scale = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(all)), _mm256_set1_ps(half_at(block)));
    *minimum = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(all, 8))),
                             _mm256_set1_ps(half_at(block + 2)));
}

/* A block of Q4_K times two groups in the order of pairs. */
ALWAYS_INLINE __m256 step_q4_k(__m256 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256 scale, minimum;
    k4_floats(w, &scale, &minimum);
    __m256 act = _mm256_set_m128(_mm_load_ps(x[1].scale), _mm_load_ps(x[0].scale));
    __m256i act_sum = _mm256_set_m128i(_mm_load_si128((const __m128i *)(const void *)x[1].sum),
                                       _mm_load_si128((const __m128i *)(const void *)x[0].sum));
    float scales[8];
    _mm256_storeu_ps(scales, _mm256_mul_ps(scale, act));
    sum = _mm256_fnmadd_ps(minimum, _mm256_mul_ps(act, _mm256_cvtepi32_ps(act_sum)), sum);
    for (size_t c = 0; c < 4; c++) {
        __m256i bytes = load_32(w + 16 + 32 * c);
        const int8_t *quants = x[c / 2].quants + c % 2 * 32;
        __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(bytes, mask), load_32(quants));
        __m256i high =
            _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), load_32(quants + 64));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(widen(low)), _mm256_set1_ps(scales[2 * c]), sum);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(widen(high)), _mm256_set1_ps(scales[2 * c + 1]), sum);
    }
    return sum;
}

/* 32 elements of Q6_K, with two scales. What the zero of 32 adds is subtracted from each half. */
ALWAYS_INLINE __m256 part_q6_k(__m256 sum, __m256i quants, const struct rf_act_group *x, size_t b, float scale,
                               const int8_t *scales) {
    __m256i dot = widen(_mm256_maddubs_epi16(quants, load_32(x->quants + 32 * b)));
    __m256i zero = _mm256_setr_epi32(32 * x->half[2 * b], 0, 0, 0, 32 * x->half[2 * b + 1], 0, 0, 0);
    float whole = scale * x->scale[b];
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(dot, zero)),
                           two(whole * (float)scales[2 * b], whole * (float)scales[2 * b + 1]), sum);
}

/* A block of Q6_K times two groups in plain order. */
ALWAYS_INLINE __m256 step_q6_k(__m256 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m256i mask = _mm256_set1_epi8(15), two_bits = _mm256_set1_epi8(0x30);
    float scale = half_at(w + 208);
    for (size_t h = 0; h < 2; h++) {
        __m256i a = load_32(w + 64 * h), b = load_32(w + 64 * h + 32), high = load_32(w + 128 + 32 * h);
        const int8_t *scales = (const int8_t *)w + 192 + 8 * h;
        __m256i q0 =
            _mm256_or_si256(_mm256_and_si256(a, mask), _mm256_and_si256(_mm256_slli_epi16(high, 4), two_bits));
        __m256i q1 =
            _mm256_or_si256(_mm256_and_si256(b, mask), _mm256_and_si256(_mm256_slli_epi16(high, 2), two_bits));
        __m256i q2 =
            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 4), mask), _mm256_and_si256(high, two_bits));
        __m256i q3 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), mask),
                                     _mm256_and_si256(_mm256_srli_epi16(high, 2), two_bits));
        sum = part_q6_k(sum, q0, x + h, 0, scale, scales);
        sum = part_q6_k(sum, q1, x + h, 1, scale, scales);
        sum = part_q6_k(sum, q2, x + h, 2, scale, scales);
        sum = part_q6_k(sum, q3, x + h, 3, scale, scales);
    }
    return sum;
}

/* A step takes `elements` elements, which are `bytes` bytes. The last step of a row of small blocks is filled up with
 * zeros. Weights are prefetched into the L2 cache, far ahead; quant_avx512.h says why. */
#define PREFETCH_BYTES 16384

#define DEFINE_MATVEC_QUANT(name, elements, bytes)                                                                   \
    static void matvec_##name(float *y, const void *weights, size_t row_bytes, size_t rows,                          \
                              const struct rf_act_group *x, size_t k) {                                              \
        size_t steps = k / elements;                                                                                 \
        for (size_t r = 0; r < rows; r++) {                                                                          \
            const uint8_t *w = (const uint8_t *)weights + r * row_bytes;                                             \
            __m256 sum = _mm256_setzero_ps();                                                                        \
            for (size_t s = 0; s < steps; s++, w += bytes) {                                                         \
                for (size_t p = 0; p < (bytes); p += 64) __builtin_prefetch(w + PREFETCH_BYTES + p, 0, 2);           \
                sum = step_##name(sum, w, x + s * (elements / 128));                                                 \
            }                                                                                                        \
            if (k % elements) {                                                                                      \
                uint8_t rest[bytes] = {0};                                                                           \
                memcpy(rest, w, k % elements * bytes / elements);                                                    \
                sum = step_##name(sum, rest, x + steps * (elements / 128));                                          \
            }                                                                                                        \
            y[r] = vf_sum(sum);                                                                                      \
        }                                                                                                            \
    }
DEFINE_MATVEC_QUANT(q8_0, 128, 136)
DEFINE_MATVEC_QUANT(q4_0, 128, 72)
DEFINE_MATVEC_QUANT(q4_k, 256, 144)
DEFINE_MATVEC_QUANT(q6_k, 256, 210)

#endif
