/* Rows of the table for what stands between a transformer's matrix products: layer_norm, add_norm, activation,
 * multiply, softmax_mask. Moving: op_move.c; rotation and the cache: op_cache.c.
 *
 * A row says shapes, types and cases; arithmetic is in cpu/ref_transformer.h (the definition), cpu/fast.h and
 * graph/gpu_transformer.h. */
#include "ops/op_impl.h"

#include "cpu/fast.h"
#include "ops/gpu_transformer.h"

static void cost_of_moves(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 4 * rf_op_elements(&rf_op_out(call, 0)->desc);
}

/* Rows of a matrix without gaps; the last two are empty. */
static const struct {
    uint64_t rows, columns;
} row_shapes[] = {{1, 1},    {3, 2},    {5, 7},    {9, 33},    {4, 512}, {3, 1021},
                  {2, 2560}, {2, 4096}, {1, 8200}, {1, 16421}, {0, 7},   {3, 0}};
enum { BENCH_COLUMNS = 4096 };
static const uint64_t BENCH_BYTES = (uint64_t)256 << 20;

static uint64_t bench_rows(enum rf_dtype dtype) {
    return BENCH_BYTES / rf_dtype_bytes(dtype) / BENCH_COLUMNS;
}

/* ---- layer_norm: in, weight or none, bias or none; f[0] is eps ---- */

static rf_status layer_norm_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *weight = rf_op_in(call, 1), *bias = rf_op_in(call, 2);
    RF_TRY(rf_need_float(in, "in"));
    RF_TRY(rf_need_rank(in, "in", 2));
    RF_TRY(rf_need_like(rf_op_out(call, 0), "out", in, "in"));
    RF_TRY(rf_need_dense(in, "in"));
    RF_TRY(rf_need_dense(rf_op_out(call, 0), "out"));
    if (rf_op_given(weight)) RF_TRY(rf_need_vector(weight, "weight", in->desc.shape[1]));
    if (rf_op_given(bias)) RF_TRY(rf_need_vector(bias, "bias", in->desc.shape[1]));
    return RF_OK;
}
static void layer_norm_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0);
    rf_ref_layer_norm(in->desc.dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(in), rf_op_host(rf_op_in(call, 1)),
                      rf_op_host(rf_op_in(call, 2)), in->desc.shape[0], in->desc.shape[1],
                      (float)call->attributes.eps);
}
static rf_status layer_norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0);
    return rf_cpu_layer_norm(cpu, in->desc.dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(in),
                             rf_op_host(rf_op_in(call, 1)), rf_op_host(rf_op_in(call, 2)), in->desc.shape[0],
                             in->desc.shape[1], (float)call->attributes.eps);
}
static rf_status layer_norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0);
    struct rf_layer_norm_args args = {.dtype = in->desc.dtype,
                                      .rows = in->desc.shape[0],
                                      .columns = in->desc.shape[1],
                                      .eps = (float)call->attributes.eps,
                                      .out = rf_op_operand(rf_op_out(call, 0)),
                                      .in = rf_op_operand(in),
                                      .weight = rf_op_operand(rf_op_in(call, 1)),
                                      .bias = rf_op_operand(rf_op_in(call, 2))};
    return rf_gpu_layer_norm(queue, &args);
}
static void layer_norm_cases(struct rf_case_list *list) {
    static const char *const forms[] = {", plain", ", weight", ", bias", ", weight and bias"};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        enum rf_dtype dtype = rf_case_floats[t];
        struct rf_op_case one = {
            .attributes = {.eps = 1e-5}, .count = 4, .absolute = 3e-5, .relative = RF_MAX(rf_op_step(dtype), 1e-5)};
        if (dtype != RF_F32) one.absolute = rf_op_step(dtype) / 2;
        for (size_t i = 0; i <= RF_COUNT(row_shapes); i++)
            for (int form = 0; form < 4; form++) {
                one.bench = i == RF_COUNT(row_shapes);
                if (one.bench && (form != 3 || dtype == RF_BF16)) continue;
                uint64_t rows = one.bench ? bench_rows(dtype) : row_shapes[i].rows;
                uint64_t columns = one.bench ? BENCH_COLUMNS : row_shapes[i].columns;
                /* Extreme without a weight: that would magnify what cancels near the mean. */
                one.data = i % 4 == 1 && form % 2 == 0   ? RF_DATA_EXTREME
                           : i % 4 == 2 && form % 3 == 0 ? RF_DATA_SPECIAL
                                                         : RF_DATA_NORMAL;
                uint64_t skip = one.bench ? 0 : (uint64_t)form % 4;
                memset(one.tensors, 0, sizeof one.tensors);
                one.tensors[0] = rf_case_matrix(dtype, rows, columns, 0, skip);
                if (form & 1) one.tensors[1] = rf_case_vector(RF_F32, columns, skip % 2);
                if (form & 2) one.tensors[2] = rf_case_vector(RF_F32, columns, skip / 2);
                one.tensors[3] = rf_case_matrix(dtype, rows, columns, 0, skip);
                rf_case_add_shown(list, &one, 0, "%s", forms[form]);
            }
    }
}
const struct rf_op rf_op_layer_norm = {
    .name = "layer_norm",
    .summary = "out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * weight[c] + bias[c]",
    .inputs = 3,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .optional = 1 << 1 | 1 << 2,
    .in_place = 1 << 0,
    .check = layer_norm_check,
    .reference = layer_norm_reference,
    .gpu = layer_norm_gpu,
    .cpu = layer_norm_cpu,
    .cases = layer_norm_cases,
    .cost = cost_of_moves,
};

