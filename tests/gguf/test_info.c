/* rocmforge info as a user meets it: what it says of a model, JSON that is JSON, one line for bad
 * input. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_testing.h"
#include "run_report.h"

#define MODEL TEST_DATA "/oracle/llama-q4_0.gguf"

static int run(const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command, "'%s' info %s", ROCMFORGE, arguments);
    return run_shell(command);
}

static void expect_one_line(const char *arguments, int code, const char *part) {
    char with_errors[600];
    snprintf(with_errors, sizeof with_errors, "%s 2>&1 >/dev/null", arguments);
    RF_EXPECT_INT(run(with_errors), code);
    const char *end = strchr(report, '\n');
    if (!end || end[1] || strncmp(report, "rocmforge: info: ", 17) != 0)
        RF_FAIL("rocmforge info %s is not answered with one line: %s", arguments, report);
    RF_EXPECT_CONTAINS(report, part);
}

RF_TEST(info, shows_a_model) {
    RF_ASSERT_INT(run("--help"), 0);
    RF_EXPECT_CONTAINS(report, "usage: rocmforge info FILE.gguf");
    RF_ASSERT_INT(run(MODEL), 0);
    static const char *const parts[] = {"llama",
                                        "GGUF version 3",
                                        "Metadata\n",
                                        "  llama.block_count",
                                        "Tensors (",
                                        "  blk.0.attn_q.weight",
                                        "q4_0",
                                        "Memory\n",
                                        "embedding",
                                        "layers 0 to ",
                                        "output",
                                        "all weights",
                                        "KV cache",
                                        "per 1024 tokens in f16;",
                                        "  token_embd.weight"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) RF_EXPECT_CONTAINS(report, parts[i]);
    RF_ASSERT_INT(run("--brief " MODEL), 0);
    RF_EXPECT(strstr(report, "blk.0.attn_q.weight") == NULL);
    RF_EXPECT_CONTAINS(report, "all weights");
}

RF_TEST(info, json_is_json) {
    RF_ASSERT_INT(run("--json " MODEL " | python3 -c '"
                      "import json, sys; d = json.load(sys.stdin); "
                      "assert d[\"architecture\"] == \"llama\" and d[\"version\"] == 3 and d[\"files\"] == 1; "
                      "assert sum(p[\"weight_bytes\"] for p in d[\"parts\"]) == d[\"weight_bytes\"]; "
                      "assert sum(t[\"bytes\"] for t in d[\"tensors\"]) == d[\"weight_bytes\"]; "
                      "assert d[\"kv_bytes_per_1024_tokens\"][\"f16\"] > 0; "
                      "m = {k[\"key\"]: k for k in d[\"metadata\"]}; "
                      "assert m[\"llama.block_count\"][\"value\"] >= 1; print(\"good\")'"),
                  0);
    RF_ASSERT_TEXT(report, "good\n");
}

RF_TEST(info, bad_input_is_one_line) {
    expect_one_line("", 2, "name a model file");
    expect_one_line("a b", 2, "one argument too many");
    expect_one_line("--nonsense", 2, "unknown option --nonsense");
    expect_one_line("/nonexistent/model.gguf", 1, "/nonexistent/model.gguf: cannot be opened");
    expect_one_line("/", 1, "is a folder");
    const char *path = scratch_path("bad.gguf");
    write_bytes(path, "no model\n", 9);
    expect_one_line(path, 1, "is no GGUF file");
    size_t size;
    unsigned char *bytes = read_bytes(MODEL, &size);
    write_bytes(path, bytes, size / 2);
    expect_one_line(path, 1, "truncated");
    bytes[7] = 3, bytes[4] = 0;
    write_bytes(path, bytes, size);
    expect_one_line(path, 1, "big-endian");
    free(bytes);
    RF_EXPECT_INT(run("--json " MODEL " 2>&1 > /dev/full"), 1);
    RF_EXPECT_CONTAINS(report, "standard output could not be written");
}
