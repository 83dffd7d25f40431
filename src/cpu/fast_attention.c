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
    size_t bytes; /* of an element of k and v; 0: blocks of Q8_0, widened a tile at a time */
    float *tiles; /* for that, by thread: RF_ATTEND_KEYS keys and as many values */
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

/* Keys or values of a tile as f32, dense. */
static void widen(const struct attention *op, float *tile, const char *base, uint64_t first, uint64_t row,
                  uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        op->simd->widen(RF_Q8_0, base + (first + i * row) / 32 * 34, tile + i * op->a->dim, op->a->dim);
}

static void task(const struct attention *op, size_t index, unsigned thread) {
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
        enum rf_dtype type = op->bytes ? a->dtype : RF_F32;
        const char *k = op->k + k_at * op->bytes, *v = op->v + v_at * op->bytes;
        if (!op->bytes) {
            float *tile = op->tiles + (size_t)thread * 2 * RF_ATTEND_KEYS * a->dim;
            widen(op, tile, op->k, k_at, k_row, count);
            widen(op, tile + RF_ATTEND_KEYS * a->dim, op->v, v_at, v_row, count);
            k = (const char *)tile;
            v = (const char *)(tile + RF_ATTEND_KEYS * a->dim);
            k_row = v_row = a->dim;
        }
        for (uint64_t i = 0; i < queries * heads; i++) {
            uint64_t head = first_head + i % heads, query = first_query + i / heads;
            uint64_t end = visible(op, batch, query);
            if (key >= end) continue;
            const float *q = op->q + batch * qs->batch + head * qs->head + query * qs->row;
            const float *mask = NULL;
            if (a->mask && !op->pages) mask = a->mask + batch * ms->batch + head * ms->head + query * ms->row + key;
            op->simd->attend[type](&states[i], q, k, k_row, v, v_row, RF_MIN(count, end - key), a->dim, a->scale,
                                   mask);
        }
    }
    for (uint64_t i = 0; i < queries * heads; i++) divide(op->simd, &states[i], a->dim);
}

static void tasks(void *user, size_t begin, size_t end, unsigned thread) {
    for (size_t i = begin; i < end; i++) task(user, i, thread);
}

static bool multiples_of_32(const struct rf_ref_heads *strides) {
    return (strides->batch | strides->head | strides->row) % 32 == 0;
}

static rf_status check(const struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                       enum rf_dtype type, const void *out, const void *q, const void *k, const void *v) {
    if (!cpu || !a) return rf_fail(RF_E_INVALID, "attention: cpu or its arguments are NULL");
    bool packed = pages && (a->q8_0 || a->dtype == RF_Q8_0);
    if (!rf_cpu_is_float(type) || (!packed && !rf_cpu_is_float(a->dtype)))
        return rf_fail(RF_E_INVALID, "attention: keys of type %s and queries of type %s are not f32, f16 or bf16",
                       rf_dtype_name(a->dtype), rf_dtype_name(type));
    if (a->batch == 0 || a->heads_q == 0 || a->q_rows == 0 || a->dim == 0) return RF_OK;
    if (a->heads_kv == 0 || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "attention: %llu query heads are no multiple of %llu key heads",
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    bool no_keys = pages ? pages->page_count == 0 : a->k_rows == 0;
    if (!out || !q || (!no_keys && (!k || !v))) return rf_fail(RF_E_INVALID, "attention: a tensor is NULL");
    if (pages && (pages->page_rows == 0 || !pages->lengths))
        return rf_fail(RF_E_INVALID, "attention: pages need rows and lengths");
    if (packed && (a->dim % 32 || !multiples_of_32(&pages->k_strides) || !multiples_of_32(&pages->v_strides)))
        return rf_fail(RF_E_INVALID, "attention: q8_0 comes in blocks of 32, the head size is %llu",
                       (unsigned long long)a->dim);
    uint64_t reach;
    if (pages && !rf_mul_overflows(pages->page_rows, pages->table ? pages->table_width : 1, &reach) &&
        pages->limit > reach)
        return rf_fail(RF_E_INVALID, "attention: %llu keys are more than the page table's %llu rows",
                       (unsigned long long)pages->limit, (unsigned long long)reach);
    size_t bytes = packed || a->dtype != RF_F32 ? 2 : 4, mine = type == RF_F32 ? 4 : 2;
    if (((uintptr_t)out | (uintptr_t)q) % mine || (uintptr_t)a->mask % 4 || ((uintptr_t)k | (uintptr_t)v) % bytes)
        return rf_fail(RF_E_INVALID, "attention: a tensor is not aligned to its elements");
    return RF_OK;
}

/* What has passed check, on f32. tiles: scratch for packed keys. */
static rf_status attend(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                        float *out, const float *q, const void *k, const void *v, float *tiles) {
    struct attention op = {.simd = cpu->simd, .a = a, .pages = pages, .out = out, .q = q, .k = k, .v = v};
    op.tiles = tiles;
    op.bytes = tiles ? 0 : a->dtype == RF_F32 ? 4 : 2;
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
    rf_cpu_run(cpu, count * op.head_blocks, 1, tasks, &op);
    return RF_OK;
}

/* Rows of queries or results between `type` with strides and f32 in one piece. */
struct recast {
    const struct rf_simd *simd;
    const struct rf_ref_attention *a;
    enum rf_dtype type;
    struct rf_ref_heads strides;
    char *typed;
    float *wide;
    bool widen;
};
static void recast_rows(void *user, size_t begin, size_t end, unsigned thread) {
    const struct recast *r = user;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        uint64_t row = i % r->a->q_rows, head = i / r->a->q_rows % r->a->heads_q;
        uint64_t batch = i / r->a->q_rows / r->a->heads_q;
        uint64_t at = batch * r->strides.batch + head * r->strides.head + row * r->strides.row;
        char *typed = r->typed + at * rf_dtype_bytes(r->type);
        float *wide = r->wide + i * r->a->dim;
        if (r->widen)
            r->simd->cast[RF_F32][r->type](wide, typed, r->a->dim);
        else
            r->simd->cast[r->type][RF_F32](typed, wide, r->a->dim);
    }
}

