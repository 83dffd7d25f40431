/* Runs the examples as a reader would, on the simulated driver, and checks their output. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_report.h"

#define EXAMPLES BUILD_ROOT "/examples/"
#define RUNNER BUILD_ROOT "/rocmforge test "

static const char *folder; /* a folder of this process; removed with it */

static void enter_folder(void) {
    folder = enter_simulated();
    /* A failed assertion leaves its test's host memory behind; that is no finding here. */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
}
#define IN_FOLDER .setup = enter_folder, .timeout_ms = 600000

/* ---- small ones ---- */

RF_TEST(examples, hello, IN_FOLDER) {
    RF_EXPECT_INT(run_command(EXAMPLES "hello"), 0);
    RF_EXPECT_CONTAINS(report, "0.636409  sum 1.000000");
    setenv("RF_DRIVER", "none", 1);
    RF_EXPECT_INT(run_command(EXAMPLES "hello"), 77);
    RF_EXPECT_CONTAINS(report, "no GPU: ");
}

/* A model of random weights with a vocabulary of bytes: the text is nonsense, but the same each time. */
RF_TEST(examples, generate, IN_FOLDER) {
    static char first[sizeof report];
    RF_ASSERT_INT(run_command("python3 '" SOURCE_ROOT
                              "/tools/make_random_model.py' --dim 64 --layers 2 --heads 2 --kv-heads 1 "
                              "--ff 64 --vocab 300 --type f16 --out %s/model.gguf",
                              folder),
                  0);
    setenv("RF_DRIVER", "none", 1);
    RF_EXPECT_INT(run_command(EXAMPLES "generate %s/model.gguf 'Once upon a time'", folder), 0);
    RF_EXPECT_CONTAINS(report, "0 of 2 layers on a GPU");
    RF_EXPECT_CONTAINS(report, "written]");
    snprintf(first, sizeof first, "%s", report);
    RF_EXPECT_INT(run_command(EXAMPLES "generate %s/model.gguf 'Once upon a time'", folder), 0);
    RF_EXPECT_TEXT(report, first);
    setenv("RF_DRIVER", "sim", 1);
    RF_EXPECT_INT(run_command(EXAMPLES "generate %s/model.gguf 'Once upon a time'", folder), 0);
    RF_EXPECT_CONTAINS(report, "2 of 2 layers on a GPU");
    RF_EXPECT_INT(run_command(EXAMPLES "generate %s/missing.gguf x", folder), 1);
    RF_EXPECT_CONTAINS(report, "missing.gguf");
    RF_EXPECT_INT(run_command(EXAMPLES "generate"), 2);
}

RF_TEST(examples, scale_test, IN_FOLDER) {
    RF_EXPECT_INT(run_command(RUNNER EXAMPLES "scale_test"), 0);
    RF_EXPECT_TEXT(last_line(), "4 passed, 0 failed, 0 skipped\n");
}

/* Reads a whole file into text. */
static const char *contents(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "r");
    RF_ASSERT_NOT_NULL(file);
    size_t length = fread(text, 1, size - 1, file);
    text[length] = 0;
    fclose(file);
    RF_ASSERT(length > 0 && length < size - 1);
    return text;
}

/* The code in the last step of the guide's migration is this file, word for word. */
RF_TEST(examples, migrated_test, IN_FOLDER) {
    static char guide[1 << 17], code[1 << 15];
    RF_EXPECT_INT(run_command(RUNNER EXAMPLES "migrated_test"), 0);
    RF_EXPECT_TEXT(last_line(), "1 passed, 0 failed, 0 skipped\n");
    const char *test = strstr(contents(SOURCE_ROOT "/examples/migrated_test.c", code, sizeof code), "RF_TEST(");
    RF_ASSERT_NOT_NULL(test);
    RF_EXPECT(strstr(contents(SOURCE_ROOT "/docs/testing.md", guide, sizeof guide), test) != NULL);
}

/* ---- the raced backend: its tests pass alone and fail together ---- */

static const struct {
    const char *name, *after;
} victims[] = {
    {"attention.weighted_matmul_matches_cpu_small", "attention.causal_mask_large_sequence"},
    {"attention.weighted_matmul_matches_cpu_32x32", "attention.causal_mask_large_sequence"},
    {"attention.weighted_matmul_non_square_sequences", "attention.causal_mask_large_sequence"},
    {"attention.flash_nocausal_matches_cpu_32x32", "attention.qkt_matmul_matches_cpu_small"},
    {"attention.hip_buffer_copy", "attention.causal_mask_large_sequence"},
};
enum { VICTIMS = sizeof victims / sizeof victims[0] };

RF_TEST(examples, raced_backend_alone, IN_FOLDER) {
    RF_EXPECT_INT(run_command(RUNNER "--match 'attention.*' " EXAMPLES "attention_raced"), 0);
    RF_EXPECT_TEXT(last_line(), "9 passed, 0 failed, 0 skipped\n");
}

