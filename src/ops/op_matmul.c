/* Products with weights: matmul, matmul_gate, matmul_q8.
 *
 * Weights are dense rows [n, k] of any weight type; x is [m, k], out [m, n]; rows of x and out may lie apart. matmul
 * also takes an x of the 16 bits that matrix units round it to, with out in f32, where there are such units. The
 * checks here ask for what the reference needs; the GPU asks for more (alignment, strides) and refuses the rest as
 * unsupported before it launches.
 *
 * Tolerances. Ordinary numbers of a case are in [-4, 4], quantized weights in [-1, 1], so that the root mean square P
 * of a product is 5.4, or 1.4 with quantized weights:
 *   sums in f32      1e-7 * P * (k + 4); less than 1e-4 up to k = 180
 *   matrix units     what is rounded to 16 bits (2^-11, bf16 2^-8) errs like sqrt(k): 4 * step * P * sqrt(k)
 *   8 bits           x is rounded to 8 bits per 32 elements: 0.046 * P * sqrt(k). The CPU does it for Q8_0, Q4_0,
 *                    Q4_K and Q6_K, a GPU with few rows of x for every quantized type. Only where x is a view:
 *                    a dense x is made of numbers that lose nothing by it (fill_exact), and the bound is that of f32
 *   the result       f32 1e-6, else one step of its type, relative
 *   silu(a) * b      both sums' errors times the other's size
 * Extreme and special numbers have a P of their own and a factor of 8, as few of them make up a sum. */
#include "ops/op_weights_impl.h"

#include <math.h>

#include "cpu/fast.h"

enum { X, WEIGHTS, BIAS, RESIDUAL, GATE = 2 }; /* inputs; a gate stands in the place of the bias */

/* ---- matmul, matmul_gate, matmul_q8 ---- */

extern const struct rf_op rf_op_matmul, rf_op_matmul_gate, rf_op_matmul_q8;

static bool is_gate(const struct rf_op_call *call) {
    return call->op == &rf_op_matmul_gate;
}
static bool is_q8(const struct rf_op_call *call) {
    return call->op == &rf_op_matmul_q8;
}

/* Whether x is of the 16 bits that matrix units round it to, while out is f32. */
static bool is_narrow(const struct rf_op_call *call) {
    enum rf_dtype x = rf_op_in(call, X)->desc.dtype, type = rf_op_out(call, 0)->desc.dtype;
    return !is_q8(call) && type == RF_F32 && (x == RF_F16 || x == RF_BF16) &&
           x == rf_gpu_matmul_unit(rf_op_in(call, WEIGHTS)->desc.dtype);
}

static rf_status product_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, X), *weights = rf_op_in(call, WEIGHTS), *out = rf_op_out(call, 0);
    enum rf_dtype type = out->desc.dtype;
    RF_TRY(rf_need_weights(weights, "weights"));
    RF_TRY(rf_need_float(out, "out"));
    RF_TRY(rf_need_matrix(out, "out"));
    uint64_t m = out->desc.shape[0], n = out->desc.shape[1], k = weights->desc.shape[1];
    RF_TRY(rf_need_matrix_of(weights, "weights", n, k));
    if (rf_op_is_quantized(weights->desc.dtype) && type != RF_F32 && !(is_gate(call) && type == RF_F16))
        return rf_fail(RF_E_UNSUPPORTED, "weights of %s give f32, not %s", rf_dtype_name(weights->desc.dtype),
                       rf_dtype_name(type));
    if (is_q8(call)) {
        if (!rf_op_is_quantized(weights->desc.dtype))
            return rf_fail(RF_E_UNSUPPORTED, "weights of %s with 8-bit activations; they must be quantized",
                           rf_dtype_name(weights->desc.dtype));
        RF_TRY(rf_need_blocks(x, "x", m, k));
    } else {
        RF_TRY(rf_need_float(x, "x"));
        RF_TRY(rf_need_matrix_of(x, "x", m, k));
        if (x->desc.dtype != type && !is_narrow(call))
            return rf_fail(RF_E_INVALID, "x is %s and out %s; they must be of one type", rf_dtype_name(x->desc.dtype),
                           rf_dtype_name(type));
    }
    if (is_gate(call)) {
        const struct rf_op_tensor *gate = rf_op_in(call, GATE);
        RF_TRY(rf_need_weights(gate, "gate"));
        RF_TRY(rf_need_matrix_of(gate, "gate", n, k));
        if (gate->desc.dtype != weights->desc.dtype)
            return rf_fail(RF_E_INVALID, "weights are %s and the gate %s; they must be of one type",
                           rf_dtype_name(weights->desc.dtype), rf_dtype_name(gate->desc.dtype));
        return RF_OK;
    }
    if (call->attributes.path < RF_MATMUL_AUTO || call->attributes.path > RF_MATMUL_GROUP)
        return rf_fail(RF_E_INVALID, "there is no path %lld", (long long)call->attributes.path);
    const struct rf_op_tensor *bias = rf_op_in(call, BIAS), *residual = rf_op_in(call, RESIDUAL);
    if (rf_op_given(bias) && (bias->desc.dtype != RF_F32 || bias->desc.rank != 1 || bias->desc.shape[0] != n ||
                              !rf_op_contiguous(&bias->desc)))
        return rf_fail(RF_E_INVALID, "the bias must be f32, dense, one for each of %llu outputs",
                       (unsigned long long)n);
    if (!rf_op_given(residual)) return RF_OK;
    RF_TRY(rf_need_matrix_of(residual, "residual", m, n));
    if (residual->desc.dtype != type)
        return rf_fail(RF_E_INVALID, "out is %s and the residual %s; they must be of one type", rf_dtype_name(type),
                       rf_dtype_name(residual->desc.dtype));
    if (rf_row_stride(&residual->desc) != rf_row_stride(&out->desc))
        return rf_fail(RF_E_UNSUPPORTED, "residual and out have rows %llu and %llu elements apart; they must agree",
                       (unsigned long long)rf_row_stride(&residual->desc),
                       (unsigned long long)rf_row_stride(&out->desc));
    return RF_OK;
}

