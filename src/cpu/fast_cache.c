/* Rotation and appending to the KV cache, divided among the threads of the pool (see fast.h). */
#include "cpu/fast_impl.h"

#include <math.h>

struct rope {
    struct rf_cpu *cpu;
    const struct rf_rope_args *args;
    enum rf_dtype out_dtype, dtype;
    void *out;
    const void *in;
    const int32_t *positions;
    const uint64_t *steps;
    size_t thread_floats;
};
/* Angles are exact fractions of a turn (rf_rope_steps). All heads of a token use the same angles. */
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
    const struct rope *op = user;
    const struct rf_rope_args *args = op->args;
    const struct rf_simd *simd = op->cpu->simd;
    enum rf_dtype to = op->out_dtype, dtype = op->dtype;
    size_t pairs = args->rotated / 2;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *row = sine + pairs;
    for (size_t t = begin; t < end; t++) {
        angles(cosine, sine, op->steps, pairs, op->positions[t], args->magnitude);
        for (size_t h = 0; h < args->heads; h++) {
            const void *in = rf_cpu_at(dtype, op->in, t * args->in_token + h * args->in_head);
            void *out = rf_cpu_at_out(to, op->out, t * args->out_token + h * args->out_head);
            if (to == RF_F32) {
                simd->rotate(out, in, cosine, sine, pairs, args->halves);
            } else {
                simd->cast[RF_F32][dtype](row, in, args->rotated);
                simd->rotate(row, row, cosine, sine, pairs, args->halves);
                simd->cast[to][RF_F32](out, row, args->rotated);
            }
            if (out != in)
                simd->cast[to][dtype](rf_cpu_at_out(to, out, args->rotated), rf_cpu_at(dtype, in, args->rotated),
                                      args->dim - args->rotated);
        }
    }
}
rf_status rf_cpu_rope(struct rf_cpu *cpu, enum rf_dtype out_dtype, void *out, enum rf_dtype dtype, const void *in,
                      const int32_t *positions, const uint64_t *steps, const struct rf_rope_args *args) {
    if (!args) return rf_fail(RF_E_INVALID, "rope: its arguments are NULL");
    bool empty = args->tokens == 0 || args->heads == 0 || args->dim == 0;
    RF_TRY(rf_cpu_check(cpu, "rope", dtype, empty, in, in, in));
    RF_TRY(rf_cpu_check(cpu, "rope", out_dtype, empty, out, out, out));
    if (empty) return RF_OK;
    if (args->rotated % 2 || args->rotated > args->dim)
        return rf_fail(RF_E_INVALID, "rope: %u elements of a head of %u cannot be rotated: an even number up to that",
                       args->rotated, args->dim);
    if (!positions || !steps) return rf_fail(RF_E_INVALID, "rope: positions or steps are NULL");
    if (out_dtype != dtype && (dtype != RF_F32 || out_dtype != RF_F16))
        return rf_fail(RF_E_INVALID, "rope: from %s to %s: the types are the same, or f32 goes to f16",
                       rf_dtype_name(dtype), rf_dtype_name(out_dtype));
    struct rope op = {.cpu = cpu,
                      .args = args,
                      .out_dtype = out_dtype,
                      .dtype = dtype,
                      .out = out,
                      .in = in,
                      .positions = positions,
                      .steps = steps};
    op.thread_floats = rf_cpu_round_64(2 * (size_t)args->rotated * sizeof(float)) / sizeof(float);
    RF_TRY(rf_cpu_reserve(cpu, "rope", cpu->threads * op.thread_floats * sizeof(float)));
    rf_cpu_run(cpu, args->tokens, rf_cpu_grain((size_t)args->heads * args->dim), rope_tokens, &op);
    return RF_OK;
}

