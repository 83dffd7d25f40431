/* The executor: a graph with a plan and the memory for it. This file has the public functions and keeps what they
 * promise; how an assembly is made and run is in executor_build.c and executor_run.c.
 *
 * When the plan changes, inputs and states move through host memory. Saved contents are kept until a new assembly
 * holds them, so a replan that fails loses nothing. Constants are never saved, because the graph has them. */
#include "graph/executor_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/executor.h"
#include "gpu/device.h"

static rf_status set_devices(struct rf_executor *executor, struct rf_device *const *devices, size_t count,
                             const uint64_t *bytes);
static rf_status make_cpu(struct rf_executor *executor, const struct rf_executor_params *params);
static rf_status find_runtime(struct rf_executor *executor, const struct rf_executor_params *params);
static rf_status make_graph(struct rf_executor *executor, unsigned passes);
static void forget_saved(struct rf_executor *executor);

static bool has_assembly(const struct rf_executor *executor) {
    return executor->assembly.plan != NULL;
}
#if RF_CHECKS >= 2
static bool executor_is_valid(const struct rf_executor *executor, const char **why) {
    bool saved = false;
    for (size_t v = 0; v < executor->graph->tensor_count; v++) saved |= executor->saved[v] != NULL;
    RF_INVALID_UNLESS(!has_assembly(executor) || !saved, "contents are saved although the assembly has them");
    RF_INVALID_UNLESS(has_assembly(executor) || !executor->unfinished, "work is under way without an assembly");
    RF_INVALID_UNLESS(!has_assembly(executor) || executor->assembly.plan->graph == executor->graph,
                      "the plan is of another graph");
    return true;
}
#endif

static void destroy(struct rf_executor *executor) {
    if (!executor) return;
    if (executor->saved) forget_saved(executor);
    free(executor->saved);
    free(executor->index_of);
    rf_backend_destroy(&executor->cpu);
    rf_host_release(rf_executor_host(executor), executor->charged_bytes, false);
    rf_runtime_destroy(&executor->own_runtime);
    rf_graph_destroy(&executor->optimized);
    free(executor);
}

rf_status rf_executor_create(const struct rf_executor_params *params, struct rf_executor **out) {
    struct rf_executor_params own;
    rf_status status =
        RF_PARAMS_READ_SINCE(struct rf_executor_params, place_group, &own, params, "rf_executor_create");
    if (status) return status;
    params = &own;
    if (!params->graph || !out) return rf_fail(RF_E_INVALID, "rf_executor_create: graph or out is NULL");
    if (!params->graph->finished)
        return rf_fail(RF_E_INVALID, "graph '%s' is not finished: call rf_graph_finish first", params->graph->name);
    if (params->dummy && params->device_count)
        return rf_fail(RF_E_INVALID, "rf_executor_create: a dummy runs alone, and %zu devices are given",
                       params->device_count);
    if (params->no_cpu && !params->device_count && !params->dummy)
        return rf_fail(RF_E_INVALID, "rf_executor_create: neither a device nor the CPU to run on");
    if (params->timeout_ns < 0)
        return rf_fail(RF_E_INVALID, "rf_executor_create: a timeout of %lld ns", (long long)params->timeout_ns);
    struct rf_executor *executor = calloc(1, sizeof *executor);
    if (!executor) return rf_fail(RF_E_NO_MEMORY, "no host memory for an executor");
    executor->source = executor->graph = params->graph;
    executor->no_cpu = params->no_cpu;
    executor->check = params->check;
    executor->replay = params->replay;
    executor->dummy = params->dummy;
    executor->timeout_ns = params->timeout_ns;
    executor->place = params->place;
    executor->place_group = params->place_group;
    executor->bind = params->bind;
    executor->stop = params->stop;
    executor->stop_user = params->stop_user;
    executor->user = params->user;
    status = set_devices(executor, params->devices, params->device_count, params->device_bytes);
    if (!status && !params->dummy) status = find_runtime(executor, params);
    if (!status) status = make_graph(executor, params->passes);
    if (!status && !params->dummy && !params->no_cpu) status = make_cpu(executor, params);
    if (!status && params->trace_path)
        status = rf_trace_create(params->trace_path, rf_executor_host(executor), &executor->trace);
    if (!status) status = rf_assembly_create(executor, &executor->assembly);
    if (status) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_trace_destroy(&executor->trace);
        destroy(executor);
        rf_error_restore(&saved);
        return status;
    }
    executor->epoch = 1;
    rf_assert_valid(executor_is_valid, executor);
    *out = executor;
    return RF_OK;
}

