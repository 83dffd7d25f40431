/* The function bodies of elementwise ops and of ops on one row, over the level's vectors (vec_*.h).
 *
 * The last, incomplete vector of a row goes through the same arithmetic as the others, with neutral elements beyond
 * the end, so an element's bits do not depend on its place. Sums are kept in four vectors, always in the same order.
 */
#ifndef RF_CPU_SIMD_ROWS_H
#define RF_CPU_SIMD_ROWS_H

#include <math.h>

#include "cpu/simd.h"

/* Loops over the vectors of count elements: each begins at element i and has n elements. */
#define EACH_VECTOR(i, n, count)                                                                                     \
    for (size_t i = 0, n; i < (count) && (n = (count) - i < VEC_WIDTH ? (count) - i : VEC_WIDTH, true);              \
         i += VEC_WIDTH)

/* Read and write n elements of each type as f32. */
static inline vf get_f32(const void *p, size_t i, size_t n) {
    const float *at = (const float *)p + i;
    return n == VEC_WIDTH ? vf_load(at) : vf_load_n(at, n);
}
static inline vf get_f16(const void *p, size_t i, size_t n) {
    const uint16_t *at = (const uint16_t *)p + i;
    return n == VEC_WIDTH ? vf_load_f16(at) : vf_load_f16_n(at, n);
}
static inline vf get_bf16(const void *p, size_t i, size_t n) {
    const uint16_t *at = (const uint16_t *)p + i;
    return n == VEC_WIDTH ? vf_load_bf16(at) : vf_load_bf16_n(at, n);
}
static inline void put_f32(void *p, size_t i, vf x, size_t n) {
    float *at = (float *)p + i;
    if (n == VEC_WIDTH)
        vf_store(at, x);
    else
        vf_store_n(at, x, n);
}
static inline void put_f16(void *p, size_t i, vf x, size_t n) {
    uint16_t *at = (uint16_t *)p + i;
    if (n == VEC_WIDTH)
        vf_store_f16(at, x);
    else
        vf_store_f16_n(at, x, n);
}
static inline void put_bf16(void *p, size_t i, vf x, size_t n) {
    uint16_t *at = (uint16_t *)p + i;
    if (n == VEC_WIDTH)
        vf_store_bf16(at, x);
    else
        vf_store_bf16_n(at, x, n);
}

/* a * b + c, rounded once on every level. */
static inline vf multiply_add(vf a, vf b, vf c) {
#ifdef VEC_SCALAR
    return fmaf(a, b, c);
#else
    return vf_fma(a, b, c);
#endif
}

/* x / (1 + exp(exponent)): SiLU and GELU with tanh both have this form. Below -1000 both are 0. */
static inline vf gated(vf x, vf exponent) {
    return vf_div(x, vf_add(vf_set(1.0f), vf_exp(exponent)));
}
static inline vf activation(enum rf_activation kind, vf x) {
    if (kind == RF_ACTIVATION_GELU_ERF) {
        float lanes[VEC_WIDTH];
        vf_store(lanes, x);
        for (int i = 0; i < VEC_WIDTH; i++)
            lanes[i] = lanes[i] < -20 ? 0.0f : 0.5f * lanes[i] * erfcf(-0.70710678f * lanes[i]);
        return vf_load(lanes);
    }
    x = vf_max(vf_set(-1000.0f), x);
    if (kind == RF_ACTIVATION_SILU) return gated(x, vf_sub(vf_set(0.0f), x));
    /* -2 sqrt(2 / pi) (x + 0.044715 x^3) */
    vf square = vf_mul(x, x);
    vf inner = vf_mul(x, vf_fma(square, vf_set(-1.59576912f * 0.044715f), vf_set(-1.59576912f)));
    return gated(x, inner);
}

