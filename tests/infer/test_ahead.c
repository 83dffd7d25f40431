/* Generating ahead of the host: whatever ends or disturbs a generation, its tokens, its end and the state of the
 * session are those of tokens that are evaluated and drawn one by one. */
#include "infer_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "infer/engine_impl.h"

static const struct spec small = {"llama",    "llama",       .layers = 2,        .width = 64,
                                  .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = 300};
static const struct where ahead = {.label = "gpu", .rfsim = ""};
static const struct where one_by_one = {.label = "gpu, no recordings", .rfsim = "", .no_replay = true};

/* ---- what is heard of a generation ---- */

enum { HEARD_MAX = 700, PROMPT = 9 };
struct heard {
    struct rf_session *session;
    int32_t tokens[HEARD_MAX];
    uint32_t count;
    uint32_t ended_at; /* 0: never; otherwise this token's callback does it: */
    enum { WANTS_NO_MORE, CANCELS, SAMPLES, EVALUATES, REWINDS, GENERATES } what;
    const struct rf_sample_params *sampling;
    uint32_t most_queued; /* runs that were under way when a callback was called */
    bool dropped;         /* runs were submitted that were not needed */
    struct rf_generate_result result;
    rf_status status;
    uint32_t length; /* of the session afterwards */
    int32_t held[HEARD_MAX];
    int32_t next; /* what is drawn afterwards from the last logits; -1: there are none */
};

static bool hear(void *user, int32_t token);

static struct heard listen(struct rf_session *session, const struct rf_sample_params *sampling,
                           struct rf_generate_params params, struct heard heard) {
    params.struct_size = sizeof params;
    params.sampling = sampling;
    params.ignore_end = true;
    params.token = hear;
    params.user = &heard;
    heard.session = session;
    heard.sampling = sampling;
    heard.result.struct_size = sizeof heard.result;
    heard.status = rf_session_generate(session, &params, &heard.result);
    RF_EXPECT_UINT(session->ahead.queued, 0);
    heard.length = rf_session_length(session);
    memcpy(heard.held, session->tokens, heard.length * sizeof *heard.held);
    heard.next = -1;
    heard.dropped = session->evaluate_again;
    if (rf_session_sample(session, sampling, &heard.next)) heard.next = -1;
    heard.session = NULL; /* so that two can be compared */
    return heard;
}

static bool hear(void *user, int32_t token) {
    struct heard *heard = user;
    struct rf_session *session = heard->session;
    int32_t other = 7;
    RF_ASSERT(heard->count < HEARD_MAX);
    heard->tokens[heard->count++] = token;
    heard->most_queued = RF_MAX(heard->most_queued, session->ahead.queued);
    if (heard->count != heard->ended_at) return true;
    switch (heard->what) {
    case WANTS_NO_MORE: return false;
    case CANCELS: rf_session_cancel(session); break;
    case SAMPLES: /* the token that it was given once more */
        RF_ASSERT_OK(rf_session_sample(session, heard->sampling, &other));
        RF_ASSERT_INT(other, token);
        break;
    case EVALUATES: RF_ASSERT_OK(rf_session_eval(session, &other, 1, false, NULL)); break;
    case REWINDS: RF_ASSERT_OK(rf_session_rewind(session, rf_session_length(session) - 3)); break;
    case GENERATES: { /* a whole generation inside another one, which then goes on behind it */
        RF_PARAMS(struct rf_generate_params, params);
        RF_PARAMS(struct rf_generate_result, result);
        params.max_tokens = 4;
        params.sampling = heard->sampling;
        RF_ASSERT_OK(rf_session_generate(session, &params, &result));
        break;
    }
    }
    return true;
}

