/* permute_<from>_<to>: out[i0 i1 i2 i3] = in[i0 i1 i2 i3], each array with four strides of its own: any transpose,
 * view or repetition (a stride of 0 in the input) of up to four dimensions; converted where the types differ, with
 * the same bits where they do not. Where dimension 3 is dense in both arrays and everything is aligned, it is moved
 * in vectors.
 *
 * transpose_<bytes>: out[b][c][r] = in[b][r][c] for elements of 4 or 2 bytes, through shared memory, so that both
 * sides are accessed along their rows. In vectors where everything is aligned and there are whole vectors of rows and
 * of columns. move_args.h has the arguments of both.
 *
 * permute: x takes dimensions 0 and 1, y dimension 2, z dimension 3; in a block x takes dimension 3 and y dimension
 * 2; any grid, any block of up to two dimensions. Fast with vectors: a thread in x for each vector of dimension 3,
 * one in y for RF_PERMUTE_SLOTS of dimension 2. (Neighbouring blocks take neighbours in dimension 1: what is far
 * apart in one array is dense in the other, and so both are covered together.) transpose: a block of
 * RF_TRANSPOSE_THREADS_X x RF_TRANSPOSE_THREADS_Y threads takes tiles as move_args.h says, or of 32 x 32
 * elements where it cannot use vectors: x takes columns, y rows, z matrices; any grid. The arrays may not overlap. */
#include "kernels/elementwise.h"
#include "kernels/move_args.h"

/* One element, as bits where the types are the same: going through f32 would not keep the bits of a NaN. */
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

/* Whether dimension 3 of an array with these strides is made of whole groups, each aligned. */
RF_DEVICE bool permute_grouped(enum rf_type type, uint32_t group, const void *base, const uint64_t *size,
                               const uint64_t *stride) {
    uint32_t bytes = group * rf_type_bytes(type);
    return stride[3] == 1 && (size[3] | stride[0] | stride[1] | stride[2]) % group == 0 &&
           rf_aligned(base, bytes < 16 ? bytes : 16);
}

/* One group of each of RF_PERMUTE_SLOTS rows, y_step apart from y on; rows from y_end on are left out. */
RF_DEVICE void permute_groups(enum rf_type from, enum rf_type to, uint32_t group, void *out, uint64_t out_at,
                              uint64_t out_step, const void *in, uint64_t in_at, uint64_t in_step, uint64_t y,
                              uint64_t y_step, uint64_t y_end) {
    rf_u32x4 raw[RF_PERMUTE_SLOTS];
    float values[RF_PERMUTE_SLOTS][8];
    RF_UNROLL
    for (uint32_t slot = 0; slot < RF_PERMUTE_SLOTS; slot++) {
        if (y + slot * y_step < y_end) {
            if (from == to) {
                raw[slot] = rf_load_16(rf_at(from, in, in_at + slot * in_step));
            } else {
                rf_load_many(from, group, in, in_at + slot * in_step, values[slot]);
            }
        }
    }
    RF_UNROLL
    for (uint32_t slot = 0; slot < RF_PERMUTE_SLOTS; slot++) {
        if (y + slot * y_step < y_end) {
            if (from == to) {
                rf_store_16(rf_at_mutable(to, out, out_at + slot * out_step), raw[slot]);
            } else {
                rf_store_many(to, group, out, out_at + slot * out_step, values[slot]);
            }
        }
    }
}

