/* An engine's inside: a model file, what is where, and the caches that sessions share.
 *
 * Placement is by layer: the last 'device_layers' layers and the output are on the device, the rest on the CPU; the
 * embedding is on the device only where all layers are. Weights on the CPU are the mapped file itself; on the device
 * they are a read-only copy. A layer's cache lies where the layer runs, or, for a layer on the device, in pinned host
 * memory that its kernels reach. A cache is made of pages; session slot s owns pages s * table_width to
 * (s + 1) * table_width - 1 of every layer.
 *
 * While sessions run, the placement changes in steps (ladder.c). The gate keeps the two apart: whoever uses the
 * placement, a runner or a session's logits holds it shared; a step holds it exclusively, and may then touch what
 * belongs to any session.
 *
 * Invariants:
 *   1. what is under "placement" changes only while the engine is opened or with the gate held exclusively; the slots
 *      are guarded by the mutex; all else is immutable once the engine is open, or atomic
 *   2. a runner's bindings are of the present placement: a step destroys all runners before it moves anything
 *   3. nobody takes the gate twice, or calls the user's functions while he holds it
 * ladder.c checks 2 before each move. 1 and 3 are about who holds a lock, which a lock does not tell: the thread
 * sanitizer sees a breach of 1, and a breach of 3 would hang the tests of tests/infer/test_ladder.c. */
#ifndef RF_INFER_ENGINE_IMPL_H
#define RF_INFER_ENGINE_IMPL_H

#include <rocmforge/infer.h>

#include "base/base.h"
#include "infer/arch.h"

enum { RF_PAGE_ROWS = 256, RF_BATCH_DEFAULT = 512, RF_RUNNERS_MAX = 6 };

/* A weight on the device. */
struct rf_weight_home {
    const struct rf_gguf_tensor *tensor;
    struct rf_buffer *buffer; /* borrowed: of a group */
    uint64_t offset;
};

/* A layer's cache: keys, and from the middle on values. One of three: memory of the device (buffer alone), pinned
 * host memory and a buffer over it (both), ordinary host memory. */
struct rf_layer_cache {
    struct rf_buffer *buffer;
    struct rf_pinned *pinned;
    void *host;
};

struct rf_engine {
    struct rf_runtime *runtime;
    struct rf_gguf *gguf;
    struct rf_hparams hparams;
    struct rf_tokenizer *tokenizer;     /* NULL: none */
    char *chat_template;                /* NULL: none */
    struct rf_device *device;           /* NULL: the CPU alone */
    bool integrated;                    /* its memory is the host's */
    char device_name[160], notice[640]; /* the notice is of the opening */
    bool refused;                       /* a device was there, and had no room for anything */

    uint32_t context, batch, table_width, page_count;
    enum rf_kv_type kv;
    enum rf_dtype kv_dtype;
    unsigned threads;
    char simd[16]; /* "": the best */
    bool replay;
    uint64_t *group_bytes; /* [group]: of its weights, wherever they are */
    size_t group_count;

    /* placement */
    uint32_t device_layers;
    uint32_t target_layers;           /* on the device where there is room */
    struct rf_buffer **group_buffers; /* [group]: weights on the device */
    struct rf_weight_home *homes;
    size_t home_count;
    struct rf_layer_cache *caches; /* [layer] */
    uint64_t device_weight_bytes, host_weight_bytes;
    uint64_t device_kv_bytes, pinned_kv_bytes, plain_kv_bytes;
    uint64_t epoch; /* of the placement */

    pthread_rwlock_t gate;
    struct rf_ladder {
        int64_t watch_ns;          /* between looks at the memory; negative: never */
        _Atomic int64_t looked_ns; /* when last */
        _Atomic uint32_t runs;     /* since the last step */
        uint32_t hold_runs;        /* before a step up */
        uint32_t stuck_runs;       /* before another step down, where the last one moved nothing */
        bool rose;                 /* the last step was one up */
        uint64_t down, up;         /* steps so far */
    } ladder;

    /* Prompts on a device that something else must stay smooth on. */
    int64_t kernel_ns; /* no kernel should take longer; 0: any */
    struct rf_pace {
        _Atomic uint32_t chunk, least; /* tokens at a time, as measured; fewer do not help */
        _Atomic uint32_t long_count;   /* the last that took too long, and what it took */
        _Atomic int64_t long_ns;
    } pace;
    unsigned duty_percent;   /* of the time that the device may be busy */
    _Atomic int64_t idle_ns; /* it was left so far */

