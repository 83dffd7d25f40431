/* Sessions: tokens in, logits out.
 *
 * The inputs of a run are written, the graph runs, and then the session's length grows. A run that fails leaves
 * nothing that counts, because cache rows behind the length are never read. Attention is split by the length
 * rounded up to a power of two, so that a session needs few shapes and the same tokens always get the same ones. */
#include "infer/engine_impl.h"

#include <stdlib.h>

#include "graph/executor.h"

/* Chunks of at most this many tokens are not made smaller before something on the device was moved to make room. */
enum { FEW_TOKENS = 32 };

static bool same_shape(const struct rf_graph_shape *a, const struct rf_graph_shape *b) {
    return a->tokens == b->tokens && a->sequences == b->sequences && a->all_logits == b->all_logits &&
           a->no_logits == b->no_logits && a->longest == b->longest && a->draws == b->draws;
}

rf_status rf_session_runner(struct rf_session *session, const struct rf_graph_shape *shape, struct rf_runner **out) {
    for (size_t i = 0; i < session->runner_count; i++) {
        struct rf_runner *runner = &session->runners[i];
        if (same_shape(&runner->shape, shape)) {
            runner->used = ++session->clock;
            *out = runner;
            return RF_OK;
        }
    }
    struct rf_runner made;
    /* A session keeps the memory of one long chunk at most. */
    if (shape->tokens > session->engine->batch) rf_session_retire(session, RF_RETIRE_LONG, true);
    rf_status status = rf_runner_create(session->engine, session, shape, &made);
    if (rf_is_short(status) && session->runner_count) {
        rf_session_retire(session, RF_RETIRE_ALL, true); /* the existing runners make room */
        status = rf_runner_create(session->engine, session, shape, &made);
    }
    if (status) return status;
    made.used = ++session->clock;
    struct rf_runner *oldest = &session->runners[0];
    if (session->runner_count < RF_RUNNERS_MAX) {
        oldest = &session->runners[session->runner_count++];
    } else {
        for (size_t i = 1; i < session->runner_count; i++)
            if (session->runners[i].used < oldest->used) oldest = &session->runners[i];
        if (session->last == oldest) session->last = NULL;
        rf_runner_destroy(oldest);
    }
    *oldest = made;
    *out = oldest;
    return RF_OK;
}

void rf_session_remove_runner(struct rf_session *session, struct rf_runner *runner) {
    struct rf_runner *end = &session->runners[--session->runner_count];
    rf_assert(session->last != runner);
    rf_runner_destroy(runner);
    if (runner == end) return;
    *runner = *end;
    if (session->last == end) session->last = runner;
}

bool rf_session_retire(struct rf_session *session, enum rf_retire which, bool wait) {
    struct rf_runner *newest = NULL, *last;
    size_t kept = 0, of_long_chunks = 0;
    for (size_t i = 0; i < session->runner_count; i++) of_long_chunks += session->runners[i].long_tokens > 0;
    if (which == RF_RETIRE_LONG && !of_long_chunks) return true;
    bool finished = rf_ahead_abandon(session, wait);
    last = session->last;
    for (size_t i = 0; i < session->runner_count; i++)
        if (!newest || session->runners[i].used > newest->used) newest = &session->runners[i];
    for (size_t i = 0; i < session->runner_count; i++) {
        struct rf_runner *runner = &session->runners[i];
        bool keep = which == RF_RETIRE_LONG ? !runner->long_tokens : which == RF_RETIRE_UNUSED && runner == newest;
        /* If the logits cannot be copied (the device is lost, or the host has no room), there is nothing to sample
         * from. */
        if (!keep && runner == last && rf_session_keep_logits(session)) session->last = NULL;
        if (!keep) {
            rf_runner_destroy(runner);
            continue;
        }
        if (runner == last) session->last = &session->runners[kept];
        session->runners[kept++] = *runner;
    }
    session->runner_count = kept;
    if (which == RF_RETIRE_ALL) rf_buffer_destroy(&session->sample);
    return finished;
}

