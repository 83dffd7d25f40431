/* The launcher of paged_attention. With one query a sequence it decodes: the keys of a sequence are split among
 * blocks, which leave their results in the workspace and count themselves; the last one joins the results. With
 * several queries a sequence it prefills, on the matrix units if the device has any, by groups of waves where they
 * can. */
#include "ops/gpu_attention_impl.h"

#include <stdio.h>
#include <string.h>

static const char op[] = "paged_attention";

/* ---- sizes ---- */

static rf_status need_cache_type(enum rf_dtype dtype, enum rf_dtype cache, uint64_t dim) {
    if (cache == RF_Q8_0)
        return dim % 32 == 0 ? RF_OK
                             : rf_fail(RF_E_UNSUPPORTED, "keys in q8_0 come in blocks of 32, the head size is %llu",
                                       (unsigned long long)dim);
    if (cache == dtype || (dtype == RF_F32 && (cache == RF_F16 || cache == RF_BF16))) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED,
                   "keys and values of another type than the queries: only f16 or bf16 with f32, and q8_0");
}

/* Checks the pages, and how many keys a sequence may have. */
static rf_status need_pages(const struct rf_paged_attention_args *a) {
    uint64_t named = a->page_rows;
    RF_TRY(rf_need_count("pages", a->page_count));
    RF_TRY(rf_need_count("rows a page", a->page_rows));
    if (a->table_width) {
        if (!a->page_rows || (a->page_rows & (a->page_rows - 1)))
            return rf_fail(RF_E_UNSUPPORTED, "pages of %llu rows; with a table it must be a power of two",
                           (unsigned long long)a->page_rows);
        if (rf_mul_overflows(a->table_width, a->page_rows, &named) || named > INT32_MAX)
            return rf_fail(RF_E_UNSUPPORTED, "a table of %llu pages of %llu rows names more than %d keys",
                           (unsigned long long)a->table_width, (unsigned long long)a->page_rows, INT32_MAX);
    } else if (a->page_count < a->batch) {
        return rf_fail(RF_E_INVALID, "without a table each of %llu sequences needs a page, there are %llu",
                       (unsigned long long)a->batch, (unsigned long long)a->page_count);
    }
    if (a->max_length > named)
        return rf_fail(RF_E_INVALID, "max_length is %llu, there is room for %llu keys",
                       (unsigned long long)a->max_length, (unsigned long long)named);
    return RF_OK;
}

static rf_status need_paged(const struct rf_paged_attention_launch *l) {
    const struct rf_paged_attention_args *a = &l->args;
    RF_TRY(rf_need_kernel_type(l->dtype));
    RF_TRY(rf_need_group(a->heads_q, a->heads_kv));
    RF_TRY(rf_need_count("query heads", a->heads_q));
    RF_TRY(rf_need_count("queries", a->q_rows));
    RF_TRY(rf_need_count("sequences", a->batch));
    RF_TRY(rf_need_head_size(a->dim));
    RF_TRY(need_cache_type(l->dtype, l->cache_dtype, a->dim));
    return need_pages(a);
}

/* ---- splits ---- */

struct split {
    uint32_t chunk, splits; /* keys that a block takes; number of chunks */
};

/* The split depends on sizes alone, so that the same call gives the same bits, and the workspace is known before the
 * kernel is chosen. There are enough blocks to fill any device, but each has enough keys to be worth its start.
 * Blocks of a long sequence take more keys, so that adding up their results does not take long (as measured on an
 * H200). A short sequence is not split: there would be little to share. */
static struct split choose_split(const struct rf_paged_attention_args *a) {
    enum { BLOCKS = 1024, ALONE = 128 };
    uint64_t limit = a->max_length;
    uint64_t pairs = a->batch * a->heads_kv * rf_ceil_div(a->heads_q / a->heads_kv, RF_DECODE_HEADS);
    uint64_t wanted = pairs && pairs < BLOCKS ? BLOCKS / pairs : 1;
    uint64_t least = limit <= ALONE ? ALONE : limit <= 2048 ? 64 : limit <= 4096 ? 128 : 256;
    uint64_t chunk = rf_ceil_div(rf_ceil_div(limit, wanted), RF_DECODE_KEYS) * RF_DECODE_KEYS;
    struct split split;
    split.chunk = (uint32_t)RF_MIN(RF_MAX(chunk, least), (uint64_t)INT32_MAX + 1);
    split.splits = (uint32_t)RF_MAX(rf_ceil_div(limit, split.chunk), UINT64_C(1));
    return split;
}

