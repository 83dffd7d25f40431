/* What the layers above may use of graphs and executors besides their public functions. */
#ifndef RF_GRAPH_EXECUTOR_H
#define RF_GRAPH_EXECUTOR_H

#include <rocmforge/graph.h>

#include "base/base.h"

/* As rf_graph_create; the graph charges the account for its own host memory before it takes it. NULL: it charges
 * nothing. */
rf_status rf_graph_create_charged(const char *name, const struct rf_account *account, struct rf_graph **out);
/* The host memory that a graph takes, without the data of constants that others own: for charging it. */
uint64_t rf_graph_host_bytes(const struct rf_graph *graph);

/* Where a tensor that can be read lies after a run. *device is NULL for the CPU. The binding is borrowed until the
 * executor replans or is destroyed. */
rf_status rf_executor_locate(const struct rf_executor *executor, rf_tensor_id id, struct rf_device **device,
                             struct rf_binding *binding);

/* From now on runs measure the time of each node on a device, which makes them a little slower. RF_E_INVALID where
 * runs are replayed. */
rf_status rf_executor_time_nodes(struct rf_executor *executor);
/* The longest time of one node in the last run that was measured; 0: there was no such run, or nothing ran on a
 * device. */
int64_t rf_executor_longest_ns(const struct rf_executor *executor);

#endif
