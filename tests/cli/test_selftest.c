/* rocmforge selftest as a user meets it: on the simulated driver, with a wrong kernel, with a driver that fails,
 * crashes or hangs, without a GPU, interrupted; and a report that holds nothing private. */
#include "run_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../scratch.h"

static char folder[SCRATCH_BYTES];

/* environment: "NAME=VALUE …"; arguments may redirect. Leases and reports are in a folder of this test, in $F. */
static int selftest(const char *environment, const char *arguments) {
    if (!folder[0]) scratch_folder(folder, "selftest");
    char command[2048];
    snprintf(command, sizeof command,
             "F=%s; export F; env -u RF_DRIVER -u RF_BUDGET -u RFSIM RF_LEASE_DIR=%s %s '%s' selftest %s", folder,
             folder, environment, ROCMFORGE, arguments);
    int code = run_shell(command);
    RF_NOTE("%s selftest %s: %d\n%s", environment, arguments, code, report);
    return code;
}

/* The report of the last command replaces its output. */
static void read_report(void) {
    char command[512];
    snprintf(command, sizeof command, "cat %s/report", folder);
    RF_ASSERT_INT(run_shell(command), 0);
    RF_NOTE("the report:\n%s", report);
}

/* The line of an item begins with its name and then its mark. */
static void expect_mark(const char *item, const char *mark, const char *text) {
    char name[64];
    snprintf(name, sizeof name, "\n  %s ", item);
    const char *line = strstr(report, name);
    if (!line) RF_FAIL("there is no item %s in: %s", item, report);
    char copy[2048];
    line++;
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
    const char *at = copy + 2 + strlen(item);
    at += strspn(at, " ");
    if (strncmp(at, mark, strlen(mark)) != 0) RF_FAIL("not %s: %s", mark, copy);
    RF_ASSERT_CONTAINS(copy, text);
}

static void expect_one_line(const char *environment, const char *arguments, int code, const char *part) {
    char with_errors[512];
    snprintf(with_errors, sizeof with_errors, "%s 2>&1 >/dev/null", arguments);
    RF_ASSERT_INT(selftest(environment, with_errors), code);
    const char *end = strchr(report, '\n');
    if (!end || end[1] || strncmp(report, "rocmforge: selftest: ", 21) != 0)
        RF_FAIL("selftest %s is not answered with one line: %s", arguments, report);
    RF_ASSERT_CONTAINS(report, part);
}

/* ---- where all is well ---- */

RF_TEST(selftest, all_is_well_on_the_simulated_driver, .timeout_ms = 300000, .tags = "heavy") {
    RF_ASSERT_INT(selftest("RF_DRIVER=sim RF_TIMEOUT_MS=100000", "--quick --limit 200 --report $F/report 2>&1"), 0);
    static const char *const items[] = {"probe",        "open",      "kernels",    "elementwise", "rows",
                                        "moving",       "products",  "kv-cache",   "attention",   "sampling",
                                        "quantization", "transfers", "recordings", "squeeze",     "leases",
                                        "model",        "cpu-ops",   "cpu-model"};
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) expect_mark(items[i], "ok ", " s  ");
    expect_mark("open", "ok ", "budget ");
    expect_mark("squeeze", "ok ", "then RF_E_BUDGET");
    RF_ASSERT(strstr(report, "FAILED") == NULL);
    RF_ASSERT_CONTAINS(report, " 0 failed, ");
    RF_ASSERT_CONTAINS(report, "open an issue");
    read_report();
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%-14s ok ", items[i]);
        RF_ASSERT_CONTAINS(report, line);
    }
    static const char *const facts[] = {
        "ROCmForge selftest\n", "\nversion ", "\nbuilt for ", "\nsystem         Linux ", "\nGPU ",
        "\narchitecture ",      "\ndriver ",  " 0 failed, "};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) RF_ASSERT_CONTAINS(report, facts[i]);
}

RF_TEST(selftest, every_device_and_json) {
    RF_ASSERT_INT(selftest("RF_DRIVER=sim RFSIM=devices=2",
                           "--device all --items open,transfers --limit 200 --json | "
                           "python3 -c 'import json, sys; r = json.load(sys.stdin); "
                           "print([(i[\"item\"], i[\"device\"], i[\"result\"]) for i in r[\"items\"]], "
                           "r[\"ok\"], r[\"failed\"], len(r[\"devices\"]))'"),
                  0);
    RF_ASSERT_TEXT(report, "[('probe', None, 'ok'), ('open', 0, 'ok'), ('transfers', 0, 'ok'), ('open', 1, 'ok'), "
                           "('transfers', 1, 'ok')] 5 0 2\n");
    RF_ASSERT_INT(selftest("RF_DRIVER=sim RFSIM=devices=2", "--device 1 --items open --limit 200"), 0);
    RF_ASSERT_CONTAINS(report, "\nGPU 1: ");
    RF_ASSERT(strstr(report, "\nGPU 0: ") == NULL);
}

