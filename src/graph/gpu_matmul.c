/* Launchers of the products with weights (see gpu_matmul.h).
 *
 * Grid and block depend on the shape alone: kernels sum in an order that depends on the block, and the
 * same input must give the same bits. */
#include "graph/gpu_matmul.h"

#include <stdio.h>

#include "base/base.h"

#define Q8_BLOCK 32
#define Q8_BLOCK_BYTES 40

/* ---- checks ---- */

/* A checked range of device memory. */
struct span {
    uint64_t first, bytes; /* address; 0 bytes: nothing */
    struct rf_arg arg;
};

static const char *type_suffix(enum rf_dtype dtype) {
    static const char *const names[RF_DTYPE_COUNT] = {
        [RF_F32] = "f32",   [RF_F16] = "f16",   [RF_BF16] = "bf16", [RF_Q4_0] = "q4_0",     [RF_Q4_1] = "q4_1",
        [RF_Q5_0] = "q5_0", [RF_Q5_1] = "q5_1", [RF_Q8_0] = "q8_0", [RF_Q2_K] = "q2_k",     [RF_Q3_K] = "q3_k",
        [RF_Q4_K] = "q4_k", [RF_Q5_K] = "q5_k", [RF_Q6_K] = "q6_k", [RF_IQ4_NL] = "iq4_nl", [RF_IQ4_XS] = "iq4_xs"};
    return (unsigned)dtype < RF_DTYPE_COUNT ? names[dtype] : NULL;
}
static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}
static bool is_weight(enum rf_dtype dtype) {
    return type_suffix(dtype) != NULL;
}
static bool is_quantized(enum rf_dtype dtype) {
    return is_weight(dtype) && !is_float(dtype);
}
static const char *type_name(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT ? rf_dtype_name(dtype) : "no type";
}

/* Bytes of rows of columns elements, a stride apart; the last row ends with its elements. */
static bool rows_bytes_overflow(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t stride,
                                uint64_t *bytes) {
    uint64_t before, elements;
    *bytes = 0;
    if (!rows || !columns) return false;
    if (rf_mul_overflows(rows - 1, stride, &before) || rf_add_overflows(before, columns, &elements)) return true;
    return rf_mul_overflows(elements / rf_dtype_block(dtype), rf_dtype_block_bytes(dtype), bytes);
}

bool rf_q8_bytes_overflow(uint64_t rows, uint64_t columns, uint64_t *bytes) {
    return rf_mul_overflows(rows, columns / Q8_BLOCK, bytes) || rf_mul_overflows(*bytes, Q8_BLOCK_BYTES, bytes);
}

static rf_status take(const char *op, const char *what, const struct rf_rows_view *view, uint64_t bytes,
                      uint64_t align, struct span *span) {
    *span = (struct span){0, 0, rf_arg_buffer(NULL)};
    if (!view->buffer) {
        if (!bytes) return RF_OK;
        return rf_fail(RF_E_INVALID, "%s: %s has no buffer", op, what);
    }
    if (!rf_range_fits(view->offset_bytes, bytes, rf_buffer_bytes(view->buffer)))
        return rf_fail(RF_E_INVALID, "%s: %s needs %llu bytes from %llu on, its buffer has %llu", op, what,
                       (unsigned long long)bytes, (unsigned long long)view->offset_bytes,
                       (unsigned long long)rf_buffer_bytes(view->buffer));
    span->first = rf_buffer_address(view->buffer) + view->offset_bytes;
    span->bytes = bytes;
    span->arg = rf_arg_buffer_at(view->buffer, view->offset_bytes);
    if (span->first % align)
        return rf_fail(RF_E_INVALID, "%s: %s starts at a byte that is no multiple of %llu", op, what,
                       (unsigned long long)align);
    return RF_OK;
}
static bool overlap(const struct span *a, const struct span *b) {
    return a->bytes && b->bytes && a->first < b->first + b->bytes && b->first < a->first + a->bytes;
}
static rf_status apart(const char *op, const struct span *out, const char *what, const struct span *in) {
    return overlap(out, in) ? rf_fail(RF_E_INVALID, "%s: out overlaps %s", op, what) : RF_OK;
}
static rf_status need_device(const char *op, struct rf_queue *queue) {
    return queue ? RF_OK : rf_fail(RF_E_INVALID, "%s: no queue", op);
}

#define TRY(call)                                                                                                    \
    do {                                                                                                             \
        rf_status status_ = (call);                                                                                  \
        if (status_) return status_;                                                                                 \
    } while (0)

static rf_status launch_shared(struct rf_queue *queue, const char *name, const uint32_t grid[2], uint32_t threads,
                               uint32_t shared_bytes, const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_launch, params);
    params.shared_bytes = shared_bytes;
    TRY(rf_kernel_find(rf_queue_device(queue), name, &params.kernel));
    params.grid[0] = grid[0];
    params.grid[1] = grid[1];
    params.block[0] = threads;
    params.args = args;
    params.arg_count = count;
    return rf_queue_launch(queue, &params);
}
static rf_status launch(struct rf_queue *queue, const char *name, const uint32_t grid[2], uint32_t threads,
                        const struct rf_arg *args, size_t count) {
    return launch_shared(queue, name, grid, threads, 0, args, count);
}
/* Blocks for so many pieces of work; kernels go round where a grid is smaller. */
static uint32_t blocks_for(uint64_t work, uint64_t each, uint32_t most) {
    uint64_t blocks = work / each + (work % each != 0);
    return (uint32_t)RF_MAX(1, RF_MIN(blocks, most));
}
#define MOST_X 0x7fffffffu
#define MOST_Y 65535u
#define ROUND_X 65536u /* enough blocks for any device where kernels go round */

