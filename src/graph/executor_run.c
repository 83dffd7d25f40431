/* A run: the actions of an assembly, one after the other, then a wait for all places.
 *
 * The calling thread does the CPU's work: devices get their work ahead of it and compute meanwhile. Nothing is
 * allocated. Before each action the run asks whether to stop; work that was already submitted to a device is not
 * taken back. After a stop or a failure, the run waits for all work that is under way, by the same deadline,
 * before it reports. If that wait fails and the device is not lost, the executor is left 'unfinished'. */
#include "graph/executor_impl.h"

/* The deadline of a run. If it is not set, each wait uses RF_TIMEOUT_DEFAULT. */
struct deadline {
    bool set;
    int64_t at_ns;
};
static struct deadline begin_deadline(const struct rf_executor *executor) {
    return (struct deadline){executor->timeout_ns > 0, rf_deadline_after(RF_MAX(executor->timeout_ns, (int64_t)0))};
}
static int64_t time_left(const struct deadline *deadline) {
    if (!deadline->set) return RF_TIMEOUT_DEFAULT;
    int64_t left = deadline->at_ns - rf_now_ns();
    return RF_MAX(left, (int64_t)0);
}

static rf_status act(struct rf_executor *executor, struct rf_assembly *assembly, const struct rf_action *action,
                     const struct deadline *deadline);
static rf_status begin_trace(struct rf_executor *executor, struct rf_assembly *assembly, int64_t *base_ns);
static void end_trace(struct rf_executor *executor, struct rf_assembly *assembly, const int64_t *base_ns);

static rf_status wait_all(struct rf_executor *executor, struct rf_assembly *assembly,
                          const struct deadline *deadline) {
    rf_status first = RF_OK;
    struct rf_saved_error saved;
    executor->unfinished = false;
    for (int p = 0; p < assembly->plan->place_count; p++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, p);
        rf_status status = backend->table->wait(backend, time_left(deadline));
        if (status && status != RF_E_DEVICE_LOST) executor->unfinished = true;
        if (!status || first) continue;
        first = status;
        rf_error_save(&saved);
    }
    if (first) rf_error_restore(&saved);
    return first;
}

rf_status rf_assembly_finish_run(struct rf_executor *executor, struct rf_assembly *assembly) {
    struct deadline deadline = begin_deadline(executor);
    return wait_all(executor, assembly, &deadline);
}

rf_status rf_assembly_run(struct rf_executor *executor, struct rf_assembly *assembly) {
    struct deadline deadline = begin_deadline(executor);
    int64_t base_ns[RF_PLACES_MAX];
    rf_status status = executor->unfinished ? wait_all(executor, assembly, &deadline) : RF_OK;
    if (!status && rf_executor_marks(executor)) status = begin_trace(executor, assembly, base_ns);
    if (status) return status;
    for (size_t i = 0; i < assembly->action_count && !status; i++)
        status = act(executor, assembly, &assembly->actions[i], &deadline);
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        wait_all(executor, assembly, &deadline);
        rf_error_restore(&saved);
        return status;
    }
    status = wait_all(executor, assembly, &deadline);
    if (!status && rf_executor_marks(executor)) end_trace(executor, assembly, base_ns);
    return status;
}

/* ---- runs that are queued ---- */

rf_status rf_assembly_submit(struct rf_executor *executor, struct rf_assembly *assembly, uint64_t *ticket) {
    struct deadline deadline = begin_deadline(executor);
    struct rf_backend *backend = rf_assembly_backend(assembly, assembly->actions[0].place);
    rf_status status = act(executor, assembly, &assembly->actions[0], &deadline);
    if (status) return status;
    executor->unfinished = true;
    executor->newest = *ticket = backend->table->submitted(backend);
    return RF_OK;
}

rf_status rf_assembly_wait_for(struct rf_executor *executor, struct rf_assembly *assembly, uint64_t ticket) {
    struct deadline deadline = begin_deadline(executor);
    struct rf_backend *backend = rf_assembly_backend(assembly, assembly->actions[0].place);
    rf_status status = backend->table->wait_until(backend, ticket, time_left(&deadline));
    if (!status && ticket == executor->newest) executor->unfinished = false;
    return status;
}

