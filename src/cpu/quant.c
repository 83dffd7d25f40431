/* Quantized rows: the dispatch, the types with blocks of 32, and the search for scales. quant.h has the layouts;
 * quant_k.c has the types with blocks of 256.
 *
 * These are the references: obvious rather than fast. Every quantizer decides its scales first, rounds them to what
 * the block can hold, and only then picks the integers that fit the rounded scales. */
#include "cpu/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "cpu/quant_impl.h"
#include "cpu/reference.h"

_Static_assert(sizeof(struct rf_block_q4_0) == 18 && sizeof(struct rf_block_q4_1) == 20 &&
                   sizeof(struct rf_block_q5_0) == 22 && sizeof(struct rf_block_q5_1) == 24 &&
                   sizeof(struct rf_block_q8_0) == 34 && sizeof(struct rf_block_iq4_nl) == 18 &&
                   sizeof(struct rf_block_q2_k) == 84 && sizeof(struct rf_block_q3_k) == 110 &&
                   sizeof(struct rf_block_q4_k) == 144 && sizeof(struct rf_block_q5_k) == 176 &&
                   sizeof(struct rf_block_q6_k) == 210 && sizeof(struct rf_block_iq4_xs) == 136,
               "blocks have the sizes of the files");

const int8_t rf_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void dequantize_small(enum rf_dtype dtype, const void *block, float *out);
static void quantize_small(enum rf_dtype dtype, const float *in, void *block);

void rf_dequantize_row(enum rf_dtype dtype, const void *blocks, float *out, size_t count) {
    size_t block = rf_dtype_block(dtype), bytes = rf_dtype_block_bytes(dtype);
    rf_assert(block && count % block == 0);
    if (dtype == RF_F32) {
        memcpy(out, blocks, count * sizeof *out);
    } else if (dtype == RF_F16 || dtype == RF_BF16) {
        for (size_t i = 0; i < count; i++) {
            uint16_t bits;
            memcpy(&bits, (const char *)blocks + 2 * i, 2);
            out[i] = (float)(dtype == RF_F16 ? rf_f16_to_double(bits) : rf_bf16_to_double(bits));
        }
    } else if (block == RF_BLOCK_SMALL || block == RF_BLOCK_LARGE) {
        for (size_t i = 0; i < count / block; i++) {
            const void *from = (const char *)blocks + i * bytes;
            if (block == RF_BLOCK_SMALL) {
                dequantize_small(dtype, from, out + i * block);
            } else {
                rf_dequantize_large(dtype, from, out + i * block);
            }
        }
    }
}

void rf_quantize_row(enum rf_dtype dtype, const float *in, void *blocks, size_t count) {
    size_t block = rf_dtype_block(dtype), bytes = rf_dtype_block_bytes(dtype);
    float finite[RF_BLOCK_LARGE];
    rf_assert(block && count % block == 0);
    if (dtype == RF_F32) {
        memcpy(blocks, in, count * sizeof *in);
    } else if (dtype == RF_F16 || dtype == RF_BF16) {
        for (size_t i = 0; i < count; i++) {
            uint16_t bits = dtype == RF_F16 ? rf_f16_from_double(in[i]) : rf_bf16_from_double(in[i]);
            memcpy((char *)blocks + 2 * i, &bits, 2);
        }
    } else if (block == RF_BLOCK_SMALL || block == RF_BLOCK_LARGE) {
        for (size_t i = 0; i < count / block; i++) {
            void *to = (char *)blocks + i * bytes;
            for (size_t k = 0; k < block; k++) finite[k] = rf_quant_finite(in[i * block + k]);
            if (block == RF_BLOCK_SMALL) {
                quantize_small(dtype, finite, to);
            } else {
                rf_quantize_large(dtype, finite, to);
            }
        }
    }
}

/* ---- blocks of 32: nibbles, perhaps with a fifth bit ---- */

/* The nibble of element i, in the order of the small types. */
static int nibble(const uint8_t *quants, int i) {
    return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
}
static int fifth(const uint8_t high[4], int i) {
    return (high[i / 8] >> i % 8 & 1) << 4;
}
static void set_nibble(uint8_t *quants, int i, int q) {
    quants[i % 16] = (uint8_t)(quants[i % 16] | (i < 16 ? q & 15 : (q & 15) << 4));
}
static void set_fifth(uint8_t high[4], int i, int q) {
    high[i / 8] = (uint8_t)(high[i / 8] | (q >> 4 & 1) << i % 8);
}