static void expect_same(const struct heard *a, const struct heard *b) {
    RF_EXPECT_INT(a->status, b->status);
    RF_EXPECT_INT(a->result.end, b->result.end);
    RF_EXPECT_UINT(a->result.tokens, b->result.tokens);
    RF_EXPECT_UINT(a->count, b->count);
    for (uint32_t i = 0; i < a->count && i < b->count; i++)
        if (a->tokens[i] != b->tokens[i]) {
            RF_FAIL("token %u is %d, and %d one by one", i, a->tokens[i], b->tokens[i]);
            break;
        }
    RF_EXPECT_UINT(a->length, b->length);
    RF_EXPECT(!memcmp(a->held, b->held, a->length * sizeof *a->held));
    RF_EXPECT_INT(a->next, b->next);
}

/* Two sessions of one engine: ahead, and one by one. */
struct both {
    struct infer infer;
    struct rf_session *session[2];
};
static void go_one_by_one(struct rf_session *session) {
    session->ahead.unable = true;
    session->ahead.epoch = session->engine->epoch;
}
static void open_both(struct both *both, const struct where *where, struct rf_engine_params params) {
    infer_need(where);
    params.model = infer_model(&small, "small.gguf");
    params.sessions = 2;
    infer_open(&both->infer, where, &params);
    for (int i = 0; i < 2; i++) both->session[i] = infer_session(&both->infer);
    go_one_by_one(both->session[1]);
}
static void close_both(struct both *both) {
    for (int i = 0; i < 2; i++) rf_session_destroy(&both->session[i]);
    infer_close(&both->infer);
}
/* Both evaluate this many tokens as a prompt. */
static void prompt_both(struct both *both, uint32_t count) {
    int32_t tokens[HEARD_MAX];
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(i * 37 + 5) % 300;
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_session_rewind(both->session[i], 0));
        RF_ASSERT_OK(rf_session_eval(both->session[i], tokens, count, false, NULL));
    }
}
/* Both generate; returns what the first said. */
static struct heard compare(struct both *both, const struct rf_sample_params *sampling,
                            struct rf_generate_params params, struct heard wanted) {
    struct heard heard[2];
    for (int i = 0; i < 2; i++) heard[i] = listen(both->session[i], sampling, params, wanted);
    RF_EXPECT_UINT(heard[1].most_queued, 0);
    expect_same(&heard[0], &heard[1]);
    return heard[0];
}

static const struct rf_sample_params settings[] = {
    {.temperature = 0},
    {.temperature = 1},
    {.temperature = 0.7f, .top_k = 5},
    {.temperature = 1.3f, .top_p = 0.8f},
    {.temperature = 0.9f, .min_p = 0.1f, .top_k = 100000},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .penalty = 1.3f, .penalty_window = 64},
    {.temperature = 0, .penalty = 5, .penalty_window = 4},
    {.temperature = 1.1f, .penalty = 1.2f, .penalty_window = 100000}, /* longer than what is held */
    {.temperature = 0, .penalty = 3, .penalty_window = 1},
    {.temperature = 2, .penalty = 0.5f, .penalty_window = PROMPT + 3},
};
static struct rf_sample_params setting(size_t index, uint64_t seed) {
    struct rf_sample_params sampling = settings[index];
    sampling.struct_size = sizeof sampling;
    sampling.seed = seed;
    return sampling;
}

/* ---- undisturbed ---- */

static const struct where places[] = {{.label = "gpu", .rfsim = ""},
                                      {.label = "wave_64", .rfsim = "arch=gfx942,shuffle=3"},
                                      {.label = "streams_in_any_order", .rfsim = "delay=7/200us"}};
