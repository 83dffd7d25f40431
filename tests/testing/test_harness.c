/* What the harness makes of tests that misbehave. Each runs the sample executable and reads
 * the report; a verdict counts only with the exit status that belongs to it. */
#include "run_report.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(const char *executable, const char *arguments) {
    return run_report("", executable, arguments);
}

/* Runs one sample test, expects it to fail, and these parts in the report. */
static void expect_failure(const char *name, const char *part, const char *other_part) {
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s --seed 5", name);
    RF_ASSERT_INT(run(SAMPLE, arguments), 1);
    RF_ASSERT_CONTAINS(report, "FAIL  ");
    RF_ASSERT_CONTAINS(report, part);
    RF_ASSERT_CONTAINS(report, other_part);
    RF_ASSERT_CONTAINS(report, "\n0 passed, 1 failed, 0 skipped\n");
    RF_ASSERT_CONTAINS(report, "--seed 5");
}

/* How many lines look like a closing line. */
static int closing_lines(void) {
    int count = 0;
    for (const char *at = report; (at = strstr(at, " passed, ")); at++) {
        const char *start = at;
        while (start > report && isdigit((unsigned char)start[-1])) start--;
        count += start < at && (start == report || start[-1] == '\n');
    }
    return count;
}

RF_TEST(harness, counts_and_closes) {
    RF_ASSERT_INT(run(SAMPLE, "'good.*'"), 0);
    RF_ASSERT_TEXT(last_line(), "5 passed, 0 failed, 1 skipped\n");
    RF_ASSERT_INT(closing_lines(), 1);
    RF_ASSERT_CONTAINS(report, "skip  good.skips  (no thing here)\n");
    RF_ASSERT(!strstr(report, "a note with seed")); /* of a test that passed */
    RF_ASSERT_INT(run(SAMPLE, "good.passes bad.asserts good.skips --jobs 3"), 1);
    RF_ASSERT_TEXT(last_line(), "1 passed, 1 failed, 1 skipped\n");
}

RF_TEST(harness, assertions_end_the_test) {
    expect_failure("bad.asserts", "sample.c:", "expected RF_E_BUDGET");
    RF_ASSERT_CONTAINS(report, "| before");
    RF_ASSERT(!strstr(report, "never reached"));
    expect_failure("bad.asserts_in_a_helper", "is       41", "expected 42");
    RF_ASSERT(!strstr(report, "never reached"));
}

RF_TEST(harness, expectations_go_on) {
    expect_failure("bad.expects", "expected 2", "is false: 0 > 1");
    RF_ASSERT_CONTAINS(report, "| reached");
    expect_failure("bad.expects_without_end", "expected -1", "and 99950 more");
}

RF_TEST(harness, floats_say_where) {
    expect_failure("bad.floats", "1 of 3 values are off", "is 2, expected 2.5");
    RF_ASSERT_CONTAINS(report, "largest difference 0.5 (2097152 ULP) at [1]");
}

RF_TEST(harness, threads_and_forks_are_heard) {
    expect_failure("bad.thread_asserts", "\"thread\"", "| the thread ended");
    expect_failure("bad.forked_child_asserts", "is       7", "| child exited with 1");
}

RF_TEST(harness, crashes_are_named) {
    expect_failure("bad.crashes", "crash: SIGSEGV", "| last words");
    RF_ASSERT_CONTAINS(report, "expected 6"); /* said before the crash */
    expect_failure("bad.aborts", "crash: SIGABRT", "");
    expect_failure("bad.exits", "exited with status 0 before the test ended", "");
    expect_failure("bad.leaves_at_once", "exited with status 0 before the test ended", "");
    expect_failure("bad.crashes_at_exit", "exited with status 9, after the test itself had ended", "");
}

RF_TEST(harness, hangs_are_killed) {
    /* It may not have got to its last words within a short deadline. */
    for (int scale = 1; scale <= 64; scale *= 4) {
        char arguments[64];
        snprintf(arguments, sizeof arguments, "bad.hangs --timeout-scale %d", scale);
        RF_ASSERT_INT(run(SAMPLE, arguments), 1);
        if (strstr(report, "| about to hang")) break;
    }
    RF_ASSERT_CONTAINS(report, "timeout: killed after");
    RF_ASSERT_CONTAINS(report, "| about to hang");
    expect_failure("bad.ignores_signals", "timeout: killed after", "");
}

