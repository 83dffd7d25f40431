/* bench_graph: planning time; the executor's overhead, also compared with raw driver calls; estimated against
 * measured times; splits against the sum of their parts.
 *
 *     bench_graph [--quick] [--model]
 *
 * A row with a stated limit is a ratio within one run; nothing here decides a test. With a device (RF_DRIVER, as
 * everywhere) the device's rows are added; --model adds a graph of eight billion parameters, which needs 9 GiB on the
 * host and on the device. Without a device only the CPU's rows are measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/graph/exec_testing.h"
#include "gpu/device_impl.h"
#include "graph/executor_impl.h"
#include "start.h"

enum { ROUNDS = 15 };

static bool quick;

static int compare_times(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}
static int64_t median(int64_t *times, size_t count) {
    qsort(times, count, sizeof *times, compare_times);
    return times[count / 2];
}

static void row(const char *name, double value, const char *unit, const char *wanted) {
    printf("%-56s %12.3f %-6s %s\n", name, value, unit, wanted);
    fflush(stdout);
}
static void failed(const char *name) {
    printf("%-56s %s\n", name, rf_error_text());
    fflush(stdout);
}

/* The median time of a run; -1: it failed, and the reason was printed. */
static int64_t time_run(struct rf_executor *executor, const char *name) {
    int64_t times[ROUNDS];
    size_t rounds = quick ? 3 : ROUNDS;
    for (size_t i = 0; i <= rounds; i++) {
        int64_t start = rf_now_ns();
        if (rf_executor_run(executor)) {
            failed(name);
            return -1;
        }
        if (i) times[i - 1] = rf_now_ns() - start;
    }
    return median(times, rounds);
}

static int64_t time_graph(const struct rf_executor_params *params, const char *name, int64_t *expected_ns) {
    struct rf_executor *executor = NULL;
    RF_PARAMS(struct rf_plan_info, info);
    if (rf_executor_create(params, &executor)) {
        failed(name);
        return -1;
    }
    int64_t ns = time_run(executor, name);
    if (expected_ns && !rf_executor_plan_info(executor, &info)) *expected_ns = info.expected_ns;
    rf_executor_destroy(&executor);
    return ns;
}

/* ---- planning ---- */

static void bench_planning(void) {
    struct exec_block block = {.layers = 32,
                               .heads = 32,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .ffn = 14336,
                               .tokens = 1,
                               .context = 4096,
                               .chunks = 1,
                               .vocabulary = 128256,
                               .weights = RF_Q4_0,
                               .zero_weights = true};
    for (int loose = 0; loose < 2; loose++) {
        block.loose = loose;
        struct rf_graph *graph = exec_block_graph(&block);
        struct rf_backend *cpu = NULL, *device = NULL;
        struct rf_dummy *dummy = NULL;
        struct rf_runtime *runtime = NULL;
        if (rf_runtime_create(NULL, &runtime) || rf_backend_create_cpu(runtime, 0, NULL, &cpu) ||
            rf_dummy_create_with_config(UINT64_MAX, 256, &dummy) || rf_backend_create_dummy(dummy, &device)) {
            failed("planning");
            return;
        }
        static const struct {
            const char *name;
            uint64_t limit;
        } cases[] = {{"all fits", UINT64_MAX}, {"half fits", UINT64_C(3) << 30}, {"nothing fits", 0}};
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            int64_t times[ROUNDS];
            char name[96];
            struct rf_plan_place places[2] = {{.backend = device,
                                               .limit = cases[c].limit,
                                               .alignment = 256,
                                               .bytes_per_ns = 4000,
                                               .flops_per_ns = 200000,
                                               .link_bytes_per_ns = 40,
                                               .launch_ns = 4000},
                                              {.backend = cpu,
                                               .cpu = true,
                                               .limit = UINT64_MAX,
                                               .alignment = 64,
                                               .bytes_per_ns = 100,
                                               .flops_per_ns = 500,
                                               .link_bytes_per_ns = 20,
                                               .launch_ns = 1000}};
            struct rf_plan_params params = {.graph = graph, .places = places, .place_count = 2};
            for (size_t i = 0; i < ROUNDS; i++) {
                struct rf_plan *plan = NULL;
                int64_t start = rf_now_ns();
                if (rf_plan_create(&params, &plan)) {
                    failed("planning");
                    return;
                }
                times[i] = rf_now_ns() - start;
                rf_plan_destroy(&plan);
            }
            snprintf(name, sizeof name, "planning 32 layers, %s, %s", loose ? "node by node" : "by layers",
                     cases[c].name);
            row(name, (double)median(times, ROUNDS) / 1e6, "ms", "under 20");
        }
        rf_backend_destroy(&cpu);
        rf_runtime_destroy(&runtime);
        rf_backend_destroy(&device);
        rf_dummy_destroy(&dummy);
        rf_graph_destroy(&graph);
    }
}

