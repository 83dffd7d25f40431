/* Text: sampling by the definition, streams that never cut a character, and what ends a generation. */
#include "infer_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/ref_sampling.h"
#include "infer/engine_impl.h"

static const struct where places[] = {
    {.label = "cpu"},
    {.label = "gpu", .rfsim = ""},
    {.label = "split", .rfsim = "", .device_layers = 1},
};

/* ---- sampling ---- */

/* A session draws the token that the definition draws from the same logits, wherever the logits lie; so devices can
 * differ only if their logits do. */
RF_TEST_LABELLED_CASES(sampling, by_the_definition, struct where, places, .gpu = true, .timeout_ms = 600000) {
    enum { COUNT = 12, SEEDS = 6 };
    static const struct spec spec = {"llama",    "llama",       .layers = 2,        .width = 64,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = 300};
    static const struct rf_token_bias biases[] = {{299, 2}, {0, -4}, {17, 1.5f}};
    static const uint32_t allowed[10] = {0x10f, 0,
                                         7, [9] = ~0u}; /* the bits behind the last token count for nothing */
    static const struct rf_sample_params settings[] = {
        {.temperature = 0},
        {.temperature = 1},
        {.temperature = 0.7f, .top_k = 5},
        {.temperature = 1.3f, .top_p = 0.8f},
        {.temperature = 0.9f, .min_p = 0.1f},
        {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .penalty = 1.3f, .penalty_window = 64},
        {.temperature = 0, .penalty = 5, .penalty_window = 4},
        {.temperature = 1, .penalty = 1.2f, .penalty_window = 100000},     /* larger than the number of tokens held */
        {.temperature = 0, .penalty = 0.01f, .penalty_window = COUNT / 2}, /* a token of the window is drawn */
        {.temperature = 0, .presence = -3, .frequency = -2, .penalty_window = COUNT / 2},
        {.temperature = 0.8f, .presence = 0.5f, .frequency = 0.25f, .penalty_window = 64},
        {.temperature = 1.1f, .biases = biases, .bias_count = RF_COUNT(biases)},
        {.temperature = 0, .allowed = allowed},
        {.temperature = 1.2f,
         .top_p = 0.9f,
         .presence = 0.1f,
         .penalty_window = 8,
         .biases = biases,
         .bias_count = 2,
         .allowed = allowed},
    };
    infer_need(c);
    struct infer infer;
    struct rf_engine_params params = {.model = infer_model(&spec, "sampling.gguf"), .context = 32, .sessions = 2};
    infer_open(&infer, c, &params);
    int32_t tokens[COUNT];
    size_t different = 0, by_window = 0;
    for (int i = 0; i < COUNT; i++) tokens[i] = (i * 37 + 5) % 300;
    float *row = infer_rows(&infer, 1);
    uint64_t *scratch = allocate(infer.vocabulary, sizeof *scratch);
    struct rf_device *device = infer.engine->device;
    uint64_t mark = device ? rf_device_mark(device) : 0;
    struct rf_session *session = infer_session(&infer);
    for (int batched = 0; batched < 2; batched++) { /* logits on the device, then those of a batched evaluation */
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, COUNT - 1, false, NULL));
        if (batched)
            RF_ASSERT_OK(rf_sessions_eval(&session, tokens + COUNT - 1, 1, row));
        else
            RF_ASSERT_OK(rf_session_eval(session, tokens + COUNT - 1, 1, false, row));
        for (size_t s = 0; s < RF_COUNT(settings); s++)
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                struct rf_sample_params asked = settings[s];
                int32_t expected = -1, drawn = -1, again = -1;
                RF_TRACE("settings %zu, seed %llu", s, (unsigned long long)seed);
                asked.struct_size = sizeof asked;
                asked.seed = seed * 7919;
                const struct rf_sampling sampling = {.temperature = asked.temperature,
                                                     .top_k = asked.top_k,
                                                     .top_p = asked.top_p,
                                                     .min_p = asked.min_p,
                                                     .penalty = asked.penalty == 0 ? 1 : asked.penalty,
                                                     .presence = asked.presence,
                                                     .frequency = asked.frequency};
                uint32_t window = RF_MIN(asked.penalty_window, (uint32_t)COUNT);
                struct rf_sample_args args = {.rows = 1,
                                              .columns = infer.vocabulary,
                                              .window_count = window,
                                              .bias_count = (uint32_t)asked.bias_count};
                const struct rf_sample_bias same[] = {{299, 2}, {0, -4}, {17, 1.5f}};
                struct rf_sample_rows rows = {.logits = row,
                                              .random = (uint64_t[]){asked.seed, COUNT},
                                              .window = tokens + COUNT - window,
                                              .biases = same,
                                              .allowed = asked.allowed};
                RF_ASSERT_NULL(rf_sampling_resolve(&sampling, &args));
                rf_ref_sample_rows(&expected, &rows, &args, scratch);
                int32_t by_first = -1; /* with the first tokens as the window instead of the last */
                rows.window = tokens;
                rf_ref_sample_rows(&by_first, &rows, &args, scratch);
                by_window += by_first != expected;
                RF_ASSERT_OK(rf_session_sample(session, &asked, &drawn));
                RF_ASSERT_OK(rf_session_sample(session, &asked, &again));
                RF_EXPECT_INT(drawn, expected);
                RF_EXPECT_INT(again, expected);
                different += seed && settings[s].temperature > 0 && drawn != tokens[0];
            }
    }
    RF_EXPECT(different > 10);
    RF_EXPECT(by_window > 0);
    rf_session_destroy(&session);
    RF_PARAMS(struct rf_sweep, sweep); /* nothing on the device outlives the session */
    sweep.mark = mark;
    sweep.timeout_ns = RF_MS(60000);
    if (device) RF_ASSERT_OK(rf_device_sweep(device, &sweep));
    RF_EXPECT_UINT(sweep.handles, 0);
    free(row);
    free(scratch);
    infer_close(&infer);
}

