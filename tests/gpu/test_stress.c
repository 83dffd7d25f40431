/* Many threads, each with a queue of its own, on one device: the results are those of a thread alone. The seeds
 * (docs/from-the-seeds.md) had tests that passed alone and failed together; this tests the device layer for that
 * failure. */
#include "gpu_testing.h"
#include "base/sanitizers.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

struct worker {
    struct gpu *gpu;
    int rounds, index;
    int differences;
    char first[160];
};

static void differs(struct worker *worker, const char *what, size_t at, double got, double want) {
    if (!worker->differences++)
        snprintf(worker->first, sizeof worker->first, "thread %d: %s[%zu] is %g, expected %g", worker->index, what,
                 at, got, want);
}

static struct rf_buffer *take(struct worker *worker, struct rf_queue *queue, uint64_t bytes, bool hint) {
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *buffer = NULL;
    params.bytes = bytes;
    params.queue = hint ? queue : NULL;
    RF_ASSERT_OK(rf_buffer_create_safe(worker->gpu->device, &params, &buffer));
    return buffer;
}

static void one_round(struct worker *worker, struct rf_queue *queue, struct rf_random *random) {
    struct gpu *gpu = worker->gpu;
    uint32_t count = 1 + (uint32_t)rf_random_below(random, 1500), seed = (uint32_t)rf_random_next(random);
    bool hint = rf_random_below(random, 2);
    struct rf_buffer *a = take(worker, queue, count * 4, hint), *b = take(worker, queue, count * 4, hint);
    uint32_t *got = malloc(count * 4);
    float *x = malloc(count * 4), *y = malloc(count * 4);
    switch (rf_random_below(random, 3)) {
    case 0:
        RF_ASSERT_OK(GPU_LAUNCH(queue, gpu_kernel(gpu, "write_pattern"), count, rf_arg_buffer(a), rf_arg_u32(seed),
                                rf_arg_i64(count)));
        RF_ASSERT_OK(GPU_LAUNCH(queue, gpu_kernel(gpu, "increment"), count, rf_arg_buffer(a), rf_arg_i64(count)));
        RF_ASSERT_OK(rf_copy_on_device(queue, b, 0, a, 0, count * 4));
        RF_ASSERT_OK(rf_copy_from_device_safe(queue, got, b, 0, count * 4));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t value = (seed + i) * 2654435761u, want = (value ^ value >> 16) + 1;
            if (got[i] != want) differs(worker, "pattern", i, got[i], want);
        }
        break;
    case 1:
        rf_random_floats(random, x, count, -4, 4);
        RF_ASSERT_OK(rf_copy_to_device_safe(queue, a, 0, x, count * 4));
        RF_ASSERT_OK(rf_copy_to_device_safe(queue, b, 0, x, count * 4));
        RF_ASSERT_OK(GPU_LAUNCH(queue, gpu_kernel(gpu, "add_f32"), count, rf_arg_buffer(b), rf_arg_buffer(a),
                                rf_arg_buffer(b), rf_arg_i64(count)));
        RF_ASSERT_OK(rf_copy_from_device_safe(queue, y, b, 0, count * 4));
        for (uint32_t i = 0; i < count; i++)
            if (y[i] != x[i] + x[i]) differs(worker, "sum", i, y[i], x[i] + x[i]);
        break;
    default: {
        rf_random_floats(random, x, count, -4, 4);
        RF_PARAMS(struct rf_launch, launch);
        struct rf_arg args[] = {rf_arg_buffer(b), rf_arg_buffer(a), rf_arg_i64(1), rf_arg_i64(count)};
        launch.kernel = gpu_kernel(gpu, "softmax_f32");
        launch.grid[0] = 1;
        launch.block[0] = 64;
        launch.args = args;
        launch.arg_count = 4;
        RF_ASSERT_OK(rf_copy_to_device_safe(queue, a, 0, x, count * 4));
        RF_ASSERT_OK(rf_queue_launch(queue, &launch));
        RF_ASSERT_OK(rf_copy_from_device_safe(queue, y, b, 0, count * 4));
        double sum = 0, largest = -INFINITY;
        for (uint32_t i = 0; i < count; i++) largest = x[i] > largest ? x[i] : largest;
        for (uint32_t i = 0; i < count; i++) sum += exp(x[i] - largest);
        for (uint32_t i = 0; i < count; i++) {
            double want = exp(x[i] - largest) / sum;
            if (!(fabs(y[i] - want) <= 1e-7 + 1e-5 * want)) differs(worker, "softmax", i, y[i], want);
        }
    }
    }
    RF_ASSERT_OK(rf_buffer_destroy(&a));
    RF_ASSERT_OK(rf_buffer_destroy(&b));
    free(got);
    free(x);
    free(y);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct rf_queue *queue = NULL;
    struct rf_random random = {rf_test_seed() * 1000 + (uint64_t)worker->index};
    RF_PARAMS(struct rf_queue_params, params);
    params.timeout_ns = RF_MS(120000); /* a loaded machine must not look like a stuck queue */
    RF_ASSERT_OK(rf_queue_create(worker->gpu->device, &params, &queue));
    for (int round = 0; round < worker->rounds; round++) {
        one_round(worker, queue, &random);
        if (rf_random_below(&random, 50) == 0) { /* queues come and go too */
            RF_ASSERT_OK(rf_queue_destroy(&queue));
            RF_ASSERT_OK(rf_queue_create(worker->gpu->device, &params, &queue));
        }
        if (rf_random_below(&random, 200) == 0) rf_device_trim(worker->gpu->device, 0);
    }
    RF_ASSERT_OK(rf_queue_destroy(&queue));
    return NULL;
}

