/* Rows of the table for positions and the cache: rope, kv_append, and both at once: rope_append.
 *
 * steps is what rf_rope_steps gives, u64 [rotated / 2], as i32 [rotated / 2, 2]: turns of each pair per position, so
 * that bases, factors and scaling are one table for every backend. Both ops: f[0] is the magnitude, i[0] is 1 where
 * pairs are i and i + rotated / 2 and 0 where they are neighbours. i[1] is read by nothing but the cases here: which
 * of the rotations the steps are filled with. */
#include "graph/op_impl.h"

#include "cpu/fast.h"
#include "graph/gpu_transformer.h"

enum { DIM_MOST = 4096 }; /* the references' */

/* ---- rotations ---- */

enum { ROTATIONS = 4 };
static const char *const rotation_names[ROTATIONS] = {"", ", scaled", ", factors", ", yarn"};

static bool rotation_steps(int64_t which, uint64_t rotated, uint64_t *steps, float *magnitude) {
    float factors[DIM_MOST / 2];
    if (rotated > DIM_MOST) return false;
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
static void set_rotation(struct rf_op_case *one, int which, bool halves, uint64_t rotated) {
    uint64_t steps[DIM_MOST / 2];
    float magnitude = 1;
    rotation_steps(which, rotated, steps, &magnitude);
    one->attributes.f[0] = (double)magnitude;
    one->attributes.i[0] = halves;
    one->attributes.i[1] = which;
}
static void fill_steps(const struct rf_op_call *call, const struct rf_op_tensor *tensor) {
    float magnitude;
    rotation_steps(call->attributes.i[1], 2 * tensor->desc.shape[0], rf_op_host(tensor), &magnitude);
}

static rf_status check_rotation(const struct rf_op_call *call, const struct rf_op_tensor *steps, uint64_t dim) {
    TRY(rf_need_type(steps, "steps", RF_I32));
    TRY(rf_need_rank(steps, "steps", 2));
    TRY(rf_need_size(steps, "steps", 1, 2));
    TRY(rf_need_dense(steps, "steps"));
    TRY(rf_need_aligned(steps, "steps", 8));
    uint64_t pairs = steps->desc.shape[0];
    if (dim % 2 || !pairs || pairs > dim / 2)
        return rf_fail(RF_E_INVALID, "%llu pairs to rotate in a head of %llu: it must be even and hold them",
                       (unsigned long long)pairs, (unsigned long long)dim);
    if (call->attributes.i[0] != 0 && call->attributes.i[0] != 1)
        return rf_fail(RF_E_INVALID, "there is no pairing %lld: 0 or 1", (long long)call->attributes.i[0]);
    return RF_OK;
}
static rf_status check_numbers(const struct rf_op_tensor *tensor, const char *name, uint64_t count) {
    TRY(rf_need_type(tensor, name, RF_I32));
    TRY(rf_need_rank(tensor, name, 1));
    TRY(rf_need_size(tensor, name, 0, count));
    return rf_need_dense(tensor, name);
}
static rf_status check_heads(const struct rf_op_tensor *tensor, const char *name) {
    TRY(rf_need_rank(tensor, name, 3));
    if (tensor->desc.shape[1] > INT32_MAX) return rf_fail(RF_E_INVALID, "%s has more than 2^31 - 1 heads", name);
    if (tensor->desc.shape[2] > DIM_MOST)
        return rf_fail(RF_E_UNSUPPORTED, "%s has heads of %llu: up to %d", name,
                       (unsigned long long)tensor->desc.shape[2], DIM_MOST);
    return rf_need_dense_rows(tensor, name);
}
static struct rf_rope_table rotation_of(const struct rf_op_call *call, const struct rf_op_tensor *steps) {
    return (struct rf_rope_table){.steps = rf_op_slice(steps),
                                  .rotated = (uint32_t)(2 * steps->desc.shape[0]),
                                  .halves = call->attributes.i[0] != 0,
                                  .magnitude = (float)call->attributes.f[0]};
}

/* ---- rope: in [tokens, heads, dim], positions [tokens], steps ---- */

static rf_status rope_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    TRY(rf_need_float(in, "in"));
    TRY(check_heads(in, "in"));
    if (in->desc.dtype != RF_F32 || out->desc.dtype != RF_F16 || !rf_op_same_shape(&in->desc, &out->desc))
        TRY(rf_need_like(out, "out", in, "in"));
    TRY(rf_need_dense_rows(out, "out"));
    TRY(rf_need_distinct(out, "out"));
    TRY(check_numbers(rf_op_in(call, 1), "positions", in->desc.shape[0]));
    return check_rotation(call, rf_op_in(call, 2), in->desc.shape[2]);
}
static struct rf_ref_rope rope_of(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc, *out = &rf_op_out(call, 0)->desc;
    return (struct rf_ref_rope){.dtype = in->dtype,
                                .tokens = in->shape[0],
                                .heads = in->shape[1],
                                .dim = in->shape[2],
                                .rotated = 2 * rf_op_in(call, 2)->desc.shape[0],
                                .out_token = out->strides[0],
                                .out_head = out->strides[1],
                                .in_token = in->strides[0],
                                .in_head = in->strides[1],
                                .halves = call->attributes.i[0] != 0,
                                .positions = rf_op_host(rf_op_in(call, 1)),
                                .steps = rf_op_host(rf_op_in(call, 2)),
                                .magnitude = (float)call->attributes.f[0],
                                .to_f16 = in->dtype != out->dtype};
}
static void rope_reference(const struct rf_op_call *call) {
    struct rf_ref_rope rope = rope_of(call);
    rf_ref_rope(&rope, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, 0)));
}
static rf_status rope_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_ref_rope rope = rope_of(call);
    return rf_cpu_rope(cpu, &rope, rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, 0)));
}
static rf_status rope_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_rope_args args = {.dtype = in->desc.dtype,
                                .tokens = in->desc.shape[0],
                                .heads = in->desc.shape[1],
                                .dim = in->desc.shape[2],
                                .out_token = out->desc.strides[0],
                                .out_head = out->desc.strides[1],
                                .in_token = in->desc.strides[0],
                                .in_head = in->desc.strides[1],
                                .table = rotation_of(call, rf_op_in(call, 2)),
                                .out = rf_op_slice(out),
                                .in = rf_op_slice(in),
                                .positions = rf_op_slice(rf_op_in(call, 1)),
                                .to_f16 = in->desc.dtype != out->desc.dtype};
    return rf_gpu_rope(queue, &args);
}
static bool rope_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    if (index == 0) return false;
    if (index == 2) {
        fill_steps(call, rf_op_in(call, 2));
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
                for (int which = 0; which < ROTATIONS; which++) {
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
                    /* 256 MiB of either width. */
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
                    set_rotation(&one, which, halves != 0, shapes[i].rotated);
                    rf_case_add_shown(list, &one, 0, " %s%s %llu%s", to_f16 ? "to f16 " : "",
                                      halves ? "halves" : "pairs", (unsigned long long)shapes[i].rotated,
                                      rotation_names[which]);
                }
}
static void rope_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_weight_of_all(call);
    *flops = 3 * rf_op_elements(&rf_op_in(call, 0)->desc);
}
const struct rf_op rf_op_rope = {
    .name = "rope",
    .summary = "pairs of each head turned by steps[pair] * positions[token], magnified by f[0]; i[0]: pairing",
    .inputs = 3,
    .outputs = 1,
    .in_place = 1 << 0,
    .check = rope_check,
    .reference = rope_reference,
    .gpu = rope_gpu,
    .cpu = rope_cpu,
    .cases = rope_cases,
    .fill = rope_fill,
    .cost = rope_cost,
};

