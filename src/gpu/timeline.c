/* Timelines: streams with tickets, so that the layer knows what is finished without ever
 * asking the driver to wait.
 *
 * Invariants (rf_timeline_is_valid checks 1 and 2 after each change; rf_quiet_leave checks what follows from 3):
 *   1. completed <= submitted; tickets in (completed, submitted] are unfinished as far as is known
 *   2. marks are in ticket order; a mark's event was recorded when 'submitted' was its ticket
 *   3. a submission happens with the timeline locked and the gate seen open under that lock;
 *      so once the gate is closed and each timeline was locked once, nothing new can start
 *   4. no driver call here waits: event_query, event_record and event_create do not; a stream is destroyed only when
 *      its work is complete (HIP's destroy waits for it). Whether a driver's call waits cannot be seen from here: if
 *      one did, the tests of stuck work (tests/gpu/test_stuck.c) would hang */
#include "gpu/device_impl.h"

#include <stdlib.h>

static rf_status gate_wait(struct rf_device *device, int64_t deadline_ns);
static rf_status record_mark(struct rf_timeline *line);
static rf_status look(struct rf_timeline *line, uint64_t ticket);
static const char *oldest_name(const struct rf_timeline *line);
static uint64_t recall_habit(struct rf_timeline *line, uint64_t ticket, int64_t *expected_ns);
static void keep_habit(struct rf_timeline *line, uint64_t signature, int64_t took_ns);

/* ---- submitting ---- */

rf_status rf_timeline_begin(struct rf_timeline *line, int64_t deadline_ns) {
    struct rf_device *device = line->device;
    for (;;) {
        if (rf_device_is_lost(device)) return rf_device_lost_status(device);
        if (!rf_mutex_lock_until(&line->mutex, deadline_ns))
            return rf_fail(RF_E_TIMEOUT, "queue: another thread kept it until the deadline");
        if (line->unusable) {
            pthread_mutex_unlock(&line->mutex);
            return rf_fail(RF_E_DRIVER,
                           "queue: its last recording failed, and the driver keeps its stream; make another queue");
        }
        if (atomic_load(&device->gate_closed)) {
            pthread_mutex_unlock(&line->mutex);
            rf_status status = gate_wait(device, deadline_ns);
            if (status) return status;
            continue;
        }
        uint64_t unfinished = line->submitted - atomic_load(&line->completed);
        if (unfinished < RF_IN_FLIGHT_MAX || rf_timeline_recording(line)) return RF_OK;
        /* The timeline is full: once a driver's own queue is full, the driver would block without a deadline. */
        uint64_t wanted = line->submitted - RF_IN_FLIGHT_MAX + 1;
        pthread_mutex_unlock(&line->mutex);
        rf_status status = rf_timeline_wait(line, wanted, deadline_ns);
        if (status) return status;
    }
}

rf_status rf_timeline_end(struct rf_timeline *line, int code, const char *call, const char *name, uint64_t *ticket) {
    struct rf_device *device = line->device;
    rf_status status = RF_OK;
    struct rf_recording *recording = rf_timeline_recording(line);
    if (recording) {
        status = rf_device_result(device, code, call, name);
        if (!status) recording->submissions++;
    } else if (code == RF_DRV_OK) {
        line->submitted++;
        line->names[line->submitted % RF_IN_FLIGHT_MAX] = name;
        rf_timeline_sign(line, (uint64_t)(uintptr_t)name);
        if (ticket) *ticket = line->submitted;
        /* A mark costs a driver call. Marks are dense after the last submission known to be complete, where a wait is
         * likely to look; after that there is one for every few submissions. */
        uint64_t newest = line->mark_count
                              ? line->marks[(line->mark_first + line->mark_count - 1) % RF_MARKS_MAX].ticket
                              : atomic_load(&line->completed);
        uint64_t distance = (line->submitted - atomic_load(&line->completed)) / 4;
        if (line->submitted - newest >= RF_MAX(RF_MIN(distance, (uint64_t)RF_MARK_EVERY), (uint64_t)1)) {
            /* The submission itself succeeded. A failure of the mark shows at the wait, which records a new one if
             * necessary. */
            struct rf_saved_error saved;
            rf_error_save(&saved);
            if (record_mark(line)) rf_error_restore(&saved);
        }
    } else {
        /* A fatal code from a submission is the fault of earlier work, if there is any. */
        bool earlier = line->submitted > atomic_load(&line->completed);
        status = rf_device_result(device, code, call, earlier && rf_driver_is_fatal(code) ? oldest_name(line) : name);
    }
    rf_assert_valid(rf_timeline_is_valid, line);
    pthread_mutex_unlock(&line->mutex);
    return status;
}

