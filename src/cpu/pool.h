/* The thread pool of the CPU side: fork and join, no queue.
 *
 * A pool of n threads has n - 1 of its own; the caller of rf_pool_run is the nth. One pool belongs
 * to one backend object; there are no globals. Idle threads spin for a tenth of a millisecond, then sleep
 * on a futex: a run in quick succession costs little, an idle pool costs nothing.
 *
 * Results must not depend on who computes what: the pool hands out ranges of items in an order
 * that depends on timing (a thread that is done early helps the others), so an item's result has
 * to depend on the item alone. Every op here is written so; the bits are then the same for any
 * number of threads.
 *
 * Threads: one run at a time per pool, from any thread. A run must not start another on the
 * same pool. */
#ifndef RF_CPU_POOL_H
#define RF_CPU_POOL_H

#include <rocmforge/base.h>

struct rf_pool;

#define RF_POOL_MAX_THREADS 4096

/* threads: 0 for as many as this process may run on; at most RF_POOL_MAX_THREADS.
 * RF_E_NO_MEMORY where a thread cannot be started; nothing is left behind then. */
rf_status rf_pool_create(unsigned threads, struct rf_pool **out);
/* Joins the threads. No run may be under way. */
void rf_pool_destroy(struct rf_pool **pool);
unsigned rf_pool_threads(const struct rf_pool *pool);

/* Items begin to end - 1. thread: 0 to rf_pool_threads - 1, for scratch memory. */
typedef void (*rf_pool_fn)(void *user, size_t begin, size_t end, unsigned thread);

/* Calls fn for [0, count) in ranges of at most grain items that begin at multiples of grain, each
 * item once; returns when all are done. grain 0 counts as 1. */
void rf_pool_run(struct rf_pool *pool, size_t count, size_t grain, rf_pool_fn fn, void *user);

#endif
