/* Launchers of the products with weights and of what belongs to quantized types: they check what
 * they are given, choose kernel, grid and block, and submit. What each op computes is said in its
 * kernel file and, in code, in cpu/ref_matmul.h.
 *
 * Every function: RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name
 * and the reason (a shape, a type, a size that overflows, a view that leaves its buffer, is
 * misaligned or overlaps the output); else as rf_queue_launch. Buffers are borrowed as by
 * rf_queue_launch. An empty output is no error and launches nothing. Threads: as the queue. Nothing
 * here blocks for the work.
 *
 * Alignment: quantized blocks and what is read or written along with them start at multiples of 16
 * bytes (q8 activations: of 8); plain arrays at multiples of their element. */
#ifndef RF_OPS_GPU_MATMUL_H
#define RF_OPS_GPU_MATMUL_H

#include <rocmforge/gpu.h>

/* Rows in a buffer. */
struct rf_rows_view {
    struct rf_buffer *buffer;
    uint64_t offset_bytes;
    uint64_t stride; /* elements from row to row; 0: dense. Not for weights, tables and q8, which are dense */
};

/* Activation rows one matvec kernel takes at once: up to here the weights are read once (DOTS: as far as the rows fit
 * into a block's shared memory). */
#define RF_MATVEC_ROWS 8

/* Which kernel; tests ask for each.
 *   MATVEC  reads the weights once for each RF_MATVEC_ROWS rows, quantized ones for each 4; sums in f32 of exact
 *           products
 *   TILED   many rows; the same exactness, on the vector units
 *   MATRIX  many rows on the matrix units, which round weights and activations to 16 bits (see
 *           kernels/matmul_tile.h): float weights of 16 bits with activations of F32 or their own type, quantized
 *           weights; k and the stride of x are multiples of 8, float weights and x at multiples of 16 bytes
 *   WIDE    MATRIX with the larger tiles, which it takes by itself where there are enough of them
 *   DOTS    as MATVEC, for quantized weights: products of bytes, with x in 8 bits per element and a scale per 32. F32
 *           activations are rounded to the bits that rf_gpu_quantize_q8 gives. k up to what a block's shared memory
 *           holds: about 40,000 where it has 64 KiB. The only path for x_q8
 *   AUTO    for few rows DOTS where it is possible, else MATVEC; for many MATRIX where it is possible, else TILED */
enum rf_matmul_path {
    RF_MATMUL_AUTO,
    RF_MATMUL_MATVEC,
    RF_MATMUL_TILED,
    RF_MATMUL_MATRIX,
    RF_MATMUL_DOTS,
    RF_MATMUL_WIDE
};

/* out [m, n] = x [m, k] times weights [n, k] transposed, + bias, + residual. With a gate,
 * silu(x weights^T) * (x gate^T), without bias and residual. */
struct rf_matmul_args {
    enum rf_dtype weight_type; /* RF_F32, RF_F16, RF_BF16 or quantized: then k is a multiple of its block */
    enum rf_dtype type; /* of out, residual and x (unless q8): RF_F32; with float weights also RF_F16, RF_BF16 */
    bool x_q8;          /* x is what rf_gpu_quantize_q8 wrote; quantized weights only, no tiles */
    uint64_t m, n, k;
    struct rf_rows_view out, weights, gate, x,
        residual;             /* gate and residual may have no buffer; residual may be out */
    struct rf_rows_view bias; /* f32 [n], or no buffer */
    bool constant; /* no work on the queue writes weights or gate: they may be read before the work before is done */
    enum rf_matmul_path path;
    struct rf_rows_view workspace; /* rf_gpu_matmul_workspace bytes at a multiple of 256; no buffer where it says 0 */
};
rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_matmul_args *args);
/* What the call needs at most, by types, sizes and path alone: activations rounded to 16 bits, weights decoded to 16
 * bits (a bounded number of them at a time), partial sums. */
rf_status rf_gpu_matmul_workspace(const struct rf_matmul_args *args, uint64_t *bytes);

/* Products of one row, normalized first: normed [k] = x / sqrt(mean of squares of x + eps) * norm, or x without a
 * norm, and up to three out [n] = normed times weights [n, k] transposed, or one with a gate. All f32 but x, which
 * may be f16, and the weights, of one type. *done false: nothing was submitted, as the device or the sizes
 * do not suit one kernel for all of it; then it is done one by one. */
struct rf_norm_products_args {
    enum rf_dtype weight_type, type; /* type: of x */
    int count;                       /* of products */
    uint64_t k, n[3];
    float eps;
    struct rf_rows_view x, norm, normed, out[3], weights[3], gate;
    struct rf_rows_view residual; /* of the first product, or no buffer; may be its out */
    bool constant;                /* as in rf_matmul_args */
};
rf_status rf_gpu_norm_products(struct rf_queue *queue, const struct rf_norm_products_args *args, bool *done);

/* out [count, columns] (dense, of type) = rows of table [table_rows, columns] named by indices (int32);
 * zeros for an index outside the table. */
struct rf_embedding_args {
    enum rf_dtype table_type; /* any weight type */
    enum rf_dtype type;       /* RF_F32, RF_F16, RF_BF16 */
    uint64_t count, columns, table_rows;
    struct rf_rows_view out, table, indices;
};
rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_embedding_args *args);

/* count elements of a quantized type to RF_F32, RF_F16 or RF_BF16. */
struct rf_dequantize_args {
    enum rf_dtype from, type;
    uint64_t count;
    struct rf_rows_view out, in;
};
rf_status rf_gpu_dequantize(struct rf_queue *queue, const struct rf_dequantize_args *args);

/* Rows of activations to blocks of 32 (struct rf_q8_block): columns and stride are multiples of 32. */
struct rf_quantize_q8_args {
    enum rf_dtype type; /* of x: RF_F32, RF_F16, RF_BF16 */
    uint64_t rows, columns;
    struct rf_rows_view out, x;
};
rf_status rf_gpu_quantize_q8(struct rf_queue *queue, const struct rf_quantize_q8_args *args);
/* Bytes of its output; true on overflow. */
bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes);

#endif
