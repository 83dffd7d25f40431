/* Byte-level BPE ("gpt2"): the pre-tokenizer cuts the text into pieces, and the bytes of each piece are
 * merged in the order of the merge list.
 *
 * The files spell bytes as characters: 0x21 to 0x7e, 0xa1 to 0xac and 0xae to 0xff as the characters
 * of those numbers, all others, in order, as U+0100 and up. Tokens and merges are turned back into
 * bytes when the tokenizer is made; text is never spelt that way. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

#include "tokenizer/unicode.h"

struct piece_visit {
    struct rf_encoding *encoding;
    const char *text; /* where the next piece begins */
};

static bool find_merge(const struct rf_tokenizer *tokenizer, const char *text, const struct rf_link *left,
                       const struct rf_link *right, uint32_t *rank, uint32_t *merged) {
    (void)text;
    if (left->symbol == RF_NO_SYMBOL || right->symbol == RF_NO_SYMBOL) return false;
    const struct rf_merge *merge = rf_merge_index_find(&tokenizer->merges, left->symbol, right->symbol);
    if (!merge) return false;
    *rank = merge->rank;
    *merged = merge->merged;
    return true;
}

static rf_status encode_piece(struct rf_encoding *encoding, const char *text, size_t bytes) {
    const struct rf_tokenizer *tokenizer = encoding->tokenizer;
    rf_status status = RF_OK;
    if (tokenizer->pretokenizer->whole_first && bytes <= tokenizer->longest_piece) {
        uint32_t whole = rf_text_index_find(tokenizer, &tokenizer->by_piece, false, text, bytes);
        if (whole < tokenizer->token_count) return rf_encoding_emit(encoding, whole);
    }
    status = RF_GROW(&encoding->account, encoding->links, encoding->link_capacity, bytes);
    if (status) return status;
    for (size_t i = 0; i < bytes; i++)
        encoding->links[i] = (struct rf_link){
            .start = (uint32_t)i,
            .bytes = 1,
            .symbol = tokenizer->byte_symbols[(unsigned char)text[i]],
            .previous = i ? (uint32_t)(i - 1) : RF_NO_LINK,
            .next = i + 1 < bytes ? (uint32_t)(i + 1) : RF_NO_LINK,
        };
    status = rf_merge_links(encoding, text, bytes, find_merge);
    for (uint32_t at = 0; !status && at != RF_NO_LINK; at = encoding->links[at].next) {
        const struct rf_link *link = &encoding->links[at];
        status = link->symbol < tokenizer->token_count
                     ? rf_encoding_emit(encoding, link->symbol)
                     : rf_encoding_emit_bytes(encoding, text + link->start, link->bytes);
    }
    return status;
}

static rf_status visit_piece(void *user, size_t begin, size_t end) {
    struct piece_visit *visit = user;
    const char *text = visit->text;
    size_t bytes = 0;
    for (size_t i = begin; i < end; i++) bytes += rf_rune_bytes(visit->encoding->runes[i]);
    visit->text += bytes;
    visit->encoding->steps += bytes;
    return encode_piece(visit->encoding, text, bytes);
}

rf_status rf_bpe_encode(struct rf_encoding *encoding, const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        rf_status status = RF_GROW(&encoding->account, encoding->runes, encoding->rune_capacity, count + 1);
        if (status) return status;
        encoding->runes[count++] = rf_rune(rf_utf8_decode(text + at, bytes - at, &taken));
    }
    struct piece_visit visit = {encoding, text};
    return rf_pretokenize(encoding->tokenizer->pretokenizer, encoding->runes, count, visit_piece, &visit);
}

/* ---- the vocabulary ---- */

/* The byte that a character spells; -1: none. */
static int byte_of(uint32_t code) {
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) || (code >= 0xae && code <= 0xff))
        return (int)code;
    if (code >= 0x100 && code <= 0x120) return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142) return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}

bool rf_bpe_piece(const char *text, size_t bytes, char *out, size_t *out_bytes) {
    size_t count = 0;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        int byte = byte_of(rf_utf8_decode(text + at, bytes - at, &taken));
        if (byte < 0) { /* not spelt that way at all, so it is shown as it is */
            memcpy(out, text, bytes);
            *out_bytes = bytes;
            return false;
        }
        out[count++] = (char)byte;
    }
    *out_bytes = count;
    return count > 0;
}

/* Finds the two halves of a merge. The first space separates them, unless it is the very first byte. */
static rf_status split_merge(const struct rf_vocab_text *merge, size_t index, size_t *left_bytes) {
    const char *space = merge->bytes > 2 ? memchr(merge->text + 1, ' ', merge->bytes - 2) : NULL;
    if (!space)
        return rf_fail(RF_E_SYNTAX, "tokenizer: merge %zu, \"%.*s\", is not two parts with a space between", index,
                       (int)RF_MIN(merge->bytes, (size_t)40), merge->text);
    *left_bytes = (size_t)(space - merge->text);
    return RF_OK;
}

rf_status rf_bpe_add_merges(struct rf_tokenizer *tokenizer, const struct rf_vocab *vocab) {
    char *piece = NULL;
    size_t piece_capacity = 0;
    struct rf_account spare = rf_account_open(&tokenizer->account);
    rf_status status = rf_merge_index_init(&tokenizer->merges, vocab->merge_count, &tokenizer->account);
    for (size_t i = 0; i < vocab->merge_count && !status; i++) {
        const struct rf_vocab_text *merge = &vocab->merges[i];
        size_t left_text = 0, left_bytes, right_bytes;
        status = split_merge(merge, i, &left_text);
        if (!status) status = RF_GROW(&spare, piece, piece_capacity, merge->bytes);
        if (status) break;
        /* A half that spells no bytes can never occur in text. */
        if (!rf_bpe_piece(merge->text, left_text, piece, &left_bytes)) continue;
        const char *right_text = merge->text + left_text + 1;
        if (!rf_bpe_piece(right_text, merge->bytes - left_text - 1, piece + left_bytes, &right_bytes)) continue;
        struct rf_merge added = {.rank = (uint32_t)i};
        status = rf_tokenizer_add_symbol(tokenizer, piece, left_bytes, &added.left);
        if (!status) status = rf_tokenizer_add_symbol(tokenizer, piece + left_bytes, right_bytes, &added.right);
        if (!status) status = rf_tokenizer_add_symbol(tokenizer, piece, left_bytes + right_bytes, &added.merged);
        if (!status) rf_merge_index_add(&tokenizer->merges, added);
    }
    free(piece);
    rf_account_close(&spare);
    return status;
}
