/* What must hold for a chat template whatever its source and the conversation: for the fuzzer, and for tests that
 * feed it the fuzzer's seeds. */
#ifndef RF_TESTS_TEMPLATE_PROPERTY_H
#define RF_TESTS_TEMPLATE_PROPERTY_H

#include <stddef.h>

/* The bytes are a source and, behind the first zero byte, a conversation in JSON (none: a small one). Makes, renders
 * twice and compares. NULL: all is well, else what does not hold. */
const char *template_property(const unsigned char *bytes, size_t size);

#endif
