/* Grammars in the notation of llama.cpp (GBNF). */
#ifndef RF_GRAMMAR_GBNF_H
#define RF_GRAMMAR_GBNF_H

#include "grammar/program.h"

/* Sets the program's root. what: names the grammar in error texts. */
rf_status rf_gbnf_compile(struct rf_program *program, const char *text, size_t bytes, const char *what);

#endif
