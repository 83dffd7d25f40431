/* Processes that lease, allocate, lend, fork and are killed at random, while lease files are damaged: never more
 * promised, held or used than the budget, and nothing left behind. It is looked at by the library's own survey, and
 * by an observer that uses nothing of the library (main_observer.c). */
#include "helpers.h"
#include "gpu/lease_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- damage ---- */

static void cut(const char *path, off_t bytes) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    RF_ASSERT(fd >= 0);
    /* A process that is just reading would die of it: docs/safety.md promises nothing else. */
    while (fcntl(fd, F_SETLKW, &lock) < 0) RF_ASSERT(errno == EINTR);
    RF_ASSERT(ftruncate(fd, bytes) == 0);
    close(fd);
}

static void damage(const char *path, struct rf_random *random, bool may_cut) {
    static unsigned char bytes[8192];
    struct stat file;
    if (stat(path, &file) < 0) return;
    uint64_t kind = rf_random_below(random, may_cut ? 5 : 4),
             size = 4096 + RF_LEASE_SLOTS * sizeof(struct rf_lease_slot);
    if (kind == 4) return cut(path, (off_t)rf_random_below(random, size));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    RF_ASSERT(fd >= 0);
    /* most leases are in the first slots */
    off_t at = (off_t)rf_random_below(random, rf_random_below(random, 4) ? 4096 + 8192 : size);
    size_t length = kind == 0 ? 1 : 1 + rf_random_below(random, sizeof bytes);
    if (kind == 0) { /* one bit */
        if (pread(fd, bytes, 1, at) != 1) bytes[0] = 0;
        bytes[0] ^= (unsigned char)(1u << rf_random_below(random, 8));
    } else if (kind == 1) {
        memset(bytes, 0, length);
    } else if (kind == 2) {
        memset(bytes, 0xff, length);
    } else {
        for (size_t i = 0; i < length; i++) bytes[i] = (unsigned char)rf_random_next(random);
    }
    RF_ASSERT(pwrite(fd, bytes, length, at) > 0);
    close(fd);
}

/* ---- the storm ---- */

struct storm {
    int processes, at_once;
    bool places;  /* the usual places, with an observer; else one folder */
    bool damages; /* the first of the two files, all the while */
};

/* Makes both places, so that the observer finds the files, and starts it. */
static void start_observer(const char *root, const char *gpu_path, struct fake_gpu *gpu, char damaged[300]) {
    char limit[32], other[300], where[80];
    static const char *const above[] = {"dev", "dev/shm", "tmp"};
    for (size_t i = 0; i < RF_COUNT(above); i++) {
        snprintf(other, sizeof other, "%s/%s", root, above[i]);
        RF_ASSERT(mkdir(other, 0755) == 0 && (!i || chmod(other, 01777) == 0));
    }
    unsetenv("XDG_RUNTIME_DIR");
    struct rf_lease *lease;
    struct rf_lease_params params = {.live_free = fake_gpu_free, .user = gpu, .timeout_ns = PATIENCE_NS};
    snprintf(where, sizeof where, "@%s", root);
    lease_where(where, &params);
    RF_ASSERT_OK(rf_lease_open(&params, &lease, NULL));
    rf_lease_close(&lease);
    snprintf(damaged, 300, "%s/dev/shm/rocmforge-%u/gpu-%s.v1", root, (unsigned)geteuid(), params.uuid);
    snprintf(other, sizeof other, "%s/tmp/rocmforge-%u/gpu-%s.v1", root, (unsigned)geteuid(), params.uuid);
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)LIMIT);
    const char *arguments[] = {"test_budget", "--observe", limit, gpu_path, damaged, other, NULL};
    RF_ASSERT(spawn_self(arguments, -1, -1, -1) > 0);
}

