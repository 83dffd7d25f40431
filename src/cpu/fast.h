/* The fast CPU ops: SIMD, on all cores. Each does what the reference of the same name does (reference.h, ref_cache.h,
 * ref_matmul.h, ref_attention.h), within its tolerance; the arguments mean the same and are passed in the same
 * structs.
 *
 * struct rf_cpu is a thread pool, perhaps shared, a SIMD level, and scratch memory that grows to what the largest op
 * so far needed. The same op on the same input gives the same bits, run after run, whatever the number of threads;
 * another SIMD level may give other bits within the tolerance.
 *
 * Products with Q8_0, Q4_0, Q4_K and Q6_K weights round activations to 8 bits per 32 elements (as rf_ref_quantize_q8
 * does) and multiply integers. A column with an element that is NaN or infinite gives NaN. Other weight types are
 * widened to f32 and not rounded.
 *
 * Threads: one call at a time per object, from any thread. Calls block until done. Failure: RF_E_INVALID for
 * arguments, with the op's name; RF_E_NO_MEMORY for scratch that the host or its budget refuses; the output is then
 * untouched. */
#ifndef RF_CPU_FAST_H
#define RF_CPU_FAST_H

#include "cpu/ref_attention.h"
#include "cpu/ref_cache.h"
#include "cpu/ref_matmul.h"
#include "cpu/ref_sampling.h"
#include "cpu/reference.h"
#include "cpu/simd.h"

struct rf_cpu;

struct rf_thread_pool;
struct rf_host_budget;
struct rf_cpu_params {
    unsigned threads; /* 0: all threads of the pool; without a pool, one per usable core */
    enum rf_simd_level level;
    struct rf_thread_pool *pool; /* borrowed from a runtime; NULL: the object makes its own */
    struct rf_host_budget *host; /* borrowed from a runtime: scratch is charged to it; NULL: it is not charged */
};
/* params may be NULL. RF_E_UNSUPPORTED: this machine does not have that level. */
rf_status rf_cpu_create(const struct rf_cpu_params *params, struct rf_cpu **out);
void rf_cpu_destroy(struct rf_cpu **cpu);
unsigned rf_cpu_threads(const struct rf_cpu *cpu);
const struct rf_simd *rf_cpu_simd(const struct rf_cpu *cpu);
/* While on, a call checks its arguments and reserves the scratch memory that it needs, and computes nothing: the
 * calls of a plan are rehearsed before they run, and a refusal comes early. What an op reserves depends on its
 * arguments and not on the contents of its tensors. */
void rf_cpu_rehearse(struct rf_cpu *cpu, bool on);

/* ---- elements and rows (fast_rows.c); dtype RF_F32, RF_F16, RF_BF16 ---- */

rf_status rf_cpu_copy(struct rf_cpu *cpu, enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                      const struct rf_elementwise_args *args);
rf_status rf_cpu_add(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                     const struct rf_elementwise_args *args);
rf_status rf_cpu_scale(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in,
                       const struct rf_elementwise_args *args);
rf_status rf_cpu_multiply(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                          const void *c, const struct rf_multiply_args *args);
rf_status rf_cpu_activation(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *gate, const void *up,
                            const struct rf_activation_args *args);
rf_status rf_cpu_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                          const struct rf_norm_args *args);
rf_status rf_cpu_layer_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                            const float *bias, const struct rf_norm_args *args);
rf_status rf_cpu_add_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *sum, void *out, const void *a,
                              const void *b, const float *weight, const struct rf_norm_args *args);
/* Without a mask it computes softmax. */
rf_status rf_cpu_softmax_mask(struct rf_cpu *cpu, float *out, const float *in, enum rf_dtype mask_dtype,
                              const void *mask, const struct rf_softmax_args *args);

/* ---- sampling (fast_sampling.c); the operands are those of rf_ref_sample_rows ---- */

struct rf_sample_rows;
rf_status rf_cpu_sample(struct rf_cpu *cpu, int32_t *out, const struct rf_sample_rows *rows,
                        const struct rf_sample_args *args);

/* ---- rotation and the KV cache (fast_cache.c) ---- */

rf_status rf_cpu_rope(struct rf_cpu *cpu, enum rf_dtype out_dtype, void *out, enum rf_dtype dtype, const void *in,
                      const int32_t *positions, const uint64_t *steps, const struct rf_rope_args *args);
rf_status rf_cpu_kv_append(struct rf_cpu *cpu, const struct rf_ref_kv_append *append);

/* ---- products with weights (fast_matmul.c) ---- */

rf_status rf_cpu_matmul(struct rf_cpu *cpu, const struct rf_ref_matmul *op);
/* Several products of the same x (x, x_q8, x_stride, m, k and both types are the same; no output overlaps x). The
 * bits are those of one product after the other, but x is prepared once and no thread waits between products. */
rf_status rf_cpu_matmuls(struct rf_cpu *cpu, const struct rf_ref_matmul *ops, size_t count);

/* ---- between quantized and float types (fast_widen.c) ---- */

rf_status rf_cpu_dequantize(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype from, const void *blocks,
                            const struct rf_dequantize_args *args);
rf_status rf_cpu_embedding(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype table_type,
                           const void *table, const int32_t *indices, const struct rf_embedding_args *args);
/* Gives the bits of rf_ref_quantize_q8. */
rf_status rf_cpu_quantize_q8(struct rf_cpu *cpu, struct rf_q8_block *out, enum rf_dtype type, const void *x,
                             const struct rf_quantize_q8_args *args);

/* ---- attention (fast_attention.c) ---- */

/* dtype is the type of q and out; all arithmetic is in f32. cache_dtype is the type of k and v, which for paged
 * attention may be RF_Q8_0 too. out must not overlap an input. mask and table may be NULL: there is none. */
rf_status rf_cpu_flash_attention(struct rf_cpu *cpu, enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out,
                                 const void *q, const void *k, const void *v, const float *mask,
                                 const struct rf_flash_attention_args *args);
rf_status rf_cpu_paged_attention(struct rf_cpu *cpu, enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out,
                                 const void *q, const void *k, const void *v, const uint32_t *table,
                                 const uint32_t *lengths, const struct rf_paged_attention_args *args);

/* Attention in pieces (fast_attention_parts.c). */
rf_status rf_cpu_qkt_matmul(struct rf_cpu *cpu, enum rf_dtype dtype, float *scores, const void *q, const void *k,
                            const struct rf_head_product_args *args);
rf_status rf_cpu_weighted_matmul(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const float *weights,
                                 const void *v, const struct rf_head_product_args *args);
rf_status rf_cpu_causal_mask(struct rf_cpu *cpu, enum rf_dtype dtype, void *scores,
                             const struct rf_causal_mask_args *args);
rf_status rf_cpu_kv_replicate(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in,
                              const struct rf_kv_replicate_args *args);

#endif
