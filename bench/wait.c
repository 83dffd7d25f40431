/* Waiting: how much later than a busy poll rf_queue_wait notices the end of a kernel, and what it costs the waiting
 * thread.
 *
 * Both sides submit the same way (timing event, kernel, timing event). The delay that a wait adds is the wall time
 * beyond the duration that the device measured, minus the same figure of the busy poll, which includes the submission
 * and the driver's own delay. Durations vary by up to a quarter from round to round; otherwise the pauses of a waiter
 * would always end at the same distance from the kernel's end. */
#include "bench.h"

#include <stdio.h>
#include <time.h>

struct timed {
    struct rf_event *start, *end;
    const struct rf_kernel *spin;
};

static int64_t thread_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static rf_status submit(struct bench *bench, const struct timed *timed, int64_t kernel_ns) {
    struct rf_arg args[] = {rf_arg_i64(kernel_ns)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = timed->spin;
    launch.grid[0] = 1;
    launch.block[0] = (uint32_t)bench->info.wave_size;
    launch.args = args;
    launch.arg_count = RF_COUNT(args);
    rf_status status = rf_event_record(timed->start, bench->queue);
    if (!status) status = rf_queue_launch(bench->queue, &launch);
    if (!status) status = rf_event_record(timed->end, bench->queue);
    return status;
}

/* beyond_us is wall time minus device time. share is the share of a core used while waiting. */
static rf_status once(struct bench *bench, const struct timed *timed, int64_t kernel_ns, bool busy, double *beyond_us,
                      double *share) {
    int64_t device_ns = 0, begun = rf_now_ns();
    rf_status status = submit(bench, timed, kernel_ns);
    if (status) return status;
    int64_t waiting = rf_now_ns(), cpu_ns = thread_cpu_ns();
    status = busy ? raw_poll(bench, timed->end->event) : rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT);
    cpu_ns = thread_cpu_ns() - cpu_ns;
    int64_t ended = rf_now_ns();
    if (!status && busy) status = rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT); /* so that the layer knows too */
    if (!status) status = rf_event_elapsed(timed->start, timed->end, &device_ns);
    *beyond_us = (double)(ended - begun - device_ns) * 1e-3;
    *share = (double)cpu_ns / (double)RF_MAX(ended - waiting, 1);
    return status;
}

static rf_status wait_for(struct bench *bench, const struct timed *timed, int64_t kernel_ns) {
    struct samples raw = {.count = 0}, ours = {.count = 0}, shares = {.count = 0};
    int rounds = bench->quick ? 3 : kernel_ns > RF_MS(10) ? 20 : 200;
    rf_status status = RF_OK;
    for (int round = -2; round < rounds && !status; round++) {
        int64_t this_ns = kernel_ns + kernel_ns / 4 * ((round + 2) * 37 % 100) / 100;
        double raw_us = 0, our_us = 0, share = 0, ignored;
        status = once(bench, timed, this_ns, true, &raw_us, &ignored);
        if (!status) status = once(bench, timed, this_ns, false, &our_us, &share);
        if (round < 0) continue;
        samples_add(&raw, raw_us);
        samples_add(&ours, our_us);
        samples_add(&shares, share);
    }
    if (status) return status;
    char duration[24];
    if (kernel_ns < RF_MS(1))
        snprintf(duration, sizeof duration, "%lld us", (long long)kernel_ns / 1000);
    else
        snprintf(duration, sizeof duration, "%lld ms", (long long)(kernel_ns / RF_MS(1)));
    struct row added = {.group = "wait: beyond the device's time",
                        .raw = samples_median(&raw),
                        .ours = samples_median(&ours),
                        .unit = "us",
                        .measured_unit = "us",
                        .sense = AT_MOST,
                        .target = kernel_ns < RF_MS(1) ? 20 : (double)kernel_ns * 1e-3 * 0.02};
    added.measured = added.ours - added.raw;
    snprintf(added.name, sizeof added.name, "%s kernel", duration);
    snprintf(added.note, sizeof added.note, "nine in ten under %+.1f us; %.1f%% of a core",
             samples_at(&ours, 0.9) - added.raw, 100 * samples_median(&shares));
    status = report_add(&bench->report, &added);
    struct row cost = {.group = "wait: share of a core",
                       .raw = NAN,
                       .ours = 100 * samples_median(&shares),
                       .unit = "%",
                       .measured = 100 * samples_median(&shares),
                       .measured_unit = "%",
                       .sense = AT_MOST,
                       .target = 10};
    snprintf(cost.name, sizeof cost.name, "%s kernel", duration);
    snprintf(cost.note, sizeof cost.note, "nine in ten under %.1f%%", 100 * samples_at(&shares, 0.9));
    return status ? status : report_add(&bench->report, &cost);
}

rf_status bench_wait(struct bench *bench) {
    static const int64_t durations_ns[] = {50000, 200000, 500000, 1000000, 5000000, 50000000};
    struct timed timed = {0};
    rf_status status = rf_kernel_find(bench->device, "spin_ns", &timed.spin);
    if (!status) status = rf_event_create(bench->device, true, &timed.start);
    if (!status) status = rf_event_create(bench->device, true, &timed.end);
    for (size_t i = 0; i < RF_COUNT(durations_ns) && !status; i++) status = wait_for(bench, &timed, durations_ns[i]);
    rf_event_destroy(&timed.start);
    rf_event_destroy(&timed.end);
    return status;
}
