/* A conversation: a line, an answer, and so on. The command keeps the history, so it survives the loss of a worker.
 */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef RF_HAVE_EDITLINE
#include <editline/readline.h>
#endif

/* NULL: the input ended, or *error says why it cannot be read. */
static char *read_line(bool terminal, int *error) {
    *error = 0;
#ifdef RF_HAVE_EDITLINE
    if (terminal) {
        char *line = readline("> ");
        if (line && *line) add_history(line);
        return line;
    }
#else
    if (terminal) {
        fputs("> ", stderr);
        fflush(stderr);
    }
#endif
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, stdin);
    if (length < 0) {
        *error = ferror(stdin) && errno != EINTR ? errno : 0; /* EINTR: Ctrl-C */
        free(line);
        return NULL;
    }
    if (length && line[length - 1] == '\n') line[length - 1] = 0;
    return line;
}

struct history {
    struct rf_chat_message *messages;
    size_t count, capacity;
};

static bool remember(struct history *history, enum rf_chat_role role, const char *text) {
    if (history->count == history->capacity) {
        size_t capacity = 2 * history->capacity + 8;
        struct rf_chat_message *grown = realloc(history->messages, capacity * sizeof *grown);
        if (!grown) return false;
        history->messages = grown;
        history->capacity = capacity;
    }
    char *copy = strdup(text);
    if (!copy) return false;
    history->messages[history->count++] = (struct rf_chat_message){.role = role, .text = copy};
    return true;
}
static void forget(struct history *history, size_t count) {
    while (history->count > count) free((void *)(uintptr_t)history->messages[--history->count].text);
}

static bool parse_format(const char *text, enum rf_chat_format *format) {
    for (int i = RF_CHAT_CHATML; i <= RF_CHAT_MISTRAL; i++)
        if (!strcmp(text, rf_chat_format_name((enum rf_chat_format)i))) {
            *format = (enum rf_chat_format)i;
            return true;
        }
    return false;
}

int run_chat(struct run_source *source, const struct run_options *options) {
    enum rf_chat_format format = source->info.format;
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct history history = {0};
    struct run_answer answer = {0};
    int code = CLI_DONE;
    if (options->format && !parse_format(options->format, &format))
        return cli_fail(CLI_USAGE, "run: --format %s: the formats are chatml, llama2, llama3, mistral",
                        options->format);
    if (format == RF_CHAT_NONE)
        return cli_fail(CLI_FAILED, "run: the chat template of this model is not known: choose one with --format "
                                    "chatml, llama2, llama3 or mistral");
    if (terminal)
        fprintf(stderr, "Chat (%s). An empty line or Ctrl-D ends it, Ctrl-C stops an answer.\n",
                rf_chat_format_name(format));
    bool kept = !options->system || remember(&history, RF_CHAT_SYSTEM, options->system);
    for (bool first = true; kept && code == CLI_DONE && !ferror(stdout); first = false) {
        run_forget_interrupts();
        run_catch_interrupts(true);
        int input_error = 0;
        char *line = first && options->prompt ? strdup(options->prompt) : read_line(terminal, &input_error);
        run_catch_interrupts(false);
        if (!line && run_interrupts() && terminal) { /* Ctrl-C discards the line and does not end the chat */
            clearerr(stdin);
            fputc('\n', stderr);
            continue;
        }
        if (!line && input_error)
            code = cli_fail(CLI_FAILED, "run: standard input could not be read: %s", strerror(input_error));
        if (!line || !*line) {
            free(line);
            break;
        }
        size_t before = history.count;
        struct run_failure failure;
        kept = remember(&history, RF_CHAT_USER, line);
        free(line);
        if (!kept) break;
        const struct run_question question = {
            .messages = history.messages, .message_count = history.count, .format = format};
        rf_status status = run_source_answer(source, &question, &answer, &failure);
        if (status == RF_E_INVALID && terminal) {
            /* Most likely too long for the context: the failure is shown, and the chat goes on without it. */
            run_show_failure(&failure);
            forget(&history, before);
        } else if (status) {
            code = run_show_failure(&failure);
        } else {
            kept = remember(&history, RF_CHAT_ASSISTANT, answer.text ? answer.text : "");
        }
    }
    if (!kept) code = cli_fail(CLI_FAILED, "run: no memory for the conversation");
    forget(&history, 0);
    free(history.messages);
    run_answer_finish(&answer);
    return code;
}
