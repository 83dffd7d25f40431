/* A mutex and a wake-up signal made of futexes.
 *
 * Not pthread's, on purpose: thread sanitizer sees those, and would take every lock inside the driver for an ordering
 * between streams that a real GPU does not give, and so miss the races it is here to find. The orderings that a real
 * driver does give (submitting, waiting, events) are told to it by sim_order_give and sim_order_take. This file and
 * all of src/sim are therefore built without thread sanitizer's instrumentation; see meson.build. */
#ifndef RFSIM_LOCK_H
#define RFSIM_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct sim_lock {
    _Atomic uint32_t state; /* 0: free, 1: held, 2: held, and a thread sleeps */
};
void sim_lock(struct sim_lock *lock);
void sim_unlock(struct sim_lock *lock);

struct sim_signal {
    _Atomic uint32_t sequence;
    uint32_t waiters; /* under the lock */
};
/* Gives the lock up, sleeps until sim_wake or until_ns (CLOCK_MONOTONIC; negative: no limit), takes it again.
 * May return early: test the condition in a loop. */
void sim_wait(struct sim_signal *signal, struct sim_lock *lock, int64_t until_ns);
void sim_wake(struct sim_signal *signal); /* wakes all; the lock is held */

int64_t sim_now_ns(void);
void sim_sleep_ns(int64_t ns);

/* What one thread did before sim_order_give happens before what another does after sim_order_take with the same
 * address. */
void sim_order_give(void *address);
void sim_order_take(void *address);

#endif
