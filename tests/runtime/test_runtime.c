/* What a process has once: threads and host memory, whatever runs on the CPU and however often. */
#include "runtime/runtime.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include <rocmforge/infer.h>
#include <rocmforge/ops.h>
#include <rocmforge/test.h>

#include "../infer/infer_testing.h"
#include "graph/executor_impl.h"

static struct rf_runtime *runtime_with(const char *const *options) {
    RF_PARAMS(struct rf_runtime_params, params);
    struct rf_runtime *runtime = NULL;
    params.options = options;
    RF_ASSERT_OK(rf_runtime_create(&params, &runtime));
    return runtime;
}

static unsigned threads_of_process(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    RF_ASSERT(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* A thread that was joined can be listed a little longer: looked at until the number is right, or for long. */
static void expect_threads(unsigned expected) {
    int64_t deadline = rf_now_ns() + RF_MS(60000);
    while (threads_of_process() != expected && rf_now_ns() < deadline) rf_sleep_ns(RF_MS(1));
    RF_EXPECT_UINT(threads_of_process(), expected);
}

static const char *model_path(void) {
    static const struct spec spec = {"runtime",  "llama",       .layers = 2,        .width = 64,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 96, .vocabulary = 50};
    return infer_model(&spec, "runtime.gguf");
}
static struct rf_engine *engine_on_cpu(struct rf_runtime *runtime, unsigned threads, uint32_t sessions) {
    RF_PARAMS(struct rf_engine_params, params);
    struct rf_engine *engine = NULL;
    params.runtime = runtime;
    params.model = model_path();
    params.device = "cpu";
    params.context = 256;
    params.threads = threads;
    params.sessions = sessions;
    RF_ASSERT_OK(rf_engine_open(&params, &engine));
    return engine;
}
static void evaluate(struct rf_session *session, uint32_t count) {
    int32_t tokens[64];
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(i % 50);
    RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, NULL));
}

/* ---- RF_THREADS ---- */

/* a + b on the CPU. */
static struct rf_executor *executor_of(struct rf_runtime *runtime, unsigned threads, struct rf_graph **graph) {
    static const float ones[6] = {1, 1, 1, 1, 1, 1};
    RF_PARAMS(struct rf_graph_tensor, tensor);
    RF_PARAMS(struct rf_graph_node, node);
    RF_PARAMS(struct rf_executor_params, params);
    rf_tensor_id ids[3] = {0};
    struct rf_executor *executor = NULL;
    RF_ASSERT_OK(rf_graph_create("sum", graph));
    for (int i = 0; i < 3; i++) {
        tensor.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 2, .shape = {2, 3}};
        tensor.role = i == 0 ? RF_ROLE_INPUT : i == 1 ? RF_ROLE_CONSTANT : RF_ROLE_RESULT;
        tensor.data = i == 1 ? ones : NULL;
        RF_ASSERT_OK(rf_graph_add_tensor(*graph, &tensor, &ids[i]));
    }
    node.op = "add";
    node.inputs = ids;
    node.input_count = 2;
    node.outputs = ids + 2;
    node.output_count = 1;
    RF_ASSERT_OK(rf_graph_add_node(*graph, &node, NULL));
    RF_ASSERT_OK(rf_graph_finish(*graph));
    params.graph = *graph;
    params.runtime = runtime;
    params.cpu_threads = threads;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(rf_executor_run(executor));
    return executor;
}

/* The option of the runtime, not the environment's, decides; a number of the caller's own wins over both. */
RF_TEST(runtime, threads_are_those_asked_for) {
    setenv("RF_THREADS", "7", 1);
    struct rf_runtime *runtime = runtime_with((const char *[]){"RF_THREADS=3", NULL});
    unsigned before = threads_of_process();
    RF_EXPECT_UINT(rf_runtime_thread_count(runtime, 0), 3);
    RF_EXPECT_UINT(rf_runtime_thread_count(runtime, 5), 5);

    struct rf_graph *graph = NULL;
    struct rf_executor *executor = executor_of(runtime, 0, &graph);
    RF_EXPECT_TEXT(executor->cpu->name + strlen(executor->cpu->name) - 9, "3 threads");
    expect_threads(before + 2); /* the caller is the third */
    RF_EXPECT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);

    RF_PARAMS(struct rf_engine_info, info);
    struct rf_engine *engine = engine_on_cpu(runtime, 0, 1);
    RF_EXPECT_OK(rf_engine_get_info(engine, &info));
    RF_EXPECT_CONTAINS(info.device, "3 threads");
    RF_EXPECT_OK(rf_engine_close(&engine));
    engine = engine_on_cpu(runtime, 2, 1);
    RF_EXPECT_OK(rf_engine_get_info(engine, &info));
    RF_EXPECT_CONTAINS(info.device, "2 threads");
    RF_EXPECT_OK(rf_engine_close(&engine));

    RF_PARAMS(struct rf_check_params, check);
    struct rf_check_counts counts;
    check.op = "scale";
    check.runtime = runtime;
    RF_EXPECT_OK(rf_check_run(&check, &counts));
    RF_EXPECT(counts.passed > 0 && !counts.failed);
    expect_threads(before + 2);
    rf_runtime_destroy(&runtime);
    expect_threads(before);

    /* Without a runtime the executor has one of its own, and that heeds the environment. */
    executor = executor_of(NULL, 0, &graph);
    expect_threads(before + 6);
    RF_EXPECT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    unsetenv("RF_THREADS");
}

