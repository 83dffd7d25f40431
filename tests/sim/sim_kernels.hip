/* Kernels for the simulated driver's own tests and for the driver-conformance program, which has the first four once
 * more as PTX text. One-dimensional grids and blocks. None runs longer than it is told. */
#include "kernels/kernel.h"

RF_KERNEL(sim_spin, 1024, (uint64_t, ns)) {
    uint64_t start = rf_clock_ns();
    while (rf_clock_ns() - start < ns) rf_relax();
}

RF_KERNEL(sim_write, 1024, (uint32_t *, out), (uint32_t, value), (uint32_t, count)) {
    uint32_t i = (uint32_t)rf_global_x();
    if (i < count) out[i] = value + i;
}

RF_KERNEL(sim_increment, 1024, (uint32_t *, values), (uint32_t, count)) {
    uint32_t i = (uint32_t)rf_global_x();
    if (i < count) values[i] += 1;
}

/* Stores at any address whatever. */
RF_KERNEL(sim_illegal, 1024, (uint64_t, address)) {
    if (rf_global_x() == 0) *(volatile uint32_t *)(uintptr_t)address = 1;
}

/* out[i]: the global index of the lane at the other end of the wave; ballots[wave]: which lanes are odd in thirds. */
RF_KERNEL(sim_wave, 1024, (uint32_t *, out), (uint64_t *, ballots)) {
    uint32_t me = (uint32_t)rf_global_x();
    out[me] = rf_wave_get_u32(me, RF_WAVE - 1 - rf_lane());
    uint64_t odd = rf_wave_ballot(rf_lane() % 3 == 1);
    if (rf_lane() == 0) ballots[me / RF_WAVE] = odd;
}

/* out[block] = the sum of the block's global indices, by a tree over shared memory. Blocks are a power of two. */
RF_KERNEL(sim_block_sum, 1024, (uint32_t *, out)) {
    RF_SHARED(uint32_t, part, 1024);
    uint32_t me = rf_thread_x();
    part[me] = (uint32_t)rf_global_x();
    for (uint32_t half = rf_block_dim_x() / 2; half; half /= 2) {
        rf_barrier();
        if (me < half) part[me] += part[me + half];
    }
    if (me == 0) out[rf_block_x()] = part[0];
}

/* The same over the launch's own shared memory. */
RF_KERNEL(sim_dynamic_sum, 1024, (uint32_t *, out)) {
    RF_SHARED_DYNAMIC(uint32_t, part);
    uint32_t me = rf_thread_x();
    part[me] = (uint32_t)rf_global_x();
    for (uint32_t half = rf_block_dim_x() / 2; half; half /= 2) {
        rf_barrier();
        if (me < half) part[me] += part[me + half];
    }
    if (me == 0) out[rf_block_x()] = part[0];
}

/* Lanes from 'first' to before 'last' return early, the others meet in a barrier. */
RF_KERNEL(sim_leave, 1024, (uint32_t *, out), (uint32_t, first), (uint32_t, last)) {
    uint32_t me = rf_thread_x();
    if (me >= first && me < last) return;
    rf_barrier();
    out[me] = 1;
}

/* One lane asks its wave, the others wait for the block: they can never meet. */
RF_KERNEL(sim_mixed, 1024, (uint32_t *, out)) {
    if (rf_thread_x() == 0) {
        out[0] = rf_wave_get_u32(1, 0);
    } else {
        rf_barrier();
    }
}

/* out[i] = what the next thread of the block put into the box; right only with the barrier. Blocks of at most 256. */
RF_KERNEL(sim_neighbour, 256, (uint32_t *, out), (uint32_t, with_barrier)) {
    RF_SHARED(uint32_t, box, 256);
    uint32_t me = rf_thread_x(), next = (me + 1) % rf_block_dim_x();
    box[me] = me + 1;
    if (with_barrier) rf_barrier();
    out[rf_global_x()] = box[next];
}

/* What shared memory holds before anyone writes it: one word. */
RF_KERNEL(sim_shared_fresh, 1, (uint32_t *, out)) {
    RF_SHARED(uint32_t, box, 1);
    out[rf_block_x()] = box[0];
    box[0] = 7;
}
