/* Recordings: a recording gives the results of direct launches, run after run; what cannot be recorded is refused; a
 * failed recording harms nothing; timeouts and faults name the recording; the memory that the driver takes for it is
 * charged. */
#include "countdown.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 5000 };

static void skip_without_recording(struct gpu *gpu) {
    rf_status status = rf_queue_record_begin(gpu->queue, "can it");
    struct rf_recording *none = NULL;
    if (status == RF_E_UNSUPPORTED) RF_SKIP("%s", rf_error_text());
    RF_ASSERT_OK(status);
    RF_ASSERT_STATUS(rf_queue_record_end(gpu->queue, &none), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "nothing was recorded");
}

/* Some of everything that can be recorded: a += 1 twice, b = a, a fill in b, an upload over the start of b. */
static rf_status submit(struct rf_queue *queue, const struct rf_kernel *increment, struct rf_buffer *a,
                        struct rf_buffer *b, struct rf_pinned *in, struct rf_pinned *out) {
    rf_status status = RF_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = GPU_LAUNCH(queue, increment, COUNT, rf_arg_buffer(a), rf_arg_i64(COUNT));
    if (!status) status = rf_copy_on_device(queue, b, 0, a, 0, COUNT * 4);
    if (!status) status = rf_fill(queue, b, 400, 400, 0x11);
    if (!status) status = rf_upload_async(queue, b, 0, in, 0, 64);
    if (!status) status = rf_download_async(queue, out, 0, b, 0, COUNT * 4);
    return status;
}

RF_TEST(recording, gives_the_results_of_direct_launches, .gpu = true) {
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    skip_without_recording(&gpu);
    const struct rf_kernel *increment = gpu_kernel(&gpu, "increment");
    static uint32_t start[COUNT], got[2][2][COUNT];
    for (uint32_t i = 0; i < COUNT; i++) start[i] = i * 2654435761u;
    for (int recorded = 0; recorded < 2; recorded++) {
        struct rf_buffer *a = gpu_buffer(&gpu, COUNT * 4), *b = gpu_buffer(&gpu, COUNT * 4);
        struct rf_pinned *in = NULL, *out = NULL;
        struct rf_recording *recording = NULL;
        RF_ASSERT_OK(rf_pinned_create(gpu.device, 64, &in));
        RF_ASSERT_OK(rf_pinned_create(gpu.device, COUNT * 4, &out));
        memset(rf_pinned_data(in), 0xee, 64);
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, a, 0, start, sizeof start));
        if (recorded) {
            RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "step"));
            RF_ASSERT_OK(submit(gpu.queue, increment, a, b, in, out));
            RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
            RF_PARAMS(struct rf_recording_info, info);
            RF_ASSERT_OK(rf_recording_get_info(recording, &info));
            RF_EXPECT(!strcmp(info.name, "step"));
            RF_EXPECT_INT(info.submissions, 6);
            /* Recording has run nothing. */
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got[1][0], a, 0, sizeof got[1][0]));
            RF_ASSERT(!memcmp(got[1][0], start, sizeof start));
        }
        bool idle = true; /* pinned memory must not change while copies may read it */
        unsigned char sent = 0;
        for (uint32_t run = 0; run < 1000; run++) {
            if (idle) ((unsigned char *)rf_pinned_data(in))[0] = sent = (unsigned char)(run + 1);
            RF_ASSERT_OK(recorded ? rf_recording_run(gpu.queue, recording)
                                  : submit(gpu.queue, increment, a, b, in, out));
            idle = run % 10 == 0 || run > 990; /* mostly several runs are unfinished at once */
            if (!idle) continue;
            RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
            const uint32_t *seen = rf_pinned_data(out);
            RF_ASSERT_INT(*(const unsigned char *)seen, sent);
            RF_ASSERT_INT(seen[COUNT - 1], start[COUNT - 1] + 2 * (run + 1));
        }
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got[recorded][0], a, 0, COUNT * 4));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got[recorded][1], b, 0, COUNT * 4));
        RF_ASSERT_OK(rf_recording_destroy(&recording));
        RF_ASSERT(recording == NULL);
        RF_ASSERT_OK(rf_recording_destroy(&recording)); /* NULL is fine */
        RF_ASSERT_OK(rf_pinned_destroy(&in));
        RF_ASSERT_OK(rf_pinned_destroy(&out));
        RF_ASSERT_OK(rf_buffer_destroy(&a));
        RF_ASSERT_OK(rf_buffer_destroy(&b));
    }
    RF_EXPECT(!memcmp(got[0], got[1], sizeof got[0]));
    RF_EXPECT_INT(got[1][0][7], start[7] + 2000);
    gpu_close(&gpu);
}

