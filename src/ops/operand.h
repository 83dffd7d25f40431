/* Where an operand lies, and the checks every launcher of this family makes before it launches.
 *
 * Each check fails with one line that begins with the op's name. Sizes are checked for overflow here, so that what
 * a kernel computes in 64 bits cannot wrap. */
#ifndef RF_OPS_GPU_SLICE_H
#define RF_OPS_GPU_SLICE_H

#include <rocmforge/gpu.h>

#include "ops/launch.h"

/* A place in a buffer. Borrowed as by rf_queue_launch. No buffer: an operand that is left out. */
struct rf_operand {
    struct rf_buffer *buffer;
    uint64_t offset_bytes;
};

/* An operand with its name, for the checks. */
struct rf_named_operand {
    const char *name;
    struct rf_operand at;
    uint64_t bytes; /* from its first element to behind its last */
};

static inline struct rf_arg rf_operand_arg(struct rf_operand operand) {
    return rf_arg_buffer_at(operand.buffer, operand.offset_bytes);
}

/* The same operand, this many bytes later; none stays none. */
static inline struct rf_operand rf_operand_later(struct rf_operand operand, uint64_t bytes) {
    if (operand.buffer) operand.offset_bytes += bytes;
    return operand;
}
/* 0 without a buffer. */
static inline uint64_t rf_operand_address(struct rf_operand operand) {
    return operand.buffer ? rf_buffer_address(operand.buffer) + operand.offset_bytes : 0;
}

/* 1 + the largest index of sizes[i] elements at strides[i]; 0 where a size is 0. True on overflow. */
static inline bool rf_extent_overflows(const uint64_t *sizes, const uint64_t *strides, int rank, uint64_t *extent) {
    uint64_t last = 0, step, product = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) {
            *extent = 0;
            return false;
        }
        /* The number of elements must be a number too, also where a stride of 0 repeats them. */
        if (rf_mul_overflows(product, sizes[i], &product)) return true;
        if (rf_mul_overflows(sizes[i] - 1, strides[i], &step) || rf_add_overflows(last, step, &last)) return true;
    }
    return rf_add_overflows(last, 1, extent);
}

/* Fills bytes from an extent in elements; checks presence, alignment and that it lies in its buffer. */
static inline rf_status rf_operand_check(const char *op, struct rf_named_operand *operand, uint64_t extent,
                                         uint64_t element_bytes, uint64_t align) {
    const struct rf_operand *at = &operand->at;
    if (!at->buffer) return rf_fail(RF_E_INVALID, "%s: no buffer for %s", op, operand->name);
    if (rf_mul_overflows(extent, element_bytes, &operand->bytes))
        return rf_fail(RF_E_INVALID, "%s: %s has more bytes than 64 bits can count", op, operand->name);
    uint64_t address = rf_buffer_address(at->buffer) + at->offset_bytes;
    if (address % align)
        return rf_fail(RF_E_INVALID, "%s: %s is at an address that is no multiple of %llu: move its offset of %llu",
                       op, operand->name, (unsigned long long)align, (unsigned long long)at->offset_bytes);
    if (!rf_range_fits(at->offset_bytes, operand->bytes, rf_buffer_bytes(at->buffer)))
        return rf_fail(RF_E_INVALID, "%s: %s takes %llu bytes from offset %llu of a buffer of %llu", op,
                       operand->name, (unsigned long long)operand->bytes, (unsigned long long)at->offset_bytes,
                       (unsigned long long)rf_buffer_bytes(at->buffer));
    return RF_OK;
}

/* The same for an operand of `bytes` bytes, which may have no buffer where these are 0. */
static inline rf_status rf_operand_check_bytes(const char *op, struct rf_named_operand *operand, uint64_t bytes,
                                               uint64_t align) {
    operand->bytes = 0;
    return bytes || operand->at.buffer ? rf_operand_check(op, operand, bytes, 1, align) : RF_OK;
}

/* Two operands may not overlap; may_be_same: except by lying at the same place. */
static inline rf_status rf_operands_apart(const char *op, const struct rf_named_operand *a,
                                          const struct rf_named_operand *b, bool may_be_same) {
    if (!a->at.buffer || !b->at.buffer || !a->bytes || !b->bytes) return RF_OK;
    uint64_t at_a = rf_buffer_address(a->at.buffer) + a->at.offset_bytes;
    uint64_t at_b = rf_buffer_address(b->at.buffer) + b->at.offset_bytes;
    if (may_be_same && at_a == at_b) return RF_OK;
    if (at_a < at_b + b->bytes && at_b < at_a + a->bytes)
        return rf_fail(RF_E_INVALID, "%s: %s overlaps %s", op, a->name, b->name);
    return RF_OK;
}

/* A struct of at most 32 bytes, by value. */
static inline struct rf_arg rf_arg_raw(const void *value, uint32_t bytes) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, bytes, NULL, 0, {0}};
    memcpy(arg.value.raw, value, bytes);
    return arg;
}

#endif
