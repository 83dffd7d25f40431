/* Launchers of the products with weights (see gpu_matmul.h): the checks, and products of many rows.
 *
 * Grid and block depend on the shape alone: kernels sum in an order that depends on the block, and the same input
 * must give the same bits. */
#include "ops/gpu_matmul_impl.h"

#include "gpu/device.h"

/* ---- checks ---- */

static bool on_units(enum rf_matmul_path path) {
    return path == RF_MATMUL_MATRIX || path == RF_MATMUL_WIDE || path == RF_MATMUL_GROUP;
}

enum rf_dtype rf_gpu_matmul_unit(enum rf_dtype weight_type) {
    return weight_type == RF_F32 || weight_type == RF_BF16 ? weight_type : RF_F16;
}
/* The type of x, unless it is in blocks of 8 bits. */
static enum rf_dtype type_of_x(const struct rf_gpu_matmul *call) {
    return call->x_type ? call->x_type : call->type;
}

static rf_status check_types(const struct rf_gpu_matmul *call) {
    const char *op = "matmul";
    enum rf_dtype weights = call->weight_type;
    if (!is_weight(weights)) return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s", op, type_name(weights));
    if (!rf_op_is_float(call->type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(call->type));
    if (rf_op_is_quantized(weights) && call->type != RF_F32 &&
        !((call->gated || call->gate.buffer) && call->type == rf_gpu_matmul_unit(weights)))
        return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s take activations and output of F32, not %s", op,
                       type_name(weights), type_name(call->type));
    if (call->x_type && (call->type != RF_F32 || call->args.x_q8 || call->x_type != rf_gpu_matmul_unit(weights)))
        return rf_fail(RF_E_UNSUPPORTED, "%s: x of %s with weights of %s and output of %s", op,
                       type_name(call->x_type), type_name(weights), type_name(call->type));
    if (call->args.x_q8 && !rf_op_is_quantized(weights))
        return rf_fail(RF_E_UNSUPPORTED, "%s: 8-bit activations with weights of %s", op, type_name(weights));
    if (call->args.k % rf_dtype_block(weights))
        return rf_fail(RF_E_INVALID, "%s: k %llu is no multiple of %zu, the block of %s", op,
                       (unsigned long long)call->args.k, rf_dtype_block(weights), type_name(weights));
    if (call->gate.buffer && (call->bias.buffer || call->residual.buffer))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a gate together with bias or residual", op);
    if ((call->path == RF_MATMUL_TILED || on_units(call->path)) && (call->gate.buffer || call->args.x_q8))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no tiles for a gate or 8-bit activations", op);
    if (call->path == RF_MATMUL_DOTS && !rf_op_is_quantized(weights))
        return rf_fail(RF_E_UNSUPPORTED, "%s: products of bytes with weights of %s", op, type_name(weights));
    if ((unsigned)call->path > RF_MATMUL_GROUP)
        return rf_fail(RF_E_INVALID, "%s: there is no path %d", op, (int)call->path);
    return RF_OK;
}

