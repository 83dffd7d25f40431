/* Launchers of the attention ops that work in pieces: qkt_matmul, weighted_matmul, causal_mask, kv_replicate. Also
 * the checks of operands that all launchers of attention share.
 *
 * Each op checks its sizes, then every operand (it must lie in its buffer and be aligned; an output must not overlap
 * itself or an input), and submits. The checks also make sure that sizes which a kernel counts in 32 bits fit. */
#include "ops/gpu_attention_impl.h"

#include <stdio.h>

/* ---- checks ---- */

rf_status rf_need_kernel_type(enum rf_dtype dtype) {
    if (rf_op_is_float(dtype)) return RF_OK;
    const char *name = rf_dtype_name(dtype);
    return rf_fail(RF_E_UNSUPPORTED, "no kernel for %s, only f32, f16 and bf16", name ? name : "that type");
}

rf_status rf_need_count(const char *what, uint64_t count) {
    if (count <= INT32_MAX) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%llu %s, at most %d", (unsigned long long)count, what, INT32_MAX);
}

rf_status rf_operand_check_heads(const char *op, struct rf_head_operand *heads, enum rf_dtype dtype, uint64_t align) {
    const uint64_t strides[4] = {heads->strides.batch, heads->strides.head, heads->strides.row, 1};
    const char *name = heads->operand.name;
    uint64_t block = rf_dtype_block(dtype), element = rf_dtype_block_bytes(dtype), extent;
    heads->operand.bytes = 0;
    if (rf_extent_overflows(heads->sizes, strides, 4, &extent))
        return rf_fail(RF_E_INVALID, "%s: the sizes and strides of %s overflow", op, name);
    if (!extent) return RF_OK;
    for (int i = 0; i < 3; i++)
        if (strides[i] % block || heads->sizes[3] % block)
            return rf_fail(RF_E_INVALID, "%s: %s comes in blocks of %llu, its rows and strides must be whole ones",
                           op, name, (unsigned long long)block);
    RF_TRY(rf_operand_check(op, &heads->operand, extent / block, element, RF_MAX(align, block > 1 ? 2 : element)));
    for (int i = 0; i < 3; i++)
        if (align > element && heads->sizes[i] > 1 && strides[i] * element % align)
            return rf_fail(RF_E_INVALID, "%s: the strides of %s must be multiples of %llu bytes", op, name,
                           (unsigned long long)align);
    return RF_OK;
}

rf_status rf_operand_check_output(const char *op, const struct rf_head_operand *out,
                                  const struct rf_named_operand *inputs, size_t count) {
    const uint64_t strides[4] = {out->strides.batch, out->strides.head, out->strides.row, 1};
    if (rf_elements_overlap(out->sizes, strides, 4))
        return rf_fail(RF_E_INVALID, "%s: the strides of %s make its elements overlap", op, out->operand.name);
    for (size_t i = 0; i < count; i++) RF_TRY(rf_operands_apart(op, &out->operand, &inputs[i], false));
    return RF_OK;
}

/* HIP takes no grid with more than 2^32 - 1 threads in x. */
rf_status rf_count_blocks(const char *op, const uint64_t factors[4], uint32_t threads, uint32_t *blocks) {
    uint64_t all = 1;
    bool fits = true;
    for (size_t i = 0; i < 4; i++) fits = !rf_mul_overflows(all, factors[i], &all) && fits;
    if (!fits || all > RF_MIN(INT32_MAX, UINT32_MAX / threads))
        return rf_fail(RF_E_UNSUPPORTED,
                       "%s: too large for one launch: %llu x %llu x %llu x %llu blocks of %u threads", op,
                       (unsigned long long)factors[0], (unsigned long long)factors[1], (unsigned long long)factors[2],
                       (unsigned long long)factors[3], threads);
    *blocks = (uint32_t)all;
    return RF_OK;
}

static rf_status check_call(const char *op, const struct rf_queue *queue, const void *args) {
    if (queue && args) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: %s is NULL", op, queue ? "args" : "queue");
}

