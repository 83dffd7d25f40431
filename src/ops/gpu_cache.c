/* Launchers of rotation and of the KV cache (see gpu_cache.h): each runs all checks and then launches once. */
#include "ops/gpu_cache.h"

#include <stdio.h>

static rf_status too_many(const char *op, const char *what) {
    return rf_fail(RF_E_INVALID, "%s: %s more than 64 bits can count", op, what);
}
static rf_status rope_check(const char *op, uint32_t rotated, uint32_t dim, struct rf_named_operand *steps) {
    if (dim % 2 || rotated % 2 || !rotated || rotated > dim)
        return rf_fail(RF_E_INVALID, "%s: %u of %u elements to rotate: both even, and not more than there are", op,
                       rotated, dim);
    return rf_operand_check(op, steps, rotated / 2, 8, 8);
}
static rf_status heads_check(const char *op, uint32_t heads, uint32_t dim) {
    if (heads > UINT32_MAX / 2 || dim > UINT32_MAX / 2)
        return rf_fail(RF_E_INVALID, "%s: heads or head size are over 2^31", op);
    return RF_OK;
}

static rf_status rope_operands(const char *op, const struct rf_gpu_rope *rope) {
    const struct rf_rope_args *args = &rope->args;
    struct rf_named_operand out = {"out", rope->out, 0}, in = {"in", rope->in, 0}, steps = {"steps", rope->steps, 0},
                            positions = {"positions", rope->positions, 0};
    uint64_t sizes[] = {args->tokens, args->heads, args->dim}, out_extent, in_extent;
    uint64_t to[] = {args->out_token, args->out_head, 1}, from[] = {args->in_token, args->in_head, 1};
    uint64_t element = rf_dtype_bytes(rope->dtype), out_element = rf_dtype_bytes(rope->out_dtype);
    if (rf_extent_overflows(sizes, to, 3, &out_extent) || rf_extent_overflows(sizes, from, 3, &in_extent))
        return too_many(op, "sizes and strides are");
    RF_TRY(rope_check(op, args->rotated, args->dim, &steps));
    RF_TRY(rf_operand_check(op, &out, out_extent, out_element, out_element));
    RF_TRY(rf_operand_check(op, &in, in_extent, element, element));
    RF_TRY(rf_operand_check(op, &positions, args->tokens, 4, 4));
    struct rf_axis axes[3];
    for (int i = 0; i < 3; i++) axes[i] = (struct rf_axis){sizes[i], to[i], from[i]};
    if (!rf_axes_distinct(axes, rf_axes_simplify(axes, 3)))
        return rf_fail(RF_E_INVALID, "%s: elements of out lie in one place: mind its strides", op);
    bool may_be_same = rope->dtype == rope->out_dtype && to[0] == from[0] && to[1] == from[1];
    RF_TRY(rf_operands_apart(op, &out, &in, may_be_same));
    RF_TRY(rf_operands_apart(op, &out, &steps, false));
    return rf_operands_apart(op, &out, &positions, false);
}

rf_status rf_gpu_rope(struct rf_queue *queue, const struct rf_gpu_rope *rope) {
    const char *op = "rope";
    RF_TRY(rf_operands_given(op, queue, rope));
    RF_TRY(rf_operands_float(op, rope->dtype));
    const struct rf_rope_args *args = &rope->args;
    if (!args->tokens || !args->heads || !args->dim) return RF_OK;
    RF_TRY(heads_check(op, args->heads, args->dim));
    bool to_f16 = rope->out_dtype != rope->dtype;
    if (to_f16 && (rope->dtype != RF_F32 || rope->out_dtype != RF_F16)) {
        const char *to = rf_dtype_name(rope->out_dtype);
        return rf_fail(RF_E_UNSUPPORTED, "%s: from %s to %s", op, rf_dtype_name(rope->dtype), to ? to : "?");
    }
    RF_TRY(rope_operands(op, rope));
    uint32_t wave, units, block[3] = {RF_ROPE_THREADS, 1, 1};
    rf_grid_device(queue, &wave, &units);
    /* A thread takes one pair, or a vector if the kernel can use vectors; small blocks are then enough. */
    uint64_t half = args->rotated / 2, group = 16 / rf_dtype_bytes(rope->dtype), each = args->dim / 2;
    uint64_t strides = args->out_token | args->out_head | args->in_token | args->in_head;
    if ((args->dim | (args->halves ? half : 2 * half) | strides) % group == 0) {
        each = (args->halves ? args->dim - half : args->dim) / group;
        block[0] = 64;
    }
    uint64_t teams = each < block[0] ? block[0] / each : 1, few = (uint64_t)units * (1024 / block[0]);
    /* With few tokens, the heads of a token are spread over more blocks. */
    uint64_t split = 1;
    if (args->tokens < few) split = RF_MIN(rf_ceil_div(few, args->tokens), rf_ceil_div(args->heads, teams));
    uint32_t grid[3] = {rf_grid_clamp(args->tokens, RF_GRID_X_MAX), rf_grid_clamp(split, RF_GRID_YZ_MAX), 1};
    struct rf_arg list[] = {rf_operand_arg(rope->out), rf_operand_arg(rope->in), rf_operand_arg(rope->positions),
                            rf_operand_arg(rope->steps), rf_arg_struct(args, sizeof *args)};
    char name[16];
    snprintf(name, sizeof name, "rope_%s%s", rf_dtype_name(rope->dtype), to_f16 ? "_f16" : "");
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, RF_COUNT(list));
}

