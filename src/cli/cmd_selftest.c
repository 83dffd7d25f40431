/* rocmforge selftest: the first thing to run on a GPU that is new to you. It checks what the library relies on, one
 * line per item, and writes a report that can be sent.
 *
 * The command itself touches no driver. The probe asks in a helper process, and each item runs in a worker with a
 * deadline (selftest.h): a driver that crashes or hangs costs that item, and the next one gets a new worker. */
#include "selftest.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S 60 /* for one item; opening and loading kernels may take twice as long */
enum { DEVICES_MAX = 64 };

struct command {
    struct selftest_findings findings;
    int64_t limit_s;
    bool json;
    const char *items; /* names, separated by commas; NULL: all */
    FILE *report;
    const char *report_path;
};

static volatile sig_atomic_t interrupted;

static int test_machine(struct command *command, const char *device, int64_t started_ns);

static int work(const char *name, int64_t index, bool quick, const char *budget) {
    const struct selftest_item *item = selftest_find(name);
    if (!item) return cli_fail(CLI_USAGE, "selftest: --item is for internal use");
    return selftest_work(item, index > DEVICES_MAX ? DEVICES_MAX : (int)index, quick, budget);
}

static bool is_wanted(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strcspn(at, ",") == length && !memcmp(at, name, length)) return true;
    return !list;
}

/* Every name in the list is that of an item. */
static int check_names(const char *list) {
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        char name[64], known[512] = "";
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        const struct selftest_item *item = selftest_find(name);
        if (item && !item->hidden) continue;
        for (size_t i = 0; i < selftest_item_count; i++)
            if (!selftest_items[i].hidden)
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "",
                         selftest_items[i].name);
        return cli_fail(CLI_USAGE, "selftest: there is no item \"%s\"; the items are %s", name, known);
    }
    return CLI_GO_ON;
}

