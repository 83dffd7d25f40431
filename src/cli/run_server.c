/* The worker of `rocmforge run`: an engine that answers what it is asked over its channel, until it is told to quit
 * or its command is gone.
 *
 * The main thread opens, answers and closes; another reads, so that a cancel is heard while an answer is made. The
 * mutex guards what the two share. Must not read input nor write output: those are the command's.
 *
 * What the library logs as an error is held until it is known how the work ends: a failure is the command's to tell,
 * in one line; where all went well the lines are shown after all. With RF_LOG in the environment all are, at once. */
#include "run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct asked {
    uint32_t number; /* 0: nothing was asked */
    enum rf_chat_format format;
    char *prompt;                     /* NULL: the messages */
    struct rf_chat_message *messages; /* with texts of their own */
    size_t message_count;
};

struct desk {
    int channel;
    struct wire_out out; /* the main thread's */
    struct run_local local;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct asked next;  /* waits to be answered */
    uint32_t answering; /* its number; 0: none */
    uint32_t cancelled; /* the last question that was */
    bool quit;
    char why[200]; /* what was read is nonsense; "": it is not */

    pthread_mutex_t held_mutex; /* the library logs from any thread */
    char held[4096];            /* lines, each ended by zero */
    size_t held_bytes;
};

/* ---- the log ---- */

static void hold_line(void *user, enum rf_log_level level, const char *line) {
    struct desk *desk = user;
    size_t bytes = strlen(line) + 1;
    pthread_mutex_lock(&desk->held_mutex);
    bool held = level == RF_LOG_ERROR && bytes <= sizeof desk->held - desk->held_bytes;
    if (held) {
        memcpy(desk->held + desk->held_bytes, line, bytes);
        desk->held_bytes += bytes;
    }
    pthread_mutex_unlock(&desk->held_mutex);
    if (!held) cli_log_show(level, line);
}

static void let_go(struct desk *desk, bool show) {
    pthread_mutex_lock(&desk->held_mutex);
    for (size_t at = 0; show && at < desk->held_bytes; at += strlen(desk->held + at) + 1)
        cli_log_show(RF_LOG_ERROR, desk->held + at);
    desk->held_bytes = 0;
    pthread_mutex_unlock(&desk->held_mutex);
}

static void forget(struct asked *asked) {
    for (size_t i = 0; i < asked->message_count; i++) free((void *)(uintptr_t)asked->messages[i].text);
    free(asked->messages);
    free(asked->prompt);
    *asked = (struct asked){0};
}

/* ---- reading ---- */

static bool take_question(struct wire_body *body, struct asked *out) {
    uint32_t number = wire_take_u32(body), format = wire_take_u32(body), count = wire_take_u32(body);
    /* A message takes at least its role and its length. */
    if (!number || format > RF_CHAT_MISTRAL || count > (size_t)(body->end - body->at) / 12) return false;
    *out = (struct asked){.number = number, .format = (enum rf_chat_format)format};
    if (!count) return (out->prompt = wire_take_copy(body)) && wire_taken(body);
    out->messages = calloc(count, sizeof *out->messages);
    if (!out->messages) return false;
    for (; out->message_count < count; out->message_count++) {
        uint32_t role = wire_take_u32(body);
        char *text = wire_take_copy(body);
        if (!text) return false;
        out->messages[out->message_count] = (struct rf_chat_message){.role = (enum rf_chat_role)role, .text = text};
        if (role > RF_CHAT_ASSISTANT) {
            out->message_count++;
            return false;
        }
    }
    return wire_taken(body);
}

/* With the mutex held. False: this is nonsense. */
static bool heed(struct desk *desk, struct wire_body *body) {
    if (body->kind == WIRE_QUIT) {
        desk->quit = true;
        return wire_taken(body);
    }
    if (body->kind == WIRE_CANCEL) {
        desk->cancelled = wire_take_u32(body);
        if (desk->answering && desk->cancelled == desk->answering) run_local_stop(&desk->local);
        return wire_taken(body);
    }
    if (body->kind != WIRE_ASK || desk->next.number || desk->answering) return false;
    bool good = take_question(body, &desk->next);
    if (!good) forget(&desk->next);
    return good;
}

static void *read_questions(void *user) {
    struct desk *desk = user;
    struct wire_in in = {0};
    struct wire_body body;
    for (bool over = false; !over;) {
        enum wire_state state = wire_next(&in, &body);
        if (state == WIRE_MORE) state = wire_read(desk->channel, &in, true);
        if (state == WIRE_MORE) continue;
        pthread_mutex_lock(&desk->mutex);
        if (state == WIRE_BAD)
            snprintf(desk->why, sizeof desk->why, "%s", in.why);
        else if (state == WIRE_FRAME && !heed(desk, &body))
            snprintf(desk->why, sizeof desk->why, "what came is no question (kind %d)", (int)body.kind);
        if (state == WIRE_OVER || desk->why[0]) desk->quit = true;
        over = desk->quit;
        if (over && desk->answering) run_local_stop(&desk->local);
        pthread_cond_signal(&desk->changed);
        pthread_mutex_unlock(&desk->mutex);
    }
    wire_in_finish(&in);
    return NULL;
}

/* ---- answering ---- */

