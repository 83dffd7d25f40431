/* RF_CHECK and bad input: guard bands, poison, dead and foreign handles, and every argument that
 * must be refused with the ledger unchanged. */
#include "gpu_testing.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

RF_TEST(guard, one_element_past_the_end_is_found, .gpu = true) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=guard", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *good = gpu_buffer(&gpu, 400), *past = gpu_buffer(&gpu, 400), *before = gpu_buffer(&gpu, 400);
    const struct rf_kernel *store = gpu_kernel(&gpu, "out_of_bounds");
    RF_ASSERT_OK(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, store, 1, rf_arg_buffer(good), rf_arg_i64(99), rf_arg_u32(1)));
    RF_ASSERT_OK(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, store, 1, rf_arg_buffer(past), rf_arg_i64(100), rf_arg_u32(1)));
    RF_EXPECT_STATUS(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT), RF_E_CORRUPT);
    RF_ASSERT_CONTAINS(rf_error_text(), "byte 0 past the end of a 400-byte buffer");
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, store, 1, rf_arg_buffer(before), rf_arg_i64(-1), rf_arg_u32(1)));
    RF_EXPECT_OK(rf_buffer_destroy(&good));
    RF_EXPECT_STATUS(rf_buffer_destroy(&past), RF_E_CORRUPT);
    RF_EXPECT_STATUS(rf_buffer_destroy(&before), RF_E_CORRUPT);
    RF_ASSERT_CONTAINS(rf_error_text(), "4 bytes before the start");
    RF_ASSERT_CONTAINS(rf_error_text(), "gpu_testing.c");
    gpu_close(&gpu);
}

RF_TEST(poison, fresh_memory_is_nan_and_freed_memory_is_scribbled, .gpu = true) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=poison", NULL});
    gpu_open(&gpu, NULL);
    float got[300];
    for (int round = 0; round < 2; round++) { /* the second round reuses the pool's memory */
        struct rf_buffer *in = gpu_buffer(&gpu, sizeof got), *out = gpu_buffer(&gpu, sizeof got);
        RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "read_uninitialised"), 300, rf_arg_buffer(out),
                                rf_arg_buffer(in), rf_arg_i64(300)));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, out, 0, sizeof got));
        for (int i = 0; i < 300; i++) RF_ASSERT(isnan(got[i]));
        RF_ASSERT_OK(rf_fill(gpu.queue, in, 0, sizeof got, 0));
        RF_ASSERT_OK(rf_buffer_destroy(&in));
        RF_ASSERT_OK(rf_buffer_destroy(&out));
    }
    gpu_close(&gpu);
}

RF_TEST(handle, dead_and_foreign_ones_are_recognised, .gpu = true) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=handle", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 64), *dead = buffer;
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    char byte = 0;
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, dead, 0, &byte, 1), RF_E_HANDLE);
    RF_ASSERT_CONTAINS(rf_error_text(), "destroyed already");
    struct rf_buffer *again = dead;
    RF_EXPECT_STATUS(rf_buffer_destroy(&again), RF_E_HANDLE);
    struct rf_buffer *foreign = (struct rf_buffer *)gpu.queue;
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, foreign, 0, &byte, 1), RF_E_HANDLE);
    RF_EXPECT_STATUS(rf_queue_wait((struct rf_queue *)gpu.device, 0), RF_E_HANDLE);
    uint64_t words[64] = {0};
    RF_EXPECT_STATUS(rf_queue_wait((struct rf_queue *)words, 0), RF_E_HANDLE);
    gpu_close(&gpu);
}

