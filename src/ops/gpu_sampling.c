/* Launchers of argmax and of the sampler (see gpu_sampling.h): all checks first, then two to nine launches in queue
 * order. The number of chunks follows from the shape alone. */
#include "ops/gpu_sampling.h"

enum { THREADS = 256, SPACE_BYTES = 82112 }; /* as in kernels/sampling.h and sample.hip */

/* Elements of a row that a block takes: at most 4096, at most 1024 blocks a row. */
static uint32_t chunk_of(uint64_t columns) {
    return columns <= 1 << 18 ? 1024 : 4096;
}
static uint32_t chunks_of(uint64_t columns) {
    return (uint32_t)rf_ceil_div(columns, chunk_of(columns));
}
static uint64_t row_bytes_of(uint64_t columns) {
    return SPACE_BYTES + rf_ceil_div(columns * 4, 64) * 64;
}

static rf_status shape(const char *op, uint64_t rows, uint64_t columns) {
    if (columns < 1 || columns > RF_SAMPLING_COLUMNS_MAX || rows > RF_SAMPLING_ROWS_MAX)
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu: up to %d rows of 1 to %d", op, (unsigned long long)rows,
                       (unsigned long long)columns, RF_SAMPLING_ROWS_MAX, RF_SAMPLING_COLUMNS_MAX);
    return RF_OK;
}

/* Of argmax: longer where there are rows enough for all of a device, so that few blocks end in a reduction. */
static uint32_t argmax_chunk(uint64_t rows, uint64_t columns) {
    uint32_t chunk = chunk_of(columns);
    while (chunk < 16384 && rows * rf_ceil_div(columns, 4 * chunk) >= 1024) chunk *= 4;
    return chunk;
}

rf_status rf_gpu_argmax_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    RF_TRY(shape("argmax", rows, columns));
    *bytes = rows * rf_ceil_div(columns, argmax_chunk(rows, columns)) * 8;
    return RF_OK;
}
rf_status rf_gpu_sample_workspace(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    RF_TRY(shape("sample", rows, columns));
    *bytes = rows * row_bytes_of(columns);
    return RF_OK;
}

/* The operands that both have. */
static rf_status check_rows(const char *op, struct rf_named_operand *values, uint64_t rows, uint64_t columns,
                            uint64_t *stride) {
    uint64_t extent;
    if (!*stride) *stride = columns;
    uint64_t sizes[] = {rows, columns}, strides[] = {*stride, 1};
    if (rf_extent_overflows(sizes, strides, 2, &extent))
        return rf_fail(RF_E_INVALID, "%s: %s has more elements than 64 bits can count", op, values->name);
    return rf_operand_check(op, values, extent, 4, 4);
}
static rf_status all_apart(const char *op, struct rf_named_operand *const *all, size_t count) {
    for (size_t i = 0; i < 2; i++) /* out and the workspace, from each other and from the rest */
        for (size_t k = i + 1; k < count; k++) RF_TRY(rf_operands_apart(op, all[i], all[k], false));
    return RF_OK;
}

static rf_status argmax_rows(struct rf_queue *queue, struct rf_operand out, struct rf_operand best, uint64_t rows,
                             uint64_t best_row, uint32_t chunks) {
    uint32_t grid[3] = {(uint32_t)rows, 1, 1}, block[3] = {THREADS, 1, 1};
    struct rf_arg list[] = {rf_operand_arg(out), rf_operand_arg(best), rf_arg_u64(rows), rf_arg_u64(best_row),
                            rf_arg_u32(chunks)};
    return rf_op_launch(queue, "argmax_rows", rf_grid_space(grid, block), list, RF_COUNT(list));
}

