/* Launchers of rotation and of the KV cache. kernels/cache_args.h says what each op computes and what its arguments
 * mean; cpu/ref_cache.h defines it in code.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason. Otherwise it returns what rf_queue_launch returns. An empty output is no error and launches nothing.
 * Operands are aligned to their elements. Threads: as the queue. No function waits for the work. */
#ifndef RF_OPS_GPU_CACHE_H
#define RF_OPS_GPU_CACHE_H

#include "kernels/cache_args.h"
#include "ops/operand.h"

/* out may be the same memory as in, if strides and type are the same. */
struct rf_gpu_rope {
    struct rf_rope_args args;
    enum rf_dtype dtype, out_dtype; /* RF_F32, RF_F16 or RF_BF16, both the same; or RF_F32 to RF_F16 */
    struct rf_operand out, in;
    struct rf_operand positions; /* i32 [tokens] */
    struct rf_operand steps;     /* u64 [rotated / 2], from rf_rope_steps */
};
rf_status rf_gpu_rope(struct rf_queue *queue, const struct rf_gpu_rope *rope);

/* The arguments of kv_append and rope_append. */
struct rf_gpu_kv_append {
    struct rf_kv_append_args args;
    enum rf_dtype dtype; /* of the caches: RF_F32, RF_F16, RF_Q8_0 */
    struct rf_operand k_cache, v_cache, k, v;
    struct rf_operand positions; /* i32 [tokens] */
    struct rf_operand sequences; /* u32 [tokens]; left out: all 0 */
    struct rf_operand table;     /* u32 [sequence_count, table_width]; left out: sequence s has only page s */
    struct rf_operand steps;     /* u64 [rotated / 2]; left out: the keys are not rotated */
    struct rf_operand q, q_out;  /* used if args.q_heads is not 0, which needs steps */
};
rf_status rf_gpu_kv_append(struct rf_queue *queue, const struct rf_gpu_kv_append *append);
/* Checks the arguments for a kernel that does this and more, with one token at least that has keys. What is written
 * must not overlap the others either. */
rf_status rf_gpu_kv_append_check(const char *op, const struct rf_gpu_kv_append *append,
                                 const struct rf_named_operand *others, size_t other_count);

#endif