/* Whether a look at the timeline needs no further mark (invariant 1 of recording.c). */
RF_FOR_CHECKS bool everything_is_marked(const struct rf_timeline *line) {
    return atomic_load(&line->completed) == line->submitted ||
           (line->mark_count &&
            line->marks[(line->mark_first + line->mark_count - 1) % RF_MARKS_MAX].ticket == line->submitted);
}

rf_status rf_timeline_capture_begin(struct rf_timeline *line, struct rf_recording *recording, int64_t deadline_ns) {
    struct rf_device *device = line->device;
    rf_status status = rf_timeline_begin(line, deadline_ns);
    if (status) return status;
    if (!rf_timeline_passed(line, line->submitted)) status = record_mark(line);
    if (!status) {
        int code = device->driver->capture_begin(line->stream, RF_CAPTURE_RELAXED);
        bool earlier = line->submitted > atomic_load(&line->completed);
        status = rf_device_result(device, code, "capture_begin",
                                  earlier && rf_driver_is_fatal(code) ? oldest_name(line) : NULL);
    }
    if (!status) {
        rf_assert(everything_is_marked(line));
        atomic_store(&line->recording, recording);
    }
    pthread_mutex_unlock(&line->mutex);
    return status;
}

/* A capture is ended once, whatever the driver answers: HIP before 7.14 keeps a capture that failed on its stream,
 * refuses everything that is submitted to it from then on, and crashes if the capture is ended again. */
rf_status rf_timeline_capture_end(struct rf_timeline *line, void **graph) {
    struct rf_device *device = line->device;
    const struct rf_driver *driver = device->driver;
    rf_status status = RF_OK;
    pthread_mutex_lock(&line->mutex);
    const char *name = rf_timeline_recording(line)->name;
    atomic_store(&line->recording, NULL);
    if (!rf_device_is_lost(device))
        status = rf_device_result(device, driver->capture_end(line->stream, graph), "capture_end", name);
    if (status) *graph = NULL; /* HIP may have put anything there */
    if (status && !rf_device_is_lost(device)) {
        int capturing = 1;
        line->unusable =
            !driver->is_capturing || driver->is_capturing(line->stream, &capturing) != RF_DRV_OK || capturing;
    }
    if (rf_device_is_lost(device)) status = rf_device_lost_status(device);
    pthread_mutex_unlock(&line->mutex);
    return status;
}

rf_status rf_timeline_replace(struct rf_timeline **pointer, int64_t deadline_ns) {
    struct rf_timeline *old = *pointer, *line = NULL;
    struct rf_device *device = old->device;
    rf_status status = rf_timeline_open(device, old->priority == device->priority_high, &line);
    if (status) return status;
    /* The event stays: nothing is submitted to the old timeline any more, so it is not recorded again, and it is not
     * destroyed while the timeline is in use. (Two timelines are never locked at once.) */
    pthread_mutex_lock(&old->mutex);
    rf_assert(everything_is_marked(old));
    unsigned last = (old->mark_first + old->mark_count - 1) % RF_MARKS_MAX;
    void *event = old->mark_count ? old->marks[last].event : NULL;
    pthread_mutex_unlock(&old->mutex);
    if (event && !(status = rf_timeline_begin(line, deadline_ns))) {
        int code = device->driver->stream_wait_event(line->stream, event, 0);
        status = rf_timeline_end(line, code, "stream_wait_event", "wait for the work before a recording", NULL);
    }
    if (status) {
        rf_timeline_release(line);
        return status;
    }
    *pointer = line;
    rf_timeline_release(old);
    return RF_OK;
}

uint64_t rf_timeline_submitted(struct rf_timeline *line) {
    pthread_mutex_lock(&line->mutex);
    uint64_t submitted = line->submitted;
    pthread_mutex_unlock(&line->mutex);
    return submitted;
}