static void run_storm(const struct storm *storm) {
    char dir[64], where[80], gpu_path[80], damaged[300] = "";
    int leash[2], started = 0, kills = 0, looks = 0, parts_seen = 0, damages = 0;
    struct rf_random random = {rf_test_seed() + 5};
    RF_NOTE("seed %llu", (unsigned long long)rf_test_seed());
    make_folder(dir, sizeof dir);
    snprintf(where, sizeof where, "%s%s", storm->places ? "@" : "", dir);
    snprintf(gpu_path, sizeof gpu_path, "%s/gpu", dir);
    struct fake_gpu *gpu = fake_gpu_map(gpu_path, true);
    RF_ASSERT(gpu != NULL);
    RF_ASSERT(pipe2(leash, O_CLOEXEC) == 0);
    RF_ASSERT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0); /* orphaned parts and lingerers come to us */
    if (storm->places) start_observer(dir, gpu_path, gpu, damaged);
    atomic_store(&gpu->damaging, storm->damages);
    int64_t hurry = rf_deadline_after(RF_MS(5000)); /* a slow machine kills faster, to be done in time */
    /* With an observer it is not the time that counts but what happened: one is killed for each lease that was
     * opened, and a part was used before the end. */
    uint64_t opened_before = 0;
    for (;;) {
        uint64_t opened = atomic_load(&gpu->opened) + atomic_load(&gpu->attached);
        bool crowded = started < storm->processes || living(gpu) > storm->at_once / 2;
        if (!crowded && (!storm->places || atomic_load(&gpu->attached))) break;
        if (started < storm->processes && living(gpu) < storm->at_once) {
            char seed[32];
            snprintf(seed, sizeof seed, "%llu", (unsigned long long)rf_random_next(&random));
            const char *arguments[] = {"test_budget", "--stress", where, gpu_path, "70%", seed, NULL};
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
            } else if (victim && (!storm->places || (crowded && opened > opened_before))) {
                kills += kill(victim, SIGKILL) == 0;
                opened_before = opened;
            }
            if (!late || storm->places) rf_sleep_ns((int64_t)rf_random_below(&random, 8) * 1000000);
        }
        if (storm->damages && rf_random_below(&random, 2)) {
            damage(damaged, &random, true);
            damages++;
        }
        struct survey seen = survey(where);
        looks++;
        parts_seen += seen.parts;
        if (seen.root_promised > LIMIT && !storm->damages) /* damage counts as leases until it is mended */
            RF_FAIL("%llu promised of %llu after %d kills", (unsigned long long)seen.root_promised,
                    (unsigned long long)LIMIT, kills);
        reap_dead(gpu);
        if (atomic_load(&gpu->fault)) RF_FAIL("a worker failed at line %d", atomic_load(&gpu->fault));
        if (atomic_load(&gpu->observer_fault))
            RF_FAIL("main_observer.c:%d: the observer saw %llu of %llu after %d kills",
                    atomic_load(&gpu->observer_fault), (unsigned long long)atomic_load(&gpu->observer_bytes),
                    (unsigned long long)LIMIT, kills);
    }
    /* The rest dies at once, the lingering children live on: nothing may remain. */
    for (uint32_t i = 0; i < RF_MIN(atomic_load(&gpu->users), GPU_USERS); i++)
        if (atomic_load(&gpu->pid[i]) > 0) kills += kill(atomic_load(&gpu->pid[i]), SIGKILL) == 0;
    atomic_store(&gpu->stop, 1); /* for one that was just being started */
    while (living(gpu)) {
        reap_dead(gpu);
        rf_sleep_ns(RF_MS(1));
    }
    struct survey left = survey(where);
    RF_ASSERT_INT(left.leases, 0);
    /* One look of the observer more, at nothing. */
    uint64_t observed = atomic_load(&gpu->observer_looks);
    while (storm->places && atomic_load(&gpu->observer_looks) == observed) rf_sleep_ns(RF_MS(1));
    atomic_store(&gpu->observer_stop, 1);
    int lingering = 0;
    close(leash[1]);
    close(leash[0]);
    for (;;) {
        int reaped = reap_dead(gpu);
        lingering += reaped;
        if (!reaped && waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) break;
        rf_sleep_ns(RF_MS(1));
    }
    RF_NOTE("%d processes and %llu parts, %d killed, %llu leases, %llu lent, %d looks, %d parts seen, %d lingered; "
            "%d damages; the observer looked %llu times, most promised %llu, most used %llu of %llu",
            started, (unsigned long long)atomic_load(&gpu->attached), kills,
            (unsigned long long)atomic_load(&gpu->opened), (unsigned long long)atomic_load(&gpu->lent), looks,
            parts_seen, lingering, damages, (unsigned long long)atomic_load(&gpu->observer_looks),
            (unsigned long long)atomic_load(&gpu->most_promised), (unsigned long long)atomic_load(&gpu->most_used),
            (unsigned long long)LIMIT);
    RF_ASSERT_INT(atomic_load(&gpu->observer_fault), 0);
    RF_ASSERT(kills >= storm->processes / 2 && atomic_load(&gpu->attached) > 0);
    RF_ASSERT(storm->places ? atomic_load(&gpu->observer_looks) > 1 : lingering > 0);
    /* And the whole budget is there again. */
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    struct rf_lease_params params = {.spec = {.has_percent = true, .percent = 70},
                                     .live_free = fake_gpu_free,
                                     .user = gpu,
                                     .timeout_ns = PATIENCE_NS};
    lease_where(where, &params);
    RF_ASSERT_OK(rf_lease_open(&params, &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, LIMIT);
    rf_lease_close(&lease);
    remove_folder(dir);
}

RF_TEST(lease_storm, two_hundred_processes, .timeout_ms = 1500000, .tags = "stress") {
    run_storm(&(struct storm){.processes = 200, .at_once = 60});
}

RF_TEST(lease_storm, with_an_observer, .timeout_ms = 600000, .tags = "stress") {
    run_storm(&(struct storm){.processes = 40, .at_once = 16, .places = true});
}