static struct rf_matmul_args product_args(const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, X), *weights = rf_op_in(call, WEIGHTS), *out = rf_op_out(call, 0);
    uint64_t k = weights->desc.shape[1];
    return (struct rf_matmul_args){.m = out->desc.shape[0],
                                   .n = out->desc.shape[1],
                                   .k = k,
                                   .x_stride = is_q8(call) ? k : rf_row_stride(&x->desc),
                                   .out_stride = rf_row_stride(&out->desc),
                                   .x_q8 = is_q8(call),
                                   .constant =
                                       weights->constant && (!is_gate(call) || rf_op_in(call, GATE)->constant)};
}

struct rf_ref_matmul rf_op_product(const struct rf_op_call *call) {
    const struct rf_op_tensor *weights = rf_op_in(call, WEIGHTS), *out = rf_op_out(call, 0);
    return (struct rf_ref_matmul){.args = product_args(call),
                                  .weight_type = weights->desc.dtype,
                                  .type = out->desc.dtype,
                                  .x_type = is_narrow(call) ? rf_op_in(call, X)->desc.dtype : RF_F32,
                                  .out = rf_op_host(out),
                                  .weights = rf_op_host(weights),
                                  .gate = is_gate(call) ? rf_op_host(rf_op_in(call, GATE)) : NULL,
                                  .x = rf_op_host(rf_op_in(call, X)),
                                  .bias = is_gate(call) ? NULL : rf_op_host(rf_op_in(call, BIAS)),
                                  .residual = is_gate(call) ? NULL : rf_op_host(rf_op_in(call, RESIDUAL))};
}
static void product_reference(const struct rf_op_call *call) {
    struct rf_ref_matmul op = rf_op_product(call);
    rf_ref_matmul(&op);
}
/* Nobody makes an x of 16 bits for the CPU, which has no fast way for it. */
static rf_status product_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_ref_matmul op = rf_op_product(call);
    if (op.x_type || (rf_op_is_quantized(op.weight_type) && op.type != RF_F32)) {
        rf_ref_matmul(&op);
        return RF_OK;
    }
    return rf_cpu_matmul(cpu, &op);
}

