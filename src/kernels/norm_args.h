/* What the norms and softmax take besides pointers and element types: one definition for the kernels, the launchers
 * (ops/gpu_norm.h), the references (cpu/reference.h) and the fast CPU ops (cpu/fast.h).
 *
 * All work on the rows of dense matrices. A kernel takes its struct by value, as the last argument. softmax_f32 is
 * the exception: programs launch it by name (examples/, docs/testing.md) and pass rows and columns one by one. */
#ifndef RF_KERNELS_NORM_ARGS_H
#define RF_KERNELS_NORM_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

/* The shape of a launch. Any grid in x and any one-dimensional block of whole waves give the right result. Fast: a
 * lane holds RF_ROW_LANE_BYTES of a row, so a wave holds RF_ROW_WAVE_BYTES(lanes of a wave). A row of up to that many
 * bytes is taken by one wave, in blocks of RF_ROW_WAVE_THREADS threads. A longer row is taken by a block: the fewest
 * waves that hold the row, and at most RF_ROW_THREADS_MAX threads. There are as many blocks as the rows need. */
enum { RF_ROW_LANE_BYTES = 64, RF_ROW_WAVE_THREADS = 256, RF_ROW_THREADS_MAX = 1024 };
#define RF_ROW_WAVE_BYTES(wave) ((wave) * RF_ROW_LANE_BYTES)

/* rms_norm:   out[r][c] = in[r][c] / sqrt(mean of in[r]^2 + eps) * weight[c]
 * layer_norm: out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * weight[c] + bias[c], mean and variance of in[r]
 * add_norm:   sum = a + b, rounded to the type; out = rms_norm of sum
 * rms_norm of f32 may give f16 or bf16, for products that take these. */
struct rf_norm_args {
    uint64_t rows, columns;
    float eps;
    uint32_t unused;
};

/* softmax:      out[r][c] = exp(in[r][c] - max of in[r]) / sum over the row; only rows and columns count
 * softmax_mask: the same of in[r][c] * scale + mask[m][c]
 * in is [batch, heads, rows_each, columns] and mask [batch, rows_each, columns], so that row r of in meets row
 * m = r / (rows_each * heads) * rows_each + r % rows_each of the mask. Where one mask serves all batches, heads
 * counts the heads of all of them. */
struct rf_softmax_args {
    uint64_t rows, columns;
    uint64_t rows_each, heads; /* both at least 1; without a mask they do not matter */
    float scale;
    uint32_t unused;
};

#endif
