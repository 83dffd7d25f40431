/* Queues and events: the public functions over timelines. */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

rf_status rf_queue_create(struct rf_device *device, const struct rf_queue_params *params, struct rf_queue **out) {
    struct rf_entry entry;
    RF_PARAMS(struct rf_queue_params, own);
    if (!out) return rf_fail(RF_E_INVALID, "rf_queue_create: out is NULL");
    rf_status status = params ? RF_PARAMS_READ(struct rf_queue_params, &own, params, "rf_queue_create") : RF_OK;
    if (status) return status;
    params = &own;
    if (params->timeout_ns < 0) return rf_fail(RF_E_INVALID, "rf_queue_create: timeout_ns is negative");
    status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_queue *queue = calloc(1, sizeof *queue);
    if (!queue) {
        status = rf_fail(RF_E_NO_MEMORY, "rf_queue_create: no host memory");
        goto leave;
    }
    status = rf_timeline_open(device, params->high_priority, &queue->line);
    if (status) {
        free(queue);
        goto leave;
    }
    queue->timeout_ns = params->timeout_ns ? params->timeout_ns : device->runtime->timeout_ns;
    snprintf(queue->label, sizeof queue->label, "%s", params->label ? params->label : "");
    rf_object_init(&queue->object, RF_OBJECT_QUEUE, device);
    *out = queue;
leave:
    rf_leave(&entry);
    return status;
}

rf_status rf_queue_destroy(struct rf_queue **pointer) {
    struct rf_entry entry;
    if (!pointer || !*pointer) return RF_OK;
    struct rf_queue *queue = *pointer;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_destroy: queue");
    if (status) return status;
    *pointer = NULL;
    if (rf_enter_cleanup(queue->object.device, &entry) == RF_OK) {
        rf_recording_cancel(queue);
        rf_timeline_release(queue->line);
        rf_object_free(&queue->object);
        rf_leave(&entry);
    } else {
        rf_object_free(&queue->object);
    }
    return RF_OK;
}

rf_status rf_queue_wait(struct rf_queue *queue, int64_t timeout_ns) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_wait: queue");
    if (!status) status = rf_recording_refuses(queue, "rf_queue_wait");
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    status = rf_timeline_wait(queue->line, rf_timeline_submitted(queue->line), rf_queue_deadline(queue, timeout_ns));
    rf_leave(&entry);
    return status;
}

rf_status rf_queue_idle(struct rf_queue *queue, bool *idle) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_idle: queue");
    if (!status && !idle) status = rf_fail(RF_E_INVALID, "rf_queue_idle: idle is NULL");
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    status = rf_timeline_poll(queue->line, rf_timeline_submitted(queue->line), idle);
    rf_leave(&entry);
    return status;
}

struct rf_device *rf_queue_device(const struct rf_queue *queue) {
    return rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_device: queue") ? NULL : queue->object.device;
}

/* ---- events ---- */