/* A mask that the caller changes from token to token: the text is the one that it dictates. */
struct dictation {
    uint32_t allowed[10];
    uint32_t count;
    int32_t tokens[40];
};
static void dictate(struct dictation *dictation) {
    uint32_t token = (dictation->count * 71 + 3) % 300;
    memset(dictation->allowed, 0, sizeof dictation->allowed);
    dictation->allowed[token / 32] = 1u << token % 32;
}
static bool take_dictation(void *user, int32_t token) {
    struct dictation *dictation = user;
    dictation->tokens[dictation->count++] = token;
    dictate(dictation);
    return true;
}
RF_TEST_LABELLED_CASES(sampling, a_mask_may_change_with_each_token, struct where, places, .gpu = true,
                       .timeout_ms = 600000) {
    static const struct spec spec = {"llama",    "llama",       .layers = 2,        .width = 64,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = 300};
    infer_need(c);
    struct infer infer;
    struct rf_engine_params params = {.model = infer_model(&spec, "sampling.gguf"), .context = 64};
    infer_open(&infer, c, &params);
    struct rf_session *session = infer_session(&infer);
    struct dictation dictation = {.count = 0};
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_PARAMS(struct rf_generate_params, generate);
    RF_PARAMS(struct rf_generate_result, result);
    sampling.temperature = 0.7f;
    sampling.allowed = dictation.allowed;
    generate.max_tokens = RF_COUNT(dictation.tokens);
    generate.ignore_end = true;
    generate.sampling = &sampling;
    generate.token = take_dictation;
    generate.user = &dictation;
    dictate(&dictation);
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1, 2, 3}, 3, false, NULL));
    RF_ASSERT_OK(rf_session_generate(session, &generate, &result));
    RF_ASSERT_UINT(result.tokens, RF_COUNT(dictation.tokens));
    for (uint32_t i = 0; i < RF_COUNT(dictation.tokens); i++)
        RF_EXPECT_INT(dictation.tokens[i], (int)((i * 71 + 3) % 300));
    /* Nothing is allowed: the caller's error, and the session goes on. */
    int32_t token = -5;
    memset(dictation.allowed, 0, sizeof dictation.allowed);
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){9}, 1, false, NULL));
    RF_EXPECT_STATUS(rf_session_sample(session, &sampling, &token), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "none of the allowed tokens");
    RF_EXPECT_INT(token, -5);
    dictation.allowed[1] = 1;
    RF_EXPECT_OK(rf_session_sample(session, &sampling, &token));
    RF_EXPECT_INT(token, 32);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- a stream of text ---- */

