/* Smart tensors: on the GPU within the budget, else in host memory.
 *
 * The choice is made once, when the tensor is made. The location shows it, and one warning in the log. Host memory is
 * charged to the host budget for as long as it is held. */
#include "gpu/device_impl.h"

#include <stdlib.h>

struct rf_smart_tensor {
    struct rf_tensor_desc desc;
    struct rf_tensor *tensor; /* NULL: on the host */
    void *host;
    uint64_t host_bytes;
    struct rf_host_budget *charged; /* NULL: no budget was charged */
};

static rf_status make_on_host(struct rf_device *device, struct rf_smart_tensor *smart) {
    rf_status status = device ? rf_host_charge(&device->runtime->host, smart->host_bytes, false) : RF_OK;
    if (status) return status;
    smart->charged = device ? &device->runtime->host : NULL;
    smart->host = calloc(1, (size_t)smart->host_bytes);
    if (smart->host) return RF_OK;
    if (smart->charged) rf_host_release(smart->charged, smart->host_bytes, false);
    return rf_fail(RF_E_NO_MEMORY, "rf_tensor_create_smart: neither the GPU nor the host has %llu bytes",
                   (unsigned long long)smart->host_bytes);
}

/* Writes a line to the log; no lock may be held. */
static void log_spill(struct rf_device *device, uint64_t bytes, const char *why) {
    struct rf_entry entry;
    char size[32];
    rf_device_note(device, RF_LOG_WARN, "a tensor of %s is in host memory: %s",
                   rf_format_bytes(bytes, size, sizeof size), why);
    if (rf_enter_cleanup(device, &entry) == RF_OK) rf_leave(&entry);
}

rf_status rf_tensor_create_smart_at(struct rf_device *device, const struct rf_tensor_desc *desc,
                                    struct rf_smart_tensor **out, struct rf_site site) {
    if (!desc || !out) return rf_fail(RF_E_INVALID, "rf_tensor_create_smart: desc or out is NULL");
    rf_status status = device ? rf_object_check(device, RF_OBJECT_DEVICE, "rf_tensor_create_smart: device") : RF_OK;
    if (status) return status;
    struct rf_tensor_desc checked = *desc;
    uint64_t bytes = 0;
    status = rf_tensor_desc_check(&checked, &bytes);
    if (status) return status;
    if (bytes > SIZE_MAX / 2)
        return rf_fail(RF_E_NO_MEMORY, "rf_tensor_create_smart: %llu bytes are more than an address space",
                       (unsigned long long)bytes);
    struct rf_smart_tensor *smart = calloc(1, sizeof *smart);
    if (!smart) return rf_fail(RF_E_NO_MEMORY, "rf_tensor_create_smart: no host memory");
    smart->desc = checked;
    smart->host_bytes = bytes;
    status = device ? rf_tensor_empty_safe_at(device, &checked, &smart->tensor, site) : RF_OK;
    if (status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY || status == RF_E_DEVICE_LOST) {
        struct rf_saved_error why;
        rf_error_save(&why);
        status = make_on_host(device, smart);
        if (!status) log_spill(device, bytes, why.text);
    } else if (!status && !device) {
        status = make_on_host(NULL, smart);
    }
    if (status) {
        free(smart);
        return status;
    }
    *out = smart;
    return RF_OK;
}

rf_status rf_smart_tensor_destroy(struct rf_smart_tensor **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_smart_tensor *smart = *pointer;
    *pointer = NULL;
    rf_status status = rf_tensor_destroy(&smart->tensor);
    free(smart->host);
    if (smart->charged) rf_host_release(smart->charged, smart->host_bytes, false);
    free(smart);
    return status;
}

enum rf_tensor_location rf_smart_tensor_location(const struct rf_smart_tensor *tensor) {
    return tensor && tensor->tensor ? RF_ON_DEVICE : RF_ON_HOST;
}
const struct rf_tensor_desc *rf_smart_tensor_get_desc(const struct rf_smart_tensor *tensor) {
    return tensor ? &tensor->desc : NULL;
}
struct rf_tensor *rf_smart_tensor_device(const struct rf_smart_tensor *tensor) {
    return tensor ? tensor->tensor : NULL;
}
void *rf_smart_tensor_host(const struct rf_smart_tensor *tensor) {
    return tensor ? tensor->host : NULL;
}
