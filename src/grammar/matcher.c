/* Matchers: a place in a text that follows a grammar, and which tokens may come next.
 *
 * A mask is found by walking the vocabulary's trie with the states of the grammar: a byte that leads nowhere cuts off
 * all tokens below it. Two things make that quick. Where a state goes round in itself for every plain character, as
 * inside a JSON string, all plain tokens are allowed at once, and only the others are walked. And a mask is kept for
 * its state; counters that are far from their bounds make no other state (rf_store_blur).
 *
 * The store of states grows with the text. Before it reaches its limit all but the present state is dropped. */
#include "grammar/grammar_impl.h"
#include "grammar/store.h"

#include <stdlib.h>

enum { MASKS_BYTES = 4 << 20, MASKS_LEAST = 16 };

struct rf_grammar_matcher {
    const struct rf_grammar *grammar;
    struct rf_store store;
    struct rf_account account;
    uint32_t begin, state;
    /* Masks that were computed, for one trie: */
    const struct rf_token_trie *trie;
    uint32_t *masks, mask_count, mask_capacity;
    /* A walk's way from the root: where the states' rows begin, and where the nodes below end. */
    size_t *rows;
    uint32_t *ends;
    uint64_t walk_bytes;
};

rf_status rf_grammar_matcher_create(const struct rf_grammar *grammar, struct rf_grammar_matcher **out) {
    if (!grammar || !out) return rf_fail(RF_E_INVALID, "rf_grammar_matcher_create: grammar or out is NULL");
    struct rf_grammar_matcher *matcher = calloc(1, sizeof *matcher);
    if (!matcher) return rf_fail(RF_E_NO_MEMORY, "no host memory for a matcher");
    matcher->grammar = grammar;
    matcher->account = rf_account_open(&grammar->program.account);
    rf_store_init(&matcher->store, &grammar->program, &grammar->program.account);
    rf_status status = rf_store_begin(&matcher->store, grammar->program.root, &matcher->begin);
    if (status) {
        rf_grammar_matcher_destroy(&matcher);
        return status;
    }
    matcher->state = matcher->begin;
    *out = matcher;
    return RF_OK;
}

void rf_grammar_matcher_destroy(struct rf_grammar_matcher **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_grammar_matcher *matcher = *pointer;
    rf_store_destroy(&matcher->store);
    free(matcher->masks);
    free(matcher->rows);
    free(matcher->ends);
    rf_account_close(&matcher->account);
    free(matcher);
    *pointer = NULL;
}

void rf_grammar_matcher_reset(struct rf_grammar_matcher *matcher) {
    if (matcher) matcher->state = matcher->begin;
}

bool rf_grammar_matcher_is_complete(const struct rf_grammar_matcher *matcher) {
    return matcher && rf_store_is_complete(&matcher->store, matcher->state);
}

bool rf_grammar_matcher_is_over(const struct rf_grammar_matcher *matcher) {
    return rf_grammar_matcher_is_complete(matcher) && !rf_store_goes_on(&matcher->store, matcher->state);
}

/* ---- moving on ---- */

/* Drops all states but these. */
static rf_status compact(struct rf_grammar_matcher *matcher, uint32_t *further) {
    uint32_t *kept[] = {&matcher->begin, &matcher->state, further};
    matcher->mask_count = 0;
    return rf_store_compact(&matcher->store, kept, further ? 3 : 2);
}

static bool is_full(const struct rf_store *store) {
    return store->word_count > store->words_max / 4 * 3 || store->row_count > store->rows_max / 4 * 3;
}

