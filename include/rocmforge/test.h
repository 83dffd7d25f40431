/* ROCmForge: tests of GPU (and any other) code that register themselves.
 *
 *     #include <rocmforge/test.h>
 *
 *     RF_TEST(scale, doubles_every_value, .gpu = true, .memory_bytes = 1 << 20, .timeout_ms = 5000) {
 *         struct rf_device *device = rf_fixture();   // skips where there is no GPU
 *         struct rf_queue *queue = rf_fixture_queue();
 *         …
 *         RF_ASSERT_OK(rf_copy_from_device_safe(queue, actual, buffer, 0, sizeof actual));
 *         RF_ASSERT_F32(actual, expected, 256, rf_within(1e-6, 1e-5));
 *         RF_ASSERT_OK(rf_buffer_destroy(&buffer));  // or the test fails: "leaked 1024 bytes: scale_test.c:31"
 *     }
 *
 * Link with librocmforge-test: main comes with it. Run the executable alone (--list, a name
 * pattern such as 'scale.*', --in-process), or any number of executables with `rocmforge test`.
 * Each test runs in a process of its own unless told otherwise.
 *
 * Assertions (RF_ASSERT…) end the test, through helper functions too; expectations (RF_EXPECT…) record a failure and
 * go on. Both may be used from any thread that the test started: there an assertion that fails records the failure
 * and ends the thread.
 *
 * librocmforge-test is a static library: compile tests with the header of the library they are linked with. The
 * structs here that have no struct_size may change from release to release.
 *
 * Threads: assertions, notes, traces, rf_test_seed and the fixture from any thread of a test;
 * registration before main only.
 *
 * C++: this header is C++17. Options as above need C++20, and the order of struct
 * rf_test_options; RF_TEST_SET is the same for C++17. An assertion that fails leaves by longjmp:
 * keep objects with destructors out of the frames it leaves, or use RF_EXPECT and return. */
#ifndef ROCMFORGE_TEST_H
#define ROCMFORGE_TEST_H

#include <rocmforge/base.h>
#include <rocmforge/gpu.h>

