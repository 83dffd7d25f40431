/* rocmforge tokenize, rocmforge detokenize: text to token ids and back, with the vocabulary of a model.
 *
 * Standard output holds the ids, or exactly the bytes that they stand for, and nothing else. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rocmforge/tokenizer.h>

/* Reads a whole file, or standard input for "-". NULL: it failed, and a line on standard error says why. */
static char *read_all(const char *command, const char *path, size_t *bytes) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    size_t capacity = 1 << 16, count = 0;
    char *text = file ? malloc(capacity) : NULL;
    struct stat about;
    if (!file || (fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode))) {
        cli_fail(CLI_FAILED, "%s: %s cannot be read: %s", command, path, strerror(file ? EISDIR : errno));
        if (file && !standard) fclose(file);
        free(text);
        return NULL;
    }
    while (text) {
        count += fread(text + count, 1, capacity - count, file);
        if (count < capacity) break;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    if (!text)
        cli_fail(CLI_FAILED, "%s: no memory for %s", command, path);
    else if (ferror(file)) {
        cli_fail(CLI_FAILED, "%s: %s cannot be read: %s", command, path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (!standard) fclose(file);
    *bytes = count;
    return text;
}

/* A model must be named, and the input must be given in one of two ways. */
static int check_given(const char *command, const char *model, const char *inlined, const char *file,
                       const char *inlined_name) {
    if (!model)
        return cli_fail(CLI_USAGE, "%s: no model given: name one with -m M.gguf; see rocmforge %s --help", command,
                        command);
    if (!inlined == !file)
        return cli_fail(CLI_USAGE, "%s: give either %s or --file: see rocmforge %s --help", command, inlined_name,
                        command);
    return CLI_GO_ON;
}

static int show_ids(const char *model, const char *text, size_t bytes, const struct rf_encode_params *params) {
    struct rf_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    rf_status status = rf_tokenizer_open(model, &tokenizer);
    if (!status) status = rf_tokenizer_encode(tokenizer, text, bytes, params, &ids, &count);
    int code = status ? cli_fail_status(status, "tokenize") : CLI_DONE;
    if (!status) {
        for (size_t i = 0; i < count; i++) printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
    }
    rf_token_ids_destroy(&ids);
    rf_tokenizer_destroy(&tokenizer);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    const char *model = NULL, *text = NULL, *path = NULL;
    RF_PARAMS(struct rf_encode_params, params);
    const struct cli_option options[] = {
        {'m', "model", CLI_TEXT, &model, "M", "the model, a GGUF file with a vocabulary"},
        {0, "text", CLI_TEXT, &text, "T", "the text"},
        {0, "file", CLI_TEXT, &path, "F", "a file with the text, read byte for byte; - for standard input"},
        {0, "no-bos", CLI_FLAG, &params.no_bos, NULL, "add no beginning token, even if the model wants one"},
        {0, "no-eos", CLI_FLAG, &params.no_eos, NULL, "add no end token, even if the model wants one"},
        {0, "parse-special", CLI_FLAG, &params.parse_special, NULL,
         "turn control tokens that are spelled out in the text into tokens"},
    };
    const struct cli_command command = {
        .name = "tokenize",
        .usage = "-m M (--text T | --file F) [--no-bos] [--no-eos] [--parse-special]",
        .summary = "Shows the token ids of a text, on one line.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = check_given("tokenize", model, text, path, "--text");
    if (code != CLI_GO_ON) return code;
    if (text) return show_ids(model, text, strlen(text), &params);
    size_t bytes = 0;
    char *read = read_all("tokenize", path, &bytes);
    if (!read) return CLI_FAILED;
    code = show_ids(model, read, bytes, &params);
    free(read);
    return code;
}

/* ---- detokenize ---- */

/* Parses numbers separated by commas or white space. The caller frees the list. */
static int parse_ids(const char *text, size_t bytes, const char *where, int32_t **ids, size_t *count) {
    static const char between[] = ", \t\r\n";
    size_t capacity = 0, used = 0;
    int32_t *list = NULL;
    for (size_t at = 0; at < bytes;) {
        if (text[at] && strchr(between, text[at])) {
            at++;
            continue;
        }
        size_t start = at;
        int64_t value = 0;
        for (; at < bytes && text[at] >= '0' && text[at] <= '9'; at++)
            if (value <= INT32_MAX) value = value * 10 + (text[at] - '0');
        bool ended = at == bytes || (text[at] && strchr(between, text[at]));
        if (at == start || !ended || value > INT32_MAX) {
            size_t length = 0; /* of what is shown: printable characters, at most 24 */
            while (length < 24 && start + length < bytes && (unsigned char)text[start + length] > ' ' &&
                   (unsigned char)text[start + length] < 0x7f && text[start + length] != ',')
                length++;
            free(list);
            return cli_fail(CLI_USAGE,
                            "detokenize: \"%.*s\" in %s is not a token id: write whole numbers, separated by commas",
                            (int)length, text + start, where);
        }
        if (used == capacity) {
            int32_t *grown = realloc(list, (capacity = capacity ? 2 * capacity : 64) * sizeof *list);
            if (!grown) {
                free(list);
                return cli_fail(CLI_FAILED, "detokenize: no memory for %zu ids", capacity);
            }
            list = grown;
        }
        list[used++] = (int32_t)value;
    }
    *ids = list;
    *count = used;
    return CLI_GO_ON;
}

static int show_text(const char *model, const int32_t *ids, size_t count, const struct rf_decode_params *params) {
    struct rf_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes = 0;
    rf_status status = rf_tokenizer_open(model, &tokenizer);
    if (!status) status = rf_tokenizer_decode(tokenizer, ids, count, params, &text, &bytes);
    int code = status ? cli_fail_status(status, "detokenize") : CLI_DONE;
    if (!status) {
        fwrite(text, 1, bytes, stdout);
        if (isatty(STDOUT_FILENO)) putchar('\n');
    }
    rf_text_destroy(&text);
    rf_tokenizer_destroy(&tokenizer);
    return code;
}

int cmd_detokenize(int argc, char **argv) {
    const char *model = NULL, *list = NULL, *path = NULL;
    RF_PARAMS(struct rf_decode_params, params);
    const struct cli_option options[] = {
        {'m', "model", CLI_TEXT, &model, "M", "the model, a GGUF file with a vocabulary"},
        {0, "ids", CLI_TEXT, &list, "IDS", "token ids, separated by commas or spaces"},
        {0, "file", CLI_TEXT, &path, "F", "a file with token ids, as tokenize writes it; - for standard input"},
        {0, "special", CLI_FLAG, &params.show_special, NULL, "also write control tokens, as their text"},
    };
    const struct cli_command command = {
        .name = "detokenize",
        .usage = "-m M (--ids 1,2,3 | --file F) [--special]",
        .summary =
            "Writes the text that token ids stand for, byte for byte; a newline is added only on a terminal.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = check_given("detokenize", model, list, path, "--ids");
    if (code != CLI_GO_ON) return code;
    size_t bytes = list ? strlen(list) : 0, id_count = 0;
    int32_t *ids = NULL;
    char *read = list ? NULL : read_all("detokenize", path, &bytes);
    if (!list && !read) return CLI_FAILED;
    code = parse_ids(list ? list : read, bytes, list ? "--ids" : path, &ids, &id_count);
    free(read);
    if (code == CLI_GO_ON) code = show_text(model, ids, id_count, &params);
    free(ids);
    return code;
}
