/* fill: out[i] = value (see elementwise_args.h).
 *
 * Any grid, one-dimensional block. */
#include "kernels/elementwise.h"

RF_DEVICE void fill_body(void *out, uint32_t bits, uint64_t count) {
    struct rf_span span = rf_span_of(count, 4, RF_TYPE_F32, out, RF_TYPE_F32, out, RF_TYPE_F32, out);
    rf_u32x4 four = {bits, bits, bits, bits};
    RF_FOR_GROUPS(span, 4, (void)at, rf_store_16((uint32_t *)out + at, four));
    RF_FOR_SINGLES(span, 4, (void)at, ((uint32_t *)out)[at] = bits);
}

RF_KERNEL(fill_f32, 256, (float *, out), (float, value), (uint64_t, count)) {
    fill_body(out, rf_bits_of_f32(value), count);
}
RF_KERNEL(fill_u32, 256, (uint32_t *, out), (uint32_t, value), (uint64_t, count)) {
    fill_body(out, value, count);
}
