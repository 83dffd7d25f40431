/* ROCmForge: output that must parse. A grammar says which texts a model may generate: JSON, JSON of a schema, a GBNF
 * grammar, or a regular expression. Before each token is drawn, the grammar says which tokens may follow.
 *
 *   grammar      what may be generated. It never changes once it is made: any number of threads may use it
 *   matcher      a position in a text that follows a grammar; belongs to one thread at a time
 *   token trie   the texts of a vocabulary, arranged to find all tokens that may follow; never changes either
 *
 * What a grammar cannot express exactly is refused when it is made, never left unconstrained. */
#ifndef ROCMFORGE_GRAMMAR_H
#define ROCMFORGE_GRAMMAR_H

#include <rocmforge/base.h>
#include <rocmforge/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_runtime;

/* ---- grammars ---------------------------------------------------------------------------------------------- */

enum rf_grammar_kind {
    RF_GRAMMAR_JSON,        /* any JSON object; the text is not used */
    RF_GRAMMAR_JSON_SCHEMA, /* a JSON schema */
    RF_GRAMMAR_GBNF,        /* a grammar in the notation of llama.cpp; begins at its rule "root" */
    RF_GRAMMAR_REGEX        /* a regular expression that the whole text matches */
};
struct rf_grammar;
struct rf_grammar_params {
    size_t struct_size;
    struct rf_runtime *runtime; /* its host budget is charged; borrowed until the grammar is destroyed. NULL: none */
    enum rf_grammar_kind kind;
    const char *text; /* UTF-8; borrowed for the call */
    size_t bytes;
    const char *name; /* for error texts: a file's name; NULL: by kind */
};
/* RF_E_SYNTAX: malformed: where, and what is wrong. RF_E_UNSUPPORTED: a part that cannot be kept exactly, by name and
 * place. RF_E_NO_MEMORY: too large. */
RF_API rf_status rf_grammar_create(const struct rf_grammar_params *params, struct rf_grammar **out);
RF_API void rf_grammar_destroy(struct rf_grammar **grammar);

/* ---- matching bytes ---------------------------------------------------------------------------------------- */

struct rf_grammar_matcher;
/* At the beginning of a text. The grammar is borrowed until the matcher is destroyed. */
RF_API rf_status rf_grammar_matcher_create(const struct rf_grammar *grammar, struct rf_grammar_matcher **out);
RF_API void rf_grammar_matcher_destroy(struct rf_grammar_matcher **matcher);
RF_API void rf_grammar_matcher_reset(struct rf_grammar_matcher *matcher); /* back to the beginning */
/* Moves on over bytes. RF_E_INVALID: they cannot follow; the matcher is where it was. RF_E_NO_MEMORY: the grammar is
 * so ambiguous here that the limit on its state is reached. */
RF_API rf_status rf_grammar_matcher_push(struct rf_grammar_matcher *matcher, const char *text, size_t bytes);
/* Whether the text so far is complete; and whether nothing can follow it. */
RF_API bool rf_grammar_matcher_is_complete(const struct rf_grammar_matcher *matcher);
RF_API bool rf_grammar_matcher_is_over(const struct rf_grammar_matcher *matcher);

/* ---- matching tokens --------------------------------------------------------------------------------------- */

struct rf_token_trie;
/* The tokenizer is borrowed until the trie is destroyed. */
RF_API rf_status rf_token_trie_create(struct rf_runtime *runtime, const struct rf_tokenizer *tokenizer,
                                      struct rf_token_trie **out);
RF_API void rf_token_trie_destroy(struct rf_token_trie **trie);
/* Sets a bit for each token that may follow, the lowest of a word first, as rf_sample_params.allowed wants it: tokens
 * whose whole text may follow; tokens that end a text where the text is complete; never another control token.
 * words: the vocabulary's size divided by 32, rounded up. */
RF_API rf_status rf_grammar_matcher_mask(struct rf_grammar_matcher *matcher, const struct rf_token_trie *trie,
                                         uint32_t *allowed, size_t words);
/* Moves on over a token's text. A token that ends the text moves nothing. */
RF_API rf_status rf_grammar_matcher_push_token(struct rf_grammar_matcher *matcher, const struct rf_token_trie *trie,
                                               int32_t token);

#ifdef __cplusplus
}
#endif
#endif
