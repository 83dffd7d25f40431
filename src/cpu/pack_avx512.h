/* Panels of quantized rows for AVX-512 (included after quant_avx512.h). The bytes and floats are those that pack_rows
 * gives; pack_rows takes panels of fewer rows.
 *
 * A panel has the rows' 32-bit words side by side: 16 bytes of each row at a time are transposed in registers. */
#ifndef RF_CPU_PACK_AVX512_H
#define RF_CPU_PACK_AVX512_H

/* words[j] gets word j of the 16 bytes at p of each of 16 rows. */
ALWAYS_INLINE void transpose_16(__m512i words[4], const uint8_t *p, size_t row_bytes) {
    __m512i rows[4]; /* rows[i]: rows i, i + 4, i + 8, i + 12 */
    for (size_t i = 0; i < 4; i++) {
        rows[i] = _mm512_castsi128_si512(load_16(p + i * row_bytes));
        rows[i] = _mm512_inserti32x4(rows[i], load_16(p + (i + 4) * row_bytes), 1);
        rows[i] = _mm512_inserti32x4(rows[i], load_16(p + (i + 8) * row_bytes), 2);
        rows[i] = _mm512_inserti32x4(rows[i], load_16(p + (i + 12) * row_bytes), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]), b = _mm512_unpacklo_epi32(rows[2], rows[3]);
    __m512i c = _mm512_unpackhi_epi32(rows[0], rows[1]), d = _mm512_unpackhi_epi32(rows[2], rows[3]);
    words[0] = _mm512_unpacklo_epi64(a, b);
    words[1] = _mm512_unpackhi_epi64(a, b);
    words[2] = _mm512_unpacklo_epi64(c, d);
    words[3] = _mm512_unpackhi_epi64(c, d);
}

/* Unpacks 16 bytes of each row, with two nibbles each: the low nibbles go to words from low on, the high ones from
 * high on. */
ALWAYS_INLINE void pack_nibbles(uint8_t *low, uint8_t *high, const uint8_t *p, size_t row_bytes) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i words[4];
    transpose_16(words, p, row_bytes);
    for (size_t j = 0; j < 4; j++) {
        _mm512_storeu_si512(low + 64 * j, _mm512_and_si512(words[j], mask));
        _mm512_storeu_si512(high + 64 * j, _mm512_and_si512(_mm512_srli_epi16(words[j], 4), mask));
    }
}

/* The f16 at p of each row, as floats. */
ALWAYS_INLINE __m512 halves_of(const uint8_t *p, size_t row_bytes) {
    uint16_t halves[16];
    for (size_t r = 0; r < 16; r++) memcpy(&halves[r], p + r * row_bytes, sizeof halves[r]);
    return vf_load_f16(halves);
}
/* A panel has a scale per 16 elements, and these types have one per 32. */
ALWAYS_INLINE void pack_scale(float *scale, __m512 each) {
    vf_store(scale, each);
    vf_store(scale + 16, each);
}

static inline __m512i shift_right(__m512i x, unsigned bits) {
    return _mm512_srlv_epi32(x, _mm512_set1_epi32((int)bits));
}
/* Number j of eight in each lane, as floats: numbers 0 to 3 are six bits of `six`; later ones are four bits of `four`
 * and two bits of `six`. */
ALWAYS_INLINE __m512 k4_number(__m512i six, __m512i four, unsigned j) {
    if (j < 4) return _mm512_cvtepi32_ps(_mm512_and_si512(shift_right(six, 8 * j), _mm512_set1_epi32(63)));
    __m512i low = _mm512_and_si512(shift_right(four, 8 * (j - 4)), _mm512_set1_epi32(15));
    __m512i high = _mm512_and_si512(shift_right(six, 8 * (j - 4) + 2), _mm512_set1_epi32(48));
    return _mm512_cvtepi32_ps(_mm512_or_si512(low, high));
}

ALWAYS_INLINE void pack_q4_k(uint8_t *quants, float *scale, float *minimum, const uint8_t *p, size_t row_bytes) {
    __m512i head[4]; /* scale and minimum; 6-bit scales, minima, what follows of both: see step_q4_k */
    transpose_16(head, p, row_bytes);
    __m512 whole = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(head[0]));
    __m512 least = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(shift_right(head[0], 16)));
    for (unsigned j = 0; j < 8; j++) {
        __m512 each = _mm512_mul_ps(whole, k4_number(head[1], head[3], j));
        pack_scale(scale + 32 * j, each);
        vf_store(minimum + 16 * j, _mm512_mul_ps(least, k4_number(head[2], shift_right(head[3], 4), j)));
    }
    for (size_t i = 0; i < 8; i++) {
        uint8_t *low = quants + (i / 2) * 1024 + (i % 2) * 256; /* 512 bytes are 32 elements of all rows */
        pack_nibbles(low, low + 512, p + 16 + 16 * i, row_bytes);
    }
}

