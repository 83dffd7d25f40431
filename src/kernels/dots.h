/* Matrix times few vectors by products of bytes: out[r][c] = sum over i of weights[c][i] * x[r][i] for quantized
 * weights and x in 8 bits (struct rf_matmul_args); the body of the matvec kernels with 8-bit activations.
 *
 * A block first brings x to shared memory: blocks of 8 bits as quantize_q8 writes them, or f32 that it rounds itself,
 * to the same bits. Then every wave works for itself: it takes whole rows of weights, one after the other, in slices
 * of RF_WAVE * RF_DOTS_LANE elements that reach it through shared memory (stream.h), several under way at once, the
 * first of them while x is being rounded. A lane has RF_DOTS_LANE elements of a slice, the same for every row; the
 * lanes' sums meet once a row. So a row's result depends neither on the grid nor on the block. With a gate a row of
 * weights is followed by the gate's: out[r][c] = silu(weights[c] . x[r]) * (gate[c] . x[r]).
 * Most products with one row of x take a faster kernel, which gives the same bits: matvec_pairs.hip.
 *
 * In shared memory x lies as the lanes read it, 16 bytes of neighbouring lanes side by side, per slice:
 *     q         16 elements each: [4][RF_WAVE][16 bytes]; dots_place says which
 *     notes     {scale, sum of the quants} of the 32 elements a lane's pair of 16 belongs to: [RF_WAVE][2][8 bytes];
 *               of Q6_K, where a lane's elements lie 32 apart, scales [RF_WAVE][4] and sums of 16 [RF_WAVE][4]
 *
 * Layout of memory and launch: as in matvec.h; x is f32 in rows of x_stride elements, a multiple of 4, at a multiple
 * of 16 bytes, or 8-bit blocks, dense, at a multiple of 8. k and n are below 2^31. Block: whole waves; grid: any in
 * x, as many as the device holds at once is best. Dynamic shared memory: m rows of dots_x_slice_bytes for each slice,
 * then a ring of RF_STREAM_SLOTS slots for each wave. */
#ifndef RF_KERNELS_DOTS_H
#define RF_KERNELS_DOTS_H

#include "kernels/matvec.h"
#include "kernels/stream.h"

#define DOTS_SLICE (RF_WAVE * RF_DOTS_LANE)
#define DOTS_BATCH 2 /* shares of x that a thread loads before it rounds the first */

RF_DEVICE uint32_t dots_notes_bytes(enum rf_weight w) { /* of a lane */
    return w == RF_WEIGHT_Q6_K ? RF_DOTS_NOTES_BYTES_Q6_K : RF_DOTS_NOTES_BYTES;
}
RF_DEVICE uint32_t dots_x_slice_bytes(enum rf_weight w) {
    return RF_WAVE * (RF_DOTS_LANE + dots_notes_bytes(w));
}
RF_DEVICE uint32_t dots_slices(uint32_t k) {
    return (k + DOTS_SLICE - 1) / DOTS_SLICE;
}

/* Which lane has the 16 elements number `sixteen` of a slice, and as which of its four groups of 16. */
struct dots_place {
    uint32_t lane, i;
};
RF_DEVICE struct dots_place dots_place(enum rf_weight w, uint32_t sixteen) {
    struct dots_place place = {sixteen / 4, sixteen % 4};
    if (w == RF_WEIGHT_Q6_K) { /* of each 128 a lane has the same half of every 32 */
        place.lane = sixteen / 8 * 2 + sixteen % 2;
        place.i = sixteen % 8 / 2;
    }
    return place;
}

/* ---- x to shared memory ---- */

