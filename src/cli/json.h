/* A JSON writer that cannot produce malformed output: brackets are matched, commas placed,
 * text escaped and invalid UTF-8 replaced. */
#ifndef RF_CLI_JSON_H
#define RF_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 16

struct json {
    FILE *to;
    int depth;
    char closing[JSON_MAX_DEPTH]; /* what each open level ends with */
    bool has_items[JSON_MAX_DEPTH];
};

/* key: NULL inside an array and for the outermost value, else the member's name. */
void json_begin(struct json *json, FILE *to);
void json_open_object(struct json *json, const char *key);
void json_open_array(struct json *json, const char *key);
void json_close(struct json *json);                                    /* the innermost open one */
void json_text(struct json *json, const char *key, const char *value); /* NULL: null */
void json_uint(struct json *json, const char *key, uint64_t value);
void json_int(struct json *json, const char *key, int64_t value);
void json_double(struct json *json, const char *key, double value); /* null for NaN and infinities */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_end(struct json *json); /* closes what is open, ends the line */

#endif
