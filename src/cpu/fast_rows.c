/* Elementwise ops and ops on rows, cut for the pool (see fast.h).
 *
 * Each op has a struct of its arguments and a function for a range of rows or elements; the SIMD
 * table does the arithmetic. */
#include "cpu/fast_impl.h"

#include <math.h>

enum { ELEMENTS = 16384 }; /* of a dense array, in one task */

static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}
static const void *at(enum rf_dtype dtype, const void *base, size_t index) {
    return base ? (const char *)base + index * element_bytes(dtype) : NULL;
}
static void *at_out(enum rf_dtype dtype, void *base, size_t index) {
    return (char *)base + index * element_bytes(dtype);
}

/* Types and pointers of every op here: out and the inputs named are needed unless nothing is asked. */
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

struct elementwise {
    const struct rf_simd *simd;
    enum rf_dtype dtype, from;
    void *out;
    const void *a, *b;
    float factor;
};

static void add_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->add[op->dtype](at_out(op->dtype, op->out, begin), at(op->dtype, op->a, begin),
                             at(op->dtype, op->b, begin), end - begin);
}
rf_status rf_cpu_add(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *a, const void *b, size_t count) {
    rf_status status = check(cpu, "add", dtype, count == 0, out, a, b);
    if (status) return status;
    struct elementwise op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = a, .b = b};
    rf_cpu_run(cpu, count, ELEMENTS, add_range, &op);
    return RF_OK;
}

static void scale_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->scale[op->dtype](at_out(op->dtype, op->out, begin), at(op->dtype, op->a, begin), op->factor,
                               end - begin);
}
rf_status rf_cpu_scale(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, float factor,
                       size_t count) {
    rf_status status = check(cpu, "scale", dtype, count == 0, out, in, in);
    if (status) return status;
    struct elementwise op = {.simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .factor = factor};
    rf_cpu_run(cpu, count, ELEMENTS, scale_range, &op);
    return RF_OK;
}

static void cast_range(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct elementwise *op = user;
    op->simd->cast[op->dtype][op->from](at_out(op->dtype, op->out, begin), at(op->from, op->a, begin), end - begin);
}
rf_status rf_cpu_cast(struct rf_cpu *cpu, enum rf_dtype to, void *out, enum rf_dtype from, const void *in,
                      size_t count) {
    rf_status status = check(cpu, "cast", to, count == 0, out, out, out);
    if (!status) status = check(cpu, "cast", from, count == 0, in, in, in);
    if (status) return status;
    struct elementwise op = {.simd = cpu->simd, .dtype = to, .from = from, .out = out, .a = in};
    rf_cpu_run(cpu, count, ELEMENTS, cast_range, &op);
    return RF_OK;
}

/* Ops on rows with strides. */
struct rows {
    const struct rf_simd *simd;
    enum rf_dtype dtype;
    enum rf_activation kind;
    void *out, *sum;
    const void *a, *b, *c;
    size_t out_row, a_row, b_row, c_row, columns;
    const float *weight, *bias;
    float eps;
};

static void multiply_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct rows *op = user;
    for (size_t r = begin; r < end; r++)
        op->simd->multiply[op->dtype](at_out(op->dtype, op->out, r * op->out_row),
                                      at(op->dtype, op->a, r * op->a_row), at(op->dtype, op->b, r * op->b_row),
                                      at(op->dtype, op->c, r * op->c_row), op->columns);
}
rf_status rf_cpu_multiply(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, size_t out_row, const void *a,
                          size_t a_row, const void *b, size_t b_row, const void *c, size_t c_row, size_t rows,
                          size_t columns) {
    rf_status status = check(cpu, "multiply", dtype, rows == 0 || columns == 0, out, a, b);
    if (!status && c) status = check(cpu, "multiply", dtype, false, out, c, c);
    if (status) return status;
    struct rows op = {.simd = cpu->simd,
                      .dtype = dtype,
                      .out = out,
                      .a = a,
                      .b = b,
                      .c = c,
                      .out_row = out_row,
                      .a_row = a_row,
                      .b_row = b_row,
                      .c_row = c_row,
                      .columns = columns};
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), multiply_rows, &op);
    return RF_OK;
}

static void activate_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct rows *op = user;
    for (size_t r = begin; r < end; r++)
        op->simd->activate[op->dtype](op->kind, at_out(op->dtype, op->out, r * op->out_row),
                                      at(op->dtype, op->a, r * op->a_row), at(op->dtype, op->b, r * op->b_row),
                                      op->columns);
}
rf_status rf_cpu_activation_gate(struct rf_cpu *cpu, enum rf_activation kind, enum rf_dtype dtype, void *out,
                                 size_t out_row, const void *gate, size_t gate_row, const void *up, size_t up_row,
                                 size_t rows, size_t columns) {
    rf_status status = check(cpu, "activation_gate", dtype, rows == 0 || columns == 0, out, gate, up ? up : gate);
    if (status) return status;
    if ((unsigned)kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "activation_gate: %d is no activation", (int)kind);
    struct rows op = {.simd = cpu->simd,
                      .dtype = dtype,
                      .kind = kind,
                      .out = out,
                      .a = gate,
                      .b = up,
                      .out_row = out_row,
                      .a_row = gate_row,
                      .b_row = up_row,
                      .columns = columns};
    /* One row (decoding) is cut too. */
    if (rows == 1 && columns > ELEMENTS) {
        size_t parts = columns / ELEMENTS;
        op.out_row = op.a_row = op.b_row = op.columns = ELEMENTS;
        rf_cpu_run(cpu, parts, 1, activate_rows, &op);
        size_t done = parts * ELEMENTS;
        op.columns = columns - done;
        op.out = at_out(dtype, out, done);
        op.a = at(dtype, gate, done);
        op.b = at(dtype, up, done);
    }
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), activate_rows, &op);
    return RF_OK;
}

