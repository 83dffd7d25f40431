/* Kernels are loaded when they are needed: what a driver is asked, when, and what happens if it refuses. The CUDA
 * half runs on a fake driver that compiles nothing, but insists on the form of what it is given. */
#include "gpu_testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/device_impl.h"
#include "gpu/ptx.h"
#include "kernels/matmul_args.h"

extern const struct rf_kernel_image test_images[]; /* the test kernels, for each target */

/* ---- on AMD's side ---- */

RF_TEST(loading, opens_without_kernels_and_loads_on_demand) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    const struct rf_kernel *kernel, *again;
    gpu_open(&gpu, NULL);
    uint64_t at_open = gpu_sim_entry_calls("hipModuleLoadData"); /* the test's own image */
    RF_ASSERT_INT(at_open, 1);
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "add_f32", &kernel));
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), at_open + 1);
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "add_f32", &again));
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "add_f16", &again)); /* of the same module */
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), at_open + 1);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, "scale_*,fill,no_such_kernel"));
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), at_open + 3);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, NULL));
    uint64_t all = gpu_sim_entry_calls("hipModuleLoadData");
    RF_EXPECT(all > at_open + 20);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, NULL));
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), all);
    gpu_close(&gpu);
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleUnload"), all);
}

/* The memory for kernels is charged when the device is opened: loading all of them does not change what is left. */
RF_TEST(loading, keeps_what_was_promised_at_open) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, "64MiB");
    struct rf_memory_info before = gpu_memory(&gpu);
    RF_EXPECT(before.driver_bytes > 0);
    struct rf_buffer *rest = gpu_buffer(&gpu, before.available_bytes);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, NULL));
    RF_EXPECT_INT(gpu_memory(&gpu).driver_bytes, before.driver_bytes);
    RF_ASSERT_OK(rf_buffer_destroy(&rest));
    gpu_close(&gpu);
}

/* Kernels that take more than was kept for them get it from what the pool keeps idle. */
RF_TEST(loading, trims_the_pool_for_room) {
    enum { COUNT = 40 };
    gpu_need_simulated("");
    struct gpu gpu = {0};
    struct rf_buffer *buffers[COUNT];
    size_t count = 0;
    gpu_open(&gpu, "32MiB");
    gpu.device->kernel_room_bytes = 0;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = MIB;
    while (count < COUNT && !rf_buffer_create_safe(gpu.device, &params, &buffers[count])) count++;
    RF_ASSERT(count > 0 && count < COUNT);
    while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    RF_EXPECT(gpu_memory(&gpu).available_bytes < 2 * MIB || gpu.device->pool.idle_bytes > 20 * MIB);
    RF_EXPECT_OK(rf_device_load_kernels(gpu.device, NULL));
    gpu_close(&gpu);
}

RF_TEST(loading, waits_for_running_work_by_the_deadline) {
    gpu_need_simulated("fault=hipMemsetD8Async:1:work/hang");
    struct gpu gpu = {0};
    const struct rf_kernel *kernel;
    gpu_make_runtime(&gpu, (const char *const[]){"RF_TIMEOUT_MS=300", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 1024);
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 1024, 1)); /* it never ends */
    rf_status status = rf_kernel_find(gpu.device, "softmax_f32", &kernel);
    RF_NOTE("%s: %s", rf_status_name(status), rf_error_text());
    RF_EXPECT(status == RF_E_BUSY || status == RF_E_TIMEOUT);
    RF_EXPECT_CONTAINS(rf_error_text(), "kernels cannot be loaded now");
    gpu_sim_release_hangs();
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "softmax_f32", &kernel));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

struct stuck_load {
    struct gpu *gpu;
    rf_status status;
};
static void *load_softmax(void *user) {
    struct stuck_load *load = user;
    const struct rf_kernel *kernel;
    load->status = rf_kernel_find(load->gpu->device, "softmax_f32", &kernel);
    return NULL;
}

