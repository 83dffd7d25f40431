/* What a program asks about the driver and its devices, and the names of errors. */
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

hipError_t hipDriverGetVersion(int *version) {
    int code = sim_enter(SIM_ENTRY_hipDriverGetVersion);
    if (code) return code;
    if (!version) return SIM_INVALID_VALUE;
    *version = sim.config.version;
    return SIM_OK;
}

hipError_t hipRuntimeGetVersion(int *version) {
    int code = sim_enter(SIM_ENTRY_hipRuntimeGetVersion);
    if (code) return code;
    if (!version) return SIM_INVALID_VALUE;
    *version = sim.config.version;
    return SIM_OK;
}

hipError_t hipGetDeviceCount(int *count) {
    int code = sim_enter(SIM_ENTRY_hipGetDeviceCount);
    if (code) return code;
    if (!count) return SIM_INVALID_VALUE;
    *count = sim.config.device_count;
    return *count ? SIM_OK : SIM_NO_DEVICE;
}

hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGet);
    if (code) return code;
    if (!device) return SIM_INVALID_VALUE;
    if (!sim_device_at(ordinal)) return SIM_INVALID_DEVICE;
    *device = ordinal;
    return SIM_OK;
}

static int copy_text(char *to, int size, const char *from) {
    if (!to || size <= 0) return SIM_INVALID_VALUE;
    snprintf(to, (size_t)size, "%s", from);
    return SIM_OK;
}

hipError_t hipDeviceGetName(char *name, int size, hipDevice_t index) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGetName);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    return device ? copy_text(name, size, device->config->name) : SIM_INVALID_DEVICE;
}

hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t index) {
    int code = sim_enter(SIM_ENTRY_hipDeviceTotalMem);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    if (!bytes) return SIM_INVALID_VALUE;
    *bytes = device->config->vram;
    return SIM_OK;
}

/* The same device of the same configuration has the same UUID in every process; one that processes share (shared=)
 * has another UUID for each path. */
static void make_uuid(const struct sim_device *device, char bytes[16]) {
    char text[17];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *parts[] = {device->config->name, device->config->arch, device->config->pci, sim.config.shared};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (const char *c = parts[i]; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    hash += (uint64_t)device->index;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sim_random(&hash));
    memcpy(bytes, text, 16); /* sixteen hexadecimal characters, as AMD's driver gives */
}

hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t index) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGetUuid);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    if (!uuid) return SIM_INVALID_VALUE;
    make_uuid(device, uuid->bytes);
    return SIM_OK;
}

hipError_t hipDeviceGetPCIBusId(char *text, int size, int index) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGetPCIBusId);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    return device ? copy_text(text, size, device->config->pci) : SIM_INVALID_DEVICE;
}

hipError_t hipSetDevice(int index) {
    int code = sim_enter(SIM_ENTRY_hipSetDevice);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    sim_lock(&sim.lock);
    if (!atomic_load(&device->lost)) /* a lost device may be chosen, but not used */
        code = sim_charge_context(device);
    sim_unlock(&sim.lock);
    if (!code) sim_set_current(index);
    return code;
}

hipError_t hipGetDevice(int *index) {
    int code = sim_enter(SIM_ENTRY_hipGetDevice);
    if (code) return code;
    if (!index) return SIM_INVALID_VALUE;
    struct sim_device *device = sim_current();
    if (!device) return SIM_NO_DEVICE;
    *index = device->index;
    return SIM_OK;
}

/* In WGP mode HIP counts pairs of compute units. */
static int counted_units(const struct sim_device_config *config) {
    return config->wgp ? config->units / 2 : config->units;
}

