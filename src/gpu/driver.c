/* Opening a vendor's driver library, filling the table, and what the codes mean.
 *
 * Invariants: a table is handed out complete or not at all (checked in rf_driver_load); a library once opened stays
 * open (a property of the source: nothing calls dlclose); nothing is called before rf_driver_init (the driver itself
 * returns an error for an earlier call, which the tests would see). This file must not know one vendor's names or
 * numbers: those are rows in driver_hip.c and driver_cuda.c. */
#include "gpu/driver_impl.h"
#include "base/descriptors.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const struct rf_driver_vendor *vendor_of(enum rf_driver_kind kind) {
    return kind == RF_DRIVER_CUDA ? &rf_driver_vendor_cuda : &rf_driver_vendor_hip;
}

/* ---- loading ---- */

static rf_status open_library(const char *path, struct rf_driver *driver);
static rf_status open_usual(const struct rf_driver_places *places, struct rf_driver *driver);

#if RF_CHECKS >= 2
static bool table_is_valid(const struct rf_driver *driver, const char **why) {
    const struct rf_driver_vendor *vendor = vendor_of(driver->kind);
    RF_INVALID_UNLESS(driver->library && driver->path[0] && !driver->version, "the library is not open and fresh");
    for (size_t i = 0; i < vendor->symbol_count; i++) {
        void *address;
        memcpy(&address, (const char *)driver + vendor->symbols[i].offset, sizeof address);
        RF_INVALID_UNLESS(address || !vendor->symbols[i].required, "a required entry is missing");
    }
    return true;
}
#endif

static rf_status load(enum rf_driver_kind kind, const char *path, const struct rf_driver_places *places,
                      struct rf_driver *driver) {
    struct rf_driver loaded = {.kind = kind};
    snprintf(loaded.label, sizeof loaded.label, "%s", vendor_of(kind)->label);
    rf_status status = path && path[0] ? open_library(path, &loaded) : open_usual(places, &loaded);
    if (status != RF_OK) return RF_E_NO_DRIVER;
    rf_assert_valid(table_is_valid, &loaded);
    *driver = loaded;
    return RF_OK;
}

/* A driver that starts may open files, which must not become the standard input or output of a program that closed
 * them, and may change the floating-point mode of the thread. */
struct guard {
    struct rf_held_fds held;
    struct rf_float_mode mode;
};

static void begin_foreign(struct guard *guard) {
    rf_hold_standard_fds(&guard->held);
    guard->mode = rf_float_mode_get();
}

static void end_foreign(const struct guard *guard) {
    rf_float_mode_set(guard->mode);
    rf_release_standard_fds(&guard->held);
}

static rf_status initialise(struct rf_driver *driver);

rf_status rf_driver_load(enum rf_driver_kind kind, const char *path, struct rf_driver *driver) {
    if (!driver || (kind != RF_DRIVER_HIP && kind != RF_DRIVER_CUDA))
        return rf_fail(RF_E_INVALID, "rf_driver_load: no such kind of driver, or nowhere to put it");
    struct rf_driver_places places = {
        .names = vendor_of(kind)->libraries, .rocm_path = secure_getenv("ROCM_PATH"), .opt = "/opt"};
    return load(kind, path, &places, driver);
}

rf_status rf_driver_load_from(enum rf_driver_kind kind, const struct rf_driver_places *places,
                              struct rf_driver *driver) {
    return load(kind, NULL, places, driver);
}

/* The first library that opens and is complete wins. If none does, the most useful reason is kept: that of a library
 * which exists and does not work is preferred to "not found". */
static rf_status open_usual(const struct rf_driver_places *places, struct rf_driver *driver) {
    const struct rf_driver_vendor *vendor = vendor_of(driver->kind);
    char folders[RF_FOLDERS_MAX][RF_FOLDER_BYTES], path[RF_FOLDER_BYTES + 64];
    size_t count = vendor->folders ? vendor->folders(places, folders, RF_FOLDERS_MAX) : 0;
    struct rf_saved_error broken;
    bool have_broken = false;
    for (size_t f = 0; f <= count; f++) { /* 0: the linker's folders */
        for (size_t i = 0; places->names[i]; i++) {
            snprintf(path, sizeof path, "%s%s%s", f ? folders[f - 1] : "", f ? "/" : "", places->names[i]);
            rf_status status = open_library(path, driver);
            if (status == RF_OK) return RF_OK;
            if (status == RF_E_NO_DRIVER && !have_broken) {
                rf_error_save(&broken);
                have_broken = true;
            }
        }
    }
    if (!have_broken)
        return rf_fail(RF_E_NO_DRIVER, "%s driver: %s; %s", vendor->label, vendor->searched, vendor->hint);
    rf_error_restore(&broken);
    return RF_E_NO_DRIVER;
}

