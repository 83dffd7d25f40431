/* See thread_pool.h.
 *
 * Invariants
 * 1. The job's fields are written while the gate is closed and no thread is inside, and are read only inside. A
 *    thread that enters sees them (release when the gate opens, acquire when it is entered), and they do not change
 *    until the last thread has left.
 * 2. A worker that wakes late finds the gate closed and goes back to sleep: a job waits for its chunks, never for a
 *    worker that took no chunk. Waking a thread can take longer than a whole job.
 * 3. Chunks are numbered. Each thread that the run may use owns an equal share of the numbers; it takes these in
 *    order, then takes chunks from the other threads' shares. A share's `next` only grows, so no chunk is taken
 *    twice. The caller stays inside until all chunks are taken, so none is forgotten.
 * 4. There is one run at a time: callers take a number and wait for their turn. Only the thread whose turn it is
 *    writes the job and the number of threads.
 *
 * 1 and 3 are asserted at both ends of a run, and 4 where the turn ends. 2 is about time and cannot be asserted.
 *
 * A run must not allocate or fail. */
#include "runtime/thread_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/float_mode.h"

#define CACHE_LINE 64
#define SPIN_NS INT64_C(100000) /* the next op of a graph comes sooner than that */
enum { SPINS_PER_LOOK = 64 };   /* spins between two looks at the clock */
enum { OPEN = 1, ONE = 2 };     /* bits of the gate: OPEN if it may be entered, plus ONE for each thread inside */

struct share {
    _Alignas(CACHE_LINE) atomic_size_t next;
    size_t end;
};

struct rf_thread_pool {
    _Alignas(CACHE_LINE) atomic_uint epoch; /* counts jobs; workers wait for it to change */
    atomic_uint sleepers;                   /* workers that may be asleep on epoch */
    _Alignas(CACHE_LINE) atomic_uint gate;
    _Alignas(CACHE_LINE) rf_thread_pool_fn fn;
    void *user;
    size_t count, grain;
    unsigned limit; /* how many threads this run may use */
    atomic_bool stop;
    _Alignas(CACHE_LINE) atomic_uint taken; /* how many numbers were given to callers */
    atomic_uint served;                     /* the number whose turn it is */
    unsigned threads;                       /* changed only by the holder of the turn */
    struct share *shares;                   /* one per thread; replaced only by the holder of the turn */
    struct worker *workers;                 /* a list of threads - 1 workers */
};

struct worker {
    struct worker *next;
    struct rf_thread_pool *pool;
    unsigned thread; /* 1 to threads - 1 */
    unsigned seen;   /* the epoch it was started in */
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

/* Waits until *word differs from value, and returns the new value. sleepers: a count that the waking thread reads
 * before it wakes anybody; or NULL. */
static unsigned wait_change(atomic_uint *word, unsigned value, atomic_uint *sleepers) {
    unsigned now;
    int64_t started = rf_now_ns();
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if ((now = atomic_load_explicit(word, memory_order_acquire)) != value) return now;
            relax();
        }
    } while (rf_now_ns() - started < SPIN_NS);
    /* This is sequentially consistent, as is the change of the word: either the waking thread sees the sleeper, or
     * the sleeper sees the change. */
    if (sleepers) atomic_fetch_add(sleepers, 1);
    while ((now = atomic_load(word)) == value) futex_wait(word, value);
    if (sleepers) atomic_fetch_sub(sleepers, 1);
    return now;
}

static void next_epoch(struct rf_thread_pool *pool) {
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->epoch, INT32_MAX);
}

