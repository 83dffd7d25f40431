/* dequantize: out[i] = element i of a run of quantized blocks, as f32, or as f16 or bf16, rounded from the f32 value
 * (struct rf_dequantize_args).
 *
 * count is a multiple of the type's block; blocks and out start at multiples of 16 bytes and do not overlap.
 * Launch: any grid in x and block of whole waves; one thread per 8 * RF_DEQUANTIZE_PARTS elements to f32, else per
 * unit (quant.h), is fast. */
#include "kernels/quant.h"

/* Neighbouring lanes write neighbouring bytes: a unit, whose parts are 16 bytes each. */
RF_DEVICE void dequantize_16(enum rf_weight weight, enum rf_type type, void *out, const void *blocks,
                             struct rf_dequantize_args args) {
    uint32_t parts = rf_unit_parts(weight);
    uint64_t turns = args.count / (8 * parts);
    RF_NO_UNROLL
    for (uint64_t turn = rf_global_x(); turn < turns; turn += rf_global_count_x()) {
        uint64_t element = rf_unit_element(weight, turn);
        struct rf_unit all;
        rf_read_unit(weight, (const uint8_t *)blocks, turn, &all);
        RF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            float values[8];
            rf_part_values(weight, &all.part[p], values);
            rf_store_many(type, 8, out, element + p * rf_unit_stride(weight), values);
        }
    }
}

/* Two neighbouring lanes have a part of 8 elements, 32 bytes, each: the first store of both writes the even lane's,
 * the second the odd lane's, so that a store of the wave leaves no gaps. All lanes call; a lane's element, a multiple
 * of 8, is its neighbour's with one bit flipped. */
RF_DEVICE void dequantize_pair(enum rf_weight weight, float *out, uint64_t element, bool inside,
                               const struct rf_part *part) {
    bool odd = rf_lane() & 1;
    uint32_t q = rf_wave_xor_u32(odd ? part->q[0] : part->q[1], 1);
    float scale = rf_wave_xor_f32(part->scale, 1);
    float offset = rf_weight_offset(weight) ? rf_wave_xor_f32(part->offset, 1) : 0.0f;
    struct rf_part mixed = rf_make_part(odd ? q : part->q[0], odd ? part->q[1] : q, 0.0f, 0.0f);
    float values[8];
    rf_part_floats(weight, &mixed, values);
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        bool own = odd == (i >= 4);
        float by = own ? part->scale : scale;
        values[i] = rf_weight_offset(weight) ? rf_fma(by, values[i], own ? part->offset : offset) : by * values[i];
    }
    if (!inside) return;
    uint64_t first = odd ? element - 4 : element;
    rf_store_many(RF_TYPE_F32, 4, out, first, values);
    rf_store_many(RF_TYPE_F32, 4, out, first + 8, values + 4);
}

RF_DEVICE void dequantize_f32(enum rf_weight weight, float *out, const void *blocks, struct rf_dequantize_args args) {
    uint64_t turns = args.count / 8, tile = (uint64_t)rf_block_dim_x() * RF_DEQUANTIZE_PARTS;
    RF_NO_UNROLL
    for (uint64_t first = rf_block_x() * tile; first < turns; first += rf_grid_dim_x() * tile) {
        struct rf_part part[RF_DEQUANTIZE_PARTS];
        RF_UNROLL
        for (uint32_t i = 0; i < RF_DEQUANTIZE_PARTS; i++) {
            uint64_t turn = rf_min_u64(first + i * rf_block_dim_x() + rf_thread_x(), turns - 1);
            part[i] = rf_read_part_at(weight, (const uint8_t *)blocks, turn * 8);
        }
        RF_UNROLL
        for (uint32_t i = 0; i < RF_DEQUANTIZE_PARTS; i++) {
            uint64_t turn = first + i * rf_block_dim_x() + rf_thread_x();
            dequantize_pair(weight, out, turn * 8, turn < turns, &part[i]);
        }
    }
}

#define DEQUANTIZE(name, NAME, parts)                                                                                \
    RF_KERNEL(dequantize_##name##_f32, RF_QUANT_THREADS, (float *, out), (const void *, blocks),                     \
              (struct rf_dequantize_args, args)) {                                                                   \
        dequantize_f32(RF_WEIGHT_##NAME, out, blocks, args);                                                         \
    }                                                                                                                \
    RF_KERNEL(dequantize_##name##_f16, RF_QUANT_THREADS, (rf_f16 *, out), (const void *, blocks),                    \
              (struct rf_dequantize_args, args)) {                                                                   \
        dequantize_16(RF_WEIGHT_##NAME, RF_TYPE_F16, out, blocks, args);                                             \
    }                                                                                                                \
    RF_KERNEL(dequantize_##name##_bf16, RF_QUANT_THREADS, (rf_bf16 *, out), (const void *, blocks),                  \
              (struct rf_dequantize_args, args)) {                                                                   \
        dequantize_16(RF_WEIGHT_##NAME, RF_TYPE_BF16, out, blocks, args);                                            \
    }
RF_EACH_QUANT_WEIGHT(DEQUANTIZE)
