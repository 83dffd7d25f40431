/* What the checks (check.c) and the benchmarks (check_bench.c) of ops share. */
#ifndef RF_OPS_CHECK_IMPL_H
#define RF_OPS_CHECK_IMPL_H

#include "ops/op.h"

struct rf_cpu;

/* Fills the host memory of an input with the case's seeded data. Strides are honoured; the gaps between elements are
 * left alone. */
rf_status rf_check_fill(const struct rf_op_call *call, int index, enum rf_case_data data, uint64_t *state);

/* Calls visit(user, byte) for the first byte of each element (for a quantized type: of each block), byte_offset
 * included, in row-major order, until it returns false. */
void rf_check_elements(const struct rf_tensor_desc *desc, bool (*visit)(void *user, uint64_t byte), void *user);

/* Measures the time of a large case on the device, or on cpu if device is NULL. */
rf_status rf_check_bench(struct rf_device *device, struct rf_cpu *cpu, const struct rf_op *op,
                         const struct rf_op_case *one, struct rf_check_result *result);

/* Makes buffers for the op's scratch memory and for its counters, where it needs them and has none yet. */
rf_status rf_check_workspace(struct rf_device *device, struct rf_op_call *call);

#endif
