/* See model.h. */
#include "model.h"
#include "placement.h"
#include "lost_model_file.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_NS INT64_C(200000000)
#define TELL_NS INT64_C(100000000)
enum { ARGUMENTS_MAX = 62 };

static bool parse_kv(const char *text, enum rf_kv_type *kv) {
    static const char *const names[] = {[RF_KV_F16] = "f16", [RF_KV_F32] = "f32", [RF_KV_Q8_0] = "q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(text, names[i])) {
            *kv = (enum rf_kv_type)i;
            return true;
        }
    return false;
}

bool model_number(const char *text, float *value) {
    char *end;
    errno = 0;
    *value = strtof(text, &end);
    return end != text && !*end && !errno && isfinite(*value);
}

int model_check(const char *command, const struct model_options *options) {
    enum rf_kv_type kv;
    if (!options->model)
        return cli_fail(CLI_USAGE, "%s: no model given: name one with -m M.gguf; see rocmforge %s --help", command,
                        command);
    if (!parse_kv(options->kv, &kv))
        return cli_fail(CLI_USAGE, "%s: --kv %s: the types are f16, f32 and q8_0", command, options->kv);
    if (options->host_budget && !*options->host_budget)
        return cli_fail(CLI_USAGE, "%s: --host-budget is empty: give a size or a share, such as 8GiB or 60%%",
                        command);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"--ctx", options->context},
                   {"--gpu-layers", options->layers},
                   {"--threads", options->threads},
                   {"--batch", options->batch},
                   {"--kernel-ms", options->kernel_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value > 1 << 24)
            return cli_fail(CLI_USAGE, "%s: %s %lld is too large", command, numbers[i].name,
                            (long long)numbers[i].value);
    if (options->duty_percent > 100)
        return cli_fail(CLI_USAGE, "%s: --duty %lld: must be from 1 to 100 percent", command,
                        (long long)options->duty_percent);
    return CLI_GO_ON;
}

bool model_wants_worker(const struct model_options *options) {
    return !options->in_worker && strcmp(options->device, "cpu");
}

int model_in_worker(int argc, char **argv, struct cli_job job) {
    const char *arguments[ARGUMENTS_MAX + 2] = {argv[0], "--in-worker"};
    char why[CLI_WHY_BYTES];
    int code = CLI_FAILED;
    if (argc > ARGUMENTS_MAX) return cli_fail(CLI_USAGE, "%s: too many arguments", argv[0]);
    for (int i = 1; i < argc; i++) arguments[i + 1] = argv[i];
    job.arguments = arguments;
    rf_status status = cli_worker_run(&job, &code, why);
    return status ? cli_fail(CLI_FAILED, "%s: %s", argv[0], why) : code;
}

rf_status model_eval(const struct rf_engine *engine, struct rf_session *session, const char *what,
                     const int32_t *tokens, size_t count, bool all, float *logits) {
    rf_status status = RF_OK;
    for (size_t at = 0, some; at < count && !status; at += some) {
        RF_PARAMS(struct rf_engine_info, info); /* each time: parts grow and shrink */
        if ((status = rf_engine_get_info(engine, &info))) break;
        size_t most = info.batch && count <= info.context ? info.batch : count; /* too many are refused as a whole */
        some = count - at < most ? count - at : most;
        bool last = at + some == count;
        cli_at(model_work(&info), "%s, token %zu of %zu", what, at + 1, count);
        status = rf_session_eval(session, tokens + at, some, all,
                                 all && logits ? logits + at * info.vocabulary
                                 : last        ? logits
                                               : NULL);
    }
    return status;
}

enum cli_work model_work(const struct rf_engine_info *info) {
    return info->device_layers < info->layers ? CLI_HOST_WORKS : CLI_DEVICE_WORKS;
}

/* ---- opening ---- */