rf_status rf_executor_destroy(struct rf_executor **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_executor *executor = *pointer;
    *pointer = NULL;
    rf_status status = has_assembly(executor) ? rf_assembly_destroy(executor, &executor->assembly) : RF_OK;
    rf_status traced = rf_trace_destroy(&executor->trace);
    destroy(executor);
    return status ? status : traced;
}

/* ---- parts of create ---- */

static rf_status set_devices(struct rf_executor *executor, struct rf_device *const *devices, size_t count,
                             const uint64_t *bytes) {
    if (count > RF_DEVICES_MAX)
        return rf_fail(RF_E_INVALID, "an executor takes at most %d devices, %zu are given", RF_DEVICES_MAX, count);
    for (size_t i = 0; i < count; i++) {
        if (!devices || !devices[i]) return rf_fail(RF_E_INVALID, "device %zu of an executor is NULL", i);
        for (size_t k = 0; k < i; k++)
            if (devices[k] == devices[i])
                return rf_fail(RF_E_INVALID, "devices %zu and %zu of an executor are the same", k, i);
    }
    executor->device_count = count;
    for (size_t i = 0; i < count; i++) {
        executor->devices[i] = devices[i];
        executor->device_bytes[i] = bytes ? bytes[i] : 0;
    }
    return RF_OK;
}

/* Takes the caller's runtime, else that of its devices. A graph that runs on the CPU alone needs neither: it gets
 * a runtime of its own. */
static rf_status find_runtime(struct rf_executor *executor, const struct rf_executor_params *params) {
    executor->runtime = params->runtime;
    if (!executor->runtime && params->device_count) executor->runtime = rf_device_runtime(params->devices[0]);
    if (executor->runtime) return RF_OK;
    rf_status status = rf_runtime_create(NULL, &executor->own_runtime);
    executor->runtime = executor->own_runtime;
    return status;
}

static rf_status make_cpu(struct rf_executor *executor, const struct rf_executor_params *params) {
    executor->cpu_threads = rf_runtime_thread_count(executor->runtime, params->cpu_threads);
    return rf_backend_create_cpu(executor->runtime, params->cpu_threads, params->cpu_simd, &executor->cpu);
}

/* Charges the executor `bytes` in all, whatever it was charged before. */
static rf_status charge(struct rf_executor *executor, uint64_t bytes) {
    uint64_t before = executor->charged_bytes;
    if (!executor->runtime) return RF_OK;
    if (bytes > before) {
        rf_status status = rf_host_charge(rf_executor_host(executor), bytes - before, false);
        if (status) return rf_fail_within(status, "graph '%s'", executor->source->name);
    } else {
        rf_host_release(rf_executor_host(executor), before - bytes, false);
    }
    executor->charged_bytes = bytes;
    return RF_OK;
}

/* Optimizes the graph if asked to, and finds the caller's tensors in the result. While the passes run, the tables
 * that they need are charged too. */
