/* Leases between processes, one step at a time: terms, death in its several forms, forked children, the lock,
 * threads. What is lent on is in test_lease_parts.c, files and folders in test_lease_file.c. */
#include "lease_stage.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

RF_TEST(lease, first_gets_it_all_the_second_the_rest) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    stage_open(&stage);
    start(&stage, &other);
    const char *reply = puppet_ask(&other, "open 40%%");
    RF_ASSERT_INT(number(reply, "promised"), 400000);
    RF_ASSERT_INT(number(reply, "floor"), 300000);
    RF_ASSERT_INT(number(reply, "free0"), 1000000);
    RF_ASSERT_INT(number(reply, "others"), 0);
    puppet_ask(&other, "hold 150000");
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    /* 850000 live, 250000 of it promised away; 70% of 1000000 less the other's 400000. */
    RF_ASSERT_INT(terms.free0_bytes, 600000);
    RF_ASSERT_INT(terms.limit_bytes, 700000);
    RF_ASSERT_INT(terms.promised_bytes, 300000);
    RF_ASSERT_INT(terms.floor_bytes, 300000);
    RF_ASSERT_INT(terms.others, 1);
    RF_ASSERT_INT(terms.others_promised_bytes, 400000);
    RF_ASSERT_INT(terms.others_held_bytes, 150000);
    RF_ASSERT_INT(terms.largest_pid, other.pid);
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 2 && seen.mine == 1 && seen.root_promised == 700000 && seen.held == 150000);
    rf_lease_close(&lease);
    RF_ASSERT(lease == NULL);
    puppet_end(&other);
    stage_close(&stage);
}

RF_TEST(lease, nothing_left_is_no_error) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 0);
    RF_ASSERT_INT(terms.largest_pid, other.pid);
    /* A larger spec gets what it adds. */
    struct rf_budget_spec more = {.has_percent = true, .percent = 80};
    RF_ASSERT_OK(rf_lease_renew(lease, &more, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 100000);
    puppet_end(&other);
    RF_ASSERT_OK(rf_lease_renew(lease, &more, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 800000);
    rf_lease_close(&lease);
    stage_close(&stage);
}

RF_TEST(lease, renewing_counts_what_is_held_as_our_own) {
    struct stage stage;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    struct rf_budget_spec spec = {.has_percent = true, .percent = 70};
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    atomic_store(&stage.gpu->used[0], 500000);
    rf_lease_set_held(lease, 500000);
    RF_ASSERT_OK(rf_lease_renew(lease, &spec, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 700000); /* no creep, up or down */
    RF_ASSERT_INT(terms.free0_bytes, 1000000);
    atomic_store(&stage.gpu->desktop, 300000);
    RF_ASSERT_OK(rf_lease_renew(lease, &spec, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 490000);
    /* Less promised than held: newcomers must not be promised the difference. */
    spec.percent = 10;
    RF_ASSERT_OK(rf_lease_renew(lease, &spec, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 70000);
    struct rf_lease *second;
    RF_ASSERT_OK(try_open(&stage, "80%", &second, &terms)); /* another runtime of this process */
    RF_ASSERT_INT(terms.others_promised_bytes, 500000);
    RF_ASSERT_INT(terms.promised_bytes, 60000);
    RF_ASSERT_INT(survey(stage.dir).mine, 2);
    rf_lease_close(&lease);
    /* Closing one must not drop the other's locks. */
    struct puppet other;
    start(&stage, &other);
    RF_ASSERT_INT(number(puppet_ask(&other, "open 80%%"), "others"), 1);
    puppet_end(&other);
    rf_lease_close(&second);
    stage_close(&stage);
}

RF_TEST(lease, a_measure_that_fails_leaves_nothing) {
    struct stage stage;
    struct rf_lease *lease = NULL;
    stage_open(&stage);
    struct rf_lease_params params = {.dir = stage.dir, .uuid = TEST_UUID};
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_open(NULL, &lease, NULL), RF_E_INVALID);
    RF_ASSERT(lease == NULL);
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    params.uuid = "";
    RF_ASSERT_STATUS(rf_lease_survey(&params, NULL, NULL), RF_E_INVALID);
    RF_ASSERT(access(stage.table, F_OK) != 0); /* looking creates nothing */
    stage_close(&stage);
}

static rf_status no_measure(void *user, uint64_t *free_bytes) {
    (void)user, (void)free_bytes;
    return rf_fail(RF_E_DRIVER, "the driver was asked and did not say");
}

RF_TEST(lease, a_failing_driver_is_passed_on) {
    struct stage stage;
    struct rf_lease *lease = NULL;
    stage_open(&stage);
    struct rf_lease_params params = {
        .dir = stage.dir, .uuid = TEST_UUID, .live_free = no_measure, .timeout_ns = RF_MS(1000)};
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_DRIVER);
    RF_ASSERT_CONTAINS(rf_error_text(), "did not say");
    RF_ASSERT(lease == NULL);
    stage_close(&stage);
}

/* ---- death ---- */

RF_TEST(lease, killed_with_a_forked_child_alive) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    int lingerer = atoi(puppet_ask(&other, "linger") + 3);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    puppet_kill(&other);
    RF_ASSERT(kill(lingerer, 0) == 0);
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    stage_close(&stage);
}

RF_TEST(lease, a_zombie_is_dead) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    kill(other.pid, SIGKILL);
    siginfo_t info;
    RF_ASSERT(waitid(P_PID, (id_t)other.pid, &info, WEXITED | WNOWAIT) == 0); /* dead, not reaped */
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    puppet_kill(&other);
    stage_close(&stage);
}

