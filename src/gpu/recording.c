/* Recordings: work that is captured once and run again as one submission.
 *
 * While a queue records, its timeline gives every submission to the driver's capture, without a ticket or a mark.
 * Invariants:
 *   1. before a capture begins, everything submitted to the timeline has its mark, so that other threads that look at
 *      the timeline meanwhile never need to record an event on the captured stream
 *   2. memory that a recorded submission refers to is referenced until the recording is destroyed, so that its
 *      address cannot be reused for other memory
 *   3. an executable graph is destroyed only at a quiet moment: one driver forbids destroying it while it runs, and
 *      freeing its memory may wait for all streams
 *   4. the memory that the driver holds for executable graphs is part of driver_bytes, as measured; recording_bytes
 *      is that part
 * rf_timeline_capture_begin asserts 1; 2 is asserted where memory is held for a recording, 3 and 4 where executable
 * graphs are destroyed. Nothing here may wait, except in checked mode where memory is given back (memory_check.c). */
#include "gpu/device_impl.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAMES_MAX = 256 };

struct rf_device_name {
    struct rf_device_name *next;
    char text[];
};

static rf_status make_executable(struct rf_queue *queue, struct rf_recording *recording, void *graph);
static rf_status discard(struct rf_device *device, struct rf_recording *recording);

/* ---- recording ---- */

/* Time-outs and faults may name a recording that is gone, so names live as long as the device, and each is kept once.
 * A program that keeps using new names gets the common name in the end. */
static const char *keep_name(struct rf_device *device, const char *text) {
    static const char common[] = "recording";
    if (!text || !*text) return common;
    size_t length = strnlen(text, 95), count = 0;
    struct rf_device_name *found;
    pthread_mutex_lock(&device->memory_mutex);
    for (found = device->names; found; found = found->next, count++)
        if (strlen(found->text) == length && !memcmp(found->text, text, length)) break;
    if (!found && count < NAMES_MAX && (found = calloc(1, sizeof *found + length + 1))) {
        memcpy(found->text, text, length);
        found->next = device->names;
        device->names = found;
    }
    pthread_mutex_unlock(&device->memory_mutex);
    return found ? found->text : common;
}

rf_status rf_queue_record_begin(struct rf_queue *queue, const char *name) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_record_begin: queue");
    if (!status) status = rf_recording_refuses(queue, "rf_queue_record_begin");
    if (status) return status;
    struct rf_device *device = queue->object.device;
    status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_recording *recording = NULL;
    if (strcmp(rf_options_get(device->runtime->options, "RF_REPLAY"), "off") == 0)
        status = rf_fail(RF_E_UNSUPPORTED,
                         "rf_queue_record_begin: RF_REPLAY=off switches recordings off; submit the work each time");
    else if (!rf_driver_has_graphs(device->driver))
        status = rf_fail(RF_E_UNSUPPORTED, "rf_queue_record_begin: %s cannot record; submit the work each time",
                         device->driver->label);
    else if (!(recording = calloc(1, sizeof *recording)))
        status = rf_fail(RF_E_NO_MEMORY, "rf_queue_record_begin: no host memory");
    if (!status) {
        recording->object.device = device;
        recording->name = keep_name(device, name);
        status = rf_timeline_capture_begin(queue->line, recording, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT));
    }
    if (status) free(recording);
    rf_leave(&entry);
    return status;
}

rf_status rf_recording_refuses(const struct rf_queue *queue, const char *who) {
    const struct rf_recording *recording = rf_timeline_recording(queue->line);
    if (!recording) return RF_OK;
    return rf_fail(RF_E_INVALID,
                   "%s: the queue is recording '%s', and this cannot be recorded; end the recording first", who,
                   recording->name);
}

/* Adds a pointer if it is not in the list yet; *added says whether it was added. */
static rf_status add_once(struct rf_recording_list *list, void *item, bool *added) {
    *added = false;
    for (size_t i = list->count; i; i--) /* the latest entries are the likeliest */
        if (list->items[i - 1] == item) return RF_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        void **grown = realloc(list->items, capacity * sizeof *grown);
        if (!grown) return rf_fail(RF_E_NO_MEMORY, "recording: no host memory");
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    *added = true;
    return RF_OK;
}

rf_status rf_recording_hold_block(struct rf_queue *queue, struct rf_block *block) {
    struct rf_recording *recording = rf_timeline_recording(queue->line);
    bool added = false;
    rf_status status = recording ? add_once(&recording->blocks, block, &added) : RF_OK;
    rf_assert(atomic_load(&block->references) > 0); /* the caller's buffer keeps it meanwhile */
    if (added) atomic_fetch_add(&block->references, 1);
    return status;
}

