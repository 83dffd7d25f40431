/* HIP's half of the driver table: symbol names, attribute numbers, where the library may be, the architecture, the
 * compute units.
 *
 * The architecture's name is only in the property struct, and the layout of that struct changed with HIP 6 (a new
 * versioned symbol). The name is read from a large zeroed buffer at the offset that belongs to the symbol that was
 * found. It is used only if it looks like an architecture; otherwise the kernel's topology files give it. This file
 * must not look up anything that waits for a whole device or resets it. */
#include "gpu/driver_impl.h"
#include "base/descriptors.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const struct rf_driver_symbol symbols[] = {
    RF_SYMBOL("hipInit", NULL, init, true),
    RF_SYMBOL("hipDriverGetVersion", NULL, driver_version, true),
    RF_SYMBOL("hipGetDeviceCount", NULL, device_count, true),
    RF_SYMBOL("hipDeviceGet", NULL, device_get, true),
    RF_SYMBOL("hipDeviceGetName", NULL, device_name, true),
    RF_SYMBOL("hipDeviceTotalMem", NULL, device_total, true),
    RF_SYMBOL("hipDeviceGetUuid", NULL, device_uuid, false),
    RF_SYMBOL("hipDeviceGetPCIBusId", NULL, device_pci, false),
    RF_SYMBOL("hipMemGetInfo", NULL, mem_info, true),
    RF_SYMBOL("hipMalloc", NULL, mem_alloc, true),
    RF_SYMBOL("hipFree", NULL, mem_free, true),
    RF_SYMBOL("hipHostMalloc", NULL, host_alloc, true),
    RF_SYMBOL("hipHostFree", NULL, host_free, true),
    RF_SYMBOL("hipMemcpyHtoDAsync", NULL, copy_to_device, true),
    RF_SYMBOL("hipMemcpyDtoHAsync", NULL, copy_from_device, true),
    RF_SYMBOL("hipMemcpyDtoDAsync", NULL, copy_on_device, true),
    RF_SYMBOL("hipMemsetD8Async", NULL, fill_bytes, true),
    RF_SYMBOL("hipDeviceGetStreamPriorityRange", NULL, stream_priorities, false),
    RF_SYMBOL("hipStreamCreateWithPriority", NULL, stream_create, true),
    RF_SYMBOL("hipStreamDestroy", NULL, stream_destroy, true),
    RF_SYMBOL("hipStreamWaitEvent", NULL, stream_wait_event, true),
    RF_SYMBOL("hipEventCreateWithFlags", NULL, event_create, true),
    RF_SYMBOL("hipEventDestroy", NULL, event_destroy, true),
    RF_SYMBOL("hipEventRecord", NULL, event_record, true),
    RF_SYMBOL("hipEventQuery", NULL, event_query, true),
    RF_SYMBOL("hipEventElapsedTime", NULL, event_elapsed, true),
    RF_SYMBOL("hipModuleLoadData", NULL, module_load, true),
    RF_SYMBOL("hipModuleUnload", NULL, module_unload, true),
    RF_SYMBOL("hipModuleGetFunction", NULL, module_function, true),
    RF_SYMBOL("hipFuncGetAttribute", NULL, function_attribute, true),
    RF_SYMBOL("hipFuncSetAttribute", NULL, function_set_attribute, false),
    RF_SYMBOL("hipStreamBeginCapture", NULL, capture_begin, false),
    RF_SYMBOL("hipStreamEndCapture", NULL, capture_end, false),
    RF_SYMBOL("hipStreamIsCapturing", NULL, is_capturing, false),
    RF_SYMBOL("hipGraphInstantiateWithFlags", NULL, graph_instantiate, false),
    RF_SYMBOL("hipGraphLaunch", NULL, graph_launch, false),
    RF_SYMBOL("hipGraphExecDestroy", NULL, graph_exec_destroy, false),
    RF_SYMBOL("hipGraphDestroy", NULL, graph_destroy, false),
    RF_SYMBOL("hipGraphUpload", NULL, graph_upload, false), /* since HIP 5.3 */
    RF_SYMBOL("hipModuleLaunchKernel", NULL, launch, true),
    RF_SYMBOL("rfsim_map_encode", NULL, map_encode, false), /* the simulated driver's; HIP has no tensor maps */
    RF_SYMBOL("hipSetDevice", NULL, v.hip.set_device, true),
    RF_SYMBOL("hipGetDevice", NULL, v.hip.get_device, true),
    RF_SYMBOL("hipDeviceGetAttribute", NULL, v.hip.get_attribute, true),
    RF_SYMBOL("hipGetErrorName", NULL, v.hip.error_name, true),
};

