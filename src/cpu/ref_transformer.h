/* The scalar references of rotation and of the KV cache: the definition of each op, in double, rounded once, unless
 * it says otherwise.
 *
 * Element types are RF_F32, RF_F16 and RF_BF16; strides are in elements, the last dimension is dense where
 * no stride is given for it. Nothing here fails or allocates; another dtype leaves the output alone. */
#ifndef RF_CPU_REF_TRANSFORMER_H
#define RF_CPU_REF_TRANSFORMER_H

#include <rocmforge/gpu.h>

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* What a model's file says about its rotation. Zero values mean none or the usual. */
struct rf_rope_params {
    uint32_t rotated;     /* elements of a head that are rotated, from its first on; even */
    double base;          /* 0: 10000 */
    double scale;         /* linear scaling: positions are multiplied by it; 0: 1. A file's factor is its inverse. */
    const float *factors; /* frequencies are divided by them, one for each pair; NULL: ones. Borrowed for the call. */
    /* YaRN: extension > 0 mixes the scaled (interpolated) and the unscaled angle, pair by pair: those that turn
     * more than beta_fast times within the original context keep their angle, those that turn less than beta_slow
     * times are scaled, between them in a straight line. Magnitudes are multiplied by 1 + ln(1 / scale) / 10. */
    double extension;            /* 0: none; 1 in models that have it */
    double attention;            /* factor on magnitudes; 0: 1 */
    double beta_fast, beta_slow; /* 0: 32 and 1 */
    uint32_t original_context;   /* positions the model was trained for; needed with extension */
};
/* Turns per position of each of the rotated / 2 pairs, as fractions of 2^64, rounded to nearest; and the factor on
 * magnitudes. False (and nothing written) where the parameters make no sense: rotated odd or 0, something negative or
 * not finite, extension without a context, a factor of 0. */
bool rf_rope_steps(const struct rf_rope_params *params, uint64_t *steps, float *magnitude);

struct rf_ref_rope {
    enum rf_dtype dtype;
    size_t tokens, heads, dim, rotated;
    size_t out_token, out_head, in_token, in_head; /* strides */
    bool halves;                                   /* pairs are i and i + rotated / 2; else neighbours */
    const int32_t *positions;
    const uint64_t *steps;
    float magnitude;
    bool to_f16; /* out is f16, in f32 */
};
/* out may be in with the same strides and type. */
void rf_ref_rope(const struct rf_ref_rope *rope, void *out, const void *in);

/* ---- appending to a paged cache ----------------------------------------------------------------- */

/* As rf_ref_pages in ref_attention.h: element e of head h of row r of page g is g * page + h * head + r * row + e.
 * The token of sequence s and position p goes to row p % page_rows of page table[s * table_width + p / page_rows];
 * without a table to page s alone. One without such a page, with a negative position
 * or a sequence beyond the table is left out. */
struct rf_ref_kv_append {
    enum rf_dtype dtype; /* of the cache: RF_F32, RF_F16, RF_Q8_0 (strides and dim multiples of 32) */
    size_t tokens, heads, dim;
    size_t k_token, v_token; /* strides; heads are dense */
    size_t page, head, row;  /* strides of both caches */
    uint32_t page_rows, page_count;
    size_t table_width, sequence_count; /* of a table */
    const uint32_t *table;              /* or NULL */
    const uint32_t *sequences;          /* for each token, or NULL for 0 */
    const int32_t *positions;
    /* Keys are rotated first where steps is not NULL. */
    const uint64_t *steps;
    size_t rotated;
    bool halves;
    float magnitude;
};
void rf_ref_kv_append(const struct rf_ref_kv_append *append, void *k_cache, void *v_cache, const float *k,
                      const float *v);

/* 32 values as a block of Q8_0: 34 bytes. f32 arithmetic: kernels give the same bits. */
void rf_ref_quantize_q8_0(const float *values, uint8_t *block);

#endif
