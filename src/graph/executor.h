/* What the layers above may know of an executor besides its public functions. */
#ifndef RF_GRAPH_EXECUTOR_H
#define RF_GRAPH_EXECUTOR_H

#include <rocmforge/graph.h>

/* Where a tensor that can be read lies after a run: *device NULL for the CPU. Borrowed until the executor plans again
 * or is destroyed. */
rf_status rf_executor_locate(const struct rf_executor *executor, rf_tensor_id id, struct rf_device **device,
                             struct rf_binding *binding);

/* From now on runs take the time of each node on a device; a little slower. Not where runs are replayed. */
rf_status rf_executor_time_nodes(struct rf_executor *executor);
/* The longest of the last run that was timed so; 0: there was none, or nothing ran on a device. */
int64_t rf_executor_longest_ns(const struct rf_executor *executor);

#endif
