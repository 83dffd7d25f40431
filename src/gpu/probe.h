/* The probe: finds out which GPUs exist, by a helper process that asks the driver and may crash.
 *
 * The helper (rocmforge-probe) loads the driver, asks, and writes a checked text format to a pipe of its own;
 * whatever the driver prints is discarded. The parent spawns it with posix_spawn, reads with a deadline, then kills
 * and reaps it without blocking and without touching SIGCHLD. Everything that the helper says is checked. */
#ifndef RF_GPU_PROBE_H
#define RF_GPU_PROBE_H

#include "base/base.h"
#include <rocmforge/gpu.h>

#define RF_MAX_DEVICES 64

struct rf_probe_result {
    char reason[1024]; /* why there is no usable device, or which were refused; may be empty */
    rf_status status;  /* RF_OK, RF_E_NO_DRIVER, RF_E_NO_DEVICE, RF_E_TIMEOUT, RF_E_DRIVER */
    int count;
    struct rf_device_info devices[RF_MAX_DEVICES];
    /* Which library to load in this process, and the driver's own ordinal, per device. */
    struct {
        int kind; /* enum rf_driver_kind */
        int ordinal;
        bool own; /* other processes that use this driver do not see this device but one of their own */
        char library[512];
    } source[RF_MAX_DEVICES];
};

/* Blocks up to the option RF_PROBE_TIMEOUT_MS. Never fails: the result says what happened. */
void rf_probe_run(const struct rf_options *options, struct rf_probe_result *result);

/* The helper's whole job, in its own process: writes the report to fd. */
int rf_probe_helper(int fd, const struct rf_options *options);

#endif
