/* SentencePiece-style vocabularies ("llama"): characters are merged by the score of the token they become.
 *
 * The files write a space as U+2581. Here U+2581 in tokens is turned back into a space, and the text is
 * matched as it is. So a U+2581 in the text itself matches no piece, is encoded as byte tokens, and is
 * decoded as U+2581 again.
 *
 * Text that is no piece becomes its bytes, one byte token each; without byte tokens, the unknown token. */
#include "tokenizer/tokenizer_impl.h"

#include <math.h>

#include "tokenizer/unicode.h"

static bool find_merge(const struct rf_tokenizer *tokenizer, const char *text, const struct rf_link *left,
                       const struct rf_link *right, uint32_t *rank, uint32_t *merged) {
    size_t bytes = (size_t)left->bytes + right->bytes;
    if (bytes > tokenizer->longest_piece) return false;
    uint32_t id = rf_text_index_find(tokenizer, &tokenizer->by_piece, false, text + left->start, bytes);
    if (id == RF_NO_SYMBOL) return false;
    *rank = tokenizer->tokens[id].order;
    *merged = id;
    return true;
}

rf_status rf_spm_encode(struct rf_encoding *encoding, const char *text, size_t bytes, bool prefix) {
    const struct rf_tokenizer *tokenizer = encoding->tokenizer;
    rf_status status = RF_OK;
    if (bytes == 0) return RF_OK;
    if (prefix) {
        status = RF_GROW(&encoding->account, encoding->prefixed, encoding->prefixed_capacity, bytes + 1);
        if (status) return status;
        encoding->prefixed[0] = ' ';
        memcpy(encoding->prefixed + 1, text, bytes);
        text = encoding->prefixed;
        bytes++;
    }
    size_t count = 0;
    for (size_t at = 0, taken; at < bytes; at += taken, count++) {
        rf_utf8_decode(text + at, bytes - at, &taken);
        status = RF_GROW(&encoding->account, encoding->links, encoding->link_capacity, count + 1);
        if (status) return status;
        encoding->links[count] = (struct rf_link){
            .start = (uint32_t)at,
            .bytes = (uint32_t)taken,
            .symbol = rf_text_index_find(tokenizer, &tokenizer->by_piece, false, text + at, taken),
            .previous = count ? (uint32_t)(count - 1) : RF_NO_LINK,
            .next = at + taken < bytes ? (uint32_t)(count + 1) : RF_NO_LINK,
        };
    }
    encoding->steps += count;
    status = rf_merge_links(encoding, text, count, find_merge);
    for (uint32_t at = 0; !status && at != RF_NO_LINK; at = encoding->links[at].next) {
        const struct rf_link *link = &encoding->links[at];
        status = link->symbol != RF_NO_SYMBOL ? rf_encoding_emit(encoding, link->symbol)
                                              : rf_encoding_emit_bytes(encoding, text + link->start, link->bytes);
    }
    return status;
}

/* ---- the vocabulary ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int rf_spm_byte(const char *text, size_t bytes) {
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool rf_spm_piece(const char *text, size_t bytes, enum rf_token_type type, char *out, size_t *out_bytes) {
    static const char space[] = "\xe2\x96\x81"; /* U+2581 */
    int byte = type == RF_TOKEN_BYTE ? rf_spm_byte(text, bytes) : -1;
    size_t count = 0;
    bool raw_space = false;
    if (byte >= 0) {
        out[0] = (char)byte;
        *out_bytes = 1;
        return false;
    }
    if (type == RF_TOKEN_CONTROL || type == RF_TOKEN_UNKNOWN || type == RF_TOKEN_BYTE) {
        memcpy(out, text, bytes);
        *out_bytes = bytes;
        return false;
    }
    for (size_t i = 0; i < bytes;) {
        bool is_space = bytes - i >= 3 && memcmp(text + i, space, 3) == 0;
        raw_space |= text[i] == ' ';
        out[count++] = is_space ? ' ' : text[i];
        i += is_space ? 3 : 1;
    }
    *out_bytes = count;
    /* Text with a space never becomes a token whose spelling has a plain space. User-defined tokens are
     * found before anything is merged, and must not swallow the space that is put before a text. */
    return count > 0 && type != RF_TOKEN_USER_DEFINED && !raw_space;
}

uint32_t rf_spm_order(float score) {
    if (isnan(score)) return UINT32_MAX;
    score += 0.0f; /* -0 is 0 */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~rising;
}
