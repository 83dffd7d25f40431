/* silu_gate, gelu_gate, gelu_erf_gate: out[r][c] = act(gate[r][c]) * up[r][c]; up may be NULL: act alone.
 *
 *     silu      x / (1 + exp(-x))
 *     gelu      x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): the form with tanh
 *     gelu_erf  x (1 + erf(x / sqrt(2))) / 2
 *
 * The arithmetic is in f32 and rounded once; act(-inf) is 0, the limit. The three arrays have one type, and row
 * strides of their own (gate and up may be the halves of one matrix): see elementwise_args.h. out may be gate or up
 * with the same stride; it may not overlap them otherwise. <act>_gate_f32_<type> has gate and up of f32 and out,
 * apart from them, of a type of 16 bits. Launched as sheet.h says. */
#include "kernels/sheet.h"

/* 1 / (1 + exp(-x)); for large |x| this is 0 or 1. */
RF_DEVICE float activation_logistic(float x) {
    return rf_rcp(1.0f + rf_exp(-x));
}

/* 1 - erf(x) for x of 0 and above, with a relative error below 1.2e-7 for large x too (a Chebyshev fit of
 * ln(erfc(x) / t) + x^2). */
RF_DEVICE float activation_erfc(float x) {
    float t = rf_rcp(rf_fma(0.5f, x, 1.0f));
    float p = rf_fma(t, 0.17087277f, -0.82215223f);
    p = rf_fma(t, p, 1.48851587f);
    p = rf_fma(t, p, -1.13520398f);
    p = rf_fma(t, p, 0.27886807f);
    p = rf_fma(t, p, -0.18628806f);
    p = rf_fma(t, p, 0.09678418f);
    p = rf_fma(t, p, 0.37409196f);
    p = rf_fma(t, p, 1.00002368f);
    p = rf_fma(t, p, -1.26551223f);
    return t * rf_exp(rf_fma(-x, x, p));
}

RF_DEVICE float activation_of(enum rf_activation kind, float x) {
    float y;
    if (kind == RF_ACTIVATION_SILU) {
        y = x * activation_logistic(x);
    } else if (kind == RF_ACTIVATION_GELU) {
        y = x * activation_logistic(1.5957691216057308f * x * rf_fma(0.044715f * x, x, 1.0f));
    } else {
        float tail = 0.5f * activation_erfc(0.70710678118654752f * __builtin_fabsf(x));
        /* For x below 0 the tail itself, not a difference of nearly equal numbers: up may be large there. */
        y = x * (x < 0.0f ? tail : 1.0f - tail);
    }
    return x == -RF_INFINITY ? 0.0f : y;
}

RF_DEVICE float activation_unpack(enum rf_type type, rf_u32x4 raw, uint32_t k) {
    if (type == RF_TYPE_F32) return rf_f32_of_bits(raw[k % 4]);
    return rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
}

RF_DEVICE void activation_row(enum rf_activation kind, enum rf_type type, enum rf_type to_type, bool gated, void *out,
                              const void *gate, const void *up, uint64_t columns) {
    enum { most = 8 };
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(columns, group, to_type, out, type, gate, type, gated ? up : gate);
    /* Kept as loaded and unpacked one group at a time: unpacked, they would take the registers of half the threads.
     */
    rf_u32x4 x[RF_GROUPS], y[RF_GROUPS];
    RF_FOR_GROUPS(
        span, group,
        {
            x[slot] = rf_load_16(rf_at(type, gate, at));
            if (gated) y[slot] = rf_load_16(rf_at(type, up, at));
        },
        {
            float value[most];
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++) {
                value[k] = activation_of(kind, activation_unpack(type, x[slot], k));
                if (gated) value[k] *= activation_unpack(type, y[slot], k);
            }
            rf_store_many(to_type, group, out, at, value);
        });
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.single; i += rf_global_count_x()) {
        uint64_t at = rf_span_single(span, group, i);
        float value = activation_of(kind, rf_load(type, gate, at));
        if (gated) value *= rf_load(type, up, at);
        rf_store(to_type, out, at, value);
    }
}

RF_DEVICE void activation_body(enum rf_activation kind, enum rf_type type, enum rf_type to_type, void *out,
                               const void *gate, const void *up, struct rf_activation_args args) {
    RF_FOR_ROWS(args.rows) {
        void *to = rf_at_mutable(to_type, out, row * args.out_row);
        const void *from = rf_at(type, gate, row * args.gate_row);
        if (up) {
            activation_row(kind, type, to_type, true, to, from, rf_at(type, up, row * args.up_row), args.columns);
        } else {
            activation_row(kind, type, to_type, false, to, from, from, args.columns);
        }
    }
}

#define ACTIVATION(name, kind, type_name, type, element, to_type, to_element)                                        \
    RF_KERNEL(name##_gate_##type_name, 256, (to_element *, out), (const element *, gate), (const element *, up),     \
              (struct rf_activation_args, args)) {                                                                   \
        activation_body(kind, type, to_type, out, gate, up, args);                                                   \
    }
#define ACTIVATIONS(type_name, type, element, to_type, to_element)                                                   \
    ACTIVATION(silu, RF_ACTIVATION_SILU, type_name, type, element, to_type, to_element)                              \
    ACTIVATION(gelu, RF_ACTIVATION_GELU, type_name, type, element, to_type, to_element)                              \
    ACTIVATION(gelu_erf, RF_ACTIVATION_GELU_ERF, type_name, type, element, to_type, to_element)

ACTIVATIONS(f32, RF_TYPE_F32, float, RF_TYPE_F32, float)
ACTIVATIONS(f16, RF_TYPE_F16, rf_f16, RF_TYPE_F16, rf_f16)
ACTIVATIONS(bf16, RF_TYPE_BF16, rf_bf16, RF_TYPE_BF16, rf_bf16)
ACTIVATIONS(f32_f16, RF_TYPE_F32, float, RF_TYPE_F16, rf_f16)
ACTIVATIONS(f32_bf16, RF_TYPE_F32, float, RF_TYPE_BF16, rf_bf16)