void rf_session_forget_logits(struct rf_session *session) {
    session->last = NULL;
    session->has_host_logits = false;
    session->evaluate_again = false;
}

/* Positions, sequences and lengths of the largest run, and a table row for each of its sequences. */
static uint64_t scratch_bytes(const struct rf_engine *engine) {
    uint64_t rows = RF_MAX(engine->longest, engine->slot_count);
    return (3 * rows + (uint64_t)engine->slot_count * engine->table_width) * sizeof(int32_t);
}
static uint64_t tokens_bytes(const struct rf_engine *engine) {
    return (uint64_t)engine->context * sizeof(int32_t);
}
static uint64_t logits_bytes(const struct rf_engine *engine) {
    return (uint64_t)engine->hparams.vocabulary * sizeof(float);
}
static uint64_t sampling_bytes(const struct rf_engine *engine) {
    return (uint64_t)engine->hparams.vocabulary * sizeof(uint64_t);
}

uint64_t rf_session_host_bytes(const struct rf_engine *engine) {
    return rf_host_alloc_bytes(scratch_bytes(engine)) + rf_host_alloc_bytes(tokens_bytes(engine)) +
           rf_host_alloc_bytes(logits_bytes(engine)) + rf_host_alloc_bytes(sampling_bytes(engine));
}

rf_status rf_session_make_rows(struct rf_session *session) {
    const struct rf_engine *engine = session->engine;
    struct rf_host_budget *host = &engine->runtime->host;
    void *logits = NULL, *scratch = NULL;
    rf_status status = RF_OK;
    if (!session->host_logits) status = rf_host_alloc(host, logits_bytes(engine), "a session's logits", &logits);
    if (logits) session->host_logits = logits;
    if (!status && !session->host_scratch)
        status = rf_host_alloc(host, sampling_bytes(engine), "a session's sampling", &scratch);
    if (scratch) session->host_scratch = scratch;
    return status;
}

static void free_memory(struct rf_session *session) {
    const struct rf_engine *engine = session->engine;
    struct rf_host_budget *host = &engine->runtime->host;
    rf_host_free(host, session->tokens, tokens_bytes(engine));
    rf_host_free(host, session->scratch, session->scratch_bytes);
    rf_host_free(host, session->rows, session->rows_bytes);
    rf_host_free(host, session->host_logits, logits_bytes(engine));
    rf_host_free(host, session->host_scratch, sampling_bytes(engine));
}

rf_status rf_session_create(struct rf_engine *engine, struct rf_session **out) {
    if (!engine || !out) return rf_fail(RF_E_INVALID, "rf_session_create: engine or out is NULL");
    struct rf_host_budget *host = &engine->runtime->host;
    struct rf_session *session = calloc(1, sizeof *session);
    if (!session) return rf_fail(RF_E_NO_MEMORY, "no host memory for a session");
    void *tokens = NULL, *scratch = NULL;
    uint32_t slot = 0;
    session->engine = engine;
    session->scratch_bytes = scratch_bytes(engine);
    rf_status status = rf_host_alloc(host, tokens_bytes(engine), "a session's tokens", &tokens);
    session->tokens = tokens;
    if (!status) status = rf_host_alloc(host, session->scratch_bytes, "a session's inputs", &scratch);
    session->scratch = scratch;
    if (!status && !engine->device) status = rf_session_make_rows(session);
    if (!status) {
        pthread_mutex_lock(&engine->mutex);
        while (slot < engine->slot_count && engine->sessions[slot]) slot++;
        if (slot < engine->slot_count) {
            session->slot = slot;
            engine->sessions[slot] = session;
            engine->open_sessions++;
        }
        pthread_mutex_unlock(&engine->mutex);
        if (slot == engine->slot_count)
            status =
                rf_fail(RF_E_BUDGET,
                        "all %u sessions that the engine was opened for are in use; close one, or open it for more",
                        engine->slot_count);
    }
    if (status) {
        free_memory(session);
        free(session);
        return status;
    }
    *out = session;
    return RF_OK;
}

