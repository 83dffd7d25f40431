/* Opening, sharing, choosing and closing devices; buffers, views, transfers and events. */
#include "gpu_testing.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

RF_TEST(device, opens_shares_and_closes, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_device *again = NULL;
    RF_PARAMS(struct rf_device_params, params);
    RF_ASSERT_OK(rf_device_open_checked(gpu.runtime, &params, &again));
    RF_ASSERT(again == gpu.device);
    params.budget = "1%";
    struct rf_device *other = NULL;
    RF_EXPECT_STATUS(rf_device_open_checked(gpu.runtime, &params, &other), RF_E_INVALID);
    RF_ASSERT(other == NULL);
    /* Kernel images come with the first to open it. */
    static const struct rf_kernel_image image = {.target = "none", .data = "x", .bytes = 1};
    params.budget = NULL;
    params.images = &image;
    params.image_count = 1;
    RF_EXPECT_STATUS(rf_device_open_checked(gpu.runtime, &params, &other), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "kernel images can be given only by the first");
    RF_ASSERT(other == NULL);
    RF_ASSERT_OK(rf_device_close(&again));
    RF_ASSERT(again == NULL);
    RF_ASSERT_OK(rf_device_status(gpu.device));
    gpu_close(&gpu);
}

static void open_from_callback(void *user, enum rf_log_level level, const char *line) {
    struct rf_runtime **runtime = user;
    struct rf_device *device = NULL;
    (void)level, (void)line;
    static _Thread_local bool inside;
    if (inside) return;
    inside = true;
    if (*runtime) rf_device_open_checked(*runtime, NULL, &device); /* must not wait for ever */
    rf_device_close(&device);
    inside = false;
}

RF_TEST(device, a_log_callback_may_use_the_library) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    struct rf_runtime *runtime = NULL;
    RF_PARAMS(struct rf_runtime_params, params);
    char helper[600], library[600];
    snprintf(helper, sizeof helper, "RF_PROBE_HELPER=%s", rf_runtime_option(gpu.runtime, "RF_PROBE_HELPER"));
    snprintf(library, sizeof library, "RF_HIP_LIBRARY=%s", rf_runtime_option(gpu.runtime, "RF_HIP_LIBRARY"));
    const char *options[] = {"RF_DRIVER=sim", "RF_LOG=debug", helper, library, NULL};
    params.log = open_from_callback;
    params.log_user = &runtime;
    params.options = options;
    RF_ASSERT_OK(rf_runtime_create(&params, &runtime));
    RF_ASSERT(rf_gpu_available(runtime));
    gpu_set_sim("fault=hipHostMalloc:1:2");
    struct rf_device *device = NULL;
    RF_EXPECT_STATUS(rf_device_open_checked(runtime, NULL, &device), RF_E_DEVICE_MEMORY);
    RF_ASSERT_OK(rf_device_open_checked(runtime, NULL, &device));
    RF_ASSERT_OK(rf_device_close(&device));
    rf_runtime_destroy(&runtime);
    rf_runtime_destroy(&gpu.runtime);
}

RF_TEST(device, memory_info_adds_up, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT(info.total_bytes > 0 && info.free_bytes <= info.total_bytes);
    RF_EXPECT(info.budget_bytes > 0 && info.budget_bytes <= info.free0_bytes);
    RF_EXPECT(info.floor_bytes > 0);
    RF_EXPECT_INT(info.held_bytes, info.driver_bytes);
    RF_EXPECT(info.available_bytes + info.held_bytes <= info.budget_bytes);
    bool yes = false;
    RF_ASSERT_OK(rf_can_allocate(gpu.device, info.available_bytes, &yes));
    RF_EXPECT(yes);
    uint64_t safe = 0;
    RF_ASSERT_OK(rf_safe_alloc_size(gpu.device, &safe));
    RF_EXPECT_INT(safe, info.available_bytes);
    if (gpu_simulated()) { /* it takes the amount that it says, and not a granule more */
        struct rf_buffer *all = gpu_buffer(&gpu, safe), *more = NULL;
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = 3 * MIB;
        RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &more), RF_E_BUDGET);
        RF_ASSERT_OK(rf_safe_alloc_size(gpu.device, &safe));
        RF_EXPECT_INT(safe, 0);
        RF_ASSERT_OK(rf_buffer_destroy(&all));
    }
    RF_ASSERT_OK(rf_can_allocate(gpu.device, info.budget_bytes + 1, &yes));
    RF_EXPECT(!yes);
    RF_ASSERT_OK(rf_can_allocate(gpu.device, UINT64_MAX, &yes));
    RF_EXPECT(!yes);
    gpu_close(&gpu);
}

