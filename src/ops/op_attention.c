/* The rows of the attention ops that work in pieces: qkt_matmul, weighted_matmul, causal_mask, kv_replicate; and what
 * the rows of all attention ops share.
 *
 * A check refuses everything that the references could not handle, so that they cannot read or write out of bounds.
 * The launchers (gpu_attention.c) check again, and check what only a device knows: buffers, their overlap, its matrix
 * units. */
#include "ops/op_attention_impl.h"

#include <math.h>
#include <stdio.h>

#include "cpu/fast.h"

/* Counts every element, also one that a stride of 0 repeats. */
static uint64_t tensor_bytes(const struct rf_op_tensor *tensor) {
    return rf_op_elements(&tensor->desc) * rf_dtype_bytes(tensor->desc.dtype);
}

/* ---- the two products: what they share ---- */

enum { LEFT, RIGHT, OUT };
struct product {
    bool weighted;        /* the scores (here weights, f32) are LEFT, not OUT */
    const char *names[3]; /* names of LEFT, RIGHT, OUT */
};
static const struct product qkt = {false, {"q", "k", "scores"}};
static const struct product weighted = {true, {"weights", "v", "out"}};

static const struct rf_op_tensor *operand(const struct rf_op_call *call, int which) {
    return which == OUT ? rf_op_out(call, 0) : rf_op_in(call, which);
}
/* The type of the tensors that are not scores. */
static enum rf_dtype product_type(const struct product *p, const struct rf_op_call *call) {
    return operand(call, p->weighted ? RIGHT : LEFT)->desc.dtype;
}
static struct rf_head_product_args product_args(const struct product *p, const struct rf_op_call *call) {
    const struct rf_tensor_desc *left = &operand(call, LEFT)->desc, *right = &operand(call, RIGHT)->desc;
    return (struct rf_head_product_args){.out = rf_heads_strides(&operand(call, OUT)->desc),
                                         .left = rf_heads_strides(left),
                                         .right = rf_heads_strides(right),
                                         .batch = left->shape[0],
                                         .heads_q = left->shape[1],
                                         .heads_kv = right->shape[1],
                                         .q_rows = left->shape[2],
                                         .k_rows = p->weighted ? left->shape[3] : right->shape[2],
                                         .dim = p->weighted ? right->shape[3] : left->shape[3],
                                         .scale = p->weighted ? 0 : (float)call->attributes.scale};
}
/* What a check expects of an operand. */
struct expected {
    enum rf_dtype dtype;
    uint64_t shape[4];
};
static struct expected expected_of(const struct product *p, int which, enum rf_dtype dtype,
                                   const struct rf_head_product_args *a) {
    if (which == RIGHT) return (struct expected){dtype, {a->batch, a->heads_kv, a->k_rows, a->dim}};
    if (which == (p->weighted ? LEFT : OUT))
        return (struct expected){RF_F32, {a->batch, a->heads_q, a->q_rows, a->k_rows}};
    return (struct expected){dtype, {a->batch, a->heads_q, a->q_rows, a->dim}};
}

static rf_status product_check(const struct product *p, const struct rf_op_call *call) {
    enum rf_dtype dtype = product_type(p, call);
    RF_TRY(rf_need_float(operand(call, p->weighted ? RIGHT : LEFT), p->names[p->weighted ? RIGHT : LEFT]));
    for (int which = LEFT; which <= RIGHT; which++) RF_TRY(rf_need_rank(operand(call, which), p->names[which], 4));
    if (!p->weighted) RF_TRY(rf_need_scale(call->attributes.scale));
    struct rf_head_product_args a = product_args(p, call);
    RF_TRY(rf_need_group(a.heads_q, a.heads_kv));
    for (int which = LEFT; which <= OUT; which++) {
        struct expected e = expected_of(p, which, dtype, &a);
        RF_TRY(rf_need_head_tensor(operand(call, which), p->names[which], e.dtype, e.shape, 1, which == OUT));
    }
    return RF_OK;
}
static void product_reference(const struct product *p, const struct rf_op_call *call) {
    struct rf_head_product_args a = product_args(p, call);
    void *left = rf_op_host(operand(call, LEFT)), *right = rf_op_host(operand(call, RIGHT)),
         *out = rf_op_host(operand(call, OUT));
    if (p->weighted)
        rf_ref_weighted_matmul(product_type(p, call), out, left, right, &a);
    else
        rf_ref_qkt_matmul(product_type(p, call), out, left, right, &a);
}
static rf_status product_cpu(const struct product *p, struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_head_product_args a = product_args(p, call);
    void *left = rf_op_host(operand(call, LEFT)), *right = rf_op_host(operand(call, RIGHT)),
         *out = rf_op_host(operand(call, OUT));
    return p->weighted ? rf_cpu_weighted_matmul(cpu, product_type(p, call), out, left, right, &a)
                       : rf_cpu_qkt_matmul(cpu, product_type(p, call), out, left, right, &a);
}
static rf_status product_gpu(const struct product *p, struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_head_product_args a = product_args(p, call);
    struct rf_operand left = rf_op_operand(operand(call, LEFT)), right = rf_op_operand(operand(call, RIGHT)),
                      out = rf_op_operand(operand(call, OUT));
    return p->weighted ? rf_gpu_weighted_matmul(queue, product_type(p, call), out, left, right, &a)
                       : rf_gpu_qkt_matmul(queue, product_type(p, call), out, left, right, &a);
}
static void product_cost(const struct product *p, const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    struct rf_head_product_args a = product_args(p, call);
    *bytes = 0;
    for (int i = 0; i < call->count; i++) *bytes += tensor_bytes(&call->tensors[i]);
    *flops = 2 * a.batch * a.heads_q * a.q_rows * a.k_rows * a.dim;
}

