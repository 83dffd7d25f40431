/* Tokenizers on small vocabularies made here, and on real ones where RF_TEST_DATA names a folder
 * that has them. */
#include <rocmforge/test.h>

#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_testing.h"
#include "support/gguf_write.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer_property.h"

/* ---- small vocabularies ---- */

#define MAX_COUNT 512
struct small {
    struct rf_vocab vocab;
    struct rf_vocab_token tokens[MAX_COUNT];
    struct rf_vocab_text merges[16];
    char spellings[MAX_COUNT][64];
};

static int32_t add(struct small *small, const char *text, size_t bytes, float score, enum rf_token_type type) {
    size_t id = small->vocab.token_count++;
    RF_ASSERT(id < MAX_COUNT && bytes < sizeof small->spellings[0]);
    memcpy(small->spellings[id], text, bytes);
    small->tokens[id] = (struct rf_vocab_token){{small->spellings[id], bytes}, score, type};
    return (int32_t)id;
}

static int32_t add_text(struct small *small, const char *text, float score, enum rf_token_type type) {
    return add(small, text, strlen(text), score, type);
}

static void start(struct small *small, enum rf_vocab_family family, const char *pre) {
    memset(small, 0, sizeof *small);
    small->vocab = (struct rf_vocab){.family = family,
                                     .tokens = small->tokens,
                                     .merges = small->merges,
                                     .pre = {pre, strlen(pre)},
                                     .bos = -1,
                                     .eos = -1,
                                     .unk = -1,
                                     .pad = -1,
                                     .eot = -1};
}

/* All 256 bytes: id is the byte. */
static void start_bpe(struct small *small, const char *pre) {
    start(small, RF_VOCAB_GPT2, pre);
    for (int byte = 0; byte < 256; byte++) {
        char raw = (char)byte, spelling[4];
        add(small, spelling, spell_bytes(&raw, 1, spelling), 0, RF_TOKEN_NORMAL);
    }
}

/* <unk>, <s>, </s>, then the bytes from id 3. */
static void start_spm(struct small *small) {
    start(small, RF_VOCAB_LLAMA, "");
    add_text(small, "<unk>", 0, RF_TOKEN_UNKNOWN);
    add_text(small, "<s>", 0, RF_TOKEN_CONTROL);
    add_text(small, "</s>", 0, RF_TOKEN_CONTROL);
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        add_text(small, text, 0, RF_TOKEN_BYTE);
    }
    small->vocab.unk = 0;
    small->vocab.bos = 1;
    small->vocab.eos = 2;
}

static int32_t add_bpe(struct small *small, const char *text) {
    char spelling[64];
    return add(small, spelling, spell_bytes(text, strlen(text), spelling), 0, RF_TOKEN_NORMAL);
}

static void add_merge(struct small *small, const char *text) {
    small->merges[small->vocab.merge_count++] = (struct rf_vocab_text){text, strlen(text)};
}

static struct rf_tokenizer *make(const struct small *small) {
    struct rf_tokenizer *tokenizer = NULL;
    RF_ASSERT_OK(rf_tokenizer_create(&small->vocab, &tokenizer));
    return tokenizer;
}

static const struct rf_encode_params bare = {sizeof bare, true, true, false};
static const struct rf_encode_params special = {sizeof special, true, true, true};

/* Ids as ".out" files have them: " 1 2 3". */
static const char *encode_bytes(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                                const struct rf_encode_params *params) {
    static char shown[1 << 16];
    int32_t *ids = NULL;
    size_t count = 0, used = 0;
    RF_ASSERT_OK(rf_tokenizer_encode(tokenizer, text, bytes, params, &ids, &count));
    shown[0] = 0;
    for (size_t i = 0; i < count; i++) used += (size_t)snprintf(shown + used, sizeof shown - used, " %d", ids[i]);
    rf_token_ids_destroy(&ids);
    RF_ASSERT_NULL(ids);
    return shown;
}

static const char *encode(const struct rf_tokenizer *tokenizer, const char *text,
                          const struct rf_encode_params *params) {
    return encode_bytes(tokenizer, text, strlen(text), params);
}

static void expect_back(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                        const struct rf_encode_params *encode_params) {
    struct rf_decode_params show = {.struct_size = sizeof show, .show_special = true};
    int32_t *ids = NULL;
    char *back = NULL;
    size_t count = 0, back_bytes = 0;
    RF_ASSERT_OK(rf_tokenizer_encode(tokenizer, text, bytes, encode_params, &ids, &count));
    RF_ASSERT_OK(rf_tokenizer_decode(tokenizer, ids, count, &show, &back, &back_bytes));
    RF_ASSERT_UINT(back_bytes, bytes);
    if (bytes) RF_ASSERT_BYTES((const uint8_t *)back, (const uint8_t *)text, bytes);
    RF_ASSERT_INT(back[back_bytes], 0);
    rf_token_ids_destroy(&ids);
    rf_text_destroy(&back);
}

