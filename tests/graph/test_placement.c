/* Placement within budgets: whatever is granted, the graph runs, the results agree, and every byte is accounted for.
 * Plans that change between runs lose nothing. */
#include "exec_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/executor_impl.h"

static struct rf_plan_info info_of(const struct rf_executor *executor) {
    RF_PARAMS(struct rf_plan_info, info);
    RF_ASSERT_OK(rf_executor_plan_info(executor, &info));
    return info;
}

static bool append(void *user, const char *text, size_t length) {
    char **all = user;
    size_t used = *all ? strlen(*all) : 0;
    *all = realloc(*all, used + length + 1);
    memcpy(*all + used, text, length);
    (*all)[used + length] = 0;
    return true;
}
static char *dump_of(const struct rf_executor *executor, enum rf_plan_format format) {
    char *text = NULL;
    RF_ASSERT_OK(rf_executor_dump_plan(executor, format, append, &text));
    return text;
}

static void set_budget(struct rf_device *device, uint64_t bytes) {
    char spec[32];
    snprintf(spec, sizeof spec, "%llu", (unsigned long long)bytes);
    RF_ASSERT_OK(rf_device_set_budget(device, spec));
}

/* ---- a budget from nothing to everything ---- */

static void sweep(bool loose, uint64_t least_levels) {
    enum { STEPS = 100 };
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_MEDIUM_BLOCK;
    block.loose = loose;
    block.tokens = 1;
    struct rf_graph *graph = exec_block_graph(&block);
    struct exec_results want = exec_reference(graph, 5, 1);
    struct rf_executor_params params = exec_params(graph, &gpus);
    uint64_t before = exec_memory(gpus.devices[0]).held_bytes, need = 0, last_on_cpu = UINT64_MAX;
    struct rf_executor *whole = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &whole));
    RF_EXPECT_INT(info_of(whole).nodes_on_cpu, 0);
    need = exec_memory(gpus.devices[0]).held_bytes - before;
    RF_ASSERT_OK(rf_executor_destroy(&whole));
    exec_close(&gpus);

    /* The peak covers the device's whole life, so this uses a new device and budgets that only grow. */
    exec_open(&gpus, 1, "", NULL, NULL);
    params = exec_params(graph, &gpus);
    before = exec_memory(gpus.devices[0]).held_bytes;
    uint64_t levels = 0;
    for (uint64_t step = 0; step <= STEPS; step++) {
        uint64_t budget = before + need * step / STEPS;
        struct rf_executor *executor = NULL;
        struct exec_results got[2] = {{0}, {0}};
        set_budget(gpus.devices[0], budget);
        RF_ASSERT_OK(rf_executor_create(&params, &executor));
        struct rf_plan_info info = info_of(executor);
        for (int round = 0; round < 2; round++) {
            RF_ASSERT_OK(exec_write(executor, graph, 5));
            RF_ASSERT_OK(rf_executor_run(executor));
            RF_ASSERT_OK(exec_read(executor, graph, &got[round]));
        }
        const char *difference = exec_difference(&want, &got[0], 1e-4);
        if (difference) RF_FAIL("step %llu: %s", (unsigned long long)step, difference);
        difference = exec_difference(&got[0], &got[1], 0);
        if (difference) RF_FAIL("step %llu, the same placement: %s", (unsigned long long)step, difference);
        RF_EXPECT(exec_memory(gpus.devices[0]).peak_bytes <= budget);
        if (step == 0) RF_EXPECT_INT(info.nodes_on_cpu, rf_graph_node_count(graph));
        if (step == STEPS) RF_EXPECT_INT(info.nodes_on_cpu, 0);
        RF_EXPECT(info.degraded == (info.nodes_on_cpu > 0));
        levels += info.nodes_on_cpu != last_on_cpu;
        last_on_cpu = info.nodes_on_cpu;
        exec_results_free(&got[0]);
        exec_results_free(&got[1]);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        RF_ASSERT_OK(rf_device_trim(gpus.devices[0], RF_TIMEOUT_DEFAULT));
        RF_EXPECT_INT(exec_memory(gpus.devices[0]).held_bytes, before);
    }
    RF_EXPECT(levels >= least_levels);
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* By layers: none, one, both. Node by node there are more levels between these. */
RF_TEST(placement, budget_sweep_by_layers, .gpu = true, .timeout_ms = 1500000, .tags = "heavy") {
    sweep(false, 3);
}
RF_TEST(placement, budget_sweep_by_nodes, .gpu = true, .timeout_ms = 1500000, .tags = "slow") {
    sweep(true, 5);
}

