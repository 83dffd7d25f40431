/* Executors: they give the same results on every place, their plans keep what they promise, and bad input is
 * refused. */
#include "exec_testing.h"

#include "graph/executor.h"
#include "graph/executor_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double TOLERANCE = 2e-3;

static void expect_same(const struct rf_executor_params *params, uint64_t seed, int runs,
                        const struct exec_results *want, double tolerance, const char *what) {
    struct exec_results got = {0};
    RF_ASSERT_OK(exec_run(params, seed, runs, &got));
    const char *difference = exec_difference(want, &got, tolerance);
    if (difference) RF_FAIL("graph '%s', %s: %s", rf_graph_name(params->graph), what, difference);
    exec_results_free(&got);
}

/* Runs one graph on every combination of places and compares the results. */
static void agree(uint64_t seed, struct exec_gpus *gpus) {
    struct rf_graph *graph = exec_random_graph(seed);
    struct exec_results want = exec_reference(graph, seed, 2);
    struct exec_gpus one = {.devices = {gpus->devices[0]}, .count = 1};
    struct rf_executor_params cpu = exec_params(graph, NULL), gpu = exec_params(graph, &one),
                              split = exec_params(graph, gpus);
    expect_same(&cpu, seed, 2, &want, TOLERANCE, "CPU");
    expect_same(&gpu, seed, 2, &want, TOLERANCE, "GPU");
    struct exec_split places = {seed, (int)gpus->count};
    split.place = exec_split_place;
    split.user = &places;
    expect_same(&split, seed, 2, &want, TOLERANCE, "split");
    cpu.passes = gpu.passes = split.passes = RF_PASSES_ALL;
    expect_same(&cpu, seed, 2, &want, TOLERANCE, "CPU, optimized");
    gpu.replay = true;
    expect_same(&gpu, seed, 2, &want, TOLERANCE, "GPU, optimized, replayed");
    places.seed++;
    split.check = seed % 10 == 0;
    split.replay = seed % 2;
    expect_same(&split, seed, 2, &want, TOLERANCE, "split, optimized");
    exec_results_free(&want);
    rf_graph_destroy(&graph);
}

static void agree_all(uint64_t first, uint64_t count) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 2, "", NULL, NULL);
    for (uint64_t seed = first; seed < first + count; seed++) agree(seed, &gpus);
    exec_close(&gpus);
}

/* A thousand graphs in four tests, so that the tests can run side by side. */
RF_TEST(executor, random_graphs_agree_0, .timeout_ms = 1800000, .tags = "slow") {
    agree_all(0, 250);
}
RF_TEST(executor, random_graphs_agree_1, .timeout_ms = 1800000, .tags = "slow") {
    agree_all(250, 250);
}
RF_TEST(executor, random_graphs_agree_2, .timeout_ms = 1800000, .tags = "slow") {
    agree_all(500, 250);
}
RF_TEST(executor, random_graphs_agree_3, .timeout_ms = 1800000, .tags = "slow") {
    agree_all(750, 250);
}
RF_TEST(executor, a_few_random_graphs_agree, .timeout_ms = 600000) {
    agree_all(1000, 10);
}

RF_TEST(executor, a_transformer_agrees, .gpu = true, .timeout_ms = 600000) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct exec_block block = EXEC_SMALL_BLOCK;
    struct rf_graph *graph = exec_block_graph(&block);
    struct exec_results want = exec_reference(graph, 5, 1);
    struct rf_executor_params cpu = exec_params(graph, NULL), gpu = exec_params(graph, &gpus);
    expect_same(&cpu, 5, 1, &want, 1e-4, "CPU");
    expect_same(&gpu, 5, 1, &want, 1e-4, "GPU");
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* ---- plans, checked directly ---- */

/* Two tensors that are alive at the same time on a place never share a byte; this test does not use the packer's own
 * data. */
