/* The backend of raced_backend.c as it should be: nothing is shared but the device.
 *
 * The device may be used from any thread. Everything else, queue and buffers, belongs to one call
 * and goes back before it returns; memory that must be zero is asked for as zero. The device
 * layer's pool makes that as cheap as keeping scratch around, and its ledger sees a leak. */
#include "backend.h"

#include <math.h>
#include <stdlib.h>

/* Nothing is kept between calls. */
void backend_open(void) {}
void backend_close(void) {}

static struct rf_queue *new_queue(void) {
    struct rf_queue *queue = NULL;
    RF_ASSERT_OK(rf_queue_create(rf_fixture_device(), NULL, &queue));
    return queue;
}

static struct rf_buffer *new_buffer(struct rf_queue *queue, size_t count, bool zeroed) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = count * sizeof(float);
    params.zeroed = zeroed;
    params.queue = queue;
    RF_ASSERT_OK(rf_buffer_create_safe(rf_queue_device(queue), &params, &buffer));
    return buffer;
}

static void launch(struct rf_queue *queue, const char *name, size_t threads, const struct rf_arg *args,
                   size_t count) {
    RF_PARAMS(struct rf_launch, params);
    RF_ASSERT_OK(rf_kernel_find(rf_queue_device(queue), name, &params.kernel));
    params.block[0] = 64;
    params.grid[0] = (uint32_t)((threads + 63) / 64);
    params.args = args;
    params.arg_count = count;
    RF_ASSERT_OK(rf_queue_launch(queue, &params));
}
#define LAUNCH(queue, name, threads, ...)                                                                            \
    launch((queue), (name), (threads), (const struct rf_arg[]){__VA_ARGS__},                                         \
           sizeof((const struct rf_arg[]){__VA_ARGS__}) / sizeof(struct rf_arg))

static void upload(struct rf_queue *queue, struct rf_buffer *to, const float *from, size_t count) {
    RF_ASSERT_OK(rf_copy_to_device_safe(queue, to, 0, from, count * sizeof(float)));
}

/* Downloads the result, then destroys the buffer and the queue. */
static void finish(struct rf_queue *queue, float *to, struct rf_buffer *from, size_t count) {
    RF_ASSERT_OK(rf_copy_from_device_safe(queue, to, from, 0, count * sizeof(float)));
    RF_ASSERT_OK(rf_buffer_destroy(&from));
    RF_ASSERT_OK(rf_queue_destroy(&queue));
}

/* Makes a new buffer that holds the product. */
static struct rf_buffer *product(struct rf_queue *queue, const float *weights, const float *values, size_t rows,
                                 size_t inner, size_t columns) {
    struct rf_buffer *out = new_buffer(queue, rows * columns, true), *term = new_buffer(queue, columns, false);
    struct rf_buffer *on_device = new_buffer(queue, inner * columns, false);
    uint64_t row_bytes = columns * sizeof(float);
    upload(queue, on_device, values, inner * columns);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < inner; i++) {
            LAUNCH(queue, "scale_f32", columns, rf_arg_buffer(term), rf_arg_buffer_at(on_device, i * row_bytes),
                   rf_arg_f32(weights[r * inner + i]), rf_arg_i64((int64_t)columns));
            LAUNCH(queue, "add_f32", columns, rf_arg_buffer_at(out, r * row_bytes),
                   rf_arg_buffer_at(out, r * row_bytes), rf_arg_buffer(term), rf_arg_i64((int64_t)columns));
        }
    RF_ASSERT_OK(rf_buffer_destroy(&on_device));
    RF_ASSERT_OK(rf_buffer_destroy(&term));
    return out;
}

void backend_weighted_matmul(float *out, const float *weights, const float *values, size_t rows, size_t inner,
                             size_t columns) {
    struct rf_queue *queue = new_queue();
    finish(queue, out, product(queue, weights, values, rows, inner, columns), rows * columns);
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
    float *turned = transposed(keys, key_count, dim);
    backend_weighted_matmul(out, queries, turned, rows, dim, key_count);
    free(turned);
}

void backend_flash_nocausal(float *out, const float *queries, const float *keys, const float *values, size_t sequence,
                            size_t dim) {
    struct rf_queue *queue = new_queue();
    size_t count = sequence * sequence;
    float *turned = transposed(keys, sequence, dim), *weights = malloc(count * sizeof *weights);
    RF_ASSERT(weights != NULL);
    struct rf_buffer *scores = product(queue, queries, turned, sequence, dim, sequence);
    LAUNCH(queue, "scale_f32", count, rf_arg_buffer(scores), rf_arg_buffer(scores), rf_arg_f32(1 / sqrtf((float)dim)),
           rf_arg_i64((int64_t)count));
    LAUNCH(queue, "softmax_f32", count, rf_arg_buffer(scores), rf_arg_buffer(scores), rf_arg_i64((int64_t)sequence),
           rf_arg_i64((int64_t)sequence));
    finish(queue, weights, scores, count);
    backend_weighted_matmul(out, weights, values, sequence, sequence, dim);
    free(turned);
    free(weights);
}

void backend_softmax(float *out, const float *in, size_t rows, size_t columns) {
    struct rf_queue *queue = new_queue();
    struct rf_buffer *values = new_buffer(queue, rows * columns, false);
    upload(queue, values, in, rows * columns);
    LAUNCH(queue, "softmax_f32", rows * 64, rf_arg_buffer(values), rf_arg_buffer(values), rf_arg_i64((int64_t)rows),
           rf_arg_i64((int64_t)columns));
    finish(queue, out, values, rows * columns);
}

void backend_scale(float *out, const float *in, float factor, size_t count) {
    struct rf_queue *queue = new_queue();
    struct rf_buffer *values = new_buffer(queue, count, false);
    upload(queue, values, in, count);
    LAUNCH(queue, "scale_f32", count, rf_arg_buffer(values), rf_arg_buffer(values), rf_arg_f32(factor),
           rf_arg_i64((int64_t)count));
    finish(queue, out, values, count);
}

void backend_causal_mask(float *out, float masked, size_t sequence) {
    struct rf_queue *queue = new_queue();
    struct rf_buffer *mask = new_buffer(queue, sequence * sequence, true);
    for (size_t r = 0; r + 1 < sequence; r++)
        LAUNCH(queue, "fill_f32", sequence - r - 1, rf_arg_buffer_at(mask, (r * sequence + r + 1) * sizeof(float)),
               rf_arg_f32(masked), rf_arg_i64((int64_t)(sequence - r - 1)));
    finish(queue, out, mask, sequence * sequence);
}

void backend_copy(float *out, const float *in, size_t count, size_t size) {
    struct rf_queue *queue = new_queue();
    struct rf_buffer *buffer = new_buffer(queue, size, true);
    upload(queue, buffer, in, count);
    finish(queue, out, buffer, size);
}
