/* Launchers of rotation and of the cache (see gpu_transformer.h). */
#include "ops/gpu_transformer.h"

#include <stdio.h>

static rf_status rope_check(const char *op, const struct rf_rope_table *table, uint64_t dim,
                            struct rf_named_operand *steps) {
    if (dim % 2 || table->rotated % 2 || !table->rotated || table->rotated > dim)
        return rf_fail(RF_E_INVALID, "%s: %u of %llu elements to rotate: both even, and not more than there are", op,
                       table->rotated, (unsigned long long)dim);
    *steps = (struct rf_named_operand){"steps", table->steps, 0};
    return rf_operand_check(op, steps, table->rotated / 2, 8, 8);
}

rf_status rf_gpu_rope(struct rf_queue *queue, const struct rf_rope_args *args) {
    const char *op = "rope";
    RF_TRY(rf_operands_given(op, queue, args));
    RF_TRY(rf_operands_float(op, args->dtype));
    if (!args->tokens || !args->heads || !args->dim) return RF_OK;
    if (args->heads > UINT32_MAX / 2 || args->dim > UINT32_MAX / 2)
        return rf_fail(RF_E_INVALID, "%s: heads or head size are over 2^31", op);
    if (args->to_f16 && args->dtype != RF_F32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: from %s to f16", op, rf_dtype_name(args->dtype));
    uint64_t element = rf_dtype_bytes(args->dtype), out_element = args->to_f16 ? 2 : element;
    bool dense = !args->out_token && !args->out_head && !args->in_token && !args->in_head;
    uint64_t whole = args->heads * args->dim;
    uint64_t sizes[] = {args->tokens, args->heads, args->dim};
    uint64_t to[] = {dense ? whole : args->out_token, dense ? args->dim : args->out_head, 1};
    uint64_t from[] = {dense ? whole : args->in_token, dense ? args->dim : args->in_head, 1};
    uint64_t out_extent, in_extent;
    if (rf_extent_overflows(sizes, to, 3, &out_extent) || rf_extent_overflows(sizes, from, 3, &in_extent))
        return rf_fail(RF_E_INVALID, "%s: sizes and strides are more than 64 bits can count", op);
    struct rf_named_operand out = {"out", args->out, 0}, in = {"in", args->in, 0}, steps,
                            positions = {"positions", args->positions, 0};
    RF_TRY(rope_check(op, &args->table, args->dim, &steps));
    RF_TRY(rf_operand_check(op, &out, out_extent, out_element, out_element));
    RF_TRY(rf_operand_check(op, &in, in_extent, element, element));
    RF_TRY(rf_operand_check(op, &positions, args->tokens, 4, 4));
    struct rf_axis axes[3];
    for (int i = 0; i < 3; i++) axes[i] = (struct rf_axis){sizes[i], to[i], from[i]};
    if (!rf_axes_distinct(axes, rf_axes_simplify(axes, 3)))
        return rf_fail(RF_E_INVALID, "%s: elements of out lie in one place: mind its strides", op);
    RF_TRY(rf_operands_apart(op, &out, &in, !args->to_f16 && to[0] == from[0] && to[1] == from[1]));
    RF_TRY(rf_operands_apart(op, &out, &steps, false));
    RF_TRY(rf_operands_apart(op, &out, &positions, false));
    uint32_t wave, units, block[3] = {256, 1, 1};
    rf_grid_device(queue, &wave, &units);
    /* A thread takes a pair, or a vector where the kernel may find them: then small blocks do. */
    uint64_t half = args->table.rotated / 2, group = 16 / element, each = args->dim / 2;
    if ((args->dim | (args->table.halves ? half : 2 * half) | to[0] | to[1] | from[0] | from[1]) % group == 0) {
        each = (args->table.halves ? args->dim - half : args->dim) / group;
        block[0] = 64;
    }
    uint64_t teams = each < block[0] ? block[0] / each : 1, few = (uint64_t)units * (1024 / block[0]);
    /* Few tokens: their heads over more blocks. */
    uint64_t split = 1;
    if (args->tokens < few) split = RF_MIN(rf_ceil_div(few, args->tokens), rf_ceil_div(args->heads, teams));
    uint32_t grid[3] = {rf_grid_clamp(args->tokens, RF_GRID_X_MAX), rf_grid_clamp(split, RF_GRID_YZ_MAX), 1};
    struct rf_arg list[] = {rf_operand_arg(args->out),
                            rf_operand_arg(args->in),
                            rf_operand_arg(args->positions),
                            rf_operand_arg(args->table.steps),
                            rf_arg_u64(args->tokens),
                            rf_arg_u32((uint32_t)args->heads),
                            rf_arg_u32((uint32_t)args->dim),
                            rf_arg_u32(args->table.rotated),
                            rf_arg_u32(args->table.halves),
                            rf_arg_u64(to[0]),
                            rf_arg_u64(to[1]),
                            rf_arg_u64(from[0]),
                            rf_arg_u64(from[1]),
                            rf_arg_f32(args->table.magnitude)};
    char name[16];
    snprintf(name, sizeof name, "rope_%s%s", rf_dtype_name(args->dtype), args->to_f16 ? "_f16" : "");
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, RF_COUNT(list));
}

