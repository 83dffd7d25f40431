/* A fault at every driver call of a full scenario: each time the status is right, the ledger is empty or abandoned,
 * and nothing hangs or leaks. */
#include "countdown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens, allocates, uploads, launches, downloads, closes; it keeps every status and destroys everything that it made.
 * Returns the first failure. */
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
    gpu_keep_status(&first, gpu_try_open(gpu, "1GiB"));
    if (gpu->device) {
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = 1000;
        params.zeroed = true;
        gpu_keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &small));
        params.bytes = COUNT * 4;
        params.zeroed = false;
        gpu_keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &large));
        params.bytes = 3 * MIB;
        params.direct = true;
        gpu_keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &direct));
        gpu_keep_status(&first, rf_pinned_create(gpu->device, COUNT * 4, &pinned));
        gpu_keep_status(&first, rf_event_create(gpu->device, true, &start));
        gpu_keep_status(&first, rf_event_create(gpu->device, true, &end));
        gpu_keep_status(&first, rf_queue_create(gpu->device, NULL, &second));
    }
    if (!first) {
        const struct rf_kernel *increment = NULL;
        int64_t elapsed;
        gpu_keep_status(&first, rf_kernel_find(gpu->device, "increment", &increment));
        gpu_keep_status(&first, rf_event_record(start, gpu->queue));
        gpu_keep_status(&first, rf_copy_to_device_safe(gpu->queue, large, 0, sent, sizeof sent));
        for (int i = 0; i < 20 && !first; i++)
            gpu_keep_status(&first,
                            GPU_LAUNCH(gpu->queue, increment, COUNT, rf_arg_buffer(large), rf_arg_i64(COUNT)));
        gpu_keep_status(&first, rf_event_record(end, gpu->queue));
        if (!first) gpu_keep_status(&first, rf_queue_after(second, gpu->queue));
        if (!first) gpu_keep_status(&first, rf_copy_on_device(second, direct, 0, large, 0, sizeof got));
        if (!first) gpu_keep_status(&first, rf_copy_from_device_safe(second, got, direct, 0, sizeof got));
        if (!first) gpu_keep_status(&first, rf_download_async(second, pinned, 0, direct, 0, sizeof got));
        if (!first) gpu_keep_status(&first, rf_buffer_view(large, 0, 4, &view));
        if (!first) gpu_keep_status(&first, rf_queue_wait(second, RF_TIMEOUT_DEFAULT));
        if (!first) gpu_keep_status(&first, rf_event_wait(end, RF_TIMEOUT_DEFAULT));
        if (!first) gpu_keep_status(&first, rf_event_elapsed(start, end, &elapsed));
    }
    *result_right = true;
    for (uint32_t i = 0; i < COUNT && !first; i++) *result_right &= got[i] == (i ^ 0x5555) + 20;
    if (!first) *result_right &= !memcmp(rf_pinned_data(pinned), got, sizeof got);
    gpu_keep_status(&first, rf_buffer_destroy(&view));
    gpu_keep_status(&first, rf_buffer_destroy(&small));
    gpu_keep_status(&first, rf_buffer_destroy(&large));
    gpu_keep_status(&first, rf_buffer_destroy(&direct));
    gpu_keep_status(&first, rf_pinned_destroy(&pinned));
    gpu_keep_status(&first, rf_event_destroy(&start));
    gpu_keep_status(&first, rf_event_destroy(&end));
    gpu_keep_status(&first, rf_queue_destroy(&second));
    gpu_keep_status(&first, rf_queue_destroy(&gpu->queue));
    return first;
}

RF_TEST(faults, out_of_memory_at_every_call, .timeout_ms = 1500000, .tags = "faults") {
    gpu_countdown(scenario, 2);
}
RF_TEST(faults, not_supported_at_every_call, .timeout_ms = 1500000, .tags = "slow") {
    gpu_countdown(scenario, 801);
}
RF_TEST(faults, illegal_address_at_every_call, .timeout_ms = 1500000, .tags = "faults,heavy") {
    gpu_countdown(scenario, 700);
}
RF_TEST(faults, unknown_at_every_call, .timeout_ms = 1500000, .tags = "slow") {
    gpu_countdown(scenario, 999);
}