rf_status rf_recording_hold_pinned(struct rf_queue *queue, struct rf_pinned *pinned) {
    struct rf_recording *recording = rf_timeline_recording(queue->line);
    bool added = false;
    rf_status status = recording ? add_once(&recording->pinned, pinned, &added) : RF_OK;
    rf_assert(atomic_load(&pinned->references) > 0);
    if (added) atomic_fetch_add(&pinned->references, 1);
    return status;
}

rf_status rf_recording_note(struct rf_queue *queue, rf_status status) {
    if (!status || queue->rehearsing) return status;
    struct rf_recording *recording = rf_timeline_recording(queue->line);
    if (!recording || recording->failed) return status;
    recording->failed = status;
    rf_error_save(&recording->failure);
    return status;
}

/* A queue whose stream cannot be used any more gets another one. */
static void renew_stream(struct rf_queue *queue, const char *name) {
    struct rf_device *device = queue->object.device;
    if (!queue->line->unusable || rf_device_is_lost(device)) return;
    if (rf_timeline_replace(&queue->line, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT)))
        rf_device_note(device, RF_LOG_ERROR, "the stream of the failed recording '%s' could not be replaced: %s",
                       name, rf_error_text());
    else
        rf_device_note(device, RF_LOG_WARN, "recording '%s' failed; its queue goes on with another stream", name);
}

rf_status rf_queue_record_end(struct rf_queue *queue, struct rf_recording **out) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_queue_record_end: queue");
    if (status) return status;
    if (!out) return rf_fail(RF_E_INVALID, "rf_queue_record_end: out is NULL");
    struct rf_recording *recording = rf_timeline_recording(queue->line);
    if (!recording) return rf_fail(RF_E_INVALID, "rf_queue_record_end: the queue is not recording");
    struct rf_device *device = queue->object.device;
    status = rf_enter_cleanup(device, &entry); /* a lost device's recording is taken apart too */
    if (status) return status;
    void *graph = NULL;
    status = rf_timeline_capture_end(queue->line, &graph);
    if (recording->failed && !rf_device_is_lost(device)) {
        rf_error_restore(&recording->failure);
        status = rf_fail_within(recording->failed, "recording '%s'", recording->name);
    } else if (!status && !recording->submissions) {
        status = rf_fail(RF_E_INVALID, "recording '%s': nothing was recorded", recording->name);
    }
    if (!status) status = make_executable(queue, recording, graph);
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (graph && !rf_device_is_lost(device))
        rf_device_result(device, device->driver->graph_destroy(graph), "graph_destroy", recording->name);
    if (status) {
        renew_stream(queue, recording->name);
        discard(device, recording);
    }
    rf_error_restore(&saved);
    if (!status) {
        rf_object_init(&recording->object, RF_OBJECT_RECORDING, device);
        *out = recording;
    }
    rf_leave(&entry);
    return status;
}

void rf_recording_cancel(struct rf_queue *queue) {
    struct rf_recording *recording = rf_timeline_recording(queue->line);
    struct rf_device *device = queue->object.device;
    void *graph = NULL;
    if (!recording) return;
    rf_timeline_capture_end(queue->line, &graph);
    if (graph && !rf_device_is_lost(device))
        rf_device_result(device, device->driver->graph_destroy(graph), "graph_destroy", recording->name);
    discard(device, recording);
}

/* ---- what the driver takes for it ---- */

static void charge(struct rf_device *device, uint64_t bytes) {
    device->recording_bytes += bytes;
    rf_driver_charge(device, bytes);
    rf_assert(device->recording_bytes <= device->driver_bytes);
}

static void refund(struct rf_device *device, uint64_t bytes) {
    rf_assert(bytes <= device->recording_bytes);
    device->recording_bytes -= bytes;
    rf_driver_refund(device, bytes);
}

