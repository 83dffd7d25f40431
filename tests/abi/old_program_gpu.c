/* Devices, memory, queues, kernels, recordings and shares, as a program of 0.1.0 uses them. */
#include "old_program.h"

struct rf_device *open_device(void) {
    RF_PARAMS(struct rf_device_choice, choice);
    RF_PARAMS(struct rf_device_params, params);
    struct rf_device *device = NULL;
    choice.want = "auto";
    choice.avoid_display = true;
    params.index = -1;
    OK(rf_device_choose(runtime, &choice, &params.index));
    CHECK(params.index == 0);
    params.budget = "256MiB";
    params.modules = "fill,copy,add*,scale,causal_mask,matmul*,matvec*";
    OK(rf_device_open_checked(runtime, &params, &device));
    return device;
}

static bool count_lease(void *user, const struct rf_lease_info *lease) {
    if (lease->mine) {
        CHECK(lease->pid > 0 && lease->promised_bytes == 256 << 20 && !lease->part);
        ++*(int *)user;
    }
    return true;
}

void use_devices(void) {
    SIZED(struct rf_device_info, info);
    SIZED(struct rf_device_info, opened);
    SIZED(struct rf_memory_info, memory);
    CHECK(rf_gpu_available(runtime) && !*rf_gpu_reason(runtime) && rf_device_count(runtime) >= 1);
    OK(rf_device_info_at(runtime, 0, &info.it));
    FILLED(info);
    CHECK(info.it.index == 0 && info.it.simulated && info.it.usable && info.it.total_bytes && !*info.it.reason);
    CHECK(strstr(info.it.driver, "simulated") && !strncmp(info.it.arch, "gfx", 3) && *info.it.kernel_target);
    CHECK(info.it.vendor == RF_VENDOR_AMD && info.it.wave_size && info.it.max_threads_per_block);

    struct rf_device *device = open_device();
    OK(rf_device_get_info(device, &opened.it));
    FILLED(opened);
    CHECK(!strcmp(opened.it.uuid, info.it.uuid) && opened.it.total_bytes == info.it.total_bytes);
    OK(rf_device_memory_info(device, &memory.it));
    FILLED(memory);
    CHECK(memory.it.total_bytes == info.it.total_bytes && memory.it.budget_bytes == 256 << 20);
    CHECK(memory.it.available_bytes && memory.it.available_bytes <= memory.it.budget_bytes);
    int leases = 0;
    OK(rf_device_leases(runtime, 0, count_lease, &leases));
    CHECK(leases == 1);
    OK(rf_device_close(&device));

    RF_PARAMS(struct rf_share_params, params);
    struct rf_share *share = NULL;
    params.budget = "64MiB";
    params.free_bytes = (uint64_t)1 << 30;
    params.exclusive = true;
    params.timeout_ns = RF_MS(1000);
    OK(rf_share_create(runtime, &params, &share));
    CHECK(rf_share_bytes(share) == 64 << 20);
    char spec[128];
    OK(rf_share_lend(share, 1 << 20, spec, sizeof spec));
    CHECK(!strncmp(spec, "part=", 5));
    OK(rf_share_reclaim(share, spec));
    rf_share_destroy(&share);
    CHECK(rf_builtin_kernel_count() && rf_builtin_kernel_at(0)->name && rf_builtin_kernel_at(0)->arg_bytes);
    CHECK(rf_builtin_image_count() && rf_builtin_image_at(0)->bytes);
}

static bool find_allocation(void *user, const struct rf_allocation *allocation) {
    if (strcmp(allocation->label, "old")) return true;
    CHECK(allocation->kind == RF_ALLOC_BUFFER && allocation->bytes == 1000 && allocation->held_bytes >= 1000);
    CHECK(strstr(allocation->site.file, "old_program_gpu.c") && !strcmp(allocation->site.function, "use_memory"));
    CHECK(allocation->site.line > 0 && allocation->age_ns >= 0 && !allocation->abandoned);
    ++*(int *)user;
    return true;
}

