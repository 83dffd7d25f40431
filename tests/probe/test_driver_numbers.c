/* The numbers in the driver tables against the vendors' own headers, where those are
 * installed. Checked while compiling where a constant allows it, else by the tests. */
#include "gpu/driver_impl.h"

#include <rocmforge/test.h>

#if defined(__has_include)
#if __has_include(<hip/hip_runtime_api.h>)
#define HAVE_HIP 1
#define __HIP_PLATFORM_AMD__ 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <hip/hip_runtime_api.h>
#pragma GCC diagnostic pop
#endif
#if __has_include("/usr/local/cuda/include/cuda.h")
#define HAVE_CUDA 1
#include "/usr/local/cuda/include/cuda.h"
#elif __has_include(<cuda.h>)
#define HAVE_CUDA 1
#include <cuda.h>
#endif
#endif

#ifdef HAVE_HIP
#define SAME(theirs, ours) _Static_assert((int)(theirs) == (int)(ours), #theirs)
SAME(hipErrorOutOfMemory, RF_DRV_OUT_OF_MEMORY);
SAME(hipErrorNotInitialized, RF_DRV_NOT_INITIALIZED);
SAME(hipErrorNoDevice, RF_DRV_NO_DEVICE);
SAME(hipErrorInvalidDevice, RF_DRV_INVALID_DEVICE);
SAME(hipErrorInvalidImage, RF_DRV_INVALID_IMAGE);
SAME(hipErrorNoBinaryForGpu, RF_DRV_NO_BINARY);
SAME(hipErrorNotReady, RF_DRV_NOT_READY);
SAME(hipErrorIllegalAddress, RF_DRV_ILLEGAL_ADDRESS);
SAME(hipErrorLaunchOutOfResources, RF_DRV_LAUNCH_OUT_OF_RESOURCES);
SAME(hipErrorLaunchTimeOut, RF_DRV_LAUNCH_TIMEOUT);
SAME(hipErrorLaunchFailure, RF_DRV_LAUNCH_FAILED);
SAME(hipErrorUnknown, RF_DRV_UNKNOWN);
SAME(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, RF_FUNC_MAX_THREADS);
SAME(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, RF_FUNC_SHARED_BYTES);
SAME(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, RF_FUNC_LOCAL_BYTES);
SAME(HIP_FUNC_ATTRIBUTE_NUM_REGS, RF_FUNC_REGISTERS);
SAME(hipEventDisableTiming, RF_EVENT_DISABLE_TIMING);
SAME(hipStreamNonBlocking, RF_STREAM_NON_BLOCKING);
SAME(hipStreamCaptureModeRelaxed, RF_CAPTURE_RELAXED);
SAME(hipErrorStreamCaptureInvalidated, RF_DRV_CAPTURE_INVALIDATED);
#endif

RF_TEST(driver_numbers, hip) {
#ifdef HAVE_HIP
    const int *have = rf_driver_vendor_hip.attributes;
    RF_ASSERT_INT(have[RF_ATTR_MAX_THREADS_PER_BLOCK], hipDeviceAttributeMaxThreadsPerBlock);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_X], hipDeviceAttributeMaxBlockDimX);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_Y], hipDeviceAttributeMaxBlockDimY);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_Z], hipDeviceAttributeMaxBlockDimZ);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_X], hipDeviceAttributeMaxGridDimX);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_Y], hipDeviceAttributeMaxGridDimY);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_Z], hipDeviceAttributeMaxGridDimZ);
    RF_ASSERT_INT(have[RF_ATTR_MAX_SHARED_PER_BLOCK], hipDeviceAttributeMaxSharedMemoryPerBlock);
    RF_ASSERT_INT(have[RF_ATTR_WARP_SIZE], hipDeviceAttributeWarpSize);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_UNITS], hipDeviceAttributeMultiprocessorCount);
    RF_ASSERT_INT(have[RF_ATTR_PHYSICAL_COMPUTE_UNITS], hipDeviceAttributePhysicalMultiProcessorCount);
    RF_ASSERT_INT(have[RF_ATTR_INTEGRATED], hipDeviceAttributeIntegrated);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_MAJOR], hipDeviceAttributeComputeCapabilityMajor);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_MINOR], hipDeviceAttributeComputeCapabilityMinor);
#if HIP_VERSION_MAJOR >= 6
    RF_ASSERT_INT(offsetof(hipDeviceProp_t, gcnArchName), 1160);
#else
    RF_ASSERT_INT(offsetof(hipDeviceProp_t, gcnArchName), 396);
#endif
    RF_ASSERT_INT(sizeof(((hipDeviceProp_t *)0)->gcnArchName), 256);
#else
    RF_SKIP("HIP's headers are not installed");
#endif
}

RF_TEST(driver_numbers, cuda) {
#ifdef HAVE_CUDA
    const int *have = rf_driver_vendor_cuda.attributes;
    RF_ASSERT_INT(have[RF_ATTR_MAX_THREADS_PER_BLOCK], CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_X], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_Y], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    RF_ASSERT_INT(have[RF_ATTR_MAX_BLOCK_Z], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_X], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_Y], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    RF_ASSERT_INT(have[RF_ATTR_MAX_GRID_Z], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    RF_ASSERT_INT(have[RF_ATTR_MAX_SHARED_PER_BLOCK], CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    RF_ASSERT_INT(have[RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN], CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    RF_ASSERT_INT(have[RF_ATTR_WARP_SIZE], CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_UNITS], CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    RF_ASSERT_INT(have[RF_ATTR_INTEGRATED], CU_DEVICE_ATTRIBUTE_INTEGRATED);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_MAJOR], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    RF_ASSERT_INT(have[RF_ATTR_COMPUTE_MINOR], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    RF_ASSERT_INT(RF_DRV_NOT_READY, CUDA_ERROR_NOT_READY);
    RF_ASSERT_INT(RF_DRV_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    RF_ASSERT_INT(RF_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
    RF_ASSERT_INT(RF_DRV_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
    RF_ASSERT_INT(RF_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
    RF_ASSERT_INT(RF_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
#else
    RF_SKIP("CUDA's headers are not installed");
#endif
}

/* Nothing that waits for a whole device or resets it is looked up, by either name. */
RF_TEST(driver_numbers, nothing_banned) {
    const struct rf_driver_vendor *const vendors[] = {&rf_driver_vendor_hip, &rf_driver_vendor_cuda};
    for (size_t v = 0; v < 2; v++)
        for (size_t i = 0; i < vendors[v]->symbol_count; i++) {
            const char *name = vendors[v]->symbols[i].name, *other = vendors[v]->symbols[i].alternative;
            RF_ASSERT(!strstr(name, "Synchronize") && !strstr(name, "Reset"));
            RF_ASSERT(!other || (!strstr(other, "Synchronize") && !strstr(other, "Reset")));
        }
}
