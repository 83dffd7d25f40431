/* Rows of the table for ops that only move elements: transpose (any permutation; copies and casts over strides) and
 * concat. kernels/move_args.h says what their arguments mean.
 *
 * An element keeps its bits if its type does not change: the tolerance of every case is 0. */
#include "ops/op_impl.h"

#include "cpu/reference.h"
#include "ops/gpu_move.h"

/* ---- transpose: one index for in and out, each with strides of its own ---- */

static rf_status transpose_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    if (in->desc.rank < 1 || in->desc.rank > 4) return rf_fail(RF_E_INVALID, "rank %d: 1 to 4", in->desc.rank);
    if (!rf_op_same_shape(&in->desc, &out->desc))
        return rf_fail(RF_E_INVALID, "the shapes of in and out differ: a permutation is a view with other strides");
    if (in->desc.dtype != RF_I32 || out->desc.dtype != RF_I32) {
        RF_TRY(rf_need_float(in, "in"));
        RF_TRY(rf_need_float(out, "out"));
    }
    return rf_need_distinct(out, "out");
}
static struct rf_permute_args transpose_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *out = &rf_op_out(call, 0)->desc;
    struct rf_permute_args args = {.size = {1, 1, 1, 1}};
    for (int i = 0; i < in->rank; i++) {
        args.size[i] = in->shape[i];
        args.in_stride[i] = in->strides[i];
        args.out_stride[i] = out->strides[i];
    }
    return args;
}
static void transpose_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_permute_args args = transpose_args(call);
    bool integers = in->desc.dtype == RF_I32; /* moves four bytes to four bytes */
    rf_ref_permute(integers ? RF_F32 : out->desc.dtype, rf_op_host(out), integers ? RF_F32 : in->desc.dtype,
                   rf_op_host(in), &args);
}
static rf_status transpose_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_permute_args args = transpose_args(call);
    return rf_gpu_permute(queue, out->desc.dtype, rf_op_operand(out), in->desc.dtype, rf_op_operand(in), &args);
}

/* Gives a tensor the strides of this order of dimensions, outermost first, with 'gap' elements behind each row of the
 * innermost dimension. */
