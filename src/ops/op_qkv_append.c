/* norm_qkv_append: with what a layer begins, up to its attention. It stands for norm_qkv and then rope_append:
 * rms_norm of x, the products with the weights of queries, keys and values, the rotation of queries and keys, and the
 * keys' and values' way into the KV cache. What the two ops compute on the way is output too.
 *
 * The reference and the CPU run them one after the other, and so does a GPU without a kernel for all of it. For one
 * token a GPU has one kernel for most types of weights; where the weights are of several types, one for each.
 *
 * Cases: x and norm are as in op_norm_products.c, positions and tables as in op_cache.c. */
#include "ops/op_weights_impl.h"

#include <math.h>

#include "ops/op_rope_impl.h"

/* Inputs, and outputs. */
enum { X, NORM, Q_WEIGHTS, POSITIONS = Q_WEIGHTS + 3, SEQUENCES, TABLE, STEPS, K_CACHE, V_CACHE, INPUTS };
enum { NORMED, Q, K, V, Q_OUT, OUTPUTS };
enum { PARTS = 2, PRODUCTS = 3, OF_TOKENS = 3 };

extern const struct rf_op rf_op_norm_qkv, rf_op_rope_append;

/* A product [tokens, heads * dim] as rope_append takes it. */
static struct rf_op_tensor heads_of(const struct rf_op_tensor *product, uint64_t dim) {
    struct rf_op_tensor heads = *product;
    uint64_t columns = product->desc.shape[1];
    heads.desc.rank = 3;
    heads.desc.shape[1] = dim ? columns / dim : 0;
    heads.desc.shape[2] = dim;
    heads.desc.strides[0] = rf_row_stride(&product->desc);
    heads.desc.strides[1] = dim;
    heads.desc.strides[2] = 1;
    return heads;
}

/* Op number `index` of the two. */
static struct rf_op_call part_of(const struct rf_op_call *call, int index) {
    struct rf_op_call part = {.op = index ? &rf_op_rope_append : &rf_op_norm_qkv,
                              .attributes = call->attributes,
                              .fill_kind = call->fill_kind,
                              .workspace = call->workspace,
                              .workspace_offset = call->workspace_offset};
    part.count = part.op->inputs + part.op->outputs;
    if (!index) {
        memcpy(part.tensors, call->tensors, POSITIONS * sizeof part.tensors[0]);
        memcpy(&part.tensors[part.op->inputs], rf_op_out(call, NORMED), (1 + PRODUCTS) * sizeof part.tensors[0]);
        return part;
    }
    uint64_t dim = rf_op_in(call, K_CACHE)->desc.shape[3];
    for (int i = 0; i < PRODUCTS; i++) part.tensors[i] = heads_of(rf_op_out(call, Q + i), dim);
    memcpy(&part.tensors[OF_TOKENS], rf_op_in(call, POSITIONS), (INPUTS - POSITIONS) * sizeof part.tensors[0]);
    part.tensors[part.op->inputs] = *rf_op_out(call, Q_OUT);
    return part;
}

static rf_status check(const struct rf_op_call *call) {
    struct rf_op_call norm = part_of(call, 0);
    RF_TRY(norm.op->check(&norm));
    RF_TRY(rf_need_rank(rf_op_in(call, K_CACHE), "k_cache", 4));
    uint64_t dim = rf_op_in(call, K_CACHE)->desc.shape[3];
    for (int i = 0; i < PRODUCTS; i++) {
        uint64_t columns = rf_op_in(call, Q_WEIGHTS + i)->desc.shape[0];
        if (!dim || columns % dim)
            return rf_fail(RF_E_INVALID, "%llu rows of weights are no whole heads of %llu",
                           (unsigned long long)columns, (unsigned long long)dim);
    }
    struct rf_op_call append = part_of(call, 1);
    return append.op->check(&append);
}
static void reference(const struct rf_op_call *call) {
    rf_op_parts_reference(call, part_of, PARTS);
}
static rf_status cpu_run(struct rf_cpu *cpu, const struct rf_op_call *call) {
    for (int i = 0; i < PARTS; i++) {
        struct rf_op_call part = part_of(call, i);
        RF_TRY(part.op->cpu(cpu, &part));
    }
    return RF_OK;
}
static rf_status workspace(const struct rf_op_call *call, uint64_t *bytes) {
    struct rf_op_call norm = part_of(call, 0);
    return norm.op->workspace(&norm, bytes);
}
static rf_status counters(const struct rf_op_call *call, uint64_t *bytes) {
    const struct rf_tensor_desc *cache = &rf_op_in(call, K_CACHE)->desc;
    *bytes = rf_op_in(call, X)->desc.shape[0] == 1 ? rf_gpu_qkv_counters(cache->dtype, cache->shape[1]) : 0;
    return RF_OK;
}
static rf_status gpu_run(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_op_call norm = part_of(call, 0), append = part_of(call, 1);
    struct rf_gpu_kv_append to;
    bool done = false;
    if (rf_rope_append_at_once(&append, &to)) {
        struct rf_operand counted = {call->counters, call->counters_offset};
        RF_TRY(rf_norm_products_at_once(queue, &norm, &to, counted, &done));
    }
    if (done) return RF_OK;
    RF_TRY(norm.op->gpu(queue, &norm));
    return append.op->gpu(queue, &append);
}
static void cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    rf_op_parts_cost(call, part_of, 0, 1, bytes, flops);
}

