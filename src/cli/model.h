/* What the commands that run a model share: its options, opening it, and running in a worker. */
#ifndef RF_CLI_MODEL_H
#define RF_CLI_MODEL_H

#include "cli.h"

#include <rocmforge/infer.h>

struct model_options {
    const char *model, *device, *budget, *host_budget, *kv, *simd;
    int64_t context, layers, threads, batch, sessions, duty_percent, kernel_ms;
    bool in_worker, no_replay;
    bool stats;         /* show the placement even if standard error is not a terminal */
    bool quiet;         /* text stands on the terminal already: no progress, and the placement only with 'stats' */
    bool is_run_worker; /* the worker of `run`, which leaves it to the command to say that the model file was lost */
    bool plan_only;     /* load nothing and print nothing: only find out what would be placed where */
};
#define MODEL_DEFAULTS(kv_) {.device = "auto", .kv = (kv_)}
/* The rows of a command's option table. */
#define MODEL_ROWS(o)                                                                                                \
    {'m', "model", CLI_TEXT, &(o).model, "M", "the model, a GGUF file"},                                             \
        {0, "device", CLI_TEXT, &(o).device, "D", "auto, cpu, gpu, an index or part of a name (default: auto)"},     \
        {0, "budget", CLI_TEXT, &(o).budget, "SPEC", "GPU memory: 70%, 12GiB or keep=2GiB (default: RF_BUDGET)"},    \
        {0, "host-budget", CLI_TEXT, &(o).host_budget, "SPEC", "host memory, likewise (default: RF_HOST_BUDGET)"},   \
        {0, "ctx", CLI_NUMBER, &(o).context, "N", "context length in tokens (default: the model's if it fits)"},     \
        {0, "kv", CLI_TEXT, &(o).kv, "TYPE", "type of the KV cache: f16, f32 or q8_0"},                              \
        {0, "gpu-layers", CLI_NUMBER, &(o).layers, "N", "run the last N layers on the GPU (default: all that fit)"}, \
        {0, "threads", CLI_NUMBER, &(o).threads, "N", "CPU threads (default: RF_THREADS, or one per core)"},         \
        {0, "simd", CLI_TEXT, &(o).simd, "LEVEL", "CPU instructions: auto, scalar, avx2 or avx512"},                 \
        {0,          "batch", CLI_NUMBER,                                                                            \
         &(o).batch, "N",     "prompt tokens to evaluate at a time (default: 512; up to 4096 on a GPU)"},            \
        {0, "duty", CLI_NUMBER, &(o).duty_percent, "PERCENT", "share of time the GPU may be busy (default: 100)"},   \
        {0, "kernel-ms", CLI_NUMBER, &(o).kernel_ms, "MS", "longest kernel allowed (default: 8 with a display)"},    \
        {0, "no-replay", CLI_FLAG, &(o).no_replay, NULL, "launch kernels one by one, do not replay a recording"}, {  \
        0, "in-worker", CLI_FLAG, &(o).in_worker, NULL, NULL                                                         \
    }

/* CLI_GO_ON if a model was named and the options make sense. */
int model_check(const char *command, const struct model_options *options);
/* Whether the command should run in a worker (model_in_worker), because a GPU may take its process down. */
bool model_wants_worker(const struct model_options *options);
/* Runs this command again in a worker; argv as the command got it, before parsing. job: all but the arguments. */
int model_in_worker(int argc, char **argv, struct cli_job job);

/* Opens a runtime and an engine; on failure closes what it opened. Shows progress and the placement on a terminal,
 * the placement with 'stats' in any case, and always the engine's notice if it has one. From then on a model file
 * that is shortened, or whose disk fails, ends the process: with one line and CLI_FAILED, or in the worker of `run`
 * silently with CLI_LOST_MODEL_FILE. */
rf_status model_open(const struct model_options *options, struct rf_runtime **runtime, struct rf_engine **engine);
rf_status model_close(struct rf_runtime **runtime, struct rf_engine **engine);

/* rf_session_eval, in the same parts that the engine would split the tokens into (with 'all' it may split them
 * further), with a sign of life before each. */
rf_status model_eval(const struct rf_engine *engine, struct rf_session *session, const char *what,
                     const int32_t *tokens, size_t count, bool all, float *logits);
/* For signs of life while the model works. */
enum cli_work model_work(const struct rf_engine_info *info);

/* The line about such a file; %s is its name. */
#define MODEL_FILE_LOST                                                                                              \
    "%.400s: part of the file can no longer be read: it was shortened, or its disk fails; restore it and start "     \
    "again"

/* Reads an option's text as a number; false: it is not one. */
bool model_number(const char *text, float *value);

#endif
