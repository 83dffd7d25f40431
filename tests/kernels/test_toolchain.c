/* The lint refuses what it must: each bad source, built as the build would, fails with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rocmforge/test.h>

#include "../scratch.h"

/* Builds text for a target; gives the exit code and what was said. */
static int build(const char *text, const char *target, char *said, size_t size) {
    char folder[SCRATCH_BYTES], command[2048], path[512];
    scratch_folder(folder, "toolchain");
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

static void write_text(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    RF_ASSERT(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* Runs Python code with kernel_metadata as `meta` and build_kernels as `tool`; gives the exit code and what was
 * said. The code finds `source` in the file k.hip of the folder `folder`. */
static int python(const char *code, const char *source, char *said, size_t size) {
    char folder[SCRATCH_BYTES], command[2048], begin[1400];
    scratch_folder(folder, "toolchain");
    write_text(folder, "k.hip", source);
    write_text(folder, "code.py", code);
    snprintf(begin, sizeof begin,
             "import argparse, os, sys\n"
             "sys.dont_write_bytecode = True\n"
             "sys.path[:0] = [os.path.dirname('%s'), '%s']\n"
             "import build_kernels as tool, kernel_metadata as meta\n"
             "folder, include = '%s', '%s'\n"
             "exec(open(folder + '/code.py').read())\n",
             BUILD_KERNELS, folder, folder, SOURCE_INCLUDE);
    write_text(folder, "begin.py", begin);
    snprintf(command, sizeof command, "'%s' %s/begin.py 2>&1; code=$?; rm -r %s; exit $code", PYTHON, folder, folder);
    FILE *output = popen(command, "r");
    RF_ASSERT(output != NULL);
    said[fread(said, 1, size - 1, output)] = 0;
    int status = pclose(output);
    if (strstr(said, "clang 19 not found")) RF_SKIP("no clang 19 here: the kernels came prebuilt");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A HIP that does not know a hidden argument crashes when it loads the kernel. */
RF_TEST(toolchain, hidden_arguments_newer_than_hip_are_refused) {
    char said[8192];
    int code = python("for kind in 'hidden_none', 'hidden_block_count_x', 'hidden_heap_v1', 'global_buffer':\n"
                      "    meta.check_hidden('k', kind)\n"
                      "for kind in 'hidden_dynamic_lds_size', 'hidden_of_tomorrow':\n"
                      "    try:\n"
                      "        meta.check_hidden('k', kind)\n"
                      "    except meta.Refused as refused:\n"
                      "        print(refused)\n",
                      "", said, sizeof said);
    RF_EXPECT_INT(code, 0);
    RF_EXPECT_TEXT(said, "k asks for the argument hidden_dynamic_lds_size, which HIP knows from 6.1 on; the kernels "
                         "must load on HIP 5.2\n"
                         "k asks for the argument hidden_of_tomorrow, which HIP knows in no version in HIDDEN_SINCE; "
                         "the kernels must load on HIP 5.2\n");
}

/* The library cuts PTX into kernels: anything else must stand before the first one. */
RF_TEST(toolchain, ptx_that_cannot_be_cut_is_refused) {
    char said[8192];
    int code = python("head = '.version 7.0\\n.target sm_80\\n'\n"
                      "entry = '.visible .entry %s(\\n)\\n.maxntid 32, 1, 1\\n{\\n ret;\\n}\\n // end\\n'\n"
                      "shared = '.shared .align 4 .b8 s[8];\\n'\n"
                      "print(len(meta.read_ptx(head + shared + entry % 'a' + entry % 'b', 'sm_80')))\n"
                      "try:\n"
                      "    meta.read_ptx(head + entry % 'a' + shared + entry % 'b', 'sm_80')\n"
                      "except meta.Refused as refused:\n"
                      "    print(refused)\n",
                      "", said, sizeof said);
    RF_EXPECT_INT(code, 0);
    RF_EXPECT_CONTAINS(said, "2\nsomething that is no kernel follows the first kernel");
}

/* The compiler asks for hidden_dynamic_lds_size where there is dynamic shared memory; the build takes it out. As the
 * compiler left it, the lint refuses the kernel. */
RF_TEST(toolchain, the_size_of_dynamic_shared_memory_is_no_argument, .timeout_ms = 120000) {
    char said[8192];
    int code = python("args = argparse.Namespace(source=folder + '/k.hip', target='gfx1100', include=include,\n"
                      "                          out=folder + '/k', depfile=None)\n"
                      "data = tool.compile_device(args, tool.find_clang(), 'amd')\n"
                      "raw = open(folder + '/k', 'rb').read()\n"
                      "assert len(data) == len(raw) and b'hidden_none' in data and b'hidden_none' not in raw\n"
                      "assert b'hidden_dynamic_lds_size' not in data\n"
                      "print(meta.read_elf(data, 'gfx1100')[0]['args'])\n"
                      "meta.read_elf(raw, 'gfx1100')\n",
                      SOURCE("RF_SHARED_DYNAMIC(float, more); more[rf_thread_x()] = out[n]; rf_barrier();\n"
                             "out[rf_global_x()] = more[rf_grid_dim_x() % 64];"),
                      said, sizeof said);
    RF_EXPECT_INT(code, 1);
    RF_ASSERT_CONTAINS(said, "[8, 8]\n");
    RF_ASSERT_CONTAINS(said, "Refused: bad asks for the argument hidden_dynamic_lds_size");
}

RF_TEST(toolchain, hidden_arguments_are_read_in_one_place) {
    refused(SOURCE("out[n] = ((const uint32_t *)__builtin_amdgcn_implicitarg_ptr())[30];"), "gfx1100",
            "may not read hidden arguments");
}

/* Siblings have the same code as another target. gfx1101 is none of gfx1100, and 'verify' must see that. */
RF_TEST(toolchain, a_sibling_is_what_the_compiler_makes, .timeout_ms = 240000) {
    char said[8192];
    int code = python("args = argparse.Namespace(sources=[include + '/kernels/scale.hip'], include=include)\n"
                      "tool.verify(args)\n"
                      "meta.SIBLINGS = {'gfx1101': 'gfx1100'}\n"
                      "meta.MACHINES = {'gfx1100': 0x41, 'gfx1101': 0x46}\n"
                      "tool.verify(args)\n",
                      "", said, sizeof said);
    RF_EXPECT_INT(code, 1);
    RF_EXPECT_CONTAINS(said, "gfx1200: 0 differ");
    RF_EXPECT_CONTAINS(said, "the code for gfx1101 is not that for gfx1100");
    RF_EXPECT_CONTAINS(said, "for gfx1101: 1 differ");
}

/* What 'table' says to the metadata of two blobs. */
static int table(const char *first, const char *second, char *said, size_t size) {
    char folder[SCRATCH_BYTES], command[2048];
    scratch_folder(folder, "toolchain");
    write_text(folder, "0.json", first);
    write_text(folder, "1.json", second);
    snprintf(command, sizeof command,
             "'%s' '%s' table %s/0.json %s/1.json --style builtin --name x --out %s/x.c 2>&1; "
             "code=$?; rm -r %s; exit $code",
             PYTHON, BUILD_KERNELS, folder, folder, folder, folder);
    FILE *output = popen(command, "r");
    RF_ASSERT(output != NULL);
    said[fread(said, 1, size - 1, output)] = 0;
    int status = pclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static void table_refused(const char *first, const char *second, const char *why) {
    char said[8192];
    RF_EXPECT_INT(table(first, second, said, sizeof said), 1);
    RF_ASSERT_CONTAINS(said, why);
}

#define KERNEL(kernel, args)                                                                                         \
    "{\"name\": \"" kernel "\", \"args\": " args ", \"max_threads\": 256, \"shared\": 0, \"vector_registers\": 1, "  \
    "\"scalar_registers\": 1, \"scratch\": 0, \"spills\": 0}"
#define METADATA_OF(module, target, kernels)                                                                         \
    "{\"module\": \"" module "\", \"target\": \"" target                                                             \
    "\", \"file\": \"f\", \"bytes\": 1, \"packed_file\": \"f.zst\", \"packed_bytes\": 1, "                           \
    "\"matrix\": [\"*_matrix\"], \"kernels\": [" kernels "]}"
#define METADATA(module, target, kernel, args) METADATA_OF(module, target, KERNEL(kernel, args))

RF_TEST(toolchain, targets_must_agree) {
    table_refused(METADATA("m", "gfx1100", "k", "[8, 4]"), METADATA("m", "sm_80", "k", "[8, 8]"), "differ");
    table_refused(METADATA("m", "gfx1100", "k", "[8]"), METADATA("m", "sm_80", "other", "[8]"), "has no");
    table_refused(METADATA("m", "gfx1100", "k", "[8]"), METADATA("n", "gfx1100", "k", "[8]"), "is in");
}

/* sm_90a has modules of its own, which no other target needs. */
RF_TEST(toolchain, kernels_for_one_architecture_are_modules_of_their_own) {
    char said[8192];
    RF_EXPECT_INT(
        table(METADATA("m", "gfx1100", "k", "[8]"), METADATA("n", "sm_90a", "own", "[8]"), said, sizeof said), 0);
    RF_EXPECT_TEXT(said, "");
    table_refused(METADATA("m", "sm_90", "k", "[8]"), METADATA("m", "sm_90a", "k", "[8]"),
                  "m is built for sm_90a and for sm_90");
    table_refused(METADATA("m", "sm_90", "k", "[8]"), METADATA("n", "sm_90a", "k", "[8]"), "k is in m and in n");
}

/* Only a target without matrix units lacks kernels, and only those that the source names; it has none of them. */
RF_TEST(toolchain, kernels_for_matrix_units_are_absent_on_purpose) {
    char said[8192];
    static const char both[] = METADATA_OF("m", "gfx1100", KERNEL("k", "[8]") ", " KERNEL("k_matrix", "[8]"));
    static const char wide[] = METADATA_OF("m", "gfx1100", KERNEL("k", "[8]") ", " KERNEL("k_wide", "[8]"));
    RF_EXPECT_INT(table(both, METADATA("m", "gfx1030", "k", "[8]"), said, sizeof said), 0);
    RF_EXPECT_TEXT(said, "");
    table_refused(both, METADATA("m", "gfx1201", "k", "[8]"), "gfx1201 has no k_matrix");
    table_refused(both, METADATA("m", "gfx1030", "other", "[8]"), "gfx1030 has no k");
    table_refused(METADATA("m", "gfx1100", "k_matrix", "[8]"), METADATA("m", "gfx1030", "k_matrix", "[8]"),
                  "gfx1030 has no matrix units, but has k_matrix");
    table_refused(wide, METADATA("m", "gfx1030", "k", "[8]"), "gfx1030 has no k_wide");
}
