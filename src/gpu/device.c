/* Devices: opening, sharing, losing and closing.
 *
 * A device struct lives until its runtime ends, so that a handle which outlives its device is refused instead of
 * dangling. Opening measures the free memory, then opens the lease and the context, charges the driver's own bytes,
 * and makes queues, staging and the table of kernels, in this order. Closing is the reverse, at a quiet moment. If no
 * quiet moment comes by the deadline, nothing is given back and the device is lost.
 *
 * Invariant: 'lost' never goes back to false, and no driver call is made after it is set. The second cannot be
 * asserted: another thread may be inside the driver at that moment. lost.a_fault_is_sticky_named_and_silent
 * (tests/gpu/test_stuck.c) counts the calls. */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

struct rf_note {
    struct rf_note *next;
    enum rf_log_level level;
    char text[512];
};

static rf_status open_parts(struct rf_device *device, const struct rf_device_params *params, const char *budget);
static rf_status close_parts(struct rf_device *device, int64_t deadline_ns);

/* ---- opening ---- */

/* Chooses the budget in force: the one the caller asks for, but inside the part that a parent process lent us, if it
 * lent one. */
static rf_status choose_budget(struct rf_runtime *runtime, const char *asked, char *text, size_t size) {
    const char *option = rf_options_get(runtime->options, "RF_BUDGET");
    bool lent = strstr(option, "part=") && asked && !strstr(asked, "part=");
    int length = snprintf(text, size, "%s%s%s", lent ? option : "", lent ? "," : "", asked ? asked : option);
    return length < (int)size ? RF_OK : rf_fail(RF_E_INVALID, "the budget's text is too long: %d bytes", length);
}

static rf_status share(struct rf_device *device, const struct rf_device_params *params, const char *budget) {
    if (rf_device_is_lost(device)) return rf_device_lost_status(device);
    if (params->budget && strcmp(budget, device->budget_text))
        return rf_fail(RF_E_INVALID, "device %d is open already with the budget '%s'; use rf_device_set_budget",
                       params->index, device->budget_text);
    if (params->image_count)
        return rf_fail(RF_E_INVALID,
                       "device %d is open already; kernel images can be given only by the first to open it",
                       params->index);
    if (device->some_modules && !rf_kernels_include(device, params->modules))
        return rf_fail(
            RF_E_INVALID,
            "device %d is open already, with some kernel modules only; the first to open it must name them",
            params->index);
    device->references++;
    return RF_OK;
}