/* ---- matmul ---- */

struct matmul {
    const struct rf_matmul_args *args;
    uint64_t x_stride, out_stride;
    struct span out, weights, gate, x, bias, residual;
};

static bool on_units(enum rf_matmul_path path) {
    return path == RF_MATMUL_MATRIX || path == RF_MATMUL_WIDE;
}

static rf_status check_matmul_types(const struct rf_matmul_args *a) {
    const char *op = "matmul";
    if (!is_weight(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s", op, type_name(a->weight_type));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(a->type));
    if (is_quantized(a->weight_type) && a->type != RF_F32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: weights of %s take activations and output of F32, not %s", op,
                       type_name(a->weight_type), type_name(a->type));
    if (a->x_q8 && !is_quantized(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: 8-bit activations with weights of %s", op, type_name(a->weight_type));
    if (a->k % rf_dtype_block(a->weight_type))
        return rf_fail(RF_E_INVALID, "%s: k %llu is no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->k, rf_dtype_block(a->weight_type), type_name(a->weight_type));
    if (a->gate.buffer && (a->bias.buffer || a->residual.buffer))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a gate together with bias or residual", op);
    if ((a->path == RF_MATMUL_TILED || on_units(a->path)) && (a->gate.buffer || a->x_q8))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no tiles for a gate or 8-bit activations", op);
    if (a->path == RF_MATMUL_DOTS && !is_quantized(a->weight_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: products of bytes with weights of %s", op, type_name(a->weight_type));
    if ((unsigned)a->path > RF_MATMUL_WIDE) return rf_fail(RF_E_INVALID, "%s: no such path", op);
    return RF_OK;
}

static rf_status check_matmul(const struct rf_matmul_args *a, struct matmul *m) {
    const char *op = "matmul";
    bool quantized = is_quantized(a->weight_type);
    uint64_t weight_bytes, x_bytes, out_bytes, bias_bytes, element = rf_dtype_bytes(a->type);
    m->args = a;
    m->x_stride = a->x.stride ? a->x.stride : a->k;
    m->out_stride = a->out.stride ? a->out.stride : a->n;
    uint64_t residual_stride = a->residual.stride ? a->residual.stride : a->n;
    if (a->weights.stride || a->gate.stride || (a->x_q8 && a->x.stride))
        return rf_fail(RF_E_UNSUPPORTED, "%s: strides of weights or of 8-bit activations", op);
    if (m->x_stride < a->k || m->out_stride < a->n)
        return rf_fail(RF_E_INVALID, "%s: rows are longer than their stride", op);
    if (a->residual.buffer && residual_stride != m->out_stride)
        return rf_fail(RF_E_UNSUPPORTED, "%s: residual and out differ in stride", op);
    if (quantized && !a->x_q8 && m->x_stride % 4)
        return rf_fail(RF_E_INVALID, "%s: the stride of x, %llu, is no multiple of 4", op,
                       (unsigned long long)m->x_stride);
    if (rows_bytes_overflow(a->weight_type, a->n, a->k, a->k, &weight_bytes) ||
        rows_bytes_overflow(a->type, a->m, a->n, m->out_stride, &out_bytes) ||
        rf_mul_overflows(a->n, sizeof(float), &bias_bytes) ||
        (a->x_q8 ? rf_q8_bytes_overflow(a->m, a->k, &x_bytes)
                 : rows_bytes_overflow(a->type, a->m, a->k, m->x_stride, &x_bytes)))
        return rf_fail(RF_E_INVALID, "%s: %llu x %llu x %llu overflows", op, (unsigned long long)a->m,
                       (unsigned long long)a->n, (unsigned long long)a->k);
    TRY(take(op, "weights", &a->weights, weight_bytes, quantized ? 16 : rf_dtype_bytes(a->weight_type), &m->weights));
    TRY(take(op, "gate", &a->gate, a->gate.buffer ? weight_bytes : 0, quantized ? 16 : rf_dtype_bytes(a->weight_type),
             &m->gate));
    TRY(take(op, "x", &a->x, x_bytes, a->x_q8 ? 8 : quantized ? 16 : element, &m->x));
    TRY(take(op, "bias", &a->bias, a->bias.buffer ? bias_bytes : 0, sizeof(float), &m->bias));
    TRY(take(op, "residual", &a->residual, a->residual.buffer ? out_bytes : 0, element, &m->residual));
    TRY(take(op, "out", &a->out, out_bytes, element, &m->out));
    TRY(apart(op, &m->out, "weights", &m->weights));
    TRY(apart(op, &m->out, "gate", &m->gate));
    TRY(apart(op, &m->out, "x", &m->x));
    TRY(apart(op, &m->out, "bias", &m->bias));
    if (m->residual.bytes && m->residual.first != m->out.first) TRY(apart(op, &m->out, "residual", &m->residual));
    return RF_OK;
}

static struct rf_arg later(struct span span, uint64_t bytes) {
    if (span.arg.buffer) span.arg.offset += bytes;
    return span.arg;
}

/* Elements a thread takes at once, as in kernels/quant.h. */
static uint64_t unit_elements(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_F32:
    case RF_F16:
    case RF_BF16:
    case RF_Q8_0: return 8;
    case RF_Q2_K:
    case RF_Q3_K:
    case RF_Q6_K: return 32;
    default: return 16;
    }
}

/* Threads that share one output: each has a few units, so that loads overlap. */
static uint32_t matvec_threads(const struct rf_matmul_args *a) {
    uint64_t units = a->k / unit_elements(a->weight_type), threads = (units / 4 + 63) / 64 * 64;
    return (uint32_t)RF_MIN(RF_MAX(threads, 64), 256);
}

/* Rows that one of the kernels below takes at most. */
static uint64_t matvec_rows(enum rf_dtype weight_type) {
    return is_quantized(weight_type) ? 4 : RF_MATVEC_ROWS;
}

/* Rows from `first` on. */
static rf_status matvec(struct rf_queue *queue, const struct matmul *m, uint64_t first) {
    const struct rf_matmul_args *a = m->args;
    uint64_t rows = RF_MIN(a->m - first, matvec_rows(a->weight_type)), element = rf_dtype_bytes(a->type);
    uint64_t x_bytes = m->x_stride * element, out_bytes = m->out_stride * element;
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_%s_%d", type_suffix(a->weight_type), type_suffix(a->type),
             rows == 1   ? 1
             : rows <= 4 ? 4
                         : 8);
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
    uint32_t grid[2] = {blocks_for(a->n, a->gate.buffer ? 1 : 2, MOST_X), 1};
    return launch(queue, name, grid, matvec_threads(a), args, RF_COUNT(args));
}

/* How kernels/dots.h is launched: rows of x that it takes at once, threads of a block, blocks. */
struct dots_plan {
    uint32_t rows, threads, blocks;
    uint64_t shared_bytes;
};

/* As in kernels/stream.h: a wave's slots for slices of the weights. */
static uint64_t dots_ring_bytes(enum rf_dtype weights, const struct rf_device_info *info, bool pairs) {
    uint64_t bytes = (uint64_t)info->wave_size * 64 / rf_dtype_block(weights) * rf_dtype_block_bytes(weights);
    uint64_t slots = info->vendor != RF_VENDOR_NVIDIA ? 2 : bytes <= 1200 ? 4 : bytes <= 1750 ? 3 : 2;
    return slots * (pairs ? 2 * bytes : (bytes + 29) / 16 * 16);
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
    uint64_t units = (uint64_t)RF_MAX(info->compute_units, 1), ring = dots_ring_bytes(a->weight_type, info, false);
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
        plan->blocks = blocks_for(a->n, threads / wave, (uint32_t)RF_MIN(units * per_unit, MOST_X));
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
        snprintf(name, sizeof name, "matvec_%s_q8_%d", type_suffix(a->weight_type),
                 plan.rows == 1   ? 1
                 : plan.rows <= 4 ? 4
                                  : 8);
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
        TRY(launch_shared(queue, name, grid, plan.threads, (uint32_t)plan.shared_bytes, args, RF_COUNT(args)));
    }
    return RF_OK;
}

/* ---- one row of x, rows of weights in pairs (see kernels/matvec_pairs.hip) ---- */

#define PAIRS_SCRATCH 256
#define PAIRS_Q8 1u
#define PAIRS_GATE 2u
#define PAIRS_HALF 4u

struct pairs {
    enum rf_dtype weight_type;
    uint64_t k, n[3]; /* of as many matrices; a gate is the second and has an n of 0 */
    struct rf_arg out[3], weights[3], x, norm, normed, bias, residual;
    float eps;
    bool q8, gate, half;
};

/* Whether rows suit, and shared memory is enough. Results depend on none of this but where there is a norm. */
static bool plan_pairs(const struct pairs *p, const struct rf_device_info *info, struct dots_plan *plan) {
    enum rf_dtype type = p->weight_type;
    bool has_kernel = type == RF_Q4_0 || type == RF_Q8_0 || type == RF_Q4_K || type == RF_Q6_K;
    if (!has_kernel || !p->k || p->k % 64 || p->k / rf_dtype_block(type) * rf_dtype_block_bytes(type) % 16 ||
        p->k > INT32_MAX || p->n[0] > INT32_MAX / 4 || p->n[1] > INT32_MAX / 4 || p->n[2] > INT32_MAX / 4)
        return false;
    uint64_t wave = (uint64_t)info->wave_size, units = (uint64_t)RF_MAX(info->compute_units, 1), pairs = 0, waves;
    uint64_t before = PAIRS_SCRATCH + dots_x_bytes(type, p->k, info), ring = dots_ring_bytes(type, info, true);
    uint64_t most = rf_sub_saturate((uint64_t)info->max_shared_bytes_per_block, before) / ring;
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
        uint64_t held = (uint64_t)info->max_shared_bytes_per_block / (before + waves * ring);
        plan->blocks = blocks_for(pairs, waves, (uint32_t)RF_MIN(units * RF_MIN(RF_MAX(held, 1), 4), MOST_X));
    }
    plan->rows = 1;
    plan->threads = (uint32_t)(waves * wave);
    plan->shared_bytes = before + waves * ring;
    return true;
}

static rf_status launch_pairs(struct rf_queue *queue, const struct pairs *p, const struct dots_plan *plan) {
    char name[64];
    snprintf(name, sizeof name, "matvec_%s_pairs", type_suffix(p->weight_type));
    struct rf_arg args[] = {
        p->out[0],
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
        rf_arg_u32((p->q8 ? PAIRS_Q8 : 0) | (p->gate ? PAIRS_GATE : 0) | (p->half ? PAIRS_HALF : 0))};
    uint32_t grid[2] = {plan->blocks, 1};
    return launch_shared(queue, name, grid, plan->threads, (uint32_t)plan->shared_bytes, args, RF_COUNT(args));
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
                          .gate = a->gate.buffer != NULL};
}

rf_status rf_gpu_norm_products(struct rf_queue *queue, const struct rf_norm_products_args *a, bool *done) {
    const char *op = "norm_products";
    struct rf_matmul_args one[3];
    struct matmul m[3];
    struct span x, norm, normed;
    struct dots_plan plan;
    uint64_t bytes, x_bytes;
    *done = false;
    TRY(need_device(op, queue));
    if (a->count < 1 || a->count > 3 || (a->gate.buffer && a->count != 1))
        return rf_fail(RF_E_INVALID, "%s: %d products; up to 3, or one with a gate", op, a->count);
    if (a->type != RF_F32 && a->type != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "%s: x of %s", op, type_name(a->type));
    if (!is_quantized(a->weight_type) || rf_mul_overflows(a->k, sizeof(float), &bytes) || !a->k) return RF_OK;
    x_bytes = a->k * rf_dtype_bytes(a->type);
    TRY(take(op, "x", &a->x, x_bytes, rf_dtype_bytes(a->type), &x));
    TRY(take(op, "norm", &a->norm, a->norm.buffer ? bytes : 0, sizeof(float), &norm));
    TRY(take(op, "normed", &a->normed, bytes, sizeof(float), &normed));
    TRY(apart(op, &normed, "x", &x));
    TRY(apart(op, &normed, "norm", &norm));
    for (int i = 0; i < a->count; i++) {
        one[i] = (struct rf_matmul_args){.weight_type = a->weight_type,
                                         .type = RF_F32,
                                         .m = 1,
                                         .n = a->n[i],
                                         .k = a->k,
                                         .out = a->out[i],
                                         .weights = a->weights[i],
                                         .gate = a->gate,
                                         .residual = i ? (struct rf_rows_view){0} : a->residual,
                                         .x = a->normed};
        TRY(check_matmul_types(&one[i]));
        TRY(check_matmul(&one[i], &m[i]));
        TRY(apart(op, &m[i].out, "x", &x));
        TRY(apart(op, &m[i].out, "norm", &norm));
        for (int k = 0; k < i; k++) TRY(apart(op, &m[i].out, "another product", &m[k].out));
    }
    if ((x.first | norm.first | normed.first) % 16) return RF_OK;
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
    TRY(rf_device_get_info(rf_queue_device(queue), &info));
    if (!plan_pairs(&p, &info, &plan)) return RF_OK;
    *done = true;
    return launch_pairs(queue, &p, &plan);
}

/* For few rows, or where they are asked for. */
static rf_status few_rows(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    if (is_quantized(a->weight_type) && (a->path != RF_MATMUL_MATVEC || a->x_q8)) {
        RF_PARAMS(struct rf_device_info, info);
        TRY(rf_device_get_info(rf_queue_device(queue), &info));
        struct dots_plan plan;
        struct pairs pairs = pairs_of(m);
        if (a->m == 1 && plan_pairs(&pairs, &info, &plan)) return launch_pairs(queue, &pairs, &plan);
        if (plan_dots(a, &info, a->m, &plan)) return dots(queue, m, &info);
        if (a->path == RF_MATMUL_DOTS || a->x_q8)
            return rf_fail(RF_E_UNSUPPORTED,
                           "matmul: %llu columns of x in 8 bits do not fit into a block's shared memory of %d bytes",
                           (unsigned long long)a->k, info.max_shared_bytes_per_block);
    }
    for (uint64_t first = 0; first < a->m; first += matvec_rows(a->weight_type)) TRY(matvec(queue, m, first));
    return RF_OK;
}

/* Many rows on the vector units; a block computes 64 by 64 outputs. */
static rf_status tiled(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    const uint64_t side = 64;
    char name[64];
    snprintf(name, sizeof name, "matmul_%s_%s", type_suffix(a->weight_type), type_suffix(a->type));
    struct rf_arg args[] = {m->out.arg,
                            m->weights.arg,
                            m->x.arg,
                            m->bias.arg,
                            m->residual.arg,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)a->n),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)m->x_stride),
                            rf_arg_i64((int64_t)m->out_stride)};
    if (a->m > MOST_Y * side || a->n > MOST_X * side)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: more than %llu rows", (unsigned long long)(MOST_Y * side));
    uint32_t grid[2] = {blocks_for(a->n, side, MOST_X), blocks_for(a->m, side, MOST_Y)};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}

