/* What matmul_group.hip and its launcher must agree on. A block has four waves that fetch and two groups of four
 * waves that multiply; it computes tiles of outputs one after the other, from stages of k.
 *
 * Plain C: kernels include it after kernel.h. */
#ifndef RF_KERNELS_MATMUL_GROUP_ARGS_H
#define RF_KERNELS_MATMUL_GROUP_ARGS_H

#define RF_GROUP_THREADS 384
#define RF_GROUP_ROWS 128    /* of a tile: of x */
#define RF_GROUP_COLUMNS 256 /* of a tile: rows of the weights */
#define RF_GROUP_DEPTH 64    /* elements of k in a stage */
#define RF_GROUP_STAGES 4
/* Of a block: stages from a multiple of 1024 on, four buffers for results, barriers. */
#define RF_GROUP_SHARED (1024 + RF_GROUP_STAGES * 49152 + 4 * 8192 + 16 * RF_GROUP_STAGES + 16)

/* The maps' boxes, all with rows of 128 bytes: of x and of the weights, and of out. */
#define RF_GROUP_BOX_ROWS 128
#define RF_GROUP_OUT_ROWS 64
#define RF_GROUP_OUT_LINE 128 /* bytes */

#endif