/* ---- add_norm: a, b, weight or none; sum, out; f[0] is eps ---- */

static rf_status add_norm_check(const struct rf_op_call *call) {
    static const char *const names[] = {"a", "b", "weight", "sum", "out"};
    const struct rf_op_tensor *a = rf_op_in(call, 0), *weight = rf_op_in(call, 2);
    RF_TRY(rf_need_float(a, "a"));
    RF_TRY(rf_need_rank(a, "a", 2));
    for (int i = 0; i < 5; i++) {
        if (i == 2) continue;
        RF_TRY(rf_need_like(&call->tensors[i], names[i], a, "a"));
        RF_TRY(rf_need_dense(&call->tensors[i], names[i]));
    }
    return rf_op_given(weight) ? rf_need_vector(weight, "weight", a->desc.shape[1]) : RF_OK;
}
static void add_norm_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0);
    rf_ref_add_rms_norm(a->desc.dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_out(call, 1)), rf_op_host(a),
                        rf_op_host(rf_op_in(call, 1)), rf_op_host(rf_op_in(call, 2)), a->desc.shape[0],
                        a->desc.shape[1], (float)call->attributes.eps);
}
static rf_status add_norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0);
    return rf_cpu_add_rms_norm(cpu, a->desc.dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_out(call, 1)),
                               rf_op_host(a), rf_op_host(rf_op_in(call, 1)), rf_op_host(rf_op_in(call, 2)),
                               a->desc.shape[0], a->desc.shape[1], (float)call->attributes.eps);
}
static rf_status add_norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0);
    struct rf_add_rms_norm_args args = {.dtype = a->desc.dtype,
                                        .rows = a->desc.shape[0],
                                        .columns = a->desc.shape[1],
                                        .eps = (float)call->attributes.eps,
                                        .sum = rf_op_operand(rf_op_out(call, 0)),
                                        .out = rf_op_operand(rf_op_out(call, 1)),
                                        .a = rf_op_operand(a),
                                        .b = rf_op_operand(rf_op_in(call, 1)),
                                        .weight = rf_op_operand(rf_op_in(call, 2))};
    return rf_gpu_add_rms_norm(queue, &args);
}
static void add_norm_cases(struct rf_case_list *list) {
    static const char *const forms[] = {"", " without a weight", " apart"};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        enum rf_dtype dtype = rf_case_floats[t];
        struct rf_op_case one = {.attributes = {.eps = 1e-6},
                                 .count = 5,
                                 .absolute = 1e-6,
                                 .relative = RF_MAX(2 * rf_op_step(dtype), 1e-5)};
        for (size_t i = 0; i <= RF_COUNT(row_shapes); i++)
            for (uint64_t form = 0; form < 3; form++) {
                one.bench = i == RF_COUNT(row_shapes);
                if (one.bench && form) continue;
                uint64_t rows = one.bench ? bench_rows(dtype) : row_shapes[i].rows;
                uint64_t columns = one.bench ? BENCH_COLUMNS : row_shapes[i].columns;
                one.data = i % 4 == 3 && form == 1   ? RF_DATA_EXTREME
                           : i % 4 == 2 && form == 2 ? RF_DATA_SPECIAL
                                                     : RF_DATA_NORMAL;
                for (int k = 0; k < 5; k++)
                    one.tensors[k] = rf_case_matrix(dtype, rows, columns, 0, form == 2 ? (uint64_t)k + 1 : form);
                one.tensors[2] =
                    form == 1 ? (struct rf_tensor_desc){0} : rf_case_vector(RF_F32, columns, form == 2 ? 3 : 0);
                rf_case_add_shown(list, &one, 0, "%s", forms[form]);
            }
    }
}
const struct rf_op rf_op_add_norm = {
    .name = "add_norm",
    .summary = "sum = a + b; out[r][c] = sum[r][c] / sqrt(mean(sum[r]^2) + eps) * weight[c]",
    .inputs = 3,
    .outputs = 2,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .optional = 1 << 2,
    .in_place = 1 << 0 | 1 << 1,
    .check = add_norm_check,
    .reference = add_norm_reference,
    .gpu = add_norm_gpu,
    .cpu = add_norm_cpu,
    .cases = add_norm_cases,
    .cost = cost_of_moves,
};

