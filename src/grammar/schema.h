/* JSON schemas as programs. */
#ifndef RF_GRAMMAR_SCHEMA_H
#define RF_GRAMMAR_SCHEMA_H

#include "grammar/program.h"

/* Sets the program's root. what: names the schema in error texts. RF_E_SYNTAX: not JSON, or a keyword's value makes
 * no sense. RF_E_UNSUPPORTED: a keyword that cannot be kept exactly, by name and place. */
rf_status rf_schema_compile(struct rf_program *program, const char *text, size_t bytes, const char *what);

#endif
