/* What must hold for a tokenizer whatever the vocabulary and the text: for the fuzzer, and for tests
 * that feed it random bytes. */
#ifndef RF_TESTS_TOKENIZER_PROPERTY_H
#define RF_TESTS_TOKENIZER_PROPERTY_H

#include <stddef.h>

/* Makes a vocabulary and a text from the bytes, encodes, decodes in both ways and compares. NULL:
 * all is well, else what does not hold. */
const char *tokenizer_property(const unsigned char *bytes, size_t size);

/* Spells bytes as "gpt2" vocabularies do; out has room for twice as many. Returns how many. */
size_t spell_bytes(const char *bytes, size_t size, char *out);

#endif
