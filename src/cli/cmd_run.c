/* rocmforge run: a model goes on with a text, or answers in a chat.
 *
 * Standard output holds the text and nothing else; what is said about it goes to standard error, and only on a
 * terminal or with --stats. Ctrl-C stops the answer; in a chat the program goes on. */
#include "model.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef RF_HAVE_EDITLINE
#include <editline/readline.h>
#endif

struct run_options {
    struct model_options model;
    const char *prompt, *system, *temperature, *top_p, *min_p, *penalty, *stop, *format;
    int64_t tokens, top_k, window, seed;
    bool chat, ignore_end, stats, parse_special;
};

struct running {
    struct rf_runtime *runtime;
    struct rf_engine *engine;
    struct rf_session *session;
    struct rf_generate_params generate;
    const char *stops[1];
    char *said; /* the answer so far; for the history of a chat */
    size_t said_bytes, said_capacity;
};

/* Reached from the signal's handler: only this, and only by functions that may be called there. */
static struct rf_session *volatile answering;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
    if (answering) rf_session_cancel(answering);
}

/* While text is written, what is interrupted goes on; while a line is read it is given up. */
static void catch_interrupts(bool go_on) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = go_on ? SA_RESTART : 0};
    sigaction(SIGINT, &action, NULL);
}

static bool show_text(void *user, const char *text, size_t bytes) {
    struct running *running = user;
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    if (running->said_capacity - running->said_bytes < bytes + 1) {
        size_t capacity = 2 * (running->said_bytes + bytes) + 64;
        char *grown = realloc(running->said, capacity);
        if (!grown) return false;
        running->said = grown;
        running->said_capacity = capacity;
    }
    memcpy(running->said + running->said_bytes, text, bytes);
    running->said_bytes += bytes;
    running->said[running->said_bytes] = 0;
    return !ferror(stdout);
}

static void show_stats(const struct running *running, size_t prompt_tokens, double prompt_seconds,
                       const struct rf_generate_result *result) {
    RF_PARAMS(struct rf_engine_info, info);
    if (rf_engine_get_info(running->engine, &info)) return;
    double seconds = (double)(result->first_ns + result->rest_ns) * 1e-9;
    fprintf(stderr,
            "[%s, %u of %u layers on a GPU, context %u; prompt %zu tokens, %.1f tokens/s; answer %u tokens, "
            "%.1f tokens/s]\n",
            info.device, info.device_layers, info.layers, info.context, prompt_tokens,
            prompt_seconds > 0 ? (double)prompt_tokens / prompt_seconds : 0, result->tokens,
            seconds > 0 ? result->tokens / seconds : 0);
}

/* Evaluates what the session does not hold yet, and goes on from there. */
static rf_status answer(struct running *running, const int32_t *ids, size_t count, bool stats) {
    struct rf_generate_result result = {0};
    uint32_t same = rf_session_common(running->session, ids, count);
    if (same == count) same--; /* the last token's logits are wanted */
    running->said_bytes = 0;
    if (running->said) running->said[0] = 0;
    interrupted = 0;
    answering = running->session;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    rf_status status = rf_session_rewind(running->session, same);
    do { /* a Ctrl-C that came behind the last answer's end is not meant for this one */
        if (!status) status = rf_session_eval(running->session, ids + same, count - same, false, NULL);
    } while (status == RF_E_CANCELLED && !interrupted && !(status = rf_session_rewind(running->session, same)));
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!status) status = rf_session_generate(running->session, &running->generate, &result);
    answering = NULL;
    double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    if (status == RF_E_CANCELLED) status = RF_OK;
    if (!status) {
        fputc('\n', stdout);
        fflush(stdout); /* whoever listens at a pipe waits for the line's end */
        if (stats) show_stats(running, count - same, seconds, &result);
    }
    return status;
}

/* ---- one text ---- */

static int complete(struct running *running, const struct run_options *options) {
    int32_t *ids = NULL;
    size_t count = 0;
    RF_PARAMS(struct rf_encode_params, params);
    params.no_eos = true;
    params.parse_special = options->parse_special;
    const struct rf_tokenizer *tokenizer = rf_engine_tokenizer(running->engine);
    if (!tokenizer)
        return cli_fail(CLI_FAILED, "run: %s has no vocabulary; rocmforge logits works with token ids",
                        options->model.model);
    rf_status status =
        rf_tokenizer_encode(tokenizer, options->prompt, strlen(options->prompt), &params, &ids, &count);
    if (!status && !count) {
        rf_token_ids_destroy(&ids);
        return cli_fail(CLI_USAGE, "run: the prompt is empty, and this model has no token to begin with");
    }
    if (!status) status = answer(running, ids, count, options->stats);
    rf_token_ids_destroy(&ids);
    return status ? cli_fail_status(status, "run") : CLI_DONE;
}

