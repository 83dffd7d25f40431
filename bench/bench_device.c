/* bench_device: what the device layer costs compared with raw driver calls, and how fast its first kernels are.
 *
 * Runs the parts (memory.c, transfer.c, launch.c, wait.c, row_kernels.c, costs.c) on one device and prints their rows
 * with the targets. Exit 0: everything ran, whatever the figures; 1: something failed to run; 2: bad usage; 77: no
 * usable GPU. No timing may decide anything. */
#include "bench.h"
#include "start.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct rf_kernel_image test_images[];
extern const int test_image_groups[];
extern const size_t test_image_count;

static const struct {
    const char *name;
    rf_status (*run)(struct bench *bench);
} parts[] = {
    {"pool", bench_pool}, {"direct", bench_direct}, {"transfer", bench_transfer}, {"launch", bench_launch},
    {"wait", bench_wait}, {"rows", bench_rows},     {"costs", bench_costs},
};

static void usage(FILE *to) {
    fputs("usage: bench_device [--quick] [--json] [--device WHICH] [--only PART,PART…]\n"
          "Compares the device layer with raw driver calls on one GPU.\n"
          "  --quick         small sizes and few rounds: shows that it runs\n"
          "  --json          one JSON object instead of the table\n"
          "  --device WHICH  auto, an index, a uuid or part of a name\n"
          "  --only PARTS    some of pool, direct, transfer, launch, wait, rows, costs\n"
          "The environment chooses the driver and the budget: rocmforge doctor --options.\n",
          to);
}

/* ---- opening ---- */

static void log_line(void *user, enum rf_log_level level, const char *line) {
    (void)user;
    (void)level;
    fprintf(stderr, "bench_device: %s\n", line);
}

static rf_status start(struct bench *bench) {
    rf_status status = start_runtime(log_line, &bench->runtime);
    if (status) return status;
    int64_t begun = rf_now_ns();
    rf_gpu_available(bench->runtime);
    bench->probe_ns = rf_now_ns() - begun;
    return RF_OK;
}

rf_status bench_open(struct bench *bench) {
    RF_PARAMS(struct rf_device_choice, choice);
    RF_PARAMS(struct rf_device_params, params);
    choice.want = bench->want;
    params.images = test_images;
    params.image_groups = test_image_groups;
    params.image_count = test_image_count;
    rf_status status = rf_device_choose(bench->runtime, &choice, &params.index);
    if (status) return status;
    int64_t begun = rf_now_ns();
    status = rf_device_open_checked(bench->runtime, &params, &bench->device);
    if (status) return status;
    if (!bench->open_ns) bench->open_ns = rf_now_ns() - begun;
    bench->info.struct_size = sizeof bench->info;
    bench->driver = bench->device->driver;
    status = rf_device_get_info(bench->device, &bench->info);
    if (!status) status = rf_queue_create(bench->device, NULL, &bench->queue);
    if (status) return status;
    const struct rf_driver *driver = bench->driver;
    int code = rf_context_enter(driver, &bench->device->context, &bench->entered);
    if (code == RF_DRV_OK)
        code = driver->stream_create(&bench->stream, RF_STREAM_NON_BLOCKING, bench->device->priority_low);
    if (code == RF_DRV_OK) code = driver->event_create(&bench->event, RF_EVENT_DISABLE_TIMING);
    return raw_result(bench, code, "the raw side");
}

rf_status bench_close(struct bench *bench) {
    rf_status status = RF_OK;
    if (!bench->device) return RF_OK;
    if (!rf_device_status(bench->device)) {
        if (bench->event) status = raw_result(bench, bench->driver->event_destroy(bench->event), "event_destroy");
        if (bench->stream && !status)
            status = raw_result(bench, bench->driver->stream_destroy(bench->stream), "stream_destroy");
        rf_context_leave(bench->driver, &bench->entered);
    }
    bench->event = bench->stream = NULL;
    rf_queue_destroy(&bench->queue);
    rf_status closed = rf_device_close(&bench->device);
    return status ? status : closed;
}

