/* flash_attention: out = softmax(scale * q k^T + mask, over the keys that a query sees) v, without the
 * scores ever being in memory. Query i sees the keys j <= i + offset (causal with so many keys before
 * the first query; offset = k_rows: all of them). mask is f32, added to the scaled scores, with strides
 * of which 0 repeats, or NULL. A query that sees nothing, or whose mask is -inf throughout, gives zeros;
 * a NaN or +inf among its scores makes a row NaN. v must be finite. out, q, k and v are of one type and
 * have strides and a dense last dimension; arithmetic and sums in f32.
 *
 * dim: a multiple of 8, at most 256. q, k, v, out and their strides are aligned to 16 bytes.
 *
 * Launch: blocks of 256 threads, one for each 32 queries: tiles, then heads_q, then batch, all in grid
 * x. out must not overlap the inputs. */
#include "kernels/attention.h"

#define FLASH_ATTENTION(name, type, element)                                                                         \
    RF_KERNEL(flash_attention_##name, 256, (element *, out), (const element *, q), (const element *, k),             \
              (const element *, v), (const float *, mask), (struct rf_heads, out_strides),                           \
              (struct rf_heads, q_strides), (struct rf_heads, k_strides), (struct rf_heads, v_strides),              \
              (struct rf_heads, mask_strides), (uint32_t, heads_q), (uint32_t, heads_kv), (uint32_t, q_rows),        \
              (uint32_t, k_rows), (uint32_t, dim), (float, scale), (int64_t, offset)) {                              \
        RF_SHARED(float, shared, RF_TILE_SHARED);                                                                    \
        struct rf_share_of_heads share = rf_share_of_block(rf_tiles_of(q_rows, RF_TILE), heads_q);                   \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        struct rf_keys keys = {k + rf_heads_at(k_strides, share.batch, kv),                                          \
                               v + rf_heads_at(v_strides, share.batch, kv),                                          \
                               k_strides.row,                                                                        \
                               v_strides.row,                                                                        \
                               0,                                                                                    \
                               0,                                                                                    \
                               0,                                                                                    \
                               0,                                                                                    \
                               false,                                                                                \
                               0,                                                                                    \
                               0};                                                                                   \
        struct rf_query_view view = {q_rows, k_rows, offset, mask, mask_strides.row};                                \
        if (mask) view.mask += rf_heads_at(mask_strides, share.batch, share.head);                                   \
        rf_attend_tile(type, false, false, type, out + rf_heads_at(out_strides, share.batch, share.head),            \
                       out_strides.row, q + rf_heads_at(q_strides, share.batch, share.head), q_strides.row, &keys,   \
                       &view, share.tile * RF_TILE, dim, scale, shared);                                             \
    }

FLASH_ATTENTION(f32, RF_TYPE_F32, float)
FLASH_ATTENTION(f16, RF_TYPE_F16, rf_f16)
FLASH_ATTENTION(bf16, RF_TYPE_BF16, rf_bf16)

/* ---- on matrix units ------------------------------------------------------------------------------------- */

/* flash_attention_matrix_TYPE_dD: the same for 16-bit types and head sizes up to D, with weights rounded to
 * the type. Launch: blocks of 4 waves (256 threads where there are no matrix units); a block for each 64
 * queries, the last ones of a head first (with causal they have most to do): tiles, then heads_q, then
 * batch, all in grid x. Dynamic shared memory: (64 + 2 * keys) * (D + 8) * 2 bytes, at least 21632, where
 * keys is 64, or for D = 256 32 on NVIDIA and 16 elsewhere. flash_attention_matrix_TYPE_d128_wide: a block
 * for each 128 queries, without a mask; (128 + 4 * 64) * (D + 8) * 2 + 32 bytes on NVIDIA, (128 + 2 * 32) * (D + 8) *
 * 2 + 32 elsewhere. */
#include "kernels/attention_wide.h"

#define FLASH_MATRIX_OF(name, type_, shape_, queries_, wide_)                                                        \
    RF_KERNEL(flash_attention_matrix_##name, RF_MATRIX_THREADS, (uint16_t *, out), (const uint16_t *, q),            \
              (const uint16_t *, k), (const uint16_t *, v), (const float *, mask), (struct rf_heads, out_strides),   \
              (struct rf_heads, q_strides), (struct rf_heads, k_strides), (struct rf_heads, v_strides),              \
              (struct rf_heads, mask_strides), (uint32_t, heads_q), (uint32_t, heads_kv), (uint32_t, q_rows),        \
              (uint32_t, k_rows), (uint32_t, dim), (float, scale), (int64_t, offset)) {                              \
        RF_SHARED_DYNAMIC(uint16_t, flash_shared);                                                                   \
        struct rf_matrix_shape shape = shape_;                                                                       \
        uint32_t tiles = rf_tiles_of(q_rows, queries_);                                                              \
        struct rf_share_of_heads share = rf_share_of_block(tiles, heads_q);                                          \
        uint32_t kv = share.head / (heads_q / heads_kv);                                                             \
        struct rf_keys keys = {k + rf_heads_at(k_strides, share.batch, kv),                                          \
                               v + rf_heads_at(v_strides, share.batch, kv),                                          \
                               k_strides.row,                                                                        \
                               v_strides.row,                                                                        \
                               0,                                                                                    \
                               0,                                                                                    \
                               0,                                                                                    \
                               0,                                                                                    \
                               false,                                                                                \
                               0,                                                                                    \
                               0};                                                                                   \
        struct rf_query_view view = {q_rows, k_rows, offset, wide_ ? 0 : mask, mask_strides.row};                    \
        if (view.mask) view.mask += rf_heads_at(mask_strides, share.batch, share.head);                              \
        uint32_t first = (tiles - 1 - share.tile) * queries_;                                                        \
        uint16_t *to = out + rf_heads_at(out_strides, share.batch, share.head);                                      \
        const uint16_t *from = q + rf_heads_at(q_strides, share.batch, share.head);                                  \
        RF_NO_UNROLL                                                                                                 \
        for (uint32_t past = 0; past < queries_ && first + past < q_rows; past += shape.queries) {                   \
            if (wide_) {                                                                                             \
                rf_attend_wide(type_, shape, to, out_strides.row, from, q_strides.row, &keys, &view, first + past,   \
                               dim, scale, flash_shared);                                                            \
            } else {                                                                                                 \
                rf_attend_matrix(type_, false, shape, type_, to, out_strides.row, from, q_strides.row, &keys, &view, \
                                 first + past, dim, scale, flash_shared);                                            \
            }                                                                                                        \
        }                                                                                                            \
    }

#define FLASH_MATRIX(name, type_, dim_, queries_, keys_)                                                             \
    FLASH_MATRIX_OF(name, type_, RF_MATRIX_SHAPE(dim_, queries_, keys_), queries_, false)

RF_MATRIX_VARIANTS(FLASH_MATRIX, f16, RF_TYPE_F16)
RF_MATRIX_VARIANTS(FLASH_MATRIX, bf16, RF_TYPE_BF16)
FLASH_MATRIX_OF(f16_d128_wide, RF_TYPE_F16, RF_WIDE_SHAPE(128), 128, true)
FLASH_MATRIX_OF(bf16_d128_wide, RF_TYPE_BF16, RF_WIDE_SHAPE(128), 128, true)
