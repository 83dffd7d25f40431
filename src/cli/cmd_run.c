/* rocmforge run: a model continues a text, or answers in a chat; run.h lists the files.
 *
 * Standard output holds the generated text and nothing else. Statistics go to standard error, and only on a terminal
 * or with --stats. Ctrl-C stops the answer; a chat then goes on. */
#include "run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

bool run_tell_cut(const struct run_options *options, const struct run_answer *answer) {
    const struct run_grammar *grammar = &options->input.grammar;
    if (!grammar->given || answer->end == RF_END_GRAMMAR || answer->end == RF_END_TOKEN) return false;
    bool json = grammar->kind == RF_GRAMMAR_JSON || grammar->kind == RF_GRAMMAR_JSON_SCHEMA;
    bool stopped = answer->end == RF_END_STOP || answer->end == RF_END_CALLER;
    cli_fail(CLI_FAILED, "run: the answer was %s after %zu token%s: it is not complete%s",
             stopped ? "stopped" : "cut", answer->token_count, answer->token_count == 1 ? "" : "s",
             json                               ? " JSON"
             : grammar->kind == RF_GRAMMAR_GBNF ? " by the grammar"
                                                : " by the regular expression");
    return true;
}

static int complete(struct run_source *source, const struct run_options *options) {
    const struct run_question question = {.prompt = options->input.prompt, .grammar = options->input.grammar};
    struct run_answer answer = {0};
    struct run_show show;
    struct run_failure failure;
    run_show_begin(&show, options);
    rf_status status = run_source_answer(source, &question, &answer, &show, &failure);
    int code = status ? run_show_failure(&failure) : CLI_DONE;
    if (!status && run_tell_cut(options, &answer)) code = CLI_FAILED;
    run_show_finish(&show);
    run_answer_finish(&answer);
    return code;
}

static int run(struct run_options *options) {
    struct run_source source;
    struct run_failure failure;
    signal(SIGPIPE, SIG_IGN); /* when nobody reads the output any more, writing fails and the command ends in order */
    if (run_source_open(&source, options, &failure)) return run_show_failure(&failure);
    int code = options->chat ? run_chat(&source, options) : complete(&source, options);
    rf_status status = run_source_close(&source, &failure);
    return status && code == CLI_DONE ? run_show_failure(&failure) : code;
}

static int set_numbers(struct run_options *options) {
    struct rf_generate_params *generate = &options->generate;
    struct rf_sample_params *sampling = &options->sampling;
    const struct {
        const char *name, *text;
        float *to;
        float least, most;
    } numbers[] = {{"--temp", options->temperature, &sampling->temperature, 0, 100},
                   {"--top-p", options->top_p, &sampling->top_p, 0, 1},
                   {"--min-p", options->min_p, &sampling->min_p, 0, 1},
                   {"--repeat-penalty", options->penalty, &sampling->penalty, 0.01f, 100},
                   {"--presence-penalty", options->presence, &sampling->presence, -100, 100},
                   {"--frequency-penalty", options->frequency, &sampling->frequency, -100, 100}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!numbers[i].text) continue;
        if (!model_number(numbers[i].text, numbers[i].to) || *numbers[i].to < numbers[i].least ||
            *numbers[i].to > numbers[i].most)
            return cli_fail(CLI_USAGE, "run: %s %s: must be a number from %g to %g", numbers[i].name, numbers[i].text,
                            (double)numbers[i].least, (double)numbers[i].most);
    }
    if (options->top_k > INT32_MAX || options->tokens > INT32_MAX || options->window > INT32_MAX)
        return cli_fail(CLI_USAGE, "run: a number is too large: see rocmforge run --help");
    sampling->top_k = (uint32_t)options->top_k;
    sampling->penalty_window = (uint32_t)options->window;
    sampling->seed = (uint64_t)options->seed;
    generate->max_tokens = (uint32_t)options->tokens;
    generate->ignore_end = options->ignore_end;
    generate->stops = options->stops.items;
    generate->stop_count = options->stops.count;
    return CLI_GO_ON;
}

