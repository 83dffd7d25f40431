/* weighted_matmul: out[b][h][i][d] = sum over j of weights[b][h][i][j] * v[b][h'][j][d], where h' is
 * h / (heads_q / heads_kv); sums in f32, rounded once. weights are f32; out and v are of one type; all
 * have strides and a dense last dimension. Any sizes from 1.
 *
 * Launch: blocks of 256 threads, one for each 64 x 64 of out: column tiles, then row tiles, then
 * heads_q, then batch, all in grid x. out must not overlap weights or v. */
#include "kernels/attention.h"

#define WEIGHTED_MATMUL(name, type, element)                                                                         \
    RF_KERNEL(weighted_matmul_##name, 256, (element *, out), (const float *, weights), (const element *, v),         \
              (struct rf_heads, out_strides), (struct rf_heads, weight_strides), (struct rf_heads, v_strides),       \
              (uint32_t, heads_q), (uint32_t, heads_kv), (uint32_t, q_rows), (uint32_t, k_rows), (uint32_t, dim)) {  \
        RF_SHARED(float, shared, RF_PRODUCT_SHARED);                                                                 \
        uint32_t across = rf_tiles_of(dim, RF_PRODUCT_TILE), down = rf_tiles_of(q_rows, RF_PRODUCT_TILE);            \
        struct rf_share_of_heads share = rf_share_of_block(across * down, heads_q);                                  \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        rf_product(type, RF_TYPE_F32, type, false, out + rf_heads_at(out_strides, share.batch, share.head),          \
                   out_strides.row, weights + rf_heads_at(weight_strides, share.batch, share.head),                  \
                   weight_strides.row, v + rf_heads_at(v_strides, share.batch, kv), v_strides.row, q_rows, dim,      \
                   k_rows, share.tile / across * RF_PRODUCT_TILE, share.tile % across * RF_PRODUCT_TILE, 1.0f,       \
                   shared);                                                                                          \
    }

WEIGHTED_MATMUL(f32, RF_TYPE_F32, float)
WEIGHTED_MATMUL(f16, RF_TYPE_F16, rf_f16)
WEIGHTED_MATMUL(bf16, RF_TYPE_BF16, rf_bf16)
