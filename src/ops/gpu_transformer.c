/* Launchers of a transformer's glue (see gpu_transformer.h).
 *
 * Each op: names its operands, checks them all, then launches once. Grids depend on shapes and on the device's
 * size; results do not depend on them. */
#include "ops/gpu_transformer_impl.h"

/* ---- row kernels: grids as kernels/rows.h says ---- */

static void row_grid(struct rf_queue *queue, enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint32_t *grid,
                     uint32_t *block) {
    uint32_t wave, units;
    device_shape(queue, &wave, &units);
    uint64_t held = (uint64_t)wave * (dtype == RF_F32 ? 16 : 32); /* by a wave, in vectors */
    if (columns <= held) {
        block[0] = 256;
        grid[0] = clamp(rf_ceil_div(rows, 256 / wave), GRID_X_MAX);
    } else {
        block[0] = clamp(rf_ceil_div(columns, held), 1024 / wave) * wave;
        grid[0] = clamp(rows, GRID_X_MAX);
    }
}

static rf_status row_launch(struct rf_queue *queue, const char *op, enum rf_dtype dtype, uint64_t rows,
                            uint64_t columns, const struct rf_arg *args, size_t count) {
    uint32_t grid[3] = {0}, block[3] = {0};
    char name[64];
    row_grid(queue, dtype, rows, columns, grid, block);
    snprintf(name, sizeof name, "%s_%s", op, suffix(dtype));
    return rf_op_launch(queue, name, rf_grid_space(grid, block), args, count);
}

static rf_status row_size(const char *op, uint64_t rows, uint64_t columns, uint64_t *elements) {
    if (rf_mul_overflows(rows, columns, elements))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu columns are more than 64 bits can count", op,
                       (unsigned long long)rows, (unsigned long long)columns);
    return RF_OK;
}

rf_status rf_gpu_layer_norm(struct rf_queue *queue, const struct rf_layer_norm_args *args) {
    const char *op = "layer_norm";
    uint64_t count;
    RF_TRY(nulls(op, queue, args));
    RF_TRY(float_type(op, args->dtype));
    RF_TRY(row_size(op, args->rows, args->columns, &count));
    if (!count) return RF_OK;
    struct rf_named_operand out = {"out", args->out, 0}, in = {"in", args->in, 0},
                            weight = {"weight", args->weight, 0}, bias = {"bias", args->bias, 0};
    uint64_t element = rf_dtype_bytes(args->dtype);
    RF_TRY(rf_operand_check(op, &out, count, element, element));
    RF_TRY(rf_operand_check(op, &in, count, element, element));
    if (args->weight.buffer) RF_TRY(rf_operand_check(op, &weight, args->columns, 4, 4));
    if (args->bias.buffer) RF_TRY(rf_operand_check(op, &bias, args->columns, 4, 4));
    RF_TRY(rf_operands_apart(op, &out, &in, true));
    RF_TRY(rf_operands_apart(op, &out, &weight, false));
    RF_TRY(rf_operands_apart(op, &out, &bias, false));
    struct rf_arg list[] = {rf_operand_arg(args->out),  rf_operand_arg(args->in), rf_operand_arg(args->weight),
                            rf_operand_arg(args->bias), rf_arg_u64(args->rows),   rf_arg_u64(args->columns),
                            rf_arg_f32(args->eps)};
    return row_launch(queue, op, args->dtype, args->rows, args->columns, list, RF_COUNT(list));
}

rf_status rf_gpu_add_rms_norm(struct rf_queue *queue, const struct rf_add_rms_norm_args *args) {
    const char *op = "add_rms_norm";
    uint64_t count;
    RF_TRY(nulls(op, queue, args));
    RF_TRY(float_type(op, args->dtype));
    RF_TRY(row_size(op, args->rows, args->columns, &count));
    if (!count) return RF_OK;
    struct rf_named_operand sum = {"sum", args->sum, 0}, out = {"out", args->out, 0}, a = {"a", args->a, 0},
                            b = {"b", args->b, 0}, weight = {"weight", args->weight, 0};
    struct rf_named_operand *all[] = {&sum, &out, &a, &b};
    uint64_t element = rf_dtype_bytes(args->dtype);
    for (size_t i = 0; i < RF_COUNT(all); i++) RF_TRY(rf_operand_check(op, all[i], count, element, element));
    if (args->weight.buffer) RF_TRY(rf_operand_check(op, &weight, args->columns, 4, 4));
    RF_TRY(rf_operands_apart(op, &sum, &out, false));
    for (size_t i = 2; i < RF_COUNT(all); i++) {
        RF_TRY(rf_operands_apart(op, &sum, all[i], true));
        RF_TRY(rf_operands_apart(op, &out, all[i], true));
    }
    RF_TRY(rf_operands_apart(op, &sum, &weight, false));
    RF_TRY(rf_operands_apart(op, &out, &weight, false));
    struct rf_arg list[] = {rf_operand_arg(args->sum), rf_operand_arg(args->out),    rf_operand_arg(args->a),
                            rf_operand_arg(args->b),   rf_operand_arg(args->weight), rf_arg_u64(args->rows),
                            rf_arg_u64(args->columns), rf_arg_f32(args->eps)};
    return row_launch(queue, op, args->dtype, args->rows, args->columns, list, RF_COUNT(list));
}

