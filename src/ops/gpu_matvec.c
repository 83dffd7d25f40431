/* Launchers of products of few rows with weights (see gpu_matmul.h). The kernels read each row of weights once, and
 * that memory bandwidth limits them.
 *
 * Grid and block depend on the shape and the device alone: kernels sum in an order that depends on the block, and the
 * same input must give the same bits. */
#include "ops/gpu_matmul_impl.h"

/* The number of threads that share one output: each takes a few units, so that loads overlap. */
static uint32_t matvec_threads(const struct rf_gpu_matmul *call) {
    uint64_t units = call->args.k / unit_elements(call->weight_type), threads = (units / 4 + 63) / 64 * 64;
    return (uint32_t)RF_MIN(RF_MAX(threads, 64), RF_MATVEC_THREADS);
}

/* The most rows of x that one of the kernels below takes. */
static uint64_t matvec_rows(enum rf_dtype weight_type) {
    return rf_op_is_quantized(weight_type) ? 4 : RF_MATVEC_ROWS;
}

/* Chooses the kernel's variant by the number of rows of x that it takes at once. */
static int row_variant(uint64_t rows) {
    return rows == 1 ? 1 : rows <= 4 ? 4 : 8;
}

/* Launches for `rows` rows of x from row `first` on; rows of x lie x_bytes apart. */
static rf_status launch_rows(struct rf_queue *queue, const char *name, struct rf_grid grid,
                             const struct rf_gpu_matmul *call, uint64_t first, uint64_t rows, uint64_t x_bytes) {
    struct rf_matmul_args a = call->args;
    uint64_t out_bytes = a.out_stride * rf_dtype_bytes(call->type);
    a.m = rows;
    struct rf_arg args[] = {rf_operand_arg(rf_operand_later(call->out, first * out_bytes)),
                            rf_operand_arg(call->weights),
                            rf_operand_arg(call->gate),
                            rf_operand_arg(rf_operand_later(call->x, first * x_bytes)),
                            rf_operand_arg(call->bias),
                            rf_operand_arg(rf_operand_later(call->residual, first * out_bytes)),
                            rf_arg_struct(&a, sizeof a)};
    return rf_op_launch(queue, name, grid, args, RF_COUNT(args));
}

/* Exact products, summed in f32, from row `first` of x on. */
static rf_status matvec(struct rf_queue *queue, const struct rf_gpu_matmul *call, uint64_t first) {
    const struct rf_matmul_args *a = &call->args;
    uint64_t rows = RF_MIN(a->m - first, matvec_rows(call->weight_type));
    uint32_t blocks = blocks_for(a->n, call->gate.buffer ? 1 : RF_MATVEC_OUTPUTS, X_MAX);
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_%s_%d", type_suffix(call->weight_type), type_suffix(call->type),
             row_variant(rows));
    return launch_rows(queue, name, rf_grid_line(blocks, matvec_threads(call)), call, first, rows,
                       a->x_stride * rf_dtype_bytes(call->type));
}

/* ---- 8-bit integer dot products (kernels/dots.h) ---- */

/* How many rows of x the kernel takes at once, and how it is launched. */
struct dots_plan {
    uint64_t rows;
    struct rf_grid grid;
};

/* The bytes of a wave's slice of the weights, with `lane` elements a lane; and how many slots the wave's ring has for
 * slices. */
static uint64_t slice_bytes(enum rf_dtype weights, uint64_t lane, const struct rf_device_info *info) {
    return (uint64_t)info->wave_size * lane / rf_dtype_block(weights) * rf_dtype_block_bytes(weights);
}
static uint64_t stream_slots(uint64_t bytes, const struct rf_device_info *info) {
    return RF_STREAM_SLOTS_ON(info->vendor == RF_VENDOR_NVIDIA, bytes);
}
static uint64_t dots_ring_bytes(enum rf_dtype weights, const struct rf_device_info *info) {
    uint64_t bytes = slice_bytes(weights, RF_DOTS_LANE, info);
    return stream_slots(bytes, info) * RF_STREAM_SLOT(bytes);
}
/* The shared memory that a block needs for one row of x. */
static uint64_t dots_x_bytes(enum rf_dtype weights, uint64_t k, const struct rf_device_info *info) {
    uint64_t wave = (uint64_t)info->wave_size;
    uint64_t notes = weights == RF_Q6_K ? RF_DOTS_NOTES_BYTES_Q6_K : RF_DOTS_NOTES_BYTES;
    return rf_ceil_div(k, RF_DOTS_LANE * wave) * wave * (RF_DOTS_LANE + notes);
}

