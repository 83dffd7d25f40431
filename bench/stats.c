/* Medians and percentiles of a handful of samples. */
#include "bench.h"

#include <stdlib.h>

void samples_add(struct samples *samples, double value) {
    if (samples->count < SAMPLES_MAX) samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_at(const struct samples *samples, double fraction) {
    if (!samples->count) return NAN;
    struct samples sorted = *samples;
    qsort(sorted.values, sorted.count, sizeof sorted.values[0], compare);
    double place = fraction * (double)(sorted.count - 1);
    size_t low = (size_t)place, high = RF_MIN(low + 1, sorted.count - 1);
    return sorted.values[low] + (place - (double)low) * (sorted.values[high] - sorted.values[low]);
}

double samples_median(const struct samples *samples) {
    return samples_at(samples, 0.5);
}