/* ---- rows at strides: activation and multiply ---- */

/* out_row and in_row[0] are strides; 0: dense. */
static const struct {
    uint64_t rows, columns, out_row, in_row[3], skip;
} sheet_shapes[] = {
    {1, 1, 0, {0, 0, 0}, 0},
    {1, 4099, 0, {0, 0, 0}, 1},
    {7, 24, 0, {0, 0, 0}, 0},
    {5, 13, 13, {26, 26, 13}, 1},
    {3, 256, 256, {512, 512, 256}, 0},
    {4, 33, 40, {33, 64, 35}, 3},
    {3, 1030, 1031, {2061, 2061, 1030}, 2},
    {37, 1, 3, {2, 1, 4}, 0},
    {0, 5, 0, {0, 0, 0}, 0},
    {4, 0, 0, {0, 0, 0}, 0},
};

/* Matrices of one type, given or left out, with dense rows. The first and the last are always given. */
static rf_status check_sheets(const struct rf_op_call *call, const char *const *names) {
    const struct rf_op_tensor *first = &call->tensors[0];
    RF_TRY(rf_need_float(first, names[0]));
    RF_TRY(rf_need_rank(first, names[0], 2));
    for (int i = 0; i < call->count; i++) {
        if (!rf_op_given(&call->tensors[i])) continue;
        RF_TRY(rf_need_like(&call->tensors[i], names[i], first, names[0]));
        RF_TRY(rf_need_dense_rows(&call->tensors[i], names[i]));
    }
    return rf_need_distinct(rf_op_out(call, 0), "out");
}
static void sheet_tensors(struct rf_op_case *one, enum rf_dtype dtype, size_t shape, int inputs) {
    if (one->bench) {
        for (int k = 0; k <= inputs; k++)
            one->tensors[k] = rf_case_matrix(dtype, bench_rows(dtype), BENCH_COLUMNS, 0, 0);
        return;
    }
    uint64_t rows = sheet_shapes[shape].rows, columns = sheet_shapes[shape].columns, skip = sheet_shapes[shape].skip;
    for (int k = 0; k < inputs; k++)
        one->tensors[k] =
            rf_case_matrix(dtype, rows, columns, sheet_shapes[shape].in_row[k], skip == 3 ? (uint64_t)k + 1 : skip);
    one->tensors[inputs] = rf_case_matrix(dtype, rows, columns, sheet_shapes[shape].out_row, skip);
}

/* ---- activation: gate, up or none; i[0] is an enum rf_activation ---- */

