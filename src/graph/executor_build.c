/* Builds an assembly: measure, plan, charge and allocate, rehearse, upload, record.
 *
 * The order matters. Arenas come first, because a refusal is cheap at that point, and nothing is uploaded before
 * all memory is allocated. What a device can grant is asked before planning and may be gone when it is allocated,
 * because others allocate too. Then the plan is made again for less memory, and in the end without that device.
 * The same happens for a node that a device turns out to refuse. */
#include "graph/executor_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device.h"

enum { ATTEMPTS = 4, REHEARSALS = 64 };

static rf_status try_assembly(struct rf_executor *executor, struct rf_assembly *assembly, const uint64_t *caps,
                              uint8_t **refused, int *failed_place);
static rf_status finish_assembly(struct rf_executor *executor, struct rf_assembly *assembly);

static bool is_refusal(rf_status status) {
    return status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY;
}

static uint64_t bytes_to_give(struct rf_executor *executor) {
    uint64_t sum = 0, bytes = 0;
    for (size_t i = 0; i < executor->device_count; i++)
        if (!rf_safe_alloc_size(executor->devices[i], &bytes)) sum += bytes;
    return sum;
}

/* Memory that others freed may still wait for a quiet moment, and counts as held until then. */
static bool trim_gains(struct rf_executor *executor) {
    uint64_t before = bytes_to_give(executor);
    for (size_t i = 0; i < executor->device_count; i++) rf_device_trim(executor->devices[i], RF_TIMEOUT_DEFAULT);
    return bytes_to_give(executor) > before;
}

rf_status rf_assembly_create(struct rf_executor *executor, struct rf_assembly *out) {
    uint64_t caps[RF_DEVICES_MAX];
    int attempts[RF_DEVICES_MAX] = {0}, rehearsals = 0;
    uint8_t *refused = NULL; /* [node][place] */
    struct rf_assembly assembly = {0};
    rf_status status;
    bool trimmed = false;
    for (size_t i = 0; i < RF_DEVICES_MAX; i++) caps[i] = UINT64_MAX;
    for (;;) {
        int failed = -1;
        status = try_assembly(executor, &assembly, caps, &refused, &failed);
        if (!status) break;
        bool again = false, first = is_refusal(status) && !trimmed;
        if (status == RF_E_UNSUPPORTED && failed >= 0) {
            again = rehearsals++ < REHEARSALS;
        } else if (is_refusal(status) && !first && failed >= 0 && !executor->place) {
            uint64_t asked = rf_plan_arena_bytes(&assembly.plan->places[failed]);
            caps[failed] = attempts[failed]++ < ATTEMPTS ? asked - asked / 4 : 0;
            again = caps[failed] < asked && asked;
        }
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_assembly_destroy(executor, &assembly);
        /* The freed memory must be back with the driver before it is requested again. */
        if (again && failed >= 0) rf_device_trim(executor->devices[failed], RF_TIMEOUT_DEFAULT);
        if (first) {
            /* If the caller did not place the nodes, a smaller plan may fit; otherwise only more free memory
             * helps. */
            trimmed = true;
            again = trim_gains(executor) || (failed >= 0 && !executor->place);
        }
        rf_error_restore(&saved);
        if (!again) break;
    }
    free(refused);
    if (!status) {
        status = finish_assembly(executor, &assembly);
        if (status) {
            struct rf_saved_error saved;
            rf_error_save(&saved);
            rf_assembly_destroy(executor, &assembly);
            rf_error_restore(&saved);
        }
    }
    if (!status) *out = assembly;
    return status;
}

