/* matvec with float weights: f32, f16 or bf16 times f32, f16 or bf16; sums in f32. See matvec.h. */
#include "kernels/matvec.h"

#define MATVEC_FLOAT(name, weight)                                                                                   \
    MATVEC_ALL(name##_f32, weight, RF_TYPE_F32, float)                                                               \
    MATVEC_ALL(name##_f16, weight, RF_TYPE_F16, rf_f16)                                                              \
    MATVEC_ALL(name##_bf16, weight, RF_TYPE_BF16, rf_bf16)
MATVEC_FLOAT(f32, RF_WEIGHT_F32)
MATVEC_FLOAT(f16, RF_WEIGHT_F16)
MATVEC_FLOAT(bf16, RF_WEIGHT_BF16)
