/* The time that a template sees, as strftime writes it, in English whatever the locale. Characters of the format keep
 * their marks; what stands for a directive is data. */
#include <stdio.h>
#include <time.h>

#include "template/template_impl.h"

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static bool is_leap(int64_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int days_in(int64_t year, int64_t month) {
    static const int count[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return count[month - 1] + (month == 2 && is_leap(year));
}

/* Reads count digits at *at. */
static bool read_digits(const char **at, int count, int64_t *value) {
    *value = 0;
    for (int i = 0; i < count; i++, ++*at) {
        if (**at < '0' || **at > '9') return false;
        *value = *value * 10 + (**at - '0');
    }
    return true;
}

rf_status rf_tpl_read_now(const char *now, int64_t out[6]) {
    if (!now) {
        struct tm tm;
        time_t seconds = time(NULL);
        if (!localtime_r(&seconds, &tm)) return rf_fail(RF_E_INVALID, "the clock's time is out of range");
        const int64_t fields[6] = {tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec};
        memcpy(out, fields, sizeof fields);
        return RF_OK;
    }
    const char *at = now;
    int64_t read[6] = {0};
    bool good = read_digits(&at, 4, &read[0]) && *at++ == '-' && read_digits(&at, 2, &read[1]) && *at++ == '-' &&
                read_digits(&at, 2, &read[2]) && (*at == 'T' || *at == ' ') && at++ &&
                read_digits(&at, 2, &read[3]) && *at++ == ':' && read_digits(&at, 2, &read[4]);
    if (good && *at == ':') good = at++ && read_digits(&at, 2, &read[5]);
    good = good && !*at && read[0] >= 1 && read[1] >= 1 && read[1] <= 12 && read[2] >= 1 &&
           read[2] <= days_in(read[0], read[1]) && read[3] < 24 && read[4] < 60 && read[5] < 60;
    if (!good) return rf_fail(RF_E_INVALID, "\"%.40s\" is no time: write it like 2026-07-26T12:30", now);
    memcpy(out, read, sizeof read);
    return RF_OK;
}

static int64_t day_of_year(const int64_t now[6]) { /* from 1 */
    int64_t day = now[2];
    for (int64_t month = 1; month < now[1]; month++) day += days_in(now[0], month);
    return day;
}

static int64_t day_of_week(const int64_t now[6]) { /* Sunday: 0 */
    int64_t before = now[0] - 1;
    return (before * 365 + before / 4 - before / 100 + before / 400 + day_of_year(now)) % 7;
}

/* The week by ISO 8601 and the year that it belongs to. */
static int64_t iso_week(const int64_t now[6], int64_t *year) {
    int64_t weekday = (day_of_week(now) + 6) % 7, week = (day_of_year(now) - 1 - weekday + 10) / 7;
    *year = now[0];
    if (week < 1) {
        --*year;
        const int64_t last[6] = {*year, 12, 31, 0, 0, 0};
        int64_t ignored;
        return iso_week(last, &ignored); /* the last day of a year is in its week 52, 53 or the next year's 1 */
    }
    int64_t length = is_leap(now[0]) ? 366 : 365;
    if (week == 53 && day_of_year(now) - weekday + 3 > length) {
        ++*year;
        return 1;
    }
    return week;
}

static rf_status number(struct rf_run *run, struct rf_tpl_builder *to, int64_t value, int width, char pad,
                        char flag) {
    char text[32];
    if (flag == '-')
        width = 0;
    else if (flag == '_')
        pad = ' ';
    else if (flag == '0')
        pad = '0';
    snprintf(text, sizeof text, pad == '0' ? "%0*lld" : "%*lld", width, (long long)value);
    return rf_tpl_build_bytes(run, to, text, strlen(text), 0);
}

static rf_status word(struct rf_run *run, struct rf_tpl_builder *to, const char *text, size_t length, char flag) {
    for (size_t i = 0; i < length && text[i]; i++) {
        char c = text[i];
        if (flag == '^' && c >= 'a' && c <= 'z') c = (char)(c - 32);
        RF_TRY(rf_tpl_build_bytes(run, to, &c, 1, 0));
    }
    return RF_OK;
}

/* Directives that stand for others. */
static const char *composed(char directive) {
    switch (directive) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'T':
    case 'X': return "%H:%M:%S";
    case 'r': return "%I:%M:%S %p";
    default: return NULL;
    }
}

/* *known false: the directive is not known. */
static rf_status simple(struct rf_run *run, struct rf_tpl_builder *to, char directive, char flag, bool *known) {
    const int64_t *now = run->now;
    int64_t year, hour12 = now[3] % 12 ? now[3] % 12 : 12, weekday = day_of_week(now);
    switch (directive) {
    case 'a': return word(run, to, days[weekday], 3, flag);
    case 'A': return word(run, to, days[weekday], 99, flag);
    case 'b':
    case 'h': return word(run, to, months[now[1] - 1], 3, flag);
    case 'B': return word(run, to, months[now[1] - 1], 99, flag);
    case 'C': return number(run, to, now[0] / 100, 2, '0', flag);
    case 'd': return number(run, to, now[2], 2, '0', flag);
    case 'e': return number(run, to, now[2], 2, ' ', flag);
    case 'f': return word(run, to, "000000", 6, 0);
    case 'G': iso_week(now, &year); return number(run, to, year, 4, '0', flag);
    case 'g': iso_week(now, &year); return number(run, to, year % 100, 2, '0', flag);
    case 'H': return number(run, to, now[3], 2, '0', flag);
    case 'I': return number(run, to, hour12, 2, '0', flag);
    case 'j': return number(run, to, day_of_year(now), 3, '0', flag);
    case 'k': return number(run, to, now[3], 2, ' ', flag);
    case 'l': return number(run, to, hour12, 2, ' ', flag);
    case 'm': return number(run, to, now[1], 2, '0', flag);
    case 'M': return number(run, to, now[4], 2, '0', flag);
    case 'n': return word(run, to, "\n", 1, 0);
    case 'p': return word(run, to, now[3] < 12 ? "AM" : "PM", 2, 0);
    case 'P': return word(run, to, now[3] < 12 ? "am" : "pm", 2, flag);
    case 'S': return number(run, to, now[5], 2, '0', flag);
    case 't': return word(run, to, "\t", 1, 0);
    case 'u': return number(run, to, weekday ? weekday : 7, 1, '0', flag);
    case 'U': return number(run, to, (day_of_year(now) + 6 - weekday) / 7, 2, '0', flag);
    case 'V': return number(run, to, iso_week(now, &year), 2, '0', flag);
    case 'w': return number(run, to, weekday, 1, '0', flag);
    case 'W': return number(run, to, (day_of_year(now) + 6 - (weekday + 6) % 7) / 7, 2, '0', flag);
    case 'y': return number(run, to, now[0] % 100, 2, '0', flag);
    case 'Y': return number(run, to, now[0], 1, '0', flag);
    case 'z':
    case 'Z': return RF_OK; /* no zone is known, as for Python's naive times */
    case '%': return word(run, to, "%", 1, 0);
    default: *known = false; return RF_OK;
    }
}

rf_status rf_tpl_strftime(struct rf_run *run, const struct rf_tpl_text *format, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    for (size_t at = 0; at < format->length; at++) {
        size_t from = at;
        char flag = 0;
        if (format->bytes[at] != '%' || at + 1 >= format->length) {
            RF_TRY(rf_tpl_build_part(run, &to, format, at, 1));
            continue;
        }
        at++;
        if (format->bytes[at] && strchr("-_0^", format->bytes[at]) && at + 1 < format->length)
            flag = format->bytes[at++];
        const char *parts = composed(format->bytes[at]);
        bool known = true;
        for (; parts && *parts; parts++) {
            if (*parts == '%')
                RF_TRY(simple(run, &to, *++parts, 0, &known));
            else
                RF_TRY(rf_tpl_build_bytes(run, &to, parts, 1, 0));
        }
        if (!parts) RF_TRY(simple(run, &to, format->bytes[at], flag, &known));
        if (known) continue;
        size_t behind = at + rf_text_char_bytes((unsigned char)format->bytes[at]); /* it stays as it is */
        RF_TRY(rf_tpl_build_part(run, &to, format, from, behind - from));
        at = behind - 1;
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    if (!made) return RF_E_NO_MEMORY;
    *out = made;
    return RF_OK;
}
