/* matvec with quantized weights and activations of 8 bits (blocks that quantize.hip made, or f32 that is rounded to
 * the same bits first): products of bytes, four at a time, summed exactly within 32 elements or so. See dots.h. */
#include "kernels/dots.h"

#define MATVEC_Q8(name, NAME, parts)                                                                                 \
    DOTS(name, RF_WEIGHT_##NAME, 1, 1024)                                                                            \
    DOTS(name, RF_WEIGHT_##NAME, 4, 512)                                                                             \
    DOTS(name, RF_WEIGHT_##NAME, 8, 512)
RF_EACH_QUANT_WEIGHT(MATVEC_Q8)
