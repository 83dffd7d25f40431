/* Opening a model: the file, its hyperparameters, its vocabulary, and its placement. */
#include "infer/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/gpu_matmul.h"
#include "runtime/budget_spec.h"
#include "runtime/runtime.h"
#include "tokenizer/tokenizer.h"

/* CONTEXT_WANTED: this much context is granted even if it costs layers on the device. */
enum { SESSIONS_MAX = 1 << 16, CONTEXT_WANTED = 4096 };

static rf_status open_device(struct rf_engine *engine, const struct rf_engine_params *params);
static rf_status choose_context(struct rf_engine *engine, const struct rf_engine_params *params);
static rf_status choose_layers(struct rf_engine *engine, const struct rf_engine_params *params);
static rf_status plan_layers(struct rf_engine *engine, const struct rf_engine_params *params);

static rf_status read_chat_template(struct rf_engine *engine) {
    struct rf_gguf_string text;
    if (!rf_gguf_find(engine->gguf, "tokenizer.chat_template")) return RF_OK;
    rf_status status = rf_gguf_get_string(engine->gguf, "tokenizer.chat_template", &text);
    if (status) return status;
    size_t bytes = strnlen(text.text, text.bytes); /* what follows a zero is not shown */
    void *memory = NULL;
    status = rf_host_alloc(&engine->runtime->host, bytes + 1, "the chat template", &memory);
    if (status) return status;
    engine->chat_template = memory;
    engine->chat_template_bytes = bytes + 1;
    memcpy(memory, text.text, bytes);
    return RF_OK;
}

static uint64_t sessions_bytes(const struct rf_engine *engine) {
    return engine->slot_count * sizeof *engine->sessions;
}

rf_status rf_engine_open(const struct rf_engine_params *params, struct rf_engine **out) {
    struct rf_engine_params own;
    rf_status status = RF_PARAMS_READ(struct rf_engine_params, &own, params, "rf_engine_open");
    if (status) return status;
    params = &own;
    if (!out || !params->runtime || !params->model)
        return rf_fail(RF_E_INVALID, "rf_engine_open: runtime, model or out is NULL");
    if (params->kv > RF_KV_Q8_0) return rf_fail(RF_E_INVALID, "rf_engine_open: %d is no kind of cache", params->kv);
    struct rf_budget_spec spec; /* a malformed one is refused, even if there is no GPU that it would be for */
    if (params->budget && (status = rf_budget_parse(params->budget, &spec))) return status;
    struct rf_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return rf_fail(RF_E_NO_MEMORY, "no host memory for an engine");
    static const enum rf_dtype dtypes[] = {[RF_KV_F16] = RF_F16, [RF_KV_F32] = RF_F32, [RF_KV_Q8_0] = RF_Q8_0};
    engine->runtime = params->runtime;
    engine->kv = params->kv;
    engine->kv_dtype = dtypes[params->kv];
    engine->threads = params->threads;
    engine->batch = params->batch ? params->batch : RF_BATCH_DEFAULT;
    engine->replay = !params->no_replay && strcmp(rf_options_get(params->runtime->options, "RF_REPLAY"), "off") != 0;
    engine->slot_count = params->sessions ? params->sessions : 1;
    engine->duty_percent = params->duty_percent ? params->duty_percent : 100;
    if (engine->slot_count > SESSIONS_MAX)
        status = rf_fail(RF_E_INVALID, "rf_engine_open: %u sessions; at most %d", params->sessions, SESSIONS_MAX);
    else if (engine->duty_percent > 100)
        status = rf_fail(RF_E_INVALID, "rf_engine_open: busy for %u percent of the time; at most 100",
                         params->duty_percent);
    else
        status = rf_ladder_init(engine, params);
    if (status) {
        free(engine);
        return status;
    }
    pthread_mutex_init(&engine->mutex, NULL);
    snprintf(engine->simd, sizeof engine->simd, "%s", params->simd ? params->simd : "");

    struct rf_account account = rf_host_account(&engine->runtime->host);
    uint64_t used = rf_host_used(&engine->runtime->host);
    status = rf_gguf_open_charged(params->model, &account, &engine->gguf);
    if (!status) status = rf_arch_read(engine->gguf, &engine->hparams);
    if (!status) status = rf_engine_measure(engine);
    if (!status && rf_gguf_find(engine->gguf, "tokenizer.ggml.tokens"))
        status = rf_tokenizer_from_gguf_charged(engine->gguf, &account, &engine->tokenizer);
    if (!status) status = read_chat_template(engine);
    if (params->plan_only) engine->plan_bytes = rf_sub_saturate(rf_host_used(&engine->runtime->host), used);
    if (!status) status = open_device(engine, params);
    if (!status) status = choose_context(engine, params);
    if (!status && !params->plan_only) {
        void *sessions = NULL;
        status = rf_host_alloc(&engine->runtime->host, sessions_bytes(engine), "the table of sessions", &sessions);
        engine->sessions = sessions;
        engine->sessions_bytes = sessions_bytes(engine);
    }
    if (!status) rf_chunk_init(engine, params);
    if (!status) status = params->plan_only ? plan_layers(engine, params) : choose_layers(engine, params);
    rf_host_trim(); /* what was needed only for opening */
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_engine_close(&engine);
        rf_error_restore(&saved);
        return status;
    }
    *out = engine;
    return RF_OK;
}

