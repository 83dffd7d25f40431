/* rocmforge template: renders a conversation with a chat template.
 *
 * Standard output holds exactly the bytes of the prompt, or with --marks one line for each run of bytes with the same
 * mark, and nothing else. No device is opened. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <rocmforge/chat.h>
#include <rocmforge/model.h>

enum { FILE_BYTES_MAX = 16 << 20 };

struct request {
    const char *model, *file, *conversation, *name, *now;
    bool marks;
};

/* Reads a whole file, or standard input for "-". NULL: it failed, and a line on standard error says why. */
static char *read_file(const char *path, size_t *bytes) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    struct stat about;
    const char *why = file ? NULL : strerror(errno);
    char *text = file ? malloc(FILE_BYTES_MAX + 1) : NULL;
    if (file && fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode)) why = strerror(EISDIR);
    if (!why && !text) why = "there is no memory for it";
    if (!why) {
        *bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
        why = ferror(file) ? strerror(errno) : *bytes > FILE_BYTES_MAX ? "it is larger than 16 MiB" : NULL;
    }
    if (file && !standard) fclose(file);
    if (!why) return text;
    cli_fail(CLI_FAILED, "template: %s cannot be read: %s", path, why);
    free(text);
    return NULL;
}

/* The text of a token that a model's file names; NULL: it names none. The caller frees it. */
static char *token_text(const struct rf_gguf *gguf, const char *key) {
    RF_PARAMS(struct rf_gguf_metadata, id);
    RF_PARAMS(struct rf_gguf_metadata, token);
    if (rf_gguf_metadata_find(gguf, key, &id)) return NULL;
    if (rf_gguf_metadata_element(gguf, "tokenizer.ggml.tokens", id.uint_value, &token) ||
        token.type != RF_GGUF_STRING)
        return NULL;
    return strndup(token.text, token.text_bytes);
}

static void show_marks(const struct rf_chat_prompt *prompt) {
    for (size_t from = 0, to; from < prompt->bytes; from = to) {
        for (to = from; to < prompt->bytes && prompt->own[to] == prompt->own[from]; to++) {
        }
        printf("%s \"", prompt->own[from] ? "template    " : "conversation");
        for (size_t i = from; i < to; i++) {
            unsigned char c = (unsigned char)prompt->text[i];
            if (c == '"' || c == '\\')
                printf("\\%c", c);
            else if (c == '\n')
                printf("\\n");
            else if (c < 0x20 || c == 0x7f)
                printf("\\u%04x", c);
            else
                putchar(c);
        }
        printf("\"\n");
    }
}

static rf_status render(const struct request *request, const struct rf_chat_template_params *made,
                        struct rf_chat_params *params) {
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_prompt, prompt);
    rf_status status = rf_chat_template_create(made, &chat_template);
    if (!status) status = rf_chat_render(chat_template, params, &prompt);
    if (!status && request->marks)
        show_marks(&prompt);
    else if (!status)
        fwrite(prompt.text, 1, prompt.bytes, stdout);
    rf_chat_prompt_finish(&prompt);
    rf_chat_template_destroy(&chat_template);
    return status;
}

static int run(const struct request *request) {
    struct rf_gguf *gguf = NULL;
    char *source = NULL, *bos = NULL, *eos = NULL, *conversation;
    RF_PARAMS(struct rf_chat_template_params, made);
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_gguf_metadata, found);
    int code = CLI_GO_ON;
    conversation = read_file(request->conversation, &params.conversation_bytes);
    if (!conversation) return CLI_FAILED;
    made.name = request->file ? request->file : request->model;
    if (request->file) {
        made.source = source = read_file(request->file, &made.source_bytes);
        if (!source) code = CLI_FAILED;
    } else {
        rf_status status = rf_gguf_open(request->model, &gguf);
        if (status) {
            code = cli_fail_status(status, "template");
        } else if (rf_gguf_metadata_find(gguf, "tokenizer.chat_template", &found) || found.type != RF_GGUF_STRING) {
            code = cli_fail(CLI_FAILED, "template: %s holds no chat template: give one with --file", request->model);
        } else {
            made.source = found.text;
            made.source_bytes = found.text_bytes;
            bos = token_text(gguf, "tokenizer.ggml.bos_token_id");
            eos = token_text(gguf, "tokenizer.ggml.eos_token_id");
        }
    }
    if (code == CLI_GO_ON) {
        params.conversation = conversation;
        params.conversation_name = request->name;
        params.bos = request->file ? "<s>" : bos;
        params.eos = request->file ? "</s>" : eos;
        params.now = request->now;
        rf_status status = render(request, &made, &params);
        code = status ? cli_fail_status(status, "template") : CLI_DONE;
    }
    rf_gguf_close(&gguf);
    free(source);
    free(bos);
    free(eos);
    free(conversation);
    return code;
}

int cmd_template(int argc, char **argv) {
    struct request request = {0};
    const struct cli_option options[] = {
        {'m', "model", CLI_TEXT, &request.model, "M", "the model, a GGUF file with a chat template"},
        {0, "file", CLI_TEXT, &request.file, "T", "a file with a chat template instead; - for standard input"},
        {0, "case", CLI_TEXT, &request.conversation, "CASE",
         "a JSON file with messages, tools and further variables; - for standard input"},
        {0, "name", CLI_TEXT, &request.name, "NAME", "if that file holds a list: the one with this name"},
        {0, "now", CLI_TEXT, &request.now, "TIME", "the time that the template sees: 2026-07-26T12:30"},
        {0, "marks", CLI_FLAG, &request.marks, NULL, "show which bytes are the template's own, a line for each run"},
    };
    const struct cli_command command = {
        .name = "template",
        .usage = "(-m M | --file T) --case CASE [--name NAME] [--now TIME] [--marks]",
        .summary = "Shows the prompt that a chat template makes of a conversation, byte for byte.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    if (!request.model == !request.file)
        return cli_fail(CLI_USAGE, "template: give either -m or --file: see rocmforge template --help");
    if (!request.conversation)
        return cli_fail(CLI_USAGE, "template: no conversation given: name one with --case CASE.json");
    if (request.file && strcmp(request.file, "-") == 0 && strcmp(request.conversation, "-") == 0)
        return cli_fail(CLI_USAGE, "template: --file and --case cannot both be standard input");
    return run(&request);
}
