/* Samples the next token: on the device if the logits are there, otherwise on the CPU. Both draw the same token,
 * because the sampler is defined to the bit (cpu/ref_sampling.h). The random counter is the number of tokens held,
 * so a session that is rewound and continues draws the same tokens again. */
#include "infer/engine_impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/ref_sampling.h"
#include "graph/executor.h"
#include "ops/gpu_sampling.h"

enum { BIASES_MAX = 1024 };

/* Offsets in the session's one buffer: the token, seed and counter, the window, biases, the mask of those allowed;
 * behind it the workspace. */
enum {
    AT_TOKEN = 0,
    AT_RANDOM = 256,
    AT_WINDOW = 512,
    AT_BIASES = AT_WINDOW + RF_WINDOW_MAX * 4,
    AT_ALLOWED = AT_BIASES + BIASES_MAX * sizeof(struct rf_sample_bias)
};
static uint64_t allowed_bytes(uint64_t columns) {
    return rf_ceil_div(columns, 32) * sizeof(uint32_t);
}
static uint64_t workspace_at(uint64_t columns) {
    return AT_ALLOWED + rf_ceil_div(allowed_bytes(columns), 256) * 256;
}

/* What a draw reads of the caller's memory: the biases, checked, and the mask. */
struct changes {
    struct rf_sample_bias biases[BIASES_MAX];
    uint32_t bias_count;
    const uint32_t *allowed;
};
static int by_token(const void *a, const void *b) {
    int32_t x = ((const struct rf_sample_bias *)a)->token, y = ((const struct rf_sample_bias *)b)->token;
    return x < y ? -1 : x > y;
}
static rf_status read_changes(const struct rf_session *session, const struct rf_sample_params *params,
                              struct changes *changes) {
    uint32_t columns = session->engine->hparams.vocabulary;
    changes->bias_count = 0;
    changes->allowed = params->allowed;
    if (params->bias_count > BIASES_MAX || (params->bias_count && !params->biases))
        return rf_fail(RF_E_INVALID, "sampling: %zu biases%s: at most %d", params->bias_count,
                       params->biases ? "" : " that are NULL", BIASES_MAX);
    for (size_t i = 0; i < params->bias_count; i++) {
        const struct rf_token_bias *given = &params->biases[i];
        if (given->token < 0 || (uint32_t)given->token >= columns || !isfinite(given->bias))
            return rf_fail(RF_E_INVALID, "sampling: bias %g for token %d: a number for one of 0 to %u",
                           (double)given->bias, given->token, columns - 1);
        changes->biases[changes->bias_count++] = (struct rf_sample_bias){given->token, given->bias};
    }
    qsort(changes->biases, changes->bias_count, sizeof *changes->biases, by_token);
    for (uint32_t i = 1; i < changes->bias_count; i++)
        if (changes->biases[i].token == changes->biases[i - 1].token)
            return rf_fail(RF_E_INVALID, "sampling: two biases for token %d", changes->biases[i].token);
    return RF_OK;
}

rf_status rf_session_sample_args(const struct rf_session *session, const struct rf_sample_params *params,
                                 struct rf_sample_args *args) {
    const struct rf_sampling sampling = {.temperature = params->temperature,
                                         .top_k = params->top_k,
                                         .top_p = params->top_p,
                                         .min_p = params->min_p,
                                         .penalty = params->penalty == 0 ? 1 : params->penalty,
                                         .presence = params->presence,
                                         .frequency = params->frequency};
    bool penalties = sampling.penalty != 1 || sampling.presence != 0 || sampling.frequency != 0;
    uint32_t window = penalties ? RF_MIN(params->penalty_window, (uint32_t)RF_WINDOW_MAX) : 0;
    uint32_t columns = session->engine->hparams.vocabulary;
    *args = (struct rf_sample_args){.rows = 1,
                                    .row_stride = columns,
                                    .window_stride = window,
                                    .columns = columns,
                                    .window_count = window,
                                    .strict = 1};
    const char *why = rf_sampling_resolve(&sampling, args);
    return why ? rf_fail(RF_E_INVALID, "sampling: %s", why) : RF_OK;
}