rf_status rf_assembly_destroy(struct rf_executor *executor, struct rf_assembly *assembly) {
    rf_status first = RF_OK;
    struct rf_plan *plan = assembly->plan;
    for (size_t i = 0; i < assembly->segment_count; i++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, assembly->segments[i].place);
        backend->table->recording_destroy(backend, assembly->segments[i].recording);
    }
    for (size_t i = 0; plan && assembly->transfers && i < plan->copy_count; i++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, plan->copies[i].from);
        if (assembly->transfers[i]) backend->table->transfer_destroy(backend, assembly->transfers[i]);
    }
    for (int p = 0; plan && p < plan->place_count; p++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, p);
        rf_status status = backend->table->arena_destroy(backend, &assembly->arenas[p]);
        if (status && !first) first = status;
    }
    for (size_t i = 0; i < assembly->gpu_count; i++) rf_backend_destroy(&assembly->gpus[i]);
    rf_backend_destroy(&assembly->dummy);
    rf_plan_destroy(&assembly->plan);
    free(assembly->calls);
    free(assembly->transfers);
    free(assembly->actions);
    free(assembly->segments);
    free(assembly->mark);
    rf_host_release(rf_executor_host(executor), assembly->charged_bytes, false);
    *assembly = (struct rf_assembly){0};
    return first;
}

/* ---- places ---- */

/* Rough figures by the kind of GPU and its number of compute units. Only their proportions matter, and only where
 * something must move. */
static void guess_rates(const struct rf_device_info *info, struct rf_plan_place *place) {
    double units = info->compute_units > 0 ? info->compute_units : 32;
    bool server = info->total_bytes >= UINT64_C(40) << 30; /* a server GPU with stacked memory */
    place->bytes_per_ns = units * (server ? 30 : 9);
    place->flops_per_ns = units * (server ? 2000 : 400);
    place->link_bytes_per_ns = info->integrated ? 20 : server ? 40 : 20;
    place->launch_ns = 4000;
    if (info->simulated) {
        place->bytes_per_ns = place->flops_per_ns = 0.1;
        place->link_bytes_per_ns = 2;
        place->launch_ns = 20000;
    }
}

static rf_status describe_device(struct rf_executor *executor, size_t index, uint64_t cap,
                                 struct rf_plan_place *place) {
    struct rf_device *device = executor->devices[index];
    RF_PARAMS(struct rf_device_info, info);
    RF_PARAMS(struct rf_memory_info, memory);
    rf_status status = rf_device_status(device);
    if (!status) status = rf_device_get_info(device, &info);
    if (!status) status = rf_device_memory_info(device, &memory);
    if (status) return status;
    guess_rates(&info, place);
    place->limit = RF_MIN(memory.available_bytes, cap);
    if (executor->device_bytes[index]) {
        /* The driver rounds up to its granularity, and the rounded size is what is held. */
        uint64_t granularity = info.granularity_bytes ? info.granularity_bytes : 1;
        place->limit = RF_MIN(place->limit, executor->device_bytes[index] / granularity * granularity);
    }
    return RF_OK;
}

static void describe_cpu(struct rf_executor *executor, struct rf_plan_place *place) {
    /* As many as were asked for, else one per core. More threads do not help where memory bandwidth is the limit. */
    double threads = executor->cpu_threads;
    place->cpu = true;
    place->limit = rf_host_room(&executor->runtime->host, false);
    place->bytes_per_ns = RF_MIN(10 * threads, 200);
    place->flops_per_ns = 20 * threads;
    place->launch_ns = 1000;
}

static rf_status find_places(struct rf_executor *executor, struct rf_assembly *assembly, const uint64_t *caps,
                             struct rf_plan_place *places, int *count) {
    *count = 0;
    if (executor->dummy) {
        rf_status status = rf_backend_create_dummy(executor->dummy, &assembly->dummy);
        if (status) return status;
        places[(*count)++] = (struct rf_plan_place){.backend = assembly->dummy,
                                                    .limit = UINT64_MAX,
                                                    .bytes_per_ns = 1,
                                                    .flops_per_ns = 1,
                                                    .link_bytes_per_ns = 1};
    }
    for (size_t i = 0; i < executor->device_count; i++) {
        struct rf_plan_place *place = &places[(*count)++];
        *place = (struct rf_plan_place){0};
        rf_status status = describe_device(executor, i, caps[i], place);
        if (!status) status = rf_backend_create_gpu(executor->devices[i], &assembly->gpus[i]);
        if (status) return status;
        assembly->gpu_count = i + 1;
        place->backend = assembly->gpus[i];
    }
    if (executor->cpu) {
        struct rf_plan_place *place = &places[(*count)++];
        *place = (struct rf_plan_place){.backend = executor->cpu};
        describe_cpu(executor, place);
    }
    for (int p = 0; p < *count; p++) places[p].alignment = places[p].backend->table->alignment(places[p].backend);
    return RF_OK;
}