#ifdef __cplusplus
extern "C" {
#define RF_STATIC_CHECK_(condition, why) static_assert(condition, why)
#else
#define RF_STATIC_CHECK_(condition, why) _Static_assert(condition, why)
#endif

/* Options that are not named are zero, so the compiler's warning about missing initializers is turned off. */
#define RF_QUIET_(...)                                                                                               \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")                \
        __VA_ARGS__ _Pragma("GCC diagnostic pop")

/* ---- tests ------------------------------------------------------------------------------ */

struct rf_test_options {
    bool gpu;               /* uses a GPU */
    uint64_t memory_bytes;  /* device memory it will hold at most; 0: unknown */
    int timeout_ms;         /* 0: 60 s */
    const char *tags;       /* "slow,stress" */
    bool serial;            /* never beside another GPU test, whatever the runner was told */
    const char *group;      /* never beside another test of the same group */
    void (*setup)(void);    /* before the test, in its process; a failure or skip there counts for the test */
    void (*teardown)(void); /* after it, also when it, or the set-up, failed or skipped */
};

struct rf_test {
    const char *suite, *name, *file;
    int line;
    void (*run)(void); /* NULL: run_row */
    struct rf_test_options options;
    void (*run_row)(const void *row);
    const void *row;      /* of a table of cases; else NULL */
    struct rf_test *next; /* set by rf_test_register */
};
/* Must be called before main; the test is borrowed until the process ends. */
RF_API void rf_test_register(struct rf_test *test);

/* RF_TEST(suite, name, options…) { body }: its id is "suite.name". */
#define RF_TEST(suite_, name_, ...)                                                                                  \
    static void rf_test_##suite_##_##name_(void);                                                                    \
    __attribute__((constructor)) static void rf_register_##suite_##_##name_(void) {                                  \
        RF_QUIET_(                                                                                                   \
            static struct rf_test rf_self_ = {                                                                       \
                #suite_, #name_, __FILE__, __LINE__, rf_test_##suite_##_##name_, {__VA_ARGS__}, NULL, NULL, NULL};)  \
        rf_test_register(&rf_self_);                                                                                 \
    }                                                                                                                \
    static void rf_test_##suite_##_##name_(void)

/* One test per row of a table, each with an id, a verdict and a process of its own:
 *
 *     struct shape { const char *label; int rows, columns; };
 *     static const struct shape shapes[] = {{"square", 32, 32}, {"odd", 7, 33}};
 *     RF_TEST_LABELLED_CASES(softmax, matches, struct shape, shapes, .gpu = true) {
 *         … c->rows, c->columns …                      // softmax.matches/square, softmax.matches/odd
 *     }
 *
 * RF_TEST_CASES names the rows by their index (softmax.matches/0); the labelled form by the member `label`. In a
 * label, each character that is not a letter, a digit or one of "._-+=,:" becomes '_'. The table is an array with
 * static storage, filled when the program is loaded. */
#define RF_TEST_CASES(suite_, name_, type_, table_, ...)                                                             \
    RF_TEST_ROWS_(suite_, name_, type_, table_, (size_t)-1, __VA_ARGS__)
#define RF_TEST_LABELLED_CASES(suite_, name_, type_, table_, ...)                                                    \
    RF_TEST_ROWS_(suite_, name_, type_, table_, offsetof(type_, label), __VA_ARGS__)
#define RF_TEST_ROWS_(suite_, name_, type_, table_, label_, ...)                                                     \
    static void rf_test_##suite_##_##name_(const type_ *c);                                                          \
    static void rf_row_##suite_##_##name_(const void *rf_row_) {                                                     \
        rf_test_##suite_##_##name_((const type_ *)rf_row_);                                                          \
    }                                                                                                                \
    __attribute__((constructor)) static void rf_register_##suite_##_##name_(void) {                                  \
        RF_STATIC_CHECK_(sizeof(type_) == sizeof((table_)[0]), "the table's rows are of another type");              \
        RF_QUIET_(                                                                                                   \
            static struct rf_test rf_self_ = {                                                                       \
                #suite_, #name_, __FILE__, __LINE__, NULL, {__VA_ARGS__}, rf_row_##suite_##_##name_, NULL, NULL};)   \
        rf_test_register_rows(&rf_self_, (table_), sizeof(table_) / sizeof((table_)[0]), sizeof(type_), (label_));   \
    }                                                                                                                \
    static void rf_test_##suite_##_##name_(__attribute__((unused)) const type_ *c)
/* label_offset: the offset of a `const char *` in each row; (size_t)-1: none. Everything is borrowed until the
 * process ends. */
RF_API void rf_test_register_rows(const struct rf_test *test, const void *rows, size_t count, size_t row_bytes,
                                  size_t label_offset);

/* Set-up runs once per process, before the suite's first test there, and tear-down after its last. With one process
 * per test both run around every test. What set-up allocates on the fixture's device lives until tear-down; a failure
 * or skip in set-up counts for every test of the suite. */
struct rf_test_suite {
    const char *name, *file;
    int line;
    struct rf_test_suite_options {
        void (*setup)(void);
        void (*teardown)(void);
    } options;
    /* Used by the harness only: */
    int state;
    char *why; /* why set-up failed or skipped */
    struct rf_test_suite *next;
};
RF_API void rf_test_register_suite(struct rf_test_suite *suite);
#define RF_SUITE(suite_, ...)                                                                                        \
    __attribute__((constructor)) static void rf_register_suite_##suite_(void) {                                      \
        RF_QUIET_(                                                                                                   \
            static struct rf_test_suite rf_self_ = {#suite_, __FILE__, __LINE__, {__VA_ARGS__}, 0, NULL, NULL};)     \
        rf_test_register_suite(&rf_self_);                                                                           \
    }                                                                                                                \
    typedef int rf_suite_ends_with_a_semicolon_##suite_

#ifdef __cplusplus
/* RF_TEST for C++17: RF_TEST_SET(suite, name, o.gpu = true, o.timeout_ms = 500) { body }. */
#define RF_TEST_SET(suite_, name_, ...)                                                                              \
    static void rf_test_##suite_##_##name_(void);                                                                    \
    __attribute__((constructor)) static void rf_register_##suite_##_##name_(void) {                                  \
        static struct rf_test rf_self_ = {#suite_,           #name_, __FILE__, __LINE__, rf_test_##suite_##_##name_, \
                                          rf_test_options(), NULL,   NULL,     NULL};                                \
        struct rf_test_options &o = rf_self_.options;                                                                \
        (void)o;                                                                                                     \
        __VA_ARGS__;                                                                                                 \
        rf_test_register(&rf_self_);                                                                                 \
    }                                                                                                                \
    static void rf_test_##suite_##_##name_(void)
#endif

/* Ends the test as skipped; the reason is shown. */
#define RF_SKIP(...) rf_test_skip(__FILE__, __LINE__, __VA_ARGS__)
/* Ends the test as failed. */
#define RF_FAIL(...) rf_test_fail(__FILE__, __LINE__, true, __VA_ARGS__)
/* printf-style line shown with the test's output. */
#define RF_NOTE(...) rf_test_note(__VA_ARGS__)

/* Says what this thread is doing; the text is shown with every failure from here to the end of the block:
 *     for (int layer = 0; layer < 32; layer++) { RF_TRACE("layer %d", layer); check(layer); } */
struct rf_trace {
    struct rf_trace *outer;
    const char *file;
    int line;
    char text[116];
};
RF_API void rf_trace_enter(struct rf_trace *trace, const char *file, int line, const char *format, ...)
    RF_PRINTF(4, 5);
RF_API void rf_trace_leave(struct rf_trace *trace);
#define RF_JOIN2_(a, b) a##b
#define RF_JOIN_(a, b) RF_JOIN2_(a, b)
#define RF_TRACE(...)                                                                                                \
    __attribute__((cleanup(rf_trace_leave))) struct rf_trace RF_JOIN_(rf_trace_, __LINE__);                          \
    rf_trace_enter(&RF_JOIN_(rf_trace_, __LINE__), __FILE__, __LINE__, __VA_ARGS__)

/* ---- assertions about single values -------------------------------------------------------- */

#define RF_ASSERT(condition)                                                                                         \
    ((condition) ? (void)0 : rf_test_fail(__FILE__, __LINE__, true, "%s", "is false: " #condition))
#define RF_EXPECT(condition)                                                                                         \
    ((condition) ? (void)0 : rf_test_fail(__FILE__, __LINE__, false, "%s", "is false: " #condition))

/* Statuses by name, with the error text. */
#define RF_ASSERT_OK(call) rf_test_status(__FILE__, __LINE__, true, #call, (call), RF_OK)
#define RF_EXPECT_OK(call) rf_test_status(__FILE__, __LINE__, false, #call, (call), RF_OK)
#define RF_ASSERT_STATUS(call, expected) rf_test_status(__FILE__, __LINE__, true, #call, (call), (expected))
#define RF_EXPECT_STATUS(call, expected) rf_test_status(__FILE__, __LINE__, false, #call, (call), (expected))

#define RF_ASSERT_INT(actual, expected)                                                                              \
    rf_test_int(__FILE__, __LINE__, true, #actual, (long long)(actual), (long long)(expected))
#define RF_EXPECT_INT(actual, expected)                                                                              \
    rf_test_int(__FILE__, __LINE__, false, #actual, (long long)(actual), (long long)(expected))
/* Unsigned; a failure shows hexadecimal too. */
#define RF_ASSERT_UINT(actual, expected)                                                                             \
    rf_test_uint(__FILE__, __LINE__, true, #actual, (uint64_t)(actual), (uint64_t)(expected))
#define RF_EXPECT_UINT(actual, expected)                                                                             \
    rf_test_uint(__FILE__, __LINE__, false, #actual, (uint64_t)(actual), (uint64_t)(expected))
/* |actual - expected| <= absolute; NaN only where expected, infinities only where the same. */
#define RF_ASSERT_DOUBLE(actual, expected, absolute)                                                                 \
    rf_test_double(__FILE__, __LINE__, true, #actual, (actual), (expected), (absolute))
#define RF_EXPECT_DOUBLE(actual, expected, absolute)                                                                 \
    rf_test_double(__FILE__, __LINE__, false, #actual, (actual), (expected), (absolute))
#define RF_ASSERT_POINTER(actual, expected)                                                                          \
    rf_test_pointer(__FILE__, __LINE__, true, #actual, (const void *)(actual), (const void *)(expected))
#define RF_EXPECT_POINTER(actual, expected)                                                                          \
    rf_test_pointer(__FILE__, __LINE__, false, #actual, (const void *)(actual), (const void *)(expected))
#define RF_ASSERT_NULL(actual) RF_ASSERT_POINTER(actual, NULL)
#define RF_ASSERT_NOT_NULL(actual) rf_test_not_null(__FILE__, __LINE__, true, #actual, (const void *)(actual))
#define RF_ASSERT_TEXT(actual, expected) rf_test_text(__FILE__, __LINE__, true, #actual, (actual), (expected))
#define RF_EXPECT_TEXT(actual, expected) rf_test_text(__FILE__, __LINE__, false, #actual, (actual), (expected))
#define RF_ASSERT_CONTAINS(actual, part) rf_test_contains(__FILE__, __LINE__, true, #actual, (actual), (part))
#define RF_EXPECT_CONTAINS(actual, part) rf_test_contains(__FILE__, __LINE__, false, #actual, (actual), (part))

/* ---- assertions about arrays ------------------------------------------------------------------ */

/* How two arrays are compared. Made by the functions below. NaN belongs only where NaN is
 * expected, an infinity only where the same is, whatever the tolerance. */
enum rf_compare_rule { RF_COMPARE_NEAR, RF_COMPARE_ULP, RF_COMPARE_BITS };
struct rf_compare {
    enum rf_compare_rule rule;
    double absolute, relative; /* NEAR: |actual - expected| <= absolute + relative * |expected| */
    uint64_t ulp;              /* ULP: at most this many representable values apart, in the array's own type */
    int rank;                  /* 0: no shape */
    uint64_t shape[RF_MAX_RANK];
};
static inline struct rf_compare rf_within(double absolute, double relative) {
    struct rf_compare how = {RF_COMPARE_NEAR, absolute, relative, 0, 0, {0}};
    return how;
}
static inline struct rf_compare rf_exact(void) {
    return rf_within(0, 0);
} /* the same values; -0 is 0 */
static inline struct rf_compare rf_absolute(double tolerance) {
    return rf_within(tolerance, 0);
}
static inline struct rf_compare rf_relative(double tolerance) {
    return rf_within(0, tolerance);
}
static inline struct rf_compare rf_ulp(uint64_t distance) {
    struct rf_compare how = {RF_COMPARE_ULP, 0, 0, distance, 0, {0}};
    return how;
}
static inline struct rf_compare rf_same_bits(void) { /* -0 is not 0, NaNs differ by their bits */
    struct rf_compare how = {RF_COMPARE_BITS, 0, 0, 0, 0, {0}};
    return how;
}
/* Adds the shape (row-major, outermost first), so that a failure shows coordinates. */
static inline struct rf_compare rf_shaped(struct rf_compare how, int rank, const uint64_t *shape) {
    how.rank = rank < 0 || rank > RF_MAX_RANK ? 0 : rank;
    for (int i = 0; i < how.rank; i++) how.shape[i] = shape[i];
    return how;
}

/* RF_ASSERT_F32(actual, expected, count, rf_ulp(2)); F16 and BF16 are raw uint16_t. A failure shows the largest
 * difference with its place and both values, the first difference, how many are over the tolerance, NMSE, NaN and Inf
 * counts, the first ten values of both, and a line of 64 cells that shows where they differ: ' ' nowhere, '.' in few
 * values of the cell, 'x' in many, '#' in all. With RF_TEST_DEBUG set, an assertion that passes also shows its
 * largest difference. */
#define RF_ASSERT_F32(a, e, count, how) rf_test_f32(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_F32(a, e, count, how) rf_test_f32(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
#define RF_ASSERT_F16(a, e, count, how) rf_test_f16(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_F16(a, e, count, how) rf_test_f16(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
#define RF_ASSERT_BF16(a, e, count, how) rf_test_bf16(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_BF16(a, e, count, how) rf_test_bf16(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
#define RF_ASSERT_I32(a, e, count, how) rf_test_i32(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_I32(a, e, count, how) rf_test_i32(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
#define RF_ASSERT_I8(a, e, count, how) rf_test_i8(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_I8(a, e, count, how) rf_test_i8(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
#define RF_ASSERT_U8(a, e, count, how) rf_test_u8(__FILE__, __LINE__, true, #a, (a), (e), (count), (how))
#define RF_EXPECT_U8(a, e, count, how) rf_test_u8(__FILE__, __LINE__, false, #a, (a), (e), (count), (how))
/* The same with the type as a value (enum rf_dtype), for a table of cases. */
#define RF_ASSERT_ARRAY(dtype, a, e, count, how)                                                                     \
    rf_test_array(__FILE__, __LINE__, true, #a, (dtype), (a), (e), (count), (how))
#define RF_EXPECT_ARRAY(dtype, a, e, count, how)                                                                     \
    rf_test_array(__FILE__, __LINE__, false, #a, (dtype), (a), (e), (count), (how))
#define RF_ASSERT_FLOATS(actual, expected, count, absolute, relative)                                                \
    RF_ASSERT_F32(actual, expected, count, rf_within(absolute, relative))
#define RF_ASSERT_BYTES(actual, expected, bytes)                                                                     \
    rf_test_array(__FILE__, __LINE__, true, #actual, RF_U8, (actual), (expected), (bytes), rf_exact())

/* These read device memory back on the queue, in pieces, and check that the whole buffer holds zeros; or one value in
 * every byte; or, from its start, these values. */
#define RF_ASSERT_BUFFER_ZERO(queue, buffer)                                                                         \
    rf_test_buffer_bytes(__FILE__, __LINE__, true, #buffer, (queue), (buffer), 0)
#define RF_EXPECT_BUFFER_ZERO(queue, buffer)                                                                         \
    rf_test_buffer_bytes(__FILE__, __LINE__, false, #buffer, (queue), (buffer), 0)
#define RF_ASSERT_BUFFER_BYTES(queue, buffer, value)                                                                 \
    rf_test_buffer_bytes(__FILE__, __LINE__, true, #buffer, (queue), (buffer), (value))
#define RF_ASSERT_BUFFER(queue, buffer, dtype, expected, count, how)                                                 \
    rf_test_buffer(__FILE__, __LINE__, true, #buffer, (queue), (buffer), (dtype), (expected), (count), (how))
#define RF_EXPECT_BUFFER(queue, buffer, dtype, expected, count, how)                                                 \
    rf_test_buffer(__FILE__, __LINE__, false, #buffer, (queue), (buffer), (dtype), (expected), (count), (how))

/* ---- the fixture: one shared device per process ------------------------------------------------ */

/* Gives the process's device, which is opened at the first call and closed when the process's last test has ended. It
 * is the device that RF_TEST_DEVICE names (an index, a uuid or part of a name), else the best that drives no display,
 * else the best, with a warning. The first call says on stderr which device it is. Where there is no device the test
 * ends as skipped, and the reason says what is missing. Where there is one that cannot be opened, the call prints
 * "ERROR: …" with the reason, and the test ends as skipped with that reason. (On a thread that the test started, a
 * skip ends only that thread: call it on the test's own thread first.)
 *
 * After every test that used the fixture, however it ended, its device is drained by the default deadline and guard
 * bands are checked. Objects that the test made there and did not destroy are reported (the test fails: "leaked 4096
 * bytes: scale_test.c:31") and then released. If the device cannot be drained, or after a fatal error, the device is
 * lost: the test fails, and later GPU tests of this process fail at once.
 *
 * The device is borrowed. Any thread of the test may call this function. The first call blocks, for the driver. */
RF_API struct rf_device *rf_fixture(void);
RF_API struct rf_device *rf_fixture_device(void); /* the same */
/* Whether rf_fixture() would find a device. It opens the device, and never skips or fails the test. */
RF_API bool rf_fixture_available(void);
/* Gives the calling thread's own queue, which is made at its first call in a test and destroyed after the test. Do
 * not keep it beyond the test or the set-up that asked for it; do not destroy it. */
RF_API struct rf_queue *rf_fixture_queue(void);

RF_API const char *rf_fixture_device_name(void);                  /* valid as long as the process */
RF_API uint64_t rf_fixture_total_mb(void);                        /* MiB, here and below */
RF_API uint64_t rf_fixture_free_mb(void);                         /* free memory when the device was opened */
RF_API uint64_t rf_fixture_safe_mb(void);                         /* the largest allocation granted then */
RF_API void rf_fixture_memory_stats(struct rf_memory_info *info); /* now */

/* Fails the test if anything that it made on the device is left. The first check uses the ledger and is exact,
 * whatever the tolerance; each leaked allocation is shown with size, call site and age. The second check uses the
 * kernel's or the driver's figure: the memory that this process holds beyond the ledger may have grown, since the
 * fixture was opened, by percent of the device's total memory and by what drivers take late for themselves (64 MiB).
 * Where only the free memory of the whole GPU is known, which other processes change too, this check is made only
 * with a percent above 0. It waits up to 2 s for memory that comes back late. Call it where the test has destroyed
 * what it made; every test ends with the ledger's half of it anyway. */
RF_API void rf_fixture_assert_no_leak_at(double percent, struct rf_site site);
#define rf_fixture_assert_no_leak(percent) rf_fixture_assert_no_leak_at((percent), RF_SITE)

/* Runs a function with the device as if it were a test of its own inside the test: after it the device is drained and
 * checked, and leaks are reported and released. That happens also when an assertion in the function fails, which then
 * ends the test around it. (Every test as a whole has that already.) */
RF_API void rf_fixture_run(void (*body)(struct rf_device *device, void *user), void *user);

/* Says how to open the fixture's device. It must be called before the fixture's first use (from a constructor, main
 * or a set-up); a later call fails the test. Everything is borrowed until the fixture is opened. */
struct rf_fixture_params {
    size_t struct_size;
    const struct rf_kernel_image *images; /* as in struct rf_device_params */
    const int *image_groups;
    size_t image_count;
    const char *budget;         /* NULL: RF_BUDGET */
    const char *const *options; /* as in struct rf_runtime_params */
};
RF_API void rf_fixture_configure(const struct rf_fixture_params *params);
/* Sets the images only. */
RF_API void rf_fixture_images(const struct rf_kernel_image *images, const int *groups, size_t count);

/* ---- files ----------------------------------------------------------------------------------------- */

/* A private folder for the files of this process, made at the first call: in TMPDIR, else in /tmp. It is removed when
 * the process exits; if the process is killed, at the end of the run, or of the next one. The name is shorter than
 * RF_TEST_FOLDER_BYTES; a forked child has its parent's folder. */
#define RF_TEST_FOLDER_BYTES 192
RF_API const char *rf_test_folder(void);

/* ---- random input ---------------------------------------------------------------------------------- */

/* The seed of this run: from --seed or RF_TEST_SEED, else chosen at random; it is printed when a test fails. */
RF_API uint64_t rf_test_seed(void);
/* A small deterministic generator (seed it with rf_test_seed() plus something of your own). */
struct rf_random {
    uint64_t state;
};
RF_API uint64_t rf_random_next(struct rf_random *random);
RF_API double rf_random_unit(struct rf_random *random);                    /* [0, 1) */
RF_API double rf_random_normal(struct rf_random *random);                  /* mean 0, deviation 1 */
RF_API uint64_t rf_random_below(struct rf_random *random, uint64_t bound); /* bound > 0 */
RF_API void rf_random_floats(struct rf_random *random, float *out, size_t count, float low, float high);
RF_API void rf_random_normals(struct rf_random *random, float *out, size_t count, float mean, float deviation);

/* Values that break kernels. */
enum rf_special {
    RF_SPECIAL_ZERO = 1,      /* 0 and -0 */
    RF_SPECIAL_SUBNORMAL = 2, /* the smallest and largest of them, both signs */
    RF_SPECIAL_EXTREME = 4,   /* the largest and the smallest normal, both signs */
    RF_SPECIAL_INFINITY = 8,  /* both */
    RF_SPECIAL_NAN = 16,      /* quiet, both signs */
    RF_SPECIAL_FINITE = 1 | 2 | 4,
    RF_SPECIAL_ALL = 31
};
/* Replaces about one in every `one_in` values (at least one, if count and kinds are not 0). */
RF_API void rf_random_specials(struct rf_random *random, float *values, size_t count, unsigned kinds, size_t one_in);

/* Convert f16 and bf16, as raw bits: to them with rounding to nearest even, from them exactly. */
RF_API uint16_t rf_f16_from_float(float value);
RF_API float rf_f16_to_float(uint16_t bits);
RF_API uint16_t rf_bf16_from_float(float value);
RF_API float rf_bf16_to_float(uint16_t bits);

/* ---- what the macros call ---------------------------------------------------------------------------- */

RF_API void rf_test_fail(const char *file, int line, bool fatal, const char *format, ...) RF_PRINTF(4, 5);
RF_API void rf_test_skip(const char *file, int line, const char *format, ...) RF_PRINTF(3, 4);
RF_API void rf_test_note(const char *format, ...) RF_PRINTF(1, 2);
RF_API void rf_test_status(const char *file, int line, bool fatal, const char *what, rf_status actual,
                           rf_status expected);
RF_API void rf_test_int(const char *file, int line, bool fatal, const char *what, long long actual,
                        long long expected);
RF_API void rf_test_uint(const char *file, int line, bool fatal, const char *what, uint64_t actual,
                         uint64_t expected);
RF_API void rf_test_double(const char *file, int line, bool fatal, const char *what, double actual, double expected,
                           double absolute);
RF_API void rf_test_pointer(const char *file, int line, bool fatal, const char *what, const void *actual,
                            const void *expected);
RF_API void rf_test_not_null(const char *file, int line, bool fatal, const char *what, const void *actual);
RF_API void rf_test_text(const char *file, int line, bool fatal, const char *what, const char *actual,
                         const char *expected);
RF_API void rf_test_contains(const char *file, int line, bool fatal, const char *what, const char *actual,
                             const char *part);
RF_API void rf_test_array(const char *file, int line, bool fatal, const char *what, enum rf_dtype dtype,
                          const void *actual, const void *expected, size_t count, struct rf_compare how);
RF_API void rf_test_buffer(const char *file, int line, bool fatal, const char *what, struct rf_queue *queue,
                           struct rf_buffer *buffer, enum rf_dtype dtype, const void *expected, size_t count,
                           struct rf_compare how);
RF_API void rf_test_buffer_bytes(const char *file, int line, bool fatal, const char *what, struct rf_queue *queue,
                                 struct rf_buffer *buffer, unsigned char value);

/* One function per type, so that the compiler checks the types of the arrays. */
#define RF_TYPED_ARRAY_(name_, dtype_, type_)                                                                        \
    static inline void rf_test_##name_(const char *file, int line, bool fatal, const char *what,                     \
                                       const type_ *actual, const type_ *expected, size_t count,                     \
                                       struct rf_compare how) {                                                      \
        rf_test_array(file, line, fatal, what, dtype_, actual, expected, count, how);                                \
    }
RF_TYPED_ARRAY_(f32, RF_F32, float)
RF_TYPED_ARRAY_(f16, RF_F16, uint16_t)
RF_TYPED_ARRAY_(bf16, RF_BF16, uint16_t)
RF_TYPED_ARRAY_(i32, RF_I32, int32_t)
RF_TYPED_ARRAY_(i8, RF_I8, int8_t)
RF_TYPED_ARRAY_(u8, RF_U8, uint8_t)

/* Does what the harness's `main` does, for a program with a main of its own. Returns the exit code. */
RF_API int rf_test_main(int argc, char **argv);
/* Does what `rocmforge test` does. The arguments are the same options, then any number of test executables. */
RF_API int rf_test_main_executables(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
