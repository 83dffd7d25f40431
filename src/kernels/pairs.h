/* The body of the kernels that multiply up to three matrices by one row of x, two rows of weights at a time
 * (matvec_pairs.hip), and that do with the products what comes next (matvec_qkv.hip).
 *
 * As in dots.h, from which much is taken and whose bits a row gets: a block brings y to shared memory and a wave
 * takes whole rows, by slices that come through a ring of its own. Here a wave has two rows under way, neighbours of
 * a matrix, a row and the gate's, or two that a rotation joins, which share what is read of y; all rows begin and end
 * at multiples of 16 bytes. With RF_PRODUCTS_CONSTANT, which says that no work on the queue writes the weights, the
 * first slices are on their way while the kernel waits for x.
 *
 * Layout: dense rows, n[i] of each, weights at multiples of 16 bytes; of quantized ones a lane's RF_DOTS_LANE
 * elements are either all in a row or none of them is (likewise a block of Q4_K or Q6_K). x is f32, or f16 with
 * RF_PRODUCTS_X_F16; x, norm and normed are at multiples of 16 bytes. With RF_PRODUCTS_X_Q8 and quantized weights x
 * is 8-bit blocks, and there is no norm and no normed. k is above 0.
 * Launch: a block of whole waves; any grid in x, as many blocks as the device holds at once is best. Dynamic shared
 * memory: RF_PAIRS_NOTES, pairs_x_slice_bytes for each slice, then RF_STREAM_SLOTS slots of two slices for each wave.
 * With a norm the bits depend on the size of the block, in whose order squares are summed. */
#ifndef RF_KERNELS_PAIRS_H
#define RF_KERNELS_PAIRS_H

#include "kernels/atomic.h"
#include "kernels/cache.h"
#include "kernels/dots.h"

#define PAIRS_HELD 2                     /* shares of x that a thread keeps while their squares are summed */
#define PAIRS_BATCH 3                    /* and that it loads at once where there is nothing to sum */
#define PAIRS_FLOATS (RF_PAIRS_LANE / 8) /* shares of 8 elements that a lane has of a slice of floats */

RF_DEVICE uint32_t pairs_slice_elements(enum rf_weight w) {
    return rf_weight_float(w) ? PAIRS_FLOATS * RF_WAVE * 8 : DOTS_SLICE;
}
/* Of x in f32: [PAIRS_FLOATS][2][RF_WAVE][4 elements], the halves of the lanes' shares. */
RF_DEVICE uint32_t pairs_x_slice_bytes(enum rf_weight w) {
    return rf_weight_float(w) ? PAIRS_FLOATS * RF_WAVE * 32 : dots_x_slice_bytes(w);
}

/* Where keys, values and queries go, if they are the three products. */
enum { PAIRS_KEYS, PAIRS_VALUES, PAIRS_QUERIES };
struct pairs_append {
    void *k_cache, *v_cache, *q_out;
    const int32_t *positions;
    const uint32_t *sequences, *table;
    const uint64_t *steps;
    uint32_t *counters;
    struct rf_kv_append_args args;
    enum kv_type cache;
    const struct pairs_token *token;
};
/* In shared memory, of which there is more than of registers. */
struct pairs_token {
    uint64_t place; /* PAIRS_NOWHERE: it has none in the caches */
    int32_t position;
};
#define PAIRS_NOWHERE (~(uint64_t)0)
RF_DEVICE struct pairs_append pairs_no_append(void) {
    struct pairs_append none;
    __builtin_memset(&none, 0, sizeof none);
    return none;
}

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
    bool q8, gate, half, early;
    bool appends; /* a constant: false where products are all */
    struct pairs_append append;
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
    /* With append: */
    uint32_t head, first, second; /* the two elements of the head */
    uint32_t turn;                /* their pair among those that are rotated, if turned */
    bool turned;
};
/* Pair number `unit` of keys, values or queries: the elements that a rotation joins, else neighbours. */
RF_DEVICE void pairs_of_heads(const struct pairs *op, uint32_t unit, struct pairs_rows *rows) {
    const struct rf_kv_append_args *args = &op->append.args;
    bool halves = args->halves != 0;
    uint32_t pairs = args->dim / 2, pair = unit % pairs, distance = args->rotated / 2;
    rows->head = unit / pairs;
    rows->turn = pair;
    rows->turned = rows->matrix != PAIRS_VALUES && pair < distance;
    rows->first = rows->turned ? rope_first(halves, pair) : 2 * pair;
    rows->second = rows->turned ? rope_second(halves, pair, args->rotated) : 2 * pair + 1;
    rows->row = rows->head * args->dim + rows->first;
    rows->from[0] += (uint64_t)rows->row * op->row_bytes;
    rows->from[1] = rows->from[0] + (uint64_t)(rows->second - rows->first) * op->row_bytes;
}
RF_DEVICE struct pairs_rows pairs_at(const struct pairs *op, uint32_t unit) {
    struct pairs_rows rows = {{op->weights[0], op->weights[1]}, op->out[0], 0, 0, true, 0, 0, 0, 0, false};
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
    if (op->appends) {
        pairs_of_heads(op, unit, &rows);
        return rows;
    }
    rows.row = 2 * unit;
    rows.from[0] += (uint64_t)rows.row * op->row_bytes;
    rows.from[1] = rows.from[0] + op->row_bytes;
    rows.both = rows.row + 1 < n;
    return rows;
}

