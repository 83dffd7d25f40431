/* Attention over paged keys and values: decoding and prefill, with a block table and without one. */
#include "attention_testing.h"

struct paged_case {
    enum rf_dtype dtype;
    uint64_t batch, heads_q, heads_kv, q_rows, dim;
    uint64_t page_rows, table_width; /* table_width 0: no table */
    uint64_t max_length;             /* 0: as many as the table names */
    enum layout layout;
    enum rf_attention_path path;
    bool holes; /* with page numbers that name no page */
};

static struct rf_operand words(struct gpu *gpu, const uint32_t *from, uint64_t count) {
    struct rf_buffer *buffer = gpu_buffer(gpu, count * 4);
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, buffer, 0, from, count * 4));
    return (struct rf_operand){buffer, 0};
}

/* The launch's workspace, filled with ones, and its counters. */
static void make_room(struct gpu *gpu, struct rf_paged_attention_launch *launch) {
    uint64_t bytes = 0, counters = 0;
    RF_ASSERT_OK(rf_gpu_paged_attention_workspace(launch, &bytes));
    RF_ASSERT_OK(rf_gpu_paged_attention_counters(launch, &counters));
    RF_ASSERT((bytes > 0) == (counters > 0));
    if (!bytes) return;
    launch->workspace.buffer = gpu_buffer(gpu, bytes);
    launch->counters.buffer = gpu_buffer(gpu, counters);
    RF_ASSERT_OK(rf_fill(gpu->queue, launch->workspace.buffer, 0, bytes, 0xff));
    RF_ASSERT_OK(rf_fill(gpu->queue, launch->counters.buffer, 0, counters, 0));
}
static void drop_room(struct gpu *gpu, struct rf_paged_attention_launch *launch) {
    uint32_t counter = 1;
    for (uint64_t i = 0; launch->counters.buffer && i < rf_buffer_bytes(launch->counters.buffer) / 4; i++) {
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, &counter, launch->counters.buffer, i * 4, 4));
        RF_EXPECT_UINT(counter, 0);
    }
    RF_ASSERT_OK(rf_buffer_destroy(&launch->workspace.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&launch->counters.buffer));
}

/* Sets everything but table, lengths, workspace and counters. k and v are pages; max_length 0: as many as the table
 * names. */
static struct rf_paged_attention_launch launch_of(const struct heads *q, const struct heads *k, const struct heads *v,
                                                  const struct heads *out, uint64_t table_width, uint64_t max_length,
                                                  float scale) {
    uint64_t room = k->rows * (table_width ? table_width : 1);
    return (struct rf_paged_attention_launch){.args = {.out = out->strides,
                                                       .q = q->strides,
                                                       .k = k->strides,
                                                       .v = v->strides,
                                                       .batch = q->batch,
                                                       .heads_q = q->heads,
                                                       .heads_kv = k->heads,
                                                       .q_rows = q->rows,
                                                       .dim = q->dim,
                                                       .page_rows = k->rows,
                                                       .page_count = k->batch,
                                                       .table_width = table_width,
                                                       .max_length = max_length ? max_length : room,
                                                       .scale = scale,
                                                       .fresh = RF_ALL_FRESH},
                                              .dtype = q->dtype,
                                              .cache_dtype = k->dtype,
                                              .out = out->at,
                                              .q = q->at,
                                              .k = k->at,
                                              .v = v->at};
}

static struct rf_compare paged_tolerance(enum rf_dtype dtype) {
    return dtype == RF_F32   ? rf_within(1e-5, 1e-5)
           : dtype == RF_F16 ? rf_within(2e-3, 2e-3)
                             : rf_within(1.5e-2, 1.5e-2);
}

