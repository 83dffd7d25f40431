/* Rows of the table for ops that work element by element: fill, copy (with cast), add and scale over dense arrays;
 * multiply and activation over rows at strides.
 *
 * kernels/elementwise_args.h says what each op computes. fill, copy, add, scale and multiply are exact except for one
 * rounding to the type. */
#include "ops/op_impl.h"

#include "cpu/fast.h"
#include "cpu/reference.h"
#include "ops/gpu_elementwise.h"

static enum rf_dtype type_of(const struct rf_op_call *call) {
    return call->tensors[0].desc.dtype;
}

/* ---- dense arrays ---- */

static struct rf_elementwise_args args_of(const struct rf_op_call *call) {
    struct rf_elementwise_args args = {.count = rf_op_elements(&call->tensors[0].desc),
                                       .factor = (float)call->attributes.scale};
    float value = (float)call->attributes.value;
    memcpy(&args.bits, &value, sizeof args.bits);
    if (type_of(call) == RF_I32) args.bits = (uint32_t)call->attributes.integer;
    return args;
}

/* All tensors must be floats of one shape without gaps and, if one_type, of one type. */
static rf_status check_dense(const struct rf_op_call *call, const char *const *names, bool one_type) {
    const struct rf_op_tensor *first = &call->tensors[0];
    for (int i = 0; i < call->count; i++) {
        const struct rf_op_tensor *tensor = &call->tensors[i];
        RF_TRY(rf_need_float(tensor, names[i]));
        RF_TRY(one_type ? rf_need_like(tensor, names[i], first, names[0])
                        : rf_need_shape(tensor, names[i], first, names[0]));
        RF_TRY(rf_need_dense(tensor, names[i]));
    }
    return RF_OK;
}

static const uint64_t lengths[] = {0, 1, 2, 3, 7, 16, 31, 64, 100, 255, 257, 1000, 1024, 4099, 65537};

/* Adds one-dimensional cases of every length, aligned and not, for tensors of these types. */
static void add_lengths(struct rf_case_list *list, const char *types, const enum rf_dtype *dtypes, int count,
                        struct rf_op_attributes attributes, double relative) {
    static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_EXTREME, RF_DATA_SPECIAL};
    static const char *const text[] = {"", " off by one, extreme", " apart, special"};
    struct rf_op_case one = {.attributes = attributes, .count = count, .absolute = 1e-30, .relative = relative};
    for (size_t i = 0; i < RF_COUNT(lengths); i++)
        for (uint64_t shift = 0; shift < 3; shift++) {
            one.data = data[shift];
            /* All tensors start one element late, then each tensor by a different number of elements. */
            for (int t = 0; t < count; t++)
                one.tensors[t] = rf_case_vector(dtypes[t], lengths[i], shift == 2 ? (uint64_t)t + 1 : shift);
            snprintf(one.label, sizeof one.label, "%s %llu%s", types, (unsigned long long)lengths[i], text[shift]);
            rf_case_add(list, &one);
        }
    one.bench = true;
    one.data = RF_DATA_NORMAL;
    for (int t = 0; t < count; t++)
        one.tensors[t] = rf_case_vector(dtypes[t], ((uint64_t)256 << 20) / rf_dtype_bytes(dtypes[0]), 0);
    snprintf(one.label, sizeof one.label, "%s 256 MiB", types);
    rf_case_add(list, &one);
}

/* ---- fill ---- */

static rf_status fill_check(const struct rf_op_call *call) {
    if (type_of(call) != RF_F32 && type_of(call) != RF_I32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: only f32 and i32 are filled", rf_dtype_name(type_of(call)));
    if (type_of(call) == RF_I32 && (call->attributes.integer < INT32_MIN || call->attributes.integer > INT32_MAX))
        return rf_fail(RF_E_INVALID, "%lld is no i32", (long long)call->attributes.integer);
    return rf_need_dense(rf_op_out(call, 0), "out");
}
static void fill_reference(const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    rf_ref_fill(rf_op_out_host(call, 0), &args);
}
static rf_status fill_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_gpu_fill(queue, type_of(call), rf_op_out_operand(call, 0), &args);
}
static void fill_cases(struct rf_case_list *list) {
    static const enum rf_dtype types[] = {RF_F32, RF_I32};
    for (size_t i = 0; i < RF_COUNT(types); i++)
        add_lengths(list, rf_dtype_name(types[i]), &types[i], 1,
                    (struct rf_op_attributes){.value = -1.5, .integer = -123456789}, 0);
}
const struct rf_op rf_op_fill = {
    .name = "fill",
    .summary = "out[i] = value, or integer where out is i32",
    .inputs = 0,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(value, 0), RF_ATTRIBUTE_I(integer, 0)),
    .check = fill_check,
    .reference = fill_reference,
    .gpu = fill_gpu,
    .cases = fill_cases,
    .cost = rf_op_cost_moves,
};