static const char *decode(const struct rf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          const struct rf_decode_params *params) {
    static char shown[256];
    char *text = NULL;
    size_t bytes = 0;
    RF_ASSERT_OK(rf_tokenizer_decode(tokenizer, ids, count, params, &text, &bytes));
    RF_ASSERT(bytes < sizeof shown);
    memcpy(shown, text, bytes + 1);
    rf_text_destroy(&text);
    return shown;
}

/* ---- byte-level BPE ---- */

RF_TEST(tokenizer, merges_by_rank_then_from_the_left) {
    struct small small;
    start_bpe(&small, "gpt-2");
    add_bpe(&small, "ab");   /* 256 */
    add_bpe(&small, "bc");   /* 257 */
    add_bpe(&small, "abc");  /* 258 */
    add_bpe(&small, "aa");   /* 259 */
    add_bpe(&small, "aaaa"); /* 260 */
    add_bpe(&small, " a");   /* 261 */
    add_merge(&small, "b c");
    add_merge(&small, "a b");
    add_merge(&small, "a bc");
    add_merge(&small, "a a");
    add_merge(&small, "aa aa");
    add_merge(&small, "Ġ a");
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "abc", &bare), " 258"); /* bc first, then a bc; ab would have blocked it */
    RF_EXPECT_TEXT(encode(tokenizer, "ab", &bare), " 256");
    RF_EXPECT_TEXT(encode(tokenizer, "aaa", &bare), " 259 97"); /* from the left */
    RF_EXPECT_TEXT(encode(tokenizer, "aaaaa", &bare), " 260 97");
    RF_EXPECT_TEXT(encode(tokenizer, "x ab a", &bare), " 120 32 256 261");
    RF_EXPECT_TEXT(encode(tokenizer, "", &bare), "");
    RF_EXPECT_TEXT(encode_bytes(tokenizer, "\0\xff", 2, &bare), " 0 255");
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, merge_that_is_no_token_becomes_bytes) {
    struct small small;
    start_bpe(&small, "gpt-2");
    add_bpe(&small, "xyz"); /* 256; "xy" is only a step to it */
    add_merge(&small, "x y");
    add_merge(&small, "xy z");
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "xyz", &bare), " 256");
    RF_EXPECT_TEXT(encode(tokenizer, "xy", &bare), " 120 121");
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, llama3_takes_whole_pieces_first) {
    struct small small;
    start_bpe(&small, "llama-bpe");
    add_bpe(&small, "hello"); /* 256: no merge leads there */
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "hello hell", &bare), " 256 32 104 101 108 108");
    rf_tokenizer_destroy(&tokenizer);
    start_bpe(&small, "qwen2");
    add_bpe(&small, "hello");
    tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "hello", &bare), " 104 101 108 108 111");
    rf_tokenizer_destroy(&tokenizer);
}

/* What lies behind a text is not read, even where it would complete a character. */
RF_TEST(tokenizer, a_spelling_ends_where_it_ends) {
    char out[8];
    size_t bytes = 0;
    RF_EXPECT(rf_bpe_piece("a\xc4\xa0", 3, out, &bytes)); /* U+0120 spells a space */
    RF_ASSERT_UINT(bytes, 2);
    RF_EXPECT(!memcmp(out, "a ", 2));
    RF_EXPECT(!rf_bpe_piece("a\xc4\xa0", 2, out, &bytes));
    RF_ASSERT_UINT(bytes, 2);
    RF_EXPECT(!memcmp(out, "a\xc4", 2)); /* as it is */
}

RF_TEST(tokenizer, byte_without_a_token) {
    struct small small;
    start(&small, RF_VOCAB_GPT2, "gpt-2");
    add_text(&small, "a", 0, RF_TOKEN_NORMAL);
    struct rf_tokenizer *tokenizer = make(&small);
    int32_t *ids = NULL;
    size_t count = 77;
    RF_ASSERT_STATUS(rf_tokenizer_encode(tokenizer, "ab", 2, &bare, &ids, &count), RF_E_UNSUPPORTED);
    RF_ASSERT_CONTAINS(rf_error_text(), "0x62");
    RF_ASSERT_NULL(ids);
    RF_ASSERT_UINT(count, 77);
    rf_tokenizer_destroy(&tokenizer);
    small.vocab.unk = add_text(&small, "<unk>", 0, RF_TOKEN_UNKNOWN);
    tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "aba", &bare), " 0 1 0");
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- SentencePiece style ---- */

