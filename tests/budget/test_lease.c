/* Leases between processes, one step at a time: terms, parts, death in its several forms,
 * forked children, a damaged file, an unsafe folder. */
#include "helpers.h"
#include "gpu/lease_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder for the leases, a GPU and a leash. */
struct stage {
    char dir[64], gpu_path[80], table[160];
    struct fake_gpu *gpu;
    int leash[2];
};

static void stage_open(struct stage *stage) {
    make_folder(stage->dir, sizeof stage->dir);
    snprintf(stage->gpu_path, sizeof stage->gpu_path, "%s/gpu", stage->dir);
    snprintf(stage->table, sizeof stage->table, "%s/gpu-%s.v1", stage->dir, TEST_UUID);
    stage->gpu = fake_gpu_map(stage->gpu_path, true);
    RF_ASSERT(stage->gpu != NULL);
    atomic_fetch_add(&stage->gpu->users, 1); /* index 0 is the test's own */
    RF_ASSERT(pipe2(stage->leash, O_CLOEXEC) == 0);
}

static void stage_close(struct stage *stage) {
    RF_ASSERT_INT(survey(stage->dir).leases, 0);
    close(stage->leash[0]);
    close(stage->leash[1]);
    remove_folder(stage->dir);
}

static void start(struct stage *stage, struct puppet *puppet) {
    puppet_start(puppet, stage->dir, stage->gpu_path, stage->leash[0]);
}

static rf_status try_open(struct stage *stage, const char *text, struct rf_lease **lease,
                          struct rf_lease_terms *terms) {
    struct rf_lease_params params = {.dir = stage->dir,
                                     .uuid = TEST_UUID,
                                     .live_free = fake_gpu_free,
                                     .user = stage->gpu,
                                     .timeout_ns = PATIENCE_NS,
                                     .total_bytes = GPU_TOTAL};
    RF_ASSERT_OK(rf_budget_parse(text, &params.spec));
    return rf_lease_open(&params, lease, terms);
}

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

/* ---- parts ---- */

RF_TEST(lease, a_part_lies_within_its_lenders_promise) {
    struct stage stage;
    struct puppet parent, child, second;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char part[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    start(&stage, &second);
    puppet_ask(&parent, "open 90%%");
    puppet_ask(&parent, "hold 100000");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 300000") + 3);
    RF_ASSERT_CONTAINS(part, "part=");
    RF_ASSERT_CONTAINS(part, ":300000");
    const char *reply = puppet_ask(&child, "open %s", part);
    RF_ASSERT_INT(number(reply, "promised"), 300000);
    RF_ASSERT_INT(number(reply, "floor"), 100000); /* the lender's, not 30% */
    RF_ASSERT_CONTAINS(puppet_ask(&second, "open %s", part), "RF_E_BUSY");
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "reclaim %s", part), "RF_E_BUSY");
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "lend 500001"), "RF_E_BUDGET");
    puppet_ask(&child, "hold 250000");
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 2 && seen.parts == 1 && seen.root_promised == 900000 && seen.held == 350000);
    RF_ASSERT_OK(try_open(&stage, "95%", &lease, &terms));
    RF_ASSERT_INT(terms.others_promised_bytes, 900000);
    RF_ASSERT_INT(terms.free0_bytes, 650000 - 550000);
    RF_ASSERT_INT(terms.promised_bytes, 50000);
    rf_lease_close(&lease);
    /* A smaller budget cannot take back what was lent. */
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 10%%"), "promised"), 300000);
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 90%%"), "promised"), 900000);
    /* The child leaves: the part can be used again, and then be taken back. */
    puppet_kill(&child);
    atomic_store(&stage.gpu->used[2], 0);
    RF_ASSERT_INT(number(puppet_ask(&second, "open %s", part), "promised"), 300000);
    puppet_ask(&second, "close");
    RF_ASSERT_INT(number(puppet_ask(&parent, "reclaim %s", part), "bytes"), 300000);
    RF_ASSERT_CONTAINS(puppet_ask(&parent, "reclaim %s", part), "RF_E_NOT_FOUND");
    RF_ASSERT_CONTAINS(puppet_ask(&second, "open %s", part), "RF_E_NOT_FOUND");
    puppet_end(&second);
    puppet_end(&parent);
    stage_close(&stage);
}

