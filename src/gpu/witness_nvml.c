/* NVIDIA's management library as a witness: free memory, this process's use and the display,
 * without a GPU context.
 *
 * The library is opened with RTLD_NOW | RTLD_LOCAL and never closed: it keeps threads and file descriptors of its
 * own. Its structs are written down here as the public API documents them; each entry point is optional, except those
 * that find a device. */
#include "gpu/witness_impl.h"
#include "base/descriptors.h"
#include "base/float_mode.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define USUAL_NAME "libnvidia-ml.so.1"
#define NOT_AVAILABLE UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE */
#define PROCESSES_MAX 65536u

enum nvml_code { NVML_OK = 0, NVML_INSUFFICIENT_SIZE = 7 };

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process_1 { /* the plain entry point */
    unsigned int pid;
    unsigned long long used;
};
struct nvml_process_2 { /* _v2 and _v3 */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

struct rf_nvml {
    void *device;
    int (*shutdown)(void);
    int (*memory)(void *device, void *memory);                   /* struct nvml_memory */
    int (*processes)(void *device, unsigned *count, void *list); /* optional */
    size_t process_bytes;
    int (*display_active)(void *device, int *enabled); /* optional */
    int (*display_mode)(void *device, int *enabled);   /* optional */
};

/* dlsym gives an object pointer; POSIX promises that it can be converted to a function pointer. */
static bool find(void *library, const char *name, void *entry) {
    void *symbol = dlsym(library, name);
    if (symbol) memcpy(entry, &symbol, sizeof symbol);
    return symbol != NULL;
}

rf_status rf_nvml_memory(struct rf_nvml *nvml, uint64_t *free_bytes, uint64_t *total_bytes) {
    struct nvml_memory memory = {0};
    int code = nvml->memory(nvml->device, &memory);
    if (code != NVML_OK) return rf_fail(RF_E_UNSUPPORTED, "NVML does not tell this GPU's memory (code %d)", code);
    if (!memory.total || memory.free > memory.total)
        return rf_fail(RF_E_UNSUPPORTED, "NVML says %llu of %llu bytes are free, which cannot be", memory.free,
                       memory.total);
    *free_bytes = memory.free;
    *total_bytes = memory.total;
    return RF_OK;
}

/* The list may grow between two calls, so the function loops. The list has pids of the driver's own namespace, so a
 * pid that is not in it may still use the GPU. */
rf_status rf_nvml_process(struct rf_nvml *nvml, uint64_t *bytes) {
    if (!nvml->processes) return rf_fail(RF_E_UNSUPPORTED, "this NVML does not list processes");
    unsigned char *list = NULL;
    unsigned room = 32, count = 0;
    int code = NVML_INSUFFICIENT_SIZE;
    while (code == NVML_INSUFFICIENT_SIZE && room <= PROCESSES_MAX) {
        free(list);
        list = calloc(room, nvml->process_bytes);
        if (!list) return rf_fail(RF_E_NO_MEMORY, "no memory for NVML's list of %u processes", room);
        count = room;
        code = nvml->processes(nvml->device, &count, list);
        if (code == NVML_INSUFFICIENT_SIZE) room = count > room && count < PROCESSES_MAX ? count + 8 : 2 * room;
    }
    bool listed = false;
    uint64_t sum = 0;
    for (unsigned i = 0; code == NVML_OK && i < RF_MIN(count, room); i++) {
        struct nvml_process_1 process; /* the head of both layouts */
        memcpy(&process, list + i * nvml->process_bytes, sizeof process);
        if (process.pid != (unsigned)getpid() || process.used == NOT_AVAILABLE) continue;
        listed = true;
        sum += process.used;
    }
    free(list);
    if (code != NVML_OK) return rf_fail(RF_E_UNSUPPORTED, "NVML does not list this GPU's processes (code %d)", code);
    if (!listed)
        return rf_fail(RF_E_UNSUPPORTED, "NVML does not say what this process holds: not listed, as in a container, "
                                         "or without a figure");
    *bytes = sum;
    return RF_OK;
}

/* The "display mode" says whether a display could be connected, and says yes even on GPUs without any connector. Only
 * a no is useful, and only where no better information exists. */
enum rf_tristate rf_nvml_display(struct rf_nvml *nvml) {
    int active = 0, connected = 0;
    if (nvml->display_active && nvml->display_active(nvml->device, &active) == NVML_OK)
        return active ? RF_YES : RF_NO;
    if (nvml->display_mode && nvml->display_mode(nvml->device, &connected) == NVML_OK && !connected) return RF_NO;
    return RF_UNKNOWN;
}

static bool find_device(void *library, const char *uuid, const char *pci, void **device) {
    int (*by_uuid)(const char *uuid, void **device);
    int (*by_pci)(const char *pci, void **device);
    char text[96];
    if (uuid[0] && find(library, "nvmlDeviceGetHandleByUUID", &by_uuid)) {
        bool prefixed = strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0;
        snprintf(text, sizeof text, "%s%s", prefixed ? "" : "GPU-", uuid);
        if (by_uuid(text, device) == NVML_OK && *device) return true;
    }
    if (!pci[0]) return false;
    if (!find(library, "nvmlDeviceGetHandleByPciBusId_v2", &by_pci) &&
        !find(library, "nvmlDeviceGetHandleByPciBusId", &by_pci))
        return false;
    return by_pci(pci, device) == NVML_OK && *device;
}

static rf_status open_nvml(const char *library_name, const char *uuid, const char *pci, struct rf_nvml **out);

rf_status rf_nvml_open(const char *library_name, const char *uuid, const char *pci, struct rf_nvml **out) {
    struct rf_held_fds held;
    struct rf_float_mode mode = rf_float_mode_get(); /* as around a driver's start: see driver.c */
    rf_hold_standard_fds(&held);
    rf_status status = open_nvml(library_name, uuid, pci, out);
    rf_release_standard_fds(&held);
    rf_float_mode_set(mode);
    return status;
}

static rf_status open_nvml(const char *library_name, const char *uuid, const char *pci, struct rf_nvml **out) {
    int (*init)(void) = NULL;
    const char *name = library_name ? library_name : USUAL_NAME;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return rf_fail(RF_E_UNSUPPORTED, "%s cannot be opened: %s", name, why ? why : "no reason given");
    }
    struct rf_nvml *nvml = calloc(1, sizeof *nvml);
    if (!nvml) return rf_fail(RF_E_NO_MEMORY, "no memory for NVML");
    rf_status status = RF_OK;
    if ((!find(library, "nvmlInit_v2", &init) && !find(library, "nvmlInit", &init)) ||
        !find(library, "nvmlShutdown", &nvml->shutdown) || !find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory))
        status = rf_fail(RF_E_UNSUPPORTED, "%s is no NVML: an entry point is missing", name);
    int code = status ? NVML_OK : init();
    if (code != NVML_OK) status = rf_fail(RF_E_UNSUPPORTED, "NVML does not start (code %d)", code);
    if (!status && !find_device(library, uuid, pci, &nvml->device)) {
        nvml->shutdown(); /* NVML counts these calls: other users of NVML are not affected */
        status =
            rf_fail(RF_E_UNSUPPORTED, "NVML does not know GPU %s at %s", uuid[0] ? uuid : "?", pci[0] ? pci : "?");
    }
    if (status) {
        free(nvml);
        return status;
    }
    if (find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes) ||
        find(library, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml->processes))
        nvml->process_bytes = sizeof(struct nvml_process_2);
    else if (find(library, "nvmlDeviceGetComputeRunningProcesses", &nvml->processes))
        nvml->process_bytes = sizeof(struct nvml_process_1);
    find(library, "nvmlDeviceGetDisplayActive", &nvml->display_active);
    find(library, "nvmlDeviceGetDisplayMode", &nvml->display_mode);
    *out = nvml;
    return RF_OK;
}

void rf_nvml_close(struct rf_nvml **nvml) {
    if (!nvml || !*nvml) return;
    (*nvml)->shutdown();
    free(*nvml);
    *nvml = NULL;
}