static bool send_prompt(void *user, const int32_t *ids, size_t count) {
    struct desk *desk = user;
    wire_begin(&desk->out, WIRE_PROMPT);
    wire_put(&desk->out, ids, count * sizeof *ids);
    return wire_send(desk->channel, &desk->out);
}
static bool send_token(void *user, int32_t token) {
    struct desk *desk = user;
    wire_begin(&desk->out, WIRE_TOKEN);
    wire_put_u32(&desk->out, (uint32_t)token);
    return wire_send(desk->channel, &desk->out);
}
static bool send_text(void *user, const char *text, size_t bytes) {
    struct desk *desk = user;
    wire_begin(&desk->out, WIRE_TEXT);
    wire_put(&desk->out, text, bytes);
    return wire_send(desk->channel, &desk->out);
}
static bool send_beat(void *user) {
    struct desk *desk = user;
    RF_PARAMS(struct rf_engine_info, info);
    if (rf_engine_get_info(desk->local.engine, &info)) return true;
    wire_begin(&desk->out, WIRE_BEAT);
    wire_put_u32(&desk->out, info.device_layers);
    return wire_send(desk->channel, &desk->out);
}
static bool send_failure(struct desk *desk, const struct run_failure *failure) {
    let_go(desk, false);
    wire_begin(&desk->out, WIRE_FAILED);
    wire_put_u32(&desk->out, (uint32_t)failure->status);
    wire_put_u32(&desk->out, (uint32_t)failure->exit_code);
    wire_put_text(&desk->out, failure->line);
    return wire_send(desk->channel, &desk->out);
}

static void answer(struct desk *desk, const struct asked *asked) {
    static const struct run_answer nothing;
    const struct run_listener listener = {send_prompt, send_token, send_text, send_beat, desk};
    const struct run_question question = {asked->prompt, asked->messages, asked->message_count, asked->format};
    struct run_stats stats;
    struct run_failure failure = {0};
    rf_status status = run_local_answer(&desk->local, &question, &nothing, &listener, &stats, &failure);
    pthread_mutex_lock(&desk->mutex);
    desk->answering = 0; /* before the end is said: then the next may be asked */
    pthread_mutex_unlock(&desk->mutex);
    if (status) {
        send_failure(desk, &failure);
        return;
    }
    let_go(desk, true);
    wire_begin(&desk->out, WIRE_END);
    wire_put_u64(&desk->out, stats.prompt_tokens);
    wire_put_u64(&desk->out, stats.prompt_ns);
    wire_put_u64(&desk->out, stats.tokens);
    wire_put_u64(&desk->out, stats.answer_ns);
    wire_put_u32(&desk->out, stats.device_layers);
    wire_send(desk->channel, &desk->out); /* a command that is gone is noticed by the reader */
}

/* Waits; false: there will be no more. */
static bool next_question(struct desk *desk, struct asked *out) {
    pthread_mutex_lock(&desk->mutex);
    while (!desk->quit && !desk->next.number) pthread_cond_wait(&desk->changed, &desk->mutex);
    bool go_on = !desk->quit;
    *out = desk->next;
    desk->next = (struct asked){0};
    if (go_on) {
        desk->answering = out->number;
        run_local_begin(&desk->local);
        if (desk->cancelled == out->number) run_local_stop(&desk->local);
    }
    pthread_mutex_unlock(&desk->mutex);
    return go_on;
}

static void send_ready(struct desk *desk, const struct run_info *info) {
    let_go(desk, true);
    wire_begin(&desk->out, WIRE_READY);
    wire_put_text(&desk->out, info->device);
    wire_put_u32(&desk->out, info->has_device);
    wire_put_u32(&desk->out, info->layers);
    wire_put_u32(&desk->out, info->device_layers);
    wire_put_u32(&desk->out, info->context);
    wire_put_u32(&desk->out, (uint32_t)info->format);
    wire_send(desk->channel, &desk->out);
}

static void serve(struct desk *desk) {
    pthread_t reader;
    struct asked asked;
    struct run_failure failure = {0};
    if (pthread_create(&reader, NULL, read_questions, desk) != 0) {
        run_fail(&failure, RF_E_NO_MEMORY, CLI_FAILED, "the worker process can start no thread");
        send_failure(desk, &failure);
        return;
    }
    while (next_question(desk, &asked)) {
        answer(desk, &asked);
        forget(&asked);
    }
    forget(&asked);
    pthread_join(reader, NULL); /* it said so itself */
}

int run_serve(const struct run_options *options, int channel) {
    struct desk desk = {.channel = channel, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct model_options model = options->model;
    struct run_info info;
    struct run_failure failure = {0};
    model.here = false; /* the channel is taken */
    model.serves = true;
    if (!getenv("RF_LOG")) cli_log_to(hold_line, &desk);
    wire_send_hello(channel, &desk.out);
    rf_status status = run_local_open(&desk.local, options, &model, &info, &failure);
    if (status) {
        send_failure(&desk, &failure);
    } else {
        send_ready(&desk, &info);
        serve(&desk);
        if (run_local_close(&desk.local, &failure)) {
            send_failure(&desk, &failure);
        } else {
            let_go(&desk, true);
            wire_begin(&desk.out, WIRE_CLOSED);
            wire_send(channel, &desk.out);
        }
    }
    cli_log_to(NULL, NULL);
    wire_out_finish(&desk.out);
    pthread_mutex_destroy(&desk.held_mutex);
    pthread_mutex_destroy(&desk.mutex);
    pthread_cond_destroy(&desk.changed);
    close(channel);
    return desk.why[0] ? cli_fail(CLI_FAILED, "run: the worker process: %s", desk.why) : CLI_DONE;
}