/* ---- check: guard bands, bytes of a known value after each tensor ---- */

static bool has_guard(const struct rf_plan *plan, uint32_t tensor, int place) {
    const struct rf_plan_home *home = rf_plan_home(plan, tensor, place);
    return home->present && !home->borrowed && !home->bound && !home->in_place;
}

rf_status rf_assembly_guard(struct rf_assembly *assembly, uint32_t tensor, int place) {
    const struct rf_plan *plan = assembly->plan;
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    unsigned char band[RF_GRAPH_GUARD_BYTES];
    if (!has_guard(plan, tensor, place)) return RF_OK;
    memset(band, RF_GRAPH_GUARD, sizeof band);
    return backend->table->upload(backend, &assembly->arenas[place],
                                  rf_plan_home(plan, tensor, place)->offset + plan->graph->tensors[tensor].bytes,
                                  band, sizeof band);
}

/* Before a node runs: writes the guard bands after its outputs. */
static rf_status guard_outputs(struct rf_assembly *assembly, uint32_t at) {
    const struct rf_node_row *row = &assembly->plan->graph->nodes[assembly->plan->order[at]];
    int place = assembly->plan->node_place[assembly->plan->order[at]];
    rf_status status = RF_OK;
    for (int o = 0; o < row->op->outputs && !status; o++) {
        uint32_t tensor = row->tensors[row->op->inputs + o];
        if (tensor != RF_NO_INDEX)
            status = rf_assembly_guard(assembly, assembly->plan->graph->tensors[tensor].root, place);
    }
    return status;
}

/* After a node ran: checks the guard bands of all tensors that are alive on its place. */
static rf_status check_guards(struct rf_assembly *assembly, uint32_t at) {
    const struct rf_plan *plan = assembly->plan;
    const struct rf_graph *graph = plan->graph;
    int place = plan->node_place[plan->order[at]];
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    if (assembly->dummy) return RF_OK;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(plan, v, place);
        unsigned char band[RF_GRAPH_GUARD_BYTES];
        if (!has_guard(plan, v, place) || (!home->kept && (at < home->first || at > home->last))) continue;
        rf_status status = backend->table->download(backend, &assembly->arenas[place],
                                                    home->offset + graph->tensors[v].bytes, band, sizeof band);
        if (status) return status;
        for (size_t i = 0; i < sizeof band; i++)
            if (band[i] != RF_GRAPH_GUARD)
                return rf_fail(RF_E_CORRUPT, "node '%s' on %s: byte %zu after tensor '%s' was overwritten",
                               graph->nodes[plan->order[at]].name, backend->name, i, graph->tensors[v].name);
    }
    return RF_OK;
}

/* ---- actions ---- */

static rf_status run_node(struct rf_executor *executor, struct rf_assembly *assembly, uint32_t at) {
    const struct rf_plan *plan = assembly->plan;
    uint32_t node = plan->order[at];
    int place = plan->node_place[node];
    const char *name = plan->graph->nodes[node].name;
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    rf_status status = executor->check ? guard_outputs(assembly, at) : RF_OK;
    bool marked = rf_executor_marks(executor) && assembly->mark[at];
    int64_t start = executor->trace ? rf_now_ns() : 0;
    if (!status && marked) status = backend->table->mark(backend, assembly->mark[at]);
    if (!status) status = backend->table->execute(backend, &assembly->calls[at]);
    if (!status && marked) status = backend->table->mark(backend, assembly->mark[at] + 1);
    if (!status && executor->trace && !marked)
        rf_trace_add(executor->trace, name, plan->graph->nodes[node].op->name, place, start, rf_now_ns() - start);
    if (!status && executor->check) status = check_guards(assembly, at);
    return status && status != RF_E_CORRUPT ? rf_fail_within(status, "node '%s'", name) : status;
}