RF_TEST(placement, a_limit_per_device_is_kept, .gpu = true, .timeout_ms = 1500000) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct exec_results want = exec_reference(graph, seed, 1);
        for (uint64_t limit = 1; limit < 9 * MIB; limit += 2 * MIB) {
            struct rf_executor_params params = exec_params(graph, &gpus);
            struct rf_executor *executor = NULL;
            struct exec_results got = {0};
            uint64_t before = exec_memory(gpus.devices[0]).held_bytes;
            params.device_bytes = &limit;
            RF_ASSERT_OK(rf_executor_create(&params, &executor));
            RF_EXPECT(exec_memory(gpus.devices[0]).held_bytes - before <= limit);
            RF_ASSERT_OK(exec_write(executor, graph, seed));
            RF_ASSERT_OK(rf_executor_run(executor));
            RF_ASSERT_OK(exec_read(executor, graph, &got));
            const char *difference = exec_difference(&want, &got, 2e-3);
            if (difference)
                RF_FAIL("seed %llu, %llu bytes: %s", (unsigned long long)seed, (unsigned long long)limit, difference);
            exec_results_free(&got);
            RF_ASSERT_OK(rf_executor_destroy(&executor));
            RF_ASSERT_OK(rf_device_trim(gpus.devices[0], RF_TIMEOUT_DEFAULT));
        }
        exec_results_free(&want);
        rf_graph_destroy(&graph);
    }
    exec_close(&gpus);
}

RF_TEST(placement, without_the_cpu_it_refuses, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_SMALL_BLOCK;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    uint64_t limit = 65536;
    params.device_bytes = &limit;
    params.no_cpu = true;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_BUDGET);
    RF_EXPECT(executor == NULL && strstr(rf_error_text(), "needs"));
    RF_EXPECT_INT(exec_memory(gpus.devices[0]).live_count, 0);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* ---- several devices ---- */

static int by_layer(void *user, const char *node) {
    /* Nodes come in order of layers: an equal part of them to each device. */
    const struct {
        const struct rf_graph *graph;
        int devices;
    } *all = user;
    for (size_t s = 0; s < all->graph->node_count; s++)
        if (!strcmp(all->graph->nodes[s].name, node)) return (all->graph->nodes[s].group - 1) * all->devices / 4;
    return -1;
}

static void several(size_t count) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, count, "", NULL, NULL);
    struct exec_block block = EXEC_MEDIUM_BLOCK;
    block.layers = 4;
    block.chunks = 4;
    block.tokens = 1;
    struct rf_graph *graph = exec_block_graph(&block);
    struct exec_results want = exec_reference(graph, 5, 1), got = {0};
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct {
        const struct rf_graph *graph;
        int devices;
    } all = {graph, (int)count};
    /* Split by the caller, as a pipeline. */
    params.place = by_layer;
    params.user = &all;
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_EXPECT_INT(info_of(executor).place_count, count);
    RF_EXPECT_INT(info_of(executor).transfers, 4 * (count - 1));
    for (size_t i = 0; i < count; i++) RF_EXPECT(exec_memory(gpus.devices[i]).used_bytes > 0);
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_OK(exec_read(executor, graph, &got));
    const char *difference = exec_difference(&want, &got, 1e-4);
    if (difference) RF_FAIL("split over %zu: %s", count, difference);
    exec_results_free(&got);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    /* Split by budgets: each device takes a part, the CPU takes the rest. */
    uint64_t limits[4];
    for (size_t i = 0; i < count; i++) limits[i] = 10 * MIB;
    params.place = NULL;
    params.device_bytes = limits;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_EXPECT(info_of(executor).place_count > 1);
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_OK(exec_read(executor, graph, &got));
    difference = exec_difference(&want, &got, 1e-4);
    if (difference) RF_FAIL("by budgets over %zu: %s", count, difference);
    exec_results_free(&got);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