/* One share of 8 elements, number `at` of a row of x; four lanes share a block. */
RF_DEVICE void dots_put(enum rf_weight w, uint8_t *x, uint32_t at, uint32_t k, const struct rf_q8_share *share) {
    int32_t half = share->sum + (int32_t)rf_wave_xor_u32((uint32_t)share->sum, 1);
    int32_t whole = half + (int32_t)rf_wave_xor_u32((uint32_t)half, 2);
    if (at * 8 >= k) return;
    uint32_t within = at % (DOTS_SLICE / 8);
    struct dots_place place = dots_place(w, within / 2);
    uint8_t *slice = x + at / (DOTS_SLICE / 8) * dots_x_slice_bytes(w), *notes = slice + DOTS_SLICE;
    rf_u32x2 quants = {share->q[0], share->q[1]};
    rf_store_8(slice + (place.i * RF_WAVE + place.lane) * 16 + within % 2 * 8, quants);
    if (w == RF_WEIGHT_Q6_K) {
        if (within % 2 == 0) {
            *(float *)(notes + (place.lane * 4 + place.i) * 4) = share->scale;
            *(int32_t *)(notes + RF_WAVE * 16 + (place.lane * 4 + place.i) * 4) = half;
        }
    } else if (within % 4 == 0) {
        rf_u32x2 note = {rf_bits_of_f32(share->scale), (uint32_t)whole};
        rf_store_8(notes + within / 4 * 8, note);
    }
}

RF_DEVICE void dots_fill(enum rf_weight w, const struct matvec *op, bool q8, uint8_t *x) {
    uint32_t k = (uint32_t)op->args.k, shares = k / 8, whole = (shares + RF_WAVE - 1) / RF_WAVE * RF_WAVE;
    uint32_t step = rf_block_dim_x(), column_bytes = dots_slices(k) * dots_x_slice_bytes(w);
    const uint8_t *from = (const uint8_t *)op->x;
    RF_NO_UNROLL
    for (uint32_t c = 0; c < (uint32_t)op->args.m; c++, x += column_bytes) {
        RF_NO_UNROLL
        for (uint32_t first = rf_thread_x(); first < whole; first += DOTS_BATCH * step) {
            struct rf_q8_share share[DOTS_BATCH];
            float values[DOTS_BATCH][8];
            RF_UNROLL
            for (uint32_t b = 0; b < DOTS_BATCH; b++) {
                uint32_t at = first + b * step;
                RF_UNROLL
                for (uint32_t i = 0; i < 8; i++) values[b][i] = 0.0f;
                share[b].q[0] = share[b].q[1] = 0;
                share[b].scale = 0.0f;
                if (at < shares && q8) {
                    const struct rf_q8_block *block = (const struct rf_q8_block *)from + at / 4;
                    rf_u32x2 raw = rf_load_8(block->quants + at % 4 * 8);
                    share[b].q[0] = raw[0];
                    share[b].q[1] = raw[1];
                    share[b].scale = block->scale;
                } else if (at < shares) {
                    rf_load_many(RF_TYPE_F32, 8, from, at * 8, values[b]);
                }
            }
            RF_UNROLL
            for (uint32_t b = 0; b < DOTS_BATCH; b++) {
                uint32_t at = first + b * step;
                if (at >= whole) continue; /* by whole waves */
                share[b].sum = rf_dot4(share[b].q[0], 0x01010101, rf_dot4(share[b].q[1], 0x01010101, 0));
                if (!q8) rf_quantize_share(8, values[b], &share[b]);
                dots_put(w, x, at, k, &share[b]);
            }
        }
        from += q8 ? k / RF_Q8_BLOCK * sizeof(struct rf_q8_block) : op->args.x_stride * sizeof(float);
    }
}

/* ---- a lane's part of a slice ---- */

/* `to` += the products of q, 16 bytes of weights, and a lane's i-th 16 of x. */
RF_DEVICE int32_t dots_16(const uint32_t *q, const uint8_t *x, uint32_t i, int32_t to) {
    rf_u32x4 other = rf_shared_16(x + (i * RF_WAVE + rf_lane()) * 16);
    RF_UNROLL
    for (uint32_t j = 0; j < 4; j++) to = rf_dot4(q[j], other[j], to);
    return to;
}
RF_DEVICE rf_u32x4 dots_notes(const uint8_t *x, uint32_t i) {
    return rf_shared_16(x + DOTS_SLICE + (i * RF_WAVE + rf_lane()) * 16);
}
/* A column past the last row of x is the last row again, so that there are no branches; its sums are not stored. The
 * address is computed again in each turn: it is not worth registers around the loop. */
