/* Rows of the table for the norms and softmax: rms_norm, layer_norm, add_norm, softmax, softmax_mask.
 *
 * A row gives shapes, types and cases. kernels/norm_args.h says what each op computes, cpu/reference.h defines it in
 * code, and cpu/fast.h and ops/gpu_norm.h compute it. */
#include "ops/op_impl.h"

#include "cpu/fast.h"
#include "cpu/reference.h"
#include "ops/gpu_norm.h"

static enum rf_dtype type_of(const struct rf_op_call *call) {
    return call->tensors[0].desc.dtype;
}

/* The arguments of all norms: the rows of input 0. */
static struct rf_norm_args norm_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &call->tensors[0].desc;
    return (struct rf_norm_args){.rows = in->shape[0], .columns = in->shape[1], .eps = (float)call->attributes.eps};
}

/* in and out must be dense matrices of one type. */
static rf_status check_rows(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_rank(in, "in", 2));
    RF_TRY(rf_need_like(out, "out", in, "in"));
    RF_TRY(rf_need_dense(in, "in"));
    return rf_need_dense(out, "out");
}

/* Matrices for the cases of softmax and rms_norm; the last two are empty. */
static const struct {
    uint64_t rows, columns;
} softmax_shapes[] = {{1, 1},     {3, 2},    {5, 7},    {2, 33},   {17, 65},   {4, 512},
                      {3, 1021},  {2, 1024}, {2, 4096}, {5, 2049}, {1, 16384}, {1, 20011},
                      {2, 32768}, {64, 128}, {33, 31},  {0, 5},    {3, 0}};

static void add_shapes(struct rf_case_list *list, enum rf_dtype dtype, enum rf_dtype to, bool weight,
                       struct rf_op_case one) {
    for (size_t i = 0; i <= RF_COUNT(softmax_shapes); i++)
        for (uint64_t skip = 0; skip <= 3; skip += 3) {
            one.bench = i == RF_COUNT(softmax_shapes);
            uint64_t rows = one.bench ? rf_case_bench_rows(dtype) : softmax_shapes[i].rows;
            uint64_t columns = one.bench ? RF_CASE_BENCH_COLUMNS : softmax_shapes[i].columns;
            if (one.bench && (skip || one.data != RF_DATA_NORMAL)) continue;
            one.count = 0;
            one.tensors[one.count++] = rf_case_matrix(dtype, rows, columns, 0, skip);
            if (weight) one.tensors[one.count++] = rf_case_vector(RF_F32, columns, skip);
            one.tensors[one.count++] = rf_case_matrix(to, rows, columns, 0, skip);
            rf_case_add_shown(list, &one, 0, "%s%s", to == dtype ? "" : " to ", to == dtype ? "" : rf_dtype_name(to));
        }
}

/* Matrices for the cases of layer_norm and add_norm; the last two are empty. */
static const struct {
    uint64_t rows, columns;
} row_shapes[] = {{1, 1},    {3, 2},    {5, 7},    {9, 33},    {4, 512}, {3, 1021},
                  {2, 2560}, {2, 4096}, {1, 8200}, {1, 16421}, {0, 7},   {3, 0}};

/* ---- rms_norm ---- */

