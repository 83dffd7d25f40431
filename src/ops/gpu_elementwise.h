/* Launchers of the elementwise ops: they check their arguments, choose kernel, grid and block, and submit.
 * kernels/elementwise_args.h says what each op computes and what its arguments mean.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED, with the op's name and the reason, before anything is
 * submitted. Otherwise it returns what rf_queue_launch returns. An empty output is no error and launches nothing.
 * Types are RF_F32, RF_F16 and RF_BF16 unless said otherwise; operands are aligned to their elements. An output may
 * be an input, with the same strides, but may not overlap one otherwise. Threads: as the queue. No function waits for
 * the work. */
#ifndef RF_OPS_GPU_ELEMENTWISE_H
#define RF_OPS_GPU_ELEMENTWISE_H

#include "kernels/elementwise_args.h"
#include "ops/operand.h"

/* dtype is RF_F32 or RF_I32. */
rf_status rf_gpu_fill(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                      const struct rf_elementwise_args *args);
/* If the types differ, out may not be in. */
rf_status rf_gpu_copy(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out, enum rf_dtype from,
                      struct rf_operand in, const struct rf_elementwise_args *args);
rf_status rf_gpu_add(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand a,
                     struct rf_operand b, const struct rf_elementwise_args *args);
rf_status rf_gpu_scale(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                       const struct rf_elementwise_args *args);
/* c may be left out. */
rf_status rf_gpu_multiply(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand a,
                          struct rf_operand b, struct rf_operand c, const struct rf_multiply_args *args);
/* up may be left out. */
rf_status rf_gpu_activation(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                            struct rf_operand gate, struct rf_operand up, const struct rf_activation_args *args);
/* The same of f32, with out of RF_F16 or RF_BF16, apart from the others: the bits that rounding the f32 result gives.
 */
rf_status rf_gpu_activation_to(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out,
                               struct rf_operand gate, struct rf_operand up, const struct rf_activation_args *args);

#endif
