/* Launchers of the products with weights and of the ops on quantized types: they check their arguments, choose
 * kernel, grid and block, and submit. kernels/matmul_args.h and kernels/quant_args.h say what each op computes, and
 * cpu/ref_matmul.c defines it in code.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason (a shape, a type, a size that overflows, an operand that leaves its buffer, is misaligned or overlaps the
 * output). Otherwise it returns what rf_queue_launch returns. Buffers are borrowed as by rf_queue_launch. An empty
 * output is no error and launches nothing. Threads: as the queue. No function waits for the work.
 *
 * Alignment: quantized blocks, and arrays that are read or written along with them, start at multiples of 16 bytes
 * (8-bit activations: of 8); plain arrays start at multiples of their element size. */
#ifndef RF_OPS_GPU_MATMUL_H
#define RF_OPS_GPU_MATMUL_H

#include <rocmforge/gpu.h>

#include "kernels/matmul_args.h"
#include "kernels/quant_args.h"
#include "ops/gpu_cache.h"
#include "ops/operand.h"

/* Which kernel; tests ask for each.
 *   MATVEC  reads the weights once for each RF_MATVEC_ROWS rows of x, quantized ones for each 4; sums in f32 of exact
 *           products
 *   TILED   many rows; the same exactness, on the vector units
 *   MATRIX  many rows on the matrix units, which round weights and activations to 16 bits (see
 *           kernels/matmul_tile.h): float weights of 16 bits with activations of F32 or their own type, quantized
 *           weights; k and the stride of x are multiples of 8, float weights and x at multiples of 16 bytes
 *   WIDE    MATRIX with the larger tiles, which MATRIX takes by itself where there are enough of them
 *   GROUP   as MATRIX, by groups of waves (kernels/matmul_group.hip): only where the device and the build have
 *           sm_90a; k is not 0
 *   DOTS    as MATVEC, for quantized weights: products of bytes, with x in 8 bits per element and a scale per 32. F32
 *           activations are rounded to the bits that rf_gpu_quantize_q8 gives. k up to what a block's shared memory
 *           holds: about 40,000 where it has 64 KiB. The only path for x_q8
 *   AUTO    for few rows DOTS where it is possible, else MATVEC; for many GROUP where it is possible and worth it,
 *           else MATRIX, else TILED.
 * With a gate, for many rows: the matrix units if x is of rf_gpu_matmul_unit(weight_type), else as for few */
enum rf_matmul_path {
    RF_MATMUL_AUTO,
    RF_MATMUL_MATVEC,
    RF_MATMUL_TILED,
    RF_MATMUL_MATRIX,
    RF_MATMUL_DOTS,
    RF_MATMUL_WIDE,
    RF_MATMUL_GROUP
};

/* The arguments of matmul, matmul_gate and matmul_q8. gate, bias and residual may have no buffer; residual may be
 * out. */
struct rf_gpu_matmul {
    struct rf_matmul_args args; /* x_q8 needs quantized weights and a path without tiles */
    enum rf_dtype weight_type;  /* RF_F32, RF_F16, RF_BF16 or quantized */
    enum rf_dtype type; /* of out, residual and x (unless x_q8): RF_F32; with float weights also RF_F16, RF_BF16; with
                           quantized ones and a gate, for many rows, also RF_F16 */
    /* With type RF_F32: rf_gpu_matmul_unit(weight_type) if x was rounded to that already, for many rows on the matrix
     * units; the result has the same bits. Otherwise 0, which is RF_F32. */
    enum rf_dtype x_type;
    enum rf_matmul_path path;
    struct rf_operand out, weights, gate, x, residual;
    struct rf_operand bias;      /* f32 [n] */
    struct rf_operand workspace; /* rf_gpu_matmul_workspace bytes at a multiple of 256; no buffer where it says 0 */
    bool gated; /* for rf_gpu_matmul_workspace, when there are no buffers yet: there will be a gate */
};
rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_gpu_matmul *product);
/* What matrix units round x to for weights of this type: RF_F16 or RF_BF16; RF_F32: they take no such weights. */
enum rf_dtype rf_gpu_matmul_unit(enum rf_dtype weight_type);
/* Whether the device has matrix units that the products of many rows use; and kernels for a gate on them. */
bool rf_gpu_matmul_has_units(struct rf_device *device);
bool rf_gpu_matmul_has_gates(struct rf_device *device);
/* Whether a product with a gate of this shape keeps the matrix units as busy as two products would. */
bool rf_gpu_matmul_gate_pays(uint64_t m, uint64_t n);
/* The most workspace that the call needs, by types, sizes and path alone: it holds activations rounded to 16 bits,
 * weights decoded to 16 bits (a bounded number of them at a time), and partial sums. */
rf_status rf_gpu_matmul_workspace(const struct rf_gpu_matmul *product, uint64_t *bytes);

/* Up to three products of one row of x in one kernel. All operands but x and the weights are f32. If *done is false,
 * nothing was submitted, because the device or the sizes do not allow one kernel for all of it; the caller then
 * launches one op after the other. */
struct rf_gpu_norm_products {
    struct rf_norm_products_args args; /* only RF_PRODUCTS_CONSTANT of flags is read; the launcher sets the rest */
    enum rf_dtype weight_type;         /* of all weights */
    enum rf_dtype type;                /* of x: RF_F32 or RF_F16 */
    int count;                         /* number of products: 1 to 3; 1 with a gate */
    struct rf_operand x, normed, out[3], weights[3];
    struct rf_operand norm, gate; /* or no buffer */
    struct rf_operand residual;   /* of the first product, or no buffer; may be its out */
    /* NULL; or what happens to the three products, which are queries, keys and values: its q, k and v. It rotates the
     * queries and the keys of one token. An n may be 0 then: another launch computes that product. */
    const struct rf_gpu_kv_append *append;
    struct rf_operand counters; /* with append: rf_gpu_qkv_counters bytes of zeros, which stay zeros; or no buffer */
    bool plan_only;             /* nothing is submitted: *done says whether it would be */
};
uint64_t rf_gpu_qkv_counters(enum rf_dtype cache, uint64_t kv_heads);
rf_status rf_gpu_norm_products(struct rf_queue *queue, const struct rf_gpu_norm_products *products, bool *done);

/* table_type is any weight type; type is that of out: RF_F32, RF_F16 or RF_BF16. indices are int32. */
struct rf_gpu_embedding {
    struct rf_embedding_args args;
    enum rf_dtype table_type, type;
    struct rf_operand out, table, indices;
};
rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_gpu_embedding *embedding);

/* Decodes a quantized type to RF_F32, RF_F16 or RF_BF16. */
rf_status rf_gpu_dequantize(struct rf_queue *queue, enum rf_dtype type, struct rf_operand out, enum rf_dtype from,
                            struct rf_operand in, const struct rf_dequantize_args *args);

/* type is that of x: RF_F32, RF_F16 or RF_BF16. out: dense blocks, struct rf_q8_block. */
rf_status rf_gpu_quantize_q8(struct rf_queue *queue, struct rf_operand out, enum rf_dtype type, struct rf_operand x,
                             const struct rf_quantize_q8_args *args);
/* Sets *bytes to the size of the output of rf_gpu_quantize_q8; true on overflow. */
bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes);

#endif
