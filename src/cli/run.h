/* The parts of `rocmforge run`.
 *
 *   cmd_run.c          the options; continuing a text
 *   run_input.c        what is read before the model is opened: prompts, templates, tools, grammars
 *   run_chat.c         a conversation: a message, an answer, and so on
 *   run_commands.c     what can be typed in it besides messages: /save, /undo, …
 *   run_lines.c        messages and commands as they are typed or piped; the history of lines
 *   conversation.c     the messages, as JSON
 *   run_files.c        reading and replacing files
 *   run_show.c         answers as they are shown: content, reasoning and tool calls told apart
 *   run_source.c       where answers come from: a worker with the GPU as long as it lives, then this process and the
 *                      CPU; also Ctrl-C
 *   run_local.c        answers from an engine in this process; the worker uses it too
 *   run_worker.c       answers from a worker: asking it, reading its answer, and noticing that it died or hangs
 *   run_worker_main.c  what runs inside the worker
 *   wire.c             the frames that the command and its worker exchange
 *
 * The command owns the terminal, its input and output, the files, and the conversation, which it also renders: a
 * worker gets a prompt and makes tokens. At every moment the command knows the prompt's ids, the tokens of the answer
 * and the text that was shown. So the GPU, its driver or the worker can be lost at any point, and the answer
 * continues after the last token that arrived. */
#ifndef RF_CLI_RUN_H
#define RF_CLI_RUN_H

#include "conversation.h"
#include "model.h"
#include "wire.h"

#include <stdatomic.h>

/* What the text must follow. */
struct run_grammar {
    bool given; /* false: nothing */
    enum rf_grammar_kind kind;
    const char *text; /* borrowed; "" for JSON of any kind */
    const char *name; /* for error texts; borrowed; NULL: by kind */
};
/* runtime: see rf_grammar_params. */
rf_status run_grammar_create(const struct run_grammar *wanted, struct rf_runtime *runtime, struct rf_grammar **out);

/* What the command read before it opened the model; a worker reads none of it. Texts are NULL where they were not
 * given. */
struct run_input {
    char *prompt, *system, *chat_template, *tools, *grammar_text;
    struct run_grammar grammar;
    enum rf_chat_format format; /* NONE: not given */
    bool read_standard;         /* standard input was read to its end */
    struct conversation conversation;
};

struct run_options {
    struct model_options model;
    const char *prompt, *prompt_file, *system, *system_file, *temperature, *top_p, *min_p, *penalty, *presence,
        *frequency, *format, *template_file, *template_variables, *tools_file, *reasoning, *schema_file,
        *grammar_file, *regex;
    int64_t tokens, top_k, window, seed;
    bool chat, ignore_end, stats, parse_special, json, no_history;
    struct cli_texts stops;
    struct rf_sample_params sampling;   /* made from the options above */
    struct rf_generate_params generate; /* likewise; points at sampling and stops */
    struct run_input input;
    const char *const *given; /* the arguments of the command, ended by NULL */
};

/* CLI_GO_ON, or the exit code after one line that says what is wrong. Finish the input in any case. */
int run_input_read(const struct run_options *options, struct run_input *input);
void run_input_finish(struct run_input *input);
rf_status run_template_create(const char *source, const char *name, struct rf_chat_template **out);

/* ---- files (run_files.c) ---- */

/* The rest of a file, of at most 16 MiB. A zero byte follows it, which *bytes does not count; the caller frees it.
 * NULL: *why says why not. */
char *run_read_file(FILE *file, size_t *bytes, const char **why);
/* Writes a file that only its owner may read. One that is there is replaced when the new one is complete. */
bool run_replace_file(const char *path, const char *text, size_t bytes, char why[CONVERSATION_WHY_BYTES]);
/* Where the text stops being UTF-8; its length: nowhere. */
size_t run_first_bad_byte(const char *text, size_t bytes);

/* ---- questions and answers ---- */

/* One of: a text to continue; a conversation that was rendered; messages for a built-in format. Borrowed. */
struct run_question {
    const char *prompt;
    const struct rf_chat_prompt *rendered;
    const struct rf_chat_message *messages; /* their role and text are used */
    size_t message_count;
    enum rf_chat_format format;
    bool show_special; /* control tokens are part of the answer's text */
    struct run_grammar grammar;
    const char *grammar_after; /* see rf_generate_params; NULL: from the beginning */
};

/* Text that grows; zero-initialised: empty. */
struct run_text {
    char *text; /* ended by zero; NULL: none yet */
    size_t bytes, capacity;
};
bool run_text_add(struct run_text *to, const char *text, size_t bytes); /* false: no memory */
void run_text_clear(struct run_text *text);

/* An answer so far. Zero-initialised: empty. */
struct run_answer {
    int32_t *ids; /* of the prompt */
    size_t id_count, id_capacity;
    int32_t *tokens;
    size_t token_count, token_capacity;
    struct run_text text; /* all that was generated, with the marks of reasoning and tool calls */
    enum rf_end end;      /* once it is over */
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
    enum rf_end end;
};

