/* Launchers of products of few rows with weights (see gpu_matmul.h): rows of weights are read once, by kernels that
 * are bound by that.
 *
 * Grid and block depend on the shape and the device alone: kernels sum in an order that depends on the block, and the
 * same input must give the same bits. */
#include "ops/gpu_matmul_impl.h"

/* Threads that share one output: each has a few units, so that loads overlap. */
static uint32_t matvec_threads(const struct rf_matmul_args *a) {
    uint64_t units = a->k / unit_elements(a->weight_type), threads = (units / 4 + 63) / 64 * 64;
    return (uint32_t)RF_MIN(RF_MAX(threads, 64), 256);
}

/* Rows that one of the kernels below takes at most. */
static uint64_t matvec_rows(enum rf_dtype weight_type) {
    return is_quantized(weight_type) ? 4 : RF_MATVEC_ROWS;
}

/* The kernels' variants, by the rows of x that they take at once. */
static int row_variant(uint64_t rows) {
    return rows == 1 ? 1 : rows <= 4 ? 4 : 8;
}

/* Rows from `first` on. */
static rf_status matvec(struct rf_queue *queue, const struct matmul *m, uint64_t first) {
    const struct rf_matmul_args *a = m->args;
    uint64_t rows = RF_MIN(a->m - first, matvec_rows(a->weight_type)), element = rf_dtype_bytes(a->type);
    uint64_t x_bytes = m->x_stride * element, out_bytes = m->out_stride * element;
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_%s_%d", type_suffix(a->weight_type), type_suffix(a->type),
             row_variant(rows));
    struct rf_arg args[] = {later(m->out, first * out_bytes),
                            m->weights.arg,
                            m->gate.arg,
                            later(m->x, first * x_bytes),
                            m->bias.arg,
                            later(m->residual, first * out_bytes),
                            rf_arg_i64((int64_t)rows),
                            rf_arg_i64((int64_t)a->n),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)m->x_stride),
                            rf_arg_i64((int64_t)m->out_stride)};
    uint32_t grid[2] = {blocks_for(a->n, a->gate.buffer ? 1 : 2, X_MAX), 1};
    return rf_op_launch(queue, name, rf_grid_plane(grid, matvec_threads(a), 0), args, RF_COUNT(args));
}

/* How kernels/dots.h is launched: rows of x that it takes at once, threads of a block, blocks. */
struct dots_plan {
    uint32_t rows, threads, blocks;
    uint64_t shared_bytes;
};

/* As in kernels/stream.h: a wave's slots for slices of the weights, of so many bytes each. */
static uint64_t stream_slots(uint64_t bytes, const struct rf_device_info *info) {
    return info->vendor != RF_VENDOR_NVIDIA ? 2 : bytes <= 1750 ? 3 : 2;
}
static uint64_t dots_ring_bytes(enum rf_dtype weights, const struct rf_device_info *info) {
    uint64_t bytes = (uint64_t)info->wave_size * 64 / rf_dtype_block(weights) * rf_dtype_block_bytes(weights);
    return stream_slots(bytes, info) * ((bytes + 29) / 16 * 16);
}
/* What a block holds of a row of x. */
static uint64_t dots_x_bytes(enum rf_dtype weights, uint64_t k, const struct rf_device_info *info) {
    uint64_t wave = (uint64_t)info->wave_size;
    return (k + 64 * wave - 1) / (64 * wave) * wave * (weights == RF_Q6_K ? 96 : 80);
}

/* False where a block's shared memory does not hold even one row of x. Results depend on none of this: a wave sums a
 * row of weights by itself. */
