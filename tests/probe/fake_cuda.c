/* A CUDA driver with one well-behaved device that runs no kernel: a launch does nothing. Tests may look at its counts
 * with dlsym: see fake_cuda_counts. */
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    case 1:
    case 2:
    case 3: *value = 1024; return 0;
    case 4: *value = 64; return 0;
    case 5: *value = INT_MAX; return 0;
    case 6:
    case 7: *value = 65535; return 0;
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

/* ---- memory, streams and events: everything is done when the call returns ---- */

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)80 << 30;
    return 0;
}
EXPORT int cuMemAlloc_v2(void **pointer, size_t bytes);
EXPORT int cuMemAlloc_v2(void **pointer, size_t bytes) {
    *pointer = calloc(1, bytes);
    return *pointer ? 0 : 2;
}
EXPORT int cuMemFree_v2(void *pointer);
EXPORT int cuMemFree_v2(void *pointer) {
    free(pointer);
    return 0;
}
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    return cuMemAlloc_v2(pointer, bytes);
}
EXPORT int cuMemFreeHost(void *pointer);
EXPORT int cuMemFreeHost(void *pointer) {
    return cuMemFree_v2(pointer);
}
#define COPY(name)                                                                                                   \
    EXPORT int name(void *to, const void *from, size_t bytes, void *stream);                                         \
    EXPORT int name(void *to, const void *from, size_t bytes, void *stream) {                                        \
        (void)stream;                                                                                                \
        memcpy(to, from, bytes);                                                                                     \
        return 0;                                                                                                    \
    }
COPY(cuMemcpyHtoDAsync_v2)
COPY(cuMemcpyDtoHAsync_v2)
COPY(cuMemcpyDtoDAsync_v2)
EXPORT int cuMemsetD8Async(void *to, unsigned char value, size_t bytes, void *stream);
EXPORT int cuMemsetD8Async(void *to, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    memset(to, value, bytes);
    return 0;
}
static char a_stream, an_event;
EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *stream = &a_stream;
    return 0;
}
EXPORT int cuEventCreate(void **event, unsigned flags);
EXPORT int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = &an_event;
    return 0;
}
EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end);
EXPORT int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    (void)start, (void)end;
    *milliseconds = 0;
    return 0;
}
#define ALWAYS_DONE(name)                                                                                            \
    EXPORT int name(void);                                                                                           \
    EXPORT int name(void) {                                                                                          \
        return 0;                                                                                                    \
    }
ALWAYS_DONE(cuStreamDestroy_v2)
ALWAYS_DONE(cuStreamWaitEvent)
ALWAYS_DONE(cuEventDestroy_v2)
ALWAYS_DONE(cuEventRecord)
ALWAYS_DONE(cuEventQuery)
ALWAYS_DONE(cuLaunchKernel)

/* Keeps what it was asked for; the map's first bytes count the calls. */
static struct fake_cuda_map {
    int calls, type, interleave, swizzle, promotion, outside;
    uint32_t rank, box[2], steps[2];
    uint64_t sizes[2], stride;
    void *base;
} last_map;
EXPORT struct fake_cuda_map *fake_cuda_map(void);
EXPORT struct fake_cuda_map *fake_cuda_map(void) {
    return &last_map;
}
EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *base, const uint64_t *sizes,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int outside);
EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *base, const uint64_t *sizes,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int outside) {
    if ((uintptr_t)map % 64 || rank != 2) return 1;
    last_map = (struct fake_cuda_map){.calls = last_map.calls + 1,
                                      .type = type,
                                      .interleave = interleave,
                                      .swizzle = swizzle,
                                      .promotion = promotion,
                                      .outside = outside,
                                      .rank = rank,
                                      .box = {box[0], box[1]},
                                      .steps = {steps[0], steps[1]},
                                      .sizes = {sizes[0], sizes[1]},
                                      .stride = strides[0],
                                      .base = base};
    memset(map, last_map.calls, 128);
    return 0;
}

/* ---- compiling and loading ----
 *
 * A library is made of one PTX text with one kernel; plain modules are refused. FAKE_CUDA_REFUSES names a kernel that
 * does not compile. The first compilation waits until a second one runs beside it, a minute at most, if
 * FAKE_CUDA_SIDE_BY_SIDE is set. */

static struct fake_cuda_counts {
    int compiled, side_by_side, loads, unloads, refused;
} counts;
static int running;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

EXPORT struct fake_cuda_counts *fake_cuda_counts(void);
EXPORT struct fake_cuda_counts *fake_cuda_counts(void) {
    return &counts;
}

EXPORT int cuLibraryLoadData(void **library, const void *image, int *options, void **values, unsigned count,
                             int *library_options, void **library_values, unsigned library_count);
EXPORT int cuLibraryLoadData(void **library, const void *image, int *options, void **values, unsigned count,
                             int *library_options, void **library_values, unsigned library_count) {
    const char *entry = strstr(image, ".entry "), *refuses = getenv("FAKE_CUDA_REFUSES");
    (void)library_options, (void)library_values, (void)library_count;
    bool one = current && strstr(image, ".version") && entry && !strstr(entry + 1, ".entry ");
    char name[128] = "";
    if (one) snprintf(name, sizeof name, "%.*s", (int)strcspn(entry + 7, "("), entry + 7);
    bool refused = !one || (refuses && !strcmp(name, refuses));
    pthread_mutex_lock(&mutex);
    counts.compiled++;
    counts.refused += refused;
    if (++running > counts.side_by_side) counts.side_by_side = running;
    pthread_cond_broadcast(&changed);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    while (getenv("FAKE_CUDA_SIDE_BY_SIDE") && counts.side_by_side < 2)
        if (pthread_cond_timedwait(&changed, &mutex, &until)) break;
    running--;
    pthread_mutex_unlock(&mutex);
    for (unsigned i = 0; i < count; i++)
        if (refused && options[i] == 5) strcpy(values[i], "line 7: no such instruction\nline 8: more\n");
    if (!refused) *library = strdup(name);
    return refused ? 218 : 0;
}
EXPORT int cuLibraryGetModule(void **module, void *library);
EXPORT int cuLibraryGetModule(void **module, void *library) {
    counts.loads++;
    *module = library;
    return 0;
}
EXPORT int cuLibraryUnload(void *library);
EXPORT int cuLibraryUnload(void *library) {
    counts.unloads++;
    free(library);
    return 0;
}
EXPORT int cuModuleLoadData(void **module, const void *image);
EXPORT int cuModuleLoadData(void **module, const void *image) {
    (void)module, (void)image;
    return 200;
}
EXPORT int cuModuleUnload(void *module);
EXPORT int cuModuleUnload(void *module) {
    (void)module;
    return 400;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(module, name) ? 500 : 0;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function);
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
    (void)function;
    *value = attribute == 0 ? 1024 : attribute == 4 ? 40 : 0;
    return 0;
}
