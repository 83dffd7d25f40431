/* causal_mask: in place, scores[b][h][i][j] = -inf for j > i + offset (attention_args.h). Scores that stay visible
 * are neither read nor written: the cost is the stores of the hidden part.
 *
 * Launch: one-dimensional blocks of whole waves. A wave takes a row at a time; grid x is over the rows, y over the
 * heads, z over the batch. Any grid is right; RF_HEAD_ROWS_THREADS threads a block and a wave for every row are fast.
 */
#include "kernels/attention.h"

#define RF_LINE 128 /* bytes */

/* A lane stores 16 bytes, four times a turn; from the first turn on the wave writes whole lines of memory. The two
 * ends of the row are stored element by element. */
RF_DEVICE void mask_row(enum rf_type type, void *row, uint64_t first, uint64_t columns) {
    uint32_t bits = type == RF_TYPE_F32 ? 0xff800000u : type == RF_TYPE_F16 ? 0xfc00fc00u : 0xff80ff80u;
    uint32_t group = 16 / rf_type_bytes(type), lane = rf_lane();
    uint8_t *from = (uint8_t *)rf_at_mutable(type, row, first), *end = (uint8_t *)rf_at_mutable(type, row, columns);
    uint8_t *aligned = from + (16 - ((uintptr_t)from & 15)) % 16;
    if (aligned > end) aligned = end;
    uint8_t *aligned_end = aligned + (uint64_t)(end - aligned) / 16 * 16;
    rf_u32x4 hidden = {bits, bits, bits, bits};
    uint8_t *to = aligned - ((uintptr_t)aligned & (RF_LINE - 1)) + lane * 16;
    if (to >= aligned && to < aligned_end) rf_store_16(to, hidden);
    to += RF_WAVE * 16;
    RF_NO_UNROLL
    for (; to + 3 * RF_WAVE * 16 < aligned_end; to += 4 * RF_WAVE * 16) {
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) rf_store_16(to + i * RF_WAVE * 16, hidden);
    }
    RF_NO_UNROLL
    for (; to < aligned_end; to += RF_WAVE * 16) rf_store_16(to, hidden);
    /* There are fewer than 16 bytes before and after. */
    uint8_t *head = from + lane * rf_type_bytes(type), *tail = aligned_end + lane * rf_type_bytes(type);
    if (lane < group && head < aligned) rf_store(type, head, 0, -RF_INFINITY);
    if (lane < group && tail < end) rf_store(type, tail, 0, -RF_INFINITY);
}

/* Three loops and no division: a row often takes only a few stores. */
RF_DEVICE void mask_rows(enum rf_type type, void *scores, const struct rf_causal_mask_args *args) {
    struct rf_head_strides strides = args->scores;
    uint32_t batch = (uint32_t)args->batch, heads = (uint32_t)args->heads, rows = (uint32_t)args->rows;
    uint64_t columns = args->columns;
    uint32_t waves = rf_block_dim_x() / RF_WAVE;
    RF_NO_UNROLL
    for (uint64_t b = rf_block_z(); b < batch; b += rf_grid_dim_z()) {
        RF_NO_UNROLL
        for (uint64_t h = rf_block_y(); h < heads; h += rf_grid_dim_y()) {
            RF_NO_UNROLL
            for (uint64_t row = (uint64_t)rf_block_x() * waves + rf_thread_x() / RF_WAVE; row < rows;
                 row += (uint64_t)rf_grid_dim_x() * waves) {
                int64_t first = (int64_t)row + args->offset + 1;
                uint64_t at = b * strides.batch + h * strides.head + row * strides.row;
                if (first < 0) first = 0;
                if ((uint64_t)first < columns)
                    mask_row(type, rf_at_mutable(type, scores, at), (uint64_t)first, columns);
            }
        }
    }
}

#define CAUSAL_MASK(name, type, element)                                                                             \
    RF_KERNEL(causal_mask_##name, RF_MAX_THREADS, (element *, scores), (struct rf_causal_mask_args, args)) {         \
        mask_rows(type, scores, &args);                                                                              \
    }

CAUSAL_MASK(f32, RF_TYPE_F32, float)
CAUSAL_MASK(f16, RF_TYPE_F16, rf_f16)
CAUSAL_MASK(bf16, RF_TYPE_BF16, rf_bf16)