static bool plan_dots(const struct rf_matmul_args *a, const struct rf_device_info *info, uint64_t rows,
                      struct dots_plan *plan) {
    uint64_t wave = (uint64_t)info->wave_size, most = (uint64_t)info->max_shared_bytes_per_block;
    uint64_t units = (uint64_t)RF_MAX(info->compute_units, 1), ring = dots_ring_bytes(a->weight_type, info);
    uint64_t row_bytes = dots_x_bytes(a->weight_type, a->k, info);
    bool nvidia = info->vendor == RF_VENDOR_NVIDIA;
    if (a->k > INT32_MAX || a->n > INT32_MAX) return false;
    for (rows = RF_MIN(rows, RF_MATVEC_ROWS); rows; rows /= 2) {
        /* A row of weights for each wave, so that few rows reach all units; rounding x then costs once per unit. */
        uint64_t threads = !nvidia ? 256 : rows == 1 ? 1024 : 512;
        threads = RF_MIN(threads, (a->n + units - 1) / units * wave);
        threads = (threads + 63) / 64 * 64;
        while (threads > 64 && rows * row_bytes + threads / wave * ring > most) threads = threads / 2 / 64 * 64;
        plan->shared_bytes = rows * row_bytes + threads / wave * ring;
        if (plan->shared_bytes > most) continue;
        uint64_t per_unit = RF_MIN(RF_MAX(most / plan->shared_bytes, 1), 1024 / threads);
        plan->rows = (uint32_t)rows;
        plan->threads = (uint32_t)threads;
        plan->blocks = blocks_for(a->n, threads / wave, (uint32_t)RF_MIN(units * per_unit, X_MAX));
        return true;
    }
    return false;
}

/* All rows, as many at once as the plan says. */
static rf_status dots(struct rf_queue *queue, const struct matmul *m, const struct rf_device_info *info) {
    const struct rf_matmul_args *a = m->args;
    uint64_t x_bytes = a->x_q8 ? a->k / Q8_BLOCK * Q8_BLOCK_BYTES : m->x_stride * sizeof(float);
    uint64_t out_bytes = m->out_stride * sizeof(float);
    struct dots_plan plan;
    for (uint64_t first = 0; first < a->m; first += plan.rows) {
        if (!plan_dots(a, info, a->m - first, &plan)) return rf_fail(RF_E_UNSUPPORTED, "matmul: too many columns");
        char name[64];
        snprintf(name, sizeof name, "matvec_%s_q8_%d", type_suffix(a->weight_type), row_variant(plan.rows));
        struct rf_arg args[] = {later(m->out, first * out_bytes),
                                m->weights.arg,
                                m->gate.arg,
                                later(m->x, first * x_bytes),
                                m->bias.arg,
                                later(m->residual, first * out_bytes),
                                rf_arg_i64((int64_t)plan.rows),
                                rf_arg_i64((int64_t)a->n),
                                rf_arg_i64((int64_t)a->k),
                                rf_arg_i64((int64_t)m->x_stride),
                                rf_arg_i64((int64_t)m->out_stride),
                                rf_arg_i32(a->x_q8)};
        uint32_t grid[2] = {plan.blocks, 1};
        RF_TRY(rf_op_launch(queue, name, rf_grid_plane(grid, plan.threads, (uint32_t)plan.shared_bytes), args,
                            RF_COUNT(args)));
    }
    return RF_OK;
}

/* ---- one row of x, rows of weights in pairs (see kernels/matvec_pairs.hip) ---- */

#define PAIRS_Q8 1u
#define PAIRS_GATE 2u
#define PAIRS_HALF 4u
#define PAIRS_EARLY 8u
#define PAIRS_FLOATS 16 /* elements that a lane has of a slice of float weights */

struct pairs {
    enum rf_dtype weight_type;
    uint64_t k, n[3]; /* of as many matrices; a gate is the second and has an n of 0 */
    struct rf_arg out[3], weights[3], x, norm, normed, bias, residual;
    float eps;
    bool q8, gate, half, constant;
};

/* What kernels/matvec_pairs.hip needs: a wave's slots for slices of two rows, and a block's x. */
static uint64_t pairs_ring_bytes(enum rf_dtype weights, const struct rf_device_info *info) {
    uint64_t elements = (uint64_t)info->wave_size * (is_float(weights) ? PAIRS_FLOATS : 64);
    uint64_t bytes = elements / rf_dtype_block(weights) * rf_dtype_block_bytes(weights);
    return stream_slots(bytes, info) * 2 * bytes;
}
static uint64_t pairs_x_bytes(enum rf_dtype weights, uint64_t k, const struct rf_device_info *info) {
    uint64_t elements = (uint64_t)info->wave_size * PAIRS_FLOATS;
    return is_float(weights) ? (k + elements - 1) / elements * elements * sizeof(float)
                             : dots_x_bytes(weights, k, info);
}

