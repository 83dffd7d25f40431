/* The bundled model, models/stories.gguf: the file exists, its vocabulary gives back the text that was encoded, and
 * it generates the same story at every SIMD level of the CPU. It has learned: its loss on stories that it was not
 * trained on (tests/data/stories-held-out.txt) is far below that of random or damaged weights. docs/bundled-model.md
 * says how it was made.
 *
 * Nothing here is skipped if the file is missing: it belongs to the source tree. */
#include "infer_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORIES = 8, END = 0 }; /* END stands before and after each story that the model was trained on */

static void open_bundled(struct infer *infer, const struct where *where, uint32_t context) {
    RF_PARAMS(struct rf_engine_params, params);
    params.model = BUNDLED_MODEL;
    params.context = context;
    params.kv = RF_KV_F32;
    infer_open(infer, where, &params);
}

/* ---- stories ---- */

struct stories {
    char *file; /* the caller frees */
    const char *texts[STORIES];
    size_t bytes[STORIES];
};
/* A blank line separates two stories. */
static void stories_read(struct stories *stories) {
    size_t size = 0, count = 0;
    stories->file = (char *)read_bytes(TEST_DATA "/stories-held-out.txt", &size);
    RF_ASSERT(size > 0 && stories->file[size - 1] == '\n');
    stories->file[--size] = 0;
    for (char *at = stories->file; at; count++) {
        char *next = strstr(at, "\n\n");
        RF_ASSERT(count < STORIES);
        stories->texts[count] = at;
        stories->bytes[count] = next ? (size_t)(next - at) : strlen(at);
        at = next ? next + 2 : NULL;
    }
    RF_ASSERT_UINT(count, STORIES);
}

/* The ids of a story between two ENDs; the caller frees them. */
static int32_t *story_ids(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes, size_t *count) {
    int32_t *ids = NULL, *all;
    RF_PARAMS(struct rf_encode_params, how);
    how.no_bos = true;
    RF_ASSERT_OK(rf_tokenizer_encode(tokenizer, text, bytes, &how, &ids, count));
    all = allocate(*count + 2, sizeof *all);
    all[0] = all[*count + 1] = END;
    memcpy(all + 1, ids, *count * sizeof *ids);
    *count += 2;
    rf_token_ids_destroy(&ids);
    return all;
}

/* The loss, in nats, of the token that came, by the logits of the token before it. */
static double nats_of(const float *row, uint32_t vocabulary, int32_t token) {
    double most = (double)row[0], sum = 0;
    for (uint32_t i = 1; i < vocabulary; i++) most = RF_MAX(most, (double)row[i]);
    for (uint32_t i = 0; i < vocabulary; i++) sum += exp((double)row[i] - most);
    return most + log(sum) - (double)row[token];
}

/* The summed loss of all tokens but the first; logits, unless NULL, receives the rows for the caller. */
static double loss_of(struct infer *infer, struct rf_session *session, const int32_t *ids, size_t count,
                      float *logits) {
    float *own = logits ? NULL : infer_rows(infer, count - 1), *rows = logits ? logits : own;
    double nats = 0;
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, ids, count - 1, true, rows));
    for (size_t i = 0; i + 1 < count; i++)
        nats += nats_of(rows + i * infer->vocabulary, infer->vocabulary, ids[i + 1]);
    free(own);
    return nats;
}

/* ---- tests ---- */

static const struct where cpu = {.label = "cpu"};

RF_TEST(bundled, is_what_the_page_says) {
    struct infer infer;
    size_t bytes;
    free(read_bytes(BUNDLED_MODEL, &bytes));
    RF_EXPECT(bytes <= 4000000);
    open_bundled(&infer, &cpu, 0);
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer.engine, &info));
    RF_EXPECT_TEXT(info.architecture, "llama");
    RF_EXPECT_TEXT(info.name, "ROCmForge Stories");
    RF_EXPECT_UINT(info.parameter_count, 3575040);
    RF_EXPECT_UINT(info.vocabulary, 2048);
    RF_EXPECT_UINT(info.trained_context, 1024);
    RF_PARAMS(struct rf_tokenizer_info, tokens);
    RF_ASSERT_OK(rf_tokenizer_get_info(rf_engine_tokenizer(infer.engine), &tokens));
    RF_EXPECT(tokens.add_bos && !tokens.add_eos);
    RF_EXPECT_INT(tokens.bos, END);
    RF_EXPECT_INT(tokens.eos, END);
    infer_close(&infer);
}

