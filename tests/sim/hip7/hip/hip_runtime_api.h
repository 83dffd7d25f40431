/* Stands in for the header of HIP 7: the installed header with the two declarations that differ there. The source of
 * a copy to the device is const since HIP 7. */
#define hipMemcpyHtoD rf_not_of_hip_7
#define hipMemcpyHtoDAsync rf_not_of_hip_7_async
#include_next <hip/hip_runtime_api.h>
#undef hipMemcpyHtoD
#undef hipMemcpyHtoDAsync

hipError_t hipMemcpyHtoD(hipDeviceptr_t to, const void *from, size_t bytes);
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void *from, size_t bytes, hipStream_t stream);