/* ---- plan, memory, calls ---- */

/* Whether no node before this position writes a tensor of the caller's: until then it is as the run found it, so a
 * kernel may read it before its turn. (Runs that are queued are recordings, and no part of one starts before the one
 * before it is done.) */
static bool is_settled(const struct rf_plan *plan, uint32_t root, uint32_t at) {
    const struct rf_graph *graph = plan->graph;
    const struct rf_tensor_row *tensor = &graph->tensors[root];
    if (tensor->role != RF_ROLE_INPUT) return tensor->role == RF_ROLE_CONSTANT;
    for (uint32_t before = 0; tensor->updated && before < at; before++) {
        const struct rf_node_row *node = &graph->nodes[plan->order[before]];
        for (int i = 0; i < node->op->inputs; i++)
            if (node->op->updates >> i & 1 && node->tensors[i] != RF_NO_INDEX &&
                graph->tensors[node->tensors[i]].root == root)
                return false;
    }
    return true;
}

static void bind(const struct rf_assembly *assembly, uint32_t at, struct rf_op_call *call) {
    const struct rf_plan *plan = assembly->plan;
    const struct rf_graph *graph = plan->graph;
    uint32_t node = plan->order[at];
    int place = plan->node_place[node];
    const struct rf_arena *arena = &assembly->arenas[place];
    rf_graph_call(graph, &graph->nodes[node], call);
    for (int i = 0; i < call->count; i++) {
        uint32_t index = graph->nodes[node].tensors[i];
        if (index == RF_NO_INDEX) continue;
        const struct rf_plan_home *home = rf_plan_home(plan, graph->tensors[index].root, place);
        struct rf_op_tensor *tensor = &call->tensors[i];
        tensor->bytes = graph->tensors[index].bytes;
        tensor->constant =
            is_settled(plan, graph->tensors[index].root, at) && !(i < call->op->inputs && call->op->updates >> i & 1);
        if (home->bound) {
            tensor->desc.byte_offset += home->binding.offset_bytes;
            tensor->bytes += home->binding.offset_bytes;
            tensor->host = home->binding.host;
            tensor->buffer = home->binding.buffer;
            continue;
        }
        if (home->borrowed) {
            tensor->host = (void *)(uintptr_t)graph->tensors[graph->tensors[index].root].data;
            continue;
        }
        tensor->desc.byte_offset += home->offset;
        tensor->bytes += home->offset;
        tensor->host = arena->host;
        tensor->buffer = arena->buffer;
    }
    if (plan->node_workspace[node]) {
        call->workspace = arena->buffer;
        call->workspace_offset = plan->workspace_at[node];
    }
    if (call->op->counters && plan->places[place].counter_bytes) {
        call->counters = arena->buffer;
        call->counters_offset = plan->places[place].counters_at;
    }
}

