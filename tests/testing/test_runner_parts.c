/* Parts of the runner, called by themselves, where what they promise cannot be seen from outside or only by chance.
 */
#include "../../src/testing/runner_impl.h"

#include <rocmforge/test.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- options ---- */

static enum rf_test_parsed parse(struct rf_test_settings *settings, const char *const *arguments, bool executables) {
    static char *argv[16]; /* the settings refer to it */
    int argc = 1;
    argv[0] = "program";
    for (; *arguments; arguments++) argv[argc++] = (char *)*arguments;
    argv[argc] = NULL;
    return rf_test_settings_parse(settings, argc, argv, executables);
}

/* As the help tells them. */
RF_TEST(settings, without_options) {
    struct rf_test_settings is;
    RF_ASSERT_INT(parse(&is, (const char *const[]){NULL}, false), RF_TEST_RUN);
    RF_EXPECT_INT(is.jobs, (int)rf_usable_cores());
    RF_EXPECT_INT(is.gpu_jobs, 1);
    RF_EXPECT_INT(is.gpu_wait_ms, 3600 * 1000);
    RF_EXPECT_CONTAINS(rf_test_option_help, "wait at most this long for the GPU (default: 3600)");
    RF_EXPECT_INT(is.timeout_ms, 0);
    RF_EXPECT_INT(is.repeat, 1);
    RF_EXPECT_INT(is.slowest, -1);
    RF_EXPECT(is.timeout_scale > 0.999 && is.timeout_scale < 1.001);
    RF_EXPECT_UINT(is.seed, rf_test_seed());
    RF_EXPECT_INT(is.record_fd, -1);
    RF_EXPECT_TEXT(is.program, "program");
    RF_EXPECT(!is.shuffle && !is.until_fail && !is.fail_fast && !is.rerun_failed && !is.no_rerun && !is.fail_alloc);
    RF_EXPECT(!is.gpu_only && !is.in_process && !is.show_output && !is.quiet && !is.verbose && !is.debug);
    RF_EXPECT(!is.list && !is.machine);
    RF_EXPECT(!is.check && !is.junit && !is.json && !is.run_one && !is.before && !is.run_list && !is.health);
    RF_EXPECT(!is.command && !is.pattern_count && !is.tag_count && !is.skip_tag_count && !is.executable_count);
    rf_test_settings_finish(&is);
}

RF_TEST(settings, of_every_kind) {
    struct rf_test_settings is;
    static const char *const given[] = {"--gpu-wait", "2.5",  "--until-fail", "--timeout", "3",  "suite.*",
                                        "--tag",      "slow", "--shuffle",    "0x10",      "--", "cmd",
                                        NULL};
    RF_ASSERT_INT(parse(&is, given, true), RF_TEST_RUN);
    RF_EXPECT_INT(is.gpu_wait_ms, 2500);
    RF_EXPECT_INT(is.repeat, 1000000);
    RF_EXPECT_INT(is.timeout_ms, 3001);
    RF_ASSERT_UINT(is.executable_count, 1);
    RF_EXPECT_TEXT(is.executables[0], "suite.*");
    RF_ASSERT_UINT(is.tag_count, 1);
    RF_EXPECT_TEXT(is.tags[0], "slow");
    RF_EXPECT_UINT(is.shuffle_seed, 16);
    RF_ASSERT_NOT_NULL(is.command);
    RF_EXPECT_TEXT(is.command[0], "cmd");
    rf_test_settings_finish(&is);
}

/* ---- memory ---- */

RF_TEST(grow, to_nothing_is_no_failure) {
    char *memory = rf_test_grow(NULL, 0);
    RF_ASSERT_NOT_NULL(memory);
    memory = rf_test_grow(memory, 100);
    memory[99] = 1;
    memory = rf_test_grow(memory, 0);
    RF_ASSERT_NOT_NULL(memory);
    free(memory);
}

/* ---- children ---- */

#define READS_AT_ONCE 64 /* child.c: a child that writes without end must not hold up the others */

struct answers {
    struct rf_test_child *child;
    int to_child; /* it writes back what it is told */
    int count;
};

