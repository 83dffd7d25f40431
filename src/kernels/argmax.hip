/* argmax_chunks_f32, then argmax_rows: the index of the largest value of each row; of equals the first; a NaN
 * never wins; -1 for a row of NaN alone.
 *
 * argmax_chunks_f32: block (c, r) takes chunk c of row r and leaves its best in best[r * best_row + c]. Grid: the
 * chunks of a row in x (at most 1024), the rows in y; any number of y blocks. argmax_rows: the best of each
 * row's chunks, as an index, to out[r]; any grid in x. Blocks of 256 threads. Rows dense, at a stride;
 * nothing overlaps. */
#include "kernels/sampling.h"

RF_KERNEL(argmax_chunks_f32, SAMPLING_THREADS, (uint64_t *, best), (const float *, values), (uint64_t, rows),
          (uint64_t, columns), (uint64_t, row_stride), (uint64_t, best_row), (uint32_t, chunk)) {
    RF_SHARED(uint64_t, scratch, RF_BLOCK_SCRATCH);
    uint64_t first = (uint64_t)rf_block_x() * chunk, end = rf_min_u64(first + chunk, columns);
    RF_NO_UNROLL
    for (uint64_t row = rf_block_y(); row < rows; row += rf_grid_dim_y()) {
        const float *from = values + row * row_stride;
        uint64_t mine = 0;
        _Pragma("unroll 4")
        for (uint64_t i = first + rf_thread_x(); i < end; i += SAMPLING_THREADS)
            mine = sampling_max(mine, sampling_pack(sampling_key(from[i]), i));
        mine = sampling_block_max(mine, scratch);
        if (rf_thread_x() == 0) best[row * best_row + rf_block_x()] = mine;
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
        if (rf_thread_x() == 0) out[row] = mine >> 32 ? (int32_t) ~(uint32_t)mine : -1;
    }
}
