/* Products of quantized rows with activations in 8 bits: AVX-512 with VNNI and VBMI. Included after simd_dots.h.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to a 32-bit lane, without saturation. Weights
 * are the unsigned side. What their zero adds (8, 32, or 128 for Q8_0, whose sign bit is flipped) is put, negated,
 * into one lane of each group before the products; these are integers, so it is exact. A step takes several blocks
 * and computes their scales together, lane by lane, because the scales rather than the products would take the time.
 */
#ifndef RF_CPU_QUANT_AVX512_H
#define RF_CPU_QUANT_AVX512_H

/* The compiler computes the lane tables: EACH16(f) is f(0) to f(15). */
#define EACH16(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#define EACH16_FROM(f, o)                                                                                            \
    f((o) + 0), f((o) + 1), f((o) + 2), f((o) + 3), f((o) + 4), f((o) + 5), f((o) + 6), f((o) + 7), f((o) + 8),      \
        f((o) + 9), f((o) + 10), f((o) + 11), f((o) + 12), f((o) + 13), f((o) + 14), f((o) + 15)
#define EACH32(f) EACH16_FROM(f, 0), EACH16_FROM(f, 16)
#define EACH64(f) EACH32(f), EACH16_FROM(f, 32), EACH16_FROM(f, 48)

static inline __m512i load_64(const void *p) {
    return _mm512_loadu_si512(p);
}
static inline __m128i load_16(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}
static inline __m256i load_32(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline __m512i lanes(const uint32_t table[16]) {
    return _mm512_loadu_si512(table);
}

/* ---- activations ---- */

static inline void quantize_32(int8_t quants[32], float *scale, int32_t halves[2], const float *x) {
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512i positive = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), positive),
                                    _mm512_and_si512(_mm512_castps_si512(b), positive));
    float inverse;
    __m256i *to = (__m256i *)(void *)quants;
    if (!scale_of_32(_mm512_reduce_max_epu32(most), scale, &inverse)) {
        _mm256_storeu_si256(to, _mm256_setzero_si256());
        halves[0] = halves[1] = 0;
        return;
    }
    const __m512 factor = _mm512_set1_ps(inverse), shift = _mm512_set1_ps(ROUND_TO_INTEGER);
    a = _mm512_add_ps(_mm512_mul_ps(a, factor), shift);
    b = _mm512_add_ps(_mm512_mul_ps(b, factor), shift);
    __m256i bytes =
        _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_castps_si512(b)), _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
    _mm256_storeu_si256(to, bytes);
    /* Adds the bytes as unsigned ones, eight at a time. Each is 128 too large, which is subtracted below. */
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    sums = _mm256_add_epi64(sums, _mm256_unpackhi_epi64(sums, sums));
    halves[0] = _mm256_cvtsi256_si32(sums) - 16 * 128;
    halves[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 16 * 128;
}

/* ---- what the products share ---- */

/* -2^shift times each sum, in the first lane of each group of lanes. */
static inline __m512i zeros_out(__m128i sums, int shift, __mmask16 firsts, const uint32_t table[16]) {
    __m128i negative = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sums, (unsigned)shift));
    return _mm512_maskz_permutexvar_epi32(firsts, lanes(table), _mm512_castsi128_si512(negative));
}
static inline __m512 spread(__m128 values, const uint32_t table[16]) {
    return _mm512_permutexvar_ps(lanes(table), _mm512_castps128_ps512(values));
}

#define FOURTH(i) ((i) / 4)
#define EIGHTH(i) ((i) / 8)
#define EIGHTH_PLUS_2(i) (2 + (i) / 8)
static const uint32_t by_fours[16] = {EACH16(FOURTH)};
static const uint32_t by_eights[16] = {EACH16(EIGHTH)};
static const uint32_t by_eights_2[16] = {EACH16(EIGHTH_PLUS_2)};

/* ---- Q8_0: 4 blocks of 34 bytes times one group in plain order ---- */

#define Q8_SCALE(i) (17 * ((i) / 8)) /* in 16-bit words */
static const uint16_t q8_0_scales[32] = {EACH32(Q8_SCALE)};