RF_TEST(tokenizer, spm_merges_by_score) {
    struct small small;
    start_spm(&small);
    int32_t first = add_text(&small, "▁", -10, RF_TOKEN_NORMAL); /* 259 */
    add_text(&small, "a", -11, RF_TOKEN_NORMAL);                 /* 260 */
    add_text(&small, "b", -12, RF_TOKEN_NORMAL);                 /* 261 */
    add_text(&small, "ab", -2, RF_TOKEN_NORMAL);                 /* 262 */
    add_text(&small, "▁a", -1, RF_TOKEN_NORMAL);                 /* 263: sooner than ab */
    add_text(&small, "ba", -3, RF_TOKEN_NORMAL);                 /* 264 */
    add_text(&small, "aa", -4, RF_TOKEN_NORMAL);                 /* 265 */
    add_text(&small, "▁▁", -5, RF_TOKEN_NORMAL);                 /* 266 */
    RF_ASSERT_INT(first, 259);
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "ab", &bare), " 263 261");
    RF_EXPECT_TEXT(encode(tokenizer, "bab", &bare), " 259 261 262");
    RF_EXPECT_TEXT(encode(tokenizer, "baaa", &bare), " 259 264 265"); /* ba, then the aa that is left */
    RF_EXPECT_TEXT(encode(tokenizer, " a", &bare), " 259 263");       /* prefix, then ▁a before ▁▁ */
    RF_EXPECT_TEXT(encode(tokenizer, "", &bare), "");
    RF_EXPECT_TEXT(encode(tokenizer, "é", &bare), " 259 198 172"); /* bytes c3 a9 */
    RF_EXPECT_TEXT(encode(tokenizer, "a", NULL), " 1 263");        /* BOS without being asked, no EOS */
    expect_back(tokenizer, "  ab é ", 8, &bare);
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, spm_keeps_a_literal_lower_one_eighth_block) {
    struct small small;
    start_spm(&small);
    add_text(&small, "▁", -1, RF_TOKEN_NORMAL);
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "▁", &bare), " 259 229 153 132"); /* U+2581 is e2 96 81 */
    expect_back(tokenizer, "▁ ▁", 7, &bare);
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, spm_without_byte_tokens_uses_the_unknown) {
    struct small small;
    start(&small, RF_VOCAB_LLAMA, "");
    small.vocab.unk = add_text(&small, "<unk>", 0, RF_TOKEN_UNKNOWN);
    add_text(&small, "a", 0, RF_TOKEN_NORMAL);
    small.vocab.add_space_prefix = RF_VOCAB_NO;
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "a😀a", &bare), " 1 0 1");
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, spm_text_cannot_pose_as_a_control_token) {
    struct small small;
    start_spm(&small);
    add_text(&small, "<", -1, RF_TOKEN_NORMAL);
    add_text(&small, "s>", -1, RF_TOKEN_NORMAL);
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "<s>", &bare), " 35 259 260"); /* 35: a space as a byte */
    RF_EXPECT_TEXT(encode(tokenizer, "<s>", &special), " 1");
    RF_EXPECT_TEXT(encode(tokenizer, "<0x41>", &special), " 35 259 51 123 55 52 65"); /* nor as a byte */
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- special tokens ---- */

RF_TEST(tokenizer, special_tokens_in_text) {
    struct small small;
    start_bpe(&small, "qwen2");
    add_text(&small, "<|a|>", 0, RF_TOKEN_CONTROL);     /* 256 */
    add_text(&small, "<|a|>b", 0, RF_TOKEN_CONTROL);    /* 257 */
    add_text(&small, "  ", 0, RF_TOKEN_USER_DEFINED);   /* 258 */
    add_text(&small, "    ", 0, RF_TOKEN_USER_DEFINED); /* 259 */
    add_text(&small, "|>", 0, RF_TOKEN_CONTROL);        /* 260 */
    add_text(&small, "", 0, RF_TOKEN_USER_DEFINED);     /* never found */
    small.vocab.bos = 256;
    small.vocab.eos = 260;
    small.vocab.add_bos = RF_VOCAB_YES;
    small.vocab.add_eos = RF_VOCAB_YES;
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "<|a|>", &bare), " 60 124 97 124 62");
    RF_EXPECT_TEXT(encode(tokenizer, "<|a|>", &special), " 256");
    RF_EXPECT_TEXT(encode(tokenizer, "x<|a|>bc", &special), " 120 257 99"); /* the longest */
    RF_EXPECT_TEXT(encode(tokenizer, "<|a|><|a|", &special), " 256 60 124 97 124");
    RF_EXPECT_TEXT(encode(tokenizer, "y|>", &special), " 121 260");
    RF_EXPECT_TEXT(encode(tokenizer, "a       b", &bare), " 97 259 258 32 98"); /* 7 spaces: 4, 2, 1 */
    RF_EXPECT_TEXT(encode(tokenizer, "z", NULL), " 256 122 260");
    static const struct rf_encode_params no_bos = {.struct_size = sizeof no_bos, .no_bos = true};
    static const struct rf_encode_params no_eos = {.struct_size = sizeof no_eos, .no_eos = true};
    RF_EXPECT_TEXT(encode(tokenizer, "z", &no_bos), " 122 260");
    RF_EXPECT_TEXT(encode(tokenizer, "z", &no_eos), " 256 122");
    RF_EXPECT_TEXT(encode(tokenizer, "", NULL), " 256 260");
    expect_back(tokenizer, "<|a|>b  <|a|>    |> <|a", 24 - 1, &special);
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, spm_space_after_special_tokens) {
    struct small small;
    start_spm(&small);
    add_text(&small, "▁", -1, RF_TOKEN_NORMAL);       /* 259 */
    add_text(&small, "a", -1, RF_TOKEN_NORMAL);       /* 260 */
    add_text(&small, "U▁", 0, RF_TOKEN_USER_DEFINED); /* 261: "U " */
    struct rf_tokenizer *tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "a<s>a", &special), " 259 260 1 259 260");
    RF_EXPECT_TEXT(encode(tokenizer, "aU a", &bare), " 259 260 261 259 260");
    expect_back(tokenizer, "a<s>a<s> aU aU  a<unk>a<unk> a", 31 - 1, &special);
    static const int32_t ids[] = {1, 259, 260, 2, 259, 260};
    RF_EXPECT_TEXT(decode(tokenizer, ids, 6, NULL), "aa");
    static const struct rf_decode_params show = {.struct_size = sizeof show, .show_special = true};
    RF_EXPECT_TEXT(decode(tokenizer, ids, 6, &show), "<s>a</s>a");
    static const struct rf_decode_params goes_on = {.struct_size = sizeof goes_on, .continues = true};
    RF_EXPECT_TEXT(decode(tokenizer, ids + 1, 2, &goes_on), " a");
    RF_EXPECT_TEXT(decode(tokenizer, NULL, 0, NULL), "");
    rf_tokenizer_destroy(&tokenizer);
    small.vocab.add_space_prefix = RF_VOCAB_NO;
    tokenizer = make(&small);
    RF_EXPECT_TEXT(encode(tokenizer, "a<s>a", &special), " 260 1 260");
    RF_EXPECT_TEXT(decode(tokenizer, ids, 6, NULL), " a a");
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- streaming ---- */

