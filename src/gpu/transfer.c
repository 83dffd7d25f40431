/* Transfers: every copy and fill is one or more tickets on the queue's timeline.
 *
 * Pageable memory goes through staging; the driver gets only pinned memory. Argument checks come first, so that a
 * refused transfer has done nothing. */
#include "gpu/device_impl.h"

static rf_status check_range(const char *who, const struct rf_buffer *buffer, uint64_t offset, uint64_t bytes) {
    if (rf_range_fits(offset, bytes, buffer->bytes)) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: %llu bytes at %llu do not lie within the buffer's %llu", who,
                   (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
}

static rf_status check_both(const char *who, const struct rf_queue *queue, const struct rf_buffer *buffer,
                            uint64_t offset, uint64_t bytes) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, who);
    if (!status) status = rf_object_check(buffer, RF_OBJECT_BUFFER, who);
    if (status) return status;
    if (queue->object.device != buffer->object.device)
        return rf_fail(RF_E_INVALID, "%s: the buffer is on device %d, the queue on device %d", who,
                       buffer->object.device->info.index, queue->object.device->info.index);
    return check_range(who, buffer, offset, bytes);
}

/* Drivers differ on whether a copy accepts an address of host memory as an address on the device. */
static rf_status refuse_host(const char *who, const struct rf_buffer *buffer) {
    if (!buffer->block->pinned) return RF_OK;
    return rf_fail(
        RF_E_UNSUPPORTED,
        "%s: the buffer lies in pinned host memory; use rf_copy_to_device_safe or rf_copy_from_device_safe", who);
}

/* One driver copy as one ticket. */
enum direction { TO_DEVICE, FROM_DEVICE, ON_DEVICE };
static rf_status submit_copy(struct rf_timeline *line, enum direction direction, void *to, const void *from,
                             uint64_t bytes, int64_t deadline_ns, uint64_t *ticket) {
    const struct rf_driver *driver = line->device->driver;
    rf_status status = rf_timeline_begin(line, deadline_ns);
    if (status) return status;
    rf_timeline_sign(line, bytes);
    int code;
    switch (direction) {
    case TO_DEVICE:
        code = driver->copy_to_device(to, from, (size_t)bytes, line->stream);
        return rf_timeline_end(line, code, "copy_to_device", "copy to device", ticket);
    case FROM_DEVICE:
        code = driver->copy_from_device(to, (rf_dptr)(uintptr_t)from, (size_t)bytes, line->stream);
        return rf_timeline_end(line, code, "copy_from_device", "copy from device", ticket);
    default:
        code = driver->copy_on_device(to, (rf_dptr)(uintptr_t)from, (size_t)bytes, line->stream);
        return rf_timeline_end(line, code, "copy_on_device", "copy on device", ticket);
    }
}

rf_status rf_submit_fill(struct rf_timeline *line, rf_dptr to, unsigned char value, uint64_t bytes,
                         int64_t deadline_ns, uint64_t *ticket) {
    rf_status status = rf_timeline_begin(line, deadline_ns);
    if (status) return status;
    rf_timeline_sign(line, bytes);
    int code = line->device->driver->fill_bytes(to, value, (size_t)bytes, line->stream);
    return rf_timeline_end(line, code, "fill_bytes", "fill", ticket);
}

rf_status rf_stage_to_device(struct rf_timeline *line, rf_dptr to, const void *from, uint64_t bytes,
                             int64_t deadline_ns, struct rf_uses *uses) {
    struct rf_device *device = line->device;
    uint64_t done = 0;
    rf_status status = RF_OK;
    while (!status && done < bytes) {
        struct rf_stage *stage;
        uint64_t ticket = 0;
        status = rf_stage_take(device, line, bytes - done, deadline_ns, &stage);
        if (status) break;
        uint64_t part = RF_MIN(bytes - done, stage->bytes);
        memcpy(stage->data, (const char *)from + done, (size_t)part);
        status = submit_copy(line, TO_DEVICE, (char *)to + done, stage->data, part, deadline_ns, &ticket);
        if (ticket) rf_uses_note(uses, line, ticket);
        rf_stage_give(device, stage, line, ticket);
        done += part;
    }
    return status;
}

