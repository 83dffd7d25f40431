/* What the kernels of argmax and of the sampler share: keys that order floats, the largest value of a block, prefix
 * sums of a block. Blocks are one-dimensional, of RF_SAMPLING_THREADS threads. */
#ifndef RF_KERNELS_SAMPLING_H
#define RF_KERNELS_SAMPLING_H

#include "kernels/kernel.h"

#include "kernels/sampling_args.h"

/* A key is larger for a larger float, 0 for a NaN, and the same for 0 and -0. */
RF_DEVICE uint32_t sampling_key(float value) {
    uint32_t bits = rf_bits_of_f32(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0;
    if (bits == 0x80000000) bits = 0;
    return bits >> 31 ? ~bits : bits | 0x80000000;
}
RF_DEVICE float sampling_value(uint32_t key) {
    return rf_f32_of_bits(key >> 31 ? key & 0x7fffffff : ~key);
}
#define SAMPLING_KEY_LEAST 0x007fffffu /* the key of -inf */
#define SAMPLING_KEY_MOST 0xff800000u  /* the key of +inf */
#define SAMPLING_KEY_WRONG 0xffffffffu /* no key: a logit is not a number, where that is an error */

/* Key and index in one number. Of equal keys, the one with the lower index gives the larger number. */
RF_DEVICE uint64_t sampling_pack(uint32_t key, uint64_t index) {
    return (uint64_t)key << 32 | (uint32_t)~index;
}

RF_DEVICE uint64_t sampling_max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
RF_DEVICE uint64_t sampling_wave_xor(uint64_t value, uint32_t mask) {
    return rf_wave_xor_u32((uint32_t)value, mask) | (uint64_t)rf_wave_xor_u32((uint32_t)(value >> 32), mask) << 32;
}

/* Every thread gets the largest value of the block. scratch has RF_BLOCK_SCRATCH elements and is free again after the
 * call. */
RF_DEVICE uint64_t sampling_block_max(uint64_t value, uint64_t *scratch) {
    RF_UNROLL
    for (uint32_t mask = RF_WAVE / 2; mask; mask /= 2) value = sampling_max(value, sampling_wave_xor(value, mask));
    if (rf_lane() == 0) scratch[rf_thread_x() / RF_WAVE] = value;
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t wave = 0; wave < rf_block_dim_x() / RF_WAVE; wave++) value = sampling_max(value, scratch[wave]);
    rf_barrier();
    return value;
}

struct sampling_prefix {
    uint64_t before, all; /* the sums of the threads before this one, and of the whole block */
};
/* scratch: as for sampling_block_max. */
RF_DEVICE struct sampling_prefix sampling_block_prefix(uint64_t value, uint64_t *scratch) {
    uint64_t sum = value;
    RF_UNROLL
    for (uint32_t delta = 1; delta < RF_WAVE; delta *= 2) {
        uint32_t from = rf_lane() >= delta ? rf_lane() - delta : rf_lane();
        uint64_t other = rf_wave_get_u32((uint32_t)sum, from) | (uint64_t)rf_wave_get_u32((uint32_t)(sum >> 32), from)
                                                                    << 32;
        if (rf_lane() >= delta) sum += other;
    }
    if (rf_lane() == RF_WAVE - 1) scratch[rf_thread_x() / RF_WAVE] = sum;
    rf_barrier();
    struct sampling_prefix prefix = {sum - value, 0};
    RF_NO_UNROLL
    for (uint32_t wave = 0; wave < rf_block_dim_x() / RF_WAVE; wave++) {
        if (wave < rf_thread_x() / RF_WAVE) prefix.before += scratch[wave];
        prefix.all += scratch[wave];
    }
    rf_barrier();
    return prefix;
}

#endif
