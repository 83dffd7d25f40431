/* All leases of a user on a GPU meet, whatever the environment was when a process started, whatever vanishes while
 * it runs, and whatever another user does. Each test has the usual places below a folder of its own. */
#include "helpers.h"
#include "gpu/lease_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)

/* A machine: /dev/shm and /tmp for all users, no /run/user. */
struct machine {
    char root[64], where[72], gpu_path[80];
    struct fake_gpu *gpu;
};

static void make_shared(const struct machine *machine, const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", machine->root, name);
    RF_ASSERT(mkdir(path, 0700) == 0 && chmod(path, 01777) == 0);
}

static void machine_open(struct machine *machine, uint64_t total_bytes) {
    char path[128];
    unsetenv("XDG_RUNTIME_DIR");
    make_folder(machine->root, sizeof machine->root);
    RF_ASSERT(chmod(machine->root, 0755) == 0 && chmod(rf_test_folder(), 0711) == 0); /* other users find it */
    snprintf(machine->where, sizeof machine->where, "@%s", machine->root);
    snprintf(machine->gpu_path, sizeof machine->gpu_path, "%s/gpu", machine->root);
    machine->gpu = fake_gpu_map(machine->gpu_path, true);
    RF_ASSERT(machine->gpu != NULL);
    atomic_store(&machine->gpu->total, total_bytes);
    atomic_fetch_add(&machine->gpu->users, 1); /* index 0 is the test's own */
    snprintf(path, sizeof path, "%s/dev", machine->root);
    RF_ASSERT(mkdir(path, 0755) == 0);
    make_shared(machine, "dev/shm");
    make_shared(machine, "tmp");
}

static void machine_close(struct machine *machine) {
    RF_ASSERT_INT(survey(machine->where).leases, 0);
    remove_folder(machine->root);
}

static void begin(struct machine *machine, struct puppet *puppet) {
    puppet_start(puppet, machine->where, machine->gpu_path, -1);
}

