/* The row of paged_attention. Inputs: q [batch, heads, rows, dim]; k and v in pages [pages, heads, rows, dim], of q's
 * type or RF_Q8_0, or f16 or bf16 if q is f32; optionally the table, i32 [batch, width]; the lengths, i32 [batch].
 * Attributes: scale; max_length: no sequence counts more keys than this, 0: as many as there is room for; path: enum
 * rf_attention_path; fresh: the most keys of a sequence, its newest, that the graph itself writes, while the others
 * exist when it begins, 0: it may write any of them. */
#include "ops/op_attention_impl.h"

#include <math.h>
#include <stdio.h>

#include "cpu/fast.h"

enum { Q, K, V, TABLE, LENGTHS, OUT };
enum fill_kind {
    FILL_ANY,   /* lengths of all kinds: full, any, none, one, too long */
    FILL_HOLES, /* the same, with table entries that name no page */
    FILL_FULL,  /* every sequence has its largest length */
};

/* How many keys a sequence may have. */
static uint64_t room(const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, TABLE);
    return rf_op_in(call, K)->desc.shape[2] * (rf_op_given(table) ? table->desc.shape[1] : 1);
}

static rf_status check_words(const char *name, const struct rf_tensor_desc *desc, int rank, uint64_t batch) {
    if (desc->dtype != RF_I32 || desc->rank != rank || desc->shape[0] != batch)
        return rf_fail(RF_E_INVALID, "%s must be i32 of rank %d, one row for each of %llu sequences", name, rank,
                       (unsigned long long)batch);
    if (rf_op_elements(desc) && !rf_op_contiguous(desc)) return rf_fail(RF_E_UNSUPPORTED, "%s must be dense", name);
    return RF_OK;
}

/* With a table, a page has a power of two of rows; without one, each sequence has one page. */
static rf_status check_pages(const struct rf_op_call *call) {
    const struct rf_tensor_desc *q = &rf_op_in(call, Q)->desc, *k = &rf_op_in(call, K)->desc;
    const struct rf_tensor_desc *table = &rf_op_in(call, TABLE)->desc;
    uint64_t rows = k->shape[2];
    int64_t most = call->attributes.max_length;
    RF_TRY(check_words("lengths", &rf_op_in(call, LENGTHS)->desc, 1, q->shape[0]));
    if (!rows) return rf_fail(RF_E_INVALID, "pages of no rows");
    if (rf_op_given(rf_op_in(call, TABLE))) {
        RF_TRY(check_words("the table", table, 2, q->shape[0]));
        if (rows & (rows - 1))
            return rf_fail(RF_E_UNSUPPORTED, "pages of %llu rows; with a table it must be a power of two",
                           (unsigned long long)rows);
        if (!table->shape[1] || table->shape[1] > INT32_MAX / rows)
            return rf_fail(RF_E_UNSUPPORTED, "a table of %llu pages of %llu rows: 1 to %d keys can be named",
                           (unsigned long long)table->shape[1], (unsigned long long)rows, INT32_MAX);
    } else if (k->shape[0] < q->shape[0]) {
        return rf_fail(RF_E_INVALID, "without a table each of %llu sequences needs a page, there are %llu",
                       (unsigned long long)q->shape[0], (unsigned long long)k->shape[0]);
    }
    if (most < 0 || (uint64_t)most > room(call))
        return rf_fail(RF_E_INVALID, "at most %lld keys are to count, there is room for %llu", (long long)most,
                       (unsigned long long)room(call));
    return RF_OK;
}