static rf_status rehearse(struct rf_assembly *assembly, uint8_t **refused, int *failed_place) {
    const struct rf_plan *plan = assembly->plan;
    size_t nodes = plan->graph->node_count, places = (size_t)plan->place_count;
    rf_status first = RF_OK;
    for (uint32_t at = 0; at < nodes; at++) {
        uint32_t node = plan->order[at];
        int place = plan->node_place[node];
        struct rf_backend *backend = rf_assembly_backend(assembly, place);
        bind(assembly, at, &assembly->calls[at]);
        if (!backend->table->rehearse) continue;
        rf_status status = backend->table->rehearse(backend, &assembly->calls[at]);
        if (!status) continue;
        rf_fail_within(status, "node '%s'", plan->graph->nodes[node].name);
        if (status != RF_E_UNSUPPORTED) return status;
        if (!*refused) *refused = calloc(nodes * places + 1, 1);
        if (!*refused) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", plan->graph->name);
        (*refused)[(size_t)node * places + (size_t)place] = 1;
        if (!first) *failed_place = place;
        first = RF_E_UNSUPPORTED;
    }
    for (int place = 0; place < plan->place_count && !first; place++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, place);
        if (!backend->table->rehearsed) continue;
        first = backend->table->rehearsed(backend);
        if (first == RF_E_BUDGET) *failed_place = place;
    }
    return first;
}

/* The dummy counts tensors by the caller's ids where they have one. */
static rf_status tell_assigned(struct rf_assembly *assembly, int place) {
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    const struct rf_graph *graph = assembly->plan->graph;
    if (!backend->table->assigned) return RF_OK;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(assembly->plan, v, place);
        rf_tensor_id id = rf_plan_caller_id(assembly->plan, v);
        if (!home->present || home->in_place) continue;
        rf_status status = backend->table->assigned(backend, id ? id : v + 1, graph->tensors[v].bytes);
        if (status) return status;
    }
    return RF_OK;
}

static rf_status charge(struct rf_executor *executor, struct rf_assembly *assembly, uint64_t bytes) {
    rf_status status = executor->runtime ? rf_host_charge(rf_executor_host(executor), bytes, false) : RF_OK;
    if (status) return rf_fail_within(status, "graph '%s'", executor->graph->name);
    assembly->charged_bytes += bytes;
    return RF_OK;
}

/* Makes the plan, and charges it and all tables that are made from it. The calls, which are the largest, are charged
 * first: the planner's own tables are smaller and are gone before the calls are made. */
static rf_status make_plan(struct rf_executor *executor, struct rf_assembly *assembly,
                           const struct rf_plan_params *params) {
    rf_status status = charge(executor, assembly, executor->graph->node_count * sizeof *assembly->calls);
    if (!status) status = rf_plan_create(params, &assembly->plan);
    if (status) return status;
    const struct rf_plan *plan = assembly->plan;
    size_t nodes = plan->graph->node_count, copies = plan->copy_count, actions = nodes + 2 * copies;
    uint64_t bytes =
        rf_plan_host_bytes(plan) + copies * sizeof *assembly->transfers + actions * sizeof *assembly->actions;
    if (rf_executor_marks(executor)) bytes += nodes * sizeof *assembly->mark;
    if (executor->replay) bytes += actions * sizeof *assembly->segments;
    return charge(executor, assembly, bytes);
}

static rf_status try_assembly(struct rf_executor *executor, struct rf_assembly *assembly, const uint64_t *caps,
                              uint8_t **refused, int *failed_place) {
    const struct rf_graph *graph = executor->graph;
    struct rf_plan_place places[RF_PLACES_MAX];
    int count = 0;
    rf_status status = find_places(executor, assembly, caps, places, &count);
    if (status) return status;
    struct rf_plan_params params = {.graph = graph,
                                    .places = places,
                                    .place_count = count,
                                    .guard_bytes = executor->check ? RF_GRAPH_GUARD_BYTES : 0,
                                    .refused = *refused,
                                    .optimized = executor->optimized != NULL,
                                    .place = executor->place,
                                    .place_group = executor->place_group,
                                    .bind = executor->bind,
                                    .user = executor->user};
    status = make_plan(executor, assembly, &params);
    if (status) return status;
    for (int p = 0; p < count && !status; p++) {
        const struct rf_plan_place *place = &assembly->plan->places[p];
        char label[48];
        snprintf(label, sizeof label, "graph %.40s", graph->name);
        if (!place->node_count && !place->kept_bytes) continue;
        status = place->backend->table->arena_create(place->backend, rf_plan_arena_bytes(place), label,
                                                     &assembly->arenas[p]);
        if (status && place->backend->device) *failed_place = p;
        if (!status) status = tell_assigned(assembly, p);
    }
    if (status) return status;
    assembly->calls = calloc(graph->node_count + 1, sizeof *assembly->calls);
    if (!assembly->calls) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for its calls", graph->name);
    return rehearse(assembly, refused, failed_place);
}