/* ---- qkt_matmul and weighted_matmul ---- */

static rf_status need_product(enum rf_dtype dtype, const struct rf_head_product_args *a) {
    RF_TRY(rf_need_kernel_type(dtype));
    RF_TRY(rf_need_group(a->heads_q, a->heads_kv));
    RF_TRY(rf_need_count("query heads", a->heads_q));
    RF_TRY(rf_need_count("queries", a->q_rows));
    RF_TRY(rf_need_count("keys", a->k_rows));
    return rf_need_count("elements of a head", a->dim);
}

/* weighted: left holds the weights, in f32. Otherwise out holds the scores, in f32. */
static rf_status product(struct rf_queue *queue, const char *op, bool weighted, enum rf_dtype dtype,
                         struct rf_named_operand to, struct rf_named_operand from, struct rf_named_operand with,
                         const struct rf_head_product_args *a) {
    uint32_t blocks = 0;
    char kernel[64];
    RF_TRY(check_call(op, queue, a));
    RF_TRY(rf_within_op(op, need_product(dtype, a)));
    const uint64_t out_columns = weighted ? a->dim : a->k_rows, left_columns = weighted ? a->k_rows : a->dim;
    struct rf_head_operand out = {to, {a->batch, a->heads_q, a->q_rows, out_columns}, a->out};
    struct rf_head_operand left = {from, {a->batch, a->heads_q, a->q_rows, left_columns}, a->left};
    struct rf_head_operand right = {with, {a->batch, a->heads_kv, a->k_rows, a->dim}, a->right};
    RF_TRY(rf_operand_check_heads(op, &out, weighted ? dtype : RF_F32, 1));
    RF_TRY(rf_operand_check_heads(op, &left, weighted ? RF_F32 : dtype, 1));
    RF_TRY(rf_operand_check_heads(op, &right, dtype, 1));
    const struct rf_named_operand inputs[] = {left.operand, right.operand};
    RF_TRY(rf_operand_check_output(op, &out, inputs, 2));
    const uint64_t factors[4] = {rf_ceil_div(out_columns, RF_PRODUCT_TILE), rf_ceil_div(a->q_rows, RF_PRODUCT_TILE),
                                 a->heads_q, a->batch};
    RF_TRY(rf_count_blocks(op, factors, RF_PRODUCT_THREADS, &blocks));
    const struct rf_arg args[] = {rf_operand_arg(to.at), rf_operand_arg(from.at), rf_operand_arg(with.at),
                                  rf_arg_struct(a, sizeof *a)};
    snprintf(kernel, sizeof kernel, "%s_%s", op, rf_dtype_name(dtype));
    return rf_op_launch(queue, kernel, rf_grid_line(blocks, RF_PRODUCT_THREADS), args, RF_COUNT(args));
}

rf_status rf_gpu_qkt_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                            struct rf_operand q, struct rf_operand k, const struct rf_head_product_args *args) {
    return product(queue, "qkt_matmul", false, dtype, (struct rf_named_operand){"scores", scores, 0},
                   (struct rf_named_operand){"q", q, 0}, (struct rf_named_operand){"k", k, 0}, args);
}
rf_status rf_gpu_weighted_matmul(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                                 struct rf_operand weights, struct rf_operand v,
                                 const struct rf_head_product_args *args) {
    return product(queue, "weighted_matmul", true, dtype, (struct rf_named_operand){"out", out, 0},
                   (struct rf_named_operand){"weights", weights, 0}, (struct rf_named_operand){"v", v, 0}, args);
}

/* ---- causal_mask and kv_replicate ---- */

static rf_status need_mask(enum rf_dtype dtype, const struct rf_causal_mask_args *a) {
    RF_TRY(rf_need_kernel_type(dtype));
    RF_TRY(rf_need_count("rows", a->rows));
    RF_TRY(rf_need_count("heads", a->heads));
    RF_TRY(rf_need_count("batches", a->batch));
    return rf_need_offset(a->offset);
}

