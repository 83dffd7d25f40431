/* The attention tests: kernels against loops on the CPU, with the names and tolerances of the
 * suite whose failure raced_backend.c repeats. The same file is built once per backend.
 *
 * On the raced backend:
 *
 *     test                                   alone    in one process, after causal_mask_large_sequence
 *     weighted_matmul_matches_cpu_small      passes   fails
 *     weighted_matmul_matches_cpu_32x32      passes   fails
 *     weighted_matmul_non_square_sequences   passes   fails
 *     flash_nocausal_matches_cpu_32x32       passes   fails
 *     hip_buffer_copy                        passes   fails
 *     all others                             pass     pass
 *
 * On the safe backend all pass, in any order, in one process or many, side by side or not. The
 * suite 'attention_threads' runs them side by side in one process; on the raced backend it fails
 * by itself. */
#include "backend.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What one test holds on the host; released with it. */
struct matrices {
    float *a, *b, *c, *got, *want;
};

static float *matrix(size_t count) {
    float *values = calloc(count, sizeof *values);
    RF_ASSERT(values != NULL);
    return values;
}

static float *random_matrix(struct rf_random *random, size_t count, float low, float high) {
    float *values = matrix(count);
    rf_random_floats(random, values, count, low, high);
    return values;
}

static void release(struct matrices *m) {
    free(m->a);
    free(m->b);
    free(m->c);
    free(m->got);
    free(m->want);
}

/* ---- the references ---- */

static void cpu_matmul(float *out, const float *a, const float *b, size_t rows, size_t inner, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            double sum = 0;
            for (size_t i = 0; i < inner; i++) sum += (double)a[r * inner + i] * (double)b[i * columns + c];
            out[r * columns + c] = (float)sum;
        }
}

static void cpu_qkt(float *out, const float *queries, const float *keys, size_t rows, size_t key_count, size_t dim) {
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < key_count; k++) {
            double sum = 0;
            for (size_t d = 0; d < dim; d++) sum += (double)queries[r * dim + d] * (double)keys[k * dim + d];
            out[r * key_count + k] = (float)sum;
        }
}

static void cpu_softmax(float *out, const float *in, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++) {
        double max = -INFINITY, sum = 0;
        for (size_t c = 0; c < columns; c++) max = fmax(max, (double)in[r * columns + c]);
        for (size_t c = 0; c < columns; c++) sum += exp((double)in[r * columns + c] - max);
        for (size_t c = 0; c < columns; c++)
            out[r * columns + c] = (float)(exp((double)in[r * columns + c] - max) / sum);
    }
}

/* ---- the tests' bodies ---- */

static void weighted_matmul(uint64_t seed, size_t rows, size_t inner, size_t columns, double tolerance) {
    struct rf_random random = {seed};
    struct matrices m = {.a = random_matrix(&random, rows * inner, 0, 1),
                         .b = random_matrix(&random, inner * columns, -2, 2),
                         .got = matrix(rows * columns),
                         .want = matrix(rows * columns)};
    cpu_softmax(m.a, m.a, rows, inner); /* weights, as attention has them */
    cpu_matmul(m.want, m.a, m.b, rows, inner, columns);
    backend_weighted_matmul(m.got, m.a, m.b, rows, inner, columns);
    RF_ASSERT_FLOATS(m.got, m.want, rows * columns, tolerance, 0);
    release(&m);
}

static void qkt_matmul(uint64_t seed, size_t rows, size_t key_count, size_t dim, double tolerance) {
    struct rf_random random = {seed};
    struct matrices m = {.a = random_matrix(&random, rows * dim, -1, 1),
                         .b = random_matrix(&random, key_count * dim, -1, 1),
                         .got = matrix(rows * key_count),
                         .want = matrix(rows * key_count)};
    cpu_qkt(m.want, m.a, m.b, rows, key_count, dim);
    backend_qkt_matmul(m.got, m.a, m.b, rows, key_count, dim);
    RF_ASSERT_FLOATS(m.got, m.want, rows * key_count, tolerance, 0);
    release(&m);
}

static void flash_nocausal(uint64_t seed, size_t sequence, size_t dim, double tolerance) {
    struct rf_random random = {seed};
    size_t count = sequence * dim;
    struct matrices m = {.a = random_matrix(&random, count, -1, 1),
                         .b = random_matrix(&random, count, -1, 1),
                         .c = random_matrix(&random, count, -1, 1),
                         .got = matrix(count),
                         .want = matrix(count)};
    float *scores = matrix(sequence * sequence);
    cpu_qkt(scores, m.a, m.b, sequence, sequence, dim);
    for (size_t i = 0; i < sequence * sequence; i++) scores[i] /= sqrtf((float)dim);
    cpu_softmax(scores, scores, sequence, sequence);
    cpu_matmul(m.want, scores, m.c, sequence, sequence, dim);
    free(scores);
    backend_flash_nocausal(m.got, m.a, m.b, m.c, sequence, dim);
    RF_ASSERT_FLOATS(m.got, m.want, count, tolerance, 0);
    release(&m);
}

