/* Multi-query and grouped attention: replicating key-value heads, and attention without replicating them. */
#include "attention_testing.h"

static void replicate(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t batch,
                      uint64_t heads_q, uint64_t heads_kv, uint64_t rows, uint64_t dim, enum layout in_layout,
                      enum layout out_layout) {
    RF_TRACE("%s %d heads %d/%d rows %d dim %d layouts %d %d", rf_dtype_name(dtype), (int)batch, (int)heads_q,
             (int)heads_kv, (int)rows, (int)dim, in_layout, out_layout);
    struct heads in = heads_make(gpu->queue, random, dtype, in_layout, batch, heads_kv, rows, dim);
    struct heads out = heads_make(gpu->queue, random, dtype, out_layout, batch, heads_q, rows, dim);
    struct rf_kv_replicate_args args = {out.strides, in.strides, batch, heads_q, heads_kv, rows, dim};
    rf_ref_kv_replicate(dtype, heads_data(&out), heads_data(&in), &args);
    RF_ASSERT_OK(rf_gpu_kv_replicate(gpu->queue, dtype, out.at, in.at, &args));
    heads_compare(gpu->queue, &out, rf_same_bits());
    heads_drop(&in);
    heads_drop(&out);
}

static void kv_replication(struct gpu *gpu) {
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    struct rf_random random = {rf_test_seed() + 1};
    for (size_t t = 0; t < 3; t++)
        for (int layouts = 0; layouts < 4; layouts++) {
            enum layout in = layouts & 1 ? SPREAD : DENSE, out = layouts & 2 ? SPREAD : DENSE;
            replicate(gpu, &random, types[t], 1, 1, 1, 1, 1, in, out);
            replicate(gpu, &random, types[t], 2, 8, 1, 5, 64, in, out);
            replicate(gpu, &random, types[t], 2, 6, 2, 7, 13, in, out);
            replicate(gpu, &random, types[t], 1, 4, 4, 33, 40, in, out);
            replicate(gpu, &random, types[t], 0, 4, 4, 33, 40, in, out);
            replicate(gpu, &random, types[t], PICK(&random, 1, 3), 12, PICK(&random, 1, 2, 3),
                      1 + rf_random_below(&random, 50), 1 + rf_random_below(&random, 130), in, out);
        }
}
ATTENTION_TEST(mqa, kv_replication, kv_replication)

/* Attention with few KV heads gives the same bits as attention with those heads replicated. */
static void replicated_is_grouped(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 2};
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    for (size_t t = 0; t < 3; t++)
        for (uint64_t heads_kv = 1; heads_kv <= 2; heads_kv++) {
            enum { BATCH = 2, HEADS = 4, ROWS = 19, KEYS = 45, DIM = 64 };
            struct heads q = heads_make(gpu->queue, &random, types[t], DENSE, BATCH, HEADS, ROWS, DIM);
            struct heads k = heads_make(gpu->queue, &random, types[t], DENSE, BATCH, heads_kv, KEYS, DIM);
            struct heads v = heads_make(gpu->queue, &random, types[t], SPREAD, BATCH, heads_kv, KEYS, DIM);
            struct heads all_k = heads_make(gpu->queue, &random, types[t], DENSE, BATCH, HEADS, KEYS, DIM);
            struct heads all_v = heads_make(gpu->queue, &random, types[t], SPREAD, BATCH, HEADS, KEYS, DIM);
            struct heads out = heads_make(gpu->queue, &random, types[t], DENSE, BATCH, HEADS, ROWS, DIM);
            struct rf_kv_replicate_args copy_k = {all_k.strides, k.strides, BATCH, HEADS, heads_kv, KEYS, DIM};
            struct rf_kv_replicate_args copy_v = {all_v.strides, v.strides, BATCH, HEADS, heads_kv, KEYS, DIM};
            struct rf_flash_attention_launch all = heads_flash(&q, &all_k, &all_v, &out, 0.125f);
            struct rf_flash_attention_launch grouped = heads_flash(&q, &k, &v, &out, 0.125f);
            all.args.offset = grouped.args.offset = KEYS - ROWS;
            RF_ASSERT_OK(rf_gpu_kv_replicate(gpu->queue, types[t], all_k.at, k.at, &copy_k));
            RF_ASSERT_OK(rf_gpu_kv_replicate(gpu->queue, types[t], all_v.at, v.at, &copy_v));
            RF_ASSERT_OK(rf_gpu_flash_attention(gpu->queue, &all));
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, out.host, out.buffer, 0, rf_buffer_bytes(out.buffer)));
            RF_ASSERT_OK(
                rf_fill(gpu->queue, out.buffer, 0, BATCH * HEADS * ROWS * DIM * rf_dtype_bytes(types[t]), 0));
            RF_ASSERT_OK(rf_gpu_flash_attention(gpu->queue, &grouped));
            heads_compare(gpu->queue, &out, rf_same_bits());
            heads_drop(&q);
            heads_drop(&k);
            heads_drop(&v);
            heads_drop(&all_k);
            heads_drop(&all_v);
            heads_drop(&out);
        }
}
ATTENTION_TEST(mqa, replicated_heads_equal_grouped_attention, replicated_is_grouped)

RF_TEST(mqa, bad_input_is_refused, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_random random = {rf_test_seed() + 3};
    struct heads in = heads_make(gpu.queue, &random, RF_F32, DENSE, 1, 1, 4, 8);
    struct heads out = heads_make(gpu.queue, &random, RF_F32, DENSE, 1, 4, 4, 8);
    struct rf_kv_replicate_args good = {out.strides, in.strides, 1, 4, 1, 4, 8}, bad = good;
    bad.heads_q = 5;
    RF_EXPECT_STATUS(rf_gpu_kv_replicate(gpu.queue, RF_F32, out.at, in.at, &bad), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "kv_replicate: out takes");
    bad = good;
    bad.heads_kv = 3;
    RF_EXPECT_STATUS(rf_gpu_kv_replicate(gpu.queue, RF_F32, out.at, in.at, &bad), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "no multiple");
    RF_EXPECT_STATUS(rf_gpu_kv_replicate(gpu.queue, RF_Q8_0, out.at, in.at, &good), RF_E_UNSUPPORTED);
    bad = good;
    bad.out = in.strides;
    bad.heads_q = 1;
    RF_EXPECT_STATUS(rf_gpu_kv_replicate(gpu.queue, RF_F32, in.at, in.at, &bad), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "overlaps");
    RF_EXPECT_OK(rf_gpu_kv_replicate(gpu.queue, RF_F32, out.at, in.at, &good));
    heads_drop(&in);
    heads_drop(&out);
    gpu_close(&gpu);
}
