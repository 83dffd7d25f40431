/* What the runner itself costs: per isolated test, per test in one process, and its memory with ten thousand tests.
 * The tests are part of this program and do nothing: with harness options it is a test executable; without any (or
 * with --quick) it measures itself as one. */
#include <rocmforge/test.h>

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

struct row {
    int unused;
};
static const struct row rows[10000];

RF_TEST_CASES(many, test, struct row, rows) {}
RF_TEST(one, test) {}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct cost {
    double seconds;
    long most_kib; /* resident memory of the runner and its largest test */
    int status;
};

/* Runs this program with these arguments and discards its output. */
static struct cost run(const char *const *arguments) {
    const char *argv[16] = {"bench_runner"};
    for (int i = 0; arguments[i] && i < 14; i++) argv[i + 1] = arguments[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    struct cost cost = {.status = -1};
    struct rusage usage;
    pid_t pid;
    double start = now_s();
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)argv, environ) == 0) {
        int status;
        wait4(pid, &status, 0, &usage);
        cost.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        cost.most_kib = usage.ru_maxrss;
    }
    cost.seconds = now_s() - start;
    posix_spawn_file_actions_destroy(&actions);
    return cost;
}

static int failed;

/* The cost of one test among many, including the runner's start and end; the best of three runs. */
static void show(const char *what, const char *const *arguments, int count, double limit_ms) {
    double best = 1e9;
    struct cost cost = {0};
    for (int i = 0; i < 3; i++) {
        cost = run(arguments);
        if (cost.status != 0) failed = 1;
        if (cost.seconds / count * 1e3 < best) best = cost.seconds / count * 1e3;
    }
    printf("%-44s %8.3f ms a test (to stay under %g), %ld KiB\n", what, best, limit_ms, cost.most_kib);
}

int main(int argc, char **argv) {
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 1 && !quick) return rf_test_main(argc, argv);
    const char *rounds = quick ? "20" : "500";
    int count = quick ? 20 : 500;
    show("isolated, one at a time", (const char *const[]){"--jobs", "1", "--repeat", rounds, "one.test", NULL}, count,
         5);
    show("isolated, one per core, of 10,000", (const char *const[]){quick ? "many.test/1?" : "many.test/1???", NULL},
         quick ? 10 : 1000, 5);
    show("in one process, of 10,000", (const char *const[]){"--in-process", quick ? "many.test/1?" : "many.*", NULL},
         quick ? 10 : 10000, 1);
    if (!quick) show("isolated, all 10,000", (const char *const[]){"many.*", NULL}, 10000, 5);
    return failed;
}
