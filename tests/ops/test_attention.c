/* Attention in pieces and fused: qkt_matmul, causal_mask, weighted_matmul, flash_attention. */
#include "attention_testing.h"

#include <pthread.h>
#include <stdio.h>

/* ---- flash_attention ---- */

struct flash_case {
    enum rf_dtype dtype;
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    bool causal;
    int64_t offset;
    bool mask;
    enum layout layout;
    enum rf_attention_path path;
};

/* A matrix kernel rounds the weights to the type, in addition to rounding the result. */
static struct rf_compare flash_tolerance(enum rf_dtype dtype) {
    return dtype == RF_F32   ? rf_within(1e-5, 1e-5)
           : dtype == RF_F16 ? rf_within(2e-3, 2e-3)
                             : rf_within(1.5e-2, 1.5e-2);
}

static void flash(struct gpu *gpu, struct rf_random *random, const struct flash_case *c) {
    RF_TRACE("%s batch %d heads %d/%d rows %dx%d dim %d causal %d%+d mask %d layout %d path %d",
             rf_dtype_name(c->dtype), (int)c->batch, (int)c->heads_q, (int)c->heads_kv, (int)c->q_rows,
             (int)c->k_rows, (int)c->dim, c->causal, (int)c->offset, c->mask, c->layout, c->path);
    struct heads q = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_q, c->q_rows, c->dim);
    struct heads k = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_kv, c->k_rows, c->dim);
    struct heads v = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_kv, c->k_rows, c->dim);
    struct heads out = heads_make(gpu->queue, random, c->dtype, c->layout, c->batch, c->heads_q, c->q_rows, c->dim);
    struct heads mask = heads_make(gpu->queue, random, RF_F32, DENSE, c->batch, 1, c->q_rows, c->k_rows);
    float *m = heads_data(&mask);
    for (uint64_t i = 0; i < c->batch * c->q_rows * c->k_rows; i++)
        if (rf_random_below(random, 3) == 0) m[i] = -INFINITY;
    if (c->batch && c->q_rows)
        for (uint64_t j = 0; j < c->k_rows; j++) m[j] = -INFINITY; /* the first query sees nothing */
    heads_upload(gpu->queue, &mask);
    float scale = 1 / sqrtf((float)c->dim);
    struct rf_flash_attention_launch launch = heads_flash(&q, &k, &v, &out, scale);
    if (c->causal) launch.args.offset = c->offset;
    launch.args.mask = (struct rf_head_strides){c->q_rows * c->k_rows, 0, c->k_rows};
    launch.path = c->path;
    if (c->mask) launch.mask = mask.at;
    heads_flash_reference(&launch, &q, &k, &v, &out, c->mask ? m : NULL);
    RF_ASSERT_OK(rf_gpu_flash_attention(gpu->queue, &launch));
    heads_compare(gpu->queue, &out, flash_tolerance(c->dtype));
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&v);
    heads_drop(&out);
    heads_drop(&mask);
}

