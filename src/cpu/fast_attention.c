/* Attention without a matrix of scores (see fast.h): it reads the keys in tiles, and each query keeps a running
 * softmax.
 *
 * A task is a few queries of a few heads that share keys and values, so a tile of keys is read from memory once for
 * all of them and then from the L1 cache. A query's tiles begin at key 0 and end every RF_ATTEND_KEYS keys and at
 * page ends, so the division into tasks changes no bit. The output itself holds the running sums. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { QUERIES = 4, HEADS = 16 };

struct attention {
    const struct rf_simd *simd;
    const struct rf_paged_attention_args *a; /* for flash_attention too: sequence b has only page b */
    const uint32_t *table, *lengths;
    int64_t offset; /* used without lengths: query i sees the keys j <= i + offset */
    const float *mask;
    struct rf_head_strides mask_strides;
    enum rf_dtype cache_dtype;
    float *out;
    const float *q;
    const char *k, *v;
    size_t bytes; /* of an element of k and v; 0: blocks of Q8_0, which are widened a tile at a time */
    float *tiles; /* for the widened tiles of each thread: RF_ATTEND_KEYS keys and as many values */
    size_t query_blocks, head_blocks, heads_each, group;
};

/* How many keys a query sees: the keys 0 to this - 1. */
static uint64_t visible(const struct attention *op, uint64_t batch, uint64_t query) {
    uint64_t length = op->a->max_length;
    int64_t offset = op->offset, end;
    if (op->lengths) {
        length = RF_MIN(op->lengths[batch], length);
        offset = (int64_t)length - (int64_t)op->a->q_rows;
    }
    if (__builtin_add_overflow((int64_t)query + 1, offset, &end)) return offset > 0 ? length : 0;
    return end <= 0 ? 0 : RF_MIN((uint64_t)end, length);
}

/* Where key (or value) `row` of a sequence is; false if its page does not exist. */
static bool locate(const struct attention *op, uint64_t batch, uint64_t head, uint64_t row, uint64_t *k_at,
                   uint64_t *v_at) {
    const struct rf_paged_attention_args *a = op->a;
    uint64_t page = op->table ? op->table[batch * a->table_width + row / a->page_rows] : batch;
    if (page >= a->page_count) return false;
    row %= a->page_rows;
    *k_at = page * a->k.batch + head * a->k.head + row * a->k.row;
    *v_at = page * a->v.batch + head * a->v.head + row * a->v.row;
    return true;
}

static void divide(const struct rf_simd *simd, const struct rf_attend *state, size_t dim) {
    if (state->sum == 0) {
        for (size_t i = 0; i < dim; i++) state->out[i] = 0; /* the query saw nothing */
    } else {
        simd->scale[RF_F32](state->out, state->out, 1 / state->sum, dim);
    }
}

/* Widens keys or values to a dense tile of f32. */
static void widen(const struct attention *op, float *tile, const char *base, uint64_t first, uint64_t row,
                  uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        op->simd->widen(RF_Q8_0, base + (first + i * row) / 32 * 34, tile + i * op->a->dim, op->a->dim);
}

static void task(const struct attention *op, size_t index, unsigned thread) {
    const struct rf_paged_attention_args *a = op->a;
    size_t head_block = index % op->head_blocks;
    index /= op->head_blocks;
    uint64_t first_query = index % op->query_blocks * QUERIES;
    index /= op->query_blocks;
    uint64_t kv_head = index % a->heads_kv, batch = index / a->heads_kv;
    uint64_t queries = RF_MIN((uint64_t)QUERIES, a->q_rows - first_query);
    uint64_t first_head = kv_head * op->group + head_block * op->heads_each;
    uint64_t heads = RF_MIN(op->heads_each, op->group - head_block * op->heads_each);

    struct rf_attend states[QUERIES * HEADS];
    const struct rf_head_strides *o = &a->out, *qs = &a->q, *ms = &op->mask_strides;
    for (uint64_t i = 0; i < queries * heads; i++) {
        uint64_t head = first_head + i % heads, query = first_query + i / heads;
        states[i] = (struct rf_attend){-INFINITY, 0, op->out + batch * o->batch + head * o->head + query * o->row};
        for (uint64_t e = 0; e < a->dim; e++) states[i].out[e] = 0;
    }
    uint64_t most = visible(op, batch, first_query + queries - 1);
    for (uint64_t key = 0, count; key < most; key += count) {
        uint64_t k_at, v_at;
        count = RF_MIN(most - key, (uint64_t)RF_ATTEND_KEYS - key % RF_ATTEND_KEYS);
        count = RF_MIN(count, a->page_rows - key % a->page_rows);
        if (!locate(op, batch, kv_head, key, &k_at, &v_at)) continue;
        size_t k_row = a->k.row, v_row = a->v.row;
        enum rf_dtype type = op->bytes ? op->cache_dtype : RF_F32;
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
            if (op->mask) mask = op->mask + batch * ms->batch + head * ms->head + query * ms->row + key;
            op->simd->attend[type](&states[i], q, k, k_row, v, v_row, RF_MIN(count, end - key), a->dim, a->scale,
                                   mask);
        }
    }
    for (uint64_t i = 0; i < queries * heads; i++) divide(op->simd, &states[i], a->dim);
}

