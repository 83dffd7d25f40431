/* Scalar references of the matrix products with weights, of the embedding lookup and of the
 * quantization of activations (see reference.h for what references are).
 *
 * Weights are dense rows, [n, k], of any weight type (quant.h); activations are rows, [m, k].
 * Sums are in double; nothing here fails or allocates. k of a quantized weight is a multiple of its
 * block. */
#ifndef RF_CPU_REF_MATMUL_H
#define RF_CPU_REF_MATMUL_H

#include <rocmforge/gpu.h>

/* Activations in 8 bits: 32 elements, element i is scale * quants[i]. This layout is the
 * library's own, not a file's. */
struct rf_q8_block {
    float scale; /* NaN if an element was not finite; all quants are 0 then */
    float sum;   /* of the 32 elements as they are here: scale * sum of quants; NaN along with scale */
    int8_t quants[32];
};
#define RF_Q8_BLOCK 32
#define RF_Q8_TINY 1e-30f /* a block with nothing larger counts as zeros */

/* out[r][c] = sum over k of weights[c][k] * x[r][k], then bias, then residual; with a gate,
 * silu(that with weights) * that with gate, in which case neither bias nor residual is allowed. */
struct rf_ref_matmul {
    enum rf_dtype weight_type;
    const void *weights;
    const void *gate;               /* of weight_type too, or NULL */
    enum rf_dtype type;             /* of x, residual and out: RF_F32, RF_F16, RF_BF16 */
    const void *x;                  /* or NULL: */
    const struct rf_q8_block *x_q8; /* k / 32 blocks a row, dense; x_stride is not used */
    const float *bias;              /* n, or NULL */
    const void *residual;           /* as out, or NULL; may be out */
    void *out;
    size_t m, n, k;
    size_t x_stride, out_stride; /* elements from row to row */
};
void rf_ref_matmul(const struct rf_ref_matmul *op);

/* out[r] = row indices[r] of a table of rows; an index outside [0, table_rows) gives zeros. type:
 * of out, RF_F32, RF_F16 or RF_BF16. */
void rf_ref_embedding(enum rf_dtype table_type, const void *table, size_t table_rows, size_t columns,
                      const int32_t *indices, size_t count, enum rf_dtype type, void *out);

/* count elements of a weight type to type; f16 and bf16 are rounded from the f32 value. */
void rf_ref_dequantize(enum rf_dtype from, const void *blocks, enum rf_dtype type, void *out, size_t count);

/* Largest magnitude / 127 as scale, elements times its inverse rounded to even: in f32, the same
 * bits as the kernel's and the CPU's. count: a multiple of 32. */
void rf_ref_quantize_q8(enum rf_dtype type, const void *x, struct rf_q8_block *out, size_t count);

#endif