ALWAYS_INLINE __m512 step_q8_0(__m512 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i halves = _mm512_permutex2var_epi16(load_64(w), load_64(q8_0_scales), load_64(w + 64));
    __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(load_32(w + 2)), load_32(w + 36), 1);
    __m512i b = _mm512_inserti64x4(_mm512_castsi256_si512(load_32(w + 70)), load_32(w + 104), 1);
    __m128i sums = load_16(x->sum);
    __m128 act = _mm_loadu_ps(x->scale);
    __m512i dot_a =
        _mm512_dpbusd_epi32(zeros_out(sums, 7, 0x0101, by_eights), _mm512_xor_si512(a, sign), load_64(x->quants));
    __m512i dot_b = _mm512_dpbusd_epi32(zeros_out(sums, 7, 0x0101, by_eights_2), _mm512_xor_si512(b, sign),
                                        load_64(x->quants + 64));
    __m512 scale_a = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), spread(act, by_eights));
    __m512 scale_b = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), spread(act, by_eights_2));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_a), scale_a, sum);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_b), scale_b, sum);
}

/* ---- Q4_0: 8 blocks of 18 bytes times two groups in split order ---- */

#define Q4_SCALE(i) (9 * ((i) / 4))
/* Where the quants are: those of blocks 0 to 3 in bytes 0 to 127, those of blocks 4 to 7 in bytes 64 to 127 followed
 * by bytes 80 to 143. */
#define Q4_FIRST(i) (2 + 18 * ((i) / 16) + (i) % 16)
#define Q4_SECOND_AT(i) (74 + 18 * ((i) / 16) + (i) % 16)
#define Q4_SECOND(i) (Q4_SECOND_AT(i) < 128 ? Q4_SECOND_AT(i) - 64 : Q4_SECOND_AT(i) - 80 + 64)
static const uint16_t q4_0_scales[32] = {EACH32(Q4_SCALE)};
static const uint8_t q4_0_first[64] = {EACH64(Q4_FIRST)};
static const uint8_t q4_0_second[64] = {EACH64(Q4_SECOND)};

/* 64 bytes of nibbles times a group's 128 quants. */
ALWAYS_INLINE __m512i nibble_dot(__m512i dot, __m512i bytes, const struct rf_act_group *x) {
    const __m512i mask = _mm512_set1_epi8(15);
    dot = _mm512_dpbusd_epi32(dot, _mm512_and_si512(bytes, mask), load_64(x->quants));
    return _mm512_dpbusd_epi32(dot, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask), load_64(x->quants + 64));
}

ALWAYS_INLINE __m512 step_q4_0(__m512 sum, const uint8_t *w, const struct rf_act_group *x) {
    __m512i z0 = load_64(w), z1 = load_64(w + 64), z2 = load_64(w + 80);
    __m512i halves = _mm512_permutex2var_epi16(z0, load_64(q4_0_scales), z1);
    __m512i a = _mm512_permutex2var_epi8(z0, load_64(q4_0_first), z1);
    __m512i b = _mm512_permutex2var_epi8(z1, load_64(q4_0_second), z2);
    __m512i dot_a = nibble_dot(zeros_out(load_16(x[0].sum), 3, 0x1111, by_fours), a, x);
    __m512i dot_b = nibble_dot(zeros_out(load_16(x[1].sum), 3, 0x1111, by_fours), b, x + 1);
    __m512 act_a = spread(_mm_loadu_ps(x[0].scale), by_fours), act_b = spread(_mm_loadu_ps(x[1].scale), by_fours);
    __m512 scale_a = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), act_a);
    __m512 scale_b = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), act_b);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_a), scale_a, sum);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_b), scale_b, sum);
}

/* ---- Q4_K: a block of 144 bytes times two groups in the order of pairs ---- */

#define K4_LOW(i) (2 * ((i) / 8))
#define K4_HIGH(i) (1 + 2 * ((i) / 8))
#define K4_LOW_2(i) (4 + 2 * ((i) / 8))
#define K4_HIGH_2(i) (5 + 2 * ((i) / 8))
static const uint32_t q4_k_lanes[4][16] = {
    {EACH16(K4_LOW)}, {EACH16(K4_HIGH)}, {EACH16(K4_LOW_2)}, {EACH16(K4_HIGH_2)}};

