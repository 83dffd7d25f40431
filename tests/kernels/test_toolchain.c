/* The lint refuses what it must: each bad source, built as the build would, fails with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rocmforge/test.h>

/* Builds text for a target; gives the exit code and what was said. */
static int build(const char *text, const char *target, char *said, size_t size) {
    char folder[] = "/tmp/rf-toolchain-XXXXXX", command[1024], path[128];
    RF_ASSERT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/bad.hip", folder);
    FILE *file = fopen(path, "w");
    RF_ASSERT(file != NULL);
    fputs(text, file);
    fclose(file);
    snprintf(command, sizeof command,
             "'%s' '%s' device '%s' --target %s --include '%s' --out %s/blob --metadata %s/json 2>&1; "
             "code=$?; rm -r %s; exit $code",
             PYTHON, BUILD_KERNELS, path, target, SOURCE_INCLUDE, folder, folder, folder);
    FILE *output = popen(command, "r");
    RF_ASSERT(output != NULL);
    size_t length = fread(said, 1, size - 1, output);
    said[length] = 0;
    int status = pclose(output);
    if (strstr(said, "clang 19 not found")) RF_SKIP("no clang 19 here: the kernels came prebuilt");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define SOURCE(body) "#include \"kernels/kernel.h\"\nRF_KERNEL(bad, 256, (float *, out), (uint64_t, n)) {" body "}\n"

static void refused(const char *text, const char *target, const char *why) {
    char said[8192];
    int code = build(text, target, said, sizeof said);
    RF_EXPECT_INT(code, 1);
    RF_ASSERT_CONTAINS(said, why);
}

RF_TEST(toolchain, a_good_kernel_passes, .timeout_ms = 600000) {
    char said[8192];
    RF_EXPECT_INT(build(SOURCE("if (rf_global_x() < n) out[rf_global_x()] = 1.0f;"), "gfx1100", said, sizeof said),
                  0);
    RF_ASSERT_TEXT(said, "");
}

RF_TEST(toolchain, private_arrays_are_refused, .timeout_ms = 600000) {
    const char *text = SOURCE("float a[64]; for (int i = 0; i < 64; i++) a[i] = out[i];\n"
                              "for (uint64_t i = 0; i < n; i++) out[i] = a[(uint32_t)out[i] & 63];");
    refused(text, "gfx1100", "private memory");
    refused(text, "sm_80", "private memory");
}

RF_TEST(toolchain, too_much_shared_memory_is_refused, .timeout_ms = 600000) {
    const char *text = SOURCE("RF_SHARED(float, big, 13000); big[rf_thread_x()] = out[n]; rf_barrier();\n"
                              "out[rf_thread_x()] = big[n % 13000];");
    refused(text, "sm_80", "shared memory");
}

RF_TEST(toolchain, foreign_includes_are_refused, .timeout_ms = 600000) {
    refused("#include <stdint.h>\n" SOURCE("out[n] = 0;"), "gfx1100", "may include");
    refused("#include \"gpu/driver.h\"\n" SOURCE("out[n] = 0;"), "gfx1100", "may include");
}

RF_TEST(toolchain, library_calls_are_refused, .timeout_ms = 600000) {
    refused("extern \"C\" __attribute__((device)) float foreign(float);\n" SOURCE("out[n] = foreign(out[0]);"),
            "sm_80", "function that is not there");
}

RF_TEST(toolchain, unknown_targets_are_refused) {
    refused(SOURCE("out[n] = 0;"), "gfx803", "no known target");
}

/* What 'table' says to the metadata of two blobs. */
static void table_refused(const char *first, const char *second, const char *why) {
    char folder[] = "/tmp/rf-toolchain-XXXXXX", command[1024], path[128], said[8192];
    RF_ASSERT(mkdtemp(folder) != NULL);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.json", folder, i);
        FILE *file = fopen(path, "w");
        RF_ASSERT(file != NULL);
        fputs(i ? second : first, file);
        fclose(file);
    }
    snprintf(command, sizeof command,
             "'%s' '%s' table %s/0.json %s/1.json --style builtin --name x --out %s/x.c 2>&1; "
             "code=$?; rm -r %s; exit $code",
             PYTHON, BUILD_KERNELS, folder, folder, folder, folder);
    FILE *output = popen(command, "r");
    RF_ASSERT(output != NULL);
    said[fread(said, 1, sizeof said - 1, output)] = 0;
    int status = pclose(output);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    RF_ASSERT_CONTAINS(said, why);
}

#define METADATA(module, target, kernel, args)                                                                       \
    "{\"module\": \"" module "\", \"target\": \"" target                                                             \
    "\", \"file\": \"f\", \"bytes\": 1, \"kernels\": [{\"name\": \"" kernel "\", \"args\": " args                    \
    ", \"max_threads\": 256, \"shared\": 0, \"vector_registers\": 1, "                                               \
    "\"scalar_registers\": 1, \"scratch\": 0, \"spills\": 0}]}"

RF_TEST(toolchain, targets_must_agree) {
    table_refused(METADATA("m", "gfx1100", "k", "[8, 4]"), METADATA("m", "sm_80", "k", "[8, 8]"), "differ");
    table_refused(METADATA("m", "gfx1100", "k", "[8]"), METADATA("m", "sm_80", "other", "[8]"), "has no");
    table_refused(METADATA("m", "gfx1100", "k", "[8]"), METADATA("n", "gfx1100", "k", "[8]"), "is in");
}