/* What logging in makes, and what logging out removes: /run/user/UID, and this user's files in /dev/shm. */
static void log_in(const struct machine *machine) {
    char path[160];
    static const char *const names[] = {"run", "run/user"};
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", machine->root, names[i]);
        RF_ASSERT(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
    snprintf(path, sizeof path, "%s/run/user/%u", machine->root, (unsigned)geteuid());
    RF_ASSERT(mkdir(path, 0700) == 0);
    setenv("XDG_RUNTIME_DIR", path, 1);
}

static void log_out(const struct machine *machine) {
    char path[160];
    snprintf(path, sizeof path, "%s/run/user/%u", machine->root, (unsigned)geteuid());
    remove_folder(path);
    snprintf(path, sizeof path, "%s/dev/shm/rocmforge-%u", machine->root, (unsigned)geteuid());
    remove_folder(path);
    unsetenv("XDG_RUNTIME_DIR");
}

static void table_path(const struct machine *machine, const char *folder, char *path, size_t size) {
    snprintf(path, size, "%s/%s/gpu-%s.v1", machine->root, folder, strrchr(machine->root, '/') + 1);
}

/* The live slots in one file, read as the file is, by nothing of the library's. */
static int slots_in(const struct machine *machine, const char *folder) {
    char path[300];
    static unsigned char bytes[1 << 20];
    table_path(machine, folder, path, sizeof path);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    int count = 0;
    for (size_t at = 4096; at + sizeof(struct rf_lease_slot) <= length; at += sizeof(struct rf_lease_slot)) {
        uint32_t state;
        memcpy(&state, bytes + at, sizeof state);
        count += state == RF_LEASE_LIVE;
    }
    return count;
}

static const char *own_folder(const char *above) {
    static char name[64];
    snprintf(name, sizeof name, "%s/rocmforge-%u", above, (unsigned)geteuid());
    return name;
}

static void remove_shared(const struct machine *machine) {
    static const char *const shared[] = {"dev/shm", "tmp"};
    for (size_t i = 0; i < RF_COUNT(shared); i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", machine->root, own_folder(shared[i]));
        remove_folder(path);
    }
}

static rf_status try_open(struct machine *machine, const char *text, struct rf_lease **lease,
                          struct rf_lease_terms *terms) {
    struct rf_lease_params params = {.live_free = fake_gpu_free,
                                     .user = machine->gpu,
                                     .timeout_ns = PATIENCE_NS,
                                     .total_bytes = atomic_load(&machine->gpu->total)};
    lease_where(machine->where, &params);
    RF_ASSERT_OK(rf_budget_parse(text, &params.spec));
    return rf_lease_open(&params, lease, terms);
}

/* What this GPU has left for others must stay above the floor: the second process took 3.25 GiB of the 5 that were
 * left of 16, as if the first one's 11 GiB belonged to somebody else. */
RF_TEST(lease_places, before_and_after_login_is_one_budget) {
    struct machine machine;
    struct puppet before, after, later;
    machine_open(&machine, 16 * GIB);
    begin(&machine, &before);
    const char *reply = puppet_ask(&before, "open 70%%");
    RF_ASSERT_INT(number(reply, "promised"), 16 * GIB * 7 / 10);
    uint64_t floor = number(reply, "floor");
    RF_ASSERT(floor >= 4 * GIB + 8 * GIB / 10);
    puppet_ask(&before, "hold %llu", (unsigned long long)(11 * GIB));
    log_in(&machine);
    begin(&machine, &after);
    reply = puppet_ask(&after, "open 70%%");
    RF_ASSERT_INT(number(reply, "others"), 1);
    RF_ASSERT_INT(number(reply, "others_held"), 11 * GIB);
    RF_ASSERT_INT(number(reply, "floor"), floor);
    uint64_t promised = number(reply, "promised"), left;
    RF_ASSERT(promised < GIB / 4);
    puppet_ask(&after, "hold %llu", (unsigned long long)promised);
    RF_ASSERT_OK(fake_gpu_free(machine.gpu, &left));
    RF_ASSERT(left >= floor);
    /* The first process writes itself into the new place when it next looks; the second one is in all of them. */
    char run[64];
    snprintf(run, sizeof run, "run/user/%u/rocmforge", (unsigned)geteuid());
    RF_ASSERT_INT(slots_in(&machine, run), 1);
    RF_ASSERT_TEXT(puppet_ask(&before, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&before, "unlock"), "ok");
    RF_ASSERT_INT(slots_in(&machine, run), 2);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 2);
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 2);
    /* Logging out removes two of the three places. */
    log_out(&machine);
    begin(&machine, &later);
    reply = puppet_ask(&later, "open 70%%");
    RF_ASSERT_INT(number(reply, "others"), 2);
    RF_ASSERT_INT(number(reply, "floor"), floor);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 1); /* made anew; the others come when they look */
    RF_ASSERT_TEXT(puppet_ask(&after, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&after, "unlock"), "ok");
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 2);
    RF_ASSERT_INT(survey(machine.where).leases, 3);
    puppet_end(&before);
    puppet_end(&after);
    puppet_end(&later);
    machine_close(&machine);
}

/* A process asks one owner of its files which others there are: the files of the first lease are gone, the second has
 * new ones and knows the first, the third finds the second and by it the first. When the second is gone, nobody has a
 * lease in the new files, and the fourth asks all processes. */
RF_TEST(lease_places, owners_lead_to_each_other) {
    struct machine machine;
    struct puppet one, two, three, four;
    machine_open(&machine, GPU_TOTAL);
    begin(&machine, &one);
    puppet_ask(&one, "open 10%%");
    remove_shared(&machine);
    begin(&machine, &two);
    RF_ASSERT_INT(number(puppet_ask(&two, "open 20%%"), "others"), 1);
    begin(&machine, &three);
    const char *reply = puppet_ask(&three, "open 30%%");
    RF_ASSERT_INT(number(reply, "others"), 2);
    RF_ASSERT_INT(number(reply, "others_promised"), 200000);
    puppet_end(&two);
    puppet_end(&three);
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 2); /* of the dead: the first has not looked yet */
    begin(&machine, &four);
    RF_ASSERT_INT(number(puppet_ask(&four, "open 70%%"), "others"), 1);
    puppet_end(&one);
    puppet_end(&four);
    machine_close(&machine);
}

/* Nothing is left that a new process could find by name. Its owner's descriptor is found. */
RF_TEST(lease_places, all_folders_deleted_under_a_lease) {
    struct machine machine;
    struct puppet one, two, three;
    machine_open(&machine, GPU_TOTAL);
    begin(&machine, &one);
    puppet_ask(&one, "open 40%%");
    puppet_ask(&one, "hold 1234");
    remove_shared(&machine);
    begin(&machine, &two);
    const char *reply = puppet_ask(&two, "open 70%%");
    RF_ASSERT_INT(number(reply, "others"), 1);
    RF_ASSERT_INT(number(reply, "others_held"), 1234);
    RF_ASSERT_INT(number(reply, "promised"), 300000);
    /* The first lease joins the new files with what it was promised and holds, and is found there by itself. */
    RF_ASSERT_TEXT(puppet_ask(&one, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&one, "unlock"), "ok");
    puppet_ask(&one, "hold 2345");
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 2);
    puppet_end(&two);
    begin(&machine, &three);
    reply = puppet_ask(&three, "open 70%%");
    RF_ASSERT_INT(number(reply, "others"), 1);
    RF_ASSERT_INT(number(reply, "others_promised"), 400000);
    RF_ASSERT_INT(number(reply, "others_held"), 2345);
    puppet_end(&one);
    puppet_end(&three);
    machine_close(&machine);
}

