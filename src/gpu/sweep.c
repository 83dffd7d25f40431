/* Sweeping: objects that a test made and did not destroy are found, reported and released, so that the next test in
 * the same process starts from the same state. */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t rf_device_mark(struct rf_device *device) {
    if (rf_object_check(device, RF_OBJECT_DEVICE, "rf_device_mark: device")) return 0;
    pthread_mutex_lock(&device->memory_mutex);
    uint64_t mark = device->next_allocation_id;
    pthread_mutex_unlock(&device->memory_mutex);
    return mark;
}

static void report(struct rf_device *device, struct rf_sweep *sweep) {
    int64_t now = rf_now_ns();
    bool showing = sweep->visit != NULL;
    pthread_mutex_lock(&device->memory_mutex);
    for (struct rf_ledger_entry *entry = device->ledger_first; entry; entry = entry->next) {
        if (entry->record.id <= sweep->mark || entry->record.kind == RF_ALLOC_DRIVER || entry->record.abandoned)
            continue;
        struct rf_allocation shown = entry->record;
        shown.age_ns = now - shown.age_ns;
        sweep->allocations++;
        sweep->bytes += shown.bytes;
        if (showing) showing = sweep->visit(sweep->user, &shown);
    }
    pthread_mutex_unlock(&device->memory_mutex);
}

/* The newest object made after the mark; NULL when there is none left. */
static struct rf_object *next_object(struct rf_device *device, uint64_t mark) {
    pthread_mutex_lock(&device->memory_mutex);
    struct rf_object *found = NULL;
    for (struct rf_object *object = device->objects; object; object = object->next)
        if (object->id > mark && (!found || object->id > found->id)) found = object;
    pthread_mutex_unlock(&device->memory_mutex);
    return found;
}

/* Destroys an object through its ordinary destroy function, which knows what each kind needs. */
static rf_status destroy(struct rf_object *object, struct rf_sweep *sweep) {
    void *handle = object;
    switch (object->kind) {
    case RF_OBJECT_BUFFER: {
        struct rf_buffer *buffer = handle;
        if (buffer->bytes != buffer->whole_bytes) sweep->handles++;
        return rf_buffer_destroy(&buffer);
    }
    case RF_OBJECT_PINNED: return rf_pinned_destroy((struct rf_pinned **)&handle);
    case RF_OBJECT_QUEUE: sweep->handles++; return rf_queue_destroy((struct rf_queue **)&handle);
    case RF_OBJECT_RECORDING: sweep->handles++; return rf_recording_destroy((struct rf_recording **)&handle);
    case RF_OBJECT_EVENT: sweep->handles++; return rf_event_destroy((struct rf_event **)&handle);
    default: return rf_tensor_destroy((struct rf_tensor **)&handle);
    }
}

rf_status rf_device_sweep(struct rf_device *device, struct rf_sweep *given) {
    struct rf_entry entry;
    struct rf_sweep own, *sweep = &own;
    rf_status status = RF_PARAMS_READ(struct rf_sweep, &own, given, "rf_device_sweep");
    if (status) return status;
    status = rf_enter_cleanup(device, &entry);
    if (status) return status;
    sweep->allocations = sweep->bytes = sweep->handles = 0;
    if (!rf_device_is_lost(device)) {
        status = rf_timelines_drain(device, rf_device_deadline(device, sweep->timeout_ns));
        if (status == RF_E_TIMEOUT) {
            char why[600];
            snprintf(why, sizeof why, "%s", rf_error_text());
            rf_device_mark_lost(device, "sweeping: %s", why);
            rf_fail(RF_E_TIMEOUT, "the device counts as lost: %s", why);
        }
    }
    report(device, sweep);
    rf_status first = RF_OK;
    for (struct rf_object *object; (object = next_object(device, sweep->mark));) {
        rf_status destroyed = destroy(object, sweep);
        if (!first) first = destroyed;
    }
    if (!status && !first && !rf_device_is_lost(device)) first = rf_device_check_guards(device, sweep->timeout_ns);
    pthread_mutex_lock(&device->memory_mutex);
    if (!status && !first && device->damage_id > sweep->mark)
        first = rf_fail(RF_E_CORRUPT, "%s", device->damage_text);
    device->damage_id = 0; /* it is reported only once */
    pthread_mutex_unlock(&device->memory_mutex);
    if (!status) status = rf_device_is_lost(device) ? rf_device_lost_status(device) : first;
    rf_leave(&entry);
    RF_RESULT_WRITE(struct rf_sweep, given, &own);
    return status;
}