RF_TEST(bundled, vocabulary_gives_back_what_it_is_given) {
    struct rf_tokenizer *tokenizer = NULL;
    struct stories stories;
    char any[512];
    size_t story_bytes = 0, story_tokens = 0;
    stories_read(&stories);
    RF_ASSERT_OK(rf_tokenizer_open(BUNDLED_MODEL, &tokenizer));
    for (size_t i = 0; i < sizeof any; i++) any[i] = (char)(i < 256 ? i : i * 167);
    for (size_t i = 0; i <= STORIES; i++) {
        const char *text = i < STORIES ? stories.texts[i] : any;
        size_t bytes = i < STORIES ? stories.bytes[i] : sizeof any, count, decoded_bytes;
        char *decoded = NULL;
        int32_t *ids = story_ids(tokenizer, text, bytes, &count);
        RF_ASSERT_OK(rf_tokenizer_decode(tokenizer, ids, count, NULL, &decoded, &decoded_bytes));
        RF_ASSERT_UINT(decoded_bytes, bytes);
        RF_ASSERT_BYTES(decoded, text, bytes);
        if (i < STORIES) {
            story_bytes += bytes;
            story_tokens += count;
        }
        rf_text_destroy(&decoded);
        free(ids);
    }
    /* The vocabulary was learned from text like this: a token is nearly a word. */
    RF_NOTE("%zu bytes of stories are %zu tokens", story_bytes, story_tokens);
    RF_EXPECT(story_tokens * 7 < story_bytes * 2);
    rf_tokenizer_destroy(&tokenizer);
    free(stories.file);
}

/* The training measured 0.3388 nats per token on 1,000 held-out stories; these eight are the first of them. A model
 * that knows only how often each token occurs is near 5.8, one that is untrained near 8.0. */
static const struct where levels[] = {
    {.label = "scalar", .simd = "scalar"}, {.label = "avx2", .simd = "avx2"}, {.label = "avx512", .simd = "avx512"}};
RF_TEST_LABELLED_CASES(bundled, knows_stories_it_has_not_read, struct where, levels, .timeout_ms = 1500000) {
    struct infer infer;
    struct stories stories;
    double nats = 0;
    size_t tokens = 0, bytes = 0, most = c == &levels[0] ? 1 : STORIES; /* scalar code is slow */
    infer_need(c);
    stories_read(&stories);
    open_bundled(&infer, c, 0);
    struct rf_session *session = infer_session(&infer);
    for (size_t i = 0; i < most; i++) {
        size_t count;
        int32_t *ids = story_ids(rf_engine_tokenizer(infer.engine), stories.texts[i], stories.bytes[i], &count);
        double story = loss_of(&infer, session, ids, count, NULL);
        RF_NOTE("story %zu: %zu tokens, %.4f nats each", i, count - 1, story / (double)(count - 1));
        nats += story;
        tokens += count - 1;
        bytes += stories.bytes[i];
        free(ids);
    }
    double bits = nats / log(2) / (double)bytes;
    RF_NOTE("%zu tokens: %.4f nats per token, %.4f bits per byte", tokens, nats / (double)tokens, bits);
    RF_EXPECT(nats / (double)tokens < 0.45);
    RF_EXPECT(nats / (double)tokens > 0.2); /* the generator's random choices cannot be predicted */
    rf_session_destroy(&session);
    infer_close(&infer);
    free(stories.file);
}

/* ---- generation ---- */

enum { STEPS = 40 };
static const char prompt[] = "Once upon a time";
struct told {
    int32_t best[STEPS]; /* the most likely token of each step */
    float *rows;         /* the logits of each step; the caller frees them */
};
/* Continues the prompt with the best token each time, or with the tokens that another run found best. */
static void tell(struct infer *infer, const struct told *like, struct told *told) {
    struct rf_session *session = infer_session(infer);
    int32_t *ids = NULL;
    size_t count;
    told->rows = infer_rows(infer, STEPS);
    RF_ASSERT_OK(rf_tokenizer_encode(rf_engine_tokenizer(infer->engine), prompt, strlen(prompt), NULL, &ids, &count));
    for (size_t step = 0; step < STEPS; step++) {
        const int32_t *next = step ? &(like ? like : told)->best[step - 1] : ids;
        RF_ASSERT_OK(rf_session_eval(session, next, step ? 1 : count, false, told->rows + step * infer->vocabulary));
        RF_ASSERT_OK(rf_session_sample(session, NULL, &told->best[step]));
    }
    rf_token_ids_destroy(&ids);
    rf_session_destroy(&session);
}