/* One thread loads at a time. Another one's turn comes by its deadline, or it is told why not. */
RF_TEST(loading, waits_for_another_thread_by_the_deadline) {
    gpu_need_simulated("fault=hipModuleLoadData:2:hang"); /* the first is of the test's own image */
    struct gpu gpu = {0};
    struct stuck_load load = {&gpu, RF_OK};
    pthread_t thread;
    const struct rf_kernel *kernel;
    gpu_make_runtime(&gpu, (const char *const[]){"RF_TIMEOUT_MS=300", NULL});
    gpu_open(&gpu, NULL);
    RF_ASSERT_INT(gpu_sim_entry_calls("hipModuleLoadData"), 1);
    RF_ASSERT_INT(pthread_create(&thread, NULL, load_softmax, &load), 0);
    while (gpu_sim_entry_calls("hipModuleLoadData") < 2) sched_yield();
    RF_EXPECT_STATUS(rf_kernel_find(gpu.device, "add_f32", &kernel), RF_E_TIMEOUT);
    RF_EXPECT_CONTAINS(rf_error_text(), "another thread is loading kernels");
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), 2);
    gpu_sim_release_hangs();
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
    RF_EXPECT_OK(load.status);
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "add_f32", &kernel));
    gpu_close(&gpu);
}

/* A launch inside a recording may be the first of its kernel. */
RF_TEST(loading, inside_a_recording) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 1024);
    struct rf_recording *recording = NULL;
    const struct rf_kernel *kernel;
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "one"));
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "fill_u32", &kernel));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 1024, 7));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    unsigned char bytes[1024] = {0};
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, bytes, buffer, 0, sizeof bytes));
    RF_EXPECT_INT(bytes[1023], 7);
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* Each driver call of a load fails once: nothing is half loaded, and the next attempt succeeds. */
struct failing_call {
    const char *label;
    int for_image, for_kernel; /* calls per image and per kernel */
};
static const struct failing_call failing_calls[] = {
    {"hipModuleLoadData", 1, 0}, {"hipModuleGetFunction", 0, 1}, {"hipFuncGetAttribute", 0, 4}};
RF_TEST_LABELLED_CASES(loading, survives_a_failure_of, struct failing_call, failing_calls) {
    char fault[96];
    /* The test's own image is loaded first. */
    int before = c->for_image + c->for_kernel * (int)test_images[0].kernel_count;
    snprintf(fault, sizeof fault, "fault=%s:%d:2", c->label, before + 1);
    gpu_need_simulated(fault);
    struct gpu gpu = {0};
    const struct rf_kernel *kernel;
    gpu_open(&gpu, NULL);
    RF_EXPECT_STATUS(rf_device_load_kernels(gpu.device, "softmax"), RF_E_DEVICE_MEMORY);
    RF_EXPECT_CONTAINS(rf_error_text(), "softmax");
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "softmax_f32", &kernel));
    gpu_close(&gpu);
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleUnload") + (uint64_t)c->for_image,
                  gpu_sim_entry_calls("hipModuleLoadData"));
}

struct finder {
    struct gpu *gpu;
    const char *name;
    rf_status status;
};
static void *find_all(void *user) {
    struct finder *finder = user;
    const struct rf_kernel *kernel;
    for (int i = 0; i < 50 && !finder->status; i++)
        finder->status = rf_kernel_find(finder->gpu->device, finder->name, &kernel);
    return NULL;
}
RF_TEST(loading, from_many_threads) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    static const char *const names[] = {"softmax_f32",  "add_f16",  "scale_f32",   "add_f32",
                                        "rms_norm_f32", "fill_f32", "softmax_f32", "argmax_rows"};
    struct finder finders[8];
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        finders[i] = (struct finder){&gpu, names[i], RF_OK};
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, find_all, &finders[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        RF_EXPECT_OK(finders[i].status);
    }
    gpu_close(&gpu);
}

/* ---- on NVIDIA's side ---- */

struct fake_cuda_counts { /* as in fake_cuda.c */
    int compiled, side_by_side, loads, unloads, refused;
};
static struct fake_cuda_counts *fake_counts(void) {
    struct fake_cuda_counts *(*counts)(void) = NULL;
    void *library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD), *symbol = dlsym(library, "fake_cuda_counts");
    RF_ASSERT(symbol != NULL);
    memcpy(&counts, &symbol, sizeof counts);
    return counts();
}

struct told {
    uint64_t done, total;
    int calls;
};
static void keep_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    struct told *told = user;
    RF_EXPECT_CONTAINS(what, "compiling kernels");
    RF_EXPECT(done >= told->done && done <= total);
    *told = (struct told){done, total, told->calls + 1};
}

static bool has_ptx(void) {
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++)
        if (!strncmp(rf_builtin_kernel_at(i)->target, "sm_", 3)) return true;
    return false;
}

