/* Launching: host time per launch of a tiny kernel, in batches that no queue refuses.
 *
 * Both sides prepare their arguments once, launch the same function, and wait between batches so
 * that neither ever meets a full queue. */
#include "bench.h"

#include <stdio.h>

#define BATCH 256 /* fewer than a queue takes without waiting */
enum { RAW_ARGS_MAX = 8 };

static rf_status raw_batch(struct bench *bench, const struct rf_launch *launch, double *ns) {
    rf_dptr pointers[RAW_ARGS_MAX];
    void *args[RAW_ARGS_MAX];
    for (size_t i = 0; i < launch->arg_count; i++) {
        const struct rf_arg *arg = &launch->args[i];
        pointers[i] = arg->buffer ? (rf_dptr)(uintptr_t)rf_buffer_address(arg->buffer) : NULL;
        args[i] = arg->kind == RF_ARG_KIND_BUFFER ? (void *)&pointers[i] : (void *)(uintptr_t)&arg->value;
    }
    int code = RF_DRV_OK;
    int64_t start = rf_now_ns();
    for (int i = 0; i < BATCH && code == RF_DRV_OK; i++)
        code = bench->driver->launch(launch->kernel->function, launch->grid[0], 1, 1, launch->block[0], 1, 1, 0,
                                     bench->stream, args, NULL);
    *ns = (double)(rf_now_ns() - start) / BATCH;
    rf_status status = raw_result(bench, code, "launch");
    return status ? status : raw_finish(bench);
}

static rf_status our_batch(struct bench *bench, const struct rf_launch *launch, double *ns) {
    rf_status status = RF_OK;
    int64_t start = rf_now_ns();
    for (int i = 0; i < BATCH && !status; i++) status = rf_queue_launch(bench->queue, launch);
    *ns = (double)(rf_now_ns() - start) / BATCH;
    return status ? status : rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT);
}

static rf_status compare(struct bench *bench, const char *name, const struct rf_launch *launch) {
    struct samples raw = {.count = 0}, ours = {.count = 0}, ratio = {.count = 0};
    rf_status status = RF_OK;
    for (int round = -2, rounds = bench->quick ? 3 : 200; round < rounds && !status; round++) {
        double raw_ns = 0, our_ns = 0;
        bool ours_first = round & 1; /* so that neither side always runs on caches that the other warmed */
        if (ours_first) status = our_batch(bench, launch, &our_ns);
        if (!status) status = raw_batch(bench, launch, &raw_ns);
        if (!status && !ours_first) status = our_batch(bench, launch, &our_ns);
        if (round < 0) continue;
        samples_add(&raw, raw_ns);
        samples_add(&ours, our_ns);
        samples_add(&ratio, our_ns / raw_ns);
    }
    if (status) return status;
    struct row row = {.group = "launch",
                      .raw = samples_median(&raw),
                      .ours = samples_median(&ours),
                      .unit = "ns",
                      .measured_unit = "x",
                      .sense = AT_MOST,
                      .target = 1.10};
    row.measured = row.ours / row.raw;
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.note, sizeof row.note, "fastest tenth %.0f and %.0f ns, median of ratios %.3f",
             samples_at(&raw, 0.1), samples_at(&ours, 0.1), samples_median(&ratio));
    return report_add(&bench->report, &row);
}

rf_status bench_launch(struct bench *bench) {
    struct rf_buffer *buffer = NULL;
    const struct rf_kernel *fill = NULL, *spin = NULL;
    rf_status status = rf_kernel_find(bench->device, "fill_u32", &fill);
    if (!status) status = rf_kernel_find(bench->device, "spin_ns", &spin);
    if (!status) status = bench_buffer(bench, 4096, &buffer);
    uint32_t wave = (uint32_t)bench->info.wave_size;
    RF_PARAMS(struct rf_launch, launch);
    launch.grid[0] = 1;
    launch.block[0] = wave;
    if (!status) {
        struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_u32(7), rf_arg_i64(wave)};
        launch.kernel = fill;
        launch.args = args;
        launch.arg_count = RF_COUNT(args);
        status = compare(bench, "fill_u32, one wave, 3 arguments", &launch);
    }
    if (!status) {
        struct rf_arg args[] = {rf_arg_i64(0)};
        launch.kernel = spin;
        launch.args = args;
        launch.arg_count = RF_COUNT(args);
        status = compare(bench, "spin_ns(0), one wave, 1 argument", &launch);
    }
    rf_buffer_destroy(&buffer);
    return status;
}
