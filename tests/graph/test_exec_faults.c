/* Executors when things go wrong: any allocation fails; any driver call fails or loses the device; deadlines pass;
 * many threads run. Each time the status is typed, nothing is held afterwards, and the graph runs again: on the
 * device, or on the CPU if the device is lost. */
#include "exec_testing.h"

#include "../refused_memory.h"
#include "graph/executor_impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int alternate(void *user, const char *node) {
    int *devices = user;
    unsigned sum = 0;
    for (; *node; node++) sum = sum * 31 + (unsigned char)*node;
    return (int)(sum % (unsigned)(*devices + 1)) - 1;
}

static void expect_right(const struct exec_results *want, struct exec_results *got, const char *what, long step) {
    const char *difference = exec_difference(want, got, 2e-3);
    if (difference) RF_FAIL("%s at %ld: %s", what, step, difference);
    exec_results_free(got);
}

/* A graph with nodes of many kinds. */
enum { SEED = 14 };

RF_TEST(exec_faults, every_device_allocation_fails_once, .timeout_ms = 1500000) {
    struct rf_graph *graph = exec_random_graph(SEED);
    struct exec_results want = exec_reference(graph, SEED, 1), got = {0};
    long refused = 0;
    for (long nth = 1; nth <= 24; nth++) {
        struct exec_gpus gpus = {0};
        char option[48];
        snprintf(option, sizeof option, "RF_FAIL_ALLOC=%ld", nth);
        exec_open(&gpus, 2, "", NULL, (const char *[]){option, NULL});
        struct rf_executor_params params = exec_params(graph, &gpus);
        int devices = 2;
        if (nth % 2) params.place = alternate, params.user = &devices;
        rf_status status = exec_run(&params, SEED, 1, &got);
        if (status) {
            refused++;
            RF_EXPECT(status == RF_E_BUDGET || status == RF_E_NO_MEMORY);
            for (size_t i = 0; i < 2; i++) RF_EXPECT_INT(exec_memory(gpus.devices[i]).live_count, 0);
            RF_ASSERT_OK(exec_run(&params, SEED, 1, &got));
        }
        expect_right(&want, &got, "after a refusal", nth);
        exec_close(&gpus);
    }
    RF_EXPECT(refused > 0); /* if the caller placed the nodes, there is no other place */
    exec_results_free(&want);
    rf_graph_destroy(&graph);
}

RF_TEST(exec_faults, every_host_allocation_fails_once, .timeout_ms = 1500000) {
    struct rf_graph *graph = exec_random_graph(SEED);
    struct exec_results want = exec_reference(graph, SEED, 2), got = {0};
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 2, "", NULL, NULL);
    struct rf_executor_params params = exec_params(graph, &gpus);
    int devices = 2;
    long failed = 0, nth = 1;
    params.place = alternate;
    params.user = &devices;
    params.passes = RF_PASSES_ALL;
    params.replay = true;
    for (bool reached = true; reached; nth++) {
        struct rf_executor *executor = NULL;
        atomic_store(&countdown, nth - 1);
        rf_status status = rf_executor_create(&params, &executor);
        if (!status) status = rf_executor_replan(executor, gpus.devices, 2, NULL);
        reached = atomic_exchange(&countdown, -1) < 0;
        if (status) {
            failed++;
            RF_EXPECT(status == RF_E_NO_MEMORY || status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY);
            RF_EXPECT(rf_error_text()[0] != 0);
        }
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        for (size_t i = 0; i < 2; i++) RF_EXPECT_INT(exec_memory(gpus.devices[i]).live_count, 0);
        RF_ASSERT(nth < 5000);
    }
    RF_NOTE("%ld host allocations, %ld of which could not be done without", nth - 1, failed);
    RF_EXPECT(failed > 50);
    RF_ASSERT_OK(exec_run(&params, SEED, 2, &got));
    expect_right(&want, &got, "afterwards", 0);
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