/* Shapes of both products. The seeds (docs/from-the-seeds.md) have the small, the 32x32 and the non-square ones. */
static const struct product_shape {
    const char *name;
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
} product_shapes[] = {
    {"small", 1, 1, 1, 2, 2, 2},
    {"small", 1, 2, 2, 4, 4, 4},
    {"32x32", 2, 4, 4, 32, 32, 32},
    {"non-square", 1, 2, 2, 8, 16, 32},
    {"non-square", 2, 3, 1, 17, 70, 19},
    {"one", 1, 1, 1, 1, 1, 1},
    {"one query", 1, 4, 2, 1, 131, 64},
    {"one key", 1, 2, 1, 67, 1, 24},
    {"one deep", 1, 2, 2, 65, 63, 1},
    {"a tile", 1, 1, 1, 64, 64, 16},
    {"tiles and one", 1, 2, 1, 65, 129, 17},
    {"primes", 3, 6, 2, 13, 31, 37},
    {"deep", 1, 1, 1, 5, 7, 509},
    {"no batch", 0, 2, 1, 4, 4, 4},
    {"no query", 1, 2, 1, 0, 9, 8},
    {"no key", 1, 2, 1, 5, 0, 8},
    {"no dim", 1, 2, 1, 5, 9, 0},
};

/* The relative error is that of rounding the result to its type; sums are in f32. For f32 the seeds allow 1e-4
 * (small) and 1e-3 (others); the tolerances here are tighter. Elements are below 4, weights too, so 16 * depth bounds
 * the sum. */
static void product_tolerance(struct rf_op_case *one, enum rf_dtype out, uint64_t depth) {
    bool extreme = one->data == RF_DATA_EXTREME;
    one->absolute = (extreme ? 1e9 : 16.0) * 1.2e-7 * ((double)depth + 8);
    one->relative = 1e-6 + (out == RF_F32 ? 0 : rf_op_step(out));
}
static void product_label(struct rf_op_case *one, size_t shape, enum rf_dtype dtype, enum rf_heads_layout layout) {
    const struct product_shape *s = &product_shapes[shape];
    snprintf(one->label, sizeof one->label, "%s %s %llux%llu/%llu %llux%llu deep %llu%s%s", rf_dtype_name(dtype),
             s->name, (unsigned long long)s->batch, (unsigned long long)s->heads_q, (unsigned long long)s->heads_kv,
             (unsigned long long)s->q_rows, (unsigned long long)s->k_rows, (unsigned long long)s->dim,
             rf_heads_layout_name(layout), one->data == RF_DATA_EXTREME ? ", extreme" : "");
}

/* Every shape is used dense; some shapes are used in other layouts too, one of them with extreme values. */
static bool product_wanted(size_t shape, enum rf_heads_layout layout, enum rf_case_data data) {
    const struct product_shape *s = &product_shapes[shape];
    bool empty = !s->batch || !s->q_rows || !s->k_rows || !s->dim;
    if (data == RF_DATA_EXTREME) return layout == RF_LAYOUT_DENSE && shape % 4 == 2;
    return layout == RF_LAYOUT_DENSE || (!empty && (shape + (size_t)layout) % 2 == 0);
}

