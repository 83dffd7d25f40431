/* A generation that follows a grammar (see constraint.h).
 *
 * Before 'after' came, the constraint knows how many of its bytes the text ends with, and for each such number which
 * tokens it must not take: those that hold the rest of 'after' and go on wrongly. These are found once. */
#include "grammar/constraint.h"

#include <stdlib.h>

#include "grammar/grammar_impl.h"

enum { AFTER_MAX = 256 };

struct wrong { /* a token that must not follow where the text ends with this many bytes of 'after' */
    uint32_t matched, token;
};
struct rf_constraint {
    struct rf_account account;
    const struct rf_token_trie *trie;
    struct rf_grammar_matcher *matcher;
    const uint32_t *also;
    uint32_t *allowed, words, vocabulary;
    bool ignore_end;
    bool begun; /* 'after' came */
    char after[AFTER_MAX];
    uint32_t after_bytes, matched;
    uint32_t fallback[AFTER_MAX + 1]; /* [n] the longest proper end of the first n bytes that 'after' begins with */
    struct wrong *wrongs;
    uint32_t wrong_count, wrong_capacity;
};

/* ---- before 'after' ---- */

static void find_fallbacks(struct rf_constraint *constraint) {
    for (uint32_t n = 2; n <= constraint->after_bytes; n++) {
        uint32_t shorter = constraint->fallback[n - 1];
        while (shorter && constraint->after[shorter] != constraint->after[n - 1])
            shorter = constraint->fallback[shorter];
        constraint->fallback[n] = shorter + (constraint->after[shorter] == constraint->after[n - 1]);
    }
}

/* What a token adds to the text that is searched: control tokens as the vocabulary spells them. */
static rf_status text_of(const struct rf_constraint *constraint, uint32_t token, const char **text, size_t *bytes) {
    RF_PARAMS(struct rf_token_info, info);
    RF_TRY(rf_tokenizer_token(constraint->trie->tokenizer, (int32_t)token, &info));
    *text = constraint->trie->spells[token] ? info.piece : info.text;
    *bytes = constraint->trie->spells[token] ? info.piece_bytes : info.text_bytes;
    return RF_OK;
}

/* Searches on. *rest: where the text behind 'after' begins; bytes: it did not come. */
static uint32_t search(const struct rf_constraint *constraint, uint32_t matched, const char *text, size_t bytes,
                       size_t *rest) {
    for (size_t i = 0; i < bytes; i++) {
        while (matched && constraint->after[matched] != text[i]) matched = constraint->fallback[matched];
        matched += constraint->after[matched] == text[i];
        if (matched < constraint->after_bytes) continue;
        *rest = i + 1;
        return matched;
    }
    *rest = bytes;
    return matched;
}

static rf_status add_wrong(struct rf_constraint *constraint, uint32_t matched, uint32_t token) {
    if (constraint->wrong_count == constraint->wrong_capacity) {
        uint32_t capacity = 2 * constraint->wrong_capacity + 64;
        RF_TRY(rf_account_resize(&constraint->account, (void **)&constraint->wrongs,
                                 constraint->wrong_capacity * sizeof *constraint->wrongs,
                                 capacity * sizeof *constraint->wrongs, "a constraint"));
        constraint->wrong_capacity = capacity;
    }
    constraint->wrongs[constraint->wrong_count++] = (struct wrong){matched, token};
    return RF_OK;
}

/* Whether a token may contain the end of 'after': a quick test for the many that do not. */
static bool may_end_it(const struct rf_constraint *constraint, const char *text, size_t bytes) {
    return bytes && memchr(text, constraint->after[constraint->after_bytes - 1], bytes);
}

static rf_status find_wrongs(struct rf_constraint *constraint) {
    for (uint32_t token = 0; token < constraint->trie->token_count; token++) {
        const char *text;
        size_t bytes, rest;
        RF_TRY(text_of(constraint, token, &text, &bytes));
        if (!may_end_it(constraint, text, bytes)) continue;
        for (uint32_t matched = 0; matched < constraint->after_bytes; matched++) {
            if (search(constraint, matched, text, bytes, &rest) < constraint->after_bytes || rest == bytes) continue;
            rf_grammar_matcher_reset(constraint->matcher);
            rf_status status = rf_grammar_matcher_push(constraint->matcher, text + rest, bytes - rest);
            if (status && status != RF_E_INVALID) return status;
            if (status) RF_TRY(add_wrong(constraint, matched, token));
        }
    }
    rf_grammar_matcher_reset(constraint->matcher);
    return RF_OK;
}

