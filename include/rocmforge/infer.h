/* ROCmForge: inference. An engine is a loaded model; a session is one timeline of tokens.
 *
 * Threads: an engine may be shared by any number of threads. A session belongs to one thread at a time, but
 * rf_session_cancel may be called from any. Sessions of one engine do not disturb each other: a session's results are
 * the same bits as if it ran alone, as long as no layer has to move from the device to the CPU or back. */
#ifndef ROCMFORGE_INFER_H
#define ROCMFORGE_INFER_H

#include <rocmforge/chat.h>
#include <rocmforge/gpu.h>
#include <rocmforge/grammar.h>
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
    const char *model;          /* a GGUF file; any part of a split one */
    const char *device;         /* "auto" (NULL), "cpu", "gpu", an index or part of a name */
    const char *budget;         /* of the device; NULL: RF_BUDGET */
    uint32_t context;           /* tokens a session can hold; 0: the model's own, or what memory allows */
    uint32_t sessions;          /* how many may be open at once, each with a whole context; 0: 1 */
    enum rf_kv_type kv;
    uint32_t device_layers; /* how many of the last layers are offloaded to the device; 0: as many as fit. RF_E_BUDGET
                               if a given number does not fit */
    unsigned threads;       /* of the CPU; 0: RF_THREADS, else one per usable core */
    const char *simd;       /* of the CPU; NULL: the best */
    uint32_t batch;         /* how many tokens of a prompt are evaluated at a time; 0: 512, or on a device up to 4096
                               where there is room for it */
    bool no_replay;         /* submit each node anew instead of replaying a recording */
    /* How often, at most, the engine reads the device's free memory between runs, in nanoseconds; 0: every 20 ms; 1:
     * before each run; negative: never, and layers and KV caches stay where they were placed. */
    int64_t watch_ns;
    /* A prompt is evaluated in parts so small that no kernel takes longer than this on the device, in milliseconds;
     * 0: 8 where the device drives a display, else no limit; negative: no limit. */
    int32_t kernel_ms;
    uint32_t duty_percent; /* the share of time the device may be busy: it is left idle after each run; 0: 100 */
    /* Called while weights are loaded; false cancels (RF_E_CANCELLED). NULL: none. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    bool plan_only; /* plan the placement, for rf_engine_get_info, and load nothing; no session can be created */
};
/* RF_E_NOT_FOUND, RF_E_IO, RF_E_SYNTAX: the file. RF_E_UNSUPPORTED: an architecture (named, with those supported) or
 * a tensor type. RF_E_BUDGET: the model fits nowhere. Without a device the engine runs on the CPU. */
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
    bool degraded; /* layers or KV caches that could be on the device are not: see rf_engine_notice */
    /* The next three are figures of the device; 0 where none is used. */
    uint64_t budget_bytes;
    uint64_t driver_bytes;  /* the driver's own: context, kernels, recordings */
    uint64_t scratch_bytes; /* what a run needs in addition, estimated */
    /* Weights of the layers and the output that run on the CPU although there is a device; each token reads them. */
    uint64_t spilled_weight_bytes;
    /* The placement may change while sessions run; device_layers and the bytes say how it is now. */
    uint32_t device_kv_layers;     /* how many of the layers on the device have their KV cache there too */
    uint64_t pinned_kv_bytes;      /* of host_kv_bytes: KV caches of layers that are, or were, on the device */
    uint64_t steps_down, steps_up; /* how many layers and KV caches were moved to the host, and back */
    uint32_t batch;                /* how many tokens of a prompt are evaluated at a time, at most, at present */
    int64_t idle_ns;               /* for how long the device was left idle, by duty_percent */
    /* The host's budget, and what all objects of the runtime take of it now: everything larger than a page that the
     * library keeps in host memory. A run takes more, and keeps it for the next. The mapped file is not counted, and
     * neither is a plan (plan_only) itself. */
    uint64_t host_budget_bytes, host_used_bytes;
};
RF_API rf_status rf_engine_get_info(const struct rf_engine *engine, struct rf_engine_info *info);
/* One line that says what did not fit and what that costs; "" where everything fits. Borrowed until it is closed. */
RF_API const char *rf_engine_notice(const struct rf_engine *engine);
/* NULL: the file has no vocabulary. Borrowed until the engine is closed. */
RF_API const struct rf_tokenizer *rf_engine_tokenizer(const struct rf_engine *engine);

/* ---- a session --------------------------------------------------------------------------------------- */

