/* Launchers of the attention ops: they check what they are given, choose kernel, grid and block, and submit.
 * kernels/attention_args.h says what each op computes and what its arguments mean; cpu/ref_attention.h says it in
 * code.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason (a shape, a type, a size that overflows, an operand that leaves its buffer, is misaligned or overlaps the
 * output); else as rf_queue_launch. Buffers are borrowed as by rf_queue_launch: the work holds them until it is done.
 * An empty output is no error and launches nothing. Threads: as the queue. Nothing here blocks for the work. */
#ifndef RF_OPS_GPU_ATTENTION_H
#define RF_OPS_GPU_ATTENTION_H

#include <rocmforge/gpu.h>

#include "kernels/attention_args.h"
#include "ops/operand.h"

/* dtype: of q and k. */
rf_status rf_gpu_qkt_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                            struct rf_operand q, struct rf_operand k, const struct rf_head_product_args *args);
/* dtype: of out and v. */
rf_status rf_gpu_weighted_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                                 struct rf_operand weights, struct rf_operand v,
                                 const struct rf_head_product_args *args);

rf_status rf_gpu_causal_mask(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                             const struct rf_causal_mask_args *args);

rf_status rf_gpu_kv_replicate(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                              struct rf_operand in, const struct rf_kv_replicate_args *args);

/* Which kernel. AUTO: the matrix units for 16-bit types, on NVIDIA the wide kernel from 128 queries on. The others
 * are for tests and benchmarks. WIDE: 128 queries a block, for head sizes above 96 and up to 128 only; with a mask it
 * is MATRIX. */
enum rf_attention_path { RF_ATTENTION_AUTO, RF_ATTENTION_PLAIN, RF_ATTENTION_MATRIX, RF_ATTENTION_WIDE };

/* dim: a multiple of 8 up to 256. Operands and strides are aligned to 16 bytes, the mask to 4. v must be finite. */
struct rf_flash_attention_launch {
    struct rf_flash_attention_args args;
    enum rf_dtype dtype; /* of all but the mask */
    enum rf_attention_path path;
    struct rf_operand out, q, k, v;
    struct rf_operand mask; /* f32; may be left out */
};
rf_status rf_gpu_flash_attention(struct rf_queue *queue, const struct rf_flash_attention_launch *launch);

struct rf_paged_attention_launch {
    struct rf_paged_attention_args args;
    enum rf_dtype dtype; /* of q and out */
    /* Of k and v: dtype; RF_F16 or RF_BF16 where dtype is RF_F32; or RF_Q8_0, whose strides (in elements) and dim are
     * multiples of 32, and which is aligned to 2 bytes. */
    enum rf_dtype cache_dtype;
    /* With RF_Q8_0 and more than one query only PLAIN and AUTO. With one query: PLAIN or not. */
    enum rf_attention_path path;
    struct rf_operand out, q, k, v;
    struct rf_operand table; /* given where table_width is not 0 */
    struct rf_operand lengths;
    struct rf_operand workspace; /* rf_gpu_paged_attention_workspace bytes, aligned to 16; left out where that is 0 */
};
/* By sizes alone: operands need not be there yet. */
rf_status rf_gpu_paged_attention_workspace(const struct rf_paged_attention_launch *launch, uint64_t *bytes);
rf_status rf_gpu_paged_attention(struct rf_queue *queue, const struct rf_paged_attention_launch *launch);

#endif