static void flash_f32(struct gpu *gpu) {
    static const struct flash_case cases[] = {
        {RF_F32, 1, 1, 1, 1, 1, 8, false, 0, false, DENSE, RF_ATTENTION_AUTO},
        {RF_F32, 2, 2, 2, 32, 32, 32, false, 0, false, DENSE, RF_ATTENTION_AUTO},
        {RF_F32, 1, 2, 1, 33, 65, 64, true, 32, false, SPREAD, RF_ATTENTION_AUTO},
        {RF_F32, 2, 3, 3, 7, 97, 80, false, 0, true, DENSE, RF_ATTENTION_AUTO},
        {RF_F32, 1, 4, 2, 61, 61, 96, true, 0, true, SPREAD, RF_ATTENTION_AUTO},
        {RF_F32, 1, 2, 2, 40, 31, 128, true, -9, false, DENSE, RF_ATTENTION_AUTO},
        {RF_F32, 1, 1, 1, 35, 70, 256, true, 35, false, SPREAD, RF_ATTENTION_AUTO},
        {RF_F32, 1, 1, 1, 5, 0, 64, false, 0, false, DENSE, RF_ATTENTION_AUTO}, /* no keys: zeros */
        {RF_F32, 0, 1, 1, 5, 4, 64, false, 0, false, DENSE, RF_ATTENTION_AUTO}, /* nothing to do */
        {RF_F32, 1, 2, 1, 9, 40, 136, false, 0, true, DENSE, RF_ATTENTION_AUTO},
    };
    struct rf_random random = {rf_test_seed() + 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) flash(gpu, &random, &cases[i]);
    for (int i = 0; i < 10; i++) {
        struct flash_case c = {RF_F32,
                               PICK(&random, 1, 2),
                               0,
                               PICK(&random, 1, 2),
                               PICK(&random, 1, 13, 32, 47),
                               PICK(&random, 1, 31, 64, 101),
                               8 * (1 + rf_random_below(&random, 32)),
                               rf_random_below(&random, 2),
                               (int64_t)rf_random_below(&random, 40) - 5,
                               rf_random_below(&random, 2),
                               rf_random_below(&random, 2) ? SPREAD : DENSE,
                               RF_ATTENTION_AUTO};
        c.heads_q = c.heads_kv * PICK(&random, 1, 3);
        flash(gpu, &random, &c);
    }
}
ATTENTION_TEST(attention, flash_f32, flash_f32)

static void flash_16(struct gpu *gpu) {
    static const uint64_t dims[] = {32, 64, 80, 96, 128, 256, 8, 40, 112, 200};
    struct rf_random random = {rf_test_seed() + 2};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int path = RF_ATTENTION_PLAIN; path <= RF_ATTENTION_WIDE; path++) {
            bool odd = d % 2;
            if (path == RF_ATTENTION_WIDE && (dims[d] <= 96 || dims[d] > 128)) continue;
            struct flash_case c = {odd ? RF_BF16 : RF_F16,
                                   1,
                                   2,
                                   odd ? 1 : 2,
                                   PICK(&random, 1, 17, 65, 71),
                                   PICK(&random, 3, 33, 70, 129),
                                   dims[d],
                                   rf_random_below(&random, 2),
                                   0,
                                   rf_random_below(&random, 3) == 0,
                                   rf_random_below(&random, 2) ? SPREAD : DENSE,
                                   (enum rf_attention_path)path};
            c.offset = (int64_t)c.k_rows - (int64_t)c.q_rows;
            flash(gpu, &random, &c);
            c.dtype = odd ? RF_F16 : RF_BF16;
            c.causal = !c.causal;
            c.offset += 7;
            if (path == RF_ATTENTION_MATRIX) flash(gpu, &random, &c);
        }
}
ATTENTION_TEST(attention, flash_16_bit, flash_16)

/* By groups of waves: the simulated driver plays an sm_90, and the build has sm_90a. Several tiles for each block and
 * several turns for each tile, heads in groups, sequences that see all or a part, queries that see nothing; drawn by
 * the test's seed besides. */