/* Opens the fake GPU; the built-in kernels only. */
static void open_fake(struct gpu *gpu, struct told *told) {
    static char helper[600];
    const char *options[] = {"RF_DRIVER=cuda", "RF_CUDA_LIBRARY=" FAKE_CUDA,   helper, "RF_LEASE_DIR=",
                             "RF_THREADS=4",   "RF_NVML_LIBRARY=/nonexistent", NULL};
    static char leases[600];
    if (!has_ptx()) RF_SKIP("this build has no kernels for NVIDIA");
    if (access(FAKE_CUDA, R_OK)) RF_SKIP("%s is not there: the tests were moved away from their build", FAKE_CUDA);
    snprintf(helper, sizeof helper, "RF_PROBE_HELPER=%s", PROBE_HELPER);
    snprintf(leases, sizeof leases, "RF_LEASE_DIR=%s", gpu_folder());
    options[3] = leases;
    RF_PARAMS(struct rf_runtime_params, params);
    params.options = options;
    params.progress = told ? keep_progress : NULL;
    params.progress_user = told;
    RF_ASSERT_OK(rf_runtime_create(&params, &gpu->runtime));
    RF_ASSERT_OK(rf_device_open_checked(gpu->runtime, NULL, &gpu->device));
}
static void close_fake(struct gpu *gpu) {
    RF_ASSERT_OK(rf_device_close(&gpu->device));
    rf_runtime_destroy(&gpu->runtime);
    RF_EXPECT_INT(fake_counts()->unloads, fake_counts()->compiled - fake_counts()->refused);
}

RF_TEST(loading, compiles_each_kernel_by_itself) {
    struct gpu gpu = {0};
    open_fake(&gpu, NULL);
    RF_EXPECT_INT(fake_counts()->compiled, 0);
    const struct rf_kernel *kernel;
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "softmax_f32", &kernel));
    RF_EXPECT_INT(fake_counts()->compiled, 1);
    RF_EXPECT_INT(fake_counts()->loads, 1);
    RF_PARAMS(struct rf_kernel_info, info);
    RF_ASSERT_OK(rf_kernel_get_info(kernel, &info));
    RF_EXPECT_INT(info.registers, 40);
    RF_EXPECT_INT(info.max_threads, kernel->max_threads);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, NULL));
    size_t kernels = gpu.device->kernel_count;
    RF_EXPECT(kernels > 300);
    RF_EXPECT_INT(fake_counts()->compiled, kernels);
    RF_EXPECT_INT(fake_counts()->loads, kernels);
    RF_EXPECT_INT(fake_counts()->refused, 0);
    close_fake(&gpu);
}

RF_TEST(loading, compiles_side_by_side) {
    setenv("FAKE_CUDA_SIDE_BY_SIDE", "1", 1);
    struct gpu gpu = {0};
    open_fake(&gpu, NULL);
    RF_ASSERT_OK(rf_device_load_kernels(gpu.device, "softmax,scale,add"));
    RF_EXPECT(fake_counts()->side_by_side >= 2);
    close_fake(&gpu);
}

RF_TEST(loading, a_kernel_that_does_not_compile) {
    setenv("FAKE_CUDA_REFUSES", "scale_f16", 1);
    struct gpu gpu = {0};
    const struct rf_kernel *kernel;
    open_fake(&gpu, NULL);
    RF_EXPECT_STATUS(rf_device_load_kernels(gpu.device, "scale"), RF_E_DRIVER);
    RF_EXPECT_CONTAINS(rf_error_text(), "scale_f16");
    RF_EXPECT_CONTAINS(rf_error_text(), "line 7: no such instruction");
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_EXPECT_INT(fake_counts()->loads, 0);
    int so_far = fake_counts()->compiled;
    RF_EXPECT_OK(
        rf_kernel_find(gpu.device, "scale_f32", &kernel)); /* the others are not harmed, nor compiled again */
    RF_EXPECT_INT(fake_counts()->compiled, so_far);
    RF_EXPECT_STATUS(rf_kernel_find(gpu.device, "scale_f16", &kernel), RF_E_DRIVER);
    unsetenv("FAKE_CUDA_REFUSES");
    RF_EXPECT_OK(rf_kernel_find(gpu.device, "scale_f16", &kernel));
    close_fake(&gpu);
}

