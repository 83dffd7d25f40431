/* Scalar references of the matrix products with weights, of the embedding lookup and of the ops between quantized and
 * float types (reference.h says what references are). kernels/matmul_args.h and kernels/quant_args.h say what they
 * compute, and define the structs that they take.
 *
 * Weights are of any weight type (quant.h). Sums are in double; no function fails or allocates. type is RF_F32,
 * RF_F16 or RF_BF16. */
#ifndef RF_CPU_REF_MATMUL_H
#define RF_CPU_REF_MATMUL_H

#include <rocmforge/gpu.h>

#include "kernels/matmul_args.h"
#include "kernels/quant_args.h"

struct rf_ref_matmul {
    struct rf_matmul_args args;
    enum rf_dtype weight_type;
    enum rf_dtype type;   /* of x (unless args.x_q8), residual and out */
    enum rf_dtype x_type; /* of x, if that is of 16 bits while 'type' is RF_F32; otherwise 0, which is RF_F32 */
    void *out;
    const void *weights;
    const void *gate;     /* of weight_type too, or NULL */
    const void *x;        /* with args.x_q8: struct rf_q8_block */
    const float *bias;    /* n, or NULL */
    const void *residual; /* as out, or NULL; may be out */
};
void rf_ref_matmul(const struct rf_ref_matmul *op);

void rf_ref_embedding(enum rf_dtype type, void *out, enum rf_dtype table_type, const void *table,
                      const int32_t *indices, const struct rf_embedding_args *args);

/* from is any weight type; f16 and bf16 results are rounded from the f32 value. */
void rf_ref_dequantize(enum rf_dtype type, void *out, enum rf_dtype from, const void *blocks,
                       const struct rf_dequantize_args *args);

/* The scale is the largest magnitude / 127; elements are multiplied by its inverse and rounded to nearest, ties to
 * even. All of this is in f32, so the kernel and the CPU give the same bits. */
void rf_ref_quantize_q8(struct rf_q8_block *out, enum rf_dtype type, const void *x,
                        const struct rf_quantize_q8_args *args);

#endif