static rf_status sample_on_device(struct rf_session *session, struct rf_device *device, struct rf_operand logits,
                                  const struct rf_sample_args *args, const struct changes *changes, uint64_t seed,
                                  int32_t *token) {
    uint64_t workspace = 0, at_workspace = workspace_at(args->columns);
    uint32_t window = args->window_count;
    rf_status status = rf_gpu_sample_workspace(1, args->columns, &workspace);
    if (!status && !session->queue) status = rf_queue_create(device, NULL, &session->queue);
    if (!status && !session->sample) {
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = at_workspace + workspace;
        params.label = "sampling";
        status = rf_buffer_create_safe(device, &params, &session->sample);
    }
    uint64_t random[2] = {seed, session->length};
    struct rf_buffer *buffer = session->sample;
    if (!status) status = rf_copy_to_device_safe(session->queue, buffer, AT_RANDOM, random, sizeof random);
    if (!status && window)
        status = rf_copy_to_device_safe(session->queue, buffer, AT_WINDOW, session->tokens + session->length - window,
                                        window * sizeof *session->tokens);
    if (!status && args->bias_count)
        status = rf_copy_to_device_safe(session->queue, buffer, AT_BIASES, changes->biases,
                                        args->bias_count * sizeof *changes->biases);
    if (!status && changes->allowed)
        status = rf_copy_to_device_safe(session->queue, buffer, AT_ALLOWED, changes->allowed,
                                        allowed_bytes(args->columns));
    if (!status) {
        struct rf_gpu_sample sample = {.args = *args,
                                       .out = {buffer, AT_TOKEN},
                                       .logits = logits,
                                       .random = {buffer, AT_RANDOM},
                                       .workspace = {buffer, at_workspace}};
        if (window) sample.window = (struct rf_operand){buffer, AT_WINDOW};
        if (args->bias_count) sample.biases = (struct rf_operand){buffer, AT_BIASES};
        if (changes->allowed) sample.allowed = (struct rf_operand){buffer, AT_ALLOWED};
        status = rf_gpu_sample(session->queue, &sample);
    }
    if (!status) status = rf_copy_from_device_safe(session->queue, token, buffer, AT_TOKEN, sizeof *token);
    return status;
}

rf_status rf_session_refuse_logits(const struct rf_session *session, const char *what) {
    return rf_fail(RF_E_CORRUPT,
                   "the logits after token %u are not numbers: %s; the model file is damaged, or the device computes "
                   "wrongly: get the file again, or try rocmforge selftest and --device cpu",
                   session->length, what);
}

/* Nothing was drawn: counts what is wrong. A logit that is NaN or +inf was computed from damaged weights, or wrongly.
 * -inf is a token that is never drawn. */
static rf_status refuse_logits(const struct rf_session *session, const struct changes *changes, const float *logits) {
    size_t columns = session->engine->hparams.vocabulary, wrong = 0, finite = 0;
    char what[64];
    for (size_t i = 0; i < columns; i++) {
        wrong += !(logits[i] <= FLT_MAX);
        finite += logits[i] >= -FLT_MAX;
    }
    if (!wrong && finite && changes->allowed)
        return rf_fail(RF_E_INVALID, "sampling: none of the allowed tokens can be drawn");
    snprintf(what, sizeof what, "%zu of %zu are NaN or infinite", wrong ? wrong : columns, columns);
    return rf_session_refuse_logits(session, what);
}

static rf_status sample_on_cpu(struct rf_session *session, const float *logits, const struct rf_sample_args *args,
                               const struct changes *changes, uint64_t seed, int32_t *token) {
    uint64_t random[2] = {seed, session->length};
    rf_status status = rf_session_make_rows(session);
    if (status) return status;
    struct rf_sample_rows rows = {.logits = logits,
                                  .random = random,
                                  .window = session->tokens + session->length - args->window_count,
                                  .biases = changes->biases,
                                  .allowed = changes->allowed};
    rf_ref_sample_rows(token, &rows, args, session->host_scratch);
    return *token < 0 ? refuse_logits(session, changes, logits) : RF_OK;
}

/* The same of the device's. */
static rf_status refuse_device_logits(struct rf_session *session, const struct changes *changes,
                                      struct rf_operand logits, size_t columns) {
    RF_TRY(rf_session_make_rows(session));
    RF_TRY(rf_copy_from_device_safe(session->queue, session->host_logits, logits.buffer, logits.offset_bytes,
                                    columns * sizeof(float)));
    return refuse_logits(session, changes, session->host_logits);
}