/* Rows of f32 may become rows of 16 bits; otherwise out has the type of in. */
static bool rms_norm_narrows(const struct rf_op_call *call) {
    enum rf_dtype to = rf_op_out(call, 0)->desc.dtype;
    return type_of(call) == RF_F32 && (to == RF_F16 || to == RF_BF16);
}
static rf_status rms_norm_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0);
    RF_TRY(rf_need_float(in, "in"));
    if (rms_norm_narrows(call)) {
        RF_TRY(rf_need_rank(in, "in", 2));
        RF_TRY(rf_need_shape(rf_op_out(call, 0), "out", in, "in"));
        RF_TRY(rf_need_dense(in, "in"));
        RF_TRY(rf_need_dense(rf_op_out(call, 0), "out"));
    } else {
        RF_TRY(check_rows(call));
    }
    return rf_need_vector(rf_op_in(call, 1), "weight", in->desc.shape[1]);
}
static void rms_norm_reference(const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    rf_ref_rms_norm_to(rf_op_out(call, 0)->desc.dtype, rf_op_out_host(call, 0), type_of(call), rf_op_in_host(call, 0),
                       rf_op_in_host(call, 1), &args);
}
/* The CPU's products have no use for rows of 16 bits, so there is no fast way to make them. */
static rf_status rms_norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    if (rms_norm_narrows(call)) {
        rms_norm_reference(call);
        return RF_OK;
    }
    return rf_cpu_rms_norm(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0),
                           rf_op_in_host(call, 1), &args);
}
static rf_status rms_norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    if (rms_norm_narrows(call))
        return rf_gpu_rms_norm_to(queue, rf_op_out(call, 0)->desc.dtype, rf_op_out_operand(call, 0),
                                  rf_op_in_operand(call, 0), rf_op_in_operand(call, 1), &args);
    return rf_gpu_rms_norm(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                           rf_op_in_operand(call, 1), &args);
}
static void rms_norm_cases(struct rf_case_list *list) {
    for (size_t i = 0; i < RF_COUNT(rf_case_floats); i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            enum rf_dtype to = rf_case_floats[i], from = narrow ? RF_F32 : to;
            if (narrow && to == RF_F32) continue;
            add_shapes(list, from, to, true,
                       (struct rf_op_case){.attributes = {.eps = 1e-5},
                                           .absolute = 1e-6,
                                           .relative = RF_MAX(2 * rf_op_step(to), 1e-5)});
        }
}
const struct rf_op rf_op_rms_norm = {
    .name = "rms_norm",
    .summary = "out[r][c] = in[r][c] / sqrt(mean(in[r]^2) + eps) * weight[c]; f32 in may give f16 or bf16",
    .inputs = 2,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .in_place = 1 << 0,
    .check = rms_norm_check,
    .reference = rms_norm_reference,
    .gpu = rms_norm_gpu,
    .cpu = rms_norm_cpu,
    .cases = rms_norm_cases,
    .cost = rf_op_cost_elements,
};

/* ---- layer_norm: in, weight or none, bias or none ---- */

static rf_status layer_norm_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *weight = rf_op_in(call, 1), *bias = rf_op_in(call, 2);
    RF_TRY(rf_need_float(in, "in"));
    RF_TRY(check_rows(call));
    if (rf_op_given(weight)) RF_TRY(rf_need_vector(weight, "weight", in->desc.shape[1]));
    if (rf_op_given(bias)) RF_TRY(rf_need_vector(bias, "bias", in->desc.shape[1]));
    return RF_OK;
}
static void layer_norm_reference(const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    rf_ref_layer_norm(type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in_host(call, 1),
                      rf_op_in_host(call, 2), &args);
}
static rf_status layer_norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    return rf_cpu_layer_norm(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_in_host(call, 0),
                             rf_op_in_host(call, 1), rf_op_in_host(call, 2), &args);
}
static rf_status layer_norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    return rf_gpu_layer_norm(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                             rf_op_in_operand(call, 1), rf_op_in_operand(call, 2), &args);
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
                uint64_t rows = one.bench ? rf_case_bench_rows(dtype) : row_shapes[i].rows;
                uint64_t columns = one.bench ? RF_CASE_BENCH_COLUMNS : row_shapes[i].columns;
                /* Extreme values are used without a weight only: a weight would magnify the error of cancellation
                 * near the mean. */
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
    .cost = rf_op_cost_elements,
};

