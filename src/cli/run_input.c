/* What `rocmforge run` reads before it opens the model: prompts, the chat template, tools and grammars, from options,
 * files and standard input. All of it is read once, by the command: a pipe can be read only once, and a file may
 * change. What is wrong costs one line, before a model is loaded.
 *
 * A text ends with its file, less one newline, which editors and echo put there. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static int refuse(const char *option, const char *path, const char *what) {
    return cli_fail(CLI_USAGE, "run: %s %s: %s", option, path, what);
}

/* path: "-" is standard input. CLI_GO_ON, or the exit code after one line. */
static int read_text(const char *option, const char *path, char **out) {
    bool standard = !strcmp(path, "-");
    FILE *file = standard ? stdin : fopen(path, "rbe");
    const char *why = NULL;
    size_t bytes = 0;
    if (!file) return cli_fail(CLI_USAGE, "run: %s %s: it cannot be read: %s", option, path, strerror(errno));
    char *text = run_read_file(file, &bytes, &why);
    if (!standard) fclose(file);
    if (!text)
        return cli_fail(CLI_USAGE, "run: %s %s: it cannot be read: %s", option, standard ? "(standard input)" : path,
                        why);
    if (bytes && text[bytes - 1] == '\n') text[--bytes] = 0;
    size_t zero = strlen(text);
    if (zero < bytes) {
        free(text);
        return cli_fail(CLI_USAGE, "run: %s %s: byte %zu is zero: this is not a text", option, path, zero);
    }
    *out = text;
    return CLI_GO_ON;
}

static int need_utf8(const char *option, const char *path, const char *text) {
    size_t bytes = text ? strlen(text) : 0, at = run_first_bad_byte(text, bytes);
    if (at == bytes) return CLI_GO_ON;
    return cli_fail(CLI_USAGE, "run: %s%s%s: byte %zu is not UTF-8", option, path ? " " : "", path ? path : "", at);
}

/* ---- what was asked for ---- */

/* The text of the one option, or of the file that the other one names. */
static int take_text(const char *option, const char *given, const char *file_option, const char *path, bool dash,
                     bool utf8, char **out) {
    if (given && path) return cli_fail(CLI_USAGE, "run: give either %s or %s, not both", option, file_option);
    if (!given && !path) return CLI_GO_ON;
    if (given && dash && !strcmp(given, "-")) {
        path = given;
        file_option = option;
    }
    int code = CLI_GO_ON;
    if (path)
        code = read_text(file_option, path, out);
    else if (!(*out = strdup(given)))
        code = cli_fail(CLI_FAILED, "run: no memory");
    if (code == CLI_GO_ON && utf8) code = need_utf8(path ? file_option : option, path, *out);
    return code;
}

/* A grammar is made here too, only to see whether it is one. */
static int take_grammar(const struct run_options *options, struct run_input *input) {
    const struct {
        const char *option, *given;
        enum rf_grammar_kind kind;
        bool is_file;
    } ways[] = {{"--json", options->json ? "" : NULL, RF_GRAMMAR_JSON, false},
                {"--json-schema", options->schema_file, RF_GRAMMAR_JSON_SCHEMA, true},
                {"--grammar", options->grammar_file, RF_GRAMMAR_GBNF, true},
                {"--regex", options->regex, RF_GRAMMAR_REGEX, false}};
    size_t chosen = sizeof ways / sizeof ways[0];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (!ways[i].given) continue;
        if (chosen < i)
            return cli_fail(CLI_USAGE, "run: give either %s or %s, not both", ways[chosen].option, ways[i].option);
        chosen = i;
    }
    if (chosen == sizeof ways / sizeof ways[0]) return CLI_GO_ON;
    const char *given = ways[chosen].given, *option = ways[chosen].option;
    bool is_file = ways[chosen].is_file;
    int code =
        take_text(option, is_file ? NULL : given, option, is_file ? given : NULL, false, true, &input->grammar_text);
    if (code != CLI_GO_ON) return code;
    input->grammar = (struct run_grammar){
        .given = true, .kind = ways[chosen].kind, .text = input->grammar_text, .name = is_file ? given : NULL};
    struct rf_grammar *grammar = NULL;
    rf_status status = run_grammar_create(&input->grammar, NULL, &grammar);
    rf_grammar_destroy(&grammar);
    return status ? cli_fail(CLI_USAGE, "run: %s: %s (%s)", option, rf_error_text(), rf_status_name(status))
                  : CLI_GO_ON;
}

rf_status run_grammar_create(const struct run_grammar *wanted, struct rf_runtime *runtime, struct rf_grammar **out) {
    RF_PARAMS(struct rf_grammar_params, params);
    params.runtime = runtime;
    params.kind = wanted->kind;
    params.text = wanted->text;
    params.bytes = strlen(wanted->text);
    params.name = wanted->name;
    return rf_grammar_create(&params, out);
}