/* A lender that shrinks under what it holds and lent: the part may still be taken, so nobody else is promised it. */
RF_TEST(lease, what_is_lent_counts_beside_what_is_held) {
    struct stage stage;
    struct puppet parent, child, other;
    char part[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    start(&stage, &other);
    puppet_ask(&parent, "open 70%%");
    puppet_ask(&parent, "hold 400000");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 300000") + 3);
    RF_ASSERT_INT(number(puppet_ask(&parent, "renew 10%%"), "promised"), 300000);
    const char *reply = puppet_ask(&other, "open 80%%");
    RF_ASSERT_INT(number(reply, "others_promised"), 700000);
    RF_ASSERT_INT(number(reply, "promised"), 100000);
    puppet_ask(&child, "open %s", part);
    puppet_ask(&child, "hold 300000");
    RF_ASSERT_INT(number(puppet_ask(&other, "renew 80%%"), "promised"), 100000);
    puppet_end(&other);
    puppet_end(&child);
    puppet_end(&parent);
    stage_close(&stage);
}

RF_TEST(lease, a_part_outlives_its_lender) {
    struct stage stage;
    struct puppet parent, child;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char part[128], unused[128];
    stage_open(&stage);
    start(&stage, &parent);
    start(&stage, &child);
    puppet_ask(&parent, "open 70%%");
    snprintf(part, sizeof part, "%s", puppet_ask(&parent, "lend 200000") + 3);
    snprintf(unused, sizeof unused, "%s", puppet_ask(&parent, "lend 100000") + 3);
    puppet_ask(&child, "open %s", part);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 5%%"), "promised"), 50000);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 90%%"), "promised"), 200000); /* never more than the part */
    puppet_kill(&parent);
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 1 && seen.parts == 0 && seen.root_promised == 200000);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 500000);
    rf_lease_close(&lease);
    RF_ASSERT_STATUS(try_open(&stage, unused, &lease, &terms), RF_E_NOT_FOUND);
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 10%%"), "promised"), 100000);
    /* What it gave back may be somebody else's by now. */
    RF_ASSERT_INT(number(puppet_ask(&child, "renew 90%%"), "promised"), 100000);
    puppet_end(&child);
    stage_close(&stage);
}

RF_TEST(lease, parts_of_parts) {
    struct stage stage;
    struct puppet top, middle, bottom;
    char part[128], inner[128];
    stage_open(&stage);
    start(&stage, &top);
    start(&stage, &middle);
    start(&stage, &bottom);
    puppet_ask(&top, "open 70%%");
    snprintf(part, sizeof part, "%s", puppet_ask(&top, "lend 300000") + 3);
    puppet_ask(&middle, "open %s", part);
    snprintf(inner, sizeof inner, "%s", puppet_ask(&middle, "lend 200000") + 3);
    RF_ASSERT_INT(number(puppet_ask(&bottom, "open %s", inner), "promised"), 200000);
    RF_ASSERT_CONTAINS(puppet_ask(&bottom, "lend 1"), "RF_E_UNSUPPORTED");
    RF_ASSERT_INT(survey(stage.dir).root_promised, 700000);
    /* The middle dies: its grandchild still lies within the top's promise, and keeps the part busy. */
    puppet_kill(&middle);
    RF_ASSERT_INT(survey(stage.dir).root_promised, 700000);
    RF_ASSERT_CONTAINS(puppet_ask(&top, "reclaim %s", part), "RF_E_BUSY");
    puppet_kill(&top);
    RF_ASSERT_INT(survey(stage.dir).root_promised, 200000);
    puppet_end(&bottom);
    stage_close(&stage);
}

/* One generation in 256 begins with the letters that elsewhere announce a descriptor. */
RF_TEST(lease, a_part_of_any_name_is_found) {
    struct stage stage;
    struct puppet borrower;
    struct rf_lease *lease;
    char part[96] = "";
    stage_open(&stage);
    start(&stage, &borrower);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    for (int i = 0; i < 100000 && !strstr(part, "-fd"); i++) {
        if (part[0]) RF_ASSERT_OK(rf_lease_reclaim(lease, part, NULL));
        RF_ASSERT_OK(rf_lease_lend(lease, 1000, part, sizeof part));
    }
    RF_ASSERT_CONTAINS(part, "-fd");
    RF_ASSERT_INT(number(puppet_ask(&borrower, "open %s", part), "promised"), 1000);
    puppet_end(&borrower);
    rf_lease_close(&lease);
    stage_close(&stage);
}

