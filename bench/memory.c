/* Allocation: the pool against the driver, and what the checks add to a direct allocation. */
#include "bench.h"

#include <stdio.h>

/* Allocates and frees once, and times each half. */
static rf_status raw_pair(const struct bench *bench, uint64_t bytes, int64_t *alloc_ns, int64_t *free_ns) {
    rf_dptr pointer = NULL;
    int64_t start = rf_now_ns();
    rf_status status = raw_result(bench, bench->driver->mem_alloc(&pointer, (size_t)bytes), "mem_alloc");
    int64_t middle = rf_now_ns();
    if (!status) status = raw_result(bench, bench->driver->mem_free(pointer), "mem_free");
    *free_ns = rf_now_ns() - middle;
    *alloc_ns = middle - start;
    return status;
}

static rf_status our_pair(struct bench *bench, const struct rf_buffer_params *params, int64_t *create_ns,
                          int64_t *destroy_ns) {
    struct rf_buffer *buffer = NULL;
    int64_t start = rf_now_ns();
    rf_status status = rf_buffer_create_safe(bench->device, params, &buffer);
    int64_t middle = rf_now_ns();
    if (!status) status = rf_buffer_destroy(&buffer);
    *destroy_ns = rf_now_ns() - middle;
    *create_ns = middle - start;
    return status;
}

/* Many pairs in a row, timed as a whole: the time per pair, without a clock call in between. */
static rf_status our_pairs(struct bench *bench, const struct rf_buffer_params *params, int count, double *ns) {
    rf_status status = RF_OK;
    int64_t start = rf_now_ns();
    for (int i = 0; i < count && !status; i++) {
        struct rf_buffer *buffer = NULL;
        status = rf_buffer_create_safe(bench->device, params, &buffer);
        if (!status) status = rf_buffer_destroy(&buffer);
    }
    *ns = (double)(rf_now_ns() - start) / count;
    return status;
}

static rf_status pool_of(struct bench *bench, uint64_t bytes) {
    enum { PAIRS = 200 };
    struct samples raw = {.count = 0}, ours = {.count = 0};
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    int64_t alloc_ns, free_ns;
    double ns;
    rf_status status = our_pairs(bench, &params, 1, &ns); /* fills the pool */
    for (int round = 0, rounds = bench->quick ? 5 : 40; round < rounds && !status; round++) {
        for (int i = 0; i < 3 && !status; i++) {
            status = raw_pair(bench, bytes, &alloc_ns, &free_ns);
            samples_add(&raw, (double)(alloc_ns + free_ns) * 1e-3);
        }
        if (!status) status = our_pairs(bench, &params, PAIRS, &ns);
        samples_add(&ours, ns * 1e-3);
    }
    if (status) return status;
    struct row row = {.group = "pool allocation",
                      .raw = samples_median(&raw),
                      .ours = samples_median(&ours),
                      .unit = "us",
                      .measured_unit = "x",
                      .sense = AT_LEAST,
                      .target = 20};
    char size[32];
    snprintf(row.name, sizeof row.name, "create + destroy, %s", rf_format_bytes(bytes, size, sizeof size));
    row.measured = row.raw / row.ours;
    return report_add(&bench->report, &row);
}

rf_status bench_pool(struct bench *bench) {
    static const uint64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    rf_status status = RF_OK;
    for (size_t i = 0; i < RF_COUNT(sizes) && !status; i++)
        if ((!bench->quick || sizes[i] <= 1 << 20) && bench_fits(bench, sizes[i])) status = pool_of(bench, sizes[i]);
    return status;
}

static rf_status direct_of(struct bench *bench, uint64_t bytes) {
    struct samples raw = {.count = 0}, raw_alloc = {.count = 0}, ours = {.count = 0}, create = {.count = 0};
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.direct = true;
    rf_status status = RF_OK;
    for (int round = 0, rounds = bench->quick ? 5 : 200; round < rounds && !status; round++) {
        int64_t first, second;
        status = raw_pair(bench, bytes, &first, &second);
        samples_add(&raw, (double)(first + second) * 1e-3);
        samples_add(&raw_alloc, (double)first * 1e-3);
        if (!status) status = our_pair(bench, &params, &first, &second);
        samples_add(&ours, (double)(first + second) * 1e-3);
        samples_add(&create, (double)first * 1e-3);
    }
    if (status) return status;
    struct row row = {.group = "direct allocation",
                      .raw = samples_median(&raw),
                      .ours = samples_median(&ours),
                      .unit = "us",
                      .measured_unit = "us",
                      .sense = AT_MOST,
                      .target = 25};
    char size[32];
    row.measured = row.ours - row.raw;
    snprintf(row.name, sizeof row.name, "create + destroy, %s", rf_format_bytes(bytes, size, sizeof size));
    snprintf(row.note, sizeof row.note, "of it creating %+.1f us",
             samples_median(&create) - samples_median(&raw_alloc));
    return report_add(&bench->report, &row);
}

rf_status bench_direct(struct bench *bench) {
    /* Whole multiples of the usual granularity, so that both sides make the same request. */
    static const uint64_t sizes[] = {2 << 20, 16 << 20, 64 << 20, 1 << 30};
    rf_status status = RF_OK;
    for (size_t i = 0; i < RF_COUNT(sizes) && !status; i++)
        if ((!bench->quick || sizes[i] <= 2 << 20) && bench_fits(bench, sizes[i]))
            status = direct_of(bench, sizes[i]);
    return status;
}