RF_TEST(lease, exec_ends_it) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    fputs("exec\n", other.to);
    /* The new program answers on the same pipes, with the same pid and start time. */
    RF_ASSERT_TEXT(puppet_ask(&other, "nonsense"), "what");
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    RF_ASSERT_INT(number(puppet_ask(&other, "open 70%%"), "promised"), 700000);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    puppet_end(&other);
    stage_close(&stage);
}

RF_TEST(lease, lost_locks_do_not_lose_the_lease) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    puppet_ask(&other, "drop-locks %s", stage.table);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    puppet_kill(&other);
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    stage_close(&stage);
}

/* Dies in the middle of somebody's opening, just when free memory is measured. */
struct ambush {
    struct stage *stage;
    struct puppet *victim;
};

static rf_status kill_and_measure(void *user, uint64_t *free_bytes) {
    struct ambush *ambush = user;
    puppet_kill(ambush->victim);
    atomic_store(&ambush->stage->gpu->used[1], 0);
    return fake_gpu_free(ambush->stage->gpu, free_bytes);
}

RF_TEST(lease, memory_of_the_dying_is_not_counted_twice) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    struct ambush ambush = {&stage, &other};
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 50%%");
    puppet_ask(&other, "hold 300000");
    struct rf_lease_params params = {.dir = stage.dir,
                                     .uuid = TEST_UUID,
                                     .spec = {.has_percent = true, .percent = 70},
                                     .live_free = kill_and_measure,
                                     .user = &ambush,
                                     .timeout_ns = PATIENCE_NS};
    RF_ASSERT_OK(rf_lease_open(&params, &lease, &terms));
    RF_ASSERT_INT(terms.limit_bytes, 700000);
    RF_ASSERT_INT(terms.others, 0);
    rf_lease_close(&lease);
    stage_close(&stage);
}

/* Where the first slot's owner lies in the file, and what in it; see lease_impl.h. */
#define FIRST_OWNER (4096 + (off_t)offsetof(struct rf_lease_slot, owner))
#define OWNER_START offsetof(struct rf_lease_owner, start_ticks)
#define OWNER_STACK offsetof(struct rf_lease_owner, stack)
#define OWNER_NAMESPACE (off_t) offsetof(struct rf_lease_owner, pid_namespace)

static uint64_t own_start_ticks(void) {
    char text[2048];
    RF_ASSERT_OK(rf_read_text("/proc/self/stat", text, sizeof text));
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    RF_ASSERT(at != NULL);
    return strtoull(at, NULL, 10);
}