static rf_status check_operands(const struct rf_gpu_matmul *call, struct matmul *m) {
    const char *op = "matmul";
    const struct rf_matmul_args *a = &call->args;
    bool quantized = rf_op_is_quantized(call->weight_type);
    uint64_t weight_bytes, x_bytes, out_bytes, bias_bytes, element = rf_dtype_bytes(call->type);
    uint64_t weight_align = quantized ? 16 : rf_dtype_bytes(call->weight_type);
    *m = (struct matmul){.call = call,
                         .out = {"out", call->out, 0},
                         .weights = {"weights", call->weights, 0},
                         .gate = {"gate", call->gate, 0},
                         .x = {"x", call->x, 0},
                         .bias = {"bias", call->bias, 0},
                         .residual = {"residual", call->residual, 0}};
    if (a->x_q8 && a->x_stride != a->k)
        return rf_fail(RF_E_UNSUPPORTED, "%s: 8-bit activations are dense: %llu columns have a stride of %llu", op,
                       (unsigned long long)a->k, (unsigned long long)a->x_stride);
    if (a->x_stride < a->k || a->out_stride < a->n)
        return rf_fail(RF_E_INVALID, "%s: rows are longer than their stride", op);
    if (quantized && !a->x_q8 && a->x_stride % 4)
        return rf_fail(RF_E_INVALID, "%s: the stride of x, %llu, is no multiple of 4", op,
                       (unsigned long long)a->x_stride);
    if (rows_bytes_overflow(call->weight_type, a->n, a->k, a->k, &weight_bytes) ||
        rows_bytes_overflow(call->type, a->m, a->n, a->out_stride, &out_bytes) ||
        rf_mul_overflows(a->n, sizeof(float), &bias_bytes) ||
        (a->x_q8 ? rf_q8_bytes_overflow(a->m, a->k, &x_bytes)
                 : rows_bytes_overflow(type_of_x(call), a->m, a->k, a->x_stride, &x_bytes)))
        return rf_fail(RF_E_INVALID, "%s: %llu x %llu x %llu overflows", op, (unsigned long long)a->m,
                       (unsigned long long)a->n, (unsigned long long)a->k);
    RF_TRY(rf_operand_check_bytes(op, &m->weights, weight_bytes, weight_align));
    RF_TRY(rf_operand_check_bytes(op, &m->gate, call->gate.buffer ? weight_bytes : 0, weight_align));
    RF_TRY(rf_operand_check_bytes(op, &m->x, x_bytes,
                                  a->x_q8     ? 8
                                  : quantized ? 16
                                              : rf_dtype_bytes(type_of_x(call))));
    RF_TRY(rf_operand_check_bytes(op, &m->bias, call->bias.buffer ? bias_bytes : 0, sizeof(float)));
    RF_TRY(rf_operand_check_bytes(op, &m->residual, call->residual.buffer ? out_bytes : 0, element));
    RF_TRY(rf_operand_check_bytes(op, &m->out, out_bytes, element));
    RF_TRY(rf_operands_apart(op, &m->out, &m->weights, false));
    RF_TRY(rf_operands_apart(op, &m->out, &m->gate, false));
    RF_TRY(rf_operands_apart(op, &m->out, &m->x, false));
    RF_TRY(rf_operands_apart(op, &m->out, &m->bias, false));
    return rf_operands_apart(op, &m->out, &m->residual, true);
}

rf_status rf_matmul_check(const struct rf_gpu_matmul *call, struct matmul *m) {
    RF_TRY(check_types(call));
    return check_operands(call, m);
}

/* ---- many rows on the vector units ---- */

static rf_status tiled(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_gpu_matmul *call = m->call;
    const struct rf_matmul_args *a = &call->args;
    const uint64_t side = RF_MATMUL_SIDE;
    char name[64];
    snprintf(name, sizeof name, "matmul_%s_%s", type_suffix(call->weight_type), type_suffix(call->type));
    struct rf_arg args[] = {rf_operand_arg(call->out),  rf_operand_arg(call->weights),  rf_operand_arg(call->x),
                            rf_operand_arg(call->bias), rf_operand_arg(call->residual), rf_arg_struct(a, sizeof *a)};
    if (a->m > Y_MAX * side || a->n > X_MAX * side)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: %llu x %llu outputs are more than %llu x %llu",
                       (unsigned long long)a->m, (unsigned long long)a->n, (unsigned long long)(Y_MAX * side),
                       (unsigned long long)(X_MAX * side));
    uint32_t grid[2] = {blocks_for(a->n, side, X_MAX), blocks_for(a->m, side, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, RF_MATMUL_THREADS, 0), args, RF_COUNT(args));
}

/* ---- many rows on the matrix units: operands are converted to 16 bits, multiplied, partial sums added ---- */

