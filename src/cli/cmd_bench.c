/* rocmforge bench: how fast a model evaluates a prompt and generates tokens on this machine. */
#include "model.h"
#include "placement.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct figures {
    double *prompt, *answer; /* tokens per second, one for each round */
    size_t count;
};

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return count ? values[count / 2] : 0;
}

/* The generation that is under way, for its callback. */
struct answer {
    size_t round;
    int64_t tokens, of;
    int32_t last;
    const struct rf_engine_info *info;
};
static bool count_token(void *user, int32_t token) {
    struct answer *answer = user;
    answer->last = token;
    answer->tokens++;
    cli_at(model_work(answer->info), "round %zu, generating token %lld of %lld", answer->round,
           (long long)answer->tokens + 1, (long long)answer->of);
    return true;
}
/* Generates this many tokens after the one that the prompt gives, as rf_session_generate does for everyone. */
static rf_status generate(struct rf_session *session, const struct rf_engine_info *info, size_t number,
                          int64_t count) {
    struct answer answer = {.round = number, .of = count, .info = info};
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    params.max_tokens = (uint32_t)count + 1;
    params.ignore_end = true;
    params.token = count_token;
    params.user = &answer;
    cli_at(model_work(info), "round %zu, generating token 1 of %lld", number, (long long)count);
    rf_status status = rf_session_generate(session, &params, &result);
    /* A context that is too small is an error here: the one that evaluating the next token gives. */
    if (!status && answer.tokens <= count) status = rf_session_eval(session, &answer.last, 1, false, NULL);
    return status;
}

/* One round: a prompt of 'depth' tokens that is not timed, one that is, then tokens one by one. */
static rf_status round_once(struct rf_session *session, const struct rf_engine_info *info, size_t number,
                            int64_t depth, int64_t prompt, int64_t answer, double *prompt_rate, double *answer_rate) {
    size_t count = (size_t)(depth > prompt ? depth : prompt) + 1;
    int32_t *tokens = malloc(count * sizeof *tokens);
    if (!tokens) return RF_E_NO_MEMORY;
    char reading[64];
    snprintf(reading, sizeof reading, "round %zu, evaluating the prompt", number);
    uint64_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % info->vocabulary);
    }
    rf_status status = rf_session_rewind(session, 0);
    if (!status && depth) status = model_eval(session, info, reading, tokens, (size_t)depth, false, NULL);
    if (!status && prompt) {
        double start = seconds_now();
        status = model_eval(session, info, reading, tokens, (size_t)prompt, false, NULL);
        *prompt_rate = (double)prompt / (seconds_now() - start);
    }
    if (!status && !prompt && !depth) status = model_eval(session, info, reading, tokens, 1, false, NULL);
    if (!status && answer) {
        double start = seconds_now();
        status = generate(session, info, number, answer);
        *answer_rate = (double)answer / (seconds_now() - start);
    }
    int32_t ignored;
    if (!status) status = rf_session_sample(session, NULL, &ignored); /* fails if the logits are not numbers */
    free(tokens);
    return status;
}

static void show(const struct rf_engine_info *info, const char *notice, struct figures *figures, int64_t depth,
                 int64_t prompt, int64_t answer, bool json) {
    double read = median(figures->prompt, figures->count), wrote = median(figures->answer, figures->count);
    if (json) {
        struct rf_json out;
        rf_json_begin_file(&out, cli_out(), RF_JSON_LINES);
        rf_json_open_object(&out, NULL);
        rf_json_text(&out, "model", info->name);
        rf_json_text(&out, "device", info->device);
        rf_json_uint(&out, "parameters", info->parameter_count);
        rf_json_uint(&out, "weight_bytes", info->weight_bytes);
        rf_json_uint(&out, "layers", info->layers);
        rf_json_uint(&out, "gpu_layers", info->device_layers);
        rf_json_int(&out, "depth", depth);
        rf_json_int(&out, "prompt_tokens", prompt);
        rf_json_double(&out, "prompt_tokens_per_s", read);
        rf_json_int(&out, "answer_tokens", answer);
        rf_json_double(&out, "answer_tokens_per_s", wrote);
        rf_json_uint(&out, "rounds", figures->count);
        placement_json(&out, info, notice);
        rf_json_close(&out);
        rf_json_end(&out);
        return;
    }
    bool billions = info->parameter_count >= 1000000000;
    fprintf(cli_out(), "%s: %s, %.2f %s parameters, %s; %u of %u layers on a GPU\n", info->device,
            info->name[0] ? info->name : info->architecture, (double)info->parameter_count * (billions ? 1e-9 : 1e-6),
            billions ? "billion" : "million", cli_bytes(info->weight_bytes), info->device_layers, info->layers);
    if (prompt) fprintf(cli_out(), "prompt  %6lld tokens  %10.1f tokens/s\n", (long long)prompt, read);
    if (answer)
        fprintf(cli_out(), "answer  %6lld tokens  %10.1f tokens/s  after %lld\n", (long long)answer, wrote,
                (long long)(depth + prompt));
    fprintf(cli_out(), "medians of %zu rounds\n", figures->count);
}

