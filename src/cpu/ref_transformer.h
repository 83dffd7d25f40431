/* The scalar references of what stands between the matrix products of a transformer: the definition of
 * each op, in double, rounded once, unless it says otherwise.
 *
 * Element types are RF_F32, RF_F16 and RF_BF16; strides are in elements, the last dimension is dense where
 * no stride is given for it. Nothing here fails or allocates; another dtype leaves the output alone. */
#ifndef RF_CPU_REF_TRANSFORMER_H
#define RF_CPU_REF_TRANSFORMER_H

#include <rocmforge/gpu.h>

/* out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * weight[c] + bias[c]; weight and bias may be NULL.
 * out may be in. */
void rf_ref_layer_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, const float *bias,
                       size_t rows, size_t columns, float eps);

/* sum = a + b as rf_ref_add, then out = rf_ref_rms_norm(sum). sum may be a or b. */
void rf_ref_add_rms_norm(enum rf_dtype dtype, void *sum, void *out, const void *a, const void *b, const float *weight,
                         size_t rows, size_t columns, float eps);

enum rf_activation {
    RF_ACTIVATION_SILU,     /* x / (1 + exp(-x)) */
    RF_ACTIVATION_GELU,     /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    RF_ACTIVATION_GELU_ERF, /* x (1 + erf(x / sqrt(2))) / 2 */
    RF_ACTIVATION_COUNT
};
double rf_ref_activation(enum rf_activation kind, double x); /* 0 at -inf */
/* out[r][c] = act(gate[r][c]) * up[r][c]; up may be NULL. out may be gate or up with the same stride. */
void rf_ref_activation_gate(enum rf_activation kind, enum rf_dtype dtype, void *out, size_t out_row, const void *gate,
                            size_t gate_row, const void *up, size_t up_row, size_t rows, size_t columns);

/* out[r][c] = a[r][c] * b[r][c] + c[r][c]; c may be NULL. One operation of f32 (the product is not rounded
 * first), then rounded to the type: kernels give the same bits. A row stride of 0 repeats a row. */
void rf_ref_multiply(enum rf_dtype dtype, void *out, size_t out_row, const void *a, size_t a_row, const void *b,
                     size_t b_row, const void *c, size_t c_row, size_t rows, size_t columns);

/* out[i] = in[i] over four dimensions with strides; the same type keeps the bits. */
struct rf_ref_shape {
    size_t size[4], out_stride[4], in_stride[4];
};
void rf_ref_permute(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_ref_shape *shape);

/* out[outer][widths together] of in[k][outer][widths[k]], elements of so many bytes. */
void rf_ref_concat(size_t element_bytes, void *out, const void *const *in, const size_t *widths, size_t count,
                   size_t outer);

/* out[r][c] = softmax over c of in[r][c] * scale + mask[m][c]; m = r / (rows_each * heads) * rows_each +
 * r % rows_each; mask is f32 or f16, or NULL. A row of -inf alone gives zeros. out may be in. */
void rf_ref_softmax_mask(float *out, const float *in, enum rf_dtype mask_dtype, const void *mask, size_t rows,
                         size_t columns, size_t rows_each, size_t heads, float scale);

#endif
