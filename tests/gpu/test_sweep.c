/* What a test runner needs from the device layer: sweeping, shares, turns, refusals on purpose. */
#include "gpu_testing.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool note_site(void *user, const struct rf_allocation *a) {
    *(int *)user += strstr(a->site.file, "gpu_testing.c") || strstr(a->site.file, "test_sweep.c");
    return true;
}

RF_TEST(sweep, releases_what_was_made_since_the_mark, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *kept = gpu_buffer(&gpu, 100);
    RF_PARAMS(struct rf_sweep, sweep);
    sweep.mark = rf_device_mark(gpu.device);
    sweep.timeout_ns = RF_TIMEOUT_DEFAULT;
    int sites = 0;
    sweep.visit = note_site;
    sweep.user = &sites;
    struct rf_buffer *leaked = gpu_buffer(&gpu, 1), *large = gpu_buffer(&gpu, 3 * MIB), *view = NULL;
    struct rf_queue *queue = NULL;
    struct rf_event *event = NULL;
    struct rf_pinned *pinned = NULL;
    RF_ASSERT_OK(rf_buffer_view(large, 0, 10, &view));
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &queue));
    RF_ASSERT_OK(rf_event_create(gpu.device, false, &event));
    RF_ASSERT_OK(rf_pinned_create(gpu.device, 64, &pinned));
    RF_ASSERT_OK(rf_fill(queue, leaked, 0, 1, 3));
    RF_ASSERT_OK(rf_device_sweep(gpu.device, &sweep));
    RF_EXPECT_INT(sweep.allocations, 3);
    RF_EXPECT_INT(sweep.bytes, 1 + 3 * MIB + 64);
    RF_EXPECT_INT(sweep.handles, 3);
    RF_EXPECT_INT(sites, 3);
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 1);
    RF_ASSERT_OK(rf_device_sweep(gpu.device, &sweep)); /* nothing is left to sweep */
    RF_EXPECT_INT(sweep.allocations, 0);
    RF_EXPECT_INT(sweep.handles, 0);
    RF_ASSERT_OK(rf_buffer_destroy(&kept));
    gpu_close(&gpu);
}

RF_TEST(sweep, finds_a_damaged_guard, .gpu = true) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_CHECK=guard", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 16);
    RF_PARAMS(struct rf_sweep, sweep);
    sweep.mark = rf_device_mark(gpu.device);
    sweep.timeout_ns = RF_TIMEOUT_DEFAULT;
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "out_of_bounds"), 1, rf_arg_buffer(buffer), rf_arg_i64(4),
                            rf_arg_u32(7)));
    RF_EXPECT_STATUS(rf_device_sweep(gpu.device, &sweep), RF_E_CORRUPT);
    RF_EXPECT_STATUS(rf_buffer_destroy(&buffer), RF_E_CORRUPT);
    /* Also if nobody looked at the status of the destroy. */
    RF_EXPECT_STATUS(rf_device_sweep(gpu.device, &sweep), RF_E_CORRUPT);
    RF_ASSERT_CONTAINS(gpu_log(), "past the end of a 16-byte buffer");
    sweep.mark = rf_device_mark(gpu.device);
    RF_ASSERT_OK(rf_device_sweep(gpu.device, &sweep));
    gpu_close(&gpu);
}

RF_TEST(sweep, a_stuck_queue_loses_the_device) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_TIMEOUT_MS=200", NULL});
    gpu_open(&gpu, NULL);
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "spin_ns"), 1, rf_arg_i64(INT64_MAX)));
    RF_PARAMS(struct rf_sweep, sweep);
    sweep.timeout_ns = RF_MS(100);
    RF_EXPECT_STATUS(rf_device_sweep(gpu.device, &sweep), RF_E_TIMEOUT);
    RF_ASSERT_CONTAINS(rf_error_text(), "spin_ns");
    RF_EXPECT_STATUS(rf_device_status(gpu.device), RF_E_DEVICE_LOST);
    rf_runtime_destroy(&gpu.runtime);
}

RF_TEST(fail_alloc, refuses_the_nth_and_says_so, .gpu = true) {
    char option[400], path[350];
    snprintf(path, sizeof path, "%s/hit", gpu_folder());
    snprintf(option, sizeof option, "RF_FAIL_ALLOC=3:%s", path);
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){option, NULL});
    gpu_open(&gpu, NULL);
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 64;
    struct rf_buffer *buffers[4] = {0};
    for (int i = 0; i < 4; i++) {
        RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &buffers[i]), i == 2 ? RF_E_BUDGET : RF_OK);
        RF_EXPECT_INT(access(path, F_OK) == 0, i >= 2);
    }
    for (int i = 0; i < 4; i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    gpu_close(&gpu);
    struct rf_runtime *runtime = NULL;
    RF_PARAMS(struct rf_runtime_params, bad);
    static const char *const wrong[] = {"RF_FAIL_ALLOC=0", "RF_FAIL_ALLOC=x", "RF_FAIL_ALLOC=1x"};
    for (size_t i = 0; i < 3; i++) {
        const char *options[] = {wrong[i], NULL};
        bad.options = options;
        RF_EXPECT_STATUS(rf_runtime_create(&bad, &runtime), RF_E_SYNTAX);
    }
}

RF_TEST(share, lends_to_a_device_and_takes_turns) {
    gpu_need_simulated("vram=8GiB,context=0");
    struct gpu runner = {0}, child = {0};
    gpu_make_runtime(&runner, NULL);
    RF_PARAMS(struct rf_share_params, params);
    params.budget = "4GiB";
    params.exclusive = true;
    struct rf_share *share = NULL, *second = NULL;
    uint64_t calls = gpu_sim_calls();
    RF_ASSERT_OK(rf_share_create(runner.runtime, &params, &share));
    RF_EXPECT_INT(rf_share_bytes(share), 4 * GIB);
    RF_EXPECT_INT(gpu_sim_calls(), calls); /* no driver in this process */
    params.timeout_ns = RF_MS(50);
    RF_EXPECT_STATUS(rf_share_create(runner.runtime, &params, &second), RF_E_BUSY);
    char mine[32];
    snprintf(mine, sizeof mine, "pid %d", (int)getpid());
    RF_ASSERT_CONTAINS(rf_error_text(), mine);
    char spec[128];
    RF_ASSERT_OK(rf_share_lend(share, GIB, spec, sizeof spec));
    gpu_make_runtime(&child, NULL);
    RF_ASSERT_OK(gpu_try_open(&child, spec));
    RF_EXPECT_INT(gpu_memory(&child).budget_bytes, GIB);
    RF_EXPECT_STATUS(rf_share_reclaim(share, spec), RF_E_BUSY);
    gpu_close(&child);
    RF_ASSERT_OK(rf_share_reclaim(share, spec));
    RF_EXPECT_STATUS(rf_share_lend(share, 5 * GIB, spec, sizeof spec), RF_E_BUDGET);
    rf_share_destroy(&share);
    params.timeout_ns = 0;
    RF_ASSERT_OK(rf_share_create(runner.runtime, &params, &share));
    rf_share_destroy(&share);
    rf_runtime_destroy(&runner.runtime);
}