/* ---- the KV cache ---- */

/* The operands of a call, in the order in which overlaps are looked for: written operands come first. */
enum { K_CACHE, V_CACHE, K, V, POSITIONS, SEQUENCES, TABLE, STEPS, Q, Q_OUT, OPERANDS };

static rf_status check_caches(const char *op, const struct rf_gpu_kv_append *append, struct rf_named_operand *all) {
    const struct rf_kv_append_args *args = &append->args;
    uint64_t block = rf_dtype_block(append->dtype), extent;
    if (!args->page_rows || !args->page_count)
        return rf_fail(RF_E_INVALID, "%s: %u pages of %u rows: both from 1 to 2^32 - 1", op, args->page_count,
                       args->page_rows);
    if (args->dim % block || args->page % block || args->head % block || args->row % block)
        return rf_fail(RF_E_INVALID, "%s: head size and strides of a cache of %s must be multiples of %llu", op,
                       rf_dtype_name(append->dtype), (unsigned long long)block);
    uint64_t sizes[] = {args->page_count, args->heads, args->page_rows, args->dim};
    uint64_t strides[] = {args->page, args->head, args->row, 1};
    if (rf_extent_overflows(sizes, strides, 4, &extent)) return too_many(op, "the cache is");
    struct rf_axis axes[4];
    for (int i = 0; i < 4; i++) axes[i] = (struct rf_axis){sizes[i], strides[i], 0};
    if (!rf_axes_distinct(axes, rf_axes_order(axes, 4)))
        return rf_fail(RF_E_INVALID, "%s: rows of the cache lie in one place: mind its strides", op);
    for (int i = K_CACHE; i <= V_CACHE; i++)
        RF_TRY(rf_operand_check(op, &all[i], rf_ceil_div(extent, block), rf_dtype_block_bytes(append->dtype),
                                append->dtype == RF_F32 ? 4 : 2));
    return RF_OK;
}
/* Checks an operand that holds, for each token, `heads` dense heads; tokens lie a stride apart. */
static rf_status check_tokens(const char *op, const struct rf_kv_append_args *args, uint32_t heads, uint64_t stride,
                              struct rf_named_operand *operand, uint64_t element_bytes) {
    uint64_t sizes[] = {args->tokens, (uint64_t)heads * args->dim}, strides[] = {stride, 1}, extent;
    if (rf_extent_overflows(sizes, strides, 2, &extent))
        return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", op, operand->name);
    return rf_operand_check(op, operand, extent, element_bytes, element_bytes);
}
static rf_status check_queries(const char *op, const struct rf_gpu_kv_append *append, struct rf_named_operand *all) {
    const struct rf_kv_append_args *args = &append->args;
    if (!append->steps.buffer) return rf_fail(RF_E_INVALID, "%s: queries are given, and no rotation", op);
    if (args->q_heads > UINT32_MAX / 2)
        return rf_fail(RF_E_INVALID, "%s: %u heads of queries are over 2^31", op, args->q_heads);
    if (args->tokens > 1 && args->q_out_token < (uint64_t)args->q_heads * args->dim)
        return rf_fail(RF_E_INVALID, "%s: elements of q_out lie in one place: mind its strides", op);
    RF_TRY(check_tokens(op, args, args->q_heads, args->q_token, &all[Q], 4));
    return check_tokens(op, args, args->q_heads, args->q_out_token, &all[Q_OUT], args->q_half ? 2 : 4);
}

