/* Conversions of weights and activations (see fast.h): dequantize, embedding, quantize_q8. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { PART = 512 }; /* elements at a time; a multiple of every block */

static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}

/* ---- weights to floats ---- */

struct widening {
    struct rf_cpu *cpu;
    enum rf_dtype from, type;
    const char *blocks;
    char *out;
    size_t count;
    /* For embedding: */
    const int32_t *indices;
    size_t table_rows;
};

/* Widens the elements first to first + count - 1 of a row of blocks. */
static void widen_range(const struct widening *op, char *out, const char *blocks, size_t count) {
    const struct rf_simd *simd = op->cpu->simd;
    if (rf_cpu_is_float(op->from)) {
        simd->cast[op->type][op->from](out, blocks, count);
        return;
    }
    size_t block = rf_dtype_block(op->from), block_bytes = rf_dtype_block_bytes(op->from);
    for (size_t from = 0; from < count; from += PART) {
        float wide[PART];
        size_t part = RF_MIN((size_t)PART, count - from);
        const char *at = blocks + from / block * block_bytes;
        if (op->type == RF_F32 && (uintptr_t)out % sizeof(float) == 0) {
            simd->widen(op->from, at, (float *)(void *)out + from, part);
            continue;
        }
        simd->widen(op->from, at, wide, part);
        simd->cast[op->type][RF_F32](out + from * element_bytes(op->type), wide, part);
    }
}
static void dequantize_parts(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct widening *op = user;
    size_t first = begin * PART, last = RF_MIN(op->count, end * PART);
    size_t block = rf_dtype_block(op->from), block_bytes = rf_dtype_block_bytes(op->from);
    widen_range(op, op->out + first * element_bytes(op->type), op->blocks + first / block * block_bytes,
                last - first);
}
static void embedding_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct widening *op = user;
    size_t row_bytes = op->count / rf_dtype_block(op->from) * rf_dtype_block_bytes(op->from);
    size_t out_bytes = op->count * element_bytes(op->type);
    for (size_t i = begin; i < end; i++) {
        bool known = op->indices[i] >= 0 && (size_t)op->indices[i] < op->table_rows;
        if (known)
            widen_range(op, op->out + i * out_bytes, op->blocks + (size_t)op->indices[i] * row_bytes, op->count);
        else
            memset(op->out + i * out_bytes, 0, out_bytes);
    }
}

static rf_status check_widening(const struct rf_cpu *cpu, const char *name, enum rf_dtype from, enum rf_dtype type,
                                size_t count) {
    if (!cpu) return rf_fail(RF_E_INVALID, "%s: cpu is NULL", name);
    size_t block = rf_dtype_block(from);
    if (block == 0 || (block == 1 && !rf_cpu_is_float(from)) || !rf_cpu_is_float(type))
        return rf_fail(RF_E_INVALID, "%s: %s to %s is not possible", name, rf_dtype_name(from), rf_dtype_name(type));
    if (count % block)
        return rf_fail(RF_E_INVALID, "%s: %zu elements are no whole number of blocks of %zu", name, count, block);
    return RF_OK;
}

rf_status rf_cpu_dequantize(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype from, const void *blocks,
                            const struct rf_dequantize_args *args) {
    size_t count = args->count;
    RF_TRY(check_widening(cpu, "dequantize", from, type, count));
    if (count && (!blocks || !out)) return rf_fail(RF_E_INVALID, "dequantize: a tensor is NULL");
    struct widening op = {.cpu = cpu, .from = from, .type = type, .blocks = blocks, .out = out, .count = count};
    rf_cpu_run(cpu, (count + PART - 1) / PART, 32, dequantize_parts, &op);
    return RF_OK;
}

rf_status rf_cpu_embedding(struct rf_cpu *cpu, enum rf_dtype type, void *out, enum rf_dtype table_type,
                           const void *table, const int32_t *indices, const struct rf_embedding_args *args) {
    RF_TRY(check_widening(cpu, "embedding", table_type, type, args->columns));
    if (args->count == 0 || args->columns == 0) return RF_OK;
    if (!indices || !out || (args->table_rows && !table)) return rf_fail(RF_E_INVALID, "embedding: a tensor is NULL");
    struct widening op = {.cpu = cpu,
                          .from = table_type,
                          .type = type,
                          .blocks = table,
                          .out = out,
                          .count = args->columns,
                          .indices = indices,
                          .table_rows = args->table_rows};
    rf_cpu_run(cpu, args->count, rf_cpu_grain(args->columns), embedding_rows, &op);
    return RF_OK;
}

/* ---- quantize_q8 ---- */

struct quantizing {
    struct rf_cpu *cpu;
    struct rf_quantize_q8_args args;
    enum rf_dtype type;
    const char *x;
    size_t parts; /* parts of a row */
    struct rf_q8_block *out;
};

/* Quantizes parts of a row with the function that the products use for their groups. */
static void quantize_blocks(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    const struct quantizing *op = user;
    size_t columns = op->args.columns;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / op->parts, from = i % op->parts * PART, count = RF_MIN((size_t)PART, columns - from);
        const char *x = op->x + (row * op->args.x_stride + from) * element_bytes(op->type);
        struct rf_q8_block *out = op->out + (row * columns + from) / RF_Q8_BLOCK;
        struct rf_act_group groups[PART / 128];
        float wide[PART];
        op->cpu->simd->cast[RF_F32][op->type](wide, x, count);
        op->cpu->simd->quantize(groups, wide, count, RF_ACT_PLAIN);
        for (size_t b = 0; b < count / RF_Q8_BLOCK; b++) {
            const struct rf_act_group *group = &groups[b / 4];
            out[b].scale = group->scale[b % 4];
            out[b].sum = isnan(out[b].scale) ? NAN : out[b].scale * (float)group->sum[b % 4];
            memcpy(out[b].quants, group->quants + b % 4 * RF_Q8_BLOCK, RF_Q8_BLOCK);
        }
    }
}

rf_status rf_cpu_quantize_q8(struct rf_cpu *cpu, struct rf_q8_block *out, enum rf_dtype type, const void *x,
                             const struct rf_quantize_q8_args *args) {
    size_t rows = args->rows, columns = args->columns, x_stride = args->x_stride;
    if (!cpu) return rf_fail(RF_E_INVALID, "quantize_q8: cpu is NULL");
    if (!rf_cpu_is_float(type))
        return rf_fail(RF_E_INVALID, "quantize_q8: activations of type %s are not f32, f16 or bf16",
                       rf_dtype_name(type));
    if (columns % RF_Q8_BLOCK || x_stride < columns)
        return rf_fail(RF_E_INVALID, "quantize_q8: %zu columns %zu apart: they must be a multiple of %d, not overlap",
                       columns, x_stride, RF_Q8_BLOCK);
    uint64_t work;
    size_t parts = (columns + PART - 1) / PART;
    if (rows == 0 || columns == 0) return RF_OK;
    if (!x || !out) return rf_fail(RF_E_INVALID, "quantize_q8: a tensor is NULL");
    if (rf_mul_overflows(rows, x_stride, &work) || rf_mul_overflows(work, sizeof(struct rf_q8_block), &work))
        return rf_fail(RF_E_INVALID, "quantize_q8: %zu rows of %zu overflow", rows, x_stride);
    struct quantizing op = {.cpu = cpu, .args = *args, .type = type, .x = x, .parts = parts, .out = out};
    rf_cpu_run(cpu, rows * parts, 16, quantize_blocks, &op);
    return RF_OK;
}