RF_TEST(recording, refuses_what_cannot_be_recorded, .gpu = true) {
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    skip_without_recording(&gpu);
    const struct rf_kernel *increment = gpu_kernel(&gpu, "increment");
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096), *fresh = NULL;
    struct rf_queue *other = NULL;
    struct rf_event *event = NULL;
    struct rf_recording *recording = NULL, *second = NULL;
    uint32_t words[4] = {0};
    bool idle = false;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &other));
    RF_ASSERT_OK(rf_event_create(gpu.device, false, &event));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4096, 0));
    RF_ASSERT_OK(rf_event_record(event, gpu.queue));
    RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_INVALID);
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "first"));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, increment, 64, rf_arg_buffer(buffer), rf_arg_i64(64)));
#define REFUSED(call)                                                                                                \
    do {                                                                                                             \
        RF_EXPECT_STATUS(call, RF_E_INVALID);                                                                        \
        RF_ASSERT_CONTAINS(rf_error_text(), "recording 'first'");                                                    \
    } while (0)
    REFUSED(rf_queue_record_begin(gpu.queue, "again"));
    REFUSED(rf_copy_to_device_safe(gpu.queue, buffer, 0, words, sizeof words));
    REFUSED(rf_copy_from_device_safe(gpu.queue, words, buffer, 0, sizeof words));
    REFUSED(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    REFUSED(rf_event_record(event, gpu.queue));
    REFUSED(rf_queue_after_event(gpu.queue, event));
    REFUSED(rf_queue_after(gpu.queue, other));
    REFUSED(rf_queue_after(other, gpu.queue));
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 64;
    params.zeroed = true;
    params.queue = gpu.queue;
    REFUSED(rf_buffer_create_safe(gpu.device, &params, &fresh));
    /* Earlier submissions can still be waited for, and other queues go on, on this thread too. */
    RF_EXPECT_OK(rf_event_wait(event, RF_TIMEOUT_DEFAULT));
    RF_EXPECT_OK(rf_queue_idle(gpu.queue, &idle));
    RF_EXPECT(idle);
    params.queue = other;
    params.bytes = 3 * MIB;
    params.direct = true;
    RF_EXPECT_OK(rf_buffer_create_safe(gpu.device, &params, &fresh));
    RF_EXPECT_OK(rf_queue_after_event(other, event));
    RF_EXPECT_OK(rf_copy_from_device_safe(other, words, fresh, 0, sizeof words));
    RF_EXPECT_OK(rf_buffer_destroy(&fresh));
    RF_EXPECT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_queue_record_begin(other, "second"));
    RF_ASSERT_OK(rf_fill(other, buffer, 256, 256, 9));
    RF_ASSERT_OK(rf_queue_record_end(other, &second));
    REFUSED(rf_recording_run(gpu.queue, second));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_PARAMS(struct rf_recording_info, info);
    RF_ASSERT_OK(rf_recording_get_info(recording, &info));
    RF_EXPECT_INT(info.submissions, 1);
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, second)); /* any queue of the device */
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, words, buffer, 252, 8));
    RF_EXPECT_INT(words[0], 1);
    RF_EXPECT_INT(words[1], 0x09090909);
    RF_EXPECT_STATUS(rf_recording_run(gpu.queue, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_recording_run(gpu.queue, (struct rf_recording *)(void *)buffer), RF_E_HANDLE);
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_ASSERT_OK(rf_recording_destroy(&second));
    RF_ASSERT_OK(rf_event_destroy(&event));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    /* An incomplete recording is not created: record_end returns the first error again. */
    buffer = gpu_buffer(&gpu, 4096);
    RF_ASSERT_OK(rf_queue_record_begin(other, "with a hole"));
    RF_ASSERT_OK(rf_fill(other, buffer, 0, 8, 0));
    RF_EXPECT_STATUS(rf_fill(other, buffer, 4096, 1, 0), RF_E_INVALID);
    RF_ASSERT_OK(rf_fill(other, buffer, 8, 8, 0));
    RF_EXPECT_STATUS(rf_queue_record_end(other, &second), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "do not lie within the buffer");
    RF_ASSERT_CONTAINS(rf_error_text(), "with a hole");
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    /* A queue may be destroyed while it records; what the recording kept is released. */
    buffer = gpu_buffer(&gpu, 4096);
    RF_ASSERT_OK(rf_queue_record_begin(other, NULL));
    RF_ASSERT_OK(rf_fill(other, buffer, 0, 8, 0));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_EXPECT(gpu_memory(&gpu).used_bytes > 0);
    RF_ASSERT_OK(rf_queue_destroy(&other));
    RF_EXPECT_INT(gpu_memory(&gpu).used_bytes, 0);
    gpu_close(&gpu);
}

