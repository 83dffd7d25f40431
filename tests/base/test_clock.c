/* Time and deadlines. Only lower bounds are tested: nothing here depends on speed. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

RF_TEST(clock, goes_forward) {
    int64_t before = rf_now_ns();
    rf_sleep_ns(2000000);
    RF_ASSERT(rf_now_ns() - before >= 2000000);
    rf_sleep_ns(0);
    rf_sleep_ns(-5);
}

RF_TEST(clock, deadline_does_not_overflow) {
    RF_ASSERT(rf_deadline_after(INT64_MAX) == INT64_MAX);
    int64_t now = rf_now_ns();
    RF_ASSERT(rf_deadline_after(1000) >= now + 1000);
    now = rf_now_ns();
    int64_t past = rf_deadline_after(-1);
    RF_ASSERT(past >= now && past <= rf_now_ns());
}

static void on_alarm(int number) {
    (void)number;
}

RF_TEST(clock, sleep_outlasts_signals) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    int64_t before = rf_now_ns();
    rf_sleep_ns(30000000);
    RF_ASSERT(rf_now_ns() - before >= 30000000);
}

static void *try_lock(void *mutex) {
    int64_t before = rf_now_ns();
    RF_ASSERT(!rf_mutex_lock_until(mutex, rf_deadline_after(20000000)));
    RF_ASSERT(rf_now_ns() - before >= 20000000);
    /* a deadline in the past, far or near, is asked once */
    RF_ASSERT(!rf_mutex_lock_until(mutex, 0));
    RF_ASSERT(!rf_mutex_lock_until(mutex, -1));
    return NULL;
}

RF_TEST(clock, lock_gives_up) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    RF_ASSERT(rf_mutex_lock_until(&mutex, rf_deadline_after(0)));
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, try_lock, &mutex) == 0);
    pthread_join(thread, NULL);
    pthread_mutex_unlock(&mutex);
    RF_ASSERT(rf_mutex_lock_until(&mutex, 0));
    pthread_mutex_unlock(&mutex);
}
