/* sample_*: draw a token from each row of logits, by temperature, top-k, top-p, min-p and a penalty, with a seed.
 * cpu/ref_sampling.h defines the token to the bit. Everything after one subtraction and one product is integer
 * arithmetic, so sums can be taken in any order and the token is the same on every device.
 *
 * The candidates of a row are never sorted. Those that are kept are the first ones in the order (y, index), so a cut
 * names them: all candidates with y below the cut are kept, and of those at the cut a given number, by index. y has
 * 30 bits. A cut is found by three histograms of 10 bits each, with a count and a weight in each bin: the first is of
 * all candidates, the second of those in the bin that the cut lies in, the third of those in the bin within it. The
 * top-k cut is where a count is reached, the top-p cut where a weight is reached.
 *
 * The launches come in this order, all with the same workspace (struct rf_sample_space). Grid: the row's chunks in x,
 * all rows in y. Blocks have RF_SAMPLING_THREADS threads.
 *   sample_keys    computes the logits' keys, with penalties, biases and the mask, and each chunk's best; empties the
 *                  histograms; leaves the row's settings to the other launches. sample_keys_by_row takes them from
 *                  memory
 *   sample_weigh   turns keys into y; fills the first histogram
 *   sample_refine  stages 1 and 2 if there is a top-k, 3 and 4 if there is a top-p
 *   sample_sums    sums what is kept of each chunk, and counts how many lie at the cut
 *   sample_draw    draws the token; one block for each row
 * Each launch finds the cut's next bin by itself from the histograms before it; block 0 leaves what it found in the
 * workspace for the launches after it. At temperature 0, sample_keys is followed by argmax_rows over the bests.
 *
 * A row has up to 2^22 logits. The workspace is aligned to 8 bytes and overlaps nothing. */
#include "kernels/atomic.h"
#include "kernels/sampling.h"

enum { COUNTS, LOWS, HIGHS, PARTS }; /* the parts of a histogram in shared memory */

RF_DEVICE struct rf_sample_space *sample_space_of(uint8_t *workspace, struct rf_sample_args args) {
    return (struct rf_sample_space *)(workspace + rf_block_y() * args.row_bytes);
}
/* Where the block's chunk of the row ends. */
RF_DEVICE uint32_t sample_chunk_end(uint32_t first, struct rf_sample_args args) {
    return args.columns - first < args.chunk ? args.columns : first + args.chunk;
}
RF_DEVICE uint32_t *sample_values(struct rf_sample_space *space) { return (uint32_t *)(space + 1); }

/* 2^40 * 2^(-y / 2^24). */
RF_DEVICE uint64_t sample_weight(uint32_t y) {
    uint32_t octaves = y >> 24;
    uint64_t fraction = (uint32_t)(y << 8), power = 0x38e48;
    power = 0x29b919 - (power * fraction >> 32);
    power = 0x139d6cc - (power * fraction >> 32);
    power = 0x71a4bb5 - (power * fraction >> 32);
    power = 0x1ebfaaa0 - (power * fraction >> 32);
    power = 0x58b90ae7 - (power * fraction >> 32);
    power = 0x80000000 - (power * fraction >> 32);
    return octaves > 40 ? 0 : (power << 9) >> octaves;
}

/* ---- keys ---- */

/* set: the settings of the block's row. window, biases and allowed may be NULL. scratch has RF_BLOCK_SCRATCH elements;
 * times and added have RF_SAMPLING_CHUNK_MAX: how often a token occurs in the window, and its bias. */