RF_DEVICE const uint8_t *dots_column(const uint8_t *x, uint32_t column_bytes, const struct matvec *op, uint32_t c) {
    return c ? x + (uint32_t)rf_min_u64(rf_opaque(c), op->args.m - 1) * column_bytes : x;
}

/* Keeps the compiler from fetching x far ahead of its products, for which there are no registers. */
RF_DEVICE void dots_fence(void) {
#if defined(RF_AMD)
    __builtin_amdgcn_sched_barrier(0);
#endif
}

/* Q8_0, Q4_0, IQ4_NL: two blocks, a half for the scale and bytes or nibbles. `left`: elements of the row from the
 * lane's first on. */
RF_DEVICE void dots_pair(enum rf_weight w, uint32_t columns, const struct matvec *op, const uint8_t *slice,
                         uint32_t left, const uint8_t *x, uint32_t column_bytes, float *sums) {
    uint32_t words = w == RF_WEIGHT_Q8_0 ? 8 : 4;
    const uint8_t *from = slice + rf_lane() * 2 * rf_weight_block_bytes(w);
    uint32_t odd = (uint32_t)((uintptr_t)from & 2) * 8;
    const uint32_t *raw_from = (const uint32_t *)(from - odd / 8);
    RF_UNROLL
    for (uint32_t b = 0; b < 2; b++) {
        if (b && left <= RF_Q8_BLOCK) return;
        /* The second block's scale lies in the upper half of a word, where `odd` is 0. */
        uint32_t first = b ? (rf_weight_block_bytes(w) - 2) / 4 : 0, more = b ? 16 : 0, raw[10], q[8];
        RF_UNROLL
        for (uint32_t i = 0; i < words + 1 + b; i++) raw[i] = raw_from[first + i];
        float scale = rf_f32_of_f16((rf_f16)rf_funnel(raw[0], raw[1], more + odd));
        RF_UNROLL
        for (uint32_t i = 0; i < words; i++)
            q[i] = b ? rf_funnel(raw[i + 1], raw[i + 2], odd) : rf_funnel(raw[i], raw[i + 1], 16 + odd);
        if (w != RF_WEIGHT_Q8_0) {
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                q[i + 4] = q[i] >> 4 & 0x0f0f0f0f;
                q[i] &= 0x0f0f0f0f;
                if (w == RF_WEIGHT_IQ4_NL) {
                    q[i] = rf_iq4_bytes(q[i]);
                    q[i + 4] = rf_iq4_bytes(q[i + 4]);
                }
            }
        }
        RF_UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            const uint8_t *column = dots_column(x, column_bytes, op, c);
            rf_u32x2 note = rf_load_8(column + DOTS_SLICE + rf_lane() * 16 + 8 * b);
            int32_t dot = w == RF_WEIGHT_Q4_0 ? (int32_t)note[1] * -8 : 0;
            dot = dots_16(q + 4, column, 2 * b + 1, dots_16(q, column, 2 * b, dot));
            sums[c] = rf_fma(scale * rf_f32_of_bits(note[0]), (float)dot, sums[c]);
        }
        dots_fence();
    }
}

