/* What the tests of architectures share: small models made here, a plain forward pass in double to compare with, and
 * timelines, which run a model's graphs node by node on the CPU or through an executor. */
#ifndef ARCH_TESTING_H
#define ARCH_TESTING_H

#include <rocmforge/test.h>

#include "cpu/fast.h"
#include "infer/arch.h"
#include "support/gguf_write.h"

/* ---- models ---- */

/* A model to make; zeros mean the usual. Weights are random, of magnitudes that keep activations near 1. */
struct spec {
    const char *label; /* for tables of cases */
    const char *arch;
    uint32_t layers, width, heads, kv_heads, head_width, feed_forward, vocabulary;
    uint32_t rotated;        /* 0: the key is left out */
    enum rf_dtype dtype;     /* of matrices: f32, f16 or q8_0 */
    enum rf_dtype up_dtype;  /* of ffn_up, if not that of the others */
    bool tied, biases;       /* biases: all biases that llama may have */
    bool factors;            /* rope_freqs.weight */
    bool kv_array;           /* head_count_kv as an array */
    float rope_base, factor; /* factor: rope.scaling.factor */
    const char *scaling;     /* rope.scaling.type */
    float attention_factor;
    uint32_t original_context;
    uint64_t seed;
    /* For refusals: a key, without "ARCH.", that is left out, written with another u32, or written as text. */
    const char *no_key, *key_u32, *key_text;
    uint32_t u32;
    const char *text;
    const char *no_tensor, *extra_tensor;
    void (*more)(struct rf_gguf_writer *writer); /* adds further keys, for example a vocabulary; NULL: none */
    /* A tensor that gets a last dimension longer by 32, or one that becomes f16. */
    const char *wider, *halved;
};
struct model {
    struct rf_gguf *gguf;
    struct rf_hparams hparams;
    void *memory;    /* of the file */
    uint64_t *noise; /* state of random numbers: the plain pass adds as much to what quantized weights multiply as
                      * rounding to 8 bits may; NULL: none */
};
/* The file in memory; the caller frees it. */
void *spec_file(const struct spec *spec, size_t *bytes);
/* Makes, opens and reads a model. */
void model_make(struct model *model, const struct spec *spec);
void model_open(struct model *model, const char *path);
void model_close(struct model *model);

/* Computes a whole prompt in double over exactly widened weights, by the textbook: logits [count, vocabulary];
 * layers, unless NULL, [layers, count, width]. */
void model_truth(const struct model *model, const int32_t *tokens, uint32_t count, double *logits, double *layers);

/* ---- timelines ---- */

/* Up to SEQUENCES sequences of tokens in caches of their own, with pages in no particular order. */
enum { SEQUENCES = 4, PAGE_ROWS = 8 };
struct timeline {
    /* Set before timeline_begin: */
    struct rf_cpu *cpu;       /* NULL: the references */
    bool executor;            /* through rf_executor, on the device if there is one */
    struct rf_device *device; /* with executor */
    int device_layers;        /* with a device: the last layers, this many, and the output are on it; -1: all */
    unsigned passes;          /* with executor: of rf_graph_optimize */
    bool shared;              /* with executor: one is kept for each shape of graph, with replay and bound caches */
    enum rf_dtype kv;
    /* Set by the timeline: */
    const struct model *model;
    uint32_t table_width, page_count;
    int32_t *table; /* [SEQUENCES, table_width] */
    uint32_t lengths[SEQUENCES];
    unsigned char **caches; /* k and v of each layer; in host memory */
    uint64_t cache_bytes;
    struct kept *kept; /* with shared: the executors and the caches on the device */
    float *layers;     /* unless NULL: [layers, tokens, width], the results of each layer in the last run; of the last
                          layer only the wanted rows. May be set at any time; not with an executor */
};
void timeline_begin(struct timeline *timeline, const struct model *model, uint32_t longest);
void timeline_end(struct timeline *timeline);
enum wanted { LAST, ALL, NONE };
/* Appends to one sequence. logits gets one row, or one for each token. */
void timeline_append(struct timeline *timeline, uint32_t sequence, const int32_t *tokens, uint32_t count,
                     enum wanted wanted, float *logits);
/* Appends one token to each of these sequences, all in one graph; logits gets a row for each. FILLER fills up a
 * batch: its row belongs to no sequence and changes none. */
enum { FILLER = SEQUENCES };
void timeline_batch(struct timeline *timeline, const uint32_t *sequences, const int32_t *tokens, uint32_t count,
                    float *logits);

/* sum((a-b)^2) / sum(b^2); infinity if a number is not finite. */
double error_of(const float *a, const double *b, size_t count);
double error_of_floats(const float *a, const float *b, size_t count);

/* A CPU of this level for the test's life; NULL if the machine does not have that level. */
struct rf_cpu *cpu_of(enum rf_simd_level level);
void *allocate(size_t count, size_t each); /* zeros; never NULL */

#endif
