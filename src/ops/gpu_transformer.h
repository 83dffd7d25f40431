/* Launchers of rotation and of the KV cache: they check what they are given, choose kernel, grid and block, and
 * submit. What each op computes is said in its kernel file and, in code, in cpu/ref_transformer.h.
 *
 * Every function: RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and the
 * reason; else as rf_queue_launch. An empty output is no error and launches nothing. Types are RF_F32, RF_F16 and
 * RF_BF16 unless said otherwise; strides are in elements; operands are aligned to their elements. Threads: as the
 * queue. Nothing here blocks for the work. */
#ifndef RF_OPS_GPU_TRANSFORMER_H
#define RF_OPS_GPU_TRANSFORMER_H

#include "cpu/ref_transformer.h"
#include "ops/operand.h"

/* A rotation: steps is u64 [rotated / 2], from rf_rope_steps. */
struct rf_rope_table {
    struct rf_operand steps;
    uint32_t rotated;
    bool halves;     /* pairs are i and i + rotated / 2; else neighbours */
    float magnitude; /* from rf_rope_steps */
};

/* x[token][head][dim] rotated by positions (i32 [tokens]). out may be in with the same strides. */
struct rf_rope_args {
    enum rf_dtype dtype;
    uint64_t tokens, heads, dim;                     /* dim even */
    uint64_t out_token, out_head, in_token, in_head; /* all 0: dense */
    struct rf_rope_table table;
    struct rf_operand out, in, positions;
    bool to_f16; /* out is f16; dtype, in's, is f32 */
};
rf_status rf_gpu_rope(struct rf_queue *queue, const struct rf_rope_args *args);

/* Keys and values (f32 [token][head][dim], dense but for tokens) into a paged cache; see kernels/kv_append.hip. */
struct rf_kv_append_args {
    enum rf_dtype dtype; /* of the cache: RF_F32, RF_F16, RF_Q8_0 */
    uint64_t tokens, heads, dim;
    uint64_t k_token, v_token; /* strides; 0: dense */
    uint64_t page, head, row;  /* strides of both caches; all 0: dense [page_count, heads, page_rows, dim] */
    uint64_t page_rows, page_count, table_width;
    uint64_t sequence_count; /* rows of the table; a token of a sequence at or above it is left out */
    struct rf_operand k_cache, v_cache, k, v;
    struct rf_operand positions; /* i32 [tokens] */
    struct rf_operand sequences; /* u32 [tokens], or left out: all 0 */
    struct rf_operand table;     /* u32 [sequence_count, table_width], or left out: sequence s has page s alone */
    const struct rf_rope_table *rope; /* NULL: keys as they are. Borrowed for the call. */
    /* With rope: the tokens' queries turned too, f32 [token][head][dim], dense but for tokens, into q_out. */
    struct rf_operand q, q_out; /* left out: none */
    uint64_t q_heads;
    uint64_t q_token, q_out_token; /* strides; 0: dense */
    bool q_to_f16;                 /* q_out is f16 */
};
rf_status rf_gpu_kv_append(struct rf_queue *queue, const struct rf_kv_append_args *args);

#endif