static void product_cases(const struct product *p, struct rf_case_list *list) {
    static const enum rf_case_data kinds[] = {RF_DATA_NORMAL, RF_DATA_EXTREME};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++)
        for (size_t i = 0; i < RF_COUNT(product_shapes); i++)
            for (int layout = 0; layout < RF_LAYOUTS; layout++)
                for (size_t d = 0; d < RF_COUNT(kinds); d++) {
                    /* Weighted sums of extreme numbers are beyond the range of f16. */
                    bool beyond = p->weighted && kinds[d] == RF_DATA_EXTREME && rf_case_floats[t] == RF_F16;
                    if (!product_wanted(i, layout, kinds[d]) || beyond) continue;
                    const struct product_shape *s = &product_shapes[i];
                    struct rf_head_product_args sizes = {.batch = s->batch,
                                                         .heads_q = s->heads_q,
                                                         .heads_kv = s->heads_kv,
                                                         .q_rows = s->q_rows,
                                                         .k_rows = s->k_rows,
                                                         .dim = s->dim};
                    struct rf_op_case one = {.count = 3, .data = kinds[d]};
                    if (!p->weighted) one.attributes.scale = 0.3;
                    for (int which = LEFT; which <= OUT; which++) {
                        struct expected e = expected_of(p, which, rf_case_floats[t], &sizes);
                        one.tensors[which] =
                            rf_heads_desc(e.dtype, layout, e.shape[0], e.shape[1], e.shape[2], e.shape[3]);
                    }
                    product_tolerance(&one, one.tensors[OUT].dtype, p->weighted ? s->k_rows : s->dim);
                    product_label(&one, i, rf_case_floats[t], layout);
                    rf_case_add(list, &one);
                }
}

/* The functions that a row needs. */
#define PRODUCT_ROW(name)                                                                                            \
    static rf_status name##_check(const struct rf_op_call *call) {                                                   \
        return product_check(&name, call);                                                                           \
    }                                                                                                                \
    static void name##_reference(const struct rf_op_call *call) {                                                    \
        product_reference(&name, call);                                                                              \
    }                                                                                                                \
    static rf_status name##_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {                                 \
        return product_cpu(&name, cpu, call);                                                                        \
    }                                                                                                                \
    static rf_status name##_gpu(struct rf_queue *queue, const struct rf_op_call *call) {                             \
        return product_gpu(&name, queue, call);                                                                      \
    }                                                                                                                \
    static void name##_cases(struct rf_case_list *list) {                                                            \
        product_cases(&name, list);                                                                                  \
    }                                                                                                                \
    static void name##_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {                       \
        product_cost(&name, call, bytes, flops);                                                                     \
    }
PRODUCT_ROW(qkt)
PRODUCT_ROW(weighted)

const struct rf_op rf_op_qkt_matmul = {
    .name = "qkt_matmul",
    .summary = "scores[b][h][i][j] = scale * q[b][h][i] . k[b][h / group][j], in f32",
    .inputs = 2,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0)),
    .check = qkt_check,
    .reference = qkt_reference,
    .gpu = qkt_gpu,
    .cpu = qkt_cpu,
    .cases = qkt_cases,
    .cost = qkt_cost,
};
const struct rf_op rf_op_weighted_matmul = {
    .name = "weighted_matmul",
    .summary = "out[b][h][i] = sum over j of weights[b][h][i][j] (f32) * v[b][h / group][j]",
    .inputs = 2,
    .outputs = 1,
    .check = weighted_check,
    .reference = weighted_reference,
    .gpu = weighted_gpu,
    .cpu = weighted_cpu,
    .cases = weighted_cases,
    .cost = weighted_cost,
};

/* ---- causal_mask ---- */

