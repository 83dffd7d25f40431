/* What runs inside the worker of `rocmforge run`: an engine that answers questions from its channel, until it is told
 * to quit or its command is gone.
 *
 * The main thread opens the model, answers and closes it; a second thread reads the channel, so that a cancel is
 * noticed while an answer is made. The mutex guards what the two share. The worker must not read input or files but
 * the model's, nor write output: those belong to the command.
 *
 * Errors that the library logs are held back until it is known how the work ends. If it fails, the command reports
 * the failure in one line and the held lines are dropped; if it succeeds, they are shown. If RF_LOG is set in the
 * environment, every line is shown at once. */
#include "run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct question {
    uint32_t number; /* 0: no question */
    /* Points at what follows. */
    struct run_question asked;
    char *prompt, *grammar_text, *grammar_after;
    struct rf_chat_prompt rendered;
    struct rf_chat_message *messages; /* their texts are owned too */
};

struct worker {
    int channel;
    struct wire_out out; /* used by the main thread only */
    struct run_local local;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct question next; /* waits to be answered */
    uint32_t answering;   /* the number of the question; 0: none */
    uint32_t cancelled;   /* the number of the last question that was cancelled */
    bool quit;
    char why[200]; /* why what was received makes no sense; "": it does */

    pthread_mutex_t held_mutex; /* the library logs from any thread */
    char held[4096];            /* lines, each ended by zero */
    size_t held_bytes;
};

/* ---- the log ---- */

static void hold_back(void *user, enum rf_log_level level, const char *line) {
    struct worker *worker = user;
    size_t bytes = strlen(line) + 1;
    pthread_mutex_lock(&worker->held_mutex);
    bool held = level == RF_LOG_ERROR && bytes <= sizeof worker->held - worker->held_bytes;
    if (held) {
        memcpy(worker->held + worker->held_bytes, line, bytes);
        worker->held_bytes += bytes;
    }
    pthread_mutex_unlock(&worker->held_mutex);
    if (!held) cli_log_show(level, line);
}

static void release_lines(struct worker *worker, bool show) {
    pthread_mutex_lock(&worker->held_mutex);
    for (size_t at = 0; show && at < worker->held_bytes; at += strlen(worker->held + at) + 1)
        cli_log_show(RF_LOG_ERROR, worker->held + at);
    worker->held_bytes = 0;
    pthread_mutex_unlock(&worker->held_mutex);
}

static void free_question(struct question *question) {
    for (size_t i = 0; i < question->asked.message_count; i++) free((void *)(uintptr_t)question->messages[i].text);
    free(question->messages);
    free(question->prompt);
    free(question->grammar_text);
    free(question->grammar_after);
    free(question->rendered.text);
    free(question->rendered.own);
    *question = (struct question){0};
}

/* ---- reading ---- */

static bool take_rendered(struct wire_body *body, struct rf_chat_prompt *out) {
    uint64_t bytes = wire_take_u64(body);
    if (bytes != (uint64_t)(body->end - body->at) / 2) return false;
    *out = (struct rf_chat_prompt){.struct_size = sizeof *out, .bytes = (size_t)bytes};
    out->text = malloc(out->bytes + 1);
    out->own = malloc(out->bytes + 1);
    const void *text = wire_take(body, out->bytes), *own = wire_take(body, out->bytes);
    if (!out->text || !out->own || !text || !own) return false;
    memcpy(out->text, text, out->bytes);
    memcpy(out->own, own, out->bytes);
    out->text[out->bytes] = 0;
    for (size_t i = 0; i < out->bytes; i++)
        if (out->own[i] > 1) return false;
    return true;
}

static bool take_messages(struct wire_body *body, struct question *out) {
    uint32_t format = wire_take_u32(body), count = wire_take_u32(body);
    /* A message has at least its role (4 bytes) and its length (8). */
    if (!count || format > RF_CHAT_MISTRAL || count > (size_t)(body->end - body->at) / 12) return false;
    out->asked.format = (enum rf_chat_format)format;
    out->messages = calloc(count, sizeof *out->messages);
    if (!out->messages) return false;
    while (out->asked.message_count < count) {
        uint32_t role = wire_take_u32(body);
        char *text = wire_take_copy(body);
        if (!text) return false;
        out->messages[out->asked.message_count++] =
            (struct rf_chat_message){.role = (enum rf_chat_role)role, .text = text};
        if (role > RF_CHAT_ASSISTANT) return false;
    }
    return true;
}