static bool enter(struct rf_thread_pool *pool) {
    unsigned gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    while (gate & OPEN)
        if (atomic_compare_exchange_weak_explicit(&pool->gate, &gate, gate + ONE, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* The last thread to leave wakes the caller, which waits once it has closed the gate. */
static void leave(struct rf_thread_pool *pool) {
    if (atomic_fetch_sub_explicit(&pool->gate, ONE, memory_order_release) == ONE) futex_wake(&pool->gate, 1);
}

static void take_part(struct rf_thread_pool *pool, unsigned thread) {
    for (unsigned i = 0; i < pool->limit; i++) {
        unsigned owner = thread + i < pool->limit ? thread + i : thread + i - pool->limit;
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
    struct rf_thread_pool *pool = worker->pool;
    unsigned seen = worker->seen;
    rf_float_mode_set(rf_float_mode_usual()); /* a new thread has the mode of the one that started it */
    for (;;) {
        seen = wait_change(&pool->epoch, seen, &pool->sleepers);
        if (atomic_load(&pool->stop)) return NULL;
        if (!enter(pool)) continue;
        if (worker->thread < pool->limit) take_part(pool, worker->thread);
        leave(pool);
    }
}

/* ---- turns ---- */

static void take_turn(struct rf_thread_pool *pool) {
    unsigned mine = atomic_fetch_add(&pool->taken, 1);
    for (unsigned now = atomic_load_explicit(&pool->served, memory_order_acquire); now != mine;)
        now = wait_change(&pool->served, now, NULL);
}
static void end_turn(struct rf_thread_pool *pool) {
    rf_assert(atomic_load(&pool->served) != atomic_load(&pool->taken)); /* a caller has the turn */
    unsigned next = atomic_fetch_add(&pool->served, 1) + 1;
    if (atomic_load(&pool->taken) != next) futex_wake(&pool->served, INT32_MAX); /* a caller may be asleep */
}

/* Called by the holder of the turn: writes the job, and all threads compute their parts of it. */
static void run_job(struct rf_thread_pool *pool, size_t count, size_t grain, size_t chunks, rf_thread_pool_fn fn,
                    void *user) {
    rf_assert(atomic_load(&pool->gate) == 0); /* closed, and no thread inside */
    pool->fn = fn;
    pool->user = user;
    pool->count = count;
    pool->grain = grain;
    for (unsigned t = 0; t < pool->limit; t++) {
        /* The first chunks % limit shares are one chunk longer. */
        size_t each = chunks / pool->limit, more = chunks % pool->limit;
        size_t begin = each * t + RF_MIN(t, more);
        atomic_store_explicit(&pool->shares[t].next, begin, memory_order_relaxed);
        pool->shares[t].end = begin + each + (t < more);
    }
    atomic_store_explicit(&pool->gate, OPEN, memory_order_release);
    next_epoch(pool);
    take_part(pool, 0);
    unsigned gate = atomic_fetch_and_explicit(&pool->gate, ~(unsigned)OPEN, memory_order_acquire) & ~(unsigned)OPEN;
    while (gate) gate = wait_change(&pool->gate, gate, NULL);
    for (unsigned t = 0; t < pool->limit; t++) rf_assert(atomic_load(&pool->shares[t].next) >= pool->shares[t].end);
}

void rf_thread_pool_run(struct rf_thread_pool *pool, unsigned threads, size_t count, size_t grain,
                        rf_thread_pool_fn fn, void *user) {
    if (count == 0) return;
    if (grain == 0) grain = 1;
    size_t chunks = count / grain + (count % grain != 0);
    if (threads == 1 || chunks == 1) {
        for (size_t begin = 0; begin < count; begin += RF_MIN(grain, count - begin))
            fn(user, begin, begin + RF_MIN(grain, count - begin), 0);
        return;
    }
    take_turn(pool);
    pool->limit = threads ? RF_MIN(threads, pool->threads) : pool->threads;
    rf_assert(pool->limit >= 1 && pool->limit <= pool->threads);
    run_job(pool, count, grain, chunks, fn, user);
    end_turn(pool);
}

/* ---- threads ---- */

/* Called by the holder of the turn, or before any other thread knows the pool. */
static rf_status start_workers(struct rf_thread_pool *pool, unsigned threads) {
    if (threads <= pool->threads) return RF_OK;
    struct share *shares = aligned_alloc(CACHE_LINE, threads * sizeof *shares);
    if (!shares) return rf_fail(RF_E_NO_MEMORY, "no memory for a pool of %u CPU threads", threads);
    for (unsigned t = 0; t < threads; t++) {
        atomic_init(&shares[t].next, 0);
        shares[t].end = 0;
    }
    free(pool->shares);
    pool->shares = shares;
    while (pool->threads < threads) {
        struct worker *worker = malloc(sizeof *worker);
        if (!worker) return rf_fail(RF_E_NO_MEMORY, "no memory for a pool of %u CPU threads", threads);
        *worker = (struct worker){
            .next = pool->workers, .pool = pool, .thread = pool->threads, .seen = atomic_load(&pool->epoch)};
        int error = pthread_create(&worker->handle, NULL, work, worker);
        if (error) {
            free(worker);
            return rf_fail(RF_E_NO_MEMORY, "could not start CPU thread %u of %u (%s): ask for fewer with RF_THREADS",
                           pool->threads + 1, threads, strerrordesc_np(error));
        }
        pool->workers = worker;
        pool->threads++;
    }
    return RF_OK;
}

rf_status rf_thread_pool_create(unsigned threads, struct rf_thread_pool **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_thread_pool_create: out is NULL");
    if (threads > RF_THREAD_POOL_MAX)
        return rf_fail(RF_E_INVALID, "%u CPU threads: at most %d are possible", threads, RF_THREAD_POOL_MAX);
    if (threads == 0) threads = RF_MIN(rf_usable_cores(), (unsigned)RF_THREAD_POOL_MAX);
    struct rf_thread_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    struct share *shares = aligned_alloc(CACHE_LINE, sizeof *shares); /* the caller's share */
    if (!pool || !shares) {
        free(pool);
        free(shares);
        return rf_fail(RF_E_NO_MEMORY, "no memory for a pool of %u CPU threads", threads);
    }
    *pool = (struct rf_thread_pool){.threads = 1, .shares = shares};
    rf_status status = start_workers(pool, threads);
    if (status)
        rf_thread_pool_destroy(&pool);
    else
        *out = pool;
    return status;
}

rf_status rf_thread_pool_grow(struct rf_thread_pool *pool, unsigned threads) {
    if (threads > RF_THREAD_POOL_MAX)
        return rf_fail(RF_E_INVALID, "%u CPU threads: at most %d are possible", threads, RF_THREAD_POOL_MAX);
    take_turn(pool);
    rf_status status = start_workers(pool, threads);
    end_turn(pool);
    return status;
}

void rf_thread_pool_destroy(struct rf_thread_pool **handle) {
    struct rf_thread_pool *pool = handle ? *handle : NULL;
    if (!pool) return;
    *handle = NULL;
    atomic_store(&pool->stop, true);
    next_epoch(pool);
    for (struct worker *worker = pool->workers, *next; worker; worker = next) {
        next = worker->next;
        pthread_join(worker->handle, NULL);
        free(worker);
    }
    free(pool->shares);
    free(pool);
}

unsigned rf_thread_pool_threads(struct rf_thread_pool *pool) {
    take_turn(pool);
    unsigned threads = pool->threads;
    end_turn(pool);
    return threads;
}