struct rf_session;
/* RF_E_BUDGET: as many sessions are open as the engine has KV caches for. */
RF_API rf_status rf_session_create(struct rf_engine *engine, struct rf_session **out);
RF_API void rf_session_destroy(struct rf_session **session);
/* How many tokens the session holds. */
RF_API uint32_t rf_session_length(const struct rf_session *session);
/* Forgets all but the first 'length' tokens. RF_E_INVALID: the session holds fewer. RF_E_TIMEOUT: a generation ended
 * because the device did not finish by the deadline, and it still has not. */
RF_API rf_status rf_session_rewind(struct rf_session *session, uint32_t length);
/* How many tokens at the start are the same in this array and in the session; for prefix reuse. */
RF_API uint32_t rf_session_common(const struct rf_session *session, const int32_t *tokens, size_t count);
/* Stops what the session is doing, also in the middle of a part of a prompt: before the next operation on the CPU, or
 * when the work that the GPU was given is done. The call that was stopped returns RF_E_CANCELLED, and the session
 * holds the tokens that were complete; there may be no logits to sample from then. Where the session is doing
 * nothing, its next evaluation or generation is stopped before it begins. Any thread may call it, and so may a signal
 * handler. */
RF_API void rf_session_cancel(struct rf_session *session);

/* Appends tokens. logits may be NULL; otherwise it receives rows of 'vocabulary' floats: with 'all' one row for each
 * token, else one row for the last token. RF_E_INVALID: a token is out of range, or there are more than the context
 * holds; the session is unchanged. */
RF_API rf_status rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all,
                                 float *logits);
/* Appends one token to each of several sessions of one engine, in one run. logits: a row for each session, or NULL.
 * The run has another shape than that of rf_session_eval, so the last bits may differ. Where one of the sessions was
 * cancelled, the call is cancelled for all. On failure all are unchanged, but have no logits to sample from. */
RF_API rf_status rf_sessions_eval(struct rf_session *const *sessions, const int32_t *tokens, size_t count,
                                  float *logits);

/* Writes the session's tokens, KV cache and logits to a file, of a format of its own, and reads them back, in place
 * of what the session holds: then it goes on as the one that was saved would have. A file is for the model, and the
 * type of KV cache, that it was saved with; where the layers are does not matter. An existing file is replaced when
 * the new one is complete, and only its owner may read it: what was said is in it.
 *
 * RF_E_NOT_FOUND, RF_E_IO: the file or folder. RF_E_CORRUPT: the file is damaged, or none of these. RF_E_UNSUPPORTED:
 * it is of another version. RF_E_INVALID: another model or type of KV cache, or more tokens than the context holds.
 * The session is unchanged then. If the device fails, or the file changes, in the middle, it is left empty. */
RF_API rf_status rf_session_save(struct rf_session *session, const char *path);
RF_API rf_status rf_session_load(struct rf_session *session, const char *path);

/* ---- sampling and generating -------------------------------------------------------------------------- */

/* Frozen. */
struct rf_token_bias {
    int32_t token;
    float bias;
};
struct rf_sample_params {
    size_t struct_size;
    float temperature;       /* 0: the best token */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 0 or 1: off */
    float min_p;             /* 0: off */
    float penalty;           /* for tokens among the last 'penalty_window' ones; 0 or 1: off */
    uint32_t penalty_window; /* at most 4096 */
    uint64_t seed;
    /* Subtracted from the logits of tokens among the last 'penalty_window' ones: presence once, frequency for each
     * time that the token occurs. 0: off. */
    float presence, frequency;
    const struct rf_token_bias *biases; /* added to the logits of tokens; each token once, at most 1024 */
    size_t bias_count;
    /* A bit for each token of the vocabulary, the lowest of a word first: without it the token is never drawn. Read
     * whenever a token is drawn. NULL: all are allowed. */
    const uint32_t *allowed;
};
/* Samples a token from the logits of the last token evaluated, on the device if they are there. The same logits,
 * parameters and number of tokens held give the same token everywhere. params may be NULL: the best token.
 * RF_E_CORRUPT: the logits are not numbers, because the model is damaged or the device computes wrongly: a single one
 * that is NaN or +inf is enough. RF_E_INVALID: the parameters make no sense, or none of the allowed tokens can be
 * drawn. -inf is a number here, a token that is never drawn, unless all of them are -inf.
 * After a generation that was ended early the last token may have to be evaluated once more: then it can fail as
 * rf_session_eval does. */
RF_API rf_status rf_session_sample(struct rf_session *session, const struct rf_sample_params *params, int32_t *token);

