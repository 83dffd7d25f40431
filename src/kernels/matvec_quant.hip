/* matvec with quantized weights and f32 activations: the weights' values are exact, sums are in f32. See matvec.h. Up
 * to four rows of x: more of them make it slow, and matvec_q8.hip is for speed. */
#include "kernels/matvec.h"

#define MATVEC_QUANT(name, NAME, parts)                                                                              \
    MATVEC(name##_f32, RF_WEIGHT_##NAME, RF_TYPE_F32, float, 1)                                                      \
    MATVEC(name##_f32, RF_WEIGHT_##NAME, RF_TYPE_F32, float, 4)
RF_EACH_QUANT_WEIGHT(MATVEC_QUANT)