/* ---- looking and waiting ---- */

rf_status rf_timeline_poll(struct rf_timeline *line, uint64_t ticket, bool *done) {
    if (rf_device_is_lost(line->device)) return rf_device_lost_status(line->device);
    rf_status status = RF_OK;
    if (!rf_timeline_passed(line, ticket)) {
        pthread_mutex_lock(&line->mutex);
        rf_assert(ticket <= line->submitted);
        status = look(line, ticket);
        rf_assert_valid(rf_timeline_is_valid, line);
        pthread_mutex_unlock(&line->mutex);
    }
    if (!status) *done = rf_timeline_passed(line, ticket);
    return status;
}

rf_status rf_timeline_wait(struct rf_timeline *line, uint64_t ticket, int64_t deadline_ns) {
    struct rf_backoff backoff;
    rf_status status;
    bool done = false;
    uint64_t signature = 0;
    rf_backoff_begin(&backoff);
    if (!rf_timeline_passed(line, ticket)) signature = recall_habit(line, ticket, &backoff.expected_ns);
    while ((status = rf_timeline_poll(line, ticket, &done)) == RF_OK && !done)
        if (!rf_backoff_step(&backoff, deadline_ns)) {
            pthread_mutex_lock(&line->mutex);
            look(line, line->submitted);
            uint64_t first = atomic_load(&line->completed) + 1;
            status = rf_fail(RF_E_TIMEOUT,
                             "not finished after %.3f s: '%s' (the oldest of %llu unfinished); wait again, raise "
                             "RF_TIMEOUT_MS, or close the device",
                             (double)(rf_now_ns() - backoff.started_ns) * 1e-9, oldest_name(line),
                             (unsigned long long)(line->submitted + 1 - first));
            pthread_mutex_unlock(&line->mutex);
            break;
        }
    rf_backoff_end(&backoff);
    /* The work was done when that sleep ended. It may have ended earlier, so the next sleep is shorter. */
    int64_t took = rf_now_ns() - backoff.started_ns;
    if (!status && signature) keep_habit(line, signature, backoff.long_sleep ? took - took / 8 : took);
    return status;
}

/* If this is a wait for all work, gives the shortest time that waits for the same work took. Returns the signature of
 * the work, or 0 if it is not a wait for all work, and begins a new signature. */
static uint64_t recall_habit(struct rf_timeline *line, uint64_t ticket, int64_t *expected_ns) {
    pthread_mutex_lock(&line->mutex);
    uint64_t signature = ticket == line->submitted ? line->signature : 0;
    if (signature) {
        line->signature = 0;
        unsigned place = (unsigned)(signature % RF_HABITS);
        int64_t shortest = line->habits[place].signature == signature ? INT64_MAX : 0;
        for (unsigned i = 0; i < RF_HABIT_DEPTH; i++) shortest = RF_MIN(shortest, line->habits[place].took_ns[i]);
        *expected_ns = shortest;
    }
    pthread_mutex_unlock(&line->mutex);
    return signature;
}

static void keep_habit(struct rf_timeline *line, uint64_t signature, int64_t took_ns) {
    unsigned place = (unsigned)(signature % RF_HABITS);
    pthread_mutex_lock(&line->mutex);
    if (line->habits[place].signature != signature) {
        memset(&line->habits[place], 0, sizeof line->habits[place]);
        line->habits[place].signature = signature;
        /* The time is used from the second wait on: until then the empty places are zeros. */
        line->habits[place].took_ns[0] = took_ns;
    } else {
        bool second = line->habits[place].next == 0;
        for (unsigned i = 0; second && i < RF_HABIT_DEPTH; i++) line->habits[place].took_ns[i] = took_ns;
        line->habits[place].took_ns[line->habits[place].next++ % RF_HABIT_DEPTH] = took_ns;
    }
    pthread_mutex_unlock(&line->mutex);
}

static const char *oldest_name(const struct rf_timeline *line) {
    const char *name = line->names[(atomic_load(&line->completed) + 1) % RF_IN_FLIGHT_MAX];
    return name ? name : "nothing";
}