void rf_session_destroy(struct rf_session **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_session *session = *pointer;
    struct rf_engine *engine = session->engine;
    rf_ladder_enter_quietly(engine);
    rf_ahead_abandon(session, true);
    for (size_t i = 0; i < session->runner_count; i++) rf_runner_destroy(&session->runners[i]);
    rf_ahead_destroy(session);
    rf_queue_destroy(&session->queue);
    rf_buffer_destroy(&session->sample);
    free_memory(session);
    pthread_mutex_lock(&engine->mutex);
    engine->sessions[session->slot] = NULL;
    engine->open_sessions--;
    pthread_mutex_unlock(&engine->mutex);
    rf_ladder_leave(engine);
    free(session);
    *pointer = NULL;
}

uint32_t rf_session_length(const struct rf_session *session) {
    return session ? session->length : 0;
}

rf_status rf_session_rewind(struct rf_session *session, uint32_t length) {
    if (!session || length > session->length)
        return rf_fail(RF_E_INVALID, "rf_session_rewind: to %u tokens, it holds %u", length,
                       rf_session_length(session));
    if (length == session->length) return RF_OK;
    RF_TRY(rf_ahead_settle(session));
    rf_ladder_enter_quietly(session->engine);
    rf_session_forget_logits(session); /* they belong to a token that is gone */
    rf_ladder_leave(session->engine);
    session->length = length;
    return RF_OK;
}

uint32_t rf_session_common(const struct rf_session *session, const int32_t *tokens, size_t count) {
    uint32_t same = 0;
    if (!session || !tokens) return 0;
    while (same < session->length && same < count && session->tokens[same] == tokens[same]) same++;
    return same;
}

void rf_session_cancel(struct rf_session *session) {
    if (session) atomic_store(&session->cancelled, true);
}

/* ---- evaluating ---- */

static uint32_t length_bucket(const struct rf_engine *engine, uint32_t length) {
    uint32_t bucket = RF_PAGE_ROWS;
    while (bucket < length && bucket < engine->context) bucket *= 2;
    return RF_MIN(bucket, engine->context);
}

static rf_status check_tokens(const struct rf_engine *engine, const int32_t *tokens, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= engine->hparams.vocabulary)
            return rf_fail(RF_E_INVALID, "token %d at place %zu: ids go from 0 to %u", tokens[i], i,
                           engine->hparams.vocabulary - 1);
    return RF_OK;
}

static rf_status write_numbers(struct rf_runner *runner, rf_tensor_id id, const int32_t *numbers, size_t count) {
    return rf_executor_write(runner->executor, id, numbers, count * sizeof *numbers);
}

static void fill_table_row(const struct rf_session *session, int32_t *row) {
    uint32_t width = session->engine->table_width;
    for (uint32_t page = 0; page < width; page++) row[page] = (int32_t)(session->slot * width + page);
}

void rf_session_rest(const struct rf_session *session, int64_t busy_ns) {
    struct rf_engine *engine = session->engine;
    if (!busy_ns || engine->duty_percent >= 100) return;
    int64_t idle = busy_ns / engine->duty_percent * (100 - engine->duty_percent), end = rf_now_ns() + idle;
    atomic_fetch_add(&engine->idle_ns, idle);
    for (int64_t left; (left = end - rf_now_ns()) > 0 && !atomic_load(&session->cancelled);)
        rf_sleep_ns(RF_MIN(left, RF_MS(10)));
}

/* ---- runs ---- */

struct rf_graph_shape rf_session_shape(const struct rf_session *session, uint32_t count) {
    const struct rf_engine *engine = session->engine;
    return (struct rf_graph_shape){.tokens = count,
                                   .sequences = 1,
                                   .page_rows = RF_PAGE_ROWS,
                                   .page_count = engine->page_count,
                                   .table_width = engine->table_width,
                                   .longest = length_bucket(engine, session->length + count),
                                   .kv_dtype = engine->kv_dtype};
}