/* What CUDA is asked for a tensor map: the numbers of its header. */
struct fake_cuda_map { /* as in fake_cuda.c */
    int calls, type, interleave, swizzle, promotion, outside;
    uint32_t rank, box[2], steps[2];
    uint64_t sizes[2], stride;
    void *base;
};
RF_TEST(loading, a_map_is_made_by_cuda) {
    struct gpu gpu = {0};
    struct fake_cuda_map *(*last)(void) = NULL;
    const struct rf_kernel *kernel;
    struct rf_buffer *buffer = NULL;
    open_fake(&gpu, NULL);
    if (rf_kernel_find(gpu.device, "matmul_group_bf16_bf16", &kernel)) {
        close_fake(&gpu);
        RF_SKIP("this build has no kernels for sm_90a: see the Meson option kernel_targets");
    }
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &gpu.queue));
    buffer = gpu_buffer(&gpu, 8192);
    void *symbol = dlsym(dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NOLOAD), "fake_cuda_map");
    memcpy(&last, &symbol, sizeof last);
    struct rf_map map = {.dtype = RF_BF16,
                         .rank = 2,
                         .sizes = {40, 9},
                         .strides = {0, 96},
                         .box = {64, 128},
                         .swizzle = RF_MAP_SWIZZLE_128};
    struct rf_matmul_args sizes = {.m = 1};
    struct rf_arg args[] = {rf_arg_map(buffer, 0, &map),
                            rf_arg_map(NULL, 0, NULL),
                            rf_arg_map(buffer, 4096, &map),
                            rf_arg_buffer(buffer),
                            rf_arg_buffer(NULL),
                            rf_arg_buffer(NULL),
                            rf_arg_struct(&sizes, sizeof sizes),
                            rf_arg_u32(1)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.grid[0] = 1;
    launch.block[0] = 384;
    launch.args = args;
    launch.arg_count = RF_COUNT(args);
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &launch));
    RF_EXPECT_INT(last()->calls, 2);
    RF_EXPECT_INT(last()->type, 9);      /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    RF_EXPECT_INT(last()->swizzle, 3);   /* CU_TENSOR_MAP_SWIZZLE_128B */
    RF_EXPECT_INT(last()->promotion, 3); /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B */
    RF_EXPECT_INT(last()->interleave, 0);
    RF_EXPECT_INT(last()->outside, 0); /* zeros */
    RF_EXPECT(last()->sizes[0] == 40 && last()->sizes[1] == 9 && last()->stride == 96);
    RF_EXPECT(last()->box[0] == 64 && last()->box[1] == 128 && last()->steps[0] == 1 && last()->steps[1] == 1);
    RF_EXPECT((char *)last()->base == (char *)rf_buffer_pointer(buffer, 4096));
    map.dtype = RF_F16;
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &launch));
    RF_EXPECT_INT(last()->type, 6); /* CU_TENSOR_MAP_DATA_TYPE_FLOAT16 */
    map.dtype = RF_F32;
    map.box[0] = 32;
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &launch));
    RF_EXPECT_INT(last()->type, 7); /* CU_TENSOR_MAP_DATA_TYPE_FLOAT32 */
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_queue_destroy(&gpu.queue));
    close_fake(&gpu);
}

/* ---- cutting ---- */

RF_TEST(ptx, is_cut_into_kernels) {
    static const char text[] =
        "//\n.version 7.0\n.shared .b8 s[16];\n\n.visible .entry one(\n.param .u64 p)\n{\n\tret;\n"
        "}\n\t// next\n.visible .entry one_more(\n)\n{\n{\n}\n\tret;\n}\n\n";
    char *cut = NULL;
    size_t bytes = 0;
    RF_ASSERT_OK(rf_ptx_cut(text, "one", &cut, &bytes));
    RF_EXPECT_TEXT(
        cut, "//\n.version 7.0\n.shared .b8 s[16];\n\n.visible .entry one(\n.param .u64 p)\n{\n\tret;\n}\n\t// next");
    RF_EXPECT_INT(bytes, strlen(cut) + 1);
    free(cut);
    RF_ASSERT_OK(rf_ptx_cut(text, "one_more", &cut, &bytes));
    RF_EXPECT(!strstr(cut, "entry one("));
    free(cut);
    RF_EXPECT_STATUS(rf_ptx_cut(text, "on", &cut, &bytes), RF_E_NOT_FOUND);
    RF_EXPECT_STATUS(rf_ptx_cut("", "one", &cut, &bytes), RF_E_NOT_FOUND);
}
