/* Streams and events: queues of work, each done in order by a thread of its own.
 *
 * A stream's thread starts with its first work and ends when the stream is destroyed and its work is done. It is
 * detached: a process may exit, or the driver hang, with work left. Submitting does not wait, except where a real
 * driver does: a launch when very many are pending, and a copy to pageable memory. */
#include "sim/sim.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void *worker(void *argument);
static void release_stream(struct sim_stream *stream);
static void release_event(struct sim_event *event);

/* ---- work ---- */

struct sim_work *sim_work_create(enum sim_work_kind kind, size_t extra_bytes) {
    struct sim_work *work = calloc(1, sizeof *work + extra_bytes);
    if (work) work->kind = kind;
    return work;
}

void sim_work_destroy(struct sim_work *work) {
    if (work->kind == SIM_WORK_COPY) free(work->copy.staging);
    free(work);
}

/* Releases what the work refers to; the lock is held. */
static void unreference(struct sim_work *work) {
    if (work->kind == SIM_WORK_RECORD || work->kind == SIM_WORK_WAIT)
        release_event(work->event.event);
    else if (work->kind == SIM_WORK_GRAPH)
        sim_graph_release(work->graph);
    else if (work->kind == SIM_WORK_JOIN)
        release_stream(work->join.stream);
}

static bool start_worker(struct sim_stream *stream) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals for the process are blocked in the driver's threads; their own faults are not. */
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->refs++;
    stream->has_worker = pthread_create(&thread, &attributes, worker, stream) == 0;
    if (!stream->has_worker) stream->refs--;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return stream->has_worker;
}

static bool is_launch(const struct sim_work *work) {
    return work->kind == SIM_WORK_LAUNCH || work->kind == SIM_WORK_GRAPH;
}

static void append(struct sim_stream *stream, struct sim_work *work) {
    sim_order_give(work);
    if (stream->tail)
        stream->tail->next = work;
    else
        stream->head = work;
    stream->tail = work;
    stream->submitted++;
    if (is_launch(work)) stream->launches_pending++;
    sim_wake(&stream->wake);
}

/* The default stream waits for every stream that is not non-blocking, and they for it. */
static void append_legacy_order(struct sim_stream *stream) {
    struct sim_device *device = stream->device;
    if (stream->non_blocking || !device->default_stream) return;
    for (struct sim_stream *other = device->streams; other; other = other->next) {
        bool ordered = stream == device->default_stream ? !other->non_blocking : other == device->default_stream;
        if (other == stream || !ordered || other->completed == other->submitted) continue;
        struct sim_work *join = sim_work_create(SIM_WORK_JOIN, 0);
        if (!join) continue;
        join->join.stream = other;
        join->join.until = other->submitted;
        other->refs++;
        append(stream, join);
    }
}

int sim_submit(struct sim_stream *stream, struct sim_work *work, bool wait) {
    struct sim_device *device = stream->device;
    int code = SIM_OK;
    work->fault = sim_take_work_fault();
    sim_lock(&sim.lock);
    if (stream->capture) {
        code = sim_capture_keep(stream, work);
        if (code) unreference(work);
        sim_unlock(&sim.lock);
        if (code) sim_work_destroy(work);
        return code;
    }
    if (is_launch(work))
        while (stream->launches_pending >= sim.config.pending_limit && !atomic_load(&device->lost))
            sim_wait(&stream->progress, &sim.lock, -1);
    code = atomic_load(&device->lost);
    if (!code && stream == device->default_stream) code = sim_capture_refuses_default(device);
    if (!code && !stream->has_worker && !start_worker(stream)) code = SIM_OUT_OF_MEMORY;
    if (code) {
        unreference(work);
        sim_unlock(&sim.lock);
        sim_work_destroy(work);
        return code;
    }
    rf_assert(!stream->capture && !atomic_load(&device->lost));
    append_legacy_order(stream);
    append(stream, work);
    if (wait) {
        uint64_t until = stream->submitted;
        stream->refs++;
        while (stream->completed < until && !atomic_load(&device->lost)) sim_wait(&stream->progress, &sim.lock, -1);
        code = atomic_load(&device->lost);
        sim_order_take(stream);
        release_stream(stream);
    }
    sim_unlock(&sim.lock);
    return code;
}

/* ---- doing it ---- */