rf_status rf_engine_close(struct rf_engine **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_engine *engine = *pointer;
    pthread_mutex_lock(&engine->mutex);
    uint32_t open = engine->open_sessions;
    pthread_mutex_unlock(&engine->mutex);
    if (open) return rf_fail(RF_E_BUSY, "rf_engine_close: %u of its sessions are open; destroy them first", open);
    rf_engine_release(engine);
    rf_status status = rf_device_close(&engine->device);
    rf_token_trie_destroy(&engine->trie);
    rf_tokenizer_destroy(&engine->tokenizer);
    rf_gguf_close(&engine->gguf);
    struct rf_host_budget *host = &engine->runtime->host;
    rf_host_free(host, engine->chat_template, engine->chat_template_bytes);
    rf_host_free(host, engine->sessions, engine->sessions_bytes);
    rf_host_free(host, engine->group_bytes, engine->group_count * sizeof *engine->group_bytes);
    pthread_mutex_destroy(&engine->mutex);
    pthread_rwlock_destroy(&engine->gate);
    free(engine);
    rf_host_trim();
    *pointer = NULL;
    return status;
}

/* Describes the CPU, and fails if the requested SIMD level is not available. */
static rf_status use_cpu(struct rf_engine *engine, const struct rf_engine_params *params) {
    enum rf_simd_level level;
    rf_status status = rf_simd_find(params->simd, &level);
    if (!status)
        rf_runtime_describe_cpu(engine->runtime, level, params->threads, engine->device_name,
                                sizeof engine->device_name);
    return status;
}

/* Opens the device that was asked for. With "auto" the CPU is used if there is no device, or if the budget leaves
 * no room on it. */
static rf_status open_device(struct rf_engine *engine, const struct rf_engine_params *params) {
    const char *want = params->device ? params->device : "auto";
    bool automatic = !strcmp(want, "auto");
    if (!strcmp(want, "cpu") || (automatic && !rf_gpu_available(engine->runtime))) return use_cpu(engine, params);
    RF_PARAMS(struct rf_device_choice, choice);
    RF_PARAMS(struct rf_device_params, open);
    RF_PARAMS(struct rf_device_info, info);
    choice.want = want;
    open.budget = params->budget;
    rf_status status = rf_device_choose(engine->runtime, &choice, &open.index);
    if (!status) status = rf_device_open_checked(engine->runtime, &open, &engine->device);
    if (automatic && !params->device_layers && (rf_is_full(status) || status == RF_E_NO_MEMORY)) {
        snprintf(engine->notice, sizeof engine->notice, "it runs on the CPU: %.500s", rf_error_text());
        engine->refused = true;
        return use_cpu(engine, params);
    }
    if (!status) status = rf_device_get_info(engine->device, &info);
    if (status) return status;
    snprintf(engine->device_name, sizeof engine->device_name, "%s", info.name);
    engine->integrated = info.integrated;
    engine->has_units = rf_gpu_matmul_has_units(engine->device);
    engine->has_gates = rf_gpu_matmul_has_gates(engine->device);
    return RF_OK;
}

/* Positions, pages and rows are counted in signed 32-bit integers. */
static rf_status set_context(struct rf_engine *engine, uint32_t context) {
    uint64_t width = ((uint64_t)context + RF_PAGE_ROWS - 1) / RF_PAGE_ROWS;
    if (width * RF_PAGE_ROWS > INT32_MAX / engine->slot_count)
        return rf_fail(RF_E_INVALID, "%u sessions of %u tokens: together at most %d are possible", engine->slot_count,
                       context, INT32_MAX);
    engine->context = context;
    engine->batch = RF_MIN(engine->batch, context);
    engine->table_width = (uint32_t)width;
    engine->page_count = engine->table_width * engine->slot_count;
    return RF_OK;
}

