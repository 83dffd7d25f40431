/* What a person sees: a line per test, everything about a failure, and the closing line.
 *
 * Invariant: what a test printed is shown indented and with control characters spelled out, so
 * nothing it prints looks like a line of the report. */
#include "testing_impl.h"

#include <stdlib.h>
#include <string.h>

void rf_test_report_start(const struct rf_test_settings *settings, const struct rf_test_plan *plan) {
    if (settings->quiet) return;
    printf("%zu tests, ", plan->count);
    if (plan->executable_count) printf("%zu executables, ", plan->executable_count);
    if (settings->in_process)
        printf("in this process");
    else
        printf("%d at a time", settings->jobs);
    printf(", seed %llu\n", (unsigned long long)settings->seed);
}

static void print_lines(const char *prefix, const char *text, size_t length) {
    bool at_start = true;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (at_start) fputs(prefix, stdout);
        at_start = c == '\n';
        if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f))
            putchar(c);
        else if (c != '\r' || (i + 1 < length && text[i + 1] != '\n'))
            printf("\\x%02x", c);
    }
    if (!at_start) putchar('\n');
}

static void print_output(const struct rf_test_capture *output) {
    char *text;
    size_t length, gap_at;
    uint64_t left_out;
    rf_test_capture_text(output, &text, &length, &gap_at, &left_out);
    if (left_out) {
        print_lines("      | ", text, gap_at);
        printf("      … %llu bytes left out …\n", (unsigned long long)left_out);
        print_lines("      | ", text + gap_at, length - gap_at);
    } else {
        print_lines("      | ", text, length);
    }
    free(text);
}

void rf_test_report(const struct rf_test_settings *settings, const struct rf_test_job *job,
                    const struct rf_test_result *result, struct rf_test_tally *tally) {
    bool failed = result->verdict == RF_TEST_FAILED;
    switch (result->verdict) {
    case RF_TEST_PASSED: tally->passed++; break;
    case RF_TEST_SKIPPED: tally->skipped++; break;
    case RF_TEST_FAILED:
    case RF_TEST_NONE: tally->failed++; break;
    }
    if (settings->quiet && !failed) return;
    const char *word = failed ? "FAIL" : result->verdict == RF_TEST_SKIPPED ? "skip" : "ok  ";
    printf("%s  %s", word, job->name);
    if (result->verdict == RF_TEST_SKIPPED)
        printf("  (%s)\n", result->message);
    else
        printf("  %.2f s\n", (double)result->elapsed_ns / 1e9);
    if (failed) print_lines("      ", result->message, strlen(result->message));
    if (result->output && result->output->total && (failed || settings->show_output)) print_output(result->output);
    if (failed)
        printf("      again: %s '%s' --seed %llu\n", job->executable ? job->executable : settings->program, job->name,
               (unsigned long long)job->seed);
    fflush(stdout);
}

void rf_test_report_trouble(const char *what, const char *message, struct rf_test_tally *tally) {
    tally->failed++;
    printf("FAIL  %s\n      %s\n", what, message);
    fflush(stdout);
}

void rf_test_report_end(const struct rf_test_tally *tally) {
    printf("%lu passed, %lu failed, %lu skipped\n", tally->passed, tally->failed, tally->skipped);
    fflush(stdout);
}
