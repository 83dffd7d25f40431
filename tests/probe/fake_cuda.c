/* A CUDA driver with one well-behaved device, as far as the probe and contexts go. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuInit(unsigned flags) {
    return (int)flags;
}
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDriverGetVersion(int *version) {
    *version = 12040;
    return 0;
}
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? 0 : 101;
}
EXPORT int cuDeviceGetName(char *name, int size, int device);
EXPORT int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, "Fake NVIDIA %d", device);
    return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device);
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)80 << 30;
    return 0;
}
EXPORT int cuDeviceGetUuid(void *uuid, int device);
EXPORT int cuDeviceGetUuid(void *uuid, int device) {
    (void)device;
    for (int i = 0; i < 16; i++) ((unsigned char *)uuid)[i] = (unsigned char)(0xf0 + i);
    return 0;
}
EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device);
EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device) {
    (void)device;
    snprintf(text, (size_t)size, "0000:E1:00.0");
    return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; return 0;
    case 8: *value = 49152; return 0;
    case 97: *value = 232448; return 0;
    case 10: *value = 32; return 0;
    case 16: *value = 132; return 0;
    case 18: *value = 0; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    default: return 1;
    }
}

static __thread void *current;
static char primary;
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &primary;
    return device;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    return device;
}
EXPORT int cuCtxSetCurrent(void *context);
EXPORT int cuCtxSetCurrent(void *context) {
    current = context;
    return 0;
}
EXPORT int cuCtxGetCurrent(void **context);
EXPORT int cuCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}
EXPORT int cuGetErrorName(int code, const char **name);
EXPORT int cuGetErrorName(int code, const char **name) {
    *name = code == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
    return code == 999 ? 0 : 1;
}

#define UNUSED(name)                                                                                                 \
    EXPORT int name(void);                                                                                           \
    EXPORT int name(void) {                                                                                          \
        abort();                                                                                                     \
    }
UNUSED(cuMemGetInfo_v2)
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemFree_v2)
UNUSED(cuMemHostAlloc)
UNUSED(cuMemFreeHost)
UNUSED(cuMemcpyHtoDAsync_v2)
UNUSED(cuMemcpyDtoHAsync_v2)
UNUSED(cuMemcpyDtoDAsync_v2)
UNUSED(cuMemsetD8Async)
UNUSED(cuStreamCreateWithPriority)
UNUSED(cuStreamDestroy_v2)
UNUSED(cuStreamWaitEvent)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventRecord)
UNUSED(cuEventQuery)
UNUSED(cuEventElapsedTime)
UNUSED(cuModuleLoadData)
UNUSED(cuModuleUnload)
UNUSED(cuModuleGetFunction)
UNUSED(cuFuncGetAttribute)
UNUSED(cuLaunchKernel)