/* ---- x ---- */

/* Share number `at`, 8 elements, of which those past the end are 0. */
RF_DEVICE void pairs_put(enum rf_weight w, const struct pairs *op, uint32_t at, float *values, uint8_t *x) {
    if (at * 8 < op->k && op->normed && rf_block_x() == 0) rf_store_many(RF_TYPE_F32, 8, op->normed, at * 8, values);
    if (rf_weight_float(w)) {
        uint32_t shares = PAIRS_FLOATS * RF_WAVE, within = at % shares, half = RF_WAVE * 4;
        float *to = (float *)(x + at / shares * pairs_x_slice_bytes(w)) + within / RF_WAVE * 2 * half;
        if (at * 8 >= op->k) return;
        rf_store_many(RF_TYPE_F32, 4, to, within % RF_WAVE * 4, values);
        rf_store_many(RF_TYPE_F32, 4, to, half + within % RF_WAVE * 4, values + 4);
        return;
    }
    struct rf_q8_share share;
    rf_quantize_share(8, values, &share);
    dots_put(w, x, at, op->k, &share);
}
/* count shares, step apart, all on their way before the first is used. */
RF_DEVICE void pairs_load(const struct pairs *op, uint32_t first, uint32_t count, float values[][8]) {
    uint32_t step = rf_block_dim_x(), last = op->k / 8 - 1;
    if (op->half) {
        RF_UNROLL
        for (uint32_t b = 0; b < count; b++) {
            uint32_t at = first + b * step < last ? first + b * step : last;
            rf_load_many(RF_TYPE_F16, 8, op->x, at * 8, values[b]);
        }
    } else {
        RF_UNROLL
        for (uint32_t b = 0; b < count; b++) {
            uint32_t at = first + b * step < last ? first + b * step : last;
            rf_load_many(RF_TYPE_F32, 8, op->x, at * 8, values[b]);
        }
    }
    RF_UNROLL
    for (uint32_t b = 0; b < count; b++) {
        RF_UNROLL
        for (uint32_t i = 0; i < 8; i++) values[b][i] = first + b * step <= last ? values[b][i] : 0.0f;
    }
}
RF_DEVICE float pairs_squares(uint32_t count, float values[][8]) {
    float all = 0.0f;
    RF_UNROLL
    for (uint32_t b = 0; b < count; b++) {
        float sum = 0.0f;
        RF_UNROLL
        for (uint32_t i = 0; i < 8; i++) sum = rf_fma(values[b][i], values[b][i], sum);
        all += sum;
    }
    return all;
}
RF_DEVICE void pairs_weights(const struct pairs *op, uint32_t first, float weights[][8]) {
    uint32_t step = rf_block_dim_x(), last = op->k / 8 - 1;
    RF_UNROLL
    for (uint32_t b = 0; b < PAIRS_HELD; b++) {
        uint32_t at = first + b * step < last ? first + b * step : last;
        rf_load_many(RF_TYPE_F32, 8, op->norm, at * 8, weights[b]);
    }
}

