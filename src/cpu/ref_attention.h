/* The scalar references of attention: the definition of each op, in double, rounded once.
 *
 * Tensors are [batch, heads, rows, dim] with elements of one type (RF_F32, RF_F16 or RF_BF16); the
 * last dimension is dense, the others have strides. Query head h uses key-value head
 * h / (heads_q / heads_kv). Nothing here fails; another dtype leaves the output alone. */
#ifndef RF_CPU_REF_ATTENTION_H
#define RF_CPU_REF_ATTENTION_H

#include <rocmforge/gpu.h>

struct rf_ref_heads {
    uint64_t batch, head, row; /* strides, in elements */
};
/* Of a dense tensor. */
struct rf_ref_heads rf_ref_heads_dense(uint64_t heads, uint64_t rows, uint64_t dim);

struct rf_ref_attention {
    enum rf_dtype dtype; /* of q, k, v and out */
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    struct rf_ref_heads q_strides, k_strides, v_strides, out_strides;
    float scale;
    bool causal;
    int64_t offset;                     /* with causal: query i sees the keys j <= i + offset */
    const float *mask;                  /* added to the scaled scores; [batch, heads_q, q_rows, k_rows], or NULL */
    struct rf_ref_heads mask_strides;   /* 0 repeats */
    struct rf_ref_heads scores_strides; /* of scores and weights; all 0: dense */
    bool q8_0; /* rf_ref_paged_attention: k and v are RF_Q8_0, dim and strides (in elements) multiples of 32 */
};

/* scores[b][h][i][j] = scale * sum over d of q[b][h][i][d] * k[b][h'][j][d]; f32. Uses dtype,
 * sizes, strides of q, k and scores, scale. */
void rf_ref_qkt_matmul(const struct rf_ref_attention *a, float *scores, const void *q, const void *k);

/* out[b][h][i][d] = sum over j of weights[b][h][i][j] * v[b][h'][j][d]; weights are f32, with
 * the strides of scores. */
void rf_ref_weighted_matmul(const struct rf_ref_attention *a, void *out, const float *weights, const void *v);

/* In place: scores[b][h][i][j] = -inf for j > i + offset. */
void rf_ref_causal_mask(enum rf_dtype dtype, void *scores, struct rf_ref_heads strides, uint64_t batch,
                        uint64_t heads, uint64_t rows, uint64_t columns, int64_t offset);

/* out = softmax(scale * q k^T + mask, hidden keys left out) v. A query that sees no key (or whose
 * mask is -inf throughout) gives zeros. */
void rf_ref_flash_attention(const struct rf_ref_attention *a, void *out, const void *q, const void *k, const void *v);

/* out[b][h] = in[b][h / (heads_q / heads_kv)], of rows x dim elements each. */
void rf_ref_kv_replicate(enum rf_dtype dtype, void *out, struct rf_ref_heads out_strides, const void *in,
                         struct rf_ref_heads in_strides, uint64_t batch, uint64_t heads_q, uint64_t heads_kv,
                         uint64_t rows, uint64_t dim);

/* Keys and values in pages: key j of sequence b is row j % page_rows of page
 * table[b * table_width + j / page_rows], in an array of [page_count, heads_kv, page_rows, dim].
 * Sequence b has lengths[b] keys, of which the first 'limit' count; its query i (of
 * q_rows) stands at position lengths[b] - q_rows + i and sees the keys up to there. A key whose page
 * number is not below page_count does not exist. */
struct rf_ref_pages {
    uint64_t page_rows, page_count, table_width, limit;
    const uint32_t *table;                    /* [batch, table_width]; NULL: sequence b has page b alone */
    const uint32_t *lengths;                  /* [batch] */
    struct rf_ref_heads k_strides, v_strides; /* batch: from page to page */
};
/* Uses dtype, batch, heads, q_rows, dim, strides of q and out, scale and q8_0 of a. */
void rf_ref_paged_attention(const struct rf_ref_attention *a, const struct rf_ref_pages *pages, void *out,
                            const void *q, const void *k, const void *v);

#endif
