/* Where matchers are in a program: stacks, sets of stacks, and the steps between them.
 *
 * A stack says what must still come: its top cell first, then the cell below, and so on. Counters lie in the cells.
 * Where a grammar allows several readings of a text, a state is a set of stacks. Cells and sets are records in one
 * array; a record that is there already is found instead of made again, so the same set always has the same index,
 * and what follows a state for each byte is computed once and kept in its row.
 *
 * Invariants:
 *   1. a record refers only to records before it
 *   2. no record changes once it is made, and no two are equal
 *   3. the stacks of a state have tops that take a byte, or are empty: then the text is complete
 *   4. limits (RF_STORE_*) bound records, rows, the stacks of a state and their depth; beyond them a step fails with
 *      RF_E_NO_MEMORY, and the caller may compact and try again
 *
 * Threads: a store belongs to one thread at a time; its program never changes. */
#ifndef RF_GRAMMAR_STORE_H
#define RF_GRAMMAR_STORE_H

#include "grammar/program.h"

enum {
    RF_STORE_WORDS_MAX = 8 << 20,   /* 32 MiB of records */
    RF_STORE_ROWS_MAX = 16 << 10,   /* 16 MiB of rows */
    RF_STORE_STACKS_MAX = 16 << 10, /* stacks of one state */
    RF_STORE_WORK_MAX = 256 << 10,  /* stacks looked at in one step */
    RF_STORE_DEPTH_MAX = 64 << 10   /* cells of one stack */
};

enum { RF_STATE_UNKNOWN, RF_STATE_DEAD };
struct rf_state {
    uint32_t set;  /* its record */
    uint32_t row;  /* 0: not computed; else its place in 'rows' divided by 256, plus 1 */
    uint32_t mask; /* for the matcher: of its masks; 0: none */
    bool complete, stepped;
    uint8_t plain; /* for the matcher: 0: unknown, 1: no, 2: yes */
};
struct rf_store {
    const struct rf_program *program;
    struct rf_account account;
    uint32_t *words, *table, *rows, *work, *seen, *found;
    struct rf_state *states;
    uint32_t word_count, word_capacity, table_capacity, record_count, row_count, row_capacity;
    uint32_t state_count, state_capacity, work_count, work_capacity, seen_capacity, seen_count;
    uint32_t found_count, found_capacity;
    uint32_t words_max, rows_max; /* limits of this store */
    uint32_t empty;               /* the record of the empty stack */
    rf_status status;             /* the first failure of a step */
};

void rf_store_init(struct rf_store *store, const struct rf_program *program, const struct rf_account *account);
void rf_store_destroy(struct rf_store *store);
/* The state before a node's texts. */
rf_status rf_store_begin(struct rf_store *store, uint32_t node, uint32_t *state);
/* The state after a byte: RF_STATE_DEAD where it cannot follow. */
rf_status rf_store_step(struct rf_store *store, uint32_t state, uint8_t byte, uint32_t *next);
/* The states after all bytes: 256 of them, borrowed until the next call. */
rf_status rf_store_row(struct rf_store *store, uint32_t state, const uint32_t **row);
/* The state as it looks for at most this many bytes to come: counters that are further from their bounds are taken
 * for repetitions without bounds. So a state that a long text passes through again and again is the same one. */
rf_status rf_store_blur(struct rf_store *store, uint32_t state, uint32_t bytes, uint32_t *blurred);
/* Drops everything but the given states, which get new indices. */
rf_status rf_store_compact(struct rf_store *store, uint32_t **states, size_t count);
static inline bool rf_store_is_complete(const struct rf_store *store, uint32_t state) {
    return store->states[state].complete;
}
/* Whether it has stacks that are not empty: whether a byte can follow. */
bool rf_store_goes_on(const struct rf_store *store, uint32_t state);

/* Records, for the files of the store. */
enum rf_record_kind {
    RF_RECORD_EMPTY,   /* the empty stack */
    RF_RECORD_NODE,    /* node, next */
    RF_RECORD_TEXT,    /* node of a literal, place in it, next */
    RF_RECORD_PARTS,   /* node of a sequence, place in it, next */
    RF_RECORD_TIMES,   /* node of a repetition, how often by now, next */
    RF_RECORD_DFA,     /* state, next */
    RF_RECORD_MEMBERS, /* object, phase, members so far, bit set of names seen, next */
    RF_RECORD_KEY,     /* object, state, members so far, bit set of names seen, next */
    RF_RECORD_BITS,    /* words */
    RF_RECORD_SET      /* stacks */
};
enum { RF_RECORD_WORDS = 3 }; /* before its payload: kind and length; hash; depth, or a set's state */
/* "how often" of a repetition that is far from its bounds: it may end; it may not */
#define RF_TIMES_FREE (UINT32_MAX)
#define RF_TIMES_MUST (UINT32_MAX - 1)

static inline enum rf_record_kind rf_record_kind(const struct rf_store *store, uint32_t record) {
    return (enum rf_record_kind)(store->words[record] & 0xff);
}
static inline uint32_t rf_record_count(const struct rf_store *store, uint32_t record) {
    return store->words[record] >> 8;
}
static inline const uint32_t *rf_record_data(const struct rf_store *store, uint32_t record) {
    return store->words + record + RF_RECORD_WORDS;
}
/* Finds or makes a record. 0: failed, and store->status says why. */
uint32_t rf_record_make(struct rf_store *store, enum rf_record_kind kind, const uint32_t *data, uint32_t count);
/* The state of a set of stacks whose tops need not take a byte yet. */
rf_status rf_store_close(struct rf_store *store, uint32_t *state);
/* Adds a stack to look at for rf_store_close. */
void rf_store_add(struct rf_store *store, uint32_t stack);
/* Until the end of a step: notes that a round was begun in it, below which this stack lies; and whether it was. */
void rf_store_note_round(struct rf_store *store, uint32_t stack);
bool rf_store_knows_round(const struct rf_store *store, uint32_t stack);

#endif
