/* Tests for test_runner*.c to run: they meet, exclude, pollute, leave things behind and count.
 * RUNNER_FOLDER names a folder of the run's own. */
#include <rocmforge/test.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *in_folder(const char *name) {
    static _Thread_local char path[512];
    const char *folder = getenv("RUNNER_FOLDER");
    if (!folder) RF_SKIP("RUNNER_FOLDER is not set");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void pause_ms(int ms) {
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

static void append(const char *file, const char *text) {
    int fd = open(in_folder(file), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    RF_ASSERT(fd >= 0);
    RF_ASSERT(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* ---- meeting: passes only where the other runs at the same time ---- */

static void meet(const char *own, const char *other) {
    append(own, "here\n");
    for (int i = 0; i < 10000; i++) {
        if (access(in_folder(other), F_OK) == 0) return;
        pause_ms(5);
    }
    RF_FAIL("%s did not come", other);
}
RF_TEST(meet_cpu, one) {
    meet("cpu_one", "cpu_two");
}
RF_TEST(meet_cpu, two) {
    meet("cpu_two", "cpu_one");
}
RF_TEST(meet_gpu, one, .gpu = true, .memory_bytes = 1 << 20) {
    rf_fixture();
    meet("gpu_one", "gpu_two");
}
RF_TEST(meet_gpu, two, .gpu = true, .memory_bytes = 1 << 20) {
    rf_fixture();
    meet("gpu_two", "gpu_one");
}

/* ---- excluding: fails where another is inside ---- */

static void be_alone(const char *room) {
    int fd = open(in_folder(room), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    RF_ASSERT(fd >= 0);
    RF_ASSERT(flock(fd, LOCK_EX | LOCK_NB) == 0);
    pause_ms(40);
    close(fd);
}
RF_TEST(grouped, one, .group = "room") {
    be_alone("group");
}
RF_TEST(grouped, two, .group = "room") {
    be_alone("group");
}
RF_TEST(grouped, three, .group = "room") {
    be_alone("group");
}
RF_TEST(serial, one, .gpu = true, .serial = true) {
    be_alone("gpu");
}
RF_TEST(serial, two, .gpu = true, .serial = true) {
    be_alone("gpu");
}
RF_TEST(serial, plain, .gpu = true) {
    be_alone("gpu");
}
RF_TEST(large, one, .gpu = true, .memory_bytes = UINT64_C(9) << 30) {
    be_alone("gpu");
}
RF_TEST(large, two, .gpu = true, .memory_bytes = UINT64_C(9) << 30) {
    be_alone("gpu");
}
RF_TEST(large, impossible, .gpu = true, .memory_bytes = UINT64_C(1) << 50) {}

/* ---- the GPU ---- */

static struct rf_buffer *allocate(uint64_t bytes) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    RF_ASSERT_OK(rf_buffer_create_safe(rf_fixture(), &params, &buffer));
    return buffer;
}
static void compute(void) {
    struct rf_buffer *buffer = allocate(4096);
    unsigned char back[4096];
    RF_ASSERT_OK(rf_fill(rf_fixture_queue(), buffer, 0, sizeof back, 7));
    RF_ASSERT_OK(rf_copy_from_device_safe(rf_fixture_queue(), back, buffer, 0, sizeof back));
    RF_ASSERT_INT(back[4095], 7);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
RF_TEST(gpu, fails, .gpu = true) {
    rf_fixture();
    RF_FAIL("on purpose");
}
RF_TEST(gpu, computes, .gpu = true) {
    compute();
}
RF_TEST(gpu, tells, .gpu = true) {
    RF_PARAMS(struct rf_memory_info, memory);
    rf_fixture_memory_stats(&memory);
    const char *budget = getenv("RF_BUDGET"), *device = getenv("RF_TEST_DEVICE"), *check = getenv("RF_CHECK");
    RF_NOTE("budget %.5s device %s check %s may %llu", budget ? budget : "none", device ? device : "none",
            check ? check : "none", (unsigned long long)memory.budget_bytes);
}
RF_TEST(gpu, holds_some, .gpu = true) {
    struct rf_buffer *buffer = allocate(64 << 20);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}

/* ---- allocations that fail ---- */

RF_TEST(alloc, three_of_them, .gpu = true) {
    for (int i = 0; i < 3; i++) {
        struct rf_buffer *buffer = allocate(4 << 20);
        append("allocations", "x");
        RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    }
}
RF_TEST(alloc, crashes_at_the_second, .gpu = true) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 4 << 20;
    params.direct = true;
    struct rf_buffer *one = NULL, *two = NULL;
    RF_ASSERT_OK(rf_buffer_create_safe(rf_fixture(), &params, &one));
    if (rf_buffer_create_safe(rf_fixture(), &params, &two) != RF_OK) raise(SIGKILL);
    rf_buffer_destroy(&one);
    rf_buffer_destroy(&two);
}
RF_TEST(alloc, forgets_the_first, .gpu = true) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 4 << 20;
    params.direct = true;
    struct rf_buffer *one = NULL, *two = NULL;
    if (rf_buffer_create_safe(rf_fixture(), &params, &one) != RF_OK) return;
    if (rf_buffer_create_safe(rf_fixture(), &params, &two) != RF_OK) return; /* and "one"? */
    rf_buffer_destroy(&one);
    rf_buffer_destroy(&two);
}

/* ---- pollution ---- */

static int dirt;
RF_TEST(order, a_innocent) {}
RF_TEST(order, b_first_half) {
    dirt |= 1;
}
RF_TEST(order, c_innocent) {}
RF_TEST(order, d_second_half) {
    dirt |= 2;
}
RF_TEST(order, e_innocent) {}
RF_TEST(order, f_needs_both_halves_absent) {
    RF_ASSERT_INT(dirt == 3, 0);
}
RF_TEST(order, g_fails_always) {
    RF_FAIL("always");
}
RF_TEST(order, h_needs_second_half_absent) {
    RF_ASSERT_INT(dirt & 2, 0);
}
RF_TEST(order, i_crashes) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}
RF_TEST(order, j_after_the_crash) {}
RF_TEST(order, k_hangs, .timeout_ms = 200) {
    for (;;) pause();
}

static const struct many {
    int number;
} many[25];
RF_TEST_CASES(many, fail, struct many, many) {
    RF_FAIL("always, %d", c->number);
}

static off_t size_of(const char *name) {
    struct stat file;
    return stat(in_folder(name), &file) == 0 ? file.st_size : 0;
}

/* Whether the runner has a process that runs this test. */
static bool is_running(const char *name) {
    char path[64], text[16384];
    DIR *processes = opendir("/proc");
    bool found = false;
    for (struct dirent *entry; processes && !found && (entry = readdir(processes));) {
        int pid = atoi(entry->d_name), parent = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = pid > 0 && pid != (int)getpid() ? fopen(path, "r") : NULL;
        if (!file) continue;
        bool sibling = fscanf(file, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == (int)getppid();
        fclose(file);
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        if (!sibling || !(file = fopen(path, "r"))) continue;
        size_t length = fread(text, 1, sizeof text, file);
        fclose(file);
        found = memmem(text, length, name, strlen(name)) != NULL;
    }
    if (processes) closedir(processes);
    return found;
}

/* Holds a lock until somebody has met it. The other test has the lock for a moment whenever it looks. */
RF_TEST(beside, holder) {
    off_t met = size_of("met");
    int fd = open(in_folder("beside"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        RF_ASSERT(i < 10000);
        pause_ms(1);
    }
    for (int i = 0; i < 10000 && size_of("met") == met; i++) pause_ms(5);
    close(fd);
}
RF_TEST(beside, meets_the_holder) {
    for (int i = 0; i < 60 || (i < 10000 && is_running("beside.holder")); i++) {
        int fd = open(in_folder("beside"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        bool taken = flock(fd, LOCK_SH | LOCK_NB) != 0;
        close(fd);
        if (taken) append("met", "x");
        if (taken) RF_FAIL("somebody holds it");
        pause_ms(5);
    }
}
RF_TEST(beside, every_third_fails) {
    append("counter", "x");
    int fd = open(in_folder("counter"), O_RDONLY | O_CLOEXEC);
    off_t count = lseek(fd, 0, SEEK_END);
    close(fd);
    pause_ms(20); /* not alone */
    RF_ASSERT(count % 3 != 0);
}
RF_TEST(beside, waits) {
    pause_ms(200);
}
RF_TEST(beside, waits_for_a_file) {
    for (int i = 0; i < 10000 && access(in_folder("go"), F_OK) != 0; i++) pause_ms(5);
}

/* ---- left behind ---- */

static void *sleep_on(void *user) {
    (void)user;
    for (;;) pause_ms(1000);
    return NULL;
}
static void *spin(void *user) {
    (void)user;
    for (volatile unsigned long i = 0;; i++) {
    }
    return NULL;
}
static void *return_soon(void *user) {
    (void)user;
    pause_ms(30);
    return NULL;
}
static void start_thread(void *(*run)(void *)) {
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, run, NULL) == 0);
    pthread_detach(thread);
}
RF_TEST(left, thread) {
    start_thread(sleep_on);
}
RF_TEST(left, busy_thread) {
    start_thread(spin);
}
RF_TEST(left, thread_beside_a_driver, .gpu = true) {
    compute();
    start_thread(sleep_on);
}
/* A thread that runs does not show where it began: it may be the driver's. */
RF_TEST(left, busy_thread_beside_a_driver, .gpu = true) {
    compute();
    start_thread(spin);
}
RF_TEST(left, ten_threads) {
    for (int i = 0; i < 10; i++) start_thread(sleep_on);
}
RF_TEST(left, nothing_but_a_moment) {
    start_thread(return_soon);
}
RF_TEST(left, process) {
    if (fork() == 0) {
        pause_ms(3600000);
        _exit(0);
    }
}
/* Once killed, it needs a processor to end, and gets nearly nothing of the one that LOADED_CPU names. */
RF_TEST(left, process_that_dies_slowly) {
    const char *text = getenv("LOADED_CPU");
    if (!text) RF_SKIP("LOADED_CPU is not set");
    pid_t child = fork();
    if (child == 0)
        for (;;) pause_ms(3600000);
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)atoi(text), &cpu);
    RF_ASSERT(sched_setaffinity(child, sizeof cpu, &cpu) == 0);
    RF_ASSERT(sched_setscheduler(child, SCHED_IDLE, &(struct sched_param){0}) == 0);
    char pid[32];
    snprintf(pid, sizeof pid, "%d\n", (int)child);
    append("slow", pid);
}
RF_TEST(left, daemon) {
    /* out of the group and the session, its parent gone */
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            char text[32];
            snprintf(text, sizeof text, "%d\n", (int)getpid());
            append("daemon", text);
            pause_ms(3600000);
        }
        _exit(0);
    }
    for (int i = 0; i < 10000 && access(in_folder("daemon"), F_OK) != 0; i++) pause_ms(5);
}
RF_TEST(left, child_that_ends) {
    if (fork() == 0) {
        pause_ms(50);
        _exit(0);
    }
}