RF_TEST_LABELLED_CASES(ahead, tokens_are_the_same, struct where, places, .gpu = true, .timeout_ms = 1500000) {
    enum { SEEDS = 2 };
    struct both both;
    open_both(&both, c, (struct rf_engine_params){.context = 26});
    for (size_t s = 0; s < RF_COUNT(settings); s += c == places ? 1 : 3) /* elsewhere some are enough */
        for (uint64_t seed = 0; seed < (settings[s].temperature > 0 ? SEEDS : 1); seed++) {
            struct rf_sample_params sampling = setting(s, seed * 77777);
            RF_TRACE("settings %zu, seed %llu", s, (unsigned long long)seed);
            prompt_both(&both, seed ? 1 : PROMPT); /* few shapes: each new one takes longer than its tokens */
            struct rf_generate_params params = {.max_tokens = 12 + (uint32_t)seed};
            struct heard heard = compare(&both, &sampling, params, (struct heard){0});
            RF_EXPECT_INT(heard.result.end, RF_END_LENGTH);
            RF_EXPECT_UINT(heard.count, params.max_tokens);
            RF_EXPECT_UINT(heard.most_queued, RF_AHEAD_MAX - 1);
            RF_EXPECT(!heard.dropped); /* that these tokens are the last is known beforehand */
            /* It goes on from what it holds, to the end of the context. */
            heard = compare(&both, &sampling, (struct rf_generate_params){0}, (struct heard){0});
            RF_EXPECT_INT(heard.result.end, RF_END_CONTEXT);
            RF_EXPECT_UINT(heard.length, 26);
        }
    close_both(&both);
}

/* An engine that submits every node anew says the same. */
RF_TEST(ahead, tokens_without_recordings_are_the_same, .gpu = true, .timeout_ms = 600000) {
    static struct heard heard[2][RF_COUNT(settings)];
    infer_need(&ahead);
    for (int way = 0; way < 2; way++) {
        struct both both;
        open_both(&both, way ? &one_by_one : &ahead, (struct rf_engine_params){.context = 64});
        for (size_t s = 0; s < RF_COUNT(settings); s++) {
            struct rf_sample_params sampling = setting(s, 5);
            prompt_both(&both, PROMPT);
            heard[way][s] =
                listen(both.session[0], &sampling, (struct rf_generate_params){.max_tokens = 16}, (struct heard){0});
            RF_EXPECT_UINT(heard[way][s].most_queued, way ? 0 : 1);
        }
        close_both(&both);
    }
    for (size_t s = 0; s < RF_COUNT(settings); s++) expect_same(&heard[0][s], &heard[1][s]);
}

/* The same engine, asked for one token at a time: the logits that a generation leaves are the right ones too. */
RF_TEST(ahead, calls_of_both_kinds_in_turn, .gpu = true, .timeout_ms = 600000) {
    struct both both;
    open_both(&both, &ahead, (struct rf_engine_params){.context = 96});
    struct rf_sample_params sampling = setting(5, 3);
    prompt_both(&both, PROMPT);
    for (uint32_t round = 1; round < 5; round++) {
        struct heard heard = {0};
        RF_PARAMS(struct rf_generate_params, params);
        params.max_tokens = round + 1;
        heard = listen(both.session[0], &sampling, params, heard);
        RF_ASSERT_OK(heard.status);
        for (uint32_t i = 0; i <= round; i++) {
            int32_t token = -1;
            RF_ASSERT_OK(rf_session_sample(both.session[1], &sampling, &token));
            RF_ASSERT_INT(token, heard.tokens[i]);
            if (i < round) RF_ASSERT_OK(rf_session_eval(both.session[1], &token, 1, false, NULL));
        }
        RF_ASSERT_UINT(rf_session_length(both.session[0]), rf_session_length(both.session[1]));
    }
    close_both(&both);
}

/* Past the lengths at which attention is split otherwise, to the end of the context. */
RF_TEST(ahead, longer_than_a_shape, .gpu = true, .timeout_ms = 1500000) {
    struct both both;
    open_both(&both, &ahead, (struct rf_engine_params){.context = 520});
    struct rf_sample_params sampling = setting(5, 11);
    for (uint32_t prompt = 250; prompt <= 256; prompt += 3) {
        RF_TRACE("a prompt of %u", prompt);
        prompt_both(&both, prompt);
        struct heard heard =
            compare(&both, &sampling, (struct rf_generate_params){.max_tokens = 12}, (struct heard){0});
        RF_EXPECT_UINT(heard.most_queued, RF_AHEAD_MAX - 1);
    }
    prompt_both(&both, 505);
    struct heard heard = compare(&both, &sampling, (struct rf_generate_params){0}, (struct heard){0});
    RF_EXPECT_INT(heard.result.end, RF_END_CONTEXT);
    RF_EXPECT_UINT(heard.length, 520);
    close_both(&both);
}

