/* The table of a device's kernels, and finding one.
 *
 * The table is made while the device is opened, from what the build says about each kernel; nothing but the caller's
 * own images is loaded then. A built-in kernel is loaded when somebody asks for it: see module.c.
 *
 * Invariant: kernels is sorted by name; names are unique. rf_kernel_find asserts it around what it finds. */
#include "gpu/device.h"
#include "gpu/device_impl.h"
#include "gpu/image.h"
#include "gpu/target.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

static int compare_kernels(const void *a, const void *b) {
    return strcmp(((const struct rf_kernel *)a)->name, ((const struct rf_kernel *)b)->name);
}

bool rf_is_listed(const char *list, const char *name) {
    if (!list) return true;
    while (*list) {
        char pattern[128];
        size_t length = strcspn(list, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, list);
        if (!fnmatch(pattern, name, 0)) return true;
        list += length + (list[length] == ',');
    }
    return false;
}

/* ---- making the table ---- */

/* Makes room for one more at the end of an array that holds `count`. */
static rf_status grow(void **array, size_t count, size_t item_bytes) {
    enum { STEP = 64 };
    if (count % STEP) return RF_OK;
    void *grown = realloc(*array, (count + STEP) * item_bytes);
    if (!grown) return rf_fail(RF_E_NO_MEMORY, "no host memory for the kernel table");
    *array = grown;
    return RF_OK;
}

static rf_status add_code(struct rf_device *device, const struct rf_image *image, const char *entry) {
    rf_status status = grow((void **)&device->codes, device->code_count, sizeof *device->codes);
    if (!status) device->codes[device->code_count++] = (struct rf_code){.image = image, .entry = entry};
    return status;
}

/* The kernel is of the newest code. */
static rf_status add_kernel(struct rf_device *device, const struct rf_builtin_kernel *row) {
    rf_status status = grow((void **)&device->kernels, device->kernel_count, sizeof *device->kernels);
    if (status) return status;
    struct rf_kernel *kernel = &device->kernels[device->kernel_count];
    memset(kernel, 0, sizeof *kernel);
    kernel->device = device;
    kernel->code = device->code_count - 1;
    snprintf(kernel->name, sizeof kernel->name, "%s", row->name);
    snprintf(kernel->module, sizeof kernel->module, "%s", row->module);
    kernel->arg_count = row->arg_count;
    kernel->early = row->early != 0;
    kernel->max_threads = row->max_threads;
    kernel->shared_bytes = row->shared_bytes;
    kernel->arg_bytes = calloc(row->arg_count ? row->arg_count : 1, sizeof *kernel->arg_bytes);
    if (!kernel->arg_bytes) return rf_fail(RF_E_NO_MEMORY, "no host memory for the kernel table");
    device->kernel_count++;
    if (row->arg_count) memcpy(kernel->arg_bytes, row->arg_bytes, row->arg_count * sizeof *kernel->arg_bytes);
    return RF_OK;
}

