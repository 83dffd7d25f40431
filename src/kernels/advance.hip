/* advance: makes the inputs of the next token out of those of this one and the token that was drawn, and reports the
 * token in a ring, as struct rf_advance_args says.
 *
 * A recording that ends with it can be run again and again without the host: the ring may be host memory, which the
 * host reads behind it. A slot is written with one store. Any grid and block in x. The ring is aligned to 8 bytes;
 * nothing overlaps. random and window are NULL where they are left out, settings where there is no window. */
#include "kernels/kernel.h"

#include "kernels/sampling_args.h"

RF_KERNEL(advance, RF_SAMPLING_THREADS, (int32_t *, tokens), (int32_t *, positions), (int32_t *, lengths),
          (uint64_t *, random), (int32_t *, window), (uint64_t *, ring), (const int32_t *, drawn),
          (const struct rf_sample_settings *, settings), (struct rf_advance_args, args)) {
    RF_NO_UNROLL
    for (uint64_t row = rf_global_x(); row < args.rows; row += rf_global_count_x()) {
        uint32_t token = (uint32_t)drawn[row], length = (uint32_t)lengths[row], count = args.window_columns;
        ring[row * args.slots + length % args.slots] = length | (uint64_t)token << 32;
        if (window && settings[row].window_count < count) count = settings[row].window_count;
        if (window && count) window[row * args.window_stride + length % count] = (int32_t)token;
        tokens[row] = (int32_t)token;
        positions[row] = (int32_t)((uint32_t)positions[row] + 1);
        lengths[row] = (int32_t)(length + 1);
        if (random) random[2 * row + 1]++;
    }
}
