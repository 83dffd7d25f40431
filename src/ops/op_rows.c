/* Rows of the table over the rows of a dense matrix: softmax, rms_norm. Their kernels are launched from here; other
 * norms: op_transformer.c. */
#include "ops/op_impl.h"

#include "cpu/fast.h"
#include "cpu/reference.h"

static const struct {
    uint64_t rows, columns;
} shapes[] = {{1, 1},    {3, 2},     {5, 7},     {2, 33},    {17, 65},  {4, 512}, {3, 1021}, {2, 1024}, {2, 4096},
              {5, 2049}, {1, 16384}, {1, 20011}, {2, 32768}, {64, 128}, {33, 31}, {0, 5},    {3, 0}};

static rf_status check_rows(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_rank(in, "in", 2));
    RF_TRY(rf_need_like(out, "out", in, "in"));
    RF_TRY(rf_need_dense(in, "in"));
    return rf_need_dense(out, "out");
}

/* A row per wave where a wave holds it (64 bytes a lane), else the fewest waves that do. */
static rf_status launch_rows(struct rf_queue *queue, const char *kernel, const struct rf_tensor_desc *desc,
                             const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_device_info, info);
    rf_status status = rf_device_get_info(rf_queue_device(queue), &info);
    if (status) return status;
    uint64_t wave = (uint64_t)info.wave_size, held = wave * 64 / rf_dtype_bytes(desc->dtype);
    uint64_t rows = desc->shape[0], columns = desc->shape[1], threads = 256, blocks;
    if (!columns) return RF_OK;
    if (columns <= held) {
        blocks = (rows + threads / wave - 1) / (threads / wave);
    } else {
        threads = RF_MIN((columns + held - 1) / held * wave, (uint64_t)1024);
        blocks = rows;
    }
    return rf_op_launch(queue, kernel, rf_grid_line((uint32_t)RF_MIN(blocks, (uint64_t)1 << 30), (uint32_t)threads),
                        args, count);
}

static void cost_rows(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 4 * rf_op_elements(&rf_op_in(call, 0)->desc);
}

static void add_shapes(struct rf_case_list *list, enum rf_dtype dtype, bool weight, struct rf_op_case one) {
    for (size_t i = 0; i <= RF_COUNT(shapes); i++)
        for (uint64_t skip = 0; skip <= 3; skip += 3) {
            one.bench = i == RF_COUNT(shapes);
            uint64_t rows = one.bench ? ((uint64_t)256 << 20) / rf_dtype_bytes(dtype) / 4096 : shapes[i].rows;
            uint64_t columns = one.bench ? 4096 : shapes[i].columns;
            if (one.bench && (skip || one.data != RF_DATA_NORMAL)) continue;
            one.count = 0;
            one.tensors[one.count++] = rf_case_matrix(dtype, rows, columns, 0, skip);
            if (weight) one.tensors[one.count++] = rf_case_vector(RF_F32, columns, skip);
            one.tensors[one.count++] = rf_case_matrix(dtype, rows, columns, 0, skip);
            rf_case_add_shown(list, &one, 0, "%s", "");
        }
}

/* ---- softmax ---- */

static rf_status softmax_check(const struct rf_op_call *call) {
    RF_TRY(rf_need_type(rf_op_in(call, 0), "in", RF_F32));
    return check_rows(call);
}
static void softmax_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    rf_ref_softmax_f32(rf_op_host(out), rf_op_host(in), in->desc.shape[0], in->desc.shape[1]);
}
static rf_status softmax_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    return rf_cpu_softmax_mask(cpu, rf_op_host(out), rf_op_host(in), RF_F32, NULL, in->desc.shape[0],
                               in->desc.shape[1], 1, 1, 1.0f);
}
static rf_status softmax_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_arg args[] = {rf_op_arg(out), rf_op_arg(in), rf_arg_u64(in->desc.shape[0]),
                            rf_arg_u64(in->desc.shape[1])};
    return launch_rows(queue, "softmax_f32", &in->desc, args, RF_COUNT(args));
}
static void softmax_cases(struct rf_case_list *list) {
    static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_MASKED, RF_DATA_EXTREME};
    for (size_t i = 0; i < RF_COUNT(data); i++)
        add_shapes(list, RF_F32, false,
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
    .cost = cost_rows,
};

/* ---- rms_norm: f[0] is eps ---- */

static rf_status norm_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0);
    RF_TRY(rf_need_float(in, "in"));
    RF_TRY(check_rows(call));
    return rf_need_vector(rf_op_in(call, 1), "weight", in->desc.shape[1]);
}
static void norm_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *weight = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    rf_ref_rms_norm(in->desc.dtype, rf_op_host(out), rf_op_host(in), rf_op_host(weight), in->desc.shape[0],
                    in->desc.shape[1], (float)call->attributes.eps);
}
static rf_status norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *weight = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    return rf_cpu_rms_norm(cpu, in->desc.dtype, rf_op_host(out), rf_op_host(in), rf_op_host(weight),
                           in->desc.shape[0], in->desc.shape[1], (float)call->attributes.eps);
}
static rf_status norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *weight = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    char kernel[32];
    snprintf(kernel, sizeof kernel, "rms_norm_%s", rf_dtype_name(in->desc.dtype));
    struct rf_arg args[] = {rf_op_arg(out),
                            rf_op_arg(in),
                            rf_op_arg(weight),
                            rf_arg_u64(in->desc.shape[0]),
                            rf_arg_u64(in->desc.shape[1]),
                            rf_arg_f32((float)call->attributes.eps)};
    return launch_rows(queue, kernel, &in->desc, args, RF_COUNT(args));
}
static void norm_cases(struct rf_case_list *list) {
    for (size_t i = 0; i < RF_COUNT(rf_case_floats); i++)
        add_shapes(list, rf_case_floats[i], true,
                   (struct rf_op_case){.attributes = {.eps = 1e-5},
                                       .absolute = 1e-6,
                                       .relative = RF_MAX(2 * rf_op_step(rf_case_floats[i]), 1e-5)});
}
const struct rf_op rf_op_rms_norm = {
    .name = "rms_norm",
    .summary = "out[r][c] = in[r][c] / sqrt(mean(in[r]^2) + eps) * weight[c]",
    .inputs = 2,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .in_place = 1 << 0,
    .check = norm_check,
    .reference = norm_reference,
    .gpu = norm_gpu,
    .cpu = norm_cpu,
    .cases = norm_cases,
    .cost = cost_rows,
};