RF_TEST(device, chooses_by_index_name_and_display) {
    gpu_need_simulated("devices=3,gpu0.display=1,gpu1.display=0,gpu2.display=0,gpu1.vram=4GiB,gpu2.vram=8GiB,"
                       "gpu2.name=Big One");
    char sysfs[600], option[700];
    snprintf(sysfs, sizeof sysfs, "%s/sys", gpu_folder());
    snprintf(option, sizeof option, "RF_SYSFS=%s", sysfs);
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){option, NULL});
    RF_ASSERT(rf_gpu_available(gpu.runtime));
    RF_ASSERT_INT(rf_device_count(gpu.runtime), 3);
    RF_PARAMS(struct rf_device_choice, choice);
    int index = -1;
    choice.want = "1";
    RF_ASSERT_OK(rf_device_choose(gpu.runtime, &choice, &index));
    RF_EXPECT_INT(index, 1);
    choice.want = "big";
    RF_ASSERT_OK(rf_device_choose(gpu.runtime, &choice, &index));
    RF_EXPECT_INT(index, 2);
    choice.want = "7";
    RF_EXPECT_STATUS(rf_device_choose(gpu.runtime, &choice, &index), RF_E_NO_DEVICE);
    choice.want = "";
    RF_EXPECT_STATUS(rf_device_choose(gpu.runtime, &choice, &index), RF_OK);
    rf_runtime_destroy(&gpu.runtime);
}

/* A caller may use the driver beside the library: each call leaves the thread's current device as it was. */
RF_TEST(device, calls_leave_the_callers_device_current) {
    gpu_need_simulated("devices=2");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL); /* device 0 */
    struct rf_buffer *buffer = NULL, *view = NULL;
    struct rf_pinned *pinned = NULL;
    struct rf_queue *queue = NULL;
    struct rf_event *event = NULL, *second = NULL;
    struct rf_recording *recording = NULL;
    const struct rf_kernel *kernel = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    RF_PARAMS(struct rf_memory_info, memory);
    char text[16] = "", spec[128];
    bool yes = false;
    uint64_t bytes = 0;
    int64_t elapsed = 0;
    params.bytes = 4096;
    params.direct = true;
    gpu_sim_set_current(1);