/* ---- matmul on the matrix units: operands to 16 bits, the product, and its parts joined ---- */

#define MATRIX_THREADS 256
#define MATRIX_ROWS 128 /* of a tile; as in kernels/matmul_tile.h, like what follows */
#define MATRIX_NARROW 128
#define MATRIX_WIDE 256
#define MATRIX_LINE_BYTES 128 /* of a row of a stage, where stages come with the launch */
#define MATRIX_STAGES 4       /* at most */
#define MATRIX_BLOCKS ((uint64_t)1 << 28)
#define MATRIX_DEPTH 64
#define MATRIX_ENOUGH 96          /* wide tiles that keep a large GPU busy */
#define MATRIX_FILL 128           /* narrow tiles that do; with fewer, k is split */
#define MATRIX_PARTS 8            /* of k, at most, */
#define MATRIX_PART_LEAST 512     /* of at least so much of it */
#define MATRIX_DECODED (64 << 20) /* bytes of weights decoded at once, at most (but for one tile's) */
#define MATRIX_ALIGN 256

/* Sizes of one product, or of the part of it that takes `columns` of the outputs. By shape alone: sums depend on it.
 */
struct matrix_split {
    bool wide;
    uint64_t parts, depth;
};
static struct matrix_split split_of(const struct rf_matmul_args *a, uint64_t columns) {
    struct matrix_split split = {a->path == RF_MATMUL_WIDE, 1, 0};
    uint64_t down = a->m / MATRIX_ROWS + (a->m % MATRIX_ROWS != 0);
    uint64_t across = columns / MATRIX_WIDE + (columns % MATRIX_WIDE != 0);
    bool enough = down >= MATRIX_ENOUGH || across >= MATRIX_ENOUGH || down * across >= MATRIX_ENOUGH;
    if (enough && columns > MATRIX_NARROW) split.wide = true;
    if (!split.wide) {
        uint64_t tiles = down * (columns / MATRIX_NARROW + (columns % MATRIX_NARROW != 0));
        split.parts = RF_MIN(MATRIX_FILL / RF_MAX(tiles, 1), RF_MIN(a->k / MATRIX_PART_LEAST, MATRIX_PARTS));
        split.parts = RF_MAX(split.parts, 1);
    }
    uint64_t each = a->k / split.parts + (a->k % split.parts != 0);
    split.depth = RF_MAX((each + MATRIX_DEPTH - 1) / MATRIX_DEPTH, 1) * MATRIX_DEPTH;
    split.parts = RF_MAX(a->k / split.depth + (a->k % split.depth != 0), 1);
    return split;
}

