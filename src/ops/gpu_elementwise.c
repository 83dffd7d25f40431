/* Launchers of the elementwise ops (see gpu_elementwise.h).
 *
 * Each op names its operands, checks them all, then launches once. Grids depend on shapes and on the device's size;
 * results do not depend on the grid. */
#include "ops/gpu_elementwise.h"

#include <stdio.h>

/* ---- dense arrays: fill, copy, add, scale ---- */

/* Checks the arrays; the output comes first. If in_place, an input may be the output. */
static rf_status check_dense(const char *op, struct rf_named_operand *arrays, const enum rf_dtype *types,
                             size_t count, uint64_t elements, bool in_place) {
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = rf_dtype_bytes(types[i]);
        RF_TRY(rf_operand_check(op, &arrays[i], elements, bytes, bytes));
        if (i) RF_TRY(rf_operands_apart(op, &arrays[0], &arrays[i], in_place));
    }
    return RF_OK;
}

/* Returns a grid that gives each thread its groups, each a vector of elements of this size. */
static struct rf_grid dense_grid(uint64_t count, uint64_t element_bytes) {
    uint64_t block_elements = RF_ELEMENTWISE_THREADS * RF_ELEMENTWISE_GROUPS * (16 / element_bytes);
    uint64_t blocks = RF_MIN(rf_ceil_div(count, block_elements), (uint64_t)1 << 20);
    return rf_grid_line((uint32_t)blocks, RF_ELEMENTWISE_THREADS);
}

rf_status rf_gpu_fill(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                      const struct rf_elementwise_args *args) {
    const char *op = "fill";
    RF_TRY(rf_operands_given(op, queue, args));
    if (dtype != RF_F32 && dtype != RF_I32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for type %s: f32 or i32", op, rf_dtype_name(dtype));
    if (!args->count) return RF_OK;
    struct rf_named_operand arrays[] = {{"out", out, 0}};
    RF_TRY(check_dense(op, arrays, &dtype, 1, args->count, false));
    struct rf_arg list[] = {rf_operand_arg(out), rf_arg_u32(args->bits), rf_arg_u64(args->count)};
    return rf_op_launch(queue, dtype == RF_I32 ? "fill_u32" : "fill_f32", dense_grid(args->count, 4), list,
                        RF_COUNT(list));
}

rf_status rf_gpu_copy(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out, enum rf_dtype from,
                      struct rf_operand in, const struct rf_elementwise_args *args) {
    const char *op = "copy";
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, from));
    RF_TRY(rf_operands_float(op, to));
    if (!args->count) return RF_OK;
    struct rf_named_operand arrays[] = {{"out", out, 0}, {"in", in, 0}};
    enum rf_dtype types[] = {to, from};
    RF_TRY(check_dense(op, arrays, types, 2, args->count, from == to));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(in), rf_arg_u64(args->count)};
    char name[32];
    snprintf(name, sizeof name, "copy_%s_%s", rf_dtype_name(from), rf_dtype_name(to));
    uint64_t widest = RF_MAX(rf_dtype_bytes(from), rf_dtype_bytes(to));
    return rf_op_launch(queue, name, dense_grid(args->count, widest), list, RF_COUNT(list));
}

rf_status rf_gpu_add(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand a,
                     struct rf_operand b, const struct rf_elementwise_args *args) {
    const char *op = "add";
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, dtype));
    if (!args->count) return RF_OK;
    struct rf_named_operand arrays[] = {{"out", out, 0}, {"a", a, 0}, {"b", b, 0}};
    enum rf_dtype types[] = {dtype, dtype, dtype};
    RF_TRY(check_dense(op, arrays, types, 3, args->count, true));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(a), rf_operand_arg(b), rf_arg_u64(args->count)};
    char name[32];
    snprintf(name, sizeof name, "add_%s", rf_dtype_name(dtype));
    return rf_op_launch(queue, name, dense_grid(args->count, rf_dtype_bytes(dtype)), list, RF_COUNT(list));
}

rf_status rf_gpu_scale(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                       const struct rf_elementwise_args *args) {
    const char *op = "scale";
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, dtype));
    if (!args->count) return RF_OK;
    struct rf_named_operand arrays[] = {{"out", out, 0}, {"in", in, 0}};
    enum rf_dtype types[] = {dtype, dtype};
    RF_TRY(check_dense(op, arrays, types, 2, args->count, true));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(in), rf_arg_f32(args->factor),
                            rf_arg_u64(args->count)};
    char name[32];
    snprintf(name, sizeof name, "scale_%s", rf_dtype_name(dtype));
    return rf_op_launch(queue, name, dense_grid(args->count, rf_dtype_bytes(dtype)), list, RF_COUNT(list));
}

/* ---- sheets, which are rows at strides (see kernels/sheet.h): multiply and activation ---- */

enum { SHEETS_MAX = 4 };
struct sheets {
    const char *op;
    enum rf_dtype dtype, to;  /* of the inputs, of the output */
    uint64_t *rows, *columns; /* they and the row strides point into the op's arguments */
    int count;
    struct rf_named_operand operands[SHEETS_MAX]; /* the output first */
    uint64_t *row[SHEETS_MAX];
};

/* Checks all operands; an input may be the output if their strides agree. If no sheet has gaps, changes the arguments
 * to those of a single row. */
