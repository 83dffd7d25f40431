/* Every kernel, compiled for the host, against its reference: both wave sizes, aligned and not,
 * shapes that are small, odd, prime, and on either side of each kernel's own limits. */
#include "cpu/reference.h"
#include "host_run.h"
#include "base/sanitizers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/test.h>

/* The lanes' stacks are unknown to TSan; the simulated driver's own tests cover that build. */
#if RF_UNDER_TSAN
#define SKIP_UNDER_TSAN() RF_SKIP("lanes on stacks of their own, under TSan")
#else
#define SKIP_UNDER_TSAN() ((void)0)
#endif

enum { GUARD = 16 }; /* elements on both sides of each output */
static const int waves[] = {32, 64};
static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
static const char *type_name(enum rf_dtype type) {
    return type == RF_F32 ? "f32" : type == RF_F16 ? "f16" : "bf16";
}
static size_t type_bytes(enum rf_dtype type) {
    return type == RF_F32 ? 4 : 2;
}

/* An array at an element offset from a 16-byte boundary, guarded on both sides. */
struct array {
    enum rf_dtype type;
    size_t count, bytes;
    unsigned char *memory;
    void *data;
};
static struct array array_new(enum rf_dtype type, size_t count, size_t offset) {
    struct array a = {.type = type, .count = count, .bytes = type_bytes(type)};
    size_t total = (count + 2 * GUARD + offset) * a.bytes;
    a.memory = aligned_alloc(64, (total + 63) / 64 * 64);
    memset(a.memory, 0xa5, (total + 63) / 64 * 64);
    a.data = a.memory + (GUARD + offset) * a.bytes;
    return a;
}
static void array_check_guards(const struct array *a, const char *what) {
    const unsigned char *first = a->data, *last = first + a->count * a->bytes;
    for (const unsigned char *p = a->memory; p < first; p++)
        if (*p != 0xa5) RF_FAIL("%s wrote %d bytes before its output", what, (int)(first - p));
    for (size_t i = 0; i < GUARD * a->bytes; i++)
        if (last[i] != 0xa5) RF_FAIL("%s wrote past its output by %d bytes", what, (int)i + 1);
}
static void array_random(struct array *a, struct rf_random *random, double scale) {
    for (size_t i = 0; i < a->count; i++)
        rf_element_set(a->type, a->data, i, (rf_random_unit(random) * 2 - 1) * scale);
}
/* tolerance 0: the same bits. */
static void array_compare(const struct array *got, const struct array *want, double tolerance, const char *what) {
    for (size_t i = 0; i < got->count; i++) {
        double g = rf_element_get(got->type, got->data, i), w = rf_element_get(want->type, want->data, i);
        bool good = tolerance == 0 ? memcmp((char *)got->data + i * got->bytes, (char *)want->data + i * got->bytes,
                                            got->bytes) == 0
                                   : (isnan(g) && isnan(w)) || g == w || fabs(g - w) <= tolerance * (1 + fabs(w));
        if (!good) RF_FAIL("%s: element %zu is %.9g, should be %.9g", what, i, g, w);
    }
    array_check_guards(got, what);
}

static void run_1d(const struct rfk_table *table, const char *kernel, uint32_t grid, uint32_t block, void **args,
                   const char *what) {
    struct host_launch launch = {{grid, 1, 1}, {block, 1, 1}, 0, rf_test_seed() | 1};
    const char *problem = host_run(table, host_kernel(table, kernel), &launch, args);
    if (problem) RF_FAIL("%s: %s", what, problem);
}

static const size_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 31, 64, 257, 1024, 4096, 4099, 9001};
#define EACH(i, array) (size_t i = 0; i < sizeof(array) / sizeof((array)[0]); i++)