/* ---- overhead ---- */

static struct rf_graph *chain(size_t nodes) {
    struct rf_graph *graph = graph_new("chain");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 1, 64);
    for (size_t i = 0; i < nodes; i++) {
        rf_tensor_id next = GRAPH_VALUE(graph, 1, 64);
        GRAPH_NODE(graph, NULL, "add", NONE, x, x, next);
        x = next;
    }
    RF_ASSERT_OK(rf_graph_finish(graph));
    return graph;
}

/* The host time of a run beyond the time that its recordings take on the device. */
static double host_share(struct rf_executor *executor, int64_t wall_ns) {
    struct rf_assembly *assembly = &executor->assembly;
    struct rf_backend *backend = assembly->gpus[0];
    int64_t times[ROUNDS], elapsed = 0;
    if (assembly->action_count != 1 || assembly->segment_count != 1 || backend->table->marks_create(backend, 2))
        return -1;
    for (size_t i = 0; i < ROUNDS; i++) {
        if (backend->table->mark(backend, 0) || backend->table->replay(backend, assembly->segments[0].recording) ||
            backend->table->mark(backend, 1) || backend->table->wait(backend, RF_TIMEOUT_DEFAULT) ||
            backend->table->marks_between(backend, 0, 1, &elapsed))
            return -1;
        times[i] = elapsed;
    }
    return (double)(wall_ns - median(times, ROUNDS));
}

/* ---- the cost of safety ---- */

/* The same executable graph on a stream of its own, run by the driver's own functions and nothing else. */
struct raw {
    const struct rf_driver *driver;
    void *executable, *stream, *event;
};
static int raw_replay(const struct raw *raw) {
    const int64_t deadline = rf_deadline_after(RF_MS(20000));
    int code = raw->driver->graph_launch(raw->executable, raw->stream);
    if (code == RF_DRV_OK) code = raw->driver->event_record(raw->event, raw->stream);
    if (code == RF_DRV_OK)
        while ((code = raw->driver->event_query(raw->event)) == RF_DRV_NOT_READY)
            if (rf_now_ns() > deadline) break;
    return code;
}

/* Times rf_executor_run against the raw calls, in turns, so that both run at the same clocks. Returns the driver's
 * code; -1: the executor failed. */
static int compare_with_raw(struct rf_executor *executor, const struct raw *raw, double *ratio) {
    enum { PAIRS = 101 };
    int64_t raw_ns[PAIRS], our_ns[PAIRS];
    size_t pairs = quick ? 5 : PAIRS;
    for (size_t i = 0; i <= pairs; i++) { /* the first pair is not counted */
        size_t at = i ? i - 1 : 0;
        int64_t start = rf_now_ns();
        int code = raw_replay(raw);
        raw_ns[at] = rf_now_ns() - start;
        if (code != RF_DRV_OK) return code;
        start = rf_now_ns();
        if (rf_executor_run(executor)) return -1;
        our_ns[at] = rf_now_ns() - start;
    }
    *ratio = (double)median(our_ns, pairs) / (double)RF_MAX(median(raw_ns, pairs), (int64_t)1);
    return RF_DRV_OK;
}

