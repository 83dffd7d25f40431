/* The level without SIMD (see simd.h): one element at a time, for the plain architecture. */
#include "cpu/vec_scalar.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_dots.h"
#include "cpu/simd_widen.h"
#include "cpu/quant_scalar.h"
#include "cpu/simd_level.h"

const struct rf_simd rf_simd_scalar = SIMD_TABLE(RF_SIMD_SCALAR, "scalar", RF_ACT_PLAIN, RF_ACT_PLAIN, pack_rows);