RF_TEST(bad_input, sizes_and_offsets_leave_the_ledger_alone, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_memory_info before = gpu_memory(&gpu);
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 2, UINT64_C(1) << 62, UINT64_C(1) << 50};
    params.bytes = 0;
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &buffer), RF_E_INVALID);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        for (int direct = 0; direct < 2; direct++) {
            params.bytes = huge[i];
            params.direct = direct;
            rf_status status = rf_buffer_create_safe(gpu.device, &params, &buffer);
            RF_EXPECT(status == RF_E_BUDGET || status == RF_E_INVALID);
            RF_ASSERT(buffer == NULL);
        }
    params.struct_size = 0;
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &buffer), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, NULL, &buffer), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_buffer_create_safe(NULL, &params, &buffer), RF_E_INVALID);
    struct rf_memory_info after = gpu_memory(&gpu);
    RF_EXPECT_INT(after.held_bytes, before.held_bytes);
    RF_EXPECT_INT(after.live_count, 0);

    buffer = gpu_buffer(&gpu, 100);
    char bytes[100];
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, buffer, 1, bytes, 100), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, buffer, UINT64_MAX, bytes, 2), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, buffer, 0, NULL, 1), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_to_device_safe(NULL, buffer, 0, bytes, 1), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_from_device_safe(gpu.queue, bytes, buffer, 99, 2), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_from_device_safe(gpu.queue, NULL, buffer, 0, 1), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_fill(gpu.queue, buffer, 50, UINT64_MAX, 0), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_copy_on_device(gpu.queue, buffer, 10, buffer, 0, 20), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "overlap");
    RF_EXPECT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 100, bytes, 0)); /* zero bytes at the end */
    RF_EXPECT_OK(rf_fill(gpu.queue, buffer, 0, 0, 1));
    struct rf_pinned *pinned = NULL;
    RF_EXPECT_STATUS(rf_pinned_create(gpu.device, 0, &pinned), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_pinned_create(gpu.device, UINT64_MAX, &pinned), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_pinned_create(gpu.device, UINT64_C(1) << 60, &pinned), RF_E_NO_MEMORY);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_EXPECT_OK(rf_buffer_destroy(&buffer)); /* it is NULL now */
    RF_EXPECT_OK(rf_buffer_destroy(NULL));
    gpu_close(&gpu);
}

