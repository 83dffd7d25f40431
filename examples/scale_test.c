/* A first test file: a CPU reference of a kernel, then the kernel compared with it.
 *
 *     RF_DRIVER=sim build/examples/scale_test            each test in a process of its own
 *     RF_DRIVER=sim build/rocmforge test build/examples/scale_test
 *
 * examples/ctest and examples/meson build this file outside the source tree, as your project would. */
#include <rocmforge/test.h>

/* The reference: a loop that is easy to read. */
static void scale_reference(float *out, const float *in, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = in[i] * factor;
}

/* First the logic, without any GPU. */
RF_TEST(scale, reference_doubles) {
    const float in[] = {1, -2, 0.5f}, expected[] = {2, -4, 1};
    float out[3];
    scale_reference(out, in, 2, 3);
    RF_ASSERT_F32(out, expected, 3, rf_exact());
}

/* Then the kernel, on odd and even sizes: scale.matches_cpu/one, …/odd, …/large. */
enum { MAX_COUNT = 5000 };
struct size {
    const char *label;
    size_t count;
};
static const struct size sizes[] = {{"one", 1}, {"odd", 257}, {"large", MAX_COUNT}};

RF_TEST_LABELLED_CASES(scale, matches_cpu, struct size, sizes, .gpu = true, .memory_bytes = 1 << 20) {
    struct rf_device *device = rf_fixture(); /* skips the test where there is no GPU */
    struct rf_queue *queue = rf_fixture_queue();
    struct rf_random random = {rf_test_seed()};
    static float in[MAX_COUNT], expected[MAX_COUNT], actual[MAX_COUNT];
    rf_random_floats(&random, in, c->count, -10, 10);
    scale_reference(expected, in, 0.3f, c->count);

    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = c->count * sizeof(float);
    RF_ASSERT_OK(rf_buffer_create_safe(device, &params, &buffer));
    RF_ASSERT_OK(rf_copy_to_device_safe(queue, buffer, 0, in, params.bytes));

    RF_PARAMS(struct rf_launch, launch);
    RF_ASSERT_OK(rf_kernel_find(device, "scale_f32", &launch.kernel));
    const struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_buffer(buffer), rf_arg_f32(0.3f),
                                  rf_arg_i64((int64_t)c->count)};
    launch.grid[0] = (uint32_t)((c->count + 255) / 256);
    launch.block[0] = 256;
    launch.args = args;
    launch.arg_count = sizeof args / sizeof args[0];
    RF_ASSERT_OK(rf_queue_launch(queue, &launch));

    RF_ASSERT_OK(rf_copy_from_device_safe(queue, actual, buffer, 0, params.bytes));
    RF_ASSERT_F32(actual, expected, c->count, rf_exact());
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
