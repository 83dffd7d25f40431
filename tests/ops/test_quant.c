/* The quantized types: blocks written by hand against results computed by hand, round trips, odd input, and the
 * kernels that decode and encode them compared with the references. */
#include "../gpu/gpu_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/quant.h"
#include "cpu/ref_matmul.h"
#include "cpu/reference.h"
#include "ops/gpu_matmul.h"

static const enum rf_dtype quantized[] = {RF_Q4_0, RF_Q4_1, RF_Q5_0, RF_Q5_1, RF_Q8_0,   RF_Q2_K,
                                          RF_Q3_K, RF_Q4_K, RF_Q5_K, RF_Q6_K, RF_IQ4_NL, RF_IQ4_XS};
#define QUANTIZED (sizeof quantized / sizeof *quantized)

/* ---- layouts: bytes written by hand, elements computed from the format's description ---- */

#define F16_HALF 0x00, 0x38 /* 0.5 */
#define F16_ONE 0x00, 0x3c
#define F16_TWO 0x00, 0x40
#define F16_MINUS_THREE 0x00, 0xc2

/* Sets bytes of a zeroed block; the others stay 0. */
struct put {
    int at;
    uint8_t value;
};
struct want {
    int element;
    float value;
};
struct layout {
    enum rf_dtype dtype;
    struct put puts[12];
    struct want wants[10];
    float rest; /* the value of every element that is not listed */
};

static const struct layout layouts[] = {
    /* scale 0.5; byte 3 of the quants: 0xf1 */
    {RF_Q4_0, {{1, 0x38}, {5, 0xf1}}, {{3, -3.5f}, {19, 3.5f}}, -4},
    /* scale 2, minimum -3 */
    {RF_Q4_1, {{1, 0x40}, {3, 0xc2}, {19, 0x5c}}, {{15, 21}, {31, 7}}, -3},
    /* scale 1; the fifth bits of elements 2 and 17 */
    {RF_Q5_0, {{1, 0x3c}, {2, 0x04}, {4, 0x02}, {7, 0x30}}, {{2, 0}, {17, 3}}, -16},
    /* scale 0.5, minimum -3; the fifth bit of element 31 */
    {RF_Q5_1, {{1, 0x38}, {3, 0xc2}, {7, 0x80}, {23, 0x2f}}, {{15, 4.5f}, {31, 6}}, -3},
    {RF_Q8_0, {{1, 0x40}, {2, 0x7f}, {33, 0x80}}, {{0, 254}, {31, -256}}, 0},
    {RF_IQ4_NL, {{1, 0x3c}, {2, 0x08}, {17, 0xf7}}, {{0, 1}, {15, -10}, {31, 113}}, -127},
    /* scales[0] 0x23: scale 3, minimum 2; scales[9] 0x0f, that of elements 144 to 159; scale 1, minimum 0.5 */
    {RF_Q2_K,
     {{0, 0x23}, {9, 0x0f}, {16, 0x03}, {16 + 32 + 20, 0x02}, {16 + 5, 0x02}, {81, 0x3c}, {83, 0x38}},
     {{0, 8}, {1, -1}, {2, -1}, {3, -1}, {4, -1}, {5, 5}, {148, 30}},
     NAN},
    /* All high bits unset: q - 4. Scale 9 of 16 (elements 144 to 159): low four bits 0x5 in the high half of
     * byte 1, high two 0x3 in bits 4 and 5 of byte 9: 53 - 32 = 21. Scale 0: 1 - 32. Element 148, h 1, p 0, l 20:
     * bits 0 of quants[52], high bit 4 of high[20]. */
    {RF_Q3_K,
     {{20, 0x10}, {32 + 52, 0x01}, {96, 0x01}, {97, 0x50}, {105, 0x30}, {109, 0x3c}},
     {{0, 124}, {144, -84}, {148, 21}},
     NAN},
    /* j 0: scale 1, minimum 2; j 5: scale 0x2a (low 0xa in byte 9, high 2 on byte 1), minimum 0x13 (low 3, high 1 on
     * byte 5). Element 170, chunk 2, l 10, high half: quants[74]. */
    {RF_Q4_K,
     {{1, 0x3c},
      {3, 0x38},
      {4, 0x01},
      {8, 0x02},
      {4 + 9, 0x3a},
      {4 + 1, 0x80},
      {4 + 5, 0x40},
      {16 + 7, 0x09},
      {16 + 74, 0x20}},
     {{0, -1}, {7, 8}, {170, 2 * 42 - 9.5f}, {160, -9.5f}},
     NAN},
    /* As above with the fifth bits: of element 7 bit 0 of high[7], of element 170 bit 5 of high[10]. */
    {RF_Q5_K,
     {{1, 0x3c},
      {3, 0x38},
      {4, 0x01},
      {8, 0x02},
      {4 + 9, 0x3a},
      {4 + 1, 0x80},
      {4 + 5, 0x40},
      {48 + 7, 0x09},
      {48 + 74, 0x20},
      {16 + 7, 0x01},
      {16 + 10, 0x20}},
     {{0, -1}, {7, 24}, {170, 18 * 42 - 9.5f}, {160, -9.5f}},
     NAN},
    /* Scales[12] (elements 192 to 207) -3; element 200, h 1, p 2, l 8: high half of low[72], bits 4 of high[40]. */
    {RF_Q6_K,
     {{72, 0x50}, {128 + 40, 0x20}, {192 + 12, 0xfd}, {192, 2}, {209, 0x38}},
     {{0, -32}, {15, -32}, {192, 48}, {200, -7.5f}},
     NAN},
    /* j 3: low nibble 0x4 in the high half of scales_low[1], high two 0x2 in bits 6: 36 - 32 = 4. Element 115, l 19:
     * the high half of quants[51]. j 0: 0 - 32. */
    {RF_IQ4_XS,
     {{1, 0x38}, {2, 0x80}, {5, 0x40}, {8 + 51, 0xf0}},
     {{0, 16 * 127}, {115, 226}, {99, -254}, {96, -254}},
     NAN},
};