RF_TEST(host_kernels, fill) {
    SKIP_UNDER_TSAN();
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for
            EACH(n, counts) {
                for (size_t offset = 0; offset < 4; offset++) {
                    uint64_t count = counts[n];
                    struct array got = array_new(RF_F32, count, offset), want = array_new(RF_F32, count, offset);
                    float value = -3.25f;
                    uint32_t bits;
                    memcpy(&bits, &value, sizeof bits);
                    void *args[] = {&got.data, &value, &count};
                    rf_ref_fill(want.data, &(struct rf_elementwise_args){.count = count, .bits = bits});
                    run_1d(table, "fill_f32", 2, 64, args, "fill_f32");
                    array_compare(&got, &want, 0, "fill_f32");
                    bits = 0x7fc12345;
                    args[1] = &bits;
                    rf_ref_fill(want.data, &(struct rf_elementwise_args){.count = count, .bits = bits});
                    run_1d(table, "fill_u32", 3, 256, args, "fill_u32");
                    array_compare(&got, &want, 0, "fill_u32");
                    free(got.memory);
                    free(want.memory);
                }
            }
        }
}

static void check_copy(const struct rfk_table *table, enum rf_dtype from, enum rf_dtype to, uint64_t count,
                       size_t in_offset, size_t out_offset, struct rf_random *random) {
    char kernel[64], what[128];
    snprintf(kernel, sizeof kernel, "copy_%s_%s", type_name(from), type_name(to));
    snprintf(what, sizeof what, "%s of %u, offsets %zu and %zu", kernel, (unsigned)count, in_offset, out_offset);
    struct array in = array_new(from, count, in_offset), got = array_new(to, count, out_offset);
    struct array want = array_new(to, count, out_offset);
    array_random(&in, random, 1000);
    void *args[] = {&got.data, &in.data, &count};
    rf_ref_copy(to, want.data, from, in.data, &(struct rf_elementwise_args){.count = count});
    run_1d(table, kernel, 2, 64, args, what);
    array_compare(&got, &want, 0, what);
    free(in.memory);
    free(got.memory);
    free(want.memory);
}

RF_TEST(host_kernels, copy) {
    SKIP_UNDER_TSAN();
    struct rf_random random = {rf_test_seed() + 1};
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for
            EACH(f, types)
            for
                EACH(t, types)
                for
                    EACH(n, counts)
                for (size_t offset = 0; offset < 4; offset++)
                    check_copy(table, types[f], types[t], counts[n], offset, (offset * n) % 3, &random);
        }
}

/* All values of a 16-bit type widen, and all ties between them narrow, to the reference's bits. */
RF_TEST(host_kernels, conversions_are_exact) {
    SKIP_UNDER_TSAN();
    enum { all = 65536 };
    const struct rfk_table *table = host_library(KERNEL_LIBRARY, 32);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        enum rf_dtype type = bf16 ? RF_BF16 : RF_F16;
        struct array in = array_new(type, all, 0), wide = array_new(RF_F32, 3 * all, 0);
        struct array back = array_new(type, 3 * all, 0), want = array_new(type, 3 * all, 0);
        uint64_t count = all;
        for (uint32_t i = 0; i < all; i++) ((uint16_t *)in.data)[i] = (uint16_t)i;
        void *widen[] = {&wide.data, &in.data, &count};
        run_1d(table, bf16 ? "copy_bf16_f32" : "copy_f16_f32", 4, 256, widen, "widening");
        float *values = wide.data;
        for (uint32_t i = 0; i < all; i++) {
            double expected = rf_element_get(type, in.data, i);
            if (!(values[i] == expected || (isnan(values[i]) && isnan(expected))))
                RF_FAIL("%s %04x widens to %g, should be %g", type_name(type), i, (double)values[i], expected);
        }
        for (uint32_t i = 0; i < all; i++) {
            float next = i + 1 < all ? values[i + 1] : values[i], middle = values[i] + (next - values[i]) / 2;
            values[all + i] = middle;
            values[2 * all + i] = nextafterf(middle, i % 2 ? INFINITY : -INFINITY);
        }
        count = 3 * all;
        void *narrow[] = {&back.data, &wide.data, &count};
        rf_ref_copy(type, want.data, RF_F32, wide.data, &(struct rf_elementwise_args){.count = count});
        run_1d(table, bf16 ? "copy_f32_bf16" : "copy_f32_f16", 4, 256, narrow, "narrowing");
        array_compare(&back, &want, 0, "narrowing");
        free(in.memory);
        free(wide.memory);
        free(back.memory);
        free(want.memory);
    }
}

