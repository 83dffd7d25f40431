/* What the rows of attention share: checks of tensors [batch, heads, rows, dim], and the layouts that cases use. The
 * launchers use the checks that need no tensor. */
#ifndef RF_OPS_OP_ATTENTION_IMPL_H
#define RF_OPS_OP_ATTENTION_IMPL_H

#include "ops/gpu_attention.h"
#include "ops/op_impl.h"

/* ---- checks, as in op_impl.h ---- */

/* Rank 4, the type, the shape, a dense last dimension. align, in bytes, is the alignment of the tensor's start and of
 * its strides. No two elements of an output may overlap. */
rf_status rf_need_head_tensor(const struct rf_op_tensor *tensor, const char *name, enum rf_dtype dtype,
                              const uint64_t shape[4], uint64_t align, bool output);
/* heads_q must be a multiple of heads_kv. */
rf_status rf_need_group(uint64_t heads_q, uint64_t heads_kv);
/* dim must be a multiple of 8 up to RF_ATTENTION_DIM_MAX. */
rf_status rf_need_head_size(uint64_t dim);
/* The scale must be finite as f32. */
rf_status rf_need_scale(double scale);
/* The offset must fit in 31 bits, positive or negative. */
rf_status rf_need_offset(int64_t offset);
/* The path must be one of enum rf_attention_path. */
rf_status rf_need_path(int64_t path);

static inline struct rf_head_strides rf_heads_strides(const struct rf_tensor_desc *desc) {
    return (struct rf_head_strides){desc->strides[0], desc->strides[1], desc->strides[2]};
}

/* ---- cases ---- */

enum rf_heads_layout {
    RF_LAYOUT_DENSE,
    RF_LAYOUT_SPREAD, /* [batch, rows, heads, dim] in memory, with gaps, not at the start; gaps and start are
                         multiples of 16 bytes */
    RF_LAYOUT_ODD,    /* the same with gaps of single elements */
    RF_LAYOUTS
};
struct rf_tensor_desc rf_heads_desc(enum rf_dtype dtype, enum rf_heads_layout layout, uint64_t batch, uint64_t heads,
                                    uint64_t rows, uint64_t dim);
const char *rf_heads_layout_name(enum rf_heads_layout layout);

#endif