RF_DEVICE void sample_keys_by(struct rf_sample_settings set, uint8_t *workspace, const float *logits,
                              const int32_t *window, const struct rf_sample_bias *biases, const uint32_t *allowed,
                              struct rf_sample_args args, uint64_t *scratch, uint32_t *times, float *added) {
    struct rf_sample_space *space = sample_space_of(workspace, args);
    const float *from = logits + rf_block_y() * args.row_stride;
    uint32_t first = rf_block_x() * args.chunk, *keys = sample_values(space), me = rf_thread_x();
    uint32_t length = sample_chunk_end(first, args) - first;
    uint32_t *histograms = (uint32_t *)space->histogram;
    if (rf_block_x() == 0 && me == 0) space->settings = set;
    RF_NO_UNROLL
    for (uint32_t i = rf_block_x() * RF_SAMPLING_THREADS + me; i < sizeof space->histogram / 4;
         i += rf_grid_dim_x() * RF_SAMPLING_THREADS)
        histograms[i] = 0;
    if (set.window_count || set.bias_count) {
        RF_NO_UNROLL
        for (uint32_t i = me; i < length; i += RF_SAMPLING_THREADS) {
            times[i] = 0;
            added[i] = 0.0f;
        }
        rf_barrier();
        RF_NO_UNROLL
        for (uint32_t i = me; i < set.window_count; i += RF_SAMPLING_THREADS) {
            int32_t token = window[rf_block_y() * args.window_stride + i];
            uint32_t at = (uint32_t)token - first;
            if (token >= 0 && at < length) rf_atomic_add_u32(times + at, 1);
        }
        RF_NO_UNROLL
        for (uint32_t i = me; i < set.bias_count; i += RF_SAMPLING_THREADS) {
            struct rf_sample_bias bias = biases[rf_block_y() * args.bias_stride + i];
            uint32_t at = (uint32_t)bias.token - first;
            if (bias.token >= 0 && at < length) added[at] = bias.value;
        }
        rf_barrier();
    }
    uint64_t best = 0;
    _Pragma("unroll 4") for (uint32_t i = me; i < length; i += RF_SAMPLING_THREADS) {
        float logit = from[first + i];
        uint32_t plain = sampling_key(logit), key = plain;
        if (set.window_count && times[i]) {
            logit *= logit > 0.0f ? set.inverse : set.penalty;
            logit = rf_fma(-set.frequency, (float)times[i], logit) - set.presence;
            key = sampling_key(logit);
        }
        if (set.bias_count) key = sampling_key(logit + added[i]);
        if (allowed &&
            !(allowed[rf_block_y() * args.allowed_stride + (first + i) / 32] >> (first + i) % 32 & 1))
            key = 0;
        if (args.strict && (plain == 0 || plain == SAMPLING_KEY_MOST)) key = SAMPLING_KEY_WRONG;
        if (args.strict && plain == SAMPLING_KEY_LEAST) key = 0;
        keys[first + i] = key;
        best = sampling_max(best, sampling_pack(key, first + i));
    }
    best = sampling_block_max(best, scratch);
    if (me == 0) space->best[rf_block_x()] = best;
}

RF_KERNEL(sample_keys, RF_SAMPLING_THREADS, (uint8_t *, workspace), (const float *, logits),
          (const int32_t *, window), (const struct rf_sample_bias *, biases), (const uint32_t *, allowed),
          (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint32_t, times, RF_SAMPLING_CHUNK_MAX);
    RF_SHARED(float, added, RF_SAMPLING_CHUNK_MAX);
    struct rf_sample_settings set = {args.least_weight, args.window_count, args.bias_count, args.top_k,
                                     args.top_p,        args.draw,         args.scale,      args.penalty,
                                     args.inverse,      args.presence,     args.frequency};
    sample_keys_by(set, workspace, logits, window, biases, allowed, args, scratch, times, added);
}
/* The same with settings in memory; steps that are off in the arguments stay off. */
RF_KERNEL(sample_keys_by_row, RF_SAMPLING_THREADS, (uint8_t *, workspace), (const float *, logits),
          (const int32_t *, window), (const struct rf_sample_bias *, biases), (const uint32_t *, allowed),
          (const struct rf_sample_settings *, settings), (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint32_t, times, RF_SAMPLING_CHUNK_MAX);
    RF_SHARED(float, added, RF_SAMPLING_CHUNK_MAX);
    struct rf_sample_settings set = settings[rf_block_y()];
    if (set.window_count > args.window_count) set.window_count = args.window_count;
    if (set.bias_count > args.bias_count) set.bias_count = args.bias_count;
    if (!args.top_k) set.top_k = 0;
    if (!args.top_p) set.top_p = 0;
    sample_keys_by(set, workspace, logits, window, biases, allowed, args, scratch, times, added);
}

