/* Elementwise ranges: vectors where the addresses allow them, single elements for the rest.
 *
 * A range of count elements is split into a head, a body of whole groups whose addresses are
 * aligned in every array, and a tail. Where no head makes all arrays aligned, everything is
 * done element by element. Any grid and any one-dimensional block give the right result; it is
 * fast with enough blocks that each thread gets RF_GROUPS groups. */
#ifndef RF_KERNELS_ELEMENTWISE_H
#define RF_KERNELS_ELEMENTWISE_H

#include "kernels/kernel.h"

#include "kernels/elementwise_args.h"

/* Groups a thread has in flight: 64 bytes of loads per array. */
#define RF_GROUPS RF_ELEMENTWISE_GROUPS

struct rf_span {
    uint64_t head;   /* elements before the first group */
    uint64_t groups; /* of 'group' elements each */
    uint64_t single; /* elements outside groups: head and tail together */
};

/* Elements from pointer to its next multiple of bytes (the elements themselves are aligned). */
RF_DEVICE uint64_t rf_elements_to_alignment(enum rf_type type, const void *pointer, uint32_t bytes) {
    return (bytes - ((uintptr_t)pointer & (bytes - 1))) % bytes / rf_type_bytes(type);
}
RF_DEVICE bool rf_group_aligned(enum rf_type type, const void *base, uint64_t head, uint32_t group) {
    uint32_t bytes = group * rf_type_bytes(type);
    return rf_aligned(rf_at(type, base, head), bytes < 16 ? bytes : 16);
}

/* The span of an output and two inputs; an op with one input passes it twice. group: 4 or 8. */
RF_DEVICE struct rf_span rf_span_of(uint64_t count, uint32_t group, enum rf_type out_type, const void *out,
                                    enum rf_type a_type, const void *a, enum rf_type b_type, const void *b) {
    struct rf_span span;
    uint32_t bytes = group * rf_type_bytes(out_type);
    uint64_t head = rf_elements_to_alignment(out_type, out, bytes < 16 ? bytes : 16);
    span.head = rf_min_u64(head, count);
    span.groups = 0;
    if (rf_group_aligned(a_type, a, head, group) && rf_group_aligned(b_type, b, head, group))
        span.groups = (count - span.head) / group;
    span.single = count - span.groups * group;
    return span;
}

/* The index of the i-th element outside the groups. */
RF_DEVICE uint64_t rf_span_single(struct rf_span span, uint32_t group, uint64_t i) {
    return i < span.head ? i : i + span.groups * group;
}

/* Elements a thread moves per group: 16 bytes of the wider type. */
RF_DEVICE uint32_t rf_group_of(enum rf_type a, enum rf_type b) {
    return a == RF_TYPE_F32 || b == RF_TYPE_F32 ? 4 : 8;
}

/* Goes over all groups of span, RF_GROUPS of a thread at a time: first LOAD for each, then STORE for
 * each, so that the loads are in flight together. Both are statements that use 'at' (the index of
 * the group's first element) and 'slot' (a constant below RF_GROUPS: the place of what LOAD keeps for STORE). */
#define RF_FOR_GROUPS(span, group, LOAD, STORE)                                                                      \
    do {                                                                                                             \
        uint64_t rf_tile = (uint64_t)rf_block_dim_x() * RF_GROUPS;                                                   \
        RF_NO_UNROLL                                                                                                 \
        for (uint64_t rf_first = rf_block_x() * rf_tile; rf_first < (span).groups;                                   \
             rf_first += rf_grid_dim_x() * rf_tile) {                                                                \
            uint64_t rf_mine = rf_first + rf_thread_x();                                                             \
            if (rf_first + rf_tile <= (span).groups) {                                                               \
                RF_UNROLL                                                                                            \
                for (uint32_t slot = 0; slot < RF_GROUPS; slot++) {                                                  \
                    uint64_t at = (span).head + (rf_mine + slot * rf_block_dim_x()) * (group);                       \
                    LOAD;                                                                                            \
                }                                                                                                    \
                RF_UNROLL                                                                                            \
                for (uint32_t slot = 0; slot < RF_GROUPS; slot++) {                                                  \
                    uint64_t at = (span).head + (rf_mine + slot * rf_block_dim_x()) * (group);                       \
                    STORE;                                                                                           \
                }                                                                                                    \
            } else {                                                                                                 \
                const uint32_t slot = 0;                                                                             \
                RF_NO_UNROLL                                                                                         \
                for (; rf_mine < (span).groups; rf_mine += rf_block_dim_x()) {                                       \
                    uint64_t at = (span).head + rf_mine * (group);                                                   \
                    LOAD;                                                                                            \
                    STORE;                                                                                           \
                }                                                                                                    \
                (void)slot;                                                                                          \
            }                                                                                                        \
        }                                                                                                            \
    } while (0)

/* Goes over the elements outside the groups in the same way. */
#define RF_FOR_SINGLES(span, group, LOAD, STORE)                                                                     \
    do {                                                                                                             \
        uint64_t rf_step = rf_global_count_x();                                                                      \
        RF_NO_UNROLL                                                                                                 \
        for (uint64_t rf_first = rf_global_x(); rf_first < (span).single; rf_first += RF_GROUPS * rf_step) {         \
            RF_UNROLL                                                                                                \
            for (uint32_t slot = 0; slot < RF_GROUPS; slot++) {                                                      \
                uint64_t at = rf_span_single(span, group, rf_first + slot * rf_step);                                \
                if (rf_first + slot * rf_step < (span).single) LOAD;                                                 \
            }                                                                                                        \
            RF_UNROLL                                                                                                \
            for (uint32_t slot = 0; slot < RF_GROUPS; slot++) {                                                      \
                uint64_t at = rf_span_single(span, group, rf_first + slot * rf_step);                                \
                if (rf_first + slot * rf_step < (span).single) STORE;                                                \
            }                                                                                                        \
        }                                                                                                            \
    } while (0)

#endif
