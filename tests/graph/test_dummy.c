/* The dummy: its counters, its limits and its failures; used alone, as a backend, and under an executor. */
#include "graph_testing.h"

#include <string.h>

#include "graph/backend.h"

/* ---- alone ---- */

RF_TEST(dummy, begins_with_nothing) {
    struct rf_dummy *dummy = NULL;
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 0);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).execute_op_count, 0);
    RF_ASSERT_UINT(rf_dummy_allocated_total(dummy), 0);
    RF_ASSERT(!rf_dummy_has_buffer(dummy, 1) && !rf_dummy_has_buffer(dummy, 0));
    rf_dummy_destroy(&dummy);
    RF_ASSERT_NULL(dummy);
    rf_dummy_destroy(&dummy);
    rf_dummy_destroy(NULL);
    rf_dummy_reset(NULL);
    RF_ASSERT_UINT(rf_dummy_allocated_total(NULL), 0);
}

RF_TEST(dummy, refuses_configurations) {
    struct rf_dummy *dummy = NULL;
    RF_ASSERT_STATUS(rf_dummy_create_with_config(64, 3, &dummy), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "power of two");
    RF_ASSERT_STATUS(rf_dummy_create_with_config(64, 0, &dummy), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_dummy_create_with_config(0, 8, &dummy), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_dummy_create_with_config(64, 8, NULL), RF_E_INVALID);
    RF_ASSERT_NULL(dummy);
}

/* ---- as a backend ---- */

RF_TEST(dummy, addresses_are_numbers_from_16) {
    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    struct rf_arena a = {0}, b = {0}, empty = {0};
    char data[8] = "unread.", zeros[8] = {0};
    RF_ASSERT_OK(rf_dummy_create_with_config(1000, 16, &dummy));
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    RF_ASSERT_TEXT(backend->table->kind, "dummy");
    RF_ASSERT_UINT(backend->table->alignment(backend), 16);
    RF_ASSERT_OK(backend->table->arena_create(backend, 100, "a", &a));
    RF_ASSERT_OK(backend->table->arena_create(backend, 0, "empty", &empty));
    RF_ASSERT_OK(backend->table->arena_create(backend, 100, "b", &b));
    RF_ASSERT_UINT((uintptr_t)a.host, 16);
    RF_ASSERT((uintptr_t)b.host % 16 == 0 && (uintptr_t)b.host >= 116 && empty.host != b.host);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 0); /* arenas are not counted */
    RF_ASSERT_OK(backend->table->upload(backend, &a, 92, data, 8));
    RF_ASSERT_STATUS(backend->table->upload(backend, &a, 93, data, 8), RF_E_INVALID);
    RF_ASSERT_STATUS(backend->table->upload(backend, &a, UINT64_MAX, data, 8), RF_E_INVALID);
    RF_ASSERT_OK(backend->table->download(backend, &a, 0, data, 8));
    RF_ASSERT_BYTES(data, zeros, 8);
    RF_ASSERT_OK(backend->table->wait(backend, 0));
    RF_ASSERT_OK(backend->table->arena_destroy(backend, &a));
    RF_ASSERT_STATUS(backend->table->download(backend, &a, 0, data, 8), RF_E_INVALID);
    RF_ASSERT_STATUS(backend->table->arena_create(backend, UINT64_MAX, "all", &a), RF_E_DEVICE_MEMORY);
    backend->table->destroy(backend);
    rf_dummy_destroy(&dummy);
}

