/* What launchers and checks ask of a device, seen on the way (--wrap): grids that keep a GPU busy, the kernels that
 * are chosen, the names under which buffers stand in the ledger. A result alone shows none of these. */
#include "../gpu/gpu_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ops/check_impl.h"
#include "ops/gpu_cache.h"
#include "ops/gpu_move.h"
#include <rocmforge/ops.h>

static struct {
    size_t count;
    char kernels[4096]; /* their names, each followed by a space */
    uint32_t grid[3];   /* of the last one */
    char label[64];     /* of all buffers in the ledger; "?": they differ */
} seen;

static bool see_buffer(void *user, const struct rf_allocation *allocation) {
    (void)user;
    if (allocation->kind != RF_ALLOC_BUFFER) return true;
    bool other = seen.label[0] && strcmp(seen.label, allocation->label);
    snprintf(seen.label, sizeof seen.label, "%s", other ? "?" : allocation->label);
    return true;
}

rf_status __real_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch) {
    RF_PARAMS(struct rf_kernel_info, info);
    RF_ASSERT_OK(rf_kernel_get_info(launch->kernel, &info));
    size_t used = strlen(seen.kernels);
    snprintf(seen.kernels + used, sizeof seen.kernels - used, "%s ", info.name);
    memcpy(seen.grid, launch->grid, sizeof seen.grid);
    seen.count++;
    RF_ASSERT_OK(rf_device_ledger(rf_queue_device(queue), see_buffer, NULL));
    return __real_rf_queue_launch(queue, launch);
}

/* ---- grids ---- */

