/* One table for two drivers: HIP's module API and CUDA's driver API have the same shape.
 *
 * Nothing above this file depends on the vendor. Invariants:
 *   - a library is opened with RTLD_NOW | RTLD_LOCAL and never closed: neither vendor's
 *     runtime survives that
 *   - no device-wide wait and no reset is looked up, by any name
 *   - every required entry is non-NULL after a successful load (driver.c checks it); optional ones are marked
 * The first two are properties of the source and of the built library: tools/check_layers.py reads both.
 * Entries return the vendor's raw code; the codes that matter are the same numbers in both. */
#ifndef RF_GPU_DRIVER_H
#define RF_GPU_DRIVER_H

#include "base/base.h"
#include "base/float_mode.h"
#include <rocmforge/gpu.h>

enum rf_driver_code {
    RF_DRV_OK = 0,
    RF_DRV_INVALID_VALUE = 1,
    RF_DRV_OUT_OF_MEMORY = 2,
    RF_DRV_NOT_INITIALIZED = 3,
    RF_DRV_NO_DEVICE = 100,
    RF_DRV_INVALID_DEVICE = 101,
    RF_DRV_INVALID_IMAGE = 200,
    RF_DRV_NO_BINARY = 209,
    RF_DRV_NOT_READY = 600,
    RF_DRV_ILLEGAL_ADDRESS = 700,
    RF_DRV_LAUNCH_OUT_OF_RESOURCES = 701,
    RF_DRV_LAUNCH_TIMEOUT = 702,
    RF_DRV_LAUNCH_FAILED = 719,
    RF_DRV_NOT_SUPPORTED = 801,
    RF_DRV_CAPTURE_INVALIDATED = 901, /* an earlier call spoilt the capture; the call that ends it returns this */
    RF_DRV_UNKNOWN = 999,
};

enum rf_driver_kind { RF_DRIVER_HIP, RF_DRIVER_CUDA };

enum rf_driver_attribute { /* the vendors' numbers differ: see the tables in driver_*.c */
                           RF_ATTR_MAX_THREADS_PER_BLOCK,
                           RF_ATTR_MAX_BLOCK_X,
                           RF_ATTR_MAX_BLOCK_Y,
                           RF_ATTR_MAX_BLOCK_Z,
                           RF_ATTR_MAX_GRID_X,
                           RF_ATTR_MAX_GRID_Y,
                           RF_ATTR_MAX_GRID_Z,
                           RF_ATTR_MAX_SHARED_PER_BLOCK,       /* without opting in */
                           RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN, /* CUDA's; HIP gives the plain figure */
                           RF_ATTR_WARP_SIZE,
                           RF_ATTR_COMPUTE_UNITS,          /* HIP's may count pairs: ask rf_driver_compute_units */
                           RF_ATTR_PHYSICAL_COMPUTE_UNITS, /* HIP's only */
                           RF_ATTR_INTEGRATED,
                           RF_ATTR_COMPUTE_MAJOR,
                           RF_ATTR_COMPUTE_MINOR,
                           RF_ATTR_COUNT
};

enum rf_function_attribute { /* the same numbers in both */
                             RF_FUNC_MAX_THREADS = 0,
                             RF_FUNC_SHARED_BYTES = 1,
                             RF_FUNC_LOCAL_BYTES = 3,
                             RF_FUNC_REGISTERS = 4,
};

#define RF_EVENT_DISABLE_TIMING 2u
#define RF_STREAM_NON_BLOCKING 1u

/* The relaxed mode of capture. In the global mode an allocation or event query of any thread would be refused and
 * would spoil the capture; in the thread-local mode those of the capturing thread would. This layer makes these calls
 * for other queues on any thread (the pool queries events, buffers are allocated), so neither mode can be used here.
 * The drivers forbid these calls because they are not recorded, and no caller expects an allocation to be recorded.
 */
#define RF_CAPTURE_RELAXED 2

typedef void *rf_dptr; /* hipDeviceptr_t; CUdeviceptr has the same size and registers */

/* What CUDA takes for a launch with attributes: CUlaunchConfig and CUlaunchAttribute of cuda.h, which are ABI. */
struct rf_driver_attribute_value {
    int32_t id, unused;
    union {
        int32_t number;
        char bytes[64];
    } value;
};
struct rf_driver_launch {
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
    struct rf_driver_attribute_value *attributes;
    uint32_t attribute_count;
};

