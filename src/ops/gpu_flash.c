/* The launcher of flash_attention, and the choice of a kernel for the matrix units, which paged_attention uses
 * too. */
#include "ops/gpu_attention_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- kernels on matrix units ---- */

uint32_t rf_matrix_shared_bytes(const struct rf_matrix_choice *choice, bool paged) {
    uint32_t bytes = RF_MATRIX_TILES_BYTES(choice->queries, choice->tiles, choice->keys, choice->dim);
    if (choice->wide) bytes += RF_WIDE_NOTES_BYTES;
    if (paged) bytes += RF_MATRIX_PRESENT_BYTES(choice->keys);
    return bytes;
}

rf_status rf_matrix_choose(const char *op, struct rf_queue *queue, enum rf_dtype dtype, uint64_t dim, uint64_t rows,
                           enum rf_attention_path path, struct rf_matrix_choice *choice) {
#define DIM(name, type, dim) dim,
    static const uint32_t dims[] = {RF_MATRIX_DIMS(DIM, , )};
#undef DIM
    RF_PARAMS(struct rf_device_info, info);
    *choice = (struct rf_matrix_choice){.use = false};
    if (path == RF_ATTENTION_PLAIN) return RF_OK;
    RF_TRY(rf_within_op(op, rf_device_get_info(rf_queue_device(queue), &info)));
    bool units = strncmp(info.arch, "gfx10", 5) != 0; /* RDNA2 has no matrix units */
    bool nvidia = info.vendor == RF_VENDOR_NVIDIA, fits_wide = dim >= RF_WIDE_DIM_MIN && dim <= RF_WIDE_DIM;
    if (path != RF_ATTENTION_AUTO && path != RF_ATTENTION_GROUP && (!units || dtype == RF_F32))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no matrix units for %s on %s", op, rf_dtype_name(dtype), info.arch);
    if (path == RF_ATTENTION_WIDE && !fits_wide)
        return rf_fail(RF_E_UNSUPPORTED, "%s: the wide kernel takes head sizes from %d to %d, not %llu", op,
                       RF_WIDE_DIM_MIN, RF_WIDE_DIM, (unsigned long long)dim);
    uint32_t threads = RF_MATRIX_WAVES * (uint32_t)info.wave_size;
    const struct rf_matrix_choice wider = {.use = units && dtype != RF_F32,
                                           .wide = true,
                                           .dim = RF_WIDE_DIM,
                                           .queries = RF_WIDE_QUERIES,
                                           .keys = RF_WIDE_KEYS(nvidia),
                                           .tiles = RF_WIDE_TILES(nvidia),
                                           .threads = threads};
    bool wide = path == RF_ATTENTION_WIDE;
    if (path == RF_ATTENTION_AUTO && nvidia && dtype != RF_F32 && fits_wide && rows >= RF_WIDE_QUERIES)
        wide = rf_matrix_shared_bytes(&wider, false) <= (uint32_t)RF_MAX(info.max_shared_bytes_per_block, 0);
    size_t i = 0;
    while (dims[i] < dim) i++;
    *choice = wide ? wider
                   : (struct rf_matrix_choice){.use = units && dtype != RF_F32,
                                               .dim = dims[i],
                                               .queries = RF_MATRIX_QUERIES,
                                               .keys = RF_MATRIX_KEYS(dims[i], nvidia),
                                               .tiles = 2,
                                               .threads = threads};
    return RF_OK;
}

/* ---- flash_attention ---- */

static rf_status need_flash(const struct rf_flash_attention_launch *l) {
    const struct rf_flash_attention_args *a = &l->args;
    RF_TRY(rf_need_kernel_type(l->dtype));
    RF_TRY(rf_need_group(a->heads_q, a->heads_kv));
    RF_TRY(rf_need_count("query heads", a->heads_q));
    RF_TRY(rf_need_count("queries", a->q_rows));
    RF_TRY(rf_need_count("keys", a->k_rows));
    return rf_need_head_size(a->dim);
}

