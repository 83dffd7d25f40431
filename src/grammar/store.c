/* Records of stacks and sets of stacks, and the steps from state to state (see store.h). expand.c knows what each
 * kind of cell means. */
#include "grammar/store.h"

#include <stdlib.h>

#include "grammar/expand.h"

/* ---- records ---- */

static uint32_t hash_words(uint32_t kind, const uint32_t *data, uint32_t count) {
    uint64_t hash = kind * 0x9e3779b97f4a7c15u + count;
    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ data[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return (uint32_t)(hash ^ hash >> 29);
}

static rf_status grow(struct rf_store *store, uint32_t **memory, uint32_t *capacity, uint64_t wanted) {
    uint64_t more = RF_MAX(wanted, 2 * (uint64_t)*capacity + 256);
    RF_TRY(rf_account_resize(&store->account, (void **)memory, *capacity * sizeof **memory, more * sizeof **memory,
                             "a grammar's states"));
    *capacity = (uint32_t)more;
    return RF_OK;
}

static rf_status grow_table(struct rf_store *store) {
    uint32_t old = store->table_capacity, capacity = old ? old * 2 : 1024;
    uint32_t *table = NULL;
    RF_TRY(rf_account_resize(&store->account, (void **)&table, 0, capacity * sizeof *table, "a grammar's states"));
    memset(table, 0, capacity * sizeof *table);
    for (uint32_t i = 0; i < old; i++) {
        if (!store->table[i]) continue;
        uint32_t slot = store->words[store->table[i] + 1] & (capacity - 1);
        while (table[slot]) slot = (slot + 1) & (capacity - 1);
        table[slot] = store->table[i];
    }
    free(store->table);
    rf_account_release(&store->account, old * sizeof *table);
    store->table = table;
    store->table_capacity = capacity;
    return RF_OK;
}

static bool is_cell(enum rf_record_kind kind) {
    return kind > RF_RECORD_EMPTY && kind < RF_RECORD_BITS;
}

static rf_status make(struct rf_store *store, enum rf_record_kind kind, const uint32_t *data, uint32_t count,
                      uint32_t hash, uint32_t *out) {
    uint32_t depth = is_cell(kind) ? store->words[data[count - 1] + 2] + 1 : 0;
    uint64_t wanted = (uint64_t)store->word_count + RF_RECORD_WORDS + count;
    if (depth > RF_STORE_DEPTH_MAX)
        return rf_fail(RF_E_NO_MEMORY, "the text is nested too deeply for its grammar: more than %d parts are open",
                       RF_STORE_DEPTH_MAX);
    if (wanted > store->words_max)
        return rf_fail(RF_E_NO_MEMORY, "the grammar is too ambiguous here: its states take more than %u MiB",
                       store->words_max >> 18);
    if (wanted > store->word_capacity) RF_TRY(grow(store, &store->words, &store->word_capacity, wanted));
    if (store->record_count >= store->table_capacity / 2) RF_TRY(grow_table(store));
    uint32_t record = store->word_count, slot = hash & (store->table_capacity - 1);
    while (store->table[slot]) slot = (slot + 1) & (store->table_capacity - 1);
    store->words[record] = (uint32_t)kind | count << 8;
    store->words[record + 1] = hash;
    store->words[record + 2] = depth;
    if (count) memcpy(store->words + record + RF_RECORD_WORDS, data, count * sizeof *data);
    store->word_count = (uint32_t)wanted;
    store->table[slot] = record;
    store->record_count++;
    *out = record;
    return RF_OK;
}

uint32_t rf_record_make(struct rf_store *store, enum rf_record_kind kind, const uint32_t *data, uint32_t count) {
    uint32_t hash = hash_words(kind, data, count), record = 0;
    if (store->status) return 0;
    for (uint32_t slot = hash & (store->table_capacity - 1); store->table_capacity && store->table[slot];
         slot = (slot + 1) & (store->table_capacity - 1)) {
        record = store->table[slot];
        if (store->words[record + 1] == hash && store->words[record] == ((uint32_t)kind | count << 8) &&
            !memcmp(rf_record_data(store, record), data, count * sizeof *data))
            return record;
    }
    record = 0;
    store->status = make(store, kind, data, count, hash, &record);
    return record;
}

/* ---- states ---- */

static rf_status state_of(struct rf_store *store, uint32_t set, uint32_t *out) {
    if (store->words[set + 2]) {
        *out = store->words[set + 2];
        return RF_OK;
    }
    if (store->state_count == store->state_capacity) {
        uint32_t capacity = 2 * store->state_capacity + 64;
        RF_TRY(rf_account_resize(&store->account, (void **)&store->states,
                                 store->state_capacity * sizeof *store->states, capacity * sizeof *store->states,
                                 "a grammar's states"));
        store->state_capacity = capacity;
    }
    const uint32_t *stacks = rf_record_data(store, set);
    struct rf_state state = {.set = set};
    state.complete = rf_record_count(store, set) && stacks[0] == store->empty; /* it is the first record of all */
    store->states[store->state_count] = state;
    store->words[set + 2] = store->state_count;
    *out = store->state_count++;
    return RF_OK;
}

bool rf_store_goes_on(const struct rf_store *store, uint32_t state) {
    return rf_record_count(store, store->states[state].set) > (store->states[state].complete ? 1u : 0u);
}

/* Whether this stack was not added before in this step. */
static bool is_new(struct rf_store *store, uint32_t stack) {
    if (2 * (store->seen_count + 1) > store->seen_capacity) {
        uint32_t old = store->seen_capacity, *seen = store->seen;
        uint32_t capacity = old ? 2 * old : 256;
        store->seen = NULL;
        store->status = rf_account_resize(&store->account, (void **)&store->seen, 0, capacity * sizeof *seen,
                                          "a grammar's states");
        if (store->status) {
            store->seen = seen;
            return false;
        }
        memset(store->seen, 0, capacity * sizeof *seen);
        store->seen_capacity = capacity;
        for (uint32_t i = 0; i < old; i++) {
            if (!seen[i]) continue;
            uint32_t slot = seen[i] * 0x9e3779b1u & (capacity - 1);
            while (store->seen[slot]) slot = (slot + 1) & (capacity - 1);
            store->seen[slot] = seen[i];
        }
        free(seen);
        rf_account_release(&store->account, old * sizeof *seen);
    }
    uint32_t slot = stack * 0x9e3779b1u & (store->seen_capacity - 1);
    for (; store->seen[slot]; slot = (slot + 1) & (store->seen_capacity - 1))
        if (store->seen[slot] == stack) return false;
    store->seen[slot] = stack;
    store->seen_count++;
    return true;
}

void rf_store_add(struct rf_store *store, uint32_t stack) {
    if (store->status || !stack || !is_new(store, stack) || store->status) return;
    if (store->seen_count > RF_STORE_WORK_MAX) {
        store->status = rf_fail(RF_E_NO_MEMORY, "the grammar is too ambiguous here: more than %d readings at once",
                                RF_STORE_WORK_MAX);
        return;
    }
    if (store->work_count == store->work_capacity)
        store->status = grow(store, &store->work, &store->work_capacity, 0);
    if (!store->status) store->work[store->work_count++] = stack;
}

#define ROUND 0x80000000u /* no record lies there */

void rf_store_note_round(struct rf_store *store, uint32_t stack) {
    is_new(store, stack | ROUND);
}

bool rf_store_knows_round(const struct rf_store *store, uint32_t stack) {
    if (!store->seen_capacity) return false;
    uint32_t slot = (stack | ROUND) * 0x9e3779b1u & (store->seen_capacity - 1);
    for (; store->seen[slot]; slot = (slot + 1) & (store->seen_capacity - 1))
        if (store->seen[slot] == (stack | ROUND)) return true;
    return false;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void sort(uint32_t *numbers, uint32_t count) {
    if (count > 24) {
        qsort(numbers, count, sizeof *numbers, by_number);
        return;
    }
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k && numbers[k - 1] > numbers[k]; k--) {
            uint32_t swap = numbers[k];
            numbers[k] = numbers[k - 1];
            numbers[k - 1] = swap;
        }
}

rf_status rf_store_close(struct rf_store *store, uint32_t *state) {
    store->found_count = 0;
    while (store->work_count && !store->status) {
        uint32_t stack = store->work[--store->work_count];
        if (!rf_stack_expand(store, stack)) continue;
        if (store->found_count == RF_STORE_STACKS_MAX)
            store->status =
                rf_fail(RF_E_NO_MEMORY, "the grammar is too ambiguous here: more than %d readings at once",
                        RF_STORE_STACKS_MAX);
        else if (store->found_count == store->found_capacity)
            store->status = grow(store, &store->found, &store->found_capacity, 0);
        if (!store->status) store->found[store->found_count++] = stack;
    }
    if (store->seen_capacity > 4096 && store->seen_count < store->seen_capacity / 16) {
        rf_account_release(&store->account, store->seen_capacity * sizeof *store->seen);
        free(store->seen); /* a step that looked at many is rare: the next one should not clear all of it */
        store->seen = NULL;
        store->seen_capacity = 0;
    }
    if (store->seen_count) memset(store->seen, 0, store->seen_capacity * sizeof *store->seen);
    store->seen_count = store->work_count = 0;
    uint32_t set = 0;
    if (!store->status) {
        sort(store->found, store->found_count);
        set = rf_record_make(store, RF_RECORD_SET, store->found, store->found_count);
    }
    rf_status status = store->status;
    store->status = RF_OK;
    return status ? status : state_of(store, set, state);
}

rf_status rf_store_begin(struct rf_store *store, uint32_t node, uint32_t *state) {
    if (!store->word_count) {
        uint32_t nothing;
        RF_TRY(grow(store, &store->words, &store->word_capacity, 1));
        store->word_count = 1; /* 0 is no record */
        store->empty = rf_record_make(store, RF_RECORD_EMPTY, NULL, 0);
        RF_TRY(store->status);
        store->state_count = 0;
        RF_TRY(rf_store_close(store, &nothing)); /* two states: unknown, and dead */
        store->words[store->states[0].set + 2] = 0;
        RF_TRY(state_of(store, store->states[0].set, &nothing));
        rf_assert(nothing == RF_STATE_DEAD);
    }
    uint32_t cell[] = {node, store->empty};
    rf_store_add(store, rf_record_make(store, RF_RECORD_NODE, cell, 2));
    return rf_store_close(store, state);
}

/* ---- steps ---- */

static rf_status compute(struct rf_store *store, uint32_t state, uint8_t byte, uint32_t *next) {
    uint32_t set = store->states[state].set, count = rf_record_count(store, set);
    for (uint32_t i = 0; i < count && !store->status; i++) rf_stack_step(store, rf_record_data(store, set)[i], byte);
    return rf_store_close(store, next);
}

rf_status rf_store_row(struct rf_store *store, uint32_t state, const uint32_t **row) {
    if (store->states[state].row) {
        *row = store->rows + (size_t)(store->states[state].row - 1) * 256;
        return RF_OK;
    }
    if (store->row_count == store->rows_max)
        return rf_fail(RF_E_NO_MEMORY, "the grammar is too ambiguous here: more than %u states", store->rows_max);
    if (store->row_count == store->row_capacity) {
        uint32_t capacity = RF_MIN(2 * store->row_capacity + 16, store->rows_max);
        RF_TRY(rf_account_resize(&store->account, (void **)&store->rows, store->row_capacity * 1024ull,
                                 capacity * 1024ull, "a grammar's states"));
        store->row_capacity = capacity;
    }
    /* Bytes with the same mark are taken by the same stacks in the same way, and so lead to the same state. */
    uint64_t marks[256] = {0};
    uint32_t set = store->states[state].set, count = rf_record_count(store, set);
    for (uint32_t i = 0; i < count; i++) rf_stack_mark(store, rf_record_data(store, set)[i], marks);
    uint32_t computed[256];
    struct {
        uint64_t mark;
        uint32_t state;
    } known[64] = {{0, 0}};
    for (unsigned byte = 0; byte < 256; byte++) {
        computed[byte] = RF_STATE_DEAD;
        if (!marks[byte]) continue;
        size_t slot = marks[byte] >> 58;
        if (known[slot].mark != marks[byte]) {
            RF_TRY(compute(store, state, (uint8_t)byte, &known[slot].state));
            known[slot].mark = marks[byte];
        }
        computed[byte] = known[slot].state;
    }
    memcpy(store->rows + (size_t)store->row_count * 256, computed, sizeof computed);
    store->states[state].row = ++store->row_count;
    *row = store->rows + (size_t)(store->row_count - 1) * 256;
    return RF_OK;
}

rf_status rf_store_step(struct rf_store *store, uint32_t state, uint8_t byte, uint32_t *next) {
    const uint32_t *row;
    if (!store->states[state].row && !store->states[state].stepped) {
        store->states[state].stepped = true; /* the second time the whole row is worth it */
        return compute(store, state, byte, next);
    }
    RF_TRY(rf_store_row(store, state, &row));
    *next = row[byte];
    return RF_OK;
}

/* ---- the life of a store ---- */

void rf_store_init(struct rf_store *store, const struct rf_program *program, const struct rf_account *account) {
    *store = (struct rf_store){.program = program,
                               .account = rf_account_open(account),
                               .words_max = RF_STORE_WORDS_MAX,
                               .rows_max = RF_STORE_ROWS_MAX};
}

void rf_store_destroy(struct rf_store *store) {
    void *all[] = {store->words, store->table, store->rows, store->work, store->seen, store->found, store->states};
    for (size_t i = 0; i < RF_COUNT(all); i++) free(all[i]);
    rf_account_close(&store->account);
    *store = (struct rf_store){.program = NULL};
}

/* Puts the records that a record needs behind it in the list, each once. */
static rf_status list_needed(struct rf_store *from, uint32_t **list, uint32_t *count, uint32_t *capacity) {
    for (uint32_t i = 0; i < *count; i++) {
        uint32_t record = (*list)[i], needed[2] = {0, 0}, words = rf_record_count(from, record);
        const uint32_t *data = rf_record_data(from, record);
        enum rf_record_kind kind = rf_record_kind(from, record);
        if (kind == RF_RECORD_SET) {
            for (uint32_t k = 0; k < words; k++) {
                if (!is_new(from, data[k])) continue;
                if (*count == *capacity) RF_TRY(grow(from, list, capacity, 0));
                (*list)[(*count)++] = data[k];
            }
        } else if (is_cell(kind)) {
            needed[0] = data[words - 1];
            if (kind == RF_RECORD_MEMBERS || kind == RF_RECORD_KEY) needed[1] = data[words - 2];
        }
        for (size_t k = 0; k < 2; k++) {
            if (!needed[k] || !is_new(from, needed[k])) continue;
            if (*count == *capacity) RF_TRY(grow(from, list, capacity, 0));
            (*list)[(*count)++] = needed[k];
        }
        RF_TRY(from->status);
    }
    return RF_OK;
}

static uint32_t moved(const uint32_t *list, const uint32_t *now, uint32_t count, uint32_t record) {
    const uint32_t *found = bsearch(&record, list, count, sizeof *list, by_number);
    return now[found - list];
}

/* Makes the listed records, which are sorted, in another store. now: their places there. */
static rf_status move_records(const struct rf_store *from, struct rf_store *to, const uint32_t *list, uint32_t count,
                              uint32_t *now, uint32_t *data) {
    for (uint32_t i = 0; i < count; i++) {
        enum rf_record_kind kind = rf_record_kind(from, list[i]);
        uint32_t words = rf_record_count(from, list[i]);
        if (words) memcpy(data, rf_record_data(from, list[i]), words * sizeof *data);
        if (is_cell(kind)) data[words - 1] = moved(list, now, i, data[words - 1]);
        if (kind == RF_RECORD_MEMBERS || kind == RF_RECORD_KEY)
            data[words - 2] = moved(list, now, i, data[words - 2]);
        for (uint32_t k = 0; kind == RF_RECORD_SET && k < words; k++) data[k] = moved(list, now, i, data[k]);
        if (kind == RF_RECORD_SET) sort(data, words);
        now[i] = rf_record_make(to, kind, data, words);
        RF_TRY(to->status);
    }
    return RF_OK;
}

rf_status rf_store_compact(struct rf_store *store, uint32_t **states, size_t state_count) {
    struct rf_store to;
    uint32_t *list = NULL, count = 0, capacity = 0, *now = NULL, *data = NULL, most = 1, unused;
    rf_store_init(&to, store->program, &store->account);
    to.words_max = store->words_max;
    to.rows_max = store->rows_max;
    rf_status status = grow(store, &list, &capacity, state_count);
    for (size_t i = 0; i < state_count && !status; i++)
        if (is_new(store, store->states[*states[i]].set)) list[count++] = store->states[*states[i]].set;
    if (!status) status = list_needed(store, &list, &count, &capacity);
    if (store->seen_count) memset(store->seen, 0, store->seen_capacity * sizeof *store->seen);
    store->seen_count = 0;
    store->status = RF_OK;
    if (!status) sort(list, count);
    for (uint32_t i = 0; i < count && !status; i++) most = RF_MAX(most, rf_record_count(store, list[i]));
    if (!status) status = rf_account_resize(&to.account, (void **)&now, 0, (count + 1ull) * sizeof *now, "a matcher");
    if (!status) status = rf_account_resize(&to.account, (void **)&data, 0, most * sizeof *data, "a matcher");
    if (!status) status = rf_store_begin(&to, store->program->root, &unused);
    if (!status) status = move_records(store, &to, list, count, now, data);
    uint32_t *next[8];
    uint32_t made[8];
    rf_assert(state_count <= RF_COUNT(made));
    for (size_t i = 0; i < state_count && !status; i++) {
        next[i] = states[i];
        status = state_of(&to, moved(list, now, count, store->states[*states[i]].set), &made[i]);
    }
    free(list);
    rf_account_release(&store->account, capacity * sizeof *list);
    free(now);
    free(data);
    if (status) {
        rf_store_destroy(&to);
        return status;
    }
    rf_account_release(&to.account, (count + 1ull) * sizeof *now + most * sizeof *data);
    for (size_t i = 0; i < state_count; i++) *next[i] = made[i];
    rf_store_destroy(store);
    *store = to;
    return RF_OK;
}
