/* Report files: how they are put in place, and JUnit's XML. report_json.c writes the JSON one.
 *
 * Invariant: text from tests is made valid XML 1.0 in UTF-8: a character that is not allowed becomes '?'. This is
 * not asserted, because the function that decides it would check itself: tests/testing/test_runner.c reads the file
 * with an XML parser. */
#include "base/utf8.h"
#include "runner_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool rf_test_report_open(struct rf_test_report_file *report, const char *path) {
    *report = (struct rf_test_report_file){.path = path};
    struct stat info;
    if (stat(path, &info) == 0 &&
        !S_ISREG(info.st_mode)) { /* a pipe or /dev/stdout, which cannot be renamed into place */
        if (S_ISDIR(info.st_mode)) {
            errno = EISDIR;
            return false;
        }
        report->file = fopen(path, "we");
        return report->file != NULL;
    }
    size_t size = strlen(path) + 32;
    report->temporary = rf_test_grow(NULL, size);
    snprintf(report->temporary, size, "%s.%d.part", path, (int)getpid());
    report->file = fopen(report->temporary, "we");
    if (report->file) return true;
    int error = errno;
    free(report->temporary);
    report->temporary = NULL;
    errno = error;
    return false;
}

bool rf_test_report_commit(struct rf_test_report_file *report) {
    if (!report->file) return true;
    bool good = fflush(report->file) == 0 && !ferror(report->file);
    good = fclose(report->file) == 0 && good;
    report->file = NULL;
    if (good && report->temporary) good = rename(report->temporary, report->path) == 0;
    rf_test_report_drop(report);
    return good;
}

void rf_test_report_drop(struct rf_test_report_file *report) {
    if (report->file) fclose(report->file);
    report->file = NULL;
    if (report->temporary) unlink(report->temporary);
    free(report->temporary);
    report->temporary = NULL;
}

static bool xml_allows(uint32_t code) {
    if (code < 0x20) return code == '\t' || code == '\n';
    return code != RF_CODE_INVALID && code != 0xfffe && code != 0xffff;
}

static void put_xml(FILE *to, const char *text, bool attribute) {
    size_t bytes = strlen(text);
    for (size_t at = 0, taken; at < bytes; at += taken) {
        uint32_t code = rf_utf8_decode(text + at, bytes - at, &taken);
        if (code == '&')
            fputs("&amp;", to);
        else if (code == '<')
            fputs("&lt;", to);
        else if (code == '>')
            fputs("&gt;", to);
        else if (code == '"')
            fputs("&quot;", to);
        else if (attribute && (code == '\n' || code == '\t'))
            fprintf(to, "&#%u;", (unsigned)code);
        else if (xml_allows(code))
            fwrite(text + at, 1, taken, to);
        else
            fputc('?', to);
    }
}

static void put_attribute(FILE *to, const char *name, const char *value) {
    fprintf(to, " %s=\"", name);
    put_xml(to, value, true);
    fputc('"', to);
}

/* The part of "suite.name" before the first dot. */
static void suite_of(const struct rf_test_job *job, char *suite, size_t size) {
    snprintf(suite, size, "%.*s", (int)strcspn(job->name, "."), job->name);
}

