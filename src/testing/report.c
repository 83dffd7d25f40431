/* The report for people: one line per test, everything about a failure, and the closing line.
 *
 * Invariants: what a test printed is shown indented or with a prefix, with control characters spelled out, so nothing
 * it prints looks like a line of the report. The closing line comes last, once (asserted: nothing is reported after
 * it). The first is about bytes on a stream, which tests/misbehaving/test_misbehaving.c reads. A run of very many
 * tests shows only failures and a line after every tenth of the tests instead of a line per test. */
#include "runner_impl.h"

#include <stdlib.h>
#include <string.h>

#define MANY_TESTS 1000
#define KEPT_OUTPUT ((size_t)16 << 10) /* of a failed test, for the report files */
#define KEPT_MESSAGE ((size_t)64 << 10)
#define SLOW_NS INT64_C(5000000000)

/* How this run is shown. */
static struct {
    bool many, closed;
    unsigned long total, done;
} shown;

void rf_test_report_start(const struct rf_test_settings *settings, const struct rf_test_plan *plan) {
    shown.total = (unsigned long)plan->count * (unsigned long)settings->repeat;
    shown.done = 0;
    shown.closed = false;
    shown.many = shown.total > MANY_TESTS && !settings->verbose && !settings->until_fail;
    if (settings->quiet) return;
    printf("%zu tests, ", plan->count);
    if (settings->until_fail)
        printf("until one fails, ");
    else if (settings->repeat > 1)
        printf("%ld times, ", settings->repeat);
    if (plan->executable_count) printf("%zu executables, ", plan->executable_count);
    if (settings->in_process)
        printf(plan->executable_count ? "each executable's in one process" : "in this process");
    else
        printf("%d at a time", settings->jobs);
    if (settings->gpu_jobs > 1 && !settings->in_process) printf(", %d on the GPU", settings->gpu_jobs);
    if (settings->shuffle) printf(", shuffled by %llu", (unsigned long long)settings->shuffle_seed);
    printf(", seed %llu\n", (unsigned long long)settings->seed);
    fflush(stdout);
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

void rf_test_stream_add(struct rf_test_stream *stream, const char *data, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (data[i] != '\n') stream->line[stream->length++] = data[i];
        if (data[i] == '\n' || stream->length == sizeof stream->line) rf_test_stream_end(stream);
    }
}

void rf_test_stream_end(struct rf_test_stream *stream) {
    rf_test_progress_clear();
    if (stream->length)
        print_lines(stream->prefix, stream->line, stream->length);
    else
        printf("%s\n", stream->prefix);
    stream->length = 0;
    fflush(stdout);
}

/* ---- one result ---- */

static char *kept_output(const struct rf_test_capture *output) {
    char *text;
    size_t length, gap_at;
    uint64_t left_out;
    rf_test_capture_text(output, &text, &length, &gap_at, &left_out);
    if (length > KEPT_OUTPUT) { /* the end is the most informative part */
        memmove(text, text + length - KEPT_OUTPUT, KEPT_OUTPUT);
        length = KEPT_OUTPUT;
        text[length] = 0;
    }
    for (size_t i = 0; i < length; i++)
        if (text[i] == 0) text[i] = '?';
    return text;
}

static void note_result(struct rf_test_job *job, const struct rf_test_result *result) {
    bool failed = result->verdict == RF_TEST_FAILED || result->verdict == RF_TEST_NONE;
    if (result->elapsed_ns > job->elapsed_ns) job->elapsed_ns = result->elapsed_ns;
    if (failed && job->failures == 0) {
        free(job->message);
        free(job->output);
        job->message = rf_test_copy(result->message);
        if (strlen(job->message) > KEPT_MESSAGE) job->message[KEPT_MESSAGE] = 0;
        job->output = result->output ? kept_output(result->output) : NULL;
        job->verdict = RF_TEST_FAILED;
        job->failed_seed = result->seed;
    } else if (job->verdict == RF_TEST_NONE || job->verdict == RF_TEST_SKIPPED) {
        if (result->verdict == RF_TEST_SKIPPED && !job->message) job->message = rf_test_copy(result->message);
        job->verdict = result->verdict;
    }
    job->failures += failed;
    job->passes += result->verdict == RF_TEST_PASSED;
    job->skips += result->verdict == RF_TEST_SKIPPED;
}