    pthread_mutex_t mutex;        /* the slots */
    struct rf_session **sessions; /* [slot], NULL: free */
    uint32_t slot_count, open_sessions;
};

/* ---- what is where (engine_memory.c) ---- */

/* The groups' sizes, when the file was read. */
rf_status rf_engine_measure(struct rf_engine *engine);
/* Allocates and uploads so many layers; RF_E_BUDGET: they do not fit, nothing is held then. */
rf_status rf_engine_place(struct rf_engine *engine, uint32_t device_layers, const struct rf_engine_params *params);
void rf_engine_release(struct rf_engine *engine);
/* Bytes of a group's weights; of a layer's two caches for so many tokens; of a layer's caches as they are. */
uint64_t rf_engine_group_bytes(const struct rf_engine *engine, int group);
uint64_t rf_engine_cache_bytes(const struct rf_engine *engine, uint64_t tokens);
uint64_t rf_engine_layer_cache_bytes(const struct rf_engine *engine);
bool rf_engine_on_device(const struct rf_engine *engine, int group);
/* What a run of a prompt's chunk needs besides weights and caches, roughly. */
uint64_t rf_engine_scratch_bytes(const struct rf_engine *engine);
static inline uint32_t rf_engine_first_device_layer(const struct rf_engine *engine) {
    return engine->hparams.layers - engine->device_layers;
}

/* Single moves; the gate is held exclusively and no runner is left. One that fails changes nothing. */

/* The next layer goes to the device, its weights and what belongs to them; a cache in ordinary memory too. */
rf_status rf_engine_raise_layer(struct rf_engine *engine);
uint64_t rf_engine_raise_bytes(const struct rf_engine *engine); /* what that takes of the device */
/* The first layer on the device goes to the CPU: its weights are dropped, its cache goes to the host. */
rf_status rf_engine_lower_layer(struct rf_engine *engine);
/* A layer's cache to pinned memory, and back. */
rf_status rf_engine_lower_cache(struct rf_engine *engine, uint32_t layer);
rf_status rf_engine_raise_cache(struct rf_engine *engine, uint32_t layer);

/* ---- the ladder (ladder.c) ---- */

rf_status rf_ladder_init(struct rf_engine *engine, const struct rf_engine_params *params);
/* Around all that uses placement, runners or logits. enter looks at the device's memory if it is time to, and makes
 * the step that is due first. */
void rf_ladder_enter(struct rf_engine *engine);
void rf_ladder_leave(struct rf_engine *engine);
/* A look without its turn being due is not made: for what must be quick. */
void rf_ladder_enter_quietly(struct rf_engine *engine);
/* After a refusal in a run of that epoch, outside: gives back what is least needed, or sees that another thread moved
 * something meanwhile; false: there is nothing more. */
bool rf_ladder_relieve(struct rf_engine *engine, uint64_t epoch);

/* The budget, or the GPU itself, has no room: something smaller may fit. */
static inline bool rf_is_full(rf_status status) {
    return status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY;
}

/* A graph of one shape and its executor. */
struct rf_runner {
    struct rf_graph_shape shape;
    struct rf_model_graph model;
    struct rf_binder *binder; /* runner.c */
    struct rf_executor *executor;
    uint64_t used; /* when last; for the cache */
    bool timed;    /* its runs take the time of their nodes */
};
/* session: whose cancel ends its runs; NULL: nobody's. */
rf_status rf_runner_create(struct rf_engine *engine, struct rf_session *session, const struct rf_graph_shape *shape,
                           struct rf_runner *out);
void rf_runner_destroy(struct rf_runner *runner);

struct rf_session {
    struct rf_engine *engine;
    uint32_t slot;
    int32_t *tokens; /* [context]: those held */
    uint32_t length;
    atomic_bool cancelled;
    struct rf_session *const *together; /* while a run is for several: they, and how many */
    size_t together_count;

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

/* Destroys runners, all or all but the one used last; logits of a token that lie in one are kept on the host. The
 * gate is held exclusively. */
void rf_session_retire(struct rf_session *session, bool all);
/* The last token's logits to the host, if they are not there; RF_OK where there are none. */
rf_status rf_session_keep_logits(struct rf_session *session);
/* RF_E_CANCELLED where it was; asks once. */
rf_status rf_session_take_cancel(struct rf_session *session);
/* Whether the run that is under way should end: as rf_executor_params.stop, of the session whose runner it is. */
bool rf_session_stops(void *session);
/* The runner for a shape, made if need be. Borrowed until the next call. */
rf_status rf_session_runner(struct rf_session *session, const struct rf_graph_shape *shape, struct rf_runner **out);

#endif
