/* What of a model is where: weights to the device, caches beside their layers.
 *
 * A group's weights are one buffer, each at a multiple of 256 bytes. A weight that two groups use (an embedding that
 * is the output's matrix too) has one home, in the first group that was placed. */
#include "model/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device_impl.h"

enum { WEIGHT_ALIGNMENT = 256 };
#define UPLOAD_STEP ((uint64_t)64 << 20)

enum { NO_GROUP = -1 };

/* Which group a tensor of the file belongs to; a layer that the model does not have is none's. */
static int group_of(const struct rf_engine *engine, const char *name) {
    unsigned layer;
    if (sscanf(name, "blk.%u.", &layer) == 1)
        return layer < engine->hparams.layers ? RF_GROUP_LAYER + (int)layer : NO_GROUP;
    return !strncmp(name, "token_embd.", 11) ? RF_GROUP_EMBEDDING : rf_group_output(&engine->hparams);
}

static bool group_uses(const struct rf_engine *engine, int group, const char *name) {
    int own = group_of(engine, name);
    return own == group ||
           (own == RF_GROUP_EMBEDDING && group == rf_group_output(&engine->hparams) && engine->hparams.tied_output);
}

static uint64_t aligned(uint64_t bytes) {
    return (bytes + WEIGHT_ALIGNMENT - 1) / WEIGHT_ALIGNMENT * WEIGHT_ALIGNMENT;
}

uint64_t rf_engine_group_bytes(const struct rf_engine *engine, int group) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(engine->gguf, i);
        if (group_uses(engine, group, tensor->name)) bytes += aligned(tensor->bytes);
    }
    return bytes;
}

uint64_t rf_engine_cache_bytes(const struct rf_engine *engine, uint64_t tokens) {
    uint64_t elements = tokens * engine->hparams.kv_heads * engine->hparams.head_width;
    return 2 * aligned(elements / rf_dtype_block(engine->kv_dtype) * rf_dtype_block_bytes(engine->kv_dtype));
}

bool rf_engine_on_device(const struct rf_engine *engine, int group) {
    uint32_t first = engine->hparams.layers - engine->device_layers;
    if (!engine->device_layers) return false;
    if (group == RF_GROUP_EMBEDDING) return first == 0;
    return group >= RF_GROUP_LAYER + (int)first;
}

static const struct rf_weight_home *find_home(const struct rf_engine *engine, const struct rf_gguf_tensor *tensor) {
    for (size_t i = 0; i < engine->home_count; i++)
        if (engine->homes[i].tensor == tensor) return &engine->homes[i];
    return NULL;
}

struct upload {
    struct rf_engine *engine;
    struct rf_queue *queue;
    const struct rf_engine_params *params;
    uint64_t done, total;
};

static rf_status upload_tensor(struct upload *upload, const struct rf_weight_home *home) {
    rf_status status = RF_OK;
    for (uint64_t at = 0; at < home->tensor->bytes && !status; at += UPLOAD_STEP) {
        uint64_t bytes = RF_MIN(UPLOAD_STEP, home->tensor->bytes - at);
        status = rf_copy_to_device_safe(upload->queue, home->buffer, home->offset + at,
                                        (const char *)home->tensor->data + at, bytes);
        upload->done += bytes;
        if (!status && upload->params->progress &&
            !upload->params->progress(upload->params->user, upload->done, upload->total))
            status = rf_fail(RF_E_CANCELLED, "loading %s was cancelled", rf_gguf_path(upload->engine->gguf));
    }
    return status;
}

static rf_status place_group(struct upload *upload, int group) {
    struct rf_engine *engine = upload->engine;
    size_t first = engine->home_count;
    uint64_t bytes = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(engine->gguf, i);
        if (!group_uses(engine, group, tensor->name) || find_home(engine, tensor)) continue;
        engine->homes[engine->home_count++] = (struct rf_weight_home){.tensor = tensor, .offset = bytes};
        bytes += aligned(tensor->bytes);
    }
    if (!bytes) return RF_OK;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.label = "weights";
    rf_status status = rf_buffer_create_safe(engine->device, &params, &engine->group_buffers[group]);
    engine->device_weight_bytes += status ? 0 : bytes;
    for (size_t i = first; i < engine->home_count && !status; i++) {
        engine->homes[i].buffer = engine->group_buffers[group];
        status = upload_tensor(upload, &engine->homes[i]);
    }
    return status;
}

