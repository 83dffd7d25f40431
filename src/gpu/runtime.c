/* The runtime: options, log, the cached probe, loaded drivers; and choosing a device.
 *
 * Invariants: the probe runs at most once per runtime and its result is immutable then; a
 * driver library is loaded into this process only when a device of it is opened. */
#include "gpu/device_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned parse_checks(const char *text);
static enum rf_log_level parse_level(const char *text);
static rf_status parse_fail_alloc(struct rf_runtime *runtime);

rf_status rf_runtime_create(const struct rf_runtime_params *params, struct rf_runtime **out) {
    if (!out || (params && params->struct_size < sizeof *params))
        return rf_fail(RF_E_INVALID, "rf_runtime_create: out is NULL, or struct_size is not set");
    struct rf_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime) return rf_fail(RF_E_NO_MEMORY, "rf_runtime_create: no host memory");
    rf_status status = rf_options_create(params ? params->options : NULL, &runtime->options);
    if (status) goto fail;
    struct rf_budget_spec spec; /* refuse a malformed budget now, not when a device is opened */
    status = rf_budget_parse(rf_options_get(runtime->options, "RF_BUDGET"), &spec);
    if (status) {
        status = rf_fail_within(status, "RF_BUDGET");
        goto fail;
    }
    status = rf_host_budget_init(&runtime->host, rf_options_get(runtime->options, "RF_HOST_BUDGET"), "");
    if (status) {
        status = rf_fail_within(status, "RF_HOST_BUDGET");
        goto fail;
    }
    status = parse_fail_alloc(runtime);
    if (status) {
        rf_host_budget_finish(&runtime->host);
        goto fail;
    }
    long page = sysconf(_SC_PAGESIZE);
    void *alive = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED || madvise(alive, (size_t)page, MADV_WIPEONFORK)) {
        if (alive != MAP_FAILED) munmap(alive, (size_t)page);
        rf_host_budget_finish(&runtime->host);
        status = rf_fail(RF_E_NO_MEMORY, "rf_runtime_create: no page that a fork clears");
        goto fail;
    }
    runtime->alive = alive;
    atomic_store(runtime->alive, 1);
    runtime->timeout_ns = RF_MS(rf_options_int(runtime->options, "RF_TIMEOUT_MS"));
    runtime->checks = parse_checks(rf_options_get(runtime->options, "RF_CHECK"));
    rf_log_init(&runtime->log, params ? params->log : NULL, params ? params->log_user : NULL,
                parse_level(rf_options_get(runtime->options, "RF_LOG")));
    pthread_mutex_init(&runtime->probe_mutex, NULL);
    pthread_mutex_init(&runtime->devices_mutex, NULL);
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
    while (runtime->devices) {
        struct rf_device *device = runtime->devices;
        runtime->devices = device->next;
        rf_device_free(device);
    }
    while (runtime->drivers) { /* the libraries themselves stay: neither survives dlclose */
        struct rf_loaded_driver *driver = runtime->drivers;
        runtime->drivers = driver->next;
        free(driver);
    }
    free(runtime->probe);
    munmap((void *)(uintptr_t)runtime->alive, (size_t)sysconf(_SC_PAGESIZE));
    rf_host_budget_finish(&runtime->host);
    rf_log_finish(&runtime->log);
    rf_options_destroy(&runtime->options);
    pthread_mutex_destroy(&runtime->probe_mutex);
    pthread_mutex_destroy(&runtime->devices_mutex);
    free(runtime);
}

const char *rf_runtime_option(const struct rf_runtime *runtime, const char *name) {
    return runtime && name ? rf_options_get(runtime->options, name) : NULL;
}

static unsigned parse_checks(const char *text) {
    static const struct {
        const char *name;
        unsigned flag;
    } known[] = {{"guard", RF_CHECK_GUARD | RF_CHECK_HANDLE},
                 {"poison", RF_CHECK_POISON | RF_CHECK_HANDLE},
                 {"handle", RF_CHECK_HANDLE},
                 {"launch", RF_CHECK_LAUNCH | RF_CHECK_HANDLE}};
    unsigned checks = 0;
    for (size_t i = 0; i < RF_COUNT(known); i++)
        if (strstr(text, known[i].name)) checks |= known[i].flag; /* validated with the options */
    return checks;
}

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
    if (*end == ':') runtime->fail_path = end + 1; /* lives with the options */
    return RF_OK;
}

/* ---- the probe's answer ---- */

const struct rf_probe_result *rf_runtime_probe(struct rf_runtime *runtime) {
    pthread_mutex_lock(&runtime->probe_mutex);
    if (!runtime->probe) {
        struct rf_probe_result *result = calloc(1, sizeof *result);
        if (result) {
            rf_probe_run(runtime->options, result);
            runtime->probe = result;
        }
    }
    pthread_mutex_unlock(&runtime->probe_mutex);
    return runtime->probe;
}

