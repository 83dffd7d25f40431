/* The scalar references of what stands between the matrix products of a transformer: the definition of
 * each op, in double, rounded once, unless it says otherwise.
 *
 * Element types are RF_F32, RF_F16 and RF_BF16; strides are in elements, the last dimension is dense where
 * no stride is given for it. Nothing here fails or allocates; another dtype leaves the output alone. */
#ifndef RF_CPU_REF_TRANSFORMER_H
#define RF_CPU_REF_TRANSFORMER_H

#include <rocmforge/gpu.h>

/* out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * weight[c] + bias[c]; weight and bias may be NULL.
 * out may be in. */
void rf_ref_layer_norm(enum rf_dtype dtype, void *out, const void *in, const float *weight, const float *bias,
                       size_t rows, size_t columns, float eps);

/* sum = a + b as rf_ref_add, then out = rf_ref_rms_norm(sum). sum may be a or b. */
void rf_ref_add_rms_norm(enum rf_dtype dtype, void *sum, void *out, const void *a, const void *b, const float *weight,
                         size_t rows, size_t columns, float eps);

enum rf_activation {
    RF_ACTIVATION_SILU,     /* x / (1 + exp(-x)) */
    RF_ACTIVATION_GELU,     /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    RF_ACTIVATION_GELU_ERF, /* x (1 + erf(x / sqrt(2))) / 2 */
    RF_ACTIVATION_COUNT
};
double rf_ref_activation(enum rf_activation kind, double x); /* 0 at -inf */
/* out[r][c] = act(gate[r][c]) * up[r][c]; up may be NULL. out may be gate or up with the same stride. */
void rf_ref_activation_gate(enum rf_activation kind, enum rf_dtype dtype, void *out, size_t out_row, const void *gate,
                            size_t gate_row, const void *up, size_t up_row, size_t rows, size_t columns);

/* out[r][c] = a[r][c] * b[r][c] + c[r][c]; c may be NULL. One operation of f32 (the product is not rounded
 * first), then rounded to the type: kernels give the same bits. A row stride of 0 repeats a row. */
void rf_ref_multiply(enum rf_dtype dtype, void *out, size_t out_row, const void *a, size_t a_row, const void *b,
                     size_t b_row, const void *c, size_t c_row, size_t rows, size_t columns);

/* out[i] = in[i] over four dimensions with strides; the same type keeps the bits. */
struct rf_ref_shape {
    size_t size[4], out_stride[4], in_stride[4];
};
void rf_ref_permute(enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                    const struct rf_ref_shape *shape);

/* out[outer][widths together] of in[k][outer][widths[k]], elements of so many bytes. */
void rf_ref_concat(size_t element_bytes, void *out, const void *const *in, const size_t *widths, size_t count,
                   size_t outer);

/* out[r][c] = softmax over c of in[r][c] * scale + mask[m][c]; m = r / (rows_each * heads) * rows_each +
 * r % rows_each; mask is f32 or f16, or NULL. A row of -inf alone gives zeros. out may be in. */
void rf_ref_softmax_mask(float *out, const float *in, enum rf_dtype mask_dtype, const void *mask, size_t rows,
                         size_t columns, size_t rows_each, size_t heads, float scale);

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
