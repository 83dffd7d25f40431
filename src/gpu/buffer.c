/* Buffers and pinned memory: handles over blocks.
 *
 * A buffer and its views share one block by reference count; the last of them gives the block to the pool, which
 * knows when the work that uses it is done. On a lost device no memory is given back: the ledger shows it as
 * abandoned. */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device.h"

static rf_status zero(struct rf_device *device, struct rf_block *block, uint64_t bytes, struct rf_queue *queue);

rf_status rf_buffer_create_safe_at(struct rf_device *device, const struct rf_buffer_params *params,
                                   struct rf_buffer **out, struct rf_site site) {
    struct rf_entry entry;
    struct rf_buffer_params own;
    if (!out) return rf_fail(RF_E_INVALID, "rf_buffer_create_safe: out is NULL");
    rf_status status = RF_PARAMS_READ(struct rf_buffer_params, &own, params, "rf_buffer_create_safe");
    if (status) return status;
    params = &own;
    if (!params->bytes) return rf_fail(RF_E_INVALID, "rf_buffer_create_safe: bytes is 0");
    status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_queue *queue = params->queue;
    if (queue) {
        status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_buffer_create_safe: queue");
        if (!status && queue->object.device != device)
            status = rf_fail(RF_E_INVALID, "rf_buffer_create_safe: the queue belongs to another device");
        if (!status && params->zeroed) status = rf_recording_refuses(queue, "rf_buffer_create_safe: zeroing");
        if (status) goto leave;
    }
    status = rf_runtime_injected_failure(device->runtime);
    if (status) goto leave;
    struct rf_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) {
        status = rf_fail(RF_E_NO_MEMORY, "rf_buffer_create_safe: no host memory");
        goto leave;
    }
    struct rf_block *block = NULL;
    if (!rf_mutex_lock_until(&device->memory_mutex, rf_device_deadline(device, RF_TIMEOUT_DEFAULT))) {
        status = rf_fail(RF_E_TIMEOUT, "rf_buffer_create_safe: another allocation did not end by the deadline");
        free(buffer);
        goto leave;
    }
    status = rf_pool_take(device, params->bytes, params->direct, queue ? queue->line : NULL, &block);
    if (!status) {
        atomic_store(&block->references, 1);
        rf_ledger_add(device, &block->ledger, RF_ALLOC_BUFFER, params->bytes, block->bytes, params->label, site);
    }
    pthread_mutex_unlock(&device->memory_mutex);
    if (!status && device->checks) status = rf_check_prepare(device, block, params->bytes);
    if (!status && params->zeroed) status = zero(device, block, params->bytes, queue);
    if (status) {
        if (block) {
            pthread_mutex_lock(&device->memory_mutex);
            if (rf_device_is_lost(device)) {
                rf_ledger_abandon(device, &block->ledger);
            } else {
                rf_ledger_remove(device, &block->ledger);
                rf_pool_give(device, block);
            }
            pthread_mutex_unlock(&device->memory_mutex);
        }
        free(buffer);
        goto leave;
    }
    buffer->block = block;
    buffer->bytes = buffer->whole_bytes = params->bytes;
    rf_object_init(&buffer->object, RF_OBJECT_BUFFER, device);
    *out = buffer;
leave:
    rf_leave(&entry);
    return status;
}

rf_status(rf_buffer_create_safe)(struct rf_device *device, const struct rf_buffer_params *params,
                                 struct rf_buffer **out) {
    return rf_buffer_create_safe_at(device, params, out, (struct rf_site){"?", "?", 0});
}

static rf_status zero(struct rf_device *device, struct rf_block *block, uint64_t bytes, struct rf_queue *queue) {
    struct rf_timeline *line = queue ? queue->line : device->service;
    int64_t deadline = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
    uint64_t ticket;
    rf_status status = rf_submit_fill(line, (char *)block->base + block->user_offset, 0, bytes, deadline, &ticket);
    if (status) return status;
    rf_uses_note(&block->uses, line, ticket);
    return queue ? RF_OK : rf_timeline_wait(line, ticket, deadline);
}

/* A caller that ignores the status of a destroy still learns of the damage: from the log, and at the next sweep. */
static void remember_damage(struct rf_device *device) {
    rf_device_note(device, RF_LOG_ERROR, "%s", rf_error_text());
    pthread_mutex_lock(&device->memory_mutex);
    device->damage_id = ++device->next_allocation_id;
    snprintf(device->damage_text, sizeof device->damage_text, "%s", rf_error_text());
    pthread_mutex_unlock(&device->memory_mutex);
}

rf_status rf_buffer_destroy(struct rf_buffer **pointer) {
    struct rf_entry entry;
    if (!pointer || !*pointer) return RF_OK;
    struct rf_buffer *buffer = *pointer;
    rf_status status = rf_object_check(buffer, RF_OBJECT_BUFFER, "rf_buffer_destroy: buffer");
    if (status) return status;
    struct rf_device *device = buffer->object.device;
    struct rf_block *block = buffer->block;
    *pointer = NULL;
    if (rf_enter_cleanup(device, &entry)) { /* closed: its memory was dealt with then */
        rf_object_free(&buffer->object);
        return RF_OK;
    }
    status = rf_block_release(device, block);
    rf_object_free(&buffer->object);
    rf_leave(&entry);
    return status;
}