/* ---- cases ---- */

static bool fill(const struct rf_op_call *call, int index, uint64_t *state) {
    struct rf_op_call norm = part_of(call, 0), append = part_of(call, 1);
    if (index < POSITIONS) return norm.op->fill(&norm, index, state);
    return append.op->fill(&append, OF_TOKENS + index - POSITIONS, state);
}

struct shape {
    uint64_t tokens, heads, kv_heads, dim, rotated, k;
    bool halves, to_f16, table, sequences;
};

static void add_case_of(struct rf_case_list *list, const struct shape *s, enum rf_dtype weights, enum rf_dtype last,
                        enum rf_dtype cache, bool bench) {
    uint64_t columns[PRODUCTS] = {s->heads * s->dim, s->kv_heads * s->dim, s->kv_heads * s->dim};
    struct rf_op_case one = {.count = INPUTS + OUTPUTS, .bench = bench};
    one.tensors[X] = one.tensors[INPUTS + NORMED] = rf_case_matrix(RF_F32, s->tokens, s->k, 0, 0);
    one.tensors[NORM] = rf_case_vector(RF_F32, s->k, 0);
    for (int i = 0; i < PRODUCTS; i++) {
        one.tensors[Q_WEIGHTS + i] = rf_case_matrix(i == PRODUCTS - 1 ? last : weights, columns[i], s->k, 0, 0);
        one.tensors[INPUTS + Q + i] = rf_case_matrix(RF_F32, s->tokens, columns[i], 0, 0);
    }
    one.tensors[POSITIONS] = rf_case_vector(RF_I32, s->tokens, 0);
    if (s->sequences) one.tensors[SEQUENCES] = rf_case_vector(RF_I32, s->tokens, 1);
    if (s->table) one.tensors[TABLE] = rf_case_matrix(RF_I32, s->sequences ? 3 : 1, 4, 0, 0);
    one.tensors[STEPS] = rf_case_matrix(RF_I32, s->rotated / 2, 2, 0, 2);
    for (int i = K_CACHE; i <= V_CACHE; i++)
        one.tensors[i] = rf_case_tensor(cache, 4, (uint64_t[]){9, s->kv_heads, 4, s->dim}, 0);
    one.tensors[INPUTS + Q_OUT] =
        rf_case_tensor(s->to_f16 ? RF_F16 : RF_F32, 3, (uint64_t[]){s->tokens, s->heads, s->dim}, 0);
    rf_rotation_set(&one, (int)(s->dim / 32 % RF_ROTATIONS), s->halves, s->rotated);
    one.attributes.eps = 1e-5;
    /* As op_norm_products.c says of the products, and op_cache.c of what becomes of them: an element between two
     * quants of Q8_0, of the largest of 32, may be rounded to either. A rotation joins two products and may lengthen
     * them. */
    double product = rf_op_is_quantized(weights) ? 1.4 : 5.4, typical = product * sqrt((double)s->k);
    one.absolute = 2 * (1.5e-7 * product * ((double)s->k + 4) + 4e-7 * typical) + 1e-6 * typical;
    one.relative = RF_MAX(2e-6, RF_MAX(s->to_f16 ? rf_op_step(RF_F16) : 0, cache == RF_F16 ? rf_op_step(RF_F16) : 0));
    if (cache == RF_Q8_0) {
        one.absolute = 0.06 * typical;
        one.relative = 1e-3;
    }
    if (s->tokens > RF_MATVEC_ROWS) one.absolute += 4 * (weights == RF_BF16 ? 0x1p-8 : 0x1p-11) * typical;
    snprintf(one.label, sizeof one.label, "%s%s%s %llux%llu, %llu/%llu heads of %llu to %s, %s cache, %s %llu%s%s",
             rf_dtype_name(weights), last == weights ? "" : ", ", last == weights ? "" : rf_dtype_name(last),
             (unsigned long long)s->tokens, (unsigned long long)s->k, (unsigned long long)s->heads,
             (unsigned long long)s->kv_heads, (unsigned long long)s->dim, s->to_f16 ? "f16" : "f32",
             rf_dtype_name(cache), s->halves ? "halves" : "pairs", (unsigned long long)s->rotated,
             s->table ? ", table" : "", s->sequences ? ", sequences" : "");
    rf_case_add(list, &one);
}

