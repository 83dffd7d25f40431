/* A fault at every driver call of a scenario: the right status each time, a ledger that is empty or abandoned, no
 * hang, no leak. */
#ifndef COUNTDOWN_H
#define COUNTDOWN_H

#include "gpu_testing.h"

/* Opens a device, works with it, keeps every status and destroys all it made but the device; gives the first failure.
 * right: whether the results were, where none failed. */
typedef rf_status (*gpu_scenario)(struct gpu *gpu, bool *right);
void gpu_keep_status(rf_status *first, rf_status status);
/* Runs it in one process per driver call, which gives 'code' there. */
void gpu_countdown(gpu_scenario scenario, int code);

#endif