struct heard {
    char text[4096];
    size_t bytes, pieces;
    int32_t tokens[512];
    size_t shown[512]; /* bytes shown when the token came; the token's own text follows */
    size_t token_count;
    size_t most_pieces; /* the callback returns false at this piece; 0: never */
    size_t most_tokens; /* the same for the callback of tokens */
    bool split;         /* a piece was not whole characters */
};

/* Whether these bytes are whole UTF-8 characters. */
static bool is_whole(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        unsigned char lead = (unsigned char)text[i++];
        int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc2 ? 1 : -1;
        if (more < 0) return false;
        for (; more; more--)
            if (i >= bytes || ((unsigned char)text[i++] & 0xc0) != 0x80) return false;
    }
    return true;
}

static bool hear(void *user, const char *text, size_t bytes) {
    struct heard *heard = user;
    RF_ASSERT(bytes > 0 && heard->bytes + bytes < sizeof heard->text);
    memcpy(heard->text + heard->bytes, text, bytes);
    heard->bytes += bytes;
    heard->text[heard->bytes] = 0;
    heard->split = heard->split || !is_whole(text, bytes);
    return ++heard->pieces != heard->most_pieces;
}
static bool hear_token(void *user, int32_t token) {
    struct heard *heard = user;
    heard->shown[heard->token_count] = heard->bytes;
    heard->tokens[heard->token_count++] = token;
    return heard->token_count != heard->most_tokens;
}

/* An engine on the CPU with a scripted model. */
static void open_script(struct infer *infer, const struct script *script, uint32_t context) {
    const char *path = scratch_path("script.gguf");
    script_write(script, path);
    infer_open(infer, &places[0], &(struct rf_engine_params){.model = path, .context = context});
}

static struct rf_generate_result generate(struct infer *infer, int32_t prompt, struct rf_generate_params params,
                                          struct heard *heard) {
    RF_PARAMS(struct rf_generate_result, result);
    struct rf_session *session = infer_session(infer);
    *heard = (struct heard){.most_pieces = heard->most_pieces, .most_tokens = heard->most_tokens};
    params.struct_size = sizeof params;
    params.text = hear;
    params.token = hear_token;
    params.user = heard;
    RF_ASSERT_OK(rf_session_eval(session, &prompt, 1, false, NULL));
    RF_ASSERT_OK(rf_session_generate(session, &params, &result));
    RF_EXPECT_UINT(result.tokens, heard->token_count);
    RF_EXPECT(!heard->split);
    rf_session_destroy(&session);
    return result;
}

RF_TEST(generate, characters_come_whole) {
    static struct script script;
    struct infer infer;
    struct heard heard = {0};
    script_begin(&script, false);
    script_say(&script, 1, "aé世🌍b", 2);
    open_script(&infer, &script, 64);
    struct rf_generate_result result = generate(&infer, 1, (struct rf_generate_params){0}, &heard);
    RF_EXPECT_TEXT(heard.text, "aé世🌍b");
    RF_EXPECT_INT(result.end, RF_END_TOKEN);
    RF_EXPECT_UINT(result.tokens, 11); /* one for each byte; the token that ends it is not counted */
    RF_EXPECT_UINT(heard.pieces, 5);   /* one for each character */

    /* Cut in the middle of a character: the incomplete character is shown as an invalid one. */
    result = generate(&infer, 1, (struct rf_generate_params){.max_tokens = 4}, &heard);
    RF_EXPECT_INT(result.end, RF_END_LENGTH);
    RF_EXPECT_UINT(result.tokens, 4);
    RF_EXPECT_TEXT(heard.text, "aé\xef\xbf\xbd");

    heard.most_pieces = 2;
    result = generate(&infer, 1, (struct rf_generate_params){0}, &heard);
    RF_EXPECT_INT(result.end, RF_END_CALLER);
    RF_EXPECT_TEXT(heard.text, "aé");
    infer_close(&infer);
}