rf_status rf_gpu_softmax_mask(struct rf_queue *queue, const struct rf_softmax_mask_args *args) {
    const char *op = "softmax_mask";
    uint64_t count, period = 1;
    RF_TRY(nulls(op, queue, args));
    RF_TRY(row_size(op, args->rows, args->columns, &count));
    if (!count) return RF_OK;
    bool masked = args->mask.buffer != NULL;
    enum rf_dtype mask_dtype = masked ? args->mask_dtype : RF_F32;
    if (mask_dtype != RF_F32 && mask_dtype != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "%s: the mask's type is %s: f32 or f16", op, rf_dtype_name(mask_dtype));
    if (masked && (rf_mul_overflows(args->rows_each, args->heads, &period) || !period || args->rows % period))
        return rf_fail(RF_E_INVALID, "%s: %llu rows are no multiple of %llu heads of %llu rows each", op,
                       (unsigned long long)args->rows, (unsigned long long)args->heads,
                       (unsigned long long)args->rows_each);
    struct rf_named_operand out = {"out", args->out, 0}, in = {"in", args->in, 0}, mask = {"mask", args->mask, 0};
    RF_TRY(rf_operand_check(op, &out, count, 4, 4));
    RF_TRY(rf_operand_check(op, &in, count, 4, 4));
    if (masked) {
        uint64_t element = rf_dtype_bytes(mask_dtype), rows = args->rows / period * args->rows_each;
        RF_TRY(rf_operand_check(op, &mask, rows * args->columns, element, element));
    }
    RF_TRY(rf_operands_apart(op, &out, &in, true));
    RF_TRY(rf_operands_apart(op, &out, &mask, false));
    struct rf_arg list[] = {rf_operand_arg(args->out),
                            rf_operand_arg(args->in),
                            rf_operand_arg(args->mask),
                            rf_arg_u64(args->rows),
                            rf_arg_u64(args->columns),
                            rf_arg_u64(masked ? args->rows_each : 1),
                            rf_arg_u64(masked ? args->heads : 1),
                            rf_arg_f32(args->scale)};
    uint32_t grid[3] = {0}, block[3] = {0};
    row_grid(queue, RF_F32, args->rows, args->columns, grid, block);
    return rf_op_launch(queue, mask_dtype == RF_F32 ? "softmax_mask_f32_f32" : "softmax_mask_f32_f16",
                        rf_grid_space(grid, block), list, RF_COUNT(list));
}

/* ---- sheets: rows at strides, see kernels/sheet.h ---- */

enum { SHEETS_MAX = 4 };
struct sheets {
    const char *op;
    enum rf_dtype dtype;
    uint64_t rows, columns;
    int count; /* the output first */
    struct rf_named_operand operands[SHEETS_MAX];
    uint64_t row[SHEETS_MAX];
};

/* Checks all; makes one row of sheets without gaps. The inputs may be the output, if their strides agree. */
static rf_status sheets_check(struct sheets *s) {
    bool dense = true, any = false;
    uint64_t element = rf_dtype_bytes(s->dtype), total;
    RF_TRY(row_size(s->op, s->rows, s->columns, &total));
    for (int i = 0; i < s->count; i++) any |= s->row[i] != 0;
    for (int i = 0; i < s->count; i++) {
        if (!any) s->row[i] = s->columns;
        if (!s->operands[i].at.buffer && i > 1) continue; /* left out, where the op allows it */
        uint64_t sizes[] = {s->rows, s->columns}, strides[] = {s->row[i], 1}, extent;
        if (rf_extent_overflows(sizes, strides, 2, &extent))
            return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", s->op,
                           s->operands[i].name);
        RF_TRY(rf_operand_check(s->op, &s->operands[i], extent, element, element));
        dense &= s->row[i] == s->columns;
    }
    if (s->rows > 1 && s->row[0] < s->columns)
        return rf_fail(RF_E_INVALID, "%s: rows of %s overlap: a stride of %llu for %llu columns", s->op,
                       s->operands[0].name, (unsigned long long)s->row[0], (unsigned long long)s->columns);
    for (int i = 1; i < s->count; i++)
        RF_TRY(rf_operands_apart(s->op, &s->operands[0], &s->operands[i], s->rows == 1 || s->row[i] == s->row[0]));
    if (dense && s->rows > 1) {
        s->columns = total;
        s->rows = 1;
        for (int i = 0; i < s->count; i++) s->row[i] = total;
    }
    return RF_OK;
}