static int attribute_value(const struct sim_device *device, int attribute, int *value) {
    const struct sim_device_config *config = device->config;
    int version = sim_arch_version(config->arch);
    const struct {
        int attribute, value;
    } table[] = {
        {SIM_ATTR_ECC, 0},
        {SIM_ATTR_CAN_MAP_HOST, 1},
        {SIM_ATTR_CLOCK_KHZ, 2400000},
        {SIM_ATTR_COMPUTE_MODE, 0},
        {SIM_ATTR_CONCURRENT_KERNELS, 1},
        {SIM_ATTR_INTEGRATED, config->integrated},
        {SIM_ATTR_KERNEL_TIMEOUT, 0},
        {SIM_ATTR_L2_BYTES, 6 << 20},
        {SIM_ATTR_MAJOR, version / 10000},
        {SIM_ATTR_MINOR, version / 100 % 100},
        {SIM_ATTR_MANAGED, 0},
        {SIM_ATTR_BLOCK_X, SIM_MAX_THREADS},
        {SIM_ATTR_BLOCK_Y, SIM_MAX_THREADS},
        {SIM_ATTR_BLOCK_Z, SIM_MAX_THREADS},
        {SIM_ATTR_GRID_X, INT32_MAX},
        {SIM_ATTR_GRID_Y, 65535},
        {SIM_ATTR_GRID_Z, 65535},
        {SIM_ATTR_THREADS_PER_BLOCK, SIM_MAX_THREADS},
        {SIM_ATTR_THREADS_PER_UNIT, 2048},
        {SIM_ATTR_BUS_BITS, 320},
        {SIM_ATTR_MEMORY_KHZ, 1249000},
        {SIM_ATTR_UNITS, counted_units(config)},
        {SIM_ATTR_PHYSICAL_UNITS, config->wgp == SIM_WGP_PLAIN ? config->units : counted_units(config)},
        {SIM_ATTR_PCI_BUS, (int)device->pci_bus},
        {SIM_ATTR_PCI_DEVICE, (int)device->pci_device},
        {SIM_ATTR_PCI_DOMAIN, (int)device->pci_domain},
        {SIM_ATTR_REGISTERS_PER_BLOCK, 65536},
        {SIM_ATTR_SHARED_PER_BLOCK, (int)sim_shared_bytes(config->arch)},
        {SIM_ATTR_SHARED_PER_BLOCK_OPTIN, (int)sim_shared_bytes(config->arch)},
        {SIM_ATTR_PRIORITIES, 1},
        {SIM_ATTR_CONSTANT_BYTES, 65536},
        {SIM_ATTR_UNIFIED, 1},
        {SIM_ATTR_WARP, config->wave},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == attribute) {
            *value = table[i].value;
            return SIM_OK;
        }
    return SIM_INVALID_VALUE;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int index) {
    int code = sim_enter(SIM_ENTRY_hipDeviceGetAttribute);
    if (code) return code;
    struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    if (!value) return SIM_INVALID_VALUE;
    return attribute_value(device, (int)attribute, value);
}

/* ---- the two layouts of the properties, written by offset ---- */

static void put_int(char *properties, size_t offset, int value) {
    memcpy(properties + offset, &value, sizeof value);
}

static void put_size(char *properties, size_t offset, uint64_t value) {
    memcpy(properties + offset, &value, sizeof value);
}

/* Real drivers add the features: "gfx942:sramecc+:xnack-". */
static void put_arch(char *properties, size_t offset, const char *arch) {
    bool has_features = strcmp(arch, "gfx90a") == 0 || strncmp(arch, "gfx94", 5) == 0 || strcmp(arch, "gfx950") == 0;
    snprintf(properties + offset, 256, "%s%s", arch, has_features ? ":sramecc+:xnack-" : "");
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t *out, int index) {
    int code = sim_enter(SIM_ENTRY_hipGetDeviceProperties);
    if (code) return code;
    const struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    if (!out) return SIM_INVALID_VALUE;
    const struct sim_device_config *config = device->config;
    char *properties = (char *)out;
    int version = sim_arch_version(config->arch);
    memset(properties, 0, SIM_PROP5_BYTES);
    snprintf(properties, 256, "%s", config->name);
    put_size(properties, SIM_PROP5_TOTAL, config->vram);
    put_size(properties, SIM_PROP5_SHARED, sim_shared_bytes(config->arch));
    put_int(properties, SIM_PROP5_WARP, config->wave);
    put_int(properties, SIM_PROP5_MAX_THREADS, SIM_MAX_THREADS);
    put_int(properties, SIM_PROP5_MAJOR, version / 10000);
    put_int(properties, SIM_PROP5_MAJOR + 4, version / 100 % 100);
    put_int(properties, SIM_PROP5_UNITS, counted_units(config));
    put_int(properties, SIM_PROP5_PCI_DOMAIN, (int)device->pci_domain);
    put_int(properties, SIM_PROP5_PCI_DOMAIN + 4, (int)device->pci_bus);
    put_int(properties, SIM_PROP5_PCI_DOMAIN + 8, (int)device->pci_device);
    put_arch(properties, SIM_PROP5_ARCH, config->arch);
    put_int(properties, SIM_PROP5_INTEGRATED, config->integrated);
    return SIM_OK;
}

