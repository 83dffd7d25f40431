/* Elementwise ops and ops on rows, cut into tasks for the thread pool (see fast.h).
 *
 * Each op has a struct of what its tasks need and a function for a range of rows or elements; the SIMD
 * table does the arithmetic. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { ELEMENTS = 16384 }; /* of a dense array in one task */

static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}
static const void *at(enum rf_dtype dtype, const void *base, size_t index) {
    return base ? (const char *)base + index * element_bytes(dtype) : NULL;
}
static void *at_out(enum rf_dtype dtype, void *base, size_t index) {
    return (char *)base + index * element_bytes(dtype);
}

/* Checks types and pointers of every op here: out, a and b must be there unless the op is empty. */
static rf_status check(const struct rf_cpu *cpu, const char *op, enum rf_dtype dtype, bool empty, const void *out,
                       const void *a, const void *b) {
    if (!cpu) return rf_fail(RF_E_INVALID, "%s: cpu is NULL", op);
    if (!rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "%s: type %s is not f32, f16 or bf16", op, rf_dtype_name(dtype));
    if (!empty && (!out || !a || !b)) return rf_fail(RF_E_INVALID, "%s: a tensor is NULL", op);
    uintptr_t together = (uintptr_t)out | (uintptr_t)a | (uintptr_t)b;
    if (together % element_bytes(dtype))
        return rf_fail(RF_E_INVALID, "%s: a tensor is not aligned to its elements", op);
    return RF_OK;
}

/* ---- dense arrays ---- */

struct elementwise {
    const struct rf_simd *simd;
    enum rf_dtype dtype, from;
    void *out;
    const void *a, *b;
    float factor;
};

static void copy_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->cast[op->dtype][op->from](at_out(op->dtype, op->out, begin), at(op->from, op->a, begin), end - begin);
}
rf_status rf_cpu_copy(struct rf_cpu *cpu, enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                      const struct rf_elementwise_args *args) {
    RF_TRY(check(cpu, "copy", to, args->count == 0, out, out, out));
    RF_TRY(check(cpu, "copy", from, args->count == 0, in, in, in));
    struct elementwise op = {.simd = cpu->simd, .dtype = to, .from = from, .out = out, .a = in};
    rf_cpu_run(cpu, args->count, ELEMENTS, copy_range, &op);
    return RF_OK;
}

static void add_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->add[op->dtype](at_out(op->dtype, op->out, begin), at(op->dtype, op->a, begin),
                             at(op->dtype, op->b, begin), end - begin);
}
rf_status rf_cpu_add(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                     const struct rf_elementwise_args *args) {
    RF_TRY(check(cpu, "add", dtype, args->count == 0, out, a, b));
    struct elementwise op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = a, .b = b};
    rf_cpu_run(cpu, args->count, ELEMENTS, add_range, &op);
    return RF_OK;
}

static void scale_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->scale[op->dtype](at_out(op->dtype, op->out, begin), at(op->dtype, op->a, begin), op->factor,
                               end - begin);
}
rf_status rf_cpu_scale(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in,
                       const struct rf_elementwise_args *args) {
    RF_TRY(check(cpu, "scale", dtype, args->count == 0, out, in, in));
    struct elementwise op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .factor = args->factor};
    rf_cpu_run(cpu, args->count, ELEMENTS, scale_range, &op);
    return RF_OK;
}

/* ---- rows at strides ---- */

struct multiply {
    const struct rf_simd *simd;
    enum rf_dtype dtype;
    void *out;
    const void *a, *b, *c;
    const struct rf_multiply_args *args;
};
static void multiply_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct multiply *op = user;
    const struct rf_multiply_args *args = op->args;
    for (size_t r = begin; r < end; r++)
        op->simd->multiply[op->dtype](at_out(op->dtype, op->out, r * args->out_row),
                                      at(op->dtype, op->a, r * args->a_row), at(op->dtype, op->b, r * args->b_row),
                                      at(op->dtype, op->c, r * args->c_row), args->columns);
}
rf_status rf_cpu_multiply(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                          const void *c, const struct rf_multiply_args *args) {
    RF_TRY(check(cpu, "multiply", dtype, args->rows == 0 || args->columns == 0, out, a, b));
    if (c) RF_TRY(check(cpu, "multiply", dtype, false, out, c, c));
    struct multiply op = {cpu->simd, dtype, out, a, b, c, args};
    rf_cpu_run(cpu, args->columns ? args->rows : 0, rf_cpu_grain(args->columns), multiply_rows, &op);
    return RF_OK;
}

