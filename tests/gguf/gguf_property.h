/* What must hold of any bytes offered as a GGUF file: they are refused with a reason, or everything
 * the reader then hands out can be read. For the byte-flipping tests and the fuzzer. */
#ifndef GGUF_PROPERTY_H
#define GGUF_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: it holds; else what does not. accepted may be NULL. */
const char *gguf_reads_soundly(const void *bytes, size_t size, bool *accepted);

#endif