/* ---- copy ---- */

static rf_status copy_check(const struct rf_op_call *call) {
    static const char *const names[] = {"in", "out"};
    return check_dense(call, names, false);
}
static void copy_reference(const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    rf_ref_copy(rf_op_out(call, 0)->desc.dtype, rf_op_out_host(call, 0), type_of(call), rf_op_in_host(call, 0),
                &args);
}
static rf_status copy_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_cpu_copy(cpu, rf_op_out(call, 0)->desc.dtype, rf_op_out_host(call, 0), type_of(call),
                       rf_op_in_host(call, 0), &args);
}
static rf_status copy_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_gpu_copy(queue, rf_op_out(call, 0)->desc.dtype, rf_op_out_operand(call, 0), type_of(call),
                       rf_op_in_operand(call, 0), &args);
}
static void copy_cases(struct rf_case_list *list) {
    for (size_t from = 0; from < RF_COUNT(rf_case_floats); from++)
        for (size_t to = 0; to < RF_COUNT(rf_case_floats); to++) {
            enum rf_dtype types[] = {rf_case_floats[from], rf_case_floats[to]};
            char text[32];
            snprintf(text, sizeof text, "%s to %s", rf_dtype_name(types[0]), rf_dtype_name(types[1]));
            add_lengths(list, text, types, 2, (struct rf_op_attributes){0}, 0);
        }
}
const struct rf_op rf_op_copy = {
    .name = "copy",
    .summary = "out[i] = in[i], cast to out's type; to nearest, ties to even",
    .inputs = 1,
    .outputs = 1,
    .check = copy_check,
    .reference = copy_reference,
    .gpu = copy_gpu,
    .cpu = copy_cpu,
    .cases = copy_cases,
    .cost = rf_op_cost_moves,
};

/* ---- add and scale ---- */

static void same_cases(struct rf_case_list *list, int tensors) {
    for (size_t i = 0; i < RF_COUNT(rf_case_floats); i++) {
        enum rf_dtype types[] = {rf_case_floats[i], rf_case_floats[i], rf_case_floats[i]};
        add_lengths(list, rf_dtype_name(types[0]), types, tensors,
                    (struct rf_op_attributes){.scale = tensors == 2 ? -1.75 : 0}, rf_op_step(types[0]));
    }
}

static rf_status add_check(const struct rf_op_call *call) {
    static const char *const names[] = {"a", "b", "out"};
    return check_dense(call, names, true);
}
static void add_reference(const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    rf_ref_add(type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in_host(call, 1), &args);
}
static rf_status add_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_cpu_add(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in_host(call, 1),
                      &args);
}
static rf_status add_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_gpu_add(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                      rf_op_in_operand(call, 1), &args);
}
static void add_cases(struct rf_case_list *list) {
    same_cases(list, 3);
}
const struct rf_op rf_op_add = {
    .name = "add",
    .summary = "out[i] = a[i] + b[i]",
    .inputs = 2,
    .outputs = 1,
    .in_place = 1 << 0 | 1 << 1,
    .check = add_check,
    .reference = add_reference,
    .gpu = add_gpu,
    .cpu = add_cpu,
    .cases = add_cases,
    .cost = rf_op_cost_moves,
};

static rf_status scale_check(const struct rf_op_call *call) {
    static const char *const names[] = {"in", "out"};
    return check_dense(call, names, true);
}
static void scale_reference(const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    rf_ref_scale(type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), &args);
}
static rf_status scale_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_cpu_scale(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), &args);
}
static rf_status scale_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_elementwise_args args = args_of(call);
    return rf_gpu_scale(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0), &args);
}
static void scale_cases(struct rf_case_list *list) {
    same_cases(list, 2);
}
const struct rf_op rf_op_scale = {
    .name = "scale",
    .summary = "out[i] = in[i] * scale",
    .inputs = 1,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0)),
    .in_place = 1 << 0,
    .check = scale_check,
    .reference = scale_reference,
    .gpu = scale_gpu,
    .cpu = scale_cpu,
    .cases = scale_cases,
    .cost = rf_op_cost_moves,
};

