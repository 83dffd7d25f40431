/* What the files of this folder share besides programs and stores. */
#ifndef RF_GRAMMAR_GRAMMAR_IMPL_H
#define RF_GRAMMAR_GRAMMAR_IMPL_H

#include <rocmforge/grammar.h>

#include "grammar/program.h"

struct rf_grammar {
    struct rf_program program;
};

/* A node of a trie, in the order of a walk: its first child follows it, and the next node beside it is 'size'
 * further.
 */
struct rf_trie_node {
    uint32_t token; /* RF_NO_TOKEN: no token ends here; RF_TWINS: further tokens have the same text */
    uint32_t size : 24, byte : 8;
};
#define RF_NO_TOKEN 0x7fffffffu
#define RF_TWINS 0x80000000u
/* Two tries: of plain tokens, which are whole characters that stand for themselves in a JSON string; and of all
 * others. */
struct rf_token_trie {
    struct rf_account account;
    const struct rf_tokenizer *tokenizer;
    struct rf_trie_node *nodes; /* plain ones first */
    uint32_t plain_count, node_count, node_capacity;
    uint32_t *twins;        /* [token] the next one with the same text; RF_NO_TOKEN: none */
    uint32_t *plain, *ends; /* masks: the plain tokens; those that end a text */
    uint8_t *spells;        /* [token] whether it is text */
    uint32_t token_count, words;
    uint32_t longest; /* bytes of a token */
};

#endif