/* ---- kv_append: into caches of [pages, heads, page rows, dim] ---- */

enum { K, V, POSITIONS, SEQUENCES, TABLE, STEPS, K_CACHE, V_CACHE, KV_TENSORS };

static rf_status kv_check(const struct rf_op_call *call) {
    static const char *const names[] = {"k", "v", "positions", "sequences", "table", "steps", "k_cache", "v_cache"};
    const struct rf_op_tensor *k = rf_op_in(call, K), *cache = rf_op_in(call, K_CACHE);
    const struct rf_op_tensor *sequences = rf_op_in(call, SEQUENCES), *table = rf_op_in(call, TABLE);
    for (int i = K; i <= V; i++) {
        const struct rf_op_tensor *one = rf_op_in(call, i);
        TRY(rf_need_type(one, names[i], RF_F32));
        TRY(check_heads(one, names[i]));
        TRY(rf_need_like(one, names[i], k, "k"));
        if (one->desc.shape[1] > 1 && one->desc.strides[1] != one->desc.shape[2])
            return rf_fail(RF_E_UNSUPPORTED, "the heads of %s are not side by side", names[i]);
        if (one->desc.shape[0] > 1 && !one->desc.strides[0])
            return rf_fail(RF_E_UNSUPPORTED, "the tokens of %s have a stride of 0", names[i]);
    }
    TRY(check_numbers(rf_op_in(call, POSITIONS), "positions", k->desc.shape[0]));
    if (rf_op_given(sequences)) TRY(check_numbers(sequences, "sequences", k->desc.shape[0]));
    if (rf_op_given(table)) {
        TRY(rf_need_type(table, "table", RF_I32));
        TRY(rf_need_rank(table, "table", 2));
        TRY(rf_need_dense(table, "table"));
        if (!rf_op_elements(&table->desc))
            return rf_fail(RF_E_INVALID, "table is empty: leave it out, or give pages");
    }
    if (rf_op_given(rf_op_in(call, STEPS))) TRY(check_rotation(call, rf_op_in(call, STEPS), k->desc.shape[2]));
    if (cache->desc.dtype != RF_F32 && cache->desc.dtype != RF_F16 && cache->desc.dtype != RF_Q8_0)
        return rf_fail(RF_E_UNSUPPORTED, "a cache of %s: f32, f16 or q8_0", rf_dtype_name(cache->desc.dtype));
    for (int i = K_CACHE; i <= V_CACHE; i++) {
        const struct rf_op_tensor *one = rf_op_in(call, i);
        TRY(rf_need_rank(one, names[i], 4));
        TRY(rf_need_like(one, names[i], cache, "k_cache"));
        TRY(rf_need_size(one, names[i], 1, k->desc.shape[1]));
        TRY(rf_need_size(one, names[i], 3, k->desc.shape[2]));
        TRY(rf_need_dense_rows(one, names[i]));
        TRY(rf_need_distinct(one, names[i]));
        if (memcmp(one->desc.strides, cache->desc.strides, 3 * sizeof one->desc.strides[0]))
            return rf_fail(RF_E_INVALID, "the strides of k_cache and v_cache differ");
        if (!one->desc.shape[0] || !one->desc.shape[2] || one->desc.shape[0] > UINT32_MAX ||
            one->desc.shape[2] > UINT32_MAX)
            return rf_fail(RF_E_INVALID, "%s has %llu pages of %llu rows: both from 1 to 2^32 - 1", names[i],
                           (unsigned long long)one->desc.shape[0], (unsigned long long)one->desc.shape[2]);
    }
    return RF_OK;
}
static void kv_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *k = rf_op_in(call, K), *v = rf_op_in(call, V), *cache = rf_op_in(call, K_CACHE),
                              *table = rf_op_in(call, TABLE), *steps = rf_op_in(call, STEPS);
    struct rf_ref_kv_append append = {.dtype = cache->desc.dtype,
                                      .tokens = k->desc.shape[0],
                                      .heads = k->desc.shape[1],
                                      .dim = k->desc.shape[2],
                                      .k_token = k->desc.strides[0],
                                      .v_token = v->desc.strides[0],
                                      .page = cache->desc.strides[0],
                                      .head = cache->desc.strides[1],
                                      .row = cache->desc.strides[2],
                                      .page_rows = (uint32_t)cache->desc.shape[2],
                                      .page_count = (uint32_t)cache->desc.shape[0],
                                      .table_width = table->desc.shape[1],
                                      .sequence_count = table->desc.shape[0],
                                      .table = rf_op_host(table),
                                      .sequences = rf_op_host(rf_op_in(call, SEQUENCES)),
                                      .positions = rf_op_host(rf_op_in(call, POSITIONS)),
                                      .steps = rf_op_host(steps),
                                      .rotated = 2 * steps->desc.shape[0],
                                      .halves = call->attributes.i[0] != 0,
                                      .magnitude = (float)call->attributes.f[0]};
    rf_ref_kv_append(&append, rf_op_host(cache), rf_op_host(rf_op_in(call, V_CACHE)), rf_op_host(k), rf_op_host(v));
}
/* rope: the call's rotation, where it has one. */
static struct rf_kv_append_args kv_args(const struct rf_op_call *call, struct rf_rope_table *rope) {
    const struct rf_op_tensor *k = rf_op_in(call, K), *v = rf_op_in(call, V), *cache = rf_op_in(call, K_CACHE),
                              *table = rf_op_in(call, TABLE), *steps = rf_op_in(call, STEPS);
    *rope = rotation_of(call, steps);
    return (struct rf_kv_append_args){.dtype = cache->desc.dtype,
                                      .tokens = k->desc.shape[0],
                                      .heads = k->desc.shape[1],
                                      .dim = k->desc.shape[2],
                                      .k_token = k->desc.strides[0],
                                      .v_token = v->desc.strides[0],
                                      .page = cache->desc.strides[0],
                                      .head = cache->desc.strides[1],
                                      .row = cache->desc.strides[2],
                                      .page_rows = cache->desc.shape[2],
                                      .page_count = cache->desc.shape[0],
                                      .table_width = table->desc.shape[1],
                                      .sequence_count = table->desc.shape[0],
                                      .k_cache = rf_op_slice(cache),
                                      .v_cache = rf_op_slice(rf_op_in(call, V_CACHE)),
                                      .k = rf_op_slice(k),
                                      .v = rf_op_slice(v),
                                      .positions = rf_op_slice(rf_op_in(call, POSITIONS)),
                                      .sequences = rf_op_slice(rf_op_in(call, SEQUENCES)),
                                      .table = rf_op_slice(table),
                                      .rope = rf_op_given(steps) ? rope : NULL};
}
static rf_status kv_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_rope_table rope;
    struct rf_kv_append_args args = kv_args(call, &rope);
    return rf_gpu_kv_append(queue, &args);
}