struct rf_driver {
    enum rf_driver_kind kind;
    bool simulated; /* true if the library exports rfsim_version */
    char path[512]; /* the path that was opened */
    char label[64]; /* "HIP 6.2", "CUDA 13.0", "HIP 5.2 (simulated)" */
    int version;    /* as the driver says; valid after rf_driver_init */
    void *library;  /* dlopen handle, never closed */

    /* These have the same shape in both drivers; they are looked up as hipX / cuX. */
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int size, int device);
    int (*device_total)(size_t *bytes, int device);
    int (*device_uuid)(void *uuid16, int device);             /* optional */
    int (*device_pci)(char *text, int size, int device);      /* optional */
    int (*mem_info)(size_t *free_bytes, size_t *total_bytes); /* of the current context */
    int (*mem_alloc)(rf_dptr *pointer, size_t bytes);
    int (*mem_free)(rf_dptr pointer);                                /* waits for all streams */
    int (*host_alloc)(void **pointer, size_t bytes, unsigned flags); /* flags: 0 */
    int (*host_free)(void *pointer);                                 /* waits for all streams */
    int (*copy_to_device)(rf_dptr to, const void *from, size_t bytes, void *stream);
    int (*copy_from_device)(void *to, rf_dptr from, size_t bytes, void *stream);
    int (*copy_on_device)(rf_dptr to, rf_dptr from, size_t bytes, void *stream);
    int (*fill_bytes)(rf_dptr to, unsigned char value, size_t bytes, void *stream);
    int (*stream_priorities)(int *least, int *greatest); /* optional */
    int (*stream_create)(void **stream, unsigned flags, int priority);
    int (*stream_destroy)(void *stream);
    int (*stream_wait_event)(void *stream, void *event, unsigned flags);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_elapsed)(float *milliseconds, void *start, void *end);
    int (*module_load)(void **module, const void *image); /* waits for all streams */
    int (*module_unload)(void *module);                   /* waits for all streams */
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_attribute)(int *value, int attribute, void *function);
    int (*function_set_attribute)(void *function, int attribute, int value); /* optional; 8: dynamic shared */
    int (*function_load)(void *function); /* optional: loads code now; at first use it would wait */
    /* Optional, all or none (CUDA, since 12.0): a module in two steps. library_load compiles PTX; unlike module_load,
     * which compiles under a lock of the driver, it runs side by side on several threads and waits for no stream.
     * library_module loads what was compiled, and waits for all streams. */
    int (*library_load)(void **library, const void *image, int *options, void **values, unsigned count,
                        int *library_options, void **library_values, unsigned library_count);
    int (*library_module)(void **module, void *library);
    int (*library_unload)(void *library); /* the module too; waits for all streams */
    /* Capture and graphs are optional, but all or none of them are there: see rf_driver_has_graphs. */
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*is_capturing)(void *stream, int *status); /* optional by itself; 0: no */
    int (*graph_instantiate)(void **executable, void *graph, unsigned long long flags); /* flags: 0 */
    int (*graph_launch)(void *executable, void *stream);
    int (*graph_exec_destroy)(void *executable); /* not while it runs; may wait for all streams */
    int (*graph_destroy)(void *graph);
    int (*graph_upload)(void *executable, void *stream); /* optional by itself: allocates before the first run */
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared_bytes, void *stream, void **args, void **extra);
    /* Optional: writes a tensor map, 128 bytes at a multiple of 64. Plain arithmetic on the host. HIP has none; the
     * simulated driver has its own. type, swizzle, promotion: CUtensorMap…'s numbers in cuda.h, which are ABI. */
    int (*map_encode)(void *map, int type, uint32_t rank, rf_dptr base, const uint64_t *sizes,
                      const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                      int swizzle, int promotion, int outside);
    /* Optional: a launch with attributes. See rf_driver_launch. */
    int (*launch_with)(const struct rf_driver_launch *launch, void *function, void **args, void **extra);

    /* The vendor-specific entries; the functions below hide them. */
    union {
        struct {
            int (*set_device)(int device);
            int (*get_device)(int *device);
            int (*get_attribute)(int *value, int attribute, int device);
            int (*get_properties)(void *properties, int device); /* optional; see driver_hip.c */
            size_t arch_offset; /* of gcnArchName in the struct that get_properties fills; 0: unknown */
            const char *(*error_name)(int code);
        } hip;
        struct {
            int (*context_retain)(void **context, int device);
            int (*context_release)(int device); /* waits for all streams */
            int (*context_set)(void *context);
            int (*context_get)(void **context);
            int (*get_attribute)(int *value, int attribute, int device);
            int (*error_name)(int code, const char **name);
        } cuda;
    } v;
};

