/* What the runner makes of the tests in misbehaving.c: each must be caught and named for what it did. */
#include <rocmforge/test.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_report.h"

static const char *folder; /* of this process; goes with it */

static void enter_folder(void) {
    char path[300];
    folder = enter_simulated();
    snprintf(path, sizeof path, "%s/counter", folder);
    setenv("MISBEHAVING_COUNTER", path, 1);
}
#define IN_FOLDER .setup = enter_folder

/* ---- one fault each ---- */

struct fault {
    const char *label;    /* of the bad test */
    const char *options;  /* of the runner */
    const char *parts[4]; /* of what it must say */
};
static const struct fault faults[] = {
    {"leaks_one_byte", "", {"leaked 1 bytes: ", "tests/misbehaving/misbehaving.c:", "in new_buffer"}},
    {"writes_one_element_past_a_buffer",
     "--check guard",
     {"RF_E_CORRUPT", "byte 0 past the end of a 400-byte buffer 'misbehaving'", "misbehaving.c"}},
    {"corrupts_a_neighbour",
     "--check guard",
     {"RF_E_CORRUPT", "past the end of a 4096-byte buffer 'misbehaving'", "bytes before the start"}},
    {"reads_uninitialised_memory", "--check poison", {"524288 of 524288 values", "NaN 524288"}},
    {"hangs_the_gpu", "", {"timeout: killed after "}},
    {"hangs_the_gpu_and_sees_it", "", {"RF_E_TIMEOUT", "'fill_f32'", "the GPU was lost"}},
    {"loses_the_device", "", {"RF_E_DEVICE_LOST", "'fill_f32'", "the GPU was lost"}},
    {"crashes", "", {"crash: SIGSEGV"}},
    {"leaks_a_thread", "", {"left 1 thread running"}},
    {"forks_and_leaves_a_child", "", {"left a process behind: ", "it was killed"}},
};

RF_TEST_LABELLED_CASES(misbehaving, is_caught, struct fault, faults, IN_FOLDER) {
    RF_EXPECT_INT(run_command("%s test --match misbehaving.%s %s %s", ROCMFORGE, c->label, c->options, MISBEHAVING),
                  1);
    RF_EXPECT_TEXT(last_line(), "0 passed, 1 failed, 0 skipped\n");
    char line[128];
    snprintf(line, sizeof line, "FAIL  misbehaving.%s", c->label);
    RF_EXPECT_CONTAINS(report, line);
    for (size_t i = 0; i < sizeof c->parts / sizeof c->parts[0] && c->parts[i]; i++)
        RF_EXPECT_CONTAINS(report, c->parts[i]);
}

/* What the checks are for: without them these two look well. */
RF_TEST(misbehaving, looks_well_without_checks, IN_FOLDER) {
    RF_EXPECT_INT(
        run_command("%s test --match 'misbehaving.writes*' --match 'misbehaving.reads*' %s", ROCMFORGE, MISBEHAVING),
        0);
    RF_EXPECT_TEXT(last_line(), "2 passed, 0 failed, 0 skipped\n");
}

/* ---- those that take more than one look ---- */

RF_TEST(misbehaving, flaky_is_called_flaky, IN_FOLDER) {
    RF_EXPECT_INT(run_command("%s test --repeat 9 --jobs 1 --match misbehaving.fails_every_third_time %s", ROCMFORGE,
                              MISBEHAVING),
                  1);
    RF_EXPECT_CONTAINS(report, "misbehaving.fails_every_third_time: flaky (3 of 9 runs failed)\n");
    RF_EXPECT_TEXT(last_line(), "6 passed, 3 failed, 0 skipped\n");
}

/* The child that was left must be gone with the run. */
RF_TEST(misbehaving, a_left_child_does_not_outlive_the_run, IN_FOLDER) {
    RF_EXPECT_INT(
        run_command("%s test --show-output --match misbehaving.forks_and_leaves_a_child %s", ROCMFORGE, MISBEHAVING),
        1);
    const char *said = strstr(report, "left ");
    RF_ASSERT_NOT_NULL(said);
    int child = atoi(said + strlen("left "));
    RF_ASSERT(child > 1);
    RF_EXPECT(is_gone(child));
}

/* Bounded memory, a readable report, one closing line, and the truth in it. */
RF_TEST(misbehaving, a_full_stdout_confuses_nobody, IN_FOLDER) {
    RF_EXPECT_INT(run_command("%s test --match misbehaving.fills_stdout --match misbehaving.crashes %s", ROCMFORGE,
                              MISBEHAVING),
                  1);
    RF_EXPECT_TEXT(last_line(), "1 passed, 1 failed, 0 skipped\n");
    RF_EXPECT(strlen(report) < 100000);
    RF_EXPECT_CONTAINS(report, "FAIL  misbehaving.crashes");
}

/* A lost device stops GPU tests with one message; the rest still runs. Lost to every process, and
 * to one that runs all tests. */
RF_TEST(misbehaving, a_lost_device_is_no_cascade, IN_FOLDER) {
    static const char tests[] =
        "'misbehaving.writes*' misbehaving.corrupts_a_neighbour misbehaving.fails_every_third_time";
    setenv("RFSIM", "fault=hipModuleLaunchKernel:1:work/loss", 1);
    RF_EXPECT_INT(run_command("%s %s", MISBEHAVING, tests), 1);
    RF_EXPECT_CONTAINS(report, "device lost after misbehaving.writes_one_element_past_a_buffer");
    RF_EXPECT_CONTAINS(report, "1 GPU tests of this round are not run; the rest is");
    RF_EXPECT_CONTAINS(report, "ok    misbehaving.fails_every_third_time");
    RF_EXPECT_TEXT(last_line(), "1 passed, 2 failed, 1 skipped\n");
    RF_EXPECT_INT(run_command("%s --in-process %s", MISBEHAVING, tests), 1);
    RF_EXPECT_CONTAINS(report, "device lost in this process after misbehaving.writes_one_element_past_a_buffer");
    RF_EXPECT_CONTAINS(report, "ok    misbehaving.fails_every_third_time");
    RF_EXPECT_TEXT(last_line(), "1 passed, 2 failed, 1 skipped\n");
}

/* ---- the report for other tools ---- */

RF_TEST(misbehaving, json_names_the_verdicts, IN_FOLDER) {
    static char text[1 << 16];
    char path[300];
    snprintf(path, sizeof path, "%s/report.json", folder);
    RF_EXPECT_INT(run_command("%s test --json %s --match misbehaving.crashes --match misbehaving.leaks_one_byte "
                              "--match misbehaving.fails_every* "
                              "--repeat 3 --jobs 1 %s",
                              ROCMFORGE, path, MISBEHAVING),
                  1);
    FILE *file = fopen(path, "r");
    RF_ASSERT_NOT_NULL(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    RF_EXPECT_CONTAINS(text, "\"passed\": 2, \"failed\": 7, \"skipped\": 0");
    RF_EXPECT_CONTAINS(text, "\"message\": \"crash: SIGSEGV (Segmentation fault)\"");
    RF_EXPECT_CONTAINS(text, "leaked 1 bytes: ");
    RF_EXPECT_CONTAINS(text, "\"explanation\": \"flaky (1 of 3 runs failed)\"");
}
