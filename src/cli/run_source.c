/* Where answers come from: see run.h.
 *
 * A worker with the GPU answers as long as it lives and its device works. After that this process opens the model on
 * the CPU and continues after the last token that arrived. By then the worker has been killed and nothing more is
 * read from it, so nothing is shown twice. An error in the input is never taken for a loss: it would fail on the CPU
 * too. */
#include "run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Ctrl-C ---- */

/* Used by the signal handler, on any thread. */
static struct run_local *volatile answering;
static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (interrupts < 100) interrupts++;
    struct run_local *local = answering;
    if (local) run_local_stop(local);
}

void run_catch_interrupts(bool reading) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = reading ? 0 : SA_RESTART};
    sigaction(SIGINT, &action, NULL);
}
int run_interrupts(void) {
    return interrupts;
}
void run_forget_interrupts(void) {
    interrupts = 0;
}

/* ---- keeping an answer ---- */

static bool grow(void **bytes, size_t count, size_t *capacity, size_t more, size_t each) {
    if (*capacity - count >= more) return true;
    if (more > SIZE_MAX / 4 / each - count) return false;
    size_t wanted = 2 * (count + more) + 64;
    void *grown = realloc(*bytes, wanted * each);
    if (!grown) return false;
    *bytes = grown;
    *capacity = wanted;
    return true;
}

void run_answer_clear(struct run_answer *answer) {
    answer->id_count = answer->token_count = 0;
    run_text_clear(&answer->text);
}
void run_answer_finish(struct run_answer *answer) {
    free(answer->ids);
    free(answer->tokens);
    free(answer->text.text);
    *answer = (struct run_answer){0};
}

struct kept {
    struct run_answer *answer;
    struct run_show *show;
    bool no_memory;
};

static bool keep_prompt(void *user, const int32_t *ids, size_t count) {
    struct kept *kept = user;
    struct run_answer *answer = kept->answer;
    if (answer->id_count) return true; /* it continues an answer */
    if (!grow((void **)&answer->ids, 0, &answer->id_capacity, count, sizeof *ids)) kept->no_memory = true;
    if (kept->no_memory) return false;
    memcpy(answer->ids, ids, count * sizeof *ids);
    answer->id_count = count;
    return true;
}
static bool keep_token(void *user, int32_t token) {
    struct kept *kept = user;
    struct run_answer *answer = kept->answer;
    if (!grow((void **)&answer->tokens, answer->token_count, &answer->token_capacity, 1, sizeof token))
        kept->no_memory = true;
    if (kept->no_memory) return false;
    answer->tokens[answer->token_count++] = token;
    return true;
}
static bool keep_text(void *user, const char *text, size_t bytes) {
    struct kept *kept = user;
    if (!run_text_add(&kept->answer->text, text, bytes)) kept->no_memory = true;
    return !kept->no_memory && run_show_text(kept->show, text, bytes);
}

static void show_stats(const struct run_info *info, const struct run_stats *stats, const struct run_answer *answer) {
    double prompt = (double)stats->prompt_ns * 1e-9, rest = (double)stats->answer_ns * 1e-9;
    fprintf(stderr,
            "[%s, %u of %u layers on a GPU, context %u; prompt %llu tokens, %.1f tokens/s; answer %zu tokens, "
            "%.1f tokens/s; %s of host memory]\n",
            info->device, stats->device_layers, info->layers, info->context, (unsigned long long)stats->prompt_tokens,
            prompt > 0 ? (double)stats->prompt_tokens / prompt : 0, answer->token_count,
            rest > 0 ? (double)stats->tokens / rest : 0, cli_bytes(stats->host_bytes));
}

/* ---- from the worker to the CPU ---- */

/* Whether the device failed, and not the request. */
static bool is_device_failure(rf_status status) {
    return status == RF_E_DEVICE_LOST || status == RF_E_TIMEOUT || status == RF_E_DRIVER ||
           status == RF_E_DEVICE_MEMORY || status == RF_E_BUDGET;
}

