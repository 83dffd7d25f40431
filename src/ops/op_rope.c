/* The op rope, and what it shares with the ops of the KV cache (op_rope_impl.h). */
#include "ops/op_rope_impl.h"

#include "cpu/fast.h"
#include "ops/gpu_cache.h"

/* ---- rotations ---- */

const char *const rf_rotation_names[RF_ROTATIONS] = {"", ", scaled", ", factors", ", yarn"};

static bool rotation_steps(int64_t which, uint64_t rotated, uint64_t *steps, float *magnitude) {
    float factors[RF_HEAD_MAX / 2];
    if (rotated > RF_HEAD_MAX) return false;
    struct rf_rope_params params = {.rotated = (uint32_t)rotated, .base = which == 0 ? 0 : 500000};
    if (which == 1) params.scale = 0.125;
    if (which == 2) {
        for (uint64_t i = 0; i < rotated / 2; i++) factors[i] = 1 + (float)(i % 7);
        params.factors = factors;
    }
    if (which == 3) {
        params.scale = 0.25;
        params.extension = 1;
        params.original_context = 8192;
    }
    return rf_rope_steps(&params, steps, magnitude);
}
void rf_rotation_set(struct rf_op_case *one, int which, bool halves, uint64_t rotated) {
    uint64_t steps[RF_HEAD_MAX / 2];
    float magnitude = 1;
    rotation_steps(which, rotated, steps, &magnitude);
    one->attributes.magnitude = (double)magnitude;
    one->attributes.halves = halves;
    one->fill_kind = which;
}
void rf_rotation_fill(const struct rf_op_call *call, const struct rf_op_tensor *tensor) {
    float magnitude;
    rotation_steps(call->fill_kind, 2 * tensor->desc.shape[0], rf_op_host(tensor), &magnitude);
}

rf_status rf_rotation_check(const struct rf_op_call *call, const struct rf_op_tensor *steps, uint64_t dim) {
    RF_TRY(rf_need_type(steps, "steps", RF_I32));
    RF_TRY(rf_need_rank(steps, "steps", 2));
    RF_TRY(rf_need_size(steps, "steps", 1, 2));
    RF_TRY(rf_need_dense(steps, "steps"));
    RF_TRY(rf_need_aligned(steps, "steps", 8));
    uint64_t pairs = steps->desc.shape[0];
    if (dim % 2 || !pairs || pairs > dim / 2)
        return rf_fail(RF_E_INVALID, "%llu pairs to rotate in a head of %llu: it must be even and hold them",
                       (unsigned long long)pairs, (unsigned long long)dim);
    if (call->attributes.halves != 0 && call->attributes.halves != 1)
        return rf_fail(RF_E_INVALID, "there is no pairing %lld: 0 or 1", (long long)call->attributes.halves);
    return RF_OK;
}
rf_status rf_need_numbers(const struct rf_op_tensor *tensor, const char *name, uint64_t count) {
    RF_TRY(rf_need_type(tensor, name, RF_I32));
    RF_TRY(rf_need_rank(tensor, name, 1));
    RF_TRY(rf_need_size(tensor, name, 0, count));
    return rf_need_dense(tensor, name);
}
rf_status rf_need_heads(const struct rf_op_tensor *tensor, const char *name) {
    RF_TRY(rf_need_rank(tensor, name, 3));
    if (tensor->desc.shape[1] > INT32_MAX) return rf_fail(RF_E_INVALID, "%s has more than 2^31 - 1 heads", name);
    if (tensor->desc.shape[2] > RF_HEAD_MAX)
        return rf_fail(RF_E_UNSUPPORTED, "%s has heads of %llu: up to %d", name,
                       (unsigned long long)tensor->desc.shape[2], RF_HEAD_MAX);
    return rf_need_dense_rows(tensor, name);
}

/* ---- rope: in [tokens, heads, dim], positions [tokens], steps ---- */

