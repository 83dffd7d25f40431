/* What rows of the table that rotate share: the table of steps, and how their cases fill it.
 *
 * steps is what rf_rope_steps gives, u64 [rotated / 2], as i32 [rotated / 2, 2]: turns of each pair per position, so
 * that bases, factors and scaling are one table for every backend. In both ops f[0] is the magnitude, i[0] is 1 where
 * pairs are i and i + rotated / 2 and 0 where they are neighbours. i[1] is read by nothing but the cases: which
 * of the rotations the steps are filled with. */
#ifndef RF_OPS_OP_ROPE_IMPL_H
#define RF_OPS_OP_ROPE_IMPL_H

#include "ops/gpu_transformer.h"
#include "ops/op_impl.h"

enum { RF_HEAD_MAX = 4096 }; /* elements; the references' */

enum { RF_ROTATIONS = 4 };
extern const char *const rf_rotation_names[RF_ROTATIONS];
/* Makes one of the rotations a case's own. */
void rf_rotation_set(struct rf_op_case *one, int which, bool halves, uint64_t rotated);
void rf_rotation_fill(const struct rf_op_call *call, const struct rf_op_tensor *steps);

rf_status rf_rotation_check(const struct rf_op_call *call, const struct rf_op_tensor *steps, uint64_t dim);
struct rf_rope_table rf_rotation_of(const struct rf_op_call *call, const struct rf_op_tensor *steps);
/* A vector of i32, dense; [tokens, heads, dim] whose elements are dense. */
rf_status rf_need_numbers(const struct rf_op_tensor *tensor, const char *name, uint64_t count);
rf_status rf_need_heads(const struct rf_op_tensor *tensor, const char *name);

#endif
