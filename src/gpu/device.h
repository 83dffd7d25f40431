/* What the layers above may use of the device layer beyond <rocmforge/gpu.h>. Small on purpose: whoever needs more
 * wants a public function. */
#ifndef RF_GPU_DEVICE_H
#define RF_GPU_DEVICE_H

#include <rocmforge/gpu.h>

/* Lives longer than the device. */
struct rf_runtime *rf_device_runtime(const struct rf_device *device);
/* While it is on, launches are checked in every way and not made: what an op refuses shows, and nothing runs. */
void rf_queue_rehearse(struct rf_queue *queue, bool on);

/* A buffer over all of pinned memory: kernels read and write host memory, over the bus. Both drivers give pinned
 * memory one address on the host and on the device. It can be bound, viewed, recorded and copied with the two
 * functions for ordinary host memory, which wait for its work and are then plain copies; the asynchronous ones and
 * fills refuse it. The memory lives until handle and buffer are destroyed, in any order. */
rf_status rf_pinned_buffer(struct rf_pinned *pinned, struct rf_buffer **out);

/* How the device stands towards its floor; cheaper than rf_device_memory_info, for those who look often. */
struct rf_pressure {
    uint64_t free_bytes;  /* live */
    uint64_t floor_bytes; /* below it something should be given back */
    uint64_t room_bytes;  /* budget and floor would grant so much more; what the pool keeps is not in it */
    uint64_t idle_bytes;  /* kept by the pool */
    uint64_t held_bytes;  /* by this process, that included */
    uint64_t total_bytes;
};
rf_status rf_device_pressure(struct rf_device *device, struct rf_pressure *pressure);

#endif