rf_status rf_session_write_inputs(struct rf_session *session, struct rf_runner *runner, const int32_t *tokens,
                                  uint32_t count) {
    int32_t *positions = session->scratch, *sequences = positions + count, *row = sequences + count;
    int32_t length = (int32_t)(session->length + count);
    for (uint32_t i = 0; i < count; i++) {
        positions[i] = (int32_t)(session->length + i);
        sequences[i] = 0;
    }
    fill_table_row(session, row);
    RF_TRY(write_numbers(runner, runner->model.tokens, tokens, count));
    RF_TRY(write_numbers(runner, runner->model.positions, positions, count));
    RF_TRY(write_numbers(runner, runner->model.sequences, sequences, count));
    RF_TRY(write_numbers(runner, runner->model.table, row, session->engine->table_width));
    return write_numbers(runner, runner->model.lengths, &length, 1);
}

/* Runs a runner; what the session has to do meanwhile is done while the device works. */
static rf_status run(struct rf_session *session, struct rf_runner *runner, uint32_t count) {
    uint64_t ticket;
    if (!session->meanwhile || count > 1) return rf_executor_run(runner->executor);
    if (!rf_executor_can_queue(runner->executor)) {
        session->meanwhile(session->meanwhile_user);
        return rf_executor_run(runner->executor);
    }
    RF_TRY(rf_executor_submit(runner->executor, &ticket));
    session->meanwhile(session->meanwhile_user);
    return rf_executor_wait_for(runner->executor, ticket);
}

/* Runs tokens that follow those of one session. */
static rf_status run_chunk(struct rf_session *session, const int32_t *tokens, uint32_t count, bool all, bool none,
                           struct rf_runner **out) {
    struct rf_graph_shape shape = rf_session_shape(session, count);
    shape.all_logits = all;
    shape.no_logits = none;
    struct rf_runner *runner;
    rf_status status = rf_session_runner(session, &shape, &runner);
    if (status) return status;
    rf_session_forget_logits(session); /* they may lie in this runner */
    status = rf_session_write_inputs(session, runner, tokens, count);
    int64_t began = rf_now_ns();
    if (!status) status = run(session, runner, count);
    if (!status)
        rf_chunk_learn(session->engine, count, rf_now_ns() - began,
                       runner->timed ? rf_executor_longest_ns(runner->executor) : -1);
    *out = runner;
    return status;
}

rf_status rf_session_take_cancel(struct rf_session *session) {
    return atomic_exchange(&session->cancelled, false)
               ? rf_fail(RF_E_CANCELLED, "cancelled after %u tokens", session->length)
               : RF_OK;
}

bool rf_session_stops(void *user) {
    struct rf_session *session = user;
    bool stops = atomic_load(&session->cancelled);
    for (size_t i = 0; i < session->together_count && !stops; i++)
        stops = atomic_load(&session->together[i]->cancelled);
    return stops;
}

rf_status rf_session_take_cancels(struct rf_session *const *sessions, size_t count, rf_status status) {
    for (size_t i = 0; i < count && status == RF_E_CANCELLED; i++)
        if (rf_session_take_cancel(sessions[i])) break;
    return status;
}

/* Evaluates 'chunk' of the given tokens from 'at' on, and reads their logits if they are wanted. */
static rf_status eval_chunk(struct rf_session *session, const int32_t *tokens, size_t count, size_t at,
                            uint32_t chunk, bool all, float *logits) {
    size_t vocabulary = session->engine->hparams.vocabulary;
    bool last = at + chunk == count;
    struct rf_runner *runner;
    all = all && logits;
    rf_status status = run_chunk(session, tokens + at, chunk, all, !last && !all, &runner);
    if (status) return status;
    memcpy(session->tokens + session->length, tokens + at, chunk * sizeof *tokens);
    session->length += chunk;
    session->last = last ? runner : NULL;
    session->last_row = all ? chunk - 1 : 0;
    if (!logits || !(all || last)) return RF_OK;
    float *to = all ? logits + at * vocabulary : logits;
    return rf_executor_read(runner->executor, runner->model.logits, to, (all ? chunk : 1) * vocabulary * sizeof *to);
}