/* Strides, extents and places of the two caches. */
static rf_status kv_caches(const char *op, const struct rf_kv_append_args *args, uint64_t strides[3],
                           struct rf_named_operand caches[2]) {
    bool dense = !args->page && !args->head && !args->row;
    uint64_t block = rf_dtype_block(args->dtype), extent, rows_dim;
    if (!args->page_rows || !args->page_count || args->page_rows > UINT32_MAX || args->page_count > UINT32_MAX)
        return rf_fail(RF_E_INVALID, "%s: %llu pages of %llu rows: both from 1 to 2^32 - 1", op,
                       (unsigned long long)args->page_count, (unsigned long long)args->page_rows);
    if (rf_mul_overflows(args->page_rows, args->dim, &rows_dim) ||
        rf_mul_overflows(rows_dim, args->heads, &strides[0]))
        return rf_fail(RF_E_INVALID, "%s: a page is more than 64 bits can count", op);
    if (!dense) strides[0] = args->page;
    strides[1] = dense ? rows_dim : args->head;
    strides[2] = dense ? args->dim : args->row;
    if (args->dim % block || strides[0] % block || strides[1] % block || strides[2] % block)
        return rf_fail(RF_E_INVALID, "%s: head size and strides of a cache of %s must be multiples of %llu", op,
                       rf_dtype_name(args->dtype), (unsigned long long)block);
    uint64_t sizes[] = {args->page_count, args->heads, args->page_rows, args->dim};
    uint64_t all[] = {strides[0], strides[1], strides[2], 1};
    if (rf_extent_overflows(sizes, all, 4, &extent))
        return rf_fail(RF_E_INVALID, "%s: the cache is more than 64 bits can count", op);
    struct rf_axis axes[4];
    for (int i = 0; i < 4; i++) axes[i] = (struct rf_axis){sizes[i], all[i], 0};
    if (!rf_axes_distinct(axes, rf_axes_order(axes, 4)))
        return rf_fail(RF_E_INVALID, "%s: rows of the cache lie in one place: mind its strides", op);
    caches[0] = (struct rf_named_operand){"k_cache", args->k_cache, 0};
    caches[1] = (struct rf_named_operand){"v_cache", args->v_cache, 0};
    for (int i = 0; i < 2; i++)
        RF_TRY(rf_operand_check(op, &caches[i], rf_ceil_div(extent, block), rf_dtype_block_bytes(args->dtype),
                                args->dtype == RF_F32 ? 4 : 2));
    return rf_operands_apart(op, &caches[0], &caches[1], false);
}

