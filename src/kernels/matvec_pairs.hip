/* matvec_<weight>_pairs: up to three matrices times one row of x, two rows of weights at a time: what a model does
 * for each token. struct rf_norm_products_args says what it computes. With quantized weights x is rounded to 8 bits,
 * with others it is f32. pairs.h has layout and launch.
 *
 * A pointer that is not wanted is NULL, its n 0. residual may be out; otherwise nothing overlaps. */
#include "kernels/pairs.h"

#define MATVEC_PAIRS(name, weight)                                                                                   \
    RF_KERNEL_EARLY(matvec_##name##_pairs, 1024, (float *, out), (float *, out_b), (float *, out_c),                 \
                    (const void *, weights), (const void *, weights_b), (const void *, weights_c),                   \
                    (const void *, x), (const float *, norm), (float *, normed), (const float *, bias),              \
                    (const float *, residual), (struct rf_norm_products_args, args)) {                               \
        RF_SHARED_DYNAMIC(uint8_t, shared);                                                                          \
        rf_grid_go();                                                                                                \
        struct pairs op = {{out, out_b, out_c},                                                                      \
                           {(const uint8_t *)weights, (const uint8_t *)weights_b, (const uint8_t *)weights_c},       \
                           {(uint32_t)args.n[0], (uint32_t)args.n[1], (uint32_t)args.n[2]},                          \
                           x,                                                                                        \
                           norm,                                                                                     \
                           normed,                                                                                   \
                           bias,                                                                                     \
                           residual,                                                                                 \
                           (uint32_t)args.k,                                                                         \
                           (uint32_t)rf_weight_row_bytes(weight, (uint32_t)args.k),                                  \
                           args.eps,                                                                                 \
                           (args.flags & RF_PRODUCTS_X_Q8) != 0,                                                     \
                           (args.flags & RF_PRODUCTS_GATE) != 0,                                                     \
                           (args.flags & RF_PRODUCTS_X_F16) != 0,                                                    \
                           (args.flags & RF_PRODUCTS_CONSTANT) != 0,                                                 \
                           false,                                                                                    \
                           pairs_no_append()};                                                                       \
        pairs_body(weight, &op, shared);                                                                             \
    }
MATVEC_PAIRS(f16, RF_WEIGHT_F16)
MATVEC_PAIRS(bf16, RF_WEIGHT_BF16)
MATVEC_PAIRS(q4_0, RF_WEIGHT_Q4_0)
MATVEC_PAIRS(q8_0, RF_WEIGHT_Q8_0)
MATVEC_PAIRS(q4_k, RF_WEIGHT_Q4_K)
MATVEC_PAIRS(q6_k, RF_WEIGHT_Q6_K)
