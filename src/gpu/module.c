/* Modules: the blobs that fit the device. They are loaded while the device is opened, because loading waits for every
 * stream. Every function is looked up then too and its attributes are read, because drivers load code lazily, and
 * that must not happen at the first use.
 *
 * Invariant: kernels is sorted by name; names are unique. rf_kernel_find asserts it around what it finds. */
#include "gpu/device_impl.h"
#include "gpu/image.h"
#include "gpu/target.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_DYNAMIC_SHARED = 8 }; /* function attribute, the same number in both drivers */

static int compare_kernels(const void *a, const void *b) {
    return strcmp(((const struct rf_kernel *)a)->name, ((const struct rf_kernel *)b)->name);
}

static rf_status add_kernel(struct rf_device *device, void *module, const struct rf_builtin_kernel *row) {
    const struct rf_driver *driver = device->driver;
    struct rf_kernel *grown = realloc(device->kernels, (device->kernel_count + 1) * sizeof *grown);
    if (!grown) return rf_fail(RF_E_NO_MEMORY, "no host memory for the kernel table");
    device->kernels = grown;
    struct rf_kernel *kernel = &grown[device->kernel_count];
    memset(kernel, 0, sizeof *kernel);
    kernel->device = device;
    snprintf(kernel->name, sizeof kernel->name, "%s", row->name);
    snprintf(kernel->module, sizeof kernel->module, "%s", row->module);
    kernel->arg_count = row->arg_count;
    kernel->early = row->early != 0;
    kernel->arg_bytes = calloc(row->arg_count ? row->arg_count : 1, sizeof *kernel->arg_bytes);
    if (!kernel->arg_bytes) return rf_fail(RF_E_NO_MEMORY, "no host memory for the kernel table");
    device->kernel_count++;
    if (row->arg_count) memcpy(kernel->arg_bytes, row->arg_bytes, row->arg_count * sizeof *kernel->arg_bytes);
    rf_status status = rf_device_result(device, driver->module_function(&kernel->function, module, row->name),
                                        "module_function", row->name);
    if (status) return rf_fail_within(status, "kernel '%s'", row->name);
    struct {
        int attribute;
        uint32_t *value;
    } wanted[] = {{RF_FUNC_MAX_THREADS, &kernel->max_threads},
                  {RF_FUNC_SHARED_BYTES, &kernel->shared_bytes},
                  {RF_FUNC_LOCAL_BYTES, &kernel->local_bytes},
                  {RF_FUNC_REGISTERS, &kernel->registers}};
    for (size_t i = 0; i < RF_COUNT(wanted); i++) {
        int value = 0;
        status = rf_device_result(device, driver->function_attribute(&value, wanted[i].attribute, kernel->function),
                                  "function_attribute", row->name);
        if (status) return status;
        *wanted[i].value = value > 0 ? (uint32_t)value : 0;
    }
    if (driver->function_load) {
        status = rf_device_result(device, driver->function_load(kernel->function), "function_load", row->name);
        if (status) return status;
    }
    if (row->max_threads && row->max_threads < kernel->max_threads) kernel->max_threads = row->max_threads;
    if (driver->function_set_attribute && device->limits.shared_optin > device->limits.shared) {
        int most = device->limits.shared_optin - (int)kernel->shared_bytes;
        status = rf_device_result(device, driver->function_set_attribute(kernel->function, MAX_DYNAMIC_SHARED, most),
                                  "function_set_attribute", row->name);
    }
    return status;
}

static rf_status load_image(struct rf_device *device, const void *data, const char *what, void **module) {
    void **grown = realloc(device->modules, (device->module_count + 1) * sizeof *grown);
    if (!grown) return rf_fail(RF_E_NO_MEMORY, "no host memory for the module table");
    device->modules = grown;
    rf_status status = rf_device_result(device, device->driver->module_load(module, data), "module_load", what);
    if (!status) device->modules[device->module_count++] = *module;
    return status;
}

