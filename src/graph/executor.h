/* What the layers above may know of an executor besides its public functions. */
#ifndef RF_GRAPH_EXECUTOR_H
#define RF_GRAPH_EXECUTOR_H

#include <rocmforge/graph.h>

/* Where a tensor that can be read lies after a run: *device NULL for the CPU. Borrowed until the executor plans again
 * or is destroyed. */
rf_status rf_executor_locate(const struct rf_executor *executor, rf_tensor_id id, struct rf_device **device,
                             struct rf_binding *binding);

#endif