RF_TEST(tokenizer, streams_whole_characters) {
    struct small small;
    struct rf_detokenizer *stream = NULL;
    const char *text = NULL;
    size_t bytes = 0;
    start_bpe(&small, "gpt-2");
    struct rf_tokenizer *tokenizer = make(&small);
    RF_ASSERT_OK(rf_detokenizer_create(tokenizer, NULL, &stream));
    static const unsigned char face[] = {0xf0, 0x9f, 0x98, 0x80};
    for (int i = 0; i < 4; i++) {
        RF_ASSERT_OK(rf_detokenizer_push(stream, face[i], &text, &bytes));
        RF_ASSERT_TEXT(text, i < 3 ? "" : "😀");
        RF_ASSERT_UINT(bytes, i < 3 ? 0 : 4);
    }
    RF_ASSERT_OK(rf_detokenizer_push(stream, 0xc3, &text, &bytes));
    RF_ASSERT_TEXT(text, "");
    RF_ASSERT_STATUS(rf_detokenizer_push(stream, 256, &text, &bytes), RF_E_INVALID); /* and all is as it was */
    RF_ASSERT_OK(rf_detokenizer_push(stream, 'x', &text, &bytes)); /* not completed: comes as it is */
    RF_ASSERT_TEXT(text, "\xc3x");
    RF_ASSERT_OK(rf_detokenizer_push(stream, 0xff, &text, &bytes)); /* nothing can complete it */
    RF_ASSERT_TEXT(text, "\xff");
    RF_ASSERT_OK(rf_detokenizer_push(stream, 0xe2, &text, &bytes));
    RF_ASSERT_TEXT(text, "");
    RF_ASSERT_OK(rf_detokenizer_finish(stream, &text, &bytes));
    RF_ASSERT_TEXT(text, "\xe2");
    RF_ASSERT_OK(rf_detokenizer_finish(stream, &text, &bytes));
    RF_ASSERT_TEXT(text, "");
    rf_detokenizer_destroy(&stream);
    RF_ASSERT_NULL(stream);
    static const struct rf_decode_params replace = {.struct_size = sizeof replace, .replace_invalid = true};
    static const int32_t broken[] = {'a', 0xff, 0xc3, 'b', 0xc3, 0xa9, 0xe2, 0x82};
    RF_ASSERT_TEXT(decode(tokenizer, broken, 8, &replace), "a\uFFFD\uFFFDbé\uFFFD\uFFFD");
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- any bytes ---- */

RF_TEST(tokenizer, holds_for_random_vocabularies_and_texts) {
    struct rf_random random = {rf_test_seed() + 6};
    static const char *const alphabets[] = {"ab ", " \n\t1a.'s", "\xe2\x96\x81\xf0\x9f\x98\x80 a", NULL};
    for (int round = 0; round < 3000; round++) {
        unsigned char bytes[700];
        size_t size = rf_random_below(&random, sizeof bytes);
        const char *alphabet = alphabets[rf_random_below(&random, 4)];
        for (size_t i = 0; i < size; i++)
            bytes[i] = alphabet && i > 40 ? (unsigned char)alphabet[rf_random_below(&random, strlen(alphabet))]
                                          : (unsigned char)rf_random_below(&random, 256);
        if (size > 1) bytes[1] |= 1; /* every byte has a token */
        const char *wrong = tokenizer_property(bytes, size);
        if (wrong) RF_FAIL("round %d: %s", round, wrong);
    }
}

/* ---- the bound ---- */

static uint64_t steps_for(const struct rf_tokenizer *tokenizer, const char *unit, size_t unit_bytes, size_t total) {
    char *text = malloc(total);
    int32_t *ids = NULL;
    size_t count = 0;
    uint64_t steps = 0;
    RF_ASSERT(text != NULL);
    for (size_t i = 0; i < total; i++) text[i] = unit[i % unit_bytes];
    RF_ASSERT_OK(rf_tokenizer_encode_counted(tokenizer, text, total, &bare, &ids, &count, &steps));
    RF_ASSERT(count > 0 && count <= total + 1);
    rf_token_ids_destroy(&ids);
    free(text);
    return steps;
}

static void expect_bounded(const struct rf_tokenizer *tokenizer) {
    static const char *const units[] = {"a", " ", "1", "😀", "\xff", "\n", "ab", " \n", "a ", "'", "\xe2", "é1 "};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        RF_TRACE("text of \"%s\"", units[i]);
        uint64_t steps = steps_for(tokenizer, units[i], strlen(units[i]), 1 << 18);
        uint64_t twice = steps_for(tokenizer, units[i], strlen(units[i]), 1 << 19);
        RF_EXPECT(twice < 5 * steps / 2);            /* n log n, and nowhere near n squared */
        RF_EXPECT(steps < (uint64_t)(1 << 18) * 80); /* 18 levels of the heap, at most 3 candidates a byte */
    }
}

