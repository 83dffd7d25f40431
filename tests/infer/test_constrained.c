/* Generations that follow a grammar: the same text wherever the model runs, what ends them, and resuming them. */
#include "infer_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer/engine_impl.h"

static const struct where places[] = {
    {.label = "cpu"},
    {.label = "gpu", .rfsim = ""},
    {.label = "gpu_no_replay", .rfsim = "", .no_replay = true},
    {.label = "split", .rfsim = "", .device_layers = 1},
};

struct heard {
    char text[1024];
    size_t bytes;
    int32_t tokens[512];
    size_t token_count;
    size_t most_tokens; /* the callback returns false at this token; 0: never */
};
static bool hear(void *user, const char *text, size_t bytes) {
    struct heard *heard = user;
    RF_ASSERT(heard->bytes + bytes < sizeof heard->text);
    memcpy(heard->text + heard->bytes, text, bytes);
    heard->bytes += bytes;
    heard->text[heard->bytes] = 0;
    return true;
}
static bool hear_token(void *user, int32_t token) {
    struct heard *heard = user;
    heard->tokens[heard->token_count++] = token;
    return heard->token_count != heard->most_tokens;
}

static struct rf_grammar *make(struct rf_runtime *runtime, enum rf_grammar_kind kind, const char *text) {
    RF_PARAMS(struct rf_grammar_params, params);
    struct rf_grammar *grammar = NULL;
    params.runtime = runtime;
    params.kind = kind;
    params.text = text;
    params.bytes = strlen(text);
    RF_ASSERT_OK(rf_grammar_create(&params, &grammar));
    return grammar;
}

static rf_status try_generate(struct infer *infer, struct rf_generate_params params, struct heard *heard,
                              struct rf_generate_result *result) {
    struct rf_session *session = infer_session(infer);
    size_t most = heard->most_tokens;
    *heard = (struct heard){.most_tokens = most};
    *result = (struct rf_generate_result){.struct_size = sizeof *result};
    params.struct_size = sizeof params;
    params.text = hear;
    params.token = hear_token;
    params.user = heard;
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1}, 1, false, NULL));
    if (params.said_count) RF_ASSERT_OK(rf_session_eval(session, params.said, params.said_count, false, NULL));
    rf_status status = rf_session_generate(session, &params, result);
    rf_session_destroy(&session);
    return status;
}

static struct rf_generate_result generate(struct infer *infer, struct rf_generate_params params,
                                          struct heard *heard) {
    struct rf_generate_result result;
    RF_ASSERT_OK(try_generate(infer, params, heard, &result));
    return result;
}

/* A model that wants to say "helo 12}_wrd" and then end, whatever the grammar wants. */
static void open_model(struct infer *infer, const struct where *where) {
    static struct script script;
    const char *path = scratch_path("constrained.gguf");
    script_begin(&script, false);
    script_say(&script, 1, "helo 12}_wrd", 2);
    script_write(&script, path);
    infer_open(infer, where, &(struct rf_engine_params){.model = path, .context = 256});
}

static const struct row {
    const char *label;
    enum rf_grammar_kind kind;
    const char *grammar, *said;
    enum rf_end end;
} rows[] = {
    {"literal", RF_GRAMMAR_REGEX, "world", "world", RF_END_GRAMMAR},
    {"as_it_likes", RF_GRAMMAR_REGEX, "[a-z]+ [0-9]+.*", "helo 12}_wrd", RF_END_TOKEN},
    {"led_elsewhere", RF_GRAMMAR_REGEX, "he[lx]o(!|\\?)", "helo!", RF_END_GRAMMAR},
    {"choice", RF_GRAMMAR_GBNF, "root ::= \"yes\" | \"no\" | \"hel\" \"p\"", "help", RF_END_GRAMMAR},
    {"boolean", RF_GRAMMAR_JSON_SCHEMA, "{\"type\":\"boolean\"}", NULL, RF_END_GRAMMAR},
    {"object", RF_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":10,\"maximum\":19}},\"required\":["
     "\"n\"],"
     "\"additionalProperties\":false}",
     NULL, RF_END_GRAMMAR},
    {"nothing", RF_GRAMMAR_REGEX, "", "", RF_END_GRAMMAR},
};

