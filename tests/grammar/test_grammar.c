/* Grammars: what each notation takes and refuses, limits, masks against matching token by token, and memory. */
#include <rocmforge/rocmforge.h>
#include <rocmforge/test.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "grammar_property.h"
#include "runtime/runtime.h"
#include "tokenizer/tokenizer.h"

static rf_status try_make(enum rf_grammar_kind kind, const char *text, size_t bytes, struct rf_grammar **grammar) {
    RF_PARAMS(struct rf_grammar_params, params);
    params.kind = kind;
    params.text = text;
    params.bytes = bytes;
    return rf_grammar_create(&params, grammar);
}

static bool matches(const struct rf_grammar *grammar, const char *text) {
    struct rf_grammar_matcher *matcher = NULL;
    RF_ASSERT_OK(rf_grammar_matcher_create(grammar, &matcher));
    bool good = !rf_grammar_matcher_push(matcher, text, strlen(text)) && rf_grammar_matcher_is_complete(matcher);
    rf_grammar_matcher_destroy(&matcher);
    return good;
}

/* ---- texts ---- */

static const struct language {
    const char *label;
    enum rf_grammar_kind kind;
    const char *grammar;
    const char *accepted[6], *rejected[6];
} languages[] = {
    {"json",
     RF_GRAMMAR_JSON,
     "",
     {"{}", "{\"a\": [1, -2.5e+3, {\"b\": null}]}", "{\n  \"x\": \"\\ud83d\\ude00\"\n}", " {}"},
     {"[]", "{\"a\": 01}", "{\"a\": \"\\ud83d\"}", "{\"a\" : 1}", "{} ", "{\"a\":1,}"}},
    {"gbnf_json_like",
     RF_GRAMMAR_GBNF,
     "root ::= \"[\" ws (item (\",\" ws item)*)? \"]\" # a list\nitem ::= [0-9]+ | \"\\\"\" [^\"\\\\\\x00-\\x1f]* "
     "\"\\\"\"\nws ::= [ \\t]*\n",
     {"[]", "[1,2]", "[ \"\u00e9\", 33]"},
     {"[,]", "[1", "[\"a]"}},
    {"gbnf_repeats",
     RF_GRAMMAR_GBNF,
     "root ::= a{2} b{1,} (\n  c{0,2}\n  | .\n)\na ::= \"a\"\nb::=\"b\"\nc ::= [\\u4e00-\\u9fff]",
     {"aab", "aabbb", "aab\u4e2d\u4e2d", "aab\U0001f600"},
     {"ab", "aa", "aab\u4e2d\u4e2d\u4e2d"}},
    {"gbnf_recursive",
     RF_GRAMMAR_GBNF,
     "root ::= \"(\" root? \")\" root?",
     {"()", "(())()", "((()))"},
     {"", "(", ")("}},
    {"regex_whole", RF_GRAMMAR_REGEX, "^(?:a|b)+?c{2,3}\\d\\.$", {"acc1.", "babccc9."}, {"ac1.", "acc1x", "xacc1."}},
    {"regex_nested_stars", RF_GRAMMAR_REGEX, "((a*)*b|(a|a)*){0,1000000000}", {"", "aaaa", "aabab"}, {"c", "ac"}},
    {"json_front", RF_GRAMMAR_JSON, "", {"{}", " {}", "\n{\n  }"}, {"  {}", "\n {}", "\n\n{}", "\t{}"}},
    {"schema_order",
     RF_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"const\":\"x\"}},\"required\":[\"a\"]"
     ",\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"b\": \"x\", \"a\": 2}", "{\"a\":1,\"b\":\"x\"}"},
     {"{}", "{\"b\":\"x\"}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"c\":2}", "{\"a\":1.5}"}},
    {"schema_counts",
     RF_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"minItems\":1,\"maxItems\":3}",
     {"[\"\"]", "[\"\\u00e9b\", \"\U0001f600\U0001f600\"]"},
     {"[]", "[\"abc\"]", "[\"\",\"\",\"\",\"\"]"}},
    {"schema_recursion",
     RF_GRAMMAR_JSON_SCHEMA,
     "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}}}",
     {"[]", "[[],[[]]]"},
     {"[1]", "{}"}},
    {"schema_bounds",
     RF_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":20}",
     {"-1.5", "-1.50", "0", "19.999", "-0"},
     {"-1.51", "20", "20.0", "100", "-2"}},
};
RF_TEST_LABELLED_CASES(grammar, texts, struct language, languages) {
    struct rf_grammar *grammar = NULL;
    RF_ASSERT_OK(try_make(c->kind, c->grammar, strlen(c->grammar), &grammar));
    for (size_t i = 0; i < RF_COUNT(c->accepted) && c->accepted[i]; i++) {
        RF_TRACE("%s", c->accepted[i]);
        RF_EXPECT(matches(grammar, c->accepted[i]));
    }
    for (size_t i = 0; i < RF_COUNT(c->rejected) && c->rejected[i]; i++) {
        RF_TRACE("%s", c->rejected[i]);
        RF_EXPECT(!matches(grammar, c->rejected[i]));
    }
    rf_grammar_destroy(&grammar);
}