/* Small sheets get small blocks, so that more of the device works on them. */
static rf_status sheets_launch(struct rf_queue *queue, const struct sheets *s, const char *kernel) {
    uint32_t wave, units, grid[3] = {0}, block[3] = {0};
    struct rf_arg list[2 * SHEETS_MAX + 2];
    size_t count = 0;
    char name[64];
    device_shape(queue, &wave, &units);
    uint64_t groups = rf_ceil_div(s->columns, s->dtype == RF_F32 ? 4 : 8); /* a thread takes 4 */
    block[0] = groups * s->rows > (uint64_t)units * 2048 ? 256 : 64;
    /* Rows that are no whole number of blocks leave a block's last groups to be taken one after the other. */
    while (s->rows > 1 && block[0] > 64 && groups % (4 * block[0])) block[0] /= 2;
    grid[0] = clamp(rf_ceil_div(groups, 4 * (uint64_t)block[0]), GRID_X_MAX);
    grid[1] = clamp(s->rows, GRID_YZ_MAX);
    for (int i = 0; i < s->count; i++) list[count++] = rf_operand_arg(s->operands[i].at);
    list[count++] = rf_arg_u64(s->rows);
    list[count++] = rf_arg_u64(s->columns);
    for (int i = 0; i < s->count; i++) list[count++] = rf_arg_u64(s->row[i]);
    snprintf(name, sizeof name, "%s_%s", kernel, suffix(s->dtype));
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, count);
}

rf_status rf_gpu_activation(struct rf_queue *queue, const struct rf_activation_args *args) {
    static const char *const names[RF_ACTIVATION_COUNT] = {"silu_gate", "gelu_gate", "gelu_erf_gate"};
    RF_TRY(nulls("activation", queue, args));
    if ((unsigned)args->kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "activation: there is no kind %d", (int)args->kind);
    const char *op = names[args->kind];
    RF_TRY(float_type(op, args->dtype));
    if (!args->rows || !args->columns) return RF_OK;
    struct sheets s = {op, args->dtype, args->rows, args->columns, 3, {{0}}, {0}};
    s.operands[0] = (struct rf_named_operand){"out", args->out, 0};
    s.operands[1] = (struct rf_named_operand){"gate", args->gate, 0};
    s.operands[2] = (struct rf_named_operand){"up", args->up, 0};
    s.row[0] = args->out_row, s.row[1] = args->gate_row, s.row[2] = args->up_row;
    RF_TRY(sheets_check(&s));
    return sheets_launch(queue, &s, op);
}

rf_status rf_gpu_multiply(struct rf_queue *queue, const struct rf_multiply_args *args) {
    RF_TRY(nulls("multiply", queue, args));
    bool add = args->c.buffer != NULL;
    const char *op = add ? "multiply_add" : "multiply";
    RF_TRY(float_type(op, args->dtype));
    if (!args->rows || !args->columns) return RF_OK;
    struct sheets s = {op, args->dtype, args->rows, args->columns, add ? 4 : 3, {{0}}, {0}};
    s.operands[0] = (struct rf_named_operand){"out", args->out, 0};
    s.operands[1] = (struct rf_named_operand){"a", args->a, 0};
    s.operands[2] = (struct rf_named_operand){"b", args->b, 0};
    s.operands[3] = (struct rf_named_operand){"c", args->c, 0};
    s.row[0] = args->out_row, s.row[1] = args->a_row, s.row[2] = args->b_row, s.row[3] = args->c_row;
    if (!args->b.buffer) return rf_fail(RF_E_INVALID, "%s: no buffer for b", op);
    RF_TRY(sheets_check(&s));
    return sheets_launch(queue, &s, op);
}

/* ---- moving ---- */

/* Two dimensions swapped in elements of one type, perhaps of several matrices: through shared memory. */
static bool transpose_fits(const struct axis *axes, int count) {
    if (count != 2 && count != 3) return false;
    const struct axis *column = &axes[count - 2], *row = &axes[count - 1]; /* of the input */
    return column->in == 1 && row->out == 1 && row->size >= 8 && column->size >= 8;
}

