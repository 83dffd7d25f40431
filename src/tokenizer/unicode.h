/* Text as code points with the classes that tokenizers split by.
 *
 * A rune is one word: the code point in the low 21 bits and its classes above them. base/utf8.h decodes text into
 * code points. A byte that is not part of valid UTF-8 becomes a rune of its own, with the code RF_CODE_INVALID and
 * the classes of U+FFFD. No text is lost on the way through runes, because each rune knows how many bytes it came
 * from.
 *
 * The table is made by tools/make_unicode_table.py. Must not depend on the locale. */
#ifndef RF_TOKENIZER_UNICODE_H
#define RF_TOKENIZER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

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

/* How many bytes of UTF-8 a rune came from. */
static inline size_t rf_rune_bytes(uint32_t rune) {
    uint32_t code = RF_RUNE_CODE(rune);
    return code < 0x80 || code == RF_CODE_INVALID ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/* The code point with its classes. */
uint32_t rf_rune(uint32_t code);

/* ---- the table ---- */
extern const char rf_unicode_version[]; /* "14.0.0" */
extern const uint32_t rf_unicode_range_count;
extern const uint32_t rf_unicode_ranges[];

#endif