static rf_status rope_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_float(in, "in"));
    RF_TRY(rf_need_heads(in, "in"));
    if (in->desc.dtype != RF_F32 || out->desc.dtype != RF_F16 || !rf_op_same_shape(&in->desc, &out->desc))
        RF_TRY(rf_need_like(out, "out", in, "in"));
    RF_TRY(rf_need_dense_rows(out, "out"));
    RF_TRY(rf_need_distinct(out, "out"));
    RF_TRY(rf_need_numbers(rf_op_in(call, 1), "positions", in->desc.shape[0]));
    return rf_rotation_check(call, rf_op_in(call, 2), in->desc.shape[2]);
}
static struct rf_rope_args rope_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *out = &rf_op_out(call, 0)->desc;
    return (struct rf_rope_args){.tokens = in->shape[0],
                                 .out_token = out->strides[0],
                                 .out_head = out->strides[1],
                                 .in_token = in->strides[0],
                                 .in_head = in->strides[1],
                                 .heads = (uint32_t)in->shape[1],
                                 .dim = (uint32_t)in->shape[2],
                                 .rotated = (uint32_t)(2 * rf_op_in(call, 2)->desc.shape[0]),
                                 .halves = call->attributes.halves != 0,
                                 .magnitude = (float)call->attributes.magnitude};
}
static void rope_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_rope_args args = rope_args(call);
    rf_ref_rope(out->desc.dtype, rf_op_host(out), in->desc.dtype, rf_op_host(in), rf_op_host(rf_op_in(call, 1)),
                rf_op_host(rf_op_in(call, 2)), &args);
}
static rf_status rope_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_rope_args args = rope_args(call);
    return rf_cpu_rope(cpu, out->desc.dtype, rf_op_host(out), in->desc.dtype, rf_op_host(in),
                       rf_op_host(rf_op_in(call, 1)), rf_op_host(rf_op_in(call, 2)), &args);
}
static rf_status rope_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_gpu_rope rope = {.args = rope_args(call),
                               .dtype = in->desc.dtype,
                               .out_dtype = out->desc.dtype,
                               .out = rf_op_operand(out),
                               .in = rf_op_operand(in),
                               .positions = rf_op_operand(rf_op_in(call, 1)),
                               .steps = rf_op_operand(rf_op_in(call, 2))};
    return rf_gpu_rope(queue, &rope);
}
static bool rope_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    if (index == 0) return false;
    if (index == 2) {
        rf_rotation_fill(call, rf_op_in(call, 2));
        return true;
    }
    static const int32_t odd[] = {0, -3, INT32_MAX, 131071, INT32_MIN};
    int32_t *positions = rf_op_host(rf_op_in(call, 1));
    uint64_t tokens = rf_op_in(call, 1)->desc.shape[0];
    for (uint64_t i = 0; i < tokens; i++)
        positions[i] = tokens > 4 && i < RF_COUNT(odd) ? odd[i] : (int32_t)(rf_op_random(state) % 200000);
    return true;
}
static void rope_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t tokens, heads, dim, rotated, in_gap, out_gap;
    } shapes[] = {{1, 1, 2, 2, 0, 0},       {5, 3, 64, 64, 0, 0},       {7, 2, 80, 32, 3, 0},
                  {2, 9, 128, 128, 1, 5},   {1, 4, 600, 520, 0, 0},     {9, 1, 6, 4, 3, 2},
                  {3, 2, 256, 2, 0, 0},     {0, 2, 8, 8, 0, 0},         {2, 0, 8, 4, 0, 0},
                  {1, 2, 4096, 4096, 0, 0}, {32768, 32, 128, 128, 0, 0}};
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (size_t t = 0; t <= RF_COUNT(rf_case_floats); t++)
            for (int halves = 0; halves < 2; halves++)
                for (int which = 0; which < RF_ROTATIONS; which++) {
                    bool to_f16 = t == RF_COUNT(rf_case_floats); /* from f32 */
                    enum rf_dtype dtype = to_f16 ? RF_F32 : rf_case_floats[t], to = to_f16 ? RF_F16 : dtype;
                    uint64_t heads = shapes[i].heads, dim = shapes[i].dim, skip = (uint64_t)which;
                    struct rf_op_case one = {
                        .count = 4, .absolute = 6e-6, .relative = rf_op_step(to), .bench = i + 1 == RF_COUNT(shapes)};
                    if (one.bench) {
                        skip = 0;
                        if (which) continue;
                    }
                    if (to != RF_F32) one.absolute = 2e-5;
                    /* 256 MiB whichever the type. */
                    uint64_t tokens = one.bench && dtype == RF_F32 ? shapes[i].tokens / 2 : shapes[i].tokens;
                    uint64_t shape[] = {tokens, heads, dim};
                    one.tensors[0] = rf_case_tensor(dtype, 3, shape, skip);
                    one.tensors[1] = rf_case_vector(RF_I32, tokens, skip % 2);
                    one.tensors[2] = rf_case_matrix(RF_I32, shapes[i].rotated / 2, 2, 0, skip / 2 * 2);
                    one.tensors[3] = rf_case_tensor(to, 3, shape, skip / 3);
                    for (int k = 0; k < 2; k++) {
                        uint64_t gap = k ? shapes[i].out_gap : shapes[i].in_gap;
                        uint64_t *strides = one.tensors[k ? 3 : 0].strides;
                        if (gap) strides[0] = heads * (dim + gap) + gap, strides[1] = dim + gap, strides[2] = 1;
                    }
                    rf_rotation_set(&one, which, halves != 0, shapes[i].rotated);
                    rf_case_add_shown(list, &one, 0, " %s%s %llu%s", to_f16 ? "to f16 " : "",
                                      halves ? "halves" : "pairs", (unsigned long long)shapes[i].rotated,
                                      rf_rotation_names[which]);
                }
}
static void rope_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 3 * rf_op_elements(&rf_op_in(call, 0)->desc);
}
const struct rf_op rf_op_rope = {
    .name = "rope",
    .summary = "pairs of each head turned by steps[pair] * positions[token], times magnitude; halves: the pairing",
    .inputs = 3,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(magnitude, 0), RF_ATTRIBUTE_I(halves, 0)),
    .in_place = 1 << 0,
    .check = rope_check,
    .reference = rope_reference,
    .gpu = rope_gpu,
    .cpu = rope_cpu,
    .cases = rope_cases,
    .fill = rope_fill,
    .cost = rope_cost,
};
