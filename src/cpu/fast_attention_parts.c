/* Attention in pieces (see fast.h): the two products with scores in memory, the causal mask, the replication of
 * heads. The code is kept simple: a model calls rf_cpu_paged_attention; these are for callers who need the scores.
 *
 * An item of work is a row (a few rows, for the weighted sum) of one head and depends on nothing else. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { ROWS = 8 }; /* queries that share a widened row of values */

struct parts {
    struct rf_cpu *cpu;
    const struct rf_head_product_args *a;
    enum rf_dtype dtype;
    const char *left, *right;
    char *out;
    size_t bytes; /* of an element of dtype */
    uint64_t scratch_floats;
};

static uint64_t at(struct rf_head_strides strides, uint64_t batch, uint64_t head, uint64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
}

/* Checks sizes and reserves scratch_floats for each thread. *items becomes the number of items of rows_each rows; 0
 * if there is nothing to do. */
static rf_status begin(struct parts *parts, const char *op, struct rf_cpu *cpu, enum rf_dtype dtype,
                       const struct rf_head_product_args *a, uint64_t rows_each, uint64_t scratch_floats,
                       uint64_t *items) {
    uint64_t bytes;
    if (!rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "%s: %s is not f32, f16 or bf16", op, rf_dtype_name(dtype));
    if (!a->heads_kv || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "%s: %llu query heads are no multiple of %llu key heads", op,
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    if (rf_mul_overflows(a->batch, a->heads_q, items) ||
        rf_mul_overflows(*items, a->q_rows / rows_each + (a->q_rows % rows_each != 0), items) ||
        rf_mul_overflows(scratch_floats, (uint64_t)cpu->threads * sizeof(float), &bytes))
        return rf_fail(RF_E_INVALID, "%s: the number of queries overflows", op);
    *parts = (struct parts){
        .cpu = cpu, .a = a, .dtype = dtype, .bytes = dtype == RF_F32 ? 4 : 2, .scratch_floats = scratch_floats};
    return bytes ? rf_cpu_reserve(cpu, op, bytes) : RF_OK;
}
static float *scratch_of(const struct parts *parts, unsigned thread) {
    return (float *)(void *)parts->cpu->scratch + thread * parts->scratch_floats;
}

/* ---- scores: the keys of a head are the rows of a matrix ---- */

static void qkt_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct parts *p = user;
    const struct rf_head_product_args *a = p->a;
    const struct rf_simd *simd = p->cpu->simd;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % a->q_rows, head = item / a->q_rows % a->heads_q, batch = item / a->q_rows / a->heads_q;
        float *query = scratch_of(p, thread), *scores = (float *)(void *)p->out + at(a->out, batch, head, row);
        simd->cast[RF_F32][p->dtype](query, p->left + at(a->left, batch, head, row) * p->bytes, a->dim);
        simd->matvec[p->dtype](scores,
                               p->right + at(a->right, batch, head / (a->heads_q / a->heads_kv), 0) * p->bytes,
                               a->right.row * p->bytes, a->k_rows, query, a->dim);
        simd->scale[RF_F32](scores, scores, a->scale, a->k_rows);
    }
}

rf_status rf_cpu_qkt_matmul(struct rf_cpu *cpu, enum rf_dtype dtype, float *scores, const void *q, const void *k,
                            const struct rf_head_product_args *a) {
    struct parts parts;
    uint64_t items = 0;
    if (!cpu || !a) return rf_fail(RF_E_INVALID, "qkt_matmul: cpu or its arguments are NULL");
    RF_TRY(begin(&parts, "qkt_matmul", cpu, dtype, a, 1, a->dim, &items));
    if (!items || !a->k_rows) return RF_OK;
    if (!scores || !q || !k) return rf_fail(RF_E_INVALID, "qkt_matmul: a tensor is NULL");
    parts.left = q;
    parts.right = k;
    parts.out = (char *)scores;
    if (!a->dim) { /* empty sums are 0 */
        rf_ref_qkt_matmul(dtype, scores, q, k, a);
        return RF_OK;
    }
    rf_cpu_run(cpu, items, 1, qkt_rows, &parts);
    return RF_OK;
}

/* ---- weighted sums of values ---- */

static void weighted_rows(void *user, size_t begin_item, size_t end, unsigned thread) {
    const struct parts *p = user;
    const struct rf_head_product_args *a = p->a;
    const struct rf_simd *simd = p->cpu->simd;
    uint64_t blocks = (a->q_rows + ROWS - 1) / ROWS;
    for (size_t item = begin_item; item < end; item++) {
        uint64_t first = item % blocks * ROWS, head = item / blocks % a->heads_q, batch = item / blocks / a->heads_q;
        uint64_t rows = RF_MIN((uint64_t)ROWS, a->q_rows - first);
        float *value = scratch_of(p, thread), *sums = value + a->dim;
        for (uint64_t i = 0; i < rows * a->dim; i++) sums[i] = 0;
        for (uint64_t j = 0; j < a->k_rows; j++) {
            const char *from = p->right + at(a->right, batch, head / (a->heads_q / a->heads_kv), j) * p->bytes;
            simd->cast[RF_F32][p->dtype](value, from, a->dim);
            for (uint64_t i = 0; i < rows; i++) {
                float weight = ((const float *)(const void *)p->left)[at(a->left, batch, head, first + i) + j];
                float *sum = sums + i * a->dim;
                for (uint64_t d = 0; d < a->dim; d++) sum[d] += weight * value[d];
            }
        }
        for (uint64_t i = 0; i < rows; i++)
            simd->cast[p->dtype][RF_F32](p->out + at(a->out, batch, head, first + i) * p->bytes, sums + i * a->dim,
                                         a->dim);
    }
}

