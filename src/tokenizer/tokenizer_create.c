/* Making a tokenizer from a vocabulary, and the special tokens that are found in text.
 *
 * Invariant: a vocabulary is hostile until its ids and types are known to be in range and its lengths to add
 * up (tokenizer_is_valid checks what is made of it). The tokenizer must not keep a pointer into the vocabulary. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

/* Copies a text, with a zero after it. */
static rf_status add_bytes(struct rf_tokenizer *tokenizer, const char *text, size_t bytes, struct rf_symbol *out) {
    if (bytes >= UINT32_MAX) return rf_fail(RF_E_SYNTAX, "tokenizer: a token of %zu bytes is too long", bytes);
    rf_status status =
        RF_GROW(&tokenizer->account, tokenizer->bytes, tokenizer->byte_capacity, tokenizer->byte_count + bytes + 1);
    if (status) return status;
    if (bytes) memcpy(tokenizer->bytes + tokenizer->byte_count, text, bytes);
    tokenizer->bytes[tokenizer->byte_count + bytes] = 0;
    *out = (struct rf_symbol){tokenizer->byte_count, (uint32_t)bytes};
    tokenizer->byte_count += bytes + 1;
    return RF_OK;
}

rf_status rf_tokenizer_add_symbol(struct rf_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t *out) {
    uint32_t there = rf_text_index_find(tokenizer, &tokenizer->by_piece, false, text, bytes);
    size_t capacity = tokenizer->symbol_capacity;
    if (there != RF_NO_SYMBOL) {
        *out = there;
        return RF_OK;
    }
    if (tokenizer->symbol_count >= RF_NO_SYMBOL - 1)
        return rf_fail(RF_E_SYNTAX, "tokenizer: more merges than can be numbered");
    rf_status status =
        RF_GROW(&tokenizer->account, tokenizer->symbols, capacity, (size_t)tokenizer->symbol_count + 1);
    if (status) return status;
    tokenizer->symbol_capacity = (uint32_t)RF_MIN(capacity, (size_t)UINT32_MAX);
    status = add_bytes(tokenizer, text, bytes, &tokenizer->symbols[tokenizer->symbol_count]);
    if (!status) status = rf_text_index_add(tokenizer, &tokenizer->by_piece, false, tokenizer->symbol_count);
    if (!status) *out = tokenizer->symbol_count++;
    return status;
}

/* ---- tokens ---- */

static bool is_special(enum rf_token_type type) {
    return type == RF_TOKEN_CONTROL || type == RF_TOKEN_UNKNOWN || type == RF_TOKEN_USER_DEFINED;
}

/* Recognises tokens that end a turn or a text, for models whose metadata names only one of them. */
static bool ends_by_name(const char *text) {
    static const char *const names[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|end|>",
                                        "<|eot|>",    "<|return|>", "<end_of_turn>", "<|endoftext|>",
                                        "<EOT>",      "<eos>",      "<|call|>",      "<|end_of_text|>"};
    for (size_t i = 0; i < RF_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) return true;
    return false;
}

/* In a vocabulary with channels (gpt-oss) "<|end|>" ends one message of an answer, and the next may follow: the
 * answer ends with "<|return|>" or "<|call|>". Such a vocabulary is known by having all three as special tokens,
 * whatever its metadata calls the end of a turn. */
static void mend_channel_ends(struct rf_tokenizer *tokenizer) {
    static const char *const names[] = {"<|return|>", "<|call|>", "<|end|>"};
    uint32_t id = RF_NO_SYMBOL;
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        id = rf_text_index_find(tokenizer, &tokenizer->by_text, true, names[i], strlen(names[i]));
        if (id == RF_NO_SYMBOL || !is_special(tokenizer->tokens[id].type)) return;
    }
    if ((int32_t)id != tokenizer->eos) tokenizer->tokens[id].ends_text = false;
}

