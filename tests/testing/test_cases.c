/* Suites, set-up and tear-down, tables of cases: by running sample_authoring.c. */
#include "run_report.h"

#include <stdio.h>
#include <string.h>

/* The parts stand in the report in this order. */
static void expect_order(const char *const *parts) {
    const char *at = report;
    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        if (!found) RF_FAIL("\"%s\" does not follow in: %s", *parts, report);
        at = found + strlen(*parts);
    }
}

RF_TEST(suites, up_and_down_around_an_isolated_test) {
    RF_ASSERT_INT(run_report("", SAMPLE, "ordered.one --show-output"), 0);
    expect_order((const char *const[]){"suite up\n", "up\n", "one\n", "down\n", "suite down\n", NULL});
    RF_ASSERT_INT(run_report("", SAMPLE, "ordered.two"), 1);
    expect_order((const char *const[]){"two failed", "suite up\n", "up\n", "two\n", "down\n", "suite down\n", NULL});
}

RF_TEST(suites, once_per_process) {
    RF_ASSERT_INT(run_report("", SAMPLE, "'ordered.*' --in-process"), 1);
    RF_ASSERT_INT(count_in_report("suite up\n"), 1);
    RF_ASSERT_INT(count_in_report("suite down\n"), 1);
    expect_order((const char *const[]){"suite up\n", "one\n", "down\n", "two\n", "down\n", "suite down\n",
                                       "1 passed, 1 failed, 0 skipped\n", NULL});
}

RF_TEST(suites, failed_setup_fails_every_test) {
    for (int in_process = 0; in_process < 2; in_process++) {
        RF_TRACE("%s", in_process ? "in one process" : "isolated");
        RF_ASSERT_INT(run_report("", SAMPLE, in_process ? "'groundless.*' --in-process" : "'groundless.*' --jobs 1"),
                      1);
        RF_ASSERT_CONTAINS(report, "0 passed, 2 failed, 0 skipped\n");
        RF_ASSERT(count_in_report("no ground to stand on") >= 2);
        RF_ASSERT(!strstr(report, "never reached"));
        RF_ASSERT(!strstr(report, "| down\n")); /* its own set-up did not begin */
        RF_ASSERT_INT(count_in_report("suite down\n"), in_process ? 1 : 2);
    }
    RF_ASSERT_CONTAINS(report, "the set-up of suite groundless failed: ");
}

RF_TEST(suites, skipped_setup_skips_every_test) {
    RF_ASSERT_INT(run_report("", SAMPLE, "'idle.*' --in-process"), 0);
    RF_ASSERT_CONTAINS(report, "0 passed, 0 failed, 2 skipped\n");
    RF_ASSERT_INT(count_in_report("not today"), 2);
    RF_ASSERT_INT(run_report("", SAMPLE, "'idle.*'"), 0);
    RF_ASSERT_CONTAINS(report, "0 passed, 0 failed, 2 skipped\n");
}

RF_TEST(suites, own_setup_and_teardown) {
    RF_ASSERT_INT(run_report("", SAMPLE, "own.setup_fails"), 1);
    RF_ASSERT_CONTAINS(report, "no ground to stand on");
    RF_ASSERT_CONTAINS(report, "| down\n");
    RF_ASSERT(!strstr(report, "never reached"));
    RF_ASSERT_INT(run_report("", SAMPLE, "own.setup_skips --show-output"), 0);
    RF_ASSERT_CONTAINS(report, "not today");
    RF_ASSERT_CONTAINS(report, "| down\n");
    RF_ASSERT_INT(run_report("", SAMPLE, "own.teardown_fails"), 1);
    RF_ASSERT_CONTAINS(report, "cannot clean up");
    RF_ASSERT_CONTAINS(report, "| fine so far\n");
    RF_ASSERT_INT(run_report("", SAMPLE, "lateness.passes"), 1);
    RF_ASSERT_CONTAINS(report, "cannot clean up");
    RF_ASSERT_INT(run_report("", SAMPLE, "lateness.passes --in-process"), 1);
    RF_ASSERT_CONTAINS(report, "cannot clean up");
}

RF_TEST(tables, each_row_is_a_test) {
    RF_ASSERT_INT(run_report("", SAMPLE, "--list 'cases.labelled*'"), 0);
    RF_ASSERT_TEXT(report, "cases.labelled/one\ncases.labelled/a_b_c_\ncases.labelled/2\ncases.labelled/big\n");
    RF_ASSERT_INT(run_report("", SAMPLE, "--tag table"), 1);
    RF_ASSERT_CONTAINS(report, "3 passed, 1 failed, 0 skipped\n");
    RF_ASSERT_CONTAINS(report, "FAIL  cases.labelled/big");
    RF_ASSERT_CONTAINS(report, "| 100 x 100\n");
}

RF_TEST(tables, a_row_runs_alone) {
    RF_ASSERT_INT(run_report("", SAMPLE, "cases.labelled/a_b_c_ --show-output"), 0);
    RF_ASSERT_CONTAINS(report, "| 3 x 5\n");
    RF_ASSERT_CONTAINS(report, "1 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(run_report("", SAMPLE, "cases.indexed/10 --show-output --in-process"), 0);
    RF_ASSERT_CONTAINS(report, "number 5\n");
    RF_ASSERT_CONTAINS(report, "1 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(run_report("", SAMPLE, "'cases.indexed/*'"), 1);
    RF_ASSERT_CONTAINS(report, "10 passed, 1 failed, 0 skipped\n");
    RF_ASSERT_CONTAINS(report, "FAIL  cases.indexed/5");
}

#ifdef CPP17_SAMPLE
RF_TEST(languages, cpp) {
    static const char *const samples[] = {CPP17_SAMPLE, CPP20_SAMPLE};
    for (int i = 0; i < 2; i++) {
        RF_TRACE("%s", samples[i]);
        RF_ASSERT_INT(run_report("", samples[i], "--show-output --jobs 1"), 1);
        RF_ASSERT_CONTAINS(report, i ? "8 passed, 1 failed, 0 skipped\n" : "7 passed, 1 failed, 0 skipped\n");
        RF_ASSERT_CONTAINS(report, "FAIL  cpp.fails_on_a_thread");
        RF_ASSERT_CONTAINS(report, "in: in a lambda (");
        RF_ASSERT_CONTAINS(report, "at [1] (0, 1): is 2, expected 3");
        RF_ASSERT_INT(run_report("", samples[i], "--list --tag set"), 0);
        RF_ASSERT_TEXT(report, "cpp.with_options\n");
        RF_ASSERT_INT(run_report("", samples[i], "cpp.labelled/two"), 0);
    }
}
#endif
