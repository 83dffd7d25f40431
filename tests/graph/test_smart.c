/* Smart tensors: they are on the GPU as long as the budget allows, then in zeroed host memory, with a notice. */
#include "exec_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

RF_TEST(smart, gpu_within_the_budget_then_host, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, NULL);
    struct rf_tensor_desc desc = {.dtype = RF_F32, .rank = 2, .shape = {1024, 1024}}; /* 4 MiB */
    struct rf_smart_tensor *tensors[4] = {NULL};
    char spec[32];
    snprintf(spec, sizeof spec, "%llu", (unsigned long long)(exec_memory(gpus.devices[0]).held_bytes + 9 * MIB));
    RF_ASSERT_OK(rf_device_set_budget(gpus.devices[0], spec));
    for (int i = 0; i < 4; i++) RF_ASSERT_OK(rf_tensor_create_smart(gpus.devices[0], &desc, &tensors[i]));
    for (int i = 0; i < 4; i++) {
        bool on_device = i < 2;
        RF_EXPECT(rf_smart_tensor_location(tensors[i]) == (on_device ? RF_ON_DEVICE : RF_ON_HOST));
        RF_EXPECT((rf_smart_tensor_device(tensors[i]) != NULL) == on_device);
        RF_EXPECT((rf_smart_tensor_host(tensors[i]) == NULL) == on_device);
        RF_EXPECT_INT(rf_smart_tensor_get_desc(tensors[i])->shape[1], 1024);
        const float *host = rf_smart_tensor_host(tensors[i]);
        size_t others = 0;
        for (size_t k = 0; host && k < 1024 * 1024; k++) others += host[k] != 0;
        RF_EXPECT_INT(others, 0);
    }
    /* One notice for each tensor that did not fit, with the reason. */
    int notices = 0;
    for (const char *at = gpu_log(); (at = strstr(at, "is in host memory: refused")); at++) notices++;
    RF_EXPECT_INT(notices, 2);
    for (int i = 0; i < 4; i++) RF_ASSERT_OK(rf_smart_tensor_destroy(&tensors[i]));
    exec_close(&gpus);
}

RF_TEST(smart, without_a_gpu) {
    struct rf_tensor_desc desc = {.dtype = RF_F16, .rank = 1, .shape = {100}};
    struct rf_smart_tensor *tensor = NULL;
    RF_ASSERT_OK(rf_tensor_create_smart(NULL, &desc, &tensor));
    RF_EXPECT(rf_smart_tensor_location(tensor) == RF_ON_HOST && rf_smart_tensor_host(tensor) != NULL);
    RF_ASSERT_OK(rf_smart_tensor_destroy(&tensor));
    RF_EXPECT(tensor == NULL);
    desc.rank = 0;
    RF_EXPECT_STATUS(rf_tensor_create_smart(NULL, &desc, &tensor), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_tensor_create_smart(NULL, NULL, &tensor), RF_E_INVALID);
    RF_ASSERT_OK(rf_smart_tensor_destroy(&tensor));
}

RF_TEST(smart, the_host_budget_counts, .gpu = true) {
    struct exec_gpus gpus = {0};
    exec_open(&gpus, 1, "", NULL, (const char *[]){"RF_HOST_BUDGET=256MiB", NULL});
    struct rf_tensor_desc desc = {.dtype = RF_U8, .rank = 1, .shape = {UINT64_C(1) << 40}};
    struct rf_smart_tensor *tensor = NULL;
    RF_EXPECT_STATUS(rf_tensor_create_smart(gpus.devices[0], &desc, &tensor), RF_E_NO_MEMORY);
    RF_EXPECT(tensor == NULL);
    exec_close(&gpus);
}
