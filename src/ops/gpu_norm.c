/* Launchers of the norms and of softmax (see gpu_norm.h).
 *
 * Each op names its operands, checks them all, then launches once. Grids depend on shapes and on the device's size;
 * results do not depend on the grid. */
#include "ops/gpu_norm.h"

#include <stdio.h>

/* As norm_args.h says: a wave takes a row if it can hold the row, otherwise a block takes it. */
static struct rf_grid row_grid(struct rf_queue *queue, enum rf_dtype dtype, uint64_t rows, uint64_t columns) {
    uint32_t wave, units;
    rf_grid_device(queue, &wave, &units);
    uint64_t held = RF_ROW_WAVE_BYTES((uint64_t)wave) / rf_dtype_bytes(dtype);
    if (columns <= held) {
        uint64_t blocks = rf_ceil_div(rows, RF_ROW_WAVE_THREADS / wave);
        return rf_grid_line(rf_grid_clamp(blocks, RF_GRID_X_MAX), RF_ROW_WAVE_THREADS);
    }
    uint32_t waves = rf_grid_clamp(rf_ceil_div(columns, held), RF_ROW_THREADS_MAX / wave);
    return rf_grid_line(rf_grid_clamp(rows, RF_GRID_X_MAX), waves * wave);
}

static rf_status norm_launch(struct rf_queue *queue, const char *op, enum rf_dtype dtype, enum rf_dtype to,
                             const struct rf_norm_args *args, const struct rf_arg *list, size_t count) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s%s%s", op, rf_dtype_name(dtype), to == dtype ? "" : "_",
             to == dtype ? "" : rf_dtype_name(to));
    return rf_op_launch(queue, name, row_grid(queue, dtype, args->rows, args->columns), list, count);
}

/* Checks rms_norm (bias is left out) and layer_norm. */
static rf_status norm_check(const char *op, enum rf_dtype dtype, enum rf_dtype to, uint64_t elements,
                            struct rf_operand at_out, struct rf_operand at_in, struct rf_operand at_weight,
                            struct rf_operand at_bias, const struct rf_norm_args *args) {
    struct rf_named_operand out = {"out", at_out, 0}, in = {"in", at_in, 0}, weight = {"weight", at_weight, 0},
                            bias = {"bias", at_bias, 0};
    uint64_t element = rf_dtype_bytes(dtype), to_element = rf_dtype_bytes(to);
    RF_TRY(rf_operand_check(op, &out, elements, to_element, to_element));
    RF_TRY(rf_operand_check(op, &in, elements, element, element));
    if (at_weight.buffer) RF_TRY(rf_operand_check(op, &weight, args->columns, 4, 4));
    if (at_bias.buffer) RF_TRY(rf_operand_check(op, &bias, args->columns, 4, 4));
    RF_TRY(rf_operands_apart(op, &out, &in, to == dtype));
    RF_TRY(rf_operands_apart(op, &out, &weight, false));
    return rf_operands_apart(op, &out, &bias, false);
}

static rf_status rms_norm(struct rf_queue *queue, enum rf_dtype dtype, enum rf_dtype to, struct rf_operand out,
                          struct rf_operand in, struct rf_operand weight, const struct rf_norm_args *args) {
    const char *op = "rms_norm";
    uint64_t elements;
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, dtype));
    RF_TRY(rf_operands_float(op, to));
    RF_TRY(rf_operands_count(op, args->rows, args->columns, &elements));
    if (!elements) return RF_OK;
    RF_TRY(norm_check(op, dtype, to, elements, out, in, weight, (struct rf_operand){0}, args));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(in), rf_operand_arg(weight),
                            rf_arg_struct(args, sizeof *args)};
    return norm_launch(queue, op, dtype, to, args, list, RF_COUNT(list));
}
rf_status rf_gpu_rms_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                          struct rf_operand weight, const struct rf_norm_args *args) {
    return rms_norm(queue, dtype, dtype, out, in, weight, args);
}
rf_status rf_gpu_rms_norm_to(struct rf_queue *queue, enum rf_dtype to, struct rf_operand out, struct rf_operand in,
                             struct rf_operand weight, const struct rf_norm_args *args) {
    return rms_norm(queue, RF_F32, to, out, in, weight, args);
}

rf_status rf_gpu_layer_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out, struct rf_operand in,
                            struct rf_operand weight, struct rf_operand bias, const struct rf_norm_args *args) {
    const char *op = "layer_norm";
    uint64_t elements;
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, dtype));
    RF_TRY(rf_operands_count(op, args->rows, args->columns, &elements));
    if (!elements) return RF_OK;
    RF_TRY(norm_check(op, dtype, dtype, elements, out, in, weight, bias, args));
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(in), rf_operand_arg(weight), rf_operand_arg(bias),
                            rf_arg_struct(args, sizeof *args)};
    return norm_launch(queue, op, dtype, dtype, args, list, RF_COUNT(list));
}

