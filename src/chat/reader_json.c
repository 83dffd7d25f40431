/* Where a JSON value ends (see reader_impl.h). */
#include "chat/reader_impl.h"

static enum rf_json_scanned open_bracket(struct rf_json_scan *scan, bool array) {
    if (scan->depth == RF_READER_DEPTH_MAX) return RF_SCAN_WRONG;
    unsigned char bit = (unsigned char)(1u << scan->depth % 8);
    if (array)
        scan->arrays[scan->depth / 8] |= bit;
    else
        scan->arrays[scan->depth / 8] &= (unsigned char)~bit;
    scan->depth++;
    return RF_SCAN_MORE;
}

static enum rf_json_scanned close_bracket(struct rf_json_scan *scan, bool array) {
    if (!scan->depth) return RF_SCAN_WRONG;
    scan->depth--;
    if ((scan->arrays[scan->depth / 8] >> scan->depth % 8 & 1) != array) return RF_SCAN_WRONG;
    return scan->depth ? RF_SCAN_MORE : RF_SCAN_LAST;
}

static enum rf_json_scanned in_string(struct rf_json_scan *scan, char byte) {
    if ((unsigned char)byte < 0x20) return RF_SCAN_WRONG;
    if (scan->escape)
        scan->escape = false;
    else if (byte == '\\')
        scan->escape = true;
    else if (byte == '"')
        scan->string = false;
    return scan->string || scan->depth ? RF_SCAN_MORE : RF_SCAN_LAST;
}

/* A byte of a number, or of true, false or null. */
static bool in_word(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '+' || byte == '-' || byte == '.';
}

enum rf_json_scanned rf_json_scan_byte(struct rf_json_scan *scan, char byte) {
    if (scan->string) return in_string(scan, byte);
    if (scan->scalar) return in_word(byte) ? RF_SCAN_MORE : RF_SCAN_BEFORE;
    bool first = !scan->begun;
    scan->begun = true;
    if (byte == '"') {
        scan->string = true;
        return RF_SCAN_MORE;
    }
    if (byte == '{' || byte == '[') return open_bracket(scan, byte == '[');
    if (in_word(byte)) {
        scan->scalar = first;
        return RF_SCAN_MORE;
    }
    if (first) return RF_SCAN_WRONG;
    if (byte == '}' || byte == ']') return close_bracket(scan, byte == ']');
    return byte == ',' || byte == ':' || rf_is_blank(byte) ? RF_SCAN_MORE : RF_SCAN_WRONG;
}
