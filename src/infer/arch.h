/* Architectures: from a model file's metadata to hyperparameters, and from those to a graph.
 *
 * An architecture is a row of the table in arch_table.c: its name, its weights, its flags and the function that
 * builds a layer. A graph computes several tokens of one session, or one token for each of several sessions (a
 * batch). All graphs of a model share weights and KV caches through bindings: a constant has the name of the file's
 * tensor, a state is named "cache_k.N" or "cache_v.N".
 *
 * Inputs of a graph (i32 unless said): tokens [n], positions [n], sequences [n] (row of the table), table [s,
 * width] (pages of each sequence), lengths [s] (tokens held, including these). A graph has all five. A token with
 * a negative position is not added to the caches; neither is one without a sequence (-1). The constant
 * "rope_steps" (u64 values as pairs of I32) already includes the file's frequency factors, if it has any. The
 * output is "logits", f32 [rows, vocabulary]. A graph may also draw a token for each sequence and then make its own
 * inputs into those of the next token; it has four inputs more, settings [s, 10], random [s, 4] and window [s,
 * RF_WINDOW_MAX] (ops/op_sampling.c says what they hold) and the state "ring" [s, RF_RING_SLOTS, 2]. The result of
 * layer N is "blk.N"; the last layer's has the wanted rows only. Groups: 1 is the embedding, 2 + N is layer N, 2 +
 * layers is the output. A group is placed on one backend. */
#ifndef RF_INFER_ARCH_H
#define RF_INFER_ARCH_H

#include <rocmforge/graph.h>

#include "base/base.h"
#include "gguf/gguf.h"

enum { RF_ROPE_PAIRS_MAX = 128 }; /* attention supports heads of up to twice this */
enum { RF_WINDOW_MAX = 4096 };    /* tokens that a penalty applies to */
enum { RF_RING_SLOTS = 8 };       /* draws that a ring holds */

/* Bits of rf_graph_shape.draws: a token is drawn, at temperature 0 or with these steps. */
enum { RF_DRAWS = 1, RF_DRAWS_BEST = 2, RF_DRAWS_TOP_K = 4, RF_DRAWS_TOP_P = 8 };

struct rf_hparams {
    const struct rf_arch *arch;
    char name[128];
    uint32_t layers, width, heads, kv_heads, head_width, value_width, feed_forward, vocabulary, trained_context;
    float norm_epsilon;
    /* rotation */
    uint32_t rotated;
    bool rope_halves; /* pairs are i and i + rotated / 2 (NEOX); otherwise neighbours */
    double rope_base, rope_scale;
    double rope_extension, rope_attention, rope_beta_fast, rope_beta_slow;
    uint32_t rope_original_context;
    uint64_t rope_steps[RF_ROPE_PAIRS_MAX]; /* from rf_arch_rope_steps: the data of "rope_steps" */
    float rope_magnitude;
    bool tied_output;
    bool qk_norm;
};

struct rf_graph_shape {
    uint32_t tokens;        /* n */
    uint32_t sequences;     /* s: 1, or n with one token each */
    bool all_logits;        /* a row for each token, otherwise for the last of each sequence */
    bool no_logits;         /* for a chunk of a prompt that is not its last: only the caches are needed */
    uint32_t page_rows;     /* tokens per page, a power of two */
    uint32_t page_count;    /* pages in a cache */
    uint32_t table_width;   /* pages a sequence can have */
    uint32_t longest;       /* no sequence is longer than this; decides how attention is split */
    enum rf_dtype kv_dtype; /* RF_F16, RF_F32, RF_Q8_0 */
    unsigned draws;         /* RF_DRAWS_*; 0: no token is drawn. Only where each sequence has one token */
    /* From this group on, products of many rows are made on matrix units, which round x to 16 bits: what makes x then
     * writes it that way, for the same bits with less memory. 0: no group. */
    int units_from;
    bool gates; /* these units also have a product with a gate, for many rows */
};

/* The size that a dimension of a weight must have. */
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

/* A tensor of a file. A matrix [rows, columns] may have any type of weights; a vector, with columns
 * RF_EXTENT_NONE, is f32. In a layer the name stands for "blk.N.name". */
struct rf_weight {
    const char *name;
    enum rf_extent rows, columns;
    bool layer, optional;
};

/* A row of the table. */
struct rf_builder;
struct rf_arch {
    const char *name;                /* as general.architecture spells it */
    const struct rf_weight *weights; /* in addition to those that every decoder has (arch_read.c) */
    size_t weight_count;
    bool rope_halves; /* rotates i with i + rotated / 2; otherwise neighbours */
    bool qk_norm;     /* normalizes each head of queries and keys before rotating them */
    /* Builds a layer: takes the residual stream before it and returns the one after it (arch_build.h). */
    rf_tensor_id (*block)(struct rf_builder *builder, rf_tensor_id x);
};
extern const struct rf_arch rf_arch_table[];
extern const size_t rf_arch_table_count;

/* Reads and checks the metadata and the shapes of all tensors. RF_E_UNSUPPORTED names the architecture and lists
 * the supported ones, or says which part of the model is not supported; RF_E_SYNTAX names a key or tensor that is
 * wrong, RF_E_NOT_FOUND one that is missing. hparams is untouched on failure. */
rf_status rf_arch_read(const struct rf_gguf *gguf, struct rf_hparams *hparams);

/* What a tensor of a graph stands for, so that it can be bound to memory: a weight of the file, a layer's cache, or
 * the ring. */
struct rf_bound_tensor {
    const struct rf_gguf_tensor *weight; /* NULL: it is not a weight */
    bool cache, values;                  /* it is a cache; of values, otherwise of keys */
    bool ring;                           /* it is the ring that draws are reported in */
    uint32_t layer;                      /* the layer of the cache */
};
/* A graph of a model, and the tensors through which it is used. */
struct rf_model_graph {
    struct rf_graph *graph;
    rf_tensor_id tokens, positions, sequences, table, lengths;
    rf_tensor_id logits;                   /* 0: none were asked for */
    rf_tensor_id settings, random, window; /* 0: no token is drawn */
    struct rf_bound_tensor *bound;         /* [id] */
    size_t bound_count;
    struct rf_account account; /* for the table above; the graph has its own */
};
/* Makes a finished graph of plain ops: what is fused, and where it runs, is decided when it is executed. It
 * borrows gguf and hparams. account: what the graph takes of the host's memory is charged to it before it is taken;
 * NULL: nothing is charged. RF_E_INVALID: the shape makes no sense; RF_E_UNSUPPORTED: the model's heads do not fit
 * the type of the cache. */
rf_status rf_arch_build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                        const struct rf_graph_shape *shape, const struct rf_account *account,
                        struct rf_model_graph *out);
void rf_model_graph_finish(struct rf_model_graph *model);

/* Computes the turns per position for "rope_steps", including the file's frequency factors. steps has rotated / 2
 * elements. */
rf_status rf_arch_rope_steps(const struct rf_gguf *gguf, const struct rf_hparams *hparams, uint64_t *steps,
                             float *magnitude);
enum { RF_GROUP_EMBEDDING = 1, RF_GROUP_LAYER = 2 };
static inline int rf_group_output(const struct rf_hparams *hparams) {
    return RF_GROUP_LAYER + (int)hparams->layers;
}
/* The group of a weight, by its name in a file that rf_arch_read accepted. */
int rf_arch_group(const struct rf_hparams *hparams, const char *weight);

#endif