/* ---- histograms ---- */

/* bins: PARTS * RF_SAMPLING_BINS words in shared memory. */
RF_DEVICE void histogram_clear(uint32_t *bins) {
    RF_NO_UNROLL
    for (uint32_t i = rf_thread_x(); i < PARTS * RF_SAMPLING_BINS; i += RF_SAMPLING_THREADS) bins[i] = 0;
    rf_barrier();
}
RF_DEVICE void histogram_count(uint32_t *bins, uint32_t bin, uint32_t y) {
    rf_atomic_add_u32(bins + COUNTS * RF_SAMPLING_BINS + bin, 1);
    uint64_t weight = sample_weight(y);
    if (weight)
        rf_atomic_add_pair(bins + LOWS * RF_SAMPLING_BINS + bin, bins + HIGHS * RF_SAMPLING_BINS + bin, weight);
}
/* Adds the block's histogram to the row's. */
RF_DEVICE void histogram_flush(struct rf_sample_histogram *to, const uint32_t *bins) {
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t bin = rf_thread_x(); bin < RF_SAMPLING_BINS; bin += RF_SAMPLING_THREADS) {
        uint32_t count = bins[COUNTS * RF_SAMPLING_BINS + bin];
        uint64_t weight = bins[LOWS * RF_SAMPLING_BINS + bin] | (uint64_t)bins[HIGHS * RF_SAMPLING_BINS + bin] << 32;
        if (count) rf_atomic_add_u32(&to->count[bin], count);
        if (weight) rf_atomic_add_u64(&to->weight[bin], weight);
    }
}

struct sample_bin {
    uint32_t bin;
    uint64_t count, weight; /* before the bin */
};

/* The bin in which the running count (or weight) reaches target: the sum before it is less, the sum with it is not.
 * target is from 1 to the sum of all. Every thread gets the answer. scratch has RF_BLOCK_SCRATCH elements, found has
 * 3. A target of 0 asks for the sums of all, in bin RF_SAMPLING_BINS. */
RF_DEVICE struct sample_bin sample_find(const struct rf_sample_histogram *histogram, bool by_weight, uint64_t target,
                                        uint64_t *scratch, uint64_t *found) {
    enum { own = RF_SAMPLING_BINS / RF_SAMPLING_THREADS };
    uint64_t counts[own], weights[own], count = 0, weight = 0;
    uint32_t first = rf_thread_x() * own;
    RF_UNROLL
    for (uint32_t k = 0; k < own; k++) {
        counts[k] = histogram->count[first + k];
        weights[k] = histogram->weight[first + k];
        count += counts[k];
        weight += weights[k];
    }
    struct sampling_prefix by_count = sampling_block_prefix(count, scratch);
    struct sampling_prefix of_weight = sampling_block_prefix(weight, scratch);
    if (rf_thread_x() == 0) {
        found[0] = RF_SAMPLING_BINS;
        found[1] = by_count.all;
        found[2] = of_weight.all;
    }
    /* A target of more candidates than there are means all of them. */
    if (!by_weight && target > by_count.all) target = by_count.all;
    rf_barrier();
    count = by_count.before;
    weight = of_weight.before;
    RF_UNROLL
    for (uint32_t k = 0; k < own; k++) {
        uint64_t before = by_weight ? weight : count, with = before + (by_weight ? weights[k] : counts[k]);
        if (before < target && target <= with) { /* in one thread alone */
            found[0] = first + k;
            found[1] = count;
            found[2] = weight;
        }
        count += counts[k];
        weight += weights[k];
    }
    rf_barrier();
    struct sample_bin bin = {(uint32_t)found[0], found[1], found[2]};
    rf_barrier();
    return bin;
}

