/* From ids back to text: all at once, or one by one with complete characters only.
 *
 * Invariant: both ways use the same push function, so they give the same text (a property of the source: one calls
 * the other). */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

#include "tokenizer/unicode.h"

struct rf_detokenizer {
    const struct rf_tokenizer *tokenizer;
    struct rf_account account; /* for text */
    struct rf_decode_params params;
    bool drop_space; /* the next piece's first space is the one that encoding added */
    char kept[4];    /* the bytes so far of a character that is not complete */
    size_t kept_bytes;
    char *text; /* the result of the last call */
    size_t text_capacity;
};

static bool starts_with_space(const struct rf_detokenizer *detokenizer) {
    return detokenizer->tokenizer->add_space_prefix && !detokenizer->params.continues;
}

rf_status rf_detokenizer_create(const struct rf_tokenizer *tokenizer, const struct rf_decode_params *params,
                                struct rf_detokenizer **out) {
    RF_PARAMS(struct rf_decode_params, own);
    if (!tokenizer || !out) return rf_fail(RF_E_INVALID, "rf_detokenizer_create: tokenizer or out is NULL");
    rf_status status =
        params ? RF_PARAMS_READ(struct rf_decode_params, &own, params, "rf_detokenizer_create") : RF_OK;
    if (status) return status;
    struct rf_detokenizer *detokenizer = calloc(1, sizeof *detokenizer);
    if (!detokenizer) return rf_fail(RF_E_NO_MEMORY, "rf_detokenizer_create: no host memory");
    detokenizer->tokenizer = tokenizer;
    detokenizer->account = rf_account_open(&tokenizer->account);
    detokenizer->params = own;
    detokenizer->drop_space = starts_with_space(detokenizer);
    *out = detokenizer;
    return RF_OK;
}

void rf_detokenizer_destroy(struct rf_detokenizer **detokenizer) {
    if (!detokenizer || !*detokenizer) return;
    free((*detokenizer)->text);
    rf_account_close(&(*detokenizer)->account);
    free(*detokenizer);
    *detokenizer = NULL;
}

/* Replaces each byte that is not UTF-8 by U+FFFD, from the end backwards, in a text that has room
 * for it; returns the new length. */
static size_t replace_invalid(char *text, size_t bytes, size_t capacity) {
    static const char replacement[] = "\xef\xbf\xbd";
    char *from = text + capacity - bytes;
    size_t count = 0;
    memmove(from, text, bytes);
    for (size_t at = 0, taken; at < bytes; at += taken) {
        bool invalid = rf_utf8_decode(from + at, bytes - at, &taken) == RF_CODE_INVALID;
        size_t length = invalid ? 3 : taken;
        memmove(text + count, invalid ? replacement : from + at, length);
        count += length;
    }
    return count;
}

/* Gives the kept bytes and the piece. An incomplete character at the end is kept, unless `end` is set. */
static rf_status give(struct rf_detokenizer *detokenizer, const char *piece, size_t bytes, bool end,
                      const char **text, size_t *text_bytes) {
    uint64_t room = (uint64_t)detokenizer->kept_bytes + bytes; /* both below 2^33 */
    rf_status status = RF_GROW(&detokenizer->account, detokenizer->text, detokenizer->text_capacity,
                               detokenizer->params.replace_invalid ? 4 * room + 1 : room + 1);
    if (status) return status;
    char *out = detokenizer->text;
    memcpy(out, detokenizer->kept, detokenizer->kept_bytes);
    if (bytes) memcpy(out + detokenizer->kept_bytes, piece, bytes);
    size_t count = room;
    detokenizer->kept_bytes = end ? 0 : rf_utf8_unfinished(out, count);
    count -= detokenizer->kept_bytes;
    memcpy(detokenizer->kept, out + count, detokenizer->kept_bytes);
    if (detokenizer->params.replace_invalid) count = replace_invalid(out, count, 4 * room);
    out[count] = 0;
    *text = out;
    *text_bytes = count;
    return RF_OK;
}