static void tasks(void *user, size_t begin, size_t end, unsigned thread) {
    for (size_t i = begin; i < end; i++) task(user, i, thread);
}

/* ---- checks ---- */

static bool multiples_of_32(const struct rf_head_strides *strides) {
    return (strides->batch | strides->head | strides->row) % 32 == 0;
}

static bool is_empty(const struct rf_paged_attention_args *a) {
    return a->batch == 0 || a->heads_q == 0 || a->q_rows == 0 || a->dim == 0;
}

static rf_status check(const struct attention *op, enum rf_dtype dtype, const void *out, const void *q) {
    const struct rf_paged_attention_args *a = op->a;
    bool packed = op->lengths && op->cache_dtype == RF_Q8_0;
    if (!rf_cpu_is_float(dtype) || (!packed && !rf_cpu_is_float(op->cache_dtype)))
        return rf_fail(RF_E_INVALID, "attention: keys of type %s and queries of type %s are not f32, f16 or bf16",
                       rf_dtype_name(op->cache_dtype), rf_dtype_name(dtype));
    if (is_empty(a)) return RF_OK;
    if (a->heads_kv == 0 || a->heads_q % a->heads_kv)
        return rf_fail(RF_E_INVALID, "attention: %llu query heads are no multiple of %llu key heads",
                       (unsigned long long)a->heads_q, (unsigned long long)a->heads_kv);
    bool no_keys = a->page_count == 0 || a->page_rows == 0;
    if (!out || !q || (!no_keys && (!op->k || !op->v))) return rf_fail(RF_E_INVALID, "attention: a tensor is NULL");
    if (packed && (a->dim % 32 || !multiples_of_32(&a->k) || !multiples_of_32(&a->v)))
        return rf_fail(RF_E_INVALID, "attention: q8_0 comes in blocks of 32, the head size is %llu",
                       (unsigned long long)a->dim);
    size_t bytes = packed || op->cache_dtype != RF_F32 ? 2 : 4, mine = dtype == RF_F32 ? 4 : 2;
    if (((uintptr_t)out | (uintptr_t)q) % mine || (uintptr_t)op->mask % 4 ||
        ((uintptr_t)op->k | (uintptr_t)op->v) % bytes)
        return rf_fail(RF_E_INVALID, "attention: a tensor is not aligned to its elements");
    return RF_OK;
}

static rf_status check_pages(const struct rf_paged_attention_args *a, const uint32_t *table,
                             const uint32_t *lengths) {
    uint64_t reach;
    if (is_empty(a)) return RF_OK;
    if (a->page_rows == 0 || !lengths) return rf_fail(RF_E_INVALID, "attention: pages need rows and lengths");
    if (!rf_mul_overflows(a->page_rows, table ? a->table_width : 1, &reach) && a->max_length > reach)
        return rf_fail(RF_E_INVALID, "attention: %llu keys are more than the page table's %llu rows",
                       (unsigned long long)a->max_length, (unsigned long long)reach);
    return RF_OK;
}

/* ---- running ---- */

/* Runs on f32 what the checks have accepted. tiles is scratch for quantized keys. */
static rf_status attend(struct rf_cpu *cpu, struct attention op, float *out, const float *q, float *tiles) {
    const struct rf_paged_attention_args *a = op.a;
    op.simd = cpu->simd;
    op.out = out;
    op.q = q;
    op.tiles = tiles;
    op.bytes = tiles ? 0 : op.cache_dtype == RF_F32 ? 4 : 2;
    op.group = a->heads_q / a->heads_kv;
    op.query_blocks = (a->q_rows + QUERIES - 1) / QUERIES;
    op.heads_each = RF_MIN(op.group, (size_t)HEADS);
    uint64_t count;
    if (rf_mul_overflows(a->batch, a->heads_kv, &count) || rf_mul_overflows(count, op.query_blocks, &count) ||
        rf_mul_overflows(count, op.group, &count))
        return rf_fail(RF_E_INVALID, "attention: the number of queries overflows");
    count /= op.group;
    /* If there are too few tasks for the threads, each task gets fewer heads; keys are then read more often. */
    if (count < cpu->threads) {
        size_t more = (cpu->threads + count - 1) / count;
        op.heads_each = RF_MIN(op.heads_each, (op.group + more - 1) / more);
    }
    op.head_blocks = (op.group + op.heads_each - 1) / op.heads_each;
    rf_cpu_run(cpu, count * op.head_blocks, 1, tasks, &op);
    return RF_OK;
}

