/* rocmforge check: every op on this device against its reference; with --bench, its speed compared with the copy
 * bandwidth, which is measured first in the same run.
 *
 * The work happens in a worker process, because a GPU may take its process down. */
#include "cli.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/ops.h>

struct shown {
    bool json, verbose, bench;
    struct rf_json writer;
    double roof_bytes_per_ns; /* 0: not measured */
};

static int in_worker(int argc, char **argv);
static int check(const char *op, const char *device, const char *simd, const char *modules, int64_t seed,
                 struct shown *shown);

int cmd_check(int argc, char **argv) {
    struct shown shown = {0};
    const char *op = NULL, *device = "auto", *simd = NULL, *modules = NULL;
    int64_t seed = 1;
    bool in_worker_process = false;
    const struct cli_option options[] = {
        {0, "op", CLI_TEXT, &op, "NAME", "only this op; a pattern with * and ?"},
        {0, "device", CLI_TEXT, &device, "D", "auto, cpu, gpu, an index or part of a name (default: auto)"},
        {0, "simd", CLI_TEXT, &simd, "LEVEL", "CPU instructions: auto, scalar, avx2 or avx512 (default: auto)"},
        {0, "modules", CLI_TEXT, &modules, "LIST",
         "load only these kernel modules: names or patterns, separated by commas"},
        {0, "bench", CLI_FLAG, &shown.bench, NULL,
         "measure time, GB/s, TFLOP/s and percentage of the copy bandwidth"},
        {0, "seed", CLI_NUMBER, &seed, "S", "seed of the random data (default: 1)"},
        {0, "json", CLI_FLAG, &shown.json, NULL, "write JSON to standard output"},
        {'v', "verbose", CLI_FLAG, &shown.verbose, NULL, "show every case, not only those that fail"},
        {0, "in-worker", CLI_FLAG, &in_worker_process, NULL, NULL},
    };
    const struct cli_command command = {
        .name = "check",
        .usage = "[--op NAME] [--device D] [--simd LEVEL] [--bench] [--seed S] [--json] [-v]",
        .summary = "Checks every operation against its scalar reference: seeded data, odd shapes, views, special\n"
                   "values, poisoned outputs and guard bands; running twice must give the same bits.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    char **arguments = malloc((size_t)(argc + 1) * sizeof *arguments);
    if (!arguments) return cli_fail(CLI_FAILED, "check: no memory");
    memcpy(arguments, argv, (size_t)argc * sizeof *arguments); /* parsing reorders them */
    int given = argc, count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON && simd && strcmp(device, "cpu"))
        code = cli_fail(CLI_USAGE, "check: --simd selects CPU instructions: it needs --device cpu");
    if (code == CLI_GO_ON)
        code = in_worker_process || !strcmp(device, "cpu") ? check(op, device, simd, modules, seed, &shown)
                                                           : in_worker(given, arguments);
    free(arguments);
    return code;
}

static int in_worker(int argc, char **argv) {
    const char *arguments[16] = {"check", "--in-worker"};
    char why[CLI_WHY_BYTES];
    int code = CLI_FAILED;
    if (argc > 13) return cli_fail(CLI_USAGE, "check: too many arguments");
    for (int i = 1; i < argc; i++) arguments[i + 1] = argv[i];
    rf_status status = cli_worker_run(&(struct cli_job){.arguments = arguments}, &code, why);
    return status ? cli_fail(CLI_FAILED, "check: %s", why) : code;
}

static void show_line(const struct shown *shown, const struct rf_check_result *result) {
    if (result->status == RF_E_UNSUPPORTED) {
        if (shown->verbose) fprintf(cli_out(), "skip  %-16s %-36s %s\n", result->op, result->label, result->why);
    } else if (!result->passed) {
        fprintf(cli_out(), "FAIL  %-16s %-36s %s%s error %.3g of what is allowed\n", result->op, result->label,
                result->why, result->why[0] ? ";" : "", result->error);
    } else if (shown->bench) {
        double rate = (double)result->bytes / (double)result->time_ns;
        fprintf(cli_out(), "%-16s %-28s %10.3f ms %9.1f GB/s %6.1f%% %9.2f TFLOP/s\n", result->op, result->label,
                (double)result->time_ns * 1e-6, rate,
                shown->roof_bytes_per_ns > 0 ? 100 * rate / shown->roof_bytes_per_ns : 0,
                (double)result->flops / (double)result->time_ns * 1e-3);
    } else if (shown->verbose) {
        fprintf(cli_out(), "ok    %-16s %-36s error %.3g of what is allowed\n", result->op, result->label,
                result->error);
    }
    fflush(cli_out());
}