/* On failure the caller frees what was taken. */
static bool take_question(struct wire_body *body, struct question *out) {
    *out = (struct question){.number = wire_take_u32(body)};
    uint32_t kind = wire_take_u32(body), special = wire_take_u32(body), grammar = wire_take_u32(body);
    out->grammar_text = wire_take_copy(body);
    uint32_t has_after = wire_take_u32(body);
    out->grammar_after = wire_take_copy(body);
    if (!out->grammar_text || !out->grammar_after || !out->number || kind >= WIRE_QUESTION_KINDS || special > 1 ||
        has_after > 1 || grammar > RF_GRAMMAR_REGEX + 1)
        return false;
    out->asked.show_special = special;
    if (has_after) out->asked.grammar_after = out->grammar_after; /* on the heap: it stays where it is */
    if (grammar)
        out->asked.grammar = (struct run_grammar){
            .given = true, .kind = (enum rf_grammar_kind)(grammar - 1), .text = out->grammar_text};
    if (kind == WIRE_QUESTION_TEXT && !(out->prompt = wire_take_copy(body))) return false;
    if (kind == WIRE_QUESTION_RENDERED && !take_rendered(body, &out->rendered)) return false;
    if (kind == WIRE_QUESTION_MESSAGES && !take_messages(body, out)) return false;
    return wire_taken(body);
}

/* The pointers of a question, which was moved since it was taken. */
static struct run_question asked_in(const struct question *question) {
    struct run_question asked = question->asked;
    asked.prompt = question->prompt;
    asked.rendered = question->rendered.text ? &question->rendered : NULL;
    asked.messages = question->messages;
    return asked;
}

/* Handles a frame, with the mutex held. False: it makes no sense. */
static bool handle_frame(struct worker *worker, struct wire_body *body) {
    if (body->kind == WIRE_QUIT) {
        worker->quit = true;
        return wire_taken(body);
    }
    if (body->kind == WIRE_CANCEL) {
        worker->cancelled = wire_take_u32(body);
        if (worker->answering && worker->cancelled == worker->answering) run_local_stop(&worker->local);
        return wire_taken(body);
    }
    if (body->kind != WIRE_ASK || worker->next.number || worker->answering) return false;
    bool good = take_question(body, &worker->next);
    if (!good) free_question(&worker->next);
    return good;
}

static void *read_questions(void *user) {
    struct worker *worker = user;
    struct wire_in in = {0};
    struct wire_body body;
    for (bool over = false; !over;) {
        enum wire_state state = wire_next(&in, &body);
        if (state == WIRE_MORE) state = wire_read(worker->channel, &in, true);
        if (state == WIRE_MORE) continue;
        pthread_mutex_lock(&worker->mutex);
        if (state == WIRE_BAD)
            snprintf(worker->why, sizeof worker->why, "%s", in.why);
        else if (state == WIRE_FRAME && !handle_frame(worker, &body))
            snprintf(worker->why, sizeof worker->why, "a frame that makes no sense (kind %d)", (int)body.kind);
        if (state == WIRE_OVER || worker->why[0]) worker->quit = true;
        over = worker->quit;
        if (over && worker->answering) run_local_stop(&worker->local);
        pthread_cond_signal(&worker->changed);
        pthread_mutex_unlock(&worker->mutex);
    }
    wire_in_finish(&in);
    return NULL;
}

/* ---- answering ---- */

static bool send_prompt(void *user, const int32_t *ids, size_t count) {
    struct worker *worker = user;
    wire_begin(&worker->out, WIRE_PROMPT);
    wire_put(&worker->out, ids, count * sizeof *ids);
    return wire_send(worker->channel, &worker->out);
}
static bool send_token(void *user, int32_t token) {
    struct worker *worker = user;
    wire_begin(&worker->out, WIRE_TOKEN);
    wire_put_u32(&worker->out, (uint32_t)token);
    return wire_send(worker->channel, &worker->out);
}
static bool send_text(void *user, const char *text, size_t bytes) {
    struct worker *worker = user;
    wire_begin(&worker->out, WIRE_TEXT);
    wire_put(&worker->out, text, bytes);
    return wire_send(worker->channel, &worker->out);
}
static bool send_beat(void *user) {
    struct worker *worker = user;
    RF_PARAMS(struct rf_engine_info, info);
    if (rf_engine_get_info(worker->local.engine, &info)) return true;
    wire_begin(&worker->out, WIRE_BEAT);
    wire_put_u32(&worker->out, info.device_layers);
    return wire_send(worker->channel, &worker->out);
}
static bool send_failure(struct worker *worker, const struct run_failure *failure) {
    release_lines(worker, false);
    wire_begin(&worker->out, WIRE_FAILED);
    wire_put_u32(&worker->out, (uint32_t)failure->status);
    wire_put_u32(&worker->out, (uint32_t)failure->exit_code);
    wire_put_text(&worker->out, failure->line);
    return wire_send(worker->channel, &worker->out);
}

