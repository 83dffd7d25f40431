/* The GPUs of a runtime: the cached result of the probe, the loaded drivers, and the choice of a device.
 *
 * Invariants: the probe runs at most once per runtime, and its result does not change after that (callers get it as
 * const); a driver library is loaded into this process only when one of its devices is opened. The second cannot be
 * checked here: rf_gpu_driver has one caller, rf_device_open. */
#include "gpu/device_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the GPU layer's state on the runtime ---- */

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
        if (strstr(text, known[i].name)) checks |= known[i].flag; /* the options table has checked it */
    return checks;
}

static void destroy_state(struct rf_gpu_state *gpu) {
    while (gpu->devices) {
        struct rf_device *device = gpu->devices;
        gpu->devices = device->next;
        rf_device_free(device);
    }
    while (gpu->drivers) { /* the libraries stay loaded: neither survives dlclose */
        struct rf_loaded_driver *driver = gpu->drivers;
        gpu->drivers = driver->next;
        free(driver);
    }
    free(gpu->probe);
    pthread_mutex_destroy(&gpu->probe_mutex);
    pthread_mutex_destroy(&gpu->devices_mutex);
    free(gpu);
}

struct rf_gpu_state *rf_gpu_state(struct rf_runtime *runtime) {
    pthread_mutex_lock(&runtime->gpu_mutex);
    if (!runtime->gpu) {
        struct rf_gpu_state *gpu = calloc(1, sizeof *gpu);
        if (gpu) {
            gpu->runtime = runtime;
            gpu->checks = parse_checks(rf_options_get(runtime->options, "RF_CHECK"));
            pthread_mutex_init(&gpu->probe_mutex, NULL);
            pthread_mutex_init(&gpu->devices_mutex, NULL);
            rf_assert(!runtime->gpu && !runtime->gpu_destroy);
            runtime->gpu_destroy = destroy_state;
            runtime->gpu = gpu;
        } else {
            rf_fail(RF_E_NO_MEMORY, "no host memory for the GPUs of a runtime");
        }
    }
    struct rf_gpu_state *gpu = runtime->gpu;
    pthread_mutex_unlock(&runtime->gpu_mutex);
    return gpu;
}

/* ---- the probe's result ---- */

const struct rf_probe_result *rf_gpu_probe(struct rf_runtime *runtime) {
    struct rf_gpu_state *gpu = rf_gpu_state(runtime);
    if (!gpu) return NULL;
    pthread_mutex_lock(&gpu->probe_mutex);
    if (!gpu->probe) {
        struct rf_probe_result *result = calloc(1, sizeof *result);
        if (result) {
            rf_probe_run(runtime->options, result);
            rf_assert(!gpu->probe && result->count >= 0 && result->count <= RF_MAX_DEVICES);
            gpu->probe = result;
        }
    }
    pthread_mutex_unlock(&gpu->probe_mutex);
    return gpu->probe;
}

bool rf_gpu_available(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_gpu_probe(runtime) : NULL;
    for (int i = 0; probe && i < probe->count; i++)
        if (probe->devices[i].usable) return true;
    return false;
}

const char *rf_gpu_reason(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_gpu_probe(runtime) : NULL;
    return probe ? probe->reason : "no runtime, or no host memory";
}

int rf_device_count(struct rf_runtime *runtime) {
    const struct rf_probe_result *probe = runtime ? rf_gpu_probe(runtime) : NULL;
    return probe ? probe->count : 0;
}

rf_status rf_device_info_at(struct rf_runtime *runtime, int index, struct rf_device_info *info) {
    if (!runtime) return rf_fail(RF_E_INVALID, "rf_device_info_at: runtime is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_device_info, info, "rf_device_info_at");
    if (status) return status;
    const struct rf_probe_result *probe = rf_gpu_probe(runtime);
    if (!probe || index < 0 || index >= probe->count)
        return rf_fail(RF_E_NO_DEVICE, "there is no device %d; %d found", index, probe ? probe->count : 0);
    RF_RESULT_WRITE(struct rf_device_info, info, &probe->devices[index]);
    return RF_OK;
}

rf_status rf_gpu_driver(struct rf_gpu_state *gpu, int index, struct rf_driver **out) {
    const struct rf_probe_result *probe = gpu->probe;
    const char *path = probe->source[index].library;
    enum rf_driver_kind kind = (enum rf_driver_kind)probe->source[index].kind;
    for (struct rf_loaded_driver *loaded = gpu->drivers; loaded; loaded = loaded->next)
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
    loaded->next = gpu->drivers;
    gpu->drivers = loaded;
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

/* A larger score is better; -1 for a device that cannot be used. */
static double score(const struct rf_device_info *info, bool avoid_display) {
    if (!info->usable) return -1;
    double value = (double)(info->free_bytes ? info->free_bytes : info->total_bytes);
    if (!info->integrated) value += 1e18;
    if (avoid_display && info->display == RF_NO) value += 1e19;
    return value;
}

rf_status rf_device_choose(struct rf_runtime *runtime, const struct rf_device_choice *choice, int *index) {
    RF_PARAMS(struct rf_device_choice, own);
    if (!runtime || !index) return rf_fail(RF_E_INVALID, "rf_device_choose: runtime or index is NULL");
    rf_status status = choice ? RF_PARAMS_READ(struct rf_device_choice, &own, choice, "rf_device_choose") : RF_OK;
    if (status) return status;
    choice = &own;
    const struct rf_probe_result *probe = rf_gpu_probe(runtime);
    if (!probe) return rf_fail(RF_E_NO_MEMORY, "no host memory for the probe");
    const char *want = choice->want ? choice->want : "auto";
    bool any = !strcmp(want, "auto") || !strcmp(want, "gpu");
    bool number = *want != 0;
    for (const char *c = want; *c; c++) number &= isdigit((unsigned char)*c) != 0;
    int best = -1;
    double best_score = -1;
    for (int i = 0; i < probe->count; i++) {
        const struct rf_device_info *info = &probe->devices[i];
        bool matches = any || (number ? strtol(want, NULL, 10) == i
                                      : !strcmp(info->uuid, want) || contains_ignoring_case(info->name, want));
        double value = matches ? score(info, choice->avoid_display) : -1;
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
    if (choice->avoid_display && probe->devices[best].display == RF_YES)
        rf_logf(&runtime->log, RF_LOG_WARN, "device %d (%s) drives a display and no other GPU is free of one", best,
                probe->devices[best].name);
    *index = best;
    return RF_OK;
}
