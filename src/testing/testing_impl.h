/* The inside of the test harness.
 *
 * The pieces, from the test outwards:
 *   registry    the tests this executable holds
 *   current     the test that runs in this process, and what it has to say
 *   record      how that is said: lines on a pipe, so that nothing a test prints is a verdict
 *   child       a process with its record, its output and its deadline
 *   plan        which tests of which executables run, how often and with which seed
 *   runner      runs a plan: isolated processes side by side, or in this process
 *   report      what a person sees
 *   main        the command line of an executable and of `rocmforge test`
 *
 * Must use public headers only. The mutable globals of the harness are the registry, the
 * current test and the interrupt flag. */
#ifndef RF_TESTING_IMPL_H
#define RF_TESTING_IMPL_H

#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>

#include <rocmforge/test.h>

#define RF_TEST_DEFAULT_TIMEOUT_MS 60000
#define RF_TEST_NAME_BYTES 256

int64_t rf_test_now_ns(void); /* CLOCK_MONOTONIC */
/* Allocation that ends the runner with a message: there is nothing to save. */
void *rf_test_grow(void *old, size_t bytes);
char *rf_test_copy(const char *text);

/* ---- registry.c ---- */

struct rf_test *rf_test_first(void); /* in order of registration */
struct rf_test *rf_test_find(const char *full_name);
void rf_test_full_name(const struct rf_test *test, char *text, size_t size); /* "suite.name" */
/* The name of a test that was registered twice, or NULL. */
const struct rf_test *rf_test_duplicate(void);
/* The timeout with its default, times what a sanitizer costs. */
int rf_test_timeout_ms(const struct rf_test *test);
/* Is tag among "slow,stress"? */
bool rf_test_has_tag(const char *tags, const char *tag);

/* ---- record.c ----
 *
 * Lines "KIND<tab>TEXT", each written by one write(): several threads and forked children may
 * speak at once. KIND is failure, skip, verdict; of a listing: test, end. A record without
 * its verdict is a test that did not end. */

void rf_test_record_write(int fd, const char *kind, const char *format, ...) RF_PRINTF(3, 4);

enum rf_test_verdict { RF_TEST_NONE, RF_TEST_PASSED, RF_TEST_FAILED, RF_TEST_SKIPPED };

struct rf_test_record {
    enum rf_test_verdict verdict; /* RF_TEST_NONE: the record has none */
    char *message;                /* failures, or why it was skipped; lines; owned, never NULL */
    bool failure_seen;
};
/* text is consumed (changed). */
void rf_test_record_parse(char *text, struct rf_test_record *record);
void rf_test_record_finish(struct rf_test_record *record);
/* Calls visit for each line; stops at what is no record. */
void rf_test_record_lines(char *text, void (*visit)(void *user, const char *kind, char *value), void *user);

/* ---- current.c ---- */

/* Runs a test's body in this process, writing its record to fd. Returns the verdict. */
enum rf_test_verdict rf_test_run_here(const struct rf_test *test, int fd);
void rf_test_set_seed(uint64_t seed);
uint64_t rf_test_draw_seed(void);

/* ---- child.c ---- */

/* Keeps the beginning and the end of a stream of any length. */
struct rf_test_capture {
    char *head, *tail; /* owned; the tail is a ring */
    size_t head_length, tail_length, tail_at;
    uint64_t total;
};
void rf_test_capture_add(struct rf_test_capture *capture, const char *data, size_t length);
/* Visits the stored bytes in order; *left_out: how many lie between head and tail. */
void rf_test_capture_text(const struct rf_test_capture *capture, char **text, size_t *length, size_t *gap_at,
                          uint64_t *left_out);

struct rf_test_child {
    pid_t pid;
    int pid_fd, record_fd, output_fd; /* -1: none */
    char *record;                     /* owned, ended by zero */
    size_t record_length, record_capacity;
    struct rf_test_capture output;
    int64_t started_ns, deadline_ns, ended_ns;
    bool timed_out, ended;
    int wait_status; /* once ended */
};
#define RF_TEST_RECORD_FD 198
/* Starts argv[0] (in a process group of its own, input empty, output captured, the record's
 * pipe at RF_TEST_RECORD_FD). 0, or an errno. */
int rf_test_child_start(struct rf_test_child *child, char *const argv[], int64_t timeout_ns);
/* Waits up to wait_ns for any of the children to say something or end, then looks after
 * each: reads what it said, kills it past its deadline, reaps it. */
void rf_test_children_serve(struct rf_test_child *const *children, size_t count, int64_t wait_ns);
/* Ends it if it runs, with its whole group. */
void rf_test_child_finish(struct rf_test_child *child);

/* ---- plan.c ---- */

struct rf_test_job {
    const char *executable; /* owned by the plan; NULL: this process's own tests */
    char *name;             /* suite.name; owned */
    int timeout_ms;
    bool gpu;
    const char *skip_tag; /* the unwanted tag it carries; borrowed from the settings; else NULL */
    uint64_t seed;
};

struct rf_test_settings {
    const char **patterns; /* of names; none: all */
    size_t pattern_count;
    const char **tags, **skip_tags;
    size_t tag_count, skip_tag_count;
    const char **executables;
    size_t executable_count;
    int jobs, repeat; /* >= 1 */
    double timeout_scale;
    uint64_t seed;
    bool in_process, show_output, quiet, list, machine;
    const char *run_one;
    const char *program; /* as it was called */
    int record_fd;       /* -1: none */
};

struct rf_test_plan {
    struct rf_test_job *jobs;
    size_t count, capacity;
    char **executables; /* owned */
    size_t executable_count;
};
void rf_test_plan_own(struct rf_test_plan *plan, const struct rf_test_settings *settings);
/* Lists an executable by running it. NULL, or what went wrong (owned by the caller). */
char *rf_test_plan_executable(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *path);
void rf_test_plan_finish(struct rf_test_plan *plan);
/* Writes this executable's tests, for a person or (machine) as a record. */
void rf_test_list(const struct rf_test_settings *settings, FILE *to);

/* ---- report.c ---- */

struct rf_test_tally {
    unsigned long passed, failed, skipped;
};

struct rf_test_result {
    enum rf_test_verdict verdict;
    const char *message; /* lines; may be empty */
    int64_t elapsed_ns;
    const struct rf_test_capture *output; /* NULL: was not captured */
};
void rf_test_report_start(const struct rf_test_settings *settings, const struct rf_test_plan *plan);
void rf_test_report(const struct rf_test_settings *settings, const struct rf_test_job *job,
                    const struct rf_test_result *result, struct rf_test_tally *tally);
void rf_test_report_trouble(const char *what, const char *message, struct rf_test_tally *tally);
void rf_test_report_end(const struct rf_test_tally *tally);

/* ---- runner.c ---- */

void rf_test_run_plan(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                      struct rf_test_tally *tally);

#endif