/* How many tokens the caches can hold in this many bytes, in whole pages. */
static uint64_t tokens_in(const struct rf_engine *engine, uint64_t bytes) {
    uint64_t each = rf_engine_cache_bytes(engine, 1) * engine->hparams.layers * engine->slot_count;
    return bytes / RF_MAX(each, (uint64_t)1) / RF_PAGE_ROWS * RF_PAGE_ROWS;
}

/* The context as given; otherwise the model's own, reduced so that the caches take at most half of the memory that
 * the weights leave free. On a device that does not hold all weights, the caches follow their layers: up to
 * CONTEXT_WANTED tokens the host's memory decides, and layers leave the device to make room for it. */
static rf_status choose_context(struct rf_engine *engine, const struct rf_engine_params *params) {
    const struct rf_hparams *hparams = &engine->hparams;
    uint64_t room = 0, available = 0, total = 0, weights = 0;
    if (params->context) return set_context(engine, params->context);
    for (int group = RF_GROUP_EMBEDDING; group <= rf_group_output(hparams); group++)
        weights += rf_engine_group_bytes(engine, group);
    rf_status status = rf_host_memory("", &available, &total);
    if (!status && engine->device) status = rf_safe_alloc_size(engine->device, &room);
    if (status) return status;
    /* Weights on the host are the mapped file, and the kernel can drop its pages. */
    uint64_t host = tokens_in(engine, RF_MIN(available, rf_host_room(&engine->runtime->host, false)) / 8);
    uint64_t fits = host;
    if (engine->device) {
        fits = tokens_in(engine, rf_sub_saturate(room, weights) / 2);
        fits = RF_MAX(fits, RF_MIN(host, (uint64_t)CONTEXT_WANTED));
    }
    uint64_t context = RF_MIN((uint64_t)hparams->trained_context, RF_MAX(fits, (uint64_t)RF_PAGE_ROWS));
    status = set_context(engine, (uint32_t)context);
    size_t said = strlen(engine->notice);
    if (!status && context < hparams->trained_context)
        snprintf(
            engine->notice + said, sizeof engine->notice - said,
            "%sthe context is %u tokens, of %u the model was trained for: memory for more is not there (give one "
            "to have it another way)",
            said ? "; " : "", engine->context, hparams->trained_context);
    return status;
}

static uint32_t layers_that_fit(const struct rf_engine *engine, uint64_t room) {
    const struct rf_hparams *hparams = &engine->hparams;
    uint64_t cache = rf_engine_cache_bytes(engine, (uint64_t)engine->page_count * RF_PAGE_ROWS);
    uint64_t used = rf_engine_scratch_bytes(engine) + rf_engine_group_bytes(engine, rf_group_output(hparams));
    uint32_t layers = 0;
    for (; layers < hparams->layers; layers++) {
        int group = RF_GROUP_LAYER + (int)(hparams->layers - 1 - layers);
        uint64_t more = rf_engine_group_bytes(engine, group) + cache;
        if (layers + 1 == hparams->layers && !hparams->tied_output)
            more += rf_engine_group_bytes(engine, RF_GROUP_EMBEDDING);
        if (used + more > room) break;
        used += more;
    }
    return used > room ? 0 : layers;
}

static rf_status try_runner(struct rf_engine *engine, uint32_t tokens) {
    struct rf_graph_shape shape = {.tokens = tokens,
                                   .sequences = 1,
                                   .page_rows = RF_PAGE_ROWS,
                                   .page_count = engine->page_count,
                                   .table_width = engine->table_width,
                                   .longest = engine->context,
                                   .kv_dtype = engine->kv_dtype};
    struct rf_runner runner = {0};
    RF_PARAMS(struct rf_plan_info, plan);
    rf_status status = rf_runner_create(engine, NULL, &shape, &runner);
    if (!status) status = rf_executor_plan_info(runner.executor, &plan);
    engine->run_bytes = !status && engine->device_layers == engine->hparams.layers ? plan.peak_bytes : 0;
    rf_runner_destroy(&runner);
    return status;
}

/* Whether it was the host budget that refused a runner. A plan that is too large for it ends with RF_E_BUDGET, as one
 * that is too large for the device. */
static bool host_refused(struct rf_engine *engine, rf_status status) {
    if (status == RF_E_NO_MEMORY) return true;
    return rf_is_full(status) &&
           (!engine->device_layers || rf_host_room(&engine->runtime->host, false) < rf_engine_scratch_bytes(engine));
}

/* Checks that a single token and a chunk of a prompt can run, each beside a session. Chunks become as small as the
 * host budget wants. */
