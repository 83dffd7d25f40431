/* Rotation and appending to the KV cache, cut for the pool (see fast.h). */
#include "cpu/fast_impl.h"

#include <math.h>

static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}
static const void *at(enum rf_dtype dtype, const void *base, size_t index) {
    return base ? (const char *)base + index * element_bytes(dtype) : NULL;
}
static void *at_out(enum rf_dtype dtype, void *base, size_t index) {
    return (char *)base + index * element_bytes(dtype);
}

/* Types and pointers of every op here: out and the inputs named are needed unless nothing is asked. */
static rf_status check(const struct rf_cpu *cpu, const char *op, enum rf_dtype dtype, bool empty, const void *out,
                       const void *a, const void *b) {
    if (!cpu) return rf_fail(RF_E_INVALID, "%s: cpu is NULL", op);
    if (!rf_cpu_is_float(dtype))
        return rf_fail(RF_E_INVALID, "%s: type %s is not f32, f16 or bf16", op, rf_dtype_name(dtype));
    if (!empty && (!out || !a || !b)) return rf_fail(RF_E_INVALID, "%s: a tensor is NULL", op);
    uintptr_t together = (uintptr_t)out | (uintptr_t)a | (uintptr_t)b;
    if (together % element_bytes(dtype))
        return rf_fail(RF_E_INVALID, "%s: a tensor is not aligned to its elements", op);
    return RF_OK;
}

struct rope {
    struct rf_cpu *cpu;
    const struct rf_ref_rope *shape;
    void *out;
    const void *in;
    size_t thread_floats;
};
/* Angles are exact fractions of a turn (rf_rope_steps); one token's serve all its heads. */
static void angles(float *cosine, float *sine, const uint64_t *steps, size_t pairs, int32_t position,
                   float magnitude) {
    for (size_t p = 0; p < pairs; p++) {
        int64_t turn = (int64_t)((uint64_t)(int64_t)position * steps[p]);
        double angle = (double)turn * (2 * M_PI * 0x1p-64);
        cosine[p] = (float)(cos(angle) * (double)magnitude);
        sine[p] = (float)(sin(angle) * (double)magnitude);
    }
}
static void rope_tokens(void *user, size_t begin, size_t end, unsigned thread) {
    struct rope *op = user;
    const struct rf_ref_rope *shape = op->shape;
    const struct rf_simd *simd = op->cpu->simd;
    size_t pairs = shape->rotated / 2;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *row = sine + pairs;
    for (size_t t = begin; t < end; t++) {
        angles(cosine, sine, shape->steps, pairs, shape->positions[t], shape->magnitude);
        for (size_t h = 0; h < shape->heads; h++) {
            const void *in = at(shape->dtype, op->in, t * shape->in_token + h * shape->in_head);
            enum rf_dtype to = shape->to_f16 ? RF_F16 : shape->dtype;
            void *out = at_out(to, op->out, t * shape->out_token + h * shape->out_head);
            if (to == RF_F32) {
                simd->rotate(out, in, cosine, sine, pairs, shape->halves);
            } else {
                simd->cast[RF_F32][shape->dtype](row, in, shape->rotated);
                simd->rotate(row, row, cosine, sine, pairs, shape->halves);
                simd->cast[to][RF_F32](out, row, shape->rotated);
            }
            if (out != in)
                simd->cast[to][shape->dtype](at_out(to, out, shape->rotated), at(shape->dtype, in, shape->rotated),
                                             shape->dim - shape->rotated);
        }
    }
}
rf_status rf_cpu_rope(struct rf_cpu *cpu, const struct rf_ref_rope *rope, void *out, const void *in) {
    if (!rope) return rf_fail(RF_E_INVALID, "rope: its arguments are NULL");
    bool empty = rope->tokens == 0 || rope->heads == 0 || rope->dim == 0;
    rf_status status = check(cpu, "rope", rope->dtype, empty, in, in, in);
    if (!status) status = check(cpu, "rope", rope->to_f16 ? RF_F16 : rope->dtype, empty, out, out, out);
    if (status || empty) return status;
    if (rope->rotated % 2 || rope->rotated > rope->dim)
        return rf_fail(RF_E_INVALID,
                       "rope: %zu elements of a head of %zu cannot be rotated: an even number up to that",
                       rope->rotated, rope->dim);
    if (!rope->positions || !rope->steps) return rf_fail(RF_E_INVALID, "rope: positions or steps are NULL");
    if (rope->to_f16 && rope->dtype != RF_F32) return rf_fail(RF_E_INVALID, "rope: to f16 from what is not f32");
    struct rope op = {cpu, rope, out, in, rf_cpu_round_64(2 * rope->rotated * sizeof(float)) / sizeof(float)};
    status = rf_cpu_reserve(cpu, "rope", cpu->threads * op.thread_floats * sizeof(float));
    if (status) return status;
    rf_cpu_run(cpu, rope->tokens, rf_cpu_grain(rope->heads * rope->dim), rope_tokens, &op);
    return RF_OK;
}

