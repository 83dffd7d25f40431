/* Text as code points with the classes that tokenizers split by.
 *
 * A rune is a code point in the low 21 bits with its classes above them: one word tells both. A
 * byte that is no part of valid UTF-8 is a rune of its own, RF_RUNE_INVALID, which has the classes
 * of U+FFFD: text never gets lost on the way through runes, because each knows its bytes.
 *
 * The table is made by tools/make_unicode_table.py. Must not depend on the locale. */
#ifndef RF_MODEL_UNICODE_H
#define RF_MODEL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rf_rune_class {
    RF_RUNE_UPPER = 1u << 21,        /* Lu */
    RF_RUNE_LOWER = 1u << 22,        /* Ll */
    RF_RUNE_TITLE = 1u << 23,        /* Lt */
    RF_RUNE_MODIFIER = 1u << 24,     /* Lm */
    RF_RUNE_OTHER_LETTER = 1u << 25, /* Lo */
    RF_RUNE_NUMBER = 1u << 26,       /* N */
    RF_RUNE_PUNCTUATION = 1u << 27,  /* P */
    RF_RUNE_SYMBOL = 1u << 28,       /* S */
    RF_RUNE_MARK = 1u << 29,         /* M */
    RF_RUNE_SPACE = 1u << 30,        /* White_Space, \s */
    RF_RUNE_LETTER = 31u << 21,      /* L: any of the five */
};
#define RF_RUNE_CODE(rune) ((rune) & 0x1fffffu)
#define RF_CODE_INVALID 0x110000u /* the code of a byte that is not UTF-8 */

/* The next rune of text (bytes > 0): its code point without classes, and how many bytes it takes.
 * Strict: no overlong forms, no surrogates, nothing above U+10FFFF; RF_CODE_INVALID takes one byte. */
uint32_t rf_utf8_decode(const char *text, size_t bytes, size_t *taken);
/* Writes 1 to 4 bytes; code must be a code point. */
size_t rf_utf8_encode(uint32_t code, char out[4]);
/* How many bytes a rune came from. */
static inline size_t rf_rune_bytes(uint32_t rune) {
    uint32_t code = RF_RUNE_CODE(rune);
    return code < 0x80 || code == RF_CODE_INVALID ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/* How many bytes at the end of text may be the beginning of a UTF-8 sequence that more bytes would
 * complete: 0 to 3. */
size_t rf_utf8_unfinished(const char *text, size_t bytes);

/* The code point with its classes. */
uint32_t rf_rune(uint32_t code);

/* ---- the table ---- */
extern const char rf_unicode_version[]; /* "14.0.0" */
extern const uint32_t rf_unicode_range_count;
extern const uint32_t rf_unicode_ranges[];

#endif