static int by_groups, by_others;
static void count_flash(const char *line) {
    by_groups += strstr(line, "launch flash_attention_group_") != NULL;
    by_others += strstr(line, "launch flash_attention_matrix_") != NULL;
}
static void flash_by_groups(const char *rfsim, int drawn) {
    static const struct flash_case cases[] = {
        {RF_F16, 1, 1, 1, 1, 1, 8, false, 0, false, DENSE, RF_ATTENTION_GROUP},
        {RF_F16, 1, 4, 2, 300, 300, 128, true, 0, false, DENSE, RF_ATTENTION_GROUP},
        {RF_BF16, 2, 2, 1, 257, 129, 128, true, -130, false, SPREAD, RF_ATTENTION_GROUP},
        {RF_F16, 2, 3, 3, 130, 400, 64, true, 270, false, SPREAD, RF_ATTENTION_GROUP},
        {RF_BF16, 1, 2, 1, 200, 333, 80, false, 0, false, DENSE, RF_ATTENTION_GROUP},
        {RF_F16, 1, 2, 2, 140, 200, 256, true, 60, false, DENSE, RF_ATTENTION_GROUP},
        {RF_BF16, 1, 1, 1, 65, 129, 192, false, 0, false, SPREAD, RF_ATTENTION_GROUP},
        {RF_F16, 1, 6, 2, 96, 96, 96, true, 0, false, DENSE, RF_ATTENTION_GROUP}};
    gpu_need_groups(rfsim);
    struct gpu gpu = {0};
    struct rf_random random = {rf_test_seed() + 6};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_LOG=debug", "RF_CHECK=guard,poison", NULL});
    gpu_open(&gpu, NULL);
    gpu_on_log = count_flash;
    for (size_t i = 0; i < RF_COUNT(cases); i++) flash(&gpu, &random, &cases[i]);
    for (int i = 0; i < drawn; i++) {
        uint64_t heads = 1 + rf_random_below(&random, 2);
        struct flash_case c = {rf_random_below(&random, 2) ? RF_BF16 : RF_F16,
                               1 + rf_random_below(&random, 2),
                               heads * (1 + rf_random_below(&random, 2)),
                               heads,
                               1 + rf_random_below(&random, 280),
                               1 + rf_random_below(&random, 400),
                               8 * (1 + rf_random_below(&random, 32)),
                               rf_random_below(&random, 2),
                               0,
                               false,
                               rf_random_below(&random, 2) ? SPREAD : DENSE,
                               RF_ATTENTION_GROUP};
        c.offset = (int64_t)c.k_rows - (int64_t)c.q_rows + (int64_t)rf_random_below(&random, 3) - 1;
        flash(&gpu, &random, &c);
    }
    RF_EXPECT_INT(by_groups, (int)RF_COUNT(cases) + drawn);
    /* By itself where at least 64 tiles of 128 queries are there, and never with a mask. */
    struct flash_case few = {RF_F16, 1, 64, 64, 127, 3, 8, false, 0, false, DENSE, RF_ATTENTION_AUTO}, many = few,
                      masked = few;
    many.q_rows = masked.q_rows = 128;
    masked.mask = true;
    by_groups = by_others = 0;
    flash(&gpu, &random, &few);
    flash(&gpu, &random, &masked);
    RF_EXPECT_INT(by_groups, 0);
    RF_EXPECT_INT(by_others, 2);
    flash(&gpu, &random, &many);
    RF_EXPECT_INT(by_groups, 1);
    gpu_close(&gpu);
}
RF_TEST(attention, flash_by_groups, .timeout_ms = 1500000) {
    flash_by_groups("arch=sm_90,units=3", 4);
}
RF_TEST(attention, flash_by_groups_in_any_order, .timeout_ms = 1500000) {
    flash_by_groups("arch=sm_90,units=2,shuffle=13", 2);
}
RF_TEST(attention, flash_by_groups_at_many_seeds, .timeout_ms = 3000000, .tags = "slow") {
    flash_by_groups("arch=sm_90,units=5,shuffle=3", 60);
}

static void flash_same_bits(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 3};
    for (int path = RF_ATTENTION_PLAIN; path <= RF_ATTENTION_MATRIX; path++) {
        enum rf_dtype dtype = RF_F16;
        struct heads q = heads_make(gpu->queue, &random, dtype, DENSE, 1, 2, 50, 64);
        struct heads k = heads_make(gpu->queue, &random, dtype, DENSE, 1, 1, 90, 64);
        struct heads v = heads_make(gpu->queue, &random, dtype, DENSE, 1, 1, 90, 64);
        struct heads out = heads_make(gpu->queue, &random, dtype, DENSE, 1, 2, 50, 64);
        struct rf_flash_attention_launch launch = heads_flash(&q, &k, &v, &out, 0.125f);
        launch.args.offset = 40;
        launch.path = (enum rf_attention_path)path;
        for (int run = 0; run < 3; run++) {
            RF_ASSERT_OK(rf_gpu_flash_attention(gpu->queue, &launch));
            if (run == 0) {
                RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, out.host, out.buffer, 0, out.count * 2));
            } else {
                heads_compare(gpu->queue, &out, rf_same_bits());
            }
        }
        heads_drop(&q);
        heads_drop(&k);
        heads_drop(&v);
        heads_drop(&out);
    }
}
ATTENTION_TEST(attention, flash_gives_the_same_bits, flash_same_bits)

