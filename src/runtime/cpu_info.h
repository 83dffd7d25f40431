/* The CPU's description: its SIMD level and how many threads of this process can run at once. */
#ifndef RF_RUNTIME_CPU_INFO_H
#define RF_RUNTIME_CPU_INFO_H

#include <rocmforge/base.h>

/* Kinds of vector code, each at least as wide as those before it. */
enum rf_simd_level {
    RF_SIMD_AUTO, /* the best that the processor has */
    RF_SIMD_SCALAR,
    RF_SIMD_AVX2,   /* with FMA and F16C */
    RF_SIMD_AVX512, /* F, BW, DQ, VL, VBMI, VNNI and BF16 */
    RF_SIMD_LEVELS
};

struct rf_cpu_info {
    enum rf_simd_level best; /* never AUTO */
    unsigned usable_cores;   /* when the runtime was made */
};
void rf_cpu_info_read(struct rf_cpu_info *info);

/* Asks the processor each time; keeps nothing. */
bool rf_simd_supported(enum rf_simd_level level);
const char *rf_simd_name(enum rf_simd_level level); /* "auto", "scalar", "avx2", "avx512"; "?" for anything else */
/* RF_E_INVALID: no level of that name; RF_E_UNSUPPORTED: the processor lacks it. NULL and "" are AUTO. */
rf_status rf_simd_find(const char *name, enum rf_simd_level *level);

#endif