/* By how much the best token of a row exceeds the second. */
static double lead_of(const float *row, uint32_t vocabulary, int32_t best) {
    double second = -INFINITY;
    for (uint32_t i = 0; i < vocabulary; i++)
        if ((int32_t)i != best) second = RF_MAX(second, (double)row[i]);
    return (double)row[best] - second;
}

/* The generator of the training stories draws between words that mean the same, so a model that has learned it is
 * often undecided: as in other tests, tokens must agree if the lead of the best exceeds ten times the RMS
 * difference. */
RF_TEST(bundled, tells_the_same_story_at_every_level) {
    struct infer infer;
    struct told scalar, told;
    char *text = NULL;
    size_t bytes;
    open_bundled(&infer, &levels[0], 128);
    tell(&infer, NULL, &scalar);
    RF_ASSERT_OK(rf_tokenizer_decode(rf_engine_tokenizer(infer.engine), scalar.best, STEPS, NULL, &text, &bytes));
    RF_NOTE("%s%s", prompt, text);
    RF_EXPECT(bytes > 100);
    for (size_t i = 0; i < bytes; i++) RF_ASSERT(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
    rf_text_destroy(&text);
    infer_close(&infer);
    for (size_t level = 1; level < RF_COUNT(levels); level++) {
        int sure = 0;
        RF_TRACE("%s", levels[level].label);
        if (!rf_simd_table(level == 1 ? RF_SIMD_AVX2 : RF_SIMD_AVX512)) continue;
        open_bundled(&infer, &levels[level], 128);
        tell(&infer, &scalar, &told);
        for (size_t step = 0; step < STEPS; step++) {
            const float *expected = scalar.rows + step * infer.vocabulary, *row = told.rows + step * infer.vocabulary;
            double square = 0;
            for (uint32_t i = 0; i < infer.vocabulary; i++)
                square += pow((double)row[i] - (double)expected[i], 2) / infer.vocabulary;
            if (lead_of(expected, infer.vocabulary, scalar.best[step]) <= 10 * sqrt(square)) continue;
            RF_EXPECT_INT(told.best[step], scalar.best[step]);
            sure++;
        }
        double error = error_of_floats(told.rows, scalar.rows, STEPS * (size_t)infer.vocabulary);
        RF_NOTE("%s: squared error %.2e, %d of %d steps are sure", levels[level].label, error, sure, STEPS);
        RF_EXPECT(error < 2e-4); /* fast code may round activations to 8 bits */
        RF_EXPECT(sure >= STEPS / 2);
        infer_close(&infer);
        free(told.rows);
    }
    free(scalar.rows);
}

/* The beginning of a story on the GPU has the logits, and so the loss, of the CPU. */
static const struct where on_gpu[] = {{.label = "gpu", .rfsim = ""},
                                      {.label = "split", .rfsim = "", .device_layers = 2}};
RF_TEST_LABELLED_CASES(bundled, knows_a_story_on_the_gpu, struct where, on_gpu, .gpu = true, .timeout_ms = 1500000) {
    enum { TOKENS = 16 };
    struct stories stories;
    struct infer infer;
    size_t count;
    double nats[2];
    float *rows[2];
    infer_need(c);
    stories_read(&stories);
    for (int place = 0; place < 2; place++) {
        open_bundled(&infer, place ? c : &levels[0], 128);
        struct rf_session *session = infer_session(&infer);
        int32_t *ids = story_ids(rf_engine_tokenizer(infer.engine), stories.texts[0], stories.bytes[0], &count);
        RF_ASSERT(count > TOKENS);
        rows[place] = infer_rows(&infer, TOKENS - 1);
        nats[place] = loss_of(&infer, session, ids, TOKENS, rows[place]);
        free(ids);
        rf_session_destroy(&session);
        infer_close(&infer);
    }
    double error = error_of_floats(rows[1], rows[0], (size_t)(TOKENS - 1) * infer.vocabulary);
    RF_NOTE("loss %.5f, on the CPU %.5f; squared error of the logits %.2e", nats[1] / (TOKENS - 1),
            nats[0] / (TOKENS - 1), error);
    RF_EXPECT(error < 2e-4);
    RF_EXPECT_DOUBLE(nats[1] / (TOKENS - 1), nats[0] / (TOKENS - 1), 0.01);
    free(rows[0]);
    free(rows[1]);
    free(stories.file);
}