/* Opens the model in this process, on the CPU, with the context length that the worker had. */
static rf_status open_locally(struct run_source *source, bool in_answer, struct run_failure *failure) {
    struct model_options model = source->options->model;
    uint32_t context = source->worker.info.context;
    model.device = "cpu";
    model.layers = 0;
    model.quiet = in_answer; /* the terminal shows the text so far */
    if (context) model.context = context;
    /* Ctrl-C is meant for the answer, so it is held back until the answer continues. */
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    struct run_info info;
    rf_status status = run_local_open(&source->local, source->options, &model, &info, failure);
    if (status && model.context != source->options->model.context) {
        /* The GPU had memory for a context of this length; the host does not. */
        model.context = source->options->model.context;
        status = run_local_open(&source->local, source->options, &model, &info, failure);
    }
    if (!status) {
        run_info_finish(&source->info);
        source->info = info;
    }
    run_catch_interrupts(false);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    source->uses_worker = false;
    return status;
}

/* On a terminal the text so far may be on the same line, so a new line is begun. */
static void show_notice(const struct run_answer *answer, struct run_show *show, const char *what, const char *why) {
    if (show && show->line_open && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO)) fputc('\n', stderr);
    size_t tokens = answer ? answer->token_count : 0;
    char where[64] = "";
    if (tokens) snprintf(where, sizeof where, " after %zu token%s of the answer", tokens, tokens == 1 ? "" : "s");
    fprintf(stderr, "rocmforge: note: %s%s; continuing on the CPU: %s\n", what, where, why);
}

rf_status run_source_open(struct run_source *source, const struct run_options *options, struct run_failure *failure) {
    *source = (struct run_source){.options = options};
    if (!model_wants_worker(&options->model)) {
        rf_status status = run_local_open(&source->local, options, &options->model, &source->info, failure);
        run_catch_interrupts(false);
        return status;
    }
    source->uses_worker = true;
    run_catch_interrupts(false);
    enum run_outcome outcome = run_worker_open(&source->worker, options, failure);
    source->info = source->worker.info;
    source->worker.info.chat_template = NULL; /* the source has it now */
    if (outcome == RUN_DONE) return RF_OK;
    bool automatic = !strcmp(options->model.device, "auto"), lost = outcome == RUN_LOST;
    if (outcome == RUN_STOPPED) run_fail(failure, RF_E_CANCELLED, CLI_FAILED, "interrupted");
    bool lost_file = lost && source->worker.lost_file;
    if (lost) run_fail(failure, lost_file ? RF_E_IO : RF_E_DEVICE_LOST, CLI_FAILED, "%s", source->worker.why);
    run_worker_kill(&source->worker);
    if (outcome == RUN_STOPPED || lost_file || !automatic) return failure->status;
    /* If --gpu-layers was given and they do not fit, the user must change it; likewise an option that makes no sense.
     * Any other failure may be the GPU's: a lease or a descriptor that is not to be had, a model that is not
     * supported there. If it was the model's, the CPU fails too, and the worker's failure is what the user sees. */
    if ((failure->status == RF_E_BUDGET && options->model.layers) || failure->status == RF_E_SYNTAX ||
        failure->status == RF_E_INVALID)
        return failure->status;
    bool device_failed = lost || is_device_failure(failure->status);
    struct run_failure local_failure;
    rf_status status = open_locally(source, false, &local_failure);
    if (status && device_failed) cli_fail(CLI_FAILED, "run: the GPU cannot be used: %s", failure->line);
    if (status) {
        if (device_failed) *failure = local_failure;
        return failure->status;
    }
    show_notice(NULL, NULL, "the GPU cannot be used", failure->line);
    return RF_OK;
}

/* ---- answering ---- */

static rf_status answer_locally(struct run_source *source, const struct run_question *question,
                                const struct run_answer *so_far, const struct run_listener *listener,
                                struct run_stats *stats, struct run_failure *failure) {
    run_local_begin(&source->local);
    answering = &source->local;
    if (interrupts) run_local_stop(&source->local); /* it came when there was nothing to stop yet */
    rf_status status = run_local_answer(&source->local, question, so_far, listener, stats, failure);
    answering = NULL;
    return status;
}

