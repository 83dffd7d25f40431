/* Weights of every type as the kernels read them, and 8-bit activations.
 *
 * A quantized row is read in units. A unit is the elements whose low bits fill 8 bytes of a block: one, two or four
 * parts (quant_args.h) of 8 consecutive elements each, a fixed stride apart. All 8 elements of a part are
 * scale * q + offset, q a byte. Neighbouring lanes read neighbouring units, so that the low bits, most of a block,
 * are read once and in order.
 *
 *     elements of unit u, part p, of a row: rf_unit_element(weight, u) + p * rf_unit_stride(weight) + 0 … 7
 *
 * The float types are here too: a unit is 8 elements, one part, without scale and offset.
 *
 * Blocks are as in GGUF files: those of 18, 22, 34, 110 or 210 bytes are aligned to 2 bytes only. Rules: the first
 * row starts at a multiple of 16 bytes; nothing outside the row's blocks is read, except the 2 bytes before a block
 * that is not the first, where an aligned word begins there. */
#ifndef RF_KERNELS_QUANT_H
#define RF_KERNELS_QUANT_H

#include "kernels/kernel.h"

#include "kernels/quant_args.h"

/* Constant arguments of bodies: the float types first, then the quantized ones, in the order of quant_args.h. */
#define RF_WEIGHT_NAME(name, NAME, parts) RF_WEIGHT_##NAME,
enum rf_weight { RF_EACH_FLOAT_WEIGHT(RF_WEIGHT_NAME) RF_EACH_QUANT_WEIGHT(RF_WEIGHT_NAME) RF_WEIGHT_COUNT };

/* ---- sizes ---- */

RF_DEVICE bool rf_weight_float(enum rf_weight w) {
    return w <= RF_WEIGHT_BF16;
}
RF_DEVICE enum rf_type rf_weight_type(enum rf_weight w) { /* of a float one */
    return w == RF_WEIGHT_F32 ? RF_TYPE_F32 : w == RF_WEIGHT_F16 ? RF_TYPE_F16 : RF_TYPE_BF16;
}
RF_DEVICE bool rf_weight_large(enum rf_weight w) {
    return (w >= RF_WEIGHT_Q2_K && w <= RF_WEIGHT_Q6_K) || w == RF_WEIGHT_IQ4_XS;
}
RF_DEVICE uint32_t rf_weight_block(enum rf_weight w) { /* elements; 8 for the float types */
    return rf_weight_float(w) ? 8 : rf_weight_large(w) ? 256 : 32;
}
RF_DEVICE uint32_t rf_weight_block_bytes(enum rf_weight w) {
    switch (w) {
    case RF_WEIGHT_F32: return 32;
    case RF_WEIGHT_F16: return 16;
    case RF_WEIGHT_BF16: return 16;
    case RF_WEIGHT_Q4_0: return 18;
    case RF_WEIGHT_Q4_1: return 20;
    case RF_WEIGHT_Q5_0: return 22;
    case RF_WEIGHT_Q5_1: return 24;
    case RF_WEIGHT_Q8_0: return 34;
    case RF_WEIGHT_Q2_K: return 84;
    case RF_WEIGHT_Q3_K: return 110;
    case RF_WEIGHT_Q4_K: return 144;
    case RF_WEIGHT_Q5_K: return 176;
    case RF_WEIGHT_Q6_K: return 210;
    case RF_WEIGHT_IQ4_NL: return 18;
    default: return 136;
    }
}
RF_DEVICE uint64_t rf_weight_row_bytes(enum rf_weight w, uint64_t columns) {
    if (rf_weight_float(w)) return columns * rf_type_bytes(rf_weight_type(w));
    return columns / rf_weight_block(w) * rf_weight_block_bytes(w);
}

