/* The internals of an engine: a model file, the placement of its weights, and the KV caches that sessions share.
 *
 * Placement is by layer: the last 'device_layers' layers and the output are on the device, the rest on the CPU; the
 * embedding is on the device only if all layers are. Weights on the CPU are the mapped file itself; on the device
 * they are a read-only copy. A layer's cache lies where the layer runs, or, for a layer on the device, in pinned host
 * memory that its kernels can reach. A cache consists of pages; session slot s owns table_width pages of every layer,
 * from page s * table_width on.
 *
 * While sessions run, the placement changes in steps (ladder.c). The gate keeps the two apart: a thread that uses the
 * placement, a runner or a session's logits holds it shared; a step holds it exclusively, and may then touch what
 * belongs to any session.
 *
 * Invariants:
 *   1. the fields under "placement" change only while the engine is opened or with the gate held exclusively; the
 *      mutex guards the slots; everything else is immutable once the engine is open, or atomic
 *   2. a runner's bindings match the present placement: a step destroys all runners before it moves anything
 *   3. no thread takes the gate twice, or calls the user's functions while it holds the gate
 * ladder.c checks 2 before each move. 1 and 3 depend on which thread holds a lock, and a lock does not tell: the
 * thread sanitizer detects a breach of 1, and a breach of 3 would hang the tests of tests/infer/test_squeeze.c. */
#ifndef RF_INFER_ENGINE_IMPL_H
#define RF_INFER_ENGINE_IMPL_H

#include <rocmforge/grammar.h>
#include <rocmforge/infer.h>

#include "base/base.h"
#include "infer/arch.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

/* RF_BATCH_DEFAULT: tokens of a prompt that any engine evaluates at a time if memory allows; RF_BATCH_LONGEST: where
 * there is room for it on a device. */
enum { RF_PAGE_ROWS = 256, RF_BATCH_DEFAULT = 512, RF_BATCH_LONGEST = 4096, RF_RUNNERS_MAX = 6 };

/* A weight on the device. */
struct rf_weight_home {
    const struct rf_gguf_tensor *tensor;
    struct rf_buffer *buffer; /* borrowed from group_buffers */
    uint64_t offset;
};

/* A layer's cache: keys in the first half, values in the second. It is one of three kinds: device memory (only
 * buffer is set), pinned host memory with a buffer over it (pinned and buffer), or ordinary host memory (host). */
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
    struct rf_token_trie *trie;         /* of its texts, for grammars; NULL: not needed yet; guarded by the mutex */
    char *chat_template;                /* NULL: none */
    uint64_t chat_template_bytes;       /* with the zero at its end */
    struct rf_device *device;           /* NULL: the model runs on the CPU alone */
    bool integrated;                    /* the device's memory is the host's */
    bool has_units, has_gates;          /* the device has matrix units that products of many rows use, with a gate */
    char device_name[160], notice[640]; /* the notice is about opening the engine */
    bool refused;                       /* there was a device, but it had no room for anything */

    uint32_t context, table_width, page_count;
    uint32_t batch;     /* tokens of a prompt that fit into one run beside everything else */
    uint32_t longest;   /* tokens of one run where there is room for more (chunk.c); batch: never more */
    uint64_t run_bytes; /* of a run of 'batch' tokens, when it was tried; 0: not all of it was on the device */
    enum rf_kv_type kv;
    enum rf_dtype kv_dtype;
    unsigned threads;
    char simd[16]; /* "": the best level */
    bool replay;
    uint64_t *group_bytes; /* [group] bytes of its weights, wherever they are */
    size_t group_count;

    /* placement */
    uint32_t device_layers;
    uint32_t target_layers;           /* layers to have on the device when there is room */
    struct rf_buffer **group_buffers; /* [group] its weights on the device */
    struct rf_weight_home *homes;
    size_t home_count;
    struct rf_layer_cache *caches; /* [layer] */
    uint64_t device_weight_bytes, host_weight_bytes;
    uint64_t device_kv_bytes, pinned_kv_bytes, plain_kv_bytes;
    uint64_t epoch; /* of the placement: counts its changes */

    pthread_rwlock_t gate;
    struct rf_ladder {
        int64_t watch_ns;          /* between checks of the device's memory; negative: never check */
        _Atomic int64_t looked_ns; /* the time of the last check */
        _Atomic uint32_t runs;     /* runs since the last step */
        uint32_t hold_runs;        /* runs before a step up */
        uint32_t stuck_runs;       /* runs before another step down, if the last one moved nothing */
        bool rose;                 /* the last step was a step up */
        uint64_t down, up;         /* steps so far */
    } ladder;

    /* How long a prompt's chunks may take (chunk.c). A device that must stay responsive for something else, such as a
     * display, has a limit for kernels. */
    int64_t kernel_ns; /* no kernel should take longer; 0: no limit */
    struct rf_pace {
        int64_t run_ns;                /* no run should take longer, where no kernel has a limit */
        _Atomic uint32_t chunk, least; /* tokens per chunk, as measured; fewer than 'least' do not help */
        _Atomic uint32_t long_count;   /* the last chunk that took too long, and its time */
        _Atomic int64_t long_ns;
    } pace;
    unsigned duty_percent;   /* the percentage of time that the device may be busy */
    _Atomic int64_t idle_ns; /* how long the device was left idle so far */

    pthread_mutex_t mutex;        /* guards the slots */
    struct rf_session **sessions; /* [slot] NULL: free */
    uint64_t sessions_bytes;
    uint64_t plan_bytes; /* plan_only: the tables of the file, which the figures of a plan leave out; else 0 */
    uint32_t slot_count, open_sessions;
    _Atomic uint64_t long_tokens; /* the sum over all runners for more than 'batch' tokens */
};

