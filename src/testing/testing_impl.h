/* The inside of the test harness.
 *
 * Its parts, from the test outwards:
 *   registry      the tests and suites of this executable; cases: the rows of tables among them
 *   running_test  the test that runs in this process, and what it reports
 *   assertions, compare, buffers, random, half_floats    what tests are written with
 *   fixture       the device that the tests of a process share; leaks: what they left on it
 *   threads       the threads that a test left running
 *   record        lines on a pipe, so that nothing a test prints can be taken for a verdict
 *   default_main  the main of executables that have none
 *   the runner    everything outside that process: see runner_impl.h
 *
 * Must use only public headers, besides base/json.h and base/utf8.h. The mutable globals of the harness are the
 * registry, the running test and the fixture; those of the runner are the interrupt flag and how the run is shown. */
#ifndef RF_TESTING_IMPL_H
#define RF_TESTING_IMPL_H

#include <stdarg.h>
#include <stdio.h>
#include <sys/types.h>

#include <rocmforge/test.h>

#include "base/assert.h"

#define RF_TEST_DEFAULT_TIMEOUT_MS 60000
#define RF_TEST_NAME_BYTES 256

int64_t rf_test_now_ns(void); /* CLOCK_MONOTONIC */
/* Allocates, or ends the runner with a message: there is nothing to save. */
void *rf_test_grow(void *old, size_t bytes);
char *rf_test_copy(const char *text);

/* ---- registry.c ---- */

struct rf_test *rf_test_first(void); /* in order of registration; rows of a table one by one */
struct rf_test *rf_test_find(const char *full_name);
void rf_test_full_name(const struct rf_test *test, char *text, size_t size); /* "suite.name" */
/* A test whose name was registered before, or NULL. */
const struct rf_test *rf_test_duplicate(void);
struct rf_test_suite *rf_test_first_suite(void);
struct rf_test_suite *rf_test_find_suite(const char *name); /* NULL: the suite has neither set-up nor tear-down */
/* The timeout, or the default one, multiplied by what a sanitizer costs. */
int rf_test_timeout_ms(const struct rf_test *test);
/* Whether tag is among "slow,stress". */
bool rf_test_has_tag(const char *tags, const char *tag);

/* ---- record.c ----
 *
 * Lines "KIND<tab>TEXT", each written by one write(), so several threads and forked children may write at once. KIND
 * is failure, skip, verdict, lost (the device, and why), memory (the most bytes held on the GPU); in a listing: test,
 * end. A record without a verdict means that the test did not end. */

void rf_test_record_write(int fd, const char *kind, const char *format, ...) RF_PRINTF(3, 4);

enum rf_test_verdict { RF_TEST_NONE, RF_TEST_PASSED, RF_TEST_FAILED, RF_TEST_SKIPPED };

struct rf_test_record {
    enum rf_test_verdict verdict; /* RF_TEST_NONE: the record has none */
    char *message;                /* failures, or why it was skipped; lines; owned, never NULL */
    bool failure_seen;
    bool leak_seen;      /* a test that otherwise passed left memory behind */
    bool lost_seen;      /* the device was lost */
    uint64_t peak_bytes; /* of GPU memory, from the fixture; 0: unknown */
};
/* text is changed. */
void rf_test_record_parse(char *text, struct rf_test_record *record);
void rf_test_record_finish(struct rf_test_record *record);
/* Calls visit for each line; stops at a line that is not a record. */
void rf_test_record_lines(char *text, void (*visit)(void *user, const char *kind, char *value), void *user);

/* ---- running_test.c ---- */

/* Runs a test in this process and writes its record to fd: the set-up of its suite if that has not run, its set-up,
 * its body, its tear-down, and what it left on the device of the fixture. Returns the verdict.
 *
 * By default the process ends with the test: the tear-down of the suite and closing the fixture are part of it,
 * before the verdict. A process that runs several tests calls rf_test_keep_process(true) first and, after the last
 * one, rf_test_end_process, which does both and writes failures, if any, and a verdict to fd. A kind of the record
 * besides those in record.c: lost   the device of the fixture was lost in this test, and why: from now on no GPU test
 * of this process, and perhaps of any process, will pass */
enum rf_test_verdict rf_test_run_here(const struct rf_test *test, int fd);
void rf_test_keep_process(bool keep);
enum rf_test_verdict rf_test_end_process(int fd);
/* Reports a failure: like rf_test_fail, which calls it, with the text in one piece. */
void rf_test_fail_text(const char *file, int line, bool fatal, const char *text);
/* Calls it; true if it returned, false if an assertion left it. Only on the test's own thread. */
bool rf_test_protected(void (*call)(void *user), void *user);
/* Leaves as a fatal assertion does, without reporting anything. */
void rf_test_leave(void);
bool rf_test_is_running(void);
bool rf_test_is_own_thread(void);
enum rf_test_verdict rf_test_verdict_so_far(void);
bool rf_test_is_debug(void); /* RF_TEST_DEBUG */
/* Writes one line to the record of the running test. */
void rf_test_say(const char *kind, const char *format, ...) RF_PRINTF(2, 3);
void rf_test_set_seed(uint64_t seed);
uint64_t rf_test_draw_seed(void);

/* ---- compare.c ---- */

/* Like rf_test_array, but never leaves: false if the arrays differ, which is then recorded. */
bool rf_test_array_agrees(const char *file, int line, const char *what, enum rf_dtype dtype, const void *actual,
                          const void *expected, size_t count, struct rf_compare how);

/* ---- fixture.c, leaks.c: the device that the tests of a process share ---- */

/* Called around one test. before: fails the test if the device was lost earlier and it wants one. mark: what is made
 * from here on belongs to the test, not to its suite. after: drains, judges, releases. */
void rf_fixture_before(const struct rf_test *test); /* NULL: after the last */
void rf_fixture_mark(void);
void rf_fixture_after(void);
/* After the last test: reports what suites left behind, and closes the device. */
void rf_fixture_end(void);

/* ---- threads.c: threads that a test started and left running ---- */

void rf_test_threads_before(void);
void rf_test_threads_after(const struct rf_test *test);

#endif
