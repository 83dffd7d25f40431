/* dequantize: out[i] = element i of a run of quantized blocks, as f32, or as f16 or bf16 (rounded once more).
 *
 * count is a multiple of the type's block; blocks and out start at multiples of 16 bytes and do not
 * overlap. Any grid and block in x; one thread per unit (quant.h), 8 to 32 elements, is fast. */
#include "kernels/quant.h"

RF_DEVICE void dequantize_body(enum rf_weight weight, enum rf_type type, void *out, const void *blocks,
                               uint64_t count) {
    uint64_t units = count / (8 * rf_unit_parts(weight));
    RF_NO_UNROLL
    for (uint64_t unit = rf_global_x(); unit < units; unit += rf_global_count_x()) {
        uint64_t element = rf_unit_element(weight, unit);
        struct rf_unit all;
        rf_read_unit(weight, (const uint8_t *)blocks, unit, &all);
        RF_UNROLL
        for (uint32_t p = 0; p < rf_unit_parts(weight); p++) {
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
