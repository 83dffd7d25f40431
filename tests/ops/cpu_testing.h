/* What the tests of the fast CPU ops share: every SIMD level of this machine with several numbers of threads, and
 * arrays at odd addresses between guard bytes. */
#ifndef RF_TESTS_OPS_CPU_TESTING_H
#define RF_TESTS_OPS_CPU_TESTING_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/test.h>

#include "base/base.h"
#include "cpu/fast.h"
#include "cpu/quant.h"
#include "cpu/reference.h"

static const unsigned thread_counts[] = {1, 2, 3, 7};

/* Runs the body for each level and number of threads, with the variables cpu and first (it is the first number of
 * threads of a level). */
#define EACH_CPU(cpu)                                                                                                \
    for (int level_ = RF_SIMD_SCALAR; level_ < RF_SIMD_LEVELS; level_++)                                             \
        for (size_t t_ = 0; rf_simd_table((enum rf_simd_level)level_) && t_ < RF_COUNT(thread_counts); t_++)         \
            for (struct rf_cpu *cpu = open_cpu((enum rf_simd_level)level_, thread_counts[t_]); cpu;                  \
                 rf_cpu_destroy(&cpu))

static inline struct rf_cpu *open_cpu(enum rf_simd_level level, unsigned threads) {
    struct rf_cpu *cpu = NULL;
    RF_ASSERT_OK(rf_cpu_create(&(struct rf_cpu_params){.threads = threads, .level = level}, &cpu));
    return cpu;
}

/* An array `skew` bytes past an aligned address, poisoned, with guard bytes on both sides. */
enum { GUARD = 96, GUARD_BYTE = 0xa5 };
struct array {
    unsigned char *memory;
    size_t bytes, skew;
    void *at;
};
static inline struct array array_new(size_t bytes, size_t skew) {
    struct array array = {malloc(bytes + 2 * GUARD + skew + 64), bytes, skew, NULL};
    RF_ASSERT(array.memory != NULL);
    uintptr_t start = ((uintptr_t)array.memory + GUARD + 63) / 64 * 64 + skew;
    array.at = (void *)start;
    memset(array.memory, GUARD_BYTE, bytes + 2 * GUARD + skew + 64);
    memset(array.at, 0xff, bytes); /* NaN in every float type */
    return array;
}
static inline void array_check(const struct array *array) {
    const unsigned char *begin = (const unsigned char *)array->at, *end = begin + array->bytes;
    for (const unsigned char *p = array->memory; p < begin; p++) RF_ASSERT(*p == GUARD_BYTE);
    for (const unsigned char *p = end; p < array->memory + array->bytes + 2 * GUARD + array->skew + 64; p++)
        RF_ASSERT(*p == GUARD_BYTE);
}
static inline void array_free(struct array *array) {
    array_check(array);
    free(array->memory);
}

static inline size_t float_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}
/* Random floats of a type; with specials, about every 16th is a special value. */
static inline struct array array_random(struct rf_random *random, enum rf_dtype dtype, size_t count, size_t skew,
                                        float deviation, unsigned specials) {
    struct array array = array_new(count * float_bytes(dtype), skew * float_bytes(dtype));
    float *values = malloc((count + 1) * sizeof *values);
    RF_ASSERT(values != NULL);
    rf_random_normals(random, values, count, 0, deviation);
    if (specials && count) rf_random_specials(random, values, count, specials, 16);
    for (size_t i = 0; i < count; i++) rf_element_set(dtype, array.at, i, (double)values[i]);
    free(values);
    return array;
}
static inline struct array array_like(const struct array *array) {
    return array_new(array->bytes, array->skew);
}

/* Rows of a block-quantized (or float) weight type, made from random floats. */
static inline struct array array_weights(struct rf_random *random, enum rf_dtype dtype, size_t rows, size_t k,
                                         size_t skew) {
    size_t row_bytes = k / rf_dtype_block(dtype) * rf_dtype_block_bytes(dtype);
    struct array array = array_new(rows * row_bytes, skew);
    float *values = malloc((k + 1) * sizeof *values);
    RF_ASSERT(values != NULL);
    for (size_t r = 0; r < rows; r++) {
        rf_random_normals(random, values, k, 0.1f, 1);
        rf_quantize_row(dtype, values, (char *)array.at + r * row_bytes, k);
    }
    free(values);
    return array;
}

#endif
