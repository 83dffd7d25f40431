/* What flash_attention_group.hip and its launchers must agree on: a block has four waves that fetch and two groups of
 * four waves, each with 64 queries. dim: the largest head size of a kernel, 64, 128 or 256.
 *
 * Plain C: kernels include it after kernel.h. */
#ifndef RF_KERNELS_ATTENTION_GROUP_ARGS_H
#define RF_KERNELS_ATTENTION_GROUP_ARGS_H

#define RF_FLASH_GROUP_THREADS 384
#define RF_FLASH_GROUP_QUERIES 128                        /* of a tile */
#define RF_FLASH_GROUP_KEYS(dim) ((dim) > 128 ? 64 : 128) /* of a stage */
#define RF_FLASH_GROUP_STAGES 2                           /* of keys, and of values */
#define RF_FLASH_GROUP_LINE 64                            /* elements of a head in a row of shared memory */
#define RF_FLASH_GROUP_ROWS 64                            /* of a box of queries and of results */
/* Queries, keys and values from a multiple of 1024 on, barriers, a word for each stage of keys. */
#define RF_FLASH_GROUP_SHARED(dim)                                                                                   \
    (1024 + RF_FLASH_GROUP_QUERIES * (dim) * 2 + 2 * RF_FLASH_GROUP_STAGES * RF_FLASH_GROUP_KEYS(dim) * (dim) * 2 +  \
     16 + 32 * RF_FLASH_GROUP_STAGES + 40 + 4 * RF_FLASH_GROUP_STAGES)

#endif