RF_TEST(quant, blocks_made_by_hand) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct layout *layout = &layouts[i];
        size_t count = rf_dtype_block(layout->dtype);
        uint8_t block[256] = {0};
        float got[256];
        for (size_t k = 0; k < 12; k++) block[layout->puts[k].at] |= layout->puts[k].value;
        rf_dequantize_row(layout->dtype, block, got, count);
        bool named[256] = {false};
        for (size_t k = 0; k < 10; k++) {
            const struct want *want = &layout->wants[k];
            if (k && !want->element && want->value == 0) continue;
            named[want->element] = true;
            if (got[want->element] != want->value)
                RF_NOTE("%s element %d is %g", rf_dtype_name(layout->dtype), want->element,
                        (double)got[want->element]);
            RF_EXPECT(got[want->element] == want->value);
        }
        for (size_t k = 0; k < count && !isnan(layout->rest); k++)
            if (!named[k]) RF_EXPECT(got[k] == layout->rest);
    }
}

/* ---- round trips ---- */

/* The squared error relative to the squares of normal numbers. */
static double largest_error(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_Q8_0: return 4e-5;
    case RF_Q6_K: return 5e-4;
    case RF_Q5_0:
    case RF_Q5_1:
    case RF_Q5_K: return 2.5e-3;
    case RF_Q3_K: return 0.03;
    case RF_Q2_K: return 0.1;
    default: return 0.01;
    }
}
static double error_of(enum rf_dtype dtype, const float *in, size_t count) {
    uint8_t *blocks = malloc(count / rf_dtype_block(dtype) * rf_dtype_block_bytes(dtype));
    float *back = malloc(count * sizeof *back);
    double error = 0, all = 0;
    rf_quantize_row(dtype, in, blocks, count);
    rf_dequantize_row(dtype, blocks, back, count);
    for (size_t i = 0; i < count; i++) {
        error += ((double)back[i] - in[i]) * ((double)back[i] - in[i]);
        all += (double)in[i] * in[i];
    }
    free(blocks);
    free(back);
    return all > 0 ? error / all : error;
}

RF_TEST(quant, round_trip_is_close) {
    enum { COUNT = 256 * 16 };
    float *in = malloc(COUNT * sizeof *in);
    struct rf_random random = {rf_test_seed()};
    for (size_t t = 0; t < QUANTIZED; t++)
        for (int scale = -1; scale <= 1; scale++) {
            rf_random_normals(&random, in, COUNT, 0, powf(30, (float)scale));
            double error = error_of(quantized[t], in, COUNT);
            RF_NOTE("%s %g", rf_dtype_name(quantized[t]), error);
            RF_EXPECT(error < largest_error(quantized[t]));
        }
    free(in);
}