static int run(const struct model_options *options, int64_t depth, int64_t prompt, int64_t answer, int64_t rounds,
               bool json) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    RF_PARAMS(struct rf_engine_info, info);
    struct model_options sized = *options;
    struct figures figures = {.prompt = calloc((size_t)rounds, sizeof(double)),
                              .answer = calloc((size_t)rounds, sizeof(double))};
    if (!sized.context) sized.context = depth + prompt + answer + 1;
    if (!figures.prompt || !figures.answer) {
        free(figures.prompt);
        free(figures.answer);
        return cli_fail(CLI_FAILED, "bench: no memory");
    }
    rf_status status = model_open(&sized, &runtime, &engine);
    if (!status) status = rf_engine_get_info(engine, &info);
    if (!status) status = rf_session_create(engine, &session);
    double ignored;
    /* A first round is not counted: it includes what is set up at first use. */
    if (!status) status = round_once(session, &info, 0, depth, prompt, answer < 2 ? answer : 2, &ignored, &ignored);
    for (; figures.count < (size_t)rounds && !status; figures.count++)
        status = round_once(session, &info, figures.count + 1, depth, prompt, answer, &figures.prompt[figures.count],
                            &figures.answer[figures.count]);
    int code = status ? cli_fail_status(status, "bench") : CLI_DONE;
    if (!status) show(&info, rf_engine_notice(engine), &figures, depth, prompt, answer, json);
    free(figures.prompt);
    free(figures.answer);
    rf_session_destroy(&session);
    if (engine) model_close(&runtime, &engine);
    return code;
}

int cmd_bench(int argc, char **argv) {
    struct model_options model = MODEL_DEFAULTS("f16");
    int64_t prompt = 512, answer = 128, rounds = 5, depth = 0;
    bool json = false;
    const struct cli_option options[] = {
        MODEL_ROWS(model),
        {'p', "prompt", CLI_NUMBER, &prompt, "N", "tokens in the prompt (default: 512; 0: none)"},
        {'n', "tokens", CLI_NUMBER, &answer, "N", "tokens to generate (default: 128; 0: none)"},
        {'d', "depth", CLI_NUMBER, &depth, "N", "tokens in the KV cache beforehand (default: 0)"},
        {'r', "rounds", CLI_NUMBER, &rounds, "N", "rounds; the median is shown (default: 5)"},
        {0, "json", CLI_FLAG, &json, NULL, "write JSON, with the placement, to standard output"},
        {0, "stats", CLI_FLAG, &model.stats, NULL,
         "show the placement on standard error even if that is not a terminal"},
    };
    const struct cli_command command = {
        .name = "bench",
        .usage = "-m M [-p 512] [-n 128] [-r 5] [-d 0] [--device D] [--json]",
        .summary = "Measures tokens per second: evaluating a prompt, and generating.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    char **given = malloc((size_t)(argc + 1) * sizeof *given);
    if (!given) return cli_fail(CLI_FAILED, "bench: no memory");
    memcpy(given, argv, (size_t)argc * sizeof *given); /* parsing reorders them */
    int given_count = argc, count, code = cli_parse(&command, argc, argv, &count);
    if (code == CLI_GO_ON) code = model_check("bench", &model);
    if (code == CLI_GO_ON &&
        (!rounds || rounds > 1000 || (!prompt && !answer) || prompt > 1 << 24 || depth > 1 << 24 || answer > 1 << 24))
        code = cli_fail(CLI_USAGE, "bench: needs 1 to 1000 rounds of at least one token: see rocmforge bench --help");
    if (code == CLI_GO_ON)
        code = model_wants_worker(&model)
                   ? model_in_worker(given_count, given, (struct cli_job){.duty_percent = model.duty_percent})
                   : run(&model, depth, prompt, answer, rounds, json);
    free(given);
    return code;
}
