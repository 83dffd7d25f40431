/* Answers from a worker: asking it, reading its answer, and noticing that it died or hangs.
 *
 * A worker that dies closes its channel. A worker that hangs, in a driver call that no deadline of the library
 * reaches, is recognized by its silence (worker.h). After twice the library's deadline and a second it is killed;
 * while it opens the model it may also wait for the probe. Pressing Ctrl-C again, after the first one had no effect,
 * kills it too: that is the way out if a driver spins while part of the model runs on the CPU. */
#include "run.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { IMPATIENCE_MS = 2000 };
static const int64_t MS = 1000000;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum run_outcome lose(struct run_worker *worker, const char *format, ...) RF_PRINTF(2, 3);

/* ---- silence ---- */

enum stage { OPENING, ANSWERING, CLOSING };

/* After a tick in which nothing arrived. True: it has been silent for too long. */
static bool is_stuck(struct run_worker *worker, enum stage stage) {
    const struct run_info *info = &worker->info;
    if (stage == ANSWERING && !info->has_device) return false; /* there is no driver that could hang */
    bool host_works = stage == ANSWERING && info->device_layers < info->layers;
    cli_silence_count(&worker->silence, worker->process.pid,
                      stage == OPENING ? CLI_LOADS
                      : host_works     ? CLI_HOST_WORKS
                                       : CLI_DEVICE_WORKS);
    return worker->silence.silent_ns > worker->patience_ns + (stage == OPENING ? worker->probe_ns : 0);
}

/* ---- reading its frames ---- */

