/* Generating ahead of the host: while the host looks at one token, the device computes the next ones.
 *
 * Where the whole model is on one device and a run is one recording, that recording also draws the next token, writes
 * it where the next run reads its token, moves position, length, counter and window on, and reports the token in a
 * ring in pinned memory (the ops sample and advance). So runs are queued behind each other, RF_AHEAD_MAX of them, and
 * the host reads the ring behind them. If the generation ends earlier, the tokens of the runs that were not needed
 * are dropped: they lie behind the session's length, and cache rows there are never read. The tokens are the ones
 * that evaluating and drawing one by one gives, to the bit.
 *
 * Invariants:
 *   1. session->length and session->tokens know nothing of a run before its token was read from the ring
 *   2. no run is under way when anything else uses the session's cache, its runners or its logits: every other
 *      function settles first, and a step of the ladder gives up what is under way in rf_session_retire. Only a run
 *      that missed its deadline may still be: then every function that settles waits once more, and fails like it,
 *      also where a step of the ladder gave it up meanwhile
 *   3. a run is submitted only if its token, its row of the cache and its attention's length fit
 *   4. the fields of rf_ahead are touched with the gate held
 * 2 and 4 depend on who holds a lock; tests/infer/test_ahead.c compares with generations that were made one by one.
 *
 * Tokens with biases or a mask of those allowed are drawn one by one: the caller may change the mask for each.
 * A session whose device rests (duty_percent) has one run under way at most. A failed start costs nothing: the token
 * is evaluated and drawn one by one, which reports what is wrong if that fails too. */
#include "infer/engine_impl.h"

#include <stdlib.h>

#include "cpu/ref_sampling.h"
#include "gpu/device.h"
#include "graph/executor.h"

/* ---- ending ---- */

static void forget(struct rf_ahead *ahead) {
    ahead->runner = NULL;
    ahead->queued = 0;
    ahead->stuck = false;
}

/* Whether a wait that ended so leaves work on the device. */
static bool leaves_work(rf_status status) {
    return status && status != RF_E_DEVICE_LOST;
}

rf_status rf_ahead_drop(struct rf_session *session) {
    struct rf_ahead *ahead = &session->ahead;
    struct rf_saved_error saved;
    rf_status status = RF_OK;
    rf_error_save(&saved);
    if (ahead->abandoned) status = rf_device_trim(session->engine->device, RF_TIMEOUT_DEFAULT);
    if (leaves_work(status)) return status;
    ahead->abandoned = false;
    if (ahead->queued) {
        status = rf_executor_finish(ahead->runner->executor);
        if (leaves_work(status)) {
            ahead->stuck = true;
            return status;
        }
        session->last = NULL;
        session->evaluate_again = !status && !ahead->stuck && session->length > ahead->started;
    }
    rf_error_restore(&saved); /* of a lost device the next call tells */
    forget(ahead);
    return RF_OK;
}

bool rf_ahead_abandon(struct rf_session *session, bool wait) {
    struct rf_ahead *ahead = &session->ahead;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    bool left = ahead->queued && (ahead->stuck || !wait || rf_ahead_drop(session));
    rf_error_restore(&saved);
    ahead->abandoned = ahead->abandoned || left;
    forget(ahead);
    return !left;
}

rf_status rf_ahead_settle(struct rf_session *session) {
    rf_ladder_enter_quietly(session->engine);
    rf_status status = rf_ahead_drop(session);
    rf_ladder_leave(session->engine);
    return status;
}

void rf_ahead_destroy(struct rf_session *session) {
    rf_assert(!session->ahead.queued);
    rf_buffer_destroy(&session->ahead.ring);
    rf_pinned_destroy(&session->ahead.pinned);
}

/* ---- starting ---- */

static bool may_start(const struct rf_session *session) {
    const struct rf_engine *engine = session->engine;
    const struct rf_ahead *ahead = &session->ahead;
    return engine->device && engine->replay && engine->device_layers == engine->hparams.layers &&
           !(ahead->epoch == engine->epoch && (ahead->refused || ahead->unable));
}

