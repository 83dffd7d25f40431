/* The scalar references (see reference.h): obvious rather than fast, in double.
 *
 * The conversions work on the value (scale, round, pack) and share nothing with those of the
 * kernels, which work on bits: each checks the other. */
#include "cpu/reference.h"

#include <math.h>
#include <string.h>

/* A binary float of 16 bits with so many fraction bits, bias and largest exponent. */
struct narrow {
    int fraction_bits, exponent_bits;
    uint16_t nan;
};
static const struct narrow narrow_f16 = {10, 5, 0x7e00};
static const struct narrow narrow_bf16 = {7, 8, 0x7fc0};

static uint16_t narrow_from_double(const struct narrow *format, double value) {
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << format->exponent_bits) - 1) << format->fraction_bits);
    if (isnan(value)) return format->nan;
    double magnitude = fabs(value);
    if (magnitude == 0) return sign;
    if (isinf(magnitude)) return (uint16_t)(sign | infinity);
    int exponent;
    frexp(magnitude, &exponent); /* magnitude = m * 2^exponent, 0.5 <= m < 1 */
    exponent -= 1;
    if (exponent > bias) return (uint16_t)(sign | infinity);
    if (exponent < 1 - bias) exponent = 1 - bias; /* subnormal */
    /* The spacing of representable values here is 2^(exponent - fraction_bits); nearbyint rounds
     * ties to even in the default rounding mode. */
    double steps = nearbyint(ldexp(magnitude, format->fraction_bits - exponent));
    uint32_t bits = (uint32_t)steps;
    /* A normal number's steps include the implicit bit, which carries into the exponent field. */
    bits += (uint32_t)(exponent + bias - 1) << format->fraction_bits;
    return bits >= infinity ? (uint16_t)(sign | infinity) : (uint16_t)(sign | bits);
}

static double narrow_to_double(const struct narrow *format, uint16_t bits) {
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    int exponent = bits >> format->fraction_bits & ((1 << format->exponent_bits) - 1);
    int fraction = bits & ((1 << format->fraction_bits) - 1);
    double magnitude;
    if (exponent == (1 << format->exponent_bits) - 1) {
        magnitude = fraction ? NAN : INFINITY;
    } else if (exponent == 0) {
        magnitude = ldexp(fraction, 1 - bias - format->fraction_bits);
    } else {
        magnitude = ldexp(fraction + (1 << format->fraction_bits), exponent - bias - format->fraction_bits);
    }
    return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t rf_f16_from_double(double value) {
    return narrow_from_double(&narrow_f16, value);
}
uint16_t rf_bf16_from_double(double value) {
    return narrow_from_double(&narrow_bf16, value);
}
double rf_f16_to_double(uint16_t bits) {
    return narrow_to_double(&narrow_f16, bits);
}
double rf_bf16_to_double(uint16_t bits) {
    return narrow_to_double(&narrow_bf16, bits);
}

double rf_element_get(enum rf_dtype dtype, const void *base, size_t index) {
    switch (dtype) {
    case RF_F32: return ((const float *)base)[index];
    case RF_F16: return rf_f16_to_double(((const uint16_t *)base)[index]);
    case RF_BF16: return rf_bf16_to_double(((const uint16_t *)base)[index]);
    default: return NAN;
    }
}

void rf_element_set(enum rf_dtype dtype, void *base, size_t index, double value) {
    switch (dtype) {
    case RF_F32: ((float *)base)[index] = (float)value; break;
    case RF_F16: ((uint16_t *)base)[index] = rf_f16_from_double(value); break;
    case RF_BF16: ((uint16_t *)base)[index] = rf_bf16_from_double(value); break;
    default: break;
    }
}

static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}

void rf_ref_fill_f32(float *out, float value, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = value;
}

void rf_ref_fill_u32(uint32_t *out, uint32_t value, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = value;
}

void rf_ref_copy(enum rf_dtype to, void *out, enum rf_dtype from, const void *in, size_t count) {
    struct rf_ref_strides dense = {count, 1};
    rf_ref_copy_2d(to, out, dense, from, in, dense, 1, count);
}

void rf_ref_copy_2d(enum rf_dtype to, void *out, struct rf_ref_strides out_strides, enum rf_dtype from,
                    const void *in, struct rf_ref_strides in_strides, size_t rows, size_t columns) {
    if (!is_float(to) || !is_float(from)) return;
    size_t bytes = element_bytes(from);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            size_t out_at = r * out_strides.row + c * out_strides.column;
            size_t in_at = r * in_strides.row + c * in_strides.column;
            if (to == from) {
                memmove((char *)out + out_at * bytes, (const char *)in + in_at * bytes, bytes);
            } else {
                rf_element_set(to, out, out_at, rf_element_get(from, in, in_at));
            }
        }
    }
}

void rf_ref_add(enum rf_dtype dtype, void *out, const void *a, const void *b, size_t count) {
    if (!is_float(dtype)) return;
    for (size_t i = 0; i < count; i++)
        rf_element_set(dtype, out, i, (float)(rf_element_get(dtype, a, i) + rf_element_get(dtype, b, i)));
}

void rf_ref_scale(enum rf_dtype dtype, void *out, const void *in, float factor, size_t count) {
    if (!is_float(dtype)) return;
    for (size_t i = 0; i < count; i++)
        rf_element_set(dtype, out, i, (float)(rf_element_get(dtype, in, i) * (double)factor));
}

void rf_ref_softmax_f32(float *out, const float *in, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++) {
        const float *x = in + r * columns;
        float *y = out + r * columns;
        double max = -INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++) max = fmax(max, (double)x[c]);
        double shift = max == -INFINITY ? 0 : max;
        for (size_t c = 0; c < columns; c++) sum += exp((double)x[c] - shift);
        for (size_t c = 0; c < columns; c++) y[c] = sum == 0 ? 0.0f : (float)(exp((double)x[c] - shift) / sum);
    }
}

void rf_ref_rms_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, size_t rows, size_t columns,
                     float eps) {
    if (!is_float(dtype)) return;
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(dtype, in, r * columns + c);
            sum += x * x;
        }
        double factor = 1 / sqrt(sum / (double)columns + (double)eps);
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(dtype, in, r * columns + c);
            rf_element_set(dtype, out, r * columns + c, x * factor * (weight ? (double)weight[c] : 1));
        }
    }
}
