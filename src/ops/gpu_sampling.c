/* Launchers of argmax and of the sampler (see gpu_sampling.h): all checks come first, then two to eight launches in
 * queue order. The shape alone decides how rows are cut into chunks. */
#include "ops/gpu_sampling.h"

#include <stddef.h>

/* The number of elements of a row that one block of the sampler takes. */
static uint32_t chunk_of(uint64_t columns) {
    return columns <= 1 << 18 ? 1024 : RF_SAMPLING_CHUNK_MAX;
}
static uint64_t row_bytes_of(uint64_t columns) {
    return sizeof(struct rf_sample_space) + rf_ceil_div(columns * 4, 64) * 64;
}

static rf_status check_shape(const char *op, uint64_t rows, uint64_t columns) {
    if (columns < 1 || columns > RF_SAMPLING_COLUMNS_MAX || rows > RF_SAMPLING_ROWS_MAX)
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu: up to %d rows of 1 to %d", op, (unsigned long long)rows,
                       (unsigned long long)columns, RF_SAMPLING_ROWS_MAX, RF_SAMPLING_COLUMNS_MAX);
    return RF_OK;
}

/* A chunk of argmax is longer if there are enough rows to fill a device, so that few blocks end in a reduction. */
static uint32_t argmax_chunk(uint64_t rows, uint64_t columns) {
    uint32_t chunk = chunk_of(columns);
    while (chunk < 16384 && rows * rf_ceil_div(columns, 4 * chunk) >= 1024) chunk *= 4;
    return chunk;
}

rf_status rf_gpu_argmax_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    RF_TRY(check_shape("argmax", rows, columns));
    *bytes = rows * rf_ceil_div(columns, argmax_chunk(rows, columns)) * 8;
    return RF_OK;
}
rf_status rf_gpu_sample_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    RF_TRY(check_shape("sample", rows, columns));
    *bytes = rows * row_bytes_of(columns);
    return RF_OK;
}

/* Checks rows of elements of 4 or 8 bytes; rows lie a stride apart. */
static rf_status check_rows_of(const char *op, struct rf_named_operand *values, uint64_t rows, uint64_t columns,
                               uint64_t stride, uint64_t bytes) {
    uint64_t sizes[] = {rows, columns}, strides[] = {stride, 1}, extent;
    if (rf_extent_overflows(sizes, strides, 2, &extent))
        return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", op, values->name);
    return rf_operand_check(op, values, extent, bytes, bytes);
}
static rf_status check_rows(const char *op, struct rf_named_operand *values, uint64_t rows, uint64_t columns,
                            uint64_t stride) {
    return check_rows_of(op, values, rows, columns, stride, 4);
}
/* The first two operands are written: they may overlap neither each other nor any of the others. */
static rf_status check_apart(const char *op, const struct rf_named_operand *all, size_t count) {
    for (size_t i = 0; i < 2; i++)
        for (size_t k = i + 1; k < count; k++) RF_TRY(rf_operands_apart(op, &all[i], &all[k], false));
    return RF_OK;
}

static rf_status argmax_rows(struct rf_queue *queue, struct rf_operand out, struct rf_operand best,
                             const struct rf_argmax_args *args) {
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(best), rf_arg_struct(args, sizeof *args)};
    return rf_op_launch(queue, "argmax_rows", rf_grid_line((uint32_t)args->rows, RF_SAMPLING_THREADS), list,
                        RF_COUNT(list));
}

rf_status rf_gpu_argmax(struct rf_queue *queue, struct rf_operand out, struct rf_operand values,
                        struct rf_operand workspace, const struct rf_argmax_args *args) {
    enum { OUT, WORKSPACE, VALUES, OPERANDS };
    const char *op = "argmax";
    if (!queue || !args) return rf_fail(RF_E_INVALID, "%s: queue or arguments are NULL", op);
    uint64_t need;
    RF_TRY(rf_gpu_argmax_workspace(args->rows, args->columns, &need));
    if (!args->rows) return RF_OK;
    struct rf_named_operand all[OPERANDS] = {{"out", out, 0}, {"workspace", workspace, 0}, {"values", values, 0}};
    RF_TRY(rf_operand_check(op, &all[OUT], args->rows, 4, 4));
    RF_TRY(check_rows(op, &all[VALUES], args->rows, args->columns, args->row_stride));
    RF_TRY(rf_operand_check(op, &all[WORKSPACE], need, 1, 8));
    RF_TRY(check_apart(op, all, OPERANDS));
    struct rf_argmax_args cut = *args;
    cut.chunk = argmax_chunk(args->rows, args->columns);
    cut.chunks = (uint32_t)rf_ceil_div(args->columns, cut.chunk);
    cut.best_row = cut.chunks;
    struct rf_arg list[] = {rf_operand_arg(workspace), rf_operand_arg(values), rf_arg_struct(&cut, sizeof cut)};
    uint32_t grid[2] = {cut.chunks, (uint32_t)args->rows};
    RF_TRY(
        rf_op_launch(queue, "argmax_chunks_f32", rf_grid_plane(grid, RF_SAMPLING_THREADS, 0), list, RF_COUNT(list)));
    return argmax_rows(queue, out, workspace, &cut);
}

