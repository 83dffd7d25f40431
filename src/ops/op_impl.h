/* What the files of rows share: checks that give a reason, where a call's tensors lie, how many bytes they have, and
 * helpers that make cases. Nothing here belongs to one op. */
#ifndef RF_OPS_OP_IMPL_H
#define RF_OPS_OP_IMPL_H

#include "ops/op.h"

#include <stdarg.h>
#include <stdio.h>

#include "ops/operand.h"

/* The operand has no buffer if the tensor is left out. */
static inline struct rf_operand rf_op_operand(const struct rf_op_tensor *tensor) {
    return (struct rf_operand){rf_op_given(tensor) ? tensor->buffer : NULL, tensor->desc.byte_offset};
}

/* Input and output `index` of a call, in host memory and in a buffer. */
static inline void *rf_op_in_host(const struct rf_op_call *call, int index) {
    return rf_op_host(rf_op_in(call, index));
}
static inline void *rf_op_out_host(const struct rf_op_call *call, int index) {
    return rf_op_host(rf_op_out(call, index));
}
static inline struct rf_operand rf_op_in_operand(const struct rf_op_call *call, int index) {
    return rf_op_operand(rf_op_in(call, index));
}
static inline struct rf_operand rf_op_out_operand(const struct rf_op_call *call, int index) {
    return rf_op_operand(rf_op_out(call, index));
}

/* ---- checks; name is the tensor's name, for the reason ---- */

static inline rf_status rf_need_rank(const struct rf_op_tensor *tensor, const char *name, int rank) {
    return tensor->desc.rank == rank
               ? RF_OK
               : rf_fail(RF_E_INVALID, "%s has rank %d, it must be %d", name, tensor->desc.rank, rank);
}
static inline rf_status rf_need_type(const struct rf_op_tensor *tensor, const char *name, enum rf_dtype dtype) {
    return tensor->desc.dtype == dtype ? RF_OK
                                       : rf_fail(RF_E_UNSUPPORTED, "%s is %s, it must be %s", name,
                                                 rf_dtype_name(tensor->desc.dtype), rf_dtype_name(dtype));
}
static inline rf_status rf_need_float(const struct rf_op_tensor *tensor, const char *name) {
    return rf_op_is_float(tensor->desc.dtype) ? RF_OK
                                              : rf_fail(RF_E_UNSUPPORTED, "%s is %s: not among f32, f16, bf16", name,
                                                        rf_dtype_name(tensor->desc.dtype));
}
static inline rf_status rf_need_dense(const struct rf_op_tensor *tensor, const char *name) {
    return rf_op_contiguous(&tensor->desc) ? RF_OK : rf_fail(RF_E_UNSUPPORTED, "%s is not contiguous", name);
}
static inline rf_status rf_need_size(const struct rf_op_tensor *tensor, const char *name, int dimension,
                                     uint64_t size) {
    uint64_t has = tensor->desc.shape[dimension];
    return has == size ? RF_OK
                       : rf_fail(RF_E_INVALID, "%s has %llu in dimension %d, it must be %llu", name,
                                 (unsigned long long)has, dimension, (unsigned long long)size);
}
static inline rf_status rf_need_shape(const struct rf_op_tensor *tensor, const char *name,
                                      const struct rf_op_tensor *other, const char *other_name) {
    return rf_op_same_shape(&tensor->desc, &other->desc)
               ? RF_OK
               : rf_fail(RF_E_INVALID, "the shapes of %s and %s differ", name, other_name);
}
/* The tensor must have the type and shape of another. */
static inline rf_status rf_need_like(const struct rf_op_tensor *tensor, const char *name,
                                     const struct rf_op_tensor *other, const char *other_name) {
    if (tensor->desc.dtype != other->desc.dtype)
        return rf_fail(RF_E_INVALID, "%s is %s, %s is %s: the types differ", name, rf_dtype_name(tensor->desc.dtype),
                       other_name, rf_dtype_name(other->desc.dtype));
    return rf_need_shape(tensor, name, other, other_name);
}
/* The elements of the last dimension must lie side by side. */
static inline rf_status rf_need_dense_rows(const struct rf_op_tensor *tensor, const char *name) {
    int last = tensor->desc.rank - 1;
    return tensor->desc.shape[last] <= 1 || tensor->desc.strides[last] == 1
               ? RF_OK
               : rf_fail(RF_E_UNSUPPORTED, "the last dimension of %s has a stride of %llu: it must be 1", name,
                         (unsigned long long)tensor->desc.strides[last]);
}
static inline rf_status rf_need_distinct(const struct rf_op_tensor *tensor, const char *name) {
    const struct rf_tensor_desc *desc = &tensor->desc;
    return rf_elements_overlap(desc->shape, desc->strides, desc->rank)
               ? rf_fail(RF_E_INVALID, "elements of %s lie in one place: mind its strides", name)
               : RF_OK;
}
static inline rf_status rf_need_aligned(const struct rf_op_tensor *tensor, const char *name, uint64_t bytes) {
    return tensor->desc.byte_offset % bytes == 0
               ? RF_OK
               : rf_fail(RF_E_INVALID, "%s is at byte offset %llu, which is no multiple of %llu", name,
                         (unsigned long long)tensor->desc.byte_offset, (unsigned long long)bytes);
}
/* The tensor must be f32 with one number for each column. */
static inline rf_status rf_need_vector(const struct rf_op_tensor *tensor, const char *name, uint64_t columns) {
    RF_TRY(rf_need_type(tensor, name, RF_F32));
    RF_TRY(rf_need_rank(tensor, name, 1));
    RF_TRY(rf_need_size(tensor, name, 0, columns));
    return rf_need_dense(tensor, name);
}

