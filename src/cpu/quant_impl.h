/* What the two files of quantizers share: reading f16, and the search for scales. */
#ifndef RF_CPU_QUANT_IMPL_H
#define RF_CPU_QUANT_IMPL_H

#include <stdint.h>

#include "cpu/quant.h"

float rf_quant_f16(uint16_t bits);                   /* exact */
uint16_t rf_quant_to_f16(double value);              /* the nearest finite one */
float rf_quant_finite(float value);                  /* NaN becomes 0, an infinity the largest f32 */
int rf_quant_round(double value, int low, int high); /* the nearest in the range; NaN counts as 0 */

/* The scale with the least squared error of x[i] - scale * q[i], q in [low, high], among candidates around the one
 * that the largest magnitude suggests; 0 if all x are 0. */
double rf_quant_symmetric(const float *x, int count, int low, int high);

/* A fit of x[i] by scale * q[i] + minimum, q in [0, high]. With floor_at_zero the minimum is not above 0. */
struct rf_quant_affine {
    double scale, minimum;
};
struct rf_quant_affine rf_quant_affine_fit(const float *x, int count, int high, bool floor_at_zero);

/* The index of the entry of rf_iq4_values nearest to value. */
int rf_iq4_nearest(double value);
/* The scale with the least squared error of x[i] - scale * an entry of rf_iq4_values. */
double rf_iq4_fit(const float *x, int count);

#endif
