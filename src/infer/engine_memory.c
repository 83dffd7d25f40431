/* Where a model's parts are: weights on the device, KV caches beside their layers; and single moves between device
 * and host, for the ladder.
 *
 * A group's weights are one buffer, each at a multiple of 256 bytes. A weight that two groups use (an embedding
 * that is also the output's matrix) is stored once, in the group that is placed first and dropped last: groups are
 * placed from the output down to the embedding, and dropped in the reverse order. */
#include "infer/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device.h"
#include "infer/load.h"

enum { WEIGHT_ALIGNMENT = 256 };

static bool group_uses(const struct rf_engine *engine, int group, const char *name) {
    int own = rf_arch_group(&engine->hparams, name);
    return own == group ||
           (own == RF_GROUP_EMBEDDING && group == rf_group_output(&engine->hparams) && engine->hparams.tied_output);
}

static uint64_t aligned(uint64_t bytes) {
    return (bytes + WEIGHT_ALIGNMENT - 1) / WEIGHT_ALIGNMENT * WEIGHT_ALIGNMENT;
}

rf_status rf_engine_measure(struct rf_engine *engine) {
    engine->group_count = (size_t)rf_group_output(&engine->hparams) + 1;
    void *bytes = NULL;
    rf_status status = rf_host_alloc(&engine->runtime->host, engine->group_count * sizeof *engine->group_bytes,
                                     "the model's tables", &bytes);
    if (status) return status;
    engine->group_bytes = bytes;
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(engine->gguf, i);
        int group = rf_arch_group(&engine->hparams, tensor->name), output = rf_group_output(&engine->hparams);
        engine->group_bytes[group] += aligned(tensor->bytes);
        if (group != output && group_uses(engine, output, tensor->name))
            engine->group_bytes[output] += aligned(tensor->bytes);
    }
    return RF_OK;
}

uint64_t rf_engine_group_bytes(const struct rf_engine *engine, int group) {
    return engine->group_bytes[group];
}

uint64_t rf_engine_cache_bytes(const struct rf_engine *engine, uint64_t tokens) {
    uint64_t elements = tokens * engine->hparams.kv_heads * engine->hparams.head_width;
    return 2 * aligned(elements / rf_dtype_block(engine->kv_dtype) * rf_dtype_block_bytes(engine->kv_dtype));
}

uint64_t rf_engine_layer_cache_bytes(const struct rf_engine *engine) {
    return rf_engine_cache_bytes(engine, (uint64_t)engine->page_count * RF_PAGE_ROWS);
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

/* Allocates a group's memory on the device and decides where each of its weights goes in it; they are loaded
 * afterwards. */
static rf_status place_group(struct rf_engine *engine, int group) {
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
    for (size_t i = first; i < engine->home_count; i++) engine->homes[i].buffer = engine->group_buffers[group];
    return status;
}

/* Reads the weights of these homes to the device. params: has the progress callback; NULL: there is none. */
static rf_status upload_homes(struct rf_engine *engine, const struct rf_weight_home *homes, size_t count,
                              const struct rf_engine_params *params) {
    struct rf_load load = {.device = engine->device,
                           .gguf = engine->gguf,
                           .progress = params ? params->progress : NULL,
                           .user = params ? params->user : NULL};
    return rf_load_weights(&load, homes, count);
}

static void drop_group(struct rf_engine *engine, int group) {
    struct rf_buffer *buffer = engine->group_buffers[group];
    size_t kept = 0;
    if (!buffer) return;
    for (size_t i = 0; i < engine->home_count; i++)
        if (engine->homes[i].buffer != buffer) engine->homes[kept++] = engine->homes[i];
    engine->home_count = kept;
    engine->device_weight_bytes -= rf_buffer_bytes(buffer);
    rf_buffer_destroy(&engine->group_buffers[group]);
}

static void count_host_weights(struct rf_engine *engine) {
    engine->host_weight_bytes = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(engine->gguf); i++)
        if (!find_home(engine, rf_gguf_tensor_at(engine->gguf, i)))
            engine->host_weight_bytes += rf_gguf_tensor_at(engine->gguf, i)->bytes;
}

/* ---- caches ---- */

static rf_status make_device_cache(struct rf_engine *engine, bool zeroed, struct rf_layer_cache *cache) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = rf_engine_layer_cache_bytes(engine);
    params.zeroed = zeroed;
    params.label = "cache";
    rf_status status = rf_buffer_create_safe(engine->device, &params, &cache->buffer);
    if (!status) engine->device_kv_bytes += params.bytes;
    return status;
}