struct activation {
    const struct rf_simd *simd;
    enum rf_dtype dtype;
    void *out;
    const void *gate, *up;
    struct rf_activation_args args;
};
static void activate_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct activation *op = user;
    const struct rf_activation_args *args = &op->args;
    for (size_t r = begin; r < end; r++)
        op->simd->activate[op->dtype]((enum rf_activation)args->kind, at_out(op->dtype, op->out, r * args->out_row),
                                      at(op->dtype, op->gate, r * args->gate_row),
                                      at(op->dtype, op->up, r * args->up_row), args->columns);
}
rf_status rf_cpu_activation(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *gate, const void *up,
                            const struct rf_activation_args *args) {
    RF_TRY(check(cpu, "activation", dtype, args->rows == 0 || args->columns == 0, out, gate, up ? up : gate));
    if (args->kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "activation: %u is no activation", args->kind);
    struct activation op = {cpu->simd, dtype, out, gate, up, *args};
    /* A single row (a token of a generation) is cut too. */
    if (args->rows == 1 && args->columns > ELEMENTS) {
        size_t parts = args->columns / ELEMENTS, done = parts * ELEMENTS;
        op.args.out_row = op.args.gate_row = op.args.up_row = op.args.columns = ELEMENTS;
        rf_cpu_run(cpu, parts, 1, activate_rows, &op);
        op.args.columns = args->columns - done;
        op.out = at_out(dtype, out, done);
        op.gate = at(dtype, gate, done);
        op.up = at(dtype, up, done);
    }
    rf_cpu_run(cpu, args->columns ? args->rows : 0, rf_cpu_grain(args->columns), activate_rows, &op);
    return RF_OK;
}

/* ---- dense rows ---- */

struct norm {
    const struct rf_simd *simd;
    enum rf_dtype dtype;
    void *out, *sum; /* sum: of add_rms_norm; else NULL */
    const void *a, *b;
    const float *weight, *bias;
    const struct rf_norm_args *args;
};

static void rms_norm_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct norm *op = user;
    size_t columns = op->args->columns;
    for (size_t r = begin; r < end; r++) {
        size_t first = r * columns;
        const void *in = at(op->dtype, op->a, first);
        if (op->sum) {
            void *sum = at_out(op->dtype, op->sum, first);
            op->simd->add[op->dtype](sum, in, at(op->dtype, op->b, first), columns);
            in = sum;
        }
        op->simd->rms_norm[op->dtype](at_out(op->dtype, op->out, first), in, op->weight, columns, op->args->eps);
    }
}
static void layer_norm_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct norm *op = user;
    size_t columns = op->args->columns;
    for (size_t r = begin; r < end; r++)
        op->simd->layer_norm[op->dtype](at_out(op->dtype, op->out, r * columns), at(op->dtype, op->a, r * columns),
                                        op->weight, op->bias, columns, op->args->eps);
}
static rf_status run_norm(struct rf_cpu *cpu, rf_thread_pool_fn rows, struct norm *op) {
    rf_cpu_run(cpu, op->args->columns ? op->args->rows : 0, rf_cpu_grain(op->args->columns), rows, op);
    return RF_OK;
}

rf_status rf_cpu_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                          const struct rf_norm_args *args) {
    RF_TRY(check(cpu, "rms_norm", dtype, args->rows == 0 || args->columns == 0, out, in, in));
    struct norm op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .weight = weight, .args = args};
    return run_norm(cpu, rms_norm_rows, &op);
}
rf_status rf_cpu_layer_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                            const float *bias, const struct rf_norm_args *args) {
    RF_TRY(check(cpu, "layer_norm", dtype, args->rows == 0 || args->columns == 0, out, in, in));
    struct norm op = {
        .simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .weight = weight, .bias = bias, .args = args};
    return run_norm(cpu, layer_norm_rows, &op);
}
rf_status rf_cpu_add_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *sum, void *out, const void *a,
                              const void *b, const float *weight, const struct rf_norm_args *args) {
    bool empty = args->rows == 0 || args->columns == 0;
    RF_TRY(check(cpu, "add_rms_norm", dtype, empty, out, a, b));
    RF_TRY(check(cpu, "add_rms_norm", dtype, empty, sum, sum, sum));
    struct norm op = {
        .simd = cpu->simd, .dtype = dtype, .out = out, .sum = sum, .a = a, .b = b, .weight = weight, .args = args};
    return run_norm(cpu, rms_norm_rows, &op);
}

