/* A generation that follows a grammar, from its beginning or behind a text: which tokens may be drawn next.
 *
 * Before the text 'after' was generated any token may be drawn that does not end the text, control tokens too; but
 * not one that holds the end of 'after' and then something that the grammar does not begin with.
 *
 * Threads: one at a time. */
#ifndef RF_GRAMMAR_CONSTRAINT_H
#define RF_GRAMMAR_CONSTRAINT_H

#include <rocmforge/grammar.h>

#include "base/base.h"

struct rf_constraint;
struct rf_constraint_params {
    const struct rf_account *account;
    const struct rf_grammar *grammar; /* these two are borrowed until the constraint is destroyed */
    const struct rf_token_trie *trie;
    const char *after;    /* NULL or empty: from the beginning */
    uint32_t vocabulary;  /* of the model, which may be larger than the tokenizer's */
    const uint32_t *also; /* a mask of the caller's; read whenever one is computed; NULL: none */
    bool ignore_end;      /* no token ends the text */
};
rf_status rf_constraint_create(const struct rf_constraint_params *params, struct rf_constraint **out);
void rf_constraint_destroy(struct rf_constraint **constraint);
/* The tokens that may be drawn now: borrowed until the next call. RF_E_INVALID: there is none. */
rf_status rf_constraint_mask(struct rf_constraint *constraint, const uint32_t **allowed);
/* Moves on over a token. RF_E_INVALID: it cannot follow. */
rf_status rf_constraint_push(struct rf_constraint *constraint, int32_t token);
/* The text is complete, and nothing can follow. */
bool rf_constraint_is_over(const struct rf_constraint *constraint);

#endif