/* A part that was lent before the folders vanished is found, used and taken back after it. */
RF_TEST(lease_places, lent_parts_move_too) {
    struct machine machine;
    struct puppet lender, user;
    char part[128], path[200];
    machine_open(&machine, GPU_TOTAL);
    begin(&machine, &lender);
    puppet_ask(&lender, "open 70%%");
    snprintf(part, sizeof part, "%s", puppet_ask(&lender, "lend 200000") + 3);
    snprintf(path, sizeof path, "%s/%s", machine.root, own_folder("tmp"));
    remove_folder(path);
    log_in(&machine);
    RF_ASSERT_TEXT(puppet_ask(&lender, "lock"), "ok");
    RF_ASSERT_TEXT(puppet_ask(&lender, "unlock"), "ok");
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 2);
    snprintf(path, sizeof path, "%s/%s", machine.root, own_folder("dev/shm"));
    remove_folder(path);
    begin(&machine, &user);
    RF_ASSERT_INT(number(puppet_ask(&user, "open %s", part), "promised"), 200000);
    struct survey seen = survey(machine.where);
    RF_ASSERT(seen.leases == 2 && seen.parts == 1 && seen.root_promised == 700000);
    RF_ASSERT_CONTAINS(puppet_ask(&lender, "reclaim %s", part), "RF_E_BUSY");
    puppet_end(&user);
    RF_ASSERT_INT(number(puppet_ask(&lender, "reclaim %s", part), "bytes"), 200000);
    RF_ASSERT_CONTAINS(puppet_ask(&lender, "reclaim %s", part), "RF_E_NOT_FOUND");
    puppet_end(&lender);
    log_out(&machine);
    machine_close(&machine);
}

/* A process that knows one place only, as versions before the places did, and one that knows all of them. */
RF_TEST(lease_places, a_process_in_one_place_only_is_met) {
    struct machine machine;
    struct puppet all;
    struct rf_lease *old, *second;
    struct rf_lease_terms terms;
    char dir[200];
    machine_open(&machine, GPU_TOTAL);
    log_in(&machine);
    static const char *const folders[] = {"dev/shm", "tmp"};
    for (size_t i = 0; i < RF_COUNT(folders); i++) {
        snprintf(dir, sizeof dir, "%s/%s", machine.root, own_folder(folders[i]));
        struct rf_lease_params params = {.dir = dir,
                                         .uuid = strrchr(machine.root, '/') + 1,
                                         .spec = {.has_percent = true, .percent = 40},
                                         .live_free = fake_gpu_free,
                                         .user = machine.gpu,
                                         .timeout_ns = PATIENCE_NS};
        RF_ASSERT_OK(rf_lease_open(&params, &old, &terms));
        begin(&machine, &all);
        const char *reply = puppet_ask(&all, "open 70%%");
        RF_ASSERT_INT(number(reply, "others"), 1);
        RF_ASSERT_INT(number(reply, "promised"), 300000);
        params.spec.percent = 80;
        RF_ASSERT_OK(rf_lease_open(&params, &second, &terms));
        RF_ASSERT_INT(terms.others, 2);
        RF_ASSERT_INT(terms.promised_bytes, 100000);
        rf_lease_close(&second);
        rf_lease_close(&old);
        puppet_end(&all);
    }
    log_out(&machine);
    machine_close(&machine);
}

static bool has_open(pid_t pid, const char *path) {
    char link[64], target[512];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        if (!strcmp(target, path)) return true;
    }
    return false;
}