int cmd_run(int argc, char **argv) {
    struct run_options o = {.model = MODEL_DEFAULTS("f16"),
                            .temperature = "0.8",
                            .top_k = 40,
                            .top_p = "0.95",
                            .min_p = "0.05",
                            .window = 64,
                            .seed = 1,
                            .sampling = {.struct_size = sizeof o.sampling},
                            .generate = {.struct_size = sizeof o.generate, .sampling = &o.sampling}};
    const struct cli_option options[] = {
        MODEL_ROWS(o.model),
        {'p', "prompt", CLI_TEXT, &o.prompt, "TEXT",
         "the text to continue; in a chat, the first message; - reads it from standard input"},
        {0, "file", CLI_TEXT, &o.prompt_file, "F", "the same from a file"},
        {'n', "tokens", CLI_NUMBER, &o.tokens, "N", "generate at most N tokens (default: until the context is full)"},
        {0, "chat", CLI_FLAG, &o.chat, NULL, "have a conversation, with the model's own chat template; /help in it"},
        {0, "system", CLI_TEXT, &o.system, "TEXT", "in a chat: the system prompt"},
        {0, "system-file", CLI_TEXT, &o.system_file, "F", "the same from a file"},
        {0, "chat-template", CLI_TEXT, &o.template_file, "F", "in a chat: use the template (Jinja) of this file"},
        {0, "chat-template-kwargs", CLI_TEXT, &o.template_variables, "J",
         "in a chat: further variables of the template, as JSON: '{\"enable_thinking\": false}'"},
        {0, "format", CLI_TEXT, &o.format, "F",
         "in a chat, for files without a template: chatml, llama2, llama3 or mistral"},
        {0, "reasoning", CLI_TEXT, &o.reasoning, "R",
         "in a chat: show or hide what the model thinks first (default: show on a terminal, else hide)"},
        {0, "tools", CLI_TEXT, &o.tools_file, "F",
         "in a chat: functions to offer, a JSON array; each call is printed as a line of JSON"},
        {0, "no-history", CLI_FLAG, &o.no_history, NULL, "in a chat: keep no file of the lines that are typed"},
        {0, "json", CLI_FLAG, &o.json, NULL, "the answer is a JSON object"},
        {0, "json-schema", CLI_TEXT, &o.schema_file, "F", "the answer is JSON that this JSON schema describes"},
        {0, "grammar", CLI_TEXT, &o.grammar_file, "F", "the answer follows this grammar (GBNF)"},
        {0, "regex", CLI_TEXT, &o.regex, "RE", "the answer matches this regular expression as a whole"},
        {0, "temp", CLI_TEXT, &o.temperature, "T",
         "temperature; 0 always takes the most likely token (default: 0.8)"},
        {0, "top-k", CLI_NUMBER, &o.top_k, "K", "sample from the K most likely tokens (default: 40; 0: all)"},
        {0, "top-p", CLI_TEXT, &o.top_p, "P",
         "sample from the most likely tokens that sum up to P (default: 0.95; 1: all)"},
        {0, "min-p", CLI_TEXT, &o.min_p, "P", "drop tokens less likely than P times the most likely (default: 0.05)"},
        {0, "repeat-penalty", CLI_TEXT, &o.penalty, "R", "penalty for tokens used before (default: 1, none)"},
        {0, "presence-penalty", CLI_TEXT, &o.presence, "P",
         "subtract P from logits of tokens used before (default: 0)"},
        {0, "frequency-penalty", CLI_TEXT, &o.frequency, "P",
         "subtract P for each time that one was used (default: 0)"},
        {0, "repeat-window", CLI_NUMBER, &o.window, "N", "apply penalties to the last N tokens (default: 64)"},
        {0, "seed", CLI_NUMBER, &o.seed, "S", "random seed; the same seed gives the same text (default: 1)"},
        {0, "stop", CLI_TEXTS, &o.stops, "TEXT",
         "end the answer at this text, which is not shown; may be given several times"},
        {0, "ignore-end", CLI_FLAG, &o.ignore_end, NULL, "keep generating after the model has finished"},
        {0, "parse-special", CLI_FLAG, &o.parse_special, NULL,
         "turn control tokens that are spelled out in the prompt into tokens"},
        {0, "stats", CLI_FLAG, &o.stats, NULL, "show device, placement and tokens per second on standard error"},
    };
    const struct cli_command command = {
        .name = "run",
        .usage = "-m M (-p TEXT | --file F | --chat) [-n N] [--temp T] [--seed S] [--device D] [--budget SPEC]",
        .summary =
            "Generates text with a model: continues a prompt, or answers in a chat. The exit status is 1 where an\n"
            "answer was cut and so does not follow --json, --json-schema, --grammar or --regex.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    const char **given = malloc((size_t)(argc + 1) * sizeof *given);
    if (!given) return cli_fail(CLI_FAILED, "run: no memory");
    for (int i = 0; i < argc; i++) given[i] = argv[i]; /* parsing reorders them */
    given[argc] = NULL;
    o.given = given;
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = model_check("run", &o.model);
    if (code == CLI_GO_ON && !o.prompt && !o.prompt_file && !o.chat)
        code = cli_fail(CLI_USAGE, "run: give a prompt with -p or --file, or use --chat: see rocmforge run --help");
    if (code == CLI_GO_ON) code = set_numbers(&o);
    o.model.stats = o.stats;
    int channel = code == CLI_GO_ON && o.model.in_worker ? cli_worker_channel() : -1;
    if (code == CLI_GO_ON && channel < 0) code = run_input_read(&o, &o.input);
    if (code == CLI_GO_ON) code = channel >= 0 ? run_worker_main(&o, channel) : run(&o);
    run_input_finish(&o.input);
    free(given);
    return code;
}
