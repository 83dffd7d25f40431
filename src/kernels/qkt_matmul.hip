/* qkt_matmul: scores = scale * q k^T, as attention_args.h says. q and k are of the type in the kernel's name, scores
 * are f32; sums are in f32. Any sizes from 1.
 *
 * Launch: blocks of RF_PRODUCT_THREADS, one for each tile (RF_PRODUCT_TILE squared) of the scores: column tiles, then
 * row tiles, then heads_q, then batch, all in grid x. scores must not overlap q or k. */
#include "kernels/attention.h"

#define QKT_MATMUL(name, type, element)                                                                              \
    RF_KERNEL(qkt_matmul_##name, RF_PRODUCT_THREADS, (float *, scores), (const element *, q), (const element *, k),  \
              (struct rf_head_product_args, args)) {                                                                 \
        RF_SHARED(float, shared, RF_PRODUCT_SHARED);                                                                 \
        uint32_t heads_q = (uint32_t)args.heads_q, heads_kv = (uint32_t)args.heads_kv, dim = (uint32_t)args.dim;     \
        uint32_t q_rows = (uint32_t)args.q_rows, k_rows = (uint32_t)args.k_rows;                                     \
        uint32_t across = rf_tiles_of(k_rows, RF_PRODUCT_TILE), down = rf_tiles_of(q_rows, RF_PRODUCT_TILE);         \
        struct rf_share_of_heads share = rf_share_of_block(across * down, heads_q);                                  \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        rf_product(RF_TYPE_F32, type, type, true, scores + rf_heads_at(args.out, share.batch, share.head),           \
                   args.out.row, q + rf_heads_at(args.left, share.batch, share.head), args.left.row,                 \
                   k + rf_heads_at(args.right, share.batch, kv), args.right.row, q_rows, k_rows, dim,                \
                   share.tile / across * RF_PRODUCT_TILE, share.tile % across * RF_PRODUCT_TILE, args.scale,         \
                   shared);                                                                                          \
    }

QKT_MATMUL(f32, RF_TYPE_F32, float)
QKT_MATMUL(f16, RF_TYPE_F16, rf_f16)
QKT_MATMUL(bf16, RF_TYPE_BF16, rf_bf16)
