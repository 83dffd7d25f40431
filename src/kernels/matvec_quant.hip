/* matvec with quantized weights and f32 activations: the weights' values are exact, sums in f32. See
 * matvec.h. */
#include "kernels/matvec.h"

#define MATVEC_QUANT(name, weight) MATVEC_ALL(name##_f32, weight, false, RF_TYPE_F32, float)
RF_EACH_QUANT(MATVEC_QUANT)