static rf_status deliver(struct rf_executor *executor, struct rf_assembly *assembly, const struct rf_plan_copy *copy,
                         const void *data) {
    struct rf_backend *to = rf_assembly_backend(assembly, copy->to);
    rf_status status = to->table->upload(to, &assembly->arenas[copy->to],
                                         rf_plan_home(assembly->plan, copy->tensor, copy->to)->offset, data,
                                         assembly->plan->graph->tensors[copy->tensor].bytes);
    return status || !executor->check ? status : rf_assembly_guard(assembly, copy->tensor, copy->to);
}

static rf_status act(struct rf_executor *executor, struct rf_assembly *assembly, const struct rf_action *action,
                     const struct deadline *deadline) {
    struct rf_backend *backend = rf_assembly_backend(assembly, action->place);
    const struct rf_plan *plan = assembly->plan;
    rf_status status = RF_OK;
    const void *data = NULL;
    if (executor->stop && executor->stop(executor->stop_user))
        return rf_fail(RF_E_CANCELLED, "graph '%s': stopped", plan->graph->name);
    if (action->kind == RF_ACTION_RUN) {
        if (plan->places[action->place].cpu && deadline->set && rf_now_ns() >= deadline->at_ns)
            return rf_fail(RF_E_TIMEOUT, "graph '%s': the deadline passed before node '%s'", plan->graph->name,
                           plan->graph->nodes[plan->order[action->index]].name);
        return run_node(executor, assembly, action->index);
    }
    if (action->kind == RF_ACTION_REPLAY)
        return backend->table->replay(backend, assembly->segments[action->index].recording);
    const struct rf_plan_copy *copy = &plan->copies[action->index];
    struct rf_backend *from = rf_assembly_backend(assembly, copy->from);
    uint64_t offset = rf_plan_home(plan, copy->tensor, copy->from)->offset;
    int64_t start = executor->trace ? rf_now_ns() : 0;
    if (action->kind == RF_ACTION_BEGIN) {
        status = from->table->transfer_begin(from, assembly->transfers[action->index], &assembly->arenas[copy->from],
                                             offset);
    } else if (action->kind == RF_ACTION_FINISH) {
        status = from->table->transfer_end(from, assembly->transfers[action->index], time_left(deadline), &data);
        if (!status) status = deliver(executor, assembly, copy, data);
    } else {
        status = deliver(executor, assembly, copy, (const char *)assembly->arenas[copy->from].host + offset);
    }
    if (!status && executor->trace && action->kind != RF_ACTION_BEGIN)
        rf_trace_add(executor->trace, plan->graph->tensors[copy->tensor].name, "copy", RF_PLACES_MAX, start,
                     rf_now_ns() - start);
    return status ? rf_fail_within(status, "copy of '%s'", plan->graph->tensors[copy->tensor].name) : RF_OK;
}

/* ---- times ---- */

/* Sets a mark on each place that has marks, and notes when the host saw it done. */
static rf_status begin_trace(struct rf_executor *executor, struct rf_assembly *assembly, int64_t *base_ns) {
    (void)executor;
    for (int p = 0; p < assembly->plan->place_count; p++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, p);
        if (!backend->table->mark) continue;
        rf_status status = backend->table->mark(backend, 0);
        if (!status) status = backend->table->wait(backend, RF_TIMEOUT_DEFAULT);
        if (status) return status;
        base_ns[p] = rf_now_ns();
    }
    return RF_OK;
}

static void end_trace(struct rf_executor *executor, struct rf_assembly *assembly, const int64_t *base_ns) {
    const struct rf_plan *plan = assembly->plan;
    executor->longest_ns = 0;
    for (uint32_t at = 0; at < plan->graph->node_count; at++) {
        const struct rf_node_row *row = &plan->graph->nodes[plan->order[at]];
        int place = plan->node_place[plan->order[at]];
        struct rf_backend *backend = rf_assembly_backend(assembly, place);
        int64_t start = 0, elapsed = 0;
        if (!assembly->mark[at] || backend->table->marks_between(backend, 0, assembly->mark[at], &start) ||
            backend->table->marks_between(backend, assembly->mark[at], assembly->mark[at] + 1, &elapsed))
            continue;
        executor->longest_ns = RF_MAX(executor->longest_ns, elapsed);
        if (executor->trace)
            rf_trace_add(executor->trace, row->name, row->op->name, place, base_ns[place] + start, elapsed);
    }
}
