/* What the rows of attention share: tensors [batch, heads, rows, dim], what is asked of them, and how
 * cases lay them out. Used by op_attention.c and op_paged.c alone. */
#ifndef RF_OPS_OP_ATTENTION_IMPL_H
#define RF_OPS_OP_ATTENTION_IMPL_H

#include "cpu/ref_attention.h"
#include "ops/gpu_attention.h"
#include "ops/op.h"

/* ---- what a check asks ---- */

/* Rank 4, the type, the shape, a dense last dimension; align: in bytes, of the view's start and of its
 * strides. An output's elements must not overlap one another. */
rf_status rf_heads_check(const char *name, const struct rf_tensor_desc *desc, enum rf_dtype dtype,
                         const uint64_t shape[4], uint64_t align, bool output);
rf_status rf_heads_check_rank(const char *name, const struct rf_tensor_desc *desc);
rf_status rf_heads_check_float(enum rf_dtype dtype);
/* heads_q is a multiple of heads_kv. */
rf_status rf_heads_check_group(uint64_t heads_q, uint64_t heads_kv);
/* A multiple of 8 up to 256. */
rf_status rf_heads_check_dim(uint64_t dim);
/* scale is a number, path one of enum rf_attention_path. */
rf_status rf_heads_check_scale(double scale);
rf_status rf_heads_check_path(int64_t path);

static inline struct rf_ref_heads rf_heads_strides(const struct rf_tensor_desc *desc) {
    return (struct rf_ref_heads){desc->strides[0], desc->strides[1], desc->strides[2]};
}
static inline struct rf_head_view rf_heads_view(const struct rf_op_tensor *tensor) {
    const uint64_t *strides = tensor->desc.strides;
    return (struct rf_head_view){tensor->buffer, tensor->desc.byte_offset, strides[0], strides[1], strides[2]};
}

/* ---- cases ---- */

enum rf_heads_layout {
    RF_LAYOUT_DENSE,
    RF_LAYOUT_SPREAD, /* [batch, rows, heads, dim] in memory with gaps, not at the start; in whole 16 bytes */
    RF_LAYOUT_ODD,    /* the same by single elements */
    RF_LAYOUTS
};
struct rf_tensor_desc rf_heads_desc(enum rf_dtype dtype, enum rf_heads_layout layout, uint64_t batch, uint64_t heads,
                                    uint64_t rows, uint64_t dim);
const char *rf_heads_layout_name(enum rf_heads_layout layout);

#endif
