/* The row of flash_attention: q, k, v and, if given, a mask (f32; a batch or head of 1 serves all).
 * f[0]: the scale. i[0]: causal or not. i[1]: with causal, query i sees the keys j <= i + i[1].
 * i[2]: enum rf_attention_path, which kernel; the CPU does not care. */
#include "ops/op_attention_impl.h"

#include <math.h>
#include <stdio.h>

#include "cpu/fast.h"
#include "cpu/reference.h"

enum { Q, K, V, MASK };

/* A batch or head of the mask that serves all is repeated by a stride of 0. */
static void mask_strides(const struct rf_op_call *call, uint64_t strides[3]) {
    const struct rf_tensor_desc *mask = &rf_op_in(call, MASK)->desc;
    for (int i = 0; i < 3; i++) strides[i] = i < 2 && mask->shape[i] == 1 ? 0 : mask->strides[i];
}

static rf_status check_mask(const struct rf_op_call *call) {
    const struct rf_tensor_desc *mask = &rf_op_in(call, MASK)->desc, *q = &rf_op_in(call, Q)->desc;
    rf_status status = rf_heads_check_rank("mask", mask);
    if (status) return status;
    uint64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], rf_op_in(call, K)->desc.shape[2]};
    for (int i = 0; i < 2; i++)
        if (mask->shape[i] == 1) shape[i] = 1;
    status = rf_heads_check("mask", mask, RF_F32, shape, 1, false);
    if (!status && shape[2] > 1 && !mask->strides[2])
        status = rf_fail(RF_E_UNSUPPORTED, "the mask must have a row for each query");
    return status;
}

static rf_status check(const struct rf_op_call *call) {
    const struct rf_tensor_desc *q = &rf_op_in(call, Q)->desc, *k = &rf_op_in(call, K)->desc;
    const struct rf_tensor_desc *v = &rf_op_in(call, V)->desc, *out = &rf_op_out(call, 0)->desc;
    const struct rf_op_attributes *at = &call->attributes;
    rf_status status = rf_heads_check_float(q->dtype);
    if (!status) status = rf_heads_check_rank("q", q);
    if (!status) status = rf_heads_check_rank("k", k);
    if (!status) status = rf_heads_check_group(q->shape[1], k->shape[1]);
    if (!status) status = rf_heads_check_dim(q->shape[3]);
    if (!status) status = rf_heads_check("q", q, q->dtype, q->shape, 16, false);
    const uint64_t key_shape[4] = {q->shape[0], k->shape[1], k->shape[2], q->shape[3]};
    if (!status) status = rf_heads_check("k", k, q->dtype, key_shape, 16, false);
    if (!status) status = rf_heads_check("v", v, q->dtype, key_shape, 16, false);
    if (!status) status = rf_heads_check("out", out, q->dtype, q->shape, 16, true);
    if (!status && rf_op_given(rf_op_in(call, MASK))) status = check_mask(call);
    if (!status) status = rf_heads_check_scale(at->scale);
    if (!status) status = rf_heads_check_path(at->path);
    if (!status && at->causal && (at->offset > INT32_MAX || at->offset < -(int64_t)INT32_MAX))
        status = rf_fail(RF_E_INVALID, "an offset of %lld, at most %d either way", (long long)at->offset, INT32_MAX);
    return status;
}

static struct rf_ref_attention arguments(const struct rf_op_call *call) {
    const struct rf_tensor_desc *q = &rf_op_in(call, Q)->desc, *k = &rf_op_in(call, K)->desc;
    struct rf_ref_attention a = {.dtype = q->dtype,
                                 .batch = q->shape[0],
                                 .heads_q = q->shape[1],
                                 .heads_kv = k->shape[1],
                                 .q_rows = q->shape[2],
                                 .k_rows = k->shape[2],
                                 .dim = q->shape[3],
                                 .q_strides = rf_heads_strides(q),
                                 .k_strides = rf_heads_strides(k),
                                 .v_strides = rf_heads_strides(&rf_op_in(call, V)->desc),
                                 .out_strides = rf_heads_strides(&rf_op_out(call, 0)->desc),
                                 .scale = (float)call->attributes.scale,
                                 .causal = call->attributes.causal != 0,
                                 .offset = call->attributes.offset};
    if (rf_op_given(rf_op_in(call, MASK))) {
        uint64_t strides[3];
        mask_strides(call, strides);
        a.mask = rf_op_host(rf_op_in(call, MASK));
        a.mask_strides = (struct rf_ref_heads){strides[0], strides[1], strides[2]};
    }
    return a;
}