/* ---- the number of threads ---- */

RF_TEST(runtime, threads_do_not_grow_with_sessions) {
    enum { SESSIONS = 6 };
    struct rf_runtime *runtime = runtime_with((const char *[]){"RF_THREADS=4", NULL});
    unsigned before = threads_of_process();
    struct rf_engine *engines[2] = {engine_on_cpu(runtime, 0, SESSIONS), engine_on_cpu(runtime, 3, SESSIONS)};
    struct rf_session *sessions[2 * SESSIONS] = {NULL};
    for (size_t s = 0; s < RF_COUNT(sessions); s++) {
        RF_ASSERT_OK(rf_session_create(engines[s % 2], &sessions[s]));
        for (uint32_t count = 1; count <= 33; count += 8) evaluate(sessions[s], count); /* several graphs each */
        expect_threads(before + 3);
    }
    for (size_t s = 0; s < RF_COUNT(sessions); s++) rf_session_destroy(&sessions[s]);
    for (size_t e = 0; e < RF_COUNT(engines); e++) RF_EXPECT_OK(rf_engine_close(&engines[e]));
    rf_runtime_destroy(&runtime);
    expect_threads(before);
}

/* A device's name, and what info says, start no thread. */
RF_TEST(runtime, naming_the_cpu_starts_no_thread) {
    struct rf_runtime *runtime = runtime_with((const char *[]){"RF_THREADS=5", NULL});
    unsigned before = threads_of_process();
    RF_PARAMS(struct rf_engine_params, params);
    RF_PARAMS(struct rf_engine_info, info);
    struct rf_engine *engine = NULL;
    params.runtime = runtime;
    params.model = model_path();
    params.device = "cpu";
    params.plan_only = true;
    RF_ASSERT_OK(rf_engine_open(&params, &engine));
    RF_EXPECT_OK(rf_engine_get_info(engine, &info));
    RF_EXPECT_CONTAINS(info.device, "5 threads");
    expect_threads(before);
    RF_EXPECT_OK(rf_engine_close(&engine));
    rf_runtime_destroy(&runtime);
}

/* ---- the host budget ---- */

RF_TEST(runtime, arenas_of_the_cpu_are_charged) {
    struct rf_runtime *runtime = runtime_with((const char *[]){"RF_HOST_BUDGET=64MiB", NULL});
    struct rf_graph *graph = NULL;
    struct rf_executor *executor = executor_of(runtime, 1, &graph);
    uint64_t arena = executor->assembly.arenas[0].bytes;
    RF_EXPECT(arena > 0);
    RF_EXPECT(runtime->host.used_bytes >= arena &&
              runtime->host.used_bytes < arena + (16 << 10)); /* and its tables */
    RF_EXPECT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    RF_EXPECT_UINT(runtime->host.used_bytes, 0);

    struct rf_engine *engine = engine_on_cpu(runtime, 1, 1);
    struct rf_session *session = NULL;
    uint64_t before = runtime->host.used_bytes; /* the caches */
    RF_EXPECT(before > 0);
    RF_ASSERT_OK(rf_session_create(engine, &session));
    evaluate(session, 64);
    uint64_t during = runtime->host.used_bytes;
    RF_EXPECT(during > before); /* the run's arena */
    rf_session_destroy(&session);
    RF_EXPECT_UINT(runtime->host.used_bytes, before);
    RF_EXPECT_OK(rf_engine_close(&engine));
    RF_EXPECT_UINT(runtime->host.used_bytes, 0);
    rf_runtime_destroy(&runtime);

    /* What does not fit is refused, and says which knob changes it. */
    char option[64];
    snprintf(option, sizeof option, "RF_HOST_BUDGET=%llu", (unsigned long long)(before + (during - before) / 8));
    runtime = runtime_with((const char *[]){option, NULL});
    RF_PARAMS(struct rf_engine_params, params);
    params.runtime = runtime;
    params.model = model_path();
    params.device = "cpu";
    params.context = 256;
    rf_status status = rf_engine_open(&params, &engine);
    RF_EXPECT(status == RF_E_NO_MEMORY || status == RF_E_BUDGET);
    RF_EXPECT_UINT(runtime->host.used_bytes, 0);
    rf_runtime_destroy(&runtime);
}
