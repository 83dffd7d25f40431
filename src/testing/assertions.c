/* Assertions that say what was found beside what was expected. All end in rf_test_fail. */
#include "testing_impl.h"

#include <math.h>
#include <string.h>

void rf_test_status(const char *file, int line, bool fatal, const char *what, rf_status actual, rf_status expected) {
    if (actual == expected) return;
    if (actual == RF_OK)
        rf_test_fail(file, line, fatal, "%s\n  gave     RF_OK\n  expected %s", what, rf_status_name(expected));
    else
        rf_test_fail(file, line, fatal, "%s\n  gave     %s: %s\n  expected %s", what, rf_status_name(actual),
                     rf_error_text(), rf_status_name(expected));
}

void rf_test_int(const char *file, int line, bool fatal, const char *what, long long actual, long long expected) {
    if (actual != expected)
        rf_test_fail(file, line, fatal, "%s\n  is       %lld\n  expected %lld", what, actual, expected);
}

void rf_test_text(const char *file, int line, bool fatal, const char *what, const char *actual,
                  const char *expected) {
    if (actual == expected || (actual && expected && strcmp(actual, expected) == 0)) return;
    rf_test_fail(file, line, fatal, "%s\n  is       %s%.700s%s\n  expected %s%.700s%s", what, actual ? "\"" : "",
                 actual ? actual : "NULL", actual ? "\"" : "", expected ? "\"" : "", expected ? expected : "NULL",
                 expected ? "\"" : "");
}

void rf_test_contains(const char *file, int line, bool fatal, const char *what, const char *actual,
                      const char *part) {
    if (actual && part && strstr(actual, part)) return;
    rf_test_fail(file, line, fatal, "%s\n  is              %s%.900s%s\n  should contain  \"%.400s\"", what,
                 actual ? "\"" : "", actual ? actual : "NULL", actual ? "\"" : "", part ? part : "NULL");
}

/* How far a value is off, where it is off: never NaN, so that it can be compared. */
static bool is_off(float actual, float expected, double absolute, double relative, double *difference) {
    *difference = 0;
    if (isnan(expected) || isnan(actual)) {
        *difference = HUGE_VAL;
        return !(isnan(expected) && isnan(actual));
    }
    if (actual == expected) return false;
    *difference = fabs((double)actual - (double)expected);
    /* An infinite value is never near another one, whatever the tolerance. */
    return isinf(actual) || isinf(expected) || *difference > absolute + relative * fabs((double)expected);
}

void rf_test_floats(const char *file, int line, bool fatal, const char *what, const float *actual,
                    const float *expected, size_t count, double absolute, double relative) {
    size_t off = 0, worst = 0;
    double worst_difference = -1, difference;
    char list[1024] = "";
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_off(actual[i], expected[i], absolute, relative, &difference)) continue;
        if (difference > worst_difference) {
            worst = i;
            worst_difference = difference;
        }
        if (off++ < 10 && length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "\n  [%zu] is %.9g, expected %.9g", i,
                                       (double)actual[i], (double)expected[i]);
    }
    if (off == 0) return;
    rf_test_fail(file, line, fatal,
                 "%s: %zu of %zu values are off by more than %g + %g * |expected|\n"
                 "  largest difference %g at [%zu]: is %.9g, expected %.9g; the first %zu:%s",
                 what, off, count, absolute, relative, worst_difference, worst, (double)actual[worst],
                 (double)expected[worst], off < 10 ? off : (size_t)10, list);
}
