/* A device that drives a display: no kernel is long, and the device rests. */
#include "ladder_testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/executor.h"
#include "infer/engine_impl.h"

/* The requested limit, and the limit that is expected. */
struct limit {
    const char *label;
    int display;
    int32_t kernel_ms;
    int64_t limit_ns; /* of one kernel; 0: no limit */
};
static const struct limit limits[] = {{"display", 1, 0, RF_MS(8)},
                                      {"display_off", 1, -1, 0},
                                      {"display_6ms", 1, 6, RF_MS(6)},
                                      {"no_display", 0, 0, 0},
                                      {"no_display_9ms", 0, 9, RF_MS(9)}};
enum { LONG = 200 };
RF_TEST_LABELLED_CASES(display, limits, struct limit, limits, .gpu = true) {
    char rfsim[500], tree[300];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.batch = LONG;
    params.kernel_ms = c->kernel_ms;
    snprintf(tree, sizeof tree, "%s/sys", gpu_folder());
    snprintf(rfsim, sizeof rfsim, "display=%d,sysfs=%s", c->display, tree);
    gpu_need_simulated(rfsim);
    RF_ASSERT_INT(setenv("RF_SYSFS", tree, 1), 0);
    const struct where where = {.label = "display", .rfsim = rfsim};
    infer_open(&infer, &where, &params);
    RF_EXPECT_INT(infer.engine->kernel_ns, c->limit_ns);
    RF_EXPECT_UINT(infer_info(&infer).batch, c->limit_ns ? 64 : LONG);
    infer_close(&infer);
}

/* Evaluates a prompt twice in parts that begin with this size: the first time finds the right size, the second uses
 * it. Returns how long the longest kernel of its last part took. */
static int64_t read_long_prompt(int32_t kernel_ms, uint32_t first, uint32_t count, const float *expected,
                                uint32_t *chunk, uint32_t *least) {
    static const struct where paced = {.label = "paced", .rfsim = "pace=1000000"};
    int32_t tokens[LONG];
    float row[VOCABULARY];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.batch = LONG;
    params.kernel_ms = kernel_ms;
    infer_open(&infer, &paced, &params);
    if (first) atomic_store(&infer.engine->pace.chunk, first);
    for (uint32_t i = 0; i < LONG; i++) tokens[i] = (int32_t)((i * i + 7) % VOCABULARY);
    struct rf_session *session = infer_session(&infer);
    for (int turn = 0; turn < 2; turn++) {
        RF_ASSERT_OK(rf_session_rewind(session, 0));
        RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, row));
        if (expected) RF_EXPECT_DOUBLE(error_of_floats(row, expected, VOCABULARY), 0, 1e-9);
    }
    *chunk = infer_info(&infer).batch;
    *least = atomic_load(&infer.engine->pace.least);
    /* The size of the last part is arbitrary: a part of the size that was found is measured. */
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, tokens, RF_MIN(*chunk, count), false, row));
    const struct rf_runner *newest = &session->runners[0];
    for (size_t i = 1; i < session->runner_count; i++)
        if (session->runners[i].used > newest->used) newest = &session->runners[i];
    int64_t longest = rf_executor_longest_ns(newest->executor);
    RF_NOTE("%d ms, from %u: %u tokens at a time, the longest kernel takes %.0f ms", kernel_ms, first, *chunk,
            (double)longest * 1e-6);
    rf_session_destroy(&session);
    infer_close(&infer);
    return longest;
}

/* By the simulated clock a block takes a millisecond, whatever the host does. Parts of a prompt shrink until no
 * kernel takes longer than the limit, and grow if there is time to spare. */
RF_TEST(display, prompts_are_cut, .gpu = true, .timeout_ms = 1500000) {
    static const struct where cpu = {.label = "cpu"};
    enum { EVER = 100000000, FEW = 8 };
    float expected[VOCABULARY];
    uint32_t chunk = 0, least = 0;
    int32_t tokens[LONG];
    struct infer infer;
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    gpu_need_simulated("pace=1000000");
    infer_open(&infer, &cpu, &params);
    RF_EXPECT_INT(infer.engine->kernel_ns, 0); /* the CPU drives no display */
    for (uint32_t i = 0; i < LONG; i++) tokens[i] = (int32_t)((i * i + 7) % VOCABULARY);
    struct rf_session *session = infer_session(&infer);
    RF_ASSERT_OK(rf_session_eval(session, tokens, LONG, false, expected));
    rf_session_destroy(&session);
    infer_close(&infer);

    /* With a limit that never matters, the part grows to its largest size. */
    int64_t all_ns = read_long_prompt(EVER, 0, LONG, expected, &chunk, &least);
    RF_EXPECT_UINT(chunk, LONG);
    int64_t few_ns = read_long_prompt(EVER, FEW, FEW, NULL, &chunk, &least);
    RF_ASSERT(all_ns > few_ns + RF_MS(2));
    /* With a limit in between it shrinks, and the limit is kept. */
    int64_t limit_ns = few_ns + (all_ns - few_ns) / 2, longest;
    longest = read_long_prompt((int32_t)(limit_ns / RF_MS(1)), LONG, LONG, expected, &chunk, &least);
    RF_EXPECT(chunk < LONG && chunk >= FEW / 2);
    RF_EXPECT(longest > 0 && longest <= limit_ns);
    /* With a limit that no kernel can keep, it stops at the size below which parts take just as long. */
    longest = read_long_prompt(1, LONG, LONG, expected, &chunk, &least);
    RF_EXPECT(longest > RF_MS(1));
    RF_EXPECT_UINT(chunk, least);
}

/* The device is left idle for its share of the time: three times as long as it was busy. */
RF_TEST(display, leaves_the_device_alone, .gpu = true, .timeout_ms = 1500000) {
    struct infer infer;
    int32_t tokens[PROMPT];
    gpu_need_simulated(squeezed.rfsim);
    struct rf_engine_params params = usual;
    params.model = infer_model(&tower, "tower.gguf");
    params.duty_percent = 101;
    RF_EXPECT_STATUS(infer_try_open(&infer, &squeezed, &params), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "101 percent");
    rf_runtime_destroy(&infer.gpu.runtime);
    params.duty_percent = 25;
    infer_open(&infer, &squeezed, &params);
    fill_prompt(tokens);
    struct rf_session *session = infer_session(&infer);
    int64_t began = rf_now_ns();
    RF_ASSERT_OK(rf_session_eval(session, tokens, PROMPT, false, NULL));
    for (int i = 0; i < 3; i++) RF_ASSERT_OK(rf_session_eval(session, tokens + i, 1, false, NULL));
    int64_t took = rf_now_ns() - began, idle = infer_info(&infer).idle_ns;
    RF_EXPECT(idle > 0);
    RF_EXPECT(took >= idle);
    RF_EXPECT(idle <= 3 * (took - idle)); /* the rest of the time is at least the busy time */
    rf_session_destroy(&session);
    infer_close(&infer);
}