/* Dense rows, or one: the kernels of copy.hip, which move vectors. */
static rf_status copy_rows(struct rf_queue *queue, const struct rf_permute_args *args, enum rf_dtype from,
                           enum rf_dtype to, const struct axis *axes, int count) {
    struct axis row = count == 2 ? axes[0] : (struct axis){1, 0, 0};
    uint64_t columns = count ? axes[count - 1].size : 1, groups = rf_ceil_div(columns, 4);
    uint32_t grid[3] = {0}, block[3] = {256, 1, 1};
    char name[64];
    if (count < 2) {
        struct rf_arg list[] = {rf_operand_arg(args->out), rf_operand_arg(args->in), rf_arg_u64(columns)};
        grid[0] = clamp(rf_ceil_div(groups, 1024), GRID_X_MAX);
        snprintf(name, sizeof name, "copy_%s_%s", suffix(from), suffix(to));
        return rf_op_launch(queue, name, rf_grid_space(grid, block), list, RF_COUNT(list));
    }
    while (block[0] > 32 && block[0] / 2 >= groups) block[0] /= 2, block[1] *= 2;
    grid[0] = clamp(rf_ceil_div(groups, block[0]), GRID_X_MAX);
    grid[1] = clamp(rf_ceil_div(row.size, block[1]), GRID_YZ_MAX);
    struct rf_arg list[] = {rf_operand_arg(args->out), rf_operand_arg(args->in),
                            rf_arg_u64(row.size),      rf_arg_u64(columns),
                            rf_arg_u64(row.out),       rf_arg_u64(1),
                            rf_arg_u64(row.in),        rf_arg_u64(1)};
    snprintf(name, sizeof name, "copy_2d_%s_%s", suffix(from), suffix(to));
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, RF_COUNT(list));
}

rf_status rf_gpu_permute(struct rf_queue *queue, const struct rf_permute_args *args) {
    const char *op = "permute";
    RF_TRY(nulls(op, queue, args));
    enum rf_dtype from = args->from == RF_I32 && args->to == RF_I32 ? RF_F32 : args->from; /* bits either way */
    enum rf_dtype to = args->from == RF_I32 && args->to == RF_I32 ? RF_F32 : args->to;
    RF_TRY(float_type(op, from));
    RF_TRY(float_type(op, to));
    if (args->rank < 1 || args->rank > 4) return rf_fail(RF_E_INVALID, "%s: rank %d: 1 to 4", op, args->rank);
    struct axis axes[4] = {{0}};
    struct rf_named_operand out = {"out", args->out, 0}, in = {"in", args->in, 0};
    uint64_t out_extent, in_extent;
    if (rf_extent_overflows(args->size, args->out_stride, args->rank, &out_extent) ||
        rf_extent_overflows(args->size, args->in_stride, args->rank, &in_extent))
        return rf_fail(RF_E_INVALID, "%s: sizes and strides are more than 64 bits can count", op);
    if (!out_extent) return RF_OK;
    RF_TRY(rf_operand_check(op, &out, out_extent, rf_dtype_bytes(to), rf_dtype_bytes(to)));
    RF_TRY(rf_operand_check(op, &in, in_extent, rf_dtype_bytes(from), rf_dtype_bytes(from)));
    RF_TRY(rf_operands_apart(op, &out, &in, false));
    for (int i = 0; i < args->rank; i++)
        axes[i] = (struct axis){args->size[i], args->out_stride[i], args->in_stride[i]};
    int count = simplify(axes, args->rank);
    if (!distinct(axes, count))
        return rf_fail(RF_E_INVALID, "%s: elements of out lie in one place: mind its strides", op);
    uint32_t grid[3], block[3] = {32, 8, 1};
    if (from == to && transpose_fits(axes, count)) {
        struct axis matrix = count == 3 ? axes[0] : (struct axis){1, 0, 0};
        const struct axis *column = &axes[count - 2], *row = &axes[count - 1];
        grid[0] = clamp(rf_ceil_div(column->size, 64), GRID_X_MAX);
        grid[1] = clamp(rf_ceil_div(row->size, 256 / rf_dtype_bytes(to)), GRID_YZ_MAX);
        grid[2] = clamp(matrix.size, GRID_YZ_MAX);
        struct rf_arg list[] = {rf_operand_arg(args->out), rf_operand_arg(args->in), rf_arg_u64(matrix.size),
                                rf_arg_u64(row->size),     rf_arg_u64(column->size), rf_arg_u64(matrix.out),
                                rf_arg_u64(column->out),   rf_arg_u64(matrix.in),    rf_arg_u64(row->in)};
        return rf_op_launch(queue, rf_dtype_bytes(to) == 4 ? "transpose_4" : "transpose_2",
                            rf_grid_space(grid, block), list, RF_COUNT(list));
    }
    if (count <= 2 && (!count || (axes[count - 1].out == 1 && axes[count - 1].in == 1)))
        return copy_rows(queue, args, from, to, axes, count);
    /* To the end of four dimensions. */
    uint64_t size[4] = {1, 1, 1, 1}, out_stride[4] = {0}, in_stride[4] = {0};
    for (int i = 0; i < count; i++) {
        size[4 - count + i] = axes[i].size;
        out_stride[4 - count + i] = axes[i].out;
        in_stride[4 - count + i] = axes[i].in;
    }
    /* Threads for vectors where the kernel may find them, four of dimension 2 to each. */
    uint64_t group = rf_dtype_bytes(from) == 4 || rf_dtype_bytes(to) == 4 ? 4 : 8;
    bool grouped = out_stride[3] == 1 && in_stride[3] == 1 && size[3] % group == 0;
    uint64_t along = grouped ? size[3] / group : size[3];
    block[0] = 256;
    while (block[0] > 8 && block[0] / 2 >= along) block[0] /= 2;
    block[1] = clamp(size[2], 256 / block[0]);
    grid[0] = clamp(size[0] * size[1], GRID_X_MAX);
    grid[1] = clamp(rf_ceil_div(size[2], (uint64_t)block[1] * (grouped ? 4 : 1)), GRID_YZ_MAX);
    grid[2] = clamp(rf_ceil_div(along, block[0]), GRID_YZ_MAX);
    struct rf_arg list[] = {rf_operand_arg(args->out), rf_operand_arg(args->in), rf_arg_raw(size, 32),
                            rf_arg_raw(out_stride, 32), rf_arg_raw(in_stride, 32)};
    char name[64];
    snprintf(name, sizeof name, "permute_%s_%s", suffix(from), suffix(to));
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, RF_COUNT(list));
}

