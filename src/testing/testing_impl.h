/* The inside of the test harness.
 *
 * The pieces, from the test outwards:
 *   registry    the tests and suites this executable holds; cases: the rows of tables among them
 *   current     the test that runs in this process, and what it has to say
 *   assertions, compare, buffers, random    what tests are written with
 *   fixture     the device that the tests of a process share; leaks: what they left on it
 *   record      how that is said: lines on a pipe, so that nothing a test prints is a verdict
 *   the runner  everything outside that process: see runner_impl.h
 *
 * Must use public headers only. The mutable globals of the harness are the registry, the
 * current test and the fixture; of the runner the interrupt flag and how the run is shown. */
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
/* Allocation that ends the runner with a message: there is nothing to save. */
void *rf_test_grow(void *old, size_t bytes);
char *rf_test_copy(const char *text);

/* ---- registry.c ---- */

struct rf_test *rf_test_first(void); /* in order of registration; rows of a table one by one */
struct rf_test *rf_test_find(const char *full_name);
void rf_test_full_name(const struct rf_test *test, char *text, size_t size); /* "suite.name" */
/* A test whose name was registered before, or NULL. */
const struct rf_test *rf_test_duplicate(void);
struct rf_test_suite *rf_test_first_suite(void);
struct rf_test_suite *rf_test_find_suite(const char *name); /* NULL: has neither set-up nor tear-down */
/* The timeout with its default, times what a sanitizer costs. */
int rf_test_timeout_ms(const struct rf_test *test);
/* Is tag among "slow,stress"? */
bool rf_test_has_tag(const char *tags, const char *tag);

/* ---- record.c ----
 *
 * Lines "KIND<tab>TEXT", each written by one write(): several threads and forked children may
 * speak at once. KIND is failure, skip, verdict, lost (the device, and why), memory (the most
 * bytes held on the GPU); of a listing: test, end. A record without its verdict is a test that
 * did not end. */

void rf_test_record_write(int fd, const char *kind, const char *format, ...) RF_PRINTF(3, 4);

enum rf_test_verdict { RF_TEST_NONE, RF_TEST_PASSED, RF_TEST_FAILED, RF_TEST_SKIPPED };

struct rf_test_record {
    enum rf_test_verdict verdict; /* RF_TEST_NONE: the record has none */
    char *message;                /* failures, or why it was skipped; lines; owned, never NULL */
    bool failure_seen;
    bool leak_seen;      /* a test that had not failed otherwise left memory */
    bool lost_seen;      /* the device was lost */
    uint64_t peak_bytes; /* of GPU memory, as the fixture says; 0: it does not */
};
/* text is consumed (changed). */
void rf_test_record_parse(char *text, struct rf_test_record *record);
void rf_test_record_finish(struct rf_test_record *record);
/* Calls visit for each line; stops at what is no record. */
void rf_test_record_lines(char *text, void (*visit)(void *user, const char *kind, char *value), void *user);

/* ---- current.c ---- */

/* Runs a test in this process, writing its record to fd: set-up of its suite where that has not
 * run, set-up, body, tear-down, what the fixture's device has to say. Returns the verdict.
 *
 * Alone (the default) the process ends with the test: the suite's tear-down and the closing of
 * the fixture follow inside, before the verdict. A process that runs several says so first with
 * rf_test_keep_process(true), and after the last calls rf_test_end_process, which does both and
 * writes failures, if any, and a verdict to fd. Kinds of the record beside those in record.c:
 *   lost   the fixture's device was lost in this test, and why: no GPU test of this process, and
 *          perhaps of no process, will pass from now on */
enum rf_test_verdict rf_test_run_here(const struct rf_test *test, int fd);
void rf_test_keep_process(bool keep);
enum rf_test_verdict rf_test_end_process(int fd);
/* Where a failure is told: as rf_test_fail, which is made of it, with the text in one piece. */
void rf_test_fail_text(const char *file, int line, bool fatal, const char *text);
/* Calls it; true where it came back, false where an assertion left it. The test's thread only. */
bool rf_test_protected(void (*call)(void *user), void *user);
/* Leaves like a fatal assertion that has been reported already. */
void rf_test_leave(void);
bool rf_test_is_running(void);
bool rf_test_is_own_thread(void);
enum rf_test_verdict rf_test_verdict_so_far(void);
bool rf_test_is_debug(void); /* RF_TEST_DEBUG */
/* One line of the running test's record. */
void rf_test_say(const char *kind, const char *format, ...) RF_PRINTF(2, 3);
void rf_test_set_seed(uint64_t seed);
uint64_t rf_test_draw_seed(void);

/* ---- compare.c ---- */

/* rf_test_array that never leaves: false where the arrays differ, which is then recorded. */
bool rf_test_array_agrees(const char *file, int line, const char *what, enum rf_dtype dtype, const void *actual,
                          const void *expected, size_t count, struct rf_compare how);

/* ---- fixture.c, leaks.c: the device that the tests of a process share ---- */

/* Around one test. before: fails it where the device was lost earlier and it wants one. mark:
 * what is made from here on is the test's, not its suite's. after: drains, judges, releases. */
void rf_fixture_before(const struct rf_test *test); /* NULL: behind the last */
void rf_fixture_mark(void);
void rf_fixture_after(void);
/* After the last: reports what suites left, and closes. */
void rf_fixture_end(void);

/* ---- threads.c: threads that a test started and left running ---- */

void rf_test_threads_before(void);
void rf_test_threads_after(const struct rf_test *test);

#endif
