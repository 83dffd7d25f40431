/* rocmforge bench: how fast a model evaluates a prompt and generates tokens on this machine. */
#include "model.h"
#include "placement.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPTS_MAX = 8 };

/* What is measured. */
struct plan {
    int64_t prompts[PROMPTS_MAX]; /* tokens of each; 0: none */
    size_t prompt_count;
    int64_t answer, depth, rounds;
};

/* Tokens per second, of each round: of a prompt, and of the tokens generated after the first one. */
struct figures {
    double *prompt[PROMPTS_MAX], *answer;
    uint32_t chunk[PROMPTS_MAX]; /* how many tokens of the prompt were evaluated at a time */
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

static void fill_tokens(int32_t *tokens, size_t count, uint32_t vocabulary) {
    uint64_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % vocabulary);
    }
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
           (long long)(answer->tokens < answer->of ? answer->tokens : answer->of), (long long)answer->of);
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
static rf_status round_once(const struct rf_engine *engine, struct rf_session *session,
                            const struct rf_engine_info *info, size_t number, int64_t depth, int64_t prompt,
                            int64_t answer, double *prompt_rate, double *answer_rate) {
    size_t count = (size_t)(depth > prompt ? depth : prompt) + 1;
    int32_t *tokens = malloc(count * sizeof *tokens);
    if (!tokens) return RF_E_NO_MEMORY;
    char reading[64];
    snprintf(reading, sizeof reading, "round %zu, evaluating the prompt", number);
    fill_tokens(tokens, count, info->vocabulary);
    rf_status status = rf_session_rewind(session, 0);
    if (!status && depth) status = model_eval(engine, session, reading, tokens, (size_t)depth, false, NULL);
    if (!status && prompt) {
        double start = seconds_now();
        status = model_eval(engine, session, reading, tokens, (size_t)prompt, false, NULL);
        *prompt_rate = (double)prompt / (seconds_now() - start);
    }
    if (!status && !prompt && !depth) status = model_eval(engine, session, reading, tokens, 1, false, NULL);
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

/* All rounds, of one prompt after the other. */
static rf_status measure(const struct plan *plan, const struct rf_engine *engine, struct rf_session *session,
                         const struct rf_engine_info *info, struct figures *figures) {
    rf_status status = RF_OK;
    size_t number = 0;
    for (size_t p = 0; p < plan->prompt_count && !status; p++) {
        int64_t prompt = plan->prompts[p], answer = p ? 0 : plan->answer;
        RF_PARAMS(struct rf_engine_info, now);
        double ignored;
        /* First rounds are not counted: they include what is set up at first use. A prompt is read in longer chunks
         * after the first round, and those are set up in the second. */
        for (int r = 0; r < 2 && !status; r++)
            status = round_once(engine, session, info, number, plan->depth, prompt, answer < 2 ? answer : 2, &ignored,
                                &ignored);
        for (size_t r = 0; r < (size_t)plan->rounds && !status; r++)
            status = round_once(engine, session, info, ++number, plan->depth, prompt, answer, &figures->prompt[p][r],
                                &figures->answer[r]);
        if (!status) status = rf_engine_get_info(engine, &now);
        if (!status) figures->chunk[p] = prompt < now.batch ? (uint32_t)prompt : now.batch;
    }
    return status;
}

static void show_json(const struct plan *plan, const struct rf_engine_info *info, const char *notice,
                      const double *read, double wrote, const struct figures *figures) {
    struct rf_json out;
    rf_json_begin_file(&out, cli_out(), RF_JSON_LINES);
    rf_json_open_object(&out, NULL);
    rf_json_text(&out, "model", info->name);
    rf_json_text(&out, "device", info->device);
    rf_json_uint(&out, "parameters", info->parameter_count);
    rf_json_uint(&out, "weight_bytes", info->weight_bytes);
    rf_json_uint(&out, "layers", info->layers);
    rf_json_uint(&out, "gpu_layers", info->device_layers);
    rf_json_int(&out, "depth", plan->depth);
    rf_json_int(&out, "prompt_tokens", plan->prompts[0]);
    rf_json_double(&out, "prompt_tokens_per_s", read[0]);
    rf_json_open_array(&out, "prompts");
    for (size_t p = 0; p < plan->prompt_count; p++) {
        rf_json_open_object(&out, NULL);
        rf_json_int(&out, "tokens", plan->prompts[p]);
        rf_json_uint(&out, "tokens_at_a_time", figures->chunk[p]);
        rf_json_double(&out, "tokens_per_s", read[p]);
        rf_json_close(&out);
    }
    rf_json_close(&out);
    rf_json_int(&out, "answer_tokens", plan->answer);
    rf_json_double(&out, "answer_tokens_per_s", wrote);
    rf_json_int(&out, "rounds", plan->rounds);
    placement_json(&out, info, notice);
    rf_json_close(&out);
    rf_json_end(&out);
}

static void show(const struct plan *plan, const struct rf_engine_info *info, const char *notice,
                 const struct figures *figures, bool json) {
    double read[PROMPTS_MAX], wrote = median(figures->answer, (size_t)plan->rounds);
    for (size_t p = 0; p < plan->prompt_count; p++) read[p] = median(figures->prompt[p], (size_t)plan->rounds);
    if (json) {
        show_json(plan, info, notice, read, wrote, figures);
        return;
    }
    bool billions = info->parameter_count >= 1000000000;
    fprintf(cli_out(), "%s: %s, %.2f %s parameters, %s; %u of %u layers on a GPU\n", info->device,
            info->name[0] ? info->name : info->architecture, (double)info->parameter_count * (billions ? 1e-9 : 1e-6),
            billions ? "billion" : "million", cli_bytes(info->weight_bytes), info->device_layers, info->layers);
    for (size_t p = 0; p < plan->prompt_count; p++)
        if (plan->prompts[p])
            fprintf(cli_out(), "prompt  %6lld tokens  %10.1f tokens/s  %u at a time\n", (long long)plan->prompts[p],
                    read[p], figures->chunk[p]);
    if (plan->answer)
        fprintf(cli_out(), "answer  %6lld tokens  %10.1f tokens/s  after %lld\n", (long long)plan->answer, wrote,
                (long long)(plan->depth + plan->prompts[0]));
    fprintf(cli_out(), "medians of %lld rounds\n", (long long)plan->rounds);
}

static int run(const struct model_options *options, const struct plan *plan, bool json) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    RF_PARAMS(struct rf_engine_info, info);
    struct model_options sized = *options;
    struct figures figures = {.answer = NULL};
    int64_t longest = plan->prompts[0] + plan->answer;
    double *all = calloc((plan->prompt_count + 1) * (size_t)plan->rounds, sizeof *all);
    if (!all) return cli_fail(CLI_FAILED, "bench: no memory");
    figures.answer = all;
    for (size_t p = 0; p < plan->prompt_count; p++) {
        figures.prompt[p] = all + (p + 1) * (size_t)plan->rounds;
        if (plan->prompts[p] > longest) longest = plan->prompts[p];
    }
    if (!sized.context) sized.context = plan->depth + longest + 1;
    rf_status status = model_open(&sized, &runtime, &engine);
    if (!status) status = rf_engine_get_info(engine, &info);
    if (!status) status = rf_session_create(engine, &session);
    if (!status) status = measure(plan, engine, session, &info, &figures);
    int code = status ? cli_fail_status(status, "bench") : CLI_DONE;
    if (!status) show(plan, &info, rf_engine_notice(engine), &figures, json);
    free(all);
    rf_session_destroy(&session);
    if (engine) model_close(&runtime, &engine);
    return code;
}

