/* The scalar references of rotation and of the KV cache (see ref_cache.h): obvious rather than fast.
 *
 * Rotation is computed here from the angle in radians, in double; the kernels work on phases of 64 bits. */
#include "cpu/ref_cache.h"

#include <math.h>
#include <string.h>

#include "cpu/reference.h"

static bool plain(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

/* ---- rotary embedding ---- */

/* The number of the pair that turns `turns` times within the original context; it may be a fraction. */
static double pair_that_turns(const struct rf_rope_params *p, double base, double turns) {
    return p->rotated * log(p->original_context / (turns * 2 * M_PI)) / (2 * log(base));
}

/* 0 for a pair that keeps its unscaled angle, 1 for one that is scaled, in between for a mix. */
static double interpolated(const struct rf_rope_params *p, double base, uint32_t pair) {
    double fast = p->beta_fast > 0 ? p->beta_fast : 32, slow = p->beta_slow > 0 ? p->beta_slow : 1;
    double low = fmax(0, floor(pair_that_turns(p, base, fast)));
    double high = fmin(p->rotated - 1, ceil(pair_that_turns(p, base, slow)));
    double share = (pair - low) / fmax(0.001, high - low);
    return fmin(1, fmax(0, share));
}

static bool sensible(const struct rf_rope_params *p) {
    double numbers[] = {p->base, p->scale, p->extension, p->attention, p->beta_fast, p->beta_slow};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i]) || numbers[i] < 0) return false;
    if (p->rotated == 0 || p->rotated % 2 || (p->base > 0 && p->base <= 1)) return false;
    for (uint32_t i = 0; p->factors && i < p->rotated / 2; i++)
        if (!isfinite(p->factors[i]) || p->factors[i] <= 0) return false;
    return p->extension == 0 || p->original_context > 0;
}

bool rf_rope_steps(const struct rf_rope_params *params, uint64_t *steps, float *magnitude) {
    if (!sensible(params)) return false;
    double base = params->base > 0 ? params->base : 10000, scale = params->scale > 0 ? params->scale : 1;
    double factor = params->attention > 0 ? params->attention : 1;
    if (params->extension > 0) factor *= 1 + 0.1 * log(1 / scale);
    for (uint32_t i = 0; i < params->rotated / 2; i++) {
        double frequency = pow(base, -2.0 * i / params->rotated);
        if (params->factors) frequency /= (double)params->factors[i];
        double angle = frequency * scale;
        if (params->extension > 0) {
            double kept = (1 - interpolated(params, base, i)) * params->extension;
            angle = angle * (1 - kept) + frequency * kept;
        }
        double turns = angle / (2 * M_PI);
        turns -= floor(turns); /* whole turns change nothing */
        /* 2^64 is a whole turn, which is the same as 0. */
        long double fraction = roundl((long double)turns * 0x1p64L);
        steps[i] = fraction >= 0x1p64L ? 0 : (uint64_t)fraction;
    }
    *magnitude = (float)factor;
    return true;
}

/* Replaces the pairs of one row of doubles. */
static void rotate(double *row, size_t rotated, bool halves, const uint64_t *steps, int32_t position,
                   float magnitude) {
    for (size_t i = 0; i < rotated / 2; i++) {
        size_t first = halves ? i : 2 * i, second = halves ? i + rotated / 2 : 2 * i + 1;
        /* The phase is reduced modulo a turn, exactly, before it becomes an angle. */
        uint64_t phase = steps[i] * (uint64_t)(int64_t)position;
        double angle = (double)phase * 0x1p-64 * 2 * M_PI;
        double a = row[first], b = row[second];
        row[first] = (a * cos(angle) - b * sin(angle)) * (double)magnitude;
        row[second] = (a * sin(angle) + b * cos(angle)) * (double)magnitude;
    }
}

enum { DIM_MAX = 4096 };

void rf_ref_rope(enum rf_dtype out_dtype, void *out, enum rf_dtype dtype, const void *in, const int32_t *positions,
                 const uint64_t *steps, const struct rf_rope_args *args) {
    double row[DIM_MAX];
    if (!plain(dtype) || !plain(out_dtype) || args->dim > DIM_MAX) return;
    for (size_t t = 0; t < args->tokens; t++)
        for (size_t h = 0; h < args->heads; h++) {
            for (size_t e = 0; e < args->dim; e++)
                row[e] = rf_element_get(dtype, in, t * args->in_token + h * args->in_head + e);
            rotate(row, args->rotated, args->halves, steps, positions[t], args->magnitude);
            for (size_t e = 0; e < args->dim; e++)
                rf_element_set(out_dtype, out, t * args->out_token + h * args->out_head + e, row[e]);
        }
}

/* ---- appending ---- */

void rf_ref_quantize_q8_0(const float *values, uint8_t *block) {
    float most = 0;
    for (size_t i = 0; i < 32; i++) most = fmaxf(most, fabsf(values[i]));
    float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
    uint16_t bits = rf_f16_from_double((double)d);
    memcpy(block, &bits, 2);
    for (size_t i = 0; i < 32; i++) {
        float q = roundf(values[i] * inverse);
        block[2 + i] = (uint8_t)(int8_t)(q >= -127 ? q <= 127 ? q : 127 : -127);
    }
}

static void append_row(enum rf_dtype dtype, void *cache, size_t to, const float *values, size_t dim) {
    if (dtype == RF_Q8_0) {
        for (size_t e = 0; e + 32 <= dim; e += 32)
            rf_ref_quantize_q8_0(values + e, (uint8_t *)cache + (to + e) / 32 * 34);
    } else {
        for (size_t e = 0; e < dim; e++) rf_element_set(dtype, cache, to + e, (double)values[e]);
    }
}

void rf_ref_kv_append(const struct rf_ref_kv_append *append) {
    const struct rf_kv_append_args *args = &append->args;
    enum rf_dtype dtype = append->dtype;
    if ((dtype != RF_F32 && dtype != RF_F16 && dtype != RF_Q8_0) || args->dim > DIM_MAX) return;
    for (size_t t = 0; t < args->tokens; t++) {
        int32_t position = append->positions[t];
        uint32_t sequence = append->sequences ? append->sequences[t] : 0;
        if (position < 0 || (append->table && sequence >= args->sequence_count)) continue;
        size_t turn = (uint32_t)position / args->page_rows, row = (uint32_t)position % args->page_rows;
        if (turn >= (append->table ? args->table_width : 1)) continue;
        uint32_t page = append->table ? append->table[sequence * args->table_width + turn] : sequence;
        if (page >= args->page_count) continue;
        for (size_t h = 0; h < args->heads; h++) {
            size_t to = page * args->page + h * args->head + row * args->row;
            const float *k = append->k + t * args->k_token + h * args->dim;
            double wide[DIM_MAX];
            float narrow[DIM_MAX];
            for (size_t e = 0; e < args->dim; e++) wide[e] = (double)k[e];
            if (append->steps) rotate(wide, args->rotated, args->halves, append->steps, position, args->magnitude);
            for (size_t e = 0; e < args->dim; e++) narrow[e] = (float)wide[e];
            append_row(dtype, append->k_cache, to, narrow, args->dim);
            append_row(dtype, append->v_cache, to, append->v + t * args->v_token + h * args->dim, args->dim);
        }
    }
}
