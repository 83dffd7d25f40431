/* The scalar references: what every kernel's result is judged by.
 *
 * Plain loops, sums in double, rounded at the end. They are the definition of each op; the
 * kernels' own headers repeat it. Element types are RF_F32, RF_F16 and RF_BF16; pointers are to
 * dense arrays of them. Nothing here fails or allocates; another dtype leaves the output alone. */
#ifndef RF_CPU_REFERENCE_H
#define RF_CPU_REFERENCE_H

#include <rocmforge/gpu.h>

/* Bits of 16-bit floats. Narrowing: to nearest, ties to even, subnormals kept, beyond the range to
 * infinity, any NaN to 0x7e00 or 0x7fc0. From double: rounded once. */
uint16_t rf_f16_from_double(double value);
uint16_t rf_bf16_from_double(double value);
double rf_f16_to_double(uint16_t bits);
double rf_bf16_to_double(uint16_t bits);

/* One element of an array, whatever its type. */
double rf_element_get(enum rf_dtype dtype, const void *base, size_t index);
void rf_element_set(enum rf_dtype dtype, void *base, size_t index, double value);

void rf_ref_fill_f32(float *out, float value, size_t count);
void rf_ref_fill_u32(uint32_t *out, uint32_t value, size_t count);

/* The same type keeps the bits, NaN payloads too. */
void rf_ref_copy(enum rf_dtype to, void *out, enum rf_dtype from, const void *in, size_t count);

struct rf_ref_strides {
    size_t row, column; /* in elements */
};
void rf_ref_copy_2d(enum rf_dtype to, void *out, struct rf_ref_strides out_strides, enum rf_dtype from,
                    const void *in, struct rf_ref_strides in_strides, size_t rows, size_t columns);

/* Computed in f32, then rounded to the type: kernels give the same bits. */
void rf_ref_add(enum rf_dtype dtype, void *out, const void *a, const void *b, size_t count);
void rf_ref_scale(enum rf_dtype dtype, void *out, const void *in, float factor, size_t count);

/* A row of -inf alone gives zeros; a +inf or a NaN makes its row NaN. out may be in. */
void rf_ref_softmax_f32(float *out, const float *in, size_t rows, size_t columns);

/* weight: f32, or NULL for ones. out may be in. */
void rf_ref_rms_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, size_t rows, size_t columns,
                     float eps);

#endif
