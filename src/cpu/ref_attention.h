/* The scalar references of attention: they define each op; they compute in double and round once. Arguments are those
 * of kernels/attention_args.h, which says what each op computes.
 *
 * dtype is the type of all tensors that have no type of their own here: RF_F32, RF_F16 or RF_BF16. No function fails;
 * another dtype leaves the output alone. */
#ifndef RF_CPU_REF_ATTENTION_H
#define RF_CPU_REF_ATTENTION_H

#include <rocmforge/gpu.h>

#include "kernels/attention_args.h"

/* The strides of a dense tensor. */
struct rf_head_strides rf_head_strides_dense(uint64_t heads, uint64_t rows, uint64_t dim);

void rf_ref_qkt_matmul(enum rf_dtype dtype, float *scores, const void *q, const void *k,
                       const struct rf_head_product_args *args);
void rf_ref_weighted_matmul(enum rf_dtype dtype, void *out, const float *weights, const void *v,
                            const struct rf_head_product_args *args);
void rf_ref_causal_mask(enum rf_dtype dtype, void *scores, const struct rf_causal_mask_args *args);
void rf_ref_kv_replicate(enum rf_dtype dtype, void *out, const void *in, const struct rf_kv_replicate_args *args);
/* mask may be NULL: there is none. */
void rf_ref_flash_attention(enum rf_dtype dtype, void *out, const void *q, const void *k, const void *v,
                            const float *mask, const struct rf_flash_attention_args *args);
/* cache_dtype is the type of k and v: f32, f16, bf16, or RF_Q8_0, which needs a dim and strides (in elements) that
 * are multiples of 32. table may be NULL: there is none. */
void rf_ref_paged_attention(enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out, const void *q, const void *k,
                            const void *v, const uint32_t *table, const uint32_t *lengths,
                            const struct rf_paged_attention_args *args);

#endif