#define WIDE_ENOUGH 96         /* number of wide tiles that keep a large GPU busy */
#define NARROW_ENOUGH 128      /* number of narrow tiles that do; with fewer, k is split */
#define PARTS_MAX 8            /* parts that k is split into */
#define PART_MIN 512           /* elements of k in a part */
#define DECODED_MAX (64 << 20) /* bytes of decoded weights at a time (one tile's may be more) */
#define WORKSPACE_ALIGN 256

/* Chooses how the product, or the part of it that computes `columns` of the outputs, is split. The choice depends on
 * the shape alone, because the sums depend on it; how many stages the kernel has is up to the device. */
static struct rf_matmul_split split_of(const struct rf_gpu_matmul *call, uint64_t columns, bool *wide) {
    const struct rf_matmul_args *a = &call->args;
    uint64_t down = rf_ceil_div(a->m, RF_MATMUL_TILE_ROWS), across = rf_ceil_div(columns, RF_MATMUL_TILE_WIDE);
    uint64_t parts = 1;
    bool enough = down >= WIDE_ENOUGH || across >= WIDE_ENOUGH || down * across >= WIDE_ENOUGH;
    *wide = call->path == RF_MATMUL_WIDE || (enough && columns > RF_MATMUL_TILE_NARROW);
    if (!*wide) {
        uint64_t tiles = down * rf_ceil_div(columns, RF_MATMUL_TILE_NARROW);
        parts = RF_MIN(NARROW_ENOUGH / RF_MAX(tiles, 1), RF_MIN(a->k / PART_MIN, PARTS_MAX));
        parts = RF_MAX(parts, 1);
    }
    uint64_t depth = RF_MAX(rf_ceil_div(rf_ceil_div(a->k, parts), RF_MATMUL_TILE_DEPTH), 1) * RF_MATMUL_TILE_DEPTH;
    return (struct rf_matmul_split){.depth = depth, .parts = (uint32_t)RF_MAX(rf_ceil_div(a->k, depth), 1)};
}

/* The layout of the workspace. */
struct matrix_plan {
    uint64_t columns; /* columns of weights that are decoded at once; n if the weights need no decoding */
    uint64_t x, weights, partial, bytes;
};
static bool plan_overflows(uint64_t count, uint64_t each, uint64_t *at, struct matrix_plan *plan) {
    uint64_t bytes;
    *at = plan->bytes;
    return rf_mul_overflows(count, each, &bytes) || rf_round_up_overflows(bytes, WORKSPACE_ALIGN, &bytes) ||
           rf_add_overflows(plan->bytes, bytes, &plan->bytes);
}
static rf_status plan_matrix(const struct rf_gpu_matmul *call, struct matrix_plan *plan) {
    const struct rf_matmul_args *a = &call->args;
    *plan = (struct matrix_plan){.columns = a->n};
    if (rf_op_is_quantized(call->weight_type) && a->k) {
        uint64_t columns = DECODED_MAX / 2 / a->k / RF_MATMUL_TILE_WIDE * RF_MATMUL_TILE_WIDE;
        plan->columns = RF_MIN(a->n, RF_MAX(columns, RF_MATMUL_TILE_WIDE));
    }
    uint64_t x = 0, weights = 0, partial = 0, rest = plan->columns ? a->n % plan->columns : 0;
    bool overflows = (type_of_x(call) == RF_F32 && rf_mul_overflows(a->m, a->k, &x)) ||
                     (rf_op_is_quantized(call->weight_type) && rf_mul_overflows(plan->columns, a->k, &weights));
    for (int i = 0; i < 2 && !overflows; i++) { /* the last columns may be split even if the others are not */
        bool wide;
        uint64_t columns = i ? rest : plan->columns, parts = split_of(call, columns, &wide).parts, sums;
        overflows = rf_mul_overflows(a->m, columns, &sums) || rf_mul_overflows(sums, parts, &sums);
        if (!overflows && parts > 1) partial = RF_MAX(partial, sums);
    }
    if (overflows || plan_overflows(x, 2, &plan->x, plan) || plan_overflows(weights, 2, &plan->weights, plan) ||
        plan_overflows(partial, sizeof(float), &plan->partial, plan))
        return rf_fail(RF_E_INVALID, "matmul: the workspace of %llu x %llu x %llu overflows",
                       (unsigned long long)a->m, (unsigned long long)a->n, (unsigned long long)a->k);
    return RF_OK;
}

