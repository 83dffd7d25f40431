/* The scalar references of rotary embedding and of appending to a paged KV cache: they define each op; they compute
 * in double and round once, unless said otherwise.
 *
 * Element types are RF_F32, RF_F16 and RF_BF16 unless said otherwise. No function fails or allocates; another dtype
 * leaves the output alone. */
#ifndef RF_CPU_REF_CACHE_H
#define RF_CPU_REF_CACHE_H

#include <rocmforge/gpu.h>

#include "kernels/cache_args.h"

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* What a model's file says about its rotation. A value of zero means that there is none, or the usual one. */
struct rf_rope_params {
    uint32_t rotated;     /* elements of a head that are rotated, from its first on; even */
    double base;          /* 0: 10000 */
    double scale;         /* linear scaling: positions are multiplied by it; 0: 1. A file's factor is its inverse. */
    const float *factors; /* frequencies are divided by them, one for each pair; NULL: ones. Borrowed for the call. */
    /* YaRN: extension > 0 mixes the scaled (interpolated) and the unscaled angle, pair by pair. Pairs that turn more
     * than beta_fast times within the original context keep their angle, pairs that turn less than beta_slow times
     * are scaled, and the mix is linear between them. Magnitudes are multiplied by 1 + ln(1 / scale) / 10. */
    double extension;            /* 0: none; 1 in models that have it */
    double attention;            /* factor on magnitudes; 0: 1 */
    double beta_fast, beta_slow; /* 0: 32 and 1 */
    uint32_t original_context;   /* positions the model was trained for; needed with extension */
};
/* Writes the turns per position of each of the rotated / 2 pairs, as fractions of 2^64, rounded to nearest, and the
 * factor on magnitudes. False, with nothing written, if the parameters make no sense: rotated is odd or 0, a number
 * is negative or not finite, there is an extension without a context, or a factor is 0. */
bool rf_rope_steps(const struct rf_rope_params *params, uint64_t *steps, float *magnitude);

/* rope, as kernels/cache_args.h defines it. out_dtype is dtype, or RF_F16 where dtype is RF_F32. out may be in with
 * the same strides and type. dim is up to 4096. */
void rf_ref_rope(enum rf_dtype out_dtype, void *out, enum rf_dtype dtype, const void *in, const int32_t *positions,
                 const uint64_t *steps, const struct rf_rope_args *args);

/* ---- appending to a paged KV cache --------------------------------------------------------------- */

/* kv_append, as kernels/cache_args.h defines it, without the queries of rope_append. dim is up to 4096. */
struct rf_ref_kv_append {
    struct rf_kv_append_args args;
    enum rf_dtype dtype; /* of the caches: RF_F32, RF_F16, RF_Q8_0 */
    void *k_cache, *v_cache;
    const float *k, *v;
    const int32_t *positions;
    const uint32_t *sequences; /* NULL: all 0 */
    const uint32_t *table;     /* NULL: a sequence has one page */
    const uint64_t *steps;     /* NULL: the keys are not rotated */
};
void rf_ref_kv_append(const struct rf_ref_kv_append *append);

/* 32 values as a block of Q8_0: 34 bytes. The arithmetic is in f32, and kernels give the same bits. */
void rf_ref_quantize_q8_0(const float *values, uint8_t *block);

#endif