/* Random bytes of a random model: the streamed text is valid and equals the decoded tokens. */
static const struct spec bytes_spec = {"bytes",
                                       "llama",
                                       .layers = 1,
                                       .width = 64,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .feed_forward = 64,
                                       .vocabulary = 260,
                                       .more = script_add_bytes};
RF_TEST(generate, any_bytes_stream_as_they_decode) {
    struct infer infer;
    infer_open(&infer, &places[0],
               &(struct rf_engine_params){.model = infer_model(&bytes_spec, "bytes.gguf"), .context = 256});
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct heard heard = {0};
        struct rf_generate_params params = {.ignore_end = true, .max_tokens = 200};
        RF_PARAMS(struct rf_sample_params, sampling);
        sampling.temperature = 2;
        sampling.seed = seed;
        params.sampling = &sampling;
        struct rf_generate_result result = generate(&infer, 1, params, &heard);
        RF_EXPECT_UINT(result.tokens, 200);
        RF_EXPECT_INT(result.end, RF_END_LENGTH);
        RF_PARAMS(struct rf_decode_params, decode);
        decode.continues = decode.replace_invalid = true;
        char *text = NULL;
        size_t bytes = 0;
        RF_ASSERT_OK(rf_tokenizer_decode(rf_engine_tokenizer(infer.engine), heard.tokens, heard.token_count, &decode,
                                         &text, &bytes));
        RF_EXPECT_UINT(heard.bytes, bytes);
        RF_EXPECT(!memcmp(heard.text, text, bytes));
        rf_text_destroy(&text);
    }
    infer_close(&infer);
}

/* ---- what ends a generation ---- */

static const struct stop {
    const char *label;
    const char *stops[3];
    const char *said;
    enum rf_end end;
} stops[] = {
    {"across_tokens", {"orl"}, "Hel w", RF_END_STOP},
    {"first_of_several", {"ld", "w", "or"}, "Hel ", RF_END_STOP},
    {"at_once", {"H"}, "", RF_END_STOP},
    {"last", {"d!"}, "Hel worl", RF_END_STOP},
    {"longer_than_the_rest", {"ld! and so on"}, "Hel world!", RF_END_TOKEN},
    {"begun_and_not_ended", {"wox"}, "Hel world!", RF_END_TOKEN},
    {"half_a_character_is_none", {"\xc3"}, "Hel world!", RF_END_TOKEN},
    {"empty_is_none", {""}, "Hel world!", RF_END_TOKEN},
    {"overlapping", {"l wx", " wo"}, "Hel", RF_END_STOP},
};
/* A model that generates "Hel world!", and a stop condition. */
static struct rf_generate_params open_stopped(struct infer *infer, const struct stop *stop) {
    static struct script script;
    script_begin(&script, false);
    /* Each token has one successor, so none may occur twice: "wo" and "rl" are tokens of their own. */
    int32_t wo = script_add(&script, "wo", RF_TOKEN_NORMAL), rld = script_add(&script, "rl", RF_TOKEN_NORMAL);
    script_say(&script, 1, "Hel ", wo);
    script.next[wo] = rld;
    script_say(&script, rld, "d!", 2);
    open_script(infer, &script, 64);
    struct rf_generate_params params = {.stops = stop->stops};
    while (params.stop_count < 3 && stop->stops[params.stop_count]) params.stop_count++;
    return params;
}

RF_TEST_LABELLED_CASES(generate, stop_texts, struct stop, stops) {
    struct infer infer;
    struct heard heard = {0};
    struct rf_generate_params params = open_stopped(&infer, c);
    struct rf_generate_result result = generate(&infer, 1, params, &heard);
    RF_EXPECT_TEXT(heard.text, c->said);
    RF_EXPECT_INT(result.end, c->end);
    infer_close(&infer);
}

/* Repeats the generation: it is interrupted after 'said' of its tokens, with this many bytes shown, and continued.
 * The rest must come, and nothing else. */