static int times(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

/* Finds the line that says what reruns showed about a test. */
static const char *explanation_of(const char *test, char *line, size_t size) {
    char start[200];
    snprintf(start, sizeof start, "  %s: ", test);
    const char *found = strstr(report, start);
    RF_ASSERT_NOT_NULL(found);
    snprintf(line, size, "%.*s", (int)strcspn(found, "\n"), found);
    return line;
}

static void expect_the_five_victims(void) {
    RF_EXPECT_TEXT(last_line(), "4 passed, 5 failed, 0 skipped\n");
    RF_EXPECT_INT(times(report, ": fails only when shared"), VICTIMS);
    for (int i = 0; i < VICTIMS; i++) {
        char line[1000];
        explanation_of(victims[i].name, line, sizeof line);
        RF_TRACE("%s", line);
        RF_EXPECT_CONTAINS(line, "fails only when shared: passes alone");
        RF_EXPECT_CONTAINS(line, victims[i].after);
        /* and no other test */
        RF_EXPECT_INT(times(line, "attention."), times(line, victims[i].name) + times(line, victims[i].after));
    }
}

/* Exactly these five tests fail, each with the shortest order that shows it: one test before it. */
RF_TEST(examples, raced_backend_together, IN_FOLDER) {
    RF_EXPECT_INT(run_command(EXAMPLES "attention_raced --in-process 'attention.*'"), 1);
    expect_the_five_victims();
    RF_EXPECT_INT(run_command(RUNNER "--in-process --match 'attention.*' " EXAMPLES "attention_raced"), 1);
    expect_the_five_victims();
}

RF_TEST(examples, raced_backend_in_threads, IN_FOLDER) {
    RF_EXPECT_INT(run_command(RUNNER "--match 'attention_threads.*' " EXAMPLES "attention_raced"), 1);
    RF_EXPECT_TEXT(last_line(), "0 passed, 1 failed, 0 skipped\n");
}

/* ---- the same tests on the safe backend ---- */

RF_TEST(examples, safe_backend, IN_FOLDER) {
    RF_EXPECT_INT(run_command(RUNNER "--gpu-jobs 2 --repeat 3 " EXAMPLES "attention_safe"), 0);
    RF_EXPECT_TEXT(last_line(), "30 passed, 0 failed, 0 skipped\n");
    RF_EXPECT_INT(run_command(EXAMPLES "attention_safe --in-process --shuffle 7 --repeat 3 --check guard,poison"), 0);
    RF_EXPECT_TEXT(last_line(), "30 passed, 0 failed, 0 skipped\n");
}

RF_TEST(examples, safe_backend_a_thousand_rounds, .setup = enter_folder, .timeout_ms = 1800000, .tags = "slow") {
    RF_EXPECT_INT(run_command(EXAMPLES "attention_safe --quiet --in-process --shuffle 1 --repeat 1000"), 0);
    RF_EXPECT_TEXT(last_line(), "10000 passed, 0 failed, 0 skipped\n");
}

/* ---- recipes ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void use_the_build_folder(void) {
    if (SANITIZED) RF_SKIP("a library with a sanitizer in it does not link with programs that have none");
    char path[4096];
    const char *old = getenv("PATH");
    snprintf(path, sizeof path, "%s:%s", BUILD_ROOT, old ? old : "/usr/bin:/bin");
    setenv("PATH", path, 1);
    setenv("PKG_CONFIG_PATH", BUILD_ROOT "/meson-uninstalled", 1);
    setenv("LD_LIBRARY_PATH", BUILD_ROOT, 1);
}

RF_TEST(recipes, ctest, IN_FOLDER) {
    if (run_command("cmake --version") != 0 || run_command("ctest --version") != 0) RF_SKIP("CMake is not installed");
    use_the_build_folder();
    RF_ASSERT_INT(run_command("cmake -S " SOURCE_ROOT "/examples/ctest -B %s/ctest", folder), 0);
    RF_ASSERT_INT(run_command("cmake --build %s/ctest", folder), 0);
    RF_EXPECT_INT(run_command("ctest --test-dir %s/ctest --output-on-failure", folder), 0);
    RF_EXPECT_CONTAINS(report, "100% tests passed, 0 tests failed out of 2");
    RF_EXPECT_INT(run_command("grep -c '<testcase' %s/ctest/scale.xml", folder), 0);
    RF_EXPECT_TEXT(report, "4\n");
}

RF_TEST(recipes, meson, IN_FOLDER) {
    if (run_command("meson --version") != 0 || run_command("ninja --version") != 0) RF_SKIP("Meson is not installed");
    use_the_build_folder();
    RF_ASSERT_INT(run_command("meson setup %s/meson " SOURCE_ROOT "/examples/meson", folder), 0);
    RF_EXPECT_INT(run_command("meson test -C %s/meson --print-errorlogs", folder), 0);
    RF_EXPECT_INT(run_command("grep -c '<testcase' %s/meson/scale.xml", folder), 0);
    RF_EXPECT_TEXT(report, "4\n");
}
