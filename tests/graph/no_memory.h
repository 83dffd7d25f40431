/* Included before every source of test_no_memory: the graph's own files allocate through functions that fail on
 * demand. */
#ifndef NO_MEMORY_H
#define NO_MEMORY_H

#include <stdlib.h>
#include <string.h>

void *failing_malloc(size_t bytes);
void *failing_calloc(size_t count, size_t bytes);
void *failing_realloc(void *memory, size_t bytes);
void *failing_aligned_alloc(size_t alignment, size_t bytes);
char *failing_strdup(const char *text);

#define malloc failing_malloc
#define calloc failing_calloc
#define realloc failing_realloc
#define aligned_alloc failing_aligned_alloc
#undef strdup
#define strdup failing_strdup

#endif