RF_TEST(recording, keeps_the_memory_that_it_uses, .gpu = true) {
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    skip_without_recording(&gpu);
    struct rf_buffer *buffer = gpu_buffer(&gpu, COUNT * 4), *view = NULL, *next;
    struct rf_pinned *pinned = NULL;
    struct rf_recording *recording = NULL;
    RF_ASSERT_OK(rf_pinned_create(gpu.device, COUNT * 4, &pinned));
    const uint32_t *seen = rf_pinned_data(pinned);
    RF_ASSERT_OK(rf_buffer_view(buffer, 0, COUNT * 4, &view));
    uint64_t address = rf_buffer_address(buffer);
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "kept"));
    RF_ASSERT_OK(rf_fill(gpu.queue, view, 0, COUNT * 4, 0));
    RF_ASSERT_OK(
        GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "increment"), COUNT, rf_arg_buffer(buffer), rf_arg_i64(COUNT)));
    RF_ASSERT_OK(rf_download_async(gpu.queue, pinned, 0, buffer, 0, COUNT * 4));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_buffer_destroy(&view));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_pinned_destroy(&pinned));
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 2); /* the ledger names the holder */
    next = gpu_buffer(&gpu, COUNT * 4);
    RF_EXPECT(rf_buffer_address(next) != address);
    RF_ASSERT_OK(rf_fill(gpu.queue, next, 0, COUNT * 4, 0x77));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    for (int i = 0; i < COUNT; i++) RF_ASSERT_INT(seen[i], 1);
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_recording_destroy(&recording)); /* while it may run */
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 1);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_buffer_destroy(&next));
    gpu_close(&gpu);
}

RF_TEST(recording, what_the_driver_takes_is_charged) {
    gpu_need_simulated("vram=4GiB,graph=1MiB");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open_above_driver(&gpu, 400 * MIB);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recordings[64] = {NULL};
    const struct rf_memory_info before = gpu_memory(&gpu);
    uint64_t charged = 0;
    int made = 0;
    rf_status status = RF_OK;
    for (; made < 64 && !status; made += !status) {
        RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "many"));
        for (int i = 0; i < 15; i++) RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 64, 1));
        status = rf_queue_record_end(gpu.queue, &recordings[made]);
        RF_PARAMS(struct rf_recording_info, info);
        if (status) break;
        RF_ASSERT_OK(rf_recording_get_info(recordings[made], &info));
        RF_EXPECT_INT(info.driver_bytes, 16 * MIB);
        charged += info.driver_bytes;
        struct rf_memory_info now = gpu_memory(&gpu);
        RF_ASSERT_INT(now.driver_bytes, before.driver_bytes + charged);
        RF_ASSERT_INT(now.held_bytes, before.held_bytes + charged);
        RF_ASSERT(now.held_bytes <= now.budget_bytes);
    }
    RF_EXPECT_STATUS(status, RF_E_BUDGET);
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_BUDGET");
    RF_EXPECT(made > 3 && made < 25);
    RF_EXPECT(recordings[made] == NULL);
    RF_EXPECT_INT(gpu_memory(&gpu).driver_bytes, before.driver_bytes + charged); /* refused before it was made */
    RF_EXPECT(gpu_memory(&gpu).peak_bytes <= before.budget_bytes);
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 64, 2)); /* the queue still works */
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recordings[0]));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    for (int i = 0; i < made; i++) RF_ASSERT_OK(rf_recording_destroy(&recordings[i]));
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT)); /* a quiet moment */
    RF_EXPECT_INT(gpu_memory(&gpu).driver_bytes, before.driver_bytes);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* What a driver takes is known only afterwards: a driver that takes far more than before exceeds the budget for a
 * moment. */
