/* Attention without a matrix of scores (see fast.h): the keys pass by in tiles, each query keeps a
 * running softmax.
 *
 * A task is a few queries of a few heads that share keys and values, so a tile of keys is read from
 * memory once for all of them and then from the L1 cache. A query's tiles begin at key 0 and end
 * every RF_ATTEND_KEYS keys and at page ends: how the tasks are cut changes no bit. The output
 * itself holds the running sums. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { QUERIES = 4, HEADS = 16 };

struct attention {
    const struct rf_simd *simd;
    const struct rf_ref_attention *a;
    const struct rf_ref_pages *pages;
    float *out;
    const float *q;
    const char *k, *v;
    size_t bytes; /* of an element of k and v */
    size_t query_blocks, head_blocks, heads_each, group;
};

/* Keys that a query sees: 0 to this - 1. */
static uint64_t visible(const struct attention *op, uint64_t batch, uint64_t query) {
    const struct rf_ref_attention *a = op->a;
    if (op->pages) {
        uint64_t length = RF_MIN(op->pages->lengths[batch], op->pages->limit);
        int64_t end = (int64_t)length - (int64_t)a->q_rows + (int64_t)query + 1;
        return end <= 0 ? 0 : RF_MIN((uint64_t)end, length);
    }
    if (!a->causal) return a->k_rows;
    int64_t end;
    if (__builtin_add_overflow((int64_t)query + 1, a->offset, &end)) return a->offset > 0 ? a->k_rows : 0;
    return end <= 0 ? 0 : RF_MIN((uint64_t)end, a->k_rows);
}

/* Where key (or value) `row` of a sequence is; false if its page does not exist. */
static bool locate(const struct attention *op, uint64_t batch, uint64_t head, uint64_t row, uint64_t *k_at,
                   uint64_t *v_at) {
    const struct rf_ref_heads *ks = &op->a->k_strides, *vs = &op->a->v_strides;
    if (op->pages) {
        uint64_t page = batch;
        if (op->pages->table) page = op->pages->table[batch * op->pages->table_width + row / op->pages->page_rows];
        if (page >= op->pages->page_count) return false;
        row %= op->pages->page_rows;
        ks = &op->pages->k_strides;
        vs = &op->pages->v_strides;
        batch = page;
    }
    *k_at = batch * ks->batch + head * ks->head + row * ks->row;
    *v_at = batch * vs->batch + head * vs->head + row * vs->row;
    return true;
}

static void divide(const struct rf_simd *simd, const struct rf_attend *state, size_t dim) {
    if (state->sum == 0) {
        for (size_t i = 0; i < dim; i++) state->out[i] = 0; /* saw nothing */
    } else {
        simd->scale[RF_F32](state->out, state->out, 1 / state->sum, dim);
    }
}

static void task(const struct attention *op, size_t index) {
    const struct rf_ref_attention *a = op->a;
    size_t head_block = index % op->head_blocks;
    index /= op->head_blocks;
    uint64_t first_query = index % op->query_blocks * QUERIES;
    index /= op->query_blocks;
    uint64_t kv_head = index % a->heads_kv, batch = index / a->heads_kv;
    uint64_t queries = RF_MIN((uint64_t)QUERIES, a->q_rows - first_query);
    uint64_t first_head = kv_head * op->group + head_block * op->heads_each;
    uint64_t heads = RF_MIN(op->heads_each, op->group - head_block * op->heads_each);

    struct rf_attend states[QUERIES * HEADS];
    const struct rf_ref_heads *o = &a->out_strides, *qs = &a->q_strides, *ms = &a->mask_strides;
    for (uint64_t i = 0; i < queries * heads; i++) {
        uint64_t head = first_head + i % heads, query = first_query + i / heads;
        states[i] = (struct rf_attend){-INFINITY, 0, op->out + batch * o->batch + head * o->head + query * o->row};
        for (uint64_t e = 0; e < a->dim; e++) states[i].out[e] = 0;
    }
    uint64_t most = visible(op, batch, first_query + queries - 1), page_rows = op->pages ? op->pages->page_rows : 0;
    for (uint64_t key = 0, count; key < most; key += count) {
        uint64_t k_at, v_at;
        count = RF_MIN(most - key, (uint64_t)RF_ATTEND_KEYS - key % RF_ATTEND_KEYS);
        if (page_rows) count = RF_MIN(count, page_rows - key % page_rows);
        if (!locate(op, batch, kv_head, key, &k_at, &v_at)) continue;
        size_t k_row = op->pages ? op->pages->k_strides.row : a->k_strides.row;
        size_t v_row = op->pages ? op->pages->v_strides.row : a->v_strides.row;
        for (uint64_t i = 0; i < queries * heads; i++) {
            uint64_t head = first_head + i % heads, query = first_query + i / heads;
            uint64_t end = visible(op, batch, query);
            if (key >= end) continue;
            const float *q = op->q + batch * qs->batch + head * qs->head + query * qs->row;
            const float *mask = NULL;
            if (a->mask && !op->pages) mask = a->mask + batch * ms->batch + head * ms->head + query * ms->row + key;
            op->simd->attend[a->dtype](&states[i], q, op->k + k_at * op->bytes, k_row, op->v + v_at * op->bytes,
                                       v_row, RF_MIN(count, end - key), a->dim, a->scale, mask);
        }
    }
    for (uint64_t i = 0; i < queries * heads; i++) divide(op->simd, &states[i], a->dim);
}