static void stress(int rounds_in_all) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_TIMEOUT_MS=120000", NULL});
    gpu_open(&gpu, "2GiB");
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    int differences = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.gpu = &gpu, .rounds = (rounds_in_all + THREADS - 1) / THREADS, .index = i};
        RF_ASSERT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        differences += workers[i].differences;
        if (workers[i].differences) RF_NOTE("%s", workers[i].first);
    }
    RF_NOTE("%d rounds on %d threads, %d differences", workers[0].rounds * THREADS, THREADS, differences);
    RF_EXPECT_INT(differences, 0);
    gpu_close(&gpu);
}

static int wanted_rounds(void) {
    const char *asked = getenv("RF_STRESS_ROUNDS");
    return asked && atoi(asked) > 0 ? atoi(asked) : 10000;
}

RF_TEST(stress, sixty_four_threads_with_their_own_queues, .gpu = true, .timeout_ms = 1800000, .tags = "stress") {
    if (gpu_simulated()) gpu_set_sim("delay=5/20us");
    stress(wanted_rounds());
}

/* One thread submits and another looks at the same queue, turn by turn. The turns order nothing between the threads,
 * so thread sanitizer sees what the queue itself orders. The work does not end meanwhile: most submissions then have
 * no mark, which would be a driver call, and the simulated driver's lock would order the threads, too. */
struct turns {
    struct rf_queue *queue;
    atomic_int submitted, looked;
};
enum { TURNS = 100 };
static void wait_for_turn(atomic_int *turn, int value) {
    while (atomic_load_explicit(turn, memory_order_relaxed) < value) sched_yield();
}
static void *look_in_turn(void *user) {
    struct turns *turns = user;
    for (int i = 1; i <= TURNS; i++) {
        bool idle = true;
        wait_for_turn(&turns->submitted, i);
        RF_ASSERT_OK(rf_queue_idle(turns->queue, &idle));
        RF_EXPECT(!idle);
        atomic_store_explicit(&turns->looked, i, memory_order_relaxed);
    }
    return NULL;
}

RF_TEST(stress, a_queue_that_another_thread_looks_at, .gpu = true) {
    struct gpu gpu = {.modules = "fill"};
    struct gpu_hold hold;
    pthread_t thread;
    gpu_open(&gpu, NULL);
    struct turns turns = {.queue = gpu.queue};
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_INT(pthread_create(&thread, NULL, look_in_turn, &turns), 0);
    for (int i = 1; i <= TURNS; i++) {
        RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4096, 1));
        atomic_store_explicit(&turns.submitted, i, memory_order_relaxed);
        wait_for_turn(&turns.looked, i);
    }
    RF_ASSERT_INT(pthread_join(thread, NULL), 0);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* A queue that one thread fills and another waits for, while queues come and go and the pool is trimmed. Each goes
 * on until all have done their rounds, so that they meet. The counters order nothing between the threads. */