static rf_status activation_check(const struct rf_op_call *call) {
    static const char *const names[] = {"gate", "up", "out"};
    if (call->attributes.kind < 0 || call->attributes.kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "there is no activation %lld", (long long)call->attributes.kind);
    return check_sheets(call, names);
}
static void activation_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *gate = rf_op_in(call, 0), *up = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    rf_ref_activation_gate((enum rf_activation)call->attributes.kind, gate->desc.dtype, rf_op_host(out),
                           out->desc.strides[0], rf_op_host(gate), gate->desc.strides[0], rf_op_host(up),
                           up->desc.strides[0], gate->desc.shape[0], gate->desc.shape[1]);
}
static rf_status activation_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *gate = rf_op_in(call, 0), *up = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    return rf_cpu_activation_gate(cpu, (enum rf_activation)call->attributes.kind, gate->desc.dtype, rf_op_host(out),
                                  out->desc.strides[0], rf_op_host(gate), gate->desc.strides[0], rf_op_host(up),
                                  up->desc.strides[0], gate->desc.shape[0], gate->desc.shape[1]);
}
static rf_status activation_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *gate = rf_op_in(call, 0), *up = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    struct rf_activation_args args = {.kind = (enum rf_activation)call->attributes.kind,
                                      .dtype = gate->desc.dtype,
                                      .rows = gate->desc.shape[0],
                                      .columns = gate->desc.shape[1],
                                      .out_row = out->desc.strides[0],
                                      .gate_row = gate->desc.strides[0],
                                      .up_row = up->desc.strides[0],
                                      .out = rf_op_operand(out),
                                      .gate = rf_op_operand(gate),
                                      .up = rf_op_operand(up)};
    return rf_gpu_activation(queue, &args);
}
static void activation_cases(struct rf_case_list *list) {
    static const char *const kinds[RF_ACTIVATION_COUNT] = {" silu", " gelu", " gelu_erf"};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++)
        for (int kind = 0; kind < RF_ACTIVATION_COUNT; kind++)
            for (size_t i = 0; i <= RF_COUNT(sheet_shapes); i++)
                for (int gated = 0; gated < 2; gated++) {
                    enum rf_dtype dtype = rf_case_floats[t];
                    struct rf_op_case one = {.attributes = {.kind = kind},
                                             .count = 3,
                                             .absolute = 4e-6,
                                             .relative = RF_MAX(2 * rf_op_step(dtype), 4e-6),
                                             .bench = i == RF_COUNT(sheet_shapes)};
                    if (one.bench && !gated) continue;
                    if (!one.bench && i % 3 == 1) one.data = gated ? RF_DATA_EXTREME : RF_DATA_SPECIAL;
                    sheet_tensors(&one, dtype, i, 2);
                    if (!gated) one.tensors[1] = (struct rf_tensor_desc){0};
                    rf_case_add_shown(list, &one, 0, "%s%s", kinds[kind], gated ? ", up" : "");
                }
}
const struct rf_op rf_op_activation = {
    .name = "activation",
    .summary = "out = act(gate) * up; act by i[0]: silu, gelu, gelu_erf",
    .inputs = 2,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_I(kind, 0)),
    .optional = 1 << 1,
    .in_place = 1 << 0 | 1 << 1,
    .check = activation_check,
    .reference = activation_reference,
    .gpu = activation_gpu,
    .cpu = activation_cpu,
    .cases = activation_cases,
    .cost = cost_of_moves,
};

/* ---- multiply: a, b, c or none ---- */

