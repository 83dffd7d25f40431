/* Tensor maps as arguments of launches: what is refused, what the kernel gets, that the buffer's use is known, and
 * what happens if the driver refuses. The simulated driver's maps are struct rfk_map. */
#include "gpu_testing.h"

#include <string.h>

#include "gpu/device_impl.h"
#include "kernels/host_abi.h"

enum { WIDTH = 40, HEIGHT = 9, PITCH = 96 }; /* f16; bytes from row to row */

static struct rf_map a_map(void) {
    return (struct rf_map){.dtype = RF_F16,
                           .rank = 2,
                           .sizes = {WIDTH, HEIGHT},
                           .strides = {0, PITCH},
                           .box = {64, 128},
                           .swizzle = RF_MAP_SWIZZLE_128};
}
static rf_status launch(struct gpu *gpu, struct rf_buffer *out, struct rf_arg map) {
    return GPU_LAUNCH(gpu->queue, gpu_kernel(gpu, "read_map"), 1, rf_arg_buffer(out), map);
}

RF_TEST(maps, reach_the_kernel) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rfk_map got;
    struct rf_map map = a_map();
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(of, 64, &map)));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    RF_EXPECT(got.magic == RFK_MAP_MAGIC && got.base % 64 == 0);
    RF_EXPECT_INT(got.rank, 2);
    RF_EXPECT_INT(got.element_bytes, 2);
    RF_EXPECT_INT(got.swizzle_bytes, 128);
    RF_EXPECT_INT(got.sizes[0], WIDTH);
    RF_EXPECT_INT(got.sizes[1], HEIGHT);
    RF_EXPECT_INT(got.strides[0], PITCH);
    RF_EXPECT_INT(got.box[0], 64);
    RF_EXPECT_INT(got.box[1], 128);
    uint64_t base = got.base;
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    RF_EXPECT_INT(got.base, base - 64);
    /* Without a buffer: zeros, and the driver is not asked. */
    uint64_t asked = gpu_sim_entry_calls("rfsim_map_encode");
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(NULL, 0, NULL)));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    RF_EXPECT_INT(got.magic, 0);
    RF_EXPECT_INT(gpu_sim_entry_calls("rfsim_map_encode"), asked);
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

