/* matvec_<weight>_qkv: what begins a layer's attention for one token. The products of a row with the weights of keys,
 * values and queries, as matvec_<weight>_pairs computes them, go on from the registers that summed them: queries are
 * rotated into q_out, keys are rotated and stored in the cache, and values are stored, as rope_append does it, whose
 * bits they get. pairs.h has layout and launch.
 *
 * n is {heads * dim, heads * dim, q_heads * dim}; the products themselves go to k, v and q. append.tokens is 1;
 * sequences and table may be NULL. append.cache is the type of the caches.
 * A block of Q8_0 needs 32 elements, which 16 waves or more have summed: a head is packed by the wave that brings its
 * last sum, and counters, 2 * heads words, are 0 before the launch and after it. Nothing overlaps. */
#include "kernels/pairs.h"

#define MATVEC_QKV(name, weight)                                                                                     \
    RF_KERNEL_EARLY(matvec_##name##_qkv, 1024, (float *, k), (float *, v), (float *, q), (const void *, k_weights),  \
                    (const void *, v_weights), (const void *, q_weights), (const void *, x), (const float *, norm),  \
                    (float *, normed), (void *, k_cache), (void *, v_cache), (void *, q_out),                        \
                    (const int32_t *, positions), (const uint32_t *, sequences), (const uint32_t *, table),          \
                    (const uint64_t *, steps), (uint32_t *, counters), (struct rf_norm_products_args, args),         \
                    (struct rf_kv_append_args, append)) {                                                            \
        RF_SHARED_DYNAMIC(uint8_t, shared);                                                                          \
        rf_grid_go();                                                                                                \
        struct pairs op = {{k, v, q},                                                                                \
                           {(const uint8_t *)k_weights, (const uint8_t *)v_weights, (const uint8_t *)q_weights},     \
                           {(uint32_t)args.n[0], (uint32_t)args.n[1], (uint32_t)args.n[2]},                          \
                           x,                                                                                        \
                           norm,                                                                                     \
                           normed,                                                                                   \
                           0,                                                                                        \
                           0,                                                                                        \
                           (uint32_t)args.k,                                                                         \
                           (uint32_t)rf_weight_row_bytes(weight, (uint32_t)args.k),                                  \
                           args.eps,                                                                                 \
                           false,                                                                                    \
                           false,                                                                                    \
                           (args.flags & RF_PRODUCTS_X_F16) != 0,                                                    \
                           (args.flags & RF_PRODUCTS_CONSTANT) != 0,                                                 \
                           true,                                                                                     \
                           {k_cache, v_cache, q_out, positions, sequences, table, steps, counters, append,           \
                            (enum kv_type)append.cache, 0}};                                                         \
        pairs_body(weight, &op, shared);                                                                             \
    }
MATVEC_QKV(f16, RF_WEIGHT_F16)
MATVEC_QKV(bf16, RF_WEIGHT_BF16)
MATVEC_QKV(q4_0, RF_WEIGHT_Q4_0)
MATVEC_QKV(q8_0, RF_WEIGHT_Q8_0)
MATVEC_QKV(q4_k, RF_WEIGHT_Q4_K)
MATVEC_QKV(q6_k, RF_WEIGHT_Q6_K)