#define DEFINE_ELEMENTWISE(T)                                                                                        \
    static void add_##T(void *out, const void *a, const void *b, size_t count) {                                     \
        EACH_VECTOR(i, n, count) put_##T(out, i, vf_add(get_##T(a, i, n), get_##T(b, i, n)), n);                     \
    }                                                                                                                \
    static void multiply_##T(void *out, const void *a, const void *b, const void *c, size_t count) {                 \
        EACH_VECTOR(i, n, count) {                                                                                   \
            vf x = get_##T(a, i, n), y = get_##T(b, i, n);                                                           \
            put_##T(out, i, c ? multiply_add(x, y, get_##T(c, i, n)) : vf_mul(x, y), n);                             \
        }                                                                                                            \
    }                                                                                                                \
    static void scale_##T(void *out, const void *in, float factor, size_t count) {                                   \
        EACH_VECTOR(i, n, count) put_##T(out, i, vf_mul(get_##T(in, i, n), vf_set(factor)), n);                      \
    }                                                                                                                \
    static void activate_##T(enum rf_activation kind, void *out, const void *gate, const void *up, size_t count) {   \
        EACH_VECTOR(i, n, count) {                                                                                   \
            vf x = activation(kind, get_##T(gate, i, n));                                                            \
            put_##T(out, i, up ? vf_mul(x, get_##T(up, i, n)) : x, n);                                               \
        }                                                                                                            \
    }                                                                                                                \
    static void rms_norm_##T(void *out, const void *in, const float *weight, size_t columns, float eps) {            \
        vf sums[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};                                                   \
        EACH_VECTOR(i, n, columns) {                                                                                 \
            vf x = get_##T(in, i, n), *sum = &sums[i / VEC_WIDTH % 4];                                               \
            *sum = vf_fma(x, x, *sum);                                                                               \
        }                                                                                                            \
        vf factor = vf_set(1 / sqrtf(total(sums) / (float)columns + eps));                                           \
        EACH_VECTOR(i, n, columns) {                                                                                 \
            vf x = vf_mul(get_##T(in, i, n), factor);                                                                \
            put_##T(out, i, weight ? vf_mul(x, get_f32(weight, i, n)) : x, n);                                       \
        }                                                                                                            \
    }                                                                                                                \
    static void layer_norm_##T(void *out, const void *in, const float *weight, const float *bias, size_t columns,    \
                               float eps) {                                                                          \
        vf sums[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};                                                   \
        EACH_VECTOR(i, n, columns) {                                                                                 \
            vf *sum = &sums[i / VEC_WIDTH % 4];                                                                      \
            *sum = vf_add(*sum, get_##T(in, i, n));                                                                  \
        }                                                                                                            \
        vf mean = vf_set(total(sums) / (float)columns);                                                              \
        for (int s = 0; s < 4; s++) sums[s] = vf_set(0);                                                             \
        EACH_VECTOR(i, n, columns) {                                                                                 \
            vf x = vf_keep_n(vf_sub(get_##T(in, i, n), mean), n, 0), *sum = &sums[i / VEC_WIDTH % 4];                \
            *sum = vf_fma(x, x, *sum);                                                                               \
        }                                                                                                            \
        vf factor = vf_set(1 / sqrtf(total(sums) / (float)columns + eps));                                           \
        EACH_VECTOR(i, n, columns) {                                                                                 \
            vf x = vf_mul(vf_sub(get_##T(in, i, n), mean), factor);                                                  \
            if (weight) x = vf_mul(x, get_f32(weight, i, n));                                                        \
            put_##T(out, i, bias ? vf_add(x, get_f32(bias, i, n)) : x, n);                                           \
        }                                                                                                            \
    }
#define DEFINE_CAST(to, from)                                                                                        \
    static void cast_##to##_##from(void *out, const void *in, size_t count) {                                        \
        EACH_VECTOR(i, n, count) put_##to(out, i, get_##from(in, i, n), n);                                          \
    }

static inline float total(const vf sums[4]) {
    return vf_sum(vf_add(vf_add(sums[0], sums[1]), vf_add(sums[2], sums[3])));
}

DEFINE_ELEMENTWISE(f32)
DEFINE_ELEMENTWISE(f16)
DEFINE_ELEMENTWISE(bf16)
DEFINE_CAST(f32, f16)
DEFINE_CAST(f32, bf16)
DEFINE_CAST(f16, f32)
DEFINE_CAST(f16, bf16)
DEFINE_CAST(bf16, f32)
DEFINE_CAST(bf16, f16)
/* A cast to the same type keeps the bits. */
static void cast_32(void *out, const void *in, size_t count) {
    if (count) memmove(out, in, 4 * count);
}
static void cast_16(void *out, const void *in, size_t count) {
    if (count) memmove(out, in, 2 * count);
}

/* out first gets the scaled and masked row, then the exponentials, then the quotients. */
static void softmax_row(float *out, const float *in, enum rf_dtype mask_type, const void *mask, size_t columns,
                        float scale) {
    vf greatest = vf_set(-INFINITY);
    EACH_VECTOR(i, n, columns) {
        vf x = get_f32(in, i, n);
        if (scale != 1) x = vf_mul(x, vf_set(scale));
        if (mask) x = vf_add(x, mask_type == RF_F16 ? get_f16(mask, i, n) : get_f32(mask, i, n));
        put_f32(out, i, x, n);
        greatest = vf_max(vf_keep_n(x, n, -INFINITY), greatest); /* ignores a NaN, which will reach the sum */
    }
    float most = vf_greatest(greatest);
    vf shift = vf_set(most == -INFINITY ? 0 : most);
    vf sums[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    EACH_VECTOR(i, n, columns) {
        vf x = vf_keep_n(vf_exp(vf_sub(get_f32(out, i, n), shift)), n, 0), *sum = &sums[i / VEC_WIDTH % 4];
        put_f32(out, i, x, n);
        *sum = vf_add(*sum, x);
    }
    float sum = total(sums);
    vf divisor = vf_set(sum == 0 ? 1 : sum);
    EACH_VECTOR(i, n, columns) put_f32(out, i, vf_div(get_f32(out, i, n), divisor), n);
}

static void rotate_row(float *out, const float *in, const float *cosine, const float *sine, size_t pairs,
                       bool halves) {
    size_t i = 0;
    if (halves) {
        EACH_VECTOR(p, n, pairs) {
            vf a = get_f32(in, p, n), b = get_f32(in, pairs + p, n), c = get_f32(cosine, p, n),
               s = get_f32(sine, p, n);
            put_f32(out, p, vf_fnma(b, s, vf_mul(a, c)), n);
            put_f32(out, pairs + p, vf_fma(a, s, vf_mul(b, c)), n);
        }
        return;
    }
    for (; i + VEC_WIDTH <= pairs; i += VEC_WIDTH) {
        vf a, b, c = vf_load(cosine + i), s = vf_load(sine + i);
        vf_deinterleave(in + 2 * i, &a, &b);
        vf_interleave(out + 2 * i, vf_fnma(b, s, vf_mul(a, c)), vf_fma(a, s, vf_mul(b, c)));
    }
    if (i < pairs) {
        float copy[2 * VEC_WIDTH] = {0};
        memcpy(copy, in + 2 * i, 2 * (pairs - i) * sizeof *copy);
        vf a, b, c = vf_load_n(cosine + i, pairs - i), s = vf_load_n(sine + i, pairs - i);
        vf_deinterleave(copy, &a, &b);
        vf_interleave(copy, vf_fnma(b, s, vf_mul(a, c)), vf_fma(a, s, vf_mul(b, c)));
        memcpy(out + 2 * i, copy, 2 * (pairs - i) * sizeof *copy);
    }
}

#endif
