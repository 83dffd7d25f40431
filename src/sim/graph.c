/* Capture and graphs: what is submitted to a capturing stream is kept as nodes instead of being queued; a graph is
 * such a list of nodes, an executable graph runs them, one after the other, as one work of a stream.
 *
 * Invariants
 *   1. A stream with a capture queues nothing; ending the capture, or destroying the stream, takes it away.
 *   2. A capture that was spoilt by a forbidden call keeps refusing (901) until it is ended, which then says 901 too;
 *      with stale=1 until its stream is destroyed.
 *   3. Nodes never change after the capture ended; graph and executable graphs share them by reference.
 *   4. An executable graph that is destroyed while it runs goes when it has run.
 * 1 is asserted where a stream gets work, 2 where a capture ends, 3 and 4 by the counts of references.
 *
 * Not simulated: captures that fork to a second stream, graphs within graphs, memory nodes, editing: 801. */
#include "sim/sim.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_MAGIC 0x47524150u
#define EXEC_MAGIC 0x45584543u
#define QUARANTINE 256

struct sim_capture {
    struct sim_capture *next; /* all captures in progress */
    struct sim_stream *stream;
    pthread_t thread;
    int mode;
    bool spoilt;
    bool ended; /* with stale=1: it ended with an error and is still on its stream */
    struct sim_work *first, *last;
    size_t count;
    uint64_t serial;
};

/* A graph or, with EXEC_MAGIC, an executable graph. What a program abandons stays in the list, so that it is not
 * reported as a leak of this process. */
struct sim_graph {
    uint32_t magic;
    int refs; /* one for the handle; a graph has one more per executable graph, an executable graph one more per run
                 in progress */
    struct sim_device *device;
    struct sim_graph *origin; /* for an executable graph: the graph whose nodes it runs */
    struct sim_work *first;
    size_t count;
    uint64_t bytes; /* of device memory */
    struct sim_graph *previous, *next, *next_dead;
};

static struct sim_capture *captures;
static uint64_t capture_serial;
static struct sim_graph *live;
static struct sim_graph *dead, **dead_end = &dead;
static size_t dead_count;

/* ---- capturing; the lock is held ---- */

int sim_capture_keep(struct sim_stream *stream, struct sim_work *work) {
    struct sim_capture *capture = stream->capture;
    if (capture->spoilt) return SIM_CAPTURE_INVALIDATED;
    if (work->kind == SIM_WORK_GRAPH) return SIM_NOT_SUPPORTED;
    work->next = NULL;
    if (capture->last)
        capture->last->next = work;
    else
        capture->first = work;
    capture->last = work;
    capture->count++;
    return SIM_OK;
}

int sim_capture_spoil(struct sim_stream *stream, int code) {
    stream->capture->spoilt = true;
    return code;
}

uint64_t sim_capture_serial(const struct sim_stream *stream) {
    return stream->capture ? stream->capture->serial : 0;
}

int sim_capture_refuses_default(struct sim_device *device) {
    for (struct sim_capture *capture = captures; capture; capture = capture->next)
        if (capture->stream->device == device && !capture->stream->non_blocking)
            return sim_capture_spoil(capture->stream, SIM_CAPTURE_IMPLICIT);
    return SIM_OK;
}

static void free_nodes(struct sim_work *node) {
    while (node) {
        struct sim_work *next = node->next;
        sim_work_destroy(node);
        node = next;
    }
}

/* Takes the capture away from its stream; its nodes then belong to the caller. */
static void unlink_capture(struct sim_capture *capture) {
    struct sim_capture **link = &captures;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    capture->stream->capture = NULL;
}

void sim_capture_drop(struct sim_stream *stream) {
    struct sim_capture *capture = stream->capture;
    if (!capture) return;
    unlink_capture(capture);
    free_nodes(capture->first);
    free(capture);
}

/* A capture of the calling thread forbids the call unless it is relaxed; one of another thread only if it is global.
 */