/* Q4_K: a quarter of a block, 32 bytes of nibbles: 32 elements in the low halves, the next 32 in the high ones. */
RF_DEVICE void dots_q4_k(uint32_t columns, const struct matvec *op, const uint8_t *slice, const uint8_t *x,
                         uint32_t column_bytes, float *sums) {
    const uint8_t *block = slice + rf_lane() / 4 * 144;
    uint32_t quarter = rf_lane() % 4, shift = quarter % 2 * 16, q[2][8];
    rf_u32x4 head = rf_shared_16(block);
    float scale = rf_f32_of_f16((rf_f16)head[0]), minimum = rf_f32_of_f16((rf_f16)(head[0] >> 16));
    RF_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        rf_u32x4 raw = rf_shared_16(block + 16 + 32 * quarter + 16 * half);
        RF_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            q[0][4 * half + i] = raw[i] & 0x0f0f0f0f;
            q[1][4 * half + i] = raw[i] >> 4 & 0x0f0f0f0f;
        }
    }
    /* Scales and minimums of two neighbours at once, in bytes. */
    uint32_t a = head[1] >> shift, b = head[2] >> shift, d = head[3] >> shift;
    uint32_t scales = quarter < 2 ? a & 0x3f3f : (d & 0x0f0f) | (a >> 2 & 0x3030);
    uint32_t minimums = quarter < 2 ? b & 0x3f3f : (d >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    RF_UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        const uint8_t *column = dots_column(x, column_bytes, op, c);
        rf_u32x4 notes = dots_notes(column, 0);
        float products = 0.0f, offsets = 0.0f;
        RF_UNROLL
        for (uint32_t p = 0; p < 2; p++) {
            int32_t s = (int32_t)(scales >> 8 * p & 63), m = (int32_t)(minimums >> 8 * p & 63);
            int32_t dot = dots_16(q[p] + 4, column, 2 * p + 1, dots_16(q[p], column, 2 * p, 0));
            /* Both products are below 2^24. */
            products = rf_fma(rf_f32_of_bits(notes[2 * p]), (float)(dot * s), products);
            offsets = rf_fma(rf_f32_of_bits(notes[2 * p]), (float)((int32_t)notes[2 * p + 1] * m), offsets);
        }
        sums[c] = rf_fma(scale, products, sums[c]);
        sums[c] = rf_fma(-minimum, offsets, sums[c]);
    }
}

/* 16 bytes at an even address. */
RF_DEVICE void dots_even_16(const uint8_t *from, uint32_t *words) {
    uint32_t odd = (uint32_t)((uintptr_t)from & 2) * 8, raw[5];
    const uint32_t *raw_from = (const uint32_t *)(from - odd / 8);
    RF_UNROLL
    for (uint32_t i = 0; i < 5; i++) raw[i] = raw_from[i];
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) words[i] = rf_funnel(raw[i], raw[i + 1], odd);
}

/* Q6_K: of a half block, 128 elements, the same half of every 32. */
RF_DEVICE void dots_q6_k(uint32_t columns, const struct matvec *op, const uint8_t *slice, const uint8_t *x,
                         uint32_t column_bytes, float *sums) {
    const uint8_t *block = slice + rf_lane() / 4 * 210;
    uint32_t half = rf_lane() / 2 % 2, side = rf_lane() % 2, low[2][4], high[4], scales[4];
    dots_even_16(block + 64 * half + 16 * side, low[0]);
    dots_even_16(block + 64 * half + 32 + 16 * side, low[1]);
    dots_even_16(block + 128 + 32 * half + 16 * side, high);
    dots_even_16(block + 192, scales);
    float scale = rf_load_f16(block + 208);
    uint32_t front = (half ? scales[2] : scales[0]) >> 8 * side, back = (half ? scales[3] : scales[1]) >> 8 * side;
    int32_t s[4] = {(int8_t)front, (int8_t)(front >> 16), (int8_t)back, (int8_t)(back >> 16)};
    RF_UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        const uint8_t *column = dots_column(x, column_bytes, op, c);
        rf_u32x4 x_scales = dots_notes(column, 0), x_sums = dots_notes(column, 1);
        float products = 0.0f;
        RF_UNROLL
        for (uint32_t p = 0; p < 4; p++) {
            uint32_t q[4];
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++)
                q[i] = (low[p % 2][i] >> p / 2 * 4 & 0x0f0f0f0f) | ((high[i] >> 2 * p & 0x03030303) << 4);
            int32_t dot = dots_16(q, column, p, (int32_t)x_sums[p] * -32);
            products = rf_fma(rf_f32_of_bits(x_scales[p]), (float)(dot * s[p]), products); /* below 2^24 */
        }
        sums[c] = rf_fma(scale, products, sums[c]);
    }
}

/* The other types: units as quant.h reads them. A unit with four parts takes four turns, as there are not enough
 * registers for all of it. */
