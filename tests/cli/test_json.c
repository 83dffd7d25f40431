/* The JSON writer: whatever goes in, what comes out is JSON. */
#include "cli/json.h"
#include <rocmforge/test.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

RF_TEST(json, shape) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    struct json json;
    json_begin(&json, to);
    json_open_object(&json, NULL);
    json_text(&json, "a", "x");
    json_open_array(&json, "b");
    json_int(&json, NULL, -1);
    json_uint(&json, NULL, UINT64_MAX);
    json_open_object(&json, NULL);
    json_close(&json);
    json_close(&json);
    json_double(&json, "c", 0.5);
    json_double(&json, "d", NAN);
    json_double(&json, "e", -INFINITY);
    json_bool(&json, "f", true);
    json_text(&json, "g", NULL);
    json_open_array(&json, "h"); /* left open */
    json_end(&json);
    fclose(to);
    RF_ASSERT_TEXT(text,
                   "{\n  \"a\": \"x\",\n  \"b\": [\n    -1,\n    18446744073709551615,\n    {}\n  ],\n  \"c\": 0.5,\n"
                   "  \"d\": null,\n  \"e\": null,\n  \"f\": true,\n  \"g\": null,\n  \"h\": []\n}\n");
    free(text);
}

static void expect_written(const char *value, const char *expected) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    struct json json;
    json_begin(&json, to);
    json_text(&json, NULL, value);
    json_end(&json);
    fclose(to);
    RF_ASSERT_TEXT(text, expected);
    free(text);
}

RF_TEST(json, any_bytes) {
    expect_written("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80",
                   "\"plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"\n");
    expect_written("q\" b\\ n\n t\t \x1b\x7f", "\"q\\\" b\\\\ n\\u000a t\\u0009 \\u001b\\u007f\"\n");
    expect_written("\x80", "\"\\ufffd\"\n");                       /* a continuation alone */
    expect_written("\xc3", "\"\\ufffd\"\n");                       /* cut off */
    expect_written("\xe2\x82", "\"\\ufffd\\ufffd\"\n");            /* cut off later */
    expect_written("\xc0\xaf", "\"\\ufffd\\ufffd\"\n");            /* overlong */
    expect_written("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"); /* a surrogate */
    expect_written("\xf5\x80\x80\x80x", "\"\\ufffd\\ufffd\\ufffd\\ufffdx\"\n");
    expect_written("\xc3(", "\"\\ufffd(\"\n");
}
