/* Memory that is freed all at once, charged to a budget: a template's tree, and all of one rendering. */
#ifndef RF_TEMPLATE_ARENA_H
#define RF_TEMPLATE_ARENA_H

#include "base/base.h"

struct rf_arena {
    struct rf_account account;
    struct rf_arena_block *blocks; /* the newest first */
    char *at;
    size_t left;
    uint64_t bytes, limit; /* taken from the system; at most */
    const char *what;      /* in error texts: "rendering the chat template" */
};

void rf_arena_init(struct rf_arena *arena, const struct rf_account *account, uint64_t limit, const char *what);
void rf_arena_finish(struct rf_arena *arena);
/* Zeroed, aligned for anything. NULL: RF_E_NO_MEMORY, and the error text says which limit refused. */
void *rf_arena_take(struct rf_arena *arena, size_t bytes);
/* The same, not zeroed. */
void *rf_arena_take_raw(struct rf_arena *arena, size_t bytes);
/* An array that grows: the first old_bytes are copied, unless it can be made longer where it is. */
void *rf_arena_regrow(struct rf_arena *arena, void *memory, size_t old_bytes, size_t new_bytes);

#define RF_ARENA_NEW(arena, type) ((type *)rf_arena_take((arena), sizeof(type)))

#endif
