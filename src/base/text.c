/* Parses and formats sizes as people write them, and gives the version.
 *
 * Invariant: parsing is exact integer arithmetic; a size that does not fit 64 bits is refused, never wrapped or
 * rounded up. Checking here that a result is exact would need a second parser: tests/base/test_text.c tests the
 * border cases instead. */
#include "base/base.h"

#include <stdio.h>
#include <strings.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *rf_version(void) {
    return STRING(RF_VERSION_MAJOR) "." STRING(RF_VERSION_MINOR) "." STRING(RF_VERSION_PATCH);
}

static const struct {
    const char *suffix;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"KB", UINT64_C(1000)},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"MB", UINT64_C(1000000)},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"GB", UINT64_C(1000000000)},
    {"T", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {"TB", UINT64_C(1000000000000)},
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

rf_status rf_parse_bytes(const char *text, uint64_t *bytes) {
    if (!text || !bytes) return rf_fail(RF_E_INVALID, "rf_parse_bytes needs a text and a place for the result");
    const char *at = text;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool digits = false, overflow = false;
    for (; is_digit(*at); at++, digits = true)
        overflow |= rf_mul_overflows(whole, 10, &whole) || rf_add_overflows(whole, (uint64_t)(*at - '0'), &whole);
    if (digits && *at == '.') {
        digits = false; /* "1." is not a number */
        for (at++; is_digit(*at); at++, digits = true) {
            if (scale >= UINT64_C(1000000000000000)) continue; /* digits beyond a millionth of a byte of 1 GiB */
            fraction = fraction * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
    }
    if (digits && *at == ' ') at++;
    size_t unit = 0;
    while (unit < RF_COUNT(units) && strcasecmp(at, units[unit].suffix) != 0) unit++;
    if (!digits || unit == RF_COUNT(units) || (scale > 1 && units[unit].bytes == 1))
        return rf_fail(RF_E_SYNTAX,
                       "\"%.60s\" is no size: write a number and KiB, MiB, GiB, TiB (or K, M, G, T), "
                       "KB, MB, GB, TB, or nothing for bytes, such as 12GiB or 1.5G",
                       text);
    uint64_t part = (uint64_t)((unsigned __int128)fraction * units[unit].bytes / scale);
    rf_assert(fraction < scale && part < units[unit].bytes);
    if (overflow || rf_mul_overflows(whole, units[unit].bytes, &whole) || rf_add_overflows(whole, part, &whole))
        return rf_fail(RF_E_SYNTAX, "\"%.60s\" is more than 64 bits of bytes can say", text);
    *bytes = whole;
    return RF_OK;
}

const char *rf_format_bytes(uint64_t bytes, char *text, size_t size) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t one = 1;
    /* The next unit is taken already where rounding to one decimal would give "1024.0". */
    while (unit + 1 < RF_COUNT(names) && (double)bytes / (double)one >= 1023.95) {
        unit++;
        one <<= 10;
    }
    if (size == 0) return text;
    if (bytes % one == 0)
        snprintf(text, size, "%llu %s", (unsigned long long)(bytes / one), names[unit]);
    else
        snprintf(text, size, "%.1f %s", (double)bytes / (double)one, names[unit]);
    return text;
}