struct append {
    struct rf_cpu *cpu;
    const struct rf_ref_kv_append *given;
    size_t thread_floats;
};
static void append_row(const struct append *op, void *cache, size_t to, const float *values) {
    enum rf_dtype dtype = op->given->dtype;
    size_t dim = op->given->args.dim;
    if (dtype == RF_Q8_0) {
        for (size_t e = 0; e + 32 <= dim; e += 32)
            rf_ref_quantize_q8_0(values + e, (uint8_t *)cache + (to + e) / 32 * 34);
    } else {
        op->cpu->simd->cast[dtype][RF_F32](rf_cpu_at_out(dtype, cache, to), values, dim);
    }
}
/* A thread takes heads, not tokens: if two tokens go to the same place, the later one wins, whatever the number of
 * threads. */
static void append_heads(void *user, size_t begin, size_t end, unsigned thread) {
    const struct append *op = user;
    const struct rf_ref_kv_append *given = op->given;
    const struct rf_kv_append_args *args = &given->args;
    size_t pairs = given->steps ? args->rotated / 2 : 0;
    float *cosine = (float *)(void *)op->cpu->scratch + thread * op->thread_floats;
    float *sine = cosine + pairs, *turned = sine + pairs;
    for (size_t t = 0; t < args->tokens; t++) {
        int32_t position = given->positions[t];
        uint32_t sequence = given->sequences ? given->sequences[t] : 0;
        if (position < 0 || (given->table && sequence >= args->sequence_count)) continue;
        size_t turn = (uint32_t)position / args->page_rows, row = (uint32_t)position % args->page_rows;
        if (turn >= (given->table ? args->table_width : 1)) continue;
        uint32_t page = given->table ? given->table[sequence * args->table_width + turn] : sequence;
        if (page >= args->page_count) continue;
        angles(cosine, sine, given->steps, pairs, position, args->magnitude);
        for (size_t h = begin; h < end; h++) {
            size_t to = page * args->page + h * args->head + row * args->row;
            const float *k = given->k + t * args->k_token + h * args->dim;
            if (pairs) {
                op->cpu->simd->rotate(turned, k, cosine, sine, pairs, args->halves);
                memcpy(turned + args->rotated, k + args->rotated, (args->dim - args->rotated) * sizeof *k);
            }
            append_row(op, given->k_cache, to, pairs ? turned : k);
            append_row(op, given->v_cache, to, given->v + t * args->v_token + h * args->dim);
        }
    }
}
rf_status rf_cpu_kv_append(struct rf_cpu *cpu, const struct rf_ref_kv_append *append) {
    if (!append) return rf_fail(RF_E_INVALID, "kv_append: its arguments are NULL");
    const struct rf_kv_append_args *args = &append->args;
    bool empty = args->tokens == 0 || args->heads == 0 || args->dim == 0, packed = append->dtype == RF_Q8_0;
    RF_TRY(rf_cpu_check(cpu, "kv_append", RF_F32, empty, append->k, append->k, append->v));
    if (!packed)
        RF_TRY(
            rf_cpu_check(cpu, "kv_append", append->dtype, empty, append->k_cache, append->k_cache, append->v_cache));
    if (empty) return RF_OK;
    if (!append->k_cache || !append->v_cache || !append->positions || !args->page_rows)
        return rf_fail(RF_E_INVALID, "kv_append: a cache, the positions or the rows of a page are missing");
    if (packed && (args->dim | args->page | args->head | args->row) % 32)
        return rf_fail(RF_E_INVALID, "kv_append: q8_0 comes in blocks of 32, the head size is %u", args->dim);
    if (append->steps && (args->rotated % 2 || args->rotated > args->dim))
        return rf_fail(RF_E_INVALID,
                       "kv_append: %u elements of a head of %u cannot be rotated: an even number up to that",
                       args->rotated, args->dim);
    struct append op = {.cpu = cpu, .given = append};
    op.thread_floats = rf_cpu_round_64(2 * (size_t)args->dim * sizeof(float)) / sizeof(float);
    RF_TRY(rf_cpu_reserve(cpu, "kv_append", cpu->threads * op.thread_floats * sizeof(float)));
    size_t each = (args->heads + cpu->threads - 1) / cpu->threads;
    rf_cpu_run(cpu, args->heads, RF_MAX(each, rf_cpu_grain(args->tokens * args->dim)), append_heads, &op);
    return RF_OK;
}
