/* What single calls cost, for information; and what opening and closing a device costs as a whole.
 *
 * This part closes and reopens the bench's device, so it runs last. */
#include "bench.h"
#include "gpu/image.h"

#include <stdio.h>

/* ---- single calls ---- */

static rf_status memory_info(struct bench *bench) {
    RF_PARAMS(struct rf_memory_info, info);
    return rf_device_memory_info(bench->device, &info);
}
static rf_status raw_memory_info(struct bench *bench) {
    size_t free_bytes, total_bytes;
    return raw_result(bench, bench->driver->mem_info(&free_bytes, &total_bytes), "mem_info");
}
static rf_status can_allocate(struct bench *bench) {
    bool yes;
    return rf_can_allocate(bench->device, (uint64_t)512 << 20, &yes); /* more than the pool keeps: asks the driver */
}
static rf_status lend_and_reclaim(struct bench *bench) {
    char spec[256];
    rf_status status = rf_device_lend(bench->device, 1 << 20, spec, sizeof spec);
    return status ? status : rf_device_reclaim(bench->device, spec);
}
static rf_status set_budget(struct bench *bench) {
    char same[sizeof bench->device->budget_text]; /* the call replaces the device's own text */
    memcpy(same, bench->device->budget_text, sizeof same);
    return rf_device_set_budget(bench->device, same);
}
static rf_status wait_idle(struct bench *bench) {
    return rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT);
}
static rf_status queue_pair(struct bench *bench) {
    struct rf_queue *queue = NULL;
    rf_status status = rf_queue_create(bench->device, NULL, &queue);
    return status ? status : rf_queue_destroy(&queue);
}
static rf_status raw_queue_pair(struct bench *bench) {
    void *stream = NULL;
    int code = bench->driver->stream_create(&stream, RF_STREAM_NON_BLOCKING, bench->device->priority_low);
    if (code == RF_DRV_OK) code = bench->driver->stream_destroy(stream);
    return raw_result(bench, code, "stream_create and stream_destroy");
}
static rf_status event_pair(struct bench *bench) {
    struct rf_event *event = NULL;
    rf_status status = rf_event_create(bench->device, true, &event);
    return status ? status : rf_event_destroy(&event);
}
static rf_status raw_event_pair(struct bench *bench) {
    void *event = NULL;
    int code = bench->driver->event_create(&event, 0);
    if (code == RF_DRV_OK) code = bench->driver->event_destroy(event);
    return raw_result(bench, code, "event_create and event_destroy");
}
static rf_status pinned_pair(struct bench *bench) {
    struct rf_pinned *pinned = NULL;
    rf_status status = rf_pinned_create(bench->device, 1 << 20, &pinned);
    return status ? status : rf_pinned_destroy(&pinned);
}
static rf_status raw_pinned_pair(struct bench *bench) {
    void *memory = NULL;
    int code = bench->driver->host_alloc(&memory, 1 << 20, 0);
    if (code == RF_DRV_OK) code = bench->driver->host_free(memory);
    return raw_result(bench, code, "host_alloc and host_free");
}

/* Loads and unloads the modules that the device loads when it is opened. */
static rf_status raw_modules(struct bench *bench) {
    rf_status status = RF_OK;
    for (size_t i = 0; i < rf_image_count() && !status; i++) {
        const struct rf_image *image = rf_image_at(i);
        void *module = NULL;
        if (strcmp(image->target, bench->info.kernel_target)) continue;
        status = raw_result(bench, bench->driver->module_load(&module, rf_builtin_image_at(i)->data), "module_load");
        if (!status) status = raw_result(bench, bench->driver->module_unload(module), "module_unload");
    }
    return status;
}

static rf_status median_us(struct bench *bench, rf_status (*call)(struct bench *), int rounds, double *us) {
    struct samples samples = {.count = 0};
    rf_status status = call(bench);
    for (int round = 0; round < rounds && !status; round++) {
        int64_t start = rf_now_ns();
        status = call(bench);
        samples_add(&samples, (double)(rf_now_ns() - start) * 1e-3);
    }
    *us = samples_median(&samples);
    return status;
}

static rf_status single_calls(struct bench *bench) {
    static const struct {
        const char *name;
        rf_status (*ours)(struct bench *), (*raw)(struct bench *); /* either may be NULL */
        int rounds;
    } calls[] = {
        {"rf_device_memory_info", memory_info, raw_memory_info, 200},
        {"rf_can_allocate, 512 MiB", can_allocate, raw_memory_info, 200},
        {"rf_device_lend + reclaim", lend_and_reclaim, NULL, 100},
        {"rf_device_set_budget", set_budget, NULL, 100},
        {"rf_queue_wait, nothing to wait for", wait_idle, NULL, 500},
        {"queue, create + destroy", queue_pair, raw_queue_pair, 100},
        {"event, create + destroy", event_pair, raw_event_pair, 200},
        {"pinned 1 MiB, create + destroy", pinned_pair, raw_pinned_pair, 50},
        {"modules of one target, load + unload", NULL, raw_modules, 5},
    };
    rf_status status = RF_OK;
    for (size_t i = 0; i < RF_COUNT(calls) && !status; i++) {
        struct row row = {
            .group = "costs", .raw = NAN, .ours = NAN, .unit = "us", .measured = NAN, .measured_unit = "us"};
        int rounds = bench->quick ? 3 : calls[i].rounds;
        snprintf(row.name, sizeof row.name, "%s", calls[i].name);
        if (calls[i].raw) status = median_us(bench, calls[i].raw, rounds, &row.raw);
        if (!status && calls[i].ours) status = median_us(bench, calls[i].ours, rounds, &row.ours);
        if (!status) status = report_add(&bench->report, &row);
    }
    return status;
}

/* ---- opening ---- */

static rf_status add_once(struct bench *bench, const char *name, double value, const char *unit, const char *note) {
    struct row row = {
        .group = "opening", .raw = NAN, .ours = value, .unit = unit, .measured = NAN, .measured_unit = unit};
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.note, sizeof row.note, "%s", note);
    return report_add(&bench->report, &row);
}

rf_status bench_costs(struct bench *bench) {
    RF_PARAMS(struct rf_memory_info, memory);
    rf_status status = single_calls(bench);
    if (!status) status = rf_device_memory_info(bench->device, &memory);
    if (!status) status = add_once(bench, "probe", (double)bench->probe_ns * 1e-6, "ms", "in a helper process");
    if (!status)
        status = add_once(bench, "open, the first time", (double)bench->open_ns * 1e-6, "ms",
                          "loads the driver, makes the context, compiles kernels if need be");
    if (!status)
        status = add_once(bench, "the driver's own memory", (double)memory.driver_bytes / (1 << 20), "MiB",
                          "context and modules, charged to the budget");
    int64_t start = rf_now_ns();
    if (!status) status = bench_close(bench);
    int64_t closed = rf_now_ns();
    if (!status) status = bench_open(bench);
    int64_t opened = rf_now_ns();
    if (!status) status = add_once(bench, "close", (double)(closed - start) * 1e-6, "ms", "");
    if (!status) status = add_once(bench, "open again", (double)(opened - closed) * 1e-6, "ms", "");
    return status;
}
