/* Matrix times few vectors: out[r][c] = sum over i of weights[c][i] * x[r][i] (struct rf_matmul_args), for up to
 * RF_MATVEC_ROWS rows r of x; the body of the matvec kernels.
 *
 * A block computes RF_MATVEC_OUTPUTS outputs c of all r at once, or one where a gate is given: then
 * out[r][c] = silu(weights[c] . x[r]) * (gate[c] . x[r]). Its threads share the k; sums meet in a fixed order that
 * depends on the block size alone, so the launcher derives that from the shape. Reading the weights is what takes the
 * time: x comes from caches.
 *
 * Layout: weights are dense rows [n, k], quant.h's rules (k a multiple of the block; the first row at a multiple of
 * 16 bytes; float rows of any k and alignment). x: rows of x_stride elements, with a quantized weight at multiples of
 * 16 bytes. bias: f32, n, or NULL; residual: laid out as out, or NULL; it may be out. Otherwise out overlaps nothing.
 * Launch: a block of whole waves, one-dimensional, of up to RF_MATVEC_THREADS; any grid in x, one block per two
 * outputs (per output with a gate) is fast. */
#ifndef RF_KERNELS_MATVEC_H
#define RF_KERNELS_MATVEC_H

#include "kernels/quant.h"

#include "kernels/matmul_args.h"

#define MATVEC_WAITING 1024 /* blocks that a large device holds at once, about */
#define MATVEC_AHEAD 4096   /* bytes of a row that each of them fetches: all of it together must stay in a cache */

/* What a kernel was given. */
struct matvec {
    void *out;
    const uint8_t *weights, *gate;
    const void *x;
    const float *bias;
    const void *residual;
    struct rf_matmul_args args;
};

/* The weight rows of this turn; with a gate the second one is the gate's. A row past the end is the last one again
 * and its sum is not stored. */
struct matvec_rows {
    const uint8_t *row[RF_MATVEC_OUTPUTS];
};

/* Zero, but the compiler believes that it depends on a finished sum: what is loaded from there on is not loaded ahead
 * of it. Many rows of x would otherwise all be held in registers at once. */
RF_DEVICE uint32_t matvec_after(float *sum) {
    uint32_t zero = 0;
#if defined(RF_AMD)
    __asm__ volatile("" : "+v"(zero), "+v"(*sum));
#else
    (void)sum;
#endif
    return zero;
}

/* Adds a unit's products: sums[r * columns + c]. Rows of x past the last are the last one again, so that there are no
 * branches; their sums are not stored. */
RF_DEVICE void matvec_unit(enum rf_weight weight, enum rf_type type, uint32_t columns, const struct matvec *op,
                           const struct matvec_rows *rows, uint64_t unit, float *sums) {
    struct rf_unit all[RF_MATVEC_OUTPUTS];
    uint64_t element = rf_unit_element(weight, unit);
    RF_UNROLL
    for (uint32_t r = 0; r < RF_MATVEC_OUTPUTS; r++) rf_read_unit(weight, rows->row[r], unit, &all[r]);
    RF_UNROLL
    for (uint32_t p = 0; p < rf_unit_parts(weight); p++) {
        uint64_t at = element + p * rf_unit_stride(weight);
        float w[RF_MATVEC_OUTPUTS][8];
        RF_UNROLL
        for (uint32_t r = 0; r < RF_MATVEC_OUTPUTS; r++) rf_part_floats(weight, &all[r].part[p], w[r]);
        RF_UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            uint64_t column = rf_min_u64(c, op->args.m - 1);
            float x[8], sum = 0.0f;
            rf_load_many(type, 8, op->x, column * op->args.x_stride + at, x);
            if (rf_weight_offset(weight)) {
                RF_UNROLL
                for (uint32_t i = 0; i < 8; i++) sum += x[i];
            }
            RF_UNROLL
            for (uint32_t r = 0; r < RF_MATVEC_OUTPUTS; r++) {
                const struct rf_part *part = &all[r].part[p];
                float dot = w[r][0] * x[0], *to = &sums[r * columns + c];
                RF_UNROLL
                for (uint32_t i = 1; i < 8; i++) dot = rf_fma(w[r][i], x[i], dot);
                *to = rf_fma(part->scale, dot, *to);
                if (rf_weight_offset(weight)) *to = rf_fma(part->offset, sum, *to);
            }
            if (c % 2 == 1) at += matvec_after(&sums[c]);
        }
        if (rf_unit_parts(weight) == 4) element += matvec_after(&sums[0]);
    }
}

