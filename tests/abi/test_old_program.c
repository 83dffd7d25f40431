/* Runs a program that was compiled against the headers of 0.1.0 with the library of today. */
#include <rocmforge/test.h>

#include "run_report.h"

static const struct part {
    const char *label, *arguments;
} parts[] = {
    {"devices", "devices"},
    {"memory", "memory"},
    {"queues", "queues"},
    {"graphs", "graphs"},
    {"model", "model " BUNDLED_MODEL},
    {"engine_on_the_cpu", "engine " BUNDLED_MODEL " cpu"},
    {"engine_on_a_gpu", "engine " BUNDLED_MODEL " gpu"},
};

static void enter(void) {
    enter_simulated();
}
RF_TEST_LABELLED_CASES(old_program, runs, struct part, parts, .setup = enter, .timeout_ms = 1800000) {
    RF_EXPECT_INT(run_command("'%s' %s", OLD_PROGRAM, c->arguments), 0);
    RF_EXPECT_CONTAINS(last_line(), ": as in 0.1.0\n");
}