/* Whether the kernels for the matrix units support the types and sizes. The device may still have no such kernel. */
static bool matrix_suits(const struct rf_gpu_matmul *call) {
    bool types = call->weight_type != RF_F32 && (call->type == RF_F32 || call->type == call->weight_type);
    return types && !call->gate.buffer && !call->args.x_q8 && call->args.k % 8 == 0 && call->args.k <= INT32_MAX;
}
static bool matrix_takes(const struct rf_gpu_matmul *call) {
    return matrix_suits(call) && call->args.x_stride % 8 == 0 && rf_operand_address(call->weights) % 16 == 0 &&
           rf_operand_address(call->x) % 16 == 0;
}

/* The same for a product with a gate. Its x needs no rounding, and there are no partial sums. */
static rf_status plan_gate(const struct rf_gpu_matmul *call, struct matrix_plan *plan) {
    const struct rf_matmul_args *a = &call->args;
    uint64_t weights = 0;
    *plan = (struct matrix_plan){.columns = a->n};
    if (!rf_op_is_quantized(call->weight_type) || !a->k) return RF_OK;
    uint64_t columns = DECODED_MAX / 4 / a->k / RF_MATMUL_TILE_NARROW * RF_MATMUL_TILE_NARROW;
    plan->columns = RF_MIN(a->n, RF_MAX(columns, RF_MATMUL_TILE_NARROW));
    if (rf_mul_overflows(plan->columns, a->k, &weights) || plan_overflows(weights, 4, &plan->weights, plan))
        return rf_fail(RF_E_INVALID, "matmul: the workspace of %llu x %llu x %llu overflows",
                       (unsigned long long)a->m, (unsigned long long)a->n, (unsigned long long)a->k);
    return RF_OK;
}
static bool gate_suits(const struct rf_gpu_matmul *call) {
    enum rf_dtype unit = rf_gpu_matmul_unit(call->weight_type);
    return unit != RF_F32 && type_of_x(call) == unit && (call->type == RF_F32 || call->type == unit) &&
           call->args.m > RF_MATVEC_ROWS && !call->args.x_q8 && call->args.k % 8 == 0 && call->args.k <= INT32_MAX;
}
static bool gate_takes(const struct rf_gpu_matmul *call) {
    return gate_suits(call) && call->path == RF_MATMUL_AUTO && call->args.x_stride % 8 == 0 &&
           rf_operand_address(call->weights) % 16 == 0 && rf_operand_address(call->gate) % 16 == 0 &&
           rf_operand_address(call->x) % 16 == 0;
}
bool rf_gpu_matmul_gate_pays(uint64_t m, uint64_t n) {
    uint64_t down = rf_ceil_div(m, RF_MATMUL_TILE_ROWS), across = rf_ceil_div(n, RF_MATMUL_TILE_NARROW);
    return down >= WIDE_ENOUGH || across >= WIDE_ENOUGH || down * across >= WIDE_ENOUGH;
}

rf_status rf_gpu_matmul_workspace(const struct rf_gpu_matmul *call, uint64_t *bytes) {
    struct matrix_plan plan;
    RF_TRY(check_types(call));
    if (call->gated) {
        bool any = gate_suits(call) && call->args.n;
        if (any) RF_TRY(plan_gate(call, &plan));
        *bytes = any ? plan.bytes : 0;
        return RF_OK;
    }
    bool wanted = on_units(call->path) || (call->path == RF_MATMUL_AUTO && call->args.m > RF_MATVEC_ROWS);
    *bytes = 0;
    if (!wanted || !matrix_suits(call) || !call->args.m || !call->args.n) return RF_OK;
    RF_TRY(plan_matrix(call, &plan));
    *bytes = plan.bytes;
    return RF_OK;
}

