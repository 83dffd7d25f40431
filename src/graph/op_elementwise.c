/* fill, copy (with cast), add, scale. */
#include "graph/op.h"

#include <stdio.h>

#include "cpu/reference.h"

static const enum rf_dtype floats[] = {RF_F32, RF_F16, RF_BF16};
static const uint64_t lengths[] = {1, 2, 3, 7, 16, 31, 64, 100, 255, 257, 1000, 1024, 4099, 65537};

/* Blocks of 256 threads, each thread with four vectors of 16 bytes. */
static uint32_t blocks_for(uint64_t count, size_t smallest_element) {
    uint64_t per_block = 256 * (64 / smallest_element), blocks = (count + per_block - 1) / per_block;
    return (uint32_t)RF_MIN(blocks, (uint64_t)1 << 20);
}

static rf_status check_floats(const struct rf_op_call *call, bool one_type) {
    for (int i = 0; i < call->count; i++) {
        const struct rf_tensor_desc *desc = &call->tensors[i].desc;
        if (!rf_op_is_float(desc->dtype))
            return rf_fail(RF_E_UNSUPPORTED, "%s is not among f32, f16, bf16", rf_dtype_name(desc->dtype));
        if (!rf_op_same_shape(desc, &call->tensors[0].desc)) return rf_fail(RF_E_INVALID, "the shapes differ");
        if (one_type && desc->dtype != call->tensors[0].desc.dtype)
            return rf_fail(RF_E_INVALID, "%s and %s: the types differ", rf_dtype_name(call->tensors[0].desc.dtype),
                           rf_dtype_name(desc->dtype));
        if (!rf_op_contiguous(desc)) return rf_fail(RF_E_UNSUPPORTED, "tensor %d is not contiguous", i);
    }
    return RF_OK;
}

static void simple_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = *flops = 0;
    for (int i = 0; i < call->count; i++) *bytes += call->tensors[i].bytes - call->tensors[i].desc.byte_offset;
}

/* One-dimensional cases of every length, aligned and not, for tensors of these types. */
static void add_lengths(struct rf_case_list *list, const char *types, const enum rf_dtype *dtypes, int count,
                        struct rf_op_attributes attributes, double relative) {
    for (size_t i = 0; i < RF_COUNT(lengths); i++)
        for (int shift = 0; shift < 3; shift++) {
            static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_EXTREME, RF_DATA_SPECIAL};
            struct rf_op_case one = {.attributes = attributes,
                                     .count = count,
                                     .data = data[shift],
                                     .absolute = 1e-30,
                                     .relative = relative};
            for (int t = 0; t < count; t++) {
                /* Off by one element in all, then in each tensor by another number. */
                uint64_t skip = shift == 0 ? 0 : shift == 1 ? 1 : (uint64_t)t + 1;
                one.tensors[t] = (struct rf_tensor_desc){.dtype = dtypes[t],
                                                         .rank = 1,
                                                         .shape = {lengths[i]},
                                                         .byte_offset = skip * rf_dtype_bytes(dtypes[t])};
            }
            snprintf(one.label, sizeof one.label, "%s %llu%s", types, (unsigned long long)lengths[i],
                     shift == 0   ? ""
                     : shift == 1 ? " off by one, extreme"
                                  : " apart, special");
            rf_case_add(list, &one);
        }
    struct rf_op_case large = {
        .attributes = attributes, .count = count, .bench = true, .absolute = 1e-30, .relative = relative};
    for (int t = 0; t < count; t++)
        large.tensors[t] = (struct rf_tensor_desc){
            .dtype = dtypes[t], .rank = 1, .shape = {(uint64_t)(256 << 20) / rf_dtype_bytes(dtypes[0])}};
    snprintf(large.label, sizeof large.label, "%s 256 MiB", types);
    rf_case_add(list, &large);
}

/* ---- fill: out = f[0] ---- */

static rf_status fill_check(const struct rf_op_call *call) {
    if (call->tensors[0].desc.dtype != RF_F32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: only f32 is filled", rf_dtype_name(call->tensors[0].desc.dtype));
    return check_floats(call, true);
}
static void fill_reference(const struct rf_op_call *call) {
    rf_ref_fill_f32(rf_op_host(rf_op_out(call, 0)), (float)call->attributes.f[0],
                    rf_op_elements(&rf_op_out(call, 0)->desc));
}
static rf_status fill_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    uint64_t count = rf_op_elements(&rf_op_out(call, 0)->desc);
    struct rf_arg args[] = {rf_op_arg(rf_op_out(call, 0)), rf_arg_f32((float)call->attributes.f[0]),
                            rf_arg_i64((int64_t)count)};
    return rf_op_launch(queue, "fill_f32", blocks_for(count, 4), 256, args, RF_COUNT(args));
}
static void fill_cases(struct rf_case_list *list) {
    add_lengths(list, "f32", floats, 1, (struct rf_op_attributes){.f = {-1.5}}, 0);
}
const struct rf_op rf_op_fill = {
    .name = "fill",
    .summary = "out[i] = f[0]",
    .inputs = 0,
    .outputs = 1,
    .check = fill_check,
    .reference = fill_reference,
    .gpu = fill_gpu,
    .cases = fill_cases,
    .cost = simple_cost,
};