rf_status rf_grammar_matcher_push(struct rf_grammar_matcher *matcher, const char *text, size_t bytes) {
    if (!matcher || (bytes && !text))
        return rf_fail(RF_E_INVALID, "rf_grammar_matcher_push: matcher or text is NULL");
    struct rf_store *store = &matcher->store;
    uint32_t state = matcher->state, next;
    for (size_t i = 0; i < bytes; i++) {
        if (is_full(store)) RF_TRY(compact(matcher, &state));
        rf_status status = rf_store_step(store, state, (uint8_t)text[i], &next);
        if (status == RF_E_NO_MEMORY && !compact(matcher, &state))
            status = rf_store_step(store, state, (uint8_t)text[i], &next);
        RF_TRY(status);
        if (next == RF_STATE_DEAD)
            return rf_fail(RF_E_INVALID, "byte %zu of the text (0x%02x) does not follow the grammar", i,
                           (unsigned)(uint8_t)text[i]);
        state = next;
    }
    matcher->state = state;
    return RF_OK;
}

rf_status rf_grammar_matcher_push_token(struct rf_grammar_matcher *matcher, const struct rf_token_trie *trie,
                                        int32_t token) {
    if (!matcher || !trie || token < 0 || (uint32_t)token >= trie->token_count)
        return rf_fail(RF_E_INVALID, "rf_grammar_matcher_push_token: no such token, or an argument is NULL");
    if (trie->ends[token / 32] >> token % 32 & 1)
        return rf_grammar_matcher_is_complete(matcher)
                   ? RF_OK
                   : rf_fail(RF_E_INVALID, "token %d ends a text that is not complete", token);
    if (!trie->spells[token]) return rf_fail(RF_E_INVALID, "token %d is not text", token);
    RF_PARAMS(struct rf_token_info, info);
    RF_TRY(rf_tokenizer_token(trie->tokenizer, token, &info));
    return rf_grammar_matcher_push(matcher, info.piece, info.piece_bytes);
}

/* ---- masks ---- */

static rf_status row_at(struct rf_store *store, uint32_t state, size_t *at) {
    const uint32_t *row;
    if (!store->states[state].row) RF_TRY(rf_store_row(store, state, &row));
    *at = (size_t)(store->states[state].row - 1) * 256;
    return RF_OK;
}

static void set_token(const struct rf_token_trie *trie, uint32_t token, uint32_t *mask) {
    uint32_t id = token & ~RF_TWINS;
    mask[id / 32] |= 1u << id % 32;
    if (!(token & RF_TWINS)) return;
    for (id = trie->twins[id]; id != RF_NO_TOKEN; id = trie->twins[id]) mask[id / 32] |= 1u << id % 32;
}

/* Sets the bits of the tokens among these nodes, which are the children of one node, that may follow the state. */
static rf_status walk(struct rf_grammar_matcher *matcher, uint32_t state, uint32_t from, uint32_t to,
                      uint32_t *mask) {
    struct rf_store *store = &matcher->store;
    const struct rf_token_trie *trie = matcher->trie;
    size_t *rows = matcher->rows;
    uint32_t *ends = matcher->ends, depth = 0;
    RF_TRY(row_at(store, state, &rows[0]));
    ends[0] = to;
    for (uint32_t i = from; i < to;) {
        struct rf_trie_node node = trie->nodes[i];
        while (i >= ends[depth]) depth--;
        uint32_t next = store->rows[rows[depth] + node.byte];
        if (next == RF_STATE_DEAD) {
            i += node.size;
            continue;
        }
        if (node.token != RF_NO_TOKEN) set_token(trie, node.token, mask);
        if (node.size > 1) {
            RF_TRY(row_at(store, next, &rows[depth + 1]));
            ends[++depth] = i + node.size;
        }
        i++;
    }
    return RF_OK;
}

/* Whether all bytes of a range lead from this state to one, and so on for 'more' further bytes, back to 'home'. */
static rf_status goes_home(struct rf_store *store, uint32_t state, uint8_t low, uint8_t high, int more, uint32_t home,
                           bool *does) {
    const uint32_t *row;
    RF_TRY(rf_store_row(store, state, &row));
    uint32_t next = row[low];
    for (unsigned byte = low; byte <= high; byte++) *does = *does && row[byte] == next;
    if (!more) *does = *does && next == home;
    if (!more || !*does || next == RF_STATE_DEAD) {
        *does = *does && next != RF_STATE_DEAD;
        return RF_OK;
    }
    return goes_home(store, next, 0x80, 0xbf, more - 1, home, does);
}

