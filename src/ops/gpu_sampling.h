/* Launchers of argmax and of the sampler: the next token on the device, without the logits leaving it.
 *
 * What is computed is defined to the bit in cpu/ref_sampling.h: the token is the one that rf_ref_sample gives for the
 * same logits, settings, seed and counter, on every device. Refusals as in gpu_transformer.h. Both need a workspace
 * whose size follows from the shape alone; its contents need not be kept. Seeds, counters and the window are read on
 * the device, so that a recorded graph can be run again with others. */
#ifndef RF_OPS_GPU_SAMPLING_H
#define RF_OPS_GPU_SAMPLING_H

#include "cpu/ref_sampling.h"
#include "ops/operand.h"

enum { RF_SAMPLING_COLUMNS_MAX = 1 << 22, RF_SAMPLING_ROWS_MAX = 65535 };

/* out[r] (i32) = the index of the largest of values[r] (f32); see kernels/argmax.hip. */
struct rf_argmax_args {
    uint64_t rows, columns;
    uint64_t row_stride; /* 0: dense */
    struct rf_operand out, values;
    struct rf_operand workspace; /* rf_gpu_argmax_workspace bytes */
};
rf_status rf_gpu_argmax_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes);
rf_status rf_gpu_argmax(struct rf_queue *queue, const struct rf_argmax_args *args);

/* out[r] (i32) = a token drawn from logits[r] (f32), -1 where there is no candidate. */
struct rf_sample_args {
    struct rf_sampling sampling; /* one for all rows */
    uint64_t rows, columns;
    uint64_t row_stride; /* 0: dense */
    struct rf_operand out, logits;
    struct rf_operand random; /* u64 [rows][2]: seed and counter; not needed at temperature 0 */
    struct rf_operand
        window; /* i32 [rows][window_count]: tokens under the penalty; left out where window_count is 0 */
    uint64_t window_count;
    uint64_t window_stride;      /* 0: dense */
    struct rf_operand workspace; /* rf_gpu_sample_workspace bytes */
};
rf_status rf_gpu_sample_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes);
rf_status rf_gpu_sample(struct rf_queue *queue, const struct rf_sample_args *args);

#endif