RF_TEST(bad_input, launches_are_checked, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 256);
    const struct rf_kernel *kernel = gpu_kernel(&gpu, "increment"), *none = NULL;
    RF_EXPECT_STATUS(rf_kernel_find(gpu.device, "incremnt", &none), RF_E_NOT_FOUND);
    RF_ASSERT_CONTAINS(rf_error_text(), "'increment'");
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_i64(64)};
    RF_PARAMS(struct rf_launch, good);
    good.kernel = kernel;
    good.grid[0] = 1;
    good.block[0] = 64;
    good.args = args;
    good.arg_count = 2;
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &good));
    struct rf_launch bad = good;
    bad.arg_count = 1;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.grid[0] = 0;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.block[0] = 0;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.block[0] = 4096;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.block[1] = 64;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.shared_bytes = 1u << 30;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    bad = good;
    bad.grid[0] = 1u << 26; /* with 64 threads each, one thread more than HIP takes in x */
    RF_PARAMS(struct rf_device_info, info);
    RF_ASSERT_OK(rf_device_get_info(gpu.device, &info));
    uint64_t asked = gpu_sim_entry_calls("hipModuleLaunchKernel");
    if (info.vendor == RF_VENDOR_AMD) {
        RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
        RF_ASSERT_CONTAINS(rf_error_text(),
                           "67108864 blocks of 64 threads in x are 4294967296 threads, the driver takes "
                           "4294967295; launch fewer blocks");
        RF_EXPECT(strchr(rf_error_text(), '\n') == NULL);
    }
    RF_EXPECT_UINT(gpu_sim_entry_calls("hipModuleLaunchKernel"), asked); /* the driver was not asked */
    bad = good;
    bad.kernel = NULL;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    struct rf_arg wrong[] = {rf_arg_buffer(buffer), rf_arg_i32(64)};
    bad = good;
    bad.args = wrong;
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "argument 1 has 4 bytes, the kernel takes 8");
    uint64_t count = 64;
    wrong[1] = rf_arg_struct(&count, 4);
    RF_ASSERT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "argument 1 has 4 bytes, the kernel takes 8");
    wrong[1] = rf_arg_struct(NULL, 8);
    RF_ASSERT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "argument 1 is a struct without data");
    wrong[1] = rf_arg_struct(&count, 8);
    RF_ASSERT_OK(rf_queue_launch(gpu.queue, &bad));
    wrong[1] = rf_arg_i64(64);
    wrong[1].bytes = 4096; /* a value of more bytes than the union holds */
    RF_ASSERT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "argument 1 has 4096 bytes, a value has at most 32");
    wrong[0] = rf_arg_buffer_at(buffer, 257);
    wrong[1] = rf_arg_i64(0);
    RF_EXPECT_STATUS(rf_queue_launch(gpu.queue, &bad), RF_E_INVALID);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(bad_input, two_devices_are_kept_apart) {
    gpu_need_simulated("devices=2");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    RF_PARAMS(struct rf_device_params, params);
    struct rf_device *other = NULL;
    params.index = 1;
    RF_ASSERT_OK(rf_device_open_checked(gpu.runtime, &params, &other));
    struct rf_queue *queue = NULL;
    RF_ASSERT_OK(rf_queue_create(other, NULL, &queue));
    struct rf_buffer *buffer = gpu_buffer(&gpu, 64);
    char byte = 0;
    RF_EXPECT_STATUS(rf_copy_to_device_safe(queue, buffer, 0, &byte, 1), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "device 0, the queue on device 1");
    RF_EXPECT_STATUS(GPU_LAUNCH(queue, gpu_kernel(&gpu, "increment"), 1, rf_arg_buffer(buffer), rf_arg_i64(1)),
                     RF_E_INVALID);
    RF_EXPECT_STATUS(rf_queue_after(queue, gpu.queue), RF_E_INVALID);
    params.index = 2;
    struct rf_device *third = NULL;
    RF_EXPECT_STATUS(rf_device_open_checked(gpu.runtime, &params, &third), RF_E_NO_DEVICE);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_queue_destroy(&queue));
    RF_ASSERT_OK(rf_device_close(&other));
    gpu_close(&gpu);
}

RF_TEST(bad_input, options_and_specs_are_refused_at_once) {
    static const char *const bad[] = {
        "RF_BUDGET=200%",   "RF_BUDGET=-1",      "RF_BUDGET=keep=",     "RF_BUDGET=12Xib",
        "RF_TIMEOUT_MS=0",  "RF_TIMEOUT_MS=abc", "RF_CHECK=everything", "RF_LOG=loud",
        "RF_DRIVER=opencl", "RF_HOST_BUDGET=x",  "RF_NO_SUCH=1",        "nonsense"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *options[] = {bad[i], NULL};
        RF_PARAMS(struct rf_runtime_params, params);
        params.options = options;
        struct rf_runtime *runtime = NULL;
        rf_status status = rf_runtime_create(&params, &runtime);
        if (status != RF_E_SYNTAX) RF_FAIL("%s gave %s", bad[i], rf_status_name(status));
        RF_ASSERT(runtime == NULL);
        RF_ASSERT(rf_error_text()[0] && !strchr(rf_error_text(), '\n'));
    }
}

RF_TEST(fork, a_forked_child_is_refused_and_harms_nothing) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 64);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        char byte = 0;
        RF_PARAMS(struct rf_buffer_params, params);
        struct rf_buffer *mine = NULL;
        params.bytes = 4;
        bool good = rf_copy_to_device_safe(gpu.queue, buffer, 0, &byte, 1) == RF_E_INVALID &&
                    rf_buffer_create_safe(gpu.device, &params, &mine) == RF_E_INVALID &&
                    rf_device_close(&gpu.device) == RF_E_INVALID;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    RF_ASSERT(waitpid(child, &status, 0) == child);
    RF_EXPECT_INT(status, 0);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}
