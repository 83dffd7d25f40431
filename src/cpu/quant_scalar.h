/* Products of quantized rows with activations in 8 bits, one element at a time. Included after simd_dots.h. They
 * unpack blocks with the panels' function, so this level needs no bit manipulation of its own. */
#ifndef RF_CPU_QUANT_SCALAR_H
#define RF_CPU_QUANT_SCALAR_H

static inline void quantize_32(int8_t quants[32], float *scale, int32_t halves[2], const float *x) {
    uint32_t bits[32], most = 0;
    float inverse;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i++) {
        uint32_t magnitude = bits[i] & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    memset(quants, 0, 32);
    halves[0] = halves[1] = 0;
    if (!scale_of_32(most, scale, &inverse)) return;
    for (int i = 0; i < 32; i++) {
        float shifted = x[i] * inverse + ROUND_TO_INTEGER;
        memcpy(&bits[i], &shifted, sizeof shifted);
        quants[i] = (int8_t)(uint8_t)(bits[i] & 0xff);
        halves[i / 16] += quants[i];
    }
}

static float dot_row(enum rf_dtype dtype, const uint8_t *block, const struct rf_act_group *x, size_t k) {
    size_t elements = dtype == RF_Q8_0 || dtype == RF_Q4_0 ? 32 : 256;
    size_t bytes = dtype == RF_Q8_0 ? 34 : dtype == RF_Q4_0 ? 18 : dtype == RF_Q4_K ? 144 : 210;
    int zero = dtype == RF_Q4_0 ? 8 : dtype == RF_Q6_K ? 32 : 0;
    float sum = 0;
    for (size_t i = 0; i < k; i += elements, block += bytes) {
        uint8_t quants[256];
        float scale[16], minimum[8] = {0};
        unpack_block(dtype, block, quants, scale, minimum);
        for (size_t g = 0; g < elements / 16; g++) {
            const struct rf_act_group *group = x + (i + 16 * g) / 128;
            size_t at = (i + 16 * g) % 128;
            int32_t dot = 0;
            for (size_t e = 0; e < 16; e++) {
                int q = dtype == RF_Q8_0 ? (int8_t)quants[16 * g + e] : quants[16 * g + e] - zero;
                dot += q * group->quants[at + e];
            }
            float part = scale[g] * (float)dot - minimum[g / 2] * (float)group->half[at / 16];
            sum += part * group->scale[at / 32];
        }
    }
    return sum;
}

#define DEFINE_MATVEC_QUANT(name, dtype)                                                                             \
    static void matvec_##name(float *y, const void *weights, size_t row_bytes, size_t rows,                          \
                              const struct rf_act_group *x, size_t k) {                                              \
        for (size_t r = 0; r < rows; r++) y[r] = dot_row(dtype, (const uint8_t *)weights + r * row_bytes, x, k);     \
    }
DEFINE_MATVEC_QUANT(q8_0, RF_Q8_0)
DEFINE_MATVEC_QUANT(q4_0, RF_Q4_0)
DEFINE_MATVEC_QUANT(q4_k, RF_Q4_K)
DEFINE_MATVEC_QUANT(q6_k, RF_Q6_K)

#endif
