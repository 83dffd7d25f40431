/* Kernels that behave and misbehave on purpose, for the tests of the device layer.
 *
 * All take any one-dimensional grid and block unless they say otherwise. None runs longer than it
 * is told. */
#include "kernels/kernel.h"

/* Every thread spins for so long. */
RF_KERNEL(spin_ns, 1024, (uint64_t, ns)) {
    uint64_t start = rf_clock_ns();
    while (rf_clock_ns() - start < ns) rf_relax();
}

/* Spins until *flag is not zero, at most max_ns; then one thread writes what it saw: the flag, or 0. */
RF_KERNEL(spin_forever_flag, 1024, (const uint32_t *, flag), (uint32_t *, outcome), (uint64_t, max_ns)) {
    uint64_t start = rf_clock_ns();
    uint32_t seen = __atomic_load_n(flag, __ATOMIC_RELAXED);
    while (!seen && rf_clock_ns() - start < max_ns) {
        rf_relax();
        seen = __atomic_load_n(flag, __ATOMIC_RELAXED);
    }
    if (rf_global_x() == 0) *outcome = seen;
}

/* Ends a spin_forever_flag on another stream, without a race. */
RF_KERNEL(set_flag, 1024, (uint32_t *, flag), (uint32_t, value)) {
    if (rf_global_x() == 0) __atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

/* out[i] is a mixture of seed and i: (seed + i) * 2654435761, its halves swapped by exclusive or. */
RF_KERNEL(write_pattern, 1024, (uint32_t *, out), (uint32_t, seed), (uint64_t, count)) {
    for (uint64_t i = rf_global_x(); i < count; i += rf_global_count_x()) {
        uint32_t x = (seed + (uint32_t)i) * 2654435761u;
        out[i] = x ^ x >> 16;
    }
}

RF_KERNEL(increment, 1024, (uint32_t *, values), (uint64_t, count)) {
    for (uint64_t i = rf_global_x(); i < count; i += rf_global_count_x()) values[i] += 1;
}

/* One store at an index that the caller chooses to lie outside. */
RF_KERNEL(out_of_bounds, 1024, (uint32_t *, base), (int64_t, index), (uint32_t, value)) {
    if (rf_global_x() == 0) base[index] = value;
}

/* Copies memory that nobody wrote: the poison shows in out. */
RF_KERNEL(read_uninitialised, 1024, (float *, out), (const float *, in), (uint64_t, count)) {
    for (uint64_t i = rf_global_x(); i < count; i += rf_global_count_x()) out[i] = in[i];
}

/* The same with shared memory: one float per thread of a block of at most 256. */
RF_KERNEL(read_uninitialised_shared, 256, (float *, out)) {
    RF_SHARED(float, never_written, 256);
    out[rf_global_x()] = never_written[rf_thread_x()];
}

/* Each thread writes its neighbour's place and reads its own, unordered: two such launches on two
 * queues, or two blocks of one, race. */
RF_KERNEL(racy_neighbour, 1024, (uint32_t *, data), (uint64_t, count)) {
    for (uint64_t i = rf_global_x(); i < count; i += rf_global_count_x()) data[(i + 1) % count] = data[i] + 1;
}

/* A race inside the block: the barrier between writing and reading the neighbour's value is missing
 * unless asked for. out[i] = the value that the next thread of the block wrote, i + 1. Blocks of at most 256. */
RF_KERNEL(missing_barrier, 256, (uint32_t *, out), (uint32_t, with_barrier)) {
    RF_SHARED(uint32_t, box, 256);
    uint32_t me = rf_thread_x(), next = (me + 1) % rf_block_dim_x();
    box[me] = me;
    if (with_barrier) rf_barrier();
    out[rf_global_x()] = box[next];
}

/* The bytes of a tensor map as the kernel got them, words of 8. */
struct map_words {
    uint64_t word[16];
} __attribute__((aligned(64)));
RF_KERNEL(read_map, 64, (uint64_t *, out), (struct map_words, map)) {
    if (rf_global_x()) return;
    RF_UNROLL
    for (uint32_t i = 0; i < 16; i++) out[i] = map.word[i];
}
