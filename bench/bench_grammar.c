/* What grammars cost: making one, the trie of a vocabulary of 128,000 tokens, and the mask of tokens that may follow,
 * for the first time in a state (cold) and again (warm).
 *
 *   bench_grammar [--quick] [FILE.gguf]     with that file's vocabulary instead of one made here */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/rocmforge.h>

#include "base/base.h"
#include "tokenizer/tokenizer.h"

enum { TOKENS = 128000, TEXT_BYTES = 64, TOOLS = 200 };

static uint64_t state = 1;
static uint32_t draw(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void check(rf_status status) {
    if (!status) return;
    fprintf(stderr, "bench_grammar: %s\n", rf_error_text());
    exit(1);
}

/* Like that of a model: bytes, numbers, punctuation that comes together, words with and without a blank before them,
 * some of other scripts. */
static void make_text(uint32_t id, char *text) {
    static const char *const marks[] = {"\"",  "\":",  "\",", "\"}", "{\"", "[\"", "],",   "}",     "{",
                                        "[",   "]",    ":",   ",",   "(",   ");",  "\n",   "\n\n",  "\t",
                                        "\\n", "\\\"", "//",  "=\"", "\">", " \"", ": \"", "\", \""};
    static const char vowels[] = "eaiouy", consonants[] = "tnsrhldcmfpgwbvkxjqz";
    size_t at = 0;
    if (id < 256) {
        sprintf(text, "<0x%02X>", id);
        return;
    }
    if (id < 256 + 1110) {
        sprintf(text, "%u", id - 256);
        return;
    }
    uint32_t kind = draw(100);
    if (kind < 55) at += (size_t)sprintf(text, "\xe2\x96\x81");
    if (kind < 6) at += (size_t)sprintf(text + at, "%s", marks[draw(RF_COUNT(marks))]);
    if (kind >= 94) { /* CJK */
        for (uint32_t i = 0, count = 1 + draw(3); i < count; i++) {
            uint32_t code = 0x4e00 + draw(0x5000);
            at +=
                (size_t)sprintf(text + at, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 63), 0x80 | (code & 63));
        }
        return;
    }
    for (uint32_t i = 0, count = 1 + draw(4); i < count; i++)
        at += (size_t)sprintf(text + at, "%c%c", consonants[draw(draw(20) + 1)], vowels[draw(draw(6) + 1)]);
    if (kind >= 85) sprintf(text + at, "%s", marks[draw(RF_COUNT(marks))]);
}

static struct rf_tokenizer *make_tokenizer(void) {
    struct rf_vocab_token *tokens = calloc(TOKENS, sizeof *tokens);
    char(*texts)[TEXT_BYTES] = calloc(TOKENS, sizeof *texts);
    struct rf_tokenizer *tokenizer = NULL;
    for (uint32_t i = 0; i < TOKENS; i++) {
        make_text(i, texts[i]);
        if (i == TOKENS - 1) strcpy(texts[i], "</s>");
        tokens[i].text = (struct rf_vocab_text){texts[i], strlen(texts[i])};
        tokens[i].type = i < 256 ? RF_TOKEN_BYTE : i == TOKENS - 1 ? RF_TOKEN_CONTROL : RF_TOKEN_NORMAL;
        tokens[i].score = -(float)i;
    }
    struct rf_vocab vocab = {.family = RF_VOCAB_LLAMA,
                             .tokens = tokens,
                             .token_count = TOKENS,
                             .bos = -1,
                             .eos = TOKENS - 1,
                             .unk = -1,
                             .pad = -1,
                             .eot = -1};
    check(rf_tokenizer_create(&vocab, &tokenizer));
    free(tokens);
    free(texts);
    return tokenizer;
}

static char *tools_schema(void) {
    size_t size = 400 * TOOLS, at = 0;
    char *text = malloc(size);
    at += (size_t)sprintf(text, "{\"anyOf\":[");
    for (int i = 0; i < TOOLS; i++)
        at += (size_t)sprintf(
            text + at,
            "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"tool_%d\"},\"arguments\":{\"type\":"
            "\"object\","
            "\"properties\":{\"query_%d\":{\"type\":\"string\"},\"limit\":{\"type\":\"integer\"}},\"required\":["
            "\"query_%d\"],"
            "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}",
            i ? "," : "", i, i, i);
    sprintf(text + at, "]}");
    return text;
}

struct place {
    const char *label, *schema, *text; /* schema: NULL: any JSON object */
};

