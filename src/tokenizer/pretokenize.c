/* The pre-tokenizers: each regular expression as a scanner over runes.
 *
 * A scanner finds the match that begins exactly at a given position, as a backtracking engine would:
 * alternatives are tried in order, repetitions are as long as possible and give back only what the rest
 * of the expression needs. The comment above each scanner has its expression. In it, \s is White_Space and
 * \p{..} the general category; a byte that is not UTF-8 counts as U+FFFD, a symbol.
 *
 * Invariants: a scanner looks at nothing outside its piece. All scanners of one piece together
 * look at each rune a bounded number of times: if an expression could fail after looking far ahead,
 * the next position must not look ahead again. It is asserted that a match ends within its piece;
 * tests/tokenizer/tokenizer_property.c bounds the steps that an encoding counts. */
#include "tokenizer/pretokenize.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tokenizer/unicode.h"

/* Returns where the match that begins at `at` ends; `at` itself: no match. The piece is [begin, end). */
typedef size_t (*match_fn)(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules);

struct rf_split_stage {
    match_fn match;
    const void *rules;
};

struct span {
    const struct rf_pretokenizer *pretokenizer;
    const uint32_t *runes;
    rf_piece_fn visit;
    void *user;
};

static rf_status split(const struct span *span, size_t stage_index, size_t begin, size_t end) {
    if (begin == end) return RF_OK;
    if (stage_index == span->pretokenizer->stage_count) return span->visit(span->user, begin, end);
    const struct rf_split_stage *stage = &span->pretokenizer->stages[stage_index];
    size_t gap = begin; /* where text begins that no match has taken yet */
    rf_status status = RF_OK;
    for (size_t at = begin; at < end && !status;) {
        size_t after = stage->match(span->runes, begin, at, end, stage->rules);
        rf_assert(after >= at && after <= end);
        if (after == at) {
            at++;
            continue;
        }
        status = split(span, stage_index + 1, gap, at);
        if (!status) status = split(span, stage_index + 1, at, after);
        gap = at = after;
    }
    return status ? status : split(span, stage_index + 1, gap, end);
}

rf_status rf_pretokenize(const struct rf_pretokenizer *pretokenizer, const uint32_t *runes, size_t count,
                         rf_piece_fn visit, void *user) {
    const struct span span = {pretokenizer, runes, visit, user};
    return split(&span, 0, 0, count);
}

/* ---- what the scanners share ---- */

#define LETTER RF_RUNE_LETTER
#define NUMBER RF_RUNE_NUMBER
#define SPACE RF_RUNE_SPACE

static uint32_t code_at(const uint32_t *runes, size_t at) {
    return RF_RUNE_CODE(runes[at]);
}

static bool is_newline(uint32_t rune) {
    return RF_RUNE_CODE(rune) == '\r' || RF_RUNE_CODE(rune) == '\n';
}

/* The end of a run of runes that have one of these classes. */
static size_t run_of(const uint32_t *runes, size_t at, size_t end, uint32_t classes) {
    while (at < end && (runes[at] & classes)) at++;
    return at;
}

/* The end of a run of runes that have none of these classes. */
static size_t run_without(const uint32_t *runes, size_t at, size_t end, uint32_t classes) {
    while (at < end && !(runes[at] & classes)) at++;
    return at;
}

struct code_range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t code, const struct code_range *ranges, size_t count) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && code >= ranges[low].first;
}

/* 's|'t|'re|'ve|'m|'ll|'d; with fold (?i:…), in which U+017F, the long s, is an s too. */
static size_t match_contraction(const uint32_t *runes, size_t at, size_t end, bool fold) {
    if (end - at < 2 || code_at(runes, at) != '\'') return at;
    uint32_t letters[2] = {0, 0};
    for (size_t i = 0; i < 2 && at + 1 + i < end; i++) {
        uint32_t code = code_at(runes, at + 1 + i);
        if (fold && code >= 'A' && code <= 'Z') code += 'a' - 'A';
        if (fold && code == 0x17f) code = 's';
        letters[i] = code;
    }
    switch (letters[0]) {
    case 's':
    case 't':
    case 'm':
    case 'd': return at + 2;
    case 'r':
    case 'v': return letters[1] == 'e' ? at + 3 : at;
    case 'l': return letters[1] == 'l' ? at + 3 : at;
    default: return at;
    }
}

/* \s+(?!\S)|\s+ : a run of white space without its last rune, which belongs to the word that follows; the
 * whole run at the end of the piece, or if it is a single rune. */
