/* The runner and the GPU, on the simulated driver: shares, turns, admission by memory, health,
 * checks, allocations that fail, any command. */
#include "runner_testing.h"
#include "../../src/base/sanitizers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void enter_with(const char *rfsim) {
    make_folder();
    snprintf(environment, sizeof environment,
             "RF_BUDGET= RF_CHECK= RF_TEST_DEVICE= RUNNER_FOLDER='%s' XDG_CACHE_HOME='%s' %s", folder, folder,
             simulated(rfsim));
}
static void enter(void) {
    enter_with("");
}
#define ENTER .setup = enter, .teardown = leave, .timeout_ms = 600000

RF_TEST(share, serial_by_default, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 4 --repeat 3 'serial.*'"), 0);
    expect_end("9 passed, 0 failed, 0 skipped\n");
}

RF_TEST(share, parts_are_lent, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--show-output gpu.tells --check guard,poison"), 0);
    RF_EXPECT_CONTAINS(report, "budget part= device 0 check guard,poison may ");
    RF_ASSERT_INT(run(SAMPLE, "--show-output gpu.tells --in-process"), 0);
    RF_EXPECT_CONTAINS(report, "budget part= device 0 check ");
}

RF_TEST(share, in_parallel_within_it, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 2 --gpu-jobs 2 'meet_gpu.*'"), 0);
    expect_end("2 passed, 0 failed, 0 skipped\n");
    /* serial stays serial, and what does not fit together waits */
    RF_ASSERT_INT(run(SAMPLE, "--jobs 4 --gpu-jobs 4 --repeat 2 serial.one serial.two 'large.[ot]*'"), 0);
    expect_end("8 passed, 0 failed, 0 skipped\n");
    /* what was seen before is what it gets: little, so that four fit */
    RF_ASSERT_INT(run(SAMPLE, "--jobs 4 --gpu-jobs 4 --repeat 3 gpu.holds_some gpu.computes gpu.tells"), 0);
    expect_end("9 passed, 0 failed, 0 skipped\n");
}

/* The test's process says how much it held; a look from outside every now and then may miss it. */
RF_TEST(share, the_most_that_a_test_held_is_reported, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--json %s/r.json gpu.holds_some gpu.computes", folder), 0);
    char command[512];
    snprintf(command, sizeof command,
             "python3 -c 'import json; tests = {t[\"name\"]: t for t in json.load(open(\"%s/r.json\"))[\"tests\"]}; "
             "print(tests[\"gpu.holds_some\"][\"gpu_bytes\"] >> 20, tests[\"gpu.computes\"][\"gpu_bytes\"] >> 20)'",
             folder);
    RF_ASSERT_INT(run_shell(command), 0);
    unsigned long long some = 0, little = 0;
    RF_ASSERT_INT(sscanf(report, "%llu %llu", &some, &little), 2);
    RF_NOTE("%s", report);
    RF_EXPECT(some >= 64 + little - 8 && some < 1024);
}

RF_TEST(share, impossible_wishes_are_refused, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "large.impossible gpu.computes"), 2);
    RF_EXPECT_CONTAINS(report, "the test large.impossible wants 1");
    RF_EXPECT_INT(count_in_report("\n"), 1);
}

static int run_script(const char *script) {
    char path[300];
    snprintf(path, sizeof path, "%s/script", folder);
    FILE *file = fopen(path, "w");
    RF_ASSERT_NOT_NULL(file);
    fputs(script, file);
    fclose(file);
    int code = run_report("", "sh", path);
    RF_NOTE("%s", report);
    return code;
}

/* Two runners at once: the tests of both fail where they meet. */
RF_TEST(share, runners_take_turns, ENTER) {
    char script[4096];
    snprintf(
        script, sizeof script,
        "%s '%s' --repeat 4 serial.plain > '%s/one' 2>&1 & %s '%s' --repeat 4 serial.plain > '%s/two' 2>&1; a=$?; "
        "wait $!; echo $a $?; cat '%s/one' '%s/two'",
        environment, SAMPLE, folder, environment, SAMPLE, folder, folder, folder);
    RF_ASSERT_INT(run_script(script), 0);
    RF_EXPECT(strncmp(report, "0 0\n", 4) == 0);
    RF_EXPECT_INT(count_in_report("4 passed, 0 failed, 0 skipped\n"), 2);
}

