/* Numbers that come out wrong: a driver that changes how the process rounds, weights that are not numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_testing.h"

/* Half of the layers on the GPU, half on the CPU, whose results a changed rounding mode changes. */
static const struct spec small = {"small",    "llama",       .layers = 4,         .width = 64,
                                  .heads = 2, .kv_heads = 1, .feed_forward = 128, .vocabulary = 300};
#define LOGITS "logits -m small.gguf --tokens 1,2,3,4,5,6,7,8,9,10,11,12 --threads 2 "

static void expect_same_files(const char *one, const char *other) {
    size_t bytes, other_bytes;
    unsigned char *a = read_bytes(scratch_path(one), &bytes), *b = read_bytes(scratch_path(other), &other_bytes);
    RF_ASSERT(bytes > 0 && bytes == other_bytes);
    if (memcmp(a, b, bytes) != 0) RF_FAIL("%s and %s differ", one, other);
    free(a);
    free(b);
}

RF_TEST(numbers, a_driver_that_changes_the_rounding_mode_changes_no_bit, .timeout_ms = 300000) {
    static char usual[4096];
    command_folder();
    infer_model(&small, "small.gguf");
    RF_ASSERT_INT(command_run("RF_DRIVER=sim", LOGITS "--gpu-layers 2 --out usual"), 0);
    RF_ASSERT_INT(command_run("RF_DRIVER=sim RFSIM=rounding=1", LOGITS "--gpu-layers 2 --out spoiled"), 0);
    expect_same_files("usual", "spoiled");
    /* On the CPU alone, in a process that the driver was asked in. */
    RF_ASSERT_INT(command_run("RF_DRIVER=none", LOGITS "--out usual"), 0);
    RF_ASSERT_INT(command_run("RF_DRIVER=sim RFSIM=rounding=1 RF_BUDGET=1KiB", LOGITS "--out spoiled"), 0);
    RF_EXPECT_CONTAINS(command_errors, "runs on the CPU");
    expect_same_files("usual", "spoiled");
    /* And the text that is sampled. */
#define TALE "run -m endless.gguf -p '?' -n 12 --temp 2 --gpu-layers 1"
    RF_ASSERT_INT(command_run("RF_DRIVER=sim", TALE), 0);
    snprintf(usual, sizeof usual, "%.4000s", command_output);
    command_expect("RF_DRIVER=sim RFSIM=rounding=1", TALE, usual);
}

/* ---- logits that are not numbers ---- */

/* Copies a model and overwrites an element of one of its f32 tensors. */
static void spoil(const char *from, const char *to, const char *tensor, size_t at, float value) {
    struct rf_gguf *gguf = NULL;
    size_t bytes, found = 0;
    unsigned char *whole = read_bytes(scratch_path(from), &bytes);
    RF_ASSERT_OK(rf_gguf_open(scratch_path(from), &gguf));
    RF_PARAMS(struct rf_gguf_tensor_info, info);
    for (uint64_t i = 0; !rf_gguf_tensor_info_at(gguf, i, &info); i++) {
        if (strcmp(info.name, tensor) != 0) continue;
        RF_ASSERT(info.dtype == RF_F32 && (at + 1) * sizeof value <= info.bytes);
        memcpy(whole + info.offset + at * sizeof value, &value, sizeof value);
        found++;
    }
    RF_ASSERT_UINT(found, 1);
    rf_gguf_close(&gguf);
    write_bytes(scratch_path(to), whole, bytes);
    free(whole);
}

/* Every logit is NaN, or one of them: the model says so in one line and fails, on the CPU and on a GPU. */
RF_TEST(numbers, logits_that_are_no_numbers_are_a_failure, .timeout_ms = 600000) {
    static const char *const drivers[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    command_folder();
    spoil("model.gguf", "nan.gguf", "output_norm.weight", 0, NAN);
    spoil("model.gguf", "one.gguf", "output.weight", 5, NAN);
    spoil("model.gguf", "inf.gguf", "output.weight", 5, INFINITY);
    static const struct {
        const char *model, *run, *logits; /* part of the line */
    } cases[] = {
        {"nan.gguf", "260 of 260 are NaN or infinite", "position 0: 260 of 260 logits are not numbers"},
        {"one.gguf", "1 of 260 are NaN or infinite", "position 0: 1 of 260 logits are not numbers"},
        {"inf.gguf", "1 of 260 are NaN or infinite", "position 0: 1 of 260 logits are not numbers"},
    };
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            char arguments[256];
            snprintf(arguments, sizeof arguments, "run -m %s -p '?' -n 4", cases[k].model);
            command_expect_one_line(drivers[i], arguments, 1, cases[k].run);
            RF_EXPECT_CONTAINS(command_errors, "(RF_E_CORRUPT)");
            snprintf(arguments, sizeof arguments, "logits -m %s --tokens 66,67 --out nothing", cases[k].model);
            command_expect_one_line(drivers[i], arguments, 1, cases[k].logits);
            RF_EXPECT_CONTAINS(command_errors, "(RF_E_CORRUPT)");
            RF_EXPECT_INT(access(scratch_path("nothing"), F_OK), -1);
            for (int answer = 0; answer < 3; answer += 2) {
                snprintf(arguments, sizeof arguments, "bench -m %s -p 3 -n %d -r 1", cases[k].model, answer);
                command_expect_one_line(drivers[i], arguments, 1, cases[k].run);
            }
        }
}

/* Behind a good prompt the sampler itself notices that nothing is left. */
RF_TEST(numbers, a_token_that_spoils_the_rest_is_noticed, .timeout_ms = 300000) {
    static const struct where places[] = {{.label = "cpu"}, {.label = "gpu", .rfsim = ""}};
    command_folder();
    size_t width = 0;
    struct rf_gguf *gguf = NULL;
    RF_ASSERT_OK(rf_gguf_open(scratch_path("model.gguf"), &gguf));
    RF_PARAMS(struct rf_gguf_tensor_info, info);
    for (uint64_t i = 0; !width && !rf_gguf_tensor_info_at(gguf, i, &info); i++)
        if (!strcmp(info.name, "token_embd.weight")) width = (size_t)info.shape[1];
    rf_gguf_close(&gguf);
    RF_ASSERT(width > 0);
    const int32_t prompt[] = {script_byte('a'), script_byte('?')}, bad = script_byte('x');
    spoil("model.gguf", "token.gguf", "token_embd.weight", (size_t)bad * width, NAN);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct infer infer;
        int32_t token = 0;
        RF_TRACE("%s", places[i].label);
        infer_open(&infer, &places[i], &(struct rf_engine_params){.model = scratch_path("token.gguf")});
        struct rf_session *session = infer_session(&infer);
        RF_ASSERT_OK(rf_session_eval(session, prompt, 2, false, NULL));
        RF_ASSERT_OK(rf_session_sample(session, NULL, &token));
        RF_ASSERT_OK(rf_session_eval(session, &bad, 1, false, NULL));
        RF_EXPECT_STATUS(rf_session_sample(session, NULL, &token), RF_E_CORRUPT);
        RF_EXPECT_CONTAINS(rf_error_text(), "the logits after token 3 are not numbers");
        rf_session_destroy(&session);
        infer_close(&infer);
    }
}