/* Whether a name is in a list of patterns, separated by commas; NULL contains every name. */
static bool is_listed(const char *list, const char *name) {
    if (!list) return true;
    while (*list) {
        char pattern[64];
        size_t length = strcspn(list, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, list);
        if (!fnmatch(pattern, name, 0)) return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static rf_status load_builtin(struct rf_device *device, const char *list) {
    for (size_t i = 0; i < rf_image_count(); i++) {
        const struct rf_image *image = rf_image_at(i);
        if (!is_listed(list, image->module)) continue;
        int rank, best = -1;
        const char *target = NULL;
        /* Finds the best target of this module; its image is loaded when the outer loop reaches it. */
        for (size_t j = 0; j < rf_image_count(); j++) {
            const struct rf_image *other = rf_image_at(j);
            if (!strcmp(other->module, image->module) && rf_target_fits(device->info.arch, other->target, &rank) &&
                rank > best) {
                best = rank;
                target = other->target;
            }
        }
        if (!target || strcmp(target, image->target)) continue;
        const struct rf_builtin_image *unpacked = rf_builtin_image_at(i);
        if (!unpacked) return rf_fail(RF_E_NO_MEMORY, "no host memory for the kernels of module %s", image->module);
        void *module = NULL;
        rf_status status = load_image(device, unpacked->data, image->module, &module);
        for (size_t j = 0; j < rf_builtin_kernel_count() && !status; j++) {
            const struct rf_builtin_kernel *row = rf_builtin_kernel_at(j);
            if (!strcmp(row->module, image->module) && !strcmp(row->target, image->target))
                status = add_kernel(device, module, row);
        }
        if (status) return status;
    }
    return RF_OK;
}

static rf_status load_group(struct rf_device *device, const struct rf_device_params *params, int group) {
    const struct rf_kernel_image *best = NULL;
    int best_rank = -1, rank;
    for (size_t i = 0; i < params->image_count; i++) {
        if (params->image_groups && params->image_groups[i] != group) continue;
        const struct rf_kernel_image *image = &params->images[i];
        if (!image->target || !image->data || !image->bytes || (image->kernel_count && !image->kernels))
            return rf_fail(RF_E_INVALID, "kernel image %zu: target, data, bytes or kernels is missing", i);
        if (rf_target_fits(device->info.arch, image->target, &rank) && rank > best_rank) {
            best_rank = rank;
            best = image;
        }
    }
    if (!best)
        return rf_fail(RF_E_UNSUPPORTED, "none of the kernel images of group %d fits %s", group, device->info.arch);
    void *module = NULL;
    rf_status status = load_image(device, best->data, "a kernel image", &module);
    for (size_t i = 0; i < best->kernel_count && !status; i++) status = add_kernel(device, module, &best->kernels[i]);
    return status;
}

static bool first_of_group(const struct rf_device_params *params, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (!params->image_groups || params->image_groups[i] == params->image_groups[index]) return false;
    return true;
}

rf_status rf_modules_load(struct rf_device *device, const struct rf_device_params *params) {
    if (params->image_count && !params->images) return rf_fail(RF_E_INVALID, "images is NULL, image_count is not 0");
    device->some_modules = params->modules != NULL;
    rf_status status = load_builtin(device, params->modules);
    for (size_t i = 0; i < params->image_count && !status; i++)
        if (first_of_group(params, i))
            status = load_group(device, params, params->image_groups ? params->image_groups[i] : 0);
    if (status) return status;
    if (device->kernel_count) qsort(device->kernels, device->kernel_count, sizeof *device->kernels, compare_kernels);
    for (size_t i = 1; i < device->kernel_count; i++)
        if (!strcmp(device->kernels[i].name, device->kernels[i - 1].name))
            return rf_fail(RF_E_INVALID, "two kernels are called '%s'", device->kernels[i].name);
    return RF_OK;
}

bool rf_modules_include(const struct rf_device *device, const char *list) {
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        int rank;
        bool loaded = !is_listed(list, row->module) || !rf_target_fits(device->info.arch, row->target, &rank);
        for (size_t k = 0; k < device->kernel_count && !loaded; k++)
            loaded = !strcmp(device->kernels[k].module, row->module);
        if (!loaded) return false;
    }
    return true;
}

void rf_modules_unload(struct rf_device *device) {
    for (size_t i = device->module_count; i && !rf_device_is_lost(device); i--)
        rf_device_result(device, device->driver->module_unload(device->modules[i - 1]), "module_unload", NULL);
    for (size_t i = 0; i < device->kernel_count; i++) free(device->kernels[i].arg_bytes);
    free(device->modules);
    free(device->kernels);
    device->modules = NULL;
    device->kernels = NULL;
    device->module_count = device->kernel_count = 0;
}

/* ---- finding ---- */

/* How many edits turn one word into the other; for "did you mean". */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 64 };
    size_t row[LONGEST + 1], length_a = strnlen(a, LONGEST), length_b = strnlen(b, LONGEST);
    for (size_t j = 0; j <= length_b; j++) row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t above = row[j];
            size_t best = RF_MIN(above, row[j - 1]) + 1;
            row[j] = RF_MIN(best, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[length_b];
}

static rf_status not_found(const struct rf_device *device, const char *name) {
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        int rank;
        if (!strcmp(row->name, name) && rf_target_fits(device->info.arch, row->target, &rank))
            return rf_fail(RF_E_NOT_FOUND,
                           "kernel '%s' is of module '%s', which this device was opened without: name it in "
                           "rf_device_params.modules",
                           name, row->module);
    }
    const char *closest = "none";
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < device->kernel_count; i++) {
        size_t edits = distance(name, device->kernels[i].name);
        if (edits < least) {
            least = edits;
            closest = device->kernels[i].name;
        }
    }
    return rf_fail(RF_E_NOT_FOUND, "no kernel '%s' on this device; the closest is '%s'", name, closest);
}

rf_status rf_kernel_find(struct rf_device *device, const char *name, const struct rf_kernel **out) {
    struct rf_entry entry;
    if (!name || !out) return rf_fail(RF_E_INVALID, "rf_kernel_find: name or out is NULL");
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    struct rf_kernel key;
    snprintf(key.name, sizeof key.name, "%s", name);
    const struct rf_kernel *found = device->kernel_count ? bsearch(&key, device->kernels, device->kernel_count,
                                                                   sizeof *device->kernels, compare_kernels)
                                                         : NULL;
    if (found) {
        rf_assert(found == device->kernels || compare_kernels(found - 1, found) < 0);
        rf_assert(found + 1 == device->kernels + device->kernel_count || compare_kernels(found, found + 1) < 0);
        *out = found;
    } else {
        status = not_found(device, name);
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_kernel_get_info(const struct rf_kernel *kernel, struct rf_kernel_info *info) {
    if (!kernel) return rf_fail(RF_E_INVALID, "rf_kernel_get_info: kernel is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_kernel_info, info, "rf_kernel_get_info");
    if (status) return status;
    struct rf_kernel_info filled = {.name = kernel->name,
                                    .module = kernel->module,
                                    .arg_count = kernel->arg_count,
                                    .arg_bytes = kernel->arg_bytes,
                                    .max_threads = kernel->max_threads,
                                    .shared_bytes = kernel->shared_bytes,
                                    .local_bytes = kernel->local_bytes,
                                    .registers = kernel->registers};
    RF_RESULT_WRITE(struct rf_kernel_info, info, &filled);
    return RF_OK;
}
