/* Generating text: sample, show, evaluate, and repeat until something ends the generation. Evaluating and sampling
 * may be ahead of what is shown (ahead.c): whatever ends the generation then drops what came after it.
 *
 * Stop texts are found in the generated text, across tokens: as much of its end is held back as could be the
 * beginning of a stop text. Invariants:
 *   1. text that was given out is never part of a stop text, and never a part of a character, while more may follow
 *   2. a generation that continues from tokens generated before gives out, from said_bytes on, the text that an
 *      uninterrupted one would have: the earlier tokens go through the same decoding and the same search, but their
 *      text is not given out again
 *
 * With a grammar each token is drawn from those that may follow (grammar/constraint.h). Which these are is found out
 * while the device evaluates the token before. ignore_end then means that no token ends the text: the generation goes
 * on as long as the grammar allows.
 *
 * One part of 1 is checked: no whole stop text is given out. Checking the rest of 1, and 2, would take a second
 * search; tests/infer/test_generate.c compares with generations that were never interrupted. */
#include "infer/engine_impl.h"

#include <stdlib.h>

#include "grammar/constraint.h"
#include "tokenizer/tokenizer.h"

/* Text that was generated and not given out yet. */
struct tail {
    struct rf_account account;
    char *text;
    size_t bytes, capacity;
};

static rf_status append(struct tail *tail, const char *text, size_t bytes) {
    if (!bytes) return RF_OK;
    if (tail->capacity - tail->bytes < bytes) {
        size_t capacity = 2 * (tail->bytes + bytes) + 64;
        rf_status status =
            rf_account_resize(&tail->account, (void **)&tail->text, tail->capacity, capacity, "the text");
        if (status) return status;
        tail->capacity = capacity;
    }
    memcpy(tail->text + tail->bytes, text, bytes);
    tail->bytes += bytes;
    return RF_OK;
}

/* True: *at is where the first stop text begins in the tail. False: *at is how many bytes may be given out; the
 * rest must be held back. */
static bool find_stop(const struct tail *tail, const struct rf_generate_params *params, size_t *at) {
    size_t hold = 0;
    bool found = false;
    *at = tail->bytes;
    for (size_t i = 0; i < params->stop_count; i++) {
        const char *stop = params->stops[i];
        size_t length = strlen(stop);
        if (!length) continue;
        const char *place = tail->bytes ? memmem(tail->text, tail->bytes, stop, length) : NULL;
        if (place && (size_t)(place - tail->text) <= *at) {
            *at = (size_t)(place - tail->text);
            found = true;
        }
        for (size_t part = RF_MIN(length - 1, tail->bytes); part > hold; part--)
            if (!memcmp(tail->text + tail->bytes - part, stop, part)) {
                hold = part;
                break;
            }
    }
    if (!found) *at = tail->bytes - hold;
    return found;
}

/* Text that is about to be given out. */
struct output {
    const char *text;
    size_t bytes;
    const struct rf_generate_params *params;
};
#if RF_CHECKS >= 2
static bool output_is_valid(const struct output *output, const char **why) {
    for (size_t i = 0; i < output->params->stop_count; i++) {
        const char *stop = output->params->stops[i];
        RF_INVALID_UNLESS(!*stop || !output->bytes || !memmem(output->text, output->bytes, stop, strlen(stop)),
                          "a stop text is given out");
    }
    return true;
}
#endif

/* A generation that is under way. */
struct generation {
    struct rf_session *session;
    const struct rf_generate_params *params;
    struct rf_detokenizer *detokenizer; /* NULL: the model has no vocabulary */
    struct tail tail;
    size_t shown_before; /* bytes that were given out earlier and are not given out again */
    struct rf_generate_result *result;
    struct rf_constraint *constraint; /* NULL: no grammar */
    struct rf_sample_params sampling; /* with the tokens allowed now */
    bool has_mask;                    /* they were found out for the next token, with this result: */
    rf_status mask_status;
    struct rf_saved_error mask_error;
};

