/* Random input: a small deterministic generator (splitmix64) that gives the same numbers for a seed on every machine;
 * the values that break kernels; and the seed of a run. */
#include "testing_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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
    /* The lowest 2^64 mod bound values would make some results more likely, so they are drawn again. */
    uint64_t uneven = (0 - bound) % bound, value;
    do value = rf_random_next(random);
    while (value < uneven);
    return value % bound;
}

/* The sum of twelve uniform numbers less six would be simpler but has no tails. The polar form of two uniform numbers
 * needs a logarithm, a root and a cosine, whose last bits depend on the machine. So the result is rounded to 32 bits
 * of fraction, far coarser than those differences. */
double rf_random_normal(struct rf_random *random) {
    double radius = 1.0 - rf_random_unit(random); /* (0, 1] */
    double angle = rf_random_unit(random);
    double value = sqrt(-2.0 * log(radius)) * cos(2.0 * 3.14159265358979323846 * angle);
    return nearbyint(value * 0x1p32) * 0x1p-32;
}

void rf_random_floats(struct rf_random *random, float *out, size_t count, float low, float high) {
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((double)low + ((double)high - (double)low) * rf_random_unit(random));
}

void rf_random_normals(struct rf_random *random, float *out, size_t count, float mean, float deviation) {
    for (size_t i = 0; i < count; i++) out[i] = (float)((double)mean + (double)deviation * rf_random_normal(random));
}

static const struct {
    unsigned kind;
    uint32_t bits;
} specials[] = {
    {RF_SPECIAL_ZERO, 0x00000000},      {RF_SPECIAL_ZERO, 0x80000000},      {RF_SPECIAL_SUBNORMAL, 0x00000001},
    {RF_SPECIAL_SUBNORMAL, 0x80000001}, {RF_SPECIAL_SUBNORMAL, 0x007fffff}, {RF_SPECIAL_SUBNORMAL, 0x807fffff},
    {RF_SPECIAL_EXTREME, 0x7f7fffff},   {RF_SPECIAL_EXTREME, 0xff7fffff},   {RF_SPECIAL_EXTREME, 0x00800000},
    {RF_SPECIAL_EXTREME, 0x80800000},   {RF_SPECIAL_INFINITY, 0x7f800000},  {RF_SPECIAL_INFINITY, 0xff800000},
    {RF_SPECIAL_NAN, 0x7fc00000},       {RF_SPECIAL_NAN, 0xffc00001},
};
#define SPECIAL_COUNT (sizeof specials / sizeof specials[0])

void rf_random_specials(struct rf_random *random, float *values, size_t count, unsigned kinds, size_t one_in) {
    uint32_t chosen[SPECIAL_COUNT];
    size_t choices = 0;
    for (size_t i = 0; i < SPECIAL_COUNT; i++)
        if (specials[i].kind & kinds) chosen[choices++] = specials[i].bits;
    if (!choices || !count) return;
    size_t places = one_in > 1 ? count / one_in : count;
    if (places == 0) places = 1;
    /* Goes through the list from a random start, so that even a few places get many kinds. */
    size_t next = (size_t)rf_random_below(random, choices);
    for (size_t i = 0; i < places; i++) {
        size_t at = (size_t)rf_random_below(random, count);
        memcpy(&values[at], &chosen[next], sizeof values[at]);
        next = (next + 1) % choices;
    }
}

/* ---- the seed of a run ---- */

static struct {
    bool set;
    uint64_t value;
} seed;

uint64_t rf_test_draw_seed(void) {
    uint32_t drawn; /* short enough to retype */
    if (getrandom(&drawn, sizeof drawn, 0) == (ssize_t)sizeof drawn) return drawn;
    return (uint64_t)rf_test_now_ns() & UINT32_MAX;
}

void rf_test_set_seed(uint64_t value) {
    seed.value = value;
    seed.set = true;
}

uint64_t rf_test_seed(void) {
    if (!seed.set) {
        const char *text = getenv("RF_TEST_SEED");
        rf_test_set_seed(text && *text ? strtoull(text, NULL, 0) : rf_test_draw_seed());
    }
    return seed.value;
}
