/* Creates and destroys a runtime (see runtime.h). This file must not know what a GPU is. */
#include "runtime/runtime.h"
#include "base/descriptors.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/budget_spec.h"

static enum rf_log_level parse_level(const char *text);
static rf_status parse_fail_alloc(struct rf_runtime *runtime);
static rf_status map_alive_page(struct rf_runtime *runtime);

rf_status rf_runtime_create(const struct rf_runtime_params *params, struct rf_runtime **out) {
    RF_PARAMS(struct rf_runtime_params, own);
    if (!out) return rf_fail(RF_E_INVALID, "rf_runtime_create: out is NULL");
    rf_status status =
        params ? RF_PARAMS_READ_SINCE(struct rf_runtime_params, progress, &own, params, "rf_runtime_create") : RF_OK;
    if (status) return status;
    struct rf_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime) return rf_fail(RF_E_NO_MEMORY, "rf_runtime_create: no host memory");
    status = rf_options_create(own.options, &runtime->options);
    if (status) goto fail;
    struct rf_budget_spec spec; /* refuse a malformed budget now, not when a device is opened */
    status = rf_budget_parse(rf_options_get(runtime->options, "RF_BUDGET"), &spec);
    if (status) {
        status = rf_fail_within(status, "RF_BUDGET");
        goto fail;
    }
    status = parse_fail_alloc(runtime);
    if (status) goto fail;
    status = rf_host_budget_init(&runtime->host, rf_options_get(runtime->options, "RF_HOST_BUDGET"), "");
    if (status) {
        status = rf_fail_within(status, "RF_HOST_BUDGET");
        goto fail;
    }
    status = map_alive_page(runtime);
    if (status) {
        rf_host_budget_finish(&runtime->host);
        goto fail;
    }
    runtime->timeout_ns = RF_MS(rf_options_int(runtime->options, "RF_TIMEOUT_MS"));
    rf_cpu_info_read(&runtime->cpu);
    rf_log_init(&runtime->log, own.log, own.log_user, parse_level(rf_options_get(runtime->options, "RF_LOG")));
    runtime->progress = own.progress;
    runtime->progress_user = own.progress_user;
    pthread_mutex_init(&runtime->threads_mutex, NULL);
    pthread_mutex_init(&runtime->gpu_mutex, NULL);
    *out = runtime;
    return RF_OK;
fail:
    rf_options_destroy(&runtime->options);
    free(runtime);
    return status;
}

void rf_runtime_destroy(struct rf_runtime **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_runtime *runtime = *pointer;
    *pointer = NULL;
    if (runtime->gpu) runtime->gpu_destroy(runtime->gpu);
    rf_thread_pool_destroy(&runtime->threads);
    munmap((void *)(uintptr_t)runtime->alive, (size_t)sysconf(_SC_PAGESIZE));
    rf_host_budget_finish(&runtime->host);
    rf_log_finish(&runtime->log);
    rf_options_destroy(&runtime->options);
    pthread_mutex_destroy(&runtime->threads_mutex);
    pthread_mutex_destroy(&runtime->gpu_mutex);
    free(runtime);
}

const char *rf_runtime_option(const struct rf_runtime *runtime, const char *name) {
    return runtime && name ? rf_options_get(runtime->options, name) : NULL;
}

/* ---- the CPU ---- */

unsigned rf_runtime_thread_count(const struct rf_runtime *runtime, unsigned asked) {
    if (!asked) asked = (unsigned)rf_options_int(runtime->options, "RF_THREADS");
    if (!asked) asked = runtime->cpu.usable_cores;
    return RF_MIN(asked, (unsigned)RF_THREAD_POOL_MAX);
}

rf_status rf_runtime_threads(struct rf_runtime *runtime, unsigned count, struct rf_thread_pool **out) {
    pthread_mutex_lock(&runtime->threads_mutex);
    struct rf_thread_pool *before = runtime->threads;
    rf_status status = runtime->threads ? RF_OK : rf_thread_pool_create(1, &runtime->threads);
    if (!status) status = rf_thread_pool_grow(runtime->threads, count);
    if (status == RF_E_NO_MEMORY && runtime->threads) {
        /* Where no further thread is to be had (RLIMIT_NPROC), those that there are compute the same more slowly. */
        rf_logf(&runtime->log, RF_LOG_INFO, "%s; going on with %u", rf_error_text(),
                rf_thread_pool_threads(runtime->threads));
        status = RF_OK;
    }
    if (!status) *out = runtime->threads;
    rf_assert(!before || runtime->threads == before);
    pthread_mutex_unlock(&runtime->threads_mutex);
    return status;
}

const char *rf_runtime_describe_cpu(const struct rf_runtime *runtime, enum rf_simd_level level, unsigned threads,
                                    char *text, size_t size) {
    snprintf(text, size, "CPU, %s, %u threads", rf_simd_name(level == RF_SIMD_AUTO ? runtime->cpu.best : level),
             rf_runtime_thread_count(runtime, threads));
    return text;
}

/* ---- options that are not kept as text ---- */

static enum rf_log_level parse_level(const char *text) {
    static const char *const names[] = {"none", "error", "warn", "info", "debug"};
    for (size_t i = 0; i < RF_COUNT(names); i++)
        if (!strcmp(text, names[i])) return (enum rf_log_level)i;
    return RF_LOG_WARN;
}

static rf_status parse_fail_alloc(struct rf_runtime *runtime) {
    const char *text = rf_options_get(runtime->options, "RF_FAIL_ALLOC");
    if (!text || !*text) return RF_OK;
    char *end = NULL;
    unsigned long long nth = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (!nth || (*end && *end != ':'))
        return rf_fail(RF_E_SYNTAX, "RF_FAIL_ALLOC=%s: expected a number from 1, or N:PATH", text);
    atomic_store(&runtime->fail_countdown, nth);
    if (*end == ':') runtime->fail_path = end + 1; /* lives as long as the options */
    return RF_OK;
}

rf_status rf_runtime_injected_failure(struct rf_runtime *runtime) {
    uint64_t left = atomic_load(&runtime->fail_countdown);
    while (left && !atomic_compare_exchange_weak(&runtime->fail_countdown, &left, left - 1)) continue;
    if (left != 1) return RF_OK;
    if (runtime->fail_path) {
        int file = rf_open(runtime->fail_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file >= 0) close(file);
    }
    return rf_fail(RF_E_BUDGET, "refused on purpose: RF_FAIL_ALLOC=%s",
                   rf_options_get(runtime->options, "RF_FAIL_ALLOC"));
}

static rf_status map_alive_page(struct rf_runtime *runtime) {
    long page = sysconf(_SC_PAGESIZE);
    void *alive = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED || madvise(alive, (size_t)page, MADV_WIPEONFORK)) {
        if (alive != MAP_FAILED) munmap(alive, (size_t)page);
        return rf_fail(RF_E_NO_MEMORY, "rf_runtime_create: no page that a fork clears");
    }
    runtime->alive = alive;
    atomic_store(runtime->alive, 1);
    return RF_OK;
}
