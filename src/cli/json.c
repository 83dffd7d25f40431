/* The JSON writer. */
#include "json.h"

#include <math.h>
#include <string.h>

void json_begin(struct json *json, FILE *to) {
    *json = (struct json){.to = to};
}

static void indent(struct json *json) {
    fprintf(json->to, "\n%*s", 2 * json->depth, "");
}

/* The length of the valid UTF-8 sequence at text, 0 if there is none. */
static size_t sequence_length(const unsigned char *text) {
    size_t length = text[0] < 0x80                      ? 1
                    : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                    : text[0] < 0xe0                    ? 0
                    : text[0] < 0xf0                    ? 3
                    : text[0] < 0xf5                    ? 4
                                                        : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    /* overlong forms, surrogates, beyond the last plane */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void write_text(FILE *to, const char *text) {
    putc('"', to);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = sequence_length(at);
        if (length == 0) {
            fputs("\\ufffd", to);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(to, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(to, "\\u%04x", *at);
        } else {
            fwrite(at, 1, length, to);
        }
        at += length;
    }
    putc('"', to);
}

static void begin_value(struct json *json, const char *key) {
    if (json->depth > 0) {
        if (json->has_items[json->depth - 1]) putc(',', json->to);
        json->has_items[json->depth - 1] = true;
        indent(json);
        if (json->closing[json->depth - 1] == '}') {
            write_text(json->to, key ? key : "");
            fputs(": ", json->to);
        }
    }
}

static void open_level(struct json *json, const char *key, char opening, char closing) {
    begin_value(json, key);
    putc(opening, json->to);
    if (json->depth == JSON_MAX_DEPTH) return; /* no command nests so deep */
    json->closing[json->depth] = closing;
    json->has_items[json->depth++] = false;
}

void json_open_object(struct json *json, const char *key) {
    open_level(json, key, '{', '}');
}
void json_open_array(struct json *json, const char *key) {
    open_level(json, key, '[', ']');
}

void json_close(struct json *json) {
    if (json->depth == 0) return;
    json->depth--;
    if (json->has_items[json->depth]) indent(json);
    putc(json->closing[json->depth], json->to);
}

void json_text(struct json *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value)
        write_text(json->to, value);
    else
        fputs("null", json->to);
}

void json_uint(struct json *json, const char *key, uint64_t value) {
    begin_value(json, key);
    fprintf(json->to, "%llu", (unsigned long long)value);
}

void json_int(struct json *json, const char *key, int64_t value) {
    begin_value(json, key);
    fprintf(json->to, "%lld", (long long)value);
}

void json_double(struct json *json, const char *key, double value) {
    begin_value(json, key);
    if (isfinite(value))
        fprintf(json->to, "%.17g", value);
    else
        fputs("null", json->to);
}

void json_bool(struct json *json, const char *key, bool value) {
    begin_value(json, key);
    fputs(value ? "true" : "false", json->to);
}

void json_null(struct json *json, const char *key) {
    begin_value(json, key);
    fputs("null", json->to);
}

void json_end(struct json *json) {
    while (json->depth > 0) json_close(json);
    putc('\n', json->to);
}