RF_TEST(quant, values_that_fit_come_back_exactly) {
    float in[256], back[256];
    uint8_t blocks[8 * 34];
    /* Small integers that include both ends of the type's range. */
    static const struct {
        enum rf_dtype dtype;
        int low, high;
    } ranges[] = {{RF_Q4_0, -8, 7}, {RF_Q4_1, 0, 15}, {RF_Q5_0, -16, 15}, {RF_Q5_1, 0, 31}, {RF_Q8_0, -127, 127}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        int span = ranges[r].high - ranges[r].low + 1;
        for (int i = 0; i < 256; i++)
            in[i] = (float)(ranges[r].low + (i % 32 < 2 ? i % 2 * (span - 1) : i * 7 % span));
        rf_quantize_row(ranges[r].dtype, in, blocks, 256);
        rf_dequantize_row(ranges[r].dtype, blocks, back, 256);
        RF_EXPECT_F32(back, in, 256, rf_exact());
    }
    memset(in, 0, sizeof in);
    for (size_t t = 0; t < QUANTIZED; t++) {
        rf_quantize_row(quantized[t], in, blocks, 256);
        rf_dequantize_row(quantized[t], blocks, back, 256);
        RF_EXPECT_F32(back, in, 256, rf_exact());
    }
}

RF_TEST(quant, odd_input_gives_finite_values) {
    float in[256], back[256];
    uint8_t blocks[8 * 34];
    struct rf_random random = {rf_test_seed() + 5};
    for (int round = 0; round < 50; round++)
        for (size_t t = 0; t < QUANTIZED; t++) {
            rf_random_normals(&random, in, 256, 0, 1);
            rf_random_specials(&random, in, 256, round % 2 ? RF_SPECIAL_ALL : RF_SPECIAL_FINITE, 8);
            rf_quantize_row(quantized[t], in, blocks, 256);
            rf_dequantize_row(quantized[t], blocks, back, 256);
            for (int i = 0; i < 256; i++) RF_EXPECT(isfinite(back[i]));
        }
}

RF_TEST(quant, packed_scales_come_back) {
    int scale[8], minimum[8], s, m;
    uint8_t packed[12];
    struct rf_random random = {rf_test_seed() + 6};
    for (int round = 0; round < 1000; round++) {
        for (int j = 0; j < 8; j++) {
            scale[j] = (int)rf_random_below(&random, 64);
            minimum[j] = (int)rf_random_below(&random, 64);
        }
        rf_k4_pack(packed, scale, minimum);
        for (int j = 0; j < 8; j++) {
            rf_k4_scale(packed, j, &s, &m);
            RF_ASSERT_INT(s, scale[j]);
            RF_ASSERT_INT(m, minimum[j]);
        }
    }
}

/* ---- kernels ---- */

/* Random blocks, not only those that a quantizer would write: every bit counts. Their f16 fields are made finite. */
static void random_blocks(struct rf_random *random, enum rf_dtype dtype, uint8_t *blocks, size_t count) {
    size_t bytes = rf_dtype_block_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i * bytes;
        for (size_t k = 0; k < bytes; k++) block[k] = (uint8_t)rf_random_next(random);
        size_t at = dtype == RF_Q2_K ? 80 : dtype == RF_Q3_K ? 108 : dtype == RF_Q6_K ? 208 : 0;
        block[at + 1] &= 0xbb; /* below 2 in magnitude */
        if (dtype == RF_Q4_1 || dtype == RF_Q5_1 || dtype == RF_Q4_K || dtype == RF_Q5_K || dtype == RF_Q2_K)
            block[at + 3] &= 0xbb;
    }
}

static void dequantize_all(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 7};
    static const uint64_t blocks_of[] = {1, 3, 70};
    static const enum rf_dtype types[] = {RF_F32, RF_F16};
    for (size_t t = 0; t < QUANTIZED; t++)
        for (size_t b = 0; b < 3; b++)
            for (size_t o = 0; o < 2; o++) {
                uint64_t count = blocks_of[b] * rf_dtype_block(quantized[t]);
                uint64_t bytes = blocks_of[b] * rf_dtype_block_bytes(quantized[t]);
                uint8_t *host = malloc(bytes);
                void *want = malloc(count * 4);
                struct rf_buffer *in = gpu_buffer(gpu, bytes),
                                 *out = gpu_buffer(gpu, count * rf_dtype_bytes(types[o]));
                random_blocks(&random, quantized[t], host, blocks_of[b]);
                RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, in, 0, host, bytes));
                const struct rf_dequantize_args args = {count};
                RF_ASSERT_OK(rf_gpu_dequantize(gpu->queue, types[o], (struct rf_operand){out, 0}, quantized[t],
                                               (struct rf_operand){in, 0}, &args));
                rf_ref_dequantize(types[o], want, quantized[t], host, &args);
                RF_ASSERT_BUFFER(gpu->queue, out, types[o], want, count, rf_exact());
                RF_ASSERT_OK(rf_buffer_destroy(&in));
                RF_ASSERT_OK(rf_buffer_destroy(&out));
                free(host);
                free(want);
            }
}

