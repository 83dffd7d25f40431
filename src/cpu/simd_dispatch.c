/* The table of a SIMD level, where this processor has it (see simd.h, runtime/cpu_info.h). */
#include "cpu/simd.h"

const struct rf_simd *rf_simd_table(enum rf_simd_level level) {
    struct rf_cpu_info info;
    rf_cpu_info_read(&info);
    if (level == RF_SIMD_AUTO) level = info.best;
    if (level > info.best) return NULL;
    switch (level) {
#if defined(__x86_64__)
    case RF_SIMD_AVX512: return &rf_simd_avx512;
    case RF_SIMD_AVX2: return &rf_simd_avx2;
#endif
    case RF_SIMD_SCALAR: return &rf_simd_scalar;
    default: return NULL;
    }
}