/* Returns false if a block's shared memory does not hold even one row of x. Results do not depend on the plan: a wave
 * sums a row of weights by itself. */
static bool plan_dots(const struct rf_gpu_matmul *call, const struct rf_device_info *info, uint64_t rows,
                      struct dots_plan *plan) {
    const struct rf_matmul_args *a = &call->args;
    uint64_t wave = (uint64_t)info->wave_size, most = (uint64_t)info->max_shared_bytes_per_block;
    uint64_t units = (uint64_t)RF_MAX(info->compute_units, 1), ring = dots_ring_bytes(call->weight_type, info);
    uint64_t row_bytes = dots_x_bytes(call->weight_type, a->k, info);
    bool nvidia = info->vendor == RF_VENDOR_NVIDIA;
    if (a->k > INT32_MAX || a->n > INT32_MAX) return false;
    for (rows = RF_MIN(rows, RF_MATVEC_ROWS); rows; rows /= 2) {
        /* Each wave takes one row of weights, so that even few rows reach all compute units; x is then rounded once
         * per unit. */
        uint64_t threads = !nvidia ? 256 : rows == 1 ? 1024 : 512;
        threads = RF_MIN(threads, (a->n + units - 1) / units * wave);
        threads = (threads + 63) / 64 * 64;
        while (threads > 64 && rows * row_bytes + threads / wave * ring > most) threads = threads / 2 / 64 * 64;
        uint64_t shared_bytes = rows * row_bytes + threads / wave * ring;
        if (shared_bytes > most) continue;
        uint64_t per_unit = RF_MIN(RF_MAX(most / shared_bytes, 1), 1024 / threads);
        uint32_t blocks = blocks_for(a->n, threads / wave, (uint32_t)RF_MIN(units * per_unit, X_MAX));
        plan->rows = rows;
        plan->grid = (struct rf_grid){
            .blocks = {blocks}, .threads = {(uint32_t)threads}, .shared_bytes = (uint32_t)shared_bytes};
        return true;
    }
    return false;
}

/* Multiplies all rows, as many at once as the plan says. */
static rf_status dots(struct rf_queue *queue, const struct rf_gpu_matmul *call, const struct rf_device_info *info) {
    const struct rf_matmul_args *a = &call->args;
    uint64_t x_bytes = a->x_q8 ? a->k / RF_Q8_BLOCK * RF_Q8_BLOCK_BYTES : a->x_stride * sizeof(float);
    struct dots_plan plan;
    for (uint64_t first = 0; first < a->m; first += plan.rows) {
        if (!plan_dots(call, info, a->m - first, &plan)) return rf_fail(RF_E_UNSUPPORTED, "matmul: too many columns");
        char name[64];
        snprintf(name, sizeof name, "matvec_%s_q8_%d", type_suffix(call->weight_type), row_variant(plan.rows));
        RF_TRY(launch_rows(queue, name, plan.grid, call, first, plan.rows, x_bytes));
    }
    return RF_OK;
}

/* ---- one row of x, rows of weights in pairs (kernels/matvec_pairs.hip) ---- */

/* The shared memory that the kernel needs: notes, x, which a block shares, and slots of a wave for slices of two
 * rows. */
static uint64_t pairs_ring_bytes(enum rf_dtype weights, const struct rf_device_info *info) {
    uint64_t bytes = slice_bytes(weights, rf_op_is_float(weights) ? RF_PAIRS_LANE : RF_DOTS_LANE, info);
    return stream_slots(bytes, info) * 2 * bytes;
}
static uint64_t pairs_x_bytes(enum rf_dtype weights, uint64_t k, const struct rf_device_info *info) {
    uint64_t elements = (uint64_t)info->wave_size * RF_PAIRS_LANE;
    return rf_op_is_float(weights) ? rf_ceil_div(k, elements) * elements * sizeof(float)
                                   : dots_x_bytes(weights, k, info);
}

/* Whether the rows are suitable and the shared memory is enough. Results depend on the plan only if there is a
 * norm. */