rf_status rf_cpu_weighted_matmul(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const float *weights,
                                 const void *v, const struct rf_head_product_args *a) {
    struct parts parts;
    uint64_t items = 0, floats = 0;
    if (!cpu || !a) return rf_fail(RF_E_INVALID, "weighted_matmul: cpu or its arguments are NULL");
    if (rf_mul_overflows(a->dim, ROWS + 1, &floats))
        return rf_fail(RF_E_INVALID, "weighted_matmul: the head size overflows");
    RF_TRY(begin(&parts, "weighted_matmul", cpu, dtype, a, ROWS, floats, &items));
    if (!items || !a->dim) return RF_OK;
    if (!out || (a->k_rows && (!weights || !v))) return rf_fail(RF_E_INVALID, "weighted_matmul: a tensor is NULL");
    parts.left = (const char *)weights;
    parts.right = v;
    parts.out = out;
    rf_cpu_run(cpu, items, 1, weighted_rows, &parts);
    return RF_OK;
}

/* ---- rows that are written or copied ---- */

struct mask {
    enum rf_dtype dtype;
    void *scores;
    const struct rf_causal_mask_args *a;
};

static void mask_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct mask *m = user;
    const struct rf_causal_mask_args *a = m->a;
    (void)thread;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % a->rows, head = item / a->rows % a->heads, batch = item / a->rows / a->heads;
        int64_t first;
        if (__builtin_add_overflow((int64_t)row + 1, a->offset, &first)) first = a->offset > 0 ? INT64_MAX : 0;
        uint64_t begin_column = first < 0 ? 0 : (uint64_t)first, place = at(a->scores, batch, head, row);
        if (m->dtype == RF_F32) {
            float *to = (float *)m->scores + place;
            for (uint64_t j = begin_column; j < a->columns; j++) to[j] = -INFINITY;
        } else {
            uint16_t *to = (uint16_t *)m->scores + place, hidden = m->dtype == RF_F16 ? 0xfc00 : 0xff80;
            for (uint64_t j = begin_column; j < a->columns; j++) to[j] = hidden;
        }
    }
}

rf_status rf_cpu_causal_mask(struct rf_cpu *cpu, enum rf_dtype dtype, void *scores,
                             const struct rf_causal_mask_args *a) {
    uint64_t items;
    if (!cpu || !a || !rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "causal_mask: cpu or its arguments are NULL, or %s is not f32, f16 or bf16",
                       rf_dtype_name(dtype));
    if (rf_mul_overflows(a->batch, a->heads, &items) || rf_mul_overflows(items, a->rows, &items))
        return rf_fail(RF_E_INVALID, "causal_mask: the number of rows overflows");
    if (!items || !a->columns) return RF_OK;
    if (!scores) return rf_fail(RF_E_INVALID, "causal_mask: the scores are NULL");
    struct mask m = {dtype, scores, a};
    rf_cpu_run(cpu, items, rf_cpu_grain(a->columns), mask_rows, &m);
    return RF_OK;
}

struct copy {
    size_t bytes; /* of an element */
    char *out;
    const char *in;
    const struct rf_kv_replicate_args *a;
};

static void copy_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct copy *c = user;
    const struct rf_kv_replicate_args *a = c->a;
    uint64_t group = a->heads_q / a->heads_kv;
    (void)thread;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % a->rows, head = item / a->rows % a->heads_q, batch = item / a->rows / a->heads_q;
        memcpy(c->out + at(a->out, batch, head, row) * c->bytes,
               c->in + at(a->in, batch, head / group, row) * c->bytes, a->dim * c->bytes);
    }
}

rf_status rf_cpu_kv_replicate(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in,
                              const struct rf_kv_replicate_args *a) {
    uint64_t items;
    if (!cpu || !a || !rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "kv_replicate: cpu or its arguments are NULL, or %s is not f32, f16 or bf16",
                       rf_dtype_name(dtype));
    if (!a->heads_kv || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "kv_replicate: %llu query heads are no multiple of %llu key heads",
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    if (rf_mul_overflows(a->batch, a->heads_q, &items) || rf_mul_overflows(items, a->rows, &items))
        return rf_fail(RF_E_INVALID, "kv_replicate: the number of rows overflows");
    if (!items || !a->dim) return RF_OK;
    if (!out || !in) return rf_fail(RF_E_INVALID, "kv_replicate: a tensor is NULL");
    struct copy c = {rf_dtype_bytes(dtype), out, in, a};
    rf_cpu_run(cpu, items, rf_cpu_grain(a->dim), copy_rows, &c);
    return RF_OK;
}
