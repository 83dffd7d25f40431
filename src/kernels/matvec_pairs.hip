/* matvec_<weight>_pairs: up to three matrices times one row of x in 8 bits, two rows of weights at a time: what a
 * model does for each token.
 *
 *     out_i[c] = weights_i[c] . y (+ bias[c] + residual[c], of the first), or with a gate, which stands as the second
 *     out[c]   = silu(weights[c] . y) * (gate[c] . y)
 * where y is x; or with a norm, x / sqrt(mean of squares of x + eps) * norm. normed, where given, gets y.
 *
 * As in dots.h, from which much is taken and whose bits a row gets: a block brings y to shared memory and a wave
 * takes whole rows, by slices that come through a ring of its own. Here a wave has two rows under way, neighbours of
 * a matrix or a row and the gate's, which share what is read of y; all rows begin and end at multiples of 16 bytes.
 * While the kernel waits for x, the first rows are on their way to the cache.
 *
 * Layout: dense rows, n_i of each, weights at multiples of 16 bytes; a lane's DOTS_LANE elements are in a row or not
 * (a block of Q4_K or Q6_K likewise). x f32, or with how & 4 f16, norm and normed at multiples of 16 bytes; or with
 * how & 1, x is 8-bit blocks, and there is no norm and no normed. how & 2: weights_b is the gate, n_b and n_c are 0.
 * What is not wanted is NULL, its n 0. residual may be out; else nothing overlaps. k, above 0, and all n together
 * below 2^31. Launch: a block of whole waves; any grid in x, as many blocks as the device holds at once is best.
 * Dynamic shared memory: PAIRS_SCRATCH bytes, dots_x_slice_bytes for each slice, RF_STREAM_SLOTS slots of two slices
 * for each wave. With a norm the bits depend on the size of the block, in whose order squares are summed. */
#include "kernels/dots.h"

#define PAIRS_SCRATCH 256
#define PAIRS_HELD 2  /* shares of x that a thread keeps while their squares are summed */
#define PAIRS_AHEAD 2 /* slices of a row that are fetched before anything else */

struct pairs {
    float *out[3];
    const uint8_t *weights[3];
    uint32_t n[3];
    const void *x;
    const float *norm;
    float *normed;
    const float *bias, *residual;
    uint32_t k, row_bytes;
    float eps;
    bool q8, gate, half;
};

RF_DEVICE uint32_t pairs_count(const struct pairs *op, uint32_t matrix) {
    return op->gate ? (matrix ? 0 : op->n[0]) : (op->n[matrix] + 1) / 2;
}

/* The rows of a pair; both is false where there is no second one. */
struct pairs_rows {
    const uint8_t *from[2];
    float *out;
    uint32_t row, matrix;
    bool both;
};
RF_DEVICE struct pairs_rows pairs_at(const struct pairs *op, uint32_t unit) {
    struct pairs_rows rows = {{op->weights[0], op->weights[1]}, op->out[0], 0, 0, true};
    if (op->gate) {
        rows.row = unit;
        rows.from[0] += (uint64_t)unit * op->row_bytes;
        rows.from[1] += (uint64_t)unit * op->row_bytes;
        return rows;
    }
    uint32_t n = op->n[0], count = pairs_count(op, 0);
    RF_UNROLL
    for (uint32_t i = 1; i < 3; i++) {
        if (unit >= count && rows.matrix + 1 == i) {
            unit -= count;
            rows.matrix = i;
            rows.from[0] = op->weights[i];
            rows.out = op->out[i];
            n = op->n[i];
            count = pairs_count(op, i);
        }
    }
    rows.row = 2 * unit;
    rows.from[0] += (uint64_t)rows.row * op->row_bytes;
    rows.from[1] = rows.from[0] + op->row_bytes;
    rows.both = rows.row + 1 < n;
    return rows;
}

/* ---- x ---- */