/* Whether every plain character leads back to the state. */
static rf_status find_plain(struct rf_store *store, uint32_t state, bool *plain) {
    static const struct {
        uint8_t low, high, second_low, second_high;
        int more; /* bytes behind the second */
    } leads[] = {{0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
                 {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2}, {0xf1, 0xf3, 0x80, 0xbf, 2},
                 {0xf4, 0xf4, 0x80, 0x8f, 2}};
    if (store->states[state].plain) {
        *plain = store->states[state].plain == 2;
        return RF_OK;
    }
    *plain = true;
    RF_TRY(goes_home(store, state, 0x20, 0x21, 0, state, plain));
    if (*plain) RF_TRY(goes_home(store, state, 0x23, 0x5b, 0, state, plain));
    if (*plain) RF_TRY(goes_home(store, state, 0x5d, 0x7f, 0, state, plain));
    if (*plain) RF_TRY(goes_home(store, state, 0xc2, 0xdf, 1, state, plain));
    for (size_t i = 0; i < RF_COUNT(leads) && *plain; i++)
        for (unsigned lead = leads[i].low; lead <= leads[i].high && *plain; lead++) {
            const uint32_t *row;
            RF_TRY(rf_store_row(store, state, &row));
            *plain = row[lead] != RF_STATE_DEAD;
            if (*plain)
                RF_TRY(goes_home(store, row[lead], leads[i].second_low, leads[i].second_high, leads[i].more, state,
                                 plain));
        }
    store->states[state].plain = *plain ? 2 : 1;
    return RF_OK;
}

/* Plain tokens that may follow. Mostly a plain character leads to a state that goes round in itself: then all plain
 * tokens may, except those that begin with a byte that leads elsewhere, which are walked. */
static rf_status mask_plain(struct rf_grammar_matcher *matcher, uint32_t state, uint32_t *mask) {
    struct rf_store *store = &matcher->store;
    const struct rf_token_trie *trie = matcher->trie;
    const uint32_t *row;
    bool plain = false;
    RF_TRY(rf_store_row(store, state, &row));
    uint32_t home = row[0x7f];
    if (home != RF_STATE_DEAD) RF_TRY(find_plain(store, home, &plain));
    if (!plain) return walk(matcher, state, 0, trie->plain_count, mask);
    memcpy(mask, trie->plain, trie->words * sizeof *mask);
    for (uint32_t i = 0; i < trie->plain_count; i += trie->nodes[i].size) {
        uint8_t byte = trie->nodes[i].byte;
        size_t here, there;
        RF_TRY(row_at(store, state, &here));
        RF_TRY(row_at(store, home, &there));
        if (store->rows[here + byte] == store->rows[there + byte]) continue;
        for (uint32_t k = i; k < i + trie->nodes[i].size; k++) {
            uint32_t id = trie->nodes[k].token & ~RF_TWINS;
            if (trie->nodes[k].token == RF_NO_TOKEN) continue;
            for (; id != RF_NO_TOKEN; id = trie->twins[id]) mask[id / 32] &= ~(1u << id % 32);
        }
        RF_TRY(walk(matcher, state, i, i + trie->nodes[i].size, mask));
    }
    return RF_OK;
}

static rf_status compute_mask(struct rf_grammar_matcher *matcher, uint32_t state, uint32_t *mask) {
    const struct rf_token_trie *trie = matcher->trie;
    memset(mask, 0, trie->words * sizeof *mask);
    RF_TRY(mask_plain(matcher, state, mask));
    RF_TRY(walk(matcher, state, trie->plain_count, trie->node_count, mask));
    if (rf_store_is_complete(&matcher->store, state))
        for (uint32_t i = 0; i < trie->words; i++) mask[i] |= trie->ends[i];
    return RF_OK;
}

/* Makes room for the masks of a trie, and for walking it. */
static rf_status use_trie(struct rf_grammar_matcher *matcher, const struct rf_token_trie *trie) {
    struct rf_account *account = &matcher->account;
    if (matcher->trie == trie) return RF_OK;
    free(matcher->rows);
    free(matcher->ends);
    free(matcher->masks);
    rf_account_close(account);
    matcher->rows = NULL;
    matcher->ends = NULL;
    matcher->masks = NULL;
    matcher->trie = NULL;
    matcher->mask_capacity = matcher->mask_count = 0;
    for (uint32_t i = 0; i < matcher->store.state_count; i++) matcher->store.states[i].mask = 0;
    RF_TRY(rf_account_resize(account, (void **)&matcher->rows, 0, (trie->longest + 2ull) * sizeof *matcher->rows,
                             "a matcher"));
    RF_TRY(rf_account_resize(account, (void **)&matcher->ends, 0, (trie->longest + 2ull) * sizeof *matcher->ends,
                             "a matcher"));
    matcher->trie = trie;
    return RF_OK;
}

/* A place for one more mask; all are dropped where there are too many. */
static rf_status add_mask(struct rf_grammar_matcher *matcher, uint32_t **mask) {
    uint64_t bytes = matcher->trie->words * sizeof **mask;
    uint32_t most = (uint32_t)RF_MAX(MASKS_BYTES / RF_MAX(bytes, 1u), (uint64_t)MASKS_LEAST);
    if (matcher->mask_count == matcher->mask_capacity && matcher->mask_capacity < most) {
        uint32_t capacity = RF_MIN(2 * matcher->mask_capacity + 4, most);
        RF_TRY(rf_account_resize(&matcher->account, (void **)&matcher->masks, matcher->mask_capacity * bytes,
                                 RF_MAX(capacity * bytes, 1u), "a matcher's masks"));
        matcher->mask_capacity = capacity;
    }
    if (matcher->mask_count == matcher->mask_capacity) {
        for (uint32_t i = 0; i < matcher->store.state_count; i++) matcher->store.states[i].mask = 0;
        matcher->mask_count = 0;
    }
    *mask = matcher->masks + (size_t)matcher->mask_count * matcher->trie->words;
    return RF_OK;
}

static rf_status find_mask(struct rf_grammar_matcher *matcher, const uint32_t **out) {
    struct rf_store *store = &matcher->store;
    uint32_t state, *mask;
    RF_TRY(rf_store_blur(store, matcher->state, matcher->trie->longest, &state));
    uint32_t known = store->states[state].mask;
    if (known) {
        *out = matcher->masks + (size_t)(known - 1) * matcher->trie->words;
        return RF_OK;
    }
    RF_TRY(add_mask(matcher, &mask));
    RF_TRY(compute_mask(matcher, state, mask));
    store->states[state].mask = ++matcher->mask_count;
    *out = mask;
    return RF_OK;
}

rf_status rf_grammar_matcher_mask(struct rf_grammar_matcher *matcher, const struct rf_token_trie *trie,
                                  uint32_t *allowed, size_t words) {
    if (!matcher || !trie || !allowed) return rf_fail(RF_E_INVALID, "rf_grammar_matcher_mask: an argument is NULL");
    if (words < trie->words)
        return rf_fail(RF_E_INVALID, "rf_grammar_matcher_mask: %zu words; the vocabulary has %u", words, trie->words);
    const uint32_t *mask = NULL;
    RF_TRY(use_trie(matcher, trie));
    if (is_full(&matcher->store)) RF_TRY(compact(matcher, NULL));
    rf_status status = find_mask(matcher, &mask);
    if (status == RF_E_NO_MEMORY && !compact(matcher, NULL)) status = find_mask(matcher, &mask);
    RF_TRY(status);
    memcpy(allowed, mask, trie->words * sizeof *allowed);
    memset(allowed + trie->words, 0, (words - trie->words) * sizeof *allowed);
    return RF_OK;
}