bool rf_gpu_available(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_runtime_probe(runtime) : NULL;
    for (int i = 0; probe && i < probe->count; i++)
        if (probe->devices[i].usable) return true;
    return false;
}

const char *rf_gpu_reason(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_runtime_probe(runtime) : NULL;
    return probe ? probe->reason : "no runtime, or no host memory";
}

int rf_device_count(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_runtime_probe(runtime) : NULL;
    return probe ? probe->count : 0;
}

rf_status rf_device_info_at(struct rf_runtime *runtime, int index, struct rf_device_info *info) {
    if (!runtime || !info || info->struct_size < sizeof *info)
        return rf_fail(RF_E_INVALID, "rf_device_info_at: NULL, or struct_size is not set");
    const struct rf_probe_result *probe = rf_runtime_probe(runtime);
    if (!probe || index < 0 || index >= probe->count)
        return rf_fail(RF_E_NO_DEVICE, "there is no device %d; %d found", index, probe ? probe->count : 0);
    size_t size = info->struct_size;
    *info = probe->devices[index];
    info->struct_size = size;
    return RF_OK;
}

rf_status rf_runtime_driver(struct rf_runtime *runtime, int index, struct rf_driver **out) {
    const struct rf_probe_result *probe = rf_runtime_probe(runtime);
    const char *path = probe->source[index].library;
    enum rf_driver_kind kind = (enum rf_driver_kind)probe->source[index].kind;
    for (struct rf_loaded_driver *loaded = runtime->drivers; loaded; loaded = loaded->next)
        if (loaded->driver.kind == kind && !strcmp(loaded->driver.path, path)) {
            *out = &loaded->driver;
            return RF_OK;
        }
    struct rf_loaded_driver *loaded = calloc(1, sizeof *loaded);
    if (!loaded) return rf_fail(RF_E_NO_MEMORY, "no host memory for the driver's table");
    rf_status status = rf_driver_load(kind, path, &loaded->driver);
    if (!status) status = rf_driver_init(&loaded->driver);
    if (status) {
        free(loaded);
        return status;
    }
    snprintf(loaded->driver.path, sizeof loaded->driver.path, "%s", path);
    loaded->next = runtime->drivers;
    runtime->drivers = loaded;
    *out = &loaded->driver;
    return RF_OK;
}

/* ---- choosing ---- */

static bool contains_ignoring_case(const char *text, const char *part) {
    size_t length = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, length)) return true;
    return false;
}

/* Larger is better; -1 for a device that cannot be used. */
static double score(const struct rf_device_info *info, bool avoid_display) {
    if (!info->usable) return -1;
    double value = (double)(info->free_bytes ? info->free_bytes : info->total_bytes);
    if (!info->integrated) value += 1e18;
    if (avoid_display && info->display == RF_NO) value += 1e19;
    return value;
}

rf_status rf_device_choose(struct rf_runtime *runtime, const struct rf_device_choice *choice, int *index) {
    if (!runtime || !index || (choice && choice->struct_size < sizeof *choice))
        return rf_fail(RF_E_INVALID, "rf_device_choose: NULL, or struct_size is not set");
    const struct rf_probe_result *probe = rf_runtime_probe(runtime);
    if (!probe) return rf_fail(RF_E_NO_MEMORY, "no host memory for the probe");
    const char *want = choice && choice->want ? choice->want : "auto";
    bool any = !strcmp(want, "auto") || !strcmp(want, "gpu");
    bool number = *want != 0;
    for (const char *c = want; *c; c++) number &= isdigit((unsigned char)*c) != 0;
    int best = -1;
    double best_score = -1;
    for (int i = 0; i < probe->count; i++) {
        const struct rf_device_info *info = &probe->devices[i];
        bool matches = any || (number ? strtol(want, NULL, 10) == i
                                      : !strcmp(info->uuid, want) || contains_ignoring_case(info->name, want));
        double value = matches ? score(info, choice && choice->avoid_display) : -1;
        if (matches && !any && value < 0)
            return rf_fail(RF_E_NO_DEVICE, "device %d (%s) cannot be used: %s", i, info->name, info->reason);
        if (value > best_score) {
            best = i;
            best_score = value;
        }
    }
    if (best < 0 && any)
        return rf_fail(probe->status == RF_E_NO_DRIVER ? RF_E_NO_DRIVER : RF_E_NO_DEVICE, "no usable GPU: %s",
                       probe->reason[0] ? probe->reason : "none found");
    if (best < 0)
        return rf_fail(RF_E_NO_DEVICE, "no device '%s': %d found, see rocmforge doctor", want, probe->count);
    if (choice && choice->avoid_display && probe->devices[best].display == RF_YES)
        rf_logf(&runtime->log, RF_LOG_WARN, "device %d (%s) drives a display and no other GPU is free of one", best,
                probe->devices[best].name);
    *index = best;
    return RF_OK;
}
