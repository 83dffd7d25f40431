/* Architectures: from a model file's metadata to numbers, and from numbers to a graph.
 *
 * An architecture is a row of the table in arch_table.c: its name, its weights, its flags and the block that a layer
 * is. A graph computes some tokens of one session, or one token each of several (batch). All graphs of a model share
 * weights and caches through bindings: a constant is named as the file's tensor, a state "cache_k.N" or "cache_v.N".
 *
 * Inputs of a graph (i32 unless said): tokens [n], positions [n], sequences [n] (row of the table), table [s, width]
 * (pages of each sequence), lengths [s] (tokens held, these included). A graph has all five. A token whose position
 * is negative is left out of the caches; one of no sequence (-1) likewise. Constant "rope_steps" (as I32 pairs of
 * u64), and where the file has factors they are in it already. Output: "logits" f32 [rows, vocabulary]. A layer's
 * result is "blk.N", of the last layer in the wanted rows only. Groups: 1 is the embedding, 2 + N layer N, 2 + layers
 * the output: a group is placed on one backend. */
#ifndef RF_INFER_ARCH_H
#define RF_INFER_ARCH_H

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
    bool qk_norm;
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

/* What a dimension of a weight must be. */
enum rf_extent {
    RF_EXTENT_NONE,
    RF_EXTENT_WIDTH,
    RF_EXTENT_QUERIES, /* heads * head_width */
    RF_EXTENT_KEYS,    /* kv_heads * head_width */
    RF_EXTENT_HEAD,
    RF_EXTENT_FEED_FORWARD,
    RF_EXTENT_VOCABULARY,
    RF_EXTENT_PAIRS, /* rotated / 2 */
};

/* A tensor of a file. A matrix [rows, columns] may be of any type of weights; a vector, columns of RF_EXTENT_NONE, is
 * f32. In a layer the name stands for "blk.N.name". */
struct rf_weight {
    const char *name;
    enum rf_extent rows, columns;
    bool layer, optional;
};

/* A row of the table. */
struct rf_builder;
struct rf_arch {
    const char *name;                /* as general.architecture spells it */
    const struct rf_weight *weights; /* besides those that every decoder has (arch_read.c) */
    size_t weight_count;
    bool rope_halves; /* rotates i with i + rotated / 2; else neighbours */
    bool qk_norm;     /* norms each head of queries and keys before it rotates them */
    /* A layer: from the residual stream before it to that after it (arch_build.h). */
    rf_tensor_id (*block)(struct rf_builder *builder, rf_tensor_id x);
};
extern const struct rf_arch rf_arch_table[];
extern const size_t rf_arch_table_count;

/* Reads and checks metadata and the shapes of all tensors. RF_E_UNSUPPORTED names the architecture and lists those
 * supported, or says which of the model's parts is not offered; RF_E_SYNTAX names a key or tensor that is wrong,
 * RF_E_NOT_FOUND one that is missing. hparams is untouched on failure. */
rf_status rf_arch_read(const struct rf_gguf *gguf, struct rf_hparams *hparams);

/* What a tensor of a graph stands for, so that it can be bound to memory: a weight of the file, or a layer's cache.
 */
struct rf_bound_tensor {
    const struct rf_gguf_tensor *weight; /* NULL: none */
    bool cache, values;                  /* a cache; of values, else of keys */
    uint32_t layer;                      /* of a cache */
};
/* A graph of a model, and the tensors by which it is used. */
struct rf_model_graph {
    struct rf_graph *graph;
    rf_tensor_id tokens, positions, sequences, table, lengths;
    rf_tensor_id logits;           /* 0: none were asked for */
    struct rf_bound_tensor *bound; /* [id] */
    size_t bound_count;
};
/* A finished graph in plain ops: what is fused, and where it runs, is decided when it is executed. It borrows gguf
 * and hparams. RF_E_INVALID: a shape that makes no sense; RF_E_UNSUPPORTED: a type of cache that the heads do not
 * fit. */
rf_status rf_arch_build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                        const struct rf_graph_shape *shape, struct rf_model_graph *out);
void rf_model_graph_finish(struct rf_model_graph *model);

/* Turns per position for "rope_steps", frequency factors of the file included; out has rotated / 2 elements. */
rf_status rf_arch_rope_steps(const struct rf_gguf *gguf, const struct rf_hparams *hparams, uint64_t *steps,
                             float *magnitude);
enum { RF_GROUP_EMBEDDING = 1, RF_GROUP_LAYER = 2 };
static inline int rf_group_output(const struct rf_hparams *hparams) {
    return RF_GROUP_LAYER + (int)hparams->layers;
}

#endif