RF_KERNEL(sample_weigh, RF_SAMPLING_THREADS, (uint8_t *, workspace), (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint32_t, bins, PARTS *RF_SAMPLING_BINS);
    struct rf_sample_space *space = sample_space_of(workspace, args);
    uint32_t first = rf_block_x() * args.chunk, *values = sample_values(space), me = rf_thread_x();
    uint32_t end = sample_chunk_end(first, args);
    uint64_t best = 0;
    histogram_clear(bins);
    RF_NO_UNROLL
    for (uint32_t i = me; i < rf_grid_dim_x(); i += RF_SAMPLING_THREADS) best = sampling_max(best, space->best[i]);
    uint32_t most = (uint32_t)(sampling_block_max(best, scratch) >> 32);
    float top = sampling_value(most), scale = space->settings.scale;
    _Pragma("unroll 4") for (uint32_t i = first + me; i < end; i += RF_SAMPLING_THREADS) {
        uint32_t key = values[i], y = ~0u; /* ~0: no candidate */
        if (key > SAMPLING_KEY_LEAST && most != SAMPLING_KEY_WRONG) {
            float octaves = (top - sampling_value(key)) * scale;
            y = octaves < 64.0f ? (uint32_t)(octaves * 16777216.0f) : RF_SAMPLING_Y_MAX;
            if (key == most) y = 0;
            histogram_count(bins, y >> 20, y);
        }
        values[i] = y;
    }
    histogram_flush(&space->histogram[RF_SAMPLE_ALL], bins);
}

/* Block 0 keeps for later launches what all blocks found. */
RF_DEVICE void sample_keep(struct rf_sample_space *space, uint32_t stage, uint64_t prefix, uint64_t target,
                           uint64_t weight) {
    if (rf_block_x() == 0 && rf_thread_x() == 0) {
        space->state[stage][0] = prefix;
        space->state[stage][1] = target;
        space->state[stage][2] = weight;
    }
}

struct sample_cut {
    uint32_t y;      /* all candidates below it are kept */
    uint64_t at_cut; /* how many at it are kept */
    uint64_t weight; /* the sum of all that are kept */
};
/* The top-k cut, after stage 2. */
RF_DEVICE struct sample_cut sample_cut_k(struct rf_sample_space *space, uint64_t *scratch, uint64_t *found) {
    uint64_t prefix = space->state[2][0], target = space->state[2][1];
    struct sample_bin bin = sample_find(&space->histogram[RF_SAMPLE_TOP_K_3], false, target, scratch, found);
    struct sample_cut cut;
    cut.y = (uint32_t)(prefix << 10 | bin.bin);
    cut.at_cut = target - bin.count;
    cut.weight = space->state[2][2] + bin.weight + cut.at_cut * sample_weight(cut.y);
    return cut;
}
/* The top-p cut, after stage 4. Its weight is not needed. */
RF_DEVICE struct sample_cut sample_cut_p(struct rf_sample_space *space, uint64_t *scratch, uint64_t *found) {
    uint64_t prefix = space->state[4][0], target = space->state[4][1];
    struct sample_bin bin = sample_find(&space->histogram[RF_SAMPLE_TOP_P_3], true, target, scratch, found);
    struct sample_cut cut;
    cut.y = (uint32_t)(prefix << 10 | bin.bin);
    uint64_t each = sample_weight(cut.y), left = target - bin.weight;
    cut.at_cut = each ? (left + each - 1) / each : 0;
    cut.weight = 0;
    return cut;
}

/* Stages 1 and 2 fill the second and third histogram of top-k, stages 3 and 4 those of top-p. The latter need the
 * weight that top-k kept, or the weight of all if there is no top-k. What lies behind the top-k cut comes after it in
 * the order and never moves the top-p cut, so these histograms count it too. */
