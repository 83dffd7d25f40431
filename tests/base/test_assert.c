/* A failed check says where it stands and ends the process; one that holds does neither. */
#include "../checks_testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int evaluated;
static bool count_and(bool value) {
    evaluated++;
    return value;
}
#if RF_CHECKS >= 2
static bool number_is_valid(const int *number, const char **why) {
    RF_INVALID_UNLESS(*number >= 0, "it is negative");
    RF_INVALID_UNLESS(*number < 10, "it has two digits");
    return true;
}
#endif

static void cheap(void) {
    rf_assert(count_and(1 + 1 == 3));
}
static void slow(void) {
    rf_assert_slow(count_and(2 + 2 == 5));
}
static void validator(void) {
    int number = 10;
    rf_assert_valid(number_is_valid, &number);
}
static void sound(void) {
    int number = 9;
    rf_assert(count_and(true));
    rf_assert_slow(count_and(true));
    rf_assert_valid(number_is_valid, &number);
}

/* What a child that makes the call leaves on standard error; its wait status. */
static int run_apart(void (*call)(void), char *text, size_t size) {
    int ends[2], status = 0;
    RF_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        call();
        _exit(7);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used + 1 < size && (got = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    RF_ASSERT(waitpid(child, &status, 0) == child);
    return status;
}

#define EXPECT_ABORT(call, wanted)                                                                                   \
    do {                                                                                                             \
        char text[2048];                                                                                             \
        int status = run_apart(call, text, sizeof text);                                                             \
        RF_ASSERT_CONTAINS(text, wanted);                                                                            \
        RF_ASSERT_CONTAINS(text, "tests/base/test_assert.c:");                                                       \
        RF_EXPECT(text[0] == 't' && strchr(text, '\n') == text + strlen(text) - 1); /* one line, its path first */   \
        RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);                                               \
    } while (0)

RF_TEST(checks, a_failed_one_prints_its_place_and_aborts) {
    NEED_CHECKS();
    EXPECT_ABORT(cheap, ": cheap: count_and(1 + 1 == 3): ");
    EXPECT_ABORT(slow, ": slow: count_and(2 + 2 == 5): ");
    EXPECT_ABORT(validator, ": validator: number_is_valid(&number): it has two digits");
}

RF_TEST(checks, one_that_holds_says_nothing) {
    char text[256];
    int status = run_apart(sound, text, sizeof text);
    RF_EXPECT_TEXT(text, "");
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* Without the option the condition is not even looked at. */
RF_TEST(checks, are_evaluated_as_the_level_says) {
    evaluated = 0;
    sound();
    RF_EXPECT_INT(evaluated, RF_CHECKS);
}

/* tools/check_layers.py looks for the same in a library that is built without the option. */
RF_TEST(checks, are_in_the_program_only_with_the_option) {
    static char before[1 << 16];
    const char *name = "rf_assert_", *rest = "failed";
    char wanted[32];
    size_t kept = 0, length = (size_t)snprintf(wanted, sizeof wanted, "%s%s", name, rest);
    bool found = false;
    FILE *self = fopen("/proc/self/exe", "rb");
    RF_ASSERT(self != NULL);
    for (size_t got; (got = fread(before + kept, 1, sizeof before - kept, self)) > 0;) {
        found = found || memmem(before, kept + got, wanted, length);
        size_t tail = kept + got < length ? kept + got : length - 1;
        memmove(before, before + kept + got - tail, tail);
        kept = tail;
    }
    fclose(self);
    RF_EXPECT(found == (RF_CHECKS > 0));
}
