/* Launchers of argmax and of the sampler: the next token on the device, without the logits leaving it.
 *
 * kernels/sampling_args.h says what each op computes and what its arguments mean. cpu/ref_sampling.h defines the
 * token to the bit: on every device it is the one that rf_ref_sample gives for the same logits, settings, seed and
 * counter. Failures are those of gpu_cache.h. Both ops need a workspace whose size follows from the shape alone; its
 * contents need not be kept. Seeds, counters and the window are read on the device, so a recorded graph can be run
 * again with others. The launchers do not read the members of the arguments that are "set by the launcher". */
#ifndef RF_OPS_GPU_SAMPLING_H
#define RF_OPS_GPU_SAMPLING_H

#include "kernels/sampling_args.h"
#include "ops/operand.h"

rf_status rf_gpu_argmax_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes);
/* out: i32 [rows]. workspace: rf_gpu_argmax_workspace bytes. */
rf_status rf_gpu_argmax(struct rf_queue *queue, struct rf_operand out, struct rf_operand values,
                        struct rf_operand workspace, const struct rf_argmax_args *args);

rf_status rf_gpu_sample_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes);
struct rf_gpu_sample {
    struct rf_sample_args args;  /* one set of settings for all rows */
    struct rf_operand out;       /* i32 [rows] */
    struct rf_operand logits;    /* f32 [rows][columns] */
    struct rf_operand random;    /* u64 [rows][2]: seed and counter; not needed with args.greedy */
    struct rf_operand window;    /* i32 [rows][window_count]; left out if window_count is 0 */
    struct rf_operand biases;    /* struct rf_sample_bias [rows][bias_count]; left out if bias_count is 0 */
    struct rf_operand allowed;   /* u32 [rows][columns / 32]: bits; left out where all tokens are allowed */
    struct rf_operand workspace; /* rf_gpu_sample_workspace bytes */
    struct rf_operand settings;  /* struct rf_sample_settings [rows], in place of those in args; may be left out */
};
rf_status rf_gpu_sample(struct rf_queue *queue, const struct rf_gpu_sample *sample);

/* One launch. random and window may be left out; settings are needed with a window. */
struct rf_gpu_advance {
    struct rf_advance_args args;
    struct rf_operand tokens, positions, lengths; /* i32 [rows] */
    struct rf_operand random;                     /* u64 [rows][2]: seed and counter */
    struct rf_operand window;                     /* i32 [rows][window_columns] */
    struct rf_operand ring;                       /* i32 [rows][slots][2] */
    struct rf_operand drawn;                      /* i32 [rows] */
    struct rf_operand settings;                   /* struct rf_sample_settings [rows] */
};
rf_status rf_gpu_advance(struct rf_queue *queue, const struct rf_gpu_advance *advance);

#endif
