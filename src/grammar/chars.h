/* Sets of characters, and how they are spelt in bytes. */
#ifndef RF_GRAMMAR_CHARS_H
#define RF_GRAMMAR_CHARS_H

#include "grammar/program.h"

#define RF_CODE_MAX 0x10ffffu

struct rf_char_range {
    uint32_t low, high; /* code points, both included */
};
/* Zero-initialised: no characters. Bounded, because a class comes from outside. */
enum { RF_CHAR_RANGES_MAX = 1024 };
struct rf_chars {
    struct rf_char_range ranges[RF_CHAR_RANGES_MAX];
    size_t count;
};
/* RF_E_NO_MEMORY: too many ranges. */
rf_status rf_chars_add(struct rf_chars *chars, uint32_t low, uint32_t high);
rf_status rf_chars_add_all(struct rf_chars *chars, const struct rf_chars *more);
rf_status rf_chars_negate(struct rf_chars *chars); /* of all code points but surrogates */

/* UTF-8, or as JSON.stringify writes a character inside a string: the quotation mark, the backslash and the
 * characters below U+0020 escaped, in the shortest way, all others in UTF-8. */
enum rf_spelling { RF_SPELL_UTF8, RF_SPELL_JSON };
/* A node for one character of the set. */
rf_status rf_add_chars(struct rf_program *program, struct rf_chars *chars, enum rf_spelling spelling, uint32_t *out);
/* Writes one character that way, at most 6 bytes, and returns how many. */
size_t rf_spell(uint32_t code, enum rf_spelling spelling, char out[6]);

#endif
