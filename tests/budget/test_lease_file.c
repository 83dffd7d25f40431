/* The file of leases and its folder: damaged, wiped, deleted, not to be trusted. */
#include "lease_stage.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