RF_TEST(selftest, without_a_gpu_only_the_cpu_is_checked, .timeout_ms = 300000, .tags = "heavy") {
    RF_ASSERT_INT(selftest("RF_DRIVER=none", "--quick --limit 200"), 0);
    expect_mark("probe", "skipped ", "no GPU: ");
    expect_mark("open", "skipped ", "there is no GPU");
    expect_mark("model", "skipped ", "there is no GPU");
    expect_mark("cpu-ops", "ok ", " cases");
    expect_mark("cpu-model", "ok ", "tokens compared");
}

/* ---- where something is wrong ---- */

RF_TEST(selftest, a_wrong_kernel_fails_its_family, .timeout_ms = 300000) {
    RF_ASSERT_INT(selftest("RF_DRIVER=sim RFSIM=kernels=" FAULTY_KERNELS ":" KERNEL_LIBRARY,
                           "--quick --limit 200 --items rows,moving"),
                  1);
    expect_mark("rows", "FAILED ", "softmax f32");
    unsigned long long failed = 0, run = 0;
    const char *counts = strstr(report, "  rows ");
    RF_ASSERT_INT(sscanf(counts, " rows FAILED %*f s %llu of %llu cases failed", &failed, &run), 2);
    RF_EXPECT(failed > 0 && failed < run && run < 100000);
    expect_mark("moving", "ok ", " cases");
    RF_ASSERT_CONTAINS(report, " 1 failed, ");
}

/* A sanitizer would turn the crash into an exit. */
#define SIM "ASAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 RF_DRIVER=sim RFSIM=fault="
#define ITEMS "--items open,recordings,deadline"

RF_TEST(selftest, a_failing_driver_call_fails_one_item, .timeout_ms = 300000) {
    RF_ASSERT_INT(selftest(SIM "hipGraphLaunch:1:loss", ITEMS " --limit 200"), 1);
    expect_mark("open", "ok ", "budget ");
    expect_mark("recordings", "FAILED ", "RF_E_DEVICE_LOST");
    expect_mark("deadline", "", "");
    RF_ASSERT(strstr(report, "cannot be opened") == NULL);
    /* The budget granted it, but the driver has no memory. */
    RF_ASSERT_INT(selftest(SIM "hipMalloc:3+:2", "--items open,squeeze --limit 200"), 1);
    expect_mark("squeeze", "FAILED ", "RF_E_DEVICE_MEMORY");
}

RF_TEST(selftest, a_crash_fails_one_item_and_the_next_gets_a_new_worker, .timeout_ms = 300000) {
    RF_ASSERT_INT(selftest(SIM "hipGraphLaunch:1:crash", ITEMS " --limit 200 2>/dev/null"), 1);
    expect_mark("open", "ok ", "budget ");
    expect_mark("recordings", "FAILED ", "died of SIG");
    expect_mark("recordings", "FAILED ", "at: run 0 of the recording");
    expect_mark("deadline", "", "8 MiB");
    /* Where the device cannot be opened, the other items do not try. */
    RF_ASSERT_INT(selftest(SIM "hipMemGetInfo:1:crash", ITEMS " --limit 200 2>/dev/null"), 1);
    expect_mark("open", "FAILED ", "died of SIG");
    expect_mark("recordings", "skipped ", "the device cannot be opened");
    /* A driver that crashes while it is probed is a failure; one that is not there is none. */
    RF_ASSERT_INT(selftest(SIM "hipInit:1:crash", "--items open 2>/dev/null"), 1);
    expect_mark("probe", "FAILED ", "crashed");
    expect_mark("open", "skipped ", "the probe failed");
}

RF_TEST(selftest, a_hang_costs_one_deadline, .timeout_ms = 300000) {
    RF_ASSERT_INT(selftest(SIM "hipGraphLaunch:1:hang", "--items recordings --limit 4 2>/dev/null"), 1);
    expect_mark("recordings", "FAILED ", "did not answer within 4 s");
}

RF_TEST(selftest, a_gpu_without_kernels_is_a_failure) {
    RF_ASSERT_INT(selftest("RF_DRIVER=sim RFSIM=arch=gfx900", "--items open"), 1);
    expect_mark("open", "FAILED ", "gfx900");
}

/* What the driver cannot do is not tested. */
RF_TEST(selftest, a_driver_that_cannot_record_skips_the_item) {
    RF_ASSERT_INT(selftest(SIM "hipStreamBeginCapture:1:801", "--items open,recordings --limit 200"), 0);
    expect_mark("recordings", "skipped ", "hipErrorNotSupported");
    RF_ASSERT_CONTAINS(report, "2 ok, 0 failed, 1 skipped");
}