RF_TEST(placement, two_devices_agree, .timeout_ms = 600000) {
    several(2);
}
RF_TEST(placement, four_devices_agree, .timeout_ms = 600000) {
    several(4);
}

/* ---- plans that change ---- */

RF_TEST(placement, replanning_loses_nothing, .timeout_ms = 1500000) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 2, "", NULL, NULL);
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct exec_results want = exec_reference(graph, seed, 5), got = {0};
        struct rf_executor_params params = exec_params(graph, &gpus);
        struct rf_executor *executor = NULL;
        uint64_t state = seed + 99;
        if (seed % 2) params.passes = RF_PASSES_ALL;
        params.replay = seed % 3 == 0;
        RF_ASSERT_OK(rf_executor_create(&params, &executor));
        RF_ASSERT_OK(exec_write(executor, graph, seed));
        for (int run = 0; run < 5; run++) {
            uint64_t limits[2] = {1 + rf_op_random(&state) % (4 * MIB), 1 + rf_op_random(&state) % (4 * MIB)};
            RF_ASSERT_OK(rf_executor_run(executor));
            RF_ASSERT_OK(rf_executor_replan(executor, gpus.devices, rf_op_random(&state) % 3, limits));
            RF_EXPECT_INT(info_of(executor).epoch, run + 2);
        }
        /* Outputs belong to the last run, and the last replan dropped them: only tensors that are kept are
         * compared. */
        RF_ASSERT_OK(exec_read(executor, graph, &got));
        for (size_t v = 0; v < graph->tensor_count; v++)
            if (graph->tensors[graph->tensors[v].root].role == RF_ROLE_RESULT && got.data[v])
                memcpy(got.data[v], want.data[v], graph->tensors[v].bytes - graph->tensors[v].desc.byte_offset);
        const char *difference = exec_difference(&want, &got, 2e-3);
        if (difference) RF_FAIL("seed %llu: %s", (unsigned long long)seed, difference);
        exec_results_free(&got);
        exec_results_free(&want);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        rf_graph_destroy(&graph);
    }
    exec_close(&gpus);
}

RF_TEST(placement, a_replan_that_fails_keeps_the_contents, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_SMALL_BLOCK;
    struct rf_graph *graph = exec_block_graph(&block);
    struct exec_results want = exec_reference(graph, 7, 2), got = {0};
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    uint64_t limit = 8192;
    params.no_cpu = true;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 7));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_EXPECT_STATUS(rf_executor_replan(executor, gpus.devices, 1, &limit), RF_E_BUDGET);
    RF_EXPECT_STATUS(rf_executor_run(executor), RF_E_BUDGET);
    RF_EXPECT_INT(exec_memory(gpus.devices[0]).live_count, 0);
    RF_ASSERT_OK(rf_executor_replan(executor, gpus.devices, 1, NULL));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_OK(exec_read(executor, graph, &got));
    const char *difference = exec_difference(&want, &got, 1e-4);
    if (difference) RF_FAIL("%s", difference);
    exec_results_free(&got);
    exec_results_free(&want);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* ---- what plans promise ---- */

