/* Encoding: special tokens are cut out of the text, and the text between them goes to the family's encoder.
 * Also the functions that answer questions about a tokenizer.
 *
 * Invariant: each encoding owns all its memory; the tokenizer is only read (the compiler checks that: it is
 * const). The tests that refuse each allocation find leaks of the first kind. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

#include "tokenizer/unicode.h"

/* What is encoded, and how. */
struct given_text {
    const char *text;
    const unsigned char *own; /* for each byte, whether it may be part of a control token; NULL: parse_special says */
    size_t bytes;
    bool no_bos, no_eos, parse_special;
};

static rf_status encode_all(struct rf_encoding *encoding, const struct given_text *text);

static rf_status encode(const struct rf_tokenizer *tokenizer, const struct given_text *text, int32_t **ids,
                        size_t *count, uint64_t *steps) {
    if (text->bytes >= RF_TEXT_BYTES_MAX)
        return rf_fail(RF_E_INVALID,
                       "rf_tokenizer_encode: %zu bytes of text are too many, encode it in parts below 1 GiB",
                       text->bytes);
    struct rf_encoding encoding = {.tokenizer = tokenizer, .account = rf_account_open(&tokenizer->account)};
    rf_status status = RF_GROW(&encoding.account, encoding.ids, encoding.id_capacity, 16);
    if (!status) status = encode_all(&encoding, text);
    free(encoding.links);
    free(encoding.heap);
    free(encoding.runes);
    free(encoding.prefixed);
    rf_account_close(&encoding.account); /* the ids are the caller's from here on */
    if (status) {
        free(encoding.ids);
        return status;
    }
    *ids = encoding.ids;
    *count = encoding.id_count;
    if (steps) *steps = encoding.steps;
    return RF_OK;
}

rf_status rf_tokenizer_encode(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                              const struct rf_encode_params *params, int32_t **ids, size_t *count) {
    return rf_tokenizer_encode_counted(tokenizer, text, bytes, params, ids, count, NULL);
}

rf_status rf_tokenizer_encode_counted(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                                      const struct rf_encode_params *params, int32_t **ids, size_t *count,
                                      uint64_t *steps) {
    RF_PARAMS(struct rf_encode_params, own);
    if (!tokenizer || (!text && bytes) || !ids || !count)
        return rf_fail(RF_E_INVALID, "rf_tokenizer_encode: an argument is NULL");
    rf_status status = params ? RF_PARAMS_READ(struct rf_encode_params, &own, params, "rf_tokenizer_encode") : RF_OK;
    if (status) return status;
    struct given_text given = {
        .text = text, .bytes = bytes, .no_bos = own.no_bos, .no_eos = own.no_eos, .parse_special = own.parse_special};
    return encode(tokenizer, &given, ids, count, steps);
}

rf_status rf_tokenizer_encode_marked(const struct rf_tokenizer *tokenizer, const char *text, const unsigned char *own,
                                     size_t bytes, int32_t **ids, size_t *count) {
    struct given_text given = {.text = text, .own = own, .bytes = bytes, .no_eos = true};
    return encode(tokenizer, &given, ids, count, NULL);
}

void rf_token_ids_destroy(int32_t **ids) {
    if (!ids) return;
    free(*ids);
    *ids = NULL;
}

static rf_status encode_part(struct rf_encoding *encoding, const char *text, size_t bytes, bool after_special) {
    if (bytes == 0) return RF_OK;
    return encoding->tokenizer->family == RF_VOCAB_LLAMA
               ? rf_spm_encode(encoding, text, bytes, after_special && encoding->tokenizer->add_space_prefix)
               : rf_bpe_encode(encoding, text, bytes);
}

/* The special token at a place of the text; RF_NO_SYMBOL: none. *own_end: where the run of own bytes that this place
 * belongs to ends, kept from place to place so that each byte is looked at once. */
static uint32_t special_at(struct rf_encoding *encoding, const struct given_text *text, size_t at, size_t *own_end) {
    size_t control_bytes = text->parse_special ? text->bytes - at : 0;
    if (text->own) {
        if (*own_end < at) *own_end = at;
        while (*own_end < text->bytes && text->own[*own_end]) ++*own_end;
        control_bytes = *own_end - at;
    }
    return rf_special_at(encoding->tokenizer, text->text + at, text->bytes - at, control_bytes, &encoding->steps);
}