/* A table has room for 1024 leases and parts. One more is refused, and the refusal leaves what is lent as it is. */
RF_TEST(lease, more_parts_than_the_table_has_room_for) {
    enum { MOST = 1024 };
    static char parts[MOST][96];
    struct stage stage;
    struct rf_lease *lease;
    char one_more[96] = "untouched";
    int count = 0;
    rf_status status = RF_OK;
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    while (count < MOST && !(status = rf_lease_lend(lease, 1, parts[count], sizeof parts[count]))) count++;
    RF_ASSERT_STATUS(status, RF_E_BUSY);
    RF_ASSERT_INT(count, MOST - 1);
    RF_ASSERT_CONTAINS(rf_error_text(), "all 1024 leases of");
    RF_ASSERT_STATUS(rf_lease_lend(lease, 1, one_more, sizeof one_more), RF_E_BUSY);
    RF_ASSERT_TEXT(one_more, "untouched");
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        RF_ASSERT_OK(rf_lease_reclaim(lease, parts[i], &bytes));
        RF_ASSERT_INT(bytes, 1);
    }
    RF_ASSERT_OK(rf_lease_lend(lease, 700000, one_more, sizeof one_more)); /* the failures left nothing lent */
    rf_lease_close(&lease);
    stage_close(&stage);
}

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

RF_TEST(lease, bad_parts) {
    struct stage stage;
    struct rf_lease *lease, *none = NULL;
    char part[128], other[160];
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, NULL));
    RF_ASSERT_STATUS(rf_lease_lend(lease, 0, part, sizeof part), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 5, NULL, 0), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 5, part, 10), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_lend(lease, 700001, part, sizeof part), RF_E_BUDGET);
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_BUDGET");
    RF_ASSERT_OK(rf_lease_lend(lease, 700000, part, sizeof part)); /* the failures left nothing lent */
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, "70%", NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, "part=nonsense", NULL), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_lease_reclaim(lease, NULL, NULL), RF_E_INVALID);
    snprintf(other, sizeof other, "%.*s:7", (int)(strchr(part, ':') - part), part);
    RF_ASSERT_STATUS(try_open(&stage, other, &none, NULL), RF_E_INVALID); /* of another size than was lent */
    RF_ASSERT_STATUS(try_open(&stage, "part=1-2-3:5", &none, NULL), RF_E_NOT_FOUND);
    RF_ASSERT(none == NULL);
    struct rf_budget_spec spec;
    RF_ASSERT_OK(rf_budget_parse(part, &spec));
    RF_ASSERT_STATUS(rf_lease_renew(lease, &spec, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_renew(lease, NULL, NULL), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_lease_renew(NULL, &spec, NULL), RF_E_INVALID);
    rf_lease_close(&lease); /* with its part still lent */
    RF_ASSERT_STATUS(try_open(&stage, part, &none, NULL), RF_E_NOT_FOUND);
    rf_lease_close(&lease);
    rf_lease_close(NULL);
    stage_close(&stage);
}

/* ---- the file and the folder ---- */

static void spoil(struct stage *stage, const void *bytes, size_t length, off_t truncate_to) {
    FILE *file = fopen(stage->table, "w"); /* truncates */
    RF_ASSERT(file != NULL);
    RF_ASSERT(fwrite(bytes, 1, length, file) == length);
    RF_ASSERT(fclose(file) == 0);
    if (truncate_to >= 0) RF_ASSERT(truncate(stage->table, truncate_to) == 0);
    chmod(stage->table, 0600);
}

RF_TEST(lease, a_damaged_file_is_an_empty_one) {
    struct stage stage;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    static unsigned char bytes[300000];
    struct rf_random random = {rf_test_seed() + 3};
    stage_open(&stage);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)rf_random_next(&random);
        size_t length = round == 0 ? 0 : rf_random_below(&random, sizeof bytes);
        if (round % 3 == 1) memset(bytes, 0xff, sizeof bytes);
        spoil(&stage, bytes, length, round % 5 == 2 ? (off_t)rf_random_below(&random, 500000) : -1);
        RF_ASSERT_INT(survey(stage.dir).leases, 0);
        RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
        RF_ASSERT_INT(terms.promised_bytes, 700000);
        rf_lease_set_held(lease, 5);
        RF_ASSERT_INT(survey(stage.dir).leases, 1);
        rf_lease_close(&lease);
    }
    stage_close(&stage);
}

/* Live slots with every word but the owner's replaced: still no crash, no ring followed. */
RF_TEST(lease, damage_under_live_owners) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_random random = {rf_test_seed() + 4};
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 30%%");
    puppet_ask(&other, "lend 5");
    int fd = open(stage.table, O_RDWR | O_CLOEXEC);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 20; i++) {
            uint64_t word = rf_random_below(&random, 2) ? rf_random_next(&random) : rf_random_below(&random, 8);
            off_t at =
                4096 + (off_t)(192 * rf_random_below(&random, 3)) + 64 + (off_t)(8 * rf_random_below(&random, 16));
            RF_ASSERT(pwrite(fd, &word, sizeof word, at) == sizeof word);
        }
        survey(stage.dir);
        if (try_open(&stage, "70%", &lease, NULL) == RF_OK) {
            struct rf_budget_spec spec = {.has_percent = true, .percent = 20};
            rf_lease_renew(lease, &spec, NULL);
            rf_lease_close(&lease);
        }
    }
    close(fd);
    puppet_kill(&other);
    stage_close(&stage);
}

