/* Launchers of the products with weights (see gpu_matmul.h).
 *
 * Grid and block depend on the shape alone: kernels sum in an order that depends on the block, and the
 * same input must give the same bits. */
#include "ops/gpu_matmul_impl.h"

bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    return rf_mul_overflows(rows, columns / Q8_BLOCK, bytes) || rf_mul_overflows(*bytes, Q8_BLOCK_BYTES, bytes);
}

/* ---- matmul ---- */

static bool on_units(enum rf_matmul_path path) {
    return path == RF_MATMUL_MATRIX || path == RF_MATMUL_WIDE;
}

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
    if ((a->path == RF_MATMUL_TILED || on_units(a->path)) && (a->gate.buffer || a->x_q8))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no tiles for a gate or 8-bit activations", op);
    if (a->path == RF_MATMUL_DOTS && !is_quantized(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: products of bytes with weights of %s", op, type_name(a->weight_type));
    if ((unsigned)a->path > RF_MATMUL_WIDE) return rf_fail(RF_E_INVALID, "%s: no such path", op);
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
    RF_TRY(
        take(op, "weights", &a->weights, weight_bytes, quantized ? 16 : rf_dtype_bytes(a->weight_type), &m->weights));
    RF_TRY(take(op, "gate", &a->gate, a->gate.buffer ? weight_bytes : 0,
                quantized ? 16 : rf_dtype_bytes(a->weight_type), &m->gate));
    RF_TRY(take(op, "x", &a->x, x_bytes, a->x_q8 ? 8 : quantized ? 16 : element, &m->x));
    RF_TRY(take(op, "bias", &a->bias, a->bias.buffer ? bias_bytes : 0, sizeof(float), &m->bias));
    RF_TRY(take(op, "residual", &a->residual, a->residual.buffer ? out_bytes : 0, element, &m->residual));
    RF_TRY(take(op, "out", &a->out, out_bytes, element, &m->out));
    RF_TRY(apart(op, &m->out, "weights", &m->weights));
    RF_TRY(apart(op, &m->out, "gate", &m->gate));
    RF_TRY(apart(op, &m->out, "x", &m->x));
    RF_TRY(apart(op, &m->out, "bias", &m->bias));
    if (m->residual.bytes && m->residual.first != m->out.first) RF_TRY(apart(op, &m->out, "residual", &m->residual));
    return RF_OK;
}

rf_status rf_matmul_check(const struct rf_matmul_args *args, struct matmul *m) {
    RF_TRY(check_matmul_types(args));
    return check_matmul(args, m);
}

/* Many rows on the vector units; a block computes 64 by 64 outputs. */
static rf_status tiled(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    const uint64_t side = 64;
    char name[64];
    snprintf(name, sizeof name, "matmul_%s_%s", type_suffix(a->weight_type), type_suffix(a->type));
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
    if (a->m > Y_MAX * side || a->n > X_MAX * side)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: more than %llu rows", (unsigned long long)(Y_MAX * side));
    uint32_t grid[2] = {blocks_for(a->n, side, X_MAX), blocks_for(a->m, side, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, 256, 0), args, RF_COUNT(args));
}

/* ---- matmul on the matrix units: operands to 16 bits, the product, and its parts joined ---- */

#define MATRIX_THREADS 256
#define MATRIX_ROWS 128 /* of a tile; as in kernels/matmul_tile.h, like what follows */
#define MATRIX_NARROW 128
#define MATRIX_WIDE 256
#define MATRIX_LINE_BYTES 128 /* of a row of a stage, where stages come with the launch */
#define MATRIX_STAGES 4       /* at most */
#define MATRIX_BLOCKS ((uint64_t)1 << 28)
#define MATRIX_DEPTH 64
#define MATRIX_ENOUGH 96          /* wide tiles that keep a large GPU busy */
#define MATRIX_FILL 128           /* narrow tiles that do; with fewer, k is split */
#define MATRIX_PARTS 8            /* of k, at most, */
#define MATRIX_PART_LEAST 512     /* of at least so much of it */
#define MATRIX_DECODED (64 << 20) /* bytes of weights decoded at once, at most (but for one tile's) */
#define MATRIX_ALIGN 256

/* Sizes of one product, or of the part of it that takes `columns` of the outputs. By shape alone: sums depend on it.
 */
struct matrix_split {
    bool wide;
    uint64_t parts, depth;
};
static struct matrix_split split_of(const struct rf_matmul_args *a, uint64_t columns) {
    struct matrix_split split = {a->path == RF_MATMUL_WIDE, 1, 0};
    uint64_t down = a->m / MATRIX_ROWS + (a->m % MATRIX_ROWS != 0);
    uint64_t across = columns / MATRIX_WIDE + (columns % MATRIX_WIDE != 0);
    bool enough = down >= MATRIX_ENOUGH || across >= MATRIX_ENOUGH || down * across >= MATRIX_ENOUGH;
    if (enough && columns > MATRIX_NARROW) split.wide = true;
    if (!split.wide) {
        uint64_t tiles = down * (columns / MATRIX_NARROW + (columns % MATRIX_NARROW != 0));
        split.parts = RF_MIN(MATRIX_FILL / RF_MAX(tiles, 1), RF_MIN(a->k / MATRIX_PART_LEAST, MATRIX_PARTS));
        split.parts = RF_MAX(split.parts, 1);
    }
    uint64_t each = a->k / split.parts + (a->k % split.parts != 0);
    split.depth = RF_MAX((each + MATRIX_DEPTH - 1) / MATRIX_DEPTH, 1) * MATRIX_DEPTH;
    split.parts = RF_MAX(a->k / split.depth + (a->k % split.depth != 0), 1);
    return split;
}

/* Where things lie in the workspace. */
struct matrix_plan {
    uint64_t columns; /* whose weights are decoded at once; all, where none need be */
    uint64_t x, weights, partial, bytes;
};
static bool plan_overflows(uint64_t count, uint64_t each, uint64_t *at, struct matrix_plan *plan) {
    uint64_t bytes;
    *at = plan->bytes;
    return rf_mul_overflows(count, each, &bytes) || rf_round_up_overflows(bytes, MATRIX_ALIGN, &bytes) ||
           rf_add_overflows(plan->bytes, bytes, &plan->bytes);
}
static rf_status plan_matrix(const struct rf_matmul_args *a, struct matrix_plan *plan) {
    *plan = (struct matrix_plan){.columns = a->n};
    if (is_quantized(a->weight_type) && a->k) {
        uint64_t columns = MATRIX_DECODED / 2 / a->k / MATRIX_WIDE * MATRIX_WIDE;
        plan->columns = RF_MIN(a->n, RF_MAX(columns, MATRIX_WIDE));
    }
    uint64_t x = 0, weights = 0, partial = 0, rest = plan->columns ? a->n % plan->columns : 0;
    bool overflows = (a->type == RF_F32 && rf_mul_overflows(a->m, a->k, &x)) ||
                     (is_quantized(a->weight_type) && rf_mul_overflows(plan->columns, a->k, &weights));
    for (int i = 0; i < 2 && !overflows; i++) { /* the rest may be split where the others are not */
        uint64_t columns = i ? rest : plan->columns, parts = split_of(a, columns).parts, sums;
        overflows = rf_mul_overflows(a->m, columns, &sums) || rf_mul_overflows(sums, parts, &sums);
        if (!overflows && parts > 1) partial = RF_MAX(partial, sums);
    }
    if (overflows || plan_overflows(x, 2, &plan->x, plan) || plan_overflows(weights, 2, &plan->weights, plan) ||
        plan_overflows(partial, sizeof(float), &plan->partial, plan))
        return rf_fail(RF_E_INVALID, "matmul: the workspace of %llu x %llu x %llu overflows",
                       (unsigned long long)a->m, (unsigned long long)a->n, (unsigned long long)a->k);
    return RF_OK;
}

/* Whether the matrix units' kernels take types and sizes; a device without them has none. */
static bool matrix_suits(const struct rf_matmul_args *a) {
    bool types = a->weight_type != RF_F32 && (a->type == RF_F32 || a->type == a->weight_type);
    return types && !a->gate.buffer && !a->x_q8 && a->k % 8 == 0 && a->k <= INT32_MAX;
}
static bool matrix_takes(const struct matmul *m) {
    return matrix_suits(m->args) && m->x_stride % 8 == 0 && m->weights.first % 16 == 0 && m->x.first % 16 == 0;
}

rf_status rf_gpu_matmul_workspace(const struct rf_matmul_args *a, uint64_t *bytes) {
    struct matrix_plan plan;
    RF_TRY(check_matmul_types(a));
    bool wanted = on_units(a->path) || (a->path == RF_MATMUL_AUTO && a->m > RF_MATVEC_ROWS);
    *bytes = 0;
    if (!wanted || !matrix_suits(a) || !a->m || !a->n) return RF_OK;
    RF_TRY(plan_matrix(a, &plan));
    *bytes = plan.bytes;
    return RF_OK;
}

/* The workspace, checked; part of it as an argument. */
struct matrix {
    const struct matmul *m;
    struct matrix_plan plan;
    struct span workspace;
    enum rf_dtype unit; /* F16 or BF16: what weights and activations are rounded to */
};
static struct rf_arg in_workspace(const struct matrix *x, uint64_t at) {
    return later(x->workspace, at);
}

/* A kernel's stages of shared memory, where they come with the launch. */
static rf_status find_matrix_kernel(struct rf_queue *queue, const struct matrix *x, bool wide,
                                    struct rf_launch *params, uint32_t *stages) {
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    snprintf(name, sizeof name, "matmul_%s_%s_%s", wide ? "wide" : "tile", type_suffix(x->unit),
             type_suffix(x->m->args->type));
    RF_TRY(rf_kernel_find(rf_queue_device(queue), name, &params->kernel));
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    *stages = 2;
    if (info.vendor != RF_VENDOR_NVIDIA) return RF_OK;
    uint32_t stage = (MATRIX_ROWS + (wide ? MATRIX_WIDE : MATRIX_NARROW)) * MATRIX_LINE_BYTES;
    *stages = RF_MIN((uint32_t)RF_MAX(info.max_shared_bytes_per_block, 0) / stage, MATRIX_STAGES);
    if (*stages < 2) return RF_E_NOT_FOUND;
    params->shared_bytes = *stages * stage;
    return RF_OK;
}

/* Outputs from column `first` on, `columns` of them, by weights of 16 bits. */
static rf_status matrix_columns(struct rf_queue *queue, const struct matrix *x, uint64_t first, uint64_t columns) {
    const struct matmul *m = x->m;
    const struct rf_matmul_args *a = m->args;
    struct matrix_split split = split_of(a, columns);
    uint64_t width = split.wide ? MATRIX_WIDE : MATRIX_NARROW, element = rf_dtype_bytes(a->type);
    bool decoded = is_quantized(a->weight_type), rounded = a->type == RF_F32;
    RF_PARAMS(struct rf_launch, params);
    uint32_t stages;
    RF_TRY(find_matrix_kernel(queue, x, split.wide, &params, &stages));
    if (decoded) {
        uint64_t row_bytes = a->k / rf_dtype_block(a->weight_type) * rf_dtype_block_bytes(a->weight_type);
        struct rf_dequantize_args decode = {
            .from = a->weight_type,
            .type = x->unit,
            .count = columns * a->k,
            .out = {a->workspace.buffer, a->workspace.offset_bytes + x->plan.weights, 0},
            .in = {a->weights.buffer, a->weights.offset_bytes + first * row_bytes, 0}};
        RF_TRY(rf_gpu_dequantize(queue, &decode));
    }
    struct rf_arg out = later(m->out, first * element), bias = later(m->bias, first * sizeof(float)),
                  residual = later(m->residual, first * element), none = rf_arg_buffer(NULL);
    struct rf_arg args[] = {out,
                            decoded ? in_workspace(x, x->plan.weights) : later(m->weights, first * a->k * 2),
                            rounded ? in_workspace(x, x->plan.x) : m->x.arg,
                            bias,
                            residual,
                            split.parts > 1 ? in_workspace(x, x->plan.partial) : none,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)columns),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)(rounded ? a->k : m->x_stride)),
                            rf_arg_i64((int64_t)m->out_stride),
                            rf_arg_i64((int64_t)split.depth),
                            rf_arg_u32(stages)};
    params.grid[0] = blocks_for(columns, width, X_MAX);
    params.grid[1] = blocks_for(a->m, MATRIX_ROWS, Y_MAX);
    params.grid[2] = (uint32_t)split.parts;
    params.block[0] = MATRIX_THREADS;
    params.args = args;
    params.arg_count = RF_COUNT(args);
    RF_TRY(rf_queue_launch(queue, &params));
    if (split.parts == 1) return RF_OK;
    struct rf_arg join[] = {out,
                            in_workspace(x, x->plan.partial),
                            bias,
                            residual,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)columns),
                            rf_arg_i64((int64_t)m->out_stride),
                            rf_arg_u32((uint32_t)split.parts)};
    char name[64];
    snprintf(name, sizeof name, "matmul_join_%s", type_suffix(a->type));
    uint32_t grid[2] = {blocks_for(columns, MATRIX_THREADS, ROUND_X), blocks_for(a->m, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, MATRIX_THREADS, 0), join, RF_COUNT(join));
}