#define STAYS(call)                                                                                                  \
    do {                                                                                                             \
        RF_TRACE("%s", #call);                                                                                       \
        RF_ASSERT_OK(call);                                                                                          \
        RF_EXPECT_INT(gpu_sim_current(), 1);                                                                         \
        gpu_sim_set_current(1);                                                                                      \
    } while (0)
    STAYS(rf_queue_create(gpu.device, NULL, &queue));
    STAYS(rf_buffer_create_safe(gpu.device, &params, &buffer));
    STAYS(rf_buffer_view(buffer, 0, 64, &view));
    STAYS(rf_pinned_create(gpu.device, 4096, &pinned));
    STAYS(rf_event_create(gpu.device, true, &event));
    STAYS(rf_event_create(gpu.device, true, &second));
    STAYS(rf_kernel_find(gpu.device, "increment", &kernel));
    STAYS(rf_fill(queue, buffer, 0, 4096, 0));
    STAYS(rf_event_record(event, queue));
    STAYS(GPU_LAUNCH(queue, kernel, 16, rf_arg_buffer(buffer), rf_arg_i64(16)));
    STAYS(rf_event_record(second, queue));
    STAYS(rf_queue_after(gpu.queue, queue));
    STAYS(rf_queue_after_event(gpu.queue, event));
    STAYS(rf_upload_async(queue, buffer, 0, pinned, 0, 4096));
    STAYS(rf_download_async(queue, pinned, 0, buffer, 0, 4096));
    STAYS(rf_copy_to_device_safe(queue, buffer, 0, text, sizeof text));
    STAYS(rf_copy_from_device_safe(queue, text, buffer, 0, sizeof text));
    STAYS(rf_queue_idle(queue, &yes));
    STAYS(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
    STAYS(rf_event_wait(second, RF_TIMEOUT_DEFAULT));
    STAYS(rf_event_done(second, &yes));
    STAYS(rf_event_elapsed(event, second, &elapsed));
    STAYS(rf_queue_record_begin(queue, "some"));
    STAYS(rf_fill(queue, buffer, 0, 16, 1));
    STAYS(rf_queue_record_end(queue, &recording));
    STAYS(rf_recording_run(queue, recording));
    STAYS(rf_recording_destroy(&recording));
    STAYS(rf_device_memory_info(gpu.device, &memory));
    STAYS(rf_can_allocate(gpu.device, 4096, &yes));
    STAYS(rf_safe_alloc_size(gpu.device, &bytes));
    STAYS(rf_device_lend(gpu.device, MIB, spec, sizeof spec));
    STAYS(rf_device_reclaim(gpu.device, spec));
    STAYS(rf_device_set_budget(gpu.device, "50%"));
    STAYS(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT));
    STAYS(rf_event_destroy(&event));
    STAYS(rf_event_destroy(&second));
    STAYS(rf_pinned_destroy(&pinned));
    STAYS(rf_buffer_destroy(&view));
    STAYS(rf_buffer_destroy(&buffer));
    STAYS(rf_queue_destroy(&queue));
    STAYS(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    STAYS(rf_queue_destroy(&gpu.queue));
    STAYS(rf_device_close(&gpu.device));
    rf_runtime_destroy(&gpu.runtime);
#undef STAYS
}

extern const struct rf_kernel_image test_images[]; /* the test kernels, for each target */
extern const size_t test_image_count;

/* Of the images of a group one is loaded, wherever they are in the list. */
RF_TEST(device, images_of_a_group_in_any_order) {
    enum { MOST = 256 };
    struct rf_kernel_image images[MOST];
    int groups[MOST];
    size_t count = 0;
    gpu_need_simulated("");
    RF_ASSERT(3 * test_image_count <= MOST);
    for (int group = 7; group <= 9; group++) /* 7: without kernels; 8 and 9 are the same group */
        for (size_t i = 0; i < test_image_count; i++, count++) {
            images[count] = test_images[i];
            if (group == 7) images[count].kernel_count = 0;
            groups[count] = group == 7 ? 7 : 8;
        }
    struct gpu gpu = {0};
    const struct rf_kernel *kernel = NULL;
    gpu_make_runtime(&gpu, NULL);
    RF_PARAMS(struct rf_device_params, params);
    params.images = images;
    params.image_groups = groups;
    params.image_count = count;
    params.modules = "fill";
    RF_ASSERT_OK(rf_device_open_checked(gpu.runtime, &params, &gpu.device));
    RF_EXPECT_INT(gpu_sim_entry_calls("hipModuleLoadData"), 2);
    RF_ASSERT_OK(rf_kernel_find(gpu.device, "increment", &kernel));
    /* A name that is nearly one's: the closest by edits is named. */
    RF_EXPECT_STATUS(rf_kernel_find(gpu.device, "missing_bar", &kernel), RF_E_NOT_FOUND);
    RF_EXPECT_CONTAINS(rf_error_text(), "'missing_barrier'");
    RF_ASSERT_OK(rf_device_close(&gpu.device));
    rf_runtime_destroy(&gpu.runtime);
}

/* A device that is named but cannot be used: the refusal says why, and no other device takes its place. */
RF_TEST(device, a_named_one_that_cannot_be_used) {
    gpu_need_simulated("devices=2,gpu1.name=Strange One,fault=hipDeviceTotalMem:2:1");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    RF_PARAMS(struct rf_device_choice, choice);
    int index = -1;
    for (int by_name = 0; by_name < 2; by_name++) {
        choice.want = by_name ? "strange" : "1";
        RF_EXPECT_STATUS(rf_device_choose(gpu.runtime, &choice, &index), RF_E_NO_DEVICE);
        RF_ASSERT_CONTAINS(rf_error_text(), "device 1 (Strange One) cannot be used: ");
        RF_EXPECT_INT(index, -1);
    }
    choice.want = "auto";
    RF_ASSERT_OK(rf_device_choose(gpu.runtime, &choice, &index));
    RF_EXPECT_INT(index, 0);
    rf_runtime_destroy(&gpu.runtime);
}

RF_TEST(device, none_with_driver_none) {
    RF_PARAMS(struct rf_runtime_params, params);
    const char *options[] = {"RF_DRIVER=none", NULL};
    struct rf_runtime *runtime = NULL;
    params.options = options;
    RF_ASSERT_OK(rf_runtime_create(&params, &runtime));
    RF_EXPECT(!rf_gpu_available(runtime));
    RF_EXPECT(rf_gpu_reason(runtime)[0] != 0);
    struct rf_device *device = NULL;
    rf_status status = rf_device_open_checked(runtime, NULL, &device);
    RF_EXPECT(status == RF_E_NO_DRIVER || status == RF_E_NO_DEVICE);
    RF_ASSERT(device == NULL);
    int index;
    RF_EXPECT(rf_device_choose(runtime, NULL, &index) != RF_OK);
    rf_runtime_destroy(&runtime);
}

RF_TEST(buffer, round_trip_of_odd_sizes, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    static const uint64_t sizes[] = {1, 3, 255, 4096, 65536, 65537, 4 * MIB, 9 * MIB + 5};
    struct rf_random random = {rf_test_seed()};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *sent = malloc(sizes[i]), *got = calloc(1, sizes[i]);
        for (uint64_t k = 0; k < sizes[i]; k++) sent[k] = (unsigned char)rf_random_next(&random);
        struct rf_buffer *buffer = gpu_buffer(&gpu, sizes[i]), *copy = gpu_buffer(&gpu, sizes[i]);
        RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 0, sent, sizes[i]));
        RF_ASSERT_OK(rf_copy_on_device(gpu.queue, copy, 0, buffer, 0, sizes[i]));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, copy, 0, sizes[i]));
        RF_ASSERT(!memcmp(sent, got, sizes[i]));
        RF_ASSERT_OK(rf_buffer_destroy(&buffer));
        RF_ASSERT_OK(rf_buffer_destroy(&copy));
        free(sent);
        free(got);
    }
    gpu_close(&gpu);
}