static rf_status add_token(struct rf_tokenizer *tokenizer, const struct rf_vocab_token *from, uint32_t id,
                           char *piece) {
    struct rf_token *token = &tokenizer->tokens[id];
    size_t bytes;
    bool mergeable;
    if ((int)from->type < 0 || from->type > RF_TOKEN_BYTE)
        return rf_fail(RF_E_SYNTAX, "tokenizer: token %u has the unknown type %d", id, (int)from->type);
    token->type = from->type ? from->type : RF_TOKEN_NORMAL;
    token->score = from->score;
    token->order = rf_spm_order(from->score);
    if (tokenizer->family == RF_VOCAB_LLAMA) {
        mergeable = rf_spm_piece(from->text.text, from->text.bytes, token->type, piece, &bytes);
    } else if (is_special(token->type)) { /* its spelling is what is shown */
        mergeable = false;
        bytes = from->text.bytes;
        if (bytes) memcpy(piece, from->text.text, bytes);
    } else {
        mergeable = rf_bpe_piece(from->text.text, from->text.bytes, piece, &bytes);
    }
    rf_status status = add_bytes(tokenizer, from->text.text, from->text.bytes, &token->text);
    if (!status) status = add_bytes(tokenizer, piece, bytes, &tokenizer->symbols[id]);
    if (!status) status = rf_text_index_add(tokenizer, &tokenizer->by_text, true, id);
    if (!status && mergeable) {
        status = rf_text_index_add(tokenizer, &tokenizer->by_piece, false, id);
        if (bytes > tokenizer->longest_piece) tokenizer->longest_piece = bytes;
    }
    if (status) return status;
    token->ends_text = (int32_t)id == tokenizer->eos || (int32_t)id == tokenizer->eot ||
                       (is_special(token->type) && ends_by_name(rf_symbol_text(tokenizer, token->text)));
    if (tokenizer->family == RF_VOCAB_LLAMA && token->type == RF_TOKEN_BYTE) {
        int byte = rf_spm_byte(from->text.text, from->text.bytes);
        if (byte >= 0 && tokenizer->byte_symbols[byte] == RF_NO_SYMBOL) tokenizer->byte_symbols[byte] = id;
    }
    return RF_OK;
}

static rf_status add_tokens(struct rf_tokenizer *tokenizer, const struct rf_vocab *vocab) {
    size_t longest = 0;
    uint64_t room = 0;
    for (size_t i = 0; i < vocab->token_count; i++) {
        longest = RF_MAX(longest, vocab->tokens[i].text.bytes);
        if (rf_add_overflows(room, 2 * ((uint64_t)vocab->tokens[i].text.bytes + 1), &room)) room = SIZE_MAX;
    }
    char *piece = NULL;
    struct rf_account spare = rf_account_open(&tokenizer->account);
    rf_status status = RF_TAKE(&spare, piece, longest + 1);
    if (!status) status = RF_GROW(&tokenizer->account, tokenizer->bytes, tokenizer->byte_capacity, room);
    for (uint32_t id = 0; id < tokenizer->token_count && !status; id++)
        status = add_token(tokenizer, &vocab->tokens[id], id, piece);
    free(piece);
    rf_account_close(&spare);
    return status;
}

/* ---- special tokens ---- */

/* Orders by bytes; among equal bytes, user-defined tokens come first, then smaller ids. */
static int compare_specials(const void *a, const void *b, void *user) {
    const struct rf_tokenizer *tokenizer = user;
    uint32_t ids[2] = {*(const uint32_t *)a, *(const uint32_t *)b};
    struct rf_symbol left = tokenizer->symbols[ids[0]], right = tokenizer->symbols[ids[1]];
    int order =
        memcmp(rf_symbol_text(tokenizer, left), rf_symbol_text(tokenizer, right), RF_MIN(left.bytes, right.bytes));
    if (order) return order;
    if (left.bytes != right.bytes) return left.bytes < right.bytes ? -1 : 1;
    bool defined[2] = {tokenizer->tokens[ids[0]].type == RF_TOKEN_USER_DEFINED,
                       tokenizer->tokens[ids[1]].type == RF_TOKEN_USER_DEFINED};
    if (defined[0] != defined[1]) return defined[0] ? -1 : 1;
    return ids[0] < ids[1] ? -1 : ids[0] > ids[1];
}

static rf_status add_specials(struct rf_tokenizer *tokenizer) {
    size_t count = 0;
    for (uint32_t id = 0; id < tokenizer->token_count; id++)
        count += is_special(tokenizer->tokens[id].type) && tokenizer->symbols[id].bytes;
    rf_status status = RF_TAKE(&tokenizer->account, tokenizer->specials, count + 1);
    if (status) return status;
    count = 0;
    for (uint32_t id = 0; id < tokenizer->token_count; id++)
        if (is_special(tokenizer->tokens[id].type) && tokenizer->symbols[id].bytes) tokenizer->specials[count++] = id;
    qsort_r(tokenizer->specials, count, sizeof *tokenizer->specials, compare_specials, tokenizer);
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct rf_symbol now = tokenizer->symbols[tokenizer->specials[i]];
        struct rf_symbol last = kept ? tokenizer->symbols[tokenizer->specials[kept - 1]] : (struct rf_symbol){0, 0};
        bool same = kept && now.bytes == last.bytes &&
                    memcmp(rf_symbol_text(tokenizer, now), rf_symbol_text(tokenizer, last), now.bytes) == 0;
        if (!same) tokenizer->specials[kept++] = tokenizer->specials[i];
    }
    tokenizer->special_count = kept;
    for (uint32_t byte = 0, at = 0; byte <= 256; byte++) {
        while (at < kept &&
               (unsigned char)*rf_symbol_text(tokenizer, tokenizer->symbols[tokenizer->specials[at]]) < byte)
            at++;
        tokenizer->special_starts[byte] = at;
    }
    return RF_OK;
}