static rf_status instantiate(struct rf_queue *queue, struct rf_recording *recording, void *graph) {
    struct rf_device *device = queue->object.device;
    const struct rf_driver *driver = device->driver;
    struct rf_driver_graph *part = recording->part;
    struct rf_driver_usage before, after;
    /* It is expected to take what the largest recording took so far. */
    rf_status status = rf_driver_make_room(device, device->recording_most_bytes);
    if (status) return rf_fail_within(status, "recording '%s'", recording->name);
    status = rf_driver_usage(device, &before);
    if (status) return status;
    int code = driver->graph_instantiate(&part->executable, graph, 0);
    status = rf_device_result(device, code, "graph_instantiate", recording->name);
    if (status) {
        part->executable = NULL;
        return status;
    }
    /* The upload is made here so that the first run takes no more memory. memory_mutex is held, and therefore the
     * gate is open; a queue that is full of unfinished work goes without the upload. */
    if (driver->graph_upload && !rf_timeline_begin(queue->line, 0)) {
        code = driver->graph_upload(part->executable, queue->line->stream);
        status = rf_timeline_end(queue->line, code, "graph_upload", recording->name, NULL);
    }
    rf_status measured = rf_device_is_lost(device) ? rf_device_lost_status(device) : rf_driver_usage(device, &after);
    if (measured) return status ? status : measured;
    recording->driver_bytes = rf_driver_growth(before, after);
    charge(device, recording->driver_bytes);
    device->recording_most_bytes = RF_MAX(device->recording_most_bytes, recording->driver_bytes);
    if (!status && (status = rf_driver_check_budget(device, recording->driver_bytes, "it")))
        rf_fail_within(status, "recording '%s'", recording->name);
    return status;
}

static rf_status make_executable(struct rf_queue *queue, struct rf_recording *recording, void *graph) {
    struct rf_device *device = queue->object.device;
    recording->part = calloc(1, sizeof *recording->part);
    if (!recording->part) return rf_fail(RF_E_NO_MEMORY, "recording '%s': no host memory", recording->name);
    if (!rf_mutex_lock_until(&device->memory_mutex, rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT)))
        return rf_fail(RF_E_TIMEOUT, "recording '%s': another allocation did not end by the deadline",
                       recording->name);
    rf_status status = instantiate(queue, recording, graph);
    pthread_mutex_unlock(&device->memory_mutex);
    return status;
}

/* ---- running ---- */

rf_status rf_recording_run(struct rf_queue *queue, struct rf_recording *recording) {
    struct rf_entry entry;
    rf_status status = rf_object_check(queue, RF_OBJECT_QUEUE, "rf_recording_run: queue");
    if (!status) status = rf_object_check(recording, RF_OBJECT_RECORDING, "rf_recording_run: recording");
    if (status) return status;
    struct rf_device *device = queue->object.device;
    struct rf_timeline *line = queue->line;
    if (recording->object.device != device)
        return rf_fail(RF_E_INVALID, "rf_recording_run: recording '%s' was made on device %d, the queue is on %d",
                       recording->name, recording->object.device->info.index, device->info.index);
    status = rf_recording_refuses(queue, "rf_recording_run");
    if (status || (status = rf_enter(device, &entry))) return status;
    int64_t deadline = rf_queue_deadline(queue, RF_TIMEOUT_DEFAULT);
    status = rf_timeline_begin(line, deadline);
    if (!status) {
        uint64_t ticket = 0;
        int code = device->driver->graph_launch(recording->part->executable, line->stream);
        status = rf_timeline_end(line, code, "graph_launch", recording->name, &ticket);
        for (size_t i = 0; i < recording->blocks.count && ticket; i++)
            rf_uses_note(&((struct rf_block *)recording->blocks.items[i])->uses, line, ticket);
        for (size_t i = 0; i < recording->pinned.count && ticket; i++)
            rf_uses_note(&((struct rf_pinned *)recording->pinned.items[i])->uses, line, ticket);
    }
    if (!status && (device->checks & RF_CHECK_LAUNCH))
        status = rf_timeline_wait(line, rf_timeline_submitted(line), deadline);
    rf_leave(&entry);
    return status;
}

rf_status rf_recording_get_info(const struct rf_recording *recording, struct rf_recording_info *info) {
    rf_status status = rf_object_check(recording, RF_OBJECT_RECORDING, "rf_recording_get_info: recording");
    if (!status) status = RF_RESULT_CHECK(struct rf_recording_info, info, "rf_recording_get_info");
    if (status) return status;
    struct rf_recording_info filled = {
        .name = recording->name, .submissions = recording->submissions, .driver_bytes = recording->driver_bytes};
    RF_RESULT_WRITE(struct rf_recording_info, info, &filled);
    return RF_OK;
}

/* ---- the end ---- */

/* Destroys one executable graph; the memory that comes back is no longer charged. Called at a quiet moment with
 * memory_mutex held. */
static void destroy_part(struct rf_device *device, struct rf_driver_graph *part) {
    struct rf_driver_usage before, after;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    bool measured = !rf_device_is_lost(device) && rf_driver_usage(device, &before) == RF_OK;
    if (part->executable && !rf_device_is_lost(device)) {
        int code = device->driver->graph_exec_destroy(part->executable);
        if (rf_device_result(device, code, "graph_exec_destroy", NULL)) {
            if (!rf_device_is_lost(device))
                rf_device_note(device, RF_LOG_ERROR, "a recording could not be given back: %s", rf_error_text());
        } else if (measured && rf_driver_usage(device, &after) == RF_OK) {
            /* Graphs share the memory that the driver takes for them: what it took for the first one comes back with
             * the last one. */
            refund(device, RF_MIN(rf_driver_growth(after, before), device->recording_bytes));
        }
    }
    rf_error_restore(&saved);
    free(part);
}