static rf_status sample(struct rf_session *session, const struct rf_sample_params *params, int32_t *token) {
    if (!session->last && !session->has_host_logits)
        return rf_fail(RF_E_INVALID, "rf_session_sample: no logits; evaluate a token first (after a rewind, too)");
    struct rf_sample_args args;
    struct changes changes;
    RF_TRY(rf_session_sample_args(session, params, &args));
    RF_TRY(read_changes(session, params, &changes));
    args.bias_count = changes.bias_count;
    args.window_count = RF_MIN(args.window_count, session->length);
    args.window_stride = args.window_count;
    size_t columns = session->engine->hparams.vocabulary;
    struct rf_device *device = NULL;
    struct rf_binding at = {.host = session->host_logits};
    rf_status status = RF_OK;
    if (session->last)
        status = rf_executor_locate(session->last->executor, session->last->model.logits, &device, &at);
    if (status) return status;
    uint64_t row = session->last ? session->last_row * columns * sizeof(float) : 0;
    int32_t drawn = -1;
    if (device) {
        struct rf_operand logits = {at.buffer, at.offset_bytes + row};
        status = sample_on_device(session, device, logits, &args, &changes, params->seed, &drawn);
        if (!status && drawn < 0) return refuse_device_logits(session, &changes, logits, columns);
        if (rf_is_full(status)) { /* no room for its few buffers: the host can sample too */
            status = rf_session_keep_logits(session);
            if (!status) status = sample_on_cpu(session, session->host_logits, &args, &changes, params->seed, &drawn);
        }
    } else {
        const float *logits = (const float *)(const void *)((const char *)at.host + at.offset_bytes + row);
        status = sample_on_cpu(session, logits, &args, &changes, params->seed, &drawn);
    }
    if (!status) *token = drawn;
    return status;
}

/* Gets the last token's logits once more. */
static rf_status evaluate_again(struct rf_session *session) {
    uint32_t length = session->length--;
    int32_t token = session->tokens[length - 1];
    /* A cancellation that came before is meant for the next evaluation that the caller asks for. */
    bool cancelled = atomic_exchange(&session->cancelled, false);
    rf_status status = rf_session_eval(session, &token, 1, false, NULL);
    if (cancelled) atomic_store(&session->cancelled, true);
    if (status) {
        session->length = length;
        session->evaluate_again = true;
    }
    return status;
}

rf_status rf_session_draw(struct rf_session *session, const struct rf_sample_params *params, int32_t *token) {
    rf_ladder_enter_quietly(session->engine);
    bool again = session->evaluate_again;
    rf_ladder_leave(session->engine);
    if (again) RF_TRY(evaluate_again(session));
    rf_ladder_enter_quietly(session->engine);
    rf_status status = sample(session, params, token);
    rf_ladder_leave(session->engine);
    return status;
}

rf_status rf_session_sample(struct rf_session *session, const struct rf_sample_params *params, int32_t *token) {
    RF_PARAMS(struct rf_sample_params, own); /* its default: the most likely token */
    if (!session || !token) return rf_fail(RF_E_INVALID, "rf_session_sample: session or token is NULL");
    rf_status status =
        params ? RF_PARAMS_READ_SINCE(struct rf_sample_params, presence, &own, params, "rf_session_sample") : RF_OK;
    if (!status) status = rf_ahead_settle(session);
    return status ? status : rf_session_draw(session, &own, token);
}

rf_status rf_session_keep_logits(struct rf_session *session) {
    size_t columns = session->engine->hparams.vocabulary, bytes = columns * sizeof(float);
    struct rf_device *device = NULL;
    struct rf_binding at = {0};
    if (!session->last) return RF_OK;
    rf_status status = rf_executor_locate(session->last->executor, session->last->model.logits, &device, &at);
    if (!status) status = rf_session_make_rows(session);
    uint64_t from = at.offset_bytes + session->last_row * bytes;
    if (!status && device) {
        if (!session->queue) status = rf_queue_create(device, NULL, &session->queue);
        if (!status) status = rf_copy_from_device_safe(session->queue, session->host_logits, at.buffer, from, bytes);
    } else if (!status) {
        memcpy(session->host_logits, (const char *)at.host + from, bytes);
    }
    if (status) return status;
    session->last = NULL;
    session->has_host_logits = true;
    return RF_OK;
}
