/* Where an operand lies, and the checks that every launcher makes before it launches.
 *
 * Each check fails with one line that begins with the op's name. Sizes are checked for overflow here, so that what a
 * kernel computes in 64 bits cannot wrap. */
#ifndef RF_OPS_OPERAND_H
#define RF_OPS_OPERAND_H

#include <rocmforge/gpu.h>

#include "ops/launch.h"

/* A place in a buffer. The buffer is borrowed as by rf_queue_launch. An operand without a buffer is left out. */
struct rf_operand {
    struct rf_buffer *buffer;
    uint64_t offset_bytes;
};

/* An operand with its name, for the checks. */
struct rf_named_operand {
    const char *name;
    struct rf_operand at;
    uint64_t bytes; /* from the start of its first element to the end of its last */
};

static inline struct rf_arg rf_operand_arg(struct rf_operand operand) {
    return rf_arg_buffer_at(operand.buffer, operand.offset_bytes);
}

/* Checks that queue and arguments are given, before a launcher looks at the operands. */
static inline rf_status rf_operands_given(const char *op, const void *queue, const void *args) {
    return queue && args ? RF_OK : rf_fail(RF_E_INVALID, "%s: queue or arguments are NULL", op);
}
static inline rf_status rf_operands_float(const char *op, enum rf_dtype dtype) {
    if (dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16) return RF_OK;
    const char *name = rf_dtype_name(dtype);
    return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for type %s: f32, f16 or bf16", op, name ? name : "?");
}
/* Counts the elements of dense rows. */
static inline rf_status rf_operands_count(const char *op, uint64_t rows, uint64_t columns, uint64_t *elements) {
    if (rf_mul_overflows(rows, columns, elements))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu columns are more than 64 bits can count", op,
                       (unsigned long long)rows, (unsigned long long)columns);
    return RF_OK;
}

/* The same operand, this many bytes later; an operand without a buffer stays so. */
static inline struct rf_operand rf_operand_later(struct rf_operand operand, uint64_t bytes) {
    if (operand.buffer) operand.offset_bytes += bytes;
    return operand;
}
/* The device address; 0 without a buffer. */
static inline uint64_t rf_operand_address(struct rf_operand operand) {
    return operand.buffer ? rf_buffer_address(operand.buffer) + operand.offset_bytes : 0;
}

/* Sets *extent to 1 + the largest index of sizes[i] elements at strides[i]; 0 if a size is 0. True on overflow. */
static inline bool rf_extent_overflows(const uint64_t *sizes, const uint64_t *strides, int rank, uint64_t *extent) {
    uint64_t last = 0, step, product = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) {
            *extent = 0;
            return false;
        }
        /* The number of elements must not overflow either, even if a stride of 0 repeats them. */
        if (rf_mul_overflows(product, sizes[i], &product)) return true;
        if (rf_mul_overflows(sizes[i] - 1, strides[i], &step) || rf_add_overflows(last, step, &last)) return true;
    }
    return rf_add_overflows(last, 1, extent);
}

/* Computes the operand's bytes from an extent in elements; checks that it is given, aligned, and inside its
 * buffer. */
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

/* Whether two elements may lie in one place: in order of strides, each dimension must step over all that the smaller
 * ones span. */
static inline bool rf_elements_overlap(const uint64_t *sizes, const uint64_t *strides, int rank) {
    for (int i = 0; i < rank; i++)
        if (!sizes[i]) return false;
    for (int i = 0; i < rank; i++) {
        uint64_t span = 0;
        if (sizes[i] <= 1) continue;
        for (int k = 0; k < rank; k++)
            if (k != i && sizes[k] > 1 && (strides[k] < strides[i] || (strides[k] == strides[i] && k > i)))
                span += (sizes[k] - 1) * strides[k];
        if (strides[i] <= span) return true;
    }
    return false;
}

/* The same for an operand of `bytes` bytes, which may have no buffer if bytes is 0. */
static inline rf_status rf_operand_check_bytes(const char *op, struct rf_named_operand *operand, uint64_t bytes,
                                               uint64_t align) {
    operand->bytes = 0;
    return bytes || operand->at.buffer ? rf_operand_check(op, operand, bytes, 1, align) : RF_OK;
}

/* Two operands may not overlap; with may_be_same, they may lie at exactly the same place. */
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

/* ---- dimensions of an output and an input together ---- */

struct rf_axis {
    uint64_t size, out, in; /* size and the strides of both arrays */
};

/* Drops dimensions of 1 and sorts the others by the stride of the output, the largest first. Returns how many
 * remain. */
static inline int rf_axes_order(struct rf_axis *axes, int rank) {
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (axes[i].size > 1) axes[count++] = axes[i];
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && axes[k - 1].out < axes[k].out; k--) {
            struct rf_axis swap = axes[k];
            axes[k] = axes[k - 1];
            axes[k - 1] = swap;
        }
    return count;
}
/* The same, and joins neighbouring dimensions that are dense in both arrays. */
static inline int rf_axes_simplify(struct rf_axis *axes, int rank) {
    int count = rf_axes_order(axes, rank);
    for (int i = count - 1; i > 0; i--)
        if (axes[i - 1].out == axes[i].out * axes[i].size && axes[i - 1].in == axes[i].in * axes[i].size) {
            axes[i - 1] = (struct rf_axis){axes[i - 1].size * axes[i].size, axes[i].out, axes[i].in};
            for (int k = i; k + 1 < count; k++) axes[k] = axes[k + 1];
            count--;
        }
    return count;
}
/* Whether no two elements of the output lie in one place. The axes are ordered: each must step over all that the axes
 * behind it span. (This is stricter than needed for some interleaved layouts, never too lax.) */
static inline bool rf_axes_distinct(const struct rf_axis *axes, int count) {
    for (int i = count - 1; i >= 0; i--) {
        uint64_t span = 0;
        for (int k = i + 1; k < count; k++) span += (axes[k].size - 1) * axes[k].out;
        if (axes[i].out <= span) return false;
    }
    return true;
}

#endif