/* Where things lie in the workspace. */
struct matrix_plan {
    uint64_t columns; /* whose weights are decoded at once; all, where none need be */
    uint64_t x, weights, partial, bytes;
};
static bool plan_overflows(uint64_t count, uint64_t each, uint64_t *at, struct matrix_plan *plan) {
    uint64_t bytes;
    *at = plan->bytes;
    return rf_mul_overflows(count, each, &bytes) || rf_round_up_overflows(bytes, MATRIX_ALIGN, &bytes) ||
           rf_add_overflows(plan->bytes, bytes, &plan->bytes);
}
static rf_status plan_matrix(const struct rf_matmul_args *a, struct matrix_plan *plan) {
    *plan = (struct matrix_plan){.columns = a->n};
    if (is_quantized(a->weight_type) && a->k) {
        uint64_t columns = MATRIX_DECODED / 2 / a->k / MATRIX_WIDE * MATRIX_WIDE;
        plan->columns = RF_MIN(a->n, RF_MAX(columns, MATRIX_WIDE));
    }
    uint64_t x = 0, weights = 0, partial = 0, rest = plan->columns ? a->n % plan->columns : 0;
    bool overflows = (a->type == RF_F32 && rf_mul_overflows(a->m, a->k, &x)) ||
                     (is_quantized(a->weight_type) && rf_mul_overflows(plan->columns, a->k, &weights));
    for (int i = 0; i < 2 && !overflows; i++) { /* the rest may be split where the others are not */
        uint64_t columns = i ? rest : plan->columns, parts = split_of(a, columns).parts, sums;
        overflows = rf_mul_overflows(a->m, columns, &sums) || rf_mul_overflows(sums, parts, &sums);
        if (!overflows && parts > 1) partial = RF_MAX(partial, sums);
    }
    if (overflows || plan_overflows(x, 2, &plan->x, plan) || plan_overflows(weights, 2, &plan->weights, plan) ||
        plan_overflows(partial, sizeof(float), &plan->partial, plan))
        return rf_fail(RF_E_INVALID, "matmul: the workspace of %llu x %llu x %llu overflows",
                       (unsigned long long)a->m, (unsigned long long)a->n, (unsigned long long)a->k);
    return RF_OK;
}