/* "512,4096". False: it is no list of numbers of tokens. */
static bool parse_prompts(const char *text, struct plan *plan) {
    for (plan->prompt_count = 0; plan->prompt_count < PROMPTS_MAX;) {
        char *end;
        if (*text < '0' || *text > '9') return false;
        long long tokens = strtoll(text, &end, 10);
        if (tokens > 1 << 24 || (*end && *end != ',')) return false;
        plan->prompts[plan->prompt_count++] = tokens;
        if (!*end) return true;
        text = end + 1;
    }
    return false;
}

int cmd_bench(int argc, char **argv) {
    struct model_options model = MODEL_DEFAULTS("f16");
    struct plan plan = {.answer = 128, .rounds = 5};
    const char *prompts = "512";
    bool json = false;
    const struct cli_option options[] = {
        MODEL_ROWS(model),
        {'p', "prompt", CLI_TEXT, &prompts, "N[,N]",
         "tokens in the prompt (default: 512; 0: none); several, such as 512,4096, are measured in turn, and the "
         "answer follows the first"},
        {'n', "tokens", CLI_NUMBER, &plan.answer, "N", "tokens to generate (default: 128; 0: none)"},
        {'d', "depth", CLI_NUMBER, &plan.depth, "N", "tokens in the KV cache beforehand (default: 0)"},
        {'r', "rounds", CLI_NUMBER, &plan.rounds, "N", "rounds; the median is shown (default: 5)"},
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
    if (code == CLI_GO_ON && !parse_prompts(prompts, &plan))
        code =
            cli_fail(CLI_USAGE, "bench: -p %s: must be 1 to %d numbers of tokens, such as 512,4096, each at most %d",
                     prompts, PROMPTS_MAX, 1 << 24);
    if (code == CLI_GO_ON && (!plan.rounds || plan.rounds > 1000 || (!plan.prompts[0] && !plan.answer) ||
                              plan.depth > 1 << 24 || plan.answer > 1 << 24))
        code = cli_fail(CLI_USAGE, "bench: needs 1 to 1000 rounds of at least one token: see rocmforge bench --help");
    if (code == CLI_GO_ON)
        code = model_wants_worker(&model)
                   ? model_in_worker(given_count, given, (struct cli_job){.duty_percent = model.duty_percent})
                   : run(&model, &plan, json);
    free(given);
    return code;
}