/* Converts a call to the launcher's arguments. */
static struct rf_gpu_matmul gpu_product(const struct rf_op_call *call) {
    const struct rf_op_tensor *weights = rf_op_in(call, WEIGHTS), *out = rf_op_out(call, 0);
    struct rf_gpu_matmul product = {.args = product_args(call),
                                    .weight_type = weights->desc.dtype,
                                    .type = out->desc.dtype,
                                    .x_type = is_narrow(call) ? rf_op_in(call, X)->desc.dtype : RF_F32,
                                    .out = rf_op_operand(out),
                                    .weights = rf_op_operand(weights),
                                    .x = rf_op_operand(rf_op_in(call, X)),
                                    .workspace = {call->workspace, call->workspace_offset},
                                    .gated = is_gate(call)};
    if (is_gate(call)) {
        product.gate = rf_op_operand(rf_op_in(call, GATE));
    } else {
        product.bias = rf_op_operand(rf_op_in(call, BIAS));
        product.residual = rf_op_operand(rf_op_in(call, RESIDUAL));
        product.path = (enum rf_matmul_path)call->attributes.path;
    }
    return product;
}
/* Depends on types and sizes alone: the buffers need not exist yet. */
static rf_status matmul_workspace(const struct rf_op_call *call, uint64_t *bytes) {
    struct rf_gpu_matmul product = gpu_product(call);
    return rf_gpu_matmul_workspace(&product, bytes);
}
static rf_status product_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_gpu_matmul product = gpu_product(call);
    if (rf_op_is_quantized(product.weight_type)) {
        RF_TRY(rf_need_gpu_aligned(call, rf_op_in(call, WEIGHTS), "weights", 16));
        if (is_gate(call)) RF_TRY(rf_need_gpu_aligned(call, rf_op_in(call, GATE), "gate", 16));
        RF_TRY(rf_need_gpu_aligned(call, rf_op_in(call, X), "x", is_q8(call) ? 8 : 16));
        if (!is_q8(call)) RF_TRY(rf_need_gpu_stride(call, rf_op_in(call, X), "x", 4));
    }
    return rf_gpu_matmul(queue, &product);
}

/* Counts the weights alone: with few rows of x everything else is small beside them. */
static void product_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    const struct rf_op_tensor *weights = rf_op_in(call, WEIGHTS), *out = rf_op_out(call, 0);
    uint64_t matrices = is_gate(call) ? 2 : 1;
    *bytes = matrices * (weights->bytes - weights->desc.byte_offset);
    *flops = matrices * 2 * rf_op_elements(&out->desc) * weights->desc.shape[1];
}

/* ---- their data ---- */

static double random_unit(uint64_t *state) {
    return (double)(rf_op_random(state) >> 11) * 0x1p-53;
}

/* Whether the CPU rounds activations to 8 bits for these weights. */
static bool rounds_on_cpu(enum rf_dtype weights) {
    return weights == RF_Q8_0 || weights == RF_Q4_0 || weights == RF_Q4_K || weights == RF_Q6_K;
}
static bool exact_x(enum rf_dtype weights, const struct rf_tensor_desc *x) {
    return rf_op_is_quantized(weights) && x->dtype == RF_F32 && !x->byte_offset && rf_op_contiguous(x);
}

/* Writes small integers times a power of two, with a 127 among each 32: 8 bits hold them exactly. */
static void fill_exact(float *x, uint64_t count, uint64_t *state) {
    for (uint64_t at = 0; at < count; at += RF_Q8_BLOCK) {
        uint64_t largest = rf_op_random(state) % RF_Q8_BLOCK;
        float scale = rf_op_random(state) % 2 ? 1.0f / 32 : 1.0f / 64;
        for (uint64_t i = 0; i < RF_Q8_BLOCK && at + i < count; i++)
            x[at + i] = scale * (i == largest ? 127.0f : (float)(rf_op_random(state) % 255) - 127.0f);
    }
}
static bool product_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *x = rf_op_in(call, X);
    if (index != X || !exact_x(rf_op_in(call, WEIGHTS)->desc.dtype, &x->desc)) return false;
    fill_exact(rf_op_host(x), rf_op_elements(&x->desc), state);
    return true;
}
/* Fills x with blocks as quantize_q8 gives them, some of them zeros. */
static bool blocks_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *x = rf_op_in(call, X);
    if (index != X) return false;
    uint64_t count = rf_op_elements(&x->desc) / sizeof(struct rf_q8_block);
    const struct rf_quantize_q8_args block = {.rows = 1, .columns = RF_Q8_BLOCK, .x_stride = RF_Q8_BLOCK};
    for (uint64_t b = 0; b < count; b++) {
        float values[RF_Q8_BLOCK];
        double size = rf_op_random(state) % 8 ? 8 : 0;
        for (int i = 0; i < RF_Q8_BLOCK; i++) values[i] = (float)((random_unit(state) - 0.5) * size);
        rf_ref_quantize_q8((struct rf_q8_block *)rf_op_host(x) + b, RF_F32, values, &block);
    }
    return true;
}

