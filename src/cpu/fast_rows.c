/* Elementwise ops and ops on rows, cut into tasks for the thread pool (see fast.h).
 *
 * Each op has a struct with what its tasks need and a function for a range of rows or elements; the SIMD table does
 * the arithmetic. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { ELEMENTS = 16384 }; /* elements of a dense array in one task */

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
    op->simd->cast[op->dtype][op->from](rf_cpu_at_out(op->dtype, op->out, begin), rf_cpu_at(op->from, op->a, begin),
                                        end - begin);
}
rf_status rf_cpu_copy(struct rf_cpu *cpu, enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                      const struct rf_elementwise_args *args) {
    RF_TRY(rf_cpu_check(cpu, "copy", to, args->count == 0, out, out, out));
    RF_TRY(rf_cpu_check(cpu, "copy", from, args->count == 0, in, in, in));
    struct elementwise op = {.simd = cpu->simd, .dtype = to, .from = from, .out = out, .a = in};
    rf_cpu_run(cpu, args->count, ELEMENTS, copy_range, &op);
    return RF_OK;
}

static void add_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->add[op->dtype](rf_cpu_at_out(op->dtype, op->out, begin), rf_cpu_at(op->dtype, op->a, begin),
                             rf_cpu_at(op->dtype, op->b, begin), end - begin);
}
rf_status rf_cpu_add(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                     const struct rf_elementwise_args *args) {
    RF_TRY(rf_cpu_check(cpu, "add", dtype, args->count == 0, out, a, b));
    struct elementwise op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = a, .b = b};
    rf_cpu_run(cpu, args->count, ELEMENTS, add_range, &op);
    return RF_OK;
}

static void scale_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->scale[op->dtype](rf_cpu_at_out(op->dtype, op->out, begin), rf_cpu_at(op->dtype, op->a, begin),
                               op->factor, end - begin);
}
rf_status rf_cpu_scale(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in,
                       const struct rf_elementwise_args *args) {
    RF_TRY(rf_cpu_check(cpu, "scale", dtype, args->count == 0, out, in, in));
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
        op->simd->multiply[op->dtype](rf_cpu_at_out(op->dtype, op->out, r * args->out_row),
                                      rf_cpu_at(op->dtype, op->a, r * args->a_row),
                                      rf_cpu_at(op->dtype, op->b, r * args->b_row),
                                      rf_cpu_at(op->dtype, op->c, r * args->c_row), args->columns);
}
rf_status rf_cpu_multiply(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b,
                          const void *c, const struct rf_multiply_args *args) {
    RF_TRY(rf_cpu_check(cpu, "multiply", dtype, args->rows == 0 || args->columns == 0, out, a, b));
    if (c) RF_TRY(rf_cpu_check(cpu, "multiply", dtype, false, out, c, c));
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
        op->simd->activate[op->dtype]((enum rf_activation)args->kind,
                                      rf_cpu_at_out(op->dtype, op->out, r * args->out_row),
                                      rf_cpu_at(op->dtype, op->gate, r * args->gate_row),
                                      rf_cpu_at(op->dtype, op->up, r * args->up_row), args->columns);
}
rf_status rf_cpu_activation(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *gate, const void *up,
                            const struct rf_activation_args *args) {
    RF_TRY(rf_cpu_check(cpu, "activation", dtype, args->rows == 0 || args->columns == 0, out, gate, up ? up : gate));
    if (args->kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "activation: %u is no activation", args->kind);
    struct activation op = {cpu->simd, dtype, out, gate, up, *args};
    /* A single row (generation of one token) is divided too. */
    if (args->rows == 1 && args->columns > ELEMENTS) {
        size_t parts = args->columns / ELEMENTS, done = parts * ELEMENTS;
        op.args.out_row = op.args.gate_row = op.args.up_row = op.args.columns = ELEMENTS;
        rf_cpu_run(cpu, parts, 1, activate_rows, &op);
        op.args.columns = args->columns - done;
        op.out = rf_cpu_at_out(dtype, out, done);
        op.gate = rf_cpu_at(dtype, gate, done);
        op.up = rf_cpu_at(dtype, up, done);
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
        const void *in = rf_cpu_at(op->dtype, op->a, first);
        if (op->sum) {
            void *sum = rf_cpu_at_out(op->dtype, op->sum, first);
            op->simd->add[op->dtype](sum, in, rf_cpu_at(op->dtype, op->b, first), columns);
            in = sum;
        }
        op->simd->rms_norm[op->dtype](rf_cpu_at_out(op->dtype, op->out, first), in, op->weight, columns,
                                      op->args->eps);
    }
}
static void layer_norm_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct norm *op = user;
    size_t columns = op->args->columns;
    for (size_t r = begin; r < end; r++)
        op->simd->layer_norm[op->dtype](rf_cpu_at_out(op->dtype, op->out, r * columns),
                                        rf_cpu_at(op->dtype, op->a, r * columns), op->weight, op->bias, columns,
                                        op->args->eps);
}
static rf_status run_norm(struct rf_cpu *cpu, rf_thread_pool_fn rows, struct norm *op) {
    rf_cpu_run(cpu, op->args->columns ? op->args->rows : 0, rf_cpu_grain(op->args->columns), rows, op);
    return RF_OK;
}

rf_status rf_cpu_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                          const struct rf_norm_args *args) {
    RF_TRY(rf_cpu_check(cpu, "rms_norm", dtype, args->rows == 0 || args->columns == 0, out, in, in));
    struct norm op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .weight = weight, .args = args};
    return run_norm(cpu, rms_norm_rows, &op);
}
rf_status rf_cpu_layer_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                            const float *bias, const struct rf_norm_args *args) {
    RF_TRY(rf_cpu_check(cpu, "layer_norm", dtype, args->rows == 0 || args->columns == 0, out, in, in));
    struct norm op = {
        .simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .weight = weight, .bias = bias, .args = args};
    return run_norm(cpu, layer_norm_rows, &op);
}
rf_status rf_cpu_add_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *sum, void *out, const void *a,
                              const void *b, const float *weight, const struct rf_norm_args *args) {
    bool empty = args->rows == 0 || args->columns == 0;
    RF_TRY(rf_cpu_check(cpu, "add_rms_norm", dtype, empty, out, a, b));
    RF_TRY(rf_cpu_check(cpu, "add_rms_norm", dtype, empty, sum, sum, sum));
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
                          rf_cpu_at(op->mask_dtype, op->mask, mask_row * columns), columns, op->args->scale);
    }
}
rf_status rf_cpu_softmax_mask(struct rf_cpu *cpu, float *out, const float *in, enum rf_dtype mask_dtype,
                              const void *mask, const struct rf_softmax_args *args) {
    RF_TRY(rf_cpu_check(cpu, "softmax", RF_F32, args->rows == 0 || args->columns == 0, out, in, in));
    if (mask && mask_dtype != RF_F32 && mask_dtype != RF_F16)
        return rf_fail(RF_E_INVALID, "softmax: a mask of type %s is not f32 or f16", rf_dtype_name(mask_dtype));
    if (mask && args->rows && (args->rows_each == 0 || args->heads == 0))
        return rf_fail(RF_E_INVALID, "softmax: a mask needs rows_each and heads above 0");
    struct softmax op = {cpu->simd, out, in, mask_dtype, mask, args};
    rf_cpu_run(cpu, args->columns ? args->rows : 0, rf_cpu_grain(args->columns), softmax_rows, &op);
    return RF_OK;
}