static rf_status make_cache(struct rf_engine *engine, uint32_t layer) {
    struct rf_layer_cache *cache = &engine->caches[layer];
    uint64_t bytes = rf_engine_cache_bytes(engine, (uint64_t)engine->page_count * RF_PAGE_ROWS) / 2;
    if (!rf_engine_on_device(engine, RF_GROUP_LAYER + (int)layer)) {
        rf_status charged = rf_host_charge(&engine->runtime->host, 2 * bytes, false);
        if (charged)
            return rf_fail_within(charged, "a cache of %u tokens in layer %u; a smaller context needs less",
                                  engine->context, layer);
        engine->host_kv_bytes += 2 * bytes;
        /* Zeros that the system gives page by page, as they are written. */
        cache->host_k = calloc(1, (size_t)bytes);
        cache->host_v = calloc(1, (size_t)bytes);
        return cache->host_k && cache->host_v ? RF_OK
                                              : rf_fail(RF_E_NO_MEMORY,
                                                        "no host memory for a cache of %u tokens in layer %u: use a "
                                                        "smaller context",
                                                        engine->context, layer);
    }
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.zeroed = true;
    params.label = "cache";
    rf_status status = rf_buffer_create_safe(engine->device, &params, &cache->device_k);
    if (!status) status = rf_buffer_create_safe(engine->device, &params, &cache->device_v);
    if (!status) engine->device_kv_bytes += 2 * bytes;
    return status;
}

rf_status rf_engine_place(struct rf_engine *engine, uint32_t device_layers, const struct rf_engine_params *params) {
    struct upload upload = {.engine = engine, .params = params};
    engine->device_layers = device_layers;
    engine->group_count = (size_t)rf_group_output(&engine->hparams) + 1;
    engine->group_buffers = calloc(engine->group_count, sizeof *engine->group_buffers);
    engine->homes = calloc(rf_gguf_tensor_count(engine->gguf), sizeof *engine->homes);
    engine->caches = calloc(engine->hparams.layers, sizeof *engine->caches);
    rf_status status = engine->group_buffers && engine->homes && engine->caches
                           ? RF_OK
                           : rf_fail(RF_E_NO_MEMORY, "no host memory for the model's tables");
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(engine->gguf, i);
        bool used = false; /* by a group on the device; by two, it is sent once */
        for (int group = RF_GROUP_EMBEDDING; group < (int)engine->group_count && !used; group++)
            used = rf_engine_on_device(engine, group) && group_uses(engine, group, tensor->name);
        if (used) upload.total += tensor->bytes;
    }
    /* Caches first: they are refused before gigabytes were read. */
    for (uint32_t layer = 0; layer < engine->hparams.layers && !status; layer++) status = make_cache(engine, layer);
    if (!status && device_layers) status = rf_queue_create(engine->device, NULL, &upload.queue);
    for (int group = RF_GROUP_EMBEDDING; group < (int)engine->group_count && !status; group++)
        if (rf_engine_on_device(engine, group)) status = place_group(&upload, group);
    if (!status && upload.queue) status = rf_queue_wait(upload.queue, RF_TIMEOUT_DEFAULT);
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_queue_destroy(&upload.queue);
    if (status) {
        rf_engine_release(engine);
        rf_error_restore(&saved);
        return status;
    }
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++)
        if (!find_home(engine, rf_gguf_tensor_at(engine->gguf, i)))
            engine->host_weight_bytes += rf_gguf_tensor_at(engine->gguf, i)->bytes;
    return RF_OK;
}

void rf_engine_release(struct rf_engine *engine) {
    if (engine->host_kv_bytes) rf_host_release(&engine->runtime->host, engine->host_kv_bytes, false);
    for (uint32_t layer = 0; layer < engine->hparams.layers && engine->caches; layer++) {
        rf_buffer_destroy(&engine->caches[layer].device_k);
        rf_buffer_destroy(&engine->caches[layer].device_v);
        free(engine->caches[layer].host_k);
        free(engine->caches[layer].host_v);
    }
    for (size_t group = 0; group < engine->group_count && engine->group_buffers; group++)
        rf_buffer_destroy(&engine->group_buffers[group]);
    free(engine->caches);
    free(engine->group_buffers);
    free(engine->homes);
    engine->caches = NULL;
    engine->group_buffers = NULL;
    engine->homes = NULL;
    engine->home_count = engine->group_count = 0;
    engine->device_weight_bytes = engine->host_weight_bytes = engine->device_kv_bytes = engine->host_kv_bytes = 0;
}