RF_TEST(buffer, zeroed_and_filled, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    unsigned char got[1000];
    for (int with_queue = 0; with_queue < 2; with_queue++)
        for (int round = 0; round < 3; round++) {
            RF_PARAMS(struct rf_buffer_params, params);
            struct rf_buffer *buffer = NULL;
            params.bytes = sizeof got;
            params.zeroed = true;
            params.queue = with_queue ? gpu.queue : NULL;
            RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, buffer, 0, sizeof got));
            for (size_t i = 0; i < sizeof got; i++) RF_ASSERT_INT(got[i], 0);
            RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 10, 20, 0x5A)); /* dirties it for the next round */
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, buffer, 0, sizeof got));
            for (size_t i = 0; i < sizeof got; i++) RF_ASSERT_INT(got[i], i >= 10 && i < 30 ? 0x5A : 0);
            RF_ASSERT_OK(rf_buffer_destroy(&buffer));
        }
    gpu_close(&gpu);
}

RF_TEST(buffer, views_keep_the_memory, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    uint32_t values[256], got[16];
    for (uint32_t i = 0; i < 256; i++) values[i] = i;
    struct rf_buffer *buffer = gpu_buffer(&gpu, sizeof values), *view = NULL, *inner = NULL, *bad = NULL;
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 0, values, sizeof values));
    RF_ASSERT_OK(rf_buffer_view(buffer, 400, 200, &view));
    RF_ASSERT_OK(rf_buffer_view(view, 100, 64, &inner));
    RF_EXPECT_STATUS(rf_buffer_view(view, 100, 101, &bad), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_buffer_view(view, UINT64_MAX, 2, &bad), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_buffer_view(view, 0, 0, &bad), RF_E_INVALID);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&view));
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 1);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, inner, 0, sizeof got));
    for (uint32_t i = 0; i < 16; i++) RF_ASSERT_INT(got[i], 125 + i);
    RF_ASSERT_OK(rf_buffer_destroy(&inner));
    gpu_close(&gpu);
}