/* The first special token from low to high whose byte at this depth is not below the one wanted. */
static uint32_t first_not_below(const struct rf_tokenizer *tokenizer, uint32_t low, uint32_t high, size_t depth,
                                int wanted) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct rf_symbol symbol = tokenizer->symbols[tokenizer->specials[middle]];
        int byte = symbol.bytes > depth ? (unsigned char)rf_symbol_text(tokenizer, symbol)[depth] : -1;
        if (byte < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t rf_special_at(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes, size_t control_bytes,
                       uint64_t *steps) {
    unsigned char first = (unsigned char)text[0];
    uint32_t low = tokenizer->special_starts[first], high = tokenizer->special_starts[first + 1];
    uint32_t best = RF_NO_SYMBOL;
    ++*steps;
    /* All from low to high begin with the first `depth` bytes of text. */
    for (size_t depth = 1; low < high; depth++, ++*steps) {
        uint32_t id = tokenizer->specials[low];
        bool found = depth <= control_bytes || tokenizer->tokens[id].type == RF_TOKEN_USER_DEFINED;
        if (tokenizer->symbols[id].bytes == depth && found) best = id;
        if (depth == bytes) break;
        int next = (unsigned char)text[depth];
        low = first_not_below(tokenizer, low, high, depth, next);
        high = first_not_below(tokenizer, low, high, depth, next + 1);
    }
    return best;
}

/* ---- making a tokenizer ---- */

static rf_status check_id(int32_t id, size_t count, const char *what) {
    if (id >= -1 && (id < 0 || (size_t)id < count)) return RF_OK;
    return rf_fail(RF_E_SYNTAX, "tokenizer: the %s token's id %d is not among the %zu tokens", what, id, count);
}

static rf_status check_vocab(const struct rf_vocab *vocab) {
    if (vocab->token_count == 0 || vocab->token_count > INT32_MAX - 1)
        return rf_fail(RF_E_SYNTAX, "tokenizer: a vocabulary of %zu tokens", vocab->token_count);
    if (vocab->merge_count > UINT32_MAX / 4)
        return rf_fail(RF_E_SYNTAX, "tokenizer: %zu merges are too many", vocab->merge_count);
    rf_status status = check_id(vocab->bos, vocab->token_count, "beginning (BOS)");
    if (!status) status = check_id(vocab->eos, vocab->token_count, "end (EOS)");
    if (!status) status = check_id(vocab->unk, vocab->token_count, "unknown");
    if (!status) status = check_id(vocab->pad, vocab->token_count, "padding");
    if (!status) status = check_id(vocab->eot, vocab->token_count, "end-of-turn");
    return status;
}

static rf_status find_pretokenizer(struct rf_tokenizer *tokenizer, struct rf_vocab_text pre) {
    char names[768];
    if (pre.bytes == 0) pre = (struct rf_vocab_text){"default", 7};
    tokenizer->pretokenizer = rf_pretokenizer_find(pre.text, pre.bytes);
    if (tokenizer->pretokenizer) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "tokenizer: the pre-tokenizer \"%.*s\" is unknown; known: %s",
                   (int)RF_MIN(pre.bytes, (size_t)60), pre.text, rf_pretokenizer_names(names, sizeof names));
}

static bool choose(enum rf_vocab_choice choice, bool otherwise) {
    return choice == RF_VOCAB_UNSAID ? otherwise : choice == RF_VOCAB_YES;
}