/* RF_E_NOT_FOUND, before anything is launched, where the device has no matrix units. */
static rf_status by_matrix(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    struct matrix x = {.m = m, .unit = a->weight_type == RF_BF16 ? RF_BF16 : RF_F16};
    RF_PARAMS(struct rf_launch, params);
    uint32_t stages;
    RF_TRY(find_matrix_kernel(queue, &x, true, &params, &stages));
    if (a->m > Y_MAX * (uint64_t)MATRIX_ROWS || a->n / MATRIX_NARROW >= MATRIX_BLOCKS ||
        (a->m / MATRIX_ROWS + 1) * (a->n / MATRIX_NARROW + 1) > MATRIX_BLOCKS)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: %llu x %llu outputs are more than the matrix units' grid has",
                       (unsigned long long)a->m, (unsigned long long)a->n);
    RF_TRY(plan_matrix(a, &x.plan));
    RF_TRY(take("matmul", "workspace", &a->workspace, x.plan.bytes, MATRIX_ALIGN, &x.workspace));
    const struct {
        const char *name;
        const struct span *span;
    } others[] = {
        {"out", &m->out}, {"x", &m->x}, {"weights", &m->weights}, {"bias", &m->bias}, {"residual", &m->residual}};
    for (size_t i = 0; i < RF_COUNT(others); i++)
        if (overlap(&x.workspace, others[i].span))
            return rf_fail(RF_E_INVALID, "matmul: the workspace overlaps %s", others[i].name);
    if (a->type == RF_F32 && a->k) {
        char name[64];
        snprintf(name, sizeof name, "matmul_round_%s", type_suffix(x.unit));
        struct rf_arg args[] = {in_workspace(&x, x.plan.x), m->x.arg, rf_arg_i64((int64_t)a->m),
                                rf_arg_i64((int64_t)a->k), rf_arg_i64((int64_t)m->x_stride)};
        uint32_t grid[2] = {blocks_for(a->k / 8, 256, ROUND_X), blocks_for(a->m, 1, Y_MAX)};
        RF_TRY(rf_op_launch(queue, name, rf_grid_plane(grid, 256, 0), args, RF_COUNT(args)));
    }
    for (uint64_t first = 0; first < a->n; first += x.plan.columns)
        RF_TRY(matrix_columns(queue, &x, first, RF_MIN(a->n - first, x.plan.columns)));
    return RF_OK;
}

rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_matmul_args *args) {
    struct matmul m;
    RF_TRY(need_device("matmul", queue));
    RF_TRY(rf_matmul_check(args, &m));
    if (!args->m || !args->n) return RF_OK;
    bool few = args->m <= RF_MATVEC_ROWS || args->gate.buffer || args->x_q8, matrix = matrix_takes(&m);
    if (on_units(args->path) && !matrix)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: these types, sizes or alignments do not suit the matrix units");
    if (args->path == RF_MATMUL_TILED) return tiled(queue, &m);
    if (on_units(args->path)) {
        rf_status status = by_matrix(queue, &m);
        if (status != RF_E_NOT_FOUND) return status;
        return rf_fail(RF_E_UNSUPPORTED, "matmul: this device has no kernels for matrix units");
    }
    if (args->path == RF_MATMUL_AUTO && !few) {
        rf_status status = matrix ? by_matrix(queue, &m) : RF_E_NOT_FOUND;
        return status == RF_E_NOT_FOUND ? tiled(queue, &m) : status;
    }
    return rf_matmul_few_rows(queue, &m);
}

/* ---- embedding, dequantize, quantize ---- */

rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_embedding_args *a) {
    const char *op = "embedding";
    RF_TRY(need_device(op, queue));
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
    RF_TRY(take(op, "table", &a->table, table_bytes, quantized ? 16 : rf_dtype_bytes(a->table_type), &table));
    RF_TRY(take(op, "indices", &a->indices, index_bytes, sizeof(int32_t), &indices));
    RF_TRY(take(op, "out", &a->out, out_bytes, quantized ? 16 : rf_dtype_bytes(a->type), &out));
    RF_TRY(apart(op, &out, "table", &table));
    RF_TRY(apart(op, &out, "indices", &indices));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "embedding_%s_%s", type_suffix(a->table_type), type_suffix(a->type));
    struct rf_arg args[] = {out.arg,
                            table.arg,
                            indices.arg,
                            rf_arg_i64((int64_t)a->count),
                            rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)a->table_rows)};
    uint64_t units = a->columns / (a->type == RF_F32 ? 8 : unit_elements(a->table_type));
    uint32_t threads = units <= 64 ? 64 : units <= 128 ? 128 : 256;
    uint32_t grid[2] = {blocks_for(units, threads, ROUND_X), blocks_for(a->count, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, threads, 0), args, RF_COUNT(args));
}

