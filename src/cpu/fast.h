/* The fast CPU ops: SIMD, all cores. Each does what the reference of the same name does (reference.h,
 * ref_transformer.h, ref_matmul.h, ref_attention.h; arguments mean the same and pass the same
 * structs), within its tolerance.
 *
 * struct rf_cpu is a pool of threads, perhaps shared, a SIMD level and scratch memory that grows to what the
 * largest op so far needed. The same op on the same input gives the same bits, run after run, whatever the
 * number of threads; another SIMD level gives others within the tolerance.
 *
 * Products with Q8_0, Q4_0, Q4_K and Q6_K weights round activations to 8 bits per 32 elements (as
 * rf_ref_quantize_q8 does) and multiply integers. A column with an element that is NaN or infinite
 * gives NaN. Other weight types are widened to f32 and not rounded.
 *
 * Threads: one call at a time per object, from any thread. Calls block until done. Failure:
 * RF_E_INVALID for arguments, with the op's name; RF_E_NO_MEMORY for scratch; the output is then
 * untouched. */
#ifndef RF_CPU_FAST_H
#define RF_CPU_FAST_H

#include "cpu/ref_attention.h"
#include "cpu/ref_matmul.h"
#include "cpu/ref_transformer.h"
#include "cpu/simd.h"

struct rf_cpu;

struct rf_thread_pool;
struct rf_cpu_params {
    unsigned threads; /* 0: all of the pool's; without a pool, one per usable core */
    enum rf_simd_level level;
    struct rf_thread_pool *pool; /* borrowed: a runtime's. NULL: one of its own */
};
/* params may be NULL. RF_E_UNSUPPORTED: this machine has not that level. */
rf_status rf_cpu_create(const struct rf_cpu_params *params, struct rf_cpu **out);
void rf_cpu_destroy(struct rf_cpu **cpu);
unsigned rf_cpu_threads(const struct rf_cpu *cpu);
const struct rf_simd *rf_cpu_simd(const struct rf_cpu *cpu);

/* ---- elements and rows (fast_rows.c); dtype RF_F32, RF_F16, RF_BF16 ---- */

rf_status rf_cpu_add(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b, size_t count);
rf_status rf_cpu_scale(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, float factor,
                       size_t count);
rf_status rf_cpu_cast(struct rf_cpu *cpu, enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                      size_t count);
rf_status rf_cpu_multiply(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, size_t out_row, const void *a,
                          size_t a_row, const void *b, size_t b_row, const void *c, size_t c_row, size_t rows,
                          size_t columns);
rf_status rf_cpu_activation_gate(struct rf_cpu *cpu, enum rf_activation kind, enum rf_dtype dtype, void *out,
                                 size_t out_row, const void *gate, size_t gate_row, const void *up, size_t up_row,
                                 size_t rows, size_t columns);
rf_status rf_cpu_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                          size_t rows, size_t columns, float eps);
rf_status rf_cpu_add_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *sum, void *out, const void *a,
                              const void *b, const float *weight, size_t rows, size_t columns, float eps);
rf_status rf_cpu_layer_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                            const float *bias, size_t rows, size_t columns, float eps);
rf_status rf_cpu_softmax_mask(struct rf_cpu *cpu, float *out, const float *in, enum rf_dtype mask_dtype,
                              const void *mask, size_t rows, size_t columns, size_t rows_each, size_t heads,
                              float scale);
rf_status rf_cpu_rope(struct rf_cpu *cpu, const struct rf_ref_rope *rope, void *out, const void *in);
rf_status rf_cpu_kv_append(struct rf_cpu *cpu, const struct rf_ref_kv_append *append, void *k_cache, void *v_cache,
                           const float *k, const float *v);

/* ---- products with weights (fast_matmul.c) ---- */

rf_status rf_cpu_matmul(struct rf_cpu *cpu, const struct rf_ref_matmul *op);
/* Several products of the same x (x, x_q8, x_stride, m, k and both types are the same; no output overlaps x), with
 * the bits of one after the other: x is prepared once and no thread waits between them. */
rf_status rf_cpu_matmuls(struct rf_cpu *cpu, const struct rf_ref_matmul *ops, size_t count);

/* ---- from one form to the other (fast_widen.c) ---- */

rf_status rf_cpu_dequantize(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype from, const void *blocks,
                            const struct rf_dequantize_args *args);
rf_status rf_cpu_embedding(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype table_type,
                           const void *table, const int32_t *indices, const struct rf_embedding_args *args);
/* rf_ref_quantize_q8's bits. */
rf_status rf_cpu_quantize_q8(struct rf_cpu *cpu, struct rf_q8_block *out, enum rf_dtype type, const void *x,
                             const struct rf_quantize_q8_args *args);

/* ---- attention (fast_attention.c) ---- */

/* rf_ref_flash_attention, or rf_ref_paged_attention where pages is not NULL; but dtype is that of
 * k and v (in pages RF_Q8_0 too, by dtype or q8_0), while q and out are f32. out must not overlap an input. */
rf_status rf_cpu_attention(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                           float *out, const float *q, const void *k, const void *v);
/* The same with q and out of `type`; all arithmetic is in f32. */
rf_status rf_cpu_attention_of(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                              enum rf_dtype type, void *out, const void *q, const void *k, const void *v);

/* In pieces (fast_attention_parts.c): as rf_ref_qkt_matmul and its kin. */
rf_status rf_cpu_qkt_matmul(struct rf_cpu *cpu, const struct rf_ref_attention *a, float *scores, const void *q,
                            const void *k);
rf_status rf_cpu_weighted_matmul(struct rf_cpu *cpu, const struct rf_ref_attention *a, void *out,
                                 const float *weights, const void *v);
rf_status rf_cpu_causal_mask(struct rf_cpu *cpu, enum rf_dtype dtype, void *scores, struct rf_ref_heads strides,
                             uint64_t batch, uint64_t heads, uint64_t rows, uint64_t columns, int64_t offset);
rf_status rf_cpu_kv_replicate(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, struct rf_ref_heads out_strides,
                              const void *in, struct rf_ref_heads in_strides, uint64_t batch, uint64_t heads_q,
                              uint64_t heads_kv, uint64_t rows, uint64_t dim);

#endif