static rf_status make_graph(struct rf_executor *executor, unsigned passes) {
    const struct rf_graph *source = executor->source;
    if (passes) {
        rf_status made = charge(executor, rf_graph_host_bytes(source) + rf_graph_work_bytes(source));
        if (!made) made = rf_graph_optimize(source, passes, &executor->optimized, NULL, NULL);
        if (made) return made;
        executor->graph = executor->optimized;
    }
    executor->index_of = calloc(source->tensor_count + 1, sizeof *executor->index_of);
    executor->saved = calloc(executor->graph->tensor_count + 1, sizeof *executor->saved);
    if (!executor->index_of || !executor->saved) return rf_fail(RF_E_NO_MEMORY, "no host memory for an executor");
    const struct rf_graph *graph = executor->graph;
    uint64_t bytes = (passes ? rf_graph_host_bytes(graph) : 0) + source->tensor_count * sizeof *executor->index_of +
                     graph->tensor_count * sizeof *executor->saved;
    RF_TRY(charge(executor, bytes));
    for (size_t v = 0; v < source->tensor_count; v++) executor->index_of[v] = passes ? RF_NO_INDEX : (uint32_t)v;
    for (uint32_t v = 0; passes && v < graph->tensor_count; v++)
        if (graph->tensors[v].origin) executor->index_of[graph->tensors[v].origin - 1] = v;
    return RF_OK;
}

/* ---- running ---- */

static rf_status no_assembly(const struct rf_executor *executor) {
    return rf_fail(RF_E_BUDGET,
                   "graph '%s' has no memory since its last replan failed: replan with more, or with the CPU",
                   executor->graph->name);
}

static rf_status within(const struct rf_executor *executor, rf_status status) {
    return status ? rf_fail_within(status, "graph '%s'", executor->graph->name) : RF_OK;
}

rf_status rf_executor_run(struct rf_executor *executor) {
    if (!executor) return rf_fail(RF_E_INVALID, "rf_executor_run: executor is NULL");
    if (!has_assembly(executor)) return no_assembly(executor);
    return within(executor, rf_assembly_run(executor, &executor->assembly));
}

bool rf_executor_can_queue(const struct rf_executor *executor) {
    const struct rf_assembly *assembly = &executor->assembly;
    return has_assembly(executor) && assembly->action_count == 1 && assembly->actions[0].kind == RF_ACTION_REPLAY &&
           rf_assembly_backend(assembly, assembly->actions[0].place)->table->wait_until;
}

rf_status rf_executor_submit(struct rf_executor *executor, uint64_t *ticket) {
    rf_assert(rf_executor_can_queue(executor));
    return within(executor, rf_assembly_submit(executor, &executor->assembly, ticket));
}

rf_status rf_executor_wait_for(struct rf_executor *executor, uint64_t ticket) {
    rf_assert(rf_executor_can_queue(executor));
    return within(executor, rf_assembly_wait_for(executor, &executor->assembly, ticket));
}

rf_status rf_executor_finish(struct rf_executor *executor) {
    if (!has_assembly(executor)) return RF_OK;
    return within(executor, rf_assembly_drain(executor, &executor->assembly));
}

rf_status rf_executor_time_nodes(struct rf_executor *executor) {
    if (!has_assembly(executor)) return no_assembly(executor);
    if (executor->assembly.segment_count)
        return rf_fail(RF_E_INVALID, "graph '%s' is replayed: its nodes cannot be timed", executor->graph->name);
    rf_status status = executor->assembly.mark ? RF_OK : rf_assembly_make_marks(executor, &executor->assembly);
    if (!status) executor->timed = true;
    return status;
}

int64_t rf_executor_longest_ns(const struct rf_executor *executor) {
    return executor->longest_ns;
}

/* ---- contents ---- */

static rf_status find_tensor(const struct rf_executor *executor, const char *who, rf_tensor_id id, uint32_t *index) {
    if (!executor) return rf_fail(RF_E_INVALID, "%s: executor is NULL", who);
    if (!id || id > executor->source->tensor_count)
        return rf_fail(RF_E_INVALID, "%s: graph '%s' has tensors 1 to %zu, not %u", who, executor->source->name,
                       executor->source->tensor_count, id);
    *index = executor->index_of[id - 1];
    if (*index == RF_NO_INDEX)
        return rf_fail(RF_E_INVALID, "%s: tensor '%s' was optimized away; name it with rf_graph_add_output", who,
                       executor->source->tensors[id - 1].name);
    return RF_OK;
}

static uint64_t span_of(const struct rf_tensor_row *tensor) {
    return tensor->bytes - tensor->desc.byte_offset;
}

