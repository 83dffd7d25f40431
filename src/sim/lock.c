#include "sim/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Present only in a process with thread sanitizer. */
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));
extern void AnnotateIgnoreReadsBegin(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreReadsEnd(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreWritesBegin(const char *file, int line) __attribute__((weak));
extern void AnnotateIgnoreWritesEnd(const char *file, int line) __attribute__((weak));

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

/* What happens under the lock is internal to the driver. Otherwise thread sanitizer would see it through the library
 * functions that it replaces (memcpy, free), but would not see the lock that makes it correct. */
void sim_lock(struct sim_lock *lock) {
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->state, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
            futex(&lock->state, FUTEX_WAIT, 2, NULL);
    if (AnnotateIgnoreReadsBegin && AnnotateIgnoreWritesBegin) {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
}

void sim_unlock(struct sim_lock *lock) {
    if (AnnotateIgnoreReadsEnd && AnnotateIgnoreWritesEnd) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        futex(&lock->state, FUTEX_WAKE, 1, NULL);
}

void sim_wait(struct sim_signal *signal, struct sim_lock *lock, int64_t until_ns) {
    uint32_t sequence = atomic_load_explicit(&signal->sequence, memory_order_relaxed);
    struct timespec left, *timeout = NULL;
    if (until_ns >= 0) {
        int64_t ns = until_ns - sim_now_ns();
        if (ns <= 0) return;
        left = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        timeout = &left;
    }
    signal->waiters++;
    sim_unlock(lock);
    futex(&signal->sequence, FUTEX_WAIT, sequence, timeout);
    sim_lock(lock);
    signal->waiters--;
}

void sim_wake(struct sim_signal *signal) {
    if (!signal->waiters) return;
    atomic_fetch_add_explicit(&signal->sequence, 1, memory_order_relaxed);
    futex(&signal->sequence, FUTEX_WAKE, INT32_MAX, NULL);
}

int64_t sim_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sim_sleep_ns(int64_t ns) {
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void sim_order_give(void *address) {
    if (__tsan_release) __tsan_release(address);
}

void sim_order_take(void *address) {
    if (__tsan_acquire) __tsan_acquire(address);
}