RF_TEST(buffer, pinned_transfers, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_pinned *from = NULL, *to = NULL;
    enum { COUNT = 100000 };
    RF_ASSERT_OK(rf_pinned_create(gpu.device, COUNT * 4, &from));
    RF_ASSERT_OK(rf_pinned_create(gpu.device, COUNT * 4, &to));
    RF_EXPECT_INT(rf_pinned_bytes(from), COUNT * 4);
    struct rf_buffer *buffer = gpu_buffer(&gpu, COUNT * 4);
    uint32_t *sent = rf_pinned_data(from), *got = rf_pinned_data(to);
    for (uint32_t i = 0; i < COUNT; i++) sent[i] = i * 7;
    RF_ASSERT_OK(rf_upload_async(gpu.queue, buffer, 0, from, 0, COUNT * 4));
    RF_ASSERT_OK(
        GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "increment"), COUNT, rf_arg_buffer(buffer), rf_arg_i64(COUNT)));
    RF_ASSERT_OK(rf_download_async(gpu.queue, to, 0, buffer, 0, COUNT * 4));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    for (uint32_t i = 0; i < COUNT; i++) RF_ASSERT(got[i] == i * 7 + 1);
    RF_EXPECT_STATUS(rf_upload_async(gpu.queue, buffer, 4, from, 0, COUNT * 4), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_download_async(gpu.queue, to, 1, buffer, 0, COUNT * 4), RF_E_INVALID);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_pinned_destroy(&from));
    RF_ASSERT_OK(rf_pinned_destroy(&to));
    gpu_close(&gpu);
}

RF_TEST(queue, events_time_and_order, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_queue *second = NULL;
    struct rf_event *start = NULL, *end = NULL;
    struct gpu_hold hold;
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &second));
    RF_ASSERT_OK(rf_event_create(gpu.device, true, &start));
    RF_ASSERT_OK(rf_event_create(gpu.device, true, &end));
    bool done;
    int64_t elapsed = 0;
    RF_EXPECT_STATUS(rf_event_done(start, &done), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_event_wait(start, 0), RF_E_INVALID);
    enum { COUNT = 5000, SPIN_NS = 20000000 };
    struct rf_buffer *buffer = gpu_buffer(&gpu, COUNT * 4);
    const struct rf_kernel *pattern = gpu_kernel(&gpu, "write_pattern"), *increment = gpu_kernel(&gpu, "increment");
    RF_ASSERT_OK(rf_event_record(start, gpu.queue));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "spin_ns"), 1, rf_arg_i64(SPIN_NS)));
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, pattern, COUNT, rf_arg_buffer(buffer), rf_arg_u32(3), rf_arg_i64(COUNT)));
    RF_ASSERT_OK(rf_event_record(end, gpu.queue));
    RF_ASSERT_OK(rf_queue_after(second, gpu.queue));
    RF_ASSERT_OK(GPU_LAUNCH(second, increment, COUNT, rf_arg_buffer(buffer), rf_arg_i64(COUNT)));
    RF_EXPECT_STATUS(rf_event_elapsed(start, end, &elapsed), RF_E_BUSY);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_after_event(gpu.queue, end));
    uint32_t *got = malloc(COUNT * 4);
    RF_ASSERT_OK(rf_copy_from_device_safe(second, got, buffer, 0, COUNT * 4));
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t x = (3 + i) * 2654435761u;
        RF_ASSERT(got[i] == (x ^ x >> 16) + 1);
    }
    RF_ASSERT_OK(rf_event_wait(end, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_event_elapsed(start, end, &elapsed));
    RF_EXPECT(elapsed >= SPIN_NS / 2);
    free(got);
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_event_destroy(&start));
    RF_ASSERT_OK(rf_event_destroy(&end));
    RF_ASSERT_OK(rf_queue_destroy(&second));
    gpu_close(&gpu);
}

