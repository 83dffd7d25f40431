/* The pre-tokenizers, by name: they cut text into pieces, and byte-level BPE merges only within a piece.
 *
 * A pre-tokenizer is a list of stages. A stage is one regular expression of the model's tokenizer, written
 * as a scanner. Within each piece of the stage before, every match of the expression becomes a piece, and so
 * does the text between two matches. The time grows in proportion to the text's length, whatever the text. */
#ifndef RF_TOKENIZER_PRETOKENIZE_H
#define RF_TOKENIZER_PRETOKENIZE_H

#include <rocmforge/base.h>

struct rf_pretokenizer {
    const char *name; /* as in tokenizer.ggml.pre */
    const struct rf_split_stage *stages;
    size_t stage_count;
    bool whole_first; /* a piece that is a token as a whole becomes that token and is not merged */
    bool add_bos;     /* used if the model does not say */
};

/* NULL: unknown. */
const struct rf_pretokenizer *rf_pretokenizer_find(const char *name, size_t bytes);
/* Writes the known names into text, separated by commas; returns text. */
const char *rf_pretokenizer_names(char *text, size_t size);

/* Calls visit for each piece of the runes (see unicode.h), in order and without gaps, as indices
 * from begin (included) to end (excluded). If visit fails, stops and returns its status. */
typedef rf_status (*rf_piece_fn)(void *user, size_t begin, size_t end);
rf_status rf_pretokenize(const struct rf_pretokenizer *pretokenizer, const uint32_t *runes, size_t count,
                         rf_piece_fn visit, void *user);

#endif
