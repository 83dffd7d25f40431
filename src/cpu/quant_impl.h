/* What the two files of quantizers share: reading f16, and the search for scales. */
#ifndef RF_CPU_QUANT_IMPL_H
#define RF_CPU_QUANT_IMPL_H

#include <stdint.h>

#include "cpu/quant.h"

float rf_quant_f16(uint16_t bits);                   /* exact */
uint16_t rf_quant_to_f16(double value);              /* nearest finite */
float rf_quant_finite(float value);                  /* NaN: 0; infinities: the largest */
int rf_quant_round(double value, int low, int high); /* nearest within; NaN gives the nearest to 0 */

/* The scale for which x[i] ~ scale * q[i], q in [low, high], has the least squared error among
 * candidates around the largest magnitude; 0 for zeros. */
double rf_quant_symmetric(const float *x, int count, int low, int high);

/* x[i] ~ scale * q[i] + minimum, q in [0, high]. floor_at_zero: minimum is not above 0. */
struct rf_quant_affine {
    double scale, minimum;
};
struct rf_quant_affine rf_quant_affine_fit(const float *x, int count, int high, bool floor_at_zero);

/* The table's entry nearest to value. */
int rf_iq4_nearest(double value);
/* The scale for the table. */
double rf_iq4_fit(const float *x, int count);

#endif