RF_TEST(exec_faults, a_run_allocates_nothing) {
    struct exec_block block = EXEC_SMALL_BLOCK;
    struct rf_graph *graph = exec_block_graph(&block);
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 2, "", NULL, NULL);
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    int devices = 2;
    params.place = alternate;
    params.user = &devices;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 1));
    RF_ASSERT_OK(rf_executor_run(executor)); /* the scratch of the CPU's ops grows once */
    long before = atomic_load(&allocations);
    uint64_t mark = rf_device_mark(gpus.devices[0]);
    for (int i = 0; i < 5; i++) RF_ASSERT_OK(rf_executor_run(executor));
    RF_EXPECT_INT(atomic_load(&allocations) - before, 0);
    RF_EXPECT_INT(rf_device_mark(gpus.devices[0]) - mark, 0);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* ---- recordings that fail ---- */

/* HIP before 7.14 keeps a capture that failed on its stream. The executor goes on, without a replay, on another one.
 */
RF_TEST(exec_faults, a_recording_that_fails_costs_the_replay_only, .timeout_ms = 60000) {
    static const char *const settings[] = {"stale=1,fault=hipStreamEndCapture:1+:901",
                                           "fault=hipStreamEndCapture:1+:1",
                                           "fault=hipGraphInstantiateWithFlags:1+:1", ""};
    static const char *const off[] = {"RF_REPLAY=off", NULL};
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(settings); i++) {
        pid_t child = fork(); /* the driver reads its settings once */
        RF_ASSERT(child >= 0);
        if (child == 0) {
            struct exec_block block = EXEC_SMALL_BLOCK;
            block.loose = true;
            struct rf_graph *graph = exec_block_graph(&block);
            struct exec_gpus gpus = {0};
            exec_open(&gpus, 1, settings[i], NULL, settings[i][0] ? NULL : off);
            struct rf_executor_params params = exec_params(graph, &gpus);
            struct exec_results plain = {0}, got = {0};
            struct rf_executor *executor = NULL;
            struct exec_split places = {SEED, 1}; /* several runs of nodes on the device, with the CPU in between */
            params.place = exec_split_place;
            params.user = &places;
            bool good = exec_run(&params, SEED, 3, &plain) == RF_OK;
            params.replay = true;
            good = good && exec_run(&params, SEED, 3, &got) == RF_OK && !exec_difference(&plain, &got, 0);
            good = good && rf_executor_create(&params, &executor) == RF_OK && !executor->assembly.segment_count;
            good = good && !gpu_sim_entry_calls("hipGraphLaunch");
            /* One attempt for each of the two executors, or none where recordings are off. */
            good = good && gpu_sim_entry_calls("hipStreamBeginCapture") == (settings[i][0] ? 2 : 0);
            if (!good) fprintf(stderr, "%s: %s\n", settings[i], rf_error_text());
            rf_executor_destroy(&executor);
            exec_results_free(&plain);
            exec_results_free(&got);
            rf_graph_destroy(&graph);
            exec_close(&gpus);
            _exit(good ? 0 : 1);
        }
        int status = 0;
        RF_ASSERT(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) RF_NOTE("with '%s'", settings[i]);
        RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* ---- a fault at every driver call ---- */

/* Nodes alternate between device and CPU; there are few kernels, and so few driver calls. */
static struct rf_graph *short_graph(void) {
    struct rf_graph *graph = graph_new("short");
    rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4, 64), w = GRAPH_CONSTANT(graph, "w", 3, 64);
    rf_tensor_id a = GRAPH_VALUE(graph, 4, 64), b = GRAPH_VALUE(graph, 4, 64), c = GRAPH_VALUE(graph, 4, 64);
    rf_tensor_id d = GRAPH_VALUE(graph, 4, 64), e = GRAPH_VALUE(graph, 4, 64);
    GRAPH_NODE(graph, "device_norm", "rms_norm", F0(1e-5), x, w, a);
    GRAPH_NODE(graph, "host_scale", "scale", F0(0.5), a, b);
    GRAPH_NODE(graph, "device_add", "add", NONE, a, b, c);
    GRAPH_NODE(graph, "device_softmax", "softmax", NONE, c, d);
    GRAPH_NODE(graph, "host_add", "add", NONE, d, c, e);
    RF_ASSERT_OK(rf_graph_finish(graph));
    return graph;
}
static int by_name(void *user, const char *node) {
    (void)user;
    return strncmp(node, "device", 6) ? -1 : 0;
}

