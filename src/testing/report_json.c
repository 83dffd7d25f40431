/* The run as JSON: one object with the counts and a list of tests, one test per line. */
#include "base/json.h"
#include "runner_impl.h"

static const char *verdict_name(enum rf_test_verdict verdict) {
    switch (verdict) {
    case RF_TEST_PASSED: return "passed";
    case RF_TEST_FAILED: return "failed";
    case RF_TEST_SKIPPED: return "skipped";
    case RF_TEST_NONE: break;
    }
    return "not run";
}

static void write_test(struct rf_json *json, const struct rf_test_settings *settings, const struct rf_test_job *job) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "name", job->name);
    rf_json_text(json, "executable", job->executable ? job->executable : settings->program);
    rf_json_text(json, "file", job->file);
    rf_json_int(json, "line", job->line);
    rf_json_bool(json, "gpu", job->gpu);
    rf_json_text(json, "verdict", verdict_name(job->verdict));
    rf_json_text(json, "label", rf_test_label_name(job->label));
    rf_json_fixed(json, "seconds", (double)job->elapsed_ns / 1e9, 6);
    rf_json_uint(json, "passes", job->passes);
    rf_json_uint(json, "failures", job->failures);
    rf_json_uint(json, "skips", job->skips);
    if (job->peak_bytes) rf_json_uint(json, "gpu_bytes", job->peak_bytes);
    if (job->failures) rf_json_uint(json, "seed", job->failed_seed);
    if (job->message) rf_json_text(json, "message", job->message);
    if (job->verdict_text) rf_json_text(json, "explanation", job->verdict_text);
    if (job->output) rf_json_text(json, "output", job->output);
    rf_json_close(json);
}

void rf_test_write_json(FILE *to, const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                        const struct rf_test_tally *tally, int64_t elapsed_ns) {
    struct rf_json json;
    rf_json_begin_file(&json, to, RF_JSON_SPACED);
    rf_json_open_object(&json, NULL);
    rf_json_uint(&json, "passed", tally->passed);
    rf_json_uint(&json, "failed", tally->failed);
    rf_json_uint(&json, "skipped", tally->skipped);
    rf_json_fixed(&json, "seconds", (double)elapsed_ns / 1e9, 6);
    rf_json_uint(&json, "seed", settings->seed);
    rf_json_int(&json, "rounds", settings->repeat);
    rf_json_set_layout(&json, RF_JSON_LINES);
    rf_json_open_array(&json, "tests");
    rf_json_set_layout(&json, RF_JSON_SPACED);
    for (size_t i = 0; i < plan->count; i++) write_test(&json, settings, &plan->jobs[i]);
    rf_json_end(&json);
}
