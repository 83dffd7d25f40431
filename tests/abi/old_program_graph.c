/* Graphs with attributes by position, plans, executors on the CPU, a GPU and the dummy, and the op table, as a
 * program of 0.1.0 uses them. */
#include "old_program.h"

enum { ROWS = 2, COLUMNS = 4, COUNT = ROWS * COLUMNS };

static rf_tensor_id add_tensor(struct rf_graph *graph, const char *name, enum rf_tensor_role role, const void *data) {
    RF_PARAMS(struct rf_graph_tensor, tensor);
    rf_tensor_id id = 0;
    tensor.name = name;
    tensor.role = role;
    tensor.layout = RF_LAYOUT_ROW_MAJOR;
    tensor.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 4, .shape = {1, 1, ROWS, COLUMNS}};
    tensor.data = data;
    tensor.group = 3;
    OK(rf_graph_add_tensor(graph, &tensor, &id));
    CHECK(id);
    return id;
}

static void add_node(struct rf_graph *graph, const char *op, double f, int64_t i, const rf_tensor_id *inputs,
                     size_t input_count, rf_tensor_id output) {
    RF_PARAMS(struct rf_graph_node, node);
    rf_node_id id = 0;
    node.op = op;
    node.f[0] = f;
    node.i[0] = i;
    node.inputs = inputs;
    node.input_count = input_count;
    node.outputs = &output;
    node.output_count = output ? 1 : 0;
    node.group = 3;
    OK(rf_graph_add_node(graph, &node, &id));
    CHECK(id);
}

