/* Launchers of the ops that only move elements (see gpu_move.h). */
#include "ops/gpu_move.h"

#include <stdio.h>

#include "kernels/elementwise_args.h"

struct move {
    struct rf_queue *queue;
    enum rf_dtype to, from;
    struct rf_operand out, in;
    struct rf_axis axes[4]; /* simplified */
    int rank;
};

/* Whether the rows are dense in both arrays, or there is a single row: then the kernels of copy.hip run, which move
 * vectors. */
static bool copy_fits(const struct move *m) {
    if (!m->rank) return true; /* a single element */
    const struct rf_axis *last = &m->axes[m->rank - 1];
    return m->rank <= 2 && last->out == 1 && last->in == 1;
}
static rf_status copy_rows(const struct move *m) {
    uint64_t columns = m->rank ? m->axes[m->rank - 1].size : 1, groups = rf_ceil_div(columns, 4);
    char name[32];
    if (m->rank < 2) {
        struct rf_arg list[] = {rf_operand_arg(m->out), rf_operand_arg(m->in), rf_arg_u64(columns)};
        uint64_t blocks = rf_ceil_div(groups, RF_ELEMENTWISE_THREADS * RF_ELEMENTWISE_GROUPS);
        snprintf(name, sizeof name, "copy_%s_%s", rf_dtype_name(m->from), rf_dtype_name(m->to));
        return rf_op_launch(m->queue, name,
                            rf_grid_line(rf_grid_clamp(blocks, RF_GRID_X_MAX), RF_ELEMENTWISE_THREADS), list,
                            RF_COUNT(list));
    }
    struct rf_copy_2d_args args = {.rows = m->axes[0].size,
                                   .columns = columns,
                                   .out_row = m->axes[0].out,
                                   .out_column = 1,
                                   .in_row = m->axes[0].in,
                                   .in_column = 1};
    uint32_t threads[3] = {RF_ELEMENTWISE_THREADS, 1, 1}, blocks[3] = {0};
    while (threads[0] > 32 && threads[0] / 2 >= groups) threads[0] /= 2, threads[1] *= 2;
    blocks[0] = rf_grid_clamp(rf_ceil_div(groups, threads[0]), RF_GRID_X_MAX);
    blocks[1] = rf_grid_clamp(rf_ceil_div(args.rows, threads[1]), RF_GRID_YZ_MAX);
    struct rf_arg list[] = {rf_operand_arg(m->out), rf_operand_arg(m->in), rf_arg_struct(&args, sizeof args)};
    snprintf(name, sizeof name, "copy_2d_%s_%s", rf_dtype_name(m->from), rf_dtype_name(m->to));
    return rf_op_launch(m->queue, name, rf_grid_space(blocks, threads), list, RF_COUNT(list));
}

/* Whether two dimensions are swapped and the element type stays the same, perhaps for several matrices: then the tile
 * goes through shared memory. */
static bool transpose_fits(const struct move *m) {
    if (m->from != m->to || (m->rank != 2 && m->rank != 3)) return false;
    const struct rf_axis *column = &m->axes[m->rank - 2], *row = &m->axes[m->rank - 1]; /* of the input */
    return column->in == 1 && row->out == 1 && row->size >= 8 && column->size >= 8;
}
static rf_status transpose(const struct move *m) {
    struct rf_axis matrix = m->rank == 3 ? m->axes[0] : (struct rf_axis){1, 0, 0};
    const struct rf_axis *column = &m->axes[m->rank - 2], *row = &m->axes[m->rank - 1];
    uint64_t element = rf_dtype_bytes(m->to);
    struct rf_transpose_args args = {.matrices = matrix.size,
                                     .rows = row->size,
                                     .columns = column->size,
                                     .out_matrix = matrix.out,
                                     .out_row = column->out,
                                     .in_matrix = matrix.in,
                                     .in_row = row->in};
    uint32_t threads[3] = {RF_TRANSPOSE_THREADS_X, RF_TRANSPOSE_THREADS_Y, 1};
    uint32_t blocks[3] = {
        rf_grid_clamp(rf_ceil_div(args.columns, RF_TRANSPOSE_COLUMNS), RF_GRID_X_MAX),
        rf_grid_clamp(rf_ceil_div(args.rows, RF_TRANSPOSE_ROW_BYTES / element), RF_GRID_YZ_MAX),
        rf_grid_clamp(args.matrices, RF_GRID_YZ_MAX),
    };
    struct rf_arg list[] = {rf_operand_arg(m->out), rf_operand_arg(m->in), rf_arg_struct(&args, sizeof args)};
    return rf_op_launch(m->queue, element == 4 ? "transpose_4" : "transpose_2", rf_grid_space(blocks, threads), list,
                        RF_COUNT(list));
}

