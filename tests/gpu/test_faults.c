/* A fault at every driver call of a full scenario: the right status each time, a ledger that is
 * empty or abandoned, no hang, no leak. */
#include "gpu_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_status(rf_status *first, rf_status status) {
    if (!*first) *first = status;
}

/* Opens, allocates, uploads, launches, downloads, closes; every status is kept, everything that
 * was made is destroyed. Gives the first failure. */
static rf_status scenario(struct gpu *gpu, bool *result_right) {
    enum { COUNT = 70000 };
    static uint32_t sent[COUNT], got[COUNT];
    rf_status first = RF_OK;
    struct rf_buffer *small = NULL, *large = NULL, *direct = NULL, *view = NULL;
    struct rf_pinned *pinned = NULL;
    struct rf_event *start = NULL, *end = NULL;
    struct rf_queue *second = NULL;
    for (uint32_t i = 0; i < COUNT; i++) sent[i] = i ^ 0x5555;
    memset(got, 0, sizeof got);
    gpu->modules = "copy,fill"; /* each kernel costs some calls */
    keep_status(&first, gpu_try_open(gpu, "1GiB"));
    if (gpu->device) {
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = 1000;
        params.zeroed = true;
        keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &small));
        params.bytes = COUNT * 4;
        params.zeroed = false;
        keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &large));
        params.bytes = 3 * MIB;
        params.direct = true;
        keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &direct));
        keep_status(&first, rf_pinned_create(gpu->device, COUNT * 4, &pinned));
        keep_status(&first, rf_event_create(gpu->device, true, &start));
        keep_status(&first, rf_event_create(gpu->device, true, &end));
        keep_status(&first, rf_queue_create(gpu->device, NULL, &second));
    }
    if (!first) {
        const struct rf_kernel *increment = NULL;
        int64_t elapsed;
        keep_status(&first, rf_kernel_find(gpu->device, "increment", &increment));
        keep_status(&first, rf_event_record(start, gpu->queue));
        keep_status(&first, rf_copy_to_device_safe(gpu->queue, large, 0, sent, sizeof sent));
        for (int i = 0; i < 20 && !first; i++)
            keep_status(&first, GPU_LAUNCH(gpu->queue, increment, COUNT, rf_arg_buffer(large), rf_arg_i64(COUNT)));
        keep_status(&first, rf_event_record(end, gpu->queue));
        if (!first) keep_status(&first, rf_queue_after(second, gpu->queue));
        if (!first) keep_status(&first, rf_copy_on_device(second, direct, 0, large, 0, sizeof got));
        if (!first) keep_status(&first, rf_copy_from_device_safe(second, got, direct, 0, sizeof got));
        if (!first) keep_status(&first, rf_download_async(second, pinned, 0, direct, 0, sizeof got));
        if (!first) keep_status(&first, rf_buffer_view(large, 0, 4, &view));
        if (!first) keep_status(&first, rf_queue_wait(second, RF_TIMEOUT_DEFAULT));
        if (!first) keep_status(&first, rf_event_wait(end, RF_TIMEOUT_DEFAULT));
        if (!first) keep_status(&first, rf_event_elapsed(start, end, &elapsed));
    }
    *result_right = true;
    for (uint32_t i = 0; i < COUNT && !first; i++) *result_right &= got[i] == (i ^ 0x5555) + 20;
    if (!first) *result_right &= !memcmp(rf_pinned_data(pinned), got, sizeof got);
    keep_status(&first, rf_buffer_destroy(&view));
    keep_status(&first, rf_buffer_destroy(&small));
    keep_status(&first, rf_buffer_destroy(&large));
    keep_status(&first, rf_buffer_destroy(&direct));
    keep_status(&first, rf_pinned_destroy(&pinned));
    keep_status(&first, rf_event_destroy(&start));
    keep_status(&first, rf_event_destroy(&end));
    keep_status(&first, rf_queue_destroy(&second));
    keep_status(&first, rf_queue_destroy(&gpu->queue));
    return first;
}