/* How many of the tokens that are left run next. A long chunk's logits would take more memory than its run. */
static uint32_t next_chunk(const struct rf_session *session, size_t left, bool all) {
    struct rf_engine *engine = session->engine;
    uint32_t wanted = (uint32_t)RF_MIN(left, (size_t)(all ? engine->batch : engine->longest)), held = 0;
    for (size_t i = 0; i < session->runner_count; i++) held += session->runners[i].long_tokens;
    return rf_chunk_most(engine, wanted, held);
}

rf_status rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all, float *logits) {
    if (!session || !tokens || !count) return rf_fail(RF_E_INVALID, "rf_session_eval: no session, or no tokens");
    struct rf_engine *engine = session->engine;
    if (count > engine->context - session->length)
        return rf_fail(RF_E_INVALID,
                       "%zu tokens after %u: the context holds %u; use a shorter prompt or a larger context", count,
                       session->length, engine->context);
    rf_status status = check_tokens(engine, tokens, count);
    if (!status) status = rf_ahead_settle(session);
    size_t most = engine->longest;
    bool relieved_host = false;
    for (size_t at = 0; at < count && !status;) {
        status = rf_session_take_cancel(session);
        if (status) break;
        rf_ladder_enter(engine);
        uint32_t chunk = next_chunk(session, RF_MIN(count - at, most), all && logits);
        int64_t began = rf_now_ns();
        status = rf_session_take_cancels(&session, 1, eval_chunk(session, tokens, count, at, chunk, all, logits));
        int64_t busy = engine->device_layers && !status ? rf_now_ns() - began : 0;
        uint64_t epoch = engine->epoch;
        rf_ladder_leave(engine);
        if (rf_is_short(status)) {
            /* There is no room for this many rows at once, beside other sessions or with all logits. Smaller
             * chunks are slower, but run. Very small ones are slower than giving something else up. */
            bool few = chunk <= FEW_TOKENS, relieved = few && rf_is_full(status) && rf_ladder_relieve(engine, epoch);
            if (!relieved && chunk <= engine->batch && rf_is_full(status)) relieved = rf_ladder_relieve_long(engine);
            if (few && !relieved && !relieved_host) relieved = relieved_host = rf_ladder_relieve_host(engine);
            if (!relieved && chunk == 1) break;
            if (!relieved) most = chunk > engine->batch ? RF_MAX(chunk / 2, engine->batch) : chunk / 2;
            status = RF_OK;
            continue;
        }
        if (!status) at += chunk;
        rf_session_rest(session, busy);
    }
    return status;
}

/* Runs one token for each session, in a runner of the first session. */
static rf_status run_batch(struct rf_session *const *sessions, const int32_t *tokens, size_t count,
                           struct rf_runner *runner, float *rows) {
    struct rf_session *first = sessions[0];
    uint32_t width = first->engine->table_width;
    int32_t *positions = first->scratch, *sequences = positions + count, *lengths = sequences + count;
    int32_t *table = lengths + count;
    for (size_t i = 0; i < count; i++) {
        positions[i] = (int32_t)sessions[i]->length;
        sequences[i] = (int32_t)i;
        lengths[i] = (int32_t)sessions[i]->length + 1;
        fill_table_row(sessions[i], table + i * width);
        rf_session_forget_logits(sessions[i]);
    }
    rf_status status = write_numbers(runner, runner->model.tokens, tokens, count);
    if (!status) status = write_numbers(runner, runner->model.positions, positions, count);
    if (!status) status = write_numbers(runner, runner->model.sequences, sequences, count);
    if (!status) status = write_numbers(runner, runner->model.table, table, count * width);
    if (!status) status = write_numbers(runner, runner->model.lengths, lengths, count);
    first->together = sessions;
    first->together_count = count;
    if (!status) status = rf_executor_run(runner->executor);
    first->together_count = 0;
    return status ? status
                  : rf_executor_read(runner->executor, runner->model.logits, rows,
                                     count * first->engine->hparams.vocabulary * sizeof *rows);
}