RF_TEST(harness, output_is_no_verdict) {
    expect_failure("bad.lies_about_the_end", "the truth", "| 1 passed, 0 failed, 0 skipped");
    RF_ASSERT_INT(closing_lines(), 1);
    RF_ASSERT_INT(run(SAMPLE, "good.prints_a_false_failure --show-output"), 0);
    RF_ASSERT_TEXT(last_line(), "1 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(closing_lines(), 1);
    expect_failure("bad.prints_garbage", "after \\x01 garbage\n      and a second line\t.", "\\x1b[2J");
    for (const char *c = report; *c; c++) RF_ASSERT((unsigned char)*c >= 0x20 || *c == '\n' || *c == '\t');
}

RF_TEST(harness, output_is_bounded) {
    expect_failure("bad.floods", "| the first line", "| the last line");
    RF_ASSERT_CONTAINS(report, " bytes left out ");
    RF_ASSERT(strlen(report) < 300000);
}

RF_TEST(harness, nothing_is_left_running) {
    expect_failure("bad.leaves_a_process_behind", "left a process behind: ", "it was killed");
    const char *left = strstr(report, "| left ");
    RF_ASSERT(left != NULL);
    int pid = atoi(left + strlen("| left "));
    RF_ASSERT(pid > 1);
    RF_EXPECT(is_gone(pid));
}

RF_TEST(harness, options) {
    RF_ASSERT_INT(run(SAMPLE, "--list 'good.p*'"), 0);
    RF_ASSERT_TEXT(report, "good.passes\ngood.prints_a_false_failure\n");
    RF_ASSERT_INT(run(SAMPLE, "--match 'good.*' --tag stress"), 0);
    RF_ASSERT_TEXT(last_line(), "1 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "--match 'good.slow*' --match good.passes --skip-tag slow"), 0);
    RF_ASSERT_TEXT(last_line(), "1 passed, 0 failed, 1 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "good.notes --repeat 3 --seed 10 --show-output --jobs 1"), 0);
    RF_ASSERT_TEXT(last_line(), "3 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_CONTAINS(report, "| a note with seed 10\n");
    RF_ASSERT_CONTAINS(report, "| a note with seed 12\n");
    RF_ASSERT_INT(run(SAMPLE, "--quiet good.passes"), 0);
    RF_ASSERT_TEXT(report, "1 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "--help"), 0);
    RF_ASSERT_CONTAINS(report, "--timeout-scale");
}

RF_TEST(harness, bad_usage_is_one_line) {
    static const char *const wrong[] = {"--nothing",     "nosuch.test", "--jobs 0",          "--jobs",
                                        "--seed twelve", "--repeat -1", "--timeout-scale 0", "--run-one nosuch"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (run(SAMPLE, wrong[i]) != 2) RF_FAIL("%s: %s", wrong[i], report);
        const char *end = strchr(report, '\n');
        if (!end || end[1]) RF_FAIL("%s is not answered with one line: %s", wrong[i], report);
    }
}

RF_TEST(harness, in_one_process) {
    RF_ASSERT_INT(run(SAMPLE, "--in-process good.passes good.skips bad.asserts bad.expects good.notes"), 1);
    RF_ASSERT_TEXT(last_line(), "2 passed, 2 failed, 1 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "--in-process bad.thread_asserts bad.forked_child_asserts"), 1);
    RF_ASSERT_TEXT(last_line(), "0 passed, 2 failed, 0 skipped\n");
}

RF_TEST(harness, main_of_ones_own) {
    RF_ASSERT_INT(run(OWN_MAIN, ""), 0);
    RF_ASSERT_CONTAINS(report, "a main of its own");
    RF_ASSERT_TEXT(last_line(), "1 passed, 0 failed, 0 skipped\n");
}

RF_TEST(harness, several_executables) {
    char *argv[] = {"rocmforge test", SAMPLE, OWN_MAIN, "--match", "*.passes", "--list", NULL};
    pid_t child = fork(); /* its standard output is ours, so only the exit status is looked at */
    if (child == 0) _exit(rf_test_main_executables(6, argv));
    int status;
    waitpid(child, &status, 0);
    RF_ASSERT_INT(WEXITSTATUS(status), 0);
    static const struct {
        char *executable, *pattern;
        int code;
    } cases[] = {
        {SAMPLE, "good.*", 0}, {SAMPLE, "bad.exits", 1},      {OWN_MAIN, "*", 0},
        {SAMPLE, "nosuch", 2}, {"/nonexistent/file", "*", 2}, {"/bin/true", "*", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *arguments[] = {"rocmforge test", "--match", cases[i].pattern, cases[i].executable, NULL};
        child = fork();
        if (child == 0) {
            int code = rf_test_main_executables(4, arguments);
            fflush(NULL);
            _exit(code);
        }
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != cases[i].code)
            RF_FAIL("%s %s: exit status %d, expected %d", cases[i].executable, cases[i].pattern, WEXITSTATUS(status),
                    cases[i].code);
    }
}