static size_t match_spaces(const uint32_t *runes, size_t at, size_t end) {
    size_t after = run_of(runes, at, end, SPACE);
    return after < end && after - at > 1 ? after - 1 : after;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last newline of a run of white space, if it has one. */
static size_t match_lines_or_spaces(const uint32_t *runes, size_t at, size_t end) {
    size_t after = run_of(runes, at, end, SPACE);
    for (size_t i = after; i > at; i--)
        if (is_newline(runes[i - 1])) return i;
    return match_spaces(runes, at, end);
}

/* ---- the stages ---- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t match_gpt2(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin, (void)rules;
    size_t after = match_contraction(runes, at, end, false);
    if (after > at) return after;
    size_t word = at + (code_at(runes, at) == ' ');
    if (word < end) {
        if (runes[word] & LETTER) return run_of(runes, word, end, LETTER);
        if (runes[word] & NUMBER) return run_of(runes, word, end, NUMBER);
        if (!(runes[word] & SPACE)) return run_without(runes, word, end, SPACE | LETTER | NUMBER);
    }
    return match_spaces(runes, at, end);
}

/* The newer expressions all have one shape; this is how they differ. */
struct modern {
    uint32_t letters;   /* the classes of which words are made */
    uint32_t word_ends; /* the classes that stop a run of symbols, besides white space */
    size_t digits;      /* at most this many numbers in one piece */
};
static const struct modern llama3_rules = {LETTER, LETTER | NUMBER, 3};
static const struct modern qwen2_rules = {LETTER, LETTER | NUMBER, 1};
static const struct modern qwen35_rules = {LETTER | RF_RUNE_MARK, LETTER | RF_RUNE_MARK | NUMBER, 1};

/* Whether a rune is in [^\r\n\p{L}\p{N}], which may stand before a word. */
static bool may_lead(uint32_t rune) {
    return !is_newline(rune) && !(rune & (LETTER | NUMBER));
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_modern(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    const struct modern *how = rules;
    size_t after = match_contraction(runes, at, end, true);
    if (after > at) return after;
    if (may_lead(runes[at]) && at + 1 < end && (runes[at + 1] & how->letters))
        return run_of(runes, at + 1, end, how->letters);
    if (runes[at] & how->letters) return run_of(runes, at, end, how->letters);
    if (runes[at] & NUMBER) return run_of(runes, at, RF_MIN(end, at + how->digits), NUMBER);
    size_t symbols = at + (code_at(runes, at) == ' ');
    after = run_without(runes, symbols, end, SPACE | how->word_ends);
    if (after > symbols) {
        while (after < end && is_newline(runes[after])) after++;
        return after;
    }
    return match_lines_or_spaces(runes, at, end);
}

struct cased {
    bool contractions;
    size_t digits;
};
static const struct cased tekken_rules = {false, 1};
static const struct cased gpt4o_rules = {true, 3};

/* The end of a word of the first two alternatives below that begins at `at`; `at`: there is none. */
static size_t match_cased_word(const uint32_t *runes, size_t at, size_t end) {
    const uint32_t either = RF_RUNE_MODIFIER | RF_RUNE_OTHER_LETTER | RF_RUNE_MARK;
    const uint32_t upper = RF_RUNE_UPPER | RF_RUNE_TITLE | either, lower = RF_RUNE_LOWER | either;
    size_t after = run_of(runes, at, end, upper);
    if (after < end && (runes[after] & lower)) return run_of(runes, after, end, lower);
    while (after > at && !(runes[after - 1] & lower)) after--; /* upper gives runes back until lower has one */
    return after;
}

/* [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|…)?
 * |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|…)?
 * |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_cased(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    const struct cased *how = rules;
    const uint32_t upper = RF_RUNE_UPPER | RF_RUNE_TITLE | RF_RUNE_MODIFIER | RF_RUNE_OTHER_LETTER | RF_RUNE_MARK;
    bool leads = may_lead(runes[at]);
    size_t word = at + 1, after = leads ? match_cased_word(runes, word, end) : word;
    if (after == word) after = match_cased_word(runes, word = at, end);
    if (after == word && leads) after = run_of(runes, word = at + 1, end, upper);
    if (after == word) after = run_of(runes, word = at, end, upper);
    if (after > word) return how->contractions ? match_contraction(runes, after, end, true) : after;
    if (runes[at] & NUMBER) return run_of(runes, at, RF_MIN(end, at + how->digits), NUMBER);
    size_t symbols = at + (code_at(runes, at) == ' ');
    after = run_without(runes, symbols, end, SPACE | LETTER | NUMBER);
    if (after > symbols) {
        while (after < end && (is_newline(runes[after]) || code_at(runes, after) == '/')) after++;
        return after;
    }
    return match_lines_or_spaces(runes, at, end);
}

/* \p{N}, \p{N}{1,3}, \p{N}+ : a run of at least one and at most this many numbers. */
static const size_t one = 1, three = 3, all = SIZE_MAX;
static size_t match_numbers(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    size_t most = *(const size_t *)rules;
    return run_of(runes, at, end - at > most ? at + most : end, NUMBER);
}

/* [0-9][0-9][0-9] */
static size_t match_three_digits(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin, (void)rules;
    if (end - at < 3) return at;
    for (size_t i = at; i < at + 3; i++)
        if (code_at(runes, i) < '0' || code_at(runes, i) > '9') return at;
    return at + 3;
}

/* [\p{P}\$\+<=>\^~\|]+, or for Falcon [\p{P}\$\+<=>\^~\|`]+ : all ASCII punctuation and \p{P}. */
static const char ascii_symbols[] = "$+<=>^~|", falcon_symbols[] = "$+<=>^~|`";
static size_t match_punctuation(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    const char *also = rules;
    while (at < end) {
        uint32_t code = code_at(runes, at);
        if (!(runes[at] & RF_RUNE_PUNCTUATION) && !(code > 0 && code < 0x80 && strchr(also, (int)code))) break;
        at++;
    }
    return at;
}

/* [\r\n] */
static size_t match_newline(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin, (void)end, (void)rules;
    return at + is_newline(runes[at]);
}

/* \s?\p{L}+ and \s?\p{P}+ */
static const uint32_t letters = RF_RUNE_LETTER, punctuation = RF_RUNE_PUNCTUATION;
static size_t match_spaced_class(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    uint32_t classes = *(const uint32_t *)rules;
    size_t word = at + ((runes[at] & SPACE) != 0), after = run_of(runes, word, end, classes);
    return after > word ? after : at; /* no white space is a letter or punctuation: nothing to give back */
}

struct code_set {
    const struct code_range *ranges;
    size_t count;
};
#define CODE_SET(ranges) {(ranges), RF_COUNT(ranges)}

static size_t run_in(const uint32_t *runes, size_t at, size_t end, const struct code_set *set) {
    while (at < end && in_ranges(code_at(runes, at), set->ranges, set->count)) at++;
    return at;
}

/* [set]+ */
static size_t match_set(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    return run_in(runes, at, end, rules);
}

/* \s?[set]+ : white space that is itself in the set is given back if nothing follows it. */
static size_t match_spaced_set(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin;
    if (runes[at] & SPACE) {
        size_t after = run_in(runes, at + 1, end, rules);
        if (after > at + 1) return after;
    }
    return run_in(runes, at, end, rules);
}

/* \s+$ : only the position where a run begins looks for its end. */
static size_t match_trailing_spaces(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)rules;
    if (!(runes[at] & SPACE) || !(runes[end - 1] & SPACE)) return at;
    if (at > begin && (runes[at - 1] & SPACE)) return at;
    return run_of(runes, at, end, SPACE) == end ? end : at;
}

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 * | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_deepseek3(const uint32_t *runes, size_t begin, size_t at, size_t end, const void *rules) {
    (void)begin, (void)rules;
    const uint32_t marked = LETTER | RF_RUNE_MARK, symbol = RF_RUNE_PUNCTUATION | RF_RUNE_SYMBOL;
    size_t after = at + 1;
    if (code_at(runes, at) < 0x80 && (runes[at] & symbol)) {
        while (after < end && code_at(runes, after) < 0x80 && (runes[after] & LETTER)) after++;
        if (after > at + 1) return after;
    }
    if (!is_newline(runes[at]) && !(runes[at] & (LETTER | symbol)) && at + 1 < end && (runes[at + 1] & marked))
        return run_of(runes, at + 1, end, marked);
    if (runes[at] & marked) return run_of(runes, at, end, marked);
    size_t symbols = at + (code_at(runes, at) == ' ');
    after = run_of(runes, symbols, end, symbol);
    if (after > symbols) {
        while (after < end && is_newline(runes[after])) after++;
        return after;
    }
    return match_lines_or_spaces(runes, at, end);
}

/* ---- the sets ---- */

/* [一-龥ࠀ-一가-퟿] */
static const struct code_range cjk_ranges[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
static const struct code_set cjk = CODE_SET(cjk_ranges);
/* [一-龥぀-ゟ゠-ヿ] */
static const struct code_range kana_ranges[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
static const struct code_set han_and_kana = CODE_SET(kana_ranges);
/* [!-/:-~！-／：-～‘-‟　-。] */
static const struct code_range wide_punctuation_ranges[] = {{0x21, 0x2f},     {0x3a, 0x7e},     {0x2018, 0x201f},
                                                            {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
static const struct code_set wide_punctuation = CODE_SET(wide_punctuation_ranges);
/* The cased letters of an older Unicode, as deepseek-llm lists them. */
static const struct code_range cased_ranges[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},
    {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},
    {0x376, 0x376},     {0x377, 0x377},     {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},
    {0x388, 0x38a},     {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},
    {0x48a, 0x52f},     {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},
    {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},
    {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},
    {0x1fb6, 0x1fbc},   {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},
    {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},
    {0x213c, 0x213f},   {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2183},   {0x2184, 0x2184},
    {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf2},   {0x2cf3, 0x2cf3},
    {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},   {0xff41, 0xff5a},
    {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2},
    {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};
static const struct code_set cased_letters = CODE_SET(cased_ranges);

/* ---- the names ---- */

static const struct rf_split_stage gpt2_stages[] = {{match_gpt2, NULL}};
static const struct rf_split_stage default_stages[] = {
    {match_punctuation, ascii_symbols}, {match_gpt2, NULL}, {match_numbers, &all}, {match_three_digits, NULL}};
static const struct rf_split_stage falcon_stages[] = {
    {match_punctuation, falcon_symbols}, {match_gpt2, NULL}, {match_three_digits, NULL}};
static const struct rf_split_stage starcoder_stages[] = {{match_numbers, &one}, {match_gpt2, NULL}};
static const struct rf_split_stage llama3_stages[] = {{match_modern, &llama3_rules}};
static const struct rf_split_stage qwen2_stages[] = {{match_modern, &qwen2_rules}};
static const struct rf_split_stage qwen35_stages[] = {{match_modern, &qwen35_rules}};
static const struct rf_split_stage tekken_stages[] = {{match_cased, &tekken_rules}};
static const struct rf_split_stage gpt4o_stages[] = {{match_cased, &gpt4o_rules}};
static const struct rf_split_stage deepseek_llm_stages[] = {{match_newline, NULL},
                                                            {match_spaced_set, &cased_letters},
                                                            {match_spaced_set, &wide_punctuation},
                                                            {match_trailing_spaces, NULL},
                                                            {match_set, &cjk},
                                                            {match_numbers, &all}};
static const struct rf_split_stage deepseek_coder_stages[] = {{match_newline, NULL},
                                                              {match_spaced_class, &letters},
                                                              {match_spaced_class, &punctuation},
                                                              {match_set, &cjk},
                                                              {match_numbers, &one}};
static const struct rf_split_stage deepseek3_stages[] = {
    {match_numbers, &three}, {match_set, &han_and_kana}, {match_deepseek3, NULL}};

#define STAGES(stages) (stages), RF_COUNT(stages)
static const struct rf_pretokenizer pretokenizers[] = {
    {"default", STAGES(default_stages), false, false},
    {"gpt-2", STAGES(gpt2_stages), false, false},
    {"phi-2", STAGES(gpt2_stages), false, false},
    {"mpt", STAGES(gpt2_stages), false, false},
    {"olmo", STAGES(gpt2_stages), false, false},
    {"llama-bpe", STAGES(llama3_stages), true, true},
    {"llama3", STAGES(llama3_stages), true, true},
    {"llama-v3", STAGES(llama3_stages), true, true},
    {"falcon3", STAGES(llama3_stages), true, true},
    {"smaug-bpe", STAGES(llama3_stages), false, false},
    {"dbrx", STAGES(llama3_stages), false, false},
    {"qwen2", STAGES(qwen2_stages), false, false},
    {"deepseek-r1-qwen", STAGES(qwen2_stages), false, false},
    {"stablelm2", STAGES(qwen2_stages), false, false},
    {"qwen35", STAGES(qwen35_stages), false, false},
    {"deepseek-llm", STAGES(deepseek_llm_stages), false, false},
    {"deepseek-coder", STAGES(deepseek_coder_stages), false, false},
    {"deepseek-v3", STAGES(deepseek3_stages), false, false},
    {"falcon", STAGES(falcon_stages), false, false},
    {"starcoder", STAGES(starcoder_stages), false, false},
    {"refact", STAGES(starcoder_stages), false, false},
    {"command-r", STAGES(starcoder_stages), false, false},
    {"smollm", STAGES(starcoder_stages), false, false},
    {"codeshell", STAGES(starcoder_stages), false, false},
    {"tekken", STAGES(tekken_stages), true, true},
    {"gpt-4o", STAGES(gpt4o_stages), false, false},
    {"llama4", STAGES(gpt4o_stages), false, false},
};

const struct rf_pretokenizer *rf_pretokenizer_find(const char *name, size_t bytes) {
    for (size_t i = 0; i < RF_COUNT(pretokenizers); i++)
        if (strlen(pretokenizers[i].name) == bytes && memcmp(pretokenizers[i].name, name, bytes) == 0)
            return &pretokenizers[i];
    return NULL;
}

const char *rf_pretokenizer_names(char *text, size_t size) {
    size_t used = 0;
    if (size) text[0] = 0;
    for (size_t i = 0; i < RF_COUNT(pretokenizers) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", pretokenizers[i].name);
    return text;
}