static rf_status multiply_check(const struct rf_op_call *call) {
    static const char *const names[] = {"a", "b", "c", "out"};
    return check_sheets(call, names);
}
static void multiply_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0), *b = rf_op_in(call, 1), *c = rf_op_in(call, 2),
                              *out = rf_op_out(call, 0);
    rf_ref_multiply(a->desc.dtype, rf_op_host(out), out->desc.strides[0], rf_op_host(a), a->desc.strides[0],
                    rf_op_host(b), b->desc.strides[0], rf_op_host(c), c->desc.strides[0], a->desc.shape[0],
                    a->desc.shape[1]);
}
static rf_status multiply_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0), *b = rf_op_in(call, 1), *c = rf_op_in(call, 2),
                              *out = rf_op_out(call, 0);
    return rf_cpu_multiply(cpu, a->desc.dtype, rf_op_host(out), out->desc.strides[0], rf_op_host(a),
                           a->desc.strides[0], rf_op_host(b), b->desc.strides[0], rf_op_host(c), c->desc.strides[0],
                           a->desc.shape[0], a->desc.shape[1]);
}
static rf_status multiply_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0), *b = rf_op_in(call, 1), *c = rf_op_in(call, 2),
                              *out = rf_op_out(call, 0);
    struct rf_multiply_args args = {.dtype = a->desc.dtype,
                                    .rows = a->desc.shape[0],
                                    .columns = a->desc.shape[1],
                                    .out_row = out->desc.strides[0],
                                    .a_row = a->desc.strides[0],
                                    .b_row = b->desc.strides[0],
                                    .c_row = c->desc.strides[0],
                                    .out = rf_op_operand(out),
                                    .a = rf_op_operand(a),
                                    .b = rf_op_operand(b),
                                    .c = rf_op_operand(c)};
    return rf_gpu_multiply(queue, &args);
}
static void multiply_cases(struct rf_case_list *list) {
    /* Which inputs repeat one row (bits), and whether c is there. */
    static const struct {
        int repeated;
        bool add;
        const char *text;
    } forms[] = {{0, false, ""},
                 {0, true, ", c"},
                 {2, false, ", b repeated"},
                 {6, true, ", b and c repeated"},
                 {1, true, ", a repeated, c"}};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++)
        for (size_t i = 0; i <= RF_COUNT(sheet_shapes); i++)
            for (size_t form = 0; form < RF_COUNT(forms); form++) {
                enum rf_dtype dtype = rf_case_floats[t];
                struct rf_op_case one = {.count = 4, .bench = i == RF_COUNT(sheet_shapes)}; /* exact */
                if (one.bench && form > 2) continue;
                if (!one.bench && (i + form) % 3 == 1) one.data = i % 2 ? RF_DATA_EXTREME : RF_DATA_SPECIAL;
                sheet_tensors(&one, dtype, i, 3);
                for (int k = 0; k < 3; k++)
                    if (forms[form].repeated >> k & 1) one.tensors[k].strides[0] = 0, one.tensors[k].strides[1] = 1;
                if (!forms[form].add) one.tensors[2] = (struct rf_tensor_desc){0};
                rf_case_add_shown(list, &one, 0, "%s", forms[form].text);
            }
}
const struct rf_op rf_op_multiply = {
    .name = "multiply",
    .summary = "out = a * b + c, rounded once; a row stride of 0 repeats an input's row",
    .inputs = 3,
    .outputs = 1,
    .optional = 1 << 2,
    .in_place = 1 << 0 | 1 << 1 | 1 << 2,
    .check = multiply_check,
    .reference = multiply_reference,
    .gpu = multiply_gpu,
    .cpu = multiply_cpu,
    .cases = multiply_cases,
    .cost = cost_of_moves,
};

/* ---- softmax_mask: in [batch, heads, rows, columns], mask [batch or 1, rows, columns] or none; f[0] the scale ----
 */

