/* Sampling, defined to the bit: the same token everywhere for the same logits, settings, seed and counter.
 *
 * From logits to integers, after which no order of summation matters:
 *   1. A NaN is no candidate, nor is -inf, nor a token that is not allowed. The logit of each token that occurs in
 *      the window, n times, is divided by the penalty if it is above 0, and else multiplied by it: in f32, by the
 *      rounded inverse. Then n times the frequency penalty is subtracted, in one rounding, and then the presence
 *      penalty. The token's bias is added. -0 is 0.
 *   2. y = (largest logit - logit) * scale in units of 2^-24, cut to an integer and to 2^30 - 1. That is one
 *      subtraction and one product in f32; all is exact from there. scale is log2(e) / temperature. A logit equal to
 *      the largest has y = 0.
 *   3. Its weight is W(y) = 2^40 * 2^(-y / 2^24), by rf_sampling_weight: integer arithmetic with a relative error of
 *      5e-9, cut to an integer. A token less likely than the best by 2^-40 is therefore never drawn.
 * Then, on candidates ordered by (y, index):
 *   4. top_k keeps the first top_k of them.
 *   5. top_p keeps a candidate if the weights before it, of those kept so far, are less than top_p times their sum;
 *      the first always.
 *   6. min_p keeps those whose weight is at least min_p times the first one's.
 *   7. With temperature_last, steps 4 to 6 are at temperature 1, and y is divided by the temperature after them.
 *   8. One candidate is drawn with probability weight / sum. The point is the upper 64 bits of the product of the 64
 *      random bits of (seed, counter) and the sum. The token is the first candidate, by index, whose weight together
 *      with those before it exceeds the point.
 * With `strict`, a single NaN or +inf gives no token (-1), and so do logits of which none is finite; a logit of -inf
 * is no candidate for the best either. Logits that differ by less than 2^-24 of an octave are ties; the lower index
 * comes first. */
#ifndef RF_CPU_REF_SAMPLING_H
#define RF_CPU_REF_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/sampling_args.h"

/* A setting of zero turns its step off. */
struct rf_sampling {
    float temperature; /* 0: the best token (after the penalty), as argmax */
    uint32_t top_k;
    float top_p; /* 1 and above: off */
    float min_p;
    float penalty;             /* on tokens in the window; 1: off */
    float presence, frequency; /* the same; may be negative */
    bool temperature_last;     /* step 7 */
};

/* Puts the settings into args as the numbers of the definition and leaves sizes and strides alone. Returns NULL, or
 * why the settings make no sense; args is then unchanged. With temperature_last, a temperature below 2^-8 counts as
 * 2^-8. */
const char *rf_sampling_resolve(const struct rf_sampling *sampling, struct rf_sample_args *args);

/* The settings that args got, for the device to read. */
struct rf_sample_settings rf_sampling_settings(const struct rf_sample_args *args);

uint64_t rf_sampling_weight(uint32_t y);

/* Philox4x32-10: four words for a key and a counter. Words 0 and 1 of (seed, counter) are the 64 random bits. */
void rf_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
uint64_t rf_sampling_random(uint64_t seed, uint64_t counter);

void rf_ref_argmax(int32_t *out, const float *values, const struct rf_argmax_args *args);

/* What a sampler reads besides its arguments. window and biases may be NULL where there are none; random, if the
 * sampler is greedy; allowed, if all tokens are; settings, if they are those of the arguments. */
struct rf_sample_rows {
    const float *logits;
    const uint64_t *random;
    const int32_t *window;
    const struct rf_sample_bias *biases;
    const uint32_t *allowed;
    const struct rf_sample_settings *settings; /* [rows] */
};
/* Those of the rows from one on. */
struct rf_sample_rows rf_sample_rows_from(const struct rf_sample_rows *rows, size_t first,
                                          const struct rf_sample_args *args);
/* scratch has `columns` elements. */
void rf_ref_sample_rows(int32_t *out, const struct rf_sample_rows *rows, const struct rf_sample_args *args,
                        uint64_t *scratch);
/* The same without biases, mask and settings of each row. */
void rf_ref_sample(int32_t *out, const float *logits, const uint64_t *random, const int32_t *window,
                   const struct rf_sample_args *args, uint64_t *scratch);

/* Everything is changed in place but drawn and settings; random, and window with settings, may be NULL. */
struct rf_ref_advance {
    int32_t *tokens, *positions, *lengths;
    uint64_t *random;
    int32_t *window;
    int32_t *ring; /* [rows][slots][2] */
    const int32_t *drawn;
    const struct rf_sample_settings *settings;
};
void rf_ref_advance(const struct rf_ref_advance *on, const struct rf_advance_args *args);

#endif