/* ---- qkt_matmul and weighted_matmul ---- */

/* In both products the right operand has a row for each key. */
static struct rf_head_product_args product_args(const struct heads *out, const struct heads *left,
                                                const struct heads *right, float scale) {
    return (struct rf_head_product_args){.out = out->strides,
                                         .left = left->strides,
                                         .right = right->strides,
                                         .batch = left->batch,
                                         .heads_q = left->heads,
                                         .heads_kv = right->heads,
                                         .q_rows = left->rows,
                                         .k_rows = right->rows,
                                         .dim = right->dim,
                                         .scale = scale};
}

static void products(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t batch, uint64_t heads_q,
                     uint64_t heads_kv, uint64_t q_rows, uint64_t k_rows, uint64_t dim, enum layout layout,
                     double tolerance) {
    RF_TRACE("%s %d heads %d/%d %dx%d dim %d layout %d", rf_dtype_name(dtype), (int)batch, (int)heads_q,
             (int)heads_kv, (int)q_rows, (int)k_rows, (int)dim, layout);
    struct heads q = heads_make(gpu->queue, random, dtype, layout, batch, heads_q, q_rows, dim);
    struct heads k = heads_make(gpu->queue, random, dtype, layout, batch, heads_kv, k_rows, dim);
    struct heads out = heads_make(gpu->queue, random, dtype, layout, batch, heads_q, q_rows, dim);
    struct heads scores = heads_make(gpu->queue, random, RF_F32, DENSE, batch, heads_q, q_rows, k_rows);
    struct rf_head_product_args qkt = product_args(&scores, &q, &k, 0.3f);
    struct rf_head_product_args weighted = product_args(&out, &scores, &k, 0);
    /* The reference's scores become probabilities, like the weights of a row. */
    rf_ref_qkt_matmul(dtype, heads_data(&scores), heads_data(&q), heads_data(&k), &qkt);
    RF_ASSERT_OK(rf_gpu_qkt_matmul(gpu->queue, dtype, scores.at, q.at, k.at, &qkt));
    heads_compare(gpu->queue, &scores, rf_within(tolerance, tolerance));
    rf_ref_softmax(heads_data(&scores), heads_data(&scores),
                   &(struct rf_softmax_args){.rows = batch * heads_q * q_rows, .columns = k_rows});
    heads_upload(gpu->queue, &scores);
    rf_ref_weighted_matmul(dtype, heads_data(&out), heads_data(&scores), heads_data(&k), &weighted);
    RF_ASSERT_OK(rf_gpu_weighted_matmul(gpu->queue, dtype, out.at, scores.at, k.at, &weighted));
    double step = dtype == RF_F32 ? 0 : dtype == RF_F16 ? 1e-3 : 8e-3;
    heads_compare(gpu->queue, &out, rf_within(tolerance, tolerance + step));
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&out);
    heads_drop(&scores);
}

static void weighted_small(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 10};
    products(gpu, &random, RF_F32, 1, 1, 1, 2, 2, 2, DENSE, 1e-5);
    products(gpu, &random, RF_F32, 1, 2, 2, 4, 4, 4, DENSE, 1e-5);
}
static void weighted_32x32(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 11};
    products(gpu, &random, RF_F32, 2, 4, 4, 32, 32, 32, DENSE, 1e-5);
}
static void weighted_non_square(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 12};
    products(gpu, &random, RF_F32, 1, 2, 2, 8, 16, 32, DENSE, 1e-5);
    products(gpu, &random, RF_F32, 2, 3, 1, 17, 70, 19, SPREAD, 1e-5);
    products(gpu, &random, RF_F32, 1, 2, 2, 129, 65, 1, DENSE, 1e-5);
}
ATTENTION_TEST(attention, weighted_matmul_matches_cpu_small, weighted_small)
ATTENTION_TEST(attention, weighted_matmul_matches_cpu_32x32, weighted_32x32)
ATTENTION_TEST(attention, weighted_matmul_non_square_sequences, weighted_non_square)