static rf_status check_bytes(const char *who, const struct rf_tensor_row *tensor, const void *data, uint64_t bytes) {
    if (!data) return rf_fail(RF_E_INVALID, "%s: data for tensor '%s' is NULL", who, tensor->name);
    if (bytes == span_of(tensor)) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: tensor '%s' has %llu bytes, %llu are given", who, tensor->name,
                   (unsigned long long)span_of(tensor), (unsigned long long)bytes);
}

static bool is_kept_by_caller(const struct rf_tensor_row *tensor) {
    return tensor->role == RF_ROLE_INPUT || tensor->role == RF_ROLE_STATE;
}

/* Host memory for the contents of a tensor while there is no assembly. */
static rf_status make_saved(struct rf_executor *executor, size_t index) {
    const struct rf_tensor_row *tensor = &executor->graph->tensors[index];
    char what[320];
    if (executor->saved[index]) return RF_OK;
    snprintf(what, sizeof what, "tensor '%s'", tensor->name);
    return rf_host_alloc(rf_executor_host(executor), tensor->bytes, what, &executor->saved[index]);
}
static void forget_one(struct rf_executor *executor, size_t index) {
    rf_host_free(rf_executor_host(executor), executor->saved[index], executor->graph->tensors[index].bytes);
    executor->saved[index] = NULL;
}

rf_status rf_executor_write(struct rf_executor *executor, rf_tensor_id id, const void *data, uint64_t bytes) {
    uint32_t index = 0;
    rf_status status = find_tensor(executor, "rf_executor_write", id, &index);
    if (status) return status;
    const struct rf_tensor_row *tensor = &executor->graph->tensors[index];
    if (!is_kept_by_caller(tensor))
        return rf_fail(RF_E_INVALID, "rf_executor_write: tensor '%s' is neither an input nor a state", tensor->name);
    status = check_bytes("rf_executor_write", tensor, data, bytes);
    if (status) return status;
    if (!has_assembly(executor)) {
        status = make_saved(executor, index);
        if (status) return status;
        memcpy((char *)executor->saved[index] + tensor->desc.byte_offset, data, (size_t)bytes);
        return RF_OK;
    }
    struct rf_assembly *assembly = &executor->assembly;
    status = rf_assembly_drain(executor, assembly);
    for (int p = 0; p < assembly->plan->place_count && !status; p++) {
        const struct rf_plan_home *home = rf_plan_home(assembly->plan, index, p);
        struct rf_backend *backend = rf_assembly_backend(assembly, p);
        uint64_t offset;
        struct rf_arena arena = rf_assembly_locate(assembly, index, p, &offset);
        if (home->present)
            status = backend->table->upload(backend, &arena, offset + tensor->desc.byte_offset, data, bytes);
    }
    return status;
}

/* The place that has the newest contents of a root; -1: none has. If several places have them, one is preferred
 * that has no device or a working one. */
static int source_place(const struct rf_assembly *assembly, uint32_t root) {
    const struct rf_plan *plan = assembly->plan;
    int found = -1;
    if (plan->graph->tensors[root].role == RF_ROLE_RESULT)
        return plan->maker[root] == RF_NO_INDEX ? -1 : plan->node_place[plan->maker[root]];
    for (int p = 0; p < plan->place_count; p++) {
        struct rf_device *device = rf_assembly_backend(assembly, p)->device;
        if (!rf_plan_home(plan, root, p)->present) continue;
        if (found < 0 || (!device || !rf_device_status(device))) found = p;
    }
    return found;
}