/* Pages are in random order; the lengths are of all kinds: none, one, full, too long. */
static void paged(struct gpu *gpu, struct rf_random *random, const struct paged_case *c) {
    RF_TRACE("%s batch %d heads %d/%d q %d dim %d pages %dx%d most %d layout %d path %d holes %d",
             rf_dtype_name(c->dtype), (int)c->batch, (int)c->heads_q, (int)c->heads_kv, (int)c->q_rows, (int)c->dim,
             (int)c->table_width, (int)c->page_rows, (int)c->max_length, c->layout, c->path, c->holes);
    uint64_t page_count = c->batch * (c->table_width ? c->table_width : 1) + 2;
    uint64_t room = c->page_rows * (c->table_width ? c->table_width : 1);
    struct heads q = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_q, c->q_rows, c->dim);
    struct heads k =
        heads_make(gpu->queue, random, c->dtype, c->layout, page_count, c->heads_kv, c->page_rows, c->dim);
    struct heads v =
        heads_make(gpu->queue, random, c->dtype, c->layout, page_count, c->heads_kv, c->page_rows, c->dim);
    struct heads out = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_q, c->q_rows, c->dim);
    uint32_t *table = malloc((c->batch * c->table_width + 1) * 4), *lengths = malloc(c->batch * 4);
    for (uint64_t i = 0; i < c->batch * c->table_width; i++) table[i] = (uint32_t)(page_count - 1 - i);
    for (uint64_t i = c->batch * c->table_width; i > 1; i--) {
        uint64_t j = rf_random_below(random, i);
        uint32_t swap = table[i - 1];
        table[i - 1] = table[j];
        table[j] = swap;
    }
    for (uint64_t i = 0; c->holes && i < c->batch * c->table_width; i += 3)
        table[i] = i % 2 ? (uint32_t)page_count : UINT32_MAX;
    for (uint64_t b = 0; b < c->batch; b++) {
        uint64_t kinds[] = {room, 1 + rf_random_below(random, room), 0, 1, room + 77};
        lengths[b] = (uint32_t)kinds[b < 5 ? b : 1];
    }
    struct rf_paged_attention_launch launch =
        launch_of(&q, &k, &v, &out, c->table_width, c->max_length, 1 / sqrtf((float)c->dim));
    rf_ref_paged_attention(c->dtype, c->dtype, heads_data(&out), heads_data(&q), heads_data(&k), heads_data(&v),
                           c->table_width ? table : NULL, lengths, &launch.args);
    launch.path = c->path;
    launch.lengths = words(gpu, lengths, c->batch);
    if (c->table_width) launch.table = words(gpu, table, c->batch * c->table_width);
    make_room(gpu, &launch);
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    heads_compare(gpu->queue, &out, paged_tolerance(c->dtype));
    /* A second run gives the same bits. */
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, out.host, out.buffer, 0, rf_buffer_bytes(out.buffer)));
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    heads_compare(gpu->queue, &out, rf_same_bits());
    RF_ASSERT_OK(rf_buffer_destroy(&launch.lengths.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&launch.table.buffer));
    drop_room(gpu, &launch);
    free(table);
    free(lengths);
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&v);
    heads_drop(&out);
}

static void decode(struct gpu *gpu) {
    static const struct paged_case cases[] = {
        {RF_F32, 1, 1, 1, 1, 8, 1, 1, 0, DENSE, RF_ATTENTION_AUTO, false},
        {RF_F32, 5, 2, 2, 1, 64, 16, 3, 0, DENSE, RF_ATTENTION_AUTO, false},
        {RF_F16, 5, 4, 1, 1, 128, 16, 20, 0, SPREAD, RF_ATTENTION_AUTO, false},
        {RF_BF16, 2, 16, 2, 1, 80, 32, 9, 0, DENSE, RF_ATTENTION_AUTO, true},
        {RF_F32, 2, 10, 1, 1, 256, 8, 41, 300, SPREAD, RF_ATTENTION_AUTO, true},
        {RF_F16, 3, 3, 1, 1, 256, 64, 5, 0, DENSE, RF_ATTENTION_AUTO, false},
        {RF_F16, 3, 4, 2, 1, 96, 333, 0, 0, SPREAD, RF_ATTENTION_AUTO, false}, /* no table */
        {RF_BF16, 2, 2, 2, 1, 40, 130, 0, 129, DENSE, RF_ATTENTION_AUTO, false},
        {RF_F32, 1, 12, 4, 1, 136, 4, 64, 0, DENSE, RF_ATTENTION_AUTO, false},
    };
    struct rf_random random = {rf_test_seed() + 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) paged(gpu, &random, &cases[i]);
    for (int i = 0; i < 6; i++) {
        static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
        struct paged_case c = {types[i % 3],
                               1 + rf_random_below(&random, 4),
                               0,
                               PICK(&random, 1, 2),
                               1,
                               8 * (1 + rf_random_below(&random, 32)),
                               PICK(&random, 1, 16, 64),
                               1 + rf_random_below(&random, 6),
                               0,
                               i % 2 ? SPREAD : DENSE,
                               RF_ATTENTION_AUTO,
                               i == 4};
        c.heads_q = c.heads_kv * PICK(&random, 1, 2, 4, 7, 9);
        paged(gpu, &random, &c);
    }
}
ATTENTION_TEST(paged, decode, decode)

