/* See target.h. AMD code objects run on exactly the architecture they were built for. PTX
 * runs on its architecture and every newer one, through the driver's compiler; PTX with an
 * architecture-specific suffix ('a') on exactly that one. A module that has only such images
 * is an addition: a device on which none of them runs does without its kernels. */
#include "gpu/target.h"
#include "gpu/image.h"

#include <stdio.h>

#include <rocmforge/gpu.h>

/* Splits "sm_90a" into 90 and 'a'; false for any other form of name. */
static bool parse_sm(const char *text, int *number, char *suffix) {
    if (strncmp(text, "sm_", 3) != 0) return false;
    const char *digit = text + 3;
    int value = 0, count = 0;
    for (; *digit >= '0' && *digit <= '9' && count < 4; digit++, count++) value = value * 10 + (*digit - '0');
    if (count < 2 || text[3] == '0') return false;
    *suffix = 0;
    if (*digit == 'a') *suffix = *digit++;
    *number = value;
    return *digit == 0;
}

bool rf_target_fits(const char *device_arch, const char *target, int *rank) {
    if (!device_arch || !target) return false;
    int device_number, target_number;
    char device_suffix, target_suffix;
    if (parse_sm(device_arch, &device_number, &device_suffix)) {
        if (device_suffix || !parse_sm(target, &target_number, &target_suffix)) return false;
        bool fits = target_suffix ? target_number == device_number : target_number <= device_number;
        if (fits && rank) *rank = target_number * 2 + (target_suffix ? 1 : 0);
        return fits;
    }
    if (strncmp(device_arch, "gfx", 3) != 0 || strcmp(device_arch, target) != 0) return false;
    if (rank) *rank = 1;
    return true;
}

/* True if an earlier image has the same module (by_module) or the same target. */
static bool seen_before(size_t index, bool by_module) {
    const struct rf_image *image = rf_image_at(index);
    for (size_t i = 0; i < index; i++) {
        const struct rf_image *earlier = rf_image_at(i);
        if (strcmp(by_module ? earlier->module : earlier->target, by_module ? image->module : image->target) == 0)
            return true;
    }
    return false;
}

static bool is_own(const char *target) {
    int number;
    char suffix;
    return parse_sm(target, &number, &suffix) && suffix;
}

/* True if no image of the module is for a target that newer devices run too, or for AMD. */
static bool is_addition(const char *module) {
    for (size_t i = 0; i < rf_image_count(); i++)
        if (!strcmp(rf_image_at(i)->module, module) && !is_own(rf_image_at(i)->target)) return false;
    return true;
}

const struct rf_image *rf_target_best_image(const char *device_arch, const char *module) {
    const struct rf_image *best = NULL;
    int rank, best_rank = -1;
    for (size_t i = 0; i < rf_image_count(); i++) {
        const struct rf_image *image = rf_image_at(i);
        if (strcmp(image->module, module) || !rf_target_fits(device_arch, image->target, &rank)) continue;
        if (rank <= best_rank) continue;
        best_rank = rank;
        best = image;
    }
    return best;
}

bool rf_builtin_kernel_fits(const struct rf_builtin_kernel *kernel, const char *arch) {
    const struct rf_image *image = kernel && arch ? rf_target_best_image(arch, kernel->module) : NULL;
    return image && !strcmp(image->target, kernel->target);
}

/* Whether a build for every known target has code that runs on the device. */
static bool can_be_built_for(const char *device_arch) {
    char target[16];
    for (const char *at = rf_image_known_targets; sscanf(at, " %15s", target) == 1; at += 1 + strlen(target))
        if (rf_target_fits(device_arch, target, NULL)) return true;
    return false;
}

static rf_status refuse(const char *device_arch) {
    char targets[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < rf_image_count(); i++) {
        if (seen_before(i, false)) continue;
        int added =
            snprintf(targets + length, sizeof targets - length, "%s%s", length ? " " : "", rf_image_at(i)->target);
        if (added < 0 || (size_t)added >= sizeof targets - length) break;
        length += (size_t)added;
    }
    return rf_fail(RF_E_UNSUPPORTED, "no kernels for %s in this build (it has: %s); %s", device_arch,
                   length ? targets : "none",
                   can_be_built_for(device_arch) ? "'make kernels-all' in the source tree adds them"
                                                 : "ROCmForge cannot be built for it yet");
}

rf_status rf_target_best_builtin(const char *device_arch, char *target, size_t size) {
    const char *best = NULL;
    int best_rank = -1;
    for (size_t i = 0; i < rf_image_count(); i++) {
        int rank = 0;
        const char *module = rf_image_at(i)->module;
        if (seen_before(i, true) || is_addition(module)) continue;
        const struct rf_image *image = rf_target_best_image(device_arch, module);
        if (!image) return refuse(device_arch);
        if (!rf_target_fits(device_arch, image->target, &rank) || rank <= best_rank) continue;
        best_rank = rank;
        best = image->target;
    }
    if (!best || strlen(best) >= size) return refuse(device_arch);
    snprintf(target, size, "%s", best);
    return RF_OK;
}