void rf_test_report(const struct rf_test_settings *settings, struct rf_test_job *job,
                    const struct rf_test_result *result, struct rf_test_tally *tally) {
    bool failed = result->verdict == RF_TEST_FAILED || result->verdict == RF_TEST_NONE;
    tally->failed += failed;
    tally->passed += result->verdict == RF_TEST_PASSED;
    tally->skipped += result->verdict == RF_TEST_SKIPPED;
    note_result(job, result);
    rf_assert(!shown.closed);
    shown.done++;
    rf_test_progress_clear();
    bool tenth = shown.many && shown.done % (shown.total / 10) == 0 && !rf_test_progress_shown();
    if (tenth && !settings->quiet)
        printf("%lu of %lu done, %lu failed, %lu skipped\n", shown.done, shown.total, tally->failed, tally->skipped);
    if ((settings->quiet || shown.many) && !failed) {
        if (tenth) fflush(stdout);
        return;
    }
    printf("%s  %s", failed ? "FAIL" : result->verdict == RF_TEST_SKIPPED ? "skip" : "ok  ", job->name);
    if (result->verdict == RF_TEST_SKIPPED) {
        size_t line = strcspn(result->message, "\n");
        printf("  (%.*s)\n", (int)(line < 1000 ? line : 1000), result->message);
    } else {
        printf("  %.2f s\n", (double)result->elapsed_ns / 1e9);
    }
    if (failed) print_lines("      ", result->message, strlen(result->message));
    if (result->output && failed && !settings->show_output) print_output(result->output);
    if (failed)
        printf("      again: %s '%s' --seed %llu\n", job->executable ? job->executable : settings->program, job->name,
               (unsigned long long)result->seed);
    fflush(stdout);
}

void rf_test_report_trouble(const char *what, const char *message, struct rf_test_tally *tally) {
    tally->failed++;
    rf_test_progress_clear();
    printf("FAIL  %s\n", what);
    print_lines("      ", message, strlen(message));
    fflush(stdout);
}

void rf_test_remark(const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rf_test_progress_clear();
    fprintf(stderr, "note: %s\n", text);
}

/* ---- the end ---- */

const char *rf_test_label_name(enum rf_test_label label) {
    static const char *const names[] = {"", "fails", "fails only when shared", "flaky", "not run"};
    return names[label];
}

static void show_verdicts(const struct rf_test_plan *plan) {
    bool first = true;
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        if (!job->verdict_text) continue;
        if (first) printf("\nThe failures, explained:\n");
        first = false;
        printf("  %s: %s\n", job->name, job->verdict_text);
    }
    if (!first) putchar('\n');
}

static int by_time(const void *a, const void *b) {
    const struct rf_test_job *one = *(const struct rf_test_job *const *)a,
                             *two = *(const struct rf_test_job *const *)b;
    return (one->elapsed_ns < two->elapsed_ns) - (one->elapsed_ns > two->elapsed_ns);
}

static void show_slowest(const struct rf_test_plan *plan, size_t wanted) {
    const struct rf_test_job **sorted = rf_test_grow(NULL, plan->count * sizeof *sorted);
    for (size_t i = 0; i < plan->count; i++) sorted[i] = &plan->jobs[i];
    qsort(sorted, plan->count, sizeof *sorted, by_time);
    if (wanted > plan->count) wanted = plan->count;
    for (size_t i = 0; i < wanted && sorted[i]->elapsed_ns > 0; i++) {
        if (i == 0) printf("The slowest:\n");
        printf("  %8.2f s  %s\n", (double)sorted[i]->elapsed_ns / 1e9, sorted[i]->name);
    }
    free(sorted);
}

/* In a run of very many tests the skipped ones were not listed: shows the reasons, with counts. */
static void show_skips(const struct rf_test_plan *plan) {
    struct {
        const char *reason;
        unsigned long count;
    } reasons[5] = {{0}};
    unsigned long others = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        if (job->verdict != RF_TEST_SKIPPED || !job->message) continue;
        size_t at = 0;
        while (at < 5 && reasons[at].reason && strcmp(reasons[at].reason, job->message) != 0) at++;
        if (at == 5) {
            others++;
            continue;
        }
        reasons[at].reason = job->message;
        reasons[at].count++;
    }
    for (size_t at = 0; at < 5 && reasons[at].reason; at++)
        printf("skipped %lu: %.*s\n", reasons[at].count, (int)strcspn(reasons[at].reason, "\n"), reasons[at].reason);
    if (others) printf("skipped %lu for other reasons\n", others);
}

void rf_test_report_end(const struct rf_test_settings *settings, const struct rf_test_plan *plan, int64_t elapsed_ns,
                        const struct rf_test_tally *tally) {
    rf_test_progress_clear();
    show_verdicts(plan);
    if (shown.many && !settings->quiet) show_skips(plan);
    int slowest = settings->slowest >= 0 ? settings->slowest : elapsed_ns > SLOW_NS && !settings->quiet ? 5 : 0;
    if (slowest > 0) show_slowest(plan, (size_t)slowest);
    printf("%lu passed, %lu failed, %lu skipped\n", tally->passed, tally->failed, tally->skipped);
    fflush(stdout);
    rf_assert(!shown.closed);
    shown.closed = true;
}