#define RF_UNIT_PARTS 4 /* at most */
#define RF_WEIGHT_PARTS(name, NAME, parts)                                                                           \
    if (w == RF_WEIGHT_##NAME) return parts;
RF_DEVICE uint32_t rf_unit_parts(enum rf_weight w) {
    RF_EACH_FLOAT_WEIGHT(RF_WEIGHT_PARTS)
    RF_EACH_QUANT_WEIGHT(RF_WEIGHT_PARTS)
    return 1;
}
RF_DEVICE uint32_t rf_unit_stride(enum rf_weight w) {
    return rf_weight_large(w) && w != RF_WEIGHT_IQ4_XS ? 32 : 16;
}
RF_DEVICE uint32_t rf_units_per_block(enum rf_weight w) {
    return rf_weight_block(w) / (8 * rf_unit_parts(w));
}
/* The first element of a unit: runs of units whose parts interleave are 16 or 32 elements wide. */
RF_DEVICE uint64_t rf_unit_element(enum rf_weight w, uint64_t unit) {
    if (rf_unit_parts(w) == 1) return unit * 8;
    uint32_t run = rf_unit_stride(w) / 8;
    return unit / run * (run * 8 * rf_unit_parts(w)) + unit % run * 8;
}
/* Whether q is signed. */
RF_DEVICE bool rf_weight_signed(enum rf_weight w) {
    return w == RF_WEIGHT_Q8_0 || w == RF_WEIGHT_IQ4_NL || w == RF_WEIGHT_IQ4_XS;
}
/* Whether the offset may differ from 0. */
RF_DEVICE bool rf_weight_offset(enum rf_weight w) {
    return !rf_weight_float(w) && !rf_weight_signed(w);
}

/* ---- bytes ---- */

struct rf_bytes_8 {
    uint32_t low, high;
};

#if defined(RF_AMD)
typedef rf_u32x2 rf_u32x2_anywhere __attribute__((aligned(2)));
#endif
/* 8 bytes; align, a constant: 2, 4 or 8. */
RF_DEVICE struct rf_bytes_8 rf_load_bytes_8(const uint8_t *from, uint32_t align) {
    struct rf_bytes_8 bytes;
    if (align >= 8) {
        rf_u32x2 raw = rf_load_8(from);
        bytes.low = raw[0];
        bytes.high = raw[1];
        return bytes;
    }
#if defined(RF_AMD)
    rf_u32x2 raw = *(const rf_u32x2_anywhere *)from; /* the hardware takes any address */
    bytes.low = raw[0];
    bytes.high = raw[1];
#else
    if (align == 4) {
        bytes.low = *(const uint32_t *)from;
        bytes.high = *(const uint32_t *)(from + 4);
    } else { /* aligned words around them, and the last half word, which is never past the end */
        uint32_t beyond = (uint32_t)((uintptr_t)from & 2);
        const uint32_t *word = (const uint32_t *)(from - beyond);
        uint32_t first = word[0], second = word[1], last = *(const uint16_t *)(from + 6);
        bytes.low = (uint32_t)(((uint64_t)second << 32 | first) >> beyond * 8);
        bytes.high = beyond ? second >> 16 | last << 16 : second;
    }
#endif
    return bytes;
}
/* Bits shift … shift + 31 of the 64 of low and high; shift up to 32. */
RF_DEVICE uint32_t rf_funnel(uint32_t low, uint32_t high, uint32_t shift) {
#if defined(RF_NVIDIA)
    uint32_t result;
    __asm__("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(shift));
    return result;
#else
    return (uint32_t)(((uint64_t)high << 32 | low) >> shift);
#endif
}
RF_DEVICE uint32_t rf_load_u16(const uint8_t *from) {
    return *(const uint16_t *)from;
}
RF_DEVICE uint32_t rf_load_bytes_4(const uint8_t *from) { /* aligned to 2 */
    return rf_load_u16(from) | rf_load_u16(from + 2) << 16;
}
RF_DEVICE float rf_load_f16(const uint8_t *from) {
    return rf_f32_of_f16(*(const rf_f16 *)from);
}
/* Bits 0 … 3 to bit 0 of four bytes. */
RF_DEVICE uint32_t rf_spread_bits(uint32_t bits) {
    return ((bits & 15) * 0x00204081u) & 0x01010101u;
}
/* Byte i of eight, i not constant. */
RF_DEVICE uint32_t rf_byte_of(struct rf_bytes_8 bytes, uint32_t i) {
    return (i < 4 ? bytes.low : bytes.high) >> i % 4 * 8 & 255;
}
/* Four nibbles (in the low halves of the bytes) through the table of IQ4_NL, as signed bytes. */
RF_DEVICE uint32_t rf_iq4_bytes(uint32_t nibbles) {
    const uint64_t negative = 0xf6eaddcfbfad9881ull, positive = 0x7159453526190d01ull;
    uint32_t result = 0;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = nibbles >> 8 * i & 15;
        uint64_t half = n < 8 ? negative : positive;
        result |= ((uint32_t)(half >> (n & 7) * 8) & 255) << 8 * i;
    }
    return result;
}

/* ---- parts ---- */

struct rf_part {
    uint32_t q[2]; /* 8 bytes */
    float scale, offset;
};
struct rf_unit {
    struct rf_part part[RF_UNIT_PARTS];
};

RF_DEVICE struct rf_part rf_make_part(uint32_t low, uint32_t high, float scale, float offset) {
    struct rf_part part;
    part.q[0] = low;
    part.q[1] = high;
    part.scale = scale;
    part.offset = offset;
    return part;
}

/* Part p of unit u within a block; neither need be constant. Where all parts of a unit are read, the
 * compiler merges their common loads. */

/* Types with blocks of 32. */
RF_DEVICE struct rf_part rf_part_small(enum rf_weight w, const uint8_t *block, uint32_t u, uint32_t p) {
    float scale = rf_load_f16(block), offset = 0.0f;
    bool five = w == RF_WEIGHT_Q5_0 || w == RF_WEIGHT_Q5_1, minimum = w == RF_WEIGHT_Q4_1 || w == RF_WEIGHT_Q5_1;
    uint32_t head = minimum ? 4 : 2, align = minimum ? 4 : 2;
    struct rf_bytes_8 raw = rf_load_bytes_8(block + head + (five ? 4 : 0) + 8 * u, align);
    if (w == RF_WEIGHT_Q8_0) return rf_make_part(raw.low, raw.high, scale, 0.0f);
    if (w == RF_WEIGHT_Q4_0) offset = -8.0f * scale;
    if (w == RF_WEIGHT_Q5_0) offset = -16.0f * scale;
    if (minimum) offset = rf_load_f16(block + 2);
    uint32_t low = raw.low >> 4 * p & 0x0f0f0f0f, high = raw.high >> 4 * p & 0x0f0f0f0f;
    if (five) {
        uint32_t fifths = rf_load_bytes_4(block + head) >> (8 * u + 16 * p);
        low |= rf_spread_bits(fifths) << 4;
        high |= rf_spread_bits(fifths >> 4) << 4;
    }
    if (w == RF_WEIGHT_IQ4_NL) {
        low = rf_iq4_bytes(low);
        high = rf_iq4_bytes(high);
    }
    return rf_make_part(low, high, scale, offset);
}

RF_DEVICE struct rf_part rf_part_q4_k(bool five, const uint8_t *block, uint32_t u, uint32_t p) {
    uint32_t chunk = u / 4, run = u % 4, j = 2 * chunk + p, shift = j % 4 * 8;
    rf_u32x4 head = rf_load_16(block); /* scale, minimum, 12 bytes of 6-bit scales and minimums */
    struct rf_bytes_8 raw = rf_load_bytes_8(block + (five ? 48 : 16) + 32 * chunk + 8 * run, 8);
    float scale = rf_f32_of_f16((rf_f16)head[0]), minimum = rf_f32_of_f16((rf_f16)(head[0] >> 16));
    uint32_t a = head[1] >> shift, b = head[2] >> shift, c = head[3] >> shift;
    uint32_t s = j < 4 ? a & 63 : (c & 15) | (a >> 2 & 48);
    uint32_t m = j < 4 ? b & 63 : (c >> 4 & 15) | (b >> 2 & 48);
    uint32_t low = raw.low >> 4 * p & 0x0f0f0f0f, high = raw.high >> 4 * p & 0x0f0f0f0f;
    if (five) {
        struct rf_bytes_8 fifths = rf_load_bytes_8(block + 16 + 8 * run, 8);
        low |= (fifths.low >> j & 0x01010101) << 4;
        high |= (fifths.high >> j & 0x01010101) << 4;
    }
    return rf_make_part(low, high, scale * (float)s, minimum * (float)-(int32_t)m);
}

RF_DEVICE struct rf_part rf_part_q2_k(const uint8_t *block, uint32_t u, uint32_t p) {
    uint32_t half = u / 4, run = u % 4;
    struct rf_bytes_8 scales = rf_load_bytes_8(block + 8 * half, 4);
    struct rf_bytes_8 raw = rf_load_bytes_8(block + 16 + 32 * half + 8 * run, 4);
    float scale = rf_load_f16(block + 80), minimum = rf_load_f16(block + 82);
    uint32_t s = rf_byte_of(scales, 2 * p + run / 2);
    return rf_make_part(raw.low >> 2 * p & 0x03030303, raw.high >> 2 * p & 0x03030303, scale * (float)(s & 15),
                        minimum * (float)-(int32_t)(s >> 4));
}

RF_DEVICE struct rf_part rf_part_q3_k(const uint8_t *block, uint32_t u, uint32_t p) {
    uint32_t half = u / 4, run = u % 4, bit = 4 * half + p;
    struct rf_bytes_8 thirds = rf_load_bytes_8(block + 8 * run, 2);
    struct rf_bytes_8 raw = rf_load_bytes_8(block + 32 + 32 * half + 8 * run, 2);
    struct rf_bytes_8 lows = rf_load_bytes_8(block + 96, 2);
    uint32_t highs = rf_load_bytes_4(block + 104), k = 2 * p + run / 2; /* of this half's eight scales */
    uint32_t s = (rf_byte_of(lows, k) >> 4 * half & 15) | (highs >> (k % 4 * 8 + 4 * half + p / 2 * 2) & 3) << 4;
    float real = rf_load_f16(block + 108) * (float)((int32_t)s - 32);
    uint32_t low = (raw.low >> 2 * p & 0x03030303) | (thirds.low >> bit & 0x01010101) << 2;
    uint32_t high = (raw.high >> 2 * p & 0x03030303) | (thirds.high >> bit & 0x01010101) << 2;
    return rf_make_part(low, high, real, -4.0f * real);
}

RF_DEVICE struct rf_part rf_part_q6_k(const uint8_t *block, uint32_t u, uint32_t p) {
    uint32_t half = u / 4, run = u % 4;
    struct rf_bytes_8 bottoms = rf_load_bytes_8(block + 64 * half + 32 * (p % 2) + 8 * run, 2);
    struct rf_bytes_8 tops = rf_load_bytes_8(block + 128 + 32 * half + 8 * run, 2);
    struct rf_bytes_8 scales = rf_load_bytes_8(block + 192 + 8 * half, 2);
    float real = rf_load_f16(block + 208) * (float)(int8_t)rf_byte_of(scales, 2 * p + run / 2);
    uint32_t low = (bottoms.low >> p / 2 * 4 & 0x0f0f0f0f) | (tops.low >> 2 * p & 0x03030303) << 4;
    uint32_t high = (bottoms.high >> p / 2 * 4 & 0x0f0f0f0f) | (tops.high >> 2 * p & 0x03030303) << 4;
    return rf_make_part(low, high, real, -32.0f * real);
}

RF_DEVICE struct rf_part rf_part_iq4_xs(const uint8_t *block, uint32_t u, uint32_t p) {
    uint32_t j = u / 2;
    struct rf_bytes_8 head = rf_load_bytes_8(block, 8), raw = rf_load_bytes_8(block + 8 + 8 * u, 8);
    uint32_t s = (head.high >> 4 * j & 15) | (head.low >> (16 + 2 * j) & 3) << 4;
    float real = rf_f32_of_f16((rf_f16)head.low) * (float)((int32_t)s - 32);
    return rf_make_part(rf_iq4_bytes(raw.low >> 4 * p & 0x0f0f0f0f), rf_iq4_bytes(raw.high >> 4 * p & 0x0f0f0f0f),
                        real, 0.0f);
}

/* Of unit number `unit` of a row of a quantized type. */
RF_DEVICE struct rf_part rf_read_part(enum rf_weight w, const uint8_t *row, uint64_t unit, uint32_t p) {
    const uint8_t *block = row + unit / rf_units_per_block(w) * rf_weight_block_bytes(w);
    uint32_t u = (uint32_t)(unit % rf_units_per_block(w));
    switch (w) {
    case RF_WEIGHT_Q2_K: return rf_part_q2_k(block, u, p);
    case RF_WEIGHT_Q3_K: return rf_part_q3_k(block, u, p);
    case RF_WEIGHT_Q4_K: return rf_part_q4_k(false, block, u, p);
    case RF_WEIGHT_Q5_K: return rf_part_q4_k(true, block, u, p);
    case RF_WEIGHT_Q6_K: return rf_part_q6_k(block, u, p);
    case RF_WEIGHT_IQ4_XS: return rf_part_iq4_xs(block, u, p);
    default: return rf_part_small(w, block, u, p);
    }
}
RF_DEVICE void rf_read_unit(enum rf_weight w, const uint8_t *row, uint64_t unit, struct rf_unit *out) {
    RF_UNROLL
    for (uint32_t p = 0; p < rf_unit_parts(w); p++) out->part[p] = rf_read_part(w, row, unit, p);
}
/* The part that begins at an element, a multiple of 8. */
RF_DEVICE struct rf_part rf_read_part_at(enum rf_weight w, const uint8_t *row, uint64_t element) {
    uint32_t stride = rf_unit_stride(w), span = stride * rf_unit_parts(w);
    if (rf_unit_parts(w) == 1) return rf_read_part(w, row, element / 8, 0);
    return rf_read_part(w, row, element / span * (stride / 8) + element % stride / 8,
                        (uint32_t)(element % span / stride));
}

/* The eight q of a part as f32, without scale and offset. Adding 2^23 to a byte is or-ing its bits
 * under 2^23's: cheaper than a conversion where those are slow. */
RF_DEVICE void rf_part_floats(enum rf_weight w, const struct rf_part *part, float *values) {
    bool is_signed = rf_weight_signed(w);
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t word = part->q[i / 4], shift = i % 4 * 8;
#if defined(RF_NVIDIA)
        if (is_signed) word ^= 0x80808080u;
        values[i] = rf_f32_of_bits((word >> shift & 255) | 0x4b000000u) - (is_signed ? 8388736.0f : 8388608.0f);
#else
        values[i] = is_signed ? (float)(int8_t)(word >> shift) : (float)(uint8_t)(word >> shift);
#endif
    }
}
/* The eight elements themselves. */
RF_DEVICE void rf_part_values(enum rf_weight w, const struct rf_part *part, float *values) {
    rf_part_floats(w, part, values);
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        values[i] = rf_weight_offset(w) ? rf_fma(part->scale, values[i], part->offset) : part->scale * values[i];
}

