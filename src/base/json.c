/* See json.h. */
#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

static void put(struct rf_json *json, const char *text, size_t bytes) {
    if (!json->failed && bytes && !json->write(json->user, text, bytes)) json->failed = true;
}

static void put_plain(struct rf_json *json, const char *text) {
    put(json, text, strlen(text));
}

static void put_newline(struct rf_json *json) {
    static const char spaces[] = "                                                                ";
    _Static_assert(sizeof spaces - 1 == 2 * RF_JSON_DEPTH_MAX, "two spaces for each level");
    put(json, "\n", 1);
    put(json, spaces, 2 * (size_t)json->indent);
}

static void put_text(struct rf_json *json, const char *text) {
    size_t bytes = strlen(text), start = 0; /* start of the bytes not written yet, which need no escape */
    put(json, "\"", 1);
    for (size_t at = 0, taken; at < bytes; at += taken) {
        uint32_t code = rf_utf8_decode(text + at, bytes - at, &taken);
        bool quoted = code == '"' || code == '\\', control = code < 0x20 || code == 0x7f;
        if (!quoted && !control && code != RF_CODE_INVALID) continue;
        char escape[8];
        if (quoted)
            snprintf(escape, sizeof escape, "\\%c", (int)code);
        else
            snprintf(escape, sizeof escape, "\\u%04x", code == RF_CODE_INVALID ? 0xfffdu : (unsigned)code);
        put(json, text + start, at - start);
        put_plain(json, escape);
        start = at + taken;
    }
    put(json, text + start, bytes - start);
    put(json, "\"", 1);
}

/* printf writes the decimal point of the locale, which may be a comma or several bytes; JSON has a point. */
static void put_number(struct rf_json *json, char *text) {
    static const char allowed[] = "0123456789+-e";
    char *to = text;
    for (const char *at = text; *at;) {
        size_t count = strspn(at, allowed);
        memmove(to, at, count);
        to += count;
        at += count;
        if (*at) *to++ = '.';
        at += strcspn(at, allowed);
    }
    put(json, text, (size_t)(to - text));
}

/* Writes what stands before a value: a comma, a new line, the name. */
static void begin_value(struct rf_json *json, const char *key) {
    if (json->depth == 0) {
        if (json->started) json->failed = true;
        json->started = true;
        return;
    }
    struct rf_json_level *level = &json->levels[json->depth - 1];
    if (level->has_items) put_plain(json, level->layout == RF_JSON_SPACED ? ", " : ",");
    level->has_items = true;
    if (level->layout == RF_JSON_LINES) put_newline(json);
    if (level->closing == '}') {
        put_text(json, key ? key : "");
        put_plain(json, level->layout == RF_JSON_COMPACT ? ":" : ": ");
    }
}

static void open_level(struct rf_json *json, const char *key, const char *opening, char closing) {
    begin_value(json, key);
    if (json->depth == RF_JSON_DEPTH_MAX) json->failed = true;
    if (json->failed) return;
    put_plain(json, opening);
    json->levels[json->depth++] = (struct rf_json_level){.closing = closing, .layout = json->layout};
    if (json->layout == RF_JSON_LINES) json->indent++;
}

void rf_json_open_object(struct rf_json *json, const char *key) {
    open_level(json, key, "{", '}');
}
void rf_json_open_array(struct rf_json *json, const char *key) {
    open_level(json, key, "[", ']');
}

void rf_json_close(struct rf_json *json) {
    if (json->failed || json->depth == 0) return;
    const struct rf_json_level *level = &json->levels[--json->depth];
    if (level->layout == RF_JSON_LINES) {
        json->indent--;
        if (level->has_items) put_newline(json);
    }
    put(json, &level->closing, 1);
}

void rf_json_text(struct rf_json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        put_text(json, value);
    else
        put_plain(json, "null");
}

void rf_json_uint(struct rf_json *json, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    begin_value(json, key);
    put_plain(json, text);
}

void rf_json_int(struct rf_json *json, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    begin_value(json, key);
    put_plain(json, text);
}

void rf_json_double(struct rf_json *json, const char *key, double value) {
    char text[48];
    if (!isfinite(value)) {
        rf_json_null(json, key);
        return;
    }
    snprintf(text, sizeof text, "%.17g", value);
    begin_value(json, key);
    put_number(json, text);
}

void rf_json_fixed(struct rf_json *json, const char *key, double value, int decimals) {
    char text[352]; /* the largest double has 309 digits before its point */
    if (!isfinite(value)) {
        rf_json_null(json, key);
        return;
    }
    snprintf(text, sizeof text, "%.*f", decimals < 0 ? 0 : decimals > 17 ? 17 : decimals, value);
    begin_value(json, key);
    put_number(json, text);
}

void rf_json_bool(struct rf_json *json, const char *key, bool value) {
    begin_value(json, key);
    put_plain(json, value ? "true" : "false");
}

void rf_json_null(struct rf_json *json, const char *key) {
    begin_value(json, key);
    put_plain(json, "null");
}

/* ---- the document ---- */

static bool write_file(void *user, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, user) == bytes;
}

void rf_json_begin(struct rf_json *json, rf_json_write_fn write, void *user, enum rf_json_layout layout) {
    json->write = write;
    json->user = user;
    json->layout = layout;
    json->started = json->failed = false;
    json->depth = json->indent = 0;
}

void rf_json_begin_file(struct rf_json *json, FILE *file, enum rf_json_layout layout) {
    rf_json_begin(json, write_file, file, layout);
}

void rf_json_set_layout(struct rf_json *json, enum rf_json_layout layout) {
    json->layout = layout;
}

bool rf_json_end(struct rf_json *json) {
    if (!json->started) json->failed = true;
    while (json->depth > 0 && !json->failed) rf_json_close(json);
    put(json, "\n", 1);
    return !json->failed;
}
