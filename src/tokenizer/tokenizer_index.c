/* The tokenizer's hash tables: from bytes to a symbol, and from two symbols to their merge.
 *
 * Invariants: a table is at most half full, so every search ends. Entries are compared in full,
 * so a collision costs time but never gives a wrong answer. The first is asserted where a text is added, the second
 * where one is found; the table of merges is made for their number and never grows. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

static rf_status no_memory(uint64_t count, size_t element_bytes) {
    return rf_fail(RF_E_NO_MEMORY, "tokenizer: no host memory for %llu elements of %zu bytes",
                   (unsigned long long)count, element_bytes);
}

rf_status rf_take_array(struct rf_account *account, void **array, uint64_t count, size_t element_bytes) {
    uint64_t bytes;
    if (rf_mul_overflows(count, element_bytes, &bytes) || bytes > SIZE_MAX) return no_memory(count, element_bytes);
    rf_status status = rf_account_charge(account, bytes);
    if (status) return rf_fail_within(status, "tokenizer");
    *array = calloc(RF_MAX(count, (uint64_t)1), element_bytes);
    if (*array) return RF_OK;
    rf_account_release(account, bytes);
    return no_memory(count, element_bytes);
}

rf_status rf_grow_array(struct rf_account *account, void **array, size_t *capacity, size_t count,
                        size_t element_bytes) {
    uint64_t wanted = RF_MAX(count, (uint64_t)16), bytes;
    if (wanted < *capacity + *capacity / 2) wanted = *capacity + *capacity / 2;
    if (rf_mul_overflows(wanted, element_bytes, &bytes) || bytes > SIZE_MAX) return no_memory(wanted, element_bytes);
    rf_status status = rf_account_resize(account, array, *capacity * element_bytes, bytes, "tokenizer");
    if (status) return status;
    *capacity = wanted;
    return RF_OK;
}

static uint64_t mix(uint64_t value) {
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    return value ^ value >> 32;
}

static uint64_t hash_text(const char *text, size_t bytes) {
    uint64_t hash = bytes;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = mix(hash ^ word);
    }
    uint64_t rest = 0;
    memcpy(&rest, text, bytes);
    return mix(hash ^ rest);
}

static struct rf_symbol bytes_of(const struct rf_tokenizer *tokenizer, bool spelling, uint32_t symbol) {
    return spelling ? tokenizer->tokens[symbol].text : tokenizer->symbols[symbol];
}

/* The slot with these bytes, or the empty one where they belong. */
static size_t find_slot(const struct rf_tokenizer *tokenizer, const struct rf_text_index *index, bool spelling,
                        const char *text, size_t bytes) {
    size_t at = hash_text(text, bytes) & (index->slot_count - 1);
    for (; index->slots[at]; at = (at + 1) & (index->slot_count - 1)) {
        struct rf_symbol there = bytes_of(tokenizer, spelling, index->slots[at] - 1);
        if (there.bytes == bytes && memcmp(rf_symbol_text(tokenizer, there), text, bytes) == 0) break;
    }
    return at;
}

rf_status rf_text_index_init(struct rf_text_index *index, size_t expected, struct rf_account *account) {
    size_t slots = 64;
    while (slots / 2 < expected) slots *= 2; /* expected is below 2^32 */
    rf_status status = RF_TAKE(account, index->slots, slots);
    if (status) return status;
    index->slot_count = slots;
    index->used = 0;
    return RF_OK;
}

uint32_t rf_text_index_find(const struct rf_tokenizer *tokenizer, const struct rf_text_index *index, bool spelling,
                            const char *text, size_t bytes) {
    uint32_t found = index->slots[find_slot(tokenizer, index, spelling, text, bytes)] - 1; /* empty: RF_NO_SYMBOL */
    rf_assert(found == RF_NO_SYMBOL || bytes_of(tokenizer, spelling, found).bytes == bytes);
    return found;
}

static rf_status double_size(struct rf_tokenizer *tokenizer, struct rf_text_index *index, bool spelling) {
    struct rf_text_index larger;
    rf_status status = rf_text_index_init(&larger, index->slot_count, &tokenizer->account);
    if (status) return status;
    larger.used = index->used;
    for (size_t i = 0; i < index->slot_count; i++) {
        if (!index->slots[i]) continue;
        struct rf_symbol there = bytes_of(tokenizer, spelling, index->slots[i] - 1);
        larger.slots[find_slot(tokenizer, &larger, spelling, rf_symbol_text(tokenizer, there), there.bytes)] =
            index->slots[i];
    }
    free(index->slots);
    rf_account_release(&tokenizer->account, index->slot_count * sizeof *index->slots);
    *index = larger;
    return RF_OK;
}

rf_status rf_text_index_add(struct rf_tokenizer *tokenizer, struct rf_text_index *index, bool spelling,
                            uint32_t symbol) {
    if (2 * (index->used + 1) > index->slot_count) {
        rf_status status = double_size(tokenizer, index, spelling);
        if (status) return status;
    }
    struct rf_symbol added = bytes_of(tokenizer, spelling, symbol);
    size_t at = find_slot(tokenizer, index, spelling, rf_symbol_text(tokenizer, added), added.bytes);
    if (index->slots[at]) return RF_OK;
    index->slots[at] = symbol + 1;
    index->used++;
    rf_assert(2 * index->used <= index->slot_count);
    return RF_OK;
}

/* ---- merges ---- */

rf_status rf_merge_index_init(struct rf_merge_index *index, size_t count, struct rf_account *account) {
    size_t slots = 16;
    while (slots / 2 < count) slots *= 2; /* count is below 2^32 */
    rf_status status = RF_TAKE(account, index->slots, slots);
    if (status) return status;
    index->slot_count = slots;
    for (size_t i = 0; i < slots; i++) index->slots[i] = (struct rf_merge){.merged = RF_NO_SYMBOL};
    return RF_OK;
}

static struct rf_merge *merge_slot(const struct rf_merge_index *index, uint32_t left, uint32_t right) {
    size_t at = mix((uint64_t)left << 32 | right) & (index->slot_count - 1);
    struct rf_merge *slot;
    for (; (slot = &index->slots[at])->merged != RF_NO_SYMBOL; at = (at + 1) & (index->slot_count - 1))
        if (slot->left == left && slot->right == right) break;
    return slot;
}

void rf_merge_index_add(struct rf_merge_index *index, struct rf_merge merge) {
    struct rf_merge *slot = merge_slot(index, merge.left, merge.right);
    if (slot->merged == RF_NO_SYMBOL) *slot = merge;
}

const struct rf_merge *rf_merge_index_find(const struct rf_merge_index *index, uint32_t left, uint32_t right) {
    const struct rf_merge *slot = merge_slot(index, left, right);
    return slot->merged == RF_NO_SYMBOL ? NULL : slot;
}
