/* The fixture and the leak check, by running sample_fixture.c on the simulated driver; each bad
 * test both in a process of its own and in one for all. */
#include "run_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../scratch.h"

static const char *const no_more = NULL;
static void expect(int code, const char *environment, const char *arguments, const char *const *parts) {
    RF_TRACE("%s", arguments);
    int got = run_report(environment, FIXTURE_SAMPLE, arguments);
    if (got != code) RF_FAIL("exit status %d, expected %d: %s", got, code, report);
    for (; *parts; parts++) RF_ASSERT_CONTAINS(report, *parts);
}
#define EXPECT(code, environment, arguments, ...)                                                                    \
    expect(code, environment, arguments, (const char *const[]){__VA_ARGS__, no_more})

/* Fails both isolated and in one process, with these parts. */
static void expect_bad(const char *environment, const char *name, const char *const *parts) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s", name);
    expect(1, environment, arguments, parts);
    RF_ASSERT_CONTAINS(report, "0 passed, 1 failed, 0 skipped\n");
    snprintf(arguments, sizeof arguments, "%s later.on_the_gpu --in-process", name);
    expect(1, environment, arguments, parts);
    RF_ASSERT_CONTAINS(report, "1 passed, 1 failed, 0 skipped\n"); /* the good one goes on unharmed */
}
#define EXPECT_BAD(environment, name, ...) expect_bad(environment, name, (const char *const[]){__VA_ARGS__, no_more})

