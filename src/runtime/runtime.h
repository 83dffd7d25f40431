/* The runtime: what a process has once, whatever it computes on.
 *
 *   log, options     from base/; they apply to everything made from this runtime
 *   host             the host budget: how much host memory this runtime may take
 *   cpu              the CPU's description: its SIMD level, and how many threads may compute on it
 *   threads          the one thread pool, which every CPU op of this runtime runs on
 *   gpu              the GPU layer's state (the probe's result, drivers, devices); opaque to the other layers
 *
 * Threads: every function here may be called from any thread. The thread pool starts with its first user and ends
 * with the runtime; the number of threads of a process does not grow with its engines, sessions or executors.
 *
 * Invariants:
 *   1. log, options, timeout and cpu do not change after creation (not asserted: only rf_runtime_create writes them)
 *   2. there is one thread pool, and it never shrinks (asserted in rf_runtime_threads)
 *   3. gpu is set once (asserted in rf_gpu_state, the only function that sets it) */
#ifndef RF_RUNTIME_RUNTIME_H
#define RF_RUNTIME_RUNTIME_H

#include "base/base.h"
#include "runtime/cpu_info.h"
#include "runtime/host_budget.h"
#include "runtime/thread_pool.h"

struct rf_gpu_state; /* defined by the GPU layer */

struct rf_runtime {
    struct rf_log log;
    rf_progress_fn progress;
    void *progress_user;
    struct rf_options *options;
    int64_t timeout_ns; /* RF_TIMEOUT_MS */
    struct rf_host_budget host;
    struct rf_cpu_info cpu;

    pthread_mutex_t threads_mutex;
    struct rf_thread_pool *threads; /* NULL: nothing has run on the CPU yet */

    _Atomic uint64_t fail_countdown; /* RF_FAIL_ALLOC: the allocation that makes it 0 is refused; 0: none */
    const char *fail_path;           /* the file that is made then; NULL: none */
    /* A page that the kernel clears in a forked child, because neither vendor's driver survives a fork. */
    _Atomic unsigned char *alive;

    pthread_mutex_t gpu_mutex;
    struct rf_gpu_state *gpu; /* NULL: no GPU was asked for yet */
    void (*gpu_destroy)(struct rf_gpu_state *gpu);
};

/* How many threads a CPU op may use: as many as asked for. If asked is 0: RF_THREADS, else one per usable core. */
unsigned rf_runtime_thread_count(const struct rf_runtime *runtime, unsigned asked);
/* Gives the thread pool, with at least count threads, or with fewer where the system gives no more. It lives as long
 * as the runtime. */
rf_status rf_runtime_threads(struct rf_runtime *runtime, unsigned count, struct rf_thread_pool **out);
/* Writes a description such as "CPU, avx512, 2 threads" for ops of that SIMD level and number of threads. Starts no
 * thread; returns text. */
const char *rf_runtime_describe_cpu(const struct rf_runtime *runtime, enum rf_simd_level level, unsigned threads,
                                    char *text, size_t size);

/* Returns RF_E_BUDGET if this allocation is the one that RF_FAIL_ALLOC names. */
rf_status rf_runtime_injected_failure(struct rf_runtime *runtime);

#endif