static rf_status check(const struct rf_op_call *call) {
    const struct rf_op_tensor *q = rf_op_in(call, Q), *k = rf_op_in(call, K);
    const uint64_t *q_shape = q->desc.shape, *k_shape = k->desc.shape;
    enum rf_dtype dtype = q->desc.dtype, cache = k->desc.dtype;
    bool packed = cache == RF_Q8_0, narrow = dtype == RF_F32 && (cache == RF_F16 || cache == RF_BF16);
    RF_TRY(rf_need_float(q, "q"));
    RF_TRY(rf_need_rank(q, "q", 4));
    RF_TRY(rf_need_rank(k, "k", 4));
    RF_TRY(rf_need_group(q_shape[1], k_shape[1]));
    RF_TRY(rf_need_head_size(q_shape[3]));
    const uint64_t key_shape[4] = {k_shape[0], k_shape[1], k_shape[2], q_shape[3]};
    if (!packed && !narrow) cache = dtype;
    RF_TRY(rf_need_head_tensor(q, "q", dtype, q_shape, 16, false));
    RF_TRY(rf_need_head_tensor(k, "k", cache, key_shape, packed ? 2 : 16, false));
    RF_TRY(rf_need_head_tensor(rf_op_in(call, V), "v", cache, key_shape, packed ? 2 : 16, false));
    RF_TRY(rf_need_head_tensor(rf_op_out(call, 0), "out", dtype, q_shape, 16, true));
    RF_TRY(check_pages(call));
    RF_TRY(rf_need_scale(call->attributes.scale));
    RF_TRY(rf_need_path(call->attributes.path));
    if (call->attributes.fresh < 0)
        return rf_fail(RF_E_INVALID, "%lld of the keys are said to be new", (long long)call->attributes.fresh);
    return RF_OK;
}

/* ---- running ---- */

/* How many of a sequence's newest keys work on the queue may write; RF_ALL_FRESH: it may write any key, or the table
 * or the lengths. */
static uint32_t fresh_keys(const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, TABLE);
    bool keys = rf_op_in(call, K)->constant && rf_op_in(call, V)->constant;
    bool settled = rf_op_in(call, LENGTHS)->constant && (!rf_op_given(table) || table->constant);
    if (!settled || (!keys && call->attributes.fresh <= 0)) return RF_ALL_FRESH;
    return keys ? 0 : (uint32_t)RF_MIN(call->attributes.fresh, INT32_MAX);
}

static struct rf_paged_attention_args paged_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *q = &rf_op_in(call, Q)->desc, *k = &rf_op_in(call, K)->desc;
    const struct rf_op_tensor *table = rf_op_in(call, TABLE);
    int64_t most = call->attributes.max_length;
    return (struct rf_paged_attention_args){.out = rf_heads_strides(&rf_op_out(call, 0)->desc),
                                            .q = rf_heads_strides(q),
                                            .k = rf_heads_strides(k),
                                            .v = rf_heads_strides(&rf_op_in(call, V)->desc),
                                            .batch = q->shape[0],
                                            .heads_q = q->shape[1],
                                            .heads_kv = k->shape[1],
                                            .q_rows = q->shape[2],
                                            .dim = q->shape[3],
                                            .page_rows = k->shape[2],
                                            .page_count = k->shape[0],
                                            .table_width = rf_op_given(table) ? table->desc.shape[1] : 0,
                                            .max_length = most ? (uint64_t)most : room(call),
                                            .scale = (float)call->attributes.scale,
                                            .fresh = fresh_keys(call)};
}

static const uint32_t *host_table(const struct rf_op_call *call) {
    return rf_op_given(rf_op_in(call, TABLE)) ? rf_op_host(rf_op_in(call, TABLE)) : NULL;
}

static void reference(const struct rf_op_call *call) {
    struct rf_paged_attention_args a = paged_args(call);
    rf_ref_paged_attention(rf_op_in(call, Q)->desc.dtype, rf_op_in(call, K)->desc.dtype,
                           rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, Q)),
                           rf_op_host(rf_op_in(call, K)), rf_op_host(rf_op_in(call, V)), host_table(call),
                           rf_op_host(rf_op_in(call, LENGTHS)), &a);
}

