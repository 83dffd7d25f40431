/* The SIMD levels of the CPU ops, and a level's table of inner loops.
 *
 * Each level is one file, compiled with its own flags, that fills one struct rf_simd: simd_scalar.c, simd_avx2.c,
 * simd_avx512.c. All share the function bodies in simd_*.h, over the vectors of their vec_*.h. The rest of src/cpu is
 * compiled for the plain architecture and calls these functions through the table only, so the program never runs an
 * instruction that the machine lacks.
 *
 * An inner loop works on one range, on one thread; fast_*.c divide the work. The result for an element (or a row)
 * depends on that element (or row) alone, not on its place in the range. Pointers need the alignment of their element
 * type; quantized blocks need none. */
#ifndef RF_CPU_SIMD_H
#define RF_CPU_SIMD_H

#include <rocmforge/gpu.h>

#include "kernels/elementwise_args.h"
#include "runtime/cpu_info.h"

/* Activations in 8 bits: 128 elements of a column, in four times 32. An element of the b-th 32 is scale[b] times its
 * quant; the sums are those of the quants. The last group of a column is filled up with zeros. */
struct rf_act_group {
    _Alignas(64) int8_t quants[128];
    float scale[4];  /* per 32; NaN if an element was not finite */
    int32_t sum[4];  /* per 32 */
    int32_t half[8]; /* per 16 */
};
/* The order of a group's quants that the loop of a weight type needs. */
enum rf_act_order {
    RF_ACT_PLAIN,
    RF_ACT_SPLIT, /* the first halves of all four 32s, then the second halves */
    RF_ACT_PAIRS, /* the 32s number 0, 2, 1, 3 */
};

/* A panel: `width` rows of quantized weights side by side, for products with many columns. Each 32 elements have
 * quants[8][width][4] bytes, scale[2][width] and minimum[width]. */
struct rf_panel {
    uint8_t *quants;
    float *scale, *minimum;
};

/* y[row] = sum over k of weights[row][k] * x[k]. */
typedef void (*rf_matvec_float)(float *y, const void *weights, size_t row_bytes, size_t rows, const float *x,
                                size_t k);
/* The same with activations in 8 bits; k is a multiple of the type's block. */
typedef void (*rf_matvec_quant)(float *y, const void *weights, size_t row_bytes, size_t rows,
                                const struct rf_act_group *x, size_t k);

/* One query's running softmax over keys. */
struct rf_attend {
    float greatest, sum;
    float *out; /* dim elements, not yet divided by sum */
};

/* Arrays of 3 are indexed by RF_F32, RF_F16, RF_BF16. */
struct rf_simd {
    enum rf_simd_level level;
    const char *name;
    size_t width; /* floats in a vector */

    /* Elementwise; out may be an input. */
    void (*add[3])(void *out, const void *a, const void *b, size_t count);
    void (*multiply[3])(void *out, const void *a, const void *b, const void *c,
                        size_t count); /* a * b + c; c may be NULL */
    void (*scale[3])(void *out, const void *in, float factor, size_t count);
    void (*activate[3])(enum rf_activation kind, void *out, const void *gate, const void *up, size_t count);
    void (*cast[3][3])(void *out, const void *in, size_t count); /* [to][from] */

    /* One row. */
    void (*rms_norm[3])(void *out, const void *in, const float *weight, size_t columns, float eps);
    void (*layer_norm[3])(void *out, const void *in, const float *weight, const float *bias, size_t columns,
                          float eps);
    void (*softmax)(float *out, const float *in, enum rf_dtype mask_type, const void *mask, size_t columns,
                    float scale);
    /* cosine and sine have `pairs` elements; out may be in. */
    void (*rotate)(float *out, const float *in, const float *cosine, const float *sine, size_t pairs, bool halves);

    /* Products with weights. */
    rf_matvec_float matvec[3];
    /* Converts blocks of a quantized type to f32, with the bits of rf_dequantize_row. */
    void (*widen)(enum rf_dtype dtype, const void *blocks, float *out, size_t count);
    void (*quantize)(struct rf_act_group *out, const float *x, size_t k, enum rf_act_order order);
    rf_matvec_quant matvec_q8_0, matvec_q4_0, matvec_q4_k, matvec_q6_k;
    enum rf_act_order order_q4_0, order_q4_k; /* the order that these types need; all others need RF_ACT_PLAIN */
    /* Packs k elements of each of `width` rows into a panel; rows from `rows` on are zeros. k is a multiple of the
     * type's block. */
    void (*pack)(struct rf_panel *panel, enum rf_dtype dtype, const void *weights, size_t row_bytes, size_t rows,
                 size_t k);
    /* Computes y[c * y_stride + row] for `rows` rows of the panel and all columns c; columns of x are x_stride groups
     * apart. */
    void (*panel_dot)(float *y, size_t y_stride, size_t rows, const struct rf_panel *panel, enum rf_dtype dtype,
                      const struct rf_act_group *x, size_t x_stride, size_t columns, size_t k);
    /* Float panels have 2 * width rows: panel[k][2 * width]. With first, y is set; else the sums are added to it. */
    void (*pack_float)(float *panel, const float *rows_of_k, size_t row_stride, size_t rows, size_t k);
    void (*panel_float)(float *y, size_t y_stride, size_t rows, const float *panel, const float *x, size_t x_stride,
                        size_t columns, size_t k, bool first);

    /* Adds `count` keys (at most RF_ATTEND_KEYS) of one head to the running softmax; mask is count floats, or NULL.
     */
    void (*attend[3])(struct rf_attend *state, const float *q, const void *k, size_t k_stride, const void *v,
                      size_t v_stride, size_t count, size_t dim, float scale, const float *mask);
};
#define RF_ATTEND_KEYS 64

/* The table of a level, or NULL if this machine or build does not have it. It is static; any thread may call. */
const struct rf_simd *rf_simd_table(enum rf_simd_level level);

/* The levels' own tables, for simd_dispatch.c. */
extern const struct rf_simd rf_simd_scalar, rf_simd_avx2, rf_simd_avx512;

#endif
