/* JSON as programs: values, strings, numbers, white space; and how they are spelt.
 *
 * White space: at most one blank, or a line end followed by at most 64 blanks and tabs, behind "{", "[" and ",",
 * before "}" and "]", and before the whole text; at most one blank behind ":". None elsewhere: a model cannot go on
 * with white space for ever, and a text that is complete is over.
 *
 * Numbers have at most 64 digits before the point and 64 behind it, and exponents up to 239: every one of them is a
 * finite double. */
#ifndef RF_GRAMMAR_JSON_TEXT_H
#define RF_GRAMMAR_JSON_TEXT_H

#include "grammar/program.h"

enum { RF_DIGITS_MAX = 64, RF_NESTING_MAX = 64 };

struct rf_json_nodes {
    uint32_t front;                  /* white space before the whole text */
    uint32_t gap, colon, comma;      /* comma: with the white space behind it */
    uint32_t begin_array, end_array; /* with the white space inside */
    uint32_t quote;
    uint32_t character; /* of a string, in any spelling */
    uint32_t plain;     /* of a string, as JSON.stringify spells it */
    uint32_t number, integer;
    uint32_t string, any_array, any_object, any; /* values; those inside nest at most RF_NESTING_MAX deep */
    uint32_t null_word, true_word, false_word;
};
/* Adds them, and sets the program's gap and colon. */
rf_status rf_add_json(struct rf_program *program, struct rf_json_nodes *out);

#endif
