/* The assertions: where they pass, here; what they say when they fail, by running
 * sample_authoring.c. And the random numbers and half-width floats. */
#include "run_report.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

RF_TEST(assertions, floats_within_tolerance) {
    float expected[] = {0, 1, -1000, INFINITY, -INFINITY, NAN};
    float actual[] = {0.0009f, 1.001f, -1000.9f, INFINITY, -INFINITY, NAN};
    RF_ASSERT_FLOATS(actual, expected, 6, 1e-3, 1e-3);
    RF_ASSERT_FLOATS(expected, expected, 6, 0, 0);
    RF_ASSERT_FLOATS(NULL, NULL, 0, 0, 0);
    RF_ASSERT_F32(expected, expected, 6, rf_same_bits());
    RF_ASSERT_F32(expected, expected, 6, rf_ulp(0));
}

RF_TEST(assertions, every_type_agrees_with_itself) {
    uint16_t half[] = {0x3c00, 0x7c00, 0x7e00, 0x8000, 0x0001};
    int32_t whole[] = {INT32_MIN, -1, 0, 1, INT32_MAX};
    uint8_t bytes[] = {0, 1, 127, 128, 255};
    int8_t small[] = {-128, -1, 0, 1, 127};
    struct rf_compare rules[] = {rf_exact(),      rf_absolute(1), rf_relative(1e-3),
                                 rf_within(1, 1), rf_ulp(0),      rf_same_bits()};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        RF_TRACE("rule %zu", i);
        struct rf_compare how = rf_shaped(rules[i], 2, (const uint64_t[]){5, 1});
        RF_ASSERT_F16(half, half, 5, how);
        RF_ASSERT_BF16(half, half, 5, how);
        RF_ASSERT_I32(whole, whole, 5, how);
        RF_ASSERT_U8(bytes, bytes, 5, how);
        RF_ASSERT_I8(small, small, 5, how);
        RF_ASSERT_ARRAY(RF_I32, whole, whole, 5, how);
    }
    RF_ASSERT_BYTES(whole, whole, sizeof whole);
}

RF_TEST(assertions, texts_and_values) {
    char one[] = "same", two[] = "same";
    RF_ASSERT_TEXT(one, two);
    RF_ASSERT_TEXT(NULL, NULL);
    RF_ASSERT_CONTAINS("a needle in it", "needle");
    RF_ASSERT_CONTAINS("anything", "");
    RF_ASSERT_DOUBLE(1.0, 1.5, 0.5);
    RF_ASSERT_DOUBLE(NAN, NAN, 0);
    RF_ASSERT_DOUBLE(INFINITY, INFINITY, 0);
    RF_ASSERT_UINT(UINT64_MAX, UINT64_MAX);
    RF_ASSERT_POINTER(one, one);
    RF_ASSERT_NULL(NULL);
    RF_ASSERT_NOT_NULL(one);
}

/* ---- what failures say ---- */

static const char *const no_more = NULL;
/* Runs one sample; it fails with these parts. */
#define EXPECT_FAILURE(name, ...) expect_failure(name, (const char *const[]){__VA_ARGS__, no_more})
static void expect_failure(const char *name, const char *const *parts) {
    RF_TRACE("%s", name);
    RF_ASSERT_INT(run_report("", SAMPLE, name), 1);
    RF_ASSERT_CONTAINS(report, "0 passed, 1 failed, 0 skipped\n");
    for (; *parts; parts++) RF_ASSERT_CONTAINS(report, *parts);
}

RF_TEST(failures, show_place_values_and_picture) {
    EXPECT_FAILURE(
        "array.far_off", "sample_authoring.c:", "97 of 4096 values are off by more than 0.001 (f32)",
        "largest difference 7 (", " at [4070] (3, 31, 6): is ", "first at [128] (0, 4, 0); NMSE 0.00",
        "NaN 0 (expected 0), Inf 0 (expected 0)", "  expected -8 -7 -6 -5 -4 -3 -2 -1 0 1 …\n",
        "  actual   -8 -7 -6 -5 -4 -3 -2 -1 0 1 …\n", "  expected [128…]", "  actual   [128…]",
        "where    |  #       .                                                    x| a cell is 64 values\n");
}

RF_TEST(failures, tell_nan_and_infinity_from_differences) {
    EXPECT_FAILURE("array.not_numbers", "4 of 4096 values are off by more than 0.001 + 0.001 * |expected|",
                   "largest difference infinite at [5]: is NaN, expected -3",
                   "largest finite difference 0.125 at [8]: is 0.125, expected 0",
                   "NaN 2 (expected 1), Inf 1 (expected 1)", "first at [5]");
}

