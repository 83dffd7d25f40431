/* One job in a worker, from the command's side; see worker.h.
 *
 * A worker that gives no sign of life for longer than the patience of cli_patience() and the probe's deadline
 * together is killed. Whatever the worker does, its end counts only with its closing message: a driver may call
 * exit(0). */
#include "cli.h"
#include "wire.h"

#include <poll.h>
#include <string.h>

/* For options that make no sense: the worker says which in a moment. */
#define FALLBACK_NS INT64_C(600000000000)

struct running {
    const struct cli_job *job;
    struct cli_worker worker;
    struct wire_in in;
    struct cli_silence silence;
    char at[256];     /* where the worker stands; "": it did not say */
    char error[4096]; /* the last error that it told, not printed yet; "": none */
    enum cli_work work;
    bool finished, refused; /* the closing message came; nobody takes the output */
    uint32_t exit_code;
    bool confused; /* it sent what is no message */
};

bool cli_text_keep(void *user, const void *bytes, size_t count) {
    struct cli_text *text = user;
    if (count >= sizeof text->text - text->length) return false;
    memcpy(text->text + text->length, bytes, count);
    text->length += count;
    return true;
}

/* True: there is more to come. */
static bool handle(struct running *run, struct wire_body *body) {
    cli_silence_end(&run->silence);
    if (body->kind == WIRE_AT) {
        run->work = (enum cli_work)wire_take_u32(body);
        wire_take_text(body, run->at, sizeof run->at);
        run->confused = !wire_taken(body) || run->work > CLI_LOADS;
    } else if (body->kind == WIRE_ERROR) {
        char text[sizeof run->error];
        wire_take_text(body, text, sizeof text);
        run->confused = !wire_taken(body);
        if (run->error[0]) cli_fail(CLI_FAILED, "%s", run->error);
        memcpy(run->error, text, sizeof text);
    } else if (body->kind == WIRE_OUTPUT) {
        size_t bytes = (size_t)(body->end - body->at);
        const void *text = wire_take(body, bytes);
        run->refused =
            !(run->job->output ? run->job->output(run->job->user, text, bytes) : cli_output_write(text, bytes));
    } else {
        run->exit_code = wire_take_u32(body);
        run->finished = body->kind == WIRE_FINISHED && wire_taken(body) && run->exit_code < 256;
        run->confused = !run->finished;
    }
    return !run->confused && !run->refused && !run->finished;
}

/* Returns when the worker has finished or ended, nobody takes its output, or (false) it was silent for too long. */
static bool attend(struct running *run, int64_t patience_ns) {
    for (;;) {
        struct wire_body body;
        enum wire_state state = wire_next(&run->in, &body);
        if (state == WIRE_FRAME) {
            if (!handle(run, &body)) return true;
            continue;
        }
        bool silent = false;
        if (state != WIRE_BAD) {
            struct pollfd polled = {.fd = run->worker.channel, .events = POLLIN};
            silent = poll(&polled, 1, CLI_TICK_MS) == 0;
            bool lives = !silent || cli_worker_lives(&run->worker); /* before the last look at the channel */
            size_t had = run->in.count - run->in.first;
            state = wire_read(run->worker.channel, &run->in, false);
            if (!lives && run->in.count - run->in.first == had) return true;
        }
        run->confused = state == WIRE_BAD;
        if (state == WIRE_BAD || state == WIRE_OVER) return true;
        if (!silent) continue;
        cli_silence_count(&run->silence, run->worker.pid, run->work);
        if (run->silence.silent_ns > patience_ns) return false;
    }
}

/* Adds where the worker stood, and the error that it told before: one line is enough. */
static void add_place(const struct running *run, char why[CLI_WHY_BYTES]) {
    size_t length = strlen(why);
    if (run->at[0]) snprintf(why + length, CLI_WHY_BYTES - length, ", at: %s", run->at);
    length = strlen(why);
    if (run->error[0]) snprintf(why + length, CLI_WHY_BYTES - length, "; before that: %s", run->error);
}

/* After it was silent for too long. */
static rf_status give_up(struct running *run, char why[CLI_WHY_BYTES]) {
    char end[CLI_WHY_BYTES];
    cli_worker_end(&run->worker, true, end);
    snprintf(why, CLI_WHY_BYTES, "the driver did not answer for %.1f s; %.300s",
             (double)run->silence.silent_ns * 1e-9, end);
    add_place(run, why);
    return RF_E_TIMEOUT;
}

static rf_status conclude(struct running *run, int *exit_code, char why[CLI_WHY_BYTES]) {
    bool finished = run->finished;
    cli_worker_end(&run->worker, run->confused || run->refused, why);
    const struct cli_worker *worker = &run->worker;
    /* A driver whose exit handlers hang was killed after the work was done: that is no failure. */
    bool as_it_said =
        worker->exit_code == (int)run->exit_code || (worker->exit_code < 0 && !worker->exit_signal && !worker->stuck);
    *exit_code = finished ? (int)run->exit_code : CLI_FAILED;
    if (run->refused || (finished && as_it_said)) {
        if (run->error[0]) cli_fail(CLI_FAILED, "%s", run->error);
        return RF_OK;
    }
    if (finished) {
        size_t length = strlen(why);
        snprintf(why + length, CLI_WHY_BYTES - length, " when the process ended, after its work");
    } else if (run->confused) {
        snprintf(why, CLI_WHY_BYTES, "the worker process sent what makes no sense: %s", run->in.why);
    } else if (worker->killed) {
        snprintf(why, CLI_WHY_BYTES,
                 "the worker process was killed because its channel was closed, most likely "
                 "inside the driver");
    }
    add_place(run, why);
    return RF_E_DEVICE_LOST;
}

rf_status cli_worker_run(const struct cli_job *job, int *exit_code, char why[CLI_WHY_BYTES]) {
    struct running run = {.job = job, .work = CLI_LOADS};
    int64_t patience_ns = FALLBACK_NS, probe_ns = 0;
    cli_patience(job->duty_percent, &patience_ns, &probe_ns);
    rf_status status = cli_worker_start(job->arguments, &run.worker, why);
    if (status) return status;
    status = attend(&run, patience_ns + probe_ns) ? conclude(&run, exit_code, why) : give_up(&run, why);
    wire_in_finish(&run.in);
    return status;
}
