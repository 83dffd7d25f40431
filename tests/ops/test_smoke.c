/* The first things to try on a GPU: copies to it and back, and one case of every op of the table. */
#include "../gpu/gpu_testing.h"

#include <stdlib.h>
#include <string.h>

#include <rocmforge/ops.h>

RF_TEST(smoke, buffer_copy, .gpu = true) {
    enum { COUNT = 100003 };
    struct gpu gpu = {.modules = "copy,fill"};
    gpu_open_above_driver(&gpu, 32 * MIB);
    static uint8_t sent[COUNT], got[COUNT];
    for (size_t i = 0; i < COUNT; i++) sent[i] = (uint8_t)(i * 31 + i / 251);
    struct rf_buffer *first = gpu_buffer(&gpu, COUNT), *second = gpu_buffer(&gpu, COUNT);
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, first, 0, sent, COUNT));
    RF_ASSERT_OK(rf_copy_on_device(gpu.queue, second, 0, first, 0, COUNT));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, second, 0, COUNT));
    RF_EXPECT(!memcmp(sent, got, COUNT));
    RF_ASSERT_OK(rf_buffer_destroy(&first));
    RF_ASSERT_OK(rf_buffer_destroy(&second));
    gpu_close(&gpu);
}

static bool keep_first(void *user, const struct rf_check_result *result) {
    bool *passed = user;
    *passed = result->passed;
    if (!result->passed) RF_NOTE("%s %s: %s", result->op, result->label, result->why);
    return false; /* the other cases are for `rocmforge check` */
}

RF_TEST(smoke, the_first_case_of_every_op, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open_above_driver(&gpu, 512 * MIB);
    for (size_t i = 0; i < rf_op_count(); i++) {
        RF_PARAMS(struct rf_op_info, info);
        RF_PARAMS(struct rf_check_params, params);
        struct rf_check_counts counts;
        bool passed = false;
        RF_ASSERT_OK(rf_op_info_at(i, &info));
        params.op = info.name;
        params.device = gpu.device;
        params.seed = rf_test_seed();
        params.visit = keep_first;
        params.user = &passed;
        RF_ASSERT_OK(rf_check_run(&params, &counts));
        RF_EXPECT(passed);
    }
    gpu_close(&gpu);
}
