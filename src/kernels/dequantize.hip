/* dequantize: out[i] = element i of a run of quantized blocks, as f32, or as f16 or bf16 (rounded once more).
 *
 * count is a multiple of the type's block; blocks and out start at multiples of 16 bytes and do not
 * overlap. Any grid and block in x; one thread per 8 elements to f32, else per unit (quant.h), is fast. */
#include "kernels/quant.h"

/* Neighbouring lanes write neighbouring bytes. f32: 8 elements a lane, in order, for 32 bytes; else a unit, whose
 * parts are 16 bytes each. */
RF_DEVICE void dequantize_body(enum rf_weight weight, enum rf_type type, void *out, const void *blocks,
                               uint64_t count) {
    uint32_t parts = type == RF_TYPE_F32 ? 1 : rf_unit_parts(weight);
    uint64_t turns = count / (8 * parts);
    RF_NO_UNROLL
    for (uint64_t turn = rf_global_x(); turn < turns; turn += rf_global_count_x()) {
        uint64_t element = type == RF_TYPE_F32 ? turn * 8 : rf_unit_element(weight, turn);
        struct rf_unit all;
        if (type == RF_TYPE_F32)
            all.part[0] = rf_read_part_at(weight, (const uint8_t *)blocks, element);
        else
            rf_read_unit(weight, (const uint8_t *)blocks, turn, &all);
        RF_UNROLL
        for (uint32_t p = 0; p < parts; p++) {
            float values[8];
            rf_part_values(weight, &all.part[p], values);
            rf_store_many(type, 8, out, element + p * rf_unit_stride(weight), values);
        }
    }
}

#define DEQUANTIZE(name, weight)                                                                                     \
    RF_KERNEL(dequantize_##name##_f32, 256, (float *, out), (const void *, blocks), (uint64_t, count)) {             \
        dequantize_body(weight, RF_TYPE_F32, out, blocks, count);                                                    \
    }                                                                                                                \
    RF_KERNEL(dequantize_##name##_f16, 256, (rf_f16 *, out), (const void *, blocks), (uint64_t, count)) {            \
        dequantize_body(weight, RF_TYPE_F16, out, blocks, count);                                                    \
    }                                                                                                                \
    RF_KERNEL(dequantize_##name##_bf16, 256, (rf_bf16 *, out), (const void *, blocks), (uint64_t, count)) {          \
        dequantize_body(weight, RF_TYPE_BF16, out, blocks, count);                                                   \
    }
RF_EACH_QUANT(DEQUANTIZE)