static void tasks(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    for (size_t i = begin; i < end; i++) task(user, i);
}

rf_status rf_cpu_attention(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                           float *out, const float *q, const void *k, const void *v) {
    if (!cpu || !a) return rf_fail(RF_E_INVALID, "attention: cpu or its arguments are NULL");
    if (!rf_cpu_is_float(a->dtype))
        return rf_fail(RF_E_INVALID, "attention: keys of type %s are not f32, f16 or bf16", rf_dtype_name(a->dtype));
    if (a->batch == 0 || a->heads_q == 0 || a->q_rows == 0 || a->dim == 0) return RF_OK;
    if (a->heads_kv == 0 || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "attention: %llu query heads are no multiple of %llu key heads",
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    bool no_keys = pages ? pages->page_count == 0 : a->k_rows == 0;
    if (!out || !q || (!no_keys && (!k || !v))) return rf_fail(RF_E_INVALID, "attention: a tensor is NULL");
    if (pages && (pages->page_rows == 0 || !pages->lengths))
        return rf_fail(RF_E_INVALID, "attention: pages need rows and lengths");
    uint64_t reach;
    if (pages && !rf_mul_overflows(pages->page_rows, pages->table ? pages->table_width : 1, &reach) &&
        pages->limit > reach)
        return rf_fail(RF_E_INVALID, "attention: %llu keys are more than the page table's %llu rows",
                       (unsigned long long)pages->limit, (unsigned long long)reach);
    size_t bytes = a->dtype == RF_F32 ? 4 : 2;
    if (((uintptr_t)out | (uintptr_t)q | (uintptr_t)a->mask) % 4 || ((uintptr_t)k | (uintptr_t)v) % bytes)
        return rf_fail(RF_E_INVALID, "attention: a tensor is not aligned to its elements");
    struct attention op = {
        .simd = cpu->simd, .a = a, .pages = pages, .out = out, .q = q, .k = k, .v = v, .bytes = bytes};
    op.group = a->heads_q / a->heads_kv;
    op.query_blocks = (a->q_rows + QUERIES - 1) / QUERIES;
    op.heads_each = RF_MIN(op.group, (size_t)HEADS);
    uint64_t count;
    if (rf_mul_overflows(a->batch, a->heads_kv, &count) || rf_mul_overflows(count, op.query_blocks, &count) ||
        rf_mul_overflows(count, op.group, &count))
        return rf_fail(RF_E_INVALID, "attention: the number of queries overflows");
    count /= op.group;
    /* Too few tasks for the threads: fewer heads in each, at the price of reading keys again. */
    if (count < cpu->threads) {
        size_t more = (cpu->threads + count - 1) / count;
        op.heads_each = RF_MIN(op.heads_each, (op.group + more - 1) / more);
    }
    op.head_blocks = (op.group + op.heads_each - 1) / op.heads_each;
    rf_pool_run(cpu->pool, count * op.head_blocks, 1, tasks, &op);
    return RF_OK;
}
