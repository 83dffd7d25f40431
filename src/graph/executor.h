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

/* Whether a run is one recording on one device and nothing else. Such runs can be queued behind each other: a graph
 * that changes its own inputs then goes on without the host. */
bool rf_executor_can_queue(const struct rf_executor *executor);
/* Submits a run, of an executor that can queue, and does not wait for it; *ticket names it. Everything else that is
 * done with the executor waits for it first. RF_E_CANCELLED: 'stop' said so, and nothing was submitted. */
rf_status rf_executor_submit(struct rf_executor *executor, uint64_t *ticket);
/* Waits for a run that was submitted, and for those before it, by the executor's deadline. */
rf_status rf_executor_wait_for(struct rf_executor *executor, uint64_t ticket);
/* Waits for all of them. */
rf_status rf_executor_finish(struct rf_executor *executor);

/* From now on runs measure the time of each node on a device, which makes them a little slower. RF_E_INVALID where
 * runs are replayed. */
rf_status rf_executor_time_nodes(struct rf_executor *executor);
/* The longest time of one node in the last run that was measured; 0: there was no such run, or nothing ran on a
 * device. */
int64_t rf_executor_longest_ns(const struct rf_executor *executor);

#endif