static void products_of_all_types(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 13};
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    for (size_t t = 0; t < 3; t++) {
        products(gpu, &random, types[t], 1, 1, 1, 1, 1, 1, DENSE, 1e-5);
        products(gpu, &random, types[t], 1, 4, 2, 31, 67, 37, SPREAD, 1e-5);
        products(gpu, &random, types[t], 2, 2, 1, 64, 64, 64, DENSE, 1e-5);
        products(gpu, &random, types[t], 0, 2, 1, 64, 64, 64, DENSE, 1e-5);
        products(gpu, &random, types[t], 1, PICK(&random, 2, 6), 2, 1 + rf_random_below(&random, 90),
                 1 + rf_random_below(&random, 90), 1 + rf_random_below(&random, 140), SPREAD, 1e-5);
    }
}
ATTENTION_TEST(attention, products_of_all_types, products_of_all_types)

/* The fused case of the seeds (docs/from-the-seeds.md): 32 queries and keys, head size 32, not causal. */
static void flash_nocausal_32x32(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 14};
    for (int i = 0; i < 3; i++) {
        struct flash_case c = {i == 0 ? RF_F32 : i == 1 ? RF_F16 : RF_BF16,
                               1,
                               2,
                               2,
                               32,
                               32,
                               32,
                               false,
                               0,
                               false,
                               DENSE,
                               RF_ATTENTION_AUTO};
        flash(gpu, &random, &c);
    }
}
ATTENTION_TEST(attention, flash_attention_nocausal_matches_cpu_32x32, flash_nocausal_32x32)

/* ---- causal_mask ---- */

static void mask_once(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t batch, uint64_t heads,
                      uint64_t rows, uint64_t columns, int64_t offset, enum layout layout) {
    RF_TRACE("%s %dx%d rows %d columns %d offset %d layout %d", rf_dtype_name(dtype), (int)batch, (int)heads,
             (int)rows, (int)columns, (int)offset, layout);
    struct heads scores = heads_make(gpu->queue, random, dtype, layout, batch, heads, rows, columns);
    struct rf_causal_mask_args args = {scores.strides, batch, heads, rows, columns, offset};
    rf_ref_causal_mask(dtype, heads_data(&scores), &args);
    RF_ASSERT_OK(rf_gpu_causal_mask(gpu->queue, dtype, scores.at, &args));
    heads_compare(gpu->queue, &scores, rf_same_bits());
    heads_drop(&scores);
}

static void causal_mask(struct gpu *gpu) {
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    struct rf_random random = {rf_test_seed() + 20};
    for (size_t t = 0; t < 3; t++)
        for (int layout = DENSE; layout <= SPREAD; layout++) {
            mask_once(gpu, &random, types[t], 1, 1, 1, 1, 0, layout);
            mask_once(gpu, &random, types[t], 2, 3, 8, 8, 0, layout);
            mask_once(gpu, &random, types[t], 1, 2, 13, 29, 16, layout);
            mask_once(gpu, &random, types[t], 1, 2, 3, 1031, 400, layout);
            mask_once(gpu, &random, types[t], 1, 1, 9, 5, -4, layout);
            mask_once(gpu, &random, types[t], 2, 1, 4, 33, 1000, layout);  /* nothing hidden */
            mask_once(gpu, &random, types[t], 1, 1, 4, 37, -1000, layout); /* everything hidden */
            mask_once(gpu, &random, types[t], 1, 1, 2, 4500, 3, layout);
        }
}
ATTENTION_TEST(attention, causal_mask, causal_mask)

