/* ROCmForge: tests of GPU (and any other) code that register themselves.
 *
 *     #include <rocmforge/test.h>
 *     RF_TEST(budget, percent_of_free, .timeout_ms = 5000) {
 *         RF_ASSERT_OK(rf_budget_parse("70%", &spec));
 *         RF_ASSERT(spec.has_percent);
 *     }
 *
 * Link with librocmforge-test: main comes with it. Run the executable alone (--list, a name
 * pattern such as 'budget.*', --in-process), or any number of executables with
 * `rocmforge test`. Each test runs in a process of its own unless told otherwise.
 *
 * Assertions end the test (through helper functions too); RF_EXPECT records a failure and
 * goes on. Both may be used from any thread the test started: on such a thread an assertion
 * that fails records the failure and ends the thread. */
#ifndef ROCMFORGE_TEST_H
#define ROCMFORGE_TEST_H

#include <rocmforge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_test_options {
    int timeout_ms;        /* 0: 60 s */
    bool gpu;              /* uses a GPU */
    uint64_t memory_bytes; /* device memory it will hold at most; 0: unknown */
    bool serial;           /* never beside another GPU test, whatever the runner was told */
    const char *group;     /* never beside another test of the same group */
    const char *tags;      /* "slow,stress" */
    void (*setup)(void);   /* before the test, in its process; a failure or skip there is the test's */
    void (*teardown)(void); /* after it, also when it failed */
};

struct rf_test {
    const char *suite, *name, *file;
    int line;
    void (*run)(void);
    struct rf_test_options options;
    struct rf_test *next; /* set by rf_test_register */
};
RF_API void rf_test_register(struct rf_test *test);

#define RF_TEST(suite_, name_, ...)                                                                                   \
    static void rf_test_##suite_##_##name_(void);                                                                      \
    __attribute__((constructor)) static void rf_register_##suite_##_##name_(void) {                                    \
        static struct rf_test test = {#suite_, #name_, __FILE__, __LINE__, rf_test_##suite_##_##name_, {__VA_ARGS__},  \
                                      NULL};                                                                           \
        rf_test_register(&test);                                                                                       \
    }                                                                                                                  \
    static void rf_test_##suite_##_##name_(void)

/* Ends the test as skipped; the reason is shown. */
#define RF_SKIP(...) rf_test_skip(__FILE__, __LINE__, __VA_ARGS__)
/* Ends the test as failed. */
#define RF_FAIL(...) rf_test_fail(__FILE__, __LINE__, true, __VA_ARGS__)
/* printf-style line shown with the test's output. */
#define RF_NOTE(...) rf_test_note(__VA_ARGS__)

#define RF_CHECK_(fatal, condition)                                                                                   \
    ((condition) ? (void)0 : rf_test_fail(__FILE__, __LINE__, fatal, "%s", "is false: " #condition))
#define RF_ASSERT(condition) RF_CHECK_(true, condition)
#define RF_EXPECT(condition) RF_CHECK_(false, condition)

/* Statuses by name, with the error text. */
#define RF_ASSERT_OK(call) rf_test_status(__FILE__, __LINE__, true, #call, (call), RF_OK)
#define RF_EXPECT_OK(call) rf_test_status(__FILE__, __LINE__, false, #call, (call), RF_OK)
#define RF_ASSERT_STATUS(call, expected) rf_test_status(__FILE__, __LINE__, true, #call, (call), (expected))
#define RF_EXPECT_STATUS(call, expected) rf_test_status(__FILE__, __LINE__, false, #call, (call), (expected))

#define RF_ASSERT_INT(actual, expected)                                                                               \
    rf_test_int(__FILE__, __LINE__, true, #actual, (long long)(actual), (long long)(expected))
#define RF_EXPECT_INT(actual, expected)                                                                               \
    rf_test_int(__FILE__, __LINE__, false, #actual, (long long)(actual), (long long)(expected))
#define RF_ASSERT_TEXT(actual, expected) rf_test_text(__FILE__, __LINE__, true, #actual, (actual), (expected))
#define RF_ASSERT_CONTAINS(actual, part) rf_test_contains(__FILE__, __LINE__, true, #actual, (actual), (part))

/* Arrays of floats: |actual - expected| <= absolute + relative * |expected|, NaN only where
 * expected. Shows the largest difference, its index, both values and the first ten. */
#define RF_ASSERT_FLOATS(actual, expected, count, absolute, relative)                                                 \
    rf_test_floats(__FILE__, __LINE__, true, #actual, (actual), (expected), (count), (absolute), (relative))

RF_API void rf_test_fail(const char *file, int line, bool fatal, const char *format, ...) RF_PRINTF(4, 5);
RF_API void rf_test_skip(const char *file, int line, const char *format, ...) RF_PRINTF(3, 4);
RF_API void rf_test_note(const char *format, ...) RF_PRINTF(1, 2);
RF_API void rf_test_status(const char *file, int line, bool fatal, const char *what, rf_status actual, rf_status expected);
RF_API void rf_test_int(const char *file, int line, bool fatal, const char *what, long long actual, long long expected);
RF_API void rf_test_text(const char *file, int line, bool fatal, const char *what, const char *actual, const char *expected);
RF_API void rf_test_contains(const char *file, int line, bool fatal, const char *what, const char *actual, const char *part);
RF_API void rf_test_floats(const char *file, int line, bool fatal, const char *what, const float *actual,
                           const float *expected, size_t count, double absolute, double relative);

/* A seed for this run: from --seed or RF_TEST_SEED, else drawn; printed when a test fails. */
RF_API uint64_t rf_test_seed(void);
/* A small deterministic generator (seed it with rf_test_seed() plus something of your own). */
struct rf_random {
    uint64_t state;
};
RF_API uint64_t rf_random_next(struct rf_random *random);
RF_API double rf_random_unit(struct rf_random *random);                                /* [0, 1) */
RF_API uint64_t rf_random_below(struct rf_random *random, uint64_t bound);             /* bound > 0 */
RF_API void rf_random_floats(struct rf_random *random, float *out, size_t count, float low, float high);

/* What `main` does; for a main of your own. Returns the exit code. */
RF_API int rf_test_main(int argc, char **argv);
/* What `rocmforge test` does: the same options, then any number of test executables. */
RF_API int rf_test_main_executables(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
