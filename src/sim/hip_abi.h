/* The part of HIP's binary interface that the simulated driver offers, written down once.
 *
 * The types, numbers and offsets are those of the vendor's public headers, but no vendor header is needed to build:
 * tests/sim/check_hip_abi.c compares every line of this file with them where they are installed (it defines
 * SIM_ABI_CHECK, includes the vendor's header first and takes the types from there). */
#ifndef RFSIM_HIP_ABI_H
#define RFSIM_HIP_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef SIM_ABI_CHECK
typedef int hipError_t; /* an enum in the vendor's header: the same register, the same numbers */
typedef int hipDevice_t;
typedef int hipDeviceAttribute_t;
typedef int hipFunction_attribute;
typedef int hipFuncAttribute;
typedef int hipMemcpyKind;
typedef int hipStreamCaptureMode;
typedef int hipStreamCaptureStatus;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct hipUUID_t {
    char bytes[16];
} hipUUID;
typedef struct hipDeviceProp_t hipDeviceProp_t; /* only its offsets below are used */
#endif

enum sim_code {
    SIM_OK = 0,
    SIM_INVALID_VALUE = 1,
    SIM_OUT_OF_MEMORY = 2,
    SIM_NOT_INITIALIZED = 3,
    SIM_INVALID_CONFIGURATION = 9,
    SIM_NO_DEVICE = 100,
    SIM_INVALID_DEVICE = 101,
    SIM_INVALID_IMAGE = 200,
    SIM_NO_BINARY = 209,
    SIM_LIBRARY_FAILED = 303,
    SIM_INVALID_HANDLE = 400,
    SIM_ILLEGAL_STATE = 401,
    SIM_NOT_FOUND = 500,
    SIM_NOT_READY = 600,
    SIM_ILLEGAL_ADDRESS = 700,
    SIM_OUT_OF_RESOURCES = 701,
    SIM_LAUNCH_TIMEOUT = 702,
    SIM_LAUNCH_FAILURE = 719,
    SIM_NOT_SUPPORTED = 801,
    SIM_CAPTURE_UNSUPPORTED = 900,
    SIM_CAPTURE_INVALIDATED = 901,
    SIM_CAPTURE_ISOLATION = 905,
    SIM_CAPTURE_IMPLICIT = 906,
    SIM_CAPTURED_EVENT = 907,
    SIM_CAPTURE_WRONG_THREAD = 908,
    SIM_UNKNOWN = 999,
};

enum sim_device_attribute {
    SIM_ATTR_ECC = 0,
    SIM_ATTR_CAN_MAP_HOST = 3,
    SIM_ATTR_CLOCK_KHZ = 5,
    SIM_ATTR_COMPUTE_MODE = 6,
    SIM_ATTR_CONCURRENT_KERNELS = 8,
    SIM_ATTR_INTEGRATED = 16,
    SIM_ATTR_KERNEL_TIMEOUT = 18,
    SIM_ATTR_L2_BYTES = 19,
    SIM_ATTR_MAJOR = 23,
    SIM_ATTR_MANAGED = 24,
    SIM_ATTR_BLOCK_X = 26,
    SIM_ATTR_BLOCK_Y = 27,
    SIM_ATTR_BLOCK_Z = 28,
    SIM_ATTR_GRID_X = 29,
    SIM_ATTR_GRID_Y = 30,
    SIM_ATTR_GRID_Z = 31,
    SIM_ATTR_THREADS_PER_BLOCK = 56,
    SIM_ATTR_THREADS_PER_UNIT = 57,
    SIM_ATTR_BUS_BITS = 59,
    SIM_ATTR_MEMORY_KHZ = 60,
    SIM_ATTR_MINOR = 61,
    SIM_ATTR_UNITS = 63,
    SIM_ATTR_PCI_BUS = 67,
    SIM_ATTR_PCI_DEVICE = 68,
    SIM_ATTR_PCI_DOMAIN = 69,
    SIM_ATTR_REGISTERS_PER_BLOCK = 71,
    SIM_ATTR_SHARED_PER_BLOCK = 74,
    SIM_ATTR_SHARED_PER_BLOCK_OPTIN = 75,
    SIM_ATTR_PRIORITIES = 78,
    SIM_ATTR_CONSTANT_BYTES = 83,
    SIM_ATTR_UNIFIED = 85,
    SIM_ATTR_WARP = 87,
    SIM_ATTR_PHYSICAL_UNITS = 10015,
};

