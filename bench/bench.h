/* What the parts of the device benchmark share.
 *
 * Every figure compares the library with the same work done by raw calls through the driver's own function pointers,
 * in the same process, on the same memory, in alternation. The raw side bypasses the budget on purpose: it asks for
 * no more than the library was just granted, and gives it back at once. Timings are reported, and a column compares
 * them with their targets; they never decide the exit status. */
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
void samples_add(struct samples *samples, double value); /* a value past SAMPLES_MAX is dropped */
/* fraction 0.5 gives the median. NAN without samples. */
double samples_at(const struct samples *samples, double fraction);
double samples_median(const struct samples *samples);

/* ---- the report (report.c) ---- */

enum sense { INFORMATION, AT_LEAST, AT_MOST };

struct row {
    const char *group; /* static */
    char name[56];
    double raw, ours; /* NAN: there is no figure */
    const char *unit; /* of those two; static */
    double measured;  /* the figure that has a target; NAN: only the two figures are reported */
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
    const char *want; /* names the device */
    struct rf_runtime *runtime;
    struct rf_device *device;
    struct rf_device_info info;
    struct rf_queue *queue;
    int64_t probe_ns, open_ns;
    /* The raw side: the device's own driver table, with its context current on this thread. */
    const struct rf_driver *driver;
    struct rf_entered entered;
    void *stream; /* with the queue's priority */
    void *event;  /* without timing, for polling */
    struct report report;
};

void print_table(const struct bench *bench);
void print_json(const struct bench *bench);

/* Opens the device, a queue and the raw side; bench_close undoes it. */
rf_status bench_open(struct bench *bench);
rf_status bench_close(struct bench *bench);

/* Turns a raw driver code into a status, with the call's name. */
rf_status raw_result(const struct bench *bench, int code, const char *call);
/* Records the event behind the work on the raw stream and polls it without a pause until it is done. */
rf_status raw_finish(const struct bench *bench);
/* Does the same with an event that is recorded already. */
rf_status raw_poll(const struct bench *bench, void *event);
/* Whether a buffer of this many bytes would be granted. */
bool bench_fits(struct bench *bench, uint64_t bytes);
rf_status bench_buffer(struct bench *bench, uint64_t bytes, struct rf_buffer **out);

/* ---- the parts; each adds its rows ---- */

rf_status bench_pool(struct bench *bench);     /* memory.c */
rf_status bench_direct(struct bench *bench);   /* memory.c */
rf_status bench_transfer(struct bench *bench); /* transfer.c */
rf_status bench_launch(struct bench *bench);   /* launch.c */
rf_status bench_wait(struct bench *bench);     /* wait.c */
rf_status bench_rows(struct bench *bench);     /* row_kernels.c */
rf_status bench_costs(struct bench *bench);    /* costs.c */

#endif