int cmd_selftest(int argc, char **argv) {
    struct command selftest = {.limit_s = LIMIT_S};
    const char *device = "auto", *item = NULL, *lent = NULL;
    int64_t on = 0;
    const struct cli_option options[] = {
        {0, "device", CLI_TEXT, &device, "D", "auto (the best GPU; the default), all, an index or part of a name"},
        {0, "quick", CLI_FLAG, &selftest.findings.quick, NULL,
         "fewer cases: under 20 seconds instead of two minutes"},
        {0, "items", CLI_TEXT, &selftest.items, "LIST", "only these items: names as shown, separated by commas"},
        {0, "report", CLI_TEXT, &selftest.report_path, "FILE",
         "write a report to send: no names, paths, UUIDs or processes are in it"},
        {0, "json", CLI_FLAG, &selftest.json, NULL, "write JSON to standard output at the end"},
        {0, "limit", CLI_NUMBER, &selftest.limit_s, "S", "seconds after which an item counts as hung (default: 60)"},
        {0, "item", CLI_TEXT, &item, "NAME", NULL}, /* these three are for the worker */
        {0, "on", CLI_NUMBER, &on, "N", NULL},
        {0, "lent", CLI_TEXT, &lent, "SPEC", NULL},
    };
    const struct cli_command command = {
        .name = "selftest",
        .usage = "[--device D] [--quick] [--items LIST] [--report FILE] [--json] [--limit S]",
        .summary = "The first thing to run on a new GPU. Finds and opens it, compares every family of kernels with\n"
                   "the CPU, moves data, records and replays work, takes memory up to the budget and gives it back,\n"
                   "and runs the bundled model on the GPU and on the CPU. Shows one line per item. A driver that\n"
                   "crashes or hangs fails one item. Exit status: 0 if nothing failed, also without a GPU; else 1.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int64_t started = selftest_now_ns();
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    if (item) return work(item, on, selftest.findings.quick, lent);
    if (selftest.limit_s < 1 || selftest.limit_s > 3600)
        return cli_fail(CLI_USAGE, "selftest: --limit %lld: must be from 1 to 3600 seconds",
                        (long long)selftest.limit_s);
    code = check_names(selftest.items);
    if (code != CLI_GO_ON) return code;
    if (selftest.report_path && !(selftest.report = fopen(selftest.report_path, "we")))
        return cli_fail(CLI_FAILED, "selftest: the report %s cannot be written: %s", selftest.report_path,
                        strerror(errno));
    code = test_machine(&selftest, device, started);
    if (selftest.report) {
        bool failed = ferror(selftest.report);
        if (fclose(selftest.report) != 0 || failed)
            code =
                cli_fail(CLI_FAILED, "selftest: the report %s could not be written completely", selftest.report_path);
        else if (!selftest.json && selftest.findings.count)
            fprintf(stderr, "The report is in %s. To send it, open an issue and attach the file.\n",
                    selftest.report_path);
    }
    free(selftest.findings.results);
    return code;
}

/* ---- results ---- */

static void begin_line(const struct command *command, const char *name) {
    if (command->json) return;
    printf("  %-13s ", name);
    fflush(stdout);
}

/* On the terminal a text is shown as it is; what is kept, for the report and the JSON, holds nothing private. */
static void keep_result(struct command *command, struct selftest_result result) {
    struct selftest_findings *findings = &command->findings;
    findings->ok += result.mark == SELFTEST_OK;
    findings->failed += result.mark == SELFTEST_FAILED;
    findings->skipped += result.mark == SELFTEST_SKIPPED;
    if (!command->json) {
        printf("%-7s %6.2f s  %s\n", selftest_mark_name(result.mark), result.seconds, result.text);
        fflush(stdout);
    }
    selftest_scrub(findings->runtime, result.text, sizeof result.text);
    struct selftest_result *grown = realloc(findings->results, (findings->count + 1) * sizeof *grown);
    if (grown) {
        findings->results = grown;
        grown[findings->count++] = result;
    }
    if (command->report) selftest_report_result(command->report, &result);
}

/* ---- one item in its worker ---- */

struct reading {
    char line[SELFTEST_TEXT_MAX + 16], at[256]; /* the line so far; what the worker was about to do */
    size_t length;
    bool ended; /* the worker gave its result */
};

static void read_line(struct reading *reading, struct selftest_result *result) {
    static const struct {
        const char *word;
        enum selftest_mark mark;
    } ends[] = {{"ok ", SELFTEST_OK}, {"failed ", SELFTEST_FAILED}, {"skipped ", SELFTEST_SKIPPED}};
    const char *line = reading->line;
    if (!strncmp(line, "at ", 3)) snprintf(reading->at, sizeof reading->at, "%s", line + 3);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (!strncmp(line, ends[i].word, strlen(ends[i].word))) {
            result->mark = ends[i].mark;
            snprintf(result->text, sizeof result->text, "%s", line + strlen(ends[i].word));
            reading->ended = true;
        }
}

/* Reads until the worker has ended (true), the deadline has passed or Ctrl-C was pressed. */
static bool read_until(const struct cli_worker *worker, int64_t deadline_ns, struct reading *reading,
                       struct selftest_result *result) {
    while (!interrupted) {
        char data[4096];
        int64_t left_ms = (deadline_ns - selftest_now_ns()) / 1000000;
        if (left_ms <= 0) return false;
        struct pollfd polled = {.fd = worker->channel, .events = POLLIN};
        /* A signal between the look at 'interrupted' and the poll is noticed at the next tick. */
        int ready = poll(&polled, 1, left_ms > 100 ? 100 : (int)left_ms);
        if (ready < 0 || (ready == 0 && cli_worker_lives(worker))) continue;
        if (ready == 0 && poll(&polled, 1, 0) <= 0) return true; /* a driver killed the keeper and left a process */
        ssize_t count = read(worker->channel, data, sizeof data);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return true; /* a worker that dies may reset the connection */
        for (ssize_t i = 0; i < count; i++) {
            bool full = reading->length + 1 >= sizeof reading->line;
            if (data[i] != '\n' && !full) reading->line[reading->length++] = data[i];
            if (data[i] != '\n') continue;
            reading->line[reading->length] = 0;
            reading->length = 0;
            read_line(reading, result);
        }
    }
    return false;
}

static void run_item(struct command *command, const struct selftest_item *item, int device,
                     struct selftest_result *result) {
    struct reading reading = {0};
    struct cli_worker worker = {0};
    char number[16], why[CLI_WHY_BYTES];
    int64_t started = selftest_now_ns();
    bool loads = !strcmp(item->name, "open") || !strcmp(item->name, "kernels");
    int64_t limit_s = command->limit_s * (loads ? 2 : 1);
    *result = (struct selftest_result){.item = item, .device = device, .mark = SELFTEST_FAILED};
    snprintf(number, sizeof number, "%d", device < 0 ? 0 : device);
    const char *arguments[] = {
        "selftest", "--item", item->name, "--on", number, command->findings.quick ? "--quick" : NULL, NULL};
    if (cli_worker_start(arguments, &worker, why)) {
        snprintf(result->text, sizeof result->text, "%s", why);
        return;
    }
    bool ended = read_until(&worker, started + limit_s * INT64_C(1000000000), &reading, result);
    bool clean = cli_worker_end(&worker, !ended, why);
    result->seconds = (double)(selftest_now_ns() - started) * 1e-9;
    const char *joint = reading.at[0] ? ", at: " : "";
    if (interrupted && !ended) {
        result->mark = SELFTEST_SKIPPED;
        snprintf(result->text, sizeof result->text, "interrupted%s%s", joint, reading.at);
    } else if (!ended) {
        result->mark = SELFTEST_FAILED;
        result->died = true;
        snprintf(result->text, sizeof result->text, "the driver did not answer within %lld s, and %s%s%s",
                 (long long)limit_s, why, joint, reading.at);
    } else if (!clean || !reading.ended) {
        char before[SELFTEST_TEXT_MAX];
        snprintf(before, sizeof before, "%s", reading.ended ? result->text : "");
        result->mark = SELFTEST_FAILED;
        result->died = true;
        snprintf(result->text, sizeof result->text, "%.400s%s%.300s%s%s", before, before[0] ? "; then " : "",
                 clean ? "the worker process ended without a result" : why, joint, reading.at);
    }
}

/* ---- the machine ---- */

static void skip(struct command *command, const struct selftest_item *item, int device, const char *why) {
    struct selftest_result result = {.item = item, .device = device, .mark = SELFTEST_SKIPPED};
    snprintf(result.text, sizeof result.text, "%s", why);
    begin_line(command, item->name);
    keep_result(command, result);
}

/* Runs the items of the GPU, or of the CPU for -1. why_not: why all are skipped; NULL: they are not. */
static void test_items(struct command *command, int device, const char *why_not) {
    char reason[SELFTEST_TEXT_MAX + 64] = "";
    if (why_not) snprintf(reason, sizeof reason, "%s", why_not);
    for (size_t i = 0; i < selftest_item_count && !interrupted; i++) {
        const struct selftest_item *item = &selftest_items[i];
        struct selftest_result result, again;
        if (item->hidden || item->on_gpu != (device >= 0 || why_not)) continue;
        if (!is_wanted(command->items, item->name)) continue;
        if (reason[0]) {
            skip(command, item, device, reason);
            continue;
        }
        begin_line(command, item->name);
        run_item(command, item, device, &result);
        keep_result(command, result);
        if (!item->on_gpu || result.mark != SELFTEST_FAILED || interrupted) continue;
        /* Where the device cannot be opened, the other items would only say so again, each after its deadline. */
        if (!strcmp(item->name, "open"))
            snprintf(reason, sizeof reason, "the device cannot be opened");
        else if (result.died &&
                 (run_item(command, selftest_find("open"), device, &again), again.mark == SELFTEST_FAILED))
            snprintf(reason, sizeof reason, "the device cannot be opened again after the item '%s': %s", item->name,
                     again.text);
    }
}

static void test_device(struct command *command, int device) {
    RF_PARAMS(struct rf_device_info, info);
    if (rf_device_info_at(command->findings.runtime, device, &info)) return;
    if (!command->json)
        printf("GPU %d: %s, %s, %s%s%s\n", device, info.name, info.arch, info.driver,
               info.kernel_target[0] ? ", kernels for " : "", info.kernel_target);
    if (command->report) selftest_report_device(command->report, &command->findings, device);
    test_items(command, device, NULL);
}

/* Which devices to test. CLI_GO_ON, or the exit code of a device that does not exist. */
static int choose_devices(struct rf_runtime *runtime, const char *want, int devices[DEVICES_MAX], int *count) {
    int found = rf_device_count(runtime);
    RF_PARAMS(struct rf_device_choice, choice);
    *count = 0;
    /* Of several GPUs that cannot be used, each reason is worth knowing. */
    bool all =
        !strcmp(want, "all") || ((!strcmp(want, "auto") || !strcmp(want, "gpu")) && !rf_gpu_available(runtime));
    for (int i = 0; all && i < found && i < DEVICES_MAX; i++) devices[(*count)++] = i;
    if (all) return CLI_GO_ON;
    if (want[0] && strspn(want, "0123456789") == strlen(want)) {
        long index = strtol(want, NULL, 10);
        if (index >= found)
            return cli_fail(CLI_ABSENT, "selftest: there is no device %s: %d found, see rocmforge doctor", want,
                            found);
        devices[(*count)++] = (int)index;
        return CLI_GO_ON;
    }
    choice.want = want;
    rf_status status = rf_device_choose(runtime, &choice, &devices[0]);
    if (status) return cli_fail_status(status, "selftest");
    *count = 1;
    return CLI_GO_ON;
}

/* The status of a probe that found nothing; no driver is loaded to tell it. */
static rf_status why_no_device(struct rf_runtime *runtime) {
    RF_PARAMS(struct rf_device_params, params);
    struct rf_device *device = NULL;
    rf_status status = rf_device_open_checked(runtime, &params, &device);
    rf_device_close(&device);
    return status;
}

/* Returns why there is nothing to test, for the items that need a GPU. */
static const char *show_probe(struct command *command, int64_t started_ns) {
    struct rf_runtime *runtime = command->findings.runtime;
    struct selftest_result result = {.device = -1};
    int found = rf_device_count(runtime);
    const char *reason = rf_gpu_reason(runtime);
    rf_status status = found ? RF_OK : why_no_device(runtime);
    if (!found && (status == RF_E_NO_DRIVER || status == RF_E_NO_DEVICE)) {
        result.mark = SELFTEST_SKIPPED;
        snprintf(result.text, sizeof result.text, "no GPU: %s", reason);
    } else if (!found) {
        result.mark = SELFTEST_FAILED;
        snprintf(result.text, sizeof result.text, "%s (%s)", reason, rf_status_name(status));
    } else {
        snprintf(result.text, sizeof result.text, "%d found%s%s", found, reason[0] ? "; " : "", reason);
    }
    result.seconds = (double)(selftest_now_ns() - started_ns) * 1e-9;
    begin_line(command, "probe");
    keep_result(command, result);
    return result.mark == SELFTEST_FAILED ? "the probe failed" : "there is no GPU";
}

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static int test_machine(struct command *command, const char *device, int64_t started_ns) {
    struct selftest_findings *findings = &command->findings;
    int devices[DEVICES_MAX], count = 0;
    RF_PARAMS(struct rf_runtime_params, params);
    params.log = cli_log;
    rf_status status = rf_runtime_create(&params, &findings->runtime);
    if (status) return cli_fail_status(status, "selftest");
    /* Without SA_RESTART, so that a wait notices. */
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int64_t probe_ns = selftest_now_ns();
    int code = choose_devices(findings->runtime, device, devices, &count);
    if (code != CLI_GO_ON) {
        rf_runtime_destroy(&findings->runtime);
        return code;
    }
    if (!command->json) printf("ROCmForge %s\n", rf_version());
    if (command->report) {
        selftest_report_head(command->report, findings);
        fputc('\n', command->report);
    }
    const char *why_none = show_probe(command, probe_ns);
    for (int i = 0; i < count && !interrupted; i++) test_device(command, devices[i]);
    if (!count) test_items(command, -1, why_none);
    if (!interrupted) {
        if (!command->json) printf("CPU: %u threads\n", rf_usable_cores());
        if (command->report) selftest_report_device(command->report, findings, -1);
        test_items(command, -1, NULL);
    }
    findings->interrupted = interrupted;
    findings->seconds = (double)(selftest_now_ns() - started_ns) * 1e-9;
    if (command->report) selftest_report_end(command->report, findings);
    if (command->json)
        selftest_json(stdout, findings);
    else
        printf("%s%zu ok, %zu failed, %zu skipped in %.1f s\n", interrupted ? "interrupted: " : "", findings->ok,
               findings->failed, findings->skipped, findings->seconds);
    rf_runtime_destroy(&findings->runtime);
    return findings->failed || interrupted ? CLI_FAILED : CLI_DONE;
}
