/* qkt_matmul: scores[b][h][i][j] = scale * sum over d of q[b][h][i][d] * k[b][h'][j][d], where h' is
 * h / (heads_q / heads_kv); sums in f32. q and k have strides and a dense last dimension, scores are
 * f32 with strides. Any sizes from 1.
 *
 * Launch: blocks of 256 threads, one for each 64 x 64 of the scores: column tiles, then row tiles,
 * then heads_q, then batch, all in grid x. scores must not overlap q or k. */
#include "kernels/attention.h"

#define QKT_MATMUL(name, type, element)                                                                              \
    RF_KERNEL(qkt_matmul_##name, 256, (float *, scores), (const element *, q), (const element *, k),                 \
              (struct rf_heads, score_strides), (struct rf_heads, q_strides), (struct rf_heads, k_strides),          \
              (uint32_t, heads_q), (uint32_t, heads_kv), (uint32_t, q_rows), (uint32_t, k_rows), (uint32_t, dim),    \
              (float, scale)) {                                                                                      \
        RF_SHARED(float, shared, RF_PRODUCT_SHARED);                                                                 \
        uint32_t across = rf_tiles_of(k_rows, RF_PRODUCT_TILE), down = rf_tiles_of(q_rows, RF_PRODUCT_TILE);         \
        struct rf_share_of_heads share = rf_share_of_block(across * down, heads_q);                                  \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        rf_product(RF_TYPE_F32, type, type, true, scores + rf_heads_at(score_strides, share.batch, share.head),      \
                   score_strides.row, q + rf_heads_at(q_strides, share.batch, share.head), q_strides.row,            \
                   k + rf_heads_at(k_strides, share.batch, kv), k_strides.row, q_rows, k_rows, dim,                  \
                   share.tile / across * RF_PRODUCT_TILE, share.tile % across * RF_PRODUCT_TILE, scale, shared);     \
    }

QKT_MATMUL(f32, RF_TYPE_F32, float)
QKT_MATMUL(f16, RF_TYPE_F16, rf_f16)
QKT_MATMUL(bf16, RF_TYPE_BF16, rf_bf16)