static void lay(struct rf_tensor_desc *desc, const int *order, uint64_t gap) {
    uint64_t step = 1;
    for (int i = desc->rank; i-- > 0;) {
        desc->strides[order[i]] = step;
        step *= RF_MAX(desc->shape[order[i]], (uint64_t)1);
        if (i == desc->rank - 1) step += gap;
    }
}
static void transpose_cases(struct rf_case_list *list) {
    static const uint64_t shapes[][4] = {{1, 1, 1, 1},  {2, 3, 5, 7},   {1, 1, 40, 70}, {3, 1, 33, 65},
                                         {2, 4, 8, 32}, {1, 1, 1, 700}, {1, 16, 1, 64}, {2, 0, 3, 4}};
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
    static const enum rf_dtype all[] = {RF_F32, RF_F16, RF_BF16, RF_I32};
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (size_t k = 0; k < RF_COUNT(orders); k++)
            for (size_t from = 0; from < RF_COUNT(all); from++)
                for (int cast = 0; cast < 2; cast++) {
                    /* The same type, or another type, which changes from case to case. */
                    size_t to = cast ? (from + 1 + (i + k) % 2) % 3 : from;
                    if (cast && from == 3) continue;
                    struct rf_op_case one = {.count = 2, .data = cast ? RF_DATA_EXTREME : RF_DATA_NORMAL};
                    if ((i + k) % 3 == 2) one.data = RF_DATA_SPECIAL;
                    one.tensors[0] = rf_case_tensor(all[from], 4, shapes[i], k % 3);
                    one.tensors[1] = rf_case_tensor(all[to], 4, shapes[i], i % 3);
                    lay(&one.tensors[0], orders[0], k % 2);
                    lay(&one.tensors[1], orders[k], i % 2);
                    rf_case_add_shown(list, &one, 0, " to %s in order %d%d%d%d", rf_dtype_name(all[to]), orders[k][0],
                                      orders[k][1], orders[k][2], orders[k][3]);
                }
    /* Aligned shapes, which the device moves in vectors, with whole and with partial tiles. */
    static const uint64_t aligned[][4] = {{2, 1, 136, 192}, {1, 1, 264, 72}, {2, 70, 5, 64}, {1, 9, 3, 24}};
    for (size_t i = 0; i < RF_COUNT(aligned); i++)
        for (size_t k = 1; k < 3; k++)
            for (size_t t = 0; t < 9; t++) {
                struct rf_op_case one = {.count = 2};
                one.tensors[0] = rf_case_tensor(all[t / 3], 4, aligned[i], 0);
                one.tensors[1] = rf_case_tensor(all[t % 3], 4, aligned[i], 0);
                lay(&one.tensors[1], orders[k], 0);
                rf_case_add_shown(list, &one, 0, " to %s in order %d%d%d%d, aligned", rf_dtype_name(all[t % 3]),
                                  orders[k][0], orders[k][1], orders[k][2], orders[k][3]);
            }
    static const struct {
        enum rf_dtype from, to;
        uint64_t shape[4];
        int order;
    } large[] = {{RF_F16, RF_F16, {1, 1, 8192, 16384}, 1},
                 {RF_F32, RF_F32, {1, 1, 8192, 8192}, 1},
                 {RF_F16, RF_F16, {1, 32768, 32, 128}, 2},
                 {RF_F16, RF_F16, {8, 128, 1024, 128}, 1},
                 {RF_F32, RF_F16, {1, 16384, 32, 128}, 2}};
    for (size_t i = 0; i < RF_COUNT(large); i++) {
        struct rf_op_case one = {.count = 2, .bench = true};
        one.tensors[0] = rf_case_tensor(large[i].from, 4, large[i].shape, 0);
        one.tensors[1] = rf_case_tensor(large[i].to, 4, large[i].shape, 0);
        lay(&one.tensors[1], orders[large[i].order], 0);
        rf_case_add_shown(list, &one, 0, " to %s%s", rf_dtype_name(large[i].to),
                          large[i].order == 1 ? " swapped" : " by heads");
    }
}
const struct rf_op rf_op_transpose = {
    .name = "transpose",
    .summary = "out[i] = in[i] over four dimensions with strides, cast to out's type; i32 as it is",
    .inputs = 1,
    .outputs = 1,
    .check = transpose_check,
    .reference = transpose_reference,
    .gpu = transpose_gpu,
    .cases = transpose_cases,
    .cost = rf_op_cost_moves,
};

/* ---- concat: up to four tensors, joined along a dimension ---- */

