/* What the rows of products with weights and of quantized types share: checks of shapes, and of what the GPU needs.
 *
 * rf_need_… checks what the references need. rf_need_gpu_… checks what the GPU needs beyond that: a call without it
 * is refused as unsupported, with the op's name, before anything is launched. */
#ifndef RF_OPS_OP_WEIGHTS_IMPL_H
#define RF_OPS_OP_WEIGHTS_IMPL_H

#include "cpu/ref_matmul.h"
#include "ops/gpu_matmul.h"
#include "ops/op_impl.h"

#define RF_DTYPE_OF(name, NAME, parts) RF_##NAME,
static const enum rf_dtype rf_quantized_types[] = {RF_EACH_QUANT_WEIGHT(RF_DTYPE_OF)};

/* Converts a call of matmul, matmul_gate or matmul_q8 to the arguments of the CPU (op_matmul.c). */
struct rf_ref_matmul rf_op_product(const struct rf_op_call *call);

/* Launches norm_qkv, norm_gate or cast_matmul as one kernel if that is possible (op_norm_products.c); *done: whether
 * it was. append and counters: as in struct rf_gpu_norm_products. */
rf_status rf_norm_products_at_once(struct rf_queue *queue, const struct rf_op_call *call,
                                   const struct rf_gpu_kv_append *append, struct rf_operand counters, bool *done);

/* The distance from row to row of a matrix, in elements; for a single row, its length. */
static inline uint64_t rf_row_stride(const struct rf_tensor_desc *desc) {
    return desc->shape[0] <= 1 || !desc->shape[1] ? desc->shape[1] : desc->strides[0];
}

/* The tensor must be a matrix with dense rows. */
static inline rf_status rf_need_matrix(const struct rf_op_tensor *tensor, const char *name) {
    const struct rf_tensor_desc *desc = &tensor->desc;
    RF_TRY(rf_need_rank(tensor, name, 2));
    if (!rf_op_elements(desc)) return RF_OK;
    RF_TRY(rf_need_dense_rows(tensor, name));
    if (rf_row_stride(desc) < desc->shape[1])
        return rf_fail(RF_E_UNSUPPORTED, "%s: rows of %llu elements overlap at a stride of %llu", name,
                       (unsigned long long)desc->shape[1], (unsigned long long)rf_row_stride(desc));
    return RF_OK;
}
static inline rf_status rf_need_matrix_of(const struct rf_op_tensor *tensor, const char *name, uint64_t rows,
                                          uint64_t columns) {
    RF_TRY(rf_need_matrix(tensor, name));
    if (tensor->desc.shape[0] == rows && tensor->desc.shape[1] == columns) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s is %llu x %llu, it must be %llu x %llu", name,
                   (unsigned long long)tensor->desc.shape[0], (unsigned long long)tensor->desc.shape[1],
                   (unsigned long long)rows, (unsigned long long)columns);
}
static inline rf_status rf_need_weights(const struct rf_op_tensor *tensor, const char *name) {
    enum rf_dtype dtype = tensor->desc.dtype;
    if (!rf_op_is_float(dtype) && !rf_op_is_quantized(dtype))
        return rf_fail(RF_E_UNSUPPORTED, "%s of %s, which is no type of weights", name, rf_dtype_name(dtype));
    RF_TRY(rf_need_matrix(tensor, name));
    return rf_need_dense(tensor, name);
}
/* The tensor must hold activations in 8 bits: blocks of RF_Q8_BLOCK elements as bytes. */
static inline rf_status rf_need_blocks(const struct rf_op_tensor *tensor, const char *name, uint64_t rows,
                                       uint64_t columns) {
    if (tensor->desc.dtype != RF_U8)
        return rf_fail(RF_E_INVALID, "%s of %s; blocks of 8-bit activations are u8", name,
                       rf_dtype_name(tensor->desc.dtype));
    if (columns % RF_Q8_BLOCK)
        return rf_fail(RF_E_INVALID, "%llu columns are no multiple of the %d of a block", (unsigned long long)columns,
                       RF_Q8_BLOCK);
    RF_TRY(rf_need_matrix_of(tensor, name, rows, columns / RF_Q8_BLOCK * RF_Q8_BLOCK_BYTES));
    RF_TRY(rf_need_aligned(tensor, name, 8));
    return rf_need_dense(tensor, name);
}

/* The alignment that the GPU needs and the reference does not. */
static inline rf_status rf_need_gpu_aligned(const struct rf_op_call *call, const struct rf_op_tensor *tensor,
                                            const char *name, uint64_t bytes) {
    if (rf_operand_address(rf_op_operand(tensor)) % bytes == 0) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: %s at byte offset %llu is not at a multiple of %llu, as the GPU needs",
                   call->op->name, name, (unsigned long long)tensor->desc.byte_offset, (unsigned long long)bytes);
}
static inline rf_status rf_need_gpu_stride(const struct rf_op_call *call, const struct rf_op_tensor *tensor,
                                           const char *name, uint64_t multiple) {
    if (rf_row_stride(&tensor->desc) % multiple == 0) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: %s has rows %llu elements apart; the GPU needs a multiple of %llu",
                   call->op->name, name, (unsigned long long)rf_row_stride(&tensor->desc),
                   (unsigned long long)multiple);
}

#endif
