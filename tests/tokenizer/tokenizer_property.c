/* A vocabulary and a text out of any bytes, and what must hold for them:
 *   - making a tokenizer works or fails with a text; so does encoding
 *   - with a token for each byte, encoding works and decoding gives the text back
 *   - text is never decoded in parts that split a character
 *   - with replace_invalid, what comes out is UTF-8
 *   - the work stays below n log n times a constant
 *
 * The bytes: family and pre-tokenizer, flags, number of tokens, tokens (type and length, score,
 * bytes), number of merges, merges (two tokens each), text. */
#include "tokenizer_property.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

#define TOKENS_MAX 64
#define MERGES_MAX 64
#define LENGTH_MAX 31 /* of a token made from the input */

static const char *const pres[] = {"default",        "gpt-2",  "llama-bpe",   "qwen2",       "deepseek-llm", "falcon",
                                   "deepseek-coder", "mpt",    "starcoder",   "refact",      "smollm",       "qwen35",
                                   "tekken",         "gpt-4o", "deepseek-v3", "no such name"};

struct reader {
    const unsigned char *at;
    size_t left;
};

struct made {
    struct rf_vocab vocab;
    struct rf_vocab_token tokens[256 + TOKENS_MAX];
    struct rf_vocab_text merges[MERGES_MAX];
    char spellings[256 + TOKENS_MAX + MERGES_MAX][4 * LENGTH_MAX + 4];
    bool all_bytes;
    struct rf_encode_params params;
};

static char why[256];

static unsigned take(struct reader *reader) {
    if (!reader->left) return 0;
    reader->left--;
    return *reader->at++;
}

size_t spell_bytes(const char *bytes, size_t size, char *out) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t code = (unsigned char)bytes[i];
        if (code <= 0x20)
            code += 0x100;
        else if (code >= 0x7f && code <= 0xa0)
            code += 0x121 - 0x7f;
        else if (code == 0xad)
            code = 0x143;
        count += rf_utf8_encode(code, out + count);
    }
    return count;
}

static void add_byte_tokens(struct made *made) {
    for (unsigned byte = 0; byte < 256; byte++) {
        size_t index = made->vocab.token_count++;
        char raw = (char)byte, *spelling = made->spellings[index];
        bool llama = made->vocab.family == RF_VOCAB_LLAMA;
        size_t length = llama ? (size_t)snprintf(spelling, 8, "<0x%02X>", byte) : spell_bytes(&raw, 1, spelling);
        made->tokens[index] = (struct rf_vocab_token){{spelling, length}, 0, llama ? RF_TOKEN_BYTE : RF_TOKEN_NORMAL};
    }
}

static void add_tokens(struct made *made, struct reader *reader) {
    for (unsigned count = take(reader) % (TOKENS_MAX + 1); count > 0; count--) {
        unsigned head = take(reader), type = head >> 5, score = take(reader);
        char raw[LENGTH_MAX];
        size_t index = made->vocab.token_count++, length = 0;
        while (length < (head & LENGTH_MAX) && reader->left) raw[length++] = (char)take(reader);
        bool special = type == RF_TOKEN_CONTROL || type == RF_TOKEN_USER_DEFINED || type == RF_TOKEN_UNKNOWN;
        char *spelling = made->spellings[index];
        if (made->vocab.family == RF_VOCAB_GPT2 && !special) {
            length = spell_bytes(raw, length, spelling);
        } else {
            size_t spelt = 0; /* a space is U+2581 in "llama" vocabularies */
            for (size_t i = 0; i < length; i++) {
                if (raw[i] == ' ' && made->vocab.family == RF_VOCAB_LLAMA && type != RF_TOKEN_CONTROL) {
                    memcpy(spelling + spelt, "\xe2\x96\x81", 3);
                    spelt += 3;
                } else {
                    spelling[spelt++] = raw[i];
                }
            }
            length = spelt;
        }
        made->tokens[index] =
            (struct rf_vocab_token){{spelling, length}, (float)(int)score - 100, (enum rf_token_type)type};
    }
}

static void add_merges(struct made *made, struct reader *reader) {
    if (!made->vocab.token_count) return;
    for (unsigned count = take(reader) % (MERGES_MAX + 1); count > 0; count--) {
        const struct rf_vocab_text *left, *right;
        left = &made->tokens[(take(reader) | take(reader) << 8) % made->vocab.token_count].text;
        right = &made->tokens[(take(reader) | take(reader) << 8) % made->vocab.token_count].text;
        size_t index = made->vocab.merge_count;
        char *spelling = made->spellings[256 + TOKENS_MAX + index];
        if (!left->bytes || !right->bytes || left->bytes + right->bytes > 2 * LENGTH_MAX) continue;
        memcpy(spelling, left->text, left->bytes);
        spelling[left->bytes] = ' ';
        memcpy(spelling + left->bytes + 1, right->text, right->bytes);
        made->merges[index] = (struct rf_vocab_text){spelling, left->bytes + 1 + right->bytes};
        made->vocab.merge_count++;
    }
}