/* ---- ended and disturbed ---- */

static const struct disturbance {
    const char *label;
    int what;
} disturbances[] = {{"wants_no_more", WANTS_NO_MORE}, {"cancels", CANCELS}, {"samples", SAMPLES},
                    {"evaluates", EVALUATES},         {"rewinds", REWINDS}, {"generates", GENERATES}};
RF_TEST_LABELLED_CASES(ahead, a_callback_at_any_token, struct disturbance, disturbances, .gpu = true,
                       .timeout_ms = 1500000) {
    struct both both;
    open_both(&both, &ahead, (struct rf_engine_params){.context = 64});
    for (uint32_t at = 1; at <= 7; at++) {
        struct rf_sample_params sampling = setting(at % RF_COUNT(settings), at);
        RF_TRACE("at token %u", at);
        prompt_both(&both, PROMPT);
        struct heard wanted = {.ended_at = at};
        wanted.what = c->what;
        struct rf_generate_params params = {.max_tokens = 8};
        struct heard heard = compare(&both, &sampling, params, wanted);
        if (c->what == WANTS_NO_MORE) RF_EXPECT_INT(heard.result.end, RF_END_CALLER);
        if (c->what == CANCELS) RF_EXPECT_INT(heard.status, RF_E_CANCELLED);
        if (c->what <= CANCELS) RF_EXPECT_UINT(heard.count, at);
        compare(&both, &sampling, params, (struct heard){0}); /* and on from there */
    }
    close_both(&both);
}

/* A text that ends it, and a token that does; what comes behind it is dropped. */
RF_TEST(ahead, texts_and_tokens_that_end_it, .gpu = true, .timeout_ms = 600000) {
    static struct script script;
    static const char *const stops[] = {"orl", "d!", "H", "nothing of it"};
    infer_need(&ahead);
    script_begin(&script, false);
    int32_t wo = script_add(&script, "wo", RF_TOKEN_NORMAL), rl = script_add(&script, "rl", RF_TOKEN_NORMAL);
    script_say(&script, 1, "Hel ", wo);
    script.next[wo] = rl;
    script_say(&script, rl, "d!", 2);
    script.next[2] = wo;
    script_write(&script, scratch_path("script.gguf"));
    for (size_t s = 0; s < RF_COUNT(stops); s++) {
        uint32_t lengths[2], tokens[2];
        int32_t next[2];
        for (int way = 0; way < 2; way++) {
            struct infer infer;
            RF_PARAMS(struct rf_generate_params, params);
            RF_PARAMS(struct rf_generate_result, result);
            infer_open(&infer, way ? &one_by_one : &ahead,
                       &(struct rf_engine_params){.model = scratch_path("script.gguf"), .context = 64});
            struct rf_session *session = infer_session(&infer);
            params.stops = &stops[s];
            params.stop_count = 1;
            RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){1}, 1, false, NULL));
            RF_ASSERT_OK(rf_session_generate(session, &params, &result));
            RF_EXPECT_INT(result.end, s == 3 ? RF_END_TOKEN : RF_END_STOP);
            RF_ASSERT_OK(rf_session_sample(session, NULL, &next[way]));
            lengths[way] = rf_session_length(session);
            tokens[way] = result.tokens;
            rf_session_destroy(&session);
            infer_close(&infer);
        }
        RF_EXPECT_UINT(lengths[0], lengths[1]);
        RF_EXPECT_UINT(tokens[0], tokens[1]);
        RF_EXPECT_INT(next[0], next[1]);
    }
}

/* ---- what is not ahead ---- */

static const struct plain {
    const char *label;
    struct where where;
    uint32_t duty_percent;
} plains[] = {{"cpu", {.label = "cpu"}, 0},
              {"split", {.label = "split", .rfsim = "", .device_layers = 1}, 0},
              {"no_replay", {.label = "no replay", .rfsim = "", .no_replay = true}, 0},
              {"no_recordings", {.label = "no recordings", .rfsim = "fault=hipGraphInstantiateWithFlags:1+:1"}, 0},
              {"a_device_that_rests", {.label = "rests", .rfsim = ""}, 50}};