/* As dots_fill, after the norm; y is written. */
RF_DEVICE void pairs_fill_normed(enum rf_weight w, const struct pairs *op, uint8_t *x, float *scratch) {
    uint32_t whole = (op->k / 8 + RF_WAVE - 1) / RF_WAVE * RF_WAVE, step = rf_block_dim_x(), thread = rf_thread_x();
    float held[PAIRS_HELD][8], weights[PAIRS_HELD][8];
    pairs_load(op, thread, PAIRS_HELD, held);
    pairs_weights(op, thread, weights);
    float sum = pairs_squares(PAIRS_HELD, held);
    RF_NO_UNROLL
    for (uint32_t at = thread + PAIRS_HELD * step; at < whole; at += step) {
        float values[1][8];
        pairs_load(op, at, 1, values);
        sum += pairs_squares(1, values);
    }
    float factor = rf_rsqrt(rf_block_sum(sum, scratch) / (float)op->k + op->eps);
    RF_NO_UNROLL
    for (uint32_t first = thread; first < whole; first += PAIRS_HELD * step) {
        if (first != thread) {
            pairs_load(op, first, PAIRS_HELD, held);
            pairs_weights(op, first, weights);
        }
        RF_UNROLL
        for (uint32_t b = 0; b < PAIRS_HELD; b++) {
            RF_UNROLL
            for (uint32_t i = 0; i < 8; i++) held[b][i] = held[b][i] * factor * weights[b][i];
            if (first + b * step < whole) pairs_put(w, op, first + b * step, held[b], x); /* by whole waves */
        }
    }
}
RF_DEVICE void pairs_fill(enum rf_weight w, const struct pairs *op, uint8_t *x) {
    uint32_t whole = (op->k / 8 + RF_WAVE - 1) / RF_WAVE * RF_WAVE, step = rf_block_dim_x();
    RF_NO_UNROLL
    for (uint32_t first = rf_thread_x(); first < whole; first += PAIRS_BATCH * step) {
        float values[PAIRS_BATCH][8];
        pairs_load(op, first, PAIRS_BATCH, values);
        RF_UNROLL
        for (uint32_t b = 0; b < PAIRS_BATCH; b++)
            if (first + b * step < whole) pairs_put(w, op, first + b * step, values[b], x);
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
/* Q4_K: as dots_q4_k. */
RF_DEVICE void pairs_q4_k(const uint8_t *slices, uint32_t most, const uint8_t *x, float *sums) {
    uint32_t quarter = rf_lane() % 4, shift = quarter % 2 * 16;
    const uint8_t *block = slices + rf_lane() / 4 * 144;
    int32_t dots[2][2] = {{0, 0}, {0, 0}};
    RF_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        rf_u32x4 low = rf_shared_16(x + (half * RF_WAVE + rf_lane()) * 16);
        rf_u32x4 high = rf_shared_16(x + ((2 + half) * RF_WAVE + rf_lane()) * 16);
        RF_UNROLL
        for (uint32_t r = 0; r < 2; r++) {
            rf_u32x4 raw = rf_shared_16(block + r * most + 16 + 32 * quarter + 16 * half);
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                dots[r][0] = rf_dot4(raw[i] & 0x0f0f0f0f, low[i], dots[r][0]);
                dots[r][1] = rf_dot4(raw[i] >> 4 & 0x0f0f0f0f, high[i], dots[r][1]);
            }
        }
        dots_fence();
    }
    rf_u32x4 notes = dots_notes(x, 0);
    RF_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        rf_u32x4 head = rf_shared_16(block + r * most);
        float scale = rf_f32_of_f16((rf_f16)head[0]), minimum = rf_f32_of_f16((rf_f16)(head[0] >> 16));
        uint32_t a = head[1] >> shift, b = head[2] >> shift, d = head[3] >> shift;
        uint32_t scales = quarter < 2 ? a & 0x3f3f : (d & 0x0f0f) | (a >> 2 & 0x3030);
        uint32_t minimums = quarter < 2 ? b & 0x3f3f : (d >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
        float products = 0.0f, offsets = 0.0f;
        RF_UNROLL
        for (uint32_t p = 0; p < 2; p++) {
            int32_t times = (int32_t)(scales >> 8 * p & 63), least = (int32_t)(minimums >> 8 * p & 63);
            products = rf_fma(rf_f32_of_bits(notes[2 * p]), (float)(dots[r][p] * times), products);
            offsets = rf_fma(rf_f32_of_bits(notes[2 * p]), (float)((int32_t)notes[2 * p + 1] * least), offsets);
        }
        sums[r] = rf_fma(scale, products, sums[r]);
        sums[r] = rf_fma(-minimum, offsets, sums[r]);
    }
}