/* Gives out the first 'bytes' of the tail. False: the caller wants no more. */
static bool show(struct generation *generation, size_t bytes) {
    const struct rf_generate_params *params = generation->params;
    struct tail *tail = &generation->tail;
    size_t skip = RF_MIN(bytes, generation->shown_before);
    rf_assert(bytes <= tail->bytes);
    bool wants_more = bytes == skip || !params->text || params->text(params->user, tail->text + skip, bytes - skip);
    generation->shown_before -= skip;
    if (bytes) memmove(tail->text, tail->text + bytes, tail->bytes - bytes);
    tail->bytes -= bytes;
    return wants_more;
}

/* Decodes one more token and gives out as much text as allowed. *ended: this ends the generation. */
static rf_status show_token(struct generation *generation, int32_t token, bool *ended) {
    const char *text;
    size_t bytes, safe;
    *ended = false;
    if (!generation->detokenizer) return RF_OK;
    rf_status status = rf_detokenizer_push(generation->detokenizer, token, &text, &bytes);
    if (!status) status = append(&generation->tail, text, bytes);
    if (status) return status;
    bool stop = find_stop(&generation->tail, generation->params, &safe);
    struct output output = {generation->tail.text, safe, generation->params};
    rf_assert_valid(output_is_valid, &output);
    bool wants_more = show(generation, safe);
    if (stop) generation->tail.bytes = 0;
    if (stop || !wants_more) generation->result->end = stop ? RF_END_STOP : RF_END_CALLER;
    *ended = stop || !wants_more;
    return RF_OK;
}

/* ---- grammars ---- */

