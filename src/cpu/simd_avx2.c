/* The level of AVX2, FMA and F16C (see simd.h). Compiled with those flags: nothing here may run
 * before simd_dispatch.c has asked the processor. */
#include "cpu/vec_avx2.h"
#include "cpu/vec_math.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_dots.h"
#include "cpu/simd_widen.h"
#include "cpu/quant_avx2.h"
#include "cpu/simd_level.h"

const struct rf_simd rf_simd_avx2 = SIMD_TABLE(RF_SIMD_AVX2, "avx2", RF_ACT_SPLIT, RF_ACT_PAIRS, pack_rows);