/* ---- contents, copies, actions ---- */

static rf_status upload_constants(struct rf_executor *executor, struct rf_assembly *assembly) {
    const struct rf_plan *plan = assembly->plan;
    const struct rf_graph *graph = plan->graph;
    rf_status status = RF_OK;
    for (uint32_t v = 0; v < graph->tensor_count && !status; v++)
        for (int p = 0; p < plan->place_count && !status; p++) {
            const struct rf_plan_home *home = rf_plan_home(plan, v, p);
            struct rf_backend *backend = rf_assembly_backend(assembly, p);
            if (!home->present || !home->kept || home->borrowed || home->bound) continue;
            if (graph->tensors[v].role == RF_ROLE_CONSTANT && !graph->tensors[v].data)
                return rf_fail(RF_E_INVALID, "constant '%s' of graph '%s' has neither data nor a binding",
                               graph->tensors[v].name, graph->name);
            if (graph->tensors[v].role == RF_ROLE_CONSTANT)
                status = backend->table->upload(backend, &assembly->arenas[p], home->offset, graph->tensors[v].data,
                                                graph->tensors[v].bytes);
            if (!status && executor->check) status = rf_assembly_guard(assembly, v, p);
        }
    return status;
}

static rf_status make_transfers(struct rf_assembly *assembly) {
    const struct rf_plan *plan = assembly->plan;
    assembly->transfers = calloc(plan->copy_count + 1, sizeof *assembly->transfers);
    if (!assembly->transfers)
        return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for its copies", plan->graph->name);
    for (size_t i = 0; i < plan->copy_count; i++) {
        struct rf_backend *from = rf_assembly_backend(assembly, plan->copies[i].from);
        if (!from->table->transfer_create) continue;
        rf_status status = from->table->transfer_create(from, plan->graph->tensors[plan->copies[i].tensor].bytes,
                                                        &assembly->transfers[i]);
        if (status) return status;
    }
    return RF_OK;
}

static rf_status make_actions(struct rf_assembly *assembly) {
    const struct rf_plan *plan = assembly->plan;
    uint32_t nodes = (uint32_t)plan->graph->node_count, next = 0;
    uint32_t *first = calloc((size_t)nodes + 1, sizeof *first); /* [position] 1 + the first copy leaving after it */
    uint32_t *more = calloc(plan->copy_count + 1, sizeof *more);
    assembly->actions = calloc(nodes + 2 * plan->copy_count + 1, sizeof *assembly->actions);
    if (!first || !more || !assembly->actions) {
        free(first);
        free(more);
        return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for its actions", plan->graph->name);
    }
    for (uint32_t c = (uint32_t)plan->copy_count; c-- > 0;) {
        more[c] = first[plan->copies[c].after];
        first[plan->copies[c].after] = c + 1;
    }
    struct rf_action *actions = assembly->actions;
    size_t count = 0;
    for (uint32_t at = 0; at < nodes; at++) {
        for (; next < plan->copy_count && plan->copies[next].before == at; next++)
            if (!plan->places[plan->copies[next].from].cpu)
                actions[count++] = (struct rf_action){RF_ACTION_FINISH, plan->copies[next].to, next};
        actions[count++] = (struct rf_action){RF_ACTION_RUN, plan->node_place[plan->order[at]], at};
        for (uint32_t c = first[at]; c; c = more[c - 1]) {
            const struct rf_plan_copy *copy = &plan->copies[c - 1];
            bool cpu = plan->places[copy->from].cpu;
            actions[count++] = (struct rf_action){cpu ? RF_ACTION_SEND : RF_ACTION_BEGIN, copy->from, c - 1};
        }
    }
    assembly->action_count = count;
    free(first);
    free(more);
    return RF_OK;
}

