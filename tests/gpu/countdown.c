#include "countdown.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void gpu_keep_status(rf_status *first, rf_status status) {
    if (!*first) *first = status;
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
static int run_child(gpu_scenario scenario, int code, long step) {
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
    if (gpu_sim_device_bytes()) RF_ASSERT(abandoned); /* memory is held only if it was reported as abandoned */
    RF_ASSERT_INT(gpu_sim_traps(), 0);
    if (status == RF_OK) RF_ASSERT(right);
    if (status != RF_OK && status != expected_status(code)) /* Some calls give a code a more specific status. */
        RF_ASSERT(status == RF_E_NO_DEVICE || status == RF_E_DRIVER || status == RF_E_NOT_FOUND ||
                  status == RF_E_UNSUPPORTED || status == RF_E_DEVICE_LOST || status == RF_E_NO_DRIVER);
    if ((code == 700 || code == 999) && (long)gpu_sim_calls() >= step && status == RF_OK)
        /* A fatal code that no status showed can only have come in clean-up; then it is in the log. */
        RF_ASSERT(strstr(gpu_log(), "lost"));
    if ((long)gpu_sim_calls() < step) return 2; /* the scenario makes fewer calls: done */
    RF_NOTE("step %ld code %d: %s", step, code, rf_status_name(status));
    return 0;
}

void gpu_countdown(gpu_scenario scenario, int code) {
    gpu_need_simulated("");
    gpu_folder(); /* made here for all children */
    long step = 1;
    int failures = 0;
    for (;; step++) {
        /* Fork before any driver is loaded in this process. */
        fflush(NULL);
        pid_t child = fork();
        RF_ASSERT(child >= 0);
        if (!child) _exit(run_child(scenario, code, step));
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