RF_TEST(dummy, counts_tensors) {
    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    RF_ASSERT_OK(backend->table->assigned(backend, 3, 64)); /* the largest size of a buffer */
    RF_ASSERT_OK(backend->table->assigned(backend, 900, 9));
    RF_ASSERT_STATUS(backend->table->assigned(backend, 4, 65), RF_E_DEVICE_MEMORY);
    RF_ASSERT_CONTAINS(rf_error_text(), "at most 64");
    RF_ASSERT_STATUS(backend->table->assigned(backend, 0, 8), RF_E_INVALID);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 2);
    RF_ASSERT_UINT(rf_dummy_allocated_total(dummy), 64 + 16); /* rounded to 8 */
    RF_ASSERT(rf_dummy_has_buffer(dummy, 3) && rf_dummy_has_buffer(dummy, 900));
    RF_ASSERT(!rf_dummy_has_buffer(dummy, 4) && !rf_dummy_has_buffer(dummy, 899) && !rf_dummy_has_buffer(dummy, 901));
    backend->table->destroy(backend);
    RF_ASSERT(rf_dummy_has_buffer(dummy, 3)); /* the last graph's buffers remain */
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    RF_ASSERT(!rf_dummy_has_buffer(dummy, 3)); /* a new graph begins */
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 2);
    backend->table->destroy(backend);
    rf_dummy_reset(dummy);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 0);
    RF_ASSERT_UINT(rf_dummy_allocated_total(dummy), 0);
    rf_dummy_destroy(&dummy);
}

RF_TEST(dummy, fails_at_the_nth) {
    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    rf_dummy_fail_at(dummy, 2);
    RF_ASSERT_OK(backend->table->assigned(backend, 1, 8));
    RF_ASSERT_STATUS(backend->table->assigned(backend, 2, 8), RF_E_DEVICE_MEMORY);
    RF_ASSERT_OK(backend->table->assigned(backend, 2, 8)); /* it fails once only */
    rf_dummy_fail_at(dummy, 1);
    rf_dummy_fail_at(dummy, 0);
    RF_ASSERT_OK(backend->table->assigned(backend, 3, 8));
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 3);
    backend->table->destroy(backend);
    rf_dummy_destroy(&dummy);
}

RF_TEST(dummy, executes_nothing_but_counts) {
    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    struct rf_op_call call = {.op = rf_op_find("scale"), .count = 2};
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    for (int i = 0; i < 2; i++) {
        call.tensors[i].desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {4}};
        call.tensors[i].host = (void *)(uintptr_t)(16 + 16 * i);
    }
    RF_ASSERT_OK(rf_op_check(&call));
    RF_ASSERT_OK(backend->table->supports(backend, &call));
    RF_ASSERT_OK(backend->table->execute(backend, &call));
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).execute_op_count, 1);
    call.tensors[1].host = NULL;
    RF_ASSERT_STATUS(backend->table->execute(backend, &call), RF_E_INVALID);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).execute_op_count, 1);
    backend->table->destroy(backend);
    rf_dummy_destroy(&dummy);
}

/* ---- under an executor ---- */

/* The example of docs/graph.md, word for word. */
RF_TEST(dummy, example) {
    struct rf_dummy *dummy;
    struct rf_graph *graph;
    RF_ASSERT_OK(rf_dummy_create(&dummy)); /* no GPU required */
    RF_ASSERT_OK(rf_graph_create("example", &graph));

    RF_PARAMS(struct rf_graph_tensor, tensor);
    tensor.role = RF_ROLE_INPUT;
    tensor.layout = RF_LAYOUT_ROW_MAJOR;
    tensor.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {4}, .strides = {1}};
    rf_tensor_id input, output;
    RF_ASSERT_OK(rf_graph_add_tensor(graph, &tensor, &input));
    tensor.role = RF_ROLE_RESULT;
    RF_ASSERT_OK(rf_graph_add_tensor(graph, &tensor, &output));

    RF_PARAMS(struct rf_graph_node, node);
    node.op = "add";
    node.inputs = (const rf_tensor_id[]){input, input};
    node.input_count = 2;
    node.outputs = &output;
    node.output_count = 1;
    RF_ASSERT_OK(rf_graph_add_node(graph, &node, NULL));
    RF_ASSERT_OK(rf_graph_finish(graph));

    RF_PARAMS(struct rf_executor_params, params);
    params.graph = graph;
    params.dummy = dummy;
    params.passes = RF_PASSES_ALL;
    struct rf_executor *executor;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 2);
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).execute_op_count, 1);
    RF_ASSERT_UINT(rf_dummy_allocated_total(dummy), 32);
    RF_ASSERT(rf_dummy_has_buffer(dummy, input) && rf_dummy_has_buffer(dummy, output));

    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    rf_dummy_destroy(&dummy);
}