static bool plan_pairs(enum rf_dtype type, const struct rf_norm_products_args *a, const struct rf_device_info *info,
                       struct rf_grid *grid) {
    bool has_kernel =
        type == RF_F16 || type == RF_BF16 || type == RF_Q4_0 || type == RF_Q8_0 || type == RF_Q4_K || type == RF_Q6_K;
    if (!has_kernel || !a->k || a->k % 64 || a->k / rf_dtype_block(type) * rf_dtype_block_bytes(type) % 16 ||
        a->k > INT32_MAX || a->n[0] > INT32_MAX / 4 || a->n[1] > INT32_MAX / 4 || a->n[2] > INT32_MAX / 4)
        return false;
    uint64_t wave = (uint64_t)info->wave_size, units = (uint64_t)RF_MAX(info->compute_units, 1), pairs = 0, waves;
    uint64_t before = RF_PAIRS_NOTES + pairs_x_bytes(type, a->k, info), ring = pairs_ring_bytes(type, info);
    uint64_t shared = (uint64_t)info->max_shared_bytes_per_block, most = rf_sub_saturate(shared, before) / ring;
    uint32_t blocks;
    for (int i = 0; i < 3; i++) pairs += a->flags & RF_PRODUCTS_GATE ? a->n[i] : (a->n[i] + 1) / 2;
    if (info->vendor == RF_VENDOR_NVIDIA) {
        /* One block for each compute unit. The number of waves makes their last turn full, or nearly full; of equal
         * choices the one with more waves is taken. If there are a few more waves than work, they help to fetch x. */
        uint64_t each = (pairs + units - 1) / units, least = 0;
        most = RF_MIN(most, 32);
        if (most < 8) return false;
        waves = 8;
        for (uint64_t w = RF_MIN(12, most); w <= most && each > 8; w++) {
            uint64_t turns = (each + w - 1) / w * w;
            if (!least || turns <= least) least = turns, waves = w;
        }
        blocks = (uint32_t)RF_MIN(units, RF_MAX(pairs, 1));
    } else {
        waves = 256 / wave;
        if (most < waves) return false;
        uint64_t held = shared / (before + waves * ring);
        blocks = blocks_for(pairs, waves, (uint32_t)RF_MIN(units * RF_MIN(RF_MAX(held, 1), 4), X_MAX));
    }
    *grid = (struct rf_grid){
        .blocks = {blocks}, .threads = {(uint32_t)(waves * wave)}, .shared_bytes = (uint32_t)(before + waves * ring)};
    return true;
}

/* The kernel's arguments; a gate is the second of the weights. */
struct pairs {
    struct rf_norm_products_args args;
    struct rf_operand out[3], weights[3], x, norm, normed, bias, residual;
};
static rf_status launch_pairs(struct rf_queue *queue, enum rf_dtype weight_type, const struct pairs *p,
                              struct rf_grid grid) {
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_pairs", type_suffix(weight_type));
    struct rf_arg args[] = {
        rf_operand_arg(p->out[0]),     rf_operand_arg(p->out[1]),     rf_operand_arg(p->out[2]),
        rf_operand_arg(p->weights[0]), rf_operand_arg(p->weights[1]), rf_operand_arg(p->weights[2]),
        rf_operand_arg(p->x),          rf_operand_arg(p->norm),       rf_operand_arg(p->normed),
        rf_operand_arg(p->bias),       rf_operand_arg(p->residual),   rf_arg_struct(&p->args, sizeof p->args)};
    return rf_op_launch(queue, name, grid, args, RF_COUNT(args));
}

/* Converts a product of one row to the kernel's arguments. */
static struct pairs pairs_of(const struct rf_gpu_matmul *call) {
    const struct rf_matmul_args *a = &call->args;
    uint32_t flags = (a->x_q8 ? RF_PRODUCTS_X_Q8 : 0) | (call->gate.buffer ? RF_PRODUCTS_GATE : 0) |
                     (a->constant ? RF_PRODUCTS_CONSTANT : 0);
    return (struct pairs){.args = {.k = a->k, .n = {a->n}, .flags = flags},
                          .out = {call->out},
                          .weights = {call->weights, call->gate},
                          .x = call->x,
                          .bias = call->bias,
                          .residual = call->residual};
}

/* Product number i as rf_gpu_matmul would take it. */
static struct rf_gpu_matmul product_of(const struct rf_gpu_norm_products *call, int i) {
    const struct rf_norm_products_args *a = &call->args;
    return (struct rf_gpu_matmul){.args = {.m = 1,
                                           .n = a->n[i],
                                           .k = a->k,
                                           .x_stride = a->k,
                                           .out_stride = a->n[i],
                                           .constant = (a->flags & RF_PRODUCTS_CONSTANT) != 0},
                                  .weight_type = call->weight_type,
                                  .type = RF_F32,
                                  .out = call->out[i],
                                  .weights = call->weights[i],
                                  .gate = call->gate,
                                  .residual = i ? (struct rf_operand){0} : call->residual,
                                  .x = call->normed};
}