/* ---- rows at strides: activation and multiply ---- */

/* out_row and in_row are strides; 0: dense. */
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

/* The tensors must be matrices of one type with dense rows; 'narrow': the last is of another. Only the first and the
 * last must be given. */
static rf_status check_sheets(const struct rf_op_call *call, const char *const *names, bool narrow) {
    const struct rf_op_tensor *first = &call->tensors[0];
    RF_TRY(rf_need_float(first, names[0]));
    RF_TRY(rf_need_rank(first, names[0], 2));
    for (int i = 0; i < call->count; i++) {
        if (!rf_op_given(&call->tensors[i])) continue;
        if (narrow && i + 1 == call->count)
            RF_TRY(rf_need_shape(&call->tensors[i], names[i], first, names[0]));
        else
            RF_TRY(rf_need_like(&call->tensors[i], names[i], first, names[0]));
        RF_TRY(rf_need_dense_rows(&call->tensors[i], names[i]));
    }
    return rf_need_distinct(rf_op_out(call, 0), "out");
}
static void sheet_tensors(struct rf_op_case *one, enum rf_dtype dtype, size_t shape, int inputs) {
    if (one->bench) {
        for (int k = 0; k <= inputs; k++)
            one->tensors[k] = rf_case_matrix(dtype, rf_case_bench_rows(dtype), RF_CASE_BENCH_COLUMNS, 0, 0);
        return;
    }
    uint64_t rows = sheet_shapes[shape].rows, columns = sheet_shapes[shape].columns, skip = sheet_shapes[shape].skip;
    for (int k = 0; k < inputs; k++)
        one->tensors[k] =
            rf_case_matrix(dtype, rows, columns, sheet_shapes[shape].in_row[k], skip == 3 ? (uint64_t)k + 1 : skip);
    one->tensors[inputs] = rf_case_matrix(dtype, rows, columns, sheet_shapes[shape].out_row, skip);
}

/* ---- activation: gate, up or none ---- */

