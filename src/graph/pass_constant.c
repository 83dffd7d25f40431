/* Constant folding: a step whose inputs are constants is computed now, by the op's reference, and what it makes
 * becomes a constant.
 *
 * A constant is kept for good where a value's storage is reused, and the reference is slow: folded is only what is
 * small, by the limits below. Must not: fold what is a root, or what a step changes in place. */
#include "graph/pass.h"

#include <stdlib.h>

enum { MOST_BYTES = 1 << 20, MOST_FLOPS = 1 << 24 }; /* of what a step makes, and computes */

static bool foldable(const struct rf_graph *graph, const struct rf_graph_step *step, const struct rf_pass_use *uses,
                     const struct rf_op_call *call) {
    uint64_t bytes = 0, moved = 0, flops = 0;
    if (step->op->updates) return false;
    for (int i = 0; i < step->op->inputs; i++)
        if (step->tensors[i] != RF_NO_INDEX && graph->values[rf_step_root(graph, step, i)].role != RF_ROLE_CONSTANT)
            return false;
    for (int o = 0; o < step->op->outputs; o++) {
        const struct rf_graph_value *value = &graph->values[rf_step_out(step, o)];
        if (value->output || uses[rf_step_out(step, o)].updated || value->bytes > MOST_BYTES) return false;
        bytes += value->bytes;
    }
    if (step->op->cost) step->op->cost(call, &moved, &flops);
    return bytes <= MOST_BYTES && flops <= MOST_FLOPS;
}

/* Nothing is changed where memory is short. */
static rf_status fold(struct rf_graph *graph, const struct rf_graph_step *step, struct rf_op_call *call) {
    for (int i = 0; i < call->count; i++) {
        if (step->tensors[i] == RF_NO_INDEX) continue;
        const struct rf_graph_value *root = &graph->values[graph->values[step->tensors[i]].root];
        if (i < step->op->inputs) {
            call->tensors[i].host = (void *)(uintptr_t)root->data; /* read only */
            continue;
        }
        uint64_t bytes;
        if (rf_round_up_overflows(root->bytes, 64, &bytes) ||
            !(call->tensors[i].host = aligned_alloc(64, (size_t)bytes))) {
            for (int o = step->op->inputs; o < i; o++) free(call->tensors[o].host);
            return rf_fail(RF_E_NO_MEMORY, "node '%s': the host has no memory left to compute it", step->name);
        }
        memset(call->tensors[i].host, 0, (size_t)bytes);
    }
    step->op->reference(call);
    for (int o = step->op->inputs; o < call->count; o++) {
        struct rf_graph_value *value = &graph->values[step->tensors[o]];
        value->role = RF_ROLE_CONSTANT;
        value->data = value->owned_data = call->tensors[o].host;
        value->group = step->group;
    }
    return RF_OK;
}

rf_status rf_pass_constant(struct rf_graph *graph, size_t *changes) {
    struct rf_pass_use *uses = rf_pass_uses(graph);
    bool *gone = rf_pass_flags(graph);
    rf_status status = uses && gone ? RF_OK : RF_E_NO_MEMORY;
    for (size_t s = 0; !status && s < graph->step_count; s++) {
        struct rf_op_call call;
        rf_graph_call(graph, &graph->steps[s], &call);
        if (!foldable(graph, &graph->steps[s], uses, &call)) continue;
        status = fold(graph, &graph->steps[s], &call);
        if (status) break;
        gone[s] = true;
        ++*changes;
    }
    if (!status) status = rf_graph_compact(graph, gone);
    free(uses);
    free(gone);
    return status;
}