static rf_status make_ring(struct rf_session *session) {
    struct rf_ahead *ahead = &session->ahead;
    rf_status status = RF_OK;
    if (!ahead->pinned)
        status = rf_pinned_create(session->engine->device, RF_RING_SLOTS * sizeof(uint64_t), &ahead->pinned);
    return status || ahead->ring ? status : rf_pinned_buffer(ahead->pinned, &ahead->ring);
}

static unsigned draws_of(const struct rf_sample_args *args) {
    if (args->greedy) return RF_DRAWS | RF_DRAWS_BEST;
    bool some = args->top_k && args->top_k < args->columns; /* otherwise it drops no candidate */
    return RF_DRAWS | (some ? RF_DRAWS_TOP_K : 0) | (args->top_p ? RF_DRAWS_TOP_P : 0);
}

/* The last tokens of the session and then this one: token number i has place i % count. */
static void fill_window(const struct rf_session *session, int32_t token, uint32_t count, int32_t *window) {
    for (uint32_t i = 0; i < RF_WINDOW_MAX; i++) window[i] = -1;
    for (uint32_t i = 0; i < count && i <= session->length; i++) {
        uint32_t number = session->length - i;
        window[number % count] = i ? session->tokens[number] : token;
    }
}

static rf_status write_inputs(struct rf_session *session, struct rf_runner *runner, int32_t token,
                              const struct rf_sample_args *args, uint64_t seed) {
    const struct rf_model_graph *model = &runner->model;
    struct rf_sample_settings settings = rf_sampling_settings(args);
    uint64_t random[2] = {seed, session->length + 1};
    int32_t window[RF_WINDOW_MAX];
    fill_window(session, token, args->window_count, window);
    RF_TRY(rf_session_write_inputs(session, runner, &token, 1));
    RF_TRY(rf_executor_write(runner->executor, model->settings, &settings, sizeof settings));
    RF_TRY(rf_executor_write(runner->executor, model->random, random, sizeof random));
    return rf_executor_write(runner->executor, model->window, window, sizeof window);
}

/* Makes a runner ready that evaluates this token and those after it. */
static rf_status start(struct rf_session *session, const struct rf_sample_params *params, int32_t token) {
    struct rf_ahead *ahead = &session->ahead;
    struct rf_sample_args args;
    struct rf_runner *runner;
    RF_TRY(rf_session_sample_args(session, params, &args));
    RF_TRY(make_ring(session));
    struct rf_graph_shape shape = rf_session_shape(session, 1);
    shape.draws = draws_of(&args);
    RF_TRY(rf_session_runner(session, &shape, &runner));
    if (!rf_executor_can_queue(runner->executor)) {
        rf_session_remove_runner(session, runner);
        return rf_fail(RF_E_UNSUPPORTED, "a token is not one recording on one device");
    }
    rf_session_forget_logits(session);
    RF_TRY(write_inputs(session, runner, token, &args, params->seed));
    ahead->runner = runner;
    ahead->started = session->length;
    return RF_OK;
}

/* ---- going on ---- */

/* Submits runs until enough are under way. A failure counts only if none is: it comes again when its token's turn has
 * come. */
static rf_status submit(struct rf_session *session, uint32_t room) {
    struct rf_ahead *ahead = &session->ahead;
    const struct rf_engine *engine = session->engine;
    uint32_t most = engine->duty_percent < 100 ? 1 : RF_AHEAD_MAX;
    rf_status status = RF_OK;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    most = RF_MIN(RF_MIN(most, room), ahead->runner->shape.longest - session->length);
    while (!status && ahead->queued < most) {
        uint64_t *ticket = &ahead->tickets[(session->length + ahead->queued + 1) % RF_AHEAD_MAX];
        rf_session_forget_logits(session);
        status = rf_executor_submit(ahead->runner->executor, ticket);
        if (!status) ahead->queued++;
    }
    if (!status || !ahead->queued) return status;
    rf_error_restore(&saved);
    return RF_OK;
}

