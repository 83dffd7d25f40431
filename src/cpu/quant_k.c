/* The types with blocks of 256, in which the scales of the parts are themselves quantized (layouts in quant.h).
 *
 * A quantizer fits each part of 16 or 32 elements alone, rounds the parts' scales to multiples of the block's scale,
 * and then picks the integers that fit these multiples. */
#include "cpu/quant.h"

#include <math.h>
#include <string.h>

#include "cpu/quant_impl.h"

/* ---- reading ---- */

void rf_k4_scale(const uint8_t scales[12], int j, int *scale, int *minimum) {
    if (j < 4) {
        *scale = scales[j] & 63;
        *minimum = scales[j + 4] & 63;
    } else { /* the low four bits are in the last four bytes, the high two at the top of the first eight */
        *scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        *minimum = scales[j + 4] >> 4 | (scales[j] >> 6) << 4;
    }
}
static int q3_scale(const uint8_t scales[12], int k) {
    int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    return (low | (scales[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}
static int iq4_scale(const struct rf_block_iq4_xs *b, int j) {
    return ((b->scales_low[j / 2] >> 4 * (j % 2) & 15) | (b->scales_high >> 2 * j & 3) << 4) - 32;
}

union block {
    struct rf_block_q2_k q2;
    struct rf_block_q3_k q3;
    struct rf_block_q4_k q4;
    struct rf_block_q5_k q5;
    struct rf_block_q6_k q6;
    struct rf_block_iq4_xs iq4;
};

void rf_dequantize_large(enum rf_dtype dtype, const void *block, float *out) {
    union block b;
    memcpy(&b, block, rf_dtype_block_bytes(dtype));
    for (int i = 0; i < RF_BLOCK_LARGE; i++) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32, k = i / 16, j = i / 32;
        int q, scale, minimum;
        switch (dtype) {
        case RF_Q2_K:
            q = b.q2.quants[32 * half + l] >> 2 * quarter & 3;
            out[i] = rf_quant_f16(b.q2.scale) * (float)(b.q2.scales[k] & 15) * (float)q -
                     rf_quant_f16(b.q2.minimum) * (float)(b.q2.scales[k] >> 4);
            break;
        case RF_Q3_K:
            q = (b.q3.quants[32 * half + l] >> 2 * quarter & 3) | (b.q3.high[l] >> (4 * half + quarter) & 1) << 2;
            out[i] = rf_quant_f16(b.q3.scale) * (float)q3_scale(b.q3.scales, k) * (float)(q - 4);
            break;
        case RF_Q4_K:
            rf_k4_scale(b.q4.scales, j, &scale, &minimum);
            q = b.q4.quants[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
            out[i] = rf_quant_f16(b.q4.scale) * (float)scale * (float)q - rf_quant_f16(b.q4.minimum) * (float)minimum;
            break;
        case RF_Q5_K:
            rf_k4_scale(b.q5.scales, j, &scale, &minimum);
            q = (b.q5.quants[32 * (j / 2) + l] >> 4 * (j % 2) & 15) | (b.q5.high[l] >> j & 1) << 4;
            out[i] = rf_quant_f16(b.q5.scale) * (float)scale * (float)q - rf_quant_f16(b.q5.minimum) * (float)minimum;
            break;
        case RF_Q6_K:
            q = (b.q6.low[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15) |
                (b.q6.high[32 * half + l] >> 2 * quarter & 3) << 4;
            out[i] = rf_quant_f16(b.q6.scale) * (float)b.q6.scales[k] * (float)(q - 32);
            break;
        case RF_IQ4_XS:
            q = b.iq4.quants[16 * j + l % 16] >> 4 * (l / 16) & 15;
            out[i] = rf_quant_f16(b.iq4.scale) * (float)iq4_scale(&b.iq4, j) * (float)rf_iq4_values[q];
            break;
        default: break;
        }
    }
}

/* ---- writing ---- */

void rf_k4_pack(uint8_t scales[12], const int scale[8], const int minimum[8]) {
    for (int j = 0; j < 4; j++) {
        scales[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        scales[j + 4] = (uint8_t)(minimum[j] | (minimum[j + 4] >> 4) << 6);
        scales[j + 8] = (uint8_t)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}
static void set_q3_scale(uint8_t scales[12], int k, int scale) {
    int bits = scale + 32;
    scales[k % 8] = (uint8_t)(scales[k % 8] | (k < 8 ? bits & 15 : (bits & 15) << 4));
    scales[8 + k % 4] = (uint8_t)(scales[8 + k % 4] | (bits >> 4) << 2 * (k / 4));
}

/* Q2_K, Q4_K, Q5_K: each part has a scale and a minimum. */
struct affine_block {
    uint16_t scale, minimum; /* f16 */
    int scales[16], minimums[16];
    int q[RF_BLOCK_LARGE];
};
static void fit_affine(const float *in, int part, int high, int highest_scale, struct affine_block *b) {
    int parts = RF_BLOCK_LARGE / part;
    double scale[16], minimum[16], most_scale = 0, most_minimum = 0;
    for (int k = 0; k < parts; k++) {
        struct rf_quant_affine fit = rf_quant_affine_fit(in + k * part, part, high, true);
        scale[k] = fit.scale;
        minimum[k] = -fit.minimum; /* the block stores what is subtracted */
        most_scale = fmax(most_scale, scale[k]);
        most_minimum = fmax(most_minimum, minimum[k]);
    }
    b->scale = rf_quant_to_f16(most_scale / highest_scale);
    b->minimum = rf_quant_to_f16(most_minimum / highest_scale);
    double unit = rf_quant_f16(b->scale), unit_minimum = rf_quant_f16(b->minimum);
    for (int k = 0; k < parts; k++) {
        b->scales[k] = unit > 0 ? rf_quant_round(scale[k] / unit, 0, highest_scale) : 0;
        b->minimums[k] = unit_minimum > 0 ? rf_quant_round(minimum[k] / unit_minimum, 0, highest_scale) : 0;
        double real = unit * b->scales[k], below = unit_minimum * b->minimums[k];
        for (int i = k * part; i < (k + 1) * part; i++)
            b->q[i] = real > 0 ? rf_quant_round((in[i] + below) / real, 0, high) : 0;
    }
}

/* Q3_K, Q6_K, IQ4_XS: each part has a scale of either sign. */
struct symmetric_block {
    uint16_t scale;
    int scales[16];
    double real[16]; /* scale * scales[k] */
};
static void fit_scales(const double *scale, int parts, int lowest, int highest, struct symmetric_block *b) {
    double extreme = 0;
    for (int k = 0; k < parts; k++)
        if (fabs(scale[k]) > fabs(extreme)) extreme = scale[k];
    b->scale = rf_quant_to_f16(extreme / lowest);
    double unit = rf_quant_f16(b->scale);
    for (int k = 0; k < parts; k++) {
        b->scales[k] = unit != 0 ? rf_quant_round(scale[k] / unit, lowest, highest) : 0;
        b->real[k] = unit * b->scales[k];
    }
}
static void fit_symmetric(const float *in, int low, int high, int lowest, int highest, struct symmetric_block *b) {
    double scale[16];
    for (int k = 0; k < 16; k++) scale[k] = rf_quant_symmetric(in + 16 * k, 16, low, high);
    fit_scales(scale, 16, lowest, highest, b);
}
/* The integer that is stored for x: q - low, never negative. */
static int pick(double x, double scale, int low, int high) {
    return (scale != 0 ? rf_quant_round(x / scale, low, high) : 0) - low;
}

static void or_into(uint8_t *byte, int bits) {
    *byte = (uint8_t)(*byte | bits);
}

static void quantize_q2(const float *in, struct rf_block_q2_k *b) {
    struct affine_block fit;
    fit_affine(in, 16, 3, 15, &fit);
    b->scale = fit.scale;
    b->minimum = fit.minimum;
    for (int k = 0; k < 16; k++) b->scales[k] = (uint8_t)(fit.scales[k] | fit.minimums[k] << 4);
    for (int i = 0; i < RF_BLOCK_LARGE; i++)
        or_into(&b->quants[32 * (i / 128) + i % 32], fit.q[i] << 2 * (i % 128 / 32));
}

static void quantize_q3(const float *in, struct rf_block_q3_k *b) {
    struct symmetric_block fit;
    fit_symmetric(in, -4, 3, -32, 31, &fit);
    b->scale = fit.scale;
    for (int k = 0; k < 16; k++) set_q3_scale(b->scales, k, fit.scales[k]);
    for (int i = 0; i < RF_BLOCK_LARGE; i++) {
        int q = pick(in[i], fit.real[i / 16], -4, 3);
        or_into(&b->quants[32 * (i / 128) + i % 32], (q & 3) << 2 * (i % 128 / 32));
        or_into(&b->high[i % 32], q >> 2 << i / 32);
    }
}

static void quantize_q4(const float *in, struct rf_block_q4_k *b) {
    struct affine_block fit;
    fit_affine(in, 32, 15, 63, &fit);
    b->scale = fit.scale;
    b->minimum = fit.minimum;
    rf_k4_pack(b->scales, fit.scales, fit.minimums);
    for (int i = 0; i < RF_BLOCK_LARGE; i++)
        or_into(&b->quants[32 * (i / 64) + i % 32], fit.q[i] << 4 * (i / 32 % 2));
}

static void quantize_q5(const float *in, struct rf_block_q5_k *b) {
    struct affine_block fit;
    fit_affine(in, 32, 31, 63, &fit);
    b->scale = fit.scale;
    b->minimum = fit.minimum;
    rf_k4_pack(b->scales, fit.scales, fit.minimums);
    for (int i = 0; i < RF_BLOCK_LARGE; i++) {
        or_into(&b->quants[32 * (i / 64) + i % 32], (fit.q[i] & 15) << 4 * (i / 32 % 2));
        or_into(&b->high[i % 32], fit.q[i] >> 4 << i / 32);
    }
}

static void quantize_q6(const float *in, struct rf_block_q6_k *b) {
    struct symmetric_block fit;
    fit_symmetric(in, -32, 31, -128, 127, &fit);
    b->scale = fit.scale;
    for (int k = 0; k < 16; k++) b->scales[k] = (int8_t)fit.scales[k];
    for (int i = 0; i < RF_BLOCK_LARGE; i++) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32, q = pick(in[i], fit.real[i / 16], -32, 31);
        or_into(&b->low[64 * half + 32 * (quarter % 2) + l], (q & 15) << 4 * (quarter / 2));
        or_into(&b->high[32 * half + l], q >> 4 << 2 * quarter);
    }
}

static void quantize_iq4(const float *in, struct rf_block_iq4_xs *b) {
    struct symmetric_block fit;
    double scale[8];
    for (int j = 0; j < 8; j++) scale[j] = rf_iq4_fit(in + 32 * j, 32);
    fit_scales(scale, 8, -32, 31, &fit);
    b->scale = fit.scale;
    for (int j = 0; j < 8; j++) {
        int bits = fit.scales[j] + 32;
        or_into(&b->scales_low[j / 2], (bits & 15) << 4 * (j % 2));
        b->scales_high = (uint16_t)(b->scales_high | (bits >> 4) << 2 * j);
    }
    for (int i = 0; i < RF_BLOCK_LARGE; i++) {
        double real = fit.real[i / 32];
        int q = rf_iq4_nearest(real != 0 ? in[i] / real : 0);
        or_into(&b->quants[16 * (i / 32) + i % 16], q << 4 * (i / 16 % 2));
    }
}

void rf_quantize_large(enum rf_dtype dtype, const float *in, void *block) {
    union block b;
    memset(&b, 0, sizeof b);
    switch (dtype) {
    case RF_Q2_K: quantize_q2(in, &b.q2); break;
    case RF_Q3_K: quantize_q3(in, &b.q3); break;
    case RF_Q4_K: quantize_q4(in, &b.q4); break;
    case RF_Q5_K: quantize_q5(in, &b.q5); break;
    case RF_Q6_K: quantize_q6(in, &b.q6); break;
    case RF_IQ4_XS: quantize_iq4(in, &b.iq4); break;
    default: return;
    }
    memcpy(block, &b, rf_dtype_block_bytes(dtype));
}