rf_status rf_gpu_concat(struct rf_queue *queue, const struct rf_concat_args *args) {
    static const char *const names[4] = {"in[0]", "in[1]", "in[2]", "in[3]"};
    const char *op = "concat";
    RF_TRY(nulls(op, queue, args));
    if (args->dtype != RF_I32) RF_TRY(float_type(op, args->dtype));
    if (args->count < 1 || args->count > 4)
        return rf_fail(RF_E_INVALID, "%s: %d arrays: 1 to 4; join more in turns", op, args->count);
    uint64_t element = rf_dtype_bytes(args->dtype), width = 0, total;
    struct rf_named_operand out = {"out", args->out, 0}, in[4] = {{0}};
    for (int i = 0; i < args->count; i++)
        if (rf_add_overflows(width, args->width[i], &width))
            return rf_fail(RF_E_INVALID, "%s: the widths are more than 64 bits can count", op);
    RF_TRY(row_size(op, args->outer, width, &total));
    if (!total) return RF_OK;
    RF_TRY(rf_operand_check(op, &out, total, element, element));
    struct rf_arg list[10] = {rf_operand_arg(args->out)};
    for (int i = 0; i < 4; i++) {
        uint64_t wide = i < args->count ? args->width[i] : 0;
        list[1 + i] = rf_arg_buffer(NULL);
        list[6 + i] = rf_arg_u64(wide);
        if (!wide) continue;
        in[i] = (struct rf_named_operand){names[i], args->in[i], 0};
        RF_TRY(rf_operand_check(op, &in[i], args->outer * wide, element, element));
        RF_TRY(rf_operands_apart(op, &out, &in[i], false));
        list[1 + i] = rf_operand_arg(args->in[i]);
    }
    list[5] = rf_arg_u64(args->outer);
    uint64_t vectors = rf_ceil_div(width, 16 / element); /* a thread takes one, of four rows */
    uint32_t block[3] = {vectors > 128 ? 256 : vectors > 64 ? 128 : 64, 1, 1};
    uint32_t grid[3] = {clamp(rf_ceil_div(vectors, block[0]), GRID_X_MAX),
                        clamp(rf_ceil_div(args->outer, 4), GRID_YZ_MAX), 1};
    return rf_op_launch(queue, element == 4 ? "concat_4" : "concat_2", rf_grid_space(grid, block), list,
                        RF_COUNT(list));
}
