/* The budget's grammar and its arithmetic.
 *
 *     spec  = part { "," part }
 *     part  = PERCENT | SIZE | "keep=" PERCENT | "keep=" SIZE | "part=" ID ":" DIGITS
 *
 * Invariants
 *   1. Independent of the locale: nothing here calls strtod or isspace.
 *   2. Percents are kept to a millionth of a percent, and a percentage of a number of bytes
 *      is exact integer arithmetic, rounded down for a limit and up for what stays free.
 *   3. Repeating a kind of part keeps the stricter one: the smaller share, the larger keep.
 *   4. *spec is untouched on failure.
 * parse_part, parse_keep and rf_budget_eval assert what follows from 2 and 3. 1 is a property of the source.
 * Asserting 4 would need a copy of the caller's struct: tests/budget/test_spec.c checks it instead. This file does
 * not know what a limit means to a device or to several processes. */
#include "runtime/budget_spec.h"

#include <stdio.h>

#define MICRO_PER_PERCENT UINT64_C(1000000)
#define MICRO_WHOLE (100 * MICRO_PER_PERCENT)
#define DEFAULT_MICRO (70 * MICRO_PER_PERCENT)
#define FLOOR_MICRO (30 * MICRO_PER_PERCENT) /* the floor never exceeds this share unless keep= asks for more */
#define ALLOWED "allowed: 70%, 12GiB, keep=2GiB, keep=30%, part=ID:BYTES, several with commas (the smallest wins)"

/* One part of a spec, trimmed of white space. */
struct part {
    const char *spec; /* the whole text */
    const char *text;
    size_t length;
    int number; /* from 1 */
};

static rf_status parse_part(const struct part *part, struct rf_budget_spec *spec);
static rf_status refuse(const struct part *part, const char *format, ...) RF_PRINTF(2, 3);

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

rf_status rf_budget_parse(const char *text, struct rf_budget_spec *spec) {
    if (!text || !spec) return rf_fail(RF_E_INVALID, "rf_budget_parse: %s is NULL", text ? "spec" : "text");
    struct rf_budget_spec found = {0};
    struct part part = {.spec = text, .text = text, .number = 1};
    for (const char *next = text;; part.number++) {
        const char *end = next;
        while (*end && *end != ',') end++;
        part.text = next;
        part.length = (size_t)(end - next);
        while (part.length && is_space(part.text[0])) {
            part.text++;
            part.length--;
        }
        while (part.length && is_space(part.text[part.length - 1])) part.length--;
        rf_status status = parse_part(&part, &found);
        if (status) return status;
        if (!*end) break;
        next = end + 1;
    }
    *spec = found;
    return RF_OK;
}

/* A share of base, rounded down. 128 bits hold any product. */
static uint64_t share(uint64_t base, uint64_t micro) {
    return (uint64_t)((unsigned __int128)base * micro / MICRO_WHOLE);
}

static uint64_t share_up(uint64_t base, uint64_t micro) {
    return (uint64_t)(((unsigned __int128)base * micro + (MICRO_WHOLE - 1)) / MICRO_WHOLE);
}

/* Converts the struct's double back to the integer it was parsed from, and clamps a value that a caller may have put
 * there by hand. */
static uint64_t micro_of(double percent) {
    if (!(percent > 0)) return 0;
    if (percent >= 100) return MICRO_WHOLE;
    return (uint64_t)(percent * (double)MICRO_PER_PERCENT + 0.5);
}

