/* The pre-tokenizers' cuts, and the characters they cut by.
 *
 * The expected pieces follow from the regular expressions that the models publish. */
#include <rocmforge/test.h>

#include <string.h>

#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

struct cut {
    const char *pre, *text, *pieces; /* with a broken bar between */
};
static const struct cut cuts[] = {
    {"gpt-2", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ 12345¦ ¦ it¦'s"},
    {"gpt-2", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"gpt-2", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ +(¦foo¦_¦bar¦)`$¦5¦`"},
    {"gpt-2", "中文 12あア。\u3000éÉ１２", "中文¦ 12¦あア¦。¦\u3000¦éÉ¦１２"},
    {"gpt-2", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/¦\n¦42"},
    {"gpt-2", "  \n x 1  ", "  \n¦ x¦ 1¦  "},
    {"mpt", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ 12345¦ ¦ it¦'s"},
    {"mpt", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"default", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦123¦45¦ ¦ it¦'¦s"},
    {"default", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"default", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ ¦+(¦foo¦_¦bar¦)¦`¦$¦5¦`"},
    {"default", "中文 12あア。\u3000éÉ１２", "中文¦ ¦12¦あア¦。¦\u3000¦éÉ¦１２"},
    {"default", "HTTPServer's naïve/\n42", "HTTPServer¦'¦s¦ naïve¦/¦\n¦42"},
    {"default", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"falcon", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦123¦45¦ ¦ it¦'¦s"},
    {"falcon", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"falcon", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ ¦+(¦foo¦_¦bar¦)`$¦5¦`"},
    {"falcon", "中文 12あア。\u3000éÉ１２", "中文¦ 12¦あア¦。¦\u3000¦éÉ¦１２"},
    {"falcon", "HTTPServer's naïve/\n42", "HTTPServer¦'¦s¦ naïve¦/¦\n¦42"},
    {"falcon", "  \n x 1  ", "  \n¦ x¦ 1¦  "},
    {"starcoder", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"starcoder", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"starcoder", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦1¦4¦ +(¦foo¦_¦bar¦)`$¦5¦`"},
    {"starcoder", "中文 12あア。\u3000éÉ１２", "中文¦ ¦1¦2¦あア¦。¦\u3000¦éÉ¦１¦２"},
    {"starcoder", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/¦\n¦4¦2"},
    {"starcoder", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"refact", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"refact", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"smollm", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"smollm", "a\r\n\n  b\t\tc   ", "a¦\r\n\n ¦ b¦\t¦\t¦c¦   "},
    {"llama-bpe", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I¦'VE¦ ¦123¦45¦ ¦ it¦'s"},
    {"llama-bpe", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"llama-bpe", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"llama-bpe", "中文 12あア。\u3000éÉ１２", "中文¦ ¦12¦あア¦。¦\u3000éÉ¦１２"},
    {"llama-bpe", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/\n¦42"},
    {"llama-bpe", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"qwen2", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I¦'VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"qwen2", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"qwen2", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦1¦4¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"qwen2", "中文 12あア。\u3000éÉ１２", "中文¦ ¦1¦2¦あア¦。¦\u3000éÉ¦１¦２"},
    {"qwen2", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/\n¦4¦2"},
    {"qwen2", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"deepseek-llm", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦12345¦ ¦ it¦'¦s"},
    {"deepseek-llm", "a\r\n\n  b\t\tc   ", "a¦\r¦\n¦\n¦ ¦ b¦\t¦\tc¦   "},
    {"deepseek-llm", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ +(¦foo¦_¦bar¦)`$¦5¦`"},
    {"deepseek-llm", "\x01  \x02   ", "\x01  \x02¦   "}, /* of no class */
    {"deepseek-llm", "中文 12あア。\u3000éÉ１２", "中文¦ ¦12¦あア¦。¦\u3000¦éÉ¦１２"},
    {"deepseek-llm", "HTTPServer's naïve/\n42", "HTTPServer¦'¦s¦ na¦ï¦ve¦/¦\n¦42"},
    {"deepseek-llm", "  \n x 1  ", "  ¦\n¦ x¦ ¦1¦  "},
    {"deepseek-coder", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'¦all¦!¦ I¦'¦VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'¦s"},
    {"deepseek-coder", "a\r\n\n  b\t\tc   ", "a¦\r¦\n¦\n¦ ¦ b¦\t¦\tc¦   "},
    {"deepseek-coder", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦1¦4¦ +¦(¦foo¦_¦bar¦)¦`$¦5¦`"},
    {"deepseek-coder", "中文 12あア。\u3000éÉ１２", "中文¦ ¦1¦2¦あア¦。¦\u3000¦éÉ¦１¦２"},
    {"deepseek-coder", "HTTPServer's naïve/\n42", "HTTPServer¦'¦s¦ naïve¦/¦\n¦4¦2"},
    {"deepseek-coder", "  \n x 1  ", "  ¦\n¦ x¦ ¦1¦  "},
    {"deepseek-v3", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I¦'VE¦ ¦123¦45¦ ¦ it¦'s"},
    {"deepseek-v3", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"deepseek-v3", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"deepseek-v3", "中文 12あア。\u3000éÉ１２", "中文¦ ¦12¦あア¦。¦\u3000éÉ¦１２"},
    {"deepseek-v3", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/\n¦42"},
    {"deepseek-v3", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"qwen35", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I¦'VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"qwen35", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"qwen35", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦1¦4¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"qwen35", "中文 12あア。\u3000éÉ１２", "中文¦ ¦1¦2¦あア¦。¦\u3000éÉ¦１¦２"},
    {"qwen35", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/\n¦4¦2"},
    {"qwen35", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"tekken", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I¦'VE¦ ¦1¦2¦3¦4¦5¦ ¦ it¦'s"},
    {"tekken", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"tekken", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦1¦4¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"tekken", "中文 12あア。\u3000éÉ１２", "中文¦ ¦1¦2¦あア¦。¦\u3000é¦É¦１¦２"},
    {"tekken", "HTTPServer's naïve/\n42", "HTTPServer¦'s¦ naïve¦/\n¦4¦2"},
    {"tekken", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
    {"gpt-4o", "Hello, y'all! I'VE 12345  it's", "Hello¦,¦ y¦'all¦!¦ I'VE¦ ¦123¦45¦ ¦ it's"},
    {"gpt-4o", "a\r\n\n  b\t\tc   ", "a¦\r\n\n¦ ¦ b¦\t¦\tc¦   "},
    {"gpt-4o", "x=3.14 +(foo_bar)`$5`", "x¦=¦3¦.¦14¦ +(¦foo¦_bar¦)`$¦5¦`"},
    {"gpt-4o", "中文 12あア。\u3000éÉ１２", "中文¦ ¦12¦あア¦。¦\u3000é¦É¦１２"},
    {"gpt-4o", "HTTPServer's naïve/\n42", "HTTPServer's¦ naïve¦/\n¦42"},
    {"gpt-4o", "  \n x 1  ", "  \n¦ x¦ ¦1¦  "},
};

struct joined {
    const char *at; /* where the next piece begins */
    const uint32_t *runes;
    size_t next;
    char text[512];
};

static rf_status join(void *user, size_t begin, size_t end) {
    struct joined *joined = user;
    RF_ASSERT_UINT(begin, joined->next);
    RF_ASSERT(end > begin);
    if (begin > 0) strcat(joined->text, "¦");
    for (size_t i = begin; i < end; i++) {
        strncat(joined->text, joined->at, rf_rune_bytes(joined->runes[i]));
        joined->at += rf_rune_bytes(joined->runes[i]);
    }
    joined->next = end;
    return RF_OK;
}

static size_t to_runes(const char *text, size_t bytes, uint32_t *runes) {
    size_t count = 0;
    for (size_t at = 0, taken; at < bytes; at += taken)
        runes[count++] = rf_rune(rf_utf8_decode(text + at, bytes - at, &taken));
    return count;
}

RF_TEST_CASES(pretokenize, cuts, struct cut, cuts) {
    uint32_t runes[256];
    const struct rf_pretokenizer *pre = rf_pretokenizer_find(c->pre, strlen(c->pre));
    RF_ASSERT_NOT_NULL(pre);
    size_t count = to_runes(c->text, strlen(c->text), runes);
    struct joined joined = {.at = c->text, .runes = runes};
    RF_ASSERT_OK(rf_pretokenize(pre, runes, count, join, &joined));
    RF_ASSERT_UINT(joined.next, count);
    RF_ASSERT_TEXT(joined.text, c->pieces);
}

RF_TEST(pretokenize, folds_the_long_s_in_contractions) {
    static const char text[] = "x'\xc5\xbfy"; /* U+017F: (?i:'s) takes it, 's does not */
    static const char *const expected[][2] = {{"gpt-2", "x¦'¦\xc5\xbfy"}, {"llama-bpe", "x¦'\xc5\xbf¦y"}};
    for (size_t i = 0; i < 2; i++) {
        uint32_t runes[16];
        size_t count = to_runes(text, strlen(text), runes);
        struct joined joined = {.at = text, .runes = runes};
        const struct rf_pretokenizer *pre = rf_pretokenizer_find(expected[i][0], strlen(expected[i][0]));
        RF_ASSERT_OK(rf_pretokenize(pre, runes, count, join, &joined));
        RF_ASSERT_TEXT(joined.text, expected[i][1]);
    }
}

RF_TEST(pretokenize, takes_invalid_bytes_as_symbols) {
    static const char text[] = "a\xff\xc3(b";
    uint32_t runes[16];
    size_t count = to_runes(text, strlen(text), runes);
    struct joined joined = {.at = text, .runes = runes};
    RF_ASSERT_OK(rf_pretokenize(rf_pretokenizer_find("gpt-2", 5), runes, count, join, &joined));
    RF_ASSERT_TEXT(joined.text, "a¦\xff\xc3(¦b");
}

static rf_status stop_at_second(void *user, size_t begin, size_t end) {
    (void)begin, (void)end;
    return ++*(int *)user == 2 ? RF_E_CLOSED : RF_OK;
}

RF_TEST(pretokenize, stops_where_the_visitor_fails) {
    uint32_t runes[16];
    int visits = 0;
    size_t count = to_runes("a b c d", 7, runes);
    RF_ASSERT_STATUS(rf_pretokenize(rf_pretokenizer_find("gpt-2", 5), runes, count, stop_at_second, &visits),
                     RF_E_CLOSED);
    RF_ASSERT_INT(visits, 2);
}

RF_TEST(pretokenize, names) {
    char names[768], small[12];
    rf_pretokenizer_names(names, sizeof names);
    static const char *const wanted[] = {"gpt-2", "llama-bpe", "qwen2",  "deepseek-llm", "deepseek-coder", "falcon",
                                         "mpt",   "starcoder", "refact", "smollm",       "default"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        RF_EXPECT_CONTAINS(names, wanted[i]);
        RF_EXPECT(rf_pretokenizer_find(wanted[i], strlen(wanted[i])) != NULL);
    }
    RF_ASSERT(strlen(names) + 1 < sizeof names);
    RF_ASSERT(strlen(rf_pretokenizer_names(small, sizeof small)) == sizeof small - 1);
    RF_ASSERT_NULL(rf_pretokenizer_find("gpt-2x", 6));
    RF_ASSERT_NULL(rf_pretokenizer_find("gpt-", 4));
    RF_ASSERT_NULL(rf_pretokenizer_find("", 0));
}

/* Llama 3 and Tekken, under all their names: the others merge, and begin with no token unless the model says so. */
RF_TEST(pretokenize, who_takes_whole_pieces_first_and_adds_a_beginning) {
    static const char *const they[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"};
    char names[768];
    int found = 0;
    rf_pretokenizer_names(names, sizeof names);
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", ")) {
        const struct rf_pretokenizer *pre = rf_pretokenizer_find(name, strlen(name));
        RF_ASSERT_NOT_NULL(pre);
        bool wanted = false;
        for (size_t i = 0; i < sizeof they / sizeof they[0]; i++) wanted |= strcmp(they[i], name) == 0;
        found += wanted;
        RF_TRACE("%s", name);
        RF_EXPECT(pre->whole_first == wanted);
        RF_EXPECT(pre->add_bos == wanted);
    }
    RF_EXPECT_INT(found, (int)(sizeof they / sizeof they[0]));
}

/* ---- characters ---- */

RF_TEST(unicode, runes_know_their_bytes) {
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        char text[4];
        size_t bytes = rf_utf8_encode(code, text);
        uint32_t rune = rf_rune(code);
        if (RF_RUNE_CODE(rune) != code || rf_rune_bytes(rune) != bytes) RF_FAIL("the rune of U+%04X is wrong", code);
    }
    RF_ASSERT_UINT(rf_rune_bytes(rf_rune(RF_CODE_INVALID)), 1);
    RF_ASSERT(rf_rune(RF_CODE_INVALID) & RF_RUNE_SYMBOL);
}

RF_TEST(unicode, classes) {
    static const struct {
        uint32_t code, classes;
    } cases[] = {
        {'A', RF_RUNE_UPPER},
        {'z', RF_RUNE_LOWER},
        {0x1c5, RF_RUNE_TITLE},
        {0x2b0, RF_RUNE_MODIFIER},
        {0x4e2d, RF_RUNE_OTHER_LETTER},
        {'7', RF_RUNE_NUMBER},
        {0xbd, RF_RUNE_NUMBER},
        {0x2167, RF_RUNE_NUMBER},
        {'_', RF_RUNE_PUNCTUATION},
        {0x3002, RF_RUNE_PUNCTUATION},
        {'$', RF_RUNE_SYMBOL},
        {'`', RF_RUNE_SYMBOL},
        {0x1f600, RF_RUNE_SYMBOL},
        {0x301, RF_RUNE_MARK},
        {0xe31, RF_RUNE_MARK},
        {' ', RF_RUNE_SPACE},
        {'\n', RF_RUNE_SPACE},
        {0x85, RF_RUNE_SPACE},
        {0xa0, RF_RUNE_SPACE},
        {0x3000, RF_RUNE_SPACE},
        {0x1c, 0},
        {0x200b, 0},
        {0, 0},
        {0x10ffff, 0},
        {0x10fffd, 0},
        {0xad, 0},
        {0x3134a, RF_RUNE_OTHER_LETTER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RF_TRACE("U+%04X", cases[i].code);
        RF_EXPECT_UINT(rf_rune(cases[i].code), cases[i].code | cases[i].classes);
    }
    RF_ASSERT(rf_rune('A') & RF_RUNE_LETTER);
    RF_ASSERT_UINT(RF_RUNE_CODE(rf_unicode_ranges[0]), 0);
    for (uint32_t i = 1; i < rf_unicode_range_count; i++)
        if (RF_RUNE_CODE(rf_unicode_ranges[i]) <= RF_RUNE_CODE(rf_unicode_ranges[i - 1]))
            RF_FAIL("range %u is not sorted", i);
}