RF_KERNEL(sample_refine, RF_SAMPLING_THREADS, (uint8_t *, workspace), (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint64_t, found, 4);
    RF_SHARED(uint32_t, bins, PARTS *RF_SAMPLING_BINS);
    struct rf_sample_space *space = sample_space_of(workspace, args);
    uint32_t first = rf_block_x() * args.chunk, me = rf_thread_x();
    uint32_t end = sample_chunk_end(first, args);
    const uint32_t *values = sample_values(space);
    const struct rf_sample_histogram *start = &space->histogram[RF_SAMPLE_ALL];
    uint32_t stage = args.stage, top_k = space->settings.top_k, top_p = space->settings.top_p;
    bool by_weight = stage > 2;
    if (by_weight ? !top_p : !top_k) return; /* the row's settings have no such step */
    uint64_t target, prefix = 0, weight = 0;
    histogram_clear(bins);
    if (stage == 1) {
        target = top_k;
    } else if (stage == 3) {
        uint64_t all = top_k ? sample_cut_k(space, scratch, found).weight
                             : sample_find(start, true, 0, scratch, found).weight;
        target = (all >> 32) * top_p + ((all & 0xffffffff) * top_p >> 32);
        if (target == 0) target = 1;
    } else {
        prefix = space->state[stage - 1][0];
        target = space->state[stage - 1][1];
        weight = space->state[stage - 1][2];
        start = &space->histogram[stage - 1];
    }
    if (stage == 1) { /* more candidates than there are: all of them */
        uint64_t all = sample_find(start, false, 0, scratch, found).count;
        if (target > all) target = all;
    }
    struct sample_bin bin = sample_find(start, by_weight, target, scratch, found);
    prefix = prefix << 10 | bin.bin;
    sample_keep(space, stage, prefix, target - (by_weight ? bin.weight : bin.count), weight + bin.weight);
    uint32_t shift = stage == 1 || stage == 3 ? 20 : 10;
    _Pragma("unroll 4") for (uint32_t i = first + me; i < end; i += RF_SAMPLING_THREADS) {
        uint32_t y = values[i];
        if (y >> shift == prefix) histogram_count(bins, y >> (shift - 10) & (RF_SAMPLING_BINS - 1), y);
    }
    histogram_flush(&space->histogram[stage], bins);
}

/* ---- the draw ---- */

/* The weight of a candidate in the draw. */
RF_DEVICE uint64_t sample_drawn(uint32_t y, uint64_t least_weight, uint32_t draw) {
    if (y > RF_SAMPLING_Y_MAX || sample_weight(y) < least_weight) return 0;
    uint64_t later = (uint64_t)y * draw >> 24;
    return sample_weight(later < RF_SAMPLING_Y_MAX ? (uint32_t)later : RF_SAMPLING_Y_MAX);
}

RF_KERNEL(sample_sums, RF_SAMPLING_THREADS, (uint8_t *, workspace), (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint64_t, found, 4);
    struct rf_sample_space *space = sample_space_of(workspace, args);
    uint32_t first = rf_block_x() * args.chunk, me = rf_thread_x();
    uint32_t end = sample_chunk_end(first, args);
    const uint32_t *values = sample_values(space);
    struct sample_cut cut = {RF_SAMPLING_Y_MAX + 1u, 0, 0};
    uint64_t least_weight = space->settings.least_weight;
    uint32_t draw = space->settings.draw;
    if (space->settings.top_p) {
        cut = sample_cut_p(space, scratch, found);
    } else if (space->settings.top_k) {
        cut = sample_cut_k(space, scratch, found);
    }
    sample_keep(space, 5, cut.y, cut.at_cut, 0);
    uint64_t sum = 0, ties = 0;
    _Pragma("unroll 4") for (uint32_t i = first + me; i < end; i += RF_SAMPLING_THREADS) {
        uint32_t y = values[i];
        if (y < cut.y) sum += sample_drawn(y, least_weight, draw);
        ties += y == cut.y;
    }
    sum = sampling_block_prefix(sum, scratch).all;
    ties = sampling_block_prefix(ties, scratch).all;
    if (me == 0) {
        space->sum[rf_block_x()] = sum;
        space->at_cut[rf_block_x()] = (uint32_t)ties;
    }
}