int sim_capture_forbids(void) {
    int code = SIM_OK;
    sim_lock(&sim.lock);
    for (struct sim_capture *capture = captures; capture; capture = capture->next) {
        bool own = pthread_equal(capture->thread, pthread_self());
        if (own ? capture->mode != SIM_CAPTURE_RELAXED : capture->mode == SIM_CAPTURE_GLOBAL)
            code = sim_capture_spoil(capture->stream, SIM_CAPTURE_UNSUPPORTED);
    }
    sim_unlock(&sim.lock);
    if (code) sim_message("a stream is being captured in a mode that does not allow this call");
    return code;
}

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
    int code = sim_enter(SIM_ENTRY_hipStreamBeginCapture);
    if (code) return code;
    if (!handle)
        return SIM_CAPTURE_UNSUPPORTED; /* the default stream waits for the others, so there is nothing to record */
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    if ((int)mode < SIM_CAPTURE_GLOBAL || (int)mode > SIM_CAPTURE_RELAXED) return SIM_INVALID_VALUE;
    struct sim_capture *capture = calloc(1, sizeof *capture);
    if (!capture) return SIM_OUT_OF_MEMORY;
    sim_lock(&sim.lock);
    if (stream->capture) {
        code = SIM_ILLEGAL_STATE;
    } else {
        *capture = (struct sim_capture){.next = captures,
                                        .stream = stream,
                                        .thread = pthread_self(),
                                        .mode = (int)mode,
                                        .serial = ++capture_serial};
        captures = capture;
        stream->capture = capture;
    }
    sim_unlock(&sim.lock);
    if (code) free(capture);
    return code;
}

static struct sim_graph *make_graph(uint32_t magic, struct sim_device *device) { /* the lock is held */
    struct sim_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->magic = magic;
    graph->refs = 1;
    graph->device = device;
    graph->next = live;
    if (live) live->previous = graph;
    live = graph;
    sim.stats.graphs++;
    return graph;
}

/* With stale=1: a capture that ended with an error stays, spoilt, on its stream. Ending it once more crashes, as it
 * does in HIP, which then removes the stream from a list that it is not in. */
static void keep_stale(struct sim_stream *stream) {
    if (!sim.config.stale || !stream || !stream->capture) return;
    if (stream->capture->ended) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    stream->capture->spoilt = stream->capture->ended = true;
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t *out) {
    int code = sim_enter(SIM_ENTRY_hipStreamEndCapture);
    if (code) {
        if (sim.config.stale && handle) {
            sim_lock(&sim.lock);
            keep_stale(sim_stream_of(handle));
            sim_unlock(&sim.lock);
        }
        return code;
    }
    if (!out) return SIM_INVALID_VALUE;
    struct sim_stream *stream = handle ? sim_stream_of(handle) : NULL;
    if (handle && !stream) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    struct sim_capture *capture = stream ? stream->capture : NULL;
    if (!capture)
        code = SIM_ILLEGAL_STATE;
    else if (capture->mode != SIM_CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        code = SIM_CAPTURE_WRONG_THREAD;
    else if (sim.config.stale && capture->spoilt) {
        keep_stale(stream);
        code = SIM_CAPTURE_INVALIDATED;
        *out = NULL;
    } else {
        rf_assert(capture->stream == stream);
        struct sim_graph *graph = capture->spoilt ? NULL : make_graph(GRAPH_MAGIC, stream->device);
        if (graph) {
            graph->first = capture->first;
            graph->count = capture->count;
            capture->first = NULL;
        } else {
            code = capture->spoilt ? SIM_CAPTURE_INVALIDATED : SIM_OUT_OF_MEMORY;
        }
        sim_capture_drop(stream);
        rf_assert(!stream->capture && !graph == (code != SIM_OK));
        *out = (hipGraph_t)graph;
    }
    sim_unlock(&sim.lock);
    return code;
}

hipError_t hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus *status) {
    int code = sim_enter(SIM_ENTRY_hipStreamIsCapturing);
    if (code) return code;
    if (!status) return SIM_INVALID_VALUE;
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    sim_lock(&sim.lock);
    *status = !stream->capture ? 0 : stream->capture->spoilt ? 2 : 1; /* none, active, invalidated */
    sim_unlock(&sim.lock);
    return SIM_OK;
}

/* ---- graphs ---- */

static struct sim_graph *graph_of(void *handle, uint32_t magic) {
    struct sim_graph *graph = handle;
    return graph && graph->magic == magic ? graph : NULL;
}

/* Device memory for executable graphs comes in granules that they share; what is held is always the sum of their
 * bytes, rounded up. With the lock held. */
static int reserve(struct sim_device *device, uint64_t bytes) {
    uint64_t unit = device->config->granularity, needed = device->graph_bytes + bytes;
    uint64_t rounded = (needed + unit - 1) / unit * unit, charged;
    if (rounded > device->graph_charged) {
        int code = sim_charge(device, rounded - device->graph_charged, &charged);
        if (code) return code;
        device->graph_charged += charged;
        sim.stats.charged_bytes += charged;
    }
    device->graph_bytes = needed;
    return SIM_OK;
}