RF_DEVICE void dots_units(enum rf_weight w, uint32_t columns, const struct matvec *op, const uint8_t *slice,
                          uint32_t left, const uint8_t *x, uint32_t column_bytes, float *sums) {
    uint32_t at_once = rf_weight_large(w) ? 1 : rf_unit_parts(w), turns = rf_unit_parts(w) / at_once;
    uint32_t units = RF_DOTS_LANE / (8 * rf_unit_parts(w));
    RF_NO_UNROLL
    for (uint32_t j = 0; j < units * turns; j++) {
        uint32_t unit = rf_lane() * units + j / turns, element = (uint32_t)rf_unit_element(w, unit);
        if (element >= left) continue;
        RF_UNROLL
        for (uint32_t i = 0; i < at_once; i++) {
            uint32_t p = j % turns + i, at = element + p * rf_unit_stride(w), sixteen = at / 16;
            struct rf_part part = rf_read_part(w, slice, unit, p);
            RF_UNROLL
            for (uint32_t c = 0; c < columns; c++) {
                const uint8_t *column = dots_column(x, column_bytes, op, c);
                rf_u32x2 other = rf_load_8(column + (sixteen % 4 * RF_WAVE + sixteen / 4) * 16 + at % 16);
                float scale = *(const float *)(column + DOTS_SLICE + at / 32 * 8);
                float both = part.scale * (float)rf_dot4(part.q[0], other[0], rf_dot4(part.q[1], other[1], 0));
                if (rf_weight_offset(w)) {
                    int32_t sum = rf_dot4(other[0], 0x01010101, rf_dot4(other[1], 0x01010101, 0));
                    both = rf_fma(part.offset, (float)sum, both);
                }
                sums[c] = rf_fma(scale, both, sums[c]);
            }
        }
    }
}

/* ---- rows ---- */

/* Where a wave is on its way through its rows. */
struct dots_step {
    uint32_t row;
    uint32_t slice;
    bool gate;
};
RF_DEVICE void dots_next(const struct matvec *op, uint32_t slices, uint32_t row_step, struct dots_step *step) {
    if (++step->slice < slices) return;
    step->slice = 0;
    if (op->gate && !step->gate) {
        step->gate = true;
        return;
    }
    step->gate = false;
    step->row += row_step;
}
RF_DEVICE const uint8_t *dots_from(const struct matvec *op, uint32_t row_bytes, uint32_t slice_bytes,
                                   const struct dots_step *step) {
    return (step->gate ? op->gate : op->weights) + (uint64_t)step->row * row_bytes + step->slice * slice_bytes;
}

RF_DEVICE void dots_store(const struct matvec *op, uint32_t columns, uint32_t row, const float *values,
                          const float *before) {
    float value = 0.0f;
    uint32_t lane = rf_anew(rf_lane());
    RF_UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        float all = rf_wave_sum(values[c]);
        if (op->gate) all *= matvec_silu(rf_wave_sum(before[c]));
        if (lane == c) value = all;
    }
    if (rf_lane() < op->args.m) {
        uint64_t at = rf_lane() * op->args.out_stride + row;
        if (op->bias) value += op->bias[row];
        if (op->residual) value += ((const float *)op->residual)[at];
        ((float *)op->out)[at] = value;
    }
}

