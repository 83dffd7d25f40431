/* What the files of the fast CPU ops share. */
#ifndef RF_CPU_FAST_IMPL_H
#define RF_CPU_FAST_IMPL_H

#include "base/base.h"
#include "cpu/fast.h"
#include "runtime/host_memory.h"
#include "runtime/thread_pool.h"

struct rf_cpu {
    struct rf_thread_pool *pool;
    struct rf_thread_pool *own_pool; /* NULL: the pool is shared */
    const struct rf_simd *simd;
    unsigned threads;
    struct rf_host_budget *host; /* scratch is charged to it; NULL: to none */
    bool rehearsing;             /* ops reserve scratch and compute nothing */
    void *scratch;               /* aligned to 64 bytes */
    uint64_t scratch_bytes;
};

static inline void rf_cpu_run(struct rf_cpu *cpu, size_t count, size_t grain, rf_thread_pool_fn fn, void *user) {
    if (!cpu->rehearsing) rf_thread_pool_run(cpu->pool, cpu->threads, count, grain, fn, user);
}

/* Makes scratch at least this large; its contents are lost. op is for the error message. */
rf_status rf_cpu_reserve(struct rf_cpu *cpu, const char *op, uint64_t bytes);

static inline bool rf_cpu_is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
/* Chooses the rows of a task: some tens of thousands of elements make it worth a thread's start. */
static inline size_t rf_cpu_grain(size_t columns) {
    return columns >= 16384 ? 1 : 16384 / (columns ? columns : 1);
}
static inline uint64_t rf_cpu_round_64(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* ---- arrays of f32, f16 and bf16 ---- */

static inline size_t rf_cpu_element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}
static inline const void *rf_cpu_at(enum rf_dtype dtype, const void *base, size_t index) {
    return base ? (const char *)base + index * rf_cpu_element_bytes(dtype) : NULL;
}
static inline void *rf_cpu_at_out(enum rf_dtype dtype, void *base, size_t index) {
    return (char *)base + index * rf_cpu_element_bytes(dtype);
}
/* Checks types and pointers of an op: out, a and b must be given unless the op is empty. */
rf_status rf_cpu_check(const struct rf_cpu *cpu, const char *op, enum rf_dtype dtype, bool empty, const void *out,
                       const void *a, const void *b);

#endif
