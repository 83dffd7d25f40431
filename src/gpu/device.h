/* What the layers above may use of the device layer beyond <rocmforge/gpu.h>. It is small on purpose: code that needs
 * more should get a public function. */
#ifndef RF_GPU_DEVICE_H
#define RF_GPU_DEVICE_H

#include <rocmforge/gpu.h>

/* The runtime lives longer than the device. */
struct rf_runtime *rf_device_runtime(const struct rf_device *device);
/* While it is on, launches are fully checked but not made: the refusals of an op show, and nothing runs. */
void rf_queue_rehearse(struct rf_queue *queue, bool on);

/* A number for all that was submitted to a queue so far, and a wait for what such a number names: what was submitted
 * later may still run. timeout_ns: as for rf_queue_wait. */
uint64_t rf_queue_submitted(struct rf_queue *queue);
rf_status rf_queue_wait_until(struct rf_queue *queue, uint64_t submitted, int64_t timeout_ns);

/* As rf_kernel_find, but a kernel that is not loaded yet stays so: its first launch loads it, unless it is rehearsed.
 */
rf_status rf_kernel_find_unloaded(struct rf_device *device, const char *name, const struct rf_kernel **out);
/* Whether the device has the kernel: cheap, and says nothing where it has not. */
bool rf_kernel_is_there(struct rf_device *device, const char *name);
/* Whether launches may have tensor maps among their arguments. */
bool rf_device_takes_maps(const struct rf_device *device);
/* Loads the kernels whose launch was rehearsed and which are not loaded yet, all of them side by side. */
rf_status rf_device_load_rehearsed(struct rf_device *device);

/* A buffer over all of pinned memory: kernels read and write host memory, over the bus. Both drivers give pinned
 * memory one address on the host and on the device. The buffer can be bound, viewed, recorded, and copied with the
 * two functions for ordinary host memory, which wait for its work and are then plain copies; the asynchronous ones
 * and fills refuse it. The memory lives until both the handle and the buffer are destroyed, in any order. */
rf_status rf_pinned_buffer(struct rf_pinned *pinned, struct rf_buffer **out);

/* How near the device is to its floor. This is cheaper than rf_device_memory_info, for code that looks often. */
struct rf_pressure {
    uint64_t free_bytes;  /* live */
    uint64_t floor_bytes; /* if free_bytes is below it, memory should be given back */
    uint64_t room_bytes;  /* how much more budget and floor would grant, without what the pool keeps */
    uint64_t idle_bytes;  /* kept by the pool */
    uint64_t held_bytes;  /* by this process, idle_bytes included */
    uint64_t total_bytes;
};
rf_status rf_device_pressure(struct rf_device *device, struct rf_pressure *pressure);

#endif