/* Q6_K: as dots_q6_k. */
RF_DEVICE void pairs_q6_k(const uint8_t *slices, uint32_t most, const uint8_t *x, float *sums) {
    uint32_t half = rf_lane() / 2 % 2, side = rf_lane() % 2, low[2][2][4], high[2][4];
    const uint8_t *block = slices + rf_lane() / 4 * 210;
    float products[2] = {0.0f, 0.0f};
    uint32_t scales[2][2];
    RF_UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        const uint8_t *from = block + r * most;
        dots_even_16(from + 64 * half + 16 * side, low[r][0]);
        dots_even_16(from + 64 * half + 32 + 16 * side, low[r][1]);
        dots_even_16(from + 128 + 32 * half + 16 * side, high[r]);
        const uint8_t *eight = from + 192 + 8 * half;
        uint32_t odd = (uint32_t)((uintptr_t)eight & 2) * 8;
        const uint32_t *words = (const uint32_t *)(eight - odd / 8);
        uint32_t a = words[0], b = words[1], c = words[2];
        scales[r][0] = rf_funnel(a, b, odd) >> 8 * side;
        scales[r][1] = rf_funnel(b, c, odd) >> 8 * side;
    }
    dots_fence();
    rf_u32x4 x_scales = dots_notes(x, 0), x_sums = dots_notes(x, 1);
    RF_UNROLL
    for (uint32_t p = 0; p < 4; p++) {
        rf_u32x4 other = rf_shared_16(x + (p * RF_WAVE + rf_lane()) * 16);
        RF_UNROLL
        for (uint32_t r = 0; r < 2; r++) {
            int32_t dot = (int32_t)x_sums[p] * -32, times = (int8_t)(scales[r][p / 2] >> p % 2 * 16);
            RF_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t top = p < 2 ? high[r][i] << (4 - 2 * p) : high[r][i] >> (2 * p - 4);
                uint32_t q = (low[r][p % 2][i] >> p / 2 * 4 & 0x0f0f0f0f) | (top & 0x30303030);
                dot = rf_dot4(q, other[i], dot);
            }
            products[r] = rf_fma(rf_f32_of_bits(x_scales[p]), (float)(dot * times), products[r]); /* below 2^24 */
        }
        dots_fence();
    }
    RF_UNROLL
    for (uint32_t r = 0; r < 2; r++) sums[r] = rf_fma(rf_load_f16(block + r * most + 208), products[r], sums[r]);
}

