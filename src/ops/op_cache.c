/* The ops of the KV cache: kv_append, and rope_append, which is rope and kv_append together. */
#include "ops/op_rope_impl.h"

#include "cpu/fast.h"
#include "ops/gpu_cache.h"

extern const struct rf_op rf_op_rope;

/* ---- kv_append: into caches of [pages, heads, page rows, dim] ---- */

enum { K, V, POSITIONS, SEQUENCES, TABLE, STEPS, K_CACHE, V_CACHE, KV_TENSORS };

static rf_status kv_check(const struct rf_op_call *call) {
    static const char *const names[] = {"k", "v", "positions", "sequences", "table", "steps", "k_cache", "v_cache"};
    const struct rf_op_tensor *k = rf_op_in(call, K), *cache = rf_op_in(call, K_CACHE);
    const struct rf_op_tensor *sequences = rf_op_in(call, SEQUENCES), *table = rf_op_in(call, TABLE);
    for (int i = K; i <= V; i++) {
        const struct rf_op_tensor *one = rf_op_in(call, i);
        RF_TRY(rf_need_type(one, names[i], RF_F32));
        RF_TRY(rf_need_heads(one, names[i]));
        RF_TRY(rf_need_like(one, names[i], k, "k"));
        if (one->desc.shape[1] > 1 && one->desc.strides[1] != one->desc.shape[2])
            return rf_fail(RF_E_UNSUPPORTED, "the heads of %s are not side by side", names[i]);
        if (one->desc.shape[0] > 1 && !one->desc.strides[0])
            return rf_fail(RF_E_UNSUPPORTED, "the tokens of %s have a stride of 0", names[i]);
    }
    RF_TRY(rf_need_numbers(rf_op_in(call, POSITIONS), "positions", k->desc.shape[0]));
    if (rf_op_given(sequences)) RF_TRY(rf_need_numbers(sequences, "sequences", k->desc.shape[0]));
    if (rf_op_given(table)) {
        RF_TRY(rf_need_type(table, "table", RF_I32));
        RF_TRY(rf_need_rank(table, "table", 2));
        RF_TRY(rf_need_dense(table, "table"));
        if (!rf_op_elements(&table->desc))
            return rf_fail(RF_E_INVALID, "table is empty: leave it out, or give pages");
    }
    if (rf_op_given(rf_op_in(call, STEPS))) RF_TRY(rf_rotation_check(call, rf_op_in(call, STEPS), k->desc.shape[2]));
    if (cache->desc.dtype != RF_F32 && cache->desc.dtype != RF_F16 && cache->desc.dtype != RF_Q8_0)
        return rf_fail(RF_E_UNSUPPORTED, "a cache of %s: f32, f16 or q8_0", rf_dtype_name(cache->desc.dtype));
    for (int i = K_CACHE; i <= V_CACHE; i++) {
        const struct rf_op_tensor *one = rf_op_in(call, i);
        RF_TRY(rf_need_rank(one, names[i], 4));
        RF_TRY(rf_need_like(one, names[i], cache, "k_cache"));
        RF_TRY(rf_need_size(one, names[i], 1, k->desc.shape[1]));
        RF_TRY(rf_need_size(one, names[i], 3, k->desc.shape[2]));
        RF_TRY(rf_need_dense_rows(one, names[i]));
        RF_TRY(rf_need_distinct(one, names[i]));
        if (memcmp(one->desc.strides, cache->desc.strides, 3 * sizeof one->desc.strides[0]))
            return rf_fail(RF_E_INVALID, "the strides of k_cache and v_cache differ");
        if (!one->desc.shape[0] || !one->desc.shape[2] || one->desc.shape[0] > UINT32_MAX ||
            one->desc.shape[2] > UINT32_MAX)
            return rf_fail(RF_E_INVALID, "%s has %llu pages of %llu rows: both from 1 to 2^32 - 1", names[i],
                           (unsigned long long)one->desc.shape[0], (unsigned long long)one->desc.shape[2]);
    }
    return RF_OK;
}
static struct rf_kv_append_args kv_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *k = &rf_op_in(call, K)->desc, *v = &rf_op_in(call, V)->desc,
                                *cache = &rf_op_in(call, K_CACHE)->desc, *table = &rf_op_in(call, TABLE)->desc;
    struct rf_kv_append_args args = {.tokens = k->shape[0],
                                     .k_token = k->strides[0],
                                     .v_token = v->strides[0],
                                     .page = cache->strides[0],
                                     .head = cache->strides[1],
                                     .row = cache->strides[2],
                                     .table_width = table->shape[1],
                                     .sequence_count = table->shape[0],
                                     .heads = (uint32_t)k->shape[1],
                                     .dim = (uint32_t)k->shape[2],
                                     .page_rows = (uint32_t)cache->shape[2],
                                     .page_count = (uint32_t)cache->shape[0]};
    if (rf_op_given(rf_op_in(call, STEPS))) {
        args.rotated = (uint32_t)(2 * rf_op_in(call, STEPS)->desc.shape[0]);
        args.halves = call->attributes.halves != 0;
        args.magnitude = (float)call->attributes.magnitude;
    }
    return args;
}
static struct rf_ref_kv_append kv_on_host(const struct rf_op_call *call) {
    return (struct rf_ref_kv_append){.args = kv_args(call),
                                     .dtype = rf_op_in(call, K_CACHE)->desc.dtype,
                                     .k_cache = rf_op_host(rf_op_in(call, K_CACHE)),
                                     .v_cache = rf_op_host(rf_op_in(call, V_CACHE)),
                                     .k = rf_op_host(rf_op_in(call, K)),
                                     .v = rf_op_host(rf_op_in(call, V)),
                                     .positions = rf_op_host(rf_op_in(call, POSITIONS)),
                                     .sequences = rf_op_host(rf_op_in(call, SEQUENCES)),
                                     .table = rf_op_host(rf_op_in(call, TABLE)),
                                     .steps = rf_op_host(rf_op_in(call, STEPS))};
}
static struct rf_gpu_kv_append kv_on_gpu(const struct rf_op_call *call) {
    return (struct rf_gpu_kv_append){.args = kv_args(call),
                                     .dtype = rf_op_in(call, K_CACHE)->desc.dtype,
                                     .k_cache = rf_op_operand(rf_op_in(call, K_CACHE)),
                                     .v_cache = rf_op_operand(rf_op_in(call, V_CACHE)),
                                     .k = rf_op_operand(rf_op_in(call, K)),
                                     .v = rf_op_operand(rf_op_in(call, V)),
                                     .positions = rf_op_operand(rf_op_in(call, POSITIONS)),
                                     .sequences = rf_op_operand(rf_op_in(call, SEQUENCES)),
                                     .table = rf_op_operand(rf_op_in(call, TABLE)),
                                     .steps = rf_op_operand(rf_op_in(call, STEPS))};
}
static void kv_reference(const struct rf_op_call *call) {
    struct rf_ref_kv_append append = kv_on_host(call);
    rf_ref_kv_append(&append);
}
static rf_status kv_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_ref_kv_append append = kv_on_host(call);
    return rf_cpu_kv_append(cpu, &append);
}
static rf_status kv_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_gpu_kv_append append = kv_on_gpu(call);
    return rf_gpu_kv_append(queue, &append);
}