static rf_status sheets_check(struct sheets *s) {
    bool dense = true;
    uint64_t rows = *s->rows, columns = *s->columns, total;
    RF_TRY(rf_operands_count(s->op, rows, columns, &total));
    for (int i = 0; i < s->count; i++) {
        if (!s->operands[i].at.buffer && i > 1) continue; /* left out; the op allows it */
        uint64_t element = rf_dtype_bytes(i ? s->dtype : s->to);
        uint64_t sizes[] = {rows, columns}, strides[] = {*s->row[i], 1}, extent;
        if (rf_extent_overflows(sizes, strides, 2, &extent))
            return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", s->op,
                           s->operands[i].name);
        RF_TRY(rf_operand_check(s->op, &s->operands[i], extent, element, element));
        dense &= *s->row[i] == columns;
    }
    if (rows > 1 && *s->row[0] < columns)
        return rf_fail(RF_E_INVALID, "%s: rows of %s overlap: a stride of %llu for %llu columns", s->op,
                       s->operands[0].name, (unsigned long long)*s->row[0], (unsigned long long)columns);
    for (int i = 1; i < s->count; i++)
        RF_TRY(rf_operands_apart(s->op, &s->operands[0], &s->operands[i],
                                 s->to == s->dtype && (rows == 1 || *s->row[i] == *s->row[0])));
    if (dense && rows > 1) {
        *s->columns = total;
        *s->rows = 1;
        for (int i = 0; i < s->count; i++) *s->row[i] = total;
    }
    return RF_OK;
}

/* Small sheets get small blocks, so that more of the device's compute units work on them. */
static struct rf_grid sheets_grid(struct rf_queue *queue, const struct sheets *s) {
    uint32_t wave, units, threads, rows = rf_grid_clamp(*s->rows, RF_GRID_YZ_MAX);
    rf_grid_device(queue, &wave, &units);
    uint64_t groups = rf_ceil_div(*s->columns, 16 / rf_dtype_bytes(s->dtype));
    threads = groups * *s->rows > (uint64_t)units * 2048 ? RF_ELEMENTWISE_THREADS : 64;
    /* If a row is not a whole number of blocks, the last groups of a block run one after the other: use smaller
     * blocks. */
    while (*s->rows > 1 && threads > 64 && groups % (RF_ELEMENTWISE_GROUPS * threads)) threads /= 2;
    uint64_t blocks = rf_ceil_div(groups, RF_ELEMENTWISE_GROUPS * (uint64_t)threads);
    return rf_grid_plane((uint32_t[]){rf_grid_clamp(blocks, RF_GRID_X_MAX), rows}, threads, 0);
}

rf_status rf_gpu_multiply(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand a,
                          struct rf_operand b, struct rf_operand c, const struct rf_multiply_args *args) {
    RF_TRY(rf_operands_given("multiply", queue, args));
    bool add = c.buffer != NULL;
    const char *op = add ? "multiply_add" : "multiply";
    RF_TRY(rf_operands_float(op, dtype));
    if (!args->rows || !args->columns) return RF_OK;
    struct rf_multiply_args own = *args;
    struct sheets s = {op,
                       dtype,
                       dtype,
                       &own.rows,
                       &own.columns,
                       add ? 4 : 3,
                       {{"out", out, 0}, {"a", a, 0}, {"b", b, 0}, {"c", c, 0}},
                       {&own.out_row, &own.a_row, &own.b_row, &own.c_row}};
    if (!b.buffer) return rf_fail(RF_E_INVALID, "%s: no buffer for b", op);
    RF_TRY(sheets_check(&s));
    struct rf_arg list[SHEETS_MAX + 1];
    size_t count = 0;
    for (int i = 0; i < s.count; i++) list[count++] = rf_operand_arg(s.operands[i].at);
    list[count++] = rf_arg_struct(&own, sizeof own);
    char name[32];
    snprintf(name, sizeof name, "%s_%s", op, rf_dtype_name(dtype));
    return rf_op_launch(queue, name, sheets_grid(queue, &s), list, count);
}

static rf_status activation(struct rf_queue *queue, enum rf_dtype dtype, enum rf_dtype to, struct rf_operand out,
                            struct rf_operand gate, struct rf_operand up, const struct rf_activation_args *args) {
    static const char *const names[RF_ACTIVATION_COUNT] = {"silu_gate", "gelu_gate", "gelu_erf_gate"};
    RF_TRY(rf_operands_given("activation", queue, args));
    if (args->kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "activation: there is no kind %u", args->kind);
    const char *op = names[args->kind];
    RF_TRY(rf_operands_float(op, dtype));
    RF_TRY(rf_operands_float(op, to));
    if (!args->rows || !args->columns) return RF_OK;
    struct rf_activation_args own = *args;
    struct sheets s = {op,
                       dtype,
                       to,
                       &own.rows,
                       &own.columns,
                       3,
                       {{"out", out, 0}, {"gate", gate, 0}, {"up", up, 0}},
                       {&own.out_row, &own.gate_row, &own.up_row}};
    RF_TRY(sheets_check(&s));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(gate), rf_operand_arg(up),
                            rf_arg_struct(&own, sizeof own)};
    char name[32];
    snprintf(name, sizeof name, "%s_%s%s%s", op, rf_dtype_name(dtype), to == dtype ? "" : "_",
             to == dtype ? "" : rf_dtype_name(to));
    return rf_op_launch(queue, name, sheets_grid(queue, &s), list, RF_COUNT(list));
}
rf_status rf_gpu_activation(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                            struct rf_operand gate, struct rf_operand up, const struct rf_activation_args *args) {
    return activation(queue, dtype, dtype, out, gate, up, args);
}
rf_status rf_gpu_activation_to(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out,
                               struct rf_operand gate, struct rf_operand up, const struct rf_activation_args *args) {
    return activation(queue, RF_F32, to, out, gate, up, args);
}
