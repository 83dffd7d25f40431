/* What the attention tests ask of a backend. There are two: raced_backend.c, which must not be
 * imitated, and safe_backend.c, which does the same work on the same device layer without shared
 * state. The tests are the same file for both.
 *
 * Matrices are dense, row after row, of f32, in host memory. A failing driver call ends the test. */
#ifndef BACKEND_H
#define BACKEND_H

#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

/* Before a process's first test of a suite and after its last: what a backend keeps between calls. */
void backend_open(void);
void backend_close(void);

/* out[rows][columns] = weights[rows][inner] * values[inner][columns] */
void backend_weighted_matmul(float *out, const float *weights, const float *values, size_t rows, size_t inner,
                             size_t columns);
/* out[rows][keys] = queries[rows][dim] * transpose of keys[keys][dim] */
void backend_qkt_matmul(float *out, const float *queries, const float *keys, size_t rows, size_t key_count,
                        size_t dim);
/* Attention without a mask: softmax(queries * keys' / sqrt(dim)) * values, all [sequence][dim]. */
void backend_flash_nocausal(float *out, const float *queries, const float *keys, const float *values, size_t sequence,
                            size_t dim);
void backend_softmax(float *out, const float *in, size_t rows, size_t columns);
void backend_scale(float *out, const float *in, float factor, size_t count);
/* out[r][c] = masked where c > r, else 0. */
void backend_causal_mask(float *out, float masked, size_t sequence);
/* The first 'count' elements of a new device buffer of 'size' elements are in's; the rest is zero. */
void backend_copy(float *out, const float *in, size_t count, size_t size);

#endif
