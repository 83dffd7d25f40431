/* Attention in pieces (see fast.h): the two products with scores in memory, the causal mask, the
 * replication of heads. Kept simple: a model calls rf_cpu_attention, these serve who wants the scores.
 *
 * An item of work is a row (a few rows, for the weighted sum) of one head and depends on nothing else. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { ROWS = 8 }; /* queries that share a widened row of values */

struct parts {
    struct rf_cpu *cpu;
    const struct rf_ref_attention *a;
    struct rf_ref_heads scores;
    const char *left, *right;
    char *out;
    size_t bytes; /* of an element of a's dtype */
    uint64_t scratch_floats;
};

static uint64_t at(struct rf_ref_heads strides, uint64_t batch, uint64_t head, uint64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
}

/* Sizes, and scratch of so many floats a thread. rows: items in all, 0 where there is nothing to do. */
static rf_status begin(struct parts *parts, const char *op, struct rf_cpu *cpu, const struct rf_ref_attention *a,
                       uint64_t rows_each, uint64_t scratch_floats, uint64_t *items) {
    uint64_t bytes;
    if (!cpu || !a) return rf_fail(RF_E_INVALID, "%s: cpu or its arguments are NULL", op);
    if (!rf_cpu_is_float(a->dtype))
        return rf_fail(RF_E_INVALID, "%s: %s is not f32, f16 or bf16", op, rf_dtype_name(a->dtype));
    if (!a->heads_kv || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "%s: %llu query heads are no multiple of %llu key heads", op,
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    if (rf_mul_overflows(a->batch, a->heads_q, items) ||
        rf_mul_overflows(*items, a->q_rows / rows_each + (a->q_rows % rows_each != 0), items) ||
        rf_mul_overflows(scratch_floats, (uint64_t)cpu->threads * sizeof(float), &bytes))
        return rf_fail(RF_E_INVALID, "%s: the number of queries overflows", op);
    *parts = (struct parts){.cpu = cpu, .a = a, .bytes = a->dtype == RF_F32 ? 4 : 2, .scores = a->scores_strides};
    if (!parts->scores.batch && !parts->scores.head && !parts->scores.row)
        parts->scores = rf_ref_heads_dense(a->heads_q, a->q_rows, a->k_rows);
    parts->scratch_floats = scratch_floats;
    return bytes ? rf_cpu_reserve(cpu, op, bytes) : RF_OK;
}
static float *scratch_of(const struct parts *parts, unsigned thread) {
    return (float *)(void *)parts->cpu->scratch + thread * parts->scratch_floats;
}

/* ---- scores: the keys of a head are the rows of a matrix ---- */

static void qkt_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct parts *p = user;
    const struct rf_ref_attention *a = p->a;
    const struct rf_simd *simd = p->cpu->simd;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % a->q_rows, head = item / a->q_rows % a->heads_q, batch = item / a->q_rows / a->heads_q;
        float *query = scratch_of(p, thread), *scores = (float *)(void *)p->out + at(p->scores, batch, head, row);
        simd->cast[RF_F32][a->dtype](query, p->left + at(a->q_strides, batch, head, row) * p->bytes, a->dim);
        simd->matvec[a->dtype](scores,
                               p->right + at(a->k_strides, batch, head / (a->heads_q / a->heads_kv), 0) * p->bytes,
                               a->k_strides.row * p->bytes, a->k_rows, query, a->dim);
        simd->scale[RF_F32](scores, scores, a->scale, a->k_rows);
    }
}

rf_status rf_cpu_qkt_matmul(struct rf_cpu *cpu, const struct rf_ref_attention *a, float *scores, const void *q,
                            const void *k) {
    struct parts parts;
    uint64_t items = 0;
    rf_status status = begin(&parts, "qkt_matmul", cpu, a, 1, a ? a->dim : 0, &items);
    if (status || !items || !a->k_rows) return status;
    if (!scores || !q || !k) return rf_fail(RF_E_INVALID, "qkt_matmul: a tensor is NULL");
    parts.left = q;
    parts.right = k;
    parts.out = (char *)scores;
    if (!a->dim) { /* sums of nothing */
        rf_ref_qkt_matmul(a, scores, q, k);
        return RF_OK;
    }
    rf_cpu_run(cpu, items, 1, qkt_rows, &parts);
    return RF_OK;
}

/* ---- weighted sums of values ---- */

static void weighted_rows(void *user, size_t begin_item, size_t end, unsigned thread) {
    const struct parts *p = user;
    const struct rf_ref_attention *a = p->a;
    const struct rf_simd *simd = p->cpu->simd;
    uint64_t blocks = (a->q_rows + ROWS - 1) / ROWS;
    for (size_t item = begin_item; item < end; item++) {
        uint64_t first = item % blocks * ROWS, head = item / blocks % a->heads_q, batch = item / blocks / a->heads_q;
        uint64_t rows = RF_MIN((uint64_t)ROWS, a->q_rows - first);
        float *value = scratch_of(p, thread), *sums = value + a->dim;
        for (uint64_t i = 0; i < rows * a->dim; i++) sums[i] = 0;
        for (uint64_t j = 0; j < a->k_rows; j++) {
            const char *from = p->right + at(a->v_strides, batch, head / (a->heads_q / a->heads_kv), j) * p->bytes;
            simd->cast[RF_F32][a->dtype](value, from, a->dim);
            for (uint64_t i = 0; i < rows; i++) {
                float weight = ((const float *)(const void *)p->left)[at(p->scores, batch, head, first + i) + j];
                float *sum = sums + i * a->dim;
                for (uint64_t d = 0; d < a->dim; d++) sum[d] += weight * value[d];
            }
        }
        for (uint64_t i = 0; i < rows; i++)
            simd->cast[a->dtype][RF_F32](p->out + at(a->out_strides, batch, head, first + i) * p->bytes,
                                         sums + i * a->dim, a->dim);
    }
}