/* No two tokens go to the same place: every token has its own position, and every page is in the table once. Some
 * tokens have no place: their position is negative or beyond the table, or their sequence or page does not exist. */
static bool kv_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *tensor = rf_op_in(call, index);
    int32_t *numbers = rf_op_host(tensor);
    uint64_t pages = rf_op_in(call, K_CACHE)->desc.shape[0], count = rf_op_elements(&tensor->desc);
    uint64_t sequences = rf_op_given(rf_op_in(call, TABLE)) ? rf_op_in(call, TABLE)->desc.shape[0] : pages;
    switch (index) {
    case POSITIONS:
        for (uint64_t i = 0; i < count; i++) numbers[i] = count > 4 && i == 3 ? -1 : (int32_t)(i ^ (count > 8));
        return true;
    case SEQUENCES:
        for (uint64_t i = 0; i < count; i++)
            numbers[i] = i == 6 ? -2 : (int32_t)(rf_op_random(state) % (sequences + (i > 4)));
        return true;
    case TABLE:
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = rf_op_random(state) % (i + 1); /* an inside-out shuffle */
            numbers[i] = numbers[at];
            numbers[at] = (int32_t)i; /* numbers from the page count on name no page */
        }
        return true;
    case STEPS: rf_rotation_fill(call, tensor); return true;
    default: return false;
    }
}
static void kv_shape(struct rf_op_case *one, enum rf_dtype dtype, const uint64_t *of_k, uint64_t gap,
                     const uint64_t *of_cache, uint64_t cache_gap) {
    one->count = KV_TENSORS;
    for (int i = 0; i < 2; i++) {
        one->tensors[K + i] = rf_case_tensor(RF_F32, 3, of_k, gap && i ? 1 : 0);
        one->tensors[K_CACHE + i] = rf_case_tensor(dtype, 4, of_cache, cache_gap ? 2 + (uint64_t)i : 0);
        uint64_t *strides = one->tensors[K + i].strides, *cache = one->tensors[K_CACHE + i].strides;
        if (gap && !i) strides[0] = of_k[1] * of_k[2] + gap, strides[1] = of_k[2], strides[2] = 1;
        if (!cache_gap || dtype == RF_Q8_0) continue;
        cache[3] = 1;
        cache[2] = of_cache[3] + cache_gap;
        cache[1] = of_cache[2] * cache[2];
        cache[0] = of_cache[1] * cache[1] + cache_gap;
    }
    one->tensors[POSITIONS] = rf_case_vector(RF_I32, of_k[0], 0);
}
static void kv_cases(struct rf_case_list *list) {
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_Q8_0};
    static const struct {
        uint64_t tokens, heads, dim, page_rows;
    } shapes[] = {{1, 1, 32, 1}, {9, 3, 64, 4}, {13, 2, 96, 5}, {7, 1, 128, 16}, {11, 2, 288, 3}, {0, 2, 32, 4}};
    static const char *const layouts[] = {"", ", sequences", ", table", ", sequences and table"};
    static const char *const turns[] = {"", ", turned by halves", ", turned by pairs"};
    for (size_t t = 0; t < RF_COUNT(types); t++)
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            for (int layout = 0; layout < 4; layout++)
                for (int turn = 0; turn < 3; turn++) {
                    struct rf_op_case one = {.attributes = {.magnitude = 1}};
                    uint64_t tokens = shapes[i].tokens, dim = shapes[i].dim, rotated = i % 2 ? dim : dim / 2;
                    bool strided = (i + (size_t)layout + (size_t)turn) % 2;
                    uint64_t of_k[] = {tokens, shapes[i].heads, dim};
                    uint64_t of_cache[] = {layout >= 2 ? 9 : 3, shapes[i].heads, shapes[i].page_rows, dim};
                    kv_shape(&one, types[t], of_k, strided ? 5 : 0, of_cache, strided ? 3 : 0);
                    if (layout & 1) one.tensors[SEQUENCES] = rf_case_vector(RF_I32, tokens, 1);
                    if (layout & 2) one.tensors[TABLE] = rf_case_matrix(RF_I32, layout & 1 ? 3 : 1, 4, 0, 0);
                    if (turn) {
                        one.tensors[STEPS] = rf_case_matrix(RF_I32, rotated / 2, 2, 0, 2);
                        rf_rotation_set(&one, (int)(i % RF_ROTATIONS), turn == 1, rotated);
                        /* An element between two quants of Q8_0 may be rounded to either. */
                        one.absolute = types[t] == RF_Q8_0 ? 0.06 : 2e-5;
                        one.relative = types[t] == RF_Q8_0 ? 1e-3 : rf_op_step(types[t]);
                    }
                    rf_case_add_shown(list, &one, K, " into %s pages of %llu%s%s%s", rf_dtype_name(types[t]),
                                      (unsigned long long)shapes[i].page_rows, layouts[layout], turns[turn],
                                      strided ? ", gaps" : "");
                }
    for (size_t t = 0; t < RF_COUNT(types); t++)
        for (int turn = 0; turn < 2; turn++) {
            struct rf_op_case one = {.attributes = {.magnitude = 1}, .bench = true, .absolute = 1};
            kv_shape(&one, types[t], (uint64_t[]){16384, 32, 128}, 0, (uint64_t[]){1024, 32, 16, 128}, 0);
            one.tensors[TABLE] = rf_case_matrix(RF_I32, 1, 1024, 0, 0);
            if (turn) {
                one.tensors[STEPS] = rf_case_matrix(RF_I32, 64, 2, 0, 0);
                rf_rotation_set(&one, 0, true, 128);
            }
            rf_case_add_shown(list, &one, K, " into %s%s", rf_dtype_name(types[t]), turns[turn]);
        }
}
static void kv_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    const struct rf_tensor_desc *k = &rf_op_in(call, K)->desc;
    enum rf_dtype dtype = rf_op_in(call, K_CACHE)->desc.dtype;
    *bytes = 2 * rf_op_elements(k) * 4 + 2 * rf_op_elements(k) / rf_dtype_block(dtype) * rf_dtype_block_bytes(dtype);
    *flops = rf_op_given(rf_op_in(call, STEPS)) ? 3 * rf_op_elements(k) : 0;
}
const struct rf_op rf_op_kv_append = {
    .name = "kv_append",
    .summary = "k, turned by steps, and v into the caches' rows of each token's sequence and position",
    .inputs = KV_TENSORS,
    .outputs = 0,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(magnitude, 0), RF_ATTRIBUTE_I(halves, 0)),
    .optional = 1 << SEQUENCES | 1 << TABLE | 1 << STEPS,
    .updates = 1 << K_CACHE | 1 << V_CACHE,
    .check = kv_check,
    .reference = kv_reference,
    .gpu = kv_gpu,
    .cpu = kv_cpu,
    .cases = kv_cases,
    .fill = kv_fill,
    .cost = kv_cost,
};

