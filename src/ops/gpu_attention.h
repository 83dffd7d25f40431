/* Launchers of the attention ops: they check what they are given, choose kernel, grid and block, and
 * submit. What each op computes is said in its kernel file and, in code, in cpu/ref_attention.h.
 *
 * Every function: RF_E_INVALID or RF_E_UNSUPPORTED before anything is submitted, with the op's name and
 * the reason (a shape, a type, a size that overflows, a view that leaves its buffer, is misaligned or
 * overlaps the output); else as rf_queue_launch. Buffers are borrowed as by rf_queue_launch: the work
 * holds them until it is done. An empty output is no error and launches nothing. Threads: as the queue.
 * Nothing here blocks for the work. */
#ifndef RF_OPS_GPU_ATTENTION_H
#define RF_OPS_GPU_ATTENTION_H

#include <rocmforge/gpu.h>

/* A tensor [batch, heads, rows, dim] in a buffer; the last dimension is dense. */
struct rf_head_view {
    struct rf_buffer *buffer;
    uint64_t offset_bytes;
    uint64_t batch, head, row; /* strides in elements; all 0: dense, row-major */
};

/* The products of attention, out = left right:
 *   qkt_matmul       scores (f32) [batch, heads_q, q_rows, k_rows] = scale * q k^T; q and k of dtype
 *   weighted_matmul  out [batch, heads_q, q_rows, dim] = weights (f32) [batch, heads_q, q_rows, k_rows] x v; out and
 * v of dtype; scale means nothing */
struct rf_head_product_args {
    enum rf_dtype dtype;
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    float scale;
    struct rf_head_view out, left, right;
};
rf_status rf_gpu_qkt_matmul(struct rf_queue *queue, const struct rf_head_product_args *args);
rf_status rf_gpu_weighted_matmul(struct rf_queue *queue, const struct rf_head_product_args *args);

/* In place: scores [batch, heads, rows, columns] of dtype become -inf where column > row + offset. */
struct rf_causal_mask_args {
    enum rf_dtype dtype;
    uint64_t batch, heads, rows, columns;
    int64_t offset;
    struct rf_head_view scores;
};
rf_status rf_gpu_causal_mask(struct rf_queue *queue, const struct rf_causal_mask_args *args);

/* out [batch, heads_q, rows, dim] gets each of the heads_kv heads of in, heads_q / heads_kv times. */
struct rf_kv_replicate_args {
    enum rf_dtype dtype;
    uint64_t batch, heads_q, heads_kv, rows, dim;
    struct rf_head_view out, in;
};
rf_status rf_gpu_kv_replicate(struct rf_queue *queue, const struct rf_kv_replicate_args *args);

/* Which kernel. AUTO: the matrix units for 16-bit types, on NVIDIA the wide kernel from 128 queries on; the others
 * are for tests and benchmarks. WIDE: 128 queries a block, head sizes above 96 and up to 128
 * only; with a mask as MATRIX. */
enum rf_attention_path { RF_ATTENTION_AUTO, RF_ATTENTION_PLAIN, RF_ATTENTION_MATRIX, RF_ATTENTION_WIDE };

/* out [batch, heads_q, q_rows, dim] = softmax(scale * q k^T + mask) v. dim: a multiple of 8 up to 256;
 * views and strides aligned to 16 bytes. v finite. */
struct rf_flash_attention_args {
    enum rf_dtype dtype; /* of all but the mask */
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    float scale;
    bool causal;
    int64_t offset; /* with causal: query i sees keys j <= i + offset */
    struct rf_head_view
        mask; /* f32 [batch, heads_q, q_rows, k_rows], or no buffer; a stride of 0 repeats, but all 0 is dense */
    struct rf_head_view out, q, k, v;
    enum rf_attention_path path;
};
rf_status rf_gpu_flash_attention(struct rf_queue *queue, const struct rf_flash_attention_args *args);

/* out and q [batch, heads_q, q_rows, dim] over keys and values in pages (see kernels/paged_attention.hip):
 * k and v [page_count, heads_kv, page_rows, dim], table u32 [batch, table_width], lengths u32 [batch].
 * Query i of sequence b stands at position lengths[b] - q_rows + i. Without a table: page_count is batch
 * and page_rows any number; with one a power of two. */
struct rf_paged_attention_args {
    enum rf_dtype dtype;    /* of q and out, and of k and v where nothing below says otherwise */
    enum rf_dtype cache_16; /* of k and v where dtype is f32 and they are RF_F16 or RF_BF16; else 0 */
    bool q8_0; /* k and v are RF_Q8_0 (strides in elements, multiples of 32 as dim is; aligned to 2 bytes) */
    uint64_t batch, heads_q, heads_kv, q_rows, dim;
    uint64_t page_rows, page_count, table_width;
    uint64_t max_length; /* no sequence is longer, or is cut to it; 0: what the table can name. Decides the splits */
    float scale;
    struct rf_head_view out, q, k, v; /* of k and v the batch stride is from page to page */
    struct rf_buffer *table, *lengths;
    uint64_t table_offset_bytes, lengths_offset_bytes;
    struct rf_buffer
        *workspace; /* rf_gpu_paged_attention_workspace bytes; NULL where that is 0; aligned to 16 bytes */
    uint64_t workspace_offset_bytes;
    enum rf_attention_path
        path; /* with q8_0 and more than one query only PLAIN (and AUTO); one query: PLAIN or not */
    /* No work on the queue writes the table, the lengths, or any keys and values but the newest `fresh` of each
     * sequence: a kernel may read them before its turn. */
    bool settled;
    uint32_t fresh;
};
/* By sizes alone: buffers need not be there yet. */
rf_status rf_gpu_paged_attention_workspace(const struct rf_paged_attention_args *args, uint64_t *bytes);
rf_status rf_gpu_paged_attention(struct rf_queue *queue, const struct rf_paged_attention_args *args);

#endif