/* LOST: the worker is dead now, and worker.why says why. */
static enum run_outcome answer_by_worker(struct run_source *source, const struct run_question *question,
                                         const struct run_listener *listener, struct run_stats *stats,
                                         struct run_failure *failure) {
    struct run_worker *worker = &source->worker;
    enum run_outcome outcome = run_worker_answer(worker, question, listener, stats, failure);
    if (outcome == RUN_FAILED && source->info.has_device && is_device_failure(failure->status)) {
        run_worker_kill(worker);
        snprintf(worker->why, sizeof worker->why, "%s", failure->line);
        outcome = RUN_LOST;
    }
    /* The user wanted the answer to end, and it has. The next question will notice that the worker is gone. */
    return outcome == RUN_LOST && interrupts ? RUN_STOPPED : outcome;
}

static rf_status get_answer(struct run_source *source, const struct run_question *question, struct run_answer *answer,
                            struct run_show *show, const struct run_listener *listener, struct run_stats *stats,
                            struct run_failure *failure) {
    if (source->uses_worker) {
        struct run_worker *worker = &source->worker;
        enum run_outcome outcome = answer_by_worker(source, question, listener, stats, failure);
        if (outcome == RUN_FAILED) return failure->status;
        if (outcome == RUN_STOPPED) stats->end = RF_END_CALLER;
        if (outcome != RUN_LOST) return RF_OK;
        run_worker_kill(worker); /* release what is left of it */
        /* If the worker had no GPU, or lost the model file, this process could do no better. */
        if (worker->lost_file) return run_fail(failure, RF_E_IO, CLI_FAILED, "%s", worker->why);
        if (!source->info.has_device && !worker->ended)
            return run_fail(failure, RF_E_DEVICE_LOST, CLI_FAILED, "%s", worker->why);
        show_notice(answer, show, worker->ended ? "the worker process is gone" : "the GPU was lost", worker->why);
        rf_status status = open_locally(source, true, failure);
        if (status) return status;
    }
    return answer_locally(source, question, answer, listener, stats, failure);
}

rf_status run_source_answer(struct run_source *source, const struct run_question *question, struct run_answer *answer,
                            struct run_show *show, struct run_failure *failure) {
    struct kept kept = {.answer = answer, .show = show};
    const struct run_listener listener = {keep_prompt, keep_token, keep_text, NULL, &kept};
    struct run_stats *stats = &source->stats;
    *stats = (struct run_stats){0};
    run_answer_clear(answer);
    run_forget_interrupts();
    rf_status status = get_answer(source, question, answer, show, &listener, stats, failure);
    answer->end = stats->end;
    if (kept.no_memory || show->no_memory)
        return run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for the answer");
    if (status) {
        if (show->line_open && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO)) fputc('\n', stderr);
        return status;
    }
    rf_status shown = run_show_end(show);
    if (show->no_memory) return run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for the answer");
    if (shown) /* the text is there; only the call is not */
        cli_fail(CLI_FAILED, "run: the answer ends inside a tool call: %s", rf_error_text());
    if (source->options->stats && !ferror(stdout)) show_stats(&source->info, stats, answer);
    return RF_OK;
}

rf_status run_source_close(struct run_source *source, struct run_failure *failure) {
    rf_status status = RF_OK;
    if (source->uses_worker) {
        enum run_outcome outcome = run_worker_close(&source->worker, failure);
        /* The answers are complete, so a GPU that is lost while it is closed is worth only a note. */
        bool lost = outcome == RUN_LOST || (outcome == RUN_FAILED && is_device_failure(failure->status));
        if (lost)
            fprintf(stderr, "rocmforge: note: the GPU was lost after the last answer; nothing is missing: %s\n",
                    outcome == RUN_LOST ? source->worker.why : failure->line);
        else if (outcome == RUN_FAILED)
            status = failure->status;
    } else {
        status = run_local_close(&source->local, failure);
    }
    signal(SIGINT, SIG_DFL);
    run_info_finish(&source->info);
    return status;
}
