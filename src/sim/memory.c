/* Device and pinned memory, copies and fills.
 *
 * Each allocation is a host allocation of its own, exactly as large as asked, so that address sanitizer sees every
 * overflow and every use after hipFree. Small ones are filled with garbage from the seed; large ones map a file of
 * such garbage copy-on-write, so that a simulated 16 GiB costs only what is written to it. Freed memory is scribbled
 * on before it goes. */
#include "sim/sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES ((uint64_t)8 << 20)
#define GARBAGE_FILE_BYTES ((uint64_t)4 << 20)
#define PAGE ((uint64_t)4096)
#define STAGED_BYTES ((size_t)64 << 10)

/* Sorted by address. */
static struct sim_allocation *allocations;
static size_t allocation_count, allocation_capacity;
static int garbage_file = -1;

static size_t position_of(const void *pointer) { /* index of the first allocation that begins after it */
    size_t low = 0, high = allocation_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)allocations[middle].base <= (uintptr_t)pointer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct sim_allocation *sim_find_allocation(const void *pointer, uint64_t bytes) {
    size_t position = position_of(pointer);
    if (!position) return NULL;
    const struct sim_allocation *found = &allocations[position - 1];
    uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)found->base);
    return offset < found->bytes && bytes <= found->bytes - offset ? found : NULL;
}

static bool reserve_entry(void) {
    if (allocation_count < allocation_capacity) return true;
    size_t capacity = allocation_capacity ? allocation_capacity * 2 : 64;
    struct sim_allocation *grown = realloc(allocations, capacity * sizeof *grown);
    if (!grown) return false;
    allocations = grown;
    allocation_capacity = capacity;
    return true;
}

static void insert(const struct sim_allocation *added) { /* after reserve_entry */
    size_t position = position_of(added->base);
    memmove(allocations + position + 1, allocations + position, (allocation_count - position) * sizeof *allocations);
    allocations[position] = *added;
    allocation_count++;
}

/* Removes the allocation that begins at pointer. */
static bool take_out(const void *pointer, bool pinned, struct sim_allocation *taken) {
    size_t position = position_of(pointer);
    if (!position || allocations[position - 1].base != pointer || (allocations[position - 1].device < 0) != pinned)
        return false;
    *taken = allocations[position - 1];
    memmove(allocations + position - 1, allocations + position, (allocation_count - position) * sizeof *allocations);
    allocation_count--;
    return true;
}

/* ---- host memory behind it ---- */

static void fill_garbage(char *to, uint64_t bytes, uint64_t seed) {
    uint64_t state = seed;
    uint64_t block[64];
    for (size_t i = 0; i < 64; i++) block[i] = sim_random(&state);
    for (uint64_t done = 0; done < bytes; done += sizeof block) {
        uint64_t part = bytes - done < sizeof block ? bytes - done : sizeof block;
        memcpy(to + done, block, part);
    }
}

static int open_garbage_file(void) {
    if (garbage_file >= 0) return garbage_file;
    int file = memfd_create("rfsim-garbage", MFD_CLOEXEC);
    if (file >= 0 && file <= STDERR_FILENO) { /* a program without standard streams must not print into it */
        int low = file;
        file = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(low);
    }
    if (file < 0 || ftruncate(file, (off_t)GARBAGE_FILE_BYTES) != 0) {
        if (file >= 0) close(file);
        return -1;
    }
    char *mapped = mmap(NULL, GARBAGE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        close(file);
        return -1;
    }
    fill_garbage(mapped, GARBAGE_FILE_BYTES, sim.config.seed);
    munmap(mapped, GARBAGE_FILE_BYTES);
    garbage_file = file;
    return file;
}