struct matrix {
    const struct rf_gpu_matmul *call;
    struct matrix_plan plan;
    enum rf_dtype unit; /* F16 or BF16: weights and activations are rounded to it */
    bool groups;        /* the device has the kernels for groups of waves, and the caller lets them be used */
    bool gated;         /* the kernel is the one for a gate */
};
static struct rf_operand in_workspace(const struct matrix *x, uint64_t at) {
    return rf_operand_later(x->call->workspace, at);
}

/* Finds a kernel and the shared memory for its stages; shared_bytes is 0 if the launch need not provide it.
 * RF_E_NOT_FOUND: the device has no such kernel. */
static rf_status find_on_device(struct rf_device *device, const struct matrix *x, bool wide, char name[64],
                                uint32_t *stages, uint32_t *shared_bytes) {
    RF_PARAMS(struct rf_device_info, info);
    const struct rf_kernel *kernel;
    snprintf(name, 64, "matmul_%s_%s_%s",
             x->gated ? "wide_gate"
             : wide   ? "wide"
                      : "tile",
             type_suffix(x->unit), type_suffix(x->call->type));
    RF_TRY(rf_kernel_find_unloaded(device, name, &kernel));
    RF_TRY(rf_device_get_info(device, &info));
    *stages = 2;
    *shared_bytes = 0;
    if (info.vendor != RF_VENDOR_NVIDIA) return RF_OK;
    uint32_t rows = RF_MATMUL_TILE_ROWS + (wide ? RF_MATMUL_TILE_WIDE : RF_MATMUL_TILE_NARROW);
    uint32_t stage = rows * RF_MATMUL_TILE_LINE_BYTES;
    *stages = RF_MIN((uint32_t)RF_MAX(info.max_shared_bytes_per_block, 0) / stage, RF_MATMUL_TILE_STAGES_MAX);
    if (*stages < 2) return RF_E_NOT_FOUND;
    *shared_bytes = *stages * stage;
    return RF_OK;
}

static rf_status decode(struct rf_queue *queue, const struct matrix *x, uint64_t first, uint64_t columns) {
    const struct rf_gpu_matmul *call = x->call;
    uint64_t k = call->args.k;
    uint64_t row_bytes = k / rf_dtype_block(call->weight_type) * rf_dtype_block_bytes(call->weight_type);
    return rf_gpu_dequantize(queue, x->unit, in_workspace(x, x->plan.weights), call->weight_type,
                             rf_operand_later(call->weights, first * row_bytes),
                             &(struct rf_dequantize_args){columns * k});
}

static rf_status find_matrix_kernel(struct rf_queue *queue, const struct matrix *x, bool wide, char name[64],
                                    uint32_t *stages, uint32_t *shared_bytes) {
    return find_on_device(rf_queue_device(queue), x, wide, name, stages, shared_bytes);
}

/* Whether the device has these kernels for both units, with f32 results. */
static bool has_kernels(struct rf_device *device, bool gated) {
    static const struct rf_gpu_matmul f32 = {.type = RF_F32};
    struct rf_saved_error saved;
    uint32_t stages, shared_bytes;
    char name[64];
    bool all = true;
    rf_error_save(&saved);
    for (int i = 0; i < 4; i++) {
        struct matrix x = {.call = &f32, .unit = i / 2 ? RF_BF16 : RF_F16, .gated = gated};
        all = all && !find_on_device(device, &x, i % 2 || gated, name, &stages, &shared_bytes);
    }
    rf_error_restore(&saved);
    return all;
}
bool rf_gpu_matmul_has_units(struct rf_device *device) {
    return has_kernels(device, false);
}
/* Two products by groups of waves are faster than one with a gate on the smaller tiles. */
bool rf_gpu_matmul_has_gates(struct rf_device *device) {
    return has_kernels(device, true) && !rf_matmul_group_there(device, RF_F16, RF_F32);
}