RF_TEST_LABELLED_CASES(ahead, not_where_it_cannot, struct plain, plains, .gpu = true, .timeout_ms = 600000) {
    struct both both;
    if (c->where.rfsim && *c->where.rfsim) gpu_need_simulated(c->where.rfsim);
    open_both(&both, &c->where, (struct rf_engine_params){.context = 64, .duty_percent = c->duty_percent});
    struct rf_sample_params sampling = setting(5, 3);
    prompt_both(&both, PROMPT);
    struct heard heard = compare(&both, &sampling, (struct rf_generate_params){.max_tokens = 12}, (struct heard){0});
    RF_EXPECT_UINT(heard.count, 12);
    RF_EXPECT_UINT(heard.most_queued, 0);
    RF_EXPECT(both.session[0]->runner_count <= 2); /* the prompt's, and one for single tokens */
    if (c->duty_percent) RF_EXPECT(atomic_load(&both.infer.engine->idle_ns) > 0);
    close_both(&both);
}

/* ---- logits that are no numbers ---- */

/* The third token's embedding has a NaN, so the logits after it are none; or one row of the output has, so that one
 * logit is none after every token. */
RF_TEST(ahead, logits_that_are_no_numbers, .gpu = true, .timeout_ms = 300000) {
    infer_need(&ahead);
    for (int all = 0; all < 2; all++) {
        struct infer infer;
        struct heard heard = {0};
        size_t bytes = 0;
        const char *path = infer_model(&small, "spoiled.gguf");
        struct rf_sample_params sampling = setting(0, 0);
        RF_PARAMS(struct rf_generate_params, params);
        params.max_tokens = 8;
        for (int round = 0; round < 2; round++) { /* what is said, then the same with damage */
            infer_open(&infer, &ahead, &(struct rf_engine_params){.model = path, .context = 64});
            struct rf_session *session = infer_session(&infer);
            RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){11, 12, 13, 14}, 4, false, NULL));
            struct heard said = listen(session, &sampling, params, (struct heard){0});
            RF_EXPECT_UINT(said.most_queued, round && all ? 0 : 1);
            rf_session_destroy(&session);
            infer_close(&infer);
            if (round) {
                RF_EXPECT_STATUS(said.status, RF_E_CORRUPT);
                RF_EXPECT_UINT(said.count, all ? 0 : 3);
                RF_EXPECT_UINT(said.length, all ? 4 : 7);
                RF_EXPECT(!memcmp(said.tokens, heard.tokens, said.count * sizeof *said.tokens));
                continue;
            }
            RF_ASSERT_OK(said.status);
            heard = said;
            for (int i = 0; i < 2; i++) RF_ASSERT(all || heard.tokens[i] != heard.tokens[2]);
            /* The tensor that is spoilt, at its place in the file. */
            struct rf_gguf *gguf = NULL;
            RF_PARAMS(struct rf_gguf_tensor_info, info);
            RF_ASSERT_OK(rf_gguf_open(path, &gguf));
            unsigned char *whole = read_bytes(path, &bytes);
            const float nan = NAN;
            for (uint64_t i = 0; !rf_gguf_tensor_info_at(gguf, i, &info); i++)
                if (!strcmp(info.name, all ? "output.weight" : "token_embd.weight")) {
                    RF_ASSERT_INT(info.dtype, RF_F32);
                    uint64_t row = all ? 77 : (uint64_t)heard.tokens[2];
                    memcpy(whole + info.offset + row * info.shape[1] * sizeof nan, &nan, sizeof nan);
                }
            rf_gguf_close(&gguf);
            write_bytes(path, whole, bytes);
            free(whole);
        }
    }
}

/* ---- faults ---- */