static void make_vocab(struct made *made, struct reader *reader) {
    unsigned kind = take(reader), flags = take(reader);
    struct rf_vocab *vocab = &made->vocab;
    const char *pre = pres[(kind >> 1) % (sizeof pres / sizeof pres[0])];
    vocab->family = kind & 1 ? RF_VOCAB_LLAMA : RF_VOCAB_GPT2;
    vocab->pre = (struct rf_vocab_text){pre, strlen(pre)};
    vocab->tokens = made->tokens;
    vocab->merges = made->merges;
    made->all_bytes = flags & 1;
    if (made->all_bytes) add_byte_tokens(made);
    add_tokens(made, reader);
    add_merges(made, reader);
    int32_t last = (int32_t)vocab->token_count - 1;
    vocab->bos = flags & 2 ? last : -1;
    vocab->eos = flags & 4 ? last : -1;
    vocab->unk = flags & 8 ? last : -1;
    vocab->pad = vocab->eot = -1;
    vocab->add_bos = flags & 16 ? RF_VOCAB_YES : RF_VOCAB_UNSAID;
    vocab->add_space_prefix = flags & 32 ? RF_VOCAB_NO : RF_VOCAB_UNSAID;
    made->params = (struct rf_encode_params){sizeof made->params, true, true, (flags & 64) != 0};
}

static bool is_utf8(const char *text, size_t bytes) {
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (rf_utf8_decode(text + at, bytes - at, &taken) == RF_CODE_INVALID) return false;
    return true;
}

static uint64_t log2_of(uint64_t value) {
    uint64_t log = 0;
    while (value >>= 1) log++;
    return log;
}

static const char *check_stream(const struct rf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                const char *text, size_t bytes) {
    struct rf_detokenizer *stream = NULL;
    struct rf_decode_params params = {.struct_size = sizeof params, .show_special = true};
    const char *part, *wrong = NULL;
    size_t part_bytes, at = 0;
    bool valid = is_utf8(text, bytes);
    if (rf_detokenizer_create(tokenizer, &params, &stream)) return "no detokenizer";
    for (size_t i = 0; i <= count && !wrong; i++) {
        rf_status status = i < count ? rf_detokenizer_push(stream, ids[i], &part, &part_bytes)
                                     : rf_detokenizer_finish(stream, &part, &part_bytes);
        if (status)
            wrong = "streaming failed";
        else if (part_bytes > bytes - at || memcmp(part, text + at, part_bytes) != 0)
            wrong = "streaming gives other text than decoding";
        else if (valid && !is_utf8(part, part_bytes))
            wrong = "streaming split a character";
        else
            at += part_bytes;
    }
    rf_detokenizer_destroy(&stream);
    return wrong ? wrong : at == bytes ? NULL : "streaming gives less text than decoding";
}

static const char *check_decoding(const struct rf_tokenizer *tokenizer, const struct made *made, const int32_t *ids,
                                  size_t count, const char *text, size_t bytes) {
    struct rf_decode_params params = {.struct_size = sizeof params, .show_special = true};
    char *decoded = NULL, *replaced = NULL;
    size_t decoded_bytes, replaced_bytes;
    const char *wrong = NULL;
    if (rf_tokenizer_decode(tokenizer, ids, count, &params, &decoded, &decoded_bytes)) return "decoding failed";
    if (made->all_bytes && (decoded_bytes != bytes || (bytes && memcmp(decoded, text, bytes) != 0)))
        wrong = "decoding does not give the text back";
    if (!wrong) wrong = check_stream(tokenizer, ids, count, decoded, decoded_bytes);
    params.replace_invalid = true;
    if (!wrong && rf_tokenizer_decode(tokenizer, ids, count, &params, &replaced, &replaced_bytes))
        wrong = "decoding with replacement failed";
    if (!wrong && !is_utf8(replaced, replaced_bytes)) wrong = "what was replaced is not UTF-8";
    rf_text_destroy(&decoded);
    rf_text_destroy(&replaced);
    return wrong;
}

static const char *check(const struct made *made, const char *text, size_t bytes) {
    struct rf_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    uint64_t steps = 0;
    const char *wrong = NULL;
    if (rf_tokenizer_create(&made->vocab, &tokenizer)) return rf_error_text()[0] ? NULL : "a failure without a text";
    rf_status status = rf_tokenizer_encode_counted(tokenizer, text, bytes, &made->params, &ids, &count, &steps);
    if (status) {
        wrong = made->all_bytes || status != RF_E_UNSUPPORTED ? "encoding failed" : NULL;
    } else {
        uint64_t most = (bytes + 2) * (2 * LENGTH_MAX + 8 * log2_of(bytes + 4));
        for (size_t i = 0; i < count && !wrong; i++)
            if (ids[i] < 0 || (size_t)ids[i] >= made->vocab.token_count) wrong = "an id outside the vocabulary";
        if (!wrong && steps > most) {
            snprintf(why, sizeof why, "%llu steps for %zu bytes, at most %llu", (unsigned long long)steps, bytes,
                     (unsigned long long)most);
            wrong = why;
        }
        if (!wrong) wrong = check_decoding(tokenizer, made, ids, count, text, bytes);
    }
    rf_token_ids_destroy(&ids);
    rf_tokenizer_destroy(&tokenizer);
    return wrong;
}

const char *tokenizer_property(const unsigned char *bytes, size_t size) {
    struct made *made = calloc(1, sizeof *made);
    struct reader reader = {bytes, size};
    if (!made) return "no memory";
    make_vocab(made, &reader);
    /* A copy that ends where the text ends, so that a look beyond is seen. */
    char *text = malloc(reader.left ? reader.left : 1);
    if (text && reader.left) memcpy(text, reader.at, reader.left);
    const char *wrong = text ? check(made, text, reader.left) : "no memory";
    free(text);
    free(made);
    return wrong;
}