static void prefill(struct gpu *gpu) {
    static const struct paged_case cases[] = {
        {RF_F32, 3, 2, 1, 5, 64, 16, 4, 0, DENSE, RF_ATTENTION_AUTO, false},
        {RF_F32, 2, 2, 2, 40, 128, 8, 9, 0, SPREAD, RF_ATTENTION_AUTO, true},
        {RF_F16, 3, 2, 1, 33, 64, 16, 6, 0, DENSE, RF_ATTENTION_PLAIN, true},
        {RF_F16, 3, 2, 1, 33, 64, 16, 6, 0, SPREAD, RF_ATTENTION_MATRIX, true},
        {RF_BF16, 2, 2, 1, 70, 128, 32, 5, 0, DENSE, RF_ATTENTION_MATRIX, false},
        {RF_F16, 1, 1, 1, 17, 256, 4, 20, 0, DENSE, RF_ATTENTION_MATRIX, true},
        {RF_F16, 2, 2, 2, 9, 72, 101, 0, 90, SPREAD, RF_ATTENTION_MATRIX, false}, /* no table */
        {RF_BF16, 1, 2, 2, 66, 32, 64, 3, 0, DENSE, RF_ATTENTION_AUTO, false},
    };
    struct rf_random random = {rf_test_seed() + 2};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) paged(gpu, &random, &cases[i]);
}
ATTENTION_TEST(paged, prefill, prefill)

/* One query at a time and all queries at once give the same result. */
static void decode_is_prefill(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 3};
    enum { ROWS = 16, WIDTH = 20, LENGTH = 300, DIM = 64, HEADS = 4 };
    struct heads q = heads_make(gpu->queue, &random, RF_F32, DENSE, 1, HEADS, 2, DIM);
    struct heads k = heads_make(gpu->queue, &random, RF_F32, DENSE, WIDTH, 1, ROWS, DIM);
    struct heads out = heads_make(gpu->queue, &random, RF_F32, DENSE, 1, HEADS, 2, DIM);
    uint32_t table[WIDTH], length = LENGTH;
    for (uint32_t i = 0; i < WIDTH; i++) table[i] = WIDTH - 1 - i;
    struct rf_paged_attention_launch launch = launch_of(&q, &k, &k, &out, WIDTH, 0, 0.125f);
    launch.table = words(gpu, table, WIDTH);
    launch.lengths = words(gpu, &length, 1);
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, out.host, out.buffer, 0, rf_buffer_bytes(out.buffer)));
    RF_ASSERT_OK(rf_fill(gpu->queue, out.buffer, 0, HEADS * 2 * DIM * 4, 0));
    /* Row 1 of each head as a single query, through strides; then row 0 with one key fewer. */
    launch.args.q_rows = 1;
    make_room(gpu, &launch);
    RF_ASSERT(launch.workspace.buffer != NULL);
    launch.q.offset_bytes = launch.out.offset_bytes = DIM * 4;
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    struct rf_operand shorter = words(gpu, (const uint32_t[]){LENGTH - 1}, 1), longer = launch.lengths;
    launch.lengths = shorter;
    launch.q.offset_bytes = launch.out.offset_bytes = 0;
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    heads_compare(gpu->queue, &out, rf_within(1e-6, 1e-5));
    RF_ASSERT_OK(rf_buffer_destroy(&shorter.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&longer.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&launch.table.buffer));
    drop_room(gpu, &launch);
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&out);
}
ATTENTION_TEST(paged, decode_equals_prefill, decode_is_prefill)