RF_TEST(tokenizer, work_is_bounded, .timeout_ms = 1500000, .tags = "heavy") {
    static const char *const pres[] = {"default",      "gpt-2",          "llama-bpe",  "qwen2",
                                       "deepseek-llm", "deepseek-coder", "falcon",     "starcoder",
                                       "tekken",       "gpt-4o",         "deepseek-v3"};
    struct small small;
    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        RF_TRACE("%s", pres[i]);
        start_bpe(&small, pres[i]);
        add_bpe(&small, "aa");
        add_bpe(&small, "aaaa");
        add_bpe(&small, "  ");
        add_bpe(&small, "11");
        add_bpe(&small, "\xf0\x9f");
        add_bpe(&small, "\xff\xff");
        add_merge(&small, "a a");
        add_merge(&small, "aa aa");
        add_merge(&small, "Ġ Ġ");
        add_merge(&small, "1 1");
        add_merge(&small, "ð Ł");
        add_merge(&small, "ÿ ÿ");
        struct rf_tokenizer *tokenizer = make(&small);
        expect_bounded(tokenizer);
        rf_tokenizer_destroy(&tokenizer);
    }
}

RF_TEST(tokenizer, spm_work_is_bounded, .timeout_ms = 1500000) {
    struct small small;
    start_spm(&small);
    static const char *const pieces[] = {"a", "aa", "aaaa", "aaaaaaaa", "▁", "▁▁", "▁▁▁▁", "1", "11", "😀", "😀😀"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        add_text(&small, pieces[i], (float)i, RF_TOKEN_NORMAL);
    struct rf_tokenizer *tokenizer = make(&small);
    expect_bounded(tokenizer);
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- threads ---- */

static void *encode_often(void *user) {
    const struct rf_tokenizer *tokenizer = user;
    for (int i = 0; i < 50; i++) {
        int32_t *ids = NULL;
        size_t count = 0;
        RF_EXPECT_OK(rf_tokenizer_encode(tokenizer, "aaa b", 5, &bare, &ids, &count));
        RF_EXPECT(count == 4 && ids[0] == 256 && ids[1] == 'a' && ids[2] == ' ' && ids[3] == 'b');
        rf_token_ids_destroy(&ids);
    }
    return NULL;
}

RF_TEST(tokenizer, is_shared_by_threads) {
    struct small small;
    pthread_t threads[4];
    start_bpe(&small, "gpt-2");
    add_bpe(&small, "aa");
    add_merge(&small, "a a");
    struct rf_tokenizer *tokenizer = make(&small);
    for (int i = 0; i < 4; i++) RF_ASSERT_INT(pthread_create(&threads[i], NULL, encode_often, tokenizer), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    rf_tokenizer_destroy(&tokenizer);
}

/* ---- what it tells, and what it refuses ---- */

RF_TEST(tokenizer, tells_about_itself) {
    struct small small;
    start_spm(&small);
    add_text(&small, "▁hi", -1.5f, RF_TOKEN_NORMAL);
    add_text(&small, "<|im_end|>", 0, RF_TOKEN_CONTROL);
    struct rf_tokenizer *tokenizer = make(&small);
    RF_PARAMS(struct rf_tokenizer_info, info);
    RF_ASSERT_OK(rf_tokenizer_get_info(tokenizer, &info));
    RF_EXPECT_TEXT(info.family, "llama");
    RF_EXPECT_TEXT(info.pre, "");
    RF_EXPECT_INT(info.token_count, 261);
    RF_EXPECT_INT(info.bos, 1);
    RF_EXPECT_INT(info.eos, 2);
    RF_EXPECT_INT(info.unk, 0);
    RF_EXPECT_INT(info.pad, -1);
    RF_EXPECT(info.add_bos && !info.add_eos && info.add_space_prefix);
    RF_PARAMS(struct rf_token_info, token);
    RF_ASSERT_OK(rf_tokenizer_token(tokenizer, 259, &token));
    RF_EXPECT_TEXT(token.text, "▁hi");
    RF_EXPECT_TEXT(token.piece, " hi");
    RF_EXPECT_UINT(token.piece_bytes, 3);
    RF_EXPECT_DOUBLE(token.score, -1.5, 0);
    RF_EXPECT_INT(token.type, RF_TOKEN_NORMAL);
    RF_EXPECT(!token.ends_text);
    RF_ASSERT_OK(rf_tokenizer_token(tokenizer, 3 + 'A', &token));
    RF_EXPECT_TEXT(token.text, "<0x41>");
    RF_EXPECT_TEXT(token.piece, "A");
    RF_ASSERT_OK(rf_tokenizer_token(tokenizer, 2, &token));
    RF_EXPECT(token.ends_text);
    RF_ASSERT_OK(rf_tokenizer_token(tokenizer, 260, &token));
    RF_EXPECT(token.ends_text);
    RF_EXPECT_INT(rf_tokenizer_find(tokenizer, "▁hi", 5), 259);
    RF_EXPECT_INT(rf_tokenizer_find(tokenizer, "▁h", 4), -1);
    RF_EXPECT_INT(rf_tokenizer_find(tokenizer, "<s>", 3), 1);
    RF_EXPECT_STATUS(rf_tokenizer_token(tokenizer, 261, &token), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "261");
    RF_EXPECT_STATUS(rf_tokenizer_token(tokenizer, -1, &token), RF_E_INVALID);
    rf_tokenizer_destroy(&tokenizer);
    RF_ASSERT_NULL(tokenizer);
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, refuses_bad_vocabularies) {
    struct small small;
    struct rf_tokenizer *tokenizer = NULL;
    start_bpe(&small, "gpt-99");
    RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_UNSUPPORTED);
    RF_EXPECT_CONTAINS(rf_error_text(), "\"gpt-99\"");
    RF_EXPECT_CONTAINS(rf_error_text(), "deepseek-coder");
    RF_EXPECT_CONTAINS(rf_error_text(), "smollm");
    start_bpe(&small, "");
    small.vocab.bos = 256;
    RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "256");
    small.vocab.bos = -2;
    RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_SYNTAX);
    small.vocab.bos = -1;
    small.tokens[5].type = (enum rf_token_type)7;
    RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "token 5");
    small.tokens[5].type = RF_TOKEN_NORMAL;
    static const char *const merges[] = {"", "a", "ab", " a", "a ", "  "};
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        small.vocab.merge_count = 0;
        add_merge(&small, merges[i]);
        RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_SYNTAX);
        RF_EXPECT_CONTAINS(rf_error_text(), "merge 0");
    }
    start(&small, RF_VOCAB_LLAMA, "");
    RF_EXPECT_STATUS(rf_tokenizer_create(&small.vocab, &tokenizer), RF_E_SYNTAX);
    RF_EXPECT(tokenizer == NULL);
}

