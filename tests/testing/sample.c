/* Tests that pass, fail, crash, hang and lie, for test_harness.c to run. */
#include <rocmforge/test.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

RF_TEST(good, passes) {
    RF_ASSERT(true);
}
RF_TEST(good, notes) {
    RF_NOTE("a note with seed %llu", (unsigned long long)rf_test_seed());
}
RF_TEST(good, skips) {
    RF_SKIP("no %s here", "thing");
}
RF_TEST(good, slow_one, .tags = "slow,stress") {
    RF_NOTE("slowly");
}
RF_TEST(good, on_a_gpu, .gpu = true) {
    RF_NOTE("one at a time");
}
RF_TEST(good, prints_a_false_failure) {
    puts("FAIL  good.passes\n0 passed, 99 failed, 0 skipped");
    puts("failure\tnot a record");
}

static void fail_deep_inside(int value) {
    RF_ASSERT_INT(value, 42);
}

RF_TEST(bad, asserts) {
    RF_NOTE("before");
    RF_ASSERT_STATUS(RF_OK, RF_E_BUDGET);
    RF_NOTE("never reached");
}
RF_TEST(bad, asserts_in_a_helper) {
    fail_deep_inside(41);
    RF_NOTE("never reached");
}
RF_TEST(bad, expects) {
    RF_EXPECT_INT(1, 2);
    RF_EXPECT(0 > 1);
    RF_NOTE("reached");
}
RF_TEST(bad, expects_without_end) {
    for (int i = 0; i < 100000; i++) RF_EXPECT_INT(i, -1);
}
RF_TEST(bad, lies_about_the_end) {
    puts("1 passed, 0 failed, 0 skipped");
    puts("verdict\tpassed");
    fflush(stdout);
    RF_FAIL("the truth");
}
RF_TEST(bad, prints_garbage) {
    for (int i = 0; i < 256; i++) putchar(i);
    printf("\n\x1b[2J\x1b[1;1H");
    RF_FAIL("after \x01 garbage\nand a second line\t.");
}
RF_TEST(bad, floods) {
    puts("the first line");
    char line[1000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 20000; i++) fwrite(line, 1, sizeof line, stdout);
    puts("the last line");
    RF_FAIL("wet");
}
RF_TEST(bad, crashes) {
    puts("last words");
    RF_EXPECT_INT(5, 6);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}
RF_TEST(bad, aborts) {
    signal(SIGABRT, SIG_DFL);
    abort();
}
RF_TEST(bad, exits) {
    exit(0);
}
RF_TEST(bad, leaves_at_once) {
    _exit(0);
}

static void end_badly(void) {
    _exit(9);
}
RF_TEST(bad, crashes_at_exit) {
    atexit(end_badly);
}

RF_TEST(bad, hangs, .timeout_ms = 300) {
    puts("about to hang");
    for (;;) pause();
}
RF_TEST(bad, ignores_signals, .timeout_ms = 300) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (;;) pause();
}

static void *fail_on_thread(void *user) {
    RF_ASSERT_TEXT("thread", "main");
    *(bool *)user = true;
    return NULL;
}
RF_TEST(bad, thread_asserts) {
    bool went_on = false;
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, fail_on_thread, &went_on) == 0);
    pthread_join(thread, NULL);
    RF_NOTE(went_on ? "the thread went on" : "the thread ended");
}
RF_TEST(bad, forked_child_asserts) {
    pid_t child = fork();
    if (child == 0) {
        fail_deep_inside(7);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    RF_NOTE("child exited with %d", WEXITSTATUS(status));
}
RF_TEST(bad, leaves_a_process_behind) {
    /* It holds the pipes and would sleep for long: neither may delay the verdict. */
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_IGN);
        sleep(3600);
        _exit(0);
    }
    RF_NOTE("left %d behind", (int)child);
}
RF_TEST(bad, floats) {
    float actual[3] = {1, 2, 3}, expected[3] = {1, 2.5f, 3};
    RF_ASSERT_FLOATS(actual, expected, 3, 1e-3, 0);
}