/* A slot left by a process of another boot, or whose pid was reused, whatever its figures. */
RF_TEST(lease, a_recycled_pid_is_somebody_else) {
    struct stage stage;
    struct puppet other;
    static char bytes[1 << 20];
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    FILE *file = fopen(stage.table, "r");
    RF_ASSERT(file != NULL);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    int32_t pid = (int32_t)other.pid, mine = (int32_t)getpid();
    char *recorded = memmem(bytes, length, &pid, sizeof pid);
    RF_ASSERT(recorded != NULL);
    puppet_end(&other);
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    /* The same bytes again, as a crash would leave them: with the dead pid, then with one that
     * lives, then with all that process's marks (which shows that they are what counts), then
     * with another start. */
    uint64_t start_ticks = own_start_ticks(), later = start_ticks + 1, no_stack = 0;
    static const int expected[] = {0, 0, 1, 0};
    for (size_t round = 0; round < RF_COUNT(expected); round++) {
        if (round == 1) memcpy(recorded, &mine, sizeof mine);
        if (round == 2) memcpy(recorded + OWNER_START, &start_ticks, sizeof start_ticks);
        if (round == 2) memcpy(recorded + OWNER_STACK, &no_stack, sizeof no_stack);
        if (round == 3) memcpy(recorded + OWNER_START, &later, sizeof later);
        file = fopen(stage.table, "r+");
        RF_ASSERT(file != NULL);
        RF_ASSERT(fwrite(bytes, 1, length, file) == length);
        fclose(file);
        RF_ASSERT_INT(survey(stage.dir).leases, expected[round]);
    }
    stage_close(&stage);
}

/* The same file seen from a container: pids mean nothing there, the slot's lock does. */
RF_TEST(lease, another_pid_namespace_is_judged_by_its_lock) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 40%%");
    int fd = open(stage.table, O_RDWR | O_CLOEXEC);
    int32_t pid = 1;
    uint64_t elsewhere = 12345;
    RF_ASSERT(pwrite(fd, &pid, sizeof pid, FIRST_OWNER) == sizeof pid);
    RF_ASSERT(pwrite(fd, &elsewhere, sizeof elsewhere, FIRST_OWNER + OWNER_NAMESPACE) == sizeof elsewhere);
    close(fd);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 300000);
    RF_ASSERT_INT(terms.largest_pid, other.pid); /* as seen from here, not the 1 that it is to itself */
    puppet_kill(&other);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    rf_lease_close(&lease);
    stage_close(&stage);
}

/* ---- fork ---- */

RF_TEST(lease, a_forked_child_cannot_touch_it) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 70%%");
    puppet_ask(&other, "hold 1234");
    RF_ASSERT_TEXT(puppet_ask(&other, "misuse"), "ok wrong=0");
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 1 && seen.held == 1234 && seen.root_promised == 700000);
    /* One of its own it may have; the parent's stays what it was. */
    const char *reply = puppet_ask(&other, "reopen-in-child 80%%");
    RF_ASSERT_INT(number(reply, "promised"), 100000);
    RF_ASSERT_INT(number(reply, "others"), 1);
    RF_ASSERT_TEXT(puppet_ask(&other, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&other, "unlock"), "ok");
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    puppet_end(&other);
    stage_close(&stage);
}

/* ---- the lock ---- */