/* Wiped while in use: the owner's next renewal puts it back; nobody else was given its slot. */
RF_TEST(lease, a_wiped_file_is_healed_by_renewing) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    static unsigned char zeros[100000];
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 40%%");
    puppet_ask(&other, "hold 1000");
    int fd = open(stage.table, O_RDWR | O_CLOEXEC);
    RF_ASSERT(pwrite(fd, zeros, sizeof zeros, 0) == sizeof zeros);
    close(fd);
    RF_ASSERT_OK(try_open(&stage, "30%", &lease, &terms));
    puppet_ask(&other, "hold 2000"); /* must not land in the newcomer's slot */
    RF_ASSERT_INT(survey(stage.dir).held, 0);
    RF_ASSERT_INT(number(puppet_ask(&other, "renew 70%%"), "others"), 1);
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 2 && seen.held == 2000);
    /* Cut to nothing: reading what was mapped would be a SIGBUS. */
    RF_ASSERT(truncate(stage.table, 0) == 0);
    RF_ASSERT_INT(survey(stage.dir).leases, 0);
    RF_ASSERT(truncate(stage.table, 5000) == 0);
    RF_ASSERT_INT(number(puppet_ask(&other, "renew 20%%"), "promised"), 200000);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    RF_ASSERT(truncate(stage.table, 0) == 0);
    rf_lease_close(&lease);
    puppet_end(&other);
    stage_close(&stage);
}

/* The kernel gives a process a lock that it has already: another lease of the process must not get the slot. */
RF_TEST(lease, a_wiped_slot_is_not_given_to_another_lease_of_its_process) {
    struct stage stage;
    struct rf_lease *one, *two;
    static unsigned char zeros[100000];
    stage_open(&stage);
    RF_ASSERT_OK(try_open(&stage, "20%", &one, NULL));
    int fd = open(stage.table, O_RDWR | O_CLOEXEC);
    RF_ASSERT(pwrite(fd, zeros, sizeof zeros, 0) == sizeof zeros); /* closing it here would drop the locks */
    RF_ASSERT_OK(try_open(&stage, "30%", &two, NULL));
    rf_lease_set_held(two, 7);
    rf_lease_set_held(one, 111);
    struct survey seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 1 && seen.held == 7 && seen.root_promised == 300000);
    RF_ASSERT_OK(rf_lease_lock(one, rf_deadline_after(PATIENCE_NS)));
    rf_lease_unlock(one);
    seen = survey(stage.dir);
    RF_ASSERT(seen.leases == 2 && seen.held == 118 && seen.root_promised == 500000);
    rf_lease_close(&one);
    rf_lease_close(&two);
    close(fd);
    stage_close(&stage);
}

/* The lease that was in the file joins the new one, and leases that are opened meanwhile count it. */
RF_TEST(lease, a_deleted_file_is_made_anew) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *old, *lease;
    struct rf_lease_terms terms;
    struct rf_budget_spec spec = {.has_percent = true, .percent = 20};
    stage_open(&stage);
    start(&stage, &other);
    RF_ASSERT_OK(try_open(&stage, "30%", &old, &terms));
    puppet_ask(&other, "open 40%%");
    RF_ASSERT(unlink(stage.table) == 0);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT(access(stage.table, F_OK) == 0);
    RF_ASSERT_INT(terms.others, 2); /* both are found by the descriptors that processes have of the old file */
    RF_ASSERT_INT(terms.promised_bytes, 300000);
    RF_ASSERT_OK(rf_lease_renew(old, &spec, &terms));
    RF_ASSERT_INT(terms.others, 2);
    RF_ASSERT_INT(survey(stage.dir).leases, 3);
    rf_lease_close(&old);
    rf_lease_close(&lease);
    RF_ASSERT_INT(survey(stage.dir).leases, 1);
    puppet_end(&other);
    stage_close(&stage);
}