RF_TEST(tokenizer, refuses_bad_arguments) {
    struct small small;
    start_bpe(&small, "gpt-2");
    struct rf_tokenizer *tokenizer = make(&small);
    int32_t *ids = NULL, far = 300;
    size_t count = 0, bytes = 0;
    char *text = NULL;
    struct rf_encode_params unset = {0};
    RF_EXPECT_STATUS(rf_tokenizer_encode(NULL, "a", 1, NULL, &ids, &count), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_tokenizer_encode(tokenizer, NULL, 1, NULL, &ids, &count), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_tokenizer_encode(tokenizer, "a", 1, &unset, &ids, &count), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_tokenizer_encode(tokenizer, "a", (size_t)1 << 30, NULL, &ids, &count), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "1 GiB");
    RF_EXPECT_OK(rf_tokenizer_encode(tokenizer, NULL, 0, NULL, &ids, &count));
    RF_EXPECT(ids != NULL && count == 0);
    rf_token_ids_destroy(&ids);
    RF_EXPECT_STATUS(rf_tokenizer_decode(tokenizer, &far, 1, NULL, &text, &bytes), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "300");
    RF_EXPECT_CONTAINS(rf_error_text(), "255");
    far = -1;
    RF_EXPECT_STATUS(rf_tokenizer_decode(tokenizer, &far, 1, NULL, &text, &bytes), RF_E_INVALID);
    RF_EXPECT(text == NULL);
    RF_EXPECT_STATUS(rf_tokenizer_decode(tokenizer, NULL, 1, NULL, &text, &bytes), RF_E_INVALID);
    RF_EXPECT_INT(rf_tokenizer_find(tokenizer, NULL, 3), -1);
    RF_EXPECT_INT(rf_tokenizer_find(tokenizer, NULL, 0), -1);
    rf_tokenizer_destroy(&tokenizer);
}