void rf_recordings_free_doomed(struct rf_device *device) {
    rf_assert(atomic_load(&device->gate_closed));
    while (device->doomed_graphs) {
        struct rf_driver_graph *part = device->doomed_graphs;
        device->doomed_graphs = part->next;
        destroy_part(device, part);
    }
}

static void free_lists(struct rf_recording *recording) {
    free(recording->blocks.items);
    free(recording->pinned.items);
    recording->blocks = recording->pinned = (struct rf_recording_list){0};
}

/* Gives back the memory that the recording refers to, and the driver's part as soon as nothing runs. */
static rf_status take_apart(struct rf_device *device, struct rf_recording *recording) {
    rf_status first = RF_OK;
    for (size_t i = 0; i < recording->blocks.count; i++) {
        rf_status status = rf_block_release(device, recording->blocks.items[i]);
        if (!first) first = status;
    }
    for (size_t i = 0; i < recording->pinned.count; i++) rf_pinned_release(device, recording->pinned.items[i]);
    free_lists(recording);
    if (!recording->part) return first;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    pthread_mutex_lock(&device->memory_mutex);
    recording->part->next = device->doomed_graphs;
    device->doomed_graphs = recording->part;
    recording->part = NULL;
    if (!rf_device_is_lost(device) && rf_quiet_enter(device, 0) == RF_OK) {
        rf_recordings_free_doomed(device);
        rf_quiet_leave(device);
    }
    pthread_mutex_unlock(&device->memory_mutex);
    rf_error_restore(&saved);
    return first;
}

/* A recording that never became a handle. */
static rf_status discard(struct rf_device *device, struct rf_recording *recording) {
    rf_status status = take_apart(device, recording);
    free(recording);
    return status;
}

rf_status rf_recording_destroy(struct rf_recording **pointer) {
    struct rf_entry entry;
    if (!pointer || !*pointer) return RF_OK;
    struct rf_recording *recording = *pointer;
    rf_status status = rf_object_check(recording, RF_OBJECT_RECORDING, "rf_recording_destroy: recording");
    if (status) return status;
    struct rf_device *device = recording->object.device;
    *pointer = NULL;
    if (rf_enter_cleanup(device, &entry)) { /* closed: what it held was dealt with then */
        free_lists(recording);
        free(recording->part);
        rf_object_free(&recording->object);
        return RF_OK;
    }
    status = take_apart(device, recording);
    rf_object_free(&recording->object);
    rf_leave(&entry);
    return status;
}

void rf_recordings_close(struct rf_device *device) {
    for (unsigned i = 0; i < device->timeline_count; i++) {
        void *graph = NULL;
        struct rf_recording *recording = rf_timeline_recording(device->timelines[i]);
        if (!recording) continue;
        rf_timeline_capture_end(device->timelines[i], &graph);
        if (graph && !rf_device_is_lost(device))
            rf_device_result(device, device->driver->graph_destroy(graph), "graph_destroy", recording->name);
        free_lists(recording);
        free(recording);
    }
    for (struct rf_object *object = device->objects; object; object = object->next) {
        struct rf_recording *recording = (struct rf_recording *)object;
        if (object->kind != RF_OBJECT_RECORDING || !recording->part) continue;
        rf_device_note(device, RF_LOG_WARN, "leaked: recording '%s' of %llu submissions", recording->name,
                       (unsigned long long)recording->submissions);
        destroy_part(device, recording->part);
        recording->part = NULL;
    }
    rf_recordings_free_doomed(device);
}

void rf_recordings_finish(struct rf_device *device) {
    for (unsigned i = 0; i < device->timeline_count; i++) {
        struct rf_recording *recording = rf_timeline_recording(device->timelines[i]);
        if (!recording) continue;
        free_lists(recording);
        free(recording);
    }
    for (struct rf_object *object = device->objects; object; object = object->next)
        if (object->kind == RF_OBJECT_RECORDING) {
            struct rf_recording *recording = (struct rf_recording *)object;
            free_lists(recording);
            free(recording->part);
        }
    while (device->doomed_graphs) {
        struct rf_driver_graph *part = device->doomed_graphs;
        device->doomed_graphs = part->next;
        free(part);
    }
    while (device->names) {
        struct rf_device_name *name = device->names;
        device->names = name->next;
        free(name);
    }
}