static rf_status try_runners(struct rf_engine *engine) {
    struct rf_host_budget *host = &engine->runtime->host;
    struct rf_account session = rf_host_account(host);
    uint32_t wanted = engine->batch;
    char limit[32];
    rf_status status = rf_account_charge(&session, rf_session_host_bytes(engine));
    if (!status) status = try_runner(engine, 1);
    if (status && host_refused(engine, status)) {
        rf_fail_within(status,
                       "not even single tokens can run beside a cache of %u tokens: raise --host-budget "
                       "(RF_HOST_BUDGET) or use a smaller context",
                       engine->context);
    } else if (!status) {
        status = try_runner(engine, engine->batch);
        while (status && engine->batch > 1 && host_refused(engine, status)) {
            engine->batch = (engine->batch + 1) / 2;
            status = try_runner(engine, engine->batch);
        }
    }
    rf_account_close(&session);
    if (status) {
        engine->batch = wanted; /* with fewer layers on the device it may be another */
    } else if (engine->batch < wanted) {
        engine->longest = engine->batch;
        size_t said = strlen(engine->notice);
        snprintf(engine->notice + said, sizeof engine->notice - said,
                 "%sprompts are read %u tokens at a time instead of %u: the host budget of %s has no room for more",
                 said ? "; " : "", engine->batch, wanted, rf_format_bytes(host->limit_bytes, limit, sizeof limit));
    }
    return status;
}

/* The error for a given number of layers that does not fit. */
static rf_status refuse_layers(struct rf_engine *engine, rf_status status, uint32_t layers) {
    RF_PARAMS(struct rf_memory_info, memory);
    struct rf_saved_error saved;
    char budget[32];
    rf_error_save(&saved);
    rf_status asked = rf_device_memory_info(engine->device, &memory);
    rf_error_restore(&saved);
    return asked ? status
                 : rf_fail_within(status, "%u layers do not fit the GPU's budget of %s; ask for fewer", layers,
                                  rf_format_bytes(memory.budget_bytes, budget, sizeof budget));
}

/* How many layers go to the device: the given number, otherwise as many as its budget has room for now. */
static rf_status wanted_layers(const struct rf_engine *engine, const struct rf_engine_params *params,
                               uint32_t *layers) {
    uint64_t room = 0;
    *layers = 0;
    if (!engine->device) return RF_OK;
    rf_status status = rf_safe_alloc_size(engine->device, &room);
    if (status) return status;
    *layers =
        params->device_layers ? RF_MIN(params->device_layers, engine->hparams.layers) : layers_that_fit(engine, room);
    return RF_OK;
}

/* given: the caller asked for this number of layers. */
static void note_degraded(struct rf_engine *engine, bool given) {
    uint32_t all = engine->hparams.layers, layers = engine->device_layers;
    if (!engine->device || layers == all) return;
    size_t said = strlen(engine->notice);
    char left[32], why[160];
    rf_format_bytes(engine->host_weight_bytes, left, sizeof left);
    snprintf(why, sizeof why, given ? "%u on the GPU were asked for" : "the GPU's budget has room for %u", layers);
    snprintf(engine->notice + said, sizeof engine->notice - said,
             "%s%u of %u layers run on the CPU: %s (%s of weights stay on the host); %s", said ? "; " : "",
             all - layers, all, why, left,
             given ? "ask for more, or for none to have as many as fit"
                   : "raise the budget, or use a smaller context");
}

/* Fills in the figures that choose_layers would, without allocating or loading anything. There are no slots, so no
 * session can be opened. */
static rf_status plan_layers(struct rf_engine *engine, const struct rf_engine_params *params) {
    const struct rf_hparams *hparams = &engine->hparams;
    uint64_t cache = rf_engine_layer_cache_bytes(engine);
    rf_status status = wanted_layers(engine, params, &engine->device_layers);
    if (status) return status;
    for (int group = RF_GROUP_EMBEDDING; group <= rf_group_output(hparams); group++) {
        if (group == RF_GROUP_EMBEDDING && hparams->tied_output) continue; /* counted with the output */
        bool there = rf_engine_on_device(engine, group);
        *(there ? &engine->device_weight_bytes : &engine->host_weight_bytes) += rf_engine_group_bytes(engine, group);
    }
    engine->device_kv_bytes = cache * engine->device_layers;
    engine->plain_kv_bytes = cache * (hparams->layers - engine->device_layers);
    engine->slot_count = 0;
    note_degraded(engine, params->device_layers != 0);
    return RF_OK;
}

