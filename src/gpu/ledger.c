/* The ledger: every live allocation with its call site, oldest first.
 *
 * Invariants: used_bytes is the sum of held_bytes of live buffers; live_count counts live buffers and pinned memory,
 * without the driver's own entry; an abandoned entry stays until the device is freed. Every function but
 * rf_device_ledger must be called with memory_mutex held. rf_ledger_is_valid checks the sums, the count and the order
 * after each change; rf_ledger_remove checks that an abandoned entry stays. */
#include "gpu/device_impl.h"

void rf_ledger_add(struct rf_device *device, struct rf_ledger_entry *entry, enum rf_allocation_kind kind,
                   uint64_t bytes, uint64_t held_bytes, const char *label, struct rf_site site) {
    size_t length = label ? strnlen(label, sizeof entry->label - 1) : 0;
    if (length) memcpy(entry->label, label, length);
    entry->label[length] = 0;
    entry->record = (struct rf_allocation){.kind = kind,
                                           .id = ++device->next_allocation_id,
                                           .bytes = bytes,
                                           .held_bytes = held_bytes,
                                           .label = entry->label,
                                           .site = site,
                                           .age_ns = rf_now_ns()};
    entry->next = NULL;
    entry->previous = device->ledger_last;
    if (entry->previous)
        entry->previous->next = entry;
    else
        device->ledger_first = entry;
    device->ledger_last = entry;
    if (kind == RF_ALLOC_BUFFER) device->used_bytes += held_bytes;
    if (kind != RF_ALLOC_DRIVER) device->live_count++;
    rf_assert_valid(rf_ledger_is_valid, device);
}

static void count_out(struct rf_device *device, const struct rf_ledger_entry *entry) {
    if (entry->record.abandoned) return;
    if (entry->record.kind == RF_ALLOC_BUFFER) device->used_bytes -= entry->record.held_bytes;
    if (entry->record.kind != RF_ALLOC_DRIVER) device->live_count--;
}

void rf_ledger_remove(struct rf_device *device, struct rf_ledger_entry *entry) {
    rf_assert(!entry->record.abandoned);
    count_out(device, entry);
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        device->ledger_first = entry->next;
    if (entry->next)
        entry->next->previous = entry->previous;
    else
        device->ledger_last = entry->previous;
    entry->previous = entry->next = NULL;
    rf_assert_valid(rf_ledger_is_valid, device);
}

void rf_ledger_abandon(struct rf_device *device, struct rf_ledger_entry *entry) {
    if (entry->record.abandoned) return;
    count_out(device, entry);
    entry->record.abandoned = true;
    if (entry->record.kind == RF_ALLOC_BUFFER) device->abandoned_bytes += entry->record.held_bytes;
    rf_assert_valid(rf_ledger_is_valid, device);
}

#if RF_CHECKS >= 2
bool rf_ledger_is_valid(struct rf_device *device, const char **why) {
    const struct rf_ledger_entry *previous = NULL;
    uint64_t used = 0, live = 0;
    for (const struct rf_ledger_entry *entry = device->ledger_first; entry; previous = entry, entry = entry->next) {
        RF_INVALID_UNLESS(entry->previous == previous, "an entry does not point back to the one before it");
        RF_INVALID_UNLESS(!previous || previous->record.id < entry->record.id, "entries are not oldest first");
        if (entry->record.abandoned) continue;
        if (entry->record.kind == RF_ALLOC_BUFFER) used += entry->record.held_bytes;
        if (entry->record.kind != RF_ALLOC_DRIVER) live++;
    }
    RF_INVALID_UNLESS(device->ledger_last == previous, "ledger_last is not the end of the list");
    RF_INVALID_UNLESS(device->used_bytes == used, "used_bytes is not the sum of the live buffers");
    RF_INVALID_UNLESS(device->live_count == live, "live_count is not the number of live entries");
    return true;
}
#endif

rf_status rf_device_ledger(struct rf_device *device, bool (*visit)(void *user, const struct rf_allocation *a),
                           void *user) {
    rf_status status = rf_object_check(device, RF_OBJECT_DEVICE, "device");
    if (status) return status;
    if (!visit) return rf_fail(RF_E_INVALID, "rf_device_ledger: visit is NULL");
    int64_t now = rf_now_ns();
    pthread_mutex_lock(&device->memory_mutex);
    for (struct rf_ledger_entry *entry = device->ledger_first; entry; entry = entry->next) {
        struct rf_allocation shown = entry->record;
        shown.age_ns = now - shown.age_ns;
        if (!visit(user, &shown)) break;
    }
    pthread_mutex_unlock(&device->memory_mutex);
    return RF_OK;
}