static void bench_safety(struct rf_device *device, struct rf_executor *executor, const char *wanted) {
    static const char name[] = "  the cost of safety: against raw calls, same graph";
    const struct rf_assembly *assembly = &executor->assembly;
    struct raw raw = {.driver = device->driver};
    struct rf_entered entered;
    double ratio = 0;
    if (assembly->action_count != 1 || assembly->segment_count != 1) return; /* the plan is not one recording */
    raw.executable = ((const struct rf_recording *)assembly->segments[0].recording)->part->executable;
    int code = rf_context_enter(raw.driver, &device->context, &entered);
    if (code == RF_DRV_OK) {
        code = raw.driver->stream_create(&raw.stream, RF_STREAM_NON_BLOCKING, device->priority_low);
        if (code == RF_DRV_OK) code = raw.driver->event_create(&raw.event, RF_EVENT_DISABLE_TIMING);
        if (code == RF_DRV_OK) code = compare_with_raw(executor, &raw, &ratio);
        if (raw.event) raw.driver->event_destroy(raw.event);
        if (raw.stream && code != RF_DRV_NOT_READY) raw.driver->stream_destroy(raw.stream); /* else it would wait */
        rf_context_leave(raw.driver, &entered);
    }
    if (code == RF_DRV_OK)
        row(name, ratio, "", wanted);
    else if (code < 0)
        failed(name);
    else
        printf("%-56s failed: %s\n", name, rf_driver_error_name(raw.driver, code));
}

static void bench_overhead(struct rf_device *device) {
    const double nodes = 500;
    struct rf_graph *graph = chain((size_t)nodes);
    struct rf_executor_params params = {.struct_size = sizeof params, .graph = graph, .cpu_threads = 1};
    int64_t ns = time_graph(&params, "CPU", NULL);
    if (ns >= 0) row("a node of 64 numbers, CPU, one thread", (double)ns / nodes / 1e3, "us", "");
    if (device) {
        params.devices = &device;
        params.device_count = 1;
        params.no_cpu = true;
        ns = time_graph(&params, "device, node by node", NULL);
        if (ns >= 0) row("a node of 64 numbers, device, node by node", (double)ns / nodes / 1e3, "us", "");
        struct rf_executor *executor = NULL;
        params.replay = true;
        if (rf_executor_create(&params, &executor)) {
            failed("device, replayed");
        } else {
            ns = time_run(executor, "device, replayed");
            double share = ns >= 0 ? host_share(executor, ns) : -1;
            if (ns >= 0) row("a node of 64 numbers, device, replayed", (double)ns / nodes / 1e3, "us", "");
            if (share >= 0) row("  of which the executor and the wait", share / nodes / 1e3, "us", "under 2");
            if (ns >= 0) bench_safety(device, executor, "");
            rf_executor_destroy(&executor);
        }
    }
    rf_graph_destroy(&graph);
}

/* ---- estimates; splits ---- */

/* Places the first layers on the device and the others on the CPU. */
struct split {
    const struct rf_graph *graph;
    int device_layers;
};
static int split_place(void *user, const char *node) {
    const struct split *split = user;
    for (size_t s = 0; s < split->graph->node_count; s++)
        if (!strcmp(split->graph->nodes[s].name, node))
            return split->graph->nodes[s].group <= split->device_layers ? 0 : -1;
    return -1;
}

/* The time of a number of layers on one place alone: on the device, or on the CPU if it is NULL. */
static int64_t time_layers(struct rf_device *device, const char *name, struct exec_block block, uint32_t layers) {
    block.layers = layers;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = {.struct_size = sizeof params, .graph = graph};
    if (device) {
        params.devices = &device;
        params.device_count = 1;
        params.no_cpu = true;
        params.replay = true;
    }
    int64_t ns = time_graph(&params, name, NULL);
    rf_graph_destroy(&graph);
    return ns;
}

/* Times a split against the sum of its parts. balanced: the device gets as many layers as take as long as one layer
 * on the CPU, because if one part takes no time, there is nothing to overlap. */