static void rms_norm_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct rows *op = user;
    for (size_t r = begin; r < end; r++) {
        size_t first = r * op->columns;
        const void *in = at(op->dtype, op->a, first);
        if (op->sum) {
            void *sum = at_out(op->dtype, op->sum, first);
            op->simd->add[op->dtype](sum, in, at(op->dtype, op->b, first), op->columns);
            in = sum;
        }
        op->simd->rms_norm[op->dtype](at_out(op->dtype, op->out, first), in, op->weight, op->columns, op->eps);
    }
}
rf_status rf_cpu_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                          size_t rows, size_t columns, float eps) {
    rf_status status = check(cpu, "rms_norm", dtype, rows == 0 || columns == 0, out, in, in);
    if (status) return status;
    struct rows op = {
        .simd = cpu->simd, .dtype = dtype, .out = out, .a = in, .columns = columns, .weight = weight, .eps = eps};
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), rms_norm_rows, &op);
    return RF_OK;
}
rf_status rf_cpu_add_rms_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *sum, void *out, const void *a,
                              const void *b, const float *weight, size_t rows, size_t columns, float eps) {
    bool empty = rows == 0 || columns == 0;
    rf_status status = check(cpu, "add_rms_norm", dtype, empty, out, a, b);
    if (!status) status = check(cpu, "add_rms_norm", dtype, empty, sum, sum, sum);
    if (status) return status;
    struct rows op = {.simd = cpu->simd,
                      .dtype = dtype,
                      .out = out,
                      .sum = sum,
                      .a = a,
                      .b = b,
                      .columns = columns,
                      .weight = weight,
                      .eps = eps};
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), rms_norm_rows, &op);
    return RF_OK;
}

static void layer_norm_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct rows *op = user;
    for (size_t r = begin; r < end; r++)
        op->simd->layer_norm[op->dtype](at_out(op->dtype, op->out, r * op->columns),
                                        at(op->dtype, op->a, r * op->columns), op->weight, op->bias, op->columns,
                                        op->eps);
}
rf_status rf_cpu_layer_norm(struct rf_cpu *cpu, enum rf_dtype dtype, void *out, const void *in, const float *weight,
                            const float *bias, size_t rows, size_t columns, float eps) {
    rf_status status = check(cpu, "layer_norm", dtype, rows == 0 || columns == 0, out, in, in);
    if (status) return status;
    struct rows op = {.simd = cpu->simd,
                      .dtype = dtype,
                      .out = out,
                      .a = in,
                      .columns = columns,
                      .weight = weight,
                      .bias = bias,
                      .eps = eps};
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), layer_norm_rows, &op);
    return RF_OK;
}

struct softmax {
    const struct rf_simd *simd;
    float *out;
    const float *in;
    enum rf_dtype mask_dtype;
    const void *mask;
    size_t columns, rows_each, heads;
    float scale;
};
static void softmax_rows(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct softmax *op = user;
    for (size_t r = begin; r < end; r++) {
        size_t mask_row = op->mask ? r / (op->rows_each * op->heads) * op->rows_each + r % op->rows_each : 0;
        op->simd->softmax(op->out + r * op->columns, op->in + r * op->columns, op->mask_dtype,
                          at(op->mask_dtype, op->mask, mask_row * op->columns), op->columns, op->scale);
    }
}
rf_status rf_cpu_softmax_mask(struct rf_cpu *cpu, float *out, const float *in, enum rf_dtype mask_dtype,
                              const void *mask, size_t rows, size_t columns, size_t rows_each, size_t heads,
                              float scale) {
    rf_status status = check(cpu, "softmax", RF_F32, rows == 0 || columns == 0, out, in, in);
    if (status) return status;
    if (mask && mask_dtype != RF_F32 && mask_dtype != RF_F16)
        return rf_fail(RF_E_INVALID, "softmax: a mask of type %s is not f32 or f16", rf_dtype_name(mask_dtype));
    if (mask && rows && (rows_each == 0 || heads == 0))
        return rf_fail(RF_E_INVALID, "softmax: a mask needs rows_each and heads above 0");
    struct softmax op = {cpu->simd, out, in, mask_dtype, mask, columns, rows_each, heads, scale};
    rf_cpu_run(cpu, columns ? rows : 0, rf_cpu_grain(columns), softmax_rows, &op);
    return RF_OK;
}
