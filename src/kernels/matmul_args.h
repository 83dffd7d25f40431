/* What the products with weights take besides pointers and element types: kernel, launcher, reference and fast CPU op
 * share these structs. With them what kernels and launchers must agree on: sizes of tiles, of blocks and of shared
 * memory.
 *
 * Plain C: kernels include it after kernel.h, which has the integer types. */
#ifndef RF_KERNELS_MATMUL_ARGS_H
#define RF_KERNELS_MATMUL_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

/* matmul, matmul_gate, matmul_q8:
 *     out[r][c] = sum over i of weights[c][i] * x[r][i], + bias[c], + residual[r][c]
 * or, with a gate, which excludes bias and residual,
 *     out[r][c] = silu(weights[c] . x[r]) * (gate[c] . x[r])
 * x is [m, k]; weights and gate are dense [n, k]; out and residual are [m, n]. */
struct rf_matmul_args {
    uint64_t n, k;       /* k: a multiple of the block of the weights' type */
    uint64_t m;          /* after n and k: these two then share a load with the pointers, which saves AMD registers */
    uint64_t x_stride;   /* elements from row to row of x; k where x_q8, whose blocks are dense */
    uint64_t out_stride; /* elements from row to row of out and of residual */
    uint32_t x_q8;       /* 1: x is blocks of 8 bits, struct rf_q8_block (quant_args.h) */
    uint32_t constant;   /* 1: no work on the queue writes weights or gate. A kernel may read them early */
};

/* How a product on the matrix units is cut along k. Only the launcher fills it; the reference has no use for it. */
struct rf_matmul_split {
    uint64_t depth;  /* of k in each part: a multiple of RF_MATMUL_TILE_DEPTH */
    uint32_t parts;  /* of k: planes of partial sums, f32 [parts, m, n], which matmul_join adds; 1: there are none */
    uint32_t stages; /* of shared memory, where they come with the launch: 2 to RF_MATMUL_TILE_STAGES_MAX */
};

/* Up to three matrices times one row of x: norm_qkv, norm_gate and cast_matmul for one row, and one row of the ops
 * above.
 *     out_i[c] = weights_i[c] . y (+ bias[c] + residual[c], of the first), or with a gate, which is weights_1,
 *     out_0[c] = silu(weights_0[c] . y) * (gate[c] . y)
 * where y is x; or with a norm, x / sqrt(mean of squares of x + eps) * norm. normed, where given, gets y. */
struct rf_norm_products_args {
    uint64_t k;     /* below 2^31 */
    uint64_t n[3];  /* rows of each matrix, together below 2^31; 0: there is none. With a gate n[1] and n[2] are 0 */
    float eps;      /* of the norm */
    uint32_t flags; /* RF_PRODUCTS_… */
};
#define RF_PRODUCTS_X_Q8 1u     /* x is blocks of 8 bits; no norm then, and no normed */
#define RF_PRODUCTS_GATE 2u     /* the second matrix is the gate */
#define RF_PRODUCTS_X_F16 4u    /* x is f16, not f32 */
#define RF_PRODUCTS_CONSTANT 8u /* as rf_matmul_args.constant: the first weights are fetched before x is there */

/* ---- many rows (matmul.hip, matmul_tile.h) ---- */

#define RF_MATMUL_THREADS 256 /* of a block of every matmul kernel */
#define RF_MATMUL_SIDE 64     /* on the vector units a block computes 64 by 64 outputs */

#define RF_MATMUL_TILE_ROWS 128       /* on the matrix units a block computes 128 rows */
#define RF_MATMUL_TILE_NARROW 128     /* by 128 columns (matmul_tile) */
#define RF_MATMUL_TILE_WIDE 256       /* or 256 (matmul_wide) */
#define RF_MATMUL_TILE_DEPTH 64       /* parts of k are multiples of this */
#define RF_MATMUL_TILE_LINE_BYTES 128 /* of a row of a stage, where stages come with the launch */
#define RF_MATMUL_TILE_STAGES_MAX 4
#define RF_MATMUL_TILE_BLOCKS_MAX ((uint64_t)1 << 28) /* of a grid */

/* ---- few rows (matvec.h, dots.h, matvec_pairs.hip) ---- */

/* Rows of x that one matvec kernel takes at once: up to here the weights are read once (dots.h: as far as the rows
 * fit into a block's shared memory). */
#define RF_MATVEC_ROWS 8
#define RF_MATVEC_OUTPUTS 2   /* columns of out that a block of matvec.h computes at once; 1 with a gate */
#define RF_MATVEC_THREADS 256 /* of such a block, at most */

/* A wave's ring of slots for slices of the weights, the largest of `most` bytes (stream.h). A slice begins at any
 * even byte: it lies as far behind a multiple of 16 in its slot as in memory. nvidia: a constant of the kernel, or
 * what the launcher knows of the device. */
#define RF_STREAM_SLOT(most) (((most) + 14 + 15) / 16 * 16)
#define RF_STREAM_SLOTS_ON(nvidia, most) ((nvidia) && (most) <= 1750 ? 3 : 2)

/* Elements of a slice that a lane has, and what a block holds of x for each lane and slice: a byte for each element,
 * and notes: scales and sums (dots.h). */
#define RF_DOTS_LANE 64
#define RF_DOTS_NOTES_BYTES 16
#define RF_DOTS_NOTES_BYTES_Q6_K 32
/* Of float weights, matvec_pairs.hip: a lane has this many elements of a slice, and x is f32. */
#define RF_PAIRS_LANE 16
#define RF_PAIRS_NOTES 128 /* bytes of shared memory before x; less would turn the copies behind them slow */

#endif