/* ---- refusals: one line that says what and where ---- */

static const struct refusal {
    const char *label;
    enum rf_grammar_kind kind;
    const char *grammar;
    rf_status status;
    const char *says;
} refusals[] = {
    {"lookahead", RF_GRAMMAR_REGEX, "a(?=b)", RF_E_UNSUPPORTED, "lookahead"},
    {"lookbehind", RF_GRAMMAR_REGEX, "(?<!b)a", RF_E_UNSUPPORTED, "lookbehind"},
    {"back_reference", RF_GRAMMAR_REGEX, "(a)\\1", RF_E_UNSUPPORTED, "back references"},
    {"word_boundary", RF_GRAMMAR_REGEX, "a\\b", RF_E_UNSUPPORTED, "word boundaries"},
    {"anchor", RF_GRAMMAR_REGEX, "a^b", RF_E_UNSUPPORTED, "^ is supported only"},
    {"open_group", RF_GRAMMAR_REGEX, "a(b", RF_E_SYNTAX, "at byte 3: a group that is not closed"},
    {"nothing_to_repeat", RF_GRAMMAR_REGEX, "*a", RF_E_SYNTAX, "at byte 0: nothing to repeat"},
    {"range", RF_GRAMMAR_REGEX, "[z-a]", RF_E_SYNTAX, "end is before its beginning"},
    {"not_utf8", RF_GRAMMAR_REGEX, "a\xff", RF_E_SYNTAX, "at byte 1: not UTF-8"},
    {"left_recursion", RF_GRAMMAR_GBNF, "root ::= x\nx ::= y \"a\" | \"b\"\ny ::= \"c\"? x", RF_E_UNSUPPORTED,
     "begins with itself"},
    {"no_root", RF_GRAMMAR_GBNF, "a ::= \"b\"", RF_E_SYNTAX, "\"root\" is not defined"},
    {"undefined", RF_GRAMMAR_GBNF, "root ::= a\n  b ::= \"x\"", RF_E_SYNTAX, "line 1: rule \"a\" is not defined"},
    {"twice", RF_GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", RF_E_SYNTAX,
     "line 2: rule \"root\" is defined on line 1"},
    {"token", RF_GRAMMAR_GBNF, "root ::= <think>", RF_E_UNSUPPORTED, "line 1: tokens"},
    {"endless", RF_GRAMMAR_GBNF, "root ::= \"a\" root", RF_E_INVALID, "no text can follow it"},
    {"not_json", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":", RF_E_SYNTAX, "is not JSON"},
    {"unique", RF_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}",
     RF_E_UNSUPPORTED, "#/properties/a/uniqueItems: uniqueItems is not supported"},
    {"unknown", RF_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":{\"maxlength\":3}}}", RF_E_UNSUPPORTED,
     "#/properties/a: the keyword \"maxlength\" is not known"},
    {"one_of", RF_GRAMMAR_JSON_SCHEMA, "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", RF_E_UNSUPPORTED,
     "oneOf is not supported where"},
    {"format", RF_GRAMMAR_JSON_SCHEMA, "{\"items\":{\"format\":\"email\"}}", RF_E_UNSUPPORTED,
     "#/items/format: format \"email\""},
    {"remote", RF_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"http://x/y\"}", RF_E_UNSUPPORTED,
     "only references within the schema"},
    {"absent", RF_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/$defs/a\"}", RF_E_SYNTAX, "there is no such place"},
    {"circle", RF_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}", RF_E_UNSUPPORTED, "refers to itself"},
    {"contradiction", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"pattern\":\"^a?$\"}",
     RF_E_INVALID, "no text can follow it"},
    {"never_ends", RF_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", RF_E_INVALID,
     "no text can follow it"},
};
RF_TEST_LABELLED_CASES(grammar, refusals, struct refusal, refusals) {
    struct rf_grammar *grammar = NULL;
    RF_EXPECT_STATUS(try_make(c->kind, c->grammar, strlen(c->grammar), &grammar), c->status);
    RF_EXPECT_CONTAINS(rf_error_text(), c->says);
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_EXPECT(!grammar);
}

