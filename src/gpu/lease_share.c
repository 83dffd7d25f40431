/* Shares: a lease without a device, for a process that starts other processes on a GPU.
 *
 * This file touches no driver: the figure of free memory comes from the caller, which had a child process measure it,
 * or from the kernel. An exclusive share holds the GPU's turn as well, for as long as it lives. */
#include "gpu/device_impl.h"
#include "gpu/lease_impl.h"

#include <stdio.h>
#include <stdlib.h>

struct rf_share {
    struct rf_runtime *runtime;
    struct rf_device_info info;
    uint64_t free_bytes; /* as given; 0: ask the kernel */
    struct rf_witness *witness;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    struct rf_lease_places *turn; /* NULL: not exclusive */
};

static rf_status live_free(void *user, uint64_t *free_bytes) {
    struct rf_share *share = user;
    uint64_t total;
    struct rf_saved_error saved;
    if (share->free_bytes) {
        *free_bytes = share->free_bytes;
        return RF_OK;
    }
    rf_error_save(&saved);
    if (rf_witness_memory(share->witness, share->info.integrated, free_bytes, &total)) {
        rf_error_restore(&saved);
        *free_bytes = share->info.total_bytes;
    }
    return RF_OK;
}

static rf_status take_turn(struct rf_share *share, const struct rf_lease_params *place, int64_t deadline_ns) {
    struct rf_backoff backoff;
    int holder = 0;
    bool said = false;
    rf_status status = rf_lease_places_open(place, true, NULL, &share->turn);
    if (status) return status;
    rf_backoff_begin(&backoff);
    while (!rf_lease_places_take_turn(share->turn, &holder)) {
        if (!said)
            rf_logf(&share->runtime->log, RF_LOG_INFO, "waiting for pid %d to finish with device %d", holder,
                    share->info.index);
        said = true;
        if (rf_backoff_step(&backoff, deadline_ns)) continue;
        status = rf_fail(RF_E_BUSY, "device %d is in use by pid %d, which asked for it alone; wait for it or end it",
                         share->info.index, holder);
        rf_lease_places_close(&share->turn);
        break;
    }
    rf_backoff_end(&backoff);
    return status;
}

rf_status rf_share_create(struct rf_runtime *runtime, const struct rf_share_params *params, struct rf_share **out) {
    struct rf_share_params own;
    if (!runtime || !out) return rf_fail(RF_E_INVALID, "rf_share_create: runtime or out is NULL");
    rf_status status = RF_PARAMS_READ(struct rf_share_params, &own, params, "rf_share_create");
    if (status) return status;
    params = &own;
    struct rf_share *share = calloc(1, sizeof *share);
    if (!share) return rf_fail(RF_E_NO_MEMORY, "rf_share_create: no host memory");
    share->runtime = runtime;
    share->free_bytes = params->free_bytes;
    share->info.struct_size = sizeof share->info;
    const char *budget = params->budget ? params->budget : rf_options_get(runtime->options, "RF_BUDGET");
    const char *sysfs = rf_options_get(runtime->options, "RF_SYSFS");
    const char *nvml = rf_options_get(runtime->options, "RF_NVML_LIBRARY");
    status = rf_device_info_at(runtime, params->index, &share->info);
    if (status) goto fail;
    struct rf_lease_params lease;
    rf_lease_place(runtime, params->index, &share->info, &lease);
    lease.live_free = live_free;
    lease.user = share;
    lease.timeout_ns = runtime->timeout_ns;
    status = rf_budget_parse(budget, &lease.spec);
    if (status) goto fail;
    if (share->info.simulated && !strcmp(sysfs, "/sys")) sysfs = "/dev/null";
    status = rf_witness_create_with((enum rf_driver_kind)rf_gpu_probe(runtime)->source[params->index].kind, sysfs,
                                    *nvml ? nvml : NULL, share->info.pci, share->info.uuid, &share->witness);
    if (!status && params->exclusive)
        status = take_turn(
            share, &lease,
            rf_deadline_after(params->timeout_ns == RF_TIMEOUT_DEFAULT ? runtime->timeout_ns : params->timeout_ns));
    if (!status) status = rf_lease_open(&lease, &share->lease, &share->terms);
    if (status) goto fail;
    *out = share;
    return RF_OK;
fail:
    rf_share_destroy(&share);
    return status;
}

void rf_share_destroy(struct rf_share **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_share *share = *pointer;
    *pointer = NULL;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_lease_close(&share->lease);
    if (share->turn && !rf_lease_registry_inherited(share->turn->registry)) {
        rf_lease_places_end_turn(share->turn);
        rf_lease_places_close(&share->turn);
    }
    rf_witness_destroy(&share->witness);
    free(share);
    rf_error_restore(&saved);
}

uint64_t rf_share_bytes(const struct rf_share *share) {
    return share ? share->terms.promised_bytes : 0;
}

rf_status rf_share_lend(struct rf_share *share, uint64_t bytes, char *spec, size_t size) {
    if (!share) return rf_fail(RF_E_INVALID, "rf_share_lend: share is NULL");
    return rf_lease_lend(share->lease, bytes, spec, size);
}

rf_status rf_share_reclaim(struct rf_share *share, const char *spec) {
    if (!share || !spec) return rf_fail(RF_E_INVALID, "rf_share_reclaim: share or spec is NULL");
    uint64_t bytes;
    return rf_lease_reclaim(share->lease, spec, &bytes);
}