RF_TEST(host_kernels, copy_2d) {
    SKIP_UNDER_TSAN();
    static const struct {
        uint64_t rows, columns, pad;
    } shapes[] = {{1, 1, 0}, {3, 5, 2}, {17, 33, 1}, {8, 64, 0}, {5, 130, 6}};
    struct rf_random random = {rf_test_seed() + 2};
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for EACH(f, types) for EACH(t, types) for EACH(s, shapes) for (int transposed = 0; transposed < 2; transposed++) {
                uint64_t rows = shapes[s].rows, columns = shapes[s].columns, width = columns + shapes[s].pad;
                char kernel[64];
                snprintf(kernel, sizeof kernel, "copy_2d_%s_%s", type_name(types[f]), type_name(types[t]));
                struct array in = array_new(types[f], rows * width, 0), got = array_new(types[t], rows * width, 0);
                struct array want = array_new(types[t], rows * width, 0);
                array_random(&in, &random, 10);
                struct rf_copy_2d_args copy = {.rows = rows,
                                               .columns = columns,
                                               .out_row = transposed ? 1 : width,
                                               .out_column = transposed ? rows : 1,
                                               .in_row = width,
                                               .in_column = 1};
                void *args[] = {&got.data, &in.data, &copy};
                struct host_launch launch = {{2, 3, 1}, {32, 4, 1}, 0, rf_test_seed() | 1};
                rf_ref_copy_2d(types[t], want.data, types[f], in.data, &copy);
                const char *problem = host_run(table, host_kernel(table, kernel), &launch, args);
                if (problem) RF_FAIL("%s: %s", kernel, problem);
                array_compare(&got, &want, 0, kernel);
                free(in.memory);
                free(got.memory);
                free(want.memory);
            }
        }
}

RF_TEST(host_kernels, add_and_scale) {
    SKIP_UNDER_TSAN();
    struct rf_random random = {rf_test_seed() + 3};
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for EACH(t, types) for EACH(n, counts) for (size_t offset = 0; offset < 3; offset++) {
                uint64_t count = counts[n];
                char add[32], scale[32];
                snprintf(add, sizeof add, "add_%s", type_name(types[t]));
                snprintf(scale, sizeof scale, "scale_%s", type_name(types[t]));
                struct array a = array_new(types[t], count, offset), b = array_new(types[t], count, (offset * n) % 2);
                struct array got = array_new(types[t], count, offset), want = array_new(types[t], count, offset);
                array_random(&a, &random, 5);
                array_random(&b, &random, 5);
                void *add_args[] = {&got.data, &a.data, &b.data, &count};
                struct rf_elementwise_args elementwise = {.count = count, .factor = 0.7f};
                rf_ref_add(types[t], want.data, a.data, b.data, &elementwise);
                run_1d(table, add, 2, 128, add_args, add);
                array_compare(&got, &want, 0, add);
                void *scale_args[] = {&a.data, &a.data, &elementwise.factor, &count}; /* in place */
                rf_ref_scale(types[t], want.data, a.data, &elementwise);
                run_1d(table, scale, 3, 64, scale_args, scale);
                array_compare(&a, &want, 0, scale);
                free(a.memory);
                free(b.memory);
                free(got.memory);
                free(want.memory);
            }
        }
}

/* Around a wave's 512 or 1024, a block's limits, and beyond. */
static const struct {
    size_t rows, columns;
    uint32_t grid, block;
} row_shapes[] = {
    {5, 1, 2, 64},     {9, 2, 1, 128},     {7, 31, 2, 128},   {4, 64, 4, 64},    {3, 509, 1, 128},
    {3, 512, 2, 256},  {3, 513, 3, 64},    {2, 1024, 2, 64},  {2, 1025, 2, 128}, {2, 1028, 1, 128},
    {3, 2048, 2, 128}, {3, 2049, 1, 128},  {2, 4096, 2, 256}, {2, 5003, 2, 256}, {5, 3000, 2, 1024},
    {1, 20011, 1, 64}, {2, 20000, 1, 192}, {2, 2560, 2, 128}, {3, 4104, 1, 64},  {2, 8192, 1, 256},
};