/* "<|end|>" ends an answer, unless the vocabulary has channels (gpt-oss): then "<|return|>" and "<|call|>" do. */
RF_TEST(tokenizer, ends_of_channels) {
    static const struct {
        const char *names; /* of the control tokens, from id 256 on */
        const char *ends;  /* for each, whether it ends an answer */
        int32_t eos, eot;
        enum rf_token_type call; /* the type of the last */
    } cases[] = {
        {"<|end|>", "y", -1, -1, RF_TOKEN_CONTROL},
        {"<|end|> <|return|>", "yy", -1, -1, RF_TOKEN_CONTROL},
        {"<|end|> <|call|>", "yy", -1, -1, RF_TOKEN_CONTROL},
        {"<|end|> <|return|> <|call|>", "nyy", -1, -1, RF_TOKEN_CONTROL},
        {"<|end|> <|return|> <|call|>", "nyy", 257, 256, RF_TOKEN_CONTROL}, /* whatever the end of a turn is */
        {"<|end|> <|return|> <|call|>", "yyy", 256, -1, RF_TOKEN_CONTROL},  /* but the end of text ends it */
        {"<|end|> <|return|> <|call|>", "yyn", -1, -1, RF_TOKEN_NORMAL},    /* text of that spelling is text */
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        static struct small small;
        RF_TRACE("%zu: %s", i, cases[i].names);
        start_bpe(&small, "gpt-2");
        char names[64];
        snprintf(names, sizeof names, "%s", cases[i].names);
        size_t count = strlen(cases[i].ends), added = 0;
        for (char *rest, *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            add_text(&small, name, 0, ++added == count ? cases[i].call : RF_TOKEN_CONTROL);
        small.vocab.eos = cases[i].eos;
        small.vocab.eot = cases[i].eot;
        struct rf_tokenizer *tokenizer = make(&small);
        for (size_t k = 0; k < count; k++)
            RF_EXPECT_INT(rf_tokenizer_ends_text(tokenizer, 256 + (int32_t)k), cases[i].ends[k] == 'y');
        rf_tokenizer_destroy(&tokenizer);
    }
}

/* ---- GGUF files ---- */

struct keys {
    const char *model, *pre;
    uint32_t bos;
    size_t scores, types; /* how many; 0: the key is absent */
    bool tokens, merges;
};

static rf_status from_memory(const struct keys *keys, struct rf_tokenizer **out) {
    static const struct rf_gguf_string tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"<x>", 3}};
    static const struct rf_gguf_string merges[] = {{"a b", 3}};
    static const float scores[] = {0, 1, 2, 3, 4};
    static const int32_t types[] = {1, 1, 1, 3, 9};
    struct rf_gguf_writer *writer = NULL;
    struct rf_gguf *gguf = NULL;
    void *bytes = NULL;
    size_t size = 0;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    if (keys->model) rf_gguf_write_string(writer, "tokenizer.ggml.model", keys->model);
    if (keys->pre) rf_gguf_write_string(writer, "tokenizer.ggml.pre", keys->pre);
    if (keys->tokens) rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", tokens, 4);
    if (keys->merges) rf_gguf_write_strings(writer, "tokenizer.ggml.merges", merges, 1);
    if (keys->scores) rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, keys->scores);
    if (keys->types) rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, types, keys->types);
    rf_gguf_write_u32(writer, "tokenizer.ggml.bos_token_id", keys->bos);
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_bos_token", true);
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, &bytes, &size));
    rf_gguf_writer_destroy(&writer);
    RF_ASSERT_OK(rf_gguf_open_memory(bytes, size, "small.gguf", &gguf));
    rf_status status = rf_tokenizer_from_gguf(gguf, out);
    rf_gguf_close(&gguf);
    memset(bytes, 0xee, size); /* nothing of it may be used any more */
    free(bytes);
    return status;
}