rf_status rf_device_open_checked(struct rf_runtime *runtime, const struct rf_device_params *params,
                                 struct rf_device **out) {
    RF_PARAMS(struct rf_device_params, own);
    if (!runtime || !out) return rf_fail(RF_E_INVALID, "rf_device_open_checked: runtime or out is NULL");
    rf_status status =
        params ? RF_PARAMS_READ(struct rf_device_params, &own, params, "rf_device_open_checked") : RF_OK;
    if (status) return status;
    params = &own;
    if (!atomic_load(runtime->alive))
        return rf_fail(RF_E_INVALID, "this process was forked from the one that made the runtime; make a new one");
    const struct rf_probe_result *probe = rf_gpu_probe(runtime);
    if (!probe) return rf_fail(RF_E_NO_MEMORY, "no host memory for the probe");
    if (!probe->count)
        return rf_fail(probe->status == RF_OK ? RF_E_NO_DEVICE : probe->status, "no GPU: %s", probe->reason);
    if (params->index < 0 || params->index >= probe->count)
        return rf_fail(RF_E_NO_DEVICE, "there is no device %d; %d found, see rocmforge doctor", params->index,
                       probe->count);
    char budget[sizeof((struct rf_device *)0)->budget_text];
    status = choose_budget(runtime, params->budget, budget, sizeof budget);
    if (status) return status;
    const struct rf_device_info *info = &probe->devices[params->index];
    if (!info->usable)
        return rf_fail(RF_E_UNSUPPORTED, "device %d (%s) cannot be used: %s", params->index, info->name,
                       info->reason);

    struct rf_gpu_state *gpu = rf_gpu_state(runtime); /* the probe made it */
    pthread_mutex_lock(&gpu->devices_mutex);
    struct rf_device *device = NULL, *failed = NULL;
    for (struct rf_device *other = gpu->devices; other && !device; other = other->next)
        if (other->info.index == params->index &&
            (atomic_load(&other->state) == RF_DEVICE_OPEN || rf_device_is_lost(other)))
            device = other;
    if (device) {
        status = share(device, params, budget);
    } else if (!(device = calloc(1, sizeof *device))) {
        status = rf_fail(RF_E_NO_MEMORY, "rf_device_open_checked: no host memory");
    } else {
        device->kind = RF_OBJECT_DEVICE;
        device->runtime = runtime;
        device->gpu = gpu;
        device->checks = gpu->checks;
        device->references = 1;
        device->info = *info;
        device->ordinal = probe->source[params->index].ordinal;
        pthread_mutex_init(&device->lost_mutex, NULL);
        pthread_mutex_init(&device->notes_mutex, NULL);
        pthread_mutex_init(&device->memory_mutex, NULL);
        pthread_mutex_init(&device->timelines_mutex, NULL);
        pthread_mutex_init(&device->staging.mutex, NULL);
        status = rf_gpu_driver(gpu, params->index, &device->driver);
        if (!status) status = open_parts(device, params, budget);
        if (status) {
            struct rf_saved_error saved;
            rf_error_save(&saved);
            if (device->driver) close_parts(device, rf_device_deadline(device, RF_TIMEOUT_DEFAULT));
            rf_error_restore(&saved);
            atomic_store(&device->state, RF_DEVICE_CLOSED);
            if (!rf_device_is_lost(device)) {
                failed = device; /* freed below, because freeing logs, and no lock may be held then */
                device = NULL;
            }
        }
        if (device) {
            device->next = gpu->devices;
            gpu->devices = device;
        }
    }
    pthread_mutex_unlock(&gpu->devices_mutex);
    if (failed) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_device_free(failed);
        rf_error_restore(&saved);
    }
    if (device) {
        struct rf_entry entry = {.device = device};
        rf_leave(&entry);
    }
    if (!status) *out = device;
    return status;
}

static rf_status live_free_for_lease(void *user, uint64_t *free_bytes) {
    uint64_t total;
    return rf_memory_live_free(user, free_bytes, &total);
}

static rf_status read_limits(struct rf_device *device) {
    struct {
        enum rf_driver_attribute attribute;
        int *value;
    } wanted[] = {
        {RF_ATTR_MAX_THREADS_PER_BLOCK, &device->limits.max_threads},
        {RF_ATTR_MAX_BLOCK_X, &device->limits.block[0]},
        {RF_ATTR_MAX_BLOCK_Y, &device->limits.block[1]},
        {RF_ATTR_MAX_BLOCK_Z, &device->limits.block[2]},
        {RF_ATTR_MAX_GRID_X, &device->limits.grid[0]},
        {RF_ATTR_MAX_GRID_Y, &device->limits.grid[1]},
        {RF_ATTR_MAX_GRID_Z, &device->limits.grid[2]},
        {RF_ATTR_MAX_SHARED_PER_BLOCK, &device->limits.shared},
        {RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN, &device->limits.shared_optin},
    };
    for (size_t i = 0; i < RF_COUNT(wanted); i++) {
        int code = rf_driver_attribute(device->driver, wanted[i].value, wanted[i].attribute, device->context.device);
        rf_status status = rf_device_result(device, code, "device_attribute", NULL);
        if (status) return status;
    }
    device->priority_low = device->priority_high = 0;
    if (!device->driver->stream_priorities) return RF_OK;
    return rf_device_result(device, device->driver->stream_priorities(&device->priority_low, &device->priority_high),
                            "stream_priorities", NULL);
}

void rf_lease_place(struct rf_runtime *runtime, int index, const struct rf_device_info *info,
                    struct rf_lease_params *place) {
    const char *dir = rf_options_get(runtime->options, "RF_LEASE_DIR");
    *place = (struct rf_lease_params){.dir = dir && *dir ? dir : NULL, .total_bytes = info->total_bytes};
    if (info->integrated) { /* it uses the host's memory too; drivers differ in what they count */
        uint64_t available, host_total = 0;
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (rf_host_memory("", &available, &host_total)) rf_error_restore(&saved);
        place->total_bytes = host_total ? place->total_bytes + host_total : 0;
    }
    place->uuid = info->uuid[0] ? info->uuid : info->pci[0] ? info->pci : info->name;
    place->own = !place->dir && rf_gpu_probe(runtime)->source[index].own;
}