RF_DEVICE void dots_body(enum rf_weight w, uint32_t columns, const struct matvec *op, bool q8, uint8_t *shared) {
    uint32_t most = DOTS_SLICE / rf_weight_block(w) * rf_weight_block_bytes(w), slots = RF_STREAM_SLOTS(most);
    uint32_t k = (uint32_t)op->args.k, n = (uint32_t)op->args.n, slices = dots_slices(k),
             row_step = rf_grid_dim_x() * (rf_block_dim_x() / RF_WAVE);
    uint32_t row_bytes = (uint32_t)rf_weight_row_bytes(w, k), last_bytes = row_bytes - (slices - 1) * most;
    uint32_t wave = rf_thread_x() / RF_WAVE, column_bytes = slices * dots_x_slice_bytes(w);
    uint8_t *x = shared, *ring = shared + (uint32_t)op->args.m * column_bytes + wave * slots * RF_STREAM_SLOT(most);
    /* The waves of a block are far apart, so that the last rows go to all blocks alike. */
    struct dots_step now = {wave * rf_grid_dim_x() + rf_block_x(), 0, false}, ahead = now;
    struct rf_stream stream;
    uint32_t slot = 0, ahead_slot = 0;
    float sums[RF_MATVEC_ROWS], before[RF_MATVEC_ROWS];
    RF_UNROLL
    for (uint32_t c = 0; c < columns; c++) sums[c] = before[c] = 0.0f;
    if (!slices) { /* sums of nothing */
        RF_NO_UNROLL
        for (; now.row < n; now.row += row_step) dots_store(op, columns, now.row, sums, before);
        return;
    }
#define DOTS_BEGIN()                                                                                                 \
    do {                                                                                                             \
        stream.end = (ahead.gate ? op->gate : op->weights) + (uint64_t)n * row_bytes;                                \
        rf_stream_begin(&stream, most, ring + ahead_slot * RF_STREAM_SLOT(most),                                     \
                        dots_from(op, row_bytes, most, &ahead),                                                      \
                        ahead.row >= n              ? 0                                                              \
                        : ahead.slice + 1 == slices ? last_bytes                                                     \
                                                    : most);                                                         \
    } while (0)
#define DOTS_END()                                                                                                   \
    do {                                                                                                             \
        rf_stream_end(&stream, most, ring + ahead_slot * RF_STREAM_SLOT(most));                                      \
        dots_next(op, slices, row_step, &ahead);                                                                     \
        ahead_slot = ahead_slot + 1 == slots ? 0 : ahead_slot + 1;                                                   \
    } while (0)
    RF_UNROLL
    for (uint32_t i = 0; i + 1 < slots; i++) {
        DOTS_BEGIN();
        DOTS_END();
    }
    dots_fill(w, op, q8, x);
    rf_barrier();
    RF_NO_UNROLL
    while (now.row < n) {
        rf_streamed(slots - 2);
        rf_wave_barrier();
        DOTS_BEGIN();
        uint32_t left = k - now.slice * DOTS_SLICE;
        const uint8_t *slice =
            ring + slot * RF_STREAM_SLOT(most) + rf_stream_skew(dots_from(op, row_bytes, most, &now));
        const uint8_t *x_slice = x + now.slice * dots_x_slice_bytes(w);
        uint32_t mine = rf_weight_large(w) ? rf_lane() / 4 * 256 : rf_lane() * RF_DOTS_LANE;
        if (mine < left) {
            if (w == RF_WEIGHT_Q8_0 || w == RF_WEIGHT_Q4_0 || w == RF_WEIGHT_IQ4_NL) {
                dots_pair(w, columns, op, slice, left - mine, x_slice, column_bytes, sums);
            } else if (w == RF_WEIGHT_Q4_K) {
                dots_q4_k(columns, op, slice, x_slice, column_bytes, sums);
            } else if (w == RF_WEIGHT_Q6_K) {
                dots_q6_k(columns, op, slice, x_slice, column_bytes, sums);
            } else {
                dots_units(w, columns, op, slice, left, x_slice, column_bytes, sums);
            }
        }
        if (now.slice + 1 == slices) {
            if (op->gate && !now.gate) {
                RF_UNROLL
                for (uint32_t c = 0; c < columns; c++) before[c] = sums[c];
            } else {
                dots_store(op, columns, now.row, sums, before);
            }
            RF_UNROLL
            for (uint32_t c = 0; c < columns; c++) sums[c] = 0.0f;
        }
        dots_next(op, slices, row_step, &now);
        slot = slot + 1 == slots ? 0 : slot + 1;
        DOTS_END();
    }
    rf_streamed(0);
#undef DOTS_BEGIN
#undef DOTS_END
}

/* matvec_<weight>_q8_<columns>: for up to `columns` rows of x, which is 8-bit blocks where args.x_q8, else f32. */
#define DOTS(name, weight, columns, threads)                                                                         \
    RF_KERNEL(matvec_##name##_q8_##columns, threads, (float *, out), (const void *, weights), (const void *, gate),  \
              (const void *, x), (const float *, bias), (const float *, residual), (struct rf_matmul_args, args)) {  \
        RF_SHARED_DYNAMIC(uint8_t, shared);                                                                          \
        struct matvec op = {out, (const uint8_t *)weights, (const uint8_t *)gate, x, bias, residual, args};          \
        dots_body(weight, columns, &op, args.x_q8 != 0, shared);                                                     \
    }

#endif
