/* Launchers of the ops that only move elements: they check their arguments, choose kernel, grid and block, and
 * submit. kernels/move_args.h says what each op does and what its arguments mean.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED, with the op's name and the reason, before anything is
 * submitted. Otherwise it returns what rf_queue_launch returns. An empty output is no error and launches nothing.
 * Operands are aligned to their elements; out may not overlap an input. Threads: as the queue. No function waits for
 * the work. */
#ifndef RF_OPS_GPU_MOVE_H
#define RF_OPS_GPU_MOVE_H

#include "kernels/move_args.h"
#include "ops/operand.h"

/* Types are RF_F32, RF_F16 and RF_BF16, or RF_I32 to RF_I32. Strides that put two elements of out in one place are
 * refused. */
rf_status rf_gpu_permute(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out, enum rf_dtype from,
                         struct rf_operand in, const struct rf_permute_args *args);
/* dtype is RF_F32, RF_F16, RF_BF16 or RF_I32. */
rf_status rf_gpu_concat(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                        const struct rf_operand in[RF_CONCAT_INPUTS], const struct rf_concat_args *args);

#endif
