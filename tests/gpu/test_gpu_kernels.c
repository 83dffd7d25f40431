/* The built-in kernels through the device layer, compared with the scalar references: odd shapes, misaligned starts,
 * special values, both wave sizes. */
#include "gpu_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/reference.h"

static const uint64_t counts[] = {1, 2, 3, 7, 31, 64, 255, 257, 1000, 4099, 65537};

struct pair {
    struct rf_buffer *buffer;
    void *host;
    uint64_t bytes;
};

/* A buffer with random numbers of a type, and the same numbers on the host. */
static struct pair make(struct gpu *gpu, struct rf_random *random, enum rf_dtype dtype, uint64_t count) {
    struct pair pair = {.bytes = count * rf_dtype_bytes(dtype)};
    pair.buffer = gpu_buffer(gpu, pair.bytes);
    pair.host = malloc(pair.bytes);
    for (uint64_t i = 0; i < count; i++) rf_element_set(dtype, pair.host, i, rf_random_unit(random) * 8 - 4);
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, pair.buffer, 0, pair.host, pair.bytes));
    return pair;
}

static void drop(struct pair *pair) {
    RF_ASSERT_OK(rf_buffer_destroy(&pair->buffer));
    free(pair->host);
}

static void compare(struct gpu *gpu, struct rf_buffer *buffer, const void *expected, enum rf_dtype dtype,
                    uint64_t count, double absolute, double relative) {
    uint64_t bytes = count * rf_dtype_bytes(dtype);
    void *raw = malloc(bytes);
    float *got = malloc(count * sizeof *got), *want = malloc(count * sizeof *want);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, raw, buffer, 0, bytes));
    for (uint64_t i = 0; i < count; i++) {
        got[i] = (float)rf_element_get(dtype, raw, i);
        want[i] = (float)rf_element_get(dtype, expected, i);
    }
    RF_ASSERT_FLOATS(got, want, count, absolute, relative);
    free(raw);
    free(got);
    free(want);
}

static double ulp_of(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 1e-6 : dtype == RF_F16 ? 1e-3 : 8e-3;
}

static void elementwise(struct gpu *gpu, enum rf_dtype dtype, const char *suffix) {
    struct rf_random random = {rf_test_seed() + (uint64_t)dtype};
    char name[32];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint64_t skip = 0; skip < 4; skip += 3) { /* an aligned start and a misaligned one */
            uint64_t count = counts[i], element = rf_dtype_bytes(dtype);
            struct pair a = make(gpu, &random, dtype, count + skip), b = make(gpu, &random, dtype, count + skip);
            struct rf_buffer *out = gpu_buffer(gpu, count * element);
            void *want = malloc(count * element);
            struct rf_arg from_a = rf_arg_buffer_at(a.buffer, skip * element);
            struct rf_arg from_b = rf_arg_buffer_at(b.buffer, skip * element);
            const char *host_a = (char *)a.host + skip * element, *host_b = (char *)b.host + skip * element;
            snprintf(name, sizeof name, "add_%s", suffix);
            RF_ASSERT_OK(GPU_LAUNCH(gpu->queue, gpu_kernel(gpu, name), count, rf_arg_buffer(out), from_a, from_b,
                                    rf_arg_i64((int64_t)count)));
            struct rf_elementwise_args elements = {.count = count, .factor = -1.75f};
            rf_ref_add(dtype, want, host_a, host_b, &elements);
            compare(gpu, out, want, dtype, count, 0, ulp_of(dtype));
            snprintf(name, sizeof name, "scale_%s", suffix);
            RF_ASSERT_OK(GPU_LAUNCH(gpu->queue, gpu_kernel(gpu, name), count, rf_arg_buffer(out), from_a,
                                    rf_arg_f32(elements.factor), rf_arg_i64((int64_t)count)));
            rf_ref_scale(dtype, want, host_a, &elements);
            compare(gpu, out, want, dtype, count, 0, ulp_of(dtype));
            snprintf(name, sizeof name, "copy_%s_f32", suffix);
            struct rf_buffer *wide = gpu_buffer(gpu, count * 4);
            float *want_wide = malloc(count * 4);
            RF_ASSERT_OK(GPU_LAUNCH(gpu->queue, gpu_kernel(gpu, name), count, rf_arg_buffer(wide), from_b,
                                    rf_arg_i64((int64_t)count)));
            rf_ref_copy(RF_F32, want_wide, dtype, host_b, &elements);
            compare(gpu, wide, want_wide, RF_F32, count, 0, 0);
            snprintf(name, sizeof name, "copy_f32_%s", suffix);
            RF_ASSERT_OK(GPU_LAUNCH(gpu->queue, gpu_kernel(gpu, name), count, rf_arg_buffer(out), rf_arg_buffer(wide),
                                    rf_arg_i64((int64_t)count)));
            compare(gpu, out, host_b, dtype, count, 0, 0);
            RF_ASSERT_OK(rf_buffer_destroy(&wide));
            RF_ASSERT_OK(rf_buffer_destroy(&out));
            free(want);
            free(want_wide);
            drop(&a);
            drop(&b);
        }
}