/* Whether rows suit, and shared memory is enough. Results depend on none of this but where there is a norm. */
static bool plan_pairs(const struct pairs *p, const struct rf_device_info *info, struct dots_plan *plan) {
    enum rf_dtype type = p->weight_type;
    bool has_kernel =
        type == RF_F16 || type == RF_BF16 || type == RF_Q4_0 || type == RF_Q8_0 || type == RF_Q4_K || type == RF_Q6_K;
    if (!has_kernel || !p->k || p->k % 64 || p->k / rf_dtype_block(type) * rf_dtype_block_bytes(type) % 16 ||
        p->k > INT32_MAX || p->n[0] > INT32_MAX / 4 || p->n[1] > INT32_MAX / 4 || p->n[2] > INT32_MAX / 4)
        return false;
    uint64_t wave = (uint64_t)info->wave_size, units = (uint64_t)RF_MAX(info->compute_units, 1), pairs = 0, waves;
    uint64_t before = pairs_x_bytes(type, p->k, info), ring = pairs_ring_bytes(type, info);
    uint64_t shared = (uint64_t)info->max_shared_bytes_per_block, most = rf_sub_saturate(shared, before) / ring;
    for (int i = 0; i < 3; i++) pairs += p->gate ? p->n[i] : (p->n[i] + 1) / 2;
    if (info->vendor == RF_VENDOR_NVIDIA) {
        /* One block for each unit, of as many waves as make their last turn a full one, or nearly; more of them where
         * that is the same. A few more than there is work for fetch x. */
        uint64_t each = (pairs + units - 1) / units, least = 0;
        most = RF_MIN(most, 32);
        if (most < 8) return false;
        waves = 8;
        for (uint64_t w = RF_MIN(12, most); w <= most && each > 8; w++) {
            uint64_t turns = (each + w - 1) / w * w;
            if (!least || turns <= least) least = turns, waves = w;
        }
        plan->blocks = (uint32_t)RF_MIN(units, RF_MAX(pairs, 1));
    } else {
        waves = 256 / wave;
        if (most < waves) return false;
        uint64_t held = shared / (before + waves * ring);
        plan->blocks = blocks_for(pairs, waves, (uint32_t)RF_MIN(units * RF_MIN(RF_MAX(held, 1), 4), X_MAX));
    }
    plan->rows = 1;
    plan->threads = (uint32_t)(waves * wave);
    plan->shared_bytes = before + waves * ring;
    return true;
}

static rf_status launch_pairs(struct rf_queue *queue, const struct pairs *p, const struct dots_plan *plan) {
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_pairs", type_suffix(p->weight_type));
    struct rf_arg args[] = {p->out[0],
                            p->out[1],
                            p->out[2],
                            p->weights[0],
                            p->weights[1],
                            p->weights[2],
                            p->x,
                            p->norm,
                            p->normed,
                            p->bias,
                            p->residual,
                            rf_arg_u32((uint32_t)p->n[0]),
                            rf_arg_u32((uint32_t)p->n[1]),
                            rf_arg_u32((uint32_t)p->n[2]),
                            rf_arg_u32((uint32_t)p->k),
                            rf_arg_f32(p->eps),
                            rf_arg_u32((p->q8 ? PAIRS_Q8 : 0) | (p->gate ? PAIRS_GATE : 0) |
                                       (p->half ? PAIRS_HALF : 0) | (p->constant ? PAIRS_EARLY : 0))};
    uint32_t grid[2] = {plan->blocks, 1};
    return rf_op_launch(queue, name, rf_grid_plane(grid, plan->threads, (uint32_t)plan->shared_bytes), args,
                        RF_COUNT(args));
}

/* A product of one row as they take it. */
static struct pairs pairs_of(const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    struct rf_arg none = rf_arg_buffer(NULL);
    return (struct pairs){.weight_type = a->weight_type,
                          .k = a->k,
                          .n = {a->n},
                          .out = {m->out.arg, none, none},
                          .weights = {m->weights.arg, m->gate.arg, none},
                          .x = m->x.arg,
                          .norm = none,
                          .normed = none,
                          .bias = m->bias.arg,
                          .residual = m->residual.arg,
                          .q8 = a->x_q8,
                          .gate = a->gate.buffer != NULL,
                          .constant = a->constant};
}