/* A driver that cannot tell the time between two events: the caller hears so and gets no figure. */
RF_TEST(queue, a_time_that_the_driver_does_not_tell) {
    gpu_need_simulated("fault=hipEventElapsedTime:1:801");
    struct gpu gpu = {.modules = "fill"};
    struct rf_event *events[2] = {NULL, NULL};
    int64_t elapsed = -7;
    gpu_open(&gpu, NULL);
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_event_create(gpu.device, true, &events[i]));
        RF_ASSERT_OK(rf_event_record(events[i], gpu.queue));
        RF_ASSERT_OK(rf_event_wait(events[i], RF_TIMEOUT_DEFAULT));
    }
    RF_EXPECT(rf_event_elapsed(events[0], events[1], &elapsed) != RF_OK);
    RF_ASSERT_CONTAINS(rf_error_text(), "event_elapsed");
    RF_EXPECT_INT(elapsed, -7);
    RF_ASSERT_OK(rf_event_elapsed(events[0], events[1], &elapsed));
    RF_EXPECT(elapsed >= 0);
    for (int i = 0; i < 2; i++) RF_ASSERT_OK(rf_event_destroy(&events[i]));
    gpu_close(&gpu);
}

/* Behind unfinished work only some submissions are followed by a mark, because a mark costs a driver call. */
RF_TEST(queue, marks_are_far_apart_behind_unfinished_work) {
    enum { COUNT = 400 };
    gpu_need_simulated("");
    struct gpu gpu = {0};
    struct gpu_hold hold;
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    gpu_hold_prepare(&gpu, &hold);
    for (int i = 0; i < 20; i++) RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT)); /* so that the ring of marks does not begin at 0 */
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    uint64_t before = gpu_sim_entry_calls("hipEventRecord");
    for (int i = 0; i < COUNT; i++) RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 8, 1));
    uint64_t marks = gpu_sim_entry_calls("hipEventRecord") - before;
    RF_NOTE("%llu marks", (unsigned long long)marks);
    /* One for each of the first few, then ever fewer, and one for 16 submissions from the 64th on. */
    RF_EXPECT(marks >= COUNT / 16 && marks <= 40);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(queue, many_launches_do_not_block_for_ever, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4096, 0));
    const struct rf_kernel *increment = gpu_kernel(&gpu, "increment");
    for (int i = 0; i < 3000; i++)
        RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, increment, 64, rf_arg_buffer(buffer), rf_arg_i64(64)));
    uint32_t got[64];
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, buffer, 0, sizeof got));
    for (int i = 0; i < 64; i++) RF_ASSERT_INT(got[i], 3000);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(tensor, empty_safe_checks_and_allocates, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_tensor *tensor = NULL;
    struct rf_tensor_desc desc = {.dtype = RF_F32, .rank = 3, .shape = {2, 3, 5}};
    RF_ASSERT_OK(rf_tensor_empty_safe(gpu.device, &desc, &tensor));
    const struct rf_tensor_desc *made = rf_tensor_get_desc(tensor);
    RF_EXPECT_INT(made->strides[0], 15);
    RF_EXPECT_INT(made->strides[1], 5);
    RF_EXPECT_INT(made->strides[2], 1);
    RF_EXPECT_INT(rf_buffer_bytes(rf_tensor_buffer(tensor)), 120);
    RF_ASSERT_OK(rf_tensor_destroy(&tensor));
    struct rf_tensor_desc bad[] = {
        {.dtype = RF_F32, .rank = 0, .shape = {1}},
        {.dtype = RF_F32, .rank = 9, .shape = {1}},
        {.dtype = (enum rf_dtype)77, .rank = 1, .shape = {1}},
        {.dtype = RF_F32, .rank = 2, .shape = {4, 0}},
        {.dtype = RF_F32, .rank = 2, .shape = {UINT64_MAX, 2}},
        {.dtype = RF_F32, .rank = 1, .shape = {UINT64_MAX / 2}},
        {.dtype = RF_F32, .rank = 1, .shape = {4}, .byte_offset = 2},
        {.dtype = RF_F16, .rank = 2, .shape = {4, 4}, .strides = {UINT64_MAX, 1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RF_EXPECT_STATUS(rf_tensor_empty_safe(gpu.device, &bad[i], &tensor), RF_E_INVALID);
        RF_ASSERT(tensor == NULL);
    }
    gpu_close(&gpu);
}

RF_TEST(device, leaks_are_named_and_freed, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *small = gpu_buffer(&gpu, 777), *large = gpu_buffer(&gpu, 5 * MIB);
    struct rf_pinned *pinned = NULL;
    RF_ASSERT_OK(rf_pinned_create(gpu.device, 12345, &pinned));
    RF_EXPECT_INT(gpu_memory(&gpu).live_count, 3);
    RF_ASSERT_OK(rf_device_close(&gpu.device));
    RF_ASSERT_CONTAINS(gpu_log(), "leaked: 777 B");
    RF_ASSERT_CONTAINS(gpu_log(), "gpu_testing.c");
    RF_ASSERT_CONTAINS(gpu_log(), "pinned");
    RF_EXPECT_INT(gpu_sim_device_bytes(), 0);
    /* Handles that outlive their device are refused, and may still be destroyed. */
    char byte;
    RF_EXPECT_STATUS(rf_copy_from_device_safe(gpu.queue, &byte, small, 0, 1), RF_E_CLOSED);
    RF_EXPECT_OK(rf_buffer_destroy(&small));
    RF_EXPECT_OK(rf_buffer_destroy(&large));
    RF_EXPECT_OK(rf_pinned_destroy(&pinned));
    RF_EXPECT_OK(rf_queue_destroy(&gpu.queue));
    rf_runtime_destroy(&gpu.runtime);
}

/* ---- the caller's floating-point mode ---- */

/* A driver that rounds upward and flushes subnormal numbers after each of its calls: no public call shows it. Both
 * are looked at as a program would notice them. */
static void expect_usual_mode(const char *after) {
    volatile float one = 1, tiny = 0x1p-30f, smallest = 0x1p-126f;
    RF_TRACE("after %s", after);
    RF_EXPECT(one + tiny == one);
    RF_EXPECT(smallest / 2 > 0);
    RF_EXPECT_INT(fegetround(), FE_TONEAREST);
}

RF_TEST(device, the_callers_floating_point_mode_is_put_back) {
    gpu_need_simulated("rounding=1");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    expect_usual_mode("the runtime");
    RF_EXPECT(rf_gpu_available(gpu.runtime));
    expect_usual_mode("the probe");
    gpu_open(&gpu, NULL);
    expect_usual_mode("opening");
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4 * MIB);
    expect_usual_mode("allocating");
    float number = 7;
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 0, &number, sizeof number));
    expect_usual_mode("an upload");
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &number, buffer, 0, sizeof number));
    RF_EXPECT(number == 7);
    expect_usual_mode("a download");
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, 0));
    expect_usual_mode("a wait");
    (void)gpu_memory(&gpu);
    expect_usual_mode("asking for the memory");
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    expect_usual_mode("freeing");
    gpu_close(&gpu);
    expect_usual_mode("closing");
    RF_EXPECT(gpu_sim_calls() > 0);
}
