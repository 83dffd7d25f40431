/* quantize_q8: activations to blocks of 32 bytes with a scale and their sum (struct rf_q8_block).
 *
 * x: rows of f32, f16 or bf16, x_stride elements apart; out: columns / 32 blocks a row, dense.
 * columns and x_stride are multiples of 32, x starts at a multiple of 16 bytes, out at one of 8.
 * scale = largest magnitude / 127, elements times the inverse rounded to even; a block with nothing
 * above RF_Q8_TINY is zeros; one with an element that is not finite has NaN (0x7fc00000) as scale and
 * sum and zeros as quants, so that whatever is computed with it is NaN. out does not overlap x. The same bits on
 * every target. Rows in y; in x blocks of whole waves, a thread for each 8 elements. */
#include "kernels/quant.h"

RF_DEVICE uint32_t quantize_four(const float *x, float inverse) {
    uint32_t word = 0;
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        /* The product is rounded before it is rounded to an integer, however a target computes the latter. */
        float scaled = rf_f32_of_bits(rf_opaque(rf_bits_of_f32(x[i] * inverse)));
        float q = rf_min(rf_max(__builtin_rintf(scaled), -127.0f), 127.0f);
        word |= ((uint32_t)(int32_t)q & 255) << 8 * i;
    }
    return word;
}

RF_DEVICE void quantize_q8_body(enum rf_type type, struct rf_q8_block *out, const void *x, uint64_t rows,
                                uint64_t columns, uint64_t x_stride) {
    uint64_t groups = columns / 8, whole = (groups + RF_WAVE - 1) / RF_WAVE * RF_WAVE;
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < rows; row += rf_grid_dim_y()) {
        /* All lanes of a wave go around together: four of them share a block. */
        RF_NO_UNROLL
        for (uint64_t group = rf_global_x(); group < whole; group += rf_global_count_x()) {
            float values[8] = {0, 0, 0, 0, 0, 0, 0, 0}, largest = 0.0f;
            bool finite = true;
            if (group < groups) rf_load_many(type, 8, x, row * x_stride + group * 8, values);
            RF_UNROLL
            for (uint32_t i = 0; i < 8; i++) {
                largest = rf_max(largest, __builtin_fabsf(values[i]));
                finite = finite && (rf_bits_of_f32(values[i]) & 0x7f800000) != 0x7f800000;
            }
            uint32_t broken = finite ? 0 : 1;
            RF_UNROLL
            for (uint32_t mask = 1; mask < 4; mask *= 2) {
                largest = rf_max(largest, rf_wave_xor_f32(largest, mask));
                broken |= rf_wave_xor_u32(broken, mask);
            }
            if (largest < RF_Q8_TINY) largest = 0.0f;
            float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
            float scale = largest / 127.0f;
            uint32_t low = broken ? 0 : quantize_four(values, inverse);
            uint32_t high = broken ? 0 : quantize_four(values + 4, inverse);
            int32_t sum = rf_dot4(low, 0x01010101, rf_dot4(high, 0x01010101, 0));
            RF_UNROLL
            for (uint32_t mask = 1; mask < 4; mask *= 2) sum += (int32_t)rf_wave_xor_u32((uint32_t)sum, mask);
            if (group < groups) {
                struct rf_q8_block *block = out + row * (columns / RF_Q8_BLOCK) + group / 4;
                rf_u32x2 quants = {low, high}, head = {rf_bits_of_f32(scale), rf_bits_of_f32(scale * (float)sum)};
                rf_u32x2 nan = {0x7fc00000, 0x7fc00000};
                if (broken) head = nan; /* what arithmetic makes of a NaN differs among targets */
                rf_store_8(&block->q[group % 4 * 2], quants);
                if (group % 4 == 0) rf_store_8(block, head);
            }
        }
    }
}

#define QUANTIZE_Q8(name, type, element)                                                                             \
    RF_KERNEL(quantize_q8_##name, 256, (struct rf_q8_block *, out), (const element *, x), (uint64_t, rows),          \
              (uint64_t, columns), (uint64_t, x_stride)) {                                                           \
        quantize_q8_body(type, out, x, rows, columns, x_stride);                                                     \
    }
QUANTIZE_Q8(f32, RF_TYPE_F32, float)
QUANTIZE_Q8(f16, RF_TYPE_F16, rf_f16)
QUANTIZE_Q8(bf16, RF_TYPE_BF16, rf_bf16)