static void put_case(FILE *to, const struct rf_test_job *job) {
    char suite[RF_TEST_NAME_BYTES], class_name[2 * RF_TEST_NAME_BYTES];
    suite_of(job, suite, sizeof suite);
    snprintf(class_name, sizeof class_name, "%.200s.%s", rf_test_job_program(job), suite);
    const char *name = strchr(job->name, '.');
    fputs("    <testcase", to);
    put_attribute(to, "classname", class_name);
    put_attribute(to, "name", name ? name + 1 : job->name);
    put_attribute(to, "file", job->file);
    fprintf(to, " line=\"%d\" time=\"%.6f\"", job->line, (double)job->elapsed_ns / 1e9);
    if (job->verdict == RF_TEST_PASSED) {
        fputs("/>\n", to);
        return;
    }
    fputs(">\n", to);
    const char *message = job->message ? job->message : "";
    char first[1024];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(message, "\n"), message);
    if (job->verdict == RF_TEST_FAILED) {
        fputs("      <failure", to);
        put_attribute(to, "message", first);
        put_attribute(to, "type", job->label == RF_TEST_PLAIN ? "fails" : rf_test_label_name(job->label));
        fputc('>', to);
        put_xml(to, message, false);
        if (job->verdict_text) {
            fputc('\n', to);
            put_xml(to, job->verdict_text, false);
        }
        fputs("</failure>\n", to);
    } else {
        fputs("      <skipped", to);
        put_attribute(to, "message", first[0] ? first : "not run");
        fputs("/>\n", to);
    }
    if (job->output && job->output[0]) {
        fputs("      <system-out>", to);
        put_xml(to, job->output, false);
        fputs("</system-out>\n", to);
    }
    fputs("    </testcase>\n", to);
}

static bool same_suite(const struct rf_test_job *one, const struct rf_test_job *two) {
    char suite[RF_TEST_NAME_BYTES], other[RF_TEST_NAME_BYTES];
    suite_of(one, suite, sizeof suite);
    suite_of(two, other, sizeof other);
    return one->executable == two->executable && strcmp(suite, other) == 0;
}

static int by_suite(const void *a, const void *b) {
    const struct rf_test_job *one = *(const struct rf_test_job *const *)a,
                             *two = *(const struct rf_test_job *const *)b;
    int programs = strcmp(rf_test_job_program(one), rf_test_job_program(two));
    if (programs) return programs;
    if (one->executable != two->executable) return (uintptr_t)one->executable < (uintptr_t)two->executable ? -1 : 1;
    return strcmp(one->name, two->name);
}

void rf_test_write_junit(FILE *to, const struct rf_test_plan *plan, int64_t elapsed_ns) {
    const struct rf_test_job **sorted = rf_test_grow(NULL, plan->count * sizeof *sorted);
    size_t failures = 0, skips = 0;
    for (size_t i = 0; i < plan->count; i++) {
        sorted[i] = &plan->jobs[i];
        failures += sorted[i]->verdict == RF_TEST_FAILED;
        skips += sorted[i]->verdict == RF_TEST_SKIPPED || sorted[i]->verdict == RF_TEST_NONE;
    }
    qsort(sorted, plan->count, sizeof *sorted, by_suite);
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &utc));
    fprintf(
        to,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites name=\"rocmforge\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\" time=\"%.6f\">\n",
        plan->count, failures, skips, (double)elapsed_ns / 1e9);
    for (size_t i = 0, next; i < plan->count; i = next) {
        size_t failed = 0, skipped = 0;
        int64_t total_ns = 0;
        for (next = i; next < plan->count && same_suite(sorted[i], sorted[next]); next++) {
            failed += sorted[next]->verdict == RF_TEST_FAILED;
            skipped += sorted[next]->verdict == RF_TEST_SKIPPED || sorted[next]->verdict == RF_TEST_NONE;
            total_ns += sorted[next]->elapsed_ns;
        }
        char suite[RF_TEST_NAME_BYTES], name[2 * RF_TEST_NAME_BYTES];
        suite_of(sorted[i], suite, sizeof suite);
        snprintf(name, sizeof name, "%.200s.%s", rf_test_job_program(sorted[i]), suite);
        fputs("  <testsuite", to);
        put_attribute(to, "name", name);
        fprintf(to, " tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\" time=\"%.6f\" timestamp=\"%s\">\n",
                next - i, failed, skipped, (double)total_ns / 1e9, stamp);
        for (size_t j = i; j < next; j++) put_case(to, sorted[j]);
        fputs("  </testsuite>\n", to);
    }
    fputs("</testsuites>\n", to);
    free(sorted);
}