static rf_status mask_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *scores = rf_op_in(call, 0);
    RF_TRY(rf_need_float(scores, "scores"));
    RF_TRY(rf_need_rank(scores, "scores", 4));
    RF_TRY(rf_need_head_tensor(scores, "scores", scores->desc.dtype, scores->desc.shape, 1, true));
    return rf_need_offset(call->attributes.offset);
}
static struct rf_causal_mask_args mask_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *scores = &rf_op_in(call, 0)->desc;
    return (struct rf_causal_mask_args){.scores = rf_heads_strides(scores),
                                        .batch = scores->shape[0],
                                        .heads = scores->shape[1],
                                        .rows = scores->shape[2],
                                        .columns = scores->shape[3],
                                        .offset = call->attributes.offset};
}
static void mask_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *scores = rf_op_in(call, 0);
    struct rf_causal_mask_args a = mask_args(call);
    rf_ref_causal_mask(scores->desc.dtype, rf_op_host(scores), &a);
}
static rf_status mask_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *scores = rf_op_in(call, 0);
    struct rf_causal_mask_args a = mask_args(call);
    return rf_cpu_causal_mask(cpu, scores->desc.dtype, rf_op_host(scores), &a);
}
static rf_status mask_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *scores = rf_op_in(call, 0);
    struct rf_causal_mask_args a = mask_args(call);
    return rf_gpu_causal_mask(queue, scores->desc.dtype, rf_op_operand(scores), &a);
}
/* Hidden scores must be written; nothing has to be read. */
static void mask_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    const struct rf_tensor_desc *scores = &rf_op_in(call, 0)->desc;
    uint64_t hidden = 0;
    for (uint64_t i = 0; i < scores->shape[2]; i++) {
        int64_t seen = (int64_t)i + call->attributes.offset + 1;
        hidden += rf_sub_saturate(scores->shape[3], seen < 0 ? 0 : (uint64_t)seen);
    }
    *bytes = scores->shape[0] * scores->shape[1] * hidden * rf_dtype_bytes(scores->dtype);
    *flops = 0;
}
static void mask_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t batch, heads, rows, columns;
        int64_t offset;
    } shapes[] = {
        {1, 1, 1, 1, 0},      {1, 1, 1, 1, -1},   {2, 3, 8, 8, 0},          {1, 2, 13, 29, 16},
        {1, 2, 3, 1031, 400}, {1, 1, 9, 5, -4},   {2, 1, 4, 33, 1000},      {1, 1, 4, 37, -1000},
        {1, 1, 2, 4500, 3},   {3, 5, 7, 11, 0},   {1, 1, 64, 64, 0},        {1, 4, 32, 32, 0},
        {1, 1, 257, 3, -200}, {2, 2, 31, 67, 36}, {1, 1, 5, 40, INT32_MAX}, {1, 1, 5, 40, -(int64_t)INT32_MAX},
        {0, 2, 3, 4, 0},      {1, 2, 0, 4, 0},    {1, 2, 3, 0, 0}};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++)
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            for (int layout = 0; layout < RF_LAYOUTS; layout++) {
                bool empty = !shapes[i].batch || !shapes[i].rows || !shapes[i].columns;
                if (layout && (empty || (i + (size_t)layout) % 2)) continue;
                /* Scores that are not hidden keep their bits, whatever their values. */
                struct rf_op_case one = {.count = 1, .attributes = {.offset = shapes[i].offset}};
                one.data = i % 2 ? RF_DATA_SPECIAL : RF_DATA_NORMAL;
                one.tensors[0] = rf_heads_desc(rf_case_floats[t], layout, shapes[i].batch, shapes[i].heads,
                                               shapes[i].rows, shapes[i].columns);
                snprintf(one.label, sizeof one.label, "%s %llux%llu %llux%llu offset %lld%s%s",
                         rf_dtype_name(rf_case_floats[t]), (unsigned long long)shapes[i].batch,
                         (unsigned long long)shapes[i].heads, (unsigned long long)shapes[i].rows,
                         (unsigned long long)shapes[i].columns, (long long)shapes[i].offset,
                         rf_heads_layout_name(layout), one.data == RF_DATA_SPECIAL ? ", special" : "");
                rf_case_add(list, &one);
            }
    struct rf_op_case large = {.label = "f32 4x32 2048x2048", .count = 1, .bench = true};
    large.tensors[0] = rf_heads_desc(RF_F32, RF_LAYOUT_DENSE, 4, 32, 2048, 2048);
    rf_case_add(list, &large);
}
const struct rf_op rf_op_causal_mask = {
    .name = "causal_mask",
    .summary = "in place: scores[b][h][i][j] = -inf where j > i + offset; the rest keeps its bits",
    .inputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_I(offset, 0)),
    .updates = 1,
    .check = mask_check,
    .reference = mask_reference,
    .gpu = mask_gpu,
    .cpu = mask_cpu,
    .cases = mask_cases,
    .cost = mask_cost,
};

/* ---- kv_replicate ---- */

