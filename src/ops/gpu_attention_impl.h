/* What the launchers of attention share: checks of operands that hold heads, and the choice of a kernel for the
 * matrix units. */
#ifndef RF_OPS_GPU_ATTENTION_IMPL_H
#define RF_OPS_GPU_ATTENTION_IMPL_H

#include "ops/gpu_attention.h"
#include "ops/op_attention_impl.h"

/* Puts the op's name in front of a failure's reason. */
static inline rf_status rf_within_op(const char *op, rf_status status) {
    return status ? rf_fail_within(status, "%s", op) : RF_OK;
}

/* ---- sizes and types; these reasons do not contain the op's name ---- */

rf_status rf_need_kernel_type(enum rf_dtype dtype);
/* A kernel counts this in 32 bits, so it must fit. */
rf_status rf_need_count(const char *what, uint64_t count);

/* ---- operands [batch, heads, rows, dim] ---- */

struct rf_head_operand {
    struct rf_named_operand operand;
    uint64_t sizes[4];
    struct rf_head_strides strides;
};
/* Checks that an operand lies in its buffer, and that its start and its strides are aligned (align is in bytes).
 * Sets the operand's bytes; 0 if it has no elements. */
rf_status rf_operand_check_heads(const char *op, struct rf_head_operand *heads, enum rf_dtype dtype, uint64_t align);
/* Checks that no two elements of an output share memory, and that none shares memory with an input. */
rf_status rf_operand_check_output(const char *op, const struct rf_head_operand *out,
                                  const struct rf_named_operand *inputs, size_t count);

/* Sets *blocks to the product of the factors, a number of blocks in x of so many threads each. RF_E_UNSUPPORTED: a
 * grid cannot have so many. */
rf_status rf_count_blocks(const char *op, const uint64_t factors[4], uint32_t threads, uint32_t *blocks);

/* ---- kernels on matrix units (gpu_flash.c) ---- */

struct rf_matrix_choice {
    bool use; /* otherwise the plain kernel */
    bool wide;
    uint32_t dim;                  /* the largest head size that the kernel takes */
    uint32_t queries, keys, tiles; /* tiles: of keys and values in shared memory */
    uint32_t threads;
};
/* Chooses the kernel for a path. rows is the number of queries if the wide kernel may be chosen, otherwise 0. */
rf_status rf_matrix_choose(const char *op, struct rf_queue *queue, enum rf_dtype dtype, uint64_t dim, uint64_t rows,
                           enum rf_attention_path path, struct rf_matrix_choice *choice);
uint32_t rf_matrix_shared_bytes(const struct rf_matrix_choice *choice, bool paged);

/* ---- by groups of waves (gpu_flash_group.c); sizes and operands are checked ---- */

/* Whether device, types, sizes and strides allow it. Fails silently. */
bool rf_flash_group_suits(struct rf_queue *queue, const struct rf_flash_attention_launch *launch);
/* Whether it is faster at this size. */
bool rf_flash_group_worth(uint64_t q_rows, uint64_t heads_q, uint64_t batch); /* of either op */
rf_status rf_flash_group(struct rf_queue *queue, const struct rf_flash_attention_launch *launch);
/* The same for paged_attention. */
bool rf_paged_group_suits(struct rf_queue *queue, const struct rf_paged_attention_launch *launch);
rf_status rf_paged_group(struct rf_queue *queue, const struct rf_paged_attention_launch *launch);

#endif
