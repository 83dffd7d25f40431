/* What the cells of stacks mean (see store.h). */
#ifndef RF_GRAMMAR_EXPAND_H
#define RF_GRAMMAR_EXPAND_H

#include "grammar/store.h"

/* Looks at the top of a stack: adds the stacks that it stands for without taking a byte. True: it takes a byte, or
 * the stack is empty, and so it belongs to the state. */
bool rf_stack_expand(struct rf_store *store, uint32_t stack);
/* Adds the stacks that are left after a byte; none where the top does not take it. */
void rf_stack_step(struct rf_store *store, uint32_t stack, uint8_t byte);
/* Mixes something into the marks of all bytes that the top takes: the same for bytes that leave the same stacks. */
void rf_stack_mark(const struct rf_store *store, uint32_t stack, uint64_t marks[256]);

/* ---- members.c: objects, the same for their two kinds of cells ---- */

void rf_members_begin(struct rf_store *store, uint32_t object, uint32_t next); /* behind the brace */
bool rf_members_expand(struct rf_store *store, uint32_t stack);
void rf_members_step(struct rf_store *store, uint32_t stack, uint8_t byte);
void rf_members_mark(const struct rf_store *store, uint32_t stack, uint64_t marks[256]);

static inline void rf_mark(uint64_t *mark, uint64_t what) {
    *mark = (*mark ^ (what + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    *mark ^= *mark >> 33;
    *mark *= 0xc4ceb9fe1a85ec53u;
    *mark ^= *mark >> 29;
}
/* The edge that takes a byte; NULL: none does. */
static inline const struct rf_edge *rf_dfa_edge(const struct rf_program *program, uint32_t state, uint8_t byte) {
    const struct rf_dfa_state *from = rf_dfa_state(program, state);
    uint32_t low = 0, high = from->edge_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct rf_edge *edge = rf_edge(program, from->first_edge + middle);
        if (byte < edge->low)
            high = middle;
        else if (byte > edge->high)
            low = middle + 1;
        else
            return edge;
    }
    return NULL;
}

#endif