RF_TEST(failures, follow_the_rule) {
    EXPECT_FAILURE("array.relative", "1 of 3 values are off by more than 0.001 * |expected|",
                   "largest difference 0.5 (4194304 ULP) at [1]: is 1.5, expected 1\n");
    EXPECT_FAILURE("array.ulp", "1 of 3 values are off by more than 1 ULP", "(2 ULP) at [0]: is 1.00000024");
    EXPECT_FAILURE("array.bits", "1 of 2 values are off in any bit", "at [1]: is 0, expected -0");
    EXPECT_FAILURE("array.f16", "1 of 2 values are off by more than 0.001 (f16)",
                   "largest difference 0.00195312 (1 ULP) at [1]: is 2.002, expected 2");
    EXPECT_FAILURE("array.bf16", "at [1]: is inf, expected 2", "Inf 1 (expected 0)");
    EXPECT_FAILURE("array.i32", "1 of 3 values are off at all (i32)",
                   "largest difference 4.29497e+09 at [1]: is -2147483648, expected 2147483647");
    EXPECT_FAILURE("array.u8", "1 of 300 values are off by more than 254 (u8)", "is 255, expected 0",
                   "a cell is 4 values or one more");
}

RF_TEST(failures, of_arguments) {
    EXPECT_FAILURE("array.null", "the actual array is NULL");
    EXPECT_FAILURE("array.wrong_shape", "the shape holds 4 values, the array 2");
    EXPECT_FAILURE("array.expects_go_on", "1 of 1 values are off", "| reached\n");
}

RF_TEST(failures, of_values) {
    EXPECT_FAILURE("value.all", "is       18446744073709551615 (0xffffffffffffffff)", "off by   0.25, allowed 0.1",
                   "is       nan", "they differ from character 3 on", "should contain  \"z\"",
                   "gave     RF_E_INVALID: ", ": NULL\n");
}

RF_TEST(failures, longer_than_a_line_of_the_record) {
    EXPECT_FAILURE("array.long_words", "they differ from character 2000 on");
}

RF_TEST(failures, carry_their_traces) {
    EXPECT_FAILURE("trace.names_the_place", "is false: column < 2\n", "in: column 2 (", "in: row 2 (");
    RF_ASSERT(strstr(report, "in: column 2") < strstr(report, "in: row 2"));
    RF_ASSERT(!strstr(report, "row 1"));
    EXPECT_FAILURE("trace.ends_with_its_block", "outside");
    RF_ASSERT(!strstr(report, "inside"));
    EXPECT_FAILURE("trace.is_of_a_thread", "in: on the thread (", "on another thread, ");
    RF_ASSERT(!strstr(report, "on the main thread"));
}

RF_TEST(failures, threads_left_running) {
    EXPECT_FAILURE("thread.is_left_running", "left 1 thread running: ");
}

RF_TEST(debug, agreeing_arrays_are_told) {
    RF_ASSERT_INT(run_report("RF_TEST_DEBUG=1", SAMPLE, "array.agrees --show-output"), 0);
    RF_ASSERT_CONTAINS(report, "actual: 3 values agree; largest difference 0.25 at [1]: is 2.25, expected 2; "
                               "first 1 2.25 3\n");
    RF_ASSERT_INT(run_report("RF_TEST_DEBUG=", SAMPLE, "array.agrees --show-output"), 0);
    RF_ASSERT(!strstr(report, "agree;"));
}

/* ---- random numbers ---- */

RF_TEST(random, same_seed_same_numbers) {
    struct rf_random a = {7}, b = {7}, c = {8};
    uint64_t same = 0, other = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t value = rf_random_next(&a);
        same += value == rf_random_next(&b);
        other += value == rf_random_next(&c);
    }
    RF_ASSERT_INT(same, 100);
    RF_ASSERT_INT(other, 0);
    /* the published first outputs of the algorithm for state 0 */
    struct rf_random zero = {0};
    RF_ASSERT(rf_random_next(&zero) == UINT64_C(0xe220a8397b1dcdaf));
    RF_ASSERT(rf_random_next(&zero) == UINT64_C(0x6e789e6aa1b965f4));
}

RF_TEST(random, stays_in_range) {
    struct rf_random random = {rf_test_seed()};
    unsigned seen[6] = {0};
    double sum = 0;
    for (int i = 0; i < 6000; i++) {
        uint64_t value = rf_random_below(&random, 6);
        RF_ASSERT(value < 6);
        seen[value]++;
        double unit = rf_random_unit(&random);
        RF_ASSERT(unit >= 0 && unit < 1);
        sum += unit;
    }
    for (int i = 0; i < 6; i++) RF_ASSERT(seen[i] > 700 && seen[i] < 1300); /* ten deviations from 1000 */
    RF_ASSERT(sum > 2700 && sum < 3300);
    RF_ASSERT(rf_random_below(&random, 1) == 0);
    RF_ASSERT(rf_random_below(&random, UINT64_MAX) < UINT64_MAX);
    float floats[1000];
    rf_random_floats(&random, floats, 1000, -3, 2);
    for (int i = 0; i < 1000; i++) RF_ASSERT(floats[i] >= -3 && floats[i] <= 2);
}

