/* Integer atomics, for counting: sums of integers do not depend on their order, so a result is the same bits
 * whatever the timing. Relaxed: they order nothing; a barrier, a fence or the kernel's end does. */
#ifndef RF_KERNELS_ATOMIC_H
#define RF_KERNELS_ATOMIC_H

#include "kernels/kernel.h"

/* In shared or global memory, among all threads of the launch; gives the value before. */
RF_DEVICE uint32_t rf_atomic_add_u32(uint32_t *to, uint32_t value) {
#if defined(RF_NVIDIA)
    return (uint32_t)__nvvm_atom_add_gen_i((int *)to, (int)value);
#elif defined(RF_AMD)
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

/* In global memory. */
RF_DEVICE void rf_atomic_add_u64(uint64_t *to, uint64_t value) {
#if defined(RF_NVIDIA)
    (void)__nvvm_atom_add_gen_ll((long long *)to, (long long)value);
#elif defined(RF_AMD)
    (void)__hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    (void)__atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

/* For shared memory, where not every device adds 64 bits fast: a sum in two words, whose carries add up in
 * whatever order they come. */
RF_DEVICE void rf_atomic_add_pair(uint32_t *low, uint32_t *high, uint64_t value) {
    uint32_t part = (uint32_t)value, before = rf_atomic_add_u32(low, part);
    uint32_t more = (uint32_t)(value >> 32) + (before + part < before);
    if (more) rf_atomic_add_u32(high, more);
}

/* Orders a thread's memory for all threads of the launch: what it wrote before its fence is there for a thread that
 * has seen an atomic from behind that fence and has made a fence of its own since. */
RF_DEVICE void rf_device_fence(void) {
#if defined(RF_NVIDIA)
    __nvvm_membar_gl();
#elif defined(RF_AMD)
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
#else
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}

/* True in the last of `count` blocks that make this call: it sees what the others wrote before theirs. Nobody waits.
 * The counter, 0 before the launch, is 0 again after it. Every thread of the block makes the call; note is a word of
 * shared memory that nobody uses meanwhile. */
RF_DEVICE bool rf_last_block(uint32_t *counter, uint32_t count, uint32_t *note) {
    rf_device_fence(); /* by every thread: a wave of AMD waits for no stores but its own */
    rf_barrier();
    if (rf_thread_x() == 0) {
        bool last = rf_atomic_add_u32(counter, 1) + 1 == count;
        if (last) rf_atomic_add_u32(counter, 0u - count);
        note[0] = last;
    }
    rf_barrier();
    bool last = note[0] != 0;
    if (last) rf_device_fence();
    return last;
}

#endif