static rf_status make_pinned_cache(struct rf_engine *engine, struct rf_layer_cache *cache) {
    uint64_t bytes = rf_engine_layer_cache_bytes(engine);
    rf_status status = rf_pinned_create(engine->device, bytes, &cache->pinned);
    if (!status) status = rf_pinned_buffer(cache->pinned, &cache->buffer);
    if (status)
        rf_pinned_destroy(&cache->pinned);
    else
        engine->pinned_kv_bytes += bytes;
    return status;
}

static rf_status make_host_cache(struct rf_engine *engine, struct rf_layer_cache *cache) {
    uint64_t bytes = rf_engine_layer_cache_bytes(engine);
    char what[96];
    snprintf(what, sizeof what, "a cache of %u tokens; a smaller context needs less", engine->context);
    rf_status status = rf_host_alloc(&engine->runtime->host, bytes, what, &cache->host);
    if (!status) engine->plain_kv_bytes += bytes;
    return status;
}

static void destroy_cache(struct rf_engine *engine, struct rf_layer_cache *cache) {
    uint64_t bytes = rf_engine_layer_cache_bytes(engine);
    if (cache->host) {
        engine->plain_kv_bytes -= bytes;
        rf_host_free(&engine->runtime->host, cache->host, bytes);
    } else if (cache->pinned) {
        engine->pinned_kv_bytes -= bytes;
    } else if (cache->buffer) {
        engine->device_kv_bytes -= bytes;
    }
    rf_buffer_destroy(&cache->buffer);
    rf_pinned_destroy(&cache->pinned);
    *cache = (struct rf_layer_cache){0};
}

/* Copies a cache. Exactly one of the two is in device memory. */
static rf_status copy_cache(struct rf_engine *engine, const struct rf_layer_cache *from,
                            const struct rf_layer_cache *to) {
    uint64_t bytes = rf_engine_layer_cache_bytes(engine);
    struct rf_queue *queue = NULL;
    rf_status status = rf_queue_create(engine->device, NULL, &queue);
    if (!status && from->pinned)
        status = rf_upload_async(queue, to->buffer, 0, from->pinned, 0, bytes);
    else if (!status && from->host)
        status = rf_copy_to_device_safe(queue, to->buffer, 0, from->host, bytes);
    else if (!status && to->pinned)
        status = rf_download_async(queue, to->pinned, 0, from->buffer, 0, bytes);
    else if (!status)
        status = rf_copy_from_device_safe(queue, to->host, from->buffer, 0, bytes);
    if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_queue_destroy(&queue);
    rf_error_restore(&saved);
    return status;
}

/* Makes 'made' the layer's cache, with the contents of the old one. On failure 'made' is destroyed. */
static rf_status exchange_cache(struct rf_engine *engine, uint32_t layer, struct rf_layer_cache *made) {
    struct rf_layer_cache *cache = &engine->caches[layer];
    rf_status status = copy_cache(engine, cache, made);
    struct rf_saved_error saved;
    rf_error_save(&saved);
    destroy_cache(engine, status ? made : cache);
    rf_error_restore(&saved);
    if (!status) *cache = *made;
    return status;
}

rf_status rf_engine_lower_cache(struct rf_engine *engine, uint32_t layer) {
    struct rf_layer_cache made = {0};
    rf_status status = make_pinned_cache(engine, &made);
    return status ? status : exchange_cache(engine, layer, &made);
}

rf_status rf_engine_raise_cache(struct rf_engine *engine, uint32_t layer) {
    struct rf_layer_cache made = {0};
    rf_status status = make_device_cache(engine, false, &made);
    return status ? status : exchange_cache(engine, layer, &made);
}

/* ---- layers ---- */

/* The groups that move to the device with the next layer, in the order they are placed. Returns how many. */
static int next_groups(const struct rf_engine *engine, int groups[3]) {
    int count = 0;
    uint32_t layers = engine->hparams.layers;
    if (!engine->device_layers) groups[count++] = rf_group_output(&engine->hparams);
    groups[count++] = RF_GROUP_LAYER + (int)(layers - 1 - engine->device_layers);
    if (engine->device_layers + 1 == layers) groups[count++] = RF_GROUP_EMBEDDING;
    return count;
}

uint64_t rf_engine_raise_bytes(const struct rf_engine *engine) {
    int groups[3], count = next_groups(engine, groups);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (groups[i] != RF_GROUP_EMBEDDING || !engine->hparams.tied_output)
            bytes += rf_engine_group_bytes(engine, groups[i]);
    uint32_t layer = engine->hparams.layers - 1 - engine->device_layers;
    return bytes + (engine->caches[layer].host ? rf_engine_layer_cache_bytes(engine) : 0);
}