static rf_status replicate_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    const uint64_t *shape = in->desc.shape, *out_shape = out->desc.shape;
    RF_TRY(rf_need_float(in, "in"));
    RF_TRY(rf_need_rank(in, "in", 4));
    RF_TRY(rf_need_rank(out, "out", 4));
    RF_TRY(rf_need_group(out_shape[1], shape[1]));
    RF_TRY(rf_need_head_tensor(in, "in", in->desc.dtype, shape, 1, false));
    return rf_need_head_tensor(out, "out", in->desc.dtype, (uint64_t[]){shape[0], out_shape[1], shape[2], shape[3]},
                               1, true);
}
static struct rf_kv_replicate_args replicate_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *out = &rf_op_out(call, 0)->desc;
    return (struct rf_kv_replicate_args){.out = rf_heads_strides(out),
                                         .in = rf_heads_strides(in),
                                         .batch = in->shape[0],
                                         .heads_q = out->shape[1],
                                         .heads_kv = in->shape[1],
                                         .rows = in->shape[2],
                                         .dim = in->shape[3]};
}
static void replicate_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_kv_replicate_args a = replicate_args(call);
    rf_ref_kv_replicate(in->desc.dtype, rf_op_host(out), rf_op_host(in), &a);
}
static rf_status replicate_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_kv_replicate_args a = replicate_args(call);
    return rf_cpu_kv_replicate(cpu, in->desc.dtype, rf_op_host(out), rf_op_host(in), &a);
}
static rf_status replicate_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_kv_replicate_args a = replicate_args(call);
    return rf_gpu_kv_replicate(queue, in->desc.dtype, rf_op_operand(out), rf_op_operand(in), &a);
}
static void replicate_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = tensor_bytes(rf_op_in(call, 0)) + tensor_bytes(rf_op_out(call, 0));
    *flops = 0;
}
static void replicate_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t batch, heads_q, heads_kv, rows, dim;
    } shapes[] = {{1, 1, 1, 1, 1},    {2, 4, 2, 7, 5},   {1, 8, 1, 33, 64}, {3, 6, 3, 11, 13},  {1, 32, 8, 5, 128},
                  {2, 14, 2, 3, 80},  {1, 7, 7, 29, 31}, {1, 71, 1, 2, 96}, {1, 2, 1, 1031, 3}, {2, 2, 1, 1, 2053},
                  {5, 10, 5, 1, 256}, {0, 2, 1, 3, 4},   {1, 4, 2, 0, 4},   {1, 4, 2, 3, 0}};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++)
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            for (int layout = 0; layout < RF_LAYOUTS; layout++) {
                bool empty = !shapes[i].batch || !shapes[i].rows || !shapes[i].dim;
                if (layout && (empty || (i + (size_t)layout) % 2)) continue;
                struct rf_op_case one = {.count = 2, .data = i % 2 ? RF_DATA_SPECIAL : RF_DATA_NORMAL};
                one.tensors[0] = rf_heads_desc(rf_case_floats[t], layout, shapes[i].batch, shapes[i].heads_kv,
                                               shapes[i].rows, shapes[i].dim);
                one.tensors[1] = rf_heads_desc(rf_case_floats[t], i % 3 ? layout : RF_LAYOUT_DENSE, shapes[i].batch,
                                               shapes[i].heads_q, shapes[i].rows, shapes[i].dim);
                snprintf(one.label, sizeof one.label, "%s %llux%llu/%llu %llux%llu%s%s",
                         rf_dtype_name(rf_case_floats[t]), (unsigned long long)shapes[i].batch,
                         (unsigned long long)shapes[i].heads_q, (unsigned long long)shapes[i].heads_kv,
                         (unsigned long long)shapes[i].rows, (unsigned long long)shapes[i].dim,
                         rf_heads_layout_name(layout), one.data == RF_DATA_SPECIAL ? ", special" : "");
                rf_case_add(list, &one);
            }
    struct rf_op_case large = {.label = "f16 1x32/8 32768x128", .count = 2, .bench = true};
    large.tensors[0] = rf_heads_desc(RF_F16, RF_LAYOUT_DENSE, 1, 8, 32768, 128);
    large.tensors[1] = rf_heads_desc(RF_F16, RF_LAYOUT_DENSE, 1, 32, 32768, 128); /* 256 MiB */
    rf_case_add(list, &large);
}
const struct rf_op rf_op_kv_replicate = {
    .name = "kv_replicate",
    .summary = "out[b][h] = in[b][h / group], bit for bit",
    .inputs = 1,
    .outputs = 1,
    .check = replicate_check,
    .reference = replicate_reference,
    .gpu = replicate_gpu,
    .cpu = replicate_cpu,
    .cases = replicate_cases,
    .cost = replicate_cost,
};