rf_status rf_gpu_argmax(struct rf_queue *queue, const struct rf_argmax_args *args) {
    const char *op = "argmax";
    if (!queue || !args) return rf_fail(RF_E_INVALID, "%s: queue or arguments are NULL", op);
    uint64_t need, stride = args->row_stride;
    RF_TRY(rf_gpu_argmax_workspace(args->rows, args->columns, &need));
    if (!args->rows) return RF_OK;
    struct rf_named_operand out = {"out", args->out, 0}, values = {"values", args->values, 0},
                            workspace = {"workspace", args->workspace, 0};
    RF_TRY(rf_operand_check(op, &out, args->rows, 4, 4));
    RF_TRY(check_rows(op, &values, args->rows, args->columns, &stride));
    RF_TRY(rf_operand_check(op, &workspace, need, 1, 8));
    RF_TRY(all_apart(op, (struct rf_named_operand *[]){&out, &workspace, &values}, 3));
    uint32_t chunk = argmax_chunk(args->rows, args->columns);
    uint32_t chunks = (uint32_t)rf_ceil_div(args->columns, chunk);
    uint32_t grid[3] = {chunks, (uint32_t)args->rows, 1}, block[3] = {THREADS, 1, 1};
    struct rf_arg list[] = {rf_operand_arg(args->workspace),
                            rf_operand_arg(args->values),
                            rf_arg_u64(args->rows),
                            rf_arg_u64(args->columns),
                            rf_arg_u64(stride),
                            rf_arg_u64(chunks),
                            rf_arg_u32(chunk)};
    RF_TRY(rf_op_launch(queue, "argmax_chunks_f32", rf_grid_space(grid, block), list, RF_COUNT(list)));
    return argmax_rows(queue, args->out, args->workspace, args->rows, chunks, chunks);
}

/* ---- the sampler ---- */

struct plan {
    struct rf_queue *queue;
    const struct rf_sample_args *args;
    struct rf_sampling_numbers numbers;
    uint64_t row_bytes, row_stride, window_stride;
    uint32_t columns, chunk, chunks;
};

static rf_status check(struct plan *plan) {
    const char *op = "sample", *wrong;
    const struct rf_sample_args *args = plan->args;
    struct rf_named_operand out = {"out", args->out, 0}, logits = {"logits", args->logits, 0},
                            workspace = {"workspace", args->workspace, 0}, random = {"random", args->random, 0},
                            window = {"window", args->window, 0};
    if ((wrong = rf_sampling_resolve(&args->sampling, &plan->numbers)) != NULL)
        return rf_fail(RF_E_INVALID, "%s: %s", op, wrong);
    RF_TRY(rf_operand_check(op, &out, args->rows, 4, 4));
    RF_TRY(check_rows(op, &logits, args->rows, args->columns, &plan->row_stride));
    RF_TRY(rf_operand_check(op, &workspace, args->rows * plan->row_bytes, 1, 8));
    if (!plan->numbers.greedy) RF_TRY(rf_operand_check(op, &random, args->rows * 2, 8, 8));
    if (args->window_count > UINT32_MAX)
        return rf_fail(RF_E_INVALID, "%s: a window of more than 2^32 - 1 tokens", op);
    if (args->window_count) RF_TRY(check_rows(op, &window, args->rows, args->window_count, &plan->window_stride));
    return all_apart(op, (struct rf_named_operand *[]){&out, &workspace, &logits, &random, &window}, 5);
}

/* Launches with the arguments that all stages begin with, and more; one block for each chunk, or for each row. */
static rf_status stage(const struct plan *plan, const char *kernel, bool per_row, const struct rf_arg *args,
                       size_t count) {
    uint32_t grid[3] = {per_row ? 1 : plan->chunks, (uint32_t)plan->args->rows, 1}, block[3] = {THREADS, 1, 1};
    return rf_op_launch(plan->queue, kernel, rf_grid_space(grid, block), args, count);
}