/* The fault makes the second item hang, so that there is something to interrupt. */
static const struct stopped {
    const char *label, *signal;
} signals[] = {{"interrupt", "INT"}, {"terminate", "TERM"}};
RF_TEST_LABELLED_CASES(selftest, a_signal_leaves_a_report_of_what_was_done, struct stopped, signals,
                       .timeout_ms = 300000) {
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             "--items open,recordings,deadline --limit 200 --report $F/report >$F/out & "
             "until grep -q recordings $F/out 2>/dev/null; do sleep 0.05; done; "
             "kill -%s $!; wait $!; code=$?; cat $F/out; exit $code",
             c->signal);
    RF_ASSERT_INT(selftest(SIM "hipGraphLaunch:1:hang", arguments), 1);
    expect_mark("recordings", "skipped ", "interrupted");
    RF_ASSERT_CONTAINS(report, "interrupted: 2 ok, 0 failed, 1 skipped");
    read_report();
    RF_ASSERT_CONTAINS(report, "\nopen           ok ");
    RF_ASSERT_CONTAINS(report, "\nrecordings     skipped ");
    RF_ASSERT(strstr(report, "\ndeadline ") == NULL);
    RF_ASSERT_CONTAINS(report, "; interrupted\n");
}

RF_TEST(selftest, bad_usage_is_one_line) {
    expect_one_line("", "--nonsense", 2, "unknown option --nonsense");
    expect_one_line("", "extra", 2, "extra");
    expect_one_line("", "--limit 0", 2, "from 1 to 3600");
    expect_one_line("", "--items open,nonsense", 2, "\"nonsense\"");
    expect_one_line("", "--items lent", 2, "\"lent\"");
    expect_one_line("", "--item open", 2, "internal");
    expect_one_line("RF_DRIVER=sim", "--device 7", 77, "no device 7");
    expect_one_line("RF_DRIVER=sim", "--device nonsense", 77, "nonsense");
    expect_one_line("RF_DRIVER=sim", "--report /nonexistent/folder/report", 1, "/nonexistent/folder/report");
    expect_one_line("RF_DRIVER=rocm", "", 2, "RF_DRIVER=rocm");
    if (access("/dev/full", W_OK) == 0)
        expect_one_line("RF_DRIVER=none", "--items open --report /dev/full", 1, "/dev/full could not be written");
}

/* ---- the report ---- */

RF_TEST(selftest, the_report_holds_nothing_private, .timeout_ms = 300000) {
    char host[256] = "", environment[1024];
    RF_ASSERT_INT(gethostname(host, sizeof host - 1), 0);
    RF_ASSERT_INT(selftest("", "--help >$F/file; mkdir -p $F/sys/module/amdgpu; "
                               "echo 6.16.13 >$F/sys/module/amdgpu/version"),
                  0);
    /* With a GPU: no PCI address, no UUID. The lease folder cannot be made, and the error text names it. */
    snprintf(environment, sizeof environment,
             "HOME=%s/marker-home USER=marker-user LOGNAME=marker-user RF_DRIVER=sim RF_LEASE_DIR=%s/file/marker-dir "
             "RFSIM=pci=0000:4d:00.0 RF_SYSFS=%s/sys",
             folder, folder, folder);
    RF_ASSERT_INT(selftest(environment, "--items open --report $F/report 2>&1"), 1);
    expect_mark("open", "FAILED ", "marker-dir"); /* on the terminal the whole text is shown */
    RF_ASSERT_CONTAINS(report, folder);
    read_report();
    RF_ASSERT_CONTAINS(report, "\nopen           FAILED ");
    RF_ASSERT_CONTAINS(report, "\nkernel driver  amdgpu 6.16.13\n");
    static const char *const markers[] = {"marker-home", "marker-user", "rf-test-selftest", "/tmp/", "4d:00", "GPU-"};
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++)
        if (strstr(report, markers[i])) RF_FAIL("the report holds %s: %s", markers[i], report);
    /* Without one: the reason names the library that is not there. */
    snprintf(environment, sizeof environment,
             "HOME=%s/marker-home USER=marker-user RF_DRIVER=hip RF_HIP_LIBRARY=%s/marker-home/lib/marker-user/x.so",
             folder, folder);
    RF_ASSERT_INT(selftest(environment, "--items open --report $F/report 2>&1"), 0);
    RF_ASSERT_CONTAINS(report, "marker-home");
    read_report();
    RF_ASSERT_CONTAINS(report, "x.so");
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++)
        if (strstr(report, markers[i])) RF_FAIL("the report holds %s: %s", markers[i], report);
    if (strlen(host) > 3 && strcmp(host, "Linux") && strstr(report, host))
        RF_FAIL("the report holds the host's name %s: %s", host, report);
}