/* The seeds' large case has this shape; there are fewer heads if a host does the work. */
RF_TEST(attention, causal_mask_large_sequence, .gpu = true, .timeout_ms = 1500000) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 21};
    mask_once(&gpu, &random, RF_F32, 1, gpu_simulated() ? 1 : 8, 2048, 2048, 0, DENSE);
    gpu_close(&gpu);
}

/* ---- extreme values ---- */

RF_TEST(attention, extreme_scores_stay_finite, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 30};
    for (int path = RF_ATTENTION_PLAIN; path <= RF_ATTENTION_MATRIX; path++) {
        struct heads q = heads_make(gpu.queue, &random, RF_F16, DENSE, 1, 1, 20, 32);
        struct heads k = heads_make(gpu.queue, &random, RF_F16, DENSE, 1, 1, 40, 32);
        struct heads v = heads_make(gpu.queue, &random, RF_F16, DENSE, 1, 1, 40, 32);
        struct heads out = heads_make(gpu.queue, &random, RF_F16, DENSE, 1, 1, 20, 32);
        /* Scores of +-1e5 and more: one key takes all the weight. */
        for (uint64_t i = 0; i < 20 * 32; i++) rf_element_set(RF_F16, q.host, i, 100 * rf_random_normal(&random));
        for (uint64_t i = 0; i < 40 * 32; i++) rf_element_set(RF_F16, k.host, i, 100 * rf_random_normal(&random));
        rf_element_set(RF_F16, k.host, 32 * 7, NAN); /* hidden from the first 7 queries, makes the others NaN */
        heads_upload(gpu.queue, &q);
        heads_upload(gpu.queue, &k);
        struct rf_flash_attention_launch launch = heads_flash(&q, &k, &v, &out, 1);
        launch.args.offset = 0;
        launch.path = (enum rf_attention_path)path;
        heads_flash_reference(&launch, &q, &k, &v, &out, NULL);
        RF_ASSERT_OK(rf_gpu_flash_attention(gpu.queue, &launch));
        /* f32 scores near 1e5 are 0.01 apart. */
        heads_compare(gpu.queue, &out, rf_within(5e-2, 2e-2));
        heads_drop(&q);
        heads_drop(&k);
        heads_drop(&v);
        heads_drop(&out);
    }
    gpu_close(&gpu);
}

/* ---- refusals ---- */

#define REFUSED(call, status, words)                                                                                 \
    do {                                                                                                             \
        RF_EXPECT_STATUS(call, status);                                                                              \
        RF_EXPECT_CONTAINS(rf_error_text(), words);                                                                  \
    } while (0)

