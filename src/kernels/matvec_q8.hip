/* matvec with quantized weights and activations of 8 bits (quantize.hip makes them): products of
 * bytes, four at a time, summed exactly within 8 elements. See matvec.h. */
#include "kernels/matvec.h"

#define MATVEC_Q8(name, weight) MATVEC_ALL(name##_q8, weight, true, RF_TYPE_F32, float)
RF_EACH_QUANT(MATVEC_Q8)
