/* The JSON writer: all JSON that the library, the command and the test runner put out goes through it.
 *
 * It cannot produce malformed output: brackets are matched, commas are placed, text is escaped, each byte that is not
 * valid UTF-8 becomes U+FFFD, numbers that are not finite become null, and 64-bit integers are written exactly,
 * whatever the locale. What cannot be written (nesting deeper than RF_JSON_DEPTH_MAX, a second outermost value, a
 * sink that takes no more) makes the writer fail for good: it writes nothing further, and rf_json_end returns false.
 *
 * Allocates nothing and keeps no text: pieces go to the sink at once. Must not depend on any other file of the
 * library except base/utf8.h: the command and the test runner compile it into themselves. */
#ifndef RF_BASE_JSON_H
#define RF_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RF_JSON_DEPTH_MAX 32

/* How the items of an object or an array are laid out. */
enum rf_json_layout {
    RF_JSON_LINES,   /* each on a line of its own, indented by two spaces for each level laid out in lines */
    RF_JSON_SPACED,  /* on one line: {"a": 1, "b": 2} */
    RF_JSON_COMPACT, /* on one line, without spaces: {"a":1,"b":2} */
};

/* Takes a piece of text, which is not terminated by zero. It returns false when it takes no more. */
typedef bool (*rf_json_write_fn)(void *user, const char *text, size_t bytes);

struct rf_json_level {
    char closing; /* the bracket that ends it */
    bool has_items;
    enum rf_json_layout layout;
};

/* A document that is being written. It lives on the stack, needs no clean-up, and is used by one thread at a time. */
struct rf_json {
    rf_json_write_fn write;
    void *user;
    enum rf_json_layout layout; /* of levels opened from now on */
    bool started, failed;
    int depth, indent; /* indent: how many of the open levels are laid out in lines */
    struct rf_json_level levels[RF_JSON_DEPTH_MAX];
};

void rf_json_begin(struct rf_json *json, rf_json_write_fn write, void *user, enum rf_json_layout layout);
void rf_json_begin_file(struct rf_json *json, FILE *file, enum rf_json_layout layout);
/* The layout of objects and arrays that are opened from now on; those that are open keep theirs. */
void rf_json_set_layout(struct rf_json *json, enum rf_json_layout layout);
/* Closes what is open and ends the line. True: the document is complete, and the sink took all of it. */
bool rf_json_end(struct rf_json *json);

/* key: the name of the member inside an object; ignored, and usually NULL, inside an array and for the outermost
 * value. */
void rf_json_open_object(struct rf_json *json, const char *key);
void rf_json_open_array(struct rf_json *json, const char *key);
void rf_json_close(struct rf_json *json);                                    /* the innermost open one */
void rf_json_text(struct rf_json *json, const char *key, const char *value); /* NULL: null */
void rf_json_uint(struct rf_json *json, const char *key, uint64_t value);
void rf_json_int(struct rf_json *json, const char *key, int64_t value);
/* With 17 significant digits, which give the same double back; null for NaN and infinities. */
void rf_json_double(struct rf_json *json, const char *key, double value);
/* The same with a fixed number of decimals, 0 to 17. */
void rf_json_fixed(struct rf_json *json, const char *key, double value, int decimals);
void rf_json_bool(struct rf_json *json, const char *key, bool value);
void rf_json_null(struct rf_json *json, const char *key);

#endif
