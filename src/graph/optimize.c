/* The optimizer: clones a graph, runs the requested passes over the clone, and finishes it. Also has what passes
 * share. */
#include "graph/pass.h"

#include <stdlib.h>

static const struct {
    enum rf_pass bit;
    const char *name;
    rf_status (*run)(struct rf_graph *graph, size_t *changes);
} passes_in_order[] = {
    {RF_PASS_DEAD, "dead", rf_pass_dead},       {RF_PASS_CONSTANT, "constant", rf_pass_constant},
    {RF_PASS_COMMON, "common", rf_pass_common}, {RF_PASS_VIEW, "view", rf_pass_view},
    {RF_PASS_FUSE, "fuse", rf_pass_fuse},       {RF_PASS_IN_PLACE, "in place", rf_pass_in_place},
};

const char *rf_pass_name(enum rf_pass pass) {
    for (size_t i = 0; i < RF_COUNT(passes_in_order); i++)
        if (passes_in_order[i].bit == pass) return passes_in_order[i].name;
    return "?";
}

rf_status rf_graph_optimize(const struct rf_graph *graph, unsigned passes, struct rf_graph **out,
                            struct rf_pass_report *report, size_t *report_count) {
    if (!graph || !out || (report && !report_count))
        return rf_fail(RF_E_INVALID, "rf_graph_optimize: graph or out is NULL, or report_count beside a report");
    if (!graph->finished)
        return rf_fail(RF_E_INVALID, "rf_graph_optimize: graph '%s' is not finished: call rf_graph_finish first",
                       graph->name);
    if (passes & ~(unsigned)RF_PASSES_ALL)
        return rf_fail(RF_E_INVALID, "rf_graph_optimize: 0x%x are no passes: bits of enum rf_pass",
                       passes & ~(unsigned)RF_PASSES_ALL);
    struct rf_graph *clone = NULL;
    rf_status status = rf_graph_clone(graph, &clone);
    if (status) return status;
    /* In-place marks of an earlier optimization may not fit the graph that the passes make now. */
    for (size_t i = 0; i < clone->node_count; i++)
        memset(clone->nodes[i].in_place, -1, sizeof clone->nodes[i].in_place);
    struct rf_pass_report reports[RF_COUNT(passes_in_order)];
    size_t count = 0;
    for (size_t i = 0; i < RF_COUNT(passes_in_order) && !status; i++) {
        if (!(passes & (unsigned)passes_in_order[i].bit)) continue;
        struct rf_pass_report *one = &reports[count++];
        *one = (struct rf_pass_report){.pass = passes_in_order[i].bit, .nodes_before = clone->node_count};
        status = passes_in_order[i].run(clone, &one->changes);
        if (!status) rf_assert_valid(rf_graph_is_valid, clone);
        one->nodes_after = clone->node_count;
        if (status) rf_fail_within(status, "pass '%s'", passes_in_order[i].name);
    }
    if (!status) status = rf_graph_finish(clone);
    if (status) {
        rf_graph_destroy(&clone);
        return status;
    }
    if (report) memcpy(report, reports, count * sizeof *report);
    if (report_count) *report_count = count;
    *out = clone;
    return RF_OK;
}

/* ---- what passes share ---- */

struct rf_pass_use *rf_pass_uses(const struct rf_graph *graph) {
    struct rf_pass_use *uses = calloc(graph->tensor_count + 1, sizeof *uses);
    if (!uses) {
        rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to optimize it", graph->name);
        return NULL;
    }
    for (size_t i = 0; i < graph->tensor_count; i++) uses[i].reader = RF_NO_INDEX;
    for (size_t s = 0; s < graph->node_count; s++)
        for (int i = 0; i < graph->nodes[s].op->inputs; i++) {
            uint32_t root = rf_node_root(graph, &graph->nodes[s], i);
            if (root == RF_NO_INDEX) continue;
            uses[root].reads++;
            uses[root].reader = (uint32_t)s;
            uses[root].updated |= graph->nodes[s].op->updates >> i & 1;
            uses[root].through_view |= graph->nodes[s].tensors[i] != root;
        }
    return uses;
}

bool *rf_pass_flags(const struct rf_graph *graph) {
    bool *flags = calloc(graph->node_count + 1, sizeof *flags);
    if (!flags) rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to optimize it", graph->name);
    return flags;
}

bool rf_pass_fits(const struct rf_graph *graph, const struct rf_node_row *node) {
    struct rf_op_call call;
    struct rf_saved_error saved;
    rf_graph_call(graph, node, &call);
    rf_error_save(&saved);
    bool fits = !rf_op_check(&call);
    rf_error_restore(&saved); /* a pattern that does not fit is no failure */
    return fits;
}
