/* The row of flash_attention. Its inputs are q, k, v and optionally a mask (f32; a batch or head dimension of 1
 * applies to all). Attributes: scale; causal, and with it offset: query i sees the keys j <= i + offset; path: enum
 * rf_attention_path, which kernel runs (the CPU ignores it). */
#include "ops/op_attention_impl.h"

#include <math.h>
#include <stdio.h>

#include "cpu/fast.h"

enum { Q, K, V, MASK };

static rf_status check_mask(const struct rf_op_call *call) {
    const struct rf_op_tensor *mask = rf_op_in(call, MASK);
    const uint64_t *q = rf_op_in(call, Q)->desc.shape;
    RF_TRY(rf_need_rank(mask, "mask", 4));
    uint64_t shape[4] = {q[0], q[1], q[2], rf_op_in(call, K)->desc.shape[2]};
    for (int i = 0; i < 2; i++)
        if (mask->desc.shape[i] == 1) shape[i] = 1;
    RF_TRY(rf_need_head_tensor(mask, "mask", RF_F32, shape, 1, false));
    if (shape[2] > 1 && !mask->desc.strides[2])
        return rf_fail(RF_E_UNSUPPORTED, "the mask must have a row for each query");
    return RF_OK;
}

static rf_status check(const struct rf_op_call *call) {
    const struct rf_op_tensor *q = rf_op_in(call, Q), *k = rf_op_in(call, K);
    const struct rf_op_attributes *at = &call->attributes;
    const uint64_t *q_shape = q->desc.shape, *k_shape = k->desc.shape;
    enum rf_dtype dtype = q->desc.dtype;
    RF_TRY(rf_need_float(q, "q"));
    RF_TRY(rf_need_rank(q, "q", 4));
    RF_TRY(rf_need_rank(k, "k", 4));
    RF_TRY(rf_need_group(q_shape[1], k_shape[1]));
    RF_TRY(rf_need_head_size(q_shape[3]));
    const uint64_t key_shape[4] = {q_shape[0], k_shape[1], k_shape[2], q_shape[3]};
    RF_TRY(rf_need_head_tensor(q, "q", dtype, q_shape, 16, false));
    RF_TRY(rf_need_head_tensor(k, "k", dtype, key_shape, 16, false));
    RF_TRY(rf_need_head_tensor(rf_op_in(call, V), "v", dtype, key_shape, 16, false));
    RF_TRY(rf_need_head_tensor(rf_op_out(call, 0), "out", dtype, q_shape, 16, true));
    if (rf_op_given(rf_op_in(call, MASK))) RF_TRY(check_mask(call));
    RF_TRY(rf_need_scale(at->scale));
    RF_TRY(rf_need_path(at->path));
    return at->causal ? rf_need_offset(at->offset) : RF_OK;
}

static struct rf_flash_attention_args flash_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *q = &rf_op_in(call, Q)->desc, *k = &rf_op_in(call, K)->desc;
    const struct rf_tensor_desc *mask = &rf_op_in(call, MASK)->desc;
    struct rf_flash_attention_args a = {.out = rf_heads_strides(&rf_op_out(call, 0)->desc),
                                        .q = rf_heads_strides(q),
                                        .k = rf_heads_strides(k),
                                        .v = rf_heads_strides(&rf_op_in(call, V)->desc),
                                        .batch = q->shape[0],
                                        .heads_q = q->shape[1],
                                        .heads_kv = k->shape[1],
                                        .q_rows = q->shape[2],
                                        .k_rows = k->shape[2],
                                        .dim = q->shape[3],
                                        .offset =
                                            call->attributes.causal ? call->attributes.offset : (int64_t)k->shape[2],
                                        .scale = (float)call->attributes.scale};
    if (rf_op_given(rf_op_in(call, MASK))) {
        a.mask = rf_heads_strides(mask);
        /* A batch or head dimension of 1 is repeated. */
        if (mask->shape[0] == 1) a.mask.batch = 0;
        if (mask->shape[1] == 1) a.mask.head = 0;
    }
    return a;
}
/* NULL if the mask is left out. */
static const float *host_mask(const struct rf_op_call *call) {
    return rf_op_given(rf_op_in(call, MASK)) ? rf_op_host(rf_op_in(call, MASK)) : NULL;
}

static void reference(const struct rf_op_call *call) {
    struct rf_flash_attention_args a = flash_args(call);
    rf_ref_flash_attention(rf_op_in(call, Q)->desc.dtype, rf_op_host(rf_op_out(call, 0)),
                           rf_op_host(rf_op_in(call, Q)), rf_op_host(rf_op_in(call, K)),
                           rf_op_host(rf_op_in(call, V)), host_mask(call), &a);
}

static rf_status cpu_run(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_flash_attention_args a = flash_args(call);
    enum rf_dtype dtype = rf_op_in(call, Q)->desc.dtype;
    return rf_cpu_flash_attention(cpu, dtype, dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, Q)),
                                  rf_op_host(rf_op_in(call, K)), rf_op_host(rf_op_in(call, V)), host_mask(call), &a);
}