/* ---- cost ---- */

/* Counts every element once; an element that a stride of 0 repeats is counted once. */
static inline uint64_t rf_op_traffic_bytes(const struct rf_op_tensor *tensor) {
    const struct rf_tensor_desc *desc = &tensor->desc;
    if (!rf_op_given(tensor)) return 0;
    return RF_MIN(rf_op_elements(desc) / rf_dtype_block(desc->dtype) * rf_dtype_block_bytes(desc->dtype),
                  tensor->bytes - desc->byte_offset);
}
static inline uint64_t rf_op_all_traffic_bytes(const struct rf_op_call *call) {
    uint64_t bytes = 0;
    for (int i = 0; i < call->count; i++) bytes += rf_op_traffic_bytes(&call->tensors[i]);
    return bytes;
}

/* The cost of an op that only moves elements, and of one that computes a little with each element. */
static inline void rf_op_cost_moves(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 0;
}
static inline void rf_op_cost_elements(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 4 * rf_op_elements(&rf_op_out(call, 0)->desc);
}

/* ---- cases ---- */

static const enum rf_dtype rf_case_floats[] = {RF_F32, RF_F16, RF_BF16};

/* A matrix of 256 MiB, for the benchmark. */
enum { RF_CASE_BENCH_COLUMNS = 4096 };
static inline uint64_t rf_case_bench_rows(enum rf_dtype dtype) {
    return ((uint64_t)256 << 20) / rf_dtype_bytes(dtype) / RF_CASE_BENCH_COLUMNS;
}

/* A row-major tensor that begins `skip` elements after the start of its memory. */
static inline struct rf_tensor_desc rf_case_tensor(enum rf_dtype dtype, int rank, const uint64_t *shape,
                                                   uint64_t skip) {
    struct rf_tensor_desc desc = {
        .dtype = dtype, .rank = rank, .byte_offset = skip * (rf_dtype_bytes(dtype) ? rf_dtype_bytes(dtype) : 2)};
    memcpy(desc.shape, shape, (size_t)rank * sizeof *shape);
    return desc;
}
static inline struct rf_tensor_desc rf_case_vector(enum rf_dtype dtype, uint64_t count, uint64_t skip) {
    return rf_case_tensor(dtype, 1, &count, skip);
}
/* A row stride of 0 means dense. */
static inline struct rf_tensor_desc rf_case_matrix(enum rf_dtype dtype, uint64_t rows, uint64_t columns,
                                                   uint64_t row_stride, uint64_t skip) {
    struct rf_tensor_desc desc = rf_case_tensor(dtype, 2, (uint64_t[]){rows, columns}, skip);
    if (row_stride) desc.strides[0] = row_stride, desc.strides[1] = 1;
    return desc;
}

/* Adds the case; its label has the type and shape of tensor 'shown', the text, and the kind of data. */
__attribute__((format(printf, 4, 5))) static inline void
rf_case_add_shown(struct rf_case_list *list, struct rf_op_case *one, int shown, const char *format, ...) {
    static const char *const data[] = {"", ", masked", ", extreme", ", special"};
    const struct rf_tensor_desc *desc = &one->tensors[shown];
    size_t used = (size_t)snprintf(one->label, sizeof one->label, "%s ", rf_dtype_name(desc->dtype));
    for (int i = 0; i < desc->rank && used < sizeof one->label; i++)
        used += (size_t)snprintf(one->label + used, sizeof one->label - used, "%s%llu", i ? "x" : "",
                                 (unsigned long long)desc->shape[i]);
    if (desc->byte_offset && used < sizeof one->label)
        used += (size_t)snprintf(one->label + used, sizeof one->label - used, " at byte %llu",
                                 (unsigned long long)desc->byte_offset);
    va_list args;
    va_start(args, format);
    if (used < sizeof one->label)
        used += (size_t)vsnprintf(one->label + used, sizeof one->label - used, format, args);
    va_end(args);
    if (used < sizeof one->label) snprintf(one->label + used, sizeof one->label - used, "%s", data[one->data]);
    rf_case_add(list, one);
}

#endif