RF_TEST(attention, bad_input_is_refused_before_a_launch, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 40};
    struct heads t = heads_make(gpu.queue, &random, RF_F32, DENSE, 1, 4, 16, 64);
    struct heads o = heads_make(gpu.queue, &random, RF_F32, DENSE, 1, 4, 16, 64);
    const struct rf_flash_attention_launch good = heads_flash(&t, &t, &t, &o, 1);
    struct rf_flash_attention_launch bad;
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    uint64_t calls = gpu_sim_calls();
#define FLASH_REFUSED(change, status, words)                                                                         \
    bad = good;                                                                                                      \
    bad.change;                                                                                                      \
    REFUSED(rf_gpu_flash_attention(gpu.queue, &bad), status, words);                                                 \
    RF_EXPECT_CONTAINS(rf_error_text(), "flash_attention")
    FLASH_REFUSED(dtype = RF_Q4_0, RF_E_UNSUPPORTED, "q4_0");
    FLASH_REFUSED(args.heads_kv = 3, RF_E_INVALID, "no multiple");
    FLASH_REFUSED(args.heads_kv = 0, RF_E_INVALID, "no multiple");
    FLASH_REFUSED(args.heads_q = UINT64_C(1) << 32, RF_E_UNSUPPORTED, "query heads");
    FLASH_REFUSED(args.dim = 60, RF_E_UNSUPPORTED, "multiple of 8");
    FLASH_REFUSED(args.dim = 264, RF_E_UNSUPPORTED, "multiple of 8");
    FLASH_REFUSED(args.q_rows = 17, RF_E_INVALID, "of a buffer of");
    FLASH_REFUSED(args.k_rows = 1000, RF_E_INVALID, "of a buffer of");
    FLASH_REFUSED(args.batch = UINT64_C(1) << 60, RF_E_INVALID, "overflow");
    FLASH_REFUSED(args.q_rows = UINT64_C(1) << 40, RF_E_UNSUPPORTED, "queries");
    FLASH_REFUSED(args.offset = INT64_C(1) << 40, RF_E_INVALID, "an offset of 1099511627776");
    FLASH_REFUSED(q.offset_bytes = 4, RF_E_INVALID, "q");
    FLASH_REFUSED(out = t.at, RF_E_INVALID, "overlaps");
    FLASH_REFUSED(args.out.row = 32, RF_E_INVALID, "overlap");
    FLASH_REFUSED(v.buffer = NULL, RF_E_INVALID, "no buffer");
    FLASH_REFUSED(path = RF_ATTENTION_MATRIX, RF_E_UNSUPPORTED, "matrix");
    /* Inside the buffer, but misaligned by 8 bytes. */
    bad = good;
    bad.args.q_rows = 8;
    bad.q.offset_bytes = 8;
    REFUSED(rf_gpu_flash_attention(gpu.queue, &bad), RF_E_INVALID, "multiple of 16");
    bad = good;
    bad.args.heads_q = bad.args.heads_kv = 1;
    bad.args.q = (struct rf_head_strides){4096, 1024, 65};
    REFUSED(rf_gpu_flash_attention(gpu.queue, &bad), RF_E_INVALID, "strides of q");
    REFUSED(rf_gpu_flash_attention(gpu.queue, NULL), RF_E_INVALID, "NULL");
    REFUSED(rf_gpu_flash_attention(NULL, &good), RF_E_INVALID, "NULL");
    struct rf_head_product_args qkt = product_args(&o, &t, &t, 1);
    qkt.out = rf_head_strides_dense(4, 16, 16);
    REFUSED(rf_gpu_qkt_matmul(gpu.queue, RF_I32, o.at, t.at, t.at, &qkt), RF_E_UNSUPPORTED,
            "qkt_matmul: no kernel for");
    REFUSED(rf_gpu_qkt_matmul(gpu.queue, RF_F32, t.at, t.at, t.at, &qkt), RF_E_INVALID,
            "qkt_matmul: scores overlaps q");
    struct rf_head_product_args weighted = product_args(&o, &t, &t, 0);
    weighted.k_rows = 17;
    weighted.left = rf_head_strides_dense(4, 16, 17);
    weighted.right = rf_head_strides_dense(4, 17, 64);
    REFUSED(rf_gpu_weighted_matmul(gpu.queue, RF_F32, o.at, t.at, t.at, &weighted), RF_E_INVALID,
            "weighted_matmul: v takes");
    struct rf_causal_mask_args mask = {rf_head_strides_dense(4, 16, 65), 1, 4, 16, 65, 0};
    REFUSED(rf_gpu_causal_mask(gpu.queue, RF_F32, t.at, &mask), RF_E_INVALID, "causal_mask: scores takes");
    REFUSED(rf_gpu_causal_mask(gpu.queue, RF_U8, t.at, &mask), RF_E_UNSUPPORTED, "causal_mask: no kernel for");
    RF_EXPECT_UINT(gpu_sim_calls(), calls);
    RF_ASSERT_OK(rf_gpu_flash_attention(gpu.queue, &good));
    heads_drop(&t);
    heads_drop(&o);
    gpu_close(&gpu);
}

/* ---- from many threads: cases that once passed alone and failed together ---- */

enum { THREADS = 16, ROUNDS = 1000 };

struct crowd {
    struct gpu *gpu;
    int index;
    pthread_t thread;
};