rf_status rf_gpu_add_rms_norm(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand at_sum,
                              struct rf_operand at_out, struct rf_operand at_a, struct rf_operand at_b,
                              struct rf_operand at_weight, const struct rf_norm_args *args) {
    const char *op = "add_rms_norm";
    uint64_t elements;
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, dtype));
    RF_TRY(rf_operands_count(op, args->rows, args->columns, &elements));
    if (!elements) return RF_OK;
    struct rf_named_operand sum = {"sum", at_sum, 0}, out = {"out", at_out, 0}, a = {"a", at_a, 0},
                            b = {"b", at_b, 0}, weight = {"weight", at_weight, 0};
    struct rf_named_operand *all[] = {&sum, &out, &a, &b};
    uint64_t element = rf_dtype_bytes(dtype);
    for (size_t i = 0; i < RF_COUNT(all); i++) RF_TRY(rf_operand_check(op, all[i], elements, element, element));
    if (at_weight.buffer) RF_TRY(rf_operand_check(op, &weight, args->columns, 4, 4));
    RF_TRY(rf_operands_apart(op, &sum, &out, false));
    for (size_t i = 2; i < RF_COUNT(all); i++) {
        RF_TRY(rf_operands_apart(op, &sum, all[i], true));
        RF_TRY(rf_operands_apart(op, &out, all[i], true));
    }
    RF_TRY(rf_operands_apart(op, &sum, &weight, false));
    RF_TRY(rf_operands_apart(op, &out, &weight, false));
    struct rf_arg list[] = {rf_operand_arg(at_sum), rf_operand_arg(at_out),    rf_operand_arg(at_a),
                            rf_operand_arg(at_b),   rf_operand_arg(at_weight), rf_arg_struct(args, sizeof *args)};
    return norm_launch(queue, op, dtype, dtype, args, list, RF_COUNT(list));
}

static rf_status softmax_check(const char *op, struct rf_named_operand *out, struct rf_named_operand *in,
                               uint64_t elements) {
    RF_TRY(rf_operand_check(op, out, elements, 4, 4));
    RF_TRY(rf_operand_check(op, in, elements, 4, 4));
    return rf_operands_apart(op, out, in, true);
}

rf_status rf_gpu_softmax(struct rf_queue *queue, struct rf_operand at_out, struct rf_operand at_in,
                         const struct rf_softmax_args *args) {
    const char *op = "softmax";
    uint64_t elements;
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_count(op, args->rows, args->columns, &elements));
    if (!elements) return RF_OK;
    struct rf_named_operand out = {"out", at_out, 0}, in = {"in", at_in, 0};
    RF_TRY(softmax_check(op, &out, &in, elements));
    struct rf_arg list[] = {rf_operand_arg(at_out), rf_operand_arg(at_in), rf_arg_u64(args->rows),
                            rf_arg_u64(args->columns)};
    return rf_op_launch(queue, "softmax_f32", row_grid(queue, RF_F32, args->rows, args->columns), list,
                        RF_COUNT(list));
}

rf_status rf_gpu_softmax_mask(struct rf_queue *queue, struct rf_operand at_out, struct rf_operand at_in,
                              enum rf_dtype mask_dtype, struct rf_operand at_mask,
                              const struct rf_softmax_args *args) {
    const char *op = "softmax_mask";
    uint64_t elements, period = 1;
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_count(op, args->rows, args->columns, &elements));
    if (!elements) return RF_OK;
    struct rf_softmax_args own = *args;
    bool masked = at_mask.buffer != NULL;
    if (!masked) {
        mask_dtype = RF_F32;
        own.rows_each = own.heads = 1; /* the kernel divides by both, even without a mask */
    }
    if (mask_dtype != RF_F32 && mask_dtype != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "%s: the mask's type is %s: f32 or f16", op, rf_dtype_name(mask_dtype));
    if (masked && (rf_mul_overflows(own.rows_each, own.heads, &period) || !period || own.rows % period))
        return rf_fail(RF_E_INVALID, "%s: %llu rows are no multiple of %llu heads of %llu rows each", op,
                       (unsigned long long)own.rows, (unsigned long long)own.heads,
                       (unsigned long long)own.rows_each);
    struct rf_named_operand out = {"out", at_out, 0}, in = {"in", at_in, 0}, mask = {"mask", at_mask, 0};
    RF_TRY(softmax_check(op, &out, &in, elements));
    if (masked) {
        uint64_t element = rf_dtype_bytes(mask_dtype), rows = own.rows / period * own.rows_each;
        RF_TRY(rf_operand_check(op, &mask, rows * own.columns, element, element));
    }
    RF_TRY(rf_operands_apart(op, &out, &mask, false));
    struct rf_arg list[] = {rf_operand_arg(at_out), rf_operand_arg(at_in), rf_operand_arg(at_mask),
                            rf_arg_struct(&own, sizeof own)};
    return rf_op_launch(queue, mask_dtype == RF_F32 ? "softmax_mask_f32_f32" : "softmax_mask_f32_f16",
                        row_grid(queue, RF_F32, own.rows, own.columns), list, RF_COUNT(list));
}