RF_TEST(executor, plans_keep_values_apart, .timeout_ms = 600000) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 2, "", NULL, NULL);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct rf_executor_params params = exec_params(graph, &gpus);
        struct exec_split places = {seed, 2};
        struct rf_executor *executor = NULL;
        if (seed % 2) params.place = exec_split_place, params.user = &places;
        if (seed % 4 > 1) params.passes = RF_PASSES_ALL & ~RF_PASS_IN_PLACE;
        RF_ASSERT_OK(rf_executor_create(&params, &executor));
        const struct rf_plan *plan = executor->assembly.plan;
        const struct rf_tensor_row *values = plan->graph->tensors;
        for (int p = 0; p < plan->place_count; p++)
            for (uint32_t a = 0; a < plan->graph->tensor_count; a++) {
                const struct rf_plan_home *x = rf_plan_home(plan, a, p);
                if (!x->present || x->borrowed) continue;
                RF_EXPECT_INT(x->offset % plan->places[p].alignment, 0);
                RF_EXPECT(x->offset + values[a].bytes <= executor->assembly.arenas[p].bytes);
                RF_EXPECT(!x->in_place);
                for (uint32_t b = 0; b < a; b++) {
                    const struct rf_plan_home *y = rf_plan_home(plan, b, p);
                    if (!y->present || y->borrowed) continue;
                    bool together = x->kept || y->kept || (x->first <= y->last && y->first <= x->last);
                    bool apart = x->offset + values[a].bytes <= y->offset || y->offset + values[b].bytes <= x->offset;
                    if (together && !apart)
                        RF_FAIL("seed %llu: '%s' and '%s' overlap", (unsigned long long)seed, values[a].name,
                                values[b].name);
                }
            }
        /* A node runs after all nodes that produce its inputs. */
        for (uint32_t s = 0; s < plan->graph->node_count; s++) {
            const struct rf_node_row *row = &plan->graph->nodes[s];
            for (int i = 0; i < row->op->inputs; i++) {
                if (row->tensors[i] == RF_NO_INDEX) continue;
                uint32_t producer = values[values[row->tensors[i]].root].producer;
                if (producer != RF_NO_INDEX) RF_EXPECT(plan->position[producer] < plan->position[s]);
            }
        }
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        rf_graph_destroy(&graph);
    }
    exec_close(&gpus);
}

/* ---- a device that cannot do everything ---- */

RF_TEST(executor, what_a_device_lacks_the_cpu_does, .gpu = true, .timeout_ms = 300000) {
    struct exec_gpus gpus = {.modules = "add,scale,copy"};
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct exec_results want = exec_reference(graph, seed, 2);
        struct rf_executor_params params = exec_params(graph, &gpus);
        expect_same(&params, seed, 2, &want, TOLERANCE, "few kernels");
        params.no_cpu = true;
        struct rf_executor *executor = NULL;
        rf_status status = rf_executor_create(&params, &executor);
        bool all_there = true;
        for (size_t s = 0; s < graph->node_count; s++)
            all_there &= !strcmp(graph->nodes[s].op->name, "add") || !strcmp(graph->nodes[s].op->name, "scale") ||
                         !strcmp(graph->nodes[s].op->name, "copy");
        RF_EXPECT_STATUS(status, all_there ? RF_OK : RF_E_UNSUPPORTED);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        exec_results_free(&want);
        rf_graph_destroy(&graph);
    }
    exec_close(&gpus);
}

/* ---- the same bits ---- */

RF_TEST(executor, replay_gives_the_same_bits, .gpu = true, .timeout_ms = 300000) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rf_graph *graph = exec_random_graph(seed);
        struct rf_executor_params params = exec_params(graph, &gpus);
        struct exec_results plain = {0};
        RF_ASSERT_OK(exec_run(&params, seed, 3, &plain));
        params.replay = true;
        expect_same(&params, seed, 3, &plain, 0, "replayed");
        struct rf_executor *executor = NULL;
        RF_ASSERT_OK(rf_executor_create(&params, &executor));
        if (graph->node_count > 1) RF_EXPECT(executor->assembly.segment_count > 0); /* the run was a replay */
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        exec_results_free(&plain);
        rf_graph_destroy(&graph);
    }
    exec_close(&gpus);
}

/* ---- what kernels may read before their turn ---- */

/* Whether tensor 'name' is marked constant in the call of a node that takes it; -1: no node takes it. */
static int said_constant(const struct rf_executor *executor, const char *name) {
    const struct rf_assembly *assembly = &executor->assembly;
    const struct rf_graph *graph = assembly->plan->graph;
    for (size_t at = 0; at < graph->node_count; at++) {
        const struct rf_node_row *step = &graph->nodes[assembly->plan->order[at]];
        for (int i = 0; i < step->op->inputs; i++)
            if (step->tensors[i] != RF_NO_INDEX && !strcmp(graph->tensors[step->tensors[i]].name, name))
                return assembly->calls[at].tensors[i].constant;
    }
    return -1;
}