RF_TEST(share, a_turn_that_does_not_come, ENTER) {
    char script[4096];
    snprintf(script, sizeof script,
             "%s '%s' test -- sh -c 'touch %s/held; sleep 600' 2> /dev/null & "
             "for i in $(seq 3000); do [ -e '%s/held' ] && break; sleep 0.02; done; "
             "%s '%s' --gpu-wait 0.2 gpu.computes order.a_innocent; code=$?; kill $!; wait; exit $code",
             environment, ROCMFORGE, folder, folder, environment, SAMPLE);
    RF_ASSERT_INT(run_script(script), 1);
    RF_EXPECT_CONTAINS(report, "waiting for the GPU: device 0 is in use by pid ");
    RF_EXPECT_CONTAINS(report, "the GPU's turn did not come");
    RF_EXPECT_CONTAINS(report, "1 passed, 1 failed, 1 skipped\n");
}

/* ---- health ---- */

RF_TEST(health, a_good_device_goes_on, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "gpu.fails gpu.computes"), 1);
    expect_end("1 passed, 1 failed, 0 skipped\n");
    RF_EXPECT(!strstr(report, "device lost"));
}

RF_TEST(health, a_lost_device_stops_gpu_tests_with_one_message, ENTER) {
    enter_with("fault=hipModuleLaunchKernel:1+:719");
    RF_ASSERT_INT(run(SAMPLE, "--no-rerun --jobs 1 gpu.fails gpu.computes gpu.tells gpu.holds_some order.a_innocent"),
                  1);
    /* the failing test and the message; three GPU tests were not run */
    expect_end("1 passed, 2 failed, 3 skipped\n");
    RF_EXPECT_INT(count_in_report("device lost after gpu.fails: "), 1);
    RF_EXPECT_CONTAINS(report, "3 GPU tests of this round are not run");
    RF_EXPECT_CONTAINS(report, "ok    order.a_innocent");
}

/* ---- checks ---- */

RF_TEST(fail_alloc, sweeps_every_allocation, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--fail-alloc alloc.three_of_them"), 0);
    expect_end("1 passed, 0 failed, 0 skipped\n");
    /* refused first: none; second: one; third: two; not at all: three */
    char path[300];
    struct stat info;
    snprintf(path, sizeof path, "%s/allocations", folder);
    RF_ASSERT(stat(path, &info) == 0);
    RF_EXPECT_INT(info.st_size, 0 + 1 + 2 + 3);
    RF_ASSERT_INT(run(SAMPLE, "--fail-alloc order.a_innocent"), 0);
}

RF_TEST(fail_alloc, demands_a_clean_end, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--fail-alloc alloc.crashes_at_the_second"), 1);
    RF_EXPECT_CONTAINS(report, "crash: SIGKILL");
    RF_EXPECT_CONTAINS(report, "allocation number 2 was refused");
    RF_ASSERT_INT(run(SAMPLE, "--fail-alloc alloc.forgets_the_first"), 1);
    RF_EXPECT_CONTAINS(report, "leaked 4194304 bytes");
    RF_EXPECT_CONTAINS(report, "allocation number 2 was refused");
}

RF_TEST(left, a_thread_beside_a_driver, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "left.thread_beside_a_driver"), 1);
    RF_EXPECT_CONTAINS(report, "left 1 thread running");
    RF_ASSERT_INT(run(SAMPLE, "--repeat 5 gpu.computes"), 0);
#if !RF_UNDER_ASAN && !RF_UNDER_TSAN /* there the name decides, see threads.c */
    RF_ASSERT_INT(run(SAMPLE, "left.busy_thread_beside_a_driver"), 0);
#endif
}

/* ---- any command ---- */

RF_TEST(any_command, under_lock_and_witness, ENTER) {
    RF_ASSERT_INT(run(ROCMFORGE, "test -- sh -c 'echo $RF_BUDGET $RF_TEST_DEVICE; exit 3'"), 3);
    RF_EXPECT_CONTAINS(report, "part=");
    RF_EXPECT_CONTAINS(report, "the GPU works: ");
    RF_ASSERT_INT(run(ROCMFORGE, "test -- %s gpu.computes", SAMPLE), 0);
    RF_EXPECT_CONTAINS(report, "1 passed, 0 failed, 0 skipped\n");
    enter_with("fault=hipModuleLaunchKernel:1+:719");
    RF_ASSERT_INT(run(ROCMFORGE, "test -- true"), 1);
    RF_EXPECT_CONTAINS(report, "the GPU is not usable before the command");
}
