/* The scalar references of attention (see ref_attention.h): obvious rather than fast, in double. */
#include "cpu/ref_attention.h"

#include <math.h>
#include <string.h>

#include "cpu/reference.h"

struct rf_head_strides rf_head_strides_dense(uint64_t heads, uint64_t rows, uint64_t dim) {
    return (struct rf_head_strides){heads * rows * dim, rows * dim, dim};
}

static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

static uint64_t at(struct rf_head_strides strides, uint64_t batch, uint64_t head, uint64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
}

/* An element of keys or values. */
static double key_element(enum rf_dtype dtype, const void *base, uint64_t index) {
    if (dtype != RF_Q8_0) return rf_element_get(dtype, base, index);
    const uint8_t *block = (const uint8_t *)base + index / 32 * 34;
    return rf_element_get(RF_F16, block, 0) * (int8_t)block[2 + index % 32];
}

static double dot(enum rf_dtype dtype, const void *q, uint64_t q_at, enum rf_dtype cache_dtype, const void *k,
                  uint64_t k_at, uint64_t dim) {
    double sum = 0;
    for (uint64_t d = 0; d < dim; d++)
        sum += rf_element_get(dtype, q, q_at + d) * key_element(cache_dtype, k, k_at + d);
    return sum;
}

/* How many of the k_rows keys query i sees. */
static uint64_t visible(int64_t offset, uint64_t row, uint64_t k_rows) {
    int64_t last = (int64_t)row + offset;
    return last < 0 ? 0 : (uint64_t)last >= k_rows ? k_rows : (uint64_t)last + 1;
}

void rf_ref_qkt_matmul(enum rf_dtype dtype, float *scores, const void *q, const void *k,
                       const struct rf_head_product_args *a) {
    if (!is_float(dtype)) return;
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++)
                for (uint64_t j = 0; j < a->k_rows; j++)
                    scores[at(a->out, b, h, i) + j] =
                        (float)((double)a->scale *
                                dot(dtype, q, at(a->left, b, h, i), dtype, k, at(a->right, b, h / group, j), a->dim));
}

void rf_ref_weighted_matmul(enum rf_dtype dtype, void *out, const float *weights, const void *v,
                            const struct rf_head_product_args *a) {
    if (!is_float(dtype)) return;
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                const float *w = weights + at(a->left, b, h, i);
                for (uint64_t d = 0; d < a->dim; d++) {
                    double sum = 0;
                    for (uint64_t j = 0; j < a->k_rows; j++)
                        sum += (double)w[j] * rf_element_get(dtype, v, at(a->right, b, h / group, j) + d);
                    rf_element_set(dtype, out, at(a->out, b, h, i) + d, sum);
                }
            }
}

void rf_ref_causal_mask(enum rf_dtype dtype, void *scores, const struct rf_causal_mask_args *a) {
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads; h++)
            for (uint64_t i = 0; i < a->rows; i++)
                for (uint64_t j = visible(a->offset, i, a->columns); j < a->columns; j++)
                    rf_element_set(dtype, scores, at(a->scores, b, h, i) + j, -INFINITY);
}

void rf_ref_kv_replicate(enum rf_dtype dtype, void *out, const void *in, const struct rf_kv_replicate_args *a) {
    uint64_t bytes = rf_dtype_bytes(dtype), group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->rows; i++)
                memcpy((char *)out + at(a->out, b, h, i) * bytes,
                       (const char *)in + at(a->in, b, h / group, i) * bytes, a->dim * bytes);
}

/* ---- attention ---- */

/* What is the same for all queries of a call. */
struct attention {
    enum rf_dtype dtype, cache_dtype;
    uint64_t dim;
    float scale;
    void *out;
    const void *q, *k, *v;
};
/* Where a key and its value lie; false: it does not exist. */
typedef bool (*key_place)(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at);

/* Attends one query to the first `keys` keys. The softmax is online, so that nothing is allocated: the running sums
 * are rescaled at each new maximum. The head is taken in pieces of 256 elements; there may be any number of them. */
static void attend(const struct attention *a, uint64_t out_at, uint64_t q_at, uint64_t keys, const float *mask,
                   key_place place, const void *context) {
    enum { PIECE = 256 };
    for (uint64_t first = 0; first < a->dim; first += PIECE) {
        double sums[PIECE] = {0}, max = -INFINITY, total = 0;
        uint64_t count = a->dim - first < PIECE ? a->dim - first : PIECE;
        for (uint64_t j = 0; j < keys; j++) {
            uint64_t k_at, v_at;
            if (!place(context, j, &k_at, &v_at)) continue;
            double score = (double)a->scale * dot(a->dtype, a->q, q_at, a->cache_dtype, a->k, k_at, a->dim);
            if (mask) score += (double)mask[j];
            if (score == -INFINITY) continue;
            if (score > max) {
                double shrink = exp(max - score); /* 0 before the first key */
                total *= shrink;
                for (uint64_t d = 0; d < count; d++) sums[d] *= shrink;
                max = score;
            }
            double weight = exp(score - max); /* NaN if the score is NaN or +inf */
            total += weight;
            for (uint64_t d = 0; d < count; d++)
                sums[d] += weight * key_element(a->cache_dtype, a->v, v_at + first + d);
        }
        for (uint64_t d = 0; d < count; d++)
            rf_element_set(a->dtype, a->out, out_at + first + d, total == 0 ? 0 : sums[d] / total);
    }
}

struct dense_place {
    struct rf_head_strides k, v;
    uint64_t batch, head;
};
static bool place_dense(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at) {
    const struct dense_place *p = context;
    *k_at = at(p->k, p->batch, p->head, key);
    *v_at = at(p->v, p->batch, p->head, key);
    return true;
}

void rf_ref_flash_attention(enum rf_dtype dtype, void *out, const void *q, const void *k, const void *v,
                            const float *mask, const struct rf_flash_attention_args *a) {
    if (!is_float(dtype)) return;
    const struct attention all = {dtype, dtype, a->dim, a->scale, out, q, k, v};
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                struct dense_place context = {a->k, a->v, b, h / group};
                attend(&all, at(a->out, b, h, i), at(a->q, b, h, i), visible(a->offset, i, a->k_rows),
                       mask ? mask + at(a->mask, b, h, i) : NULL, place_dense, &context);
            }
}

struct paged_place {
    const struct rf_paged_attention_args *args;
    const uint32_t *table;
    uint64_t batch, head;
};
static bool place_paged(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at) {
    const struct paged_place *p = context;
    const struct rf_paged_attention_args *a = p->args;
    uint64_t slot = key / a->page_rows, row = key % a->page_rows;
    uint64_t page = p->table ? p->table[p->batch * a->table_width + slot] : p->batch;
    if (page >= a->page_count) return false;
    *k_at = at(a->k, page, p->head, row);
    *v_at = at(a->v, page, p->head, row);
    return true;
}

void rf_ref_paged_attention(enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out, const void *q, const void *k,
                            const void *v, const uint32_t *table, const uint32_t *lengths,
                            const struct rf_paged_attention_args *a) {
    if (!is_float(dtype) || !(is_float(cache_dtype) || cache_dtype == RF_Q8_0)) return;
    const struct attention all = {dtype, cache_dtype, a->dim, a->scale, out, q, k, v};
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                uint64_t keys = lengths[b] < a->max_length ? lengths[b] : a->max_length;
                struct paged_place context = {a, table, b, h / group};
                int64_t offset = (int64_t)keys - (int64_t)a->q_rows;
                attend(&all, at(a->out, b, h, i), at(a->q, b, h, i), visible(offset, i, keys), NULL, place_paged,
                       &context);
            }
}
