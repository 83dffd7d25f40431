/* Structured mutants of GGUF files: the file is taken apart into keys and tensors, a few of these are changed, and
 * it is put together again. So a mutant is wrong in one place that has a meaning (a count, a type, a dimension, a
 * table of the tokenizer) and passes every check before that place, which flipped bytes seldom do. */
#ifndef GGUF_MUTATE_H
#define GGUF_MUTATE_H

#include "gguf_testing.h"

enum { GGUF_MUTATIONS_MAX = 3, GGUF_MUTATION_TEXT = 160 };

/* What was changed, in words, one line for each change. */
struct gguf_mutation {
    char text[GGUF_MUTATIONS_MAX][GGUF_MUTATION_TEXT];
    int count;
};

/* Adds to out the mutant that belongs to the seed; the same file and seed give the same bytes. The file must be a
 * sound one of version 3. */
void gguf_mutate(const unsigned char *bytes, size_t size, uint64_t seed, struct blob *out,
                 struct gguf_mutation *mutation);

#endif
