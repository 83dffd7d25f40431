// The public headers in C++: what a test file in C++17 and, with designated options, in C++20 can
// write. Run by test_cases.c.
#include <rocmforge/rocmforge.h>
#include <rocmforge/test.h>

#include <thread>
#include <vector>

static void up() { RF_NOTE("up"); }

RF_TEST(cpp, plain) {
    std::vector<float> values(4, 1.5f);
    RF_ASSERT_F32(values.data(), values.data(), values.size(), rf_ulp(0));
    RF_ASSERT_OK(RF_OK);
    RF_ASSERT_INT(values.size(), 4);
}
RF_TEST_SET(cpp, with_options, o.tags = "set", o.timeout_ms = 5000, o.setup = up) { RF_TRACE("level %d", 1); }
RF_TEST_SET(cpp, without_options) { RF_ASSERT_NOT_NULL(rf_version()); }

RF_TEST(cpp, fails_on_a_thread) {
    std::thread thread([] {
        RF_TRACE("in a lambda");
        RF_EXPECT_INT(1, 2);
    });
    thread.join();
    const uint64_t shape[] = {1, 2};
    float actual[] = {1, 2}, expected[] = {1, 3};
    RF_ASSERT_F32(actual, expected, 2, rf_shaped(rf_within(1e-3, 1e-3), 2, shape));
}

struct row {
    const char *label;
    int number;
};
static const row rows[] = {{"one", 1}, {"two", 2}};
RF_TEST_LABELLED_CASES(cpp, labelled, row, rows) { RF_ASSERT(c->number > 0); }
RF_TEST_CASES(cpp, indexed, row, rows) { RF_ASSERT(c->number > 0); }

#if __cplusplus >= 202002L
RF_TEST(cpp, designated, .timeout_ms = 5000, .tags = "designated", .setup = up) { RF_NOTE("twenty"); }
RF_SUITE(cpp, .setup = up);
#endif
