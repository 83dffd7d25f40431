/* RF_CHECK=guard,poison: what a debug allocator does, for device memory.
 *
 * guard   RF_GUARD_BYTES before and at least as many behind every allocation hold a pattern;
 *         it is compared when the buffer is destroyed and on demand
 * poison  fresh memory is filled with bytes that are NaN in every float type, freed memory with
 *         others, so that a read of either shows
 * All of this runs on the service timeline and is waited for: this mode is for finding faults, not for speed. */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARD_PATTERN = 0xA5, FRESH_PATTERN = 0xFF, FREED_PATTERN = 0xFB, TAIL_CHECKED = 4096 };

static rf_status fill_and_wait(struct rf_device *device, struct rf_block *block, uint64_t offset, uint64_t bytes,
                               unsigned char value, int64_t deadline_ns) {
    uint64_t ticket = 0;
    if (!bytes) return RF_OK;
    rf_status status =
        rf_submit_fill(device->service, (char *)block->base + offset, value, bytes, deadline_ns, &ticket);
    if (ticket) rf_uses_note(&block->uses, device->service, ticket);
    return status ? status : rf_timeline_wait(device->service, ticket, deadline_ns);
}

static uint64_t tail_bytes(const struct rf_block *block, uint64_t bytes) {
    return RF_MIN(block->bytes - block->user_offset - bytes, (uint64_t)TAIL_CHECKED);
}

rf_status rf_check_prepare(struct rf_device *device, struct rf_block *block, uint64_t bytes) {
    unsigned checks = device->checks;
    int64_t deadline = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
    rf_status status = RF_OK;
    /* Memory that the pool reused in queue order may still be in use by that queue. */
    if (checks & (RF_CHECK_GUARD | RF_CHECK_POISON)) status = rf_uses_wait(&block->uses, deadline);
    if (!status && (checks & RF_CHECK_POISON))
        status = fill_and_wait(device, block, block->user_offset, bytes, FRESH_PATTERN, deadline);
    if (!status && (checks & RF_CHECK_GUARD)) {
        status = fill_and_wait(device, block, 0, RF_GUARD_BYTES, GUARD_PATTERN, deadline);
        if (!status)
            status = fill_and_wait(device, block, block->user_offset + bytes, tail_bytes(block, bytes), GUARD_PATTERN,
                                   deadline);
    }
    return status;
}

/* The first byte that differs from the pattern, or 'bytes'. */
static uint64_t first_damage(const unsigned char *seen, uint64_t bytes) {
    uint64_t i = 0;
    while (i < bytes && seen[i] == GUARD_PATTERN) i++;
    return i;
}

rf_status rf_check_verify(struct rf_device *device, struct rf_block *block, uint64_t bytes, int64_t deadline_ns) {
    unsigned char seen[TAIL_CHECKED];
    if (!(device->checks & RF_CHECK_GUARD) || block->pinned) return RF_OK;
    rf_status status = rf_uses_wait(&block->uses, deadline_ns);
    if (status) return rf_fail_within(status, "guard bands not checked");
    const struct rf_allocation *record = &block->ledger.record;
    status = rf_stage_from_device(device->service, seen, block->base, RF_GUARD_BYTES, deadline_ns, &block->uses);
    if (status) return rf_fail_within(status, "guard bands not checked");
    uint64_t at = first_damage(seen, RF_GUARD_BYTES);
    if (at < RF_GUARD_BYTES)
        return rf_fail(RF_E_CORRUPT,
                       "%llu bytes before the start of a %llu-byte buffer '%s' (made at %s:%d) were overwritten",
                       (unsigned long long)(RF_GUARD_BYTES - at), (unsigned long long)bytes, record->label,
                       record->site.file, record->site.line);
    uint64_t tail = tail_bytes(block, bytes);
    status = rf_stage_from_device(device->service, seen, (char *)block->base + block->user_offset + bytes, tail,
                                  deadline_ns, &block->uses);
    if (status) return rf_fail_within(status, "guard bands not checked");
    at = first_damage(seen, tail);
    if (at < tail)
        return rf_fail(
            RF_E_CORRUPT, "byte %llu past the end of a %llu-byte buffer '%s' (made at %s:%d) was overwritten",
            (unsigned long long)at, (unsigned long long)bytes, record->label, record->site.file, record->site.line);
    return RF_OK;
}

void rf_check_scribble(struct rf_device *device, struct rf_block *block, int64_t deadline_ns) {
    struct rf_saved_error saved;
    if (!(device->checks & RF_CHECK_POISON)) return;
    rf_error_save(&saved);
    /* This is done only once nothing uses the memory: a stuck queue's memory stays as it is. */
    if (rf_uses_wait(&block->uses, deadline_ns) == RF_OK)
        fill_and_wait(device, block, 0, block->bytes, FREED_PATTERN, deadline_ns);
    rf_error_restore(&saved);
}

rf_status rf_device_check_guards(struct rf_device *device, int64_t timeout_ns) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    int64_t deadline = rf_device_deadline(device, timeout_ns);
    if (device->checks & RF_CHECK_GUARD) {
        /* Collect under the lock, keeping each block alive by a reference; check without it. */
        size_t count = 0, capacity = 0;
        struct rf_buffer **views = NULL;
        pthread_mutex_lock(&device->memory_mutex);
        for (struct rf_object *object = device->objects; object; object = object->next)
            capacity += object->kind == RF_OBJECT_BUFFER;
        views = calloc(capacity ? capacity : 1, sizeof *views);
        for (struct rf_object *object = device->objects; views && object; object = object->next) {
            if (object->kind != RF_OBJECT_BUFFER) continue;
            struct rf_buffer *copy = malloc(sizeof *copy);
            if (!copy) continue;
            *copy = *(struct rf_buffer *)object;
            atomic_fetch_add(&copy->block->references, 1);
            views[count++] = copy;
        }
        pthread_mutex_unlock(&device->memory_mutex);
        if (!views) status = rf_fail(RF_E_NO_MEMORY, "rf_device_check_guards: no host memory");
        for (size_t i = 0; i < count; i++) {
            if (!status) status = rf_check_verify(device, views[i]->block, views[i]->whole_bytes, deadline);
            /* Give the reference back in the ordinary way, as a handle of its own. */
            rf_object_init(&views[i]->object, RF_OBJECT_BUFFER, device);
            struct rf_saved_error saved;
            rf_error_save(&saved);
            rf_buffer_destroy(&views[i]);
            rf_error_restore(&saved);
        }
        free(views);
    }
    rf_leave(&entry);
    return status;
}
