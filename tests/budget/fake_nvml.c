/* A library with NVML's entry points and made-up answers, for the witness's tests.
 *
 * FAKE: today's entry points. FAKE_OLD: only those of long ago. FAKE_BROKEN: not NVML at all.
 * GPU-5a…: known; …01: lost, no memory figure; …02: nonsense figures; …03: drives a display;
 * …04: this process is not listed; …05: listed without a figure; …06: display unknown; …07: it has no connector.
 * …08: its list grows by four processes with every call.
 * All but …07 say that a display could be connected, as real ones do. */
#include <string.h>
#include <unistd.h>

#if defined(FAKE_BROKEN)
int nvmlShutdown(void);
int nvmlShutdown(void) {
    return 0;
}
#else

struct memory {
    unsigned long long total, free, used;
};
struct process_1 {
    unsigned pid;
    unsigned long long used;
};
struct process_2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

int fake_nvml_started;
static int devices[16];

#if defined(FAKE_OLD)
int nvmlInit(void);
int nvmlInit(void)
#else
int nvmlInit_v2(void);
int nvmlInit_v2(void)
#endif
{
    fake_nvml_started++;
    return 0;
}
int nvmlShutdown(void);
int nvmlShutdown(void) {
    fake_nvml_started--;
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strncmp(uuid, "GPU-5a", 6) != 0 || strlen(uuid) != 40) return 6;
    *device = &devices[uuid[39] - '0'];
    return 0;
}
#if defined(FAKE_OLD)
int nvmlDeviceGetHandleByPciBusId(const char *pci, void **device);
int nvmlDeviceGetHandleByPciBusId(const char *pci, void **device)
#else
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
#endif
{
    if (strcmp(pci, "0000:65:00.0") != 0) return 6;
    *device = &devices[0];
    return 0;
}
static long number(void *device) {
    return (int *)device - devices;
}
int nvmlDeviceGetMemoryInfo(void *device, void *memory);
int nvmlDeviceGetMemoryInfo(void *device, void *memory) {
    if (number(device) == 1) return 15;
    *(struct memory *)memory = (struct memory){1000, number(device) == 2 ? 1001 : 600, 400};
    return 0;
}

static unsigned grown(void *device) {
    static unsigned calls;
    return number(device) == 8 ? 4 * calls++ : 0;
}

/* 40 others first: more than a first guess of the list's length has room for. */
#define OTHERS 40
#define FILL(type, list, count)                                                                                      \
    do {                                                                                                             \
        unsigned room = *(count), all = OTHERS + (number(device) != 4) + grown(device);                              \
        *(count) = all;                                                                                              \
        if (room < all) return 7;                                                                                    \
        for (unsigned i = 0; i < all; i++)                                                                           \
            ((type *)(list))[i] = (type){.pid = i != OTHERS ? 0x7fffff00u + i : (unsigned)getpid(),                  \
                                         .used = number(device) == 5 ? ~0ULL                                         \
                                                 : i != OTHERS       ? 7                                             \
                                                                     : 123};                                               \
    } while (0)

#if defined(FAKE_OLD)
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *list);
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *list) {
    FILL(struct process_1, list, count);
    return 0;
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list) {
    FILL(struct process_2, list, count);
    return 0;
}
int nvmlDeviceGetDisplayActive(void *device, int *enabled);
int nvmlDeviceGetDisplayActive(void *device, int *enabled) {
    if (number(device) >= 6) return 3;
    *enabled = number(device) == 3;
    return 0;
}
int nvmlDeviceGetDisplayMode(void *device, int *enabled);
int nvmlDeviceGetDisplayMode(void *device, int *enabled) {
    *enabled = number(device) != 7;
    return 0;
}
#endif
#endif