RF_TEST(launches, a_block_for_each_matrix_of_a_permutation) {
    struct gpu gpu = {.modules = "transpose"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct rf_operand out = {gpu_buffer(&gpu, 6 * 5 * 7 * 9 * 4), 0}, in = {gpu_buffer(&gpu, 6 * 5 * 7 * 9 * 4), 0};
    /* From [6][7][5][9] to [6][5][7][9]. */
    const struct rf_permute_args args = {{6, 5, 7, 9}, {5 * 7 * 9, 7 * 9, 9, 1}, {7 * 5 * 9, 9, 5 * 9, 1}};
    RF_ASSERT_OK(rf_gpu_permute(gpu.queue, RF_F32, out, RF_F32, in, &args));
    RF_ASSERT_TEXT(seen.kernels, "permute_f32_f32 ");
    RF_EXPECT_UINT(seen.grid[0], 6 * 5);
    RF_ASSERT_OK(rf_buffer_destroy(&out.buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&in.buffer));
    gpu_close(&gpu);
}

/* One token alone would keep one compute unit busy. A thread takes four elements and a block has 64 threads, so a
 * block takes two heads of 128 elements. */
RF_TEST(launches, the_heads_of_one_token_are_spread) {
    struct gpu gpu = {.modules = "rope"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct rf_operand x = {gpu_buffer(&gpu, 32 * 128 * 4), 0}, positions = {gpu_buffer(&gpu, 4), 0},
                      steps = {gpu_buffer(&gpu, 64 * 8), 0};
    const struct rf_gpu_rope rope = {
        .args = {1, 32 * 128, 128, 32 * 128, 128, .heads = 32, .dim = 128, .rotated = 128, .magnitude = 1},
        .dtype = RF_F32,
        .out_dtype = RF_F32,
        .out = x,
        .in = x,
        .positions = positions,
        .steps = steps};
    RF_ASSERT_OK(rf_gpu_rope(gpu.queue, &rope));
    RF_ASSERT_TEXT(seen.kernels, "rope_f32 ");
    RF_EXPECT_UINT(seen.grid[0], 1);
    RF_EXPECT_UINT(seen.grid[1], 16);
    struct rf_buffer *buffers[] = {x.buffer, positions.buffer, steps.buffer};
    for (size_t i = 0; i < RF_COUNT(buffers); i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    gpu_close(&gpu);
}

/* ---- checks ---- */

struct wanted {
    const char *part; /* of the label */
    size_t most;      /* cases */
    rf_status status; /* of the last case */
    char why[256];
};
static bool choose(void *user, const char *op, const char *label) {
    struct wanted *wanted = user;
    (void)op;
    return strstr(label, wanted->part) && wanted->most && wanted->most--;
}
static bool visit(void *user, const struct rf_check_result *result) {
    struct wanted *wanted = user;
    if (!result->passed) RF_NOTE("%s %s: %s", result->op, result->label, result->why);
    wanted->status = result->status;
    snprintf(wanted->why, sizeof wanted->why, "%s", result->why);
    return true;
}
static struct rf_check_counts check(struct gpu *gpu, const char *op, struct wanted *wanted) {
    struct rf_check_counts counts;
    RF_PARAMS(struct rf_check_params, params);
    params.op = op;
    params.device = gpu->device;
    params.seed = 14;
    params.choose = choose;
    params.visit = visit;
    params.user = wanted;
    RF_ASSERT_OK(rf_check_run(&params, &counts));
    return counts;
}

/* Guard bands that are damaged, and memory that is left, are reported by label. */
RF_TEST(check_run, buffers_have_the_name_of_the_op) {
    struct gpu gpu = {.modules = "scale"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct wanted wanted = {.part = "f32 1", .most = 1};
    RF_EXPECT_UINT(check(&gpu, "scale", &wanted).passed, 1);
    RF_EXPECT(seen.count > 0);
    RF_EXPECT_TEXT(seen.label, "scale");
    gpu_close(&gpu);
}

/* A case that could not run is told by the status and the reason of what went wrong, not as one with wrong numbers.
 */
RF_TEST(check_run, a_case_without_memory_says_so) {
    struct gpu gpu = {.modules = "scale"};
    gpu_need_simulated("");
    gpu_make_runtime(&gpu, (const char *const[]){"RF_FAIL_ALLOC=1", NULL});
    gpu_open(&gpu, NULL);
    struct wanted wanted = {.part = "f32 1", .most = 1};
    struct rf_check_counts counts = check(&gpu, "scale", &wanted);
    RF_EXPECT_UINT(counts.failed, 1);
    RF_EXPECT_UINT(counts.passed + counts.skipped, 0);
    RF_EXPECT_INT(wanted.status, RF_E_BUDGET);
    RF_EXPECT_CONTAINS(wanted.why, "RF_FAIL_ALLOC");
    RF_EXPECT_UINT(seen.count, 0);
    gpu_close(&gpu);
}

/* The kernel that rotates queries and keys together takes heads that lie side by side; other queries, and another
 * place for them, are for the separate kernels. */
RF_TEST(check_run, rope_append_takes_both_kernels) {
    struct gpu gpu = {.modules = "rope,kv_append"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct wanted together = {.part = "f32 9x3x64 to f32, 3 of k into f32", .most = 1};
    RF_EXPECT_UINT(check(&gpu, "rope_append", &together).passed, 1);
    RF_EXPECT_TEXT(seen.kernels, "rope_kv_append_f32 rope_kv_append_f32 "); /* each case runs twice */
    struct wanted apart = {.part = "heads apart", .most = SIZE_MAX};
    struct rf_check_counts counts = check(&gpu, "rope_append", &apart);
    RF_EXPECT_UINT(counts.failed + counts.skipped, 0);
    RF_EXPECT(counts.passed > 20);
    gpu_close(&gpu);
}

/* One kernel for one token, whatever the cache; other tokens and other types of weights take the kernels of the ops
 * that this one stands for. */
RF_TEST(check_run, norm_qkv_append_is_one_kernel) {
    struct gpu gpu = {.modules = "mat*,kv_append,rope,rms_norm,quantize,dequantize"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    static const char *const one[] = {"q4_0 1x256, 2/1 heads of 32 to f16, f32 cache",
                                      "q4_0 1x256, 2/1 heads of 32 to f16, f16",
                                      "q4_0 1x256, 2/1 heads of 32 to f16, q8_0"};
    for (size_t i = 0; i < RF_COUNT(one); i++) {
        struct wanted wanted = {.part = one[i], .most = 1};
        seen.kernels[0] = 0;
        RF_EXPECT_UINT(check(&gpu, "norm_qkv_append", &wanted).passed, 1);
        RF_EXPECT_TEXT(seen.kernels, "matvec_q4_0_qkv matvec_q4_0_qkv "); /* each case runs twice */
    }
    /* Values of another type take a kernel of their own, if there is one for their rows. */
    struct wanted two = {.part = "q4_k, q6_k 1x2048", .most = 1}, uneven = {.part = "q4_k, q6_k 1x256", .most = 1};
    seen.kernels[0] = 0;
    RF_EXPECT_UINT(check(&gpu, "norm_qkv_append", &two).passed, 1);
    RF_EXPECT_TEXT(seen.kernels, "matvec_q4_k_qkv matvec_q6_k_qkv matvec_q4_k_qkv matvec_q6_k_qkv ");
    seen.kernels[0] = 0;
    RF_EXPECT_UINT(check(&gpu, "norm_qkv_append", &uneven).passed, 1);
    RF_EXPECT(!strstr(seen.kernels, "_qkv"));
    struct wanted other = {.part = "q5_k 1x256", .most = 1}, several = {.part = "f16 3x256", .most = 1};
    seen.kernels[0] = 0;
    RF_EXPECT_UINT(check(&gpu, "norm_qkv_append", &other).passed, 1);
    RF_EXPECT_CONTAINS(seen.kernels, "rms_norm_f32 ");
    RF_EXPECT_CONTAINS(seen.kernels, "rope_kv_append_f32 ");
    seen.kernels[0] = 0;
    RF_EXPECT_UINT(check(&gpu, "norm_qkv_append", &several).passed, 1);
    RF_EXPECT(!strstr(seen.kernels, "_qkv"));
    gpu_close(&gpu);
}

/* The call's tensors in buffers of their own, with what their host memory has. */
static void upload(struct gpu *gpu, struct rf_op_call *call) {
    for (int i = 0; i < call->count; i++) {
        struct rf_op_tensor *tensor = &call->tensors[i];
        if (!rf_op_given(tensor)) continue;
        tensor->buffer = gpu_buffer(gpu, tensor->bytes);
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, tensor->buffer, 0, tensor->host, tensor->bytes));
    }
    RF_ASSERT_OK(rf_check_workspace(gpu->device, call));
}
static void drop(struct rf_op_call *call) {
    for (int i = 0; i < call->count; i++) RF_ASSERT_OK(rf_buffer_destroy(&call->tensors[i].buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&call->workspace));
    RF_ASSERT_OK(rf_buffer_destroy(&call->counters));
}
/* The same by the ops that it stands for, in the call's buffers. */
static void run_parts(struct gpu *gpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *outputs = &call->tensors[call->op->inputs];
    struct rf_op_call norm = {.op = rf_op_find("norm_qkv"), .attributes = call->attributes, .count = 9};
    struct rf_op_call append = {.op = rf_op_find("rope_append"), .attributes = call->attributes, .count = 10};
    memcpy(norm.tensors, call->tensors, 5 * sizeof norm.tensors[0]);
    memcpy(&norm.tensors[5], outputs, 4 * sizeof norm.tensors[0]);
    for (int i = 0; i < 3; i++) {
        struct rf_tensor_desc *desc = &append.tensors[i].desc;
        uint64_t dim = call->tensors[9].desc.shape[3];
        append.tensors[i] = outputs[1 + i];
        desc->rank = 3;
        desc->shape[1] = desc->shape[1] / dim;
        desc->shape[2] = dim;
        desc->strides[1] = dim;
        desc->strides[2] = 1;
    }
    memcpy(&append.tensors[3], &call->tensors[5], 6 * sizeof append.tensors[0]);
    append.tensors[9] = outputs[4];
    RF_ASSERT_OK(norm.op->gpu(gpu->queue, &norm));
    RF_ASSERT_OK(append.op->gpu(gpu->queue, &append));
}

/* One kernel gives the bits of the several, in every result and in the caches. */
RF_TEST(check_run, norm_qkv_append_has_the_bits_of_its_parts) {
    struct gpu gpu = {.modules = "mat*,kv_append,rope,rms_norm"};
    struct rf_case_list list = {0};
    const struct rf_op *op = rf_op_find("norm_qkv_append");
    size_t compared = 0;
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    op->cases(&list);
    for (size_t c = 0; c < list.count; c++) {
        const struct rf_op_case *one = &list.cases[c];
        if (one->bench || !strstr(one->label, c % 2 ? "q4_0 1x" : "f16 1x")) continue;
        RF_TRACE("%s", one->label);
        struct rf_op_call calls[2] = {
            {.op = op, .attributes = one->attributes, .fill_kind = one->fill_kind, .count = one->count}};
        uint64_t state = 7;
        for (int i = 0; i < one->count; i++) calls[0].tensors[i].desc = one->tensors[i];
        RF_ASSERT_OK(rf_op_check(&calls[0]));
        for (int i = 0; i < one->count; i++) {
            struct rf_op_tensor *tensor = &calls[0].tensors[i];
            if (!rf_op_given(tensor)) continue;
            tensor->host = calloc(1, tensor->bytes);
            if (i < op->inputs) RF_ASSERT_OK(rf_check_fill(&calls[0], i, one->data, &state));
        }
        calls[1] = calls[0];
        for (int i = 0; i < 2; i++) upload(&gpu, &calls[i]);
        seen.kernels[0] = 0;
        RF_ASSERT_OK(op->gpu(gpu.queue, &calls[0]));
        if (strstr(seen.kernels, "_qkv ")) {
            run_parts(&gpu, &calls[1]);
            RF_EXPECT_CONTAINS(seen.kernels, "_pairs rope_kv_append_");
            for (int i = 0; i < one->count; i++) {
                struct rf_op_tensor *tensor = &calls[0].tensors[i];
                if (!rf_op_given(tensor)) continue;
                char *others = malloc(tensor->bytes);
                RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, tensor->host, tensor->buffer, 0, tensor->bytes));
                RF_ASSERT_OK(
                    rf_copy_from_device_safe(gpu.queue, others, calls[1].tensors[i].buffer, 0, tensor->bytes));
                RF_EXPECT(!memcmp(tensor->host, others, tensor->bytes));
                free(others);
            }
            compared++;
        }
        for (int i = 0; i < one->count; i++) free(calls[0].tensors[i].host);
        for (int i = 0; i < 2; i++) drop(&calls[i]);
    }
    free(list.cases);
    RF_EXPECT(compared >= 10);
    gpu_close(&gpu);
}

/* A sum of no products, on the matrix units: zeros, and one part. */
RF_TEST(check_run, matmul_without_products) {
    struct gpu gpu = {.modules = "mat*,dequantize,quantize"};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct wanted wanted = {.part = "2x3x0", .most = SIZE_MAX};
    struct rf_check_counts counts = check(&gpu, "matmul", &wanted);
    RF_NOTE("%zu passed, %zu skipped", counts.passed, counts.skipped);
    RF_EXPECT_UINT(counts.failed, 0);
    RF_EXPECT_CONTAINS(seen.kernels, " matmul_tile_f16_f16 ");
    RF_EXPECT(!strstr(seen.kernels, "matmul_join")); /* one part needs no joining */
    gpu_close(&gpu);
}
