/* Cutting a PTX text into its kernels. */
#ifndef RF_GPU_PTX_H
#define RF_GPU_PTX_H

#include "base/base.h"

/* Makes a PTX text that contains one kernel of a larger text: all that stands before the first kernel (version,
 * target, shared variables), then that kernel. The result ends with a NUL, which *bytes counts; the caller frees it.
 * RF_E_NOT_FOUND: there is no such kernel. The build refuses texts that cannot be cut this way: see read_ptx in
 * tools/kernel_metadata.py. */
rf_status rf_ptx_cut(const char *text, const char *kernel, char **out, size_t *bytes);

#endif