/* Four values of each of two groups. */
static inline __m256 pair(const float *a, const float *b) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
}
static inline __m256i pair_integers(const int32_t *a, const int32_t *b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(a)), load_16(b), 1);
}

ALWAYS_INLINE __m512 step_q4_k(__m512 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m512i mask = _mm512_set1_epi8(15);
    /* The block begins with its scale and minimum. 12 bytes of 6-bit numbers follow: scales 0 to 3, minima 0 to 3,
     * then the low bits of scales and minima 4 to 7, whose high bits are the top ones of the first eight bytes. */
    __m128i head = load_16(w);
    __m128i bottom = _mm_srlv_epi32(_mm_shuffle_epi32(head, 0xed), _mm_setr_epi32(0, 0, 0, 4));
    __m128i top =
        _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(head, 0x84), 2), _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
    __m128i numbers =
        _mm_or_si128(top, _mm_and_si128(bottom, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)));
    __m512 both = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(numbers));
    both = _mm512_mul_ps(both, spread(_mm_cvtph_ps(head), by_eights));
    /* Lanes 0 to 7 hold the scales times the activations' scales, lanes 8 to 15 what the minima subtract. */
    __m256 act = pair(x[0].scale, x[1].scale);
    __m256 act_sum = _mm256_mul_ps(act, _mm256_cvtepi32_ps(pair_integers(x[0].sum, x[1].sum)));
    act_sum = _mm256_sub_ps(_mm256_setzero_ps(), act_sum);
    both = _mm512_mul_ps(both, _mm512_insertf32x8(_mm512_castps256_ps512(act), act_sum, 1));
    sum = _mm512_mask_add_ps(sum, 0xff00, sum, both);
    for (size_t h = 0; h < 2; h++) {
        __m512i bytes = load_64(w + 16 + 64 * h), low = _mm512_and_si512(bytes, mask);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
        __m512i dot_low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, load_64(x[h].quants));
        __m512i dot_high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), high, load_64(x[h].quants + 64));
        sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_low), _mm512_permutexvar_ps(lanes(q4_k_lanes[2 * h]), both), sum);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_high), _mm512_permutexvar_ps(lanes(q4_k_lanes[2 * h + 1]), both),
                              sum);
    }
    return sum;
}

/* ---- Q6_K: a block of 210 bytes times two groups in plain order ---- */

#define K6_ACT(i) ((i) / 2)
#define K6_1(i) (4 + (i) / 4)
#define K6_2(i) (8 + (i) / 4)
#define K6_3(i) (12 + (i) / 4)
static const uint32_t by_twos[16] = {EACH16(K6_ACT)};
static const uint32_t q6_k_lanes[4][16] = {{EACH16(FOURTH)}, {EACH16(K6_1)}, {EACH16(K6_2)}, {EACH16(K6_3)}};

ALWAYS_INLINE __m512 step_q6_k(__m512 sum, const uint8_t *w, const struct rf_act_group *x) {
    const __m512i mask = _mm512_set1_epi8(15), two_bits = _mm512_set1_epi8(0x30);
    const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
    __m512 act = _mm512_permutexvar_ps(lanes(by_twos), _mm512_castps256_ps512(pair(x[0].scale, x[1].scale)));
    __m512 scales = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(w + 192))), act);
    scales = _mm512_mul_ps(scales, _mm512_set1_ps(half_at(w + 208)));
    for (size_t h = 0; h < 2; h++) {
        __m512i bytes = load_64(w + 64 * h);
        __m512i high = _mm512_srlv_epi16(_mm512_broadcast_i64x4(load_32(w + 128 + 32 * h)), shifts);
        __m512i first_64 =
            _mm512_or_si512(_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_slli_epi16(high, 4), two_bits));
        __m512i second_64 =
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask), _mm512_and_si512(high, two_bits));
        __m512i dot_a =
            _mm512_dpbusd_epi32(zeros_out(load_16(x[h].half), 5, 0x1111, by_fours), first_64, load_64(x[h].quants));
        __m512i dot_b = _mm512_dpbusd_epi32(zeros_out(load_16(x[h].half + 4), 5, 0x1111, by_fours), second_64,
                                            load_64(x[h].quants + 64));
        sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_a), _mm512_permutexvar_ps(lanes(q6_k_lanes[2 * h]), scales), sum);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_b), _mm512_permutexvar_ps(lanes(q6_k_lanes[2 * h + 1]), scales),
                              sum);
    }
    return sum;
}

