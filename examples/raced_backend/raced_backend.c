/* WHAT NOT TO DO: a GPU backend behind a global cache.
 *
 * This file is wrong on purpose. It repeats, in C, a failure that cost a real project weeks: a suite of 220 tests in
 * which each passed alone and six failed together, with differences of up to 24,800 times their tolerance. The
 * kernels were right. The backend below has the same faults:
 *
 *   1. One cache for the whole process. Its mutex protects the pointer; the objects behind the
 *      pointer (queue, scratch buffers) are handed out and then used by everybody at once. Each
 *      driver call is locked, a sequence of calls is not.
 *   2. Scratch buffers are kept "for speed" and come back with the contents that the last user left.
 *      The code relies on fresh memory being zero, which is true only once.
 *
 * (2) makes a test depend on the tests before it in the same process; (1) makes it depend on the tests that run
 * beside it. Compare safe_backend.c, which is shorter. */
#include "backend.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

struct cache {
    struct rf_device *device;
    struct rf_queue *queue; /* shared by everybody */
    struct rf_buffer *values, *term, *scores, *output;
};
enum { SCRATCH_COUNT = 128 * 128 }; /* floats in each buffer: enough for every test */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cache *shared;

/* Fault 1: the lock ends where the trouble begins. */
static struct cache *get_cache(void) {
    pthread_mutex_lock(&mutex);
    struct cache *cache = shared;
    pthread_mutex_unlock(&mutex);
    RF_ASSERT_NOT_NULL(cache);
    return cache;
}

/* Fault 2: the buffer is zeroed here and never again. */
static struct rf_buffer *new_scratch(struct rf_device *device) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = SCRATCH_COUNT * sizeof(float);
    params.zeroed = true;
    params.label = "scratch";
    RF_ASSERT_OK(rf_buffer_create_safe(device, &params, &buffer));
    return buffer;
}

void backend_open(void) {
    static struct cache cache;
    if (shared) return;
    cache.device = rf_fixture_device();
    RF_ASSERT_OK(rf_queue_create(cache.device, NULL, &cache.queue));
    cache.values = new_scratch(cache.device);
    cache.term = new_scratch(cache.device);
    cache.scores = new_scratch(cache.device);
    cache.output = new_scratch(cache.device);
    shared = &cache;
}

void backend_close(void) {
    if (!shared) return;
    RF_EXPECT_OK(rf_buffer_destroy(&shared->values));
    RF_EXPECT_OK(rf_buffer_destroy(&shared->term));
    RF_EXPECT_OK(rf_buffer_destroy(&shared->scores));
    RF_EXPECT_OK(rf_buffer_destroy(&shared->output));
    RF_EXPECT_OK(rf_queue_destroy(&shared->queue));
    shared = NULL;
}

static void launch(struct cache *cache, const char *name, uint32_t threads, const struct rf_arg *args, size_t count) {
    const struct rf_kernel *kernel = NULL;
    RF_PARAMS(struct rf_launch, params);
    params.block[0] = 64;
    params.grid[0] = (threads + 63) / 64;
    params.args = args;
    params.arg_count = count;
    pthread_mutex_lock(&mutex);
    rf_status status = rf_kernel_find(cache->device, name, &kernel);
    params.kernel = kernel;
    if (status == RF_OK) status = rf_queue_launch(cache->queue, &params);
    pthread_mutex_unlock(&mutex);
    RF_ASSERT_OK(status);
}
#define LAUNCH(cache, name, threads, ...)                                                                            \
    launch((cache), (name), (uint32_t)(threads), (const struct rf_arg[]){__VA_ARGS__},                               \
           sizeof((const struct rf_arg[]){__VA_ARGS__}) / sizeof(struct rf_arg))

static void upload(struct cache *cache, struct rf_buffer *to, const float *from, size_t count) {
    pthread_mutex_lock(&mutex);
    rf_status status = rf_copy_to_device_safe(cache->queue, to, 0, from, count * sizeof(float));
    pthread_mutex_unlock(&mutex);
    RF_ASSERT_OK(status);
}

static void download(struct cache *cache, float *to, struct rf_buffer *from, size_t count) {
    pthread_mutex_lock(&mutex);
    rf_status status = rf_copy_from_device_safe(cache->queue, to, from, 0, count * sizeof(float));
    pthread_mutex_unlock(&mutex);
    RF_ASSERT_OK(status);
}

