/* copy_<from>_<to>: out[i] = in[i], converted where the types differ, with the same bits where they do not.
 * copy_2d_<from>_<to>: the same for rows and columns at strides: rows of a larger matrix, and transposes. See
 * elementwise_args.h for both.
 *
 * copy: any grid, one-dimensional block. copy_2d: x is columns, y is rows; any grid, any
 * two-dimensional block, threads along x next to each other in memory. The arrays may not
 * overlap; contiguous copies of one type may be in place. */
#include "kernels/elementwise.h"

/* One element, as bits where the types are the same: going through f32 would not keep the bits of a NaN. */
RF_DEVICE uint32_t copy_load(enum rf_type from, enum rf_type to, const void *in, uint64_t at) {
    if (from != to) return rf_bits_of_f32(rf_load(from, in, at));
    return from == RF_TYPE_F32 ? ((const uint32_t *)in)[at] : ((const uint16_t *)in)[at];
}
RF_DEVICE void copy_store(enum rf_type from, enum rf_type to, void *out, uint64_t at, uint32_t bits) {
    if (from != to) {
        rf_store(to, out, at, rf_f32_of_bits(bits));
    } else if (from == RF_TYPE_F32) {
        ((uint32_t *)out)[at] = bits;
    } else {
        ((uint16_t *)out)[at] = (uint16_t)bits;
    }
}

RF_DEVICE void copy_same_body(enum rf_type type, void *out, const void *in, uint64_t count) {
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(count, group, type, out, type, in, type, in);
    rf_u32x4 raw[RF_GROUPS];
    RF_FOR_GROUPS(span, group, raw[slot] = rf_load_16(rf_at(type, in, at)),
                  rf_store_16(rf_at_mutable(type, out, at), raw[slot]));
    uint32_t single[RF_GROUPS];
    RF_FOR_SINGLES(span, group, single[slot] = copy_load(type, type, in, at),
                   copy_store(type, type, out, at, single[slot]));
}

RF_DEVICE void copy_cast_body(enum rf_type from, enum rf_type to, void *out, const void *in, uint64_t count) {
    enum { most = 8 };
    uint32_t group = rf_group_of(from, to);
    struct rf_span span = rf_span_of(count, group, to, out, from, in, from, in);
    float x[RF_GROUPS][most];
    RF_FOR_GROUPS(span, group, rf_load_many(from, group, in, at, x[slot]),
                  rf_store_many(to, group, out, at, x[slot]));
    uint32_t single[RF_GROUPS];
    RF_FOR_SINGLES(span, group, single[slot] = copy_load(from, to, in, at),
                   copy_store(from, to, out, at, single[slot]));
}

RF_DEVICE void copy_body(enum rf_type from, enum rf_type to, void *out, const void *in, uint64_t count) {
    if (from == to) {
        copy_same_body(from, out, in, count);
    } else {
        copy_cast_body(from, to, out, in, count);
    }
}

/* One row, by the threads along x. */
RF_DEVICE void copy_row(enum rf_type from, enum rf_type to, void *out, const void *in, uint64_t columns,
                        uint64_t out_column, uint64_t in_column) {
    enum { most = 8 };
    uint32_t group = rf_group_of(from, to);
    struct rf_span span = {0, 0, columns};
    if (out_column == 1 && in_column == 1) span = rf_span_of(columns, group, to, out, from, in, from, in);
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.groups; i += rf_global_count_x()) {
        uint64_t at = span.head + i * group;
        if (from == to) {
            rf_store_16(rf_at_mutable(to, out, at), rf_load_16(rf_at(from, in, at)));
        } else {
            float x[most];
            rf_load_many(from, group, in, at, x);
            rf_store_many(to, group, out, at, x);
        }
    }
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.single; i += rf_global_count_x()) {
        uint64_t at = rf_span_single(span, group, i);
        copy_store(from, to, out, at * out_column, copy_load(from, to, in, at * in_column));
    }
}

RF_DEVICE void copy_2d_body(enum rf_type from, enum rf_type to, void *out, const void *in,
                            struct rf_copy_2d_args args) {
    uint64_t step = (uint64_t)rf_grid_dim_y() * rf_block_dim_y();
    RF_NO_UNROLL
    for (uint64_t row = (uint64_t)rf_block_y() * rf_block_dim_y() + rf_thread_y(); row < args.rows; row += step)
        copy_row(from, to, rf_at_mutable(to, out, row * args.out_row), rf_at(from, in, row * args.in_row),
                 args.columns, args.out_column, args.in_column);
}

#define COPY(from_name, from_type, from, to_name, to_type, to)                                                       \
    RF_KERNEL(copy_##from_name##_##to_name, 256, (to_type *, out), (const from_type *, in), (uint64_t, count)) {     \
        copy_body(from, to, out, in, count);                                                                         \
    }                                                                                                                \
    RF_KERNEL(copy_2d_##from_name##_##to_name, 256, (to_type *, out), (const from_type *, in),                       \
              (struct rf_copy_2d_args, args)) {                                                                      \
        copy_2d_body(from, to, out, in, args);                                                                       \
    }

COPY(f32, float, RF_TYPE_F32, f32, float, RF_TYPE_F32)
COPY(f32, float, RF_TYPE_F32, f16, rf_f16, RF_TYPE_F16)
COPY(f32, float, RF_TYPE_F32, bf16, rf_bf16, RF_TYPE_BF16)
COPY(f16, rf_f16, RF_TYPE_F16, f32, float, RF_TYPE_F32)
COPY(f16, rf_f16, RF_TYPE_F16, f16, rf_f16, RF_TYPE_F16)
COPY(f16, rf_f16, RF_TYPE_F16, bf16, rf_bf16, RF_TYPE_BF16)
COPY(bf16, rf_bf16, RF_TYPE_BF16, f32, float, RF_TYPE_F32)
COPY(bf16, rf_bf16, RF_TYPE_BF16, f16, rf_f16, RF_TYPE_F16)
COPY(bf16, rf_bf16, RF_TYPE_BF16, bf16, rf_bf16, RF_TYPE_BF16)