static void *crowd_body(void *user) {
    struct crowd *me = user;
    struct gpu mine = *me->gpu;
    struct rf_random random = {rf_test_seed() + 1000 + (uint64_t)me->index};
    RF_PARAMS(struct rf_queue_params, params);
    RF_ASSERT_OK(rf_queue_create(mine.device, &params, &mine.queue));
    enum { BATCH = 1, HEADS = 1 };
    struct {
        uint64_t q, k, dim;
        double tolerance;
        struct heads weights, v, out;
        struct rf_head_product_args args;
    } weighted[3] = {{.q = 4, .k = 4, .dim = 4, .tolerance = 1e-5},
                     {.q = 32, .k = 32, .dim = 32, .tolerance = 1e-5},
                     {.q = 8, .k = 16, .dim = 32, .tolerance = 1e-5}};
    for (int i = 0; i < 3; i++) {
        weighted[i].weights =
            heads_make(mine.queue, &random, RF_F32, DENSE, BATCH, HEADS, weighted[i].q, weighted[i].k);
        weighted[i].v = heads_make(mine.queue, &random, RF_F32, DENSE, BATCH, HEADS, weighted[i].k, weighted[i].dim);
        weighted[i].out =
            heads_make(mine.queue, &random, RF_F32, DENSE, BATCH, HEADS, weighted[i].q, weighted[i].dim);
        weighted[i].args = product_args(&weighted[i].out, &weighted[i].weights, &weighted[i].v, 0);
        rf_ref_weighted_matmul(RF_F32, heads_data(&weighted[i].out), heads_data(&weighted[i].weights),
                               heads_data(&weighted[i].v), &weighted[i].args);
    }
    struct heads q = heads_make(mine.queue, &random, RF_F32, DENSE, 1, 1, 32, 32);
    struct heads k = heads_make(mine.queue, &random, RF_F32, DENSE, 1, 1, 32, 32);
    struct heads out = heads_make(mine.queue, &random, RF_F32, DENSE, 1, 1, 32, 32);
    struct rf_flash_attention_launch launch = heads_flash(&q, &k, &k, &out, 0.2f);
    heads_flash_reference(&launch, &q, &k, &k, &out, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            RF_ASSERT_OK(rf_fill(mine.queue, weighted[i].out.buffer, 0, weighted[i].q * weighted[i].dim * 4, 0xff));
            RF_ASSERT_OK(rf_gpu_weighted_matmul(mine.queue, RF_F32, weighted[i].out.at, weighted[i].weights.at,
                                                weighted[i].v.at, &weighted[i].args));
        }
        RF_ASSERT_OK(rf_fill(mine.queue, out.buffer, 0, 32 * 32 * 4, 0xff));
        RF_ASSERT_OK(rf_gpu_flash_attention(mine.queue, &launch));
        for (int i = 0; i < 3; i++)
            heads_compare(mine.queue, &weighted[i].out, rf_within(weighted[i].tolerance, weighted[i].tolerance));
        heads_compare(mine.queue, &out, rf_within(1e-5, 1e-5));
    }
    for (int i = 0; i < 3; i++) {
        heads_drop(&weighted[i].weights);
        heads_drop(&weighted[i].v);
        heads_drop(&weighted[i].out);
    }
    heads_drop(&q);
    heads_drop(&k);
    heads_drop(&out);
    RF_ASSERT_OK(rf_queue_destroy(&mine.queue));
    return NULL;
}

RF_TEST(attention, sixteen_threads_a_thousand_rounds, .gpu = true, .timeout_ms = 1800000, .tags = "slow,stress") {
    struct gpu gpu = {0};
    struct crowd crowd[THREADS];
    gpu_open(&gpu, NULL);
    for (int i = 0; i < THREADS; i++) {
        crowd[i] = (struct crowd){.gpu = &gpu, .index = i};
        RF_ASSERT_INT(pthread_create(&crowd[i].thread, NULL, crowd_body, &crowd[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(crowd[i].thread, NULL);
    gpu_close(&gpu);
}
