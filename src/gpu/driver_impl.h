/* What driver.c, driver_hip.c and driver_cuda.c share: a vendor's row table. */
#ifndef RF_GPU_DRIVER_IMPL_H
#define RF_GPU_DRIVER_IMPL_H

#include "gpu/driver.h"

/* One entry point of struct rf_driver. */
struct rf_driver_symbol {
    const char *name;
    const char *alternative; /* looked up where name is missing; or NULL */
    size_t offset;           /* of the function pointer in struct rf_driver */
    bool required;
};

/* Where a library is looked for if its path is not given. A test gives places of its own. */
struct rf_driver_places {
    const char *const *names; /* for the dynamic linker; ended by NULL */
    const char *rocm_path;    /* ROCm's folder, as $ROCM_PATH gives it; NULL: not given */
    const char *opt;          /* "/opt" */
};
enum { RF_FOLDER_BYTES = 512, RF_FOLDERS_MAX = 32 };

struct rf_driver_vendor {
    const char *label;
    const char *const *libraries; /* names, tried in this order; ended by NULL */
    /* The folders in which these names are tried after the linker's, in this order. Returns how many; NULL: none. */
    size_t (*folders)(const struct rf_driver_places *places, char (*folders)[RF_FOLDER_BYTES], size_t room);
    const char *searched; /* says that nothing was found, and where */
    const struct rf_driver_symbol *symbols;
    size_t symbol_count;
    const int *attributes; /* the vendor's number per enum rf_driver_attribute; 0: it has no such attribute */
    int oldest_version;    /* the oldest that is accepted, as the driver numbers it; 0: any */
    const char *hint;      /* what to do where no library is found */
};

extern const struct rf_driver_vendor rf_driver_vendor_hip;
extern const struct rf_driver_vendor rf_driver_vendor_cuda;

#define RF_SYMBOL(name, alternative, field, required) {name, alternative, offsetof(struct rf_driver, field), required}

/* As rf_driver_load without a path, but the library is looked for in these places. */
rf_status rf_driver_load_from(enum rf_driver_kind kind, const struct rf_driver_places *places,
                              struct rf_driver *driver);
size_t rf_hip_folders(const struct rf_driver_places *places, char (*folders)[RF_FOLDER_BYTES], size_t room);

/* HIP only: finds the property call and the offset of the architecture in the struct that it fills. */
void rf_hip_find_properties(struct rf_driver *driver);
int rf_hip_arch(const struct rf_driver *driver, int device, const char *sysfs, char *arch, size_t size);
/* The number of compute units, however HIP counts them; sysfs as for rf_driver_arch. */
int rf_hip_compute_units(const struct rf_driver *driver, int device, const char *sysfs, int *units);
int rf_cuda_arch(const struct rf_driver *driver, int device, char *arch, size_t size);

/* Gives "gfx90a" for 90010, as the kernel's topology files number it; false for a number that makes no sense. */
bool rf_kfd_arch_name(uint64_t gfx_target_version, char *arch, size_t size);
/* Gives the architecture of the GPU at a PCI address, from the kernel's topology files. */
bool rf_kfd_arch_at(const char *sysfs, const char *pci, char *arch, size_t size);

#endif