void rf_budget_eval(const struct rf_budget_spec *spec, uint64_t base, uint64_t *limit, uint64_t *floor_bytes) {
    uint64_t most = base;
    uint64_t keep = 0;
    bool keeps = spec->has_keep || spec->has_keep_percent;
    if (spec->has_percent) most = RF_MIN(most, share(base, micro_of(spec->percent)));
    if (spec->has_cap) most = RF_MIN(most, spec->cap_bytes);
    if (spec->has_part) most = RF_MIN(most, spec->part_bytes);
    if (spec->has_keep) keep = RF_MAX(keep, spec->keep_bytes);
    if (spec->has_keep_percent) keep = RF_MAX(keep, share_up(base, micro_of(spec->keep_percent)));
    if (keeps)
        most = RF_MIN(most, rf_sub_saturate(base, keep));
    else if (!spec->has_percent && !spec->has_cap && !spec->has_part) /* a zeroed struct is the default */
        most = share(base, DEFAULT_MICRO);
    rf_assert(most <= base && (!keeps || most <= rf_sub_saturate(base, keep)));
    *limit = most;
    *floor_bytes = keeps ? keep : RF_MIN(base - most, share(base, FLOOR_MICRO));
}

/* Parses DIGITS [ "." DIGITS ] of exactly length bytes; a whole part larger than any percentage saturates. */
static bool parse_micro(const char *text, size_t length, uint64_t *micro) {
    size_t at = 0;
    uint64_t whole = 0, fraction = 0, scale = MICRO_PER_PERCENT;
    for (; at < length && is_digit(text[at]); at++)
        whole = RF_MIN(whole * 10 + (uint64_t)(text[at] - '0'), UINT64_C(1000000));
    if (!at) return false;
    if (at < length) {
        if (text[at++] != '.' || at == length) return false;
        for (; at < length && is_digit(text[at]); at++) {
            if (scale == 1) return false; /* a seventh decimal is finer than a millionth */
            scale /= 10;
            fraction += (uint64_t)(text[at] - '0') * scale;
        }
        if (at < length) return false;
    }
    *micro = whole * MICRO_PER_PERCENT + fraction;
    return true;
}

static rf_status parse_percent(const struct part *part, const char *text, size_t length, uint64_t *micro) {
    if (!parse_micro(text, length - 1, micro))
        return refuse(part, "a percentage is digits, at most six decimals and %%, as in 70%% or 12.5%%");
    return RF_OK;
}

/* rf_parse_bytes decides what a unit is; here only the shape is checked, and the blank that
 * people write before a unit is dropped. */
static rf_status parse_size(const struct part *part, const char *text, size_t length, uint64_t *bytes) {
    char plain[64];
    size_t used = 0, at = 0;
    bool shaped = length < sizeof plain && is_digit(text[0]);
    for (; shaped && at < length && is_digit(text[at]); at++) plain[used++] = text[at];
    if (shaped && at < length && text[at] == '.') {
        plain[used++] = text[at++];
        shaped = at < length && is_digit(text[at]);
        for (; at < length && is_digit(text[at]); at++) plain[used++] = text[at];
    }
    while (shaped && at < length && is_space(text[at])) at++;
    for (; shaped && at < length; at++) {
        shaped = is_letter(text[at]);
        plain[used++] = text[at];
    }
    if (!shaped) return refuse(part, "this is neither a percentage nor a size");
    plain[used] = 0;
    uint64_t value;
    if (rf_parse_bytes(plain, &value)) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        return refuse(part, "%.300s", saved.text);
    }
    *bytes = value;
    return RF_OK;
}

/* Parses "ID:DIGITS", which only rf_lease_lend writes. */
static rf_status parse_lent(const struct part *part, const char *text, size_t length, struct rf_budget_spec *spec) {
    if (spec->has_part) return refuse(part, "only one part= can be given");
    size_t id_length = 0;
    while (id_length < length && (is_digit(text[id_length]) || is_letter(text[id_length]) || text[id_length] == '-'))
        id_length++;
    if (!id_length || id_length >= sizeof spec->part_id || id_length == length || text[id_length] != ':')
        return refuse(part, "part= wants ID:BYTES exactly as the lending process wrote it");
    uint64_t bytes = 0;
    size_t at = id_length + 1;
    bool bad = at == length;
    for (; !bad && at < length; at++)
        bad = !is_digit(text[at]) || rf_mul_overflows(bytes, 10, &bytes) ||
              rf_add_overflows(bytes, (uint64_t)(text[at] - '0'), &bytes);
    if (bad || !bytes)
        return refuse(part, "part= wants ID:BYTES exactly as the lending process wrote it; BYTES is wrong");
    memcpy(spec->part_id, text, id_length);
    spec->part_id[id_length] = 0;
    spec->part_bytes = bytes;
    spec->has_part = true;
    return RF_OK;
}