static rf_status cpu_run(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_paged_attention_args a = paged_args(call);
    return rf_cpu_paged_attention(cpu, rf_op_in(call, Q)->desc.dtype, rf_op_in(call, K)->desc.dtype,
                                  rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, Q)),
                                  rf_op_host(rf_op_in(call, K)), rf_op_host(rf_op_in(call, V)), host_table(call),
                                  rf_op_host(rf_op_in(call, LENGTHS)), &a);
}

static struct rf_paged_attention_launch launch_of(const struct rf_op_call *call) {
    return (struct rf_paged_attention_launch){.args = paged_args(call),
                                              .dtype = rf_op_in(call, Q)->desc.dtype,
                                              .cache_dtype = rf_op_in(call, K)->desc.dtype,
                                              .path = (enum rf_attention_path)call->attributes.path,
                                              .out = rf_op_operand(rf_op_out(call, 0)),
                                              .q = rf_op_operand(rf_op_in(call, Q)),
                                              .k = rf_op_operand(rf_op_in(call, K)),
                                              .v = rf_op_operand(rf_op_in(call, V)),
                                              .table = rf_op_operand(rf_op_in(call, TABLE)),
                                              .lengths = rf_op_operand(rf_op_in(call, LENGTHS)),
                                              .workspace = {call->workspace, call->workspace_offset},
                                              .counters = {call->counters, call->counters_offset}};
}

static rf_status workspace(const struct rf_op_call *call, uint64_t *bytes) {
    struct rf_paged_attention_launch launch = launch_of(call);
    return rf_gpu_paged_attention_workspace(&launch, bytes);
}
static rf_status counters(const struct rf_op_call *call, uint64_t *bytes) {
    struct rf_paged_attention_launch launch = launch_of(call);
    return rf_gpu_paged_attention_counters(&launch, bytes);
}

static rf_status gpu_run(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_paged_attention_launch launch = launch_of(call);
    return rf_gpu_paged_attention(queue, &launch);
}

/* Counts the keys and values of full sequences. Several queries read them once together. */
static void cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    const struct rf_tensor_desc *k = &rf_op_in(call, K)->desc;
    struct rf_paged_attention_args a = paged_args(call);
    uint64_t keys = a.batch * a.max_length;
    *bytes = 2 * keys * a.heads_kv * a.dim / rf_dtype_block(k->dtype) * rf_dtype_block_bytes(k->dtype);
    *flops = 4 * keys * a.heads_q * a.q_rows * a.dim;
}

/* ---- cases ---- */

/* Every page is named once before any is named again; lengths are full, any, none, one and too long, in turn. */
static bool fill(const struct rf_op_call *call, int index, uint64_t *state) {
    if (index != TABLE && index != LENGTHS) return false;
    const struct rf_op_tensor *tensor = rf_op_in(call, index);
    uint32_t *words = rf_op_host(tensor);
    uint64_t count = rf_op_elements(&tensor->desc), pages = rf_op_in(call, K)->desc.shape[0], most = room(call);
    enum fill_kind kind = (enum fill_kind)call->fill_kind;
    if (index == LENGTHS) {
        for (uint64_t b = 0; b < count; b++) {
            uint64_t kinds[] = {most, 1 + rf_op_random(state) % most, 0, 1, most + 77};
            words[b] = (uint32_t)kinds[kind == FILL_FULL ? 0 : b % RF_COUNT(kinds)];
        }
        return true;
    }
    for (uint64_t i = 0; i < count; i++) words[i] = pages ? (uint32_t)(i % pages) : 0;
    for (uint64_t i = count; i > 1; i--) {
        uint64_t other = rf_op_random(state) % i;
        uint32_t word = words[i - 1];
        words[i - 1] = words[other];
        words[other] = word;
    }
    for (uint64_t i = 0; kind == FILL_HOLES && i < count; i += 3) words[i] = i % 2 ? (uint32_t)pages : UINT32_MAX;
    return true;
}

