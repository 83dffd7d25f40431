/* The command as a user meets it: exit status, one line for bad input, JSON that is JSON, and
 * a driver that dies without taking the command with it. */
#include "run_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../scratch.h"

static char folder[SCRATCH_BYTES];

/* environment: "NAME=VALUE …"; arguments may redirect. Leases are kept in a folder of this
 * test: what other processes were promised must not change its figures. */
static int run(const char *environment, const char *arguments) {
    if (!folder[0]) scratch_folder(folder, "cli");
    char command[2048];
    snprintf(command, sizeof command, "F=%s; env -u RF_DRIVER -u RF_BUDGET RF_LEASE_DIR=%s %s '%s' %s", folder,
             folder, environment, ROCMFORGE, arguments);
    return run_shell(command);
}

static void expect_one_line(const char *environment, const char *arguments, int code, const char *part) {
    char with_errors[512];
    snprintf(with_errors, sizeof with_errors, "%s 2>&1 >/dev/null", arguments);
    int actual = run(environment, with_errors);
    if (actual != code) RF_FAIL("rocmforge %s: exit status %d, expected %d: %s", arguments, actual, code, report);
    const char *end = strchr(report, '\n');
    if (!end || end[1] || strncmp(report, "rocmforge", 9) != 0)
        RF_FAIL("rocmforge %s is not answered with one line: %s", arguments, report);
    RF_ASSERT_CONTAINS(report, part);
}

RF_TEST(cli, help_everywhere) {
    RF_ASSERT_INT(run("", "help"), 0);
    RF_ASSERT_CONTAINS(report, "doctor");
    RF_ASSERT_INT(run("", "--help"), 0);
    static const char *const commands[] = {"doctor",   "selftest", "run",  "bench",    "logits",
                                           "kernels",  "check",    "info", "tokenize", "detokenize",
                                           "template", "test",     "demo", "version"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char arguments[64], usage[64];
        snprintf(usage, sizeof usage, "usage: rocmforge %s", commands[i]);
        snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
        RF_ASSERT_INT(run("", arguments), 0);
        RF_ASSERT_CONTAINS(report, usage);
        for (const char *c = report; *c; c++)
            if ((unsigned char)*c < 0x20 && *c != '\n') RF_FAIL("%s --help shows byte %d", commands[i], *c);
        snprintf(arguments, sizeof arguments, "help %s", commands[i]);
        RF_ASSERT_INT(run("", arguments), 0);
        RF_ASSERT_CONTAINS(report, usage);
    }
    RF_ASSERT_INT(run("", "--version"), 0);
    char version[64];
    snprintf(version, sizeof version, "rocmforge %s\n", rf_version());
    RF_ASSERT_TEXT(report, version);
    RF_ASSERT_INT(run("", "2>/dev/null"), 2);
}

RF_TEST(cli, help_has_every_option) {
    RF_ASSERT_INT(run("", "tokenize --help"), 0);
    RF_EXPECT_TEXT(report,
                   "usage: rocmforge tokenize -m M (--text T | --file F) [--no-bos] [--no-eos] [--parse-special]\n"
                   "Shows the token ids of a text, on one line.\n"
                   "\n"
                   "  -m, --model M              the model, a GGUF file with a vocabulary\n"
                   "      --text T               the text\n"
                   "      --file F               a file with the text, read byte for byte; - for standard input\n"
                   "      --no-bos               add no beginning token, even if the model wants one\n"
                   "      --no-eos               add no end token, even if the model wants one\n"
                   "      --parse-special        turn control tokens that are spelled out in the text into tokens\n"
                   "      --help                 show this help\n");
}

RF_TEST(cli, bad_usage_is_one_line) {
    expect_one_line("", "nonsense", 2, "\"nonsense\"");
    expect_one_line("", "help nonsense", 2, "\"nonsense\"");
    expect_one_line("", "doctor --nonsense", 2, "unknown option --nonsense");
    expect_one_line("", "doctor -x", 2, "unknown option -x");
    expect_one_line("", "doctor extra", 2, "extra");
    expect_one_line("", "doctor --json=yes", 2, "takes no value");
    expect_one_line("", "demo --device", 2, "a value is missing after --device");
    expect_one_line("", "doctor --budget-of x", 2, "whole number");
    expect_one_line("", "doctor --budget-of 0", 2, "internal");
    expect_one_line("", "test", 2, "executable");
    expect_one_line("", "test /nonexistent", 2, "/nonexistent");
    expect_one_line("RF_DRIVER=rocm", "doctor", 2, "RF_DRIVER=rocm");
    expect_one_line("RF_TIMEOUT_MS=soon", "demo", 2, "RF_TIMEOUT_MS=soon");
    expect_one_line("RF_DRIVER=none", "demo --device 0", 77, "no device");
}

