/* Runners: a runner is a graph of one shape with an executor that uses the engine's weights and caches. */
#include "infer/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/executor.h"

/* What an executor is bound to; the executor keeps a pointer to it. */
struct rf_binder {
    const struct rf_engine *engine;
    const struct rf_bound_tensor *bound; /* the model graph's */
    size_t bound_count;
    struct rf_pinned *pinned; /* the session's ring, and the buffer over it; NULL: its graphs draw nothing */
    struct rf_buffer *ring;
};

static int place_group(void *user, int group) {
    const struct rf_binder *binder = user;
    return rf_engine_on_device(binder->engine, group) ? 0 : -1;
}

static bool bind_cache(const struct rf_engine *engine, const struct rf_bound_tensor *bound, int place,
                       struct rf_binding *binding) {
    const struct rf_layer_cache *cache = &engine->caches[bound->layer];
    if (place < 0)
        binding->host = cache->pinned ? rf_pinned_data(cache->pinned) : cache->host;
    else
        binding->buffer = cache->buffer;
    if (bound->values) binding->offset_bytes = rf_engine_layer_cache_bytes(engine) / 2;
    return binding->host || binding->buffer;
}

static bool bind_weight(const struct rf_engine *engine, const struct rf_gguf_tensor *weight, int place,
                        struct rf_binding *binding) {
    if (place < 0) {
        binding->host = (void *)(uintptr_t)weight->data; /* a constant: never written */
        return true;
    }
    for (size_t i = 0; i < engine->home_count; i++)
        if (engine->homes[i].tensor == weight) {
            binding->buffer = engine->homes[i].buffer;
            binding->offset_bytes = engine->homes[i].offset;
            return true;
        }
    return false;
}

static bool bind_tensor(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding) {
    const struct rf_binder *binder = user;
    (void)name;
    *binding = (struct rf_binding){0};
    if (id >= binder->bound_count) return false;
    const struct rf_bound_tensor *bound = &binder->bound[id];
    if (bound->ring) {
        binding->buffer = place < 0 ? NULL : binder->ring;
        binding->host = place < 0 && binder->pinned ? rf_pinned_data(binder->pinned) : NULL;
        return binding->host || binding->buffer;
    }
    if (bound->cache) return bind_cache(binder->engine, bound, place, binding);
    return bound->weight && bind_weight(binder->engine, bound->weight, place, binding);
}

rf_status rf_runner_create(struct rf_engine *engine, struct rf_session *session, const struct rf_graph_shape *shape,
                           struct rf_runner *out) {
    struct rf_runner runner = {.engine = engine, .shape = *shape};
    struct rf_account account = rf_host_account(&engine->runtime->host);
    if (engine->has_units && engine->device_layers)
        runner.shape.units_from = RF_GROUP_LAYER + (int)rf_engine_first_device_layer(engine);
    runner.shape.gates = engine->has_gates;
    rf_status status = rf_arch_build(engine->gguf, &engine->hparams, &runner.shape, &account, &runner.model);
    if (!status && !(runner.binder = malloc(sizeof *runner.binder)))
        status = rf_fail(RF_E_NO_MEMORY, "no host memory for the graph of a model");
    if (!status) {
        *runner.binder = (struct rf_binder){.engine = engine,
                                            .bound = runner.model.bound,
                                            .bound_count = runner.model.bound_count,
                                            .pinned = session ? session->ahead.pinned : NULL,
                                            .ring = session ? session->ahead.ring : NULL};
        RF_PARAMS(struct rf_executor_params, params);
        params.graph = runner.model.graph;
        params.runtime = engine->runtime;
        params.devices = &engine->device;
        params.device_count = engine->device && engine->device_layers ? 1 : 0;
        params.cpu_threads = engine->threads;
        params.cpu_simd = engine->simd[0] ? engine->simd : NULL;
        params.passes = RF_PASS_FUSE;
        params.replay = engine->replay && shape->tokens == shape->sequences;
        params.place_group = params.device_count ? place_group : NULL;
        params.bind = bind_tensor;
        params.user = runner.binder;
        params.stop = session ? rf_session_stops : NULL;
        params.stop_user = session;
        status = rf_executor_create(&params, &runner.executor);
    }
    if (!status && engine->kernel_ns && engine->device_layers && shape->tokens > shape->sequences)
        runner.timed = rf_executor_time_nodes(runner.executor) == RF_OK; /* otherwise it runs without timing */
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_runner_destroy(&runner);
        rf_error_restore(&saved);
        return status;
    }
    if (shape->tokens > engine->batch && shape->sequences == 1) runner.long_tokens = shape->tokens;
    atomic_fetch_add(&engine->long_tokens, runner.long_tokens);
    *out = runner;
    return RF_OK;
}

void rf_runner_destroy(struct rf_runner *runner) {
    if (runner->long_tokens) atomic_fetch_sub(&runner->engine->long_tokens, runner->long_tokens);
    runner->long_tokens = 0;
    rf_executor_destroy(&runner->executor);
    rf_model_graph_finish(&runner->model);
    free(runner->binder);
    runner->binder = NULL;
}