/* Several rows at once share what is computed from the activations. A row's sum is the same alone and beside others.
 *
 * Weights are prefetched in the order in which they lie in memory, although the rows are walked side by side. They go
 * into the L2 cache, because the few misses that L1 can have outstanding would limit the rate. Measured on Zen 4: 14
 * GB/s per core with L1 prefetches or with prefetches along the rows, 29 GB/s this way, of the 31 GB/s of plain
 * reading. The prefetched address must therefore be ahead of the last of the rows. If it is further ahead than the
 * memory's latency needs, it gets slower again, and at the end of a thread's share it fetches weights that nobody
 * uses. */
#define ROWS_AT_ONCE 4
#define PREFETCH_BYTES 8192
#define LINES(bytes) (((bytes) + 63) / 64)

#define DEFINE_MATVEC_QUANT(name, elements, bytes)                                                                   \
    ALWAYS_INLINE void rows_##name(float *y, const uint8_t *weights, size_t row_bytes, const size_t rows,            \
                                   const struct rf_act_group *x, size_t k) {                                         \
        __m512 sums[ROWS_AT_ONCE];                                                                                   \
        size_t steps = k / (elements), rest_bytes = k % (elements) * (bytes) / (elements);                           \
        for (size_t r = 0; r < rows; r++) sums[r] = _mm512_setzero_ps();                                             \
        for (size_t s = 0; s < steps; s++)                                                                           \
            for (size_t r = 0; r < rows; r++) {                                                                      \
                const uint8_t *w = weights + r * row_bytes + s * (bytes);                                            \
                const uint8_t *ahead = weights + (rows - 1) * row_bytes + s * rows * (bytes) + PREFETCH_BYTES;       \
                for (size_t l = LINES(rows * (bytes)) * r / rows; l < LINES(rows * (bytes)) * (r + 1) / rows; l++)   \
                    __builtin_prefetch(ahead + 64 * l, 0, 2);                                                        \
                sums[r] = step_##name(sums[r], w, x + s * ((elements) / 128));                                       \
            }                                                                                                        \
        for (size_t r = 0; rest_bytes && r < rows; r++) {                                                            \
            uint8_t rest[bytes] = {0};                                                                               \
            struct rf_act_group groups[(elements) / 128];                                                            \
            memset(groups, 0, sizeof groups);                                                                        \
            memcpy(rest, weights + r * row_bytes + steps * (bytes), rest_bytes);                                     \
            memcpy(groups, x + steps * ((elements) / 128), (k % (elements) + 127) / 128 * sizeof *groups);           \
            sums[r] = step_##name(sums[r], rest, groups);                                                            \
        }                                                                                                            \
        for (size_t r = 0; r < rows; r++) y[r] = vf_sum(sums[r]);                                                    \
    }                                                                                                                \
    static void matvec_##name(float *y, const void *weights, size_t row_bytes, size_t rows,                          \
                              const struct rf_act_group *x, size_t k) {                                              \
        const uint8_t *w = weights;                                                                                  \
        size_t r = 0;                                                                                                \
        for (; r + ROWS_AT_ONCE <= rows; r += ROWS_AT_ONCE)                                                          \
            rows_##name(y + r, w + r * row_bytes, row_bytes, ROWS_AT_ONCE, x, k);                                    \
        for (; r < rows; r++) rows_##name(y + r, w + r * row_bytes, row_bytes, 1, x, k);                             \
    }
DEFINE_MATVEC_QUANT(q8_0, 128, 136)
DEFINE_MATVEC_QUANT(q4_0, 256, 144)
DEFINE_MATVEC_QUANT(q4_k, 256, 144)
DEFINE_MATVEC_QUANT(q6_k, 256, 210)

#endif