static void count_done(const struct sim_work *work);

static uint64_t block_count(const struct sim_launch *launch) {
    return (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
}

static int perform(struct sim_stream *stream, struct sim_work *work, struct sim_executor **executor) {
    struct sim_device *device = stream->device;
    if (work->fault.kind == SIM_FAULT_CODE || work->fault.kind == SIM_FAULT_LOSS) return work->fault.code;
    if (work->fault.kind != SIM_FAULT_NONE) sim_play(&work->fault);
    switch (work->kind) {
    case SIM_WORK_COPY: memmove(work->copy.to, work->copy.from, work->copy.bytes); return SIM_OK;
    case SIM_WORK_FILL: memset(work->fill.to, work->fill.value, work->fill.bytes); return SIM_OK;
    case SIM_WORK_LAUNCH:
        if (!*executor) *executor = sim_executor_create(device, stream->serial);
        stream->paced_ns += device->config->pace_ns * block_count(&work->launch);
        return *executor ? sim_execute(*executor, &work->launch) : SIM_LAUNCH_FAILURE;
    case SIM_WORK_RECORD: {
        struct sim_event *event = work->event.event;
        sim_order_give(event);
        sim_lock(&sim.lock);
        if (work->event.generation > event->done) {
            event->done = work->event.generation;
            event->time_ns = device->config->pace_ns ? (int64_t)stream->paced_ns : sim_now_ns();
        }
        sim_wake(&event->signal);
        sim_unlock(&sim.lock);
        return SIM_OK;
    }
    case SIM_WORK_WAIT: {
        struct sim_event *event = work->event.event;
        sim_lock(&sim.lock);
        while (event->done < work->event.generation && !atomic_load(&device->lost) &&
               !atomic_load(&event->device->lost))
            sim_wait(&event->signal, &sim.lock, sim_now_ns() + 100000000); /* losing a device does not wake events */
        sim_unlock(&sim.lock);
        sim_order_take(event);
        return SIM_OK;
    }
    case SIM_WORK_JOIN: {
        struct sim_stream *other = work->join.stream;
        sim_lock(&sim.lock);
        while (other->completed < work->join.until && !atomic_load(&device->lost))
            sim_wait(&other->progress, &sim.lock, -1);
        sim_unlock(&sim.lock);
        sim_order_take(other);
        return SIM_OK;
    }
    case SIM_WORK_GRAPH:
        for (struct sim_work *node = sim_graph_nodes(work->graph); node; node = node->next) {
            if (atomic_load(&device->lost)) return SIM_OK;
            int code = perform(stream, node, executor);
            if (code) return code;
            sim_lock(&sim.lock);
            count_done(node);
            sim_unlock(&sim.lock);
        }
        return SIM_OK;
    }
    return SIM_OK;
}

static void count_done(const struct sim_work *work) {
    if (work->kind == SIM_WORK_COPY)
        sim.stats.copied_bytes += work->copy.bytes;
    else if (work->kind == SIM_WORK_FILL)
        sim.stats.copied_bytes += work->fill.bytes;
    else if (work->kind == SIM_WORK_LAUNCH) {
        sim.stats.launches++;
        sim.stats.blocks += block_count(&work->launch);
    }
}

static void *worker(void *argument) {
    fesetenv(FE_DFL_ENV); /* a GPU computes the same whatever mode the calling thread has */
    struct sim_stream *stream = argument;
    struct sim_device *device = stream->device;
    struct sim_executor *executor = NULL;
    /* Threads are named, as drivers do, so that whoever lists the threads of a process can tell them apart. */
    pthread_setname_np(pthread_self(), "rfsim-stream");
    sim_lock(&sim.lock);
    for (;;) {
        while (!stream->head && !stream->ending) sim_wait(&stream->wake, &sim.lock, -1);
        struct sim_work *work = stream->head;
        if (!work) break;
        uint64_t delay_ns = sim.config.delay_max_ns ? sim_random(&stream->delay_state) % sim.config.delay_max_ns : 0;
        sim_unlock(&sim.lock);

        int code = SIM_OK;
        sim_order_take(work);
        if (!atomic_load(&device->lost)) {
            if (delay_ns) sim_sleep_ns((int64_t)delay_ns);
            code = perform(stream, work, &executor);
        }
        sim_order_give(stream);
        sim_order_give(device);

        sim_lock(&sim.lock);
        if (code)
            sim_lose(device, code);
        else
            count_done(work);
        rf_assert(stream->head == work && stream->completed < stream->submitted);
        stream->head = work->next;
        if (!stream->head) stream->tail = NULL;
        stream->completed++;
        if (is_launch(work)) stream->launches_pending--;
        unreference(work);
        sim_wake(&stream->progress);
        sim_unlock(&sim.lock);
        sim_work_destroy(work);
        sim_lock(&sim.lock);
    }
    for (struct sim_stream **link = &device->streams; *link; link = &(*link)->next)
        if (*link == stream) {
            *link = stream->next;
            sim.stats.streams--;
            break;
        }
    release_stream(stream);
    sim_unlock(&sim.lock);
    if (executor) sim_executor_destroy(executor);
    return NULL;
}

int sim_drain(struct sim_device *device) {
    sim_lock(&sim.lock);
    /* Work that others submit during the wait is not waited for. */
    struct sim_stream *stream = device->streams;
    size_t count = 0, i = 0;
    for (struct sim_stream *s = stream; s; s = s->next) count++;
    struct {
        struct sim_stream *stream;
        uint64_t until;
    } *waits = calloc(count ? count : 1, sizeof *waits);
    for (; waits && stream; stream = stream->next, i++) {
        waits[i].stream = stream;
        waits[i].until = stream->submitted;
        stream->refs++;
    }
    for (i = 0; waits && i < count; i++) {
        while (waits[i].stream->completed < waits[i].until && !atomic_load(&device->lost))
            sim_wait(&waits[i].stream->progress, &sim.lock, -1);
        release_stream(waits[i].stream);
    }
    int code = waits ? atomic_load(&device->lost) : SIM_OUT_OF_MEMORY;
    sim_unlock(&sim.lock);
    sim_order_take(device);
    free(waits);
    return code;
}

/* ---- handles: the dead stay recognisable for a while ---- */

#define QUARANTINE 1024

static struct sim_stream *dead_streams, **dead_streams_end = &dead_streams;
static struct sim_event *dead_events, **dead_events_end = &dead_events;
static struct sim_event *live_events;
static size_t dead_stream_count, dead_event_count;

static void release_stream(struct sim_stream *stream) {
    if (--stream->refs) return;
    stream->next_dead = NULL;
    *dead_streams_end = stream;
    dead_streams_end = &stream->next_dead;
    if (++dead_stream_count > QUARANTINE) {
        struct sim_stream *oldest = dead_streams;
        dead_streams = oldest->next_dead;
        dead_stream_count--;
        free(oldest);
    }
}

static void release_event(struct sim_event *event) {
    if (--event->refs) return;
    if (event->previous)
        event->previous->next = event->next;
    else
        live_events = event->next;
    if (event->next) event->next->previous = event->previous;
    event->next_dead = NULL;
    *dead_events_end = event;
    dead_events_end = &event->next_dead;
    if (++dead_event_count > QUARANTINE) {
        struct sim_event *oldest = dead_events;
        dead_events = oldest->next_dead;
        dead_event_count--;
        free(oldest);
    }
}

static struct sim_stream *make_stream(struct sim_device *device, bool non_blocking) { /* the lock is held */
    struct sim_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    stream->magic = SIM_STREAM_MAGIC;
    stream->refs = 1;
    stream->device = device;
    stream->non_blocking = non_blocking;
    stream->serial = sim.stream_serial++;
    stream->delay_state = sim.config.delay_seed + stream->serial * UINT64_C(0x9e3779b97f4a7c15);
    stream->next = device->streams;
    device->streams = stream;
    sim.stats.streams++;
    return stream;
}

struct sim_stream *sim_stream_of(hipStream_t handle) {
    struct sim_stream *stream = (struct sim_stream *)handle;
    if (stream) return stream->magic == SIM_STREAM_MAGIC ? stream : NULL;
    struct sim_device *device = sim_current();
    sim_lock(&sim.lock);
    if (!device->default_stream) device->default_stream = make_stream(device, false);
    stream = device->default_stream;
    sim_unlock(&sim.lock);
    return stream;
}

static struct sim_event *event_of(hipEvent_t handle) {
    struct sim_event *event = (struct sim_event *)handle;
    return event && event->magic == SIM_EVENT_MAGIC ? event : NULL;
}

/* ---- stream entry points ---- */

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGetStreamPriorityRange);
    if (code) return code;
    if (least) *least = 1;
    if (greatest) *greatest = -1;
    return SIM_OK;
}