/* Whether the matrix units' kernels take types and sizes; a device without them has none. */
static bool matrix_suits(const struct rf_matmul_args *a) {
    bool types = a->weight_type != RF_F32 && (a->type == RF_F32 || a->type == a->weight_type);
    return types && !a->gate.buffer && !a->x_q8 && a->k % 8 == 0 && a->k <= INT32_MAX;
}
static bool matrix_takes(const struct matmul *m) {
    return matrix_suits(m->args) && m->x_stride % 8 == 0 && m->weights.first % 16 == 0 && m->x.first % 16 == 0;
}

rf_status rf_gpu_matmul_workspace(const struct rf_matmul_args *a, uint64_t *bytes) {
    struct matrix_plan plan;
    TRY(check_matmul_types(a));
    bool wanted = on_units(a->path) || (a->path == RF_MATMUL_AUTO && a->m > RF_MATVEC_ROWS);
    *bytes = 0;
    if (!wanted || !matrix_suits(a) || !a->m || !a->n) return RF_OK;
    TRY(plan_matrix(a, &plan));
    *bytes = plan.bytes;
    return RF_OK;
}

/* The workspace, checked; part of it as an argument. */
struct matrix {
    const struct matmul *m;
    struct matrix_plan plan;
    struct span workspace;
    enum rf_dtype unit; /* F16 or BF16: what weights and activations are rounded to */
};
static struct rf_arg in_workspace(const struct matrix *x, uint64_t at) {
    return later(x->workspace, at);
}