/* With tensors that do not fit, and with a failure at each allocation, nothing is held and the next try succeeds. */
RF_TEST(dummy, executor_fails_cleanly) {
    struct rf_graph *graph = graph_new("chain");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 16), y = GRAPH_VALUE(graph, 16);
    GRAPH_NODE(graph, NULL, "scale", F0(2), x, y);
    GRAPH_NODE(graph, NULL, "add", NONE, x, y, GRAPH_VALUE(graph, 16));
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_PARAMS(struct rf_executor_params, params);
    struct rf_executor *executor = NULL;
    params.graph = graph;
    RF_ASSERT_OK(rf_dummy_create_with_config(63, 8, &params.dummy));
    RF_ASSERT_STATUS(rf_executor_create(&params, &executor), RF_E_DEVICE_MEMORY);
    RF_ASSERT_NULL(executor);
    rf_dummy_destroy(&params.dummy);
    RF_ASSERT_OK(rf_dummy_create(&params.dummy));
    for (size_t n = 1; n <= 3; n++) {
        rf_dummy_reset(params.dummy);
        rf_dummy_fail_at(params.dummy, n);
        RF_ASSERT_STATUS(rf_executor_create(&params, &executor), RF_E_DEVICE_MEMORY);
        RF_ASSERT_NULL(executor);
        RF_ASSERT_UINT(rf_dummy_get_stats(params.dummy).alloc_count, n - 1);
    }
    rf_dummy_reset(params.dummy);
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    for (int run = 0; run < 3; run++) RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_UINT(rf_dummy_get_stats(params.dummy).alloc_count, 3);
    RF_ASSERT_UINT(rf_dummy_get_stats(params.dummy).execute_op_count, 6);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_dummy_destroy(&params.dummy);
    rf_graph_destroy(&graph);
}

/* An executor that is told to stop before the nth node has run the nodes before it and no others; after that it runs
 * normally. */
struct stop_after {
    uint64_t asked, most;
};
static bool asked_enough(void *user) {
    struct stop_after *stop = user;
    return stop->asked++ >= stop->most;
}
RF_TEST(dummy, executor_stops_when_told) {
    struct rf_graph *graph = graph_new("chain");
    struct stop_after stop = {.most = UINT64_MAX};
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 16);
    for (int i = 0; i < 5; i++) {
        rf_tensor_id y = GRAPH_VALUE(graph, 16);
        GRAPH_NODE(graph, NULL, "scale", F0(2), x, y);
        x = y;
    }
    RF_ASSERT_OK(rf_graph_finish(graph));
    RF_PARAMS(struct rf_executor_params, params);
    struct rf_executor *executor = NULL;
    params.graph = graph;
    params.stop = asked_enough;
    params.stop_user = &stop;
    RF_ASSERT_OK(rf_dummy_create(&params.dummy));
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_UINT(stop.asked, 0);
    uint64_t done = 0;
    for (uint64_t most = 0; most <= 5; most++) {
        stop = (struct stop_after){.most = most};
        RF_ASSERT_STATUS(rf_executor_run(executor), most < 5 ? RF_E_CANCELLED : RF_OK);
        if (most < 5) RF_ASSERT_CONTAINS(rf_error_text(), "graph 'chain': stopped");
        done += most;
        RF_ASSERT_UINT(rf_dummy_get_stats(params.dummy).execute_op_count, done);
    }
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_dummy_destroy(&params.dummy);
    rf_graph_destroy(&graph);
}
