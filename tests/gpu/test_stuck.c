/* Deadlines and loss: with one queue stuck forever, every public call returns by its deadline; a fatal fault is
 * sticky, named, and costs no further driver call. */
#include "gpu_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a call and checks that it returns because of its deadline. A loaded machine may take long over it, but not for
 * ever, as the stuck queue does. */
#define SLACK_MS 30000
static int64_t call_started;
static void within(const char *what, int64_t allowed_ms) {
    int64_t took = (gpu_now_ns() - call_started) / 1000000;
    if (took > allowed_ms + SLACK_MS)
        RF_FAIL("%s took %lld ms, allowed were %lld", what, (long long)took, (long long)allowed_ms);
}
#define TIMED(call, expected, allowed_ms)                                                                            \
    do {                                                                                                             \
        call_started = gpu_now_ns();                                                                                 \
        RF_EXPECT_STATUS(call, expected);                                                                            \
        within(#call, allowed_ms);                                                                                   \
    } while (0)

RF_TEST(stuck, every_call_returns_by_its_deadline, .gpu = true, .timeout_ms = 600000) {
    /* Healthy calls must meet it even on a loaded machine; a real GPU is quick, and must not be stuck for long. */
    const int64_t deadline_ms = gpu_simulated() ? 1500 : 300;
    /* Forever on the simulated driver; on a real GPU longer than this test takes. */
    int64_t stuck_for_ns = gpu_simulated() ? INT64_MAX : RF_MS(9000);
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){gpu_simulated() ? "RF_TIMEOUT_MS=1500" : "RF_TIMEOUT_MS=300", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *flag = gpu_buffer(&gpu, 4), *outcome = gpu_buffer(&gpu, 4), *mine = gpu_buffer(&gpu, 1 * MIB);
    struct rf_queue *stuck = NULL, *fresh = NULL;
    struct rf_event *event = NULL;
    struct rf_pinned *pinned = NULL;
    bool yes;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &stuck));
    RF_ASSERT_OK(rf_event_create(gpu.device, false, &event));
    RF_ASSERT_OK(rf_fill(stuck, flag, 0, 4, 0));
    RF_ASSERT_OK(GPU_LAUNCH(stuck, gpu_kernel(&gpu, "spin_forever_flag"), 1, rf_arg_buffer(flag),
                            rf_arg_buffer(outcome), rf_arg_i64(stuck_for_ns)));
    RF_ASSERT_OK(GPU_LAUNCH(stuck, gpu_kernel(&gpu, "increment"), 1, rf_arg_buffer(outcome), rf_arg_i64(1)));

    /* The stuck queue itself. */
    TIMED(rf_queue_wait(stuck, RF_TIMEOUT_DEFAULT), RF_E_TIMEOUT, deadline_ms);
    RF_ASSERT_CONTAINS(rf_error_text(), "spin_forever_flag");
    TIMED(rf_queue_wait(stuck, 0), RF_E_TIMEOUT, 0);
    TIMED(rf_queue_idle(stuck, &yes), RF_OK, 0);
    RF_EXPECT(!yes);
    TIMED(rf_event_record(event, stuck), RF_OK, deadline_ms);
    TIMED(rf_event_wait(event, RF_MS(50)), RF_E_TIMEOUT, 50);
    TIMED(rf_copy_from_device_safe(stuck, &yes, outcome, 0, 1), RF_E_TIMEOUT, deadline_ms);
    /* Everything else works as if no queue were stuck. */
    TIMED(rf_queue_create(gpu.device, NULL, &fresh), RF_OK, deadline_ms);
    for (int i = 0; i < 20; i++) {
        struct rf_buffer *buffer = NULL;
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = i % 2 ? 5 * MIB : 5 * KIB;
        params.direct = i % 3 == 0;
        params.zeroed = true;
        unsigned char got[16];
        TIMED(rf_buffer_create_safe(gpu.device, &params, &buffer), RF_OK, deadline_ms);
        TIMED(rf_fill(fresh, buffer, 0, 16, 7), RF_OK, deadline_ms);
        TIMED(rf_copy_from_device_safe(fresh, got, buffer, 0, 16), RF_OK, deadline_ms);
        RF_EXPECT_INT(got[15], 7);
        TIMED(rf_buffer_destroy(&buffer), RF_OK, deadline_ms);
    }
    RF_PARAMS(struct rf_memory_info, info);
    TIMED(rf_device_memory_info(gpu.device, &info), RF_OK, 0);
    TIMED(rf_can_allocate(gpu.device, MIB, &yes), RF_OK, 0);
    TIMED(rf_pinned_create(gpu.device, MIB, &pinned), RF_OK, deadline_ms);
    TIMED(rf_upload_async(fresh, mine, 0, pinned, 0, MIB), RF_OK, deadline_ms);
    TIMED(rf_queue_wait(fresh, RF_TIMEOUT_DEFAULT), RF_OK, deadline_ms);
    TIMED(rf_pinned_destroy(&pinned), RF_OK, deadline_ms);
    TIMED(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT), RF_E_TIMEOUT, deadline_ms);
    TIMED(rf_device_set_budget(gpu.device, "50%"), RF_OK, deadline_ms);
    TIMED(rf_queue_after(fresh, stuck), RF_OK, deadline_ms); /* now this queue waits forever too */
    TIMED(rf_queue_wait(fresh, RF_TIMEOUT_DEFAULT), RF_E_TIMEOUT, deadline_ms);
    /* More work than a driver takes without blocking. */
    call_started = gpu_now_ns();
    rf_status status = RF_OK;
    for (int i = 0; i < 5000 && !status; i++)
        status = GPU_LAUNCH(stuck, gpu_kernel(&gpu, "increment"), 1, rf_arg_buffer(outcome), rf_arg_i64(1));
    RF_EXPECT_STATUS(status, RF_E_TIMEOUT);
    within("filling the stuck queue", deadline_ms);
    TIMED(rf_queue_after(fresh, stuck), RF_E_TIMEOUT, deadline_ms);
    TIMED(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT), RF_OK, deadline_ms);
    TIMED(rf_buffer_destroy(&mine), RF_OK, deadline_ms);
    TIMED(rf_buffer_destroy(&outcome), RF_OK, deadline_ms); /* in use, so it is not given back */
    TIMED(rf_event_destroy(&event), RF_OK, deadline_ms);
    TIMED(rf_queue_destroy(&fresh), RF_OK, deadline_ms);
    TIMED(rf_queue_destroy(&stuck), RF_OK, deadline_ms);
    TIMED(rf_device_status(gpu.device), RF_OK, 0);

    /* Closing cannot give the memory back: the memory is abandoned, and the status says so. */
    struct rf_device *same = gpu.device;
    TIMED(rf_device_close(&gpu.device), RF_E_TIMEOUT, deadline_ms);
    RF_ASSERT_CONTAINS(gpu_log(), "abandoned");
    if (gpu_simulated()) RF_EXPECT(gpu_sim_device_bytes() > 0);
    uint64_t calls = gpu_sim_calls();
    RF_PARAMS(struct rf_device_params, params);
    TIMED(rf_device_open_checked(gpu.runtime, &params, &same), RF_E_DEVICE_LOST, deadline_ms);
    TIMED(rf_buffer_destroy(&flag), RF_OK, 0);
    RF_EXPECT_OK(rf_queue_destroy(&gpu.queue));
    call_started = gpu_now_ns();
    rf_runtime_destroy(&gpu.runtime);
    within("rf_runtime_destroy", deadline_ms);
    RF_EXPECT_INT(gpu_sim_calls(), calls);
    RF_EXPECT_INT(gpu_sim_traps(), 0);
}

