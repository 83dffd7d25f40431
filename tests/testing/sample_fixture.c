/* GPU tests on the fixture that behave and that misbehave, for test_fixture.c to run on the
 * simulated driver. */
#include <rocmforge/test.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct rf_kernel_image test_images[];
extern const size_t test_image_count;
extern const int test_image_groups[];

__attribute__((constructor)) static void give_images(void) {
    rf_fixture_images(test_images, test_image_groups, test_image_count);
}

static struct rf_buffer *make(uint64_t bytes) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.zeroed = true;
    params.label = "sample";
    RF_ASSERT_OK(rf_buffer_create_safe(rf_fixture(), &params, &buffer));
    return buffer;
}

static rf_status launch(struct rf_queue *queue, const char *name, const struct rf_arg *args, size_t count) {
    const struct rf_kernel *kernel = NULL;
    RF_ASSERT_OK(rf_kernel_find(rf_fixture(), name, &kernel));
    RF_PARAMS(struct rf_launch, params);
    params.kernel = kernel;
    params.grid[0] = params.block[0] = 1;
    params.args = args;
    params.arg_count = count;
    return rf_queue_launch(queue, &params);
}

/* ---- well-behaved ---- */

RF_TEST(good, works, .gpu = true) {
    struct rf_queue *queue = rf_fixture_queue();
    RF_ASSERT_POINTER(rf_fixture_device(), rf_fixture());
    RF_ASSERT_POINTER(rf_queue_device(queue), rf_fixture());
    RF_ASSERT_POINTER(rf_fixture_queue(), queue);
    struct rf_buffer *buffer = make(4096);
    RF_ASSERT_BUFFER_ZERO(queue, buffer);
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_i64(1)};
    RF_ASSERT_OK(launch(queue, "increment", args, 2));
    uint32_t expected[1024] = {1};
    RF_ASSERT_BUFFER(queue, buffer, RF_I32, expected, 1024, rf_exact());
    RF_ASSERT_OK(rf_fill(queue, buffer, 0, 4096, 0x5a));
    RF_ASSERT_BUFFER_BYTES(queue, buffer, 0x5a);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    rf_fixture_assert_no_leak(0);
}
RF_TEST(good, figures, .gpu = true) {
    RF_PARAMS(struct rf_memory_info, now);
    rf_fixture_memory_stats(&now);
    RF_NOTE("%s has %llu MiB", rf_fixture_device_name(), (unsigned long long)rf_fixture_total_mb());
    RF_ASSERT(rf_fixture_available());
    RF_ASSERT_UINT(rf_fixture_total_mb(), now.total_bytes >> 20);
    RF_ASSERT(rf_fixture_free_mb() <= rf_fixture_total_mb() && rf_fixture_free_mb() > 0);
    RF_ASSERT(rf_fixture_safe_mb() <= rf_fixture_free_mb() && rf_fixture_safe_mb() > 0);
}