static rf_status open_lease(struct rf_device *device, const struct rf_budget_spec *spec) {
    struct rf_runtime *runtime = device->runtime;
    struct rf_lease_params lease;
    rf_lease_place(runtime, device->info.index, &device->info, &lease);
    lease.spec = *spec;
    lease.live_free = live_free_for_lease;
    lease.user = device;
    lease.timeout_ns = runtime->timeout_ns;
    rf_status status = rf_lease_open(&lease, &device->lease, &device->terms);
    /* Without a lease there is no budget. That is no failure of a file of the caller's: the GPU cannot be used here,
     * and a program that has another way goes on without it. */
    if (status == RF_E_IO) return rf_fail_within(RF_E_UNSUPPORTED, "no place for this GPU's leases");
    if (status || device->terms.promised_bytes) return status;
    char limit[32];
    if (device->terms.others_promised_bytes)
        return rf_fail(RF_E_BUDGET,
                       "the budget '%s' gives %s to all of your processes together, and %d other%s (most: pid %d) "
                       "hold it all; end them, give them a smaller RF_BUDGET, or raise this one",
                       device->budget_text, rf_format_bytes(device->terms.limit_bytes, limit, sizeof limit),
                       device->terms.others, device->terms.others == 1 ? "" : "s", device->terms.largest_pid);
    return rf_fail(RF_E_BUDGET, "the budget '%s' leaves nothing of this GPU (free %s); raise RF_BUDGET",
                   device->budget_text, rf_format_bytes(device->terms.free0_bytes, limit, sizeof limit));
}

/* Charges the memory that the driver took for itself since 'before_bytes' were free. */
static rf_status charge_driver(struct rf_device *device, uint64_t before_bytes) {
    uint64_t now_free, total;
    rf_status status = rf_memory_device_free(device, &now_free, &total);
    if (status) return status;
    uint64_t took = rf_sub_saturate(before_bytes, now_free);
    /* Where the kernel has a figure for this process alone, that figure is used: other processes do not disturb it.
     */
    uint64_t process_bytes;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (!rf_witness_process(device->witness, &process_bytes))
        took = rf_sub_saturate(process_bytes, device->held_bytes);
    else
        rf_error_restore(&saved);
    device->driver_bytes += took;
    device->held_bytes += took;
    device->driver_entry.record.bytes = device->driver_entry.record.held_bytes = device->driver_bytes;
    rf_memory_publish_held(device);
    if (device->held_bytes > device->terms.promised_bytes) {
        char own[32], budget[32];
        return rf_fail(RF_E_BUDGET, "the driver's own %s do not fit the budget '%s', which gives %s; raise RF_BUDGET",
                       rf_format_bytes(device->driver_bytes, own, sizeof own), device->budget_text,
                       rf_format_bytes(device->terms.promised_bytes, budget, sizeof budget));
    }
    return RF_OK;
}

/* Kernels are loaded later, when other memory may fill the budget: the driver's memory for them is charged now. */
static rf_status keep_kernel_room(struct rf_device *device) {
    uint64_t room = device->kernel_room_bytes;
    if (rf_round_up_overflows(room, device->granularity_bytes, &device->kernel_room_bytes))
        device->kernel_room_bytes = room;
    rf_driver_charge(device, device->kernel_room_bytes);
    if (device->held_bytes <= device->terms.promised_bytes) return RF_OK;
    char own[32], kernels[32], budget[32];
    return rf_fail(
        RF_E_BUDGET,
        "the driver's own %s and %s for kernels do not fit the budget '%s', which gives %s; raise RF_BUDGET",
        rf_format_bytes(device->driver_bytes - device->kernel_room_bytes, own, sizeof own),
        rf_format_bytes(device->kernel_room_bytes, kernels, sizeof kernels), device->budget_text,
        rf_format_bytes(device->terms.promised_bytes, budget, sizeof budget));
}

