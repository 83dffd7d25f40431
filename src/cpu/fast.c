/* The object of the fast CPU ops (see fast.h). */
#include "cpu/fast_impl.h"

#include <stdio.h>
#include <stdlib.h>

rf_status rf_cpu_create(const struct rf_cpu_params *params, struct rf_cpu **out) {
    static const struct rf_cpu_params defaults = {0};
    if (!params) params = &defaults;
    if (!out) return rf_fail(RF_E_INVALID, "rf_cpu_create: out is NULL");
    if ((unsigned)params->level >= RF_SIMD_LEVELS)
        return rf_fail(RF_E_INVALID, "rf_cpu_create: %d is no SIMD level", (int)params->level);
    const struct rf_simd *simd = rf_simd_table(params->level);
    if (!simd)
        return rf_fail(RF_E_UNSUPPORTED, "this processor has not the SIMD level %s: choose auto",
                       rf_simd_name(params->level));
    struct rf_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return rf_fail(RF_E_NO_MEMORY, "no memory for the CPU backend");
    cpu->pool = params->pool;
    rf_status status = RF_OK;
    if (!cpu->pool) {
        status = rf_thread_pool_create(params->threads, &cpu->own_pool);
        cpu->pool = cpu->own_pool;
    }
    if (status) {
        free(cpu);
        return status;
    }
    cpu->simd = simd;
    cpu->host = params->host;
    unsigned all = rf_thread_pool_threads(cpu->pool);
    cpu->threads = params->threads ? RF_MIN(params->threads, all) : all;
    *out = cpu;
    return RF_OK;
}

void rf_cpu_destroy(struct rf_cpu **handle) {
    struct rf_cpu *cpu = handle ? *handle : NULL;
    if (!cpu) return;
    *handle = NULL;
    rf_thread_pool_destroy(&cpu->own_pool);
    rf_host_free(cpu->host, cpu->scratch, cpu->scratch_bytes);
    free(cpu);
}

unsigned rf_cpu_threads(const struct rf_cpu *cpu) {
    return cpu->threads;
}
const struct rf_simd *rf_cpu_simd(const struct rf_cpu *cpu) {
    return cpu->simd;
}

void rf_cpu_rehearse(struct rf_cpu *cpu, bool on) {
    cpu->rehearsing = on;
}

/* What is there is given back first, so that both are never held at once. */
rf_status rf_cpu_reserve(struct rf_cpu *cpu, const char *op, uint64_t bytes) {
    if (bytes <= cpu->scratch_bytes) return RF_OK;
    rf_host_free(cpu->host, cpu->scratch, cpu->scratch_bytes);
    cpu->scratch = NULL;
    cpu->scratch_bytes = 0;
    char what[64];
    snprintf(what, sizeof what, "%s: scratch memory", op);
    rf_status status = rf_host_alloc(cpu->host, bytes, what, &cpu->scratch);
    if (!status) cpu->scratch_bytes = bytes;
    return status;
}

rf_status rf_cpu_check(const struct rf_cpu *cpu, const char *op, enum rf_dtype dtype, bool empty, const void *out,
                       const void *a, const void *b) {
    if (!cpu) return rf_fail(RF_E_INVALID, "%s: cpu is NULL", op);
    if (!rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "%s: type %s is not f32, f16 or bf16", op, rf_dtype_name(dtype));
    if (!empty && (!out || !a || !b)) return rf_fail(RF_E_INVALID, "%s: a tensor is NULL", op);
    uintptr_t together = (uintptr_t)out | (uintptr_t)a | (uintptr_t)b;
    if (together % rf_cpu_element_bytes(dtype))
        return rf_fail(RF_E_INVALID, "%s: a tensor is not aligned to its elements", op);
    return RF_OK;
}