RF_TEST(cli, full_disk_is_a_failure) {
    if (access("/dev/full", W_OK) != 0) RF_SKIP("there is no /dev/full");
    RF_ASSERT_INT(run("", "help 2>/dev/null >/dev/full"), 1);
    RF_ASSERT_INT(run("RF_DRIVER=none", "doctor --json 2>/dev/null >/dev/full"), 1);
}

/* Asks Python, which the build needs anyway, what a JSON report says. */
static void expect_json(const char *environment, const char *arguments, const char *condition) {
    char with_python[1024];
    snprintf(with_python, sizeof with_python,
             "%s | python3 -c 'import json, sys; r = json.load(sys.stdin); print(%s)'", arguments, condition);
    run(environment, with_python);
    if (strcmp(report, "True\n") != 0) RF_FAIL("rocmforge %s: %s is not so: %s", arguments, condition, report);
}

RF_TEST(doctor, no_gpu_is_no_failure) {
    RF_ASSERT_INT(run("RF_DRIVER=none", "doctor"), 0);
    RF_ASSERT_CONTAINS(report, "No usable GPU: ");
    RF_ASSERT_INT(run("RF_DRIVER=hip RF_HIP_LIBRARY=/nonexistent.so", "doctor"), 0);
    RF_ASSERT_CONTAINS(report, "/nonexistent.so");
    expect_json("RF_DRIVER=none", "doctor --json",
                "r[\"gpu_available\"] is False and r[\"devices\"] == [] and len(r[\"reason\"]) > 5");
}

RF_TEST(doctor, shows_the_simulated_device) {
    RF_ASSERT_INT(run("RF_DRIVER=sim", "doctor"), 0);
    RF_ASSERT_CONTAINS(report, "Simulated GPU 0");
    RF_ASSERT_CONTAINS(report, "70% of ");
    expect_json("RF_DRIVER=sim RFSIM=devices=2,vram=8G", "doctor --json --options",
                "r[\"gpu_available\"] and [d[\"index\"] for d in r[\"devices\"]] == [0, 1]"
                " and all(d[\"total\"] == 8 << 30 and d[\"simulated\"] and d[\"usable\"] for d in r[\"devices\"])"
                " and all(0 < d[\"budget\"] <= 0.7 * d[\"free\"] for d in r[\"devices\"])"
                " and {o[\"name\"]: o[\"value\"] for o in r[\"options\"]}[\"RF_DRIVER\"] == \"sim\"");
    expect_json("RF_DRIVER=sim RF_BUDGET=1GiB", "doctor --json", "r[\"devices\"][0][\"budget\"] == 1 << 30");
    expect_json("RF_DRIVER=sim", "doctor --json --quick", "r[\"devices\"][0][\"budget\"] is None");
}

/* A sanitizer would turn the crash into an exit. */
#define CRASH                                                                                                        \
    "ASAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 RF_DRIVER=sim "                                           \
    "RFSIM=fault=hipStreamCreateWithPriority:1:crash"

RF_TEST(doctor, outlives_its_driver) {
    /* The probe makes no stream; opening the device does, and dies of it. */
    RF_ASSERT_INT(run(CRASH, "doctor 2>/dev/null"), 0);
    RF_ASSERT_CONTAINS(report, "unknown: the worker process died of SIG");
    /* The probe must be done before its deadline, which decides when a hang is one: try longer ones. */
    char environment[160], part[128];
    for (int ms = 1500; ms <= 24000; ms *= 4) {
        snprintf(environment, sizeof environment,
                 "RF_DRIVER=sim RF_TIMEOUT_MS=%d RF_PROBE_TIMEOUT_MS=%d "
                 "RFSIM=fault=hipStreamCreateWithPriority:1:hang",
                 ms, ms);
        snprintf(part, sizeof part, "unknown: the driver did not answer for ");
        RF_ASSERT_INT(run(environment, "doctor 2>/dev/null"), 0);
        if (strstr(report, part)) break;
    }
    RF_ASSERT_CONTAINS(report, part);
    RF_ASSERT_CONTAINS(report, "the worker process was killed, at: opening the device");
    RF_ASSERT_INT(run(CRASH, "demo --device gpu 2>&1"), 1);
    RF_ASSERT_CONTAINS(report, "died of SIG");
}

/* A driver may take most of a minute to compile all kernels, the first time. */
RF_TEST(doctor, loads_no_kernel) {
    RF_ASSERT_INT(run("RF_DRIVER=sim RFSIM=fault=hipModuleLoadData:1:crash", "doctor"), 0);
    RF_ASSERT_CONTAINS(report, "70% of ");
    RF_EXPECT(!strstr(report, "; unknown: "));
}

