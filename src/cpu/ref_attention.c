/* The scalar references of attention (see ref_attention.h): obvious rather than fast, in double. */
#include "cpu/ref_attention.h"

#include <math.h>
#include <string.h>

#include "cpu/reference.h"

struct rf_ref_heads rf_ref_heads_dense(uint64_t heads, uint64_t rows, uint64_t dim) {
    return (struct rf_ref_heads){heads * rows * dim, rows * dim, dim};
}

static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

static uint64_t at(struct rf_ref_heads strides, uint64_t batch, uint64_t head, uint64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
}

/* An element of keys or values. */
static double key_element(const struct rf_ref_attention *a, const void *base, uint64_t index) {
    if (!a->q8_0) return rf_element_get(a->dtype, base, index);
    const uint8_t *block = (const uint8_t *)base + index / 32 * 34;
    return rf_element_get(RF_F16, block, 0) * (int8_t)block[2 + index % 32];
}

static double dot(const struct rf_ref_attention *a, const void *q, uint64_t q_at, const void *k, uint64_t k_at) {
    double sum = 0;
    for (uint64_t d = 0; d < a->dim; d++) sum += rf_element_get(a->dtype, q, q_at + d) * key_element(a, k, k_at + d);
    return sum;
}

static struct rf_ref_heads strides_of_scores(const struct rf_ref_attention *a) {
    struct rf_ref_heads strides = a->scores_strides;
    bool dense = !strides.batch && !strides.head && !strides.row;
    return dense ? rf_ref_heads_dense(a->heads_q, a->q_rows, a->k_rows) : strides;
}

/* How many keys query i sees, of k_rows. */
static uint64_t visible(bool causal, int64_t offset, uint64_t row, uint64_t k_rows) {
    if (!causal) return k_rows;
    int64_t last = (int64_t)row + offset;
    return last < 0 ? 0 : (uint64_t)last >= k_rows ? k_rows : (uint64_t)last + 1;
}

void rf_ref_qkt_matmul(const struct rf_ref_attention *a, float *scores, const void *q, const void *k) {
    if (!is_float(a->dtype)) return;
    struct rf_ref_heads strides = strides_of_scores(a);
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++)
                for (uint64_t j = 0; j < a->k_rows; j++)
                    scores[at(strides, b, h, i) + j] =
                        (float)((double)a->scale *
                                dot(a, q, at(a->q_strides, b, h, i), k, at(a->k_strides, b, h / group, j)));
}

void rf_ref_weighted_matmul(const struct rf_ref_attention *a, void *out, const float *weights, const void *v) {
    if (!is_float(a->dtype)) return;
    struct rf_ref_heads strides = strides_of_scores(a);
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                const float *w = weights + at(strides, b, h, i);
                for (uint64_t d = 0; d < a->dim; d++) {
                    double sum = 0;
                    for (uint64_t j = 0; j < a->k_rows; j++)
                        sum += (double)w[j] * rf_element_get(a->dtype, v, at(a->v_strides, b, h / group, j) + d);
                    rf_element_set(a->dtype, out, at(a->out_strides, b, h, i) + d, sum);
                }
            }
}

void rf_ref_causal_mask(enum rf_dtype dtype, void *scores, struct rf_ref_heads strides, uint64_t batch,
                        uint64_t heads, uint64_t rows, uint64_t columns, int64_t offset) {
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t i = 0; i < rows; i++)
                for (uint64_t j = visible(true, offset, i, columns); j < columns; j++)
                    rf_element_set(dtype, scores, at(strides, b, h, i) + j, -INFINITY);
}

/* One query against the keys for which key_at gives a place. Online, so that nothing is allocated:
 * the running sums are brought to each new maximum. dim is at most 256 a piece, any number of pieces. */
typedef bool (*key_place)(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at);

