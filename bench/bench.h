/* What the parts of the device benchmark share.
 *
 * Every figure compares the library with the same work done by raw calls through the driver's own
 * function pointers, in the same process, on the same memory, alternating with it. The raw side
 * goes around the budget on purpose: it asks for no more than the library was just granted, and
 * gives it back at once. Timings are reported and judged in a column; they never decide the exit
 * status. */
#ifndef RF_BENCH_BENCH_H
#define RF_BENCH_BENCH_H

#include "gpu/device_impl.h"

#include <math.h>

/* ---- statistics (stats.c) ---- */

enum { SAMPLES_MAX = 512 };
struct samples {
    double values[SAMPLES_MAX];
    size_t count;
};
void samples_add(struct samples *samples, double value); /* past SAMPLES_MAX it is dropped */
/* fraction 0.5: the median. NAN without samples. */
double samples_at(const struct samples *samples, double fraction);
double samples_median(const struct samples *samples);

/* ---- the report (report.c) ---- */

enum sense { INFORMATION, AT_LEAST, AT_MOST };

struct row {
    const char *group; /* static */
    char name[56];
    double raw, ours; /* NAN: there is none */
    const char *unit; /* of those two; static */
    double measured;  /* what the target is about; NAN: nothing but the two figures */
    const char *measured_unit;
    enum sense sense;
    double target; /* in measured_unit */
    char note[80];
};

struct report {
    struct row *rows;
    size_t count;
};
rf_status report_add(struct report *report, const struct row *row);
void report_free(struct report *report);

/* ---- the run (bench_device.c) ---- */

struct bench {
    bool quick, json;
    const char *want; /* which device */
    struct rf_runtime *runtime;
    struct rf_device *device;
    struct rf_device_info info;
    struct rf_queue *queue;
    int64_t probe_ns, open_ns;
    /* The raw side: the device's own table, with its context current on this thread. */
    const struct rf_driver *driver;
    struct rf_entered entered;
    void *stream; /* of the queue's priority */
    void *event;  /* without timing, for polling */
    struct report report;
};

void print_table(const struct bench *bench);
void print_json(const struct bench *bench);

/* Opens the device, a queue, and the raw side; close undoes it. */
rf_status bench_open(struct bench *bench);
rf_status bench_close(struct bench *bench);

/* A raw answer as a status, with the call's name. */
rf_status raw_result(const struct bench *bench, int code, const char *call);
/* Records the event behind what is on the raw stream and asks until it is done, without a pause. */
rf_status raw_finish(const struct bench *bench);
/* The same for an event recorded already. */
rf_status raw_poll(const struct bench *bench, void *event);
/* Whether a buffer of so many bytes would be granted. */
bool bench_fits(struct bench *bench, uint64_t bytes);
rf_status bench_buffer(struct bench *bench, uint64_t bytes, struct rf_buffer **out);

/* ---- the parts; each adds its rows ---- */

rf_status bench_pool(struct bench *bench);     /* memory.c */
rf_status bench_direct(struct bench *bench);   /* memory.c */
rf_status bench_transfer(struct bench *bench); /* transfer.c */
rf_status bench_launch(struct bench *bench);   /* launch.c */
rf_status bench_wait(struct bench *bench);     /* wait.c */
rf_status bench_rows(struct bench *bench);     /* rows.c */
rf_status bench_costs(struct bench *bench);    /* costs.c */

#endif
