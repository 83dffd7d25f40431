/* What the layers above may use of the device layer beyond <rocmforge/gpu.h>. Small on purpose: whoever needs more
 * wants a public function. */
#ifndef RF_GPU_INTERNAL_H
#define RF_GPU_INTERNAL_H

#include "gpu/host_budget.h"
#include <rocmforge/gpu.h>

/* Of the device's runtime; lives as long as it. */
struct rf_host_budget *rf_device_host_budget(struct rf_device *device);
/* An option's value in the device's runtime, NULL for an unknown name. */
const char *rf_device_option(const struct rf_device *device, const char *name);
/* The allocation that RF_FAIL_ALLOC names fails, counted together with those on the device. */
rf_status rf_device_injected_failure(struct rf_device *device);
/* While it is on, launches are checked in every way and not made: what an op refuses shows, and nothing runs. */
void rf_queue_rehearse(struct rf_queue *queue, bool on);

#endif
