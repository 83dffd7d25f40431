/* The scalar references, against which every kernel's result is compared. This file has the conversions that all of
 * them use, and the references of the elementwise ops, the norms, softmax, and the ops that only move elements.
 *
 * They are plain loops with sums in double, rounded at the end unless said otherwise. They are the definition of each
 * op; kernels/NAME_args.h says what the arguments mean. Element types are RF_F32, RF_F16 and RF_BF16; arrays are
 * dense if the arguments have no strides. No function fails or allocates; another dtype leaves the output alone. */
#ifndef RF_CPU_REFERENCE_H
#define RF_CPU_REFERENCE_H

#include <rocmforge/gpu.h>

#include "kernels/elementwise_args.h"
#include "kernels/move_args.h"
#include "kernels/norm_args.h"

/* The bits of 16-bit floats. Narrowing rounds to nearest, ties to even, keeps subnormals, gives infinity beyond the
 * range, and 0x7e00 or 0x7fc0 for any NaN. Narrowing from double rounds once. */
uint16_t rf_f16_from_double(double value);
uint16_t rf_bf16_from_double(double value);
double rf_f16_to_double(uint16_t bits);
double rf_bf16_to_double(uint16_t bits);

/* Reads or writes one element of an array of any type. */
double rf_element_get(enum rf_dtype dtype, const void *base, size_t index);
void rf_element_set(enum rf_dtype dtype, void *base, size_t index, double value);

/* ---- elementwise ---- */

/* Fills elements of 4 bytes. */
void rf_ref_fill(void *out, const struct rf_elementwise_args *args);
/* If the type stays the same, so do the bits, NaN payloads too. */
void rf_ref_copy(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                 const struct rf_elementwise_args *args);
void rf_ref_copy_2d(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_copy_2d_args *args);

/* Computed in f32, then rounded to the type: kernels give the same bits. */
void rf_ref_add(enum rf_dtype dtype, void *out, const void *a, const void *b, const struct rf_elementwise_args *args);
void rf_ref_scale(enum rf_dtype dtype, void *out, const void *in, const struct rf_elementwise_args *args);
/* c may be NULL. One f32 operation (the product is not rounded first), then rounded to the type: kernels give the
 * same bits. */
void rf_ref_multiply(enum rf_dtype dtype, void *out, const void *a, const void *b, const void *c,
                     const struct rf_multiply_args *args);

/* up may be NULL. out may be gate or up with the same stride. act(-inf) is 0. */
void rf_ref_activation(enum rf_dtype dtype, void *out, const void *gate, const void *up,
                       const struct rf_activation_args *args);
/* The same with an out of another type, apart from gate and up. */
void rf_ref_activation_to(enum rf_dtype to, void *out, enum rf_dtype from, const void *gate, const void *up,
                          const struct rf_activation_args *args);

/* ---- norms and softmax; weight and bias may be NULL, out may be in ---- */

void rf_ref_rms_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight,
                     const struct rf_norm_args *args);
/* The same with an out of another type, apart from in. */
void rf_ref_rms_norm_to(enum rf_dtype to, void *out, enum rf_dtype from, const void *in, const float *weight,
                        const struct rf_norm_args *args);
void rf_ref_layer_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, const float *bias,
                       const struct rf_norm_args *args);
/* rf_ref_add, then rf_ref_rms_norm of the sum. sum may be a or b. */
void rf_ref_add_rms_norm(enum rf_dtype dtype, void *sum, void *out, const void *a, const void *b, const float *weight,
                         const struct rf_norm_args *args);

/* A row that is all -inf gives zeros; a +inf or a NaN makes its row NaN. */
void rf_ref_softmax(float *out, const float *in, const struct rf_softmax_args *args);
/* mask is f32 or f16, or NULL. A row that is all -inf gives zeros. */
void rf_ref_softmax_mask(float *out, const float *in, enum rf_dtype mask_dtype, const void *mask,
                         const struct rf_softmax_args *args);

/* ---- moving ---- */

/* If the type stays the same, so do the bits. */
void rf_ref_permute(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_permute_args *args);
/* Elements may have any type but a quantized one. in[k] is not used if its width is 0. */
void rf_ref_concat(enum rf_dtype dtype, void *out, const void *const in[RF_CONCAT_INPUTS],
                   const struct rf_concat_args *args);

#endif
