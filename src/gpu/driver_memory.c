/* The memory that the driver takes for itself while the device is open: for recordings, and for kernels.
 *
 * How much it takes is known only afterwards. To keep the budget all the same, the callers first ask for room for
 * what they expect, measure before and after, and charge the difference. memory_mutex is held from the first
 * measurement to the charge, so that this process allocates nothing meanwhile. */
#include "gpu/device_impl.h"

rf_status rf_driver_usage(struct rf_device *device, struct rf_driver_usage *usage) {
    struct rf_saved_error saved;
    rf_error_save(&saved);
    usage->of_process = rf_witness_process(device->witness, &usage->bytes) == RF_OK;
    if (usage->of_process) return RF_OK;
    rf_error_restore(&saved);
    uint64_t free_bytes, total_bytes;
    rf_status status = rf_memory_device_free(device, &free_bytes, &total_bytes);
    if (!status) usage->bytes = rf_sub_saturate(total_bytes, free_bytes);
    return status;
}

uint64_t rf_driver_growth(struct rf_driver_usage before, struct rf_driver_usage after) {
    return before.of_process == after.of_process ? rf_sub_saturate(after.bytes, before.bytes) : 0;
}

void rf_driver_charge(struct rf_device *device, uint64_t bytes) {
    device->driver_bytes += bytes;
    device->held_bytes += bytes;
    device->driver_entry.record.bytes = device->driver_entry.record.held_bytes = device->driver_bytes;
    rf_memory_publish_held(device);
}

void rf_driver_refund(struct rf_device *device, uint64_t bytes) {
    rf_assert(bytes <= device->driver_bytes && device->driver_bytes <= device->held_bytes);
    device->driver_bytes -= bytes;
    device->held_bytes -= bytes;
    device->driver_entry.record.bytes = device->driver_entry.record.held_bytes = device->driver_bytes;
    rf_memory_publish_held(device);
}

rf_status rf_driver_make_room(struct rf_device *device, uint64_t bytes) {
    uint64_t wanted;
    if (rf_round_up_overflows(RF_MAX(bytes, 1), device->granularity_bytes, &wanted)) wanted = bytes;
    rf_status status = rf_memory_would_grant(device, wanted);
    if (status == RF_E_BUDGET && (device->pool.idle_bytes || device->doomed_graphs)) {
        struct rf_saved_error refusal;
        rf_error_save(&refusal);
        if (!rf_pool_trim(device, 0))
            status = rf_memory_would_grant(device, wanted);
        else
            rf_error_restore(&refusal);
    }
    return status;
}

rf_status rf_driver_check_budget(struct rf_device *device, uint64_t took_bytes, const char *what) {
    if (device->held_bytes + device->lent_bytes <= device->terms.promised_bytes) return RF_OK;
    char took[32], budget[32];
    return rf_fail(RF_E_BUDGET, "the driver took %s for %s, more than the budget '%s' of %s leaves; raise RF_BUDGET",
                   rf_format_bytes(took_bytes, took, sizeof took), what, device->budget_text,
                   rf_format_bytes(device->terms.promised_bytes, budget, sizeof budget));
}