/* Every place says what the CPU says. */
RF_TEST_LABELLED_CASES(constrained, same_everywhere, struct where, places, .gpu = true, .timeout_ms = 600000) {
    infer_need(c);
    for (size_t i = 0; i < RF_COUNT(rows); i++) {
        struct heard first = {.token_count = 0}, heard = first;
        RF_TRACE("%s", rows[i].label);
        for (int run = 0; run < 2; run++) {
            struct infer infer;
            open_model(&infer, run ? c : &places[0]);
            struct rf_grammar *grammar = make(infer.gpu.runtime, rows[i].kind, rows[i].grammar);
            RF_PARAMS(struct rf_sample_params, sampling); /* no white space: it takes the simulated GPU long */
            uint32_t allowed[16];
            memset(allowed, 0xff, sizeof allowed);
            allowed[script_byte('\n') / 32] &= ~(1u << script_byte('\n') % 32);
            sampling.allowed = allowed;
            struct rf_generate_result result = generate(
                &infer, (struct rf_generate_params){.grammar = grammar, .max_tokens = 60, .sampling = &sampling},
                &heard);
            RF_EXPECT_INT(result.end, rows[i].end);
            if (rows[i].said) RF_EXPECT_TEXT(heard.text, rows[i].said);
            if (run) RF_EXPECT_TEXT(heard.text, first.text);
            first = heard;
            rf_grammar_destroy(&grammar);
            infer_close(&infer);
        }
    }
}

/* A random model of two layers, so that one of them can be on each side. */
RF_TEST_LABELLED_CASES(constrained, random_model, struct where, places, .gpu = true, .timeout_ms = 600000) {
    static const struct spec spec = {"bytes",
                                     "llama",
                                     .layers = 2,
                                     .width = 64,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .feed_forward = 64,
                                     .vocabulary = 260,
                                     .more = script_add_bytes};
    static const char *const grammars[] = {"([a-z]{3} ){6}", "[0-9]{1,3}(,[0-9]{1,3}){4}", "(\u4e2d|\u00e9|x){12}"};
    infer_need(c);
    for (size_t i = 0; i < RF_COUNT(grammars); i++) {
        struct heard first = {.token_count = 0}, heard = first;
        RF_TRACE("%s", grammars[i]);
        for (int run = 0; run < 2; run++) {
            struct infer infer;
            infer_open(&infer, run ? c : &places[0],
                       &(struct rf_engine_params){.model = infer_model(&spec, "constrained.gguf"), .context = 256});
            struct rf_grammar *grammar = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, grammars[i]);
            struct rf_generate_result result =
                generate(&infer, (struct rf_generate_params){.grammar = grammar, .max_tokens = 240}, &heard);
            RF_EXPECT(result.end == RF_END_GRAMMAR || result.end == RF_END_TOKEN);
            struct rf_grammar_matcher *matcher = NULL;
            RF_ASSERT_OK(rf_grammar_matcher_create(grammar, &matcher));
            RF_EXPECT_OK(rf_grammar_matcher_push(matcher, heard.text, heard.bytes));
            RF_EXPECT(rf_grammar_matcher_is_complete(matcher));
            if (run) RF_EXPECT_TEXT(heard.text, first.text);
            first = heard;
            rf_grammar_matcher_destroy(&matcher);
            rf_grammar_destroy(&grammar);
            infer_close(&infer);
        }
    }
}

