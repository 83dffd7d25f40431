/* The run as JSON: one object with the counts and a list of tests. Text from tests is made
 * valid UTF-8: a byte that is none becomes U+FFFD. */
#include "runner_impl.h"

#include <string.h>

/* The length of the valid UTF-8 sequence at text; 0 if it is none. */
static size_t valid_sequence(const unsigned char *text) {
    size_t length = text[0] < 0x80                       ? 1
                    : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                    : (text[0] & 0xf0) == 0xe0           ? 3
                    : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    if (text[0] == 0xe0 && text[1] < 0xa0) return 0; /* overlong */
    if (text[0] == 0xed && text[1] > 0x9f) return 0; /* surrogates */
    if (text[0] == 0xf0 && text[1] < 0x90) return 0;
    if (text[0] == 0xf4 && text[1] > 0x8f) return 0;
    return length;
}

static void put_text(FILE *to, const char *text) {
    fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        size_t length = valid_sequence(c);
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (*c == '\n')
            fputs("\\n", to);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(to, "\\u%04x", *c);
        else if (length)
            fwrite(c, 1, length, to);
        else
            fputs("\\ufffd", to);
        c += length ? length : 1;
    }
    fputc('"', to);
}

static void put_member(FILE *to, const char *name, const char *value) {
    fprintf(to, ", \"%s\": ", name);
    put_text(to, value);
}

static const char *verdict_name(enum rf_test_verdict verdict) {
    switch (verdict) {
    case RF_TEST_PASSED: return "passed";
    case RF_TEST_FAILED: return "failed";
    case RF_TEST_SKIPPED: return "skipped";
    case RF_TEST_NONE: break;
    }
    return "not run";
}

void rf_test_write_json(FILE *to, const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                        const struct rf_test_tally *tally, int64_t elapsed_ns) {
    fprintf(
        to,
        "{\"passed\": %lu, \"failed\": %lu, \"skipped\": %lu, \"seconds\": %.6f, \"seed\": %llu, \"rounds\": %ld,\n"
        " \"tests\": [",
        tally->passed, tally->failed, tally->skipped, (double)elapsed_ns / 1e9, (unsigned long long)settings->seed,
        settings->repeat);
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        fprintf(to, "%s\n  {\"name\": ", i ? "," : "");
        put_text(to, job->name);
        put_member(to, "executable", job->executable ? job->executable : settings->program);
        put_member(to, "file", job->file);
        fprintf(to, ", \"line\": %d, \"gpu\": %s", job->line, job->gpu ? "true" : "false");
        put_member(to, "verdict", verdict_name(job->verdict));
        put_member(to, "label", rf_test_label_name(job->label));
        fprintf(to, ", \"seconds\": %.6f, \"passes\": %lu, \"failures\": %lu, \"skips\": %lu",
                (double)job->elapsed_ns / 1e9, job->passes, job->failures, job->skips);
        if (job->peak_bytes) fprintf(to, ", \"gpu_bytes\": %llu", (unsigned long long)job->peak_bytes);
        if (job->failures) fprintf(to, ", \"seed\": %llu", (unsigned long long)job->failed_seed);
        if (job->message) put_member(to, "message", job->message);
        if (job->verdict_text) put_member(to, "explanation", job->verdict_text);
        if (job->output) put_member(to, "output", job->output);
        fputc('}', to);
    }
    fputs("\n ]}\n", to);
}