RF_TEST(demo, on_the_simulated_driver) {
    RF_ASSERT_INT(run("", "demo --device sim 2>&1"), 0);
    RF_ASSERT_CONTAINS(report, ": right\n");
    /* What is measured takes some time. */
    double up = 0, kernel = 0, down = 0;
    const char *times = strstr(report, ": up ");
    RF_ASSERT_NOT_NULL(times);
    RF_ASSERT_INT(sscanf(times, ": up %lf ms, kernel softmax_f32 %lf ms, down %lf ms", &up, &kernel, &down), 3);
    RF_EXPECT(up > 0 && kernel > 0 && down > 0);
    RF_ASSERT_CONTAINS(report, "Refused ");
    RF_ASSERT_CONTAINS(report, "RF_BUDGET");
    RF_ASSERT_CONTAINS(report, "0 live allocations, 0 B in use");
    RF_ASSERT_INT(run("RF_DRIVER=none", "demo 2>&1"), 0);
    RF_ASSERT_CONTAINS(report, "The simulated driver stands in for it.");
    RF_ASSERT_INT(run("RF_CHECK=guard,poison,handle,launch", "demo -dsim 2>&1"), 0);
    RF_ASSERT_CONTAINS(report, ": right\n");
}

RF_TEST(demo, a_device_that_does_not_close_is_a_failure) {
    RF_ASSERT_INT(run("RFSIM=fault=hipModuleUnload:1:loss", "demo --device sim 2>&1"), 1);
    RF_ASSERT_CONTAINS(report, ": right\n");
    RF_ASSERT_CONTAINS(report, "rocmforge: demo: closing the device: ");
}

/* ---- check and kernels, for programs ---- */

RF_TEST(check_command, json) {
    expect_json("", "check --json --device cpu --op scale",
                "r[\"device\"] == \"CPU\" and list(r) == [\"device\", \"cases\", \"passed\", \"failed\", "
                "\"skipped\"] and r[\"passed\"] == len(r[\"cases\"]) > 100 and r[\"failed\"] == r[\"skipped\"] "
                "== 0 and all(c[\"op\"] == \"scale\" for c in r[\"cases\"])");
    expect_json("RF_DRIVER=sim RFSIM=name=Card", "check --json --op fill --modules fill",
                "r[\"device\"] == \"Card\" and r[\"passed\"] == len(r[\"cases\"]) > 10");
    expect_one_line("", "check --json --device cpu --op nonsense", 2,
                    "no op matches 'nonsense'; there are fill copy ");
}

/* The extracted manifest, and what a driver says, have every kernel that the list has. */
RF_TEST(kernels_command, leaves_none_out) {
    static const char script[] =
        "kernels > $F/list && read -r kernel module target rest <<EOF\n$(sed -n 2p $F/list)\nEOF\n"
        "'" ROCMFORGE "' kernels --extract $target $F/code && python3 - $F $target <<'EOF'\n"
        "import json, os, sys\n"
        "folder, target = sys.argv[1:]\n"
        "rows = [line.split() for line in open(folder + '/list')][1:]\n"
        "rows = [r for r in rows if r[2] == target]\n"
        "manifest = json.load(open(folder + '/code/manifest.json'))\n"
        "assert manifest['target'] == target\n"
        "assert [k['kernel'] for k in manifest['kernels']] == [r[0] for r in rows], (len(manifest['kernels']), "
        "rows)\n"
        "assert sorted({k['file'] for k in manifest['kernels']} | {'manifest.json'}) == sorted(os.listdir(folder + "
        "'/code'))\n"
        "assert all(os.path.getsize(folder + '/code/' + k['file']) > 100 for k in manifest['kernels'])\n"
        "print('all', len(rows))\nEOF";
    char with_folder[4096];
    run("", "version"); /* makes the folder */
    snprintf(with_folder, sizeof with_folder, "F=%s; export F; '%s' %s", folder, ROCMFORGE, script);
    RF_ASSERT_INT(run_shell(with_folder), 0);
    RF_EXPECT_CONTAINS(report, "\nall ");
    RF_ASSERT_INT(run("RF_DRIVER=sim",
                      "kernels --device 0 | awk 'NR > 2 { print $1, $2, $3; ok += $4 > 0 } END { print NR - 2, ok }' "
                      ">$F/asked; tail -1 $F/asked; sed '$d' $F/asked >$F/names; "
                      "awk '$3 == \"gfx1100\" { print $1, $2, $3 }' $F/list | diff - $F/names && echo same"),
                  0);
    int rows = 0, known = 0;
    RF_ASSERT_INT(sscanf(report, "%d %d", &rows, &known), 2);
    RF_EXPECT(rows > 100);
    RF_EXPECT_INT(known, rows);
    RF_EXPECT_CONTAINS(report, "same\n");
}
