/* What the tests of the passes share: running a pass, counting what it changed, and comparing results before and
 * after with the references. */
#ifndef PASS_TESTING_H
#define PASS_TESTING_H

#include "graph_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double CLOSE = 1e-5; /* fusing may change results: it drops some roundings */

/* Runs a pass, checks that it made this many changes and left this many nodes, and compares the results with those
 * before. Takes the graph, which is finished here. */
static inline struct rf_graph *after(struct rf_graph *graph, unsigned passes, size_t changes, size_t nodes) {
    struct rf_pass_report report[6];
    struct rf_graph *out = NULL;
    size_t count = 0, sum = 0;
    if (!graph->finished) RF_ASSERT_OK(rf_graph_finish(graph));
    RF_ASSERT_OK(rf_graph_optimize(graph, passes, &out, report, &count));
    for (size_t i = 0; i < count; i++) sum += report[i].changes;
    char *text = graph_text(out, RF_GRAPH_TEXT);
    if (sum != changes || rf_graph_node_count(out) != nodes) RF_NOTE("%s", text);
    free(text);
    RF_ASSERT_UINT(sum, changes);
    RF_ASSERT_UINT(rf_graph_node_count(out), nodes);
    RF_ASSERT_UINT(report[0].nodes_before, rf_graph_node_count(graph));
    RF_ASSERT_UINT(report[count - 1].nodes_after, nodes);
    bool exact = !(passes & RF_PASS_FUSE);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const char *difference = graph_difference(graph, out, seed, exact ? 0 : CLOSE);
        if (difference) RF_NOTE("%s", difference);
        RF_ASSERT_NULL(difference);
    }
    return out;
}
static inline void expect(struct rf_graph *graph, unsigned passes, size_t changes, size_t nodes) {
    struct rf_graph *out = after(graph, passes, changes, nodes);
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);
}
/* The op of the node that produces a tensor. */
static inline const char *maker(const struct rf_graph *graph, const char *tensor) {
    rf_tensor_id id = rf_graph_find(graph, tensor);
    RF_ASSERT(id && graph->tensors[id - 1].producer != RF_NO_INDEX);
    return graph->nodes[graph->tensors[id - 1].producer].op->name;
}
#define INPUT(graph, name, ...) GRAPH_TENSOR(graph, name, RF_ROLE_INPUT, __VA_ARGS__)
#define VALUE(graph, name, ...) GRAPH_TENSOR(graph, name, RF_ROLE_RESULT, __VA_ARGS__)

#endif
