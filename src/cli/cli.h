/* What the subcommands share: exit codes, options, messages.
 *
 * A command is `int cmd_name(int argc, char **argv)` in a file of its own; argv[0] is the
 * command's name. Must use public headers only: what the command can do, any program can. */
#ifndef RF_CLI_H
#define RF_CLI_H

#include <stdio.h>
#include <sys/types.h>

#include <rocmforge/rocmforge.h>

/* UNREADABLE is said by a server to its command only, which tells it from a driver that ends the process. */
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
int cmd_test(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

/* ---- options ---- */

enum cli_kind {
    CLI_FLAG,   /* target: bool */
    CLI_TEXT,   /* target: const char *, borrowed from argv */
    CLI_NUMBER, /* target: int64_t, at least 0 */
};

struct cli_option {
    char letter; /* 0: none */
    const char *name;
    enum cli_kind kind;
    void *target;
    const char *value; /* how the help calls the value; NULL for a flag */
    const char *help;  /* NULL: not shown */
};

struct cli_command {
    const char *name;    /* "doctor" */
    const char *usage;   /* what follows the name: "[--json] [--options]" */
    const char *summary; /* lines, each ended */
    const struct cli_option *options;
    size_t option_count;
    int positional_max;
};

#define CLI_GO_ON (-1)
/* Fills the targets and moves the positional arguments to the front of argv (from index 1).
 * CLI_GO_ON, or the exit code: --help was shown, or one line says what is wrong. */
int cli_parse(const struct cli_command *command, int argc, char **argv, int *positional_count);

/* ---- messages ---- */

/* "rocmforge: TEXT" on standard error; returns code. */
int cli_fail(int code, const char *format, ...) RF_PRINTF(2, 3);
/* The same from a failing call: "rocmforge: WHAT: rf_error_text() (RF_E_…)"; the code is
 * CLI_ABSENT where a driver or device is missing, CLI_USAGE for a malformed option, else
 * CLI_FAILED. */
int cli_fail_status(rf_status status, const char *what);
int cli_exit_code(rf_status status);

/* The log callback of the command line: lines on standard error. */
void cli_log(void *user, enum rf_log_level level, const char *line);
void cli_log_show(enum rf_log_level level, const char *line);
/* Lines go there instead, until log is NULL. Set while no runtime is open. */
void cli_log_to(rf_log_fn log, void *user);

/* "1.5 GiB" in one of a few buffers that take turns: several may stand in one printf. */
const char *cli_bytes(uint64_t bytes);

/* ---- worker.c: this program again, as a process that may die of its GPU ---- */

/* Runs `rocmforge ARGUMENTS…` (ended by NULL). Its standard output and errors are ours. What
 * it writes to descriptor CLI_REPORT_FD comes back in report (at most size - 1 bytes, ended by
 * zero; report may be NULL). Killed at the deadline. RF_OK: it ended by itself, with
 * *exit_code. Else RF_E_TIMEOUT, RF_E_CANCELLED (Ctrl-C), RF_E_DEVICE_LOST (killed by another
 * signal) or RF_E_IO, with the reason in why. */
#define CLI_REPORT_FD 197
rf_status cli_worker_run(const char *const *arguments, int64_t timeout_ms, char *report, size_t size, int *exit_code,
                         char why[256]);
/* In the worker: where its report goes; NULL if this process is none. Close it when done. */
FILE *cli_worker_report(void);

/* The same as a server, that is spoken to over a socket pair. It has no input, its output is
 * our standard error, and it does not hear Ctrl-C. RF_E_IO, with the reason in why. */
struct cli_worker {
    pid_t pid; /* 0: there is none */
    int channel;
    int exit_code; /* once it was ended: its own, -1 where it died otherwise */
};
rf_status cli_worker_start(const char *const *arguments, struct cli_worker *server, char why[256]);
/* Closes the channel and waits for its end, but not long, nor at all for one to be killed at
 * once: it is killed then. Whether it ended by itself and well; if not, why. No server: false. */
bool cli_worker_end(struct cli_worker *server, bool at_once, char why[256]);
/* In the server: its end of the channel, once; -1: this process is none. */
int cli_worker_channel(void);

#endif
