/* The assertions that compare, where they pass, and the random numbers. What they say when
 * they fail is looked at through sample.c, by test_harness.c. */
#include <rocmforge/test.h>

#include <math.h>
#include <string.h>

RF_TEST(assertions, floats_within_tolerance) {
    float expected[] = {0, 1, -1000, INFINITY, -INFINITY, NAN};
    float actual[] = {0.0009f, 1.001f, -1000.9f, INFINITY, -INFINITY, NAN};
    RF_ASSERT_FLOATS(actual, expected, 6, 1e-3, 1e-3);
    RF_ASSERT_FLOATS(expected, expected, 6, 0, 0);
    RF_ASSERT_FLOATS(NULL, NULL, 0, 0, 0);
}

RF_TEST(assertions, texts) {
    char one[] = "same", two[] = "same";
    RF_ASSERT_TEXT(one, two);
    RF_ASSERT_TEXT(NULL, NULL);
    RF_ASSERT_CONTAINS("a needle in it", "needle");
    RF_ASSERT_CONTAINS("anything", "");
}

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