rf_status rf_cpu_attention_of(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                              enum rf_dtype type, void *out, const void *q, const void *k, const void *v) {
    rf_status status = check(cpu, a, pages, type, out, q, k, v);
    if (status || a->batch == 0 || a->heads_q == 0 || a->q_rows == 0 || a->dim == 0) return status;
    bool packed = pages && (a->q8_0 || a->dtype == RF_Q8_0);
    uint64_t tiles = 0, rows = 0, wide = 0, bytes = 0;
    if ((packed && rf_mul_overflows(a->dim, (uint64_t)cpu->threads * 2 * RF_ATTEND_KEYS, &tiles)) ||
        rf_mul_overflows(a->batch, a->heads_q, &rows) || rf_mul_overflows(rows, a->q_rows, &rows) ||
        (type != RF_F32 && rf_mul_overflows(rows, a->dim, &wide)) || rf_mul_overflows(wide, 2, &bytes) ||
        rf_add_overflows(bytes, tiles, &bytes) || rf_mul_overflows(bytes, sizeof(float), &bytes))
        return rf_fail(RF_E_INVALID, "attention: the number of queries overflows");
    if (bytes) status = rf_cpu_reserve(cpu, "attention", bytes);
    if (status) return status;
    float *scratch = (float *)(void *)cpu->scratch, *tile = packed ? scratch + 2 * wide : NULL;
    if (type == RF_F32) return attend(cpu, a, pages, out, q, k, v, tile);
    struct rf_ref_attention dense = *a;
    dense.q_strides = dense.out_strides = rf_ref_heads_dense(a->heads_q, a->q_rows, a->dim);
    /* Queries are only read. */
    struct recast r = {cpu->simd, a, type, a->q_strides, (char *)(uintptr_t)q, scratch, true};
    rf_cpu_run(cpu, rows, rf_cpu_grain(a->dim), recast_rows, &r);
    status = attend(cpu, &dense, pages, scratch + wide, scratch, k, v, tile);
    if (status) return status;
    r = (struct recast){cpu->simd, a, type, a->out_strides, out, scratch + wide, false};
    rf_cpu_run(cpu, rows, rf_cpu_grain(a->dim), recast_rows, &r);
    return RF_OK;
}

rf_status rf_cpu_attention(struct rf_cpu *cpu, const struct rf_ref_attention *a, const struct rf_ref_pages *pages,
                           float *out, const float *q, const void *k, const void *v) {
    return rf_cpu_attention_of(cpu, a, pages, RF_F32, out, q, k, v);
}