RF_DEVICE void permute_body(enum rf_type from, enum rf_type to, void *out, const void *in,
                            struct rf_permute_args args) {
    const uint64_t *size = args.size, *out_stride = args.out_stride, *in_stride = args.in_stride;
    uint32_t group = rf_group_of(from, to);
    bool grouped =
        permute_grouped(to, group, out, size, out_stride) && permute_grouped(from, group, in, size, in_stride);
    uint64_t x_first = (uint64_t)rf_block_z() * rf_block_dim_x() + rf_thread_x();
    uint64_t x_step = (uint64_t)rf_grid_dim_z() * rf_block_dim_x();
    uint64_t y_dim = rf_block_dim_y(), slots = grouped ? RF_PERMUTE_SLOTS : 1;
    uint64_t y_first = rf_block_y() * y_dim * slots + rf_thread_y(), y_step = rf_grid_dim_y() * y_dim * slots;
    RF_NO_UNROLL
    for (uint64_t z = rf_block_x(); z < size[0] * size[1]; z += rf_grid_dim_x()) {
        uint64_t i0 = z / size[1], i1 = z % size[1];
        uint64_t out_z = i0 * out_stride[0] + i1 * out_stride[1];
        uint64_t in_z = i0 * in_stride[0] + i1 * in_stride[1];
        RF_NO_UNROLL
        for (uint64_t y = y_first; y < size[2]; y += y_step) {
            uint64_t out_y = out_z + y * out_stride[2], in_y = in_z + y * in_stride[2];
            if (grouped) {
                RF_NO_UNROLL
                for (uint64_t x = x_first * group; x < size[3]; x += x_step * group)
                    permute_groups(from, to, group, out, out_y + x, y_dim * out_stride[2], in, in_y + x,
                                   y_dim * in_stride[2], y, y_dim, size[2]);
            } else {
                RF_NO_UNROLL
                for (uint64_t x = x_first; x < size[3]; x += x_step)
                    permute_one(from, to, out, out_y + x * out_stride[3], in, in_y + x * in_stride[3]);
            }
        }
    }
}

