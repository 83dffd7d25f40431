/* flash_attention, as attention_args.h says: the scores are never in memory. mask NULL: none. A NaN or +inf among the
 * scores of a row makes the row NaN. v must be finite. out, q, k and v are of the type in the kernel's name;
 * arithmetic and sums are in f32.
 *
 * dim is a multiple of 8, at most RF_ATTENTION_DIM_MAX. q, k, v, out and their strides are aligned to 16 bytes. out
 * must not overlap the inputs.
 *
 * flash_attention_TYPE: blocks of RF_ATTENTION_THREADS, one for each RF_ATTENTION_TILE queries: tiles, then heads_q,
 * then batch, all in grid x. */
#include "kernels/attention.h"

/* Of one batch and key-value head, in one piece. */
RF_DEVICE struct rf_keys flash_keys(enum rf_type type, const void *k, const void *v,
                                    const struct rf_flash_attention_args *args, uint32_t batch, uint32_t head) {
    struct rf_keys keys = {rf_at(type, k, rf_heads_at(args->k, batch, head)),
                           rf_at(type, v, rf_heads_at(args->v, batch, head)),
                           args->k.row,
                           args->v.row,
                           0,
                           0,
                           0,
                           0,
                           false,
                           0,
                           0};
    return keys;
}
RF_DEVICE struct rf_query_view flash_view(const float *mask, const struct rf_flash_attention_args *args,
                                          struct rf_share_of_heads share) {
    /* The offset is chosen, not the pointer: else AMD's compiler no longer knows that the mask is global memory. */
    uint64_t offset = mask ? rf_heads_at(args->mask, share.batch, share.head) : 0;
    struct rf_query_view view = {rf_size(&args->q_rows), rf_size(&args->k_rows), args->offset, mask + offset,
                                 args->mask.row};
    return view;
}

#define FLASH_ATTENTION(name, type, element)                                                                         \
    RF_KERNEL(flash_attention_##name, RF_ATTENTION_THREADS, (element *, out), (const element *, q),                  \
              (const element *, k), (const element *, v), (const float *, mask),                                     \
              (struct rf_flash_attention_args, args)) {                                                              \
        RF_SHARED(float, shared, RF_ATTENTION_SHARED);                                                               \
        uint32_t heads_q = rf_size(&args.heads_q), group = heads_q / rf_size(&args.heads_kv);                        \
        uint32_t tiles = rf_tiles_of(rf_size(&args.q_rows), RF_ATTENTION_TILE);                                      \
        struct rf_share_of_heads share = rf_share_of_block(tiles, heads_q);                                          \
        struct rf_keys keys = flash_keys(type, k, v, &args, share.batch, share.head / group);                        \
        struct rf_query_view view = flash_view(mask, &args, share);                                                  \
        rf_attend_tile(type, false, false, type, out + rf_heads_at(args.out, share.batch, share.head), args.out.row, \
                       q + rf_heads_at(args.q, share.batch, share.head), args.q.row, &keys, &view,                   \
                       share.tile * RF_ATTENTION_TILE, rf_size(&args.dim), args.scale, shared);                      \
    }

FLASH_ATTENTION(f32, RF_TYPE_F32, float)
FLASH_ATTENTION(f16, RF_TYPE_F16, rf_f16)
FLASH_ATTENTION(bf16, RF_TYPE_BF16, rf_bf16)

/* ---- on matrix units ------------------------------------------------------------------------------------- */

/* flash_attention_matrix_TYPE_dD: the same for 16-bit types and head sizes up to D; weights are rounded to the type.
 * Launch: blocks of RF_MATRIX_WAVES waves, one for each RF_MATRIX_QUERIES queries: tiles, then heads_q, then batch,
 * all in grid x. A head's last queries come first, for with a causal offset they have most to do. Dynamic shared
 * memory: RF_MATRIX_TILES_BYTES with two tiles.
 *
 * flash_attention_matrix_TYPE_d128_wide: without a mask; a block for each RF_WIDE_QUERIES queries. Dynamic shared
 * memory: RF_MATRIX_TILES_BYTES with RF_WIDE_TILES, and RF_WIDE_NOTES_BYTES more.
 *
 * rf-matrix: flash_attention_matrix_* */
#include "kernels/attention_wide.h"

#ifndef RF_TILE_ABSENT

#define FLASH_MATRIX_OF(name, type_, shape_, queries_, wide_)                                                        \
    RF_KERNEL(flash_attention_matrix_##name, RF_MATRIX_THREADS_MAX, (uint16_t *, out), (const uint16_t *, q),        \
              (const uint16_t *, k), (const uint16_t *, v), (const float *, mask),                                   \
              (struct rf_flash_attention_args, args)) {                                                              \
        RF_SHARED_DYNAMIC(uint16_t, flash_shared);                                                                   \
        struct rf_matrix_shape shape = shape_;                                                                       \
        uint32_t heads_q = rf_size(&args.heads_q), group = heads_q / rf_size(&args.heads_kv);                        \
        uint32_t q_rows = rf_size(&args.q_rows), tiles = rf_tiles_of(q_rows, queries_);                              \
        struct rf_share_of_heads share = rf_share_of_block(tiles, heads_q);                                          \
        struct rf_keys keys = flash_keys(type_, k, v, &args, share.batch, share.head / group);                       \
        struct rf_query_view view = flash_view(wide_ ? 0 : mask, &args, share);                                      \
        uint32_t first = (tiles - 1 - share.tile) * queries_;                                                        \
        uint16_t *to = out + rf_heads_at(args.out, share.batch, share.head);                                         \
        const uint16_t *from = q + rf_heads_at(args.q, share.batch, share.head);                                     \
        RF_NO_UNROLL                                                                                                 \
        for (uint32_t past = 0; past < queries_ && first + past < q_rows; past += shape.queries) {                   \
            if (wide_) {                                                                                             \
                rf_attend_wide(type_, shape, to, args.out.row, from, args.q.row, &keys, &view, first + past,         \
                               rf_size(&args.dim), args.scale, flash_shared);                                        \
            } else {                                                                                                 \
                rf_attend_matrix(type_, false, shape, type_, to, args.out.row, from, args.q.row, &keys, &view,       \
                                 first + past, rf_size(&args.dim), args.scale, flash_shared);                        \
            }                                                                                                        \
        }                                                                                                            \
    }

#define FLASH_MATRIX(name, type, dim)                                                                                \
    FLASH_MATRIX_OF(name##_d##dim, type, RF_MATRIX_SHAPE(dim), RF_MATRIX_QUERIES, false)

RF_MATRIX_DIMS(FLASH_MATRIX, f16, RF_TYPE_F16)
RF_MATRIX_DIMS(FLASH_MATRIX, bf16, RF_TYPE_BF16)
FLASH_MATRIX_OF(f16_d128_wide, RF_TYPE_F16, RF_WIDE_SHAPE, RF_WIDE_QUERIES, true)
FLASH_MATRIX_OF(bf16_d128_wide, RF_TYPE_BF16, RF_WIDE_SHAPE, RF_WIDE_QUERIES, true)

#endif
