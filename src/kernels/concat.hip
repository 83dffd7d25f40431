/* concat_<bytes>: up to four arrays joined along a dimension, elements of 4 or 2 bytes. Seen from that
 * dimension each array is [outer][width], dense, where width counts the elements of all inner dimensions too;
 * out is [outer][width0 + width1 + width2 + width3], a width of 0 leaves its array out.
 *
 * x is along a row, y takes rows; any grid, a one-dimensional block. out may not overlap an input. */
#include "kernels/sheet.h"

RF_DEVICE void concat_part(enum rf_type type, void *out, const void *in, uint64_t width) {
    uint32_t group = rf_group_of(type, type);
    struct rf_span span = rf_span_of(width, group, type, out, type, in, type, in);
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.groups; i += rf_global_count_x()) {
        uint64_t at = span.head + i * group;
        rf_store_16(rf_at_mutable(type, out, at), rf_load_16(rf_at(type, in, at)));
    }
    RF_NO_UNROLL
    for (uint64_t i = rf_global_x(); i < span.single; i += rf_global_count_x()) {
        uint64_t at = rf_span_single(span, group, i);
        if (type == RF_TYPE_F32) {
            ((uint32_t *)out)[at] = ((const uint32_t *)in)[at];
        } else {
            ((uint16_t *)out)[at] = ((const uint16_t *)in)[at];
        }
    }
}

#define CONCAT(bytes, element, type)                                                                                 \
    RF_KERNEL(concat_##bytes, 256, (element *, out), (const element *, in0), (const element *, in1),                 \
              (const element *, in2), (const element *, in3), (uint64_t, outer), (uint64_t, width0),                 \
              (uint64_t, width1), (uint64_t, width2), (uint64_t, width3)) {                                          \
        RF_FOR_ROWS(outer) {                                                                                         \
            element *to = out + row * (width0 + width1 + width2 + width3);                                           \
            if (width0) concat_part(type, to, in0 + row * width0, width0);                                           \
            if (width1) concat_part(type, to + width0, in1 + row * width1, width1);                                  \
            if (width2) concat_part(type, to + width0 + width1, in2 + row * width2, width2);                         \
            if (width3) concat_part(type, to + width0 + width1 + width2, in3 + row * width3, width3);                \
        }                                                                                                            \
    }

CONCAT(4, uint32_t, RF_TYPE_F32)
CONCAT(2, uint16_t, RF_TYPE_F16)