static void go_on(struct infer *infer, int32_t prompt, struct rf_generate_params params, const struct heard *whole,
                  const struct rf_generate_result *whole_result, size_t said, size_t bytes) {
    struct heard rest = {0};
    RF_PARAMS(struct rf_generate_result, result);
    struct rf_session *session = infer_session(infer);
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer->engine, &info));
    RF_TRACE("%zu of %zu tokens said, %zu of %zu bytes shown", said, whole->token_count, bytes, whole->bytes);
    params.struct_size = sizeof params;
    params.text = hear;
    params.token = hear_token;
    params.user = &rest;
    params.said = whole->tokens;
    params.said_count = said;
    params.said_bytes = bytes;
    RF_ASSERT_OK(rf_session_eval(session, &prompt, 1, false, NULL));
    for (size_t i = 0; i < said && rf_session_length(session) < info.context; i++)
        RF_ASSERT_OK(rf_session_eval(session, &whole->tokens[i], 1, false, NULL));
    /* The last token of a full context is not held: the generation ended with it. */
    if (said == info.context) params.max_tokens = (uint32_t)said;
    RF_ASSERT_OK(rf_session_generate(session, &params, &result));
    RF_EXPECT_UINT(result.tokens, whole->token_count - said);
    RF_EXPECT_UINT(rest.token_count, result.tokens);
    RF_EXPECT(!memcmp(rest.tokens, whole->tokens + said, rest.token_count * sizeof *rest.tokens));
    RF_EXPECT_TEXT(rest.text, whole->text + bytes);
    RF_EXPECT(!rest.split);
    if (params.max_tokens != said) RF_EXPECT_INT(result.end, whole_result->end);
    rf_session_destroy(&session);
}

/* Interrupts at every token: with all text shown that may be shown, with nothing of the last token shown, and with
 * nothing shown. */
static void go_on_everywhere(struct infer *infer, int32_t prompt, struct rf_generate_params params) {
    struct heard whole = {0};
    struct rf_generate_result result = generate(infer, prompt, params, &whole);
    for (size_t said = 0; said <= whole.token_count; said++) {
        if (said < whole.token_count) go_on(infer, prompt, params, &whole, &result, said, whole.shown[said]);
        if (said) go_on(infer, prompt, params, &whole, &result, said, whole.shown[said - 1]);
        go_on(infer, prompt, params, &whole, &result, said, 0);
    }
}

RF_TEST(generate, goes_on_within_characters) {
    static struct script script;
    struct infer infer;
    script_begin(&script, false);
    script_say(&script, 1, "aé世🌍b", 2);
    open_script(&infer, &script, 64);
    go_on_everywhere(&infer, 1, (struct rf_generate_params){0});
    for (uint32_t most = 1; most <= 11; most++) /* ends within a character */
        go_on_everywhere(&infer, 1, (struct rf_generate_params){.max_tokens = most});
    infer_close(&infer);
    open_script(&infer, &script, 8); /* the context ends it */
    go_on_everywhere(&infer, 1, (struct rf_generate_params){.ignore_end = true});
    infer_close(&infer);
}

RF_TEST_LABELLED_CASES(generate, goes_on_within_stop_texts, struct stop, stops) {
    struct infer infer;
    struct rf_generate_params params = open_stopped(&infer, c);
    go_on_everywhere(&infer, 1, params);
    infer_close(&infer);
}

RF_TEST(generate, goes_on_within_any_bytes) {
    struct infer infer;
    infer_open(&infer, &places[0],
               &(struct rf_engine_params){.model = infer_model(&bytes_spec, "bytes.gguf"), .context = 64});
    static const char *const ends[] = {"\xef\xbf\xbd!", "ab"};
    struct rf_generate_params params = {.ignore_end = true, .max_tokens = 40, .stops = ends, .stop_count = 2};
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const struct rf_sample_params sampling = {
            .struct_size = sizeof sampling, .temperature = 2, .penalty = 1.2f, .penalty_window = 16, .seed = seed};
        params.sampling = &sampling;
        go_on_everywhere(&infer, 1, params);
    }
    infer_close(&infer);
}