/* f16, bf16: the lane's share of every RF_WAVE of them; `left`: elements of the row from the slice's first on. */
RF_DEVICE void pairs_floats(enum rf_weight w, const uint8_t *slices, uint32_t most, const uint8_t *x, uint32_t left,
                            float *sums) {
    RF_UNROLL
    for (uint32_t p = 0; p < PAIRS_FLOATS; p++) {
        uint32_t share = p * RF_WAVE + rf_lane();
        if (share * 8 >= left) continue;
        rf_u32x4 low = rf_shared_16(x + (2 * p * RF_WAVE + rf_lane()) * 16);
        rf_u32x4 high = rf_shared_16(x + ((2 * p + 1) * RF_WAVE + rf_lane()) * 16);
        RF_UNROLL
        for (uint32_t r = 0; r < 2; r++) {
            rf_u32x4 raw = rf_shared_16(slices + r * most + share * 16);
            RF_UNROLL
            for (uint32_t i = 0; i < 8; i++) {
                float weight = rf_f32_of_16(rf_weight_type(w), (uint16_t)(raw[i / 2] >> i % 2 * 16));
                sums[r] = rf_fma(weight, rf_f32_of_bits(i < 4 ? low[i % 4] : high[i % 4]), sums[r]);
            }
        }
        dots_fence();
    }
}
RF_DEVICE void pairs_slice(enum rf_weight w, const uint8_t *slices, uint32_t most, const uint8_t *x, uint32_t left,
                           float *sums) {
    if (rf_weight_float(w)) pairs_floats(w, slices, most, x, left, sums);
    if (w == RF_WEIGHT_Q8_0 || w == RF_WEIGHT_Q4_0) pairs_small(w, slices, most, x, sums);
    if (w == RF_WEIGHT_Q4_K) pairs_q4_k(slices, most, x, sums);
    if (w == RF_WEIGHT_Q6_K) pairs_q6_k(slices, most, x, sums);
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

/* ---- keys, values and queries ---- */

/* One thread reads the token's position and finds its place; the others know them behind a barrier. */
RF_DEVICE void pairs_find(struct pairs_append *to, struct pairs_token *token) {
    to->token = token;
    if (rf_thread_x()) return;
    int32_t position = to->positions[0];
    uint64_t place = 0;
    if (!kv_place(position, to->sequences ? to->sequences[0] : 0, to->table, to->args, &place)) place = PAIRS_NOWHERE;
    token->position = position;
    token->place = place;
}
/* As rf_last_block (atomic.h), of waves of any blocks; every lane of the wave makes the call. */
RF_DEVICE bool pairs_last_wave(uint32_t *counter, uint32_t count) {
    uint32_t before = 0;
    rf_device_fence();
    rf_wave_barrier();
    if (rf_lane() == 0) before = rf_atomic_add_u32(counter, 1);
    bool last = rf_wave_get_u32(before, 0) + 1 == count;
    if (last && rf_lane() == 0) rf_atomic_add_u32(counter, 0u - count);
    if (last) {
        rf_device_fence();
        rf_wave_barrier(); /* the other lanes' reads come behind what lane 0 saw */
    }
    return last;
}

/* A head of a Q8_0 cache, by the wave that has brought the last of its sums. */
RF_DEVICE void pairs_pack(const struct pairs_append *to, const struct pairs_rows *rows, void *cache) {
    uint32_t dim = to->args.dim;
    uint32_t *counter = to->counters + (rows->matrix == PAIRS_VALUES ? to->args.heads : 0) + rows->head;
    if (!pairs_last_wave(counter, dim / 2)) return;
    const float *from = rows->out + rows->head * dim;
    uint64_t at = to->token->place + rows->head * to->args.head;
    RF_NO_UNROLL
    for (uint32_t start = 0; start < dim; start += RF_WAVE) {
        uint32_t e = start + rf_lane();
        bool inside = e < dim;
        float x = 0.0f;
        if (inside)
            x = rows->matrix == PAIRS_KEYS ? kv_rotated(from, e, to->steps, to->token->position, to->args) : from[e];
        kv_store_q8_0((uint8_t *)cache, at + e, inside, x);
    }
}

RF_DEVICE void pairs_append(const struct pairs *op, uint32_t unit, const float *sums) {
    const struct pairs_append *to = &op->append;
    struct pairs_rows rows = pairs_at(op, unit);
    uint64_t step = rows.turned ? to->steps[rows.turn] : 0;
    float first = rf_wave_sum(sums[0]), second = rf_wave_sum(sums[1]);
    bool second_lane = rf_lane() == 1, mine = rf_lane() < 2;
    float x = second_lane ? second : first, other = second_lane ? first : second;
    uint32_t e = second_lane ? rows.second : rows.first, row = rows.head * to->args.dim + e;
    if (mine) rows.out[row] = x;
    struct rope_turn turn = rope_turn_of(step * (uint64_t)(int64_t)to->token->position, to->args.magnitude);
    if (rows.turned) x = rope_turned(x, other, turn.cosine, second_lane ? turn.sine : -turn.sine);
    if (rows.matrix == PAIRS_QUERIES) {
        if (mine && to->args.q_half) rf_store(RF_TYPE_F16, to->q_out, row, x);
        if (mine && !to->args.q_half) rf_store(RF_TYPE_F32, to->q_out, row, x);
        return;
    }
    if (to->token->place == PAIRS_NOWHERE) return;
    void *cache = rows.matrix == PAIRS_KEYS ? to->k_cache : to->v_cache;
    uint64_t at = to->token->place + rows.head * to->args.head + e;
    if (to->cache == KV_Q8_0)
        pairs_pack(to, &rows, cache);
    else if (mine && to->cache == KV_F16)
        rf_store(RF_TYPE_F16, cache, at, x);
    else if (mine)
        rf_store(RF_TYPE_F32, cache, at, x);
}

/* ---- all ---- */

RF_DEVICE void pairs_body(enum rf_weight w, struct pairs *op, uint8_t *shared) {
    uint32_t elements = pairs_slice_elements(w), most = elements / rf_weight_block(w) * rf_weight_block_bytes(w);
    uint32_t slots = RF_STREAM_SLOTS(most), slices = (op->k + elements - 1) / elements,
             last_bytes = op->row_bytes - (slices - 1) * most;
    uint32_t wave = rf_thread_x() / RF_WAVE, step = rf_grid_dim_x() * (rf_block_dim_x() / RF_WAVE);
    uint32_t units = pairs_count(op, 0) + pairs_count(op, 1) + pairs_count(op, 2);
    uint8_t *x = shared + RF_PAIRS_NOTES, *rings = x + slices * pairs_x_slice_bytes(w),
            *ring = rings + wave * slots * 2 * most;
    /* The waves of a block are far apart, so that the last rows go to all blocks alike. */
    uint32_t unit = wave * rf_grid_dim_x() + rf_block_x(), ahead_unit = unit, slice = 0, ahead_slice = 0;
    struct pairs_rows ahead = pairs_at(op, unit);
    if (!op->early) rf_grid_wait();
    struct rf_stream stream[2];
    uint32_t slot = 0, ahead_slot = 0;
    uint32_t mine = rf_weight_float(w) ? 0 : rf_weight_large(w) ? rf_lane() / 4 * 256 : rf_lane() * RF_DOTS_LANE;
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
    if (op->norm && rf_thread_x() * 8 < op->k) rf_grid_fetch(op->norm + rf_thread_x() * 8);
    rf_grid_wait();
    if (op->appends) pairs_find(&op->append, (struct pairs_token *)shared);
    if (op->norm) {
        pairs_fill_normed(w, op, x, (float *)(rings + (slots - 1) * 2 * most)); /* the slot that is still free */
    } else if (rf_weight_float(w) || !op->q8) {
        pairs_fill(w, op, x);
    } else {
        struct matvec plain = {0, 0, 0, op->x, 0, 0, {0, op->k, 1, op->k, 0, 1, 0}};
        dots_fill(w, &plain, true, x);
    }
    /* Computed again, so that it takes no registers from the code that fills x. */
    ahead = pairs_at(op, rf_opaque(ahead_unit));
    ahead.from[0] += ahead_slice * most;
    ahead.from[1] += ahead_slice * most;
    rf_barrier();
    RF_NO_UNROLL
    while (unit < units) {
        rf_streamed(slots - 2);
        rf_wave_barrier();
        PAIRS_BEGIN();
        uint32_t left = op->k - slice * elements;
        if (mine < left) pairs_slice(w, ring + slot * 2 * most, most, x + slice * pairs_x_slice_bytes(w), left, sums);
        if (++slice == slices) {
            if (op->appends)
                pairs_append(op, unit, sums);
            else
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

#endif