static rf_status keys(const struct plan *plan) {
    const struct rf_sample_args *args = plan->args;
    bool penalty = args->window_count && plan->numbers.penalty != 1;
    struct rf_arg list[] = {rf_operand_arg(args->workspace),
                            rf_arg_u64(plan->row_bytes),
                            rf_operand_arg(args->logits),
                            rf_arg_u64(plan->row_stride),
                            rf_arg_u32(plan->columns),
                            rf_arg_u32(plan->chunk),
                            rf_operand_arg(penalty ? args->window : (struct rf_operand){0}),
                            rf_arg_u64(plan->window_stride),
                            rf_arg_u32(penalty ? (uint32_t)args->window_count : 0),
                            rf_arg_f32(plan->numbers.penalty),
                            rf_arg_f32(plan->numbers.inverse)};
    return stage(plan, "sample_keys", false, list, RF_COUNT(list));
}
static rf_status weigh(const struct plan *plan) {
    struct rf_arg list[] = {rf_operand_arg(plan->args->workspace), rf_arg_u64(plan->row_bytes),
                            rf_arg_u32(plan->columns), rf_arg_u32(plan->chunk), rf_arg_f32(plan->numbers.scale)};
    return stage(plan, "sample_weigh", false, list, RF_COUNT(list));
}
static rf_status refine(const struct plan *plan, uint32_t number) {
    struct rf_arg list[] = {rf_operand_arg(plan->args->workspace),
                            rf_arg_u64(plan->row_bytes),
                            rf_arg_u32(plan->columns),
                            rf_arg_u32(plan->chunk),
                            rf_arg_u32(number),
                            rf_arg_u32(plan->numbers.top_k),
                            rf_arg_u32(plan->numbers.top_p)};
    return stage(plan, "sample_refine", false, list, RF_COUNT(list));
}
static rf_status sums(const struct plan *plan) {
    const struct rf_sampling_numbers *n = &plan->numbers;
    struct rf_arg list[] = {rf_operand_arg(plan->args->workspace),
                            rf_arg_u64(plan->row_bytes),
                            rf_arg_u32(plan->columns),
                            rf_arg_u32(plan->chunk),
                            rf_arg_u32(n->top_k),
                            rf_arg_u32(n->top_p),
                            rf_arg_u64(n->least_weight),
                            rf_arg_u32(n->draw)};
    return stage(plan, "sample_sums", false, list, RF_COUNT(list));
}
static rf_status draw(const struct plan *plan) {
    const struct rf_sampling_numbers *n = &plan->numbers;
    struct rf_arg list[] = {rf_operand_arg(plan->args->out),   rf_operand_arg(plan->args->workspace),
                            rf_arg_u64(plan->row_bytes),       rf_arg_u32(plan->columns),
                            rf_arg_u32(plan->chunk),           rf_arg_u32(plan->chunks),
                            rf_arg_u64(n->least_weight),       rf_arg_u32(n->draw),
                            rf_operand_arg(plan->args->random)};
    return stage(plan, "sample_draw", true, list, RF_COUNT(list));
}

rf_status rf_gpu_sample(struct rf_queue *queue, const struct rf_sample_args *args) {
    if (!queue || !args) return rf_fail(RF_E_INVALID, "sample: queue or arguments are NULL");
    RF_TRY(shape("sample", args->rows, args->columns));
    if (!args->rows) return RF_OK;
    struct plan plan = {.queue = queue, .args = args};
    plan.columns = (uint32_t)args->columns;
    plan.chunk = chunk_of(args->columns);
    plan.chunks = chunks_of(args->columns);
    plan.row_bytes = row_bytes_of(args->columns);
    plan.row_stride = args->row_stride;
    plan.window_stride = args->window_stride;
    RF_TRY(check(&plan));
    /* No candidate less kept than there are: no histogram. */
    if (plan.numbers.top_k >= args->columns) plan.numbers.top_k = 0;
    RF_TRY(keys(&plan));
    if (plan.numbers.greedy) {
        struct rf_operand best = args->workspace;
        best.offset_bytes += 192; /* behind the states */
        return argmax_rows(queue, args->out, best, args->rows, plan.row_bytes / 8, plan.chunks);
    }
    RF_TRY(weigh(&plan));
    for (uint32_t number = 1; number <= 2 && plan.numbers.top_k; number++) RF_TRY(refine(&plan, number));
    for (uint32_t number = 3; number <= 4 && plan.numbers.top_p; number++) RF_TRY(refine(&plan, number));
    RF_TRY(sums(&plan));
    return draw(&plan);
}