/* Moves everything else. */
static rf_status permute(const struct move *m) {
    struct rf_permute_args args = {.size = {1, 1, 1, 1}};
    for (int i = 0; i < m->rank; i++) { /* the dimensions become the last ones of four */
        int to = 4 - m->rank + i;
        args.size[to] = m->axes[i].size;
        args.out_stride[to] = m->axes[i].out;
        args.in_stride[to] = m->axes[i].in;
    }
    /* There are threads for vectors if the kernel can use them; each takes several indices of dimension 2. */
    uint64_t group = rf_dtype_bytes(m->from) == 4 || rf_dtype_bytes(m->to) == 4 ? 4 : 8;
    bool grouped = args.out_stride[3] == 1 && args.in_stride[3] == 1 && args.size[3] % group == 0;
    uint64_t along = grouped ? args.size[3] / group : args.size[3];
    uint32_t threads[3] = {RF_ELEMENTWISE_THREADS, 1, 1};
    while (threads[0] > 8 && threads[0] / 2 >= along) threads[0] /= 2;
    threads[1] = rf_grid_clamp(args.size[2], RF_ELEMENTWISE_THREADS / threads[0]);
    uint64_t each = (uint64_t)threads[1] * (grouped ? RF_PERMUTE_SLOTS : 1);
    uint32_t blocks[3] = {rf_grid_clamp(args.size[0] * args.size[1], RF_GRID_X_MAX),
                          rf_grid_clamp(rf_ceil_div(args.size[2], each), RF_GRID_YZ_MAX),
                          rf_grid_clamp(rf_ceil_div(along, threads[0]), RF_GRID_YZ_MAX)};
    struct rf_arg list[] = {rf_operand_arg(m->out), rf_operand_arg(m->in), rf_arg_struct(&args, sizeof args)};
    char name[32];
    snprintf(name, sizeof name, "permute_%s_%s", rf_dtype_name(m->from), rf_dtype_name(m->to));
    return rf_op_launch(m->queue, name, rf_grid_space(blocks, threads), list, RF_COUNT(list));
}

rf_status rf_gpu_permute(struct rf_queue *queue, enum rf_dtype to, struct rf_operand at_out, enum rf_dtype from,
                         struct rf_operand at_in, const struct rf_permute_args *args) {
    const char *op = "permute";
    RF_TRY(rf_operands_given(op, queue, args));
    if (from == RF_I32 && to == RF_I32) from = to = RF_F32; /* both move four bytes unchanged */
    RF_TRY(rf_operands_float(op, from));
    RF_TRY(rf_operands_float(op, to));
    struct rf_named_operand out = {"out", at_out, 0}, in = {"in", at_in, 0};
    uint64_t out_extent, in_extent;
    if (rf_extent_overflows(args->size, args->out_stride, 4, &out_extent) ||
        rf_extent_overflows(args->size, args->in_stride, 4, &in_extent))
        return rf_fail(RF_E_INVALID, "%s: sizes and strides are more than 64 bits can count", op);
    if (!out_extent) return RF_OK;
    RF_TRY(rf_operand_check(op, &out, out_extent, rf_dtype_bytes(to), rf_dtype_bytes(to)));
    RF_TRY(rf_operand_check(op, &in, in_extent, rf_dtype_bytes(from), rf_dtype_bytes(from)));
    RF_TRY(rf_operands_apart(op, &out, &in, false));
    struct move m = {queue, to, from, at_out, at_in, {{0}}, 0};
    for (int i = 0; i < 4; i++) m.axes[i] = (struct rf_axis){args->size[i], args->out_stride[i], args->in_stride[i]};
    m.rank = rf_axes_simplify(m.axes, 4);
    if (!rf_axes_distinct(m.axes, m.rank))
        return rf_fail(RF_E_INVALID, "%s: elements of out lie in one place: mind its strides", op);
    return transpose_fits(&m) ? transpose(&m) : copy_fits(&m) ? copy_rows(&m) : permute(&m);
}

rf_status rf_gpu_concat(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand at_out,
                        const struct rf_operand at_in[RF_CONCAT_INPUTS], const struct rf_concat_args *args) {
    static const char *const names[RF_CONCAT_INPUTS] = {"in[0]", "in[1]", "in[2]", "in[3]"};
    const char *op = "concat";
    RF_TRY(rf_operands_given(op, queue, args));
    if (dtype != RF_I32) RF_TRY(rf_operands_float(op, dtype));
    uint64_t element = rf_dtype_bytes(dtype), width = 0, total;
    for (int i = 0; i < RF_CONCAT_INPUTS; i++)
        if (rf_add_overflows(width, args->width[i], &width))
            return rf_fail(RF_E_INVALID, "%s: the widths are more than 64 bits can count", op);
    RF_TRY(rf_operands_count(op, args->outer, width, &total));
    if (!total) return RF_OK;
    struct rf_named_operand out = {"out", at_out, 0};
    RF_TRY(rf_operand_check(op, &out, total, element, element));
    struct rf_arg list[RF_CONCAT_INPUTS + 2] = {rf_operand_arg(at_out)};
    for (int i = 0; i < RF_CONCAT_INPUTS; i++) {
        list[1 + i] = rf_arg_buffer(NULL);
        if (!args->width[i]) continue;
        struct rf_named_operand in = {names[i], at_in[i], 0};
        RF_TRY(rf_operand_check(op, &in, args->outer * args->width[i], element, element));
        RF_TRY(rf_operands_apart(op, &out, &in, false));
        list[1 + i] = rf_operand_arg(at_in[i]);
    }
    list[1 + RF_CONCAT_INPUTS] = rf_arg_struct(args, sizeof *args);
    uint64_t vectors = rf_ceil_div(width, 16 / element); /* a thread takes one vector of several rows */
    uint32_t threads = vectors > 128 ? 256 : vectors > 64 ? 128 : 64;
    uint32_t blocks[2] = {rf_grid_clamp(rf_ceil_div(vectors, threads), RF_GRID_X_MAX),
                          rf_grid_clamp(rf_ceil_div(args->outer, RF_CONCAT_ROWS), RF_GRID_YZ_MAX)};
    return rf_op_launch(queue, element == 4 ? "concat_4" : "concat_2", rf_grid_plane(blocks, threads, 0), list,
                        RF_COUNT(list));
}