/* ---- 8-bit activations: struct rf_q8_block ---- */

/* c + the sum of the products of four signed bytes. */
RF_DEVICE int32_t rf_dot4(uint32_t a, uint32_t b, int32_t c) {
#if defined(RF_NVIDIA)
    int32_t result;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#elif defined(RF_AMD) && (defined(__GFX11__) || defined(__GFX12__))
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false);
#elif defined(RF_AMD) &&                                                                                             \
    (defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) ||                     \
     defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1034__) ||                 \
     defined(__gfx1035__) || defined(__gfx1036__))
    return __builtin_amdgcn_sdot4((int)a, (int)b, c, false);
#else
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) c += (int32_t)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
#endif
}

/* The low bytes of four words. */
RF_DEVICE uint32_t rf_low_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#if defined(RF_NVIDIA)
    uint32_t ab, cd, all;
    __asm__("prmt.b32 %0, %1, %2, 0x0040;" : "=r"(ab) : "r"(a), "r"(b));
    __asm__("prmt.b32 %0, %1, %2, 0x0040;" : "=r"(cd) : "r"(c), "r"(d));
    __asm__("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(all) : "r"(ab), "r"(cd));
    return all;
#else
    return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24;
#endif
}

/* A share of a block: count elements, 8 or 16, so that 32 / count neighbouring lanes hold the block. */
struct rf_q8_share {
    uint32_t q[4]; /* count / 4 of them */
    int32_t sum;   /* of these quants */
    float scale;   /* of the block: NaN, and zeros as quants, where one of its elements is not finite */
};
/* All lanes of a wave call it. It gives the same bits on every target. */
RF_DEVICE void rf_quantize_share(uint32_t count, const float *values, struct rf_q8_share *share) {
    uint32_t largest_bits = 0;
    RF_UNROLL
    for (uint32_t i = 0; i < count; i++) { /* what is not finite has the largest bits of all */
        uint32_t bits = rf_bits_of_f32(values[i]) & 0x7fffffff;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    RF_UNROLL
    for (uint32_t mask = 1; mask < RF_Q8_BLOCK / count; mask *= 2) {
        uint32_t other = rf_wave_xor_u32(largest_bits, mask);
        largest_bits = other > largest_bits ? other : largest_bits;
    }
    bool broken = largest_bits >= 0x7f800000;
    float largest = rf_f32_of_bits(largest_bits);
    if (broken || largest < RF_Q8_TINY) largest = 0.0f;
    float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    /* What arithmetic makes of a NaN differs among targets. */
    share->scale = broken ? rf_f32_of_bits(0x7fc00000) : largest / 127.0f;
    share->sum = 0;
    RF_UNROLL
    for (uint32_t w = 0; w < count / 4; w++) {
        uint32_t bits[4];
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            /* The product is rounded by itself; the sum then rounds it to an integer, to even, in its low bits. */
            float scaled = rf_f32_of_bits(rf_opaque(rf_bits_of_f32(values[4 * w + i] * inverse)));
            bits[i] = rf_bits_of_f32(scaled + 12582912.0f);
        }
        share->q[w] = broken ? 0 : rf_low_bytes(bits[0], bits[1], bits[2], bits[3]);
        share->sum = rf_dot4(share->q[w], 0x01010101, share->sum);
    }
}

#endif
