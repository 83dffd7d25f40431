/* Launchers of the norms and of softmax: they check their arguments, choose kernel, grid and block, and submit.
 * kernels/norm_args.h says what each op computes and what its arguments mean.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED, with the op's name and the reason, before anything is
 * submitted. Otherwise it returns what rf_queue_launch returns. An empty output is no error and launches nothing.
 * Matrices are dense and of RF_F32, RF_F16 or RF_BF16 unless said otherwise; weight and bias are f32, have
 * args->columns elements, and may be left out. Operands are aligned to their elements. Threads: as the queue. No
 * function waits for the work. */
#ifndef RF_OPS_GPU_NORM_H
#define RF_OPS_GPU_NORM_H

#include "kernels/norm_args.h"
#include "ops/operand.h"

/* out may be in. */
rf_status rf_gpu_rms_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                          struct rf_operand weight, const struct rf_norm_args *args);
/* The same of f32, with out of RF_F16 or RF_BF16, apart from in: the bits that rounding the f32 result gives. */
rf_status rf_gpu_rms_norm_to(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out, struct rf_operand in,
                             struct rf_operand weight, const struct rf_norm_args *args);
/* out may be in. */
rf_status rf_gpu_layer_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                            struct rf_operand weight, struct rf_operand bias, const struct rf_norm_args *args);
/* sum may be a or b; out may be a or b if sum is not. */
rf_status rf_gpu_add_rms_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand sum,
                              struct rf_operand out, struct rf_operand a, struct rf_operand b,
                              struct rf_operand weight, const struct rf_norm_args *args);
/* All operands are f32. out may be in. */
rf_status rf_gpu_softmax(struct rf_queue *queue, struct rf_operand out, struct rf_operand in,
                         const struct rf_softmax_args *args);
/* out and in are f32; the mask is f32 or f16, or left out. With a mask, rows is a multiple of rows_each * heads. out
 * may be in. */
rf_status rf_gpu_softmax_mask(struct rf_queue *queue, struct rf_operand out, struct rf_operand in,
                              enum rf_dtype mask_dtype, struct rf_operand mask, const struct rf_softmax_args *args);

#endif