/* ---- their cases ---- */

enum { ALONE, WITH_BIAS, WITH_RESIDUAL, WITH_BOTH };
/* The parameters of a product's case. pad is the number of elements between rows of x; if it is not 0, one element
 * lies between rows of out. x and out also begin that many elements after the start of their memory. */
struct product {
    enum rf_dtype weights, type;
    uint64_t m, n, k;
    uint64_t pad;
    int with;
    enum rf_matmul_path path;
    enum rf_case_data data;
    bool bench;
    bool narrow; /* x was rounded to 16 bits before */
};

static struct rf_tensor_desc matrix(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t pad,
                                    uint64_t skip) {
    struct rf_tensor_desc desc = {.dtype = dtype, .rank = 2, .shape = {rows, columns}};
    if (pad) desc.strides[0] = columns + pad, desc.strides[1] = 1;
    desc.byte_offset = skip * rf_dtype_bytes(dtype);
    return desc;
}

static void tolerate(struct rf_op_case *one, const struct rf_op *op, const struct product *p) {
    bool quant = rf_op_is_quantized(p->weights), many = op == &rf_op_matmul && p->m > RF_MATVEC_ROWS;
    bool matrix_units = p->path == RF_MATMUL_MATRIX || p->path == RF_MATMUL_WIDE || p->path == RF_MATMUL_GROUP ||
                        (p->path == RF_MATMUL_AUTO && many && p->weights != RF_F32);
    bool wild = p->data == RF_DATA_EXTREME || p->data == RF_DATA_SPECIAL;
    double k = (double)p->k, product = quant ? wild ? 7e3 : 1.4 : wild ? 1.4e8 : 5.4, step = 0;
    double sum = 1.5e-7 * product * (k + 4) * (wild ? 8 : 1);
    if (matrix_units && p->type == RF_F32) step = p->weights == RF_BF16 ? 0x1p-8 : 0x1p-11;
    if (op == &rf_op_matmul_gate && quant && (p->narrow || p->type != RF_F32))
        step = 0x1p-11; /* of decoded weights */
    sum += 4 * step * product * sqrt(k);
    bool rounds = rounds_on_cpu(p->weights) || p->path == RF_MATMUL_DOTS || (p->path == RF_MATMUL_AUTO && !many);
    if (op != &rf_op_matmul_q8 && quant && rounds && !p->narrow && p->type == RF_F32 &&
        !exact_x(p->weights, &one->tensors[X]))
        sum += 0.046 * product * sqrt(k);
    one->relative = p->type == RF_F32 ? 1e-6 : rf_op_step(p->type);
    if (op == &rf_op_matmul_gate) {
        sum *= 2 * (4 * product * sqrt(k) + 1);
        one->relative = RF_MAX(one->relative, 1e-5);
    }
    one->absolute = sum;
}

static void add_product(struct rf_case_list *list, const struct rf_op *op, struct product p) {
    static const char *const with[] = {"", " bias", " residual", " bias residual"};
    static const char *const paths[] = {"", " matvec", " tiled", " matrix", " dots", " wide", " group"};
    static const char *const data[] = {"", " masked", " extreme", " special"};
    struct rf_op_case one = {.count = op->inputs + 1, .data = p.data, .bench = p.bench};
    bool quant = rf_op_is_quantized(p.weights), q8 = op == &rf_op_matmul_q8;
    /* The GPU needs quantized weights, and the arrays that go with them, at multiples of 16 bytes. */
    uint64_t skip = quant && !q8 ? (p.pad + 3) / 4 * 4 : p.pad;
    if (q8)
        one.tensors[X] = (struct rf_tensor_desc){
            .dtype = RF_U8, .rank = 2, .shape = {p.m, p.k / RF_Q8_BLOCK * sizeof(struct rf_q8_block)}};
    else
        one.tensors[X] = matrix(p.narrow ? rf_gpu_matmul_unit(p.weights) : p.type, p.m, p.k, p.pad, skip);
    if (q8 && p.pad) one.tensors[X].byte_offset = 8;
    one.tensors[WEIGHTS] = matrix(p.weights, p.n, p.k, 0, 0);
    if (p.pad) one.tensors[WEIGHTS].byte_offset = quant ? 16 : p.pad * rf_dtype_bytes(p.weights);
    if (op == &rf_op_matmul_gate) one.tensors[GATE] = one.tensors[WEIGHTS];
    if (p.with & WITH_BIAS)
        one.tensors[BIAS] =
            (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {p.n}, .byte_offset = p.pad ? 4 : 0};
    if (p.with & WITH_RESIDUAL) one.tensors[RESIDUAL] = matrix(p.type, p.m, p.n, p.pad ? 1 : 0, 0);
    one.tensors[op->inputs] = matrix(p.type, p.m, p.n, p.pad ? 1 : 0, p.pad);
    one.attributes.path = p.path;
    tolerate(&one, op, &p);
    snprintf(one.label, sizeof one.label, "%s %s%s %llux%llux%llu%s%s%s%s", rf_dtype_name(p.weights),
             q8 ? "q8" : rf_dtype_name(p.type), p.narrow ? " narrow" : "", (unsigned long long)p.m,
             (unsigned long long)p.n, (unsigned long long)p.k, with[p.with], p.pad ? " view" : "", paths[p.path],
             data[p.data]);
    rf_case_add(list, &one);
}