/* Called between two reads. Lets the child answer once for each further read of this look, and with the last one say
 * its last words and end: they arrive behind the last read of this look, and the child is found ended by it. */
static void answer(void *user, const char *data, size_t length) {
    struct answers *answers = user;
    (void)data, (void)length;
    if (++answers->count > READS_AT_ONCE) return;
    bool last = answers->count == READS_AT_ONCE;
    dprintf(answers->to_child, last ? "last words\n" : "x\n");
    struct pollfd output = {.fd = answers->child->output_fd, .events = POLLIN};
    RF_ASSERT_INT(poll(&output, 1, 60000), 1);
    if (!last) return;
    close(answers->to_child);
    siginfo_t info = {0};
    RF_ASSERT_INT(waitid(P_PID, (id_t)answers->child->pid, &info, WEXITED | WNOWAIT), 0);
}

RF_TEST(child, its_last_words_are_output) {
    char folder[] = "/tmp/rf-test-child-XXXXXX", fifo[64], script[256];
    RF_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    RF_ASSERT_INT(mkfifo(fifo, 0600), 0);
    snprintf(script, sizeof script, "exec < %s; echo x; while read -r line; do echo \"$line\"; done", fifo);
    char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct rf_test_child child, *children[] = {&child};
    struct answers answers = {.child = &child};
    struct rf_test_spawn spawn = {
        .argv = argv, .timeout_ns = INT64_C(600000000000), .on_output = answer, .user = &answers};
    answers.to_child = open(fifo, O_RDWR | O_CLOEXEC); /* the child's open of its end does not wait */
    RF_ASSERT(answers.to_child >= 0);
    int error = rf_test_child_start(&child, &spawn);
    if (!error) {
        /* Once it has said something, it has its input open; it ends when the one end for writing is closed. */
        int write_only = open(fifo, O_WRONLY | O_CLOEXEC);
        RF_ASSERT(write_only >= 0);
        struct pollfd output = {.fd = child.output_fd, .events = POLLIN};
        RF_ASSERT_INT(poll(&output, 1, 60000), 1);
        close(answers.to_child);
        answers.to_child = write_only;
    }
    while (!error && !child.ended) rf_test_children_serve(children, 1, INT64_C(200000000));
    unlink(fifo);
    rmdir(folder);
    RF_ASSERT_INT(error, 0);
    char *text;
    size_t length, gap_at;
    uint64_t left_out;
    rf_test_capture_text(&child.output, &text, &length, &gap_at, &left_out);
    RF_EXPECT_INT(answers.count, READS_AT_ONCE + 1);
    RF_EXPECT_UINT(length, 2 * READS_AT_ONCE + strlen("last words\n"));
    RF_EXPECT(length > 11 && !strcmp(text + length - 11, "last words\n"));
    RF_EXPECT_UINT(child.record_length, 0);
    free(text);
    rf_test_child_finish(&child);
}

/* Looking at processes holds nothing open. */
RF_TEST(child, is_looked_at_any_number_of_times) {
    struct rlimit limit = {64, 64};
    RF_ASSERT_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 200; i++) RF_ASSERT(rf_test_process_works(getpid())); /* it runs: it asks */
}

/* A program that cannot be started leaves nothing open either. */
RF_TEST(child, that_cannot_be_started) {
    char *argv[] = {"/nonexistent/program", NULL};
    struct rf_test_spawn spawn = {.argv = argv, .timeout_ns = INT64_C(1000000000)};
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 10; i++) {
        struct rf_test_child child;
        RF_ASSERT_INT(rf_test_child_start(&child, &spawn), ENOENT);
        RF_EXPECT(child.ended && child.pid == -1 && child.output_fd == -1 && child.record_fd == -1);
    }
    int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    RF_EXPECT_INT(after, before + 1);
    /* The pipes of a child lie above the descriptor of the record. */
    int above = fcntl(before, F_DUPFD_CLOEXEC, RF_TEST_RECORD_FD + 1);
    RF_EXPECT_INT(above, RF_TEST_RECORD_FD + 1);
    close(above);
    close(after);
    close(before);
}
