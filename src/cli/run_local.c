/* Answers from an engine in this process. The command uses it for the CPU, its worker for the GPU.
 *
 * A prompt is evaluated in the same parts that the engine would split it into, so that signs of life can be sent in
 * between; the same question gives the same bits either way. */
#include "run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- failures ---- */

rf_status run_fail(struct run_failure *failure, rf_status status, int exit_code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(failure->line, sizeof failure->line, format, args);
    va_end(args);
    failure->status = status;
    failure->exit_code = exit_code;
    return status;
}

rf_status run_fail_status(struct run_failure *failure, rf_status status) {
    return run_fail(failure, status, cli_exit_code(status), "%s (%s)", rf_error_text(), rf_status_name(status));
}

int run_show_failure(const struct run_failure *failure) {
    return cli_fail(failure->exit_code, "run: %s", failure->line);
}

/* ---- the engine ---- */

void run_info_finish(struct run_info *info) {
    free(info->chat_template);
    info->chat_template = NULL;
}

/* The text of a control token; "": there is none, or none of that length. */
static void token_text(const struct rf_tokenizer *tokenizer, int32_t id, char *text, size_t size) {
    RF_PARAMS(struct rf_token_info, token);
    text[0] = 0;
    if (id < 0 || rf_tokenizer_token(tokenizer, id, &token) || token.text_bytes >= size) return;
    snprintf(text, size, "%s", token.text);
}

static rf_status tell(const struct rf_engine *engine, struct run_info *out) {
    RF_PARAMS(struct rf_engine_info, info);
    RF_PARAMS(struct rf_tokenizer_info, vocabulary);
    const struct rf_tokenizer *tokenizer = rf_engine_tokenizer(engine);
    rf_status status = rf_engine_get_info(engine, &info);
    if (!status && tokenizer) status = rf_tokenizer_get_info(tokenizer, &vocabulary);
    if (status) return status;
    *out = (struct run_info){.has_device = strncmp(info.device, "CPU, ", 5) != 0,
                             .layers = info.layers,
                             .device_layers = info.device_layers,
                             .context = info.context,
                             .format = rf_engine_chat_format(engine)};
    snprintf(out->device, sizeof out->device, "%s", info.device);
    if (tokenizer) {
        token_text(tokenizer, vocabulary.bos, out->bos, sizeof out->bos);
        token_text(tokenizer, vocabulary.eos, out->eos, sizeof out->eos);
    }
    /* Without memory for it the file is taken for one that has none, and the command says so. */
    if (info.chat_template && *info.chat_template) out->chat_template = strdup(info.chat_template);
    return RF_OK;
}

static void forget_grammar(struct run_local *local) {
    rf_grammar_destroy(&local->grammar);
    free(local->grammar_text);
    local->grammar_text = NULL;
}

/* Made once for all questions that want the same. */
static rf_status make_grammar(struct run_local *local, const struct run_grammar *wanted,
                              struct run_failure *failure) {
    if (local->grammar && local->grammar_kind == wanted->kind && !strcmp(local->grammar_text, wanted->text))
        return RF_OK;
    forget_grammar(local);
    rf_status status = run_grammar_create(wanted, local->runtime, &local->grammar);
    if (status) return run_fail_status(failure, status);
    local->grammar_kind = wanted->kind;
    local->grammar_text = strdup(wanted->text);
    if (local->grammar_text) return RF_OK;
    forget_grammar(local);
    return run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for the grammar");
}

rf_status run_local_open(struct run_local *local, const struct run_options *options,
                         const struct model_options *model, struct run_info *info, struct run_failure *failure) {
    *local = (struct run_local){.options = options};
    rf_status status = model_open(model, &local->runtime, &local->engine);
    if (!status) status = rf_session_create(local->engine, &local->session);
    if (!status) status = tell(local->engine, info);
    if (!status) return RF_OK;
    run_fail_status(failure, status);
    struct run_failure ignored;
    run_local_close(local, &ignored);
    return status;
}

rf_status run_local_close(struct run_local *local, struct run_failure *failure) {
    rf_session_destroy(&local->session);
    forget_grammar(local);
    rf_status status = model_close(&local->runtime, &local->engine);
    return status ? run_fail_status(failure, status) : RF_OK;
}

void run_local_begin(struct run_local *local) {
    atomic_store(&local->stopped, false);
}

void run_local_stop(struct run_local *local) {
    atomic_store(&local->stopped, true);
    rf_session_cancel(local->session);
}

/* ---- an answer ---- */