/* ---- the sampler ---- */

static rf_status check_sample(const struct rf_gpu_sample *sample) {
    enum { OUT, WORKSPACE, LOGITS, RANDOM, WINDOW, BIASES, ALLOWED, SETTINGS, OPERANDS };
    const char *op = "sample";
    const struct rf_sample_args *args = &sample->args;
    struct rf_named_operand all[OPERANDS] = {{"out", sample->out, 0},         {"workspace", sample->workspace, 0},
                                             {"logits", sample->logits, 0},   {"random", sample->random, 0},
                                             {"window", sample->window, 0},   {"biases", sample->biases, 0},
                                             {"allowed", sample->allowed, 0}, {"settings", sample->settings, 0}};
    RF_TRY(rf_operand_check(op, &all[OUT], args->rows, 4, 4));
    RF_TRY(check_rows(op, &all[LOGITS], args->rows, args->columns, args->row_stride));
    RF_TRY(rf_operand_check(op, &all[WORKSPACE], args->rows * row_bytes_of(args->columns), 1, 8));
    if (!args->greedy) RF_TRY(rf_operand_check(op, &all[RANDOM], args->rows * 2, 8, 8));
    if (args->window_count) RF_TRY(check_rows(op, &all[WINDOW], args->rows, args->window_count, args->window_stride));
    if (args->bias_count)
        RF_TRY(check_rows_of(op, &all[BIASES], args->rows, args->bias_count, args->bias_stride,
                             sizeof(struct rf_sample_bias)));
    if (sample->allowed.buffer)
        RF_TRY(check_rows(op, &all[ALLOWED], args->rows, rf_ceil_div(args->columns, 32), args->allowed_stride));
    if (sample->settings.buffer)
        RF_TRY(rf_operand_check(op, &all[SETTINGS], args->rows, sizeof(struct rf_sample_settings), 8));
    return check_apart(op, all, OPERANDS);
}

/* Launches a kernel with one block for each chunk of a row, or one for each row. */
static rf_status launch(struct rf_queue *queue, const char *kernel, uint32_t blocks_per_row,
                        const struct rf_sample_args *args, struct rf_arg *list, size_t count) {
    uint32_t grid[2] = {blocks_per_row, (uint32_t)args->rows};
    list[count] = rf_arg_struct(args, sizeof *args);
    return rf_op_launch(queue, kernel, rf_grid_plane(grid, RF_SAMPLING_THREADS, 0), list, count + 1);
}
static rf_status launch_keys(struct rf_queue *queue, const struct rf_gpu_sample *sample,
                             const struct rf_sample_args *args) {
    struct rf_operand none = {0};
    struct rf_arg list[7] = {rf_operand_arg(sample->workspace), rf_operand_arg(sample->logits),
                             rf_operand_arg(args->window_count ? sample->window : none),
                             rf_operand_arg(args->bias_count ? sample->biases : none),
                             rf_operand_arg(sample->allowed)};
    if (!sample->settings.buffer) return launch(queue, "sample_keys", args->chunks, args, list, 5);
    list[5] = rf_operand_arg(sample->settings);
    return launch(queue, "sample_keys_by_row", args->chunks, args, list, 6);
}
/* Launches a kernel whose only operand is the workspace. */
static rf_status launch_stage(struct rf_queue *queue, const char *kernel, const struct rf_gpu_sample *sample,
                              const struct rf_sample_args *args) {
    struct rf_arg list[2] = {rf_operand_arg(sample->workspace)};
    return launch(queue, kernel, args->chunks, args, list, 1);
}
static rf_status launch_refine(struct rf_queue *queue, const struct rf_gpu_sample *sample,
                               struct rf_sample_args *args, uint32_t first_stage) {
    for (args->stage = first_stage; args->stage < first_stage + 2; args->stage++)
        RF_TRY(launch_stage(queue, "sample_refine", sample, args));
    return RF_OK;
}

