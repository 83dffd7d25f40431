/* The JSON writer: whatever goes in, what comes out is JSON. */
#include "base/json.h"
#include <rocmforge/test.h>

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../scratch.h"

/* A document that is kept as text; 'room' is what the sink takes before it refuses. */
struct document {
    struct rf_json json;
    char text[8192];
    size_t bytes, room;
};

static bool keep(void *user, const char *text, size_t bytes) {
    struct document *document = user;
    if (bytes > document->room - document->bytes) return false;
    memcpy(document->text + document->bytes, text, bytes);
    document->bytes += bytes;
    document->text[document->bytes] = 0;
    return true;
}

static void begin(struct document *document, enum rf_json_layout layout) {
    document->bytes = 0;
    document->text[0] = 0;
    document->room = sizeof document->text - 1;
    rf_json_begin(&document->json, keep, document, layout);
}

/* One of everything. */
static void write_sample(struct rf_json *json) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "a", "x");
    rf_json_open_array(json, "b");
    rf_json_int(json, NULL, -1);
    rf_json_uint(json, NULL, UINT64_MAX);
    rf_json_open_object(json, NULL);
    rf_json_close(json);
    rf_json_close(json);
    rf_json_double(json, "c", 0.5);
    rf_json_double(json, "d", NAN);
    rf_json_double(json, "e", -INFINITY);
    rf_json_bool(json, "f", true);
    rf_json_text(json, "g", NULL);
    rf_json_open_array(json, "h"); /* left open */
}

RF_TEST(json, in_lines) {
    static struct document document;
    begin(&document, RF_JSON_LINES);
    write_sample(&document.json);
    RF_ASSERT(rf_json_end(&document.json));
    RF_ASSERT_TEXT(document.text,
                   "{\n  \"a\": \"x\",\n  \"b\": [\n    -1,\n    18446744073709551615,\n    {}\n  ],\n  \"c\": 0.5,\n"
                   "  \"d\": null,\n  \"e\": null,\n  \"f\": true,\n  \"g\": null,\n  \"h\": []\n}\n");
}

RF_TEST(json, on_one_line) {
    static struct document document;
    begin(&document, RF_JSON_SPACED);
    write_sample(&document.json);
    RF_ASSERT(rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text, "{\"a\": \"x\", \"b\": [-1, 18446744073709551615, {}], \"c\": 0.5, \"d\": null, "
                                  "\"e\": null, \"f\": true, \"g\": null, \"h\": []}\n");
    begin(&document, RF_JSON_COMPACT);
    write_sample(&document.json);
    RF_ASSERT(rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text, "{\"a\":\"x\",\"b\":[-1,18446744073709551615,{}],\"c\":0.5,\"d\":null,\"e\":null,"
                                  "\"f\":true,\"g\":null,\"h\":[]}\n");
}

/* The shape of the runner's report and of a trace: a list with one item per line inside a one-line object. */
RF_TEST(json, layouts_mix) {
    static struct document document;
    begin(&document, RF_JSON_SPACED);
    rf_json_open_object(&document.json, NULL);
    rf_json_int(&document.json, "n", 2);
    rf_json_set_layout(&document.json, RF_JSON_LINES);
    rf_json_open_array(&document.json, "list");
    rf_json_set_layout(&document.json, RF_JSON_COMPACT);
    for (int i = 0; i < 2; i++) {
        rf_json_open_object(&document.json, NULL);
        rf_json_int(&document.json, "i", i);
        rf_json_bool(&document.json, "even", i % 2 == 0);
        rf_json_close(&document.json);
    }
    rf_json_close(&document.json);
    rf_json_null(&document.json, "end");
    RF_ASSERT(rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text,
                   "{\"n\": 2, \"list\": [\n  {\"i\":0,\"even\":true},\n  {\"i\":1,\"even\":false}\n], "
                   "\"end\": null}\n");
}

static void expect_written(const char *value, const char *expected) {
    static struct document document;
    begin(&document, RF_JSON_LINES);
    rf_json_text(&document.json, NULL, value);
    RF_ASSERT(rf_json_end(&document.json));
    RF_ASSERT_TEXT(document.text, expected);
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
    expect_written("", "\"\"\n");
}

/* The name of a member is escaped as a value is. */
RF_TEST(json, any_key) {
    static struct document document;
    begin(&document, RF_JSON_COMPACT);
    rf_json_open_object(&document.json, NULL);
    rf_json_int(&document.json, "a\"\x01\xff", 1);
    rf_json_int(&document.json, NULL, 2);
    RF_ASSERT(rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text, "{\"a\\\"\\u0001\\ufffd\":1,\"\":2}\n");
}

