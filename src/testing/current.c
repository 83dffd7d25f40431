/* The test that runs in this process: failing, skipping, noting, and the seed.
 *
 * Invariants: failures go to the record the moment they happen, so a later crash does not lose
 * them. A fatal failure leaves the body by longjmp on the test's own thread, ends any other
 * thread, and ends a forked child, which must never run the rest of the runner. */
#include "testing_impl.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define MOST_FAILURES 50 /* told in words; the rest is counted */

static struct {
    jmp_buf leave;
    pthread_t thread;
    pid_t process;
    int fd;
    bool running;
    atomic_uint failures;
    atomic_bool skipped;
} current = {.fd = -1};

static struct {
    bool set;
    uint64_t value;
} seed;

enum rf_test_verdict rf_test_run_here(const struct rf_test *test, int fd) {
    current.thread = pthread_self();
    current.process = getpid();
    current.fd = fd;
    atomic_store(&current.failures, 0);
    atomic_store(&current.skipped, false);
    current.running = true;
    if (setjmp(current.leave) == 0) test->run();
    current.running = false;

    unsigned failures = atomic_load(&current.failures);
    if (failures > MOST_FAILURES) rf_test_record_write(fd, "failure", "and %u more", failures - MOST_FAILURES);
    enum rf_test_verdict verdict = failures                        ? RF_TEST_FAILED
                                   : atomic_load(&current.skipped) ? RF_TEST_SKIPPED
                                                                   : RF_TEST_PASSED;
    fflush(NULL);
    rf_test_record_write(fd, "verdict", "%s",
                         verdict == RF_TEST_FAILED    ? "failed"
                         : verdict == RF_TEST_SKIPPED ? "skipped"
                                                      : "passed");
    current.fd = -1;
    return verdict;
}

static void leave_test(int exit_status) {
    if (getpid() != current.process) {
        fflush(NULL);
        _exit(exit_status);
    }
    if (!pthread_equal(pthread_self(), current.thread)) pthread_exit(NULL);
    longjmp(current.leave, 1);
}

/* Paths are told from the source root: the build folder's "../" says nothing. */
static const char *short_path(const char *file) {
    while (strncmp(file, "../", 3) == 0) file += 3;
    return file;
}

void rf_test_fail(const char *file, int line, bool fatal, const char *format, ...) {
    char text[1800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!current.running) {
        /* Used without the runner: say it and, where the test should end, end. */
        fprintf(stderr, "%s:%d: %s\n", short_path(file), line, text);
        if (fatal) exit(1);
        return;
    }
    if (atomic_fetch_add(&current.failures, 1) < MOST_FAILURES)
        rf_test_record_write(current.fd, "failure", "%s:%d: %s", short_path(file), line, text);
    if (fatal) leave_test(1);
}

void rf_test_skip(const char *file, int line, const char *format, ...) {
    char text[1800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!current.running) {
        fprintf(stderr, "%s:%d: skipped: %s\n", short_path(file), line, text);
        exit(77);
    }
    if (!atomic_exchange(&current.skipped, true)) rf_test_record_write(current.fd, "skip", "%s", text);
    leave_test(77);
}

void rf_test_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

uint64_t rf_test_draw_seed(void) {
    uint32_t drawn; /* short enough to type again */
    if (getrandom(&drawn, sizeof drawn, 0) == (ssize_t)sizeof drawn) return drawn;
    return (uint64_t)rf_test_now_ns() & UINT32_MAX;
}

void rf_test_set_seed(uint64_t value) {
    seed.value = value;
    seed.set = true;
}

uint64_t rf_test_seed(void) {
    if (!seed.set) {
        const char *text = getenv("RF_TEST_SEED");
        rf_test_set_seed(text && *text ? strtoull(text, NULL, 0) : rf_test_draw_seed());
    }
    return seed.value;
}

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
