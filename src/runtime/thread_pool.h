/* The thread pool that CPU ops run on: fork and join, without a queue of jobs.
 *
 * A pool of n threads has n - 1 workers of its own; the caller of rf_thread_pool_run is the nth thread. A runtime has
 * one pool for all that it computes on the CPU. Idle workers spin for a tenth of a millisecond, then sleep on a
 * futex: runs in quick succession cost little, and an idle pool costs nothing.
 *
 * Results must not depend on which thread computes which item: the pool hands out ranges of items in an order that
 * depends on timing (a thread that is done early helps the others), so an item's result has to depend on the item
 * alone. Every op is written that way, so its results are the same bits for any number of threads.
 *
 * Threads: every function may be called from any thread. Runs of several callers take turns, first come, first
 * served. A run must not start another run on the same pool. */
#ifndef RF_RUNTIME_THREAD_POOL_H
#define RF_RUNTIME_THREAD_POOL_H

#include <rocmforge/base.h>

struct rf_thread_pool;

#define RF_THREAD_POOL_MAX 4096

/* threads: at most RF_THREAD_POOL_MAX; 0: as many as this process may run on. RF_E_NO_MEMORY: a thread cannot be
 * started, and nothing is left behind. */
rf_status rf_thread_pool_create(unsigned threads, struct rf_thread_pool **out);
/* Joins the threads. No run may be under way. */
void rf_thread_pool_destroy(struct rf_thread_pool **pool);
/* Makes the pool at least this many threads. RF_E_NO_MEMORY: a thread cannot be started; the pool keeps those it has.
 */
rf_status rf_thread_pool_grow(struct rf_thread_pool *pool, unsigned threads);
unsigned rf_thread_pool_threads(struct rf_thread_pool *pool);

/* Computes items begin to end - 1. thread: a number from 0 to the run's number of threads - 1, for scratch memory. */
typedef void (*rf_thread_pool_fn)(void *user, size_t begin, size_t end, unsigned thread);

/* Calls fn for [0, count) in ranges of at most grain items that begin at multiples of grain, each item once, on at
 * most `threads` threads (0: all of them); returns when all are done. grain 0 counts as 1. */
void rf_thread_pool_run(struct rf_thread_pool *pool, unsigned threads, size_t count, size_t grain,
                        rf_thread_pool_fn fn, void *user);

#endif