RF_DEVICE void pairs_share(enum rf_weight w, const struct pairs *op, uint32_t at, float factor, float *values,
                           uint8_t *x) {
    struct rf_q8_share share;
    if (at * 8 < op->k) {
        if (op->norm) {
            float weight[8];
            rf_load_many(RF_TYPE_F32, 8, op->norm, at * 8, weight);
            RF_UNROLL
            for (uint32_t i = 0; i < 8; i++) values[i] = values[i] * factor * weight[i];
        }
        if (rf_block_x() == 0) rf_store_many(RF_TYPE_F32, 8, op->normed, at * 8, values);
    }
    rf_quantize_share(8, values, &share);
    dots_put(w, x, at, op->k, &share);
}
RF_DEVICE float pairs_load(const struct pairs *op, uint32_t at, float *values) {
    float sum = 0.0f;
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) values[i] = 0.0f;
    if (at * 8 < op->k) {
        if (op->half) {
            rf_load_many(RF_TYPE_F16, 8, op->x, at * 8, values);
        } else {
            rf_load_many(RF_TYPE_F32, 8, op->x, at * 8, values);
        }
    }
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++) sum = rf_fma(values[i], values[i], sum);
    return sum;
}

/* As dots_fill, with what comes before; y is written. */
RF_DEVICE void pairs_fill(enum rf_weight w, const struct pairs *op, uint8_t *x, float *scratch) {
    uint32_t whole = (op->k / 8 + RF_WAVE - 1) / RF_WAVE * RF_WAVE, step = rf_block_dim_x(), thread = rf_thread_x();
    float held[PAIRS_HELD][8], values[8], sum = 0.0f;
    RF_UNROLL
    for (uint32_t b = 0; b < PAIRS_HELD; b++) sum += pairs_load(op, thread + b * step, held[b]);
    float factor = 1.0f;
    if (op->norm) {
        RF_NO_UNROLL
        for (uint32_t at = thread + PAIRS_HELD * step; at < whole; at += step) sum += pairs_load(op, at, values);
        factor = rf_rsqrt(rf_block_sum(sum, scratch) / (float)op->k + op->eps);
    }
    RF_UNROLL
    for (uint32_t b = 0; b < PAIRS_HELD; b++)
        if (thread + b * step < whole) pairs_share(w, op, thread + b * step, factor, held[b], x); /* by whole waves */
    RF_NO_UNROLL
    for (uint32_t at = thread + PAIRS_HELD * step; at < whole; at += step) {
        pairs_load(op, at, values);
        pairs_share(w, op, at, factor, values, x);
    }
}

/* ---- a slice of both rows ---- */

/* Q8_0, Q4_0: as dots_pair. */
RF_DEVICE void pairs_small(enum rf_weight w, const uint8_t *slices, uint32_t most, const uint8_t *x, float *sums) {
    uint32_t words = w == RF_WEIGHT_Q8_0 ? 8 : 4;
    RF_UNROLL
    for (uint32_t b = 0; b < 2; b++) {
        rf_u32x2 note = rf_load_8(x + DOTS_SLICE + rf_lane() * 16 + 8 * b);
        rf_u32x4 low = rf_shared_16(x + (2 * b * RF_WAVE + rf_lane()) * 16);
        rf_u32x4 high = rf_shared_16(x + ((2 * b + 1) * RF_WAVE + rf_lane()) * 16);
        RF_UNROLL
        for (uint32_t r = 0; r < 2; r++) {
            const uint32_t *from = (const uint32_t *)(slices + r * most + rf_lane() * 2 * rf_weight_block_bytes(w));
            uint32_t raw[9], q[8];
            RF_UNROLL
            for (uint32_t i = 0; i < words + 1; i++) raw[i] = from[b * words + i];
            /* The first block begins with its scale in a word, the second one's is the upper half of one. */
            float scale = rf_f32_of_f16((rf_f16)(b ? raw[0] >> 16 : raw[0]));
            RF_UNROLL
            for (uint32_t i = 0; i < words; i++) q[i] = b ? raw[i + 1] : rf_funnel(raw[i], raw[i + 1], 16);
            if (w == RF_WEIGHT_Q4_0) {
                RF_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    q[i + 4] = q[i] >> 4 & 0x0f0f0f0f;
                    q[i] &= 0x0f0f0f0f;
                }
            }
            int32_t dot = w == RF_WEIGHT_Q4_0 ? (int32_t)note[1] * -8 : 0;
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++) dot = rf_dot4(q[i + 4], high[i], rf_dot4(q[i], low[i], dot));
            sums[r] = rf_fma(scale * rf_f32_of_bits(note[0]), (float)dot, sums[r]);
        }
        dots_fence();
    }
}
RF_DEVICE void pairs_slice(enum rf_weight w, const uint8_t *slices, uint32_t most, const uint8_t *x, float *sums) {
    if (w == RF_WEIGHT_Q8_0 || w == RF_WEIGHT_Q4_0) pairs_small(w, slices, most, x, sums);
    RF_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        if (w == RF_WEIGHT_Q4_K) dots_q4_k(1, 0, slices + r * most, x, 0, &sums[r]);
        if (w == RF_WEIGHT_Q6_K) dots_q6_k(1, 0, slices + r * most, x, 0, &sums[r]);
    }
}