static rf_status choose_layers(struct rf_engine *engine, const struct rf_engine_params *params) {
    uint32_t layers;
    bool given = params->device_layers != 0;
    rf_status status = wanted_layers(engine, params, &layers);
    if (status) return status;
    engine->target_layers = given ? layers : engine->hparams.layers;
    for (;;) {
        status = rf_engine_place(engine, layers, params);
        if (!status) status = try_runners(engine);
        if (!status) break;
        if (rf_is_full(status) && given) return refuse_layers(engine, status, layers);
        if (!rf_is_full(status) || !layers) return status;
        rf_engine_release(engine);
        layers -= RF_MAX(layers / 8, 1u);
    }
    note_degraded(engine, params->device_layers != 0);
    return RF_OK;
}

/* ---- information ---- */

rf_status rf_engine_get_info(const struct rf_engine *engine, struct rf_engine_info *info) {
    if (!engine) return rf_fail(RF_E_INVALID, "rf_engine_get_info: engine is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_engine_info, info, "rf_engine_get_info");
    if (status) return status;
    const struct rf_hparams *hparams = &engine->hparams;
    RF_PARAMS(struct rf_gguf_info, file);
    RF_PARAMS(struct rf_memory_info, memory);
    struct rf_saved_error saved;
    uint64_t spilled = 0;
    status = rf_gguf_get_info(engine->gguf, &file);
    if (status) return status;
    rf_error_save(&saved);
    if (engine->device && rf_device_memory_info(engine->device, &memory)) rf_error_restore(&saved); /* lost: zeros */
    struct rf_engine *changing = (struct rf_engine *)(uintptr_t)engine; /* only its gate changes */
    struct rf_host_budget *host = &engine->runtime->host;
    rf_ladder_enter_quietly(changing);
    uint32_t kept = 0, first = rf_engine_first_device_layer(engine);
    for (uint32_t layer = first; layer < hparams->layers; layer++)
        kept += !engine->caches || !engine->caches[layer].pinned; /* plan_only: there are no caches */
    for (int group = RF_GROUP_LAYER; group <= rf_group_output(hparams) && (engine->device || engine->refused);
         group++)
        if (!rf_engine_on_device(engine, group)) spilled += rf_engine_group_bytes(engine, group);
    struct rf_engine_info filled = {.architecture = hparams->arch->name,
                                    .name = hparams->name,
                                    .device = engine->device_name,
                                    .chat_template = engine->chat_template,
                                    .parameter_count = file.parameter_count,
                                    .weight_bytes = file.tensor_bytes,
                                    .layers = hparams->layers,
                                    .width = hparams->width,
                                    .heads = hparams->heads,
                                    .kv_heads = hparams->kv_heads,
                                    .head_width = hparams->head_width,
                                    .feed_forward = hparams->feed_forward,
                                    .vocabulary = hparams->vocabulary,
                                    .context = engine->context,
                                    .trained_context = hparams->trained_context,
                                    .device_layers = engine->device_layers,
                                    .device_weight_bytes = engine->device_weight_bytes,
                                    .host_weight_bytes = engine->host_weight_bytes,
                                    .device_kv_bytes = engine->device_kv_bytes,
                                    .host_kv_bytes = engine->plain_kv_bytes + engine->pinned_kv_bytes,
                                    .kv = engine->kv,
                                    .degraded = engine->refused || (engine->device && kept < hparams->layers),
                                    .budget_bytes = memory.budget_bytes,
                                    .driver_bytes = memory.driver_bytes,
                                    .scratch_bytes = engine->device ? rf_engine_scratch_bytes(engine) : 0,
                                    .spilled_weight_bytes = spilled,
                                    .device_kv_layers = kept,
                                    .pinned_kv_bytes = engine->pinned_kv_bytes,
                                    .steps_down = engine->ladder.down,
                                    .steps_up = engine->ladder.up,
                                    .batch =
                                        rf_chunk_most(changing, engine->longest, atomic_load(&engine->long_tokens)),
                                    .idle_ns = atomic_load(&engine->idle_ns),
                                    .host_budget_bytes = host->limit_bytes,
                                    .host_used_bytes = rf_sub_saturate(rf_host_used(host), engine->plan_bytes)};
    rf_ladder_leave(changing);
    RF_RESULT_WRITE(struct rf_engine_info, info, &filled);
    return RF_OK;
}

const char *rf_engine_notice(const struct rf_engine *engine) {
    return engine ? engine->notice : "";
}

const struct rf_tokenizer *rf_engine_tokenizer(const struct rf_engine *engine) {
    return engine ? engine->tokenizer : NULL;
}