/* Sums weights[r][i] * values[i] into out[r], which is taken to be zero. */
static void accumulate(struct cache *cache, struct rf_buffer *out, const float *weights, const float *values,
                       size_t rows, size_t inner, size_t columns) {
    struct rf_buffer *on_device = cache->values;
    struct rf_buffer *term = cache->term;
    uint64_t row_bytes = columns * sizeof(float);
    upload(cache, on_device, values, inner * columns);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < inner; i++) {
            /* Between these two launches any other thread may write into 'term'. */
            LAUNCH(cache, "scale_f32", columns, rf_arg_buffer(term), rf_arg_buffer_at(on_device, i * row_bytes),
                   rf_arg_f32(weights[r * inner + i]), rf_arg_i64((int64_t)columns));
            LAUNCH(cache, "add_f32", columns, rf_arg_buffer_at(out, r * row_bytes),
                   rf_arg_buffer_at(out, r * row_bytes), rf_arg_buffer(term), rf_arg_i64((int64_t)columns));
        }
}

void backend_weighted_matmul(float *out, const float *weights, const float *values, size_t rows, size_t inner,
                             size_t columns) {
    struct cache *cache = get_cache();
    struct rf_buffer *output = cache->output;
    accumulate(cache, output, weights, values, rows, inner, columns);
    download(cache, out, output, rows * columns);
}

static float *transposed(const float *in, size_t rows, size_t columns) {
    float *out = malloc(rows * columns * sizeof *out);
    RF_ASSERT(out != NULL);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) out[c * rows + r] = in[r * columns + c];
    return out;
}

void backend_qkt_matmul(float *out, const float *queries, const float *keys, size_t rows, size_t key_count,
                        size_t dim) {
    struct cache *cache = get_cache();
    struct rf_buffer *scores = cache->scores;
    float *turned = transposed(keys, key_count, dim);
    accumulate(cache, scores, queries, turned, rows, dim, key_count);
    free(turned);
    download(cache, out, scores, rows * key_count);
}

void backend_flash_nocausal(float *out, const float *queries, const float *keys, const float *values, size_t sequence,
                            size_t dim) {
    struct cache *cache = get_cache();
    size_t count = sequence * sequence;
    float *weights = malloc(count * sizeof *weights);
    RF_ASSERT(weights != NULL);
    backend_qkt_matmul(weights, queries, keys, sequence, sequence, dim);
    struct rf_buffer *scores = cache->scores;
    LAUNCH(cache, "scale_f32", count, rf_arg_buffer(scores), rf_arg_buffer(scores), rf_arg_f32(1 / sqrtf((float)dim)),
           rf_arg_i64((int64_t)count));
    LAUNCH(cache, "softmax_f32", count, rf_arg_buffer(scores), rf_arg_buffer(scores), rf_arg_i64((int64_t)sequence),
           rf_arg_i64((int64_t)sequence));
    download(cache, weights, scores, count);
    backend_weighted_matmul(out, weights, values, sequence, sequence, dim);
    free(weights);
}

void backend_softmax(float *out, const float *in, size_t rows, size_t columns) {
    struct cache *cache = get_cache();
    struct rf_buffer *values = cache->values;
    upload(cache, values, in, rows * columns);
    LAUNCH(cache, "softmax_f32", rows * 64, rf_arg_buffer(values), rf_arg_buffer(values), rf_arg_i64((int64_t)rows),
           rf_arg_i64((int64_t)columns));
    download(cache, out, values, rows * columns);
}

void backend_scale(float *out, const float *in, float factor, size_t count) {
    struct cache *cache = get_cache();
    struct rf_buffer *values = cache->values;
    upload(cache, values, in, count);
    LAUNCH(cache, "scale_f32", count, rf_arg_buffer(values), rf_arg_buffer(values), rf_arg_f32(factor),
           rf_arg_i64((int64_t)count));
    download(cache, out, values, count);
}

void backend_causal_mask(float *out, float masked, size_t sequence) {
    struct cache *cache = get_cache();
    struct rf_buffer *output = cache->output;
    for (size_t r = 0; r + 1 < sequence; r++)
        LAUNCH(cache, "fill_f32", sequence - r - 1, rf_arg_buffer_at(output, (r * sequence + r + 1) * sizeof(float)),
               rf_arg_f32(masked), rf_arg_i64((int64_t)(sequence - r - 1)));
    download(cache, out, output, sequence * sequence);
}

void backend_copy(float *out, const float *in, size_t count, size_t size) {
    struct cache *cache = get_cache();
    struct rf_buffer *output = cache->output;
    upload(cache, output, in, count);
    download(cache, out, output, size);
}
