/* Compares src/sim/hip_abi.h with the vendor's public header: signatures, numbers, offsets. Built only where that
 * header is installed, once with it and once with what HIP 7 declares (hip7/); it has no code, compiling it is the
 * test. The properties of HIP 6 (R0600) are not in the header of HIP 5; their offsets were computed from the HIP 6
 * header's declaration. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#define SIM_ABI_CHECK 1
#include "sim/hip_abi.h"

#include <stddef.h>

/* HIP's headers have const here since version 7; the binary interface is the same. */
#define COPIES_FROM_HOST(name, ...)                                                                                  \
    _Static_assert(_Generic(name,                                                                                    \
                       hipError_t(*)(hipDeviceptr_t, const void *, __VA_ARGS__): 1,                                  \
                       hipError_t(*)(hipDeviceptr_t, void *, __VA_ARGS__): 1,                                        \
                       default: 0),                                                                                  \
                   #name " takes other parameters")
COPIES_FROM_HOST(hipMemcpyHtoD, size_t);
COPIES_FROM_HOST(hipMemcpyHtoDAsync, size_t, hipStream_t);
#define hipMemcpyHtoD rf_compared_above
#define hipMemcpyHtoDAsync rf_compared_above_async

/* A redeclaration that differs from the vendor's does not compile, and says where. */
#define REDECLARE(result, name, parameters) result name parameters;
SIM_PROTOTYPES(REDECLARE)

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)
SAME(SIM_OK, hipSuccess);
SAME(SIM_INVALID_VALUE, hipErrorInvalidValue);
SAME(SIM_OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME(SIM_NOT_INITIALIZED, hipErrorNotInitialized);
SAME(SIM_INVALID_CONFIGURATION, hipErrorInvalidConfiguration);
SAME(SIM_NO_DEVICE, hipErrorNoDevice);
SAME(SIM_INVALID_DEVICE, hipErrorInvalidDevice);
SAME(SIM_INVALID_IMAGE, hipErrorInvalidImage);
SAME(SIM_NO_BINARY, hipErrorNoBinaryForGpu);
SAME(SIM_LIBRARY_FAILED, hipErrorSharedObjectInitFailed);
SAME(SIM_INVALID_HANDLE, hipErrorInvalidHandle);
SAME(SIM_ILLEGAL_STATE, hipErrorIllegalState);
SAME(SIM_NOT_FOUND, hipErrorNotFound);
SAME(SIM_NOT_READY, hipErrorNotReady);
SAME(SIM_ILLEGAL_ADDRESS, hipErrorIllegalAddress);
SAME(SIM_OUT_OF_RESOURCES, hipErrorLaunchOutOfResources);
SAME(SIM_LAUNCH_TIMEOUT, hipErrorLaunchTimeOut);
SAME(SIM_LAUNCH_FAILURE, hipErrorLaunchFailure);
SAME(SIM_NOT_SUPPORTED, hipErrorNotSupported);
SAME(SIM_CAPTURE_UNSUPPORTED, hipErrorStreamCaptureUnsupported);
SAME(SIM_CAPTURE_INVALIDATED, hipErrorStreamCaptureInvalidated);
SAME(SIM_CAPTURE_ISOLATION, hipErrorStreamCaptureIsolation);
SAME(SIM_CAPTURE_IMPLICIT, hipErrorStreamCaptureImplicit);
SAME(SIM_CAPTURED_EVENT, hipErrorCapturedEvent);
SAME(SIM_CAPTURE_WRONG_THREAD, hipErrorStreamCaptureWrongThread);
SAME(SIM_UNKNOWN, hipErrorUnknown);

SAME(SIM_ATTR_ECC, hipDeviceAttributeEccEnabled);
SAME(SIM_ATTR_CAN_MAP_HOST, hipDeviceAttributeCanMapHostMemory);
SAME(SIM_ATTR_CLOCK_KHZ, hipDeviceAttributeClockRate);
SAME(SIM_ATTR_COMPUTE_MODE, hipDeviceAttributeComputeMode);
SAME(SIM_ATTR_CONCURRENT_KERNELS, hipDeviceAttributeConcurrentKernels);
SAME(SIM_ATTR_INTEGRATED, hipDeviceAttributeIntegrated);
SAME(SIM_ATTR_KERNEL_TIMEOUT, hipDeviceAttributeKernelExecTimeout);
SAME(SIM_ATTR_L2_BYTES, hipDeviceAttributeL2CacheSize);
SAME(SIM_ATTR_MAJOR, hipDeviceAttributeComputeCapabilityMajor);
SAME(SIM_ATTR_MINOR, hipDeviceAttributeComputeCapabilityMinor);
SAME(SIM_ATTR_MANAGED, hipDeviceAttributeManagedMemory);
SAME(SIM_ATTR_BLOCK_X, hipDeviceAttributeMaxBlockDimX);
SAME(SIM_ATTR_BLOCK_Y, hipDeviceAttributeMaxBlockDimY);
SAME(SIM_ATTR_BLOCK_Z, hipDeviceAttributeMaxBlockDimZ);
SAME(SIM_ATTR_GRID_X, hipDeviceAttributeMaxGridDimX);
SAME(SIM_ATTR_GRID_Y, hipDeviceAttributeMaxGridDimY);
SAME(SIM_ATTR_GRID_Z, hipDeviceAttributeMaxGridDimZ);
SAME(SIM_ATTR_THREADS_PER_BLOCK, hipDeviceAttributeMaxThreadsPerBlock);
SAME(SIM_ATTR_THREADS_PER_UNIT, hipDeviceAttributeMaxThreadsPerMultiProcessor);
SAME(SIM_ATTR_BUS_BITS, hipDeviceAttributeMemoryBusWidth);
SAME(SIM_ATTR_MEMORY_KHZ, hipDeviceAttributeMemoryClockRate);
SAME(SIM_ATTR_UNITS, hipDeviceAttributeMultiprocessorCount);
SAME(SIM_ATTR_PCI_BUS, hipDeviceAttributePciBusId);
SAME(SIM_ATTR_PCI_DEVICE, hipDeviceAttributePciDeviceId);
SAME(SIM_ATTR_PCI_DOMAIN, hipDeviceAttributePciDomainID);
SAME(SIM_ATTR_REGISTERS_PER_BLOCK, hipDeviceAttributeMaxRegistersPerBlock);
SAME(SIM_ATTR_SHARED_PER_BLOCK, hipDeviceAttributeMaxSharedMemoryPerBlock);
SAME(SIM_ATTR_SHARED_PER_BLOCK_OPTIN, hipDeviceAttributeSharedMemPerBlockOptin);
SAME(SIM_ATTR_PRIORITIES, hipDeviceAttributeStreamPrioritiesSupported);
SAME(SIM_ATTR_CONSTANT_BYTES, hipDeviceAttributeTotalConstantMemory);
SAME(SIM_ATTR_UNIFIED, hipDeviceAttributeUnifiedAddressing);
SAME(SIM_ATTR_WARP, hipDeviceAttributeWarpSize);
SAME(SIM_ATTR_PHYSICAL_UNITS, hipDeviceAttributePhysicalMultiProcessorCount);

SAME(SIM_FUNC_MAX_THREADS, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(SIM_FUNC_SHARED_BYTES, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(SIM_FUNC_CONST_BYTES, HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
SAME(SIM_FUNC_LOCAL_BYTES, HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(SIM_FUNC_REGISTERS, HIP_FUNC_ATTRIBUTE_NUM_REGS);

SAME(SIM_FUNC_DYNAMIC_SHARED, HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(SIM_FUNC_SET_DYNAMIC_SHARED, hipFuncAttributeMaxDynamicSharedMemorySize);
SAME(SIM_FUNC_SET_CARVEOUT, hipFuncAttributePreferredSharedMemoryCarveout);

SAME(SIM_CAPTURE_GLOBAL, hipStreamCaptureModeGlobal);
SAME(SIM_CAPTURE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal);
SAME(SIM_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed);
SAME(0, hipStreamCaptureStatusNone);
SAME(1, hipStreamCaptureStatusActive);
SAME(2, hipStreamCaptureStatusInvalidated);

SAME(SIM_STREAM_NON_BLOCKING, hipStreamNonBlocking);
SAME(SIM_EVENT_DISABLE_TIMING, hipEventDisableTiming);

SAME(sizeof(hipUUID), 16);
SAME(sizeof(hipDeviceptr_t), sizeof(void *));
SAME(sizeof(hipError_t), sizeof(int));

#if HIP_VERSION_MAJOR == 5
SAME(SIM_PROP5_BYTES, sizeof(hipDeviceProp_t));
SAME(SIM_PROP5_TOTAL, offsetof(hipDeviceProp_t, totalGlobalMem));
SAME(SIM_PROP5_SHARED, offsetof(hipDeviceProp_t, sharedMemPerBlock));
SAME(SIM_PROP5_WARP, offsetof(hipDeviceProp_t, warpSize));
SAME(SIM_PROP5_MAX_THREADS, offsetof(hipDeviceProp_t, maxThreadsPerBlock));
SAME(SIM_PROP5_MAJOR, offsetof(hipDeviceProp_t, major));
SAME(SIM_PROP5_UNITS, offsetof(hipDeviceProp_t, multiProcessorCount));
SAME(SIM_PROP5_PCI_DOMAIN, offsetof(hipDeviceProp_t, pciDomainID));
SAME(SIM_PROP5_PCI_DOMAIN + 4, offsetof(hipDeviceProp_t, pciBusID));
SAME(SIM_PROP5_ARCH, offsetof(hipDeviceProp_t, gcnArchName));
SAME(SIM_PROP5_INTEGRATED, offsetof(hipDeviceProp_t, integrated));
#elif HIP_VERSION_MAJOR >= 6
SAME(SIM_PROP6_BYTES, sizeof(hipDeviceProp_t));
SAME(SIM_PROP6_UUID, offsetof(hipDeviceProp_t, uuid));
SAME(SIM_PROP6_TOTAL, offsetof(hipDeviceProp_t, totalGlobalMem));
SAME(SIM_PROP6_SHARED, offsetof(hipDeviceProp_t, sharedMemPerBlock));
SAME(SIM_PROP6_WARP, offsetof(hipDeviceProp_t, warpSize));
SAME(SIM_PROP6_MAX_THREADS, offsetof(hipDeviceProp_t, maxThreadsPerBlock));
SAME(SIM_PROP6_MAJOR, offsetof(hipDeviceProp_t, major));
SAME(SIM_PROP6_UNITS, offsetof(hipDeviceProp_t, multiProcessorCount));
SAME(SIM_PROP6_INTEGRATED, offsetof(hipDeviceProp_t, integrated));
SAME(SIM_PROP6_PCI_BUS, offsetof(hipDeviceProp_t, pciBusID));
SAME(SIM_PROP6_ARCH, offsetof(hipDeviceProp_t, gcnArchName));
#endif