/* What an answer is made of: a prompt, then tokens to the end of a small context, with a text that is said so far. */
struct answer {
    rf_status opened, status;
    uint32_t length, count;
    int32_t tokens[32];
    bool ahead;        /* runs were ahead at least once */
    uint64_t calls[2]; /* of the driver: before the answer and after it */
};
static bool keep(void *user, int32_t token) {
    struct heard *heard = user;
    heard->most_queued = RF_MAX(heard->most_queued, heard->session->ahead.queued);
    heard->tokens[heard->count++] = token;
    return true;
}
static uint64_t calls_of(const char *entry) {
    return strcmp(entry, "any") ? gpu_sim_entry_calls(entry) : gpu_sim_calls();
}
static struct answer answer_with(const char *rfsim, const char *entry, const char *timeout) {
    struct answer answer = {0};
    struct infer infer = {0};
    struct heard heard = {0};
    const char *const options[] = {timeout, NULL};
    RF_PARAMS(struct rf_generate_result, result);
    RF_PARAMS(struct rf_generate_params, generate);
    struct rf_sample_params sampling = setting(5, 9);
    RF_PARAMS(struct rf_engine_params, params);
    gpu_set_sim(rfsim);
    gpu_make_runtime(&infer.gpu, options);
    params.runtime = infer.gpu.runtime;
    params.model = scratch_path("small.gguf");
    params.device = "gpu";
    params.context = PROMPT + 12;
    params.threads = 1;
    answer.opened = rf_engine_open(&params, &infer.engine);
    if (!answer.opened) {
        int32_t tokens[PROMPT];
        for (int i = 0; i < PROMPT; i++) tokens[i] = (i * 37 + 5) % 300;
        heard.session = infer_session(&infer);
        generate.sampling = &sampling;
        generate.ignore_end = true;
        generate.token = keep;
        generate.user = &heard;
        answer.status = rf_session_eval(heard.session, tokens, PROMPT, false, NULL);
        answer.calls[0] = calls_of(entry);
        if (!answer.status) answer.status = rf_session_generate(heard.session, &generate, &result);
        answer.calls[1] = calls_of(entry);
        if (answer.status) RF_EXPECT(rf_error_text()[0] && !strchr(rf_error_text(), '\n'));
        answer.length = rf_session_length(heard.session);
        answer.count = heard.count;
        answer.ahead = heard.most_queued > 0;
        memcpy(answer.tokens, heard.tokens, heard.count * sizeof *answer.tokens);
        for (uint32_t i = 0; i + PROMPT < answer.length; i++)
            RF_EXPECT_INT(heard.session->tokens[PROMPT + i], answer.tokens[i]);
        gpu_sim_release_hangs();
        rf_session_destroy(&heard.session);
    }
    rf_engine_close(&infer.engine);
    RF_EXPECT(infer.engine == NULL);
    bool abandoned = strstr(gpu_log(), "abandoned") || strstr(gpu_log(), "could not be given back");
    rf_runtime_destroy(&infer.gpu.runtime);
    if (answer.opened != RF_E_DEVICE_LOST && answer.status != RF_E_DEVICE_LOST && !abandoned)
        RF_EXPECT_UINT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
    return answer;
}

/* Prints in a child process what an answer was, because the simulated driver reads RFSIM once. */
static void answer_in_child(const char *rfsim, const char *entry, struct answer *answer) {
    int ends[2];
    RF_ASSERT_INT(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        struct answer made =
            answer_with(rfsim, entry, strstr(rfsim, "hang") ? "RF_TIMEOUT_MS=3000" : "RF_TIMEOUT_MS=200000");
        _exit(write(ends[1], &made, sizeof made) == (ssize_t)sizeof made ? 0 : 1);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], answer, sizeof *answer);
    close(ends[0]);
    int status = 0;
    RF_ASSERT_INT(waitpid(child, &status, 0), child);
    RF_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0 && got == (ssize_t)sizeof *answer);
}

/* A driver call of the answer fails once: the tokens that came are right, the session holds all but the last of them,
 * and the status is that of the fault; or the fault was got round and nothing is missing. */