RF_TEST(host_kernels, softmax, .timeout_ms = 1200000) {
    SKIP_UNDER_TSAN();
    struct rf_random random = {rf_test_seed() + 4};
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for
            EACH(s, row_shapes) for (size_t offset = 0; offset < 2; offset++) {
                uint64_t rows = row_shapes[s].rows, columns = row_shapes[s].columns;
                struct array in = array_new(RF_F32, rows * columns, offset),
                             got = array_new(RF_F32, rows * columns, offset);
                struct array want = array_new(RF_F32, rows * columns, offset);
                array_random(&in, &random, 20);
                float *x = in.data;
                for (size_t c = 0; rows > 2 && c < columns; c++) x[columns + c] = -INFINITY; /* masked wholly */
                for (size_t c = columns / 2; rows > 3 && c < columns; c++) x[2 * columns + c] = -INFINITY;
                if (rows > 3) x[3 * columns + columns / 2] = NAN;
                if (rows > 4) x[4 * columns] = INFINITY;
                if (columns > 2) x[columns - 1] = 3e38f, x[columns - 2] = -3e38f;
                void *args[] = {&got.data, &in.data, &rows, &columns};
                char what[64];
                snprintf(what, sizeof what, "softmax_f32 %ux%u wave %d", (unsigned)rows, (unsigned)columns, waves[w]);
                rf_ref_softmax(want.data, in.data, &(struct rf_softmax_args){.rows = rows, .columns = columns});
                run_1d(table, "softmax_f32", row_shapes[s].grid, row_shapes[s].block, args, what);
                array_compare(&got, &want, 2e-6, what);
                void *in_place[] = {&in.data, &in.data, &rows, &columns};
                run_1d(table, "softmax_f32", row_shapes[s].grid, row_shapes[s].block, in_place, what);
                array_compare(&in, &want, 2e-6, what);
                free(in.memory);
                free(got.memory);
                free(want.memory);
            }
        }
}

RF_TEST(host_kernels, rms_norm, .timeout_ms = 1200000) {
    SKIP_UNDER_TSAN();
    struct rf_random random = {rf_test_seed() + 5};
    for
        EACH(w, waves) {
            const struct rfk_table *table = host_library(KERNEL_LIBRARY, waves[w]);
        for EACH(t, types) for EACH(s, row_shapes) for (size_t offset = 0; offset < 2; offset++) {
                uint64_t rows = row_shapes[s].rows, columns = row_shapes[s].columns;
                struct array in = array_new(types[t], rows * columns, offset);
                struct array got = array_new(types[t], rows * columns, offset);
                struct array want = array_new(types[t], rows * columns, offset),
                             weight = array_new(RF_F32, columns, 0);
                array_random(&in, &random, 3);
                array_random(&weight, &random, 2);
                struct rf_norm_args norm = {.rows = rows, .columns = columns, .eps = 1e-5f};
                void *none = NULL;
                bool weighted = s % 3 != 0;
                void *args[] = {&got.data, &in.data, weighted ? &weight.data : &none, &norm};
                char kernel[32], what[64];
                snprintf(kernel, sizeof kernel, "rms_norm_%s", type_name(types[t]));
                snprintf(what, sizeof what, "%s %ux%u wave %d", kernel, (unsigned)rows, (unsigned)columns, waves[w]);
                rf_ref_rms_norm(types[t], want.data, in.data, weighted ? weight.data : NULL, &norm);
                run_1d(table, kernel, row_shapes[s].grid, row_shapes[s].block, args, what);
                array_compare(&got, &want, types[t] == RF_F32 ? 2e-6 : types[t] == RF_F16 ? 1e-3 : 8e-3, what);
                free(in.memory);
                free(got.memory);
                free(want.memory);
                free(weight.memory);
            }
        }
}

/* The runner itself must notice what it is there for. */
RF_TEST(host_kernels, missing_barrier_is_seen) {
    SKIP_UNDER_TSAN();
    const struct rfk_table *table = host_library(TEST_KERNEL_LIBRARY, 32);
    uint32_t out[128], with_barrier = 1, wrong = 0;
    void *data = out, *args[] = {&data, &with_barrier};
    run_1d(table, "missing_barrier", 1, 128, args, "with a barrier");
    for (uint32_t i = 0; i < 128; i++) RF_ASSERT_INT(out[i], (i + 1) % 128);
    with_barrier = 0;
    run_1d(table, "missing_barrier", 1, 128, args, "without");
    for (uint32_t i = 0; i < 128; i++) wrong += out[i] != (i + 1) % 128;
    RF_ASSERT(wrong > 0);
}
