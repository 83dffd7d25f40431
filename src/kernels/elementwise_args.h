/* What the elementwise ops take besides pointers and element types: one definition for the kernels, the launchers
 * (ops/gpu_elementwise.h), the references (cpu/reference.h) and the fast CPU ops (cpu/fast.h).
 *
 * Strides are in elements. A kernel takes its struct by value, as the last argument. The kernels of fill, copy, add
 * and scale are the exception: programs launch them by name (examples/, docs/testing.md) and pass the members one by
 * one. */
#ifndef RF_KERNELS_ELEMENTWISE_ARGS_H
#define RF_KERNELS_ELEMENTWISE_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

/* The shape of a fast launch: blocks of RF_ELEMENTWISE_THREADS threads, and enough of them that a thread takes
 * RF_ELEMENTWISE_GROUPS groups (vectors of 16 bytes) of each array, all in flight together. */
enum { RF_ELEMENTWISE_THREADS = 256, RF_ELEMENTWISE_GROUPS = 4 };

/* fill, copy, add and scale, over dense arrays of count elements:
 *     fill   out[i] = the element with these bits
 *     copy   out[i] = in[i], converted to out's type
 *     add    out[i] = a[i] + b[i]
 *     scale  out[i] = in[i] * factor */
struct rf_elementwise_args {
    uint64_t count;
    float factor;  /* scale; else 0 */
    uint32_t bits; /* fill: of an f32 or an i32; else 0 */
};

/* copy_2d: out[r * out_row + c * out_column] = in[r * in_row + c * in_column], converted to out's type. */
struct rf_copy_2d_args {
    uint64_t rows, columns;
    uint64_t out_row, out_column, in_row, in_column;
};

/* multiply: out[r][c] = a[r][c] * b[r][c], plus c[r][c] where there is a c. Elements of a row are side by side; a row
 * stride of 0 repeats one row of an input. */
struct rf_multiply_args {
    uint64_t rows, columns;
    uint64_t out_row, a_row, b_row, c_row; /* c_row counts only where there is a c */
};

enum rf_activation {
    RF_ACTIVATION_SILU,     /* x / (1 + exp(-x)) */
    RF_ACTIVATION_GELU,     /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    RF_ACTIVATION_GELU_ERF, /* x (1 + erf(x / sqrt(2))) / 2 */
    RF_ACTIVATION_COUNT
};

/* activation: out[r][c] = act(gate[r][c]), times up[r][c] where there is an up. Elements of a row are side by side.
 * gate and up of f32 may give an out of f16 or bf16, for products that take these. */
struct rf_activation_args {
    uint64_t rows, columns;
    uint64_t out_row, gate_row, up_row; /* up_row counts only where there is an up */
    uint32_t kind;                      /* enum rf_activation; on the GPU there is a kernel for each kind */
    uint32_t unused;
};

#endif
