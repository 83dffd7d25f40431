/* What the subcommands share: exit codes, options, messages; worker.h has the worker processes.
 *
 * A command is `int cmd_name(int argc, char **argv)` in a file of its own; argv[0] is the name of the command. Only
 * public headers may be used, besides json.h, utf8.h, keeper.h and descriptors.h of src/base: what the command can
 * do, any program can. JSON is read by conversation.c only. */
#ifndef RF_CLI_H
#define RF_CLI_H

#include <stdio.h>

#include <rocmforge/rocmforge.h>

#include "worker.h"

/* LOST_MODEL_FILE is the exit status of a worker of `run` whose model file cannot be read any more. Users never see
 * it: it tells the command that no driver ended the worker. */
enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_LOST_MODEL_FILE = 66, CLI_ABSENT = 77 };

int cmd_bench(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_selftest(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_test(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

/* ---- options ---- */

enum cli_kind {
    CLI_FLAG,   /* target: bool */
    CLI_TEXT,   /* target: const char *, borrowed from argv */
    CLI_NUMBER, /* target: int64_t, at least 0 */
    CLI_TEXTS,  /* target: struct cli_texts; the option may be given several times */
};

enum { CLI_TEXTS_MAX = 64 };
struct cli_texts {
    const char *items[CLI_TEXTS_MAX]; /* borrowed from argv */
    size_t count;
};

struct cli_option {
    char letter; /* 0: none */
    const char *name;
    enum cli_kind kind;
    void *target;
    const char *value; /* what the help calls the value; NULL for a flag */
    const char *help;  /* NULL: for internal use, not shown */
};

struct cli_command {
    const char *name;    /* "doctor" */
    const char *usage;   /* what follows the name: "[--json] [--options]" */
    const char *summary; /* lines, each ended by a newline */
    const struct cli_option *options;
    size_t option_count;
    int positional_max;
};

#define CLI_GO_ON (-1)
/* Fills the targets and moves the positional arguments to the front of argv (from index 1). Returns CLI_GO_ON, or the
 * exit code: --help was shown, or one line on standard error said what is wrong. */
int cli_parse(const struct cli_command *command, int argc, char **argv, int *positional_count);

/* ---- messages ---- */

/* Prints "rocmforge: TEXT" on standard error and returns code. In the worker of a job its command prints it. */
int cli_fail(int code, const char *format, ...) RF_PRINTF(2, 3);
/* The same for a call of the library that failed: "rocmforge: WHAT: rf_error_text() (RF_E_…)". The code is
 * CLI_ABSENT if a driver or device is missing, CLI_USAGE for a malformed option, else CLI_FAILED. */
int cli_fail_status(rf_status status, const char *what);
int cli_exit_code(rf_status status);

/* Standard output, as other tools treat it. A write that fails is reported and makes the command fail; if nobody
 * reads the pipe any more, the command ends without a word, by SIGPIPE. */
void cli_output_begin(void);
/* Writes what is buffered. False: that, or something before it, could not be written. */
bool cli_output_flush(void);
/* Writes these bytes, and all before them, at once. */
bool cli_output_write(const void *bytes, size_t count);
/* The reader of the output is gone: ends this process by SIGPIPE. Returns if that signal was ignored by whoever
 * started the command. */
void cli_output_unread(void);
/* At the end: the exit code, which is that of the command if all its output was written. */
int cli_output_end(int code);

/* The log callback of the command: prints lines on standard error. */
void cli_log(void *user, enum rf_log_level level, const char *line);
/* For rf_runtime_params.progress: one line on standard error that is written again and again; where that is no
 * terminal, a line every few seconds. */
void cli_progress(void *user, const char *what, uint64_t done, uint64_t total);
void cli_log_show(enum rf_log_level level, const char *line);
/* Sends the lines to this callback instead; NULL: back to standard error. Call it only while no runtime is open. */
void cli_log_to(rf_log_fn log, void *user);

/* "1.5 GiB" in one of eight buffers that take turns, so that one printf can have several. */
const char *cli_bytes(uint64_t bytes);

#endif
