/* The thread pool (see pool.h).
 *
 * Invariants
 * 1. The job's fields are written by the caller before it advances `epoch` (release) and read by a
 *    worker after it saw the new value (acquire); they stay until `running` is 0 again.
 * 2. Each worker takes part in every epoch exactly once and then decrements `running`; so the next
 *    epoch cannot begin while a worker still looks at this one.
 * 3. Chunks are numbered; thread t owns an equal share of the numbers and takes them in order, then
 *    takes from the others' shares. A share's `next` only grows, so no chunk is taken twice.
 *
 * It must not allocate or fail after creation. */
#include "cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#define CACHE_LINE 64
enum { SPINS = 4000 }; /* some ten microseconds */

struct share {
    _Alignas(CACHE_LINE) atomic_size_t next;
    size_t end;
};

struct rf_pool {
    _Alignas(CACHE_LINE) atomic_uint epoch;
    _Alignas(CACHE_LINE) atomic_uint running; /* workers that have not finished this epoch */
    _Alignas(CACHE_LINE) rf_pool_fn fn;
    void *user;
    size_t count, grain;
    bool stop;
    unsigned threads, started;
    struct share *shares;   /* one per thread */
    struct worker *workers; /* threads - 1 */
};

struct worker {
    struct rf_pool *pool;
    unsigned thread; /* 1 to threads - 1 */
    pthread_t handle;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(atomic_uint *word, unsigned while_value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_value, NULL, NULL, 0);
}
static void futex_wake(atomic_uint *word, int how_many) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, how_many, NULL, NULL, 0);
}

/* Waits until *word differs from value; gives what it then is. */
static unsigned wait_change(atomic_uint *word, unsigned value) {
    unsigned now;
    for (int i = 0; i < SPINS; i++) {
        if ((now = atomic_load_explicit(word, memory_order_acquire)) != value) return now;
        relax();
    }
    while ((now = atomic_load_explicit(word, memory_order_acquire)) == value) futex_wait(word, value);
    return now;
}

static void take_part(struct rf_pool *pool, unsigned thread) {
    for (unsigned i = 0; i < pool->threads; i++) {
        unsigned owner = thread + i < pool->threads ? thread + i : thread + i - pool->threads;
        struct share *share = &pool->shares[owner];
        while (atomic_load_explicit(&share->next, memory_order_relaxed) < share->end) {
            size_t chunk = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
            if (chunk >= share->end) break;
            size_t begin = chunk * pool->grain;
            pool->fn(pool->user, begin, begin + RF_MIN(pool->grain, pool->count - begin), thread);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct rf_pool *pool = worker->pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_change(&pool->epoch, seen);
        if (pool->stop) return NULL;
        take_part(pool, worker->thread);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) futex_wake(&pool->running, 1);
    }
}

void rf_pool_run(struct rf_pool *pool, size_t count, size_t grain, rf_pool_fn fn, void *user) {
    if (count == 0) return;
    if (grain == 0) grain = 1;
    size_t chunks = count / grain + (count % grain != 0);
    if (pool->threads == 1 || chunks == 1) {
        for (size_t begin = 0; begin < count; begin += RF_MIN(grain, count - begin))
            fn(user, begin, begin + RF_MIN(grain, count - begin), 0);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    pool->count = count;
    pool->grain = grain;
    for (unsigned t = 0; t < pool->threads; t++) {
        /* The first chunks % threads shares are one longer. */
        size_t each = chunks / pool->threads, more = chunks % pool->threads;
        size_t begin = each * t + RF_MIN(t, more);
        atomic_store_explicit(&pool->shares[t].next, begin, memory_order_relaxed);
        pool->shares[t].end = begin + each + (t < more);
    }
    atomic_store_explicit(&pool->running, pool->threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    futex_wake(&pool->epoch, INT32_MAX);
    take_part(pool, 0);
    unsigned left;
    while ((left = atomic_load_explicit(&pool->running, memory_order_acquire)) != 0)
        wait_change(&pool->running, left);
}

static unsigned usable_threads(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (unsigned)RF_MIN(count, RF_POOL_MAX_THREADS);
}

rf_status rf_pool_create(unsigned threads, struct rf_pool **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_pool_create: out is NULL");
    if (threads > RF_POOL_MAX_THREADS)
        return rf_fail(RF_E_INVALID, "%u CPU threads: at most %d are possible", threads, RF_POOL_MAX_THREADS);
    if (threads == 0) threads = usable_threads();
    struct rf_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    struct share *shares = aligned_alloc(CACHE_LINE, threads * sizeof *shares);
    struct worker *workers = calloc(threads, sizeof *workers);
    if (!pool || !shares || !workers) {
        free(pool);
        free(shares);
        free(workers);
        return rf_fail(RF_E_NO_MEMORY, "no memory for a pool of %u CPU threads", threads);
    }
    *pool = (struct rf_pool){.threads = threads, .started = 1, .shares = shares, .workers = workers};
    for (unsigned t = 0; t < threads; t++) {
        atomic_init(&shares[t].next, 0);
        shares[t].end = 0;
    }
    for (; pool->started < threads; pool->started++) {
        struct worker *worker = &workers[pool->started - 1];
        *worker = (struct worker){.pool = pool, .thread = pool->started};
        int error = pthread_create(&worker->handle, NULL, work, worker);
        if (error) {
            unsigned got = pool->started;
            rf_pool_destroy(&pool);
            return rf_fail(RF_E_NO_MEMORY, "could not start CPU thread %u of %u (%s): ask for fewer with RF_THREADS",
                           got + 1, threads, strerrordesc_np(error));
        }
    }
    *out = pool;
    return RF_OK;
}

void rf_pool_destroy(struct rf_pool **handle) {
    struct rf_pool *pool = handle ? *handle : NULL;
    if (!pool) return;
    *handle = NULL;
    pool->stop = true;
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    futex_wake(&pool->epoch, INT32_MAX);
    for (unsigned t = 1; t < pool->started; t++) pthread_join(pool->workers[t - 1].handle, NULL);
    free(pool->shares);
    free(pool->workers);
    free(pool);
}

unsigned rf_pool_threads(const struct rf_pool *pool) {
    return pool->threads;
}
