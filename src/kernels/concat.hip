/* concat_<bytes>: up to four arrays joined along a dimension, with elements of 4 or 2 bytes. move_args.h has the
 * arguments.
 *
 * x is along a row, y takes rows; any grid, a one-dimensional block. Fast: a thread in x for each 16 bytes of a row,
 * a block in y for RF_CONCAT_ROWS rows. out may not overlap an input. */
#include "kernels/move_args.h"
#include "kernels/sheet.h"

/* All rows in vectors: a thread takes the same 16 bytes of each row of out. Widths are in vectors. */
RF_DEVICE void concat_vectors(rf_u32x4 *out, const rf_u32x4 *in0, const rf_u32x4 *in1, const rf_u32x4 *in2,
                              const rf_u32x4 *in3, uint64_t outer, uint64_t width0, uint64_t width1, uint64_t width2,
                              uint64_t width3) {
    uint64_t end1 = width0 + width1, end2 = end1 + width2, width = end2 + width3;
    RF_NO_UNROLL
    for (uint64_t at = rf_global_x(); at < width; at += rf_global_count_x()) {
        const rf_u32x4 *in = at < width0 ? in0 : at < end1 ? in1 : at < end2 ? in2 : in3;
        uint64_t in_row = at < width0 ? width0 : at < end1 ? width1 : at < end2 ? width2 : width3;
        uint64_t before = at < width0 ? 0 : at < end1 ? width0 : at < end2 ? end1 : end2;
        RF_NO_UNROLL
        for (uint64_t row = (uint64_t)rf_block_y() * RF_CONCAT_ROWS; row < outer;
             row += (uint64_t)rf_grid_dim_y() * RF_CONCAT_ROWS) {
            const rf_u32x4 *from = in + row * in_row + (at - before);
            rf_u32x4 *to = out + row * width + at, held[RF_CONCAT_ROWS];
            RF_UNROLL
            for (uint32_t k = 0; k < RF_CONCAT_ROWS; k++)
                if (row + k < outer) held[k] = rf_load_16(from + k * in_row);
            RF_UNROLL
            for (uint32_t k = 0; k < RF_CONCAT_ROWS; k++)
                if (row + k < outer) rf_store_16(to + k * width, held[k]);
        }
    }
}

RF_DEVICE bool concat_whole(enum rf_type type, const void *in, uint64_t width) {
    return !width || (rf_aligned(in, 16) && width % rf_group_of(type, type) == 0);
}

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
              (const element *, in2), (const element *, in3), (struct rf_concat_args, args)) {                       \
        const uint32_t group = rf_group_of(type, type);                                                              \
        uint64_t width0 = args.width[0], width1 = args.width[1], width2 = args.width[2], width3 = args.width[3];     \
        uint64_t end1 = width0 + width1, end2 = end1 + width2;                                                       \
        if (rf_aligned(out, 16) && concat_whole(type, in0, width0) && concat_whole(type, in1, width1) &&             \
            concat_whole(type, in2, width2) && concat_whole(type, in3, width3)) {                                    \
            concat_vectors((rf_u32x4 *)out, (const rf_u32x4 *)in0, (const rf_u32x4 *)in1, (const rf_u32x4 *)in2,     \
                           (const rf_u32x4 *)in3, args.outer, width0 / group, width1 / group, width2 / group,        \
                           width3 / group);                                                                          \
            return;                                                                                                  \
        }                                                                                                            \
        RF_FOR_ROWS(args.outer) {                                                                                    \
            element *to = out + row * (end2 + width3);                                                               \
            if (width0) concat_part(type, to, in0 + row * width0, width0);                                           \
            if (width1) concat_part(type, to + width0, in1 + row * width1, width1);                                  \
            if (width2) concat_part(type, to + end1, in2 + row * width2, width2);                                    \
            if (width3) concat_part(type, to + end2, in3 + row * width3, width3);                                    \
        }                                                                                                            \
    }

CONCAT(4, uint32_t, RF_TYPE_F32)
CONCAT(2, uint16_t, RF_TYPE_F16)
