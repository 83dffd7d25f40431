/* Staging: pinned host memory through which pageable memory travels, because a driver's copy
 * from or to pageable memory waits for the stream without a deadline.
 *
 * There is one pinned allocation, which is made when the device is opened (making one later can wait for other
 * streams) and cut into a few large and many small stages. A stage is free again when the copy that used it is done.
 * A timeline may hold only a part of them, so that a stuck queue cannot take them all from the others. */
#include "gpu/device_impl.h"

enum { LARGE_PER_LINE = RF_STAGE_LARGE / 2, SMALL_PER_LINE = RF_STAGE_SMALL / 4 };

rf_status rf_staging_open(struct rf_device *device) {
    struct rf_staging *staging = &device->staging;
    staging->bytes = RF_STAGE_LARGE * RF_STAGE_LARGE_BYTES + RF_STAGE_SMALL * RF_STAGE_SMALL_BYTES;
    rf_status status = rf_host_charge(&device->runtime->host, staging->bytes, true);
    if (status) return rf_fail_within(status, "staging");
    int code = device->driver->host_alloc(&staging->memory, (size_t)staging->bytes, 0);
    if (code == RF_DRV_OK && !staging->memory) code = RF_DRV_OUT_OF_MEMORY; /* success without memory is none */
    status = rf_device_result(device, code, "host_alloc", NULL);
    if (status) {
        staging->memory = NULL;
        rf_host_release(&device->runtime->host, staging->bytes, true);
        return status;
    }
    unsigned char *next = staging->memory;
    for (int i = 0; i < RF_STAGE_LARGE; i++, next += RF_STAGE_LARGE_BYTES)
        staging->large[i] = (struct rf_stage){.data = next, .bytes = RF_STAGE_LARGE_BYTES};
    for (int i = 0; i < RF_STAGE_SMALL; i++, next += RF_STAGE_SMALL_BYTES)
        staging->small[i] = (struct rf_stage){.data = next, .bytes = RF_STAGE_SMALL_BYTES};
    return RF_OK;
}

void rf_staging_close(struct rf_device *device, bool quiet) {
    struct rf_staging *staging = &device->staging;
    if (!staging->memory || !quiet) return;
    if (!rf_device_result(device, device->driver->host_free(staging->memory), "host_free", NULL))
        rf_host_release(&device->runtime->host, staging->bytes, true);
    staging->memory = NULL;
}

/* Finds a stage that is not taken and has finished its last copy, unless the timeline has its share of stages
 * already. */
static struct rf_stage *find(struct rf_stage *stages, int count, struct rf_timeline *line, int per_line,
                             rf_status *status) {
    struct rf_stage *found = NULL;
    int mine = 0;
    for (int i = 0; i < count; i++) {
        struct rf_stage *stage = &stages[i];
        bool done = !stage->taken;
        if (done && stage->use.line) {
            rf_status polled = rf_timeline_poll(stage->use.line, stage->use.ticket, &done);
            if (polled) {
                *status = polled;
                return NULL;
            }
        }
        if (done) {
            stage->use.line = NULL;
            if (!found) found = stage;
        } else if (stage->use.line == line) {
            mine++;
        }
    }
    return mine < per_line ? found : NULL;
}

rf_status rf_stage_take(struct rf_device *device, struct rf_timeline *line, uint64_t bytes, int64_t deadline_ns,
                        struct rf_stage **out) {
    struct rf_staging *staging = &device->staging;
    struct rf_backoff backoff;
    rf_status status = RF_OK;
    rf_backoff_begin(&backoff);
    for (;;) {
        struct rf_stage *stage = NULL;
        pthread_mutex_lock(&staging->mutex);
        if (bytes > RF_STAGE_SMALL_BYTES) stage = find(staging->large, RF_STAGE_LARGE, line, LARGE_PER_LINE, &status);
        if (!stage && !status && bytes <= RF_STAGE_SMALL_BYTES)
            stage = find(staging->small, RF_STAGE_SMALL, line, SMALL_PER_LINE, &status);
        if (stage) {
            stage->taken = true;
            stage->use = (struct rf_use){line, 0};
        }
        pthread_mutex_unlock(&staging->mutex);
        if (stage) *out = stage;
        if (stage || status) break;
        if (!rf_backoff_step(&backoff, deadline_ns)) {
            status = rf_fail(RF_E_TIMEOUT, "transfer: no staging memory came free by the deadline; earlier copies on "
                                           "this device are not finished");
            break;
        }
    }
    rf_backoff_end(&backoff);
    return status;
}

void rf_stage_give(struct rf_device *device, struct rf_stage *stage, struct rf_timeline *line, uint64_t ticket) {
    pthread_mutex_lock(&device->staging.mutex);
    stage->taken = false;
    stage->use = (struct rf_use){ticket ? line : NULL, ticket};
    pthread_mutex_unlock(&device->staging.mutex);
}
