/* Regular expressions as programs. */
#ifndef RF_GRAMMAR_REGEX_H
#define RF_GRAMMAR_REGEX_H

#include "grammar/program.h"

/* WHOLE: the text matches from beginning to end; UTF-8; "." is any character but a line feed, \s the ASCII ones.
 * SEARCH: some part of the text matches, as a JSON schema's "pattern" means it: characters as JSON.stringify spells
 * them in a string, "." and \s as ECMAScript has them. */
enum rf_regex_mode { RF_REGEX_WHOLE, RF_REGEX_SEARCH };
/* what: names the expression in the error text. RF_E_SYNTAX: malformed: where, and how. RF_E_UNSUPPORTED: what no
 * automaton can do, by name. RF_E_NO_MEMORY: too large. */
rf_status rf_add_regex(struct rf_program *program, const char *text, size_t bytes, enum rf_regex_mode mode,
                       const char *what, uint32_t *out);

#endif