static void reference(const struct rf_op_call *call) {
    struct rf_ref_attention a = arguments(call);
    rf_ref_flash_attention(&a, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, Q)),
                           rf_op_host(rf_op_in(call, K)), rf_op_host(rf_op_in(call, V)));
}

static rf_status cpu_run(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_ref_attention a = arguments(call);
    return rf_cpu_attention_of(cpu, &a, NULL, a.dtype, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, Q)),
                               rf_op_host(rf_op_in(call, K)), rf_op_host(rf_op_in(call, V)));
}

static rf_status gpu_run(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *mask = rf_op_in(call, MASK);
    struct rf_ref_attention a = arguments(call);
    struct rf_flash_attention_args args = {.dtype = a.dtype,
                                           .batch = a.batch,
                                           .heads_q = a.heads_q,
                                           .heads_kv = a.heads_kv,
                                           .q_rows = a.q_rows,
                                           .k_rows = a.k_rows,
                                           .dim = a.dim,
                                           .scale = a.scale,
                                           .causal = a.causal,
                                           .offset = a.offset,
                                           .out = rf_heads_view(rf_op_out(call, 0)),
                                           .q = rf_heads_view(rf_op_in(call, Q)),
                                           .k = rf_heads_view(rf_op_in(call, K)),
                                           .v = rf_heads_view(rf_op_in(call, V)),
                                           .path = (enum rf_attention_path)call->attributes.path};
    if (rf_op_given(mask)) {
        args.mask = rf_heads_view(mask);
        args.mask.batch = a.mask_strides.batch;
        args.mask.head = a.mask_strides.head;
    }
    return rf_gpu_flash_attention(queue, &args);
}

/* Of the square of queries and keys with causal: the half below the diagonal. */
static void cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    struct rf_ref_attention a = arguments(call);
    *bytes = 0;
    for (int i = 0; i < call->count; i++)
        if (rf_op_given(&call->tensors[i]))
            *bytes += rf_op_elements(&call->tensors[i].desc) * rf_dtype_bytes(call->tensors[i].desc.dtype);
    *flops = 4 * a.batch * a.heads_q * a.q_rows * a.k_rows * a.dim / (a.causal ? 2 : 1);
}

/* The mask: a third of it -inf, and the first query of each head sees nothing. */
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
    enum rf_heads_layout layout; /* of all but the mask */
    enum rf_case_data data;
};

/* f32: 1e-4, a twentieth of the seeds' 2e-3; scores of up to 30 and values of up to 4 make it some 2e-5. f16 and
 * bf16: a step of the type (2^-10, 2^-7) for the result's rounding, and two steps for that of the weights, which
 * matrix kernels keep in the type, of values below 4. */
static void add(struct rf_case_list *list, const struct shape *s, enum rf_dtype dtype, enum rf_attention_path path) {
    static const char *const paths[] = {"", " plain", " matrix", " wide"};
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
/* On every kernel that takes the type and head size. */
static void add_paths(struct rf_case_list *list, const struct shape *s, enum rf_dtype dtype) {
    if (dtype == RF_F32) {
        add(list, s, dtype, RF_ATTENTION_AUTO);
        return;
    }
    add(list, s, dtype, RF_ATTENTION_PLAIN);
    add(list, s, dtype, RF_ATTENTION_MATRIX);
    if (s->dim > 96 && s->dim <= 128 && !s->mask) add(list, s, dtype, RF_ATTENTION_WIDE);
}

static void cases(struct rf_case_list *list) {
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
    static const uint64_t dims[] = {8, 16, 32, 40, 64, 72, 80, 88, 96, 104, 112, 128, 136, 192, 200, 256};
    /* The seeds' own first; sizes that divide nothing; queries that see nothing; no keys; nothing to do. */
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
    for (size_t t = 0; t < RF_COUNT(types); t++) {
        for (size_t i = 0; i < RF_COUNT(shapes); i++) add_paths(list, &shapes[i], types[t]);
        for (size_t i = 0; i < RF_COUNT(dims); i++) {
            struct shape s = {1, 2, 1, 19, 35, dims[i], 0, 0, NO_MASK, RF_LAYOUT_DENSE, RF_DATA_NORMAL};
            add_paths(list, &s, types[t]);
            s = (struct shape){1, 1, 1, 33, 65, dims[i], 1, 32, NO_MASK, RF_LAYOUT_SPREAD, RF_DATA_NORMAL};
            if (i % 2) s.mask = FULL_MASK;
            add_paths(list, &s, types[t]);
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
    .summary = "out = softmax(eps * q k^T + mask) v; i[0]: causal, keys j <= i + i[1]; who sees none gives zeros",
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