rf_status rf_event_create(struct rf_device *device, bool timing, struct rf_event **out) {
    struct rf_entry entry;
    if (!out) return rf_fail(RF_E_INVALID, "rf_event_create: out is NULL");
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_event *event = calloc(1, sizeof *event);
    if (event) {
        int code = device->driver->event_create(&event->event, timing ? 0 : RF_EVENT_DISABLE_TIMING);
        status = rf_device_result(device, code, "event_create", NULL);
    } else {
        status = rf_fail(RF_E_NO_MEMORY, "rf_event_create: no host memory");
    }
    if (status) {
        free(event);
    } else {
        event->timing = timing;
        rf_object_init(&event->object, RF_OBJECT_EVENT, device);
        *out = event;
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_event_destroy(struct rf_event **pointer) {
    struct rf_entry entry;
    if (!pointer || !*pointer) return RF_OK;
    struct rf_event *event = *pointer;
    rf_status status = rf_object_check(event, RF_OBJECT_EVENT, "rf_event_destroy: event");
    if (status) return status;
    struct rf_device *device = event->object.device;
    *pointer = NULL;
    if (rf_enter_cleanup(device, &entry) == RF_OK) {
        if (!rf_device_is_lost(device))
            status = rf_device_result(device, device->driver->event_destroy(event->event), "event_destroy", NULL);
        rf_object_free(&event->object);
        rf_leave(&entry);
    } else {
        rf_object_free(&event->object);
    }
    return status;
}

static rf_status check_event_queue(const char *who, const struct rf_event *event, const struct rf_queue *queue) {
    rf_status status = rf_object_check(event, RF_OBJECT_EVENT, who);
    if (!status) status = rf_object_check(queue, RF_OBJECT_QUEUE, who);
    if (!status && event->object.device != queue->object.device)
        status = rf_fail(RF_E_INVALID, "%s: event and queue belong to different devices", who);
    return status ? status : rf_recording_refuses(queue, who);
}

rf_status rf_event_record(struct rf_event *event, struct rf_queue *queue) {
    struct rf_entry entry;
    rf_status status = check_event_queue("rf_event_record", event, queue);
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    struct rf_timeline *line = queue->line;
    status = rf_timeline_begin(line, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT));
    if (!status) {
        uint64_t ticket = 0;
        int code = line->device->driver->event_record(event->event, line->stream);
        status = rf_timeline_end(line, code, "event_record", "event", &ticket);
        if (ticket) {
            event->recorded = true;
            event->use = (struct rf_use){line, ticket};
        }
    }
    rf_leave(&entry);
    return status;
}

static rf_status enter_recorded(const char *who, struct rf_event *event, struct rf_entry *entry) {
    rf_status status = rf_object_check(event, RF_OBJECT_EVENT, who);
    if (status) return status;
    if (!event->recorded) return rf_fail(RF_E_INVALID, "%s: the event was never recorded", who);
    return rf_enter(event->object.device, entry);
}

rf_status rf_event_wait(struct rf_event *event, int64_t timeout_ns) {
    struct rf_entry entry;
    rf_status status = enter_recorded("rf_event_wait", event, &entry);
    if (status) return status;
    status =
        rf_timeline_wait(event->use.line, event->use.ticket, rf_device_deadline(event->object.device, timeout_ns));
    rf_leave(&entry);
    return status;
}

rf_status rf_event_done(struct rf_event *event, bool *done) {
    struct rf_entry entry;
    if (!done) return rf_fail(RF_E_INVALID, "rf_event_done: done is NULL");
    rf_status status = enter_recorded("rf_event_done", event, &entry);
    if (status) return status;
    status = rf_timeline_poll(event->use.line, event->use.ticket, done);
    rf_leave(&entry);
    return status;
}

rf_status rf_event_elapsed(struct rf_event *start, struct rf_event *end, int64_t *elapsed_ns) {
    struct rf_entry entry;
    rf_status status = rf_object_check(end, RF_OBJECT_EVENT, "rf_event_elapsed: end");
    if (status || (status = rf_object_check(start, RF_OBJECT_EVENT, "rf_event_elapsed: start"))) return status;
    if (!elapsed_ns || !start->timing || !end->timing || !start->recorded || !end->recorded ||
        start->object.device != end->object.device)
        return rf_fail(RF_E_INVALID, "rf_event_elapsed: needs two recorded events with timing on one device");
    status = rf_enter(end->object.device, &entry);
    if (status) return status;
    bool done = false, started = false;
    status = rf_timeline_poll(start->use.line, start->use.ticket, &started);
    if (!status) status = rf_timeline_poll(end->use.line, end->use.ticket, &done);
    if (!status && !(started && done))
        status = rf_fail(RF_E_BUSY, "rf_event_elapsed: not done yet; wait for it first");
    if (!status) {
        float milliseconds = 0;
        struct rf_device *device = end->object.device;
        int code = device->driver->event_elapsed(&milliseconds, start->event, end->event);
        status = rf_device_result(device, code, "event_elapsed", NULL);
        if (!status) *elapsed_ns = (int64_t)((double)milliseconds * 1e6);
    }
    rf_leave(&entry);
    return status;
}

/* ---- order between queues ---- */

static rf_status wait_on_device(struct rf_timeline *line, void *event, int64_t deadline_ns) {
    rf_status status = rf_timeline_begin(line, deadline_ns);
    if (status) return status;
    int code = line->device->driver->stream_wait_event(line->stream, event, 0);
    return rf_timeline_end(line, code, "stream_wait_event", "wait for another queue", NULL);
}

rf_status rf_queue_after_event(struct rf_queue *queue, struct rf_event *event) {
    struct rf_entry entry;
    rf_status status = check_event_queue("rf_queue_after_event", event, queue);
    if (status || (status = enter_recorded("rf_queue_after_event", event, &entry))) return status;
    status = wait_on_device(queue->line, event->event, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT));
    rf_leave(&entry);
    return status;
}

rf_status rf_queue_after(struct rf_queue *queue, struct rf_queue *before) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_after: queue");
    if (!status) status = rf_object_check(before, RF_OBJECT_QUEUE, "rf_queue_after: before");
    if (!status) status = rf_recording_refuses(queue, "rf_queue_after");
    if (!status) status = rf_recording_refuses(before, "rf_queue_after");
    if (status) return status;
    struct rf_device *device = queue->object.device;
    if (device != before->object.device)
        return rf_fail(RF_E_INVALID, "rf_queue_after: the queues belong to different devices");
    if (queue->line == before->line) return RF_OK;
    status = rf_enter(device, &entry);
    if (status) return status;
    /* This needs an event of its own, because marks are recycled as soon as they are seen to be complete. */
    void *event = NULL;
    int64_t deadline = rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT);
    int code = device->driver->event_create(&event, RF_EVENT_DISABLE_TIMING);
    status = rf_device_result(device, code, "event_create", NULL);
    if (!status) {
        status = rf_timeline_begin(before->line, deadline);
        if (!status) {
            code = device->driver->event_record(event, before->line->stream);
            status = rf_timeline_end(before->line, code, "event_record", "event", NULL);
        }
        if (!status) status = wait_on_device(queue->line, event, deadline);
        /* The driver keeps a recorded event's work alive until it is done with it. */
        if (!rf_device_is_lost(device)) {
            rf_status destroyed =
                rf_device_result(device, device->driver->event_destroy(event), "event_destroy", NULL);
            if (!status) status = destroyed;
        }
    }
    rf_leave(&entry);
    return status;
}