/* Reads what the oldest run under way, which is done, reported. */
static rf_status read_ring(const struct rf_session *session, uint32_t length, int32_t *drawn) {
    const uint64_t *ring = rf_pinned_data(session->ahead.pinned);
    uint64_t slot = __atomic_load_n(&ring[length % RF_RING_SLOTS], __ATOMIC_ACQUIRE);
    *drawn = (int32_t)(uint32_t)(slot >> 32);
    if ((uint32_t)slot == length && *drawn < (int64_t)session->engine->hparams.vocabulary) return RF_OK;
    return rf_fail(RF_E_DRIVER,
                   "the GPU reported no token after %u tokens: its driver says that work is done which is not; try "
                   "rocmforge selftest, or --device cpu",
                   length);
}

/* Waits for the oldest run and takes its token; the session then holds the token that it evaluated. */
static rf_status take(struct rf_session *session, int32_t *token) {
    struct rf_ahead *ahead = &session->ahead;
    struct rf_runner *runner = ahead->runner;
    uint32_t length = session->length + 1;
    int32_t drawn = -1;
    rf_status status = rf_executor_wait_for(runner->executor, ahead->tickets[length % RF_AHEAD_MAX]);
    if (status) {
        ahead->stuck = true; /* the others wait behind it: whoever needs the session next waits once more */
        return status;
    }
    status = read_ring(session, length, &drawn);
    if (status) return status;
    session->tokens[session->length++] = *token;
    if (!--ahead->queued) {
        session->last = runner;
        session->last_row = 0;
    }
    if (drawn < 0) return rf_session_refuse_logits(session, "the device found some that are NaN or infinite");
    *token = drawn;
    return RF_OK;
}

/* *done: the token was evaluated and the next one drawn, or that failed. Otherwise nothing is under way. */
static rf_status go_on(struct rf_session *session, const struct rf_sample_params *params, uint32_t room,
                       int32_t *token, bool *done) {
    struct rf_ahead *ahead = &session->ahead;
    rf_status status = RF_OK;
    *done = ahead->stuck;
    if (ahead->stuck) RF_TRY(rf_ahead_drop(session));
    *done = false;
    /* At the end of a shape's length the next shape goes on; nothing is under way then. */
    if (ahead->runner && !ahead->queued && ahead->runner->shape.longest == session->length) ahead->runner = NULL;
    if (!ahead->runner && !may_start(session)) return RF_OK;
    if (!ahead->runner) {
        status = start(session, params, *token);
        *done = status == RF_E_DEVICE_LOST || status == RF_E_TIMEOUT;
    }
    if (!status) {
        status = submit(session, room);
        *done = !rf_is_short(status);
    }
    if (!status) return take(session, token);
    ahead->runner = NULL;
    if (*done) return status;
    ahead->refused = true;
    ahead->unable = status == RF_E_UNSUPPORTED;
    ahead->epoch = session->engine->epoch;
    return RF_OK;
}

rf_status rf_session_next(struct rf_session *session, const struct rf_sample_params *params, uint32_t room,
                          int32_t *token) {
    struct rf_engine *engine = session->engine;
    RF_TRY(rf_session_take_cancel(session));
    rf_ladder_enter_quietly(engine);
    bool ready = !rf_sample_needs_host(params) && (session->ahead.runner || may_start(session));
    rf_ladder_leave(engine);
    if (ready) {
        bool done;
        rf_ladder_enter(engine); /* it counts runs, and so must not be entered for nothing */
        int64_t began = rf_now_ns();
        rf_status status = rf_session_take_cancels(&session, 1, go_on(session, params, room, token, &done));
        int64_t busy = done && !status ? rf_now_ns() - began : 0;
        rf_ladder_leave(engine);
        if (done) rf_session_rest(session, busy);
        if (status || done) return status;
    }
    RF_TRY(rf_session_eval(session, token, 1, false, NULL));
    return rf_session_draw(session, params, token);
}
