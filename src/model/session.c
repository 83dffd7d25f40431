/* Sessions: tokens in, logits out.
 *
 * A run's inputs are written, the graph runs, the session's length grows: what failed left nothing that counts, as
 * cache rows behind the length are never read. Attention is split by the length rounded up to a power of two, so that
 * a session meets few shapes and the same tokens always meet the same ones. */
#include "model/engine_impl.h"

#include <stdlib.h>

static bool same_shape(const struct rf_graph_shape *a, const struct rf_graph_shape *b) {
    return a->tokens == b->tokens && a->sequences == b->sequences && a->all_logits == b->all_logits &&
           a->no_logits == b->no_logits && a->longest == b->longest;
}

rf_status rf_session_runner(struct rf_session *session, const struct rf_graph_shape *shape, struct rf_runner **out) {
    struct rf_runner *oldest = &session->runners[0];
    for (size_t i = 0; i < session->runner_count; i++) {
        struct rf_runner *runner = &session->runners[i];
        if (same_shape(&runner->shape, shape)) {
            runner->used = ++session->clock;
            *out = runner;
            return RF_OK;
        }
        if (runner->used < oldest->used) oldest = runner;
    }
    struct rf_runner made;
    rf_status status = rf_runner_create(session->engine, shape, &made);
    if (rf_is_full(status) && session->runner_count) {
        /* Those that were used before make room. */
        for (size_t i = 0; i < session->runner_count; i++) rf_runner_destroy(&session->runners[i]);
        session->runner_count = 0;
        session->last = NULL;
        status = rf_runner_create(session->engine, shape, &made);
    }
    if (status) return status;
    made.used = ++session->clock;
    if (session->runner_count < RF_RUNNERS_MAX) {
        oldest = &session->runners[session->runner_count++];
    } else {
        if (session->last == oldest) session->last = NULL;
        rf_runner_destroy(oldest);
    }
    *oldest = made;
    *out = oldest;
    return RF_OK;
}

static void forget_logits(struct rf_session *session) {
    session->last = NULL;
    session->has_host_logits = false;
}

rf_status rf_session_create(struct rf_engine *engine, struct rf_session **out) {
    if (!engine || !out) return rf_fail(RF_E_INVALID, "rf_session_create: engine or out is NULL");
    struct rf_session *session = calloc(1, sizeof *session);
    int32_t *tokens = malloc((size_t)engine->context * sizeof *tokens);
    /* Positions, sequences and lengths of the largest run, and a table row for each of its sequences. */
    size_t rows = RF_MAX(engine->batch, engine->slot_count);
    size_t numbers = 3 * rows + (size_t)engine->slot_count * engine->table_width;
    int32_t *scratch = malloc(numbers * sizeof *scratch);
    uint32_t slot = 0;
    if (session && tokens && scratch) {
        pthread_mutex_lock(&engine->mutex);
        while (slot < engine->slot_count && engine->slot_taken[slot]) slot++;
        if (slot < engine->slot_count) {
            engine->slot_taken[slot] = true;
            engine->open_sessions++;
        }
        pthread_mutex_unlock(&engine->mutex);
    }
    if (!session || !tokens || !scratch || slot == engine->slot_count) {
        bool memory = !session || !tokens || !scratch;
        free(session);
        free(tokens);
        free(scratch);
        return memory
                   ? rf_fail(RF_E_NO_MEMORY, "no host memory for a session")
                   : rf_fail(RF_E_BUDGET,
                             "all %u sessions that the engine was opened for are in use; close one, or open it for "
                             "more",
                             engine->slot_count);
    }
    session->engine = engine;
    session->slot = slot;
    session->tokens = tokens;
    session->scratch = scratch;
    *out = session;
    return RF_OK;
}