rf_status rf_gpu_causal_mask(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand scores,
                             const struct rf_causal_mask_args *a) {
    static const char op[] = "causal_mask";
    char kernel[64];
    RF_TRY(check_call(op, queue, a));
    RF_TRY(rf_within_op(op, need_mask(dtype, a)));
    struct rf_head_operand out = {{"scores", scores, 0}, {a->batch, a->heads, a->rows, a->columns}, a->scores};
    RF_TRY(rf_operand_check_heads(op, &out, dtype, 1));
    RF_TRY(rf_operand_check_output(op, &out, NULL, 0));
    if (!out.operand.bytes) return RF_OK;
    RF_PARAMS(struct rf_device_info, info);
    RF_TRY(rf_within_op(op, rf_device_get_info(rf_queue_device(queue), &info)));
    /* A wave takes a row. */
    uint64_t blocks = rf_ceil_div(a->rows, RF_HEAD_ROWS_THREADS / (uint64_t)RF_MAX(info.wave_size, 32));
    const struct rf_grid grid = {.blocks = {(uint32_t)RF_MIN(blocks, UINT64_C(1) << 20),
                                            (uint32_t)RF_MIN(a->heads, UINT64_C(65535)),
                                            (uint32_t)RF_MIN(a->batch, UINT64_C(65535))},
                                 .threads = {RF_HEAD_ROWS_THREADS}};
    const struct rf_arg args[] = {rf_operand_arg(scores), rf_arg_struct(a, sizeof *a)};
    snprintf(kernel, sizeof kernel, "causal_mask_%s", rf_dtype_name(dtype));
    return rf_op_launch(queue, kernel, grid, args, RF_COUNT(args));
}

static rf_status need_replicate(enum rf_dtype dtype, const struct rf_kv_replicate_args *a) {
    RF_TRY(rf_need_kernel_type(dtype));
    RF_TRY(rf_need_group(a->heads_q, a->heads_kv));
    return rf_need_count("query heads", a->heads_q);
}

rf_status rf_gpu_kv_replicate(struct rf_queue *queue, enum rf_dtype dtype, struct rf_operand out,
                              struct rf_operand in, const struct rf_kv_replicate_args *a) {
    static const char op[] = "kv_replicate";
    RF_TRY(check_call(op, queue, a));
    RF_TRY(rf_within_op(op, need_replicate(dtype, a)));
    struct rf_head_operand to = {{"out", out, 0}, {a->batch, a->heads_q, a->rows, a->dim}, a->out};
    struct rf_head_operand from = {{"in", in, 0}, {a->batch, a->heads_kv, a->rows, a->dim}, a->in};
    RF_TRY(rf_operand_check_heads(op, &to, dtype, 1));
    RF_TRY(rf_operand_check_heads(op, &from, dtype, 1));
    RF_TRY(rf_operand_check_output(op, &to, &from.operand, 1));
    if (!to.operand.bytes) return RF_OK;
    struct rf_kv_replicate_args joined = *a;
    if (a->out.row == a->dim && a->in.row == a->dim) { /* no gaps: one long row, no division in the kernel */
        joined.dim *= a->rows;
        joined.rows = 1;
    }
    uint64_t bytes = rf_dtype_bytes(dtype), per_thread = 16 / bytes, pairs = a->batch * a->heads_kv;
    uint64_t blocks = rf_ceil_div(a->rows * a->dim, RF_HEAD_ROWS_THREADS * per_thread);
    const uint32_t grid[2] = {(uint32_t)RF_MIN(blocks, UINT64_C(1) << 20), (uint32_t)RF_MIN(pairs, UINT64_C(65535))};
    const struct rf_arg args[] = {rf_operand_arg(out), rf_operand_arg(in), rf_arg_struct(&joined, sizeof joined)};
    return rf_op_launch(queue, bytes == 4 ? "kv_replicate_b32" : "kv_replicate_b16",
                        rf_grid_plane(grid, RF_HEAD_ROWS_THREADS, 0), args, RF_COUNT(args));
}
