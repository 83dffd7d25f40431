/* The level of AVX-512 with VBMI, VNNI and BF16 (see simd.h). Compiled with those flags: nothing
 * here may run before simd_dispatch.c has asked the processor. */
#include "cpu/vec_avx512.h"
#include "cpu/vec_math.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_dots.h"
#include "cpu/simd_widen.h"
#include "cpu/quant_avx512.h"
#include "cpu/pack_avx512.h"
#include "cpu/simd_level.h"

const struct rf_simd rf_simd_avx512 = SIMD_TABLE(RF_SIMD_AVX512, "avx512", RF_ACT_SPLIT, RF_ACT_PAIRS, pack_panel);