/* The results of each head and split; and a counter for each group of heads that a block takes together, of which
 * there are at most as many as heads. */
static rf_status workspace_bytes(const struct rf_paged_attention_args *a, uint64_t *results, uint64_t *counters) {
    struct split split = choose_split(a);
    uint64_t heads, all = 0;
    *results = *counters = 0;
    if (a->q_rows != 1 || split.splits == 1) return RF_OK;
    if (rf_mul_overflows(a->batch, a->heads_q, &heads) || rf_mul_overflows(heads, split.splits, &all) ||
        rf_mul_overflows(all, (a->dim + 2) * sizeof(float), &all))
        return rf_fail(RF_E_INVALID, "%s: the size of the workspace overflows", op);
    *results = all;
    *counters = heads * sizeof(uint32_t);
    return RF_OK;
}
static rf_status either_bytes(const struct rf_paged_attention_launch *launch, uint64_t *bytes, bool counters) {
    uint64_t both[2];
    if (!launch || !bytes) return rf_fail(RF_E_INVALID, "%s: launch or bytes is NULL", op);
    RF_TRY(rf_within_op(op, need_paged(launch)));
    RF_TRY(workspace_bytes(&launch->args, &both[0], &both[1]));
    *bytes = both[counters];
    return RF_OK;
}

rf_status rf_gpu_paged_attention_workspace(const struct rf_paged_attention_launch *launch, uint64_t *bytes) {
    return either_bytes(launch, bytes, false);
}
rf_status rf_gpu_paged_attention_counters(const struct rf_paged_attention_launch *launch, uint64_t *bytes) {
    return either_bytes(launch, bytes, true);
}

/* ---- decoding ---- */

/* A decode kernel, and how many heads one of its blocks takes. */
struct decode_choice {
    char kernel[64];
    uint32_t heads, threads, shared_bytes;
};
/* Whether rows of q8_0 can be copied in 32-bit words, whole rows at a time. */
static bool words_fit(struct rf_operand operand, struct rf_head_strides strides) {
    uint64_t address = rf_buffer_address(operand.buffer) + operand.offset_bytes;
    return address % 4 == 0 && strides.batch % 64 == 0 && strides.head % 64 == 0 && strides.row % 64 == 0;
}
static rf_status choose_decode(struct rf_queue *queue, const struct rf_paged_attention_launch *l, uint32_t chunk,
                               struct decode_choice *choice) {
    const struct rf_paged_attention_args *a = &l->args;
    RF_PARAMS(struct rf_device_info, info);
    RF_TRY(rf_within_op(op, rf_device_get_info(rf_queue_device(queue), &info)));
    const char *type = rf_dtype_name(l->cache_dtype);
    uint64_t group = a->heads_q / a->heads_kv;
    uint32_t dim = a->dim <= 64 ? 64 : RF_DECODE_DIM_MAX;
    bool packed = l->cache_dtype == RF_Q8_0, nvidia = info.vendor == RF_VENDOR_NVIDIA;
    bool matrix = l->path != RF_ATTENTION_PLAIN && strncmp(info.arch, "gfx10", 5) != 0 && l->cache_dtype != RF_F32 &&
                  a->dim <= RF_DECODE_DIM_MAX &&
                  (!packed || (a->dim == dim && words_fit(l->k, a->k) && words_fit(l->v, a->v)));
    if (matrix) {
        /* A block with a single tile of keys has no use for a second stage. It leaves the room to the kernel before
         * it, beside which it can then start. */
        uint32_t stages = RF_MIN((uint32_t)RF_DECODE_STAGES_OF(nvidia), RF_MAX(chunk / RF_DECODE_KEYS, 1u));
        *choice = (struct decode_choice){"", RF_DECODE_HEADS, RF_DECODE_WAVES * (uint32_t)info.wave_size,
                                         RF_DECODE_BYTES(dim, packed, stages)};
        snprintf(choice->kernel, sizeof choice->kernel, "paged_attention_decode_matrix_%s_d%u", type, dim);
    } else {
        *choice = (struct decode_choice){"", group == 1 ? 1 : group <= 4 ? 4 : 8, RF_DECODE_PLAIN_THREADS, 0};
        snprintf(choice->kernel, sizeof choice->kernel, "paged_attention_decode_%s_g%u", type, choice->heads);
    }
    return RF_OK;
}