hipError_t hipStreamCreateWithPriority(hipStream_t *handle, unsigned int flags, int priority) {
    (void)priority; /* any value is accepted, as real drivers clamp it; every thread gets the same share */
    int code = sim_enter(SIM_ENTRY_hipStreamCreateWithPriority);
    if (code) return code;
    if (!handle || (flags & ~SIM_STREAM_NON_BLOCKING)) return SIM_INVALID_VALUE;
    sim_lock(&sim.lock);
    struct sim_stream *stream = make_stream(sim_current(), (flags & SIM_STREAM_NON_BLOCKING) != 0);
    sim_unlock(&sim.lock);
    if (!stream) return SIM_OUT_OF_MEMORY;
    *handle = (hipStream_t)stream;
    return SIM_OK;
}

hipError_t hipStreamDestroy(hipStream_t handle) {
    int code = sim_enter(SIM_ENTRY_hipStreamDestroy);
    if (code) return code;
    struct sim_stream *stream = handle ? sim_stream_of(handle) : NULL;
    if (!stream) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    sim_capture_drop(stream);
    stream->magic = SIM_DEAD_MAGIC;
    stream->ending = true;
    if (!stream->has_worker) {
        for (struct sim_stream **link = &stream->device->streams; *link; link = &(*link)->next)
            if (*link == stream) {
                *link = stream->next;
                sim.stats.streams--;
                break;
            }
    }
    sim_wake(&stream->wake);
    release_stream(stream);
    sim_unlock(&sim.lock);
    return SIM_OK;
}