static void attend(const struct rf_ref_attention *a, void *out, uint64_t out_at, const void *q, uint64_t q_at,
                   const void *k, const void *v, uint64_t keys, const float *mask, key_place place,
                   const void *context) {
    enum { PIECE = 256 };
    for (uint64_t first = 0; first < a->dim; first += PIECE) {
        double sums[PIECE] = {0}, max = -INFINITY, total = 0;
        uint64_t count = a->dim - first < PIECE ? a->dim - first : PIECE;
        for (uint64_t j = 0; j < keys; j++) {
            uint64_t k_at, v_at;
            if (!place(context, j, &k_at, &v_at)) continue;
            double score = (double)a->scale * dot(a, q, q_at, k, k_at);
            if (mask) score += (double)mask[j];
            if (score == -INFINITY) continue;
            if (score > max) {
                double shrink = exp(max - score); /* 0 before the first */
                total *= shrink;
                for (uint64_t d = 0; d < count; d++) sums[d] *= shrink;
                max = score;
            }
            double weight = exp(score - max); /* NaN of a NaN, and of +inf */
            total += weight;
            for (uint64_t d = 0; d < count; d++) sums[d] += weight * key_element(a, v, v_at + first + d);
        }
        for (uint64_t d = 0; d < count; d++)
            rf_element_set(a->dtype, out, out_at + first + d, total == 0 ? 0 : sums[d] / total);
    }
}

struct dense_place {
    struct rf_ref_heads k, v;
    uint64_t batch, head;
};
static bool place_dense(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at) {
    const struct dense_place *p = context;
    *k_at = at(p->k, p->batch, p->head, key);
    *v_at = at(p->v, p->batch, p->head, key);
    return true;
}

void rf_ref_flash_attention(const struct rf_ref_attention *a, void *out, const void *q, const void *k,
                            const void *v) {
    if (!is_float(a->dtype)) return;
    uint64_t group = a->heads_q / a->heads_kv;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                struct dense_place context = {a->k_strides, a->v_strides, b, h / group};
                const float *mask = a->mask ? a->mask + at(a->mask_strides, b, h, i) : NULL;
                attend(a, out, at(a->out_strides, b, h, i), q, at(a->q_strides, b, h, i), k, v,
                       visible(a->causal, a->offset, i, a->k_rows), mask, place_dense, &context);
            }
}

void rf_ref_kv_replicate(enum rf_dtype dtype, void *out, struct rf_ref_heads out_strides, const void *in,
                         struct rf_ref_heads in_strides, uint64_t batch, uint64_t heads_q, uint64_t heads_kv,
                         uint64_t rows, uint64_t dim) {
    uint64_t bytes = rf_dtype_bytes(dtype), group = heads_q / heads_kv;
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t h = 0; h < heads_q; h++)
            for (uint64_t i = 0; i < rows; i++)
                memcpy((char *)out + at(out_strides, b, h, i) * bytes,
                       (const char *)in + at(in_strides, b, h / group, i) * bytes, dim * bytes);
}

struct paged_place {
    const struct rf_ref_pages *pages;
    uint64_t batch, head;
};
static bool place_paged(const void *context, uint64_t key, uint64_t *k_at, uint64_t *v_at) {
    const struct paged_place *p = context;
    const struct rf_ref_pages *pages = p->pages;
    uint64_t slot = key / pages->page_rows, row = key % pages->page_rows;
    uint64_t page = pages->table ? pages->table[p->batch * pages->table_width + slot] : p->batch;
    if (page >= pages->page_count) return false;
    *k_at = at(pages->k_strides, page, p->head, row);
    *v_at = at(pages->v_strides, page, p->head, row);
    return true;
}

void rf_ref_paged_attention(const struct rf_ref_attention *a, const struct rf_ref_pages *pages, void *out,
                            const void *q, const void *k, const void *v) {
    if (!is_float(a->dtype)) return;
    uint64_t group = a->heads_q / a->heads_kv, most = pages->limit;
    for (uint64_t b = 0; b < a->batch; b++)
        for (uint64_t h = 0; h < a->heads_q; h++)
            for (uint64_t i = 0; i < a->q_rows; i++) {
                uint64_t keys = pages->lengths[b] < most ? pages->lengths[b] : most;
                struct paged_place context = {pages, b, h / group};
                int64_t offset = (int64_t)keys - (int64_t)a->q_rows;
                attend(a, out, at(a->out_strides, b, h, i), q, at(a->q_strides, b, h, i), k, v,
                       visible(true, offset, i, keys), NULL, place_paged, &context);
            }
}