static const struct fault {
    const char *label, *entry, *kind;
} faults[] = {{"launch_refused", "hipGraphLaunch", "2"},
              {"launch_fails", "hipGraphLaunch", "1"},
              {"work_is_lost", "hipGraphLaunch", "work/719"},
              {"query_is_lost", "hipEventQuery", "999"},
              {"record_fails", "hipEventRecord", "1"},
              {"no_pinned", "hipHostMalloc", "2"},
              {"instantiate", "hipGraphInstantiateWithFlags", "2"},
              {"memory", "hipMalloc", "2"},
              {"any_is_lost", "any", "999"},
              {"any_fails", "any", "1"}};
static void faults_of(const struct fault *fault, uint64_t tries) {
    struct answer whole, answer;
    gpu_need_simulated("");
    infer_model(&small, "small.gguf");
    answer_in_child("", fault->entry, &whole);
    RF_ASSERT_OK(whole.status);
    RF_ASSERT_UINT(whole.count, 13);
    RF_ASSERT(whole.ahead);
    uint64_t calls = whole.calls[1] - whole.calls[0], failures = 0;
    RF_ASSERT(calls > 0);
    tries = RF_MIN(tries, calls);
    for (uint64_t i = 0; i < tries; i++) {
        char rfsim[96];
        uint64_t nth = whole.calls[0] + 1 + i * calls / tries;
        snprintf(rfsim, sizeof rfsim, "fault=%s:%llu:%s", fault->entry, (unsigned long long)nth, fault->kind);
        RF_TRACE("%s", rfsim);
        answer_in_child(rfsim, fault->entry, &answer);
        if (answer.opened) continue; /* how often a wait looks is not the same each time, so this came earlier */
        bool fatal = strstr(fault->kind, "719") || strstr(fault->kind, "999");
        if (answer.status) RF_EXPECT(fatal == (answer.status == RF_E_DEVICE_LOST));
        RF_EXPECT(answer.count <= whole.count && (answer.status || answer.count == whole.count));
        RF_EXPECT(!memcmp(answer.tokens, whole.tokens, answer.count * sizeof *whole.tokens));
        /* The last token is held if it is the draw after it that failed. */
        if (answer.count)
            RF_EXPECT(answer.length == PROMPT + answer.count - 1 || answer.length == PROMPT + answer.count);
        failures += answer.status != RF_OK;
    }
    RF_NOTE("%llu of %llu calls tried, %llu failures", (unsigned long long)tries, (unsigned long long)calls,
            (unsigned long long)failures);
}
RF_TEST_LABELLED_CASES(ahead, faults_in_an_answer, struct fault, faults, .timeout_ms = 1500000, .tags = "faults") {
    faults_of(c, 6);
}
RF_TEST_LABELLED_CASES(ahead, faults_at_every_call_of_an_answer, struct fault, faults, .timeout_ms = 3600000,
                       .tags = "slow") {
    faults_of(c, 200); /* all but for those that depend on how often a wait looks */
}

/* ---- deadlines ---- */

/* A run that never ends is noticed by its deadline, at whatever token. */
RF_TEST(ahead, a_run_that_hangs, .timeout_ms = 600000) {
    gpu_need_simulated("");
    infer_model(&small, "small.gguf");
    for (int nth = 2; nth < 7; nth += 2) {
        struct answer answer;
        char rfsim[64];
        snprintf(rfsim, sizeof rfsim, "fault=hipGraphLaunch:%d:work/hang", nth);
        answer_in_child(rfsim, "any", &answer);
        RF_EXPECT_STATUS(answer.status, RF_E_TIMEOUT);
        RF_EXPECT_UINT(answer.count, (unsigned)nth);
        RF_EXPECT_UINT(answer.length, PROMPT + (unsigned)nth - 1);
    }
}

static struct infer open_impatient(const char *rfsim) {
    struct infer infer = {0};
    const char *const options[] = {"RF_TIMEOUT_MS=3000", NULL};
    RF_PARAMS(struct rf_engine_params, params);
    gpu_need_simulated(rfsim);
    gpu_make_runtime(&infer.gpu, options);
    params.runtime = infer.gpu.runtime;
    params.model = infer_model(&small, "small.gguf");
    params.device = "gpu";
    params.context = 64;
    params.sessions = 2;
    RF_ASSERT_OK(rf_engine_open(&params, &infer.engine));
    return infer;
}

