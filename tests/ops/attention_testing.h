/* What the tests of attention share: tensors of heads on the host and on the device, and the device settings that
 * every case runs with. */
#ifndef ATTENTION_TESTING_H
#define ATTENTION_TESTING_H

#include "../gpu/gpu_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/ref_attention.h"
#include "cpu/reference.h"
#include "ops/gpu_attention.h"

enum layout {
    DENSE,
    SPREAD /* [batch, rows, heads, dim] with gaps, away from the buffer's start; aligned to 16 bytes if dim is */
};

struct heads {
    enum rf_dtype dtype;
    uint64_t batch, heads, rows, dim;
    struct rf_buffer *buffer;
    void *host;     /* a copy of the whole buffer */
    uint64_t skip;  /* elements before the first one */
    uint64_t count; /* elements of the buffer */
    struct rf_operand at;
    struct rf_head_strides strides;
};

static inline void *heads_data(const struct heads *t) {
    return (char *)t->host + t->skip * rf_dtype_bytes(t->dtype);
}

static inline void heads_upload(struct rf_queue *queue, const struct heads *t) {
    RF_ASSERT_OK(rf_copy_to_device_safe(queue, t->buffer, 0, t->host, t->count * rf_dtype_bytes(t->dtype)));
}

/* Fills everything with normal numbers, gaps too. */
static inline struct heads heads_make(struct rf_queue *queue, struct rf_random *random, enum rf_dtype dtype,
                                      enum layout layout, uint64_t batch, uint64_t heads, uint64_t rows,
                                      uint64_t dim) {
    struct heads t = {dtype, batch, heads, rows, dim, .strides = rf_head_strides_dense(heads, rows, dim)};
    uint64_t bytes = rf_dtype_bytes(dtype);
    if (layout == SPREAD) {
        uint64_t row = dim + 8;
        t.skip = 24;
        t.strides = (struct rf_head_strides){rows * heads * row + 16, row, heads * row};
    }
    t.count = t.skip + 8;
    if (batch && heads && rows && dim)
        t.count += (batch - 1) * t.strides.batch + (heads - 1) * t.strides.head + (rows - 1) * t.strides.row + dim;
    t.host = malloc(t.count * bytes);
    for (uint64_t i = 0; i < t.count; i++) rf_element_set(dtype, t.host, i, rf_random_normal(random));
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = t.count * bytes;
    RF_ASSERT_OK(rf_buffer_create_safe(rf_queue_device(queue), &params, &t.buffer));
    t.at = (struct rf_operand){t.buffer, t.skip * bytes};
    heads_upload(queue, &t);
    return t;
}

static inline void heads_drop(struct heads *t) {
    RF_ASSERT_OK(rf_buffer_destroy(&t->buffer));
    free(t->host);
}

/* The launch for q, k, v and out; every query sees all keys. */
static inline struct rf_flash_attention_launch heads_flash(const struct heads *q, const struct heads *k,
                                                           const struct heads *v, const struct heads *out,
                                                           float scale) {
    return (struct rf_flash_attention_launch){.args = {.out = out->strides,
                                                       .q = q->strides,
                                                       .k = k->strides,
                                                       .v = v->strides,
                                                       .batch = q->batch,
                                                       .heads_q = q->heads,
                                                       .heads_kv = k->heads,
                                                       .q_rows = q->rows,
                                                       .k_rows = k->rows,
                                                       .dim = k->dim,
                                                       .offset = (int64_t)k->rows,
                                                       .scale = scale},
                                              .dtype = q->dtype,
                                              .out = out->at,
                                              .q = q->at,
                                              .k = k->at,
                                              .v = v->at};
}
/* The reference writes to the host's copy of out. */
static inline void heads_flash_reference(const struct rf_flash_attention_launch *flash, const struct heads *q,
                                         const struct heads *k, const struct heads *v, const struct heads *out,
                                         const float *mask) {
    rf_ref_flash_attention(flash->dtype, heads_data(out), heads_data(q), heads_data(k), heads_data(v), mask,
                           &flash->args);
}

/* Compares the whole buffer with the host's copy, which holds the reference's results: the bytes between the rows
 * too. */
static inline void heads_compare(struct rf_queue *queue, const struct heads *t, struct rf_compare how) {
    RF_ASSERT_BUFFER(queue, t->buffer, t->dtype, t->host, t->count, how);
}

/* Each test runs four times: with default settings, in guarded and poisoned memory, with waves of 64, and with lanes
 * in any order. */
typedef void (*attention_body)(struct gpu *gpu);
static inline void attention_run(attention_body body, const char *rfsim, bool guarded) {
    static const char *const options[] = {"RF_CHECK=guard,poison", NULL};
    struct gpu gpu = {0};
    if (rfsim) gpu_need_simulated(rfsim);
    gpu_make_runtime(&gpu, guarded ? options : NULL);
    gpu_open(&gpu, NULL);
    body(&gpu);
    gpu_close(&gpu);
}
#define ATTENTION_TEST(suite_, name_, body_)                                                                         \
    RF_TEST(suite_, name_, .gpu = true, .timeout_ms = 1800000) {                                                     \
        attention_run(body_, NULL, false);                                                                           \
    }                                                                                                                \
    RF_TEST(suite_, name_##_guarded, .gpu = true, .timeout_ms = 1800000) {                                           \
        attention_run(body_, NULL, true);                                                                            \
    }                                                                                                                \
    RF_TEST(suite_, name_##_wave64, .timeout_ms = 1800000) {                                                         \
        attention_run(body_, "arch=gfx942", false);                                                                  \
    }                                                                                                                \
    RF_TEST(suite_, name_##_shuffled, .timeout_ms = 1800000) {                                                       \
        attention_run(body_, "arch=gfx1201,shuffle=7,delay=3/50us", false);                                          \
    }

static inline uint64_t attention_pick(struct rf_random *random, const uint64_t *from, size_t count) {
    return from[rf_random_below(random, count)];
}
#define PICK(random, ...)                                                                                            \
    attention_pick(random, (const uint64_t[]){__VA_ARGS__},                                                          \
                   sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

#endif