RF_TEST(executor, only_what_no_node_writes_is_constant) {
    struct rf_graph *graph = graph_new("constants");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1, 32), w = GRAPH_CONSTANT(graph, "w", 1, 32, 32);
    rf_tensor_id half = GRAPH_VIEW(graph, "half", w, 0, 16, 32),
                 made = GRAPH_TENSOR(graph, "made", RF_ROLE_RESULT, 32, 32);
    rf_tensor_id k = GRAPH_TENSOR(graph, "k", RF_ROLE_INPUT, 1, 1, 32),
                 v = GRAPH_TENSOR(graph, "v", RF_ROLE_RESULT, 1, 1, 32);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(1));
    rf_tensor_id kc = GRAPH_TENSOR(graph, "kc", RF_ROLE_INPUT, 1, 1, 8, 32);
    rf_tensor_id vc = GRAPH_TENSOR(graph, "vc", RF_ROLE_STATE, 1, 1, 8, 32);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, half, 0, 0, GRAPH_VALUE(graph, 1, 16));
    GRAPH_NODE(graph, NULL, "scale", F0(2), w, made);
    GRAPH_NODE(graph, NULL, "matmul", NONE, x, made, 0, 0, GRAPH_VALUE(graph, 1, 32));
    GRAPH_NODE(graph, NULL, "scale", F0(2), k, v);
    GRAPH_NODE(graph, NULL, "kv_append", F0(1), k, v, at, 0, 0, 0, kc, vc);
    RF_ASSERT_OK(rf_graph_finish(graph));
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    static const struct {
        const char *name;
        int constant;
    } wanted[] = {{"x", 1}, {"half", 1}, {"w", 1}, {"k", 1}, {"at", 1}, {"made", 0}, {"v", 0}, {"kc", 0}, {"vc", 0}};
    for (size_t i = 0; i < RF_COUNT(wanted); i++)
        RF_EXPECT_INT(said_constant(executor, wanted[i].name), wanted[i].constant);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
}

/* An input that a node changes is constant for those before it, and not for those after it. */
RF_TEST(executor, an_input_is_constant_until_it_is_written) {
    struct rf_graph *graph = graph_new("written");
    rf_tensor_id k = GRAPH_TENSOR(graph, "k", RF_ROLE_INPUT, 1, 1, 32);
    rf_tensor_id at = graph_tensor_of(graph, "at", RF_ROLE_INPUT, RF_I32, NULL, SIZES(1));
    rf_tensor_id kc = GRAPH_TENSOR(graph, "kc", RF_ROLE_INPUT, 1, 1, 8, 32);
    rf_tensor_id vc = GRAPH_TENSOR(graph, "vc", RF_ROLE_STATE, 1, 1, 8, 32);
    GRAPH_NODE(graph, "before", "scale", F0(2), kc, GRAPH_VALUE(graph, 1, 1, 8, 32));
    GRAPH_NODE(graph, "writes", "kv_append", F0(1), k, k, at, 0, 0, 0, kc, vc);
    GRAPH_NODE(graph, "after", "scale", F0(2), kc, GRAPH_VALUE(graph, 1, 1, 8, 32));
    RF_ASSERT_OK(rf_graph_finish(graph));
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    static const struct {
        const char *node;
        int input, constant;
    } wanted[] = {{"before", 0, 1}, {"writes", 0, 1}, {"writes", 6, 0}, {"writes", 7, 0}, {"after", 0, 0}};
    const struct rf_plan *plan = executor->assembly.plan;
    for (size_t i = 0; i < RF_COUNT(wanted); i++)
        for (size_t n = 0; n < plan->graph->node_count; n++)
            if (!strcmp(plan->graph->nodes[plan->order[n]].name, wanted[i].node))
                RF_EXPECT_INT(executor->assembly.calls[n].tensors[wanted[i].input].constant, wanted[i].constant);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
}

/* ---- runs that are queued ---- */

static bool stops;
static bool say_stop(void *user) {
    (void)user;
    return stops;
}