static rf_status gpu_run(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_flash_attention_launch launch = {.args = flash_args(call),
                                               .dtype = rf_op_in(call, Q)->desc.dtype,
                                               .path = (enum rf_attention_path)call->attributes.path,
                                               .out = rf_op_operand(rf_op_out(call, 0)),
                                               .q = rf_op_operand(rf_op_in(call, Q)),
                                               .k = rf_op_operand(rf_op_in(call, K)),
                                               .v = rf_op_operand(rf_op_in(call, V)),
                                               .mask = rf_op_operand(rf_op_in(call, MASK))};
    return rf_gpu_flash_attention(queue, &launch);
}

/* With causal, only the half of the square of queries and keys below the diagonal counts. */
static void cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    struct rf_flash_attention_args a = flash_args(call);
    *bytes = 0;
    for (int i = 0; i < call->count; i++)
        if (rf_op_given(&call->tensors[i]))
            *bytes += rf_op_elements(&call->tensors[i].desc) * rf_dtype_bytes(call->tensors[i].desc.dtype);
    *flops = 4 * a.batch * a.heads_q * a.q_rows * a.k_rows * a.dim / (call->attributes.causal ? 2 : 1);
}

/* Fills the mask: a third of it is -inf, and the first query of each head sees nothing. */
static bool fill(const struct rf_op_call *call, int index, uint64_t *state) {
    if (index != MASK) return false;
    const struct rf_tensor_desc *mask = &rf_op_in(call, MASK)->desc;
    float *values = rf_op_host(rf_op_in(call, MASK));
    for (uint64_t b = 0; b < mask->shape[0]; b++)
        for (uint64_t h = 0; h < mask->shape[1]; h++)
            for (uint64_t i = 0; i < mask->shape[2]; i++)
                for (uint64_t j = 0; j < mask->shape[3]; j++) {
                    uint64_t random = rf_op_random(state);
                    float value = (float)(random >> 40) * 0x1p-22f - 2;
                    if (random % 3 == 0 || i == 0) value = -INFINITY;
                    values[b * mask->strides[0] + h * mask->strides[1] + i * mask->strides[2] + j] = value;
                }
    return true;
}

/* ---- cases ---- */

struct shape {
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    int causal;
    int64_t offset;
    enum { NO_MASK, FULL_MASK, SHARED_MASK } mask;
    enum rf_heads_layout layout; /* of all tensors but the mask */
    enum rf_case_data data;
};

/* Tolerances. f32: 1e-4, a twentieth of the 2e-3 that the seeds (docs/from-the-seeds.md) allow; with scores of up to
 * 30 and values of up to 4 the error is some 2e-5. f16 and bf16: one step of the type (2^-10, 2^-7) for rounding the
 * result, and two steps for rounding the weights, which matrix kernels keep in the type, with values below 4. */
static void add(struct rf_case_list *list, const struct shape *s, enum rf_dtype dtype, enum rf_attention_path path) {
    static const char *const paths[] = {"", " plain", " matrix", " wide", " group"};
    static const char *const masks[] = {"", " mask", " shared mask"};
    struct rf_op_case one = {.count = 5, .data = s->data};
    double step = rf_op_step(dtype);
    bool extreme = s->data == RF_DATA_EXTREME;
    one.absolute = (extreme ? 1e4 : 1) * (dtype == RF_F32 ? 1e-4 : 2 * step);
    one.relative = dtype == RF_F32 ? 2e-5 : step;
    one.attributes.scale = 1 / sqrt((double)s->dim);
    one.attributes.causal = s->causal;
    one.attributes.offset = s->offset;
    one.attributes.path = path;
    one.tensors[Q] = rf_heads_desc(dtype, s->layout, s->batch, s->heads_q, s->q_rows, s->dim);
    one.tensors[K] = one.tensors[V] = rf_heads_desc(dtype, s->layout, s->batch, s->heads_kv, s->k_rows, s->dim);
    one.tensors[4] = one.tensors[Q];
    if (s->mask == FULL_MASK)
        one.tensors[MASK] = rf_heads_desc(RF_F32, s->layout == RF_LAYOUT_DENSE ? RF_LAYOUT_DENSE : RF_LAYOUT_ODD,
                                          s->batch, s->heads_q, s->q_rows, s->k_rows);
    if (s->mask == SHARED_MASK)
        one.tensors[MASK] = rf_heads_desc(RF_F32, RF_LAYOUT_DENSE, 1, 1, s->q_rows, s->k_rows);
    char causal[32] = "";
    if (s->causal) snprintf(causal, sizeof causal, " causal%+lld", (long long)s->offset);
    snprintf(one.label, sizeof one.label, "%s %llux%llu/%llu %llux%llu d%llu%s%s%s%s%s", rf_dtype_name(dtype),
             (unsigned long long)s->batch, (unsigned long long)s->heads_q, (unsigned long long)s->heads_kv,
             (unsigned long long)s->q_rows, (unsigned long long)s->k_rows, (unsigned long long)s->dim, causal,
             masks[s->mask], rf_heads_layout_name(s->layout), paths[path], extreme ? ", extreme" : "");
    rf_case_add(list, &one);
}
/* Adds the case for every kernel that takes the type and head size. */
static void add_paths(struct rf_case_list *list, const struct shape *s, enum rf_dtype dtype) {
    if (dtype == RF_F32) {
        add(list, s, dtype, RF_ATTENTION_AUTO);
        return;
    }
    add(list, s, dtype, RF_ATTENTION_PLAIN);
    add(list, s, dtype, RF_ATTENTION_MATRIX);
    if (s->dim > 96 && s->dim <= 128 && !s->mask) add(list, s, dtype, RF_ATTENTION_WIDE);
    bool work = s->batch && s->q_rows && s->k_rows;
    if (work && !s->mask && (s->q_rows > 60 || s->offset || s->dim % 32 == 0))
        add(list, s, dtype, RF_ATTENTION_GROUP);
}