/* ---- blow-ups ---- */

static char *repeated(const char *before, const char *what, size_t times, const char *after, const char *again) {
    size_t size = strlen(before) + times * (strlen(what) + strlen(again)) + strlen(after) + 1, at = 0;
    char *text = malloc(size);
    RF_ASSERT(text);
    at += (size_t)sprintf(text, "%s", before);
    for (size_t i = 0; i < times; i++) at += (size_t)sprintf(text + at, "%s", what);
    at += (size_t)sprintf(text + at, "%s", after);
    for (size_t i = 0; i < times; i++) at += (size_t)sprintf(text + at, "%s", again);
    return text;
}

static const struct blow_up {
    const char *label;
    enum rf_grammar_kind kind;
    const char *before, *what, *after, *again;
    size_t times;
    bool refused;
} blow_ups[] = {
    {"60000_groups", RF_GRAMMAR_REGEX, "", "(", "a", ")", 60000, true},
    {"60000_groups_gbnf", RF_GRAMMAR_GBNF, "root ::= ", "(", "\"a\"", ")", 60000, true},
    {"60000_arrays", RF_GRAMMAR_JSON_SCHEMA, "", "{\"items\":", "{}", "}", 60000, true},
    {"1000_arrays", RF_GRAMMAR_JSON_SCHEMA, "", "{\"items\":", "{}", "}", 1000, false},
    {"200_groups", RF_GRAMMAR_REGEX, "", "(", "a", ")*", 200, false},
    {"long_regex", RF_GRAMMAR_REGEX, "", "a|[b-d]?", "x", "", 100000, false},
    {"max_length", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":100000}", "", "", "", 0, false},
    {"1e9_times", RF_GRAMMAR_REGEX, "(ab?){1000000000}", "", "", "", 0, false},
    {"optional_refs", RF_GRAMMAR_GBNF,
     "root ::= a a\na ::= b? b?\nb ::= c? c?\nc ::= d? d?\nd ::= e? e?\ne ::= f? f?\nf ::= g? g?\ng ::= h? h?\nh ::= "
     "i? i?\n"
     "i ::= j? j?\nj ::= k? k?\nk ::= l? l?\nl ::= m? m?\nm ::= n? n?\nn ::= o? o?\no ::= p? p?\np ::= q? q?\nq ::= "
     "r? r?\nr ::= \"x\"",
     "", "", "", 0, false},
};
RF_TEST_LABELLED_CASES(grammar, blow_ups, struct blow_up, blow_ups, .timeout_ms = 60000) {
    char *text = repeated(c->before, c->what, c->times, c->after, c->again);
    struct rf_grammar *grammar = NULL;
    rf_status status = try_make(c->kind, text, strlen(text), &grammar);
    if (c->refused) RF_EXPECT(status == RF_E_NO_MEMORY || status == RF_E_SYNTAX);
    if (!c->refused) RF_EXPECT_OK(status);
    if (status) RF_EXPECT(!strchr(rf_error_text(), '\n'));
    /* one that is too ambiguous says so when it is used */
    struct rf_grammar_matcher *matcher = NULL;
    if (!status && !(status = rf_grammar_matcher_create(grammar, &matcher)))
        for (int i = 0; i < 200 && !status; i++) status = rf_grammar_matcher_push(matcher, i ? "a" : "\"", 1);
    RF_EXPECT(!status || status == RF_E_INVALID || status == RF_E_NO_MEMORY || status == RF_E_SYNTAX);
    rf_grammar_matcher_destroy(&matcher);
    rf_grammar_destroy(&grammar);
    free(text);
}