/* A place appears after a process looked there and before it has the lock, with a lease in it. */
RF_TEST(lease_places, a_place_that_appears_before_the_lock) {
    struct machine machine;
    struct puppet waiting, other;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char path[300], dir[200];
    machine_open(&machine, GPU_TOTAL);
    snprintf(path, sizeof path, "%s/dev/shm", machine.root);
    RF_ASSERT(rmdir(path) == 0);
    RF_ASSERT_OK(try_open(&machine, "10%", &lease, &terms));
    RF_ASSERT_OK(rf_lease_lock(lease, rf_deadline_after(PATIENCE_NS)));
    begin(&machine, &waiting);
    puppet_tell(&waiting, "open 70%");
    /* /tmp is the last place: it has looked at /dev/shm before. */
    table_path(&machine, own_folder("tmp"), path, sizeof path);
    int64_t deadline = rf_deadline_after(PATIENCE_NS);
    while (!has_open(waiting.pid, path)) {
        RF_ASSERT(rf_now_ns() < deadline);
        rf_sleep_ns(RF_MS(1));
    }
    make_shared(&machine, "dev/shm");
    /* The other one is in the new place only, and not to be found by /proc. */
    snprintf(dir, sizeof dir, "%s/%s", machine.root, own_folder("dev/shm"));
    RF_ASSERT(mkdir(dir, 0700) == 0);
    table_path(&machine, own_folder("dev/shm"), path, sizeof path);
    char moved[] = "/tmp/rf-budget-other-XXXXXX", table[300];
    RF_ASSERT(mkdtemp(moved) != NULL);
    puppet_start(&other, moved, machine.gpu_path, -1);
    RF_ASSERT_INT(number(puppet_ask(&other, "open 20%%"), "promised"), 200000);
    snprintf(table, sizeof table, "%s/gpu-%s.v1", moved, TEST_UUID);
    if (link(table, path) != 0) RF_SKIP("no hard links: %s", strerror(errno));
    RF_ASSERT(unlink(table) == 0 && rmdir(moved) == 0);
    rf_lease_unlock(lease);
    const char *reply = puppet_answer(&waiting);
    RF_ASSERT_INT(number(reply, "others"), 2);
    RF_ASSERT_INT(number(reply, "others_promised"), 300000);
    puppet_end(&waiting);
    puppet_end(&other);
    rf_lease_close(&lease);
    machine_close(&machine);
}

/* The turn is taken in every place: who knows only one of them waits for it too. */
RF_TEST(lease_places, the_turn_is_one_in_all_places) {
    struct machine machine;
    struct rf_lease_places *all, *one;
    struct rf_lease_params params = {0};
    int holder = 0;
    machine_open(&machine, GPU_TOTAL);
    lease_where(machine.where, &params);
    RF_ASSERT_OK(rf_lease_places_open(&params, true, NULL, &all));
    for (int i = 0; i < 4; i++) {
        char dir[200];
        snprintf(dir, sizeof dir, "%s/%s", machine.root, own_folder(i & 1 ? "tmp" : "dev/shm"));
        params.dir = dir;
        RF_ASSERT_OK(rf_lease_places_open(&params, true, NULL, &one));
        struct rf_lease_places *first = i & 2 ? one : all, *second = i & 2 ? all : one;
        RF_ASSERT(rf_lease_places_take_turn(first, &holder));
        RF_ASSERT(!rf_lease_places_take_turn(second, &holder));
        RF_ASSERT_INT(holder, getpid());
        rf_lease_places_end_turn(first);
        RF_ASSERT(rf_lease_places_take_turn(second, &holder)); /* the refusal left nothing taken */
        rf_lease_places_end_turn(second);
        rf_lease_places_close(&one);
    }
    rf_lease_places_close(&all);
    machine_close(&machine);
}

/* ---- another user ---- */

#define USER_A 65534
#define USER_B 65533

static void begin_as(struct machine *machine, struct puppet *puppet, unsigned user) {
    begin(machine, puppet);
    RF_ASSERT_TEXT(puppet_ask(puppet, "become %u", user), "ok");
}

static int count_folders(const struct machine *machine, const char *above, const char *begins) {
    char command[400], text[32] = "";
    snprintf(command, sizeof command, "ls -d %s/%s/%s* 2>/dev/null | wc -l", machine->root, above, begins);
    FILE *pipe = popen(command, "r");
    RF_ASSERT(pipe != NULL && fgets(text, sizeof text, pipe) != NULL);
    pclose(pipe);
    return atoi(text);
}