/* A GPU is lost at some launch: text that was held back stays held back, and an engine on the CPU continues. */
static const struct launch {
    int nth; /* the first launch is the prompt's */
} losses[] = {{2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}};
RF_TEST_CASES(generate, goes_on_elsewhere_after_a_failure, struct launch, losses, .gpu = true) {
    static struct script script;
    static const char *const stop = "世!";
    struct infer gpu, cpu;
    struct heard heard = {0};
    RF_PARAMS(struct rf_generate_result, result);
    char rfsim[64];
    snprintf(rfsim, sizeof rfsim, "fault=hipGraphLaunch:%d:work/719", c->nth);
    gpu_need_simulated(rfsim);
    script_begin(&script, false);
    script_say(&script, 1, "aé世🌍b", 2);
    open_script(&cpu, &script, 64);
    const struct where place = {.label = "gpu", .rfsim = rfsim};
    infer_open(&gpu, &place, &(struct rf_engine_params){.model = scratch_path("script.gguf"), .context = 64});
    struct rf_session *session = infer_session(&gpu);
    RF_PARAMS(struct rf_generate_params, params);
    params.stops = &stop;
    params.stop_count = 1;
    params.text = hear;
    params.token = hear_token;
    params.user = &heard;
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1}, 1, false, NULL));
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_DEVICE_LOST);
    size_t said = heard.token_count;
    RF_EXPECT_UINT(result.tokens, said);
    RF_EXPECT(said >= 1 && said < 11);
    rf_session_destroy(&session);
    rf_engine_close(&gpu.engine);
    rf_runtime_destroy(&gpu.gpu.runtime);

    session = infer_session(&cpu);
    int32_t tokens[12] = {1};
    memcpy(tokens + 1, heard.tokens, said * sizeof *tokens);
    params.said = tokens + 1;
    params.said_count = said;
    params.said_bytes = heard.bytes;
    RF_ASSERT_OK(rf_session_eval(session, tokens, said + 1, false, NULL));
    RF_ASSERT_OK(rf_session_generate(session, &params, &result));
    RF_EXPECT_TEXT(heard.text, "aé世🌍b");
    RF_EXPECT(!heard.split);
    RF_EXPECT_UINT(heard.token_count, 11);
    RF_EXPECT_INT(result.end, RF_END_TOKEN);
    rf_session_destroy(&session);
    RF_ASSERT_OK(rf_engine_close(&cpu.engine));
    rf_runtime_destroy(&cpu.gpu.runtime);
}

RF_TEST(generate, what_was_not_said_is_refused) {
    static struct script script;
    struct infer infer;
    RF_PARAMS(struct rf_generate_result, result);
    script_begin(&script, false);
    script_say(&script, 1, "abc", 2);
    open_script(&infer, &script, 16);
    const int32_t said[] = {script_byte('a'), script_byte('b')}, other[] = {script_byte('a'), script_byte('c')};
    struct rf_session *session = infer_session(&infer);
    RF_PARAMS(struct rf_generate_params, params);
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1, said[0], said[1]}, 3, false, NULL));
    params.said = said;
    params.said_count = 2;
    params.said_bytes = 2;
    RF_EXPECT_OK(rf_session_generate(session, &params, &result));
    RF_EXPECT_UINT(result.tokens, 1);
    RF_ASSERT_OK(rf_session_rewind(session, 2));
    RF_ASSERT_OK(rf_session_eval(session, &said[1], 1, false, NULL));
    params.said_bytes = 3; /* more bytes than the tokens give */
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "said_bytes");
    params.said_bytes = 2;
    params.said = other; /* other tokens than the session holds */
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "does not end with");
    params.said = NULL;
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    params.said = (int32_t[]){1, said[0], said[1], said[0]}; /* more tokens than the session holds */
    params.said_count = 4;
    params.said_bytes = 0;
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    params.said = (int32_t[]){99999};
    params.said_count = 1;
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    rf_session_destroy(&session);
    infer_close(&infer);
}