/* A capturing stream has no state to query: asking invalidates the capture. */
static int refuse_captured(struct sim_stream *stream) {
    sim_lock(&sim.lock);
    int code = stream->capture ? sim_capture_spoil(stream, SIM_CAPTURE_UNSUPPORTED) : SIM_OK;
    sim_unlock(&sim.lock);
    return code;
}

/* What both that ask for a stream's state begin with. */
static int enter_asking(enum sim_entry entry, hipStream_t handle, struct sim_stream **stream) {
    int code = sim_enter(entry);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    *stream = sim_stream_of(handle);
    return *stream ? refuse_captured(*stream) : SIM_INVALID_HANDLE;
}

hipError_t hipStreamQuery(hipStream_t handle) {
    struct sim_stream *stream;
    int code = enter_asking(SIM_ENTRY_hipStreamQuery, handle, &stream);
    if (code) return code;
    sim_lock(&sim.lock);
    bool idle = stream->completed == stream->submitted;
    code = atomic_load(&stream->device->lost);
    sim_unlock(&sim.lock);
    if (code) return code;
    if (!idle) return SIM_NOT_READY;
    sim_order_take(stream);
    return SIM_OK;
}

hipError_t hipStreamSynchronize(hipStream_t handle) {
    struct sim_stream *stream;
    int code = enter_asking(SIM_ENTRY_hipStreamSynchronize, handle, &stream);
    if (code) return code;
    sim_lock(&sim.lock);
    uint64_t until = stream->submitted;
    stream->refs++;
    while (stream->completed < until && !atomic_load(&stream->device->lost))
        sim_wait(&stream->progress, &sim.lock, -1);
    code = atomic_load(&stream->device->lost);
    sim_order_take(stream);
    release_stream(stream);
    sim_unlock(&sim.lock);
    return code;
}

/* Within a capture only its own events can be waited for, and on its one stream they are in order anyway. */
static int wait_in_capture(struct sim_stream *stream, struct sim_event *event, bool *queued) {
    sim_lock(&sim.lock);
    uint64_t serial = sim_capture_serial(stream);
    int code = SIM_OK;
    *queued = !serial && !event->captured;
    if (!*queued && event->captured != serial) {
        if (!serial)
            code = SIM_NOT_SUPPORTED; /* it would draw the stream into the capture */
        else if (event->recorded || event->captured)
            code = sim_capture_spoil(stream, SIM_CAPTURE_ISOLATION);
    }
    sim_unlock(&sim.lock);
    return code;
}

hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t event_handle, unsigned int flags) {
    int code = sim_enter(SIM_ENTRY_hipStreamWaitEvent);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(stream_handle);
    struct sim_event *event = event_of(event_handle);
    if (!stream || !event) return SIM_INVALID_HANDLE;
    if (flags) return SIM_INVALID_VALUE;
    bool queued;
    code = wait_in_capture(stream, event, &queued);
    if (!queued) return code;
    struct sim_work *work = sim_work_create(SIM_WORK_WAIT, 0);
    if (!work) return SIM_OUT_OF_MEMORY;
    sim_lock(&sim.lock);
    event->refs++;
    work->event.event = event;
    work->event.generation = event->recorded; /* the records so far; 0: never recorded, nothing to wait for */
    sim_unlock(&sim.lock);
    return sim_submit(stream, work, false);
}

/* ---- event entry points ---- */

hipError_t hipEventCreateWithFlags(hipEvent_t *handle, unsigned int flags) {
    int code = sim_enter(SIM_ENTRY_hipEventCreateWithFlags);
    if (code) return code;
    if (!handle) return SIM_INVALID_VALUE;
    struct sim_event *event = calloc(1, sizeof *event);
    if (!event) return SIM_OUT_OF_MEMORY;
    event->magic = SIM_EVENT_MAGIC;
    event->refs = 1;
    event->device = sim_current();
    event->timing = !(flags & SIM_EVENT_DISABLE_TIMING);
    sim_lock(&sim.lock);
    event->next = live_events;
    if (live_events) live_events->previous = event;
    live_events = event;
    sim.stats.events++;
    sim_unlock(&sim.lock);
    *handle = (hipEvent_t)event;
    return SIM_OK;
}

hipError_t hipEventDestroy(hipEvent_t handle) {
    int code = sim_enter(SIM_ENTRY_hipEventDestroy);
    if (code) return code;
    struct sim_event *event = event_of(handle);
    if (!event) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    event->magic = SIM_DEAD_MAGIC;
    sim.stats.events--;
    release_event(event);
    sim_unlock(&sim.lock);
    return SIM_OK;
}

hipError_t hipEventRecord(hipEvent_t event_handle, hipStream_t stream_handle) {
    int code = sim_enter(SIM_ENTRY_hipEventRecord);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(stream_handle);
    struct sim_event *event = event_of(event_handle);
    if (!stream || !event || event->device != stream->device) return SIM_INVALID_HANDLE;
    struct sim_work *work = sim_work_create(SIM_WORK_RECORD, 0);
    if (!work) return SIM_OUT_OF_MEMORY;
    sim_lock(&sim.lock);
    event->captured = sim_capture_serial(stream);
    if (event->captured) { /* marks a place in the graph without making a node */
        sim_unlock(&sim.lock);
        sim_work_destroy(work);
        return SIM_OK;
    }
    event->refs++;
    work->event.event = event;
    work->event.generation = ++event->recorded;
    sim_unlock(&sim.lock);
    return sim_submit(stream, work, false);
}

hipError_t hipEventQuery(hipEvent_t handle) {
    int code = sim_enter(SIM_ENTRY_hipEventQuery);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    struct sim_event *event = event_of(handle);
    if (!event) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    bool done = event->done == event->recorded;
    code = atomic_load(&event->device->lost);
    if (!code && event->captured) code = SIM_CAPTURED_EVENT;
    sim_unlock(&sim.lock);
    if (code) return code;
    if (!done) return SIM_NOT_READY;
    sim_order_take(event);
    return SIM_OK;
}

hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start_handle, hipEvent_t end_handle) {
    int code = sim_enter(SIM_ENTRY_hipEventElapsedTime);
    if (code) return code;
    struct sim_event *start = event_of(start_handle), *end = event_of(end_handle);
    if (!milliseconds) return SIM_INVALID_VALUE;
    if (!start || !end || !start->timing || !end->timing) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    if (!start->recorded || !end->recorded)
        code = SIM_INVALID_HANDLE;
    else if (start->done != start->recorded || end->done != end->recorded)
        code = SIM_NOT_READY;
    else
        *milliseconds = (float)((double)(end->time_ns - start->time_ns) * 1e-6);
    sim_unlock(&sim.lock);
    return code;
}