static int take_template(const struct run_options *options, struct run_input *input) {
    int code = take_text("", NULL, "--chat-template", options->template_file, false, true, &input->chat_template);
    if (code != CLI_GO_ON || !input->chat_template) return code;
    struct rf_chat_template *made = NULL;
    rf_status status = run_template_create(input->chat_template, options->template_file, &made);
    rf_chat_template_destroy(&made);
    return status ? cli_fail(CLI_USAGE, "run: --chat-template: %s (%s)", rf_error_text(), rf_status_name(status))
                  : CLI_GO_ON;
}

rf_status run_template_create(const char *source, const char *name, struct rf_chat_template **out) {
    RF_PARAMS(struct rf_chat_template_params, params);
    params.source = source;
    params.source_bytes = strlen(source);
    params.name = name;
    return rf_chat_template_create(&params, out);
}

static int take_format(const struct run_options *options, struct run_input *input) {
    if (!options->format) return CLI_GO_ON;
    for (int i = RF_CHAT_CHATML; i <= RF_CHAT_MISTRAL; i++)
        if (!strcmp(options->format, rf_chat_format_name((enum rf_chat_format)i)))
            input->format = (enum rf_chat_format)i;
    if (input->format == RF_CHAT_NONE)
        return refuse("--format", options->format, "the formats are chatml, llama2, llama3, mistral");
    if (options->template_file) return cli_fail(CLI_USAGE, "run: give either --format or --chat-template, not both");
    return CLI_GO_ON;
}

/* These options say something about a chat only. */
static int check_use(const struct run_options *options) {
    const struct {
        const char *option;
        bool given;
    } of_chat[] = {{"--system", options->system != NULL},
                   {"--system-file", options->system_file != NULL},
                   {"--format", options->format != NULL},
                   {"--chat-template", options->template_file != NULL},
                   {"--chat-template-kwargs", options->template_variables != NULL},
                   {"--tools", options->tools_file != NULL},
                   {"--reasoning", options->reasoning != NULL}};
    for (size_t i = 0; i < sizeof of_chat / sizeof of_chat[0] && !options->chat; i++)
        if (of_chat[i].given) return cli_fail(CLI_USAGE, "run: %s is for a chat: add --chat", of_chat[i].option);
    const char *reasoning = options->reasoning;
    if (reasoning && strcmp(reasoning, "show") != 0 && strcmp(reasoning, "hide") != 0)
        return refuse("--reasoning", reasoning, "must be show or hide");
    return CLI_GO_ON;
}

static int count_dashes(const struct run_options *options) {
    const char *const may_be_dash[] = {options->prompt,        options->prompt_file, options->system_file,
                                       options->template_file, options->tools_file,  options->schema_file,
                                       options->grammar_file};
    int count = 0;
    for (size_t i = 0; i < sizeof may_be_dash / sizeof may_be_dash[0]; i++)
        count += may_be_dash[i] && !strcmp(may_be_dash[i], "-");
    return count;
}

int run_input_read(const struct run_options *options, struct run_input *input) {
    *input = (struct run_input){0};
    int code = check_use(options);
    if (code == CLI_GO_ON) code = take_format(options, input);
    if (code == CLI_GO_ON && count_dashes(options) > 1)
        code = cli_fail(CLI_USAGE, "run: standard input can be read only once: \"-\" is given twice");
    if (code == CLI_GO_ON) code = take_grammar(options, input);
    if (code == CLI_GO_ON) code = take_template(options, input);
    if (code == CLI_GO_ON) code = take_text("", NULL, "--tools", options->tools_file, false, true, &input->tools);
    if (code == CLI_GO_ON) code = need_utf8("--chat-template-kwargs", NULL, options->template_variables);
    char why[CONVERSATION_WHY_BYTES];
    if (code == CLI_GO_ON && options->chat &&
        !conversation_begin(&input->conversation, input->tools, options->template_variables, why))
        code = cli_fail(CLI_USAGE, "run: %s: %s",
                        !options->tools_file           ? "--chat-template-kwargs"
                        : !options->template_variables ? options->tools_file
                                                       : "--tools or --chat-template-kwargs",
                        why);
    if (code == CLI_GO_ON)
        code = take_text("--system", options->system, "--system-file", options->system_file, false, true,
                         &input->system);
    /* Last: it may be typed. A text that is continued may be of any bytes. */
    if (code == CLI_GO_ON)
        code = take_text("-p", options->prompt, "--file", options->prompt_file, true, options->chat, &input->prompt);
    input->read_standard = count_dashes(options) > 0;
    if (code == CLI_GO_ON && input->system && !conversation_set_system(&input->conversation, input->system))
        code = cli_fail(CLI_FAILED, "run: no memory");
    return code;
}

void run_input_finish(struct run_input *input) {
    conversation_finish(&input->conversation);
    free(input->prompt);
    free(input->system);
    free(input->chat_template);
    free(input->tools);
    free(input->grammar_text);
    *input = (struct run_input){0};
}