/* ---- what the rows of attention share ---- */

rf_status rf_need_group(uint64_t heads_q, uint64_t heads_kv) {
    if (heads_kv && heads_q % heads_kv == 0) return RF_OK;
    return rf_fail(RF_E_INVALID, "%llu query heads are no multiple of %llu key-value heads",
                   (unsigned long long)heads_q, (unsigned long long)heads_kv);
}

rf_status rf_need_head_size(uint64_t dim) {
    if (dim && dim % 8 == 0 && dim <= RF_ATTENTION_DIM_MAX) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "a head size of %llu; it must be a multiple of 8 up to %d",
                   (unsigned long long)dim, RF_ATTENTION_DIM_MAX);
}

rf_status rf_need_scale(double scale) {
    if (isfinite((float)scale)) return RF_OK;
    return rf_fail(RF_E_INVALID, "the scale %g is no f32 number", scale);
}

rf_status rf_need_offset(int64_t offset) {
    if (offset <= INT32_MAX && offset >= -(int64_t)INT32_MAX) return RF_OK;
    return rf_fail(RF_E_INVALID, "an offset of %lld, at most %d either way", (long long)offset, INT32_MAX);
}

rf_status rf_need_path(int64_t path) {
    if (path >= RF_ATTENTION_AUTO && path <= RF_ATTENTION_GROUP) return RF_OK;
    return rf_fail(RF_E_INVALID, "%lld names no kind of kernel", (long long)path);
}

rf_status rf_need_head_tensor(const struct rf_op_tensor *tensor, const char *name, enum rf_dtype dtype,
                              const uint64_t shape[4], uint64_t align, bool output) {
    const struct rf_tensor_desc *desc = &tensor->desc;
    RF_TRY(rf_need_rank(tensor, name, 4));
    if (desc->dtype != dtype)
        return rf_fail(RF_E_INVALID, "%s is %s, expected %s", name, rf_dtype_name(desc->dtype), rf_dtype_name(dtype));
    bool empty = false, repeated = !desc->strides[0] && !desc->strides[1] && !desc->strides[2];
    for (int i = 0; i < 4; i++) {
        if (desc->shape[i] != shape[i])
            return rf_fail(RF_E_INVALID, "dimension %d of %s is %llu, expected %llu", i, name,
                           (unsigned long long)desc->shape[i], (unsigned long long)shape[i]);
        if (shape[i] > INT32_MAX)
            return rf_fail(RF_E_UNSUPPORTED, "dimension %d of %s is %llu, at most %d", i, name,
                           (unsigned long long)shape[i], INT32_MAX);
        empty |= !shape[i];
    }
    if (empty) return RF_OK;
    RF_TRY(rf_need_dense_rows(tensor, name));
    if (repeated && shape[0] * shape[1] * shape[2] > 1)
        return rf_fail(RF_E_UNSUPPORTED, "%s is one row for all: some stride must not be 0", name);
    if (output) RF_TRY(rf_need_distinct(tensor, name));
    RF_TRY(rf_need_aligned(tensor, name, align));
    for (int i = 0; i < 3; i++)
        if (shape[i] > 1 && desc->strides[i] * rf_dtype_bytes(dtype) % align)
            return rf_fail(RF_E_INVALID, "the strides of %s must be multiples of %llu bytes", name,
                           (unsigned long long)align);
    return RF_OK;
}

struct rf_tensor_desc rf_heads_desc(enum rf_dtype dtype, enum rf_heads_layout layout, uint64_t batch, uint64_t heads,
                                    uint64_t rows, uint64_t dim) {
    struct rf_tensor_desc desc = {.dtype = dtype, .rank = 4, .shape = {batch, heads, rows, dim}};
    if (layout == RF_LAYOUT_DENSE) return desc;
    uint64_t gap = layout == RF_LAYOUT_ODD ? 3 : 8, row = dim + gap;
    desc.byte_offset = 3 * gap * rf_dtype_bytes(dtype);
    desc.strides[0] = rows * heads * row + 2 * gap;
    desc.strides[1] = row;
    desc.strides[2] = heads * row;
    desc.strides[3] = 1;
    return desc;
}

const char *rf_heads_layout_name(enum rf_heads_layout layout) {
    return layout == RF_LAYOUT_SPREAD ? " spread" : layout == RF_LAYOUT_ODD ? " oddly spread" : "";
}
