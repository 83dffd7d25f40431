/* What the launchers of attention share: checks of operands that hold heads, and the choice of a kernel on matrix
 * units. */
#ifndef RF_OPS_GPU_ATTENTION_IMPL_H
#define RF_OPS_GPU_ATTENTION_IMPL_H

#include "ops/gpu_attention.h"
#include "ops/op_attention_impl.h"

/* Puts the op's name before the reason of a failure. */
static inline rf_status rf_within_op(const char *op, rf_status status) {
    return status ? rf_fail_within(status, "%s", op) : RF_OK;
}

/* ---- sizes and types; the reasons come without the op's name ---- */

rf_status rf_need_kernel_type(enum rf_dtype dtype);
/* A kernel counts these in 32 bits. */
rf_status rf_need_count(const char *what, uint64_t count);

/* ---- operands [batch, heads, rows, dim] ---- */

struct rf_head_operand {
    struct rf_named_operand operand;
    uint64_t sizes[4];
    struct rf_head_strides strides;
};
/* Checks that an operand lies in its buffer, and aligned, in bytes, as its strides are; fills its bytes, 0 where it
 * has no elements. */
rf_status rf_operand_check_heads(const char *op, struct rf_head_operand *heads, enum rf_dtype dtype, uint64_t align);
/* Elements of an output share no memory with one another or with an input. */
rf_status rf_operand_check_output(const char *op, const struct rf_head_operand *out,
                                  const struct rf_named_operand *inputs, size_t count);

/* a * b * c * d as a number of blocks in x. */
rf_status rf_count_blocks(const char *op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint32_t *blocks);

/* ---- kernels on matrix units (gpu_flash.c) ---- */

struct rf_matrix_choice {
    bool use; /* else the plain kernel */
    bool wide;
    uint32_t dim;                  /* of the kernel: the largest head size it takes */
    uint32_t queries, keys, tiles; /* tiles: of keys and values, in shared memory */
    uint32_t threads;
};
/* The kernel for a path. rows: the queries, where the wide kernel may be chosen; else 0. */
rf_status rf_matrix_choose(const char *op, struct rf_queue *queue, enum rf_dtype dtype, uint64_t dim, uint64_t rows,
                           enum rf_attention_path path, struct rf_matrix_choice *choice);
uint32_t rf_matrix_shared_bytes(const struct rf_matrix_choice *choice, bool paged);

#endif
