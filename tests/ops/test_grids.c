/* No launcher asks for a grid that HIP does not take: more than 2^32 - 1 threads in x. The operands are as large as
 * that takes; nothing is launched (rf_queue_rehearse), and the simulated driver's memory costs nothing until written.
 */
#include "../gpu/gpu_testing.h"

#include "base/base.h"
#include "cpu/ref_attention.h"
#include "gpu/device.h"
#include "ops/gpu_attention.h"
#include "ops/gpu_matmul.h"
#include "ops/gpu_norm.h"

static void open_rehearsing(struct gpu *gpu, const char *modules) {
    gpu_need_simulated("vram=64GiB");
    gpu->modules = modules;
    gpu_open(gpu, "50GiB");
    rf_queue_rehearse(gpu->queue, true);
}

/* A wave takes a row: these are more than 2^32 threads. */
RF_TEST(grids, of_very_many_rows) {
    const uint64_t rows = (UINT64_C(1) << 27) + 17;
    struct gpu gpu = {0};
    open_rehearsing(&gpu, "rms_norm,softmax");
    struct rf_operand all = {gpu_buffer(&gpu, rows * 4), 0}, none = {0};
    const struct rf_norm_args norm = {.rows = rows, .columns = 1, .eps = 1e-5f};
    const struct rf_softmax_args softmax = {.rows = rows, .columns = 1, .rows_each = 1, .heads = 1};
    RF_EXPECT_OK(rf_gpu_rms_norm(gpu.queue, RF_F32, all, all, none, &norm));
    RF_EXPECT_OK(rf_gpu_softmax(gpu.queue, all, all, &softmax));
    RF_ASSERT_OK(rf_buffer_destroy(&all.buffer));
    gpu_close(&gpu);
}

RF_TEST(grids, of_a_product_with_very_many_columns) {
    const uint64_t n = (UINT64_C(1) << 27) + 256, k = 8;
    struct gpu gpu = {0};
    open_rehearsing(&gpu, "matvec");
    struct rf_buffer *w = gpu_buffer(&gpu, n * k * 2), *x = gpu_buffer(&gpu, k * 4), *out = gpu_buffer(&gpu, n * 4);
    const struct rf_gpu_matmul product = {.args = {.m = 1, .n = n, .k = k, .x_stride = k, .out_stride = n},
                                          .weight_type = RF_F16,
                                          .type = RF_F32,
                                          .path = RF_MATMUL_MATVEC,
                                          .out.buffer = out,
                                          .weights.buffer = w,
                                          .x.buffer = x};
    RF_EXPECT_OK(rf_gpu_matmul(gpu.queue, &product));
    struct rf_buffer *buffers[] = {w, x, out};
    for (size_t i = 0; i < RF_COUNT(buffers); i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    gpu_close(&gpu);
}

/* Blocks of attention do not loop: one block more than fits is refused by the op, with its sizes. */
RF_TEST(grids, of_very_many_heads) {
    const uint64_t most = UINT32_MAX / RF_PRODUCT_THREADS;
    struct gpu gpu = {0};
    open_rehearsing(&gpu, "qkt_matmul");
    struct rf_operand scores = {gpu_buffer(&gpu, (most + 1) * 4), 0}, q = {gpu_buffer(&gpu, (most + 1) * 4), 0},
                      k = {gpu_buffer(&gpu, 4096), 0};
    struct rf_head_product_args args = {
        .batch = 1, .heads_q = most, .heads_kv = 1, .q_rows = 1, .k_rows = 1, .dim = 1};
    for (int more = 0; more < 2; more++, args.heads_q++) {
        args.out = args.left = rf_head_strides_dense(args.heads_q, 1, 1);
        args.right = rf_head_strides_dense(1, 1, 1);
        rf_status status = rf_gpu_qkt_matmul(gpu.queue, RF_F32, scores, q, k, &args);
        RF_EXPECT_INT(status, more ? RF_E_UNSUPPORTED : RF_OK);
        if (status) RF_NOTE("%s", rf_error_text());
        if (more)
            RF_EXPECT_CONTAINS(rf_error_text(), "qkt_matmul: too large for one launch: 1 x 1 x 16777216 x 1 blocks");
    }
    RF_ASSERT_OK(rf_buffer_destroy(&scores.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&q.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&k.buffer));
    gpu_close(&gpu);
}