/* Float weights: 8 elements a thread where everything is aligned, else one. */
RF_DEVICE void matvec_floats(enum rf_type weight, enum rf_type type, uint32_t columns, uint32_t group,
                             const struct matvec *op, const struct matvec_rows *rows, uint64_t at, float *sums) {
    float w[RF_MATVEC_OUTPUTS][8];
    RF_UNROLL
    for (uint32_t r = 0; r < RF_MATVEC_OUTPUTS; r++) {
        if (group == 8) rf_load_many(weight, 8, rows->row[r], at, w[r]);
        if (group == 1) w[r][0] = rf_load(weight, rows->row[r], at);
    }
    RF_UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        /* On the slow path the rows' addresses are not worth scalar registers around the loop. */
        uint64_t column = rf_min_u64(group == 1 ? rf_opaque(c) : c, op->args.m - 1);
        float x[8];
        if (group == 8) rf_load_many(type, 8, op->x, column * op->args.x_stride + at, x);
        if (group == 1) x[0] = rf_load(type, op->x, column * op->args.x_stride + at);
        RF_UNROLL
        for (uint32_t r = 0; r < RF_MATVEC_OUTPUTS; r++) {
            float *to = &sums[r * columns + c];
            RF_UNROLL
            for (uint32_t i = 0; i < group; i++) *to = rf_fma(w[r][i], x[i], *to);
        }
    }
}

RF_DEVICE float matvec_silu(float value) {
    return value / (1.0f + rf_exp(-value));
}

/* The sums of all waves meet; thread t < rows * columns finishes one output. */
RF_DEVICE void matvec_finish(enum rf_type type, uint32_t columns, const struct matvec *op, uint64_t first,
                             float *sums, float *scratch) {
    uint32_t waves = rf_block_dim_x() / RF_WAVE, thread = rf_thread_x();
    RF_UNROLL
    for (uint32_t i = 0; i < RF_MATVEC_OUTPUTS * columns; i++) {
        float all = rf_wave_sum(sums[i]);
        if (rf_lane() == 0) scratch[i * (RF_MATVEC_THREADS / RF_WAVE) + thread / RF_WAVE] = all;
    }
    rf_barrier();
    uint32_t r = thread / columns, c = thread % columns;
    if (r < (op->gate ? 1 : RF_MATVEC_OUTPUTS) && c < op->args.m && first + r < op->args.n) {
        float value = 0.0f, up = 0.0f;
        for (uint32_t wave = 0; wave < waves; wave++) value += scratch[thread * (RF_MATVEC_THREADS / RF_WAVE) + wave];
        if (op->gate) {
            for (uint32_t wave = 0; wave < waves; wave++)
                up += scratch[(thread + columns) * (RF_MATVEC_THREADS / RF_WAVE) + wave];
            value = matvec_silu(value) * up;
        }
        uint64_t at = c * op->args.out_stride + first + r;
        if (op->bias) value += op->bias[first + r];
        if (op->residual) value += rf_load(type, op->residual, at);
        rf_store(type, op->out, at, value);
    }
}