rf_status rf_gpu_flash_attention(struct rf_queue *queue, const struct rf_flash_attention_launch *l) {
    static const char op[] = "flash_attention";
    struct rf_matrix_choice choice;
    uint32_t blocks = 0;
    char kernel[64];
    if (!queue || !l) return rf_fail(RF_E_INVALID, "%s: %s is NULL", op, queue ? "launch" : "queue");
    const struct rf_flash_attention_args *a = &l->args;
    RF_TRY(rf_within_op(op, need_flash(l)));
    bool masked = l->mask.buffer != NULL;
    enum rf_attention_path path = masked && l->path == RF_ATTENTION_WIDE ? RF_ATTENTION_MATRIX : l->path;
    RF_TRY(rf_matrix_choose(op, queue, l->dtype, a->dim, masked ? 0 : a->q_rows, path, &choice));
    RF_TRY(rf_within_op(op, rf_need_offset(a->offset)));
    struct rf_head_operand out = {{"out", l->out, 0}, {a->batch, a->heads_q, a->q_rows, a->dim}, a->out};
    struct rf_head_operand q = {{"q", l->q, 0}, {a->batch, a->heads_q, a->q_rows, a->dim}, a->q};
    struct rf_head_operand k = {{"k", l->k, 0}, {a->batch, a->heads_kv, a->k_rows, a->dim}, a->k};
    struct rf_head_operand v = {{"v", l->v, 0}, {a->batch, a->heads_kv, a->k_rows, a->dim}, a->v};
    struct rf_head_operand mask = {{"mask", l->mask, 0}, {a->batch, a->heads_q, a->q_rows, a->k_rows}, a->mask};
    RF_TRY(rf_operand_check_heads(op, &out, l->dtype, 16));
    RF_TRY(rf_operand_check_heads(op, &q, l->dtype, 16));
    RF_TRY(rf_operand_check_heads(op, &k, l->dtype, 16));
    RF_TRY(rf_operand_check_heads(op, &v, l->dtype, 16));
    if (masked) RF_TRY(rf_operand_check_heads(op, &mask, RF_F32, 4));
    const struct rf_named_operand inputs[] = {q.operand, k.operand, v.operand, mask.operand};
    RF_TRY(rf_operand_check_output(op, &out, inputs, RF_COUNT(inputs)));
    bool groups =
        l->path == RF_ATTENTION_GROUP ||
        (l->path == RF_ATTENTION_AUTO && rf_flash_group_worth(l->args.q_rows, l->args.heads_q, l->args.batch));
    groups = groups && rf_flash_group_suits(queue, l);
    if (l->path == RF_ATTENTION_GROUP && !groups)
        return rf_fail(RF_E_UNSUPPORTED,
                       "%s: no kernel for groups of waves: this device or build has none, or not for "
                       "this type, mask, size or stride",
                       op);
    if (groups) return rf_flash_group(queue, l);
    const uint64_t factors[4] = {rf_ceil_div(a->q_rows, choice.use ? choice.queries : RF_ATTENTION_TILE), a->heads_q,
                                 a->batch, 1};
    RF_TRY(rf_count_blocks(op, factors, choice.use ? choice.threads : RF_ATTENTION_THREADS, &blocks));
    const struct rf_arg args[] = {rf_operand_arg(l->out), rf_operand_arg(l->q),    rf_operand_arg(l->k),
                                  rf_operand_arg(l->v),   rf_operand_arg(l->mask), rf_arg_struct(a, sizeof *a)};
    if (!choice.use) {
        snprintf(kernel, sizeof kernel, "flash_attention_%s", rf_dtype_name(l->dtype));
        return rf_op_launch(queue, kernel, rf_grid_line(blocks, RF_ATTENTION_THREADS), args, RF_COUNT(args));
    }
    snprintf(kernel, sizeof kernel, "flash_attention_matrix_%s_d%u%s", rf_dtype_name(l->dtype), choice.dim,
             choice.wide ? "_wide" : "");
    const struct rf_grid grid = {
        .blocks = {blocks}, .threads = {choice.threads}, .shared_bytes = rf_matrix_shared_bytes(&choice, false)};
    return rf_op_launch(queue, kernel, grid, args, RF_COUNT(args));
}