rf_status rf_stage_from_device(struct rf_timeline *line, void *to, rf_dptr from, uint64_t bytes, int64_t deadline_ns,
                               struct rf_uses *uses) {
    struct rf_device *device = line->device;
    /* Two stages are used in turn: while one is copied out, the other is filled. */
    struct pending {
        struct rf_stage *stage;
        uint64_t ticket, offset, bytes;
    } pending[2] = {{0}};
    uint64_t started = 0;
    rf_status status = RF_OK;
    for (int turn = 0; !status && (started < bytes || pending[turn].stage || pending[turn ^ 1].stage); turn ^= 1) {
        struct pending *slot = &pending[turn];
        if (slot->stage) {
            status = rf_timeline_wait(line, slot->ticket, deadline_ns);
            if (!status) memcpy((char *)to + slot->offset, slot->stage->data, (size_t)slot->bytes);
            rf_stage_give(device, slot->stage, line, slot->ticket);
            slot->stage = NULL;
        }
        if (status || started == bytes) continue;
        /* While the other stage of this call is pending, the call does not wait for a second one. */
        int64_t patience = pending[turn ^ 1].stage ? rf_now_ns() : deadline_ns;
        rf_status taken = rf_stage_take(device, line, bytes - started, patience, &slot->stage);
        if (taken == RF_E_TIMEOUT && pending[turn ^ 1].stage) continue;
        status = taken;
        if (status) break;
        slot->offset = started;
        slot->bytes = RF_MIN(bytes - started, slot->stage->bytes);
        slot->ticket = 0;
        status = submit_copy(line, FROM_DEVICE, slot->stage->data, (char *)from + started, slot->bytes, deadline_ns,
                             &slot->ticket);
        if (slot->ticket) rf_uses_note(uses, line, slot->ticket);
        started += slot->bytes;
    }
    for (int i = 0; i < 2; i++)
        if (pending[i].stage) rf_stage_give(device, pending[i].stage, line, pending[i].ticket);
    return status;
}

rf_status rf_copy_to_device_safe(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset, const void *from,
                                 uint64_t bytes) {
    struct rf_entry entry;
    rf_status status = check_both("rf_copy_to_device_safe", queue, to, to_offset, bytes);
    if (!status && !from && bytes) status = rf_fail(RF_E_INVALID, "rf_copy_to_device_safe: from is NULL");
    if (!status) status = rf_recording_refuses(queue, "rf_copy_to_device_safe");
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    int64_t deadline = rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT);
    if (to->block->pinned) {
        status = rf_uses_wait(&to->block->uses, deadline);
        if (!status && bytes) memcpy(rf_buffer_pointer(to, to_offset), from, (size_t)bytes);
    } else {
        status = rf_stage_to_device(queue->line, rf_buffer_pointer(to, to_offset), from, bytes, deadline,
                                    &to->block->uses);
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_copy_from_device_safe(struct rf_queue *queue, void *to, struct rf_buffer *from, uint64_t from_offset,
                                   uint64_t bytes) {
    struct rf_entry entry;
    rf_status status = check_both("rf_copy_from_device_safe", queue, from, from_offset, bytes);
    if (!status && !to && bytes) status = rf_fail(RF_E_INVALID, "rf_copy_from_device_safe: to is NULL");
    if (!status) status = rf_recording_refuses(queue, "rf_copy_from_device_safe");
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    int64_t deadline = rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT);
    if (from->block->pinned) {
        status = rf_uses_wait(&from->block->uses, deadline);
        if (!status && bytes) memcpy(to, rf_buffer_pointer(from, from_offset), (size_t)bytes);
    } else {
        status = rf_stage_from_device(queue->line, to, rf_buffer_pointer(from, from_offset), bytes, deadline,
                                      &from->block->uses);
    }
    rf_leave(&entry);
    return status;
}

