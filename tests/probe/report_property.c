/* The property that both the seeded mutations and the fuzzer check. */
#include "report_property.h"

#include "gpu/probe_report.h"

#include <stdlib.h>

static bool writes_the_same(const struct rf_probe_report *report, const char *text, size_t length) {
    char *again = malloc(RF_PROBE_REPORT_MAX_BYTES);
    if (!again) return false;
    size_t again_length = rf_probe_report_write(report, again, RF_PROBE_REPORT_MAX_BYTES);
    bool same =
        again_length > 0 && again_length <= length && memcmp(text + length - again_length, again, again_length) == 0;
    free(again);
    return same;
}

bool report_reads_soundly(const char *text, size_t length, bool *accepted) {
    struct rf_probe_report *report = malloc(sizeof *report);
    char *exact = malloc(length ? length : 1), step[160], why[256]; /* exact: a read past the end is seen */
    bool sound = false;
    *accepted = false;
    if (report && exact) {
        memset(report, 0x33, sizeof *report);
        memcpy(exact, text, length);
        rf_probe_last_step(exact, length, step, sizeof step);
        rf_status status = rf_probe_report_parse(exact, length, report);
        if (status == RF_OK) {
            *accepted = true;
            sound = rf_probe_report_complete(exact, length) && writes_the_same(report, exact, length);
            for (int i = 0; i < report->count; i++)
                rf_probe_device_plausible(report->kind, &report->devices[i], why, sizeof why);
        } else {
            sound = status == RF_E_SYNTAX && strncmp(rf_error_text(), "line ", 5) == 0;
        }
    }
    free(report);
    free(exact);
    return sound;
}
