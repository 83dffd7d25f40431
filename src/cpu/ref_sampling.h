/* Sampling, defined to the bit: the same token everywhere for the same logits, settings, seed and counter.
 *
 * From logits to integers, after which no order of summation matters:
 *   1. A NaN is no candidate, nor is -inf. Each token that occurs in the window has its logit divided by the
 *      penalty where it is above 0 and multiplied by it where not: f32, by the rounded inverse. -0 is 0.
 *   2. y = (largest logit - logit) * scale in units of 2^-24, cut to an integer and to 2^30 - 1: f32, one
 * subtraction, one product, exact from there. scale is log2(e) / temperature. A logit equal to the largest has y = 0.
 *   3. Its weight is W(y) = 2^40 * 2^(-y / 2^24), by rf_sampling_weight: integer arithmetic, relative error 5e-9,
 *      cut to an integer: what is less likely than the best by 2^-40 is never drawn.
 * Then, on candidates ordered by (y, index):
 *   4. top_k keeps the first so many.
 *   5. top_p keeps a candidate if the weights before it, of those kept so far, are less than top_p times their sum;
 *      the first always.
 *   6. min_p keeps those whose weight is at least min_p times the first one's.
 *   7. With temperature_last, 4 to 6 are done at temperature 1 and y is divided by the temperature now.
 *   8. One is drawn with probability weight / sum: the 64 random bits of (seed, counter) times the sum, the upper 64
 *      bits of the product; the first candidate, by index, whose weight and those before it exceed that.
 * Logits that differ by less than 2^-24 of an octave are ties; the lower index comes first. */
#ifndef RF_CPU_REF_SAMPLING_H
#define RF_CPU_REF_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero values turn a step off. */
struct rf_sampling {
    float temperature; /* 0: the best (with the penalty), as argmax */
    uint32_t top_k;
    float top_p; /* 1 and above: off */
    float min_p;
    float penalty; /* of tokens in the window; 1: off */
    bool temperature_last;
};

/* The settings as the numbers of the definition. */
struct rf_sampling_numbers {
    bool greedy;
    float scale;
    uint32_t top_k;        /* 0: all */
    uint32_t top_p;        /* of 2^32; 0: all */
    uint64_t least_weight; /* min_p of 2^40 */
    float penalty, inverse;
    uint32_t draw; /* what y is multiplied with for the draw, of 2^24 */
};
/* NULL, or why the settings make no sense. A temperature below 2^-8 counts as that with temperature_last. */
const char *rf_sampling_resolve(const struct rf_sampling *sampling, struct rf_sampling_numbers *numbers);

enum { RF_SAMPLING_Y_MAX = (1 << 30) - 1 };
uint64_t rf_sampling_weight(uint32_t y);

/* Philox4x32-10: four words for a key and a counter. Words 0 and 1 of (seed, counter) are the 64 random bits. */
void rf_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
uint64_t rf_sampling_random(uint64_t seed, uint64_t counter);

/* The index of the largest; of equals the first; a NaN never; -1 where all are NaN or there is none. */
int32_t rf_ref_argmax(const float *values, size_t count);

/* window: token ids, each counts once, those not below count are ignored. scratch: count elements. -1 where there is
 * no candidate. count up to 2^22. */
int32_t rf_ref_sample(const struct rf_sampling_numbers *numbers, const float *logits, size_t count,
                      const int32_t *window, size_t window_count, uint64_t seed, uint64_t counter, uint64_t *scratch);

#endif