static rf_status open_context(struct rf_device *device) {
    int code = rf_context_open(device->driver, device->ordinal, &device->context);
    return rf_device_result(device, code, "context_open", NULL);
}

static rf_status open_parts(struct rf_device *device, const struct rf_device_params *params, const char *budget) {
    struct rf_budget_spec spec;
    rf_status status = rf_budget_parse(budget, &spec);
    if (status) return rf_fail_within(status, "budget");
    snprintf(device->budget_text, sizeof device->budget_text, "%s", budget);
    device->granularity_bytes = device->info.granularity_bytes ? device->info.granularity_bytes : (uint64_t)2 << 20;
    /* A simulated GPU's bus address may be that of a real card, so only a sysfs tree made for it is read. */
    const char *sysfs = rf_options_get(device->runtime->options, "RF_SYSFS");
    if (device->driver->simulated && !strcmp(sysfs, "/sys")) sysfs = "/dev/null";
    const char *nvml = rf_options_get(device->runtime->options, "RF_NVML_LIBRARY");
    status = rf_witness_create_with(device->driver->kind, sysfs, nvml && *nvml ? nvml : NULL, device->info.pci,
                                    device->info.uuid, &device->witness);
    if (status) return status;

    /* The free memory is measured before our first byte, if anything but the driver can say it. Otherwise it is
     * measured after the context is made, and the context then counts as memory that was never free. */
    uint64_t free0 = 0, total = 0;
    bool witnessed = rf_memory_device_free(device, &free0, &total) == RF_OK;
    if (witnessed && (status = open_lease(device, &spec))) return status;
    struct rf_entered entered = {0};
    status = open_context(device);
    if (status) return status;
    status =
        rf_device_result(device, rf_context_enter(device->driver, &device->context, &entered), "context_enter", NULL);
    if (status) return status;
    if (!witnessed) {
        status = open_lease(device, &spec);
        if (!status) status = rf_memory_device_free(device, &free0, &total);
    }
    if (!status) {
        rf_ledger_add(device, &device->driver_entry, RF_ALLOC_DRIVER, 0, 0, "driver", RF_SITE);
        status = charge_driver(device, free0);
    }
    if (!status) status = read_limits(device);
    if (!status) status = rf_timeline_open(device, false, &device->service);
    if (!status) status = rf_staging_open(device);
    if (!status) status = rf_memory_device_free(device, &free0, &total);
    if (!status) status = rf_kernels_open(device, params);
    if (!status) status = charge_driver(device, free0);
    if (!status) status = keep_kernel_room(device);
    rf_context_leave(device->driver, &entered);
    return status;
}

/* ---- closing ---- */

rf_status rf_device_close(struct rf_device **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_device *device = *pointer;
    rf_status status = rf_object_check(device, RF_OBJECT_DEVICE, "rf_device_close: device");
    if (status) return status;
    *pointer = NULL;
    if (!atomic_load(device->runtime->alive))
        return rf_fail(RF_E_INVALID, "a forked child cannot close its parent's device");
    struct rf_entry entry = {.device = device};
    pthread_mutex_lock(&device->gpu->devices_mutex);
    if (atomic_load(&device->state) != RF_DEVICE_OPEN || device->references == 0) {
        status = rf_fail(RF_E_CLOSED, "rf_device_close: closed already");
    } else if (--device->references == 0) {
        atomic_store(&device->state, RF_DEVICE_CLOSED);
        status = close_parts(device, rf_device_deadline(device, RF_TIMEOUT_DEFAULT));
    }
    pthread_mutex_unlock(&device->gpu->devices_mutex);
    rf_leave(&entry);
    return status;
}

static void report_leak(struct rf_device *device, const struct rf_allocation *record) {
    char size[32];
    rf_device_note(device, RF_LOG_WARN, "leaked: %s%s '%s' from %s:%d (%s), %.1f s old",
                   rf_format_bytes(record->bytes, size, sizeof size),
                   record->kind == RF_ALLOC_PINNED ? " pinned" : "", record->label, record->site.file,
                   record->site.line, record->site.function, (double)(rf_now_ns() - record->age_ns) * 1e-9);
}