static void softmax(uint64_t seed, size_t rows, size_t columns) {
    struct rf_random random = {seed};
    struct matrices m = {.a = random_matrix(&random, rows * columns, -8, 8),
                         .got = matrix(rows * columns),
                         .want = matrix(rows * columns)};
    cpu_softmax(m.want, m.a, rows, columns);
    backend_softmax(m.got, m.a, rows, columns);
    RF_ASSERT_FLOATS(m.got, m.want, rows * columns, 1e-5, 0);
    release(&m);
}

static void scale(uint64_t seed, size_t count) {
    struct rf_random random = {seed};
    struct matrices m = {.a = random_matrix(&random, count, -8, 8), .got = matrix(count), .want = matrix(count)};
    for (size_t i = 0; i < count; i++) m.want[i] = m.a[i] * 0.25f;
    backend_scale(m.got, m.a, 0.25f, count);
    RF_ASSERT_FLOATS(m.got, m.want, count, 0, 0);
    release(&m);
}

static void causal_mask(size_t sequence) {
    struct matrices m = {.got = matrix(sequence * sequence), .want = matrix(sequence * sequence)};
    for (size_t r = 0; r < sequence; r++)
        for (size_t c = r + 1; c < sequence; c++) m.want[r * sequence + c] = -50;
    backend_causal_mask(m.got, -50, sequence);
    RF_ASSERT_FLOATS(m.got, m.want, sequence * sequence, 0, 0);
    release(&m);
}

static void buffer_copy(uint64_t seed, size_t count, size_t size) {
    struct rf_random random = {seed};
    struct matrices m = {.a = random_matrix(&random, count, -8, 8), .got = matrix(size), .want = matrix(size)};
    memcpy(m.want, m.a, count * sizeof(float));
    backend_copy(m.got, m.a, count, size);
    RF_ASSERT_FLOATS(m.got, m.want, size, 0, 0);
    release(&m);
}

RF_SUITE(attention, .setup = backend_open, .teardown = backend_close);
RF_SUITE(attention_threads, .setup = backend_open, .teardown = backend_close);

/* ---- one at a time ---- */

RF_TEST(attention, qkt_matmul_matches_cpu_small, .gpu = true) {
    qkt_matmul(rf_test_seed(), 4, 4, 4, 1e-4);
}

RF_TEST(attention, softmax_matches_cpu, .gpu = true) {
    softmax(rf_test_seed(), 16, 100);
}

/* Passes, and leaves its mask in the raced backend's scratch. */
RF_TEST(attention, causal_mask_large_sequence, .gpu = true) {
    causal_mask(128);
}

RF_TEST(attention, weighted_matmul_matches_cpu_small, .gpu = true) {
    weighted_matmul(rf_test_seed(), 4, 4, 4, 1e-4);
}

RF_TEST(attention, weighted_matmul_matches_cpu_32x32, .gpu = true) {
    weighted_matmul(rf_test_seed(), 32, 32, 32, 1e-3);
}

RF_TEST(attention, weighted_matmul_non_square_sequences, .gpu = true) {
    weighted_matmul(rf_test_seed(), 4, 12, 20, 1e-3);
}

RF_TEST(attention, flash_nocausal_matches_cpu_32x32, .gpu = true) {
    flash_nocausal(rf_test_seed(), 32, 32, 2e-3);
}

RF_TEST(attention, hip_buffer_copy, .gpu = true) {
    buffer_copy(rf_test_seed(), 100, 300);
}

RF_TEST(attention, scale_in_place, .gpu = true) {
    scale(rf_test_seed(), 1000);
}

/* ---- side by side in one process ---- */

enum { THREADS = 4, ROUNDS = 4 };

static void *everything(void *argument) {
    uint64_t seed = rf_test_seed() + *(const uint64_t *)argument;
    for (int round = 0; round < ROUNDS; round++, seed += THREADS) {
        qkt_matmul(seed, 4, 4, 4, 1e-4);
        softmax(seed, 16, 100);
        causal_mask(24);
        weighted_matmul(seed, 4, 4, 4, 1e-4);
        weighted_matmul(seed, 4, 12, 20, 1e-3);
        flash_nocausal(seed, 8, 8, 2e-3);
        buffer_copy(seed, 100, 300);
        scale(seed, 1000);
    }
    return NULL;
}

RF_TEST(attention_threads, everything_at_once, .gpu = true, .tags = "threads") {
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        RF_ASSERT(pthread_create(&threads[i], NULL, everything, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) RF_ASSERT(pthread_join(threads[i], NULL) == 0);
}