rf_status rf_gpu_dequantize(struct rf_queue *queue, const struct rf_dequantize_args *a) {
    const char *op = "dequantize";
    RF_TRY(need_device(op, queue));
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
    RF_TRY(take(op, "in", &a->in, in_bytes, 16, &in));
    RF_TRY(take(op, "out", &a->out, out_bytes, 16, &out));
    RF_TRY(apart(op, &out, "in", &in));
    if (!a->count) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "dequantize_%s_%s", type_suffix(a->from), type_suffix(a->type));
    struct rf_arg args[] = {out.arg, in.arg, rf_arg_i64((int64_t)a->count)};
    uint32_t grid[2] = {blocks_for(a->count / (a->type == RF_F32 ? 32 : unit_elements(a->from)), 256, ROUND_X), 1};
    return rf_op_launch(queue, name, rf_grid_plane(grid, 256, 0), args, RF_COUNT(args));
}

rf_status rf_gpu_quantize_q8(struct rf_queue *queue, const struct rf_quantize_q8_args *a) {
    const char *op = "quantize_q8";
    uint64_t stride = a->x.stride ? a->x.stride : a->columns, x_bytes, out_bytes;
    struct span out, x;
    RF_TRY(need_device(op, queue));
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
    RF_TRY(take(op, "x", &a->x, x_bytes, 16, &x));
    RF_TRY(take(op, "out", &a->out, out_bytes, 8, &out));
    RF_TRY(apart(op, &out, "x", &x));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "quantize_q8_%s", type_suffix(a->type));
    struct rf_arg args[] = {out.arg, x.arg, rf_arg_i64((int64_t)a->rows), rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)stride)};
    uint32_t grid[2] = {blocks_for(a->columns / (a->type == RF_F32 ? 8 : 16), 256, ROUND_X),
                        blocks_for(a->rows, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, 256, 0), args, RF_COUNT(args));
}
