/* Launching: everything that can be wrong with a launch's arguments is found before the driver
 * is asked; what goes wrong on the GPU shows at the wait. */
#include "gpu/device_impl.h"

enum { ARGS_MAX = 64, MAPS_MAX = 8 };

static rf_status check_shape(const struct rf_launch *launch, const struct rf_device *device, uint32_t grid[3],
                             uint32_t block[3]) {
    const struct rf_kernel *kernel = launch->kernel;
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        grid[i] = launch->grid[i] || i == 0 ? launch->grid[i] : 1;
        block[i] = launch->block[i] || i == 0 ? launch->block[i] : 1;
        if (!grid[i] || !block[i])
            return rf_fail(RF_E_INVALID, "launch of '%s': an empty grid or block", kernel->name);
        if (grid[i] > (uint32_t)device->limits.grid[i] || block[i] > (uint32_t)device->limits.block[i])
            return rf_fail(RF_E_INVALID, "launch of '%s': grid %u or block %u in %c is over the device's %d and %d",
                           kernel->name, grid[i], block[i], "xyz"[i], device -> limits.grid[i],
                           device->limits.block[i]);
        if ((uint64_t)grid[i] * block[i] > rf_driver_grid_threads(device->driver))
            return rf_fail(RF_E_INVALID,
                           "launch of '%s': %u blocks of %u threads in %c are %llu threads, the driver takes %llu; "
                           "launch fewer blocks and let each do more",
                           kernel->name, grid[i], block[i], "xyz"[i], (unsigned long long)grid[i] * block[i],
                           (unsigned long long)rf_driver_grid_threads(device->driver));
        threads *= block[i];
    }
    bool loaded = rf_kernel_is_loaded(kernel);
    uint32_t most = loaded ? kernel->loaded.max_threads : kernel->max_threads;
    if (!most) most = (uint32_t)device->limits.max_threads;
    if (threads > most)
        return rf_fail(RF_E_INVALID, "launch of '%s': %llu threads a block, it takes %u", kernel->name,
                       (unsigned long long)threads, most);
    uint64_t shared = (uint64_t)launch->shared_bytes + (loaded ? kernel->loaded.shared_bytes : kernel->shared_bytes);
    uint64_t shared_most = (uint64_t)RF_MAX(device->limits.shared, device->limits.shared_optin);
    if (shared > shared_most)
        return rf_fail(RF_E_INVALID, "launch of '%s': %llu bytes of shared memory, the device has %llu a block",
                       kernel->name, (unsigned long long)shared, (unsigned long long)shared_most);
    return RF_OK;
}

static bool has_buffer(const struct rf_arg *arg) {
    return (arg->kind == RF_ARG_KIND_BUFFER || arg->kind == RF_ARG_KIND_MAP) && arg->buffer;
}

static rf_status check_arg(const struct rf_launch *launch, const struct rf_device *device, size_t index) {
    const struct rf_kernel *kernel = launch->kernel;
    const struct rf_arg *arg = &launch->args[index];
    if (arg->kind == RF_ARG_KIND_NONE || (unsigned)arg->kind > RF_ARG_KIND_MAP)
        return rf_fail(RF_E_INVALID, "launch of '%s': argument %zu is empty", kernel->name, index);
    uint32_t bytes = arg->kind == RF_ARG_KIND_BUFFER ? 8 : arg->kind == RF_ARG_KIND_MAP ? RF_MAP_BYTES : arg->bytes;
    bool without_data =
        (arg->kind == RF_ARG_KIND_STRUCT || (arg->kind == RF_ARG_KIND_MAP && arg->buffer)) && !arg->value.data;
    if (without_data)
        return rf_fail(RF_E_INVALID, "launch of '%s': argument %zu is a %s without data", kernel->name, index,
                       arg->kind == RF_ARG_KIND_MAP ? "map" : "struct");
    if (arg->kind == RF_ARG_KIND_VALUE && bytes > sizeof arg->value)
        return rf_fail(RF_E_INVALID, "launch of '%s': argument %zu has %u bytes, a value has at most %zu",
                       kernel->name, index, bytes, sizeof arg->value);
    if (bytes != kernel->arg_bytes[index])
        return rf_fail(RF_E_INVALID, "launch of '%s': argument %zu has %u bytes, the kernel takes %u", kernel->name,
                       index, bytes, kernel->arg_bytes[index]);
    if (!has_buffer(arg)) return RF_OK;
    rf_status status = rf_object_check(arg->buffer, RF_OBJECT_BUFFER, kernel->name);
    if (status) return rf_fail_within(status, "launch: argument %zu", index);
    if (arg->buffer->object.device != device)
        return rf_fail(RF_E_INVALID, "launch of '%s': the buffer in argument %zu is on device %d, the queue on %d",
                       kernel->name, index, arg->buffer->object.device->info.index, device->info.index);
    if (arg->offset > arg->buffer->bytes)
        return rf_fail(RF_E_INVALID, "launch of '%s': argument %zu points %llu bytes into a buffer of %llu",
                       kernel->name, index, (unsigned long long)arg->offset, (unsigned long long)arg->buffer->bytes);
    status = arg->kind == RF_ARG_KIND_MAP ? rf_map_check(arg, device->driver) : RF_OK;
    return status ? rf_fail_within(status, "launch of '%s': argument %zu", kernel->name, index) : RF_OK;
}

