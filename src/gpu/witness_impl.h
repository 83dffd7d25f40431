/* What witness.c and witness_nvml.c share. */
#ifndef RF_GPU_WITNESS_IMPL_H
#define RF_GPU_WITNESS_IMPL_H

#include "gpu/budget.h"

/* NVML, opened at run time. Thread-safe, as NVML is. */
struct rf_nvml;
/* RF_E_UNSUPPORTED: there is no library, the file is not a library, or it does not know this GPU; the error text says
 * which. library NULL: the usual name. uuid or pci ("0000:03:00.0") may be empty. */
rf_status rf_nvml_open(const char *library, const char *uuid, const char *pci, struct rf_nvml **out);
void rf_nvml_close(struct rf_nvml **nvml);
rf_status rf_nvml_memory(struct rf_nvml *nvml, uint64_t *free_bytes, uint64_t *total_bytes);
rf_status rf_nvml_process(struct rf_nvml *nvml, uint64_t *bytes);
enum rf_tristate rf_nvml_display(struct rf_nvml *nvml);

/* What the DRM clients in a folder of fdinfo files hold on the GPU at a PCI address (empty: any); gtt: also count
 * system memory that they have mapped for the GPU. RF_E_UNSUPPORTED: there are no figures for this GPU. */
rf_status rf_witness_fdinfo(const char *folder, const char *pci, bool gtt, uint64_t *bytes);

#endif