RF_TEST(stuck, a_bounded_spin_times_out_then_finishes, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct gpu_hold hold;
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_MS(50)), RF_E_TIMEOUT);
    RF_ASSERT_CONTAINS(rf_error_text(), "spin_forever_flag");
    RF_ASSERT_OK(rf_device_status(gpu.device));
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    gpu_hold_finish(&hold);
    gpu_close(&gpu);
}

RF_TEST(lost, a_fault_is_sticky_named_and_silent) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("fault=hipModuleLaunchKernel:3:work/700");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096), *other = NULL;
    const struct rf_kernel *kernels[] = {gpu_kernel(&gpu, "increment"), gpu_kernel(&gpu, "write_pattern")};
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, kernels[0], 64, rf_arg_buffer(buffer), rf_arg_i64(64)));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, kernels[0], 64, rf_arg_buffer(buffer), rf_arg_i64(64)));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, kernels[1], 64, rf_arg_buffer(buffer), rf_arg_u32(1), rf_arg_i64(64)));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT), RF_E_DEVICE_LOST);
    RF_ASSERT_CONTAINS(rf_error_text(), "write_pattern");
    RF_ASSERT_CONTAINS(rf_error_text(), "700");
    uint64_t calls = gpu_sim_calls();
    bool yes;
    char byte = 0;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 4;
    RF_EXPECT_STATUS(rf_device_status(gpu.device), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &other), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_copy_to_device_safe(gpu.queue, buffer, 0, &byte, 1), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_can_allocate(gpu.device, 1, &yes), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_device_trim(gpu.device, 0), RF_E_DEVICE_LOST);
    RF_EXPECT_OK(rf_buffer_destroy(&buffer));
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT(info.abandoned_bytes >= 4096);
    RF_EXPECT_INT(info.live_count, 0);
    RF_EXPECT_OK(rf_queue_destroy(&gpu.queue));
    RF_EXPECT_STATUS(rf_device_close(&gpu.device), RF_E_DEVICE_LOST);
    rf_runtime_destroy(&gpu.runtime);
    RF_EXPECT_INT(gpu_sim_calls(), calls); /* no further driver call */
    RF_ASSERT_CONTAINS(gpu_log(), "is lost");
}

RF_TEST(lost, launch_check_names_the_culprit_among_many) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=launch", NULL});
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("fault=hipModuleLaunchKernel:8:work/719");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    const struct rf_kernel *increment = gpu_kernel(&gpu, "increment"), *pattern = gpu_kernel(&gpu, "write_pattern");
    rf_status status = RF_OK;
    for (int i = 1; i <= 12 && !status; i++)
        status = i == 8 ? GPU_LAUNCH(gpu.queue, pattern, 64, rf_arg_buffer(buffer), rf_arg_u32(1), rf_arg_i64(64))
                        : GPU_LAUNCH(gpu.queue, increment, 64, rf_arg_buffer(buffer), rf_arg_i64(64));
    if (!status) status = rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT);
    RF_EXPECT_STATUS(status, RF_E_DEVICE_LOST);
    RF_ASSERT_CONTAINS(rf_error_text(), "write_pattern");
    rf_runtime_destroy(&gpu.runtime);
}
