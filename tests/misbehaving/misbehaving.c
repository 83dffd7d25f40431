/* Tests that misbehave on purpose, one fault each. test_misbehaving.c runs them through the runner and looks
 * at what it makes of them; by themselves they fail, or worse.
 *
 * Two of them pass until a check is on: what they do wrong is invisible without guard bands or
 * poison. Those that need a broken driver ask the simulated one to break and skip elsewhere. */
#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a little of the device ---- */

static struct rf_queue *new_queue(void) {
    struct rf_queue *queue = NULL;
    RF_ASSERT_OK(rf_queue_create(rf_fixture_device(), NULL, &queue));
    return queue;
}

static struct rf_buffer *new_buffer(uint64_t bytes) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.label = "misbehaving";
    RF_ASSERT_OK(rf_buffer_create_safe(rf_fixture_device(), &params, &buffer));
    return buffer;
}

/* Ones from the start of the buffer, as many as asked for, whatever its size. */
static rf_status fill(struct rf_queue *queue, struct rf_buffer *buffer, uint64_t count) {
    const struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_f32(1), rf_arg_i64((int64_t)count)};
    RF_PARAMS(struct rf_launch, launch);
    RF_ASSERT_OK(rf_kernel_find(rf_fixture_device(), "fill_f32", &launch.kernel));
    launch.grid[0] = 1;
    launch.block[0] = 64;
    launch.args = args;
    launch.arg_count = 3;
    return rf_queue_launch(queue, &launch);
}

/* The simulated driver with a fault; before the fixture is first used. */
static void break_driver(const char *fault) {
    const char *driver = getenv("RF_DRIVER");
    if (!driver || strcmp(driver, "sim")) RF_SKIP("needs the simulated driver: set RF_DRIVER=sim");
    RF_ASSERT(setenv("RFSIM", fault, 1) == 0);
}

/* ---- memory ---- */

RF_TEST(misbehaving, leaks_one_byte, .gpu = true) {
    new_buffer(1);
}

/* Looks well: what it reads back is right. */
RF_TEST(misbehaving, writes_one_element_past_a_buffer, .gpu = true) {
    float got[100];
    struct rf_queue *queue = new_queue();
    struct rf_buffer *buffer = new_buffer(sizeof got);
    RF_ASSERT_OK(fill(queue, buffer, 101));
    RF_ASSERT_OK(rf_copy_from_device_safe(queue, got, buffer, 0, sizeof got));
    RF_EXPECT(got[99] == 1);
    RF_EXPECT_OK(rf_buffer_destroy(&buffer));
    RF_EXPECT_OK(rf_queue_destroy(&queue));
}

/* Two buffers of equal size; the first one's kernel runs on into the second. */
RF_TEST(misbehaving, corrupts_a_neighbour, .gpu = true) {
    struct rf_queue *queue = new_queue();
    struct rf_buffer *mine = new_buffer(4096), *neighbour = new_buffer(4096);
    uint64_t low = rf_buffer_address(mine), high = rf_buffer_address(neighbour);
    struct rf_buffer *lower = low < high ? mine : neighbour;
    uint64_t distance = low < high ? high - low : low - high;
    RF_ASSERT_OK(fill(queue, lower, distance / sizeof(float) + 1));
    RF_ASSERT_OK(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
    RF_EXPECT_OK(rf_buffer_destroy(&mine));
    RF_EXPECT_OK(rf_buffer_destroy(&neighbour));
    RF_EXPECT_OK(rf_queue_destroy(&queue));
}

/* Takes fresh memory for zero. It is, by luck: the pool hands out the block that came back last. */
RF_TEST(misbehaving, reads_uninitialised_memory, .gpu = true) {
    enum { COUNT = 1 << 19 }; /* too large to be a part of a block */
    static float zeros[COUNT], got[COUNT];
    struct rf_queue *queue = new_queue();
    struct rf_buffer *first = new_buffer(sizeof zeros);
    RF_ASSERT_OK(rf_copy_to_device_safe(queue, first, 0, zeros, sizeof zeros));
    RF_ASSERT_OK(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_buffer_destroy(&first));
    struct rf_buffer *second = new_buffer(sizeof zeros);
    RF_ASSERT_OK(rf_copy_from_device_safe(queue, got, second, 0, sizeof got));
    RF_ASSERT_OK(rf_buffer_destroy(&second));
    RF_ASSERT_OK(rf_queue_destroy(&queue));
    RF_ASSERT_FLOATS(got, zeros, COUNT, 0, 0);
}

/* ---- the device ---- */

/* A kernel that never ends. The wait has a deadline, but a longer one than the test. */
RF_TEST(misbehaving, hangs_the_gpu, .gpu = true, .timeout_ms = 1000) {
    break_driver("fault=hipModuleLaunchKernel:1:work/hang");
    struct rf_queue *queue = new_queue();
    struct rf_buffer *buffer = new_buffer(4096);
    RF_ASSERT_OK(fill(queue, buffer, 10));
    RF_ASSERT_OK(rf_queue_wait(queue, RF_MS(60000)));
}

/* The same, noticed by the test's own wait, and then by the fixture behind it. */
RF_TEST(misbehaving, hangs_the_gpu_and_sees_it, .gpu = true, .timeout_ms = 30000) {
    setenv("RF_TIMEOUT_MS", "1500", 1);
    break_driver("fault=hipModuleLaunchKernel:1:work/hang");
    struct rf_queue *queue = new_queue();
    struct rf_buffer *buffer = new_buffer(4096);
    RF_ASSERT_OK(fill(queue, buffer, 10));
    RF_ASSERT_OK(rf_queue_wait(queue, RF_MS(100)));
}

RF_TEST(misbehaving, loses_the_device, .gpu = true) {
    break_driver("fault=hipModuleLaunchKernel:1:work/loss");
    struct rf_queue *queue = new_queue();
    struct rf_buffer *buffer = new_buffer(4096);
    RF_ASSERT_OK(fill(queue, buffer, 10));
    RF_ASSERT_OK(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT));
}

/* ---- the process ---- */

RF_TEST(misbehaving, crashes) {
    signal(SIGSEGV, SIG_DFL); /* without a sanitizer's report */
    kill(getpid(), SIGSEGV);
    pause();
}

static void *sleep_for_ever(void *unused) {
    while (pause() == -1) continue;
    return unused;
}

RF_TEST(misbehaving, leaks_a_thread) {
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
    RF_ASSERT(pthread_detach(thread) == 0);
}

RF_TEST(misbehaving, forks_and_leaves_a_child) {
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child == 0) sleep_for_ever(NULL);
    RF_NOTE("left %d behind", (int)child);
}

/* Fails every third time that it runs. The count is kept in the file that MISBEHAVING_COUNTER names. */
RF_TEST(misbehaving, fails_every_third_time) {
    const char *path = getenv("MISBEHAVING_COUNTER");
    if (!path) RF_SKIP("set MISBEHAVING_COUNTER to a file that counts the runs");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    RF_ASSERT(file >= 0);
    RF_ASSERT(write(file, "x", 1) == 1);
    off_t runs = lseek(file, 0, SEEK_CUR);
    close(file);
    RF_ASSERT(runs % 3 != 0);
}

/* 64 MiB of lines, the last of which look like a verdict. */
RF_TEST(misbehaving, fills_stdout) {
    static char line[1024];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 64 * 1024; i++) RF_ASSERT(fwrite(line, 1, sizeof line, stdout) == sizeof line);
    puts("ok    misbehaving.crashes  0.00 s\n999 passed, 0 failed, 0 skipped");
}