enum sim_function_attribute {
    SIM_FUNC_MAX_THREADS = 0,
    SIM_FUNC_SHARED_BYTES = 1,
    SIM_FUNC_CONST_BYTES = 2,
    SIM_FUNC_LOCAL_BYTES = 3,
    SIM_FUNC_REGISTERS = 4,
    SIM_FUNC_DYNAMIC_SHARED = 8,
};

enum sim_function_setting { /* hipFuncAttribute, which is not hipFunction_attribute */
                            SIM_FUNC_SET_DYNAMIC_SHARED = 8,
                            SIM_FUNC_SET_CARVEOUT = 9,
};

enum sim_capture_mode { SIM_CAPTURE_GLOBAL = 0, SIM_CAPTURE_THREAD_LOCAL = 1, SIM_CAPTURE_RELAXED = 2 };

#define SIM_STREAM_NON_BLOCKING 1u
#define SIM_EVENT_DISABLE_TIMING 2u

/* hipDeviceProp_t as HIP 5 has it (hipGetDeviceProperties) and as HIP 6 and 7 have it
 * (hipGetDevicePropertiesR0600). */
enum {
    SIM_PROP5_BYTES = 792,
    SIM_PROP5_TOTAL = 256,
    SIM_PROP5_SHARED = 264,
    SIM_PROP5_WARP = 276,
    SIM_PROP5_MAX_THREADS = 280,
    SIM_PROP5_MAJOR = 328,
    SIM_PROP5_UNITS = 336,
    SIM_PROP5_PCI_DOMAIN = 364, /* then bus, device */
    SIM_PROP5_ARCH = 396,
    SIM_PROP5_INTEGRATED = 652,

    SIM_PROP6_BYTES = 1472,
    SIM_PROP6_UUID = 256,
    SIM_PROP6_TOTAL = 288,
    SIM_PROP6_SHARED = 296,
    SIM_PROP6_WARP = 308,
    SIM_PROP6_MAX_THREADS = 320,
    SIM_PROP6_MAJOR = 360,
    SIM_PROP6_UNITS = 388,
    SIM_PROP6_INTEGRATED = 396,
    SIM_PROP6_PCI_BUS = 584, /* then device, domain */
    SIM_PROP6_ARCH = 1160,
};

/* Every entry point that the vendor's 5.2 header declares: result, name, parameters. The header has no const in the
 * copies from the host until HIP 7. */