/* ---- queries, keys and values (kernels/matvec_qkv.hip) ---- */

/* A head of a Q8_0 cache is packed when all of it is summed. */
uint64_t rf_gpu_qkv_counters(enum rf_dtype cache, uint64_t kv_heads) {
    return cache == RF_Q8_0 ? 2 * kv_heads * sizeof(uint32_t) : 0;
}

/* Checks that the products are what append takes, and append's own operands. others: those of the products, and a
 * last one for the counters. */
static rf_status check_qkv(const char *op, const struct rf_gpu_norm_products *call, struct rf_named_operand *others,
                           size_t other_count) {
    const struct rf_gpu_kv_append *append = call->append;
    const struct rf_kv_append_args *a = &append->args;
    const struct rf_operand of[3] = {append->q, append->k, append->v};
    const uint64_t heads[3] = {a->q_heads, a->heads, a->heads};
    struct rf_named_operand *counters = &others[other_count - 1];
    uint64_t counted = rf_gpu_qkv_counters(append->dtype, a->heads);
    if (call->count != 3 || a->tokens != 1 || !append->steps.buffer || !a->heads || !a->q_heads || !a->dim)
        return rf_fail(RF_E_INVALID, "%s: not the queries, keys and values of one token, rotated", op);
    for (int i = 0; i < 3; i++)
        if (of[i].buffer != call->out[i].buffer || of[i].offset_bytes != call->out[i].offset_bytes ||
            (call->args.n[i] && call->args.n[i] != heads[i] * a->dim))
            return rf_fail(RF_E_INVALID, "%s: product %d is not the %llu heads of %u that are appended", op, i,
                           (unsigned long long)heads[i], a->dim);
    *counters = (struct rf_named_operand){"counters", call->counters, 0};
    if (counted) RF_TRY(rf_operand_check_bytes(op, counters, counted, sizeof(uint32_t)));
    for (size_t i = 0; i + 1 < other_count; i++) RF_TRY(rf_operands_apart(op, counters, &others[i], false));
    return rf_gpu_kv_append_check(op, append, others, other_count);
}

static rf_status launch_qkv(struct rf_queue *queue, const struct rf_gpu_norm_products *call, const struct pairs *p,
                            struct rf_grid grid) {
    const struct rf_gpu_kv_append *append = call->append;
    struct rf_norm_products_args args = p->args;
    struct rf_kv_append_args to = append->args;
    struct rf_operand none = {NULL, 0};
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_qkv", type_suffix(call->weight_type));
    /* The kernel takes keys and values first: a cache of Q8_0 has some work with them. */
    args.n[0] = p->args.n[1];
    args.n[1] = p->args.n[2];
    args.n[2] = p->args.n[0];
    to.cache = append->dtype == RF_Q8_0 ? RF_CACHE_Q8_0 : append->dtype == RF_F16 ? RF_CACHE_F16 : RF_CACHE_F32;
    struct rf_arg list[] = {rf_operand_arg(p->out[1]),
                            rf_operand_arg(p->out[2]),
                            rf_operand_arg(p->out[0]),
                            rf_operand_arg(p->weights[1]),
                            rf_operand_arg(p->weights[2]),
                            rf_operand_arg(p->weights[0]),
                            rf_operand_arg(p->x),
                            rf_operand_arg(p->norm),
                            rf_operand_arg(p->normed),
                            rf_operand_arg(append->k_cache),
                            rf_operand_arg(append->v_cache),
                            rf_operand_arg(append->q_out),
                            rf_operand_arg(append->positions),
                            rf_operand_arg(append->sequences),
                            rf_operand_arg(append->table),
                            rf_operand_arg(append->steps),
                            rf_operand_arg(append->dtype == RF_Q8_0 ? call->counters : none),
                            rf_arg_struct(&args, sizeof args),
                            rf_arg_struct(&to, sizeof to)};
    return rf_op_launch(queue, name, grid, list, RF_COUNT(list));
}