/* f32 may become 16 bits; otherwise out has the type of gate and up. */
static bool activation_narrows(const struct rf_op_call *call) {
    enum rf_dtype to = rf_op_out(call, 0)->desc.dtype;
    return type_of(call) == RF_F32 && (to == RF_F16 || to == RF_BF16);
}
static rf_status activation_check(const struct rf_op_call *call) {
    static const char *const names[] = {"gate", "up", "out"};
    if (call->attributes.kind < 0 || call->attributes.kind >= RF_ACTIVATION_COUNT)
        return rf_fail(RF_E_INVALID, "there is no activation %lld", (long long)call->attributes.kind);
    return check_sheets(call, names, activation_narrows(call));
}
static struct rf_activation_args activation_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *gate = &rf_op_in(call, 0)->desc;
    return (struct rf_activation_args){.rows = gate->shape[0],
                                       .columns = gate->shape[1],
                                       .out_row = rf_op_out(call, 0)->desc.strides[0],
                                       .gate_row = gate->strides[0],
                                       .up_row = rf_op_in(call, 1)->desc.strides[0],
                                       .kind = (uint32_t)call->attributes.kind};
}
static void activation_reference(const struct rf_op_call *call) {
    struct rf_activation_args args = activation_args(call);
    rf_ref_activation_to(rf_op_out(call, 0)->desc.dtype, rf_op_out_host(call, 0), type_of(call),
                         rf_op_in_host(call, 0), rf_op_in_host(call, 1), &args);
}
/* The CPU's products have no use for rows of 16 bits, so there is no fast way to make them. */
static rf_status activation_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_activation_args args = activation_args(call);
    if (activation_narrows(call)) {
        activation_reference(call);
        return RF_OK;
    }
    return rf_cpu_activation(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0),
                             rf_op_in_host(call, 1), &args);
}
static rf_status activation_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_activation_args args = activation_args(call);
    if (activation_narrows(call))
        return rf_gpu_activation_to(queue, rf_op_out(call, 0)->desc.dtype, rf_op_out_operand(call, 0),
                                    rf_op_in_operand(call, 0), rf_op_in_operand(call, 1), &args);
    return rf_gpu_activation(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                             rf_op_in_operand(call, 1), &args);
}
/* The same elements in another type. */
static struct rf_tensor_desc narrowed(struct rf_tensor_desc desc, enum rf_dtype to) {
    desc.byte_offset = desc.byte_offset / rf_dtype_bytes(desc.dtype) * rf_dtype_bytes(to);
    desc.dtype = to;
    return desc;
}
static void activation_cases(struct rf_case_list *list) {
    static const char *const kinds[RF_ACTIVATION_COUNT] = {" silu", " gelu", " gelu_erf"};
    for (size_t t = 0; t < 2 * RF_COUNT(rf_case_floats); t++)
        for (int kind = 0; kind < RF_ACTIVATION_COUNT; kind++)
            for (size_t i = 0; i <= RF_COUNT(sheet_shapes); i++)
                for (int gated = 0; gated < 2; gated++) {
                    bool narrow = t >= RF_COUNT(rf_case_floats);
                    enum rf_dtype to = rf_case_floats[t % RF_COUNT(rf_case_floats)], dtype = narrow ? RF_F32 : to;
                    struct rf_op_case one = {.attributes = {.kind = kind},
                                             .count = 3,
                                             .absolute = 4e-6,
                                             .relative = RF_MAX(2 * rf_op_step(to), 4e-6),
                                             .bench = i == RF_COUNT(sheet_shapes)};
                    if (narrow && to == RF_F32) continue;
                    if (one.bench && (!gated || (narrow && kind != RF_ACTIVATION_SILU))) continue;
                    if (!one.bench && i % 3 == 1) one.data = gated ? RF_DATA_EXTREME : RF_DATA_SPECIAL;
                    /* Numbers that f16 cannot hold become infinite, where an error of the last bit decides. */
                    if (narrow && to == RF_F16 && one.data == RF_DATA_EXTREME) one.data = RF_DATA_NORMAL;
                    sheet_tensors(&one, dtype, i, 2);
                    one.tensors[2] = narrowed(one.tensors[2], to);
                    if (!gated) one.tensors[1] = (struct rf_tensor_desc){0};
                    rf_case_add_shown(list, &one, 0, "%s%s%s%s", kinds[kind], gated ? ", up" : "",
                                      narrow ? " to " : "", narrow ? rf_dtype_name(to) : "");
                }
}
const struct rf_op rf_op_activation = {
    .name = "activation",
    .summary = "out = act(gate) * up; act by kind: silu, gelu, gelu_erf; f32 may give f16 or bf16",
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
    .cost = rf_op_cost_elements,
};

/* ---- multiply: a, b, c or none ---- */

static rf_status multiply_check(const struct rf_op_call *call) {
    static const char *const names[] = {"a", "b", "c", "out"};
    return check_sheets(call, names, false);
}
static struct rf_multiply_args multiply_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *a = &rf_op_in(call, 0)->desc;
    return (struct rf_multiply_args){.rows = a->shape[0],
                                     .columns = a->shape[1],
                                     .out_row = rf_op_out(call, 0)->desc.strides[0],
                                     .a_row = a->strides[0],
                                     .b_row = rf_op_in(call, 1)->desc.strides[0],
                                     .c_row = rf_op_in(call, 2)->desc.strides[0]};
}
static void multiply_reference(const struct rf_op_call *call) {
    struct rf_multiply_args args = multiply_args(call);
    rf_ref_multiply(type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in_host(call, 1),
                    rf_op_in_host(call, 2), &args);
}
static rf_status multiply_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_multiply_args args = multiply_args(call);
    return rf_cpu_multiply(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0),
                           rf_op_in_host(call, 1), rf_op_in_host(call, 2), &args);
}
static rf_status multiply_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_multiply_args args = multiply_args(call);
    return rf_gpu_multiply(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                           rf_op_in_operand(call, 1), rf_op_in_operand(call, 2), &args);
}
static void multiply_cases(struct rf_case_list *list) {
    /* Which inputs repeat one row (a bit for each), and whether c is given. */
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
    .cost = rf_op_cost_elements,
};
