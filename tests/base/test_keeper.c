/* What a keeper sees of the processes that it waits for (src/base/keeper.h). The rest is tested with commands:
 * tests/cli/test_worker.c. */
#include "base/keeper.h"

#include <rocmforge/test.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t start(void (*body)(void)) {
    pid_t child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(0);
}
static void spin(void) {
    for (volatile int on = 1; on;) continue;
}
static void sleep_long(void) {
    while (1) pause();
}

/* Looks until it is so: a process that was just started may not be where it will stay. */
static bool comes_to(pid_t pid, bool running) {
    for (int i = 0; i < 10000 && rf_keeper_is_running(pid) != running; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return rf_keeper_is_running(pid) == running;
}

/* Pauses count as long as they were meant to be, so a machine's load does not shorten the patience. */
RF_TEST(keeper, patience_counts_its_own_time) {
    struct rf_patience patience = rf_patience_of(50);
    int turns = 0;
    while (turns < 20 && rf_patience_lasts(&patience, 10, turns == 3)) turns++; /* then it begins anew */
    RF_EXPECT_INT(turns, 8);
    patience = rf_patience_of(50);
    patience.end_ms -= RF_KEEPER_MOST_MS + 60000; /* the clock's time is over */
    RF_EXPECT(!rf_patience_lasts(&patience, 10, true));
}

/* One that only lacks a core can go on; one that sleeps, is stopped or has ended cannot. */
RF_TEST(keeper, who_can_go_on) {
    pid_t busy = start(spin), idle = start(sleep_long);
    RF_ASSERT(busy > 0 && idle > 0);
    RF_ASSERT(comes_to(busy, true));
    for (int i = 0; i < 100; i++) RF_ASSERT(rf_keeper_is_running(busy));
    RF_EXPECT(comes_to(idle, false));
    RF_EXPECT(kill(busy, SIGSTOP) == 0);
    RF_EXPECT(comes_to(busy, false));
    RF_EXPECT(kill(busy, SIGCONT) == 0);
    RF_EXPECT(comes_to(busy, true));
    RF_EXPECT(kill(busy, SIGKILL) == 0 && kill(idle, SIGKILL) == 0);
    RF_EXPECT(comes_to(busy, false)); /* not reaped yet */
    RF_EXPECT(waitpid(busy, NULL, 0) == busy && waitpid(idle, NULL, 0) == idle);
    RF_EXPECT(!rf_keeper_is_running(busy));
}