static rf_status decode(struct rf_queue *queue, const struct rf_paged_attention_launch *l,
                        struct rf_paged_attention_plan plan) {
    const struct rf_paged_attention_args *a = &l->args;
    struct split split = choose_split(a);
    struct decode_choice choice;
    uint32_t blocks = 0;
    RF_TRY(choose_decode(queue, l, split.chunk, &choice));
    uint64_t tiles = rf_ceil_div(a->heads_q / a->heads_kv, choice.heads);
    const uint64_t factors[4] = {tiles, split.splits, a->heads_kv, a->batch};
    RF_TRY(rf_count_blocks(op, factors, choice.threads, &blocks));
    plan.chunk = split.chunk;
    plan.splits = split.splits;
    /* What is not needed is not passed on, so that the work does not hold its buffer. */
    struct rf_operand none = {NULL, 0};
    const struct rf_arg args[] = {rf_operand_arg(l->out),
                                  rf_operand_arg(split.splits > 1 ? l->workspace : none),
                                  rf_operand_arg(split.splits > 1 ? l->counters : none),
                                  rf_operand_arg(l->q),
                                  rf_operand_arg(l->k),
                                  rf_operand_arg(l->v),
                                  rf_operand_arg(l->table),
                                  rf_operand_arg(l->lengths),
                                  rf_arg_struct(a, sizeof *a),
                                  rf_arg_struct(&plan, sizeof plan)};
    const struct rf_grid grid = {
        .blocks = {blocks}, .threads = {choice.threads}, .shared_bytes = choice.shared_bytes};
    return rf_op_launch(queue, choice.kernel, grid, args, RF_COUNT(args));
}

/* ---- prefill ---- */

static rf_status prefill(struct rf_queue *queue, const struct rf_paged_attention_launch *l,
                         const struct rf_matrix_choice *choice, struct rf_paged_attention_plan plan) {
    const struct rf_paged_attention_args *a = &l->args;
    const char *type = rf_dtype_name(l->cache_dtype);
    uint32_t blocks = 0;
    char kernel[64];
    const uint64_t factors[4] = {rf_ceil_div(a->q_rows, choice->use ? choice->queries : RF_ATTENTION_TILE),
                                 a->heads_q, a->batch, 1};
    RF_TRY(rf_count_blocks(op, factors, choice->use ? choice->threads : RF_ATTENTION_THREADS, &blocks));
    const struct rf_arg args[] = {rf_operand_arg(l->out),      rf_operand_arg(l->q),
                                  rf_operand_arg(l->k),        rf_operand_arg(l->v),
                                  rf_operand_arg(l->table),    rf_operand_arg(l->lengths),
                                  rf_arg_struct(a, sizeof *a), rf_arg_struct(&plan, sizeof plan)};
    if (!choice->use) {
        snprintf(kernel, sizeof kernel, "paged_attention_prefill_%s", type);
        return rf_op_launch(queue, kernel, rf_grid_line(blocks, RF_ATTENTION_THREADS), args, RF_COUNT(args));
    }
    snprintf(kernel, sizeof kernel, "paged_attention_matrix_%s_d%u", type, choice->dim);
    const struct rf_grid grid = {
        .blocks = {blocks}, .threads = {choice->threads}, .shared_bytes = rf_matrix_shared_bytes(choice, true)};
    return rf_op_launch(queue, kernel, grid, args, RF_COUNT(args));
}

/* ---- the op ---- */

/* Checks a dense array of u32. */
static rf_status check_words(struct rf_named_operand *operand, uint64_t count, uint64_t align) {
    operand->bytes = 0;
    return count ? rf_operand_check(op, operand, count, 4, align) : RF_OK;
}