static void answer(struct worker *worker, const struct question *taken) {
    static const struct run_answer nothing;
    const struct run_listener listener = {send_prompt, send_token, send_text, send_beat, worker};
    const struct run_question question = asked_in(taken);
    struct run_stats stats;
    struct run_failure failure = {0};
    rf_status status = run_local_answer(&worker->local, &question, &nothing, &listener, &stats, &failure);
    pthread_mutex_lock(&worker->mutex);
    worker->answering = 0; /* before END is sent, because the next question may follow it at once */
    pthread_mutex_unlock(&worker->mutex);
    if (status) {
        send_failure(worker, &failure);
        return;
    }
    release_lines(worker, true);
    wire_begin(&worker->out, WIRE_END);
    wire_put_u64(&worker->out, stats.prompt_tokens);
    wire_put_u64(&worker->out, stats.prompt_ns);
    wire_put_u64(&worker->out, stats.tokens);
    wire_put_u64(&worker->out, stats.answer_ns);
    wire_put_u32(&worker->out, stats.device_layers);
    wire_put_u64(&worker->out, stats.host_bytes);
    wire_put_u32(&worker->out, (uint32_t)stats.end);
    wire_send(worker->channel, &worker->out); /* the reading thread notices if the command is gone */
}

/* Waits for the next question; false: there will be none. */
static bool next_question(struct worker *worker, struct question *out) {
    pthread_mutex_lock(&worker->mutex);
    while (!worker->quit && !worker->next.number) pthread_cond_wait(&worker->changed, &worker->mutex);
    bool go_on = !worker->quit;
    *out = worker->next;
    worker->next = (struct question){0};
    if (go_on) {
        worker->answering = out->number;
        run_local_begin(&worker->local);
        if (worker->cancelled == out->number) run_local_stop(&worker->local);
    }
    pthread_mutex_unlock(&worker->mutex);
    return go_on;
}

static void send_ready(struct worker *worker, const struct run_info *info) {
    release_lines(worker, true);
    wire_begin(&worker->out, WIRE_READY);
    wire_put_text(&worker->out, info->device);
    wire_put_u32(&worker->out, info->has_device);
    wire_put_u32(&worker->out, info->layers);
    wire_put_u32(&worker->out, info->device_layers);
    wire_put_u32(&worker->out, info->context);
    wire_put_u32(&worker->out, (uint32_t)info->format);
    wire_put_u32(&worker->out, info->chat_template != NULL);
    wire_put_text(&worker->out, info->bos);
    wire_put_text(&worker->out, info->eos);
    if (info->chat_template) wire_put_text(&worker->out, info->chat_template);
    wire_send(worker->channel, &worker->out);
}

static void answer_questions(struct worker *worker) {
    pthread_t reader;
    struct question asked;
    struct run_failure failure = {0};
    if (pthread_create(&reader, NULL, read_questions, worker) != 0) {
        run_fail(&failure, RF_E_NO_MEMORY, CLI_FAILED, "the worker process cannot start a thread");
        send_failure(worker, &failure);
        return;
    }
    while (next_question(worker, &asked)) {
        answer(worker, &asked);
        free_question(&asked);
    }
    free_question(&asked);
    pthread_join(reader, NULL); /* it has ended, or is about to: quit is set */
}

int run_worker_main(const struct run_options *options, int channel) {
    struct worker worker = {
        .channel = channel, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct model_options model = options->model;
    struct run_info info;
    struct run_failure failure = {0};
    model.is_run_worker = true;
    if (!getenv("RF_LOG")) cli_log_to(hold_back, &worker);
    wire_send_hello(channel, &worker.out);
    rf_status status = run_local_open(&worker.local, options, &model, &info, &failure);
    if (status) {
        send_failure(&worker, &failure);
    } else {
        send_ready(&worker, &info);
        run_info_finish(&info);
        answer_questions(&worker);
        if (run_local_close(&worker.local, &failure)) {
            send_failure(&worker, &failure);
        } else {
            release_lines(&worker, true);
            wire_begin(&worker.out, WIRE_CLOSED);
            wire_send(channel, &worker.out);
        }
    }
    cli_log_to(NULL, NULL);
    wire_out_finish(&worker.out);
    pthread_mutex_destroy(&worker.held_mutex);
    pthread_mutex_destroy(&worker.mutex);
    pthread_cond_destroy(&worker.changed);
    close(channel);
    return worker.why[0] ? cli_fail(CLI_FAILED, "run: the worker process: %s", worker.why) : CLI_DONE;
}