static void measure(const struct place *place, const struct rf_token_trie *trie, size_t words, int rounds) {
    RF_PARAMS(struct rf_grammar_params, params);
    struct rf_grammar *grammar = NULL;
    uint32_t *mask = calloc(words, sizeof *mask);
    params.kind = place->schema ? RF_GRAMMAR_JSON_SCHEMA : RF_GRAMMAR_JSON;
    params.text = place->schema;
    params.bytes = place->schema ? strlen(place->schema) : 0;
    int64_t began = rf_now_ns();
    check(rf_grammar_create(&params, &grammar));
    double made = (double)(rf_now_ns() - began) / 1e6, cold = 1e9, warm = 1e9, push = 1e9;
    for (int i = 0; i < rounds; i++) {
        struct rf_grammar_matcher *matcher = NULL;
        check(rf_grammar_matcher_create(grammar, &matcher));
        check(rf_grammar_matcher_mask(matcher, trie, mask, words)); /* its memory */
        began = rf_now_ns();
        check(rf_grammar_matcher_push(matcher, place->text, strlen(place->text)));
        push = RF_MIN(push, (double)(rf_now_ns() - began) / 1e3);
        for (int k = 0; k < 10; k++) {
            began = rf_now_ns();
            check(rf_grammar_matcher_mask(matcher, trie, mask, words));
            double took = (double)(rf_now_ns() - began) / 1e3;
            if (k)
                warm = RF_MIN(warm, took);
            else
                cold = RF_MIN(cold, took);
        }
        rf_grammar_matcher_destroy(&matcher);
    }
    size_t allowed = 0;
    for (size_t i = 0; i < words; i++) allowed += (size_t)__builtin_popcount(mask[i]);
    printf("  %-40s cold %8.1f us  warm %6.1f us  allowed %6zu  text in %7.1f us  grammar made in %6.1f ms\n",
           place->label, cold, warm, allowed, push, made);
    rf_grammar_destroy(&grammar);
    free(mask);
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    const char *path = argc > 1 + quick ? argv[1 + quick] : NULL;
    struct rf_tokenizer *tokenizer = NULL;
    struct rf_token_trie *trie = NULL;
    if (path)
        check(rf_tokenizer_open(path, &tokenizer));
    else
        tokenizer = make_tokenizer();
    RF_PARAMS(struct rf_tokenizer_info, info);
    check(rf_tokenizer_get_info(tokenizer, &info));
    int64_t began = rf_now_ns();
    check(rf_token_trie_create(NULL, tokenizer, &trie));
    printf("%s: %d tokens, trie made in %.1f ms\n", path ? path : "made here", info.token_count,
           (double)(rf_now_ns() - began) / 1e6);
    char *tools = tools_schema();
    static const char person[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":500},\"age\":{\"type\":"
        "\"integer\","
        "\"minimum\":0,\"maximum\":150},\"mail\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9.]+@[a-z0-9.]+$\"},"
        "\"tags\":{\"type\":"
        "\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}";
    const struct place places[] = {
        {"JSON: in a string", NULL, "{\"a\": \"hello"},
        {"JSON: behind {", NULL, "{"},
        {"JSON: in a name", NULL, "{\"ab"},
        {"JSON: before a value", NULL, "{\"a\": "},
        {"JSON: in a number", NULL, "{\"a\": 12"},
        {"JSON: behind a value", NULL, "{\"a\": true"},
        {"JSON: in a string, 20 deep", NULL, "{\"a\": [[[[[[[[[[[[[[[[[[[\"x"},
        {"schema: in a string, maxLength 500", person, "{\"name\": \"Ann"},
        {"schema: in a name", person, "{\"na"},
        {"schema: in an integer with bounds", person, "{\"age\": 1"},
        {"schema: in a string with a pattern", person, "{\"mail\": \"a.b"},
        {"schema: in an array's string", person, "{\"tags\": [\"x\", \"y"},
        {"schema: any value", "{}", "\"x"},
        {"maxLength 100000", "{\"type\":\"string\",\"maxLength\":100000}", "\"x"},
        {"200 tools: behind {", tools, "{"},
        {"200 tools: in an argument", tools, "{\"name\": \"tool_7\", \"arguments\": {\"query_7\": \"x"},
    };
    for (size_t i = 0; i < RF_COUNT(places); i++)
        measure(&places[i], trie, ((size_t)info.token_count + 31) / 32, quick ? 1 : 20);
    free(tools);
    rf_token_trie_destroy(&trie);
    rf_tokenizer_destroy(&tokenizer);
    return 0;
}
