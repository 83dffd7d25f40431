/* Converts blocks of every quantized type to f32. Included in the level's file after simd_dots.h. These are the loops
 * of rf_dequantize_row in a form that compilers turn into vectors. The bits are the same, because all products are
 * exact and only the addition of the offset is rounded (see quant.h). */
#ifndef RF_CPU_SIMD_WIDEN_H
#define RF_CPU_SIMD_WIDEN_H

/* count quants that share a scale and an offset. */
ALWAYS_INLINE void scaled(float *restrict out, const int8_t *restrict quants, size_t count, float scale,
                          float offset) {
    for (size_t i = 0; i < count; i++) out[i] = scale * (float)quants[i] - offset;
}
/* The same without an offset, because an offset of 0 would turn -0 into 0. */
ALWAYS_INLINE void scaled_only(float *restrict out, const int8_t *restrict quants, size_t count, float scale) {
    for (size_t i = 0; i < count; i++) out[i] = scale * (float)quants[i];
}

/* 32 elements from 16 bytes of nibbles and, unless high is NULL, 32 fifth bits. */
ALWAYS_INLINE void nibbles_32(int8_t *restrict quants, const uint8_t *restrict bytes, const uint8_t *high, int zero) {
    uint32_t bits = 0;
    if (high) memcpy(&bits, high, sizeof bits);
    for (uint32_t i = 0; i < 16; i++) {
        quants[i] = (int8_t)(((bytes[i] & 15) | (bits >> i & 1) << 4) - (uint32_t)zero);
        quants[i + 16] = (int8_t)((bytes[i] >> 4 | (bits >> (i + 16) & 1) << 4) - (uint32_t)zero);
    }
}

static void widen_small(enum rf_dtype dtype, const uint8_t *block, float *out) {
    int8_t quants[32];
    float scale = half_at(block);
    switch (dtype) {
    case RF_Q8_0:
        memcpy(quants, block + 2, 32);
        scaled_only(out, quants, 32, scale);
        break;
    case RF_Q4_0:
        nibbles_32(quants, block + 2, NULL, 8);
        scaled_only(out, quants, 32, scale);
        break;
    case RF_Q5_0:
        nibbles_32(quants, block + 6, block + 2, 16);
        scaled_only(out, quants, 32, scale);
        break;
    case RF_Q4_1:
        nibbles_32(quants, block + 4, NULL, 0);
        scaled(out, quants, 32, scale, -half_at(block + 2));
        break;
    case RF_Q5_1:
        nibbles_32(quants, block + 8, block + 4, 0);
        scaled(out, quants, 32, scale, -half_at(block + 2));
        break;
    default: /* RF_IQ4_NL */
        nibbles_32(quants, block + 2, NULL, 0);
        for (int i = 0; i < 32; i++) quants[i] = rf_iq4_values[quants[i]];
        scaled_only(out, quants, 32, scale);
        break;
    }
}

/* Two bits of each of 256 elements: those of element 128 h + 32 p + l begin at bit 2 p of bytes[32 h + l]. */
ALWAYS_INLINE void two_bits(int8_t *restrict quants, const uint8_t *restrict bytes) {
    for (int h = 0; h < 2; h++)
        for (int p = 0; p < 4; p++)
            for (int l = 0; l < 32; l++) quants[128 * h + 32 * p + l] = (int8_t)(bytes[32 * h + l] >> (2 * p) & 3);
}

static void widen_q3_k(const uint8_t *block, float *out) {
    const uint8_t *high = block, *packed = block + 96;
    int8_t quants[256];
    two_bits(quants, block + 32);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < 32; l++) quants[32 * j + l] = (int8_t)(quants[32 * j + l] + (high[l] >> j & 1) * 4 - 4);
    float scale = half_at(block + 108);
    for (int k = 0; k < 16; k++) {
        int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;
        int s = low | (packed[8 + k % 4] >> (2 * (k / 4)) & 3) << 4;
        scaled_only(out + 16 * k, quants + 16 * k, 16, scale * (float)(s - 32));
    }
}

static void widen_large(enum rf_dtype dtype, const uint8_t *block, float *out) {
    int8_t quants[256];
    uint8_t bytes[256];
    float scale[16], minimum[8];
    switch (dtype) {
    case RF_Q2_K:
        two_bits(quants, block + 16);
        for (int k = 0; k < 16; k++)
            scaled(out + 16 * k, quants + 16 * k, 16, half_at(block + 80) * (float)(block[k] & 15),
                   half_at(block + 82) * (float)(block[k] >> 4));
        break;
    case RF_Q3_K: widen_q3_k(block, out); break;
    case RF_Q4_K:
    case RF_Q5_K:
        for (int c = 0; c < 4; c++)
            nibbles(bytes + 64 * c, bytes + 64 * c + 32, block + (dtype == RF_Q4_K ? 16 : 48) + 32 * c, 32);
        for (int j = 0; dtype == RF_Q5_K && j < 8; j++)
            for (int l = 0; l < 32; l++) bytes[32 * j + l] |= (uint8_t)((block[16 + l] >> j & 1) << 4);
        memcpy(quants, bytes, sizeof quants);
        for (int j = 0; j < 8; j++) {
            int s, m;
            rf_k4_scale(block + 4, j, &s, &m);
            scaled(out + 32 * j, quants + 32 * j, 32, half_at(block) * (float)s, half_at(block + 2) * (float)m);
        }
        break;
    case RF_Q6_K:
        unpack_block(RF_Q6_K, block, bytes, scale, minimum);
        for (int i = 0; i < 256; i++) quants[i] = (int8_t)(bytes[i] - 32);
        for (int k = 0; k < 16; k++) scaled_only(out + 16 * k, quants + 16 * k, 16, scale[k]);
        break;
    default: { /* RF_IQ4_XS */
        uint16_t high;
        memcpy(&high, block + 2, sizeof high);
        for (int j = 0; j < 8; j++) {
            int s = (block[4 + j / 2] >> (j % 2 * 4) & 15) | (high >> (2 * j) & 3) << 4;
            nibbles_32(quants, block + 8 + 16 * j, NULL, 0);
            for (int i = 0; i < 32; i++) quants[i] = rf_iq4_values[quants[i]];
            scaled_only(out + 32 * j, quants, 32, half_at(block) * (float)(s - 32));
        }
        break;
    }
    }
}

static void widen_blocks(enum rf_dtype dtype, const void *blocks, float *out, size_t count) {
    bool large = rf_dtype_block(dtype) == RF_BLOCK_LARGE;
    size_t bytes = rf_dtype_block_bytes(dtype), elements = large ? RF_BLOCK_LARGE : RF_BLOCK_SMALL;
    const uint8_t *block = blocks;
    for (size_t i = 0; i < count; i += elements, block += bytes) {
        if (large)
            widen_large(dtype, block, out + i);
        else
            widen_small(dtype, block, out + i);
    }
}

#endif