/* The trie of the engine's vocabulary, made when it is first needed. (generate.c) */
rf_status rf_engine_trie(struct rf_engine *engine, const struct rf_token_trie **out);

/* ---- placement in memory (engine_memory.c) ---- */

/* Computes the sizes of the groups, after the file was read. */
rf_status rf_engine_measure(struct rf_engine *engine);
/* Allocates and uploads this many layers. RF_E_BUDGET: they do not fit. After any failure rf_engine_release gives
 * back what was allocated. */
rf_status rf_engine_place(struct rf_engine *engine, uint32_t device_layers, const struct rf_engine_params *params);
void rf_engine_release(struct rf_engine *engine);
/* The bytes of a group's weights; of a layer's two caches for a number of tokens; of a layer's caches at the
 * engine's size. */
uint64_t rf_engine_group_bytes(const struct rf_engine *engine, int group);
uint64_t rf_engine_cache_bytes(const struct rf_engine *engine, uint64_t tokens);
uint64_t rf_engine_layer_cache_bytes(const struct rf_engine *engine);
bool rf_engine_on_device(const struct rf_engine *engine, int group);
static inline uint32_t rf_engine_first_device_layer(const struct rf_engine *engine) {
    return engine->hparams.layers - engine->device_layers;
}

/* Single moves. The gate must be held exclusively, and no runner may be left. A move that fails changes nothing. */

/* Moves the next layer to the device: its weights, the groups that go with it, and its cache if that is in
 * ordinary memory. */
rf_status rf_engine_raise_layer(struct rf_engine *engine);
uint64_t rf_engine_raise_bytes(const struct rf_engine *engine); /* bytes that this takes on the device */
/* Moves the first layer on the device to the CPU: its weights are dropped, its cache moves to the host. */
rf_status rf_engine_lower_layer(struct rf_engine *engine);
/* Moves a layer's cache to pinned memory, and back. */
rf_status rf_engine_lower_cache(struct rf_engine *engine, uint32_t layer);
rf_status rf_engine_raise_cache(struct rf_engine *engine, uint32_t layer);

/* ---- chunks of prompts (chunk.c) ---- */

/* Decides what limits chunks, after the context was chosen. */
void rf_chunk_init(struct rf_engine *engine, const struct rf_engine_params *params);
/* How many of the wanted tokens should run at once now. held_tokens: of the runners of long chunks that make room for
 * this run. The gate is held. */
uint32_t rf_chunk_most(struct rf_engine *engine, uint32_t wanted, uint64_t held_tokens);
/* After a run of a chunk: how long it and its longest node took; longest_ns is negative if nodes were not timed. */
void rf_chunk_learn(struct rf_engine *engine, uint32_t count, int64_t run_ns, int64_t longest_ns);
/* Roughly what a run of this many tokens needs besides weights and caches. */
uint64_t rf_chunk_bytes(const struct rf_engine *engine, uint64_t tokens);
static inline uint64_t rf_engine_scratch_bytes(const struct rf_engine *engine) {
    return rf_chunk_bytes(engine, engine->batch);
}

/* ---- the ladder (ladder.c) ---- */

rf_status rf_ladder_init(struct rf_engine *engine, const struct rf_engine_params *params);
/* Must be called around everything that uses the placement, runners or logits. enter checks the device's memory if
 * a check is due; if a step is needed, enter makes it before it returns. */