RF_TEST(placement, arenas_are_hardly_larger_than_what_lives, .timeout_ms = 600000) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct rf_executor_params params = exec_params(graph, NULL);
        struct rf_executor *executor = NULL;
        params.passes = seed % 2 ? RF_PASSES_ALL : 0;
        RF_ASSERT_OK(rf_executor_create(&params, &executor));
        struct rf_plan_info info = info_of(executor);
        if (info.peak_bytes * 10 > info.live_bytes * 11)
            RF_FAIL("seed %llu: %llu bytes for %llu alive at once", (unsigned long long)seed,
                    (unsigned long long)info.peak_bytes, (unsigned long long)info.live_bytes);
        RF_EXPECT(info.peak_bytes >= info.live_bytes);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        rf_graph_destroy(&graph);
    }
    struct exec_block block = EXEC_SMALL_BLOCK;
    block.layers = 32;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_EXPECT(info_of(executor).peak_bytes * 10 <= info_of(executor).live_bytes * 11);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
}

/* The first layer is on the device and the second on the CPU, with four chunks: the device has the work of all chunks
 * before the CPU begins with the first, and a result leaves the device as soon as it is computed. */
static int first_layer(void *user, const char *node) {
    const struct rf_graph *graph = user;
    for (size_t s = 0; s < graph->node_count; s++)
        if (!strcmp(graph->nodes[s].name, node)) return graph->nodes[s].group == 1 ? 0 : -1;
    return -1;
}
RF_TEST(placement, devices_get_their_work_ahead_of_the_cpu, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_SMALL_BLOCK;
    block.chunks = 4;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    params.place = first_layer;
    params.user = graph;
    params.replay = true;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    const struct rf_assembly *assembly = &executor->assembly;
    const struct rf_plan *plan = assembly->plan;
    bool on_cpu = false;
    for (size_t at = 0; at < graph->node_count; at++) {
        bool cpu = plan->node_place[plan->order[at]] == 1;
        RF_EXPECT(cpu || !on_cpu);
        on_cpu |= cpu;
    }
    RF_EXPECT_INT(plan->copy_count, 4);
    RF_EXPECT_INT(assembly->segment_count, 4); /* a recording for each chunk */
    size_t begun = 0;
    for (size_t i = 0; i < assembly->action_count; i++) {
        if (assembly->actions[i].kind == RF_ACTION_FINISH) break;
        begun += assembly->actions[i].kind == RF_ACTION_BEGIN;
    }
    RF_EXPECT_INT(begun, 4);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* A chain of products whose weights do not all fit; its nodes' places as letters, d for the device and c for the CPU.
 * between: there is a node without weights between two products. */
enum { PRODUCTS = 6, CHAIN_MAX = 2 * PRODUCTS };
static void place_chain(struct exec_gpus *gpus, bool between, uint64_t fit, char where[CHAIN_MAX + 1]) {
    enum { WIDTH = 1024 };
    struct rf_graph *graph = graph_new("chain");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 2, WIDTH);
    for (int i = 0; i < PRODUCTS; i++) {
        char name[16];
        if (between || !i) { /* so that the first product's input is made by a node, too */
            rf_tensor_id scaled = GRAPH_VALUE(graph, 2, WIDTH);
            GRAPH_NODE(graph, NULL, "scale", F0(0.5), x, scaled);
            x = scaled;
        }
        snprintf(name, sizeof name, "w%d", i);
        rf_tensor_id w = GRAPH_CONSTANT(graph, name, (uint64_t)i, WIDTH, WIDTH), y = GRAPH_VALUE(graph, 2, WIDTH);
        GRAPH_NODE(graph, NULL, "matmul", NONE, x, w, 0, 0, y);
        x = y;
    }
    RF_ASSERT_OK(rf_graph_finish(graph));
    struct rf_executor_params params = exec_params(graph, gpus);
    struct rf_executor *executor = NULL;
    struct rf_plan *plan = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    /* The same places, with the rates of a card: the simulated one counts as slower than the CPU. */
    struct rf_plan_place places[2] = {executor->assembly.plan->places[0], executor->assembly.plan->places[1]};
    places[0].bytes_per_ns = 1000;
    places[0].flops_per_ns = 50000;
    places[0].link_bytes_per_ns = 20;
    places[0].launch_ns = 500;
    places[0].limit = fit * 4 * MIB + 2 * MIB;
    RF_ASSERT_OK(rf_plan_create(&(struct rf_plan_params){.graph = graph, .places = places, .place_count = 2}, &plan));
    uint64_t on_device = 0;
    RF_ASSERT(graph->node_count <= CHAIN_MAX);
    for (size_t s = 0; s < graph->node_count; s++) {
        where[s] = plan->node_place[s] ? 'c' : 'd';
        on_device += !plan->node_place[s] && !strcmp(graph->nodes[s].op->name, "matmul");
    }
    where[graph->node_count] = 0;
    RF_NOTE("room for %llu: %s", (unsigned long long)fit, where);
    RF_EXPECT_UINT(on_device, fit);
    rf_plan_destroy(&plan);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    RF_ASSERT_OK(rf_device_trim(gpus->devices[0], RF_TIMEOUT_DEFAULT));
    rf_graph_destroy(&graph);
}

