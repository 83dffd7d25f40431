/* Tables of cases: each row becomes a test of its own, "suite.name/label", so that the code that lists, matches, runs
 * or counts tests need not know about tables. */
#include "testing_impl.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_BYTES_MAX 100

/* A label is part of a name that is typed in a shell, matched as a pattern and written in lists: characters with a
 * meaning there become '_'. Returns its length. */
static size_t write_label(char *text, const char *label) {
    size_t length = 0;
    for (; label[length] && length < LABEL_BYTES_MAX; length++) {
        char c = label[length];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("._-+=,:", c) != NULL;
        text[length] = plain ? c : '_';
    }
    return length;
}

static size_t write_number(char *text, size_t number) {
    char digits[24];
    size_t count = 0, length = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) text[length++] = digits[--count];
    return length;
}

void rf_test_register_rows(const struct rf_test *test, const void *rows, size_t count, size_t row_bytes,
                           size_t label_offset) {
    if (count == 0) return;
    /* One block for the tests and one for their names, reachable from the registry until the process ends. Every
     * isolated test runs this for the whole table, so it makes no call per row. */
    size_t base = strlen(test->name);
    struct rf_test *tests = rf_test_grow(NULL, count * sizeof *tests);
    char *name = rf_test_grow(NULL, count * (base + LABEL_BYTES_MAX + 2));
    for (size_t i = 0; i < count; i++) {
        const char *row = (const char *)rows + i * row_bytes;
        const char *label = NULL;
        if (label_offset != (size_t)-1) memcpy(&label, row + label_offset, sizeof label);
        memcpy(name, test->name, base);
        name[base] = '/';
        size_t length = base + 1;
        length += label && *label ? write_label(name + length, label) : write_number(name + length, i);
        name[length] = 0;
        tests[i] = *test;
        tests[i].name = name;
        tests[i].row = row;
        rf_test_register(&tests[i]);
        name += length + 1;
    }
}