RF_TEST(lease, the_lock_excludes_and_names_its_holder) {
    struct stage stage;
    struct puppet one, two;
    char wanted[64];
    stage_open(&stage);
    start(&stage, &one);
    start(&stage, &two);
    puppet_ask(&one, "open 30%%");
    puppet_ask(&two, "open 30%%");
    RF_ASSERT_TEXT(puppet_ask(&one, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&one, "lock"), "ok"); /* may be nested */
    RF_ASSERT_TEXT(puppet_ask(&one, "unlock"), "ok");
    const char *reply = puppet_ask(&two, "lock 50");
    snprintf(wanted, sizeof wanted, "process %d", (int)one.pid);
    RF_ASSERT_CONTAINS(reply, "RF_E_BUSY");
    RF_ASSERT_CONTAINS(reply, wanted);
    kill(one.pid, SIGSTOP);
    int status;
    RF_ASSERT(waitpid(one.pid, &status, WUNTRACED) == one.pid && WIFSTOPPED(status));
    RF_ASSERT_CONTAINS(puppet_ask(&two, "lock 50"), "stopped; continue it (kill -CONT");
    kill(one.pid, SIGCONT);
    RF_ASSERT_TEXT(puppet_ask(&one, "unlock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&two, "lock 0"), "ok");
    puppet_kill(&two); /* with the lock held */
    RF_ASSERT_TEXT(puppet_ask(&one, "lock 0"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&one, "unlock"), "ok");
    puppet_end(&one);
    stage_close(&stage);
}

/* ---- what a lease leaves alone ---- */

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    RF_ASSERT(folder != NULL);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* A survey gives back the table that it opened. */
RF_TEST(lease, a_survey_leaves_nothing_open) {
    struct stage stage;
    struct puppet other;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 30%%");
    int before = descriptors();
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    RF_EXPECT_INT(descriptors(), before);
    puppet_end(&other);
    stage_close(&stage);
}

/* Whether this process has a view of the file system of its own, in which the boot's id cannot be read. */
static bool hide_boot_id(void) {
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc/sys/kernel/random", "tmpfs", 0, NULL) == 0;
}

/* Without the boot's id a lease still works, and its success leaves the thread's error text alone. */
RF_TEST(lease, without_the_boots_id) {
    struct stage stage;
    struct rf_lease *lease = NULL;
    struct rf_lease_terms terms;
    if (!hide_boot_id()) RF_SKIP("no mount namespace: %s", strerror(errno));
    RF_ASSERT(access("/proc/sys/kernel/random/boot_id", F_OK) != 0);
    stage_open(&stage);
    rf_fail(RF_E_INVALID, "an earlier failure");
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_EXPECT_TEXT(rf_error_text(), "an earlier failure");
    RF_EXPECT_INT(terms.promised_bytes, 700000);
    RF_EXPECT_INT(survey(stage.dir).mine, 1);
    rf_lease_close(&lease);
    stage_close(&stage);
}

/* ---- threads of one process ---- */

struct together {
    struct stage *stage;
    struct rf_lease *shared;
    uint64_t *inside; /* under the lease's lock only: a race here is the lock's fault */
    int index;
};

static void *thread_main(void *user) {
    struct together *job = user;
    for (int i = 0; i < 60; i++) {
        struct rf_lease *own = NULL;
        struct rf_lease_terms terms;
        RF_ASSERT_OK(try_open(job->stage, "70%", &own, &terms));
        RF_ASSERT_OK(rf_lease_lock(own, rf_deadline_after(PATIENCE_NS)));
        ++*job->inside;
        rf_lease_unlock(own);
        rf_lease_set_held(job->shared, (uint64_t)i);
        char part[128];
        RF_ASSERT_OK(rf_lease_lock(job->shared, rf_deadline_after(PATIENCE_NS)));
        ++*job->inside;
        rf_lease_unlock(job->shared);
        if (rf_lease_lend(job->shared, 10, part, sizeof part) == RF_OK)
            RF_ASSERT_OK(rf_lease_reclaim(job->shared, part, NULL));
        survey(job->stage->dir);
        rf_lease_close(&own);
    }
    return NULL;
}

RF_TEST(lease, threads_of_one_process) {
    struct stage stage;
    struct rf_lease *shared;
    uint64_t inside = 0;
    pthread_t threads[8];
    struct together jobs[8];
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "50%", &shared, NULL));
    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct together){&stage, shared, &inside, i};
        RF_ASSERT(pthread_create(&threads[i], NULL, thread_main, &jobs[i]) == 0);
    }
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    RF_ASSERT_INT(inside, 8 * 60 * 2);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    rf_lease_close(&shared);
    stage_close(&stage);
}
