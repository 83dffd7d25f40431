/* The function bodies of products with float weights, of panels, of activation quantization and of attention, over
 * the level's vectors (vec_*.h). Included after simd_rows.h.
 *
 * Each output is one sum over k, in an order that its shape alone decides. How many rows or columns are computed
 * beside it changes nothing. */
#ifndef RF_CPU_SIMD_DOTS_H
#define RF_CPU_SIMD_DOTS_H

#include "cpu/quant.h"
#include "cpu/ref_matmul.h"
#include "cpu/simd_rows.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline float half_at(const void *p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
#ifdef VEC_SCALAR
    return vf_load_f16(&bits);
#else
    return _cvtsh_ss(bits);
#endif
}

/* ---- float weights ---- */

/* Several rows are computed at once, so that x is read less often than the weights. The prefetches are those of
 * quant_avx512.h, which says why. */
#define FLOAT_ROWS_AT_ONCE (VEC_WIDTH == 16 ? 4 : 2)
#define FLOAT_PREFETCH_BYTES (FLOAT_ROWS_AT_ONCE * 16384)

#define DEFINE_MATVEC(T, bytes)                                                                                      \
    ALWAYS_INLINE void rows_##T(float *y, const char *weights, size_t row_bytes, const size_t rows, const float *x,  \
                                size_t k) {                                                                          \
        vf sums[FLOAT_ROWS_AT_ONCE][4];                                                                              \
        for (size_t r = 0; r < rows; r++)                                                                            \
            for (size_t s = 0; s < 4; s++) sums[r][s] = vf_set(0);                                                   \
        size_t i = 0;                                                                                                \
        for (; i + 4 * VEC_WIDTH <= k; i += 4 * VEC_WIDTH)                                                           \
            for (size_t r = 0; r < rows; r++) {                                                                      \
                const char *w = weights + r * row_bytes;                                                             \
                const char *ahead = weights + (i * rows + r * 4 * VEC_WIDTH) * bytes + FLOAT_PREFETCH_BYTES;         \
                for (size_t p = 0; p < 4 * VEC_WIDTH * bytes; p += 64) __builtin_prefetch(ahead + p, 0, 2);          \
                for (size_t s = 0; s < 4; s++) {                                                                     \
                    size_t at = i + s * VEC_WIDTH;                                                                   \
                    sums[r][s] = vf_fma(get_##T(w, at, VEC_WIDTH), vf_load(x + at), sums[r][s]);                     \
                }                                                                                                    \
            }                                                                                                        \
        for (; i < k; i += VEC_WIDTH)                                                                                \
            for (size_t r = 0; r < rows; r++) {                                                                      \
                size_t n = k - i < VEC_WIDTH ? k - i : VEC_WIDTH;                                                    \
                sums[r][0] = vf_fma(get_##T(weights + r * row_bytes, i, n), get_f32(x, i, n), sums[r][0]);           \
            }                                                                                                        \
        for (size_t r = 0; r < rows; r++) y[r] = total(sums[r]);                                                     \
    }                                                                                                                \
    static void matvec_##T(float *y, const void *weights, size_t row_bytes, size_t rows, const float *x, size_t k) { \
        const char *w = weights;                                                                                     \
        size_t r = 0;                                                                                                \
        for (; r + FLOAT_ROWS_AT_ONCE <= rows; r += FLOAT_ROWS_AT_ONCE)                                              \
            rows_##T(y + r, w + r * row_bytes, row_bytes, FLOAT_ROWS_AT_ONCE, x, k);                                 \
        for (; r < rows; r++) rows_##T(y + r, w + r * row_bytes, row_bytes, 1, x, k);                                \
    }
DEFINE_MATVEC(f32, 4)
DEFINE_MATVEC(f16, 2)
DEFINE_MATVEC(bf16, 2)

#define FLOAT_ROWS (2 * VEC_WIDTH)

static void pack_float(float *panel, const float *rows_of_k, size_t row_stride, size_t rows, size_t k) {
    /* It takes a few columns at a time, so that what it writes stays in the L1 cache. */
    for (size_t from = 0; from < k; from += 16)
        for (size_t r = 0; r < FLOAT_ROWS; r++) {
            const float *row = rows_of_k + r * row_stride;
            size_t to = from + 16 < k ? from + 16 : k;
            for (size_t i = from; i < to; i++) panel[i * FLOAT_ROWS + r] = r < rows ? row[i] : 0;
        }
}

ALWAYS_INLINE void float_tile(float *y, size_t y_stride, size_t rows, const float *panel, const float *x,
                              size_t x_stride, const size_t columns, size_t k, bool first_part) {
    vf sums[6][2];
    size_t low = rows < VEC_WIDTH ? rows : VEC_WIDTH, high = rows - low;
    for (size_t c = 0; c < columns; c++) {
        sums[c][0] = first_part ? vf_set(0) : vf_load_n(y + c * y_stride, low);
        sums[c][1] = first_part || !high ? vf_set(0) : vf_load_n(y + c * y_stride + VEC_WIDTH, high);
    }
    for (size_t i = 0; i < k; i++) {
        vf a = vf_load(panel + i * FLOAT_ROWS), b = vf_load(panel + i * FLOAT_ROWS + VEC_WIDTH);
        for (size_t c = 0; c < columns; c++) {
            vf each = vf_set(x[c * x_stride + i]);
            sums[c][0] = vf_fma(a, each, sums[c][0]);
            sums[c][1] = vf_fma(b, each, sums[c][1]);
        }
    }
    for (size_t c = 0; c < columns; c++) {
        vf_store_n(y + c * y_stride, sums[c][0], low);
        if (high) vf_store_n(y + c * y_stride + VEC_WIDTH, sums[c][1], high);
    }
}

static void panel_float(float *y, size_t y_stride, size_t rows, const float *panel, const float *x, size_t x_stride,
                        size_t columns, size_t k, bool first_part) {
    size_t c = 0;
    for (; c + 6 <= columns; c += 6)
        float_tile(y + c * y_stride, y_stride, rows, panel, x + c * x_stride, x_stride, 6, k, first_part);
    for (; c < columns; c++)
        float_tile(y + c * y_stride, y_stride, rows, panel, x + c * x_stride, x_stride, 1, k, first_part);
}

/* ---- activations in 8 bits ---- */

/* Quantizes 32 elements: their quants, their scale and the sums of the two halves. quant_*.h define it, with the same
 * bits on every level. The scale is the largest magnitude / 127, and an element is multiplied by 127 / that magnitude
 * and rounded to even. RF_Q8_TINY says what counts as zeros. The scale is NaN if an element is not finite. */
static inline void quantize_32(int8_t quants[32], float *scale, int32_t halves[2], const float *x);

/* The scale of 32 elements, from the bits of their largest magnitude. Returns whether there is anything to round. */
static inline bool scale_of_32(uint32_t most, float *scale, float *inverse) {
    float largest;
    memcpy(&largest, &most, sizeof largest);
    *scale = most < 0x7f800000 ? largest / 127.0f : NAN;
    if (largest < RF_Q8_TINY) *scale = 0;
    *inverse = 127.0f / largest;
    return largest >= RF_Q8_TINY && *scale > 0;
}
#define ROUND_TO_INTEGER 0x1.8p23f /* adding it leaves the nearest integer, ties to even, in the low bits */

static void quantize_column(struct rf_act_group *out, const float *x, size_t k, enum rf_act_order order) {
    for (size_t i = 0; i < k; i += 128, out++) {
        int8_t plain[128];
        for (size_t b = 0; b < 4; b++) {
            float copy[32] = {0};
            size_t at = i + 32 * b, n = at >= k ? 0 : k - at < 32 ? k - at : 32;
            if (n && n < 32) memcpy(copy, x + at, n * sizeof *copy);
            quantize_32(plain + 32 * b, &out->scale[b], &out->half[2 * b], n == 32 ? x + at : copy);
            out->sum[b] = out->half[2 * b] + out->half[2 * b + 1];
        }
        if (order == RF_ACT_PLAIN) memcpy(out->quants, plain, 128);
        for (size_t b = 0; order == RF_ACT_SPLIT && b < 4; b++) {
            memcpy(out->quants + 16 * b, plain + 32 * b, 16);
            memcpy(out->quants + 64 + 16 * b, plain + 32 * b + 16, 16);
        }
        for (size_t b = 0; order == RF_ACT_PAIRS && b < 4; b++)
            memcpy(out->quants + 32 * b, plain + 32 * (b % 2 * 2 + b / 2), 32);
    }
}

/* ---- panels of quantized weights ---- */

/* How a panel holds a weight type: value = scale * (quant - zero) - minimum. */
struct panel_type {
    int zero;
    bool wide;   /* signed bytes of the full range: see vi_dot_wide */
    bool halves; /* a scale per 16 elements, not per 32 */
    bool minimum;
};
#define PANEL_Q8_0 ((struct panel_type){.zero = VEC_SIGNED_OFFSET, .wide = true})
#define PANEL_Q4_0 ((struct panel_type){.zero = 8})
#define PANEL_Q4_K ((struct panel_type){.minimum = true})
#define PANEL_Q6_K ((struct panel_type){.zero = 32, .halves = true})

ALWAYS_INLINE void nibbles(uint8_t *restrict low, uint8_t *restrict high, const uint8_t *restrict bytes,
                           size_t count) {
    for (size_t i = 0; i < count; i++) {
        low[i] = bytes[i] & 15;
        high[i] = bytes[i] >> 4;
    }
}

/* Unpacks a block of a row into 32 or 256 bytes, with a scale per 16 elements and a minimum per 32. */
static void unpack_block(enum rf_dtype dtype, const uint8_t *block, uint8_t *quants, float *scale, float *minimum) {
    if (dtype == RF_Q8_0) {
        for (int i = 0; i < 32; i++) quants[i] = (uint8_t)(block[2 + i] + VEC_SIGNED_OFFSET);
        scale[0] = scale[1] = half_at(block);
    } else if (dtype == RF_Q4_0) {
        nibbles(quants, quants + 16, block + 2, 16);
        scale[0] = scale[1] = half_at(block);
    } else if (dtype == RF_Q4_K) {
        float whole = half_at(block), least = half_at(block + 2);
        for (int j = 0; j < 8; j++) {
            int s, m;
            rf_k4_scale(block + 4, j, &s, &m);
            scale[2 * j] = scale[2 * j + 1] = whole * (float)s;
            minimum[j] = least * (float)m;
        }
        for (int c = 0; c < 4; c++) nibbles(quants + 64 * c, quants + 64 * c + 32, block + 16 + 32 * c, 32);
    } else {
        const uint8_t *low = block, *high = block + 128;
        float whole = half_at(block + 208);
        for (int g = 0; g < 16; g++) scale[g] = whole * (float)(int8_t)block[192 + g];
        for (int h = 0; h < 2; h++, low += 64, high += 32)
            for (int i = 0; i < 32; i++) {
                uint8_t *out = quants + 128 * h + i;
                out[0] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
                out[32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
                out[64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
                out[96] = (uint8_t)(low[i + 32] >> 4 | (high[i] >> 6) << 4);
            }
    }
}

/* rf_simd's pack, for any level. */
static void pack_rows(struct rf_panel *panel, enum rf_dtype dtype, const void *weights, size_t row_bytes, size_t rows,
                      size_t k) {
    size_t elements = dtype == RF_Q8_0 || dtype == RF_Q4_0 ? 32 : 256;
    size_t bytes = dtype == RF_Q8_0 ? 34 : dtype == RF_Q4_0 ? 18 : dtype == RF_Q4_K ? 144 : 210;
    for (size_t r = 0; r < VEC_WIDTH; r++) {
        const uint8_t *block = (const uint8_t *)weights + r * row_bytes;
        uint8_t quants[256] = {0};
        float scale[16] = {0}, minimum[8] = {0};
        for (size_t i = 0; i < k; i += elements, block += bytes) {
            if (r < rows) unpack_block(dtype, block, quants, scale, minimum);
            uint8_t *to = panel->quants + i * VEC_WIDTH + 4 * r;
            for (size_t j = 0; j < elements / 4; j++) memcpy(to + 4 * VEC_WIDTH * j, quants + 4 * j, 4);
            for (size_t g = 0; g < elements / 16; g++) panel->scale[(i / 16 + g) * VEC_WIDTH + r] = scale[g];
            for (size_t g = 0; dtype == RF_Q4_K && g < 8; g++)
                panel->minimum[(i / 32 + g) * VEC_WIDTH + r] = minimum[g];
        }
    }
}

ALWAYS_INLINE vi vi_set_bytes(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vi_set(four);
}

#define PANEL_COLUMNS (VEC_WIDTH == 16 ? 8 : 4)

ALWAYS_INLINE void panel_tile(float *y, size_t y_stride, size_t rows, const struct rf_panel *panel,
                              const struct panel_type type, const struct rf_act_group *x, size_t x_stride,
                              const size_t columns, size_t k) {
    vf sums[PANEL_COLUMNS];
    for (size_t c = 0; c < columns; c++) sums[c] = vf_set(0);
    const size_t parts = type.halves ? 2 : 1, steps = 8 / parts;
    for (size_t b = 0; b < k / 32; b++) {
        const uint8_t *quants = panel->quants + b * 32 * VEC_WIDTH;
        const struct rf_act_group *group = x + b / 4;
        for (size_t part = 0; part < parts; part++) {
            vi dots[PANEL_COLUMNS];
            for (size_t c = 0; c < columns; c++) {
                const struct rf_act_group *g = group + c * x_stride;
                int32_t sum = type.halves ? g->half[b % 4 * 2 + part] : g->sum[b % 4];
                dots[c] = vi_set(type.zero ? -type.zero * sum : 0);
            }
            for (size_t j = 0; j < steps; j++) {
                vi weights = vi_load(quants + (part * steps + j) * 4 * VEC_WIDTH);
                for (size_t c = 0; c < columns; c++) {
                    vi each = vi_set_bytes(group[c * x_stride].quants + b % 4 * 32 + (part * steps + j) * 4);
                    dots[c] = type.wide ? vi_dot_wide(dots[c], weights, each) : vi_dot(dots[c], weights, each);
                }
            }
            vf scale = vf_load(panel->scale + (2 * b + part) * VEC_WIDTH);
            for (size_t c = 0; c < columns; c++) {
                vf both = vf_mul(scale, vf_set(group[c * x_stride].scale[b % 4]));
                sums[c] = vf_fma(vi_to_f32(dots[c]), both, sums[c]);
            }
        }
        if (type.minimum) {
            vf minimum = vf_load(panel->minimum + b * VEC_WIDTH);
            for (size_t c = 0; c < columns; c++) {
                const struct rf_act_group *g = group + c * x_stride;
                sums[c] = vf_fnma(minimum, vf_set(g->scale[b % 4] * (float)g->sum[b % 4]), sums[c]);
            }
        }
    }
    for (size_t c = 0; c < columns; c++) vf_store_n(y + c * y_stride, sums[c], rows);
}

#define DEFINE_PANEL(name, type)                                                                                     \
    static void panel_##name(float *y, size_t y_stride, size_t rows, const struct rf_panel *panel,                   \
                             const struct rf_act_group *x, size_t x_stride, size_t columns, size_t k) {              \
        size_t c = 0;                                                                                                \
        for (; c + PANEL_COLUMNS <= columns; c += PANEL_COLUMNS)                                                     \
            panel_tile(y + c * y_stride, y_stride, rows, panel, type, x + c * x_stride, x_stride, PANEL_COLUMNS, k); \
        for (; c + PANEL_COLUMNS / 2 <= columns; c += PANEL_COLUMNS / 2)                                             \
            panel_tile(y + c * y_stride, y_stride, rows, panel, type, x + c * x_stride, x_stride, PANEL_COLUMNS / 2, \
                       k);                                                                                           \
        for (; c < columns; c++)                                                                                     \
            panel_tile(y + c * y_stride, y_stride, rows, panel, type, x + c * x_stride, x_stride, 1, k);             \
    }
DEFINE_PANEL(q8_0, PANEL_Q8_0)
DEFINE_PANEL(q4_0, PANEL_Q4_0)
DEFINE_PANEL(q4_k, PANEL_Q4_K)
DEFINE_PANEL(q6_k, PANEL_Q6_K)

static void panel_dot(float *y, size_t y_stride, size_t rows, const struct rf_panel *panel, enum rf_dtype dtype,
                      const struct rf_act_group *x, size_t x_stride, size_t columns, size_t k) {
    switch (dtype) {
    case RF_Q8_0: panel_q8_0(y, y_stride, rows, panel, x, x_stride, columns, k); break;
    case RF_Q4_0: panel_q4_0(y, y_stride, rows, panel, x, x_stride, columns, k); break;
    case RF_Q4_K: panel_q4_k(y, y_stride, rows, panel, x, x_stride, columns, k); break;
    default: panel_q6_k(y, y_stride, rows, panel, x, x_stride, columns, k); break;
    }
}

/* ---- attention ---- */

#define DEFINE_ATTEND(T, bytes)                                                                                      \
    static void attend_##T(struct rf_attend *state, const float *q, const void *k, size_t k_stride, const void *v,   \
                           size_t v_stride, size_t count, size_t dim, float scale, const float *mask) {              \
        float scores[RF_ATTEND_KEYS + VEC_WIDTH];                                                                    \
        for (size_t j = 0; j < count; j++) {                                                                         \
            const char *key = (const char *)k + j * k_stride * bytes;                                                \
            vf even = vf_set(0), odd = vf_set(0);                                                                    \
            size_t i = 0;                                                                                            \
            for (; i + 2 * VEC_WIDTH <= dim; i += 2 * VEC_WIDTH) {                                                   \
                even = vf_fma(get_##T(key, i, VEC_WIDTH), vf_load(q + i), even);                                     \
                odd = vf_fma(get_##T(key, i + VEC_WIDTH, VEC_WIDTH), vf_load(q + i + VEC_WIDTH), odd);               \
            }                                                                                                        \
            for (; i < dim; i += VEC_WIDTH) {                                                                        \
                size_t n = dim - i < VEC_WIDTH ? dim - i : VEC_WIDTH;                                                \
                even = vf_fma(get_##T(key, i, n), get_f32(q, i, n), even);                                           \
            }                                                                                                        \
            scores[j] = vf_sum(vf_add(even, odd)) * scale;                                                           \
        }                                                                                                            \
        float correction = running_softmax(state, scores, count, mask);                                              \
        for (size_t i = 0; i < dim; i += VEC_WIDTH) {                                                                \
            size_t n = dim - i < VEC_WIDTH ? dim - i : VEC_WIDTH;                                                    \
            vf sum = vf_mul(get_f32(state->out, i, n), vf_set(correction));                                          \
            const char *value = v;                                                                                   \
            if (n == VEC_WIDTH)                                                                                      \
                for (size_t j = 0; j < count; j++, value += v_stride * bytes)                                        \
                    sum = vf_fma(get_##T(value, i, VEC_WIDTH), vf_set(scores[j]), sum);                              \
            else                                                                                                     \
                for (size_t j = 0; j < count; j++, value += v_stride * bytes)                                        \
                    sum = vf_fma(get_##T(value, i, n), vf_set(scores[j]), sum);                                      \
            put_f32(state->out, i, sum, n);                                                                          \
        }                                                                                                            \
    }

/* Turns scores into weights relative to the greatest score so far. Returns the factor for what was summed before. A
 * NaN among the scores reaches the sum. */
static float running_softmax(struct rf_attend *state, float *scores, size_t count, const float *mask) {
    vf greatest = vf_set(state->greatest);
    EACH_VECTOR(i, n, count) {
        vf x = get_f32(scores, i, n);
        if (mask) x = vf_add(x, get_f32(mask, i, n));
        put_f32(scores, i, x, n);
        greatest = vf_max(vf_keep_n(x, n, -INFINITY), greatest);
    }
    float most = vf_greatest(greatest), shift = most == -INFINITY ? 0 : most;
    vf sum = vf_set(0);
    EACH_VECTOR(i, n, count) {
        vf x = vf_keep_n(vf_exp(vf_sub(get_f32(scores, i, n), vf_set(shift))), n, 0);
        put_f32(scores, i, x, n);
        sum = vf_add(sum, x);
    }
    float correction = expf(state->greatest - shift);
    state->sum = state->sum * correction + vf_sum(sum);
    state->greatest = most;
    return correction;
}
DEFINE_ATTEND(f32, 4)
DEFINE_ATTEND(f16, 2)
DEFINE_ATTEND(bf16, 2)

#endif