/* Moving a node to the CPU makes it cheaper to move its neighbours: what is spilled is one piece, with one copy. */
RF_TEST(placement, what_is_spilled_stays_together, .gpu = true) {
    struct exec_gpus gpus = {0};
    char where[CHAIN_MAX + 1];
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t fit = 1; fit < PRODUCTS; fit++) {
        int changes = 0;
        place_chain(&gpus, false, fit, where);
        for (size_t s = 1; where[s]; s++) changes += where[s] != where[s - 1];
        RF_EXPECT_INT(changes, 1);
    }
    exec_close(&gpus);
}

/* A node that has no weights follows its neighbours to the CPU, although moving it saves the device nothing. */
RF_TEST(placement, nodes_follow_their_neighbours, .gpu = true) {
    struct exec_gpus gpus = {0};
    int seen = 0;
    char where[CHAIN_MAX + 1];
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t fit = 1; fit < PRODUCTS; fit++) {
        place_chain(&gpus, true, fit, where);
        for (size_t s = 2; where[s] && where[s + 1]; s += 2) { /* the products are the odd ones */
            if (where[s - 1] != 'c' || where[s + 1] != 'c') continue;
            RF_EXPECT_INT(where[s], 'c');
            seen++;
        }
    }
    RF_EXPECT(seen >= 4);
    exec_close(&gpus);
}

RF_TEST(placement, plans_can_be_read, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_MEDIUM_BLOCK;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    uint64_t limit = 10 * MIB; /* one layer of two */
    params.device_bytes = &limit;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    struct rf_plan_info info = info_of(executor);
    RF_EXPECT(info.degraded && info.nodes_on_cpu > 0 && info.nodes_on_cpu < rf_graph_node_count(graph));
    RF_EXPECT(info.transfers > 0 && info.expected_ns > 0 && info.bytes_on_cpu > 0);
    char *text = dump_of(executor, RF_PLAN_TEXT), *json = dump_of(executor, RF_PLAN_JSON);
    char *chart = dump_of(executor, RF_PLAN_CHART), *again = dump_of(executor, RF_PLAN_JSON);
    RF_EXPECT(strstr(text, "did not fit: least time lost per byte saved") && strstr(text, "copies:"));
    RF_EXPECT(strstr(json, "\"degraded\":true") && strstr(json, "\"kind\":\"cpu\"") && strstr(json, "\"copies\":[{"));
    RF_EXPECT(strstr(chart, "alive at once") && strstr(chart, "nodes 0 to"));
    RF_EXPECT(!strcmp(json, again));
    int depth = 0;
    for (const char *c = json; *c; c++) depth += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
    RF_EXPECT_INT(depth, 0);
    RF_NOTE("%s", text);
    RF_NOTE("%s", chart);
    free(text);
    free(json);
    free(again);
    free(chart);
    /* A second executor with the same parameters gets the same plan. */
    struct rf_executor *second = NULL;
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    RF_ASSERT_OK(rf_device_trim(gpus.devices[0], RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_executor_create(&params, &second));
    RF_EXPECT_INT(info_of(second).nodes_on_cpu, info.nodes_on_cpu);
    RF_ASSERT_OK(rf_executor_destroy(&second));
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}
