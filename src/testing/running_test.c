/* The test that runs in this process: its set-ups and tear-downs, failing, skipping, tracing.
 *
 * Invariants: a failure goes to the record the moment it happens, so a later crash does not lose it. A fatal failure
 * leaves the running function by longjmp on the thread of the test, ends any other thread, and ends a forked child,
 * which must never run the rest of the runner. Tear-down and the clean-up of the fixture follow in every case.
 * leave_with asserts process and thread; harness.crashes_are_named (tests/testing/test_harness.c) looks whether a
 * failure is in the record before the crash. */
#include "testing_impl.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FAILURES_MAX 50        /* reported in full; further ones are only counted */
#define TEXT_BYTES_MAX 6000    /* text of one failure, including its traces */
#define RECORD_TEXT_BYTES 1700 /* in one line of the record */

/* Where a failing assertion jumps to; the innermost is current.leave. */
struct leave {
    jmp_buf target;
    struct leave *outer;
};

static struct {
    struct leave *leave;
    pthread_t thread;
    pid_t process;
    atomic_int fd;
    atomic_bool running, skipped;
    atomic_uint failures;
    bool keep_process, debug;
    char why[600];         /* the last failure or skip; tests after a failed set-up of the suite repeat it */
    pthread_mutex_t mutex; /* guards why, and a failure of several lines */
} current = {.fd = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct rf_trace *trace;

enum suite_state { SUITE_NEW, SUITE_READY, SUITE_FAILED, SUITE_SKIPPED, SUITE_ENDED };

static void begin(int fd) {
    const char *debug = getenv("RF_TEST_DEBUG");
    current.debug = debug && *debug && strcmp(debug, "0") != 0;
    current.thread = pthread_self();
    current.process = getpid();
    current.leave = NULL;
    trace = NULL;
    atomic_store(&current.fd, fd);
    atomic_store(&current.failures, 0);
    atomic_store(&current.skipped, false);
    atomic_store(&current.running, true);
}

enum rf_test_verdict rf_test_verdict_so_far(void) {
    if (atomic_load(&current.failures)) return RF_TEST_FAILED;
    return atomic_load(&current.skipped) ? RF_TEST_SKIPPED : RF_TEST_PASSED;
}

static enum rf_test_verdict end(int fd) {
    atomic_store(&current.running, false);
    unsigned failures = atomic_load(&current.failures);
    if (failures > FAILURES_MAX) rf_test_record_write(fd, "failure", "and %u more", failures - FAILURES_MAX);
    enum rf_test_verdict verdict = rf_test_verdict_so_far();
    fflush(NULL);
    rf_test_record_write(fd, "verdict", "%s",
                         verdict == RF_TEST_FAILED    ? "failed"
                         : verdict == RF_TEST_SKIPPED ? "skipped"
                                                      : "passed");
    atomic_store(&current.fd, -1);
    return verdict;
}

/* ---- one test ---- */

static bool is_good(void) {
    return rf_test_verdict_so_far() == RF_TEST_PASSED;
}

static void call_plain(void *user) {
    (*(void (**)(void))user)();
}

static void call_body(void *user) {
    const struct rf_test *test = user;
    if (test->run_row && test->row)
        test->run_row(test->row);
    else
        test->run();
}

/* Runs the set-up that is due; false, with the test failed or skipped, if it did not succeed. */
static bool enter_suite(struct rf_test_suite *suite) {
    if (suite->state == SUITE_NEW || suite->state == SUITE_ENDED) {
        suite->state = SUITE_READY;
        if (suite->options.setup) rf_test_protected(call_plain, &suite->options.setup);
        if (is_good()) return true;
        suite->state = atomic_load(&current.failures) ? SUITE_FAILED : SUITE_SKIPPED;
        pthread_mutex_lock(&current.mutex);
        free(suite->why);
        suite->why = rf_test_copy(current.why);
        pthread_mutex_unlock(&current.mutex);
        return false;
    }
    if (suite->state == SUITE_READY) return true;
    char text[1000];
    snprintf(text, sizeof text, "the set-up of suite %s %s: %s", suite->name,
             suite->state == SUITE_FAILED ? "failed" : "skipped", suite->why);
    if (suite->state == SUITE_FAILED) {
        rf_test_fail_text(suite->file, suite->line, false, text);
    } else if (!atomic_exchange(&current.skipped, true)) {
        rf_test_say("skip", "%s", suite->why);
    }
    return false;
}

static void leave_suites(void) {
    for (struct rf_test_suite *suite = rf_test_first_suite(); suite; suite = suite->next) {
        if (suite->state != SUITE_NEW && suite->state != SUITE_ENDED && suite->options.teardown)
            rf_test_protected(call_plain, &suite->options.teardown);
        suite->state = SUITE_ENDED;
        free(suite->why);
        suite->why = NULL;
    }
}

static void run_test(const struct rf_test *test) {
    if (test->options.setup) rf_test_protected(call_plain, (void *)&test->options.setup);
    if (is_good()) rf_test_protected(call_body, (void *)test);
    if (test->options.teardown) rf_test_protected(call_plain, (void *)&test->options.teardown);
}

enum rf_test_verdict rf_test_run_here(const struct rf_test *test, int fd) {
    begin(fd);
    struct rf_test_suite *suite = rf_test_find_suite(test->suite);
    rf_test_threads_before();
    rf_fixture_before(test);
    if (is_good() && (!suite || enter_suite(suite))) {
        rf_fixture_mark();
        run_test(test);
    }
    rf_fixture_after();
    if (!current.keep_process) {
        leave_suites();
        rf_fixture_end();
    }
    rf_test_threads_after(test);
    return end(fd);
}

void rf_test_keep_process(bool keep) {
    current.keep_process = keep;
}

enum rf_test_verdict rf_test_end_process(int fd) {
    begin(fd);
    rf_fixture_before(NULL);
    leave_suites();
    rf_fixture_end();
    return end(fd);
}

bool rf_test_is_running(void) {
    return atomic_load(&current.running);
}

bool rf_test_is_own_thread(void) {
    return getpid() == current.process && pthread_equal(pthread_self(), current.thread);
}

bool rf_test_is_debug(void) {
    return current.debug;
}

/* ---- leaving ---- */

bool rf_test_protected(void (*call)(void *user), void *user) {
    struct leave here = {.outer = current.leave};
    struct rf_trace *outer_trace = trace;
    volatile bool returned = false;
    current.leave = &here;
    if (setjmp(here.target) == 0) {
        call(user);
        returned = true;
    }
    current.leave = here.outer;
    trace = outer_trace; /* the frames inside no longer exist */
    return returned;
}

static void leave_with(int exit_status) {
    if (getpid() != current.process) {
        fflush(NULL);
        _exit(exit_status);
    }
    if (!pthread_equal(pthread_self(), current.thread)) pthread_exit(NULL);
    if (!current.leave) return; /* between set-up, body and tear-down there is nothing to leave */
    rf_assert(getpid() == current.process && pthread_equal(pthread_self(), current.thread));
    longjmp(current.leave->target, 1);
}

void rf_test_leave(void) {
    leave_with(1);
}

/* ---- failing and skipping ---- */

/* Shows paths relative to the source root: the "../" of the build folder says nothing. */
static const char *short_path(const char *file) {
    while (strncmp(file, "../", 3) == 0) file += 3;
    return file;
}

/* Not in a forked child: another thread may have held it at the fork. */
static bool lock(void) {
    return getpid() == current.process && pthread_mutex_lock(&current.mutex) == 0;
}

static void unlock(bool locked) {
    if (locked) pthread_mutex_unlock(&current.mutex);
}

static void keep_why(const char *text) {
    bool locked = lock();
    size_t length = strnlen(text, sizeof current.why - 1);
    memcpy(current.why, text, length);
    current.why[length] = 0;
    unlock(locked);
}

/* Written in pieces that fit a line of the record, cut between lines if possible, and kept together even if another
 * thread fails at the same time. */
static void record_failure(const char *text) {
    int fd = atomic_load(&current.fd);
    bool locked = lock();
    while (*text) {
        size_t length = strlen(text), step;
        if (length > RECORD_TEXT_BYTES) {
            const char *cut = memrchr(text, '\n', RECORD_TEXT_BYTES);
            length = cut && cut > text ? (size_t)(cut - text) : RECORD_TEXT_BYTES;
        }
        step = text[length] == '\n' ? length + 1 : length;
        rf_test_record_write(fd, "failure", "%.*s", (int)length, text);
        text += step;
    }
    unlock(locked);
}

/* "file:line: text", the thread if it is another one, and the traces, innermost first. */
static void compose(char *whole, size_t size, const char *file, int line, const char *text) {
    size_t length = (size_t)snprintf(whole, size, "%s:%d: %s", short_path(file), line, text);
    if (length < size && getpid() != current.process)
        length += (size_t)snprintf(whole + length, size - length, "\n  in the forked process %d", (int)getpid());
    else if (length < size && atomic_load(&current.running) && !pthread_equal(pthread_self(), current.thread))
        length += (size_t)snprintf(whole + length, size - length, "\n  on another thread, %ld", syscall(SYS_gettid));
    for (const struct rf_trace *at = trace; at && length < size; at = at->outer)
        length += (size_t)snprintf(whole + length, size - length, "\n  in: %s (%s:%d)", at->text,
                                   short_path(at->file), at->line);
}

void rf_test_fail_text(const char *file, int line, bool fatal, const char *text) {
    char whole[TEXT_BYTES_MAX];
    compose(whole, sizeof whole, file, line, text);
    if (!atomic_load(&current.running)) {
        /* Called without the runner, or by a thread that outlived its test: prints it and, if the test should end,
         * ends. */
        fprintf(stderr, "%s\n", whole);
        if (!fatal) return;
        if (current.process == getpid() && !pthread_equal(pthread_self(), current.thread)) pthread_exit(NULL);
        exit(1);
    }
    keep_why(whole);
    if (atomic_fetch_add(&current.failures, 1) < FAILURES_MAX) record_failure(whole);
    if (fatal) leave_with(1);
}

void rf_test_fail(const char *file, int line, bool fatal, const char *format, ...) {
    char text[TEXT_BYTES_MAX - 500];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rf_test_fail_text(file, line, fatal, text);
}

void rf_test_skip(const char *file, int line, const char *format, ...) {
    char text[1800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!atomic_load(&current.running)) {
        fprintf(stderr, "%s:%d: skipped: %s\n", short_path(file), line, text);
        exit(77);
    }
    keep_why(text);
    if (!atomic_exchange(&current.skipped, true)) rf_test_say("skip", "%s", text);
    leave_with(77);
}

void rf_test_say(const char *kind, const char *format, ...) {
    char text[1800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rf_test_record_write(atomic_load(&current.fd), kind, "%s", text);
}

void rf_test_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    flockfile(stdout);
    vprintf(format, args);
    putchar_unlocked('\n');
    fflush_unlocked(stdout);
    funlockfile(stdout);
    va_end(args);
}

/* ---- traces ---- */

void rf_trace_enter(struct rf_trace *frame, const char *file, int line, const char *format, ...) {
    frame->file = file;
    frame->line = line;
    va_list args;
    va_start(args, format);
    vsnprintf(frame->text, sizeof frame->text, format, args);
    va_end(args);
    frame->outer = trace;
    trace = frame;
}

void rf_trace_leave(struct rf_trace *frame) {
    trace = frame->outer;
}

/* ---- used by the whole harness ---- */

int64_t rf_test_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void *rf_test_grow(void *old, size_t bytes) {
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "the test runner has no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

char *rf_test_copy(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(rf_test_grow(NULL, bytes), text, bytes);
}