static rf_status check_operands(const struct rf_paged_attention_launch *l, uint64_t results, uint64_t counted) {
    const struct rf_paged_attention_args *a = &l->args;
    struct rf_named_operand workspace = {"workspace", l->workspace, 0}, counters = {"counters", l->counters, 0};
    uint64_t align = l->cache_dtype == RF_Q8_0 ? 2 : 16;
    struct rf_head_operand out = {{"out", l->out, 0}, {a->batch, a->heads_q, a->q_rows, a->dim}, a->out};
    struct rf_head_operand q = {{"q", l->q, 0}, {a->batch, a->heads_q, a->q_rows, a->dim}, a->q};
    struct rf_head_operand k = {{"k", l->k, 0}, {a->page_count, a->heads_kv, a->page_rows, a->dim}, a->k};
    struct rf_head_operand v = {{"v", l->v, 0}, {a->page_count, a->heads_kv, a->page_rows, a->dim}, a->v};
    struct rf_named_operand table = {"table", l->table, 0}, lengths = {"lengths", l->lengths, 0};
    RF_TRY(rf_operand_check_heads(op, &out, l->dtype, 16));
    RF_TRY(rf_operand_check_heads(op, &q, l->dtype, 16));
    RF_TRY(rf_operand_check_heads(op, &k, l->cache_dtype, align));
    RF_TRY(rf_operand_check_heads(op, &v, l->cache_dtype, align));
    RF_TRY(check_words(&table, a->batch * a->table_width, 4));
    RF_TRY(check_words(&lengths, a->batch, 4));
    RF_TRY(check_words(&workspace, results / 4, 16));
    RF_TRY(check_words(&counters, counted / 4, 4));
    const struct rf_named_operand inputs[] = {q.operand, k.operand, v.operand, table, lengths};
    RF_TRY(rf_operand_check_output(op, &out, inputs, RF_COUNT(inputs)));
    for (size_t i = 0; i < RF_COUNT(inputs); i++) {
        RF_TRY(rf_operands_apart(op, &workspace, &inputs[i], false));
        RF_TRY(rf_operands_apart(op, &counters, &inputs[i], false));
    }
    RF_TRY(rf_operands_apart(op, &workspace, &out.operand, false));
    RF_TRY(rf_operands_apart(op, &counters, &out.operand, false));
    return rf_operands_apart(op, &workspace, &counters, false);
}

rf_status rf_gpu_paged_attention(struct rf_queue *queue, const struct rf_paged_attention_launch *l) {
    struct rf_matrix_choice choice;
    uint64_t results = 0, counters = 0;
    if (!queue || !l) return rf_fail(RF_E_INVALID, "%s: %s is NULL", op, queue ? "launch" : "queue");
    const struct rf_paged_attention_args *a = &l->args;
    RF_TRY(rf_within_op(op, need_paged(l)));
    bool packed = l->cache_dtype == RF_Q8_0;
    RF_TRY(rf_matrix_choose(op, queue, packed ? l->dtype : l->cache_dtype, a->dim, 0,
                            packed && l->path == RF_ATTENTION_AUTO ? RF_ATTENTION_PLAIN : l->path, &choice));
    bool group = l->path == RF_ATTENTION_GROUP;
    if (l->path == RF_ATTENTION_WIDE || (l->path == RF_ATTENTION_MATRIX && packed) ||
        (group && !rf_paged_group_suits(queue, l)))
        return rf_fail(RF_E_UNSUPPORTED, "%s: there is no such kernel%s", op, packed ? " for q8_0" : "");
    if (!l->table.buffer != !a->table_width)
        return rf_fail(RF_E_INVALID, "%s: table and table_width must be given together", op);
    RF_TRY(workspace_bytes(a, &results, &counters));
    RF_TRY(check_operands(l, results, counters));
    struct rf_paged_attention_plan plan = {.page_shift = a->table_width ? (uint32_t)__builtin_ctzll(a->page_rows) : 0,
                                           .q_type = l->dtype == RF_F32 ? 0
                                                     : l->dtype == RF_F16
                                                         ? 1
                                                         : 2}; /* as enum rf_type of kernels/kernel.h */
    group = group || (l->path == RF_ATTENTION_AUTO && rf_flash_group_worth(a->q_rows, a->heads_q, a->batch) &&
                      rf_paged_group_suits(queue, l));
    if (group) return rf_paged_group(queue, l);
    return a->q_rows == 1 ? decode(queue, l, plan) : prefill(queue, l, &choice, plan);
}
