/* Launchers of the products with weights (see gpu_matmul.h).
 *
 * Grid and block depend on the shape alone: kernels sum in an order that depends on the block, and the
 * same input must give the same bits. */
#include "graph/gpu_matmul.h"

#include <stdio.h>

#include "base/base.h"

#define Q8_BLOCK 32
#define Q8_BLOCK_BYTES 40

/* ---- checks ---- */

/* A checked range of device memory. */
struct span {
    uint64_t first, bytes; /* address; 0 bytes: nothing */
    struct rf_arg arg;
};

static const char *type_suffix(enum rf_dtype dtype) {
    static const char *const names[RF_DTYPE_COUNT] = {
        [RF_F32] = "f32",   [RF_F16] = "f16",   [RF_BF16] = "bf16", [RF_Q4_0] = "q4_0",     [RF_Q4_1] = "q4_1",
        [RF_Q5_0] = "q5_0", [RF_Q5_1] = "q5_1", [RF_Q8_0] = "q8_0", [RF_Q2_K] = "q2_k",     [RF_Q3_K] = "q3_k",
        [RF_Q4_K] = "q4_k", [RF_Q5_K] = "q5_k", [RF_Q6_K] = "q6_k", [RF_IQ4_NL] = "iq4_nl", [RF_IQ4_XS] = "iq4_xs"};
    return (unsigned)dtype < RF_DTYPE_COUNT ? names[dtype] : NULL;
}
static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
static bool is_weight(enum rf_dtype dtype) {
    return type_suffix(dtype) != NULL;
}
static bool is_quantized(enum rf_dtype dtype) {
    return is_weight(dtype) && !is_float(dtype);
}
static const char *type_name(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT ? rf_dtype_name(dtype) : "no type";
}

/* Bytes of rows of columns elements, a stride apart; the last row ends with its elements. */
static bool rows_bytes_overflow(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t stride,
                                uint64_t *bytes) {
    uint64_t before, elements;
    *bytes = 0;
    if (!rows || !columns) return false;
    if (rf_mul_overflows(rows - 1, stride, &before) || rf_add_overflows(before, columns, &elements)) return true;
    return rf_mul_overflows(elements / rf_dtype_block(dtype), rf_dtype_block_bytes(dtype), bytes);
}

bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    return rf_mul_overflows(rows, columns / Q8_BLOCK, bytes) || rf_mul_overflows(*bytes, Q8_BLOCK_BYTES, bytes);
}

static rf_status take(const char *op, const char *what, const struct rf_rows_view *view, uint64_t bytes,
                      uint64_t align, struct span *span) {
    *span = (struct span){0, 0, rf_arg_buffer(NULL)};
    if (!view->buffer) {
        if (!bytes) return RF_OK;
        return rf_fail(RF_E_INVALID, "%s: %s has no buffer", op, what);
    }
    if (!rf_range_fits(view->offset_bytes, bytes, rf_buffer_bytes(view->buffer)))
        return rf_fail(RF_E_INVALID, "%s: %s needs %llu bytes from %llu on, its buffer has %llu", op, what,
                       (unsigned long long)bytes, (unsigned long long)view->offset_bytes,
                       (unsigned long long)rf_buffer_bytes(view->buffer));
    span->first = rf_buffer_address(view->buffer) + view->offset_bytes;
    span->bytes = bytes;
    span->arg = rf_arg_buffer_at(view->buffer, view->offset_bytes);
    if (span->first % align)
        return rf_fail(RF_E_INVALID, "%s: %s starts at a byte that is no multiple of %llu", op, what,
                       (unsigned long long)align);
    return RF_OK;
}
static bool overlap(const struct span *a, const struct span *b) {
    return a->bytes && b->bytes && a->first < b->first + b->bytes && b->first < a->first + a->bytes;
}
static rf_status apart(const char *op, const struct span *out, const char *what, const struct span *in) {
    return overlap(out, in) ? rf_fail(RF_E_INVALID, "%s: out overlaps %s", op, what) : RF_OK;
}
static rf_status need_device(const char *op, struct rf_queue *queue) {
    return queue ? RF_OK : rf_fail(RF_E_INVALID, "%s: no queue", op);
}