static void show_json(struct shown *shown, const struct rf_check_result *result) {
    struct rf_json *json = &shown->writer;
    rf_json_open_object(json, NULL);
    rf_json_text(json, "op", result->op);
    rf_json_text(json, "case", result->label);
    rf_json_text(json, "verdict",
                 result->status == RF_E_UNSUPPORTED ? "skipped"
                 : result->passed                   ? "passed"
                                                    : "failed");
    rf_json_text(json, "why", result->why);
    rf_json_double(json, "error", result->error);
    rf_json_double(json, "tolerance", result->tolerance);
    if (shown->bench) {
        rf_json_int(json, "time_ns", result->time_ns);
        rf_json_uint(json, "bytes", result->bytes);
        rf_json_uint(json, "flops", result->flops);
    }
    rf_json_close(json);
}

static bool show(void *user, const struct rf_check_result *result) {
    struct shown *shown = user;
    if (shown->json)
        show_json(shown, result);
    else
        show_line(shown, result);
    return true;
}

/* A sign of life before each case. The reference is computed on the CPU. */
static bool announce(void *user, const char *op, const char *label) {
    (void)user;
    cli_at(CLI_HOST_WORKS, "%s %s", op, label);
    return true;
}

/* The copy bandwidth: bytes read and written by the plain copy of 256 MiB. */
static bool keep_roof(void *user, const struct rf_check_result *result) {
    struct shown *shown = user;
    if (result->passed && result->time_ns > 0 && strstr(result->label, "f32 to f32"))
        shown->roof_bytes_per_ns = (double)result->bytes / (double)result->time_ns;
    return true;
}

static int check(const char *op, const char *which, const char *simd, const char *modules, int64_t seed,
                 struct shown *shown) {
    struct rf_runtime *runtime = NULL;
    struct rf_device *device = NULL;
    /* Not in a benchmark: guard bands and poison cost time. */
    const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};
    RF_PARAMS(struct rf_runtime_params, log);
    RF_PARAMS(struct rf_device_choice, choice);
    RF_PARAMS(struct rf_device_params, open);
    RF_PARAMS(struct rf_device_info, info);
    RF_PARAMS(struct rf_check_params, params);
    struct rf_check_counts counts = {0};
    bool cpu = !strcmp(which, "cpu");
    log.log = cli_log;
    log.progress = cli_progress;
    if (!shown->bench) log.options = guarded;
    cli_at(CLI_LOADS, "opening the device");
    rf_status status = rf_runtime_create(&log, &runtime);
    choice.want = which;
    open.modules = modules;
    if (!status && !cpu) status = rf_device_choose(runtime, &choice, &open.index);
    if (!status && !cpu) status = rf_device_open_checked(runtime, &open, &device);
    if (!status && !cpu && !op) status = rf_device_load_kernels(device, NULL);
    if (!status && !cpu) status = rf_device_get_info(device, &info);
    if (!status && !shown->json) fprintf(cli_out(), "%s\n", cpu ? "CPU" : info.name);
    params.op = op;
    params.device = device;
    params.simd = simd;
    params.seed = (uint64_t)seed;
    params.bench = shown->bench;
    params.user = shown;
    params.choose = announce;
    if (!status && shown->bench && device) {
        params.op = "copy";
        params.visit = keep_roof;
        status = rf_check_run(&params, &counts);
        params.op = op;
        if (!status && !shown->json) fprintf(cli_out(), "copy bandwidth %.1f GB/s\n", shown->roof_bytes_per_ns);
    }
    params.visit = show;
    if (!status && shown->json) {
        rf_json_begin_file(&shown->writer, cli_out(), RF_JSON_LINES);
        rf_json_open_object(&shown->writer, NULL);
        rf_json_text(&shown->writer, "device", cpu ? "CPU" : info.name);
        if (shown->bench) rf_json_double(&shown->writer, "copy_gb_per_s", shown->roof_bytes_per_ns);
        rf_json_open_array(&shown->writer, "cases");
    }
    if (!status) {
        status = rf_check_run(&params, &counts);
        if (shown->json) {
            rf_json_close(&shown->writer);
            rf_json_uint(&shown->writer, "passed", counts.passed);
            rf_json_uint(&shown->writer, "failed", counts.failed);
            rf_json_uint(&shown->writer, "skipped", counts.skipped);
            rf_json_end(&shown->writer);
        }
    }
    int code = status ? cli_fail_status(status, "check") : counts.failed ? CLI_FAILED : CLI_DONE;
    if (!status && !shown->json)
        fprintf(cli_out(), "%zu passed, %zu failed, %zu skipped\n", counts.passed, counts.failed, counts.skipped);
    cli_at(CLI_DEVICE_WORKS, "closing the device");
    rf_device_close(&device);
    rf_runtime_destroy(&runtime);
    return code;
}
