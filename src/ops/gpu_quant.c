/* Launchers of the ops on quantized types (see gpu_matmul.h): embedding, dequantize, quantize_q8. */
#include "ops/gpu_matmul_impl.h"

rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_gpu_embedding *call) {
    const char *op = "embedding";
    const struct rf_embedding_args *a = &call->args;
    bool quantized = rf_op_is_quantized(call->table_type);
    RF_TRY(need_queue(op, queue));
    if (!is_weight(call->table_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a table of %s", op, type_name(call->table_type));
    if (!rf_op_is_float(call->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: output of %s", op, type_name(call->type));
    if (a->columns % rf_dtype_block(call->table_type))
        return rf_fail(RF_E_INVALID, "%s: %llu columns are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->columns, rf_dtype_block(call->table_type), type_name(call->table_type));
    uint64_t table_bytes, out_bytes, index_bytes;
    struct rf_named_operand out = {"out", call->out, 0}, table = {"table", call->table, 0},
                            indices = {"indices", call->indices, 0};
    if (rows_bytes_overflow(call->table_type, a->table_rows, a->columns, a->columns, &table_bytes) ||
        rows_bytes_overflow(call->type, a->count, a->columns, a->columns, &out_bytes) ||
        rf_mul_overflows(a->count, sizeof(int32_t), &index_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->count,
                       (unsigned long long)a->columns);
    RF_TRY(rf_operand_check_bytes(op, &table, table_bytes, quantized ? 16 : rf_dtype_bytes(call->table_type)));
    RF_TRY(rf_operand_check_bytes(op, &indices, index_bytes, sizeof(int32_t)));
    RF_TRY(rf_operand_check_bytes(op, &out, out_bytes, quantized ? 16 : rf_dtype_bytes(call->type)));
    RF_TRY(rf_operands_apart(op, &out, &table, false));
    RF_TRY(rf_operands_apart(op, &out, &indices, false));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "embedding_%s_%s", type_suffix(call->table_type), type_suffix(call->type));
    struct rf_arg args[] = {rf_operand_arg(call->out), rf_operand_arg(call->table), rf_operand_arg(call->indices),
                            rf_arg_struct(a, sizeof *a)};
    uint64_t units = a->columns / (call->type == RF_F32 ? 8 : unit_elements(call->table_type));
    uint32_t threads = units <= 64 ? 64 : units <= 128 ? 128 : RF_QUANT_THREADS;
    uint32_t grid[2] = {blocks_for(units, threads, ROUND_X), blocks_for(a->count, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, threads, 0), args, RF_COUNT(args));
}

rf_status rf_gpu_dequantize(struct rf_queue *queue, enum rf_dtype type, struct rf_operand out, enum rf_dtype from,
                            struct rf_operand in, const struct rf_dequantize_args *a) {
    const char *op = "dequantize";
    RF_TRY(need_queue(op, queue));
    if (!rf_op_is_quantized(from)) return rf_fail(RF_E_UNSUPPORTED, "%s: from %s", op, type_name(from));
    if (!rf_op_is_float(type)) return rf_fail(RF_E_UNSUPPORTED, "%s: to %s", op, type_name(type));
    if (a->count % rf_dtype_block(from))
        return rf_fail(RF_E_INVALID, "%s: %llu elements are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->count, rf_dtype_block(from), type_name(from));
    uint64_t in_bytes, out_bytes;
    struct rf_named_operand to = {"out", out, 0}, blocks = {"in", in, 0};
    if (rows_bytes_overflow(from, 1, a->count, 0, &in_bytes) || rows_bytes_overflow(type, 1, a->count, 0, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu elements overflow", op, (unsigned long long)a->count);
    RF_TRY(rf_operand_check_bytes(op, &blocks, in_bytes, 16));
    RF_TRY(rf_operand_check_bytes(op, &to, out_bytes, 16));
    RF_TRY(rf_operands_apart(op, &to, &blocks, false));
    if (!a->count) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "dequantize_%s_%s", type_suffix(from), type_suffix(type));
    struct rf_arg args[] = {rf_operand_arg(out), rf_operand_arg(in), rf_arg_struct(a, sizeof *a)};
    uint64_t each = type == RF_F32 ? 8 * RF_DEQUANTIZE_PARTS : unit_elements(from);
    uint32_t blocks_x = blocks_for(a->count / each, RF_QUANT_THREADS, ROUND_X);
    return rf_op_launch(queue, name, rf_grid_line(blocks_x, RF_QUANT_THREADS), args, RF_COUNT(args));
}

bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    return rf_mul_overflows(rows, columns / RF_Q8_BLOCK, bytes) || rf_mul_overflows(*bytes, RF_Q8_BLOCK_BYTES, bytes);
}

rf_status rf_gpu_quantize_q8(struct rf_queue *queue, struct rf_operand out, enum rf_dtype type, struct rf_operand x,
                             const struct rf_quantize_q8_args *a) {
    const char *op = "quantize_q8";
    uint64_t x_bytes, out_bytes;
    struct rf_named_operand blocks = {"out", out, 0}, rows = {"x", x, 0};
    RF_TRY(need_queue(op, queue));
    if (!rf_op_is_float(type)) return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(type));
    if (a->columns % RF_Q8_BLOCK || a->x_stride % RF_Q8_BLOCK || a->x_stride < a->columns)
        return rf_fail(RF_E_INVALID,
                       "%s: columns %llu and stride %llu must be multiples of %d, the stride no smaller", op,
                       (unsigned long long)a->columns, (unsigned long long)a->x_stride, RF_Q8_BLOCK);
    if (rows_bytes_overflow(type, a->rows, a->columns, a->x_stride, &x_bytes) ||
        rf_q8_bytes_overflow(a->rows, a->columns, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->rows,
                       (unsigned long long)a->columns);
    RF_TRY(rf_operand_check_bytes(op, &rows, x_bytes, 16));
    RF_TRY(rf_operand_check_bytes(op, &blocks, out_bytes, 8));
    RF_TRY(rf_operands_apart(op, &blocks, &rows, false));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "quantize_q8_%s", type_suffix(type));
    struct rf_arg args[] = {rf_operand_arg(out), rf_operand_arg(x), rf_arg_struct(a, sizeof *a)};
    uint32_t share = type == RF_F32 ? RF_QUANTIZE_Q8_SHARE_F32 : RF_QUANTIZE_Q8_SHARE_16;
    uint32_t grid[2] = {blocks_for(a->columns / share, RF_QUANT_THREADS, ROUND_X), blocks_for(a->rows, 1, Y_MAX)};
    return rf_op_launch(queue, name, rf_grid_plane(grid, RF_QUANT_THREADS, 0), args, RF_COUNT(args));
}
