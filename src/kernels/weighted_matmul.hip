/* weighted_matmul: out = weights v, as attention_args.h says. weights are f32, out and v of the type in the kernel's
 * name; sums are in f32, rounded once. Any sizes from 1.
 *
 * Launch: blocks of RF_PRODUCT_THREADS, one for each tile (RF_PRODUCT_TILE squared) of out: column tiles, then row
 * tiles, then heads_q, then batch, all in grid x. out must not overlap weights or v. */
#include "kernels/attention.h"

#define WEIGHTED_MATMUL(name, type, element)                                                                         \
    RF_KERNEL(weighted_matmul_##name, RF_PRODUCT_THREADS, (element *, out), (const float *, weights),                \
              (const element *, v), (struct rf_head_product_args, args)) {                                           \
        RF_SHARED(float, shared, RF_PRODUCT_SHARED);                                                                 \
        uint32_t heads_q = (uint32_t)args.heads_q, heads_kv = (uint32_t)args.heads_kv, dim = (uint32_t)args.dim;     \
        uint32_t q_rows = (uint32_t)args.q_rows, k_rows = (uint32_t)args.k_rows;                                     \
        uint32_t across = rf_tiles_of(dim, RF_PRODUCT_TILE), down = rf_tiles_of(q_rows, RF_PRODUCT_TILE);            \
        struct rf_share_of_heads share = rf_share_of_block(across * down, heads_q);                                  \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        rf_product(type, RF_TYPE_F32, type, false, out + rf_heads_at(args.out, share.batch, share.head),             \
                   args.out.row, weights + rf_heads_at(args.left, share.batch, share.head), args.left.row,           \
                   v + rf_heads_at(args.right, share.batch, kv), args.right.row, q_rows, dim, k_rows,                \
                   share.tile / across * RF_PRODUCT_TILE, share.tile % across * RF_PRODUCT_TILE, 1.0f, shared);      \
    }

WEIGHTED_MATMUL(f32, RF_TYPE_F32, float)
WEIGHTED_MATMUL(f16, RF_TYPE_F16, rf_f16)
WEIGHTED_MATMUL(bf16, RF_TYPE_BF16, rf_bf16)
