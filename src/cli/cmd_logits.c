/* rocmforge logits: the logits of a model for some tokens, as raw numbers, for comparing engines. */
#include "model.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int parse_tokens(const char *text, int32_t **out, size_t *count) {
    size_t capacity = 1;
    for (const char *c = text; *c; c++) capacity += *c == ',';
    int32_t *tokens = malloc(capacity * sizeof *tokens);
    if (!tokens) return cli_fail(CLI_FAILED, "logits: no memory for %zu tokens", capacity);
    *count = 0;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 0 || value > INT32_MAX || (*end && *end != ',')) {
            free(tokens);
            return cli_fail(CLI_USAGE, "logits: --tokens: number %zu is not a token id: give them as 1,2,3",
                            *count + 1);
        }
        tokens[(*count)++] = (int32_t)value;
        if (!*end) break;
        at = end + 1;
    }
    *out = tokens;
    return CLI_GO_ON;
}

/* The file that the rows go to. It is made when the first of them come; if not all can be written, or something
 * fails after that, it is removed. A pipe or a terminal is never removed. */
struct rows {
    const char *path;
    FILE *file;
    bool is_file;
    int error; /* an errno; 0: all could be written */
};

static bool write_rows(void *user, const void *bytes, size_t count) {
    struct rows *rows = user;
    struct stat what;
    if (!rows->file) {
        rows->file = fopen(rows->path, "wbe");
        if (!rows->file) {
            rows->error = errno;
            cli_fail(CLI_FAILED, "logits: %s cannot be written: %s", rows->path, strerror(errno));
            return false;
        }
        rows->is_file = fstat(fileno(rows->file), &what) == 0 && S_ISREG(what.st_mode);
    }
    if (fwrite(bytes, 1, count, rows->file) != count) rows->error = errno;
    return !rows->error;
}

/* code: how making the rows ended. */
static int finish_rows(struct rows *rows, int code) {
    if (!rows->file) return rows->error ? CLI_FAILED : code;
    if (fclose(rows->file) != 0 && !rows->error) rows->error = errno;
    if ((rows->error || code != CLI_DONE) && rows->is_file) remove(rows->path);
    if (rows->error)
        return cli_fail(CLI_FAILED, "logits: %s could not be written: %s", rows->path, strerror(rows->error));
    return code;
}

/* Says so if some of a row are not numbers; -inf alone is a number here: a token that is never drawn. */
static int check_rows(const float *logits, size_t rows, size_t columns) {
    for (size_t row = 0; row < rows; row++) {
        size_t wrong = 0, lowest = 0;
        for (size_t i = 0; i < columns; i++) {
            wrong += !(logits[row * columns + i] <= FLT_MAX);
            lowest += logits[row * columns + i] == -INFINITY;
        }
        if (!wrong && lowest < columns) continue;
        return cli_fail(
            CLI_FAILED,
            "logits: position %zu: %zu of %zu logits are not numbers; the model file is damaged, or the "
            "device computes wrongly: get the file again, or try rocmforge selftest and --device cpu (%s)",
            row, wrong ? wrong : lowest, columns, rf_status_name(RF_E_CORRUPT));
    }
    return CLI_DONE;
}

/* rows: NULL in the worker, where they go to the command. */
static int run(const struct model_options *options, const int32_t *tokens, size_t count, struct rows *rows,
               int64_t chunk) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    RF_PARAMS(struct rf_engine_info, info);
    struct model_options sized = *options;
    if (!sized.context) sized.context = (int64_t)count;
    float *logits = NULL;
    int code = CLI_FAILED;
    rf_status status = model_open(&sized, &runtime, &engine);
    if (status) return cli_fail_status(status, "logits");
    status = rf_engine_get_info(engine, &info);
    if (!status) status = rf_session_create(engine, &session);
    if (!status) {
        logits = malloc(count * info.vocabulary * sizeof *logits);
        size_t step = chunk > 0 ? (size_t)chunk : count;
        for (size_t at = 0; at < count && logits && !status; at += step) {
            size_t some = count - at < step ? count - at : step;
            status = model_eval(engine, session, "evaluating the tokens", tokens + at, some, true,
                                logits + at * info.vocabulary);
        }
    }
    if (status)
        code = cli_fail_status(status, "logits");
    else if (!logits)
        code = cli_fail(CLI_FAILED, "logits: no memory for %zu rows of %u", count, info.vocabulary);
    else if ((code = check_rows(logits, count, info.vocabulary)) != CLI_DONE)
        ;
    else if (rows)
        code = write_rows(rows, logits, count * info.vocabulary * sizeof *logits) ? CLI_DONE : CLI_FAILED;
    else
        code = fwrite(logits, sizeof *logits, count * info.vocabulary, cli_out()) == count * info.vocabulary
                   ? CLI_DONE
                   : CLI_FAILED;
    free(logits);
    rf_session_destroy(&session);
    model_close(&runtime, &engine);
    return code;
}

int cmd_logits(int argc, char **argv) {
    struct model_options model = MODEL_DEFAULTS("f32");
    const char *tokens = NULL, *path = NULL;
    int64_t chunk = 0;
    const struct cli_option options[] = {
        MODEL_ROWS(model),
        {0, "tokens", CLI_TEXT, &tokens, "1,2,3", "the token ids"},
        {0, "out", CLI_TEXT, &path, "F", "the file to write"},
        {0, "stats", CLI_FLAG, &model.stats, NULL,
         "show the placement on standard error even if that is not a terminal"},
        {0, "chunk", CLI_NUMBER, &chunk, "N", "evaluate N tokens at a time (default: all at once)"},
    };
    const struct cli_command command = {
        .name = "logits",
        .usage = "-m M --tokens 1,2,3 --out F [--device D] [--kv f32] [--chunk N]",
        .summary =
            "Writes the logits of each position: little-endian f32, one row per token, as long as the vocabulary.\n"
            "The KV cache is f32 by default.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    char **given = malloc((size_t)(argc + 1) * sizeof *given);
    if (!given) return cli_fail(CLI_FAILED, "logits: no memory");
    memcpy(given, argv, (size_t)argc * sizeof *given); /* parsing reorders them */
    int given_count = argc, count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = model_check("logits", &model);
    if (code == CLI_GO_ON && (!tokens || !path))
        code = cli_fail(CLI_USAGE, "logits: --tokens and --out are needed: see rocmforge logits --help");
    int32_t *ids = NULL;
    size_t id_count = 0;
    if (code == CLI_GO_ON) code = parse_tokens(tokens, &ids, &id_count);
    if (code == CLI_GO_ON && cli_is_worker()) {
        code = run(&model, ids, id_count, NULL, chunk);
    } else if (code == CLI_GO_ON) {
        struct rows rows = {.path = path};
        const struct cli_job job = {.duty_percent = model.duty_percent, .output = write_rows, .user = &rows};
        code = model_wants_worker(&model) ? model_in_worker(given_count, given, job)
                                          : run(&model, ids, id_count, &rows, chunk);
        code = finish_rows(&rows, code);
    }
    free(ids);
    free(given);
    return code;
}
