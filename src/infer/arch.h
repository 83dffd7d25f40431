/* Architectures: from a model file's metadata to numbers, and from numbers to a graph.
 *
 * One short file each (arch_llama.c, arch_qwen2.c, arch_qwen3.c); the table is in arch.c. A graph computes some
 * tokens of one session, or one token each of several (batch). All graphs of a model share weights and caches through
 * bindings: a constant is named as the file's tensor, a state "cache_k.N" or "cache_v.N".
 *
 * Inputs of a graph (i32 unless said): tokens [n], positions [n], sequences [n] (row of the table), table [s, width]
 * (pages of each sequence), lengths [s] (tokens held, these included). A graph has all five. A token whose position
 * is negative is left out of the caches; one of no sequence (-1) likewise. Constant "rope_steps" (as I32 pairs of
 * u64), and where the file has factors they are in it already. Output: "logits" f32 [rows, vocabulary]. A layer's
 * result is "blk.N", of the last layer in the wanted rows only. Groups: 1 is the embedding, 2 + N layer N, 2 + layers
 * the output: a group is placed on one backend. */
#ifndef RF_MODEL_ARCH_H
#define RF_MODEL_ARCH_H

#include <rocmforge/graph.h>

#include "gguf/gguf.h"

enum { RF_ROPE_PAIRS_MAX = 128 }; /* attention takes heads of up to twice this */

struct rf_hparams {
    const struct rf_arch *arch;
    char name[128];
    uint32_t layers, width, heads, kv_heads, head_width, value_width, feed_forward, vocabulary, trained_context;
    float norm_epsilon;
    /* rotation */
    uint32_t rotated;
    bool rope_halves; /* pairs are i and i + rotated / 2 (NEOX); else neighbours */
    double rope_base, rope_scale;
    double rope_extension, rope_attention, rope_beta_fast, rope_beta_slow;
    uint32_t rope_original_context;
    uint64_t rope_steps[RF_ROPE_PAIRS_MAX]; /* as rf_arch_rope_steps gives them: the data of "rope_steps" */
    float rope_magnitude;
    bool tied_output;
    bool qkv_bias, qk_norm;
};

struct rf_graph_shape {
    uint32_t tokens;        /* n */
    uint32_t sequences;     /* s: 1, or n with one token each */
    bool all_logits;        /* a row for each token, else for the last of each sequence */
    bool no_logits;         /* a prompt's inner chunk: only the caches are wanted */
    uint32_t page_rows;     /* tokens of a page, a power of two */
    uint32_t page_count;    /* pages of a cache */
    uint32_t table_width;   /* pages a sequence can have */
    uint32_t longest;       /* no sequence is longer: decides how attention is split */
    enum rf_dtype kv_dtype; /* RF_F16, RF_F32, RF_Q8_0 */
};

struct rf_arch {
    const char *name; /* as general.architecture spells it */
    /* Reads and checks metadata and the shapes of all tensors; a missing or wrong one is named. hparams comes with
     * arch and name set and is otherwise zero. */
    rf_status (*read)(const struct rf_gguf *gguf, struct rf_hparams *hparams);
    /* A finished graph. It borrows gguf and hparams. RF_E_INVALID: a shape that makes no sense; RF_E_UNSUPPORTED: a
     * type of cache that the heads do not fit. */
    rf_status (*build)(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                       const struct rf_graph_shape *shape, struct rf_graph **out);
};

/* RF_E_UNSUPPORTED names the architecture and lists those supported, or says which of the model's parts is not
 * offered; RF_E_SYNTAX names a key or tensor that is wrong, RF_E_NOT_FOUND one that is missing. hparams is untouched
 * on failure. */
rf_status rf_arch_read(const struct rf_gguf *gguf, struct rf_hparams *hparams);
/* hparams->arch->build, for short. */
rf_status rf_arch_build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                        const struct rf_graph_shape *shape, struct rf_graph **out);
/* Turns per position for "rope_steps", frequency factors of the file included; out has rotated / 2 elements. */
rf_status rf_arch_rope_steps(const struct rf_gguf *gguf, const struct rf_hparams *hparams, uint64_t *steps,
                             float *magnitude);
enum { RF_GROUP_EMBEDDING = 1, RF_GROUP_LAYER = 2 };
static inline int rf_group_output(const struct rf_hparams *hparams) {
    return RF_GROUP_LAYER + (int)hparams->layers;
}

#endif
