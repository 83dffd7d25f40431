/* Time: one monotonic clock in nanoseconds, deadlines that cannot overflow, and a lock that gives up at a deadline.
 * It must not use the wall clock, which can jump. */
#include "base/base.h"

#include <errno.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

static struct timespec to_timespec(int64_t ns) {
    if (ns < 0) ns = 0;
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = (long)(ns % NS_PER_S)};
}

int64_t rf_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t rf_deadline_after(int64_t timeout_ns) {
    int64_t now = rf_now_ns(), deadline;
    if (timeout_ns < 0) timeout_ns = 0;
    return __builtin_add_overflow(now, timeout_ns, &deadline) ? INT64_MAX : deadline;
}

void rf_sleep_ns(int64_t ns) {
    if (ns <= 0) return;
    struct timespec until = to_timespec(rf_deadline_after(ns));
    /* The time is absolute, so that a stream of signals does not lengthen the sleep. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

bool rf_mutex_lock_until(pthread_mutex_t *mutex, int64_t deadline_ns) {
    struct timespec until = to_timespec(deadline_ns);
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until) == 0;
}