#define TRY(call)                                                                                                    \
    do {                                                                                                             \
        rf_status status_ = (call);                                                                                  \
        if (status_) return status_;                                                                                 \
    } while (0)

static rf_status launch(struct rf_queue *queue, const char *name, const uint32_t grid[2], uint32_t threads,
                        const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_launch, params);
    TRY(rf_kernel_find(rf_queue_device(queue), name, &params.kernel));
    params.grid[0] = grid[0];
    params.grid[1] = grid[1];
    params.block[0] = threads;
    params.args = args;
    params.arg_count = count;
    return rf_queue_launch(queue, &params);
}
/* Blocks for so many pieces of work; kernels go round where a grid is smaller. */
static uint32_t blocks_for(uint64_t work, uint64_t each, uint32_t most) {
    uint64_t blocks = work / each + (work % each != 0);
    return (uint32_t)RF_MAX(1, RF_MIN(blocks, most));
}
#define MOST_X 0x7fffffffu
#define MOST_Y 65535u
#define ROUND_X 65536u /* enough blocks for any device where kernels go round */

/* ---- matmul ---- */

struct matmul {
    const struct rf_matmul_args *args;
    uint64_t x_stride, out_stride;
    struct span out, weights, gate, x, bias, residual;
};

static rf_status check_matmul_types(const struct rf_matmul_args *a) {
    const char *op = "matmul";
    if (!is_weight(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s", op, type_name(a->weight_type));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(a->type));
    if (is_quantized(a->weight_type) && a->type != RF_F32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s take activations and output of F32, not %s", op,
                       type_name(a->weight_type), type_name(a->type));
    if (a->x_q8 && !is_quantized(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: 8-bit activations with weights of %s", op, type_name(a->weight_type));
    if (a->k % rf_dtype_block(a->weight_type))
        return rf_fail(RF_E_INVALID, "%s: k %llu is no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->k, rf_dtype_block(a->weight_type), type_name(a->weight_type));
    if (a->gate.buffer && (a->bias.buffer || a->residual.buffer))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a gate together with bias or residual", op);
    if ((a->path == RF_MATMUL_TILED || a->path == RF_MATMUL_MATRIX) && (a->gate.buffer || a->x_q8))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no tiles for a gate or 8-bit activations", op);
    if ((unsigned)a->path > RF_MATMUL_MATRIX) return rf_fail(RF_E_INVALID, "%s: no such path", op);
    return RF_OK;
}

static rf_status check_matmul(const struct rf_matmul_args *a, struct matmul *m) {
    const char *op = "matmul";
    bool quantized = is_quantized(a->weight_type);
    uint64_t weight_bytes, x_bytes, out_bytes, bias_bytes, element = rf_dtype_bytes(a->type);
    m->args = a;
    m->x_stride = a->x.stride ? a->x.stride : a->k;
    m->out_stride = a->out.stride ? a->out.stride : a->n;
    uint64_t residual_stride = a->residual.stride ? a->residual.stride : a->n;
    if (a->weights.stride || a->gate.stride || (a->x_q8 && a->x.stride))
        return rf_fail(RF_E_UNSUPPORTED, "%s: strides of weights or of 8-bit activations", op);
    if (m->x_stride < a->k || m->out_stride < a->n)
        return rf_fail(RF_E_INVALID, "%s: rows are longer than their stride", op);
    if (a->residual.buffer && residual_stride != m->out_stride)
        return rf_fail(RF_E_UNSUPPORTED, "%s: residual and out differ in stride", op);
    if (quantized && !a->x_q8 && m->x_stride % 4)
        return rf_fail(RF_E_INVALID, "%s: the stride of x, %llu, is no multiple of 4", op,
                       (unsigned long long)m->x_stride);
    if (rows_bytes_overflow(a->weight_type, a->n, a->k, a->k, &weight_bytes) ||
        rows_bytes_overflow(a->type, a->m, a->n, m->out_stride, &out_bytes) ||
        rf_mul_overflows(a->n, sizeof(float), &bias_bytes) ||
        (a->x_q8 ? rf_q8_bytes_overflow(a->m, a->k, &x_bytes)
                 : rows_bytes_overflow(a->type, a->m, a->k, m->x_stride, &x_bytes)))
        return rf_fail(RF_E_INVALID, "%s: %llu x %llu x %llu overflows", op, (unsigned long long)a->m,
                       (unsigned long long)a->n, (unsigned long long)a->k);
    TRY(take(op, "weights", &a->weights, weight_bytes, quantized ? 16 : rf_dtype_bytes(a->weight_type), &m->weights));
    TRY(take(op, "gate", &a->gate, a->gate.buffer ? weight_bytes : 0, quantized ? 16 : rf_dtype_bytes(a->weight_type),
             &m->gate));
    TRY(take(op, "x", &a->x, x_bytes, a->x_q8 ? 8 : quantized ? 16 : element, &m->x));
    TRY(take(op, "bias", &a->bias, a->bias.buffer ? bias_bytes : 0, sizeof(float), &m->bias));
    TRY(take(op, "residual", &a->residual, a->residual.buffer ? out_bytes : 0, element, &m->residual));
    TRY(take(op, "out", &a->out, out_bytes, element, &m->out));
    TRY(apart(op, &m->out, "weights", &m->weights));
    TRY(apart(op, &m->out, "gate", &m->gate));
    TRY(apart(op, &m->out, "x", &m->x));
    TRY(apart(op, &m->out, "bias", &m->bias));
    if (m->residual.bytes && m->residual.first != m->out.first) TRY(apart(op, &m->out, "residual", &m->residual));
    return RF_OK;
}

static struct rf_arg later(struct span span, uint64_t bytes) {
    if (span.arg.buffer) span.arg.offset += bytes;
    return span.arg;
}

/* Elements a thread takes at once, as in kernels/quant.h. */
static uint64_t unit_elements(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_F32:
    case RF_F16:
    case RF_BF16:
    case RF_Q8_0: return 8;
    case RF_Q2_K:
    case RF_Q3_K:
    case RF_Q6_K: return 32;
    default: return 16;
    }
}

/* Threads that share one output: each has a few units, so that loads overlap. */
static uint32_t matvec_threads(const struct rf_matmul_args *a) {
    uint64_t units = a->k / unit_elements(a->weight_type), threads = (units / 4 + 63) / 64 * 64;
    return (uint32_t)RF_MIN(RF_MAX(threads, 64), 256);
}

/* Rows from `first` on, RF_MATVEC_ROWS at most. */
static rf_status matvec(struct rf_queue *queue, const struct matmul *m, uint64_t first) {
    const struct rf_matmul_args *a = m->args;
    uint64_t rows = RF_MIN(a->m - first, RF_MATVEC_ROWS), element = rf_dtype_bytes(a->type);
    uint64_t x_bytes = a->x_q8 ? a->k / Q8_BLOCK * Q8_BLOCK_BYTES : m->x_stride * element;
    uint64_t out_bytes = m->out_stride * element;
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_%s_%d", type_suffix(a->weight_type), a->x_q8 ? "q8" : type_suffix(a->type),
             rows == 1   ? 1
             : rows <= 4 ? 4
                         : 8);
    struct rf_arg args[] = {later(m->out, first * out_bytes),
                            m->weights.arg,
                            m->gate.arg,
                            later(m->x, first * x_bytes),
                            m->bias.arg,
                            later(m->residual, first * out_bytes),
                            rf_arg_i64((int64_t)rows),
                            rf_arg_i64((int64_t)a->n),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)m->x_stride),
                            rf_arg_i64((int64_t)m->out_stride)};
    uint32_t grid[2] = {blocks_for(a->n, a->gate.buffer ? 1 : 2, MOST_X), 1};
    return launch(queue, name, grid, matvec_threads(a), args, RF_COUNT(args));
}

/* Whether the matrix units' kernels take it; a device without them has none. */
static bool matrix_takes(const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    bool types = a->weight_type != RF_F32 && (a->type == RF_F32 || a->type == a->weight_type);
    return types && a->k % 8 == 0 && m->x_stride % 8 == 0 && m->weights.first % 16 == 0 && m->x.first % 16 == 0;
}

/* Kernels that share one list of arguments; a block computes side by side outputs. */
static rf_status blocked(struct rf_queue *queue, const struct matmul *m, const char *kind, uint64_t side) {
    const struct rf_matmul_args *a = m->args;
    char name[64];
    snprintf(name, sizeof name, "%s_%s_%s", kind, type_suffix(a->weight_type), type_suffix(a->type));
    struct rf_arg args[] = {m->out.arg,
                            m->weights.arg,
                            m->x.arg,
                            m->bias.arg,
                            m->residual.arg,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)a->n),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)m->x_stride),
                            rf_arg_i64((int64_t)m->out_stride)};
    if (a->m > MOST_Y * side || a->n > MOST_X * side)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: more than %llu rows", (unsigned long long)(MOST_Y * side));
    uint32_t grid[2] = {blocks_for(a->n, side, MOST_X), blocks_for(a->m, side, MOST_Y)};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}

rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_matmul_args *args) {
    struct matmul m;
    TRY(need_device("matmul", queue));
    TRY(check_matmul_types(args));
    TRY(check_matmul(args, &m));
    if (!args->m || !args->n) return RF_OK;
    bool few = args->m <= RF_MATVEC_ROWS || args->gate.buffer || args->x_q8, matrix = matrix_takes(&m);
    if (args->path == RF_MATMUL_MATRIX && !matrix)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: these types, sizes or alignments do not suit the matrix units");
    if (args->path == RF_MATMUL_TILED) return blocked(queue, &m, "matmul", 64);
    if (args->path == RF_MATMUL_MATRIX) {
        rf_status status = blocked(queue, &m, "matmul_tile", 128);
        if (status != RF_E_NOT_FOUND) return status;
        return rf_fail(RF_E_UNSUPPORTED, "matmul: this device has no kernels for matrix units");
    }
    if (args->path == RF_MATMUL_AUTO && !few) {
        rf_status status = matrix ? blocked(queue, &m, "matmul_tile", 128) : RF_E_NOT_FOUND;
        return status == RF_E_NOT_FOUND ? blocked(queue, &m, "matmul", 64) : status;
    }
    for (uint64_t first = 0; first < args->m; first += RF_MATVEC_ROWS) TRY(matvec(queue, &m, first));
    return RF_OK;
}

