/* A fault at every driver call of a scenario: each time the status is right, the ledger is empty or abandoned, and
 * nothing hangs or leaks. */
#ifndef COUNTDOWN_H
#define COUNTDOWN_H

#include "gpu_testing.h"

/* Opens a device, works with it, keeps every status and destroys everything that it made except the device; returns
 * the first failure. *right says whether the results were right, if nothing failed. */
typedef rf_status (*gpu_scenario)(struct gpu *gpu, bool *right);
void gpu_keep_status(rf_status *first, rf_status status);
/* Runs the scenario in one process for each of its driver calls; that call returns 'code'. */
void gpu_countdown(gpu_scenario scenario, int code);

#endif
