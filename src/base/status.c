/* Failing with a reason: the thread's last error text, and the names of the statuses.
 *
 * Invariants: the text is always one line of valid length, ended by a zero byte; building a new text may read the old
 * one (rf_error_text() may be an argument). This file must not allocate, because it also reports that memory ran out.
 */
#include "base/base.h"

#include <stdio.h>

#include "base/utf8.h"

#define TEXT_BYTES sizeof(((struct rf_saved_error *)0)->text)

static _Thread_local char error_text[TEXT_BYTES];

/* The error text is promised to be one line, but text from a driver or a file may hold line ends and escape codes. A
 * text that was cut may end inside a UTF-8 character: those bytes are removed. */
static void make_one_line(char *text, bool was_cut) {
    size_t length = strlen(text);
    if (was_cut) text[length - rf_utf8_unfinished(text, length)] = 0;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
}

RF_PRINTF(2, 0) static void format_line(char *text, const char *format, va_list args) {
    int length = vsnprintf(text, TEXT_BYTES, format, args);
    if (length < 0) text[0] = 0;
    make_one_line(text, length >= (int)TEXT_BYTES);
}

#if RF_CHECKS >= 2
static bool text_is_valid(const char *text, const char **why) {
    const char *end = memchr(text, 0, TEXT_BYTES);
    RF_INVALID_UNLESS(end, "the error text has no end");
    for (const char *c = text; c < end; c++)
        RF_INVALID_UNLESS((unsigned char)*c >= 0x20 && *c != 0x7f, "the error text is not one line");
    return true;
}
#endif

rf_status rf_fail(rf_status status, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    format_line(text, format, args);
    va_end(args);
    memcpy(error_text, text, sizeof text);
    rf_assert_valid(text_is_valid, error_text);
    return status;
}

rf_status rf_fail_within(rf_status status, const char *format, ...) {
    char prefix[TEXT_BYTES], text[2 * TEXT_BYTES + 2];
    va_list args;
    va_start(args, format);
    format_line(prefix, format, args);
    va_end(args);
    int length = snprintf(text, sizeof text, "%s: %s", prefix, error_text);
    bool cut = length >= (int)TEXT_BYTES;
    text[TEXT_BYTES - 1] = 0;
    make_one_line(text, cut);
    memcpy(error_text, text, TEXT_BYTES);
    rf_assert_valid(text_is_valid, error_text);
    return status;
}

const char *rf_error_text(void) {
    return error_text;
}

void rf_error_save(struct rf_saved_error *saved) {
    memcpy(saved->text, error_text, TEXT_BYTES);
}

void rf_error_restore(const struct rf_saved_error *saved) {
    memcpy(error_text, saved->text, TEXT_BYTES);
}

const char *rf_status_name(rf_status status) {
    static const char *const names[] = {
        [RF_OK] = "RF_OK",
        [RF_E_INVALID] = "RF_E_INVALID",
        [RF_E_SYNTAX] = "RF_E_SYNTAX",
        [RF_E_HANDLE] = "RF_E_HANDLE",
        [RF_E_NO_MEMORY] = "RF_E_NO_MEMORY",
        [RF_E_BUDGET] = "RF_E_BUDGET",
        [RF_E_DEVICE_MEMORY] = "RF_E_DEVICE_MEMORY",
        [RF_E_TIMEOUT] = "RF_E_TIMEOUT",
        [RF_E_BUSY] = "RF_E_BUSY",
        [RF_E_DEVICE_LOST] = "RF_E_DEVICE_LOST",
        [RF_E_NO_DRIVER] = "RF_E_NO_DRIVER",
        [RF_E_NO_DEVICE] = "RF_E_NO_DEVICE",
        [RF_E_DRIVER] = "RF_E_DRIVER",
        [RF_E_UNSUPPORTED] = "RF_E_UNSUPPORTED",
        [RF_E_NOT_FOUND] = "RF_E_NOT_FOUND",
        [RF_E_CORRUPT] = "RF_E_CORRUPT",
        [RF_E_IO] = "RF_E_IO",
        [RF_E_CLOSED] = "RF_E_CLOSED",
        [RF_E_CANCELLED] = "RF_E_CANCELLED",
    };
    _Static_assert(RF_COUNT(names) == RF_STATUS_COUNT, "every status has a name");
    return (unsigned)status < RF_STATUS_COUNT ? names[status] : "RF_E_?";
}
