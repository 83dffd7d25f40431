/* scale: out[i] = in[i] * factor, multiplied in f32, then rounded to the type.
 *
 * See elementwise_args.h. Any grid, one-dimensional block. out may be in; it may not overlap it otherwise. */
#include "kernels/elementwise.h"

RF_DEVICE void scale_body(enum rf_type type, void *out, const void *in, float factor, uint64_t count) {
    enum { most = 8 };
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(count, group, type, out, type, in, type, in);
    float x[RF_GROUPS][most];
    RF_FOR_GROUPS(span, group, rf_load_many(type, group, in, at, x[slot]), {
        RF_UNROLL
        for (uint32_t k = 0; k < group; k++) x[slot][k] *= factor;
        rf_store_many(type, group, out, at, x[slot]);
    });
    RF_FOR_SINGLES(span, group, x[slot][0] = rf_load(type, in, at) * factor, rf_store(type, out, at, x[slot][0]));
}

RF_KERNEL(scale_f32, 256, (float *, out), (const float *, in), (float, factor), (uint64_t, count)) {
    scale_body(RF_TYPE_F32, out, in, factor, count);
}
RF_KERNEL(scale_f16, 256, (rf_f16 *, out), (const rf_f16 *, in), (float, factor), (uint64_t, count)) {
    scale_body(RF_TYPE_F16, out, in, factor, count);
}
RF_KERNEL(scale_bf16, 256, (rf_bf16 *, out), (const rf_bf16 *, in), (float, factor), (uint64_t, count)) {
    scale_body(RF_TYPE_BF16, out, in, factor, count);
}
