/* quantize_q8: activations to blocks of 32 bytes with a scale and their sum (struct rf_q8_block).
 *
 * x: rows of f32, f16 or bf16, x_stride elements apart; out: columns / 32 blocks a row, dense.
 * columns and x_stride are multiples of 32, x starts at a multiple of 16 bytes, out at one of 8.
 * The scale is the largest magnitude / 127; elements are multiplied by its inverse and rounded to even. A block with
 * nothing above RF_Q8_TINY is zeros. A block with an element that is not finite has NaN (0x7fc00000) as scale and sum
 * and zeros as quants, so that whatever is computed with it is NaN. out does not overlap x. The bits are the same on
 * every target.
 * Launch: rows in y; in x blocks of whole waves, a thread for each 8 elements of f32, 16 of f16 and bf16. */
#include "kernels/quant.h"

RF_DEVICE void quantize_q8_body(enum rf_type type, struct rf_q8_block *out, const void *x,
                                struct rf_quantize_q8_args args) {
    uint64_t rows = args.rows, columns = args.columns, x_stride = args.x_stride;
    uint32_t count = type == RF_TYPE_F32 ? RF_QUANTIZE_Q8_SHARE_F32 : RF_QUANTIZE_Q8_SHARE_16;
    uint32_t lanes = RF_Q8_BLOCK / count;
    uint64_t shares = columns / count, whole = (shares + RF_WAVE - 1) / RF_WAVE * RF_WAVE;
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < rows; row += rf_grid_dim_y()) {
        /* All lanes of a wave go around together: some of them share a block. */
        RF_NO_UNROLL
        for (uint64_t at = rf_global_x(); at < whole; at += rf_global_count_x()) {
            float values[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
            struct rf_q8_share share;
            RF_UNROLL
            for (uint32_t i = 0; i < count; i += 8)
                if (at < shares) rf_load_many(type, 8, x, row * x_stride + at * count + i, values + i);
            rf_quantize_share(count, values, &share);
            int32_t sum = share.sum;
            RF_UNROLL
            for (uint32_t mask = 1; mask < lanes; mask *= 2) sum += (int32_t)rf_wave_xor_u32((uint32_t)sum, mask);
            if (at < shares) {
                struct rf_q8_block *block = out + row * (columns / RF_Q8_BLOCK) + at / lanes;
                float total = share.scale * (float)sum;
                rf_u32x2 head = {rf_bits_of_f32(share.scale), rf_bits_of_f32(total)};
                if (share.scale != share.scale) head[1] = head[0];
                RF_UNROLL
                for (uint32_t i = 0; i < count / 4; i += 2) {
                    rf_u32x2 quants = {share.q[i], share.q[i + 1]};
                    rf_store_8(block->quants + at % lanes * count + i * 4, quants);
                }
                if (at % lanes == 0) rf_store_8(block, head);
            }
        }
    }
}

#define QUANTIZE_Q8(name, type, element)                                                                             \
    RF_KERNEL(quantize_q8_##name, RF_QUANT_THREADS, (struct rf_q8_block *, out), (const element *, x),               \
              (struct rf_quantize_q8_args, args)) {                                                                  \
        quantize_q8_body(type, out, x, args);                                                                        \
    }
QUANTIZE_Q8(f32, RF_TYPE_F32, float)
QUANTIZE_Q8(f16, RF_TYPE_F16, rf_f16)
QUANTIZE_Q8(bf16, RF_TYPE_BF16, rf_bf16)