rf_status rf_executor_read(struct rf_executor *executor, rf_tensor_id id, void *data, uint64_t bytes) {
    uint32_t index = 0;
    rf_status status = find_tensor(executor, "rf_executor_read", id, &index);
    if (status) return status;
    const struct rf_tensor_row *tensor = &executor->graph->tensors[index];
    const struct rf_tensor_row *root = &executor->graph->tensors[tensor->root];
    status = check_bytes("rf_executor_read", tensor, data, bytes);
    if (status) return status;
    if (root->role == RF_ROLE_CONSTANT) {
        memcpy(data, (const char *)root->data + tensor->desc.byte_offset, (size_t)bytes);
        return RF_OK;
    }
    if (root->role == RF_ROLE_RESULT && !tensor->output)
        return rf_fail(RF_E_INVALID, "rf_executor_read: tensor '%s' is no output; name it with rf_graph_add_output",
                       tensor->name);
    if (!has_assembly(executor)) {
        if (root->role == RF_ROLE_RESULT) return no_assembly(executor);
        const char *saved = executor->saved[tensor->root];
        if (saved)
            memcpy(data, saved + tensor->desc.byte_offset, (size_t)bytes);
        else
            memset(data, 0, (size_t)bytes);
        return RF_OK;
    }
    struct rf_assembly *assembly = &executor->assembly;
    status = rf_assembly_drain(executor, assembly);
    int place = source_place(assembly, tensor->root);
    if (!status && place < 0)
        status = rf_fail(RF_E_INVALID, "rf_executor_read: tensor '%s' is nowhere", tensor->name);
    if (status) return status;
    struct rf_backend *backend = rf_assembly_backend(assembly, place);
    uint64_t offset;
    struct rf_arena arena = rf_assembly_locate(assembly, tensor->root, place, &offset);
    return backend->table->download(backend, &arena, offset + tensor->desc.byte_offset, data, bytes);
}

rf_status rf_executor_locate(const struct rf_executor *executor, rf_tensor_id id, struct rf_device **device,
                             struct rf_binding *binding) {
    uint32_t index = 0;
    rf_status status = find_tensor(executor, "rf_executor_locate", id, &index);
    if (status) return status;
    if (!has_assembly(executor)) return no_assembly(executor);
    const struct rf_tensor_row *tensor = &executor->graph->tensors[index];
    int place = source_place(&executor->assembly, tensor->root);
    if (place < 0) return rf_fail(RF_E_INVALID, "rf_executor_locate: tensor '%s' is nowhere", tensor->name);
    uint64_t offset;
    struct rf_arena arena = rf_assembly_locate(&executor->assembly, tensor->root, place, &offset);
    *device = rf_assembly_backend(&executor->assembly, place)->device;
    *binding = (struct rf_binding){
        .host = arena.host, .buffer = arena.buffer, .offset_bytes = offset + tensor->desc.byte_offset};
    return RF_OK;
}

/* ---- planning again ---- */

/* Copies inputs and states to the host. Contents that were only on a lost device are gone and become zeros again. */
static rf_status save_contents(struct rf_executor *executor) {
    struct rf_assembly *assembly = &executor->assembly;
    const struct rf_graph *graph = executor->graph;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_tensor_row *tensor = &graph->tensors[v];
        int place = is_kept_by_caller(tensor) ? source_place(assembly, v) : -1;
        if (place < 0 || rf_plan_home(assembly->plan, v, place)->bound) continue;
        struct rf_backend *backend = rf_assembly_backend(assembly, place);
        struct rf_device *device = backend->device;
        if (device && rf_device_status(device)) continue;
        rf_status status = make_saved(executor, v);
        if (status) return status;
        status = backend->table->download(backend, &assembly->arenas[place],
                                          rf_plan_home(assembly->plan, v, place)->offset, executor->saved[v],
                                          tensor->bytes);
        if (!status) continue;
        forget_one(executor, v);
        if (status != RF_E_DEVICE_LOST) return status;
    }
    return RF_OK;
}

static void forget_saved(struct rf_executor *executor) {
    for (size_t v = 0; v < executor->graph->tensor_count; v++) forget_one(executor, v);
}

static rf_status restore_contents(struct rf_executor *executor, struct rf_assembly *assembly) {
    rf_status status = RF_OK;
    for (uint32_t v = 0; v < executor->graph->tensor_count && !status; v++)
        for (int p = 0; p < assembly->plan->place_count && executor->saved[v] && !status; p++) {
            struct rf_backend *backend = rf_assembly_backend(assembly, p);
            const struct rf_plan_home *home = rf_plan_home(assembly->plan, v, p);
            if (home->present && !home->bound)
                status = backend->table->upload(backend, &assembly->arenas[p], home->offset, executor->saved[v],
                                                executor->graph->tensors[v].bytes);
        }
    return status;
}