/* Opens the library and fills the table; initialises nothing. path NULL: the vendor's usual names. RF_E_NO_DRIVER: no
 * library was found, the file is not a library, or a required symbol is missing (the error text names it). */
rf_status rf_driver_load(enum rf_driver_kind kind, const char *path, struct rf_driver *driver);
/* cuInit/hipInit, version and label. RF_E_NO_DEVICE where the driver says 100 or 101; RF_E_NO_DRIVER where it is
 * older than the oldest that is accepted. */
rf_status rf_driver_init(struct rf_driver *driver);

/* Whether all entries for capture and graphs are there. */
static inline bool rf_driver_has_graphs(const struct rf_driver *driver) {
    return driver->capture_begin && driver->capture_end && driver->graph_instantiate && driver->graph_launch &&
           driver->graph_exec_destroy && driver->graph_destroy;
}

/* Whether the driver has the three library functions. */
static inline bool rf_driver_has_libraries(const struct rf_driver *driver) {
    return driver->library_load && driver->library_module && driver->library_unload;
}

/* The most threads of a whole grid in x, y or z. HIP counts them in 32 bits, CUDA counts blocks. */
static inline uint64_t rf_driver_grid_threads(const struct rf_driver *driver) {
    return driver->kind == RF_DRIVER_HIP ? UINT32_MAX : UINT64_MAX;
}

/* Launches a kernel. early: the kernel itself waits for the work before it on the stream, so a driver may start it
 * while that work ends; a driver that cannot do this starts it afterwards. */
int rf_driver_start(const struct rf_driver *driver, void *function, const uint32_t grid[3], const uint32_t block[3],
                    uint32_t shared_bytes, void *stream, void **args, bool early);

/* The name is always a static or driver-owned string, never NULL. */
const char *rf_driver_error_name(const struct rf_driver *driver, int code);
/* Whether the code means the context is gone for good. */
bool rf_driver_is_fatal(int code);
/* RF_OK, RF_E_DEVICE_MEMORY, RF_E_NO_DEVICE, RF_E_UNSUPPORTED, RF_E_DEVICE_LOST or RF_E_DRIVER. */
rf_status rf_driver_status(int code);

/* Returns a raw code; 801 where the vendor has no such attribute. */
int rf_driver_attribute(const struct rf_driver *driver, int *value, enum rf_driver_attribute attribute, int device);
/* Gives the architecture: "gfx1100" (up to the first ':') or "sm_90". Returns RF_DRV_OK or a raw code. sysfs: as for
 * rf_witness_create (budget.h). */
int rf_driver_arch(const struct rf_driver *driver, int device, const char *sysfs, char *arch, size_t size);

/* The number of compute units of a device. sysfs as above: NULL, or a tree in which the kernel's count is looked up.
 */
int rf_driver_compute_units(const struct rf_driver *driver, int device, const char *sysfs, int *units);

/* The primary context of a device. An object is not thread-safe; the device layer locks. */
struct rf_context {
    int device;
    void *handle; /* CUDA only */
    bool open;
};
int rf_context_open(const struct rf_driver *driver, int ordinal, struct rf_context *context);
int rf_context_close(const struct rf_driver *driver, struct rf_context *context); /* waits for all streams */

/* Makes the context current on this thread and remembers the previous one, which leave restores. It is cheap where
 * the context is current already. Leave also puts back the floating-point mode: every call of the driver by the
 * device layer is between these two, or in one of the functions of driver.c, which do it themselves. */
struct rf_entered {
    void *previous;            /* CUDA */
    int previous_device;       /* HIP */
    bool restore;              /* the context was changed */
    bool entered;              /* the mode is set */
    struct rf_float_mode mode; /* the caller's, which the driver may change */
};
int rf_context_enter(const struct rf_driver *driver, const struct rf_context *context, struct rf_entered *entered);
void rf_context_leave(const struct rf_driver *driver, const struct rf_entered *entered);

#endif
