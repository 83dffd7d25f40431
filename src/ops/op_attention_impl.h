/* What the rows of attention share: tensors [batch, heads, rows, dim], what checks ask of them, and how cases lay
 * them out. The launchers use the checks that need no tensor. */
#ifndef RF_OPS_OP_ATTENTION_IMPL_H
#define RF_OPS_OP_ATTENTION_IMPL_H

#include "ops/gpu_attention.h"
#include "ops/op_impl.h"

/* ---- checks, as in op_impl.h ---- */

/* Rank 4, the type, the shape, a dense last dimension; align: in bytes, of the tensor's start and of its strides. An
 * output's elements must not overlap one another. */
rf_status rf_need_head_tensor(const struct rf_op_tensor *tensor, const char *name, enum rf_dtype dtype,
                              const uint64_t shape[4], uint64_t align, bool output);
/* heads_q is a multiple of heads_kv. */
rf_status rf_need_group(uint64_t heads_q, uint64_t heads_kv);
/* A multiple of 8 up to RF_ATTENTION_DIM_MAX. */
rf_status rf_need_head_size(uint64_t dim);
/* Finite as f32. */
rf_status rf_need_scale(double scale);
/* 31 bits either way. */
rf_status rf_need_offset(int64_t offset);
/* One of enum rf_attention_path. */
rf_status rf_need_path(int64_t path);

static inline struct rf_head_strides rf_heads_strides(const struct rf_tensor_desc *desc) {
    return (struct rf_head_strides){desc->strides[0], desc->strides[1], desc->strides[2]};
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
