/* What must hold for any text as a grammar; shared by the tests and the fuzzers. */
#ifndef GRAMMAR_PROPERTY_H
#define GRAMMAR_PROPERTY_H

#include <rocmforge/grammar.h>

/* The bytes up to the first zero byte are a grammar of this kind, those behind it a text for it. The grammar is
 * refused with one line, or it has texts:
 *   - whatever was accepted byte by byte is accepted at once, and the matcher is where it was after a refusal
 *   - at each place the mask of a small vocabulary allows exactly the tokens that can be pushed
 *   - a generation that follows the masks never comes to a dead end, and is complete where a token may end it
 * False: one of these does not hold, and *why says which. A limit that is reached (RF_E_NO_MEMORY) is no failure. */
bool grammar_property(enum rf_grammar_kind kind, const unsigned char *data, size_t size, const char **why);

#endif