static rf_status parse_keep(const struct part *part, const char *text, size_t length, struct rf_budget_spec *spec) {
    if (!length) return refuse(part, "keep= wants a size or a percentage, as in keep=2GiB or keep=30%%");
    if (text[length - 1] == '%') {
        uint64_t micro;
        rf_status status = parse_percent(part, text, length, &micro);
        if (status) return status;
        if (micro >= MICRO_WHOLE)
            return refuse(part,
                          "keeping all the memory free leaves no budget; keep= takes 0%% up to less than 100%%");
        double percent = (double)micro / (double)MICRO_PER_PERCENT;
        if (!spec->has_keep_percent || percent > spec->keep_percent) spec->keep_percent = percent;
        rf_assert(spec->keep_percent >= percent && micro_of(percent) == micro);
        spec->has_keep_percent = true;
        return RF_OK;
    }
    uint64_t bytes;
    rf_status status = parse_size(part, text, length, &bytes);
    if (status) return status;
    if (!spec->has_keep || bytes > spec->keep_bytes) spec->keep_bytes = bytes;
    spec->has_keep = true;
    return RF_OK;
}

static bool starts_with(const struct part *part, const char *prefix, const char **rest, size_t *rest_length) {
    size_t length = strlen(prefix);
    if (part->length < length || memcmp(part->text, prefix, length) != 0) return false;
    *rest = part->text + length;
    *rest_length = part->length - length;
    return true;
}

static rf_status parse_part(const struct part *part, struct rf_budget_spec *spec) {
    const char *rest;
    size_t rest_length;
    rf_status status;
    if (!part->length) return refuse(part, "the part is empty");
    if (part->text[0] == '-') return refuse(part, "a budget cannot be negative");
    if (starts_with(part, "keep=", &rest, &rest_length)) return parse_keep(part, rest, rest_length, spec);
    if (starts_with(part, "part=", &rest, &rest_length)) return parse_lent(part, rest, rest_length, spec);
    if (part->text[part->length - 1] == '%') {
        uint64_t micro;
        status = parse_percent(part, part->text, part->length, &micro);
        if (status) return status;
        if (!micro || micro > MICRO_WHOLE) return refuse(part, "a percentage is more than 0%% and at most 100%%");
        double percent = (double)micro / (double)MICRO_PER_PERCENT;
        if (!spec->has_percent || percent < spec->percent) spec->percent = percent;
        rf_assert(spec->percent <= percent && micro_of(percent) == micro);
        spec->has_percent = true;
        return RF_OK;
    }
    uint64_t bytes;
    status = parse_size(part, part->text, part->length, &bytes);
    if (status) return status;
    if (!spec->has_cap || bytes < spec->cap_bytes) spec->cap_bytes = bytes;
    spec->has_cap = true;
    return RF_OK;
}

/* Copies text of unknown origin so that it is fit for one line of a terminal. */
static void quote(const char *text, size_t length, char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < length && used + 4 < size; i++)
        out[used++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    if (used < length) {
        memcpy(out + used, "...", 3);
        used += 3;
    }
    out[used] = 0;
}

static rf_status refuse(const struct part *part, const char *format, ...) {
    char spec[100], text[60], why[512];
    va_list args;
    quote(part->spec, strlen(part->spec), spec, sizeof spec);
    quote(part->text, part->length, text, sizeof text);
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return rf_fail(RF_E_SYNTAX, "budget \"%s\": part %d, \"%s\" at character %zu: %s; %s", spec, part->number, text,
                   (size_t)(part->text - part->spec) + 1, why, ALLOWED);
}
