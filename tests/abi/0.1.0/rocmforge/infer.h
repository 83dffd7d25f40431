/* ROCmForge: inference. An engine is a loaded model; a session is one timeline of tokens.
 *
 * Threads: an engine may be shared by any number of threads. A session belongs to one thread at a time, but
 * rf_session_cancel may be called from any. Sessions of one engine do not disturb each other: a session's results are
 * the same bits as if it ran alone, as long as no layer has to move from the device to the CPU or back. */
#ifndef ROCMFORGE_INFER_H
#define ROCMFORGE_INFER_H

#include <rocmforge/gpu.h>
#include <rocmforge/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the engine ------------------------------------------------------------------------------------ */

struct rf_engine;
enum rf_kv_type { RF_KV_F16, RF_KV_F32, RF_KV_Q8_0 };

struct rf_engine_params {
    size_t struct_size;
    struct rf_runtime *runtime; /* borrowed until the engine is closed */
    const char *model;          /* a GGUF file; of a split one any part */
    const char *device;         /* "auto" (NULL), "cpu", "gpu", an index or part of a name */
    const char *budget;         /* of the device; NULL: RF_BUDGET */
    uint32_t context;           /* tokens a session can hold; 0: the model's own, or what memory allows */
    uint32_t sessions;          /* that may be open at once, each with a whole context; 0: 1 */
    enum rf_kv_type kv;
    uint32_t device_layers; /* layers on the device, the last ones; 0: as many as fit. RF_E_BUDGET where a number does
                               not fit */
    unsigned threads;       /* of the CPU; 0: RF_THREADS, else one per usable core */
    const char *simd;       /* of the CPU; NULL: the best */
    uint32_t batch;         /* tokens of a prompt at a time; 0: 512 */
    bool no_replay;         /* submit each node anew instead of replaying a recording */
    /* How often, at most, the device's free memory is looked at between runs; 0: every 20 ms; 1: before each run;
     * negative: never, and what was placed stays where it is. */
    int64_t watch_ns;
    /* A prompt's parts are made so small that no kernel takes longer than this on the device; 0: 8 where it drives a
     * display, else any time is right; negative: any time is right. */
    int32_t kernel_ms;
    uint32_t
        duty_percent; /* of the time that the device may be busy; after each run it is left alone so long; 0: 100 */
    /* While loading; false cancels (RF_E_CANCELLED). NULL: none. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    bool plan_only; /* decide what would go where and load nothing: for rf_engine_get_info; it has no sessions */
};
/* RF_E_NOT_FOUND, RF_E_IO, RF_E_SYNTAX: the file. RF_E_UNSUPPORTED: an architecture (named, with those supported) or
 * a tensor type. RF_E_BUDGET: it fits nowhere. Without a device it runs on the CPU. */
RF_API rf_status rf_engine_open(const struct rf_engine_params *params, struct rf_engine **out);
/* RF_E_BUSY: a session is open. */
RF_API rf_status rf_engine_close(struct rf_engine **engine);

struct rf_engine_info {
    size_t struct_size;
    const char *architecture, *name; /* borrowed until it is closed */
    const char *device;              /* "NVIDIA H200", "CPU, avx512, 2 threads" */
    const char *chat_template;       /* as the file spells it; NULL: none */
    uint64_t parameter_count, weight_bytes;
    uint32_t layers, width, heads, kv_heads, head_width, feed_forward, vocabulary;
    uint32_t context, trained_context;
    uint32_t device_layers; /* on the device; the others run on the CPU */
    uint64_t device_weight_bytes, host_weight_bytes, device_kv_bytes, host_kv_bytes;
    enum rf_kv_type kv;
    bool degraded; /* less is on the device than could be: see rf_engine_notice */
    /* Of the device; 0 where none is used. */
    uint64_t budget_bytes;
    uint64_t driver_bytes;  /* the driver's own: context, kernels, recordings */
    uint64_t scratch_bytes; /* what a run needs besides, roughly */
    /* Of the layers and the output that run on the CPU although there is a device: each token reads them there. */
    uint64_t spilled_weight_bytes;
    /* Where things are may change while sessions run (device_layers and the bytes are of now): */
    uint32_t device_kv_layers;     /* of those on the device, how many have their cache there too */
    uint64_t pinned_kv_bytes;      /* of host_kv_bytes: caches of layers that are, or were, on the device */
    uint64_t steps_down, steps_up; /* layers and caches that were moved */
    uint32_t batch;                /* tokens of a prompt at a time */
    int64_t idle_ns;               /* the device was left alone for duty_percent */
    /* Of the host, and what is taken of it by all that the runtime has; the mapped file is not counted. */
    uint64_t host_budget_bytes, host_used_bytes;
};
RF_API rf_status rf_engine_get_info(const struct rf_engine *engine, struct rf_engine_info *info);
/* One line on what did not fit and what it costs; "" where all did. Borrowed until it is closed. */
RF_API const char *rf_engine_notice(const struct rf_engine *engine);
/* NULL: the file has no vocabulary. Borrowed until the engine is closed. */
RF_API const struct rf_tokenizer *rf_engine_tokenizer(const struct rf_engine *engine);

/* ---- a session --------------------------------------------------------------------------------------- */