static bool map_large(struct sim_allocation *allocation) {
    int file = open_garbage_file();
    uint64_t usable = (allocation->bytes + PAGE - 1) / PAGE * PAGE;
    if (file < 0) return false;
    /* An inaccessible page after it catches overruns. */
    char *base = mmap(NULL, usable + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    for (uint64_t at = 0; at < usable; at += GARBAGE_FILE_BYTES) {
        uint64_t part = usable - at < GARBAGE_FILE_BYTES ? usable - at : GARBAGE_FILE_BYTES;
        if (mmap(base + at, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) ==
            MAP_FAILED) {
            munmap(base, usable + PAGE);
            return false;
        }
    }
    allocation->base = base;
    allocation->mapped_bytes = usable + PAGE;
    return true;
}

static bool back(struct sim_allocation *allocation, size_t alignment) {
    static uint64_t serial;
    if (allocation->bytes >= LARGE_BYTES) return map_large(allocation);
    void *base = NULL;
    if (posix_memalign(&base, alignment, allocation->bytes) != 0) return false;
    fill_garbage(base, allocation->bytes, sim.config.seed + ++serial);
    allocation->base = base;
    return true;
}

static void unback(const struct sim_allocation *allocation) {
    if (allocation->mapped_bytes) {
        munmap(allocation->base, allocation->mapped_bytes);
        return;
    }
    memset(allocation->base, 0xdd, allocation->bytes);
    free(allocation->base);
}

/* ---- allocating ---- */

hipError_t hipMalloc(void **pointer, size_t bytes) {
    int code = sim_enter(SIM_ENTRY_hipMalloc);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    if (!pointer || !bytes) return SIM_INVALID_VALUE;
    struct sim_device *device = sim_current();
    struct sim_allocation allocation = {.bytes = bytes, .device = device->index};
    sim_lock(&sim.lock);
    code = sim_charge(device, bytes, &allocation.charged);
    if (!code && (!reserve_entry() || !back(&allocation, 256))) {
        sim_discharge(device, allocation.charged);
        code = SIM_OUT_OF_MEMORY;
    }
    if (!code) {
        insert(&allocation);
        sim.stats.device_bytes += bytes;
        sim.stats.charged_bytes += allocation.charged;
        sim.stats.device_count++;
        *pointer = allocation.base;
    }
    sim_unlock(&sim.lock);
    return code;
}

hipError_t hipFree(void *pointer) {
    int code = sim_enter(SIM_ENTRY_hipFree);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    if (!pointer) return SIM_OK;
    sim_lock(&sim.lock);
    const struct sim_allocation *found = sim_find_allocation(pointer, 1);
    struct sim_device *device =
        found && found->device >= 0 && found->base == pointer ? &sim.devices[found->device] : NULL;
    sim_unlock(&sim.lock);
    if (!device) return SIM_INVALID_VALUE;
    code = sim_drain(device);
    if (code) return code;
    struct sim_allocation taken;
    sim_lock(&sim.lock);
    bool there = take_out(pointer, false, &taken);
    if (there) {
        sim_discharge(device, taken.charged);
        sim.stats.device_bytes -= taken.bytes;
        sim.stats.charged_bytes -= taken.charged;
        sim.stats.device_count--;
    }
    sim_unlock(&sim.lock);
    if (!there) return SIM_INVALID_VALUE;
    unback(&taken);
    return SIM_OK;
}

hipError_t hipHostMalloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags;
    int code = sim_enter(SIM_ENTRY_hipHostMalloc);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    if (!pointer) return SIM_INVALID_VALUE;
    if (!bytes) {
        *pointer = NULL;
        return SIM_OK;
    }
    struct sim_allocation allocation = {.bytes = bytes, .device = -1};
    sim_lock(&sim.lock);
    if (!reserve_entry() || !back(&allocation, PAGE)) {
        code = SIM_OUT_OF_MEMORY;
    } else {
        insert(&allocation);
        sim.stats.pinned_bytes += bytes;
        sim.stats.pinned_count++;
        *pointer = allocation.base;
    }
    sim_unlock(&sim.lock);
    return code;
}

hipError_t hipHostFree(void *pointer) {
    int code = sim_enter(SIM_ENTRY_hipHostFree);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    if (!pointer) return SIM_OK;
    sim_lock(&sim.lock);
    const struct sim_allocation *found = sim_find_allocation(pointer, 1);
    bool there = found && found->device < 0 && found->base == pointer;
    sim_unlock(&sim.lock);
    if (!there) return SIM_INVALID_VALUE;
    for (int i = 0; i < sim.config.device_count; i++)
        if (sim.devices[i].context && (code = sim_drain(&sim.devices[i]))) return code;
    struct sim_allocation taken;
    sim_lock(&sim.lock);
    there = take_out(pointer, true, &taken);
    if (there) {
        sim.stats.pinned_bytes -= taken.bytes;
        sim.stats.pinned_count--;
    }
    sim_unlock(&sim.lock);
    if (!there) return SIM_INVALID_VALUE;
    unback(&taken);
    return SIM_OK;
}

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    int code = sim_enter(SIM_ENTRY_hipMemGetInfo);
    if (code) return code;
    if (!free_bytes || !total_bytes) return SIM_INVALID_VALUE;
    struct sim_device *device = sim_current();
    struct sim_figures figures;
    sim_lock(&sim.lock);
    sim_figures(device, &figures);
    sim_unlock(&sim.lock);
    uint64_t used = figures.used_reported - (device->config->blind ? figures.desktop : 0);
    *total_bytes = figures.total;
    *free_bytes = used < figures.total ? figures.total - used : 0;
    if (device->config->claims) *free_bytes = *total_bytes = device->config->claims;
    return SIM_OK;
}

