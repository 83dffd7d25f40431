/* What the launchers of products and of quantized types share: types, checked ranges of device memory, launches, and
 * a checked product. gpu_matmul.c has many rows and the rest, gpu_matvec.c few rows. */
#ifndef RF_OPS_GPU_MATMUL_IMPL_H
#define RF_OPS_GPU_MATMUL_IMPL_H

#include <stdio.h>

#include "ops/launch.h"
#include "ops/gpu_matmul.h"

#define Q8_BLOCK 32
#define Q8_BLOCK_BYTES 40

/* A checked range of device memory. */
struct span {
    uint64_t first, bytes; /* address; 0 bytes: nothing */
    struct rf_arg arg;
};

static inline const char *type_suffix(enum rf_dtype dtype) {
    static const char *const names[RF_DTYPE_COUNT] = {
        [RF_F32] = "f32",   [RF_F16] = "f16",   [RF_BF16] = "bf16", [RF_Q4_0] = "q4_0",     [RF_Q4_1] = "q4_1",
        [RF_Q5_0] = "q5_0", [RF_Q5_1] = "q5_1", [RF_Q8_0] = "q8_0", [RF_Q2_K] = "q2_k",     [RF_Q3_K] = "q3_k",
        [RF_Q4_K] = "q4_k", [RF_Q5_K] = "q5_k", [RF_Q6_K] = "q6_k", [RF_IQ4_NL] = "iq4_nl", [RF_IQ4_XS] = "iq4_xs"};
    return (unsigned)dtype < RF_DTYPE_COUNT ? names[dtype] : NULL;
}
static inline bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
static inline bool is_weight(enum rf_dtype dtype) {
    return type_suffix(dtype) != NULL;
}
static inline bool is_quantized(enum rf_dtype dtype) {
    return is_weight(dtype) && !is_float(dtype);
}
static inline const char *type_name(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT ? rf_dtype_name(dtype) : "no type";
}

/* Bytes of rows of columns elements, a stride apart; the last row ends with its elements. */
static inline bool rows_bytes_overflow(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t stride,
                                       uint64_t *bytes) {
    uint64_t before, elements;
    *bytes = 0;
    if (!rows || !columns) return false;
    if (rf_mul_overflows(rows - 1, stride, &before) || rf_add_overflows(before, columns, &elements)) return true;
    return rf_mul_overflows(elements / rf_dtype_block(dtype), rf_dtype_block_bytes(dtype), bytes);
}

static inline rf_status take(const char *op, const char *what, const struct rf_rows_view *view, uint64_t bytes,
                             uint64_t align, struct span *span) {
    *span = (struct span){0, 0, rf_arg_buffer(NULL)};
    if (!view->buffer) {
        if (!bytes) return RF_OK;
        return rf_fail(RF_E_INVALID, "%s: %s has no buffer", op, what);
    }
    if (!rf_range_fits(view->offset_bytes, bytes, rf_buffer_bytes(view->buffer)))
        return rf_fail(RF_E_INVALID, "%s: %s needs %llu bytes from %llu on, its buffer has %llu", op, what,
                       (unsigned long long)bytes, (unsigned long long)view->offset_bytes,
                       (unsigned long long)rf_buffer_bytes(view->buffer));
    span->first = rf_buffer_address(view->buffer) + view->offset_bytes;
    span->bytes = bytes;
    span->arg = rf_arg_buffer_at(view->buffer, view->offset_bytes);
    if (span->first % align)
        return rf_fail(RF_E_INVALID, "%s: %s starts at a byte that is no multiple of %llu", op, what,
                       (unsigned long long)align);
    return RF_OK;
}
static inline bool overlap(const struct span *a, const struct span *b) {
    return a->bytes && b->bytes && a->first < b->first + b->bytes && b->first < a->first + a->bytes;
}
static inline rf_status apart(const char *op, const struct span *out, const char *what, const struct span *in) {
    return overlap(out, in) ? rf_fail(RF_E_INVALID, "%s: out overlaps %s", op, what) : RF_OK;
}
static inline rf_status need_device(const char *op, struct rf_queue *queue) {
    return queue ? RF_OK : rf_fail(RF_E_INVALID, "%s: no queue", op);
}

/* Blocks for so many pieces of work; kernels go round where a grid is smaller. */
static inline uint32_t blocks_for(uint64_t work, uint64_t each, uint32_t most) {
    uint64_t blocks = work / each + (work % each != 0);
    return (uint32_t)RF_MAX(1, RF_MIN(blocks, most));
}
#define X_MAX 0x7fffffffu
#define Y_MAX 65535u
#define ROUND_X 65536u /* enough blocks for any device where kernels go round */

/* ---- a product ---- */

struct matmul {
    const struct rf_matmul_args *args;
    uint64_t x_stride, out_stride;
    struct span out, weights, gate, x, bias, residual;
};

/* Checks all that does not depend on the device. */
rf_status rf_matmul_check(const struct rf_matmul_args *args, struct matmul *m);
/* Few rows of x, or where a path for them is asked for. */
rf_status rf_matmul_few_rows(struct rf_queue *queue, const struct matmul *m);

static inline struct rf_arg later(struct span span, uint64_t bytes) {
    if (span.arg.buffer) span.arg.offset += bytes;
    return span.arg;
}

/* Elements a thread takes at once, as in kernels/quant.h. */
static inline uint64_t unit_elements(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_F32:
    case RF_F16:
    case RF_BF16:
    case RF_Q8_0: return 8;
    case RF_Q2_K:
    case RF_Q3_K:
    case RF_Q6_K: return 32;
    default: return 16;
    }
}

#endif
