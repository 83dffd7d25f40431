/* What the ops that rotate share: the checks of their table of steps, and how their cases fill it.
 *
 * The tensor steps is what rf_rope_steps gives, u64 [rotated / 2], as i32 [rotated / 2, 2]: the turns of each pair
 * per position. Base, factors and scaling are in it, so one table serves every backend. The attribute halves is 1 if
 * pairs are i and i + rotated / 2, and 0 if they are neighbours. A case's fill_kind says which of the rotations below
 * its steps are filled with. */
#ifndef RF_OPS_OP_ROPE_IMPL_H
#define RF_OPS_OP_ROPE_IMPL_H

#include "ops/gpu_cache.h"
#include "ops/op_impl.h"

enum { RF_HEAD_MAX = 4096 }; /* elements of the longest head that the references take */

enum { RF_ROTATIONS = 4 };
extern const char *const rf_rotation_names[RF_ROTATIONS];
/* Gives a case one of the rotations. */
void rf_rotation_set(struct rf_op_case *one, int which, bool halves, uint64_t rotated);
void rf_rotation_fill(const struct rf_op_call *call, const struct rf_op_tensor *steps);

rf_status rf_rotation_check(const struct rf_op_call *call, const struct rf_op_tensor *steps, uint64_t dim);
/* Converts a call of rope_append to the arguments of one kernel (op_cache.c). False if it takes two. */
bool rf_rope_append_at_once(const struct rf_op_call *call, struct rf_gpu_kv_append *append);
/* The tensor must be a dense vector of i32. */
rf_status rf_need_numbers(const struct rf_op_tensor *tensor, const char *name, uint64_t count);
/* The tensor must be [tokens, heads, dim], with dense elements and sizes that fit in 32 bits. */
rf_status rf_need_heads(const struct rf_op_tensor *tensor, const char *name);

#endif
