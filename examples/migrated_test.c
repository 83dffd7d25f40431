/* The test that docs/testing.md migrates step by step, in its final form. The guide quotes it. */
#include <math.h>

#include <rocmforge/test.h>

static void softmax_reference(float *out, const float *in, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++, in += columns, out += columns) {
        double max = -INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++) max = fmax(max, (double)in[c]);
        for (size_t c = 0; c < columns; c++) sum += exp((double)in[c] - max);
        for (size_t c = 0; c < columns; c++) out[c] = (float)(exp((double)in[c] - max) / sum);
    }
}

RF_TEST(softmax, matches_cpu, .gpu = true, .memory_bytes = 1 << 20) {
    struct rf_device *device = rf_fixture();
    struct rf_queue *queue = rf_fixture_queue();
    struct rf_random random = {rf_test_seed()};
    float in[1024], expected[1024], actual[1024];
    rf_random_floats(&random, in, 1024, 0, 1);
    softmax_reference(expected, in, 1, 1024);

    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = sizeof in;
    RF_ASSERT_OK(rf_buffer_create_safe(device, &params, &buffer));
    RF_ASSERT_OK(rf_copy_to_device_safe(queue, buffer, 0, in, sizeof in));

    const struct rf_arg args[] = {rf_arg_buffer(buffer), rf_arg_buffer(buffer), rf_arg_i64(1), rf_arg_i64(1024)};
    RF_PARAMS(struct rf_launch, launch);
    RF_ASSERT_OK(rf_kernel_find(device, "softmax_f32", &launch.kernel));
    launch.grid[0] = 1;
    launch.block[0] = 256;
    launch.args = args;
    launch.arg_count = 4;
    RF_ASSERT_OK(rf_queue_launch(queue, &launch));

    RF_ASSERT_OK(rf_copy_from_device_safe(queue, actual, buffer, 0, sizeof actual));
    RF_ASSERT_F32(actual, expected, 1024, rf_absolute(1e-5));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
}