/* ---- rope_append: what a layer does between its products and its attention ----
 *
 * The inputs are q [tokens, heads, dim] and those of kv_append. The CPU runs rope and kv_append one after the other;
 * a GPU runs both in one kernel. */

enum { QUERIES, OF_KV, APPEND_TENSORS = OF_KV + KV_TENSORS };
enum { TOGETHER_TOKENS = 64 };

/* Op number `index` of the two ops that rope_append stands for. */
static struct rf_op_call append_part(const struct rf_op_call *call, int index) {
    struct rf_op_call part = {.op = index ? &rf_op_kv_append : &rf_op_rope, .attributes = call->attributes};
    if (index) {
        memcpy(part.tensors, &call->tensors[OF_KV], KV_TENSORS * sizeof part.tensors[0]);
    } else {
        part.tensors[0] = *rf_op_in(call, QUERIES);
        part.tensors[1] = *rf_op_in(call, OF_KV + POSITIONS);
        part.tensors[2] = *rf_op_in(call, OF_KV + STEPS);
        part.tensors[3] = *rf_op_out(call, 0);
    }
    part.count = part.op->inputs + part.op->outputs;
    return part;
}

static rf_status append_check(const struct rf_op_call *call) {
    RF_TRY(rf_need_type(rf_op_in(call, QUERIES), "q", RF_F32));
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        RF_TRY(part.op->check(&part));
    }
    return rf_need_size(rf_op_in(call, OF_KV + K), "k", 2, rf_op_in(call, QUERIES)->desc.shape[2]);
}
static void append_reference(const struct rf_op_call *call) {
    rf_op_parts_reference(call, append_part, 2);
}
static rf_status append_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        RF_TRY(part.op->cpu(cpu, &part));
    }
    return RF_OK;
}
static bool heads_dense(const struct rf_tensor_desc *desc) {
    return desc->shape[1] == 1 || desc->strides[1] == desc->shape[2];
}
bool rf_rope_append_at_once(const struct rf_op_call *call, struct rf_gpu_kv_append *append) {
    const struct rf_op_tensor *q = rf_op_in(call, QUERIES), *out = rf_op_out(call, 0);
    struct rf_op_call kv = append_part(call, 1);
    *append = kv_on_gpu(&kv);
    append->q = rf_op_operand(q);
    append->q_out = rf_op_operand(out);
    append->args.q_heads = (uint32_t)q->desc.shape[1];
    append->args.q_token = q->desc.strides[0];
    append->args.q_out_token = out->desc.strides[0];
    append->args.q_half = out->desc.dtype == RF_F16;
    /* With many tokens, the separate kernels are used: each moves wider vectors. */
    return append->args.tokens <= TOGETHER_TOKENS && append->args.heads && append->args.q_heads &&
           heads_dense(&q->desc) && heads_dense(&out->desc);
}
static rf_status append_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_gpu_kv_append append;
    if (rf_rope_append_at_once(call, &append)) return rf_gpu_kv_append(queue, &append);
    struct rf_op_call turn = append_part(call, 0), kv = append_part(call, 1);
    RF_TRY(turn.op->gpu(queue, &turn));
    return kv.op->gpu(queue, &kv);
}
static bool append_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    struct rf_op_call kv = append_part(call, 1);
    return index >= OF_KV && kv_fill(&kv, index - OF_KV, state);
}
static void append_case(struct rf_case_list *list, enum rf_dtype cache, bool to_f16, const uint64_t of_q[3],
                        uint64_t kv_heads, uint64_t page_rows, int how) {
    uint64_t tokens = of_q[0], dim = of_q[2], rotated = how & 1 ? dim : dim / 2;
    /* split: with gaps between the heads too, of queries and result, or if strided of the result alone */
    bool halves = how & 2, strided = how & 4, split = how & 8;
    struct rf_op_case kv = {.attributes = {.magnitude = 1}}, one;
    uint64_t of_k[] = {tokens, kv_heads, dim}, of_cache[] = {9, kv_heads, page_rows, dim};
    kv_shape(&kv, cache, of_k, strided ? 5 : 0, of_cache, strided ? 3 : 0);
    kv.tensors[TABLE] = rf_case_matrix(RF_I32, 3, 4, 0, 0);
    kv.tensors[SEQUENCES] = rf_case_vector(RF_I32, tokens, 1);
    kv.tensors[STEPS] = rf_case_matrix(RF_I32, rotated / 2, 2, 0, 2);
    rf_rotation_set(&kv, how % RF_ROTATIONS, halves, rotated);
    one = kv;
    one.absolute = cache == RF_Q8_0 ? 0.06 : 2e-5;
    one.relative = cache == RF_Q8_0 ? 1e-3 : RF_MAX(rf_op_step(cache), rf_op_step(to_f16 ? RF_F16 : RF_F32));
    memcpy(&one.tensors[OF_KV], kv.tensors, KV_TENSORS * sizeof kv.tensors[0]);
    one.tensors[QUERIES] = rf_case_tensor(RF_F32, 3, of_q, strided ? 3 : 0);
    one.tensors[APPEND_TENSORS] = rf_case_tensor(to_f16 ? RF_F16 : RF_F32, 3, of_q, strided ? 1 : 0);
    for (int i = 0; i < 2 && (strided || split); i++) {
        uint64_t *strides = one.tensors[i ? APPEND_TENSORS : QUERIES].strides;
        strides[2] = 1;
        strides[1] = dim + (split && (i || !strided) ? 4 : 0);
        strides[0] = of_q[1] * strides[1] + (strided ? 7 : 0);
    }
    one.count = APPEND_TENSORS + 1;
    rf_case_add_shown(list, &one, QUERIES, " to %s, %llu of k into %s%s%s%s", to_f16 ? "f16" : "f32",
                      (unsigned long long)kv_heads, rf_dtype_name(cache), halves ? ", halves" : "",
                      strided ? ", gaps" : "", split ? ", heads apart" : "");
}
static void append_cases(struct rf_case_list *list) {
    static const enum rf_dtype caches[] = {RF_F32, RF_F16, RF_Q8_0};
    static const struct {
        uint64_t tokens, heads, kv_heads, dim, page_rows;
    } shapes[] = {{1, 4, 1, 32, 1},  {9, 3, 3, 64, 4},  {13, 6, 2, 96, 5}, {1, 32, 8, 128, 16},
                  {7, 8, 1, 128, 8}, {3, 2, 2, 288, 3}, {0, 2, 1, 32, 4},  {4, 0, 1, 64, 4}};
    for (size_t t = 0; t < RF_COUNT(caches); t++)
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            for (int to_f16 = 0; to_f16 < 2; to_f16++)
                for (int how = (int)(i % 2); how < 16; how += 3)
                    append_case(list, caches[t], to_f16,
                                (uint64_t[]){shapes[i].tokens, shapes[i].heads, shapes[i].dim}, shapes[i].kv_heads,
                                shapes[i].page_rows, how);
    struct rf_op_case one = {
        .attributes = {.magnitude = 1}, .bench = true, .absolute = 1, .count = APPEND_TENSORS + 1};
    struct rf_op_case kv = one;
    kv_shape(&kv, RF_F16, (uint64_t[]){16384, 8, 128}, 0, (uint64_t[]){1024, 8, 16, 128}, 0);
    memcpy(&one.tensors[OF_KV], kv.tensors, KV_TENSORS * sizeof kv.tensors[0]);
    one.tensors[OF_KV + TABLE] = rf_case_matrix(RF_I32, 1, 1024, 0, 0);
    one.tensors[OF_KV + STEPS] = rf_case_matrix(RF_I32, 64, 2, 0, 0);
    one.tensors[QUERIES] = rf_case_tensor(RF_F32, 3, (uint64_t[]){16384, 32, 128}, 0);
    one.tensors[APPEND_TENSORS] = rf_case_tensor(RF_F16, 3, (uint64_t[]){16384, 32, 128}, 0);
    rf_rotation_set(&one, 0, false, 128);
    rf_case_add_shown(list, &one, QUERIES, " to f16, 8 of k into f16");
}
static void append_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    rf_op_parts_cost(call, append_part, 0, 2, bytes, flops);
}
const struct rf_op rf_op_rope_append = {
    .name = "rope_append",
    .summary = "rope of q, and kv_append of k, turned likewise, and v",
    .inputs = APPEND_TENSORS,
    .outputs = 1,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(magnitude, 0), RF_ATTRIBUTE_I(halves, 0)),
    .optional = (1 << SEQUENCES | 1 << TABLE) << OF_KV,
    .updates = (1 << K_CACHE | 1 << V_CACHE) << OF_KV,
    .check = append_check,
    .reference = append_reference,
    .gpu = append_gpu,
    .cpu = append_cpu,
    .cases = append_cases,
    .fill = append_fill,
    .cost = append_cost,
};
