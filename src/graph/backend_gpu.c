/* A GPU as a backend. It has one queue, and all its work is ordered on that queue.
 *
 * supports is cheap: it only asks whether the op has a kernel at all. Whether a kernel accepts the shapes is found
 * by rehearse, which needs the arenas to exist and launches nothing. Arenas are allocated from the driver and
 * returned to it directly, not through the pool: they are large, live long, and their bytes must be free for
 * others once they are given back. */
#include "graph/backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

enum { GPU_ALIGNMENT = 256 };

struct gpu_backend {
    struct rf_backend base;
    struct rf_queue *queue;
    struct rf_event **marks;
    size_t mark_count;
};

struct rf_transfer {
    uint64_t bytes;
    struct rf_pinned *pinned; /* NULL: the host budget refused it, and the copy waits */
    void *plain;              /* used when pinned is NULL */
    struct rf_event *event;
};

static struct gpu_backend *self(struct rf_backend *backend) {
    return (struct gpu_backend *)backend;
}

static rf_status execute(struct rf_backend *backend, const struct rf_op_call *call) {
    return call->op->gpu(self(backend)->queue, call);
}

static rf_status rehearse(struct rf_backend *backend, const struct rf_op_call *call) {
    struct rf_queue *queue = self(backend)->queue;
    rf_queue_rehearse(queue, true);
    rf_status status = call->op->gpu(queue, call);
    rf_queue_rehearse(queue, false);
    /* A device that was opened with only some modules does not have all kernels. */
    return status == RF_E_NOT_FOUND ? rf_fail_within(RF_E_UNSUPPORTED, "%s", call->op->name) : status;
}

static rf_status rehearsed(struct rf_backend *backend) {
    return rf_device_load_rehearsed(backend->device);
}

static rf_status supports(struct rf_backend *backend, const struct rf_op_call *call) {
    if (!call->op->gpu) return rf_fail(RF_E_UNSUPPORTED, "%s is not offered on %s", call->op->name, backend->name);
    return RF_OK;
}

static rf_status workspace(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes) {
    (void)backend;
    *bytes = 0;
    return call->op->workspace ? call->op->workspace(call, bytes) : RF_OK;
}
static rf_status counters(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes) {
    (void)backend;
    *bytes = 0;
    return call->op->counters ? call->op->counters(call, bytes) : RF_OK;
}

static uint64_t alignment(struct rf_backend *backend) {
    (void)backend;
    return GPU_ALIGNMENT;
}

static rf_status arena_create(struct rf_backend *backend, uint64_t bytes, const char *label, struct rf_arena *out) {
    RF_PARAMS(struct rf_buffer_params, params);
    *out = (struct rf_arena){0};
    if (!bytes) return RF_OK;
    params.bytes = bytes;
    params.zeroed = true;
    params.direct = true;
    params.queue = self(backend)->queue;
    params.label = label;
    rf_status status = rf_buffer_create_safe(backend->device, &params, &out->buffer);
    if (!status) out->bytes = bytes;
    return status;
}

static rf_status arena_destroy(struct rf_backend *backend, struct rf_arena *arena) {
    (void)backend;
    rf_status status = rf_buffer_destroy(&arena->buffer);
    *arena = (struct rf_arena){0};
    return status;
}

static rf_status upload(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, const void *data,
                        uint64_t bytes) {
    if (!bytes) return RF_OK;
    return rf_copy_to_device_safe(self(backend)->queue, arena->buffer, offset, data, bytes);
}

static rf_status download(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, void *data,
                          uint64_t bytes) {
    if (!bytes) return RF_OK;
    return rf_copy_from_device_safe(self(backend)->queue, data, arena->buffer, offset, bytes);
}

static rf_status wait(struct rf_backend *backend, int64_t timeout_ns) {
    return rf_queue_wait(self(backend)->queue, timeout_ns);
}

static uint64_t submitted(struct rf_backend *backend) {
    return rf_queue_submitted(self(backend)->queue);
}

static rf_status wait_until(struct rf_backend *backend, uint64_t ticket, int64_t timeout_ns) {
    return rf_queue_wait_until(self(backend)->queue, ticket, timeout_ns);
}

/* ---- downloads that do not wait ---- */

static void transfer_destroy(struct rf_backend *backend, struct rf_transfer *transfer) {
    if (!transfer) return;
    rf_event_destroy(&transfer->event);
    rf_pinned_destroy(&transfer->pinned);
    rf_host_free(&rf_device_runtime(backend->device)->host, transfer->plain, transfer->bytes);
    free(transfer);
}

static rf_status transfer_create(struct rf_backend *backend, uint64_t bytes, struct rf_transfer **out) {
    struct rf_device *device = backend->device;
    struct rf_transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer) return rf_fail(RF_E_NO_MEMORY, "no host memory for a copy between places");
    transfer->bytes = bytes;
    rf_status status = rf_pinned_create(device, bytes, &transfer->pinned);
    if (!status) {
        status = rf_event_create(device, false, &transfer->event);
    } else if (status == RF_E_NO_MEMORY || status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY) {
        status = rf_host_alloc(&rf_device_runtime(device)->host, bytes, "a copy between places", &transfer->plain);
    }
    if (status)
        transfer_destroy(backend, transfer);
    else
        *out = transfer;
    return status;
}

