/* rocmforge selftest, in two halves.
 *
 *   cmd_selftest.c     the command: starts a worker for each item, shows the results, survives what the driver does
 *   selftest_report.c  the report file and the JSON, and what they must not hold
 *   selftest_worker.c  in the worker: opens the device, runs one item and says how it ended
 *   selftest_device.c  items about the device itself: kernels, transfers, recordings, waits, memory and leases
 *   selftest_ops.c     items that compare ops with their references: which cases of which op
 *   selftest_model.c   items that run the bundled model
 *
 * Each item runs in a worker of its own, so a driver that crashes or hangs costs one item. The worker writes lines to
 * its channel: "at TEXT" names what it is about to do, and "ok TEXT", "failed TEXT" or "skipped TEXT" ends the item.
 * A worker that ends without such a line has failed at what the last "at" named. */
#ifndef RF_CLI_SELFTEST_H
#define RF_CLI_SELFTEST_H

#include "cli.h"

#include <rocmforge/ops.h>

enum selftest_mark { SELFTEST_OK, SELFTEST_FAILED, SELFTEST_SKIPPED };
const char *selftest_mark_name(enum selftest_mark mark); /* "ok", "FAILED", "skipped" */

enum { SELFTEST_TEXT_MAX = 1024 };

/* ---- in the worker ---- */

/* What an item works with. */
struct selftest {
    struct rf_runtime *runtime;
    struct rf_device *device; /* NULL for an item of the CPU */
    struct rf_device_info info;
    int64_t open_ns; /* how long it took to open the device */
    bool quick;
    const char *budget; /* the part of a lease that the item 'lent' is given; else NULL */
    FILE *out;
    char text[SELFTEST_TEXT_MAX]; /* figures, or what went wrong */
};

struct selftest_item {
    const char *name;
    bool on_gpu;
    bool hidden;        /* another item starts it */
    const char *checks; /* the setting of RF_CHECK */
    enum selftest_mark (*run)(struct selftest *test);
    const char *ops; /* of an item that checks ops: their names, separated by spaces; "*": all */
};
extern const struct selftest_item selftest_items[];
extern const size_t selftest_item_count;
const struct selftest_item *selftest_find(const char *name); /* NULL: there is none */

/* Runs the item and writes its result to the channel; the exit status is CLI_DONE unless there is no channel. */
int selftest_work(const struct selftest_item *item, int index, bool quick, const char *budget);

/* Set the text and return the mark. The second appends rf_error_text() and the name of the status. */
enum selftest_mark selftest_say(struct selftest *test, enum selftest_mark mark, const char *format, ...)
    RF_PRINTF(3, 4);
enum selftest_mark selftest_fail(struct selftest *test, rf_status status, const char *format, ...) RF_PRINTF(3, 4);
/* Tells the command what the item is about to do. */
void selftest_at(struct selftest *test, const char *format, ...) RF_PRINTF(2, 3);
int64_t selftest_now_ns(void);

enum selftest_mark selftest_open(struct selftest *test);
enum selftest_mark selftest_kernels(struct selftest *test);
enum selftest_mark selftest_transfers(struct selftest *test);
enum selftest_mark selftest_recordings(struct selftest *test);
enum selftest_mark selftest_deadline(struct selftest *test);
enum selftest_mark selftest_squeeze(struct selftest *test);
enum selftest_mark selftest_leases(struct selftest *test);
enum selftest_mark selftest_lent(struct selftest *test);
enum selftest_mark selftest_model(struct selftest *test);
enum selftest_mark selftest_cpu_model(struct selftest *test);

/* The item's ops on the device, or on the CPU. */
enum selftest_mark selftest_ops(struct selftest *test, const char *ops);
/* The cases are dealt into SELFTEST_PASSES passes, by their names. Each op has cases in the first pass, and those of
 * all ops together use every kernel module. --quick runs the first pass alone. */
enum { SELFTEST_PASSES = 12 };
int selftest_pass_of(const char *op, const char *label, bool is_first_of_op);

/* ---- in the command ---- */

struct selftest_result {
    const struct selftest_item *item; /* NULL: the probe */
    int device;                       /* -1: none */
    enum selftest_mark mark;
    bool died; /* the worker crashed or was killed at its deadline */
    double seconds;
    char text[SELFTEST_TEXT_MAX];
};

/* Everything that was found, for the report. */
struct selftest_findings {
    struct rf_runtime *runtime;
    bool quick, interrupted;
    double seconds;
    struct selftest_result *results;
    size_t count;
    size_t ok, failed, skipped;
};

/* Replaces what a report must not hold: paths outside the system's own folders, the home folder, the names of user
 * and host, process ids, and the UUIDs and PCI addresses of the GPUs. */
void selftest_scrub(struct rf_runtime *runtime, char *text, size_t size);

/* The report grows with the results, so that what was done is there whatever ends the command. */
void selftest_report_head(FILE *to, const struct selftest_findings *findings);
void selftest_report_device(FILE *to, const struct selftest_findings *findings, int device);
void selftest_report_result(FILE *to, const struct selftest_result *result);
void selftest_report_end(FILE *to, const struct selftest_findings *findings);
void selftest_json(FILE *to, const struct selftest_findings *findings);

#endif