static rf_status check_append(const char *op, const struct rf_gpu_kv_append *append,
                              const struct rf_named_operand *others, size_t other_count) {
    const struct rf_kv_append_args *args = &append->args;
    struct rf_named_operand all[OPERANDS] = {
        {"k_cache", append->k_cache, 0},
        {"v_cache", append->v_cache, 0},
        {"k", append->k, 0},
        {"v", append->v, 0},
        {"positions", append->positions, 0},
        {"sequences", append->sequences, 0},
        {"table", append->table, 0},
        {"steps", append->steps, 0},
        {"q", append->q, 0},
        {"q_out", append->q_out, 0},
    };
    uint64_t entries;
    RF_TRY(check_caches(op, append, all));
    RF_TRY(check_tokens(op, args, args->heads, args->k_token, &all[K], 4));
    RF_TRY(check_tokens(op, args, args->heads, args->v_token, &all[V], 4));
    RF_TRY(rf_operand_check(op, &all[POSITIONS], args->tokens, 4, 4));
    if (append->sequences.buffer) RF_TRY(rf_operand_check(op, &all[SEQUENCES], args->tokens, 4, 4));
    if (append->table.buffer) {
        if (!args->table_width || !args->sequence_count ||
            rf_mul_overflows(args->table_width, args->sequence_count, &entries))
            return rf_fail(RF_E_INVALID, "%s: a table of %llu sequences of %llu pages", op,
                           (unsigned long long)args->sequence_count, (unsigned long long)args->table_width);
        RF_TRY(rf_operand_check(op, &all[TABLE], entries, 4, 4));
    }
    if (append->steps.buffer) RF_TRY(rope_check(op, args->rotated, args->dim, &all[STEPS]));
    if (args->q_heads) RF_TRY(check_queries(op, append, all));
    /* An operand that was not checked has no bytes and overlaps nothing. */
    static const int written[] = {K_CACHE, V_CACHE, Q_OUT};
    for (size_t w = 0; w < RF_COUNT(written); w++) {
        for (int i = 0; i < OPERANDS; i++)
            if (i != written[w]) RF_TRY(rf_operands_apart(op, &all[written[w]], &all[i], false));
        for (size_t i = 0; i < other_count; i++) RF_TRY(rf_operands_apart(op, &all[written[w]], &others[i], false));
    }
    if (!other_count) return RF_OK;
    /* A launch with other operands computes k, v and q too. */
    static const int read[] = {POSITIONS, SEQUENCES, TABLE, STEPS};
    for (size_t r = 0; r < RF_COUNT(read); r++) {
        const struct rf_named_operand *computed[] = {&all[K], &all[V], &all[Q]};
        for (size_t i = 0; i < RF_COUNT(computed); i++)
            RF_TRY(rf_operands_apart(op, computed[i], &all[read[r]], false));
        for (size_t i = 0; i < other_count; i++) RF_TRY(rf_operands_apart(op, &others[i], &all[read[r]], false));
    }
    return RF_OK;
}

static rf_status check_type(const char *op, enum rf_dtype dtype) {
    if (dtype == RF_F32 || dtype == RF_F16 || dtype == RF_Q8_0) return RF_OK;
    const char *name = rf_dtype_name(dtype);
    return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for a cache of %s: f32, f16 or q8_0", op, name ? name : "?");
}
rf_status rf_gpu_kv_append_check(const char *op, const struct rf_gpu_kv_append *append,
                                 const struct rf_named_operand *others, size_t other_count) {
    RF_TRY(check_type(op, append->dtype));
    RF_TRY(heads_check(op, append->args.heads, append->args.dim));
    return check_append(op, append, others, other_count);
}

rf_status rf_gpu_kv_append(struct rf_queue *queue, const struct rf_gpu_kv_append *append) {
    RF_TRY(rf_operands_given("kv_append", queue, append));
    bool rope = append->steps.buffer != NULL;
    const char *op = rope ? "rope_kv_append" : "kv_append";
    const struct rf_kv_append_args *args = &append->args;
    enum rf_dtype dtype = append->dtype;
    RF_TRY(check_type(op, dtype));
    if (!args->tokens || !args->heads || !args->dim) return RF_OK;
    RF_TRY(rf_gpu_kv_append_check(op, append, NULL, 0));
    struct rf_arg list[11] = {
        rf_operand_arg(append->k_cache), rf_operand_arg(append->v_cache),   rf_operand_arg(append->k),
        rf_operand_arg(append->v),       rf_operand_arg(append->positions), rf_operand_arg(append->sequences),
        rf_operand_arg(append->table),
    };
    size_t count = 7;
    if (rope) {
        list[count++] = rf_operand_arg(append->steps);
        list[count++] = rf_operand_arg(append->q_out);
        list[count++] = rf_operand_arg(append->q);
    }
    list[count++] = rf_arg_struct(args, sizeof *args);
    uint32_t wave, units, block[3] = {RF_KV_APPEND_THREADS, 1, 1};
    rf_grid_device(queue, &wave, &units);
    /* If rows are whole groups of four elements, a block takes several heads at once, and with many tokens all heads
     * of a token; with few tokens the heads are spread over more blocks. Other rows are taken head by head, whatever
     * the grid. */
    bool fours = args->dim % 4 == 0 && args->dim / 4 <= RF_KV_APPEND_THREADS;
    uint64_t together = fours ? RF_KV_APPEND_THREADS / (args->dim / 4) : 1;
    uint64_t heads = RF_MAX(args->heads, args->q_heads);
    uint64_t split = args->tokens < 8 * (uint64_t)units || !fours ? rf_ceil_div(heads, together) : 1;
    if (!fours) block[0] = args->dim <= 64 ? 64 : args->dim <= 128 ? 128 : RF_KV_APPEND_THREADS;
    uint32_t grid[3] = {rf_grid_clamp(args->tokens, RF_GRID_X_MAX), rf_grid_clamp(split, RF_GRID_YZ_MAX),
                        args->q_heads ? 3 : 2};
    char name[32];
    snprintf(name, sizeof name, "%s_%s", op, dtype == RF_F32 ? "f32" : dtype == RF_F16 ? "f16" : "q8_0");
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, count);
}