static void cases(struct rf_case_list *list) {
    static const uint64_t dims[] = {8, 16, 32, 40, 64, 72, 80, 88, 96, 104, 112, 128, 136, 192, 200, 256};
    /* The seeds' own shapes come first; then sizes that no tile divides, queries that see nothing, no keys, and no
     * work. */
    static const struct shape shapes[] = {
        {1, 2, 2, 32, 32, 32, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {2, 4, 4, 32, 32, 32, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 2, 2, 32, 32, 32, 1, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 1, 1, 1, 1, 8, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 4, 2, 17, 31, 64, 0, 0, FULL_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL},
        {2, 6, 1, 7, 37, 80, 0, 0, SHARED_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 3, 3, 61, 61, 96, 1, 0, SHARED_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL},
        {1, 2, 1, 40, 31, 128, 1, -9, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 5, 1, 3, 97, 64, 1, 94, NO_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL},
        {1, 2, 2, 67, 5, 32, 1, INT32_MAX, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 2, 2, 9, 11, 32, 1, -(int64_t)INT32_MAX, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 2, 1, 5, 0, 64, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {0, 2, 1, 5, 4, 64, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 2, 1, 0, 4, 64, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 2, 1, 13, 41, 32, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_EXTREME},
        {1, 2, 1, 13, 41, 128, 1, 28, NO_MASK, RF_LAYOUT_SPREAD, RF_DATA_EXTREME},
        {1, 2, 1, 13, 41, 104, 1, 28, FULL_MASK, RF_LAYOUT_DENSE, RF_DATA_EXTREME},
        /* Several tiles of queries and of keys. */
        {1, 2, 1, 131, 301, 128, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL},
        {1, 1, 1, 150, 260, 120, 1, 109, NO_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL},
        {1, 1, 1, 70, 200, 128, 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_EXTREME},
    };
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        for (size_t i = 0; i < RF_COUNT(shapes); i++) add_paths(list, &shapes[i], rf_case_floats[t]);
        for (size_t i = 0; i < RF_COUNT(dims); i++) {
            struct shape s = {1, 2, 1, 19, 35, dims[i], 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL};
            add_paths(list, &s, rf_case_floats[t]);
            s = (struct shape){1, 1, 1, 33, 65, dims[i], 1, 32, NO_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL};
            if (i % 2) s.mask = FULL_MASK;
            add_paths(list, &s, rf_case_floats[t]);
        }
    }
    for (int causal = 0; causal < 2; causal++) {
        struct rf_op_case one = {.count = 5, .bench = true};
        one.attributes.scale = 1 / sqrt(128.0);
        one.attributes.causal = causal;
        one.tensors[Q] = rf_heads_desc(RF_F16, RF_LAYOUT_DENSE, 4, 32, 4096, 128);
        one.tensors[K] = one.tensors[V] = one.tensors[4] = one.tensors[Q];
        snprintf(one.label, sizeof one.label, "f16 4x32 4096x4096 d128%s", causal ? " causal" : "");
        rf_case_add(list, &one);
    }
}

const struct rf_op rf_op_flash_attention = {
    .name = "flash_attention",
    .summary =
        "out = softmax(scale * q k^T + mask) v; causal: keys j <= i + offset; a query that sees none gives zeros",
    .inputs = 4,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(scale, 0), RF_ATTRIBUTE_I(causal, 0), RF_ATTRIBUTE_I(offset, 1),
                                RF_ATTRIBUTE_I(path, 2)),
    .optional = 1 << MASK,
    .check = check,
    .reference = reference,
    .gpu = gpu_run,
    .cpu = cpu_run,
    .cases = cases,
    .fill = fill,
    .cost = cost,
};
