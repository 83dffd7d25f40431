/* multiply: out[r][c] = a[r][c] * b[r][c]. multiply_add: out[r][c] = a[r][c] * b[r][c] + c[r][c], where the
 * product is not rounded before the sum. Both compute in f32 and round to the type: the same bits as the reference.
 *
 * All arrays have one type; each has a row stride, of which 0 repeats a row (a weight, a bias): see
 * elementwise_args.h. out may be an input with the same stride; it may not overlap one otherwise. Launched as sheet.h
 * says. */
#include "kernels/sheet.h"

RF_DEVICE float multiply_one(bool add, float a, float b, float c) {
    return add ? rf_fma(a, b, c) : a * b;
}

RF_DEVICE float multiply_unpack(enum rf_type type, rf_u32x4 raw, uint32_t k) {
    if (type == RF_TYPE_F32) return rf_f32_of_bits(raw[k % 4]);
    return rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
}

RF_DEVICE void multiply_row(enum rf_type type, bool add, void *out, const void *a, const void *b, const void *c,
                            uint64_t columns) {
    enum { most = 8 };
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(columns, group, type, out, type, a, type, b);
    if (add && !rf_group_aligned(type, c, span.head, group)) {
        span.groups = 0;
        span.single = columns;
    }
    /* Kept as loaded, 16 bytes of each, and unpacked one group at a time: three arrays of unpacked groups would take
     * too many registers. */
    rf_u32x4 x[RF_GROUPS], y[RF_GROUPS], z[RF_GROUPS];
#undef RF_GROUPS
#define RF_GROUPS (add ? 2u : 4u) /* four groups of three arrays would, too */
    RF_FOR_GROUPS(
        span, group,
        {
            x[slot] = rf_load_16(rf_at(type, a, at));
            y[slot] = rf_load_16(rf_at(type, b, at));
            if (add) z[slot] = rf_load_16(rf_at(type, c, at));
        },
        {
            float value[most];
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++)
                value[k] = multiply_one(add, multiply_unpack(type, x[slot], k), multiply_unpack(type, y[slot], k),
                                        add ? multiply_unpack(type, z[slot], k) : 0.0f);
            rf_store_many(type, group, out, at, value);
        });
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.single; i += rf_global_count_x()) {
        uint64_t at = rf_span_single(span, group, i);
        rf_store(type, out, at,
                 multiply_one(add, rf_load(type, a, at), rf_load(type, b, at), add ? rf_load(type, c, at) : 0.0f));
    }
}

#define MULTIPLY(name, type, element)                                                                                \
    RF_KERNEL(multiply_##name, 256, (element *, out), (const element *, a), (const element *, b),                    \
              (struct rf_multiply_args, args)) {                                                                     \
        RF_FOR_ROWS(args.rows)                                                                                       \
        multiply_row(type, false, out + row * args.out_row, a + row * args.a_row, b + row * args.b_row, a,           \
                     args.columns);                                                                                  \
    }                                                                                                                \
    RF_KERNEL(multiply_add_##name, 256, (element *, out), (const element *, a), (const element *, b),                \
              (const element *, c), (struct rf_multiply_args, args)) {                                               \
        RF_FOR_ROWS(args.rows)                                                                                       \
        multiply_row(type, true, out + row * args.out_row, a + row * args.a_row, b + row * args.b_row,               \
                     c + row * args.c_row, args.columns);                                                            \
    }

MULTIPLY(f32, RF_TYPE_F32, float)
MULTIPLY(f16, RF_TYPE_F16, rf_f16)
MULTIPLY(bf16, RF_TYPE_BF16, rf_bf16)