RF_TEST(recording, a_driver_that_takes_too_much_is_refused) {
    gpu_need_simulated("vram=4GiB,graph=40MiB");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open_above_driver(&gpu, 400 * MIB);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    const struct rf_memory_info before = gpu_memory(&gpu);
    for (int attempt = 0; attempt < 2; attempt++) {
        RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "huge"));
        for (int i = 0; i < 15; i++) RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 64, 1));
        RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_BUDGET);
        RF_ASSERT_CONTAINS(rf_error_text(), "huge");
        RF_EXPECT(recording == NULL);
        RF_EXPECT_INT(gpu_sim_entry_calls("hipGraphInstantiateWithFlags"), 1); /* now the size is known */
        RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
        RF_EXPECT_INT(gpu_memory(&gpu).driver_bytes, before.driver_bytes);
        RF_EXPECT_INT(gpu_memory(&gpu).live_count, 1);
    }
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* ---- deadlines, loss, leaks ---- */

RF_TEST(recording, a_long_run_times_out_by_name_then_finishes, .gpu = true) {
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    skip_without_recording(&gpu);
    struct rf_recording *recording = NULL;
    struct gpu_hold hold;
    bool idle = true;
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "slow step"));
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_MS(50)), RF_E_TIMEOUT);
    RF_ASSERT_CONTAINS(rf_error_text(), "slow step");
    RF_ASSERT_OK(rf_recording_destroy(&recording)); /* does not wait for it */
    RF_ASSERT_OK(rf_queue_idle(gpu.queue, &idle));
    RF_EXPECT(!idle);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT)); /* the driver's part is freed at a quiet moment */
    gpu_close(&gpu);
}

RF_TEST(recording, a_stuck_one_is_abandoned_with_the_device, .timeout_ms = 300000) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, (const char *const[]){"RF_TIMEOUT_MS=1000", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *flag = gpu_buffer(&gpu, 4), *outcome = gpu_buffer(&gpu, 4);
    struct rf_recording *recording = NULL, *leaked = NULL;
    RF_ASSERT_OK(rf_fill(gpu.queue, flag, 0, 4, 0));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "for ever"));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "spin_forever_flag"), 1, rf_arg_buffer(flag),
                            rf_arg_buffer(outcome), rf_arg_i64(INT64_MAX)));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    /* Recording works while something is stuck, on the same queue too. */
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "meanwhile"));
    RF_ASSERT_OK(rf_fill(gpu.queue, outcome, 0, 4, 0));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &leaked));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT), RF_E_TIMEOUT);
    RF_ASSERT_CONTAINS(rf_error_text(), "for ever");
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_EXPECT_INT(gpu_sim_entry_calls("hipGraphExecDestroy"), 0); /* not while it runs */
    RF_ASSERT_OK(rf_buffer_destroy(&flag));
    RF_ASSERT_OK(rf_buffer_destroy(&outcome));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "never ended"));
    RF_ASSERT_OK(rf_queue_destroy(&gpu.queue));
    RF_EXPECT_STATUS(rf_device_close(&gpu.device), RF_E_TIMEOUT);
    RF_ASSERT_CONTAINS(gpu_log(), "abandoned");
    RF_EXPECT_INT(gpu_sim_entry_calls("hipGraphExecDestroy"), 0);
    RF_EXPECT_OK(rf_recording_destroy(&leaked)); /* its device is gone */
    rf_runtime_destroy(&gpu.runtime);
    RF_EXPECT_INT(gpu_sim_traps(), 0);
}

