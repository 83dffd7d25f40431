/* Options and messages of the command line. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int help_left(const struct cli_option *option, char *left, size_t size) {
    return snprintf(left, size, "%c%c%s --%s%s%s", option->letter ? '-' : ' ', option->letter ? option->letter : ' ',
                    option->letter ? "," : " ", option->name, option->value ? " " : "",
                    option->value ? option->value : "");
}

static void show_help(const struct cli_command *command) {
    char left[64];
    int width = 26;
    printf("usage: rocmforge %s%s%s\n%s", command->name, command->usage[0] ? " " : "", command->usage,
           command->summary);
    if (command->option_count) putchar('\n');
    for (size_t i = 0; i < command->option_count; i++) {
        int length = command->options[i].help ? help_left(&command->options[i], left, sizeof left) : 0;
        if (length > width) width = length;
    }
    for (size_t i = 0; i < command->option_count; i++) {
        const struct cli_option *option = &command->options[i];
        if (!option->help) continue;
        help_left(option, left, sizeof left);
        printf("  %-*s %s\n", width, left, option->help);
    }
    printf("  %-*s %s\n", width, "    --help", "show this help");
}

static const struct cli_option *find_option(const struct cli_command *command, const char *name, size_t length) {
    for (size_t i = 0; i < command->option_count; i++)
        if (strlen(command->options[i].name) == length && memcmp(command->options[i].name, name, length) == 0)
            return &command->options[i];
    return NULL;
}

static const struct cli_option *find_letter(const struct cli_command *command, char letter) {
    for (size_t i = 0; letter && i < command->option_count; i++)
        if (command->options[i].letter == letter) return &command->options[i];
    return NULL;
}

static bool set_option(const struct cli_option *option, const char *value) {
    switch (option->kind) {
    case CLI_FLAG: *(bool *)option->target = true; return true;
    case CLI_TEXT: *(const char **)option->target = value; return true;
    case CLI_TEXTS: {
        struct cli_texts *texts = option->target;
        texts->items[texts->count++] = value;
        return true;
    }
    case CLI_NUMBER: break;
    }
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || errno) return false;
    *(int64_t *)option->target = number;
    return true;
}

static int usage(const struct cli_command *command, const char *what, const char *argument) {
    return cli_fail(CLI_USAGE, "%s: %s %s: see rocmforge %s --help", command->name, what, argument, command->name);
}

int cli_parse(const struct cli_command *command, int argc, char **argv, int *positional_count) {
    int count = 0;
    bool options_ended = false;
    for (int i = 1; i < argc; i++) {
        char *argument = argv[i];
        if (options_ended || argument[0] != '-' || !argument[1]) {
            if (count == command->positional_max) return usage(command, "one argument too many:", argument);
            argv[++count] = argument;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            options_ended = true;
            continue;
        }
        if (strcmp(argument, "--help") == 0) {
            show_help(command);
            return CLI_DONE;
        }
        bool is_long = argument[1] == '-';
        size_t length = is_long ? strcspn(argument + 2, "=") : 1;
        const struct cli_option *option =
            is_long ? find_option(command, argument + 2, length) : find_letter(command, argument[1]);
        if (!option) return usage(command, "unknown option", argument);
        const char *value = argument + (is_long ? 2 : 1) + length;
        if (option->kind == CLI_FLAG && *value) return usage(command, "this option takes no value:", argument);
        if (option->kind != CLI_FLAG) {
            if (*value)
                value += is_long;
            else if (i + 1 < argc)
                value = argv[++i];
            else
                return usage(command, "a value is missing after", argument);
        }
        if (option->kind == CLI_TEXTS && ((struct cli_texts *)option->target)->count == CLI_TEXTS_MAX)
            return cli_fail(CLI_USAGE, "%s: --%s is given more than %d times", command->name, option->name,
                            CLI_TEXTS_MAX);
        if (!set_option(option, value)) return usage(command, "a whole number is needed after", argument);
    }
    *positional_count = count;
    return CLI_GO_ON;
}

int cli_fail(int code, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!cli_worker_tell_error(text)) fprintf(stderr, "rocmforge: %s\n", text);
    return code;
}

/* ---- standard output ---- */

static bool pipe_signal_ignored; /* by whoever started the command */
static int output_error;         /* of the first write that failed, if cli_output_flush saw it */

void cli_output_begin(void) {
    struct sigaction action;
    pipe_signal_ignored = sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool cli_output_flush(void) {
    if (fflush(stdout) != 0 && !output_error) output_error = errno;
    return !output_error && !ferror(stdout);
}

bool cli_output_write(const void *bytes, size_t count) {
    if (fwrite(bytes, 1, count, stdout) != count && !output_error) output_error = errno;
    return cli_output_flush();
}

void cli_output_unread(void) {
    if (pipe_signal_ignored) return;
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

int cli_output_end(int code) {
    if (cli_output_flush()) return code;
    if (output_error == EPIPE) cli_output_unread();
    return cli_fail(CLI_FAILED, "standard output could not be written%s%s", output_error ? ": " : "",
                    output_error ? strerror(output_error) : "");
}

int cli_exit_code(rf_status status) {
    return status == RF_OK                                        ? CLI_DONE
           : status == RF_E_NO_DRIVER || status == RF_E_NO_DEVICE ? CLI_ABSENT
           : status == RF_E_SYNTAX || status == RF_E_NOT_FOUND    ? CLI_USAGE
                                                                  : CLI_FAILED;
}

int cli_fail_status(rf_status status, const char *what) {
    return cli_fail(cli_exit_code(status), "%s: %s (%s)", what, rf_error_text(), rf_status_name(status));
}

static rf_log_fn log_listener;
static void *log_user;

void cli_log_to(rf_log_fn log, void *user) {
    log_listener = log;
    log_user = user;
}

void cli_log_show(enum rf_log_level level, const char *line) {
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    fprintf(stderr, "rocmforge: %s: %s\n", names[level], line);
}

void cli_log(void *user, enum rf_log_level level, const char *line) {
    (void)user;
    if (log_listener)
        log_listener(log_user, level, line);
    else
        cli_log_show(level, line);
}

void cli_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    static time_t next;
    (void)user;
    bool terminal = isatty(STDERR_FILENO), last = done == total;
    cli_at(CLI_LOADS, "%s: %llu of %llu", what, (unsigned long long)done, (unsigned long long)total);
    time_t now = time(NULL);
    if (!terminal && !last && now < next) return;
    next = now + 5;
    fprintf(stderr, "%s%s: %llu of %llu%s", terminal ? "\r" : "", what, (unsigned long long)done,
            (unsigned long long)total, terminal && !last ? "" : "\n");
}

const char *cli_bytes(uint64_t bytes) {
    static _Thread_local char texts[8][32];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 8];
    rf_format_bytes(bytes, text, sizeof texts[0]);
    return text;
}
