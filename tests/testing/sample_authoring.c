/* Tests that fail in every way a comparison can, with suites, tables and traces, for
 * test_assertions.c and test_cases.c to run. No GPU. */
#include <rocmforge/test.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arrays ---- */

static float big_expected[4096], big_actual[4096];
static void fill_big(void) {
    for (int i = 0; i < 4096; i++) big_actual[i] = big_expected[i] = (float)(i % 17) - 8;
}

RF_TEST(array, far_off, .setup = fill_big) {
    /* Cell 2 wholly, one of cell 10, half of cell 63; the largest in cell 63. */
    for (int i = 128; i < 192; i++) big_actual[i] += 0.5f;
    big_actual[640] += 0.25f;
    for (int i = 4064; i < 4096; i++) big_actual[i] += 1;
    big_actual[4070] = big_expected[4070] + 7;
    RF_ASSERT_F32(big_actual, big_expected, 4096, rf_shaped(rf_absolute(1e-3), 3, (const uint64_t[]){4, 32, 32}));
}
RF_TEST(array, not_numbers, .setup = fill_big) {
    big_actual[5] = NAN;
    big_actual[6] = INFINITY;
    big_expected[7] = -INFINITY;
    big_actual[8] += 0.125f;
    big_actual[9] = big_expected[9] = NAN;
    RF_ASSERT_F32(big_actual, big_expected, 4096, rf_within(1e-3, 1e-3));
}
RF_TEST(array, relative) {
    float expected[] = {1e6f, 1, 100}, actual[] = {1e6f + 10, 1.5f, 100};
    RF_ASSERT_F32(actual, expected, 3, rf_relative(1e-3));
}
RF_TEST(array, ulp) {
    float expected[] = {1, 1000, -0.0f}, actual[] = {1, 1000, 0};
    actual[0] = nextafterf(nextafterf(1, 2), 2);
    actual[1] = nextafterf(1000, 2000);
    RF_EXPECT_F32(actual, expected, 3, rf_ulp(2)); /* agrees */
    RF_ASSERT_F32(actual, expected, 3, rf_ulp(1));
}
RF_TEST(array, bits) {
    float expected[] = {1, -0.0f}, actual[] = {1, 0};
    RF_EXPECT_F32(actual, expected, 2, rf_exact()); /* agrees */
    RF_ASSERT_F32(actual, expected, 2, rf_same_bits());
}
RF_TEST(array, f16) {
    uint16_t expected[] = {0x3c00, 0x4000}, actual[] = {0x3c00, 0x4001};
    RF_ASSERT_F16(actual, expected, 2, rf_absolute(1e-3));
}
RF_TEST(array, bf16) {
    uint16_t expected[] = {0x3f80, 0x4000}, actual[] = {0x3f80, 0x7f80};
    RF_ASSERT_BF16(actual, expected, 2, rf_relative(0.1));
}
RF_TEST(array, i32) {
    int32_t expected[] = {0, INT32_MAX, -5}, actual[] = {0, INT32_MIN, -5};
    RF_ASSERT_I32(actual, expected, 3, rf_exact());
}
RF_TEST(array, u8) {
    uint8_t expected[300] = {0}, actual[300] = {0};
    actual[299] = 255;
    RF_ASSERT_U8(actual, expected, 300, rf_absolute(254));
}
RF_TEST(array, null) {
    float expected[] = {1};
    RF_ASSERT_F32(NULL, expected, 1, rf_exact());
}
RF_TEST(array, wrong_shape) {
    float values[] = {1, 2};
    RF_ASSERT_F32(values, values, 2, rf_shaped(rf_exact(), 2, (const uint64_t[]){2, 2}));
}
RF_TEST(array, expects_go_on) {
    int32_t one = 1, two = 2;
    RF_EXPECT_I32(&one, &two, 1, rf_exact());
    RF_NOTE("reached");
}
RF_TEST(array, agrees) {
    float expected[] = {1, 2, 3}, actual[] = {1, 2.25f, 3};
    RF_ASSERT_F32(actual, expected, 3, rf_absolute(0.5));
}
RF_TEST(array, long_words) {
    /* A failure longer than one line of the record. */
    char a[3000], b[3000];
    memset(a, 'a', sizeof a);
    memset(b, 'a', sizeof b);
    a[sizeof a - 1] = b[sizeof b - 1] = 0;
    b[2000] = 'b';
    RF_ASSERT_TEXT(a, b);
}