/* Computes `columns` columns of the output from column `first` on, with weights of 16 bits. */
static rf_status matrix_columns(struct rf_queue *queue, const struct matrix *x, uint64_t first, uint64_t columns) {
    const struct rf_gpu_matmul *call = x->call;
    bool decoded = rf_op_is_quantized(call->weight_type), rounded = type_of_x(call) == RF_F32, wide;
    struct rf_matmul_args a = call->args;
    struct rf_matmul_split split = split_of(call, columns, &wide);
    uint64_t width = wide ? RF_MATMUL_TILE_WIDE : RF_MATMUL_TILE_NARROW, element = rf_dtype_bytes(call->type);
    uint32_t shared_bytes;
    char name[64];
    a.n = columns;
    if (rounded) a.x_stride = a.k;
    bool by_groups = x->groups && (call->path == RF_MATMUL_GROUP || rf_matmul_group_worth(&a));
    if (!by_groups) RF_TRY(find_matrix_kernel(queue, x, wide, name, &split.stages, &shared_bytes));
    if (decoded) RF_TRY(decode(queue, x, first, columns));
    struct rf_group_product p = {.args = a,
                                 .unit = x->unit,
                                 .type = call->type,
                                 .out = rf_operand_later(call->out, first * element),
                                 .weights = decoded ? in_workspace(x, x->plan.weights)
                                                    : rf_operand_later(call->weights, first * a.k * 2),
                                 .x = rounded ? in_workspace(x, x->plan.x) : call->x,
                                 .bias = rf_operand_later(call->bias, first * sizeof(float)),
                                 .residual = rf_operand_later(call->residual, first * element)};
    if (by_groups) return rf_matmul_group(queue, &p);
    struct rf_arg out = rf_operand_arg(p.out), bias = rf_operand_arg(p.bias), residual = rf_operand_arg(p.residual),
                  partial = split.parts > 1 ? rf_operand_arg(in_workspace(x, x->plan.partial)) : rf_arg_buffer(NULL);
    struct rf_arg sizes = rf_arg_struct(&a, sizeof a), cut = rf_arg_struct(&split, sizeof split);
    struct rf_arg args[] = {out, rf_operand_arg(p.weights), rf_operand_arg(p.x), bias, residual, partial, sizes, cut};
    struct rf_grid grid = {
        .blocks = {blocks_for(columns, width, X_MAX), blocks_for(a.m, RF_MATMUL_TILE_ROWS, Y_MAX), split.parts},
        .threads = {RF_MATMUL_THREADS},
        .shared_bytes = shared_bytes};
    RF_TRY(rf_op_launch(queue, name, grid, args, RF_COUNT(args)));
    if (split.parts == 1) return RF_OK;
    struct rf_arg join[] = {out, partial, bias, residual, sizes, cut};
    snprintf(name, sizeof name, "matmul_join_%s", type_suffix(call->type));
    uint32_t plane[2] = {blocks_for(columns, RF_MATMUL_THREADS, ROUND_X), blocks_for(a.m, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(plane, RF_MATMUL_THREADS, 0), join, RF_COUNT(join));
}

/* Returns RF_E_NOT_FOUND, before anything is launched, if the device has no matrix units. */
static rf_status by_matrix(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_gpu_matmul *call = m->call;
    const struct rf_matmul_args *a = &call->args;
    struct matrix x = {.call = call, .unit = call->weight_type == RF_BF16 ? RF_BF16 : RF_F16};
    uint32_t stages, shared_bytes;
    char name[64];
    bool wanted = call->path == RF_MATMUL_GROUP || call->path == RF_MATMUL_AUTO;
    x.groups = wanted && a->k && rf_matmul_group_there(rf_queue_device(queue), x.unit, call->type);
    if (call->path == RF_MATMUL_GROUP && !x.groups)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: no kernels for groups of waves: %s",
                       a->k ? "this device, or this build, has none" : "k is 0");
    if (call->path != RF_MATMUL_GROUP) RF_TRY(find_matrix_kernel(queue, &x, true, name, &stages, &shared_bytes));
    if (a->m > Y_MAX * (uint64_t)RF_MATMUL_TILE_ROWS || a->n / RF_MATMUL_TILE_NARROW >= X_MAX ||
        (a->m / RF_MATMUL_TILE_ROWS + 1) * (a->n / RF_MATMUL_TILE_NARROW + 1) > RF_MATMUL_TILE_BLOCKS_MAX)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: %llu x %llu outputs are more than the matrix units' grid has",
                       (unsigned long long)a->m, (unsigned long long)a->n);
    RF_TRY(plan_matrix(call, &x.plan));
    struct rf_named_operand workspace = {"workspace", call->workspace, 0};
    const struct rf_named_operand *others[] = {&m->out, &m->x, &m->weights, &m->bias, &m->residual};
    RF_TRY(rf_operand_check_bytes("matmul", &workspace, x.plan.bytes, WORKSPACE_ALIGN));
    for (size_t i = 0; i < RF_COUNT(others); i++) RF_TRY(rf_operands_apart("matmul", &workspace, others[i], false));
    if (type_of_x(call) == RF_F32 && a->k) {
        snprintf(name, sizeof name, "matmul_round_%s", type_suffix(x.unit));
        struct rf_arg args[] = {rf_operand_arg(in_workspace(&x, x.plan.x)), rf_operand_arg(call->x),
                                rf_arg_struct(a, sizeof *a)};
        uint32_t grid[2] = {blocks_for(a->k / 8, RF_MATMUL_THREADS, ROUND_X), blocks_for(a->m, 1, Y_MAX)};
        RF_TRY(rf_op_launch(queue, name, rf_grid_plane(grid, RF_MATMUL_THREADS, 0), args, RF_COUNT(args)));
    }
    for (uint64_t first = 0; first < a->n; first += x.plan.columns)
        RF_TRY(matrix_columns(queue, &x, first, RF_MIN(a->n - first, x.plan.columns)));
    return RF_OK;
}

