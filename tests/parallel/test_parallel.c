/* Two hundred GPU tests that sleep nowhere: kernels against loops on the CPU, on inputs drawn from
 * the seed, each with tens of milliseconds of work on the simulated driver. They are what parallel
 * running is measured with (bench/bench_parallel.py), and every one must hold however many run
 * beside it. */
#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/elementwise_args.h"
#include "kernels/norm_args.h"

/* Which of the fifty cases; the shape follows from it. */
struct number {
    int of;
};
#define TEN(n) {n + 0}, {n + 1}, {n + 2}, {n + 3}, {n + 4}, {n + 5}, {n + 6}, {n + 7}, {n + 8}, {n + 9}
static const struct number fifty[] = {TEN(0), TEN(10), TEN(20), TEN(30), TEN(40)};

#define MEMORY (UINT64_C(16) << 20)

/* A matrix on both sides. */
struct work {
    size_t rows, columns, count;
    float *in, *other, *got, *want;
    struct rf_queue *queue;
    struct rf_buffer *a, *b, *out;
};

static float *host(size_t count) {
    float *values = malloc(count * sizeof *values);
    RF_ASSERT_NOT_NULL(values);
    return values;
}

static struct rf_buffer *on_device(struct rf_queue *queue, const float *values, size_t count) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = count * sizeof *values;
    params.queue = queue;
    RF_ASSERT_OK(rf_buffer_create_safe(rf_queue_device(queue), &params, &buffer));
    if (values) RF_ASSERT_OK(rf_copy_to_device_safe(queue, buffer, 0, values, params.bytes));
    return buffer;
}

static void begin(struct work *w, const struct number *c, uint64_t kind, size_t rows, size_t columns) {
    struct rf_random random = {rf_test_seed() * 1000 + kind * 100 + (uint64_t)c->of};
    *w = (struct work){.rows = rows, .columns = columns, .count = rows * columns};
    w->in = host(w->count);
    w->other = host(w->count);
    w->got = host(w->count);
    w->want = host(w->count);
    rf_random_floats(&random, w->in, w->count, -4, 4);
    rf_random_floats(&random, w->other, w->count, -4, 4);
    w->queue = rf_fixture_queue();
    w->a = on_device(w->queue, w->in, w->count);
    w->b = on_device(w->queue, w->other, w->count);
    w->out = on_device(w->queue, NULL, w->count);
}

static void launch(struct work *w, const char *name, size_t threads, const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_launch, params);
    RF_ASSERT_OK(rf_kernel_find(rf_queue_device(w->queue), name, &params.kernel));
    params.block[0] = 64;
    params.grid[0] = (uint32_t)((threads + 63) / 64);
    params.args = args;
    params.arg_count = count;
    RF_ASSERT_OK(rf_queue_launch(w->queue, &params));
}
#define LAUNCH(w, name, threads, ...)                                                                                \
    launch((w), (name), (threads), (const struct rf_arg[]){__VA_ARGS__},                                             \
           sizeof((const struct rf_arg[]){__VA_ARGS__}) / sizeof(struct rf_arg))

static void end(struct work *w, double absolute, double relative) {
    RF_ASSERT_OK(rf_copy_from_device_safe(w->queue, w->got, w->out, 0, w->count * sizeof(float)));
    RF_ASSERT_OK(rf_buffer_destroy(&w->a));
    RF_ASSERT_OK(rf_buffer_destroy(&w->b));
    RF_ASSERT_OK(rf_buffer_destroy(&w->out));
    RF_ASSERT_F32(w->got, w->want, w->count, rf_within(absolute, relative));
    free(w->in);
    free(w->other);
    free(w->got);
    free(w->want);
}

/* How often a kernel is launched: so that the work, not the process, is what is measured. */
enum { SOFTMAX = 10, RMS_NORM = 18, SUMS = 60, THERE_AND_BACK = 40 };