RF_TEST(constrained, ends) {
    struct infer infer;
    struct heard heard = {.token_count = 0};
    open_model(&infer, &places[0]);
    struct rf_grammar *many = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, "[a-z]*");
    /* complete, and the model ends it */
    struct rf_generate_result result =
        generate(&infer, (struct rf_generate_params){.grammar = many, .max_tokens = 40}, &heard);
    RF_EXPECT_INT(result.end, RF_END_TOKEN); /* behind "helo" it wants what is no letter; the end is next */
    RF_EXPECT_TEXT(heard.text, "helo");
    struct rf_grammar *word = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, "helo 12}_wrd+");
    result = generate(&infer, (struct rf_generate_params){.grammar = word}, &heard);
    RF_EXPECT_INT(result.end, RF_END_TOKEN);
    RF_EXPECT_TEXT(heard.text, "helo 12}_wrd");
    /* with ignore_end no token ends it */
    result =
        generate(&infer, (struct rf_generate_params){.grammar = word, .ignore_end = true, .max_tokens = 15}, &heard);
    RF_EXPECT_INT(result.end, RF_END_LENGTH);
    RF_EXPECT_TEXT(heard.text, "helo 12}_wrdddd");
    /* cut by its length, in the middle */
    result = generate(&infer, (struct rf_generate_params){.grammar = word, .max_tokens = 4}, &heard);
    RF_EXPECT_INT(result.end, RF_END_LENGTH);
    /* complete at its last token: the grammar ends it, not the length */
    struct rf_grammar *four = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, "helo");
    result = generate(&infer, (struct rf_generate_params){.grammar = four, .max_tokens = 4}, &heard);
    RF_EXPECT_INT(result.end, RF_END_GRAMMAR);
    /* a stop text still stops */
    result = generate(&infer,
                      (struct rf_generate_params){.grammar = word, .stops = (const char *[]){"12"}, .stop_count = 1},
                      &heard);
    RF_EXPECT_INT(result.end, RF_END_STOP);
    RF_EXPECT_TEXT(heard.text, "helo ");
    rf_grammar_destroy(&many);
    rf_grammar_destroy(&word);
    rf_grammar_destroy(&four);
    infer_close(&infer);
}

/* Interrupted after each token and resumed, the text is the same. */
RF_TEST(constrained, resumes) {
    struct infer infer;
    struct heard whole = {.token_count = 0}, part = whole;
    open_model(&infer, &places[0]);
    struct rf_grammar *grammar = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, "(helo|help)( [0-9]{2}x)+\\.");
    struct rf_generate_result result =
        generate(&infer, (struct rf_generate_params){.grammar = grammar, .max_tokens = 30}, &whole);
    RF_ASSERT(whole.token_count > 5);
    for (size_t cut = 0; cut <= whole.token_count; cut++) {
        size_t bytes = RF_MIN(cut, whole.bytes); /* a byte for each token */
        struct rf_generate_result again = generate(
            &infer,
            (struct rf_generate_params){
                .grammar = grammar, .max_tokens = 30, .said = whole.tokens, .said_count = cut, .said_bytes = bytes},
            &part);
        RF_TRACE("cut at %zu", cut);
        RF_EXPECT_INT(again.end, result.end);
        RF_EXPECT_TEXT(part.text, whole.text + bytes);
    }
    /* tokens that the grammar does not allow */
    struct heard heard = {.token_count = 0};
    RF_EXPECT_STATUS(try_generate(&infer,
                                  (struct rf_generate_params){
                                      .grammar = grammar, .said = (int32_t[]){script_byte('z')}, .said_count = 1},
                                  &heard, &result),
                     RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "does not follow the grammar");
    rf_grammar_destroy(&grammar);
    infer_close(&infer);
}

/* Free text first; behind 'grammar_after' the grammar, also where a token holds the end of the one and the beginning
 * of the other. */
