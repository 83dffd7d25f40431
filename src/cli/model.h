/* What the commands that run a model share: its options, opening it, and doing so in a worker. */
#ifndef RF_CLI_MODEL_H
#define RF_CLI_MODEL_H

#include "cli.h"

#include <rocmforge/infer.h>

struct model_options {
    const char *model, *device, *budget, *host_budget, *kv, *simd;
    int64_t context, layers, threads, batch, sessions, duty_percent, kernel_ms;
    bool in_worker, no_replay;
    bool stats;         /* show the placement, also where standard error is no terminal */
    bool quiet;         /* something else stands on the terminal: no progress, and the placement with 'stats' only */
    bool is_run_worker; /* a worker that is spoken to: a file that cannot be read any more is for its command to tell
                         */
    bool plan_only;     /* load nothing and say nothing: what would be where */
};
#define MODEL_DEFAULTS(kv_) {.device = "auto", .kv = (kv_)}
/* The rows of a command's option table. */
#define MODEL_ROWS(o)                                                                                                 \
    {'m', "model", CLI_TEXT, &(o).model, "M", "the model, a GGUF file"},                                              \
        {0, "device", CLI_TEXT, &(o).device, "D", "auto, cpu, gpu, an index or part of a name (default: auto)"},      \
        {0, "budget", CLI_TEXT, &(o).budget, "SPEC", "of GPU memory: 70%, 12GiB, keep=2GiB (default: RF_BUDGET)"},    \
        {0, "host-budget", CLI_TEXT, &(o).host_budget, "SPEC", "of host memory, likewise (default: RF_HOST_BUDGET)"}, \
        {0, "ctx", CLI_NUMBER, &(o).context, "N", "tokens the context holds (default: the model's, if they fit)"},    \
        {0, "kv", CLI_TEXT, &(o).kv, "TYPE", "of the key-value cache: f16, f32 or q8_0"},                             \
        {0, "gpu-layers", CLI_NUMBER, &(o).layers, "N", "layers on the GPU, the last ones (default: all that fit)"},  \
        {0, "threads", CLI_NUMBER, &(o).threads, "N", "of the CPU (default: RF_THREADS, or one per core)"},           \
        {0, "simd", CLI_TEXT, &(o).simd, "LEVEL", "of the CPU: auto, scalar, avx2 or avx512"},                        \
        {0, "batch", CLI_NUMBER, &(o).batch, "N", "tokens of a prompt at a time (default: 512)"},                     \
        {0, "duty", CLI_NUMBER, &(o).duty_percent, "PERCENT", "of the time the GPU may be busy (default: 100)"},      \
        {0, "kernel-ms", CLI_NUMBER, &(o).kernel_ms, "MS", "no kernel longer than this (default: 8 with a display)"}, \
        {0, "no-replay", CLI_FLAG, &(o).no_replay, NULL, "submit each kernel instead of replaying a recording"}, {    \
        0, "in-worker", CLI_FLAG, &(o).in_worker, NULL, NULL                                                          \
    }

/* CLI_GO_ON where a model was named and the options make sense. */
int model_check(const char *command, const struct model_options *options);
/* Whether the command should be run by model_in_worker: a GPU may take its process down. */
bool model_wants_worker(const struct model_options *options);
/* This command again in a process of its own; argv as the command was given it, before parsing. */
int model_in_worker(int argc, char **argv);

/* A runtime and an engine; closes what was opened on failure. Shows progress and the placement on a terminal, the
 * placement with 'stats' too, and a notice in any case. From then on a file that was shortened, or a disk that fails,
 * ends the process: with one line, or with CLI_LOST_MODEL_FILE where it serves. */
rf_status model_open(const struct model_options *options, struct rf_runtime **runtime, struct rf_engine **engine);
rf_status model_close(struct rf_runtime **runtime, struct rf_engine **engine);

/* What is said of such a file; its name is put in. */
#define MODEL_FILE_LOST                                                                                              \
    "%.400s: a part of it cannot be read any more: it was shortened or its disk fails; restore it and start again"

/* A number from an option's text; false: it is none. */
bool model_number(const char *text, float *value);

#endif