static void bench_split(struct rf_device *device, const char *name, struct exec_block block, bool balanced,
                        const char *wanted) {
    enum { LAYERS_MAX = 48 };
    char text[96];
    uint32_t on_cpu = block.layers / 2, on_device = block.layers - on_cpu;
    if (balanced) {
        int64_t a = time_layers(device, name, block, 2), b = time_layers(NULL, name, block, 2);
        if (a <= 0 || b <= 0) return;
        double ratio = (double)b / (double)a;
        on_device = ratio > 1 ? (uint32_t)RF_MIN(ratio + 0.5, (double)LAYERS_MAX) : 1;
        on_cpu = ratio > 1 ? 1 : (uint32_t)RF_MIN(1 / ratio + 0.5, (double)LAYERS_MAX);
        if (quick) on_device = on_cpu = 1;
    }
    block.layers = on_device + on_cpu;
    struct rf_graph *graph = exec_block_graph(&block);
    struct split split = {graph, (int)on_device};
    struct rf_executor_params whole = {.struct_size = sizeof whole,
                                       .graph = graph,
                                       .devices = &device,
                                       .device_count = 1,
                                       .place = split_place,
                                       .user = &split,
                                       .replay = true};
    int64_t expected = 0, together = time_graph(&whole, name, &expected);
    int64_t a = time_layers(device, name, block, on_device), b = time_layers(NULL, name, block, on_cpu);
    if (together >= 0 && a >= 0 && b >= 0) {
        snprintf(text, sizeof text, "%s, %u layers on the device, %u on the CPU", name, on_device, on_cpu);
        row(text, (double)together / 1e6, "ms", "");
        snprintf(text, sizeof text, "  against the sum of its parts (%.2f and %.2f ms)", (double)a / 1e6,
                 (double)b / 1e6);
        row(text, (double)together / (double)(a + b), "", wanted);
        row("  measured against the estimate", (double)together / (double)RF_MAX(expected, (int64_t)1), "", "");
    }
    rf_graph_destroy(&graph);
}

static void bench_estimates(struct rf_device *device) {
    struct exec_block block = {.layers = 4,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .ffn = 2048,
                               .tokens = 16,
                               .context = 256,
                               .chunks = 1,
                               .weights = RF_F16,
                               .zero_weights = true};
    if (quick) block.layers = 2, block.ffn = 512, block.heads = 4, block.kv_heads = 2;
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = {.struct_size = sizeof params, .graph = graph};
    int64_t expected = 0, ns = time_graph(&params, "CPU", &expected);
    if (ns >= 0) {
        row("layers of 16 tokens, CPU", (double)ns / 1e6, "ms", "");
        row("  measured against the estimate", (double)ns / (double)RF_MAX(expected, (int64_t)1), "", "");
    }
    if (device) {
        params.devices = &device;
        params.device_count = 1;
        params.no_cpu = true;
        ns = time_graph(&params, "device", &expected);
        if (ns >= 0) {
            row("layers of 16 tokens, device", (double)ns / 1e6, "ms", "");
            row("  measured against the estimate", (double)ns / (double)RF_MAX(expected, (int64_t)1), "", "");
        }
        struct exec_block prefill = block;
        prefill.chunks = 4;
        bench_split(device, "prefill in 4 chunks", prefill, true, "at most 0.8");
        /* The layers of a model with eight billion parameters: models that are split because they do not fit are
         * large. */
        struct exec_block decode = block;
        decode.tokens = 1;
        if (!quick) {
            decode.heads = 32;
            decode.kv_heads = 8;
            decode.head_dim = 128;
            decode.ffn = 14336;
            decode.context = 1024;
            decode.weights = RF_Q8_0;
        }
        bench_split(device, "decode", decode, false, "at most 1.05");
    }
    rf_graph_destroy(&graph);
}

/* Layers over several devices as a pipeline, compared with one device alone. */
static int spread_place(void *user, const char *node) {
    struct {
        const struct rf_graph *graph;
        int devices, layers;
    } *all = user;
    for (size_t s = 0; s < all->graph->node_count; s++)
        if (!strcmp(all->graph->nodes[s].name, node))
            return RF_MIN((all->graph->nodes[s].group - 1) * all->devices / all->layers, all->devices - 1);
    return -1;
}

