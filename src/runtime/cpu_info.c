/* See cpu_info.h. */
#include "runtime/cpu_info.h"

#include "base/base.h"

static const char *const names[RF_SIMD_LEVELS] = {"auto", "scalar", "avx2", "avx512"};

#if defined(__x86_64__)
#include <cpuid.h>

static bool all(unsigned value, unsigned bits) {
    return (value & bits) == bits;
}

static enum rf_simd_level best_level(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return RF_SIMD_SCALAR;
    if (!all(c, 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)) return RF_SIMD_SCALAR; /* FMA, OSXSAVE, AVX, F16C */
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* which registers the operating system saves */
    if (!all(low, 0x6) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, 1u << 5)) return RF_SIMD_SCALAR;
    bool wide = all(low, 0xe6) && all(b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);          /* F, DQ, BW, VL */
    bool more = all(c, 1u << 1 | 1u << 11);                                                   /* VBMI, VNNI */
    bool avx512 = wide && more && __get_cpuid_count(7, 1, &a, &b, &c, &d) && all(a, 1u << 5); /* BF16 */
    return avx512 ? RF_SIMD_AVX512 : RF_SIMD_AVX2;
}
#else
static enum rf_simd_level best_level(void) {
    return RF_SIMD_SCALAR;
}
#endif

void rf_cpu_info_read(struct rf_cpu_info *info) {
    *info = (struct rf_cpu_info){.best = best_level(), .usable_cores = rf_usable_cores()};
}

bool rf_simd_supported(enum rf_simd_level level) {
    return (unsigned)level < RF_SIMD_LEVELS && level <= best_level();
}

const char *rf_simd_name(enum rf_simd_level level) {
    return (unsigned)level < RF_SIMD_LEVELS ? names[level] : "?";
}

rf_status rf_simd_find(const char *name, enum rf_simd_level *level) {
    for (int i = 0; i < RF_SIMD_LEVELS; i++)
        if (!name || !*name || !strcmp(name, names[i])) {
            if (!rf_simd_supported((enum rf_simd_level)i))
                return rf_fail(RF_E_UNSUPPORTED, "this processor has not the SIMD level %s: choose auto", name);
            *level = (enum rf_simd_level)i;
            return RF_OK;
        }
    return rf_fail(RF_E_INVALID, "'%s' is no SIMD level; there are auto, scalar, avx2, avx512", name);
}