rf_status rf_cpu_weighted_matmul(struct rf_cpu *cpu, const struct rf_ref_attention *a, void *out,
                                 const float *weights, const void *v) {
    struct parts parts;
    uint64_t items = 0, floats = 0;
    if (a && rf_mul_overflows(a->dim, ROWS + 1, &floats))
        return rf_fail(RF_E_INVALID, "weighted_matmul: the head size overflows");
    rf_status status = begin(&parts, "weighted_matmul", cpu, a, ROWS, floats, &items);
    if (status || !items || !a->dim) return status;
    if (!out || (a->k_rows && (!weights || !v))) return rf_fail(RF_E_INVALID, "weighted_matmul: a tensor is NULL");
    parts.left = (const char *)weights;
    parts.right = v;
    parts.out = out;
    rf_cpu_run(cpu, items, 1, weighted_rows, &parts);
    return RF_OK;
}

/* ---- rows that are written or copied ---- */

struct rows {
    enum rf_dtype dtype;
    char *out;
    const char *in;
    struct rf_ref_heads out_strides, in_strides;
    uint64_t heads, group, count, columns;
    int64_t offset;
};

static void mask_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct rows *r = user;
    (void)thread;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % r->count, head = item / r->count % r->heads, batch = item / r->count / r->heads;
        int64_t first;
        if (__builtin_add_overflow((int64_t)row + 1, r->offset, &first)) first = r->offset > 0 ? INT64_MAX : 0;
        uint64_t begin_column = first < 0 ? 0 : (uint64_t)first, place = at(r->out_strides, batch, head, row);
        if (r->dtype == RF_F32) {
            float *to = (float *)(void *)r->out + place;
            for (uint64_t j = begin_column; j < r->columns; j++) to[j] = -INFINITY;
        } else {
            uint16_t *to = (uint16_t *)(void *)r->out + place, hidden = r->dtype == RF_F16 ? 0xfc00 : 0xff80;
            for (uint64_t j = begin_column; j < r->columns; j++) to[j] = hidden;
        }
    }
}

rf_status rf_cpu_causal_mask(struct rf_cpu *cpu, enum rf_dtype dtype, void *scores, struct rf_ref_heads strides,
                             uint64_t batch, uint64_t heads, uint64_t rows, uint64_t columns, int64_t offset) {
    uint64_t items;
    if (!cpu || !rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "causal_mask: cpu is NULL, or %s is not f32, f16 or bf16", rf_dtype_name(dtype));
    if (rf_mul_overflows(batch, heads, &items) || rf_mul_overflows(items, rows, &items))
        return rf_fail(RF_E_INVALID, "causal_mask: the number of rows overflows");
    if (!items || !columns) return RF_OK;
    if (!scores) return rf_fail(RF_E_INVALID, "causal_mask: the scores are NULL");
    struct rows r = {.dtype = dtype, .out = scores, .out_strides = strides, .heads = heads, .count = rows};
    r.columns = columns;
    r.offset = offset;
    rf_cpu_run(cpu, items, rf_cpu_grain(columns), mask_rows, &r);
    return RF_OK;
}

static void copy_rows(void *user, size_t begin_row, size_t end, unsigned thread) {
    const struct rows *r = user;
    size_t bytes = rf_dtype_bytes(r->dtype);
    (void)thread;
    for (size_t item = begin_row; item < end; item++) {
        uint64_t row = item % r->count, head = item / r->count % r->heads, batch = item / r->count / r->heads;
        memcpy(r->out + at(r->out_strides, batch, head, row) * bytes,
               r->in + at(r->in_strides, batch, head / r->group, row) * bytes, r->columns * bytes);
    }
}

rf_status rf_cpu_kv_replicate(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, struct rf_ref_heads out_strides,
                              const void *in, struct rf_ref_heads in_strides, uint64_t batch, uint64_t heads_q,
                              uint64_t heads_kv, uint64_t rows, uint64_t dim) {
    uint64_t items;
    if (!cpu || !rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "kv_replicate: cpu is NULL, or %s is not f32, f16 or bf16",
                       rf_dtype_name(dtype));
    if (!heads_kv || heads_q % heads_kv)
        return rf_fail(RF_E_INVALID, "kv_replicate: %llu query heads are no multiple of %llu key heads",
                       (unsigned long long)heads_q, (unsigned long long)heads_kv);
    if (rf_mul_overflows(batch, heads_q, &items) || rf_mul_overflows(items, rows, &items))
        return rf_fail(RF_E_INVALID, "kv_replicate: the number of rows overflows");
    if (!items || !dim) return RF_OK;
    if (!out || !in) return rf_fail(RF_E_INVALID, "kv_replicate: a tensor is NULL");
    struct rows r = {dtype, out, in, out_strides, in_strides, heads_q, heads_q / heads_kv, rows, dim, 0};
    rf_cpu_run(cpu, items, rf_cpu_grain(dim), copy_rows, &r);
    return RF_OK;
}
