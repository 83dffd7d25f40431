/* A small deterministic generator (splitmix64): the same numbers for a seed on every machine. */
#include "testing_impl.h"

uint64_t rf_random_next(struct rf_random *random) {
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double rf_random_unit(struct rf_random *random) {
    return (double)(rf_random_next(random) >> 11) * 0x1p-53;
}

uint64_t rf_random_below(struct rf_random *random, uint64_t bound) {
    if (bound == 0) return 0;
    /* The lowest 2^64 mod bound values would make some results more likely: drawn again. */
    uint64_t uneven = (0 - bound) % bound, value;
    do value = rf_random_next(random);
    while (value < uneven);
    return value % bound;
}

void rf_random_floats(struct rf_random *random, float *out, size_t count, float low, float high) {
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((double)low + ((double)high - (double)low) * rf_random_unit(random));
}