void rf_ladder_enter(struct rf_engine *engine);
void rf_ladder_leave(struct rf_engine *engine);
/* As enter, but never checks the memory: for calls that must be quick. */
void rf_ladder_enter_quietly(struct rf_engine *engine);
/* Called without the gate, after a run in that epoch was refused memory: gives back what is needed least, or sees
 * that another thread moved something meanwhile. False: there is nothing more to give. */
bool rf_ladder_relieve(struct rf_engine *engine, uint64_t epoch);
/* The same for the host budget: gives back the runners that no session used last. False: the budget has no more room
 * than before. */
bool rf_ladder_relieve_host(struct rf_engine *engine);
/* Gives back the runners of long chunks, of all sessions. False: there are none. */
bool rf_ladder_relieve_long(struct rf_engine *engine);

/* The budget, or the GPU itself, has no room: something smaller may fit. A plan that does not fit the host budget
 * ends with RF_E_BUDGET too. */
static inline bool rf_is_full(rf_status status) {
    return status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY;
}
/* The same, or the host has no room. */
static inline bool rf_is_short(rf_status status) {
    return rf_is_full(status) || status == RF_E_NO_MEMORY;
}

/* A graph of one shape and its executor. */
struct rf_runner {
    struct rf_engine *engine;
    struct rf_graph_shape shape;
    struct rf_model_graph model;
    struct rf_binder *binder; /* runner.c */
    struct rf_executor *executor;
    uint64_t used;        /* the session's clock at its last use: the runner used longest ago is replaced */
    uint32_t long_tokens; /* of a long chunk, counted in the engine's; otherwise 0 */
    bool timed;           /* its runs measure the time of their nodes */
};
/* session: cancelling it ends the runner's runs; NULL: nothing cancels them. */
rf_status rf_runner_create(struct rf_engine *engine, struct rf_session *session, const struct rf_graph_shape *shape,
                           struct rf_runner *out);
void rf_runner_destroy(struct rf_runner *runner);

/* Generating ahead of the host (ahead.c): runs that each draw the next one's token are queued behind each other. */
enum { RF_AHEAD_MAX = 2 };
struct rf_ahead {
    struct rf_pinned
        *pinned; /* the ring that runs report their tokens in, and a buffer over it; NULL: not yet made */
    struct rf_buffer *ring;
    struct rf_runner
        *runner;     /* whose inputs on the device are those of the session's next run; NULL: none is ready */
    uint32_t queued; /* its runs that were submitted and whose tokens the session does not hold yet */
    uint64_t tickets[RF_AHEAD_MAX]; /* of those, by the length after the run, modulo */
    uint32_t started;               /* the session's length when the runner's inputs were written */
    bool stuck;                     /* the wait for one of the runs failed, mostly by its deadline */
    bool abandoned;                 /* runs that were given up may still be under way */
    bool refused;                   /* there was no room for such a runner in this generation, */
    bool unable;                    /* or it is no single recording, in this epoch of the placement: */
    uint64_t epoch;
};

struct rf_session {
    struct rf_engine *engine;
    /* Called once while a run of one token is under way on the device, or before it on the CPU; the gate is held.
     * NULL: nothing. */
    void (*meanwhile)(void *user);
    void *meanwhile_user;
    uint32_t slot;
    int32_t *tokens; /* [context] the tokens held */
    uint32_t length;
    atomic_bool cancelled;
    struct rf_session *const *together; /* during a run for several sessions: those sessions, and how many */
    size_t together_count;

    struct rf_runner runners[RF_RUNNERS_MAX];
    size_t runner_count;
    uint64_t clock;
    int32_t *scratch; /* inputs of a run: positions, sequences, lengths, then table rows */
    uint64_t scratch_bytes;
    float *rows; /* the logits of a run for several sessions, if the caller wants none; grown when needed */
    uint64_t rows_bytes;

    /* The logits of the last token, for sampling: */
    struct rf_runner *last; /* NULL: none */
    uint32_t last_row;
    struct rf_queue *queue;   /* for sampling on the device; created when first needed */
    struct rf_buffer *sample; /* all its buffers, in one */
    /* The last token's logits on the host, and scratch memory for sampling there. A session of an engine that runs on
     * the CPU has both from the beginning, so that neither sampling nor giving up a runner needs memory; another
     * session takes them when they are first needed. */
    float *host_logits;
    uint64_t *host_scratch;
    bool has_host_logits; /* host_logits are the last token's, and 'last' is NULL */
    /* There are none of these logits, because runs that were queued wrote over them; evaluating the last token once
     * more, by itself as it was evaluated, gives the same ones, unless a layer moved since. */
    bool evaluate_again;
    struct rf_ahead ahead;
};