#define SIM_PROTOTYPES(X)                                                                                            \
    X(hipError_t, hipInit, (unsigned int flags))                                                                     \
    X(hipError_t, hipDriverGetVersion, (int *version))                                                               \
    X(hipError_t, hipRuntimeGetVersion, (int *version))                                                              \
    X(hipError_t, hipGetDeviceCount, (int *count))                                                                   \
    X(hipError_t, hipDeviceGet, (hipDevice_t * device, int ordinal))                                                 \
    X(hipError_t, hipDeviceGetName, (char *name, int size, hipDevice_t device))                                      \
    X(hipError_t, hipDeviceTotalMem, (size_t *bytes, hipDevice_t device))                                            \
    X(hipError_t, hipDeviceGetUuid, (hipUUID * uuid, hipDevice_t device))                                            \
    X(hipError_t, hipDeviceGetPCIBusId, (char *text, int size, int device))                                          \
    X(hipError_t, hipSetDevice, (int device))                                                                        \
    X(hipError_t, hipGetDevice, (int *device))                                                                       \
    X(hipError_t, hipDeviceGetAttribute, (int *value, hipDeviceAttribute_t attribute, int device))                   \
    X(hipError_t, hipGetDeviceProperties, (hipDeviceProp_t * properties, int device))                                \
    X(hipError_t, hipMemGetInfo, (size_t *free_bytes, size_t *total_bytes))                                          \
    X(hipError_t, hipMalloc, (void **pointer, size_t bytes))                                                         \
    X(hipError_t, hipFree, (void *pointer))                                                                          \
    X(hipError_t, hipHostMalloc, (void **pointer, size_t bytes, unsigned int flags))                                 \
    X(hipError_t, hipHostFree, (void *pointer))                                                                      \
    X(hipError_t, hipMemcpyHtoDAsync, (hipDeviceptr_t to, const void *from, size_t bytes, hipStream_t stream))       \
    X(hipError_t, hipMemcpyDtoHAsync, (void *to, hipDeviceptr_t from, size_t bytes, hipStream_t stream))             \
    X(hipError_t, hipMemcpyDtoDAsync, (hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes, hipStream_t stream))    \
    X(hipError_t, hipMemsetD8Async, (hipDeviceptr_t to, unsigned char value, size_t bytes, hipStream_t stream))      \
    X(hipError_t, hipDeviceGetStreamPriorityRange, (int *least, int *greatest))                                      \
    X(hipError_t, hipStreamCreateWithPriority, (hipStream_t * stream, unsigned int flags, int priority))             \
    X(hipError_t, hipStreamDestroy, (hipStream_t stream))                                                            \
    X(hipError_t, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned int flags))                    \
    X(hipError_t, hipStreamQuery, (hipStream_t stream))                                                              \
    X(hipError_t, hipStreamSynchronize, (hipStream_t stream))                                                        \
    X(hipError_t, hipEventCreateWithFlags, (hipEvent_t * event, unsigned int flags))                                 \
    X(hipError_t, hipEventDestroy, (hipEvent_t event))                                                               \
    X(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream))                                            \
    X(hipError_t, hipEventQuery, (hipEvent_t event))                                                                 \
    X(hipError_t, hipEventElapsedTime, (float *milliseconds, hipEvent_t start, hipEvent_t end))                      \
    X(hipError_t, hipModuleLoadData, (hipModule_t * module, const void *image))                                      \
    X(hipError_t, hipModuleUnload, (hipModule_t module))                                                             \
    X(hipError_t, hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char *name))            \
    X(hipError_t, hipFuncGetAttribute, (int *value, hipFunction_attribute attribute, hipFunction_t function))        \
    X(hipError_t, hipFuncSetAttribute, (const void *function, hipFuncAttribute attribute, int value))                \
    X(hipError_t, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode))                            \
    X(hipError_t, hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph))                                     \
    X(hipError_t, hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus * status))                       \
    X(hipError_t, hipGraphInstantiateWithFlags,                                                                      \
      (hipGraphExec_t * executable, hipGraph_t graph, unsigned long long flags))                                     \
    X(hipError_t, hipGraphLaunch, (hipGraphExec_t executable, hipStream_t stream))                                   \
    X(hipError_t, hipGraphExecDestroy, (hipGraphExec_t executable))                                                  \
    X(hipError_t, hipGraphDestroy, (hipGraph_t graph))                                                               \
    X(hipError_t, hipModuleLaunchKernel,                                                                             \
      (hipFunction_t function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,  \
       unsigned int bz, unsigned int shared_bytes, hipStream_t stream, void **args, void **extra))                   \
    X(const char *, hipGetErrorName, (hipError_t code))                                                              \
    X(const char *, hipGetErrorString, (hipError_t code))                                                            \
    SIM_BANNED_PROTOTYPES(X)

/* Present because real drivers have them; calling one is a mistake that is counted and refused. */
#define SIM_BANNED_PROTOTYPES(X)                                                                                     \
    X(hipError_t, hipDeviceSynchronize, (void))                                                                      \
    X(hipError_t, hipDeviceReset, (void))                                                                            \
    X(hipError_t, hipCtxSynchronize, (void))                                                                         \
    X(hipError_t, hipDevicePrimaryCtxReset, (hipDevice_t device))                                                    \
    X(hipError_t, hipEventSynchronize, (hipEvent_t event))                                                           \
    X(hipError_t, hipMemcpy, (void *to, const void *from, size_t bytes, hipMemcpyKind kind))                         \
    X(hipError_t, hipMemcpyHtoD, (hipDeviceptr_t to, const void *from, size_t bytes))                                \
    X(hipError_t, hipMemcpyDtoH, (void *to, hipDeviceptr_t from, size_t bytes))                                      \
    X(hipError_t, hipMemset, (void *to, int value, size_t bytes))

#ifndef SIM_ABI_CHECK
#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_DECLARE(result, name, parameters) SIM_EXPORT result name parameters;
SIM_PROTOTYPES(SIM_DECLARE)
/* Since HIP 5.3 and 6; the 5.2 header does not have them. */
SIM_EXPORT hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream);
SIM_EXPORT hipError_t hipGetDevicePropertiesR0600(void *properties, int device);
/* HIP has no tensor maps. This takes what cuTensorMapEncodeTiled takes and makes a struct rfk_map (host_abi.h). */
SIM_EXPORT hipError_t rfsim_map_encode(void *map, int type, uint32_t rank, void *base, const uint64_t *sizes,
                                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                       int interleave, int swizzle, int promotion, int outside);
#undef SIM_DECLARE
#endif

#endif