hipError_t hipGetDevicePropertiesR0600(void *out, int index) {
    int code = sim_enter(SIM_ENTRY_hipGetDevicePropertiesR0600);
    if (code) return code;
    const struct sim_device *device = sim_device_at(index);
    if (!device) return SIM_INVALID_DEVICE;
    if (!out) return SIM_INVALID_VALUE;
    const struct sim_device_config *config = device->config;
    char *properties = out;
    int version = sim_arch_version(config->arch);
    memset(properties, 0, SIM_PROP6_BYTES);
    snprintf(properties, 256, "%s", config->name);
    make_uuid(device, properties + SIM_PROP6_UUID);
    put_size(properties, SIM_PROP6_TOTAL, config->vram);
    put_size(properties, SIM_PROP6_SHARED, sim_shared_bytes(config->arch));
    put_int(properties, SIM_PROP6_WARP, config->wave);
    put_int(properties, SIM_PROP6_MAX_THREADS, SIM_MAX_THREADS);
    put_int(properties, SIM_PROP6_MAJOR, version / 10000);
    put_int(properties, SIM_PROP6_MAJOR + 4, version / 100 % 100);
    put_int(properties, SIM_PROP6_UNITS, counted_units(config));
    put_int(properties, SIM_PROP6_INTEGRATED, config->integrated);
    put_int(properties, SIM_PROP6_PCI_BUS, (int)device->pci_bus);
    put_int(properties, SIM_PROP6_PCI_BUS + 4, (int)device->pci_device);
    put_int(properties, SIM_PROP6_PCI_BUS + 8, (int)device->pci_domain);
    put_arch(properties, SIM_PROP6_ARCH, config->arch);
    return SIM_OK;
}

/* ---- errors; asking for a name is not a driver call and is not counted ---- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {SIM_OK, "hipSuccess", "no error"},
    {SIM_INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {SIM_OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {SIM_NOT_INITIALIZED, "hipErrorNotInitialized", "initialization error"},
    {SIM_INVALID_CONFIGURATION, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {SIM_NO_DEVICE, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {SIM_INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal"},
    {SIM_INVALID_IMAGE, "hipErrorInvalidImage", "device kernel image is invalid"},
    {SIM_NO_BINARY, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {SIM_LIBRARY_FAILED, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {SIM_INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle"},
    {SIM_ILLEGAL_STATE, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {SIM_NOT_FOUND, "hipErrorNotFound", "named symbol not found"},
    {SIM_NOT_READY, "hipErrorNotReady", "device not ready"},
    {SIM_ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {SIM_OUT_OF_RESOURCES, "hipErrorLaunchOutOfResources", "out of resources"},
    {SIM_LAUNCH_TIMEOUT, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {SIM_LAUNCH_FAILURE, "hipErrorLaunchFailure", "unspecified launch failure"},
    {SIM_NOT_SUPPORTED, "hipErrorNotSupported", "operation not supported"},
    {SIM_CAPTURE_UNSUPPORTED, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {SIM_CAPTURE_INVALIDATED, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error"},
    {SIM_CAPTURE_ISOLATION, "hipErrorStreamCaptureIsolation", "dependency created on uncaptured work"},
    {SIM_CAPTURE_IMPLICIT, "hipErrorStreamCaptureImplicit", "would make the default stream depend on a capture"},
    {SIM_CAPTURED_EVENT, "hipErrorCapturedEvent", "operation not permitted on an event last recorded in a capture"},
    {SIM_CAPTURE_WRONG_THREAD, "hipErrorStreamCaptureWrongThread", "attempt to end a capture from another thread"},
    {SIM_UNKNOWN, "hipErrorUnknown", "unknown error"},
};

const char *hipGetErrorName(hipError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)code) return errors[i].name;
    return "hipErrorUnknown";
}

const char *hipGetErrorString(hipError_t code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)code) return errors[i].text;
    return "unknown error";
}
