/* Many processes on one GPU: they allocate, free and are killed at random, and children that they forked live on. The
 * promised and the held memory never exceed the budget, and nothing is left behind. */
#include "gpu_testing.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/budget.h"

enum { PROCESSES = 200, AT_ONCE = 8 };
#define BUDGET (1 * GIB)
#define BUDGET_TEXT "1GiB"

extern char **environ;

/* ---- a process that opens the device: this executable again, with OPEN_CHILD set to the budget ---- */

/* It exits with the status of opening. */
static void opener_main(void) {
    struct gpu gpu = {0};
    gpu_use_folder(getenv("OPEN_FOLDER"));
    rf_status status = gpu_try_open(&gpu, getenv("OPEN_CHILD"));
    if (status) fprintf(stderr, "another process: %s\n", rf_error_text());
    _exit((int)status);
}

static rf_status open_in_another_process(const char *budget) {
    pid_t pid;
    int status;
    setenv("OPEN_CHILD", budget, 1);
    char *argv[] = {(char *)"opener", NULL};
    RF_ASSERT(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    unsetenv("OPEN_CHILD");
    RF_ASSERT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return (rf_status)WEXITSTATUS(status);
}

/* The UUID of a GPU that processes share depends on the test's folder: nobody would use its lease files again. */
static void remove_leases(const struct rf_device_info *info) {
    static const char *const above[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof above / sizeof above[0]; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/rocmforge-%u/gpu-%s.v1", above[i], (unsigned)geteuid(), info->uuid);
        unlink(path);
    }
}

/* This process takes 70% of the simulated GPU and another one wants as much; what does the other one get? */
static rf_status seventy_percent_twice(const char *rfsim) {
    struct gpu gpu = {0};
    gpu_need_simulated(rfsim);
    setenv("OPEN_FOLDER", gpu_folder(), 1);
    setenv("XDG_RUNTIME_DIR", gpu_folder(), 1);
    gpu_open(&gpu, "70%");
    RF_EXPECT_STATUS(open_in_another_process("part=1-0-00000000000000ff-fd3:4096"), RF_E_NOT_FOUND);
    rf_status status = open_in_another_process("70%");
    char part[128];
    RF_ASSERT_OK(rf_device_lend(gpu.device, 512 * MIB, part, sizeof part));
    RF_EXPECT_OK(open_in_another_process(part));
    RF_EXPECT_OK(open_in_another_process(part)); /* the first one gave it back */
    RF_ASSERT_OK(rf_device_reclaim(gpu.device, part));
    RF_EXPECT_STATUS(open_in_another_process(part), RF_E_NOT_FOUND);
    RF_PARAMS(struct rf_device_info, info);
    RF_ASSERT_OK(rf_device_info_at(gpu.runtime, 0, &info));
    gpu_close(&gpu);
    remove_leases(&info);
    return status;
}

/* Each simulated process has a GPU of its own; a part that a process lends is of the lender's. */
RF_TEST(processes, simulated_gpus_of_two_processes_have_leases_of_their_own) {
    RF_EXPECT_OK(seventy_percent_twice(""));
}

RF_TEST(processes, a_simulated_gpu_that_processes_share_has_shared_leases) {
    char rfsim[700];
    snprintf(rfsim, sizeof rfsim, "shared=%s/vram", gpu_folder());
    RF_EXPECT_STATUS(seventy_percent_twice(rfsim), RF_E_BUDGET);
}

/* A process that started before its user logged in has no XDG_RUNTIME_DIR, the ones after it have. */
RF_TEST(processes, before_and_after_login_is_one_budget) {
    char rfsim[700], runtime[600];
    struct gpu gpu = {0};
    snprintf(rfsim, sizeof rfsim, "vram=16GiB,context=0,shared=%s/vram", gpu_folder());
    gpu_need_simulated(rfsim);
    setenv("OPEN_FOLDER", gpu_folder(), 1);
    unsetenv("XDG_RUNTIME_DIR");
    gpu_open(&gpu, "70%");
    struct rf_buffer *buffer = gpu_buffer(&gpu, 11 * GIB);
    snprintf(runtime, sizeof runtime, "%s/runtime", gpu_folder());
    RF_ASSERT(mkdir(runtime, 0700) == 0);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    RF_EXPECT_STATUS(open_in_another_process("70%"), RF_E_BUDGET);
    RF_EXPECT(access(strcat(runtime, "/rocmforge"), F_OK) == 0); /* the other one used that place as well */
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_PARAMS(struct rf_device_info, info);
    RF_ASSERT_OK(rf_device_info_at(gpu.runtime, 0, &info));
    gpu_close(&gpu);
    RF_EXPECT_OK(open_in_another_process("70%"));
    remove_leases(&info);
}

/* ---- a process of the storm: this executable again, with STORM_CHILD set ---- */

static void child_main(void) {
    struct rf_random random = {strtoull(getenv("STORM_CHILD"), NULL, 10)};
    struct gpu gpu = {0};
    char leases[600], sysfs[600];
    gpu_use_folder(getenv("STORM_FOLDER"));
    snprintf(leases, sizeof leases, "RF_LEASE_DIR=%s/leases", getenv("STORM_FOLDER"));
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", getenv("STORM_FOLDER"));
    gpu_make_runtime(&gpu, (const char *const[]){leases, sysfs, NULL});
    rf_status status = gpu_try_open(&gpu, BUDGET_TEXT);
    if (status == RF_E_BUDGET) _exit(0); /* right: the other processes have all of it */
    if (status) {
        fprintf(stderr, "a process of the storm: %s\n", rf_error_text());
        _exit(10);
    }
    char share[64]; /* leaves something for the others */
    snprintf(share, sizeof share, "%llu", (unsigned long long)(BUDGET / 16 + rf_random_below(&random, BUDGET / 4)));
    /* All processes share one budget: give back what this one does not need. */
    if (rf_device_set_budget(gpu.device, share) && rf_random_below(&random, 2)) _exit(0);
    if (rf_random_below(&random, 3) == 0 && fork() == 0) {
        usleep(300000); /* outlives its parent; the lease must not */
        _exit(0);
    }
    struct rf_buffer *slots[16] = {0};
    for (int round = 0; round < 400; round++) {
        size_t at = rf_random_below(&random, 16);
        if (slots[at]) {
            if (rf_buffer_destroy(&slots[at])) _exit(11);
        } else {
            RF_PARAMS(struct rf_buffer_params, params);
            params.bytes = 1 + rf_random_below(&random, 24 * MIB);
            params.direct = rf_random_below(&random, 2);
            status = rf_buffer_create_safe(gpu.device, &params, &slots[at]);
            if (status && status != RF_E_BUDGET) _exit(12);
        }
        usleep((useconds_t)rf_random_below(&random, 300));
    }
    _exit(0); /* keeps what it holds: exiting gives it back */
}

__attribute__((constructor)) static void maybe_child(void) {
    if (getenv("STORM_CHILD")) child_main();
    if (getenv("OPEN_CHILD")) opener_main();
}

/* ---- the observer ---- */

struct sums {
    uint64_t promised, held;
    int count;
};
static bool add_up(void *user, const struct rf_lease_entry *entry) {
    struct sums *sums = user;
    if (!entry->part) sums->promised += entry->promised_bytes;
    sums->held += entry->held_bytes;
    sums->count++;
    return true;
}

static void find_uuid(const char *folder, char *uuid, size_t size) {
    char leases[600], sysfs[600];
    struct gpu gpu = {0};
    snprintf(leases, sizeof leases, "RF_LEASE_DIR=%s/leases", folder);
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", folder);
    gpu_make_runtime(&gpu, (const char *const[]){leases, sysfs, NULL});
    RF_PARAMS(struct rf_device_info, info);
    RF_ASSERT_OK(rf_device_info_at(gpu.runtime, 0, &info));
    snprintf(uuid, size, "%s", info.uuid);
    rf_runtime_destroy(&gpu.runtime);
}

static pid_t start_child(uint64_t seed) {
    char text[32];
    pid_t pid;
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    setenv("STORM_CHILD", text, 1);
    char *argv[] = {(char *)"storm", NULL};
    RF_ASSERT(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    unsetenv("STORM_CHILD");
    return pid;
}

RF_TEST(processes, a_storm_of_them_stays_within_one_budget, .timeout_ms = 1500000, .tags = "slow") {
    const char *folder = gpu_folder();
    char rfsim[800], leases[600], used_path[700], uuid[64];
    snprintf(rfsim, sizeof rfsim, "vram=8GiB,desktop=1GiB,context=0,shared=%s/vram,sysfs=%s/sys,pci=0000:03:00.0",
             folder, folder);
    gpu_need_simulated(rfsim);
    setenv("STORM_FOLDER", folder, 1);
    snprintf(leases, sizeof leases, "%s/leases", folder);
    snprintf(used_path, sizeof used_path, "%s/sys/bus/pci/devices/0000:03:00.0/mem_info_vram_used", folder);
    find_uuid(folder, uuid, sizeof uuid);
    struct rf_lease_params place = {.dir = leases, .uuid = uuid};
    struct rf_random random = {rf_test_seed() + 5};
    pid_t alive[AT_ONCE] = {0};
    int started = 0, ended = 0, killed = 0, looks = 0;
    uint64_t most_promised = 0, most_used = 0;
    while (ended < PROCESSES) {
        for (int i = 0; i < AT_ONCE; i++) {
            if (!alive[i] && started < PROCESSES) alive[i] = start_child(rf_test_seed() * 7919 + (uint64_t)started++);
            if (!alive[i]) continue;
            bool kill_it = rf_random_below(&random, 100) == 0;
            if (kill_it) killed += kill(alive[i], SIGKILL) == 0;
            int status;
            if (waitpid(alive[i], &status, kill_it ? 0 : WNOHANG) != alive[i]) continue;
            if (WIFEXITED(status) && WEXITSTATUS(status)) RF_FAIL("a process ended with %d", WEXITSTATUS(status));
            if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
                RF_FAIL("a process died of signal %d", WTERMSIG(status));
            alive[i] = 0;
            ended++;
        }
        struct sums sums = {0};
        rf_status status = rf_lease_survey(&place, add_up, &sums);
        if (status && status != RF_E_NOT_FOUND) RF_ASSERT_OK(status);
        RF_ASSERT(sums.promised <= BUDGET);
        if (sums.promised > most_promised) most_promised = sums.promised;
        uint64_t used = 0;
        if (rf_read_u64(used_path, &used) == RF_OK && used >= GIB) {
            RF_ASSERT(used - GIB <= BUDGET);
            if (used - GIB > most_used) most_used = used - GIB;
        }
        looks++;
        usleep(2000);
    }
    RF_NOTE("%d processes, %d killed, %d looks; most promised %llu MiB, most used %llu MiB", started, killed, looks,
            (unsigned long long)(most_promised / MIB), (unsigned long long)(most_used / MIB));
    RF_EXPECT(killed > 10);
    RF_EXPECT(most_used > 0);
    struct sums left = {0};
    rf_status status = rf_lease_survey(&place, add_up, &left);
    if (status && status != RF_E_NOT_FOUND) RF_ASSERT_OK(status);
    RF_EXPECT_INT(left.count, 0);
    /* The next one gets the whole budget. */
    char option[700], sysfs[700];
    struct gpu gpu = {0};
    snprintf(option, sizeof option, "RF_LEASE_DIR=%s", leases);
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", folder);
    gpu_make_runtime(&gpu, (const char *const[]){option, sysfs, NULL});
    gpu_open(&gpu, BUDGET_TEXT);
    RF_EXPECT_INT(gpu_memory(&gpu).budget_bytes, BUDGET);
    gpu_close(&gpu);
}