/* ---- add_norm: a, b, weight or none; sum, out ---- */

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
    struct rf_norm_args args = norm_args(call);
    rf_ref_add_rms_norm(type_of(call), rf_op_out_host(call, 0), rf_op_out_host(call, 1), rf_op_in_host(call, 0),
                        rf_op_in_host(call, 1), rf_op_in_host(call, 2), &args);
}
static rf_status add_norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    return rf_cpu_add_rms_norm(cpu, type_of(call), rf_op_out_host(call, 0), rf_op_out_host(call, 1),
                               rf_op_in_host(call, 0), rf_op_in_host(call, 1), rf_op_in_host(call, 2), &args);
}
static rf_status add_norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_norm_args args = norm_args(call);
    return rf_gpu_add_rms_norm(queue, type_of(call), rf_op_out_operand(call, 0), rf_op_out_operand(call, 1),
                               rf_op_in_operand(call, 0), rf_op_in_operand(call, 1), rf_op_in_operand(call, 2),
                               &args);
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
                uint64_t rows = one.bench ? rf_case_bench_rows(dtype) : row_shapes[i].rows;
                uint64_t columns = one.bench ? RF_CASE_BENCH_COLUMNS : row_shapes[i].columns;
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
    .cost = rf_op_cost_elements,
};

/* ---- softmax ---- */

static rf_status softmax_check(const struct rf_op_call *call) {
    RF_TRY(rf_need_type(rf_op_in(call, 0), "in", RF_F32));
    return check_rows(call);
}
static struct rf_softmax_args softmax_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc;
    return (struct rf_softmax_args){
        .rows = in->shape[0], .columns = in->shape[1], .rows_each = 1, .heads = 1, .scale = 1.0f};
}
static void softmax_reference(const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_args(call);
    rf_ref_softmax(rf_op_out_host(call, 0), rf_op_in_host(call, 0), &args);
}
static rf_status softmax_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_args(call);
    return rf_cpu_softmax_mask(cpu, rf_op_out_host(call, 0), rf_op_in_host(call, 0), RF_F32, NULL, &args);
}
static rf_status softmax_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_args(call);
    return rf_gpu_softmax(queue, rf_op_out_operand(call, 0), rf_op_in_operand(call, 0), &args);
}
static void softmax_cases(struct rf_case_list *list) {
    static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_MASKED, RF_DATA_EXTREME};
    for (size_t i = 0; i < RF_COUNT(data); i++)
        add_shapes(list, RF_F32, RF_F32, false,
                   (struct rf_op_case){
                       .data = data[i], .absolute = 1e-7, .relative = data[i] == RF_DATA_EXTREME ? 1e-4 : 1e-5});
}
const struct rf_op rf_op_softmax = {
    .name = "softmax",
    .summary = "out[r] = exp(in[r] - max) / sum; a row of -inf gives zeros",
    .inputs = 1,
    .outputs = 1,
    .in_place = 1 << 0,
    .check = softmax_check,
    .reference = softmax_reference,
    .gpu = softmax_gpu,
    .cpu = softmax_cpu,
    .cases = softmax_cases,
    .cost = rf_op_cost_elements,
};

/* ---- softmax_mask: in [batch, heads, rows, columns], mask [batch or 1, rows, columns] or none ---- */

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
static struct rf_softmax_args softmax_mask_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *mask = &rf_op_in(call, 1)->desc;
    bool one_mask = mask->rank && mask->shape[0] == 1; /* one mask for all batches */
    return (struct rf_softmax_args){.rows = in->shape[0] * in->shape[1] * in->shape[2],
                                    .columns = in->shape[3],
                                    .rows_each = in->shape[2],
                                    .heads = one_mask ? in->shape[0] * in->shape[1] : in->shape[1],
                                    .scale = (float)call->attributes.scale};
}
static void softmax_mask_reference(const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_mask_args(call);
    rf_ref_softmax_mask(rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in(call, 1)->desc.dtype,
                        rf_op_in_host(call, 1), &args);
}
static rf_status softmax_mask_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_mask_args(call);
    return rf_cpu_softmax_mask(cpu, rf_op_out_host(call, 0), rf_op_in_host(call, 0), rf_op_in(call, 1)->desc.dtype,
                               rf_op_in_host(call, 1), &args);
}
static rf_status softmax_mask_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_softmax_args args = softmax_mask_args(call);
    return rf_gpu_softmax_mask(queue, rf_op_out_operand(call, 0), rf_op_in_operand(call, 0),
                               rf_op_in(call, 1)->desc.dtype, rf_op_in_operand(call, 1), &args);
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
                /* The exponent may be off by half a step of an f32 of 4e4 (a mask) or 400 (a score), twice. */
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
    .cost = rf_op_cost_elements,
};