RF_TEST(recording, a_fault_in_a_run_names_it) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("fault=hipGraphLaunch:3:work/700");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL, *late = NULL;
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "the culprit"));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "increment"), 64, rf_arg_buffer(buffer), rf_arg_i64(64)));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
        RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    }
    struct rf_queue *other = NULL;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &other));
    RF_ASSERT_OK(rf_queue_record_begin(other, "under way"));
    RF_ASSERT_OK(rf_fill(other, buffer, 0, 64, 1));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_EXPECT_STATUS(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT), RF_E_DEVICE_LOST);
    RF_ASSERT_CONTAINS(rf_error_text(), "the culprit");
    uint64_t calls = gpu_sim_calls();
    RF_EXPECT_STATUS(rf_recording_run(gpu.queue, recording), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_queue_record_begin(gpu.queue, NULL), RF_E_DEVICE_LOST);
    RF_EXPECT_STATUS(rf_queue_record_end(other, &late), RF_E_DEVICE_LOST);
    RF_EXPECT_OK(rf_recording_destroy(&recording));
    RF_EXPECT_OK(rf_buffer_destroy(&buffer));
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 0);
    RF_EXPECT_OK(rf_queue_destroy(&other));
    RF_EXPECT_OK(rf_queue_destroy(&gpu.queue));
    RF_EXPECT_STATUS(rf_device_close(&gpu.device), RF_E_DEVICE_LOST);
    rf_runtime_destroy(&gpu.runtime);
    RF_EXPECT_INT(gpu_sim_calls(), calls);
}

RF_TEST(recording, a_failed_one_leaves_the_queue_usable) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("fault=hipMemsetD8Async:2:2,fault=hipStreamEndCapture:2:1,fault=hipGraphInstantiateWithFlags:1:801");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    const rf_status expected[] = {RF_E_DEVICE_MEMORY, RF_E_DRIVER, RF_E_UNSUPPORTED, RF_OK};
    for (int i = 0; i < 4; i++) {
        unsigned char seen = 0;
        RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "tried"));
        rf_fill(gpu.queue, buffer, 0, 8, (unsigned char)(i + 1));
        rf_fill(gpu.queue, buffer, 8, 8, 0); /* in the first round this one fails */
        RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), expected[i]);
        RF_EXPECT((recording != NULL) == (i == 3));
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 0x42));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &seen, buffer, 0, 1));
        RF_EXPECT_INT(seen, 0x42);
    }
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* HIP before 7.14 keeps a capture that failed on its stream. Each of these costs a stream, and the queue goes on. */
RF_TEST(recording, a_capture_that_the_driver_keeps_costs_a_stream) {
    enum { ROUNDS = 3 };
    gpu_need_simulated("stale=1,fault=hipStreamEndCapture:1+:901");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    uint64_t streams = gpu_sim_entry_calls("hipStreamCreateWithPriority");
    for (int i = 0; i < ROUNDS; i++) {
        struct rf_recording *recording = NULL;
        unsigned char seen[2] = {0};
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4096, 1));
        RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "tried"));
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 0x77));
        RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_DRIVER);
        RF_ASSERT_CONTAINS(rf_error_text(), "capture_end");
        RF_EXPECT(recording == NULL);
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 1, 1, (unsigned char)(0x40 + i)));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, seen, buffer, 0, 2));
        RF_EXPECT_INT(seen[0], 1); /* what was recorded did not run */
        RF_EXPECT_INT(seen[1], 0x40 + i);
        RF_EXPECT_UINT(gpu_sim_entry_calls("hipStreamCreateWithPriority"), streams + (uint64_t)i + 1);
    }
    RF_EXPECT_CONTAINS(gpu_log(), "recording 'tried' failed; its queue goes on with another stream");
    RF_EXPECT_UINT(gpu_sim_entry_calls("hipStreamEndCapture"), ROUNDS); /* ending one again would crash */
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* What the queue does on its new stream comes after what it did on the old one. */
RF_TEST(recording, a_new_stream_keeps_the_order) {
    gpu_need_simulated("stale=1,fault=hipStreamEndCapture:1:901,fault=hipMemsetD8Async:1:work/hang");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    unsigned char seen = 0;
    bool idle = false;
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1)); /* does not end until it is released */
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, NULL));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 0x77));
    RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_DRIVER);
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 2));
    for (int i = 0; i < 20; i++) {
        RF_ASSERT_OK(rf_queue_idle(gpu.queue, &idle));
        RF_ASSERT(!idle);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    gpu_sim_release_hangs();
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &seen, buffer, 0, 1));
    RF_EXPECT_INT(seen, 2);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* Where there is no other stream either, the queue says so; another queue may work later. */
