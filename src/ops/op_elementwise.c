/* Rows of the table over dense arrays, element by element: fill, copy (with cast), add, scale.
 *
 * All are exact but for one rounding to the type. */
#include "ops/op_impl.h"

#include "cpu/fast.h"
#include "cpu/reference.h"

static const uint64_t lengths[] = {0, 1, 2, 3, 7, 16, 31, 64, 100, 255, 257, 1000, 1024, 4099, 65537};

/* Blocks of 256 threads, each thread with four vectors of 16 bytes. */
static uint32_t blocks_for(uint64_t count, size_t smallest_element) {
    uint64_t per_block = 256 * (64 / smallest_element), blocks = rf_ceil_div(count, per_block);
    return (uint32_t)RF_MIN(blocks, (uint64_t)1 << 20);
}

static rf_status check_floats(const struct rf_op_call *call, bool one_type) {
    for (int i = 0; i < call->count; i++) {
        const struct rf_tensor_desc *desc = &call->tensors[i].desc, *first = &call->tensors[0].desc;
        if (!rf_op_is_float(desc->dtype))
            return rf_fail(RF_E_UNSUPPORTED, "%s is not among f32, f16, bf16", rf_dtype_name(desc->dtype));
        if (!rf_op_same_shape(desc, first)) return rf_fail(RF_E_INVALID, "the shapes differ");
        if (one_type && desc->dtype != first->dtype)
            return rf_fail(RF_E_INVALID, "%s and %s: the types differ", rf_dtype_name(first->dtype),
                           rf_dtype_name(desc->dtype));
        if (!rf_op_contiguous(desc)) return rf_fail(RF_E_UNSUPPORTED, "tensor %d is not contiguous", i);
    }
    return RF_OK;
}
static rf_status same_check(const struct rf_op_call *call) {
    return check_floats(call, true);
}

/* The same length for all; an input's type, for kernels that have one. */
static uint64_t length_of(const struct rf_op_call *call) {
    return rf_op_elements(&call->tensors[0].desc);
}
static enum rf_dtype type_of(const struct rf_op_call *call) {
    return call->tensors[0].desc.dtype;
}
static void *in_host(const struct rf_op_call *call, int index) {
    return rf_op_host(rf_op_in(call, index));
}
static void *out_host(const struct rf_op_call *call) {
    return rf_op_host(rf_op_out(call, 0));
}

static void cost_of_moves(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 0;
}

/* One-dimensional cases of every length, aligned and not, for tensors of these types. */
static void add_lengths(struct rf_case_list *list, const char *types, const enum rf_dtype *dtypes, int count,
                        struct rf_op_attributes attributes, double relative) {
    static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_EXTREME, RF_DATA_SPECIAL};
    static const char *const text[] = {"", " off by one, extreme", " apart, special"};
    struct rf_op_case one = {.attributes = attributes, .count = count, .absolute = 1e-30, .relative = relative};
    for (size_t i = 0; i < RF_COUNT(lengths); i++)
        for (uint64_t shift = 0; shift < 3; shift++) {
            one.data = data[shift];
            /* Off by one element in all, then in each tensor by another number. */
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

/* ---- fill: out = f[0], or i[0] where it is i32 ---- */

static rf_status fill_check(const struct rf_op_call *call) {
    if (type_of(call) != RF_F32 && type_of(call) != RF_I32)
        return rf_fail(RF_E_UNSUPPORTED, "%s: only f32 and i32 are filled", rf_dtype_name(type_of(call)));
    if (type_of(call) == RF_I32 && (call->attributes.integer < INT32_MIN || call->attributes.integer > INT32_MAX))
        return rf_fail(RF_E_INVALID, "%lld is no i32", (long long)call->attributes.integer);
    return rf_need_dense(rf_op_out(call, 0), "out");
}
static void fill_reference(const struct rf_op_call *call) {
    if (type_of(call) == RF_I32)
        rf_ref_fill_u32(out_host(call), (uint32_t)call->attributes.integer, length_of(call));
    else
        rf_ref_fill_f32(out_host(call), (float)call->attributes.value, length_of(call));
}
static rf_status fill_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    bool integers = type_of(call) == RF_I32;
    struct rf_arg args[] = {rf_op_arg(rf_op_out(call, 0)),
                            integers ? rf_arg_u32((uint32_t)call->attributes.integer)
                                     : rf_arg_f32((float)call->attributes.value),
                            rf_arg_u64(length_of(call))};
    return rf_op_launch(queue, integers ? "fill_u32" : "fill_f32", rf_grid_line(blocks_for(length_of(call), 4), 256),
                        args, RF_COUNT(args));
}
static void fill_cases(struct rf_case_list *list) {
    static const enum rf_dtype types[] = {RF_F32, RF_I32};
    for (size_t i = 0; i < RF_COUNT(types); i++)
        add_lengths(list, rf_dtype_name(types[i]), &types[i], 1,
                    (struct rf_op_attributes){.value = -1.5, .integer = -123456789}, 0);
}
const struct rf_op rf_op_fill = {
    .name = "fill",
    .summary = "out[i] = eps; i[0] where it is i32",
    .inputs = 0,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(value, 0), RF_ATTRIBUTE_I(integer, 0)),
    .check = fill_check,
    .reference = fill_reference,
    .gpu = fill_gpu,
    .cases = fill_cases,
    .cost = cost_of_moves,
};