rf_status rf_gpu_norm_products(struct rf_queue *queue, const struct rf_gpu_norm_products *call, bool *done) {
    const char *op = call->append ? "norm_qkv_append" : "norm_products";
    const struct rf_norm_products_args *a = &call->args;
    struct rf_gpu_matmul one[3];
    struct matmul m[3] = {0};
    struct rf_named_operand x = {"x", call->x, 0}, norm = {"norm", call->norm, 0},
                            normed = {"normed", call->normed, 0};
    struct rf_grid grid;
    uint64_t bytes, x_bytes;
    *done = false;
    RF_TRY(need_queue(op, queue));
    if (call->count < 1 || call->count > 3 || (call->gate.buffer && call->count != 1))
        return rf_fail(RF_E_INVALID, "%s: %d products; up to 3, or one with a gate", op, call->count);
    if (call->type != RF_F32 && call->type != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "%s: x of %s", op, type_name(call->type));
    if (call->weight_type == RF_F32 || rf_mul_overflows(a->k, sizeof(float), &bytes) || !a->k) return RF_OK;
    x_bytes = a->k * rf_dtype_bytes(call->type);
    RF_TRY(rf_operand_check_bytes(op, &x, x_bytes, rf_dtype_bytes(call->type)));
    RF_TRY(rf_operand_check_bytes(op, &norm, call->norm.buffer ? bytes : 0, sizeof(float)));
    RF_TRY(rf_operand_check_bytes(op, &normed, bytes, sizeof(float)));
    RF_TRY(rf_operands_apart(op, &normed, &x, false));
    RF_TRY(rf_operands_apart(op, &normed, &norm, false));
    for (int i = 0; i < call->count; i++) {
        one[i] = product_of(call, i);
        if (call->append && !a->n[i]) continue;
        RF_TRY(rf_matmul_check(&one[i], &m[i]));
        RF_TRY(rf_operands_apart(op, &m[i].out, &x, false));
        RF_TRY(rf_operands_apart(op, &m[i].out, &norm, false));
        for (int k = 0; k < i; k++) RF_TRY(rf_operands_apart(op, &m[i].out, &m[k].out, false));
        m[i].out.name = "another product"; /* the name that later products' errors use */
    }
    if (call->append) {
        struct rf_named_operand others[7] = {x, norm, normed};
        for (int i = 0; i < call->count; i++) others[3 + i] = m[i].weights;
        RF_TRY(check_qkv(op, call, others, RF_COUNT(others)));
    }
    uint64_t addresses = rf_operand_address(call->x) | rf_operand_address(call->norm) |
                         rf_operand_address(call->normed) | rf_operand_address(call->gate);
    for (int i = 0; i < call->count; i++) addresses |= rf_operand_address(call->weights[i]);
    if (addresses % 16) return RF_OK;
    struct pairs p = pairs_of(&one[0]);
    p.x = call->x;
    p.norm = call->norm;
    p.normed = call->normed;
    p.args.eps = a->eps;
    if (call->type == RF_F16) p.args.flags |= RF_PRODUCTS_X_F16;
    for (int i = 1; i < call->count; i++) {
        p.args.n[i] = a->n[i];
        p.out[i] = call->out[i];
        p.weights[i] = call->weights[i];
    }
    RF_PARAMS(struct rf_device_info, info);
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    if (!plan_pairs(call->weight_type, &p.args, &info, &grid)) return RF_OK;
    *done = true;
    if (call->plan_only) return RF_OK;
    if (call->append) return launch_qkv(queue, call, &p, grid);
    return launch_pairs(queue, call->weight_type, &p, grid);
}

rf_status rf_matmul_few_rows(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_gpu_matmul *call = m->call;
    const struct rf_matmul_args *a = &call->args;
    if (rf_op_is_quantized(call->weight_type) && (call->path != RF_MATMUL_MATVEC || a->x_q8)) {
        RF_PARAMS(struct rf_device_info, info);
        RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
        struct dots_plan plan;
        struct rf_grid grid;
        struct pairs pairs = pairs_of(call);
        if (a->m == 1 && plan_pairs(call->weight_type, &pairs.args, &info, &grid))
            return launch_pairs(queue, call->weight_type, &pairs, grid);
        if (plan_dots(call, &info, a->m, &plan)) return dots(queue, call, &info);
        if (call->path == RF_MATMUL_DOTS || a->x_q8)
            return rf_fail(RF_E_UNSUPPORTED,
                           "matmul: %llu columns of x in 8 bits do not fit into a block's shared memory of %d bytes",
                           (unsigned long long)a->k, info.max_shared_bytes_per_block);
    }
    for (uint64_t first = 0; first < a->m; first += matvec_rows(call->weight_type))
        RF_TRY(matvec(queue, call, first));
    return RF_OK;
}