/* ---- embedding, dequantize, quantize ---- */

rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_embedding_args *a) {
    const char *op = "embedding";
    TRY(need_device(op, queue));
    if (!is_weight(a->table_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a table of %s", op, type_name(a->table_type));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: output of %s", op, type_name(a->type));
    if (a->columns % rf_dtype_block(a->table_type))
        return rf_fail(RF_E_INVALID, "%s: %llu columns are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->columns, rf_dtype_block(a->table_type), type_name(a->table_type));
    if (a->out.stride || a->table.stride || a->indices.stride)
        return rf_fail(RF_E_UNSUPPORTED, "%s: strides; rows are dense", op);
    bool quantized = is_quantized(a->table_type);
    uint64_t table_bytes, out_bytes, index_bytes;
    struct span out, table, indices;
    if (rows_bytes_overflow(a->table_type, a->table_rows, a->columns, a->columns, &table_bytes) ||
        rows_bytes_overflow(a->type, a->count, a->columns, a->columns, &out_bytes) ||
        rf_mul_overflows(a->count, sizeof(int32_t), &index_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->count,
                       (unsigned long long)a->columns);
    TRY(take(op, "table", &a->table, table_bytes, quantized ? 16 : rf_dtype_bytes(a->table_type), &table));
    TRY(take(op, "indices", &a->indices, index_bytes, sizeof(int32_t), &indices));
    TRY(take(op, "out", &a->out, out_bytes, quantized ? 16 : rf_dtype_bytes(a->type), &out));
    TRY(apart(op, &out, "table", &table));
    TRY(apart(op, &out, "indices", &indices));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "embedding_%s_%s", type_suffix(a->table_type), type_suffix(a->type));
    struct rf_arg args[] = {out.arg,
                            table.arg,
                            indices.arg,
                            rf_arg_i64((int64_t)a->count),
                            rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)a->table_rows)};
    uint64_t units = a->columns / unit_elements(a->table_type);
    uint32_t threads = units <= 64 ? 64 : units <= 128 ? 128 : 256;
    uint32_t grid[2] = {blocks_for(units, threads, ROUND_X), blocks_for(a->count, 1, MOST_Y)};
    return launch(queue, name, grid, threads, args, RF_COUNT(args));
}