/* The queries that go with the keys: strides, extents, and that they lie apart from all else. */
static rf_status kv_queries(const char *op, const struct rf_kv_append_args *args,
                            const struct rf_named_operand *const others[], size_t count, uint64_t strides[2]) {
    struct rf_named_operand q = {"q", args->q, 0}, out = {"q_out", args->q_out, 0};
    uint64_t whole, out_element = args->q_to_f16 ? 2 : 4, extents[2];
    if (!args->rope) return rf_fail(RF_E_INVALID, "%s: queries are given, and no rotation", op);
    if (args->q_heads > UINT32_MAX / 2 || rf_mul_overflows(args->q_heads, args->dim, &whole))
        return rf_fail(RF_E_INVALID, "%s: %llu heads of queries are over 2^31", op,
                       (unsigned long long)args->q_heads);
    strides[0] = args->q_token ? args->q_token : whole;
    strides[1] = args->q_out_token ? args->q_out_token : whole;
    if (args->tokens > 1 && strides[1] < whole)
        return rf_fail(RF_E_INVALID, "%s: elements of q_out lie in one place: mind its strides", op);
    for (int i = 0; i < 2; i++) {
        uint64_t sizes[] = {args->tokens, whole}, all[] = {strides[i], 1};
        if (rf_extent_overflows(sizes, all, 2, &extents[i]))
            return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", op, i ? "q_out" : "q");
    }
    RF_TRY(rf_operand_check(op, &q, extents[0], 4, 4));
    RF_TRY(rf_operand_check(op, &out, extents[1], out_element, out_element));
    RF_TRY(rf_operands_apart(op, &out, &q, false));
    for (size_t i = 0; i < count; i++) RF_TRY(rf_operands_apart(op, &out, others[i], false));
    return RF_OK;
}