static void unreserve(struct sim_device *device, uint64_t bytes) {
    uint64_t unit = device->config->granularity;
    rf_assert(bytes <= device->graph_bytes && device->graph_bytes <= device->graph_charged);
    device->graph_bytes -= bytes;
    uint64_t rounded = (device->graph_bytes + unit - 1) / unit * unit;
    if (rounded == device->graph_charged) return;
    sim.stats.charged_bytes -= device->graph_charged - rounded;
    sim_discharge(device, device->graph_charged - rounded);
    device->graph_charged = rounded;
}

void sim_graph_release(struct sim_graph *graph) {
    rf_assert(graph->refs > 0);
    if (--graph->refs) return;
    if (graph->origin) {
        unreserve(graph->device, graph->bytes);
        sim_graph_release(graph->origin);
    } else {
        free_nodes(graph->first);
        graph->first = NULL;
    }
    if (graph->previous)
        graph->previous->next = graph->next;
    else
        live = graph->next;
    if (graph->next) graph->next->previous = graph->previous;
    sim.stats.graphs--;
    graph->next_dead = NULL;
    *dead_end = graph;
    dead_end = &graph->next_dead;
    if (++dead_count > QUARANTINE) {
        struct sim_graph *oldest = dead;
        dead = oldest->next_dead;
        dead_count--;
        free(oldest);
    }
}

struct sim_work *sim_graph_nodes(const struct sim_graph *graph) {
    rf_assert(graph->refs > 0 && graph->origin->refs > 0);
    return graph->origin->first;
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t handle, unsigned long long flags) {
    int code = sim_enter(SIM_ENTRY_hipGraphInstantiateWithFlags);
    if (code) return code;
    struct sim_graph *graph = graph_of(handle, GRAPH_MAGIC);
    if (!out || !graph) return SIM_INVALID_VALUE;
    if (flags & ~1ull) return SIM_INVALID_VALUE;
    sim_lock(&sim.lock);
    uint64_t bytes = (graph->count + 1) * graph->device->config->graph;
    code = reserve(graph->device, bytes);
    struct sim_graph *executable = code ? NULL : make_graph(EXEC_MAGIC, graph->device);
    if (!code && !executable) {
        unreserve(graph->device, bytes);
        code = SIM_OUT_OF_MEMORY;
    }
    if (executable) {
        executable->origin = graph;
        executable->bytes = bytes;
        graph->refs++;
        *out = (hipGraphExec_t)executable;
    }
    sim_unlock(&sim.lock);
    return code;
}

hipError_t hipGraphLaunch(hipGraphExec_t handle, hipStream_t stream_handle) {
    int code = sim_enter(SIM_ENTRY_hipGraphLaunch);
    if (code) return code;
    struct sim_graph *executable = graph_of(handle, EXEC_MAGIC);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!executable) return SIM_INVALID_VALUE;
    if (!stream) return SIM_INVALID_HANDLE;
    if (executable->device != stream->device) return SIM_INVALID_VALUE;
    struct sim_work *work = sim_work_create(SIM_WORK_GRAPH, 0);
    if (!work) return SIM_OUT_OF_MEMORY;
    sim_lock(&sim.lock);
    executable->refs++;
    work->graph = executable;
    sim_unlock(&sim.lock);
    return sim_submit(stream, work, false);
}

/* Everything that a run needs was allocated when the graph was instantiated; only the handles are checked here. */
hipError_t hipGraphUpload(hipGraphExec_t handle, hipStream_t stream_handle) {
    int code = sim_enter(SIM_ENTRY_hipGraphUpload);
    if (code) return code;
    if (!graph_of(handle, EXEC_MAGIC)) return SIM_INVALID_VALUE;
    return sim_stream_of(stream_handle) ? SIM_OK : SIM_INVALID_HANDLE;
}

static int destroy(enum sim_entry entry, void *handle, uint32_t magic) {
    int code = sim_enter(entry);
    if (code) return code;
    struct sim_graph *graph = graph_of(handle, magic);
    if (!graph) return SIM_INVALID_VALUE;
    sim_lock(&sim.lock);
    graph->magic = SIM_DEAD_MAGIC;
    sim_graph_release(graph);
    sim_unlock(&sim.lock);
    return SIM_OK;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t handle) {
    return destroy(SIM_ENTRY_hipGraphExecDestroy, handle, EXEC_MAGIC);
}

hipError_t hipGraphDestroy(hipGraph_t handle) {
    return destroy(SIM_ENTRY_hipGraphDestroy, handle, GRAPH_MAGIC);
}