RF_DEVICE void matvec_body(enum rf_weight weight, enum rf_type type, uint32_t columns, const struct matvec *op,
                           float *scratch) {
    uint64_t row_bytes = rf_weight_row_bytes(weight, op->args.k), step = op->gate ? 1 : RF_MATVEC_OUTPUTS;
    uint64_t units = op->args.k / (8 * rf_unit_parts(weight));
    bool vector = rf_weight_float(weight) && op->args.k % 8 == 0 && op->args.x_stride % 8 == 0 &&
                  rf_aligned(op->weights, 16) && rf_aligned(op->gate, 16) && rf_aligned(op->x, 16);
    uint32_t turn = 0;
    RF_NO_UNROLL
    for (uint64_t first = rf_block_x() * step; first < op->args.n; first += rf_grid_dim_x() * step, turn ^= 1) {
        float sums[RF_MATVEC_OUTPUTS * RF_MATVEC_ROWS];
        struct matvec_rows rows;
        uint64_t second = rf_min_u64(first + 1, op->args.n - 1);
        rows.row[0] = op->weights + first * row_bytes;
        rows.row[1] = op->gate ? op->gate + first * row_bytes : op->weights + second * row_bytes;
        RF_UNROLL
        for (uint32_t i = 0; i < RF_MATVEC_OUTPUTS * columns; i++) sums[i] = 0.0f;
        if (!rf_weight_float(weight)) {
            for (uint64_t unit = rf_thread_x(); unit < units; unit += rf_block_dim_x())
                matvec_unit(weight, type, columns, op, &rows, unit, sums);
        } else if (vector) {
            for (uint64_t unit = rf_thread_x(); unit < units; unit += rf_block_dim_x())
                matvec_floats(rf_weight_type(weight), type, columns, 8, op, &rows, unit * 8, sums);
        } else {
            for (uint64_t at = rf_thread_x(); at < op->args.k; at += rf_block_dim_x())
                matvec_floats(rf_weight_type(weight), type, columns, 1, op, &rows, at, sums);
        }
        matvec_finish(type, columns, op, first, sums,
                      scratch + turn * (RF_MATVEC_OUTPUTS * columns * (RF_MATVEC_THREADS / RF_WAVE)));
    }
}

/* Fetches the weight rows of the first blocks while these wait for the work before the kernel. */
RF_DEVICE void matvec_ahead(enum rf_weight weight, const struct matvec *op) {
    uint64_t row_bytes = rf_weight_row_bytes(weight, op->args.k),
             first = (uint64_t)rf_block_x() * (op->gate ? 1 : RF_MATVEC_OUTPUTS);
    if (rf_block_x() >= MATVEC_WAITING || first >= op->args.n) return;
    uint64_t some = rf_min_u64(row_bytes, MATVEC_AHEAD);
    RF_NO_UNROLL
    for (uint64_t at = rf_thread_x() * 32; at < some; at += rf_block_dim_x() * 32) {
        rf_grid_fetch(op->weights + first * row_bytes + at);
        if (op->gate) rf_grid_fetch(op->gate + first * row_bytes + at);
        if (!op->gate && first + 1 < op->args.n) rf_grid_fetch(op->weights + (first + 1) * row_bytes + at);
    }
}

/* matvec_<weight>_<x>_<columns>: for up to `columns` rows of x. */
#define MATVEC(name, weight, type, element, columns)                                                                 \
    RF_KERNEL_EARLY(matvec_##name##_##columns, RF_MATVEC_THREADS, (element *, out), (const void *, weights),         \
                    (const void *, gate), (const void *, x), (const float *, bias), (const element *, residual),     \
                    (struct rf_matmul_args, args)) {                                                                 \
        RF_SHARED(float, scratch, 2 * RF_MATVEC_OUTPUTS * columns * (RF_MATVEC_THREADS / RF_WAVE));                  \
        struct matvec op = {out, (const uint8_t *)weights, (const uint8_t *)gate, x, bias, residual, args};          \
        rf_grid_go();                                                                                                \
        matvec_ahead(weight, &op);                                                                                   \
        rf_grid_wait();                                                                                              \
        matvec_body(weight, type, columns, &op, scratch);                                                            \
    }
#define MATVEC_ALL(name, weight, type, element)                                                                      \
    MATVEC(name, weight, type, element, 1)                                                                           \
    MATVEC(name, weight, type, element, 4)                                                                           \
    MATVEC(name, weight, type, element, 8)

#endif