/* What the command knows about an engine, in whichever process it is. */
struct run_info {
    char device[160];
    bool has_device; /* false: the engine runs on the CPU alone */
    uint32_t layers, device_layers, context;
    enum rf_chat_format format; /* recognised in the file; for those without a template */
    char *chat_template;        /* owned; NULL: the file has none */
    char bos[256], eos[256];    /* the texts of these tokens; "": none */
};
void run_info_finish(struct run_info *info);

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
    struct rf_grammar *grammar; /* of the last question that had one, and its text; NULL: none yet */
    enum rf_grammar_kind grammar_kind;
    char *grammar_text;
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

/* ---- showing ---- */

/* How an answer is shown, on standard output: its content as it is; its reasoning, where that is to be seen, dimmed
 * on a terminal with colours, else between lines "<think>" and "</think>"; each tool call as a line of JSON. */
struct run_show {
    struct rf_chat_reader *reader; /* NULL: all is content */
    bool shows_reasoning, colours;
    bool no_memory, broken_call; /* the answer ended inside a tool call */
    enum { SHOWN_NOTHING, SHOWN_REASONING, SHOWN_CONTENT, SHOWN_CALL } last;
    bool line_open;                     /* what was written last does not end a line */
    struct run_text content, reasoning; /* of this answer */
    char **calls;                       /* likewise, as conversation_call makes them */
    size_t call_count;
};
void run_show_begin(struct run_show *show, const struct run_options *options);
void run_show_finish(struct run_show *show);
/* Before an answer. chat_template, prompt and tools: see rf_chat_reader_params; without a template all is content. */
rf_status run_show_clear(struct run_show *show, const struct rf_chat_template *chat_template,
                         const struct rf_chat_prompt *prompt, const char *tools);
/* More of the answer; false: no memory, or standard output cannot be written. */
bool run_show_text(struct run_show *show, const char *text, size_t bytes);
/* The answer is over: ends the line. RF_E_SYNTAX: it ended inside a tool call. */
rf_status run_show_end(struct run_show *show);

/* ---- from either ---- */

struct run_source {
    const struct run_options *options;
    bool uses_worker;
    struct run_worker worker;
    struct run_local local;
    struct run_info info;
    struct run_stats stats; /* of the last answer */
};
rf_status run_source_open(struct run_source *source, const struct run_options *options, struct run_failure *failure);
/* Shows an answer as it arrives, and keeps it. RF_OK also if Ctrl-C stopped it, or
 * if standard output could not be written; ferror(stdout) tells. */
rf_status run_source_answer(struct run_source *source, const struct run_question *question, struct run_answer *answer,
                            struct run_show *show, struct run_failure *failure);
rf_status run_source_close(struct run_source *source, struct run_failure *failure);

/* How often Ctrl-C was pressed since run_forget_interrupts. While a line is read, Ctrl-C ends the reading; otherwise
 * the interrupted system call continues. */
int run_interrupts(void);
void run_forget_interrupts(void);
void run_catch_interrupts(bool reading);

/* ---- lines ---- */

/* Messages and commands from standard input. On a terminal they are edited, and kept in a file for the next time. */
struct run_lines {
    bool terminal;
    int history; /* a descriptor to append to; -1: nothing is kept */
    bool over;   /* the input has ended */
};
enum run_line { RUN_LINE, RUN_BLOCK, RUN_LINE_BAD, RUN_LINE_END, RUN_LINE_INTERRUPTED, RUN_LINE_FAILED };
void run_lines_begin(struct run_lines *lines, bool terminal, bool keeps_history);
void run_lines_finish(struct run_lines *lines);
/* The next message or command, which the caller frees: see run_lines.c. BLOCK: a message in any case. BAD: it is
 * refused, and 'why' says why; the input goes on. FAILED: likewise, and it does not. */
enum run_line run_lines_next(struct run_lines *lines, char **line, char why[CONVERSATION_WHY_BYTES]);

/* ---- a chat ---- */

struct run_totals {
    uint64_t answers, prompt_tokens, prompt_ns, tokens, timed_tokens, answer_ns;
};
struct run_chat {
    struct run_source *source;
    const struct run_options *options;
    struct conversation *conversation;
    struct rf_chat_template *chat_template; /* NULL: the built-in format */
    enum rf_chat_format format;
    struct run_lines lines;
    struct run_show show;
    struct run_answer answer;
    struct run_totals totals;
    bool asks; /* a command wants the last message to be answered */
};
/* The conversation begins with that of the options' input, which it changes. */
int run_chat(struct run_source *source, struct run_options *options);
/* A line that begins with '/'. False: it was refused with one line. *ends: the chat is over. */
bool run_command(struct run_chat *chat, const char *line, bool *ends);
void run_show_totals(const struct run_chat *chat);
/* When an answer did not become what its grammar demands: tells so in one line. True: it did not. */
bool run_tell_cut(const struct run_options *options, const struct run_answer *answer);

#endif