RF_TEST(grammar, ambiguity_reaches_a_limit) {
    struct rf_grammar *grammar = NULL;
    const char *text = blow_ups[RF_COUNT(blow_ups) - 1].before;
    struct rf_grammar_matcher *matcher = NULL;
    RF_ASSERT_OK(try_make(RF_GRAMMAR_GBNF, text, strlen(text), &grammar));
    RF_EXPECT_STATUS(rf_grammar_matcher_create(grammar, &matcher), RF_E_NO_MEMORY);
    RF_EXPECT_CONTAINS(rf_error_text(), "too ambiguous");
    rf_grammar_destroy(&grammar);
}

/* Two hundred tools: one object or another, by its name. */
RF_TEST(grammar, two_hundred_tools, .timeout_ms = 60000) {
    enum { TOOLS = 200 };
    size_t at = 0;
    char *text = malloc(TOOLS * 400), call[200];
    struct rf_grammar *grammar = NULL;
    at += (size_t)sprintf(text, "{\"oneOf\":[");
    for (int i = 0; i < 58; i++) /* as oneOf: 58 of them must exclude each other */
        at += (size_t)sprintf(text + at,
                              "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"t%d\"},\"arguments\":{"
                              "\"type\":\"object\"}},\"required\":[\"name\",\"arguments\"]}",
                              i ? "," : "", i);
    sprintf(text + at, "]}");
    RF_ASSERT_OK(try_make(RF_GRAMMAR_JSON_SCHEMA, text, strlen(text), &grammar));
    RF_EXPECT(matches(grammar, "{\"name\": \"t57\", \"arguments\": {\"a\": 1}}"));
    RF_EXPECT(!matches(grammar, "{\"name\": \"t58\", \"arguments\": {}}"));
    rf_grammar_destroy(&grammar);
    at = (size_t)sprintf(text, "{\"anyOf\":[");
    for (int i = 0; i < TOOLS; i++)
        at += (size_t)sprintf(text + at,
                              "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"tool_%d\"},\"arguments\":"
                              "{\"type\":\"object\",\"properties\":{"
                              "\"p%d\":{\"type\":\"string\"}},\"required\":[\"p%d\"],\"additionalProperties\":false}}"
                              ",\"required\":[\"name\",\"arguments\"],"
                              "\"additionalProperties\":false}",
                              i ? "," : "", i, i, i);
    sprintf(text + at, "]}");
    RF_ASSERT_OK(try_make(RF_GRAMMAR_JSON_SCHEMA, text, strlen(text), &grammar));
    for (int i = 0; i < TOOLS; i += 13) {
        snprintf(call, sizeof call, "{\"name\": \"tool_%d\", \"arguments\": {\"p%d\": \"x\"}}", i, i);
        RF_EXPECT(matches(grammar, call));
        snprintf(call, sizeof call, "{\"arguments\": {\"p%d\": \"x\"}, \"name\": \"tool_%d\"}", i + 1, i);
        RF_EXPECT(!matches(grammar, call));
    }
    rf_grammar_destroy(&grammar);
    free(text);
}