rf_status rf_engine_trie(struct rf_engine *engine, const struct rf_token_trie **out) {
    rf_status status = RF_OK;
    pthread_mutex_lock(&engine->mutex);
    if (!engine->tokenizer)
        status = rf_fail(RF_E_UNSUPPORTED, "the model has no vocabulary, which a grammar needs");
    else if (!engine->trie)
        status = rf_token_trie_create(engine->runtime, engine->tokenizer, &engine->trie);
    if (!status) *out = engine->trie;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

static rf_status make_constraint(struct generation *generation) {
    const struct rf_generate_params *params = generation->params;
    struct rf_engine *engine = generation->session->engine;
    struct rf_account account = rf_host_account(&engine->runtime->host);
    const struct rf_token_trie *trie;
    RF_TRY(rf_engine_trie(engine, &trie));
    struct rf_constraint_params wanted = {.account = &account,
                                          .grammar = params->grammar,
                                          .trie = trie,
                                          .after = params->grammar_after,
                                          .vocabulary = engine->hparams.vocabulary,
                                          .also = params->sampling->allowed,
                                          .ignore_end = params->ignore_end};
    return rf_constraint_create(&wanted, &generation->constraint);
}

/* Finds out which tokens may be drawn next. */
static void find_mask(void *user) {
    struct generation *generation = user;
    struct rf_saved_error saved;
    if (generation->has_mask || rf_constraint_is_over(generation->constraint)) return;
    rf_error_save(&saved);
    generation->mask_status = rf_constraint_mask(generation->constraint, &generation->sampling.allowed);
    rf_error_save(&generation->mask_error);
    rf_error_restore(&saved);
    generation->has_mask = true;
}

static rf_status take_mask(struct generation *generation) {
    if (!generation->constraint) return RF_OK;
    find_mask(generation); /* if it was not found out meanwhile */
    if (generation->mask_status) rf_error_restore(&generation->mask_error);
    return generation->mask_status ? rf_fail_within(generation->mask_status, "grammar") : RF_OK;
}

/* The token was drawn. *over: nothing can follow it. */
static rf_status push_token(struct generation *generation, int32_t token, bool *over) {
    *over = false;
    if (!generation->constraint) return RF_OK;
    generation->has_mask = false;
    rf_status status = rf_constraint_push(generation->constraint, token);
    if (status) return rf_fail_within(status, "grammar");
    *over = rf_constraint_is_over(generation->constraint);
    return RF_OK;
}

/* Evaluates the token and draws the next one. */
static rf_status next_token(struct generation *generation, uint32_t room, int32_t *token) {
    struct rf_session *session = generation->session;
    if (!generation->constraint) return rf_session_next(session, generation->params->sampling, room, token);
    session->meanwhile = find_mask;
    session->meanwhile_user = generation;
    rf_status status = rf_session_take_cancel(session);
    if (!status) status = rf_session_eval(session, token, 1, false, NULL);
    session->meanwhile = NULL;
    if (!status) status = take_mask(generation);
    return status ? status : rf_session_draw(session, &generation->sampling, token);
}

/* Decodes the tokens generated before without giving out their text again. *ended: the generation was already
 * complete. */
static rf_status replay_tokens(struct generation *generation, bool *ended) {
    const struct rf_generate_params *params = generation->params;
    rf_status status = RF_OK;
    bool over = generation->constraint && rf_constraint_is_over(generation->constraint);
    *ended = false;
    for (size_t i = 0; i < params->said_count && !status && !*ended; i++) {
        status = push_token(generation, params->said[i], &over);
        if (!status) status = show_token(generation, params->said[i], ended);
    }
    if (status) return status;
    if (generation->shown_before)
        return rf_fail(RF_E_INVALID, "rf_session_generate: said_bytes is %zu, the %zu tokens said give %zu less",
                       params->said_bytes, params->said_count, generation->shown_before);
    if (*ended) return RF_OK;
    if (over) {
        generation->result->end = RF_END_GRAMMAR;
        *ended = true;
        return RF_OK;
    }
    if (params->max_tokens && params->said_count >= params->max_tokens) {
        generation->result->end = RF_END_LENGTH;
        *ended = true;
        return RF_OK;
    }
    const struct rf_session *session = generation->session;
    if (session->length < params->said_count ||
        (params->said_count && memcmp(session->tokens + session->length - params->said_count, params->said,
                                      params->said_count * sizeof *params->said)))
        return rf_fail(RF_E_INVALID,
                       "rf_session_generate: the session does not end with the %zu tokens said before; evaluate them "
                       "first",
                       params->said_count);
    return RF_OK;
}

/* How many more tokens may be sampled at most. */
static uint32_t room_for_more(const struct generation *generation) {
    const struct rf_generate_params *params = generation->params;
    const struct rf_session *session = generation->session;
    uint32_t room = session->engine->context - session->length;
    size_t sampled = params->said_count + generation->result->tokens;
    return params->max_tokens ? (uint32_t)RF_MIN((size_t)room, params->max_tokens - sampled) : room;
}

static rf_status generate_tokens(struct generation *generation) {
    struct rf_session *session = generation->session;
    const struct rf_generate_params *params = generation->params;
    struct rf_generate_result *result = generation->result;
    int64_t start = rf_now_ns();
    int32_t token;
    rf_status status = take_mask(generation);
    if (!status) status = rf_session_draw(session, &generation->sampling, &token);
    while (!status) {
        bool ended, over;
        if (!result->tokens) result->first_ns = rf_now_ns() - start;
        if (!params->ignore_end && rf_tokenizer_ends_text(session->engine->tokenizer, token)) {
            result->end = RF_END_TOKEN;
            break;
        }
        status = push_token(generation, token, &over);
        if (status) break;
        result->tokens++;
        if (params->token && !params->token(params->user, token)) {
            result->end = RF_END_CALLER;
            break;
        }
        status = show_token(generation, token, &ended);
        if (status || ended) break;
        if (over) {
            result->end = RF_END_GRAMMAR;
            break;
        }
        if (params->max_tokens && params->said_count + result->tokens >= params->max_tokens) {
            result->end = RF_END_LENGTH;
            break;
        }
        if (session->length == session->engine->context) {
            result->end = RF_END_CONTEXT;
            break;
        }
        status = next_token(generation, room_for_more(generation), &token);
    }
    /* What was computed ahead and is not needed. If it is stuck, that is the next call's failure, not this one's; and
     * after a run that missed its deadline, waiting for it would take as long again. */
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (status != RF_E_TIMEOUT) rf_ahead_settle(session);
    rf_error_restore(&saved);
    result->rest_ns = rf_now_ns() - start - result->first_ns;
    return status;
}

static rf_status generate(struct rf_session *session, const struct rf_generate_params *params,
                          struct rf_generate_result *result);

/* In 0.1.0 the sampling parameters were in the struct itself. */
static rf_status read_sampling(const struct rf_generate_params *params, bool from_0_1_0,
                               struct rf_sample_params *sampling) {
    _Static_assert(sizeof params->reserved == offsetof(struct rf_sample_params, seed) + sizeof sampling->seed,
                   "what 0.1.0 had there is the beginning of the struct of today");
    if (params->sampling)
        return RF_PARAMS_READ_SINCE(struct rf_sample_params, presence, sampling, params->sampling,
                                    "rf_session_generate");
    if (from_0_1_0) {
        size_t size = sizeof *sampling;
        memcpy(sampling, params->reserved, sizeof params->reserved);
        sampling->struct_size = size;
    }
    return RF_OK;
}

rf_status rf_session_generate_sized(struct rf_session *session, const struct rf_generate_params *params,
                                    struct rf_generate_result *result) {
    struct rf_generate_params own;
    RF_PARAMS(struct rf_sample_params, sampling); /* its default: the most likely token */
    struct rf_generate_result filled = {0};
    rf_status status = RF_RESULT_CHECK(struct rf_generate_result, result, "rf_session_generate");
    if (!status)
        status = RF_PARAMS_READ_SINCE(struct rf_generate_params, sampling, &own, params, "rf_session_generate");
    if (status) return status;
    if (!session || (own.stop_count && !own.stops) || (own.said_count && !own.said))
        return rf_fail(RF_E_INVALID, "rf_session_generate: session, stops or said is NULL");
    if (own.grammar_after && !own.grammar)
        return rf_fail(RF_E_INVALID, "rf_session_generate: grammar_after without a grammar");
    bool from_0_1_0 = params->struct_size <= offsetof(struct rf_generate_params, sampling);
    for (size_t i = 0; i < RF_COUNT(own.reserved) && !from_0_1_0; i++)
        if (own.reserved[i])
            return rf_fail(RF_E_INVALID,
                           "rf_session_generate: rf_generate_params.reserved[%zu] is set; leave it 0, "
                           "and point 'sampling' at the sampling parameters",
                           i);
    status = read_sampling(&own, from_0_1_0, &sampling);
    if (status) return status;
    own.sampling = &sampling;
    status = generate(session, &own, &filled);
    RF_RESULT_WRITE(struct rf_generate_result, result, &filled);
    return status;
}

static rf_status generate(struct rf_session *session, const struct rf_generate_params *params,
                          struct rf_generate_result *result) {
    struct generation generation = {.session = session,
                                    .params = params,
                                    .tail.account = rf_host_account(&session->engine->runtime->host),
                                    .shown_before = params->said_bytes,
                                    .result = result,
                                    .sampling = *params->sampling};
    bool ended;
    rf_status status = rf_ahead_settle(session); /* a callback may have called it */
    rf_ladder_enter_quietly(session->engine);
    session->ahead.refused = false;
    rf_ladder_leave(session->engine);
    if (!status && session->engine->tokenizer) {
        RF_PARAMS(struct rf_decode_params, decode);
        decode.continues = true;
        decode.replace_invalid = true;
        decode.show_special = params->show_special;
        status = rf_detokenizer_create(session->engine->tokenizer, &decode, &generation.detokenizer);
    }
    if (!status && params->grammar) status = make_constraint(&generation);
    if (!status) status = replay_tokens(&generation, &ended);
    if (!status && !ended) status = generate_tokens(&generation);
    /* A cancellation that arrived after the last token is consumed here: it was not meant for the next call. */
    if (!status) status = rf_session_take_cancel(session);
    /* Gives out text that was held back and turned out not to be a stop text; an incomplete character becomes
     * U+FFFD. Not after a failure: then the generation is not over, and may continue from the tokens generated. */
    bool over = !status || status == RF_E_CANCELLED;
    if (over && generation.detokenizer && result->end != RF_END_STOP && result->end != RF_END_CALLER) {
        const char *text;
        size_t bytes;
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (!rf_detokenizer_finish(generation.detokenizer, &text, &bytes) && !append(&generation.tail, text, bytes))
            show(&generation, generation.tail.bytes);
        if (status) rf_error_restore(&saved);
    }
    rf_detokenizer_destroy(&generation.detokenizer);
    rf_constraint_destroy(&generation.constraint);
    free(generation.tail.text);
    rf_account_close(&generation.tail.account);
    return status;
}