/* What lies in a page behind the last key does not matter, even if it is no number; nor does a page that does not
 * exist. Values are 1, so every query that sees a key gives 1. */
static void behind_the_end(struct gpu *gpu, enum rf_attention_path path) {
    enum { HEADS = 2, ROWS = 70, DIM = 64, PAGE = 128, PAGES = 3, LENGTH = 2 * PAGE + 22 };
    static uint16_t cache[PAGES][PAGE][DIM], from[HEADS * ROWS * DIM], to[HEADS * ROWS * DIM];
    static const uint32_t table[] = {2, 7, 0}, lengths[] = {LENGTH};
    RF_TRACE("path %d", (int)path);
    for (int i = 0; i < HEADS * ROWS * DIM; i++) from[i] = (uint16_t)(0x3000 + i % 512);
    for (int key = 0; key < 3 * PAGE; key++)
        for (int d = 0; d < DIM && table[key / PAGE] < PAGES; d++)
            cache[table[key / PAGE]][key % PAGE][d] = key < LENGTH ? 0x3c00 : 0x7e00;
    struct rf_buffer *k = gpu_buffer(gpu, sizeof cache), *q = gpu_buffer(gpu, sizeof from),
                     *out = gpu_buffer(gpu, sizeof to);
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, k, 0, cache, sizeof cache));
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, q, 0, from, sizeof from));
    struct rf_operand pages = words(gpu, table, 3), length = words(gpu, lengths, 1);
    struct rf_head_strides queries = {HEADS * ROWS * DIM, ROWS * DIM, DIM}, keys = {PAGE * DIM, PAGE * DIM, DIM};
    struct rf_paged_attention_launch launch = {.args = {.out = queries,
                                                        .q = queries,
                                                        .k = keys,
                                                        .v = keys,
                                                        .batch = 1,
                                                        .heads_q = HEADS,
                                                        .heads_kv = 1,
                                                        .q_rows = ROWS,
                                                        .dim = DIM,
                                                        .page_rows = PAGE,
                                                        .page_count = PAGES,
                                                        .table_width = 3,
                                                        .max_length = 3 * PAGE,
                                                        .scale = 0.125f,
                                                        .fresh = RF_ALL_FRESH},
                                               .dtype = RF_F16,
                                               .cache_dtype = RF_F16,
                                               .path = path,
                                               .out = {out, 0},
                                               .q = {q, 0},
                                               .k = {k, 0},
                                               .v = {k, 0},
                                               .table = pages,
                                               .lengths = length};
    RF_ASSERT_OK(rf_gpu_paged_attention(gpu->queue, &launch));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, to, out, 0, sizeof to));
    for (int i = 0; i < HEADS * ROWS * DIM; i++)
        if (to[i] != 0x3c00) RF_FAIL("element %d is 0x%04x", i, to[i]);
    struct rf_buffer *all[] = {k, q, out, pages.buffer, length.buffer};
    for (size_t i = 0; i < RF_COUNT(all); i++) RF_ASSERT_OK(rf_buffer_destroy(&all[i]));
}
RF_TEST(paged, what_lies_behind_the_end_does_not_matter, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    behind_the_end(&gpu, RF_ATTENTION_PLAIN);
    behind_the_end(&gpu, RF_ATTENTION_MATRIX);
    gpu_close(&gpu);
}
RF_TEST(paged, nor_by_groups) {
    struct gpu gpu = {0};
    gpu_need_groups("arch=sm_90");
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=guard,poison", NULL});
    gpu_open(&gpu, NULL);
    behind_the_end(&gpu, RF_ATTENTION_GROUP);
    gpu_close(&gpu);
}