/* A graph that counts its own inputs up: several runs are submitted before the first is waited for. */
RF_TEST(executor, runs_are_queued, .gpu = true, .timeout_ms = 300000) {
    enum { RUNS = 5, SLOTS = 8 };
    struct exec_gpus gpus = {0};
    struct rf_graph *graph = graph_new("queued");
    rf_tensor_id in[4], ring = graph_tensor_of(graph, "ring", RF_ROLE_STATE, RF_I32, NULL, SIZES(1, SLOTS, 2));
    static const char *const names[] = {"drawn", "tokens", "positions", "lengths"};
    for (int i = 0; i < 4; i++) in[i] = graph_tensor_of(graph, names[i], RF_ROLE_INPUT, RF_I32, NULL, SIZES(1));
    GRAPH_NODE(graph, "first", "advance", NONE, in[0], 0, in[1], in[2], in[3], 0, 0, ring);
    GRAPH_NODE(graph, "second", "advance", NONE, in[0], 0, in[1], in[2], in[3], 0, 0, ring);
    RF_ASSERT_OK(rf_graph_finish(graph));
    exec_open(&gpus, 1, "", NULL, NULL);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    params.no_cpu = true;
    params.stop = say_stop;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_EXPECT(!rf_executor_can_queue(executor)); /* it has no recordings */
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    params.replay = true;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT(rf_executor_can_queue(executor));
    int32_t number = 77, slots[SLOTS][2];
    for (int i = 0; i < 4; i++) RF_ASSERT_OK(rf_executor_write(executor, in[i], &number, sizeof number));
    uint64_t tickets[RUNS];
    for (int i = 0; i < RUNS; i++) RF_ASSERT_OK(rf_executor_submit(executor, &tickets[i]));
    RF_EXPECT(executor->unfinished);
    for (int i = 0; i < RUNS; i++) RF_ASSERT_OK(rf_executor_wait_for(executor, tickets[i]));
    RF_EXPECT(!executor->unfinished);
    RF_ASSERT_OK(rf_executor_submit(executor, &tickets[0]));
    RF_ASSERT_OK(rf_executor_run(executor)); /* waits for the one before it */
    RF_ASSERT_OK(rf_executor_submit(executor, &tickets[0]));
    RF_ASSERT_OK(rf_executor_read(executor, in[3], &number, sizeof number)); /* so does this */
    RF_EXPECT_INT(number, 77 + 2 * (RUNS + 3));
    stops = true;
    RF_EXPECT_STATUS(rf_executor_submit(executor, &tickets[0]), RF_E_CANCELLED);
    RF_EXPECT(!executor->unfinished);
    stops = false;
    RF_ASSERT_OK(rf_executor_submit(executor, &tickets[0]));
    RF_ASSERT_OK(rf_executor_finish(executor));
    RF_EXPECT(!executor->unfinished);
    RF_ASSERT_OK(rf_executor_read(executor, ring, slots, sizeof slots));
    for (int length = 77 + 2 * (RUNS + 4) - SLOTS; length < 77 + 2 * (RUNS + 4); length++)
        RF_EXPECT(slots[length % SLOTS][0] == length && slots[length % SLOTS][1] == 77);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    exec_close(&gpus);
    rf_graph_destroy(&graph);
}

/* ---- check and trace ---- */

RF_TEST(executor, check_finds_an_overwritten_band) {
    struct rf_graph *graph = exec_random_graph(3);
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    params.check = true;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 3));
    RF_ASSERT_OK(rf_executor_run(executor));
    uint32_t input = rf_graph_find(graph, "in0") - 1;
    unsigned char *arena = executor->assembly.arenas[0].host;
    arena[rf_plan_home(executor->assembly.plan, input, 0)->offset + graph->tensors[input].bytes + 7] ^= 1;
    RF_EXPECT_STATUS(rf_executor_run(executor), RF_E_CORRUPT);
    RF_EXPECT(strstr(rf_error_text(), "byte 7 after tensor 'in0'") != NULL);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
}

