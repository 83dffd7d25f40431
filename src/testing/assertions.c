/* Assertions about single values; a failure shows the actual value next to the expected one. All end in rf_test_fail.
 */
#include "testing_impl.h"

#include <inttypes.h>
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

void rf_test_uint(const char *file, int line, bool fatal, const char *what, uint64_t actual, uint64_t expected) {
    if (actual != expected)
        rf_test_fail(file, line, fatal,
                     "%s\n  is       %" PRIu64 " (0x%" PRIx64 ")\n  expected %" PRIu64 " (0x%" PRIx64 ")", what,
                     actual, actual, expected, expected);
}

void rf_test_double(const char *file, int line, bool fatal, const char *what, double actual, double expected,
                    double absolute) {
    if (actual == expected || (isnan(actual) && isnan(expected))) return;
    double difference = fabs(actual - expected);
    if (!isinf(actual) && !isinf(expected) && difference <= absolute) return;
    rf_test_fail(file, line, fatal, "%s\n  is       %.17g\n  expected %.17g\n  off by   %g, allowed %g", what, actual,
                 expected, difference, absolute);
}

void rf_test_pointer(const char *file, int line, bool fatal, const char *what, const void *actual,
                     const void *expected) {
    if (actual != expected)
        rf_test_fail(file, line, fatal, "%s\n  is       %p\n  expected %p", what, actual, expected);
}

void rf_test_not_null(const char *file, int line, bool fatal, const char *what, const void *actual) {
    if (!actual) rf_test_fail(file, line, fatal, "%s\n  is       NULL", what);
}

void rf_test_text(const char *file, int line, bool fatal, const char *what, const char *actual,
                  const char *expected) {
    if (actual == expected || (actual && expected && strcmp(actual, expected) == 0)) return;
    char where[64] = "";
    if (actual && expected) {
        size_t at = 0;
        while (actual[at] && actual[at] == expected[at]) at++;
        snprintf(where, sizeof where, "\n  they differ from character %zu on", at);
    }
    rf_test_fail(file, line, fatal, "%s\n  is       %s%.1500s%s\n  expected %s%.1500s%s%s", what, actual ? "\"" : "",
                 actual ? actual : "NULL", actual ? "\"" : "", expected ? "\"" : "", expected ? expected : "NULL",
                 expected ? "\"" : "", where);
}

void rf_test_contains(const char *file, int line, bool fatal, const char *what, const char *actual,
                      const char *part) {
    if (actual && part && strstr(actual, part)) return;
    rf_test_fail(file, line, fatal, "%s\n  is              %s%.2500s%s\n  should contain  %s%.900s%s", what,
                 actual ? "\"" : "", actual ? actual : "NULL", actual ? "\"" : "", part ? "\"" : "",
                 part ? part : "NULL", part ? "\"" : "");
}
