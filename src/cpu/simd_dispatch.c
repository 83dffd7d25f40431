/* Which SIMD level this machine has (see simd.h). Asks the processor each time; keeps nothing. */
#include "cpu/simd.h"

#if defined(__x86_64__)
#include <cpuid.h>

struct features {
    bool avx2, avx512;
};

static bool all(unsigned value, unsigned bits) {
    return (value & bits) == bits;
}

static struct features ask(void) {
    struct features features = {0};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
    if (!all(c, 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)) return features; /* FMA, OSXSAVE, AVX, F16C */
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* which registers the system keeps */
    if (!all(low, 0x6)) return features;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
    features.avx2 = all(b, 1u << 5);
    if (!features.avx2 || !all(low, 0xe6)) return features;
    bool wide = all(b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);                                /* F, DQ, BW, VL */
    bool more = all(c, 1u << 1 | 1u << 11);                                                       /* VBMI, VNNI */
    features.avx512 = wide && more && __get_cpuid_count(7, 1, &a, &b, &c, &d) && all(a, 1u << 5); /* BF16 */
    return features;
}
#endif

const struct rf_simd *rf_simd_table(enum rf_simd_level level) {
#if defined(__x86_64__)
    struct features features = ask();
    if (level == RF_SIMD_AUTO)
        level = features.avx512 ? RF_SIMD_AVX512 : features.avx2 ? RF_SIMD_AVX2 : RF_SIMD_SCALAR;
    if (level == RF_SIMD_AVX512) return features.avx512 ? &rf_simd_avx512 : NULL;
    if (level == RF_SIMD_AVX2) return features.avx2 ? &rf_simd_avx2 : NULL;
#else
    if (level == RF_SIMD_AUTO) level = RF_SIMD_SCALAR;
#endif
    return level == RF_SIMD_SCALAR ? &rf_simd_scalar : NULL;
}

const char *rf_simd_name(enum rf_simd_level level) {
    static const char *const names[RF_SIMD_LEVELS] = {"auto", "scalar", "avx2", "avx512"};
    return (unsigned)level < RF_SIMD_LEVELS ? names[level] : "?";
}
