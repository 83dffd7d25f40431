/* See arena.h.
 *
 * Invariant: bytes is what all blocks took together, never more than the limit, and charged before it is taken. */
#include "template/arena.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 32 << 10, ALIGNMENT = 16 };

struct rf_arena_block {
    struct rf_arena_block *next;
    size_t bytes;
    _Alignas(ALIGNMENT) char memory[];
};

void rf_arena_init(struct rf_arena *arena, const struct rf_account *account, uint64_t limit, const char *what) {
    *arena = (struct rf_arena){.account = rf_account_open(account), .limit = limit, .what = what};
}

void rf_arena_finish(struct rf_arena *arena) {
    for (struct rf_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    rf_account_close(&arena->account);
    arena->blocks = NULL;
    arena->at = NULL;
    arena->left = 0;
    arena->bytes = 0;
}

static bool add_block(struct rf_arena *arena, size_t bytes) {
    size_t all = sizeof(struct rf_arena_block) + RF_MAX(bytes, (size_t)BLOCK_BYTES);
    if (all > arena->limit - arena->bytes) {
        rf_fail(RF_E_NO_MEMORY, "%s needs more than %llu MiB of memory", arena->what,
                (unsigned long long)(arena->limit >> 20));
        return false;
    }
    if (rf_account_charge(&arena->account, all)) {
        rf_fail_within(RF_E_NO_MEMORY, "%s", arena->what);
        return false;
    }
    struct rf_arena_block *block = malloc(all);
    if (!block) {
        rf_account_release(&arena->account, all);
        rf_fail(RF_E_NO_MEMORY, "%s: no host memory for %zu bytes", arena->what, all);
        return false;
    }
    block->next = arena->blocks;
    block->bytes = all;
    arena->blocks = block;
    arena->bytes += all;
    arena->at = block->memory;
    arena->left = all - sizeof *block;
    return true;
}

void *rf_arena_take_raw(struct rf_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        rf_fail(RF_E_NO_MEMORY, "%s: a size is out of range", arena->what);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!bytes) bytes = ALIGNMENT;
    if (bytes > arena->left && !add_block(arena, bytes)) return NULL;
    void *memory = arena->at;
    arena->at += bytes;
    arena->left -= bytes;
    return memory;
}

void *rf_arena_take(struct rf_arena *arena, size_t bytes) {
    void *memory = rf_arena_take_raw(arena, bytes);
    if (memory && bytes) memset(memory, 0, bytes);
    return memory;
}

void *rf_arena_regrow(struct rf_arena *arena, void *memory, size_t old_bytes, size_t new_bytes) {
    size_t rounded = (old_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (memory && old_bytes && (char *)memory + rounded == arena->at && new_bytes >= old_bytes &&
        new_bytes - old_bytes <= arena->left) {
        void *more = rf_arena_take_raw(arena, new_bytes - old_bytes); /* at least what is missing */
        if (more) return memory;
    }
    void *grown = rf_arena_take_raw(arena, new_bytes);
    if (grown && old_bytes) memcpy(grown, memory, old_bytes);
    return grown;
}