rf_status rf_gpu_norm_products(struct rf_queue *queue, const struct rf_norm_products_args *a, bool *done) {
    const char *op = "norm_products";
    struct rf_matmul_args one[3];
    struct matmul m[3];
    struct span x, norm, normed;
    struct dots_plan plan;
    uint64_t bytes, x_bytes;
    *done = false;
    RF_TRY(need_device(op, queue));
    if (a->count < 1 || a->count > 3 || (a->gate.buffer && a->count != 1))
        return rf_fail(RF_E_INVALID, "%s: %d products; up to 3, or one with a gate", op, a->count);
    if (a->type != RF_F32 && a->type != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "%s: x of %s", op, type_name(a->type));
    if (a->weight_type == RF_F32 || rf_mul_overflows(a->k, sizeof(float), &bytes) || !a->k) return RF_OK;
    x_bytes = a->k * rf_dtype_bytes(a->type);
    RF_TRY(take(op, "x", &a->x, x_bytes, rf_dtype_bytes(a->type), &x));
    RF_TRY(take(op, "norm", &a->norm, a->norm.buffer ? bytes : 0, sizeof(float), &norm));
    RF_TRY(take(op, "normed", &a->normed, bytes, sizeof(float), &normed));
    RF_TRY(apart(op, &normed, "x", &x));
    RF_TRY(apart(op, &normed, "norm", &norm));
    for (int i = 0; i < a->count; i++) {
        one[i] = (struct rf_matmul_args){.weight_type = a->weight_type,
                                         .type = RF_F32,
                                         .m = 1,
                                         .n = a->n[i],
                                         .k = a->k,
                                         .out = a->out[i],
                                         .weights = a->weights[i],
                                         .gate = a->gate,
                                         .constant = a->constant,
                                         .residual = i ? (struct rf_rows_view){0} : a->residual,
                                         .x = a->normed};
        RF_TRY(rf_matmul_check(&one[i], &m[i]));
        RF_TRY(apart(op, &m[i].out, "x", &x));
        RF_TRY(apart(op, &m[i].out, "norm", &norm));
        for (int k = 0; k < i; k++) RF_TRY(apart(op, &m[i].out, "another product", &m[k].out));
    }
    if ((x.first | norm.first | normed.first) % 16) return RF_OK;
    for (int i = 0; i < a->count; i++)
        if ((m[i].weights.first | m[i].gate.first) % 16) return RF_OK;
    struct pairs p = pairs_of(&m[0]);
    p.x = x.arg;
    p.norm = norm.arg;
    p.normed = normed.arg;
    p.eps = a->eps;
    p.half = a->type == RF_F16;
    for (int i = 1; i < a->count; i++) {
        p.n[i] = a->n[i];
        p.out[i] = m[i].out.arg;
        p.weights[i] = m[i].weights.arg;
    }
    RF_PARAMS(struct rf_device_info, info);
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    if (!plan_pairs(&p, &info, &plan)) return RF_OK;
    *done = true;
    return launch_pairs(queue, &p, &plan);
}

rf_status rf_matmul_few_rows(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    if (is_quantized(a->weight_type) && (a->path != RF_MATMUL_MATVEC || a->x_q8)) {
        RF_PARAMS(struct rf_device_info, info);
        RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
        struct dots_plan plan;
        struct pairs pairs = pairs_of(m);
        if (a->m == 1 && plan_pairs(&pairs, &info, &plan)) return launch_pairs(queue, &pairs, &plan);
        if (plan_dots(a, &info, a->m, &plan)) return dots(queue, m, &info);
        if (a->path == RF_MATMUL_DOTS || a->x_q8)
            return rf_fail(RF_E_UNSUPPORTED,
                           "matmul: %llu columns of x in 8 bits do not fit into a block's shared memory of %d bytes",
                           (unsigned long long)a->k, info.max_shared_bytes_per_block);
    }
    for (uint64_t first = 0; first < a->m; first += matvec_rows(a->weight_type)) RF_TRY(matvec(queue, m, first));
    return RF_OK;
}