struct shape {
    uint64_t batch, heads_q, heads_kv, q_rows, dim;
    uint64_t page_rows, table_width; /* table_width 0: no table */
    uint64_t most;
    enum rf_heads_layout layout;
    enum fill_kind fill;
    enum rf_case_data data;
};

/* Tolerances are as flash_attention's: f32 1e-4; f16 and bf16 one step of the result and two of the weights. Keys in
 * q8_0 are exact in f32. f32 queries over 16-bit keys: with several queries, they are rounded to the keys' type on
 * matrix units, and with scores of up to 30 half a step of a query makes some 8 steps of the result; a single query
 * keeps twice that type's bits. */
static void add(struct rf_case_list *list, const struct shape *s, enum rf_dtype dtype, enum rf_dtype cache,
                enum rf_attention_path path, bool bench) {
    static const char *const paths[] = {"", " plain", " matrix", " wide", " group"};
    static const char *const fills[] = {"", " holes", " full"};
    struct rf_op_case one = {.count = 6, .data = s->data, .bench = bench};
    bool packed = cache == RF_Q8_0, narrow = !packed && cache != dtype;
    double step = rf_op_step(dtype);
    bool extreme = s->data == RF_DATA_EXTREME;
    uint64_t pages = s->batch * (s->table_width ? s->table_width : 1) + (bench ? 0 : 2);
    one.absolute = (extreme ? 1e4 : 1) * (dtype == RF_F32 ? 1e-4 : 2 * step);
    one.relative = dtype == RF_F32 ? 2e-5 : step;
    if (narrow && path != RF_ATTENTION_PLAIN && (s->q_rows > 1 || extreme)) {
        one.absolute = (extreme ? 1e4 : 1) * 8 * rf_op_step(cache);
        one.relative = rf_op_step(cache);
    } else if (narrow && path != RF_ATTENTION_PLAIN && cache == RF_BF16) {
        one.absolute = one.relative = 1e-3;
    }
    one.attributes.scale = 1 / sqrt((double)s->dim);
    one.attributes.max_length = (int64_t)s->most;
    one.attributes.path = path;
    one.fill_kind = (int)s->fill;
    one.tensors[Q] = one.tensors[OUT] = rf_heads_desc(dtype, s->layout, s->batch, s->heads_q, s->q_rows, s->dim);
    one.tensors[K] = one.tensors[V] =
        rf_heads_desc(cache, packed ? RF_LAYOUT_DENSE : s->layout, pages, s->heads_kv, s->page_rows, s->dim);
    if (packed && s->layout) one.tensors[V].byte_offset = 34; /* not a multiple of 4 */
    if (s->table_width)
        one.tensors[TABLE] = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 2, .shape = {s->batch, s->table_width}};
    one.tensors[LENGTHS] = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 1, .shape = {s->batch}};
    if (s->layout) one.tensors[LENGTHS].byte_offset = 12;
    char most[32] = "";
    if (s->most) snprintf(most, sizeof most, " cut to %llu", (unsigned long long)s->most);
    char cache_name[16] = "";
    if (cache != dtype) snprintf(cache_name, sizeof cache_name, " %s", rf_dtype_name(cache));
    snprintf(one.label, sizeof one.label, "%s%s %llux%llu/%llu q%llu d%llu %s%llux%llu%s%s%s%s%s",
             rf_dtype_name(dtype), cache_name, (unsigned long long)s->batch, (unsigned long long)s->heads_q,
             (unsigned long long)s->heads_kv, (unsigned long long)s->q_rows, (unsigned long long)s->dim,
             s->table_width ? "" : "untabled ", (unsigned long long)s->table_width, (unsigned long long)s->page_rows,
             most, fills[s->fill], rf_heads_layout_name(s->layout), paths[path], extreme ? ", extreme" : "");
    rf_case_add(list, &one);
}