static enum run_outcome lose(struct run_worker *worker, const char *format, ...) {
    char end[CLI_WHY_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(worker->why, sizeof worker->why, format, args);
    va_end(args);
    cli_worker_end(&worker->process, true, end);
    size_t length = strlen(worker->why);
    if (worker->process.stuck) snprintf(worker->why + length, sizeof worker->why - length, "; %s", end);
    return RUN_LOST;
}

void run_worker_kill(struct run_worker *worker) {
    if (worker->process.pid) lose(worker, "it was ended");
    wire_in_finish(&worker->in);
    wire_out_finish(&worker->out);
}

static enum run_outcome refuse(struct run_worker *worker, const struct wire_body *body) {
    return lose(worker, "the worker process sent a frame that makes no sense: kind %d", (int)body->kind);
}

/* Passes Ctrl-C on while the worker answers. True: the worker must be killed. */
static bool pass_on_interrupts(struct run_worker *worker, enum stage stage) {
    int interrupts = run_interrupts();
    if (!interrupts || stage != ANSWERING) return interrupts != 0;
    if (worker->cancelled != worker->number) {
        worker->cancelled = worker->number;
        worker->cancelled_ns = now_ns();
        worker->interrupts = interrupts;
        wire_begin(&worker->out, WIRE_CANCEL);
        wire_put_u32(&worker->out, worker->number);
        wire_send(worker->process.channel, &worker->out); /* if it cannot be sent, the wait for a frame notices */
    }
    bool again = interrupts > worker->interrupts;
    worker->interrupts = interrupts;
    return again && now_ns() - worker->cancelled_ns > IMPATIENCE_MS * MS;
}

/* Waits for the next frame; DONE: it is in body. */
static enum run_outcome await_frame(struct run_worker *worker, enum stage stage, struct wire_body *body) {
    cli_silence_end(&worker->silence);
    for (;;) {
        bool silent = false, over = false;
        enum wire_state state = wire_next(&worker->in, body);
        if (state == WIRE_FRAME) return RUN_DONE;
        if (state != WIRE_BAD) {
            struct pollfd polled = {.fd = worker->process.channel, .events = POLLIN};
            silent = poll(&polled, 1, CLI_TICK_MS) == 0;
            size_t had = worker->in.count - worker->in.first;
            bool lives = !silent || cli_worker_lives(&worker->process); /* before the last look at the channel */
            state = wire_read(worker->process.channel, &worker->in, false);
            over = !lives && worker->in.count - worker->in.first == had;
        }
        if (state == WIRE_BAD) return lose(worker, "the worker process: %s", worker->in.why);
        if (state == WIRE_OVER || over) {
            cli_worker_end(&worker->process, false, worker->why);
            worker->lost_file = worker->process.exit_code == CLI_LOST_MODEL_FILE;
            if (worker->lost_file) snprintf(worker->why, sizeof worker->why, MODEL_FILE_LOST, worker->model);
            return RUN_LOST;
        }
        if (pass_on_interrupts(worker, stage)) {
            lose(worker, "it was ended by Ctrl-C");
            worker->ended = true;
            return RUN_STOPPED;
        }
        if (silent && is_stuck(worker, stage))
            return lose(worker, "the driver did not answer for %.1f s; the worker process was killed",
                        (double)worker->silence.silent_ns * 1e-9);
    }
}

static enum run_outcome take_failure(struct run_worker *worker, struct wire_body *body, struct run_failure *failure) {
    uint32_t status = wire_take_u32(body), code = wire_take_u32(body);
    wire_take_text(body, failure->line, sizeof failure->line);
    if (!wire_taken(body) || !status || status >= RF_STATUS_COUNT || code > 255) return refuse(worker, body);
    failure->status = (rf_status)status;
    failure->exit_code = (int)code;
    return RUN_FAILED;
}

/* ---- open, answer, close ---- */

enum run_outcome run_worker_open(struct run_worker *worker, const struct run_options *options,
                                 struct run_failure *failure) {
    *worker = (struct run_worker){.process = {.channel = -1}, .model = options->model.model};
    size_t count = 0;
    while (options->given[count]) count++;
    const char **arguments = malloc((count + 2) * sizeof *arguments);
    if (!arguments) {
        run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory");
        return RUN_FAILED;
    }
    arguments[0] = options->given[0];
    arguments[1] = "--in-worker";
    memcpy(arguments + 2, options->given + 1, count * sizeof *arguments);
    rf_status status = cli_patience(options->model.duty_percent, &worker->patience_ns, &worker->probe_ns);
    if (status) run_fail_status(failure, status);
    char why[CLI_WHY_BYTES];
    bool started = !status && !cli_worker_start(arguments, &worker->process, why);
    free(arguments);
    if (status) return RUN_FAILED;
    if (!started) return lose(worker, "%s", why); /* no process or no descriptor is to be had for it */
    struct timeval most = {.tv_sec =
                               worker->patience_ns / 1000000000 + 1}; /* a worker that does not read is stuck, too */
    setsockopt(worker->process.channel, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    wire_send_hello(worker->process.channel, &worker->out); /* if it cannot be sent, the wait below notices */
    struct wire_body body;
    struct run_info *info = &worker->info;
    enum run_outcome outcome = await_frame(worker, OPENING, &body);
    if (outcome != RUN_DONE) return outcome;
    if (body.kind == WIRE_FAILED) return take_failure(worker, &body, failure);
    if (body.kind != WIRE_READY) return refuse(worker, &body);
    wire_take_text(&body, info->device, sizeof info->device);
    info->has_device = wire_take_u32(&body) != 0;
    info->layers = wire_take_u32(&body);
    info->device_layers = wire_take_u32(&body);
    info->context = wire_take_u32(&body);
    uint32_t format = wire_take_u32(&body), has_template = wire_take_u32(&body);
    wire_take_text(&body, info->bos, sizeof info->bos);
    wire_take_text(&body, info->eos, sizeof info->eos);
    if (has_template) info->chat_template = wire_take_copy(&body);
    if (!wire_taken(&body) || format > RF_CHAT_MISTRAL || has_template > 1) {
        run_info_finish(info);
        return refuse(worker, &body);
    }
    info->format = (enum rf_chat_format)format;
    return RUN_DONE;
}

/* Handles one frame of an answer; DONE: more will follow. */
static enum run_outcome handle_frame(struct run_worker *worker, struct wire_body *body,
                                     const struct run_listener *listener, bool *enough) {
    size_t bytes = (size_t)(body->end - body->at);
    bool go_on = true;
    if (body->kind == WIRE_PROMPT) {
        if (!bytes || bytes % sizeof(int32_t)) return refuse(worker, body);
        int32_t *ids = malloc(bytes); /* aligned, which the frame may not be */
        if (!ids) return lose(worker, "no memory for the %zu bytes that the worker process sent", bytes);
        memcpy(ids, wire_take(body, bytes), bytes);
        go_on = listener->prompt(listener->user, ids, bytes / sizeof *ids);
        free(ids);
    } else if (body->kind == WIRE_TOKEN) {
        int32_t token = (int32_t)wire_take_u32(body);
        if (!wire_taken(body) || token < 0) return refuse(worker, body);
        go_on = listener->token(listener->user, token);
    } else if (body->kind == WIRE_TEXT) {
        if (!bytes) return refuse(worker, body);
        go_on = listener->text(listener->user, wire_take(body, bytes), bytes);
    } else {
        if (body->kind == WIRE_BEAT) worker->info.device_layers = wire_take_u32(body);
        if (body->kind != WIRE_BEAT || !wire_taken(body)) return refuse(worker, body);
    }
    if (!go_on) *enough = true;
    return RUN_DONE;
}

static void put_question(struct wire_out *out, const struct run_question *question) {
    enum wire_question kind = question->prompt     ? WIRE_QUESTION_TEXT
                              : question->rendered ? WIRE_QUESTION_RENDERED
                                                   : WIRE_QUESTION_MESSAGES;
    wire_put_u32(out, kind);
    wire_put_u32(out, question->show_special);
    wire_put_u32(out, question->grammar.given ? (uint32_t)question->grammar.kind + 1 : 0);
    wire_put_text(out, question->grammar.given ? question->grammar.text : "");
    wire_put_u32(out, question->grammar_after != NULL);
    wire_put_text(out, question->grammar_after ? question->grammar_after : "");
    if (kind == WIRE_QUESTION_TEXT) {
        wire_put_text(out, question->prompt);
    } else if (kind == WIRE_QUESTION_RENDERED) {
        wire_put_u64(out, question->rendered->bytes);
        wire_put(out, question->rendered->text, question->rendered->bytes);
        wire_put(out, question->rendered->own, question->rendered->bytes);
    } else {
        wire_put_u32(out, (uint32_t)question->format);
        wire_put_u32(out, (uint32_t)question->message_count);
        for (size_t i = 0; i < question->message_count; i++) {
            wire_put_u32(out, (uint32_t)question->messages[i].role);
            wire_put_text(out, question->messages[i].text);
        }
    }
}

enum run_outcome run_worker_answer(struct run_worker *worker, const struct run_question *question,
                                   const struct run_listener *listener, struct run_stats *stats,
                                   struct run_failure *failure) {
    bool enough = false;
    struct wire_out *out = &worker->out;
    if (!worker->process.pid) return RUN_LOST;
    wire_begin(out, WIRE_ASK);
    wire_put_u32(out, ++worker->number);
    put_question(out, question);
    if (out->failed || out->count > WIRE_BODY_MAX) {
        run_fail(failure, RF_E_INVALID, CLI_FAILED, "the text is too long: %zu bytes", out->count);
        return RUN_FAILED;
    }
    wire_send(worker->process.channel, out); /* if it cannot be sent, the wait below notices */
    for (;;) {
        struct wire_body body;
        enum run_outcome outcome = await_frame(worker, ANSWERING, &body);
        if (outcome == RUN_DONE && body.kind == WIRE_FAILED) return take_failure(worker, &body, failure);
        if (outcome == RUN_DONE && body.kind == WIRE_END) {
            stats->prompt_tokens = wire_take_u64(&body);
            stats->prompt_ns = wire_take_u64(&body);
            stats->tokens = wire_take_u64(&body);
            stats->answer_ns = wire_take_u64(&body);
            worker->info.device_layers = stats->device_layers = wire_take_u32(&body);
            stats->host_bytes = wire_take_u64(&body);
            uint32_t end = wire_take_u32(&body);
            if (!wire_taken(&body) || end > RF_END_GRAMMAR) return refuse(worker, &body);
            stats->end = (enum rf_end)end;
            return RUN_DONE;
        }
        if (outcome == RUN_DONE) outcome = handle_frame(worker, &body, listener, &enough);
        if (outcome != RUN_DONE) return outcome;
        if (enough) { /* a callback wants no more of any answer */
            lose(worker, "it was ended");
            worker->ended = true;
            return RUN_STOPPED;
        }
    }
}

enum run_outcome run_worker_close(struct run_worker *worker, struct run_failure *failure) {
    struct wire_body body;
    enum run_outcome outcome = RUN_DONE;
    char ignored[CLI_WHY_BYTES];
    if (worker->process.pid) {
        run_forget_interrupts();
        wire_begin(&worker->out, WIRE_QUIT);
        wire_send(worker->process.channel, &worker->out);
        outcome = await_frame(worker, CLOSING, &body);
    }
    if (worker->process.pid && outcome == RUN_DONE) {
        if (body.kind == WIRE_FAILED)
            outcome = take_failure(worker, &body, failure);
        else if (body.kind != WIRE_CLOSED)
            outcome = refuse(worker, &body);
    }
    if (worker->process.pid) cli_worker_end(&worker->process, false, ignored);
    wire_in_finish(&worker->in);
    wire_out_finish(&worker->out);
    return outcome;
}