/* Records an event behind all that was submitted so far. */
static rf_status record_mark(struct rf_timeline *line) {
    struct rf_device *device = line->device;
    const struct rf_driver *driver = device->driver;
    unsigned last = (line->mark_first + line->mark_count - 1) % RF_MARKS_MAX;
    if (line->mark_count && line->marks[last].ticket == line->submitted) return RF_OK;
    if (line->mark_count < RF_MARKS_MAX) {
        void *event = NULL;
        if (line->spare_count) {
            event = line->spare_events[--line->spare_count];
        } else {
            int code = driver->event_create(&event, RF_EVENT_DISABLE_TIMING);
            rf_status status = rf_device_result(device, code, "event_create", oldest_name(line));
            if (status) return status;
        }
        last = (line->mark_first + line->mark_count++) % RF_MARKS_MAX;
        line->marks[last].event = event;
        line->marks[last].ticket = line->submitted;
    } /* else the newest mark moves forward: that is coarser but still right */
    int code = driver->event_record(line->marks[last].event, line->stream);
    if (code == RF_DRV_OK) {
        line->marks[last].ticket = line->submitted;
        return RF_OK;
    }
    line->spare_events[line->spare_count++] = line->marks[last].event;
    line->mark_count--;
    return rf_device_result(device, code, "event_record", oldest_name(line));
}

static void retire_marks(struct rf_timeline *line, unsigned count) {
    for (; count; count--) {
        line->spare_events[line->spare_count++] = line->marks[line->mark_first].event;
        atomic_store_explicit(&line->completed, line->marks[line->mark_first].ticket, memory_order_release);
        line->mark_first = (line->mark_first + 1) % RF_MARKS_MAX;
        line->mark_count--;
    }
}

/* Asks the driver whether 'ticket' is done and moves 'completed'. If it is, one query covers all marks up to it; if
 * not, there is time to query mark by mark, so that a fault or a time-out is attributed to the oldest unfinished work
 * as exactly as the marks allow. */
static rf_status look(struct rf_timeline *line, uint64_t ticket) {
    struct rf_device *device = line->device;
    if (rf_device_is_lost(device)) return rf_device_lost_status(device);
    if (rf_timeline_passed(line, ticket)) return RF_OK;
    unsigned before = 0; /* marks that do not cover the ticket */
    while (before < line->mark_count && line->marks[(line->mark_first + before) % RF_MARKS_MAX].ticket < ticket)
        before++;
    if (before == line->mark_count) {
        rf_status status = record_mark(line);
        if (status) return status;
        before = line->mark_count - 1;
    }
    int code = device->driver->event_query(line->marks[(line->mark_first + before) % RF_MARKS_MAX].event);
    if (code == RF_DRV_OK) {
        retire_marks(line, before + 1);
        return RF_OK;
    }
    for (; code == RF_DRV_NOT_READY && before; before--) {
        int earlier = device->driver->event_query(line->marks[line->mark_first].event);
        if (earlier == RF_DRV_OK)
            retire_marks(line, 1);
        else
            code = earlier == RF_DRV_NOT_READY ? RF_DRV_OK : earlier;
    }
    if (code == RF_DRV_OK || code == RF_DRV_NOT_READY) return RF_OK;
    return rf_device_result(device, code, "event_query", oldest_name(line));
}

/* ---- slots ---- */

rf_status rf_timeline_open(struct rf_device *device, bool high_priority, struct rf_timeline **out) {
    rf_status status = RF_OK;
    pthread_mutex_lock(&device->timelines_mutex);
    rf_timelines_reap(device);
    struct rf_timeline *line = NULL;
    for (unsigned i = 0; i < device->timeline_count && !line; i++)
        if (!device->timelines[i]->stream) line = device->timelines[i];
    if (!line) {
        if (device->timeline_count == RF_TIMELINES_MAX) {
            status = rf_fail(RF_E_BUSY, "queue: %d queues exist already; destroy some", RF_TIMELINES_MAX);
            goto out;
        }
        line = calloc(1, sizeof *line);
        if (!line) {
            status = rf_fail(RF_E_NO_MEMORY, "queue: no host memory");
            goto out;
        }
        line->device = device;
        pthread_mutex_init(&line->mutex, NULL);
        device->timelines[device->timeline_count++] = line;
    }
    void *stream = NULL;
    int priority = high_priority ? device->priority_high : device->priority_low;
    status = rf_device_result(device, device->driver->stream_create(&stream, RF_STREAM_NON_BLOCKING, priority),
                              "stream_create", NULL);
    if (status) goto out;
    pthread_mutex_lock(&line->mutex);
    line->stream = stream;
    line->priority = priority;
    line->in_use = true;
    line->unusable = false;
    pthread_mutex_unlock(&line->mutex);
    *out = line;
out:
    pthread_mutex_unlock(&device->timelines_mutex);
    return status;
}