RF_TEST(lease_places, another_user_can_neither_block_nor_split) {
    struct machine machine;
    struct puppet a1, a2, a3, b;
    if (geteuid() != 0) RF_SKIP("only root can be two users");
    machine_open(&machine, GPU_TOTAL);
    RF_ASSERT(chmod(machine.gpu_path, 0666) == 0);
    begin_as(&machine, &b, USER_B);
    /* B takes A's names, in both places that are for all users. */
    static const char *const shared[] = {"dev/shm", "tmp"};
    for (size_t i = 0; i < RF_COUNT(shared); i++) {
        RF_ASSERT_TEXT(puppet_ask(&b, "try mkdir %s/%s/rocmforge-%u", machine.root, shared[i], USER_A), "ok done");
        RF_ASSERT_TEXT(puppet_ask(&b, "try mkdir %s/%s/rocmforge-%u.0", machine.root, shared[i], USER_A), "ok done");
    }
    begin_as(&machine, &a1, USER_A);
    begin_as(&machine, &a2, USER_A);
    begin_as(&machine, &a3, USER_A);
    RF_ASSERT_INT(number(puppet_ask(&a1, "open 40%%"), "promised"), 400000);
    const char *reply = puppet_ask(&a2, "open 50%%");
    RF_ASSERT_INT(number(reply, "others"), 1);
    RF_ASSERT_INT(number(reply, "promised"), 100000);
    /* B's own budget is B's: A's leases are nothing to it. */
    RF_ASSERT_INT(number(puppet_ask(&b, "open 70%%"), "others"), 0);
    puppet_ask(&b, "close");
    /* B gives the names back: the next process of A uses them and meets the others all the same. */
    for (size_t i = 0; i < RF_COUNT(shared); i++)
        RF_ASSERT_TEXT(puppet_ask(&b, "try rmdir %s/%s/rocmforge-%u", machine.root, shared[i], USER_A), "ok done");
    reply = puppet_ask(&a3, "open 70%%");
    RF_ASSERT_INT(number(reply, "others"), 2);
    RF_ASSERT_INT(number(reply, "promised"), 200000);
    /* One folder of A's for each place was enough: all of A's processes found it. The others are B's and the plain
     * one.
     */
    char random_name[64], path[200];
    snprintf(random_name, sizeof random_name, "rocmforge-%u", USER_A);
    RF_ASSERT_INT(count_folders(&machine, "tmp", random_name), 3);
    /* What is A's, B can neither read nor write nor move nor remove. */
    for (size_t i = 0; i < RF_COUNT(shared); i++) {
        snprintf(path, sizeof path, "%s/%s/rocmforge-%u", machine.root, shared[i], USER_A);
        RF_ASSERT_TEXT(puppet_ask(&b, "try list %s", path), "ok Permission denied");
        RF_ASSERT_TEXT(puppet_ask(&b, "try write %s/gpu-%s.v1", path, strrchr(machine.root, '/') + 1),
                       "ok Permission denied");
        RF_ASSERT_TEXT(puppet_ask(&b, "try rename %s", path), "ok Operation not permitted");
        RF_ASSERT_TEXT(puppet_ask(&b, "try rmdir %s", path), "ok Operation not permitted");
    }
    /* Root may open a private folder of B's, and does not put its leases there. */
    struct rf_lease *lease;
    RF_ASSERT_TEXT(puppet_ask(&b, "try mkdir700 %s/tmp/rocmforge-0", machine.root), "ok done");
    RF_ASSERT_OK(try_open(&machine, "70%", &lease, NULL));
    RF_ASSERT_INT(slots_in(&machine, "dev/shm/rocmforge-0"), 1);
    RF_ASSERT_INT(slots_in(&machine, "tmp/rocmforge-0"), -1);
    rf_lease_close(&lease);
    puppet_end(&a1);
    puppet_end(&a2);
    puppet_end(&a3);
    puppet_end(&b);
    machine_close(&machine);
}

/* Where everybody may rename everything, nothing of ours is put. */
RF_TEST(lease_places, a_shared_folder_without_the_sticky_bit_is_not_used) {
    struct machine machine;
    struct rf_lease *lease;
    char path[128];
    machine_open(&machine, GPU_TOTAL);
    snprintf(path, sizeof path, "%s/tmp", machine.root);
    RF_ASSERT(chmod(path, 0777) == 0);
    RF_ASSERT_OK(try_open(&machine, "70%", &lease, NULL));
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 1);
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), -1);
    rf_lease_close(&lease);
    machine_close(&machine);
}

/* ---- places without room ---- */

static bool write_own(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return done;
}

