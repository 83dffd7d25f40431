/* A runtime for a program of this folder. */
#ifndef RF_BENCH_START_H
#define RF_BENCH_START_H

#include <rocmforge/base.h>

/* These programs contain the library themselves and lie one folder below the files that the library looks for beside
 * it in a build folder: the probe's helper and the simulated driver. An option in the environment still wins. log is
 * as for rf_runtime_create. */
rf_status start_runtime(rf_log_fn log, struct rf_runtime **out);

#endif
