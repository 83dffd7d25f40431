/* The thread pool (see pool.h).
 *
 * Invariants
 * 1. The job's fields are written while the gate is closed and nobody is inside, and read only inside: whoever enters
 *    sees them (release when it opens, acquire when it is entered), and they stay until the last has left.
 * 2. A worker that wakes late finds the gate closed and goes back to sleep: a job waits for its chunks, never for a
 *    worker that took none. Waking a thread can take longer than a whole job.
 * 3. Chunks are numbered; thread t owns an equal share of the numbers and takes them in order, then takes from the
 *    others' shares. A share's `next` only grows, so no chunk is taken twice. The caller is inside until all are
 *    taken, so none is forgotten.
 *
 * It must not allocate or fail after creation. */
#include "cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#define CACHE_LINE 64
#define SPIN_NS INT64_C(100000) /* the next op of a graph comes sooner than that */
enum { SPINS_PER_LOOK = 64 };   /* at the clock */
enum { OPEN = 1, ONE = 2 };     /* of the gate: whether it may be entered, and each that is inside */

struct share {
    _Alignas(CACHE_LINE) atomic_size_t next;
    size_t end;
};

struct rf_pool {
    _Alignas(CACHE_LINE) atomic_uint epoch; /* counts jobs; workers wait for it to change */
    atomic_uint sleepers;                   /* workers that may be asleep on it */
    _Alignas(CACHE_LINE) atomic_uint gate;
    _Alignas(CACHE_LINE) rf_pool_fn fn;
    void *user;
    size_t count, grain;
    atomic_bool stop;
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

/* Waits until *word differs from value; gives what it then is. sleepers: who wakes looks at it first; or NULL. */
static unsigned wait_change(atomic_uint *word, unsigned value, atomic_uint *sleepers) {
    unsigned now;
    int64_t started = rf_now_ns();
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if ((now = atomic_load_explicit(word, memory_order_acquire)) != value) return now;
            relax();
        }
    } while (rf_now_ns() - started < SPIN_NS);
    /* Sequentially consistent, as is the change: either the one sees the sleeper or the other the change. */
    if (sleepers) atomic_fetch_add(sleepers, 1);
    while ((now = atomic_load(word)) == value) futex_wait(word, value);
    if (sleepers) atomic_fetch_sub(sleepers, 1);
    return now;
}

static void next_epoch(struct rf_pool *pool) {
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->epoch, INT32_MAX);
}

static bool enter(struct rf_pool *pool) {
    unsigned gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    while (gate & OPEN)
        if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + ONE, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* The last one wakes the caller, who waits once it has closed the gate. */
static void leave(struct rf_pool *pool) {
    if (atomic_fetch_sub_explicit(&pool->gate, ONE, memory_order_release) == ONE) futex_wake(&pool->gate, 1);
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
        seen = wait_change(&pool->epoch, seen, &pool->sleepers);
        if (atomic_load(&pool->stop)) return NULL;
        if (!enter(pool)) continue;
        take_part(pool, worker->thread);
        leave(pool);
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
    atomic_store_explicit(&pool->gate, OPEN, memory_order_release);
    next_epoch(pool);
    take_part(pool, 0);
    unsigned gate = atomic_fetch_and_explicit(&pool->gate, ~(unsigned)OPEN, memory_order_acquire) & ~(unsigned)OPEN;
    while (gate) gate = wait_change(&pool->gate, gate, NULL);
}

rf_status rf_pool_create(unsigned threads, struct rf_pool **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_pool_create: out is NULL");
    if (threads > RF_POOL_MAX_THREADS)
        return rf_fail(RF_E_INVALID, "%u CPU threads: at most %d are possible", threads, RF_POOL_MAX_THREADS);
    if (threads == 0) {
        threads = rf_usable_cores();
        threads = RF_MIN(threads, RF_POOL_MAX_THREADS);
    }
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
    atomic_store(&pool->stop, true);
    next_epoch(pool);
    for (unsigned t = 1; t < pool->started; t++) pthread_join(pool->workers[t - 1].handle, NULL);
    free(pool->shares);
    free(pool->workers);
    free(pool);
}

unsigned rf_pool_threads(const struct rf_pool *pool) {
    return pool->threads;
}