rf_status rf_gpu_sample(struct rf_queue *queue, const struct rf_gpu_sample *sample) {
    if (!queue || !sample) return rf_fail(RF_E_INVALID, "sample: queue or arguments are NULL");
    struct rf_sample_args args = sample->args;
    RF_TRY(check_shape("sample", args.rows, args.columns));
    if (!args.rows) return RF_OK;
    RF_TRY(check_sample(sample));
    args.chunk = chunk_of(args.columns);
    args.chunks = (uint32_t)rf_ceil_div(args.columns, args.chunk);
    args.row_bytes = row_bytes_of(args.columns);
    args.stage = 0;
    if (!sample->settings.buffer) { /* otherwise only the device knows them */
        if (args.penalty == 1 && args.presence == 0 && args.frequency == 0) args.window_count = 0;
        if (args.top_k >= args.columns) args.top_k = 0; /* it drops no candidate, so it needs no histogram */
    }
    RF_TRY(launch_keys(queue, sample, &args));
    if (args.greedy) {
        struct rf_operand best = sample->workspace;
        best.offset_bytes += offsetof(struct rf_sample_space, best);
        struct rf_argmax_args rows = {.rows = args.rows, .best_row = args.row_bytes / 8, .chunks = args.chunks};
        return argmax_rows(queue, sample->out, best, &rows);
    }
    RF_TRY(launch_stage(queue, "sample_weigh", sample, &args));
    if (args.top_k) RF_TRY(launch_refine(queue, sample, &args, 1));
    if (args.top_p) RF_TRY(launch_refine(queue, sample, &args, 3));
    RF_TRY(launch_stage(queue, "sample_sums", sample, &args));
    struct rf_arg list[4] = {rf_operand_arg(sample->out), rf_operand_arg(sample->workspace),
                             rf_operand_arg(sample->random)};
    return launch(queue, "sample_draw", 1, &args, list, 3);
}

/* ---- the next token's inputs ---- */

rf_status rf_gpu_advance(struct rf_queue *queue, const struct rf_gpu_advance *advance) {
    enum { TOKENS, POSITIONS, LENGTHS, RING, RANDOM, WINDOW, CHANGED, DRAWN = CHANGED, SETTINGS, OPERANDS };
    const char *op = "advance";
    RF_TRY(rf_operands_given(op, queue, advance));
    const struct rf_advance_args *args = &advance->args;
    if (!args->rows) return RF_OK;
    if (args->rows > RF_SAMPLING_ROWS_MAX || !args->slots || args->slots > RF_ADVANCE_SLOTS_MAX)
        return rf_fail(RF_E_INVALID, "%s: %llu rows with %u slots: up to %d rows with 1 to %d", op,
                       (unsigned long long)args->rows, args->slots, RF_SAMPLING_ROWS_MAX, RF_ADVANCE_SLOTS_MAX);
    struct rf_named_operand all[OPERANDS] = {{"tokens", advance->tokens, 0},   {"positions", advance->positions, 0},
                                             {"lengths", advance->lengths, 0}, {"ring", advance->ring, 0},
                                             {"random", advance->random, 0},   {"window", advance->window, 0},
                                             {"drawn", advance->drawn, 0},     {"settings", advance->settings, 0}};
    for (int i = TOKENS; i <= LENGTHS; i++) RF_TRY(rf_operand_check(op, &all[i], args->rows, 4, 4));
    RF_TRY(rf_operand_check(op, &all[RING], args->rows * args->slots, 8, 8));
    RF_TRY(rf_operand_check(op, &all[DRAWN], args->rows, 4, 4));
    if (advance->random.buffer) RF_TRY(rf_operand_check(op, &all[RANDOM], args->rows * 2, 8, 8));
    if (advance->window.buffer) {
        RF_TRY(check_rows(op, &all[WINDOW], args->rows, args->window_columns, args->window_stride));
        RF_TRY(rf_operand_check(op, &all[SETTINGS], args->rows, sizeof(struct rf_sample_settings), 8));
    }
    for (size_t i = 0; i < CHANGED; i++)
        for (size_t k = i + 1; k < OPERANDS; k++) RF_TRY(rf_operands_apart(op, &all[i], &all[k], false));
    struct rf_arg list[] = {
        rf_operand_arg(advance->tokens), rf_operand_arg(advance->positions), rf_operand_arg(advance->lengths),
        rf_operand_arg(advance->random), rf_operand_arg(advance->window),    rf_operand_arg(advance->ring),
        rf_operand_arg(advance->drawn),  rf_operand_arg(advance->settings),  rf_arg_struct(args, sizeof *args)};
    uint32_t blocks = (uint32_t)rf_ceil_div(args->rows, RF_SAMPLING_THREADS);
    return rf_op_launch(queue, "advance", rf_grid_line(blocks, RF_SAMPLING_THREADS), list, RF_COUNT(list));
}