ALWAYS_INLINE void pack_q6_k(uint8_t *quants, float *scale, const uint8_t *p, size_t row_bytes) {
    const __m512i mask = _mm512_set1_epi8(15), two_bits = _mm512_set1_epi8(0x30);
    __m512i scales[4];
    transpose_16(scales, p + 192, row_bytes);
    __m512 whole = halves_of(p + 208, row_bytes);
    for (unsigned g = 0; g < 16; g++) {
        __m512i top = _mm512_sllv_epi32(scales[g / 4], _mm512_set1_epi32((int)(24 - g % 4 * 8)));
        vf_store(scale + 16 * g, _mm512_mul_ps(whole, _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24))));
    }
    for (size_t i = 0; i < 4; i++) { /* halves of halves: low and high bits are as in step_q6_k */
        const uint8_t *low = p + i / 2 * 64 + i % 2 * 16;
        uint8_t *to = quants + i / 2 * 2048 + i % 2 * 256;
        __m512i a[4], b[4], high[4];
        transpose_16(a, low, row_bytes);
        transpose_16(b, low + 32, row_bytes);
        transpose_16(high, p + 128 + 16 * i, row_bytes);
        for (size_t j = 0; j < 4; j++, to += 64) {
            __m512i a_high = _mm512_and_si512(_mm512_srli_epi16(a[j], 4), mask);
            __m512i b_high = _mm512_and_si512(_mm512_srli_epi16(b[j], 4), mask);
            __m512i of_a = _mm512_and_si512(_mm512_slli_epi16(high[j], 4), two_bits);
            __m512i of_b = _mm512_and_si512(_mm512_slli_epi16(high[j], 2), two_bits);
            __m512i of_b_high = _mm512_and_si512(_mm512_srli_epi16(high[j], 2), two_bits);
            _mm512_storeu_si512(to, _mm512_or_si512(_mm512_and_si512(a[j], mask), of_a));
            _mm512_storeu_si512(to + 512, _mm512_or_si512(_mm512_and_si512(b[j], mask), of_b));
            _mm512_storeu_si512(to + 1024, _mm512_or_si512(a_high, _mm512_and_si512(high[j], two_bits)));
            _mm512_storeu_si512(to + 1536, _mm512_or_si512(b_high, of_b_high));
        }
    }
}

/* The rows behind this panel's are packed next: a part of them is prefetched along with each part of these. */
ALWAYS_INLINE void prefetch_next(const uint8_t *rows, size_t row_bytes, size_t at, const size_t bytes) {
    const uint8_t *next = rows + 16 * (row_bytes + at);
    for (size_t l = 0; l < LINES(16 * bytes); l++) __builtin_prefetch(next + 64 * l, 0, 2);
}

static void pack_panel(struct rf_panel *panel, enum rf_dtype dtype, const void *weights, size_t row_bytes,
                       size_t rows, size_t k) {
    const uint8_t *w = weights;
    uint8_t *quants = panel->quants;
    float *scale = panel->scale, *minimum = panel->minimum;
    if (rows < 16) {
        pack_rows(panel, dtype, weights, row_bytes, rows, k);
        return;
    }
    if (dtype == RF_Q4_0)
        for (size_t at = 0; at < row_bytes; at += 18, quants += 512, scale += 32) {
            prefetch_next(w, row_bytes, at, 18);
            pack_nibbles(quants, quants + 256, w + at + 2, row_bytes);
            pack_scale(scale, halves_of(w + at, row_bytes));
        }
    else if (dtype == RF_Q4_K)
        for (size_t at = 0; at < row_bytes; at += 144, quants += 4096, scale += 256, minimum += 128) {
            prefetch_next(w, row_bytes, at, 144);
            pack_q4_k(quants, scale, minimum, w + at, row_bytes);
        }
    else if (dtype == RF_Q6_K)
        for (size_t at = 0; at < row_bytes; at += 210, quants += 4096, scale += 256) {
            prefetch_next(w, row_bytes, at, 210);
            pack_q6_k(quants, scale, w + at, row_bytes);
        }
    else
        for (size_t at = 0; at < row_bytes; at += 34, quants += 512, scale += 32) {
            __m512i words[8];
            prefetch_next(w, row_bytes, at, 34);
            transpose_16(words, w + at + 2, row_bytes);
            transpose_16(words + 4, w + at + 18, row_bytes);
            for (size_t j = 0; j < 8; j++)
                _mm512_storeu_si512(quants + 64 * j, _mm512_xor_si512(words[j], _mm512_set1_epi8((char)0x80)));
            pack_scale(scale, halves_of(w + at, row_bytes));
        }
}

#endif