/* Destroys runners: all but the one used last, those of long chunks, or all. The last token's logits are copied to
 * the host if they lie in a runner that is destroyed. The gate is held exclusively, or shared by the session's own
 * thread. wait: for runs that were submitted ahead. False: some may still be under way. */
enum rf_retire { RF_RETIRE_UNUSED, RF_RETIRE_LONG, RF_RETIRE_ALL };
bool rf_session_retire(struct rf_session *session, enum rf_retire which, bool wait);
/* Copies the last token's logits to the host, if they are not there. RF_OK if there are none. */
rf_status rf_session_keep_logits(struct rf_session *session);
/* Makes host_logits and host_scratch, if they are not there. */
rf_status rf_session_make_rows(struct rf_session *session);
/* The bytes that a session takes when it is made on an engine that runs on the CPU. */
uint64_t rf_session_host_bytes(const struct rf_engine *engine);
/* rf_session_sample with parameters that were read already. */
rf_status rf_session_draw(struct rf_session *session, const struct rf_sample_params *params, int32_t *token);
/* The sampler's arguments for one row of logits; the window has as many tokens as the parameters ask for, at most
 * RF_WINDOW_MAX. RF_E_INVALID: the parameters make no sense. */
struct rf_sample_args;
rf_status rf_session_sample_args(const struct rf_session *session, const struct rf_sample_params *params,
                                 struct rf_sample_args *args);
/* Whether drawing by these parameters needs what only the caller's memory has. */
static inline bool rf_sample_needs_host(const struct rf_sample_params *params) {
    return params->bias_count || params->allowed;
}
/* RF_E_CORRUPT for the logits of the last token. */
rf_status rf_session_refuse_logits(const struct rf_session *session, const char *what);

/* Evaluates *token and draws the token after it into *token, as rf_session_eval and rf_session_draw do. Where it can,
 * it submits runs for the tokens after that one too, but never more than 'room' runs that are not needed yet, this
 * one included: the session's length tells nothing of them. */
rf_status rf_session_next(struct rf_session *session, const struct rf_sample_params *params, uint32_t room,
                          int32_t *token);
/* Waits for the runs that were submitted ahead, and drops their tokens: at the beginning of every function that
 * changes the session or needs its logits. RF_E_TIMEOUT: they are stuck. settle is called without the gate, the
 * others with it. */
rf_status rf_ahead_settle(struct rf_session *session);
rf_status rf_ahead_drop(struct rf_session *session);
/* The same where a runner may be destroyed: what is stuck, or what nobody is to wait for, is left to itself, and the
 * next call that settles waits for it. False: there is such a run. */
bool rf_ahead_abandon(struct rf_session *session, bool wait);
void rf_ahead_destroy(struct rf_session *session);
/* RF_E_CANCELLED if the session was cancelled; this also clears the cancellation. */
rf_status rf_session_take_cancel(struct rf_session *session);
/* Whether the run that is under way should end. Used as rf_executor_params.stop, with the session that owns the
 * runner. */
bool rf_session_stops(void *session);
/* Finds the runner for a shape, or makes it. It is borrowed until the next call. */
rf_status rf_session_runner(struct rf_session *session, const struct rf_graph_shape *shape, struct rf_runner **out);
/* Destroys a runner that is no use after all. */
void rf_session_remove_runner(struct rf_session *session, struct rf_runner *runner);
/* The shape of a run of this many tokens after those that the session holds. */
struct rf_graph_shape rf_session_shape(const struct rf_session *session, uint32_t count);
/* Writes the five inputs of such a run. */
rf_status rf_session_write_inputs(struct rf_session *session, struct rf_runner *runner, const int32_t *tokens,
                                  uint32_t count);
/* The last token has no logits any more. */
void rf_session_forget_logits(struct rf_session *session);
/* After a run: if it was stopped it was cancelled, and this consumes the cancellation. */
rf_status rf_session_take_cancels(struct rf_session *const *sessions, size_t count, rf_status status);
/* After the device was busy for busy_ns, leaves it idle for the rest of its duty cycle. A cancelled session does not
 * wait. */
void rf_session_rest(const struct rf_session *session, int64_t busy_ns);

#endif