rf_status rf_gpu_dequantize(struct rf_queue *queue, const struct rf_dequantize_args *a) {
    const char *op = "dequantize";
    TRY(need_device(op, queue));
    if (!is_quantized(a->from)) return rf_fail(RF_E_UNSUPPORTED, "%s: from %s", op, type_name(a->from));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: to %s", op, type_name(a->type));
    if (a->count % rf_dtype_block(a->from))
        return rf_fail(RF_E_INVALID, "%s: %llu elements are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->count, rf_dtype_block(a->from), type_name(a->from));
    uint64_t in_bytes, out_bytes;
    struct span out, in;
    if (rows_bytes_overflow(a->from, 1, a->count, 0, &in_bytes) ||
        rows_bytes_overflow(a->type, 1, a->count, 0, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu elements overflow", op, (unsigned long long)a->count);
    TRY(take(op, "in", &a->in, in_bytes, 16, &in));
    TRY(take(op, "out", &a->out, out_bytes, 16, &out));
    TRY(apart(op, &out, "in", &in));
    if (!a->count) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "dequantize_%s_%s", type_suffix(a->from), type_suffix(a->type));
    struct rf_arg args[] = {out.arg, in.arg, rf_arg_i64((int64_t)a->count)};
    uint32_t grid[2] = {blocks_for(a->count / unit_elements(a->from), 256, ROUND_X), 1};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}

rf_status rf_gpu_quantize_q8(struct rf_queue *queue, const struct rf_quantize_q8_args *a) {
    const char *op = "quantize_q8";
    uint64_t stride = a->x.stride ? a->x.stride : a->columns, x_bytes, out_bytes;
    struct span out, x;
    TRY(need_device(op, queue));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(a->type));
    if (a->columns % Q8_BLOCK || stride % Q8_BLOCK || stride < a->columns)
        return rf_fail(RF_E_INVALID,
                       "%s: columns %llu and stride %llu must be multiples of %d, the stride no smaller", op,
                       (unsigned long long)a->columns, (unsigned long long)stride, Q8_BLOCK);
    if (a->out.stride) return rf_fail(RF_E_UNSUPPORTED, "%s: a stride of the blocks; they are dense", op);
    if (rows_bytes_overflow(a->type, a->rows, a->columns, stride, &x_bytes) ||
        rf_q8_bytes_overflow(a->rows, a->columns, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->rows,
                       (unsigned long long)a->columns);
    TRY(take(op, "x", &a->x, x_bytes, 16, &x));
    TRY(take(op, "out", &a->out, out_bytes, 8, &out));
    TRY(apart(op, &out, "x", &x));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "quantize_q8_%s", type_suffix(a->type));
    struct rf_arg args[] = {out.arg, x.arg, rf_arg_i64((int64_t)a->rows), rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)stride)};
    uint32_t grid[2] = {blocks_for(a->columns / 8, 256, ROUND_X), blocks_for(a->rows, 1, MOST_Y)};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}
