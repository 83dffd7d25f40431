/* An engine's inside: a model file, what is where, and the caches that sessions share.
 *
 * Placement is by layer: the last 'device_layers' layers and the output are on the device, the rest on the CPU; the
 * embedding is on the device only where all layers are. Weights on the CPU are the mapped file itself; on the device
 * they are a read-only copy. A cache is made of pages; session slot s owns pages s * table_width to
 * (s + 1) * table_width - 1 of every layer.
 *
 * Invariants:
 *   1. all but the slots (mutex) is immutable once the engine is open, so threads share it without locks
 *   2. a cache's memory lies where its layer runs */
#ifndef RF_MODEL_ENGINE_IMPL_H
#define RF_MODEL_ENGINE_IMPL_H

#include <rocmforge/infer.h>

#include "base/base.h"
#include "model/arch.h"

enum { RF_PAGE_ROWS = 256, RF_BATCH_DEFAULT = 512, RF_RUNNERS_MAX = 6 };

/* A weight on the device. */
struct rf_weight_home {
    const struct rf_gguf_tensor *tensor;
    struct rf_buffer *buffer; /* borrowed: of a group */
    uint64_t offset;
};

/* A layer's caches. */
struct rf_layer_cache {
    struct rf_buffer *device_k, *device_v;
    void *host_k, *host_v;
};

struct rf_engine {
    struct rf_runtime *runtime;
    struct rf_gguf *gguf;
    struct rf_hparams hparams;
    struct rf_tokenizer *tokenizer; /* NULL: none */
    char *chat_template;            /* NULL: none */
    struct rf_device *device;       /* NULL: the CPU alone */
    char device_name[160], notice[640];
    bool degraded;

    uint32_t context, batch, table_width, page_count;
    enum rf_kv_type kv;
    enum rf_dtype kv_dtype;
    unsigned threads;
    char simd[16]; /* "": the best */
    bool replay;

    uint32_t device_layers;
    struct rf_buffer **group_buffers; /* [group]: weights on the device */
    size_t group_count;
    struct rf_weight_home *homes;
    size_t home_count;
    struct rf_layer_cache *caches; /* [layer] */
    uint64_t device_weight_bytes, host_weight_bytes, device_kv_bytes, host_kv_bytes;

    pthread_mutex_t mutex; /* the slots */
    bool *slot_taken;
    uint32_t slot_count, open_sessions;
};

/* engine_memory.c. Allocates and uploads so many layers; RF_E_BUDGET: they do not fit, nothing is held then. */
rf_status rf_engine_place(struct rf_engine *engine, uint32_t device_layers, const struct rf_engine_params *params);
void rf_engine_release(struct rf_engine *engine);
/* Bytes of a group's weights; of a layer's two caches for so many tokens. */
uint64_t rf_engine_group_bytes(const struct rf_engine *engine, int group);
uint64_t rf_engine_cache_bytes(const struct rf_engine *engine, uint64_t tokens);
bool rf_engine_on_device(const struct rf_engine *engine, int group);

/* The budget, or the GPU itself, has no room: something smaller may fit. */
static inline bool rf_is_full(rf_status status) {
    return status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY;
}

/* A graph of one shape and its executor. */
struct rf_runner {
    struct rf_graph_shape shape;
    struct rf_graph *graph;
    struct rf_executor *executor;
    rf_tensor_id tokens, positions, sequences, table, lengths, logits;
    uint64_t used; /* when last; for the cache */
};
rf_status rf_runner_create(struct rf_engine *engine, const struct rf_graph_shape *shape, struct rf_runner *out);
void rf_runner_destroy(struct rf_runner *runner);

struct rf_session {
    struct rf_engine *engine;
    uint32_t slot;
    int32_t *tokens; /* [context]: those held */
    uint32_t length;
    atomic_bool cancelled;

    struct rf_runner runners[RF_RUNNERS_MAX];
    size_t runner_count;
    uint64_t clock;
    int32_t *scratch; /* inputs of a run: positions, sequences, then a table row */

    /* The logits of the last token, for sampling. */
    struct rf_runner *last; /* NULL: none */
    uint32_t last_row;
    struct rf_queue *queue;   /* for sampling on the device; made when first needed */
    struct rf_buffer *sample; /* its buffers, in one */
    float *host_logits;       /* of a run with other sessions; likewise */
    bool has_host_logits;     /* they are the last token's, and 'last' is NULL */
    uint64_t *host_scratch;   /* for sampling on the CPU; likewise */
};

/* RF_E_CANCELLED where it was; asks once. */
rf_status rf_session_take_cancel(struct rf_session *session);
/* The runner for a shape, made if need be. Borrowed until the next call. */
rf_status rf_session_runner(struct rf_session *session, const struct rf_graph_shape *shape, struct rf_runner **out);

#endif