/* A kernel's stages of shared memory, where they come with the launch. */
static rf_status find_matrix_kernel(struct rf_queue *queue, const struct matrix *x, bool wide,
                                    struct rf_launch *params, uint32_t *stages) {
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    snprintf(name, sizeof name, "matmul_%s_%s_%s", wide ? "wide" : "tile", type_suffix(x->unit),
             type_suffix(x->m->args->type));
    TRY(rf_kernel_find(rf_queue_device(queue), name, &params->kernel));
    TRY(rf_device_get_info(rf_queue_device(queue), &info));
    *stages = 2;
    if (info.vendor != RF_VENDOR_NVIDIA) return RF_OK;
    uint32_t stage = (MATRIX_ROWS + (wide ? MATRIX_WIDE : MATRIX_NARROW)) * MATRIX_LINE_BYTES;
    *stages = RF_MIN((uint32_t)RF_MAX(info.max_shared_bytes_per_block, 0) / stage, MATRIX_STAGES);
    if (*stages < 2) return RF_E_NOT_FOUND;
    params->shared_bytes = *stages * stage;
    return RF_OK;
}

/* Outputs from column `first` on, `columns` of them, by weights of 16 bits. */
static rf_status matrix_columns(struct rf_queue *queue, const struct matrix *x, uint64_t first, uint64_t columns) {
    const struct matmul *m = x->m;
    const struct rf_matmul_args *a = m->args;
    struct matrix_split split = split_of(a, columns);
    uint64_t width = split.wide ? MATRIX_WIDE : MATRIX_NARROW, element = rf_dtype_bytes(a->type);
    bool decoded = is_quantized(a->weight_type), rounded = a->type == RF_F32;
    RF_PARAMS(struct rf_launch, params);
    uint32_t stages;
    TRY(find_matrix_kernel(queue, x, split.wide, &params, &stages));
    if (decoded) {
        uint64_t row_bytes = a->k / rf_dtype_block(a->weight_type) * rf_dtype_block_bytes(a->weight_type);
        struct rf_dequantize_args decode = {
            .from = a->weight_type,
            .type = x->unit,
            .count = columns * a->k,
            .out = {a->workspace.buffer, a->workspace.offset_bytes + x->plan.weights, 0},
            .in = {a->weights.buffer, a->weights.offset_bytes + first * row_bytes, 0}};
        TRY(rf_gpu_dequantize(queue, &decode));
    }
    struct rf_arg out = later(m->out, first * element), bias = later(m->bias, first * sizeof(float)),
                  residual = later(m->residual, first * element), none = rf_arg_buffer(NULL);
    struct rf_arg args[] = {out,
                            decoded ? in_workspace(x, x->plan.weights) : later(m->weights, first * a->k * 2),
                            rounded ? in_workspace(x, x->plan.x) : m->x.arg,
                            bias,
                            residual,
                            split.parts > 1 ? in_workspace(x, x->plan.partial) : none,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)columns),
                            rf_arg_i64((int64_t)a->k),
                            rf_arg_i64((int64_t)(rounded ? a->k : m->x_stride)),
                            rf_arg_i64((int64_t)m->out_stride),
                            rf_arg_i64((int64_t)split.depth),
                            rf_arg_u32(stages)};
    params.grid[0] = blocks_for(columns, width, MOST_X);
    params.grid[1] = blocks_for(a->m, MATRIX_ROWS, MOST_Y);
    params.grid[2] = (uint32_t)split.parts;
    params.block[0] = MATRIX_THREADS;
    params.args = args;
    params.arg_count = RF_COUNT(args);
    TRY(rf_queue_launch(queue, &params));
    if (split.parts == 1) return RF_OK;
    struct rf_arg join[] = {out,
                            in_workspace(x, x->plan.partial),
                            bias,
                            residual,
                            rf_arg_i64((int64_t)a->m),
                            rf_arg_i64((int64_t)columns),
                            rf_arg_i64((int64_t)m->out_stride),
                            rf_arg_u32((uint32_t)split.parts)};
    char name[64];
    snprintf(name, sizeof name, "matmul_join_%s", type_suffix(a->type));
    uint32_t grid[2] = {blocks_for(columns, MATRIX_THREADS, ROUND_X), blocks_for(a->m, 1, MOST_Y)};
    return launch(queue, name, grid, MATRIX_THREADS, join, RF_COUNT(join));
}

