/* What the ops that only move elements take besides pointers and element types: one definition for the kernels, the
 * launchers (ops/gpu_move.h) and the references (cpu/reference.h).
 *
 * Sizes and strides are in elements. A kernel takes its struct by value, as the last argument. */
#ifndef RF_KERNELS_MOVE_ARGS_H
#define RF_KERNELS_MOVE_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

/* permute (the op transpose): out[i0 i1 i2 i3] = in[i0 i1 i2 i3] for all indices below size, converted to out's type;
 * each array has strides of its own. A stride of 0 repeats elements of in. Fewer dimensions: those that are not used
 * have a size of 1. */
struct rf_permute_args {
    uint64_t size[4], out_stride[4], in_stride[4];
};
/* Vectors that a thread of permute has in flight, each from another index of dimension 2. */
enum { RF_PERMUTE_SLOTS = 4 };

/* transpose, a case of permute that the launcher recognizes: out[b][c][r] = in[b][r][c]; elements of a row are side
 * by side, rows and matrices are at strides. */
struct rf_transpose_args {
    uint64_t matrices, rows, columns; /* as in has them */
    uint64_t out_matrix, out_row, in_matrix, in_row;
};
/* The tile of in that a block of transpose takes where everything is aligned: RF_TRANSPOSE_COLUMNS columns and
 * RF_TRANSPOSE_ROW_BYTES / (bytes of an element) rows. */
enum { RF_TRANSPOSE_COLUMNS = 64, RF_TRANSPOSE_ROW_BYTES = 256 };
enum { RF_TRANSPOSE_THREADS_X = 32, RF_TRANSPOSE_THREADS_Y = 8 };

/* concat: up to four dense arrays [outer][width[k]] joined to out[outer][sum of all widths]. outer is the product of
 * the dimensions before the joined one, width[k] that of the joined dimension and those after it. A width of 0 leaves
 * its array out. */
enum { RF_CONCAT_INPUTS = 4 };
struct rf_concat_args {
    uint64_t outer, width[RF_CONCAT_INPUTS];
};
/* Rows that a thread of concat has in flight. */
enum { RF_CONCAT_ROWS = 4 };

#endif