/* Philox4x32-10: the first two of its four words. */
RF_DEVICE uint64_t sample_random(uint64_t seed, uint64_t counter) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    RF_UNROLL
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c0 | (uint64_t)c1 << 32;
}

/* How many of the ties are kept, if `kept` are kept in all and `before` come before these. */
RF_DEVICE uint64_t sample_ties_kept(uint64_t kept, uint64_t before, uint64_t ties) {
    return before >= kept ? 0 : rf_min_u64(kept - before, ties);
}

/* Grid: 1 in x. */
RF_KERNEL(sample_draw, RF_SAMPLING_THREADS, (int32_t *, out), (uint8_t *, workspace), (const uint64_t *, random),
          (struct rf_sample_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_SHARED(uint64_t, found, 4);
    struct rf_sample_space *space = sample_space_of(workspace, args);
    const uint32_t *values = sample_values(space);
    uint32_t row = rf_block_y(), me = rf_thread_x(), chunk = args.chunk, chunks = args.chunks;
    uint32_t cut = (uint32_t)space->state[5][0];
    uint64_t least_weight = space->settings.least_weight;
    uint32_t draw = space->settings.draw;
    uint64_t kept = space->state[5][1], each = sample_drawn(cut, least_weight, draw);
    /* A thread takes `own` chunks side by side, and later `own` elements of the chunk that the point lies in. */
    uint32_t own = (chunks + RF_SAMPLING_THREADS - 1) / RF_SAMPLING_THREADS;
    uint32_t from = me * own, to = from + own < chunks ? from + own : chunks;
    uint64_t ties = 0, sum = 0;
    RF_NO_UNROLL
    for (uint32_t i = from; i < to; i++) ties += space->at_cut[i];
    uint64_t ties_before = sampling_block_prefix(ties, scratch).before, running = ties_before;
    RF_NO_UNROLL
    for (uint32_t i = from; i < to; i++) {
        sum += space->sum[i] + sample_ties_kept(kept, running, space->at_cut[i]) * each;
        running += space->at_cut[i];
    }
    struct sampling_prefix prefix = sampling_block_prefix(sum, scratch);
    if (prefix.all == 0) {
        if (me == 0) out[row] = -1;
        return;
    }
    uint64_t bits = sample_random(random[2 * row], random[2 * row + 1]);
    uint64_t point = (uint64_t)((unsigned __int128)bits * prefix.all >> 64), before = prefix.before;
    running = ties_before;
    RF_NO_UNROLL
    for (uint32_t i = from; i < to; i++) {
        uint64_t of_chunk = space->sum[i] + sample_ties_kept(kept, running, space->at_cut[i]) * each;
        if (before <= point && point < before + of_chunk) { /* in one thread, once */
            found[0] = i;
            found[1] = point - before;
            found[2] = running;
        }
        before += of_chunk;
        running += space->at_cut[i];
    }
    rf_barrier();
    uint32_t first = (uint32_t)found[0] * chunk, end = sample_chunk_end(first, args);
    point = found[1];
    ties_before = found[2];
    own = chunk / RF_SAMPLING_THREADS;
    from = first + me * own;
    to = from + own < end ? from + own : end;
    ties = sum = 0;
    RF_NO_UNROLL
    for (uint32_t i = from; i < to; i++) ties += values[i] == cut;
    ties_before += sampling_block_prefix(ties, scratch).before;
    for (uint32_t pass = 0; pass < 2; pass++) { /* first the sum of the thread's elements, then where the point lies */
        uint64_t so_far = 0;
        running = ties_before;
        if (pass) so_far = sampling_block_prefix(sum, scratch).before;
        RF_NO_UNROLL
        for (uint32_t i = from; i < to; i++) {
            uint32_t y = values[i];
            uint64_t weight = y < cut || (y == cut && running < kept) ? sample_drawn(y, least_weight, draw) : 0;
            running += y == cut;
            if (pass && so_far <= point && point < so_far + weight) out[row] = (int32_t)i;
            so_far += weight;
        }
        if (!pass) sum = so_far;
    }
}