/* Upload and download differ in direction alone. */
static rf_status copy_pinned(const char *who, enum direction direction, struct rf_queue *queue,
                             struct rf_buffer *buffer, uint64_t offset, struct rf_pinned *pinned,
                             uint64_t pinned_offset, uint64_t bytes) {
    struct rf_entry entry;
    rf_status status = check_both(who, queue, buffer, offset, bytes);
    if (!status) status = rf_object_check(pinned, RF_OBJECT_PINNED, who);
    if (!status) status = refuse_host(who, buffer);
    if (status) return status;
    if (pinned->object.device != queue->object.device)
        return rf_fail(RF_E_INVALID, "%s: the pinned memory is on another device", who);
    if (!rf_range_fits(pinned_offset, bytes, pinned->bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu bytes at %llu do not lie within the pinned memory's %llu", who,
                       (unsigned long long)bytes, (unsigned long long)pinned_offset,
                       (unsigned long long)pinned->bytes);
    if (!bytes) return RF_OK;
    status = rf_enter(queue->object.device, &entry);
    if (status) return status;
    void *host = (char *)pinned->data + pinned_offset, *device = rf_buffer_pointer(buffer, offset);
    uint64_t ticket = 0;
    status = rf_recording_hold_block(queue, buffer->block);
    if (!status) status = rf_recording_hold_pinned(queue, pinned);
    if (!status)
        status = submit_copy(queue->line, direction, direction == TO_DEVICE ? device : host,
                             direction == TO_DEVICE ? host : device, bytes,
                             rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT), &ticket);
    if (ticket) {
        rf_uses_note(&buffer->block->uses, queue->line, ticket);
        rf_uses_note(&pinned->uses, queue->line, ticket);
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_upload_async(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset, struct rf_pinned *from,
                          uint64_t from_offset, uint64_t bytes) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_upload_async: queue");
    if (status) return status;
    return rf_recording_note(
        queue, copy_pinned("rf_upload_async", TO_DEVICE, queue, to, to_offset, from, from_offset, bytes));
}

rf_status rf_download_async(struct rf_queue *queue, struct rf_pinned *to, uint64_t to_offset, struct rf_buffer *from,
                            uint64_t from_offset, uint64_t bytes) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_download_async: queue");
    if (status) return status;
    return rf_recording_note(
        queue, copy_pinned("rf_download_async", FROM_DEVICE, queue, from, from_offset, to, to_offset, bytes));
}

static rf_status copy_on_device(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset,
                                struct rf_buffer *from, uint64_t from_offset, uint64_t bytes) {
    struct rf_entry entry;
    rf_status status = check_both("rf_copy_on_device", queue, to, to_offset, bytes);
    if (!status) status = check_both("rf_copy_on_device", queue, from, from_offset, bytes);
    if (!status) status = refuse_host("rf_copy_on_device", to);
    if (!status) status = refuse_host("rf_copy_on_device", from);
    if (status) return status;
    uint64_t first = to->offset + to_offset, second = from->offset + from_offset;
    if (to->block == from->block && bytes && first < second + bytes && second < first + bytes)
        return rf_fail(RF_E_INVALID, "rf_copy_on_device: the ranges overlap");
    if (!bytes) return RF_OK;
    status = rf_enter(queue->object.device, &entry);
    if (status) return status;
    uint64_t ticket = 0;
    status = rf_recording_hold_block(queue, to->block);
    if (!status) status = rf_recording_hold_block(queue, from->block);
    if (!status)
        status = submit_copy(queue->line, ON_DEVICE, rf_buffer_pointer(to, to_offset),
                             rf_buffer_pointer(from, from_offset), bytes,
                             rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT), &ticket);
    if (ticket) {
        rf_uses_note(&to->block->uses, queue->line, ticket);
        rf_uses_note(&from->block->uses, queue->line, ticket);
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_copy_on_device(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset, struct rf_buffer *from,
                            uint64_t from_offset, uint64_t bytes) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_copy_on_device: queue");
    return status ? status : rf_recording_note(queue, copy_on_device(queue, to, to_offset, from, from_offset, bytes));
}

static rf_status fill(struct rf_queue *queue, struct rf_buffer *to, uint64_t offset, uint64_t bytes,
                      unsigned char value) {
    struct rf_entry entry;
    rf_status status = check_both("rf_fill", queue, to, offset, bytes);
    if (!status) status = refuse_host("rf_fill", to);
    if (status) return status;
    if (!bytes) return RF_OK;
    status = rf_enter(queue->object.device, &entry);
    if (status) return status;
    uint64_t ticket = 0;
    status = rf_recording_hold_block(queue, to->block);
    if (!status)
        status = rf_submit_fill(queue->line, rf_buffer_pointer(to, offset), value, bytes,
                                rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT), &ticket);
    if (ticket) rf_uses_note(&to->block->uses, queue->line, ticket);
    rf_leave(&entry);
    return status;
}

rf_status rf_fill(struct rf_queue *queue, struct rf_buffer *to, uint64_t offset, uint64_t bytes,
                  unsigned char value) {
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_fill: queue");
    return status ? status : rf_recording_note(queue, fill(queue, to, offset, bytes, value));
}
