/* The scalar references (see reference.h): obvious rather than fast, in double.
 *
 * The conversions work on the value (scale, round, pack) and share nothing with those of the
 * kernels, which work on bits: each checks the other. */
#include "cpu/reference.h"

#include <math.h>
#include <string.h>

/* A binary float of 16 bits: its fraction and exponent bits, and the NaN that narrowing gives. */
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
/* ---- elementwise ---- */

void rf_ref_fill(void *out, const struct rf_elementwise_args *args) {
    for (size_t i = 0; i < args->count; i++) ((uint32_t *)out)[i] = args->bits;
}

/* Copies one element. */
static void copy_one(enum rf_dtype to, void *out, size_t out_at, enum rf_dtype from, const void *in, size_t in_at) {
    size_t bytes = rf_dtype_bytes(from);
    if (to == from) {
        memmove((char *)out + out_at * bytes, (const char *)in + in_at * bytes, bytes);
    } else {
        rf_element_set(to, out, out_at, rf_element_get(from, in, in_at));
    }
}

void rf_ref_copy(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                 const struct rf_elementwise_args *args) {
    if (!is_float(to) || !is_float(from)) return;
    for (size_t i = 0; i < args->count; i++) copy_one(to, out, i, from, in, i);
}

void rf_ref_copy_2d(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_copy_2d_args *args) {
    if (!is_float(to) || !is_float(from)) return;
    for (size_t r = 0; r < args->rows; r++)
        for (size_t c = 0; c < args->columns; c++)
            copy_one(to, out, r * args->out_row + c * args->out_column, from, in,
                     r * args->in_row + c * args->in_column);
}

void rf_ref_add(enum rf_dtype dtype, void *out, const void *a, const void *b,
                const struct rf_elementwise_args *args) {
    if (!is_float(dtype)) return;
    for (size_t i = 0; i < args->count; i++)
        rf_element_set(dtype, out, i, (float)(rf_element_get(dtype, a, i) + rf_element_get(dtype, b, i)));
}

void rf_ref_scale(enum rf_dtype dtype, void *out, const void *in, const struct rf_elementwise_args *args) {
    if (!is_float(dtype)) return;
    for (size_t i = 0; i < args->count; i++)
        rf_element_set(dtype, out, i, (float)(rf_element_get(dtype, in, i) * (double)args->factor));
}

void rf_ref_multiply(enum rf_dtype dtype, void *out, const void *a, const void *b, const void *c,
                     const struct rf_multiply_args *args) {
    if (!is_float(dtype)) return;
    for (size_t r = 0; r < args->rows; r++)
        for (size_t i = 0; i < args->columns; i++) {
            float x = (float)rf_element_get(dtype, a, r * args->a_row + i),
                  y = (float)rf_element_get(dtype, b, r * args->b_row + i);
            float z = c ? fmaf(x, y, (float)rf_element_get(dtype, c, r * args->c_row + i)) : x * y;
            rf_element_set(dtype, out, r * args->out_row + i, (double)z);
        }
}

static double activate(enum rf_activation kind, double x) {
    if (x == -INFINITY) return 0;
    switch (kind) {
    case RF_ACTIVATION_SILU: return x / (1 + exp(-x));
    case RF_ACTIVATION_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case RF_ACTIVATION_GELU_ERF: return 0.5 * x * (1 + erf(x / M_SQRT2));
    default: return NAN;
    }
}

void rf_ref_activation(enum rf_dtype dtype, void *out, const void *gate, const void *up,
                       const struct rf_activation_args *args) {
    rf_ref_activation_to(dtype, out, dtype, gate, up, args);
}

void rf_ref_activation_to(enum rf_dtype to, void *out, enum rf_dtype from, const void *gate, const void *up,
                          const struct rf_activation_args *args) {
    if (!is_float(to) || !is_float(from)) return;
    for (size_t r = 0; r < args->rows; r++)
        for (size_t c = 0; c < args->columns; c++) {
            double x = activate((enum rf_activation)args->kind, rf_element_get(from, gate, r * args->gate_row + c));
            if (up) x *= rf_element_get(from, up, r * args->up_row + c);
            rf_element_set(to, out, r * args->out_row + c, x);
        }
}

/* ---- norms and softmax ---- */

void rf_ref_rms_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight,
                     const struct rf_norm_args *args) {
    rf_ref_rms_norm_to(dtype, out, dtype, in, weight, args);
}