RF_TEST(paged, bad_input_is_refused, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 4};
    struct heads q = heads_make(gpu.queue, &random, RF_F32, DENSE, 2, 2, 1, 64);
    struct heads k = heads_make(gpu.queue, &random, RF_F32, DENSE, 40, 2, 16, 64);
    struct heads out = heads_make(gpu.queue, &random, RF_F32, DENSE, 2, 2, 1, 64);
    struct rf_buffer *table = gpu_buffer(&gpu, 2 * 20 * 4), *lengths = gpu_buffer(&gpu, 8);
    RF_ASSERT_OK(rf_fill(gpu.queue, table, 0, 2 * 20 * 4, 0));
    RF_ASSERT_OK(rf_fill(gpu.queue, lengths, 0, 8, 0));
    struct rf_paged_attention_launch good = launch_of(&q, &k, &k, &out, 20, 0, 1), bad;
    good.table.buffer = table;
    good.lengths.buffer = lengths;
    uint64_t bytes;
    RF_ASSERT_OK(rf_gpu_paged_attention_workspace(&good, &bytes));
    RF_ASSERT(bytes > 0);
    make_room(&gpu, &good);
#define PAGED_REFUSED(change, status, words_)                                                                        \
    bad = good;                                                                                                      \
    bad.change;                                                                                                      \
    RF_EXPECT_STATUS(rf_gpu_paged_attention(gpu.queue, &bad), status);                                               \
    RF_EXPECT_CONTAINS(rf_error_text(), "paged_attention");                                                          \
    RF_EXPECT_CONTAINS(rf_error_text(), words_)
    PAGED_REFUSED(args.page_rows = 15, RF_E_UNSUPPORTED, "power of two");
    PAGED_REFUSED(args.page_count = 41, RF_E_INVALID, "k takes");
    PAGED_REFUSED(args.table_width = 21, RF_E_INVALID, "table takes");
    PAGED_REFUSED(table.buffer = NULL, RF_E_INVALID, "together");
    PAGED_REFUSED(lengths.buffer = NULL, RF_E_INVALID, "no buffer for lengths");
    PAGED_REFUSED(workspace.buffer = NULL, RF_E_INVALID, "no buffer for workspace");
    PAGED_REFUSED(workspace.offset_bytes = 16, RF_E_INVALID, "workspace takes");
    PAGED_REFUSED(workspace.offset_bytes = 4, RF_E_INVALID, "no multiple of 16");
    PAGED_REFUSED(args.max_length = 321, RF_E_INVALID, "max_length");
    PAGED_REFUSED(args.dim = 12, RF_E_UNSUPPORTED, "multiple of 8");
    PAGED_REFUSED(args.heads_kv = 0, RF_E_INVALID, "no multiple");
    PAGED_REFUSED(dtype = RF_Q8_0, RF_E_UNSUPPORTED, "no kernel for");
    PAGED_REFUSED(cache_dtype = RF_Q4_0, RF_E_UNSUPPORTED, "another type than the queries");
    PAGED_REFUSED(out = q.at, RF_E_INVALID, "overlaps q");
    PAGED_REFUSED(workspace.buffer = k.buffer, RF_E_INVALID, "workspace overlaps k");
    PAGED_REFUSED(counters.buffer = NULL, RF_E_INVALID, "no buffer for counters");
    PAGED_REFUSED(counters.offset_bytes = 4, RF_E_INVALID, "counters takes");
    PAGED_REFUSED(counters.offset_bytes = 2, RF_E_INVALID, "no multiple of 4");
    PAGED_REFUSED(counters.buffer = table, RF_E_INVALID, "counters overlaps table");
    PAGED_REFUSED(counters = good.workspace, RF_E_INVALID, "workspace overlaps counters");
    PAGED_REFUSED(counters.buffer = out.buffer, RF_E_INVALID, "counters overlaps out");
    RF_EXPECT_STATUS(rf_gpu_paged_attention_workspace(NULL, &bytes), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_gpu_paged_attention_counters(&good, NULL), RF_E_INVALID);
    RF_EXPECT_OK(rf_gpu_paged_attention(gpu.queue, &good)); /* lengths 0: zeros */
    for (uint64_t i = 0; i < 2 * 2 * 64; i++) rf_element_set(RF_F32, out.host, i, 0);
    heads_compare(gpu.queue, &out, rf_exact());
    RF_ASSERT_OK(rf_buffer_destroy(&table));
    RF_ASSERT_OK(rf_buffer_destroy(&lengths));
    drop_room(&gpu, &good);
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&out);
    gpu_close(&gpu);
}
