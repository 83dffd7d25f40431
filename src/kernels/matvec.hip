/* matvec with float weights: f32, f16 or bf16 times f32, f16 or bf16; sums in f32. See matvec.h. */
#include "kernels/matvec.h"

#define MATVEC_FLOAT(name, NAME, parts)                                                                              \
    MATVEC_ALL(name##_f32, RF_WEIGHT_##NAME, RF_TYPE_F32, float)                                                     \
    MATVEC_ALL(name##_f16, RF_WEIGHT_##NAME, RF_TYPE_F16, rf_f16)                                                    \
    MATVEC_ALL(name##_bf16, RF_WEIGHT_##NAME, RF_TYPE_BF16, rf_bf16)
RF_EACH_FLOAT_WEIGHT(MATVEC_FLOAT)