static void dequantize_small(enum rf_dtype dtype, const void *block, float *out) {
    union {
        struct rf_block_q4_0 q4_0;
        struct rf_block_q4_1 q4_1;
        struct rf_block_q5_0 q5_0;
        struct rf_block_q5_1 q5_1;
        struct rf_block_q8_0 q8_0;
        struct rf_block_iq4_nl iq4_nl;
    } b;
    memcpy(&b, block, rf_dtype_block_bytes(dtype));
    float scale = rf_quant_f16(b.q4_0.scale); /* the first field of every type */
    for (int i = 0; i < RF_BLOCK_SMALL; i++) {
        switch (dtype) {
        case RF_Q4_0: out[i] = scale * (float)(nibble(b.q4_0.quants, i) - 8); break;
        case RF_Q4_1: out[i] = scale * (float)nibble(b.q4_1.quants, i) + rf_quant_f16(b.q4_1.minimum); break;
        case RF_Q5_0: out[i] = scale * (float)((nibble(b.q5_0.quants, i) | fifth(b.q5_0.high, i)) - 16); break;
        case RF_Q5_1:
            out[i] = scale * (float)(nibble(b.q5_1.quants, i) | fifth(b.q5_1.high, i)) + rf_quant_f16(b.q5_1.minimum);
            break;
        case RF_Q8_0: out[i] = scale * (float)b.q8_0.quants[i]; break;
        case RF_IQ4_NL: out[i] = scale * (float)rf_iq4_values[nibble(b.iq4_nl.quants, i)]; break;
        default: break;
        }
    }
}

/* Elements are scale * (q + low), with q from 0 to high - low. */
static void quantize_symmetric(enum rf_dtype dtype, const float *in, void *block) {
    int low = dtype == RF_Q4_0 ? -8 : dtype == RF_Q5_0 ? -16 : -127;
    int high = dtype == RF_Q8_0 ? 127 : -low - 1;
    struct rf_block_q4_0 q4_0 = {0};
    struct rf_block_q5_0 q5_0 = {0};
    struct rf_block_q8_0 q8_0 = {0};
    uint16_t bits = rf_quant_to_f16(rf_quant_symmetric(in, RF_BLOCK_SMALL, low, high));
    double scale = rf_quant_f16(bits), inverse = scale != 0 ? 1 / scale : 0;
    q4_0.scale = q5_0.scale = q8_0.scale = bits;
    for (int i = 0; i < RF_BLOCK_SMALL; i++) {
        int q = rf_quant_round(in[i] * inverse, low, high);
        q8_0.quants[i] = (int8_t)q;
        set_nibble(q4_0.quants, i, q - low);
        set_nibble(q5_0.quants, i, q - low);
        set_fifth(q5_0.high, i, q - low);
    }
    memcpy(block,
           dtype == RF_Q4_0   ? (void *)&q4_0
           : dtype == RF_Q5_0 ? (void *)&q5_0
                              : (void *)&q8_0,
           rf_dtype_block_bytes(dtype));
}

/* Elements are scale * q + minimum. */
static void quantize_affine(enum rf_dtype dtype, const float *in, void *block) {
    int high = dtype == RF_Q4_1 ? 15 : 31;
    struct rf_quant_affine fit = rf_quant_affine_fit(in, RF_BLOCK_SMALL, high, false);
    struct rf_block_q4_1 q4_1 = {.scale = rf_quant_to_f16(fit.scale), .minimum = rf_quant_to_f16(fit.minimum)};
    struct rf_block_q5_1 q5_1 = {.scale = q4_1.scale, .minimum = q4_1.minimum};
    double scale = rf_quant_f16(q4_1.scale), minimum = rf_quant_f16(q4_1.minimum);
    double inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < RF_BLOCK_SMALL; i++) {
        int q = rf_quant_round((in[i] - minimum) * inverse, 0, high);
        set_nibble(q4_1.quants, i, q);
        set_nibble(q5_1.quants, i, q);
        set_fifth(q5_1.high, i, q);
    }
    memcpy(block, dtype == RF_Q4_1 ? (void *)&q4_1 : (void *)&q5_1, rf_dtype_block_bytes(dtype));
}

static void quantize_small(enum rf_dtype dtype, const float *in, void *block) {
    if (dtype == RF_Q4_1 || dtype == RF_Q5_1) {
        quantize_affine(dtype, in, block);
    } else if (dtype == RF_IQ4_NL) {
        struct rf_block_iq4_nl b = {.scale = rf_quant_to_f16(rf_iq4_fit(in, RF_BLOCK_SMALL))};
        double scale = rf_quant_f16(b.scale), inverse = scale != 0 ? 1 / scale : 0;
        for (int i = 0; i < RF_BLOCK_SMALL; i++) set_nibble(b.quants, i, rf_iq4_nearest(in[i] * inverse));
        memcpy(block, &b, sizeof b);
    } else {
        quantize_symmetric(dtype, in, block);
    }
}

