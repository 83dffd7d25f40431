/* The parts of `rocmforge run`.
 *
 *   cmd_run.c          the options; continuing a text
 *   run_chat.c         a conversation: lines and history
 *   run_source.c       where answers come from: a worker with the GPU as long as it lives, then this process and the
 *                      CPU; also Ctrl-C, and what is shown
 *   run_local.c        answers from an engine in this process; the worker uses it too
 *   run_worker.c       answers from a worker: asking it, reading its answer, and noticing that it died or hangs
 *   run_worker_main.c  what runs inside the worker
 *   wire.c         the frames that the command and its worker exchange
 *
 * The command owns the terminal, its input and output, and the conversation. At every moment it knows the prompt's
 * ids, the tokens of the answer and the text that was shown. So the GPU, its driver or the worker can be lost at any
 * point, and the answer continues after the last token that arrived. */
#ifndef RF_CLI_RUN_H
#define RF_CLI_RUN_H

#include "model.h"
#include "wire.h"

#include <stdatomic.h>

struct run_options {
    struct model_options model;
    const char *prompt, *system, *temperature, *top_p, *min_p, *penalty, *presence, *frequency, *stop, *format;
    int64_t tokens, top_k, window, seed;
    bool chat, ignore_end, stats, parse_special;
    struct rf_sample_params sampling;   /* made from the options above */
    struct rf_generate_params generate; /* likewise; points at sampling */
    const char *stops[1];
    const char *const *given; /* the arguments of the command, ended by NULL */
};

/* ---- questions and answers ---- */

/* A text to continue, or a conversation. Borrowed. */
struct run_question {
    const char *prompt; /* NULL: use the messages */
    const struct rf_chat_message *messages;
    size_t message_count;
    enum rf_chat_format format;
};

/* An answer so far. Zero-initialised: empty. */
struct run_answer {
    int32_t *ids; /* of the prompt */
    size_t id_count, id_capacity;
    int32_t *tokens;
    size_t token_count, token_capacity;
    char *text; /* as it was shown, ended by zero; NULL: none yet */
    size_t text_bytes, text_capacity;
};
void run_answer_clear(struct run_answer *answer);
void run_answer_finish(struct run_answer *answer);

/* Callbacks that receive an answer while it is made; returning false stops it. 'beat' is a sign of life, before and
 * between the parts of a prompt; it may be NULL. */
struct run_listener {
    bool (*prompt)(void *user, const int32_t *ids, size_t count);
    bool (*token)(void *user, int32_t token);
    bool (*text)(void *user, const char *text, size_t bytes);
    bool (*beat)(void *user);
    void *user;
};

struct run_stats {
    uint64_t prompt_tokens; /* those that had to be evaluated */
    uint64_t prompt_ns;
    uint64_t tokens, answer_ns;
    uint32_t device_layers; /* at the end: layers may move */
    uint64_t host_bytes;    /* at the end: the host memory that is taken */
};

/* What the command knows about an engine, in whichever process it is. */
struct run_info {
    char device[160];
    bool has_device; /* false: the engine runs on the CPU alone */
    uint32_t layers, device_layers, context;
    enum rf_chat_format format;
};

/* Why something failed, in the words of the process where it failed. */
struct run_failure {
    rf_status status; /* RF_OK: nothing failed */
    int exit_code;
    char line[1024];
};
rf_status run_fail(struct run_failure *failure, rf_status status, int exit_code, const char *format, ...)
    RF_PRINTF(4, 5);
/* With rf_error_text(). */
rf_status run_fail_status(struct run_failure *failure, rf_status status);
/* Prints one line on standard error and returns the exit code. */
int run_show_failure(const struct run_failure *failure);

/* ---- in this process ---- */

struct run_local {
    const struct run_options *options;
    struct rf_runtime *runtime;
    struct rf_engine *engine;
    struct rf_session *session;
    atomic_bool stopped; /* the answer in progress was told to stop */
};
/* model: may differ from options->model. */
rf_status run_local_open(struct run_local *local, const struct run_options *options,
                         const struct model_options *model, struct run_info *info, struct run_failure *failure);
/* Answers, or continues the answer after what 'so_far' has of it. RF_OK also if it was stopped or a callback returned
 * false. */
rf_status run_local_answer(struct run_local *local, const struct run_question *question,
                           const struct run_answer *so_far, const struct run_listener *listener,
                           struct run_stats *stats, struct run_failure *failure);
/* To be called before an answer: forgets stops that came after the end of the last one. */
void run_local_begin(struct run_local *local);
/* Stops the answer in progress. May be called from any thread and from a signal handler. */
void run_local_stop(struct run_local *local);
rf_status run_local_close(struct run_local *local, struct run_failure *failure);

/* ---- in a worker ---- */

struct run_worker {
    struct cli_worker process;
    const char *model; /* the path of the model file; borrowed */
    struct wire_in in;
    struct wire_out out;
    struct run_info info;
    uint32_t number, cancelled; /* numbers of the current question and of the last one that was cancelled */
    bool ended;                 /* it was killed because it was not needed any more */
    int64_t patience_ns, probe_ns;
    int64_t cancelled_ns; /* when the cancel was sent, and how often Ctrl-C had been pressed by then */
    int interrupts;
    struct cli_silence silence;
    char why[1024]; /* why it was lost */
    bool lost_file; /* it could not read the model file any more; no other process could either */
};
/* How a request to the worker ended. LOST: the worker is dead, killed if necessary; its why says what happened. */
enum run_outcome { RUN_DONE, RUN_FAILED, RUN_STOPPED, RUN_LOST };

enum run_outcome run_worker_open(struct run_worker *worker, const struct run_options *options,
                                 struct run_failure *failure);
enum run_outcome run_worker_answer(struct run_worker *worker, const struct run_question *question,
                                   const struct run_listener *listener, struct run_stats *stats,
                                   struct run_failure *failure);
enum run_outcome run_worker_close(struct run_worker *worker, struct run_failure *failure);
/* Kills it, whatever it is doing. */
void run_worker_kill(struct run_worker *worker);

/* run_worker_main.c: runs in the worker and answers until it is told to quit. Returns the exit code. */
int run_worker_main(const struct run_options *options, int channel);

/* ---- from either ---- */

struct run_source {
    const struct run_options *options;
    bool uses_worker;
    struct run_worker worker;
    struct run_local local;
    struct run_info info;
};
rf_status run_source_open(struct run_source *source, const struct run_options *options, struct run_failure *failure);
/* Shows an answer on standard output as it arrives, adds a newline, and keeps it. RF_OK also if Ctrl-C stopped it, or
 * if standard output could not be written; ferror(stdout) tells. */
rf_status run_source_answer(struct run_source *source, const struct run_question *question, struct run_answer *answer,
                            struct run_failure *failure);
rf_status run_source_close(struct run_source *source, struct run_failure *failure);

/* How often Ctrl-C was pressed since run_forget_interrupts. While a line is read, Ctrl-C ends the reading; otherwise
 * the interrupted system call continues. */
int run_interrupts(void);
void run_forget_interrupts(void);
void run_catch_interrupts(bool reading);

/* ---- the commands ---- */

int run_chat(struct run_source *source, const struct run_options *options);

#endif