static void abandon_all(struct rf_device *device) {
    pthread_mutex_lock(&device->memory_mutex);
    for (struct rf_ledger_entry *entry = device->ledger_first; entry; entry = entry->next)
        rf_ledger_abandon(device, entry);
    char size[32];
    rf_device_note(device, RF_LOG_ERROR, "%s abandoned on device %d: they return when the process ends",
                   rf_format_bytes(device->held_bytes, size, sizeof size), device->info.index);
    device->abandoned_bytes = device->held_bytes;
    pthread_mutex_unlock(&device->memory_mutex);
}

/* Everything that is live at the end is a leak: it is named, then given back. Called at a quiet moment with
 * memory_mutex held. */
static void release_leaks(struct rf_device *device) {
    for (struct rf_ledger_entry *entry = device->ledger_first, *next; entry; entry = next) {
        next = entry->next;
        if (entry->record.kind == RF_ALLOC_DRIVER) continue;
        report_leak(device, &entry->record);
        rf_ledger_remove(device, entry);
        if (entry->record.kind == RF_ALLOC_BUFFER) {
            struct rf_block *block = (struct rf_block *)((char *)entry - offsetof(struct rf_block, ledger));
            if (block->slab) {
                block->slab->idle_count++; /* freed with its slab, below */
            } else {
                rf_memory_return(device, block->base, block->bytes);
                free(block);
            }
        } else {
            struct rf_pinned *pinned = (struct rf_pinned *)((char *)entry - offsetof(struct rf_pinned, ledger));
            if (!rf_device_result(device, device->driver->host_free(pinned->data), "host_free", NULL))
                rf_host_release(&device->runtime->host, pinned->charged_bytes, true);
            pinned->data = NULL;
        }
    }
}

static void destroy_events_and_streams(struct rf_device *device) {
    const struct rf_driver *driver = device->driver;
    for (struct rf_object *object = device->objects; object; object = object->next)
        if (object->kind == RF_OBJECT_EVENT) {
            struct rf_event *event = (struct rf_event *)object;
            rf_device_result(device, driver->event_destroy(event->event), "event_destroy", NULL);
            event->event = NULL;
        }
    for (unsigned i = 0; i < device->timeline_count; i++) {
        struct rf_timeline *line = device->timelines[i];
        if (line->stream) rf_device_result(device, driver->stream_destroy(line->stream), "stream_destroy", NULL);
        line->stream = NULL;
        while (line->spare_count)
            rf_device_result(device, driver->event_destroy(line->spare_events[--line->spare_count]), "event_destroy",
                             NULL);
    }
}

/* Takes apart whatever was opened. The state is CLOSED already (or the open failed), so no
 * public call comes in. */
static rf_status close_parts(struct rf_device *device, int64_t deadline_ns) {
    if (rf_device_is_lost(device)) {
        abandon_all(device);
        return rf_device_lost_status(device);
    }
    rf_status status = RF_OK;
    if (device->context.open) {
        struct rf_entered entered;
        status = rf_device_result(device, rf_context_enter(device->driver, &device->context, &entered),
                                  "context_enter", NULL);
        if (!status) status = rf_quiet_enter_with_memory(device, RF_GATE_HOLD_NS, deadline_ns);
        if (status) {
            if (!rf_device_is_lost(device)) rf_device_mark_lost(device, "closing: %s", rf_error_text());
            entered.restore = false; /* the driver is not called any more */
            rf_context_leave(device->driver, &entered);
            abandon_all(device);
            return status == RF_E_BUSY ? RF_E_TIMEOUT : status;
        }
        rf_recordings_close(device);
        release_leaks(device);
        /* Slabs are returned whole; the idle lists only hold parts of them. */
        for (int i = 0; i < RF_SIZE_CLASSES; i++) device->pool.chunks[i] = (struct rf_block_list){0};
        rf_pool_return_all(device);
        rf_pinned_free_doomed(device);
        rf_staging_close(device, true);
        pthread_mutex_unlock(&device->memory_mutex);
        rf_kernels_close(device);
        destroy_events_and_streams(device);
        rf_quiet_leave(device);
        rf_context_leave(device->driver, &entered);
        if (!rf_device_is_lost(device)) {
            int code = rf_context_close(device->driver, &device->context);
            status = rf_device_result(device, code, "context_close", NULL);
        }
        if (rf_device_is_lost(device)) {
            abandon_all(device);
            return rf_device_lost_status(device);
        }
        pthread_mutex_lock(&device->memory_mutex);
        if (device->ledger_first) rf_ledger_remove(device, &device->driver_entry);
        device->held_bytes -= RF_MIN(device->held_bytes, device->driver_bytes);
        device->driver_bytes = 0;
        if (device->held_bytes)
            rf_device_note(device, RF_LOG_ERROR, "%llu bytes are still held after closing device %d",
                           (unsigned long long)device->held_bytes, device->info.index);
        pthread_mutex_unlock(&device->memory_mutex);
    }
    rf_lease_close(&device->lease);
    rf_witness_destroy(&device->witness);
    return status;
}