static rf_status fill_table(struct rf_driver *driver);

/* RF_E_NOT_FOUND where there is no such file, or a bare name is in none of the linker's
 * folders; otherwise RF_OK or RF_E_NO_DRIVER. */
static rf_status open_library(const char *path, struct rf_driver *driver) {
    const char *label = vendor_of(driver->kind)->label;
    bool is_path = strchr(path, '/') != NULL;
    struct stat info;
    if (is_path) { /* opening a FIFO or a device could block or do something */
        if (stat(path, &info) != 0)
            return rf_fail(RF_E_NOT_FOUND, "%s driver: %s does not exist or cannot be reached", label, path);
        if (!S_ISREG(info.st_mode))
            return rf_fail(RF_E_NO_DRIVER, "%s driver: %s is %s, not a shared library", label, path,
                           S_ISDIR(info.st_mode) ? "a folder" : "a special file");
    }
    struct guard guard;
    begin_foreign(&guard);
    driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    end_foreign(&guard);
    if (!driver->library) {
        const char *why = dlerror();
        if (!why) why = "it cannot be opened";
        /* The linker's message names the library itself where that is missing, and another library where one that it
         * needs is missing. */
        size_t length = strlen(path);
        if (!is_path && strncmp(why, path, length) == 0 && strstr(why, "cannot open shared object file"))
            return rf_fail(RF_E_NOT_FOUND, "%s driver: %s not found", label, path);
        return rf_fail(RF_E_NO_DRIVER, "%s driver: %s cannot be loaded: %s", label, path, why);
    }
    struct link_map *map = NULL;
    snprintf(driver->path, sizeof driver->path, "%s", path);
    if (dlinfo(driver->library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) {
        char *real = realpath(map->l_name, NULL);
        const char *opened = real ? real : map->l_name;
        if (strlen(opened) < sizeof driver->path) snprintf(driver->path, sizeof driver->path, "%s", opened);
        free(real);
    }
    return fill_table(driver);
}

static rf_status fill_table(struct rf_driver *driver) {
    const struct rf_driver_vendor *vendor = vendor_of(driver->kind);
    for (size_t i = 0; i < vendor->symbol_count; i++) {
        const struct rf_driver_symbol *symbol = &vendor->symbols[i];
        void *address = dlsym(driver->library, symbol->name);
        if (!address && symbol->alternative) address = dlsym(driver->library, symbol->alternative);
        if (!address && symbol->required)
            return rf_fail(RF_E_NO_DRIVER, "%s driver: %s has no %s: too old, or no %s runtime", vendor->label,
                           driver->path, symbol->name, vendor->label);
        memcpy((char *)driver + symbol->offset, &address, sizeof address);
    }
    if (driver->kind == RF_DRIVER_HIP) rf_hip_find_properties(driver);
    driver->simulated = dlsym(driver->library, "rfsim_version") != NULL;
    return RF_OK;
}

/* ---- initialising ---- */

/* Gives "5.2" for HIP's 50221153, "13.0" for CUDA's 13000. */
static void name_version(enum rf_driver_kind kind, int version, char *text, size_t size) {
    int major = kind == RF_DRIVER_HIP ? version / 10000000 : version / 1000;
    int minor = kind == RF_DRIVER_HIP ? version / 100000 % 100 : version % 1000 / 10;
    snprintf(text, size, "%d.%d", major, minor);
}

rf_status rf_driver_init(struct rf_driver *driver) {
    struct guard guard;
    begin_foreign(&guard);
    rf_status status = initialise(driver);
    end_foreign(&guard);
    return status;
}

static rf_status initialise(struct rf_driver *driver) {
    const struct rf_driver_vendor *vendor = vendor_of(driver->kind);
    const char *simulated = driver->simulated ? " (simulated)" : "";
    int code = driver->init(0);
    if (code == RF_DRV_NO_DEVICE || code == RF_DRV_INVALID_DEVICE) /* HIP says the second for "none" */
        return rf_fail(RF_E_NO_DEVICE, "%s driver: %s finds no device (%s)", vendor->label, driver->path,
                       rf_driver_error_name(driver, code));
    if (code != RF_DRV_OK)
        return rf_fail(RF_E_DRIVER, "%s driver: %s cannot be initialised: %s (%d)", vendor->label, driver->path,
                       rf_driver_error_name(driver, code), code);
    int version = 0;
    code = driver->driver_version(&version);
    if (code != RF_DRV_OK || version <= 0)
        return rf_fail(RF_E_DRIVER, "%s driver: %s does not tell its version: %s (%d)", vendor->label, driver->path,
                       rf_driver_error_name(driver, code), code);
    driver->version = version;
    char found[16], oldest[16];
    name_version(driver->kind, version, found, sizeof found);
    snprintf(driver->label, sizeof driver->label, "%s %s%s", vendor->label, found, simulated);
    if (version >= vendor->oldest_version) return RF_OK;
    name_version(driver->kind, vendor->oldest_version, oldest, sizeof oldest);
    return rf_fail(RF_E_NO_DRIVER,
                   "%s driver: %s is %s %s, and %s %s is the oldest that can be used; install a newer %s or set "
                   "RF_%s_LIBRARY",
                   vendor->label, driver->path, vendor->label, found, vendor->label, oldest, vendor->label,
                   vendor->label);
}

/* ---- codes ---- */

const char *rf_driver_error_name(const struct rf_driver *driver, int code) {
    const char *name = NULL;
    if (driver && driver->kind == RF_DRIVER_CUDA && driver->v.cuda.error_name) {
        if (driver->v.cuda.error_name(code, &name) != RF_DRV_OK) name = NULL;
    } else if (driver && driver->kind == RF_DRIVER_HIP && driver->v.hip.error_name) {
        name = driver->v.hip.error_name(code);
    }
    return name && name[0] ? name : "unknown error";
}

/* Most of these are documented, in CUDA, to leave the process in an inconsistent state in which all further work
 * returns the same error until a new process starts; HIP uses the same numbers. Some codes sound fatal but are not
 * among them: 46 and 802 (the device or system is not available now, but nothing of ours is harmed), 201 (no context
 * is bound), 701 (a launch that never started), 304 and HIP's 1052 and 1053 (a system call failed; nothing is said
 * about the context). */
bool rf_driver_is_fatal(int code) {
    switch (code) {
    case RF_DRV_ILLEGAL_ADDRESS:
    case RF_DRV_LAUNCH_TIMEOUT: /* the watchdog ended the kernel and with it the context */
    case 714:                   /* stack error on the device */
    case 715:                   /* illegal instruction */
    case 716:                   /* misaligned address */
    case 717:                   /* invalid address space */
    case 718:                   /* invalid program counter */
    case RF_DRV_LAUNCH_FAILED:
    case 721: /* tensor memory leaked by a kernel */
    case 226: /* an error that the GPU contained to this process */
    case 911: /* an external device signalled an error; in HIP a code of texture calls, which nothing here makes */
    case 810: /* the MPS server ended this client */ return true;
    case 4:   /* the driver is shutting down: no further call works */
    case 709: /* the context was destroyed by a reset elsewhere in the process */
    case 710: /* assert on the device: the context must be destroyed, its memory is invalid */ return true;
    case 214: /* uncorrectable memory error: what the device holds cannot be trusted */
    case 220: /* the same on the link between GPUs */ return true;
    case RF_DRV_UNKNOWN: /* it says nothing, so nothing is assumed to work after it */ return true;
    default: return false;
    }
}

rf_status rf_driver_status(int code) {
    if (rf_driver_is_fatal(code)) return RF_E_DEVICE_LOST;
    switch (code) {
    case RF_DRV_OK: return RF_OK;
    case RF_DRV_OUT_OF_MEMORY: return RF_E_DEVICE_MEMORY;
    case RF_DRV_NO_DEVICE:
    case RF_DRV_INVALID_DEVICE: return RF_E_NO_DEVICE;
    case 36:               /* needs a newer driver */
    case RF_DRV_NO_BINARY: /* the image has no code for this device */
    case 215:              /* no such limit on this device */
    case 222:              /* PTX newer than the driver */
    case RF_DRV_NOT_SUPPORTED: return RF_E_UNSUPPORTED;
    default: return RF_E_DRIVER;
    }
}

/* ---- asking about a device ---- */

int rf_driver_attribute(const struct rf_driver *driver, int *value, enum rf_driver_attribute attribute, int device) {
    if ((unsigned)attribute >= RF_ATTR_COUNT) return RF_DRV_INVALID_VALUE;
    int number = vendor_of(driver->kind)->attributes[attribute], answer = 0;
    if (!number) return RF_DRV_NOT_SUPPORTED;
    int code = driver->kind == RF_DRIVER_CUDA ? driver->v.cuda.get_attribute(&answer, number, device)
                                              : driver->v.hip.get_attribute(&answer, number, device);
    if (code == RF_DRV_OK) *value = answer;
    return code;
}

int rf_driver_arch(const struct rf_driver *driver, int device, const char *sysfs, char *arch, size_t size) {
    return driver->kind == RF_DRIVER_CUDA ? rf_cuda_arch(driver, device, arch, size)
                                          : rf_hip_arch(driver, device, sysfs, arch, size);
}

int rf_driver_compute_units(const struct rf_driver *driver, int device, const char *sysfs, int *units) {
    return driver->kind == RF_DRIVER_CUDA ? rf_driver_attribute(driver, units, RF_ATTR_COMPUTE_UNITS, device)
                                          : rf_hip_compute_units(driver, device, sysfs, units);
}

/* ---- launching ---- */

_Static_assert(sizeof(struct rf_driver_attribute_value) == 72 && sizeof(struct rf_driver_launch) == 56,
               "the layout of cuda.h");

int rf_driver_start(const struct rf_driver *driver, void *function, const uint32_t grid[3], const uint32_t block[3],
                    uint32_t shared_bytes, void *stream, void **args, bool early) {
    enum { STREAM_SERIALIZATION = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_… */
    if (!early || !driver->launch_with)
        return driver->launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes, stream,
                              args, NULL);
    struct rf_driver_attribute_value attribute = {.id = STREAM_SERIALIZATION, .value = {.number = 1}};
    struct rf_driver_launch launch = {.grid = {grid[0], grid[1], grid[2]},
                                      .block = {block[0], block[1], block[2]},
                                      .shared_bytes = shared_bytes,
                                      .stream = stream,
                                      .attributes = &attribute,
                                      .attribute_count = 1};
    return driver->launch_with(&launch, function, args, NULL);
}

/* ---- contexts ---- */

/* HIP has no handle: the first call that needs a device's primary context makes it. hipMemGetInfo is a call that does
 * so and waits for nothing; hipFree(NULL), which programs often use for this, would wait for every stream. */
static int open_primary(const struct rf_driver *driver, int ordinal, struct rf_context *context) {
    struct rf_context opened = {0};
    int code = driver->device_get(&opened.device, ordinal);
    if (code != RF_DRV_OK) return code;
    if (driver->kind == RF_DRIVER_CUDA) {
        code = driver->v.cuda.context_retain(&opened.handle, opened.device);
        if (code != RF_DRV_OK) return code;
    } else {
        struct rf_entered entered;
        size_t free_bytes = 0, total_bytes = 0;
        opened.open = true;
        code = rf_context_enter(driver, &opened, &entered);
        if (code != RF_DRV_OK) return code;
        code = driver->mem_info(&free_bytes, &total_bytes);
        rf_context_leave(driver, &entered);
        if (code != RF_DRV_OK) return code;
    }
    opened.open = true;
    *context = opened;
    return RF_DRV_OK;
}

int rf_context_open(const struct rf_driver *driver, int ordinal, struct rf_context *context) {
    struct guard guard;
    begin_foreign(&guard);
    int code = open_primary(driver, ordinal, context);
    end_foreign(&guard);
    return code;
}

/* HIP keeps its primary context until the process ends: the only call that would end it is a reset, which would also
 * end everything else that the process has on the device. */
int rf_context_close(const struct rf_driver *driver, struct rf_context *context) {
    if (!context->open) return RF_DRV_OK;
    context->open = false;
    context->handle = NULL;
    if (driver->kind != RF_DRIVER_CUDA) return RF_DRV_OK;
    struct guard guard;
    begin_foreign(&guard);
    int code = driver->v.cuda.context_release(context->device);
    end_foreign(&guard);
    return code;
}

static int make_current(const struct rf_driver *driver, const struct rf_context *context,
                        struct rf_entered *entered) {
    int code;
    if (driver->kind == RF_DRIVER_CUDA) {
        code = driver->v.cuda.context_get(&entered->previous);
        if (code != RF_DRV_OK || entered->previous == context->handle) return code;
        code = driver->v.cuda.context_set(context->handle);
    } else {
        code = driver->v.hip.get_device(&entered->previous_device);
        if (code != RF_DRV_OK || entered->previous_device == context->device) return code;
        code = driver->v.hip.set_device(context->device);
    }
    entered->restore = code == RF_DRV_OK;
    return code;
}

int rf_context_enter(const struct rf_driver *driver, const struct rf_context *context, struct rf_entered *entered) {
    *entered = (struct rf_entered){.mode = rf_float_mode_get(), .entered = true};
    if (!context->open) return RF_DRV_NOT_INITIALIZED;
    int code = make_current(driver, context, entered);
    if (code != RF_DRV_OK) rf_float_mode_set(entered->mode); /* nobody leaves then */
    return code;
}

/* Nothing can be done about a failure here: the caller's own next driver call will show it. */
void rf_context_leave(const struct rf_driver *driver, const struct rf_entered *entered) {
    if (entered->restore && driver->kind == RF_DRIVER_CUDA)
        (void)driver->v.cuda.context_set(entered->previous);
    else if (entered->restore)
        (void)driver->v.hip.set_device(entered->previous_device);
    if (entered->entered) rf_float_mode_set(entered->mode);
}