void rf_timeline_release(struct rf_timeline *line) {
    struct rf_device *device = line->device;
    pthread_mutex_lock(&device->timelines_mutex);
    pthread_mutex_lock(&line->mutex);
    line->in_use = false;
    pthread_mutex_unlock(&line->mutex);
    if (!rf_device_is_lost(device)) rf_timelines_reap(device);
    pthread_mutex_unlock(&device->timelines_mutex);
}

void rf_timelines_reap(struct rf_device *device) {
    for (unsigned i = 0; i < device->timeline_count && !rf_device_is_lost(device); i++) {
        struct rf_timeline *line = device->timelines[i];
        pthread_mutex_lock(&line->mutex);
        if (line->stream && !line->in_use && !look(line, line->submitted) &&
            rf_timeline_passed(line, line->submitted)) {
            rf_assert(!line->mark_count);
            rf_device_result(device, device->driver->stream_destroy(line->stream), "stream_destroy", NULL);
            line->stream = NULL;
        }
        pthread_mutex_unlock(&line->mutex);
    }
}

/* ---- the gate ---- */

static rf_status gate_wait(struct rf_device *device, int64_t deadline_ns) {
    struct rf_backoff backoff;
    rf_status status = RF_OK;
    rf_backoff_begin(&backoff);
    while (atomic_load(&device->gate_closed))
        if (!rf_backoff_step(&backoff, deadline_ns)) {
            status = rf_fail(RF_E_TIMEOUT, "queue: memory was being given back until the deadline; try again");
            break;
        }
    rf_backoff_end(&backoff);
    return status;
}

/* One look at every timeline: RF_OK when all are done, RF_E_BUSY with the first that is not. */
static rf_status all_done(struct rf_device *device, struct rf_timeline **busy, uint64_t *ticket) {
    for (unsigned i = 0; i < device->timeline_count; i++) {
        struct rf_timeline *line = device->timelines[i];
        pthread_mutex_lock(&line->mutex);
        uint64_t submitted = line->submitted;
        rf_status status = line->stream ? look(line, submitted) : RF_OK;
        pthread_mutex_unlock(&line->mutex);
        if (status) return status;
        if (!rf_timeline_passed(line, submitted)) {
            *busy = line;
            *ticket = submitted;
            return RF_E_BUSY;
        }
    }
    return RF_OK;
}

#if RF_CHECKS >= 2
/* Checks what a closed gate must mean: no timeline has unfinished work, and none gets any. */
static bool nothing_is_unfinished(struct rf_device *device, const char **why) {
    bool none = true;
    for (unsigned i = 0; i < device->timeline_count; i++) {
        struct rf_timeline *line = device->timelines[i];
        pthread_mutex_lock(&line->mutex);
        none = none && (!line->stream || rf_timeline_passed(line, line->submitted));
        pthread_mutex_unlock(&line->mutex);
    }
    RF_INVALID_UNLESS(none, "a queue has unfinished work behind the closed gate");
    return true;
}
#endif

static rf_status quiet_enter(struct rf_device *device, int64_t hold_ns, int64_t deadline_ns) {
    struct rf_timeline *busy = NULL;
    uint64_t ticket = 0;
    if (rf_device_is_lost(device)) return rf_device_lost_status(device);
    if (!rf_mutex_lock_until(&device->timelines_mutex, deadline_ns))
        return rf_fail(RF_E_BUSY, "another thread kept the queues until the deadline");
    atomic_store(&device->gate_closed, true);
    int64_t hold_until = RF_MIN(deadline_ns, rf_now_ns() + hold_ns);
    rf_status status = all_done(device, &busy, &ticket);
    while (status == RF_E_BUSY && rf_now_ns() < hold_until) {
        status = rf_timeline_wait(busy, ticket, hold_until);
        if (status == RF_E_TIMEOUT) status = RF_E_BUSY;
        if (!status) status = all_done(device, &busy, &ticket);
    }
    if (!status) { /* timelines_mutex stays locked, and the gate stays closed */
        rf_assert_valid(nothing_is_unfinished, device);
        return RF_OK;
    }
    if (status == RF_E_BUSY) {
        pthread_mutex_lock(&busy->mutex);
        rf_fail(RF_E_BUSY, "'%s' is still running", oldest_name(busy));
        pthread_mutex_unlock(&busy->mutex);
    }
    rf_quiet_leave(device);
    return status;
}