static void free_objects(struct rf_object *object) {
    while (object) {
        struct rf_object *next = object->next;
        free(object);
        object = next;
    }
}

void rf_device_free(struct rf_device *device) {
    if (atomic_load(&device->state) == RF_DEVICE_OPEN) {
        rf_device_note(device, RF_LOG_WARN, "device %d was still open when its runtime ended", device->info.index);
        atomic_store(&device->state, RF_DEVICE_CLOSED);
        close_parts(device, rf_device_deadline(device, RF_TIMEOUT_DEFAULT));
    }
    struct rf_entry entry = {.device = device};
    rf_leave(&entry);
    /* A lost device's ledger ends here; its memory is freed when the process ends. */
    for (struct rf_ledger_entry *item = device->ledger_first, *next; item; item = next) {
        next = item->next;
        if (item->record.kind != RF_ALLOC_BUFFER) continue;
        struct rf_block *block = (struct rf_block *)((char *)item - offsetof(struct rf_block, ledger));
        if (!block->slab) free(block);
    }
    rf_recordings_finish(device);
    rf_pool_finish(device);
    while (device->doomed_pinned) {
        struct rf_doomed_pinned *doomed = device->doomed_pinned;
        device->doomed_pinned = doomed->next;
        free(doomed);
    }
    rf_kernels_close(device);
    free_objects(device->objects);
    free_objects(device->quarantine);
    for (unsigned i = 0; i < device->timeline_count; i++) {
        pthread_mutex_destroy(&device->timelines[i]->mutex);
        free(device->timelines[i]);
    }
    rf_lease_close(&device->lease);
    rf_witness_destroy(&device->witness);
    pthread_mutex_destroy(&device->lost_mutex);
    pthread_mutex_destroy(&device->notes_mutex);
    pthread_mutex_destroy(&device->memory_mutex);
    pthread_mutex_destroy(&device->timelines_mutex);
    pthread_mutex_destroy(&device->staging.mutex);
    device->kind = RF_OBJECT_DEAD;
    free(device);
}

/* ---- entering and leaving ---- */

static rf_status check_device(struct rf_device *device) {
    rf_status status = rf_object_check(device, RF_OBJECT_DEVICE, "device");
    if (status) return status;
    if (atomic_load_explicit(&device->state, memory_order_acquire) != RF_DEVICE_OPEN)
        return rf_fail(RF_E_CLOSED, "device %d was closed", device->info.index);
    if (!atomic_load_explicit(device->runtime->alive, memory_order_relaxed))
        return rf_fail(RF_E_INVALID,
                       "this process was forked from the one that opened the device; drivers do not survive that: "
                       "start a new process");
    return RF_OK;
}

rf_status rf_enter(struct rf_device *device, struct rf_entry *entry) {
    rf_status status = check_device(device);
    if (status) return status;
    if (rf_device_is_lost(device)) return rf_device_lost_status(device);
    entry->device = device;
    int code = rf_context_enter(device->driver, &device->context, &entry->entered);
    if (code != RF_DRV_OK) {
        status = rf_device_result(device, code, "context_enter", NULL);
        entry->entered = (struct rf_entered){0};
        rf_leave(entry);
    }
    return status;
}