/* Many rows with a gate. Returns RF_E_NOT_FOUND, before anything is launched, if the device has no such kernel. */
static rf_status by_gate(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_gpu_matmul *call = m->call;
    struct rf_matmul_args a = call->args;
    struct matrix x = {.call = call, .unit = rf_gpu_matmul_unit(call->weight_type), .gated = true};
    struct rf_matmul_split split = {.depth = RF_MAX(rf_ceil_div(a.k, RF_MATMUL_TILE_DEPTH), 1) * RF_MATMUL_TILE_DEPTH,
                                    .parts = 1};
    const uint64_t width = RF_MATMUL_TILE_WIDE / 2, element = rf_dtype_bytes(call->type);
    bool decoded = rf_op_is_quantized(call->weight_type) && a.k;
    uint32_t shared_bytes;
    char name[64];
    RF_TRY(find_matrix_kernel(queue, &x, true, name, &split.stages, &shared_bytes));
    if (a.m > Y_MAX * (uint64_t)RF_MATMUL_TILE_ROWS || a.n / width >= X_MAX ||
        (a.m / RF_MATMUL_TILE_ROWS + 1) * (a.n / width + 1) > RF_MATMUL_TILE_BLOCKS_MAX)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: %llu x %llu outputs are more than the matrix units' grid has",
                       (unsigned long long)a.m, (unsigned long long)a.n);
    RF_TRY(plan_gate(call, &x.plan));
    struct rf_named_operand workspace = {"workspace", call->workspace, 0};
    const struct rf_named_operand *others[] = {&m->out, &m->x, &m->weights, &m->gate};
    RF_TRY(rf_operand_check_bytes("matmul", &workspace, x.plan.bytes, WORKSPACE_ALIGN));
    for (size_t i = 0; i < RF_COUNT(others); i++) RF_TRY(rf_operands_apart("matmul", &workspace, others[i], false));
    for (uint64_t first = 0; first < call->args.n; first += x.plan.columns) {
        a.n = RF_MIN(call->args.n - first, x.plan.columns);
        uint64_t row_bytes = a.k / rf_dtype_block(call->weight_type) * rf_dtype_block_bytes(call->weight_type);
        struct rf_operand both[] = {rf_operand_later(call->weights, first * row_bytes),
                                    rf_operand_later(call->gate, first * row_bytes)};
        for (size_t i = 0; i < RF_COUNT(both) && decoded; i++) {
            struct rf_operand to = in_workspace(&x, x.plan.weights + i * x.plan.columns * a.k * 2);
            RF_TRY(rf_gpu_dequantize(queue, x.unit, to, call->weight_type, both[i],
                                     &(struct rf_dequantize_args){a.n * a.k}));
            both[i] = to;
        }
        struct rf_arg args[] = {rf_operand_arg(rf_operand_later(call->out, first * element)),
                                rf_operand_arg(both[0]),
                                rf_operand_arg(both[1]),
                                rf_operand_arg(call->x),
                                rf_arg_struct(&a, sizeof a),
                                rf_arg_struct(&split, sizeof split)};
        struct rf_grid grid = {
            .blocks = {blocks_for(a.n, width, X_MAX), blocks_for(a.m, RF_MATMUL_TILE_ROWS, Y_MAX), 1},
            .threads = {RF_MATMUL_THREADS},
            .shared_bytes = shared_bytes};
        RF_TRY(rf_op_launch(queue, name, grid, args, RF_COUNT(args)));
    }
    return RF_OK;
}

rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_gpu_matmul *call) {
    const struct rf_matmul_args *a = &call->args;
    struct matmul m;
    RF_TRY(need_queue("matmul", queue));
    RF_TRY(rf_matmul_check(call, &m));
    if (!a->m || !a->n) return RF_OK;
    if (call->gate.buffer && gate_takes(call)) {
        rf_status status = by_gate(queue, &m);
        if (status != RF_E_NOT_FOUND) return status;
    }
    if (call->gate.buffer && (call->x_type || (rf_op_is_quantized(call->weight_type) && call->type != RF_F32)))
        return rf_fail(RF_E_UNSUPPORTED,
                       "matmul: a gate with x of %s and weights of %s is for many rows on the "
                       "matrix units, at multiples of 16 bytes",
                       type_name(type_of_x(call)), type_name(call->weight_type));
    bool few = a->m <= RF_MATVEC_ROWS || call->gate.buffer || a->x_q8, matrix = matrix_takes(call);
    if ((on_units(call->path) || call->x_type) && !matrix)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: these types, sizes or alignments do not suit the matrix units");
    if (call->x_type && !on_units(call->path) && (few || call->path != RF_MATMUL_AUTO))
        return rf_fail(RF_E_UNSUPPORTED, "matmul: x of %s is for many rows on the matrix units",
                       type_name(call->x_type));
    if (call->path == RF_MATMUL_TILED) return tiled(queue, &m);
    if (on_units(call->path) || call->x_type) {
        rf_status status = by_matrix(queue, &m);
        if (status != RF_E_NOT_FOUND) return status;
        return rf_fail(RF_E_UNSUPPORTED, "matmul: this device has no kernels for matrix units");
    }
    if (call->path == RF_MATMUL_AUTO && !few) {
        rf_status status = matrix ? by_matrix(queue, &m) : RF_E_NOT_FOUND;
        return status == RF_E_NOT_FOUND ? tiled(queue, &m) : status;
    }
    return rf_matmul_few_rows(queue, &m);
}