static void bench_devices(struct rf_device *const *devices, size_t count) {
    struct exec_block block = {.layers = 4,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .ffn = quick ? 256 : 1024,
                               .tokens = 4,
                               .context = 64,
                               .chunks = 4,
                               .weights = RF_F16,
                               .zero_weights = true};
    struct rf_graph *graph = exec_block_graph(&block);
    int64_t alone = 0;
    for (size_t used = 1; used <= count; used *= 2) {
        struct {
            const struct rf_graph *graph;
            int devices, layers;
        } all = {graph, (int)used, (int)block.layers};
        struct rf_executor_params params = {.struct_size = sizeof params,
                                            .graph = graph,
                                            .devices = devices,
                                            .device_count = used,
                                            .place = spread_place,
                                            .user = &all};
        char name[96];
        snprintf(name, sizeof name, "4 layers, 4 chunks, over %zu devices", used);
        int64_t ns = time_graph(&params, name, NULL);
        if (ns < 0) continue;
        if (used == 1) alone = ns;
        row(name, (double)ns / 1e6, "ms", "");
        if (used > 1) row("  against one device", (double)ns / (double)RF_MAX(alone, (int64_t)1), "", "");
    }
    rf_graph_destroy(&graph);
}

/* One token of a graph of eight billion parameters. */
static void bench_model(struct rf_device *device) {
    struct exec_block block = {.layers = 32,
                               .heads = 32,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .ffn = 14336,
                               .tokens = 1,
                               .context = 512,
                               .chunks = 1,
                               .vocabulary = 128256,
                               .weights = RF_Q8_0,
                               .zero_weights = true};
    struct rf_graph *graph = exec_block_graph(&block);
    struct rf_executor_params params = {.struct_size = sizeof params,
                                        .graph = graph,
                                        .devices = &device,
                                        .device_count = 1,
                                        .no_cpu = true,
                                        .replay = true,
                                        .passes = RF_PASSES_ALL};
    struct rf_executor *executor = NULL;
    if (rf_executor_create(&params, &executor)) {
        failed("8 billion parameters, decode");
    } else {
        int64_t ns = time_run(executor, "8 billion parameters, decode");
        double share = ns >= 0 ? host_share(executor, ns) : -1;
        if (ns >= 0) row("8 billion parameters, Q8_0, decode", (double)ns / 1e6, "ms", "");
        if (share >= 0) row("  of which the executor and the wait", share / (double)ns * 100, "%", "under 3");
        if (ns >= 0) bench_safety(device, executor, "at most 1.01");
        rf_executor_destroy(&executor);
    }
    rf_graph_destroy(&graph);
}

int main(int count, char **arguments) {
    struct rf_runtime *runtime = NULL;
    struct rf_device *devices[4] = {NULL};
    size_t opened = 0;
    bool model = false;
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "--quick"))
            quick = true;
        else if (!strcmp(arguments[i], "--model"))
            model = true;
        else
            return fprintf(stderr, "bench_graph: '%s' is no option; there are --quick and --model\n", arguments[i]),
                   2;
    }
    if (start_runtime(NULL, &runtime)) return fprintf(stderr, "bench_graph: %s\n", rf_error_text()), 1;
    for (int i = 0; i < 4 && rf_gpu_available(runtime) && i < rf_device_count(runtime); i++) {
        RF_PARAMS(struct rf_device_params, params);
        params.index = i;
        if (rf_device_open_checked(runtime, &params, &devices[opened])) {
            fprintf(stderr, "bench_graph: %s\n", rf_error_text());
            break;
        }
        opened++;
    }
    if (!opened) printf("no device: %s\n", rf_gpu_reason(runtime));
    bench_planning();
    bench_overhead(devices[0]);
    bench_estimates(devices[0]);
    if (opened > 1) bench_devices(devices, opened);
    if (model && opened) bench_model(devices[0]);
    for (size_t i = 0; i < opened; i++) rf_device_close(&devices[i]);
    rf_runtime_destroy(&runtime);
    return 0;
}