RF_TEST(lease_storm, with_damage_and_an_observer, .timeout_ms = 600000, .tags = "stress") {
    run_storm(&(struct storm){.processes = 40, .at_once = 16, .places = true, .damages = true});
}

RF_TEST(lease_storm, a_long_one, .timeout_ms = 3600000, .tags = "slow,hostile") {
    run_storm(&(struct storm){.processes = 1500, .at_once = 40, .places = true});
}

RF_TEST(lease_storm, a_long_one_with_damage, .timeout_ms = 3600000, .tags = "slow,hostile") {
    run_storm(&(struct storm){.processes = 1500, .at_once = 40, .places = true, .damages = true});
}

/* ---- damage of all files, step by step ---- */

/* All files are damaged under live owners. When each of them has looked and renewed, every lease is in every file
 * again, with its own figures, and the promises are within the budget. */
static void damage_and_heal(int rounds) {
    enum { OWNERS = 6 };
    char dir[64], where[80], gpu_path[80], files[2][300];
    struct puppet owners[OWNERS];
    struct rf_random random = {rf_test_seed() + 11};
    static const char *const above[] = {"dev", "dev/shm", "tmp"};
    RF_NOTE("seed %llu", (unsigned long long)rf_test_seed());
    unsetenv("XDG_RUNTIME_DIR");
    make_folder(dir, sizeof dir);
    snprintf(where, sizeof where, "@%s", dir);
    snprintf(gpu_path, sizeof gpu_path, "%s/gpu", dir);
    struct fake_gpu *gpu = fake_gpu_map(gpu_path, true);
    RF_ASSERT(gpu != NULL);
    for (size_t i = 0; i < RF_COUNT(above); i++) {
        snprintf(files[0], sizeof files[0], "%s/%s", dir, above[i]);
        RF_ASSERT(mkdir(files[0], 0755) == 0 && (!i || chmod(files[0], 01777) == 0));
    }
    for (int i = 0; i < 2; i++)
        snprintf(files[i], sizeof files[i], "%s/%s/rocmforge-%u/gpu-%s.v1", dir, above[i + 1], (unsigned)geteuid(),
                 strrchr(dir, '/') + 1);
    for (int i = 0; i < OWNERS; i++) {
        puppet_start(&owners[i], where, gpu_path, -1);
        RF_ASSERT(strstr(puppet_ask(&owners[i], "open %d%%", 10 * (i + 1)), "ok promised="));
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0, count = 1 + (int)rf_random_below(&random, 4); i < count; i++)
            damage(files[rf_random_below(&random, 2)], &random, true);
        /* In any order they notice it, some more than once; a new one comes and goes in between. */
        for (int i = 0, count = (int)rf_random_below(&random, 8); i < count; i++) {
            struct puppet *owner = &owners[rf_random_below(&random, OWNERS)];
            RF_ASSERT(strstr(puppet_ask(owner, "renew %d%%", 1 + (int)rf_random_below(&random, 70)), "ok promised="));
        }
        uint64_t held = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < OWNERS; i++) {
                uint64_t promised = number(puppet_ask(&owners[i], "renew %d%%", 10 * (i + 1)), "promised");
                uint64_t bytes = promised / 2;
                puppet_ask(&owners[i], "hold %llu", (unsigned long long)bytes);
                if (pass) held += bytes;
            }
        struct survey seen = survey(where);
        RF_ASSERT_INT(seen.leases, OWNERS);
        RF_ASSERT_INT(seen.held, held);
        RF_ASSERT(seen.root_promised <= GPU_TOTAL / 10 * OWNERS);
        for (int i = 0; i < 2; i++) {
            static struct rf_lease_slot slots[RF_LEASE_SLOTS];
            int live = 0, fd = open(files[i], O_RDONLY | O_CLOEXEC);
            uint64_t slots_held = 0;
            RF_ASSERT(fd >= 0 && pread(fd, slots, sizeof slots, 4096) == (ssize_t)sizeof slots);
            close(fd);
            for (size_t slot = 0; slot < RF_LEASE_SLOTS; slot++) {
                if (slots[slot].state != RF_LEASE_LIVE) continue;
                live++;
                slots_held += slots[slot].held_bytes;
            }
            RF_ASSERT_INT(live, OWNERS);
            RF_ASSERT_INT(slots_held, held);
        }
    }
    for (int i = 0; i < OWNERS; i++) puppet_end(&owners[i]);
    RF_ASSERT_INT(survey(where).leases, 0);
    remove_folder(dir);
}

RF_TEST(lease_storm, damage_of_all_files_is_mended, .timeout_ms = 600000) {
    damage_and_heal(25);
}

RF_TEST(lease_storm, much_damage_of_all_files_is_mended, .timeout_ms = 3600000, .tags = "slow,hostile") {
    damage_and_heal(2000);
}