struct refusal {
    const char *label, *text;
    struct rf_map map;
    uint64_t offset;
};
#define MAP(...) {.dtype = RF_F16, .rank = 2, .sizes = {40, 9}, .strides = {0, 96}, .box = {64, 128}, __VA_ARGS__}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
static const struct refusal refusals[] = {
    {"no_rank", "a map of 0 dimensions", MAP(.rank = 0), 0},
    {"rank", "a map of 6 dimensions", MAP(.rank = 6), 0},
    {"type", "elements of this type", MAP(.dtype = RF_Q4_0), 0},
    {"number", "elements of this type", MAP(.dtype = (enum rf_dtype)99), 0},
    {"swizzle", "which there is not", MAP(.swizzle = (enum rf_map_swizzle)4), 0},
    {"empty", "a map with 0 elements in dimension 1", MAP(.sizes = {40, 0}), 0},
    {"wide", "4294967297 elements in dimension 0", MAP(.sizes = {(UINT64_C(1) << 32) + 1, 1}), 0},
    {"box", "a box of 0 elements in dimension 0", MAP(.box = {0, 1}), 0},
    {"large_box", "a box of 257 elements in dimension 1", MAP(.box = {8, 257}), 0},
    {"stride", "a stride of 90 bytes in dimension 1", MAP(.strides = {0, 90}), 0},
    {"far", "below 2^40", MAP(.strides = {0, UINT64_C(1) << 40}), 0},
    {"box_rows", "rows of 10 bytes, which is no multiple of 16", MAP(.box = {5, 1}), 0},
    {"swizzled_rows", "rows of 128 bytes, more than the 64", MAP(.swizzle = RF_MAP_SWIZZLE_64), 0},
    {"offset", "at no multiple of 16", MAP(.rank = 2), 8},
    {"end", "leaves its buffer", MAP(.sizes = {40, 44}), 0}, /* ends 112 bytes behind it */
    {"end_by_offset", "leaves its buffer", MAP(.sizes = {40, 42}), 128},
    {"overflow", "leaves its buffer",
     MAP(.rank = 4, .sizes = {8, UINT64_C(1) << 32, UINT64_C(1) << 32, 9}, .strides = {0, 16, UINT64_C(1) << 39, 16},
         .box = {8, 1, 1, 1}),
     0},
};
#pragma GCC diagnostic pop
RF_TEST_LABELLED_CASES(maps, refuse, struct refusal, refusals) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, c->offset, &c->map)), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), c->text);
    RF_EXPECT_CONTAINS(rf_error_text(), "launch of 'read_map': argument 1");
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_EXPECT_INT(gpu_sim_entry_calls("rfsim_map_encode"), 0);
    struct rf_map good = a_map();
    RF_EXPECT_OK(launch(&gpu, out, rf_arg_map(of, 0, &good)));
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* The last element may end where the buffer does. */
RF_TEST(maps, may_fill_the_buffer) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 3 * PITCH + 80 + 16);
    struct rf_map map = a_map();
    map.sizes[1] = 4;
    RF_EXPECT_OK(launch(&gpu, out, rf_arg_map(of, 16, &map)));
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 32, &map)), RF_E_INVALID);
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 4096, &map)), RF_E_INVALID);
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 0, NULL)), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "a map without data");
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_i64(1)), RF_E_INVALID); /* a kernel that takes a map gets one */
    RF_EXPECT_STATUS(GPU_LAUNCH(gpu.queue, gpu_kernel(&gpu, "increment"), 1, rf_arg_map(of, 0, &map), rf_arg_i64(1)),
                     RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "argument 0 has 128 bytes, the kernel takes 8");
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* A buffer that only a map names is not given to others while the launch may run. */
RF_TEST(maps, keep_their_buffer_in_use) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    struct gpu_hold hold;
    gpu_open(&gpu, NULL);
    gpu_hold_prepare(&gpu, &hold);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rf_map map = a_map();
    struct rfk_map got;
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    uint64_t bases[8];
    struct rf_buffer *others[8];
    struct rf_queue *other = NULL;
    RF_PARAMS(struct rf_queue_params, params);
    RF_ASSERT_OK(rf_queue_create(gpu.device, &params, &other));
    for (size_t i = 0; i < RF_COUNT(others); i++) {
        struct rf_buffer *mine = gpu_buffer(&gpu, 128);
        others[i] = gpu_buffer(&gpu, 4096);
        RF_ASSERT_OK(
            GPU_LAUNCH(other, gpu_kernel(&gpu, "read_map"), 1, rf_arg_buffer(mine), rf_arg_map(others[i], 0, &map)));
        RF_ASSERT_OK(rf_copy_from_device_safe(other, &got, mine, 0, sizeof got));
        bases[i] = got.base;
        RF_ASSERT_OK(rf_buffer_destroy(&mine));
    }
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    for (size_t i = 0; i < RF_COUNT(others); i++) {
        RF_EXPECT(bases[i] != got.base);
        RF_ASSERT_OK(rf_buffer_destroy(&others[i]));
    }
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_queue_destroy(&other));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* In a recording the map is made once, and its memory stays until the recording is gone. */
RF_TEST(maps, are_recorded) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    struct rf_map map = a_map();
    struct rfk_map got, again;
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "map"));
    RF_ASSERT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    uint64_t held = gpu_memory(&gpu).used_bytes, asked = gpu_sim_entry_calls("rfsim_map_encode");
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_EXPECT_INT(gpu_memory(&gpu).used_bytes, held);
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_fill(gpu.queue, out, 0, 128, 0));
        RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
        RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &again, out, 0, sizeof again));
        RF_EXPECT(!memcmp(&got, &again, sizeof got));
    }
    RF_EXPECT_INT(gpu_sim_entry_calls("rfsim_map_encode"), asked);
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_EXPECT(gpu_memory(&gpu).used_bytes < held);
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* The driver refuses a map: the launch fails, nothing runs, and the next one works. */
RF_TEST(maps, survive_a_refusal) {
    gpu_need_simulated("fault=rfsim_map_encode:1:1,fault=rfsim_map_encode:3:1");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rf_recording *recording = NULL;
    struct rf_map map = a_map();
    struct rfk_map got;
    RF_ASSERT_OK(rf_fill(gpu.queue, out, 0, 128, 7));
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 0, &map)), RF_E_DRIVER);
    RF_EXPECT_CONTAINS(rf_error_text(), "map_encode");
    RF_EXPECT_CONTAINS(rf_error_text(), "read_map");
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got, out, 0, sizeof got));
    RF_EXPECT_INT(got.magic, 0x07070707);
    RF_EXPECT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "map"));
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 0, &map)), RF_E_DRIVER);
    RF_EXPECT_STATUS(rf_queue_record_end(gpu.queue, &recording), RF_E_DRIVER);
    RF_EXPECT_CONTAINS(rf_error_text(), "map_encode");
    RF_EXPECT_OK(launch(&gpu, out, rf_arg_map(of, 0, &map)));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* HIP, and CUDA before 12.0. */
RF_TEST(maps, need_a_driver_that_has_them) {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rf_map map = a_map();
    struct rf_driver without = *gpu.device->driver;
    struct rf_driver *with = gpu.device->driver;
    without.map_encode = NULL;
    gpu.device->driver = &without;
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 0, &map)), RF_E_UNSUPPORTED);
    RF_EXPECT_CONTAINS(rf_error_text(), "argument 1: a map, and HIP");
    RF_EXPECT_CONTAINS(rf_error_text(), "has no tensor maps");
    RF_EXPECT_OK(launch(&gpu, out, rf_arg_map(NULL, 0, NULL)));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_MS(60000)));
    gpu.device->driver = with;
    RF_ASSERT_OK(rf_buffer_destroy(&of));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}

/* A driver that is lost at that call. */
RF_TEST(maps, at_the_loss_of_the_device) {
    gpu_need_simulated("fault=rfsim_map_encode:1:loss");
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *out = gpu_buffer(&gpu, 128), *of = gpu_buffer(&gpu, 4096);
    struct rf_map map = a_map();
    RF_EXPECT_STATUS(launch(&gpu, out, rf_arg_map(of, 0, &map)), RF_E_DEVICE_LOST);
    rf_buffer_destroy(&of);
    rf_buffer_destroy(&out);
    rf_queue_destroy(&gpu.queue);
    rf_device_close(&gpu.device);
    rf_runtime_destroy(&gpu.runtime);
}
