/* Tokenizers inside the library: making one from a vocabulary, and counting its work.
 *
 * <rocmforge/tokenizer.h> has the rest. */
#ifndef RF_TOKENIZER_TOKENIZER_H
#define RF_TOKENIZER_TOKENIZER_H

#include <rocmforge/tokenizer.h>

#include "base/base.h"

/* Any bytes, without a zero at the end. */
struct rf_vocab_text {
    const char *text;
    size_t bytes;
};

struct rf_vocab_token {
    struct rf_vocab_text text;
    float score;
    enum rf_token_type type;
};

enum rf_vocab_family { RF_VOCAB_LLAMA, RF_VOCAB_GPT2 };
enum rf_vocab_choice { RF_VOCAB_UNSAID, RF_VOCAB_NO, RF_VOCAB_YES };

/* What a tokenizer is made from; borrowed for the call. If several tokens have the same text, that text
 * becomes the first of them. */
struct rf_vocab {
    enum rf_vocab_family family;
    const struct rf_vocab_token *tokens;
    size_t token_count;
    const struct rf_vocab_text *merges; /* "LEFT RIGHT", most urgent first; gpt2 only */
    size_t merge_count;
    struct rf_vocab_text pre;              /* gpt2 only; empty: "default" */
    int32_t bos, eos, unk, pad, eot;       /* -1: none */
    enum rf_vocab_choice add_bos, add_eos; /* unsaid: BOS for llama and some pre-tokenizers, never EOS */
    enum rf_vocab_choice add_space_prefix; /* llama only; unsaid: yes */
    struct rf_account
        account; /* the tokenizer charges the same budget, for its tables and while it encodes and decodes */
};

/* RF_E_SYNTAX: an id or type is out of range, or a merge has no two halves. RF_E_UNSUPPORTED: the
 * pre-tokenizer is unknown; the error text has its name and the known ones. */
rf_status rf_tokenizer_create(const struct rf_vocab *vocab, struct rf_tokenizer **out);

/* rf_tokenizer_from_gguf, for a tokenizer that charges its memory to an account's budget. */
rf_status rf_tokenizer_from_gguf_charged(const struct rf_gguf *gguf, const struct rf_account *account,
                                         struct rf_tokenizer **out);

/* Whether generation ends with this token; false without a tokenizer, and for an id that is not in the vocabulary. */
bool rf_tokenizer_ends_text(const struct rf_tokenizer *tokenizer, int32_t id);

/* Encodes and counts the steps that this took: positions looked at, merge candidates made and taken.
 * For tests of the bound; any pointer but the first may be NULL. */
rf_status rf_tokenizer_encode_counted(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                                      const struct rf_encode_params *params, int32_t **ids, size_t *count,
                                      uint64_t *steps);

/* Encodes a prompt whose bytes come from two sides. own: for each byte, not 0 if the program wrote it, 0 if it came
 * from outside. Control tokens are found where all of their bytes are the program's own: never in bytes from outside,
 * and never in bytes of both kinds. User-defined tokens are found everywhere, as rf_tokenizer_encode finds them: they
 * are text. All text between two special tokens is encoded in one piece, whichever side it is from. The beginning
 * token is added where the vocabulary wants one and the text does not begin with it; an end token is not added. */
rf_status rf_tokenizer_encode_marked(const struct rf_tokenizer *tokenizer, const char *text, const unsigned char *own,
                                     size_t bytes, int32_t **ids, size_t *count);

#endif