RF_TEST(executor, a_trace_has_every_node, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct rf_graph *graph = exec_random_graph(4);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct exec_split places = {4, 1};
    struct exec_results got = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/trace.json", gpu_folder());
    params.trace_path = path;
    params.place = exec_split_place;
    params.user = &places;
    RF_ASSERT_OK(exec_run(&params, 4, 2, &got));
    exec_results_free(&got);
    FILE *file = fopen(path, "r");
    RF_ASSERT(file != NULL);
    static char text[1 << 20];
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    int depth = 0;
    for (const char *c = text; *c; c++) depth += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
    RF_EXPECT_INT(depth, 0);
    RF_EXPECT(!strncmp(text, "{\"displayTimeUnit\"", 18) && strstr(text, "\"cat\":\"copy\""));
    for (size_t s = 0; s < graph->node_count; s++) {
        char name[128];
        int seen = 0;
        snprintf(name, sizeof name, "\"name\":\"%s\",\"cat\":\"%s\"", graph->nodes[s].name, graph->nodes[s].op->name);
        for (const char *at = text; (at = strstr(at, name)); at++) seen++;
        RF_EXPECT_INT(seen, 2);
    }
    /* A place's events are on a thread that has the place's name. */
    for (int p = 0; p < 2; p++) {
        char line[256];
        snprintf(line, sizeof line, "\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s", p,
                 p ? "CPU" : "");
        RF_EXPECT_CONTAINS(text, line);
        const char *name = strstr(text, line);
        RF_EXPECT(name && name[strlen(line)] != '"');
    }
    RF_EXPECT(strstr(text, "\"args\":{\"name\":\"\"}") == NULL);
    params.trace_path = "/nowhere/trace.json";
    RF_EXPECT_STATUS(exec_run(&params, 4, 1, &got), RF_E_IO);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* ---- bad input ---- */

RF_TEST(executor, bad_input_is_refused, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct rf_graph *graph = graph_new("plain"), *unfinished = graph_new("unfinished");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4), y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 4);
    rf_tensor_id z = GRAPH_TENSOR(graph, "z", RF_ROLE_RESULT, 4);
    GRAPH_NODE(graph, "double", "add", NONE, x, x, y);
    GRAPH_NODE(graph, "again", "add", NONE, y, y, z);
    RF_ASSERT_OK(rf_graph_finish(graph));
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    float data[8] = {1, 2, 3, 4};
    RF_EXPECT_STATUS(rf_executor_create(NULL, &executor), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_create(&params, NULL), RF_E_INVALID);
    params.struct_size = 0;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params = exec_params(unfinished, NULL);
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params = exec_params(graph, NULL);
    params.no_cpu = true;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params = exec_params(graph, NULL);
    params.cpu_simd = "mmx";
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params = exec_params(graph, NULL);
    params.timeout_ns = -5;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params = exec_params(graph, &gpus);
    params.devices = (struct rf_device *[]){gpus.devices[0], gpus.devices[0]};
    params.device_count = 2;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params.devices = (struct rf_device *[]){NULL};
    params.device_count = 1;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    params.device_count = 1000;
    RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_INVALID);
    RF_EXPECT(executor == NULL);

    params = exec_params(graph, &gpus);
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_EXPECT_STATUS(rf_executor_write(executor, 0, data, 16), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_write(executor, 99, data, 16), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_write(executor, y, data, 16), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_write(executor, x, data, 12), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_write(executor, x, NULL, 16), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_read(executor, y, data, 16), RF_E_INVALID); /* y is not an output */
    RF_EXPECT(strstr(rf_error_text(), "'y' is no output"));
    RF_EXPECT_STATUS(rf_executor_read(executor, z, data, 20), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_run(NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_plan_info(executor, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_executor_dump_plan(executor, (enum rf_plan_format)9, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_executor_write(executor, x, data, 16));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_OK(rf_executor_read(executor, z, data + 4, 16));
    for (int i = 0; i < 4; i++) RF_EXPECT(data[4 + i] == 4 * data[i]);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    rf_graph_destroy(&unfinished);
    exec_close(&gpus);
}

/* ---- the dummy ---- */

RF_TEST(executor, the_dummy_counts_and_computes_nothing) {
    struct rf_graph *graph = graph_new("dummy");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4), y = GRAPH_TENSOR(graph, "y", RF_ROLE_RESULT, 4);
    GRAPH_NODE(graph, NULL, "add", NONE, x, x, y);
    RF_ASSERT_OK(rf_graph_finish(graph));
    struct rf_dummy *dummy = NULL;
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    for (size_t nth = 1; nth <= 2; nth++) {
        struct rf_executor_params params = exec_params(graph, NULL);
        params.dummy = dummy;
        rf_dummy_fail_at(dummy, nth);
        RF_EXPECT_STATUS(rf_executor_create(&params, &executor), RF_E_DEVICE_MEMORY);
        rf_dummy_reset(dummy);
    }
    struct rf_executor_params params = exec_params(graph, NULL);
    params.dummy = dummy;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_EXPECT_INT(rf_dummy_get_stats(dummy).alloc_count, 2);
    RF_EXPECT_INT(rf_dummy_get_stats(dummy).execute_op_count, 1);
    RF_EXPECT(rf_dummy_has_buffer(dummy, x) && rf_dummy_has_buffer(dummy, y));
    RF_EXPECT_STATUS(rf_executor_replan(executor, NULL, 0, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_dummy_destroy(&dummy);
    rf_graph_destroy(&graph);
}
