/* Launchers of the attention ops: they check their arguments, choose kernel, grid and block, and submit.
 * kernels/attention_args.h says what each op computes and what its arguments mean; cpu/ref_attention.h defines it in
 * code.
 *
 * Every function fails with RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason (a shape, a type, a size that overflows, an operand that leaves its buffer, is misaligned or overlaps the
 * output). Otherwise it returns what rf_queue_launch returns. Buffers are borrowed as by rf_queue_launch: the work
 * holds them until it is done. An empty output is no error and launches nothing. Threads: as the queue. No function
 * waits for the work. */
#ifndef RF_OPS_GPU_ATTENTION_H
#define RF_OPS_GPU_ATTENTION_H

#include <rocmforge/gpu.h>

#include "kernels/attention_args.h"
#include "ops/operand.h"

/* dtype is the type of q and k. */
rf_status rf_gpu_qkt_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                            struct rf_operand q, struct rf_operand k, const struct rf_head_product_args *args);
/* dtype is the type of out and v. */
rf_status rf_gpu_weighted_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                                 struct rf_operand weights, struct rf_operand v,
                                 const struct rf_head_product_args *args);

rf_status rf_gpu_causal_mask(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                             const struct rf_causal_mask_args *args);

rf_status rf_gpu_kv_replicate(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                              struct rf_operand in, const struct rf_kv_replicate_args *args);

/* Which kernel runs. AUTO chooses the matrix units for 16-bit types, and on NVIDIA the wide kernel from 128 queries
 * on; on a device with sm_90a GROUP, where that is possible and worth it. The other values are for
 * tests and benchmarks. WIDE takes 128 queries a block, for head sizes above 96 and up to 128 only; with a mask it is
 * the same as MATRIX. GROUP is by groups of waves, without a mask, for a scale above 0 and a cache of the queries'
 * type. */
enum rf_attention_path {
    RF_ATTENTION_AUTO,
    RF_ATTENTION_PLAIN,
    RF_ATTENTION_MATRIX,
    RF_ATTENTION_WIDE,
    RF_ATTENTION_GROUP
};

/* dim is a multiple of 8 up to 256. Operands and strides are aligned to 16 bytes, the mask to 4. v must be finite. */
struct rf_flash_attention_launch {
    struct rf_flash_attention_args args;
    enum rf_dtype dtype; /* of all operands but the mask */
    enum rf_attention_path path;
    struct rf_operand out, q, k, v;
    struct rf_operand mask; /* f32; may be left out */
};
rf_status rf_gpu_flash_attention(struct rf_queue *queue, const struct rf_flash_attention_launch *launch);

struct rf_paged_attention_launch {
    struct rf_paged_attention_args args;
    enum rf_dtype dtype; /* of q and out */
    /* The type of k and v: dtype; or RF_F16 or RF_BF16 if dtype is RF_F32; or RF_Q8_0, which needs a dim and strides
     * (in elements) that are multiples of 32 and an alignment of 2 bytes. */
    enum rf_dtype cache_dtype;
    /* With RF_Q8_0 and more than one query, only PLAIN and AUTO are allowed. With one query, every path but PLAIN
     * means the same. */
    enum rf_attention_path path;
    struct rf_operand out, q, k, v;
    struct rf_operand table; /* needed if table_width is not 0 */
    struct rf_operand lengths;
    struct rf_operand workspace; /* rf_gpu_paged_attention_workspace bytes, aligned to 16; left out if that is 0 */
    struct rf_operand
        counters; /* rf_gpu_paged_attention_counters bytes of zeros, which it leaves as zeros; likewise */
};
/* Both read sizes and types only: the operands need not be set yet. */
rf_status rf_gpu_paged_attention_workspace(const struct rf_paged_attention_launch *launch, uint64_t *bytes);
rf_status rf_gpu_paged_attention_counters(const struct rf_paged_attention_launch *launch, uint64_t *bytes);
rf_status rf_gpu_paged_attention(struct rf_queue *queue, const struct rf_paged_attention_launch *launch);

#endif
