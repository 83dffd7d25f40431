/* The functions of device.h: they give the layers above access to a device's internals and decide nothing. */
#include "gpu/device.h"

#include "gpu/device_impl.h"

struct rf_runtime *rf_device_runtime(const struct rf_device *device) {
    return device->runtime;
}
bool rf_device_takes_maps(const struct rf_device *device) {
    return device->driver->map_encode != NULL;
}
void rf_queue_rehearse(struct rf_queue *queue, bool on) {
    queue->rehearsing = on;
}

uint64_t rf_queue_submitted(struct rf_queue *queue) {
    return rf_timeline_submitted(queue->line);
}

rf_status rf_queue_wait_until(struct rf_queue *queue, uint64_t submitted, int64_t timeout_ns) {
    struct rf_entry entry;
    rf_status status = rf_recording_refuses(queue, "rf_queue_wait_until");
    if (status || (status = rf_enter(queue->object.device, &entry))) return status;
    status = rf_timeline_wait(queue->line, submitted, rf_queue_deadline(queue, timeout_ns));
    rf_leave(&entry);
    return status;
}

rf_status rf_device_pressure(struct rf_device *device, struct rf_pressure *pressure) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    uint64_t live_free = 0, total = 0;
    status = rf_memory_live_free(device, &live_free, &total);
    if (!status) {
        *pressure = (struct rf_pressure){.free_bytes = live_free,
                                         .floor_bytes = device->terms.floor_bytes,
                                         .room_bytes = rf_memory_room(device, live_free),
                                         .idle_bytes = device->pool.idle_bytes,
                                         .held_bytes = device->held_bytes,
                                         .total_bytes = total};
    }
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    return status;
}