struct progress {
    int64_t started_ns, looked_ns; /* times of the first call and of the last one that was shown; 0: none yet */
    int64_t told_ns;               /* time of the last sign of life */
    uint64_t first_bytes;          /* what was done at the first call */
    bool terminal, shown;
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void clear_progress(struct progress *progress) {
    if (progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* Nothing is shown during the first PROGRESS_NS. */
static bool show_progress(void *user, uint64_t done, uint64_t total) {
    struct progress *progress = user;
    int64_t now = now_ns();
    if (done >= total) {
        cli_at(CLI_LOADS, "preparing the model: its %s are loaded", cli_bytes(total));
    } else if (now - progress->told_ns >= TELL_NS) { /* pieces may be loaded faster than that */
        progress->told_ns = now;
        cli_at(CLI_LOADS, "loading %s of %s", cli_bytes(done), cli_bytes(total));
    }
    if (!progress->terminal) return true;
    if (!progress->started_ns) {
        progress->started_ns = progress->looked_ns = now;
        progress->first_bytes = done;
    }
    if (now - progress->looked_ns >= PROGRESS_NS && done < total) {
        double rate = (double)(done - progress->first_bytes) * 1e9 / (double)(now - progress->started_ns);
        progress->looked_ns = now;
        progress->shown = true;
        fprintf(stderr, "\rloading %s of %s, %.2f GB/s, %.0f s left   ", cli_bytes(done), cli_bytes(total),
                rate * 1e-9, rate > 0 ? (double)(total - done) / rate : 0);
        fflush(stderr);
    }
    if (done >= total) clear_progress(progress);
    return true;
}

static void watch_model_file(const struct model_options *options) {
    char line[640] = ""; /* in the worker of `run`: its command prints the line */
    if (!options->is_run_worker) snprintf(line, sizeof line, "rocmforge: " MODEL_FILE_LOST "\n", options->model);
    catch_lost_model_file(line, options->is_run_worker ? CLI_LOST_MODEL_FILE : CLI_FAILED);
}

rf_status model_open(const struct model_options *options, struct rf_runtime **runtime, struct rf_engine **engine) {
    RF_PARAMS(struct rf_runtime_params, log);
    RF_PARAMS(struct rf_engine_params, params);
    cli_at(CLI_LOADS, "opening %s", options->model);
    struct progress progress = {.terminal = !options->quiet && isatty(STDERR_FILENO)};
    signal(SIGINT, SIG_DFL); /* Ctrl-C ends a command that is opening its model */
    watch_model_file(options);
    log.log = cli_log;
    log.progress = cli_progress;
    char host_budget[256] = "";
    const char *overrides[] = {host_budget, NULL};
    if (options->host_budget) {
        snprintf(host_budget, sizeof host_budget, "RF_HOST_BUDGET=%s", options->host_budget);
        log.options = overrides;
    }
    rf_status status = rf_runtime_create(&log, runtime);
    params.runtime = *runtime;
    params.model = options->model;
    params.device = options->device;
    params.budget = options->budget;
    params.context = (uint32_t)options->context;
    params.sessions = (uint32_t)options->sessions;
    params.device_layers = (uint32_t)options->layers;
    params.threads = (unsigned)options->threads;
    params.simd = options->simd;
    params.batch = (uint32_t)options->batch;
    params.no_replay = options->no_replay;
    params.duty_percent = (uint32_t)options->duty_percent;
    params.kernel_ms = (int32_t)options->kernel_ms;
    params.plan_only = options->plan_only;
    params.progress = show_progress;
    params.user = &progress;
    parse_kv(options->kv, &params.kv);
    if (!status) status = rf_engine_open(&params, engine);
    cli_at(CLI_LOADS, "the model is open");
    if (status) {
        clear_progress(&progress); /* so that the next message begins a line */
        rf_runtime_destroy(runtime);
        return status;
    }
    if (options->plan_only) return RF_OK;
    RF_PARAMS(struct rf_engine_info, info);
    if ((options->stats || progress.terminal) && !rf_engine_get_info(*engine, &info)) placement_show(stderr, &info);
    if (rf_engine_notice(*engine)[0]) fprintf(stderr, "rocmforge: note: %s\n", rf_engine_notice(*engine));
    return RF_OK;
}

rf_status model_close(struct rf_runtime **runtime, struct rf_engine **engine) {
    cli_at(CLI_DEVICE_WORKS, "closing the model");
    rf_status status = rf_engine_close(engine);
    rf_runtime_destroy(runtime);
    return status;
}