RF_DEVICE void pairs_store(const struct pairs *op, uint32_t unit, const float *sums) {
    float first = rf_wave_sum(sums[0]), second = rf_wave_sum(sums[1]);
    struct pairs_rows rows = pairs_at(op, unit);
    float value = op->gate ? second * matvec_silu(first) : rf_lane() ? second : first;
    if (rf_lane() < (!op->gate && rows.both ? 2 : 1)) {
        uint32_t row = rows.row + rf_lane();
        if (op->bias && rows.matrix == 0) value += op->bias[row];
        if (op->residual && rows.matrix == 0) value += op->residual[row];
        rows.out[row] = value;
    }
}

/* ---- all ---- */

RF_DEVICE void pairs_body(enum rf_weight w, const struct pairs *op, uint8_t *shared) {
    uint32_t most = DOTS_SLICE / rf_weight_block(w) * rf_weight_block_bytes(w), slots = RF_STREAM_SLOTS(most);
    uint32_t slices = dots_slices(op->k), last_bytes = op->row_bytes - (slices - 1) * most;
    uint32_t wave = rf_thread_x() / RF_WAVE, step = rf_grid_dim_x() * (rf_block_dim_x() / RF_WAVE);
    uint32_t units = pairs_count(op, 0) + pairs_count(op, 1) + pairs_count(op, 2);
    uint8_t *x = shared + PAIRS_SCRATCH, *ring = x + slices * dots_x_slice_bytes(w) + wave * slots * 2 * most;
    /* The waves of a block are far apart, so that the last rows go to all blocks alike. */
    uint32_t unit = wave * rf_grid_dim_x() + rf_block_x(), ahead_unit = unit, slice = 0, ahead_slice = 0;
    struct pairs_rows ahead = pairs_at(op, unit);
    if (unit < units) {
        uint32_t some = op->row_bytes < PAIRS_AHEAD * most ? op->row_bytes : PAIRS_AHEAD * most;
        RF_NO_UNROLL
        for (uint32_t at = rf_lane() * 32; at < some; at += RF_WAVE * 32) {
            rf_grid_fetch(ahead.from[0] + at);
            if (ahead.both) rf_grid_fetch(ahead.from[1] + at);
        }
    }
    rf_grid_wait();
    struct rf_stream stream[2];
    uint32_t slot = 0, ahead_slot = 0;
    uint32_t mine = rf_weight_large(w) ? rf_lane() / 4 * 256 : rf_lane() * DOTS_LANE;
    float sums[2] = {0.0f, 0.0f};
#define PAIRS_BEGIN()                                                                                                \
    do {                                                                                                             \
        uint32_t bytes = ahead_unit >= units ? 0 : ahead_slice + 1 == slices ? last_bytes : most;                    \
        rf_stream_begin_16(&stream[0], most, ring + ahead_slot * 2 * most, ahead.from[0], bytes);                    \
        rf_stream_begin_16(&stream[1], most, ring + (ahead_slot * 2 + 1) * most, ahead.from[1],                      \
                           ahead.both ? bytes : 0);                                                                  \
        rf_stream_sent();                                                                                            \
    } while (0)
#define PAIRS_END()                                                                                                  \
    do {                                                                                                             \
        rf_stream_end_16(&stream[0], most, ring + ahead_slot * 2 * most);                                            \
        rf_stream_end_16(&stream[1], most, ring + (ahead_slot * 2 + 1) * most);                                      \
        ahead.from[0] += most;                                                                                       \
        ahead.from[1] += most;                                                                                       \
        if (++ahead_slice == slices) {                                                                               \
            ahead_slice = 0;                                                                                         \
            ahead_unit += step;                                                                                      \
            ahead = pairs_at(op, ahead_unit);                                                                        \
        }                                                                                                            \
        ahead_slot = ahead_slot + 1 == slots ? 0 : ahead_slot + 1;                                                   \
    } while (0)
    RF_UNROLL
    for (uint32_t i = 0; i + 1 < slots; i++) {
        PAIRS_BEGIN();
        PAIRS_END();
    }
    if (op->normed) {
        pairs_fill(w, op, x, (float *)shared);
    } else {
        struct matvec plain = {0, 0, 0, op->x, 0, 0, 1, 0, op->k, 0, 0};
        dots_fill(w, &plain, op->q8, x);
    }
    rf_barrier();
    RF_NO_UNROLL
    while (unit < units) {
        rf_streamed(slots - 2);
        rf_wave_barrier();
        PAIRS_BEGIN();
        if (mine < op->k - slice * DOTS_SLICE)
            pairs_slice(w, ring + slot * 2 * most, most, x + slice * dots_x_slice_bytes(w), sums);
        if (++slice == slices) {
            pairs_store(op, unit, sums);
            sums[0] = sums[1] = 0.0f;
            slice = 0;
            unit += step;
        }
        slot = slot + 1 == slots ? 0 : slot + 1;
        PAIRS_END();
    }
    rf_streamed(0);
#undef PAIRS_BEGIN
#undef PAIRS_END
}

