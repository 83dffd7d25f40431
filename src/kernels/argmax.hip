/* argmax_chunks_f32, then argmax_rows: the index of the largest value of each row; of equals the first; a NaN
 * never wins; -1 for a row of NaN alone.
 *
 * argmax_chunks_f32: block (c, r) takes chunk c of row r and leaves its best in best[r * best_row + c]. Grid: the
 * chunks of a row in x (at most 1024), the rows in y; any number of y blocks. argmax_rows: the best of each
 * row's chunks, as an index, to out[r]; any grid in x. Blocks of 256 threads. Rows dense, at a stride;
 * nothing overlaps. */
#include "kernels/sampling.h"

/* The best a thread has seen, in the order of the indices. */
struct argmax_best {
    float value;
    uint32_t index; /* NONE before the first number */
};
#define ARGMAX_NONE (~0u)

/* count values from index on (1 or 4, a constant); of most of them no comparison but the first is needed. */
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

/* Of values first to end of a row: four vectors in flight where the address allows vectors. */
RF_DEVICE struct argmax_best argmax_of(const float *from, uint32_t first, uint32_t end) {
    enum { VECTORS = 4, STEP = 4 * SAMPLING_THREADS };
    struct argmax_best best = {-RF_INFINITY, ARGMAX_NONE};
    uint32_t whole = rf_aligned(from + first, 16) ? (end - first) / 4 * 4 : 0; /* of vectors, in elements */
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
    _Pragma("unroll 4") for (uint32_t i = first + whole + rf_thread_x(); i < end; i += SAMPLING_THREADS)
        argmax_see(&best, 1, from + i, i);
    return best;
}

RF_KERNEL(argmax_chunks_f32, SAMPLING_THREADS, (uint64_t *, best), (const float *, values), (uint64_t, rows),
          (uint64_t, columns), (uint64_t, row_stride), (uint64_t, best_row), (uint32_t, chunk)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    uint64_t first = (uint64_t)rf_block_x() * chunk, end = rf_min_u64(first + chunk, columns);
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < rows; row += rf_grid_dim_y()) {
        struct argmax_best mine = argmax_of(values + row * row_stride, (uint32_t)first, (uint32_t)end);
        uint64_t packed = mine.index == ARGMAX_NONE ? 0 : sampling_pack(sampling_key(mine.value), mine.index);
        packed = sampling_block_max(packed, scratch);
        if (rf_thread_x() == 0) best[row * best_row + rf_block_x()] = packed;
    }
}

RF_KERNEL(argmax_rows, SAMPLING_THREADS, (int32_t *, out), (const uint64_t *, best), (uint64_t, rows),
          (uint64_t, best_row), (uint32_t, chunks)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    RF_NO_UNROLL
    for (uint64_t row = rf_block_x(); row < rows; row += rf_grid_dim_x()) {
        uint64_t mine = 0;
        RF_NO_UNROLL
        for (uint32_t i = rf_thread_x(); i < chunks; i += SAMPLING_THREADS)
            mine = sampling_max(mine, best[row * best_row + i]);
        mine = sampling_block_max(mine, scratch);
        if (rf_thread_x() == 0) out[row] = mine >> 32 ? (int32_t)~(uint32_t)mine : -1;
    }
}