/* ---- copies and fills ---- */

enum host_kind { HOST_PINNED, HOST_PAGEABLE };

/* Whether [pointer, pointer + bytes) is device memory. */
static bool is_device(const void *pointer, size_t bytes) {
    sim_lock(&sim.lock);
    const struct sim_allocation *found = sim_find_allocation(pointer, bytes);
    bool yes = found && found->device >= 0;
    sim_unlock(&sim.lock);
    return yes;
}

static enum host_kind host_kind(const void *pointer, size_t bytes) {
    sim_lock(&sim.lock);
    const struct sim_allocation *found = sim_find_allocation(pointer, bytes);
    bool pinned = found && found->device < 0;
    sim_unlock(&sim.lock);
    return pinned ? HOST_PINNED : HOST_PAGEABLE;
}

static int copy(void *to, const void *from, size_t bytes, struct sim_stream *stream, void *staging, bool wait) {
    struct sim_work *work = sim_work_create(SIM_WORK_COPY, 0);
    if (!work) {
        free(staging);
        return SIM_OUT_OF_MEMORY;
    }
    work->copy.to = to;
    work->copy.from = staging ? staging : from;
    work->copy.bytes = bytes;
    work->copy.staging = staging;
    return sim_submit(stream, work, wait);
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void *from, size_t bytes, hipStream_t handle) {
    int code = sim_enter(SIM_ENTRY_hipMemcpyHtoDAsync);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    if (!bytes) return SIM_OK;
    if (!from || !is_device(to, bytes)) return SIM_INVALID_VALUE;
    /* A captured copy reads its source when it runs, whatever kind of memory that is. */
    if (host_kind(from, bytes) == HOST_PINNED || stream->capture) return copy(to, from, bytes, stream, NULL, false);
    /* The caller may reuse pageable memory as soon as this returns: small copies are staged, large ones are waited
     * for. */
    if (bytes > STAGED_BYTES) return copy(to, from, bytes, stream, NULL, true);
    void *staging = malloc(bytes);
    if (!staging) return SIM_OUT_OF_MEMORY;
    memcpy(staging, from, bytes);
    return copy(to, from, bytes, stream, staging, false);
}

hipError_t hipMemcpyDtoHAsync(void *to, hipDeviceptr_t from, size_t bytes, hipStream_t handle) {
    int code = sim_enter(SIM_ENTRY_hipMemcpyDtoHAsync);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    if (!bytes) return SIM_OK;
    if (!to || !is_device(from, bytes)) return SIM_INVALID_VALUE;
    return copy(to, from, bytes, stream, NULL, host_kind(to, bytes) == HOST_PAGEABLE);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes, hipStream_t handle) {
    int code = sim_enter(SIM_ENTRY_hipMemcpyDtoDAsync);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    if (!bytes) return SIM_OK;
    if (!is_device(to, bytes) || !is_device(from, bytes)) return SIM_INVALID_VALUE;
    return copy(to, from, bytes, stream, NULL, false);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t bytes, hipStream_t handle) {
    int code = sim_enter(SIM_ENTRY_hipMemsetD8Async);
    if (code) return code;
    struct sim_stream *stream = sim_stream_of(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    if (!bytes) return SIM_OK;
    if (!is_device(to, bytes)) return SIM_INVALID_VALUE;
    struct sim_work *work = sim_work_create(SIM_WORK_FILL, 0);
    if (!work) return SIM_OUT_OF_MEMORY;
    work->fill.to = to;
    work->fill.value = value;
    work->fill.bytes = bytes;
    return sim_submit(stream, work, false);
}