RF_TEST(constrained, after_a_text) {
    static struct script script;
    struct infer infer;
    struct heard heard = {.token_count = 0};
    const char *path = scratch_path("after.gguf");
    script_begin(&script, false);
    script_say(&script, 1, "hm. <t>yesno", 2);
    int32_t both = script_add(&script, "t>wrong", RF_TOKEN_NORMAL),
            good = script_add(&script, "t>ye", RF_TOKEN_NORMAL);
    int32_t control = script_add(&script, "</t>", RF_TOKEN_CONTROL);
    script.next[script_byte('<')] = both; /* not allowed: the rest does not begin the grammar */
    script.next[good] = script_byte('s');
    script.next[control] = script_byte('n');
    script_write(&script, path);
    infer_open(&infer, &places[0], &(struct rf_engine_params){.model = path, .context = 256});
    struct rf_grammar *grammar =
        make(NULL, RF_GRAMMAR_REGEX, "yes|no"); /* for three engines, each with its runtime */
    struct rf_generate_result result = generate(
        &infer, (struct rf_generate_params){.grammar = grammar, .grammar_after = "<t>", .max_tokens = 90}, &heard);
    RF_EXPECT_INT(result.end, RF_END_LENGTH); /* without "<t>" all is free, and nothing ends it */
    for (size_t i = 0; i < heard.token_count; i++) RF_EXPECT(heard.tokens[i] != both && heard.tokens[i] != 2);
    infer_close(&infer);

    script.next[script_byte('<')] = good;
    script_write(&script, path);
    infer_open(&infer, &places[0], &(struct rf_engine_params){.model = path, .context = 256});
    result = generate(&infer, (struct rf_generate_params){.grammar = grammar, .grammar_after = "<t>"}, &heard);
    RF_EXPECT_INT(result.end, RF_END_GRAMMAR);
    RF_EXPECT_TEXT(heard.text, "hm. <t>yes");
    infer_close(&infer);

    script.next[script_byte('<')] = control; /* a control token may be what the grammar waits for */
    script_write(&script, path);
    infer_open(&infer, &places[0], &(struct rf_engine_params){.model = path, .context = 256});
    result = generate(&infer, (struct rf_generate_params){.grammar = grammar, .grammar_after = "</t>"}, &heard);
    RF_EXPECT_INT(result.end, RF_END_GRAMMAR);
    RF_EXPECT_TEXT(heard.text, "hm. <no");
    rf_grammar_destroy(&grammar);
    infer_close(&infer);
}

RF_TEST(constrained, with_a_mask_and_without_a_way) {
    struct infer infer;
    struct heard heard = {.token_count = 0};
    struct rf_generate_result result;
    uint32_t allowed[16];
    open_model(&infer, &places[0]);
    struct rf_grammar *grammar = make(infer.gpu.runtime, RF_GRAMMAR_REGEX, "[hxy]e");
    RF_PARAMS(struct rf_sample_params, sampling);
    memset(allowed, 0xff, sizeof allowed);
    allowed[script_byte('h') / 32] &= ~(1u << script_byte('h') % 32);
    sampling.allowed = allowed;
    result = generate(&infer, (struct rf_generate_params){.grammar = grammar, .sampling = &sampling}, &heard);
    RF_EXPECT_INT(result.end, RF_END_GRAMMAR);
    RF_EXPECT(!strcmp(heard.text, "xe") || !strcmp(heard.text, "ye"));
    allowed[script_byte('e') / 32] &= ~(1u << script_byte('e') % 32);
    RF_EXPECT_STATUS(
        try_generate(&infer, (struct rf_generate_params){.grammar = grammar, .sampling = &sampling}, &heard, &result),
        RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "no token can follow here");
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_EXPECT_STATUS(try_generate(&infer, (struct rf_generate_params){.grammar_after = "x"}, &heard, &result),
                     RF_E_INVALID);
    rf_grammar_destroy(&grammar);
    infer_close(&infer);
}

RF_TEST(constrained, needs_a_vocabulary) {
    static const struct spec spec = {"llama",    "llama",       .layers = 1,        .width = 64,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = 300};
    struct infer infer;
    struct heard heard = {.token_count = 0};
    struct rf_generate_result result;
    infer_open(&infer, &places[0],
               &(struct rf_engine_params){.model = infer_model(&spec, "mute.gguf"), .context = 32});
    struct rf_grammar *grammar = make(NULL, RF_GRAMMAR_REGEX, "a");
    RF_EXPECT_STATUS(try_generate(&infer, (struct rf_generate_params){.grammar = grammar}, &heard, &result),
                     RF_E_UNSUPPORTED);
    rf_grammar_destroy(&grammar);
    infer_close(&infer);
}