RF_TEST(fixture, good_tests_pass) {
    EXPECT(0, simulated(""), "'good.*' 'sharing.*'", "6 passed, 0 failed, 0 skipped\n");
    EXPECT(0, simulated(""), "'good.*' 'sharing.*' --in-process", "6 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(count_in_report("GPU test fixture: "), 1);
    EXPECT(0, simulated("delay=3/200us,late=50"), "'good.*' 'sharing.*' --in-process --repeat 5",
           "30 passed, 0 failed, 0 skipped\n");
}

RF_TEST(fixture, start_line_says_what_it_is) {
    EXPECT(0, simulated("vram=8GiB,name=Test Card"), "good.figures --show-output --seed 77",
           "GPU test fixture: Test Card, total 8192 MiB, free ", " MiB, safe ", " MiB, seed 77\n",
           "| Test Card has 8192 MiB\n");
}

RF_TEST(fixture, device_is_chosen) {
    static const char two[] = "devices=2,gpu0.name=First,gpu1.name=Second,gpu0.display=1";
    char environment[1200];
    EXPECT(0, simulated_tree(two), "good.figures --show-output", "GPU test fixture: Second, ");
    RF_ASSERT(!strstr(report, "display"));
    snprintf(environment, sizeof environment, "%s RF_TEST_DEVICE=0", simulated_tree(two));
    EXPECT(0, environment, "good.figures --show-output", "GPU test fixture: First, ", "First drives a display");
    snprintf(environment, sizeof environment, "%s RF_TEST_DEVICE=7", simulated(two));
    EXPECT(77, environment, "--run-one good.figures",
           "ERROR: the GPU test fixture could not find the device of RF_TEST_DEVICE: RF_E_NO_DEVICE: no device '7'");
    EXPECT(0, simulated_tree("display=1"), "good.figures --show-output", "drives a display");
}

RF_TEST(fixture, absence_skips_with_a_hint) {
    EXPECT(0, "RF_DRIVER=none", "good.works later.on_the_cpu", "skip  good.works  (no GPU: ", "RF_DRIVER=none",
           "1 passed, 0 failed, 1 skipped\n");
    RF_ASSERT(!strstr(report, "ERROR"));
    EXPECT(0, "RF_DRIVER=hip RF_HIP_LIBRARY=/nonexistent/libamdhip64.so", "good.works --in-process",
           "(no GPU: ", "/nonexistent/libamdhip64.so", "0 passed, 0 failed, 1 skipped\n");
    EXPECT(0, simulated("devices=0"), "good.works", "(no GPU: ", "0 passed, 0 failed, 1 skipped\n");
}

RF_TEST(fixture, failed_start_is_an_error_and_skips) {
    char environment[1200];
    snprintf(environment, sizeof environment, "%s RF_BUDGET=nonsense", simulated(""));
    EXPECT(77, environment, "--run-one good.works", "ERROR: the GPU test fixture could not start: RF_E_SYNTAX: ");
    EXPECT(0, simulated("fault=hipStreamCreateWithPriority:1+:2"), "good.works good.figures --in-process",
           "(ERROR: the GPU test fixture could not open the device: RF_E_", "0 passed, 0 failed, 2 skipped\n");
    RF_ASSERT_INT(count_in_report("(ERROR: "), 2);
    RF_ASSERT_INT(count_in_report("ERROR: "), 3); /* tried once */
}

RF_TEST(leaks, fail_the_test) {
    EXPECT_BAD(simulated(""), "bad.leaks_one_byte", "leaked 1 bytes: ", "sample_fixture.c:", "1 bytes 'sample', ",
               " in make, ", " s old");
    EXPECT_BAD(simulated(""), "bad.leaks_pinned", "leaked 100 bytes: ", "100 bytes of pinned host memory");
    EXPECT_BAD(simulated(""), "bad.leaks_many", "leaked 480 bytes in several allocations: ", "and 10 more");
    EXPECT_BAD(simulated(""), "bad.leaves_a_queue", "left 1 queues, events or views undestroyed");
    EXPECT_BAD(simulated(""), "bad.fails_with_a_buffer", "with a buffer in hand",
               "left behind, and released for it, 512 bytes: ");
}

RF_TEST(leaks, behind_failures_with_work_under_way) {
    EXPECT_BAD(simulated(""), "bad.fails_while_the_gpu_works", "in the middle of it",
               "left behind, and released for it, 64 bytes: ");
    EXPECT_BAD(simulated(""), "bad.fails_on_a_thread", "is false: user != NULL\n", "on another thread, ",
               "left behind, and released for it, 24 bytes: ");
}

RF_TEST(fixture, debug_shows_launches) {
    EXPECT(0, simulated(""), "good.works --debug --show-output", "launch increment: grid 1 x 1 x 1, block 1 x 1 x 1",
           "values agree; largest difference 0; first 1 0 0 0");
}

RF_TEST(leaks, tolerance_is_no_excuse) {
    EXPECT_BAD(simulated(""), "bad.leaks_and_asserts", "leaked 4003 bytes in 2 allocations:", "3 bytes 'sample'",
               "4000 bytes 'sample'");
    RF_ASSERT(!strstr(report, "never reached"));
}

RF_TEST(leaks, second_witness) {
    /* The process's own figure counts without a tolerance; 5% of 16 GiB are more than 512 MiB. */
    EXPECT(1, simulated_tree(""), "past.leak_0",
           "the ledger is balanced, but this process holds 536870912 bytes more", "allocates outside the ledger");
    EXPECT(1, simulated_tree(""), "past.leak_1", "this process holds 536870912 bytes more", "allowed 238907555 (1%");
    EXPECT(0, simulated_tree(""), "past.leak_5", "1 passed");
    /* The whole GPU's figure counts only with one. */
    EXPECT(0, simulated(""), "past.leak_0", "1 passed");
    EXPECT(1, simulated(""), "past.leak_1", "the whole GPU has in use 536870912 bytes more");
    EXPECT(0, simulated(""), "past.leak_5", "1 passed");
    EXPECT(1, simulated(""), "past.wrong_percentage", "-1 is not a percentage from 0 to 100");
}

RF_TEST(leaks, late_memory_is_waited_for) {
    EXPECT(0, simulated("late=300"), "past.comes_back", "1 passed");
    EXPECT(0, simulated_tree("late=300"), "past.comes_back", "1 passed");
}

RF_TEST(leaks, of_a_skipped_test_are_released) {
    EXPECT(0, simulated(""), "bad.skips_with_a_buffer later.on_the_gpu --in-process",
           "1 passed, 0 failed, 1 skipped\n", "left behind, and released for it, 512 bytes");
}

RF_TEST(leaks, of_a_suite) {
    EXPECT(1, simulated(""), "leaky.passes_itself", "leaked 128 bytes: ");
    EXPECT(1, simulated(""), "leaky.passes_itself --in-process", "leaked 128 bytes: ");
}

RF_TEST(leaks, of_an_inner_run) {
    EXPECT_BAD(simulated(""), "bad.inner", "inside", "left behind, and released for it, 77 bytes: ");
    RF_ASSERT(!strstr(report, "never reached"));
}

RF_TEST(device_memory, is_compared) {
    EXPECT_BAD(simulated(""), "bad.not_zero", "buffer is not zero: 101 of 6400 bytes differ",
               "first at byte 100: is 0x07", "| #          ", "  .| a cell is 100 bytes");
    EXPECT_BAD(simulated(""), "bad.no_buffer", "buffer could not be read back", "gave     RF_E_INVALID: it is NULL");
    EXPECT_BAD(simulated(""), "bad.wrong_values", "11 values of f32 do not fit its 40 bytes",
               "1 of 10 values are off", "at [2]: is 0, expected 3");
}

RF_TEST(device_memory, guards_are_checked) {
    char environment[1200];
    snprintf(environment, sizeof environment, "%s RF_CHECK=guard", simulated(""));
    EXPECT_BAD(environment, "bad.writes_past_the_end_and_keeps_it", "RF_E_CORRUPT");
    EXPECT_BAD(environment, "bad.writes_past_the_end", "RF_E_CORRUPT");
}

/* Behind a test that loses the device, in the same process: fails at once, with the reason. */
static void expect_lost_later(const char *environment, const char *culprit) {
    char path[SCRATCH_BYTES], arguments[512];
    int fd = scratch_file(path, "before");
    RF_ASSERT(fd >= 0);
    dprintf(fd, "%s\n", culprit);
    close(fd);
    snprintf(arguments, sizeof arguments, "--run-one later.on_the_gpu --before %s --record-fd 3 3>&1", path);
    int code = run_report(environment, FIXTURE_SAMPLE, arguments);
    unlink(path);
    RF_ASSERT_INT(code, 1);
    char text[512];
    snprintf(text, sizeof text, "the GPU was lost in %s, earlier in this process: ", culprit);
    RF_ASSERT_INT(count_in_report(text), 1);
    RF_ASSERT_INT(count_in_report("failure\t"), 1);
}

RF_TEST(lost, hang_is_bounded_and_stops_gpu_tests, .timeout_ms = 600000) {
    char environment[1200];
    snprintf(environment, sizeof environment, "%s RF_TIMEOUT_MS=2000", simulated(""));
    EXPECT(1, environment, "bad.hangs_the_gpu", "FAIL  bad.hangs_the_gpu", "the GPU was lost: ", "spin_forever_flag");
    EXPECT(1, environment, "'bad.hangs_the_gpu' 'later.*' --in-process", "FAIL  bad.hangs_the_gpu",
           "the GPU was lost: ", "1 passed, ", " 2 skipped\n");
    expect_lost_later(environment, "bad.hangs_the_gpu");
}

RF_TEST(lost, fault_is_told_once) {
    const char *environment = simulated("fault=hipModuleLaunchKernel:1:work/700");
    EXPECT(1, environment, "bad.loses_the_gpu", "the GPU was lost: ", "hipErrorIllegalAddress", "'increment'");
    EXPECT(1, environment, "bad.loses_the_gpu later.on_the_gpu later.on_the_cpu --in-process", "1 passed, ",
           " 1 skipped\n");
    expect_lost_later(environment, "bad.loses_the_gpu");
}

RF_TEST(fixture, misuse_is_named) {
    EXPECT(1, simulated(""), "bad.says_nothing_of_a_gpu", "declare it with .gpu = true");
    EXPECT(1, simulated(""), "bad.configures_late", "the fixture is open already");
    EXPECT(1, simulated(""), "bad.forks", "no driver survives a fork", "in the forked process ");
}

RF_TEST(fixture, params_of_a_newer_program) {
    EXPECT(0, simulated(""), "newer.configures_with_what_is_known", "1 passed, 0 failed, 0 skipped\n");
    EXPECT(1, simulated(""), "newer.configures_with_what_is_not",
           "rf_fixture_configure: struct rf_fixture_params has 56 ", "the first 48 of them, and byte 48 is set");
    EXPECT(1, simulated(""), "newer.configures_without_a_size",
           "rf_fixture_configure: the struct_size of struct rf_fixture_params is not set");
}
