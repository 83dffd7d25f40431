/* The record: what a test reports about itself, apart from what it prints.
 *
 * Invariants: one line is one write() of less than PIPE_BUF bytes, so lines of several threads and processes never
 * mix; text is escaped, so a message cannot contain a line break. Both are asserted before a line is
 * written. */
#include "testing_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(PIPE_BUF >= 4096, "a record line is one atomic write");

void rf_test_record_write(int fd, const char *kind, const char *format, ...) {
    if (fd < 0) return;
    char text[1900], line[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    size_t length = (size_t)snprintf(line, 32, "%s\t", kind);
    for (const char *c = text; *c; c++) {
        if (*c == '\n' || *c == '\\') {
            line[length++] = '\\';
            line[length++] = *c == '\n' ? 'n' : '\\';
        } else {
            line[length++] = *c;
        }
    }
    line[length++] = '\n';
    rf_assert(length < PIPE_BUF && length <= sizeof line && memchr(line, '\n', length) == line + length - 1);
    int saved_errno = errno;
    while (write(fd, line, length) < 0 && errno == EINTR) {
    }
    errno = saved_errno;
}

static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\\' && from[1]) {
            from++;
            *to++ = *from == 'n' ? '\n' : *from;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

void rf_test_record_lines(char *text, void (*visit)(void *user, const char *kind, char *value), void *user) {
    char *end;
    for (char *line = text; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        char *tab = strchr(line, '\t');
        if (!tab) return;
        *tab = 0;
        unescape(tab + 1);
        visit(user, line, tab + 1);
    }
}

static void add_message(struct rf_test_record *record, const char *text) {
    size_t have = strlen(record->message), more = strlen(text);
    record->message = rf_test_grow(record->message, have + more + 2);
    if (have) record->message[have++] = '\n';
    memcpy(record->message + have, text, more + 1);
}

static void take_line(void *user, const char *kind, char *value) {
    struct rf_test_record *record = user;
    if (strcmp(kind, "failure") == 0) {
        record->failure_seen = true;
        record->leak_seen |= strstr(value, ": leaked ") != NULL;
        add_message(record, value);
    } else if (strcmp(kind, "skip") == 0) {
        add_message(record, value);
    } else if (strcmp(kind, "lost") == 0) {
        record->lost_seen = true;
    } else if (strcmp(kind, "memory") == 0) {
        uint64_t bytes = strtoull(value, NULL, 10);
        if (bytes > record->peak_bytes) record->peak_bytes = bytes;
    } else if (strcmp(kind, "verdict") == 0) {
        record->verdict = strcmp(value, "passed") == 0    ? RF_TEST_PASSED
                          : strcmp(value, "skipped") == 0 ? RF_TEST_SKIPPED
                                                          : RF_TEST_FAILED;
    }
}

void rf_test_record_parse(char *text, struct rf_test_record *record) {
    *record = (struct rf_test_record){.message = rf_test_copy("")};
    rf_test_record_lines(text, take_line, record);
    /* A forked child of the test may have failed without the test noticing. */
    if (record->failure_seen && record->verdict != RF_TEST_NONE) record->verdict = RF_TEST_FAILED;
}

void rf_test_record_finish(struct rf_test_record *record) {
    free(record->message);
    record->message = NULL;
}
