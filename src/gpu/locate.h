/* Finds the files that are installed with this code: the probe's helper and the simulated driver. */
#ifndef RF_GPU_LOCATE_H
#define RF_GPU_LOCATE_H

#include "base/base.h"

/* The folder of the shared object or executable that contains this code, links resolved.
 * RF_E_NOT_FOUND where the system does not tell. Thread-safe. */
rf_status rf_locate_own_folder(char *folder, size_t size);

/* The first regular file among own folder + '/' + candidate; candidates end with NULL.
 * RF_E_NOT_FOUND names the own folder and the first candidate. */
rf_status rf_locate_file(const char *const *candidates, char *path, size_t size);

/* librfsim-hip.so: in the same folder as this code, else where an installation has it. */
rf_status rf_locate_simulated_driver(char *path, size_t size);
/* rocmforge-probe, found in the same way. */
rf_status rf_locate_probe_helper(char *path, size_t size);

#endif