/* Whatever a damaged file says, no lease is of more than the card; and the owner's next look at it mends it. */
RF_TEST(lease, damaged_figures_are_bounded_by_the_card) {
    struct stage stage;
    struct puppet other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    stage_open(&stage);
    start(&stage, &other);
    puppet_ask(&other, "open 30%%");
    puppet_ask(&other, "hold 1000");
    int fd = open(stage.table, O_RDWR | O_CLOEXEC);
    static const off_t figures[] = {offsetof(struct rf_lease_slot, promised_bytes),
                                    offsetof(struct rf_lease_slot, held_bytes)};
    for (size_t i = 0; i < RF_COUNT(figures); i++) {
        uint64_t absurd = UINT64_MAX - 7 * i;
        RF_ASSERT(pwrite(fd, &absurd, sizeof absurd, 4096 + figures[i]) == sizeof absurd);
    }
    close(fd);
    struct survey seen = survey(stage.dir);
    RF_ASSERT_INT(seen.root_promised, GPU_TOTAL);
    RF_ASSERT_INT(seen.held, GPU_TOTAL);
    RF_ASSERT_OK(try_open(&stage, "70%", &lease, &terms));
    RF_ASSERT_INT(terms.others_promised_bytes, GPU_TOTAL);
    RF_ASSERT_INT(terms.others_held_bytes, GPU_TOTAL);
    RF_ASSERT_INT(terms.promised_bytes, 0);
    rf_lease_close(&lease);
    RF_ASSERT_TEXT(puppet_ask(&other, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&other, "unlock"), "ok");
    seen = survey(stage.dir);
    RF_ASSERT_INT(seen.root_promised, 300000);
    RF_ASSERT_INT(seen.held, 1000);
    puppet_end(&other);
    stage_close(&stage);
}

RF_TEST(lease, folders_that_cannot_be_trusted) {
    struct stage stage;
    struct rf_lease *lease = NULL;
    char path[128], target[128];
    stage_open(&stage);
    struct rf_lease_params params = {
        .dir = path, .uuid = TEST_UUID, .live_free = fake_gpu_free, .user = stage.gpu, .timeout_ns = RF_MS(1000)};
    snprintf(target, sizeof target, "%s/real", stage.dir);
    snprintf(path, sizeof path, "%s/link", stage.dir);
    RF_ASSERT(mkdir(target, 0700) == 0 && symlink(target, path) == 0);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    RF_ASSERT_CONTAINS(rf_error_text(), "symbolic link");
    snprintf(path, sizeof path, "%s/open", stage.dir);
    RF_ASSERT(mkdir(path, 0700) == 0 && chmod(path, 0777) == 0);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    RF_ASSERT_CONTAINS(rf_error_text(), "chmod 700");
    snprintf(path, sizeof path, "%s/gpu", stage.dir); /* a file */
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    snprintf(path, sizeof path, "%s/no/such", stage.dir);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    /* A table that is a link, a pipe or a folder. */
    snprintf(path, sizeof path, "%s/real", stage.dir);
    char table[400];
    snprintf(table, sizeof table, "%s/gpu-%s.v1", path, TEST_UUID);
    RF_ASSERT(symlink(stage.gpu_path, table) == 0);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    RF_ASSERT(unlink(table) == 0 && mkfifo(table, 0600) == 0);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    RF_ASSERT(unlink(table) == 0 && mkdir(table, 0700) == 0);
    RF_ASSERT_STATUS(rf_lease_open(&params, &lease, NULL), RF_E_IO);
    RF_ASSERT(rmdir(table) == 0);
    RF_ASSERT_OK(rf_lease_open(&params, &lease, NULL));
    struct stat file;
    RF_ASSERT(stat(table, &file) == 0);
    RF_ASSERT_INT(file.st_mode & 0777, 0600);
    rf_lease_close(&lease);
    /* A folder is made where only its parent is. */
    snprintf(path, sizeof path, "%s/fresh", stage.dir);
    RF_ASSERT_OK(rf_lease_open(&params, &lease, NULL));
    RF_ASSERT(stat(path, &file) == 0);
    RF_ASSERT_INT(file.st_mode & 07777, 0700);
    rf_lease_close(&lease);
    stage_close(&stage);
}

RF_TEST(lease, strange_uuids_stay_inside_the_folder) {
    struct stage stage;
    struct rf_lease *one, *two;
    struct rf_lease_terms terms;
    stage_open(&stage);
    struct rf_lease_params params = {.dir = stage.dir,
                                     .uuid = "../../x/y",
                                     .live_free = fake_gpu_free,
                                     .user = stage.gpu,
                                     .timeout_ns = RF_MS(1000)};
    RF_ASSERT_OK(rf_lease_open(&params, &one, &terms));
    params.uuid = "../../x:y"; /* another GPU, though it cleans up alike */
    RF_ASSERT_OK(rf_lease_open(&params, &two, &terms));
    RF_ASSERT_INT(terms.others, 0);
    rf_lease_close(&one);
    rf_lease_close(&two);
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