void rf_ref_rms_norm_to(enum rf_dtype to, void *out, enum rf_dtype from, const void *in, const float *weight,
                        const struct rf_norm_args *args) {
    if (!is_float(to) || !is_float(from)) return;
    size_t columns = args->columns;
    for (size_t r = 0; r < args->rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(from, in, r * columns + c);
            sum += x * x;
        }
        double factor = 1 / sqrt(sum / (double)columns + (double)args->eps);
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(from, in, r * columns + c);
            rf_element_set(to, out, r * columns + c, x * factor * (weight ? (double)weight[c] : 1));
        }
    }
}

void rf_ref_layer_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, const float *bias,
                       const struct rf_norm_args *args) {
    if (!is_float(dtype)) return;
    size_t columns = args->columns;
    for (size_t r = 0; r < args->rows; r++) {
        double sum = 0, squares = 0;
        for (size_t c = 0; c < columns; c++) sum += rf_element_get(dtype, in, r * columns + c);
        double mean = sum / (double)columns;
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(dtype, in, r * columns + c) - mean;
            squares += x * x;
        }
        double factor = 1 / sqrt(squares / (double)columns + (double)args->eps);
        for (size_t c = 0; c < columns; c++) {
            double x = (rf_element_get(dtype, in, r * columns + c) - mean) * factor;
            if (weight) x *= (double)weight[c];
            if (bias) x += (double)bias[c];
            rf_element_set(dtype, out, r * columns + c, x);
        }
    }
}

void rf_ref_add_rms_norm(enum rf_dtype dtype, void *sum, void *out, const void *a, const void *b, const float *weight,
                         const struct rf_norm_args *args) {
    rf_ref_add(dtype, sum, a, b, &(struct rf_elementwise_args){.count = args->rows * args->columns});
    rf_ref_rms_norm(dtype, out, sum, weight, args);
}

void rf_ref_softmax(float *out, const float *in, const struct rf_softmax_args *args) {
    size_t columns = args->columns;
    for (size_t r = 0; r < args->rows; r++) {
        const float *x = in + r * columns;
        float *y = out + r * columns;
        double max = -INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++) max = fmax(max, (double)x[c]);
        double shift = max == -INFINITY ? 0 : max;
        for (size_t c = 0; c < columns; c++) sum += exp((double)x[c] - shift);
        for (size_t c = 0; c < columns; c++) y[c] = sum == 0 ? 0.0f : (float)(exp((double)x[c] - shift) / sum);
    }
}

void rf_ref_softmax_mask(float *out, const float *in, enum rf_dtype mask_dtype, const void *mask,
                         const struct rf_softmax_args *args) {
    size_t columns = args->columns, each = args->rows_each;
    for (size_t r = 0; r < args->rows; r++) {
        size_t m = mask ? r / (each * args->heads) * each + r % each : 0;
        double max = -INFINITY, sum = 0;
        for (int pass = 0; pass < 3; pass++)
            for (size_t c = 0; c < columns; c++) {
                /* out may be in: the last pass replaces each element after its last use. */
                double s = (double)in[r * columns + c] * (double)args->scale;
                if (mask) s += rf_element_get(mask_dtype, mask, m * columns + c);
                double e = exp(s - (max == -INFINITY ? 0 : max));
                if (pass == 0 && s > max) max = s;
                if (pass == 1) sum += e;
                if (pass == 2) out[r * columns + c] = (float)(sum == 0 ? 0 : e / sum);
            }
    }
}

/* ---- moving ---- */

void rf_ref_permute(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_permute_args *args) {
    if (!is_float(to) || !is_float(from)) return;
    const uint64_t *n = args->size, *o = args->out_stride, *s = args->in_stride;
    for (size_t i = 0; i < n[0]; i++)
        for (size_t j = 0; j < n[1]; j++)
            for (size_t k = 0; k < n[2]; k++)
                for (size_t l = 0; l < n[3]; l++)
                    copy_one(to, out, i * o[0] + j * o[1] + k * o[2] + l * o[3], from, in,
                             i * s[0] + j * s[1] + k * s[2] + l * s[3]);
}

void rf_ref_concat(enum rf_dtype dtype, void *out, const void *const in[RF_CONCAT_INPUTS],
                   const struct rf_concat_args *args) {
    char *to = out;
    for (size_t r = 0; r < args->outer; r++)
        for (size_t k = 0; k < RF_CONCAT_INPUTS; k++) {
            size_t bytes = args->width[k] * rf_dtype_bytes(dtype);
            if (bytes) memcpy(to, (const char *)in[k] + r * bytes, bytes);
            to += bytes;
        }
}