static void embed(struct gpu *gpu, struct rf_random *random, enum rf_dtype from, enum rf_dtype type,
                  uint64_t columns) {
    enum { TABLE = 5, COUNT = 6 };
    static const int32_t indices[COUNT] = {3, 0, 4, -1, 5, 3};
    uint64_t elements = TABLE * columns, bytes = elements / rf_dtype_block(from) * rf_dtype_block_bytes(from);
    uint8_t *host = malloc(bytes);
    void *want = malloc(COUNT * columns * 4);
    struct rf_buffer *table = gpu_buffer(gpu, bytes), *index = gpu_buffer(gpu, sizeof indices);
    struct rf_buffer *out = gpu_buffer(gpu, COUNT * columns * rf_dtype_bytes(type));
    if (rf_dtype_block(from) > 1) {
        random_blocks(random, from, host, elements / rf_dtype_block(from));
    } else {
        for (uint64_t i = 0; i < elements; i++) rf_element_set(from, host, i, rf_random_normal(random));
    }
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, table, 0, host, bytes));
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, index, 0, indices, sizeof indices));
    struct rf_gpu_embedding call = {.args = {.count = COUNT, .columns = columns, .table_rows = TABLE},
                                    .table_type = from,
                                    .type = type,
                                    .out.buffer = out,
                                    .table.buffer = table,
                                    .indices.buffer = index};
    RF_ASSERT_OK(rf_gpu_embedding(gpu->queue, &call));
    rf_ref_embedding(type, want, from, host, indices, &call.args);
    RF_ASSERT_BUFFER(gpu->queue, out, type, want, COUNT * columns, rf_exact());
    RF_ASSERT_OK(rf_buffer_destroy(&table));
    RF_ASSERT_OK(rf_buffer_destroy(&index));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    free(host);
    free(want);
}

static void embed_all(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 8};
    static const enum rf_dtype floats[] = {RF_F32, RF_F16, RF_BF16};
    for (size_t o = 0; o < 3; o++) {
        for (size_t t = 0; t < QUANTIZED; t++) {
            embed(gpu, &random, quantized[t], floats[o], rf_dtype_block(quantized[t]));
            embed(gpu, &random, quantized[t], floats[o], 3 * 256);
        }
        for (size_t t = 0; t < 3; t++) {
            embed(gpu, &random, floats[t], floats[o], 64);
            embed(gpu, &random, floats[t], floats[o], 37);
            embed(gpu, &random, floats[t], floats[o], 1);
        }
    }
}

static void quantize_all(struct gpu *gpu) {
    struct rf_random random = {rf_test_seed() + 9};
    static const enum rf_dtype floats[] = {RF_F32, RF_F16, RF_BF16};
    static const struct {
        uint64_t rows, columns, stride;
    } shapes[] = {{1, 32, 32}, {3, 96, 128}, {2, 2080, 2080}, {7, 512, 544}};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < 4; i++) {
            uint64_t rows = shapes[i].rows, columns = shapes[i].columns, stride = shapes[i].stride;
            uint64_t elements = rows * stride, out_bytes, element = rf_dtype_bytes(floats[t]);
            RF_ASSERT(!rf_q8_bytes_overflow(rows, columns, &out_bytes));
            uint8_t *host = malloc(elements * element);
            struct rf_q8_block *want = malloc(out_bytes), *got = malloc(out_bytes);
            struct rf_buffer *x = gpu_buffer(gpu, elements * element), *out = gpu_buffer(gpu, out_bytes);
            for (uint64_t k = 0; k < elements; k++)
                rf_element_set(floats[t], host, k, rf_random_normal(&random) * pow(10, (double)(k / 32 % 5) - 2));
            for (uint64_t k = 0; k < 32; k++) rf_element_set(floats[t], host, k, 0); /* a block of zeros */
            if (rows > 1) {
                rf_element_set(floats[t], host, stride + 5, INFINITY);
                rf_element_set(floats[t], host, stride + 40, NAN);
            }
            RF_ASSERT_OK(rf_copy_to_device_safe(gpu->queue, x, 0, host, elements * element));
            const struct rf_quantize_q8_args args = {rows, columns, stride};
            RF_ASSERT_OK(rf_gpu_quantize_q8(gpu->queue, (struct rf_operand){out, 0}, floats[t],
                                            (struct rf_operand){x, 0}, &args));
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu->queue, got, out, 0, out_bytes));
            rf_ref_quantize_q8(want, floats[t], host, &args);
            for (uint64_t b = 0; b < rows * columns / 32; b++) {
                RF_ASSERT(isnan(want[b].scale) == isnan(got[b].scale));
                if (isnan(want[b].scale)) continue;
                RF_ASSERT_F32(&got[b].scale, &want[b].scale, 2, rf_exact());
                RF_ASSERT_I8(got[b].quants, want[b].quants, 32, rf_exact());
            }
            RF_ASSERT_OK(rf_buffer_destroy(&x));
            RF_ASSERT_OK(rf_buffer_destroy(&out));
            free(host);
            free(want);
            free(got);
        }
}