static uint64_t product(const uint64_t *sizes, int begin, int end) {
    uint64_t result = 1;
    for (int i = begin; i < end; i++) result *= sizes[i];
    return result;
}
static rf_status concat_check(const struct rf_op_call *call) {
    static const char *const names[RF_CONCAT_INPUTS] = {"in[0]", "in[1]", "in[2]", "in[3]"};
    const struct rf_op_tensor *first = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    int64_t axis = call->attributes.axis;
    uint64_t along = 0;
    if (first->desc.dtype != RF_I32) RF_TRY(rf_need_float(first, "in[0]"));
    if (axis < 0 || axis >= first->desc.rank)
        return rf_fail(RF_E_INVALID, "there is no dimension %lld in rank %d", (long long)axis, first->desc.rank);
    for (int i = 0; i <= RF_CONCAT_INPUTS; i++) {
        const struct rf_op_tensor *one = i < RF_CONCAT_INPUTS ? rf_op_in(call, i) : out;
        const char *name = i < RF_CONCAT_INPUTS ? names[i] : "out";
        if (!rf_op_given(one)) continue;
        RF_TRY(rf_need_type(one, name, first->desc.dtype));
        RF_TRY(rf_need_rank(one, name, first->desc.rank));
        for (int d = 0; d < first->desc.rank; d++)
            if (d != axis) RF_TRY(rf_need_size(one, name, d, first->desc.shape[d]));
        RF_TRY(rf_need_dense(one, name));
        if (i < RF_CONCAT_INPUTS && rf_add_overflows(along, one->desc.shape[axis], &along))
            return rf_fail(RF_E_INVALID, "the sizes of dimension %lld overflow", (long long)axis);
    }
    return rf_need_size(out, "out", (int)axis, along);
}
static struct rf_concat_args concat_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *first = &rf_op_in(call, 0)->desc;
    int axis = (int)call->attributes.axis;
    struct rf_concat_args args = {.outer = product(first->shape, 0, axis)};
    for (int i = 0; i < RF_CONCAT_INPUTS; i++)
        if (rf_op_given(rf_op_in(call, i))) args.width[i] = product(rf_op_in(call, i)->desc.shape, axis, first->rank);
    return args;
}
static void concat_reference(const struct rf_op_call *call) {
    struct rf_concat_args args = concat_args(call);
    const void *in[RF_CONCAT_INPUTS];
    for (int i = 0; i < RF_CONCAT_INPUTS; i++) in[i] = rf_op_in_host(call, i);
    rf_ref_concat(rf_op_in(call, 0)->desc.dtype, rf_op_out_host(call, 0), in, &args);
}
static rf_status concat_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_concat_args args = concat_args(call);
    struct rf_operand in[RF_CONCAT_INPUTS];
    for (int i = 0; i < RF_CONCAT_INPUTS; i++) in[i] = rf_op_in_operand(call, i);
    return rf_gpu_concat(queue, rf_op_in(call, 0)->desc.dtype, rf_op_out_operand(call, 0), in, &args);
}
static void concat_cases(struct rf_case_list *list) {
    /* Sizes of the given tensors along the joined dimension; the other dimensions are 3, 5 and 7. */
    static const struct {
        int count;
        uint64_t along[RF_CONCAT_INPUTS];
    } joined[] = {{1, {1}},        {2, {5, 8}}, {3, {64, 0, 4}},      {4, {1, 2, 3, 4}},
                  {2, {500, 123}}, {2, {0, 0}}, {4, {16, 16, 16, 16}}};
    static const enum rf_dtype all[] = {RF_F32, RF_F16, RF_BF16, RF_I32};
    for (size_t t = 0; t < RF_COUNT(all); t++)
        for (size_t i = 0; i <= RF_COUNT(joined); i++)
            for (int axis = 0; axis < 4; axis++) {
                bool bench = i == RF_COUNT(joined);
                if (bench && (t != 1 || axis % 2 == 0)) continue;
                int count = bench ? 2 : joined[i].count;
                uint64_t shape[] = {3, 2, 5, 7}, width = 0;
                if (bench) shape[0] = 32, shape[1] = 1, shape[2] = 2048, shape[3] = 1024;
                struct rf_op_case one = {.attributes = {.axis = axis}, .count = RF_CONCAT_INPUTS + 1, .bench = bench};
                if (!bench && (i + (size_t)axis) % 3 == 1) one.data = RF_DATA_SPECIAL;
                for (int k = 0; k < count; k++) {
                    uint64_t skip = bench || (i == 6 && axis == 2) ? 0 : ((uint64_t)axis + i * (uint64_t)k) % 4;
                    shape[axis] = !bench ? joined[i].along[k] : axis == 1 ? (k ? 1 : 2) : 1024;
                    width += shape[axis];
                    one.tensors[k] = rf_case_tensor(all[t], 4, shape, skip);
                }
                shape[axis] = width;
                one.tensors[RF_CONCAT_INPUTS] = rf_case_tensor(all[t], 4, shape, bench ? 0 : i % 3);
                rf_case_add_shown(list, &one, RF_CONCAT_INPUTS, " of %d along %d", count, axis);
            }
}
const struct rf_op rf_op_concat = {
    .name = "concat",
    .summary = "up to four tensors joined along dimension axis",
    .inputs = RF_CONCAT_INPUTS,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_I(axis, 0)),
    .optional = 1 << 1 | 1 << 2 | 1 << 3,
    .check = concat_check,
    .reference = concat_reference,
    .gpu = concat_gpu,
    .cases = concat_cases,
    .cost = rf_op_cost_moves,
};
