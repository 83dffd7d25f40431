/* CUDA's half of the driver table: symbol names, attribute numbers, the architecture.
 *
 * The names carry the ABI version that the driver's headers have mapped the plain name to since 64-bit sizes came in:
 * the plain cuMemAlloc still exists and takes a 32-bit size. cuEventElapsedTime is the exception: its _v2 came with
 * CUDA 12.8, and the plain one has the same signature. This file must not look up anything that waits for a whole
 * device or resets it. */
#include "gpu/driver_impl.h"

#include <stdio.h>

static const struct rf_driver_symbol symbols[] = {
    RF_SYMBOL("cuInit", NULL, init, true),
    RF_SYMBOL("cuDriverGetVersion", NULL, driver_version, true),
    RF_SYMBOL("cuDeviceGetCount", NULL, device_count, true),
    RF_SYMBOL("cuDeviceGet", NULL, device_get, true),
    RF_SYMBOL("cuDeviceGetName", NULL, device_name, true),
    RF_SYMBOL("cuDeviceTotalMem_v2", NULL, device_total, true),
    RF_SYMBOL("cuDeviceGetUuid_v2", "cuDeviceGetUuid", device_uuid, false),
    RF_SYMBOL("cuDeviceGetPCIBusId", NULL, device_pci, false),
    RF_SYMBOL("cuMemGetInfo_v2", NULL, mem_info, true),
    RF_SYMBOL("cuMemAlloc_v2", NULL, mem_alloc, true),
    RF_SYMBOL("cuMemFree_v2", NULL, mem_free, true),
    RF_SYMBOL("cuMemHostAlloc", NULL, host_alloc, true),
    RF_SYMBOL("cuMemFreeHost", NULL, host_free, true),
    RF_SYMBOL("cuMemcpyHtoDAsync_v2", NULL, copy_to_device, true),
    RF_SYMBOL("cuMemcpyDtoHAsync_v2", NULL, copy_from_device, true),
    RF_SYMBOL("cuMemcpyDtoDAsync_v2", NULL, copy_on_device, true),
    RF_SYMBOL("cuMemsetD8Async", NULL, fill_bytes, true),
    RF_SYMBOL("cuCtxGetStreamPriorityRange", NULL, stream_priorities, false),
    RF_SYMBOL("cuStreamCreateWithPriority", NULL, stream_create, true),
    RF_SYMBOL("cuStreamDestroy_v2", NULL, stream_destroy, true),
    RF_SYMBOL("cuStreamWaitEvent", NULL, stream_wait_event, true),
    RF_SYMBOL("cuEventCreate", NULL, event_create, true),
    RF_SYMBOL("cuEventDestroy_v2", NULL, event_destroy, true),
    RF_SYMBOL("cuEventRecord", NULL, event_record, true),
    RF_SYMBOL("cuEventQuery", NULL, event_query, true),
    RF_SYMBOL("cuEventElapsedTime", "cuEventElapsedTime_v2", event_elapsed, true),
    RF_SYMBOL("cuModuleLoadData", NULL, module_load, true),
    RF_SYMBOL("cuModuleUnload", NULL, module_unload, true),
    RF_SYMBOL("cuModuleGetFunction", NULL, module_function, true),
    RF_SYMBOL("cuFuncGetAttribute", NULL, function_attribute, true),
    RF_SYMBOL("cuFuncSetAttribute", NULL, function_set_attribute, false),
    RF_SYMBOL("cuFuncLoad", NULL, function_load, false),
    RF_SYMBOL("cuLibraryLoadData", NULL, library_load, false), /* since CUDA 12.0 */
    RF_SYMBOL("cuLibraryGetModule", NULL, library_module, false),
    RF_SYMBOL("cuLibraryUnload", NULL, library_unload, false),
    /* cuGraphInstantiate and cuGraphInstantiate_v2 cannot stand in here: they take other parameters. */
    RF_SYMBOL("cuStreamBeginCapture_v2", NULL, capture_begin, false),
    RF_SYMBOL("cuStreamEndCapture", NULL, capture_end, false),
    RF_SYMBOL("cuStreamIsCapturing", NULL, is_capturing, false),
    RF_SYMBOL("cuGraphInstantiateWithFlags", NULL, graph_instantiate, false),
    RF_SYMBOL("cuGraphLaunch", NULL, graph_launch, false),
    RF_SYMBOL("cuGraphExecDestroy", NULL, graph_exec_destroy, false),
    RF_SYMBOL("cuGraphDestroy", NULL, graph_destroy, false),
    RF_SYMBOL("cuGraphUpload", NULL, graph_upload, false),
    RF_SYMBOL("cuLaunchKernel", NULL, launch, true),
    RF_SYMBOL("cuTensorMapEncodeTiled", NULL, map_encode, false), /* since CUDA 12.0 */
    RF_SYMBOL("cuLaunchKernelEx", NULL, launch_with, false),      /* since CUDA 11.8 */
    RF_SYMBOL("cuDevicePrimaryCtxRetain", NULL, v.cuda.context_retain, true),
    RF_SYMBOL("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease", v.cuda.context_release, true),
    RF_SYMBOL("cuCtxSetCurrent", NULL, v.cuda.context_set, true),
    RF_SYMBOL("cuCtxGetCurrent", NULL, v.cuda.context_get, true),
    RF_SYMBOL("cuDeviceGetAttribute", NULL, v.cuda.get_attribute, true),
    RF_SYMBOL("cuGetErrorName", NULL, v.cuda.error_name, true),
};

/* CU_DEVICE_ATTRIBUTE_* of cuda.h; they are part of the ABI and never renumbered. */
static const int attributes[RF_ATTR_COUNT] = {
    [RF_ATTR_MAX_THREADS_PER_BLOCK] = 1,
    [RF_ATTR_MAX_BLOCK_X] = 2,
    [RF_ATTR_MAX_BLOCK_Y] = 3,
    [RF_ATTR_MAX_BLOCK_Z] = 4,
    [RF_ATTR_MAX_GRID_X] = 5,
    [RF_ATTR_MAX_GRID_Y] = 6,
    [RF_ATTR_MAX_GRID_Z] = 7,
    [RF_ATTR_MAX_SHARED_PER_BLOCK] = 8,
    [RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN] = 97,
    [RF_ATTR_WARP_SIZE] = 10,
    [RF_ATTR_COMPUTE_UNITS] = 16,
    [RF_ATTR_INTEGRATED] = 18,
    [RF_ATTR_COMPUTE_MAJOR] = 75,
    [RF_ATTR_COMPUTE_MINOR] = 76,
};

static const char *const libraries[] = {"libcuda.so.1", NULL};

const struct rf_driver_vendor rf_driver_vendor_cuda = {
    .label = "CUDA",
    .libraries = libraries,
    .searched = "libcuda.so.1 not found",
    .symbols = symbols,
    .symbol_count = RF_COUNT(symbols),
    .attributes = attributes,
    .hint = "install NVIDIA's driver or set RF_CUDA_LIBRARY",
};

int rf_cuda_arch(const struct rf_driver *driver, int device, char *arch, size_t size) {
    int major = 0, minor = 0;
    int code = rf_driver_attribute(driver, &major, RF_ATTR_COMPUTE_MAJOR, device);
    if (code == RF_DRV_OK) code = rf_driver_attribute(driver, &minor, RF_ATTR_COMPUTE_MINOR, device);
    if (code != RF_DRV_OK) return code;
    if (major < 1 || major > 99 || minor < 0 || minor > 9) return RF_DRV_INVALID_VALUE;
    snprintf(arch, size, "sm_%d%d", major, minor);
    return RF_DRV_OK;
}