/* The oldest HIP that is accepted, as hipDriverGetVersion numbers it. The kernels are code objects of version 5.
 * HIP's reader of their metadata knows that version from 5.1 on, but the loader below it (ROCr) refuses them
 * until 5.2. The kernel build, which judges hidden arguments
 * by it, reads the number here (tools/kernel_metadata.py). */
enum { OLDEST_VERSION = 50200000 };

/* hipDeviceAttribute_t: the same numbers in the headers of HIP 5.2, 6.2 and 7. HIP 4.1 and earlier used other
 * numbers, but their libamdhip64.so.4 is not among the names opened. The physical count has been there since 5.1. */
static const int attributes[RF_ATTR_COUNT] = {
    [RF_ATTR_MAX_THREADS_PER_BLOCK] = 56,
    [RF_ATTR_MAX_BLOCK_X] = 26,
    [RF_ATTR_MAX_BLOCK_Y] = 27,
    [RF_ATTR_MAX_BLOCK_Z] = 28,
    [RF_ATTR_MAX_GRID_X] = 29,
    [RF_ATTR_MAX_GRID_Y] = 30,
    [RF_ATTR_MAX_GRID_Z] = 31,
    [RF_ATTR_MAX_SHARED_PER_BLOCK] = 74,
    [RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN] = 74, /* AMD has no larger block of LDS to opt into */
    [RF_ATTR_WARP_SIZE] = 87,
    [RF_ATTR_COMPUTE_UNITS] = 63,
    [RF_ATTR_PHYSICAL_COMPUTE_UNITS] = 10015,
    [RF_ATTR_INTEGRATED] = 16,
    [RF_ATTR_COMPUTE_MAJOR] = 23,
    [RF_ATTR_COMPUTE_MINOR] = 61,
};

static const char *const libraries[] = {
    "libamdhip64.so.10", "libamdhip64.so.9", "libamdhip64.so.8", "libamdhip64.so.7",
    "libamdhip64.so.6",  "libamdhip64.so.5", "libamdhip64.so",   NULL};

const struct rf_driver_vendor rf_driver_vendor_hip = {
    .label = "HIP",
    .libraries = libraries,
    .folders = rf_hip_folders,
    .searched = "libamdhip64.so (.10 to .5) not found, nor in $ROCM_PATH/lib or /opt/rocm*/lib",
    .symbols = symbols,
    .symbol_count = RF_COUNT(symbols),
    .attributes = attributes,
    .oldest_version = OLDEST_VERSION,
    .hint = "install AMD's HIP runtime or set RF_HIP_LIBRARY",
};

/* ---- where ROCm is installed ---- */

static int newest_first(const void *a, const void *b) {
    return strverscmp(b, a);
}

/* Adds parent/PREFIX<version>/lib, the newest version first; a version begins with a digit. */
static size_t add_versions(const char *parent, const char *prefix, char (*folders)[RF_FOLDER_BYTES], size_t room) {
    size_t count = 0, length = strlen(prefix);
    DIR *entries = rf_opendir(parent);
    if (!entries) return 0;
    for (struct dirent *entry; count < room && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, prefix, length) != 0) continue;
        char first = entry->d_name[length];
        if (first < '0' || first > '9') continue;
        int written = snprintf(folders[count], RF_FOLDER_BYTES, "%s/%s/lib", parent, entry->d_name);
        if (written > 0 && written < RF_FOLDER_BYTES) count++;
    }
    closedir(entries);
    qsort(folders, count, sizeof *folders, newest_first);
    return count;
}

/* Up to ROCm 7.2 a version is installed in /opt/rocm-<version>, with /opt/rocm as a link to one of them; since then
 * in /opt/rocm/core-<version>, with /opt/rocm/core as the link. */