struct softmax {
    const struct rf_simd *simd;
    float *out;
    const float *in;
    enum rf_dtype mask_dtype;
    const void *mask;
    const struct rf_softmax_args *args;
};
static void softmax_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct softmax *op = user;
    size_t columns = op->args->columns, each = op->args->rows_each;
    for (size_t r = begin; r < end; r++) {
        size_t mask_row = op->mask ? r / (each * op->args->heads) * each + r % each : 0;
        op->simd->softmax(op->out + r * columns, op->in + r * columns, op->mask_dtype,
                          at(op->mask_dtype, op->mask, mask_row * columns), columns, op->args->scale);
    }
}
rf_status rf_cpu_softmax_mask(struct rf_cpu *cpu, float *out, const float *in, enum rf_dtype mask_dtype,
                              const void *mask, const struct rf_softmax_args *args) {
    RF_TRY(check(cpu, "softmax", RF_F32, args->rows == 0 || args->columns == 0, out, in, in));
    if (mask && mask_dtype != RF_F32 && mask_dtype != RF_F16)
        return rf_fail(RF_E_INVALID, "softmax: a mask of type %s is not f32 or f16", rf_dtype_name(mask_dtype));
    if (mask && args->rows && (args->rows_each == 0 || args->heads == 0))
        return rf_fail(RF_E_INVALID, "softmax: a mask needs rows_each and heads above 0");
    struct softmax op = {cpu->simd, out, in, mask_dtype, mask, args};
    rf_cpu_run(cpu, args->columns ? args->rows : 0, rf_cpu_grain(args->columns), softmax_rows, &op);
    return RF_OK;
}

struct rope {
    struct rf_cpu *cpu;
    const struct rf_ref_rope *shape;
    void *out;
    const void *in;
    size_t thread_floats;
};
/* Angles are exact fractions of a turn (rf_rope_steps); one token's serve all its heads. */
static void angles(float *cosine, float *sine, const uint64_t *steps, size_t pairs, int32_t position,
                   float magnitude) {
    for (size_t p = 0; p < pairs; p++) {
        int64_t turn = (int64_t)((uint64_t)(int64_t)position * steps[p]);
        double angle = (double)turn * (2 * M_PI * 0x1p-64);
        cosine[p] = (float)(cos(angle) * (double)magnitude);
        sine[p] = (float)(sin(angle) * (double)magnitude);
    }
}
static void rope_tokens(void *user, size_t begin, size_t end, unsigned thread) {
    struct rope *op = user;
    const struct rf_ref_rope *shape = op->shape;
    const struct rf_simd *simd = op->cpu->simd;
    size_t pairs = shape->rotated / 2;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *row = sine + pairs;
    for (size_t t = begin; t < end; t++) {
        angles(cosine, sine, shape->steps, pairs, shape->positions[t], shape->magnitude);
        for (size_t h = 0; h < shape->heads; h++) {
            const void *in = at(shape->dtype, op->in, t * shape->in_token + h * shape->in_head);
            enum rf_dtype to = shape->to_f16 ? RF_F16 : shape->dtype;
            void *out = at_out(to, op->out, t * shape->out_token + h * shape->out_head);
            if (to == RF_F32) {
                simd->rotate(out, in, cosine, sine, pairs, shape->halves);
            } else {
                simd->cast[RF_F32][shape->dtype](row, in, shape->rotated);
                simd->rotate(row, row, cosine, sine, pairs, shape->halves);
                simd->cast[to][RF_F32](out, row, shape->rotated);
            }
            if (out != in)
                simd->cast[to][shape->dtype](at_out(to, out, shape->rotated), at(shape->dtype, in, shape->rotated),
                                             shape->dim - shape->rotated);
        }
    }
}
rf_status rf_cpu_rope(struct rf_cpu *cpu, const struct rf_ref_rope *rope, void *out, const void *in) {
    if (!rope) return rf_fail(RF_E_INVALID, "rope: its arguments are NULL");
    bool empty = rope->tokens == 0 || rope->heads == 0 || rope->dim == 0;
    rf_status status = check(cpu, "rope", rope->dtype, empty, in, in, in);
    if (!status) status = check(cpu, "rope", rope->to_f16 ? RF_F16 : rope->dtype, empty, out, out, out);
    if (status || empty) return status;
    if (rope->rotated % 2 || rope->rotated > rope->dim)
        return rf_fail(RF_E_INVALID,
                       "rope: %zu elements of a head of %zu cannot be rotated: an even number up to that",
                       rope->rotated, rope->dim);
    if (!rope->positions || !rope->steps) return rf_fail(RF_E_INVALID, "rope: positions or steps are NULL");
    if (rope->to_f16 && rope->dtype != RF_F32) return rf_fail(RF_E_INVALID, "rope: to f16 from what is not f32");
    struct rope op = {cpu, rope, out, in, rf_cpu_round_64(2 * rope->rotated * sizeof(float)) / sizeof(float)};
    status = rf_cpu_reserve(cpu, "rope", cpu->threads * op.thread_floats * sizeof(float));
    if (status) return status;
    rf_cpu_run(cpu, rope->tokens, rf_cpu_grain(rope->heads * rope->dim), rope_tokens, &op);
    return RF_OK;
}