/* ---- copy: out = in, cast to out's type ---- */

static rf_status copy_check(const struct rf_op_call *call) {
    return check_floats(call, false);
}
static void copy_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    rf_ref_copy(out->desc.dtype, rf_op_host(out), in->desc.dtype, rf_op_host(in), rf_op_elements(&in->desc));
}
static rf_status copy_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    uint64_t count = rf_op_elements(&in->desc);
    char kernel[48];
    snprintf(kernel, sizeof kernel, "copy_%s_%s", rf_dtype_name(in->desc.dtype), rf_dtype_name(out->desc.dtype));
    struct rf_arg args[] = {rf_op_arg(out), rf_op_arg(in), rf_arg_i64((int64_t)count)};
    size_t element = RF_MAX(rf_dtype_bytes(in->desc.dtype), rf_dtype_bytes(out->desc.dtype));
    return rf_op_launch(queue, kernel, blocks_for(count, element), 256, args, RF_COUNT(args));
}
static void copy_cases(struct rf_case_list *list) {
    for (size_t from = 0; from < RF_COUNT(floats); from++)
        for (size_t to = 0; to < RF_COUNT(floats); to++) {
            enum rf_dtype types[] = {floats[from], floats[to]};
            char text[32];
            snprintf(text, sizeof text, "%s to %s", rf_dtype_name(types[0]), rf_dtype_name(types[1]));
            add_lengths(list, text, types, 2, (struct rf_op_attributes){{0}, {0}}, 0);
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
    .cases = copy_cases,
    .cost = simple_cost,
};

/* ---- add, scale ---- */

static rf_status same_check(const struct rf_op_call *call) {
    return check_floats(call, true);
}
static void add_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0), *b = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    rf_ref_add(a->desc.dtype, rf_op_host(out), rf_op_host(a), rf_op_host(b), rf_op_elements(&a->desc));
}
static rf_status add_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *a = rf_op_in(call, 0), *b = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    uint64_t count = rf_op_elements(&a->desc);
    char kernel[32];
    snprintf(kernel, sizeof kernel, "add_%s", rf_dtype_name(a->desc.dtype));
    struct rf_arg args[] = {rf_op_arg(out), rf_op_arg(a), rf_op_arg(b), rf_arg_i64((int64_t)count)};
    return rf_op_launch(queue, kernel, blocks_for(count, rf_dtype_bytes(a->desc.dtype)), 256, args, RF_COUNT(args));
}
static void scale_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    rf_ref_scale(in->desc.dtype, rf_op_host(out), rf_op_host(in), (float)call->attributes.f[0],
                 rf_op_elements(&in->desc));
}
static rf_status scale_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    uint64_t count = rf_op_elements(&in->desc);
    char kernel[32];
    snprintf(kernel, sizeof kernel, "scale_%s", rf_dtype_name(in->desc.dtype));
    struct rf_arg args[] = {rf_op_arg(out), rf_op_arg(in), rf_arg_f32((float)call->attributes.f[0]),
                            rf_arg_i64((int64_t)count)};
    return rf_op_launch(queue, kernel, blocks_for(count, rf_dtype_bytes(in->desc.dtype)), 256, args, RF_COUNT(args));
}
static void cases_of(struct rf_case_list *list, int tensors) {
    for (size_t i = 0; i < RF_COUNT(floats); i++) {
        enum rf_dtype types[] = {floats[i], floats[i], floats[i]};
        add_lengths(list, rf_dtype_name(floats[i]), types, tensors, (struct rf_op_attributes){.f = {-1.75}},
                    rf_op_step(floats[i]));
    }
}
static void add_cases(struct rf_case_list *list) {
    cases_of(list, 3);
}
static void scale_cases(struct rf_case_list *list) {
    cases_of(list, 2);
}

const struct rf_op rf_op_add = {
    .name = "add",
    .summary = "out[i] = a[i] + b[i]",
    .inputs = 2,
    .outputs = 1,
    .check = same_check,
    .reference = add_reference,
    .gpu = add_gpu,
    .cases = add_cases,
    .cost = simple_cost,
};
const struct rf_op rf_op_scale = {
    .name = "scale",
    .summary = "out[i] = in[i] * f[0]",
    .inputs = 1,
    .outputs = 1,
    .check = same_check,
    .reference = scale_reference,
    .gpu = scale_gpu,
    .cases = scale_cases,
    .cost = simple_cost,
};
