/* The block-quantized weight types, bit for bit as GGUF files hold them. Two calls convert rows of these types, and
 * of plain float types, to f32 and back.
 *
 * A block holds 32 or 256 consecutive elements of a row. An element is scale * q + offset, where q is a small integer
 * (or an entry of a table), and 16 or 32 elements share a scale and an offset. All products are exact in f32 (11 bits
 * of an f16 times a scale of up to 8 bits times a q of up to 5), so a value is rounded at most once, when the offset
 * is added. Every decoder, here and on a GPU, therefore gives the same number.
 *
 * Invariants: blocks need no alignment (they are read through memcpy); count is a multiple of rf_dtype_block(dtype),
 * which is asserted; the rest says how the source is written.
 * Nothing here allocates or fails. A dtype that is neither quantized nor RF_F32, RF_F16 or RF_BF16 leaves the output
 * alone. Thread-safe: there is no state. */
#ifndef RF_CPU_QUANT_H
#define RF_CPU_QUANT_H

#include <rocmforge/gpu.h>

#define RF_BLOCK_SMALL 32  /* elements of the types without _K and of IQ4_NL */
#define RF_BLOCK_LARGE 256 /* elements of the others */

/* f16 fields are raw bits, little-endian. In the small types with nibbles, byte j of quants holds
 * element j in its low half and element j + 16 in its high half. */
struct rf_block_q4_0 { /* (q - 8) * scale */
    uint16_t scale;
    uint8_t quants[16];
};
struct rf_block_q4_1 { /* q * scale + minimum */
    uint16_t scale, minimum;
    uint8_t quants[16];
};
struct rf_block_q5_0 { /* (q - 16) * scale; bit i of high is the fifth bit of element i */
    uint16_t scale;
    uint8_t high[4];
    uint8_t quants[16];
};
struct rf_block_q5_1 { /* q * scale + minimum */
    uint16_t scale, minimum;
    uint8_t high[4];
    uint8_t quants[16];
};
struct rf_block_q8_0 { /* q * scale */
    uint16_t scale;
    int8_t quants[32];
};
struct rf_block_iq4_nl { /* rf_iq4_values[q] * scale */
    uint16_t scale;
    uint8_t quants[16];
};

/* The blocks from here on hold 256 elements. q * (scale * s) - minimum * m, where s and m are the low and the high
 * nibble of a byte of scales; there is one byte per 16 elements. The q of element 128 h + 32 p + l is the two bits
 * from bit 2 p on of quants[32 h + l]. */
struct rf_block_q2_k {
    uint8_t scales[16];
    uint8_t quants[64];
    uint16_t scale, minimum;
};
/* (q - 4) * scale * (s - 32). The low two bits of q are where Q2_K has them; the third is bit 4 h + p of high[l]. The
 * s of the k-th 16 elements has its low four bits in a nibble of scales[k % 8] (the low one for k < 8) and its high
 * two in scales[8 + k % 4], from bit 2 (k / 4) on. */
struct rf_block_q3_k {
    uint8_t high[32];
    uint8_t quants[64];
    uint8_t scales[12];
    uint16_t scale;
};
/* q * (scale * s) - minimum * m. s and m have 6 bits and belong to 32 elements; rf_k4_scale reads them. Element
 * 64 c + l is in the low half of quants[32 c + l], element 64 c + 32 + l in its high half. */
struct rf_block_q4_k {
    uint16_t scale, minimum;
    uint8_t scales[12];
    uint8_t quants[128];
};
/* As Q4_K, with a fifth bit: that of element 32 j + l is bit j of high[l]. */
struct rf_block_q5_k {
    uint16_t scale, minimum;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t quants[128];
};
/* (q - 32) * scale * scales[k] for the k-th 16 elements. Element 128 h + 32 p + l has its low four bits in
 * low[64 h + 32 (p % 2) + l], in the low half for p < 2 and else in the high half, and its high two bits in
 * high[32 h + l], from bit 2 p on. */
struct rf_block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint16_t scale;
};
/* rf_iq4_values[q] * scale * (s - 32). The s of the j-th 32 elements has its low four bits in a nibble of
 * scales_low[j / 2] and its high two in scales_high, from bit 2 j on. Quants are nibbles as in the small types, 16
 * bytes for each 32 elements. */
struct rf_block_iq4_xs {
    uint16_t scale;
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t quants[128];
};

/* What the nibbles of IQ4_NL and IQ4_XS stand for. */
extern const int8_t rf_iq4_values[16];

/* Read and write the 6-bit scale and minimum of the j-th 32 elements of a Q4_K or Q5_K block. */
void rf_k4_scale(const uint8_t scales[12], int j, int *scale, int *minimum);
void rf_k4_pack(uint8_t scales[12], const int scale[8], const int minimum[8]);

/* Converts count elements of any weight type to f32. */
void rf_dequantize_row(enum rf_dtype dtype, const void *blocks, float *out, size_t count);

/* Converts f32 to any weight type. It searches for the scales with the least squared error of each block; the same
 * input gives the same bytes. A NaN counts as 0 and an infinity as the largest finite f32. A scale beyond the range
 * of f16 is clamped. */
void rf_quantize_row(enum rf_dtype dtype, const float *in, void *blocks, size_t count);

/* Convert one block of 256 elements, for rf_dequantize_row and rf_quantize_row. */
void rf_dequantize_large(enum rf_dtype dtype, const void *block, float *out);
void rf_quantize_large(enum rf_dtype dtype, const float *in, void *block);

#endif