size_t rf_hip_folders(const struct rf_driver_places *places, char (*folders)[RF_FOLDER_BYTES], size_t room) {
    char parent[RF_FOLDER_BYTES];
    size_t count = 0;
    if (places->rocm_path && places->rocm_path[0] == '/' && count < room) { /* never relative to the current folder */
        int written = snprintf(folders[count], RF_FOLDER_BYTES, "%s/lib", places->rocm_path);
        if (written < RF_FOLDER_BYTES) count++;
    }
    static const char *const links[] = {"rocm", "rocm/core"};
    for (size_t i = 0; i < RF_COUNT(links) && count < room; i++) {
        int written = snprintf(folders[count], RF_FOLDER_BYTES, "%s/%s/lib", places->opt, links[i]);
        if (written < RF_FOLDER_BYTES) count++;
    }
    if (snprintf(parent, sizeof parent, "%s/rocm", places->opt) < RF_FOLDER_BYTES)
        count += add_versions(parent, "core-", folders + count, room - count);
    return count + add_versions(places->opt, "rocm-", folders + count, room - count);
}

/* ---- the architecture ---- */

/* gcnArchName in hipDeviceProp_t, by offsetof from the headers of 6.3 and of 5.2. HIP 6 still
 * offers the plain name with the old layout, so the symbol alone decides. */
enum { ARCH_OFFSET_R0600 = 1160, ARCH_OFFSET_PLAIN = 396 };

void rf_hip_find_properties(struct rf_driver *driver) {
    static const struct {
        const char *name;
        size_t offset;
    } versions[] = {{"hipGetDevicePropertiesR0600", ARCH_OFFSET_R0600},
                    {"hipGetDeviceProperties", ARCH_OFFSET_PLAIN}};
    driver->v.hip.get_properties = NULL;
    driver->v.hip.arch_offset = 0;
    for (size_t i = 0; i < RF_COUNT(versions); i++) {
        void *address = dlsym(driver->library, versions[i].name);
        if (!address) continue;
        memcpy(&driver->v.hip.get_properties, &address, sizeof address);
        driver->v.hip.arch_offset = versions[i].offset;
        return;
    }
}

/* Turns "gfx90a:sramecc+:xnack-" into "gfx90a"; false for anything that is not an architecture. nvidia: "sm_90" is
 * one too. */
static bool take_arch(const char *text, size_t text_size, bool nvidia, char *arch, size_t size) {
    size_t length = strnlen(text, text_size), plain = length;
    if (nvidia && length < size && length > 4 && length < 7 && strncmp(text, "sm_", 3) == 0 &&
        strspn(text + 3, "0123456789") == length - 3) {
        memcpy(arch, text, length + 1);
        return true;
    }
    if (length == text_size || length < 6 || strncmp(text, "gfx", 3) != 0) return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == ':' && plain == length) plain = i;
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ':' || c == '+' || c == '-')) return false;
    }
    if (plain < 6 || plain >= size) return false;
    memcpy(arch, text, plain);
    arch[plain] = 0;
    return true;
}

/* The struct is 792 bytes in HIP 5 and 1472 in HIP 6. A later one may be larger: the buffer allows for ten times
 * that, and the result of a driver that reaches its end is not used. */
static bool arch_from_properties(const struct rf_driver *driver, int device, char *arch, size_t size) {
    enum { BUFFER_BYTES = 16384, CANARY_BYTES = 256, ARCH_BYTES = 256, CANARY = 0xa5 };
    if (!driver->v.hip.get_properties || !driver->v.hip.arch_offset) return false;
    unsigned char *buffer = calloc(1, BUFFER_BYTES);
    if (!buffer) return false;
    memset(buffer + BUFFER_BYTES - CANARY_BYTES, CANARY, CANARY_BYTES);
    bool good = driver->v.hip.get_properties(buffer, device) == RF_DRV_OK;
    for (size_t i = BUFFER_BYTES - CANARY_BYTES; i < BUFFER_BYTES; i++) good = good && buffer[i] == CANARY;
    good = good && take_arch((const char *)buffer + driver->v.hip.arch_offset, ARCH_BYTES, driver->simulated, arch,
                             size); /* the simulated driver may have a GPU that takes PTX */
    free(buffer);
    return good;
}

int rf_hip_arch(const struct rf_driver *driver, int device, const char *sysfs, char *arch, size_t size) {
    if (arch_from_properties(driver, device, arch, size)) return RF_DRV_OK;
    char pci[64] = "";
    if (!sysfs || !driver->device_pci) return RF_DRV_NOT_SUPPORTED;
    int code = driver->device_pci(pci, (int)sizeof pci - 1, device);
    if (code != RF_DRV_OK) return code;
    pci[sizeof pci - 1] = 0;
    return rf_kfd_arch_at(sysfs, pci, arch, size) ? RF_DRV_OK : RF_DRV_NOT_SUPPORTED;
}

