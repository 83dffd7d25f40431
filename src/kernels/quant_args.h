/* What the ops on quantized types take besides pointers and element types, one struct per op: kernel, launcher,
 * reference and fast CPU op share it. With them the list of weight types and the layout of 8-bit activations, which
 * the products with weights (matmul_args.h) use too.
 *
 * Plain C: kernels include it after kernel.h, which has the integer types. */
#ifndef RF_KERNELS_QUANT_ARGS_H
#define RF_KERNELS_QUANT_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

/* quantize_q8: rows of activations to dense blocks of RF_Q8_BLOCK elements, struct rf_q8_block. */
struct rf_quantize_q8_args {
    uint64_t rows;
    uint64_t columns;  /* a multiple of RF_Q8_BLOCK */
    uint64_t x_stride; /* elements from row to row of x; on the GPU a multiple of RF_Q8_BLOCK */
};

/* dequantize: out[i] = element i of a run of quantized blocks, rounded to the type of out. */
struct rf_dequantize_args {
    uint64_t count; /* of elements: a multiple of the type's block */
};

/* embedding: row r of out = row indices[r] of a table, converted to the type of out; zeros where the index is outside
 * the table. Rows of the table and of out are dense. */
struct rf_embedding_args {
    uint64_t count;      /* of indices, and of rows of out */
    uint64_t columns;    /* a multiple of the block of the table's type */
    uint64_t table_rows; /* indices from 0 up to it name a row */
};

/* ---- activations in 8 bits ---- */

/* 32 elements; element i is scale * quants[i]. This layout is the library's own, not a file's. */
struct rf_q8_block {
    float scale; /* NaN if an element was not finite; all quants are 0 then */
    float sum;   /* of the 32 elements as they are here: scale * sum of quants; NaN along with scale */
    int8_t quants[32];
};
#define RF_Q8_BLOCK 32       /* elements of a block */
#define RF_Q8_BLOCK_BYTES 40 /* sizeof(struct rf_q8_block) */
#define RF_Q8_TINY 1e-30f    /* a block with nothing larger counts as zeros */

/* ---- types of weights ---- */

/* EACH(name, NAME, parts) for every type: RF_NAME is its dtype, RF_WEIGHT_NAME is what kernels call it, and `name`
 * stands in the names of kernels. parts: a thread decodes a unit at once, which has that many parts of 8 elements
 * (quant.h). */
#define RF_EACH_FLOAT_WEIGHT(EACH)                                                                                   \
    EACH(f32, F32, 1)                                                                                                \
    EACH(f16, F16, 1)                                                                                                \
    EACH(bf16, BF16, 1)
#define RF_EACH_QUANT_WEIGHT(EACH)                                                                                   \
    EACH(q4_0, Q4_0, 2)                                                                                              \
    EACH(q4_1, Q4_1, 2)                                                                                              \
    EACH(q5_0, Q5_0, 2)                                                                                              \
    EACH(q5_1, Q5_1, 2)                                                                                              \
    EACH(q8_0, Q8_0, 1)                                                                                              \
    EACH(q2_k, Q2_K, 4)                                                                                              \
    EACH(q3_k, Q3_K, 4)                                                                                              \
    EACH(q4_k, Q4_K, 2)                                                                                              \
    EACH(q5_k, Q5_K, 2)                                                                                              \
    EACH(q6_k, Q6_K, 4)                                                                                              \
    EACH(iq4_nl, IQ4_NL, 2)                                                                                          \
    EACH(iq4_xs, IQ4_XS, 2)

/* Threads of a block, at most. */
#define RF_QUANT_THREADS 256
/* Elements of a row that a thread of quantize_q8 takes. */
#define RF_QUANTIZE_Q8_SHARE_F32 8
#define RF_QUANTIZE_Q8_SHARE_16 16
/* Elements to f32 that a thread of dequantize takes: parts of 8 that are on their way together. Others take a unit.
 */
#define RF_DEQUANTIZE_PARTS 4

#endif