#define MATVEC_PAIRS(name, weight)                                                                                   \
    RF_KERNEL_EARLY(matvec_##name##_pairs, 1024, (float *, out), (float *, out_b), (float *, out_c),                 \
                    (const void *, weights), (const void *, weights_b), (const void *, weights_c),                   \
                    (const void *, x), (const float *, norm), (float *, normed), (const float *, bias),              \
                    (const float *, residual), (uint32_t, n), (uint32_t, n_b), (uint32_t, n_c), (uint32_t, k),       \
                    (float, eps), (uint32_t, how)) {                                                                 \
        RF_SHARED_DYNAMIC(uint8_t, shared);                                                                          \
        rf_grid_go();                                                                                                \
        struct pairs op = {{out, out_b, out_c},                                                                      \
                           {(const uint8_t *)weights, (const uint8_t *)weights_b, (const uint8_t *)weights_c},       \
                           {n, n_b, n_c},                                                                            \
                           x,                                                                                        \
                           norm,                                                                                     \
                           normed,                                                                                   \
                           bias,                                                                                     \
                           residual,                                                                                 \
                           k,                                                                                        \
                           (uint32_t)rf_weight_row_bytes(weight, k),                                                 \
                           eps,                                                                                      \
                           (how & 1) != 0,                                                                           \
                           (how & 2) != 0,                                                                           \
                           (how & 4) != 0};                                                                          \
        pairs_body(weight, &op, shared);                                                                             \
    }
MATVEC_PAIRS(q4_0, RF_WEIGHT_Q4_0)
MATVEC_PAIRS(q8_0, RF_WEIGHT_Q8_0)
MATVEC_PAIRS(q4_k, RF_WEIGHT_Q4_K)
MATVEC_PAIRS(q6_k, RF_WEIGHT_Q6_K)