/* ---- copy: out = in, cast to out's type ---- */

static rf_status copy_check(const struct rf_op_call *call) {
    return check_floats(call, false);
}
static void copy_reference(const struct rf_op_call *call) {
    rf_ref_copy(rf_op_out(call, 0)->desc.dtype, out_host(call), type_of(call), in_host(call, 0), length_of(call));
}
static rf_status copy_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    return rf_cpu_cast(cpu, rf_op_out(call, 0)->desc.dtype, out_host(call), type_of(call), in_host(call, 0),
                       length_of(call));
}
static rf_status copy_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    enum rf_dtype from = type_of(call), to = rf_op_out(call, 0)->desc.dtype;
    char kernel[48];
    snprintf(kernel, sizeof kernel, "copy_%s_%s", rf_dtype_name(from), rf_dtype_name(to));
    struct rf_arg args[] = {rf_op_arg(rf_op_out(call, 0)), rf_op_arg(rf_op_in(call, 0)), rf_arg_u64(length_of(call))};
    size_t element = RF_MAX(rf_dtype_bytes(from), rf_dtype_bytes(to));
    return rf_op_launch(queue, kernel, rf_grid_line(blocks_for(length_of(call), element), 256), args, RF_COUNT(args));
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
    .cost = cost_of_moves,
};

/* ---- add; scale by f[0] ---- */

static rf_status launch(struct rf_queue *queue, const struct rf_op_call *call, const struct rf_arg *args,
                        size_t count) {
    char kernel[32];
    snprintf(kernel, sizeof kernel, "%s_%s", call->op->name, rf_dtype_name(type_of(call)));
    return rf_op_launch(queue, kernel, rf_grid_line(blocks_for(length_of(call), rf_dtype_bytes(type_of(call))), 256),
                        args, count);
}
static void same_cases(struct rf_case_list *list, int tensors) {
    for (size_t i = 0; i < RF_COUNT(rf_case_floats); i++) {
        enum rf_dtype types[] = {rf_case_floats[i], rf_case_floats[i], rf_case_floats[i]};
        add_lengths(list, rf_dtype_name(types[0]), types, tensors, (struct rf_op_attributes){.scale = -1.75},
                    rf_op_step(types[0]));
    }
}

static void add_reference(const struct rf_op_call *call) {
    rf_ref_add(type_of(call), out_host(call), in_host(call, 0), in_host(call, 1), length_of(call));
}
static rf_status add_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    return rf_cpu_add(cpu, type_of(call), out_host(call), in_host(call, 0), in_host(call, 1), length_of(call));
}
static rf_status add_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_arg args[] = {rf_op_arg(rf_op_out(call, 0)), rf_op_arg(rf_op_in(call, 0)), rf_op_arg(rf_op_in(call, 1)),
                            rf_arg_u64(length_of(call))};
    return launch(queue, call, args, RF_COUNT(args));
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
    .check = same_check,
    .reference = add_reference,
    .gpu = add_gpu,
    .cpu = add_cpu,
    .cases = add_cases,
    .cost = cost_of_moves,
};

static void scale_reference(const struct rf_op_call *call) {
    rf_ref_scale(type_of(call), out_host(call), in_host(call, 0), (float)call->attributes.scale, length_of(call));
}
static rf_status scale_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    return rf_cpu_scale(cpu, type_of(call), out_host(call), in_host(call, 0), (float)call->attributes.scale,
                        length_of(call));
}
static rf_status scale_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_arg args[] = {rf_op_arg(rf_op_out(call, 0)), rf_op_arg(rf_op_in(call, 0)),
                            rf_arg_f32((float)call->attributes.scale), rf_arg_u64(length_of(call))};
    return launch(queue, call, args, RF_COUNT(args));
}
static void scale_cases(struct rf_case_list *list) {
    same_cases(list, 2);
}
const struct rf_op rf_op_scale = {
    .name = "scale",
    .summary = "out[i] = in[i] * eps",
    .inputs = 1,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0)),
    .in_place = 1 << 0,
    .check = same_check,
    .reference = scale_reference,
    .gpu = scale_gpu,
    .cpu = scale_cpu,
    .cases = scale_cases,
    .cost = cost_of_moves,
};
