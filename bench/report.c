/* Prints the rows of a run as an aligned table or as JSON.
 *
 * A verdict is given for a real GPU only: on the simulated driver the figures show that the benchmark runs, nothing
 * else. */
#include "bench.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

rf_status report_add(struct report *report, const struct row *row) {
    struct row *grown = realloc(report->rows, (report->count + 1) * sizeof *grown);
    if (!grown) return rf_fail(RF_E_NO_MEMORY, "no host memory for the report");
    report->rows = grown;
    report->rows[report->count++] = *row;
    return RF_OK;
}

void report_free(struct report *report) {
    free(report->rows);
    *report = (struct report){0};
}

static const char *verdict(const struct bench *bench, const struct row *row) {
    if (row->sense == INFORMATION || isnan(row->measured)) return "-";
    if (bench->info.simulated) return "simulated";
    bool met = row->sense == AT_LEAST ? row->measured >= row->target : row->measured <= row->target;
    return met ? "met" : "MISSED";
}

static void today(char *text, size_t size) {
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, size, "%Y-%m-%d %H:%M:%S UTC", &parts);
}

/* Prints four significant digits without an exponent. */
static const char *figure(double value, const char *unit, char *text, size_t size) {
    if (isnan(value)) return "-";
    double magnitude = fabs(value);
    int decimals = magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : magnitude >= 1 ? 2 : 3;
    snprintf(text, size, "%.*f %s", decimals, value, unit);
    return text;
}

static void print_row(const struct bench *bench, const struct row *row) {
    char raw[40], ours[40], measured[40], limit[40], target[48] = "";
    if (row->sense != INFORMATION)
        snprintf(target, sizeof target, "%s %s",
                 row->sense == AT_LEAST ? ">=" : "<=", figure(row->target, row->measured_unit, limit, sizeof limit));
    printf("  %-34s %14s %14s %14s %14s  %-9s %s\n", row->name, figure(row->raw, row->unit, raw, sizeof raw),
           figure(row->ours, row->unit, ours, sizeof ours),
           figure(row->measured, row->measured_unit, measured, sizeof measured), target, verdict(bench, row),
           row->note);
}

void print_table(const struct bench *bench) {
    char date[64], total[32];
    today(date, sizeof date);
    printf("device   %s, %s, %s, %d compute units\n", bench->info.name, bench->info.arch,
           rf_format_bytes(bench->info.total_bytes, total, sizeof total), bench->info.compute_units);
    printf("driver   %s, kernels for %s\n", bench->info.driver, bench->info.kernel_target);
    printf("date     %s, rocmforge %s%s\n", date, rf_version(), bench->quick ? ", quick: small sizes" : "");
    if (bench->info.simulated) printf("note     simulated: the figures say nothing about speed\n");
    size_t met = 0, missed = 0;
    for (size_t i = 0; i < bench->report.count; i++) {
        const char *group = bench->report.rows[i].group;
        bool seen = false;
        for (size_t j = 0; j < i; j++) seen |= !strcmp(bench->report.rows[j].group, group);
        if (seen) continue;
        printf("\n%-36s %14s %14s %14s %14s  %-9s %s\n", group, "raw", "ours", "measured", "target", "verdict",
               "note");
        for (size_t j = i; j < bench->report.count; j++) {
            const struct row *row = &bench->report.rows[j];
            if (strcmp(row->group, group)) continue;
            print_row(bench, row);
            met += !strcmp(verdict(bench, row), "met");
            missed += !strcmp(verdict(bench, row), "MISSED");
        }
    }
    if (!bench->info.simulated) printf("\n%zu met, %zu missed\n", met, missed);
}

void print_json(const struct bench *bench) {
    char date[64];
    struct rf_json json;
    today(date, sizeof date);
    rf_json_begin_file(&json, stdout, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "device", bench->info.name);
    rf_json_text(&json, "arch", bench->info.arch);
    rf_json_text(&json, "driver", bench->info.driver);
    rf_json_text(&json, "kernels", bench->info.kernel_target);
    rf_json_bool(&json, "simulated", bench->info.simulated);
    rf_json_text(&json, "date", date);
    rf_json_text(&json, "version", rf_version());
    rf_json_bool(&json, "quick", bench->quick);
    rf_json_open_array(&json, "rows");
    for (size_t i = 0; i < bench->report.count; i++) {
        const struct row *row = &bench->report.rows[i];
        rf_json_open_object(&json, NULL);
        rf_json_text(&json, "group", row->group);
        rf_json_text(&json, "name", row->name);
        rf_json_double(&json, "raw", row->raw);
        rf_json_double(&json, "ours", row->ours);
        rf_json_text(&json, "unit", row->unit);
        rf_json_double(&json, "measured", row->measured);
        rf_json_text(&json, "measured_unit", row->measured_unit);
        if (row->sense != INFORMATION) {
            rf_json_text(&json, "target_sense", row->sense == AT_LEAST ? "at least" : "at most");
            rf_json_double(&json, "target", row->target);
        }
        rf_json_text(&json, "verdict", verdict(bench, row));
        rf_json_text(&json, "note", row->note);
        rf_json_close(&json);
    }
    rf_json_end(&json);
}