bool rf_kfd_arch_name(uint64_t gfx_target_version, char *arch, size_t size) {
    uint64_t major = gfx_target_version / 10000, minor = gfx_target_version / 100 % 100,
             step = gfx_target_version % 100;
    if (major < 7 || major > 99 || minor > 15 || step > 15) return false;
    snprintf(arch, size, "gfx%" PRIu64 "%" PRIx64 "%" PRIx64, major, minor, step);
    return true;
}

/* Finds a key in "key value" lines, as in the topology's properties. */
static bool property(const char *text, const char *key, uint64_t *value) {
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0 || line[length] != ' ') continue;
        char *end;
        unsigned long long number = strtoull(line + length + 1, &end, 10);
        if (end == line + length + 1) return false;
        *value = number;
        return true;
    }
    return false;
}

/* Gives the properties of the GPU at a PCI address, by the kernel's topology files. */
static bool topology_at(const char *sysfs, const char *pci, char *text, size_t size) {
    unsigned domain, bus, slot, function;
    if (sscanf(pci, "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &function) != 4) return false;
    uint64_t location = (uint64_t)bus << 8 | slot << 3 | function;

    char path[512];
    snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes", sysfs);
    DIR *nodes = rf_opendir(path);
    if (!nodes) return false;
    bool found = false;
    for (struct dirent *node; !found && (node = readdir(nodes));) {
        if (node->d_name[0] < '0' || node->d_name[0] > '9') continue;
        int length =
            snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes/%s/properties", sysfs, node->d_name);
        if (length < 0 || (size_t)length >= sizeof path || rf_read_text(path, text, size) != RF_OK) continue;
        uint64_t version = 0, node_location = 0, node_domain = 0;
        if (!property(text, "gfx_target_version", &version) || !version) continue; /* a CPU has none */
        if (!property(text, "location_id", &node_location)) continue;
        property(text, "domain", &node_domain); /* older kernels do not write it */
        found = node_domain == domain && node_location == location;
    }
    closedir(nodes);
    return found;
}

enum { TOPOLOGY_BYTES = 8192 };

bool rf_kfd_arch_at(const char *sysfs, const char *pci, char *arch, size_t size) {
    char text[TOPOLOGY_BYTES];
    uint64_t version = 0;
    return topology_at(sysfs, pci, text, sizeof text) && property(text, "gfx_target_version", &version) &&
           rf_kfd_arch_name(version, arch, size);
}

/* ---- compute units ---- */

/* Every compute unit of the GPUs from gfx7 to gfx12 has 2 or 4 SIMDs, and the kernel counts both. */
static int kfd_units_at(const char *sysfs, const char *pci) {
    char text[TOPOLOGY_BYTES];
    uint64_t simds = 0, per_unit = 0;
    if (!topology_at(sysfs, pci, text, sizeof text)) return 0;
    if (!property(text, "simd_count", &simds) || !property(text, "simd_per_cu", &per_unit) || !per_unit) return 0;
    return simds / per_unit <= INT_MAX ? (int)(simds / per_unit) : 0;
}

/* In WGP mode, which is the default from gfx10 on, HIP counts pairs of compute units, and so far the attribute of
 * "physical" units does too (as of HIP 7). The kernel counts the units themselves. It is believed where HIP's count
 * is the same or half of it; where HIP says something else, some units are masked for this process, and HIP knows. */
int rf_hip_compute_units(const struct rf_driver *driver, int device, const char *sysfs, int *units) {
    int counted = 0, physical = 0;
    char pci[64] = "";
    int code = rf_driver_attribute(driver, &counted, RF_ATTR_COMPUTE_UNITS, device);
    if (code != RF_DRV_OK) return code;
    if (rf_driver_attribute(driver, &physical, RF_ATTR_PHYSICAL_COMPUTE_UNITS, device) == RF_DRV_OK)
        counted = RF_MAX(counted, physical);
    if (sysfs && driver->device_pci && driver->device_pci(pci, (int)sizeof pci - 1, device) == RF_DRV_OK) {
        pci[sizeof pci - 1] = 0;
        int of_kernel = kfd_units_at(sysfs, pci);
        if (of_kernel / 2 == counted) counted = of_kernel;
    }
    *units = counted;
    return RF_DRV_OK;
}