/* No two tokens at one place: every token has a position of its own, and every page is in the table once. Some
 * tokens have no place: a negative position, one beyond the table, no such sequence, a page that is none. */
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
            uint64_t at = rf_op_random(state) % (i + 1); /* a shuffle from the inside out */
            numbers[i] = numbers[at];
            numbers[at] = (int32_t)i; /* above the pages there are: none of them */
        }
        return true;
    case STEPS: fill_steps(call, tensor); return true;
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
                    struct rf_op_case one = {.attributes = {.f = {1}}};
                    uint64_t tokens = shapes[i].tokens, dim = shapes[i].dim, rotated = i % 2 ? dim : dim / 2;
                    bool strided = (i + (size_t)layout + (size_t)turn) % 2;
                    uint64_t of_k[] = {tokens, shapes[i].heads, dim};
                    uint64_t of_cache[] = {layout >= 2 ? 9 : 3, shapes[i].heads, shapes[i].page_rows, dim};
                    kv_shape(&one, types[t], of_k, strided ? 5 : 0, of_cache, strided ? 3 : 0);
                    if (layout & 1) one.tensors[SEQUENCES] = rf_case_vector(RF_I32, tokens, 1);
                    if (layout & 2) one.tensors[TABLE] = rf_case_matrix(RF_I32, layout & 1 ? 3 : 1, 4, 0, 0);
                    if (turn) {
                        one.tensors[STEPS] = rf_case_matrix(RF_I32, rotated / 2, 2, 0, 2);
                        set_rotation(&one, (int)(i % ROTATIONS), turn == 1, rotated);
                        /* An element on the edge between two of Q8_0 may fall to either side. */
                        one.absolute = types[t] == RF_Q8_0 ? 0.06 : 2e-5;
                        one.relative = types[t] == RF_Q8_0 ? 1e-3 : rf_op_step(types[t]);
                    }
                    rf_case_add_shown(list, &one, K, " into %s pages of %llu%s%s%s", rf_dtype_name(types[t]),
                                      (unsigned long long)shapes[i].page_rows, layouts[layout], turns[turn],
                                      strided ? ", gaps" : "");
                }
    for (size_t t = 0; t < RF_COUNT(types); t++)
        for (int turn = 0; turn < 2; turn++) {
            struct rf_op_case one = {.attributes = {.f = {1}}, .bench = true, .absolute = 1};
            kv_shape(&one, types[t], (uint64_t[]){16384, 32, 128}, 0, (uint64_t[]){1024, 32, 16, 128}, 0);
            one.tensors[TABLE] = rf_case_matrix(RF_I32, 1, 1024, 0, 0);
            if (turn) {
                one.tensors[STEPS] = rf_case_matrix(RF_I32, 64, 2, 0, 0);
                set_rotation(&one, 0, true, 128);
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
    .optional = 1 << SEQUENCES | 1 << TABLE | 1 << STEPS,
    .updates = 1 << K_CACHE | 1 << V_CACHE,
    .check = kv_check,
    .reference = kv_reference,
    .gpu = kv_gpu,
    .cases = kv_cases,
    .fill = kv_fill,
    .cost = kv_cost,
};

/* ---- rope_append: what a layer does between its products and its attention; q [tokens, heads, dim], then
 * kv_append's inputs. By itself it is the two ops it stands for, one after the other; a GPU runs both in one kernel.
 * ---- */

enum { QUERIES, OF_KV, APPEND_TENSORS = OF_KV + KV_TENSORS };

/* Op number `index` of the two. */
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
    TRY(rf_need_type(rf_op_in(call, QUERIES), "q", RF_F32));
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        TRY(part.op->check(&part));
    }
    return rf_need_size(rf_op_in(call, OF_KV + K), "k", 2, rf_op_in(call, QUERIES)->desc.shape[2]);
}
static void append_reference(const struct rf_op_call *call) {
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        part.op->reference(&part);
    }
}
static rf_status append_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        if (part.op->cpu)
            TRY(part.op->cpu(cpu, &part));
        else
            part.op->reference(&part);
    }
    return RF_OK;
}
static bool heads_dense(const struct rf_tensor_desc *desc) {
    return desc->shape[1] == 1 || desc->strides[1] == desc->shape[2];
}
static rf_status append_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *q = rf_op_in(call, QUERIES), *out = rf_op_out(call, 0);
    struct rf_op_call kv = append_part(call, 1);
    struct rf_rope_table rope;
    struct rf_kv_append_args args = kv_args(&kv, &rope);
    if (!args.heads || !q->desc.shape[1] || !heads_dense(&q->desc) || !heads_dense(&out->desc)) {
        struct rf_op_call turn = append_part(call, 0);
        TRY(turn.op->gpu(queue, &turn));
        return kv.op->gpu(queue, &kv);
    }
    args.q = rf_op_slice(q);
    args.q_out = rf_op_slice(out);
    args.q_heads = q->desc.shape[1];
    args.q_token = q->desc.strides[0];
    args.q_out_token = out->desc.strides[0];
    args.q_to_f16 = out->desc.dtype == RF_F16;
    return rf_gpu_kv_append(queue, &args);
}
static bool append_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    struct rf_op_call kv = append_part(call, 1);
    return index >= OF_KV && kv_fill(&kv, index - OF_KV, state);
}
static void append_case(struct rf_case_list *list, enum rf_dtype cache, bool to_f16, const uint64_t of_q[3],
                        uint64_t kv_heads, uint64_t page_rows, int how) {
    uint64_t tokens = of_q[0], dim = of_q[2], rotated = how & 1 ? dim : dim / 2;
    bool halves = how & 2, strided = how & 4, split = how & 8; /* split: gaps between the heads too */
    struct rf_op_case kv = {.attributes = {.f = {1}}}, one;
    uint64_t of_k[] = {tokens, kv_heads, dim}, of_cache[] = {9, kv_heads, page_rows, dim};
    kv_shape(&kv, cache, of_k, strided ? 5 : 0, of_cache, strided ? 3 : 0);
    kv.tensors[TABLE] = rf_case_matrix(RF_I32, 3, 4, 0, 0);
    kv.tensors[SEQUENCES] = rf_case_vector(RF_I32, tokens, 1);
    kv.tensors[STEPS] = rf_case_matrix(RF_I32, rotated / 2, 2, 0, 2);
    set_rotation(&kv, how % ROTATIONS, halves, rotated);
    one = kv;
    one.absolute = cache == RF_Q8_0 ? 0.06 : 2e-5;
    one.relative = cache == RF_Q8_0 ? 1e-3 : RF_MAX(rf_op_step(cache), rf_op_step(to_f16 ? RF_F16 : RF_F32));
    memcpy(&one.tensors[OF_KV], kv.tensors, KV_TENSORS * sizeof kv.tensors[0]);
    one.tensors[QUERIES] = rf_case_tensor(RF_F32, 3, of_q, strided ? 3 : 0);
    one.tensors[APPEND_TENSORS] = rf_case_tensor(to_f16 ? RF_F16 : RF_F32, 3, of_q, strided ? 1 : 0);
    for (int i = 0; i < 2 && (strided || split); i++) {
        uint64_t *strides = one.tensors[i ? APPEND_TENSORS : QUERIES].strides;
        strides[2] = 1;
        strides[1] = dim + (split ? 4 : 0);
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
    struct rf_op_case one = {.attributes = {.f = {1}}, .bench = true, .absolute = 1, .count = APPEND_TENSORS + 1};
    struct rf_op_case kv = one;
    kv_shape(&kv, RF_F16, (uint64_t[]){16384, 8, 128}, 0, (uint64_t[]){1024, 8, 16, 128}, 0);
    memcpy(&one.tensors[OF_KV], kv.tensors, KV_TENSORS * sizeof kv.tensors[0]);
    one.tensors[OF_KV + TABLE] = rf_case_matrix(RF_I32, 1, 1024, 0, 0);
    one.tensors[OF_KV + STEPS] = rf_case_matrix(RF_I32, 64, 2, 0, 0);
    one.tensors[QUERIES] = rf_case_tensor(RF_F32, 3, (uint64_t[]){16384, 32, 128}, 0);
    one.tensors[APPEND_TENSORS] = rf_case_tensor(RF_F16, 3, (uint64_t[]){16384, 32, 128}, 0);
    set_rotation(&one, 0, false, 128);
    rf_case_add_shown(list, &one, QUERIES, " to f16, 8 of k into f16");
}
static void append_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = *flops = 0;
    for (int i = 0; i < 2; i++) {
        struct rf_op_call part = append_part(call, i);
        uint64_t more_bytes, more_flops;
        part.op->cost(&part, &more_bytes, &more_flops);
        *bytes += more_bytes;
        *flops += more_flops;
    }
}
const struct rf_op rf_op_rope_append = {
    .name = "rope_append",
    .summary = "rope of q, and kv_append of k, turned likewise, and v",
    .inputs = APPEND_TENSORS,
    .outputs = 1,
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