/* RF_E_NOT_FOUND, before anything is launched, where the device has no matrix units. */
static rf_status by_matrix(struct rf_queue *queue, const struct matmul *m) {
    const struct rf_matmul_args *a = m->args;
    struct matrix x = {.m = m, .unit = a->weight_type == RF_BF16 ? RF_BF16 : RF_F16};
    RF_PARAMS(struct rf_launch, params);
    uint32_t stages;
    TRY(find_matrix_kernel(queue, &x, true, &params, &stages));
    if (a->m > MOST_Y * (uint64_t)MATRIX_ROWS || a->n / MATRIX_NARROW >= MATRIX_BLOCKS ||
        (a->m / MATRIX_ROWS + 1) * (a->n / MATRIX_NARROW + 1) > MATRIX_BLOCKS)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: %llu x %llu outputs are more than the matrix units' grid has",
                       (unsigned long long)a->m, (unsigned long long)a->n);
    TRY(plan_matrix(a, &x.plan));
    TRY(take("matmul", "workspace", &a->workspace, x.plan.bytes, MATRIX_ALIGN, &x.workspace));
    const struct {
        const char *name;
        const struct span *span;
    } others[] = {
        {"out", &m->out}, {"x", &m->x}, {"weights", &m->weights}, {"bias", &m->bias}, {"residual", &m->residual}};
    for (size_t i = 0; i < RF_COUNT(others); i++)
        if (overlap(&x.workspace, others[i].span))
            return rf_fail(RF_E_INVALID, "matmul: the workspace overlaps %s", others[i].name);
    if (a->type == RF_F32 && a->k) {
        char name[64];
        snprintf(name, sizeof name, "matmul_round_%s", type_suffix(x.unit));
        struct rf_arg args[] = {in_workspace(&x, x.plan.x), m->x.arg, rf_arg_i64((int64_t)a->m),
                                rf_arg_i64((int64_t)a->k), rf_arg_i64((int64_t)m->x_stride)};
        uint32_t grid[2] = {blocks_for(a->k / 8, 256, ROUND_X), blocks_for(a->m, 1, MOST_Y)};
        TRY(launch(queue, name, grid, 256, args, RF_COUNT(args)));
    }
    for (uint64_t first = 0; first < a->n; first += x.plan.columns)
        TRY(matrix_columns(queue, &x, first, RF_MIN(a->n - first, x.plan.columns)));
    return RF_OK;
}

rf_status rf_gpu_matmul(struct rf_queue *queue, const struct rf_matmul_args *args) {
    struct matmul m;
    TRY(need_device("matmul", queue));
    TRY(check_matmul_types(args));
    TRY(check_matmul(args, &m));
    if (!args->m || !args->n) return RF_OK;
    bool few = args->m <= RF_MATVEC_ROWS || args->gate.buffer || args->x_q8, matrix = matrix_takes(&m);
    if (on_units(args->path) && !matrix)
        return rf_fail(RF_E_UNSUPPORTED, "matmul: these types, sizes or alignments do not suit the matrix units");
    if (args->path == RF_MATMUL_TILED) return tiled(queue, &m);
    if (on_units(args->path)) {
        rf_status status = by_matrix(queue, &m);
        if (status != RF_E_NOT_FOUND) return status;
        return rf_fail(RF_E_UNSUPPORTED, "matmul: this device has no kernels for matrix units");
    }
    if (args->path == RF_MATMUL_AUTO && !few) {
        rf_status status = matrix ? by_matrix(queue, &m) : RF_E_NOT_FOUND;
        return status == RF_E_NOT_FOUND ? tiled(queue, &m) : status;
    }
    return few_rows(queue, &m);
}

/* ---- embedding, dequantize, quantize ---- */