static void mask_anything(struct rf_constraint *constraint) {
    const struct rf_token_trie *trie = constraint->trie;
    memset(constraint->allowed, 0xff, constraint->words * sizeof *constraint->allowed);
    for (uint32_t i = 0; i < trie->words; i++) constraint->allowed[i] &= ~trie->ends[i];
    for (uint32_t i = 0; i < constraint->wrong_count; i++) {
        uint32_t token = constraint->wrongs[i].token;
        if (constraint->wrongs[i].matched == constraint->matched)
            constraint->allowed[token / 32] &= ~(1u << token % 32);
    }
    for (uint32_t token = trie->token_count; token < constraint->words * 32; token++)
        constraint->allowed[token / 32] &= ~(1u << token % 32); /* nobody knows what they are */
}

/* ---- all of it ---- */

rf_status rf_constraint_create(const struct rf_constraint_params *params, struct rf_constraint **out) {
    size_t after_bytes = params->after ? strlen(params->after) : 0;
    if (after_bytes > AFTER_MAX)
        return rf_fail(RF_E_INVALID, "grammar_after has %zu bytes; at most %d", after_bytes, AFTER_MAX);
    struct rf_constraint *constraint = calloc(1, sizeof *constraint);
    if (!constraint) return rf_fail(RF_E_NO_MEMORY, "no host memory for a constraint");
    constraint->account = rf_account_open(params->account);
    constraint->trie = params->trie;
    constraint->also = params->also;
    constraint->ignore_end = params->ignore_end;
    constraint->vocabulary = params->vocabulary;
    constraint->words = RF_MAX((params->vocabulary + 31) / 32, params->trie->words);
    constraint->after_bytes = (uint32_t)after_bytes;
    constraint->begun = !after_bytes;
    if (after_bytes) memcpy(constraint->after, params->after, after_bytes);
    rf_status status = rf_account_resize(&constraint->account, (void **)&constraint->allowed, 0,
                                         RF_MAX(constraint->words, 1u) * sizeof *constraint->allowed, "a constraint");
    if (!status) status = rf_grammar_matcher_create(params->grammar, &constraint->matcher);
    if (!status && after_bytes) {
        find_fallbacks(constraint);
        status = find_wrongs(constraint);
    }
    if (status) {
        rf_constraint_destroy(&constraint);
        return status;
    }
    *out = constraint;
    return RF_OK;
}

void rf_constraint_destroy(struct rf_constraint **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_constraint *constraint = *pointer;
    rf_grammar_matcher_destroy(&constraint->matcher);
    free(constraint->allowed);
    free(constraint->wrongs);
    rf_account_close(&constraint->account);
    free(constraint);
    *pointer = NULL;
}

rf_status rf_constraint_mask(struct rf_constraint *constraint, const uint32_t **allowed) {
    uint32_t any = 0, *mask = constraint->allowed;
    if (constraint->begun)
        RF_TRY(rf_grammar_matcher_mask(constraint->matcher, constraint->trie, mask, constraint->words));
    else
        mask_anything(constraint);
    for (uint32_t i = 0; i < constraint->trie->words && constraint->ignore_end; i++)
        mask[i] &= ~constraint->trie->ends[i];
    for (uint32_t i = 0; i < (constraint->vocabulary + 31) / 32; i++) {
        if (constraint->also) mask[i] &= constraint->also[i];
        any |= mask[i];
    }
    if (!any)
        return rf_fail(
            RF_E_INVALID,
            "no token can follow here: the grammar needs bytes that no token of the vocabulary has, or that "
            "the mask of allowed tokens excludes");
    *allowed = mask;
    return RF_OK;
}

rf_status rf_constraint_push(struct rf_constraint *constraint, int32_t token) {
    const char *text;
    size_t bytes, rest;
    if (constraint->begun) return rf_grammar_matcher_push_token(constraint->matcher, constraint->trie, token);
    if (token < 0 || (uint32_t)token >= constraint->trie->token_count)
        return rf_fail(RF_E_INVALID, "token %d is none of the vocabulary's", token);
    RF_TRY(text_of(constraint, (uint32_t)token, &text, &bytes));
    uint32_t matched = search(constraint, constraint->matched, text, bytes, &rest);
    if (matched == constraint->after_bytes)
        RF_TRY(rf_grammar_matcher_push(constraint->matcher, text + rest, bytes - rest));
    constraint->matched = matched;
    constraint->begun = matched == constraint->after_bytes;
    return RF_OK;
}

bool rf_constraint_is_over(const struct rf_constraint *constraint) {
    return constraint->begun && rf_grammar_matcher_is_over(constraint->matcher);
}