rf_status rf_executor_replan(struct rf_executor *executor, struct rf_device *const *devices, size_t device_count,
                             const uint64_t *device_bytes) {
    if (!executor) return rf_fail(RF_E_INVALID, "rf_executor_replan: executor is NULL");
    if (executor->dummy) return rf_fail(RF_E_INVALID, "rf_executor_replan: a dummy has no other place to go");
    if (!device_count && executor->no_cpu)
        return rf_fail(RF_E_INVALID, "rf_executor_replan: neither a device nor the CPU to run on");
    struct rf_executor asked = *executor; /* a copy, to check the devices before anything changes */
    rf_status status = set_devices(&asked, devices, device_count, device_bytes);
    if (!status && has_assembly(executor)) {
        status = rf_assembly_drain(executor, &executor->assembly);
        if (!status || status == RF_E_DEVICE_LOST) status = save_contents(executor);
    }
    if (status) {
        if (has_assembly(executor)) forget_saved(executor);
        return status;
    }
    if (has_assembly(executor)) {
        /* Destroying what is on a lost device fails, and the loss was reported before: the status is ignored. */
        rf_assembly_destroy(executor, &executor->assembly);
        executor->unfinished = false;
        for (size_t i = 0; i < executor->device_count; i++) rf_device_trim(executor->devices[i], RF_TIMEOUT_DEFAULT);
    }
    status = set_devices(executor, devices, device_count, device_bytes);
    struct rf_assembly made = {0};
    if (!status) status = rf_assembly_create(executor, &made);
    if (!status) {
        status = restore_contents(executor, &made);
        if (status) {
            struct rf_saved_error saved;
            rf_error_save(&saved);
            rf_assembly_destroy(executor, &made);
            rf_error_restore(&saved);
        }
    }
    if (!status) {
        executor->assembly = made;
        executor->epoch++;
        forget_saved(executor);
    }
    rf_assert_valid(executor_is_valid, executor);
    return status;
}

/* ---- plan information ---- */

rf_status rf_executor_plan_info(const struct rf_executor *executor, struct rf_plan_info *info) {
    if (!executor) return rf_fail(RF_E_INVALID, "rf_executor_plan_info: executor is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_plan_info, info, "rf_executor_plan_info");
    if (status) return status;
    if (!has_assembly(executor)) return no_assembly(executor);
    const struct rf_plan *plan = executor->assembly.plan;
    struct rf_plan_info filled = {.epoch = executor->epoch,
                                  .transfers = plan->copy_count,
                                  .expected_ns = plan->expected_ns,
                                  .degraded = plan->degraded};
    for (int p = 0; p < plan->place_count; p++) {
        const struct rf_plan_place *place = &plan->places[p];
        filled.place_count += place->node_count > 0;
        filled.peak_bytes += place->result_bytes;
        filled.live_bytes += place->live_bytes;
        if (place->cpu && executor->device_count) filled.nodes_on_cpu = place->node_count;
        if (place->cpu) filled.bytes_on_cpu = executor->assembly.arenas[p].bytes;
    }
    for (size_t c = 0; c < plan->copy_count; c++)
        filled.transfer_bytes += plan->graph->tensors[plan->copies[c].tensor].bytes;
    RF_RESULT_WRITE(struct rf_plan_info, info, &filled);
    return RF_OK;
}

rf_status rf_executor_dump_plan(const struct rf_executor *executor, enum rf_plan_format format,
                                bool (*write)(void *user, const char *text, size_t length), void *user) {
    if (!executor || !write) return rf_fail(RF_E_INVALID, "rf_executor_dump_plan: executor or write is NULL");
    if (format != RF_PLAN_TEXT && format != RF_PLAN_JSON && format != RF_PLAN_CHART)
        return rf_fail(RF_E_INVALID, "rf_executor_dump_plan: %d is no format", (int)format);
    if (!has_assembly(executor)) return no_assembly(executor);
    struct rf_writer writer = {.write = write, .user = user};
    rf_plan_dump(executor->assembly.plan, format, &writer);
    return RF_OK;
}