/* ---- the search for scales ---- */

float rf_quant_f16(uint16_t bits) {
    return (float)rf_f16_to_double(bits);
}
uint16_t rf_quant_to_f16(double value) {
    return rf_f16_from_double(value > 65504 ? 65504 : value < -65504 ? -65504 : value);
}
float rf_quant_finite(float value) {
    if (isnan(value)) return 0.0f;
    return value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;
}
int rf_quant_round(double value, int low, int high) {
    if (isnan(value)) value = 0;
    if (value <= low) return low;
    if (value >= high) return high;
    return (int)nearbyint(value);
}

/* Candidates on either side of the plain choice, and how far apart they are in units of the integer that the largest
 * element becomes. */
#define CANDIDATES 10
#define CANDIDATE_STEP 0.15

double rf_quant_symmetric(const float *x, int count, int low, int high) {
    double extreme = 0, best_scale = 0, best_error = INFINITY;
    for (int i = 0; i < count; i++)
        if (fabs((double)x[i]) > fabs(extreme)) extreme = x[i];
    if (extreme == 0) return 0;
    /* The largest element goes to the longer end of the range, so the scale may be negative. */
    int end = -low > high ? low : high;
    for (int candidate = -CANDIDATES; candidate <= CANDIDATES; candidate++) {
        double scale = extreme / (end + candidate * CANDIDATE_STEP * (end < 0 ? -1 : 1)), error = 0;
        if (!isfinite(scale) || scale == 0) continue;
        for (int i = 0; i < count; i++) {
            double miss = x[i] - scale * rf_quant_round(x[i] / scale, low, high);
            error += miss * miss;
        }
        if (error < best_error) {
            best_error = error;
            best_scale = scale;
        }
    }
    return best_scale;
}

/* For given integers, the best scale and minimum are a linear fit; for a given scale and minimum, the best integers
 * are the nearest. The search alternates between the two for a few rounds, from each of several starts. */
struct rf_quant_affine rf_quant_affine_fit(const float *x, int count, int high, bool floor_at_zero) {
    double least = x[0], most = x[0], best_error = INFINITY;
    for (int i = 1; i < count; i++) {
        if (x[i] < least) least = x[i];
        if (x[i] > most) most = x[i];
    }
    if (floor_at_zero && least > 0) least = 0;
    if (floor_at_zero && most < 0) most = 0;
    struct rf_quant_affine best = {0, least};
    if (most <= least) return best;
    for (int start = 0; start < 4; start++) {
        struct rf_quant_affine now = {(most - least) / (high + 0.5 * start), least};
        for (int turn = 0; turn < 4; turn++) {
            double error = 0, sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0;
            for (int i = 0; i < count; i++) {
                int q = rf_quant_round((x[i] - now.minimum) / now.scale, 0, high);
                double miss = x[i] - (now.scale * q + now.minimum);
                error += miss * miss;
                sum_q += q;
                sum_qq += (double)q * q;
                sum_x += x[i];
                sum_qx += q * (double)x[i];
            }
            if (error < best_error) {
                best_error = error;
                best = now;
            }
            double spread = count * sum_qq - sum_q * sum_q;
            if (spread <= 0) break;
            now.scale = (count * sum_qx - sum_q * sum_x) / spread;
            now.minimum = (sum_x - now.scale * sum_q) / count;
            if (floor_at_zero && now.minimum > 0) {
                now.minimum = 0;
                now.scale = sum_qx / sum_qq;
            }
            if (!(now.scale > 0)) break;
        }
    }
    return best;
}

int rf_iq4_nearest(double value) {
    int best = 0;
    for (int i = 1; i < 16; i++)
        if (fabs(value - rf_iq4_values[i]) < fabs(value - rf_iq4_values[best])) best = i;
    return best;
}

double rf_iq4_fit(const float *x, int count) {
    double extreme = 0, best_scale = 0, best_error = INFINITY;
    for (int i = 0; i < count; i++)
        if (fabs((double)x[i]) > fabs(extreme)) extreme = x[i];
    if (extreme == 0) return 0;
    for (int end = 0; end < 2; end++) /* the largest element may go to either end of the table */
        for (int candidate = -CANDIDATES; candidate <= CANDIDATES; candidate++) {
            double scale = extreme / ((end ? rf_iq4_values[15] : rf_iq4_values[0]) * (1 + candidate * 0.015)),
                   error = 0;
            if (!isfinite(scale) || scale == 0) continue;
            for (int i = 0; i < count; i++) {
                double miss = x[i] - scale * rf_iq4_values[rf_iq4_nearest(x[i] / scale)];
                error += miss * miss;
            }
            if (error < best_error) {
                best_error = error;
                best_scale = scale;
            }
        }
    return best_scale;
}