rf_status rf_quiet_enter(struct rf_device *device, int64_t deadline_ns) {
    return quiet_enter(device, RF_GATE_HOLD_NS, deadline_ns);
}

rf_status rf_quiet_enter_with_memory(struct rf_device *device, int64_t hold_ns, int64_t deadline_ns) {
    for (;;) {
        rf_status status = rf_timelines_drain(device, deadline_ns);
        if (status) return status;
        pthread_mutex_lock(&device->memory_mutex);
        status = quiet_enter(device, hold_ns, deadline_ns);
        if (!status) return RF_OK;
        pthread_mutex_unlock(&device->memory_mutex);
        if (status != RF_E_BUSY || rf_now_ns() >= deadline_ns) return status;
    }
}

bool rf_timelines_idle(struct rf_device *device) {
    struct rf_timeline *busy;
    uint64_t ticket;
    pthread_mutex_lock(&device->timelines_mutex);
    bool idle = all_done(device, &busy, &ticket) == RF_OK;
    pthread_mutex_unlock(&device->timelines_mutex);
    return idle;
}

rf_status rf_timelines_drain(struct rf_device *device, int64_t deadline_ns) {
    pthread_mutex_lock(&device->timelines_mutex);
    unsigned count = device->timeline_count;
    pthread_mutex_unlock(&device->timelines_mutex);
    for (unsigned i = 0; i < count; i++) { /* slots are never removed */
        struct rf_timeline *line = device->timelines[i];
        pthread_mutex_lock(&line->mutex);
        uint64_t ticket = line->stream ? line->submitted : 0;
        pthread_mutex_unlock(&line->mutex);
        rf_status status = rf_timeline_wait(line, ticket, deadline_ns);
        if (status) return status;
    }
    return RF_OK;
}

void rf_quiet_leave(struct rf_device *device) {
    rf_assert(atomic_load(&device->gate_closed));
    atomic_store(&device->gate_closed, false);
    pthread_mutex_unlock(&device->timelines_mutex);
}

/* ---- the invariants ---- */

#if RF_CHECKS >= 2
bool rf_timeline_is_valid(struct rf_timeline *line, const char **why) {
    uint64_t completed = atomic_load(&line->completed), before = completed;
    RF_INVALID_UNLESS(completed <= line->submitted, "more is completed than was submitted");
    RF_INVALID_UNLESS(line->submitted - completed <= RF_IN_FLIGHT_MAX, "more is unfinished than names are kept of");
    RF_INVALID_UNLESS(line->mark_first < RF_MARKS_MAX && line->mark_count <= RF_MARKS_MAX &&
                          line->spare_count <= RF_MARKS_MAX - line->mark_count,
                      "there are more marks and spare events than places");
    RF_INVALID_UNLESS(line->stream || (!line->in_use && !line->mark_count), "a free slot is in use or has marks");
    for (unsigned i = 0; i < line->mark_count; i++) {
        unsigned at = (line->mark_first + i) % RF_MARKS_MAX;
        RF_INVALID_UNLESS(line->marks[at].ticket > before, "marks are not in ticket order behind what is completed");
        RF_INVALID_UNLESS(line->marks[at].event, "a mark has no event");
        before = line->marks[at].ticket;
        for (unsigned k = 0; k < line->spare_count; k++)
            RF_INVALID_UNLESS(line->spare_events[k] != line->marks[at].event, "a mark's event is spare as well");
    }
    RF_INVALID_UNLESS(before <= line->submitted, "a mark is of a ticket that was not handed out");
    return true;
}
#endif