void rf_session_destroy(struct rf_session **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_session *session = *pointer;
    struct rf_engine *engine = session->engine;
    for (size_t i = 0; i < session->runner_count; i++) rf_runner_destroy(&session->runners[i]);
    rf_queue_destroy(&session->queue);
    rf_buffer_destroy(&session->sample);
    pthread_mutex_lock(&engine->mutex);
    engine->slot_taken[session->slot] = false;
    engine->open_sessions--;
    pthread_mutex_unlock(&engine->mutex);
    free(session->tokens);
    free(session->scratch);
    free(session->host_logits);
    free(session->host_scratch);
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
    if (length < session->length) forget_logits(session); /* they are of a token that is gone */
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

/* Tokens that follow one session's. */
static rf_status run_chunk(struct rf_session *session, const int32_t *tokens, uint32_t count, bool all, bool none,
                           struct rf_runner **out) {
    struct rf_engine *engine = session->engine;
    struct rf_graph_shape shape = {.tokens = count,
                                   .sequences = 1,
                                   .all_logits = all,
                                   .no_logits = none,
                                   .page_rows = RF_PAGE_ROWS,
                                   .page_count = engine->page_count,
                                   .table_width = engine->table_width,
                                   .longest = length_bucket(engine, session->length + count),
                                   .kv_dtype = engine->kv_dtype};
    struct rf_runner *runner;
    rf_status status = rf_session_runner(session, &shape, &runner);
    if (status) return status;
    int32_t *positions = session->scratch, *sequences = positions + count, *row = sequences + count;
    int32_t length = (int32_t)(session->length + count);
    for (uint32_t i = 0; i < count; i++) {
        positions[i] = (int32_t)(session->length + i);
        sequences[i] = 0;
    }
    fill_table_row(session, row);
    forget_logits(session); /* they may lie in this runner */
    status = write_numbers(runner, runner->tokens, tokens, count);
    if (!status) status = write_numbers(runner, runner->positions, positions, count);
    if (!status) status = write_numbers(runner, runner->sequences, sequences, count);
    if (!status) status = write_numbers(runner, runner->table, row, engine->table_width);
    if (!status) status = write_numbers(runner, runner->lengths, &length, 1);
    if (!status) status = rf_executor_run(runner->executor);
    *out = runner;
    return status;
}

rf_status rf_session_take_cancel(struct rf_session *session) {
    return atomic_exchange(&session->cancelled, false)
               ? rf_fail(RF_E_CANCELLED, "cancelled after %u tokens", session->length)
               : RF_OK;
}

rf_status rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all, float *logits) {
    if (!session || !tokens || !count) return rf_fail(RF_E_INVALID, "rf_session_eval: no session, or no tokens");
    struct rf_engine *engine = session->engine;
    if (count > engine->context - session->length)
        return rf_fail(RF_E_INVALID,
                       "%zu tokens after %u: the context holds %u; use a shorter prompt or a larger context", count,
                       session->length, engine->context);
    rf_status status = check_tokens(engine, tokens, count);
    if (status) return status;
    size_t vocabulary = engine->hparams.vocabulary, most = engine->batch;
    for (size_t at = 0; at < count && !status;) {
        uint32_t chunk = (uint32_t)RF_MIN(count - at, most);
        bool last = at + chunk == count;
        struct rf_runner *runner;
        status = rf_session_take_cancel(session);
        if (!status)
            status = run_chunk(session, tokens + at, chunk, all && logits, !last && !(all && logits), &runner);
        if (rf_is_full(status) && chunk > 1) {
            /* No room for so many rows at once, beside other sessions or with all logits: fewer are slower, but run.
             */
            most = chunk / 2;
            status = RF_OK;
            continue;
        }
        if (status) break;
        memcpy(session->tokens + session->length, tokens + at, chunk * sizeof *tokens);
        session->length += chunk;
        session->last = last ? runner : NULL;
        session->last_row = all && logits ? chunk - 1 : 0;
        if (logits && (all || last)) {
            size_t rows = all ? chunk : 1;
            float *to = all ? logits + at * vocabulary : logits;
            status = rf_executor_read(runner->executor, runner->logits, to, rows * vocabulary * sizeof *to);
        }
        at += chunk;
    }
    return status;
}

/* A token each, through a runner of the first session's. */
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
        forget_logits(sessions[i]);
    }
    rf_status status = write_numbers(runner, runner->tokens, tokens, count);
    if (!status) status = write_numbers(runner, runner->positions, positions, count);
    if (!status) status = write_numbers(runner, runner->sequences, sequences, count);
    if (!status) status = write_numbers(runner, runner->table, table, count * width);
    if (!status) status = write_numbers(runner, runner->lengths, lengths, count);
    if (!status) status = rf_executor_run(runner->executor);
    return status ? status
                  : rf_executor_read(runner->executor, runner->logits, rows,
                                     count * first->engine->hparams.vocabulary * sizeof *rows);
}

rf_status rf_sessions_eval(struct rf_session *const *sessions, const int32_t *tokens, size_t count, float *logits) {
    if (!sessions || !tokens || !count || !sessions[0])
        return rf_fail(RF_E_INVALID, "rf_sessions_eval: no sessions, or no tokens");
    struct rf_engine *engine = sessions[0]->engine;
    struct rf_session *first = sessions[0];
    uint32_t longest = 0;
    size_t vocabulary = engine->hparams.vocabulary;
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
    struct rf_runner *runner;
    for (size_t i = 0; i < count; i++)
        if ((status = rf_session_take_cancel(sessions[i]))) return status;
    status = rf_session_runner(first, &shape, &runner);
    /* Each session keeps its row: the runner is the first one's, which may drop it. */
    for (size_t i = 0; i < count && !status; i++)
        if (!sessions[i]->host_logits && !(sessions[i]->host_logits = malloc(vocabulary * sizeof(float))))
            status = rf_fail(RF_E_NO_MEMORY, "no host memory for the logits of %zu sessions", count);
    float *rows = logits ? logits : malloc(count * vocabulary * sizeof *rows);
    if (!status && !rows) status = rf_fail(RF_E_NO_MEMORY, "no host memory for the logits of %zu sessions", count);
    if (!status) status = run_batch(sessions, tokens, count, runner, rows);
    for (size_t i = 0; i < count && !status; i++) {
        sessions[i]->tokens[sessions[i]->length++] = tokens[i];
        memcpy(sessions[i]->host_logits, rows + i * vocabulary, vocabulary * sizeof *rows);
        sessions[i]->has_host_logits = true;
    }
    if (!logits) free(rows);
    return status;
}
