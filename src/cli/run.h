/* What `rocmforge run` is made of.
 *
 *   cmd_run.c      the options; a text to go on with
 *   run_chat.c     a conversation: lines, history
 *   run_source.c   where answers come from: a worker with the GPU as long as it lives, then this process and the CPU;
 *                  Ctrl-C; what is shown
 *   run_local.c    answers by an engine in this process
 *   run_remote.c   answers by a worker: asking, listening, and telling that it is dead or hangs
 *   run_server.c   that worker
 *   run_wire.c     what the two say to each other
 *
 * The command owns the terminal, its input and output and the conversation; of an answer it knows at every moment the
 * prompt's ids, the tokens and the text that was shown. So a GPU, its driver and the worker can be lost at any point,
 * and the answer goes on behind the last token that came. */
#ifndef RF_CLI_RUN_H
#define RF_CLI_RUN_H

#include "model.h"
#include "run_wire.h"

#include <stdatomic.h>

struct run_options {
    struct model_options model;
    const char *prompt, *system, *temperature, *top_p, *min_p, *penalty, *stop, *format;
    int64_t tokens, top_k, window, seed;
    bool chat, ignore_end, stats, parse_special;
    struct rf_sample_params sampling;   /* by those above */
    struct rf_generate_params generate; /* likewise; points at sampling */
    const char *stops[1];
    const char *const *given; /* the command as it was given, ended by NULL */
};

/* ---- what is asked, and what comes of it ---- */

/* A text to go on with, or a conversation. Borrowed. */
struct run_question {
    const char *prompt; /* NULL: the messages */
    const struct rf_chat_message *messages;
    size_t message_count;
    enum rf_chat_format format;
};

/* An answer so far. Zero-initialised is none. */
struct run_answer {
    int32_t *ids; /* the prompt's */
    size_t id_count, id_capacity;
    int32_t *tokens;
    size_t token_count, token_capacity;
    char *text; /* as it was shown, ended by zero; NULL: none yet */
    size_t text_bytes, text_capacity;
};
void run_answer_clear(struct run_answer *answer);
void run_answer_finish(struct run_answer *answer);

/* Who hears of an answer while it is made; false: enough. 'beat' is a sign of life, before and between the parts of a
 * prompt, and may be NULL. */
struct run_listener {
    bool (*prompt)(void *user, const int32_t *ids, size_t count);
    bool (*token)(void *user, int32_t token);
    bool (*text)(void *user, const char *text, size_t bytes);
    bool (*beat)(void *user);
    void *user;
};

struct run_stats {
    uint64_t prompt_tokens; /* that had to be evaluated */
    uint64_t prompt_ns;
    uint64_t tokens, answer_ns;
    uint32_t device_layers; /* in the end: they may move */
};

/* What there is to know of an engine, wherever it is. */
struct run_info {
    char device[160];
    bool has_device; /* else it is the CPU alone */
    uint32_t layers, device_layers, context;
    enum rf_chat_format format;
};

/* Why something failed; in words that came from wherever it happened. */
struct run_failure {
    rf_status status; /* RF_OK: it did not */
    int exit_code;
    char line[1024];
};
rf_status run_fail(struct run_failure *failure, rf_status status, int exit_code, const char *format, ...)
    RF_PRINTF(4, 5);
/* The library's own words. */
rf_status run_fail_status(struct run_failure *failure, rf_status status);
/* One line on standard error; returns the exit code. */
int run_show_failure(const struct run_failure *failure);

/* ---- in this process ---- */

struct run_local {
    const struct run_options *options;
    struct rf_runtime *runtime;
    struct rf_engine *engine;
    struct rf_session *session;
    atomic_bool stopped; /* the answer that is being made was told to stop */
};
/* 'model' where it is not that of the options. */
rf_status run_local_open(struct run_local *local, const struct run_options *options,
                         const struct model_options *model, struct run_info *info, struct run_failure *failure);
/* Answers, or goes on behind what 'so_far' has of the answer. RF_OK too where it was stopped or the listener had
 * enough. */
rf_status run_local_answer(struct run_local *local, const struct run_question *question,
                           const struct run_answer *so_far, const struct run_listener *listener,
                           struct run_stats *stats, struct run_failure *failure);
/* An answer is about to be made: stops that came behind the end of the last one are forgotten. */
void run_local_begin(struct run_local *local);
/* Ends the answer that was begun. Any thread, and from a signal's handler. */
void run_local_stop(struct run_local *local);
rf_status run_local_close(struct run_local *local, struct run_failure *failure);

/* ---- in a worker ---- */

struct run_remote {
    struct cli_server server;
    const char *model; /* its file; borrowed */
    struct wire_in in;
    struct wire_out out;
    struct run_info info;
    uint32_t number, cancelled; /* of the question, and of the last one that was */
    bool ended;                 /* it was killed because it was no longer wanted */
    int64_t patience_ns, probe_ns;
    int64_t cancelled_ns; /* when that was passed on, and how often Ctrl-C had come then */
    int interrupts;
    /* For telling a worker that hangs from one that works: see run_remote.c. */
    int64_t silent_ns, looked_ns, cpu_ns;
    uint64_t read_bytes;
    char why[1024];  /* it was lost */
    bool unreadable; /* it was the model's file that was; no other process could do better */
};
/* How a call to the worker ended. LOST: it is dead and was killed if need be; why says how. */
enum run_outcome { RUN_DONE, RUN_FAILED, RUN_STOPPED, RUN_LOST };

enum run_outcome run_remote_open(struct run_remote *remote, const struct run_options *options,
                                 struct run_failure *failure);
enum run_outcome run_remote_answer(struct run_remote *remote, const struct run_question *question,
                                   const struct run_listener *listener, struct run_stats *stats,
                                   struct run_failure *failure);
enum run_outcome run_remote_close(struct run_remote *remote, struct run_failure *failure);
/* Ends it now, whatever it does. */
void run_remote_kill(struct run_remote *remote);

/* The worker: answers until it is told to quit. */
int run_serve(const struct run_options *options, int channel);

/* ---- either ---- */

struct run_source {
    const struct run_options *options;
    bool is_remote;
    struct run_remote remote;
    struct run_local local;
    struct run_info info;
};
rf_status run_source_open(struct run_source *source, const struct run_options *options, struct run_failure *failure);
/* Shows an answer on standard output as it comes, with a newline behind it, and keeps it. RF_OK too where Ctrl-C
 * stopped it, or standard output took no more: ferror(stdout) tells. */
rf_status run_source_answer(struct run_source *source, const struct run_question *question, struct run_answer *answer,
                            struct run_failure *failure);
rf_status run_source_close(struct run_source *source, struct run_failure *failure);

/* Ctrl-C: how often since it was last forgotten. While a line is read it ends the reading, else what is interrupted
 * goes on. */
int run_interrupts(void);
void run_forget_interrupts(void);
void run_catch_interrupts(bool reading);

/* ---- the commands ---- */

int run_chat(struct run_source *source, const struct run_options *options);

#endif