rf_status rf_gpu_kv_append(struct rf_queue *queue, const struct rf_kv_append_args *args) {
    RF_TRY(rf_operands_given("kv_append", queue, args));
    const char *op = args->rope ? "rope_kv_append" : "kv_append";
    if (args->dtype != RF_F32 && args->dtype != RF_F16 && args->dtype != RF_Q8_0) {
        const char *name = rf_dtype_name(args->dtype);
        return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for a cache of %s: f32, f16 or q8_0", op, name ? name : "?");
    }
    if (!args->tokens || !args->heads || !args->dim) return RF_OK;
    if (args->heads > UINT32_MAX / 2 || args->dim > UINT32_MAX / 2)
        return rf_fail(RF_E_INVALID, "%s: heads or head size are over 2^31", op);
    uint64_t strides[3] = {0}, whole = args->heads * args->dim, extent, entries;
    struct rf_named_operand caches[2], inputs[2] = {{"k", args->k, 0}, {"v", args->v, 0}}, steps = {"steps", {0}, 0};
    struct rf_named_operand positions = {"positions", args->positions, 0},
                            sequences = {"sequences", args->sequences, 0}, table = {"table", args->table, 0};
    uint64_t token[2] = {args->k_token ? args->k_token : whole, args->v_token ? args->v_token : whole};
    RF_TRY(kv_caches(op, args, strides, caches));
    for (int i = 0; i < 2; i++) {
        uint64_t sizes[] = {args->tokens, whole}, all[] = {token[i], 1};
        if (rf_extent_overflows(sizes, all, 2, &extent))
            return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", op, inputs[i].name);
        RF_TRY(rf_operand_check(op, &inputs[i], extent, 4, 4));
    }
    RF_TRY(rf_operand_check(op, &positions, args->tokens, 4, 4));
    if (args->sequences.buffer) RF_TRY(rf_operand_check(op, &sequences, args->tokens, 4, 4));
    if (args->table.buffer) {
        if (!args->table_width || !args->sequence_count ||
            rf_mul_overflows(args->table_width, args->sequence_count, &entries))
            return rf_fail(RF_E_INVALID, "%s: a table of %llu sequences of %llu pages", op,
                           (unsigned long long)args->sequence_count, (unsigned long long)args->table_width);
        RF_TRY(rf_operand_check(op, &table, entries, 4, 4));
    }
    if (args->rope) RF_TRY(rope_check(op, args->rope, args->dim, &steps));
    const struct rf_named_operand *others[] = {&inputs[0], &inputs[1], &positions, &sequences, &table, &steps};
    for (size_t i = 0; i < RF_COUNT(others); i++)
        for (int k = 0; k < 2; k++) RF_TRY(rf_operands_apart(op, &caches[k], others[i], false));
    struct {
        uint64_t page, head, row;
        uint32_t page_rows, page_count;
    } pages = {strides[0], strides[1], strides[2], (uint32_t)args->page_rows, (uint32_t)args->page_count};
    struct {
        uint64_t q_token, q_out_token;
        uint32_t q_heads, rotated;
        float magnitude;
        uint16_t halves, q_half;
    } rope = {.q_heads = (uint32_t)args->q_heads, .q_half = args->q_to_f16};
    bool with_queries = args->q.buffer && args->q_heads;
    if (with_queries) {
        const struct rf_named_operand *all[] = {&caches[0], &caches[1], &inputs[0], &inputs[1],
                                                &positions, &sequences, &table,     &steps};
        uint64_t apart[2];
        RF_TRY(kv_queries(op, args, all, RF_COUNT(all), apart));
        rope.q_token = apart[0];
        rope.q_out_token = apart[1];
    }
    struct rf_arg list[19] = {rf_operand_arg(args->k_cache),
                              rf_operand_arg(args->v_cache),
                              rf_operand_arg(args->k),
                              rf_operand_arg(args->v),
                              rf_operand_arg(args->positions),
                              rf_operand_arg(args->sequences),
                              rf_operand_arg(args->table),
                              rf_arg_u64(args->table_width),
                              rf_arg_u64(args->table.buffer ? args->sequence_count : args->page_count),
                              rf_arg_raw(&pages, sizeof pages),
                              rf_arg_u64(args->tokens),
                              rf_arg_u32((uint32_t)args->heads),
                              rf_arg_u32((uint32_t)args->dim),
                              rf_arg_u64(token[0]),
                              rf_arg_u64(token[1])};
    size_t count = 15;
    if (args->rope) {
        rope.rotated = args->rope->rotated;
        rope.halves = args->rope->halves;
        rope.magnitude = args->rope->magnitude;
        list[count++] = rf_operand_arg(args->rope->steps);
        list[count++] = rf_arg_raw(&rope, sizeof rope);
        list[count++] = rf_operand_arg(args->q_out);
        list[count++] = rf_operand_arg(args->q);
    }
    uint32_t wave, units, block[3] = {256, 1, 1};
    rf_grid_device(queue, &wave, &units);
    /* By fours a block takes several heads at once, of many tokens all of them; few tokens: over more blocks. Rows
     * that are not whole fours are taken head by head, whatever the grid. */
    bool fours = args->dim % 4 == 0 && args->dim <= 1024;
    uint64_t together = fours ? 256 / (args->dim / 4) : 1;
    uint64_t heads = with_queries ? RF_MAX(args->heads, args->q_heads) : args->heads;
    uint64_t split = args->tokens < 8 * (uint64_t)units || !fours ? rf_ceil_div(heads, together) : 1;
    if (!fours) block[0] = args->dim <= 64 ? 64 : args->dim <= 128 ? 128 : 256;
    uint32_t grid[3] = {rf_grid_clamp(args->tokens, RF_GRID_X_MAX), rf_grid_clamp(split, RF_GRID_YZ_MAX),
                        with_queries ? 3 : 2};
    char name[32];
    snprintf(name, sizeof name, "%s_%s", op, args->dtype == RF_F32 ? "f32" : args->dtype == RF_F16 ? "f16" : "q8_0");
    return rf_op_launch(queue, name, rf_grid_space(grid, block), list, count);
}
