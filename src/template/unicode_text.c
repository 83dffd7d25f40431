/* See unicode_text.h. */
#include "template/unicode_text.h"

#include "tokenizer/unicode.h"

bool rf_text_is_utf8(const char *text, size_t bytes) {
    for (size_t at = 0, taken; at < bytes; at += taken) {
        if (!((unsigned char)text[at] & 0x80))
            taken = 1;
        else if (rf_utf8_decode(text + at, bytes - at, &taken) == RF_CODE_INVALID)
            return false;
    }
    return true;
}

size_t rf_text_chars(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

size_t rf_text_offset(const char *text, size_t bytes, size_t index) {
    size_t at = 0;
    for (; at < bytes && index; index--) at += rf_text_char_bytes((unsigned char)text[at]);
    return at < bytes ? at : bytes;
}

size_t rf_text_char_bytes(unsigned char first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

bool rf_code_is_space(uint32_t code) {
    return (code >= 0x1c && code <= 0x1f) || rf_rune(code) & RF_RUNE_SPACE;
}

bool rf_code_is_alpha(uint32_t code) {
    return rf_rune(code) & RF_RUNE_LETTER;
}

bool rf_code_is_number(uint32_t code) {
    return rf_rune(code) & RF_RUNE_NUMBER;
}

bool rf_code_is_word(uint32_t code) {
    return code == '_' || rf_rune(code) & (RF_RUNE_LETTER | RF_RUNE_NUMBER);
}

bool rf_code_is_cased(uint32_t code) {
    return rf_rune(code) & (RF_RUNE_UPPER | RF_RUNE_LOWER | RF_RUNE_TITLE);
}

bool rf_code_is_upper(uint32_t code) {
    return rf_rune(code) & RF_RUNE_UPPER;
}

bool rf_code_is_lower(uint32_t code) {
    return rf_rune(code) & RF_RUNE_LOWER;
}

bool rf_code_is_printable(uint32_t code) {
    if (code < 0x7f) return code >= 0x20;
    uint32_t classes = rf_rune(code) >> 21;
    return classes && !(rf_rune(code) & RF_RUNE_SPACE);
}

static size_t other_case(uint32_t code, const struct rf_case_run *runs, size_t run_count,
                         const struct rf_case_long *longs, size_t long_count, uint32_t out[3]) {
    size_t low = 0, high = run_count; /* the first run that ends at or behind the code */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    out[0] = code;
    if (low < run_count && code >= runs[low].first && (code - runs[low].first) % (uint32_t)runs[low].step == 0) {
        out[0] = (uint32_t)((int32_t)code + runs[low].distance);
        return 1;
    }
    if (code < 0x80) return 1;
    for (size_t i = 0; i < long_count; i++) {
        if (longs[i].code != code) continue;
        size_t count = 0;
        for (; count < 3 && longs[i].form[count]; count++) out[count] = longs[i].form[count];
        return count;
    }
    return 1;
}

size_t rf_code_upper(uint32_t code, uint32_t out[3]) {
    return other_case(code, rf_case_upper, rf_case_upper_count, rf_case_upper_long, rf_case_upper_long_count, out);
}

size_t rf_code_lower(uint32_t code, uint32_t out[3]) {
    return other_case(code, rf_case_lower, rf_case_lower_count, rf_case_lower_long, rf_case_lower_long_count, out);
}

size_t rf_code_title(uint32_t code, uint32_t out[3]) {
    size_t count = rf_code_upper(code, out);
    for (size_t i = 1; i < count; i++) {
        uint32_t lower[3];
        if (rf_code_lower(out[i], lower) == 1) out[i] = lower[0];
    }
    return count;
}