/* Records the nodes of actions first to last, all on one place. Without a recording they are executed one by one,
 * which is also what happens where the driver cannot record, fails to, or has no memory for it. */
static rf_status record(struct rf_assembly *assembly, size_t first, size_t last, void **recording) {
    int place = assembly->actions[first].place;
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    rf_status status = backend->table->record_begin(backend), ended;
    if (status) return status;
    for (size_t i = first; i <= last && !status; i++)
        status = backend->table->execute(backend, &assembly->calls[assembly->actions[i].index]);
    ended = backend->table->record_end(backend, recording);
    if (status && !ended) {
        backend->table->recording_destroy(backend, *recording);
        *recording = NULL;
    }
    return status ? status : ended;
}

static rf_status make_recordings(struct rf_assembly *assembly) {
    size_t kept = 0;
    bool works = true;
    assembly->segments = calloc(assembly->action_count + 1, sizeof *assembly->segments);
    if (!assembly->segments)
        return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for recordings", assembly->plan->graph->name);
    for (size_t i = 0, last; i < assembly->action_count; i = last + 1) {
        struct rf_action action = assembly->actions[i];
        const struct rf_backend *backend = rf_assembly_backend(assembly, action.place);
        last = i;
        if (action.kind == RF_ACTION_RUN && backend->table->record_begin)
            while (last + 1 < assembly->action_count && assembly->actions[last + 1].kind == RF_ACTION_RUN &&
                   assembly->actions[last + 1].place == action.place)
                last++;
        void *recording = NULL;
        rf_status status = works && last > i ? record(assembly, i, last, &recording) : RF_OK;
        if (status == RF_E_DEVICE_LOST) return status;
        if (status == RF_E_DRIVER) works = false; /* a failed recording may cost a stream: it is tried once */
        if (recording) {
            assembly->segments[assembly->segment_count] = (struct rf_segment){action.place, recording};
            assembly->actions[kept++] =
                (struct rf_action){RF_ACTION_REPLAY, action.place, (uint32_t)assembly->segment_count++};
        } else {
            memmove(&assembly->actions[kept], &assembly->actions[i], (last - i + 1) * sizeof *assembly->actions);
            kept += last - i + 1;
        }
    }
    assembly->action_count = kept;
    return RF_OK;
}

/* Makes two marks for each node on a place that has marks, and one for the beginning of a run. */
rf_status rf_assembly_make_marks(struct rf_executor *executor, struct rf_assembly *assembly) {
    const struct rf_plan *plan = assembly->plan;
    uint32_t counts[RF_PLACES_MAX];
    rf_status status = RF_OK;
    assembly->mark = calloc(plan->graph->node_count + 1, sizeof *assembly->mark);
    if (!assembly->mark) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a trace", plan->graph->name);
    for (int p = 0; p < plan->place_count; p++) counts[p] = 1;
    for (uint32_t at = 0; at < plan->graph->node_count; at++) {
        int place = plan->node_place[plan->order[at]];
        if (!plan->places[place].backend->table->mark) continue;
        assembly->mark[at] = counts[place];
        counts[place] += 2;
    }
    for (int p = 0; p < plan->place_count && !status; p++) {
        struct rf_backend *backend = rf_assembly_backend(assembly, p);
        if (executor->trace) rf_trace_place(executor->trace, p, backend->name);
        if (backend->table->marks_create) status = backend->table->marks_create(backend, counts[p]);
    }
    return status;
}

static rf_status finish_assembly(struct rf_executor *executor, struct rf_assembly *assembly) {
    rf_status status = upload_constants(executor, assembly);
    if (!status) status = make_transfers(assembly);
    if (!status) status = make_actions(assembly);
    if (!status && rf_executor_marks(executor)) status = rf_assembly_make_marks(executor, assembly);
    if (!status && executor->replay && !executor->check && !rf_executor_marks(executor))
        status = make_recordings(assembly);
    return status;
}
