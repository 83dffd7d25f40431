/* Deterministic automata: several conditions on one text at once, and names of members. */
#ifndef RF_GRAMMAR_DFA_H
#define RF_GRAMMAR_DFA_H

#include "grammar/program.h"

enum { RF_DFA_STATES_MAX = 20000, RF_DFA_PARTS_MAX = 12 };

struct rf_dfa_name {
    const char *text; /* as it is spelt in JSON */
    size_t bytes;
};
struct rf_dfa_params {
    /* The text follows all of these nodes, which have no rules and no objects, and none of the negated ones. */
    const uint32_t *nodes;
    const bool *negated; /* NULL: none is */
    size_t count;
    /* Names of members, sorted by bytes; and nodes that decide what other names mean. */
    const struct rf_dfa_name *names;
    uint32_t name_count;
    const uint32_t *patterns;
    size_t pattern_count;
    /* The label of a text that follows the nodes: name is UINT32_MAX for none of the names; bit i of matches: it
     * follows patterns[i]. NULL: 1 for every text. */
    rf_status (*label)(void *user, uint32_t name, uint32_t matches, uint32_t *label);
    void *user;
    const char *what; /* for error texts */
};
/* *start: the first state; all others follow it; *count: how many. No text at all gives one state without edges and
 * label. RF_E_NO_MEMORY: more than RF_DFA_STATES_MAX states. */
rf_status rf_add_automaton(struct rf_program *program, const struct rf_dfa_params *params, uint32_t *start,
                           uint32_t *count);
/* The same as a node. */
rf_status rf_add_dfa(struct rf_program *program, const struct rf_dfa_params *params, uint32_t *out);

#endif