rf_status rf_engine_raise_layer(struct rf_engine *engine) {
    int groups[3], count = next_groups(engine, groups);
    uint32_t layer = engine->hparams.layers - 1 - engine->device_layers;
    size_t first = engine->home_count;
    struct rf_layer_cache made = {0};
    rf_status status = engine->caches[layer].host ? make_device_cache(engine, false, &made) : RF_OK;
    for (int i = 0; i < count && !status; i++) status = place_group(engine, groups[i]);
    if (!status) status = upload_homes(engine, engine->homes + first, engine->home_count - first, NULL);
    if (!status && made.buffer) {
        status = exchange_cache(engine, layer, &made);
        made.buffer = NULL; /* it belongs to the layer now, or was destroyed */
    }
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        engine->home_count = first;
        for (int i = 0; i < count; i++) drop_group(engine, groups[i]);
        destroy_cache(engine, &made);
        rf_error_restore(&saved);
        return status;
    }
    engine->device_layers++;
    count_host_weights(engine);
    return RF_OK;
}

rf_status rf_engine_lower_layer(struct rf_engine *engine) {
    uint32_t layer = rf_engine_first_device_layer(engine);
    if (!engine->caches[layer].pinned) {
        struct rf_layer_cache made = {0};
        rf_status status = make_host_cache(engine, &made);
        if (!status) status = exchange_cache(engine, layer, &made);
        if (status) return status;
    }
    int groups[3];
    engine->device_layers--;
    for (int i = next_groups(engine, groups); i--;) drop_group(engine, groups[i]);
    count_host_weights(engine);
    return RF_OK;
}

/* ---- the whole model ---- */

static uint64_t buffers_bytes(const struct rf_engine *engine) {
    return engine->group_count * sizeof *engine->group_buffers;
}
static uint64_t homes_bytes(const struct rf_engine *engine) {
    return engine->gguf ? rf_gguf_tensor_count(engine->gguf) * sizeof *engine->homes : 0;
}
static uint64_t caches_bytes(const struct rf_engine *engine) {
    return engine->hparams.layers * sizeof *engine->caches;
}

rf_status rf_engine_place(struct rf_engine *engine, uint32_t device_layers, const struct rf_engine_params *params) {
    static const char what[] = "the model's tables";
    struct rf_host_budget *host = &engine->runtime->host;
    void *buffers = NULL, *homes = NULL, *caches = NULL;
    engine->device_layers = device_layers;
    rf_status status = rf_host_alloc(host, buffers_bytes(engine), what, &buffers);
    if (!status) status = rf_host_alloc(host, homes_bytes(engine), what, &homes);
    if (!status) status = rf_host_alloc(host, caches_bytes(engine), what, &caches);
    engine->group_buffers = buffers;
    engine->homes = homes;
    engine->caches = caches;
    /* All memory is allocated first, so that a refusal comes before gigabytes are read. */
    for (uint32_t layer = 0; layer < engine->hparams.layers && !status; layer++) {
        bool on_device = rf_engine_on_device(engine, RF_GROUP_LAYER + (int)layer);
        struct rf_layer_cache *cache = &engine->caches[layer];
        status = on_device ? make_device_cache(engine, true, cache) : make_host_cache(engine, cache);
        if (status && !on_device) rf_fail_within(status, "layer %u", layer);
    }
    for (int group = (int)engine->group_count - 1; group >= RF_GROUP_EMBEDDING && !status; group--)
        if (rf_engine_on_device(engine, group)) status = place_group(engine, group);
    if (!status && device_layers) status = upload_homes(engine, engine->homes, engine->home_count, params);
    if (!status) count_host_weights(engine);
    return status;
}

void rf_engine_release(struct rf_engine *engine) {
    for (uint32_t layer = 0; layer < engine->hparams.layers && engine->caches; layer++)
        destroy_cache(engine, &engine->caches[layer]);
    for (size_t group = 0; group < engine->group_count && engine->group_buffers; group++)
        rf_buffer_destroy(&engine->group_buffers[group]);
    rf_host_free(&engine->runtime->host, engine->caches, caches_bytes(engine));
    rf_host_free(&engine->runtime->host, engine->group_buffers, buffers_bytes(engine));
    rf_host_free(&engine->runtime->host, engine->homes, homes_bytes(engine));
    engine->caches = NULL;
    engine->group_buffers = NULL;
    engine->homes = NULL;
    engine->home_count = 0;
    engine->device_weight_bytes = engine->host_weight_bytes = 0;
}