RF_TEST(random, normal_has_its_mean_deviation_and_tails) {
    struct rf_random random = {rf_test_seed()};
    static float values[20000];
    const int count = 20000;
    rf_random_normals(&random, values, (size_t)count, 5, 2);
    double sum = 0, squares = 0;
    int beyond = 0;
    for (int i = 0; i < count; i++) {
        double standard = ((double)values[i] - 5) / 2;
        RF_ASSERT(isfinite(standard));
        sum += standard;
        squares += standard * standard;
        beyond += fabs(standard) > 2;
    }
    /* ten standard errors each; 4.55% lie beyond two deviations */
    RF_ASSERT_DOUBLE(sum / count, 0, 10 / sqrt(count));
    RF_ASSERT_DOUBLE(squares / count, 1, 10 * sqrt(2.0 / count));
    RF_ASSERT_DOUBLE((double)beyond / count, 0.0455, 10 * sqrt(0.0455 / count));
}

RF_TEST(random, special_values_of_each_kind) {
    struct rf_random random = {rf_test_seed()};
    static float values[4096];
    int zeros = 0, subnormals = 0, infinities = 0, nans = 0, extremes = 0, kept = 0;
    for (int i = 0; i < 4096; i++) values[i] = 1;
    rf_random_specials(&random, values, 4096, RF_SPECIAL_ALL, 8);
    for (int i = 0; i < 4096; i++) {
        int kind = fpclassify(values[i]);
        zeros += kind == FP_ZERO;
        subnormals += kind == FP_SUBNORMAL;
        infinities += kind == FP_INFINITE;
        nans += kind == FP_NAN;
        extremes += fabsf(values[i]) == FLT_MAX || fabsf(values[i]) == FLT_MIN;
        kept += values[i] == 1;
    }
    RF_ASSERT(zeros && subnormals && infinities && nans && extremes);
    RF_ASSERT(kept >= 4096 - 512 && kept < 4096 - 256);
    float few[4] = {1, 1, 1, 1};
    rf_random_specials(&random, few, 4, RF_SPECIAL_NAN, 1000); /* at least one */
    RF_ASSERT_INT(isnan(few[0]) + isnan(few[1]) + isnan(few[2]) + isnan(few[3]), 1);
    for (int i = 0; i < 4; i++) few[i] = 1;
    rf_random_specials(&random, few, 4, RF_SPECIAL_FINITE, 1);
    for (int i = 0; i < 4; i++) RF_ASSERT(isfinite(few[i]));
    rf_random_specials(&random, NULL, 0, RF_SPECIAL_ALL, 1);
}

/* ---- half-width floats ---- */

RF_TEST(halves, every_f16_survives_the_round_trip) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = rf_f16_to_float((uint16_t)bits);
        uint16_t back = rf_f16_from_float(value);
        if ((bits & 0x7fff) > 0x7c00)
            RF_ASSERT(isnan(value) && (back & 0x7fff) > 0x7c00 && (back & 0x8000) == (bits & 0x8000));
        else
            RF_ASSERT_UINT(back, bits);
    }
}

RF_TEST(halves, every_bf16_survives_the_round_trip) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t back = rf_bf16_from_float(rf_bf16_to_float((uint16_t)bits));
        if ((bits & 0x7fff) > 0x7f80)
            RF_ASSERT((back & 0x7fff) > 0x7f80);
        else
            RF_ASSERT_UINT(back, bits);
    }
}

/* Between two neighbours the nearer one, at the middle the even one. */
RF_TEST(halves, rounding_is_to_nearest_even) {
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        double low = (double)rf_f16_to_float((uint16_t)bits), high = (double)rf_f16_to_float((uint16_t)(bits + 1));
        float middle = (float)((low + high) / 2); /* exact: a float has 13 bits more */
        RF_ASSERT_UINT(rf_f16_from_float(middle), bits & 1 ? bits + 1 : bits);
        RF_ASSERT_UINT(rf_f16_from_float(nextafterf(middle, 0)), bits);
        RF_ASSERT_UINT(rf_f16_from_float(nextafterf(middle, INFINITY)), bits + 1);
        RF_ASSERT_UINT(rf_f16_from_float(-nextafterf(middle, 0)), bits | 0x8000);
    }
    RF_ASSERT_UINT(rf_f16_from_float(65519.996f), 0x7bff);
    RF_ASSERT_UINT(rf_f16_from_float(65520), 0x7c00);
    RF_ASSERT_UINT(rf_bf16_from_float(1.00390625f), 0x3f80); /* a tie, down to even */
    RF_ASSERT_UINT(rf_bf16_from_float(1.01171875f), 0x3f82); /* a tie, up to even */
    RF_ASSERT_UINT(rf_bf16_from_float(FLT_MAX), 0x7f80);
}