/* ---- chat ---- */

static char *read_line(bool terminal) {
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

static int chat(struct running *running, const struct run_options *options) {
    enum rf_chat_format format = rf_engine_chat_format(running->engine);
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct history history = {0};
    int code = CLI_DONE;
    if (options->format && !parse_format(options->format, &format))
        return cli_fail(CLI_USAGE, "run: --format %s: there are chatml, llama2, llama3, mistral", options->format);
    if (format == RF_CHAT_NONE)
        return cli_fail(CLI_FAILED, "run: this model's chat template is not known: choose one with --format chatml, "
                                    "llama2, llama3 or mistral");
    if (terminal)
        fprintf(stderr, "Chat (%s). An empty line or Ctrl-D ends it, Ctrl-C stops an answer.\n",
                rf_chat_format_name(format));
    bool kept = !options->system || remember(&history, RF_CHAT_SYSTEM, options->system);
    for (bool first = true; kept && code == CLI_DONE; first = false) {
        interrupted = 0;
        catch_interrupts(false);
        char *line = first && options->prompt ? strdup(options->prompt) : read_line(terminal);
        catch_interrupts(true);
        if (!line && interrupted && terminal) { /* Ctrl-C gives a line up, not the chat */
            clearerr(stdin);
            fputc('\n', stderr);
            continue;
        }
        if (!line || !*line) {
            free(line);
            break;
        }
        size_t before = history.count, count = 0;
        int32_t *ids = NULL;
        kept = remember(&history, RF_CHAT_USER, line);
        free(line);
        rf_status status =
            kept ? rf_chat_encode(running->engine, format, history.messages, history.count, &ids, &count)
                 : RF_E_NO_MEMORY;
        if (!status) status = answer(running, ids, count, options->stats);
        rf_token_ids_destroy(&ids);
        if (status == RF_E_INVALID && terminal) {
            /* Too long for the context, most likely: said, and the chat goes on without it. */
            cli_fail_status(status, "run");
            forget(&history, before);
        } else if (status) {
            code = cli_fail_status(status, "run");
        } else {
            kept = remember(&history, RF_CHAT_ASSISTANT, running->said ? running->said : "");
        }
    }
    if (!kept) code = cli_fail(CLI_FAILED, "run: no memory for the conversation");
    forget(&history, 0);
    free(history.messages);
    return code;
}

/* ---- the command ---- */

static int set_numbers(const struct run_options *options, struct rf_generate_params *generate) {
    const struct {
        const char *name, *text;
        float *to;
        float least, most;
    } numbers[] = {{"--temp", options->temperature, &generate->sampling.temperature, 0, 100},
                   {"--top-p", options->top_p, &generate->sampling.top_p, 0, 1},
                   {"--min-p", options->min_p, &generate->sampling.min_p, 0, 1},
                   {"--repeat-penalty", options->penalty, &generate->sampling.penalty, 0.01f, 100}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!numbers[i].text) continue;
        if (!model_number(numbers[i].text, numbers[i].to) || *numbers[i].to < numbers[i].least ||
            *numbers[i].to > numbers[i].most)
            return cli_fail(CLI_USAGE, "run: %s %s: a number from %g to %g is wanted", numbers[i].name,
                            numbers[i].text, (double)numbers[i].least, (double)numbers[i].most);
    }
    if (options->top_k > INT32_MAX || options->tokens > INT32_MAX || options->window > INT32_MAX)
        return cli_fail(CLI_USAGE, "run: a number is too large: see rocmforge run --help");
    generate->sampling.top_k = (uint32_t)options->top_k;
    generate->sampling.penalty_window = (uint32_t)options->window;
    generate->sampling.seed = (uint64_t)options->seed;
    generate->max_tokens = (uint32_t)options->tokens;
    generate->ignore_end = options->ignore_end;
    return CLI_GO_ON;
}

