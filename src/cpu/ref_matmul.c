/* Matrix products with weights, the obvious way (see ref_matmul.h). */
#include "cpu/ref_matmul.h"

#include <math.h>

#include "cpu/quant.h"
#include "cpu/reference.h"

_Static_assert(sizeof(struct rf_q8_block) == RF_Q8_BLOCK_BYTES, "the kernels and tensors know it by its size");

static double x_at(const struct rf_ref_matmul *op, size_t row, size_t k) {
    const struct rf_matmul_args *a = &op->args;
    if (!a->x_q8) return rf_element_get(op->x_type ? op->x_type : op->type, op->x, row * a->x_stride + k);
    const struct rf_q8_block *block =
        (const struct rf_q8_block *)op->x + row * (a->k / RF_Q8_BLOCK) + k / RF_Q8_BLOCK;
    return (double)block->scale * block->quants[k % RF_Q8_BLOCK];
}

/* The dot product of a weight row with an activation row, one block of weights after another. */
static double dot(const struct rf_ref_matmul *op, const void *weights, size_t column, size_t row) {
    size_t block = rf_dtype_block(op->weight_type), bytes = rf_dtype_block_bytes(op->weight_type), k = op->args.k;
    const char *from = (const char *)weights + column * (k / block) * bytes;
    float values[RF_BLOCK_LARGE];
    double sum = 0;
    for (size_t at = 0; at < k; at += block, from += bytes) {
        rf_dequantize_row(op->weight_type, from, values, block);
        for (size_t i = 0; i < block; i++) sum += values[i] * x_at(op, row, at + i);
    }
    return sum;
}

void rf_ref_matmul(const struct rf_ref_matmul *op) {
    for (size_t row = 0; row < op->args.m; row++)
        for (size_t column = 0; column < op->args.n; column++) {
            size_t at = row * op->args.out_stride + column;
            double value = dot(op, op->weights, column, row);
            if (op->gate) value = value / (1 + exp(-value)) * dot(op, op->gate, column, row);
            if (op->bias) value += op->bias[column];
            if (op->residual) value += rf_element_get(op->type, op->residual, at);
            rf_element_set(op->type, op->out, at, value);
        }
}

void rf_ref_dequantize(enum rf_dtype type, void *out, enum rf_dtype from, const void *blocks,
                       const struct rf_dequantize_args *args) {
    size_t block = rf_dtype_block(from), bytes = rf_dtype_block_bytes(from);
    float values[RF_BLOCK_LARGE];
    for (size_t at = 0; at < args->count; at += block) {
        rf_dequantize_row(from, (const char *)blocks + at / block * bytes, values, block);
        for (size_t i = 0; i < block; i++) rf_element_set(type, out, at + i, values[i]);
    }
}

void rf_ref_embedding(enum rf_dtype type, void *out, enum rf_dtype table_type, const void *table,
                      const int32_t *indices, const struct rf_embedding_args *args) {
    size_t columns = args->columns;
    size_t row_bytes = columns / rf_dtype_block(table_type) * rf_dtype_block_bytes(table_type);
    const struct rf_dequantize_args row = {columns};
    for (size_t r = 0; r < args->count; r++) {
        char *to = (char *)out + r * columns * rf_dtype_bytes(type);
        if (indices[r] >= 0 && (size_t)indices[r] < args->table_rows) {
            rf_ref_dequantize(type, to, table_type, (const char *)table + (size_t)indices[r] * row_bytes, &row);
        } else {
            for (size_t i = 0; i < columns; i++) rf_element_set(type, to, i, 0);
        }
    }
}

static void quantize_block(struct rf_q8_block *out, enum rf_dtype type, const void *x, size_t first) {
    float largest = 0;
    bool finite = true;
    int sum = 0;
    for (size_t i = 0; i < RF_Q8_BLOCK; i++) {
        float value = (float)rf_element_get(type, x, first + i);
        largest = fmaxf(largest, fabsf(value));
        finite &= isfinite(value) != 0;
    }
    if (largest < RF_Q8_TINY) largest = 0;
    float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    for (size_t i = 0; i < RF_Q8_BLOCK; i++) {
        float value = (float)rf_element_get(type, x, first + i);
        float q = fminf(fmaxf(nearbyintf(value * inverse), -127.0f), 127.0f);
        out->quants[i] = finite ? (int8_t)q : 0;
        sum += out->quants[i];
    }
    out->scale = finite ? largest / 127.0f : NAN;
    out->sum = finite ? out->scale * (float)sum : NAN;
}
void rf_ref_quantize_q8(struct rf_q8_block *out, enum rf_dtype type, const void *x,
                        const struct rf_quantize_q8_args *args) {
    size_t blocks = args->columns / RF_Q8_BLOCK;
    for (size_t r = 0; r < args->rows; r++)
        for (size_t b = 0; b < blocks; b++)
            quantize_block(&out[r * blocks + b], type, x, r * args->x_stride + b * RF_Q8_BLOCK);
}