static rf_status list_builtin(struct rf_device *device, const char *list) {
    for (size_t i = 0; i < rf_image_count(); i++) {
        const struct rf_image *image = rf_image_at(i);
        if (!rf_is_listed(list, image->module) || rf_target_best_image(device->info.arch, image->module) != image)
            continue;
        bool one_by_one = !strncmp(image->target, "sm_", 3);
        rf_status status = one_by_one ? RF_OK : add_code(device, image, NULL);
        for (size_t k = 0; k < rf_builtin_kernel_count() && !status; k++) {
            const struct rf_builtin_kernel *row = rf_builtin_kernel_at(k);
            if (strcmp(row->module, image->module) || strcmp(row->target, image->target)) continue;
            if (one_by_one) status = add_code(device, image, row->name);
            if (!status) status = add_kernel(device, row);
        }
        if (status) return status;
        /* A code object takes its size on the device, and compiled PTX about half of the text's (8 of 16 MiB for all
         * kernels on an H200). */
        device->kernel_room_bytes += one_by_one ? image->bytes / 2 : image->bytes;
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
    rf_status status = add_code(device, NULL, NULL);
    for (size_t i = 0; i < best->kernel_count && !status; i++) status = add_kernel(device, &best->kernels[i]);
    if (!status) status = rf_code_load_image(device, &device->codes[device->code_count - 1], best->data, best->bytes);
    return status;
}

static bool first_of_group(const struct rf_device_params *params, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (!params->image_groups || params->image_groups[i] == params->image_groups[index]) return false;
    return true;
}

rf_status rf_kernels_open(struct rf_device *device, const struct rf_device_params *params) {
    if (params->image_count && !params->images) return rf_fail(RF_E_INVALID, "images is NULL, image_count is not 0");
    device->some_modules = params->modules != NULL;
    rf_status status = list_builtin(device, params->modules);
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

bool rf_kernels_include(const struct rf_device *device, const char *list) {
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        int rank;
        bool there = !rf_is_listed(list, row->module) || !rf_target_fits(device->info.arch, row->target, &rank);
        for (size_t k = 0; k < device->kernel_count && !there; k++)
            there = !strcmp(device->kernels[k].module, row->module);
        if (!there) return false;
    }
    return true;
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

static const struct rf_kernel *look_up(const struct rf_device *device, const char *name) {
    struct rf_kernel key;
    snprintf(key.name, sizeof key.name, "%s", name);
    if (!device->kernel_count) return NULL;
    return bsearch(&key, device->kernels, device->kernel_count, sizeof *device->kernels, compare_kernels);
}

static rf_status find(struct rf_device *device, const char *name, bool load, const struct rf_kernel **out) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    const struct rf_kernel *found = look_up(device, name);
    if (found) {
        rf_assert(found == device->kernels || compare_kernels(found - 1, found) < 0);
        rf_assert(found + 1 == device->kernels + device->kernel_count || compare_kernels(found, found + 1) < 0);
        if (load) status = rf_kernel_load(found);
        if (!status) *out = found;
    } else {
        status = not_found(device, name);
    }
    rf_leave(&entry);
    return status;
}

rf_status rf_kernel_find(struct rf_device *device, const char *name, const struct rf_kernel **out) {
    if (!name || !out) return rf_fail(RF_E_INVALID, "rf_kernel_find: name or out is NULL");
    return find(device, name, true, out);
}

rf_status rf_kernel_find_unloaded(struct rf_device *device, const char *name, const struct rf_kernel **out) {
    return find(device, name, false, out);
}

bool rf_kernel_is_there(struct rf_device *device, const char *name) {
    struct rf_entry entry;
    if (rf_enter(device, &entry)) return false;
    bool there = look_up(device, name) != NULL;
    rf_leave(&entry);
    return there;
}

rf_status rf_device_load_kernels(struct rf_device *device, const char *names) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    for (size_t i = 0; i < device->kernel_count; i++)
        if (rf_is_listed(names, device->kernels[i].name) || rf_is_listed(names, device->kernels[i].module))
            atomic_store(&device->codes[device->kernels[i].code].wanted, true);
    status = rf_kernels_load_wanted(device);
    rf_leave(&entry);
    return status;
}

rf_status rf_device_load_rehearsed(struct rf_device *device) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    status = rf_kernels_load_wanted(device);
    rf_leave(&entry);
    return status;
}

rf_status rf_kernel_get_info(const struct rf_kernel *kernel, struct rf_kernel_info *info) {
    if (!kernel) return rf_fail(RF_E_INVALID, "rf_kernel_get_info: kernel is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_kernel_info, info, "rf_kernel_get_info");
    if (status) return status;
    bool loaded = rf_kernel_is_loaded(kernel);
    struct rf_kernel_info filled = {.name = kernel->name,
                                    .module = kernel->module,
                                    .arg_count = kernel->arg_count,
                                    .arg_bytes = kernel->arg_bytes,
                                    .max_threads = loaded ? kernel->loaded.max_threads : kernel->max_threads,
                                    .shared_bytes = loaded ? kernel->loaded.shared_bytes : kernel->shared_bytes,
                                    .local_bytes = loaded ? kernel->loaded.local_bytes : 0,
                                    .registers = loaded ? kernel->loaded.registers : 0};
    RF_RESULT_WRITE(struct rf_kernel_info, info, &filled);
    return RF_OK;
}
