/* argmax_chunks_f32, then argmax_rows: the index of the largest value of each row, as sampling_args.h defines it.
 *
 * argmax_chunks_f32: block (c, r) takes chunk c of row r and leaves its best in best[r * best_row + c]. Grid: the
 * chunks of a row in x (at most RF_SAMPLING_CHUNKS_MAX), the rows in y; any number of y blocks is right.
 * argmax_rows: writes the best of each row's chunks, as an index, to out[r], or -1 if there is none or its key is
 * SAMPLING_KEY_WRONG; any grid in x is right. Blocks have RF_SAMPLING_THREADS threads. A row's values are dense; nothing overlaps. */
#include "kernels/sampling.h"

/* The best value that a thread has seen; it sees them in the order of their indices. */
struct argmax_best {
    float value;
    uint32_t index; /* ARGMAX_NONE before the first number */
};
#define ARGMAX_NONE (~0u)

/* Looks at `count` values from `index` on (a constant, 1 or 4). Mostly the first comparison is the only one. */
RF_DEVICE void argmax_see(struct argmax_best *best, uint32_t count, const float *values, uint32_t index) {
    float most = values[0];
    RF_UNROLL
    for (uint32_t k = 1; k < count; k++) most = rf_max(most, values[k]);
    if (most > best->value || (best->index == ARGMAX_NONE && most == most)) {
        uint32_t at = index;
        RF_UNROLL
        for (uint32_t k = count; k-- > 0;)
            if (values[k] == most) at = index + k;
        best->value = most;
        best->index = at;
    }
}

/* The best of a thread's share of the values from first to end. Four vectors are in flight if the address allows
 * vectors. */
RF_DEVICE struct argmax_best argmax_of(const float *from, uint32_t first, uint32_t end) {
    enum { VECTORS = 4, STEP = 4 * RF_SAMPLING_THREADS };
    struct argmax_best best = {-RF_INFINITY, ARGMAX_NONE};
    uint32_t whole = rf_aligned(from + first, 16) ? (end - first) / 4 * 4 : 0; /* elements that are in vectors */
    uint32_t at = 4 * rf_thread_x();
    float values[VECTORS][4];
    RF_NO_UNROLL
    for (; at + (VECTORS - 1) * STEP < whole; at += VECTORS * STEP) {
        RF_UNROLL
        for (uint32_t k = 0; k < VECTORS; k++)
            rf_load_many(RF_TYPE_F32, 4, from, (uint64_t)first + at + k * STEP, values[k]);
        RF_UNROLL
        for (uint32_t k = 0; k < VECTORS; k++) argmax_see(&best, 4, values[k], first + at + k * STEP);
    }
    RF_NO_UNROLL
    for (; at < whole; at += STEP) {
        rf_load_many(RF_TYPE_F32, 4, from, (uint64_t)first + at, values[0]);
        argmax_see(&best, 4, values[0], first + at);
    }
    _Pragma("unroll 4") for (uint32_t i = first + whole + rf_thread_x(); i < end; i += RF_SAMPLING_THREADS)
        argmax_see(&best, 1, from + i, i);
    return best;
}

RF_KERNEL(argmax_chunks_f32, RF_SAMPLING_THREADS, (uint64_t *, best), (const float *, values),
          (struct rf_argmax_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    uint64_t first = (uint64_t)rf_block_x() * args.chunk, end = rf_min_u64(first + args.chunk, args.columns);
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < args.rows; row += rf_grid_dim_y()) {
        struct argmax_best mine = argmax_of(values + row * args.row_stride, (uint32_t)first, (uint32_t)end);
        uint64_t packed = mine.index == ARGMAX_NONE ? 0 : sampling_pack(sampling_key(mine.value), mine.index);
        packed = sampling_block_max(packed, scratch);
        if (rf_thread_x() == 0) best[row * args.best_row + rf_block_x()] = packed;
    }
}

RF_KERNEL(argmax_rows, RF_SAMPLING_THREADS, (int32_t *, out), (const uint64_t *, best),
          (struct rf_argmax_args, args)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_NO_UNROLL
    for (uint64_t row = rf_block_x(); row < args.rows; row += rf_grid_dim_x()) {
        uint64_t mine = 0;
        RF_NO_UNROLL
        for (uint32_t i = rf_thread_x(); i < args.chunks; i += RF_SAMPLING_THREADS)
            mine = sampling_max(mine, best[row * args.best_row + i]);
        mine = sampling_block_max(mine, scratch);
        uint32_t key = (uint32_t)(mine >> 32);
        bool none = key == 0 || key == SAMPLING_KEY_WRONG;
        if (rf_thread_x() == 0) out[row] = none ? -1 : (int32_t)~(uint32_t)mine;
    }
}
