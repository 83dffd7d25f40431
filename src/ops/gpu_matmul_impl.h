/* What the launchers of products and of quantized types share: types, checked operands, grids, and a checked product.
 * gpu_matmul.c has the products of many rows, gpu_matvec.c those of few rows, gpu_quant.c the other ops on quantized
 * types. */
#ifndef RF_OPS_GPU_MATMUL_IMPL_H
#define RF_OPS_GPU_MATMUL_IMPL_H

#include <stdio.h>

#include "ops/gpu_matmul.h"
#include "ops/op.h"

/* The type as it stands in the names of kernels; NULL if weights cannot have it. */
static inline const char *type_suffix(enum rf_dtype dtype) {
#define SUFFIX(name, NAME, parts) [RF_##NAME] = #name,
    static const char *const names[RF_DTYPE_COUNT] = {RF_EACH_FLOAT_WEIGHT(SUFFIX) RF_EACH_QUANT_WEIGHT(SUFFIX)};
#undef SUFFIX
    return (unsigned)dtype < RF_DTYPE_COUNT ? names[dtype] : NULL;
}
/* The elements of a unit, which a thread decodes at once (kernels/quant.h). dtype must be a type of weights. */
static inline uint64_t unit_elements(enum rf_dtype dtype) {
#define ELEMENTS(name, NAME, parts) [RF_##NAME] = 8 * (parts),
    static const uint8_t elements[RF_DTYPE_COUNT] = {RF_EACH_FLOAT_WEIGHT(ELEMENTS) RF_EACH_QUANT_WEIGHT(ELEMENTS)};
#undef ELEMENTS
    return elements[dtype];
}
static inline bool is_weight(enum rf_dtype dtype) {
    return type_suffix(dtype) != NULL;
}
static inline const char *type_name(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT ? rf_dtype_name(dtype) : "no type";
}

/* Computes the bytes of rows of `columns` elements that lie a stride apart; the last row ends with its elements. */
static inline bool rows_bytes_overflow(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t stride,
                                       uint64_t *bytes) {
    uint64_t before, elements;
    *bytes = 0;
    if (!rows || !columns) return false;
    if (rf_mul_overflows(rows - 1, stride, &before) || rf_add_overflows(before, columns, &elements)) return true;
    return rf_mul_overflows(elements / rf_dtype_block(dtype), rf_dtype_block_bytes(dtype), bytes);
}

static inline rf_status need_queue(const char *op, struct rf_queue *queue) {
    return queue ? RF_OK : rf_fail(RF_E_INVALID, "%s: no queue", op);
}

/* The number of blocks for this much work; if the grid is smaller, the kernel's blocks loop over the work. */
static inline uint32_t blocks_for(uint64_t work, uint64_t each, uint32_t most) {
    return (uint32_t)RF_MAX(1, RF_MIN(rf_ceil_div(work, each), most));
}
#define X_MAX (UINT32_MAX / RF_MATMUL_THREADS) /* HIP takes no grid with more than 2^32 - 1 threads in x */
#define Y_MAX 65535u
#define ROUND_X 65536u /* enough blocks for any device if kernels loop */

/* ---- a product ---- */

struct matmul {
    const struct rf_gpu_matmul *call;
    struct rf_named_operand out, weights, gate, x, bias, residual; /* all checked */
};

/* Checks everything that does not depend on the device. */
rf_status rf_matmul_check(const struct rf_gpu_matmul *call, struct matmul *m);
/* Launches a product of few rows of x, or of any number if the caller asks for a path for few rows. */
rf_status rf_matmul_few_rows(struct rf_queue *queue, const struct matmul *m);

/* ---- by groups of waves (gpu_matmul_group.c) ---- */

/* A product with weights and x of 16 bits, as kernels/matmul_group.hip takes them; the operands are checked. */
struct rf_group_product {
    struct rf_matmul_args args; /* k is not 0 */
    enum rf_dtype unit, type;   /* of weights and x; of out and residual */
    struct rf_operand out, weights, x, bias, residual;
};
/* Whether the device has the kernel, and all that it needs. Fails silently. */
bool rf_matmul_group_there(struct rf_device *device, enum rf_dtype unit, enum rf_dtype type);
/* Whether a product of this size is faster by groups. */
bool rf_matmul_group_worth(const struct rf_matmul_args *args);
rf_status rf_matmul_group(struct rf_queue *queue, const struct rf_group_product *product);

#endif