/* Shapes as m, n, k; a negative k counts blocks. */
struct shape {
    uint64_t m, n;
    int k;
    uint64_t pad;
};
static uint64_t k_of(enum rf_dtype dtype, int k) {
    return k < 0 ? (uint64_t)-k * rf_dtype_block(dtype) : (uint64_t)k;
}
static void add_shapes(struct rf_case_list *list, const struct rf_op *op, struct product p,
                       const struct shape *shapes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        p.m = shapes[i].m;
        p.n = shapes[i].n;
        p.k = k_of(p.weights, shapes[i].k);
        p.pad = shapes[i].pad;
        p.with = op == &rf_op_matmul_gate ? ALONE : (int)(i + (size_t)p.weights + (size_t)p.type) % 4;
        add_product(list, op, p);
    }
}
#define ADD_SHAPES(list, op, shapes, ...)                                                                            \
    add_shapes((list), (op), (struct product){__VA_ARGS__}, (shapes), RF_COUNT(shapes))

static void matmul_float_cases(struct rf_case_list *list, const struct rf_op *op) {
    static const struct shape few[] = {{1, 1, 1, 0},   {1, 3, 64, 0},  {3, 5, 37, 1},  {4, 2, 517, 0},
                                       {8, 7, 264, 8}, {5, 3, 7, 0},   {0, 5, 8, 0},   {3, 0, 8, 0},
                                       {2, 3, 0, 0},   {7, 2, 131, 3}, {2, 1, 1031, 0}};
    static const struct shape many[] = {{17, 19, 23, 0}, {67, 5, 41, 3}, {10, 70, 72, 8}, {1, 1, 1, 0}, {2, 3, 0, 0}};
    static const struct shape units[] = {{16, 16, 32, 0}, {1, 1, 8, 0}, {67, 33, 72, 8},    {129, 9, 40, 0},
                                         {3, 131, 56, 8}, {2, 3, 0, 0}, {256, 128, 200, 0}, {1030, 130, 24, 0}};
    static const struct shape wide[] = {{5, 259, 72, 8}, {130, 6, 584, 0}, {128, 256, 136, 0}, {2, 3, 0, 0}};
    static const struct shape deep[] = {{3, 5, 1032, 0}, {19, 7, 1664, 8}}; /* k is split */
    static const struct shape group[] = {{1, 1, 8, 0}, {130, 258, 72, 0}, {67, 264, 328, 8}, {5, 3, 520, 8}};
    static const struct shape odd[] = {{1, 5, 33, 0}, {3, 4, 64, 0}, {2, 3, 5, 1}};
    static const struct shape odd_many[] = {{9, 3, 40, 8}, {11, 5, 3, 0}};
    for (size_t w = 0; w < 3; w++)
        for (size_t t = 0; t < 3; t++) {
            enum rf_dtype weights = rf_case_floats[w], type = rf_case_floats[t];
            bool on_units = weights != RF_F32 && (type == RF_F32 || type == weights);
            ADD_SHAPES(list, op, few, .weights = weights, .type = type, .path = RF_MATMUL_AUTO);
            ADD_SHAPES(list, op, many, .weights = weights, .type = type, .path = RF_MATMUL_TILED);
            for (int data = RF_DATA_EXTREME; data <= RF_DATA_SPECIAL; data++) {
                ADD_SHAPES(list, op, odd, .weights = weights, .type = type, .data = (enum rf_case_data)data);
                ADD_SHAPES(list, op, odd_many, .weights = weights, .type = type, .data = (enum rf_case_data)data,
                           .path = RF_MATMUL_TILED);
            }
            if (on_units) {
                ADD_SHAPES(list, op, units, .weights = weights, .type = type, .path = RF_MATMUL_MATRIX);
                ADD_SHAPES(list, op, deep, .weights = weights, .type = type, .path = RF_MATMUL_MATRIX);
                ADD_SHAPES(list, op, wide, .weights = weights, .type = type, .path = RF_MATMUL_WIDE);
                ADD_SHAPES(list, op, group, .weights = weights, .type = type, .path = RF_MATMUL_GROUP);
            }
            /* More rows than a matvec takes at once, with that path and with the chosen one. */
            add_product(list, op, (struct product){weights, type, 11, 3, 40, .path = RF_MATMUL_MATVEC});
            add_product(list, op, (struct product){weights, type, 33, 9, 48, .with = WITH_BOTH});
        }
}
static void matmul_quant_cases(struct rf_case_list *list, const struct rf_op *op) {
    static const struct shape few[] = {{1, 1, -1, 0},  {1, 5, -3, 4}, {2, 3, -1, 8}, {4, 7, -2, 0}, {7, 4, -1, 12},
                                       {8, 2, 512, 0}, {0, 3, -1, 0}, {2, 0, -1, 0}, {2, 3, 0, 0},  {1, 13, -5, 0}};
    static const struct shape many[] = {{9, 67, 256, 4}, {65, 3, -1, 0}, {1, 1, -1, 0}};
    static const struct shape units[] = {{3, 131, 256, 8}, {130, 5, -1, 0}, {1, 1, -1, 0}};
    static const struct shape odd[] = {{3, 4, 256, 4}, {1, 2, -1, 8}};
    static const struct shape exact[] = {{1, 5, -3, 4}, {2, 3, -1, 8}, {8, 3, 512, 0}};
    /* Several slices for a wave, the last one partial; rows of weights that begin anywhere; more rows than waves. */
    static const struct shape slices[] = {{1, 67, -131, 0}, {3, 5, -67, 4}, {8, 2, -129, 0}};
    /* Shapes for the kernel that takes rows in pairs: whole lanes, rows at multiples of 16 bytes. */
    static const struct shape pairs[] = {{1, 5, 4096, 4}, {1, 67, 2048, 0}, {1, 4, 2304, 0}, {1, 1, 6144, 8}};
    static const struct shape large_slices[] = {{1, 67, -17, 0}, {3, 5, -9, 4}, {8, 2, -19, 0}};
    for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++) {
        enum rf_dtype weights = rf_quantized_types[w];
        ADD_SHAPES(list, op, few, .weights = weights, .type = RF_F32, .path = RF_MATMUL_AUTO);
        ADD_SHAPES(list, op, many, .weights = weights, .type = RF_F32, .path = RF_MATMUL_TILED);
        ADD_SHAPES(list, op, units, .weights = weights, .type = RF_F32, .path = RF_MATMUL_MATRIX);
        ADD_SHAPES(list, op, odd, .weights = weights, .type = RF_F32, .data = RF_DATA_EXTREME);
        add_product(list, op, (struct product){weights, RF_F32, 11, 3, 256, .path = RF_MATMUL_MATVEC});
        add_product(list, op, (struct product){weights, RF_F32, 11, 3, 256, .path = RF_MATMUL_DOTS});
        add_product(list, op, (struct product){weights, RF_F32, 33, 5, 256, .with = WITH_BIAS});
        add_product(list, op, (struct product){weights, RF_F32, 9, 258, 512, .path = RF_MATMUL_WIDE});
        add_product(list, op,
                    (struct product){weights, RF_F32, 9, 258, 512, .with = WITH_BOTH, .path = RF_MATMUL_GROUP});
        add_product(list, op, (struct product){weights, RF_F32, 10, 3, 1280, .path = RF_MATMUL_MATRIX});
        ADD_SHAPES(list, op, exact, .weights = weights, .type = RF_F32, .path = RF_MATMUL_MATVEC);
        if (rf_dtype_block(weights) == 32)
            ADD_SHAPES(list, op, slices, .weights = weights, .type = RF_F32, .path = RF_MATMUL_DOTS);
        else
            ADD_SHAPES(list, op, large_slices, .weights = weights, .type = RF_F32, .path = RF_MATMUL_DOTS);
        if (rounds_on_cpu(weights))
            ADD_SHAPES(list, op, pairs, .weights = weights, .type = RF_F32, .path = RF_MATMUL_DOTS);
    }
}
/* x of 16 bits and an output of f32. Narrow and wide tiles, and k in parts. */
static void matmul_narrow_cases(struct rf_case_list *list, const struct rf_op *op) {
    static const struct shape chosen[] = {{9, 3, 256, 8}, {33, 131, 512, 0}, {130, 70, 256, 0}, {0, 3, 256, 0}};
    static const struct shape units[] = {{1, 1, 256, 0}, {3, 5, 1280, 8}};
    static const struct shape wide[] = {{9, 258, 512, 8}};
    static const enum rf_dtype types[] = {RF_F16, RF_BF16, RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    for (size_t w = 0; w < RF_COUNT(types); w++) {
        ADD_SHAPES(list, op, chosen, .weights = types[w], .type = RF_F32, .narrow = true);
        ADD_SHAPES(list, op, units, .weights = types[w], .type = RF_F32, .path = RF_MATMUL_MATRIX, .narrow = true);
        ADD_SHAPES(list, op, wide, .weights = types[w], .type = RF_F32, .path = RF_MATMUL_WIDE, .narrow = true);
    }
}
static void matmul_cases(struct rf_case_list *list) {
    static const enum rf_dtype fast[] = {RF_F16, RF_BF16, RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    const struct rf_op *op = &rf_op_matmul;
    matmul_float_cases(list, op);
    matmul_quant_cases(list, op);
    matmul_narrow_cases(list, op);
    for (size_t w = 0; w < RF_COUNT(fast); w++) {
        enum rf_dtype type = rf_op_is_quantized(fast[w]) ? RF_F32 : fast[w];
        add_product(list, op, (struct product){fast[w], RF_F32, 1, 8192, 8192, .bench = true});
        add_product(list, op, (struct product){fast[w], RF_F32, 1, 14336, 4096, .bench = true});
        add_product(list, op, (struct product){fast[w], RF_F32, 1, 128256, 4096, .bench = true});
        if (rf_op_is_quantized(fast[w])) {
            add_product(list, op, (struct product){fast[w], RF_F32, 1, 4096, 4096, .bench = true});
            add_product(list, op, (struct product){fast[w], RF_F32, 1, 4096, 14336, .bench = true});
            add_product(list, op, (struct product){fast[w], RF_F32, 512, 4096, 4096, .bench = true});
        } else {
            add_product(list, op, (struct product){fast[w], type, 1, 8192, 8192, .bench = true});
            add_product(list, op, (struct product){fast[w], type, 4096, 4096, 4096, .bench = true});
            add_product(list, op, (struct product){fast[w], RF_F32, 4096, 4096, 4096, .bench = true});
            add_product(list, op, (struct product){fast[w], type, 512, 28672, 4096, .bench = true});
        }
    }
}
const struct rf_op rf_op_matmul = {
    .name = "matmul",
    .summary =
        "out = x weights^T + bias + residual; path: 0 the best kernel, 1 matvec, 2 tiled, 3 matrix units, 4 dots, "
        "5 matrix units with wide tiles, 6 matrix units by groups of waves",
    .inputs = 4,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_I(path, 0)),
    .optional = 1 << BIAS | 1 << RESIDUAL,
    .in_place = 1 << RESIDUAL,
    .check = product_check,
    .reference = product_reference,
    .gpu = product_gpu,
    .cpu = product_cpu,
    .workspace = matmul_workspace,
    .cases = matmul_cases,
    .fill = product_fill,
    .cost = product_cost,
};

/* Many rows on the matrix units: x of 16 bits, out of 16 or f32. */
static void matmul_gate_unit_cases(struct rf_case_list *list, const struct rf_op *op) {
    static const struct shape shapes[] = {{9, 3, 256, 8},     {33, 131, 256, 0}, {130, 128, 512, 0},
                                          {128, 260, 256, 8}, {0, 3, 256, 0},    {9, 3, 0, 0}};
    static const enum rf_dtype types[] = {RF_F16, RF_BF16, RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    for (size_t w = 0; w < RF_COUNT(types); w++) {
        ADD_SHAPES(list, op, shapes, .weights = types[w], .type = rf_gpu_matmul_unit(types[w]));
        ADD_SHAPES(list, op, shapes, .weights = types[w], .type = RF_F32, .narrow = true);
    }
}
static void matmul_gate_cases(struct rf_case_list *list) {
    static const struct shape plain[] = {{1, 1, 1, 0}, {1, 5, 64, 0}, {3, 7, 29, 1}, {8, 2, 40, 8}, {10, 3, 17, 0}};
    static const struct shape empty[] = {{0, 3, -1, 0}, {2, 0, -1, 0}, {2, 3, 0, 0}};
    static const struct shape pairs[] = {{1, 3, 4096, 4}, {1, 9, 2304, 0}};
    static const struct shape blocks[] = {{1, 1, -1, 0}, {1, 5, -2, 4}, {3, 3, -1, 8}, {8, 2, -1, 0}, {9, 3, -3, 0}};
    const struct rf_op *op = &rf_op_matmul_gate;
    for (size_t w = 0; w < 3; w++)
        for (size_t t = 0; t < 3; t++) {
            ADD_SHAPES(list, op, plain, .weights = rf_case_floats[w], .type = rf_case_floats[t]);
            if (w == t) ADD_SHAPES(list, op, empty, .weights = rf_case_floats[w], .type = rf_case_floats[t]);
        }
    for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++) {
        ADD_SHAPES(list, op, blocks, .weights = rf_quantized_types[w], .type = RF_F32);
        if (w % 6 == 0) ADD_SHAPES(list, op, empty, .weights = rf_quantized_types[w], .type = RF_F32);
        if (rounds_on_cpu(rf_quantized_types[w]))
            ADD_SHAPES(list, op, pairs, .weights = rf_quantized_types[w], .type = RF_F32);
    }
    matmul_gate_unit_cases(list, op);
    add_product(list, op, (struct product){RF_F16, RF_F32, 1, 14336, 4096, .bench = true});
    add_product(list, op, (struct product){RF_Q8_0, RF_F32, 1, 14336, 4096, .bench = true});
    add_product(list, op, (struct product){RF_Q4_0, RF_F32, 1, 14336, 4096, .bench = true});
    add_product(list, op, (struct product){RF_Q4_K, RF_F32, 1, 14336, 4096, .bench = true});
    add_product(list, op, (struct product){RF_F16, RF_F16, 512, 14336, 4096, .bench = true});
    add_product(list, op, (struct product){RF_Q4_0, RF_F16, 512, 14336, 4096, .bench = true});
}
const struct rf_op rf_op_matmul_gate = {
    .name = "matmul_gate",
    .summary = "out = silu(x weights^T) * (x gate^T)",
    .inputs = 3,
    .outputs = 1,
    .check = product_check,
    .reference = product_reference,
    .gpu = product_gpu,
    .cpu = product_cpu,
    .workspace = matmul_workspace,
    .cases = matmul_gate_cases,
    .fill = product_fill,
    .cost = product_cost,
};

static void matmul_q8_cases(struct rf_case_list *list) {
    static const struct shape shapes[] = {{1, 1, -1, 0}, {1, 5, -3, 1},  {2, 3, -1, 0},   {4, 7, -2, 1},
                                          {7, 4, -1, 0}, {8, 2, 512, 1}, {11, 3, 256, 0}, {0, 3, -1, 0},
                                          {2, 0, -1, 0}, {2, 3, 0, 0}};
    const struct rf_op *op = &rf_op_matmul_q8;
    for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++) {
        ADD_SHAPES(list, op, shapes, .weights = rf_quantized_types[w], .type = RF_F32);
        if (rounds_on_cpu(rf_quantized_types[w]))
            add_product(list, op, (struct product){rf_quantized_types[w], RF_F32, 1, 8192, 8192, .bench = true});
    }
}
const struct rf_op rf_op_matmul_q8 = {
    .name = "matmul_q8",
    .summary = "out = x weights^T + bias + residual, x in blocks as quantize_q8 gives them (u8)",
    .inputs = 4,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_I(path, 0)),
    .optional = 1 << BIAS | 1 << RESIDUAL,
    .in_place = 1 << RESIDUAL,
    .check = product_check,
    .reference = product_reference,
    .gpu = product_gpu,
    .cpu = product_cpu,
    .cases = matmul_q8_cases,
    .fill = blocks_fill,
    .cost = product_cost,
};