static rf_status expected_status(int code) {
    switch (code) {
    case 2: return RF_E_DEVICE_MEMORY;
    case 700:
    case 999: return RF_E_DEVICE_LOST;
    default: return RF_E_DRIVER;
    }
}

/* One child per step: the simulated driver reads RFSIM once per process. */
static int countdown_child(int code, long step) {
    char rfsim[64];
    struct gpu gpu = {0};
    bool right = false;
    gpu_set_sim("");
    gpu_make_runtime(&gpu, NULL);
    if (!rf_gpu_available(gpu.runtime)) return 3;
    snprintf(rfsim, sizeof rfsim, "fault=any:%ld:%d", step, code);
    gpu_set_sim(rfsim);
    rf_status status = scenario(&gpu, &right);
    struct rf_memory_info info = {.struct_size = sizeof info};
    bool lost = false;
    if (gpu.device) {
        /* The fault may hit this very question; it is injected once. */
        rf_status asked = rf_device_memory_info(gpu.device, &info);
        if (asked) asked = rf_device_memory_info(gpu.device, &info);
        RF_ASSERT_OK(asked);
        lost = rf_device_status(gpu.device) == RF_E_DEVICE_LOST;
        RF_ASSERT_INT(info.live_count, 0);
        rf_status closed = rf_device_close(&gpu.device);
        if (!status) status = closed;
        if (lost) RF_ASSERT(closed == RF_E_DEVICE_LOST);
    }
    bool abandoned = lost || strstr(gpu_log(), "abandoned") || strstr(gpu_log(), "could not be given back");
    rf_runtime_destroy(&gpu.runtime);
    if (gpu_sim_device_bytes()) RF_ASSERT(abandoned); /* held only if it was said */
    RF_ASSERT_INT(gpu_sim_traps(), 0);
    if (status == RF_OK) RF_ASSERT(right);
    if (status != RF_OK && status != expected_status(code))
        /* Some answers mean more than their number where they stand. */
        RF_ASSERT(status == RF_E_NO_DEVICE || status == RF_E_DRIVER || status == RF_E_NOT_FOUND ||
                  status == RF_E_UNSUPPORTED || status == RF_E_DEVICE_LOST || status == RF_E_NO_DRIVER);
    if ((code == 700 || code == 999) && (long)gpu_sim_calls() >= step && status == RF_OK)
        /* A fatal code that no status showed can only have come in clean-up; it is logged. */
        RF_ASSERT(strstr(gpu_log(), "lost"));
    if ((long)gpu_sim_calls() < step) return 2; /* the scenario makes fewer calls: done */
    RF_NOTE("step %ld code %d: %s", step, code, rf_status_name(status));
    return 0;
}

#include <sys/wait.h>
#include <unistd.h>

static void countdown(int code) {
    gpu_need_simulated("");
    gpu_folder(); /* made here, for all children */
    long step = 1;
    int failures = 0;
    for (;; step++) {
        /* Fork before any driver is touched in this process. */
        fflush(NULL);
        pid_t child = fork();
        RF_ASSERT(child >= 0);
        if (!child) _exit(countdown_child(code, step));
        int status = 0;
        RF_ASSERT(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 2) break;
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            failures++;
            RF_NOTE("step %ld: status %#x", step, status);
        }
        RF_ASSERT(step < 2000);
    }
    RF_NOTE("%ld driver calls, each failed once with %d", step - 1, code);
    RF_EXPECT(step > 60);
    RF_EXPECT_INT(failures, 0);
}

RF_TEST(faults, out_of_memory_at_every_call, .timeout_ms = 300000, .tags = "faults") {
    countdown(2);
}
RF_TEST(faults, not_supported_at_every_call, .timeout_ms = 300000, .tags = "slow") {
    countdown(801);
}
RF_TEST(faults, illegal_address_at_every_call, .timeout_ms = 300000, .tags = "faults") {
    countdown(700);
}
RF_TEST(faults, unknown_at_every_call, .timeout_ms = 300000, .tags = "slow") {
    countdown(999);
}