RF_TEST(recording, a_capture_that_the_driver_keeps_without_another_stream) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("stale=1,fault=hipStreamEndCapture:1:901,fault=hipStreamCreateWithPriority:3:2");
    gpu_open(&gpu, NULL); /* the second stream is the queue's */
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "tried"));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1));
    RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_DRIVER);
    RF_EXPECT_STATUS(rf_fill(gpu.queue, buffer, 0, 8, 1), RF_E_DRIVER);
    RF_ASSERT_CONTAINS(rf_error_text(), "make another queue");
    struct rf_queue *other = NULL;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &other));
    RF_ASSERT_OK(rf_fill(other, buffer, 0, 8, 1));
    RF_ASSERT_OK(rf_queue_wait(other, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_queue_destroy(&other));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(recording, can_be_switched_off) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, (const char *const[]){"RF_REPLAY=off", NULL});
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 64);
    RF_EXPECT_STATUS(rf_queue_record_begin(gpu.queue, NULL), RF_E_UNSUPPORTED);
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_REPLAY=off");
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 64, 5));
    RF_EXPECT_UINT(gpu_sim_entry_calls("hipStreamBeginCapture"), 0);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(recording, a_driver_that_cannot_is_no_failure) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    gpu_set_sim("fault=hipStreamBeginCapture:1+:801");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 64);
    struct rf_recording *recording = NULL;
    unsigned char seen = 0;
    for (int i = 0; i < 2; i++) {
        RF_EXPECT_STATUS(rf_queue_record_begin(gpu.queue, NULL), RF_E_UNSUPPORTED);
        RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_INVALID);
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 64, 5));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &seen, buffer, 9, 1));
        RF_EXPECT_INT(seen, 5);
    }
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(recording, leaked_ones_are_named_and_freed) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_recording *swept = NULL, *leaked = NULL;
    uint64_t mark = rf_device_mark(gpu.device);
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "swept"));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &swept));
    RF_PARAMS(struct rf_sweep, sweep);
    sweep.mark = mark;
    sweep.timeout_ns = RF_MS(5000);
    RF_ASSERT_OK(rf_device_sweep(gpu.device, &sweep));
    RF_EXPECT_INT(sweep.handles, 1);
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "forgotten"));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &leaked));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, leaked));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_device_close(&gpu.device));
    RF_ASSERT_CONTAINS(gpu_log(), "forgotten");
    RF_EXPECT_OK(rf_queue_destroy(&gpu.queue));
    rf_runtime_destroy(&gpu.runtime);
    RF_EXPECT_INT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_INT(gpu_sim_traps(), 0);
}

/* ---- threads ---- */

struct worker {
    struct gpu *gpu;
    pthread_t thread;
    uint32_t seed;
    const char *problem;
};

static void *record_and_run(void *argument) {
    struct worker *worker = argument;
    struct rf_queue *queue = NULL;
    struct rf_buffer *a = NULL, *b = NULL;
    static _Thread_local uint32_t words[COUNT];
#define NEED(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            worker->problem = #condition;                                                                            \
            return NULL;                                                                                             \
        }                                                                                                            \
    } while (0)
    const struct rf_kernel *increment = NULL;
    NEED(!rf_kernel_find(worker->gpu->device, "increment", &increment));
    NEED(!rf_queue_create(worker->gpu->device, NULL, &queue));
    for (uint32_t round = 0; round < 20; round++) {
        RF_PARAMS(struct rf_buffer_params, params);
        struct rf_recording *recording = NULL;
        params.bytes = sizeof words;
        NEED(!rf_buffer_create_safe(worker->gpu->device, &params, &a));
        for (uint32_t i = 0; i < COUNT; i++) words[i] = worker->seed + i;
        NEED(!rf_copy_to_device_safe(queue, a, 0, words, sizeof words)); /* its work may be unfinished below */
        NEED(!rf_queue_record_begin(queue, "threaded"));
        for (uint32_t i = 0; i < 3; i++)
            NEED(!GPU_LAUNCH(queue, increment, COUNT, rf_arg_buffer(a), rf_arg_i64(COUNT)));
        /* An allocation while recording: the pool queries events, and the driver allocates. */
        params.bytes = (round % 4 + 1) * MIB;
        params.direct = round % 2;
        NEED(!rf_buffer_create_safe(worker->gpu->device, &params, &b));
        NEED(!rf_buffer_destroy(&b));
        NEED(!rf_queue_record_end(queue, &recording));
        for (uint32_t i = 0; i < 10; i++) NEED(!rf_recording_run(queue, recording));
        NEED(!rf_copy_from_device_safe(queue, words, a, 0, sizeof words));
        for (uint32_t i = 0; i < COUNT; i++) NEED(words[i] == worker->seed + i + 30);
        NEED(!rf_recording_destroy(&recording));
        NEED(!rf_buffer_destroy(&a));
    }
    NEED(!rf_queue_destroy(&queue));
    return NULL;
}