/* Makes the maps among the arguments. */
static rf_status make_maps(const struct rf_launch *launch, struct rf_device *device, struct rf_made_map *maps,
                           void **args) {
    size_t count = 0;
    for (size_t i = 0; i < launch->arg_count; i++) {
        if (launch->args[i].kind != RF_ARG_KIND_MAP) continue;
        if (count == MAPS_MAX)
            return rf_fail(RF_E_INVALID, "launch of '%s': more than %d maps", launch->kernel->name, MAPS_MAX);
        struct rf_made_map *map = &maps[count++];
        rf_status status = rf_device_result(device, rf_map_make(device->driver, &launch->args[i], map), "map_encode",
                                            launch->kernel->name);
        if (status) return status;
        args[i] = map;
    }
    return RF_OK;
}

static rf_status submit(struct rf_queue *queue, const struct rf_launch *launch);

rf_status rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_launch: queue");
    return status ? status : rf_recording_note(queue, submit(queue, launch));
}

static rf_status submit(struct rf_queue *queue, const struct rf_launch *launch) {
    struct rf_entry entry;
    uint32_t grid[3], block[3];
    rf_dptr pointers[ARGS_MAX];
    void *args[ARGS_MAX];
    struct rf_made_map maps[MAPS_MAX];
    struct rf_launch own;
    rf_status status = RF_PARAMS_READ(struct rf_launch, &own, launch, "rf_queue_launch");
    if (status) return status;
    launch = &own;
    if (!launch->kernel) return rf_fail(RF_E_INVALID, "rf_queue_launch: kernel is NULL");
    struct rf_device *device = queue->object.device;
    const struct rf_kernel *kernel = launch->kernel;
    status = rf_enter(device, &entry); /* this comes first: a closed device's kernels are gone */
    if (status) return status;
    if (kernel->device != device)
        status = rf_fail(RF_E_INVALID, "launch of '%s': the kernel belongs to another device", kernel->name);
    else if (launch->arg_count != kernel->arg_count || launch->arg_count > ARGS_MAX ||
             (launch->arg_count && !launch->args))
        status = rf_fail(RF_E_INVALID, "launch of '%s': %zu arguments given, it takes %zu", kernel->name,
                         launch->arg_count, kernel->arg_count);
    if (!status) status = check_shape(launch, device, grid, block);
    for (size_t i = 0; i < launch->arg_count && !status; i++) {
        const struct rf_arg *arg = &launch->args[i];
        status = check_arg(launch, device, i);
        if (status) break;
        if (arg->kind == RF_ARG_KIND_BUFFER) {
            pointers[i] = arg->buffer ? rf_buffer_pointer(arg->buffer, arg->offset) : NULL;
            args[i] = &pointers[i];
        } else if (arg->kind == RF_ARG_KIND_STRUCT) {
            args[i] = (void *)(uintptr_t)arg->value.data;
        } else {
            args[i] = (void *)(uintptr_t)&arg->value;
        }
    }
    if (!status && device->runtime->log.level >= RF_LOG_DEBUG)
        rf_device_note(device, RF_LOG_DEBUG,
                       "launch %s: grid %u x %u x %u, block %u x %u x %u, %u bytes shared, %zu arguments",
                       kernel->name, grid[0], grid[1], grid[2], block[0], block[1], block[2], launch->shared_bytes,
                       launch->arg_count);
    /* What is rehearsed is loaded afterwards, all of it at once: rf_device_load_rehearsed. */
    if (!status && queue->rehearsing && !rf_kernel_is_loaded(kernel))
        atomic_store(&device->codes[kernel->code].wanted, true);
    if (!status && !queue->rehearsing) status = rf_kernel_load(kernel);
    if (status || queue->rehearsing) {
        rf_leave(&entry);
        return status;
    }
    status = make_maps(launch, device, maps, args);
    for (size_t i = 0; i < launch->arg_count && !status; i++)
        if (has_buffer(&launch->args[i])) status = rf_recording_hold_block(queue, launch->args[i].buffer->block);
    if (!status) status = rf_timeline_begin(queue->line, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT));
    if (!status) {
        uint64_t ticket = 0;
        bool early = kernel->early && !(device->checks & RF_CHECK_LAUNCH);
        rf_timeline_sign(queue->line, (uint64_t)grid[0] << 32 ^ (uint64_t)grid[1] << 16 ^ grid[2]);
        int code = rf_driver_start(device->driver, atomic_load_explicit(&kernel->function, memory_order_relaxed),
                                   grid, block, launch->shared_bytes, queue->line->stream, args, early);
        status = rf_timeline_end(queue->line, code, "launch", kernel->name, &ticket);
        for (size_t i = 0; i < launch->arg_count && ticket; i++)
            if (has_buffer(&launch->args[i])) rf_uses_note(&launch->args[i].buffer->block->uses, queue->line, ticket);
    }
    /* RF_CHECK=launch: launches run one at a time, so that a fault can have only one cause; none starts early either.
     */
    if (!status && (device->checks & RF_CHECK_LAUNCH) && !rf_timeline_recording(queue->line))
        status = rf_timeline_wait(queue->line, rf_timeline_submitted(queue->line),
                                  rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT));
    rf_leave(&entry);
    return status;
}
