/* f16 and bf16 as raw bits. Rounding is to nearest, ties to even, as GPUs do it; every f16 and bf16 converts to float
 * exactly. No compiler type is used, because none is available everywhere. */
#include "testing_impl.h"

#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value >> shift, rounded to nearest even. 0 < shift < 32. */
static uint32_t shift_rounded(uint32_t value, unsigned shift) {
    uint32_t half = UINT32_C(1) << (shift - 1), rest = value & ((half << 1) - 1), whole = value >> shift;
    return whole + (rest > half || (rest == half && (whole & 1)));
}

uint16_t rf_f16_from_float(float value) {
    uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((rest >> 13) & 0x3ff)); /* NaN, quiet */
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7c00);                         /* 65536 and more */
    if (rest >= 0x38800000) /* normal; rounding may carry into the exponent, up to infinity */
        return (uint16_t)(sign | shift_rounded(rest - 0x38000000, 13));
    if (rest < 0x33000000) return (uint16_t)sign; /* below half the smallest */
    unsigned exponent = rest >> 23;               /* 102 to 112 */
    return (uint16_t)(sign | shift_rounded((rest & 0x7fffff) | 0x800000, 126 - exponent));
}

float rf_f16_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f; /* exact */
    return sign ? -value : value;
}

uint16_t rf_bf16_from_float(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40); /* NaN, quiet */
    return (uint16_t)((bits >> 16) + ((bits & 0xffff) > 0x8000 || ((bits & 0xffff) == 0x8000 && (bits >> 16 & 1))));
}

float rf_bf16_to_float(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}
