/* Runners: a graph of one shape with an executor whose weights and caches are the engine's. */
#include "infer/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/executor.h"

/* Where a node or tensor goes: by the layer its name says. */
static int group_by_name(const struct rf_engine *engine, const char *name) {
    unsigned layer;
    if (sscanf(name, "blk.%u.", &layer) == 1) return RF_GROUP_LAYER + (int)layer;
    return !strncmp(name, "token_embd", 10) ? RF_GROUP_EMBEDDING : rf_group_output(&engine->hparams);
}

static int place_node(void *user, const char *node) {
    const struct rf_engine *engine = user;
    return rf_engine_on_device(engine, group_by_name(engine, node)) ? 0 : -1;
}

static bool bind_cache(const struct rf_engine *engine, const char *name, int place, struct rf_binding *binding) {
    unsigned layer;
    char which;
    if (sscanf(name, "cache_%c.%u", &which, &layer) != 2 || layer >= engine->hparams.layers) return false;
    const struct rf_layer_cache *cache = &engine->caches[layer];
    if (place < 0)
        binding->host = cache->pinned ? rf_pinned_data(cache->pinned) : cache->host;
    else
        binding->buffer = cache->buffer;
    if (which == 'v') binding->offset_bytes = rf_engine_layer_cache_bytes(engine) / 2;
    return binding->host || binding->buffer;
}

static bool bind_tensor(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding) {
    const struct rf_engine *engine = user;
    (void)id;
    *binding = (struct rf_binding){0};
    if (bind_cache(engine, name, place, binding)) return true;
    const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(engine->gguf, name);
    if (!tensor) return false;
    if (place < 0) {
        binding->host = (void *)(uintptr_t)tensor->data; /* a constant: never written */
        return true;
    }
    for (size_t i = 0; i < engine->home_count; i++)
        if (engine->homes[i].tensor == tensor) {
            binding->buffer = engine->homes[i].buffer;
            binding->offset_bytes = engine->homes[i].offset;
            return true;
        }
    return false;
}

rf_status rf_runner_create(struct rf_engine *engine, struct rf_session *session, const struct rf_graph_shape *shape,
                           struct rf_runner *out) {
    struct rf_runner runner = {.shape = *shape};
    rf_status status = rf_arch_build(engine->gguf, &engine->hparams, shape, &runner.graph);
    if (!status) {
        RF_PARAMS(struct rf_executor_params, params);
        params.graph = runner.graph;
        params.runtime = engine->runtime;
        params.devices = &engine->device;
        params.device_count = engine->device && engine->device_layers ? 1 : 0;
        params.cpu_threads = engine->threads;
        params.cpu_simd = engine->simd[0] ? engine->simd : NULL;
        params.replay = engine->replay && shape->tokens == shape->sequences;
        params.place = params.device_count ? place_node : NULL;
        params.bind = bind_tensor;
        params.user = engine;
        params.stop = session ? rf_session_stops : NULL;
        params.stop_user = session;
        status = rf_executor_create(&params, &runner.executor);
    }
    if (!status && engine->kernel_ns && engine->device_layers && shape->tokens > shape->sequences)
        runner.timed = rf_executor_time_nodes(runner.executor) == RF_OK; /* else it runs without */
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_runner_destroy(&runner);
        rf_error_restore(&saved);
        return status;
    }
    runner.tokens = rf_graph_find(runner.graph, "tokens");
    runner.positions = rf_graph_find(runner.graph, "positions");
    runner.sequences = rf_graph_find(runner.graph, "sequences");
    runner.table = rf_graph_find(runner.graph, "table");
    runner.lengths = rf_graph_find(runner.graph, "lengths");
    runner.logits = rf_graph_find(runner.graph, "logits");
    *out = runner;
    return RF_OK;
}

void rf_runner_destroy(struct rf_runner *runner) {
    rf_executor_destroy(&runner->executor);
    rf_graph_destroy(&runner->graph);
}