enum { LOOKER, MAKER, TRIMMER, SHARERS, ROUNDS = 1500 };
struct shared_queue {
    struct gpu *gpu;
    struct rf_buffer *buffer;
    atomic_int rounds[SHARERS];
    atomic_bool stop;
};
static bool goes_on(struct shared_queue *shared, int which) {
    atomic_fetch_add_explicit(&shared->rounds[which], 1, memory_order_relaxed);
    return !atomic_load_explicit(&shared->stop, memory_order_relaxed);
}
static void *look_at_it(void *user) {
    struct shared_queue *shared = user;
    while (goes_on(shared, LOOKER)) {
        bool idle;
        RF_ASSERT_OK(rf_queue_idle(shared->gpu->queue, &idle));
        RF_ASSERT_OK(rf_queue_wait(shared->gpu->queue, RF_TIMEOUT_DEFAULT));
    }
    return NULL;
}
static void *make_queues(void *user) {
    struct shared_queue *shared = user;
    while (goes_on(shared, MAKER)) {
        struct rf_queue *queue = NULL;
        RF_ASSERT_OK(rf_queue_create(shared->gpu->device, NULL, &queue));
        RF_ASSERT_OK(rf_queue_destroy(&queue));
    }
    return NULL;
}
static void *trim(void *user) {
    struct shared_queue *shared = user;
    while (goes_on(shared, TRIMMER)) {
        rf_status status = rf_device_trim(shared->gpu->device, RF_MS(20));
        RF_ASSERT(status == RF_OK || status == RF_E_TIMEOUT);
    }
    return NULL;
}

RF_TEST(stress, a_queue_that_threads_share, .gpu = true) {
    static void *(*const sharers[SHARERS])(void *) = {look_at_it, make_queues, trim};
    struct gpu gpu = {.modules = "fill"};
    pthread_t threads[SHARERS];
    unsigned char value = 0, last = 0;
    gpu_open(&gpu, NULL);
    struct shared_queue shared = {.gpu = &gpu, .buffer = gpu_buffer(&gpu, 4096)};
    for (int i = 0; i < SHARERS; i++) RF_ASSERT_INT(pthread_create(&threads[i], NULL, sharers[i], &shared), 0);
    for (bool all = false; !all;) {
        RF_ASSERT_OK(rf_fill(gpu.queue, shared.buffer, 0, 4096, ++value));
        all = true;
        for (int i = 0; i < SHARERS; i++)
            all &= atomic_load_explicit(&shared.rounds[i], memory_order_relaxed) >= ROUNDS;
    }
    atomic_store_explicit(&shared.stop, true, memory_order_relaxed);
    for (int i = 0; i < SHARERS; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &last, shared.buffer, 4095, 1));
    RF_EXPECT_INT(last, value);
    RF_ASSERT_OK(rf_buffer_destroy(&shared.buffer));
    gpu_close(&gpu);
}

/* Without ordering between queues the reader has a race; with ordering it never has. */
RF_TEST(stress, unordered_queues_race_and_ordered_ones_do_not, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_queue *reader = NULL;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &reader));
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4);
    const struct rf_kernel *increment = gpu_kernel(&gpu, "increment");
    struct gpu_hold hold;
    gpu_hold_prepare(&gpu, &hold);
    uint32_t seen = 9;
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4, 0));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, increment, 1, rf_arg_buffer(buffer), rf_arg_i64(1)));
#if !RF_UNDER_TSAN
    RF_ASSERT_OK(rf_copy_from_device_safe(reader, &seen, buffer, 0, 4));
    RF_EXPECT_INT(seen, 0);
#endif
    RF_ASSERT_OK(rf_queue_after(reader, gpu.queue));
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_copy_from_device_safe(reader, &seen, buffer, 0, 4));
    RF_EXPECT_INT(seen, 1);
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_queue_destroy(&reader));
    gpu_close(&gpu);
}

#if RF_UNDER_TSAN
/* Two queues write the same memory without ordering: ThreadSanitizer must report it, or the clean run above proves
 * nothing. */
RF_TEST(stress, a_planted_race_is_found) {
    gpu_need_simulated("");
    gpu_folder(); /* made here for all children */
    for (int round = 0; round < 10; round++) {
        fflush(NULL);
        pid_t child = fork();
        RF_ASSERT(child >= 0);
        if (!child) {
            struct gpu gpu = {0};
            gpu_open(&gpu, NULL);
            struct rf_queue *other = NULL;
            struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
            rf_queue_create(gpu.device, NULL, &other);
            const struct rf_kernel *racy = gpu_kernel(&gpu, "racy_neighbour");
            GPU_LAUNCH(gpu.queue, racy, 256, rf_arg_buffer(buffer), rf_arg_i64(1024));
            GPU_LAUNCH(other, racy, 256, rf_arg_buffer(buffer), rf_arg_i64(1024));
            rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT);
            rf_queue_wait(other, RF_TIMEOUT_DEFAULT);
            exit(0); /* ThreadSanitizer turns this into its own exit code after a report */
        }
        int status = 0;
        RF_ASSERT(waitpid(child, &status, 0) == child);
        RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 66);
    }
}
#endif