static bool hear_three(void *count, int32_t token) {
    (void)token;
    return ++*(int *)count < 3;
}
/* A run that was submitted ahead and is not needed, and never ends: the answer is complete, and the next call fails.
 */
RF_TEST(ahead, a_run_that_nobody_needs_hangs, .timeout_ms = 600000) {
    struct infer infer = open_impatient("fault=hipGraphLaunch:4:work/hang");
    struct rf_session *session = infer_session(&infer);
    int32_t tokens[PROMPT];
    int count = 0;
    RF_PARAMS(struct rf_generate_params, generate);
    RF_PARAMS(struct rf_generate_result, result);
    for (uint32_t i = 0; i < PROMPT; i++) tokens[i] = (int32_t)i;
    RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, NULL));
    generate.max_tokens = 8;
    generate.ignore_end = true;
    generate.token = hear_three;
    generate.user = &count;
    RF_EXPECT_OK(rf_session_generate(session, &generate, &result));
    RF_EXPECT_INT(count, 3);
    RF_EXPECT_UINT(result.tokens, 3);
    RF_EXPECT_UINT(rf_session_length(session), PROMPT + 2);
    RF_EXPECT_STATUS(rf_session_eval(session, tokens, 1, false, NULL), RF_E_TIMEOUT);
    gpu_sim_release_hangs();
    RF_EXPECT_OK(rf_session_eval(session, tokens, 1, false, NULL));
    RF_EXPECT_UINT(rf_session_length(session), PROMPT + 3);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* What is stuck keeps the session: every call waits for it and fails like it. When it ends after all, the session
 * goes on from the tokens that it holds. */
RF_TEST(ahead, a_run_that_hangs_and_ends, .timeout_ms = 600000) {
    struct infer infer = open_impatient("fault=hipGraphLaunch:4:work/hang");
    struct heard heard[2];
    struct rf_sample_params sampling = setting(5, 4);
    RF_PARAMS(struct rf_generate_params, generate);
    struct both both = {.infer = infer, .session = {infer_session(&infer), infer_session(&infer)}};
    go_one_by_one(both.session[1]);
    prompt_both(&both, PROMPT);
    generate.max_tokens = 8;
    generate.sampling = &sampling;
    RF_PARAMS(struct rf_generate_result, result);
    RF_EXPECT_STATUS(rf_session_generate(both.session[0], &generate, &result), RF_E_TIMEOUT);
    RF_EXPECT_UINT(result.tokens, 4);
    RF_EXPECT_UINT(rf_session_length(both.session[0]), PROMPT + 3);
    int32_t token = 7;
    RF_EXPECT_STATUS(rf_session_eval(both.session[0], &token, 1, false, NULL), RF_E_TIMEOUT);
    RF_EXPECT_STATUS(rf_session_sample(both.session[0], &sampling, &token), RF_E_TIMEOUT);
    RF_EXPECT_UINT(rf_session_length(both.session[0]), PROMPT + 3);
    rf_ladder_relieve_host(infer.engine); /* gives up what is under way */
    RF_EXPECT_STATUS(rf_session_eval(both.session[0], &token, 1, false, NULL), RF_E_TIMEOUT);
    RF_EXPECT_STATUS(rf_session_rewind(both.session[0], PROMPT), RF_E_TIMEOUT);
    gpu_sim_release_hangs();
    /* The other session gets the tokens that this one holds, in the same way. */
    for (uint32_t i = 0; i < 3; i++)
        RF_ASSERT_OK(rf_session_eval(both.session[1], &both.session[0]->tokens[PROMPT + i], 1, false, NULL));
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_session_eval(both.session[i], (int32_t[]){7}, 1, false, NULL));
        heard[i] =
            listen(both.session[i], &sampling, (struct rf_generate_params){.max_tokens = 6}, (struct heard){0});
        RF_EXPECT_OK(heard[i].status);
    }
    expect_same(&heard[0], &heard[1]);
    close_both(&both);
}
