/* Cutting text into the pieces that byte-level BPE merges within: the pre-tokenizers by name.
 *
 * Each is a list of stages; a stage is one regular expression of the model's tokenizer, written as a
 * scanner. Within a piece of the stage before, what the expression matches becomes a piece and so
 * does what lies between matches. Time grows with the text's length, whatever the text. */
#ifndef RF_MODEL_PRETOKENIZE_H
#define RF_MODEL_PRETOKENIZE_H

#include <rocmforge/base.h>

struct rf_pretokenizer {
    const char *name; /* as tokenizer.ggml.pre has it */
    const struct rf_split_stage *stages;
    size_t stage_count;
    bool whole_first; /* a piece that is a token as it stands is not merged: it is that token */
    bool add_bos;     /* where the model does not say */
};

/* NULL: unknown. */
const struct rf_pretokenizer *rf_pretokenizer_find(const char *name, size_t bytes);
/* The names known, with commas, into text; returns text. */
const char *rf_pretokenizer_names(char *text, size_t size);

/* Calls visit for each piece of the runes (see unicode.h), in order and without gaps, as indices
 * from begin (included) to end (excluded); stops with the status that visit returns. */
typedef rf_status (*rf_piece_fn)(void *user, size_t begin, size_t end);
rf_status rf_pretokenize(const struct rf_pretokenizer *pretokenizer, const uint32_t *runes, size_t count,
                         rf_piece_fn visit, void *user);

#endif