static void rows(struct gpu *gpu) {
    static const struct {
        uint64_t rows, columns;
    } shapes[] = {{1, 1}, {3, 2}, {5, 7}, {2, 33}, {4, 512}, {3, 1021}, {2, 4096}, {1, 16384}, {1, 20011}, {17, 65}};
    struct rf_random random = {rf_test_seed() + 99};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint64_t count = shapes[i].rows * shapes[i].columns;
        RF_PARAMS(struct rf_launch, launch);
        launch.grid[0] = (uint32_t)shapes[i].rows;
        launch.block[0] = 256;
        struct pair in = make(gpu, &random, RF_F32, count), weight = make(gpu, &random, RF_F32, shapes[i].columns);
        float *host = in.host, *want = malloc(count * sizeof *want);
        if (i % 2) { /* masked entries, and a row that is fully masked */
            for (uint64_t k = 0; k < count; k += 5) host[k] = -INFINITY;
            for (uint64_t k = 0; k < shapes[i].columns; k++) host[k] = -INFINITY;
            RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, in.buffer, 0, host, in.bytes));
        }
        struct rf_buffer *out = gpu_buffer(gpu, count * 4);
        struct rf_arg softmax[] = {rf_arg_buffer(out), rf_arg_buffer(in.buffer), rf_arg_i64((int64_t)shapes[i].rows),
                                   rf_arg_i64((int64_t)shapes[i].columns)};
        launch.kernel = gpu_kernel(gpu, "softmax_f32");
        launch.args = softmax;
        launch.arg_count = 4;
        RF_ASSERT_OK(rf_queue_launch(gpu->queue, &launch));
        rf_ref_softmax(want, host, &(struct rf_softmax_args){.rows = shapes[i].rows, .columns = shapes[i].columns});
        compare(gpu, out, want, RF_F32, count, 1e-7, 1e-5);
        RF_ASSERT_OK(rf_buffer_destroy(&out));
        drop(&in);
        free(want);
        static const struct {
            enum rf_dtype dtype;
            const char *kernel;
        } types[] = {{RF_F32, "rms_norm_f32"}, {RF_F16, "rms_norm_f16"}, {RF_BF16, "rms_norm_bf16"}};
        for (size_t t = 0; t < 3; t++) {
            uint64_t element = rf_dtype_bytes(types[t].dtype);
            struct pair x = make(gpu, &random, types[t].dtype, count);
            out = gpu_buffer(gpu, count * element);
            void *norm = malloc(count * element);
            struct rf_norm_args norm_args = {.rows = shapes[i].rows, .columns = shapes[i].columns, .eps = 1e-5f};
            struct rf_arg args[] = {rf_arg_buffer(out), rf_arg_buffer(x.buffer), rf_arg_buffer(weight.buffer),
                                    rf_arg_struct(&norm_args, sizeof norm_args)};
            launch.kernel = gpu_kernel(gpu, types[t].kernel);
            launch.args = args;
            launch.arg_count = 4;
            RF_ASSERT_OK(rf_queue_launch(gpu->queue, &launch));
            rf_ref_rms_norm(types[t].dtype, norm, x.host, weight.host, &norm_args);
            compare(gpu, out, norm, types[t].dtype, count, 1e-6, 4 * ulp_of(types[t].dtype));
            RF_ASSERT_OK(rf_buffer_destroy(&out));
            free(norm);
            drop(&x);
        }
        drop(&weight);
    }
}

static void all_kernels(const char *const *options) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, options);
    gpu_open(&gpu, NULL);
    elementwise(&gpu, RF_F32, "f32");
    elementwise(&gpu, RF_F16, "f16");
    elementwise(&gpu, RF_BF16, "bf16");
    rows(&gpu);
    gpu_close(&gpu);
}

static const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};

RF_TEST(kernels, match_the_reference, .gpu = true, .timeout_ms = 1500000) {
    all_kernels(NULL);
}
RF_TEST(kernels, stay_inside_poisoned_guarded_memory, .gpu = true, .timeout_ms = 1500000) {
    all_kernels(guarded);
}
RF_TEST(kernels, match_at_wave_64, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx942");
    all_kernels(NULL);
}
/* The simulated driver plays an NVIDIA GPU: the images are PTX, cut into kernels. */
RF_TEST(kernels, match_from_ptx, .timeout_ms = 1500000) {
    size_t there = 0;
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++)
        there += rf_builtin_kernel_fits(rf_builtin_kernel_at(i), "sm_90");
    if (!there) RF_SKIP("this build has no kernels for NVIDIA");
    gpu_need_simulated("arch=sm_90");
    all_kernels(NULL);
}
RF_TEST(kernels, match_with_lanes_in_any_order, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx1201,shuffle=7,delay=3/50us");
    all_kernels(NULL);
}

RF_TEST(kernels, need_no_local_memory, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    RF_PARAMS(struct rf_device_info, device);
    RF_ASSERT_OK(rf_device_get_info(gpu.device, &device));
    size_t seen = 0;
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        if (!rf_builtin_kernel_fits(row, device.arch)) continue;
        RF_PARAMS(struct rf_kernel_info, info);
        RF_ASSERT_OK(rf_kernel_get_info(gpu_kernel(&gpu, row->name), &info));
        RF_EXPECT_INT(info.local_bytes, 0);
        RF_NOTE("%-24s %3u registers, %u local, %u shared", info.name, info.registers, info.local_bytes,
                info.shared_bytes);
        seen++;
    }
    RF_EXPECT(seen > 0);
    gpu_close(&gpu);
}