/* What a child process runs. step 0 only counts calls; otherwise it is the call that returns the code. Exit status: 0
 * right, 2 there are fewer calls. */
static int fault_child(long step, const char *code, bool replay, int counts_to) {
    struct gpu first = {0};
    char rfsim[64];
    gpu_set_sim("");
    gpu_make_runtime(&first, NULL);
    if (!rf_gpu_available(first.runtime)) return 3;
    snprintf(rfsim, sizeof rfsim, "fault=any:%ld:%s", step, code);
    if (step) gpu_set_sim(rfsim);
    RF_PARAMS(struct rf_device_params, device_params);
    device_params.modules = "add,scale,softmax,rms_norm,copy";
    struct rf_device *device = NULL;
    RF_ASSERT_OK(rf_device_open_checked(first.runtime, &device_params, &device));
    long opened = (long)gpu_sim_calls();
    struct rf_graph *graph = short_graph();
    struct exec_results want = exec_reference(graph, 5, 1), got = {0};
    struct rf_executor_params params = {.struct_size = sizeof params,
                                        .graph = graph,
                                        .cpu_threads = 1,
                                        .devices = &device,
                                        .device_count = 1,
                                        .place = by_name,
                                        .replay = replay};
    struct rf_executor *executor = NULL;
    rf_status status = rf_executor_create(&params, &executor);
    bool created = !status;
    if (!status) status = exec_write(executor, graph, 5);
    if (!status) status = rf_executor_run(executor);
    if (!status) status = exec_read(executor, graph, &got);
    if (!step) {
        long total[2] = {opened, 0};
        RF_ASSERT_OK(status);
        RF_ASSERT_OK(rf_executor_destroy(&executor));
        total[1] = (long)gpu_sim_calls();
        return write(counts_to, total, sizeof total) == sizeof total ? 0 : 4;
    }
    if (status) {
        bool lost = rf_device_status(device) == RF_E_DEVICE_LOST;
        RF_NOTE("call %ld gives %s: %s", step, code, rf_status_name(status));
        RF_ASSERT(status == RF_E_DEVICE_LOST || status == RF_E_DRIVER || status == RF_E_DEVICE_MEMORY ||
                  status == RF_E_BUDGET || status == RF_E_NO_MEMORY || status == RF_E_UNSUPPORTED);
        RF_ASSERT((status == RF_E_DEVICE_LOST) == lost);
        if (!created) {
            RF_ASSERT(executor == NULL);
            if (lost) params.device_count = 0, params.place = NULL;
            RF_ASSERT_OK(rf_executor_create(&params, &executor));
        } else if (lost) {
            RF_ASSERT_STATUS(rf_executor_run(executor), RF_E_DEVICE_LOST);
            RF_ASSERT_OK(rf_executor_replan(executor, NULL, 0, NULL));
        }
        RF_ASSERT_OK(exec_write(executor, graph, 5));
        RF_ASSERT_OK(rf_executor_run(executor));
        RF_ASSERT_OK(exec_read(executor, graph, &got));
    }
    const char *difference = exec_difference(&want, &got, 1e-4);
    if (difference) RF_FAIL("call %ld gives %s: %s", step, code, difference);
    rf_status ended = rf_executor_destroy(&executor); /* the fault may strike in the clean-up */
    RF_NOTE("destroy: %s", rf_status_name(ended));
    struct rf_memory_info info = {.struct_size = sizeof info};
    rf_status asked = rf_device_memory_info(device, &info);
    if (asked) asked = rf_device_memory_info(device, &info); /* the fault may strike this very call, once */
    RF_ASSERT_OK(asked);
    RF_ASSERT_INT(info.live_count, 0);
    bool reached = (long)gpu_sim_calls() >= step;
    rf_device_close(&device);
    rf_runtime_destroy(&first.runtime);
    RF_ASSERT_INT(gpu_sim_traps(), 0);
    return reached ? 0 : 2;
}

