/* matvec with quantized weights and f32 activations: the weights' values are exact, sums in f32. See
 * matvec.h. Up to four activation rows: more of them make it slow, and matvec_q8.hip is for speed. */
#include "kernels/matvec.h"

#define MATVEC_QUANT(name, weight)                                                                                   \
    MATVEC(name##_f32, weight, RF_TYPE_F32, float, 1)                                                                \
    MATVEC(name##_f32, weight, RF_TYPE_F32, float, 4)
RF_EACH_QUANT(MATVEC_QUANT)