static void write_numbers(struct document *document) {
    begin(document, RF_JSON_COMPACT);
    rf_json_open_array(&document->json, NULL);
    rf_json_int(&document->json, NULL, INT64_MIN);
    rf_json_int(&document->json, NULL, INT64_MAX);
    rf_json_uint(&document->json, NULL, 0);
    rf_json_double(&document->json, NULL, 0.1);
    rf_json_double(&document->json, NULL, -1e300);
    rf_json_double(&document->json, NULL, 5e-324);
    rf_json_fixed(&document->json, NULL, 1234.5678, 3);
    rf_json_fixed(&document->json, NULL, -0.5, 0);
    rf_json_fixed(&document->json, NULL, 2, -1);
    rf_json_fixed(&document->json, NULL, INFINITY, 3);
    RF_ASSERT(rf_json_end(&document->json));
}
#define NUMBERS                                                                                                      \
    "[-9223372036854775808,9223372036854775807,0,0.10000000000000001,-1.0000000000000001e+300,"                      \
    "4.9406564584124654e-324,1234.568,-0,2,null]\n"

RF_TEST(json, numbers) {
    static struct document document;
    write_numbers(&document);
    RF_EXPECT_TEXT(document.text, NUMBERS);
    begin(&document, RF_JSON_COMPACT);
    rf_json_fixed(&document.json, NULL, -1.7976931348623157e308, 100); /* the longest there is */
    RF_ASSERT(rf_json_end(&document.json));
    RF_EXPECT_UINT(document.bytes, 1 + 309 + 1 + 17 + 1);
}

/* A host program may have set a locale whose decimal point is a comma. One is made here, as none may be installed. */
RF_TEST(json, numbers_in_any_locale) {
    static struct document document;
    char folder[SCRATCH_BYTES], command[512], comma[16];
    scratch_folder(folder, "json");
    snprintf(
        command, sizeof command,
        "cd %s && printf 'LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n' >source"
        " && localedef -c -i source -f ANSI_X3.4-1968 ./comma >log 2>&1",
        folder);
    int made = system(command); /* not 0 with warnings, either: setlocale tells */
    setenv("LOCPATH", folder, 1);
    bool set = made >= 0 && setlocale(LC_NUMERIC, "comma") != NULL;
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    write_numbers(&document);
    setlocale(LC_NUMERIC, "C");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    RF_EXPECT_INT(system(command), 0);
    if (!set) RF_SKIP("localedef cannot make a locale here");
    RF_ASSERT_TEXT(comma, "0,5");
    RF_EXPECT_TEXT(document.text, NUMBERS);
}

RF_TEST(json, a_sink_that_takes_no_more) {
    static struct document whole, part;
    begin(&whole, RF_JSON_LINES);
    write_sample(&whole.json);
    RF_ASSERT(rf_json_end(&whole.json));
    for (size_t room = 0; room < whole.bytes; room++) {
        RF_TRACE("room for %zu bytes", room);
        begin(&part, RF_JSON_LINES);
        part.room = room;
        write_sample(&part.json);
        RF_ASSERT(!rf_json_end(&part.json));
        RF_ASSERT(!strncmp(part.text, whole.text, part.bytes)); /* nothing after the piece that was refused */
    }
    FILE *full = fopen("/dev/full", "w");
    RF_ASSERT_NOT_NULL(full);
    setvbuf(full, NULL, _IONBF, 0);
    rf_json_begin_file(&part.json, full, RF_JSON_LINES);
    write_sample(&part.json);
    RF_EXPECT(!rf_json_end(&part.json));
    RF_EXPECT(ferror(full));
    fclose(full);
}

RF_TEST(json, misuse_fails_and_writes_nothing_more) {
    static struct document document;
    begin(&document, RF_JSON_COMPACT);
    RF_EXPECT(!rf_json_end(&document.json)); /* nothing was written */
    RF_EXPECT_TEXT(document.text, "");
    begin(&document, RF_JSON_COMPACT);
    rf_json_int(&document.json, NULL, 1);
    rf_json_int(&document.json, NULL, 2); /* a second outermost value */
    RF_EXPECT(!rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text, "1");
    begin(&document, RF_JSON_COMPACT);
    rf_json_int(&document.json, NULL, 1);
    rf_json_close(&document.json); /* nothing is open */
    RF_EXPECT(rf_json_end(&document.json));
    RF_EXPECT_TEXT(document.text, "1\n");
}

RF_TEST(json, nesting_has_a_limit) {
    static struct document document;
    for (int layout = RF_JSON_LINES; layout <= RF_JSON_COMPACT; layout++) {
        begin(&document, (enum rf_json_layout)layout);
        for (int i = 0; i < RF_JSON_DEPTH_MAX; i++) rf_json_open_array(&document.json, NULL);
        RF_EXPECT(rf_json_end(&document.json));
        begin(&document, (enum rf_json_layout)layout);
        for (int i = 0; i <= RF_JSON_DEPTH_MAX; i++) rf_json_open_array(&document.json, NULL);
        rf_json_close(&document.json);
        RF_EXPECT(!rf_json_end(&document.json));
        RF_EXPECT(strchr(document.text, ']') == NULL);
    }
}