rf_status rf_gpu_embedding(struct rf_queue *queue, const struct rf_embedding_args *a) {
    const char *op = "embedding";
    TRY(need_device(op, queue));
    if (!is_weight(a->table_type))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a table of %s", op, type_name(a->table_type));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: output of %s", op, type_name(a->type));
    if (a->columns % rf_dtype_block(a->table_type))
        return rf_fail(RF_E_INVALID, "%s: %llu columns are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->columns, rf_dtype_block(a->table_type), type_name(a->table_type));
    if (a->out.stride || a->table.stride || a->indices.stride)
        return rf_fail(RF_E_UNSUPPORTED, "%s: strides; rows are dense", op);
    bool quantized = is_quantized(a->table_type);
    uint64_t table_bytes, out_bytes, index_bytes;
    struct span out, table, indices;
    if (rows_bytes_overflow(a->table_type, a->table_rows, a->columns, a->columns, &table_bytes) ||
        rows_bytes_overflow(a->type, a->count, a->columns, a->columns, &out_bytes) ||
        rf_mul_overflows(a->count, sizeof(int32_t), &index_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->count,
                       (unsigned long long)a->columns);
    TRY(take(op, "table", &a->table, table_bytes, quantized ? 16 : rf_dtype_bytes(a->table_type), &table));
    TRY(take(op, "indices", &a->indices, index_bytes, sizeof(int32_t), &indices));
    TRY(take(op, "out", &a->out, out_bytes, quantized ? 16 : rf_dtype_bytes(a->type), &out));
    TRY(apart(op, &out, "table", &table));
    TRY(apart(op, &out, "indices", &indices));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "embedding_%s_%s", type_suffix(a->table_type), type_suffix(a->type));
    struct rf_arg args[] = {out.arg,
                            table.arg,
                            indices.arg,
                            rf_arg_i64((int64_t)a->count),
                            rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)a->table_rows)};
    uint64_t units = a->columns / (a->type == RF_F32 ? 8 : unit_elements(a->table_type));
    uint32_t threads = units <= 64 ? 64 : units <= 128 ? 128 : 256;
    uint32_t grid[2] = {blocks_for(units, threads, ROUND_X), blocks_for(a->count, 1, MOST_Y)};
    return launch(queue, name, grid, threads, args, RF_COUNT(args));
}

rf_status rf_gpu_dequantize(struct rf_queue *queue, const struct rf_dequantize_args *a) {
    const char *op = "dequantize";
    TRY(need_device(op, queue));
    if (!is_quantized(a->from)) return rf_fail(RF_E_UNSUPPORTED, "%s: from %s", op, type_name(a->from));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: to %s", op, type_name(a->type));
    if (a->count % rf_dtype_block(a->from))
        return rf_fail(RF_E_INVALID, "%s: %llu elements are no multiple of %zu, the block of %s", op,
                       (unsigned long long)a->count, rf_dtype_block(a->from), type_name(a->from));
    uint64_t in_bytes, out_bytes;
    struct span out, in;
    if (rows_bytes_overflow(a->from, 1, a->count, 0, &in_bytes) ||
        rows_bytes_overflow(a->type, 1, a->count, 0, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu elements overflow", op, (unsigned long long)a->count);
    TRY(take(op, "in", &a->in, in_bytes, 16, &in));
    TRY(take(op, "out", &a->out, out_bytes, 16, &out));
    TRY(apart(op, &out, "in", &in));
    if (!a->count) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "dequantize_%s_%s", type_suffix(a->from), type_suffix(a->type));
    struct rf_arg args[] = {out.arg, in.arg, rf_arg_i64((int64_t)a->count)};
    uint32_t grid[2] = {blocks_for(a->count / (a->type == RF_F32 ? 8 : unit_elements(a->from)), 256, ROUND_X), 1};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}

rf_status rf_gpu_quantize_q8(struct rf_queue *queue, const struct rf_quantize_q8_args *a) {
    const char *op = "quantize_q8";
    uint64_t stride = a->x.stride ? a->x.stride : a->columns, x_bytes, out_bytes;
    struct span out, x;
    TRY(need_device(op, queue));
    if (!is_float(a->type)) return rf_fail(RF_E_UNSUPPORTED, "%s: activations of %s", op, type_name(a->type));
    if (a->columns % Q8_BLOCK || stride % Q8_BLOCK || stride < a->columns)
        return rf_fail(RF_E_INVALID,
                       "%s: columns %llu and stride %llu must be multiples of %d, the stride no smaller", op,
                       (unsigned long long)a->columns, (unsigned long long)stride, Q8_BLOCK);
    if (a->out.stride) return rf_fail(RF_E_UNSUPPORTED, "%s: a stride of the blocks; they are dense", op);
    if (rows_bytes_overflow(a->type, a->rows, a->columns, stride, &x_bytes) ||
        rf_q8_bytes_overflow(a->rows, a->columns, &out_bytes))
        return rf_fail(RF_E_INVALID, "%s: %llu rows of %llu overflow", op, (unsigned long long)a->rows,
                       (unsigned long long)a->columns);
    TRY(take(op, "x", &a->x, x_bytes, 16, &x));
    TRY(take(op, "out", &a->out, out_bytes, 8, &out));
    TRY(apart(op, &out, "x", &x));
    if (!out_bytes) return RF_OK;
    char name[64];
    snprintf(name, sizeof name, "quantize_q8_%s", type_suffix(a->type));
    struct rf_arg args[] = {out.arg, x.arg, rf_arg_i64((int64_t)a->rows), rf_arg_i64((int64_t)a->columns),
                            rf_arg_i64((int64_t)stride)};
    uint32_t grid[2] = {blocks_for(a->columns / (a->type == RF_F32 ? 8 : 16), 256, ROUND_X),
                        blocks_for(a->rows, 1, MOST_Y)};
    return launch(queue, name, grid, 256, args, RF_COUNT(args));
}
