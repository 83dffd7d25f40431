/* Transfers of pinned and pageable memory, each way, compared with the driver's own copies of the same memory. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum direction { UPLOAD, DOWNLOAD };

struct ends { /* the two ends of a copy */
    struct rf_buffer *buffer;
    struct rf_pinned *pinned; /* NULL: host is pageable */
    void *host;
    uint64_t bytes;
};

static rf_status raw_copy(struct bench *bench, const struct ends *ends, enum direction direction, double *ns) {
    rf_dptr device = (rf_dptr)(uintptr_t)rf_buffer_address(ends->buffer);
    int64_t start = rf_now_ns();
    int code = direction == UPLOAD
                   ? bench->driver->copy_to_device(device, ends->host, (size_t)ends->bytes, bench->stream)
                   : bench->driver->copy_from_device(ends->host, device, (size_t)ends->bytes, bench->stream);
    rf_status status = raw_result(bench, code, "copy");
    if (!status) status = raw_finish(bench);
    *ns = (double)(rf_now_ns() - start);
    return status;
}

static rf_status our_copy(struct bench *bench, const struct ends *ends, enum direction direction, double *ns) {
    struct rf_queue *queue = bench->queue;
    rf_status status;
    int64_t start = rf_now_ns();
    if (ends->pinned)
        status = direction == UPLOAD ? rf_upload_async(queue, ends->buffer, 0, ends->pinned, 0, ends->bytes)
                                     : rf_download_async(queue, ends->pinned, 0, ends->buffer, 0, ends->bytes);
    else
        status = direction == UPLOAD ? rf_copy_to_device_safe(queue, ends->buffer, 0, ends->host, ends->bytes)
                                     : rf_copy_from_device_safe(queue, ends->host, ends->buffer, 0, ends->bytes);
    if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    *ns = (double)(rf_now_ns() - start);
    return status;
}

static rf_status compare(struct bench *bench, const struct ends *ends, enum direction direction) {
    struct samples raw = {.count = 0}, ours = {.count = 0};
    rf_status status = RF_OK;
    for (int round = -1, rounds = bench->quick ? 3 : 15; round < rounds && !status; round++) {
        double raw_ns = 0, our_ns = 0;
        status = raw_copy(bench, ends, direction, &raw_ns);
        if (!status) status = our_copy(bench, ends, direction, &our_ns);
        if (round < 0) continue; /* the first round of each warms up */
        samples_add(&raw, (double)ends->bytes / raw_ns);
        samples_add(&ours, (double)ends->bytes / our_ns);
    }
    if (status) return status;
    struct row row = {.group = "transfers",
                      .raw = samples_median(&raw),
                      .ours = samples_median(&ours),
                      .unit = "GB/s",
                      .measured_unit = "%",
                      .sense = ends->pinned ? AT_LEAST : INFORMATION,
                      .target = 95};
    char size[32];
    snprintf(row.name, sizeof row.name, "%s %s, %s", ends->pinned ? "pinned" : "pageable",
             direction == UPLOAD ? "upload" : "download", rf_format_bytes(ends->bytes, size, sizeof size));
    row.measured = 100 * row.ours / row.raw;
    return report_add(&bench->report, &row);
}

static rf_status both_ways(struct bench *bench, uint64_t bytes, bool pinned) {
    struct ends ends = {.bytes = bytes};
    rf_status status = bench_buffer(bench, bytes, &ends.buffer);
    if (!status && pinned) {
        status = rf_pinned_create(bench->device, bytes, &ends.pinned);
        if (!status) ends.host = rf_pinned_data(ends.pinned);
    } else if (!status && !(ends.host = malloc((size_t)bytes))) {
        status = rf_fail(RF_E_NO_MEMORY, "no %llu bytes of host memory", (unsigned long long)bytes);
    }
    if (!status) {
        memset(ends.host, 0x5a, (size_t)bytes); /* touches the memory, so that page faults are not measured */
        status = compare(bench, &ends, UPLOAD);
    }
    if (!status) status = compare(bench, &ends, DOWNLOAD);
    if (!pinned) free(ends.host);
    rf_pinned_destroy(&ends.pinned);
    rf_buffer_destroy(&ends.buffer);
    return status;
}

rf_status bench_transfer(struct bench *bench) {
    static const uint64_t full[] = {64 << 20, 256 << 20}, quick[] = {256 << 10, 1 << 20};
    const uint64_t *sizes = bench->quick ? quick : full;
    rf_status status = RF_OK;
    for (int i = 0; i < 2 && !status; i++)
        if (bench_fits(bench, sizes[i])) status = both_ways(bench, sizes[i], true);
    for (int i = 0; i < 2 && !status; i++)
        if (bench_fits(bench, sizes[i])) status = both_ways(bench, sizes[i], false);
    return status;
}