RF_TEST(tokenizer, from_a_file) {
    struct rf_tokenizer *tokenizer = NULL;
    RF_ASSERT_OK(from_memory(&(struct keys){"gpt2", "gpt-2", 3, 0, 4, true, true}, &tokenizer));
    RF_EXPECT_TEXT(encode(tokenizer, "ab", NULL), " 3 2");
    RF_EXPECT_TEXT(encode(tokenizer, "<x>b", &special), " 3 1");
    rf_tokenizer_destroy(&tokenizer);
    RF_ASSERT_OK(from_memory(&(struct keys){"llama", NULL, UINT32_MAX, 4, 4, true, false}, &tokenizer));
    RF_PARAMS(struct rf_tokenizer_info, info);
    RF_ASSERT_OK(rf_tokenizer_get_info(tokenizer, &info));
    RF_EXPECT_INT(info.bos, -1); /* said to be none; the others have defaults */
    RF_EXPECT(!info.add_bos);
    RF_EXPECT_INT(info.eos, 2);
    rf_tokenizer_destroy(&tokenizer);
    static const struct {
        struct keys keys;
        rf_status status;
        const char *part;
    } bad[] = {
        {{NULL, NULL, 0, 0, 0, true, true}, RF_E_NOT_FOUND, "no vocabulary"},
        {{"gpt2", NULL, 0, 0, 0, false, true}, RF_E_NOT_FOUND, "no vocabulary"},
        {{"bert", NULL, 0, 0, 0, true, true}, RF_E_UNSUPPORTED, "\"bert\""},
        {{"gpt2", "odd", 0, 0, 0, true, true}, RF_E_UNSUPPORTED, "\"odd\""},
        {{"gpt2", "gpt-2", 0, 0, 0, true, false}, RF_E_NOT_FOUND, "tokenizer.ggml.merges"},
        {{"gpt2", "gpt-2", 4, 0, 0, true, true}, RF_E_SYNTAX, "bos_token_id"},
        {{"llama", NULL, 0, 3, 0, true, true}, RF_E_SYNTAX, "3 values for 4 tokens"},
        {{"llama", NULL, 0, 4, 5, true, true}, RF_E_SYNTAX, "5 values for 4 tokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        RF_TRACE("case %zu", i);
        tokenizer = NULL;
        RF_EXPECT_STATUS(from_memory(&bad[i].keys, &tokenizer), bad[i].status);
        RF_EXPECT_CONTAINS(rf_error_text(), bad[i].part);
        RF_EXPECT_CONTAINS(rf_error_text(), "small.gguf: ");
        RF_EXPECT(tokenizer == NULL);
    }
    RF_EXPECT_STATUS(rf_tokenizer_open("/nonexistent/m.gguf", &tokenizer), RF_E_NOT_FOUND);
}

/* ---- real vocabularies ---- */

/* NAME.gguf with NAME.gguf.inp, texts between separator lines, and NAME.gguf.out, a line of ids each. */
static void check_vocabulary(const char *path) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    struct rf_tokenizer *tokenizer = NULL;
    char name[4096];
    size_t bytes, count = 0;
    RF_TRACE("%s", strrchr(path, '/') + 1);
    RF_ASSERT_OK(rf_tokenizer_open(path, &tokenizer));
    snprintf(name, sizeof name, "%s.inp", path);
    char *input = (char *)read_bytes(name, &bytes);
    input = realloc(input, bytes + 1);
    RF_ASSERT_NOT_NULL(input);
    input[bytes] = 0;
    snprintf(name, sizeof name, "%s.out", path);
    FILE *output = fopen(name, "r");
    RF_ASSERT_NOT_NULL(output);
    char line[1 << 14];
    char *at = input;
    for (char *end; (end = strstr(at, separator)) && fgets(line, sizeof line, output); at = end + strlen(separator)) {
        RF_TRACE("text %zu", count++);
        line[strcspn(line, "\n")] = 0;
        RF_EXPECT_TEXT(encode_bytes(tokenizer, at, (size_t)(end - at), &bare), line);
        expect_back(tokenizer, at, (size_t)(end - at), &bare);
    }
    RF_EXPECT(count > 0 && !fgets(line, sizeof line, output) && !*at);
    RF_NOTE("%s: %zu texts", strrchr(path, '/') + 1, count);
    fclose(output);
    free(input);
    rf_tokenizer_destroy(&tokenizer);
}

RF_TEST(tokenizer, real_vocabularies) {
    const char *folder = getenv("RF_TEST_DATA");
    char pattern[4096];
    glob_t found;
    if (!folder) RF_SKIP("RF_TEST_DATA names no folder with vocab/*.gguf, *.gguf.inp and *.gguf.out");
    snprintf(pattern, sizeof pattern, "%s/vocab/*.gguf.inp", folder);
    if (glob(pattern, 0, NULL, &found)) RF_SKIP("nothing matches %s", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        found.gl_pathv[i][strlen(found.gl_pathv[i]) - 4] = 0; /* without .inp */
        check_vocabulary(found.gl_pathv[i]);
    }
    globfree(&found);
}