static void fault_everywhere(const char *code, bool replay) {
    int ends[2];
    long counts[2] = {0, 0};
    int failures = 0, status = 0, missed = 0;
    gpu_need_simulated("");
    gpu_folder(); /* made here for all children */
    RF_ASSERT(pipe(ends) == 0);
    for (long step = 0;; step = step ? step + 1 : counts[0] + 1) {
        fflush(NULL);
        pid_t child = fork(); /* before any driver is loaded in this process */
        RF_ASSERT(child >= 0);
        if (!child) _exit(fault_child(step, code, replay, ends[1]));
        RF_ASSERT(waitpid(child, &status, 0) == child);
        if (!step) {
            RF_ASSERT(status == 0 && read(ends[0], counts, sizeof counts) == sizeof counts);
            RF_NOTE("calls %ld to %ld", counts[0] + 1, counts[1]);
            RF_ASSERT(counts[1] - counts[0] > 20);
            continue;
        }
        /* How often a wait polls depends on time, and so does the number of calls: the end is reached when several
         * children in a row make fewer calls. */
        bool fewer = WIFEXITED(status) && WEXITSTATUS(status) == 2;
        missed = fewer ? missed + 1 : 0;
        if (missed == 6) break;
        if (status && !fewer) {
            failures++;
            RF_NOTE("call %ld: status %#x", step, status);
        }
        RF_ASSERT(step < counts[1] + 2000);
    }
    close(ends[0]);
    close(ends[1]);
    RF_EXPECT_INT(failures, 0);
}

RF_TEST(exec_faults, loss_at_every_driver_call, .timeout_ms = 1500000) {
    fault_everywhere("700", false);
}
RF_TEST(exec_faults, loss_at_every_driver_call_of_a_replay, .timeout_ms = 1500000) {
    fault_everywhere("999", true);
}
RF_TEST(exec_faults, out_of_memory_at_every_driver_call, .timeout_ms = 1500000) {
    fault_everywhere("2", true);
}
RF_TEST(exec_faults, an_error_at_every_driver_call, .timeout_ms = 1500000) {
    fault_everywhere("801", false);
}

/* An asynchronous fault: the work itself fails, and a later call reports it. */
RF_TEST(exec_faults, a_device_lost_while_running, .timeout_ms = 600000) {
    struct exec_gpus gpus = {.modules = "add,scale,softmax,rms_norm,copy"};
    exec_open(&gpus, 1, "fault=hipModuleLaunchKernel:2:work/700", NULL, NULL);
    struct rf_graph *graph = short_graph();
    struct exec_results want = exec_reference(graph, 5, 1), got = {0};
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    params.place = by_name;
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_ASSERT_STATUS(rf_executor_run(executor), RF_E_DEVICE_LOST);
    RF_ASSERT_OK(rf_executor_replan(executor, NULL, 0, NULL));
    /* Contents that were only on the device are zeros again; x was there. */
    float x[256] = {1};
    RF_ASSERT_OK(rf_executor_read(executor, rf_graph_find(graph, "x"), x, sizeof x));
    RF_EXPECT(x[0] == 0);
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_ASSERT_OK(rf_executor_run(executor));
    RF_ASSERT_OK(exec_read(executor, graph, &got));
    expect_right(&want, &got, "on the CPU", 0);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    RF_EXPECT_INT(exec_memory(gpus.devices[0]).live_count, 0);
    RF_EXPECT_STATUS(rf_device_close(&gpus.devices[0]), RF_E_DEVICE_LOST);
    rf_runtime_destroy(&gpus.runtime);
}

RF_TEST(exec_faults, a_deadline_is_kept, .timeout_ms = 600000) {
    struct exec_gpus gpus = {.modules = "add,scale,softmax,rms_norm,copy"};
    exec_open(&gpus, 1, "fault=hipModuleLaunchKernel:1:work/hang", NULL, NULL);
    struct rf_graph *graph = short_graph();
    struct exec_results want = exec_reference(graph, 5, 1), got = {0};
    struct rf_executor_params params = exec_params(graph, &gpus);
    struct rf_executor *executor = NULL;
    params.place = by_name;
    params.timeout_ns = RF_MS(200);
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_ASSERT_STATUS(rf_executor_run(executor), RF_E_TIMEOUT);
    RF_ASSERT_STATUS(rf_executor_run(executor), RF_E_TIMEOUT); /* it waits for the first run, which still hangs */
    gpu_sim_release_hangs();
    rf_status status;
    do status = rf_executor_run(executor); /* on a loaded machine the end of the first run may take longer, too */
    while (status == RF_E_TIMEOUT);
    RF_ASSERT_OK(status);
    RF_ASSERT_OK(exec_read(executor, graph, &got));
    expect_right(&want, &got, "after the deadline", 0);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    exec_results_free(&want);
    rf_graph_destroy(&graph);
    exec_close(&gpus);
}