static rf_status build(struct rf_tokenizer *tokenizer, const struct rf_vocab *vocab) {
    bool llama = vocab->family == RF_VOCAB_LLAMA;
    rf_status status = check_vocab(vocab);
    if (!status && !llama) status = find_pretokenizer(tokenizer, vocab->pre);
    if (status) return status;
    tokenizer->family = vocab->family;
    tokenizer->bos = vocab->bos;
    tokenizer->eos = vocab->eos;
    tokenizer->unk = vocab->unk;
    tokenizer->pad = vocab->pad;
    tokenizer->eot = vocab->eot;
    tokenizer->add_bos = vocab->bos >= 0 && choose(vocab->add_bos, llama || tokenizer->pretokenizer->add_bos);
    tokenizer->add_eos = vocab->eos >= 0 && choose(vocab->add_eos, false);
    tokenizer->add_space_prefix = llama && choose(vocab->add_space_prefix, true);
    memset(tokenizer->byte_symbols, 0xff, sizeof tokenizer->byte_symbols); /* RF_NO_SYMBOL */
    tokenizer->token_count = tokenizer->symbol_count = tokenizer->symbol_capacity = (uint32_t)vocab->token_count;
    status = RF_TAKE(&tokenizer->account, tokenizer->tokens, vocab->token_count);
    if (!status) status = RF_TAKE(&tokenizer->account, tokenizer->symbols, vocab->token_count);
    if (!status) status = rf_text_index_init(&tokenizer->by_piece, vocab->token_count, &tokenizer->account);
    if (!status) status = rf_text_index_init(&tokenizer->by_text, vocab->token_count, &tokenizer->account);
    if (!status) status = add_tokens(tokenizer, vocab);
    if (!status) status = add_specials(tokenizer);
    if (!status) mend_channel_ends(tokenizer);
    if (status || llama) return status;
    status = rf_bpe_add_merges(tokenizer, vocab);
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        tokenizer->byte_symbols[byte] = rf_text_index_find(tokenizer, &tokenizer->by_piece, false, &text, 1);
    }
    return status;
}

#if RF_CHECKS >= 2
static bool symbol_is_valid(const struct rf_tokenizer *tokenizer, struct rf_symbol symbol) {
    return symbol.offset < tokenizer->byte_count && symbol.bytes < tokenizer->byte_count - symbol.offset &&
           !tokenizer->bytes[symbol.offset + symbol.bytes];
}
static bool id_is_valid(const struct rf_tokenizer *tokenizer, int32_t id) {
    return id >= -1 && (id < 0 || (uint32_t)id < tokenizer->token_count);
}

static bool tokenizer_is_valid(const struct rf_tokenizer *tokenizer, const char **why) {
    RF_INVALID_UNLESS(tokenizer->token_count && tokenizer->token_count <= tokenizer->symbol_count &&
                          tokenizer->symbol_count <= tokenizer->symbol_capacity &&
                          tokenizer->byte_count <= tokenizer->byte_capacity,
                      "a table holds more than it has room for, or nothing");
    for (uint32_t i = 0; i < tokenizer->symbol_count; i++)
        RF_INVALID_UNLESS(symbol_is_valid(tokenizer, tokenizer->symbols[i]) &&
                              (i >= tokenizer->token_count || symbol_is_valid(tokenizer, tokenizer->tokens[i].text)),
                          "a symbol lies outside the bytes, or no zero follows it");
    for (size_t i = 0; i < tokenizer->by_piece.slot_count; i++) {
        uint32_t symbol = tokenizer->by_piece.slots[i] - 1; /* empty: RF_NO_SYMBOL */
        if (symbol == RF_NO_SYMBOL) continue;
        RF_INVALID_UNLESS(symbol < tokenizer->symbol_count, "the index holds a symbol that does not exist");
        RF_INVALID_UNLESS(symbol >= tokenizer->token_count || !is_special(tokenizer->tokens[symbol].type),
                          "text can become a control or user-defined token");
    }
    RF_INVALID_UNLESS(id_is_valid(tokenizer, tokenizer->bos) && id_is_valid(tokenizer, tokenizer->eos) &&
                          id_is_valid(tokenizer, tokenizer->unk) && id_is_valid(tokenizer, tokenizer->pad) &&
                          id_is_valid(tokenizer, tokenizer->eot),
                      "an id is not among the tokens");
    for (uint32_t i = 0; i < tokenizer->special_count; i++)
        RF_INVALID_UNLESS(tokenizer->specials[i] < tokenizer->token_count &&
                              is_special(tokenizer->tokens[tokenizer->specials[i]].type),
                          "a special token is none");
    return true;
}
#endif

rf_status rf_tokenizer_create(const struct rf_vocab *vocab, struct rf_tokenizer **out) {
    struct rf_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return rf_fail(RF_E_NO_MEMORY, "tokenizer: no host memory");
    tokenizer->account = rf_account_open(&vocab->account);
    rf_status status = build(tokenizer, vocab);
    if (status) {
        rf_tokenizer_destroy(&tokenizer);
    } else {
        rf_assert_valid(tokenizer_is_valid, tokenizer);
        *out = tokenizer;
    }
    return status;
}

void rf_tokenizer_destroy(struct rf_tokenizer **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_tokenizer *tokenizer = *pointer;
    *pointer = NULL;
    free(tokenizer->tokens);
    free(tokenizer->symbols);
    free(tokenizer->bytes);
    free(tokenizer->by_piece.slots);
    free(tokenizer->by_text.slots);
    free(tokenizer->merges.slots);
    free(tokenizer->specials);
    rf_account_close(&tokenizer->account);
    free(tokenizer);
}