/* A mount namespace of this process's own, in which the user stays who it is. */
static bool make_namespace(void) {
    char users[64], groups[64];
    bool root = geteuid() == 0;
    snprintf(users, sizeof users, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(groups, sizeof groups, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0) return false;
    if (!root && (!write_own("/proc/self/setgroups", "deny") || !write_own("/proc/self/uid_map", users) ||
                  !write_own("/proc/self/gid_map", groups)))
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* A small file system of this test's own at ROOT/NAME. Each test is a process, so nothing is to be undone. */
static void mount_small(const struct machine *machine, const char *name, unsigned long flags, const char *options) {
    static bool own;
    char path[128];
    if (!own && !make_namespace()) {
        int error = errno;
        remove_folder(machine->root);
        RF_SKIP("no mount namespace of its own: %s", strerror(error));
    }
    own = true;
    snprintf(path, sizeof path, "%s/%s", machine->root, name);
    if (mount("none", path, flags & MS_REMOUNT ? NULL : "tmpfs", flags, options) < 0)
        RF_SKIP("no tmpfs at %s: %s", path, strerror(errno));
}

static void unmount_all(const struct machine *machine) {
    static const char *const names[] = {"dev/shm", "tmp"};
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", machine->root, names[i]);
        umount2(path, MNT_DETACH); /* perhaps nothing is mounted there */
    }
    remove_folder(machine->root);
}

RF_TEST(lease_places, a_full_or_read_only_place_is_passed_over) {
    struct machine machine;
    struct rf_lease *lease, *second;
    struct rf_lease_terms terms;
    machine_open(&machine, GPU_TOTAL);
    mount_small(&machine, "dev/shm", 0, "size=64k,mode=1777");
    RF_ASSERT_OK(try_open(&machine, "40%", &lease, &terms));
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 1);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 0);
    /* When there is room, it is used. */
    mount_small(&machine, "dev/shm", MS_REMOUNT, "size=1m,mode=1777");
    RF_ASSERT_OK(rf_lease_lock(lease, rf_deadline_after(PATIENCE_NS)));
    rf_lease_unlock(lease);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 1);
    rf_lease_close(&lease);
    /* Read-only, with the file of before in it. */
    mount_small(&machine, "dev/shm", MS_REMOUNT | MS_RDONLY, "size=1m,mode=1777");
    RF_ASSERT_OK(try_open(&machine, "40%", &lease, &terms));
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 0);
    RF_ASSERT_INT(slots_in(&machine, own_folder("tmp")), 1);
    RF_ASSERT_OK(try_open(&machine, "70%", &second, &terms));
    RF_ASSERT_INT(terms.promised_bytes, 300000);
    rf_lease_close(&second);
    rf_lease_close(&lease);
    /* No place at all. */
    mount_small(&machine, "tmp", 0, "size=64k,mode=1777");
    second = NULL;
    RF_ASSERT_STATUS(try_open(&machine, "70%", &second, &terms), RF_E_IO);
    RF_ASSERT(second == NULL);
    RF_ASSERT_CONTAINS(rf_error_text(), machine.root);
    unmount_all(&machine);
}

/* The file of a live lease is cut while its file system is full: the lease goes on in the other places. */
RF_TEST(lease_places, a_file_that_cannot_be_mended_is_left) {
    struct machine machine;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char path[300], filler[128];
    static char bytes[1 << 20];
    machine_open(&machine, GPU_TOTAL);
    mount_small(&machine, "dev/shm", 0, "size=512k,mode=1777");
    RF_ASSERT_OK(try_open(&machine, "40%", &lease, &terms));
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 1);
    table_path(&machine, own_folder("dev/shm"), path, sizeof path);
    RF_ASSERT(truncate(path, 8192) == 0);
    snprintf(filler, sizeof filler, "%s/dev/shm/filler", machine.root);
    int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    RF_ASSERT(fd >= 0);
    while (write(fd, bytes, sizeof bytes) > 0) continue;
    close(fd);
    RF_ASSERT_OK(rf_lease_lock(lease, rf_deadline_after(PATIENCE_NS)));
    rf_lease_set_held(lease, 5);
    rf_lease_unlock(lease);
    rf_lease_set_held(lease, 6);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 0);
    struct survey seen = survey(machine.where);
    RF_ASSERT(seen.leases == 1 && seen.held == 6 && seen.root_promised == 400000);
    RF_ASSERT(unlink(filler) == 0);
    RF_ASSERT_OK(rf_lease_lock(lease, rf_deadline_after(PATIENCE_NS)));
    rf_lease_unlock(lease);
    RF_ASSERT_INT(slots_in(&machine, own_folder("dev/shm")), 1);
    rf_lease_close(&lease);
    unmount_all(&machine);
}