/* ---- output and time ---- */

RF_TEST(tells, debug) {
    const char *debug = getenv("RF_TEST_DEBUG"), *log = getenv("RF_LOG");
    RF_NOTE("debug %s log %s", debug ? debug : "none", log ? log : "none");
}

RF_TEST(prints, a_megabyte_line) {
    for (int i = 0; i < 1 << 20; i++) putchar('x');
    puts("\n7 passed, 0 failed, 0 skipped");
    RF_FAIL("enough");
}
RF_TEST(prints, for_junit) {
    printf("<&\"]]>\x01\x80\xff \xe2\x82\xac \xed\xa0\x80\n");
    RF_FAIL("a <message> & \"more\"\nwith a second line \x02");
}
/* Waits after each line until the runner has read it. */
RF_TEST(prints, line_by_line) {
    for (int i = 0, left = 0; i < 1000; i++) {
        dprintf(1, "line %d\n", i);
        while (!ioctl(1, FIONREAD, &left) && left) sched_yield();
    }
}
RF_TEST(prints, slowly) {
    puts("first");
    fflush(stdout);
    pause_ms(300);
    puts("second");
}
RF_TEST(stays, for_long, .timeout_ms = 60000) {
    append("began", "x");
    pause_ms(60000);
}
/* Each of three processes is the child of the one before, and none is in the group of the test. */
static void descend(int depth) {
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child) return;
    setsid();
    char name[32], text[32];
    snprintf(name, sizeof name, "descendant%d", depth);
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    append(name, text);
    if (depth < 3) descend(depth + 1);
    for (;;) pause();
}
RF_TEST(stays, with_descendants, .timeout_ms = 60000) {
    descend(1);
    for (int i = 0; i < 10000 && access(in_folder("descendant3"), F_OK) != 0; i++) pause_ms(5);
    append("began", "x");
    pause_ms(60000);
}
RF_TEST(ends, when_asked, .timeout_ms = 300) {
    append("asked", "x");
    for (;;) pause();
}

/* Both leave files in their folder. */
static void fill_folder(void) {
    char path[RF_TEST_FOLDER_BYTES + 16];
    snprintf(path, sizeof path, "%s/deep", rf_test_folder());
    RF_ASSERT_INT(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/deep/file", rf_test_folder());
    FILE *file = fopen(path, "we");
    RF_ASSERT_NOT_NULL(file);
    fclose(file);
}
RF_TEST(folder, fine) {
    fill_folder();
}
RF_TEST(folder, killed) {
    fill_folder();
    kill(getpid(), SIGKILL);
}