rf_status rf_enter_cleanup(struct rf_device *device, struct rf_entry *entry) {
    rf_status status = check_device(device);
    if (status) return status;
    *entry = (struct rf_entry){.device = device};
    if (rf_device_is_lost(device)) return RF_OK;
    int code = rf_context_enter(device->driver, &device->context, &entry->entered);
    if (code != RF_DRV_OK) {
        /* If the driver says that the device is lost, clean-up goes on as on a lost device. Otherwise the call that
         * follows will show what is wrong. */
        rf_device_result(device, code, "context_enter", NULL);
        entry->entered = (struct rf_entered){0};
    }
    return RF_OK;
}

void rf_leave(struct rf_entry *entry) {
    struct rf_device *device = entry->device;
    if (rf_device_is_lost(device)) entry->entered.restore = false; /* the driver is not called any more */
    rf_context_leave(device->driver, &entry->entered);
    if (!atomic_load_explicit(&device->has_notes, memory_order_relaxed)) return;
    pthread_mutex_lock(&device->notes_mutex);
    struct rf_note *note = device->notes;
    device->notes = NULL;
    atomic_store(&device->has_notes, false);
    pthread_mutex_unlock(&device->notes_mutex);
    while (note) {
        struct rf_note *next = note->next;
        rf_logf(&device->runtime->log, note->level, "%s", note->text);
        free(note);
        note = next;
    }
}

void rf_device_note(struct rf_device *device, enum rf_log_level level, const char *format, ...) {
    if (level > device->runtime->log.level || !device->runtime->log.fn) return;
    struct rf_note *note = calloc(1, sizeof *note);
    if (!note) return;
    va_list args;
    va_start(args, format);
    vsnprintf(note->text, sizeof note->text, format, args);
    va_end(args);
    note->level = level;
    pthread_mutex_lock(&device->notes_mutex);
    struct rf_note **end = &device->notes;
    while (*end) end = &(*end)->next;
    *end = note;
    atomic_store(&device->has_notes, true);
    pthread_mutex_unlock(&device->notes_mutex);
}

/* ---- results and loss ---- */

rf_status rf_device_result(struct rf_device *device, int code, const char *call, const char *about) {
    if (code == RF_DRV_OK) return RF_OK;
    const char *name = rf_driver_error_name(device->driver, code);
    if (rf_driver_is_fatal(code))
        return rf_device_mark_lost(device, "%s (%d) from %s%s%s%s", name, code, call, about ? ", in '" : "",
                                   about ? about : "", about ? "'" : "");
    rf_status status = rf_fail(rf_driver_status(code), "%s: %s (%d)%s%s%s", call, name, code, about ? " for '" : "",
                               about ? about : "", about ? "'" : "");
    rf_device_note(device, RF_LOG_DEBUG, "device %d: %s", device->info.index, rf_error_text());
    return status;
}

rf_status rf_device_mark_lost(struct rf_device *device, const char *format, ...) {
    pthread_mutex_lock(&device->lost_mutex);
    bool first = !device->lost_text[0];
    if (first) {
        va_list args;
        va_start(args, format);
        vsnprintf(device->lost_text, sizeof device->lost_text, format, args);
        va_end(args);
        atomic_store_explicit(&device->lost, true, memory_order_release);
    }
    rf_assert(rf_device_is_lost(device) && device->lost_text[0]);
    pthread_mutex_unlock(&device->lost_mutex);
    if (first) rf_device_note(device, RF_LOG_ERROR, "device %d is lost: %s", device->info.index, device->lost_text);
    return rf_device_lost_status(device);
}

rf_status rf_device_lost_status(struct rf_device *device) {
    return rf_fail(RF_E_DEVICE_LOST, "device %d is lost: %s; start a new process to use it again", device->info.index,
                   device->lost_text);
}

rf_status rf_device_status(struct rf_device *device) {
    rf_status status = check_device(device);
    if (status) return status;
    rf_assert(!rf_device_is_lost(device) || device->lost_text[0]);
    return rf_device_is_lost(device) ? rf_device_lost_status(device) : RF_OK;
}

rf_status rf_device_get_info(const struct rf_device *device, struct rf_device_info *info) {
    rf_status status = rf_object_check(device, RF_OBJECT_DEVICE, "rf_device_get_info: device");
    if (!status) status = RF_RESULT_CHECK(struct rf_device_info, info, "rf_device_get_info");
    if (!status) RF_RESULT_WRITE(struct rf_device_info, info, &device->info);
    return status;
}