/* y = (x + c) * 0.5, hidden where a column is more than one past its row; z = x + 3. */
static const float constant[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
static struct rf_graph *build(rf_tensor_id *x, rf_tensor_id *y, rf_tensor_id *z) {
    struct rf_graph *graph = NULL;
    OK(rf_graph_create("old", &graph));
    *x = add_tensor(graph, "x", RF_ROLE_INPUT, NULL);
    rf_tensor_id c = add_tensor(graph, "c", RF_ROLE_CONSTANT, constant);
    rf_tensor_id sum = add_tensor(graph, "sum", RF_ROLE_VALUE, NULL);
    rf_tensor_id threes = add_tensor(graph, "threes", RF_ROLE_VALUE, NULL);
    *y = add_tensor(graph, "y", RF_ROLE_VALUE, NULL);
    *z = add_tensor(graph, "z", RF_ROLE_VALUE, NULL);
    add_node(graph, "add", 0, 0, (rf_tensor_id[]){*x, c}, 2, sum);
    add_node(graph, "scale", 0.5, 0, &sum, 1, *y);
    add_node(graph, "causal_mask", 0, 1, y, 1, 0);
    add_node(graph, "fill", 3, 0, NULL, 0, threes);
    add_node(graph, "add", 0, 0, (rf_tensor_id[]){*x, threes}, 2, *z);
    OK(rf_graph_add_output(graph, *y));
    OK(rf_graph_finish(graph));
    return graph;
}

static void run(const struct rf_executor_params *params, rf_tensor_id x, rf_tensor_id y, rf_tensor_id z) {
    struct rf_executor *executor = NULL;
    float in[COUNT], out[COUNT];
    SIZED(struct rf_plan_info, info);
    OK(rf_executor_create(params, &executor));
    for (int i = 0; i < COUNT; i++) in[i] = (float)i;
    OK(rf_executor_write(executor, x, in, sizeof in));
    OK(rf_executor_run(executor));
    OK(rf_executor_read(executor, y, out, sizeof out));
    for (int i = 0; i < COUNT; i++) {
        bool hidden = i % COLUMNS > i / COLUMNS + 1;
        CHECK(hidden ? isinf(out[i]) && out[i] < 0 : out[i] == (in[i] + constant[i]) * 0.5f);
    }
    OK(rf_executor_read(executor, z, out, sizeof out));
    for (int i = 0; i < COUNT; i++) CHECK(out[i] == in[i] + 3);
    OK(rf_executor_plan_info(executor, &info.it));
    FILLED(info);
    CHECK(info.it.epoch == 1 && info.it.place_count == 1 && info.it.peak_bytes && !info.it.degraded);
    CHECK(info.it.bytes_on_cpu ? !params->device_count : params->device_count == 1);
    OK(rf_executor_destroy(&executor));
}

static bool never(void *user) {
    return user == NULL;
}
static int first_device(void *user, const char *node) {
    return user && *node ? 0 : -1;
}

static bool count_result(void *user, const struct rf_check_result *result) {
    CHECK(!strcmp(result->op, "add") && *result->label && result->status == RF_OK && result->passed);
    CHECK(result->error <= 1 && result->same_bits);
    ++*(size_t *)user;
    return true;
}

static void check_ops(struct rf_device *device) {
    SIZED(struct rf_op_info, info);
    RF_PARAMS(struct rf_check_params, params);
    GUARDED(struct rf_check_counts, counts);
    size_t visited = 0;
    CHECK(rf_op_count());
    for (size_t i = 0; i < rf_op_count(); i++) {
        OK(rf_op_info_at(i, &info.it));
        FILLED(info);
        CHECK(*info.it.name && *info.it.summary && info.it.case_count);
        if (!strcmp(info.it.name, "add")) break;
    }
    CHECK(!strcmp(info.it.name, "add") && info.it.on_gpu && info.it.on_cpu);
    params.op = "add";
    params.device = device;
    params.threads = 2;
    params.seed = 5;
    params.visit = count_result;
    params.user = &visited;
    OK(rf_check_run(&params, &counts.it));
    UNTOUCHED(counts);
    CHECK(counts.it.passed && counts.it.passed == visited && !counts.it.failed);
}

void use_graphs(void) {
    rf_tensor_id x, y, z;
    struct rf_graph *graph = build(&x, &y, &z), *optimized = NULL;
    CHECK(rf_graph_node_count(graph) == 5 && rf_graph_find(graph, "y") == y);
    struct rf_pass_report report[7];
    size_t reports = 0;
    memset(report, GUARD, sizeof report);
    OK(rf_graph_optimize(graph, RF_PASSES_ALL, &optimized, report, &reports));
    CHECK(reports && reports <= 6 && report[0].pass == RF_PASS_DEAD && report[0].nodes_before == 5);
    for (size_t i = 0; i < sizeof report[6]; i++) CHECK(((unsigned char *)&report[6])[i] == GUARD);

    RF_PARAMS(struct rf_executor_params, params);
    params.graph = graph;
    params.cpu_threads = 2;
    params.cpu_simd = "scalar";
    params.timeout_ns = RF_MS(600000);
    params.stop = never;
    params.stop_user = &params;
    run(&params, x, y, z);
    params.passes = RF_PASSES_ALL;
    run(&params, x, y, z);

    struct rf_device *device = open_device();
    params.devices = &device;
    params.device_count = 1;
    params.device_bytes = (const uint64_t[]){64 << 20};
    params.no_cpu = true;
    params.replay = true;
    params.place = first_device;
    params.user = &params;
    run(&params, x, y, z);
    check_ops(device);
    OK(rf_device_close(&device));
    check_ops(NULL);

    struct rf_dummy *dummy = NULL;
    struct rf_executor *executor = NULL;
    OK(rf_dummy_create(&dummy));
    params = (struct rf_executor_params){.struct_size = sizeof params, .graph = graph, .dummy = dummy};
    OK(rf_executor_create(&params, &executor));
    OK(rf_executor_run(executor));
    struct rf_dummy_stats stats = rf_dummy_get_stats(dummy);
    CHECK(stats.execute_op_count == 5 && stats.alloc_count);
    OK(rf_executor_destroy(&executor));
    rf_dummy_destroy(&dummy);
    rf_graph_destroy(&optimized);
    rf_graph_destroy(&graph);
}