struct append {
    struct rf_cpu *cpu;
    const struct rf_ref_kv_append *shape;
    void *k_cache, *v_cache;
    const float *k, *v;
    size_t thread_floats;
};
static void append_row(const struct append *op, void *cache, size_t to, const float *values) {
    const struct rf_ref_kv_append *shape = op->shape;
    if (shape->dtype == RF_Q8_0) {
        for (size_t e = 0; e + 32 <= shape->dim; e += 32)
            rf_ref_quantize_q8_0(values + e, (uint8_t *)cache + (to + e) / 32 * 34);
    } else {
        op->cpu->simd->cast[shape->dtype][RF_F32](at_out(shape->dtype, cache, to), values, shape->dim);
    }
}
/* A thread has heads, not tokens: should two tokens have one place, the later has it in the end. */
static void append_heads(void *user, size_t begin, size_t end, unsigned thread) {
    const struct append *op = user;
    const struct rf_ref_kv_append *shape = op->shape;
    size_t pairs = shape->steps ? shape->rotated / 2 : 0;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *turned = sine + pairs;
    for (size_t t = 0; t < shape->tokens; t++) {
        int32_t position = shape->positions[t];
        uint32_t sequence = shape->sequences ? shape->sequences[t] : 0;
        if (position < 0 || (shape->table && sequence >= shape->sequence_count)) continue;
        size_t turn = (uint32_t)position / shape->page_rows, row = (uint32_t)position % shape->page_rows;
        if (turn >= (shape->table ? shape->table_width : 1)) continue;
        uint32_t page = shape->table ? shape->table[sequence * shape->table_width + turn] : sequence;
        if (page >= shape->page_count) continue;
        angles(cosine, sine, shape->steps, pairs, position, shape->magnitude);
        for (size_t h = begin; h < end; h++) {
            size_t to = page * shape->page + h * shape->head + row * shape->row;
            const float *k = op->k + t * shape->k_token + h * shape->dim;
            if (pairs) {
                op->cpu->simd->rotate(turned, k, cosine, sine, pairs, shape->halves);
                memcpy(turned + shape->rotated, k + shape->rotated, (shape->dim - shape->rotated) * sizeof *k);
            }
            append_row(op, op->k_cache, to, pairs ? turned : k);
            append_row(op, op->v_cache, to, op->v + t * shape->v_token + h * shape->dim);
        }
    }
}
rf_status rf_cpu_kv_append(struct rf_cpu *cpu, const struct rf_ref_kv_append *append, void *k_cache, void *v_cache,
                           const float *k, const float *v) {
    if (!append) return rf_fail(RF_E_INVALID, "kv_append: its arguments are NULL");
    bool empty = append->tokens == 0 || append->heads == 0 || append->dim == 0, packed = append->dtype == RF_Q8_0;
    rf_status status = check(cpu, "kv_append", RF_F32, empty, k, k, v);
    if (!status && !packed) status = check(cpu, "kv_append", append->dtype, empty, k_cache, k_cache, v_cache);
    if (status || empty) return status;
    if (!k_cache || !v_cache || !append->positions || !append->page_rows)
        return rf_fail(RF_E_INVALID, "kv_append: a cache, the positions or the rows of a page are missing");
    if (packed && (append->dim | append->page | append->head | append->row) % 32)
        return rf_fail(RF_E_INVALID, "kv_append: q8_0 comes in blocks of 32, the head size is %zu", append->dim);
    if (append->steps && (append->rotated % 2 || append->rotated > append->dim))
        return rf_fail(RF_E_INVALID,
                       "kv_append: %zu elements of a head of %zu cannot be rotated: an even number up to that",
                       append->rotated, append->dim);
    struct append op = {.cpu = cpu, .shape = append, .k_cache = k_cache, .v_cache = v_cache, .k = k, .v = v};
    op.thread_floats = rf_cpu_round_64(2 * append->dim * sizeof(float)) / sizeof(float);
    status = rf_cpu_reserve(cpu, "kv_append", cpu->threads * op.thread_floats * sizeof(float));
    if (status) return status;
    size_t each = (append->heads + cpu->threads - 1) / cpu->threads;
    rf_cpu_run(cpu, append->heads, RF_MAX(each, rf_cpu_grain(append->tokens * append->dim)), append_heads, &op);
    return RF_OK;
}
