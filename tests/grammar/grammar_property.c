/* See grammar_property.h. */
#include "grammar_property.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tokenizer/tokenizer.h"

enum { WORDS = 12, STEPS = 40, END = 256 };

/* All bytes, an end, a control token, and some texts of several bytes. */
static const char *const longer[] = {"\"",      "\":", "\", ",    "{\"",      "true",
                                     "null",    "ab",  "aaaa",    "12",       "0.",
                                     "]}",      "}}",  "\n  ",    "\xc3\xa9", "\xf0\x9f\x98\x80",
                                     "\\n",     "\\u", "abc def", "[[",       "\": \"",
                                     "\xe4\xb8"};
static struct rf_tokenizer *make_tokenizer(void) {
    struct rf_vocab_token tokens[END + 2 + RF_COUNT(longer)];
    char bytes[256][8];
    struct rf_tokenizer *tokenizer = NULL;
    size_t count = 0;
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        tokens[count++] = (struct rf_vocab_token){{bytes[i], 6}, 0, RF_TOKEN_BYTE};
    }
    tokens[count++] = (struct rf_vocab_token){{"</s>", 4}, 0, RF_TOKEN_CONTROL};
    tokens[count++] = (struct rf_vocab_token){{"<s>", 3}, 0, RF_TOKEN_CONTROL};
    for (size_t i = 0; i < RF_COUNT(longer); i++)
        tokens[count++] = (struct rf_vocab_token){{longer[i], strlen(longer[i])}, 0, RF_TOKEN_NORMAL};
    struct rf_vocab vocab = {.family = RF_VOCAB_LLAMA,
                             .tokens = tokens,
                             .token_count = count,
                             .bos = END + 1,
                             .eos = END,
                             .unk = -1,
                             .pad = -1,
                             .eot = -1};
    return rf_tokenizer_create(&vocab, &tokenizer) ? NULL : tokenizer;
}

static const char *check_mask(struct rf_grammar_matcher *matcher, struct rf_grammar_matcher *other,
                              const struct rf_token_trie *trie, const char *text, size_t bytes, const uint32_t *mask,
                              size_t tokens) {
    bool any = false;
    for (size_t token = 0; token < tokens; token++) {
        bool allowed = mask[token / 32] >> token % 32 & 1;
        any = any || allowed;
        if (token == END) {
            if (allowed != rf_grammar_matcher_is_complete(matcher))
                return "the end is allowed where it is not complete, or the reverse";
            continue;
        }
        rf_grammar_matcher_reset(other);
        rf_status status = rf_grammar_matcher_push(other, text, bytes);
        if (status) return status == RF_E_NO_MEMORY ? NULL : "a text is not accepted again";
        status = rf_grammar_matcher_push_token(other, trie, (int32_t)token);
        if (status == RF_E_NO_MEMORY) return NULL;
        if (!status != allowed) return "the mask and pushing a token do not agree";
    }
    return any ? NULL : "nothing can follow, and it is not complete";
}

/* Follows the masks, guided by the bytes. */
static const char *generate(const struct rf_grammar *grammar, const struct rf_token_trie *trie, size_t tokens,
                            const unsigned char *data, size_t size) {
    struct rf_grammar_matcher *matcher = NULL, *other = NULL;
    const char *why = NULL;
    uint32_t mask[WORDS];
    char text[STEPS * 8];
    size_t bytes = 0;
    if (rf_grammar_matcher_create(grammar, &matcher) || rf_grammar_matcher_create(grammar, &other)) size = 0;
    for (size_t step = 0; size && step < STEPS && !why && !rf_grammar_matcher_is_over(matcher); step++) {
        rf_status status = rf_grammar_matcher_mask(matcher, trie, mask, WORDS);
        if (status) {
            why = status == RF_E_NO_MEMORY ? NULL : "no mask";
            break;
        }
        if (step % 6 == data[size - 1] % 6u) why = check_mask(matcher, other, trie, text, bytes, mask, tokens);
        size_t token = (data[step % size] * 7u + step) % tokens, tried = 0;
        while (tried < tokens && !(mask[token / 32] >> token % 32 & 1)) {
            token = (token + 1) % tokens;
            tried++;
        }
        if (why || tried == tokens || token == END) break;
        if (rf_grammar_matcher_push_token(matcher, trie, (int32_t)token)) break;
        const char *piece = token < 256 ? NULL : longer[token - END - 2];
        if (!piece) text[bytes++] = (char)token;
        if (piece) bytes += (size_t)sprintf(text + bytes, "%.7s", piece);
    }
    rf_grammar_matcher_destroy(&matcher);
    rf_grammar_matcher_destroy(&other);
    return why;
}

static const char *read_text(const struct rf_grammar *grammar, const char *text, size_t bytes) {
    struct rf_grammar_matcher *matcher = NULL;
    const char *why = NULL;
    size_t good = 0;
    if (rf_grammar_matcher_create(grammar, &matcher)) return NULL;
    for (; good < bytes; good++) {
        bool complete = rf_grammar_matcher_is_complete(matcher);
        rf_status status = rf_grammar_matcher_push(matcher, text + good, 1);
        if (!status) continue;
        if (complete != rf_grammar_matcher_is_complete(matcher)) why = "a refusal moved the matcher";
        if (status != RF_E_INVALID && status != RF_E_NO_MEMORY) why = "an odd status";
        if (strchr(rf_error_text(), '\n')) why = "an error of two lines";
        break;
    }
    bool complete = rf_grammar_matcher_is_complete(matcher);
    rf_grammar_matcher_reset(matcher);
    rf_status status = rf_grammar_matcher_push(matcher, text, good);
    if (status && status != RF_E_NO_MEMORY) why = "what was accepted byte by byte is not accepted at once";
    if (!status && complete != rf_grammar_matcher_is_complete(matcher))
        why = "complete byte by byte, but not at once";
    rf_grammar_matcher_destroy(&matcher);
    return why;
}

bool grammar_property(enum rf_grammar_kind kind, const unsigned char *data, size_t size, const char **why) {
    const unsigned char *zero = size ? memchr(data, 0, size) : NULL;
    size_t grammar_bytes = zero ? (size_t)(zero - data) : size, text_bytes = zero ? size - grammar_bytes - 1 : 0;
    struct rf_grammar *grammar = NULL;
    RF_PARAMS(struct rf_grammar_params, params);
    params.kind = kind;
    params.text = (const char *)data;
    params.bytes = grammar_bytes;
    *why = NULL;
    rf_status status = rf_grammar_create(&params, &grammar);
    if (status) {
        if (strchr(rf_error_text(), '\n') && !memchr(data, '\n', size)) *why = "an error of two lines";
        if (!*rf_error_text()) *why = "no error text";
        return !*why;
    }
    struct rf_tokenizer *tokenizer = make_tokenizer();
    struct rf_token_trie *trie = NULL;
    if (tokenizer && !rf_token_trie_create(NULL, tokenizer, &trie))
        *why = generate(grammar, trie, END + 2 + RF_COUNT(longer), data, size);
    if (!*why && zero) *why = read_text(grammar, (const char *)zero + 1, text_bytes);
    rf_token_trie_destroy(&trie);
    rf_tokenizer_destroy(&tokenizer);
    rf_grammar_destroy(&grammar);
    return !*why;
}
