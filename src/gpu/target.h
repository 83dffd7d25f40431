/* Which kernel image runs on which GPU. Used by the probe and by the module loader. */
#ifndef RF_GPU_TARGET_H
#define RF_GPU_TARGET_H

#include "base/base.h"

/* Whether code for target ("gfx1100", "sm_80", "sm_90a") runs on a device of that
 * architecture. Of several that fit, the one with the highest rank is best. rank may be NULL
 * and is untouched on false. */
bool rf_target_fits(const char *device_arch, const char *target, int *rank);

/* Of a built-in module's images, the one that fits best; NULL: none does. */
struct rf_image;
const struct rf_image *rf_target_best_image(const char *device_arch, const char *module);

/* The best built-in target for a device, of those that modules have for all devices; what there is
 * for exactly this architecture ("sm_90a") comes beside it. RF_E_UNSUPPORTED where some built-in
 * module has no image that fits; rf_error_text() then lists the targets of this build. */
rf_status rf_target_best_builtin(const char *device_arch, char *target, size_t size);

#endif
