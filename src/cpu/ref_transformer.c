/* The scalar references of a transformer's glue (see ref_transformer.h): obvious rather than fast. */
#include "cpu/ref_transformer.h"

#include <math.h>
#include <string.h>

#include "cpu/reference.h"

static bool plain(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
static char *at(enum rf_dtype dtype, void *base, size_t index) {
    return (char *)base + index * rf_dtype_bytes(dtype);
}
static const char *at_const(enum rf_dtype dtype, const void *base, size_t index) {
    return (const char *)base + index * rf_dtype_bytes(dtype);
}

void rf_ref_layer_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, const float *bias,
                       size_t rows, size_t columns, float eps) {
    if (!plain(dtype)) return;
    for (size_t r = 0; r < rows; r++) {
        double sum = 0, squares = 0;
        for (size_t c = 0; c < columns; c++) sum += rf_element_get(dtype, in, r * columns + c);
        double mean = sum / (double)columns;
        for (size_t c = 0; c < columns; c++) {
            double x = rf_element_get(dtype, in, r * columns + c) - mean;
            squares += x * x;
        }
        double factor = 1 / sqrt(squares / (double)columns + (double)eps);
        for (size_t c = 0; c < columns; c++) {
            double x = (rf_element_get(dtype, in, r * columns + c) - mean) * factor;
            if (weight) x *= (double)weight[c];
            if (bias) x += (double)bias[c];
            rf_element_set(dtype, out, r * columns + c, x);
        }
    }
}

void rf_ref_add_rms_norm(enum rf_dtype dtype, void *sum, void *out, const void *a, const void *b, const float *weight,
                         size_t rows, size_t columns, float eps) {
    rf_ref_add(dtype, sum, a, b, rows * columns);
    rf_ref_rms_norm(dtype, out, sum, weight, rows, columns, eps);
}

double rf_ref_activation(enum rf_activation kind, double x) {
    if (x == -INFINITY) return 0;
    switch (kind) {
    case RF_ACTIVATION_SILU: return x / (1 + exp(-x));
    case RF_ACTIVATION_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case RF_ACTIVATION_GELU_ERF: return 0.5 * x * (1 + erf(x / M_SQRT2));
    default: return NAN;
    }
}

void rf_ref_activation_gate(enum rf_activation kind, enum rf_dtype dtype, void *out, size_t out_row, const void *gate,
                            size_t gate_row, const void *up, size_t up_row, size_t rows, size_t columns) {
    if (!plain(dtype)) return;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            double x = rf_ref_activation(kind, rf_element_get(dtype, gate, r * gate_row + c));
            if (up) x *= rf_element_get(dtype, up, r * up_row + c);
            rf_element_set(dtype, out, r * out_row + c, x);
        }
}

void rf_ref_multiply(enum rf_dtype dtype, void *out, size_t out_row, const void *a, size_t a_row, const void *b,
                     size_t b_row, const void *c, size_t c_row, size_t rows, size_t columns) {
    if (!plain(dtype)) return;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < columns; i++) {
            float x = (float)rf_element_get(dtype, a, r * a_row + i),
                  y = (float)rf_element_get(dtype, b, r * b_row + i);
            float z = c ? fmaf(x, y, (float)rf_element_get(dtype, c, r * c_row + i)) : x * y;
            rf_element_set(dtype, out, r * out_row + i, (double)z);
        }
}

void rf_ref_permute(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_ref_shape *shape) {
    if (!plain(to) || !plain(from)) return;
    const size_t *n = shape->size, *o = shape->out_stride, *s = shape->in_stride;
    for (size_t i = 0; i < n[0]; i++)
        for (size_t j = 0; j < n[1]; j++)
            for (size_t k = 0; k < n[2]; k++)
                for (size_t l = 0; l < n[3]; l++)
                    rf_ref_copy(to, at(to, out, i * o[0] + j * o[1] + k * o[2] + l * o[3]), from,
                                at_const(from, in, i * s[0] + j * s[1] + k * s[2] + l * s[3]), 1);
}

void rf_ref_concat(size_t element_bytes, void *out, const void *const *in, const size_t *widths, size_t count,
                   size_t outer) {
    char *to = out;
    for (size_t r = 0; r < outer; r++)
        for (size_t k = 0; k < count; k++) {
            size_t bytes = widths[k] * element_bytes;
            if (bytes) memcpy(to, (const char *)in[k] + r * bytes, bytes);
            to += bytes;
        }
}

void rf_ref_softmax_mask(float *out, const float *in, enum rf_dtype mask_dtype, const void *mask, size_t rows,
                         size_t columns, size_t rows_each, size_t heads, float scale) {
    for (size_t r = 0; r < rows; r++) {
        size_t m = mask ? r / (rows_each * heads) * rows_each + r % rows_each : 0;
        double max = -INFINITY, sum = 0;
        for (int pass = 0; pass < 3; pass++)
            for (size_t c = 0; c < columns; c++) {
                /* out may be in: the last pass replaces each element after its last use */
                double s = (double)in[r * columns + c] * (double)scale;
                if (mask) s += rf_element_get(mask_dtype, mask, m * columns + c);
                double e = exp(s - (max == -INFINITY ? 0 : max));
                if (pass == 0 && s > max) max = s;
                if (pass == 1) sum += e;
                if (pass == 2) out[r * columns + c] = (float)(sum == 0 ? 0 : e / sum);
            }
    }
}