static int run(const struct run_options *options, const struct rf_generate_params *generate) {
    struct running running = {.generate = *generate};
    running.generate.text = show_text;
    running.generate.user = &running;
    if (options->stop) {
        running.stops[0] = options->stop;
        running.generate.stops = running.stops;
        running.generate.stop_count = 1;
    }
    rf_status status = model_open(&options->model, &running.runtime, &running.engine);
    if (status) return cli_fail_status(status, "run");
    status = rf_session_create(running.engine, &running.session);
    int code;
    if (status) {
        code = cli_fail_status(status, "run");
    } else {
        catch_interrupts(true);
        code = options->chat ? chat(&running, options) : complete(&running, options);
        signal(SIGINT, SIG_DFL);
    }
    rf_session_destroy(&running.session);
    status = model_close(&running.runtime, &running.engine);
    if (status && code == CLI_DONE) code = cli_fail_status(status, "run");
    free(running.said);
    return code;
}

int cmd_run(int argc, char **argv) {
    struct run_options o = {.model = MODEL_DEFAULTS("f16"),
                            .temperature = "0.8",
                            .top_k = 40,
                            .top_p = "0.95",
                            .min_p = "0.05",
                            .window = 64,
                            .seed = 1,
                            .tokens = 0};
    RF_PARAMS(struct rf_generate_params, generate);
    const struct cli_option options[] = {
        MODEL_ROWS(o.model),
        {'p', "prompt", CLI_TEXT, &o.prompt, "TEXT", "what to go on from; in a chat the first message"},
        {'n', "tokens", CLI_NUMBER, &o.tokens, "N", "at most so many (default: to the end of the context)"},
        {0, "chat", CLI_FLAG, &o.chat, NULL, "a conversation, with the model's own template"},
        {0, "system", CLI_TEXT, &o.system, "TEXT", "in a chat: what the model is told first"},
        {0, "format", CLI_TEXT, &o.format, "F",
         "in a chat: chatml, llama2, llama3 or mistral (default: the model's)"},
        {0, "temp", CLI_TEXT, &o.temperature, "T", "temperature; 0 takes the best token (default: 0.8)"},
        {0, "top-k", CLI_NUMBER, &o.top_k, "K", "only the best K (default: 40; 0: all)"},
        {0, "top-p", CLI_TEXT, &o.top_p, "P", "the best that make up P together (default: 0.95; 1: all)"},
        {0, "min-p", CLI_TEXT, &o.min_p, "P", "those at least P times as likely as the best (default: 0.05)"},
        {0, "repeat-penalty", CLI_TEXT, &o.penalty, "R", "of tokens said before (default: 1, none)"},
        {0, "repeat-window", CLI_NUMBER, &o.window, "N", "among the last so many (default: 64)"},
        {0, "seed", CLI_NUMBER, &o.seed, "S", "the same seed, the same text (default: 1)"},
        {0, "stop", CLI_TEXT, &o.stop, "TEXT", "ends the answer; is not part of it"},
        {0, "ignore-end", CLI_FLAG, &o.ignore_end, NULL, "go on after the model has finished"},
        {0, "parse-special", CLI_FLAG, &o.parse_special, NULL, "control tokens spelt in the prompt become tokens"},
        {0, "stats", CLI_FLAG, &o.stats, NULL, "device, placement and tokens a second, on standard error"},
    };
    const struct cli_command command = {
        .name = "run",
        .usage = "-m M (-p TEXT | --chat) [-n N] [--temp T] [--seed S] [--device D] [--budget SPEC]",
        .summary = "A model goes on with a text, or answers in a chat.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    char **given = malloc((size_t)(argc + 1) * sizeof *given);
    if (!given) return cli_fail(CLI_FAILED, "run: no memory");
    memcpy(given, argv, (size_t)argc * sizeof *given); /* parsing moves them about */
    int given_count = argc, count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = model_check("run", &o.model);
    if (code == CLI_GO_ON && !o.prompt && !o.chat)
        code = cli_fail(CLI_USAGE, "run: give it a text with -p, or --chat: see rocmforge run --help");
    if (code == CLI_GO_ON) code = set_numbers(&o, &generate);
    if (code == CLI_GO_ON)
        code = model_wants_worker(&o.model) ? model_in_worker(given_count, given) : run(&o, &generate);
    free(given);
    return code;
}