#define PERMUTE(from_name, from_type, from, to_name, to_type, to)                                                    \
    RF_KERNEL(permute_##from_name##_##to_name, 256, (to_type *, out), (const from_type *, in),                       \
              (struct rf_permute_args, args)) {                                                                      \
        permute_body(from, to, out, in, args);                                                                       \
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

enum { TILE = RF_TRANSPOSE_THREADS_X, TILE_ROWS = RF_TRANSPOSE_THREADS_Y, TILE_STRIDE = TILE + 1 };

/* tile: TILE rows of TILE_STRIDE words. */
RF_DEVICE void transpose_tile(bool wide, void *out, const void *in, uint64_t rows, uint64_t columns, uint64_t row0,
                              uint64_t column0, uint64_t out_row, uint64_t in_row, uint32_t *tile) {
    uint32_t x = rf_opaque(rf_thread_x()), y = rf_opaque(rf_thread_y());
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

/* In vectors of 'each' elements: 4 of 4 bytes or 8 of 2. A tile is WIDE columns of the input and WIDE_VECTORS vectors
 * of rows. In shared memory its rows follow each other, and vector v of row r lies at place v ^ (r / each) of its
 * row: so neither the rows that are written nor the columns that are read meet in a bank. A thread reads a word from
 * each of 'each' rows: a vector of out, or two. */
enum {
    WIDE = RF_TRANSPOSE_COLUMNS,
    WIDE_VECTORS = RF_TRANSPOSE_ROW_BYTES / 16,
    WIDE_THREADS = RF_TRANSPOSE_THREADS_X * RF_TRANSPOSE_THREADS_Y,
    WIDE_WORDS = WIDE * WIDE_VECTORS * 4
};

RF_DEVICE uint32_t wide_slot(uint32_t each, uint32_t row, uint32_t vector) {
    return row * (WIDE / each) + (vector ^ (row / each % 8));
}

RF_DEVICE void transpose_wide(uint32_t each, uint16_t *out, const uint16_t *in, uint64_t rows, uint64_t columns,
                              uint64_t row0, uint64_t column0, uint64_t out_row, uint64_t in_row, uint32_t *tile) {
    enum { loads = WIDE * WIDE_VECTORS / WIDE_THREADS }; /* of a thread */
    /* Opaque, so that the addresses are computed in the loop over the tiles, not kept in registers around it. */
    uint32_t thread = rf_opaque(rf_thread_y() * rf_block_dim_x() + rf_thread_x());
    uint32_t units = 8 / each;                                  /* of 2 bytes in an element */
    uint32_t vectors = WIDE / each;                             /* in a row of the tile */
    uint32_t reads = WIDE_VECTORS * vectors * 4 / WIDE_THREADS; /* of a thread */
    rf_u32x4 held[loads];
    RF_UNROLL
    for (uint32_t k = 0; k < loads; k++) {
        uint32_t at = thread + k * WIDE_THREADS, row = at / vectors, column = at % vectors * each;
        held[k] = (rf_u32x4){0, 0, 0, 0};
        if (row0 + row < rows && column0 + column < columns)
            held[k] = rf_load_16(in + ((row0 + row) * in_row + column0 + column) * units);
    }
    RF_UNROLL
    for (uint32_t k = 0; k < loads; k++) {
        uint32_t at = thread + k * WIDE_THREADS;
        rf_store_16(tile + 4 * wide_slot(each, at / vectors, at % vectors), held[k]);
    }
    rf_barrier();
    /* 8 neighbouring threads write 128 bytes of a row of out. */
    RF_UNROLL
    for (uint32_t k = 0; k < reads; k++) {
        uint32_t rest = thread / 32 + k * (WIDE_THREADS / 32), word = thread / 8 % 4;
        uint32_t row = (thread % 8 + rest % 2 * 8) * each, vector = rest / 2;
        uint32_t read[8];
        RF_UNROLL
        for (uint32_t i = 0; i < each; i++) read[i] = tile[4 * wide_slot(each, row + i, vector) + word];
        uint64_t column = column0 + vector * each + word * (each / 4);
        if (row0 + row >= rows || column >= columns) continue;
        uint16_t *to = out + (column * out_row + row0 + row) * units;
        if (each == 4) {
            rf_u32x4 whole = {read[0], read[1], read[2], read[3]};
            rf_store_16(to, whole);
        } else {
            rf_u32x4 low, high;
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                low[i] = (read[2 * i] & 0xffff) | read[2 * i + 1] << 16;
                high[i] = read[2 * i] >> 16 | (read[2 * i + 1] & 0xffff0000);
            }
            rf_store_16(to, low);
            rf_store_16(to + out_row, high);
        }
    }
    rf_barrier();
}

#define TRANSPOSE(bytes, element)                                                                                    \
    RF_KERNEL(transpose_##bytes, 256, (element *, out), (const element *, in), (struct rf_transpose_args, args)) {   \
        RF_SHARED(uint32_t, tile, WIDE_WORDS);                                                                       \
        const uint32_t each = 16 / bytes;                                                                            \
        uint64_t rows = args.rows, columns = args.columns;                                                           \
        bool wide = (rows | columns | args.out_row | args.in_row | args.out_matrix | args.in_matrix) % each == 0 &&  \
                    rf_aligned(out, 16) && rf_aligned(in, 16);                                                       \
        uint32_t high = wide ? WIDE_VECTORS * each : TILE, across = wide ? WIDE : TILE;                              \
        RF_NO_UNROLL                                                                                                 \
        for (uint64_t matrix = rf_block_z(); matrix < args.matrices; matrix += rf_grid_dim_z()) RF_NO_UNROLL         \
        for (uint64_t row = (uint64_t)rf_block_y() * high; row < rows; row += (uint64_t)rf_grid_dim_y() * high)      \
            RF_NO_UNROLL                                                                                             \
        for (uint64_t column = (uint64_t)rf_block_x() * across; column < columns;                                    \
             column += (uint64_t)rf_grid_dim_x() * across) {                                                         \
            element *to = out + matrix * args.out_matrix;                                                            \
            const element *from = in + matrix * args.in_matrix;                                                      \
            if (wide) {                                                                                              \
                transpose_wide(each, (uint16_t *)to, (const uint16_t *)from, rows, columns, row, column,             \
                               args.out_row, args.in_row, tile);                                                     \
            } else {                                                                                                 \
                transpose_tile(bytes == 4, to, from, rows, columns, row, column, args.out_row, args.in_row, tile);   \
            }                                                                                                        \
        }                                                                                                            \
    }

TRANSPOSE(4, uint32_t)
TRANSPOSE(2, uint16_t)
