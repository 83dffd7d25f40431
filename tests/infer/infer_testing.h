/* What the tests of inference share: an engine with a runtime of its own, models made for it, and scripted models
 * that generate a given text. */
#ifndef INFER_TESTING_H
#define INFER_TESTING_H

#include <rocmforge/infer.h>
#include <rocmforge/test.h>

#include "../gpu/gpu_testing.h"
#include "arch_testing.h"
#include "base/base.h"
#include "gguf_testing.h"

/* ---- an engine ---- */

/* Where the engine runs; zeros mean the CPU at its best SIMD level. */
struct where {
    const char *label;
    const char *simd;  /* the CPU's SIMD level */
    const char *rfsim; /* not NULL: on a GPU, with these RFSIM settings if it is simulated */
    uint32_t device_layers;
    bool no_replay;
};
struct infer {
    struct gpu gpu; /* the runtime; its device and queue are not used */
    struct rf_engine *engine;
    uint32_t vocabulary;
};
/* Skips the test if this machine does not have that place. */
void infer_need(const struct where *where);
/* params: model, context, kv and any other member that is not zero; runtime, device and the like are set here. */
void infer_open(struct infer *infer, const struct where *where, const struct rf_engine_params *params);
rf_status infer_try_open(struct infer *infer, const struct where *where, const struct rf_engine_params *params);
void infer_close(struct infer *infer); /* asserts that nothing is left */

struct rf_engine_info infer_info(const struct infer *infer);
struct rf_session *infer_session(struct infer *infer);
float *infer_rows(const struct infer *infer, size_t rows); /* the caller frees */
/* Writes the file of a spec to this process's folder. The path is borrowed until a few more files were asked for. */
const char *infer_model(const struct spec *spec, const char *name);

/* ---- a scripted model ---- */

/* A vocabulary and, for each token, the one that follows it, whatever came before: the logits of token t are highest
 * at next[t]. A zero-initialised script is empty. */
enum { SCRIPT_TOKENS = 352 };
struct script {
    bool bytes_as_letters; /* gpt2: each byte is spelt as a letter; otherwise llama: "<0x41>" */
    char texts[SCRIPT_TOKENS][40];
    int32_t types[SCRIPT_TOKENS];
    int32_t next[SCRIPT_TOKENS];
    int32_t count;
    int32_t bos, eos;       /* -1: none */
    const char *pre;        /* pre-tokenizer of gpt2 */
    const char *merges[16]; /* merges of gpt2, as files spell them; ended by NULL */
    const char *chat_template;
    bool no_bos;
};
/* <unk>, <s>, </s>, then the 256 bytes, then "▁" (llama) as ids 0, 1, 2, 3 + byte, 259. All are followed by </s>. */
void script_begin(struct script *script, bool bytes_as_letters);
/* The same as the vocabulary of a model that is being written: struct spec.more. */
void script_add_bytes(struct rf_gguf_writer *writer);
int32_t script_add(struct script *script, const char *text, enum rf_token_type type);
int32_t script_byte(int byte);
/* Scripts the bytes of a text, each of which occurs once, to follow each other, then 'end'; 'first' is followed by
 * the text. */
void script_say(struct script *script, int32_t first, const char *text, int32_t end);
void script_write(const struct script *script, const char *path);

#endif