/* Converts rows of queries or results between `dtype` with strides and dense f32. */
struct recast {
    const struct rf_simd *simd;
    const struct rf_paged_attention_args *a;
    enum rf_dtype dtype;
    struct rf_head_strides strides;
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
        char *typed = r->typed + at * rf_dtype_bytes(r->dtype);
        float *wide = r->wide + i * r->a->dim;
        if (r->widen)
            r->simd->cast[RF_F32][r->dtype](wide, typed, r->a->dim);
        else
            r->simd->cast[r->dtype][RF_F32](typed, wide, r->a->dim);
    }
}

/* Runs the checks; if the type is not f32, widens queries before attend and narrows results after it. */
static rf_status run(struct rf_cpu *cpu, struct attention op, enum rf_dtype dtype, void *out, const void *q) {
    const struct rf_paged_attention_args *a = op.a;
    RF_TRY(check(&op, dtype, out, q));
    if (is_empty(a)) return RF_OK;
    bool packed = op.cache_dtype == RF_Q8_0;
    uint64_t tiles = 0, rows = 0, wide = 0, bytes = 0;
    if ((packed && rf_mul_overflows(a->dim, (uint64_t)cpu->threads * 2 * RF_ATTEND_KEYS, &tiles)) ||
        rf_mul_overflows(a->batch, a->heads_q, &rows) || rf_mul_overflows(rows, a->q_rows, &rows) ||
        (dtype != RF_F32 && rf_mul_overflows(rows, a->dim, &wide)) || rf_mul_overflows(wide, 2, &bytes) ||
        rf_add_overflows(bytes, tiles, &bytes) || rf_mul_overflows(bytes, sizeof(float), &bytes))
        return rf_fail(RF_E_INVALID, "attention: the number of queries overflows");
    if (bytes) RF_TRY(rf_cpu_reserve(cpu, "attention", bytes));
    float *scratch = (float *)(void *)cpu->scratch, *tile = packed ? scratch + 2 * wide : NULL;
    if (dtype == RF_F32) return attend(cpu, op, out, q, tile);
    struct rf_paged_attention_args dense = *a;
    dense.q = dense.out = rf_head_strides_dense(a->heads_q, a->q_rows, a->dim);
    /* The queries are only read. */
    struct recast r = {cpu->simd, a, dtype, a->q, (char *)(uintptr_t)q, scratch, true};
    rf_cpu_run(cpu, rows, rf_cpu_grain(a->dim), recast_rows, &r);
    op.a = &dense;
    RF_TRY(attend(cpu, op, scratch + wide, scratch, tile));
    r = (struct recast){cpu->simd, a, dtype, a->out, out, scratch + wide, false};
    rf_cpu_run(cpu, rows, rf_cpu_grain(a->dim), recast_rows, &r);
    return RF_OK;
}

rf_status rf_cpu_flash_attention(struct rf_cpu *cpu, enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out,
                                 const void *q, const void *k, const void *v, const float *mask,
                                 const struct rf_flash_attention_args *args) {
    if (!cpu || !args) return rf_fail(RF_E_INVALID, "attention: cpu or its arguments are NULL");
    const struct rf_paged_attention_args a = {.out = args->out,
                                              .q = args->q,
                                              .k = args->k,
                                              .v = args->v,
                                              .batch = args->batch,
                                              .heads_q = args->heads_q,
                                              .heads_kv = args->heads_kv,
                                              .q_rows = args->q_rows,
                                              .dim = args->dim,
                                              .page_rows = args->k_rows,
                                              .page_count = args->batch,
                                              .max_length = args->k_rows,
                                              .scale = args->scale};
    struct attention op = {.a = &a, .offset = args->offset, .mask = mask, .mask_strides = args->mask};
    op.cache_dtype = cache_dtype;
    op.k = k;
    op.v = v;
    return run(cpu, op, dtype, out, q);
}

rf_status rf_cpu_paged_attention(struct rf_cpu *cpu, enum rf_dtype dtype, enum rf_dtype cache_dtype, void *out,
                                 const void *q, const void *k, const void *v, const uint32_t *table,
                                 const uint32_t *lengths, const struct rf_paged_attention_args *args) {
    if (!cpu || !args) return rf_fail(RF_E_INVALID, "attention: cpu or its arguments are NULL");
    RF_TRY(check_pages(args, table, lengths));
    struct attention op = {.a = args, .table = table, .lengths = lengths};
    op.cache_dtype = cache_dtype;
    op.k = k;
    op.v = v;
    return run(cpu, op, dtype, out, q);
}