/* ---- for the parts ---- */

rf_status raw_result(const struct bench *bench, int code, const char *call) {
    rf_status status = rf_driver_status(code);
    return status ? rf_fail(status, "raw %s: %s", call, rf_driver_error_name(bench->driver, code)) : RF_OK;
}

rf_status raw_poll(const struct bench *bench, void *event) {
    int code;
    int64_t deadline = rf_deadline_after(RF_MS(20000));
    while ((code = bench->driver->event_query(event)) == RF_DRV_NOT_READY)
        if (rf_now_ns() > deadline) return rf_fail(RF_E_TIMEOUT, "raw work did not end in 20 s");
    return raw_result(bench, code, "event_query");
}

rf_status raw_finish(const struct bench *bench) {
    rf_status status = raw_result(bench, bench->driver->event_record(bench->event, bench->stream), "event_record");
    return status ? status : raw_poll(bench, bench->event);
}

bool bench_fits(struct bench *bench, uint64_t bytes) {
    bool yes = false;
    return !rf_can_allocate(bench->device, bytes, &yes) && yes;
}

rf_status bench_buffer(struct bench *bench, uint64_t bytes, struct rf_buffer **out) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    return rf_buffer_create_safe(bench->device, &params, out);
}

/* ---- the command ---- */

/* Whether a part is in the list; NULL means all of them. */
static bool listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strcspn(at, ",") == length && !strncmp(at, name, length)) return true;
    return !list;
}

static bool known_parts(const char *list) {
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        size_t length = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < RF_COUNT(parts) && !known; i++)
            known = strlen(parts[i].name) == length && !strncmp(parts[i].name, at, length);
        if (!known) {
            fprintf(stderr, "bench_device: --only: no part '%.*s'; see --help\n", (int)length, at);
            return false;
        }
    }
    return true;
}

/* Returns -1 to go on, otherwise the exit status. */
static int parse(int argc, char **argv, struct bench *bench, const char **only) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            usage(stdout);
            return 0;
        }
        if (!strcmp(argv[i], "--quick")) {
            bench->quick = true;
        } else if (!strcmp(argv[i], "--json")) {
            bench->json = true;
        } else if (!strcmp(argv[i], "--device") && i + 1 < argc) {
            bench->want = argv[++i];
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            *only = argv[++i];
        } else {
            fprintf(stderr, "bench_device: what is '%s'? See --help\n", argv[i]);
            return 2;
        }
    }
    return known_parts(*only) ? -1 : 2;
}

int main(int argc, char **argv) {
    struct bench bench = {0};
    const char *only = NULL;
    int exit_code = parse(argc, argv, &bench, &only);
    if (exit_code >= 0) return exit_code;
    rf_status status = start(&bench);
    if (!status) status = bench_open(&bench);
    if (status) {
        fprintf(stderr, "bench_device: %s\n", rf_error_text());
        exit_code = status == RF_E_NO_DRIVER || status == RF_E_NO_DEVICE ? 77 : 1;
        goto out;
    }
    exit_code = 0;
    for (size_t i = 0; i < RF_COUNT(parts) && bench.device && !rf_device_status(bench.device); i++) {
        if (!listed(only, parts[i].name)) continue;
        status = parts[i].run(&bench);
        if (!status) continue;
        fprintf(stderr, "bench_device: %s: %s: %s\n", parts[i].name, rf_status_name(status), rf_error_text());
        exit_code = 1;
    }
    if (bench.json)
        print_json(&bench);
    else
        print_table(&bench);
out:
    if (bench_close(&bench) && !exit_code) {
        fprintf(stderr, "bench_device: closing: %s\n", rf_error_text());
        exit_code = 1;
    }
    rf_runtime_destroy(&bench.runtime);
    report_free(&bench.report);
    return exit_code;
}
