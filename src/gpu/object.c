/* Handles: each begins with its kind and is linked into its device.
 *
 * Invariants: a live handle's kind is one of the live ones and it is in its device's list; a dead one has the kind
 * RF_OBJECT_DEAD. In checked mode dead handles are kept (device->quarantine) until the runtime ends, so that
 * recognising them reads no freed memory; otherwise the check is a best effort. The list is asserted where a handle
 * enters and leaves it. */
#include "gpu/device_impl.h"

#include <stdlib.h>

RF_FOR_CHECKS bool is_live(const struct rf_object *object) {
    switch (object->kind) {
    case RF_OBJECT_BUFFER:
    case RF_OBJECT_PINNED:
    case RF_OBJECT_QUEUE:
    case RF_OBJECT_EVENT:
    case RF_OBJECT_TENSOR:
    case RF_OBJECT_RECORDING: return true;
    default: return false;
    }
}

void rf_object_init(struct rf_object *object, enum rf_object_kind kind, struct rf_device *device) {
    object->kind = kind;
    object->device = device;
    object->previous = NULL;
    pthread_mutex_lock(&device->memory_mutex);
    object->id = ++device->next_allocation_id;
    object->next = device->objects;
    rf_assert(is_live(object) && (!object->next || (is_live(object->next) && !object->next->previous)));
    if (object->next) object->next->previous = object;
    device->objects = object;
    pthread_mutex_unlock(&device->memory_mutex);
}

rf_status rf_object_check(const void *handle, enum rf_object_kind kind, const char *what) {
    if (!handle) return rf_fail(RF_E_INVALID, "%s: NULL", what);
    uint32_t found = *(const uint32_t *)handle;
    if (found == (uint32_t)kind) return RF_OK;
    if (found == RF_OBJECT_DEAD) return rf_fail(RF_E_HANDLE, "%s: was destroyed already", what);
    return rf_fail(RF_E_HANDLE, "%s: is not a handle of that kind", what);
}

void rf_object_free(struct rf_object *object) {
    rf_object_retire(object, object->device->checks != 0);
}

void rf_object_retire(struct rf_object *object, bool keep) {
    struct rf_device *device = object->device;
    pthread_mutex_lock(&device->memory_mutex);
    rf_assert(is_live(object) && (!object->next || object->next->previous == object) &&
              (object->previous ? object->previous->next == object : device->objects == object));
    if (object->next) object->next->previous = object->previous;
    if (object->previous)
        object->previous->next = object->next;
    else
        device->objects = object->next;
    object->kind = RF_OBJECT_DEAD;
    if (keep) {
        object->next = device->quarantine;
        device->quarantine = object;
    }
    pthread_mutex_unlock(&device->memory_mutex);
    if (!keep) free(object);
}