RF_TEST_CASES(parallel, softmax, struct number, fifty, .gpu = true, .memory_bytes = MEMORY, .tags = "slow,parallel") {
    struct work w;
    begin(&w, c, 0, (size_t)(40 + c->of), (size_t)(700 + 7 * c->of));
    for (size_t r = 0; r < w.rows; r++) {
        const float *in = w.in + r * w.columns;
        double max = -INFINITY, sum = 0;
        for (size_t i = 0; i < w.columns; i++) max = fmax(max, (double)in[i]);
        for (size_t i = 0; i < w.columns; i++) sum += exp((double)in[i] - max);
        for (size_t i = 0; i < w.columns; i++) w.want[r * w.columns + i] = (float)(exp((double)in[i] - max) / sum);
    }
    for (int i = 0; i < SOFTMAX; i++)
        LAUNCH(&w, "softmax_f32", w.rows * 64, rf_arg_buffer(w.out), rf_arg_buffer(w.a), rf_arg_i64((int64_t)w.rows),
               rf_arg_i64((int64_t)w.columns));
    end(&w, 1e-6, 1e-5);
}

RF_TEST_CASES(parallel, rms_norm, struct number, fifty, .gpu = true, .memory_bytes = MEMORY,
              .tags = "slow,parallel") {
    struct work w;
    begin(&w, c, 1, (size_t)(40 + c->of), (size_t)(900 + 5 * c->of));
    for (size_t r = 0; r < w.rows; r++) {
        const float *in = w.in + r * w.columns;
        double sum = 0;
        for (size_t i = 0; i < w.columns; i++) sum += (double)in[i] * (double)in[i];
        double factor = 1 / sqrt(sum / (double)w.columns + 1e-5);
        for (size_t i = 0; i < w.columns; i++)
            w.want[r * w.columns + i] = (float)((double)in[i] * factor * (double)w.other[i]);
    }
    struct rf_norm_args args = {.rows = w.rows, .columns = w.columns, .eps = 1e-5f};
    for (int i = 0; i < RMS_NORM; i++)
        LAUNCH(&w, "rms_norm_f32", w.rows * 64, rf_arg_buffer(w.out), rf_arg_buffer(w.a), rf_arg_buffer(w.b),
               rf_arg_struct(&args, sizeof args));
    end(&w, 1e-6, 1e-5);
}

/* out = a + b, again and again onto itself: an order that went wrong would show. */
RF_TEST_CASES(parallel, running_sum, struct number, fifty, .gpu = true, .memory_bytes = MEMORY,
              .tags = "slow,parallel") {
    struct work w;
    begin(&w, c, 2, (size_t)(40 + c->of), (size_t)(1000 + 3 * c->of));
    for (size_t i = 0; i < w.count; i++) {
        float sum = w.in[i];
        for (int k = 0; k < SUMS; k++) sum += w.other[i];
        w.want[i] = sum;
    }
    RF_ASSERT_OK(rf_copy_on_device(w.queue, w.out, 0, w.a, 0, w.count * sizeof(float)));
    for (int k = 0; k < SUMS; k++)
        LAUNCH(&w, "add_f32", w.count / 4, rf_arg_buffer(w.out), rf_arg_buffer(w.out), rf_arg_buffer(w.b),
               rf_arg_i64((int64_t)w.count));
    end(&w, 0, 0);
}

/* There and back through a transposed copy; the last way back is the same matrix. */
RF_TEST_CASES(parallel, transposes, struct number, fifty, .gpu = true, .memory_bytes = MEMORY,
              .tags = "slow,parallel") {
    struct work w;
    begin(&w, c, 3, (size_t)(40 + c->of), (size_t)(600 + 9 * c->of));
    memcpy(w.want, w.in, w.count * sizeof(float));
    struct rf_copy_2d_args there = {w.rows, w.columns, 1, w.rows, w.columns, 1};
    struct rf_copy_2d_args back = {w.columns, w.rows, 1, w.columns, w.rows, 1};
    for (int k = 0; k < THERE_AND_BACK; k++) {
        LAUNCH(&w, "copy_2d_f32_f32", w.columns, rf_arg_buffer(w.b), rf_arg_buffer(k ? w.out : w.a),
               rf_arg_struct(&there, sizeof there));
        LAUNCH(&w, "copy_2d_f32_f32", w.rows, rf_arg_buffer(w.out), rf_arg_buffer(w.b),
               rf_arg_struct(&back, sizeof back));
    }
    end(&w, 0, 0);
}