static rf_status encode(const struct run_local *local, const struct run_question *question, int32_t **ids,
                        size_t *count, struct run_failure *failure) {
    const struct rf_tokenizer *tokenizer = rf_engine_tokenizer(local->engine);
    rf_status status;
    if (!tokenizer)
        return run_fail(failure, RF_E_NOT_FOUND, CLI_FAILED,
                        "%s has no vocabulary; rocmforge logits works with token ids", local->options->model.model);
    if (!question->prompt) {
        status = question->rendered ? rf_chat_prompt_encode(tokenizer, question->rendered, ids, count)
                                    : rf_chat_encode(local->engine, question->format, question->messages,
                                                     question->message_count, ids, count);
        if (status) return run_fail_status(failure, status);
        return *count ? RF_OK : run_fail(failure, RF_E_INVALID, CLI_FAILED, "the chat template made an empty prompt");
    }
    RF_PARAMS(struct rf_encode_params, params);
    params.no_eos = true;
    params.parse_special = local->options->parse_special;
    status = rf_tokenizer_encode(tokenizer, question->prompt, strlen(question->prompt), &params, ids, count);
    if (status) return run_fail_status(failure, status);
    if (!*count)
        return run_fail(failure, RF_E_INVALID, CLI_USAGE,
                        "the prompt is empty, and this model has no beginning token");
    return RF_OK;
}

/* Evaluates what the session does not hold yet. A stop that came after the end of the last answer is not meant for
 * this one, but the session may still remember it. */
static rf_status evaluate(struct run_local *local, const int32_t *ids, size_t count,
                          const struct run_listener *listener, uint64_t *evaluated) {
    uint32_t same = rf_session_common(local->session, ids, count);
    if (same == count) same--; /* the logits of the last token are needed */
    *evaluated = count - same;
    rf_status status = rf_session_rewind(local->session, same);
    if (listener->beat) listener->beat(listener->user);
    for (size_t at = same; at < count && !status;) {
        RF_PARAMS(struct rf_engine_info, info); /* each time: parts grow and shrink */
        if ((status = rf_engine_get_info(local->engine, &info))) break;
        size_t most = count > info.context ? count
                      : info.batch         ? info.batch
                                           : 1; /* too many are refused as a whole */
        size_t part = count - at < most ? count - at : most;
        status = rf_session_eval(local->session, ids + at, part, false, NULL);
        if (status == RF_E_CANCELLED && !atomic_load(&local->stopped)) {
            status = rf_session_rewind(local->session, (uint32_t)at);
            continue;
        }
        at += part;
        if (!status && listener->beat && !listener->beat(listener->user)) atomic_store(&local->stopped, true);
        if (!status && atomic_load(&local->stopped)) status = RF_E_CANCELLED;
    }
    return status;
}

rf_status run_local_answer(struct run_local *local, const struct run_question *question,
                           const struct run_answer *so_far, const struct run_listener *listener,
                           struct run_stats *stats, struct run_failure *failure) {
    struct rf_generate_params generate = local->options->generate;
    RF_PARAMS(struct rf_generate_result, result);
    RF_PARAMS(struct rf_engine_info, info);
    int32_t *made = NULL, *all = NULL;
    const int32_t *ids = so_far->ids;
    size_t count = so_far->id_count;
    *stats = (struct run_stats){0};
    rf_status status = rf_engine_get_info(local->engine, &info);
    if (status) return run_fail_status(failure, status);
    if (question->grammar.given && (status = make_grammar(local, &question->grammar, failure))) return status;
    if (!count) {
        status = encode(local, question, &made, &count, failure);
        ids = made;
    }
    /* A copy, because the callbacks may add to the answer in so_far. */
    size_t total = count + so_far->token_count;
    if (!status && !(all = malloc(total * sizeof *all)))
        status = run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for %zu tokens", total);
    if (!status) {
        memcpy(all, ids, count * sizeof *all);
        if (so_far->token_count) memcpy(all + count, so_far->tokens, so_far->token_count * sizeof *all);
    }
    rf_token_ids_destroy(&made);
    if (status) {
        free(all);
        return status;
    }
    generate.said = all + count;
    generate.said_count = so_far->token_count;
    generate.said_bytes = so_far->text.bytes;
    generate.show_special = question->show_special;
    generate.grammar = question->grammar.given ? local->grammar : NULL;
    generate.grammar_after = question->grammar.given ? question->grammar_after : NULL;
    generate.text = listener->text;
    generate.token = listener->token;
    generate.user = listener->user;
    /* The last token of a full context is returned but not kept in the context. After that token the answer was
     * complete, and only its text may not have arrived. */
    if (so_far->token_count && total == (size_t)info.context + 1) generate.max_tokens = (uint32_t)so_far->token_count;
    bool over = generate.max_tokens && so_far->token_count >= generate.max_tokens;

    uint64_t start = now_ns();
    if (!listener->prompt(listener->user, all, count)) status = RF_E_CANCELLED;
    if (!status && !over) status = evaluate(local, all, total, listener, &stats->prompt_tokens);
    stats->prompt_ns = now_ns() - start;
    if (!status) status = rf_session_generate(local->session, &generate, &result);
    stats->tokens = result.tokens;
    stats->answer_ns = (uint64_t)(result.first_ns + result.rest_ns);
    if (!status) status = rf_engine_get_info(local->engine, &info);
    stats->device_layers = info.device_layers;
    stats->host_bytes = info.host_used_bytes;
    stats->end = status == RF_E_CANCELLED ? RF_END_CALLER : result.end;
    free(all);
    return status && status != RF_E_CANCELLED ? run_fail_status(failure, status) : RF_OK;
}
