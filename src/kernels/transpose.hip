/* permute_<from>_<to>: out[i0 i1 i2 i3] = in[i0 i1 i2 i3] for all indices below size0..size3, each array
 * with four strides of its own, in elements: any transpose, view or repetition (a stride of 0 in the input)
 * of up to four dimensions; converted where the types differ, the same bits where not.
 * transpose_<bytes>: out[b][c][r] = in[b][r][c] for elements of 4 or 2 bytes, through shared memory, so that both
 * sides are accessed along their rows; strides between rows and between matrices, in elements.
 *
 * permute: x takes dimension 3, y dimension 2, z dimensions 0 and 1; any grid, any block up to two
 * dimensions. transpose: a block of 32 x 8 threads takes tiles of 32 x 32: x takes columns, y rows, z matrices;
 * any grid. The arrays may not overlap. */
#include "kernels/kernel.h"

struct permute_strides {
    uint64_t by[4];
};

/* One element, as bits where the types are the same: f32 would not keep a NaN's. */
RF_DEVICE void permute_one(enum rf_type from, enum rf_type to, void *out, uint64_t out_at, const void *in,
                           uint64_t in_at) {
    if (from != to) {
        rf_store(to, out, out_at, rf_load(from, in, in_at));
    } else if (from == RF_TYPE_F32) {
        ((uint32_t *)out)[out_at] = ((const uint32_t *)in)[in_at];
    } else {
        ((uint16_t *)out)[out_at] = ((const uint16_t *)in)[in_at];
    }
}

RF_DEVICE void permute_body(enum rf_type from, enum rf_type to, void *out, const void *in,
                            struct permute_strides size, struct permute_strides out_stride,
                            struct permute_strides in_stride) {
    uint64_t y_step = (uint64_t)rf_grid_dim_y() * rf_block_dim_y();
    RF_NO_UNROLL
    for (uint64_t z = rf_block_z(); z < size.by[0] * size.by[1]; z += rf_grid_dim_z()) {
        uint64_t i0 = z / size.by[1], i1 = z % size.by[1];
        uint64_t out_z = i0 * out_stride.by[0] + i1 * out_stride.by[1];
        uint64_t in_z = i0 * in_stride.by[0] + i1 * in_stride.by[1];
        RF_NO_UNROLL
        for (uint64_t y = (uint64_t)rf_block_y() * rf_block_dim_y() + rf_thread_y(); y < size.by[2]; y += y_step)
            RF_NO_UNROLL
        for (uint64_t x = rf_global_x(); x < size.by[3]; x += rf_global_count_x())
            permute_one(from, to, out, out_z + y * out_stride.by[2] + x * out_stride.by[3], in,
                        in_z + y * in_stride.by[2] + x * in_stride.by[3]);
    }
}

#define PERMUTE(from_name, from_type, from, to_name, to_type, to)                                                    \
    RF_KERNEL(permute_##from_name##_##to_name, 256, (to_type *, out), (const from_type *, in),                       \
              (struct permute_strides, size), (struct permute_strides, out_stride),                                  \
              (struct permute_strides, in_stride)) {                                                                 \
        permute_body(from, to, out, in, size, out_stride, in_stride);                                                \
    }

PERMUTE(f32, float, RF_TYPE_F32, f32, float, RF_TYPE_F32)
PERMUTE(f32, float, RF_TYPE_F32, f16, rf_f16, RF_TYPE_F16)
PERMUTE(f32, float, RF_TYPE_F32, bf16, rf_bf16, RF_TYPE_BF16)
PERMUTE(f16, rf_f16, RF_TYPE_F16, f32, float, RF_TYPE_F32)
PERMUTE(f16, rf_f16, RF_TYPE_F16, f16, rf_f16, RF_TYPE_F16)
PERMUTE(f16, rf_f16, RF_TYPE_F16, bf16, rf_bf16, RF_TYPE_BF16)
PERMUTE(bf16, rf_bf16, RF_TYPE_BF16, f32, float, RF_TYPE_F32)
PERMUTE(bf16, rf_bf16, RF_TYPE_BF16, f16, rf_f16, RF_TYPE_F16)
PERMUTE(bf16, rf_bf16, RF_TYPE_BF16, bf16, rf_bf16, RF_TYPE_BF16)

enum { TILE = 32, TILE_ROWS = 8, TILE_STRIDE = TILE + 1 };

/* tile: TILE rows of TILE_STRIDE words. */
RF_DEVICE void transpose_tile(bool wide, void *out, const void *in, uint64_t rows, uint64_t columns, uint64_t row0,
                              uint64_t column0, uint64_t out_row, uint64_t in_row, uint32_t *tile) {
    uint32_t x = rf_thread_x(), y = rf_thread_y();
    RF_UNROLL
    for (uint32_t k = 0; k < TILE; k += TILE_ROWS) {
        uint64_t row = row0 + y + k, column = column0 + x;
        if (row < rows && column < columns) {
            uint64_t at = row * in_row + column;
            tile[(y + k) * TILE_STRIDE + x] = wide ? ((const uint32_t *)in)[at] : ((const uint16_t *)in)[at];
        }
    }
    rf_barrier();
    RF_UNROLL
    for (uint32_t k = 0; k < TILE; k += TILE_ROWS) {
        uint64_t row = row0 + x, column = column0 + y + k;
        if (row < rows && column < columns) {
            uint64_t at = column * out_row + row;
            uint32_t value = tile[x * TILE_STRIDE + y + k];
            if (wide) {
                ((uint32_t *)out)[at] = value;
            } else {
                ((uint16_t *)out)[at] = (uint16_t)value;
            }
        }
    }
    rf_barrier();
}

#define TRANSPOSE(bytes, element)                                                                                    \
    RF_KERNEL(transpose_##bytes, 256, (element *, out), (const element *, in), (uint64_t, matrices),                 \
              (uint64_t, rows), (uint64_t, columns), (uint64_t, out_matrix), (uint64_t, out_row),                    \
              (uint64_t, in_matrix), (uint64_t, in_row)) {                                                           \
        RF_SHARED(uint32_t, tile, TILE *TILE_STRIDE);                                                                \
        RF_NO_UNROLL                                                                                                 \
        for (uint64_t matrix = rf_block_z(); matrix < matrices; matrix += rf_grid_dim_z()) RF_NO_UNROLL              \
        for (uint64_t row = (uint64_t)rf_block_y() * TILE; row < rows; row += (uint64_t)rf_grid_dim_y() * TILE)      \
            RF_NO_UNROLL                                                                                             \
        for (uint64_t column = (uint64_t)rf_block_x() * TILE; column < columns;                                      \
             column += (uint64_t)rf_grid_dim_x() * TILE)                                                             \
            transpose_tile(bytes == 4, out + matrix * out_matrix, in + matrix * in_matrix, rows, columns, row,       \
                           column, out_row, in_row, tile);                                                           \
    }

TRANSPOSE(4, uint32_t)
TRANSPOSE(2, uint16_t)