RF_TEST(recording, threads_record_at_once, .gpu = true, .timeout_ms = 600000) {
    struct gpu gpu = {0};
    gpu.modules = "copy";
    gpu_open(&gpu, NULL);
    skip_without_recording(&gpu);
    struct worker workers[4];
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.gpu = &gpu, .seed = i * 1000003};
        RF_ASSERT_INT(pthread_create(&workers[i].thread, NULL, record_and_run, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].problem) RF_FAIL("thread %d: not %s", i, workers[i].problem);
    }
    gpu_close(&gpu);
}

/* ---- a fault at every driver call ---- */

/* Records on two queues, runs, destroys everything that it made. Returns the first failure. */
static rf_status scenario(struct gpu *gpu, bool *right) {
    rf_status first = RF_OK;
    struct rf_buffer *a = NULL, *b = NULL;
    struct rf_pinned *in = NULL, *out = NULL;
    struct rf_recording *recordings[2] = {NULL};
    struct rf_queue *second = NULL;
    const struct rf_kernel *increment = NULL;
    gpu->modules = "copy";
    gpu_keep_status(&first, gpu_try_open(gpu, "1GiB"));
    if (!first) {
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = COUNT * 4;
        params.zeroed = true;
        gpu_keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &a));
        gpu_keep_status(&first, rf_buffer_create_safe(gpu->device, &params, &b));
        gpu_keep_status(&first, rf_pinned_create(gpu->device, COUNT * 4, &in));
        gpu_keep_status(&first, rf_pinned_create(gpu->device, COUNT * 4, &out));
        gpu_keep_status(&first, rf_queue_create(gpu->device, NULL, &second));
        gpu_keep_status(&first, rf_kernel_find(gpu->device, "increment", &increment));
    }
    struct rf_queue *queues[2] = {gpu->queue, second};
    for (int i = 0; i < 2 && !first; i++) {
        /* Unfinished work in front of it. */
        gpu_keep_status(&first, rf_fill(queues[i], b, 0, 64, 7));
        gpu_keep_status(&first, rf_queue_record_begin(queues[i], "scenario"));
        if (first) break;
        rf_status submitted = submit(queues[i], increment, a, b, in, out);
        rf_status ended = rf_queue_record_end(queues[i], &recordings[i]);
        RF_ASSERT(!submitted || ended); /* an earlier failure is not forgotten */
        RF_ASSERT((recordings[i] != NULL) == (ended == RF_OK));
        gpu_keep_status(&first, submitted);
        gpu_keep_status(&first, ended);
        if (!first) { /* the queue is usable afterwards, whatever happened */
            for (int run = 0; run < 3; run++) gpu_keep_status(&first, rf_recording_run(queues[i], recordings[i]));
        } else if (rf_device_status(gpu->device) == RF_OK) {
            RF_ASSERT_OK(rf_fill(queues[i], b, 0, 64, 7));
        }
        gpu_keep_status(&first, rf_queue_wait(queues[i], RF_TIMEOUT_DEFAULT));
    }
    *right = first || ((const uint32_t *)rf_pinned_data(out))[COUNT - 1] == 12;
    for (int i = 0; i < 2; i++) gpu_keep_status(&first, rf_recording_destroy(&recordings[i]));
    gpu_keep_status(&first, rf_buffer_destroy(&a));
    gpu_keep_status(&first, rf_buffer_destroy(&b));
    gpu_keep_status(&first, rf_pinned_destroy(&in));
    gpu_keep_status(&first, rf_pinned_destroy(&out));
    gpu_keep_status(&first, rf_queue_destroy(&second));
    gpu_keep_status(&first, rf_queue_destroy(&gpu->queue));
    return first;
}

RF_TEST(recording, out_of_memory_at_every_call, .timeout_ms = 1500000, .tags = "faults") {
    gpu_countdown(scenario, 2);
}
RF_TEST(recording, illegal_address_at_every_call, .timeout_ms = 1500000, .tags = "faults") {
    gpu_countdown(scenario, 700);
}
RF_TEST(recording, capture_invalidated_at_every_call, .timeout_ms = 1500000, .tags = "slow") {
    gpu_countdown(scenario, 901);
}
