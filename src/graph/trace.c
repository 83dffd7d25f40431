/* The times of nodes in Chrome's trace format (chrome://tracing, Perfetto): one row for each place, complete events.
 *
 * Events are kept in memory while graphs run, at most a million, and are written at the end. */
#include "graph/executor_impl.h"
#include "base/descriptors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"

enum { EVENTS_MAX = 1000000, NAME_BYTES = 64 };

struct event {
    char name[NAME_BYTES];
    const char *kind; /* static */
    int place;
    int64_t start_ns, elapsed_ns;
};
struct rf_trace {
    struct rf_account account; /* the events are charged to it */
    FILE *file;
    char *path;
    struct event *events;
    size_t count, capacity;
    char places[RF_PLACES_MAX][96];
    int64_t begin_ns;
};

rf_status rf_trace_create(const char *path, struct rf_host_budget *host, struct rf_trace **out) {
    struct rf_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return rf_fail(RF_E_NO_MEMORY, "no host memory for a trace");
    trace->path = strdup(path);
    /* The file is opened now, so that a path that cannot be written is refused before the work and not after it. */
    trace->file = trace->path ? rf_fopen_new(path) : NULL;
    if (!trace->file) {
        rf_status status = trace->path ? rf_fail(RF_E_IO, "trace '%s' cannot be written: %s", path, strerror(errno))
                                       : rf_fail(RF_E_NO_MEMORY, "no host memory for a trace");
        free(trace->path);
        free(trace);
        return status;
    }
    if (host) trace->account = rf_host_account(host);
    trace->begin_ns = rf_now_ns();
    *out = trace;
    return RF_OK;
}

void rf_trace_place(struct rf_trace *trace, int place, const char *name) {
    snprintf(trace->places[place], sizeof trace->places[place], "%s", name);
}

void rf_trace_add(struct rf_trace *trace, const char *name, const char *kind, int place, int64_t start_ns,
                  int64_t elapsed_ns) {
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
        if (capacity > EVENTS_MAX) return;
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (rf_account_resize(&trace->account, (void **)&trace->events, trace->capacity * sizeof *trace->events,
                              capacity * sizeof *trace->events, "a trace")) {
            rf_error_restore(&saved);
            return;
        }
        trace->capacity = capacity;
    }
    struct event *event = &trace->events[trace->count++];
    snprintf(event->name, sizeof event->name, "%s", name);
    event->kind = kind;
    event->place = place;
    event->start_ns = start_ns - trace->begin_ns;
    event->elapsed_ns = elapsed_ns;
}

/* Chrome's metadata events name the process and its threads; a place is a thread. place < 0: the process. */
static void write_name(struct rf_json *json, int place, const char *name) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "ph", "M");
    rf_json_text(json, "name", place < 0 ? "process_name" : "thread_name");
    rf_json_int(json, "pid", 1);
    if (place >= 0) rf_json_int(json, "tid", place);
    rf_json_open_object(json, "args");
    rf_json_text(json, "name", name);
    rf_json_close(json);
    rf_json_close(json);
}

static void write_event(struct rf_json *json, const struct event *event) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "ph", "X");
    rf_json_text(json, "name", event->name);
    rf_json_text(json, "cat", event->kind);
    rf_json_int(json, "pid", 1);
    rf_json_int(json, "tid", event->place);
    rf_json_fixed(json, "ts", (double)event->start_ns / 1e3, 3); /* microseconds */
    rf_json_fixed(json, "dur", (double)event->elapsed_ns / 1e3, 3);
    rf_json_close(json);
}

/* One event per line. */
static void write_events(const struct rf_trace *trace) {
    struct rf_json json;
    rf_json_begin_file(&json, trace->file, RF_JSON_COMPACT);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "displayTimeUnit", "ns");
    rf_json_set_layout(&json, RF_JSON_LINES);
    rf_json_open_array(&json, "traceEvents");
    rf_json_set_layout(&json, RF_JSON_COMPACT);
    write_name(&json, -1, "rocmforge");
    for (int p = 0; p < RF_PLACES_MAX; p++)
        if (*trace->places[p]) write_name(&json, p, trace->places[p]);
    write_name(&json, RF_PLACES_MAX, "copies between places");
    for (size_t i = 0; i < trace->count; i++) write_event(&json, &trace->events[i]);
    rf_json_end(&json);
}

rf_status rf_trace_destroy(struct rf_trace **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_trace *trace = *pointer;
    rf_status status = RF_OK;
    write_events(trace);
    bool failed = ferror(trace->file);
    if (fclose(trace->file) || failed)
        status = rf_fail(RF_E_IO, "trace '%s' could not be written whole: %s", trace->path, strerror(errno));
    free(trace->events);
    rf_account_close(&trace->account);
    free(trace->path);
    free(trace);
    *pointer = NULL;
    return status;
}