static rf_status encode_all(struct rf_encoding *encoding, const struct given_text *text) {
    const struct rf_tokenizer *tokenizer = encoding->tokenizer;
    bool after_special = true; /* the beginning counts as a special token */
    size_t part = 0;           /* where text begins that is not encoded yet */
    size_t own_end = 0;
    rf_status status = RF_OK;
    bool has_bos = text->own && text->bytes && special_at(encoding, text, 0, &own_end) == (uint32_t)tokenizer->bos;
    if (tokenizer->add_bos && !text->no_bos && !has_bos)
        status = rf_encoding_emit(encoding, (uint32_t)tokenizer->bos);
    for (size_t at = 0; at < text->bytes && tokenizer->special_count && !status;) {
        uint32_t special = special_at(encoding, text, at, &own_end);
        if (special == RF_NO_SYMBOL) {
            at++;
            continue;
        }
        status = encode_part(encoding, text->text + part, at - part, after_special);
        if (!status) status = rf_encoding_emit(encoding, special);
        at += tokenizer->symbols[special].bytes;
        part = at;
        /* The unknown token stands for text, and decoding treats it as text. */
        after_special = tokenizer->tokens[special].type != RF_TOKEN_UNKNOWN;
    }
    if (!status && part < text->bytes)
        status = encode_part(encoding, text->text + part, text->bytes - part, after_special);
    if (!status && tokenizer->add_eos && !text->no_eos) status = rf_encoding_emit(encoding, (uint32_t)tokenizer->eos);
    return status;
}

rf_status rf_encoding_emit(struct rf_encoding *encoding, uint32_t id) {
    rf_status status = RF_GROW(&encoding->account, encoding->ids, encoding->id_capacity, encoding->id_count + 1);
    if (!status) encoding->ids[encoding->id_count++] = (int32_t)id;
    return status;
}

rf_status rf_encoding_emit_bytes(struct rf_encoding *encoding, const char *text, size_t bytes) {
    const struct rf_tokenizer *tokenizer = encoding->tokenizer;
    rf_status status = RF_OK;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (tokenizer->byte_symbols[byte] < tokenizer->token_count) continue;
        if (tokenizer->unk >= 0) return rf_encoding_emit(encoding, (uint32_t)tokenizer->unk);
        return rf_fail(RF_E_UNSUPPORTED,
                       "tokenizer: the vocabulary has no token for the byte 0x%02x and none for what is unknown",
                       byte);
    }
    for (size_t i = 0; i < bytes && !status; i++)
        status = rf_encoding_emit(encoding, tokenizer->byte_symbols[(unsigned char)text[i]]);
    return status;
}

/* ---- questions about a tokenizer ---- */

rf_status rf_tokenizer_get_info(const struct rf_tokenizer *tokenizer, struct rf_tokenizer_info *info) {
    if (!tokenizer) return rf_fail(RF_E_INVALID, "rf_tokenizer_get_info: tokenizer is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_tokenizer_info, info, "rf_tokenizer_get_info");
    if (status) return status;
    struct rf_tokenizer_info filled = {
        .family = tokenizer->family == RF_VOCAB_LLAMA ? "llama" : "gpt2",
        .pre = tokenizer->pretokenizer ? tokenizer->pretokenizer->name : "",
        .token_count = (int32_t)tokenizer->token_count,
        .bos = tokenizer->bos,
        .eos = tokenizer->eos,
        .unk = tokenizer->unk,
        .pad = tokenizer->pad,
        .eot = tokenizer->eot,
        .add_bos = tokenizer->add_bos,
        .add_eos = tokenizer->add_eos,
        .add_space_prefix = tokenizer->add_space_prefix,
    };
    RF_RESULT_WRITE(struct rf_tokenizer_info, info, &filled);
    return RF_OK;
}

rf_status rf_tokenizer_token(const struct rf_tokenizer *tokenizer, int32_t id, struct rf_token_info *info) {
    if (!tokenizer) return rf_fail(RF_E_INVALID, "rf_tokenizer_token: tokenizer is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_token_info, info, "rf_tokenizer_token");
    if (status) return status;
    if (id < 0 || (uint32_t)id >= tokenizer->token_count)
        return rf_fail(RF_E_INVALID, "token id %d is not in the vocabulary, which has 0 to %u", id,
                       tokenizer->token_count - 1);
    const struct rf_token *token = &tokenizer->tokens[id];
    struct rf_token_info filled = {
        .text = rf_symbol_text(tokenizer, token->text),
        .text_bytes = token->text.bytes,
        .piece = rf_symbol_text(tokenizer, tokenizer->symbols[id]),
        .piece_bytes = tokenizer->symbols[id].bytes,
        .score = token->score,
        .type = token->type,
        .ends_text = token->ends_text,
    };
    RF_RESULT_WRITE(struct rf_token_info, info, &filled);
    return RF_OK;
}

bool rf_tokenizer_ends_text(const struct rf_tokenizer *tokenizer, int32_t id) {
    return tokenizer && id >= 0 && (uint32_t)id < tokenizer->token_count && tokenizer->tokens[id].ends_text;
}

int32_t rf_tokenizer_find(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes) {
    if (!tokenizer || (!text && bytes)) return -1;
    uint32_t id = rf_text_index_find(tokenizer, &tokenizer->by_text, true, bytes ? text : "", bytes);
    return id == RF_NO_SYMBOL ? -1 : (int32_t)id;
}