/* A run on the CPU alone has a deadline too: it is looked at before each node. */
RF_TEST(exec_faults, a_deadline_is_kept_on_the_cpu) {
    struct rf_graph *graph = short_graph();
    struct rf_executor_params params = exec_params(graph, NULL);
    struct rf_executor *executor = NULL;
    params.timeout_ns = 1; /* over before the last node begins */
    RF_ASSERT_OK(rf_executor_create(&params, &executor));
    RF_ASSERT_OK(exec_write(executor, graph, 5));
    RF_EXPECT_STATUS(rf_executor_run(executor), RF_E_TIMEOUT);
    RF_EXPECT_CONTAINS(rf_error_text(), "graph 'short': the deadline passed before node '");
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    rf_graph_destroy(&graph);
}

/* ---- many threads, one device ---- */

enum { THREADS = 16 };
struct worker {
    struct exec_gpus *gpus;
    struct rf_graph *graph;
    struct exec_results want;
    uint64_t seed;
    int rounds;
    char wrong[256];
};

static void *work(void *user) {
    struct worker *worker = user;
    struct rf_executor_params params = exec_params(worker->graph, worker->gpus);
    struct rf_executor *executor = NULL;
    params.replay = worker->seed % 2;
    /* Half of the workers make a new executor now and then, so that memory moves too. */
    for (int round = 0; round < worker->rounds && !worker->wrong[0]; round++) {
        struct exec_results got = {0};
        rf_status status = executor ? RF_OK : rf_executor_create(&params, &executor);
        if (!status) status = exec_write(executor, worker->graph, worker->seed);
        if (!status) status = rf_executor_run(executor);
        if (!status) status = exec_read(executor, worker->graph, &got);
        if (!status && worker->seed % 4 == 0 && round % 16 == 15) status = rf_executor_destroy(&executor);
        if (status) {
            snprintf(worker->wrong, sizeof worker->wrong, "round %d: %s", round, rf_error_text());
            break;
        }
        /* The results must be those of a run alone, to the bit. */
        if (!worker->want.data) {
            worker->want = got;
            continue;
        }
        const char *difference = exec_difference(&worker->want, &got, 0);
        if (difference) snprintf(worker->wrong, sizeof worker->wrong, "round %d: %s", round, difference);
        exec_results_free(&got);
    }
    rf_executor_destroy(&executor);
    return NULL;
}

static void together(int rounds) {
    struct exec_gpus gpus = {0};
    struct worker workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    exec_open(&gpus, 1, "", NULL, NULL);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker){.gpus = &gpus, .graph = exec_random_graph(100 + i), .seed = 100 + i, .rounds = 1};
        work(&workers[i]); /* first each worker alone */
        RF_ASSERT(!workers[i].wrong[0] && workers[i].want.data);
        struct exec_results truth = exec_reference(workers[i].graph, 100 + i, 1);
        const char *difference = exec_difference(&truth, &workers[i].want, 2e-3);
        if (difference) RF_FAIL("thread %d alone: %s", (int)i, difference);
        exec_results_free(&truth);
        workers[i].rounds = rounds;
    }
    for (int i = 0; i < THREADS; i++) RF_ASSERT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++) RF_ASSERT(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].wrong[0]) RF_FAIL("thread %d: %s", i, workers[i].wrong);
        exec_results_free(&workers[i].want);
        rf_graph_destroy(&workers[i].graph);
    }
    exec_close(&gpus);
}

RF_TEST(exec_faults, sixteen_threads_as_alone, .gpu = true, .timeout_ms = 1800000) {
    together(20);
}
RF_TEST(exec_faults, sixteen_threads_a_thousand_rounds, .gpu = true, .timeout_ms = 1800000, .tags = "slow") {
    together(1000);
}