/* Either all sessions get their token or none does. */
static rf_status eval_together(struct rf_session *const *sessions, const int32_t *tokens, size_t count,
                               const struct rf_graph_shape *shape, float *rows) {
    size_t vocabulary = sessions[0]->engine->hparams.vocabulary;
    struct rf_runner *runner;
    rf_status status = rf_session_runner(sessions[0], shape, &runner);
    /* Each session keeps its own row, because the runner belongs to the first session, which may drop it. */
    for (size_t i = 0; i < count && !status; i++) status = rf_session_make_rows(sessions[i]);
    if (!status) status = run_batch(sessions, tokens, count, runner, rows);
    for (size_t i = 0; i < count && !status; i++) {
        sessions[i]->tokens[sessions[i]->length++] = tokens[i];
        memcpy(sessions[i]->host_logits, rows + i * vocabulary, vocabulary * sizeof *rows);
        sessions[i]->has_host_logits = true;
    }
    return status;
}

static rf_status grow_rows(struct rf_session *session, size_t count) {
    struct rf_host_budget *host = &session->engine->runtime->host;
    uint64_t bytes = count * logits_bytes(session->engine);
    void *rows = NULL;
    if (bytes <= session->rows_bytes) return RF_OK;
    rf_host_free(host, session->rows, session->rows_bytes);
    session->rows = NULL;
    session->rows_bytes = 0;
    rf_status status = rf_host_alloc(host, bytes, "the logits of a run for several sessions", &rows);
    if (status) return status;
    session->rows = rows;
    session->rows_bytes = bytes;
    return RF_OK;
}

rf_status rf_sessions_eval(struct rf_session *const *sessions, const int32_t *tokens, size_t count, float *logits) {
    if (!sessions || !tokens || !count || !sessions[0])
        return rf_fail(RF_E_INVALID, "rf_sessions_eval: no sessions, or no tokens");
    struct rf_engine *engine = sessions[0]->engine;
    struct rf_session *first = sessions[0];
    uint32_t longest = 0;
    if (count > engine->slot_count)
        return rf_fail(RF_E_INVALID, "rf_sessions_eval: %zu sessions, the engine has %u", count, engine->slot_count);
    rf_status status = check_tokens(engine, tokens, count);
    if (status) return status;
    for (size_t i = 0; i < count; i++) {
        if (!sessions[i] || sessions[i]->engine != engine)
            return rf_fail(RF_E_INVALID, "rf_sessions_eval: session %zu is of another engine", i);
        for (size_t k = 0; k < i; k++)
            if (sessions[k] == sessions[i])
                return rf_fail(RF_E_INVALID, "rf_sessions_eval: session %zu comes twice", i);
        if (sessions[i]->length == engine->context)
            return rf_fail(RF_E_INVALID, "rf_sessions_eval: session %zu is full, it holds %u tokens", i,
                           engine->context);
        longest = RF_MAX(longest, sessions[i]->length + 1);
    }
    struct rf_graph_shape shape = {.tokens = (uint32_t)count,
                                   .sequences = (uint32_t)count,
                                   .page_rows = RF_PAGE_ROWS,
                                   .page_count = engine->page_count,
                                   .table_width = engine->table_width,
                                   .longest = length_bucket(engine, longest),
                                   .kv_dtype = engine->kv_dtype};
    for (size_t i = 0; i < count; i++) RF_TRY(rf_ahead_settle(sessions[i]));
    for (size_t i = 0; i < count; i++)
        if ((status = rf_session_take_cancel(sessions[i]))) return status;
    if (!logits && (status = grow_rows(first, count))) return status;
    float *rows = logits ? logits : first->rows;
    bool again, relieved = false;
    do {
        rf_ladder_enter(engine);
        int64_t began = rf_now_ns();
        status = rf_session_take_cancels(sessions, count, eval_together(sessions, tokens, count, &shape, rows));
        int64_t busy = engine->device_layers && !status ? rf_now_ns() - began : 0;
        uint64_t epoch = engine->epoch;
        rf_ladder_leave(engine);
        again = rf_is_full(status) && (rf_ladder_relieve(engine, epoch) || rf_ladder_relieve_long(engine));
        if (!again && rf_is_short(status) && !relieved) again = relieved = rf_ladder_relieve_host(engine);
        rf_session_rest(first, busy);
    } while (again);
    return status;
}
