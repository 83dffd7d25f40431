/* add: out[i] = a[i] + b[i], summed in f32, then rounded to the type.
 *
 * See elementwise_args.h. Any grid, one-dimensional block. out may be a or b; it may not overlap them otherwise. */
#include "kernels/elementwise.h"

RF_DEVICE void add_body(enum rf_type type, void *out, const void *a, const void *b, uint64_t count) {
    enum { most = 8 };
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(count, group, type, out, type, a, type, b);
    float x[RF_GROUPS][most], y[RF_GROUPS][most];
    RF_FOR_GROUPS(
        span, group,
        {
            rf_load_many(type, group, a, at, x[slot]);
            rf_load_many(type, group, b, at, y[slot]);
        },
        {
            RF_UNROLL
            for (uint32_t k = 0; k < group; k++) x[slot][k] += y[slot][k];
            rf_store_many(type, group, out, at, x[slot]);
        });
    RF_FOR_SINGLES(span, group, x[slot][0] = rf_load(type, a, at) + rf_load(type, b, at),
                   rf_store(type, out, at, x[slot][0]));
}

RF_KERNEL(add_f32, 256, (float *, out), (const float *, a), (const float *, b), (uint64_t, count)) {
    add_body(RF_TYPE_F32, out, a, b, count);
}
RF_KERNEL(add_f16, 256, (rf_f16 *, out), (const rf_f16 *, a), (const rf_f16 *, b), (uint64_t, count)) {
    add_body(RF_TYPE_F16, out, a, b, count);
}
RF_KERNEL(add_bf16, 256, (rf_bf16 *, out), (const rf_bf16 *, a), (const rf_bf16 *, b), (uint64_t, count)) {
    add_body(RF_TYPE_BF16, out, a, b, count);
}
