/* Dead nodes: a step stays if it makes what is wanted, changes what is kept or wanted, or makes what a step that
 * stays uses. Walked from the end, where "wanted" only ever grows. */
#include "graph/pass.h"

#include <stdlib.h>

static bool needed(const struct rf_graph *graph, const struct rf_graph_step *step, const bool *wanted) {
    for (int o = 0; o < step->op->outputs; o++)
        if (wanted[rf_step_out(step, o)]) return true;
    for (int i = 0; i < step->op->inputs; i++)
        if ((step->op->updates >> i & 1) && step->tensors[i] != RF_NO_INDEX && wanted[rf_step_root(graph, step, i)])
            return true;
    return false;
}

rf_status rf_pass_dead(struct rf_graph *graph, size_t *changes) {
    bool *gone = rf_pass_flags(graph), *wanted = calloc(graph->value_count + 1, sizeof *wanted);
    rf_status status = RF_OK;
    if (!gone || !wanted) {
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': the host has no memory left to optimize it", graph->name);
        goto done;
    }
    for (size_t i = 0; i < graph->value_count; i++) {
        const struct rf_graph_value *value = &graph->values[i];
        if (value->output || value->role == RF_ROLE_INPUT || value->role == RF_ROLE_STATE) wanted[value->root] = true;
    }
    for (size_t s = graph->step_count; s-- > 0;) {
        const struct rf_graph_step *step = &graph->steps[s];
        if (!needed(graph, step, wanted)) {
            gone[s] = true;
            ++*changes;
            continue;
        }
        for (int i = 0; i < step->op->inputs; i++)
            if (step->tensors[i] != RF_NO_INDEX) wanted[rf_step_root(graph, step, i)] = true;
    }
    status = rf_graph_compact(graph, gone);
done:
    free(gone);
    free(wanted);
    return status;
}