rf_status rf_block_release(struct rf_device *device, struct rf_block *block) {
    rf_status status = RF_OK;
    if (atomic_fetch_sub(&block->references, 1) != 1) return RF_OK;
    if (block->pinned) {
        rf_pinned_release(device, block->pinned);
        return RF_OK;
    }
    if (device->checks && !rf_device_is_lost(device)) {
        int64_t deadline = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
        status = rf_check_verify(device, block, block->ledger.record.bytes, deadline);
        if (status == RF_E_CORRUPT) remember_damage(device);
        rf_check_scribble(device, block, deadline);
    }
    pthread_mutex_lock(&device->memory_mutex);
    if (rf_device_is_lost(device)) {
        rf_ledger_abandon(device, &block->ledger);
    } else {
        rf_ledger_remove(device, &block->ledger);
        rf_pool_give(device, block);
    }
    pthread_mutex_unlock(&device->memory_mutex);
    return status;
}

rf_status rf_buffer_view(struct rf_buffer *buffer, uint64_t offset, uint64_t bytes, struct rf_buffer **out) {
    struct rf_entry entry;
    rf_status status = rf_object_check(buffer, RF_OBJECT_BUFFER, "rf_buffer_view: buffer");
    if (status) return status;
    if (!out) return rf_fail(RF_E_INVALID, "rf_buffer_view: out is NULL");
    if (!bytes || !rf_range_fits(offset, bytes, buffer->bytes))
        return rf_fail(RF_E_INVALID, "rf_buffer_view: %llu bytes at %llu do not lie within the buffer's %llu",
                       (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
    status = rf_enter(buffer->object.device, &entry);
    if (status) return status;
    struct rf_buffer *view = calloc(1, sizeof *view);
    if (view) {
        view->block = buffer->block;
        view->offset = buffer->offset + offset;
        view->bytes = bytes;
        view->whole_bytes = buffer->whole_bytes;
        atomic_fetch_add(&view->block->references, 1);
        rf_object_init(&view->object, RF_OBJECT_BUFFER, buffer->object.device);
        *out = view;
    } else {
        status = rf_fail(RF_E_NO_MEMORY, "rf_buffer_view: no host memory");
    }
    rf_leave(&entry);
    return status;
}

uint64_t rf_buffer_bytes(const struct rf_buffer *buffer) {
    return rf_object_check(buffer, RF_OBJECT_BUFFER, "rf_buffer_bytes: buffer") ? 0 : buffer->bytes;
}

struct rf_device *rf_buffer_device(const struct rf_buffer *buffer) {
    return rf_object_check(buffer, RF_OBJECT_BUFFER, "rf_buffer_device: buffer") ? NULL : buffer->object.device;
}

uint64_t rf_buffer_address(const struct rf_buffer *buffer) {
    if (rf_object_check(buffer, RF_OBJECT_BUFFER, "rf_buffer_address: buffer")) return 0;
    if (atomic_load(&buffer->object.device->state) != RF_DEVICE_OPEN) return 0;
    return (uint64_t)(uintptr_t)rf_buffer_pointer(buffer, 0);
}

/* ---- pinned host memory ---- */

rf_status rf_pinned_create_at(struct rf_device *device, uint64_t bytes, struct rf_pinned **out, struct rf_site site) {
    struct rf_entry entry;
    if (!out) return rf_fail(RF_E_INVALID, "rf_pinned_create: out is NULL");
    uint64_t charged;
    if (!bytes || bytes > SIZE_MAX / 2 || rf_round_up_overflows(bytes, 4096, &charged))
        return rf_fail(RF_E_INVALID, "rf_pinned_create: %llu bytes", (unsigned long long)bytes);
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    status = rf_runtime_injected_failure(device->runtime);
    if (status) goto leave;
    struct rf_pinned *pinned = calloc(1, sizeof *pinned);
    if (!pinned) {
        status = rf_fail(RF_E_NO_MEMORY, "rf_pinned_create: no host memory");
        goto leave;
    }
    status = rf_host_charge(&device->runtime->host, charged, true);
    if (status) {
        free(pinned);
        goto leave;
    }
    int code = device->driver->host_alloc(&pinned->data, (size_t)charged, 0);
    if (code == RF_DRV_OK && !pinned->data) code = RF_DRV_OUT_OF_MEMORY; /* success without memory is none */
    status = rf_device_result(device, code, "host_alloc", NULL);
    if (status) {
        rf_host_release(&device->runtime->host, charged, true);
        free(pinned);
        goto leave;
    }
    pinned->bytes = bytes;
    pinned->charged_bytes = charged;
    atomic_store(&pinned->references, 1);
    pthread_mutex_lock(&device->memory_mutex);
    rf_ledger_add(device, &pinned->ledger, RF_ALLOC_PINNED, bytes, charged, "pinned", site);
    pthread_mutex_unlock(&device->memory_mutex);
    rf_object_init(&pinned->object, RF_OBJECT_PINNED, device);
    *out = pinned;
leave:
    rf_leave(&entry);
    return status;
}

rf_status rf_pinned_buffer(struct rf_pinned *pinned, struct rf_buffer **out) {
    struct rf_entry entry;
    rf_status status = rf_object_check(pinned, RF_OBJECT_PINNED, "rf_pinned_buffer: pinned");
    if (status) return status;
    if (!out) return rf_fail(RF_E_INVALID, "rf_pinned_buffer: out is NULL");
    struct rf_device *device = pinned->object.device;
    status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer) {
        struct rf_block *block = &pinned->block;
        /* memory_mutex is needed because two threads may make the first buffer at once. */
        pthread_mutex_lock(&device->memory_mutex);
        if (atomic_fetch_add(&block->references, 1) == 0) {
            atomic_fetch_add(&pinned->references, 1);
            block->base = pinned->data;
            block->bytes = pinned->bytes;
            block->pinned = pinned;
        }
        pthread_mutex_unlock(&device->memory_mutex);
        buffer->block = block;
        buffer->bytes = buffer->whole_bytes = pinned->bytes;
        rf_object_init(&buffer->object, RF_OBJECT_BUFFER, device);
        *out = buffer;
    } else {
        status = rf_fail(RF_E_NO_MEMORY, "rf_pinned_buffer: no host memory");
    }
    rf_leave(&entry);
    return status;
}

static bool give_pinned_back(struct rf_device *device, struct rf_pinned *pinned);

rf_status rf_pinned_destroy(struct rf_pinned **pointer) {
    struct rf_entry entry;
    if (!pointer || !*pointer) return RF_OK;
    struct rf_pinned *pinned = *pointer;
    rf_status status = rf_object_check(pinned, RF_OBJECT_PINNED, "rf_pinned_destroy: pinned");
    if (status) return status;
    struct rf_device *device = pinned->object.device;
    *pointer = NULL;
    if (rf_enter_cleanup(device, &entry)) {
        rf_object_free(&pinned->object);
        return RF_OK;
    }
    if (atomic_fetch_sub(&pinned->references, 1) != 1) {
        rf_object_retire(&pinned->object, true); /* a recording uses the memory: it is released with the recording */
    } else {
        bool lost = give_pinned_back(device, pinned);
        rf_object_retire(&pinned->object, lost || device->checks);
    }
    rf_leave(&entry);
    return RF_OK;
}

void rf_pinned_release(struct rf_device *device, struct rf_pinned *pinned) {
    if (atomic_fetch_sub(&pinned->references, 1) == 1) give_pinned_back(device, pinned);
}

/* Returns true if the device is lost: the memory is then abandoned, and the handle keeps its ledger entry. */
static bool give_pinned_back(struct rf_device *device, struct rf_pinned *pinned) {
    pthread_mutex_lock(&device->memory_mutex);
    bool lost = rf_device_is_lost(device);
    if (lost) {
        rf_ledger_abandon(device, &pinned->ledger);
    } else {
        rf_ledger_remove(device, &pinned->ledger);
        /* The driver's free waits for all streams: it happens at a quiet moment, at the latest
         * when the device closes. */
        struct rf_doomed_pinned *doomed = malloc(sizeof *doomed);
        if (doomed) {
            *doomed = (struct rf_doomed_pinned){device->doomed_pinned, pinned->data, pinned->charged_bytes};
            device->doomed_pinned = doomed;
        } else {
            rf_device_note(device, RF_LOG_ERROR, "%llu bytes of pinned memory could not be recorded for freeing",
                           (unsigned long long)pinned->bytes);
        }
        if (rf_quiet_enter(device, 0) == RF_OK) {
            rf_pinned_free_doomed(device);
            rf_quiet_leave(device);
        }
    }
    pthread_mutex_unlock(&device->memory_mutex);
    return lost;
}

void rf_pinned_free_doomed(struct rf_device *device) {
    while (device->doomed_pinned) {
        struct rf_doomed_pinned *doomed = device->doomed_pinned;
        device->doomed_pinned = doomed->next;
        if (!rf_device_result(device, device->driver->host_free(doomed->data), "host_free", NULL))
            rf_host_release(&device->runtime->host, doomed->charged_bytes, true);
        free(doomed);
    }
}

void *rf_pinned_data(const struct rf_pinned *pinned) {
    return rf_object_check(pinned, RF_OBJECT_PINNED, "rf_pinned_data: pinned") ? NULL : pinned->data;
}

uint64_t rf_pinned_bytes(const struct rf_pinned *pinned) {
    return rf_object_check(pinned, RF_OBJECT_PINNED, "rf_pinned_bytes: pinned") ? 0 : pinned->bytes;
}
