/* Times of nodes in Chrome's trace format (chrome://tracing, Perfetto): one line for each place, complete events.
 *
 * Kept in memory while graphs run, at most a million events, and written at the end. */
#include "graph/executor_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { EVENTS_MAX = 1000000, NAME_BYTES = 64 };

struct event {
    char name[NAME_BYTES];
    const char *kind; /* static */
    int place;
    int64_t start_ns, elapsed_ns;
};
struct rf_trace {
    FILE *file;
    char *path;
    struct event *events;
    size_t count, capacity;
    char places[RF_PLACES_MAX][96];
    int64_t begin_ns;
};

rf_status rf_trace_create(const char *path, struct rf_trace **out) {
    struct rf_trace *trace = calloc(1, sizeof *trace);
    if (!trace) return rf_fail(RF_E_NO_MEMORY, "no host memory for a trace");
    trace->path = strdup(path);
    /* Opened at once: that it cannot be written is to be known before the work, not after it. */
    trace->file = trace->path ? fopen(path, "we") : NULL;
    if (!trace->file) {
        rf_status status = trace->path ? rf_fail(RF_E_IO, "trace '%s' cannot be written: %s", path, strerror(errno))
                                       : rf_fail(RF_E_NO_MEMORY, "no host memory for a trace");
        free(trace->path);
        free(trace);
        return status;
    }
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
        struct event *grown = realloc(trace->events, capacity * sizeof *grown);
        if (!grown) return;
        trace->events = grown;
        trace->capacity = capacity;
    }
    struct event *event = &trace->events[trace->count++];
    snprintf(event->name, sizeof event->name, "%s", name);
    event->kind = kind;
    event->place = place;
    event->start_ns = start_ns - trace->begin_ns;
    event->elapsed_ns = elapsed_ns;
}

static void write_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fputc('\\', file);
        if (c < 32)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

rf_status rf_trace_destroy(struct rf_trace **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_trace *trace = *pointer;
    rf_status status = RF_OK;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", trace->file);
    for (int p = 0; p <= RF_PLACES_MAX; p++) {
        const char *name = p < RF_PLACES_MAX ? trace->places[p] : "copies between places";
        if (!*name) continue;
        fprintf(trace->file, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":", p);
        write_text(trace->file, name);
        fputs("}},\n", trace->file);
    }
    for (size_t i = 0; i < trace->count; i++) {
        const struct event *event = &trace->events[i];
        fputs("{\"ph\":\"X\",\"name\":", trace->file);
        write_text(trace->file, event->name);
        fprintf(trace->file, ",\"cat\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f},\n", event->kind,
                event->place, (double)event->start_ns / 1e3, (double)event->elapsed_ns / 1e3);
    }
    fputs("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"rocmforge\"}}\n]}\n", trace->file);
    bool failed = ferror(trace->file);
    if (fclose(trace->file) || failed)
        status = rf_fail(RF_E_IO, "trace '%s' could not be written whole: %s", trace->path, strerror(errno));
    free(trace->events);
    free(trace->path);
    free(trace);
    *pointer = NULL;
    return status;
}