struct append {
    struct rf_cpu *cpu;
    const struct rf_ref_kv_append *shape;
    void *k_cache, *v_cache;
    const float *k, *v;
    size_t thread_floats;
};
static void append_row(const struct append *op, void *cache, size_t to, const float *values) {
    const struct rf_ref_kv_append *shape = op->shape;
    if (shape->dtype == RF_Q8_0) {
        for (size_t e = 0; e + 32 <= shape->dim; e += 32)
            rf_ref_quantize_q8_0(values + e, (uint8_t *)cache + (to + e) / 32 * 34);
    } else {
        op->cpu->simd->cast[shape->dtype][RF_F32](at_out(shape->dtype, cache, to), values, shape->dim);
    }
}
/* A thread has heads, not tokens: should two tokens have one place, the later has it in the end. */
static void append_heads(void *user, size_t begin, size_t end, unsigned thread) {
    const struct append *op = user;
    const struct rf_ref_kv_append *shape = op->shape;
    size_t pairs = shape->steps ? shape->rotated / 2 : 0;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *turned = sine + pairs;
    for (size_t t = 0; t < shape->tokens; t++) {
        int32_t position = shape->positions[t];
        uint32_t sequence = shape->sequences ? shape->sequences[t] : 0;
        if (position < 0 || (shape->table && sequence >= shape->sequence_count)) continue;
        size_t turn = (uint32_t)position / shape->page_rows, row = (uint32_t)position % shape->page_rows;
        if (turn >= (shape->table ? shape->table_width : 1)) continue;
        uint32_t page = shape->table ? shape->table[sequence * shape->table_width + turn] : sequence;
        if (page >= shape->page_count) continue;
        angles(cosine, sine, shape->steps, pairs, position, shape->magnitude);
        for (size_t h = begin; h < end; h++) {
            size_t to = page * shape->page + h * shape->head + row * shape->row;
            const float *k = op->k + t * shape->k_token + h * shape->dim;
            if (pairs) {
                op->cpu->simd->rotate(turned, k, cosine, sine, pairs, shape->halves);
                memcpy(turned + shape->rotated, k + shape->rotated, (shape->dim - shape->rotated) * sizeof *k);
            }
            append_row(op, op->k_cache, to, pairs ? turned : k);
            append_row(op, op->v_cache, to, op->v + t * shape->v_token + h * shape->dim);
        }
    }
}
rf_status rf_cpu_kv_append(struct rf_cpu *cpu, const struct rf_ref_kv_append *append, void *k_cache, void *v_cache,
                           const float *k, const float *v) {
    if (!append) return rf_fail(RF_E_INVALID, "kv_append: its arguments are NULL");
    bool empty = append->tokens == 0 || append->heads == 0 || append->dim == 0, packed = append->dtype == RF_Q8_0;
    rf_status status = check(cpu, "kv_append", RF_F32, empty, k, k, v);
    if (!status && !packed) status = check(cpu, "kv_append", append->dtype, empty, k_cache, k_cache, v_cache);
    if (status || empty) return status;
    if (!k_cache || !v_cache || !append->positions || !append->page_rows)
        return rf_fail(RF_E_INVALID, "kv_append: a cache, the positions or the rows of a page are missing");
    if (packed && (append->dim | append->page | append->head | append->row) % 32)
        return rf_fail(RF_E_INVALID, "kv_append: q8_0 comes in blocks of 32, the head size is %zu", append->dim);
    if (append->steps && (append->rotated % 2 || append->rotated > append->dim))
        return rf_fail(RF_E_INVALID,
                       "kv_append: %zu elements of a head of %zu cannot be rotated: an even number up to that",
                       append->rotated, append->dim);
    struct append op = {.cpu = cpu, .shape = append, .k_cache = k_cache, .v_cache = v_cache, .k = k, .v = v};
    op.thread_floats = rf_cpu_round_64(2 * append->dim * sizeof(float)) / sizeof(float);
    status = rf_cpu_reserve(cpu, "kv_append", cpu->threads * op.thread_floats * sizeof(float));
    if (status) return status;
    size_t each = (append->heads + cpu->threads - 1) / cpu->threads;
    rf_cpu_run(cpu, append->heads, RF_MAX(each, rf_cpu_grain(append->tokens * append->dim)), append_heads, &op);
    return RF_OK;
}