RF_TEST(generate, what_ends_it) {
    static struct script script;
    struct infer infer;
    struct heard heard = {0};
    script_begin(&script, false);
    int32_t turn = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
    script_say(&script, 1, "abc", turn);
    script.next[turn] = script_byte('d');
    script.next[script_byte('d')] = script_byte('e');
    script.next[script_byte('e')] = script_byte('d');
    open_script(&infer, &script, 16);
    struct rf_generate_result result = generate(&infer, 1, (struct rf_generate_params){0}, &heard);
    RF_EXPECT_INT(result.end, RF_END_TOKEN); /* the end of a turn ends it, as the end of text does */
    RF_EXPECT_TEXT(heard.text, "abc");

    /* With ignore_end it goes on until the context is full: the last token is generated but not held. */
    result = generate(&infer, 1, (struct rf_generate_params){.ignore_end = true}, &heard);
    RF_EXPECT_INT(result.end, RF_END_CONTEXT);
    RF_EXPECT_UINT(result.tokens, 16);
    RF_EXPECT_TEXT(heard.text, "abcdededededede");

    result = generate(&infer, 1, (struct rf_generate_params){.max_tokens = 2}, &heard);
    RF_EXPECT_INT(result.end, RF_END_LENGTH);
    RF_EXPECT_TEXT(heard.text, "ab");

    /* The callback of tokens wants no more: its last token is counted and not shown. */
    heard.most_tokens = 2;
    result = generate(&infer, 1, (struct rf_generate_params){0}, &heard);
    RF_EXPECT_INT(result.end, RF_END_CALLER);
    RF_EXPECT_UINT(result.tokens, 2);
    RF_EXPECT_TEXT(heard.text, "a");

    /* Without an evaluated token there is nothing to continue from. */
    struct rf_session *session = infer_session(&infer);
    RF_PARAMS(struct rf_generate_params, params);
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    params.struct_size = 0;
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_INVALID);
    /* A cancel that comes with the last token is consumed, and does not stop the next call. */
    params.struct_size = sizeof params;
    params.max_tokens = 1;
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1}, 1, false, NULL));
    rf_session_cancel(session);
    RF_EXPECT_STATUS(rf_session_generate(session, &params, &result), RF_E_CANCELLED);
    RF_EXPECT_UINT(result.tokens, 1);
    RF_EXPECT_OK(rf_session_generate(session, &params, &result));
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* What rf_chat_reader reads: control tokens as their text, but not the one that ends the answer. In a vocabulary with
 * channels "<|end|>" ends a message and not the answer. */
RF_TEST(generate, control_tokens_are_shown) {
    static struct script script;
    struct infer infer;
    struct heard heard = {0};
    script_begin(&script, true);
    script.pre = "llama-bpe";
    static const char *const names[] = {"<|channel|>",    "<|message|>",  "<|end|>",  "<|python_tag|>",
                                        "<｜tool▁sep｜>", "[TOOL_CALLS]", "<|call|>", "<|return|>"};
    int32_t ids[RF_COUNT(names)];
    for (size_t i = 0; i < RF_COUNT(names); i++) ids[i] = script_add(&script, names[i], RF_TOKEN_CONTROL);
    script.next[1] = ids[0];
    for (size_t i = 0; i + 2 < RF_COUNT(names); i++) { /* a letter behind each */
        script.next[ids[i]] = script_byte('a' + (int)i);
        script.next[script_byte('a' + (int)i)] = ids[i + 1];
    }
    script.next[ids[6]] = script_byte('x');
    open_script(&infer, &script, 64);
    struct rf_generate_result result = generate(&infer, 1, (struct rf_generate_params){.show_special = true}, &heard);
    RF_EXPECT_INT(result.end, RF_END_TOKEN);
    RF_EXPECT_TEXT(heard.text, "<|channel|>a<|message|>b<|end|>c<|python_tag|>d<｜tool▁sep｜>e[TOOL_CALLS]f");
    result = generate(&infer, 1, (struct rf_generate_params){0}, &heard);
    RF_EXPECT_INT(result.end, RF_END_TOKEN);
    RF_EXPECT_TEXT(heard.text, "abcdef");
    infer_close(&infer);
}
