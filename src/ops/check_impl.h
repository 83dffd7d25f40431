/* What checking an op and measuring it share. */
#ifndef RF_OPS_CHECK_IMPL_H
#define RF_OPS_CHECK_IMPL_H

#include "ops/op.h"

struct rf_cpu;

/* Host memory of an input filled with a case's data: seeded, strides honoured, gaps left alone. */
rf_status rf_check_fill(const struct rf_op_call *call, int index, enum rf_case_data data, uint64_t *state);

/* Calls visit(user, byte) for the first byte of each element (of a quantized type: of each block), byte_offset
 * included, in row-major order, until it is false. */
void rf_check_elements(const struct rf_tensor_desc *desc, bool (*visit)(void *user, uint64_t byte), void *user);

/* The time of a large case on the device, or on cpu where device is NULL. */
rf_status rf_check_bench(struct rf_device *device, struct rf_cpu *cpu, const struct rf_op *op,
                         const struct rf_op_case *one, struct rf_check_result *result);

/* A buffer for the op's scratch memory, NULL where it needs none. */
rf_status rf_check_workspace(struct rf_device *device, struct rf_op_call *call);

#endif