static rf_status transfer_begin(struct rf_backend *backend, struct rf_transfer *transfer, struct rf_arena *arena,
                                uint64_t offset) {
    struct rf_queue *queue = self(backend)->queue;
    if (!transfer->pinned)
        return rf_copy_from_device_safe(queue, transfer->plain, arena->buffer, offset, transfer->bytes);
    rf_status status = rf_download_async(queue, transfer->pinned, 0, arena->buffer, offset, transfer->bytes);
    return status ? status : rf_event_record(transfer->event, queue);
}

static rf_status transfer_end(struct rf_backend *backend, struct rf_transfer *transfer, int64_t timeout_ns,
                              const void **data) {
    (void)backend;
    *data = transfer->pinned ? rf_pinned_data(transfer->pinned) : transfer->plain;
    return transfer->pinned ? rf_event_wait(transfer->event, timeout_ns) : RF_OK;
}

/* ---- recordings ---- */

static rf_status record_begin(struct rf_backend *backend) {
    return rf_queue_record_begin(self(backend)->queue, "graph");
}

static rf_status record_end(struct rf_backend *backend, void **recording) {
    struct rf_recording *made = NULL;
    rf_status status = rf_queue_record_end(self(backend)->queue, &made);
    if (!status) *recording = made;
    return status;
}

static rf_status replay(struct rf_backend *backend, void *recording) {
    return rf_recording_run(self(backend)->queue, recording);
}

static void recording_destroy(struct rf_backend *backend, void *recording) {
    struct rf_recording *made = recording;
    (void)backend;
    rf_recording_destroy(&made);
}

/* ---- times ---- */

static rf_status marks_create(struct rf_backend *backend, size_t count) {
    struct gpu_backend *gpu = self(backend);
    gpu->marks = calloc(count ? count : 1, sizeof(struct rf_event *));
    if (!gpu->marks) return rf_fail(RF_E_NO_MEMORY, "no host memory for %zu marks", count);
    for (rf_status status; gpu->mark_count < count; gpu->mark_count++)
        if ((status = rf_event_create(gpu->base.device, true, &gpu->marks[gpu->mark_count]))) return status;
    return RF_OK;
}

static rf_status mark(struct rf_backend *backend, size_t index) {
    return rf_event_record(self(backend)->marks[index], self(backend)->queue);
}

static rf_status marks_between(struct rf_backend *backend, size_t first, size_t second, int64_t *elapsed_ns) {
    return rf_event_elapsed(self(backend)->marks[first], self(backend)->marks[second], elapsed_ns);
}

static void destroy(struct rf_backend *backend) {
    struct gpu_backend *gpu = self(backend);
    for (size_t i = 0; i < gpu->mark_count; i++) rf_event_destroy(&gpu->marks[i]);
    free(gpu->marks);
    rf_queue_destroy(&gpu->queue);
    free(gpu);
}

static const struct rf_backend_table table = {
    .kind = "gpu",
    .supports = supports,
    .workspace = workspace,
    .counters = counters,
    .alignment = alignment,
    .arena_create = arena_create,
    .arena_destroy = arena_destroy,
    .upload = upload,
    .download = download,
    .transfer_create = transfer_create,
    .transfer_begin = transfer_begin,
    .transfer_end = transfer_end,
    .transfer_destroy = transfer_destroy,
    .rehearse = rehearse,
    .rehearsed = rehearsed,
    .execute = execute,
    .marks_create = marks_create,
    .mark = mark,
    .marks_between = marks_between,
    .wait = wait,
    .submitted = submitted,
    .wait_until = wait_until,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .recording_destroy = recording_destroy,
    .destroy = destroy,
};

rf_status rf_backend_create_gpu(struct rf_device *device, struct rf_backend **out) {
    RF_PARAMS(struct rf_device_info, info);
    RF_PARAMS(struct rf_queue_params, params);
    rf_status status = rf_device_get_info(device, &info);
    if (status) return status;
    struct gpu_backend *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return rf_fail(RF_E_NO_MEMORY, "no host memory for the GPU backend");
    gpu->base.table = &table;
    gpu->base.device = device;
    snprintf(gpu->base.name, sizeof gpu->base.name, "%d: %.88s", info.index, info.name);
    params.label = "graph";
    status = rf_queue_create(device, &params, &gpu->queue);
    if (status) {
        free(gpu);
        return status;
    }
    *out = &gpu->base;
    return RF_OK;
}

void rf_backend_destroy(struct rf_backend **backend) {
    if (!backend || !*backend) return;
    (*backend)->table->destroy(*backend);
    *backend = NULL;
}
