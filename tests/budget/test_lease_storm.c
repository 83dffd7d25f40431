/* 200 processes that lease, allocate, lend, fork and are killed at random, and an observer that
 * looks at the table all the while: never more promised than the budget, nothing left behind. */
#include "helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 200
#define AT_ONCE 60
#define LIMIT (GPU_TOTAL / 10 * 7)

/* What a dead process used is free once it is reaped, as a driver would free it. */
static int reap_dead(struct fake_gpu *gpu) {
    int reaped = 0;
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0; reaped++) {
        uint32_t users = RF_MIN(atomic_load(&gpu->users), GPU_USERS);
        for (uint32_t i = 0; i < users; i++) {
            if (atomic_load(&gpu->pid[i]) != pid) continue;
            atomic_store(&gpu->used[i], 0);
            atomic_store(&gpu->pid[i], 0);
        }
    }
    return reaped;
}

/* Any process that leases, parts included. */
static pid_t random_victim(struct fake_gpu *gpu, struct rf_random *random) {
    uint32_t users = RF_MIN(atomic_load(&gpu->users), GPU_USERS);
    for (int tries = 0; users && tries < 100; tries++) {
        pid_t pid = atomic_load(&gpu->pid[rf_random_below(random, users)]);
        if (pid > 0) return pid;
    }
    return 0;
}

static int living(struct fake_gpu *gpu) {
    int count = 0;
    for (uint32_t i = 0; i < RF_MIN(atomic_load(&gpu->users), GPU_USERS); i++) count += atomic_load(&gpu->pid[i]) > 0;
    return count;
}

RF_TEST(lease_storm, two_hundred_processes, .timeout_ms = 1500000, .tags = "stress") {
    char dir[64], gpu_path[80];
    int leash[2], started = 0, kills = 0, looks = 0, parts_seen = 0;
    struct rf_random random = {rf_test_seed() + 5};
    make_folder(dir, sizeof dir);
    snprintf(gpu_path, sizeof gpu_path, "%s/gpu", dir);
    struct fake_gpu *gpu = fake_gpu_map(gpu_path, true);
    RF_ASSERT(gpu != NULL);
    RF_ASSERT(pipe2(leash, O_CLOEXEC) == 0);
    RF_ASSERT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* orphaned parts and lingerers come to us */
    int64_t hurry = rf_deadline_after(RF_MS(5000));   /* a slow machine kills faster, to be done in time */
    while (started < PROCESSES || living(gpu) > AT_ONCE / 2) {
        if (started < PROCESSES && living(gpu) < AT_ONCE) {
            char seed[32];
            snprintf(seed, sizeof seed, "%llu", (unsigned long long)rf_random_next(&random));
            const char *arguments[] = {"test_budget", "--stress", dir, gpu_path, "70%", seed, NULL};
            RF_ASSERT(spawn_self(arguments, -1, -1, leash[0]) > 0);
            started++;
        } else {
            pid_t victim = random_victim(gpu, &random);
            uint64_t dice = rf_random_below(&random, 8);
            bool late = rf_now_ns() > hurry;
            if (victim && dice == 0 && !late) { /* stopped for a moment, the table's lock perhaps in its hand */
                kill(victim, SIGSTOP);
                rf_sleep_ns(RF_MS(3));
                kill(victim, SIGCONT);
            } else if (victim) {
                kills += kill(victim, SIGKILL) == 0;
            }
            if (!late) rf_sleep_ns((int64_t)rf_random_below(&random, 8) * 1000000);
        }
        struct survey seen = survey(dir);
        looks++;
        parts_seen += seen.parts;
        if (seen.root_promised > LIMIT)
            RF_FAIL("%llu promised of %llu after %d kills", (unsigned long long)seen.root_promised,
                    (unsigned long long)LIMIT, kills);
        reap_dead(gpu);
        if (atomic_load(&gpu->fault)) RF_FAIL("a worker failed at line %d", atomic_load(&gpu->fault));
    }
    /* The rest dies at once, the lingering children live on: nothing may remain. */
    for (uint32_t i = 0; i < RF_MIN(atomic_load(&gpu->users), GPU_USERS); i++)
        if (atomic_load(&gpu->pid[i]) > 0) kills += kill(atomic_load(&gpu->pid[i]), SIGKILL) == 0;
    atomic_store(&gpu->stop, 1); /* for one that was just being started */
    while (living(gpu)) {
        reap_dead(gpu);
        rf_sleep_ns(RF_MS(1));
    }
    struct survey left = survey(dir);
    RF_ASSERT_INT(left.leases, 0);
    int lingering = 0;
    close(leash[1]);
    close(leash[0]);
    for (;;) {
        int reaped = reap_dead(gpu);
        lingering += reaped;
        if (!reaped && waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) break;
        rf_sleep_ns(RF_MS(1));
    }
    RF_NOTE("%d processes and %llu parts, %d killed, %llu leases, %llu lent, %d looks, %d parts seen, %d lingered",
            started, (unsigned long long)atomic_load(&gpu->attached), kills,
            (unsigned long long)atomic_load(&gpu->opened), (unsigned long long)atomic_load(&gpu->lent), looks,
            parts_seen, lingering);
    RF_ASSERT(kills >= PROCESSES / 2 && atomic_load(&gpu->attached) > 0 && lingering > 0);
    /* And the whole budget is there again. */
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    struct rf_lease_params params = {.dir = dir,
                                     .uuid = TEST_UUID,
                                     .spec = {.has_percent = true, .percent = 70},
                                     .live_free = fake_gpu_free,
                                     .user = gpu,
                                     .timeout_ns = PATIENCE_NS};
    RF_ASSERT_OK(rf_lease_open(&params, &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, LIMIT);
    rf_lease_close(&lease);
    remove_folder(dir);
}
