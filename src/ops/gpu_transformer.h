/* Launchers of what stands between the matrix products of a transformer: they check what they are given,
 * choose kernel, grid and block, and submit. What each op computes is said in its kernel file and, in code, in
 * cpu/ref_transformer.h.
 *
 * Every function: RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason; else as rf_queue_launch. An empty output is no error and launches nothing. Types are RF_F32, RF_F16 and
 * RF_BF16 unless said otherwise; strides are in elements; operands are aligned to their elements. Threads: as the
 * queue. Nothing here blocks for the work. */
#ifndef RF_OPS_GPU_TRANSFORMER_H
#define RF_OPS_GPU_TRANSFORMER_H

#include "cpu/ref_transformer.h"
#include "ops/operand.h"

/* Dense rows; weight and bias f32 of columns elements, or left out. out may be in. */
struct rf_layer_norm_args {
    enum rf_dtype dtype;
    uint64_t rows, columns;
    float eps;
    struct rf_operand out, in, weight, bias;
};
rf_status rf_gpu_layer_norm(struct rf_queue *queue, const struct rf_layer_norm_args *args);

/* sum = a + b, out = rms_norm(sum) * weight. sum may be a or b; out may be a or b where sum is not. */
struct rf_add_rms_norm_args {
    enum rf_dtype dtype;
    uint64_t rows, columns;
    float eps;
    struct rf_operand sum, out, a, b, weight;
};
rf_status rf_gpu_add_rms_norm(struct rf_queue *queue, const struct rf_add_rms_norm_args *args);

/* out = act(gate) * up; up may be left out. out may be gate or up with the same stride. */
struct rf_activation_args {
    enum rf_activation kind;
    enum rf_dtype dtype;
    uint64_t rows, columns;
    uint64_t out_row, gate_row, up_row; /* strides; all 0: dense */
    struct rf_operand out, gate, up;
};
rf_status rf_gpu_activation(struct rf_queue *queue, const struct rf_activation_args *args);

/* out = a * b + c; c may be left out. A row stride of 0 (but not of all four) repeats an input's row. out may be an
 * input with the same stride. */
struct rf_multiply_args {
    enum rf_dtype dtype;
    uint64_t rows, columns;
    uint64_t out_row, a_row, b_row, c_row; /* all 0: dense */
    struct rf_operand out, a, b, c;
};
rf_status rf_gpu_multiply(struct rf_queue *queue, const struct rf_multiply_args *args);

/* Copy, cast, transpose, permute: out[i] = in[i] over up to four dimensions. An output stride of 0 is refused
 * where its size is above 1. */
struct rf_permute_args {
    enum rf_dtype from, to; /* also RF_I32 to RF_I32 */
    int rank;               /* 1 to 4 */
    uint64_t size[4], out_stride[4], in_stride[4];
    struct rf_operand out, in;
};
rf_status rf_gpu_permute(struct rf_queue *queue, const struct rf_permute_args *args);

/* Joins up to four dense arrays along a dimension; outer counts the elements of the dimensions before it, width[k]
 * those of it and after it, of array k. Also RF_I32. */
struct rf_concat_args {
    enum rf_dtype dtype;
    int count;
    uint64_t outer, width[4];
    struct rf_operand out, in[4];
};
rf_status rf_gpu_concat(struct rf_queue *queue, const struct rf_concat_args *args);

/* f32 rows; the mask f32 or f16, or left out (see kernels/softmax_mask.hip). rows is a multiple of rows_each * heads
 * where there is a mask. out may be in. */
struct rf_softmax_mask_args {
    uint64_t rows, columns, rows_each, heads;
    float scale;
    enum rf_dtype mask_dtype;
    struct rf_operand out, in, mask;
};
rf_status rf_gpu_softmax_mask(struct rf_queue *queue, const struct rf_softmax_mask_args *args);

#endif