/* A long text keeps the matcher's memory within its bounds: it forgets what it does not need. */
RF_TEST(grammar, long_texts, .timeout_ms = 60000) {
    static const char schema[] = "{\"type\":\"string\",\"minLength\":90000,\"maxLength\":100000}";
    struct rf_grammar *grammar = NULL;
    struct rf_grammar_matcher *matcher = NULL;
    char *text = malloc(100000);
    memset(text, 'x', 100000);
    RF_ASSERT_OK(try_make(RF_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &grammar));
    RF_ASSERT_OK(rf_grammar_matcher_create(grammar, &matcher));
    RF_ASSERT_OK(rf_grammar_matcher_push(matcher, "\"", 1));
    RF_ASSERT_OK(rf_grammar_matcher_push(matcher, text, 89999));
    RF_EXPECT_STATUS(rf_grammar_matcher_push(matcher, "\"", 1), RF_E_INVALID);
    RF_ASSERT_OK(rf_grammar_matcher_push(matcher, text, 10001));
    RF_EXPECT_STATUS(rf_grammar_matcher_push(matcher, "x", 1), RF_E_INVALID);
    RF_ASSERT_OK(rf_grammar_matcher_push(matcher, "\"", 1));
    RF_EXPECT(rf_grammar_matcher_is_over(matcher));
    rf_grammar_matcher_destroy(&matcher);
    rf_grammar_destroy(&grammar);
    free(text);
}

/* ---- the host budget ---- */

RF_TEST(grammar, memory_is_charged) {
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z]{3,40}$\"}}}";
    RF_PARAMS(struct rf_runtime_params, params);
    static const char *const small[] = {"RF_HOST_BUDGET=100KiB", NULL};
    struct rf_runtime *runtime = NULL;
    struct rf_grammar *grammar = NULL;
    RF_PARAMS(struct rf_grammar_params, wanted);
    params.options = small;
    RF_ASSERT_OK(rf_runtime_create(&params, &runtime));
    wanted.runtime = runtime;
    wanted.kind = RF_GRAMMAR_JSON_SCHEMA;
    wanted.text = schema;
    wanted.bytes = strlen(schema);
    RF_EXPECT_STATUS(rf_grammar_create(&wanted, &grammar), RF_E_NO_MEMORY);
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    wanted.kind = RF_GRAMMAR_REGEX;
    wanted.text = "[ab]*a[ab]{12}"; /* its states are many: the budget ends them */
    wanted.bytes = strlen(wanted.text);
    RF_ASSERT_OK(rf_grammar_create(&wanted, &grammar));
    struct rf_grammar_matcher *matcher = NULL;
    RF_ASSERT_OK(rf_grammar_matcher_create(grammar, &matcher));
    rf_status status = RF_OK;
    for (uint32_t i = 0, bits = 1; i < 100000 && !status; i++) {
        bits = bits * 1664525u + 1013904223u;
        status = rf_grammar_matcher_push(matcher, bits >> 31 ? "a" : "b", 1);
    }
    RF_EXPECT(!status || status == RF_E_NO_MEMORY);
    rf_grammar_matcher_destroy(&matcher);
    rf_grammar_destroy(&grammar);
    RF_EXPECT_UINT(rf_host_used(&runtime->host), 0);
    rf_runtime_destroy(&runtime);
}

/* ---- masks, and the fuzzers' seeds ---- */