static void *take_queue(void *user) {
    struct rf_queue *queue = rf_fixture_queue();
    *(struct rf_queue **)user = queue;
    struct rf_buffer *buffer = make(64);
    RF_EXPECT_OK(rf_fill(queue, buffer, 0, 64, 1));
    RF_EXPECT_OK(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
    RF_EXPECT_OK(rf_buffer_destroy(&buffer));
    return NULL;
}
RF_TEST(good, threads, .gpu = true) {
    /* The threads race to open the fixture, too. */
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct rf_queue *queues[THREADS] = {NULL};
    for (int i = 0; i < THREADS; i++) RF_ASSERT(pthread_create(&threads[i], NULL, take_queue, &queues[i]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) RF_ASSERT_NOT_NULL(queues[i]);
    rf_fixture_assert_no_leak(0);
}

/* What a suite's set-up makes outlives the tests. */
static struct rf_buffer *shared;
static void shared_up(void) {
    shared = make(256);
}
static void shared_down(void) {
    RF_ASSERT_OK(rf_buffer_destroy(&shared));
}
RF_SUITE(sharing, .setup = shared_up, .teardown = shared_down);
RF_TEST(sharing, one, .gpu = true) {
    RF_ASSERT_BUFFER_ZERO(rf_fixture_queue(), shared);
    rf_fixture_assert_no_leak(0);
}
RF_TEST(sharing, two, .gpu = true) {
    RF_ASSERT_BUFFER_ZERO(rf_fixture_queue(), shared);
}
static void leaky_up(void) {
    make(128);
}
RF_SUITE(leaky, .setup = leaky_up);
RF_TEST(leaky, passes_itself, .gpu = true) {
    RF_ASSERT(true);
}

static void inner_good(struct rf_device *device, void *user) {
    RF_ASSERT_POINTER(device, rf_fixture());
    struct rf_buffer *buffer = make(64);
    ++*(int *)user;
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
RF_TEST(good, inner, .gpu = true) {
    int ran = 0;
    struct rf_buffer *outer = make(64);
    rf_fixture_run(inner_good, &ran);
    RF_ASSERT_INT(ran, 1);
    RF_ASSERT_BUFFER_ZERO(rf_fixture_queue(), outer); /* the sweep inside left it alone */
    RF_ASSERT_OK(rf_buffer_destroy(&outer));
}

/* ---- misbehaving ---- */

RF_TEST(bad, leaks_one_byte, .gpu = true) {
    make(1);
}
RF_TEST(bad, leaks_and_asserts, .gpu = true) {
    make(3);
    make(4000);
    rf_fixture_assert_no_leak(100);
    RF_NOTE("never reached");
}
RF_TEST(bad, leaks_pinned, .gpu = true) {
    struct rf_pinned *pinned = NULL;
    RF_ASSERT_OK(rf_pinned_create(rf_fixture(), 100, &pinned));
}
RF_TEST(bad, leaks_many, .gpu = true) {
    for (int i = 0; i < 30; i++) make(16);
}
RF_TEST(bad, leaves_a_queue, .gpu = true) {
    struct rf_queue *queue = NULL;
    RF_ASSERT_OK(rf_queue_create(rf_fixture(), NULL, &queue));
}
RF_TEST(bad, fails_with_a_buffer, .gpu = true) {
    make(512);
    RF_FAIL("with a buffer in hand");
}
RF_TEST(bad, skips_with_a_buffer, .gpu = true) {
    make(512);
    RF_SKIP("with a buffer in hand");
}
RF_TEST(bad, fails_while_the_gpu_works, .gpu = true) {
    struct rf_buffer *buffer = make(64);
    struct rf_arg spin[] = {rf_arg_i64(RF_MS(100))}, args[] = {rf_arg_buffer(buffer), rf_arg_i64(16)};
    for (int i = 0; i < 3; i++) RF_ASSERT_OK(launch(rf_fixture_queue(), "spin_ns", spin, 1));
    RF_ASSERT_OK(launch(rf_fixture_queue(), "increment", args, 2));
    RF_FAIL("in the middle of it");
}
static void *fail_with_queue(void *user) {
    struct rf_buffer *buffer = make(24);
    RF_ASSERT_OK(rf_fill(rf_fixture_queue(), buffer, 0, 24, 1));
    RF_ASSERT(user != NULL);
    return NULL;
}
RF_TEST(bad, fails_on_a_thread, .gpu = true) {
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, fail_with_queue, NULL) == 0);
    pthread_join(thread, NULL);
}
RF_TEST(bad, not_zero, .gpu = true) {
    struct rf_queue *queue = rf_fixture_queue();
    struct rf_buffer *buffer = make(6400);
    RF_ASSERT_OK(rf_fill(queue, buffer, 100, 100, 7));
    RF_ASSERT_OK(rf_fill(queue, buffer, 6399, 1, 9));
    RF_EXPECT_BUFFER_ZERO(queue, buffer);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
RF_TEST(bad, no_buffer, .gpu = true) {
    struct rf_buffer *buffer = NULL;
    RF_EXPECT_BUFFER_ZERO(rf_fixture_queue(), buffer);
}
RF_TEST(bad, wrong_values, .gpu = true) {
    struct rf_queue *queue = rf_fixture_queue();
    struct rf_buffer *buffer = make(40);
    float expected[10] = {0, 0, 3};
    RF_EXPECT_BUFFER(queue, buffer, RF_F32, expected, 11, rf_exact());
    RF_EXPECT_BUFFER(queue, buffer, RF_F32, expected, 10, rf_absolute(1e-3));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
RF_TEST(bad, writes_past_the_end, .gpu = true) {
    struct rf_buffer *buffer = make(400);
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_i64(100), rf_arg_u32(1)};
    RF_ASSERT_OK(launch(rf_fixture_queue(), "out_of_bounds", args, 3));
    RF_ASSERT_OK(rf_queue_wait(rf_fixture_queue(), RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
RF_TEST(bad, writes_past_the_end_and_keeps_it, .gpu = true) {
    struct rf_buffer *buffer = make(400);
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_i64(100), rf_arg_u32(1)};
    RF_ASSERT_OK(launch(rf_fixture_queue(), "out_of_bounds", args, 3));
}
RF_TEST(bad, hangs_the_gpu, .gpu = true) {
    struct rf_buffer *flag = make(4), *outcome = make(4);
    struct rf_arg args[] = {rf_arg_buffer(flag), rf_arg_buffer(outcome), rf_arg_i64(INT64_MAX)};
    RF_ASSERT_OK(launch(rf_fixture_queue(), "spin_forever_flag", args, 3));
}
RF_TEST(bad, loses_the_gpu, .gpu = true) {
    /* Run with a fault in RFSIM. */
    struct rf_buffer *buffer = make(64);
    struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_i64(1)};
    RF_EXPECT_OK(launch(rf_fixture_queue(), "increment", args, 2));
    rf_queue_wait(rf_fixture_queue(), RF_TIMEOUT_DEFAULT);
}
RF_TEST(bad, says_nothing_of_a_gpu) {
    rf_fixture();
}
RF_TEST(bad, configures_late, .gpu = true) {
    rf_fixture();
    rf_fixture_images(NULL, NULL, 0);
}
/* As a program would that was built for a newer harness. */
struct newer_params {
    struct rf_fixture_params known;
    uint64_t more;
};
RF_TEST(newer, configures_with_what_is_known, .gpu = true) {
    struct newer_params params = {.known = {.struct_size = sizeof params, .budget = "50MiB"}};
    RF_PARAMS(struct rf_memory_info, memory);
    rf_fixture_configure(&params.known);
    rf_fixture_memory_stats(&memory);
    RF_ASSERT_UINT(memory.budget_bytes, 50 << 20);
}
RF_TEST(newer, configures_with_what_is_not, .gpu = true) {
    struct newer_params params = {.known = {.struct_size = sizeof params}, .more = 1};
    rf_fixture_configure(&params.known);
}
RF_TEST(newer, configures_without_a_size, .gpu = true) {
    struct rf_fixture_params params = {0};
    rf_fixture_configure(&params);
}
RF_TEST(bad, forks, .gpu = true) {
    rf_fixture();
    pid_t child = fork();
    if (child == 0) {
        rf_fixture();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
}
/* Memory that the ledger never sees, from the driver itself. */
static void *driver_function(const char *name) {
    char line[1024], *path = NULL;
    rf_fixture();
    FILE *maps = fopen("/proc/self/maps", "r");
    RF_ASSERT(maps != NULL);
    while (!path && fgets(line, sizeof line, maps))
        if (strstr(line, "/librfsim-hip.so")) path = strchr(line, '/');
    fclose(maps);
    RF_ASSERT(path != NULL);
    path[strcspn(path, "\n")] = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    RF_ASSERT(library != NULL);
    void *function = dlsym(library, name);
    dlclose(library); /* the fixture keeps it open */
    RF_ASSERT(function != NULL);
    return function;
}
static void *take_past_the_ledger(size_t bytes) {
    int (*allocate)(void **, size_t);
    void *function = driver_function("hipMalloc"), *memory = NULL;
    memcpy(&allocate, &function, sizeof allocate);
    RF_ASSERT_INT(allocate(&memory, bytes), 0);
    return memory;
}
RF_TEST(past, leak_0, .gpu = true) {
    take_past_the_ledger((size_t)512 << 20);
    rf_fixture_assert_no_leak(0);
}
RF_TEST(past, leak_1, .gpu = true) {
    take_past_the_ledger((size_t)512 << 20);
    rf_fixture_assert_no_leak(1);
}
RF_TEST(past, leak_5, .gpu = true) {
    take_past_the_ledger((size_t)512 << 20);
    rf_fixture_assert_no_leak(5);
}
RF_TEST(past, comes_back, .gpu = true) {
    int (*give_back)(void *);
    void *function = driver_function("hipFree");
    memcpy(&give_back, &function, sizeof give_back);
    RF_ASSERT_INT(give_back(take_past_the_ledger((size_t)512 << 20)), 0);
    rf_fixture_assert_no_leak(1);
}
RF_TEST(past, wrong_percentage, .gpu = true) {
    rf_fixture_assert_no_leak(-1);
}
static void inner_bad(struct rf_device *device, void *user) {
    (void)device, (void)user;
    make(77);
    RF_FAIL("inside");
}
RF_TEST(bad, inner, .gpu = true) {
    rf_fixture_run(inner_bad, NULL);
    RF_NOTE("never reached");
}

/* Registered, and so run, behind the bad ones. */
RF_TEST(later, on_the_gpu, .gpu = true) {
    struct rf_buffer *buffer = make(64);
    RF_ASSERT_BUFFER_ZERO(rf_fixture_queue(), buffer);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    rf_fixture_assert_no_leak(0);
}
RF_TEST(later, on_the_gpu_again, .gpu = true) {
    rf_fixture();
}
RF_TEST(later, on_the_cpu) {
    RF_NOTE("no GPU needed");
}