struct rf_generate_params {
    size_t struct_size;
    uint64_t reserved[5];     /* leave it 0; programs built for 0.1.0 have their sampling parameters here */
    uint32_t max_tokens;      /* of the whole generation, those in 'said' included; 0: to the end of the context */
    const char *const *stops; /* texts that end the generation and are not part of it */
    size_t stop_count;
    bool ignore_end; /* go on after tokens that end a text */
    /* Called with text as it is generated, in whole UTF-8 sequences, and with each token; false ends the generation.
     */
    bool (*text)(void *user, const char *text, size_t bytes);
    bool (*token)(void *user, int32_t token);
    void *user;
    /* To resume a generation that a failure interrupted, with the same session or one of another engine: the tokens
     * that were passed to 'token', which the session must end with (evaluate them after the prompt), and how many
     * bytes were passed to 'text'. The generation continues as it would have: characters and stop texts may span the
     * interruption, and text that was not passed on yet comes first. Where max_tokens were generated already nothing
     * is sampled, and the session need not hold them. RF_E_INVALID: the session ends with other tokens, or they give
     * less text. */
    const int32_t *said;
    size_t said_count, said_bytes;
    const struct rf_sample_params *sampling; /* borrowed for the call; NULL: always the best token */
    bool show_special; /* control tokens are part of the text, as the vocabulary spells them: for rf_chat_reader */
    /* The text follows this grammar, which is borrowed for the call; NULL: any text. With 'grammar_after' it does so
     * behind the first place where this text was generated (the end of the reasoning; control tokens count as the
     * vocabulary spells them), and may be anything before; at most 256 bytes. With 'ignore_end' no token ends the
     * text. A mask of allowed tokens holds too. RF_E_INVALID: no token can follow. docs/grammar.md */
    const struct rf_grammar *grammar;
    const char *grammar_after;
};
/* With a grammar only RF_END_GRAMMAR and RF_END_TOKEN mean that the text is complete. */
enum rf_end { RF_END_LENGTH, RF_END_TOKEN, RF_END_STOP, RF_END_CALLER, RF_END_CONTEXT, RF_END_GRAMMAR };
struct rf_generate_result {
    size_t struct_size;
    enum rf_end end;
    uint32_t tokens;           /* how many were generated; those in 'said' are not counted */
    int64_t first_ns, rest_ns; /* time to the first token, and for the others */
};
/* Generates tokens after those that the session holds. The session must hold at least one token; the first token is
 * sampled from the logits of the last one. The last token sampled is passed on, but the session does not hold it. On
 * failure the result counts the tokens that were passed on. Text may be held back: half a character, or what could be
 * the beginning of a stop text. It is passed on when the generation ends, also by RF_E_CANCELLED, but not after any
 * other failure: see rf_generate_params.said.
 *
 * On a GPU that has the whole model, up to two tokens are computed ahead of those that were passed on. They do not
 * count: not in the result, not in the session, and what ends the generation drops them. */
RF_API rf_status rf_session_generate_sized(struct rf_session *session, const struct rf_generate_params *params,
                                           struct rf_generate_result *result);
/* Programs call rf_session_generate. The library also exports a function of that name, for programs that were built
 * for 0.1.0, whose result had no struct_size; the macro keeps new programs from it. */
#define rf_session_generate rf_session_generate_sized

/* ---- chat ----------------------------------------------------------------------------------------------- */

enum rf_chat_format { RF_CHAT_NONE, RF_CHAT_CHATML, RF_CHAT_LLAMA2, RF_CHAT_LLAMA3, RF_CHAT_MISTRAL };
/* The built-in formats are for files without a chat template: then the format is recognised by the tokens of the
 * vocabulary. NONE: not recognised, or the file has a template (rf_engine_info.chat_template): render that with
 * rf_chat_render. */
RF_API enum rf_chat_format rf_engine_chat_format(const struct rf_engine *engine);
RF_API const char *rf_chat_format_name(enum rf_chat_format format);
/* rf_chat_encode(engine, format, messages, count, &ids, &id_count): gives the token ids of a conversation, followed
 * by the beginning of the assistant's next message; destroy them with rf_token_ids_destroy. Text in the messages is
 * never taken for a control token. The macro passes the size of a message, as struct_size would for each; zero the
 * messages before setting their fields. (The library also exports a function rf_chat_encode, for programs built for
 * 0.1.0.) */
RF_API rf_status rf_chat_encode_sized(size_t message_bytes, const struct rf_engine *engine,
                                      enum rf_chat_format format, const struct rf_chat_message *messages,
                                      size_t count, int32_t **ids, size_t *id_count);
#define rf_chat_encode(...) rf_chat_encode_sized(sizeof(struct rf_chat_message), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