void use_memory(void) {
    struct rf_device *device = open_device();
    uint64_t mark = rf_device_mark(device);
    RF_PARAMS(struct rf_queue_params, queue_params);
    struct rf_queue *queue = NULL;
    queue_params.high_priority = true;
    queue_params.timeout_ns = RF_MS(60000);
    queue_params.label = "old queue";
    OK(rf_queue_create(device, &queue_params, &queue));

    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *buffer = NULL, *view = NULL;
    params.bytes = 1000;
    params.zeroed = true;
    params.direct = true;
    params.queue = queue;
    params.label = "old";
    OK(rf_buffer_create_safe(device, &params, &buffer));
    CHECK(rf_buffer_bytes(buffer) == 1000 && rf_buffer_device(buffer) == device);
    unsigned char bytes[1000];
    memset(bytes, 1, sizeof bytes);
    OK(rf_copy_from_device_safe(queue, bytes, buffer, 0, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) CHECK(!bytes[i]);
    OK(rf_buffer_view(buffer, 100, 10, &view));
    OK(rf_fill(queue, view, 0, 10, 7));
    OK(rf_copy_from_device_safe(queue, bytes, buffer, 0, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) CHECK(bytes[i] == (i >= 100 && i < 110 ? 7 : 0));
    int found = 0;
    OK(rf_device_ledger(device, find_allocation, &found));
    CHECK(found == 1);

    struct rf_tensor_desc desc = {.dtype = RF_F16, .rank = 2, .shape = {3, 5}};
    struct rf_tensor *tensor = NULL;
    struct rf_smart_tensor *smart = NULL;
    uint64_t spanned = 0;
    OK(rf_tensor_desc_check(&desc, &spanned));
    CHECK(spanned == 30 && desc.strides[0] == 5 && desc.strides[1] == 1);
    OK(rf_tensor_empty_safe(device, &desc, &tensor));
    CHECK(rf_tensor_get_desc(tensor)->shape[1] == 5 && rf_buffer_bytes(rf_tensor_buffer(tensor)) >= 30);
    OK(rf_tensor_destroy(&tensor));
    OK(rf_tensor_create_smart(device, &desc, &smart));
    CHECK(rf_smart_tensor_location(smart) == RF_ON_DEVICE && rf_smart_tensor_get_desc(smart)->rank == 2);
    OK(rf_smart_tensor_destroy(&smart));

    /* What is left on purpose is swept: the buffer, its view and the queue. */
    SIZED(struct rf_sweep, sweep);
    int shown = 0;
    sweep.it.mark = mark;
    sweep.it.timeout_ns = RF_MS(60000);
    sweep.it.visit = find_allocation;
    sweep.it.user = &shown;
    OK(rf_device_sweep(device, &sweep.it));
    FILLED(sweep);
    CHECK(sweep.it.allocations == 1 && sweep.it.bytes == 1000 && sweep.it.handles == 2 && shown == 1);
    CHECK(sweep.it.mark == mark && sweep.it.visit == find_allocation);
    OK(rf_device_close(&device));
}

static void launch_fill(struct rf_queue *queue, const struct rf_kernel *kernel, struct rf_buffer *buffer,
                        float value) {
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_f32(value), rf_arg_i64(100)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.grid[0] = 2;
    launch.block[0] = 64;
    launch.args = args;
    launch.arg_count = 3;
    OK(rf_queue_launch(queue, &launch));
}

static void expect_floats(struct rf_queue *queue, struct rf_buffer *buffer, float value) {
    float got[100];
    OK(rf_copy_from_device_safe(queue, got, buffer, 0, sizeof got));
    for (int i = 0; i < 100; i++) CHECK(got[i] == value);
}

void use_queues(void) {
    struct rf_device *device = open_device();
    struct rf_queue *queue = NULL;
    struct rf_buffer *buffer = NULL;
    const struct rf_kernel *kernel = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    SIZED(struct rf_kernel_info, info);
    params.bytes = 400;
    OK(rf_queue_create(device, NULL, &queue));
    OK(rf_buffer_create_safe(device, &params, &buffer));
    OK(rf_kernel_find(device, "fill_f32", &kernel));
    OK(rf_kernel_get_info(kernel, &info.it));
    FILLED(info);
    CHECK(!strcmp(info.it.name, "fill_f32") && !strcmp(info.it.module, "fill") && info.it.arg_count == 3);
    CHECK(info.it.arg_bytes[0] == 8 && info.it.arg_bytes[1] == 4 && info.it.arg_bytes[2] == 8);
    launch_fill(queue, kernel, buffer, 1.5f);
    OK(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
    expect_floats(queue, buffer, 1.5f);

    struct rf_recording *recording = NULL;
    SIZED(struct rf_recording_info, recorded);
    OK(rf_queue_record_begin(queue, "old recording"));
    launch_fill(queue, kernel, buffer, 2.5f);
    OK(rf_queue_record_end(queue, &recording));
    OK(rf_recording_get_info(recording, &recorded.it));
    FILLED(recorded);
    CHECK(!strcmp(recorded.it.name, "old recording") && recorded.it.submissions == 1);
    expect_floats(queue, buffer, 1.5f);
    OK(rf_recording_run(queue, recording));
    expect_floats(queue, buffer, 2.5f);
    OK(rf_recording_destroy(&recording));
    OK(rf_buffer_destroy(&buffer));
    OK(rf_queue_destroy(&queue));
    OK(rf_device_close(&device));
}
