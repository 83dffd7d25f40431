/* What the rows of products with weights and of quantized types share: checks of shapes and views.
 *
 * The checks ask for what the references need. need_… is what the GPU wants beyond that: refused as unsupported,
 * with the op's name, before anything is launched. */
#ifndef RF_OPS_OP_WEIGHTS_IMPL_H
#define RF_OPS_OP_WEIGHTS_IMPL_H

#include "cpu/ref_matmul.h"
#include "ops/gpu_matmul.h"
#include "ops/op.h"

static const enum rf_dtype rf_float_types[] = {RF_F32, RF_F16, RF_BF16};
static const enum rf_dtype rf_quantized_types[] = {RF_Q4_0, RF_Q4_1, RF_Q5_0, RF_Q5_1, RF_Q8_0,   RF_Q2_K,
                                                   RF_Q3_K, RF_Q4_K, RF_Q5_K, RF_Q6_K, RF_IQ4_NL, RF_IQ4_XS};

/* A call of matmul, matmul_gate or matmul_q8 as the CPU takes it (op_matmul.c). */
struct rf_ref_matmul rf_op_product(const struct rf_op_call *call);

static inline bool is_quantized(enum rf_dtype dtype) {
    return rf_dtype_block(dtype) > 1;
}
static inline bool dense(const struct rf_tensor_desc *desc) {
    return !rf_op_elements(desc) || rf_op_contiguous(desc);
}
/* From row to row of a matrix, in elements; a single row has no other. */
static inline uint64_t row_stride(const struct rf_tensor_desc *desc) {
    return desc->shape[0] <= 1 || !desc->shape[1] ? desc->shape[1] : desc->strides[0];
}

/* A matrix whose rows are runs of elements, one after the other. */
static inline rf_status check_matrix(const struct rf_op_tensor *tensor, const char *name) {
    const struct rf_tensor_desc *desc = &tensor->desc;
    if (desc->rank != 2) return rf_fail(RF_E_INVALID, "%s has rank %d, it must be a matrix", name, desc->rank);
    if (!rf_op_elements(desc)) return RF_OK;
    if (desc->shape[1] > 1 && desc->strides[1] != 1)
        return rf_fail(RF_E_UNSUPPORTED, "%s: the elements of a row lie %llu apart; they must be neighbours", name,
                       (unsigned long long)desc->strides[1]);
    if (row_stride(desc) < desc->shape[1])
        return rf_fail(RF_E_UNSUPPORTED, "%s: rows of %llu elements overlap at a stride of %llu", name,
                       (unsigned long long)desc->shape[1], (unsigned long long)row_stride(desc));
    return RF_OK;
}
static inline rf_status check_shape(const struct rf_op_tensor *tensor, const char *name, uint64_t rows,
                                    uint64_t columns) {
    RF_TRY(check_matrix(tensor, name));
    if (tensor->desc.shape[0] == rows && tensor->desc.shape[1] == columns) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s is %llu x %llu, it must be %llu x %llu", name,
                   (unsigned long long)tensor->desc.shape[0], (unsigned long long)tensor->desc.shape[1],
                   (unsigned long long)rows, (unsigned long long)columns);
}
static inline rf_status check_float(const struct rf_op_tensor *tensor, const char *name) {
    if (rf_op_is_float(tensor->desc.dtype)) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s of %s; f32, f16 and bf16 are possible", name,
                   rf_dtype_name(tensor->desc.dtype));
}
static inline rf_status check_dense(const struct rf_op_tensor *tensor, const char *name) {
    return dense(&tensor->desc) ? RF_OK : rf_fail(RF_E_UNSUPPORTED, "%s must be dense", name);
}
static inline rf_status check_weights(const struct rf_op_tensor *tensor, const char *name) {
    enum rf_dtype dtype = tensor->desc.dtype;
    if (!rf_op_is_float(dtype) && !is_quantized(dtype))
        return rf_fail(RF_E_UNSUPPORTED, "%s of %s, which is no type of weights", name, rf_dtype_name(dtype));
    RF_TRY(check_matrix(tensor, name));
    return check_dense(tensor, name);
}
/* Activations in 8 bits: blocks of RF_Q8_BLOCK elements as bytes. */
static inline rf_status check_blocks(const struct rf_op_tensor *tensor, const char *name, uint64_t rows,
                                     uint64_t columns) {
    if (tensor->desc.dtype != RF_U8)
        return rf_fail(RF_E_INVALID, "%s of %s; blocks of 8-bit activations are u8", name,
                       rf_dtype_name(tensor->desc.dtype));
    if (columns % RF_Q8_BLOCK)
        return rf_fail(RF_E_INVALID, "%llu columns are no multiple of the %d of a block", (unsigned long long)columns,
                       RF_Q8_BLOCK);
    RF_TRY(check_shape(tensor, name, rows, columns / RF_Q8_BLOCK * sizeof(struct rf_q8_block)));
    if (tensor->desc.byte_offset % 8)
        return rf_fail(RF_E_INVALID, "%s starts at byte %llu, which is no multiple of 8", name,
                       (unsigned long long)tensor->desc.byte_offset);
    return check_dense(tensor, name);
}

/* What the GPU needs and the reference does not. */
static inline rf_status need_aligned(const struct rf_op_call *call, const struct rf_op_tensor *tensor,
                                     const char *name, uint64_t bytes) {
    if (!tensor->buffer || (rf_buffer_address(tensor->buffer) + tensor->desc.byte_offset) % bytes == 0) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: %s at byte offset %llu is not at a multiple of %llu, as the GPU needs",
                   call->op->name, name, (unsigned long long)tensor->desc.byte_offset, (unsigned long long)bytes);
}
static inline rf_status need_stride(const struct rf_op_call *call, const struct rf_op_tensor *tensor,
                                    const char *name, uint64_t multiple) {
    if (row_stride(&tensor->desc) % multiple == 0) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: %s has rows %llu elements apart; the GPU needs a multiple of %llu",
                   call->op->name, name, (unsigned long long)row_stride(&tensor->desc), (unsigned long long)multiple);
}
static inline struct rf_rows_view view_of(const struct rf_op_tensor *tensor) {
    return (struct rf_rows_view){tensor->buffer, tensor->desc.byte_offset, 0};
}
static inline struct rf_rows_view rows_of(const struct rf_op_tensor *tensor) {
    return (struct rf_rows_view){tensor->buffer, tensor->desc.byte_offset, row_stride(&tensor->desc)};
}

#endif