static void all_kernels(const char *const *options) {
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, options);
    gpu_open(&gpu, NULL);
    dequantize_all(&gpu);
    embed_all(&gpu);
    quantize_all(&gpu);
    gpu_close(&gpu);
}

static const char *const guarded[] = {"RF_CHECK=guard,poison", NULL};

RF_TEST(quant, kernels_give_the_same_values, .gpu = true, .timeout_ms = 1500000) {
    all_kernels(NULL);
}
RF_TEST(quant, kernels_stay_inside_guarded_memory, .gpu = true, .timeout_ms = 1500000) {
    all_kernels(guarded);
}
RF_TEST(quant, kernels_give_the_same_values_at_wave_64, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx942");
    all_kernels(guarded);
}
RF_TEST(quant, kernels_with_lanes_in_any_order, .timeout_ms = 1500000) {
    gpu_need_simulated("arch=gfx1201,shuffle=7");
    all_kernels(NULL);
}

RF_TEST(quant, bad_calls_are_refused_by_name, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    struct rf_buffer *in = gpu_buffer(&gpu, 4096), *out = gpu_buffer(&gpu, 4096);
    const struct rf_operand on_in = {in, 0}, on_out = {out, 0};
#define DEQUANTIZE(type, from, count)                                                                                \
    rf_gpu_dequantize(gpu.queue, type, on_out, RF_Q4_0, from, &(struct rf_dequantize_args){count})
    RF_EXPECT_OK(DEQUANTIZE(RF_F32, on_in, 64));
    RF_EXPECT_STATUS(DEQUANTIZE(RF_F32, on_in, 65), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "dequantize");
    RF_EXPECT_OK(DEQUANTIZE(RF_F32, on_in, 0));
    RF_EXPECT_STATUS(DEQUANTIZE(RF_F32, on_in, 2048), RF_E_INVALID); /* out is too small */
    RF_EXPECT_STATUS(DEQUANTIZE(RF_F32, on_in, UINT64_MAX - 31), RF_E_INVALID);
    RF_EXPECT_STATUS(DEQUANTIZE(RF_F32, rf_operand_later(on_in, 18), 64), RF_E_INVALID);
    RF_EXPECT_STATUS(DEQUANTIZE(RF_F32, on_out, 64), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "overlaps");
    RF_EXPECT_STATUS(DEQUANTIZE(RF_I32, on_in, 64), RF_E_UNSUPPORTED);
    struct rf_gpu_embedding e = {.args = {.count = 1, .columns = 256, .table_rows = 2},
                                 .table_type = RF_Q6_K,
                                 .type = RF_F32,
                                 .out = on_out,
                                 .table = on_in,
                                 .indices = rf_operand_later(on_in, 512)};
    RF_EXPECT_OK(rf_gpu_embedding(gpu.queue, &e));
    e.args.columns = 128;
    RF_EXPECT_STATUS(rf_gpu_embedding(gpu.queue, &e), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "embedding");
    e.args.columns = 256;
    e.indices.buffer = NULL;
    RF_EXPECT_STATUS(rf_gpu_embedding(gpu.queue, &e), RF_E_INVALID);
    e.indices.buffer = in;
    e.args.count = UINT64_C(1) << 62;
    RF_EXPECT_STATUS(rf_gpu_embedding(gpu.queue, &e), RF_E_INVALID);
#define QUANTIZE(columns, stride)                                                                                    \
    rf_gpu_quantize_q8(gpu.queue, on_out, RF_F32, on_in, &(struct rf_quantize_q8_args){1, columns, stride})
    RF_EXPECT_OK(QUANTIZE(96, 96));
    RF_EXPECT_STATUS(QUANTIZE(95, 96), RF_E_INVALID);
    RF_EXPECT_STATUS(QUANTIZE(96, 64), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "quantize_q8");
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_buffer_destroy(&in));
    RF_ASSERT_OK(rf_buffer_destroy(&out));
    gpu_close(&gpu);
}
