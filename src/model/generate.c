/* Generating text: sample, show, evaluate, again, until something ends it.
 *
 * Stop texts are found in what was said, across tokens: so much of the text is held back as could be the beginning of
 * one. Invariant: text that was given out is never part of a stop text. */
#include "model/engine_impl.h"

#include <stdlib.h>

/* Text that was made and not given out yet. */
struct tail {
    char *text;
    size_t bytes, capacity;
};

static rf_status append(struct tail *tail, const char *text, size_t bytes) {
    if (!bytes) return RF_OK;
    if (tail->capacity - tail->bytes < bytes) {
        size_t capacity = 2 * (tail->bytes + bytes) + 64;
        char *grown = realloc(tail->text, capacity);
        if (!grown) return rf_fail(RF_E_NO_MEMORY, "no host memory for the text");
        tail->text = grown;
        tail->capacity = capacity;
    }
    memcpy(tail->text + tail->bytes, text, bytes);
    tail->bytes += bytes;
    return RF_OK;
}

/* Where the first stop text begins in the tail, else how much of its end must be held back. */
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

/* Gives out the first 'bytes'; false: the caller has had enough. */
static bool give(struct tail *tail, size_t bytes, const struct rf_generate_params *params) {
    bool go_on = !bytes || !params->text || params->text(params->user, tail->text, bytes);
    if (bytes) memmove(tail->text, tail->text + bytes, tail->bytes - bytes);
    tail->bytes -= bytes;
    return go_on;
}

static bool ends_text(const struct rf_tokenizer *tokenizer, int32_t token) {
    RF_PARAMS(struct rf_token_info, info);
    return tokenizer && rf_tokenizer_token(tokenizer, token, &info) == RF_OK && info.ends_text;
}

static rf_status generate(struct rf_session *session, const struct rf_generate_params *params,
                          struct rf_detokenizer *detokenizer, struct tail *tail, struct rf_generate_result *result) {
    const struct rf_tokenizer *tokenizer = session->engine->tokenizer;
    int64_t start = rf_now_ns();
    rf_status status = RF_OK;
    for (;;) {
        int32_t token;
        status = rf_session_sample(session, &params->sampling, &token);
        if (status) break;
        if (!result->tokens) result->first_ns = rf_now_ns() - start;
        if (!params->ignore_end && ends_text(tokenizer, token)) {
            result->end = RF_END_TOKEN;
            break;
        }
        result->tokens++;
        if (params->token && !params->token(params->user, token)) {
            result->end = RF_END_CALLER;
            break;
        }
        if (detokenizer) {
            const char *text;
            size_t bytes, safe;
            status = rf_detokenizer_push(detokenizer, token, &text, &bytes);
            if (!status) status = append(tail, text, bytes);
            if (status) break;
            bool stop = find_stop(tail, params, &safe);
            bool go_on = give(tail, safe, params);
            if (stop) {
                tail->bytes = 0;
                result->end = RF_END_STOP;
                break;
            }
            if (!go_on) {
                result->end = RF_END_CALLER;
                break;
            }
        }
        if (params->max_tokens && result->tokens == params->max_tokens) {
            result->end = RF_END_LENGTH;
            break;
        }
        if (session->length == session->engine->context) {
            result->end = RF_END_CONTEXT;
            break;
        }
        status = rf_session_eval(session, &token, 1, false, NULL);
        if (status) break;
    }
    result->rest_ns = rf_now_ns() - start - result->first_ns;
    /* One that came behind the last token is answered here: it was not meant for what is done next. */
    return status ? status : rf_session_take_cancel(session);
}

rf_status rf_session_generate(struct rf_session *session, const struct rf_generate_params *params,
                              struct rf_generate_result *result) {
    if (!session || !params || params->struct_size < sizeof *params || !result ||
        (params->stop_count && !params->stops))
        return rf_fail(RF_E_INVALID, "rf_session_generate: NULL, or struct_size is not set");
    struct rf_generate_params own = *params;
    own.sampling.struct_size = sizeof own.sampling;
    struct rf_detokenizer *detokenizer = NULL;
    struct tail tail = {0};
    const struct rf_tokenizer *tokenizer = session->engine->tokenizer;
    *result = (struct rf_generate_result){0};
    rf_status status = RF_OK;
    if (tokenizer) {
        RF_PARAMS(struct rf_decode_params, decode);
        decode.continues = true;
        decode.replace_invalid = true;
        status = rf_detokenizer_create(tokenizer, &decode, &detokenizer);
    }
    if (!status) status = generate(session, &own, detokenizer, &tail, result);
    /* What was held back and turned out to be no stop text; half a character is shown as such. */
    if (detokenizer && result->end != RF_END_STOP && result->end != RF_END_CALLER) {
        const char *text;
        size_t bytes;
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (!rf_detokenizer_finish(detokenizer, &text, &bytes) && !append(&tail, text, bytes))
            give(&tail, tail.bytes, &own);
        if (status) rf_error_restore(&saved);
    }
    rf_detokenizer_destroy(&detokenizer);
    free(tail.text);
    return status;
}