static void add_case(struct rf_case_list *list, const struct shape *s, enum rf_dtype weights, enum rf_dtype cache,
                     bool bench) {
    add_case_of(list, s, weights, weights, cache, bench);
}

static void cases(struct rf_case_list *list) {
    static const enum rf_dtype caches[] = {RF_F32, RF_F16, RF_Q8_0};
    static const enum rf_dtype fast[] = {RF_F16, RF_BF16, RF_Q4_0, RF_Q8_0, RF_Q4_K, RF_Q6_K};
    static const struct shape shapes[] = {
        {1, 2, 1, 32, 32, 256, true, true, true, true},    {1, 4, 2, 64, 64, 512, false, false, false, false},
        {1, 3, 3, 96, 32, 256, true, false, true, false},  {1, 2, 1, 128, 96, 2304, false, true, false, true},
        {1, 5, 1, 64, 48, 4096, true, true, true, true},   {3, 2, 2, 32, 32, 256, true, true, true, true},
        {9, 2, 1, 64, 32, 256, false, false, true, true},  {1, 3, 2, 32, 32, 22528, true, false, true, false},
        {1, 33, 2, 32, 16, 256, false, true, true, false},
    };
    for (size_t s = 0; s < RF_COUNT(shapes); s++)
        for (size_t c = 0; c < RF_COUNT(caches); c++) {
            for (size_t w = 0; w < RF_COUNT(fast); w++)
                if (s < 5 || (w + s) % 3 == c) add_case(list, &shapes[s], fast[w], caches[c], false);
            /* Types without a kernel for all of it. */
            if (s < 2 || shapes[s].tokens > 1) add_case(list, &shapes[s], s % 2 ? RF_F32 : RF_Q5_K, caches[c], false);
        }
    /* Values of another type, as in many files; a kernel for each, or not. */
    for (size_t c = 0; c < RF_COUNT(caches); c++) {
        add_case_of(list, &(struct shape){1, 4, 2, 32, 32, 2048, c % 2, c < 2, true, true}, RF_Q4_K, RF_Q6_K,
                    caches[c], false);
        add_case_of(list, &(struct shape){1, 2, 1, 64, 32, 256, true, true, true, true}, RF_Q4_K, RF_Q6_K, caches[c],
                    false);
        add_case_of(list, &(struct shape){3, 2, 1, 32, 32, 2048, true, true, true, true}, RF_Q4_K, RF_Q6_K, caches[c],
                    false);
    }
    for (size_t w = 0; w < RF_COUNT(fast); w++)
        for (size_t c = 1; c < RF_COUNT(caches); c++)
            add_case(list, &(struct shape){1, 32, 8, 128, 128, 4096, true, caches[c] == RF_F16, true, true}, fast[w],
                     caches[c], true);
}

const struct rf_op rf_op_norm_qkv_append = {
    .name = "norm_qkv_append",
    .summary = "norm_qkv, and rope_append of its products; all results of both",
    .inputs = INPUTS,
    .outputs = OUTPUTS,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0), RF_ATTRIBUTE_F(magnitude, 1), RF_ATTRIBUTE_I(halves, 0)),
    .optional = 1 << SEQUENCES | 1 << TABLE,
    .updates = 1 << K_CACHE | 1 << V_CACHE,
    .check = check,
    .reference = reference,
    .gpu = gpu_run,
    .cpu = cpu_run,
    .workspace = workspace,
    .counters = counters,
    .cases = cases,
    .fill = fill,
    .cost = cost,
};