static rf_status softmax_mask_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *mask = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_type(in, "in", RF_F32));
    RF_TRY(rf_need_rank(in, "in", 4));
    RF_TRY(rf_need_like(out, "out", in, "in"));
    RF_TRY(rf_need_dense(in, "in"));
    RF_TRY(rf_need_dense(out, "out"));
    if (!rf_op_given(mask)) return RF_OK;
    if (mask->desc.dtype != RF_F32 && mask->desc.dtype != RF_F16)
        return rf_fail(RF_E_UNSUPPORTED, "mask is %s: f32 or f16", rf_dtype_name(mask->desc.dtype));
    RF_TRY(rf_need_rank(mask, "mask", 3));
    if (mask->desc.shape[0] != 1) RF_TRY(rf_need_size(mask, "mask", 0, in->desc.shape[0]));
    RF_TRY(rf_need_size(mask, "mask", 1, in->desc.shape[2]));
    RF_TRY(rf_need_size(mask, "mask", 2, in->desc.shape[3]));
    return rf_need_dense(mask, "mask");
}
/* Heads that share a row of the mask: those of all batches where there is one mask. */
static uint64_t softmax_heads(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *mask = &rf_op_in(call, 1)->desc;
    return mask->rank && mask->shape[0] == 1 ? in->shape[0] * in->shape[1] : in->shape[1];
}
static uint64_t softmax_rows(const struct rf_tensor_desc *in) {
    return in->shape[0] * in->shape[1] * in->shape[2];
}
static void softmax_mask_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *mask = rf_op_in(call, 1);
    rf_ref_softmax_mask(rf_op_host(rf_op_out(call, 0)), rf_op_host(in), mask->desc.dtype, rf_op_host(mask),
                        softmax_rows(&in->desc), in->desc.shape[3], in->desc.shape[2], softmax_heads(call),
                        (float)call->attributes.scale);
}
static rf_status softmax_mask_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *mask = rf_op_in(call, 1);
    return rf_cpu_softmax_mask(cpu, rf_op_host(rf_op_out(call, 0)), rf_op_host(in), mask->desc.dtype,
                               rf_op_host(mask), softmax_rows(&in->desc), in->desc.shape[3], in->desc.shape[2],
                               softmax_heads(call), (float)call->attributes.scale);
}
static rf_status softmax_mask_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *mask = rf_op_in(call, 1);
    struct rf_softmax_mask_args args = {.rows = softmax_rows(&in->desc),
                                        .columns = in->desc.shape[3],
                                        .rows_each = in->desc.shape[2],
                                        .heads = softmax_heads(call),
                                        .scale = (float)call->attributes.scale,
                                        .mask_dtype = mask->desc.dtype,
                                        .out = rf_op_operand(rf_op_out(call, 0)),
                                        .in = rf_op_operand(in),
                                        .mask = rf_op_operand(mask)};
    return rf_gpu_softmax_mask(queue, &args);
}
static void softmax_mask_cases(struct rf_case_list *list) {
    static const uint64_t shapes[][4] = {{1, 1, 1, 1},    {2, 3, 5, 7},      {1, 2, 3, 64},   {2, 2, 2, 517},
                                         {1, 1, 2, 4096}, {3, 1, 4, 33},     {1, 2, 1, 9001}, {0, 2, 3, 5},
                                         {1, 2, 3, 0},    {4, 8, 1024, 2048}};
    static const char *const masks[] = {"", ", mask f32", ", mask f16", ", one mask f32"};
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (int kind = 0; kind < 4; kind++)
            for (int data = RF_DATA_NORMAL; data <= RF_DATA_EXTREME; data++) {
                const uint64_t *n = shapes[i];
                struct rf_op_case one = {.attributes = {.scale = data == RF_DATA_EXTREME ? 0.01 : 0.37},
                                         .count = 3,
                                         .data = (enum rf_case_data)data,
                                         .absolute = 1e-7,
                                         .relative = 1e-5,
                                         .bench = i + 1 == RF_COUNT(shapes)};
                /* Half a step of an f32 of 4e4 (a mask) or 400 (a score), twice, is what the exponent may be off. */
                if (data == RF_DATA_EXTREME) one.relative = kind ? 5e-3 : 1e-4;
                if (one.bench && (data || kind % 2)) continue;
                uint64_t skip = (uint64_t)data, of_mask[] = {kind == 3 ? 1 : n[0], n[2], n[3]};
                one.tensors[0] = rf_case_tensor(RF_F32, 4, n, skip);
                if (kind) one.tensors[1] = rf_case_tensor(kind == 2 ? RF_F16 : RF_F32, 3, of_mask, skip / 2);
                one.tensors[2] = rf_case_tensor(RF_F32, 4, n, skip ? 3 - skip : 0);
                rf_case_add_shown(list, &one, 0, "%s", masks[kind]);
            }
}
const struct rf_op rf_op_softmax_mask = {
    .name = "softmax_mask",
    .summary = "out = softmax over the last dimension of in * scale + mask; a row of -inf gives zeros",
    .inputs = 2,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0)),
    .optional = 1 << 1,
    .in_place = 1 << 0,
    .check = softmax_mask_check,
    .reference = softmax_mask_reference,
    .gpu = softmax_mask_gpu,
    .cpu = softmax_mask_cpu,
    .cases = softmax_mask_cases,
    .cost = cost_of_moves,
};