struct rf_session;
/* RF_E_BUDGET: as many are open as the engine has caches for. */
RF_API rf_status rf_session_create(struct rf_engine *engine, struct rf_session **out);
RF_API void rf_session_destroy(struct rf_session **session);
/* Tokens held so far. */
RF_API uint32_t rf_session_length(const struct rf_session *session);
/* Forgets all but the first 'length' tokens. RF_E_INVALID: there are fewer. */
RF_API rf_status rf_session_rewind(struct rf_session *session, uint32_t length);
/* How many tokens these and what the session holds have in common at the start; for prefix reuse. */
RF_API uint32_t rf_session_common(const struct rf_session *session, const int32_t *tokens, size_t count);
/* Stops what the session is doing, also in the middle of a prompt's part: before the next operation on the CPU, or
 * when what the GPU was given is done. It returns RF_E_CANCELLED and holds the tokens that were complete; there may
 * be no logits to sample from then. Where it is doing nothing, the next evaluation or generation is stopped before it
 * begins. Any thread, and from a signal's handler too. */
RF_API void rf_session_cancel(struct rf_session *session);

/* Appends tokens. logits may be NULL; all: a row of 'vocabulary' floats for each token, else one row, for the last.
 * RF_E_INVALID: a token out of range, or more than the context holds: the session is unchanged. */
RF_API rf_status rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all,
                                 float *logits);
/* The same for one token each of several sessions of one engine, together; logits: a row each, or NULL. It runs
 * another shape than rf_session_eval does, so the last bits may differ. A session that was cancelled cancels it for
 * all; on failure all are unchanged, but have no logits to sample from. */
RF_API rf_status rf_sessions_eval(struct rf_session *const *sessions, const int32_t *tokens, size_t count,
                                  float *logits);

/* ---- sampling and generating -------------------------------------------------------------------------- */

struct rf_sample_params {
    size_t struct_size;
    float temperature;       /* 0: the best token */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 0 or 1: off */
    float min_p;             /* 0: off */
    float penalty;           /* of tokens among the last 'penalty_window'; 0 or 1: off */
    uint32_t penalty_window; /* at most 4096 */
    uint64_t seed;
};
/* A token by the logits of the last token evaluated, on the device if they are there; the same token everywhere for
 * the same logits, parameters and number of tokens held. */
RF_API rf_status rf_session_sample(struct rf_session *session, const struct rf_sample_params *params, int32_t *token);

struct rf_generate_params {
    size_t struct_size;
    struct rf_sample_params sampling;
    uint32_t max_tokens;      /* of the whole answer, with those said before; 0: to the end of the context */
    const char *const *stops; /* texts that end it; not part of the answer */
    size_t stop_count;
    bool ignore_end; /* go on after tokens that end a text */
    /* Whole UTF-8 sequences as they come; false stops. */
    bool (*text)(void *user, const char *text, size_t bytes);
    bool (*token)(void *user, int32_t token);
    void *user;
    /* To go on with an answer that a failure broke off, with the same session or one of another engine: the tokens
     * that were given out, which the session ends with (evaluate them behind the prompt), and how many bytes of text
     * were. What follows is what would have followed: characters and stop texts may lie across the seam; tokens that
     * were given out and whose text was not give it now. Where max_tokens were said already nothing is sampled, and
     * the session need not hold them. RF_E_INVALID: the session ends otherwise, or the tokens give less text. */
    const int32_t *said;
    size_t said_count, said_bytes;
};
enum rf_end { RF_END_LENGTH, RF_END_TOKEN, RF_END_STOP, RF_END_CALLER, RF_END_CONTEXT };
struct rf_generate_result {
    enum rf_end end;
    uint32_t tokens;           /* those said before are not counted */
    int64_t first_ns, rest_ns; /* to the first token, and for the others */
};
/* From the tokens held (at least one, evaluated last: the answer begins with its logits). The last token sampled is
 * given out but not held. On failure the result counts what was given out; text that was held back, half a character
 * or what could begin a stop text, is given out when the answer ends, by RF_E_CANCELLED too, but not after any other
 * failure: see rf_generate_params.said. */
RF_API rf_status rf_session_generate(struct rf_session *session, const struct rf_generate_params *params,
                                     struct rf_generate_result *result);

/* ---- chat ----------------------------------------------------------------------------------------------- */

enum rf_chat_format { RF_CHAT_NONE, RF_CHAT_CHATML, RF_CHAT_LLAMA2, RF_CHAT_LLAMA3, RF_CHAT_MISTRAL };
/* By the template in the model's metadata, or by the tokens it has; NONE: not recognised. */
RF_API enum rf_chat_format rf_engine_chat_format(const struct rf_engine *engine);
RF_API const char *rf_chat_format_name(enum rf_chat_format format);
enum rf_chat_role { RF_CHAT_SYSTEM, RF_CHAT_USER, RF_CHAT_ASSISTANT };
struct rf_chat_message {
    enum rf_chat_role role;
    const char *text;
};
/* Token ids of a conversation, with the beginning of the answer that is to come; to be given back with
 * rf_token_ids_destroy. What is in the messages is never taken for a control token. */
RF_API rf_status rf_chat_encode(const struct rf_engine *engine, enum rf_chat_format format,
                                const struct rf_chat_message *messages, size_t count, int32_t **ids,
                                size_t *id_count);

#ifdef __cplusplus
}
#endif
#endif