RF_TEST(value, all) {
    int here = 0, there = 0;
    RF_EXPECT_UINT(UINT64_MAX, 255);
    RF_EXPECT_DOUBLE(1.5, 1.25, 0.1);
    RF_EXPECT_DOUBLE(NAN, 1, 1e300);
    RF_EXPECT_POINTER(&here, &there);
    RF_EXPECT_TEXT("abcdef", "abcxef");
    RF_EXPECT_CONTAINS("abc", "z");
    RF_EXPECT_STATUS(rf_runtime_create(NULL, NULL), RF_OK);
    RF_ASSERT_NOT_NULL(NULL);
}

/* ---- traces and threads ---- */

static void deep(int column) {
    RF_TRACE("column %d", column);
    RF_ASSERT(column < 2);
}
RF_TEST(trace, names_the_place) {
    for (int row = 0; row < 3; row++) {
        RF_TRACE("row %d", row);
        for (int column = 0; column <= row; column++) deep(column);
    }
}
RF_TEST(trace, ends_with_its_block) {
    {
        RF_TRACE("inside");
    }
    RF_FAIL("outside");
}
static void *trace_thread(void *user) {
    RF_TRACE("on the thread");
    RF_ASSERT(user == NULL && false);
    return NULL;
}
RF_TEST(trace, is_of_a_thread) {
    RF_TRACE("on the main thread");
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, trace_thread, NULL) == 0);
    pthread_join(thread, NULL);
}
static void *wait_for_ever(void *user) {
    for (;;) pause();
    return user;
}
RF_TEST(thread, is_left_running) {
    pthread_t thread;
    RF_ASSERT(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
}

/* ---- suites, set-up, tear-down ---- */

static void say_setup(void) {
    RF_NOTE("suite up");
}
static void say_teardown(void) {
    RF_NOTE("suite down");
}
RF_SUITE(ordered, .setup = say_setup, .teardown = say_teardown);
static void up(void) {
    RF_NOTE("up");
}
static void down(void) {
    RF_NOTE("down");
}
RF_TEST(ordered, one, .setup = up, .teardown = down) {
    RF_NOTE("one");
}
RF_TEST(ordered, two, .setup = up, .teardown = down) {
    RF_NOTE("two");
    RF_FAIL("two failed");
}

static void fail_setup(void) {
    RF_FAIL("no ground to stand on");
}
RF_SUITE(groundless, .setup = fail_setup, .teardown = say_teardown);
RF_TEST(groundless, one, .teardown = down) {
    RF_NOTE("never reached");
}
RF_TEST(groundless, two) {
    RF_NOTE("never reached");
}

static void skip_setup(void) {
    RF_SKIP("not today");
}
RF_SUITE(idle, .setup = skip_setup);
RF_TEST(idle, one) {
    RF_NOTE("never reached");
}
RF_TEST(idle, two) {
    RF_NOTE("never reached");
}

RF_TEST(own, setup_fails, .setup = fail_setup, .teardown = down) {
    RF_NOTE("never reached");
}
RF_TEST(own, setup_skips, .setup = skip_setup, .teardown = down) {
    RF_NOTE("never reached");
}
static void fail_teardown(void) {
    RF_FAIL("cannot clean up");
}
RF_TEST(own, teardown_fails, .teardown = fail_teardown) {
    RF_NOTE("fine so far");
}
RF_SUITE(lateness, .teardown = fail_teardown);
RF_TEST(lateness, passes) {
    RF_NOTE("fine so far");
}

/* ---- tables ---- */

struct shape {
    int rows;
    const char *label;
    int columns;
};
static const struct shape shapes[] = {
    {1, "one", 1},
    {3, "a b/c*", 5},
    {7, NULL, 2},
    {100, "big", 100},
};
RF_TEST_LABELLED_CASES(cases, labelled, struct shape, shapes, .timeout_ms = 7000, .tags = "table") {
    RF_NOTE("%d x %d", c->rows, c->columns);
    RF_ASSERT(c->rows < 50);
}
static const int numbers[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
RF_TEST_CASES(cases, indexed, int, numbers) {
    RF_NOTE("number %d", *c);
    RF_ASSERT(*c != 9);
}