static void cases(struct rf_case_list *list) {
    static const uint64_t dims[] = {8, 32, 40, 64, 80, 96, 112, 128, 160, 200, 256};
    static const struct shape shapes[] = {
        /* decoding */
        {1, 1, 1, 1, 32, 1, 1, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {5, 2, 2, 1, 64, 16, 3, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {5, 4, 1, 1, 128, 16, 9, 0, RF_LAYOUT_SPREAD, FILL_ANY, RF_DATA_NORMAL}, /* two splits */
        {2, 16, 2, 1, 96, 32, 5, 0, RF_LAYOUT_DENSE, FILL_HOLES, RF_DATA_NORMAL},
        {2, 10, 1, 1, 256, 8, 21, 150, RF_LAYOUT_SPREAD, FILL_HOLES, RF_DATA_NORMAL},
        {3, 4, 2, 1, 96, 133, 0, 0, RF_LAYOUT_SPREAD, FILL_ANY, RF_DATA_NORMAL},
        {2, 2, 2, 1, 64, 130, 0, 129, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {5, 3, 3, 1, 32, 4, 7, 1, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {1, 71, 1, 1, 64, 64, 1, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL},
        {0, 2, 1, 1, 64, 16, 2, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {2, 4, 2, 1, 32, 32, 3, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_EXTREME},
        {2, 8, 1, 1, 128, 16, 9, 0, RF_LAYOUT_SPREAD, FILL_FULL, RF_DATA_EXTREME},
        /* prefill */
        {5, 2, 1, 5, 64, 16, 3, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {2, 2, 2, 40, 128, 8, 9, 0, RF_LAYOUT_SPREAD, FILL_HOLES, RF_DATA_NORMAL},
        {3, 2, 1, 33, 64, 16, 4, 40, RF_LAYOUT_SPREAD, FILL_HOLES, RF_DATA_NORMAL},
        {1, 2, 2, 67, 32, 64, 2, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL},
        {2, 3, 1, 9, 96, 61, 0, 50, RF_LAYOUT_SPREAD, FILL_ANY, RF_DATA_NORMAL},
        {1, 4, 1, 2, 256, 4, 13, 0, RF_LAYOUT_DENSE, FILL_HOLES, RF_DATA_NORMAL},
        {1, 2, 1, 0, 64, 16, 2, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {1, 2, 1, 13, 64, 8, 4, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_EXTREME},
    };
    /* By groups: stages of keys that a page has several of, or one; sequences that end within one; no table. */
    static const struct shape groups[] = {
        {2, 4, 2, 130, 128, 128, 3, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL},
        {5, 2, 1, 67, 64, 256, 2, 0, RF_LAYOUT_SPREAD, FILL_ANY, RF_DATA_NORMAL},
        {2, 3, 1, 140, 96, 256, 4, 901, RF_LAYOUT_DENSE, FILL_HOLES, RF_DATA_NORMAL},
        {1, 4, 2, 5, 256, 64, 5, 0, RF_LAYOUT_SPREAD, FILL_HOLES, RF_DATA_NORMAL},
        {2, 2, 2, 129, 80, 133, 0, 0, RF_LAYOUT_SPREAD, FILL_ANY, RF_DATA_NORMAL},
        {1, 2, 1, 300, 32, 128, 2, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL}, /* more queries than keys */
        {1, 2, 1, 70, 64, 128, 2, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_EXTREME},
    };
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        for (size_t i = 0; i < RF_COUNT(groups) && rf_case_floats[t] != RF_F32; i++)
            add(list, &groups[i], rf_case_floats[t], rf_case_floats[t], RF_ATTENTION_GROUP, false);
        for (size_t i = 0; i < RF_COUNT(shapes); i++) {
            bool several = shapes[i].q_rows > 1;
            add(list, &shapes[i], rf_case_floats[t], rf_case_floats[t], RF_ATTENTION_PLAIN, false);
            add(list, &shapes[i], rf_case_floats[t], RF_Q8_0, RF_ATTENTION_AUTO, false);
            if (rf_case_floats[t] == RF_F32) continue;
            /* One query: AUTO uses the matrix units if it can. */
            add(list, &shapes[i], rf_case_floats[t], rf_case_floats[t],
                several ? RF_ATTENTION_MATRIX : RF_ATTENTION_AUTO, false);
            add(list, &shapes[i], RF_F32, rf_case_floats[t], RF_ATTENTION_AUTO, false);
            add(list, &shapes[i], RF_F32, rf_case_floats[t], RF_ATTENTION_PLAIN, false);
            if (!several) add(list, &shapes[i], rf_case_floats[t], RF_Q8_0, RF_ATTENTION_PLAIN, false);
        }
        for (size_t i = 0; i < RF_COUNT(dims); i++)
            for (uint64_t rows = 1; rows <= 17; rows += 16) {
                struct shape s = {2, 4, i % 2 ? 1 : 4,   rows,     dims[i],       16,
                                  3, 0, RF_LAYOUT_DENSE, FILL_ANY, RF_DATA_NORMAL};
                add(list, &s, rf_case_floats[t], rf_case_floats[t], RF_ATTENTION_AUTO, false);
                if (dims[i] % 32 == 0) add(list, &s, rf_case_floats[t], RF_Q8_0, RF_ATTENTION_AUTO, false);
                if (rf_case_floats[t] != RF_F32) add(list, &s, RF_F32, rf_case_floats[t], RF_ATTENTION_AUTO, false);
                /* Several pages, each of which holds whole tiles of keys. */
                s.page_rows = 128;
                s.table_width = 4;
                if (rows == 1) add(list, &s, rf_case_floats[t], rf_case_floats[t], RF_ATTENTION_AUTO, false);
                if (rows == 1 && dims[i] % 64 == 0)
                    add(list, &s, rf_case_floats[t], RF_Q8_0, RF_ATTENTION_AUTO, false);
            }
    }
    struct shape large = {8, 32, 8, 1, 128, 64, 256, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL};
    add(list, &large, RF_F16, RF_F16, RF_ATTENTION_AUTO, true);
    add(list, &large, RF_F32, RF_F16, RF_ATTENTION_AUTO, true);
    add(list, &large, RF_BF16, RF_BF16, RF_ATTENTION_AUTO, true);
    add(list, &large, RF_F16, RF_Q8_0, RF_ATTENTION_AUTO, true);
    large.table_width = 0;
    large.page_rows = 16384;
    add(list, &large, RF_F16, RF_F16, RF_ATTENTION_AUTO, true);
    /* A model's prompt, and its decoding with f32 queries: one sequence. */
    struct shape prompt = {1, 32, 8, 4096, 128, 256, 16, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL};
    add(list, &prompt, RF_F16, RF_F16, RF_ATTENTION_AUTO, true);
    static const uint64_t contexts[] = {128, 1024, 4096, 16384};
    for (size_t i = 0; i < RF_COUNT(contexts); i++) {
        struct shape s = {1, 32, 8, 1, 128, 64, contexts[i] / 64, 0, RF_LAYOUT_DENSE, FILL_FULL, RF_DATA_NORMAL};
        add(list, &s, RF_F32, RF_F16, RF_ATTENTION_AUTO, true);
    }
}

const struct rf_op rf_op_paged_attention = {
    .name = "paged_attention",
    .summary = "flash_attention over keys in pages (of q's type or q8_0), query i at lengths[b] - rows + i",
    .inputs = 5,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0), RF_ATTRIBUTE_I(max_length, 0), RF_ATTRIBUTE_I(path, 1),
                                RF_ATTRIBUTE_I(fresh, 2)),
    .optional = 1 << TABLE,
    .check = check,
    .reference = reference,
    .gpu = gpu_run,
    .cpu = cpu_run,
    .workspace = workspace,
    .counters = counters,
    .cases = cases,
    .fill = fill,
    .cost = cost,
};