rf_status rf_detokenizer_push(struct rf_detokenizer *detokenizer, int32_t id, const char **text, size_t *bytes) {
    if (!detokenizer || !text || !bytes) return rf_fail(RF_E_INVALID, "rf_detokenizer_push: an argument is NULL");
    const struct rf_tokenizer *tokenizer = detokenizer->tokenizer;
    if (id < 0 || (uint32_t)id >= tokenizer->token_count)
        return rf_fail(RF_E_INVALID, "token id %d is not in the vocabulary, which has 0 to %u", id,
                       tokenizer->token_count - 1);
    enum rf_token_type type = tokenizer->tokens[id].type;
    struct rf_symbol symbol = tokenizer->symbols[id];
    const char *piece = rf_symbol_text(tokenizer, symbol);
    size_t piece_bytes = symbol.bytes;
    bool control = type == RF_TOKEN_CONTROL || type == RF_TOKEN_UNKNOWN;
    bool special = control || type == RF_TOKEN_USER_DEFINED;
    if (control && !detokenizer->params.show_special) piece_bytes = 0;
    if (detokenizer->drop_space && !special && piece_bytes && piece[0] == ' ') {
        piece++;
        piece_bytes--;
    }
    rf_status status = give(detokenizer, piece, piece_bytes, false, text, bytes);
    /* The unknown token stands for text: encoding puts no space after it. */
    if (!status) detokenizer->drop_space = tokenizer->add_space_prefix && special && type != RF_TOKEN_UNKNOWN;
    return status;
}

rf_status rf_detokenizer_finish(struct rf_detokenizer *detokenizer, const char **text, size_t *bytes) {
    if (!detokenizer || !text || !bytes) return rf_fail(RF_E_INVALID, "rf_detokenizer_finish: an argument is NULL");
    rf_status status = give(detokenizer, NULL, 0, true, text, bytes);
    if (!status) detokenizer->drop_space = starts_with_space(detokenizer);
    return status;
}

/* ---- all at once ---- */

static rf_status append(struct rf_account *account, char **text, size_t *count, size_t *capacity, const char *more,
                        size_t bytes) {
    rf_status status = rf_grow(account, (void **)text, capacity, *count + bytes + 1, 1);
    if (status) return status;
    memcpy(*text + *count, more, bytes + 1); /* with the zero after it */
    *count += bytes;
    return RF_OK;
}

rf_status rf_tokenizer_decode(const struct rf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              const struct rf_decode_params *params, char **text, size_t *bytes) {
    if (!tokenizer || (!ids && count) || !text || !bytes)
        return rf_fail(RF_E_INVALID, "rf_tokenizer_decode: an argument is NULL");
    RF_PARAMS(struct rf_decode_params, own);
    rf_status status = params ? RF_PARAMS_READ(struct rf_decode_params, &own, params, "rf_tokenizer_decode") : RF_OK;
    if (status) return status;
    struct rf_detokenizer *detokenizer = NULL;
    char *joined = NULL;
    const char *part = NULL;
    size_t joined_bytes = 0, capacity = 0, part_bytes = 0;
    status = rf_detokenizer_create(tokenizer, &own, &detokenizer);
    for (size_t i = 0; i < count && !status; i++) {
        status = rf_detokenizer_push(detokenizer, ids[i], &part, &part_bytes);
        if (!status) status = append(&detokenizer->account, &joined, &joined_bytes, &capacity, part, part_bytes);
    }
    if (!status) status = rf_detokenizer_finish(detokenizer, &part, &part_bytes);
    if (!status) status = append(&detokenizer->account, &joined, &joined_bytes, &capacity, part, part_bytes);
    rf_detokenizer_destroy(&detokenizer);
    if (status) {
        free(joined);
        return status;
    }
    *text = joined;
    *bytes = joined_bytes;
    return RF_OK;
}

void rf_text_destroy(char **text) {
    if (!text) return;
    free(*text);
    *text = NULL;
}
