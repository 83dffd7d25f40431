/* What the layers above see of a device's inside; nothing here decides anything. */
#include "gpu/internal.h"

#include "gpu/device_impl.h"

struct rf_host_budget *rf_device_host_budget(struct rf_device *device) {
    return &device->runtime->host;
}
const char *rf_device_option(const struct rf_device *device, const char *name) {
    return rf_options_get(device->runtime->options, name);
}
rf_status rf_device_injected_failure(struct rf_device *device) {
    return rf_memory_injected_failure(device->runtime);
}
void rf_queue_rehearse(struct rf_queue *queue, bool on) {
    queue->rehearsing = on;
}