static enum rf_grammar_kind kind_of(const char *folder) {
    return !strcmp(folder, "gbnf")    ? RF_GRAMMAR_GBNF
           : !strcmp(folder, "regex") ? RF_GRAMMAR_REGEX
                                      : RF_GRAMMAR_JSON_SCHEMA;
}
RF_TEST(grammar, seeds_of_the_fuzzers, .timeout_ms = 120000) {
    static const char *const folders[] = {"gbnf", "regex", "schema"};
    size_t count = 0;
    for (size_t i = 0; i < RF_COUNT(folders); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", FUZZ_CORPUS, folders[i]);
        DIR *folder = opendir(path);
        RF_ASSERT(folder);
        for (struct dirent *entry; (entry = readdir(folder));) {
            static unsigned char data[65536];
            const char *why;
            if (entry->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s/%.200s", FUZZ_CORPUS, folders[i], entry->d_name);
            FILE *file = fopen(path, "rb");
            RF_ASSERT(file);
            size_t size = fread(data, 1, sizeof data, file);
            fclose(file);
            RF_TRACE("%s", path);
            bool holds = grammar_property(kind_of(folders[i]), data, size, &why);
            if (!holds) RF_EXPECT_TEXT(why, "");
            count++;
        }
        closedir(folder);
    }
    RF_EXPECT(count >= 14);
}

static const struct property {
    const char *label;
    enum rf_grammar_kind kind;
    const char *grammar;
} properties[] = {
    {"json", RF_GRAMMAR_JSON, ""},
    {"counted", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":9}"},
    {"bytes_of_characters", RF_GRAMMAR_REGEX, "(\\u00e9|\\u4e2d|\\u{1f600}|a){2,6}"},
    {"names", RF_GRAMMAR_JSON_SCHEMA,
     "{\"properties\":{\"ab\":{\"type\":\"null\"},\"aaaa\":{},\"abc "
     "def\":false},\"required\":[\"aaaa\"],\"type\":\"object\",\"maxProperties\":2}"},
    {"first_characters", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^abt\\u00e9]\"}"},
    {"open_names", RF_GRAMMAR_JSON_SCHEMA,
     "{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"enum\":[true]},\"type\":"
     "\"object\"}"},
};
/* Many generations of one grammar: at each step the mask allows exactly the tokens that can be pushed. */
RF_TEST_LABELLED_CASES(grammar, masks, struct property, properties, .timeout_ms = 120000) {
    unsigned char data[600];
    size_t bytes = strlen(c->grammar);
    RF_ASSERT(bytes + 30 < sizeof data);
    for (unsigned seed = 0; seed < 12; seed++) {
        const char *why;
        memcpy(data, c->grammar, bytes);
        data[bytes] = 0;
        uint32_t state = seed * 77 + 1;
        for (size_t i = 1; i <= 24; i++)
            data[bytes + i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
        bool holds = grammar_property(c->kind, data, bytes + 25, &why);
        RF_TRACE("seed %u", seed);
        if (!holds) RF_EXPECT_TEXT(why, "");
    }
}

/* ---- against other implementations, in Python ---- */

static void run_python(const char *command) {
    char line[2048];
    if (system("python3 -c 1 2>/dev/null")) RF_SKIP("no python3");
    snprintf(line, sizeof line, "cd '%s' && %s", SOURCE, command);
    FILE *pipe = popen(line, "r");
    RF_ASSERT(pipe);
    char said[4096] = "", last[512] = "";
    size_t at = 0;
    while (fgets(last, sizeof last, pipe))
        if (at + strlen(last) < sizeof said) at += (size_t)sprintf(said + at, "%s", last);
    if (pclose(pipe)) RF_EXPECT_TEXT(said, "");
}

/* Debian's package has the suite up to draft 7; RF_SCHEMA_SUITE names the folder of a newer one. */
RF_TEST(grammar, json_schema_suite, .timeout_ms = 120000) {
    const char *given = getenv("RF_SCHEMA_SUITE");
    const char *folder = given && *given ? given : "/usr/share/json-schema-test-suite/tests";
    char command[1024];
    if (access(folder, R_OK)) RF_SKIP("no %s: install json-schema-test-suite, or set RF_SCHEMA_SUITE", folder);
    snprintf(command, sizeof command, "python3 tests/grammar/schema_suite.py " JUDGE " '%s'", folder);
    run_python(command);
}
RF_TEST(grammar, random_languages, .timeout_ms = 240000) {
    run_python("python3 tests/grammar/random_languages.py " JUDGE " 200 --seed 3");
}
RF_TEST(grammar, random_runs, .timeout_ms = 240000) {
    run_python("python3 tests/grammar/random_runs.py " RUNS " models/stories.gguf 120 --seed 3");
}
RF_TEST(grammar, random_runs_many, .timeout_ms = 3600000, .tags = "slow") {
    run_python("python3 tests/grammar/random_runs.py " RUNS " models/stories.gguf 10000 --seed 4");
}
